package tenant

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// importOf returns the import of a VirtualNetwork, or of a Namespace if it has no name.
func importOf(name, namespace, network string, number int32, joined ...tombolov1alpha1.JoinedNetwork,
) *tombolov1alpha1.TenantNetworkImport {
	i := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	i.Spec.Number, i.Spec.Joined = number, joined
	i.Spec.Namespace = &tombolov1alpha1.NamespaceReference{Name: namespace, UID: types.UID(namespace)}
	if network != "" {
		i.Spec.VirtualNetwork = &tombolov1alpha1.VirtualNetworkReference{Name: network,
			UID: types.UID(namespace + "/" + network)}
	}
	return i
}

func joinedOf(name string, number int32, cluster string, cidrs ...string) tombolov1alpha1.JoinedNetwork {
	return tombolov1alpha1.JoinedNetwork{Name: name, Number: number, ClusterIDs: []string{cluster}, CIDRs: cidrs}
}

// remoteText returns the networks between this cluster and another one as text.
func (w *virtualWorld) remoteText(cluster string) string {
	m, _ := w.tables.Remotes.Get(derive.Name(cluster))
	number := func(ids []ID) (out []string) {
		for _, id := range ids {
			out = append(out, fmt.Sprint(int(id)-int(shared)))
		}
		return out
	}
	text := fmt.Sprint("from ", number(m.From), " to ", number(m.To))
	for _, v := range m.Virtual {
		text += fmt.Sprint(", ", number([]ID{v.ID})[0], " ", v.CIDR, " to ", number(v.To))
	}
	return text
}

