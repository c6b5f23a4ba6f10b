package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
)

// encryptedView is testView with encryption, and node-1 as the Gateway.
func encryptedView() View {
	v := testView()
	v.Config.Multicluster.TrafficEncryptionMode = "wireGuard"
	v.LinkMACs[betweenClusters.at] = "02:00:00:00:00:0a"
	g := v.Gateways[0]
	g.Name, g.GatewayIP, g.InternalIP, g.ServiceCIDR = "node-1", "192.168.78.101", "192.168.78.101", "10.97.0.0/16"
	v.ClusterInfoImports[0].Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{9}.String()}
	return v
}

// encryptionOf returns the desired inside tunnels between clusters for a view.
func encryptionOf(v View) tunnelsInside { return allEncryptionOf(v).of(betweenClusters) }

func allEncryptionOf(v View) encrypted {
	t := newTables(v.Config, v.NodeName)
	t.set(v)
	t.engine.Pass()
	e, _ := t.inside.encrypted.Get(self)
	return e
}

// outerAddresses are the addresses that flows send tunnels to and take them from.
func outerAddresses(d Desired) []string {
	var out []string
	for _, lines := range flowTexts(d.Flows) {
		for _, line := range lines {
			for _, at := range []string{"192.168.79.101", "10.98.0.0", "10.97.0.0", "192.168.78.102"} {
				for _, use := range []string{"set_field:" + at + "->tun_dst", "set_field:" + at + "->tun_src", "tun_src=" + at,
					"tun_dst=" + at} {
					if strings.Contains(line, use) && !slices.Contains(out, use) {
						out = append(out, use)
					}
				}
			}
		}
	}
	return out
}

func TestPlanEncrypted(t *testing.T) {
	d, problems := Plan(encryptedView())
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if d.Network == nil || d.Network.MTU != 1390 {
		t.Errorf("network of new Pods: %+v, want an MTU of 1390", d.Network)
	}
	have := encryptionOf(encryptedView())
	if len(have.Peers) != 1 || have.Base.String() != "10.97.0.0" ||
		have.Peers[0].Endpoint.String() != "192.168.79.101:51821" ||
		fmt.Sprint(have.Peers[0].AllowedIPs) != "[10.98.0.0/32]" || have.Peers[0].PublicKey != (publickey.Key{9}) {
		t.Errorf("the device has %+v", have)
	}
	links := map[string]hostnet.Link{}
	for _, l := range d.Host.Links {
		links[l.Name] = l
	}
	if l := links[betweenClusters.name]; l.MTU != 1440 || fmt.Sprint(l.Guards) != "[antrea-mc-wg0 antrea-mc-wg1]" ||
		fmt.Sprint(l.Addresses) != "[10.97.0.0/32]" {
		t.Errorf("link %+v", l)
	}
	for _, want := range []hostnet.Route{
		{Dst: netip.MustParsePrefix("10.98.0.0/31"), Link: "antrea-gw0"},
		{Dst: netip.MustParsePrefix("10.98.0.0/32"), Link: betweenClusters.name, Source: netip.MustParseAddr("10.97.0.0")},
	} {
		if !slices.Contains(d.Host.Routes, want) {
			t.Errorf("there is no route %+v in %+v", want, d.Host.Routes)
		}
	}
	outer := outerAddresses(d)
	for _, want := range []string{"set_field:10.98.0.0->tun_dst", "set_field:10.97.0.0->tun_src", "tun_src=10.98.0.0",
		"tun_dst=10.97.0.0"} {
		if !slices.Contains(outer, want) {
			t.Errorf("no flow has %s: %v", want, outer)
		}
	}
	for _, use := range outer {
		if strings.Contains(use, "192.168.79.101") {
			t.Errorf("a flow has %s, in plain text", use)
		}
	}
	for _, lines := range flowTexts(d.Flows) {
		for _, line := range lines {
			if strings.Contains(line, "tun_src=10.98.0.0") && !strings.Contains(line, "tun_dst=10.97.0.0") {
				t.Errorf("what comes from the peer is taken at another address: %s", line)
			}
		}
	}
}

