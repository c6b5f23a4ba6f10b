package tenant

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// cluster is a cluster whose Namespaces, VirtualNetworks and VirtualNetworkRouters change.
type cluster struct {
	namespaces map[string]*corev1.Namespace
	networks   map[derive.Object]*contrailv4.VirtualNetwork
	routers    map[derive.Object]*contrailv4.VirtualNetworkRouter
	spanned    map[derive.Object]ClusterSetFacts
}

func newCluster() cluster {
	return cluster{map[string]*corev1.Namespace{}, map[derive.Object]*contrailv4.VirtualNetwork{},
		map[derive.Object]*contrailv4.VirtualNetworkRouter{}, map[derive.Object]ClusterSetFacts{}}
}

// clusterTables are the tables of a cluster, and the sources that they read.
type clusterTables struct {
	*Tables
	engine     *derive.Engine
	namespaces *derive.Source[derive.Object, NamespaceFacts]
	labels     *derive.Source[derive.Object, labels.Set]
	networks   *derive.Source[derive.Object, VirtualNetworkFacts]
	routers    *derive.Source[derive.Object, RouterFacts]
	imports    *derive.Source[derive.Object, ClusterSetFacts]
}

func newClusterTables() *clusterTables {
	e := derive.New()
	t := &clusterTables{
		engine:     e,
		namespaces: derive.NewSource[derive.Object, NamespaceFacts](e, "namespaces"),
		labels:     derive.NewSource[derive.Object, labels.Set](e, "labels"),
		networks:   derive.NewSource[derive.Object, VirtualNetworkFacts](e, "networks"),
		routers:    derive.NewSource[derive.Object, RouterFacts](e, "routers"),
		imports:    derive.NewSource[derive.Object, ClusterSetFacts](e, "imports"),
	}
	t.Tables = NewCluster(e, Objects{Namespaces: t.namespaces, Labels: t.labels, Networks: t.networks,
		Routers: t.routers, Imports: t.imports})
	return t
}

func (t *clusterTables) fill(c cluster) {
	namespaces, sets := map[derive.Object]NamespaceFacts{}, map[derive.Object]labels.Set{}
	for name, n := range c.namespaces {
		namespaces[derive.Object{Name: name}] = NamespaceFactsOf(n)
		sets[derive.Object{Name: name}] = NamespaceLabels(n)
	}
	networks, routers := map[derive.Object]VirtualNetworkFacts{}, map[derive.Object]RouterFacts{}
	for k, n := range c.networks {
		networks[k] = VirtualNetworkFactsOf(n)
	}
	for k, v := range c.routers {
		routers[k] = RouterFactsOf(v)
	}
	t.engine.Together(func() {
		t.namespaces.Replace(namespaces)
		t.labels.Replace(sets)
		t.networks.Replace(networks)
		t.routers.Replace(routers)
		t.imports.Replace(c.spanned)
	})
	t.imports.Loaded()
	t.namespaces.Loaded()
	t.labels.Loaded()
	t.networks.Loaded()
	t.routers.Loaded()
	t.engine.Pass()
}

func (t *clusterTables) place(namespace string) Place {
	p, _ := t.Places.Get(derive.Object{Name: namespace})
	return p
}

func (t *clusterTables) problems() (out []string) {
	for _, p := range t.engine.Problems() {
		out = append(out, p.String())
	}
	return out
}

// namespaceOf returns a Namespace, which is isolated or not.
func namespaceOf(name string, isolated bool, more map[string]string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Labels: more}}
	if isolated {
		n.Labels = map[string]string{LabelIsolated: "true"}
		maps.Copy(n.Labels, more)
	}
	return n
}

func networkOf(namespace, name string, set map[string]string) *contrailv4.VirtualNetwork {
	return &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: set,
		UID: types.UID(namespace + "/" + name)}}
}

func routerOf(namespace, name, kind string, set map[string]string, networks *metav1.LabelSelector,
	imports ...contrailv4.VirtualNetworkRouterEntry,
) *contrailv4.VirtualNetworkRouter {
	return &contrailv4.VirtualNetworkRouter{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: set, UID: types.UID(namespace + "/" + name)},
		Spec: contrailv4.VirtualNetworkRouterSpec{Type: kind, VirtualNetworkSelector: networks,
			Import: contrailv4.ImportVirtualNetworkRouter{VirtualNetworkRouters: imports}},
	}
}

