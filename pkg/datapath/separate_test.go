package datapath

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// zoneOfRed is the zone of the separate network in these tests.
const zoneOfRed = 17

// separateNodes are virtualNodes where a/red has the ranges of a/blue, and is separate. So on each Node, pod3 and pod4
// have the same addresses. pod1 and pod2 have further interfaces pod6 in blue and pod7 in red, with equal addresses.
func separateNodes() map[string]State {
	states := virtualNodes(nil)
	blue, red := derive.Object{Namespace: "a", Name: "blue"}, derive.Object{Namespace: "a", Name: "red"}
	for node, s := range states {
		v := s.Networks[red]
		v.Leases, v.Zone = s.Networks[blue].Leases, zoneOfRed
		s.Networks[red] = v
		s.Pods = slices.Clone(s.Pods)
		s.Pods[3].IPs = s.Pods[2].IPs
		for i, network := range []derive.Object{blue, red} {
			pod := s.Pods[2]
			pod.Name, pod.Interface, pod.Network = fmt.Sprint("pod", 6+i), fmt.Sprint("pod", 6+i), network
			pod.Port, pod.MAC[5], pod.IPs = ofp.Port(6+i), byte(0x60+i), nil
			for _, ip := range s.Pods[2].IPs {
				pod.IPs = append(pod.IPs, ip.Next())
			}
			s.Pods = append(s.Pods, pod)
		}
		states[node] = s
	}
	return states
}