// TestInsideIPNotKnownYet starts an agent. It does not withdraw the inside address in its Gateway object.
func TestInsideIPNotKnownYet(t *testing.T) {
	v := encryptedView()
	v.Gateways[0].Annotations = map[string]string{multicluster.AnnotationInsideIP: "255.87.177.154"}
	log := slog.New(slog.DiscardHandler)
	a := &Agent{tables: newTables(v.Config, v.NodeName), log: log, options: Options{
		Config: v.Config, NodeName: v.NodeName, StateDir: t.TempDir(), REST: &rest.Config{Host: "http://127.0.0.1:1"},
		Logger: log,
	}}
	if err := a.newPublishers(); err != nil {
		t.Fatal(err)
	}
	want := a.wireguard.publishers[1].want
	if have, known := want(); known {
		t.Errorf("before the first pass %+v is announced", have)
	}
	a.tables.set(v)
	a.tables.engine.Pass()
	if have, known := want(); !known || have.InsideIP != "255.87.177.154" || have.PublicKey == "" {
		t.Errorf("announced: %+v, %t", have, known)
	}
}

// TestEncryptedPort uses the configured port as the port of the device and of the peers. The next higher port is the
// port of the second device.
func TestEncryptedPort(t *testing.T) {
	v := encryptedView()
	v.Config.Multicluster.WireGuard.Port = 4000
	v.ClusterInfoImports[0].Spec.WireGuard.NextPort = 4001
	have := encryptionOf(v)
	if len(have.Peers) != 1 || have.Peers[0].Endpoint.String() != "192.168.79.101:4000" {
		t.Errorf("peers %+v, want one at 192.168.79.101:4000", have.Peers)
	}
	ports := map[string]int{}
	for _, e := range newEncryptions(Options{Config: v.Config, StateDir: t.TempDir(),
		Logger: slog.New(slog.DiscardHandler)}) {
		if e.wanted {
			ports[e.link.name] = e.port
		}
	}
	if want := map[string]int{betweenClusters.name: 4000, secondBetweenClusters.name: 4001}; !maps.Equal(ports, want) {
		t.Errorf("devices listen on %v, want %v", ports, want)
	}
}

// bridgesOf returns the desired bridges, and the names of the bridges that must not exist.
func bridgesOf(d Desired) (there []bridge.Bridge, absent []string) {
	for _, b := range d.Bridges {
		if b.Absent {
			absent = append(absent, b.Name)
		} else {
			there = append(there, b)
		}
	}
	return there, absent
}

// TestPlanEncryptedUserspace puts the device behind a bridge, with a next hop that the switch can find.
func TestPlanEncryptedUserspace(t *testing.T) {
	v := encryptedView()
	v.Config.OVSDatapathType, v.Config.TransportInterface = "netdev", "eth1"
	v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	there, absent := bridgesOf(d)
	inside := there[len(there)-1]
	// with ports that would not read their devices when these come again
	if have := fmt.Sprint(absent); have != "[antrea-mc-wg1 antrea-wg0 antrea-wg1]" {
		t.Errorf("bridges %s shall not be there", have)
	}
	if inside.Name != betweenClusters.name || inside.DatapathType != "netdev" ||
		inside.HardwareAddr != v.LinkMACs[betweenClusters.at] || inside.Ports[0].Name != betweenClusters.tap {
		t.Errorf("bridge %+v", inside)
	}
	if have := fmt.Sprint(
		d.Host.Tunnels); have != "[{antrea-mc-wg0 [10.98.0.0]} {br-eth1 [192.168.78.102 192.168.79.101]}]" {
		t.Errorf("next hops are asked for: %s", have)
	}
	if have := fmt.Sprint(d.Host.Egress); have != "[{eth1 [240.0.0.0/4 10.98.0.0/32]}]" {
		t.Errorf("kept off the network: %s", have)
	}
	// With a source in no subnet of the next hop, Open vSwitch 3.5 would ignore it.
	route := hostnet.Route{Dst: netip.MustParsePrefix("10.98.0.0/32"), Gateway: betweenClusters.hop,
		Link: betweenClusters.name}
	if !slices.Contains(d.Host.Routes, route) {
		t.Errorf("there is no route %+v in %+v", route, d.Host.Routes)
	}
}

