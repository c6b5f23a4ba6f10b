package datapath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// activeClusters are clusters with several Gateways each. Each Node of east has a server of web, 10.97.0.10, which west
// has as 10.96.0.30. Each Node of west has a server of nginx, 10.96.0.20, which east has as 10.97.0.14.
type activeClusters struct {
	gateways map[string][]int // numbers of the Nodes that are Gateways, the oldest first
	single   map[string]bool  // clusters that know one Gateway alone
	older    map[string]bool  // clusters whose agents do not watch a single way
	families family.Families
	stretch  bool
	pods     bool              // the clusters reach each other's Pods
	keep     map[string]bool   // clusters whose new connections to Pods keep the client's address
	lost     []netip.Addr      // ends of ways that have been down for a while
	phases   map[string]string // of Gateways, by Node
	leaving  map[string][]int  // Gateways of each cluster that others know as ones that go
}

const activeNodes = 4 // of each cluster

var activeNets = map[string]struct {
	nodes, pods, services byte
	other                 string
	frontends             [][2]string
}{
	"east": {78, 11, 97, "west", [][2]string{{"web", "10.97.0.10:80"}, {"antrea-mc-nginx", "10.97.0.14:80"}}},
	"west": {77, 10, 96, "east", [][2]string{{"nginx", "10.96.0.20:80"}, {"antrea-mc-web", "10.96.0.30:80"}}},
	"nord": {79, 12, 98, "east", [][2]string{{"proxy", "10.98.0.20:80"}, {"antrea-mc-web", "10.98.0.30:80"}}},
}

func activeAddr(cluster string, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 168, activeNets[cluster].nodes, byte(100 + n)})
}

func activePods(cluster string, n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, activeNets[cluster].pods, byte(n - 1), 0}), 24)
}

// activeRange is the range of all Pods of a cluster.
func activeRange(cluster string) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, activeNets[cluster].pods, 0, 0}), 16)
}

func activeServices(cluster string) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, activeNets[cluster].services, 0, 0}), 16)
}

