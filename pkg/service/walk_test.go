package service

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 1, "seed of the random walk")
	walkSteps = flag.Int("walk.steps", 2000, "steps of the random walk")
)

func noZone(*derive.Reader) string { return "" }

// zones adds a source of zones. The Node "self" has a zone in it.
func zones(e *derive.Engine) (*derive.Source[derive.Name, string], func(*derive.Reader) string) {
	s := derive.NewSource[derive.Name, string](e, "zones")
	s.Loaded()
	return s, func(r *derive.Reader) string {
		zone, _ := derive.Get(r, s, "self")
		return zone
	}
}

// TestWalk changes Services, slices with and without hints, and the Node's zone at random. Addresses collide, and
// Services are endpoints of Services, also in circles. After each step the tables equal the tables of a plan made from
// nothing.
func TestWalk(t *testing.T) {
	random := rand.New(rand.NewPCG(*walkSeed, 0))
	e := derive.New()
	zones, read := zones(e)
	zone := ""
	tables := NewTables(e, "node-1", read, false)
	tables.Outside = true
	tables.Services.Loaded()
	tables.Slices.Loaded()
	services, slices := map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}
	pods := []string{"10.10.0.2", "10.10.0.3", "10.10.1.2", "127.0.0.1", "none"}
	vip := func() string { return fmt.Sprintf("10.%d.0.%d", 96+random.IntN(2), 1+random.IntN(3)) }
	port := func() string {
		return []string{"/TCP/80", "/UDP/80", "a/TCP/80", "b/TCP/81", "/SCTP/80"}[random.IntN(5)]
	}
	for step := range *walkSteps {
		name := fmt.Sprint("s", random.IntN(6))
		switch random.IntN(7) {
		case 6:
			zone = []string{"a", "b", ""}[random.IntN(3)]
			zones.Set("self", zone)
		case 0:
			delete(services, name)
			tables.Services.Delete(derive.Object{Namespace: "default", Name: name})
		case 1, 2:
			s := svc(name, vip(), port(), port())
			if random.IntN(4) == 0 {
				s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
			}
			s.Spec.PublishNotReadyAddresses = random.IntN(4) == 0
			if random.IntN(2) == 0 {
				imported(s)
				if random.IntN(2) == 0 {
					ordered([]string{"a", "b", "b,a", "x"}[random.IntN(4)], fmt.Sprint(1+random.IntN(4)), s)
				}
			}
			randomOutside(random, s)
			services[name] = s
			tables.Services.Set(derive.ObjectOf(s), FactsOf(s))
		default:
			s := slice(name, port())
			if random.IntN(2) == 0 {
				second(s)
			}
			if random.IntN(2) == 0 {
				of([]string{"a", "b", "c"}[random.IntN(3)], standing(fmt.Sprint(random.IntN(6)), s))
			}
			hints := random.IntN(2) == 0
			for range random.IntN(5) {
				ip := vip()
				if random.IntN(2) == 0 {
					ip = pods[random.IntN(len(pods))]
				}
				end := withConditions(ip, random.IntN(3) > 0, random.IntN(2) > 0, random.IntN(2) > 0)
				end.NodeName = ptr(fmt.Sprint("node-", 1+random.IntN(2)))
				if hints {
					end = randomHints(random, end)
				}
				s.Endpoints = append(s.Endpoints, end)
			}
			if len(s.Endpoints) == 0 {
				delete(slices, s.Name)
				tables.Slices.Delete(derive.ObjectOf(s))
				break
			}
			slices[s.Name] = s
			tables.Slices.Set(derive.ObjectOf(s), SliceFactsOf(s))
		}
		e.Pass()
		var v View
		v.NodeName, v.Zone, v.Outside = "node-1", zone, true
		for _, s := range services {
			v.Services = append(v.Services, s)
		}
		for _, s := range slices {
			v.Slices = append(v.Slices, s)
		}
		frontends, problems := Plan(v)
		if diff := cmp.Diff(text(frontends), text(tables.all())); diff != "" {
			t.Fatalf("seed %d, step %d: frontends (-from nothing +incremental):\n%s", *walkSeed, step, diff)
		}
		for _, f := range frontends {
			if found, ok := tables.Find(f.Protocol, f.VIP); !ok || found.Service != f.Service || found.VIP != f.VIP {
				t.Fatalf("seed %d, step %d: %s is found as %s, %v", *walkSeed, step, f, found, ok)
			}
		}
		if diff := cmp.Diff(problems, e.Problems()); diff != "" {
			t.Fatalf("seed %d, step %d: problems (-from nothing +incremental):\n%s", *walkSeed, step, diff)
		}
	}
}

