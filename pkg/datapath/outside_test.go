package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// kindOf makes a frontend one of a kind for some clients.
func kindOf(f service.Frontend, kind service.Kind, clients service.Clients) service.Frontend {
	f.Kind, f.Clients = kind, clients
	if clients == service.OtherClients {
		f.Scope = service.Local
	}
	return f
}

// outsideNode is east/node-<n> with Services for clients outside. Their endpoints are pod1 of node-1 (10.11.0.2), pod2
// of node-2 (10.11.1.3), and hosts.
func outsideNode(n int) State {
	s := onNode(n)
	s.Node.Outside = true
	s.Node.NodePortAddresses = s.Node.Ends
	s.Node.ServiceSource, _ = policy.ServiceSource(s.Node.PodCIDRs[0])
	const here, there = "10.11.0.2:8080", "10.11.1.3:8080"
	tcp := func(name, at string, kind service.Kind, clients service.Clients, endpoints ...string) {
		s.Frontends = append(s.Frontends, kindOf(frontend(name, corev1.ProtocolTCP, at, endpoints...), kind, clients))
	}
	all, own, others := service.AllClients, service.OwnClients, service.OtherClients
	tcp("here", "0.0.0.0:30081", service.NodePort, all, here)
	tcp("here", "198.51.100.10:80", service.LoadBalancer, all, here)
	tcp("here", "198.51.100.11:80", service.ExternalIP, all, here)
	tcp("there", "0.0.0.0:30082", service.NodePort, all, there)
	tcp("local", "0.0.0.0:30083", service.NodePort, own, there)
	tcp("local", "0.0.0.0:30083", service.NodePort, others, here)
	tcp("local", "198.51.100.12:80", service.LoadBalancer, own, there)
	tcp("local", "198.51.100.12:80", service.LoadBalancer, others, here)
	tcp("elsewhere", "0.0.0.0:30084", service.NodePort, own, there)
	tcp("elsewhere", "0.0.0.0:30084", service.NodePort, others)
	s.Frontends[len(s.Frontends)-1].Elsewhere = true
	tcp("none", "0.0.0.0:30085", service.NodePort, all)
	tcp("node", "0.0.0.0:30086", service.NodePort, all, "192.168.78.101:9090")
	tcp("node", "198.51.100.13:80", service.LoadBalancer, all, "192.168.78.101:9090")
	tcp("far", "0.0.0.0:30087", service.NodePort, all, "10.96.0.20:80")
	tcp("limited", "198.51.100.14:80", service.LoadBalancer, all, here)
	limited := &s.Frontends[len(s.Frontends)-1]
	limited.Limited = true
	limited.Sources = []netip.Prefix{rangeOf("203.0.113.0/24"), rangeOf("10.11.0.3/32"), host(s.Node.Ends[0])}
	tcp("nobody", "198.51.100.15:80", service.LoadBalancer, all, here)
	s.Frontends[len(s.Frontends)-1].Limited = true
	// A load balancer that gives the Node's own address, and a port that another Service has as its node port.
	tcp("vip", s.Node.Ends[0].String()+":30089", service.LoadBalancer, all, here)
	tcp("rival", "0.0.0.0:30089", service.NodePort, all, there)
	udp := frontend("query", corev1.ProtocolUDP, "0.0.0.0:30053", "10.11.0.3:5353")
	s.Frontends = append(s.Frontends, kindOf(udp, service.NodePort, all))
	return s
}

// entryOf is the destination that the host gives a packet to a frontend's address: "192.0.2.1:80" of a load balancer,
// or ":30080" of a node port.
func entryOf(t *testing.T, tables *Tables, at string, own bool) string {
	t.Helper()
	want := Entry{Own: own}
	_, port, _ := strings.Cut(at, ":")
	if !strings.HasPrefix(at, ":") {
		want.External = true
		number, ok := tables.Entries.Get(EntryID{corev1.ProtocolTCP, netip.MustParseAddrPort(at)})
		if !ok {
			t.Fatalf("%s has no number", at)
		}
		port = fmt.Sprint(number)
	}
	for _, e := range Entries {
		if e.External == want.External && e.Own == own {
			return e.Addr.String() + ":" + port
		}
	}
	t.Fatal("no such entry")
	return ""
}

// outsideTablesOf are the tables of a state.
func outsideTablesOf(s State) *Tables {
	c := newSources(s)
	c.engine.Pass()
	return c.tables
}