// TestPlanEncryptedElsewhere has a regular Node, which sends to the Gateway and has no device. Without encryption no
// Node has a device.
func TestPlanEncryptedElsewhere(t *testing.T) {
	v := encryptedView()
	v.NodeName = "node-2"
	d, _ := Plan(v)
	if e := encryptionOf(v); e.Base.IsValid() || len(d.Host.Links) != 1 {
		t.Errorf("a regular Node has %+v and links %+v", e, d.Host.Links)
	}
	if d.Network == nil || d.Network.MTU != 1390 {
		t.Errorf("network of new Pods: %+v, want an MTU of 1390", d.Network)
	}
	v = encryptedView()
	v.ClusterInfoImports[0].Spec.WireGuard = nil
	d, problems := Plan(v)
	if len(d.Peering.Peers) != 0 || len(problems) != 1 || problems[0].Reason.String() != "PeerWithoutEncryption" {
		t.Errorf("a peer without a key: %+v, %v", d.Peering.Peers, problems)
	}
	v = encryptedView()
	v.Config.Multicluster.TrafficEncryptionMode = "none"
	if e := encryptionOf(v); e.Base.IsValid() {
		t.Errorf("without encryption: %+v", e)
	}
}

// TestPlanEncryptedGateways has two Gateways with a device each. A device has a peer for each gateway of a cluster that
// announces its gateways' keys. A cluster with one key is reached through the first Gateway, from the cluster's
// address.
func TestPlanEncryptedGateways(t *testing.T) {
	view := func(node string) View {
		v := encryptedView()
		v.NodeName, v.Attachments = node, nil
		v.Underlay.Local = []netip.Addr{netip.MustParseAddr("192.168.78.10" + strings.TrimPrefix(node, "node-"))}
		first := v.Gateways[0]
		first.Annotations = map[string]string{multicluster.AnnotationInsideIP: "255.87.177.154"}
		second := first.DeepCopy()
		second.Name, second.GatewayIP, second.InternalIP = "node-2", "192.168.78.102", "192.168.78.102"
		second.CreationTimestamp.Time = first.CreationTimestamp.Add(time.Minute)
		second.Annotations = map[string]string{multicluster.AnnotationInsideIP: "255.87.177.153"}
		v.Gateways = append(v.Gateways, second)
		legacy := v.ClusterInfoImports[0]
		peer := legacy.DeepCopy()
		peer.Name, peer.Spec.ClusterID, peer.Spec.ServiceCIDR, peer.Spec.PodCIDRs = "south", "south", "10.99.0.0/16", nil
		peer.Spec.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}
		peer.Spec.GatewayInfos = nil
		for i, at := range []string{"192.168.80.103", "192.168.80.102"} {
			peer.Spec.GatewayInfos = append(peer.Spec.GatewayInfos,
				mcv1alpha1.GatewayInfo{GatewayIP: at, WireGuard: &mcv1alpha1.WireGuardInfo{
					PublicKey: publickey.Key{byte(20 + i)}.String(), InsideIP: []string{"255.87.175.152", "255.87.175.153"}[i]}})
		}
		peer.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{20}.String()}
		v.ClusterInfoImports = append(v.ClusterInfoImports, peer)
		return v
	}
	for _, test := range []struct {
		node, peers, addresses, bfd string
		routes                      []hostnet.Route
		flows                       []string
	}{
		{"node-1", "[192.168.80.103:51821 [255.87.175.152/32] 192.168.80.102:51821 [255.87.175.153/32] " +
			"192.168.79.101:51821 [10.98.0.0/32]]", "[255.87.177.154/32 10.97.0.0/32]",
			"[192.168.78.101 to 192.168.78.102 255.87.177.154 to 255.87.175.152 255.87.177.154 to 255.87.175.153]",
			[]hostnet.Route{
				{Dst: netip.MustParsePrefix("10.98.0.0/32"), Link: betweenClusters.name, Source: netip.MustParseAddr("10.97.0.0")},
				{Dst: netip.MustParsePrefix("255.87.175.153/32"), Link: betweenClusters.name,
					Source: netip.MustParseAddr("255.87.177.154")},
				{Dst: netip.MustParsePrefix("240.0.0.0/4"), Link: "antrea-gw0"},
			},
			[]string{"set_field:10.97.0.0->tun_src", "set_field:255.87.177.154->tun_src", "set_field:255.87.175.153->tun_dst",
				"nat(src=10.97.0.0)", "nat(src=255.87.177.154)", "tun_dst=10.97.0.0", "tun_dst=255.87.177.154"}},
		{"node-2", "[192.168.80.103:51821 [255.87.175.152/32] 192.168.80.102:51821 [255.87.175.153/32]]",
			"[255.87.177.153/32]",
			"[192.168.78.102 to 192.168.78.101 255.87.177.153 to 255.87.175.152 255.87.177.153 to 255.87.175.153]",
			[]hostnet.Route{{Dst: netip.MustParsePrefix("255.87.175.152/32"), Link: betweenClusters.name,
				Source: netip.MustParseAddr("255.87.177.153")}},
			[]string{"set_field:255.87.177.153->tun_src", "set_field:255.87.175.152->tun_dst", "nat(src=255.87.177.153)",
				"tun_dst=255.87.177.153", "set_field:192.168.78.101->tun_dst"}},
	} {
		t.Run(test.node, func(t *testing.T) {
			v := view(test.node)
			d, problems := Plan(v)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			var peers []string
			for _, p := range encryptionOf(v).Peers {
				peers = append(peers, fmt.Sprint(p.Endpoint, " ", p.AllowedIPs))
			}
			if have := fmt.Sprint(peers); have != test.peers {
				t.Errorf("the device has peers %s, want %s", have, test.peers)
			}
			for _, l := range d.Host.Links {
				if l.Name == betweenClusters.name && fmt.Sprint(l.Addresses) != test.addresses {
					t.Errorf("the device has addresses %v, want %s", l.Addresses, test.addresses)
				}
			}
			for _, want := range test.routes {
				if !slices.Contains(d.Host.Routes, want) {
					t.Errorf("there is no route %+v in %+v", want, d.Host.Routes)
				}
			}
			for i, r := range d.Host.Routes {
				if slices.Contains(d.Host.Routes[:i], r) {
					t.Errorf("route %+v is there twice", r)
				}
			}
			var ways []string
			for _, p := range d.Bridges[0].Ports {
				if len(p.BFD) > 0 {
					ways = append(ways, p.Options["local_ip"]+" to "+p.Options["remote_ip"])
				}
			}
			slices.Sort(ways)
			if have := fmt.Sprint(ways); have != test.bfd {
				t.Errorf("BFD is between %s, want %s", have, test.bfd)
			}
			var all strings.Builder
			for _, lines := range flowTexts(d.Flows) {
				for _, line := range lines {
					fmt.Fprintln(&all, line)
				}
			}
			for _, want := range test.flows {
				if !strings.Contains(all.String(), want) {
					t.Errorf("no flow has %s", want)
				}
			}
			for _, outside := range []string{"192.168.79.101", "192.168.80.103", "192.168.80.102"} {
				if strings.Contains(all.String(), outside) {
					t.Errorf("a flow has %s, where tunnels in plain text would end", outside)
				}
			}
		})
	}
}

