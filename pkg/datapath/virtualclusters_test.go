package datapath

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// farNetwork is a network of one cluster that the central cluster knows. Without a range it is the network of an
// isolated Namespace, else a VirtualNetwork of Namespace v.
type farNetwork struct {
	number  int32
	cluster string
	cidr    string
}

var farNets = map[string]farNetwork{
	"blue": {0xb1, "east", "10.50.0.0/24"}, "red": {0xed, "east", "10.51.0.0/24"}, "c": {0xc0, "east", ""},
	"green": {0x60, "west", "10.60.0.0/24"}, "d": {0xd0, "west", ""}, "gold": {0x90, "nord", "10.70.0.0/24"},
}

// farPods has the network of the Pod of each Node. Pods of other Nodes are in the default network.
var farPods = map[string]string{
	"east1": "blue", "east2": "red", "east3": "blue", "east4": "c",
	"west1": "green", "west2": "d", "west3": "green", "nord1": "gold", "nord2": "gold",
}

// farJoins are the joined networks.
var farJoins = [][2]string{{"blue", "green"}, {"blue", "d"}, {"c", "green"}, {"blue", "gold"}}

func idOf(name string) tenant.ID { return 1<<24 + tenant.ID(farNets[name].number) }

// farWorld are clusters with VirtualNetworks that are joined.
type farWorld struct {
	activeClusters
	// joins are the joins that each cluster knows; farJoins without an entry.
	joins map[string][][2]string
	nets  map[string]farNetwork
	// change changes the imports of a cluster.
	change func(cluster string, list []*tombolov1alpha1.TenantNetworkImport)
}

func newFarWorld() farWorld {
	a := reaching()
	a.gateways = map[string][]int{"east": {3, 4}, "west": {1, 2}, "nord": {1}}
	a.keep["nord"] = true
	return farWorld{activeClusters: a, nets: maps.Clone(farNets)}
}

// joined reports whether Pods of two Nodes reach each other.
func farJoined(joins [][2]string, one, two string) bool {
	a, b := farPods[one], farPods[two]
	return a == b || slices.Contains(joins, [2]string{a, b}) || slices.Contains(joins, [2]string{b, a})
}

// addressOf returns the address of the Pod of a Node.
func (w farWorld) addressOf(node string) netip.Addr {
	ip := podOf(node)
	if cidr := w.nets[farPods[node]].cidr; cidr != "" {
		_, _, n := clusterOf(node)
		ip = w.block(rangeOf(cidr), n).Addr().Next().Next()
	}
	return ip
}

func (w farWorld) block(cidr netip.Prefix, n int) netip.Prefix {
	a := cidr.Addr().As4()
	a[3] = byte(16 * (n - 1))
	return netip.PrefixFrom(netip.AddrFrom4(a), 28)
}

// imports returns the imports of a cluster.
func (w farWorld) imports(cluster string) (out []*tombolov1alpha1.TenantNetworkImport) {
	joins, ok := w.joins[cluster]
	if !ok {
		joins = farJoins
	}
	for _, name := range slices.Sorted(maps.Keys(w.nets)) {
		if w.nets[name].cluster != cluster {
			continue
		}
		i := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: name}}
		i.Spec.Number = w.nets[name].number
		i.Spec.Namespace = &tombolov1alpha1.NamespaceReference{Name: name, UID: types.UID(name)}
		if w.nets[name].cidr != "" {
			i.Spec.Namespace.Name, i.Spec.Namespace.UID = "v", "v"
			i.Spec.VirtualNetwork = &tombolov1alpha1.VirtualNetworkReference{Name: name, UID: types.UID(name)}
		}
		for _, j := range joins {
			for at, one := range j {
				other, ok := w.nets[j[1-at]]
				if one != name || !ok {
					continue
				}
				joined := tombolov1alpha1.JoinedNetwork{Name: j[1-at], Number: other.number, ClusterIDs: []string{other.cluster}}
				if other.cidr != "" {
					for _, p := range both(family.Dual, sixRange)([]netip.Prefix{rangeOf(other.cidr)}) {
						joined.CIDRs = append(joined.CIDRs, p.String())
					}
				}
				i.Spec.Joined = append(i.Spec.Joined, joined)
			}
		}
		out = append(out, i)
	}
	if w.change != nil {
		w.change(cluster, out)
	}
	return out
}

