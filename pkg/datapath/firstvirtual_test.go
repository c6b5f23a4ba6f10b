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

	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// firstNodes are virtualNodes whose Pods pod3 and pod4 have their first interfaces in the VirtualNetworks.
func firstNodes(joins map[string][]string) map[string]State {
	states := virtualNodes(joins)
	for node, s := range states {
		s.Networks = maps.Clone(s.Networks)
		for k, v := range s.Networks {
			v.Own = true
			s.Networks[k] = v
		}
		s.Pods = slices.Clone(s.Pods)
		s.Pods[2].First, s.Pods[3].First = true, true
		states[node] = s
	}
	return states
}

// TestFirstConversations follows conversations of Pods whose first interfaces are in VirtualNetworks. The hosts of
// their Nodes reach them, and nothing else of the default network does.
func TestFirstConversations(t *testing.T) {
	const blue, far, blue6 = "10.50.0.2:80", "10.50.0.18:80", "[fd50::2]:80"
	joined := map[string][]string{"blue": {"c"}, "c": {"blue"}}
	for _, row := range []struct {
		name, from, to, there, back string
		joins                       map[string][]string
		edit                        func(*oftest.Packet)
	}{
		{name: "to another Node", from: "east1 pod3", to: far, there: "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:80",
			back: "east2 east1 pod3: 10.50.0.18:80 > 10.50.0.2:40000"},
		{name: "the kubelet's probe", from: "east1 host", to: blue, there: "east1 pod3: 10.11.0.1:40000 > 10.50.0.2:80",
			back: "east1 host: 10.50.0.2:80 > 10.11.0.1:40000"},
		{name: "the kubelet's probe by IPv6", from: "east1 host", to: blue6,
			there: "east1 pod3: [fd11::1]:40000 > [fd50::2]:80",
			back:  "east1 host: [fd50::2]:80 > [fd11::1]:40000"},
		{name: "a packet that the host forwards", from: "east1 host", to: blue, there: "east1 dropped in Route",
			edit: func(p *oftest.Packet) { p.EthDst = InClusterMAC }},
		{name: "with an address outside", from: "east1 host", to: blue, there: "east1 dropped in Route",
			edit: func(p *oftest.Packet) { p.IPSrc = addrOf("192.0.2.1") }},
		{name: "with the address of another Pod", from: "east1 host", to: blue, there: "east1 dropped in",
			edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.0.2") }},
		{name: "another Node's host", from: "east2 host", to: blue, there: "east2 dropped in Route"},
		{name: "to its Node", from: "east1 pod3", to: "10.11.0.1:10250", there: "east1 dropped in Tenant"},
		{name: "the default network to it", from: "east1 pod1", to: blue, there: "east1 dropped in Route"},
		{name: "by IPv6", from: "east1 pod1", to: blue6, there: "east1 dropped in Route"},
		{name: "to the default network", from: "east1 pod3", to: "10.11.0.2:80", there: "east1 dropped in Tenant"},
		{name: "to another network", from: "east1 pod3", to: "10.50.1.2:80", there: "east1 dropped in Tenant"},
		{name: "to the world", from: "east1 pod3", to: "192.0.2.1:80", there: "east1 dropped in Tenant"},
		{name: "a Service of the default network that leads to it", from: "east1 pod1", to: "10.97.0.60:80",
			there: "east1 dropped in Route"},
		{name: "an isolated Namespace", from: "east1 pod5", to: blue, there: "east1 dropped in Tenant"},
		{name: "an isolated Namespace that is joined", joins: joined, from: "east1 pod5", to: far,
			there: "east1 east2 pod3: 10.11.0.6:40000 > 10.50.0.18:80",
			back:  "east2 east1 pod5: 10.50.0.18:80 > 10.11.0.6:40000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			states := firstNodes(row.joins)
			f := frontend("leads", corev1.ProtocolTCP, "10.97.0.60:80", "10.50.0.2:80")
			for node, s := range states {
				s.Frontends = append(slices.Clone(s.Frontends), f)
				states[node] = s
			}
			c := cableOf(t, states)
			p := c.request(row.from, row.to, oftest.TCP)
			if strings.HasPrefix(row.from, "east1 host") { // it has asked for the Pod's MAC
				p.EthDst = states["east1"].Pods[2].MAC
			}
			if row.edit != nil {
				row.edit(&p)
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

// TestFirstNeighbors has the host ask for the MACs of Pods. Only first interfaces answer.
func TestFirstNeighbors(t *testing.T) {
	states := firstNodes(nil)
	states["east1"].Pods[3].First = false
	c := cableOf(t, states)
	for target, want := range map[string]bool{"10.50.0.2": true, "10.50.1.2": false, "10.50.0.1": false,
		"10.50.0.18": false} {
		r := c.nodes["east1"].Send(oftest.Packet{InPort: gatewayPort, EthSrc: gwMAC, ARP: &oftest.ARP{Op: 1, SHA: gwMAC,
			SPA: addrOf("10.11.0.1"), TPA: addrOf(target)}})
		answered := len(r.Outputs) == 1
		if answered != want {
			t.Errorf("%s: answered %t, want %t: %s", target, answered, want, r)
		}
		if answered && r.Outputs[0].Packet.ARP.SHA != states["east1"].Pods[2].MAC {
			t.Errorf("%s has %s", target, r.Outputs[0].Packet.ARP.SHA)
		}
	}
}

// TestFirstLeaks sends random packets of all Pods and hosts in random worlds of joins, where first interfaces are in
// VirtualNetworks or not. A packet arrives at Pods of its network and of joined ones. At a first interface also packets
// of the host of its Node arrive, and no others.
func TestFirstLeaks(t *testing.T) {
	names := []string{"blue", "red", "c"}
	networkOf := map[string]string{"pod3": "blue", "pod4": "red", "pod5": "c"}
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 31))
		joins := map[string][]string{}
		for i, a := range names {
			for _, b := range names[i+1:] {
				if rnd.IntN(3) == 0 {
					joins[a], joins[b] = append(joins[a], b), append(joins[b], a)
				}
			}
		}
		states := firstNodes(joins)
		for _, s := range states {
			s.Pods[2].First, s.Pods[3].First = rnd.IntN(3) > 0, rnd.IntN(3) > 0
		}
		c := cableOf(t, states)
		for range 80 {
			from, to := rnd.IntN(6), rnd.IntN(5)
			fromNode, toNode := []string{"east1", "east2"}[rnd.IntN(2)], []string{"east1", "east2"}[rnd.IntN(2)]
			server := states[toNode].Pods[to]
			ip := server.IPs[rnd.IntN(2)]
			end, a := fmt.Sprint(fromNode, " host"), "host"
			if from < 5 {
				end, a = fmt.Sprint(fromNode, " pod", from+1), networkOf[states[fromNode].Pods[from].Interface]
			}
			p := c.request(end, netip.AddrPortFrom(ip, 80).String(), oftest.TCP)
			if a == "host" && fromNode == toNode {
				p.EthDst = server.MAC
			}
			w := c.send(end, p)
			b := networkOf[server.Interface]
			want := a == b || a != "" && b != "" && slices.Contains(joins[a], b)
			if a == "host" {
				want = b == "" || fromNode == toNode && (b == "c" || server.First)
			}
			arrived := strings.Contains(w.String(), fmt.Sprint(toNode, " pod", to+1, ":"))
			if arrived != want {
				t.Fatalf("seed %d, joins %v: %s to %s %s (%s): %s, want it to arrive: %t", seed, joins, end, toNode,
					server.Interface, ip, w, want)
			}
		}
	}
}

// TestFirstTraffic sends real connections between Pods whose first interfaces are in VirtualNetworks, and from hosts.
func TestFirstTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	states := firstNodes(nil)
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
	// The agent's routes of the host.
	one.host.ip(t, "route add 10.50.0.2/32 dev gw0 src 10.11.0.1", "route add fd50::2/128 dev gw0 src fd11::1")
	plain, blue, red := one.pods[0], one.pods[2], one.pods[3]
	for _, r := range []request{
		{"to another Node", blue, "tcp", "10.50.0.18:8080", []string{"east2/pod3 10.50.0.2"}},
		{"by IPv6", blue, "tcp6", "[fd50::12]:8080", []string{"east2/pod3 fd50::2"}},
		{"a probe of its host", one.host, "tcp", "10.50.0.2:8080", []string{"east1/pod3 10.11.0.1"}},
		{"by IPv6", one.host, "tcp6", "[fd50::2]:8080", []string{"east1/pod3 fd11::1"}},
		{"by UDP", one.host, "udp", "10.50.0.2:5353", []string{"east1/pod3 10.11.0.1"}},
		{"default network", plain, "tcp", "10.11.1.3:8080", []string{"east2/pod2 10.11.0.2"}},
	} {
		t.Run(r.name, r.check)
	}
	for _, r := range []request{
		{"to another network on its Node", blue, "tcp", "10.50.1.2:8080", nil},
		{"on another Node", red, "tcp", "10.50.0.18:8080", nil},
		{"to the default network", blue, "tcp", "10.11.1.3:8080", nil},
		{"to its host", blue, "tcp", "10.11.0.1:22", nil},
		{"default network to a Pod of its Node", plain, "tcp", "10.50.0.2:8080", nil},
		{"another host", two.host, "tcp", "10.50.0.2:8080", nil},
	} {
		t.Run("nothing/"+r.name, func(t *testing.T) {
			t.Parallel()
			if answer, err := r.from.askWithin(silence(), r.network, r.to); err == nil {
				t.Errorf("it is answered: %s", answer)
			}
		})
	}
}
