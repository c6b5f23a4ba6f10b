package leader

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// ownSpace returns an isolated Namespace of the central cluster, as cluster lists it. Its label ns is like the label of
// its copy.
func ownSpace(cluster, name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + cluster + "-" + name),
		Labels: map[string]string{tenant.LabelIsolated: "true", "ns": cluster + "-" + name}}}
}

// leads returns the ClusterSet of the leader, which is in the cluster with this ID.
func leads(cluster string) *mcv1alpha2.ClusterSet {
	s := set("set", cluster, cluster)
	s.Namespace = "area"
	return s
}

// byName changes the import of a router: it selects Namespaces by their name.
func byName(v *contrailv4.VirtualNetworkRouter, namespace string) *contrailv4.VirtualNetworkRouter {
	v.Spec.Import.VirtualNetworkRouters[0].NamespaceSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	return v
}

// selecting changes the label of the networks that a router selects.
func selecting(v *contrailv4.VirtualNetworkRouter, key, value string) *contrailv4.VirtualNetworkRouter {
	v.Spec.VirtualNetworkSelector.MatchLabels = map[string]string{key: value}
	return v
}

// TestCentralOwn has routers in Namespaces of the central cluster, which is the member east. They join the networks of
// the copies. The leader writes nothing about these routers.
func TestCentralOwn(t *testing.T) {
	const east, west = "km-e-east-a", "km-w-west-b"
	slice := func(list ...client.Object) []client.Object { return list }
	copies := slices.Concat(present(east, "east", "a"), present(west, "west", "b"))
	managers := slice(manager("km-e", "east", 2), manager("km-w", "west", 1))
	lists := slice(listed("east", "a"), listed("west", "b"))
	own, far := router("a", "r1", "mesh", "r2", "west-b"), router(west, "r2", "mesh", "r1", "east-a")
	base := slices.Concat(copies, managers, lists, slice(leads("east"), ownSpace("east", "a")))
	with := func(more ...client.Object) []client.Object { return slices.Concat(base, more) }
	elsewhere := func(space *corev1.Namespace, of *mcv1alpha2.ClusterSet, more ...client.Object) []client.Object {
		return slices.Concat(copies, managers, lists, slice(of, space), more)
	}
	joined := []string{"km-e-east-a of east/a uid-east-a joined with km-w-west-b in [west]",
		"km-w-west-b of west/b uid-west-b joined with km-e-east-a in [east]",
		`router km-w-west-b/r2 {"observation":"","state":"Success"}`}
	selectsNothing := []string{"router km-w-west-b/r2 " +
		`{"observation":"spec.import.virtualNetworkRouters[0]: it selects no other router`}
	later, open := ownSpace("east", "a"), ownSpace("east", "a")
	later.UID, open.Labels[tenant.LabelIsolated] = "later", "false"
	claimed := leads("")
	claimed.Spec.Leaders[0].ClusterID = "east"
	claim := &mcv1alpha2.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "area",
		Name: multicluster.ClusterClaimClusterID}, Value: "east"}
	follows := leads("north")
	follows.Spec.ClusterID = "east"
	otherNetwork := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: "of a",
		Name: contrailv4.DefaultPodNetwork, Labels: map[string]string{"vn": "own"}}}
	blue := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "blue", UID: "uid-east-a-blue",
		Labels: map[string]string{"vn": "own"}}}
	blues := slices.Concat(copies, managers, presentNetwork(east, "east", "a", "blue", 9, "10.50.0.0/24"),
		slice(withNetwork(listed("east", "a"), "blue", "10.50.0.0/24"), listed("west", "b"), leads("east"),
			ownSpace("east", "a")))
	hostile := listOf("west", namespacesOf("west", "a", "uid-east-a"))
	second := slices.Concat(copies, present("km-e-east-c", "east", "c"), managers, slice(listed("east", "a", "c"),
		lists[1], leads("east"), ownSpace("east", "a"), ownSpace("east", "c")))
	invalid := listed("east", "a")
	invalid.Spec.Raw.Data = []byte("{")
	for _, row := range []struct {
		name    string
		objects []client.Object
		want    []string
		none    string // no line has it
	}{
		{"both import", with(own, far), joined, "router a/r1"},
		{"the far one selects the Namespace by name", with(own, byName(far.DeepCopy(), "a")), joined, "router a/r1"},
		{"the far one selects the copy by name", with(own, byName(far.DeepCopy(), east)), selectsNothing, "joined"},
		{"by the name of the far copy", with(byName(own.DeepCopy(), west), far), joined, "router a/r1"},
		{"the far one alone", with(router("a", "r1", "mesh", "", ""), far), []string{"router km-w-west-b/r2 " +
			`{"observation":"spec.import: the networks of VirtualNetworkRouter a/r1 are not joined before it imports this ` +
			"router: add the import there"}, "joined with"},
		{"the own one alone", with(own, router(west, "r2", "mesh", "", "")), nil, "joined"},
		{"the own one alone: its state", with(own, router(west, "r2", "mesh", "", "")), nil, "router a/r1"},
		{"a hub and a spoke", with(router("a", "r1", "hub", "r2", "west-b"),
			router(west, "r2", "spoke", "r1", "east-a")), joined, "router a/r1"},
		{"a mesh and a hub", with(own, router(west, "r2", "hub", "r1", "east-a")),
			[]string{"the networks of VirtualNetworkRouter a/r1 are not joined: only two routers"}, "joined with"},
		{"a router of its name in the copy", with(own, far, router(east, "r1", "mesh", "", "")),
			append(joined[:2:2], `router km-w-west-b/r2 {"observation":"spec.import: the networks of VirtualNetworkRouter `+
				"km-e-east-a/r1 are not joined before"), "router a/r1"},
		{"a router of its name in the copy alone imports", with(router("a", "r1", "mesh", "", ""), far,
			router(east, "r1", "mesh", "r2", "west-b")), joined[:2], "Failure"},
		{"the labels of the Namespace select its network", with(selecting(own.DeepCopy(), "ns", "east-a"), far), joined,
			"router a/r1"},
		{"the labels of its own network", with(otherNetwork, selecting(own.DeepCopy(), "vn", "own"), far), joined,
			"router a/r1"},
		{"with a network, the labels of the Namespace do not count", with(otherNetwork,
			selecting(own.DeepCopy(), "ns", "east-a"), far), nil, "joined"},
		{"labels of the copy do not count", with(selecting(own.DeepCopy(), "tombolo.io/copy", "east"), far), nil, "joined"},
		{"a VirtualNetwork with Subnets", slices.Concat(blues, slice(blue, selecting(own.DeepCopy(), "vn", "own"), far)),
			[]string{"km-e-east-a.blue of east/a uid-east-a network blue uid-east-a-blue [10.50.0.0/24] joined with " +
				"km-w-west-b in [west]", "km-w-west-b of west/b uid-west-b joined with km-e-east-a.blue in [east] at " +
				"[10.50.0.0/24]"}, "joined with km-e-east-a in"},
		{"a VirtualNetwork that is gone", slices.Concat(blues, slice(own, far)), joined, "joined with km-e-east-a.blue"},
		{"two own Namespaces", slices.Concat(second, slice(router("a", "r1", "mesh", "r2", "east-c"),
			router("c", "r2", "mesh", "r1", "east-a"))), []string{"km-e-east-a of east/a uid-east-a joined with km-e-east-c " +
			"in [east]", "km-e-east-c of east/c uid-east-c joined with km-e-east-a in [east]"}, "router"},
		{"an own Namespace, and the copy of another one", slices.Concat(second, slice(router("a", "r1", "mesh", "r2",
			"east-c"), router("km-e-east-c", "r2", "mesh", "r1", "east-a"))), []string{
			"km-e-east-a of east/a uid-east-a joined with km-e-east-c in [east]",
			`router km-e-east-c/r2 {"observation":"","state":"Success"}`}, "router a/r1"},
		{"the ID of a ClusterClaim", elsewhere(ownSpace("east", "a"), claimed, claim, own, far), joined, "router a/r1"},
		{"no ID", elsewhere(ownSpace("east", "a"), leads(""), own, far), selectsNothing, "joined"},
		{"another leader", elsewhere(ownSpace("east", "a"), follows, own, far), selectsNothing, "joined"},
		{"no ClusterSet", slices.Concat(copies, managers, lists, slice(ownSpace("east", "a"), own, far)), selectsNothing,
			"joined"},
		{"the central cluster is another member", elsewhere(ownSpace("east", "a"), leads("west"), own, far), selectsNothing,
			"joined"},
		{"the central cluster is no member", elsewhere(ownSpace("east", "a"), leads("north"), own, far), selectsNothing,
			"joined"},
		{"a hostile member lists the Namespace", slices.Concat(present("km-w-west-a", "west", "a"), managers,
			slice(hostile, leads("east"), ownSpace("east", "a"), own, router("km-w-west-a", "r2", "mesh", "r1", "east-a"))),
			[]string{`router km-w-west-a/r2 {"observation":"spec.import.virtualNetworkRouters[0]: it selects no other router`},
			"joined"},
		{"a hostile member lists it, too", slices.Concat(base[:8], slice(present("km-w-west-a", "west", "a")...),
			slice(hostile, leads("east"), lists[0], ownSpace("east", "a"), own)), nil, "joined"},
		{"a later Namespace of the name", elsewhere(later, leads("east"), own, far), selectsNothing, "joined"},
		{"a Namespace that is not isolated", elsewhere(open, leads("east"), own,
			byName(far.DeepCopy(), "a")), selectsNothing, "joined"},
		{"no copy yet", slices.Concat(copies[3:], managers, lists, slice(leads("east"), ownSpace("east", "a"), own, far)),
			slices.Concat(selectsNothing, []string{"create Namespace km-e-east-a"}), "joined"},
		{"the Kubemanager is deleted", slices.Concat(copies, managers[1:], lists, slice(leads("east"),
			ownSpace("east", "a"), own, far)), slices.Concat(selectsNothing, []string{"delete Namespace km-e-east-a"}),
			"joined"},
		{"the list of its cluster is gone", slices.Concat(copies, managers, lists[1:], slice(leads("east"),
			ownSpace("east", "a"), own, far)), []string{"annotate its ClusterSet there"}, "joined with"},
		{"the list of its cluster is not valid", slices.Concat(copies, managers, lists[1:], slice(invalid, leads("east"),
			ownSpace("east", "a"), own, far)), joined, "delete"},
	} {
		t.Run(row.name, func(t *testing.T) { expectLines(t, centralLines(row.objects...), row.want, row.none) })
	}
}