// nodesView is testView with encryption between the Nodes.
func nodesView() View {
	v := testView()
	v.Config.TrafficEncryptionMode = "wireGuard"
	v.LinkMACs[betweenNodes.at] = "02:00:00:00:00:0b"
	for i, n := range v.Nodes {
		n.Annotations = map[string]string{nodeKey: publickey.Key{byte(i + 1)}.String()}
	}
	return v
}

// TestPlanEncryptedNodes ends tunnels between the Nodes of a cluster inside, and tunnels to other clusters outside. No
// packet goes in plain text to an address where a tunnel would end.
func TestPlanEncryptedNodes(t *testing.T) {
	v := nodesView()
	d, problems := Plan(v)
	if len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	if d.Network == nil || d.Network.MTU != 1390 {
		t.Errorf("network of new Pods: %+v, want an MTU of 1390", d.Network)
	}
	have := allEncryptionOf(v)
	nodes, clusters := have.of(betweenNodes), have.of(betweenClusters)
	if len(nodes.Peers) != 1 || nodes.Base.String() != "240.168.78.101" || clusters.Base.IsValid() ||
		nodes.Peers[0].Endpoint.String() != "192.168.78.102:51820" ||
		nodes.Peers[0].PublicKey != (publickey.Key{2}) ||
		fmt.Sprint(nodes.Peers[0].AllowedIPs) != "[240.168.78.102/32]" {
		t.Errorf("the devices have %+v", have)
	}
	links := map[string]hostnet.Link{}
	for _, l := range d.Host.Links {
		links[l.Name] = l
	}
	if l := links[betweenNodes.name]; l.MTU != 1440 || fmt.Sprint(l.Guards) != "[antrea-wg0 antrea-wg1]" ||
		fmt.Sprint(l.Addresses) != "[240.168.78.101/32]" {
		t.Errorf("link %+v", l)
	}
	for _, want := range []hostnet.Route{
		{Dst: netip.MustParsePrefix("240.0.0.0/4"), Link: "antrea-gw0"},
		{Dst: netip.MustParsePrefix("240.168.78.102/32"), Link: betweenNodes.name,
			Source: netip.MustParseAddr("240.168.78.101")},
	} {
		if !slices.Contains(d.Host.Routes, want) {
			t.Errorf("there is no route %+v in %+v", want, d.Host.Routes)
		}
	}
	all := ""
	for _, lines := range flowTexts(d.Flows) {
		all += strings.Join(lines, "\n") + "\n"
	}
	for _, want := range []string{"set_field:240.168.78.102->tun_dst", "set_field:240.168.78.101->tun_src",
		"tun_src=240.168.78.102", "tun_dst=240.168.78.101"} {
		if !strings.Contains(all, want) {
			t.Errorf("no flow has %s", want)
		}
	}
	for line := range strings.Lines(all) {
		for _, plain := range []string{"192.168.78.101->tun", "192.168.78.102->tun", "tun_src=192.168.78.",
			"tun_dst=192.168.78."} {
			if strings.Contains(line, plain) {
				t.Errorf("in plain text: %s", line)
			}
		}
	}
	if !strings.Contains(all, "nw_src=192.168.78.102") {
		t.Error("the other Node's host cannot send with its own address")
	}
}

