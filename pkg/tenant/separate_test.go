package tenant

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// lease sets the lease of a Subnet, which may be deleted. A Node has blocks.
func (w *virtualWorld) lease(namespace, network, subnet, cidr string, zone uint16) {
	w.leaseOf(namespace, network, subnet, cidr, zone, NodeBlocks{Node: "node-1"})
}

// leaseOf is lease with the blocks of Nodes.
func (w *virtualWorld) leaseOf(namespace, network, subnet, cidr string, zone uint16, nodes ...NodeBlocks) {
	w.leases.Set(derive.Object{Name: "sn " + namespace + "/" + subnet}, LeaseFacts{
		Subnet:  derive.Object{Namespace: namespace, Name: subnet},
		Network: derive.Object{Namespace: namespace, Name: network},
		Range:   Range{CIDR: prefixes(cidr)[0]}, Zone: zone, Nodes: nodes})
}

// TestSeparateNetworks has VirtualNetwork b/red with the Subnets v4 and v6, and the older network a/blue with the range
// of v4. Rows have the Subnets of b/red: the zone, or the reason without a zone.
func TestSeparateNetworks(t *testing.T) {
	zone := firstZone("b")
	red := fmt.Sprint("zone ", zone)
	const overlaps = "10.0.1.0/24 overlaps Subnet a/s, so no Pod gets an address of it"
	join := func(w *virtualWorld, cidr string, zone uint16, nodes ...NodeBlocks) {
		w.router("b", "to-c", "mesh", "red", "to-b", "c")
		w.router("c", "to-b", "mesh", "other", "to-c", "b")
		w.network("c", "other", 3, "other", "")
		w.subnet("c", "other", 3, cidr)
		w.leaseOf("c", "other", "other", cidr, zone, nodes...)
	}
	pods := NodeBlocks{Node: "node-1"}
	for _, row := range []struct {
		name   string
		change func(*virtualWorld)
		v4, v6 string
	}{
		{"equal ranges", func(*virtualWorld) {}, red, red},
		{"another range", func(w *virtualWorld) { w.subnet("b", "v4", 2, "10.0.2.0/24") }, "zone 0", "zone 0"},
		{"a part of the range", func(w *virtualWorld) { w.subnet("b", "v4", 2, "10.0.1.128/25") }, red, red},
		{"the other version of IP overlaps", func(w *virtualWorld) {
			w.subnet("b", "v4", 2, "10.0.2.0/24")
			w.subnet("c", "s", 1, "fd00::/16")
			w.network("c", "green", 1, "", "s")
		}, red, red},
		{"the older network has a lease", func(w *virtualWorld) { w.lease("a", "blue", "s", "10.0.1.0/24", 0) }, red, red},
		{"the older network is separate", func(w *virtualWorld) { w.lease("a", "blue", "s", "10.0.1.0/24", 7) },
			"zone 0", "zone 0"},
		{"it is older, and the other one has a lease", func(w *virtualWorld) {
			w.subnet("b", "v4", 0, "10.0.1.0/24")
			w.lease("a", "blue", "s", "10.0.1.0/24", 0)
		}, red, red},
		{"it is older", func(w *virtualWorld) { w.subnet("b", "v4", 0, "10.0.1.0/24") }, "zone 0", "zone 0"},
		{"Pods of a deleted Subnet", func(w *virtualWorld) {
			w.subnets.Delete(derive.Object{Namespace: "a", Name: "s"})
			w.lease("a", "blue", "s", "10.0.1.0/24", 0)
		}, red, red},
		{"Pods of a deleted Subnet in a separate network", func(w *virtualWorld) {
			w.subnets.Delete(derive.Object{Namespace: "a", Name: "s"})
			w.lease("a", "blue", "s", "10.0.1.0/24", 7)
		}, "zone 0", "zone 0"},
		{"a lease of it has no zone", func(w *virtualWorld) { w.lease("b", "red", "v6", "fd00:1::/64", 0) },
			overlaps + ", since Pods of VirtualNetwork b/red may have addresses that are unique in the cluster: create " +
				"another Subnet with a range of its own", "zone 0"},
		{"a lease of it has no zone, and no blocks", func(w *virtualWorld) {
			w.leaseOf("b", "red", "v6", "fd00:1::/64", 0)
		}, red, red},
		{"a lease of it has a zone", func(w *virtualWorld) { w.lease("b", "red", "v6", "fd00:1::/64", 9) },
			"zone 9", "zone 9"},
		{"both leases have a zone, and the other one is gone", func(w *virtualWorld) {
			w.subnets.Delete(derive.Object{Namespace: "a", Name: "s"})
			w.lease("b", "red", "v4", "10.0.1.0/24", 9)
			w.lease("b", "red", "v6", "fd00:1::/64", 9)
		}, "zone 9", "zone 9"},
		{"a Subnet of an earlier network of its name", func(w *virtualWorld) {
			w.lease("b", "red", "earlier", "10.0.1.0/26", 9)
		}, "10.0.1.0/24 overlaps Pods of VirtualNetwork b/red, whose Subnet was deleted", "zone 9"},
		{"a deleted Subnet of its own, without a zone", func(w *virtualWorld) {
			w.subnets.Delete(derive.Object{Namespace: "a", Name: "s"})
			w.lease("b", "red", "earlier", "10.0.1.0/26", 0)
		}, "10.0.1.0/24 overlaps Pods of VirtualNetwork b/red, whose Subnet was deleted, so no Pod gets an address of it " +
			"while Pods have addresses of the earlier Subnet: delete these Pods, or create another Subnet", "zone 0"},
		{"a deleted Subnet of its own, without a zone and blocks", func(w *virtualWorld) {
			w.subnets.Delete(derive.Object{Namespace: "a", Name: "s"})
			w.leaseOf("b", "red", "earlier", "10.0.1.0/26", 0)
		}, "10.0.1.0/24 overlaps Pods of VirtualNetwork b/red, whose Subnet was deleted", "zone 0"},
		{"it had another Subnet, without blocks", func(w *virtualWorld) {
			w.subnet("a", "s", 1, "10.0.9.0/24")
			w.subnet("b", "earlier", 1, "10.0.0.0/23")
			w.leaseOf("b", "red", "earlier", "10.0.0.0/23", 0)
		}, "10.0.1.0/24 overlaps Subnet b/earlier, which VirtualNetwork b/red had before, so no Pod gets an address of it " +
			"while Pods have addresses of the earlier Subnet: delete these Pods, or create another Subnet", "zone 0"},
		{"it had another Subnet, with a zone", func(w *virtualWorld) {
			w.subnet("b", "earlier", 1, "10.0.0.0/23")
			w.lease("b", "red", "earlier", "10.0.0.0/23", 9)
		}, "10.0.1.0/24 overlaps Subnet b/earlier, which VirtualNetwork b/red had before", "zone 9"},
		{"it had another Subnet, and its other range is equal to another one", func(w *virtualWorld) {
			w.subnet("b", "earlier", 1, "10.0.0.0/23")
			w.leaseOf("b", "red", "earlier", "10.0.0.0/23", 0)
			w.subnet("a", "s", 1, "fd00:1::/64")
			w.network("a", "blue", 1, "", "s")
		}, "10.0.1.0/24 overlaps Subnet b/earlier, which VirtualNetwork b/red had before", red},
		{"an older Subnet of no network", func(w *virtualWorld) {
			w.networks.Delete(derive.Object{Namespace: "a", Name: "blue"})
		}, "zone 0", "zone 0"},
		{"an older Subnet of no network in its Namespace", func(w *virtualWorld) {
			w.subnet("a", "s", 1, "10.0.9.0/24")
			w.subnet("b", "earlier", 1, "10.0.0.0/23")
		}, "zone 0", "zone 0"},
		{"Pods of an older Subnet that has no network any more", func(w *virtualWorld) {
			w.networks.Delete(derive.Object{Namespace: "a", Name: "blue"})
			w.lease("a", "blue", "s", "10.0.1.0/24", 0)
		}, red, red},
		{"it is joined", func(w *virtualWorld) { join(w, "10.0.2.0/24", 0) }, red, red},
		{"it is joined with a network that has Pods", func(w *virtualWorld) { join(w, "10.0.2.0/24", 0, pods) },
			overlaps + ", since Pods of VirtualNetwork c/other may have addresses that are unique in the cluster: delete " +
				"these Pods, or create another Subnet with a range of its own", "zone 0"},
		{"it is joined with a separate network", func(w *virtualWorld) { join(w, "10.0.2.0/24", 9) }, "zone 9", "zone 9"},
		{"it is joined with a separate network that has Pods", func(w *virtualWorld) {
			join(w, "10.0.2.0/24", 9, pods)
		}, "zone 9", "zone 9"},
		{"it is joined with a separate network that has its range", func(w *virtualWorld) {
			join(w, "10.0.1.0/24", 9, pods)
		}, overlaps + ", since routers join VirtualNetwork b/red, directly or over others, with VirtualNetwork c/other, " +
			"which has a range of it: remove one of them from the VirtualNetworkRouters, or create another Subnet with a " +
			"range of its own", "zone 0"},
		{"it is joined with a network in a zone with its range", func(w *virtualWorld) {
			join(w, "10.0.2.0/24", 9, pods)
			w.lease("d", "x", "x", "10.0.1.0/24", 9)
		}, overlaps + ", since VirtualNetwork b/red is joined with networks in zone 9, where its range overlaps " +
			"Pods of VirtualNetwork d/x, whose Subnet was deleted: remove it", "zone 0"},
		{"it is joined with a network that needs a zone, too", func(w *virtualWorld) {
			join(w, "10.0.1.0/25", 0)
			w.leases.Delete(derive.Object{Name: "sn c/other"})
		}, red, red},
		{"it is joined with an isolated Namespace", func(w *virtualWorld) {
			w.namespaces.Set(derive.Object{Name: "b"}, NamespaceFacts{UID: "b", Isolated: true})
			w.network("b", contrailv4.DefaultPodNetwork, 1, "", "", func(n *contrailv4.VirtualNetwork) {
				n.Labels = map[string]string{"vn": "red"}
			})
			w.router("b", "all", "mesh", "red", "", "")
		}, overlaps + ", since routers join it with the isolated Namespace b: remove it from these VirtualNetworkRouters, " +
			"or create another Subnet with a range of its own", "zone 0"},
		{"another network of its Namespace is separate", func(w *virtualWorld) {
			w.lease("b", "green", "green", "10.0.2.0/24", 9)
		}, "zone 9", "zone 9"},
		{"a separate network of its Namespace has the range", func(w *virtualWorld) {
			w.lease("b", "green", "green", "10.0.1.0/25", 9)
		}, red, red},
		{"it has no Pods, and joins a network with another zone", func(w *virtualWorld) {
			w.leaseOf("b", "red", "v4", "10.0.1.0/24", 11)
			join(w, "10.0.2.0/24", 9, pods)
		}, "zone 9", "zone 9"},
		{"it has Pods, and joins a network with another zone", func(w *virtualWorld) {
			w.leaseOf("b", "red", "v4", "10.0.1.0/24", 11, pods)
			join(w, "10.0.2.0/24", 9, pods)
		}, "zone 11", "zone 11"},
		{"a router selects it alone", func(w *virtualWorld) { w.router("b", "alone", "mesh", "red", "", "") }, red, red},
		{"the central cluster joins it", func(w *virtualWorld) {
			w.namespaces.Set(derive.Object{Name: "b"}, NamespaceFacts{UID: "b"})
			w.imports.Set(derive.Object{Name: "b-red"}, ClusterSetFactsOf(importOf("b-red", "b", "red", 7,
				joinedOf("west-red", 8, "west", "10.9.0.0/24"))))
		}, overlaps + ", since VirtualNetwork b/red is joined with other networks in the central cluster", "zone 0"},
		{"it is the own network of Pods", func(w *virtualWorld) {
			w.network("b", "red", 2, "v4", "v6", func(n *contrailv4.VirtualNetwork) { n.Spec.PodNetwork = true })
		}, red, red},
		{"a range of a Node's Pods", func(w *virtualWorld) {
			w.reserved.Set(derive.Object{Name: "n"}, []Reserved{{prefixes("10.0.1.0/25")[0], "the Pods of Node node-1"}})
		}, "10.0.1.0/24 overlaps the Pods of Node node-1, so no Pod gets an address of it: create another", "zone 0"},
		{"the older one is not allowed", func(w *virtualWorld) {
			w.subnet("a", "s", 1, "10.0.0.0/16")
			w.allow("10.0.1.0/24 fd00::/16")
		}, "zone 0", "zone 0"},
		{"another network has its first zone", func(w *virtualWorld) { w.lease("c", "x", "x", "10.7.0.0/24", zone) },
			fmt.Sprint("zone ", zone+1), fmt.Sprint("zone ", zone+1)},
		{"another network has the zone of its leases", func(w *virtualWorld) {
			w.lease("a", "other", "other", "10.0.1.0/24", 9)
			w.lease("b", "red", "v4", "10.0.1.0/24", 9)
		}, "10.0.1.0/24 overlaps Pods of VirtualNetwork a/other, whose Subnet was deleted (both have zone 9), so no Pod " +
			"gets an address of it: delete the Pods in its VirtualNetwork, and it gets another zone", "zone 9"},
		{"all zones are taken", func(w *virtualWorld) {
			for i := range MaxZone {
				w.lease("c", fmt.Sprint(i), fmt.Sprint(i), "10.7.0.0/24", uint16(i)+1)
			}
		}, overlaps + ", since all 32000 zones are taken: create another Subnet with a range of its own", "zone 0"},
		{"no network has it", func(w *virtualWorld) { w.networks.Delete(derive.Object{Namespace: "b", Name: "red"}) },
			"zone 0", "zone 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newVirtualWorld()
			w.network("a", "blue", 1, "s", "")
			w.subnet("a", "s", 1, "10.0.1.0/24")
			w.network("b", "red", 2, "v4", "v6")
			w.subnet("b", "v4", 2, "10.0.1.0/24")
			w.subnet("b", "v6", 2, "fd00:1::/64")
			row.change(w)
			w.engine.Pass()
			for name, want := range map[string]string{"v4": row.v4, "v6": row.v6} {
				s, _ := w.tables.Subnets.Get(derive.Object{Namespace: "b", Name: name})
				have := fmt.Sprint("zone ", s.Zone)
				if !s.Served {
					have = strings.TrimPrefix(words(s.Problems), "spec.cidr: ")
				} else if len(s.Problems) > 0 {
					t.Errorf("%s is served, and has problems %s", name, words(s.Problems))
				}
				if strings.HasPrefix(want, "zone") && have != want || !strings.HasPrefix(have, want) {
					t.Errorf("%s: %s, want %s", name, have, want)
				}
			}
			s, _ := w.tables.Subnets.Get(derive.Object{Namespace: "a", Name: "s"})
			n, _ := w.tables.VirtualNetworkProblems.Get(derive.Object{Namespace: "b", Name: "red"})
			fails := !strings.HasPrefix(row.v4, "zone") || !strings.HasPrefix(row.v6, "zone")
			if n.Fails != fails || !fails && len(n.List) > 0 {
				t.Errorf("b/red fails: %t, want %t: %s", n.Fails, fails, words(n.List))
			}
			if s.Zone != 0 && row.name != "the older network is separate" && !strings.HasPrefix(row.name, "it is older") {
				t.Errorf("the older network has zone %d", s.Zone)
			}
		})
	}
}

