package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// The scenario of this package's tests is cluster east, whose Nodes have Pods in 10.11.<n>.0/24 and Services in
// 10.97.0.0/16, and its peers:
//
//	                  transport        gateway   Services
//	east/node-1       192.168.78.101   regular   10.97.0.0/16
//	east/node-2       192.168.78.102   Gateway   10.97.0.0/16
//	west              192.168.77.101   Gateway   10.96.0.0/16
//	north             192.168.79.101   Gateway   10.98.0.0/16
//
// Each Node of east has pod1 and pod2 at ports 1 and 2, addresses .2 and .3.
const (
	tunnelPort  ofp.Port = 32768
	gatewayPort ofp.Port = 32769
)

var (
	vip         = netip.MustParseAddr("169.254.0.253")
	eastOne     = netip.MustParseAddr("192.168.78.101")
	eastTwo     = netip.MustParseAddr("192.168.78.102")
	westGW      = netip.MustParseAddr("192.168.77.101")
	northGW     = netip.MustParseAddr("192.168.79.101")
	addrOf      = netip.MustParseAddr
	rangeOf     = netip.MustParsePrefix
	gwMAC       = ofp.MAC{0x0e, 0, 0, 0, 0, 0x01}
	eastGateway = peering.GatewayNode{Name: "node-2", GatewayIP: eastTwo, InternalIP: eastTwo}
	westGateway = peering.GatewayNode{Name: "node-1", GatewayIP: westGW, InternalIP: westGW}
	podMACOne   = ofp.MAC{0x0a, 0, 0, 0, 0, 0x02}
	podMACTwo   = ofp.MAC{0x0a, 0, 0, 0, 0, 0x03}
)

// onNode is the state of east/node-<n>.
func onNode(n int) State {
	cidr := []netip.Prefix{rangeOf("10.11.0.0/24"), rangeOf("10.11.1.0/24")}
	address := []netip.Addr{eastOne, eastTwo}
	self, other := n-1, 2-n
	at := func(last byte) netip.Addr {
		a := cidr[self].Addr().As4()
		a[3] = last
		return netip.AddrFrom4(a)
	}
	names := []string{"node-1", "node-2"}
	s := State{
		Node: Node{
			Name: names[self], GatewayMAC: gwMAC, GatewayIPs: []netip.Addr{at(1)},
			GatewayPort: gatewayPort, PodCIDRs: cidr[self : self+1],
			ServiceVIP: vip, ServiceCIDRs: []netip.Prefix{rangeOf("10.97.0.0/16")},
			PacketInRate: 5000,
			Tunnels: Tunnels{
				Port: tunnelPort, Ends: address[self : self+1], Source: address[self], PeerSource: address[self],
				Outer: Tunnel{Protocol: 17, Port: 6081},
			},
		},
		Pods: []Pod{
			{Namespace: "default", Name: "pod1", Interface: "pod1-a1b2c3", MAC: podMACOne, IPs: []netip.Addr{at(2)}, Port: 1},
			{Namespace: "default", Name: "pod2", Interface: "pod2-d4e5f6", MAC: podMACTwo, IPs: []netip.Addr{at(3)}, Port: 2},
		},
		RemoteNodes: []RemoteNode{{
			Name: names[other], PodCIDRs: cidr[other : other+1], Address: address[other],
			GatewayIPs: []netip.Addr{addrOf(cidrHost(cidr[other], 1))},
		}},
		Frontends: []service.Frontend{
			frontend("web", corev1.ProtocolTCP, "10.97.0.10:80", "10.11.0.2:8080", "10.11.1.3:8080"),
			frontend("self", corev1.ProtocolTCP, "10.97.0.11:80", cidrHost(cidr[self], 2)+":8080"),
			frontend("dns", corev1.ProtocolUDP, "10.97.0.12:53", "10.11.0.3:5353"),
			frontend("empty", corev1.ProtocolTCP, "10.97.0.13:80"),
			frontend("kubernetes", corev1.ProtocolTCP, "10.97.0.1:443", "172.30.1.10:6443"),
			frontend("antrea-mc-nginx", corev1.ProtocolTCP, "10.97.0.14:80", "10.96.0.20:80"),
		},
		Peering: peering.Peering{
			Part: partOf(peering.Regular, eastGateway),
			Peers: []peering.Peer{
				peerAt("north", rangeOf("10.98.0.0/16"), northGW, eastTwo),
				peerAt("west", rangeOf("10.96.0.0/16"), westGW, eastTwo),
			},
		},
		Exported: exported("web", "self", "empty", "kubernetes", "headless"),
		Slices:   map[derive.Object]service.SliceFacts{},
	}
	for _, f := range append(s.Frontends, frontend("headless", corev1.ProtocolTCP, "0.0.0.0:0", "10.11.0.3:9090")) {
		for _, e := range f.Endpoints {
			s.Slices[derive.Object{Namespace: f.Namespace, Name: f.Service + "-" + e.Addr.String()}] = service.SliceFacts{
				Service:   derive.Object{Namespace: f.Namespace, Name: f.Service},
				Ports:     []service.SlicePort{{Protocol: f.Protocol, Port: e.Addr.Port()}},
				Endpoints: []service.EndpointFacts{{Addr: e.Addr.Addr()}},
			}
		}
	}
	if n == 2 {
		s.Peering.Part.Role = peering.Gateway
		for i := range s.Peering.Peers {
			p := &s.Peering.Peers[i]
			p.Ends = []peering.End{{Addr: p.Gateways[0].End()}}
		}
	}
	return s
}

