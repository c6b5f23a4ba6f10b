package tenant

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// groupWorld is a cluster with a controller that writes leases.
type groupWorld struct {
	*virtualWorld
	rnd      *rand.Rand
	clock    int64
	facts    map[derive.Object]SubnetFacts
	networks map[derive.Object]VirtualNetworkFacts
	routers  map[derive.Object]RouterFacts
	leases   map[derive.Object]LeaseFacts
	pods     map[derive.Object]bool // networks whose Pods want addresses
	isolated map[string]bool
	central  map[derive.Object]bool // networks that the central cluster joins
}

var groupSpaces = []string{"a", "b", "c", "d", "e"}

func newGroupWorld(seed uint64) *groupWorld {
	return &groupWorld{virtualWorld: newVirtualWorld(), rnd: rand.New(rand.NewPCG(seed, 32)),
		facts: map[derive.Object]SubnetFacts{}, networks: map[derive.Object]VirtualNetworkFacts{},
		routers: map[derive.Object]RouterFacts{}, leases: map[derive.Object]LeaseFacts{}, pods: map[derive.Object]bool{},
		isolated: map[string]bool{}, central: map[derive.Object]bool{}}
}

// add adds a VirtualNetwork "a/one" with a Subnet. Pods want addresses of it if its name is in upper case: "a/ONE".
func (w *groupWorld) add(text, cidr string, created int64) {
	namespace, name, _ := strings.Cut(strings.ToLower(text), "/")
	k := derive.Object{Namespace: namespace, Name: name}
	w.pods[k] = strings.ToLower(text) != text
	w.facts[k] = SubnetFacts{UID: types.UID(k.String()), Created: created, Range: Range{CIDR: prefixes(cidr)[0]},
		Pools: prefixes(cidr)}
	w.networks[k] = VirtualNetworkFacts{UID: types.UID(k.String()), Created: created, Subnets: [2]string{name, ""},
		Labels: map[string]string{"vn": "a"}}
}

// router sets a router of a Namespace, which imports the routers of some Namespaces.
func (w *groupWorld) router(space, name, kind, selects string, from ...string) {
	v := routerOf(space, name, kind, map[string]string{"vnr": "x"}, of("vn", selects))
	if len(from) > 0 {
		v.Spec.Import.VirtualNetworkRouters = []contrailv4.VirtualNetworkRouterEntry{{
			VirtualNetworkRouterSelector: of("vnr", "x"),
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: from}}}}}
	}
	w.routers[derive.Object{Namespace: space, Name: name}] = RouterFactsOf(v)
}

func (w *groupWorld) fill() {
	w.subnets.Replace(w.facts)
	w.virtualWorld.networks.Replace(w.networks)
	w.virtualWorld.leases.Replace(w.leases)
	w.virtualWorld.routers.Replace(w.routers)
	imports := map[derive.Object]ClusterSetFacts{}
	for k := range w.central {
		f := ClusterSetFactsOf(importOf(k.Namespace+"-"+k.Name, k.Namespace, k.Name, 7,
			joinedOf("west-red", 8, "west", "10.9.0.0/24")))
		f.VirtualNetwork.UID, f.ID = w.networks[k].UID, shared+Requested(w.networks[k].UID)
		imports[derive.Object{Name: k.Namespace + "-" + k.Name}] = f
	}
	w.imports.Replace(imports)
	for _, s := range groupSpaces {
		w.namespaces.Set(derive.Object{Name: s}, NamespaceFacts{UID: types.UID(s), Isolated: w.isolated[s]})
	}
	w.engine.Pass()
}

