package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
)

// hosts are the hosts of east's Nodes and the network between them, with traffic mode noEncap. Each host routes the
// podCIDRs of the others, and masquerades the Service address.
type hosts struct {
	masqueraded map[netip.AddrPort]netip.Addr // the source before, by the source after
}

// ownAddress returns the address of a Node's host, in the version of IP of another address.
func (c *cable) ownAddress(node string, as netip.Addr) netip.Addr {
	own := c.states[node].Node.Tunnels.Ends[0]
	if as.Is6() {
		return addrOf(inSix(own.String()))
	}
	return own
}

// route takes a packet that a switch has given to its host, and returns the Node whose switch gets it next. It returns
// "" if the host keeps the packet, or sends it to the world.
func (h *hosts) route(c *cable, node string, p *oftest.Packet) string {
	if h == nil {
		return ""
	}
	if was, ok := h.masqueraded[netip.AddrPortFrom(p.IPDst, p.DstPort)]; ok {
		for name := range c.states {
			if c.ownAddress(name, was) == p.IPDst {
				node = name
			}
		}
		p.IPDst, p.EthSrc, p.EthDst = was, c.states[node].Node.GatewayMAC, InClusterMAC
		return node
	}
	for _, n := range c.states[node].RemoteNodes {
		if !slices.ContainsFunc(n.PodCIDRs, func(r netip.Prefix) bool { return r.Contains(p.IPDst) }) {
			continue
		}
		if !n.DirectTo(p.IPDst) { // by the switch
			p.EthSrc, p.EthDst = c.states[node].Node.GatewayMAC, InClusterMAC
			return node
		}
		if p.IPSrc == vip || p.IPSrc == vip6 {
			own := c.ownAddress(node, p.IPSrc)
			h.masqueraded[netip.AddrPortFrom(own, p.SrcPort)], p.IPSrc = p.IPSrc, own
		}
		next := c.ends[n.Address]
		if slices.Contains(c.states[next].Node.GatewayIPs, p.IPDst) {
			return "" // for that host itself
		}
		p.EthSrc, p.EthDst = c.states[next].Node.GatewayMAC, InClusterMAC
		return next
	}
	return ""
}

// directNode is onNode without tunnels between the Nodes. With six the Node has both versions of IP, and tunnels for
// IPv4.
func directNode(n int, six bool) State {
	s := onNode(n)
	if six {
		s = dualNode(n)
	}
	for i := range s.RemoteNodes {
		s.RemoteNodes[i].Direct, s.RemoteNodes[i].Direct6 = !six, six
	}
	return s
}

// newDirectCable is newCable with traffic mode noEncap in east.
func newDirectCable(t *testing.T, six bool) *cable {
	c := cableOf(t, map[string]State{
		"east1": directNode(1, six), "east2": directNode(2, six), "west1": westNode(1), "west2": westNode(2),
	})
	c.hosts = &hosts{masqueraded: map[netip.AddrPort]netip.Addr{}}
	return c
}

