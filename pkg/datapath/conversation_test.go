package datapath

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
)

// cable joins switches in memory by their tunnels: the Nodes of east and west.
type cable struct {
	t      *testing.T
	states map[string]State
	nodes  map[string]*oftest.Switch
	choice int // index of the endpoint that Services choose
	// prefer has, for each Node, the Node that its new connections go through, if that is up.
	prefer map[string]string
	ends   map[netip.Addr]string // where the Nodes' tunnels end
	hosts  *hosts                // that route packets of Pods; nil in traffic mode encap
	six    bool                  // requests are of IPv6, to counterparts of addresses (six)

	tunnels []oftest.Packet // that were sent
	taken   []string        // problems about ranges of VirtualNetworks of other clusters
}

// ends are where the Nodes' tunnels end.
var ends = map[netip.Addr]string{eastOne: "east1", eastTwo: "east2", westGW: "west1",
	netip.MustParseAddr("192.168.77.102"): "west2"}

func newCable(t *testing.T) *cable {
	return cableOf(t, map[string]State{"east1": onNode(1), "east2": onNode(2), "west1": westNode(1), "west2": westNode(2)})
}

func cableOf(t *testing.T, states map[string]State) *cable {
	c := &cable{t: t, nodes: map[string]*oftest.Switch{}, states: states, ends: ends, prefer: map[string]string{}}
	for name, s := range c.states {
		node, err := oftest.New(Program, c.entries(s)...)
		if err != nil {
			t.Fatal(err)
		}
		node.Choose = func(g flow.Group, _ oftest.Packet) int {
			if g.Buckets[0].WatchPort == 0 {
				return c.choice % len(g.Buckets)
			}
			return max(0, slices.IndexFunc(g.Buckets,
				func(b flow.Bucket) bool { return b.WatchPort == c.wayOf(name, c.prefer[name]) }))
		}
		node.Down = map[ofp.Port]bool{}
		c.nodes[name] = node
	}
	return c
}

// wayOf is the port with BFD from one Node to another.
func (c *cable) wayOf(node, to string) ofp.Port {
	for end, name := range c.ends {
		if name == to {
			return c.states[node].Ways[end]
		}
	}
	return 0
}

func (c *cable) entries(s State) []flow.Entries {
	var all []flow.Entries
	entries, problems := Plan(s)
	for _, p := range problems {
		if p.Reason == reasonRangeTaken {
			c.taken = append(c.taken, p.String())
			continue
		}
		c.t.Errorf("unexpected problem: %s", p)
	}
	for _, e := range entries {
		all = append(all, e)
	}
	return all
}

// travel is the path of a packet and its end.
type travel struct {
	// Nodes in order; then the place of delivery "pod1", "pod2" or "host", or "agent", or "dropped in ...".
	places []string
	packet oftest.Packet
}

func (w travel) String() string {
	text := strings.Join(w.places, " ")
	if w.packet.IPSrc.IsValid() {
		text += ": " + w.packet.String()
	}
	return text
}

// port is where "east1 pod1" is attached.
func (c *cable) port(place string) (node string, port ofp.Port, s State) {
	node, what, _ := strings.Cut(place, " ")
	numbers := map[string]ofp.Port{"pod1": 1, "pod2": 2, "pod3": 3, "pod4": 4, "pod5": 5, "pod6": 6,
		"pod7": 7, "pod8": 8, "pod9": 9, "host": gatewayPort, "tunnel": tunnelPort}
	return node, numbers[what], c.states[node]
}

// send takes a packet from a place through the Nodes to its end.
func (c *cable) send(from string, p oftest.Packet) travel {
	c.t.Helper()
	node, in, _ := c.port(from)
	return c.arrive(node, in, p)
}