// TestJoinsOfSeparateNetworks has a separate network that routers and the leader join with others. It is joined with
// none, in the tables of agents as well: they have no Subnets.
func TestJoinsOfSeparateNetworks(t *testing.T) {
	w := newVirtualWorld()
	for _, name := range []string{"a", "b"} {
		w.namespaces.Set(derive.Object{Name: name}, NamespaceFacts{UID: types.UID(name)})
	}
	for i, k := range []derive.Object{{Namespace: "a", Name: "blue"}, {Namespace: "a", Name: "red"},
		{Namespace: "b", Name: "green"}} {
		w.network(k.Namespace, k.Name, 1, k.Name, "", func(n *contrailv4.VirtualNetwork) {
			n.Labels, n.Spec.PodNetwork = map[string]string{"vn": "all"}, true
		})
		cidr := fmt.Sprintf("10.0.%d.0/24", i)
		w.subnet(k.Namespace, k.Name, 1, cidr)
		w.lease(k.Namespace, k.Name, k.Name, cidr, 0)
	}
	w.router("a", "to-b", "mesh", "all", "to-a", "b")
	w.router("b", "to-a", "mesh", "all", "to-b", "a")
	blue := importOf("a-blue", "a", "blue", 7, joinedOf("b-green", 6, "own", "10.0.2.0/24"),
		joinedOf("west", 8, "west", "10.9.0.0/24"), joinedOf("west-d", 9, "west"))
	green := importOf("b-green", "b", "green", 6, joinedOf("a-blue", 7, "own", "10.0.0.0/24"),
		joinedOf("west", 8, "west", "10.9.0.0/24"))
	blue.Spec.ClusterIDs = []string{"north"}
	w.imports.Set(derive.Object{Name: "a-blue"}, ClusterSetFactsOf(blue))
	w.imports.Set(derive.Object{Name: "b-green"}, ClusterSetFactsOf(green))
	text := func() (out string) {
		w.engine.Pass()
		for _, k := range []derive.Object{{Namespace: "a", Name: "blue"}, {Namespace: "a", Name: "red"},
			{Namespace: "b", Name: "green"}} {
			v, _ := w.tables.VirtualNetworks.Get(k)
			out += fmt.Sprintf("%s zone %d joined %d %v far %v with %v own %t\n", k.Name, v.Zone, len(v.Place.Joined), v.Joined,
				v.Far, v.Place.Clusters, v.Own)
		}
		return out + "west " + w.remoteText("west") + "\nnorth " + w.remoteText("north")
	}
	const unique = `blue zone 0 joined 4 [10.0.1.0/24 10.0.2.0/24 10.9.0.0/24] far [10.9.0.0/24] with [north west] own true
red zone 0 joined 2 [10.0.0.0/24 10.0.2.0/24] far [] with [] own true
green zone 0 joined 3 [10.0.0.0/24 10.0.1.0/24 10.9.0.0/24] far [10.9.0.0/24] with [] own true
west from [9] to [7], 8 10.9.0.0/24 to [6 7]
north from [7] to [7]`
	const separate = `blue zone 17 joined 0 [] far [] with [] own true
red zone 0 joined 1 [10.0.2.0/24] far [] with [] own true
green zone 0 joined 2 [10.0.1.0/24 10.9.0.0/24] far [10.9.0.0/24] with [] own true
west from [] to [], 8 10.9.0.0/24 to [6]
north from [] to []`
	if have := text(); have != unique {
		t.Fatalf("without a zone:\n%s\nwant\n%s", have, unique)
	}
	w.lease("a", "blue", "blue", "10.0.0.0/24", 17)
	if have := text(); have != separate {
		t.Errorf("with a zone:\n%s\nwant\n%s", have, separate)
	}
	const why = "its addresses may also exist in other networks (its SubnetLease has zone 17)"
	const again = ": create it again with a Subnet whose range no other Subnet overlaps"
	const apart = ", since one of two such networks may have addresses of others: create it again with a Subnet whose " +
		"range no other Subnet overlaps, or, if both are VirtualNetworks without common addresses, delete the Pods " +
		"in one of the two"
	const withGreen = "spec.import: it does not join VirtualNetwork a/blue (zone 17) with VirtualNetwork b/green (zone 0)"
	want := []string{
		"VirtualNetwork a/blue: the central cluster does not join it: " + why + again,
		"VirtualNetworkRouter a/to-b: spec.virtualNetworkSelector: it does not join VirtualNetwork a/blue (zone 17) with " +
			"VirtualNetwork a/red (zone 0)" + apart,
		"VirtualNetworkRouter a/to-b: " + withGreen + apart,
		"VirtualNetworkRouter b/to-a: " + withGreen + apart,
	}
	var have []string
	for _, p := range w.engine.Problems() {
		have = append(have, p.String())
	}
	slices.Sort(have)
	if slices.Sort(want); !slices.Equal(have, want) {
		t.Errorf("problems %q, want %q", have, want)
	}
	if n, _ := w.tables.VirtualNetworkProblems.Get(derive.Object{Namespace: "a", Name: "blue"}); n.Fails {
		t.Error("the network fails")
	}
	w.lease("a", "blue", "blue", "10.0.0.0/24", 0)
	if have := text(); have != unique || len(w.engine.Problems()) > 0 {
		t.Errorf("without a zone again:\n%s\nproblems %v", have, w.engine.Problems())
	}
	// A router that selects separate networks alone has one problem.
	w.lease("b", "green", "green", "10.0.2.0/24", 3)
	w.engine.Pass()
	if ps, _ := w.tables.RouterProblems.Get(Name{doorRouter, "b", "to-a"}); len(ps) != 1 {
		t.Errorf("problems %s", words(ps))
	}
}