// outsideRow is a connection to a Service by one of its addresses outside.
type outsideRow struct {
	name   string
	at     string // "east1 host" sends what comes from outside or from own processes, "east1 pod1" for itself
	client string // source address; empty: that of the place
	to     string // an address of a Service, which the host translates; of a Pod the destination itself
	own    bool   // of a process of the Node
	there  string // as travel prints it, with %s for the translated destination
	back   string // the same of replies; empty: there are no replies
}

const world = "203.0.113.7"

var outsideRows = []outsideRow{
	{
		name: "node port with an endpoint here: the Pod sees the client",
		at:   "east1 host", client: world, to: ":30081",
		there: "east1 pod1: 203.0.113.7:40000 > 10.11.0.2:8080", back: "east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "node port with an endpoint on another Node: it sees the service source",
		at:   "east1 host", client: world, to: ":30082",
		there: "east1 east2 pod2: 10.11.0.254:40000 > 10.11.1.3:8080",
		back:  "east2 east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "load balancer", at: "east1 host", client: world, to: "198.51.100.10:80",
		there: "east1 pod1: 203.0.113.7:40000 > 10.11.0.2:8080", back: "east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "external address", at: "east1 host", client: world, to: "198.51.100.11:80",
		there: "east1 pod1: 203.0.113.7:40000 > 10.11.0.2:8080", back: "east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "externalTrafficPolicy Local, from outside", at: "east1 host", client: world, to: ":30083",
		there: "east1 pod1: 203.0.113.7:40000 > 10.11.0.2:8080", back: "east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "the same by the load balancer", at: "east1 host", client: world, to: "198.51.100.12:80",
		there: "east1 pod1: 203.0.113.7:40000 > 10.11.0.2:8080", back: "east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "own process to externalTrafficPolicy Local: all endpoints",
		at:   "east1 host", client: "192.168.78.101", own: true, to: ":30083",
		there: "east1 east2 pod2: 10.11.0.254:40000 > 10.11.1.3:8080",
		back:  "east2 east1 host: %s > 192.168.78.101:40000",
	},
	{
		name: "the same by the load balancer",
		at:   "east1 host", client: "192.168.78.101", own: true, to: "198.51.100.12:80",
		there: "east1 east2 pod2: 10.11.0.254:40000 > 10.11.1.3:8080",
		back:  "east2 east1 host: %s > 192.168.78.101:40000",
	},
	{
		name: "own process with the gateway port's address, as from 127.0.0.1",
		at:   "east1 host", own: true, to: ":30082",
		there: "east1 east2 pod2: 10.11.0.1:40000 > 10.11.1.3:8080", back: "east2 east1 host: %s > 10.11.0.1:40000",
	},
	{
		name: "endpoints elsewhere alone: dropped from outside",
		at:   "east1 host", client: world, to: ":30084", there: "east1 dropped in Service",
	},
	{
		name: "endpoints elsewhere alone: served to own processes",
		at:   "east1 host", client: "192.168.78.101", own: true, to: ":30084",
		there: "east1 east2 pod2: 10.11.0.254:40000 > 10.11.1.3:8080",
		back:  "east2 east1 host: %s > 192.168.78.101:40000",
	},
	{name: "no endpoints: refused", at: "east1 host", client: world, to: ":30085", there: "east1 agent"},
	{
		name: "a port that no Service has",
		at:   "east1 host", client: world, to: ":30099", there: "east1 dropped in Route",
	},
	{
		name: "endpoint that is the host: it answers the switch", at: "east1 host", client: world, to: ":30086",
		there: "east1 host: 169.254.0.253:40000 > 192.168.78.101:9090", back: "east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "the same by the load balancer, of another Node",
		at:   "east2 host", client: world, to: "198.51.100.13:80",
		there: "east2 host: 169.254.0.253:40000 > 192.168.78.101:9090", back: "east2 host: %s > 203.0.113.7:40000",
	},
	{
		name: "endpoint in another cluster, of a regular Node", at: "east1 host", client: world, to: ":30087",
		there: "east1 east2 west1 pod1: 192.168.78.102:40000 > 10.10.0.2:8080",
		back:  "west1 east2 east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "endpoint in another cluster, of the Gateway", at: "east2 host", client: world, to: ":30087",
		there: "east2 west1 pod1: 192.168.78.102:40000 > 10.10.0.2:8080",
		back:  "west1 east2 host: %s > 203.0.113.7:40000",
	},
	{
		name: "client with an address of a Pod of another Node, without encapsulation",
		at:   "east1 host", client: "10.11.1.2", to: ":30081",
		there: "east1 pod1: 10.11.1.2:40000 > 10.11.0.2:8080", back: "east1 host: %s > 10.11.1.2:40000",
	},
	{
		name: "client in a peer's Service range", at: "east1 host", client: "10.96.0.77", to: ":30081",
		there: "east1 pod1: 10.96.0.77:40000 > 10.11.0.2:8080", back: "east1 host: %s > 10.96.0.77:40000",
	},

	{
		name: "allowed client", at: "east1 host", client: world, to: "198.51.100.14:80",
		there: "east1 pod1: 203.0.113.7:40000 > 10.11.0.2:8080", back: "east1 host: %s > 203.0.113.7:40000",
	},
	{
		name: "client of no range",
		at:   "east1 host", client: "192.0.2.7", to: "198.51.100.14:80", there: "east1 dropped in External",
	},
	{
		name: "own process of an allowed Node",
		at:   "east1 host", client: "192.168.78.101", own: true, to: "198.51.100.14:80",
		there: "east1 pod1: 192.168.78.101:40000 > 10.11.0.2:8080", back: "east1 host: %s > 192.168.78.101:40000",
	},
	{
		name: "own process of an allowed Node with the load balancer's address",
		at:   "east1 host", client: "198.51.100.14", own: true,
		to: "198.51.100.14:80", there: "east1 pod1: 198.51.100.14:40000 > 10.11.0.2:8080",
		back: "east1 host: %s > 198.51.100.14:40000",
	},
	{
		name: "allowed Pod", at: "east1 pod2", to: "198.51.100.14:80",
		there: "east1 pod1: 10.11.0.3:40000 > 10.11.0.2:8080", back: "east1 pod2: %s > 10.11.0.3:40000",
	},
	{name: "Pod of no range", at: "east1 pod1", to: "198.51.100.14:80", there: "east1 dropped in External"},
	{
		name: "load balancer that lets no client in",
		at:   "east1 host", client: world, to: "198.51.100.15:80", there: "east1 dropped in External",
	},
	{name: "the same for Pods", at: "east1 pod2", to: "198.51.100.15:80", there: "east1 dropped in External"},

	{
		name: "Pod to a port of its Node", at: "east1 pod2", to: "192.168.78.101:30081",
		there: "east1 pod1: 10.11.0.3:40000 > 10.11.0.2:8080", back: "east1 pod2: %s > 10.11.0.3:40000",
	},
	{
		name: "Pod to itself by a port of its Node", at: "east1 pod1", to: "192.168.78.101:30081",
		there: "east1 pod1: 169.254.0.253:40000 > 10.11.0.2:8080", back: "east1 pod1: %s > 10.11.0.2:40000",
	},
	{
		name: "Pod to externalTrafficPolicy Local: all endpoints", at: "east1 pod1", to: "192.168.78.101:30083",
		there: "east1 east2 pod2: 10.11.0.2:40000 > 10.11.1.3:8080", back: "east2 east1 pod1: %s > 10.11.0.2:40000",
	},
	{
		name: "the same by the load balancer", at: "east1 pod1", to: "198.51.100.12:80",
		there: "east1 east2 pod2: 10.11.0.2:40000 > 10.11.1.3:8080", back: "east2 east1 pod1: %s > 10.11.0.2:40000",
	},
	{name: "Pod to a port without endpoints", at: "east1 pod1", to: "192.168.78.101:30085", there: "east1 agent"},
	{
		name: "Pod to its Node's own service", at: "east1 pod1", to: "192.168.78.101:22",
		there: "east1 host: 10.11.0.2:40000 > 192.168.78.101:22", back: "east1 pod1: %s > 10.11.0.2:40000",
	},
	{
		name: "a load balancer's address on the Node goes before its node ports",
		at:   "east1 pod2", to: "192.168.78.101:30089",
		there: "east1 pod1: 10.11.0.3:40000 > 10.11.0.2:8080", back: "east1 pod2: %s > 10.11.0.3:40000",
	},
	{
		name: "Pod to a port of another Node: the host masquerades it there",
		at:   "east1 pod1", to: "192.168.78.102:30081",
		there: "east1 host: 10.11.0.2:40000 > 192.168.78.102:30081", back: "east1 pod1: %s > 10.11.0.2:40000",
	},

	{
		name: "Pod to an entry of node ports",
		at:   "east1 pod1", to: "169.254.0.252:30081", there: "east1 dropped in Route",
	},
	{
		name: "Pod to an entry of external addresses, past their ranges",
		at:   "east1 pod1", to: "169.254.0.249:1", there: "east1 dropped in Route",
	},
	{name: "Pod to the service source", at: "east1 pod1", to: "10.11.0.254:80", there: "east1 dropped in Route"},
	{
		name: "Pod to another Node's service source",
		at:   "east1 pod1", to: "10.11.1.254:80", there: "east1 east2 dropped in Route: 10.11.0.2:40000 > 10.11.1.254:80",
	},
}