// TestDirectConversations follows requests and replies where the hosts route packets between the Pods of their Nodes.
// Traffic with other clusters still goes through tunnels.
func TestDirectConversations(t *testing.T) {
	for _, test := range []struct {
		name, from, to string
		choice         int
		there, back    string // back: how the reply arrives at the client
		six            bool   // directNode
	}{
		{name: "Pod to the other Pod of its Node", from: "east1 pod1", to: "10.11.0.3:80",
			there: "east1 pod2: 10.11.0.2:40000 > 10.11.0.3:80", back: "east1 pod1: 10.11.0.3:80 > 10.11.0.2:40000"},
		{name: "Pod to a Pod of another Node", from: "east1 pod1", to: "10.11.1.3:80",
			there: "east1 routed east2 pod2: 10.11.0.2:40000 > 10.11.1.3:80",
			back:  "east2 routed east1 pod1: 10.11.1.3:80 > 10.11.0.2:40000"},
		{name: "Pod to the host of another Node", from: "east1 pod1", to: "10.11.1.1:80",
			there: "east1 host: 10.11.0.2:40000 > 10.11.1.1:80", back: "east1 pod1: 10.11.1.1:80 > 10.11.0.2:40000"},
		{name: "Pod to the world", from: "east1 pod1", to: "192.0.2.1:443",
			there: "east1 host: 10.11.0.2:40000 > 192.0.2.1:443", back: "east1 pod1: 192.0.2.1:443 > 10.11.0.2:40000"},
		{name: "Service with an endpoint on another Node", from: "east1 pod2", to: "10.97.0.10:80", choice: 1,
			there: "east1 routed east2 pod2: 10.11.0.3:40000 > 10.11.1.3:8080",
			back:  "east2 routed east1 pod2: 10.97.0.10:80 > 10.11.0.3:40000"},
		{name: "host to a Service with an endpoint on another Node", from: "east1 host", to: "10.97.0.10:80", choice: 1,
			there: "east1 routed east2 pod2: 192.168.78.101:40000 > 10.11.1.3:8080",
			back:  "east2 routed east1 host: 10.97.0.10:80 > 10.11.0.1:40000"},
		{name: "host to a Service with an endpoint on its Node", from: "east1 host", to: "10.97.0.10:80",
			there: "east1 pod1: 10.11.0.1:40000 > 10.11.0.2:8080", back: "east1 host: 10.97.0.10:80 > 10.11.0.1:40000"},
		{name: "host to the API server", from: "east1 host", to: "10.97.0.1:443",
			there: "east1 host: 169.254.0.253:40000 > 172.30.1.10:6443", back: "east1 host: 10.97.0.1:443 > 10.11.0.1:40000"},

		{name: "regular Node to another cluster's Gateway", from: "east1 pod1", to: "10.97.0.14:80",
			there: "east1 east2 west1 pod1: 192.168.78.102:40000 > 10.10.0.2:8080",
			back:  "west1 east2 east1 pod1: 10.97.0.14:80 > 10.11.0.2:40000"},
		{name: "Gateway to another cluster", from: "east2 pod2", to: "10.97.0.14:80", choice: 1,
			there: "east2 west1 west2 pod1: 192.168.78.102:40000 > 10.10.1.2:8080",
			back:  "west2 west1 east2 pod2: 10.97.0.14:80 > 10.11.1.3:40000"},
		{name: "host of a regular Node to another cluster", from: "east1 host", to: "10.97.0.14:80",
			there: "east1 east2 west1 pod1: 192.168.78.102:40000 > 10.10.0.2:8080",
			back:  "west1 east2 east1 host: 10.97.0.14:80 > 10.11.0.1:40000"},
		{name: "another cluster to a Pod of a regular Node", from: "west2 pod1", to: "10.97.0.10:80",
			there: "west2 west1 east2 east1 pod1: 192.168.77.101:40000 > 10.11.0.2:8080",
			back:  "east1 east2 west1 west2 pod1: 10.97.0.10:80 > 10.10.1.2:40000"},

		{name: "Pod to a Pod of another Node by IPv6", six: true, from: "east1 pod1", to: "[fd11:0:0:1::3]:80",
			there: "east1 routed east2 pod2: [fd11::2]:40000 > [fd11:0:0:1::3]:80",
			back:  "east2 routed east1 pod1: [fd11:0:0:1::3]:80 > [fd11::2]:40000"},
		{name: "the same by IPv4, through a tunnel", six: true, from: "east1 pod1", to: "10.11.1.3:80",
			there: "east1 east2 pod2: 10.11.0.2:40000 > 10.11.1.3:80", back: "east2 east1 pod1: 10.11.1.3:80 > 10.11.0.2:40000"},
		{name: "Pod to the host of another Node by IPv6", six: true, from: "east1 pod1", to: "[fd11:0:0:1::1]:80",
			there: "east1 host: [fd11::2]:40000 > [fd11:0:0:1::1]:80",
			back:  "east1 pod1: [fd11:0:0:1::1]:80 > [fd11::2]:40000"},
		{name: "Service with an endpoint on another Node by IPv6", six: true, from: "east1 pod2", to: "[fd97::10]:80",
			choice: 1, there: "east1 routed east2 pod2: [fd11::3]:40000 > [fd11:0:0:1::3]:8080",
			back: "east2 routed east1 pod2: [fd97::10]:80 > [fd11::3]:40000"},
		{name: "host to such a Service by IPv6", six: true, from: "east1 host", to: "[fd97::10]:80", choice: 1,
			there: "east1 routed east2 pod2: [2001:db8:78::101]:40000 > [fd11:0:0:1::3]:8080",
			back:  "east2 routed east1 host: [fd97::10]:80 > [fd11::1]:40000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newDirectCable(t, test.six)
			c.choice = test.choice
			request := c.request(test.from, test.to, oftest.TCP)
			for i := range 3 {
				w := c.send(test.from, request)
				if w.String() != test.there {
					t.Fatalf("packet %d: %s, want %s", i, w, test.there)
				}
				if i == 0 { // the second request comes before any reply, as a SYN sent again does
					c.choice++ // known connections do not choose
					continue
				}
				n := len(w.places)
				if back := c.send(w.places[n-2]+" "+w.places[n-1], w.packet.Reply()); back.String() != test.back {
					t.Fatalf("reply %d: %s, want %s", i, back, test.back)
				}
			}
		})
	}
}