func of(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// change makes one random change.
func (c cluster) change(r *rand.Rand) {
	namespace, name := pick(r, names[:4]), pick(r, names[:2])
	set := func() map[string]string { return map[string]string{"x": pick(r, names[:2])} }
	selector := func() *metav1.LabelSelector {
		return pick(r, []*metav1.LabelSelector{{}, {}, of("x", pick(r, names[:2])),
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpIn,
				Values: names[:2]}}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpNotIn,
				Values: names[:1]}}}})
	}
	key := derive.Object{Namespace: namespace, Name: name}
	switch r.IntN(14) {
	case 0:
		if delete(c.namespaces, namespace); r.IntN(8) > 0 {
			c.namespaces[namespace] = namespaceOf(namespace, r.IntN(8) > 0, set())
			if r.IntN(2) == 0 {
				c.namespaces[namespace].Annotations = map[string]string{AnnotationNetwork: pick(r, spanning[:])}
			}
		}
	case 2, 3:
		c.span(r, selector)
	case 1:
		key.Name = contrailv4.DefaultPodNetwork
		if r.IntN(4) == 0 {
			key.Name = "other"
		}
		if delete(c.networks, key); r.IntN(8) > 0 {
			c.networks[key] = networkOf(namespace, key.Name, set())
		}
	default:
		if delete(c.routers, key); r.IntN(5) == 0 {
			return
		}
		var imports []contrailv4.VirtualNetworkRouterEntry
		for range r.IntN(4) {
			entry := contrailv4.VirtualNetworkRouterEntry{VirtualNetworkRouterSelector: selector()}
			if r.IntN(4) > 0 {
				entry.NamespaceSelector = selector()
				if r.IntN(2) == 0 {
					entry.NamespaceSelector = of(corev1.LabelMetadataName, pick(r, names[:4]))
				}
			}
			imports = append(imports, entry)
		}
		c.routers[key] = routerOf(namespace, name, pick(r, []string{"mesh", "mesh", "mesh", "hub", "spoke"}), set(),
			selector(), imports...)
	}
}

// spanning are names of networks of several clusters.
var spanning = [3]string{"blue", "red", "nowhere"}

// span changes the networks of several clusters. Joins are mutual, as the leader has them.
func (c cluster) span(r *rand.Rand, selector func() *metav1.LabelSelector) {
	joined := r.IntN(2) == 0
	clear(c.spanned)
	for i, name := range spanning[:2] {
		if r.IntN(4) == 0 {
			continue
		}
		f := ClusterSetFacts{ID: shared + ID(i) + 1, UID: types.UID(name)}
		for range r.IntN(3) {
			s, err := metav1.LabelSelectorAsSelector(selector())
			if err != nil {
				panic(err)
			}
			f.Selectors = append(f.Selectors, s)
		}
		if r.IntN(2) == 0 {
			f.Clusters = []string{"west"}
		}
		if joined {
			f.Joins = []Join{{ID: shared + ID(1-i) + 1, Clusters: some(r, func(n string) string { return "cluster " + n })}}
		}
		c.spanned[derive.Object{Name: name}] = f
	}
}

// spans returns the network of several clusters that a Namespace is in, or nil.
func (c cluster) spans(namespace string) *ClusterSetFacts {
	n := c.namespaces[namespace]
	if n == nil || n.Labels[LabelIsolated] != "true" {
		return nil
	}
	f, there := c.spanned[derive.Object{Name: n.Annotations[AnnotationNetwork]}]
	set := labels.Set{corev1.LabelMetadataName: namespace}
	maps.Copy(set, n.Labels)
	if !there || !slices.ContainsFunc(f.Selectors, func(s labels.Selector) bool { return s.Matches(set) }) {
		return nil
	}
	return &f
}