// TestOutsideConversations follows requests from outside and their replies over all Nodes.
func TestOutsideConversations(t *testing.T) {
	states := map[string]State{
		"east1": outsideNode(1), "east2": outsideNode(2), "west1": westNode(1), "west2": westNode(2),
	}
	tables := outsideTablesOf(states["east1"])
	for _, test := range outsideRows {
		t.Run(test.name, func(t *testing.T) {
			c := cableOf(t, states)
			to := test.to
			if strings.HasSuffix(test.at, " host") {
				to = entryOf(t, tables, test.to, test.own)
			}
			request := c.request(test.at, to, oftest.TCP)
			if test.client != "" {
				request.IPSrc = addrOf(test.client)
			}
			for i := range 4 {
				w := c.send(test.at, request)
				if w.String() != test.there {
					t.Fatalf("packet %d: %s, want %s", i, w, test.there)
				}
				if test.back == "" {
					return
				}
				if i == 0 {
					continue // sent again before there is an answer
				}
				n := len(w.places)
				back := c.send(w.places[n-2]+" "+w.places[n-1], w.packet.Reply())
				if want := fmt.Sprintf(test.back, to); back.String() != want {
					t.Fatalf("reply %d: %s, want %s", i, back, want)
				}
			}
		})
	}
}

// TestOutsideIsNoProbe has a program of the host masquerade clients outside: they have the address with which the
// kubelet probes, and are judged all the same. The Node's own processes are not.
func TestOutsideIsNoProbe(t *testing.T) {
	c := newSources(outsideNode(1))
	c.policy.Namespaces.Set(derive.Object{Name: "default"},
		policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}))
	c.relabel("pod1", "app=server")
	c.judge(policy.Ingress, policy.RuleFacts{Action: policy.Drop, AnyPeer: true, AnyPort: true})
	c.engine.Pass()
	model, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, to string
		own      bool
		want     string
	}{
		{"masqueraded client of a node port", ":30081", false, dropped},
		{"masqueraded client of a load balancer", "198.51.100.10:80", false, dropped},
		{"own process", ":30081", true, allowed},
	} {
		to := netip.MustParseAddrPort(entryOf(t, c.tables, row.to, row.own))
		model.Forget()
		k := oftest.Packet{EthSrc: gwMAC, EthDst: InClusterMAC, InPort: gatewayPort, Proto: oftest.TCP,
			IPSrc: c.Node.GatewayIPs[0], SrcPort: 40000, IPDst: to.Addr(), DstPort: to.Port()}
		if have := met(model.Send(k)); have != row.want {
			t.Errorf("%s: %s, want %s", row.name, have, row.want)
		}
	}
}