// TestDirectNeverLoops sends packets for Pods of another Node from the host. If the switch sent them back, they would
// loop between host and switch.
func TestDirectNeverLoops(t *testing.T) {
	for to, sources := range map[string][]string{
		"10.11.1.3:80":         {"10.11.0.1", eastOne.String(), "192.0.2.7", "10.11.1.2"},
		"[fd11:0:0:1::3]:8080": {"fd11::1", "2001:db8:78::101", "2001:db8::7", "fd11:0:0:1::2"},
	} {
		c := newDirectCable(t, strings.HasPrefix(to, "["))
		for _, from := range sources {
			p := c.request("east1 host", to, oftest.TCP)
			p.IPSrc = addrOf(from)
			if w := c.send("east1 host", p); w.String() != "east1 dropped in Route" {
				t.Errorf("from %s: %s", from, w)
			}
		}
	}
}

// TestDirectRefusal takes the agent's refusal of a packet of another Node's Pod back to the host that has routed the
// packet.
func TestDirectRefusal(t *testing.T) {
	c := newDirectCable(t, false)
	answer := oftest.Packet{IPSrc: addrOf("10.11.1.3"), SrcPort: 8080, IPDst: addrOf("10.11.0.2"), DstPort: 40000,
		Proto: oftest.TCP}
	for _, table := range []ofp.Table{Route, Conntrack} { // Reject has both
		r := c.nodes["east2"].PacketOut(answer, flow.Do(flow.Load(generated, 1), flow.Resubmit(table)))
		if len(r.Outputs) != 1 || r.Outputs[0].Port != gatewayPort {
			t.Fatalf("from table %s the answer goes %s", Program.Name(table), r)
		}
		p := r.Outputs[0].Packet
		if next := c.hosts.route(c, "east2", &p); next != "east1" {
			t.Errorf("the host of east2 routes the answer to %q", next)
		}
		if w := c.send("east1 host", p); w.String() != "east1 dropped in ConntrackState" &&
			!strings.HasPrefix(w.String(), "east1 pod1") {
			t.Errorf("the answer goes %s", w)
		}
	}
}