// networks returns the networks of a cluster, as the agents of its Nodes derive them.
func (w farWorld) networks(t testing.TB, cluster string) *tenant.Tables {
	t.Helper()
	e := derive.New()
	o := struct {
		namespaces *derive.Source[derive.Object, tenant.NamespaceFacts]
		labels     *derive.Source[derive.Object, labels.Set]
		networks   *derive.Source[derive.Object, tenant.VirtualNetworkFacts]
		routers    *derive.Source[derive.Object, tenant.RouterFacts]
		imports    *derive.Source[derive.Object, tenant.ClusterSetFacts]
		leases     *derive.Source[derive.Object, tenant.LeaseFacts]
	}{derive.NewSource[derive.Object, tenant.NamespaceFacts](e, "namespaces"),
		derive.NewSource[derive.Object, labels.Set](e, "labels"),
		derive.NewSource[derive.Object, tenant.VirtualNetworkFacts](e, "networks"),
		derive.NewSource[derive.Object, tenant.RouterFacts](e, "routers"),
		derive.NewSource[derive.Object, tenant.ClusterSetFacts](e, "imports"),
		derive.NewSource[derive.Object, tenant.LeaseFacts](e, "leases")}
	tables := tenant.NewCluster(e, tenant.Objects{Namespaces: o.namespaces, Labels: o.labels, Networks: o.networks,
		Routers: o.routers, Imports: o.imports, Leases: o.leases})
	for _, name := range []string{"v", "plain"} {
		o.namespaces.Set(derive.Object{Name: name}, tenant.NamespaceFacts{UID: types.UID(name)})
	}
	for name, n := range w.nets {
		switch {
		case n.cluster != cluster:
		case n.cidr == "":
			o.namespaces.Set(derive.Object{Name: name}, tenant.NamespaceFactsOf(&corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
					Labels: map[string]string{tenant.LabelIsolated: "true"}}}))
		default:
			k := derive.Object{Namespace: "v", Name: name}
			v := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "v", Name: name, UID: types.UID(name)}}
			v.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: name}
			o.networks.Set(k, tenant.VirtualNetworkFactsOf(v))
			for i, cidr := range both(w.families, sixRange)([]netip.Prefix{rangeOf(n.cidr)}) {
				l := tenant.LeaseFacts{Network: k, Range: tenant.Range{CIDR: cidr, Gateway: cidr.Addr().Next()}}
				for node := 1; node <= activeNodes; node++ {
					block := w.block(rangeOf(n.cidr), node)
					if cidr.Addr().Is6() {
						block = sixRange(block)
					}
					l.Nodes = append(l.Nodes, tenant.NodeBlocks{Node: fmt.Sprint("node-", node), Blocks: []netip.Prefix{block}})
				}
				o.leases.Set(derive.Object{Name: fmt.Sprint(name, i)}, l)
			}
		}
	}
	for _, i := range w.imports(cluster) {
		o.imports.Set(derive.Object{Name: i.Name}, tenant.ClusterSetFactsOf(i))
	}
	for _, s := range []interface{ Loaded() }{o.namespaces, o.labels, o.networks, o.routers, o.imports, o.leases} {
		s.Loaded()
	}
	e.Pass()
	return tables
}

// stateOf returns the state of a Node.
func (w farWorld) stateOf(t testing.TB, node string, tables *tenant.Tables) State {
	t.Helper()
	cluster, _, n := clusterOf(node)
	s := w.state(t, cluster, n)
	s.Places, s.Networks = map[string]tenant.Place{}, map[derive.Object]tenant.VirtualNetwork{}
	s.Remotes = map[string]tenant.Remote{}
	for _, row := range tables.Places.All() {
		s.Places[row.Key.Name] = row.Value
	}
	for _, row := range tables.VirtualNetworks.All() {
		s.Networks[row.Key] = row.Value
	}
	for _, row := range tables.Remotes.All() {
		s.Remotes[string(row.Key)] = row.Value
	}
	s.Pods = slices.Clone(s.Pods)
	pod := &s.Pods[0]
	switch name := farPods[node]; {
	case w.nets[name].cidr != "":
		pod.Namespace, pod.Network = "v", derive.Object{Namespace: "v", Name: name}
		pod.IPs = both(w.families, six)([]netip.Addr{w.addressOf(node)})
	case name != "":
		pod.Namespace = name
	default:
		pod.Namespace = "plain"
	}
	return s
}

// farCable joins all Nodes.
func (w farWorld) farCable(t *testing.T) *cable {
	t.Helper()
	states, ends := map[string]State{}, map[netip.Addr]string{}
	for _, cluster := range []string{"east", "west", "nord"} {
		tables := w.networks(t, cluster)
		for n := 1; n <= activeNodes; n++ {
			name := fmt.Sprint(cluster, n)
			states[name], ends[activeAddr(cluster, n)] = w.stateOf(t, name, tables), name
		}
	}
	c := cableOf(t, states)
	c.ends, c.six = ends, w.families == family.IPv6
	return c
}

// steer chooses the Gateways of a packet between two Nodes.
func (c *cable) steer(from, first, second string) {
	c.prefer[from], c.prefer[first] = first, second
	if first == from {
		c.prefer[from] = second
	}
}

