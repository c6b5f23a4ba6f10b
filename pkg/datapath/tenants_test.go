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

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// isolated is the place of an isolated Namespace.
func isolated(id tenant.ID, joined ...tenant.ID) tenant.Place {
	return tenant.Place{Known: true, Network: tenant.Name{Name: fmt.Sprint(id)}, ID: id, Joined: joined}
}

// tenantNodes are east1 and east2 with four Pods each, in these Namespaces: default twice, then a and b.
func tenantNodes(places map[string]tenant.Place) map[string]State {
	states := map[string]State{"east1": dualNode(1), "east2": dualNode(2)}
	for name, s := range states {
		s.Peering, s.Exported = onNode(1).Peering, nil
		s.Peering.Peers, s.Peering.Part.Role = nil, 0
		for i, namespace := range []string{"a", "b"} {
			pod := s.Pods[0]
			pod.Namespace, pod.Name, pod.Interface = namespace, "pod"+fmt.Sprint(3+i), "pod"+fmt.Sprint(3+i)
			pod.Port, pod.MAC[5] = ofp.Port(3+i), byte(4+i)
			pod.IPs = nil
			for _, ip := range s.Pods[0].IPs {
				for range 2 + i {
					ip = ip.Next()
				}
				pod.IPs = append(pod.IPs, ip)
			}
			s.Pods = append(s.Pods, pod)
		}
		s.Places = places
		s.Frontends = slices.DeleteFunc(s.Frontends, func(f service.Frontend) bool { return f.Service != "kubernetes" })
		states[name] = s
	}
	return states
}

// serviceOf adds a Service of a Namespace to all Nodes.
func serviceOf(states map[string]State, namespace, name, vip string, endpoints ...string) {
	f := frontend(name, corev1.ProtocolTCP, vip, endpoints...)
	f.Namespace = namespace
	for node, s := range states {
		s.Frontends = append(slices.Clone(s.Frontends), f)
		states[node] = s
	}
}

func placesOfTwo() map[string]tenant.Place {
	return map[string]tenant.Place{"default": {Known: true}, "a": isolated(0xa1b2c3), "b": isolated(0xb00001)}
}