// subnetWalk is a cluster whose Subnets and VirtualNetworks change.
type subnetWalk struct {
	*virtualWorld
	rnd      *rand.Rand
	clock    int64
	facts    map[derive.Object]SubnetFacts
	networks map[derive.Object]VirtualNetworkFacts
	routers  map[string]bool // of a Namespace, for all its networks with the label
	imports  bool            // the routers of Namespaces a and b import each other
	leases   map[derive.Object]LeaseFacts
	reserved []Reserved
}

func newSubnetWalk(seed uint64) *subnetWalk {
	return &subnetWalk{virtualWorld: newVirtualWorld(), rnd: rand.New(rand.NewPCG(seed, 31)),
		facts: map[derive.Object]SubnetFacts{}, networks: map[derive.Object]VirtualNetworkFacts{}, routers: map[string]bool{},
		leases: map[derive.Object]LeaseFacts{}}
}

// change makes one random change.
func (w *subnetWalk) change() {
	r := w.rnd
	w.clock++
	space := pick(r, names[:3])
	k := derive.Object{Namespace: space, Name: pick(r, names[:3])}
	created := w.clock / 4 // several objects of one second
	uid := types.UID(fmt.Sprint(r.IntN(1000), " ", w.clock))
	switch r.IntN(9) {
	case 0, 1, 2:
		text := pick(r, []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/23", "10.0.2.0/24", "10.0.3.0/24",
			"fd00::/64", "fd00:0:0:1::/64", "fd00::/63"})
		g := Range{CIDR: netip.MustParsePrefix(text)}
		w.facts[k] = SubnetFacts{UID: uid, Created: created, Range: g, Pools: []netip.Prefix{g.CIDR}}
	case 3:
		delete(w.facts, k)
	case 4, 5, 6:
		f := VirtualNetworkFacts{UID: uid, Created: created, Own: r.IntN(5) == 0,
			Labels: map[string]string{"vn": pick(r, []string{"a", "a", "b"})}}
		f.Subnets = [2]string{pick(r, []string{"a", "b", "c", ""}), pick(r, []string{"a", "b", "c", ""})}
		w.networks[k] = f
	case 7:
		if r.IntN(2) == 0 {
			delete(w.networks, k)
		} else {
			w.routers[space] = !w.routers[space]
			w.imports = r.IntN(2) == 0
		}
	case 8:
		w.reserved = nil
		if r.IntN(4) == 0 {
			w.reserved = []Reserved{{netip.MustParsePrefix("10.0.1.0/25"), "a Node"}}
		}
	}
}