// TestVirtualNetworksAcrossClusters sends packets between the Pods of all Nodes of three clusters. They arrive if the
// networks of both are joined, through any Gateways, with the client's address. Only the Nodes of both Pods track them.
func TestVirtualNetworksAcrossClusters(t *testing.T) {
	for _, variant := range []struct {
		families family.Families
		stretch  bool
		single   bool
	}{{}, {stretch: true}, {families: family.IPv6}, {single: true}} {
		w := newFarWorld()
		w.families, w.stretch = variant.families, variant.stretch
		if variant.single {
			w.gateways = map[string][]int{"east": {2}, "west": {4}, "nord": {3}}
		}
		nodes := slices.Sorted(maps.Keys(farPods))
		nodes = append(nodes, "west4")
		c := w.farCable(t)
		for _, from := range nodes {
			for _, to := range nodes {
				if from[:4] == to[:4] {
					continue
				}
				near, far := w.gatewaysOf(from[:4]), w.gatewaysOf(to[:4])
				p := c.request(from+" pod1", w.addressOf(to).String()+":8080", oftest.TCP)
				for i := range 4 {
					first, second := near[i%len(near)], far[i/2%len(far)]
					if slices.Contains(near, from) {
						first = from
					}
					c.steer(from, first, second)
					at := c.send(from+" pod1", p)
					if farPods[from] == "" || !farJoined(farJoins, from, to) {
						last := at.places[len(at.places)-1]
						if !strings.HasPrefix(last, "dropped in ") && (last != "host" || farPods[from] != "") {
							t.Fatalf("%+v: %s to %s: %s, want a drop", variant, from, to, at)
						}
						continue
					}
					want := strings.Join(path(from, first, second, to), " ") + " pod1"
					if strings.Join(at.places, " ") != want || at.packet.IPSrc != p.IPSrc || at.packet.IPDst != p.IPDst {
						t.Fatalf("%+v: %s to %s, packet %d: %s, want %s", variant, from, to, i, at, want)
					}
					if i == 0 {
						continue // sent again before the answer
					}
					first, second = far[(i+1)%len(far)], near[i/2%len(near)]
					if slices.Contains(far, to) {
						first = to
					}
					c.steer(to, first, second)
					back := c.send(to+" pod1", at.packet.Reply())
					want = strings.Join(path(to, first, second, from), " ") + " pod1"
					if strings.Join(back.places, " ") != want || back.packet.IPDst != p.IPSrc {
						t.Fatalf("%+v: %s to %s, reply %d: %s, want %s", variant, from, to, i, back, want)
					}
				}
			}
		}
		for name, node := range c.nodes {
			own := w.addressOf(name)
			for _, one := range node.Connections() {
				if !strings.Contains(fmt.Sprint(one), c.inner(own).String()) {
					t.Errorf("%+v: %s tracks %v", variant, name, one)
				}
			}
		}
	}
}

