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
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// ownNodes are firstNodes with Services. Namespace default has Services with endpoints in all networks, a is the
// Namespace of the VirtualNetworks, and c is isolated.
func ownNodes(joins map[string][]string) map[string]State {
	states := firstNodes(joins)
	own := frontend("own-udp", corev1.ProtocolUDP, "10.97.0.65:53", "10.50.0.18:443")
	own.Namespace = "a"
	serviceOf(states, "default", "near", "10.97.0.50:80", "10.11.0.3:8080")
	serviceOf(states, "default", "far", "10.97.0.51:80", "10.11.1.3:8080")
	serviceOf(states, "default", "far6", "[fd97::51]:80", "[fd11:0:0:1::3]:8080")
	serviceOf(states, "default", "near6", "[fd97::50]:80", "[fd11::3]:8080")
	serviceOf(states, "default", "isolated", "10.97.0.52:80", "10.11.1.6:8080")
	serviceOf(states, "default", "virtual", "10.97.0.53:80", "10.50.0.2:8080")
	serviceOf(states, "a", "own", "10.97.0.60:80", "10.50.0.18:8080")
	serviceOf(states, "a", "own6", "[fd97::60]:80", "[fd50::12]:8080")
	serviceOf(states, "a", "itself", "10.97.0.61:80", "10.50.0.2:8080")
	serviceOf(states, "a", "red", "10.97.0.62:80", "10.50.1.18:8080")
	serviceOf(states, "a", "default", "10.97.0.63:80", "10.11.1.3:8080")
	serviceOf(states, "a", "outside", "10.97.0.64:80", "192.0.2.1:8080")
	serviceOf(states, "c", "isolated", "10.97.0.70:80", "10.11.1.6:8080")
	serviceOf(states, "default", "hijack", "10.50.0.18:443", "10.11.0.3:8080")
	hijack := frontend("hijack-udp", corev1.ProtocolUDP, "10.50.0.18:443", "10.11.0.3:8080")
	hijack.Kind = service.ExternalIP
	for node, s := range states {
		s.Frontends = append(s.Frontends, frontend("dns", corev1.ProtocolUDP, "10.97.0.10:53", "10.11.1.3:5353"), hijack, own)
		states[node] = s
	}
	return states
}