// state returns the state of one Node.
func (a activeClusters) state(t testing.TB, cluster string, n int) State {
	t.Helper()
	net := activeNets[cluster]
	s := onNode(1)
	s.Node.Name = fmt.Sprint("node-", n)
	s.Node.PodCIDRs, s.Node.ServiceCIDRs = []netip.Prefix{activePods(cluster, n)}, []netip.Prefix{activeServices(cluster)}
	s.Node.GatewayIPs = []netip.Addr{addrOf(cidrHost(activePods(cluster, n), 1))}
	own := activeAddr(cluster, n)
	s.Node.Tunnels.Ends, s.Node.Tunnels.Source, s.Node.Tunnels.PeerSource = []netip.Addr{own}, own, own
	s.Node.Tunnels.Stretched = a.stretch
	s.Pods, s.RemoteNodes, s.Frontends, s.Slices = s.Pods[:1], nil, nil, nil
	s.Pods[0].IPs = []netip.Addr{addrOf(cidrHost(activePods(cluster, n), 2))}
	var endpoints []string
	for i := 1; i <= activeNodes; i++ {
		endpoints = append(endpoints, cidrHost(activePods(cluster, i), 2)+":8080")
		if i != n {
			s.RemoteNodes = append(s.RemoteNodes, RemoteNode{
				Name: fmt.Sprint("node-", i), PodCIDRs: []netip.Prefix{activePods(cluster, i)}, Address: activeAddr(cluster, i),
				GatewayIPs: []netip.Addr{addrOf(cidrHost(activePods(cluster, i), 1))},
			})
		}
	}
	far := activeNets[net.other].frontends[0][1]
	s.Frontends = append(s.Frontends, frontend(net.frontends[0][0], corev1.ProtocolTCP, net.frontends[0][1], endpoints...),
		frontend(net.frontends[1][0], corev1.ProtocolTCP, net.frontends[1][1], far))
	s.Exported = exported(net.frontends[0][0])

	if a.families.Has6() {
		s = s.inSix(a.families)
	}
	texts := func(cidr netip.Prefix) (out []string) {
		for _, p := range both(a.families, sixRange)([]netip.Prefix{cidr}) {
			if a.families.Serve(p.Addr()) {
				out = append(out, p.String())
			}
		}
		return out
	}
	v := peering.View{NodeName: s.Node.Name, Families: a.families}
	for i, g := range a.gateways[cluster] {
		g := &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", g)},
			GatewayIP: activeAddr(cluster, g).String(), InternalIP: activeAddr(cluster, g).String()}
		if phase := a.phases[cluster+strings.TrimPrefix(g.Name, "node-")]; phase != "" {
			g.Annotations = map[string]string{multicluster.AnnotationPhase: phase}
		}
		g.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000+i), 0))
		v.Gateways = append(v.Gateways, g)
	}
	s.PodToPod, v.PodToPod = a.pods, a.pods
	others := []string{net.other}
	for _, third := range []string{"east", "west", "nord"} {
		if len(a.gateways["nord"]) > 0 && third != cluster && third != net.other {
			others = append(others, third)
		}
	}
	for _, other := range others {
		ci := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Name: other}}
		ci.Spec.ClusterID, ci.Spec.ServiceCIDRs = other, texts(activeServices(other))
		ci.Spec.ServiceCIDR = ci.Spec.ServiceCIDRs[0]
		if !a.single[other] && !a.single[cluster] { // who knows one Gateway does not read features
			ci.Spec.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeatureSingleWays}
		}
		if a.pods {
			ci.Spec.PodCIDRs = texts(activeRange(other))
		}
		for _, g := range a.gateways[other] {
			list := &ci.Spec.GatewayInfos
			if slices.Contains(a.leaving[other], g) {
				list = &ci.Spec.LeavingGateways
			}
			*list = append(*list, mcv1alpha1.GatewayInfo{GatewayIP: activeAddr(other, g).String()})
		}
		v.ClusterInfoImports = append(v.ClusterInfoImports, ci)
	}
	p, problems := peering.Plan(v)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for i := range p.Peers {
		if a.keep[cluster] {
			p.Peers[i].Kept = p.Peers[i].Pods
		}
	}
	s.Peering, s.Lost = p, a.lost
	s.Ways = map[netip.Addr]ofp.Port{}
	ends, nodes := p.Part.Watched(p.Peers)
	if a.older[cluster] {
		ends = nil
	}
	if nodes {
		for _, r := range s.RemoteNodes {
			ends = append(ends, r.Address)
		}
	}
	for _, end := range ends {
		b := end.As4()
		s.Ways[end] = 40000 + 256*ofp.Port(b[2]-77) + ofp.Port(b[3])
	}
	return s
}

// cable joins all Nodes.
func (a activeClusters) cable(t *testing.T) *cable {
	t.Helper()
	states, ends := map[string]State{}, map[netip.Addr]string{}
	for _, cluster := range []string{"east", "west"} {
		for n := 1; n <= activeNodes; n++ {
			name := fmt.Sprint(cluster, n)
			states[name], ends[activeAddr(cluster, n)] = a.state(t, cluster, n), name
		}
	}
	c := cableOf(t, states)
	c.ends, c.six = ends, a.families == family.IPv6
	return c
}

// become changes the clusters while the switches keep their connections.
func (c *cable) become(a activeClusters) {
	c.t.Helper()
	for name := range c.states {
		var n int
		cluster := name[:4]
		if _, err := fmt.Sscan(name[4:], &n); err != nil {
			c.t.Fatal(err)
		}
		c.states[name] = a.state(c.t, cluster, n)
		if err := c.nodes[name].Replace(c.entries(c.states[name])...); err != nil {
			c.t.Fatal(err)
		}
	}
}

// cut has the ways between two Nodes down, or up again.
func (c *cable) cut(one, two string, down bool) {
	c.nodes[one].Down[c.wayOf(one, two)], c.nodes[two].Down[c.wayOf(two, one)] = down, down
}

// stop has all ways of a Node down.
func (c *cable) stop(node string, down bool) {
	for other := range c.nodes {
		if other != node {
			c.cut(node, other, down)
		}
	}
}

func backwards(places []string) string {
	out := slices.Clone(places)
	slices.Reverse(out)
	return strings.Join(out, " ")
}