// TestServiceOfAFarAddress has a Service that takes the address of a Pod in a VirtualNetwork of another cluster. Pods
// of joined networks reach the Pod all the same: in a VirtualNetwork, and in an isolated Namespace.
func TestServiceOfAFarAddress(t *testing.T) {
	w := newFarWorld()
	c := w.farCable(t)
	for name, s := range c.states {
		s.Frontends = append(slices.Clone(s.Frontends), frontend("hijack", corev1.ProtocolTCP,
			w.addressOf("west1").String()+":443", cidrHost(activePods("east", 3), 9)+":80"))
		c.states[name] = s
		if err := c.nodes[name].Replace(c.entries(s)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"east1", "east4"} {
		at := c.send(from+" pod1", c.request(from+" pod1", w.addressOf("west1").String()+":443", oftest.TCP))
		if !strings.Contains(at.String(), "west1 pod1") {
			t.Errorf("from %s: %s", from, at)
		}
	}
}

// TestHostileVirtualClusters sends packets that a hostile cluster, Node or Pod may make. They reach Pods of networks
// alone that are joined with a VirtualNetwork of that cluster.
func TestHostileVirtualClusters(t *testing.T) {
	w := newFarWorld()
	w.joins = map[string][][2]string{"east": append([][2]string{{"red", "gold"}}, farJoins...)}
	c := w.farCable(t)
	for name, s := range c.states { // Services that take addresses of Pods
		s.Frontends = slices.Clone(s.Frontends)
		for _, node := range []string{"east3", "east4"} {
			s.Frontends = append(s.Frontends, frontend("hijack-"+node, corev1.ProtocolTCP, w.addressOf(node).String()+":443",
				cidrHost(activePods("east", 3), 9)+":80"))
		}
		c.states[name] = s
		if err := c.nodes[name].Replace(c.entries(s)...); err != nil {
			t.Fatal(err)
		}
	}
	pod := w.addressOf
	from := func(node, network string, src, dst netip.Addr) oftest.Packet {
		return oftest.Packet{EthSrc: gwMAC, EthDst: MACOf(idOf(network)), IPSrc: src, IPDst: dst, Proto: oftest.TCP,
			SrcPort: 40000, DstPort: 8080, TunSrc: activeAddr(node[:4], int(node[4]-'0'))}
	}
	edit := func(p oftest.Packet, f func(*oftest.Packet)) oftest.Packet { f(&p); return p }
	for _, test := range []struct {
		name   string
		at     string
		packet oftest.Packet
		want   string
	}{
		{"joined, to a Pod of the Gateway", "east3", from("west1", "green", pod("west1"), pod("east3")), "east3 pod1"},
		{"joined, to another Node", "east3", from("west1", "green", pod("west3"), pod("east1")), "east3 east1 pod1"},
		{"any address of the range", "east4", from("west2", "green", addrOf("10.60.0.77"), pod("east1")),
			"east4 east1 pod1"},
		{"a Namespace that is joined", "east4", from("west2", "d", podOf("west2"), pod("east1")), "east4 east1 pod1"},
		{"to a Namespace that is joined", "east3", from("west1", "green", pod("west1"), podOf("east4")),
			"east3 east4 pod1"},

		{"the number of a joined network of another cluster", "east3", from("west1", "gold", pod("nord1"), pod("east1")),
			"east3 dropped in Classify"},
		{"its own number with another cluster's range", "east3", from("west1", "green", pod("nord1"), pod("east1")),
			"east3 dropped in Classify"},
		{"another number with its range", "east3", from("west1", "blue", pod("west1"), pod("east1")),
			"east3 dropped in Classify"},
		{"the number of its Namespace with its range", "east3", from("west1", "d", pod("west1"), pod("east1")),
			"east3 dropped in Classify"},
		{"its number with the range of its Pods", "east3", from("west1", "green", podOf("west1"), pod("east1")),
			"east3 dropped in Classify"},
		{"a source outside of its range", "east3", from("west1", "green", addrOf("10.60.1.2"), pod("east1")),
			"east3 dropped in Classify"},
		{"a source of the receiver's network", "east3", from("west1", "green", pod("east1"), pod("east3")),
			"east3 dropped in Classify"},
		{"without a number", "east3", edit(from("west1", "green", pod("west1"), pod("east1")),
			func(p *oftest.Packet) { p.EthDst = CrossClusterMAC }), "east3 dropped in Classify"},
		{"to a network that is not joined", "east3", from("west1", "green", pod("west1"), pod("east2")),
			"east3 dropped in UnSNAT"},
		{"a Namespace to a VirtualNetwork that is not joined", "east3", from("west1", "d", podOf("west2"), pod("east2")),
			"east3 dropped in UnSNAT"},
		{"to a Pod of the default network", "east3", from("west1", "green", pod("west1"), podOf("east2")),
			"east3 east2 dropped in Tenant"},
		{"to an address without a Pod", "east3", from("west1", "green", pod("west1"), pod("east3").Next()),
			"east3 dropped in Tenant"},
		{"to a block that no Node has", "east3", from("west1", "green", pod("west1"), addrOf("10.50.0.99")),
			"east3 dropped in UnSNAT"},
		{"to the gateway of the Subnet", "east3", from("west1", "green", pod("west1"), addrOf("10.50.0.1")),
			"east3 east1 dropped in Tenant"},
		{"to a Service", "east3", edit(from("west1", "green", pod("west1"), addrOf("10.97.0.10")),
			func(p *oftest.Packet) { p.DstPort = 80 }), "east3 dropped in UnSNAT"},
		{"to a Service at the Pod's address", "east3", edit(from("west1", "green", pod("west1"), pod("east3")),
			func(p *oftest.Packet) { p.DstPort = 443 }), "east3 pod1"},
		{"a Namespace to a Service at the Pod's address", "east3", edit(from("west1", "d", podOf("west2"), pod("east3")),
			func(p *oftest.Packet) { p.DstPort = 443 }), "east3 pod1"},
		{"to a Service at the address of a Namespace's Pod", "east4", edit(from("west1", "green", pod("west1"),
			podOf("east4")), func(p *oftest.Packet) { p.DstPort = 443 }), "east4 pod1"},
		{"to the host", "east3", from("west1", "green", pod("west1"), activeAddr("east", 3)), "east3 dropped in UnSNAT"},
		{"to the host's address in the Pods' range", "east3", from("west1", "green", pod("west1"),
			addrOf(cidrHost(activePods("east", 3), 1))), "east3 dropped in Tenant"},
		{"to the world", "east3", from("west1", "green", pod("west1"), addrOf("192.0.2.1")), "east3 dropped in UnSNAT"},
		{"through to a third cluster", "east3", from("west1", "green", pod("west1"), pod("nord1")),
			"east3 dropped in UnSNAT"},
		{"back to its own cluster", "east3", from("west1", "green", pod("west1"), pod("west3")), "east3 dropped in UnSNAT"},
		{"not to a Gateway", "east1", from("west1", "green", pod("west1"), pod("east1")), "east1 dropped in Classify"},
		{"not from a Gateway", "east3", from("west3", "green", pod("west3"), pod("east3")), "east3 dropped in Classify"},

		{"a Node in the name of another cluster", "east3", from("east1", "green", pod("west1"), pod("east3")),
			"east3 dropped in Classify"},
		{"a Node with the block of another", "east3", from("east2", "blue", pod("east1"), pod("west1")),
			"east3 dropped in Classify"},
		{"a Node with its block, in another network", "east3", from("east2", "blue", pod("east2"), pod("west1")),
			"east3 dropped in Classify"},
		{"a Node, in a network that is joined with another cluster's", "east3", from("east2", "red", pod("east2"),
			pod("west1")), "east3 dropped in Tenant"},
		{"a Node, in a Namespace that is joined with another cluster's", "east3", from("east1", "c", podOf("east1"),
			pod("nord1")), "east3 dropped in Tenant"},
		{"a Node, in a network of another cluster", "east3", from("east2", "green", pod("east2"), pod("nord1")),
			"east3 dropped in Classify"},
		{"a Gateway to a Node, in another range", "east1", from("east3", "green", pod("nord1"), pod("east1")),
			"east1 dropped in Classify"},
		{"a Gateway to a Node", "east1", from("east3", "green", pod("west1"), pod("east1")), "east1 pod1"},
	} {
		p := test.packet
		p.TunDst = c.states[test.at].Node.Tunnels.Ends[0]
		c.steer("east3", "east3", "nord1")
		at := c.arrive(test.at, cmp.Or(c.states[test.at].Ways[p.TunSrc], tunnelPort), p)
		if have := strings.Join(at.places, " "); have != test.want {
			t.Errorf("%s: %s, want %s", test.name, at, test.want)
		}
	}
	for name, edited := range map[string]func(*oftest.Packet){
		"another source of its network": func(p *oftest.Packet) { p.IPSrc = w.addressOf("east3") },
		"a source of the other network": func(p *oftest.Packet) { p.IPSrc = w.addressOf("west3") },
		"the MAC of another network": func(p *oftest.Packet) {
			p.IPDst, p.EthDst = w.addressOf("west2"), MACOf(idOf("c"))
		},
		"a Service there": func(p *oftest.Packet) { p.IPDst, p.DstPort = addrOf("10.96.0.20"), 80 },
		"a host there":    func(p *oftest.Packet) { p.IPDst = activeAddr("west", 1) },
	} {
		p := c.request("east1 pod1", w.addressOf("west1").String()+":8080", oftest.TCP)
		edited(&p)
		c.steer("east1", "east3", "west1")
		at := c.send("east1 pod1", p)
		want := "dropped in"
		if name == "the MAC of another network" { // a switch takes the network from the port
			want = "pod1"
		}
		if last := at.places[len(at.places)-1]; !strings.HasPrefix(last, want) {
			t.Errorf("a Pod with %s: %s, want %s", name, at, want)
		}
	}
}

// TestOneSidedFarJoins has clusters of which one does not have the join, or not any more.
func TestOneSidedFarJoins(t *testing.T) {
	for _, row := range []struct{ without, from, to, want string }{
		{"west", "east1", "west1", "east1 east3 west1 dropped in Classify"},
		{"west", "west1", "east1", "west1 dropped in Tenant"},
		{"west", "west3", "east1", "west3 dropped in Tenant"},
		{"east", "east1", "west1", "east1 dropped in Tenant"},
		{"east", "west1", "east1", "west1 east3 dropped in Classify"},
		{"nord", "east1", "west1", "east1 east3 west1 pod1"},
		{"nord", "east1", "nord1", "east1 east3 nord1 dropped in Classify"},
	} {
		w := newFarWorld()
		w.joins = map[string][][2]string{row.without: nil}
		c := w.farCable(t)
		c.steer(row.from, "east3", "west1")
		if row.from[:4] == "west" {
			c.steer(row.from, "west1", "east3")
		}
		at := c.send(row.from+" pod1", c.request(row.from+" pod1", w.addressOf(row.to).String()+":8080", oftest.TCP))
		if have := strings.Join(at.places, " "); have != row.want {
			t.Errorf("without joins in %s, %s to %s: %s, want %s", row.without, row.from, row.to, at, row.want)
		}
	}
}

// TestFarRangesOfOthers has clusters whose VirtualNetworks have ranges that others have. These stay with their owners.
func TestFarRangesOfOthers(t *testing.T) {
	for _, row := range []struct{ name, cidr, from, to, want string }{
		{"Pods of a Node", "10.11.0.0/16", "east4", podOf("east1").String(), "east4 east1 dropped in Tenant"},
		{"Services", "10.97.0.0/24", "east4", "10.97.0.77", "east4 dropped in Tenant"},
		{"Pods of another cluster", "10.12.0.0/16", "east1", podOf("nord1").String(), "east1 east3 dropped in Tenant"},
		{"its own Pods", "10.10.0.0/16", "east1", podOf("west2").String(), "east1 east3 west2 pod1"},
		{"the receiver's own Subnet", "10.50.0.0/24", "east1", "10.50.0.34", "east1 east3 pod1"},
		{"a part of it that no Node has", "10.50.0.128/25", "east1", "10.50.0.130", "east1 dropped in Tenant"},
		{"a network that is joined, too", "10.70.0.0/16", "east1", "10.70.0.2", "east1 dropped in Tenant"},
		{"a Subnet that is not joined", "10.51.0.0/24", "east2", "10.51.0.2", "east2 east1 dropped in Classify"},
	} {
		w := newFarWorld()
		w.change = func(cluster string, list []*tombolov1alpha1.TenantNetworkImport) {
			for _, i := range list {
				for at := range i.Spec.Joined {
					if j := &i.Spec.Joined[at]; j.Name == "green" {
						j.CIDRs = []string{row.cidr}
					}
				}
			}
		}
		c := w.farCable(t)
		c.steer(row.from, "east3", "west2")
		at := c.send(row.from+" pod1", c.request(row.from+" pod1", row.to+":8080", oftest.TCP))
		if have := strings.Join(at.places, " "); have != row.want {
			t.Errorf("%s: %s, want %s", row.name, at, row.want)
		}
		reported := strings.Contains(strings.Join(c.taken, "; "), "cluster west: Pods of this cluster do not reach range "+
			row.cidr+" of a VirtualNetwork there: ")
		if ofSubnet := strings.HasPrefix(row.cidr, "10.5") || strings.HasPrefix(row.cidr, "10.7"); reported == ofSubnet {
			t.Errorf("%s: problems %q", row.name, c.taken)
		}
	}
}

// TestFarLeaks sends random packets between the Pods of three clusters, with random joins. They arrive if the networks
// are joined.
func TestFarLeaks(t *testing.T) {
	names := slices.Sorted(maps.Keys(farNets))
	nodes := slices.Sorted(maps.Keys(farPods))
	arrived := 0
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 30))
		w := newFarWorld()
		w.families = family.Dual
		var joins [][2]string
		for i, a := range names {
			for _, b := range names[i+1:] {
				if rnd.IntN(3) == 0 {
					joins = append(joins, [2]string{a, b})
				}
			}
		}
		w.joins = map[string][][2]string{"east": joins, "west": joins, "nord": joins}
		for cluster, list := range map[string][]int{"east": rnd.Perm(4), "west": rnd.Perm(4), "nord": rnd.Perm(4)} {
			w.gateways[cluster] = nil
			for _, n := range list[:1+rnd.IntN(2)] {
				w.gateways[cluster] = append(w.gateways[cluster], n+1)
			}
		}
		c := w.farCable(t)
		for range 80 {
			from, to := nodes[rnd.IntN(len(nodes))], nodes[rnd.IntN(len(nodes))]
			ip := w.addressOf(to)
			if rnd.IntN(2) == 0 {
				ip = six(ip)
			}
			for _, cluster := range []string{from[:4], to[:4]} {
				for _, g := range w.gatewaysOf(cluster) {
					c.prefer[g] = w.gatewaysOf(map[bool]string{true: to[:4], false: from[:4]}[cluster == from[:4]])[0]
				}
			}
			at := c.send(from+" pod1", c.request(from+" pod1", netip.AddrPortFrom(ip, 8080).String(), oftest.TCP))
			have := strings.HasSuffix(strings.Join(at.places, " "), to+" pod1")
			if want := from != to && farJoined(joins, from, to); from != to && have != want {
				t.Fatalf("seed %d, joins %v: %s to %s (%s): %s, want it to arrive: %t", seed, joins, from, to, ip, at, want)
			}
			if have {
				arrived++
			}
		}
	}
	if arrived < 50 {
		t.Errorf("%d packets arrived", arrived)
	}
}