// TestOwnServices follows conversations of Pods in a network of their own with Services.
func TestOwnServices(t *testing.T) {
	joined := map[string][]string{"blue": {"red", "c"}, "red": {"blue"}, "c": {"blue"}}
	for _, row := range []struct {
		name, from, to, there, back string
		joins                       map[string][]string
		udp                         bool
	}{
		{name: "the API server", from: "east1 pod3", to: "10.97.0.1:443",
			there: "east1 host: 10.50.0.2:40000 > 172.30.1.10:6443", back: "east1 pod3: 10.97.0.1:443 > 10.50.0.2:40000"},
		{name: "an endpoint on its Node", from: "east1 pod3", to: "10.97.0.50:80",
			there: "east1 pod2: 10.50.0.2:40000 > 10.11.0.3:8080", back: "east1 pod3: 10.97.0.50:80 > 10.50.0.2:40000"},
		{name: "by IPv6", from: "east1 pod3", to: "[fd97::50]:80",
			there: "east1 pod2: [fd50::2]:40000 > [fd11::3]:8080", back: "east1 pod3: [fd97::50]:80 > [fd50::2]:40000"},
		{name: "on another Node", from: "east1 pod3", to: "10.97.0.51:80",
			there: "east1 east2 pod2: 10.50.0.2:40000 > 10.11.1.3:8080",
			back:  "east2 east1 pod3: 10.97.0.51:80 > 10.50.0.2:40000"},
		{name: "on another Node by IPv6", from: "east1 pod4", to: "[fd97::51]:80",
			there: "east1 east2 pod2: [fd50:1::2]:40000 > [fd11:0:0:1::3]:8080",
			back:  "east2 east1 pod4: [fd97::51]:80 > [fd50:1::2]:40000"},
		{name: "DNS", from: "east1 pod3", to: "10.97.0.10:53", udp: true,
			there: "east1 east2 pod2: 10.50.0.2:40000 > 10.11.1.3:5353",
			back:  "east2 east1 pod3: 10.97.0.10:53 > 10.50.0.2:40000"},
		{name: "in its network", from: "east1 pod3", to: "10.97.0.60:80",
			there: "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:8080",
			back:  "east2 east1 pod3: 10.97.0.60:80 > 10.50.0.2:40000"},
		{name: "in its network by IPv6", from: "east1 pod3", to: "[fd97::60]:80",
			there: "east1 east2 pod3: [fd50::2]:40000 > [fd50::12]:8080",
			back:  "east2 east1 pod3: [fd97::60]:80 > [fd50::2]:40000"},
		{name: "itself", from: "east1 pod3", to: "10.97.0.61:80",
			there: "east1 pod3: 169.254.0.253:40000 > 10.50.0.2:8080", back: "east1 pod3: 10.97.0.61:80 > 10.50.0.2:40000"},
		{name: "in a network that is joined", joins: joined, from: "east1 pod3", to: "10.97.0.62:80",
			there: "east1 east2 pod4: 10.50.0.2:40000 > 10.50.1.18:8080",
			back:  "east2 east1 pod3: 10.97.0.62:80 > 10.50.0.2:40000"},
		{name: "of an isolated Namespace that is joined", joins: joined, from: "east1 pod3", to: "10.97.0.70:80",
			there: "east1 east2 pod5: 10.50.0.2:40000 > 10.11.1.6:8080",
			back:  "east2 east1 pod3: 10.97.0.70:80 > 10.50.0.2:40000"},
		{name: "an address of its network that a Service claims", from: "east1 pod3", to: "10.50.0.18:443",
			there: "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:443",
			back:  "east2 east1 pod3: 10.50.0.18:443 > 10.50.0.2:40000"},
		{name: "an address of a joined network that one claims", joins: joined, from: "east1 pod4", to: "10.50.0.18:443",
			there: "east1 east2 pod3: 10.50.1.2:40000 > 10.50.0.18:443",
			back:  "east2 east1 pod4: 10.50.0.18:443 > 10.50.1.2:40000"},
		{name: "by UDP", from: "east1 pod3", to: "10.50.0.18:443", udp: true,
			there: "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:443",
			back:  "east2 east1 pod3: 10.50.0.18:443 > 10.50.0.2:40000"},
		{name: "by UDP from a joined network", joins: joined, from: "east1 pod4", to: "10.50.0.18:443", udp: true,
			there: "east1 east2 pod3: 10.50.1.2:40000 > 10.50.0.18:443",
			back:  "east2 east1 pod4: 10.50.0.18:443 > 10.50.1.2:40000"},
		{name: "by UDP after a Service of its Namespace", from: "east1 pod3", to: "10.97.0.65:53", udp: true,
			there: "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:443",
			back:  "east2 east1 pod3: 10.97.0.65:53 > 10.50.0.2:40000"},
		{name: "in another network", from: "east1 pod3", to: "10.97.0.62:80", there: "east1 dropped in Tenant"},
		{name: "its Namespace's, in the default network", from: "east1 pod3", to: "10.97.0.63:80",
			there: "east1 east2 dropped in Tenant"},
		{name: "its Namespace's, outside", from: "east1 pod3", to: "10.97.0.64:80", there: "east1 dropped in Tenant"},
		{name: "of an isolated Namespace", from: "east1 pod3", to: "10.97.0.70:80", there: "east1 east2 dropped in Tenant"},
		{name: "to an isolated Namespace", from: "east1 pod3", to: "10.97.0.52:80", there: "east1 east2 dropped in Route"},
		{name: "the default network's, to it", from: "east1 pod4", to: "10.97.0.53:80", there: "east1 dropped in Route"},
		{name: "a ClusterIP without a Service", from: "east1 pod3", to: "10.97.0.99:80", there: "east1 dropped in Tenant"},
		{name: "the default network to its Services", from: "east1 pod1", to: "10.97.0.63:80",
			there: "east1 east2 pod2: 10.11.0.2:40000 > 10.11.1.3:8080",
			back:  "east2 east1 pod1: 10.97.0.63:80 > 10.11.0.2:40000"},
		{name: "an isolated Namespace to them", from: "east1 pod5", to: "10.97.0.63:80",
			there: "east1 east2 pod2: 10.11.0.6:40000 > 10.11.1.3:8080",
			back:  "east2 east1 pod5: 10.97.0.63:80 > 10.11.0.6:40000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, proto := cableOf(t, ownNodes(row.joins)), oftest.TCP
			if row.udp {
				proto = oftest.UDP
			}
			p := c.request(row.from, row.to, proto)
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

// TestOwnOutside has a network of first interfaces with fabricSNAT. They reach destinations outside, and get their
// answers alone.
func TestOwnOutside(t *testing.T) {
	outside := func(further bool) map[string]State {
		states := ownNodes(nil)
		blue := derive.Object{Namespace: "a", Name: "blue"}
		for node, s := range states {
			v := s.Networks[blue]
			v.Place.Outside = true
			s.Networks[blue] = v
			s.Peering = onNode(map[string]int{"east1": 1, "east2": 2}[node]).Peering
			s.Pods = slices.Clone(s.Pods)
			s.Pods[2].First = !further
			states[node] = s
		}
		return states
	}
	for _, row := range []struct{ name, from, to, there, back string }{
		{"by IPv4", "east1 pod3", "192.0.2.1:443", "east1 host: 10.50.0.2:40000 > 192.0.2.1:443",
			"east1 pod3: 192.0.2.1:443 > 10.50.0.2:40000"},
		{"by IPv6", "east1 pod3", "[2001:db8::1]:443", "east1 host: [fd50::2]:40000 > [2001:db8::1]:443",
			"east1 pod3: [2001:db8::1]:443 > [fd50::2]:40000"},
		{"by a Service of its Namespace", "east1 pod3", "10.97.0.64:80", "east1 host: 10.50.0.2:40000 > 192.0.2.1:8080",
			"east1 pod3: 10.97.0.64:80 > 10.50.0.2:40000"},
		{"a network without it", "east1 pod4", "192.0.2.1:443", "east1 dropped in Tenant", ""},
		{"the default network", "east1 pod3", "10.11.0.3:80", "east1 dropped in Tenant", ""},
		{"the default network of another Node", "east1 pod3", "10.11.1.3:80", "east1 east2 dropped in Tenant", ""},
		{"a ClusterIP without a Service", "east1 pod3", "10.97.0.99:80", "east1 dropped in Tenant", ""},
		{"another cluster", "east1 pod3", "10.96.0.20:80", "east1 dropped in Tenant", ""},
		{"its network", "east1 pod3", "10.50.0.18:80", "east1 east2 pod3: 10.50.0.2:40000 > 10.50.0.18:80",
			"east2 east1 pod3: 10.50.0.18:80 > 10.50.0.2:40000"},
		{"by a Service", "east1 pod3", "10.97.0.50:80", "east1 pod2: 10.50.0.2:40000 > 10.11.0.3:8080",
			"east1 pod3: 10.97.0.50:80 > 10.50.0.2:40000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := cableOf(t, outside(false))
			if row.back == "" {
				if w := c.send(row.from, c.request(row.from, row.to, oftest.TCP)); !strings.HasPrefix(w.String(), row.there) {
					t.Errorf("%s, want %s", w, row.there)
				}
				return
			}
			c.converse(row.from, row.there, row.back, c.request(row.from, row.to, oftest.TCP))
		})
	}
	c := cableOf(t, outside(false))
	p := c.request("east1 host", "10.50.0.2:80", oftest.TCP)
	p.IPSrc, p.EthDst = addrOf("192.0.2.1"), InClusterMAC
	if w := c.send("east1 host", p); !strings.Contains(w.String(), "dropped") {
		t.Errorf("a machine outside opens a connection: %s", w)
	}
	c = cableOf(t, outside(true))
	w := c.send("east1 pod3", c.request("east1 pod3", "192.0.2.1:443", oftest.TCP))
	if w.String() != "east1 dropped in Tenant" {
		t.Errorf("a further interface sends outside: %s", w)
	}
}

// TestOwnAnswersAlone has servers send to a client in a network of its own. Nothing but an answer arrives.
func TestOwnAnswersAlone(t *testing.T) {
	for _, test := range []struct{ from, service string }{
		{"east1 pod2", "10.97.0.50:80"}, {"east2 pod2", "10.97.0.51:80"},
	} {
		c := cableOf(t, ownNodes(nil))
		arrives := func(p oftest.Packet) bool {
			t.Helper()
			return strings.HasPrefix(strings.TrimPrefix(c.send(test.from, p).String(), "east2 "), "east1 pod3")
		}
		first := c.send("east1 pod3", c.request("east1 pod3", test.service, oftest.TCP))
		answer := first.packet.Reply()
		before := cableOf(t, ownNodes(nil))
		if w := before.send(test.from, answer); strings.Contains(w.String(), "pod3") {
			t.Errorf("%s: before the request: %s", test.from, w)
		}
		for what, edit := range map[string]func(*oftest.Packet){
			"another port":           func(p *oftest.Packet) { p.SrcPort++ },
			"another port of it":     func(p *oftest.Packet) { p.DstPort++ },
			"another protocol":       func(p *oftest.Packet) { p.Proto = oftest.UDP },
			"another Pod of the net": func(p *oftest.Packet) { p.IPDst = p.IPDst.Next() },
			"another server": func(p *oftest.Packet) {
				pod := c.states[test.from[:5]].Pods[0]
				p.InPort, p.EthSrc, p.IPSrc = pod.Port, pod.MAC, pod.IPs[0]
			},
		} {
			p := answer
			edit(&p)
			if arrives(p) {
				t.Errorf("%s: %s arrives", test.from, what)
			}
		}
		if !arrives(answer) {
			t.Errorf("%s: the answer does not arrive", test.from)
		}
	}
}

// TestOwnServerFirst has a server send to a client before the client does, with the ports of the client's connection.
// The client's packets arrive nevertheless.
func TestOwnServerFirst(t *testing.T) {
	for _, test := range []struct{ from, service, there, back string }{
		{"east1 pod2", "10.97.0.50:80", "east1 pod2: 10.50.0.2:40000 > 10.11.0.3:8080",
			"east1 pod3: 10.97.0.50:80 > 10.50.0.2:40000"},
		{"east2 pod2", "10.97.0.51:80", "east1 east2 pod2: 10.50.0.2:40000 > 10.11.1.3:8080",
			"east2 east1 pod3: 10.97.0.51:80 > 10.50.0.2:40000"},
	} {
		c := cableOf(t, ownNodes(nil))
		server := c.states[test.from[:5]].Pods[1]
		p := c.request("east1 pod3", "10.97.0.50:80", oftest.TCP).Reply()
		p.EthSrc, p.EthDst, p.IPSrc, p.SrcPort = server.MAC, gwMAC, server.IPs[0], 8080
		for range 2 {
			if w := c.send(test.from, p); w.String() != test.from[:5]+" dropped in Route" {
				t.Errorf("%s: %s", test.from, w)
			}
		}
		c.converse("east1 pod3", test.there, test.back, c.request("east1 pod3", test.service, oftest.TCP))
	}
}

// TestOwnHost has the host send to a Pod in a network of its own, as the client's own packets and as packets that it
// forwards. The first ones arrive, and of the others the answers of Services.
func TestOwnHost(t *testing.T) {
	c := cableOf(t, ownNodes(nil))
	w := c.send("east1 pod3", c.request("east1 pod3", "10.97.0.1:443", oftest.TCP))
	forwarded := w.packet.Reply()
	own := forwarded
	own.EthDst = c.states["east1"].Pods[2].MAC
	probe := c.request("east1 host", "10.50.0.2:80", oftest.TCP)
	probe.EthDst = own.EthDst
	spoofed := probe
	spoofed.EthDst = InClusterMAC
	other := forwarded
	other.DstPort++
	for _, row := range []struct {
		name   string
		packet oftest.Packet
		want   bool
	}{
		{"a forwarded answer", forwarded, true},
		{"an answer of the host itself", own, true},
		{"a probe", probe, true},
		{"a forwarded packet with the host's address", spoofed, false},
		{"a forwarded packet to another port", other, false},
	} {
		if have := c.send("east1 host", row.packet); strings.HasPrefix(have.String(), "east1 pod3") != row.want {
			t.Errorf("%s: %s, want it to arrive: %t", row.name, have, row.want)
		}
	}
}

// TestHostileOwn has packets between Nodes with the addresses of Pods in networks of their own.
func TestHostileOwn(t *testing.T) {
	older := ownNodes(nil)["east1"]
	older.Networks = maps.Clone(older.Networks)
	for k, v := range older.Networks {
		v.Own = false
		older.Networks[k] = v
	}
	overlaps := ownNodes(nil)["east1"]
	overlaps.RemoteNodes = append(slices.Clone(overlaps.RemoteNodes), RemoteNode{Name: "late",
		Address: addrOf("192.168.78.109"), PodCIDRs: []netip.Prefix{rangeOf("10.50.0.0/24")}})
	overlaps.Pods = slices.DeleteFunc(slices.Clone(overlaps.Pods), func(p Pod) bool { return p.First })
	for _, test := range []struct {
		name     string
		state    State
		src, dst string
		mac      ofp.MAC
		want     string
	}{
		{"a client", ownNodes(nil)["east1"], "10.50.0.18", "10.11.0.3", InClusterMAC, "port 2"},
		{"by IPv6", ownNodes(nil)["east1"], "fd50::12", "fd11::3", InClusterMAC, "port 2"},
		{"in its network", ownNodes(nil)["east1"], "10.50.0.18", "10.11.0.3", MACOf(0xb1), "dropped in Tenant"},
		{"with this Node's block", ownNodes(nil)["east1"], "10.50.0.2", "10.11.0.3", InClusterMAC, "dropped in Classify"},
		{"with a block of no Node", ownNodes(nil)["east1"], "10.50.0.77", "10.11.0.3", InClusterMAC, "dropped in Classify"},
		{"with the Gateway's MAC", ownNodes(nil)["east1"], "10.50.0.18", "10.11.0.3", CrossClusterMAC,
			"dropped in Classify"},
		{"to the host", ownNodes(nil)["east1"], "10.50.0.18", "10.11.0.1", InClusterMAC, "dropped in Route"},
		{"to the host by IPv6", ownNodes(nil)["east1"], "fd50::12", "fd11::1", InClusterMAC, "dropped in Route"},
		{"to a Service", ownNodes(nil)["east1"], "10.50.0.18", "10.97.0.50", InClusterMAC, "dropped in Classify"},
		{"to its own Node", ownNodes(nil)["east1"], "10.50.0.18", "10.11.1.3", InClusterMAC, "dropped in Classify"},
		{"to the world", ownNodes(nil)["east1"], "10.50.0.18", "192.0.2.1", InClusterMAC, "dropped in Classify"},
		{"to a Pod of the network", ownNodes(nil)["east1"], "10.50.0.18", "10.50.0.2", InClusterMAC, "dropped in Classify"},
		{"to an isolated Pod", ownNodes(nil)["east1"], "10.50.0.18", "10.11.0.6", InClusterMAC, "dropped in Route"},
		{"to an address without a Pod", ownNodes(nil)["east1"], "10.50.0.18", "10.11.0.99", InClusterMAC,
			"dropped in Route"},
		{"to a Node of an earlier version", older, "10.50.0.18", "10.11.0.3", InClusterMAC, "dropped in Classify"},
		{"to it in the network", older, "10.50.0.18", "10.11.0.3", MACOf(0xb1), "dropped in Tenant"},
		{"while a Node has the range", overlaps, "10.50.0.18", "10.11.0.3", InClusterMAC, "dropped in Classify"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := cableOf(t, map[string]State{"east1": test.state}).nodes["east1"]
			r := s.Send(oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: test.mac, IPSrc: addrOf(test.src),
				IPDst: addrOf(test.dst), Proto: oftest.TCP, SrcPort: 40000, DstPort: 80, TunSrc: eastTwo, TunDst: eastOne})
			have := "dropped in " + r.Dropped
			if len(r.Outputs) == 1 {
				have = fmt.Sprint("port ", r.Outputs[0].Port)
			}
			if r.Err != nil || have != test.want {
				t.Errorf("%s, want %s", r, test.want)
			}
		})
	}
	// A connection that a machine outside has opened with the address is not the client's.
	outside := cableOf(t, map[string]State{"east1": ownNodes(nil)["east1"]}).nodes["east1"]
	p := oftest.Packet{InPort: gatewayPort, EthSrc: gwMAC, EthDst: podMACOne, IPSrc: addrOf("10.50.0.18"),
		IPDst: addrOf("10.11.0.3"), Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}
	first := outside.Send(p)
	if len(first.Outputs) != 1 {
		t.Fatalf("a machine outside: %s", first)
	}
	back := first.Outputs[0].Packet.Reply()
	back.InPort = 2
	if r := outside.Send(back); len(r.Outputs) != 1 || r.Outputs[0].Port != gatewayPort {
		t.Errorf("the answer to a machine outside: %s", r)
	}
	p.InPort, p.EthDst, p.TunSrc, p.TunDst = tunnelPort, InClusterMAC, eastTwo, eastOne
	if r := outside.Send(p); len(r.Outputs) > 0 || r.Dropped != "ConntrackState" {
		t.Errorf("a client in the connection of a machine outside: %s", r)
	}
	// Nor does such a machine continue the client's connection.
	client := cableOf(t, map[string]State{"east1": ownNodes(nil)["east1"]}).nodes["east1"]
	if first := client.Send(p); len(first.Outputs) != 1 {
		t.Fatalf("a client: %s", first)
	} else {
		back = first.Outputs[0].Packet.Reply()
	}
	if back.InPort = 2; len(client.Send(back).Outputs) != 1 {
		t.Error("a client gets no answer")
	}
	p.InPort, p.EthDst, p.TunSrc, p.TunDst = gatewayPort, podMACOne, netip.Addr{}, netip.Addr{}
	if r := client.Send(p); len(r.Outputs) > 0 || r.Dropped != "ConntrackState" {
		t.Errorf("a machine outside in the connection of a client: %s", r)
	}
}