// fill sets the objects.
func (w *subnetWalk) fill(v *virtualWorld) {
	v.subnets.Replace(w.facts)
	v.networks.Replace(w.networks)
	v.leases.Replace(w.leases)
	v.reserved.Set(derive.Object{Name: "n"}, w.reserved)
	from := map[string]string{"a": "b", "b": "a"}
	for _, space := range names[:3] {
		switch {
		case w.routers[space] && w.imports && from[space] != "":
			v.router(space, "r", "mesh", "a", "r", from[space])
		case w.routers[space]:
			v.router(space, "r", "mesh", "a", "", "")
		default:
			v.routers.Delete(derive.Object{Namespace: space, Name: "r"})
		}
	}
	v.engine.Pass()
}

// write writes leases as the controller does. At random, Nodes get blocks, and leases of Subnets that give no addresses
// go.
func (w *subnetWalk) write() { w.writeLeases(true) }

func (w *subnetWalk) writeLeases(blocks bool) {
	maps.Copy(w.leases, w.planned())
	for _, key := range slices.SortedFunc(maps.Keys(w.leases), derive.Object.Compare) {
		l := w.leases[key]
		s, _ := w.tables.Subnets.Get(l.Subnet)
		f := w.facts[l.Subnet]
		switch {
		case string(f.UID) != key.Name || !s.Served || s.Network != l.Network:
		case s.Zone != l.Zone && len(l.Nodes) == 0:
			delete(w.leases, key)
			continue
		default:
			if blocks && w.rnd.IntN(3) == 0 {
				l.Nodes = []NodeBlocks{{Node: "node-1"}}
				w.leases[key] = l
			}
			continue
		}
		if l.Ending = true; len(l.Nodes) == 0 || blocks && w.rnd.IntN(3) == 0 {
			delete(w.leases, key)
		} else {
			w.leases[key] = l
		}
	}
}