// tenantSources returns the sources of a state with its places and with Namespace a.
func tenantSources(s State) *sources {
	c := newSources(s)
	for name, place := range s.Places {
		c.places.Set(derive.Object{Name: name}, place)
	}
	c.policy.Namespaces.Set(derive.Object{Name: "a"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	return c
}

// TestSeparateConversations holds two conversations at once in two networks with equal ranges. They have the same
// addresses and ports. Each packet arrives in its own network, and connection tracking knows both connections.
func TestSeparateConversations(t *testing.T) {
	for _, row := range []struct{ name, from, to, there, back string }{
		{"to another Node", "pod%d", "10.50.0.18:80", "east1 east2 pod%d: 10.50.0.2:40000 > 10.50.0.18:80",
			"east2 east1 pod%d: 10.50.0.18:80 > 10.50.0.2:40000"},
		{"by IPv6", "pod%d", "[fd50::12]:80", "east1 east2 pod%d: [fd50::2]:40000 > [fd50::12]:80",
			"east2 east1 pod%d: [fd50::12]:80 > [fd50::2]:40000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := cableOf(t, separateNodes())
			for range 2 {
				for _, pod := range []int{3, 4} {
					from := fmt.Sprintf("east1 "+row.from, pod)
					c.converse(from, fmt.Sprintf(row.there, pod), fmt.Sprintf(row.back, pod), c.request(from, row.to, oftest.TCP))
				}
			}
			for node, sw := range c.nodes {
				var zones []string
				for line := range strings.Lines(sw.DumpConntrack()) {
					known, ok := trackedOf(line)
					if !ok {
						t.Errorf("%s: a line that is not read: %s", node, line)
					}
					zones = append(zones, fmt.Sprint(known.zone))
				}
				slices.Sort(zones)
				if !slices.Equal(zones, []string{"0", fmt.Sprint(zoneOfRed)}) {
					t.Errorf("%s tracks connections in zones %v, want one in each", node, zones)
				}
			}
		})
	}
	t.Run("on one Node", func(t *testing.T) {
		c := cableOf(t, separateNodes())
		for range 2 {
			for from, to := range map[string]int{"pod3": 6, "pod4": 7} {
				c.converse("east1 "+from, fmt.Sprintf("east1 pod%d: 10.50.0.2:40000 > 10.50.0.3:80", to),
					"east1 "+from+": 10.50.0.3:80 > 10.50.0.2:40000", c.request("east1 "+from, "10.50.0.3:80", oftest.TCP))
			}
		}
	})
}

// TestSeparateLeaks sends random packets of all Pods. They arrive in the network of their sender, and in one that is
// joined with it.
func TestSeparateLeaks(t *testing.T) {
	for _, row := range []struct {
		name   string
		states map[string]State
		seed   uint64
		pairs  []string // networks of senders and receivers of many packets
	}{
		{"without joins", separateNodes(), 1, []string{"red red", "blue blue"}},
		{"with a join", joinedNodes(), 2, []string{"red red", "red green", "green red", "blue blue"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			arrived := leaks(t, row.states, row.seed)
			for _, pair := range row.pairs {
				if arrived[pair] < 30 {
					t.Errorf("only %d packets arrive from %s", arrived[pair], pair)
				}
			}
		})
	}
}

// leaks sends random packets, and returns how many have arrived from each network in each network.
func leaks(t *testing.T, states map[string]State, seed uint64) map[string]int {
	t.Helper()
	group := func(p Pod) string {
		if p.Port == 5 {
			return "c"
		}
		return strings.ReplaceAll(p.Network.Name, "green", "red")
	}
	rnd := rand.New(rand.NewPCG(seed, 31))
	c := cableOf(t, states)
	arrived := map[string]int{}
	for range 3000 {
		fromNode, toNode := []string{"east1", "east2"}[rnd.IntN(2)], []string{"east1", "east2"}[rnd.IntN(2)]
		from, to := states[fromNode].Pods, states[toNode].Pods
		client, server := from[rnd.IntN(len(from))], to[rnd.IntN(len(to))]
		ip := server.IPs[rnd.IntN(2)]
		end := fmt.Sprint(fromNode, " pod", client.Port)
		p := c.request(end, netip.AddrPortFrom(ip, 80).String(), oftest.TCP)
		p.SrcPort = uint16(rnd.IntN(4) + 40000)
		w := c.send(end, p)
		at := w.places[len(w.places)-1]
		i := slices.IndexFunc(to, func(p Pod) bool { return fmt.Sprint("pod", p.Port) == at })
		if i < 0 {
			if group(client) == "red" && group(server) == "red" && client.Name != server.Name {
				t.Fatalf("%s to %s: %s", end, ip, w)
			}
			continue // a host, or dropped
		}
		have := to[i]
		arrived[client.Network.Name+" "+have.Network.Name]++
		if group(have) != group(client) || !slices.Contains(have.IPs, ip) {
			t.Fatalf("%s to %s: %s is in network %q, want %q", end, ip, at, group(have), group(client))
		}
	}
	return arrived
}

// TestSeparateRefusal takes the agent's refusal of a connection in a separate network back over both Nodes.
func TestSeparateRefusal(t *testing.T) {
	c := cableOf(t, separateNodes())
	w := c.send("east1 pod4", c.request("east1 pod4", "10.50.0.18:80", oftest.TCP))
	in := ofp.PacketIn2{Userdata: []byte(PolicyReject), Data: segment(tcpSYN, 1, 0, ""),
		Metadata: flow.All(source.Is(fromTunnel), inTenant.Is(network(0x2ed)), inZone.Is(separate(zoneOfRed))).OXM()}
	out, err := Reject(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := c.nodes["east2"].PacketOut(w.packet.Reply(), out.Actions)
	if len(r.Outputs) != 1 || r.Outputs[0].Port != tunnelPort {
		t.Fatalf("the refusal goes %s", r)
	}
	p := r.Outputs[0].Packet
	p.TunSrc = eastTwo
	if back := c.send("east1 tunnel", p); !strings.HasPrefix(back.String(), "east1 pod4: 10.50.0.18:80") {
		t.Errorf("the refusal goes %s", back)
	}
}

// TestSeparatePolicies has a policy for a Pod in blue and not for the Pod with the same addresses in red. It allows
// Pods with one label. In both networks a Pod of the other Node has the same address. At first only the Pod in blue has
// the label.
func TestSeparatePolicies(t *testing.T) {
	s := separateNodes()["east1"]
	c := tenantSources(s)
	pod := func(name, node, label string) {
		c.policy.Pods.Set(derive.Object{Namespace: "a", Name: name}, policy.PodFacts{Labels: "app=" + label, Node: node})
	}
	for _, p := range s.Pods[2:4] {
		c.policy.Pods.Set(derive.Object{Namespace: "a", Name: p.Name},
			policy.PodFacts{Labels: "app=server,in=" + p.Network.Name, Node: "east1", IPs: p.IPs})
	}
	pod("friend", "east2", "friend")
	pod("other", "east2", "other")
	blue, red := derive.Object{Namespace: "a", Name: "blue"}, derive.Object{Namespace: "a", Name: "red"}
	for network, zone := range map[derive.Object]uint16{blue: 0, red: zoneOfRed} {
		c.policy.Blocks.Set(derive.Object{Name: network.Name}, []policy.NodeBlock{
			{Node: "east1", Range: rangeOf("10.50.0.0/28"), Network: network, Zone: zone},
			{Node: "east2", Range: rangeOf("10.50.0.16/28"), Network: network, Zone: zone}})
	}
	reports := func(inBlue, inRed string) {
		c.policy.Further.Set(derive.Object{Name: "east2"}, []policy.FurtherAddress{
			{IP: addrOf("10.50.0.18"), Pod: derive.Object{Namespace: "a", Name: inBlue}, Network: blue},
			{IP: addrOf("10.50.0.18"), Pod: derive.Object{Namespace: "a", Name: inRed}, Network: red}})
	}
	allow := func(of string) {
		rule := []policy.RuleFacts{{Action: policy.Allow, AnyPort: true,
			Peers: []policy.Selector{{Namespace: "a", Pods: "app=friend"}}}}
		c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "a", Name: "friends"}, policy.Facts{
			Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "a", Pods: "in=" + of}},
			Ingress: &policy.DirectionFacts{Rules: rule}, Egress: &policy.DirectionFacts{Rules: rule}})
	}
	check := func(when string, want map[string]bool) {
		t.Helper()
		c.engine.Pass()
		for i, network := range []derive.Object{blue, red} {
			id := s.Networks[network].Place.ID
			in := oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: MACOf(id), IPSrc: addrOf("10.50.0.18"),
				IPDst: addrOf("10.50.0.2"), Proto: oftest.TCP, SrcPort: 40000, DstPort: 80, TunSrc: eastTwo, TunDst: eastOne}
			out := oftest.Packet{InPort: s.Pods[2+i].Port, EthSrc: s.Pods[2+i].MAC, EthDst: gwMAC, IPSrc: addrOf("10.50.0.2"),
				IPDst: addrOf("10.50.0.18"), Proto: oftest.TCP, SrcPort: 40001, DstPort: 80}
			for _, p := range []oftest.Packet{in, out} {
				sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
				if err != nil {
					t.Fatal(err)
				}
				if r := sw.Send(p); r.Err != nil || len(r.Outputs) == 1 != want[network.Name] {
					t.Errorf("%s, in %s: %s goes %s, want it to pass: %t", when, network.Name, p, r, want[network.Name])
				}
			}
		}
	}
	reports("friend", "other")
	check("without a policy", map[string]bool{"blue": true, "red": true})
	allow("blue")
	check("applied in blue", map[string]bool{"blue": true, "red": true})
	reports("other", "friend")
	check("applied in blue, and the friend is in red", map[string]bool{"blue": false, "red": true})
	allow("red")
	check("applied in red, where the friend is", map[string]bool{"blue": true, "red": true})
	reports("friend", "other")
	check("applied in red, and the friend is in blue", map[string]bool{"blue": true, "red": false})

	// Known connections of red alone are judged.
	rechecks := func(zone uint16) (out []string) {
		known := tracked{Connection: policy.Connection{From: addrOf("10.50.0.18"), To: addrOf("10.50.0.2"),
			Protocol: corev1.ProtocolTCP, Port: 80}, zone: zone}
		c.tables.Policies.Known.snapshot().recheck(known, func(r Recheck) { out = append(out, r.String()) })
		return out
	}
	if have := rechecks(0); len(have) > 0 {
		t.Errorf("a connection in blue is judged again: %v", have)
	}
	if have := rechecks(zoneOfRed); !slices.Equal(have, []string{"ingress not-judged 10.50.0.2 in zone 17"}) {
		t.Errorf("a connection in red: %v", have)
	}
	if have := rechecks(zoneOfRed + 1); len(have) > 0 {
		t.Errorf("a connection in the zone of no network is judged again: %v", have)
	}
}

