package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
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
	s.Node.NodePortAddresses = s.Node.Tunnels.Ends
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
	limited.Sources = []netip.Prefix{rangeOf("203.0.113.0/24"), rangeOf("10.11.0.3/32"), host(s.Node.Tunnels.Ends[0])}
	tcp("nobody", "198.51.100.15:80", service.LoadBalancer, all, here)
	s.Frontends[len(s.Frontends)-1].Limited = true
	// A load balancer that gives the Node's own address, and a port that another Service has as its node port.
	tcp("vip", s.Node.Tunnels.Ends[0].String()+":30089", service.LoadBalancer, all, here)
	tcp("rival", "0.0.0.0:30089", service.NodePort, all, there)
	udp := frontend("query", corev1.ProtocolUDP, "0.0.0.0:30053", "10.11.0.3:5353")
	s.Frontends = append(s.Frontends, kindOf(udp, service.NodePort, all))
	return s
}

// sixOf has the addresses of IPv6 that stand for addresses of IPv4 in outsideNode.
var sixOf = map[string]string{
	"0.0.0.0": "::", "10.11.0.254": "fd11::ffff:ffff:ffff:fffe", "10.11.1.254": "fd11::1:ffff:ffff:ffff:fffe",
	"169.254.0.253": "fc01::aabb:ccdd:eeff", "169.254.0.252": "fc01::aabb:ccdd:eefe",
	"169.254.0.251": "fc01::aabb:ccdd:eefd", "169.254.0.250": "fc01::aabb:ccdd:eefc",
	"169.254.0.249": "fc01::aabb:ccdd:eefb", "192.168.78.101": "2001:db8:78::101", "192.168.78.102": "2001:db8:78::102",
	"192.168.79.7": "2001:db8:78::7",
}

// inSix writes a text with addresses of IPv4 with the addresses of IPv6 that stand for them. Addresses in which tunnels
// end stay.
func inSix(text string) string {
	address := regexp.MustCompile(`(tunnel )?(\d+)\.(\d+)\.(\d+)\.(\d+)(:)?`)
	return address.ReplaceAllStringFunc(text, func(found string) string {
		four, port := strings.CutSuffix(found, ":")
		if strings.HasPrefix(found, "tunnel ") {
			return found
		}
		six, ok := sixOf[four]
		if !ok {
			b := strings.Split(four, ".")
			last := b[3]
			switch prefix := strings.Join(b[:3], "."); prefix {
			case "10.11.0":
				six = "fd11::" + last
			case "10.11.1":
				six = "fd11:0:0:1::" + last
			default:
				six = fmt.Sprintf("2001:db8:%s:%s::%s", b[0], b[2], last)
			}
		}
		if port {
			return "[" + six + "]:"
		}
		return six
	})
}

// outsideNode6 is outsideNode with both versions of IP, and with the same Services in IPv6. Without IPv4 it has IPv6
// alone.
func outsideNode6(n int, families family.Families) State {
	four := outsideNode(n)
	s := withIPv6(four, n, families)
	addr := func(ip netip.Addr) netip.Addr { return addrOf(inSix(ip.String())) }
	at := func(ip netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(addr(ip.Addr()), ip.Port()) }
	own := addr(four.Node.Tunnels.Ends[0])
	s.Node.NodePortAddresses = append(slices.Clone(s.Node.NodePortAddresses), own)
	s.Node.ServiceSource6, _ = policy.ServiceSource(s.Node.PodCIDRs[len(s.Node.PodCIDRs)-1])
	if !families.Has4() {
		s.Node.NodePortAddresses, s.Node.ServiceSource = []netip.Addr{own}, netip.Addr{}
		s.Frontends = slices.DeleteFunc(s.Frontends, func(f service.Frontend) bool { return f.VIP.Addr().Is4() })
		s.Peering, s.Exported = peering.Peering{}, nil
	}
	for _, f := range four.Frontends {
		if f.Kind == service.ClusterIP || f.Service == "far" { // other clusters are reached by IPv4 alone
			continue
		}
		f.VIP, f.Endpoints, f.Sources = at(f.VIP), slices.Clone(f.Endpoints), slices.Clone(f.Sources)
		for i := range f.Endpoints {
			f.Endpoints[i].Addr = at(f.Endpoints[i].Addr)
		}
		for i, p := range f.Sources {
			bits := p.Bits() * 2
			if p.IsSingleIP() {
				bits = 128
			}
			f.Sources[i] = netip.PrefixFrom(addr(p.Addr()), bits)
		}
		s.Frontends = append(s.Frontends, f)
	}
	return s
}