// planned returns the leases that the controller would create.
func (w *subnetWalk) planned() map[derive.Object]LeaseFacts {
	out := map[derive.Object]LeaseFacts{}
	for k, f := range w.facts {
		s, _ := w.tables.Subnets.Get(k)
		key := derive.Object{Name: string(f.UID)}
		if _, exists := w.leases[key]; s.Served && !exists && s.Network.Name != "" {
			out[key] = LeaseFacts{Subnet: k, Network: s.Network, Range: s.Range, Zone: s.Zone}
		}
	}
	return out
}

// networkOf returns the oldest network that names a Subnet.
func (w *subnetWalk) networkOf(k derive.Object) (out derive.Object) {
	for n, f := range w.networks {
		if n.Namespace == k.Namespace && f.Subnets[versionOf(w.facts[k].Range.CIDR)] == k.Name && (out.Name == "" ||
			cmp.Or(cmp.Compare(f.Created, w.networks[out].Created), cmp.Compare(f.UID, w.networks[out].UID)) < 0) {
			out = n
		}
	}
	return out
}

// zone returns the highest zone of a network's leases. If a lease has blocks, the network has Pods, and pinned is the
// highest zone of such leases.
func (w *subnetWalk) zone(network derive.Object) (zone, pinned uint16, pods bool) {
	for _, l := range w.leases {
		if l.Network != network {
			continue
		}
		zone = max(zone, l.Zone)
		if len(l.Nodes) > 0 {
			pinned, pods = max(pinned, l.Zone), true
		}
	}
	return zone, pinned, pods
}

