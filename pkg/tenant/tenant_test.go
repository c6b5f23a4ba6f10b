package tenant

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// world is a cluster whose Namespaces, networks and routers change.
type world struct {
	namespaces map[derive.Object]NamespaceFacts
	networks   map[Name]Network // of a second front door
	routers    map[Name]Router
}

// twins are two UIDs with one number.
var twins = func() [2]types.UID {
	seen := map[ID]types.UID{}
	for i := 0; ; i++ {
		uid := types.UID(fmt.Sprint("uid-", i))
		if other, ok := seen[Requested(uid)]; ok {
			return [2]types.UID{other, uid}
		}
		seen[Requested(uid)] = uid
	}
}()

// tables are the tables of a world, and the sources that they read.
type tables struct {
	*Tables
	engine     *derive.Engine
	namespaces *derive.Source[derive.Object, NamespaceFacts]
	networks   *derive.Source[Name, Network]
	routers    *derive.Source[Name, Router]
}

func newTables() *tables {
	e := derive.New()
	t := &tables{
		engine:     e,
		namespaces: derive.NewSource[derive.Object, NamespaceFacts](e, "namespaces"),
		networks:   derive.NewSource[Name, Network](e, "networks"),
		routers:    derive.NewSource[Name, Router](e, "routers"),
	}
	t.Tables = NewTables(e, t.namespaces, Doors{
		Networks: []derive.Readable[Name, Network]{Isolated(e, t.namespaces), t.networks},
		Routers:  []derive.Readable[Name, Router]{t.routers},
	})
	return t
}

func (t *tables) fill(w world) {
	t.namespaces.Replace(w.namespaces)
	t.networks.Replace(w.networks)
	t.routers.Replace(w.routers)
	t.namespaces.Loaded()
	t.networks.Loaded()
	t.routers.Loaded()
	t.engine.Pass()
}

// places returns all places by Namespace.
func (t *tables) places() map[derive.Object]Place {
	out := map[derive.Object]Place{}
	for _, row := range t.Places.All() {
		out[row.Key] = row.Value
	}
	return out
}

var names = []string{"a", "b", "c", "d", "e", "f"}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func some[T any](r *rand.Rand, of func(string) T) (out []T) {
	for _, n := range names {
		if r.IntN(3) == 0 {
			out = append(out, of(n))
		}
	}
	return out
}

func vn(name string) Name     { return Name{"vn", "x", name} }
func router(name string) Name { return Name{"vnr", "x", name} }

// change makes one random change.
func (w *world) change(r *rand.Rand) {
	name := pick(r, names)
	uid := types.UID(fmt.Sprint("uid ", r.IntN(1000)))
	if r.IntN(3) == 0 {
		uid = twins[r.IntN(2)]
	}
	object := func(kind string) problem.Object { return problem.About(kind, "x", name) }
	switch r.IntN(6) {
	case 0:
		delete(w.namespaces, derive.Object{Name: name})
	case 1, 2:
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid,
			CreationTimestamp: metav1.Unix(int64(r.IntN(3)), 0),
			Labels:            map[string]string{LabelIsolated: pick(r, []string{"true", "true", "false", "false", ""})},
			Annotations:       map[string]string{AnnotationForwardingMode: pick(r, []string{"", modeFabricSNAT, modeIPFabric})},
		}}
		w.namespaces[derive.ObjectOf(n)] = NamespaceFactsOf(n)
	case 3:
		n := Network{Object: object("VirtualNetwork"), UID: uid, Created: int64(r.IntN(3))}
		for _, m := range names {
			if r.IntN(4) == 0 {
				n.Members = append(n.Members, Member{pick(r, []string{"", "", "west"}), m})
			}
		}
		w.networks[vn(name)] = n
	case 4:
		delete(w.networks, vn(name))
	case 5:
		of := func(n string) Name {
			return pick(r, []Name{{Door: doorIsolated, Name: n}, vn(n)})
		}
		w.routers[router(name)] = Router{Object: object("VirtualNetworkRouter"), Kind: pick(r, []Kind{Mesh, Hub, Spoke}),
			Networks: some(r, of), Imports: some(r, router)}
		if r.IntN(4) == 0 {
			delete(w.routers, router(name))
		}
	}
}

// all are the networks of both front doors.
func (w world) all() map[Name]Network {
	out := maps.Clone(w.networks)
	for k, f := range w.namespaces {
		if f.Isolated {
			out[Name{Door: doorIsolated, Name: k.Name}] = Network{UID: f.UID, Created: f.Created,
				Members: []Member{{Namespace: k.Name}}}
		}
	}
	return out
}