// active is two Gateways a cluster: Nodes 3 and 4 of east, Nodes 1 and 2 of west.
func active() activeClusters {
	return activeClusters{gateways: map[string][]int{"east": {3, 4}, "west": {1, 2}}}
}

// TestWays follows connections between clusters with several Gateways. Each connection uses one way in both directions,
// whatever other connections choose.
func TestWays(t *testing.T) {
	for _, test := range []struct {
		from, to string // a place, and a Service
		far      string // the peer
		choices  [][2]string
	}{
		{"east1 pod1", "10.97.0.14:80", "west", nil},
		{"east1 host", "10.97.0.14:80", "west", nil},
		{"east3 pod1", "10.97.0.14:80", "west", nil},
		{"east4 host", "10.97.0.14:80", "west", nil},
		{"west3 pod1", "10.96.0.30:80", "east", nil},
		{"west1 pod1", "10.96.0.30:80", "east", nil},
		{"west2 pod1", "10.96.0.30:80", "east", nil},
	} {
		gateways := map[string][]string{"east": {"east3", "east4"}, "west": {"west1", "west2"}}
		node, _, _ := strings.Cut(test.from, " ")
		near := gateways[node[:4]]
		if slices.Contains(near, node) {
			near = []string{node}
		}
		for _, stretch := range []bool{false, true} {
			for _, first := range near {
				for _, second := range gateways[test.far] {
					for server := range activeNodes {
						a := active()
						if a.stretch = stretch; server%2 == 1 {
							a.families = family.IPv6
						}
						c := a.cable(t)
						want := []string{node}
						if first != node {
							want = append(want, first)
						}
						want = append(want, second)
						if last := fmt.Sprint(test.far, server+1); last != second {
							want = append(want, last)
						}
						c.prefer[node], c.prefer[first] = first, second
						if first == node {
							c.prefer[node] = second
						}
						end := want[len(want)-1] + " pod1"
						p := c.request(test.from, test.to, oftest.TCP)
						for i := range 4 {
							if i == 0 {
								// The choice of the endpoint is the last group's.
								c.choice = 0
								c.nodes[second].Choose = func(g flow.Group, _ oftest.Packet) int { return server % len(g.Buckets) }
							}
							w := c.send(test.from, p)
							if have := strings.Join(w.places, " "); have != strings.Join(want, " ")+" pod1" {
								t.Fatalf("%s, packet %d: %s, want %s pod1", test.from, i, w, strings.Join(want, " "))
							}
							for n := range c.prefer { // the others choose otherwise
								delete(c.prefer, n)
							}
							c.prefer[node], c.prefer["east3"], c.prefer["east4"] = gateways[node[:4]][1],
								gateways["west"][1], gateways["west"][0]
							if i == 0 {
								continue // sent again before the answer
							}
							back := c.send(end, w.packet.Reply())
							_, place, _ := strings.Cut(test.from, " ")
							if have, want := strings.Join(back.places, " "), backwards(want)+" "+place; have != want ||
								back.packet.IPSrc != p.IPDst {
								t.Fatalf("%s, reply %d: %s, want %s", test.from, i, back, want)
							}
						}
					}
				}
			}
		}
	}
}