// TestSeparateNamedPorts has two servers with one address in two networks. Each gives the name web to another number. A
// rule with this name allows the number of the server in the network of the packet.
func TestSeparateNamedPorts(t *testing.T) {
	s := separateNodes()["east1"]
	c := tenantSources(s)
	networks := []derive.Object{{Namespace: "a", Name: "blue"}, {Namespace: "a", Name: "red"}}
	var far []policy.FurtherAddress
	for i, network := range networks {
		zone := []uint16{0, zoneOfRed}[i]
		c.policy.Blocks.Set(derive.Object{Name: network.Name}, []policy.NodeBlock{
			{Node: "east1", Range: rangeOf("10.50.0.0/28"), Network: network, Zone: zone},
			{Node: "east2", Range: rangeOf("10.50.0.16/28"), Network: network, Zone: zone}})
		for name, node := range map[string]string{s.Pods[2+i].Name: "east1", "far-" + network.Name: "east2"} {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{"on": node}}}
			p.Spec.NodeName = node
			if node == "east1" {
				p.Status.PodIPs = []corev1.PodIP{{IP: "10.50.0.2"}}
			}
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(80 + i)}}}}
			c.policy.Pods.Set(derive.ObjectOf(p), policy.PodFactsOf(p))
		}
		far = append(far, policy.FurtherAddress{IP: addrOf("10.50.0.18"),
			Pod: derive.Object{Namespace: "a", Name: "far-" + network.Name}, Network: network})
	}
	c.policy.Further.Set(derive.Object{Name: "east2"}, far)
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}}
	n.Spec.PodSelector.MatchLabels = map[string]string{"on": "east1"}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	web := []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("web"))}}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: web}}
	n.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: web}}
	c.policy.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(n), policy.FactsOf(n))
	c.engine.Pass()
	sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
	if err != nil {
		t.Fatal(err)
	}
	near, end := addrOf("10.50.0.2"), addrOf("10.50.0.18")
	for i, network := range networks {
		pod := s.Pods[2+i]
		for _, port := range []uint16{80, 81} {
			want := port == uint16(80+i)
			for d, p := range [...]oftest.Packet{
				policy.Ingress: {InPort: tunnelPort, EthSrc: gwMAC, EthDst: MACOf(s.Networks[network].Place.ID), IPSrc: end,
					IPDst: near, TunSrc: eastTwo, TunDst: eastOne},
				policy.Egress: {InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: near, IPDst: end},
			} {
				d := policy.Direction(d)
				p.Proto, p.SrcPort, p.DstPort = oftest.TCP, 40000+port, port
				if r := sw.Send(p); r.Err != nil || len(r.Outputs) == 1 != want {
					t.Errorf("%s in %s: %s goes %s, want it to pass: %t", d, network, p, r, want)
				}
				v := c.policy.Decide(derive.Object{Namespace: "a", Name: pod.Name}, d, policy.Connection{From: p.IPSrc,
					To: p.IPDst, Networks: [2]derive.Object{network, network}, Protocol: corev1.ProtocolTCP, Port: port})
				if v.Allowed != want {
					t.Errorf("%s in %s, port %d: allowed is %t, want %t", d, network, port, v.Allowed, want)
				}
			}
		}
	}
}

