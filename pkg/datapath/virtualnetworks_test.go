package datapath

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// virtualNodes are east1 and east2. pod1 and pod2 are in the default network, pod3 is a further interface of pod1 in
// VirtualNetwork a/blue, pod4 one of pod2 in a/red, and pod5 is the first interface of a Pod of the isolated
// Namespace c.
func virtualNodes(joins map[string][]string) map[string]State {
	ids := map[string]tenant.ID{"blue": 0xb1, "red": 0x2ed, "c": 0xc0ffee}
	place := func(name string) tenant.Place {
		p := tenant.Place{Known: true, Network: tenant.Name{Door: "vn", Namespace: "a", Name: name}, ID: ids[name]}
		for _, other := range joins[name] {
			p.Joined = append(p.Joined, ids[other])
		}
		slices.Sort(p.Joined)
		return p
	}
	networks := map[derive.Object]tenant.VirtualNetwork{}
	for i, name := range []string{"blue", "red"} {
		v := tenant.VirtualNetwork{Place: place(name)}
		for _, g := range []tenant.Range{
			{CIDR: rangeOf(fmt.Sprintf("10.50.%d.0/24", i)), Gateway: addrOf(fmt.Sprintf("10.50.%d.1", i))},
			{CIDR: rangeOf(fmt.Sprintf("fd50:%d::/64", i)), Gateway: addrOf(fmt.Sprintf("fd50:%d::1", i))},
		} {
			l := tenant.LeaseFacts{Range: g}
			for n, node := range []string{"east1", "east2"} {
				from := g.CIDR.Addr()
				for range 16 * n {
					from = from.Next()
				}
				l.Nodes = append(l.Nodes, tenant.NodeBlocks{Node: node,
					Blocks: []netip.Prefix{netip.PrefixFrom(from, g.CIDR.Addr().BitLen()-4)}})
			}
			v.Leases = append(v.Leases, l)
		}
		networks[derive.Object{Namespace: "a", Name: name}] = v
	}
	states := tenantNodes(map[string]tenant.Place{"default": {Known: true}, "a": {Known: true}, "c": place("c")})
	for node, s := range states {
		s.Node.Name, s.RemoteNodes = node, slices.Clone(s.RemoteNodes)
		s.RemoteNodes[0].Name = map[string]string{"east1": "east2", "east2": "east1"}[node]
		for i, name := range []string{"blue", "red"} {
			pod := &s.Pods[2+i]
			pod.Namespace, pod.Network, pod.IPs = "a", derive.Object{Namespace: "a", Name: name}, nil
			for _, l := range networks[pod.Network].Leases {
				n := slices.IndexFunc(l.Nodes, func(b tenant.NodeBlocks) bool { return b.Node == node })
				pod.IPs = append(pod.IPs, l.Nodes[n].Blocks[0].Addr().Next().Next())
			}
		}
		own := s.Pods[0]
		own.Namespace, own.Name, own.Interface, own.Port, own.MAC[5], own.IPs = "c", "pod5", "pod5", 5, 9, nil
		for _, ip := range s.Pods[0].IPs {
			own.IPs = append(own.IPs, ip.Next().Next().Next().Next())
		}
		s.Pods = append(s.Pods, own)
		s.Networks = networks
		states[node] = s
	}
	return states
}

