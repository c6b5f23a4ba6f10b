package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// hinted is an endpoint that is for Nodes ("node-1") and zones ("a").
func hinted(e discoveryv1.Endpoint, names ...string) discoveryv1.Endpoint {
	e.Hints = &discoveryv1.EndpointHints{}
	for _, name := range names {
		if strings.HasPrefix(name, "node-") {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: name})
		} else {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: name})
		}
	}
	return e
}

// TestHints has Node node-1 in zone a.
func TestHints(t *testing.T) {
	web := func() *corev1.Service { return svc("web", "10.96.0.10", "/TCP/80") }
	unready := web()
	unready.Spec.PublishNotReadyAddresses = true
	one, two, three := ready("10.10.0.1"), ready("10.10.0.2"), ready("10.10.0.3")
	for _, test := range []struct {
		name     string
		zone     string // a where empty
		services []*corev1.Service
		slices   []*discoveryv1.EndpointSlice
		want     string // addresses of the first Service
	}{
		{name: "those of the zone", slices: []*discoveryv1.EndpointSlice{
			slice("web", "/TCP/80", hinted(one, "a"), hinted(two, "b"), hinted(three, "b", "a"))}, want: "1 3"},
		{name: "zones in two slices", slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", hinted(one, "a")),
			second(slice("web", "/TCP/80", hinted(two, "b")))}, want: "1"},
		{name: "one has no hint", slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", hinted(one, "a"), two)},
			want: "1 2"},
		{name: "one has hints without names",
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", hinted(one, "a"), hinted(two))}, want: "1 2"},
		{name: "nobody is for this zone",
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", hinted(one, "b"), hinted(two, "c"))}, want: "1 2"},
		{name: "the Node has no zone", zone: "none",
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", hinted(one, "a"), hinted(two, "b"))}, want: "1 2"},
		{name: "the Node before the zone", slices: []*discoveryv1.EndpointSlice{
			slice("web", "/TCP/80", hinted(one, "a", "node-1"), hinted(two, "a", "node-2"))}, want: "1"},
		{name: "nobody is for this Node: the zone", slices: []*discoveryv1.EndpointSlice{slice("web",
			"/TCP/80", hinted(one, "a", "node-3"), hinted(two, "a", "node-2"), hinted(three, "b", "node-4"))}, want: "1 2"},
		{name: "one has no hint for Nodes: the zone", slices: []*discoveryv1.EndpointSlice{
			slice("web", "/TCP/80", hinted(one, "a", "node-1"), hinted(two, "a"), hinted(three, "b", "node-3"))}, want: "1 2"},
		{name: "Nodes alone", slices: []*discoveryv1.EndpointSlice{
			slice("web", "/TCP/80", hinted(one, "node-2"), hinted(two, "node-1"))}, want: "2"},
		{
			name: "one that is not ready and has no hint does not count",
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", hinted(one, "a"), hinted(two, "b"),
				withConditions("10.10.0.3", false, true, true), hinted(withConditions("10.10.0.4", false, false, false), "a"))},
			want: "1",
		},
		{
			name: "the zone's own ends: nobody is for this zone",
			slices: []*discoveryv1.EndpointSlice{
				slice("web", "/TCP/80", hinted(withConditions("10.10.0.1", false, true, true), "a"), hinted(two, "b"))},
			want: "2",
		},
		{
			name: "all end: all that serve, whatever their zone",
			slices: []*discoveryv1.EndpointSlice{
				slice("web", "/TCP/80", hinted(withConditions("10.10.0.1", false, true, true), "a"),
					hinted(withConditions("10.10.0.2", false, true, true), "b"))},
			want: "1 2",
		},
		{
			name: "publishNotReadyAddresses: all count", services: []*corev1.Service{unready},
			slices: []*discoveryv1.EndpointSlice{
				slice("web", "/TCP/80", hinted(withConditions("10.10.0.1", false, false, false), "a"), hinted(two, "b"))},
			want: "1",
		},
		{
			name: "internalTrafficPolicy Local goes before", services: []*corev1.Service{localPolicy(web())},
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", on("node-1", hinted(one, "a")),
				on("node-1", hinted(two, "b")), on("node-2", hinted(three, "a")))},
			want: "1 2",
		},
		{
			name: "hints of another port do not count",
			slices: []*discoveryv1.EndpointSlice{slice("web", "/TCP/80", hinted(one, "a"), hinted(two, "b")),
				slice("web", "other/TCP/81", three)},
			want: "1",
		},
		{
			name:     "an imported Service: other clusters' endpoints have no hints, and this cluster's keep to the zone",
			services: []*corev1.Service{imported(svc("antrea-mc-web", "10.96.0.11", "/TCP/80")), web()},
			slices: []*discoveryv1.EndpointSlice{
				slice("web", "/TCP/80", hinted(one, "a"), hinted(two, "b")),
				standing("1", slice("antrea-mc-web", "/TCP/80", ready("10.96.0.10"))),
				second(standing("1", slice("antrea-mc-web", "/TCP/80", ready("10.97.0.9")))),
			},
			want: "1 9",
		},
		{
			name: "an imported Service, this cluster first: all ready ones are enough, " +
				"and those of the zone get the requests",
			services: []*corev1.Service{ordered("east", "2", svc("antrea-mc-web", "10.96.0.11", "/TCP/80")), web()},
			slices: []*discoveryv1.EndpointSlice{
				slice("web", "/TCP/80", hinted(one, "a"), hinted(two, "b")),
				of("east", standing("2", slice("antrea-mc-web", "/TCP/80", ready("10.96.0.10")))),
				second(of("west", standing("9", slice("antrea-mc-web", "/TCP/80", ready("10.97.0.9"))))),
			},
			want: "1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := View{Services: test.services, Slices: test.slices, NodeName: "node-1", Zone: "a"}
			if v.Services == nil {
				v.Services = []*corev1.Service{web()}
			}
			if test.zone == "none" {
				v.Zone = ""
			}
			frontends, problems := Plan(v)
			var have []string
			for _, e := range frontends[0].Endpoints {
				have = append(have, fmt.Sprint(e.Addr.Addr().As4()[3]))
			}
			if diff := cmp.Diff(test.want, strings.Join(have, " ")); diff != "" || len(problems) > 0 {
				t.Errorf("endpoints of %s (-want +have):\n%s%v", frontends[0], diff, problems)
			}
		})
	}
}