// arrive takes a packet from a port of a Node through the Nodes to its end.
func (c *cable) arrive(node string, in ofp.Port, p oftest.Packet) travel {
	c.t.Helper()
	var w travel
	for hop := 0; hop < 10; hop++ {
		p.InPort = in
		w.places = append(w.places, node)
		r := c.nodes[node].Send(p)
		switch {
		case r.Err != nil:
			c.t.Fatalf("%s: %s: %v", node, p, r.Err)
		case r.Controller:
			w.places = append(w.places, "agent")
			return w
		case len(r.Outputs) != 1:
			w.places = append(w.places, "dropped in "+r.Dropped)
			return w
		}
		out := r.Outputs[0]
		p, w.packet = out.Packet, out.Packet
		switch out.Port {
		case tunnelPort:
			far, ok := c.ends[p.TunDst]
			if !ok {
				c.t.Fatalf("%s: %s leaves for tunnel end %s, where nobody is", node, p, p.TunDst)
			}
			p.TunSrc = c.states[node].Node.Tunnels.Ends[0]
			c.tunnels = append(c.tunnels, p)
			node, in = far, cmp.Or(c.states[far].Ways[p.TunSrc], tunnelPort)
		case gatewayPort:
			next := c.hosts.route(c, node, &p)
			if next == "" {
				w.places = append(w.places, "host")
				return w
			}
			w.places = append(w.places, "routed")
			node, in = next, gatewayPort
		default:
			w.places = append(w.places, fmt.Sprintf("pod%d", out.Port))
			return w
		}
	}
	c.t.Fatalf("%s goes in circles: %s", p, w)
	return w
}

// request is the first packet from a place to address:port.
func (c *cable) request(from, to string, proto uint8) oftest.Packet {
	_, port, s := c.port(from)
	p := oftest.Packet{EthDst: s.Node.GatewayMAC, Proto: proto, SrcPort: 40000}
	dst := netip.MustParseAddrPort(to)
	dst = netip.AddrPortFrom(c.inner(dst.Addr()), dst.Port())
	if port == gatewayPort {
		p.EthSrc, p.EthDst, p.IPSrc = s.Node.GatewayMAC, InClusterMAC, ofFamily(s.Node.GatewayIPs, dst.Addr())
	} else {
		pod := s.Pods[port-1]
		p.EthSrc, p.IPSrc = pod.MAC, ofFamily(pod.IPs, dst.Addr())
	}
	p.IPDst, p.DstPort = dst.Addr(), dst.Port()
	return p
}