// namespacesOf returns the list of a member with one Namespace.
func namespacesOf(cluster, name string, uid types.UID) exportcheck.Namespaces {
	return exportcheck.Namespaces{ClusterID: cluster, Namespaces: []exportcheck.IsolatedNamespace{{Name: name, UID: uid,
		Labels: map[string]string{"ns": "east-a"}}}}
}

// TestTwoManagers has two Kubemanagers that name the central cluster. Routers in its Namespaces join the networks of
// the copies that may be joined.
func TestTwoManagers(t *testing.T) {
	const west = "km-w-west-b"
	objects := slices.Concat(present("a-east-a", "east", "a"), present("km-e-east-a", "east", "a"),
		present(west, "west", "b"), []client.Object{manager("a", "east", 1), manager("km-e", "east", 2),
			manager("km-w", "west", 1), listed("east", "a"), listed("west", "b"), leads("east"), ownSpace("east", "a"),
			router("a", "r1", "mesh", "r2", "west-b"), router(west, "r2", "mesh", "r1", "east-a")})
	expectLines(t, centralLines(objects...), []string{
		"km-e-east-a of east/a uid-east-a joined with km-w-west-b in [west]"}, "joined with a-east-a")
}

// TestOwnWithRealAPIServer has a router in a Namespace of the central cluster, with the rights of the manifest. It
// joins the copy of another cluster's Namespace until the Namespace is not isolated any more. Its status stays as it
// is.
func TestOwnWithRealAPIServer(t *testing.T) {
	c, _ := startCentral(t)
	ctx := t.Context()
	create := func(o client.Object) {
		t.Helper()
		o.SetUID("")
		o.SetCreationTimestamp(metav1.Time{})
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"north", "west"} {
		inArea(t, c, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id)},
			ClusterID: id, ClusterSetID: "set", LeaderClusterID: "north"})
	}
	space := ownSpace("north", "a")
	create(space)
	inArea(t, c, listOf("north", namespacesOf("north", "a", space.UID)))
	inArea(t, c, listed("west", "b"))
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "contrail"}})
	create(manager("km-n", "north", 0))
	create(manager("km-w", "west", 0))
	own, far := router("a", "r1", "mesh", "r2", "west-b"), byName(router("km-w-west-b", "r2", "mesh", "r1", ""), "a")
	create(own)
	within(t, "the copies", func(ctx context.Context) bool {
		for _, name := range []string{"km-n-north-a", "km-w-west-b"} {
			if c.Get(ctx, client.ObjectKey{Namespace: "area", Name: name}, &tombolov1alpha1.TenantNetwork{}) != nil {
				return false
			}
		}
		return true
	})
	create(far)
	is := func(step, joined, state string) {
		t.Helper()
		within(t, step, func(ctx context.Context) bool {
			for name, want := range map[string]string{"km-n-north-a": joined, "km-w-west-b": "km-n-north-a"} {
				n, have := &tombolov1alpha1.TenantNetwork{}, ""
				if c.Get(ctx, client.ObjectKey{Namespace: "area", Name: name}, n) != nil {
					return false
				}
				if len(n.Status.Joined) > 0 {
					have = n.Status.Joined[0].Name
				}
				if joined == "" {
					want = ""
				}
				if have != want {
					return false
				}
			}
			return c.Get(ctx, client.ObjectKeyFromObject(far), far) == nil && far.Status.State == state
		})
	}
	is("joined", "km-w-west-b", contrailv4.StateSuccess)
	space.Labels[tenant.LabelIsolated] = "false"
	if err := c.Update(ctx, space); err != nil {
		t.Fatal(err)
	}
	is("not isolated any more", "", contrailv4.StateWarning)
	if err := c.Get(ctx, client.ObjectKeyFromObject(own), own); err != nil || own.Status != (contrailv4.Status{}) {
		t.Errorf("the router has the status %+v, which the cluster's own controller writes: %v", own.Status, err)
	}
}