// TestOutsideWalks asks a real switch where the first packets go.
func TestOutsideWalks(t *testing.T) {
	o := dummyBridge(t)
	s := outsideNode(1)
	tables := outsideTablesOf(s)
	o.program(t, "br-int", setOf(t, mustPlan(t, s)))
	for _, test := range outsideRows {
		node, in, _ := strings.Cut(test.at, " ")
		if node != "east1" {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			w := walk{node: 1, in: in, from: test.client, to: test.to}
			switch in {
			case "host":
				w.in, w.to = "gateway", entryOf(t, tables, test.to, test.own)
				if w.from == "" {
					w.from = "10.11.0.1"
				}
			case "pod1":
				w.from = "10.11.0.2"
			case "pod2":
				w.from = "10.11.0.3"
			}
			trace := o.appctl(t, "ofproto/trace", "br-int", w.text(),
				"--ct-next", "trk,new", "--ct-next", "trk,new", "--ct-next", "trk,new")
			places, packet, _ := strings.Cut(test.there, ": ")
			want := map[string]string{
				"east1 pod1": "to pod1", "east1 agent": "to the agent from Service", "east1 host": "to gateway",
			}[places]
			switch {
			case places == "east1 "+in, want == "to gateway" && w.in == "gateway":
				want = "back to " + w.in
			case strings.HasPrefix(places, "east1 east2 west1"): // the Gateway's translation comes after
				want, packet = "to tunnel 192.168.78.102 (cross-cluster)", "10.11.0.254:40000 > 10.96.0.20:80"
			case strings.HasPrefix(places, "east1 east2"):
				want = "to tunnel 192.168.78.102"
			case strings.HasPrefix(places, "east1 dropped"):
				want = strings.TrimPrefix(places, "east1 ")
			}
			have := w.outcome(t, trace)
			if packet != "" {
				want += ": " + strings.Replace(packet, ":40000", "", 1)
			}
			if have != want {
				t.Errorf("%s: %s, want %s\n%s", w.text(), have, want, trace)
			}
		})
	}
}