// TestSeparateRechecks judges the known connection of one of two networks again. Both connections have the same
// addresses and ports, and the other one stays as it is.
func TestSeparateRechecks(t *testing.T) {
	for _, again := range []uint16{0, zoneOfRed} {
		c := cableOf(t, separateNodes())
		s := newSources(separateNodes()["east1"])
		for name, place := range c.states["east1"].Places {
			s.places.Set(derive.Object{Name: name}, place)
		}
		s.engine.Pass()
		s.tables.Policies.Known.Recheck([]Recheck{{Why: NotJudged, Direction: policy.Egress, Addr: addrOf("10.50.0.2"),
			Zone: again}})
		s.engine.Pass()
		sw, err := oftest.New(Program, slices.Collect(maps.Values(s.held))...)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes["east1"] = sw
		visits := map[uint16]bool{}
		for zone, from := range map[uint16]string{0: "east1 pod3", zoneOfRed: "east1 pod4"} {
			p := c.request(from, "10.50.0.18:80", oftest.TCP)
			w := c.send(from, p)
			c.send(strings.Join(w.places[1:], " "), w.packet.Reply())
			p.InPort = map[uint16]ofp.Port{0: 3, zoneOfRed: 4}[zone]
			visits[zone] = slices.Contains(sw.Send(p).Tables, "Again")
		}
		if !visits[again] || visits[zoneOfRed-again] {
			t.Errorf("judged again in zone %d: %v", again, visits)
		}
	}
}