// TestVirtualConversations follows conversations in two VirtualNetworks over two Nodes.
func TestVirtualConversations(t *testing.T) {
	const blue, far, blue6, far6 = "10.50.0.2:80", "10.50.0.18:80", "[fd50::2]:80", "[fd50::12]:80"
	joined := map[string][]string{"blue": {"red"}, "red": {"blue"}}
	isolated := map[string][]string{"blue": {"c"}, "c": {"blue"}}
	for _, row := range []struct {
		name, from, to, there, back string
		joins                       map[string][]string
	}{
		{name: "to another Node", from: "east1 pod3", to: far, there: "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:80",
			back: "east2 east1 pod3: 10.50.0.18:80 > 10.50.0.2:40000"},
		{name: "by IPv6", from: "east1 pod3", to: far6, there: "east1 east2 pod3: [fd50::2]:40000 > [fd50::12]:80",
			back: "east2 east1 pod3: [fd50::12]:80 > [fd50::2]:40000"},
		{name: "to another network on its Node", from: "east1 pod3", to: "10.50.1.2:80", there: "east1 dropped in Tenant"},
		{name: "to another network on another Node", from: "east1 pod3", to: "10.50.1.18:80",
			there: "east1 dropped in Tenant"},
		{name: "to another network by IPv6", from: "east1 pod3", to: "[fd50:1::12]:80", there: "east1 dropped in Tenant"},
		{name: "to an address without a Pod", from: "east1 pod3", to: "10.50.0.7:80", there: "east1 dropped in Tenant"},
		{name: "to a block that no Node has", from: "east1 pod3", to: "10.50.0.77:80", there: "east1 dropped in Tenant"},
		{name: "to the gateway", from: "east1 pod3", to: "10.50.0.1:80", there: "east1 dropped in Tenant"},
		{name: "to the default network", from: "east1 pod3", to: "10.11.0.2:80", there: "east1 dropped in Tenant"},
		{name: "to it on another Node", from: "east1 pod3", to: "10.11.1.2:80", there: "east1 east2 dropped in Tenant"},
		{name: "to an isolated Namespace", from: "east1 pod3", to: "10.11.0.6:80", there: "east1 dropped in Tenant"},
		{name: "to the world", from: "east1 pod3", to: "192.0.2.1:80", there: "east1 dropped in Tenant"},
		{name: "to its Node", from: "east1 pod3", to: "10.11.0.1:10250", there: "east1 dropped in Tenant"},
		{name: "to the API server", from: "east1 pod3", to: "10.97.0.1:443", there: "east1 dropped in Tenant"},
		{name: "to a Service at an address of the network", from: "east1 pod3", to: "10.50.0.18:443",
			there: "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:443",
			back:  "east2 east1 pod3: 10.50.0.18:443 > 10.50.0.2:40000"},
		{name: "the default network to it", from: "east1 pod1", to: far, there: "east1 host: 10.11.0.2:40000 > 10.50.0.18:80",
			back: "east1 pod1: 10.50.0.18:80 > 10.11.0.2:40000"},
		{name: "an isolated Namespace to it", from: "east1 pod5", to: blue, there: "east1 dropped in Tenant"},
		{name: "an isolated Namespace to it on another Node", from: "east1 pod5", to: far,
			there: "east1 dropped in Tenant"},
		{name: "its host to it", from: "east1 host", to: blue, there: "east1 dropped in Route"},
		{name: "its host to it by IPv6", from: "east1 host", to: blue6, there: "east1 dropped in Route"},

		{name: "joined, on its Node", joins: joined, from: "east1 pod3", to: "10.50.1.2:80",
			there: "east1 pod4: 10.50.0.2:40000 > 10.50.1.2:80", back: "east1 pod3: 10.50.1.2:80 > 10.50.0.2:40000"},
		{name: "joined, on another Node", joins: joined, from: "east1 pod3", to: "10.50.1.18:80",
			there: "east1 east2 pod4: 10.50.0.2:40000 > 10.50.1.18:80",
			back:  "east2 east1 pod3: 10.50.1.18:80 > 10.50.0.2:40000"},
		{name: "joined with an isolated Namespace", joins: isolated, from: "east1 pod3", to: "10.11.1.6:80",
			there: "east1 east2 pod5: 10.50.0.2:40000 > 10.11.1.6:80",
			back:  "east2 east1 pod3: 10.11.1.6:80 > 10.50.0.2:40000"},
		{name: "an isolated Namespace that is joined", joins: isolated, from: "east1 pod5", to: far6,
			there: "east1 east2 pod3: [fd11::6]:40000 > [fd50::12]:80",
			back:  "east2 east1 pod5: [fd50::12]:80 > [fd11::6]:40000"},
		{name: "not transitive", joins: isolated, from: "east1 pod4", to: "10.11.1.6:80",
			there: "east1 east2 dropped in Tenant"},
	} {
		t.Run(row.name, func(t *testing.T) {
			states := virtualNodes(row.joins)
			f := frontend("hijack", corev1.ProtocolTCP, "10.50.0.18:443", "10.11.0.3:8080")
			for node, s := range states {
				s.Frontends = append(slices.Clone(s.Frontends), f)
				states[node] = s
			}
			c := cableOf(t, states)
			p := c.request(row.from, row.to, oftest.TCP)
			if strings.Contains(row.from, "host") {
				p.EthDst = InClusterMAC
			}
			if row.back == "" {
				if w := c.send(row.from, p); !strings.HasPrefix(w.String(), row.there) {
					t.Errorf("%s, want %s", w, row.there)
				}
				return
			}
			c.converse(row.from, row.there, row.back, p)
		})
	}
}

// TestVirtualRangeOutside has a Pod of an isolated Namespace that may leave the cluster, and a VirtualNetwork whose
// range is one of the world. The Pod reaches the world there: a tenant takes no destination from others.
func TestVirtualRangeOutside(t *testing.T) {
	states := virtualNodes(nil)
	for node, s := range states {
		s.Places = maps.Clone(s.Places)
		c := s.Places["c"]
		c.Outside = true
		s.Places["c"], states[node] = c, s
	}
	c := cableOf(t, states)
	for to, want := range map[string]string{
		"10.50.0.18:80":   "east1 host: 10.11.0.6:40000 > 10.50.0.18:80",
		"[fd50::12]:80":   "east1 host: [fd11::6]:40000 > [fd50::12]:80",
		"10.50.0.2:80":    "east1 host: 10.11.0.6:40000 > 10.50.0.2:80",
		"192.0.2.1:40000": "east1 host: 10.11.0.6:40000 > 192.0.2.1:40000",
	} {
		if w := c.send("east1 pod5", c.request("east1 pod5", to, oftest.TCP)); w.String() != want {
			t.Errorf("%s, want %s", w, want)
		}
	}
}

