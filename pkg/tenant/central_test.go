package tenant

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// copyOf adds the copy of a Namespace of a cluster.
func (c cluster) copyOf(name, cluster string) {
	c.namespaces[name] = namespaceOf(name, true, map[string]string{LabelCopy: cluster})
}

// inCopy adds the import of the network of a copy, which a Namespace of this cluster is in.
func (c cluster) inCopy(copied, namespace string) {
	c.spanned[derive.Object{Name: copied}] = ClusterSetFacts{ID: shared + 7,
		Namespace: tombolov1alpha1.NamespaceReference{Name: namespace, UID: c.namespaces[namespace].UID}}
}

// named imports the routers with a label vnr of the Namespace of this name.
func named(namespace, router string) contrailv4.VirtualNetworkRouterEntry {
	return contrailv4.VirtualNetworkRouterEntry{VirtualNetworkRouterSelector: of("vnr", router),
		NamespaceSelector: of(corev1.LabelMetadataName, namespace)}
}

// centralCluster returns a central cluster. Its Namespace a has a copy, and a router that imports one in the copy of
// another cluster's Namespace, which imports it back.
func centralCluster() cluster {
	c := newCluster()
	c.add("a", "r", "mesh", map[string]string{"vnr": "r"}, named("km-west-b", "far"))
	c.copyOf("km-own-a", "own")
	c.inCopy("km-own-a", "a")
	c.add("km-west-b", "far", "mesh", map[string]string{"vnr": "far"}, named("a", "r"))
	c.copyOf("km-west-b", "west")
	return c
}

// second adds another Namespace of the cluster with a copy, whose router and the first one import each other.
func (c cluster) second() {
	c.add("b", "s", "mesh", map[string]string{"vnr": "s"}, named("a", "r"))
	c.copyOf("km-own-b", "own")
	v := c.routers[derive.Object{Namespace: "a", Name: "r"}]
	v.Spec.Import.VirtualNetworkRouters = append(v.Spec.Import.VirtualNetworkRouters, named("b", "s"))
}