// remote returns the networks whose packets pass between this cluster and another one.
func (c cluster) remote(id string) (out Remote) {
	from, to := map[ID]bool{}, map[ID]bool{}
	for namespace := range c.namespaces {
		f := c.spans(namespace)
		if f == nil {
			continue
		}
		if slices.Contains(f.Clusters, id) {
			from[f.ID], to[f.ID] = true, true
		}
		for _, j := range f.Joins {
			if slices.Contains(j.Clusters, id) {
				from[j.ID], to[f.ID] = true, true
			}
		}
	}
	return Remote{From: slices.Sorted(maps.Keys(from)), To: slices.Sorted(maps.Keys(to))}
}

// selects asks a selector of the API.
func selects(s *metav1.LabelSelector, set map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && parsed.Matches(labels.Set(set))
}

// imports reports whether a router imports another one.
func (c cluster) imports(from, to *contrailv4.VirtualNetworkRouter) bool {
	return from != to && slices.ContainsFunc(from.Spec.Import.VirtualNetworkRouters,
		func(e contrailv4.VirtualNetworkRouterEntry) bool {
			in := from.Namespace == to.Namespace
			if e.NamespaceSelector != nil {
				set := map[string]string{corev1.LabelMetadataName: to.Namespace}
				if n := c.namespaces[to.Namespace]; n != nil {
					maps.Copy(set, n.Labels)
				} else {
					set = nil
				}
				in = selects(e.NamespaceSelector, set)
			}
			return in && selects(e.VirtualNetworkRouterSelector, to.Labels)
		})
}

// reaches reports whether Pods of one Namespace reach Pods of another.
func (c cluster) reaches(a, b string) bool {
	x, y := c.namespaces[a], c.namespaces[b]
	if x == nil || y == nil {
		return false
	}
	one, two := x.Labels[LabelIsolated] == "true", y.Labels[LabelIsolated] == "true"
	if a == b || !one || !two {
		return a == b || one == two
	}
	if f, g := c.spans(a), c.spans(b); f != nil || g != nil {
		return f != nil && g != nil && (f.ID == g.ID ||
			slices.ContainsFunc(g.Joins, func(j Join) bool { return j.ID == f.ID }))
	}
	joins := func(v *contrailv4.VirtualNetworkRouter, namespace string) bool {
		set := map[string]string{corev1.LabelMetadataName: namespace}
		maps.Copy(set, c.namespaces[namespace].Labels)
		if n := c.networks[derive.Object{Namespace: namespace, Name: contrailv4.DefaultPodNetwork}]; n != nil {
			set = n.Labels
		}
		return v.Namespace == namespace && selects(v.Spec.VirtualNetworkSelector, set)
	}
	for _, v := range c.routers {
		for _, w := range c.routers {
			kinds := v.Spec.Type + " " + w.Spec.Type
			if joins(v, a) && joins(w, b) && c.imports(v, w) && c.imports(w, v) &&
				(kinds == "mesh mesh" || kinds == "hub spoke" || kinds == "spoke hub") {
				return true
			}
		}
	}
	return false
}

// TestRouterWalk changes a cluster at random. After each step the tables answer as the definition does, for each pair
// of Namespaces, and as tables made from nothing.
func TestRouterWalk(t *testing.T) {
	asked, joined, remotes := 0, 0, 0
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 25))
		c, have := newCluster(), newClusterTables()
		for _, name := range names[:4] {
			c.namespaces[name] = namespaceOf(name, true, map[string]string{"x": names[0]})
			key := derive.Object{Namespace: name, Name: contrailv4.DefaultPodNetwork}
			c.networks[key] = networkOf(name, key.Name, map[string]string{"x": names[0]})
		}
		for step := range 200 {
			c.change(r)
			have.fill(c)
			for _, a := range names[:4] {
				for _, b := range names[:4] {
					asked++
					got, want := reach(have.place(a), have.place(b)), c.reaches(a, b)
					if got != want {
						t.Fatalf("seed %d, step %d: %s to %s: %t, want %t", seed, step, a, b, got, want)
					}
					if got && a != b && have.place(a).Isolated() {
						joined++
					}
				}
			}
			for _, id := range []string{"west", "cluster a", "cluster b"} {
				got, _ := have.Remotes.Get(derive.Name(id))
				if want := c.remote(id); !slices.Equal(got.From, want.From) || !slices.Equal(got.To, want.To) {
					t.Fatalf("seed %d, step %d: cluster %s has %v, want %v", seed, step, id, got, want)
				}
				remotes += len(got.From)
			}
			if step%10 > 0 {
				continue
			}
			fresh := newClusterTables()
			fresh.fill(c)
			if got, want := have.problems(), fresh.problems(); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: problems %q, from nothing %q", seed, step, got, want)
			}
			if got, want := have.Places.All(), fresh.Places.All(); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d: %+v, from nothing %+v", seed, step, got, want)
			}
		}
	}
	if remotes < 100 {
		t.Errorf("%d networks of other clusters: too few", remotes)
	}
	if joined < asked/200 {
		t.Errorf("%d of %d questions were about joined Namespaces: too few", joined, asked)
	}
}