// TestHintsModel compares the choice with a simple form of kube-proxy's rule, for random endpoints.
func TestHintsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(*walkSeed, 1))
	narrowed := 0
	for range 5000 {
		v := View{Services: []*corev1.Service{svc("web", "10.96.0.10", "/TCP/80")}, NodeName: "node-1",
			Zone: []string{"a", "a", ""}[random.IntN(3)]}
		s := slice("web", "/TCP/80")
		for i := range 1 + random.IntN(4) {
			s.Endpoints = append(s.Endpoints, randomHints(random,
				withConditions(fmt.Sprintf("10.10.0.%d", 1+i), random.IntN(4) > 0, random.IntN(2) > 0, random.IntN(2) > 0)))
		}
		v.Slices = []*discoveryv1.EndpointSlice{s}
		want := model(s.Endpoints, v)
		frontends, _ := Plan(v)
		var have []string
		for _, e := range frontends[0].Endpoints {
			have = append(have, e.Addr.Addr().String())
		}
		if !slices.Equal(have, want) {
			t.Fatalf("zone %q has %v, want %v of %v", v.Zone, have, want, s.Endpoints)
		}
		if len(want) < len(s.Endpoints) {
			narrowed++
		}
	}
	if narrowed < 500 {
		t.Errorf("only %d random choices were narrowed", narrowed)
	}
}

func randomHints(random *rand.Rand, e discoveryv1.Endpoint) discoveryv1.Endpoint {
	var names []string
	for _, name := range []string{"node-1", "node-2", "a", "b"} {
		if random.IntN(5) < 3 {
			names = append(names, name)
		}
	}
	switch random.IntN(8) {
	case 0:
		return e
	case 1:
		names = nil
	}
	return hinted(e, names...)
}