// TestPlanEncryptedNodesAndClusters encrypts both kinds of tunnels, on the Gateway and on another Node, with both
// datapaths.
func TestPlanEncryptedNodesAndClusters(t *testing.T) {
	both := func() View {
		v := encryptedView()
		v.Config.TrafficEncryptionMode = "wireGuard"
		v.LinkMACs[betweenNodes.at] = "02:00:00:00:00:0b"
		for i, n := range v.Nodes {
			n.Annotations = map[string]string{nodeKey: publickey.Key{byte(i + 1)}.String()}
		}
		return v
	}
	v := both()
	d, problems := Plan(v)
	have := allEncryptionOf(v)
	nodes, clusters := have.of(betweenNodes), have.of(betweenClusters)
	if len(problems) > 0 || len(nodes.Peers) != 1 || len(clusters.Peers) != 1 || d.Network.MTU != 1390 {
		t.Errorf("problems %v, devices %+v, MTU %d", problems, have, d.Network.MTU)
	}
	if own := d.Node.Tunnels; own.Source.String() != "240.168.78.101" || own.PeerSource.String() != "10.97.0.0" ||
		fmt.Sprint(own.Ends) != "[240.168.78.101]" {
		t.Errorf("tunnels come from %s and %s, and end at %v", own.Source, own.PeerSource, own.Ends)
	}
	for _, use := range outerAddresses(d) {
		if strings.Contains(use, "192.168.") {
			t.Errorf("a flow has %s, in plain text", use)
		}
	}
	v = both()
	v.NodeName, v.Attachments = "node-2", nil
	v.Underlay.Local = []netip.Addr{netip.MustParseAddr("192.168.78.102")}
	d, problems = Plan(v)
	ends := d.Peering.Peers[0].Ends
	if len(problems) > 0 || len(ends) != 1 || ends[0].Addr.String() != "240.168.78.101" || ends[0].Leaving {
		t.Errorf("problems %v; another Node sends to %v", problems, ends)
	}
	v = both()
	v.Config.OVSDatapathType, v.Config.TransportInterface = "netdev", "eth1"
	v.Underlay.Uplink = &hostnet.Transport{Interface: "eth1", MAC: "02:00:00:00:00:09", MTU: 1500,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}}
	d, problems = Plan(v)
	there, _ := bridgesOf(d)
	if len(problems) > 0 || len(there) != 4 {
		t.Fatalf("problems %v, bridges %+v", problems, d.Bridges)
	}
	for i, want := range []struct {
		link insideLink
		mac  string
	}{{betweenClusters, v.LinkMACs[betweenClusters.at]}, {betweenNodes, v.LinkMACs[betweenNodes.at]}} {
		if b := there[2+i]; b.Name != want.link.name || b.HardwareAddr != want.mac || b.Ports[0].Name != want.link.tap {
			t.Errorf("bridge %+v", b)
		}
	}
	if have := fmt.Sprint(d.Host.Tunnels); have != "[{antrea-mc-wg0 [10.98.0.0]} "+
		"{antrea-wg0 [240.168.78.102]} {br-eth1 [192.168.78.102 192.168.79.101]}]" {
		t.Errorf("next hops are asked for: %s", have)
	}
	if have := fmt.Sprint(d.Host.Egress); have != "[{eth1 [240.0.0.0/4 10.98.0.0/32]}]" {
		t.Errorf("kept off the network: %s", have)
	}
}