// TestHostileVirtualNetworks has packets that their senders may not send, or that try to enter a VirtualNetwork.
func TestHostileVirtualNetworks(t *testing.T) {
	states := virtualNodes(nil)
	node := states["east1"]
	at := func(port int) oftest.Packet {
		pod := node.Pods[port-1]
		return oftest.Packet{InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: pod.IPs[0], IPDst: addrOf("10.50.0.18"),
			Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}
	}
	tunnel := func(mac ofp.MAC, src, dst string) oftest.Packet {
		return oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: mac, IPSrc: addrOf(src), IPDst: addrOf(dst),
			Proto: oftest.TCP, SrcPort: 40000, DstPort: 80, TunSrc: eastTwo, TunDst: eastOne}
	}
	asks := func(port int, target string) oftest.Packet {
		p := at(port)
		return oftest.Packet{InPort: p.InPort, EthSrc: p.EthSrc, ARP: &oftest.ARP{Op: 1, SHA: p.EthSrc, SPA: p.IPSrc,
			TPA: addrOf(target)}}
	}
	solicits := func(port int, target string) oftest.Packet {
		pod := node.Pods[port-1]
		p := oftest.Solicit(pod.MAC, pod.IPs[1], addrOf(target))
		p.InPort = pod.Port
		return p
	}
	edit := func(p oftest.Packet, f func(*oftest.Packet)) oftest.Packet { f(&p); return p }
	for _, test := range []struct {
		name   string
		packet oftest.Packet
		want   string
	}{
		{"another interface with the network's address", edit(at(4), func(p *oftest.Packet) {
			p.IPSrc = addrOf("10.50.0.2")
		}), "dropped in Classify"},
		{"the Pod's first interface with the network's address", edit(at(1), func(p *oftest.Packet) {
			p.IPSrc = addrOf("10.50.0.2")
		}), "dropped in Classify"},
		{"with the address of the Pod's first interface", edit(at(3), func(p *oftest.Packet) {
			p.IPSrc = addrOf("10.11.0.2")
		}), "dropped in Classify"},
		{"with another MAC", edit(at(3), func(p *oftest.Packet) { p.EthSrc = node.Pods[0].MAC }), "dropped in Classify"},
		{"with a VLAN tag", edit(at(3), func(p *oftest.Packet) { p.VLAN = 0x1064 }), "dropped in Classify"},
		{"later fragments into another network", edit(at(3), func(p *oftest.Packet) {
			p.Proto, p.Fragment, p.IPDst = oftest.UDP, oftest.Later, addrOf("10.50.1.2")
		}), "dropped in Tenant"},
		{"with the MAC of another network", edit(at(3), func(p *oftest.Packet) {
			p.EthDst, p.IPDst = MACOf(0x2ed), addrOf("10.50.1.2")
		}), "dropped in Tenant"},
		{"to everybody", edit(at(3), func(p *oftest.Packet) { p.IPDst = addrOf("255.255.255.255") }), "dropped in Tenant"},
		{"to a multicast group", edit(at(3), func(p *oftest.Packet) {
			p.IPSrc, p.IPDst = node.Pods[2].IPs[1], addrOf("ff02::1")
		}), "dropped in Tenant"},

		{"ARP for the gateway", asks(3, "10.50.0.1"), "back"},
		{"ARP for a Pod of the network", asks(3, "10.50.0.2"), "back"},
		{"ARP for the gateway of another network", asks(3, "10.50.1.1"), "dropped in Tenant"},
		{"ARP for a Pod of another network", asks(3, "10.50.1.2"), "dropped in Tenant"},
		{"ARP of the first interface for the gateway", asks(1, "10.50.0.1"), "dropped in ARP"},
		{"ARP of the first interface for the further one", asks(1, "10.50.0.2"), "dropped in ARP"},
		{"ARP in another's name", edit(asks(3, "10.50.0.1"), func(p *oftest.Packet) { p.ARP.SPA = addrOf("10.50.0.18") }),
			"dropped in Classify"},
		{"ARP of the host", oftest.Packet{InPort: gatewayPort, EthSrc: gwMAC, ARP: &oftest.ARP{Op: 1, SHA: gwMAC,
			SPA: addrOf("10.11.0.1"), TPA: addrOf("10.50.0.2")}}, "dropped in ARP"},
		{"solicitation for the gateway", solicits(3, "fd50::1"), "back"},
		{"solicitation for the gateway of another network", solicits(3, "fd50:1::1"), "dropped in Tenant"},
		{"solicitation for its own address", solicits(3, "fd50::2"), "dropped in Tenant"},
		{"solicitation of the first interface for the gateway", solicits(1, "fd50::1"), "dropped in ARP"},

		{"another Node with its block", tunnel(MACOf(0xb1), "10.50.0.18", "10.50.0.2"), "to port 3"},
		{"by IPv6", tunnel(MACOf(0xb1), "fd50::12", "fd50::2"), "to port 3"},
		{"another Node with the number of another network", tunnel(MACOf(0x2ed), "10.50.0.18", "10.50.1.2"),
			"dropped in Classify"},
		{"another Node with this Node's block", tunnel(MACOf(0xb1), "10.50.0.3", "10.50.0.2"), "dropped in Classify"},
		{"another Node with a block that no Node has", tunnel(MACOf(0xb1), "10.50.0.77", "10.50.0.2"), "dropped in Classify"},
		{"another Node with a block, into another network", tunnel(MACOf(0xb1), "10.50.0.18", "10.50.1.2"),
			"dropped in Tenant"},
		{"another Node with a block, to the default network", tunnel(MACOf(0xb1), "10.50.0.18", "10.11.0.2"),
			"dropped in Tenant"},
		{"another Node with a block, to a Service", tunnel(MACOf(0xb1), "10.50.0.18", "10.97.0.1"), "dropped in Tenant"},
		{"another Node with a block, back to it", tunnel(MACOf(0xb1), "10.50.0.18", "10.50.0.19"), "dropped in Tenant"},
		{"another Node with a block, without a number", tunnel(InClusterMAC, "10.50.0.18", "10.50.0.2"),
			"dropped in Classify"},
		{"another Node with its podCIDR, without a number", tunnel(InClusterMAC, "10.11.1.2", "10.50.0.2"),
			"dropped in Route"},
		{"a machine that is no Node", edit(tunnel(MACOf(0xb1), "10.50.0.18", "10.50.0.2"), func(p *oftest.Packet) {
			p.TunSrc = addrOf("192.0.2.66")
		}), "dropped in Classify"},
		{"the host in the Pod's name", edit(tunnel(InClusterMAC, "10.50.0.2", "10.11.0.2"), func(p *oftest.Packet) {
			p.InPort, p.TunSrc, p.TunDst = gatewayPort, netip.Addr{}, netip.Addr{}
		}), "dropped in Classify"},
		{"the host in the name of a Pod of another Node", edit(tunnel(InClusterMAC, "10.50.0.18", "10.50.0.2"),
			func(p *oftest.Packet) { p.InPort, p.TunSrc, p.TunDst = gatewayPort, netip.Addr{}, netip.Addr{} }),
			"dropped in Route"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := cableOf(t, states).nodes["east1"]
			r := s.Send(test.packet)
			have := "dropped in " + r.Dropped
			if len(r.Outputs) == 1 {
				out := r.Outputs[0].Port
				if out == ofp.PortInPort {
					out = test.packet.InPort
				}
				have = place(out, test.packet.InPort, r.Outputs[0].Packet.TunDst.String())
			}
			if r.Err != nil || have != test.want {
				t.Errorf("%s: %s, want %s", test.packet, r, test.want)
			}
		})
	}
}

