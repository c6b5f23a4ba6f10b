package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// clusterOf returns the cluster of a Node of activeClusters.
func clusterOf(node string) (cluster, other string, n int) {
	cluster = node[:4]
	if _, err := fmt.Sscan(node[4:], &n); err != nil {
		panic(err)
	}
	return cluster, activeNets[cluster].other, n
}

func podOf(node string) netip.Addr {
	cluster, _, n := clusterOf(node)
	return addrOf(cidrHost(activePods(cluster, n), 2))
}

// reaching returns active clusters that reach each other's Pods, and keep the addresses of clients.
func reaching() activeClusters {
	a := active()
	a.pods, a.keep = true, map[string]bool{"east": true, "west": true}
	return a
}

// withPodEndpoints makes the imported Service lead to the Pod of a Node of the other cluster, as with endpointIPType
// PodIP.
func (c *cable) withPodEndpoints(client, server string) (vip string) {
	cluster, _, _ := clusterOf(client)
	s := c.states[client]
	imported := activeNets[cluster].frontends[1]
	s.Frontends = slices.Clone(s.Frontends)
	vipOf := netip.MustParseAddrPort(imported[1])
	s.Frontends[1] = frontend(imported[0], corev1.ProtocolTCP,
		netip.AddrPortFrom(c.inner(vipOf.Addr()), vipOf.Port()).String(),
		netip.AddrPortFrom(c.inner(podOf(server)), 8080).String())
	c.states[client] = s
	if err := c.nodes[client].Replace(c.entries(s)...); err != nil {
		c.t.Fatal(err)
	}
	return imported[1]
}

// gatewaysOf are the Nodes of a cluster that are Gateways.
func (a activeClusters) gatewaysOf(cluster string) (out []string) {
	for _, n := range a.gateways[cluster] {
		out = append(out, fmt.Sprint(cluster, n))
	}
	return out
}

// path returns the Nodes that a packet passes between two Gateways, which may be its ends themselves.
func path(from, first, second, to string) []string {
	return slices.Compact([]string{from, first, second, to})
}

// TestTransit checks that connections between Pods keep the client's address, on any Nodes. Requests and replies go
// through any Gateways, which do not track them. The first packet is sent again. The second reply and the second
// request go through other Gateways.
func TestTransit(t *testing.T) {
	for _, stretch := range []bool{false, true} {
		for _, service := range []bool{false, true} {
			for i, pair := range [][2]string{{"east1", "west3"}, {"east1", "west1"}, {"east3", "west2"},
				{"east3", "west4"}, {"west4", "east2"}, {"west1", "east4"}, {"east1", "west3"}, {"east3", "west2"},
				{"west4", "east2"}} {
				from, to := pair[0], pair[1]
				a := reaching()
				if a.stretch = stretch; i >= 6 {
					a.families = family.IPv6
				}
				c := a.cable(t)
				dst := podOf(to).String() + ":8080"
				if service {
					dst = c.withPodEndpoints(from, to)
				}
				cluster, other, _ := clusterOf(from)
				near, far := a.gatewaysOf(cluster), a.gatewaysOf(other)
				by := func(node string, gateways []string, i int) string {
					if slices.Contains(gateways, node) {
						return node // its Pods' packets take its own ways
					}
					return gateways[i%2]
				}
				p := c.request(from+" pod1", dst, oftest.TCP)
				var at travel
				for i := range 6 {
					first := by(from, near, i)
					second := far[i/2%2]
					c.prefer[from], c.prefer[first] = first, second
					if first == from {
						c.prefer[from] = second
					}
					at = c.send(from+" pod1", p)
					want := strings.Join(path(from, first, second, to), " ") + " pod1"
					if strings.Join(at.places, " ") != want || at.packet.IPSrc != p.IPSrc ||
						at.packet.IPDst != c.inner(podOf(to)) {
						t.Fatalf("%s to %s, Service %v, packet %d: %s, want %s", from, to, service, i, at, want)
					}
					if i == 0 {
						continue // sent again before the answer
					}
					first, second = by(to, far, i+1), near[(i/2+1)%2]
					c.prefer[to], c.prefer[first] = first, second
					if first == to {
						c.prefer[to] = second
					}
					back := c.send(to+" pod1", at.packet.Reply())
					want = strings.Join(path(to, first, second, from), " ") + " pod1"
					if strings.Join(back.places, " ") != want || back.packet.IPSrc != p.IPDst ||
						back.packet.IPDst != p.IPSrc || back.packet.SrcPort != p.DstPort {
						t.Fatalf("%s to %s, Service %v, reply %d: %s, want %s", from, to, service, i, back, want)
					}
				}
				for name, node := range c.nodes {
					if name != from && name != to && len(node.Connections()) > 0 {
						t.Errorf("%s to %s: %s tracks %v", from, to, name, node.Connections())
					}
				}
			}
		}
	}
}

