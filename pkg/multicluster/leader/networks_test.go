package leader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// tenantNetwork returns a network of all Namespaces of clusters east and west, which agrees to connections.
func tenantNetwork(name string, connections ...string) *tombolov1alpha1.TenantNetwork {
	n := &tombolov1alpha1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name,
		UID: types.UID("uid of " + name), CreationTimestamp: metav1.NewTime(noon)}}
	n.Spec.Members = []tombolov1alpha1.TenantNetworkMember{{ClusterID: "west"}, {ClusterID: "east"}, {ClusterID: "west"}}
	n.Spec.Connections = connections
	return n
}

func connection(name string, spec tombolov1alpha1.NetworkConnectionSpec) *tombolov1alpha1.NetworkConnection {
	return &tombolov1alpha1.NetworkConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: name}, Spec: spec}
}

func mesh(names ...string) tombolov1alpha1.NetworkConnectionSpec {
	return tombolov1alpha1.NetworkConnectionSpec{Mesh: names}
}

// networkStatuses returns the desired status of each object in a Common Area with the members east and west.
func networkStatuses(objects ...client.Object) map[string]tombolov1alpha1.TenantNetworkStatus {
	t := newTables()
	for _, a := range announced("east", "west") {
		a.Namespace = "area"
		objects = append(objects, a)
	}
	t.kinds.Fill(objects...)
	t.engine.Pass()
	out := map[string]tombolov1alpha1.TenantNetworkStatus{}
	for _, row := range t.networks.networkSteps.All() {
		out[row.Key.Name] = row.Value.Status
	}
	for _, row := range t.networks.connectionSteps.All() {
		out["connection "+row.Key.Name] = tombolov1alpha1.TenantNetworkStatus{State: row.Value.Status.State,
			Observation: row.Value.Status.Observation}
	}
	return out
}