// TestPlanEncryptedNodesRefused has Nodes whose settings do not fit this Node's. They are not reached, and the others
// are.
func TestPlanEncryptedNodesRefused(t *testing.T) {
	third := func(v View, key string, address string) View {
		n := v.Nodes[1].DeepCopy()
		n.Name, n.Spec.PodCIDR, n.Spec.PodCIDRs = "node-10", "10.11.3.0/24", []string{"10.11.3.0/24"}
		n.CreationTimestamp = metav1.Unix(1, 0) // the youngest, and not the last by name
		n.Status.Addresses[0].Address = address
		n.Annotations = map[string]string{nodeKey: key}
		v.Nodes = append(slices.Clone(v.Nodes), n)
		return v
	}
	for _, test := range []struct {
		name    string
		view    View
		reached string
		reason  string
		message string
	}{
		{"another", third(nodesView(), publickey.Key{3}.String(), "192.168.78.103"), "[node-10 node-2]", "", ""},
		{"without a key", third(nodesView(), "", "192.168.78.103"), "[node-2]", "NodeWithoutEncryption",
			"set trafficEncryptionMode to wireGuard"},
		{"a key that is none", third(nodesView(), "k", "192.168.78.103"), "[node-2]", "InvalidWireGuardKey",
			"remove the annotation"},
		{"this Node's key", third(nodesView(), publickey.Key{1}.String(), "192.168.78.103"), "[node-2]",
			"DuplicateWireGuardKey", "Node node-1 has the same WireGuard key"},
		{"another Node's key", third(nodesView(), publickey.Key{2}.String(), "192.168.78.103"), "[node-2]",
			"DuplicateWireGuardKey", "Node node-2 has the same WireGuard key"},
		{"an address that is another's inside", third(nodesView(), publickey.Key{3}.String(), "208.168.78.102"), "[node-2]",
			"DuplicateInsideAddress", "Node node-2"},
		{"an address inside", third(nodesView(), publickey.Key{3}.String(), "241.1.1.1"), "[node-2]", "InvalidAddress",
			"give the Node another address"},
		{"no encryption here", third(func() View {
			v := nodesView()
			v.Config.TrafficEncryptionMode = "none"
			delete(v.Nodes[1].Annotations, nodeKey)
			return v
		}(), publickey.Key{3}.String(), "192.168.78.103"),
			"[node-2]", "NodeExpectsEncryption", "for all Nodes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, problems := Plan(test.view)
			var reached []string
			for _, r := range d.RemoteNodes {
				reached = append(reached, r.Name)
			}
			if fmt.Sprint(reached) != test.reached {
				t.Errorf("reached: %v", reached)
			}
			if test.reason == "" {
				if len(problems) > 0 {
					t.Errorf("problems %v", problems)
				}
				return
			}
			if len(problems) != 1 || problems[0].Reason.String() != test.reason || problems[0].Name != "node-10" ||
				problems[0].Field == "" || !strings.Contains(problems[0].Message, test.message) {
				t.Errorf("problems %+v", problems)
			}
			for _, lines := range flowTexts(d.Flows) {
				for _, line := range lines {
					if test.view.Nodes[2].Status.Addresses[0].Address != "208.168.78.102" &&
						strings.Contains(line, test.view.Nodes[2].Status.Addresses[0].Address+"->tun") ||
						strings.Contains(line, "10.11.3.") {
						t.Errorf("it is sent to: %s", line)
					}
				}
			}
		})
	}
}

