package tenant

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// virtualWorld are the objects that VirtualNetworks with Subnets depend on.
type virtualWorld struct {
	engine     *derive.Engine
	namespaces *derive.Source[derive.Object, NamespaceFacts]
	networks   *derive.Source[derive.Object, VirtualNetworkFacts]
	routers    *derive.Source[derive.Object, RouterFacts]
	subnets    *derive.Source[derive.Object, SubnetFacts]
	leases     *derive.Source[derive.Object, LeaseFacts]
	imports    *derive.Source[derive.Object, ClusterSetFacts]
	reserved   *derive.Source[derive.Object, []Reserved]
	allowed    *derive.Source[derive.Object, Allowed]
	tables     *Tables
}

func newVirtualWorld() *virtualWorld {
	e := derive.New()
	w := &virtualWorld{
		engine:     e,
		namespaces: derive.NewSource[derive.Object, NamespaceFacts](e, "namespaces"),
		networks:   derive.NewSource[derive.Object, VirtualNetworkFacts](e, "networks"),
		routers:    derive.NewSource[derive.Object, RouterFacts](e, "routers"),
		subnets:    derive.NewSource[derive.Object, SubnetFacts](e, "subnets"),
		leases:     derive.NewSource[derive.Object, LeaseFacts](e, "leases"),
		imports:    derive.NewSource[derive.Object, ClusterSetFacts](e, "imports"),
		reserved:   derive.NewSource[derive.Object, []Reserved](e, "reserved"),
		allowed:    derive.NewSource[derive.Object, Allowed](e, "allowed"),
	}
	names := derive.NewSource[derive.Object, labels.Set](e, "labels")
	w.tables = NewCluster(e, Objects{Namespaces: w.namespaces, Labels: names, Networks: w.networks, Routers: w.routers,
		Imports: w.imports, Subnets: w.subnets, Leases: w.leases, Allowed: w.allowed,
		Reserved: []derive.Readable[derive.Object, []Reserved]{w.reserved}})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		names.Set(derive.Object{Name: name}, labels.Set{"kubernetes.io/metadata.name": name})
	}
	for _, s := range []interface{ Loaded() }{w.namespaces, names, w.networks, w.routers, w.imports, w.subnets, w.leases,
		w.reserved, w.allowed} {
		s.Loaded()
	}
	return w
}

// network sets a VirtualNetwork with Subnets.
func (w *virtualWorld) network(namespace, name string, created int64, v4, v6 string,
	change ...func(*contrailv4.VirtualNetwork),
) {
	n := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.Unix(created, 0),
		Labels: map[string]string{"vn": name}}}
	if v4 != "" {
		n.Spec.V4SubnetReference = &contrailv4.ResourceReference{Kind: "Subnet", Namespace: namespace, Name: v4}
	}
	if v6 != "" {
		n.Spec.V6SubnetReference = &contrailv4.ResourceReference{Name: v6}
	}
	for _, c := range change {
		c(n)
	}
	w.networks.Set(derive.Object{Namespace: namespace, Name: name}, VirtualNetworkFactsOf(n))
}

func (w *virtualWorld) subnet(namespace, name string, created int64, cidr string,
	change ...func(*contrailv4.SubnetSpec),
) {
	s := &contrailv4.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID("sn " + namespace + "/" + name), CreationTimestamp: metav1.Unix(created, 0)}}
	s.Spec.CIDR = cidr
	for _, c := range change {
		c(&s.Spec)
	}
	w.subnets.Set(derive.Object{Namespace: namespace, Name: name}, SubnetFactsOf(s))
}

func (w *virtualWorld) router(namespace, name, kind, selects, imports, from string) {
	v := routerOf(namespace, name, kind, map[string]string{"vnr": name}, of("vn", selects))
	if imports != "" {
		v.Spec.Import.VirtualNetworkRouters = []contrailv4.VirtualNetworkRouterEntry{{
			VirtualNetworkRouterSelector: of("vnr", imports), NamespaceSelector: of("kubernetes.io/metadata.name", from)}}
	}
	w.routers.Set(derive.Object{Namespace: namespace, Name: name}, RouterFactsOf(v))
}