// network returns the network of a Namespace, and whether its Pods have traffic.
func (w world) network(namespace string) (Name, bool) {
	var in []Name
	all := w.all()
	for name, n := range all {
		if slices.Contains(n.Members, Member{Namespace: namespace}) {
			in = append(in, name)
		}
	}
	_, known := w.namespaces[derive.Object{Name: namespace}]
	if len(in) == 0 {
		return Name{}, known
	}
	name := slices.MinFunc(in, Name.Compare)
	for k, f := range w.namespaces { // also those without a network have their numbers
		n := Name{Door: doorIsolated, Name: k.Name}
		if _, ok := all[n]; !ok {
			all[n] = Network{UID: f.UID, Created: f.Created}
		}
	}
	order := func(n Name) string { return fmt.Sprint(all[n].Created, " ", all[n].UID, " ", n) }
	for other, o := range all {
		if Requested(o.UID) == Requested(all[name].UID) && order(other) < order(name) {
			return name, false
		}
	}
	return name, known
}

// joined asks every pair of routers.
func (w world) joined(a, b Name) bool {
	has := func(r Name, n Name) bool { return slices.Contains(w.routers[r].Networks, n) }
	for x, rx := range w.routers {
		if rx.Kind == Mesh && has(x, a) && has(x, b) {
			return true
		}
		for y, ry := range w.routers {
			kinds := fmt.Sprint(rx.Kind, ry.Kind)
			if x != y && slices.Contains(rx.Imports, y) && slices.Contains(ry.Imports, x) && has(x, a) && has(y, b) &&
				(kinds == fmt.Sprint(Mesh, Mesh) || kinds == fmt.Sprint(Hub, Spoke) || kinds == fmt.Sprint(Spoke, Hub)) {
				return true
			}
		}
	}
	return false
}

// reaches reports whether Pods of one Namespace reach Pods of another.
func (w world) reaches(a, b string) bool {
	x, ok1 := w.network(a)
	y, ok2 := w.network(b)
	return ok1 && ok2 && (x == y || x != Name{} && y != Name{} && w.joined(x, y))
}

// reach is the same from the tables.
func reach(a, b Place) bool {
	return !a.Closed() && !b.Closed() && (a.ID == b.ID || slices.Contains(b.Joined, a.ID))
}

// TestWalk changes a world at random. After each step the tables answer as the definition does, for each pair of
// Namespaces, and as tables made from nothing.
func TestWalk(t *testing.T) {
	asked, reached := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 24))
		w := world{map[derive.Object]NamespaceFacts{}, map[Name]Network{}, map[Name]Router{}}
		have := newTables()
		for step := range 150 {
			w.change(r)
			have.fill(w)
			places := have.places()
			for _, a := range names {
				for _, b := range names {
					asked++
					got, want := reach(places[derive.Object{Name: a}], places[derive.Object{Name: b}]), w.reaches(a, b)
					if got != want {
						t.Fatalf("seed %d, step %d: %s to %s: %t, want %t\n%+v", seed, step, a, b, got, want, w)
					}
					if got && a != b {
						reached++
					}
				}
			}
			if step%10 > 0 {
				continue
			}
			fresh := newTables()
			fresh.fill(w)
			if want := fresh.places(); !reflect.DeepEqual(places, want) {
				t.Fatalf("seed %d, step %d: %+v, from nothing %+v", seed, step, places, want)
			}
			if got, want := have.engine.Problems(), fresh.engine.Problems(); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: problems %v, from nothing %v", seed, step, got, want)
			}
		}
	}
	if asked < 100000 || reached < asked/50 {
		t.Errorf("%d of %d questions about two Namespaces had yes as answer: too few to compare", reached, asked)
	}
}

// TestNamespaceProblems looks at Namespaces that are not isolated. Their annotation has no effect.
func TestNamespaceProblems(t *testing.T) {
	for _, test := range []struct {
		name                string
		labels, annotations map[string]string
		want                string
	}{
		{name: "plain"},
		{name: "annotation alone", annotations: map[string]string{AnnotationForwardingMode: "fabric-snat"},
			want: "NotIsolated"},
		{name: "an unknown mode", annotations: map[string]string{AnnotationForwardingMode: "nat"}, want: "NotIsolated"},
		{name: "with false", labels: map[string]string{LabelIsolated: "false"},
			annotations: map[string]string{AnnotationForwardingMode: "fabric-snat"}, want: "NotIsolated"},
		{name: "isolated", labels: map[string]string{LabelIsolated: "true"},
			annotations: map[string]string{AnnotationForwardingMode: "fabric-snat"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			have := ""
			for _, p := range NamespaceProblems(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a",
				Labels: test.labels, Annotations: test.annotations}}) {
				have += p.Reason.String()
			}
			if have != test.want {
				t.Errorf("problems %q, want %q", have, test.want)
			}
		})
	}
}