// TestConversations follows requests and replies over all Nodes between client and server, with the connections that
// each switch remembers.
func TestConversations(t *testing.T) {
	for _, test := range []struct {
		name, from, to string
		udp            bool
		choice         int
		there, back    string // back: how the reply arrives at the client; "" for no reply
		// six is set for a row about IPv6: the Nodes of east have IPv6 too, and also without IPv4 the result is the same. The
		// other rows have counterparts in IPv6.
		six bool
	}{
		{name: "Pod to the other Pod of its Node by IPv6", six: true, from: "east1 pod1", to: "[fd11::3]:80",
			there: "east1 pod2: [fd11::2]:40000 > [fd11::3]:80", back: "east1 pod1: [fd11::3]:80 > [fd11::2]:40000"},
		{name: "Pod to a Pod of another Node by IPv6", six: true, from: "east1 pod1", to: "[fd11:0:0:1::3]:80",
			there: "east1 east2 pod2: [fd11::2]:40000 > [fd11:0:0:1::3]:80",
			back:  "east2 east1 pod1: [fd11:0:0:1::3]:80 > [fd11::2]:40000"},
		{name: "Pod to the world by IPv6", six: true, from: "east1 pod1", to: "[2001:db8::1]:443",
			there: "east1 host: [fd11::2]:40000 > [2001:db8::1]:443", back: "east1 pod1: [2001:db8::1]:443 > [fd11::2]:40000"},
		{name: "host to a Pod of another Node by IPv6", six: true, from: "east1 host", to: "[fd11:0:0:1::3]:80",
			there: "east1 east2 pod2: [fd11::1]:40000 > [fd11:0:0:1::3]:80",
			back:  "east2 east1 host: [fd11:0:0:1::3]:80 > [fd11::1]:40000"},
		{name: "IPv6 Service with an endpoint on another Node", six: true, from: "east1 pod2", to: "[fd97::10]:80",
			choice: 1, there: "east1 east2 pod2: [fd11::3]:40000 > [fd11:0:0:1::3]:8080",
			back: "east2 east1 pod2: [fd97::10]:80 > [fd11::3]:40000"},
		{name: "Pod to itself by an IPv6 Service", six: true, from: "east1 pod1", to: "[fd97::11]:80",
			there: "east1 pod1: [fc01::aabb:ccdd:eeff]:40000 > [fd11::2]:8080",
			back:  "east1 pod1: [fd97::11]:80 > [fd11::2]:40000"},
		{name: "UDP Service from another Node by IPv6", six: true, from: "east2 pod1", to: "[fd97::12]:53", udp: true,
			there: "east2 east1 pod2: [fd11:0:0:1::2]:40000 > [fd11::3]:5353",
			back:  "east1 east2 pod1: [fd97::12]:53 > [fd11:0:0:1::2]:40000"},
		{name: "host to the API server by IPv6", six: true, from: "east1 host", to: "[fd97::1]:443",
			there: "east1 host: [fc01::aabb:ccdd:eeff]:40000 > [2001:db8::10]:6443",
			back:  "east1 host: [fd97::1]:443 > [fd11::1]:40000"},
		{name: "IPv6 address of this Node that no Pod has", six: true, from: "east1 pod1", to: "[fd11::77]:80",
			there: "east1 dropped in Route"},
		{name: "IPv4 beside IPv6", six: true, from: "east1 pod1", to: "10.11.1.3:80",
			there: "east1 east2 pod2: 10.11.0.2:40000 > 10.11.1.3:80", back: "east2 east1 pod1: 10.11.1.3:80 > 10.11.0.2:40000"},
		{name: "Pod to the other Pod of its Node", from: "east1 pod1", to: "10.11.0.3:80",
			there: "east1 pod2: 10.11.0.2:40000 > 10.11.0.3:80", back: "east1 pod1: 10.11.0.3:80 > 10.11.0.2:40000"},
		{name: "Pod to a Pod of another Node", from: "east1 pod1", to: "10.11.1.3:80",
			there: "east1 east2 pod2: 10.11.0.2:40000 > 10.11.1.3:80", back: "east2 east1 pod1: 10.11.1.3:80 > 10.11.0.2:40000"},
		{name: "Pod to the world", from: "east1 pod1", to: "192.0.2.1:443",
			there: "east1 host: 10.11.0.2:40000 > 192.0.2.1:443", back: "east1 pod1: 192.0.2.1:443 > 10.11.0.2:40000"},
		{name: "host to a Pod of another Node", from: "east1 host", to: "10.11.1.3:80",
			there: "east1 east2 pod2: 10.11.0.1:40000 > 10.11.1.3:80", back: "east2 east1 host: 10.11.1.3:80 > 10.11.0.1:40000"},
		{name: "Service with an endpoint on the same Node", from: "east1 pod2", to: "10.97.0.10:80",
			there: "east1 pod1: 10.11.0.3:40000 > 10.11.0.2:8080", back: "east1 pod2: 10.97.0.10:80 > 10.11.0.3:40000"},
		{name: "Service with an endpoint on another Node", from: "east1 pod2", to: "10.97.0.10:80", choice: 1,
			there: "east1 east2 pod2: 10.11.0.3:40000 > 10.11.1.3:8080",
			back:  "east2 east1 pod2: 10.97.0.10:80 > 10.11.0.3:40000"},
		{name: "host to a Service", from: "east1 host", to: "10.97.0.10:80", choice: 1,
			there: "east1 east2 pod2: 10.11.0.1:40000 > 10.11.1.3:8080",
			back:  "east2 east1 host: 10.97.0.10:80 > 10.11.0.1:40000"},
		{name: "Pod to itself by a Service", from: "east1 pod1", to: "10.97.0.11:80",
			there: "east1 pod1: 169.254.0.253:40000 > 10.11.0.2:8080", back: "east1 pod1: 10.97.0.11:80 > 10.11.0.2:40000"},
		{name: "UDP Service from another Node", from: "east2 pod1", to: "10.97.0.12:53", udp: true,
			there: "east2 east1 pod2: 10.11.1.2:40000 > 10.11.0.3:5353",
			back:  "east1 east2 pod1: 10.97.0.12:53 > 10.11.1.2:40000"},
		{name: "Pod to the API server", from: "east1 pod1", to: "10.97.0.1:443",
			there: "east1 host: 10.11.0.2:40000 > 172.30.1.10:6443", back: "east1 pod1: 10.97.0.1:443 > 10.11.0.2:40000"},
		{name: "host to the API server, back by the port it came from", from: "east1 host", to: "10.97.0.1:443",
			there: "east1 host: 169.254.0.253:40000 > 172.30.1.10:6443", back: "east1 host: 10.97.0.1:443 > 10.11.0.1:40000"},
		{name: "Service without endpoints", from: "east1 pod1", to: "10.97.0.13:80", there: "east1 agent"},
		{name: "address of this Node that no Pod has", from: "east1 pod1", to: "10.11.0.77:80",
			there: "east1 dropped in Route"},

		{name: "regular Node to another cluster's Gateway", from: "east1 pod1", to: "10.97.0.14:80",
			there: "east1 east2 west1 pod1: 192.168.78.102:40000 > 10.10.0.2:8080",
			back:  "west1 east2 east1 pod1: 10.97.0.14:80 > 10.11.0.2:40000"},
		{name: "regular Node to another cluster's regular Node", from: "east1 pod1", to: "10.97.0.14:80", choice: 1,
			there: "east1 east2 west1 west2 pod1: 192.168.78.102:40000 > 10.10.1.2:8080",
			back:  "west2 west1 east2 east1 pod1: 10.97.0.14:80 > 10.11.0.2:40000"},
		{name: "Gateway to another cluster", from: "east2 pod2", to: "10.97.0.14:80", choice: 1,
			there: "east2 west1 west2 pod1: 192.168.78.102:40000 > 10.10.1.2:8080",
			back:  "west2 west1 east2 pod2: 10.97.0.14:80 > 10.11.1.3:40000"},
		{name: "host of a regular Node to another cluster", from: "east1 host", to: "10.97.0.14:80",
			there: "east1 east2 west1 pod1: 192.168.78.102:40000 > 10.10.0.2:8080",
			back:  "west1 east2 east1 host: 10.97.0.14:80 > 10.11.0.1:40000"},
		{name: "host of the Gateway to another cluster", from: "east2 host", to: "10.97.0.14:80", choice: 1,
			there: "east2 west1 west2 pod1: 192.168.78.102:40000 > 10.10.1.2:8080",
			back:  "west2 west1 east2 host: 10.97.0.14:80 > 10.11.1.1:40000"},
		{name: "another cluster's ClusterIP itself", from: "east1 pod1", to: "10.96.0.20:80",
			there: "east1 east2 west1 pod1: 192.168.78.102:40000 > 10.10.0.2:8080",
			back:  "west1 east2 east1 pod1: 10.96.0.20:80 > 10.11.0.2:40000"},
		{name: "another cluster's Service whose endpoint is a host", from: "east1 pod1", to: "10.96.0.21:80",
			there: "east1 east2 west1 host: 169.254.0.253:40000 > 192.168.77.101:9090",
			back:  "west1 east2 east1 pod1: 10.96.0.21:80 > 10.11.0.2:40000"},
	} {
		cables := map[string]*cable{"": newCable(t)}
		if test.six {
			cables = map[string]*cable{"": cableOf(t, map[string]State{"east1": dualNode(1), "east2": dualNode(2)})}
			if !strings.HasPrefix(test.to, "10.") {
				cables[", without IPv4"] = cableOf(t, map[string]State{"east1": sixNode(1), "east2": sixNode(2)})
			}
		} else {
			cables[", with IPv6 beside"] = newCable(t).inSix(family.Dual)
			cables[", in IPv6"] = newCable(t).inSix(family.IPv6)
			cables[", in IPv6 with IPv4 beside"] = newCable(t).inSix(family.Dual)
			cables[", in IPv6"].six, cables[", in IPv6 with IPv4 beside"].six = true, true
			cables[", over IPv6"] = newCable(t).over6()
			cables[", in IPv6 over IPv6"] = cables[", in IPv6"].over6()
		}
		for which, c := range cables {
			t.Run(test.name+which, func(t *testing.T) {
				test := test
				switch {
				case strings.HasSuffix(which, " over IPv6"):
					test.there, test.back = textOver6(test.there, c.six), textOver6(test.back, c.six)
				case c.six:
					test.there, test.back = sixText(test.there), sixText(test.back)
				}
				c.t, c.choice = t, test.choice
				proto := oftest.TCP
				if test.udp {
					proto = oftest.UDP
				}
				c.converse(test.from, test.there, test.back, c.request(test.from, test.to, proto))
			})
		}
	}
}