// due returns the leases that the controller would write. A lease without a range is deleted.
func (w *groupWorld) due() map[derive.Object]LeaseFacts {
	out, kept := map[derive.Object]LeaseFacts{}, map[derive.Object]bool{}
	for k, f := range w.facts {
		key := derive.Object{Name: string(f.UID)}
		have, exists := w.leases[key]
		s, _ := w.tables.Subnets.Get(k)
		_, numbered := w.tables.IDs.Get(VirtualName(s.Network))
		if !s.Served || !numbered || exists && (have.Network != s.Network || have.Range != s.Range ||
			have.Zone != s.Zone && len(have.Nodes) == 0) {
			continue
		}
		kept[key] = true
		want := have
		if want.Subnet, want.Network, want.Range, want.Ending = k, s.Network, s.Range, false; !exists {
			want.Zone = s.Zone
		}
		if w.pods[s.Network] && len(want.Nodes) == 0 {
			want.Nodes = []NodeBlocks{{Node: "node-1"}}
		}
		if !exists || len(want.Nodes) != len(have.Nodes) || have.Ending {
			out[key] = want
		}
	}
	for key, l := range w.leases {
		if kept[key] || l.Ending && len(l.Nodes) > 0 {
			continue
		}
		if l.Ending = true; len(l.Nodes) == 0 {
			l = LeaseFacts{}
		}
		out[key] = l
	}
	return out
}

// write writes the due leases, each with a probability. It reports whether any was due.
func (w *groupWorld) write(p float64) bool {
	due := w.due()
	for _, key := range slices.SortedFunc(maps.Keys(due), derive.Object.Compare) {
		switch l := due[key]; {
		case w.rnd.Float64() >= p:
		case l.Range.CIDR.IsValid():
			w.leases[key] = l
		default:
			delete(w.leases, key)
		}
	}
	w.fill()
	return len(due) > 0
}

// settle writes leases until they stay as they are. faults is called after each write.
func (w *groupWorld) settle(t *testing.T, p float64, faults func() []string) {
	t.Helper()
	w.fill()
	for range 400 {
		if !w.write(p) {
			return
		}
		if list := faults(); len(list) > 0 {
			t.Fatal(strings.Join(list, "\n"))
		}
	}
	t.Fatalf("the leases change without end: %v\ndue %v", w.leases, w.due())
}

// faults returns networks with Pods that have a common address in one zone.
func (w *groupWorld) faults() (out []string) {
	ranges := map[uint16]map[netip.Prefix]derive.Object{}
	for _, l := range w.leases {
		zone, _ := w.tables.virtual.zones.Get(l.Network)
		if len(l.Nodes) == 0 {
			continue
		}
		if ranges[zone] == nil {
			ranges[zone] = map[netip.Prefix]derive.Object{}
		}
		for p, other := range ranges[zone] {
			if other != l.Network && p.Overlaps(l.Range.CIDR) {
				out = append(out, fmt.Sprint(l.Network, " and ", other, " have addresses of ", p, " in zone ", zone))
			}
		}
		ranges[zone][l.Range.CIDR] = l.Network
	}
	return out
}

// zones returns the networks by zone, such as "d/one | a/one a/two". Zone 0 is first.
func (w *groupWorld) zones() string {
	by := map[uint16][]string{}
	for _, l := range w.leases {
		by[l.Zone] = append(by[l.Zone], l.Network.String())
	}
	var out []string
	for zone, names := range by {
		slices.Sort(names)
		if zone != 0 {
			out = append(out, strings.Join(slices.Compact(names), " "))
		}
	}
	slices.Sort(out)
	slices.Sort(by[0])
	return strings.Join(append([]string{strings.Join(slices.Compact(by[0]), " ")}, out...), " | ")
}