// TestFarVirtualNetworks has VirtualNetworks a/blue and b/green of this cluster, and the isolated Namespace c. Rows add
// imports with joins. They have the result for a/blue: its number, the numbers that it is joined with, the ranges of
// these, and the networks between this cluster and west.
func TestFarVirtualNetworks(t *testing.T) {
	west := joinedOf("west-red", 8, "west", "10.9.0.0/24", "fd09::/64")
	namespace := joinedOf("west-d", 9, "west")
	const number = 7
	set := func(w *virtualWorld, i *tombolov1alpha1.TenantNetworkImport) {
		w.imports.Set(derive.Object{Name: i.Name}, ClusterSetFactsOf(i))
	}
	blue := func(w *virtualWorld, joined ...tombolov1alpha1.JoinedNetwork) {
		set(w, importOf("a-blue", "a", "blue", number, joined...))
	}
	const none = "from [] to []"
	for _, row := range []struct {
		name    string
		change  func(w *virtualWorld)
		want    string // "number joined numbers, ranges"
		west    string
		problem string
	}{
		{name: "without an import", change: func(*virtualWorld) {}, want: "own [], []", west: none},
		{name: "an import without joins", change: func(w *virtualWorld) { blue(w) }, want: "7 [], []", west: none},
		{name: "a VirtualNetwork of another cluster", change: func(w *virtualWorld) { blue(w, west) },
			want: "7 [8], [10.9.0.0/24 fd09::/64]", west: "from [] to [], 8 10.9.0.0/24 to [7], 8 fd09::/64 to [7]"},
		{name: "a Namespace of another cluster", change: func(w *virtualWorld) { blue(w, namespace) },
			want: "7 [9], []", west: "from [9] to [7]"},
		{name: "both", change: func(w *virtualWorld) { blue(w, west, namespace) },
			want: "7 [8 9], [10.9.0.0/24 fd09::/64]", west: "from [9] to [7], 8 10.9.0.0/24 to [7], 8 fd09::/64 to [7]"},
		{name: "two networks of this cluster", change: func(w *virtualWorld) {
			blue(w, west)
			set(w, importOf("b-green", "b", "green", 6, west))
			set(w, importOf("c", "c", "", 5, west, namespace))
		}, want: "7 [8], [10.9.0.0/24 fd09::/64]",
			west: "from [9] to [5], 8 10.9.0.0/24 to [5 6 7], 8 fd09::/64 to [5 6 7]"},
		{name: "a network of this cluster by the central cluster", change: func(w *virtualWorld) {
			blue(w, joinedOf("b-green", 6, "east", "10.0.3.0/24"))
			set(w, importOf("b-green", "b", "green", 6, joinedOf("a-blue", 7, "east", "10.0.1.0/24")))
		}, want: "7 [6], [10.0.3.0/24]", west: none},
		{name: "by a router of its own, too", change: func(w *virtualWorld) {
			w.router("a", "to-b", "mesh", "blue", "to-a", "b")
			w.router("b", "to-a", "mesh", "green", "to-b", "a")
			blue(w, west)
		}, want: "7 [8 green], [10.0.3.0/24 10.9.0.0/24 fd09::/64]",
			west: "from [] to [], 8 10.9.0.0/24 to [7], 8 fd09::/64 to [7]"},
		{name: "an earlier VirtualNetwork", change: func(w *virtualWorld) {
			i := importOf("a-blue", "a", "blue", number, west)
			i.Spec.VirtualNetwork.UID = "earlier"
			set(w, i)
		}, want: "own [], []", west: none},
		{name: "an earlier Namespace", change: func(w *virtualWorld) {
			i := importOf("a-blue", "a", "blue", number, west)
			i.Spec.Namespace.UID = "earlier"
			set(w, i)
		}, want: "own [], []", west: none},
		{name: "without a Namespace", change: func(w *virtualWorld) {
			i := importOf("a-blue", "a", "blue", number, west)
			i.Spec.Namespace = nil
			set(w, i)
		}, want: "own [], []", west: none},
		{name: "two imports", change: func(w *virtualWorld) {
			set(w, importOf("later", "a", "blue", 3, namespace))
			blue(w, west)
		}, want: "7 [8], [10.9.0.0/24 fd09::/64]", west: "from [] to [], 8 10.9.0.0/24 to [7], 8 fd09::/64 to [7]"},
		{name: "ranges that are not valid", change: func(w *virtualWorld) {
			blue(w, joinedOf("west-red", 8, "west", "10.9.0.7/24", "here", "0.0.0.0/0", "10.0.0.0/7", "169.254.0.0/24",
				"::ffff:10.9.0.0/120"))
		}, want: "7 [8], [10.9.0.0/24]", west: "from [] to [], 8 10.9.0.0/24 to [7]", problem: "spec.joined[0].cidrs[1]"},
		{name: "no valid range", change: func(w *virtualWorld) { blue(w, joinedOf("west-red", 8, "west", "here")) },
			want: "7 [], []", west: none, problem: "spec.joined[0].cidrs[0]"},
		{name: "its own range", change: func(w *virtualWorld) { blue(w, joinedOf("west-red", 8, "west", "10.0.0.0/16")) },
			want: "7 [], []", west: none,
			problem: "VirtualNetwork a/blue: it is not joined with a VirtualNetwork of cluster west: range 10.0.0.0/16 there " +
				"overlaps Subnet 10.0.1.0/24 of this cluster"},
		{name: "a range of a network of this cluster that it is joined with", change: func(w *virtualWorld) {
			blue(w, joinedOf("b-green", 6, "east", "10.0.3.0/24"), joinedOf("west-red", 8, "west", "10.0.3.128/25"))
			set(w, importOf("b-green", "b", "green", 6))
		}, want: "7 [6], [10.0.3.0/24]", west: none, problem: "overlaps Subnet 10.0.3.0/24 of this cluster"},
		{name: "a range of another network of this cluster", change: func(w *virtualWorld) {
			blue(w, joinedOf("west-red", 8, "west", "10.0.3.128/25"))
		}, want: "7 [8], [10.0.3.128/25]", west: "from [] to [], 8 10.0.3.128/25 to [7]"},
		{name: "a range of a third network", change: func(w *virtualWorld) {
			blue(w, west, joinedOf("north", 4, "north", "10.9.0.0/16", "10.8.0.0/24"))
		}, want: "7 [], []", west: none, problem: "of a third network that it is joined with"},
		{name: "a range of a third network, for another network", change: func(w *virtualWorld) {
			blue(w, west)
			set(w, importOf("c", "c", "", 5, joinedOf("north", 4, "north", "10.9.0.0/16")))
		}, want: "7 [8], [10.9.0.0/24 fd09::/64]", west: "from [] to [], 8 10.9.0.0/24 to [7], 8 fd09::/64 to [7]"},
		{name: "a VirtualNetwork of two clusters", change: func(w *virtualWorld) {
			two := west
			two.ClusterIDs = []string{"north", "west"}
			blue(w, two)
		}, want: "7 [], []", west: none},
		{name: "a network of this cluster that is elsewhere", change: func(w *virtualWorld) {
			blue(w, joinedOf("b-green", 6, "west", "10.9.0.0/24"))
			set(w, importOf("b-green", "b", "green", 6))
		}, want: "7 [6], [10.0.3.0/24]", west: none},
		{name: "no Namespace is in it", change: func(w *virtualWorld) {
			i := importOf("a-blue", "c", "blue", number, west)
			i.Spec.NamespaceSelectors = []metav1.LabelSelector{{}}
			set(w, i)
			w.namespaces.Set(derive.Object{Name: "c"}, NamespaceFacts{UID: "c", Isolated: true, Label: "true",
				Network: "a-blue"})
		}, want: "own [], []", west: none, problem: "tenant-network"},
		{name: "an import that has gone", change: func(w *virtualWorld) {
			blue(w, west)
			w.engine.Pass()
			w.imports.Delete(derive.Object{Name: "a-blue"})
		}, want: "own [], []", west: none},
	} {
		w := newVirtualWorld()
		for _, name := range []string{"a", "b", "c"} {
			f := NamespaceFacts{UID: types.UID(name)}
			if name == "c" {
				f.Isolated, f.Label = true, "true"
			}
			w.namespaces.Set(derive.Object{Name: name}, f)
		}
		for i, k := range []derive.Object{{Namespace: "a", Name: "blue"}, {Namespace: "b", Name: "green"}} {
			w.network(k.Namespace, k.Name, 1, k.Name, "")
			w.subnet(k.Namespace, k.Name, 1, fmt.Sprintf("10.0.%d.0/24", 2*i+1))
			w.leases.Set(derive.Object{Name: "sn " + k.String()}, LeaseFacts{Network: k,
				Range: Range{CIDR: prefixes("10.0.1.0/24 10.0.3.0/24")[i]}})
		}
		row.change(w)
		w.engine.Pass()
		v, _ := w.tables.VirtualNetworks.Get(derive.Object{Namespace: "a", Name: "blue"})
		green, _ := w.tables.VirtualNetworks.Get(derive.Object{Namespace: "b", Name: "green"})
		text := func(id ID) string {
			switch {
			case id == Requested("a/blue"):
				return "own"
			case id == green.Place.ID && id < shared:
				return "green"
			}
			return fmt.Sprint(int(id) - int(shared))
		}
		joined := []string{}
		for _, id := range v.Place.Joined {
			joined = append(joined, text(id))
		}
		slices.Sort(joined)
		if have := fmt.Sprint(text(v.Place.ID), " ", joined, ", ", v.Joined); have != row.want {
			t.Errorf("%s: %s, want %s", row.name, have, row.want)
		}
		if have := w.remoteText("west"); have != row.west {
			t.Errorf("%s: west %s, want %s", row.name, have, row.west)
		}
		var ps []string
		for _, p := range w.engine.Problems() {
			ps = append(ps, p.String())
		}
		if have := strings.Join(ps, "; "); row.problem == "" && have != "" || !strings.Contains(have, row.problem) {
			t.Errorf("%s: problems %q, want one about %q", row.name, have, row.problem)
		}
		if c, _ := w.tables.Places.Get(derive.Object{Name: "c"}); c.Network.Name != "c" {
			t.Errorf("%s: Namespace c is in %s", row.name, c.Network)
		}
	}
}