// TestCost counts the evaluations for one change among many Services.
func TestCost(t *testing.T) {
	e := derive.New()
	tables := NewTables(e, "node-1", noZone, false)
	for i := range 500 {
		name := fmt.Sprint("s", i)
		s, l := svc(name, fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250), "/TCP/80"),
			slice(name, "/TCP/8080", ready("10.10.0.2"), ready("10.10.0.3"))
		if i == 7 { // an import that names Service s8
			l = slice(name, "/TCP/8080", ready("10.96.0.9"))
			l.Ports[0].Port = ptr(int32(80))
		}
		tables.Services.Set(derive.ObjectOf(s), FactsOf(s))
		tables.Slices.Set(derive.ObjectOf(l), SliceFactsOf(l))
	}
	tables.Services.Loaded()
	tables.Slices.Loaded()
	e.Pass()
	for _, row := range []struct {
		name  string
		slice *discoveryv1.EndpointSlice
		want  int
	}{
		{"a slice that says the same", slice("s100", "/TCP/8080", ready("10.10.0.2"), ready("10.10.0.3")), 0},
		{"an endpoint goes", slice("s100", "/TCP/8080", ready("10.10.0.2")), 2},
		{"an endpoint of a Service inside another", slice("s8", "/TCP/8080", ready("10.10.0.2")), 3},
		{"an address that is not parsed", slice("s100", "/TCP/8080", ready("10.10.0.2"), ready("x")), 1},
	} {
		tables.Slices.Set(derive.ObjectOf(row.slice), SliceFactsOf(row.slice))
		e.Pass()
		last, _, _ := e.Stats()
		if last.Evaluated != row.want {
			t.Errorf("%s: %d keys evaluated, want %d", row.name, last.Evaluated, row.want)
		}
	}
}

// BenchmarkEndpointChanges changes one of 10,000 Services with ten endpoints each.
func BenchmarkEndpointChanges(b *testing.B) {
	e := derive.New()
	tables := NewTables(e, "node-1", noZone, false)
	set := func(i, from int) {
		name := fmt.Sprint("s", i)
		l := slice(name, "/TCP/8080")
		for j := range 10 {
			l.Endpoints = append(l.Endpoints, ready(fmt.Sprintf("10.%d.%d.%d", i/250, i%250, from+j)))
		}
		tables.Slices.Set(derive.ObjectOf(l), SliceFactsOf(l))
	}
	for i := range 10000 {
		s := svc(fmt.Sprint("s", i), fmt.Sprintf("10.200.%d.%d", i/250, 1+i%250), "/TCP/80")
		tables.Services.Set(derive.ObjectOf(s), FactsOf(s))
		set(i, 1)
	}
	tables.Services.Loaded()
	tables.Slices.Loaded()
	e.Pass()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		set(5000, 1+i%100)
		e.Pass()
	}
}

// BenchmarkFromNothing plans 10,000 Services with five endpoints each.
func BenchmarkFromNothing(b *testing.B) {
	v := View{NodeName: "node-1"}
	for i := range 10000 {
		name := fmt.Sprint("s", i)
		v.Services = append(v.Services, svc(name, fmt.Sprintf("10.200.%d.%d", i/250, 1+i%250), "/TCP/80"))
		l := slice(name, "/TCP/8080")
		for j := range 5 {
			l.Endpoints = append(l.Endpoints, ready(fmt.Sprintf("10.%d.%d.%d", i/250, i%250, 1+j)))
		}
		v.Slices = append(v.Slices, l)
	}
	b.ReportAllocs()
	for b.Loop() {
		if frontends, _ := Plan(v); len(frontends) != 10000 {
			b.Fatal(len(frontends))
		}
	}
}