// TestRouterProblems has the objects of which parts are not acted on. Each problem names the object, its field and the
// remedy, and nothing is joined.
func TestRouterProblems(t *testing.T) {
	from := func(namespace, router string) contrailv4.VirtualNetworkRouterEntry {
		return contrailv4.VirtualNetworkRouterEntry{VirtualNetworkRouterSelector: of("vnr", router),
			NamespaceSelector: of(corev1.LabelMetadataName, namespace)}
	}
	web := map[string]string{"vn": "web"}
	vnr := func(name string) map[string]string { return map[string]string{"vnr": name} }
	for _, test := range []struct {
		name   string
		change func(c cluster)
		joined bool
		want   []string // words of problems
	}{
		{name: "nothing is wrong", change: func(cluster) {}, joined: true},
		{name: "one-sided import", change: func(c cluster) {
			c.routers[derive.Object{Namespace: "b", Name: "b"}].Spec.Import.VirtualNetworkRouters = nil
		}, want: []string{"VirtualNetworkRouter a/a: spec.import: the networks of VirtualNetworkRouter b/b are not joined " +
			"before it imports this router: add the import there"}},
		{name: "mesh and hub", change: func(c cluster) {
			c.routers[derive.Object{Namespace: "b", Name: "b"}].Spec.Type = contrailv4.TypeHub
		}, want: []string{"VirtualNetworkRouter a/a: spec.import: the networks of VirtualNetworkRouter b/b are not joined: " +
			"only two", "VirtualNetworkRouter b/b: spec.import: the networks of VirtualNetworkRouter a/a are not joined: only"}},
		{name: "unknown type", change: func(c cluster) {
			c.routers[derive.Object{Namespace: "b", Name: "b"}].Spec.Type = "ring"
		}, want: []string{`b/b: spec.type: the type "ring" joins nothing: write mesh`, "a/a: spec.import: the networks of",
			"b/b: spec.import: the networks of"}},
		{name: "no VirtualNetwork", change: func(c cluster) {
			delete(c.networks, derive.Object{Namespace: "b", Name: contrailv4.DefaultPodNetwork})
		}, want: []string{"b/b: spec.virtualNetworkSelector: it selects no network that is served: give VirtualNetwork " +
			"default-podnetwork of its Namespace labels that it selects, or the Namespace if there is no such object"}},
		{name: "no VirtualNetwork, the Namespace has the labels", change: func(c cluster) {
			delete(c.networks, derive.Object{Namespace: "b", Name: contrailv4.DefaultPodNetwork})
			c.namespaces["b"] = namespaceOf("b", true, web)
		}, joined: true},
		{name: "a VirtualNetwork without the labels, the Namespace has them", change: func(c cluster) {
			c.networks[derive.Object{Namespace: "b", Name: contrailv4.DefaultPodNetwork}].Labels = nil
			c.namespaces["b"] = namespaceOf("b", true, web)
		}, want: []string{"b/b: spec.virtualNetworkSelector: it selects no network"}},
		{name: "a VirtualNetwork without the labels", change: func(c cluster) {
			c.networks[derive.Object{Namespace: "b", Name: contrailv4.DefaultPodNetwork}].Labels = nil
		}, want: []string{"b/b: spec.virtualNetworkSelector: it selects no network"}},
		{name: "another VirtualNetwork", change: func(c cluster) {
			c.networks[derive.Object{Namespace: "b", Name: "blue"}] = networkOf("b", "blue", web)
			delete(c.networks, derive.Object{Namespace: "b", Name: contrailv4.DefaultPodNetwork})
		}, want: []string{"VirtualNetwork b/blue: spec.v4SubnetReference: it has no Subnet, so no Pod is in it: create a " +
			"Subnet, and name it here or in v6SubnetReference", "b/b: spec.virtualNetworkSelector: it selects no network"}},
		{name: "a Namespace that is not isolated", change: func(c cluster) {
			c.namespaces["b"] = namespaceOf("b", false, nil)
		}, want: []string{"VirtualNetworkRouter b/b: metadata.namespace: the Pods of Namespace b are in the default " +
			"network, which no router joins: label the Namespace core.juniper.net/isolated-namespace=true",
			"VirtualNetwork b/default-podnetwork: metadata.namespace: the Pods of Namespace b are in the default network"}},
		{name: "an import that selects nothing", change: func(c cluster) {
			c.routers[derive.Object{Namespace: "b", Name: "b"}].Labels = nil
		}, want: []string{"a/a: spec.import.virtualNetworkRouters[0]: it selects no other router: correct its selectors",
			"b/b: spec.import: the networks of VirtualNetworkRouter a/a are not joined before it"}},
		{name: "an import without a selector", change: func(c cluster) {
			c.routers[derive.Object{Namespace: "b", Name: "b"}].Spec.Import.VirtualNetworkRouters[0].
				VirtualNetworkRouterSelector = nil
		}, want: []string{"b/b: spec.import.virtualNetworkRouters[0]: it selects no other router",
			"a/a: spec.import: the networks of"}},
		{name: "fields without effect", joined: true, change: func(c cluster) {
			v := c.routers[derive.Object{Namespace: "b", Name: "b"}]
			v.Spec.RouteTarget, v.Spec.RoutingType, v.Spec.L3VXLANNetworkIdentifier = "target:64512:7", "evpn", 5000
			n := c.networks[derive.Object{Namespace: "b", Name: contrailv4.DefaultPodNetwork}]
			n.Spec = contrailv4.VirtualNetworkSpec{FabricSNAT: true, FabricForwarding: true, VLANID: 7,
				RouteTargetList: []contrailv4.RouteTarget{"target:64512:7"}}
		}, want: []string{"b/b: spec.routeTarget: it is stored and has no effect: remove it", "b/b: spec.routingType: it is",
			"b/b: spec.l3vxlanNetworkIdentifier: it is", "b/default-podnetwork: spec.fabricSNAT: it has no effect: annotate",
			"b/default-podnetwork: spec.fabricForwarding: it is", "spec.vlanID: it is", "spec.routeTargetList: it is"}},
		{name: "more routers than count", joined: true, change: func(c cluster) {
			for i := range maxRouters {
				v := routerOf("b", fmt.Sprint("late-", i), "mesh", vnr("late"), of("vn", "web"))
				v.CreationTimestamp = metav1.Unix(7, 0)
				c.routers[derive.Object{Namespace: "b", Name: v.Name}] = v
			}
		}, want: []string{"VirtualNetworkRouter b/late-9: metadata.namespace: it joins nothing: its Namespace has 20 older " +
			"VirtualNetworkRouters, and more do not count: delete one of them"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster()
			for one, other := range map[string]string{"a": "b", "b": "a"} {
				c.namespaces[one] = namespaceOf(one, true, nil)
				key := derive.Object{Namespace: one, Name: contrailv4.DefaultPodNetwork}
				c.networks[key] = networkOf(one, key.Name, web)
				c.routers[derive.Object{Namespace: one, Name: one}] =
					routerOf(one, one, "mesh", vnr(one), of("vn", "web"), from(other, other))
			}
			test.change(c)
			tables := newClusterTables()
			tables.fill(c)
			have := tables.problems()
			if len(have) != len(test.want) {
				t.Fatalf("problems %q, want %q", have, test.want)
			}
			for _, want := range test.want {
				if !slices.ContainsFunc(have, func(p string) bool { return strings.Contains(p, want) }) {
					t.Errorf("problems %q, want %q", have, want)
				}
			}
			if joined := reach(tables.place("a"), tables.place("b")); joined != test.joined {
				t.Errorf("joined %t, want %t", joined, test.joined)
			}
		})
	}
}