// TestVirtualNetworksAreLazy has a Node without a Pod in any VirtualNetwork. Its flows are these without the feature. A
// Node with a Pod in one network has no flows of the others.
func TestVirtualNetworksAreLazy(t *testing.T) {
	flows := func(s State) (out []string) {
		for f := range setOf(t, mustPlan(t, s)).Flows() {
			out = append(out, fmt.Sprint(f))
		}
		slices.Sort(out)
		return out
	}
	s := virtualNodes(nil)["east1"]
	s.Pods = s.Pods[:2]
	without := s
	without.Places, without.Networks = nil, nil
	if with, plain := flows(s), flows(without); !slices.Equal(with, plain) {
		t.Errorf("a Node without further interfaces has %d flows, want %d", len(with), len(plain))
	}
	s = virtualNodes(nil)["east1"]
	s.Pods = s.Pods[:3] // blue alone
	for _, f := range flows(s) {
		if strings.Contains(f, "10.50.1.") || strings.Contains(f, "fd50:1:") {
			t.Errorf("a flow of a network without Pods: %s", f)
		}
	}
}

// TestVirtualRefusal takes the agent's refusal of a connection in a VirtualNetwork back over both Nodes.
func TestVirtualRefusal(t *testing.T) {
	c := cableOf(t, virtualNodes(nil))
	w := c.send("east1 pod3", c.request("east1 pod3", "10.50.0.18:80", oftest.TCP))
	r := c.nodes["east2"].PacketOut(w.packet.Reply(), flow.Do(flow.Load(generated, 1),
		flow.Load(inTenant, network(0xb1)), flow.Resubmit(Conntrack)))
	if len(r.Outputs) != 1 || r.Outputs[0].Port != tunnelPort {
		t.Fatalf("the refusal goes %s", r)
	}
	p := r.Outputs[0].Packet
	p.TunSrc = eastTwo
	if back := c.send("east1 tunnel", p); !strings.HasPrefix(back.String(), "east1 pod3: 10.50.0.18:80") {
		t.Errorf("the refusal goes %s", back)
	}
}

