package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// dualView is testView with IPv6 in everything.
func dualView() View {
	v := testView()
	for i, cidr := range []string{"fd11::/64", "fd11:0:0:1::/64"} {
		v.Nodes[i].Spec.PodCIDRs = append(v.Nodes[i].Spec.PodCIDRs, cidr)
	}
	v.Services[0].Spec.ClusterIPs = append(v.Services[0].Spec.ClusterIPs, "fd97::10")
	six := v.EndpointSlices[0].DeepCopy()
	six.Name, six.AddressType, six.Endpoints[0].Addresses = "web-6", discoveryv1.AddressTypeIPv6, []string{"fd11::2"}
	v.EndpointSlices = append(v.EndpointSlices, six)
	v.ServiceCIDRs[0].Spec.CIDRs = append(v.ServiceCIDRs[0].Spec.CIDRs, "fd97::/112")
	v.Attachments[0].IPs = append(v.Attachments[0].IPs, netip.MustParsePrefix("fd11::2/64"))
	west := v.ClusterInfoImports[0].DeepCopy()
	west.Spec.ServiceCIDRs = []string{west.Spec.ServiceCIDR, "fd98::/112"}
	v.ClusterInfoImports = []*mcv1alpha1.ClusterInfoImport{west}
	return v
}

// routesTo returns "destination next-hop source" of routes of a family.
func routesTo(routes []hostnet.Route, six bool) (out []string) {
	for _, r := range routes {
		if r.Dst.Addr().Is6() == six {
			out = append(out, fmt.Sprintf("%s %s %s", r.Dst, r.Gateway, r.Source))
		}
	}
	slices.Sort(out)
	return out
}