// TestModesMix changes the traffic mode of one Node after the other while a connection is open. No packet is lost, and
// neither end chooses again. New connections of a host to a Service work in each mix of modes. Connections of Pods that
// begin in one mix last over all others, also if the Nodes serve clients outside.
func TestModesMix(t *testing.T) {
	for _, outside := range []bool{false, true} {
		t.Run(fmt.Sprintf("outside %t", outside), func(t *testing.T) { testModesMix(t, outside, false) })
		t.Run(fmt.Sprintf("IPv6, outside %t", outside), func(t *testing.T) { testModesMix(t, outside, true) })
	}
}

// testModesMix changes the mode for one version of IP. The other version has the opposite mode at each step.
func testModesMix(t *testing.T, outside, six bool) {
	c := newDirectCable(t, six)
	vip, client, server := "10.97.0.10:80", "10.11.0.3:40000", "10.11.1.3:80"
	if six {
		vip, client, server = "[fd97::10]:80", "[fd11::3]:40000", "[fd11:0:0:1::3]:80"
	}
	for name, s := range c.states {
		s.Node.Outside = outside
		c.states[name] = s
	}
	mode := func(node string, direct bool) {
		s := c.states[node]
		s.RemoteNodes = slices.Clone(s.RemoteNodes)
		for i := range s.RemoteNodes {
			s.RemoteNodes[i].Direct, s.RemoteNodes[i].Direct6 = direct != six, direct == six
		}
		c.states[node] = s
		if err := c.nodes[node].Replace(c.entries(s)...); err != nil {
			t.Fatal(err)
		}
	}
	mode("east1", false)
	mode("east2", false)
	c.choice = 1
	request := c.request("east1 pod2", vip, oftest.TCP)
	port := uint16(50000)
	var open []oftest.Packet
	for _, step := range []struct {
		one, two    bool // the Nodes send without a tunnel
		there, back string
	}{
		{false, false, "east1 east2 pod2", "east2 east1 pod2"},
		{true, false, "east1 routed east2 pod2", "east2 east1 pod2"},
		{true, true, "east1 routed east2 pod2", "east2 routed east1 pod2"},
		{false, true, "east1 east2 pod2", "east2 routed east1 pod2"},
		{false, false, "east1 east2 pod2", "east2 east1 pod2"},
	} {
		mode("east1", step.one)
		mode("east2", step.two)
		w := c.send("east1 pod2", request)
		if have := strings.Join(w.places, " "); have != step.there {
			t.Fatalf("%+v: the request goes %s", step, w)
		}
		back := c.send("east2 pod2", w.packet.Reply())
		want := step.back + ": " + vip + " > " + client
		if have := back.String(); have != want && (!outside || !strings.HasSuffix(have, strings.TrimPrefix(want, "east2"))) {
			t.Fatalf("%+v: the reply goes %s, want %s", step, back, want)
		}
		port++
		pods := c.request("east1 pod1", server, oftest.TCP)
		pods.SrcPort = port
		open = append(open, pods)
		for i, p := range open {
			w := c.send("east1 pod1", p)
			if !strings.HasSuffix(strings.Join(w.places, " "), "east2 pod2") {
				t.Fatalf("%+v: connection %d of Pods: a packet goes %s", step, i, w)
			}
			if back := c.send("east2 pod2", w.packet.Reply()); back.places[len(back.places)-1] != "pod1" {
				t.Fatalf("%+v: connection %d of Pods: the reply goes %s", step, i, back)
			}
		}
		host := c.request("east1 host", vip, oftest.TCP)
		host.SrcPort = port
		w = c.send("east1 host", host)
		if !strings.HasSuffix(strings.Join(w.places, " "), "east2 pod2") {
			t.Fatalf("%+v: a new request of the host goes %s", step, w)
		}
		back = c.send("east2 pod2", w.packet.Reply())
		if have := back.String(); !strings.HasSuffix(have, "east1 host: "+host.Reply().String()) {
			t.Fatalf("%+v: the reply for the host goes %s", step, have)
		}
	}
}