// allow sets the ranges that operators allow.
func (w *virtualWorld) allow(texts string) {
	w.allowed.Set(derive.Object{Name: "configuration"}, Allowed{Given: true, CIDRs: prefixes(texts)})
}

func words(ps []problem.Problem) string { return problem.List(ps).Observation() }

// TestVirtualNetworkOfCopy has a VirtualNetwork with a Subnet in the copy of a Namespace. Another cluster serves it.
func TestVirtualNetworkOfCopy(t *testing.T) {
	w := newVirtualWorld()
	w.namespaces.Set(derive.Object{Name: "a"}, NamespaceFacts{Copy: true})
	w.network("a", "blue", 1, "s", "")
	w.subnet("a", "s", 1, "10.0.1.0/24")
	w.engine.Pass()
	k := derive.Object{Namespace: "a", Name: "blue"}
	s, _ := w.tables.Subnets.Get(derive.Object{Namespace: "a", Name: "s"})
	n, _ := w.tables.VirtualNetworkProblems.Get(k)
	_, network := w.tables.VirtualNetworks.Get(k)
	if s.Served || network || len(s.Problems)+len(n.List) > 0 {
		t.Errorf("it is served (%t, %t), or has problems: %s %s", s.Served, network, words(s.Problems), words(n.List))
	}
	w.namespaces.Set(derive.Object{Name: "a"}, NamespaceFacts{})
	w.engine.Pass()
	s, _ = w.tables.Subnets.Get(derive.Object{Namespace: "a", Name: "s"})
	if _, network = w.tables.VirtualNetworks.Get(k); !s.Served || !network {
		t.Error("it is not served once its Namespace is no copy")
	}
}