// TestOutsideRefused has the agent answer connections to node ports and external addresses without endpoints.
func TestOutsideRefused(t *testing.T) {
	s := outsideNode(1)
	c := newSources(s)
	c.engine.Pass()
	asked := c.tables.Asked(frontendsOf(s))
	for _, row := range []struct {
		to   string
		want string // the Service, or what is wrong
	}{
		{entryOf(t, c.tables, ":30085", false), "none"},
		{entryOf(t, c.tables, ":30085", true), "none"},
		{"192.168.78.101:30085", "none"},
		{"192.168.78.102:30085", ""},
		{entryOf(t, c.tables, "198.51.100.10:80", false), "here"},
		{"198.51.100.10:80", "here"},
		{"169.254.0.250:1", ""},
		{"10.97.0.13:80", "empty"},
	} {
		f, ok := asked(corev1.ProtocolTCP, netip.MustParseAddrPort(row.to))
		if f.Service != row.want || ok != (row.want != "") {
			t.Errorf("%s is found as %s, %v, want %q", row.to, f, ok, row.want)
		}
		to := netip.MustParseAddrPort(row.to)
		err := asked.refused(packet{protocol: protoTCP, dst: to.Addr(), dstPort: to.Port()})
		empty := row.want == "none" || row.want == "empty"
		if refused := err == nil; refused != empty || err != nil && !errors.Is(err, ErrNotAnswered) {
			t.Errorf("%s: %v", row.to, err)
		}
	}
	// The answer of the agent comes from the entry, and leaves by the gateway port.
	node, err := oftest.New(Program, (&cable{t: t}).entries(s)...)
	if err != nil {
		t.Fatal(err)
	}
	answer := oftest.Packet{
		IPSrc: Entries[0].Addr, SrcPort: 30085, IPDst: addrOf(world), DstPort: 40000, Proto: oftest.TCP,
	}
	r := node.PacketOut(answer, flow.Do(flow.Load(generated, 1), flow.Resubmit(Route)))
	if len(r.Outputs) != 1 || r.Outputs[0].Port != gatewayPort {
		t.Errorf("the answer goes %s", r)
	}
}

// TestDestinations has the addresses of connections to a frontend, which are forgotten with its endpoints.
func TestDestinations(t *testing.T) {
	c := newSources(outsideNode(1))
	c.engine.Pass()
	number := func(at string) string {
		_, port, _ := strings.Cut(entryOf(t, c.tables, at, false), ":")
		return port
	}
	for _, f := range c.Frontends {
		have := strings.Trim(fmt.Sprint(c.tables.Destinations(f)), "[]")
		want := f.VIP.String()
		switch port := fmt.Sprint(f.VIP.Port()); f.Kind {
		case service.NodePort:
			want = "192.168.78.101:" + port + " 169.254.0.252:" + port + " 169.254.0.251:" + port
		case service.LoadBalancer, service.ExternalIP:
			want += " 169.254.0.250:" + number(want) + " 169.254.0.249:" + number(f.VIP.String())
		}
		if have != want {
			t.Errorf("%s: %s, want %s", f, have, want)
		}
	}
}