// TestOwnServicesEnd has connections of a Pod to Services, after another Node has got its range, and after its network
// is gone. No packet of the Pod leaves its network any more, and the Pod is reported if its address is another's.
func TestOwnServicesEnd(t *testing.T) {
	taken, gone := ownNodes(nil)["east1"], ownNodes(nil)["east1"]
	taken.RemoteNodes = append(slices.Clone(taken.RemoteNodes), RemoteNode{Name: "late",
		Address: addrOf("192.168.78.109"), PodCIDRs: []netip.Prefix{rangeOf("10.50.0.0/24")}})
	gone.Networks = maps.Clone(gone.Networks)
	maps.DeleteFunc(gone.Networks, func(k derive.Object, _ tenant.VirtualNetwork) bool { return k.Name == "blue" })
	for _, test := range []struct {
		name     string
		later    State
		problems string
	}{
		{"another Node has the range", taken, "it reaches no Services, nor cluster DNS: VirtualNetwork a/blue " +
			"has an address that is in range 10.50.0.0/24"},
		{"the network is gone", gone, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := cableOf(t, ownNodes(nil))
			p := c.request("east1 pod3", "10.97.0.50:80", oftest.TCP)
			back := c.send("east1 pod3", p).packet.Reply()
			if w := c.send("east1 pod2", back); !strings.HasPrefix(w.String(), "east1 pod3") {
				t.Fatalf("before: %s", w)
			}
			entries, problems := Plan(test.later)
			var words []string
			for _, one := range problems {
				words = append(words, one.String())
			}
			if all := strings.Join(words, "\n"); !strings.Contains(all, test.problems) || (all == "") != (test.problems == "") {
				t.Errorf("problems %q, want one with %q", words, test.problems)
			}
			if err := c.nodes["east1"].Replace(slices.Collect(maps.Values(entries))...); err != nil {
				t.Fatal(err)
			}
			if w := c.send("east1 pod3", p); w.String() != "east1 dropped in Tenant" {
				t.Errorf("the connection: %s", w)
			}
			p.SrcPort++
			if w := c.send("east1 pod3", p); !strings.HasPrefix(w.String(), "east1 dropped in ") {
				t.Errorf("a new one: %s", w)
			}
		})
	}
}