// TestCentralRouters has the problems of routers in a Namespace of the central cluster, which import routers in copies.
// There are no problems of objects in copies, which the leader reports.
func TestCentralRouters(t *testing.T) {
	own, far := derive.Object{Namespace: "a", Name: "r"}, derive.Object{Namespace: "km-west-b", Name: "far"}
	const noCopy = "VirtualNetworkRouter a/r: spec.import.virtualNetworkRouters[0]: it selects routers in copies of " +
		"Namespaces alone, and Namespace a has no copy here, so nothing is joined: let this cluster be a member"
	for _, test := range []struct {
		name   string
		change func(c cluster)
		want   []string // beginnings of problems
	}{
		{"both import", func(cluster) {}, nil},
		{"it imports alone", func(c cluster) { c.routers[far].Spec.Import.VirtualNetworkRouters = nil }, []string{
			"VirtualNetworkRouter a/r: spec.import: the networks of VirtualNetworkRouter km-west-b/far are not joined before " +
				"it imports this router: add the import there"}},
		{"it is imported alone", func(c cluster) { c.routers[own].Spec.Import.VirtualNetworkRouters = nil }, nil},
		{"a mesh and a hub", func(c cluster) { c.routers[far].Spec.Type = contrailv4.TypeHub }, []string{
			"VirtualNetworkRouter a/r: spec.import: the networks of VirtualNetworkRouter km-west-b/far are not joined: only"}},
		{"no such router", func(c cluster) { delete(c.routers, far) }, []string{
			"VirtualNetworkRouter a/r: spec.import.virtualNetworkRouters[0]: it selects no other router"}},
		{"no network of the copy", func(c cluster) { clear(c.spanned) }, []string{noCopy}},
		{"the network of an earlier Namespace", func(c cluster) { c.namespaces["a"].UID = "later" }, []string{noCopy}},
		{"the copy is in another cluster", func(c cluster) { delete(c.namespaces, "km-own-a") }, []string{noCopy,
			"VirtualNetworkRouter a/r: metadata.namespace: the Pods of Namespace a are in TenantNetwork km-own-a, which no " +
				"router of this cluster joins: create the router in Namespace km-own-a of the central cluster"}},
		{"a user's Namespace has the name of the copy", func(c cluster) {
			c.namespaces["km-own-a"] = namespaceOf("km-own-a", true, nil)
		}, []string{noCopy, "VirtualNetworkRouter a/r: metadata.namespace: the Pods of Namespace a are in TenantNetwork"}},
		{"another network", func(c cluster) {
			c.namespaces["a"].Annotations = map[string]string{AnnotationNetwork: "blue"}
			c.spanned[derive.Object{Name: "blue"}] = ClusterSetFacts{ID: shared + 8,
				Selectors: []labels.Selector{labels.Everything()}}
		}, []string{"VirtualNetworkRouter a/r: metadata.namespace: the Pods of Namespace a are in TenantNetwork blue, " +
			"which no router of this cluster joins: use a NetworkConnection in the leader"}},
		{"two Namespaces with copies", func(c cluster) {
			c.second()
			c.inCopy("km-own-b", "b")
		}, nil},
		{"one of two Namespaces with a copy", cluster.second, []string{"VirtualNetworkRouter a/r: spec.import: Namespace a " +
			"has a copy here, and Namespace b has no copy, so the first interfaces of their Pods are not joined",
			"VirtualNetworkRouter b/s: spec.import: Namespace b has no copy here, and Namespace a has a copy"}},
		{"it is not isolated", func(c cluster) { c.namespaces["a"] = namespaceOf("a", false, nil) }, []string{noCopy,
			"VirtualNetworkRouter a/r: metadata.namespace: the Pods of Namespace a are in the default network",
			"VirtualNetwork a/default-podnetwork: metadata.namespace: the Pods"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := centralCluster()
			test.change(c)
			tables := newClusterTables()
			tables.fill(c)
			have := tables.problems()
			if len(have) != len(test.want) {
				t.Fatalf("problems %q, want %q", have, test.want)
			}
			for _, want := range test.want {
				if !slices.ContainsFunc(have, func(p string) bool { return strings.HasPrefix(p, want) }) {
					t.Errorf("problems %q, want %q", have, want)
				}
			}
			if place := tables.place("km-west-b"); place.Isolated() || len(tables.place("a").Joined) > 0 {
				t.Errorf("joined here: %+v", tables.place("a"))
			}
		})
	}
}

// TestCopiesDisplaceNothing has a router that imports as many routers as it may, and more routers in copies. Its joins
// in this cluster stay. The leader takes both in turn.
func TestCopiesDisplaceNothing(t *testing.T) {
	for _, mirrored := range []bool{true, false} {
		c := newCluster()
		c.add("a", "hub", "hub", map[string]string{"role": "hub"}, everywhere(of("role", "spoke")))
		for i := range maxImports {
			c.add(fmt.Sprintf("t%04d", i), "spoke", "spoke", map[string]string{"role": "spoke"},
				everywhere(of("role", "hub"))).CreationTimestamp = metav1.Unix(2000, 0)
		}
		for i := range maxCompared / maxRouters {
			name := fmt.Sprintf("km-%04d", i)
			for n := range maxRouters {
				c.add(name, fmt.Sprint(n), "spoke", map[string]string{"role": "spoke"}, everywhere(of("role", "hub")))
			}
			c.copyOf(name, "west")
		}
		want, problems := maxImports, 0
		if mirrored {
			c.copyOf("km-own-a", "own")
			c.inCopy("km-own-a", "a")
			want, problems = 0, 2 // the leader joins its network; the spokes here have no copies
		}
		tables := newClusterTables()
		tables.fill(c)
		if have := len(tables.place("a").Joined); have != want {
			t.Errorf("mirrored %t: %d joins, want %d", mirrored, have, want)
		}
		router, _ := tables.Tables.routers.Get(RouterName(derive.Object{Namespace: "a", Name: "hub"}))
		if len(router.Imports) != maxImports {
			t.Errorf("mirrored %t: %d imports", mirrored, len(router.Imports))
		}
		ps, _ := tables.RouterProblems.Get(RouterName(derive.Object{Namespace: "a", Name: "hub"}))
		if len(ps) != problems {
			t.Errorf("mirrored %t: problems %q", mirrored, ps)
		}
	}
}