// converse sends a request four times, and after the first time the reply to it.
func (c *cable) converse(from, there, back string, request oftest.Packet) {
	c.t.Helper()
	for i := range 4 {
		w := c.send(from, request)
		if w.String() != there {
			c.t.Fatalf("packet %d: %s, want %s", i, w, there)
		}
		if back == "" {
			return
		}
		if i == 1 { // the second request comes before any reply, as a SYN sent again does
			c.choice++ // known connections do not choose
		}
		if i == 0 {
			continue
		}
		n := len(w.places)
		if have := c.send(w.places[n-2]+" "+w.places[n-1], w.packet.Reply()); have.String() != back {
			c.t.Fatalf("reply %d: %s, want %s", i, have, back)
		}
	}
}

// TestConversationOutlivesEndpoints keeps a connection on its endpoint while endpoints of its Service come and go. New
// connections follow the new endpoints.
func TestConversationOutlivesEndpoints(t *testing.T) {
	c := newCable(t)
	request := c.request("east1 pod2", "10.97.0.10:80", oftest.TCP)
	first := c.send("east1 pod2", request)
	c.send("east1 pod1", first.packet.Reply())
	s := c.states["east1"]
	s.Frontends = slices.Clone(s.Frontends)
	s.Frontends[0].Endpoints = s.Frontends[0].Endpoints[1:]
	if err := c.nodes["east1"].Replace(c.entries(s)...); err != nil {
		t.Fatal(err)
	}
	if w := c.send("east1 pod2", request); w.String() != first.String() {
		t.Errorf("the connection goes %s, want %s", w, first)
	}
	request.SrcPort++
	if w, want := c.send("east1 pod2", request), "east1 east2 pod2: 10.11.0.3:40001 > 10.11.1.3:8080"; w.String() != want {
		t.Errorf("a new connection goes %s, want %s", w, want)
	}
}