// TestGroups has Namespace d with networks of unique addresses. Later networks have ranges of these.
func TestGroups(t *testing.T) {
	for _, row := range []struct {
		name           string
		first, then    func(*groupWorld)
		before, settle string
	}{
		{"networks that are created together", func(w *groupWorld) {
			w.add("a/one", "10.0.1.0/24", 1)
			w.add("a/two", "10.0.2.0/24", 1)
		}, func(w *groupWorld) { w.router("a", "r", "mesh", "a") }, "d/one d/two | a/one a/two", "d/one d/two | a/one a/two"},
		{"a member that has to stay holds its own join", func(w *groupWorld) {
			w.add("b/ONE", "10.0.1.0/24", 1)
			w.add("b/TWO", "10.0.2.0/24", 1)
			w.add("c/two", "10.0.2.0/25", 1)
			w.add("c/three", "10.0.3.0/24", 1)
			w.router("b", "r", "mesh", "a")
			w.router("c", "r", "mesh", "a")
		}, func(w *groupWorld) {
			w.router("b", "r", "mesh", "a", "c")
			w.router("c", "r", "mesh", "a", "b")
		}, "d/one d/two | b/one b/two | c/three c/two", "d/one d/two | b/one b/two | c/three c/two"},
		{"two members with Pods in different zones, and others with common addresses", func(w *groupWorld) {
			w.add("d/three", "10.0.3.0/24", 0)
			w.add("a/ONE", "10.0.1.0/24", 1)
			w.add("a/two", "10.0.2.0/25", 1)
			w.add("b/ONE", "10.0.1.0/24", 1)
			w.add("c/three", "10.0.3.0/24", 1)
			w.add("c/two", "10.0.2.0/24", 1)
			w.router("a", "r", "mesh", "a")
			w.router("c", "r", "mesh", "a")
		}, func(w *groupWorld) {
			w.router("a", "r", "mesh", "a", "b", "c")
			w.router("b", "r", "mesh", "a", "a")
			w.router("c", "r", "mesh", "a", "a")
		}, "d/one d/three d/two | a/one a/two | b/one | c/three c/two",
			"d/one d/three d/two | a/one a/two | b/one | c/three c/two"},
		{"a former partner takes another zone", func(w *groupWorld) {
			w.add("a/ONE", "10.0.1.0/24", 1)
			w.add("b/TWO", "10.0.2.0/24", 1)
			w.router("a", "r", "mesh", "a", "b")
			w.router("b", "r", "mesh", "a", "a")
		}, func(w *groupWorld) {
			delete(w.routers, derive.Object{Namespace: "b", Name: "r"})
			w.add("b/big", "10.0.0.0/16", 2)
		}, "d/one d/two | a/one b/two", "d/one d/two | a/one b/two | b/big"},
		{"a second spoke with the range of the first one", func(w *groupWorld) {
			w.add("a/hub", "10.0.1.0/24", 1)
			w.add("b/s", "10.0.5.0/24", 1)
			w.router("a", "r", "hub", "a", "b", "c")
			w.router("b", "r", "spoke", "a", "a")
			w.router("c", "r", "spoke", "a", "a")
		}, func(w *groupWorld) { w.add("c/s", "10.0.5.0/24", 2) }, "d/one d/two | a/hub b/s", "c/s d/one d/two | a/hub b/s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newGroupWorld(1)
			w.add("d/ONE", "10.0.1.0/24", 0)
			w.add("d/TWO", "10.0.2.0/24", 0)
			row.first(w)
			w.settle(t, 1, w.faults)
			if have := w.zones(); have != row.before {
				t.Errorf("before, the zones are %s, want %s", have, row.before)
			}
			row.then(w)
			w.settle(t, 1, w.faults)
			if have := w.zones(); have != row.settle {
				t.Errorf("the zones are %s, want %s", have, row.settle)
			}
		})
	}
}

// TestUnfinishedMove has a network with two Subnets that moves to another zone. A Pod gets an address of the first
// Subnet before the lease of the second one is replaced.
func TestUnfinishedMove(t *testing.T) {
	w := newVirtualWorld()
	w.network("b", "red", 2, "v4", "v6")
	w.subnet("b", "v4", 2, "10.0.1.0/24")
	w.subnet("b", "v6", 2, "fd00:1::/64")
	w.lease("b", "red", "v4", "10.0.1.0/24", 5)
	w.leaseOf("b", "red", "v6", "fd00:1::/64", 9)
	for _, pods := range []uint16{5, 0} {
		w.lease("b", "red", "v4", "10.0.1.0/24", pods)
		w.engine.Pass()
		v, _ := w.tables.VirtualNetworks.Get(derive.Object{Namespace: "b", Name: "red"})
		s, _ := w.tables.Subnets.Get(derive.Object{Namespace: "b", Name: "v6"})
		if v.Zone != pods || s.Zone != pods || !s.Served {
			t.Errorf("the Pods have zone %d: agents use %d, and the second lease gets %d", pods, v.Zone, s.Zone)
		}
	}
}