// TestOwnToOtherClusters has endpoints of another cluster, which does not admit the address. The client's Node drops
// the packets, also on the Gateway.
func TestOwnToOtherClusters(t *testing.T) {
	states := ownNodes(nil)
	serviceOf(states, "default", "imported", "10.97.0.80:80", "10.96.0.20:80")
	for node, s := range states {
		s.Peering = onNode(map[string]int{"east1": 1, "east2": 2}[node]).Peering
		states[node] = s
	}
	for _, node := range []string{"east1", "east2"} {
		c := cableOf(t, states)
		if w := c.send(node+" pod3", c.request(node+" pod3", "10.97.0.80:80", oftest.TCP)); w.String() !=
			node+" dropped in Route" {
			t.Errorf("%s: %s", node, w)
		}
	}
}

// TestOwnLeaks sends random packets of all Pods in random worlds, to Pods and to Services with random endpoints, and
// random packets to clients. A connection opens as the table of docs/virtual-networks.md has it.
func TestOwnLeaks(t *testing.T) {
	names := []string{"blue", "red", "c"}
	networkOf := map[string]string{"pod3": "blue", "pod4": "red", "pod5": "c"}
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 41))
		joins := map[string][]string{}
		for i, a := range names {
			for _, b := range names[i+1:] {
				if rnd.IntN(3) == 0 {
					joins[a], joins[b] = append(joins[a], b), append(joins[b], a)
				}
			}
		}
		states := firstNodes(joins)
		type leads struct{ namespace, node, vip, pod string }
		var services []leads
		for i := range 12 {
			l := leads{[]string{"default", "a", "c"}[rnd.IntN(3)], []string{"east1", "east2"}[rnd.IntN(2)],
				fmt.Sprintf("10.97.0.%d:80", 50+i), ""}
			n := rnd.IntN(5)
			l.pod = fmt.Sprint("pod", n+1)
			serviceOf(states, l.namespace, fmt.Sprint("s", i), l.vip, fmt.Sprint(states[l.node].Pods[n].IPs[0], ":8080"))
			services = append(services, l)
		}
		c := cableOf(t, states)
		for range 120 {
			node, from := []string{"east1", "east2"}[rnd.IntN(2)], fmt.Sprint("pod", 1+rnd.IntN(5))
			l := services[rnd.IntN(len(services))]
			p := c.request(node+" "+from, l.vip, oftest.TCP)
			p.SrcPort = uint16(1024 + rnd.IntN(60000))
			w := c.send(node+" "+from, p)
			a, b := networkOf[from], networkOf[l.pod]
			meets := a == b || a != "" && b != "" && slices.Contains(joins[a], b)
			own := a == "blue" || a == "red"
			want := b == "" // a Service of the default network leaves the client's network
			switch {
			case l.namespace == "c": // isolated
				want = meets && a != ""
			case l.namespace == "a" && own:
				want = meets
			}
			arrived := strings.Contains(w.String(), fmt.Sprint(l.node, " ", l.pod, ":"))
			if arrived != want {
				t.Fatalf("seed %d, joins %v: %s %s by %+v: %s, want it to arrive: %t", seed, joins, node, from, l, w, want)
			}
			if !arrived {
				continue
			}
			reply := w.packet.Reply()
			if back := c.send(l.node+" "+l.pod, reply); !strings.Contains(back.String(), node+" "+from+": "+l.vip) &&
				node+from != l.node+l.pod {
				t.Fatalf("seed %d: the answer of %+v to %s %s goes %s", seed, l, node, from, back)
			}
			// A server opens no connection to its client.
			reply.SrcPort, reply.DstPort = reply.DstPort, reply.SrcPort+1
			if meets || a == "" {
				continue
			}
			if back := c.send(l.node+" "+l.pod, reply); strings.Contains(back.String(), node+" "+from) {
				t.Fatalf("seed %d: %+v opens a connection to %s %s: %s", seed, l, node, from, back)
			}
		}
	}
}