// TestNumberOfImportedNetwork has a VirtualNetwork whose number another network would have. It keeps its right to the
// number while an import gives it another one: otherwise it would take the number from a network in use afterwards.
func TestNumberOfImportedNetwork(t *testing.T) {
	w := newVirtualWorld()
	w.namespaces.Set(derive.Object{Name: "a"}, NamespaceFacts{UID: "a"})
	w.network("a", "blue", 1, "v4", "")
	w.network("a", "red", 2, "v4", "", func(n *contrailv4.VirtualNetwork) { n.UID = "a/blue" })
	i := importOf("a-blue", "a", "blue", 7)
	w.imports.Set(derive.Object{Name: i.Name}, ClusterSetFactsOf(i))
	w.engine.Pass()
	red, _ := w.tables.IDs.Get(VirtualName(derive.Object{Namespace: "a", Name: "red"}))
	if red != 0 {
		t.Errorf("a younger network has number %d", red)
	}
}

// TestDecideFar has the decisions about connections with VirtualNetworks of other clusters.
func TestDecideFar(t *testing.T) {
	blue := Place{Known: true, Network: Name{Door: doorVirtual, Namespace: "a", Name: "blue"}, ID: shared + 1,
		Clusters: []string{"west"}}
	alone := Place{Known: true, Network: Name{Door: doorVirtual, Namespace: "a", Name: "red"}, ID: 1}
	shop := Place{Known: true, Network: Name{Door: doorIsolated, Name: "shop"}, ID: shared + 2}
	pod := func(p Place) End { return End{Kind: Pod, Name: "Pod a/web", Node: "node-1", Place: p} }
	first := pod(blue)
	first.First = true
	far := End{Kind: Elsewhere, Name: "10.9.0.2", Cluster: "north", Joined: true}
	in := func(cluster string) End { return End{Kind: Elsewhere, Name: "Pod elsewhere", Cluster: cluster} }
	outside := End{Kind: Outside, Name: "10.9.0.2"}
	for _, row := range []struct {
		name       string
		connection Connection
		allowed    bool
		words      string
	}{
		{"joined", Connection{Client: pod(blue), Server: far}, true, "in cluster north, which decides"},
		{"a first interface", Connection{Client: first, Server: far}, true, "in cluster north, which decides"},
		{"back", Connection{Client: far, Server: pod(blue)}, true, "of cluster north, Pods of that network reach it"},
		{"with a Namespace of another cluster", Connection{Client: pod(blue), Server: in("west")}, true, "which decides"},
		{"back", Connection{Client: in("west"), Server: pod(blue)}, true, "of cluster west"},
		{"with a cluster that has none", Connection{Client: pod(blue), Server: in("north")}, false, "and nothing else"},
		{"back", Connection{Client: in("north"), Server: pod(blue)}, false, "do not reach it"},
		{"not joined", Connection{Client: pod(alone), Server: outside}, false, "and nothing else"},
		{"back", Connection{Client: outside, Server: pod(alone)}, false, "do not reach it"},
		{"a Namespace", Connection{Client: pod(shop), Server: far}, true, "in cluster north, which decides"},
		{"back", Connection{Client: far, Server: pod(shop)}, true, "of cluster north"},
		{"a Namespace that is not joined", Connection{Client: pod(shop), Server: outside}, false, "outside of the cluster"},
		{"a Service of the Namespace", Connection{Client: far, Server: pod(shop), Service: &shop}, false,
			"other clusters do not reach it"},
		{"a Service in the network", Connection{Client: pod(blue), Server: far, Service: &Place{Known: true}}, false,
			"where no Service answers"},
	} {
		d := row.connection.Decide()
		if d.Allowed != row.allowed || !strings.Contains(d.Reason, row.words) {
			t.Errorf("%s: %+v, want allowed %t and words %q", row.name, d, row.allowed, row.words)
		}
	}
}