// TestGuide reads the manifests of the guide, without unknown fields. They join a and b, and leave no problem.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/tenants.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("```yaml\n"))
	text, _, _ = bytes.Cut(text, []byte("```\n"))
	c := newCluster()
	for _, name := range []string{"a", "b"} {
		c.namespaces[name] = namespaceOf(name, true, nil)
	}
	for document := range bytes.SplitSeq(text, []byte("---\n")) {
		var kind metav1.TypeMeta
		n, v := &contrailv4.VirtualNetwork{}, &contrailv4.VirtualNetworkRouter{}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{"VirtualNetwork": n, "VirtualNetworkRouter": v}[kind.Kind]
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if kind.Kind == "VirtualNetwork" {
			c.networks[derive.ObjectOf(n)] = n
		} else {
			c.routers[derive.ObjectOf(v)] = v
		}
	}
	tables := newClusterTables()
	tables.fill(c)
	if have := tables.problems(); len(have) > 0 || !reach(tables.place("a"), tables.place("b")) {
		t.Errorf("a and b are not joined, problems %q", have)
	}
}

// TestManyImports has a hub that selects more routers than it may import, of which none imports it. One problem
// names three of them.
func TestManyImports(t *testing.T) {
	c := newCluster()
	c.add("a", "hub", "hub", nil, everywhere(&metav1.LabelSelector{}))
	for i := range maxImports + 7 {
		c.add(fmt.Sprintf("t%04d", i), "spoke", "spoke", nil)
	}
	tables := newClusterTables()
	tables.fill(c)
	have, _ := tables.RouterProblems.Get(RouterName(derive.Object{Namespace: "a", Name: "hub"}))
	want := []string{"it selects 107 routers, and does not import the last 7 of them (one of each Namespace is first, " +
		"the oldest ones): narrow the selectors",
		"the networks of VirtualNetworkRouter t0000/spoke, VirtualNetworkRouter t0001/spoke, VirtualNetworkRouter " +
			"t0002/spoke and 97 more are not joined before it imports this router: add the import there"}
	if len(have) != len(want) || have[0].Message != want[0] || have[1].Message != want[1] {
		t.Errorf("problems %q, want %q", have, want)
	}
}