// TestVirtualNetworkProblems has the states of Subnets and VirtualNetworks.
func TestVirtualNetworkProblems(t *testing.T) {
	for _, row := range []struct {
		name            string
		change          func(*virtualWorld)
		subnet, network string // observations begin like this
		serves          bool
		separate        bool // the network
	}{
		{name: "all is well", change: func(w *virtualWorld) {}, serves: true},
		{name: "no Subnet", change: func(w *virtualWorld) { w.subnets.Delete(derive.Object{Namespace: "a", Name: "s"}) },
			network: "spec.v4SubnetReference: Subnet a/s is not there, so no Pod gets an address: create it"},
		{name: "a Subnet of another Namespace", change: func(w *virtualWorld) {
			w.network("a", "blue", 1, "s", "", func(n *contrailv4.VirtualNetwork) { n.Spec.V4SubnetReference.Namespace = "b" })
		}, network: "spec.v4SubnetReference.namespace: Subnets of other Namespaces are not served"},
		{name: "no CIDR", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "10.0.1.0") },
			subnet: `spec.cidr: "10.0.1.0" is not a range of addresses`, network: "spec.v4SubnetReference: Subnet a/s gives no"},
		{name: "an address in a range", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "10.0.1.7/24") },
			subnet:  "spec.cidr: 10.0.1.7/24 is an address in a range: create another Subnet with the range 10.0.1.0/24",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses"},
		{name: "multicast", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "224.0.1.0/24") },
			subnet: "spec.cidr: 224.0.1.0/24 has addresses of 224.0.0.0/4", network: "spec.v4SubnetReference: Subnet a/s gives"},
		{name: "a range with addresses on links", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "169.0.0.0/8") },
			subnet:  "spec.cidr: 169.0.0.0/8 has addresses of 169.254.0.0/16, which no Pod may have: create another Subnet",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses"},
		{name: "too small", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "10.0.1.0/31") },
			subnet: "spec.cidr: 10.0.1.0/31 has too many addresses or too few", network: "spec.v4SubnetReference: Subnet a/s"},
		{name: "a gateway outside", change: func(w *virtualWorld) {
			w.subnet("a", "s", 1, "10.0.1.0/24", func(s *contrailv4.SubnetSpec) { s.DefaultGateway = "10.0.2.1" })
		}, subnet: `spec.defaultGateway: "10.0.2.1" is not an address of a host in 10.0.1.0/24`,
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses"},
		{name: "the other version of IP", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "fd00:1::/64") },
			network: "spec.v4SubnetReference: Subnet a/s has addresses of the other version of IP"},
		{name: "it meets a Node's Pods", change: func(w *virtualWorld) {
			w.reserved.Set(derive.Object{Name: "n"}, []Reserved{{prefixes("10.0.0.0/16")[0], "the Pods of Node node-1"}})
		}, subnet: "spec.cidr: 10.0.1.0/24 overlaps the Pods of Node node-1, so no Pod gets an address of it",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses: look at its observation"},
		{name: "it meets an older Subnet", change: func(w *virtualWorld) {
			w.subnet("b", "s", 0, "10.0.1.128/25")
			w.network("b", "red", 0, "s", "")
		}, serves: true, separate: true},
		{name: "it meets a younger Subnet", change: func(w *virtualWorld) { w.subnet("b", "s", 2, "10.0.1.128/25") },
			serves: true},
		{name: "it meets Pods of a deleted Subnet", change: func(w *virtualWorld) {
			w.leases.Set(derive.Object{Name: "gone"}, LeaseFacts{Network: derive.Object{Namespace: "a", Name: "red"},
				Range: Range{CIDR: prefixes("10.0.1.0/26")[0]}})
		}, serves: true, separate: true},
		{name: "it meets a younger Subnet with a lease", change: func(w *virtualWorld) {
			w.subnet("b", "s", 2, "10.0.1.128/25")
			w.leases.Set(derive.Object{Name: "sn b/s"}, LeaseFacts{Range: Range{CIDR: prefixes("10.0.1.128/25")[0]}})
		}, serves: true, separate: true},
		{name: "it meets an older Subnet with a lease that a later Node has ended", change: func(w *virtualWorld) {
			w.subnet("b", "s", 0, "10.0.0.0/22")
			w.leases.Set(derive.Object{Name: "sn b/s"}, LeaseFacts{Range: Range{CIDR: prefixes("10.0.0.0/22")[0]}})
			w.reserved.Set(derive.Object{Name: "n"}, []Reserved{{prefixes("10.0.2.0/24")[0], "the Pods of Node node-1"}})
		}, serves: true, separate: true},
		{name: "an address in the network of Nodes, and a range after both", change: func(w *virtualWorld) {
			w.reserved.Set(derive.Object{Name: "n"}, []Reserved{
				{prefixes("10.0.0.7/32")[0], "an address of Node node-1"},
				{prefixes("10.0.0.0/23")[0], "the network of Node node-1"},
				{prefixes("10.0.0.9/32")[0], "an address of Node node-2"}, {prefixes("10.0.2.0/24")[0], "the Pods of Node node-1"}})
		}, subnet: "spec.cidr: 10.0.1.0/24 overlaps the network of Node node-1",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses"},
		{name: "it meets an older Subnet in the copy of a Namespace", serves: true, change: func(w *virtualWorld) {
			w.namespaces.Set(derive.Object{Name: "b"}, NamespaceFacts{Copy: true})
			w.network("b", "far", 0, "s", "")
			w.subnet("b", "s", 0, "10.0.1.128/25")
		}},
		{name: "its own lease, and a cluster that joins later", change: func(w *virtualWorld) {
			w.leases.Set(derive.Object{Name: "sn a/s"}, LeaseFacts{Range: Range{CIDR: prefixes("10.0.1.0/24")[0]}})
			w.reserved.Set(derive.Object{Name: "west"}, []Reserved{{prefixes("10.0.0.0/16")[0], "the Pods of cluster west"}})
		}, subnet: "spec.cidr: 10.0.1.0/24 overlaps the Pods of cluster west, so no Pod gets an address of it",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses: look at its observation"},
		{name: "addresses of the world", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "198.51.100.0/24") },
			subnet: "spec.cidr: 198.51.100.0/24 is in no range that Subnets may be in (10.0.0.0/8, 172.16.0.0/12, " +
				"192.168.0.0/16 and 1 more), so no Pod gets an address of it: create another Subnet in one of them, or have an " +
				"operator add the range to tenantNetworks.subnetCIDRs in antrea-agent.conf",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses: look at its observation"},
		{name: "a range with addresses of the world", change: func(w *virtualWorld) { w.subnet("a", "s", 1, "172.0.0.0/8") },
			subnet:  "spec.cidr: 172.0.0.0/8 is in no range that Subnets may be in (10.0.0.0/8, 172.16.0.0/12, ",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses"},
		{name: "another range than operators allow", change: func(w *virtualWorld) { w.allow("10.1.0.0/16 fd00::/16") },
			subnet:  "spec.cidr: 10.0.1.0/24 is in no range that Subnets may be in (10.1.0.0/16), so no Pod gets an address",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses"},
		{name: "operators allow the other version of IP alone", change: func(w *virtualWorld) { w.allow("fd00::/16") },
			subnet:  "spec.cidr: 10.0.1.0/24 is in no range that Subnets may be in (none of its version of IP), so no Pod",
			network: "spec.v4SubnetReference: Subnet a/s gives no addresses"},
		{name: "a range of the world that operators allow", serves: true, change: func(w *virtualWorld) {
			w.subnet("a", "s", 1, "198.51.100.0/24")
			w.allow("198.51.100.0/24")
		}},
		{name: "an older Subnet that is not allowed takes no range", serves: true, change: func(w *virtualWorld) {
			w.subnet("b", "s", 0, "10.0.0.0/16")
			w.allow("10.0.1.0/24")
		}},
		{name: "another VirtualNetwork has the Subnet", change: func(w *virtualWorld) { w.network("a", "red", 0, "s", "") },
			network: "spec.v4SubnetReference: Subnet a/s is the Subnet of VirtualNetwork a/red"},
		{name: "the network of first interfaces", change: func(w *virtualWorld) {
			w.network("a", "blue", 1, "s", "", func(n *contrailv4.VirtualNetwork) { n.Spec.PodNetwork = true })
		}, serves: true},
		{name: "the network of first interfaces with fabricSNAT", change: func(w *virtualWorld) {
			w.network("a", "blue", 1, "s", "", func(n *contrailv4.VirtualNetwork) {
				n.Spec.PodNetwork, n.Spec.FabricSNAT = true, true
			})
		}, serves: true},
		{name: "the network of first interfaces without a Subnet", change: func(w *virtualWorld) {
			w.network("a", "blue", 1, "", "", func(n *contrailv4.VirtualNetwork) { n.Spec.PodNetwork = true })
		}, network: "spec.v4SubnetReference: it has no Subnet, so no Pod is in it"},
		{name: "fields without effect", serves: true, change: func(w *virtualWorld) {
			w.subnet("a", "s", 1, "10.0.1.0/24", func(s *contrailv4.SubnetSpec) {
				s.DNSNameservers, s.EnableDHCP, s.BGPaaSPrimaryIP = []string{"10.0.1.9"}, true, "10.0.1.8"
			})
			w.network("a", "blue", 1, "s", "", func(n *contrailv4.VirtualNetwork) { n.Spec.FabricSNAT, n.Spec.VLANID = true, 7 })
		}, subnet: "spec.dnsNameservers: it is stored and has no effect: remove it; spec.bgpaasPrimaryIP: it is stored and " +
			"has no effect: remove it; spec.enableDHCP: it is stored",
			network: "spec.vlanID: it is stored and has no effect: remove it; spec.fabricSNAT: it has no effect: Pods reach"},
		{name: "a pool outside", serves: true, change: func(w *virtualWorld) {
			w.subnet("a", "s", 1, "10.0.1.0/24", func(s *contrailv4.SubnetSpec) {
				s.Ranges = []contrailv4.SubnetRange{{Key: "web",
					IPRanges: []contrailv4.IPRange{{From: "10.0.2.1", To: "10.0.2.9"}}}}
			})
		}, subnet: "spec.ranges.key: it is stored and has no effect: remove it; spec.ranges[0].ipRanges[0]: from " +
			"\"10.0.2.1\" to \"10.0.2.9\" is not a range in 10.0.1.0/24, and is left out: correct it"},
		{name: "ranges of too many prefixes", serves: true, change: func(w *virtualWorld) {
			w.network("a", "blue", 1, "", "s")
			w.subnet("a", "s", 1, "fd00:1::/64", func(s *contrailv4.SubnetSpec) {
				list := make([]contrailv4.IPRange, 20)
				for i := range list {
					list[i] = contrailv4.IPRange{From: "fd00:1::1", To: "fd00:1::ffff:ffff:ffff:fffe"}
				}
				s.Ranges = []contrailv4.SubnetRange{{IPRanges: list}}
			})
		}, subnet: "spec.ranges[0].ipRanges[15]: the ranges are more than 2000 prefixes together, so this one is left out"},
		{name: "more networks than count", change: func(w *virtualWorld) {
			for i := range MaxNetworks {
				w.network("a", fmt.Sprint("old-", i), 0, fmt.Sprint("old-", i), "")
			}
		}, network: "metadata.namespace: no Pod is in it: its Namespace has 20 older VirtualNetworks with Subnets"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newVirtualWorld()
			w.network("a", "blue", 1, "s", "")
			w.subnet("a", "s", 1, "10.0.1.0/24")
			row.change(w)
			w.engine.Pass()
			s, _ := w.tables.Subnets.Get(derive.Object{Namespace: "a", Name: "s"})
			n, _ := w.tables.VirtualNetworkProblems.Get(derive.Object{Namespace: "a", Name: "blue"})
			if have := words(s.Problems); !strings.HasPrefix(have, row.subnet) || row.subnet == "" && have != "" {
				t.Errorf("Subnet: %q, want %q", have, row.subnet)
			}
			if have := words(n.List); !strings.HasPrefix(have, row.network) || row.network == "" && have != "" {
				t.Errorf("VirtualNetwork: %q, want %q", have, row.network)
			}
			if n.Fails == row.serves {
				t.Errorf("it serves: %t, want %t", !n.Fails, row.serves)
			}
			if (s.Zone != 0) != row.separate {
				t.Errorf("zone %d, want a separate network: %t", s.Zone, row.separate)
			}
		})
	}
}

// TestVirtualNetworkJoins has routers that join VirtualNetworks with each other and with the network of a Namespace.
func TestVirtualNetworkJoins(t *testing.T) {
	w := newVirtualWorld()
	w.namespaces.Set(derive.Object{Name: "c"}, NamespaceFacts{UID: "c", Isolated: true, Label: "true"})
	w.networks.Set(derive.Object{Namespace: "c", Name: contrailv4.DefaultPodNetwork},
		VirtualNetworkFacts{UID: "c/default", Labels: map[string]string{"vn": "c"}})
	for i, k := range [][2]string{{"a", "blue"}, {"a", "red"}, {"b", "green"}} {
		w.network(k[0], k[1], 1, k[1], "")
		w.subnet(k[0], k[1], 1, fmt.Sprintf("10.0.%d.0/24", i+1))
		w.leases.Set(derive.Object{Name: "sn " + k[0] + "/" + k[1]}, LeaseFacts{
			Network: derive.Object{Namespace: k[0], Name: k[1]},
			Range:   Range{CIDR: prefixes("10.0.1.0/24 10.0.2.0/24 10.0.3.0/24")[i]}})
	}
	w.router("a", "to-b", "hub", "blue", "to-a", "b")
	w.router("b", "to-a", "spoke", "green", "to-b", "a")
	w.router("a", "to-c", "mesh", "blue", "to-a", "c")
	w.router("c", "to-a", "mesh", "c", "to-c", "a")
	w.engine.Pass()
	get := func(namespace, name string) VirtualNetwork {
		n, _ := w.tables.VirtualNetworks.Get(derive.Object{Namespace: namespace, Name: name})
		return n
	}
	blue, red, green := get("a", "blue"), get("a", "red"), get("b", "green")
	c, _ := w.tables.Places.Get(derive.Object{Name: "c"})
	for name, row := range map[string][3]bool{
		"blue and green": {blue.Place.Meets(green.Place), green.Place.Meets(blue.Place), true},
		"blue and red":   {blue.Place.Meets(red.Place), red.Place.Meets(blue.Place), false},
		"green and c":    {green.Place.Meets(c), c.Meets(green.Place), false},
		"blue and c":     {blue.Place.Meets(c), c.Meets(blue.Place), true},
	} {
		if row[0] != row[2] || row[1] != row[2] {
			t.Errorf("%s are joined: %t and %t, want %t", name, row[0], row[1], row[2])
		}
	}
	if have := fmt.Sprint(blue.Joined, green.Joined, red.Joined); have != "[10.0.3.0/24] [10.0.1.0/24] []" {
		t.Errorf("joined ranges %s", have)
	}
	if ps := w.engine.Problems(); len(ps) > 0 {
		t.Errorf("problems %v", ps)
	}
	// The VirtualNetwork goes, and with it its number and its joins.
	w.networks.Delete(derive.Object{Namespace: "a", Name: "blue"})
	w.engine.Pass()
	if gone := get("a", "blue"); !gone.Place.Closed() || len(get("b", "green").Place.Joined) > 0 {
		t.Errorf("a deleted network is %+v, and green has %v", gone, get("b", "green").Place)
	}
}

func TestPodNetworks(t *testing.T) {
	for _, row := range []struct{ name, text, want, err string }{
		{name: "nothing", text: ""}, {name: "null", text: "null"}, {name: "an empty list", text: "[]"},
		{name: "names", text: "a/blue, red", want: "blue eth1 [] ; red eth2 [] "},
		{name: "a name and an interface", text: "a/blue@net1", want: "blue net1 [] "},
		{name: "JSON as CN2's", text: `[{"name": "blue", "namespace": "a", "cni-args": null, "ips": ["10.0.1.7"],
			"mac": "de:ad:00:00:be:ef", "interface": "eth5"}, {"name": "red"}]`,
			want: "blue eth5 [10.0.1.7] de:ad:00:00:be:ef; red eth2 [] "},
		{name: "ips of null", text: `[{"name": "blue", "ips": null, "mac": null, "interface": null}]`, want: "blue eth1 [] "},
		{name: "ips of both versions, with a length", text: `[{"name": "blue", "ips": ["10.0.1.7/24", "fd00::7"]}]`,
			want: "blue eth1 [10.0.1.7 fd00::7] "},
		{name: "another Namespace", text: "b/blue", err: "entry 1: VirtualNetwork b/blue is of another Namespace: name one " +
			"of Namespace a, or of its copy in the central cluster, and join the two by VirtualNetworkRouters"},
		{name: "the copy of the Namespace", text: "a/red, copy/blue@net1", want: "red eth1 [] ; blue net1 [] "},
		{name: "the copy in JSON as CN2's", text: `[{"name": "blue", "namespace": "copy", "cni-args": null,
			"ips": ["10.0.1.7"], "interface": "eth5"}, {"name": "blue"}]`, want: "blue eth5 [10.0.1.7] ; blue eth2 [] "},
		{name: "the copy and a plugin's of this name", text: "copy/other, a/other, red",
			want: "other eth1 [] ; red eth3 [] "},
		{name: "the copy of another Namespace", text: "red, copy-of-b/blue", err: "entry 2: VirtualNetwork copy-of-b/blue " +
			"is of another Namespace: name one of Namespace a, or of its copy"},
		{name: "the copy without a name", text: "copy/", err: "entry 1: it names no VirtualNetwork"},
		{name: "the copy and eth0", text: "copy/blue@eth0", err: `entry 1: interface "eth0" is taken`},
		{name: "others of another plugin", text: "a/other, blue, b/other@net7, red", want: "blue eth2 [] ; red eth4 [] "},
		{name: "others of another plugin in JSON", text: `[{"name": "other", "namespace": "b",
			"bandwidth": {"ingressRate": 7}}, {"name": "blue"}]`, want: "blue eth2 [] "},
		{name: "no name", text: "a/blue,", err: "entry 2: it names no VirtualNetwork"},
		{name: "null in the list", text: "[null]", err: "entry 1: it names no VirtualNetwork"},
		{name: "an object", text: `{"name": "blue"}`, err: "it is no list of networks"},
		{name: "a curly quote", text: "[{“name”: \"blue\"}]", err: "it is no list of networks"},
		{name: "an unknown field", text: `[{"name": "blue", "speed": 7}]`, err: "it is no list of networks"},
		{name: "arguments", text: `[{"name": "blue", "cni-args": {"net.juniper.contrail.allowedAddressPairs": "[]"}}]`,
			err: "entry 1: cni-args is not served: remove it"},
		{name: "eth0", text: "blue@eth0", err: `entry 1: interface "eth0" is taken`},
		{name: "a pattern of the kernel", text: "blue@eth%d", err: `entry 1: interface "eth%d" is taken, or no name`},
		{name: "text after the list", text: `[{"name": "blue"}] red`, err: "it is no list of networks (there is text after"},
		{name: "an interface twice", text: "blue,red@eth1", err: "entry 2: another entry has the interface eth1"},
		{name: "two addresses", text: `[{"name": "blue", "ips": ["10.0.1.7", "10.0.1.8"]}]`, err: "entry 1: ips has two"},
		{name: "a group's MAC", text: `[{"name": "blue", "mac": "01:00:5e:00:00:01"}]`, err: "entry 1: mac "},
		{name: "too many", text: strings.Repeat("blue,", 16) + "blue", err: "it has 17 networks: name at most 16"},
	} {
		t.Run(row.name, func(t *testing.T) {
			list, err := PodNetworks("a", row.text, Entries{
				Other:  func(k derive.Object) bool { return k.Name == "other" },
				Copied: func(k derive.Object) bool { return k.Namespace == "copy" }})
			var have []string
			for _, n := range list {
				have = append(have, fmt.Sprint(n.Name, " ", n.Interface, " ", n.IPs, " ", n.MAC))
			}
			if (err == nil) != (row.err == "") || err != nil && !strings.HasPrefix(err.Error(), row.err) {
				t.Fatalf("error %v, want %q", err, row.err)
			}
			if err == nil && strings.Join(have, "; ") != row.want {
				t.Errorf("%q, want %q", have, row.want)
			}
		})
	}
	ends := addresses("10.0.1.3 10.0.1.9")
	if !slices.Equal(between(ends[0], ends[1]), prefixes("10.0.1.3/32 10.0.1.4/30 10.0.1.8/31")) {
		t.Error("prefixes between two addresses")
	}
}

// TestRanges compares ranges that are added one by one with a plain search.
func TestRanges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 2))
	random := func() Reserved {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rnd.IntN(4)), byte(rnd.IntN(256))}), 20+rnd.IntN(13))
		return Reserved{p.Masked(), p.Masked().String()}
	}
	for range 500 {
		var all []Reserved
		for range rnd.IntN(8) {
			all = append(all, random())
		}
		have := NewRanges(slices.Clone(all))
		for range rnd.IntN(8) {
			one := random()
			all = append(all, one)
			have.Add(one)
		}
		p := random().CIDR
		what, meets := have.Meets(p)
		want := slices.ContainsFunc(all, func(o Reserved) bool { return o.CIDR.Overlaps(p) })
		if meets != want || meets && !netip.MustParsePrefix(what).Overlaps(p) {
			t.Fatalf("%s meets %q (%t) of %v", p, what, meets, all)
		}
		for i := range have {
			if i > 0 && (!have[i-1].CIDR.Addr().Less(have[i].CIDR.Addr()) || have[i-1].CIDR.Overlaps(have[i].CIDR)) {
				t.Fatalf("%v became %v", all, have)
			}
		}
	}
}