// group returns a network with these that routers join it with. In this walk they are joined with each other, too.
func (w *subnetWalk) group(network derive.Object) []derive.Object {
	routed := func(n derive.Object) bool {
		f := w.networks[n]
		return f.Labels["vn"] == "a" && f.serves() && w.routers[n.Namespace]
	}
	out := []derive.Object{network}
	for n := range w.networks {
		near := n.Namespace == network.Namespace || w.imports && n.Namespace != "c" && network.Namespace != "c" &&
			w.routers["a"] && w.routers["b"]
		if n != network && near && routed(n) && routed(network) {
			out = append(out, n)
		}
	}
	return out
}

// stays reports whether a member of a group cannot leave the zone of all networks with unique addresses.
func (w *subnetWalk) stays(group []derive.Object) bool {
	return slices.ContainsFunc(group, func(n derive.Object) bool {
		_, pinned, pods := w.zone(n)
		return pods && pinned == 0
	})
}

// certain reports whether all members of a group may move to one zone: no member has Pods, and no two have a common
// address.
func (w *subnetWalk) certain(group []derive.Object) bool {
	var all []netip.Prefix
	for _, n := range group {
		if _, _, pods := w.zone(n); pods && len(group) > 1 {
			return false
		}
		for k, f := range w.facts {
			of := w.networkOf(k)
			if l, ok := w.leases[derive.Object{Name: string(f.UID)}]; ok {
				of = l.Network
			}
			if of != n {
				continue
			}
			if len(group) > 1 && slices.ContainsFunc(all, f.Range.CIDR.Overlaps) {
				return false
			}
			all = append(all, f.Range.CIDR)
		}
	}
	return true
}