// TestDualStack has a Node with both families. Its part of IPv4 is the same as without IPv6.
func TestDualStack(t *testing.T) {
	v := dualView()
	v.Underlay.Link = "eth0"
	d, problems := Plan(v)
	for _, p := range problems {
		t.Errorf("problem: %s", p)
	}
	n := d.Node
	if n.Families != family.Dual || n.ServiceVIP6 != serviceVIP6 || fmt.Sprint(n.GatewayIPs) != "[10.11.0.1 fd11::1]" {
		t.Errorf("Node: families %s, next hop %s, gateways %v", n.Families, n.ServiceVIP6, n.GatewayIPs)
	}
	if got := fmt.Sprint(d.Network.PodCIDRs, d.Network.Gateways); got != "[10.11.0.0/24 fd11::/64] [10.11.0.1 fd11::1]" {
		t.Errorf("network of new Pods: %s", got)
	}
	if got := fmt.Sprint(d.Pods[0].IPs, d.RemoteNodes[0].PodCIDRs, d.RemoteNodes[0].GatewayIPs); got !=
		"[10.11.0.2 fd11::2] [10.11.1.0/24 fd11:0:0:1::/64] [10.11.1.1 fd11:0:0:1::1]" {
		t.Errorf("Pods and other Nodes: %s", got)
	}
	var frontends []string
	for _, f := range d.Frontends {
		frontends = append(frontends, fmt.Sprint(f.VIP, " ", f.Endpoints[0].Addr))
	}
	if got := fmt.Sprint(frontends); got != "[10.97.0.10:80 10.11.0.2:8080 [fd97::10]:80 [fd11::2]:8080]" {
		t.Errorf("frontends: %s", got)
	}
	if got := fmt.Sprint(d.Host.Links[0].Addresses); got != "[10.11.0.1/24 fd11::1/64]" {
		t.Errorf("addresses of the gateway port: %s", got)
	}
	const hop = "fc01::aabb:ccdd:eeff"
	want := []string{hop + "/128 invalid IP fd11::1", "fd11:0:0:1::/64 " + hop + " fd11::1",
		"fd97::/112 " + hop + " fd11::1"}
	if diff := cmp.Diff(want, routesTo(d.Host.Routes, true)); diff != "" {
		t.Errorf("routes of the host (-want +have):\n%s", diff)
	}
	if got := routesTo(d.Host.Forwarded, true); !slices.Equal(got, []string{"fd11::/64 " + hop + " invalid IP"}) {
		t.Errorf("routes of forwarded packets: %v", got)
	}
	for _, want := range []hostnet.Neighbor{{Link: "antrea-gw0", Address: serviceVIP6, MAC: virtualMAC},
		{Link: "antrea-gw0", Address: netip.MustParseAddr("fd11::2"), MAC: "02:00:00:00:00:02"}} {
		if !slices.Contains(d.Host.Neighbors, want) {
			t.Errorf("permanent neighbours are %v, want %v too", d.Host.Neighbors, want)
		}
	}
	if d.Host.Sysctls["net/ipv6/conf/antrea-gw0/accept_ra"] != "0" || d.Host.RouterLink != "eth0" {
		t.Errorf("sysctls: %v; router advertisements come by %q", d.Host.Sysctls, d.Host.RouterLink)
	}

	if got := fmt.Sprint(d.Host.Behind); got != "{[fd11::/64 fd11:0:0:1::/64] antrea-gw0 []}" {
		t.Errorf("packets that come from the switch alone: %s", got)
	}
	v.Config.NoSNAT = true
	open, _ := Plan(v)
	if got := fmt.Sprint(open.Host.Behind.To); got != "[fd11::/64 fd11:0:0:1::/64 fd97::/112]" {
		t.Errorf("with noSNAT, they come from the switch alone to: %s", got)
	}

	four, _ := Plan(testView())
	if four.Host.Behind.Sources != nil {
		t.Errorf("without IPv6, packets come from the switch alone: %v", four.Host.Behind)
	}
	if diff := cmp.Diff(routesTo(four.Host.Routes, false), routesTo(d.Host.Routes, false)); diff != "" {
		t.Errorf("routes of IPv4 (-alone +beside IPv6):\n%s", diff)
	}
	m := d.Host.Masquerade
	const sources = "[169.254.0.253/32 fc01::aabb:ccdd:eeff/128] [10.11.0.0/24 fd11::/64]"
	if got := fmt.Sprint(m.Always, m.Sources); got != sources {
		t.Errorf("masqueraded: %s", got)
	}
	for _, list := range []*[]netip.Prefix{&m.Sources, &m.Always, &m.Except} {
		*list = slices.DeleteFunc(slices.Clone(*list), func(p netip.Prefix) bool { return !is4(p) })
	}
	if diff := cmp.Diff(fmt.Sprint(four.Host.Masquerade), fmt.Sprint(m)); diff != "" {
		t.Errorf("masquerading (-alone +beside IPv6):\n%s", diff)
	}
	if got := fmt.Sprint(d.Peering.Peers[0].CIDRs); got != "[10.98.0.0/16 fd98::/112]" {
		t.Errorf("ranges of the other cluster: %s", got)
	}
	peers := slices.Clone(d.Peering.Peers)
	peers[0].CIDRs = peers[0].CIDRs[:1]
	if diff := cmp.Diff(fmt.Sprint(four.Peering.Peers), fmt.Sprint(peers)); diff != "" {
		t.Errorf("other clusters (-alone +beside IPv6):\n%s", diff)
	}
}

// TestNoRoomForIPv6 has Nodes that cannot serve IPv6. A problem names the reason, and IPv4 is served as without IPv6.
func TestNoRoomForIPv6(t *testing.T) {
	for _, test := range []struct {
		reason string
		change func(*View)
	}{
		{"NoInternalIP", func(v *View) { v.Config.TrafficEncapMode = config.NoEncap }},
		{"MTUTooSmall", func(v *View) { v.Config.DefaultMTU = 1279 }},
		{"IPv6Off", func(v *View) { v.Underlay.NoIPv6 = true }},
	} {
		v, four := dualView(), testView()
		v.Attachments[0].IPs = v.Attachments[0].IPs[:1]
		test.change(&v)
		test.change(&four)
		d, problems := Plan(v)
		if !slices.ContainsFunc(problems, func(p problem.Problem) bool { return p.Reason.String() == test.reason }) {
			t.Errorf("%s: problems %v", test.reason, problems)
		}
		want, _ := Plan(four)
		if diff := cmp.Diff(want.text(), d.text()); diff != "" {
			t.Errorf("%s: desired state (-without IPv6 +with):\n%s", test.reason, diff)
		}
	}
}