// add adds an isolated Namespace with its VirtualNetwork and a router.
func (c cluster) add(namespace, name, kind string, set map[string]string,
	imports ...contrailv4.VirtualNetworkRouterEntry,
) *contrailv4.VirtualNetworkRouter {
	c.namespaces[namespace] = namespaceOf(namespace, true, nil)
	network := derive.Object{Namespace: namespace, Name: contrailv4.DefaultPodNetwork}
	c.networks[network] = networkOf(namespace, network.Name, nil)
	v := routerOf(namespace, name, kind, set, &metav1.LabelSelector{}, imports...)
	c.routers[derive.ObjectOf(v)] = v
	return v
}

// everywhere imports the selected routers of all Namespaces.
func everywhere(routers *metav1.LabelSelector) contrailv4.VirtualNetworkRouterEntry {
	return contrailv4.VirtualNetworkRouterEntry{VirtualNetworkRouterSelector: routers,
		NamespaceSelector: &metav1.LabelSelector{}}
}

// TestCrowd has a hub with almost as many spokes as it may import. A Namespace with many routers that the hub selects
// takes no join from them. With too many spokes, the oldest ones are joined.
func TestCrowd(t *testing.T) {
	c := newCluster()
	toHub := everywhere(of("role", "hub"))
	c.add("hub", "hub", "hub", map[string]string{"role": "hub"}, everywhere(of("role", "spoke")))
	spoke := map[string]string{"role": "spoke"}
	for i := range maxImports - 1 {
		c.add(fmt.Sprintf("t%04d", i), "spoke", "spoke", spoke, toHub).CreationTimestamp = metav1.Unix(int64(1000-i), 0)
	}
	for i := range maxRouters {
		c.add("evil", fmt.Sprint("s", i), "spoke", spoke, toHub)
	}
	tables := newClusterTables()
	tables.fill(c)
	if have := len(tables.place("hub").Joined); have != maxImports {
		t.Errorf("the hub is joined with %d networks, want %d", have, maxImports)
	}
	c.add("a", "spoke", "spoke", spoke, toHub).CreationTimestamp = metav1.Unix(2000, 0)
	c.add("b", "spoke", "spoke", spoke, toHub).CreationTimestamp = metav1.Unix(1, 0)
	tables.fill(c)
	for namespace, want := range map[string]int{"a": 0, "b": 1, "t0000": 0, "t0001": 1, "evil": 1} {
		if have := len(tables.place(namespace).Joined); have != want {
			t.Errorf("%s is joined with %d networks, want %d", namespace, have, want)
		}
	}
}