// verdict returns "refused", "separate" or "unique" for each Subnet, or "" if it depends on the order of networks. The
// definition compares all pairs.
func (w *subnetWalk) verdict() map[derive.Object]string {
	out := map[derive.Object]string{}
	leased := func(k derive.Object) (LeaseFacts, bool) {
		l, ok := w.leases[derive.Object{Name: string(w.facts[k].UID)}]
		return l, ok
	}
	order := slices.SortedFunc(maps.Keys(w.facts), func(a, b derive.Object) int {
		return cmp.Or(cmp.Compare(w.facts[a].Created, w.facts[b].Created), cmp.Compare(w.facts[a].UID, w.facts[b].UID))
	})
	taken := map[uint16][]netip.Prefix{}
	meets := func(zone uint16, p netip.Prefix) bool { return slices.ContainsFunc(taken[zone], p.Overlaps) }
	there := map[string]bool{}
	for _, f := range w.facts {
		there[string(f.UID)] = true
	}
	for key, l := range w.leases {
		if !there[key.Name] {
			taken[l.Zone] = append(taken[l.Zone], l.Range.CIDR)
		}
	}
	for _, k := range order {
		p := w.facts[k].Range.CIDR
		out[k] = "unique"
		l, ok := leased(k)
		reserved := len(w.reserved) > 0 && w.reserved[0].CIDR.Overlaps(p)
		if reserved || ok && meets(l.Zone, p) {
			out[k] = "refused"
		}
		if ok {
			taken[l.Zone] = append(taken[l.Zone], p)
		}
	}
	done, separate := map[derive.Object]bool{}, map[derive.Object]bool{}
	for _, k := range order {
		if _, ok := leased(k); ok || out[k] == "refused" || done[k] {
			continue
		}
		network := w.networkOf(k)
		of := []derive.Object{k}
		for _, o := range order {
			if _, ok := leased(o); o != k && !ok && network.Name != "" && w.networkOf(o) == network && out[o] != "refused" {
				of = append(of, o)
			}
		}
		zone, pinned, pods := w.zone(network)
		if pods {
			zone = pinned
		}
		own := func(p netip.Prefix) bool {
			for _, l := range w.leases {
				if network.Name != "" && l.Network == network && l.Range.CIDR.Overlaps(p) {
					return true
				}
			}
			return false
		}
		some := slices.ContainsFunc(of, func(o derive.Object) bool {
			p := w.facts[o].Range.CIDR
			return meets(zone, p) && !own(p)
		})
		may := network.Name != "" && !pods && !w.stays(w.group(network))
		var add []netip.Prefix
		for _, o := range of {
			done[o] = true
			p := w.facts[o].Range.CIDR
			switch {
			case network.Name == "": // it gives no addresses
			case own(p):
				out[o] = "refused"
			case may && some:
				separate[network] = true
			case !meets(zone, p):
				add = append(add, p)
			default:
				out[o] = "refused"
			}
		}
		taken[zone] = append(taken[zone], add...)
	}
	for k := range out {
		network := w.networkOf(k)
		zone, _, _ := w.zone(network)
		group := w.group(network)
		moves := !w.stays(group) && slices.ContainsFunc(group, func(n derive.Object) bool {
			zone, _, _ := w.zone(n)
			return zone != 0 || separate[n]
		})
		switch {
		case network.Name == "":
		case moves && !w.certain(group):
			out[k] = ""
		case out[k] == "unique" && (zone != 0 || moves):
			out[k] = "separate"
		}
	}
	return out
}

// faults returns what is wrong with the leases.
func (w *subnetWalk) faults() (out []string) {
	zones := map[derive.Object]uint16{}
	for key, l := range w.leases {
		if have, ok := zones[l.Network]; ok && have != l.Zone {
			out = append(out, fmt.Sprint(l.Network, " has the zones ", have, " and ", l.Zone))
		}
		zones[l.Network] = l.Zone
		for other, o := range w.leases {
			if other != key && l.Range.CIDR.Overlaps(o.Range.CIDR) && (l.Zone == o.Zone || l.Network == o.Network) {
				out = append(out, fmt.Sprint(l, " overlaps ", o))
			}
		}
	}
	for n, f := range w.networks {
		if !f.serves() {
			continue
		}
		zone, _, _ := w.zone(n)
		var want []Name
		for _, o := range w.group(n) {
			if other, _, _ := w.zone(o); o != n && other == zone {
				want = append(want, VirtualName(o))
			}
		}
		slices.SortFunc(want, Name.Compare)
		if have, _ := w.tables.Joined.Get(VirtualName(n)); !slices.Equal(have, want) {
			out = append(out, fmt.Sprint(n, " is joined with ", have, ", want ", want))
		}
	}
	return out
}