// BenchmarkConflicts finds Subnets that meet ranges of many Nodes, whose addresses are in a network of the Nodes.
func BenchmarkConflicts(b *testing.B) {
	w := newVirtualWorld()
	for i := range 5000 {
		address := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		w.reserved.Set(derive.Object{Name: fmt.Sprint("node-", i)}, []Reserved{
			{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), "the Pods of a Node"},
			{netip.PrefixFrom(address, 32), "an address of a Node"}, {netip.MustParsePrefix("172.16.0.0/16"), "the network"},
		})
	}
	w.subnet("a", "s", 1, "10.200.1.0/24")
	w.engine.Pass()
	for i := 0; b.Loop(); i++ {
		w.leases.Set(derive.Object{Name: "gone"}, LeaseFacts{Range: Range{CIDR: prefixes("10.201.1.0/24")[0]},
			ResourceVersion: fmt.Sprint(i)})
		w.engine.Pass()
	}
}

// TestDeletedSeparateNetwork has a separate network that is deleted, and one that loses its Subnets. They have a zone
// until their leases end. Another deleted network is gone at once.
func TestDeletedSeparateNetwork(t *testing.T) {
	for name, end := range map[string]func(w *virtualWorld, k derive.Object){
		"deleted": func(w *virtualWorld, k derive.Object) { w.networks.Delete(k) },
		"without Subnets": func(w *virtualWorld, k derive.Object) {
			w.networks.Set(k, VirtualNetworkFactsOf(&contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{
				Namespace: k.Namespace, Name: k.Name, UID: types.UID(k.String())}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVirtualWorld()
			w.namespaces.Set(derive.Object{Name: "a"}, NamespaceFacts{UID: "a"})
			blue, red := derive.Object{Namespace: "a", Name: "blue"}, derive.Object{Namespace: "a", Name: "red"}
			for k, zone := range map[derive.Object]uint16{blue: 0, red: 17} {
				w.network(k.Namespace, k.Name, 1, k.Name, "")
				w.lease(k.Namespace, k.Name, k.Name, "10.0.1.0/24", zone)
			}
			w.engine.Pass()
			for _, k := range []derive.Object{blue, red} {
				if v, _ := w.tables.VirtualNetworks.Get(k); !v.Place.Known || v.Zone != 0 != (k == red) {
					t.Errorf("%s is %+v", k, v)
				}
				end(w, k)
			}
			w.engine.Pass()
			v, _ := w.tables.VirtualNetworks.Get(red)
			if want := (VirtualNetwork{Zone: 17, Ranges: prefixes("10.0.1.0/24")}); !reflect.DeepEqual(v, want) {
				t.Errorf("%s is %+v, want %+v", red, v, want)
			}
			if v, there := w.tables.VirtualNetworks.Get(blue); there {
				t.Errorf("%s is %+v", blue, v)
			}
			for _, row := range w.leases.All() {
				w.leases.Delete(row.Key)
			}
			w.engine.Pass()
			if list := w.tables.VirtualNetworks.All(); len(list) > 0 {
				t.Errorf("without leases there are %+v", list)
			}
		})
	}
}