// TestIPv6Alone has a cluster whose Pods have IPv6 alone. Tunnels are over IPv4.
func TestIPv6Alone(t *testing.T) {
	v := dualView()
	v.Gateways, v.ClusterInfoImports = nil, nil
	for _, n := range v.Nodes {
		n.Spec.PodCIDRs = n.Spec.PodCIDRs[1:]
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
	v.Services[0].Spec.ClusterIP, v.Services[0].Spec.ClusterIPs = "fd97::10", []string{"fd97::10"}
	v.EndpointSlices, v.Attachments[0].IPs = v.EndpointSlices[1:], v.Attachments[0].IPs[1:]
	v.ServiceCIDRs[0].Spec.CIDRs = v.ServiceCIDRs[0].Spec.CIDRs[1:]
	d, problems := Plan(v)
	for _, p := range problems {
		t.Errorf("problem: %s", p)
	}
	if d.Node.Families != family.IPv6 || fmt.Sprint(d.Node.GatewayIPs) != "[fd11::1]" || d.Network == nil ||
		len(d.Network.PodCIDRs) != 1 || len(d.RemoteNodes) != 1 || len(d.Frontends) != 1 {
		t.Errorf("Node: %+v", d.Node)
	}
	if got := routesTo(d.Host.Routes, false); len(got) != 0 {
		t.Errorf("routes of IPv4: %v", got)
	}
	if slices.ContainsFunc(d.Host.Neighbors, func(n hostnet.Neighbor) bool { return n.Address.Is4() }) {
		t.Errorf("neighbours: %v", d.Host.Neighbors)
	}
	if d.Flows[datapath.PodOwner("web-a1b2c3")].Flows == nil {
		t.Error("the Pod has no flows")
	}
	// The hosts of other Nodes have no way to the Node.
	v.Config.TrafficEncapMode = config.NoEncap
	d, problems = Plan(v)
	reason := func(want string) bool {
		return slices.ContainsFunc(problems, func(p problem.Problem) bool { return p.Reason.String() == want })
	}
	if d.Network != nil || !reason("NoInternalIP") || reason("NoPodCIDR") {
		t.Errorf("a Node without IPv6: %+v, %v", d.Network, problems)
	}
}

// TestRegisteredAgain has Nodes that are registered again, without podCIDRs at first, or with podCIDRs of IPv6 alone.
// Their Pods keep both addresses.
func TestRegisteredAgain(t *testing.T) {
	both := fmt.Sprint([]string{"10.11.0.2", "fd11::2"})
	for _, ranges := range [][]string{nil, {"fd11:0:0:9::/64"}, {"10.19.0.0/24"}} {
		v := dualView()
		v.Nodes[0].Spec.PodCIDRs, v.Nodes[0].Spec.PodCIDR = ranges, ""
		d, problems := Plan(v)
		if d.Node.Families != family.Dual || len(d.Pods) != 1 || fmt.Sprint(d.Pods[0].IPs) != both {
			t.Errorf("podCIDRs %q: families %s, Pods %+v", ranges, d.Node.Families, d.Pods)
		}
		if len(ranges) == 0 {
			continue
		}
		changed := 0
		for _, p := range problems {
			if p.Reason.String() == "PodCIDRChanged" {
				changed++
			}
		}
		if changed != 2 || d.Network == nil || len(d.Network.PodCIDRs) != 1 {
			t.Errorf("podCIDRs %q: network of new Pods %+v, problems %v", ranges, d.Network, problems)
		}
	}
}

// TestClusterIPsNotServed has ranges of ClusterIPs of a version that Nodes have no podCIDR of.
func TestClusterIPsNotServed(t *testing.T) {
	v := dualView()
	v.Nodes[0].Spec.PodCIDRs, v.Attachments[0].IPs = v.Nodes[0].Spec.PodCIDRs[:1], v.Attachments[0].IPs[:1]
	d, problems := Plan(v)
	if d.Node.Families != family.IPv4 || len(problems) != 1 || problems[0].Reason.String() != "ClusterIPsNotServed" ||
		problems[0].Name != "node-1" {
		t.Errorf("families %s, problems %v", d.Node.Families, problems)
	}
}

// TestTunnelsOverIPv6 has Nodes whose addresses are of IPv6 alone.
func TestTunnelsOverIPv6(t *testing.T) {
	v := dualView()
	v.Gateways, v.ClusterInfoImports = nil, nil
	before, _ := Plan(v)
	own, other := netip.MustParseAddr("fd78::101"), netip.MustParseAddr("fd78::102")
	v.Nodes[0].Status.Addresses[0].Address, v.Nodes[1].Status.Addresses[0].Address = own.String(), other.String()
	v.Underlay.Of, v.Underlay.Local = own, []netip.Addr{own}
	v.Underlay.Networks = []netip.Prefix{netip.PrefixFrom(own, 64)}
	d, problems := Plan(v)
	for _, p := range problems {
		t.Errorf("problem: %s", p)
	}
	if n := d.Node; n.Tunnels.Source != own || !slices.Equal(n.Tunnels.Ends, []netip.Addr{own}) {
		t.Errorf("tunnels from %s, which end at %s", n.Tunnels.Source, n.Tunnels.Ends)
	}
	if len(d.RemoteNodes) != 1 || d.RemoteNodes[0].Address != other {
		t.Errorf("other Nodes: %+v", d.RemoteNodes)
	}
	if d.Network.MTU != before.Network.MTU-20 {
		t.Errorf("the MTU of Pods is %d, and over IPv4 %d", d.Network.MTU, before.Network.MTU)
	}

	v.Nodes[1].Status.Addresses = append(v.Nodes[1].Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.168.78.102"})
	if d, problems = Plan(v); len(d.RemoteNodes) != 0 || len(problems) != 1 ||
		problems[0].Reason.String() != "FamiliesDiffer" {
		t.Errorf("another Node with an address of IPv4: %+v, problems %v", d.RemoteNodes, problems)
	}
	// An annotation of IPv6 alone does not count at a Node with an InternalIP of IPv4.
	v = dualView()
	v.Nodes[1].Annotations = map[string]string{"node.antrea.io/transport-addresses": "fd78::102"}
	if d, problems = Plan(v); len(d.RemoteNodes) != 1 || d.RemoteNodes[0].Address.String() != "192.168.78.102" ||
		len(problems) != 1 || problems[0].Reason.String() != "InvalidTransportAddress" {
		t.Errorf("an annotation of IPv6: %+v, problems %v", d.RemoteNodes, problems)
	}
}

// TestTunnelTypes has the types of the tunnel port and of the ports with BFD. The kernel has two kinds of gre.
func TestTunnelTypes(t *testing.T) {
	for _, tc := range []struct {
		name               string
		tunnel, datapath   string
		own, gateway, peer string // addresses of the Node, of its Gateway object if it is one, and of the peer's Gateway
		tunnels, ways      string
		problem            string
	}{
		{"gre over IPv4", "gre", "system", "192.168.78.101", "192.168.78.101", "192.168.79.101", "gre", "gre", ""},
		{"gre over IPv6", "gre", "system", "fd78::101", "fd78::101", "fd79::101", "ip6gre", "ip6gre", ""},
		{"gre of a regular Node over IPv6", "gre", "system", "fd78::101", "", "192.168.79.101", "ip6gre", "", ""},
		{"gre to clusters over IPv6 alone", "gre", "system", "192.168.78.101", "fd78::101", "fd79::101", "gre", "gre",
			"TunnelFamiliesDiffer"},
		{"gre of the userspace datapath", "gre", "netdev", "fd78::101", "fd78::101", "fd79::101", "gre", "gre", ""},
		{"geneve over both", "geneve", "system", "192.168.78.101", "fd78::101", "fd79::101", "geneve", "geneve", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := dualView()
			v.Config.TunnelType, v.Config.OVSDatapathType = tc.tunnel, tc.datapath
			own, other := netip.MustParseAddr(tc.own), netip.MustParseAddr(tc.own).Next()
			v.Nodes[0].Status.Addresses[0].Address, v.Nodes[1].Status.Addresses[0].Address = own.String(), other.String()
			v.Underlay.Of, v.Underlay.Local = own, []netip.Addr{own}
			v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = other.String(), other.String()
			if tc.gateway != "" {
				v.Gateways[0].Name, v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = "node-1", tc.gateway, tc.own
			}
			west := &v.ClusterInfoImports[0].Spec
			west.GatewayInfos[0].GatewayIP = tc.peer
			west.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}
			d, problems := Plan(v)
			have := map[string]string{}
			for _, p := range d.Bridges[0].Ports {
				have[p.ExternalIDs[externalIDType]] = p.Type
			}
			if have[typeTunnel] != tc.tunnels || have[typeWay] != tc.ways {
				t.Errorf("types: %v, want %s of tunnels and %s of ways", have, tc.tunnels, tc.ways)
			}
			is := func(p problem.Problem) bool { return p.Reason.String() == "TunnelFamiliesDiffer" }
			if slices.ContainsFunc(problems, is) != (tc.problem != "") {
				t.Errorf("problems %v, want %q", problems, tc.problem)
			}
		})
	}
}