// settled writes leases until they stay as they are, and returns an error if they do not. Nodes get no blocks.
func (w *subnetWalk) settled() string {
	for range 12 {
		before := maps.Clone(w.leases)
		w.writeLeases(false)
		w.fill(w.virtualWorld)
		if reflect.DeepEqual(before, w.leases) {
			return ""
		}
	}
	return fmt.Sprint("the leases change without end: ", w.leases)
}

// apart returns groups whose members could have one zone, and have not.
func (w *subnetWalk) apart() (out []string) {
	for n := range w.networks {
		group := w.group(n)
		zones := map[uint16]bool{}
		for _, o := range group {
			zone, _, _ := w.zone(o)
			if slices.ContainsFunc(slices.Collect(maps.Values(w.leases)), func(l LeaseFacts) bool { return l.Network == o }) {
				zones[zone] = true
			}
		}
		if len(zones) > 1 && w.certain(group) && !w.stays(group) {
			out = append(out, fmt.Sprint(group, " have the zones ", zones))
		}
	}
	return out
}

// TestSubnetWalk changes Subnets and VirtualNetworks at random. After each step the tables answer as the definition
// does, and as tables made from nothing. No two networks have common addresses in one zone.
func TestSubnetWalk(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(20) {
		w := newSubnetWalk(seed)
		for step := range 200 {
			w.change()
			w.fill(w.virtualWorld)
			for k, want := range w.verdict() {
				s, _ := w.tables.Subnets.Get(k)
				have := "refused"
				switch {
				case s.Served && s.Zone != 0:
					have = "separate"
				case s.Served:
					have = "unique"
				}
				if seen[want]++; have != want && want != "" {
					t.Fatalf("seed %d, step %d: %s of %s is %s (%s), want %s\n%v\n%v", seed, step, k, s.Network, have,
						words(s.Problems), want, w.facts, w.leases)
				}
			}
			if step%5 == 0 {
				fresh := newVirtualWorld()
				w.fill(fresh)
				if have, want := w.tables.Subnets.All(), fresh.tables.Subnets.All(); !reflect.DeepEqual(have, want) {
					t.Fatalf("seed %d, step %d: %+v, from nothing %+v", seed, step, have, want)
				}
				have, want := w.tables.VirtualNetworks.All(), fresh.tables.VirtualNetworks.All()
				if !reflect.DeepEqual(have, want) {
					t.Fatalf("seed %d, step %d: %+v, from nothing %+v", seed, step, have, want)
				}
			}
			if w.rnd.IntN(2) == 0 {
				w.write()
				w.fill(w.virtualWorld)
				if faults := w.faults(); len(faults) > 0 {
					t.Fatalf("seed %d, step %d: %s", seed, step, strings.Join(faults, "\n"))
				}
			}
			if w.rnd.IntN(4) > 0 {
				continue
			}
			if fault := w.settled(); fault != "" {
				t.Fatalf("seed %d, step %d: %s", seed, step, fault)
			}
			if apart := w.apart(); len(apart) > 0 {
				t.Fatalf("seed %d, step %d: %s", seed, step, strings.Join(apart, "\n"))
			}
			for n := range w.networks {
				if zone, _, _ := w.zone(n); zone != 0 && len(w.group(n)) > 1 {
					seen["joined separate"]++
				}
			}
		}
	}
	for verdict, least := range map[string]int{"refused": 500, "separate": 500, "unique": 500, "joined separate": 150} {
		if seen[verdict] < least {
			t.Errorf("%d are %s: too few", seen[verdict], verdict)
		}
	}
}

// TestLateLeases creates leases that the controller planned before a change. So networks can have common addresses in
// one zone, or a common zone. Once the Pods with such addresses are gone, no two networks have.
func TestLateLeases(t *testing.T) {
	mended := 0
	for seed := range uint64(10) {
		w := newSubnetWalk(seed)
		for step := range 100 {
			change := func() map[derive.Object]LeaseFacts {
				for range 6 {
					w.change()
				}
				w.fill(w.virtualWorld)
				return w.planned()
			}
			late := change()
			maps.Copy(w.leases, change())
			maps.Copy(w.leases, late)
			w.fill(w.virtualWorld)
			before := len(w.shared())
			for range 20 {
				w.write()
				w.fill(w.virtualWorld)
			}
			if after := w.shared(); len(after) > 0 {
				t.Fatalf("seed %d, step %d: %s", seed, step, strings.Join(after, "\n"))
			}
			mended += before
		}
	}
	if mended < 50 {
		t.Errorf("%d faults were mended: too few", mended)
	}
}

// shared returns the faults about addresses or zones that two networks share.
func (w *subnetWalk) shared() []string {
	return slices.DeleteFunc(w.faults(), func(s string) bool { return strings.Contains(s, "has the zones") })
}