// model is kube-proxy's rule (CategorizeEndpoints) for a Service with traffic policy Cluster.
func model(all []discoveryv1.Endpoint, v View) (out []string) {
	forNode := func(e discoveryv1.Endpoint) bool {
		return slices.Contains(e.Hints.ForNodes, discoveryv1.ForNode{Name: v.NodeName})
	}
	forZone := func(e discoveryv1.Endpoint) bool {
		return slices.Contains(e.Hints.ForZones, discoveryv1.ForZone{Name: v.Zone})
	}
	ready := slices.DeleteFunc(slices.Clone(all), func(e discoveryv1.Endpoint) bool { return !*e.Conditions.Ready })
	chosen := ready
	every := func(has func(discoveryv1.Endpoint) bool) bool {
		return !slices.ContainsFunc(ready, func(e discoveryv1.Endpoint) bool { return e.Hints == nil || !has(e) })
	}
	switch {
	case len(ready) == 0:
		chosen = slices.DeleteFunc(slices.Clone(all),
			func(e discoveryv1.Endpoint) bool { return !*e.Conditions.Serving || !*e.Conditions.Terminating })
	case every(func(e discoveryv1.Endpoint) bool { return len(e.Hints.ForNodes) > 0 }) &&
		slices.ContainsFunc(ready, forNode):
		chosen = slices.DeleteFunc(slices.Clone(ready), func(e discoveryv1.Endpoint) bool { return !forNode(e) })
	case every(func(e discoveryv1.Endpoint) bool { return len(e.Hints.ForZones) > 0 }) &&
		slices.ContainsFunc(ready, forZone):
		chosen = slices.DeleteFunc(slices.Clone(ready), func(e discoveryv1.Endpoint) bool { return !forZone(e) })
	}
	for _, e := range chosen {
		out = append(out, e.Addresses[0])
	}
	return out
}

// TestZoneChanges changes a Node's label: only Services with hints for zones are evaluated.
func TestZoneChanges(t *testing.T) {
	e := derive.New()
	zones, read := zones(e)
	tables := NewTables(e, "node-1", read, false)
	for i := range 100 {
		name := fmt.Sprint("s", i)
		s, l := svc(name, fmt.Sprintf("10.96.0.%d", 1+i), "/TCP/80"),
			slice(name, "/TCP/8080", ready("10.10.0.2"), ready("10.10.0.3"))
		if i < 3 {
			l = slice(name, "/TCP/8080", hinted(ready("10.10.0.2"), "a"), hinted(ready("10.10.0.3"), "b"))
		}
		tables.Services.Set(derive.ObjectOf(s), FactsOf(s))
		tables.Slices.Set(derive.ObjectOf(l), SliceFactsOf(l))
	}
	for _, s := range []interface{ Loaded() }{tables.Services, tables.Slices} {
		s.Loaded()
	}
	e.Pass()
	for _, row := range []struct{ zone, want string }{
		{"a", "s1 10.96.0.2:80/TCP -> 10.10.0.2:8080"}, {"b", "s1 10.96.0.2:80/TCP -> 10.10.0.3:8080"},
		{"", "s1 10.96.0.2:80/TCP -> 10.10.0.2:8080 10.10.0.3:8080"},
	} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"topology.kubernetes.io/zone": row.zone}}}
		zones.Set("self", ZoneOf(node))
		e.Pass()
		list, _ := tables.Frontends.Get(derive.Object{Namespace: "default", Name: "s1"})
		if diff := cmp.Diff([]string{row.want}, text(list)); diff != "" {
			t.Errorf("zone %q (-want +have):\n%s", row.zone, diff)
		}
		if last, _, _ := e.Stats(); last.Evaluated < 3 || last.Evaluated > 12 {
			t.Errorf("zone %q: %d keys evaluated, want those of 3 Services", row.zone, last.Evaluated)
		}
	}
}