// TestVirtualLeaks sends random packets of all Pods in random worlds of joins. A packet of a network arrives at its own
// Pods and at Pods of networks that are joined with it, and at nothing else.
func TestVirtualLeaks(t *testing.T) {
	names := []string{"blue", "red", "c"}
	networkOf := map[string]string{"pod3": "blue", "pod4": "red", "pod5": "c"}
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 27))
		joins := map[string][]string{}
		for i, a := range names {
			for _, b := range names[i+1:] {
				if rnd.IntN(3) == 0 {
					joins[a], joins[b] = append(joins[a], b), append(joins[b], a)
				}
			}
		}
		states := virtualNodes(joins)
		c := cableOf(t, states)
		for range 60 {
			from, to := rnd.IntN(5), rnd.IntN(5)
			fromNode, toNode := []string{"east1", "east2"}[rnd.IntN(2)], []string{"east1", "east2"}[rnd.IntN(2)]
			client, server := states[fromNode].Pods[from], states[toNode].Pods[to]
			ip := server.IPs[rnd.IntN(2)]
			end := fmt.Sprint(fromNode, " pod", from+1)
			w := c.send(end, c.request(end, netip.AddrPortFrom(ip, 80).String(), oftest.TCP))
			a, b := networkOf[client.Interface], networkOf[server.Interface]
			want := a == b || a != "" && b != "" && slices.Contains(joins[a], b)
			arrived := strings.Contains(w.String(), fmt.Sprint(toNode, " pod", to+1, ":"))
			if arrived != want {
				t.Fatalf("seed %d, joins %v: %s to %s %s (%s): %s, want it to arrive: %t", seed, joins, end, toNode,
					server.Interface, ip, w, want)
			}
		}
	}
}

// TestVirtualPolicies has a policy for both directions of a Pod with a further interface. It allows Pods of one label.
// A Pod of another Node is known at its further address by the report of its Node.
func TestVirtualPolicies(t *testing.T) {
	s := virtualNodes(nil)["east1"]
	c := newSources(s)
	for name, place := range s.Places {
		c.places.Set(derive.Object{Name: name}, place)
	}
	c.policy.Namespaces.Set(derive.Object{Name: "a"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	pod := func(name, node, label string, ips ...netip.Addr) {
		c.policy.Pods.Set(derive.Object{Namespace: "a", Name: name},
			policy.PodFacts{Labels: "app=" + label, Node: node, IPs: ips})
	}
	pod("pod3", "east1", "server", s.Pods[2].IPs...)
	pod("friend", "east2", "friend")
	pod("other", "east2", "other")
	blue := derive.Object{Namespace: "a", Name: "blue"}
	blocks := []policy.NodeBlock{{Node: "east1", Range: rangeOf("10.50.0.0/28"), Network: blue},
		{Node: "east2", Range: rangeOf("10.50.0.16/28"), Network: blue}}
	c.policy.Blocks.Set(derive.Object{Name: "lease"}, blocks)
	reports := func(friend string) {
		c.policy.Further.Set(derive.Object{Name: "east2"}, []policy.FurtherAddress{
			{IP: addrOf(friend), Pod: derive.Object{Namespace: "a", Name: "friend"}, Network: blue},
			{IP: addrOf("10.50.0.19"), Pod: derive.Object{Namespace: "a", Name: "other"}, Network: blue}})
	}
	rule := []policy.RuleFacts{{Action: policy.Allow, AnyPort: true,
		Peers: []policy.Selector{{Namespace: "a", Pods: "app=friend"}}}}
	c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "a", Name: "friends"}, policy.Facts{
		Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "a", Pods: "app=server"}},
		Ingress: &policy.DirectionFacts{Rules: rule}, Egress: &policy.DirectionFacts{Rules: rule}})
	to := func(from string) oftest.Packet {
		return oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: MACOf(0xb1), IPSrc: addrOf(from),
			IPDst: addrOf("10.50.0.2"), Proto: oftest.TCP, SrcPort: 40000, DstPort: 80, TunSrc: eastTwo, TunDst: eastOne}
	}
	by := func(at string) oftest.Packet {
		return oftest.Packet{InPort: 3, EthSrc: s.Pods[2].MAC, EthDst: gwMAC, IPSrc: addrOf("10.50.0.2"), IPDst: addrOf(at),
			Proto: oftest.TCP, SrcPort: 40001, DstPort: 80}
	}
	check := func(when string, rows map[string][2]bool) {
		t.Helper()
		c.engine.Pass()
		for at, want := range rows {
			for i, packet := range []oftest.Packet{to(at), by(at)} {
				sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
				if err != nil {
					t.Fatal(err)
				}
				if r := sw.Send(packet); r.Err != nil || len(r.Outputs) == 1 != want[i] {
					t.Errorf("%s: %s goes %s, want it to pass: %t", when, packet, r, want[i])
				}
			}
		}
	}
	check("before the report", map[string][2]bool{"10.50.0.18": {false, false}, "10.50.0.19": {false, false}})
	reports("10.50.0.18")
	check("a friend", map[string][2]bool{"10.50.0.18": {true, true}, "10.50.0.19": {false, false}})
	known := tracked{Connection: policy.Connection{From: addrOf("10.50.0.2"), To: addrOf("10.50.0.18"),
		Protocol: corev1.ProtocolTCP, Port: 80}}
	for d, name := range [...]string{policy.Ingress: "friend", policy.Egress: "pod3"} {
		identity, _ := c.policy.Identities.Get(derive.Object{Namespace: "a", Name: name})
		known.ends[d], _ = c.policy.Numbers.Get(identity)
	}
	for _, row := range c.tables.Policies.numbers.rules.All() {
		if row.Key.Direction == policy.Egress {
			known.rules[policy.Egress] = row.Value
		}
	}
	again := func(when, want string) { // a connection that the rule has allowed
		t.Helper()
		have := ""
		c.tables.Policies.Known.snapshot().recheck(known, func(r Recheck) { have += r.String() })
		if have != want {
			t.Errorf("%s: the known connection is judged again: %q, want %q", when, have, want)
		}
	}
	again("a friend", "")
	relabelled := fmt.Sprint("ingress relabelled 10.50.0.18 was ", known.ends[policy.Ingress])
	reports("10.50.0.3") // an address of this Node's block
	check("a false report", map[string][2]bool{"10.50.0.18": {false, false}})
	again("a false report", relabelled)
	reports("10.50.0.18")
	c.engine.Pass()
	again("a friend again", "")
	pod("friend", "east2", "stranger")
	check("other labels", map[string][2]bool{"10.50.0.18": {false, false}})
	again("other labels", fmt.Sprint("egress rule-gone ", known.rules[policy.Egress])) // it allows no Pod now
	c.policy.Policies[policy.NetworkPolicy].Delete(derive.Object{Namespace: "a", Name: "friends"})
	check("without the policy", map[string][2]bool{"10.50.0.18": {true, true}, "10.50.0.19": {true, true}})
}