// joinedText returns the joined networks of all networks, such as "a:b,c b:a c:a".
func joinedText(statuses map[string]tombolov1alpha1.TenantNetworkStatus) string {
	var out []string
	for name, s := range statuses {
		var to []string
		for _, j := range s.Joined {
			to = append(to, j.Name)
		}
		if len(to) > 0 {
			out = append(out, name+":"+strings.Join(to, ","))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestJoinedNetworks has the matrix of joins: the form of the connection, and which owners agree to it.
func TestJoinedNetworks(t *testing.T) {
	hubs := func(hubs, spokes []string) tombolov1alpha1.NetworkConnectionSpec {
		return tombolov1alpha1.NetworkConnectionSpec{Hubs: hubs, Spokes: spokes}
	}
	for _, row := range []struct {
		name    string
		objects []client.Object
		want    string
	}{
		{"a mesh", []client.Object{connection("all", mesh("a", "b", "c")), tenantNetwork("a", "all"),
			tenantNetwork("b", "all"), tenantNetwork("c", "all")}, "a:b,c b:a,c c:a,b"},
		{"without consent of one", []client.Object{connection("all", mesh("a", "b", "c")), tenantNetwork("a", "all"),
			tenantNetwork("b"), tenantNetwork("c", "all")}, "a:c c:a"},
		{"without consent of all but one", []client.Object{connection("all", mesh("a", "b")), tenantNetwork("a", "all"),
			tenantNetwork("b", "other")}, ""},
		{"consent to a connection that does not name it", []client.Object{connection("all", mesh("a")),
			tenantNetwork("a", "all"), tenantNetwork("b", "all")}, ""},
		{"without a connection", []client.Object{tenantNetwork("a", "all"), tenantNetwork("b", "all")}, ""},
		{"a hub with spokes", []client.Object{connection("c1", hubs([]string{"a"}, []string{"b", "c"})),
			tenantNetwork("a", "c1"), tenantNetwork("b", "c1"), tenantNetwork("c", "c1")}, "a:b,c b:a c:a"},
		{"two hubs", []client.Object{connection("c1", hubs([]string{"a", "b"}, []string{"c"})),
			tenantNetwork("a", "c1"), tenantNetwork("b", "c1"), tenantNetwork("c", "c1")}, "a:c b:c c:a,b"},
		{"a hub that is a spoke as well", []client.Object{connection("c1", hubs([]string{"a", "b"}, []string{"a"})),
			tenantNetwork("a", "c1"), tenantNetwork("b", "c1")}, "a:b b:a"},
		{"two meshes are not transitive", []client.Object{connection("c1", mesh("a", "b")),
			connection("c2", mesh("b", "c")), tenantNetwork("a", "c1"), tenantNetwork("b", "c1", "c2"),
			tenantNetwork("c", "c2")}, "a:b b:a,c c:b"},
		{"joined twice", []client.Object{connection("c1", mesh("a", "b")), connection("c2", mesh("a", "b")),
			tenantNetwork("a", "c1", "c2"), tenantNetwork("b", "c1", "c2")}, "a:b b:a"},
		{"each agrees to another connection", []client.Object{connection("c1", mesh("a", "b")),
			connection("c2", mesh("a", "b")), tenantNetwork("a", "c1"), tenantNetwork("b", "c2")}, ""},
		{"a network that is not there", []client.Object{connection("all", mesh("a", "b")), tenantNetwork("a", "all")}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if have := joinedText(networkStatuses(row.objects...)); have != row.want {
				t.Errorf("%q, want %q", have, row.want)
			}
		})
	}
}

// TestNetworkObservations has the state of objects that are not acted on, or only in part, with the remedies.
func TestNetworkObservations(t *testing.T) {
	with := func(change func(*tombolov1alpha1.TenantNetwork), n *tombolov1alpha1.TenantNetwork) client.Object {
		change(n)
		return n
	}
	sameNumber := func(uid types.UID, age time.Duration) func(*tombolov1alpha1.TenantNetwork) {
		return func(n *tombolov1alpha1.TenantNetwork) {
			n.UID, n.CreationTimestamp = uid, metav1.NewTime(noon.Add(-age))
		}
	}
	for _, row := range []struct {
		name    string
		objects []client.Object
		of      string
		want    string // state and observation
	}{
		{"all is well", []client.Object{connection("all", mesh("a", "b")), tenantNetwork("a", "all"),
			tenantNetwork("b", "all")}, "a", "Success "},
		{"and the connection", []client.Object{connection("all", mesh("a", "b")), tenantNetwork("a", "all"),
			tenantNetwork("b", "all")}, "connection all", "Success "},
		{"networks that are not there", []client.Object{connection("all", mesh("a", "b", "c", "d", "e")),
			tenantNetwork("a", "all")}, "connection all", "Warning spec.mesh: there is no TenantNetwork b, c, d and 1 more " +
			"in Namespace area: create it, or remove its name here"},
		{"no consent", []client.Object{connection("all", tombolov1alpha1.NetworkConnectionSpec{Hubs: []string{"a"},
			Spokes: []string{"b"}}), tenantNetwork("a", "all"), tenantNetwork("b")}, "connection all",
			"Warning spec.spokes: TenantNetwork b is not joined, since its owner has not agreed: add all to its " +
				"spec.connections, or remove its name here"},
		{"no connection", []client.Object{tenantNetwork("a", "all")}, "a",
			"Warning spec.connections[0]: there is no NetworkConnection area/all: create it, or remove its name here"},
		{"a connection without its name", []client.Object{connection("all", mesh("b")), tenantNetwork("a", "all")}, "a",
			"Warning spec.connections[0]: NetworkConnection area/all does not name this network: add a to its spec, or " +
				"remove its name here"},
		{"not a member", []client.Object{with(func(n *tombolov1alpha1.TenantNetwork) {
			n.Spec.Members = append(n.Spec.Members, tombolov1alpha1.TenantNetworkMember{ClusterID: "south"})
		}, tenantNetwork("a"))}, "a", "Warning spec.members[3].clusterID: cluster south is not in the ClusterSet: let it " +
			"join, or correct the ID"},
		{"an invalid selector", []client.Object{with(func(n *tombolov1alpha1.TenantNetwork) {
			n.Spec.Members[1].NamespaceSelector.MatchLabels = map[string]string{"a/b/c": ""}
		}, tenantNetwork("a"))}, "a", "Warning spec.members[1].namespaceSelector: it selects nothing: "},
		{"a number that is taken", []client.Object{with(sameNumber("uid-14528", time.Hour), tenantNetwork("a")),
			with(sameNumber("uid-24229", time.Minute), tenantNetwork("b"))}, "b",
			"Failure metadata.uid: its Namespaces stay in networks of their own: TenantNetwork area/a is older and " +
				"has the same number of a network: delete and create this object again, which gives it another number"},
		{"its older holder", []client.Object{with(sameNumber("uid-14528", time.Hour), tenantNetwork("a")),
			with(sameNumber("uid-24229", time.Minute), tenantNetwork("b"))}, "a", "Success "},
		{"more problems than an observation has", []client.Object{tenantNetwork("a", "1", "2", "3", "4", "5", "6", "7")}, "a",
			"Warning spec.connections[0]: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := networkStatuses(row.objects...)[row.of]
			have := s.State + " " + s.Observation
			if !strings.HasPrefix(have, row.want) || row.want == "Success " && have != row.want {
				t.Errorf("have %q\nwant %q", have, row.want)
			}
			if n := len(have); n > 3000 {
				t.Errorf("%d characters", n)
			}
		})
	}
}

// TestNetworkNumbers gives a number to each network, and joins no network without one.
func TestNetworkNumbers(t *testing.T) {
	young, old := tenantNetwork("a", "all"), tenantNetwork("b", "all")
	young.UID, old.UID = "uid-14528", "uid-24229"
	old.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	have := networkStatuses(young, old, tenantNetwork("c", "all"), connection("all", mesh("a", "b", "c")))
	if have["a"].Number != 0 || have["b"].Number != 3692089 {
		t.Errorf("numbers %d and %d, want 0 for the younger one, and 3692089", have["a"].Number, have["b"].Number)
	}
	if text := joinedText(have); text != "b:c c:b" {
		t.Errorf("joined %q", text)
	}
	want := []tombolov1alpha1.JoinedNetwork{{Name: "b", Number: 3692089, ClusterIDs: []string{"east", "west"}}}
	if joined := have["c"].Joined; fmt.Sprint(joined) != fmt.Sprint(want) {
		t.Errorf("c is joined with %v, want %v", joined, want)
	}
	for i := range 10000 {
		if n := int32(tenant.Requested(types.UID(fmt.Sprint(i)))); n < 1 || n > tombolov1alpha1.MaxNetworkNumber {
			t.Fatalf("UID %d has number %d", i, n)
		}
	}
}

// TestManyJoinedNetworks joins more networks than a status may have. The status has the first ones, and reports that.
func TestManyJoinedNetworks(t *testing.T) {
	var objects []client.Object
	var connections []string
	for i := range 11 {
		names := []string{"hub"}
		name := fmt.Sprintf("c%02d", i)
		for j := range 99 {
			peer := fmt.Sprintf("n%04d", i*99+j)
			names = append(names, peer)
			objects = append(objects, tenantNetwork(peer, name))
		}
		connections = append(connections, name)
		objects = append(objects, connection(name, mesh(names...)))
	}
	s := networkStatuses(append(objects, tenantNetwork("hub", connections...))...)["hub"]
	if len(s.Joined) != maxJoined || s.Joined[maxJoined-1].Name != "n0999" ||
		!strings.Contains(s.Observation, "TenantNetwork n1000 and later ones are not joined") {
		t.Errorf("%d are joined, with %q", len(s.Joined), s.Observation)
	}
}

// TestCostOfANetwork changes the selector of one network of a mesh: no other network is evaluated.
func TestCostOfANetwork(t *testing.T) {
	w := newTables()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	objects := []client.Object{connection("all", mesh(names...))}
	for _, name := range names {
		objects = append(objects, tenantNetwork(name, "all"))
	}
	w.kinds.Fill(objects...)
	w.engine.Pass()
	before := w.counted()
	changed := tenantNetwork("n7", "all")
	changed.Spec.Members[0].NamespaceSelector.MatchLabels = map[string]string{"not/a/key": ""}
	w.kinds.Set(changed)
	w.engine.Pass()
	total := uint64(0)
	for name, n := range w.counted() {
		total += n - before[name]
	}
	if total > 10 {
		t.Errorf("%d evaluations for the selector of one network", total)
	}
}

// TestNetworksWithRealAPIServer joins two networks, takes one consent back, and gives it again, with the rights of the
// manifest. The leader writes nothing that is written.
func TestNetworksWithRealAPIServer(t *testing.T) {
	c := startLeader(t)
	for _, id := range []string{"east", "west"} {
		inArea(t, c, &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Name: multicluster.AnnounceName(id)},
			ClusterID: id, ClusterSetID: "set", LeaderClusterID: "north"})
	}
	inArea(t, c, tenantNetwork("a", "all"))
	inArea(t, c, tenantNetwork("b", "all"))
	inArea(t, c, connection("all", mesh("a", "b")))
	is := func(step, want string) (versions string) {
		t.Helper()
		have := ""
		within(t, step, func(ctx context.Context) bool {
			var networks tombolov1alpha1.TenantNetworkList
			var connections tombolov1alpha1.NetworkConnectionList
			if cmp.Or(c.List(ctx, &networks), c.List(ctx, &connections)) != nil {
				return false
			}
			have, versions = "", ""
			for _, n := range networks.Items {
				if n.Status.Number != int32(tenant.Requested(n.UID)) {
					return false
				}
				have += fmt.Sprintf("%s %s", n.Name, n.Status.State)
				for _, j := range n.Status.Joined {
					have += fmt.Sprintf(" %s in %v", j.Name, j.ClusterIDs)
				}
				have += "; "
				versions += n.ResourceVersion + " "
			}
			for _, connection := range connections.Items {
				have += connection.Name + " " + connection.Status.State
				versions += connection.ResourceVersion
			}
			return have == want
		})
		return versions
	}
	both := "a Success b in [east west]; b Success a in [east west]; all Success"
	is("both agree", both)
	update := func(change func(*tombolov1alpha1.TenantNetwork)) {
		t.Helper()
		within(t, "update network b", func(ctx context.Context) bool {
			n := &tombolov1alpha1.TenantNetwork{}
			if c.Get(ctx, client.ObjectKey{Namespace: "area", Name: "b"}, n) != nil {
				return false
			}
			change(n)
			return c.Update(ctx, n) == nil
		})
	}
	update(func(n *tombolov1alpha1.TenantNetwork) { n.Spec.Connections = nil })
	is("the owner of b no longer agrees", "a Success; b Success; all Warning")
	update(func(n *tombolov1alpha1.TenantNetwork) { n.Spec.Connections = []string{"all"} })
	before := is("the owner of b agrees again", both)
	update(func(n *tombolov1alpha1.TenantNetwork) { n.Labels = map[string]string{"a": "b"} }) // no fact
	inArea(t, c, tenantNetwork("last"))
	after := is("a label", strings.Replace(both, "all Success", "last Success; all Success", 1))
	if a, b := strings.Fields(before), strings.Fields(after); a[0] != b[0] || a[2] != b[3] {
		t.Errorf("versions were %s, now %s: network a and the connection were written without need", before, after)
	}
}