// TestOwnServersAreLazy has Nodes without a Pod in a network of its own. Only one with Pods that may be servers has
// flows, and only of networks of first interfaces.
func TestOwnServersAreLazy(t *testing.T) {
	flows := func(s State) (out []string) {
		for f := range setOf(t, mustPlan(t, s)).Flows() {
			out = append(out, fmt.Sprint(f))
		}
		slices.Sort(out)
		return out
	}
	s := ownNodes(nil)["east1"]
	s.Pods = s.Pods[:2]
	s.Frontends = slices.DeleteFunc(slices.Clone(s.Frontends), func(f service.Frontend) bool { return f.Namespace == "c" })
	without := s
	without.Places = map[string]tenant.Place{"default": {Known: true}, "a": {Known: true}}
	without.Networks = nil
	plain := flows(without)
	extra := slices.DeleteFunc(flows(s), func(f string) bool { return slices.Contains(plain, f) })
	// For each of two blocks of each network: one to admit, two back, one against new connections. Once for all: one for
	// each address of the gateway port, and five for each version of IP. A flow of several networks is counted once.
	if len(extra) != 4*4+2+10 {
		t.Errorf("a Node of servers has %d further flows:\n%s", len(extra), strings.Join(extra, "\n"))
	}
	s.Pods, without.Pods = s.Pods[:0], s.Pods[:0]
	if have, want := flows(s), flows(without); !slices.Equal(have, want) {
		t.Errorf("a Node without Pods has %d flows, want %d", len(have), len(want))
	}
}