// TestVirtualRangeInPolicies has policies of Pods that are not in the VirtualNetwork, whose range is one of the world.
// The address of a friend in it is no friend for them: a tenant who makes Subnets would open the policies otherwise.
// And it is no unknown Pod.
func TestVirtualRangeInPolicies(t *testing.T) {
	s := virtualNodes(nil)["east1"]
	c := newSources(s)
	for name, place := range s.Places {
		place.Outside = true
		c.places.Set(derive.Object{Name: name}, place)
	}
	blue := derive.Object{Namespace: "a", Name: "blue"}
	for _, name := range []string{"a", "c", "default"} {
		c.policy.Namespaces.Set(derive.Object{Name: name},
			policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for _, pod := range s.Pods {
		if pod.Network == (derive.Object{}) {
			c.policy.Pods.Set(derive.Object{Namespace: pod.Namespace, Name: pod.Name},
				policy.PodFacts{Labels: "app=client", Node: "east1", IPs: pod.IPs})
		}
	}
	c.policy.Pods.Set(derive.Object{Namespace: "a", Name: "friend"}, policy.PodFacts{Labels: "app=friend", Node: "east2"})
	c.policy.Blocks.Set(derive.Object{Name: "lease"}, []policy.NodeBlock{
		{Node: "east2", Range: rangeOf("10.50.0.16/28"), Network: blue}})
	c.policy.Further.Set(derive.Object{Name: "east2"}, []policy.FurtherAddress{
		{IP: addrOf("10.50.0.18"), Pod: derive.Object{Namespace: "a", Name: "friend"}, Network: blue}})
	set := func(namespace string, action policy.Action, stage policy.Stage) {
		rules := []policy.RuleFacts{{Action: action, AnyPort: true,
			Peers: []policy.Selector{{Namespace: "a", Pods: "app=friend"}}}}
		c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: namespace, Name: "p"}, policy.Facts{
			Stage: stage, AppliedTo: []policy.Selector{{Namespace: namespace, Pods: "app=client"}},
			Egress: &policy.DirectionFacts{Rules: rules}})
	}
	check := func(when string, want bool) {
		t.Helper()
		c.engine.Pass()
		for _, pod := range []Pod{s.Pods[0], s.Pods[4]} {
			for _, to := range []string{"10.50.0.18", "10.50.0.19"} {
				sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
				if err != nil {
					t.Fatal(err)
				}
				r := sw.Send(oftest.Packet{InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: pod.IPs[0],
					IPDst: addrOf(to), Proto: oftest.TCP, SrcPort: 40001, DstPort: 80})
				left := len(r.Outputs) == 1 && r.Outputs[0].Port == gatewayPort
				if r.Err != nil || left != want {
					t.Errorf("%s: %s to %s goes %s, want it to leave: %t", when, pod.Interface, to, r, want)
				}
			}
		}
	}
	check("without a policy", true)
	set("default", policy.Allow, policy.NetworkPolicies)
	set("c", policy.Allow, policy.NetworkPolicies)
	check("friends are allowed", false)
	set("default", policy.Drop, policy.Admin)
	set("c", policy.Drop, policy.Admin)
	check("friends are denied", true)
}