// TestEncryptedOverIPv6 has encryption between Nodes whose addresses are of IPv6 alone. Inside are addresses of IPv4.
func TestEncryptedOverIPv6(t *testing.T) {
	v := dualView()
	v.Gateways, v.ClusterInfoImports = nil, nil
	v.Config.TrafficEncryptionMode = "wireGuard"
	key := publickey.Key{2}
	v.Nodes[1].Annotations = map[string]string{nodeKey: key.String()}
	four, _ := Plan(v)
	own, other := netip.MustParseAddr("fd78::101"), netip.MustParseAddr("fd78::102")
	v.Nodes[0].Status.Addresses[0].Address, v.Nodes[1].Status.Addresses[0].Address = own.String(), other.String()
	v.Underlay.Of, v.Underlay.Local = own, []netip.Addr{own}
	v.Underlay.Networks = []netip.Prefix{netip.PrefixFrom(own, 64)}
	d, problems := Plan(v)
	for _, p := range problems {
		t.Errorf("problem: %s", p)
	}
	inside := allEncryptionOf(v).of(betweenNodes)
	if len(inside.Peers) != 1 || inside.Peers[0].Endpoint.Addr() != other || inside.Peers[0].PublicKey != key ||
		!peering.InsideRange.Contains(inside.Base) {
		t.Errorf("inside: %+v", inside)
	}
	if n := d.Node; n.Tunnels.Source != inside.Base || !slices.Equal(n.Tunnels.Ends, []netip.Addr{inside.Base}) {
		t.Errorf("tunnels from %s, which end at %s, and this end inside is %s", n.Tunnels.Source, n.Tunnels.Ends, inside.Base)
	}
	if len(d.RemoteNodes) != 1 || d.RemoteNodes[0].Address != inside.Peers[0].AllowedIPs[0].Addr() ||
		d.RemoteNodes[0].Address == inside.Base {
		t.Errorf("other Nodes: %+v", d.RemoteNodes)
	}
	if d.Network.MTU != four.Network.MTU-20 {
		t.Errorf("the MTU of Pods is %d, and over IPv4 %d", d.Network.MTU, four.Network.MTU)
	}
}