// TestOutsideFlows counts what a Service with many addresses costs.
func TestOutsideFlows(t *testing.T) {
	s := outsideNode(1)
	s.Frontends = []service.Frontend{withEndpoints(ones(10)...)}
	count := func() (flows, groups int) {
		for o, e := range mustPlan(t, s) {
			if o.Kind == KindService {
				flows, groups = flows+len(e.Flows), groups+len(e.Groups)
			}
		}
		return flows, groups
	}
	flows, groups := count()
	for i, at := range []string{"0.0.0.0:30080", "192.0.2.1:80", "192.0.2.2:80"} {
		f := s.Frontends[0]
		f.VIP, f.Kind = netip.MustParseAddrPort(at), service.LoadBalancer
		if i == 0 {
			f.Kind = service.NodePort
		}
		s.Frontends = append(s.Frontends, f)
	}
	if more, now := count(); groups != 1 || now != 1 || more != flows+5 {
		t.Errorf("%d flows and %d groups, with one address %d and %d: want one group, and a flow for the node port, two for "+
			"a load balancer", more, now, flows, groups)
	}
}

// TestServiceSourceIsNoPod has clients outside come by another Node, to a Pod under a rule that denies unknown Pods.
func TestServiceSourceIsNoPod(t *testing.T) {
	source := addrOf("10.11.1.254")
	for _, served := range []bool{false, true} {
		c := unknownSources()
		c.policy.Outside = served
		c.judge(policy.Ingress, policy.RuleFacts{
			Action: policy.Drop, Peers: []policy.Selector{{Pods: "zone=quarantine"}}, AnyPort: true,
		}) // which has the ranges of Pods evaluated again
		c.engine.Pass()
		sw, err := oftest.New(Program)
		if err != nil {
			t.Fatal(err)
		}
		if err := sw.Replace(slices.Collect(maps.Values(c.held))...); err != nil {
			t.Fatal(err)
		}
		want := dropped
		if served {
			want = allowed
		}
		askUnknown(t, c, sw, policy.Ingress, source, want)
		askUnknown(t, c, sw, policy.Ingress, unknownFar, dropped)
	}
}

// translating has the host of a Node translate as pkg/hostnet does, and forward.
func (n *realNode) translating(t *testing.T, s State) {
	t.Helper()
	tables := outsideTablesOf(s)
	var in, out strings.Builder
	frontends := slices.Clone(s.Frontends)
	external := func(a, b service.Frontend) int { return cmp.Compare(b.Kind, a.Kind) } // first
	slices.SortStableFunc(frontends, external)
	for _, f := range frontends {
		protocol := strings.ToLower(string(f.Protocol))
		for _, e := range Entries {
			chain := &in
			if e.Own {
				chain = &out
			}
			switch {
			case f.Clients == service.OtherClients || e.External == (f.Kind == service.NodePort):
			case f.Kind == service.NodePort && e.Own:
				fmt.Fprintf(chain, "fib daddr type local %s dport %d dnat ip to %s:%d\n",
					protocol, f.VIP.Port(), e.Addr, f.VIP.Port())
			case f.Kind == service.NodePort:
				fmt.Fprintf(chain, "ip daddr %s %s dport %d dnat ip to %s:%d\n",
					s.Node.NodePortAddresses[0], protocol, f.VIP.Port(), e.Addr, f.VIP.Port())
			case f.Kind != service.ClusterIP:
				number, _ := tables.Entries.Get(EntryID{f.Protocol, f.VIP})
				fmt.Fprintf(chain, "ip daddr %s %s dport %d dnat ip to %s:%d\n",
					f.VIP.Addr(), protocol, f.VIP.Port(), e.Addr, number)
			}
		}
	}
	n.host.run(t, "sh", "-c", "cd /proc/sys/net/ipv4 && echo 1 > ip_forward && echo 1 > conf/gw0/route_localnet && "+
		"echo 2 > conf/gw0/rp_filter")
	n.host.ip(t, fmt.Sprintf("route add %s via %s dev gw0 onlink", EntryRange, vip))
	n.host.feed(t, fmt.Sprintf(`table inet tombolo-services {
chain in { type nat hook prerouting priority -110
iifname "gw0" accept
%s}
chain out { type nat hook output priority -110
%s}
chain post { type nat hook postrouting priority srcnat
ip saddr 127.0.0.0/8 oifname "gw0" masquerade
ip saddr %s oifname != "gw0" masquerade
}
}
`, in.String(), out.String(), vip), "nft", "-f", "-")
}