// TestFarNetworksAreLazy compares flows of Nodes. Without imports VirtualNetworks have no flows on a Gateway without
// their Pods. With imports a Node has flows of those networks alone that its Pods reach.
func TestFarNetworksAreLazy(t *testing.T) {
	flows := func(s State) (out []string) {
		for f := range setOf(t, mustPlan(t, s)).Flows() {
			out = append(out, fmt.Sprint(f))
		}
		slices.Sort(out)
		return out
	}
	w := newFarWorld()
	s := w.stateOf(t, "east4", w.networks(t, "east"))
	s.Pods[0].Namespace, s.Remotes = "plain", nil
	plain := s
	plain.Places, plain.Networks = nil, nil
	if with, without := flows(s), flows(plain); !slices.Equal(with, without) {
		t.Errorf("a Gateway without imports has %d flows, want %d", len(with), len(without))
	}
	for _, f := range flows(w.stateOf(t, "east4", w.networks(t, "east"))) {
		if strings.Contains(f, "10.51.0.") {
			t.Errorf("a Gateway has a flow of a network that is not joined with other clusters: %s", f)
		}
	}
	for _, f := range flows(w.stateOf(t, "east2", w.networks(t, "east"))) {
		if strings.Contains(f, "10.60.0.0/24") && strings.Contains(f, "Tenant") && strings.Contains(f, "nw_dst") {
			t.Errorf("a Node has a flow to a range that none of its Pods reaches: %s", f)
		}
	}
}