// change makes one random change.
func (w *groupWorld) change() {
	r := w.rnd
	w.clock++
	k := derive.Object{Namespace: pick(r, groupSpaces), Name: pick(r, []string{"a", "b", "c", "d"})}
	uid := types.UID(fmt.Sprint(r.IntN(1000), " ", w.clock))
	switch r.IntN(16) {
	case 0, 1, 2:
		g := Range{CIDR: netip.MustParsePrefix(pick(r, []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/23", "10.0.2.0/24",
			"10.0.3.0/24", "fd00::/64", "fd00:0:0:1::/64", "fd00::/63", "fd00:0:0:2::/64"}))}
		w.facts[k] = SubnetFacts{UID: uid, Created: w.clock / 4, Range: g, Pools: []netip.Prefix{g.CIDR}}
	case 3:
		delete(w.facts, k)
	case 4, 5, 6:
		names := []string{"a", "b", "c", "d", ""}
		w.networks[k] = VirtualNetworkFacts{UID: uid, Created: w.clock / 4, Own: r.IntN(10) == 0,
			Labels:  map[string]string{"vn": pick(r, []string{"a", "a", "b"})},
			Subnets: [2]string{pick(r, names), pick(r, names)}}
	case 7:
		delete(w.networks, k)
	case 8, 9, 10:
		name := pick(r, []string{"r", "s"})
		if delete(w.routers, derive.Object{Namespace: k.Namespace, Name: name}); r.IntN(4) > 0 {
			var from []string
			for range r.IntN(4) {
				from = append(from, pick(r, groupSpaces))
			}
			kind, selects := pick(r, []string{"mesh", "mesh", "mesh", "hub", "spoke"}), pick(r, []string{"a", "a", "b"})
			w.router(k.Namespace, name, kind, selects, from...)
		}
	case 11:
		if f, ok := w.networks[k]; ok {
			f.Own = !f.Own && r.IntN(3) == 0
			w.networks[k] = f
		}
	case 12: // its Pods go
		w.pods[k] = false
		for key, l := range w.leases {
			if l.Network == k {
				l.Nodes = nil
				w.leases[key] = l
			}
		}
	case 13:
		w.pods[k] = !w.pods[k]
	case 14:
		w.isolated[k.Namespace] = !w.isolated[k.Namespace] && r.IntN(4) == 0
	case 15:
		if _, there := w.networks[k]; there && r.IntN(3) == 0 {
			w.central[k] = true
		} else {
			delete(w.central, k)
		}
	}
}

// TestGroupWalk changes a cluster with many joins at random. The controller writes its leases in any order, until they
// stay as they are. At no time do two networks with Pods have a common address in one zone.
func TestGroupWalk(t *testing.T) {
	count := map[string]int{}
	for seed := range uint64(30) {
		w := newGroupWorld(seed)
		for range 100 {
			for range 1 + w.rnd.IntN(4) {
				w.change()
			}
			w.settle(t, []float64{1, 0.3 + w.rnd.Float64()/2}[w.rnd.IntN(2)], w.faults)
			zones := map[derive.Object]uint16{}
			for _, l := range w.leases {
				if zone, ok := zones[l.Network]; ok && zone != l.Zone {
					t.Fatalf("seed %d: %s has the zones %d and %d", seed, l.Network, zone, l.Zone)
				}
				if zones[l.Network] = l.Zone; l.Zone != 0 {
					joined, _ := w.tables.Joined.Get(VirtualName(l.Network))
					count["joined in a zone"] += len(joined)
					count["separate"]++
				}
			}
		}
	}
	for what, least := range map[string]int{"separate": 3000, "joined in a zone": 300} {
		if count[what] < least {
			t.Errorf("%d are %s: too few", count[what], what)
		}
	}
}
