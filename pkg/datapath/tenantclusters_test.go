package datapath

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Numbers of networks of several clusters. Network blue has Pods in both, red too, and green in west alone. Blue and
// green are joined.
const (
	blueID  tenant.ID = 1<<24 | 0xb1
	greenID tenant.ID = 1<<24 | 0x60
	redID   tenant.ID = 1<<24 | 0xed
)

// tenantOf is the Namespace of the Pod of a Node, and the network of the Namespace.
var tenantOf = map[string]string{
	"east1": "blue", "east2": "plain", "east3": "blue", "east4": "red",
	"west1": "green", "west2": "blue", "west3": "red", "west4": "plain",
}

var tenantPlaces = map[string]tenant.Place{
	"plain": {Known: true},
	"blue": {Known: true, Network: tenant.Name{Door: "clusterset", Name: "blue"}, ID: blueID,
		Joined: []tenant.ID{greenID}, Clusters: []string{"east", "west"}},
	"green": {Known: true, Network: tenant.Name{Door: "clusterset", Name: "green"}, ID: greenID,
		Joined: []tenant.ID{blueID}, Clusters: []string{"east"}},
	"red": {Known: true, Network: tenant.Name{Door: "clusterset", Name: "red"}, ID: redID,
		Clusters: []string{"east", "west"}},
}

// meetsTenant reports whether the Pods of two Nodes reach each other.
func meetsTenant(one, two string) bool {
	a, b := tenantOf[one], tenantOf[two]
	return a == b || a == "blue" && b == "green" || a == "green" && b == "blue"
}

// withTenants gives a Node of an active cluster networks of tenants.
func withTenants(s State, node string) State {
	s.Pods = slices.Clone(s.Pods)
	s.Pods[0].Namespace = tenantOf[node]
	s.Places = tenantPlaces
	s.Remotes = map[string]tenant.Remote{
		"west": {From: []tenant.ID{greenID, blueID, redID}, To: []tenant.ID{blueID, redID}},
	}
	if node[:4] == "west" {
		s.Remotes = map[string]tenant.Remote{
			"east": {From: []tenant.ID{blueID, redID}, To: []tenant.ID{greenID, blueID, redID}},
		}
	}
	return s
}

// tenantCable joins all Nodes of two clusters with networks of tenants.
func (a activeClusters) tenantCable(t *testing.T) *cable {
	t.Helper()
	c := a.cable(t)
	states := map[string]State{}
	for name, s := range c.states {
		states[name] = withTenants(s, name)
	}
	out := cableOf(t, states)
	out.ends, out.six = c.ends, c.six
	return out
}

// TestTenantsAcrossClusters sends packets between the Pods of all Nodes of two clusters. They arrive if the networks of
// both are the same or joined, by any Gateways, with the client's address. Only the Nodes of both Pods track them.
func TestTenantsAcrossClusters(t *testing.T) {
	for _, variant := range []struct {
		families family.Families
		stretch  bool
		single   bool
	}{{}, {stretch: true}, {families: family.IPv6}, {single: true}} {
		a := reaching()
		a.families, a.stretch = variant.families, variant.stretch
		if variant.single {
			a.gateways = map[string][]int{"east": {3}, "west": {1}}
		}
		for from := range tenantOf {
			for to := range tenantOf {
				if from[:4] == to[:4] {
					continue
				}
				near, far := a.gatewaysOf(from[:4]), a.gatewaysOf(to[:4])
				c := a.tenantCable(t)
				p := c.request(from+" pod1", podOf(to).String()+":8080", oftest.TCP)
				for i := range 4 {
					first, second := near[i%len(near)], far[i/2%len(far)]
					if slices.Contains(near, from) {
						first = from
					}
					c.prefer[from], c.prefer[first] = first, second
					if first == from {
						c.prefer[from] = second
					}
					at := c.send(from+" pod1", p)
					if !meetsTenant(from, to) {
						if last := at.places[len(at.places)-1]; !strings.HasPrefix(last, "dropped in ") {
							t.Fatalf("%+v: %s to %s: %s, want a drop", variant, from, to, at)
						}
						continue
					}
					want := strings.Join(path(from, first, second, to), " ") + " pod1"
					if strings.Join(at.places, " ") != want || at.packet.IPSrc != p.IPSrc || at.packet.IPDst != p.IPDst {
						t.Fatalf("%+v: %s to %s, packet %d: %s, want %s", variant, from, to, i, at, want)
					}
					if i == 0 {
						continue // sent again before the answer
					}
					first, second = far[(i+1)%len(far)], near[i/2%len(near)]
					if slices.Contains(far, to) {
						first = to
					}
					c.prefer[to], c.prefer[first] = first, second
					if first == to {
						c.prefer[to] = second
					}
					back := c.send(to+" pod1", at.packet.Reply())
					want = strings.Join(path(to, first, second, from), " ") + " pod1"
					if strings.Join(back.places, " ") != want || back.packet.IPDst != p.IPSrc {
						t.Fatalf("%+v: %s to %s, reply %d: %s, want %s", variant, from, to, i, back, want)
					}
				}
				for name, node := range c.nodes {
					if name != from && name != to && len(node.Connections()) > 0 && tenantOf[from] != "plain" {
						t.Errorf("%+v: %s to %s: %s tracks %v", variant, from, to, name, node.Connections())
					}
				}
			}
		}
	}
}