// vip6 is the host's next hop for Services in IPv6.
var vip6 = netip.MustParseAddr("fc01::aabb:ccdd:eeff")

// dualNode is the state of east/node-<n> with both versions of IP: Pods in fd11:0:0:<n-1>::/64, and Services of both.
func dualNode(n int) State { return withIPv6(onNode(n), n, family.Dual) }

// sixNode is the state of east/node-<n> with IPv6 alone. Its tunnels end at the same addresses.
func sixNode(n int) State {
	s := withIPv6(onNode(n), n, family.IPv6)
	s.Frontends = slices.DeleteFunc(s.Frontends, func(f service.Frontend) bool { return f.VIP.Addr().Is4() })
	s.Peering, s.Exported = peering.Peering{}, nil
	return s
}

// withIPv6 adds IPv6 to a Node of east, and leaves IPv4 out if the Node does not have it.
func withIPv6(s State, n int, families family.Families) State {
	s = withRanges6(s, n, families, []netip.Prefix{rangeOf("fd11::/64"), rangeOf("fd11:0:0:1::/64")}, "fd97::/112")
	self := s.Pods[0].IPs[len(s.Pods[0].IPs)-1]
	s.Frontends = append(slices.Clone(s.Frontends),
		frontend("web", corev1.ProtocolTCP, "[fd97::10]:80", "[fd11::2]:8080", "[fd11:0:0:1::3]:8080"),
		frontend("self", corev1.ProtocolTCP, "[fd97::11]:80", fmt.Sprintf("[%s]:8080", self)),
		frontend("dns", corev1.ProtocolUDP, "[fd97::12]:53", "[fd11::3]:5353"),
		frontend("kubernetes", corev1.ProtocolTCP, "[fd97::1]:443", "[2001:db8::10]:6443"))
	return s
}

// withRanges6 adds the ranges of IPv6 of the two Nodes' Pods and of Services.
func withRanges6(s State, n int, families family.Families, cidrs []netip.Prefix, services string) State {
	at := func(p netip.Prefix, last byte) netip.Addr {
		a := p.Addr().As16()
		a[15] = last
		return netip.AddrFrom16(a)
	}
	self, other := cidrs[n-1], cidrs[2-n]
	addresses := func(list []netip.Addr, ip netip.Addr) []netip.Addr {
		if !families.Has4() {
			list = nil
		}
		return append(slices.Clone(list), ip)
	}
	ranges := func(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
		if !families.Has4() {
			list = nil
		}
		return append(slices.Clone(list), p)
	}
	s.Node.Families, s.Node.ServiceVIP6, s.Node.NoND = families, vip6, ovstest.System()
	s.Node.PodCIDRs, s.Node.GatewayIPs = ranges(s.Node.PodCIDRs, self), addresses(s.Node.GatewayIPs, at(self, 1))
	s.Node.ServiceCIDRs = ranges(s.Node.ServiceCIDRs, rangeOf(services))
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		s.Pods[i].IPs = addresses(s.Pods[i].IPs, at(self, byte(i+2)))
	}
	s.RemoteNodes = slices.Clone(s.RemoteNodes)
	r := &s.RemoteNodes[0]
	r.PodCIDRs, r.GatewayIPs = ranges(r.PodCIDRs, other), addresses(r.GatewayIPs, at(other, 1))
	return s
}

// ofFamily returns the address of a list that has the family of another one.
func ofFamily(list []netip.Addr, as netip.Addr) netip.Addr {
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Is4() == as.Is4() })
	return list[max(0, i)]
}

// partOf returns a Node's part in a cluster with one Gateway.
func partOf(role peering.Role, gateway peering.GatewayNode) peering.Part {
	return peering.Part{
		Role: role, Gateway: gateway, Gateways: []peering.GatewayNode{gateway}, End: gateway.GatewayIP,
	}
}

// peerAt returns a peer with one gateway. The Node's tunnels to the peer end at an address.
func peerAt(id string, services netip.Prefix, gateway, end netip.Addr) peering.Peer {
	return peering.Peer{
		ClusterID: id, CIDRs: []netip.Prefix{services},
		Gateways: []peering.Way{{Outside: gateway}}, Ends: []peering.End{{Addr: end}},
	}
}

// exported are Services of the default Namespace that other clusters may use.
func exported(names ...string) map[derive.Object]bool {
	out := map[derive.Object]bool{}
	for _, n := range names {
		out[derive.Object{Namespace: "default", Name: n}] = true
	}
	return out
}

func cidrHost(p netip.Prefix, last byte) string {
	a := p.Addr().As4()
	a[3] = last
	return netip.AddrFrom4(a).String()
}

func frontend(name string, protocol corev1.Protocol, vip string, endpoints ...string) service.Frontend {
	f := service.Frontend{Namespace: "default", Service: name, Protocol: protocol, VIP: netip.MustParseAddrPort(vip)}
	for _, e := range endpoints {
		f.Endpoints = append(f.Endpoints, service.Endpoint{Addr: netip.MustParseAddrPort(e), Weight: 1})
	}
	return f
}

// mustPlan plans a state that has no problems.
func mustPlan(t testing.TB, s State) map[flow.Owner]flow.Entries {
	t.Helper()
	out, problems := Plan(s)
	for _, p := range problems {
		t.Errorf("unexpected problem: %s", p)
	}
	return out
}

// setOf is everything that all owners want.
func setOf(t testing.TB, entries map[flow.Owner]flow.Entries) *flow.Set {
	t.Helper()
	set := flow.NewSet()
	for o, e := range entries {
		if err := set.AddEntries(e); err != nil {
			t.Fatalf("owner %s: %v", o, err)
		}
	}
	return set
}