// TestTwoClientsOfOnePort connects clients of two Nodes from one port, behind a Gateway's address. Their connections
// stay apart.
func TestTwoClientsOfOnePort(t *testing.T) {
	c := newCable(t)
	var ways []travel
	clients := []string{"east1 pod1", "east1 pod2", "east2 pod1", "east2 host"}
	for _, from := range clients {
		ways = append(ways, c.send(from, c.request(from, "10.97.0.14:80", oftest.TCP)))
	}
	seen := map[uint16]bool{}
	for i, w := range ways {
		if w.packet.IPSrc != eastTwo || seen[w.packet.SrcPort] {
			t.Errorf("%s: the server sees %s", clients[i], w)
		}
		seen[w.packet.SrcPort] = true
		back := c.send("west1 pod1", w.packet.Reply())
		want := c.request(clients[i], "10.97.0.14:80", oftest.TCP).Reply().String()
		if have := back.packet.String(); have != want || !strings.HasSuffix(strings.Join(back.places, " "), clients[i]) {
			t.Errorf("the reply for %s: %s, want %s", clients[i], back, want)
		}
	}
}

// TestPretenders sends packets that their senders may not send.
func TestPretenders(t *testing.T) {
	c := newCable(t)
	good := c.request("east1 pod1", "10.11.0.3:80", oftest.TCP)
	arp := oftest.Packet{EthSrc: podMACOne, ARP: &oftest.ARP{Op: 1, SHA: podMACOne, SPA: addrOf("10.11.0.2"),
		TPA: addrOf("10.11.0.1")}}
	for _, test := range []struct {
		name string
		edit func(*oftest.Packet)
		arp  bool
		want string
	}{
		{name: "someone else's address", edit: func(p *oftest.Packet) { p.IPSrc = addrOf("10.11.0.3") },
			want: "dropped in Classify"},
		{name: "the Service address", edit: func(p *oftest.Packet) { p.IPSrc = vip }, want: "dropped in Classify"},
		{name: "someone else's MAC", edit: func(p *oftest.Packet) { p.EthSrc = podMACTwo }, want: "dropped in Classify"},
		{name: "an honest ARP request", edit: func(*oftest.Packet) {}, arp: true, want: "pod1"},
		{name: "ARP for someone else's address", edit: func(p *oftest.Packet) { p.ARP.SPA = addrOf("10.11.0.3") }, arp: true,
			want: "dropped in Classify"},
		{name: "ARP with someone else's MAC", edit: func(p *oftest.Packet) { p.ARP.SHA = podMACTwo }, arp: true,
			want: "dropped in Classify"},
		{name: "ARP for an address that nobody has", edit: func(p *oftest.Packet) { p.ARP.TPA = addrOf("10.11.0.99") },
			arp: true, want: "dropped in ARP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.t = t
			p := good
			if test.arp {
				p = arp
				a := *arp.ARP
				p.ARP = &a
			}
			test.edit(&p)
			if w := c.send("east1 pod1", p); w.places[len(w.places)-1] != test.want {
				t.Errorf("%s, want %s", w, test.want)
			}
		})
	}
}