// TestTransitComesAndGoes checks that established connections go on whatever Gateways and ways are lost, and come back.
func TestTransitComesAndGoes(t *testing.T) {
	a := reaching()
	c := a.cable(t)
	vip := c.withPodEndpoints("east1", "west3")
	var list []oftest.Packet
	for i, to := range []string{vip, podOf("west3").String() + ":8080", podOf("west1").String() + ":8080",
		podOf("west2").String() + ":8080"} {
		p := c.request("east1 pod1", to, oftest.TCP)
		p.SrcPort += uint16(i)
		list = append(list, p)
	}
	check := func(step string, without ...string) {
		t.Helper()
		for _, p := range list {
			for _, first := range []string{"east3", "east4"} {
				for _, second := range []string{"west1", "west2"} {
					for name := range c.nodes {
						c.prefer[name] = map[bool]string{true: second, false: first}[name[:4] == "east" && name != "east1"]
					}
					there := c.send("east1 pod1", p)
					n := len(there.places)
					if there.places[n-1] != "pod1" || there.packet.IPSrc != p.IPSrc {
						t.Fatalf("%s: %s", step, there)
					}
					for name := range c.nodes {
						c.prefer[name] = map[bool]string{true: first,
							false: second}[name[:4] == "west" && (name == "west1" || name == "west2")]
					}
					back := c.send(there.places[n-2]+" pod1", there.packet.Reply())
					if last := len(back.places) - 1; back.places[last] != "pod1" || back.places[last-1] != "east1" ||
						back.packet.IPSrc != p.IPDst {
						t.Fatalf("%s: reply %s", step, back)
					}
					for _, lost := range without {
						// The way's end may be the server's Node: its Pod is reached through it alone.
						if slices.Contains(there.places[:n-2], lost) || slices.Contains(back.places[1:], lost) {
							t.Errorf("%s: %s, back %s", step, there, back)
						}
					}
				}
			}
		}
	}
	check("everything is up")
	c.stop("east3", true)
	check("east3 is down", "east3")
	c.stop("east3", false)
	check("east3 is back")
	c.cut("east1", "east4", true)
	c.cut("east3", "west2", true)
	check("east1 does not reach east4, nor east3 west2")
	c.cut("east1", "east4", false)
	c.cut("east3", "west2", false)
	a.gateways = map[string][]int{"east": {3, 4, 2}, "west": {1, 2, 4}}
	c.become(a)
	c.withPodEndpoints("east1", "west3")
	check("each has a third Gateway")
	a.gateways = map[string][]int{"east": {2}, "west": {4}}
	c.become(a)
	c.withPodEndpoints("east1", "west3")
	check("others are left", "east3", "east4", "west1", "west2")
	a.gateways = map[string][]int{"east": {2, 1}, "west": {4}}
	c.become(a)
	c.withPodEndpoints("east1", "west3")
	check("the client's Node is a Gateway")
}

// TestTransitAgreed checks that connections stay as they are when the clusters change their settings. Only an agreement
// of both affects new connections.
func TestTransitAgreed(t *testing.T) {
	a := reaching()
	a.keep = nil
	c := a.cable(t)
	to := podOf("west3").String() + ":8080"
	port := uint16(40000)
	connect := func(from string) (p oftest.Packet, sees netip.Addr) {
		t.Helper()
		p = c.request(from, to, oftest.TCP)
		port++
		p.SrcPort = port
		return p, p.IPSrc
	}
	exchange := func(step, from string, p oftest.Packet, kept bool) {
		t.Helper()
		w := c.send(from, p)
		n := len(w.places)
		if n < 2 || w.places[n-1] != "pod1" || (w.packet.IPSrc == p.IPSrc) != kept {
			t.Fatalf("%s, %s: %s, want the client's address %v", step, from, w, kept)
		}
		back := c.send(w.places[n-2]+" pod1", w.packet.Reply())
		_, place, _ := strings.Cut(from, " ")
		if m := len(back.places); back.places[m-1] != place || back.packet.IPDst != p.IPSrc {
			t.Fatalf("%s, %s: reply %s", step, from, back)
		}
	}
	places := []string{"east1 pod1", "east3 pod1"}
	var translated, kept []oftest.Packet
	for _, from := range places {
		p, _ := connect(from)
		exchange("translated", from, p, false)
		translated = append(translated, p)
	}
	a.keep = map[string]bool{"east": true}
	c.become(a)
	for i, from := range places {
		exchange("from before", from, translated[i], false)
		p, _ := connect(from)
		exchange("since then", from, p, true)
		kept = append(kept, p)
	}
	for _, from := range []string{"east1 host", "east3 host"} {
		p, _ := connect(from)
		exchange("of a host", from, p, false)
	}
	a.keep = nil
	c.become(a)
	for i, from := range places {
		exchange("no more, translated", from, translated[i], false)
		exchange("no more, kept", from, kept[i], true)
		p, _ := connect(from)
		exchange("no more, new", from, p, false)
	}
}