// TestVirtualRangeOfAnotherCluster has a cluster that joins with Pods in the range of a Subnet. Its Pod db has the
// addresses of three Pods in the VirtualNetwork, one of them on this Node, and addresses that no Pod there has. A
// policy denies db by its labels. It denies db at all of them, from the network of first interfaces. In the
// VirtualNetwork the same addresses are of the Pods there.
func TestVirtualRangeOfAnotherCluster(t *testing.T) {
	s := virtualNodes(nil)["east1"]
	s.Node.Tunnels.Stretched = true
	c := newSources(s)
	for name, place := range s.Places {
		place.Outside = true
		c.places.Set(derive.Object{Name: name}, place)
	}
	blue := derive.Object{Namespace: "a", Name: "blue"}
	for _, name := range []string{"a", "c", "default"} {
		c.policy.Namespaces.Set(derive.Object{Name: name},
			policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for _, pod := range s.Pods {
		labels := "app=client"
		if pod.Network == blue {
			labels = "app=client,is=blue"
		}
		c.policy.Pods.Set(derive.Object{Namespace: pod.Namespace, Name: pod.Name},
			policy.PodFacts{Labels: labels, Node: "east1", IPs: pod.IPs})
	}
	for _, name := range []string{"db", "friend"} {
		c.policy.Pods.Set(derive.Object{Namespace: "a", Name: name}, policy.PodFacts{Labels: "app=" + name, Node: "east2"})
	}
	var db policy.RemotePods
	for _, ip := range []string{"10.50.0.2", "10.50.0.18", "10.50.0.19", "10.50.0.20", "10.50.0.77"} {
		db = append(db, policy.RemotePod{IP: addrOf(ip), Label: "db"})
	}
	c.policy.PodAddresses.Set(derive.Object{Namespace: "kube-system", Name: "west"}, db)
	c.policy.LabelIdentities.Set(derive.Object{Name: "db"},
		policy.LabelIdentity{Label: "ns:kubernetes.io/metadata.name=a&pod:app=db", ID: 7})
	deny := []policy.Selector{{Pods: "app=db"}}
	rules := []policy.RuleFacts{{Action: policy.Drop, AnyPort: true, Peers: deny, ClusterSet: deny}}
	for _, name := range []string{"a", "c", "default"} {
		c.policy.Policies[policy.AntreaNetworkPolicy].Set(derive.Object{Namespace: name, Name: "no-db"}, policy.Facts{
			Stage: policy.Admin, AppliedTo: []policy.Selector{{Namespace: name}}, Egress: &policy.DirectionFacts{Rules: rules}})
	}
	send := func(pod Pod, to string) bool {
		t.Helper()
		c.engine.Pass()
		sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
		if err != nil {
			t.Fatal(err)
		}
		r := sw.Send(oftest.Packet{InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: pod.IPs[0], IPDst: addrOf(to),
			Proto: oftest.TCP, SrcPort: 40001, DstPort: 80})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return len(r.Outputs) > 0
	}
	check := func(when string) {
		t.Helper()
		for _, pod := range []Pod{s.Pods[0], s.Pods[4]} {
			for _, p := range db {
				if send(pod, p.IP.String()) {
					t.Errorf("%s: %s reaches %s, which is of the denied Pod of the other cluster", when, pod.Interface, p.IP)
				}
			}
			if !send(pod, "10.50.0.21") {
				t.Errorf("%s: %s does not reach an address outside", when, pod.Interface)
			}
		}
	}
	check("before the Subnet has addresses")
	c.policy.Blocks.Set(derive.Object{Name: "lease"}, []policy.NodeBlock{
		{Node: "east1", Range: rangeOf("10.50.0.0/28"), Network: blue},
		{Node: "east2", Range: rangeOf("10.50.0.16/28"), Network: blue}})
	check("blocks of Nodes")
	c.policy.Further.Set(derive.Object{Name: "east2"}, []policy.FurtherAddress{
		{IP: addrOf("10.50.0.18"), Pod: derive.Object{Namespace: "a", Name: "friend"}, Network: blue},
		{IP: addrOf("10.50.0.19"), Pod: derive.Object{Namespace: "a", Name: "db"}, Network: blue}})
	check("addresses of Pods")
	for to, want := range map[string]bool{"10.50.0.18": true, "10.50.0.19": false, "10.50.0.20": false} {
		if have := send(s.Pods[2], to); have != want { // 20 is of an unknown Pod
			t.Errorf("in the VirtualNetwork %s passes: %t, want %t", to, have, want)
		}
	}
	if l := c.tables.Policies.Known.snapshot(); l.networks(tracked{}, [2]netip.Addr{policy.Ingress: addrOf("10.50.0.18"),
		policy.Egress: addrOf("10.50.0.2")}) != [2]derive.Object{blue, blue} ||
		l.networks(tracked{}, [2]netip.Addr{policy.Ingress: addrOf("10.50.0.2"), policy.Egress: s.Pods[0].IPs[0]}) !=
			[2]derive.Object{} {
		t.Error("a connection is in the wrong network")
	}
	// A rule about a Pod of the VirtualNetwork names no sender of another network with its address.
	for _, to := range []string{"10.50.0.2", "10.50.0.18"} {
		if n := c.policy.PeerAt(policy.Egress, addrOf(to), derive.Object{}); n != policy.Remote|7 {
			t.Errorf("%s is of %d, want the other cluster's Pod", to, n)
		}
	}
}

// TestVirtualTraffic sends real connections between further interfaces on two Nodes, through their gateways.
func TestVirtualTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	joins := map[string][]string{"blue": {"c"}, "c": {"blue"}}
	states := virtualNodes(joins)
	one := newNode(t, underlay, states["east1"], "east1", eastOne, "10.97.0.0/16")
	two := newNode(t, underlay, states["east2"], "east2", eastTwo, "10.97.0.0/16")
	for i, n := range []*realNode{one, two} {
		for j, pod := range n.pods {
			for _, network := range []string{"tcp", "tcp6"} {
				pod.serve(t, network, ":8080", fmt.Sprintf("east%d/pod%d", i+1, j+1))
			}
			pod.serve(t, "udp", ":5353", fmt.Sprintf("east%d/pod%d", i+1, j+1))
		}
	}
	plain, blue, red, c := one.pods[0], one.pods[2], one.pods[3], one.pods[4]
	for _, r := range []request{
		{"to another Node", blue, "tcp", "10.50.0.18:8080", []string{"east2/pod3 10.50.0.2"}},
		{"by IPv6", blue, "tcp6", "[fd50::12]:8080", []string{"east2/pod3 fd50::2"}},
		{"by UDP", blue, "udp", "10.50.0.18:5353", []string{"east2/pod3 10.50.0.2"}},
		{"in another network", red, "tcp", "10.50.1.18:8080", []string{"east2/pod4 10.50.1.2"}},
		{"to an isolated Namespace that is joined", blue, "tcp", "10.11.1.6:8080", []string{"east2/pod5 10.50.0.2"}},
		{"back", c, "tcp6", "[fd50::12]:8080", []string{"east2/pod3 fd11::6"}},
		{"default network", plain, "tcp", "10.11.1.3:8080", []string{"east2/pod2 10.11.0.2"}},
	} {
		t.Run(r.name, r.check)
	}
	for _, r := range []request{
		{"to another network on its Node", blue, "tcp", "10.50.1.2:8080", nil},
		{"on another Node", blue, "tcp", "10.50.1.18:8080", nil},
		{"by IPv6", red, "tcp6", "[fd50::12]:8080", nil},
		{"by UDP", red, "udp", "10.50.0.18:5353", nil},
		{"to the default network", blue, "tcp", "10.11.1.3:8080", nil},
		{"default network to a Pod", plain, "tcp", "10.50.0.18:8080", nil},
		{"its host", one.host, "tcp", "10.50.0.2:8080", nil},
		{"not joined", red, "tcp", "10.11.1.6:8080", nil},
	} {
		t.Run("nothing/"+r.name, func(t *testing.T) {
			t.Parallel()
			if answer, err := r.from.askWithin(silence(), r.network, r.to); err == nil {
				t.Errorf("it is answered: %s", answer)
			}
		})
	}
}

// TestVirtualOnSwitch asks a real switch some of the same questions.
func TestVirtualOnSwitch(t *testing.T) {
	o := dummyBridge(t)
	for _, port := range []string{"3", "4", "5"} {
		o.vsctl(t, "add-port", "br-int", "pod"+port, "--", "set", "interface", "pod"+port, "type="+portType(),
			"ofport_request="+port)
	}
	states := virtualNodes(map[string][]string{"blue": {"red"}, "red": {"blue"}})
	o.program(t, "br-int", setOf(t, mustPlan(t, states["east1"])))
	pod := func(number int, to string) string {
		p := states["east1"].Pods[number-1]
		return fmt.Sprintf("dp_hash=1,in_port=%d,tcp,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,tp_src=40000,"+
			"tp_dst=80", p.Port, p.MAC, gwMAC, p.IPs[0], to)
	}
	tunnel := func(id tenant.ID, from, to string) string {
		return fmt.Sprintf("in_port=%d,tcp,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,tp_src=40000,tp_dst=80,"+
			"tun_src=%s,tun_dst=%s,tun_id=0", tunnelPort, gwMAC, MACOf(id), from, to, eastTwo, eastOne)
	}
	for _, test := range []struct{ name, packet, want string }{
		{"to another Node", pod(3, "10.50.0.18"), "to tunnel 192.168.78.102 02:54:4e:00:00:b1"},
		{"to a network that is joined", pod(3, "10.50.1.2"), "to port 4"},
		{"to an isolated Namespace", pod(3, "10.11.0.6"), "dropped in Tenant"},
		{"to the default network", pod(3, "10.11.0.2"), "dropped in Tenant"},
		{"to a Service", pod(3, "10.97.0.1"), "dropped in Tenant"},
		{"from another Node", tunnel(0xb1, "10.50.0.18", "10.50.0.2"), "to port 3"},
		{"from another Node in another network", tunnel(0x2ed, "10.50.0.18", "10.50.0.2"), "dropped in Classify"},
	} {
		t.Run(test.name, func(t *testing.T) {
			trace := o.appctl(t, "ofproto/trace", "br-int", test.packet, "--ct-next", "trk,new", "--ct-next", "trk,new")
			if have := endOf(t, trace); have != test.want {
				t.Errorf("%s, want %s\n%s", have, test.want, trace)
			}
		})
	}
}