// TestTenantConversations follows conversations of two isolated Namespaces and the default network over two Nodes.
func TestTenantConversations(t *testing.T) {
	type row struct{ name, from, to, there, back string }
	rows := []row{
		{"Pod to its Namespace on another Node", "east1 pod3", "10.11.1.4:80",
			"east1 east2 pod3: 10.11.0.4:40000 > 10.11.1.4:80", "east2 east1 pod3: 10.11.1.4:80 > 10.11.0.4:40000"},
		{"by IPv6", "east1 pod3", "[fd11:0:0:1::4]:80", "east1 east2 pod3: [fd11::4]:40000 > [fd11:0:0:1::4]:80",
			"east2 east1 pod3: [fd11:0:0:1::4]:80 > [fd11::4]:40000"},
		{"Pod to another isolated Namespace on its Node", "east1 pod3", "10.11.0.5:80", "east1 dropped in Tenant", ""},
		{"on another Node", "east1 pod3", "10.11.1.5:80", "east1 east2 dropped in Tenant", ""},
		{"on another Node by IPv6", "east1 pod3", "[fd11:0:0:1::5]:80", "east1 east2 dropped in Tenant", ""},
		{"Pod to the default network on its Node", "east1 pod3", "10.11.0.3:80", "east1 dropped in Tenant", ""},
		{"to the default network on another Node", "east1 pod3", "10.11.1.3:80", "east1 east2 dropped in Tenant", ""},
		{"default network to an isolated Pod on its Node", "east1 pod1", "10.11.0.4:80", "east1 dropped in Route", ""},
		{"default network to one on another Node", "east1 pod1", "10.11.1.4:80", "east1 east2 dropped in Route", ""},
		{"default network to one on another Node by IPv6", "east1 pod1", "[fd11:0:0:1::4]:80",
			"east1 east2 dropped in Route", ""},
		{"default network as before", "east1 pod1", "10.11.1.3:80",
			"east1 east2 pod2: 10.11.0.2:40000 > 10.11.1.3:80", "east2 east1 pod1: 10.11.1.3:80 > 10.11.0.2:40000"},
		{"Pod to the API server", "east1 pod3", "10.97.0.1:443",
			"east1 host: 10.11.0.4:40000 > 172.30.1.10:6443", "east1 pod3: 10.97.0.1:443 > 10.11.0.4:40000"},
		{"Pod to the world", "east1 pod3", "192.0.2.1:443", "east1 dropped in Tenant", ""},
		{"Pod that may leave to the world", "east1 pod4", "192.0.2.1:443",
			"east1 host: 10.11.0.5:40000 > 192.0.2.1:443", "east1 pod4: 192.0.2.1:443 > 10.11.0.5:40000"},
		{"to the world by IPv6", "east1 pod4", "[2001:db8::1]:443",
			"east1 host: [fd11::5]:40000 > [2001:db8::1]:443", "east1 pod4: [2001:db8::1]:443 > [fd11::5]:40000"},
		{"to the default network", "east1 pod4", "10.11.0.3:443", "east1 dropped in Tenant", ""},
		{"to its Node", "east1 pod4", "10.11.0.1:10250", "east1 dropped in Tenant", ""},
		{"to a ClusterIP without Service", "east1 pod4", "10.97.0.200:80", "east1 dropped in Tenant", ""},
		{"to loopback of its Node", "east1 pod4", "127.0.0.1:80", "east1 dropped in Tenant", ""},
		{"to the tunnel of a Node", "east1 pod4", "192.168.78.102:80",
			"east1 host: 10.11.0.5:40000 > 192.168.78.102:80", "east1 pod4: 192.168.78.102:80 > 10.11.0.5:40000"},
		{"the kubelet's probe", "east1 host", "10.11.0.4:8080",
			"east1 pod3: 10.11.0.1:40000 > 10.11.0.4:8080", "east1 host: 10.11.0.4:8080 > 10.11.0.1:40000"},
		{"the kubelet's probe by IPv6", "east1 host", "[fd11::4]:8080",
			"east1 pod3: [fd11::1]:40000 > [fd11::4]:8080", "east1 host: [fd11::4]:8080 > [fd11::1]:40000"},
		{"another Node's host", "east1 host", "10.11.1.4:8080", "east1 east2 dropped in Route", ""},
		{"Pod to a Service of the default network", "east1 pod3", "10.97.0.50:80",
			"east1 pod2: 10.11.0.4:40000 > 10.11.0.3:8080", "east1 pod3: 10.97.0.50:80 > 10.11.0.4:40000"},
		{"with an endpoint on another Node", "east1 pod3", "10.97.0.51:80",
			"east1 east2 pod2: 10.11.0.4:40000 > 10.11.1.3:8080", "east2 east1 pod3: 10.97.0.51:80 > 10.11.0.4:40000"},
		{"Pod to a Service of its Namespace", "east1 pod3", "10.97.0.52:80",
			"east1 east2 pod3: 10.11.0.4:40000 > 10.11.1.4:8080", "east2 east1 pod3: 10.97.0.52:80 > 10.11.0.4:40000"},
		{"Pod to itself by a Service of its Namespace", "east2 pod3", "10.97.0.52:80",
			"east2 pod3: 169.254.0.253:40000 > 10.11.1.4:8080", "east2 pod3: 10.97.0.52:80 > 10.11.1.4:40000"},
		{"Pod to a Service of another isolated Namespace", "east1 pod4", "10.97.0.52:80",
			"east1 east2 dropped in Tenant", ""},
		{"default network to a Service of an isolated Namespace", "east1 pod1", "10.97.0.52:80",
			"east1 dropped in Route", ""},
		{"Pod to a Service of its Namespace whose endpoint is in the default network", "east1 pod3", "10.97.0.53:80",
			"east1 dropped in Tenant", ""},
		{"whose endpoint is outside", "east1 pod3", "10.97.0.54:80", "east1 dropped in Tenant", ""},
		{"default network to it", "east1 pod1", "10.97.0.54:80", "east1 dropped in Route", ""},
		{"Service of the default network whose endpoint is an isolated Pod", "east1 pod1", "10.97.0.55:80",
			"east1 dropped in Route", ""},
		{"the same for a Pod of that Namespace", "east2 pod3", "10.97.0.55:80", "east2 east1 dropped in Route", ""},
	}
	places := placesOfTwo()
	leaves := places["b"]
	leaves.Outside = true
	places["b"] = leaves
	states := tenantNodes(places)
	serviceOf(states, "default", "near", "10.97.0.50:80", "10.11.0.3:8080")
	serviceOf(states, "default", "far", "10.97.0.51:80", "10.11.1.3:8080")
	serviceOf(states, "a", "own", "10.97.0.52:80", "10.11.1.4:8080")
	serviceOf(states, "a", "default", "10.97.0.53:80", "10.11.0.3:8080")
	serviceOf(states, "a", "outside", "10.97.0.54:80", "192.0.2.1:8080")
	serviceOf(states, "default", "mixed", "10.97.0.55:80", "10.11.0.4:8080")
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := cableOf(t, states)
			p := c.request(row.from, row.to, oftest.TCP)
			if strings.Contains(row.from, "host") {
				p.EthDst = podMACOne // the host knows Pods as neighbours
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

// fromOutside adds a NodePort Service and an external address of a Namespace to all Nodes, which have one endpoint.
func fromOutside(states map[string]State, namespace string, port int, endpoint string) {
	zero, external := "0.0.0.0", "192.0.2.40"
	if netip.MustParseAddrPort(endpoint).Addr().Is6() {
		zero, external = "[::]", "[2001:db8::40]"
	}
	for node, s := range states {
		s.Node.Outside, s.Node.NodePortAddresses = true, s.Node.Tunnels.Ends
		for vip, kind := range map[string]service.Kind{zero: service.NodePort, external: service.ExternalIP} {
			f := frontend(fmt.Sprint("out-", port), corev1.ProtocolTCP, fmt.Sprint(vip, ":", port), endpoint)
			f = kindOf(f, kind, service.AllClients)
			f.Namespace = namespace
			s.Frontends = append(slices.Clone(s.Frontends), f)
		}
		states[node] = s
	}
}

// TestTenantsFromOutside takes connections from outside, of the Node and of its Pods to published Services of isolated
// Namespaces. They reach Pods of the Service's network on the Node that they come to, and nothing else.
func TestTenantsFromOutside(t *testing.T) {
	const node, own, external, ownExternal = ":30081", "own :30081", "192.0.2.40:30081", "own 192.0.2.40:30081"
	const node6, external6, nodeOfPod = "six :30081", "six [2001:db8::40]:30081", "192.168.78.101:30081"
	for _, test := range []struct {
		name, namespace, endpoint, from, to string
		want                                string // "" for dropped
	}{
		{"client outside", "a", "10.11.0.4:8080", "east1 host", node, "east1 pod3"},
		{"process of the Node", "a", "10.11.0.4:8080", "east1 host", own, "east1 pod3"},
		{"client outside by the external address", "a", "10.11.0.4:8080", "east1 host", external, "east1 pod3"},
		{"process of the Node by that", "a", "10.11.0.4:8080", "east1 host", ownExternal, "east1 pod3"},
		{"by IPv6", "a", "[fd11::4]:8080", "east1 host", node6, "east1 pod3"},
		{"by IPv6 to the external address", "a", "[fd11::4]:8080", "east1 host", external6, "east1 pod3"},
		{"endpoint in another network", "b", "10.11.0.4:8080", "east1 host", node, ""},
		{"endpoint in another network, for the Node", "b", "10.11.0.4:8080", "east1 host", own, ""},
		{"endpoint in another network by the external address", "b", "10.11.0.4:8080", "east1 host", external, ""},
		{"endpoint in another network by IPv6", "b", "[fd11::4]:8080", "east1 host", node6, ""},
		{"endpoint in the default network", "a", "10.11.0.3:8080", "east1 host", node, ""},
		{"endpoint in the default network by IPv6", "a", "[fd11::3]:8080", "east1 host", node6, ""},
		{"endpoint in the default network by the external address", "a", "10.11.0.3:8080", "east1 host", external, ""},
		{"endpoint in the default network on another Node", "a", "10.11.1.3:8080", "east1 host", node, ""},
		{"endpoint in the network on another Node", "a", "10.11.1.4:8080", "east1 host", node, ""},
		{"endpoint outside", "a", "192.0.2.1:8080", "east1 host", node, ""},
		{"endpoint on the Node itself", "a", "10.11.0.1:8080", "east1 host", node, ""},
		{"isolated endpoint of the default network's Service", "default", "10.11.0.4:8080", "east1 host", node, ""},
		{"Service of the default network", "default", "10.11.0.3:8080", "east1 host", node, "east1 pod2"},
		{"Pod of the network", "a", "10.11.0.4:8080", "east1 pod3", nodeOfPod, "east1 pod3"},
		{"Pod of the default network", "a", "10.11.0.4:8080", "east1 pod1", nodeOfPod, ""},
		{"Pod of the default network to an endpoint there", "a", "10.11.0.3:8080", "east1 pod1", nodeOfPod, ""},
		{"Pod of another network", "a", "10.11.0.4:8080", "east1 pod4", nodeOfPod, ""},
		{"Pod of another network to the default network", "default", "10.11.0.3:8080", "east1 pod4", nodeOfPod,
			"east1 pod2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			states := tenantNodes(placesOfTwo())
			fromOutside(states, test.namespace, 30081, test.endpoint)
			c := cableOf(t, states)
			to, isOwn := strings.CutPrefix(test.to, "own ")
			to, isSix := strings.CutPrefix(to, "six ")
			if to != nodeOfPod {
				to = entryOfVersion(t, outsideTablesOf(states["east1"]), to, isOwn, isSix)
			}
			p := c.request(test.from, to, oftest.TCP)
			switch {
			case to == nodeOfPod:
			case isSix:
				p.IPSrc = addrOf("2001:db8::9")
			default:
				p.IPSrc = addrOf("203.0.113.9")
			}
			for packet := range 3 {
				w := c.send(test.from, p)
				have := strings.Join(w.places, " ")
				if strings.Contains(have, "dropped") {
					have = ""
				}
				if have != test.want {
					t.Fatalf("packet %d goes %s, want %q", packet, w, test.want)
				}
				if have == "" {
					continue
				}
				if back := c.send(test.want, w.packet.Reply()); strings.Join(back.places, " ") != test.from {
					t.Fatalf("the reply %d goes %s", packet, back)
				}
			}
		})
	}
}

// TestAPIServerOfIsolatedDefault isolates Namespace default. All Pods still reach the API server, and
// no other Service there.
func TestAPIServerOfIsolatedDefault(t *testing.T) {
	states := tenantNodes(map[string]tenant.Place{"default": isolated(5), "a": {Known: true}, "b": isolated(7)})
	serviceOf(states, "default", "web", "10.97.0.50:80", "10.11.0.2:8080")
	c := cableOf(t, states)
	for _, pod := range []string{"east1 pod1", "east1 pod3", "east1 pod4"} {
		if w := c.send(pod, c.request(pod, "10.97.0.1:443", oftest.TCP)); !strings.HasPrefix(w.String(), "east1 host") {
			t.Errorf("%s to the API server: %s", pod, w)
		}
		w := c.send(pod, c.request(pod, "10.97.0.50:80", oftest.TCP))
		if reached := !strings.Contains(w.String(), "dropped"); reached != (pod == "east1 pod1") {
			t.Errorf("%s to another Service of the Namespace: %s", pod, w)
		}
	}
}

// TestTenantServicesShareFlows has the flows that drop packets to any Service of tenants once, also on a Node without
// isolated Pods.
func TestTenantServicesShareFlows(t *testing.T) {
	flows := func(services int) int {
		s := onNode(1)
		s.Places = placesOfTwo()
		states := map[string]State{"": s}
		for i := range services {
			serviceOf(states, "a", fmt.Sprint("s", i), fmt.Sprintf("10.97.1.%d:80", i), "10.11.1.4:8080")
		}
		n := 0
		for _, e := range mustPlan(t, states[""]) {
			for _, f := range e.Flows {
				if f.Table == Route {
					n++
				}
			}
		}
		return n
	}
	if none, one, many := flows(0), flows(1), flows(20); one != none+2 || many != one {
		t.Errorf("%d flows of table Route without Services of tenants, %d with one, %d with 20", none, one, many)
	}
}

// TestTenantsCost compares a Node with the gate on and without isolated Pods with a Node without the gate. The flows
// are the same.
func TestTenantsCost(t *testing.T) {
	want := setOf(t, mustPlan(t, onNode(1)))
	s := onNode(1)
	s.Places = placesOfTwo()
	if change := flow.Diff(want, setOf(t, mustPlan(t, s))); !change.Empty() {
		t.Errorf("a Node without isolated Pods has other flows:\n%s", change)
	}
	// Networks without a Pod here cost nothing, and a joined one costs a route and an answer of each Pod.
	few, many := tenantNodes(placesOfTwo())["east1"], tenantNodes(placesOfTwo())["east1"]
	many.Places = placesOfTwo()
	for i := range 1000 {
		many.Places[fmt.Sprint("other-", i)] = isolated(tenant.ID(1000 + i))
	}
	if change := flow.Diff(setOf(t, mustPlan(t, few)), setOf(t, mustPlan(t, many))); !change.Empty() {
		t.Errorf("1000 networks of other Nodes change flows:\n%s", change)
	}
}

// TestTenantLeavesWithItsService deletes a Service of an isolated Namespace that leads outside, between the first and
// the second packet. The connection does not become one to a Service of the default network.
func TestTenantLeavesWithItsService(t *testing.T) {
	states := tenantNodes(placesOfTwo())
	serviceOf(states, "a", "outside", "10.97.0.54:80", "192.0.2.1:8080")
	c := cableOf(t, states)
	p := c.request("east1 pod3", "10.97.0.54:80", oftest.TCP)
	for range 2 {
		if w, want := c.send("east1 pod3", p), "east1 dropped in Tenant"; w.String() != want {
			t.Errorf("%s, want %s", w, want)
		}
		if err := c.nodes["east1"].Replace(c.entries(tenantNodes(placesOfTwo())["east1"])...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTenantIsolatedLater isolates a Namespace whose Pods have connections. All of them end but those to Services.
func TestTenantIsolatedLater(t *testing.T) {
	open := map[string]tenant.Place{"default": {Known: true}, "a": {Known: true}, "b": {Known: true}}
	states := tenantNodes(open)
	serviceOf(states, "default", "far", "10.97.0.51:80", "10.11.1.3:8080")
	c := cableOf(t, states)
	direct := c.request("east1 pod3", "10.11.1.3:80", oftest.TCP)
	service := c.request("east1 pod3", "10.97.0.51:80", oftest.TCP)
	there, byService := c.send("east1 pod3", direct), c.send("east1 pod3", service)
	back, serviceBack := there.packet.Reply(), byService.packet.Reply()
	for _, p := range []oftest.Packet{back, serviceBack} {
		if w := c.send("east2 pod2", p); !strings.HasPrefix(w.String(), "east2 east1 pod3") {
			t.Fatalf("before: %s", w)
		}
	}
	for name, s := range states {
		s.Places = placesOfTwo()
		if err := c.nodes[name].Replace(c.entries(s)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		from   string
		packet oftest.Packet
		want   string
	}{
		{"east1 pod3", direct, "east1 east2 dropped in Tenant"},
		{"east2 pod2", back, "east2 east1 dropped in Route"},
		{"east1 pod3", service, byService.String()},
		{"east2 pod2", serviceBack, "east2 east1 pod3: 10.97.0.51:80 > 10.11.0.4:40000"},
	} {
		if w := c.send(test.from, test.packet); !strings.HasPrefix(w.String(), test.want) {
			t.Errorf("afterwards %s: %s, want %s", test.packet, w, test.want)
		}
	}
}

// TestTenantWorlds asks random worlds of networks random questions, and compares each answer with the definition, and
// with the decision that `tombolo policy why` reports. Whatever is delivered is answered, and the answer comes back.
func TestTenantWorlds(t *testing.T) {
	delivered, denied := 0, 0
	for seed := range uint64(60) {
		w := newTenantWorld(t, seed)
		for question := range 150 {
			from, to, want := w.ask()
			p := w.cable.request(from, to.String(), []uint8{oftest.TCP, oftest.UDP}[w.IntN(2)])
			if w.services[to] != "" {
				p.Proto = oftest.TCP
			}
			p.SrcPort = uint16(1024 + question)
			way := w.cable.send(from, p)
			have := way.places[len(way.places)-2] + " " + way.places[len(way.places)-1]
			if strings.Contains(have, "dropped") {
				have = ""
			}
			if have != want {
				t.Fatalf("seed %d: %s to %s goes %s, want %q\n%v\n%v", seed, from, to, way, want, w.places, w.services)
			}
			w.decides(t, w.end(from), to, "", way)
			if want == "" {
				denied++
				continue
			}
			delivered++
			back := w.cable.send(want, way.packet.Reply())
			if n := len(back.places); back.places[n-2]+" "+back.places[n-1] != from {
				t.Fatalf("seed %d: the reply to %s goes %s\n%v", seed, p, back, w.places)
			}
		}
	}
	if delivered < 1500 || denied < 3000 {
		t.Errorf("%d delivered and %d denied: too few to compare", delivered, denied)
	}
}

// TestTenantWorldsFromHosts asks the same about clients that are no Pods: processes of both Nodes and clients outside,
// by the addresses of Pods and by published Services.
func TestTenantWorldsFromHosts(t *testing.T) {
	delivered, denied := map[string]int{}, map[string]int{}
	for seed := range uint64(30) {
		w := newTenantWorld(t, seed)
		for question := range 200 {
			node := fmt.Sprint("east", 1+w.IntN(2))
			kind, entered := []string{"own", "outside"}[w.IntN(2)], ""
			to := netip.AddrPortFrom(w.targets()[w.IntN(8)], 80)
			arrives := to.String()
			if end := w.server(to); kind == "outside" && end.Node != "" {
				node = end.Node // the routers lead there
			}
			if w.IntN(2) == 0 {
				to, entered = w.vips()[w.IntN(len(w.services))], node
				kind += " by a Service"
				arrives = entryOfVersion(t, w.outside[node], fmt.Sprint(":", w.ports[to]), strings.HasPrefix(kind, "own"),
					to.Addr().Is6())
			}
			client := tenant.End{Kind: tenant.Outside}
			p := w.cable.request(node+" host", arrives, oftest.TCP)
			p.SrcPort = uint16(1024 + question)
			p.EthDst = podMACOne // a Pod of its Node is a neighbour of the host
			switch end := w.server(to); {
			case strings.HasPrefix(kind, "own") && end.Node == node:
				client.Kind = tenant.OwnHost
			case entered == "" && end.Node != node:
				p.EthDst = InClusterMAC
			}
			if strings.HasPrefix(kind, "outside") {
				p.IPSrc = ofFamily([]netip.Addr{addrOf("203.0.113.9"), addrOf("2001:db8::9")}, p.IPDst)
			}
			if w.decides(t, client, to, entered, w.cable.send(node+" host", p)) {
				delivered[kind]++
			} else {
				denied[kind]++
			}
		}
	}
	for _, kind := range []string{"own", "own by a Service", "outside", "outside by a Service"} {
		if delivered[kind] < 100 || denied[kind] < 100 {
			t.Errorf("%s: %d delivered and %d denied: too few to compare", kind, delivered[kind], denied[kind])
		}
	}
}

// decides compares the path of a packet with the decision of the networks. It reports whether the packet is delivered.
func (w *tenantWorld) decides(t *testing.T, from tenant.End, to netip.AddrPort, entered string, have travel) bool {
	t.Helper()
	c := tenant.Connection{Client: from, Server: w.server(to), Entered: entered}
	if namespace, ok := w.services[to]; ok {
		place := w.places[namespace]
		c.Service = &place
	}
	d := c.Decide()
	delivered := !strings.Contains(have.String(), "dropped")
	if delivered != d.Allowed || !d.Allowed && d.Reason == "" {
		t.Fatalf("%s to %s goes %s, and the decision is %+v\n%+v\n%v\n%v", from.Name, to, have, d, c, w.places, w.services)
	}
	if nodes := have.places[:len(have.places)-1]; !delivered && d.Node != "" && d.Node != nodes[len(nodes)-1] {
		t.Fatalf("%s to %s goes %s, and Node %s decides\n%+v\n%v", from.Name, to, have, d.Node, c, w.places)
	}
	return delivered
}

// end returns the Pod at a place.
func (w *tenantWorld) end(pod string) tenant.End {
	node, _, _ := strings.Cut(pod, " ")
	return tenant.End{Kind: tenant.Pod, Name: pod, Node: node, Place: w.places[w.in[pod]]}
}

// server returns the end of connections to an address.
func (w *tenantWorld) server(to netip.AddrPort) tenant.End {
	ip := to.Addr()
	if end, ok := w.ends[to]; ok {
		ip = end
	}
	if pod, ok := w.pods[ip]; ok {
		return w.end(pod)
	}
	if node, ok := w.inside[ip]; ok {
		return tenant.End{Kind: tenant.Inside, Node: node}
	}
	return tenant.End{Kind: tenant.Outside}
}

// vips returns the addresses of the Services, in order.
func (w *tenantWorld) vips() []netip.AddrPort {
	return slices.SortedFunc(maps.Keys(w.services), netip.AddrPort.Compare)
}

// targets returns the addresses of the Pods, in order, and two outside.
func (w *tenantWorld) targets() []netip.Addr {
	return append(slices.SortedFunc(maps.Keys(w.pods), netip.Addr.Compare), addrOf("192.0.2.1"), addrOf("2001:db8::1"))
}

// free returns the addresses of the Nodes' ranges that no Pod has, in order. Some are of gateway ports.
func (w *tenantWorld) free() []netip.Addr {
	return slices.SortedFunc(maps.Keys(w.inside), netip.Addr.Compare)
}

// tenantWorld is two Nodes, and the truth about their Pods.
type tenantWorld struct {
	*rand.Rand
	cable    *cable
	places   map[string]tenant.Place
	pods     map[netip.Addr]string // "east1 pod3"
	inside   map[netip.Addr]string // Nodes, of addresses without a Pod
	in       map[string]string     // their Namespaces
	services map[netip.AddrPort]string
	ends     map[netip.AddrPort]netip.Addr
	ports    map[netip.AddrPort]int // of the Nodes, which lead to them
	outside  map[string]*Tables     // by Node
}

var tenantSpaces = []string{"default", "kube-system", "a", "b", "c", "d"}

func newTenantWorld(t *testing.T, seed uint64) *tenantWorld {
	w := &tenantWorld{Rand: rand.New(rand.NewPCG(seed, 24)), pods: map[netip.Addr]string{},
		inside: map[netip.Addr]string{}, in: map[string]string{},
		services: map[netip.AddrPort]string{}, ends: map[netip.AddrPort]netip.Addr{}, ports: map[netip.AddrPort]int{},
		outside: map[string]*Tables{}}
	w.places = map[string]tenant.Place{"default": {Known: true}, "kube-system": {Known: true}}
	joined := map[tenant.ID][]tenant.ID{}
	for i := range tenant.ID(4) {
		for j := range i {
			if w.IntN(4) == 0 {
				joined[i+1], joined[j+1] = append(joined[i+1], j+1), append(joined[j+1], i+1)
			}
		}
	}
	for i, name := range tenantSpaces[2:] {
		p := isolated(tenant.ID(i+1), joined[tenant.ID(i+1)]...)
		p.Outside = w.IntN(2) == 0
		switch w.IntN(8) {
		case 0:
			p = tenant.Place{Known: true}
		case 1:
			p.ID, p.Joined = 0, nil // closed
		case 2:
			continue // not known
		}
		w.places[name] = p
	}
	states := tenantNodes(w.places)
	for node, s := range states {
		for i := range s.Pods {
			place := fmt.Sprintf("%s pod%d", node, s.Pods[i].Port)
			s.Pods[i].Namespace = tenantSpaces[w.IntN(len(tenantSpaces))]
			w.in[place] = s.Pods[i].Namespace
			for _, ip := range s.Pods[i].IPs {
				w.pods[ip] = place
			}
		}
		for _, gateway := range s.Node.GatewayIPs {
			ip := gateway.AsSlice()
			ip[len(ip)-1] = 77
			unknown, _ := netip.AddrFromSlice(ip)
			w.inside[gateway], w.inside[unknown] = node, node
		}
	}
	addresses := slices.SortedFunc(maps.Keys(w.pods), netip.Addr.Compare)
	for i := range 12 {
		end := addresses[w.IntN(len(addresses))]
		if w.IntN(5) == 0 {
			end = ofFamily([]netip.Addr{addrOf("192.0.2.1"), addrOf("2001:db8::1")}, end)
		}
		vip := netip.AddrPortFrom(addrOf(fmt.Sprintf("10.97.0.%d", 50+i)), 80)
		if end.Is6() {
			vip = netip.AddrPortFrom(addrOf(fmt.Sprintf("fd97::%d", 50+i)), 80)
		}
		w.services[vip], w.ends[vip] = tenantSpaces[w.IntN(len(tenantSpaces))], end
		server := netip.AddrPortFrom(end, 8080).String()
		serviceOf(states, w.services[vip], fmt.Sprint("s", i), vip.String(), server)
		w.ports[vip] = 30081 + i
		fromOutside(states, w.services[vip], w.ports[vip], server)
	}
	for node, s := range states {
		s.Node.ServiceSource, _ = policy.ServiceSource(s.Node.PodCIDRs[0])
		s.Node.ServiceSource6, _ = policy.ServiceSource(s.Node.PodCIDRs[1])
		states[node], w.outside[node] = s, outsideTablesOf(s)
	}
	w.cable = cableOf(t, states)
	return w
}

// ask returns a random question, and the place at which the packet arrives, "" for none.
func (w *tenantWorld) ask() (from string, to netip.AddrPort, want string) {
	from = fmt.Sprintf("east%d pod%d", 1+w.IntN(2), 1+w.IntN(4))
	place := w.places[w.in[from]]
	node, _, _ := strings.Cut(from, " ")
	vips, targets := w.vips(), w.targets()
	end := targets[w.IntN(len(targets))]
	if place.Isolated() && w.IntN(6) == 0 {
		end = w.free()[w.IntN(len(w.inside))]
	}
	to = netip.AddrPortFrom(end, 80)
	network, byService := place, false
	if w.IntN(2) == 0 {
		to = vips[w.IntN(len(vips))]
		end = w.ends[to]
		owner := w.places[w.services[to]]
		byService = true
		if !owner.Isolated() { // the connection leaves the network
			network = tenant.Place{Known: place.Known}
		} else if !place.Isolated() {
			return from, to, "" // a Service of a network of tenants
		}
	}
	server, isPod := w.pods[end]
	switch other := w.places[w.in[server]]; {
	case place.Closed(), w.inside[end] != "":
	case !isPod && (!network.Isolated() || network.Outside):
		want = node + " host"
	case !isPod:
	case server == from && byService && network.Isolated() != place.Isolated(): // it would have to enter again
	case !other.Closed() && (other.ID == network.ID || slices.Contains(other.Joined, network.ID)):
		want = server
	}
	return from, to, want
}

// TestHostileTenants has packets that their senders may not send, or that try to enter another network.
func TestHostileTenants(t *testing.T) {
	states := tenantNodes(placesOfTwo())
	node := states["east1"]
	at := func(port int) oftest.Packet {
		pod := node.Pods[port-1]
		return oftest.Packet{InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: pod.IPs[0], IPDst: addrOf("10.11.0.4"),
			Proto: oftest.TCP, SrcPort: 40000, DstPort: 80}
	}
	tunnel := func(mac ofp.MAC, src, dst string) oftest.Packet {
		return oftest.Packet{InPort: tunnelPort, EthSrc: gwMAC, EthDst: mac, IPSrc: addrOf(src), IPDst: addrOf(dst),
			Proto: oftest.TCP, SrcPort: 40000, DstPort: 80, TunSrc: eastTwo, TunDst: eastOne}
	}
	asks := func(port int, target string) oftest.Packet {
		p := at(port)
		return oftest.Packet{InPort: p.InPort, EthSrc: p.EthSrc, ARP: &oftest.ARP{Op: 1, SHA: p.EthSrc, SPA: p.IPSrc,
			TPA: addrOf(target)}}
	}
	solicits := func(port int, target string) oftest.Packet {
		pod := node.Pods[port-1]
		p := oftest.Solicit(pod.MAC, pod.IPs[1], addrOf(target))
		p.InPort = pod.Port
		return p
	}
	edit := func(p oftest.Packet, f func(*oftest.Packet)) oftest.Packet { f(&p); return p }
	numbered := func(id ...byte) ofp.MAC { return ofp.MAC{0x02, 0x54, 0x4e, id[0], id[1], id[2]} }
	host := edit(tunnel(InClusterMAC, "10.11.0.4", "10.11.0.3"), func(p *oftest.Packet) {
		p.InPort, p.TunSrc, p.TunDst = gatewayPort, netip.Addr{}, netip.Addr{}
	})
	for _, test := range []struct {
		name   string
		packet oftest.Packet
		want   string
	}{
		{"another network's Pod with the address of the Namespace's", edit(at(4), func(p *oftest.Packet) {
			p.IPSrc = addrOf("10.11.0.4")
		}), "dropped in Classify"},
		{"with its MAC", edit(at(4), func(p *oftest.Packet) { p.EthSrc = node.Pods[2].MAC }), "dropped in Classify"},
		{"with the MAC of its network as destination", edit(at(4), func(p *oftest.Packet) {
			p.EthDst = numbered(0xa1, 0xb2, 0xc3)
		}), "dropped in Tenant"},
		{"a Pod of the default network with that MAC", edit(at(1), func(p *oftest.Packet) {
			p.EthDst = numbered(0xa1, 0xb2, 0xc3)
		}), "dropped in Route"},
		{"by ICMP", edit(at(1), func(p *oftest.Packet) { p.Proto, p.ICMP = oftest.ICMP, oftest.Echo }), "dropped in Route"},
		{"later fragments", edit(at(4), func(p *oftest.Packet) { p.Proto, p.Fragment = oftest.UDP, oftest.Later }),
			"dropped in Tenant"},
		{"with a VLAN tag", edit(at(4), func(p *oftest.Packet) { p.VLAN = 0x1064 }), "dropped in Classify"},
		{"to everybody", edit(at(3), func(p *oftest.Packet) { p.IPDst = addrOf("255.255.255.255") }), "dropped in Tenant"},
		{"to a multicast group by IPv6", edit(at(3), func(p *oftest.Packet) {
			p.IPSrc, p.IPDst = node.Pods[2].IPs[1], addrOf("ff02::1")
		}), "dropped in Tenant"},
		{"link-local to a Pod", edit(at(3), func(p *oftest.Packet) {
			p.IPSrc, p.IPDst = addrOf("fe80::4"), addrOf("fd11::5")
		}), "dropped in Classify"},
		{"a refusal about no connection", edit(at(1), func(p *oftest.Packet) {
			errorAbout(p, oftest.Packet{IPSrc: addrOf("10.11.0.4"), IPDst: addrOf("10.97.0.1"), Proto: oftest.TCP,
				SrcPort: 40000, DstPort: 443})
		}), "dropped in ConntrackState"},

		{"ARP for a Pod of the network", asks(3, "10.11.0.4"), "back"},
		{"ARP for the gateway", asks(3, "10.11.0.1"), "back"},
		{"ARP for a Pod of another network", asks(4, "10.11.0.4"), "dropped in Tenant"},
		{"ARP for a Pod of the default network", asks(3, "10.11.0.2"), "dropped in Tenant"},
		{"ARP of the default network for an isolated Pod", asks(1, "10.11.0.4"), "dropped in ARP"},
		{"ARP in the default network", asks(1, "10.11.0.3"), "back"},
		{"ARP in another's name", edit(asks(4, "10.11.0.1"), func(p *oftest.Packet) { p.ARP.SPA = addrOf("10.11.0.4") }),
			"dropped in Classify"},
		{"ARP of the host", oftest.Packet{InPort: gatewayPort, EthSrc: gwMAC, ARP: &oftest.ARP{Op: 1, SHA: gwMAC,
			SPA: addrOf("10.11.0.1"), TPA: addrOf("10.11.0.4")}}, "back"},
		{"solicitation for the gateway", solicits(3, "fd11::1"), "back"},
		{"solicitation for a Pod of another network", solicits(4, "fd11::4"), "dropped in Tenant"},
		{"solicitation for a Pod of the default network", solicits(3, "fd11::2"), "dropped in Tenant"},
		{"solicitation of the default network for an isolated Pod", solicits(1, "fd11::4"), "dropped in ARP"},
		{"solicitation for its own address", solicits(3, "fd11::4"), "dropped in Tenant"},

		{"another Node with the network's number", tunnel(numbered(0xa1, 0xb2, 0xc3), "10.11.1.4", "10.11.0.4"), "to port 3"},
		{"with another network's number", tunnel(numbered(0xb0, 0, 1), "10.11.1.4", "10.11.0.4"), "dropped in Tenant"},
		{"with a number of no network here, to the default network", tunnel(numbered(1, 2, 3), "10.11.1.4", "10.11.0.2"),
			"dropped in Tenant"},
		{"with number 0", tunnel(numbered(0, 0, 0), "10.11.1.4", "10.11.0.2"), "dropped in Tenant"},
		{"with a number and an address that it does not have", tunnel(numbered(0xa1, 0xb2, 0xc3), "10.11.0.5", "10.11.0.4"),
			"dropped in Classify"},
		{"with a number, in the name of its host", tunnel(numbered(0xa1, 0xb2, 0xc3), eastTwo.String(), "10.11.0.4"),
			"dropped in Classify"},
		{"with a number, back to it", tunnel(numbered(0xa1, 0xb2, 0xc3), "10.11.1.4", "10.11.1.5"), "dropped in Tenant"},
		{"with a number, to the world", tunnel(numbered(0xb0, 0, 1), "10.11.1.4", "192.0.2.1"), "dropped in Tenant"},
		{"with a number, to the host", tunnel(numbered(0xb0, 0, 1), "10.11.1.4", "10.11.0.1"), "dropped in Tenant"},
		{"without a number", tunnel(InClusterMAC, "10.11.1.4", "10.11.0.4"), "dropped in Route"},
		{"with the MAC of other clusters", tunnel(CrossClusterMAC, "10.11.1.4", "10.11.0.4"), "dropped in Route"},
		{"a machine that is no Node", edit(tunnel(numbered(0xa1, 0xb2, 0xc3), "10.11.1.4", "10.11.0.4"),
			func(p *oftest.Packet) { p.TunSrc = addrOf("192.0.2.66") }), "dropped in Classify"},
		{"the host in an isolated Pod's name", host, "dropped in Classify"},
		{"the host as a forwarded client", edit(host, func(p *oftest.Packet) {
			p.IPSrc, p.IPDst = addrOf("10.11.0.1"), addrOf("10.11.0.4")
		}), "dropped in Route"},
		{"the host in the name of a Pod of another Node", edit(host, func(p *oftest.Packet) {
			p.IPSrc, p.IPDst = addrOf("10.11.1.4"), addrOf("10.11.0.4")
		}), "dropped in Route"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := cableOf(t, states).nodes["east1"]
			r := s.Send(test.packet)
			have := "dropped in " + r.Dropped
			if len(r.Outputs) == 1 {
				out := r.Outputs[0].Port
				if out == ofp.PortInPort {
					out = test.packet.InPort
				}
				have = place(out, test.packet.InPort, r.Outputs[0].Packet.TunDst.String())
			}
			if r.Err != nil || have != test.want {
				t.Errorf("%s: %s, want %s", test.packet, r, test.want)
			}
		})
	}
	// A Node whose switch does not know networks drops what has a number.
	old := onNode(1)
	s, err := oftest.New(Program, (&cable{t: t}).entries(old)...)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Send(tunnel(numbered(0xa1, 0xb2, 0xc3), "10.11.1.4", "10.11.0.2")); r.Dropped != "Classify" {
		t.Errorf("a switch without the feature: %s", r)
	}
}

// TestTenantRefusal takes the agent's refusal of a connection inside a network back over both Nodes.
func TestTenantRefusal(t *testing.T) {
	c := cableOf(t, tenantNodes(placesOfTwo()))
	w := c.send("east1 pod3", c.request("east1 pod3", "10.11.1.4:80", oftest.TCP))
	r := c.nodes["east2"].PacketOut(w.packet.Reply(), flow.Do(flow.Load(generated, 1),
		flow.Load(inTenant, network(0xa1b2c3)), flow.Resubmit(Conntrack)))
	if len(r.Outputs) != 1 || r.Outputs[0].Port != tunnelPort {
		t.Fatalf("the refusal goes %s", r)
	}
	p := r.Outputs[0].Packet
	p.TunSrc = eastTwo
	if back := c.send("east1 tunnel", p); !strings.HasPrefix(back.String(), "east1 pod3: 10.11.1.4:80") {
		t.Errorf("the refusal goes %s", back)
	}
}

// TestTenantsOnSwitch asks a real switch some of the same questions.
func TestTenantsOnSwitch(t *testing.T) {
	o := dummyBridge(t)
	for _, port := range []string{"3", "4"} {
		o.vsctl(t, "add-port", "br-int", "pod"+port, "--", "set", "interface", "pod"+port, "type="+portType(),
			"ofport_request="+port)
	}
	states := tenantNodes(placesOfTwo())
	serviceOf(states, "default", "near", "10.97.0.50:80", "10.11.0.3:8080")
	serviceOf(states, "a", "own", "10.97.0.52:80", "10.11.1.4:8080")
	serviceOf(states, "a", "own", "10.97.0.56:80", "10.11.1.4:8080")
	serviceOf(states, "b", "other", "10.97.0.57:80", "10.11.1.5:8080")
	fromOutside(states, "a", 30081, "10.11.0.4:8080")
	fromOutside(states, "b", 30082, "[fd11::5]:8080")
	o.program(t, "br-int", setOf(t, mustPlan(t, states["east1"])))
	pod := func(number int, to string) string {
		p := states["east1"].Pods[number-1]
		host, port, _ := strings.Cut(to, ":")
		return fmt.Sprintf("dp_hash=1,in_port=%d,tcp,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,tp_src=40000,"+
			"tp_dst=%s", p.Port, p.MAC, gwMAC, p.IPs[0], host, port)
	}
	tunnel := func(mac, to string) string {
		return fmt.Sprintf("in_port=%d,tcp,dl_src=%s,dl_dst=%s,nw_src=10.11.1.4,nw_dst=%s,nw_ttl=64,tp_src=40000,tp_dst=80,"+
			"tun_src=%s,tun_dst=%s,tun_id=0", tunnelPort, gwMAC, mac, to, eastTwo, eastOne)
	}
	for _, test := range []struct{ name, packet, want string }{
		{"to another Node", pod(3, "10.11.1.4:80"), "to tunnel 192.168.78.102 02:54:4e:a1:b2:c3"},
		{"to another network", pod(3, "10.11.0.5:80"), "dropped in Tenant"},
		{"from the default network", pod(1, "10.11.0.4:80"), "dropped in Route"},
		{"to a Service of the default network", pod(3, "10.97.0.50:80"), "to pod2"},
		{"to a Service of the network", pod(3, "10.97.0.52:80"), "to tunnel 192.168.78.102 02:54:4e:a1:b2:c3"},
		{"default network to that Service", pod(1, "10.97.0.52:80"), "dropped in Route"},
		{"from another Node", tunnel("02:54:4e:a1:b2:c3", "10.11.0.4"), "to port 3"},
		{"from another Node in another network", tunnel("02:54:4e:b0:00:01", "10.11.0.4"), "dropped in Tenant"},
		{"from another Node to the default network", tunnel("02:54:4e:a1:b2:c3", "10.11.0.2"), "dropped in Tenant"},
	} {
		t.Run(test.name, func(t *testing.T) {
			trace := o.appctl(t, "ofproto/trace", "br-int", test.packet, "--ct-next", "trk,new", "--ct-next", "trk,new")
			if have := endOf(t, trace); have != test.want {
				t.Errorf("%s, want %s\n%s", have, test.want, trace)
			}
		})
	}
}

// endOf reads where a traced packet ends: a port, with the headers on a tunnel, or the table that drops it.
func endOf(t *testing.T, trace string) string {
	t.Helper()
	out, err := appctl.ParseTrace(trace)
	if err != nil {
		t.Fatal(err)
	}
	if out.Output == 0 {
		return "dropped in " + Program.Name(ofp.Table(out.Last().Table))
	}
	end := "to " + portName(ofp.Port(out.Output))
	if ofp.Port(out.Output) == tunnelPort {
		end += " " + out.Fields["tun_dst"] + " " + out.Fields["dl_dst"]
	}
	return end
}

// TestTenantTraffic sends real connections between Pods of two isolated Namespaces and of the default network, on two
// Nodes, over each type of tunnel.
func TestTenantTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up", "address add 192.168.79.7/16 dev hub")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	states := tenantNodes(placesOfTwo())
	serviceOf(states, "default", "far", "10.97.0.51:80", "10.11.1.3:8080")
	serviceOf(states, "a", "own", "10.97.0.52:80", "10.11.1.4:8080")
	fromOutside(states, "a", 30081, "10.11.0.4:8080")
	fromOutside(states, "b", 30082, "10.11.0.4:8080")
	fromOutside(states, "a", 30083, "10.11.0.3:8080")
	one := newNode(t, underlay, states["east1"], "east1", eastOne, "10.97.0.0/16")
	two := newNode(t, underlay, states["east2"], "east2", eastTwo, "10.97.0.0/16")
	one.translating(t, states["east1"])
	for i, n := range []*realNode{one, two} {
		for j, pod := range n.pods {
			for _, network := range []string{"tcp", "tcp6"} {
				pod.serve(t, network, ":8080", fmt.Sprintf("east%d/pod%d", i+1, j+1))
			}
			pod.serve(t, "udp", ":5353", fmt.Sprintf("east%d/pod%d", i+1, j+1))
		}
	}
	a, b, plain := one.pods[2], one.pods[3], one.pods[0]
	for _, tunnelType := range []string{"geneve", "vxlan", "gre"} {
		for _, n := range []*realNode{one, two} {
			n.ovs.vsctl(t, "set", "interface", "tun0", "type="+tunnelType)
		}
		for _, r := range []request{
			{"Pod to its Namespace on another Node", a, "tcp", "10.11.1.4:8080", []string{"east2/pod3 10.11.0.4"}},
			{"by IPv6", a, "tcp6", "[fd11:0:0:1::4]:8080", []string{"east2/pod3 fd11::4"}},
			{"by UDP", a, "udp", "10.11.1.4:5353", []string{"east2/pod3 10.11.0.4"}},
			{"Pod to a Service of the default network", a, "tcp", "10.97.0.51:80", []string{"east2/pod2 10.11.0.4"}},
			{"Pod to a Service of its Namespace", a, "tcp", "10.97.0.52:80", []string{"east2/pod3 10.11.0.4"}},
			{"default network", plain, "tcp", "10.11.1.3:8080", []string{"east2/pod2 10.11.0.2"}},
			{"client outside to a node port", underlay, "tcp", "192.168.78.101:30081", []string{"east1/pod3 192.168.79.7"}},
			{"probe of the Node", one.host, "tcp", "10.11.0.4:8080", []string{"east1/pod3 10.11.0.1"}},
		} {
			t.Run(tunnelType+"/"+r.name, r.check)
		}
		if tunnelType != "geneve" {
			continue // each silence takes its time
		}
		for _, r := range []request{
			{"Pod to another Namespace on its Node", a, "tcp", "10.11.0.5:8080", nil},
			{"on another Node", a, "tcp", "10.11.1.5:8080", nil},
			{"by IPv6", b, "tcp6", "[fd11:0:0:1::4]:8080", nil},
			{"by UDP", b, "udp", "10.11.1.4:5353", nil},
			{"Pod to the default network", a, "tcp", "10.11.1.3:8080", nil},
			{"default network to a Pod", plain, "tcp", "10.11.1.4:8080", nil},
			{"by a Service of its Namespace", plain, "tcp", "10.97.0.52:80", nil},
			{"node port of another Namespace's Service", underlay, "tcp", "192.168.78.101:30082", nil},
			{"with an endpoint in the default network", underlay, "tcp", "192.168.78.101:30083", nil},
			{"another Node's host", two.host, "tcp", "10.11.0.4:8080", nil},
		} {
			t.Run("nothing/"+r.name, func(t *testing.T) {
				t.Parallel()
				if answer, err := r.from.askWithin(silence(), r.network, r.to); err == nil {
					t.Errorf("it is answered: %s", answer)
				}
			})
		}
	}
}