// TestProblems has the rows of bad input. The object, its field and the remedy are named, and nothing else changes.
func TestProblems(t *testing.T) {
	namespace := func(name, label, mode string, uid types.UID, created int64) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid,
			CreationTimestamp: metav1.Unix(created, 0), Labels: map[string]string{LabelIsolated: label},
			Annotations: map[string]string{AnnotationForwardingMode: mode}}}
	}
	mesh := func(name string, kind Kind, imports ...Name) Router {
		return Router{Object: problem.About("VirtualNetworkRouter", "x", name), Kind: kind, Imports: imports}
	}
	for _, test := range []struct {
		name       string
		namespaces []*corev1.Namespace
		networks   map[Name]Network
		routers    map[Name]Router
		want       []string // words of problems
		closed     string   // a Namespace without traffic
	}{
		{name: "nothing is wrong", namespaces: []*corev1.Namespace{namespace("a", "true", modeFabricSNAT, "1", 1)}},
		{name: "another value", namespaces: []*corev1.Namespace{namespace("a", "yes", "", "1", 1)},
			want: []string{`Namespace a: metadata.labels[core.juniper.net/isolated-namespace]: it is isolated, although`}},
		{name: "an empty value", namespaces: []*corev1.Namespace{namespace("a", "", "", "1", 1)},
			want: []string{`Namespace a: metadata.labels[core.juniper.net/isolated-namespace]: it is isolated, although`}},
		{name: "Namespaces of the cluster",
			namespaces: []*corev1.Namespace{
				namespace("default", "true", "", "1", 1), namespace("kube-system", "true", "", "2", 1),
			},
			want: []string{"Namespace default: " + labelField + ": it is isolated, and of its Services",
				"Namespace kube-system: " + labelField + ": it is isolated, so Pods"}},
		{name: "a mode that is not served", namespaces: []*corev1.Namespace{namespace("a", "true", modeIPFabric, "1", 1)},
			want: []string{"Namespace a: " + annotationField + ": the Pods of an isolated Namespace do not reach"}},
		{name: "an unknown mode", namespaces: []*corev1.Namespace{namespace("a", "true", "nat", "1", 1)},
			want: []string{`has "nat", which is ignored`}},
		{name: "two of one number", closed: "b",
			namespaces: []*corev1.Namespace{namespace("b", "true", "", twins[0], 2), namespace("c", "true", "", twins[1], 1)},
			want:       []string{"Namespace b: metadata.uid: its Pods have no traffic: Namespace c is older"}},
		{name: "an older Namespace that is not isolated yet", closed: "b",
			namespaces: []*corev1.Namespace{namespace("b", "true", "", twins[0], 2),
				namespace("c", "false", "", twins[1], 1)},
			want: []string{"Namespace b: metadata.uid: its Pods have no traffic: Namespace c is older"}},
		{name: "a younger one",
			namespaces: []*corev1.Namespace{namespace("b", "true", "", twins[0], 1),
				namespace("c", "false", "", twins[1], 2)}},
		{name: "a Namespace of two networks", namespaces: []*corev1.Namespace{namespace("a", "true", "", "1", 1)},
			networks: map[Name]Network{vn("blue"): {Object: problem.About("VirtualNetwork", "x", "blue"), UID: "2",
				Field: "spec.namespaces", Members: []Member{{Namespace: "a"}}}},
			want: []string{"VirtualNetwork x/blue: spec.namespaces: Namespace a is left out: it is in the network of"}},
		{name: "routers", routers: map[Name]Router{
			router("a"): mesh("a", Mesh, router("b"), router("c"), router("d")),
			router("b"): mesh("b", Hub, router("a")),
			router("c"): mesh("c", Mesh),
		}, want: []string{
			"VirtualNetworkRouter x/a: spec.import: the networks of VirtualNetworkRouter x/b are not joined: only",
			"x/a: spec.import: the networks of VirtualNetworkRouter x/c are not joined before it imports this router",
			"x/a: spec.import: there is no router vnr x/d",
			"VirtualNetworkRouter x/b: spec.import: the networks of VirtualNetworkRouter x/a are not joined: only",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := world{map[derive.Object]NamespaceFacts{}, test.networks, test.routers}
			for _, n := range test.namespaces {
				w.namespaces[derive.ObjectOf(n)] = NamespaceFactsOf(n)
				for _, p := range NamespaceProblems(n) { // the agents have the same
					if !slices.ContainsFunc(test.want, func(want string) bool { return strings.Contains(p.String(), want) }) {
						t.Errorf("the Namespace alone has problem %s, want %q", p, test.want)
					}
				}
			}
			tables := newTables()
			tables.fill(w)
			have := []string{}
			for _, p := range tables.engine.Problems() {
				have = append(have, p.String())
			}
			if len(have) != len(test.want) {
				t.Fatalf("problems %q, want %q", have, test.want)
			}
			for _, want := range test.want {
				if !slices.ContainsFunc(have, func(p string) bool { return strings.Contains(p, want) }) {
					t.Errorf("problems %q, want %q", have, want)
				}
			}
			for namespace, place := range tables.places() {
				if place.Closed() != (namespace.Name == test.closed) {
					t.Errorf("Namespace %s has %+v", namespace.Name, place)
				}
			}
		})
	}
}