// TestTrafficFromOutside sends real connections to node ports and external addresses of two Nodes, from a client in the
// Nodes' network, from processes of a Node and from Pods.
func TestTrafficFromOutside(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up", "address add 192.168.79.7/16 dev hub",
		"route add 198.51.100.0/24 via 192.168.78.101", "address add 203.0.113.7/32 dev lo")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	states := []State{outsideNode(1), outsideNode(2)}
	one := newNode(t, underlay, states[0], "east1", eastOne, "10.97.0.0/16")
	two := newNode(t, underlay, states[1], "east2", eastTwo, "10.97.0.0/16")
	for i, n := range []*realNode{one, two} {
		n.translating(t, states[i])
		n.host.ip(t, "route add 203.0.113.7 via 192.168.79.7")
	}
	one.pods[0].serve(t, "tcp", ":8080", "east1/pod1")
	one.pods[1].serve(t, "udp", ":5353", "east1/pod2")
	two.pods[1].serve(t, "tcp", ":8080", "east2/pod2")
	one.host.serve(t, "tcp", "192.168.78.101:9090", "east1")
	request{"", two.host, "tcp", "10.11.0.2:8080", []string{"east1/pod1 10.11.1.1"}}.check(t) // the tunnel is up
	for _, r := range []request{
		{
			"node port with an endpoint here", underlay, "tcp", "192.168.78.101:30081",
			[]string{"east1/pod1 192.168.79.7"},
		},
		{"endpoint on another Node", underlay, "tcp", "192.168.78.101:30082", []string{"east2/pod2 10.11.0.254"}},
		{"the same by the other Node", underlay, "tcp", "192.168.78.102:30081", []string{"east1/pod1 10.11.1.254"}},
		{"externalTrafficPolicy Local", underlay, "tcp", "192.168.78.101:30083", []string{"east1/pod1 192.168.79.7"}},
		{"endpoint that is the host", underlay, "tcp", "192.168.78.101:30086", []string{"east1 169.254.0.253"}},
		{"the same by the other Node", underlay, "tcp", "192.168.78.102:30086", []string{"east1 192.168.78.102"}},
		{"load balancer", underlay, "tcp", "198.51.100.10:80", []string{"east1/pod1 192.168.79.7"}},
		{"external address", underlay, "tcp", "198.51.100.11:80", []string{"east1/pod1 192.168.79.7"}},
		{
			"load balancer with the Node's own address", underlay, "tcp", "192.168.78.102:30089",
			[]string{"east1/pod1 10.11.1.254"},
		},
		{"UDP", underlay, "udp", "192.168.78.101:30053", []string{"east1/pod2 192.168.79.7"}},
		{"UDP by the other Node", underlay, "udp", "192.168.78.102:30053", []string{"east1/pod2 10.11.1.254"}},
		{"own process", one.host, "tcp", "192.168.78.101:30081", []string{"east1/pod1 192.168.78.101"}},
		{
			"own process, endpoint on another Node", two.host, "tcp", "192.168.78.102:30081",
			[]string{"east1/pod1 10.11.1.254"},
		},
		{"own process, 127.0.0.1", one.host, "tcp", "127.0.0.1:30081", []string{"east1/pod1 10.11.0.1"}},
		{
			"own process, externalTrafficPolicy Local", one.host, "tcp", "127.0.0.1:30083",
			[]string{"east2/pod2 10.11.0.1"},
		},
		{"Pod to its Node's port", one.pods[1], "tcp", "192.168.78.101:30081", []string{"east1/pod1 10.11.0.3"}},
		{
			"Pod to itself by its Node's port", one.pods[0], "tcp", "192.168.78.101:30081",
			[]string{"east1/pod1 169.254.0.253"},
		},
		{"Pod to a load balancer", two.pods[0], "tcp", "198.51.100.10:80", []string{"east1/pod1 10.11.1.2"}},
	} {
		t.Run(r.name, r.check)
	}
	for _, to := range []string{"198.51.100.14:80", "192.168.78.101:30084"} {
		if answer, err := underlay.askWithin(3*time.Second, "tcp", to); err == nil {
			t.Errorf("%s, which lets this client not in, answers %q", to, answer)
		}
	}
}