// TestSeparateTraffic sends real connections in two networks with equal ranges: between the same two addresses, from
// the same port, at the same time.
func TestSeparateTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	states := joinedNodes()
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
	two.pods[2].serve(t, "udp", ":5999", "east2/pod3")
	port := 31000
	for _, r := range []struct {
		name, network, to, blue, red string
		size                         int // of each line
	}{
		{"to another Node", "tcp", "10.50.0.18:8080", "east2/pod3 10.50.0.2", "east2/pod4 10.50.0.2", 1},
		{"by IPv6", "tcp6", "[fd50::12]:8080", "east2/pod3 fd50::2", "east2/pod4 fd50::2", 1},
		{"by UDP", "udp", "10.50.0.18:5353", "east2/pod3 10.50.0.2", "east2/pod4 10.50.0.2", 1},
		{"on one Node", "tcp", "10.50.0.3:8080", "east1/pod6 10.50.0.2", "east1/pod7 10.50.0.2", 1},
		{"on one Node by UDP", "udp", "10.50.0.3:5353", "east1/pod6 10.50.0.2", "east1/pod7 10.50.0.2", 1},
		{"in fragments", "udp", "10.50.0.3:5353", "east1/pod6 10.50.0.2", "east1/pod7 10.50.0.2", large},
		{"to a port that is open in blue", "udp", "10.50.0.18:5999", "east2/pod3 10.50.0.2", "connection refused", 1},
	} {
		port++
		t.Run(r.name, func(t *testing.T) {
			line := strings.Repeat("-", r.size) + "\n"
			blue, red := one.pods[2].talk(t, port, r.network, r.to), one.pods[3].talk(t, port, r.network, r.to)
			for range 5 { // both are open
				if have := blue(line); have != r.blue {
					t.Fatalf("in blue %q answers, want %q", have, r.blue)
				}
				if have := red(line); !strings.HasSuffix(have, r.red) {
					t.Fatalf("in red %q answers, want %q", have, r.red)
				}
			}
		})
	}
	for _, n := range []*realNode{one, two} {
		zones := map[uint16]int{}
		for line := range strings.Lines(n.ovs.appctl(t, "dpctl/dump-conntrack", "-m")) {
			if c, ok := trackedOf(line); ok && c.Port != 0 && c.From.Is4() {
				zones[c.zone]++
			}
		}
		if zones[0] == 0 || zones[0] != zones[zoneOfRed] {
			t.Errorf("the switch tracks connections by zone: %v, want as many in zone %d as in all others", zones, zoneOfRed)
		}
	}
	for _, r := range []struct{ name, network, from, to, want string }{
		{"to a joined network", "tcp", "pod4", "10.50.2.18:8080", "east2/pod8 10.50.0.2"},
		{"to a joined network by IPv6", "tcp6", "pod4", "[fd50:2::12]:8080", "east2/pod8 fd50::2"},
		{"to a joined network by UDP", "udp", "pod4", "10.50.2.18:5353", "east2/pod8 10.50.0.2"},
		{"to a joined network on its Node", "tcp", "pod4", "10.50.2.2:8080", "east1/pod8 10.50.0.2"},
		{"from a joined network", "tcp", "pod8", "10.50.0.18:8080", "east2/pod4 10.50.2.2"},
	} {
		port++
		t.Run(r.name, func(t *testing.T) {
			talk := one.pods[r.from[3]-'1'].talk(t, port, r.network, r.to)
			for range 5 {
				if have := talk("-\n"); have != r.want {
					t.Fatalf("%q answers, want %q", have, r.want)
				}
			}
		})
	}
}