// TestFeatureIPv6 reports that the Node carries IPv6 between clusters while it serves IPv6. A Node that is registered
// again has no podCIDR for a moment, and still reports it.
func TestFeatureIPv6(t *testing.T) {
	v := dualView()
	look := reportLook{tables: newTables(v.Config, v.NodeName), families: new(family.Families)}
	reports := func() bool {
		look.tables.set(v)
		look.tables.engine.Pass()
		_, has := features(v.Config, look.served())[mcv1alpha1.FeatureIPv6]
		return has
	}
	node := v.Nodes[0]
	both := node.Spec.PodCIDRs
	if !reports() {
		t.Error("the Node serves IPv6, and does not report it")
	}
	v.Nodes[0] = node.DeepCopy()
	v.Nodes[0].Spec.PodCIDR, v.Nodes[0].Spec.PodCIDRs, v.Attachments = "", nil, nil
	if !reports() {
		t.Error("the Node has no podCIDR for a moment, and reports that it has no IPv6")
	}
	v.Nodes[0] = node.DeepCopy()
	v.Nodes[0].Spec.PodCIDRs = both[:1]
	if reports() {
		t.Error("the Node has IPv4 alone, and reports IPv6")
	}
	v.Nodes[0] = node
	v.Underlay.NoIPv6 = true
	if reports() {
		t.Error("the kernel's IPv6 is off, and the Node reports IPv6")
	}
}