// TestBounds has routers whose imports would be compared with too many others. Imports of named Namespaces count
// behind others.
func TestBounds(t *testing.T) {
	long, wide := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "x", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	for i := range maxKeys + 1 {
		long.MatchExpressions = append(long.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprint("k", i),
			Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	values := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "x", Operator: metav1.LabelSelectorOpIn}}}
	for i := range maxValues + 1 {
		values.MatchExpressions[0].Values = append(values.MatchExpressions[0].Values, fmt.Sprint("v", i))
	}
	named := contrailv4.VirtualNetworkRouterEntry{VirtualNetworkRouterSelector: wide,
		NamespaceSelector: of(corev1.LabelMetadataName, "b")}
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many[fmt.Sprint("k", i)] = ""
	}
	for _, test := range []struct {
		name    string
		set     map[string]string
		imports []contrailv4.VirtualNetworkRouterEntry
		joined  bool
		want    string // a word of the first problem
	}{
		{"wide ones", nil, []contrailv4.VirtualNetworkRouterEntry{everywhere(wide), everywhere(wide), named}, true, ""},
		{"too many wide ones", nil, []contrailv4.VirtualNetworkRouterEntry{named, everywhere(wide), everywhere(wide),
			everywhere(wide), named}, true, "spec.import.virtualNetworkRouters[3]: it and the 1 imports after it do not " +
			"count: they would be compared with too many routers: select Namespaces by kubernetes.io/metadata.name"},
		{"behind too many", nil, []contrailv4.VirtualNetworkRouterEntry{everywhere(of("y", "z")), everywhere(of("y", "z")),
			everywhere(of("y", "z")), named}, false, "spec.import.virtualNetworkRouters[2]: it and the 1 imports after"},
		{"many keys", nil, []contrailv4.VirtualNetworkRouterEntry{everywhere(long)}, false, "spec.import." +
			"virtualNetworkRouters[0].virtualNetworkRouterSelector: it has 11 keys and 0 values, so it selects nothing: write " +
			"at most 10 keys and 100 values"},
		{"many values", nil, []contrailv4.VirtualNetworkRouterEntry{everywhere(values)}, false, "it has 1 keys and 101 " +
			"values"},
		{"many labels", many, []contrailv4.VirtualNetworkRouterEntry{named}, false, "metadata.labels: it joins nothing, " +
			"since it has 51 labels: leave at most 50"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster()
			c.add("a", "a", "mesh", test.set, test.imports...)
			c.add("b", "b", "mesh", nil, contrailv4.VirtualNetworkRouterEntry{
				VirtualNetworkRouterSelector: &metav1.LabelSelector{}, NamespaceSelector: of(corev1.LabelMetadataName, "a")})
			for i := range maxCompared/maxRouters + 1 {
				for n := range maxRouters {
					c.add(fmt.Sprint("t", i), fmt.Sprint(n), "hub", map[string]string{"x": "", "y": "z"})
				}
			}
			tables := newClusterTables()
			tables.fill(c)
			ps, _ := tables.RouterProblems.Get(RouterName(derive.Object{Namespace: "a", Name: "a"}))
			first := ""
			if len(ps) > 0 {
				first = ps[0].String()
			}
			if !strings.Contains(first, test.want) || test.want == "" && first != "" {
				t.Errorf("problems %q, want %q", ps, test.want)
			}
			if joined := reach(tables.place("a"), tables.place("b")); joined != test.joined {
				t.Errorf("joined %t, want %t", joined, test.joined)
			}
		})
	}
}