// TestPlanPlainToGateway has a Node without encryption. It sends no plain text to a Gateway of its cluster that
// announces a key.
func TestPlanPlainToGateway(t *testing.T) {
	v := testView()
	v.NodeName = "node-1"
	g := v.Gateways[0]
	g.Name, g.GatewayIP, g.InternalIP = "node-2", "192.168.78.102", "192.168.78.102"
	v.Nodes[1].Annotations = map[string]string{nodeKey: publickey.Key{2}.String()}
	d, _ := Plan(v)
	for _, lines := range flowTexts(d.Flows) {
		for _, line := range lines {
			if strings.Contains(line, "192.168.78.102->tun_dst") {
				t.Errorf("in plain text: %s", line)
			}
		}
	}
	if want := (hostnet.Route{Dst: netip.MustParsePrefix("240.0.0.0/4"), Link: "antrea-gw0"}); !slices.Contains(
		d.Host.Routes, want) {
		t.Errorf("what is for the address inside may leave: %+v", d.Host.Routes)
	}
}

// TestPlanEncryptedWays has several Gateways. The ports with BFD have known ends, and tunnels from inside end inside.
func TestPlanEncryptedWays(t *testing.T) {
	for _, test := range []struct {
		name         string
		nodes, peers bool
		want         string
	}{
		{"between Nodes", true, false, "[192.168.79.101 from 192.168.78.101 240.168.78.102 from 240.168.78.101]"},
		{"between clusters", false, true, "[192.168.78.102 from 192.168.78.101]"},
		{"both", true, true, "[240.168.78.102 from 240.168.78.101]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := nodesView()
			if test.peers {
				v = encryptedView()
			}
			if test.nodes {
				v.Config.TrafficEncryptionMode = "wireGuard"
				for i, n := range v.Nodes {
					n.Annotations = map[string]string{nodeKey: publickey.Key{byte(i + 1)}.String()}
				}
			}
			v.Config.TransportInterface = "eth1"
			v.Underlay.Addresses = []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24")}
			first := v.Gateways[0]
			first.Name, first.GatewayIP, first.InternalIP = "node-1", "192.168.78.101", "192.168.78.101"
			second := first.DeepCopy()
			second.Name, second.GatewayIP, second.InternalIP = "node-2", "192.168.78.102", "192.168.78.102"
			v.Gateways = append(slices.Clone(v.Gateways), second)
			v.ClusterInfoImports[0].Spec.Features = []string{mcv1alpha1.FeatureActiveGateways}
			d, problems := Plan(v)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			var have []string
			for _, p := range d.Bridges[0].Ports {
				if strings.HasPrefix(p.Name, "bfd-") {
					have = append(have, p.Options["remote_ip"]+" from "+p.Options["local_ip"])
				}
			}
			slices.Sort(have)
			if fmt.Sprint(have) != test.want {
				t.Errorf("ports with BFD: %v, want %s", have, test.want)
			}
			for _, lines := range flowTexts(d.Flows) {
				for _, line := range lines {
					if strings.Contains(line, "tun_src=240.") && !strings.Contains(line, "tun_dst=240.168.78.101") {
						t.Errorf("what comes from inside is taken elsewhere: %s", line)
					}
				}
			}
		})
	}
}