// TestOwnRefusal takes the agent's refusal of a connection by the server's policies back to the client's Node.
func TestOwnRefusal(t *testing.T) {
	for to, want := range map[string]string{"10.97.0.51:80": "east2", "10.97.0.50:80": "east1"} {
		c := cableOf(t, ownNodes(nil))
		w := c.send("east1 pod3", c.request("east1 pod3", to, oftest.TCP))
		from := uint64(fromPod)
		if want == "east2" {
			from = fromFirst
		}
		out, err := Reject(ofp.PacketIn2{Userdata: []byte(PolicyReject), Data: segment(tcpSYN, 1, 0, ""),
			Metadata: flow.All(source.Is(from)).OXM()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := c.nodes[want].PacketOut(w.packet.Reply(), out.Actions)
		if len(r.Outputs) != 1 {
			t.Fatalf("%s: the refusal goes %s", to, r)
		}
		if want == "east1" {
			if r.Outputs[0].Port != 3 {
				t.Errorf("the refusal goes %s", r)
			}
			continue
		}
		p := r.Outputs[0].Packet
		p.TunSrc = eastTwo
		if back := c.send("east1 tunnel", p); !strings.HasPrefix(back.String(), "east1 pod3: 10.97.0.51:80") {
			t.Errorf("the refusal goes %s", back)
		}
	}
}

// TestOwnPolicies has a policy of a server of the default network, which allows Pods of one label. A Pod of another
// Node in a network of its own is known by the report of its Node. Policies of the client judge the server.
func TestOwnPolicies(t *testing.T) {
	s := ownNodes(nil)["east1"]
	c := newSources(s)
	for name, place := range s.Places {
		c.places.Set(derive.Object{Name: name}, place)
	}
	for _, name := range []string{"a", "default"} {
		c.policy.Namespaces.Set(derive.Object{Name: name},
			policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	pod := func(namespace, name, node, label string, ips ...netip.Addr) {
		c.policy.Pods.Set(derive.Object{Namespace: namespace, Name: name},
			policy.PodFacts{Labels: "app=" + label, Node: node, IPs: ips})
	}
	pod("default", "pod2", "east1", "server", s.Pods[1].IPs...)
	pod("a", "pod3", "east1", "friend", s.Pods[2].IPs...)
	pod("a", "pod4", "east1", "other", s.Pods[3].IPs...)
	pod("a", "friend", "east2", "friend")
	pod("a", "other", "east2", "other")
	blue := derive.Object{Namespace: "a", Name: "blue"}
	c.policy.Blocks.Set(derive.Object{Name: "lease"}, []policy.NodeBlock{
		{Node: "east1", Range: rangeOf("10.50.0.0/28"), Network: blue},
		{Node: "east2", Range: rangeOf("10.50.0.16/28"), Network: blue}})
	reports := func(ips ...string) {
		list := []policy.FurtherAddress{}
		for i, name := range []string{"friend", "other"}[:len(ips)] {
			list = append(list, policy.FurtherAddress{IP: addrOf(ips[i]), Pod: derive.Object{Namespace: "a", Name: name},
				Network: blue})
		}
		slices.SortFunc(list, func(a, b policy.FurtherAddress) int { return a.IP.Compare(b.IP) })
		c.policy.Further.Set(derive.Object{Name: "east2"}, list)
	}
	set := func(action policy.Action, stage policy.Stage, kind policy.Kind) {
		rule := []policy.RuleFacts{{Action: action, AnyPort: true,
			Peers: []policy.Selector{{Namespace: "a", Pods: "app=friend"}}}}
		c.policy.Policies[kind].Set(derive.Object{Namespace: "default", Name: "p"}, policy.Facts{
			Stage: stage, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=server"}},
			Ingress: &policy.DirectionFacts{Rules: rule}})
	}
	send := func(p oftest.Packet) bool {
		t.Helper()
		sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
		if err != nil {
			t.Fatal(err)
		}
		r := sw.Send(p)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return len(r.Outputs) == 1
	}
	far := func(from string) oftest.Packet {
		return oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: InClusterMAC, IPSrc: addrOf(from),
			IPDst: addrOf("10.11.0.3"), Proto: oftest.TCP, SrcPort: 40000, DstPort: 8080, TunSrc: eastTwo, TunDst: eastOne}
	}
	near := func(number int) oftest.Packet {
		from := s.Pods[number-1]
		return oftest.Packet{InPort: from.Port, EthSrc: from.MAC, EthDst: gwMAC, IPSrc: from.IPs[0],
			IPDst: addrOf("10.97.0.50"), Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}
	}
	check := func(when string, friend, other, near3, near4 bool) {
		t.Helper()
		c.engine.Pass()
		for i, p := range []oftest.Packet{far("10.50.0.18"), far("10.50.0.19"), near(3), near(4)} {
			if want := []bool{friend, other, near3, near4}[i]; send(p) != want {
				t.Errorf("%s: %s passes: %t, want %t", when, p, !want, want)
			}
		}
	}
	check("without a policy", true, true, true, true)
	set(policy.Allow, policy.NetworkPolicies, policy.NetworkPolicy)
	check("friends are allowed, before the report", false, false, true, false)
	reports("10.50.0.18", "10.50.0.19")
	check("friends are allowed", true, false, true, false)
	// A machine outside with the address is no friend.
	outside := far("10.50.0.18")
	outside.InPort, outside.TunSrc, outside.TunDst = gatewayPort, netip.Addr{}, netip.Addr{}
	if send(outside) {
		t.Error("a machine outside with a friend's address passes")
	}

	// A known connection is judged again when its client is no friend any more.
	known := tracked{Connection: policy.Connection{From: addrOf("10.50.0.18"), To: addrOf("10.11.0.3"),
		Protocol: corev1.ProtocolTCP, Port: 8080}, first: true}
	near3 := known
	near3.first, near3.left, near3.service, near3.From = false, true, true, s.Pods[2].IPs[0]
	for _, k := range []*tracked{&known, &near3} {
		server, _ := c.policy.Identities.Get(derive.Object{Namespace: "default", Name: "pod2"})
		friend, _ := c.policy.Identities.Get(derive.Object{Namespace: "a", Name: "pod3"})
		k.ends[policy.Ingress], _ = c.policy.Numbers.Get(server)
		k.ends[policy.Egress], _ = c.policy.Numbers.Get(friend)
		for _, row := range c.tables.Policies.numbers.rules.All() {
			k.rules[row.Key.Direction] = row.Value
		}
	}
	again := func(when string, k tracked, want string) {
		t.Helper()
		have := ""
		c.tables.Policies.Known.snapshot().recheck(k, func(r Recheck) { have += r.String() })
		if have != want {
			t.Errorf("%s: the known connection is judged again: %q, want %q", when, have, want)
		}
	}
	again("a friend", known, "")
	again("a friend of this Node", near3, "")
	reports("10.50.0.20", "10.50.0.18")
	check("the other has its address", false, false, true, false)
	again("the other has its address", known, fmt.Sprint("egress relabelled 10.50.0.18 was ", known.ends[policy.Egress]))

	c.policy.Policies[policy.NetworkPolicy].Delete(derive.Object{Namespace: "default", Name: "p"})
	set(policy.Drop, policy.Admin, policy.AntreaNetworkPolicy)
	check("friends are denied, and unknown Pods", true, false, false, true) // 10.50.0.19 is of an unknown Pod
	c.policy.Policies[policy.AntreaNetworkPolicy].Delete(derive.Object{Namespace: "default", Name: "p"})

	// The client's own policy, which allows servers by their labels.
	allow := []policy.RuleFacts{{Action: policy.Allow, AnyPort: true,
		Peers: []policy.Selector{{Namespace: "default", Pods: "app=server"}}}}
	c.policy.Policies[policy.NetworkPolicy].Set(derive.Object{Namespace: "a", Name: "p"}, policy.Facts{
		Stage: policy.NetworkPolicies, AppliedTo: []policy.Selector{{Namespace: "a", Pods: "app=friend"}},
		Egress: &policy.DirectionFacts{Rules: allow}})
	check("the client may", true, true, true, true)
	for _, row := range c.tables.Policies.numbers.rules.All() {
		near3.rules[policy.Egress] = row.Value
	}
	near3.rules[policy.Ingress] = 0
	again("the client may", near3, "")
	pod("default", "pod2", "east1", "stranger", s.Pods[1].IPs...)
	check("the client may not", true, true, false, true)
	gone := fmt.Sprint("egress rule-gone ", near3.rules[policy.Egress])
	again("the client may not", near3, gone)
	c.policy.Blocks.Delete(derive.Object{Name: "lease"})
	c.engine.Pass()
	again("the client may not, without its block", near3, gone)
}

// TestOwnServicesOnSwitch asks a real switch about requests of clients in networks of their own, and about answers.
func TestOwnServicesOnSwitch(t *testing.T) {
	o := dummyBridge(t)
	for _, port := range []string{"3", "4", "5"} {
		o.vsctl(t, "add-port", "br-int", "pod"+port, "--", "set", "interface", "pod"+port, "type="+portType(),
			"ofport_request="+port)
	}
	states := ownNodes(nil)
	o.program(t, "br-int", setOf(t, mustPlan(t, states["east1"])))
	pod := func(number int, to string, port int) string {
		p := states["east1"].Pods[number-1]
		return fmt.Sprintf("dp_hash=1,in_port=%d,tcp,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,tp_src=40000,"+
			"tp_dst=%d", p.Port, p.MAC, gwMAC, p.IPs[0], to, port)
	}
	tunnel := func(mac ofp.MAC, from, to string) string {
		return fmt.Sprintf("in_port=%d,tcp,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,tp_src=40000,tp_dst=8080,"+
			"tun_src=%s,tun_dst=%s,tun_id=0", tunnelPort, gwMAC, mac, from, to, eastTwo, eastOne)
	}
	const newOne, reply = "trk,new", "trk,est,rpl"
	for _, test := range []struct{ name, packet, state, want string }{
		{"to a Pod", pod(3, "10.11.0.3", 8080), newOne, "dropped in Tenant"},
		{"an address of its network that a Service claims", pod(3, "10.50.0.18", 443), newOne,
			"to tunnel 192.168.78.102 02:54:4e:00:00:b1"},
		{"a client of another Node", tunnel(InClusterMAC, "10.50.0.18", "10.11.0.3"), newOne, "to pod2"},
		{"to the host", tunnel(InClusterMAC, "10.50.0.18", "10.11.0.1"), newOne, "dropped in Route"},
		{"to a Pod of its network", tunnel(InClusterMAC, "10.50.0.18", "10.50.0.2"), newOne, "dropped in Classify"},
		{"an answer", "ct_mark=0x5," + pod(2, "10.50.0.18", 40000), reply, "to tunnel 192.168.78.102 aa:bb:cc:dd:ee:ff"},
		{"an answer of another connection", "ct_mark=0x1," + pod(2, "10.50.0.18", 40000), reply, "to gateway"},
		{"no answer", "ct_mark=0x5," + pod(2, "10.50.0.18", 40000), newOne, "dropped in Route"},
		{"an answer of a Service", "ct_mark=0x13," + tunnel(InClusterMAC, "10.11.1.3", "10.50.0.2"), reply, "to port 3"},
		{"of no Service", "ct_mark=0x3," + tunnel(InClusterMAC, "10.11.1.3", "10.50.0.2"), reply, "dropped in Route"},
		{"of a Service that stays in the network", "ct_mark=0x8000013," + tunnel(InClusterMAC, "10.11.1.3", "10.50.0.2"),
			reply, "dropped in Route"},
		{"no answer of a Service", "ct_mark=0x13," + tunnel(InClusterMAC, "10.11.1.3", "10.50.0.2"), newOne,
			"dropped in Route"},
	} {
		t.Run(test.name, func(t *testing.T) {
			trace := o.appctl(t, "ofproto/trace", "br-int", test.packet, "--ct-next", test.state, "--ct-next", test.state)
			if have := endOf(t, trace); have != test.want {
				t.Errorf("%s, want %s\n%s", have, test.want, trace)
			}
		})
	}
}

// TestOwnServiceTraffic sends real connections of Pods in a network of their own to Services, and from their servers.
func TestOwnServiceTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	states := ownNodes(nil)
	serviceOf(states, "default", "own-host", "10.97.0.90:80", netip.AddrPortFrom(eastOne, 9090).String())
	serviceOf(states, "default", "far-host", "10.97.0.91:80", netip.AddrPortFrom(eastTwo, 9090).String())
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
	// The agent's state of the host.
	one.host.ip(t, "route add 10.50.0.2/32 dev gw0 src 10.11.0.1", "rule add not iif lo lookup 116",
		fmt.Sprintf("route add 10.50.0.2/32 via %s dev gw0 onlink table 116", vip))
	one.host.run(t, "nft", "add table ip pods; add chain ip pods c { type nat hook postrouting priority 100 ; }; "+
		"add rule ip pods c ip saddr 10.50.0.2 oifname != gw0 masquerade")
	one.host.run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	one.host.serve(t, "tcp", ":9090", "east1/host")
	two.host.serve(t, "tcp", ":9090", "east2/host")
	blue, red := one.pods[2], one.pods[3]
	for _, r := range []request{
		{"its host", blue, "tcp", "10.97.0.90:80", []string{"east1/host 10.50.0.2"}},
		{"another host", blue, "tcp", "10.97.0.91:80", []string{"east2/host 192.168.78.101"}},
		{"on its Node", blue, "tcp", "10.97.0.50:80", []string{"east1/pod2 10.50.0.2"}},
		{"on its Node by IPv6", blue, "tcp6", "[fd97::50]:80", []string{"east1/pod2 fd50::2"}},
		{"on another Node", blue, "tcp", "10.97.0.51:80", []string{"east2/pod2 10.50.0.2"}},
		{"on another Node by IPv6", red, "tcp6", "[fd97::51]:80", []string{"east2/pod2 fd50:1::2"}},
		{"DNS", blue, "udp", "10.97.0.10:53", []string{"east2/pod2 10.50.0.2"}},
		{"in its network", blue, "tcp", "10.97.0.60:80", []string{"east2/pod3 10.50.0.2"}},
		{"in its network by IPv6", blue, "tcp6", "[fd97::60]:80", []string{"east2/pod3 fd50::2"}},
		{"itself", blue, "tcp", "10.97.0.61:80", []string{"east1/pod3 169.254.0.253"}},
	} {
		t.Run(r.name, r.check)
	}
	for _, r := range []request{
		{"its Namespace's in the default network", blue, "tcp", "10.97.0.63:80", nil},
		{"another network's", red, "tcp", "10.97.0.60:80", nil},
		{"the server to its client", two.pods[1], "tcp", "10.50.0.2:8080", nil},
		{"a server of its Node", one.pods[1], "tcp", "10.50.0.2:8080", nil},
		{"by a Service", two.pods[1], "tcp", "10.97.0.61:80", nil},
		{"another host by its address", blue, "tcp", "192.168.78.102:9090", nil},
	} {
		t.Run("nothing/"+r.name, func(t *testing.T) {
			t.Parallel()
			if answer, err := r.from.askWithin(silence(), r.network, r.to); err == nil {
				t.Errorf("it is answered: %s", answer)
			}
		})
	}
}