// TestHostileTenantClusters sends packets that a hostile cluster may make. They reach Pods of networks alone in which
// that cluster has Pods, or which are joined with such.
func TestHostileTenantClusters(t *testing.T) {
	c := reaching().tenantCable(t)
	from := func(node string, id tenant.ID, src, dst netip.Addr) oftest.Packet {
		return oftest.Packet{EthSrc: gwMAC, EthDst: MACOf(id), IPSrc: src, IPDst: dst, Proto: oftest.TCP, SrcPort: 40000,
			DstPort: 8080, TunSrc: activeAddr(node[:4], int(node[4]-'0'))}
	}
	pod := podOf
	edit := func(p oftest.Packet, f func(*oftest.Packet)) oftest.Packet { f(&p); return p }
	for _, test := range []struct {
		name   string
		at     string
		packet oftest.Packet
		want   string
	}{
		{"a network of both clusters", "west2", from("east3", blueID, pod("east1"), pod("west2")), "west2 pod1"},
		{"a network of both clusters, to another Node", "west1", from("east3", redID, pod("east1"), pod("west3")),
			"west1 west3 pod1"},
		{"a network that it has no part in", "west1", from("east3", greenID, pod("east1"), pod("west1")),
			"west1 dropped in Classify"},
		{"a network that nobody has", "west1", from("east3", 1<<24|0x77, pod("east1"), pod("west1")),
			"west1 dropped in Classify"},
		{"a network of one cluster, by its number", "west1", from("east3", 0xb1, pod("east1"), pod("west2")),
			"west1 dropped in Classify"},
		{"a joined network, from the other side", "east3", from("west1", greenID, pod("west1"), pod("east1")),
			"east3 east1 pod1"},
		{"its own network to a Pod of another", "west2", from("east3", redID, pod("east1"), pod("west2")),
			"west2 dropped in Tenant"},
		{"to a Pod of the default network", "west1", from("east3", blueID, pod("east1"), pod("west4")),
			"west1 west4 dropped in Classify"},
		{"to a Service", "west2", edit(from("east3", blueID, pod("east1"), addrOf("10.96.0.20")),
			func(p *oftest.Packet) { p.DstPort = 80 }), "west2 dropped in UnSNAT"},
		{"to the Gateway's host", "west2", from("east3", blueID, pod("east1"), activeAddr("west", 2)),
			"west2 dropped in UnSNAT"},
		{"to the host's address in the Pods' range", "west2",
			from("east3", blueID, pod("east1"), addrOf(cidrHost(activePods("west", 2), 1))), "west2 dropped in Tenant"},
		{"to the world", "west2", from("east3", blueID, pod("east1"), addrOf("192.0.2.1")), "west2 dropped in UnSNAT"},
		{"back to its own Pods", "west2", from("east3", blueID, pod("east1"), pod("east2")), "west2 dropped in UnSNAT"},
		{"in the name of a Pod here", "west2", from("east3", blueID, pod("west2"), pod("west2")),
			"west2 dropped in Classify"},
		{"in the name of its Gateway", "west2", from("east3", blueID, activeAddr("east", 3), pod("west2")),
			"west2 dropped in Classify"},
		{"not to a Gateway", "west3", from("east3", redID, pod("east1"), pod("west3")), "west3 dropped in Classify"},
		{"not from a Gateway", "west2", from("east1", blueID, pod("east1"), pod("west2")), "west2 dropped in Classify"},
		{"without a number", "west2", edit(from("east3", blueID, pod("east1"), pod("west2")),
			func(p *oftest.Packet) { p.EthDst = CrossClusterMAC }), "west2 dropped in Route"},
		{"a Gateway's own Node, in the name of another cluster's Pod", "west2",
			from("west3", blueID, pod("east1"), pod("west2")), "west2 dropped in Classify"},
	} {
		p := test.packet
		p.TunDst = c.states[test.at].Node.Tunnels.Ends[0]
		at := c.arrive(test.at, cmp.Or(c.states[test.at].Ways[p.TunSrc], tunnelPort), p)
		if have := strings.Join(at.places, " "); have != test.want {
			t.Errorf("%s: %s, want %s", test.name, at, test.want)
		}
	}
}

// TestOlderGatewayDropsTenants checks that a Gateway without networks of tenants drops their packets.
func TestOlderGatewayDropsTenants(t *testing.T) {
	c := reaching().cable(t)
	for _, id := range []tenant.ID{blueID, 0xa1b2c3} {
		p := oftest.Packet{EthSrc: gwMAC, EthDst: MACOf(id), IPSrc: podOf("east1"), IPDst: podOf("west3"),
			Proto: oftest.TCP, SrcPort: 40000, DstPort: 8080, TunSrc: activeAddr("east", 3),
			TunDst: c.states["west1"].Node.Tunnels.Ends[0]}
		at := c.arrive("west1", c.states["west1"].Ways[activeAddr("east", 3)], p)
		if have := fmt.Sprint(at.places); have != "[west1 dropped in Classify]" {
			t.Errorf("network %#x: %s", uint32(id), at)
		}
	}
}