// TestRefusalComesBack takes the agent's answer to a request of another cluster back to the client, over the same
// Nodes.
func TestRefusalComesBack(t *testing.T) {
	c := newCable(t)
	for _, from := range []string{"east1 pod1", "east1 host"} {
		request := c.request(from, "10.97.0.13:80", oftest.TCP)
		if w := c.send(from, request); w.String() != "east1 agent" {
			t.Fatalf("%s: %s", from, w)
		}
		node, _, _ := c.port(from)
		r := c.nodes[node].PacketOut(request.Reply(), flow.Do(flow.Load(generated, 1), flow.Resubmit(Route)))
		if _, port, _ := c.port(from); len(r.Outputs) != 1 || r.Outputs[0].Port != port {
			t.Errorf("%s: the answer goes %s", from, r)
		}
	}
	// From west to a Service of east that has no endpoint.
	p := c.request("west2 pod1", "10.97.0.13:80", oftest.TCP)
	if w := c.send("west2 pod1", p); w.String() != "west2 west1 east2 agent: 192.168.77.101:40000 > 10.97.0.13:80" {
		t.Fatalf("%s", w)
	}
	answer := oftest.Packet{IPSrc: addrOf("10.97.0.13"), SrcPort: 80, IPDst: westGW, DstPort: 40000, Proto: oftest.TCP}
	r := c.nodes["east2"].PacketOut(answer, flow.Do(flow.Load(generated, 1), flow.Resubmit(Route)))
	if len(r.Outputs) != 1 || r.Outputs[0].Packet.TunDst != westGW {
		t.Fatalf("the answer goes %s", r)
	}
	r.Outputs[0].Packet.TunSrc = eastTwo
	if w, want := c.send("west1 tunnel", r.Outputs[0].Packet),
		"west1 west2 pod1: 10.97.0.13:80 > 10.10.1.2:40000"; w.String() != want {
		t.Errorf("the answer goes %s, want %s", w, want)
	}
}

// TestErrorComesBack takes the answer of a server's Pod that a packet is too big back to the client, over the same
// Nodes.
func TestErrorComesBack(t *testing.T) {
	for _, protocol := range []uint8{oftest.ICMP, oftest.ICMPv6} {
		c := newCable(t)
		if protocol == oftest.ICMPv6 {
			c = c.inSix(family.Dual)
			c.six = true
		}
		for choice, server := range []string{"west1 pod1", "west2 pod1"} {
			c.choice = choice
			request := c.request("east1 pod1", "10.97.0.14:80", oftest.TCP)
			request.SrcPort += uint16(choice)
			w := c.send("east1 pod1", request)
			about := w.packet
			about.InPort, about.TunSrc, about.TunDst, about.TunID = 0, netip.Addr{}, netip.Addr{}, 0
			answer := w.packet.Reply()
			answer.Proto, answer.Inner, answer.SrcPort, answer.DstPort = protocol, &about, 0, 0
			back := c.send(server, answer)
			if n := len(back.places); strings.Join(back.places[max(0, n-3):], " ") != "east2 east1 pod1" ||
				back.packet.IPDst != request.IPSrc || back.packet.Inner.IPDst != request.IPDst {
				t.Errorf("the error of %s goes %s", server, back)
			}
		}
	}
}