// TestTransitNot sends untranslated packets. They reach only Pods, and only through Gateways.
func TestTransitNot(t *testing.T) {
	a := reaching()
	c := a.cable(t)
	for _, to := range []string{"west1", "west3"} {
		cluster, _, n := clusterOf(to)
		host := cidrHost(activePods(cluster, n), 1)
		w := c.send("east1 pod1", c.request("east1 pod1", host+":22", oftest.TCP))
		if last := w.places[len(w.places)-1]; last != "dropped in Exports" {
			t.Errorf("to the host of %s: %s", to, w)
		}
		exchange := c.request("east1 pod1", host+":22", oftest.TCP)
		exchange.InPort, exchange.EthDst, exchange.TunSrc, exchange.TunDst = c.states["west1"].Ways[activeAddr("east", 3)],
			CrossClusterMAC, activeAddr("east", 3), activeAddr("west", 1)
		if r := c.nodes["west1"].Send(exchange); r.Dropped != "Exports" {
			t.Errorf("to the host of %s, from a peer's gateway: %s", to, r)
		}
	}
	// A peer's address from a Node of this cluster, and one of this cluster from a peer.
	for _, test := range []struct {
		at       string
		from, to netip.Addr
		by       netip.Addr
		mac      ofp.MAC
	}{
		{"east3", podOf("west3"), podOf("west2"), activeAddr("east", 1), TransitMAC},
		{"west1", podOf("west3"), podOf("west4"), activeAddr("east", 3), CrossClusterMAC},
		{"west1", podOf("east1"), podOf("west4"), activeAddr("east", 3), TransitMAC},
		{"west1", podOf("east1"), podOf("west4"), netip.MustParseAddr("203.0.113.7"), CrossClusterMAC},
	} {
		cluster, _, n := clusterOf(test.at)
		p := oftest.Packet{InPort: tunnelPort, EthDst: test.mac, IPSrc: test.from, IPDst: test.to,
			Proto: oftest.TCP, SrcPort: 1, DstPort: 2, TunSrc: test.by, TunDst: activeAddr(cluster, n)}
		if r := c.nodes[test.at].Send(p); r.Dropped != "Classify" {
			t.Errorf("%s from %s at %s: %s", p, test.by, test.at, r)
		}
	}
}

// TestTransitRefused takes the agent's answer to a request that a policy rejects back to the client.
func TestTransitRefused(t *testing.T) {
	for _, last := range []string{"west1", "west3"} {
		for _, service := range []bool{false, true} {
			a := reaching()
			if a.stretch = true; service {
				a.families = family.IPv6
			}
			c := a.cable(t)
			dst := podOf(last).String() + ":8080"
			if service {
				dst = c.withPodEndpoints("east1", last)
			}
			s := newSources(c.states[last])
			s.policy.Namespaces.Set(derive.Object{Name: "default"},
				policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
			s.relabel("pod1", "app=server")
			s.rules(everybody(policy.Reject))
			c.load(map[string]*sources{last: s})
			c.prefer["east1"], c.prefer["east3"], c.prefer[last] = "east3", "west1", "west2"
			p := c.request("east1 pod1", dst, oftest.TCP)
			w := c.send("east1 pod1", p)
			if want := strings.Join(path("east1", "east3", "west1", last), " ") + " agent"; strings.Join(w.places, " ") != want {
				t.Fatalf("%s, want %s", w, want)
			}
			answer := oftest.Packet{IPSrc: c.inner(podOf(last)), SrcPort: 8080, IPDst: p.IPSrc, DstPort: p.SrcPort,
				Proto: oftest.TCP}
			r := c.nodes[last].PacketOut(answer, flow.Do(flow.Load(generated, 1), flow.Resubmit(Conntrack)))
			if len(r.Outputs) != 1 || r.Outputs[0].Port != tunnelPort {
				t.Fatalf("%s: the answer goes %s", last, r)
			}
			out := r.Outputs[0].Packet
			out.TunSrc = c.states[last].Node.Tunnels.Ends[0]
			back := c.send(c.ends[out.TunDst]+" tunnel", out)
			if n := len(back.places); strings.Join(back.places[n-2:], " ") != "east1 pod1" ||
				back.packet.IPSrc != p.IPDst || back.packet.SrcPort != p.DstPort {
				t.Errorf("the answer of %s goes %s", last, back)
			}
		}
	}
}