// TestGatewaysOverIPv6 has Gateways of this cluster and another whose addresses are of IPv6. Their tunnels have both
// versions of IP inside.
func TestGatewaysOverIPv6(t *testing.T) {
	own, other, far := netip.MustParseAddr("fd78::101"), netip.MustParseAddr("fd78::102"), "fd79::101"
	v := dualView()
	before, _ := Plan(v)
	v.Nodes[0].Status.Addresses[0].Address, v.Nodes[1].Status.Addresses[0].Address = own.String(), other.String()
	v.Underlay.Of, v.Underlay.Local = own, []netip.Addr{own}
	v.Underlay.Networks = []netip.Prefix{netip.PrefixFrom(own, 64)}
	west := v.ClusterInfoImports[0]
	west.Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: far}}
	west.Spec.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}
	for _, here := range []string{"node-2", "node-1"} {
		at := map[string]netip.Addr{"node-1": own, "node-2": other}[here]
		v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: here},
			GatewayIP: at.String(), InternalIP: at.String()}}
		d, problems := Plan(v)
		for _, p := range problems {
			t.Errorf("Gateway %s: problem: %s", here, p)
		}
		end := map[string]string{"node-1": far, "node-2": other.String()}[here]
		if ends := d.Peering.Peers[0].Ends; len(ends) != 1 || ends[0].Addr.String() != end || d.Node.Tunnels.PeerEnd != at ||
			d.Node.Tunnels.PeerSource != own || d.Network.MTU != before.Network.MTU-20 {
			t.Errorf("Gateway %s: tunnels from %s to %v, peers' end at %s, MTU %d", here, d.Node.Tunnels.PeerSource, ends,
				d.Node.Tunnels.PeerEnd, d.Network.MTU)
		}
		var ways []bridge.Port
		for _, p := range d.Bridges[0].Ports {
			if p.ExternalIDs[externalIDType] == typeWay {
				ways = append(ways, p)
			}
		}
		if here == "node-2" {
			continue
		}
		if len(ways) != 1 || len(ways[0].Name) > 15 || ways[0].Options["remote_ip"] != far ||
			ways[0].Options["local_ip"] != own.String() {
			t.Errorf("ports with BFD: %+v", ways)
		}
		var text string
		for _, f := range d.Flows[datapath.GatewayOwner()].Flows {
			text += f.String() + "\n"
		}
		for _, source := range []string{claims.InsideOf(own).String(), own.String()} {
			if !strings.Contains(text, "nat(src="+source+")") {
				t.Errorf("no request gets the source %s:\n%s", source, text)
			}
		}
	}

	west.Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.79.101"}}
	if d, problems := Plan(v); len(d.Peering.Peers) != 0 || len(problems) != 1 ||
		problems[0].Reason.String() != "GatewayFamiliesDiffer" {
		t.Errorf("a gateway with IPv4: %+v, problems %v", d.Peering.Peers, problems)
	}
}

// TestGatewayAddressOfIPv6 has Nodes with InternalIPs of IPv4. Gateways have addresses of IPv6 for other clusters.
// WireGuard between the clusters is over IPv6, and tunnels between the Nodes are over IPv4.
func TestGatewayAddressOfIPv6(t *testing.T) {
	for _, encrypts := range []bool{false, true} {
		v := testView()
		if encrypts {
			v = encryptedView()
		}
		four, _ := Plan(v)
		outside, far := netip.MustParseAddr("fd78::101"), netip.MustParseAddr("fd79::101")
		v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr("192.168.78.101"), outside)
		g, info := v.Gateways[0].DeepCopy(), mcv1alpha1.GatewayInfo{GatewayIP: far.String()}
		g.Name, g.GatewayIP, g.InternalIP = "node-1", outside.String(), "192.168.78.101"
		end, key := outside, publickey.Key{9}
		if encrypts {
			end = claims.InsideOf(outside)
			g.Annotations = map[string]string{multicluster.AnnotationInsideIP: end.String()}
			info.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: key.String(), InsideIP: claims.InsideOf(far).String()}
		}
		v.Gateways = []*mcv1alpha1.Gateway{g}
		v.ClusterInfoImports[0].Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{info}
		d, problems := Plan(v)
		for _, p := range problems {
			t.Errorf("encryption %t: problem: %s", encrypts, p)
		}
		if own := d.Node.Tunnels; own.PeerEnd != end || own.PeerSource != end || own.Source.String() != "192.168.78.101" {
			t.Errorf("encryption %t: peers' tunnels end at %s, tunnels from %s to peers, from %s to Nodes", encrypts,
				own.PeerEnd, own.PeerSource, own.Source)
		}
		if d.Network.MTU != four.Network.MTU-20 {
			t.Errorf("encryption %t: the MTU of Pods is %d, and over IPv4 %d", encrypts, d.Network.MTU, four.Network.MTU)
		}
		inside := encryptionOf(v)
		if encrypts && (inside.Base != end || len(inside.Peers) != 1 || inside.Peers[0].Endpoint.Addr() != far ||
			inside.Peers[0].PublicKey != key) {
			t.Errorf("inside: %+v", inside)
		}
		links := func(d Desired) (mtu int) {
			for _, l := range d.Host.Links {
				if l.Name == betweenClusters.name {
					mtu = l.MTU
				}
			}
			return mtu
		}
		if encrypts && links(d) != links(four)-20 {
			t.Errorf("the MTU of WireGuard's device is %d, and over IPv4 %d", links(d), links(four))
		}
	}
}