// TestFarRefusal takes the agent's refusal of a connection between two clusters back.
func TestFarRefusal(t *testing.T) {
	w := newFarWorld()
	c := w.farCable(t)
	c.steer("east1", "east3", "west1")
	at := c.send("east1 pod1", c.request("east1 pod1", w.addressOf("west3").String()+":8080", oftest.TCP))
	r := c.nodes["west3"].PacketOut(at.packet.Reply(), flow.Do(flow.Load(generated, 1),
		flow.Load(inTenant, network(idOf("green"))), flow.Resubmit(Conntrack)))
	if len(r.Outputs) != 1 || r.Outputs[0].Port != tunnelPort {
		t.Fatalf("the refusal goes %s", r)
	}
	p := r.Outputs[0].Packet
	p.TunSrc = activeAddr("west", 3)
	next := c.ends[p.TunDst]
	c.steer(next, next, "east3")
	back := c.arrive(next, cmp.Or(c.states[next].Ways[p.TunSrc], tunnelPort), p)
	if !strings.HasSuffix(strings.Join(back.places, " "), "east1 pod1") {
		t.Errorf("the refusal goes %s", back)
	}
}

// TestFarRangeInPolicies has a Pod db of a third cluster whose address is also one in a range of green. A policy denies
// db by its labels. Packets of blue to that address go to green, and packets of the default network to db. In the other
// direction the tunnel's key names the client.
func TestFarRangeInPolicies(t *testing.T) {
	w := newFarWorld()
	w.stretch = true
	s := w.stateOf(t, "east1", w.networks(t, "east"))
	plain := s.Pods[0]
	plain.Namespace, plain.Name, plain.Interface, plain.Network, plain.Port = "plain", "pod2", "pod2", derive.Object{}, 2
	plain.IPs, plain.MAC = []netip.Addr{podOf("east1").Next()}, podMACTwo
	s.Pods = append(s.Pods, plain)
	c := newSources(s)
	for _, name := range []string{"v", "plain"} {
		c.policy.Namespaces.Set(derive.Object{Name: name},
			policy.NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for _, pod := range s.Pods {
		c.policy.Pods.Set(derive.Object{Namespace: pod.Namespace, Name: pod.Name},
			policy.PodFacts{Labels: "app=client", Node: s.Node.Name, IPs: pod.IPs})
	}
	db := w.addressOf("west1")
	c.policy.PodAddresses.Set(derive.Object{Namespace: "kube-system", Name: "nord"},
		policy.RemotePods{{IP: db, Label: "db"}})
	c.policy.LabelIdentities.Set(derive.Object{Name: "db"},
		policy.LabelIdentity{Label: "ns:kubernetes.io/metadata.name=v&pod:app=db", ID: 7})
	deny := []policy.Selector{{Pods: "app=db"}}
	rules := []policy.RuleFacts{{Action: policy.Drop, AnyPort: true, Peers: deny, ClusterSet: deny}}
	for _, name := range []string{"v", "plain"} {
		c.policy.Policies[policy.AntreaNetworkPolicy].Set(derive.Object{Namespace: name, Name: "no-db"}, policy.Facts{
			Stage: policy.Admin, AppliedTo: []policy.Selector{{Namespace: name}}, Egress: &policy.DirectionFacts{Rules: rules},
			Ingress: &policy.DirectionFacts{Rules: rules}})
	}
	c.engine.Pass()
	to := func(pod Pod) oftest.Packet {
		return oftest.Packet{InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: pod.IPs[0], IPDst: db,
			Proto: oftest.TCP, SrcPort: 40001, DstPort: 80}
	}
	by := func(key uint64) oftest.Packet {
		gateway := activeAddr("east", 3)
		return oftest.Packet{InPort: cmp.Or(s.Ways[gateway], tunnelPort), EthSrc: gwMAC, EthDst: MACOf(idOf("green")),
			IPSrc: db, IPDst: s.Pods[0].IPs[0], Proto: oftest.TCP, SrcPort: 40001, DstPort: 80, TunSrc: gateway,
			TunDst: s.Node.Tunnels.Ends[0], TunID: key}
	}
	for _, row := range []struct {
		name   string
		packet oftest.Packet
		want   bool
	}{
		{"blue to green", to(s.Pods[0]), true}, {"the default network to db", to(plain), false},
		{"a Pod of green", by(8), true}, {"a Pod of green with the labels of db", by(7), false},
	} {
		sw, err := oftest.New(Program, slices.Collect(maps.Values(c.held))...)
		if err != nil {
			t.Fatal(err)
		}
		if r := sw.Send(row.packet); r.Err != nil || len(r.Outputs) > 0 != row.want {
			t.Errorf("%s: %s, want it to pass: %t", row.name, r, row.want)
		}
	}
}

// TestFarTraffic sends real packets between Pods of two clusters with a Gateway each: VirtualNetworks blue and green,
// and isolated Namespaces c and d. east4 and west2 are the Gateways.
func TestFarTraffic(t *testing.T) {
	withOthers(t)
	underlay := newNamespace(t)
	underlay.ip(t, "link add hub type bridge", "link set hub up")
	if !ovstest.System() {
		underlay.wholeChecksums(t, "hub")
	}
	w := newFarWorld()
	w.gateways, w.older = map[string][]int{"east": {4}, "west": {2}}, map[string]bool{"east": true, "west": true}
	w.families = family.Dual
	tables := map[string]*tenant.Tables{"east": w.networks(t, "east"), "west": w.networks(t, "west")}
	pods, all := map[string]namespace{}, []string{"east1", "east4", "west2", "west3"}
	for _, name := range all {
		cluster, _, n := clusterOf(name)
		s := w.stateOf(t, name, tables[cluster])
		s.RemoteNodes = slices.DeleteFunc(s.RemoteNodes, func(r RemoteNode) bool {
			return !slices.Contains(all, cluster+strings.TrimPrefix(r.Name, "node-"))
		})
		pods[name] = newNode(t, underlay, s, name, activeAddr(cluster, n), activeServices(cluster).String()).pods[0]
		if own := six(podOf(name)); !s.Pods[0].inVirtual() { // all Pods' addresses of these clusters are in one /64
			pods[name].ip(t, fmt.Sprintf("address del %s/64 dev eth0", own), fmt.Sprintf("address add %s dev eth0 nodad", own))
		}
		for _, network := range []string{"tcp", "tcp6"} {
			pods[name].serve(t, network, ":8080", name)
		}
		pods[name].serve(t, "udp", ":5353", name)
	}
	at := func(node string, port string) string { return net.JoinHostPort(w.addressOf(node).String(), port) }
	at6 := func(node string) string { return net.JoinHostPort(six(w.addressOf(node)).String(), "8080") }
	for _, r := range []request{
		{"two VirtualNetworks", pods["east1"], "tcp", at("west3", "8080"), []string{"west3 10.50.0.2"}},
		{"by UDP", pods["east1"], "udp", at("west3", "5353"), []string{"west3 10.50.0.2"}},
		{"by IPv6", pods["east1"], "tcp6", at6("west3"), []string{"west3 " + six(addrOf("10.50.0.2")).String()}},
		{"back", pods["west3"], "tcp", at("east1", "8080"), []string{"east1 10.60.0.34"}},
		{"to a Namespace", pods["east1"], "tcp", at("west2", "8080"), []string{"west2 10.50.0.2"}},
		{"from a Namespace", pods["west2"], "tcp6", at6("east1"), []string{"east1 " + six(podOf("west2")).String()}},
		{"from a Namespace of the Gateway", pods["east4"], "tcp", at("west3", "8080"),
			[]string{"west3 " + podOf("east4").String()}},
	} {
		t.Run(r.name, r.check)
	}
	var asking sync.WaitGroup // each silence takes its time
	for _, r := range []request{
		{"two Namespaces that are not joined", pods["east4"], "tcp", at("west2", "8080"), nil},
		{"a VirtualNetwork and a Namespace of its cluster", pods["east1"], "tcp", at("east4", "8080"), nil},
		{"a Namespace and a VirtualNetwork of its cluster", pods["west2"], "udp", at("west3", "5353"), nil},
	} {
		asking.Go(func() {
			if answer, err := r.from.askWithin(silence(), r.network, r.to); err == nil {
				t.Errorf("%s is answered: %s", r.name, answer)
			}
		})
	}
	asking.Wait()
}