// TestTenantClusterTraffic sends real packets between Pods of two clusters with a Gateway each. The Pods of east1 and
// west2 are in one network, and the Pods of east4 and west3 in another. east4 and west2 are the Gateways.
func TestTenantClusterTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	a := reaching()
	a.gateways, a.older = map[string][]int{"east": {4}, "west": {2}}, map[string]bool{"east": true, "west": true}
	a.families = family.Dual
	nodes, pods := map[string]*realNode{}, map[string]namespace{}
	for _, name := range []string{"east1", "east4", "west2", "west3"} {
		cluster, _, n := clusterOf(name)
		s := withTenants(a.state(t, cluster, n), name)
		s.RemoteNodes = slices.DeleteFunc(s.RemoteNodes, func(r RemoteNode) bool {
			return !slices.Contains([]string{"east1", "east4", "west2", "west3"}, cluster+strings.TrimPrefix(r.Name, "node-"))
		})
		nodes[name] = newNode(t, underlay, s, name, activeAddr(cluster, n), activeServices(cluster).String())
		pods[name] = nodes[name].pods[0]
		own := six(podOf(name)) // all Pods' addresses of these clusters are in one /64
		pods[name].ip(t, fmt.Sprintf("address del %s/64 dev eth0", own), fmt.Sprintf("address add %s dev eth0 nodad", own))
		for _, network := range []string{"tcp", "tcp6"} {
			pods[name].serve(t, network, ":8080", name)
		}
		pods[name].serve(t, "udp", ":5353", name)
	}
	at := func(node string, port string) string { return net.JoinHostPort(podOf(node).String(), port) }
	at6 := func(node string) string { return net.JoinHostPort(six(podOf(node)).String(), "8080") }
	answer := func(server string, client netip.Addr) []string { return []string{server + " " + client.String()} }
	for _, r := range []request{
		{"a Node to the other cluster's Gateway", pods["east1"], "tcp", at("west2", "8080"), answer("west2", podOf("east1"))},
		{"by UDP", pods["east1"], "udp", at("west2", "5353"), answer("west2", podOf("east1"))},
		{"by IPv6", pods["east1"], "tcp6", at6("west2"), answer("west2", six(podOf("east1")))},
		{"a Gateway to a Node", pods["east4"], "tcp", at("west3", "8080"), answer("west3", podOf("east4"))},
		{"back", pods["west3"], "tcp", at("east4", "8080"), answer("east4", podOf("west3"))},
		{"back by IPv6", pods["west3"], "tcp6", at6("east4"), answer("east4", six(podOf("west3")))},
		{"to a Node back", pods["west2"], "tcp", at("east1", "8080"), answer("east1", podOf("west2"))},
	} {
		t.Run(r.name, r.check)
	}
	var asking sync.WaitGroup // each silence takes its time
	for _, r := range []request{
		{"to another network", pods["east1"], "tcp", at("west3", "8080"), nil},
		{"to another network by UDP", pods["east4"], "udp", at("west2", "5353"), nil},
		{"to another network by IPv6", pods["west3"], "tcp6", at6("east1"), nil},
		{"to another network of its own cluster", pods["east1"], "tcp", at("east4", "8080"), nil},
	} {
		asking.Go(func() {
			if answer, err := r.from.askWithin(silence(), r.network, r.to); err == nil {
				t.Errorf("%s is answered: %s", r.name, answer)
			}
		})
	}
	asking.Wait()
}

// TestGatewayWithoutTenants sends packets of networks of tenants to a Gateway that has no isolated Pod. It passes them
// on to other clusters. No packet reaches a Pod or the host there.
func TestGatewayWithoutTenants(t *testing.T) {
	for _, families := range []family.Families{family.IPv4, family.IPv6} {
		a := reaching()
		a.gateways, a.families = map[string][]int{"east": {2}, "west": {4}}, families
		c := a.tenantCable(t)
		for _, to := range []string{podOf("east2").String() + ":8080", cidrHost(activePods("east", 2), 1) + ":10250"} {
			for _, proto := range []uint8{oftest.TCP, oftest.UDP} {
				at := c.send("east1 pod1", c.request("east1 pod1", to, proto))
				if have := strings.Join(at.places, " "); have != "east1 east2 dropped in UnSNAT" {
					t.Errorf("%s, %s: %s", families, to, at)
				}
			}
		}
		at := c.send("east1 pod1", c.request("east1 pod1", podOf("west2").String()+":8080", oftest.TCP))
		if have := strings.Join(at.places, " "); have != "east1 east2 west4 west2 pod1" {
			t.Errorf("%s: %s", families, at)
		}
	}
}