// TestWaysWithOnePortName has far ends whose ports with BFD have the same name. The second one is reported.
func TestWaysWithOnePortName(t *testing.T) {
	v := testView()
	v.Underlay.Local = append(v.Underlay.Local, netip.MustParseAddr("fd78::101"))
	g := v.Gateways[0]
	g.Name, g.GatewayIP, g.InternalIP = "node-1", "fd78::101", "192.168.78.101"
	west := v.ClusterInfoImports[0]
	west.Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "fd79::3:7cb2"}, {GatewayIP: "fd79::9:8e3f"}}
	west.Spec.Features = []string{mcv1alpha1.FeatureActiveGateways}
	d, problems := Plan(v)
	var ends []string
	for _, p := range d.Bridges[0].Ports {
		if p.ExternalIDs[externalIDType] == typeWay {
			ends = append(ends, p.Options["remote_ip"])
		}
	}
	if len(ends) != 1 || ends[0] != "fd79::3:7cb2" || len(problems) != 1 ||
		problems[0].Reason.String() != "WayNotWatched" ||
		problems[0].Field != "status.addresses" ||
		!strings.Contains(problems[0].Message, "fd79::9:8e3f") {
		t.Errorf("ports to %v, problems %v", ends, problems)
	}
}

// TestMTUOfMixedTunnels has Nodes with IPv4 whose cluster may have tunnels over IPv6 to other clusters.
func TestMTUOfMixedTunnels(t *testing.T) {
	for _, test := range []struct {
		name                   string
		nodes, clusters        bool // encryption
		six                    bool // between clusters
		mtu, ofNodes, ofOthers int  // of Pods and of devices, 0 without one
	}{
		{name: "plain", mtu: 1450},
		{name: "plain, clusters over IPv6", six: true, mtu: 1430},
		{name: "encryption between Nodes", nodes: true, mtu: 1390, ofNodes: 1440},
		{name: "encryption between Nodes, clusters over IPv6", nodes: true, six: true, mtu: 1390, ofNodes: 1440},
		{name: "encryption between clusters over IPv6", clusters: true, six: true, mtu: 1370, ofOthers: 1420},
		{name: "encryption of both, clusters over IPv6", nodes: true, clusters: true, six: true, mtu: 1370, ofNodes: 1440,
			ofOthers: 1420},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := encryptedView()
			v.Config.TrafficEncryptionMode, v.Config.Multicluster.TrafficEncryptionMode = "none", "none"
			if test.nodes {
				v.Config.TrafficEncryptionMode = "wireGuard"
			}
			if test.clusters {
				v.Config.Multicluster.TrafficEncryptionMode = "wireGuard"
			}
			g, joining := v.Gateways[0].DeepCopy(), v.Gateways[0].DeepCopy()
			g.Name, g.GatewayIP, g.InternalIP = "node-1", "192.168.78.101", "192.168.78.101"
			joining.Name, joining.GatewayIP, joining.InternalIP = "node-0", "fd78::100", "192.168.78.100"
			joining.Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseJoining}
			if test.six {
				g.GatewayIP = "fd78::101"
			}
			g.Annotations = map[string]string{
				multicluster.AnnotationInsideIP: claims.InsideOf(netip.MustParseAddr(g.GatewayIP)).String()}
			v.Gateways = []*mcv1alpha1.Gateway{g, joining}
			d, _ := Plan(v)
			mtu := map[string]int{}
			for _, l := range d.Host.Links {
				mtu[l.Name] = l.MTU
			}
			if d.Network.MTU != test.mtu || mtu[betweenNodes.name] != test.ofNodes ||
				mtu[betweenClusters.name] != test.ofOthers {
				t.Errorf("MTU %d of Pods, %d and %d of devices", d.Network.MTU, mtu[betweenNodes.name],
					mtu[betweenClusters.name])
			}
		})
	}
}