// talk connects from a port. The returned function sends a line through the connection, and returns the answer or the
// error.
func (n namespace) talk(t *testing.T, port int, network, address string) func(line string) string {
	t.Helper()
	var c net.Conn
	err := n.do(func() (err error) {
		c, err = dialFrom(port, versioned(network), address, replyTimeout())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r := bufio.NewReader(c)
	return func(line string) string {
		if err := c.SetDeadline(time.Now().Add(replyTimeout())); err != nil {
			return err.Error()
		}
		if _, err := c.Write([]byte(line)); err != nil {
			return err.Error()
		}
		answer, err := r.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(answer)
	}
}

// TestSeparateSCTP does not take the zone of a port of SCTP, on the userspace datapath, for the zone of a network.
func TestSeparateSCTP(t *testing.T) {
	const byPort = "sctp,orig=(src=10.11.0.2,dst=10.11.0.3),reply=(src=10.11.0.3,dst=10.11.0.2),zone=17,mark=3"
	const inKernel = "sctp,orig=(src=10.50.0.2,dst=10.50.0.3,sport=5000,dport=80)," +
		"reply=(src=10.50.0.3,dst=10.50.0.2,sport=80,dport=5000),zone=17,mark=3"
	for line, want := range map[string]bool{byPort: false, inKernel: true} {
		if c, ok := trackedOf(line); ok != want || ok && c.zone != zoneOfRed {
			t.Errorf("%s is read: %t in zone %d, want %t", line, ok, c.zone, want)
		}
	}
}

// TestSeparateNetworkDeleted deletes a separate network while its Pods run. They have no traffic, and no packet of them
// reaches the zone of all other networks. The Pods with their addresses in blue are served, whichever port is first.
func TestSeparateNetworkDeleted(t *testing.T) {
	for _, port := range []string{"aaa", "zzz"} {
		states := separateNodes()
		for node, s := range states {
			s.Networks[derive.Object{Namespace: "a", Name: "red"}] = tenant.VirtualNetwork{Zone: zoneOfRed}
			s.Pods[3].Interface = port
			states[node] = s
		}
		c := cableOf(t, states)
		w := c.send("east1 pod4", c.request("east1 pod4", "10.50.0.18:80", oftest.TCP))
		if !strings.HasPrefix(w.String(), "east1 dropped in Egress") {
			t.Errorf("a packet in red goes %s", w)
		}
		if have := c.nodes["east1"].DumpConntrack(); have != "" {
			t.Errorf("it is tracked: %s", have)
		}
		c.converse("east1 pod3", "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:80",
			"east2 east1 pod3: 10.50.0.18:80 > 10.50.0.2:40000", c.request("east1 pod3", "10.50.0.18:80", oftest.TCP))
		rst := c.request("east1 pod4", "10.50.0.18:80", oftest.TCP) // as if it were of the connection in blue
		if w := c.send("east1 pod4", rst); !strings.HasPrefix(w.String(), "east1 dropped in Egress") ||
			slices.Contains(c.nodes["east1"].Send(onPort(rst, 4)).Tables, "Again") {
			t.Errorf("a packet in red with addresses and ports of the connection in blue goes %s", w)
		}
	}
}

// onPort returns a packet that comes through a port.
func onPort(p oftest.Packet, port ofp.Port) oftest.Packet {
	p.InPort = port
	return p
}

// joinedNodes are separateNodes with a/green, which is in the zone of a/red and joined with it. Each Node has pod8 in
// green.
func joinedNodes() map[string]State {
	states := separateNodes()
	red, green := derive.Object{Namespace: "a", Name: "red"}, derive.Object{Namespace: "a", Name: "green"}
	for node, s := range states {
		s.Networks = maps.Clone(s.Networks)
		r := s.Networks[red]
		g := tenant.VirtualNetwork{Zone: zoneOfRed, Place: r.Place}
		g.Place.Network.Name, g.Place.ID, g.Place.Joined = green.Name, 0x93ee, []tenant.ID{r.Place.ID}
		r.Place.Joined = []tenant.ID{g.Place.ID}
		pod := s.Pods[3]
		pod.Name, pod.Interface, pod.Port, pod.MAC[5], pod.Network, pod.IPs = "pod8", "pod8", 8, 0x80, green, nil
		for _, text := range []string{"10.50.2.%s/%d", "fd50:2::%s/%d"} {
			at := func(host string, bits int) netip.Prefix { return rangeOf(fmt.Sprintf(text, host, bits)) }
			cidr, size := at("0", 24), 32
			if cidr.Addr().Is6() {
				cidr, size = at("", 64), 128
			}
			l := tenant.LeaseFacts{Range: tenant.Range{CIDR: cidr, Gateway: cidr.Addr().Next()}}
			from := cidr.Addr()
			for _, name := range []string{"east1", "east2"} {
				l.Nodes = append(l.Nodes, tenant.NodeBlocks{Node: name, Blocks: []netip.Prefix{netip.PrefixFrom(from, size-4)}})
				if name == node {
					pod.IPs = append(pod.IPs, from.Next().Next())
				}
				for range 16 {
					from = from.Next()
				}
			}
			g.Leases = append(g.Leases, l)
		}
		s.Networks[red], s.Networks[green] = r, g
		s.Pods = append(slices.Clone(s.Pods), pod)
		states[node] = s
	}
	return states
}

// TestSeparateJoins holds conversations between two separate networks of one zone that are joined. The network with the
// addresses of one of them is not joined.
func TestSeparateJoins(t *testing.T) {
	for _, row := range []struct{ name, from, to, there, back string }{
		{"to another Node", "east1 pod4", "10.50.2.18:80", "east1 east2 pod8: 10.50.0.2:40000 > 10.50.2.18:80",
			"east2 east1 pod4: 10.50.2.18:80 > 10.50.0.2:40000"},
		{"from another Node", "east2 pod8", "10.50.0.2:80", "east2 east1 pod4: 10.50.2.18:40000 > 10.50.0.2:80",
			"east1 east2 pod8: 10.50.0.2:80 > 10.50.2.18:40000"},
		{"by IPv6", "east1 pod4", "[fd50:2::12]:80", "east1 east2 pod8: [fd50::2]:40000 > [fd50:2::12]:80",
			"east2 east1 pod4: [fd50:2::12]:80 > [fd50::2]:40000"},
		{"on one Node", "east1 pod4", "10.50.2.2:80", "east1 pod8: 10.50.0.2:40000 > 10.50.2.2:80",
			"east1 pod4: 10.50.2.2:80 > 10.50.0.2:40000"},
		{"in another network", "east1 pod3", "10.50.0.18:80", "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:80",
			"east2 east1 pod3: 10.50.0.18:80 > 10.50.0.2:40000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := cableOf(t, joinedNodes())
			for range 2 {
				c.converse(row.from, row.there, row.back, c.request(row.from, row.to, oftest.TCP))
			}
		})
	}
	for _, to := range []string{"10.50.2.2:80", "10.50.2.18:80", "[fd50:2::12]:80"} {
		c := cableOf(t, joinedNodes())
		if w := c.send("east1 pod3", c.request("east1 pod3", to, oftest.TCP)); !strings.Contains(w.String(), "dropped") {
			t.Errorf("from a network that is not joined to %s: %s", to, w)
		}
	}
	// The join ends. No packet of a known connection passes.
	c := cableOf(t, joinedNodes())
	for _, node := range []string{"east1", "east2"} {
		c.converse("east1 pod4", "east1 east2 pod8: 10.50.0.2:40000 > 10.50.2.18:80",
			"east2 east1 pod4: 10.50.2.18:80 > 10.50.0.2:40000", c.request("east1 pod4", "10.50.2.18:80", oftest.TCP))
		states := joinedNodes()
		for k, v := range states[node].Networks {
			v.Place.Joined = nil
			states[node].Networks[k] = v
		}
		apart := cableOf(t, states)
		apart.nodes[map[string]string{"east1": "east2", "east2": "east1"}[node]] =
			c.nodes[map[string]string{"east1": "east2", "east2": "east1"}[node]]
		p := c.request("east1 pod4", "10.50.2.18:80", oftest.TCP)
		if w := apart.send("east1 pod4", p); !strings.Contains(w.String(), "dropped") {
			t.Errorf("%s does not know the join any more: %s", node, w)
		}
	}
}

// TestSeparateJoinsPolicies has a policy for a Pod in red, which allows the Pod with a label. That Pod is in green, and
// the Pod in blue with the address of the server is no server.
func TestSeparateJoinsPolicies(t *testing.T) {
	s := joinedNodes()["east1"]
	c := tenantSources(s)
	for _, p := range s.Pods[2:4] {
		c.policy.Pods.Set(derive.Object{Namespace: "a", Name: p.Name},
			policy.PodFacts{Labels: "app=server,in=" + p.Network.Name, Node: "east1", IPs: p.IPs})
	}
	blue, red := derive.Object{Namespace: "a", Name: "blue"}, derive.Object{Namespace: "a", Name: "red"}
	green := derive.Object{Namespace: "a", Name: "green"}
	for network, zone := range map[derive.Object]uint16{blue: 0, red: zoneOfRed, green: zoneOfRed} {
		third := map[string]string{"green": "2"}[network.Name]
		if third == "" {
			third = "0"
		}
		c.policy.Blocks.Set(derive.Object{Name: network.Name}, []policy.NodeBlock{
			{Node: "east1", Range: rangeOf("10.50." + third + ".0/28"), Network: network, Zone: zone},
			{Node: "east2", Range: rangeOf("10.50." + third + ".16/28"), Network: network, Zone: zone}})
	}
	rule := []policy.RuleFacts{{Action: policy.Allow, AnyPort: true,
		Peers: []policy.Selector{{Namespace: "a", Pods: "app=friend"}}}}
	c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "a", Name: "friends"}, policy.Facts{
		Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "a", Pods: "in=red"}},
		Ingress: &policy.DirectionFacts{Rules: rule}, Egress: &policy.DirectionFacts{Rules: rule}})
	pod := func(label string) {
		c.policy.Pods.Set(derive.Object{Namespace: "a", Name: "far"}, policy.PodFacts{Labels: "app=" + label, Node: "east2"})
		c.policy.Further.Set(derive.Object{Name: "east2"}, []policy.FurtherAddress{
			{IP: addrOf("10.50.2.18"), Pod: derive.Object{Namespace: "a", Name: "far"}, Network: green}})
		c.engine.Pass()
	}
	passes := func() (in, out bool) {
		id := s.Networks[green].Place.ID
		for i, p := range []oftest.Packet{
			{InPort: tunnelPort, EthSrc: gwMAC, EthDst: MACOf(id), IPSrc: addrOf("10.50.2.18"), IPDst: addrOf("10.50.0.2"),
				Proto: oftest.TCP, SrcPort: 40000, DstPort: 80, TunSrc: eastTwo, TunDst: eastOne},
			{InPort: s.Pods[3].Port, EthSrc: s.Pods[3].MAC, EthDst: gwMAC, IPSrc: addrOf("10.50.0.2"),
				IPDst: addrOf("10.50.2.18"), Proto: oftest.TCP, SrcPort: 40001, DstPort: 80},
		} {
			sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
			if err != nil {
				t.Fatal(err)
			}
			*[]*bool{&in, &out}[i] = len(sw.Send(p).Outputs) == 1
		}
		return in, out
	}
	rechecks := func(from, to string, zone uint16) (out []string) {
		known := tracked{Connection: policy.Connection{From: addrOf(from), To: addrOf(to), Protocol: corev1.ProtocolTCP,
			Port: 80}, zone: zone}
		snapshot := c.tables.Policies.Known.snapshot()
		for _, network := range snapshot.networks(known, [2]netip.Addr{known.To, known.From}) {
			out = append(out, network.Name)
		}
		snapshot.recheck(known, func(r Recheck) { out = append(out, r.String()) })
		return out
	}
	pod("friend")
	if in, out := passes(); !in || !out {
		t.Errorf("the friend in green: to red %t, from red %t", in, out)
	}
	for _, row := range []struct {
		from, to string
		zone     uint16
		want     []string
	}{
		{"10.50.2.18", "10.50.0.2", zoneOfRed, []string{"red", "green", "ingress not-judged 10.50.0.2 in zone 17"}},
		{"10.50.0.2", "10.50.2.18", zoneOfRed, []string{"green", "red", "egress not-judged 10.50.0.2 in zone 17"}},
		{"10.50.0.18", "10.50.0.2", 0, []string{"blue", "blue"}},
		{"10.50.9.9", "10.50.0.2", zoneOfRed, []string{"red", "red", "ingress not-judged 10.50.0.2 in zone 17"}},
	} {
		if have := rechecks(row.from, row.to, row.zone); !slices.Equal(have, row.want) {
			t.Errorf("the connection from %s to %s in zone %d: %q, want %q", row.from, row.to, row.zone, have, row.want)
		}
	}
	pod("other")
	if in, out := passes(); in || out {
		t.Errorf("the other Pod in green: to red %t, from red %t", in, out)
	}
}