// TestWaysRefused takes the agent's answer to a request that a policy rejects back through the way of the request. No
// connection has a way for it.
func TestWaysRefused(t *testing.T) {
	for _, first := range []string{"east3", "east4"} {
		for _, second := range []string{"west1", "west2"} {
			for server := 1; server <= activeNodes; server++ {
				a := active()
				if a.stretch = true; server%2 == 1 {
					a.families = family.IPv6
				}
				c := a.cable(t)
				last := fmt.Sprint("west", server)
				s := newSources(c.states[last])
				s.policy.Namespaces.Set(derive.Object{Name: "default"},
					policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
				s.relabel("pod1", "app=server")
				s.rules(everybody(policy.Reject))
				c.load(map[string]*sources{last: s})
				c.prefer["east1"], c.prefer[first] = first, second
				c.nodes[second].Choose = func(g flow.Group, _ oftest.Packet) int { return (server - 1) % len(g.Buckets) }
				want := []string{"east1", first, second}
				if last != second {
					want = append(want, last)
				}
				p := c.request("east1 pod1", "10.97.0.14:80", oftest.TCP)
				if w := c.send("east1 pod1", p); strings.Join(w.places, " ") != strings.Join(want, " ")+" agent" {
					t.Fatalf("%s, want %s agent", w, want)
				}
				var n int
				if _, err := fmt.Sscan(first[4:], &n); err != nil {
					t.Fatal(err)
				}
				answer := oftest.Packet{IPSrc: c.states[last].Pods[0].IPs[0], SrcPort: 8080,
					IPDst: c.translated(activeAddr("east", n)), DstPort: p.SrcPort, Proto: oftest.TCP}
				came := c.wayOf(last, want[len(want)-2])
				r := c.nodes[last].PacketOut(answer,
					flow.Do(flow.Load(generated, 1), flow.Load(way, uint64(came)), flow.Resubmit(Conntrack)))
				if len(r.Outputs) != 1 || r.Outputs[0].Port != tunnelPort {
					t.Fatalf("%s: the answer goes %s", want, r)
				}
				out := r.Outputs[0].Packet
				out.TunSrc = c.states[last].Node.Tunnels.Ends[0]
				w := c.send(c.ends[out.TunDst]+" tunnel", out)
				if have := strings.Join(append([]string{last}, w.places...), " "); have != backwards(want)+" pod1" ||
					w.packet.IPSrc != p.IPDst || w.packet.SrcPort != p.DstPort {
					t.Errorf("%s: the answer goes %s %s", want, last, w)
				}
			}
		}
	}
}

// TestWaysComeAndGo checks that only connections of a way that is down move. When it is up again it has them again.
func TestWaysComeAndGo(t *testing.T) {
	a := active()
	c := a.cable(t)
	port := uint16(40000)
	connect := func(from, first, second string) (oftest.Packet, string) {
		t.Helper()
		c.prefer[from], c.prefer[first] = first, second
		p := c.request(from+" pod1", "10.97.0.14:80", oftest.TCP)
		port++
		p.SrcPort = port
		w := c.send(from+" pod1", p)
		n := len(w.places)
		if n < 2 || !strings.HasPrefix(w.places[n-1], "pod") {
			t.Fatalf("%s: %s", from, w)
		}
		c.send(w.places[n-2]+" "+w.places[n-1], w.packet.Reply())
		return p, strings.Join(w.places, " ")
	}
	by := map[string]oftest.Packet{}
	for _, first := range []string{"east3", "east4"} {
		for _, second := range []string{"west1", "west2"} {
			p, places := connect("east1", first, second)
			by[places] = p
		}
	}
	if len(by) != 4 {
		t.Fatalf("connections take the ways %v", slices.Sorted(maps.Keys(by)))
	}
	check := func(step string, stays func(places string) bool) {
		t.Helper()
		for places, p := range by {
			w := c.send("east1 pod1", p)
			if have := strings.Join(w.places, " "); stays(places) && have != places {
				t.Errorf("%s: the connection by %s goes %s", step, places, have)
			} else if !stays(places) && have == places {
				t.Errorf("%s: the connection still goes %s", step, have)
			}
		}
	}
	fresh := func(step, want string) {
		t.Helper()
		for _, first := range []string{"east3", "east4"} {
			for _, second := range []string{"west1", "west2"} {
				if _, places := connect("east1", first, second); !strings.Contains(places, want) {
					t.Errorf("%s: a new connection goes %s, want %q", step, places, want)
				}
			}
		}
	}
	all := func(string) bool { return true }
	check("everything is up", all)
	c.stop("east3", true)
	check("east3 is down", func(places string) bool { return !strings.Contains(places, "east3") })
	fresh("east3 is down", "east1 east4 west")
	c.stop("east3", false)
	check("east3 is back", all)
	c.stop("west2", true)
	check("west2 is down", func(places string) bool { return !strings.Contains(places, "west2") })
	fresh("west2 is down", " west1 pod1")
	c.stop("west2", false)
	check("west2 is back", all)
	c.cut("east4", "west1", true)
	check("east4 does not reach west1", func(places string) bool { return !strings.Contains(places, "east4 west1") })
	c.cut("east4", "west1", false)
	c.stop("east1", true) // no way is up
	fresh("BFD does not work", "east1 east3 west")
	c.stop("east1", false)

	a.gateways = map[string][]int{"east": {3, 4, 2}, "west": {1, 2, 4}}
	c.become(a)
	check("each has a third gateway", all)
	if _, places := connect("east1", "east2", "west4"); !strings.Contains(places, "east1 east2 west4") {
		t.Errorf("no connection by the third ones: %s", places)
	}
	a = active()
	c.become(a)
	check("they are gone again", all)
	a.gateways = map[string][]int{"east": {4}, "west": {2}}
	c.become(a)
	check("one is left", func(places string) bool { return strings.Contains(places, "east4 west2") })
}

// TestWaysOfTCP checks that packets of a connection, except the first, keep its way until that is lost. They do so even
// if BFD reports the way as down for a moment. If the first packet of a connection is sent again, the connection begins
// again, through a way that is up.
func TestWaysOfTCP(t *testing.T) {
	const ack = 1 << 4
	a := active()
	c := a.cable(t)
	c.prefer["east1"], c.prefer["east3"], c.prefer["east4"] = "east3", "west2", "west1"
	request := c.request("east1 pod1", "10.97.0.14:80", oftest.TCP)
	later := func(p oftest.Packet) oftest.Packet {
		p.Flags = ack
		return p
	}
	check := func(step string, p oftest.Packet, want string) travel {
		t.Helper()
		w := c.send("east1 pod1", p)
		if have := strings.Join(w.places, " "); have != want {
			t.Errorf("%s: %s, want %s", step, w, want)
		}
		return w
	}
	answer := func(step string, w travel, want string) {
		t.Helper()
		p := w.packet.Reply()
		p.Flags = ack
		if back := c.send("west2 pod1", p); strings.Join(back.places, " ") != want || back.packet.IPSrc != request.IPDst {
			t.Errorf("%s: the answer goes %s, want %s", step, back, want)
		}
	}
	c.choice = 1 // the server on west2
	first := "east1 east3 west2 pod1"
	answer("first", check("first", request, first), "west2 east3 east1 pod1")
	w := check("then", later(request), first)
	c.stop("east3", true)
	check("east3 is down", later(request), first)
	answer("east3 is down", w, "west2 east3 east1 pod1")
	c.stop("east3", false)
	check("east3 is back", later(request), first)
	c.cut("east3", "west2", true)
	check("east3 does not reach west2", later(request), first)
	c.stop("east3", true)

	request.SrcPort++
	second := "east1 east4 west1 west2 pod1"
	c.stop("east3", false)
	c.cut("east3", "west2", false)
	check("another one", request, first)
	c.stop("east3", true)
	w = check("its first packet again", request, second)
	answer("its first packet again", w, "west2 west1 east4 east1 pod1")
	check("its other ones", later(request), second)
	c.stop("east3", false)
	check("its other ones with east3 back", later(request), second)

	request.SrcPort--
	c.stop("east3", true)
	a.lost = []netip.Addr{activeAddr("east", 3)}
	c.become(a)
	check("east3 is lost", later(request), second)
	a.lost = nil
	c.stop("east3", false)
	c.become(a)
	check("east3 is there again", later(request), first)
}

// TestWaysInPhases takes east2 through the phases of a Gateway that comes and goes. All Nodes accept its packets and
// send it the answers to its requests, whether they have the change or not. Established connections go on, also through
// the Gateway that goes. Connections between Pods that keep the client's address go on after it has gone, too.
func TestWaysInPhases(t *testing.T) {
	for _, kept := range []bool{false, true} {
		a := active()
		to, back := "10.97.0.14:80", "10.96.0.30:80"
		if kept {
			a = reaching()
			to, back = podOf("west3").String()+":8080", podOf("east1").String()+":8080"
		}
		c := a.cable(t)
		c.choice = 2 // the server of west3; for west, the server of the Node with this number
		port := uint16(40000)
		// connect opens a connection, sends on and back, and returns the Nodes on its way.
		connect := func(from, to string, prefer map[string]string) (p oftest.Packet, places string) {
			t.Helper()
			c.prefer = prefer
			port++
			p = c.request(from+" pod1", to, oftest.TCP)
			p.SrcPort = port
			for range 2 {
				w := c.send(from+" pod1", p)
				n := len(w.places)
				if n < 2 || w.places[n-1] != "pod1" {
					t.Fatalf("kept %v: from %s: %s", kept, from, w)
				}
				r := c.send(w.places[n-2]+" pod1", w.packet.Reply())
				if have := r.places[len(r.places)-2:]; have[0] != from || have[1] != "pod1" || r.packet.IPSrc != p.IPDst {
					t.Fatalf("kept %v: the answer to %s comes %s", kept, from, r)
				}
				places = strings.Join(w.places, " ")
			}
			return p, places
		}
		type one struct {
			from string
			p    oftest.Packet
			by   bool   // east2, which translates it
			seen string // as the server does
		}
		var before []one
		seen := func(w travel) string { return fmt.Sprint(w.packet.IPSrc, ":", w.packet.SrcPort) }
		remember := func(from string, p oftest.Packet, by bool) {
			before = append(before, one{from, p, by && !kept, seen(c.send(from+" pod1", p))})
		}
		goesOn := func(step string, x one) {
			t.Helper()
			w := c.send(x.from+" pod1", x.p)
			if n := len(w.places); n < 2 || w.places[n-1] != "pod1" || seen(w) != x.seen {
				t.Errorf("kept %v, %s: the connection of %s, which the server has seen as %s, goes %s",
					kept, step, x.from, x.seen, w)
			} else if r := c.send(w.places[n-2]+" pod1", w.packet.Reply()); r.places[len(r.places)-2] != x.from {
				t.Errorf("kept %v, %s: its answer goes %s", kept, step, r)
			}
		}
		for _, from := range []string{"east1", "east2", "east3"} {
			p, _ := connect(from, to, map[string]string{from: "east4"})
			remember(from, p, false)
		}
		p, _ := connect("west3", back, map[string]string{"west3": "west1", "west1": "east4"})
		remember("west3", p, false)

		a.gateways = map[string][]int{"east": {3, 4, 2}, "west": {1, 2}}
		for _, phase := range []struct {
			name  string
			used  bool // by others
			sends bool // itself
			known bool // by other clusters, as one that goes
		}{
			{multicluster.PhaseJoining, false, false, false},
			{"", true, true, false},
			{multicluster.PhaseLeaving, false, true, false},
			{multicluster.PhaseLeft, false, false, false}, // which other clusters have not received yet
			{multicluster.PhaseLeft, false, false, true},
		} {
			if a.phases = map[string]string{"east2": phase.name}; phase.known {
				a.leaving = map[string][]int{"east": {2}}
			}
			c.become(a)
			for _, x := range before {
				goesOn(phase.name, x)
			}
			p, places := connect("east1", to, map[string]string{"east1": "east2", "east2": "west2"})
			if strings.Contains(places, "east2") != phase.used {
				t.Errorf("kept %v, phase %q: east1 sends %s", kept, phase.name, places)
			}
			remember("east1", p, phase.used)
			p, places = connect("east2", to, map[string]string{"east2": "west2"})
			if strings.HasPrefix(places, "east2 west2") != phase.sends {
				t.Errorf("kept %v, phase %q: east2 sends %s", kept, phase.name, places)
			}
			remember("east2", p, phase.sends)
			p, places = connect("west3", back, map[string]string{"west3": "west1", "west1": "east2"})
			if strings.HasPrefix(places, "west3 west1 east2") == phase.known {
				t.Errorf("kept %v, phase %q, known %v: west sends %s", kept, phase.name, phase.known, places)
			}
			remember("west3", p, !phase.known)
		}
		a.gateways, a.phases, a.leaving = active().gateways, nil, nil
		c.become(a)
		for _, x := range before {
			if !x.by {
				goesOn("gone", x)
			}
		}
	}
}

// TestWaysFromOne checks connections that began before single ways were watched. They continue while agents are
// upgraded in one cluster and in both. Connections from before a second gateway stay with the first.
func TestWaysFromOne(t *testing.T) {
	a := activeClusters{gateways: map[string][]int{"east": {3}, "west": {1}},
		older: map[string]bool{"east": true, "west": true}}
	c := a.cable(t)
	for _, s := range c.states {
		for _, e := range c.entries(s) {
			for _, g := range e.Groups {
				if g.Type != flow.Select || g.Buckets[0].WatchPort != 0 {
					t.Errorf("%s has group %s", s.Node.Name, g)
				}
			}
		}
	}
	type one struct {
		from string
		p    oftest.Packet
	}
	var list []one
	for _, x := range []struct{ from, to string }{{"east1 pod1", "10.97.0.14:80"}, {"east3 pod1", "10.97.0.14:80"},
		{"east4 pod1", "10.97.0.14:80"}, {"west3 pod1", "10.96.0.30:80"}, {"west2 pod1", "10.96.0.30:80"}} {
		for server := range activeNodes {
			c.choice = server
			p := c.request(x.from, x.to, oftest.TCP)
			p.SrcPort += uint16(server)
			list = append(list, one{x.from, p})
		}
	}
	walk := func() (out []string) {
		for i, x := range list {
			c.choice = i % activeNodes
			w := c.send(x.from, x.p)
			n := len(w.places)
			back := c.send(w.places[n-2]+" "+w.places[n-1], w.packet.Reply())
			out = append(out, w.String()+", back "+back.String())
		}
		return out
	}
	before := walk()
	same := func(step string) {
		t.Helper()
		if after := walk(); !slices.Equal(before, after) {
			t.Errorf("%s: the connections went\n%s\nand go\n%s", step, strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
	}
	for _, step := range []struct {
		name  string
		older map[string]bool
	}{{"east is upgraded", map[string]bool{"west": true}}, {"both are", nil},
		{"east is back at what it was", map[string]bool{"east": true}}, {"both are upgraded", nil}} {
		a.older = step.older
		c.become(a)
		same(step.name)
		for name, s := range c.states {
			if gateway := name == "east3" || name == "west1"; len(s.Ways) > 0 != (gateway && !a.older[name[:4]]) {
				t.Errorf("%s: %s has ports with BFD: %v", step.name, name, s.Ways)
			}
		}
	}
	a.gateways = map[string][]int{"east": {3, 4}, "west": {1, 2}}
	c.become(a)
	for name := range c.nodes {
		c.prefer[name] = map[bool]string{true: "west2", false: "east4"}[name == "east3" || name == "east4"]
	}
	same("a second gateway each")
}

// TestTunnelWithoutSource leaves the source of tunnels to the host's routes, over both versions of IP.
func TestTunnelWithoutSource(t *testing.T) {
	for to, want := range map[string]string{
		"192.0.2.7": "set_field:0.0.0.0->tun_src,set_field:192.0.2.7->tun_dst,",
		"fd78::7": "set_field:0.0.0.0->tun_src,set_field:0.0.0.0->tun_dst,set_field:::->tun_ipv6_src," +
			"set_field:fd78::7->tun_ipv6_dst,",
	} {
		f := flow.Flow{Table: Route, Actions: Node{Tunnels: Tunnels{Port: 1}}.tunnelTo(addrOf(to))}
		if !strings.Contains(f.String(), want) {
			t.Errorf("to %s: %s, want %s", to, f, want)
		}
	}
	// To another cluster, on a Node whose other tunnels are over IPv6.
	own := Node{Tunnels: Tunnels{Port: 1, Source: addrOf("192.0.2.1"), Ends: []netip.Addr{addrOf("fd78::1")}}}
	f := flow.Flow{Table: Route, Actions: own.tunnelTo(addrOf("192.0.2.7"))}
	const want = "set_field:::->tun_ipv6_src,set_field:::->tun_ipv6_dst,set_field:192.0.2.1->tun_src,"
	if !strings.Contains(f.String(), want) {
		t.Errorf("to another cluster: %s, want %s", f, want)
	}
}

// TestWaysOfOneAddress has two Gateways whose Nodes have one address, as while addresses move. No flows conflict.
func TestWaysOfOneAddress(t *testing.T) {
	a := active()
	s := a.state(t, "east", 2)
	for i := range s.RemoteNodes {
		if s.RemoteNodes[i].Name == "node-4" {
			s.RemoteNodes[i].Sources = []netip.Addr{activeAddr("east", 3)}
		}
	}
	c := newSources(s)
	c.engine.Pass()
	setOf(t, c.held)
}

// TestWaysToOneGateway checks that connections keep their way with several Gateways here and one there, too.
func TestWaysToOneGateway(t *testing.T) {
	a := active()
	a.gateways["west"] = []int{1}
	c := a.cable(t)
	for _, first := range []string{"east3", "east4"} {
		c.prefer["east1"] = first
		p := c.request("east1 pod1", "10.97.0.14:80", oftest.TCP)
		p.SrcPort += uint16(first[4])
		for i := range 3 {
			w := c.send("east1 pod1", p)
			if have, want := strings.Join(w.places, " "), "east1 "+first+" west1 pod1"; have != want {
				t.Fatalf("packet %d: %s, want %s", i, w, want)
			}
			if back := c.send("west1 pod1", w.packet.Reply()); strings.Join(back.places, " ") != "west1 "+first+" east1 pod1" {
				t.Fatalf("reply %d: %s", i, back)
			}
		}
	}
}

// TestWaysOfOnePeer checks a peer that knows one Gateway: it has tunnels between the first ones alone.
func TestWaysOfOnePeer(t *testing.T) {
	a := active()
	a.gateways["west"], a.single = []int{1}, map[string]bool{"west": true}
	c := a.cable(t)
	for _, test := range []struct {
		from, to string
		server   int
		want     string
	}{
		{"east1 pod1", "10.97.0.14:80", 2, "east1 east3 west1 west3 pod1"},
		{"east3 pod1", "10.97.0.14:80", 0, "east3 west1 pod1"},
		{"east4 pod1", "10.97.0.14:80", 2, "east4 east3 west1 west3 pod1"},
		{"east4 host", "10.97.0.14:80", 0, "east4 east3 west1 pod1"},
	} {
		p := c.request(test.from, test.to, oftest.TCP)
		c.prefer["east1"], c.choice = "east4", test.server
		for i := range 3 {
			w := c.send(test.from, p)
			if have := strings.Join(w.places, " "); have != test.want {
				t.Fatalf("%s: %s, want %s", test.from, w, test.want)
			}
			if i == 0 {
				continue
			}
			n := len(w.places)
			_, place, _ := strings.Cut(test.from, " ")
			if back := c.send(w.places[n-2]+" "+w.places[n-1], w.packet.Reply()); strings.Join(back.places,
				" ") != backwards(w.places[:n-1])+" "+place {
				t.Errorf("%s: reply %s", test.from, back)
			}
		}
	}
	// West as it sends: all to the first.
	for server := range activeNodes {
		c.choice = server
		p := c.request("west3 pod1", "10.96.0.30:80", oftest.TCP)
		p.SrcPort += uint16(server)
		want := "west3 west1 east3"
		if server != 2 {
			want += fmt.Sprint(" east", server+1)
		}
		for range 2 {
			w := c.send("west3 pod1", p)
			if have := strings.Join(w.places, " "); have != want+" pod1" {
				t.Fatalf("%s, want %s pod1", w, want)
			}
			n := len(w.places)
			if back := c.send(w.places[n-2]+" pod1", w.packet.Reply()); strings.Join(back.places,
				" ") != backwards(w.places[:n-1])+" pod1" {
				t.Errorf("reply %s", back)
			}
		}
	}
}

// TestSpread checks that ways are chosen equally often, not in turns, and that the endpoints behind a way differ.
func TestSpread(t *testing.T) {
	for n := 2; n <= 70; n++ {
		slots := spread(n)
		count := make([]int, n)
		for _, at := range slots {
			count[at]++
		}
		if slices.Max(count)-slices.Min(count) > 1 || slices.Min(count) == 0 || len(slots)&(len(slots)-1) != 0 {
			t.Errorf("%d ways in %d slots: %v", n, len(slots), count)
		}
		if n > 4 {
			continue
		}
		for step := 2; step <= 8; step *= 2 { // endpoints in turn
			for first := range step {
				seen := map[int]bool{}
				for i := first; i < len(slots); i += step {
					seen[slots[i]] = true
				}
				if len(slots)/step >= 4 && len(seen) < 2 {
					t.Errorf("%d ways: endpoint %d of %d has way %v alone", n, first, step, seen)
				}
			}
		}
	}
}