// entryOf is the destination that the host gives a packet to a frontend's address: "192.0.2.1:80" of a load balancer,
// or ":30080" of a node port.
func entryOf(t *testing.T, tables *Tables, at string, own bool) string {
	t.Helper()
	return entryOfVersion(t, tables, at, own, strings.HasPrefix(at, "["))
}

// entryOfVersion is entryOf for a version of IP, which a node port does not name.
func entryOfVersion(t *testing.T, tables *Tables, at string, own, six bool) string {
	t.Helper()
	want := Entry{Own: own}
	port := at[strings.LastIndex(at, ":")+1:]
	if !strings.HasPrefix(at, ":") {
		want.External = true
		number, ok := tables.Services.Entries.Get(EntryID{corev1.ProtocolTCP, netip.MustParseAddrPort(at)})
		if !ok {
			t.Fatalf("%s has no number", at)
		}
		port = fmt.Sprint(number)
	}
	for _, e := range Entries {
		if e.External == want.External && e.Own == own && e.Addr.Is6() == six {
			return net.JoinHostPort(e.Addr.String(), port)
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
	six    bool   // it is over IPv6
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
	of := func(node func(int) State) map[string]State {
		return map[string]State{"east1": node(1), "east2": node(2), "west1": westNode(1), "west2": westNode(2)}
	}
	outsideConversations(t, of(outsideNode), outsideRows)
	for _, families := range []family.Families{family.Dual, family.IPv6} {
		t.Run(families.String(), func(t *testing.T) {
			states := of(func(n int) State { return outsideNode6(n, families) })
			outsideConversations(t, states, outsideRows6())
			if families.Has4() {
				outsideConversations(t, states, outsideRows)
			}
		})
	}
}

// outsideRows6 are outsideRows in IPv6.
func outsideRows6() (out []outsideRow) {
	for _, row := range outsideRows {
		if row.to == ":30087" || row.client == "10.96.0.77" { // other clusters
			continue
		}
		row.client, row.to, row.there, row.back = inSix(row.client), inSix(row.to), inSix(row.there), inSix(row.back)
		row.six = true
		out = append(out, row)
	}
	return out
}

func outsideConversations(t *testing.T, states map[string]State, rows []outsideRow) {
	tables := outsideTablesOf(states["east1"])
	for _, test := range rows {
		t.Run(test.name, func(t *testing.T) {
			c := cableOf(t, states)
			to := test.to
			if strings.HasSuffix(test.at, " host") {
				to = entryOfVersion(t, tables, test.to, test.own, test.six)
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
	c := newSources(outsideNode6(1, family.Dual))
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
		for i, at := range []string{row.to, inSix(row.to)} {
			to := netip.MustParseAddrPort(entryOfVersion(t, c.tables, at, row.own, i == 1))
			model.Forget()
			k := oftest.Packet{EthSrc: gwMAC, EthDst: InClusterMAC, InPort: gatewayPort, Proto: oftest.TCP,
				IPSrc: c.Node.GatewayIPs[i], SrcPort: 40000, IPDst: to.Addr(), DstPort: to.Port()}
			if have := met(model.Send(k)); have != row.want {
				t.Errorf("%s at %s: %s, want %s", row.name, at, have, row.want)
			}
		}
	}
}

// TestOutsideWalks asks a real switch where the first packets go.
func TestOutsideWalks(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { outsideWalks(t, outsideNode(1), outsideRows) })
	t.Run("both", func(t *testing.T) {
		outsideWalks(t, outsideNode6(1, family.Dual), append(outsideRows6(), outsideRows...))
	})
}

func outsideWalks(t *testing.T, s State, rows []outsideRow) {
	o, tables := dummyBridge(t), outsideTablesOf(s)
	o.program(t, "br-int", setOf(t, mustPlan(t, s)))
	for _, test := range rows {
		node, in, _ := strings.Cut(test.at, " ")
		if node != "east1" {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			w := walk{node: 1, in: in, from: test.client, to: test.to}
			own := map[string]string{"host": "10.11.0.1", "pod1": "10.11.0.2", "pod2": "10.11.0.3"}[in]
			if test.six {
				own = inSix(own)
			}
			if in == "host" {
				w.in, w.to = "gateway", entryOfVersion(t, tables, test.to, test.own, test.six)
			}
			w.from = cmp.Or(w.from, own)
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
	s := outsideNode6(1, family.Dual)
	c := newSources(s)
	c.engine.Pass()
	asked := c.tables.Services.Asked(frontendsOf(s))
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
		{entryOfVersion(t, c.tables, ":30085", false, true), "none"},
		{entryOfVersion(t, c.tables, ":30085", true, true), "none"},
		{"[2001:db8:78::101]:30085", "none"},
		{"[2001:db8:78::102]:30085", ""},
		{entryOf(t, c.tables, inSix("198.51.100.10:80"), false), "here"},
		{inSix("198.51.100.10:80"), "here"},
		{"[fc01::aabb:ccdd:eefc]:1", ""},
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
	for entry, client := range map[netip.Addr]string{Entries[0].Addr: world, Entries[4].Addr: inSix(world)} {
		answer := oftest.Packet{
			IPSrc: entry, SrcPort: 30085, IPDst: addrOf(client), DstPort: 40000, Proto: oftest.TCP,
		}
		r := node.PacketOut(answer, flow.Do(flow.Load(generated, 1), flow.Resubmit(Route)))
		if len(r.Outputs) != 1 || r.Outputs[0].Port != gatewayPort {
			t.Errorf("the answer of %s goes %s", entry, r)
		}
	}
}

// TestDestinations has the addresses of connections to a frontend, which are forgotten with its endpoints.
func TestDestinations(t *testing.T) {
	c := newSources(outsideNode6(1, family.Dual))
	c.engine.Pass()
	number := func(at string) string {
		entry := entryOf(t, c.tables, at, false)
		return entry[strings.LastIndex(entry, ":")+1:]
	}
	for _, f := range c.Frontends {
		have := fmt.Sprint(c.tables.Services.Destinations(f))
		want, version := f.VIP.String(), func(four string) string { return four }
		if f.VIP.Addr().Is6() {
			version = inSix
		}
		switch port := fmt.Sprint(f.VIP.Port()); f.Kind {
		case service.NodePort:
			want = version("192.168.78.101:" + port + " 169.254.0.252:" + port + " 169.254.0.251:" + port)
		case service.LoadBalancer, service.ExternalIP:
			want += version(" 169.254.0.250:" + number(want) + " 169.254.0.249:" + number(want))
		}
		want = "[" + want + "]"
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
func (n *realNode) translating(t testing.TB, s State) {
	t.Helper()
	tables := outsideTablesOf(s)
	var in, out strings.Builder
	frontends := slices.Clone(s.Frontends)
	external := func(a, b service.Frontend) int { return cmp.Compare(b.Kind, a.Kind) } // first
	slices.SortStableFunc(frontends, external)
	for _, f := range frontends {
		protocol, version := strings.ToLower(string(f.Protocol)), [2]string{"ipv4", "ip"}
		if f.VIP.Addr().Is6() {
			version = [2]string{"ipv6", "ip6"}
		}
		for _, e := range Entries {
			chain := &in
			if e.Own {
				chain = &out
			}
			switch {
			case f.Clients == service.OtherClients || e.External == (f.Kind == service.NodePort):
			case f.VIP.Addr().Is4() != e.Addr.Is4():
			case f.Kind == service.NodePort && e.Own:
				fmt.Fprintf(chain, "meta nfproto %s fib daddr type local %s dport %d dnat %s to %s\n",
					version[0], protocol, f.VIP.Port(), version[1], netip.AddrPortFrom(e.Addr, f.VIP.Port()))
			case f.Kind == service.NodePort:
				fmt.Fprintf(chain, "%s daddr %s %s dport %d dnat %[1]s to %[5]s\n", version[1],
					ofFamily(s.Node.NodePortAddresses, e.Addr), protocol, f.VIP.Port(), netip.AddrPortFrom(e.Addr, f.VIP.Port()))
			case f.Kind != service.ClusterIP:
				number, _ := tables.Services.Entries.Get(EntryID{f.Protocol, f.VIP})
				fmt.Fprintf(chain, "%s daddr %s %s dport %d dnat %[1]s to %[5]s\n",
					version[1], f.VIP.Addr(), protocol, f.VIP.Port(), netip.AddrPortFrom(e.Addr, uint16(number)))
			}
		}
	}
	n.host.run(t, "sh", "-c", "cd /proc/sys/net/ipv4 && echo 1 > ip_forward && echo 1 > conf/gw0/route_localnet && "+
		"echo 2 > conf/gw0/rp_filter && echo 1 > ../ipv6/conf/all/forwarding")
	n.host.ip(t, fmt.Sprintf("route add %s via %s dev gw0 onlink", EntryRange, vip),
		fmt.Sprintf("route add %s via %s dev gw0 onlink", EntryRange6, vip6))
	n.host.feed(t, fmt.Sprintf(`table inet tombolo-services {
chain in { type nat hook prerouting priority -110
iifname "gw0" accept
%s}
chain out { type nat hook output priority -110
%s}
chain post { type nat hook postrouting priority srcnat
ip saddr 127.0.0.0/8 oifname "gw0" masquerade
ip saddr %s oifname != "gw0" masquerade
ip6 saddr %s oifname != "gw0" masquerade
ip saddr 10.11.0.0/16 oifname != "gw0" masquerade
ip6 saddr fd11::/48 oifname != "gw0" masquerade
}
}
`, in.String(), out.String(), vip, vip6), "nft", "-f", "-")
}

// TestTrafficFromOutside sends real connections to node ports and external addresses of two Nodes, and to a port of a
// Pod, from a client in the Nodes' network, from processes of a Node and from Pods. A Pod also connects to that client.
func TestTrafficFromOutside(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up", "address add 192.168.79.7/16 dev hub",
		"route add 198.51.100.0/24 via 192.168.78.101", "address add 203.0.113.7/32 dev lo",
		"address add 2001:db8:78::7/64 dev hub nodad", "route add 2001:db8:198:100::/64 via 2001:db8:78::101")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	states := []State{outsideNode6(1, family.Dual), outsideNode6(2, family.Dual)}
	states[0].Pods[0].HostPorts = true
	one := newNode(t, underlay, states[0], "east1", eastOne, "10.97.0.0/16")
	two := newNode(t, underlay, states[1], "east2", eastTwo, "10.97.0.0/16")
	link := "br-phy"
	if ovstest.System() {
		link = "uplink"
	}
	for i, n := range []*realNode{one, two} {
		n.host.ip(t, fmt.Sprintf("address add 2001:db8:78::%d/64 dev %s nodad", 101+i, link))
		n.translating(t, states[i])
		n.host.ip(t, "route add 203.0.113.7 via 192.168.79.7")
	}
	one.host.feed(t, `table inet ports {
chain in { type nat hook prerouting priority -120
ip daddr 192.168.78.101 tcp dport 8088 dnat ip to 10.11.0.2:8080
ip6 daddr 2001:db8:78::101 tcp dport 8088 dnat ip6 to [fd11::2]:8080
}
}
`, "nft", "-f", "-")
	for _, v := range []string{"", "6"} {
		underlay.serve(t, "tcp"+v, ":9091", "machine")
		one.pods[0].serve(t, "tcp"+v, ":8080", "east1/pod1")
		one.pods[1].serve(t, "udp"+v, ":5353", "east1/pod2")
		two.pods[1].serve(t, "tcp"+v, ":8080", "east2/pod2")
	}
	one.host.serve(t, "tcp", "192.168.78.101:9090", "east1")
	one.host.serve(t, "tcp6", "[2001:db8:78::101]:9090", "east1")
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
		{"port of a Pod", underlay, "tcp", "192.168.78.101:8088", []string{"east1/pod1 192.168.79.7"}},
		{"port of a Pod, from another Pod", one.pods[1], "tcp", "192.168.78.101:8088", []string{"east1/pod1 10.11.0.3"}},
		{
			"port of a Pod, from the Pod itself", one.pods[0], "tcp", "192.168.78.101:8088",
			[]string{"east1/pod1 169.254.0.253"},
		},
		{"Pod to a machine outside", one.pods[1], "tcp", "192.168.79.7:9091", []string{"machine 192.168.78.101"}},
	} {
		t.Run(r.name, r.check)
		if strings.HasPrefix(r.to, "127.") {
			continue // ::1 cannot be translated: it never leaves the Node
		}
		r.network, r.to, r.want = r.network+"6", inSix(r.to), slices.Clone(r.want)
		for i := range r.want {
			r.want[i] = inSix(r.want[i])
		}
		t.Run(r.name+" by IPv6", r.check)
	}
	for _, to := range []string{
		"198.51.100.14:80", "192.168.78.101:30084", inSix("198.51.100.14:80"), inSix("192.168.78.101:30084"),
	} {
		if answer, err := underlay.askWithin(3*time.Second, "tcp", to); err == nil {
			t.Errorf("%s, which lets this client not in, answers %q", to, answer)
		}
	}
}
