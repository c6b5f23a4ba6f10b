package derive

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// world is a small program as a user would write it: Services, their slices, and frontends.
type world struct {
	engine    *Engine
	services  *Source[Object, string]        // its address
	slices    *Source[Object, slice]         // by the slice's own name
	ofService *Index[Object, Object, slice]  // slices by Service
	frontends *Table[Object, frontend]       //
	holders   *Index[Name, Object, frontend] // frontends by address
	addresses *Table[Name, Object]           // which Service an address belongs to
}

type slice struct {
	Service   Object
	Endpoints string
}

type frontend struct{ Address, Endpoints string }

func newWorld() *world {
	w := &world{engine: New()}
	w.services = NewSource[Object, string](w.engine, "services")
	w.slices = NewSource[Object, slice](w.engine, "slices")
	w.ofService = NewIndex(w.slices, "service", func(_ Object, s slice) []Object { return []Object{s.Service} })
	w.frontends = NewTable(w.engine, "frontends", func(o Object, r *Reader) (frontend, []problem.Problem) {
		address, _ := Get(r, w.services, o)
		if address == "bad" {
			return frontend{},
				[]problem.Problem{{Object: problem.Object{Kind: "Service", Namespace: o.Namespace, Name: o.Name},
					Reason: reasonNoNumberLeft}}
		}
		f := frontend{Address: address}
		for _, s := range List(r, w.ofService, o) {
			f.Endpoints += s.Value.Endpoints
		}
		return f, nil
	}, KeysOf(w.services))
	w.holders = NewIndex(w.frontends, "address", func(_ Object, f frontend) []Name { return []Name{Name(f.Address)} })
	w.addresses = NewTable(w.engine, "addresses", func(address Name, r *Reader) (Object, []problem.Problem) {
		return List(r, w.holders, address)[0].Key, nil
	}, KeysOfIndex(w.holders))
	w.services.Loaded()
	w.slices.Loaded()
	return w
}

func service(name string) Object { return Object{"default", name} }

// TestCost counts the keys that an event has evaluated among many Services.
func TestCost(t *testing.T) {
	w := newWorld()
	for i := range 1000 {
		name := fmt.Sprint("web", i)
		w.services.Set(service(name), fmt.Sprint("10.96.0.", i))
		w.slices.Set(service(name+"-x"), slice{service(name), "a"})
	}
	if n := pass(w.engine).Evaluated; n != 2000 {
		t.Fatalf("the first pass evaluated %d keys, want 2000", n)
	}
	for _, row := range []struct {
		name      string
		event     func()
		evaluated int
	}{
		{"the same slice again", func() { w.slices.Set(service("web7-x"), slice{service("web7"), "a"}) }, 0},
		{"a slice of nobody", func() { w.slices.Set(service("x"), slice{service("nobody"), "a"}) }, 0},
		{"endpoints change", func() { w.slices.Set(service("web7-x"), slice{service("web7"), "b"}) }, 2},
		{"a second slice", func() { w.slices.Set(service("web7-y"), slice{service("web7"), "c"}) }, 2},
		{"a slice goes over to another Service", func() { w.slices.Set(service("web7-y"), slice{service("web8"), "c"}) }, 4},
		{"another address", func() { w.services.Set(service("web9"), "10.96.9.9") }, 2},
		{"a Service goes", func() { w.services.Delete(service("web9")) }, 0},
		{"changed and changed back before a pass", func() {
			w.services.Set(service("web1"), "other")
			w.services.Set(service("web1"), "10.96.0.1")
		}, 0},
	} {
		row.event()
		if have := pass(w.engine).Evaluated; have != row.evaluated {
			t.Errorf("%s: %d keys evaluated, want %d", row.name, have, row.evaluated)
		}
	}
}

// TestEqualResultCutOff has two Services share an address: as long as the first holds it
// nothing changes behind the table of addresses.
func TestEqualResultCutOff(t *testing.T) {
	w := newWorld()
	w.services.Set(service("a"), "10.96.0.1")
	w.services.Set(service("b"), "10.96.0.1")
	w.engine.Pass()
	var changes []Change[Name, Object]
	w.addresses.Watch(func(list []Change[Name, Object]) { changes = append(changes, list...) })
	w.slices.Set(service("b-x"), slice{service("b"), "1"})
	w.engine.Pass()
	if len(changes) != 0 {
		t.Errorf("changes %v of a table whose results are the same", changes)
	}
	w.services.Delete(service("a"))
	w.engine.Pass()
	if want := []Change[Name, Object]{{"10.96.0.1", service("a"), service("b")}}; !slices.Equal(changes, want) {
		t.Errorf("changes %v, want %v", changes, want)
	}
}

func TestPassWaitsForSources(t *testing.T) {
	e := New()
	a, b := NewSource[Name, int](e, "a"), NewSource[Name, int](e, "b")
	sum := NewTable(e, "sum", func(n Name, r *Reader) (int, []problem.Problem) {
		x, _ := Get(r, a, n)
		y, _ := Get(r, b, n)
		return x + y, nil
	}, KeysOf(a), KeysOf(b))
	a.Set("x", 1)
	a.Loaded()
	if e.Pass() {
		t.Error("a pass was made before b was loaded")
	}
	if ok, missing := e.Loaded(); ok || !slices.Equal(missing, []string{"b"}) {
		t.Errorf("missing %v, want b", missing)
	}
	b.Loaded()
	if !e.Pass() {
		t.Error("no pass was made")
	}
	if v, _ := sum.Get("x"); v != 1 {
		t.Errorf("x is %d, want 1", v)
	}
}

// TestCyclesAreRefused has functions read their own table and one that is made after it.
func TestCyclesAreRefused(t *testing.T) {
	e := New()
	keys := NewSource[Name, int](e, "keys")
	var self, later *Table[Name, int]
	self = NewTable(e, "self", func(n Name, r *Reader) (int, []problem.Problem) {
		v, _ := Get(r, self, n)
		return v + 1, nil
	}, KeysOf(keys))
	early := NewTable(e, "early", func(n Name, r *Reader) (int, []problem.Problem) {
		return len(All(r, later)) + 1, nil
	}, KeysOf(keys))
	later = NewTable(e, "later", func(n Name, r *Reader) (int, []problem.Problem) { return 5, nil }, KeysOf(keys))
	keys.Set("x", 1)
	keys.Loaded()
	e.Pass()
	if v, ok := later.Get("x"); !ok || v != 5 || len(self.All())+len(early.All()) != 0 {
		t.Errorf("self %v, early %v, later %v: want only the last", self.All(), early.All(), later.All())
	}
	text := fmt.Sprint(e.Problems())
	for _, want := range []string{"early x: ", "table early reads table later, which is not made before it", "self x: ",
		"table self reads table self"} {
		if !strings.Contains(text, want) {
			t.Errorf("problems %s, want %q among them", text, want)
		}
	}
}

func TestPanicIsOfItsKey(t *testing.T) {
	e := New()
	in := NewSource[Name, int](e, "in")
	half := NewTable(e, "half", func(n Name, r *Reader) (int, []problem.Problem) {
		v, _ := Get(r, in, n)
		return 100 / (v - 3), nil
	}, KeysOf(in))
	for i, n := range []Name{"a", "b", "c"} {
		in.Set(n, i+1)
	}
	in.Loaded()
	e.Pass()
	if have := len(half.All()); have != 2 || len(e.Problems()) != 1 ||
		e.Problems()[0].Object != (problem.Object{Kind: "half", Name: "c"}) {
		t.Errorf("%d rows and problems %v, want two rows and one problem of c", have, e.Problems())
	}
	in.Set("c", 5)
	e.Pass()
	if v, _ := half.Get("c"); v != 50 || len(e.Problems()) != 0 {
		t.Errorf("c is %d with problems %v, want 50 and none", v, e.Problems())
	}
	// A defect does not remove the value of a key: the value stays, and is called stale.
	changes := 0
	half.Watch(func([]Change[Name, int]) { changes++ })
	in.Set("c", 3)
	e.Pass()
	if v, _ := half.Get("c"); v != 50 || changes != 0 || len(e.Problems()) != 1 ||
		!strings.Contains(e.Problems()[0].Message, "stale") {
		t.Errorf("c is %d after %d changes, with problems %v, want the 50 that it was, and one problem", v, changes,
			e.Problems())
	}
	in.Delete("c")
	e.Pass()
	if _, ok := half.Get("c"); ok || changes != 1 || len(e.Problems()) != 0 {
		t.Errorf("c is there: %v after %d changes, with problems %v, want it gone", ok, changes, e.Problems())
	}
}

// TestReplaceBut leaves rows that nothing is known of as they are, or are about to be.
func TestReplaceBut(t *testing.T) {
	e := New()
	in := NewSource[Name, int](e, "in")
	in.Loaded()
	for _, n := range []Name{"row", "gone", "pending", "replaced"} {
		in.Set(n, 1)
	}
	e.Pass()
	in.Set("pending", 2)
	in.Replace(map[Name]int{"new": 3}, "row", "pending", "never")
	in.Replace(map[Name]int{"new": 4}, "row", "pending", "replaced")
	e.Pass()
	have := in.All()
	if want := []Row[Name, int]{{"new", 4}, {"pending", 2}, {"row", 1}}; !slices.Equal(have, want) {
		t.Errorf("rows %v, want %v", have, want)
	}
	in.Replace(nil)
	if e.Pass(); len(in.All()) != 0 {
		t.Errorf("rows %v after another list, want none", in.All())
	}
}

// TestDo runs between passes, so that it reads the state that the watches got last, and not at all once ctx has ended.
func TestDo(t *testing.T) {
	e := New()
	in := NewSource[Name, int](e, "in")
	in.Loaded()
	reported := 0
	in.Watch(func(changes []Change[Name, int]) { reported = changes[0].New })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx)
	}()
	go func() {
		for i := range 5000 {
			in.Set("x", i+1)
		}
		cancel()
	}()
	for e.Do(ctx, func() {
		if v, _ := in.Get("x"); v != reported {
			t.Errorf("the row is %d when its watch has received %d", v, reported)
		}
	}) {
	}
	<-ended
}

func TestNumbers(t *testing.T) {
	start := func(first, last uint32) (*Engine, *Source[Name, int], *Numbers[Name]) {
		e := New()
		names := NewSource[Name, int](e, "names")
		n := NewNumbers(e, "numbers", first, last, KeysOf(names))
		names.Loaded()
		return e, names, n
	}
	t.Run("depends on the name alone", func(t *testing.T) {
		e, names, one := start(1, 1<<24)
		names.Set("a", 1)
		e.Pass()
		names.Set("b", 1)
		e.Pass()
		e, names, other := start(1, 1<<24)
		names.Set("b", 1)
		e.Pass()
		names.Set("a", 1)
		e.Pass()
		if diff := gocmp.Diff(one.All(), other.All()); diff != "" || len(one.All()) != 2 {
			t.Errorf("the numbers depend on the order of events:\n%s", diff)
		}
	})
	t.Run("collisions, in every order", func(t *testing.T) {
		var want []Row[Name, uint32]
		for _, order := range [][]Name{{"a", "b", "c", "d"}, {"d", "c", "b", "a"}, {"b", "d", "a", "c"},
			{"c", "a", "d", "b"}} {
			e, names, n := start(1, 5)
			for i, k := range append(order, "gone") {
				names.Set(k, 1)
				if i == 2 {
					names.Set("other", 1) // one too many, for a while
				}
				e.Pass()
			}
			names.Delete("gone")
			names.Delete("other")
			e.Pass()
			if want == nil {
				want = n.All()
			}
			if diff := gocmp.Diff(want, n.All()); diff != "" || len(want) != 4 {
				t.Errorf("%v: other numbers:\n%s", order, diff)
			}
		}
	})
	t.Run("but one", func(t *testing.T) {
		all := []Name{"a", "b", "c", "d", "e"}
		for kept := uint32(1); kept <= 6; kept++ {
			e, names, n := start(1, 6)
			n.Except(kept)
			for _, k := range all {
				names.Set(k, 1)
				e.Pass()
			}
			names.Delete("c")
			e.Pass()
			names.Set("c", 1)
			e.Pass()
			fresh, others, want := start(1, 6)
			want.Except(kept)
			for _, k := range all {
				others.Set(k, 1)
			}
			fresh.Pass()
			if diff := gocmp.Diff(want.All(), n.All()); diff != "" || len(n.All()) != len(all) {
				t.Errorf("without %d: numbers (-from nothing +incremental):\n%s", kept, diff)
			}
			for _, row := range n.All() {
				if row.Value == kept {
					t.Errorf("%s has %d, which no key gets", row.Key, kept)
				}
			}
		}
		_, one, with := start(1, 1<<24)
		_, two, without := start(1, 1<<24)
		without.Except(1<<24 - 2)
		one.Set("a", 1)
		two.Set("a", 1)
		with.engine.Pass()
		without.engine.Pass()
		if diff := gocmp.Diff(with.All(), without.All()); diff != "" {
			t.Errorf("another number is kept, and so a has another one:\n%s", diff)
		}
	})
	t.Run("too few", func(t *testing.T) {
		e, names, n := start(5, 6)
		for _, k := range []Name{"a", "b", "c"} {
			names.Set(k, 1)
		}
		e.Pass()
		before := n.All()
		if len(before) != 2 || len(e.Problems()) != 1 ||
			e.Problems()[0].Object != (problem.Object{Kind: "numbers", Name: "c"}) {
			t.Fatalf("numbers %v, problems %v: want a and b to have one, and a problem of c", before, e.Problems())
		}
		names.Delete("a")
		e.Pass()
		_, others, other := start(5, 6)
		others.Set("c", 1)
		others.Set("b", 1)
		other.engine.Pass()
		if diff := gocmp.Diff(other.All(), n.All()); diff != "" || len(n.All()) != 2 || len(e.Problems()) != 0 {
			t.Errorf("problems %v; numbers (-want +have):\n%s", e.Problems(), diff)
		}
	})
}

// TestNoPassForNothing writes what is there: nothing is pending then.
func TestNoPassForNothing(t *testing.T) {
	e := New()
	names := NewSource[Name, int](e, "names")
	names.Loaded()
	names.Set("a", 1)
	e.Pass()
	wakes := func() bool {
		select {
		case <-e.wake:
			return true
		default:
			return false
		}
	}
	wakes()
	for _, row := range []struct {
		name   string
		write  func()
		passes bool
		want   int
	}{
		{"the same", func() { names.Set("a", 1) }, false, 1},
		{"what is absent goes", func() { names.Delete("b") }, false, 1},
		{"another, and back", func() { names.Set("a", 2); names.Set("a", 1) }, true, 1},
		{"another", func() { names.Set("a", 2) }, true, 2},
		{"all are replaced, then the same", func() { names.Replace(nil); names.Set("a", 2) }, true, 2},
		{"it goes, and comes", func() { names.Delete("a"); names.Set("a", 2) }, true, 2},
	} {
		row.write()
		if woken := wakes(); woken != row.passes {
			t.Errorf("%s: a pass is due: %t", row.name, woken)
		}
		e.Pass()
		if v, _ := names.Get("a"); v != row.want {
			t.Errorf("%s: have %d, want %d", row.name, v, row.want)
		}
	}
	if _, _, tables := e.Stats(); tables[0].Ignored < 2 {
		t.Errorf("%d writes were ignored", tables[0].Ignored)
	}
}

// TestRun writes from several goroutines while the engine runs, and reads at the same time.
func TestRun(t *testing.T) {
	w := newWorld()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.engine.Run(ctx) })
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for j := range 200 {
				name := fmt.Sprintf("web%d-%d", i, j%50)
				w.services.Set(service(name), fmt.Sprint("10.96.", i, ".", j))
				w.slices.Set(service(name), slice{service(name), fmt.Sprint(j)})
				w.frontends.Get(service(name))
				w.engine.Stats()
			}
		})
	}
	writers.Wait()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		f, _ := w.frontends.Get(service("web3-49"))
		if f == (frontend{"10.96.3.199", "199"}) && len(w.addresses.All()) == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the last write is not seen: %+v, %d addresses", f, len(w.addresses.All()))
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	running.Wait()
}

// TestFirstEventAtOnce checks that the first event after a quiet time starts a pass without waiting. It measures with
// the clock of a bubble, which stands still while a goroutine runs.
func TestFirstEventAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var seen []time.Time
		w.frontends.Watch(func([]Change[Object, frontend]) { seen = append(seen, time.Now()) })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.engine.Run(ctx); close(done) }()
		time.Sleep(time.Hour)
		wrote := time.Now()
		w.services.Set(service("web"), "10.96.0.1")
		synctest.Wait()
		if len(seen) != 1 || !seen[0].Equal(wrote) {
			t.Errorf("seen at %v, written at %v", seen, wrote)
		}
		stop()
		<-done
	})
}

func TestExplain(t *testing.T) {
	w := newWorld()
	w.services.Set(service("web"), "10.96.0.1")
	w.slices.Set(service("web-x"), slice{service("web"), "1"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.engine.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	for {
		if f, _ := w.frontends.Get(service("web")); f.Endpoints == "1" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	have, err := w.engine.Explain(t.Context(), "default/web")
	if err != nil {
		t.Fatal(err)
	}
	web := func(table string) Fact { return Fact{Table: table, Key: "default/web"} }
	want := []Explanation{
		{Fact: web("services"), Value: "10.96.0.1", To: []Fact{web("frontends")}},
		{
			Fact: web("frontends"), Value: "{Address:10.96.0.1 Endpoints:1}",
			From: []Fact{web("services"), {Table: "slices", Index: "service", Key: "default/web"}},
			To:   []Fact{{Table: "addresses", Key: "10.96.0.1"}},
		},
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("explanation (-want +have):\n%s", diff)
	}
	if text := have[1].From[1].String(); text != "slices[service=default/web]" {
		t.Errorf("the fact reads %s", text)
	}
	stop()
	<-done
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.engine.Explain(late, "default/web"); err == nil {
		t.Error("an engine that has ended explained something")
	}
}

// BenchmarkChange changes the endpoints of one of 10,000 Services.
func BenchmarkChange(b *testing.B) {
	w := newWorld()
	for i := range 10000 {
		name := fmt.Sprint("web", i)
		w.services.Set(service(name), fmt.Sprint("10.96.0.", i))
		w.slices.Set(service(name+"-x"), slice{service(name), "a"})
	}
	w.engine.Pass()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		w.slices.Set(service("web5000-x"), slice{service("web5000"), fmt.Sprint(i)})
		w.engine.Pass()
	}
}

// TestTogether moves a name from one source to another while passes run: no pass sees it in both or
// in neither.
func TestTogether(t *testing.T) {
	e := New()
	left, right := NewSource[Name, int](e, "left"), NewSource[Name, int](e, "right")
	left.Set("x", 1)
	left.Loaded()
	right.Loaded()
	passes, wrong := 0, 0
	e.WatchPasses(func(s PassStats) {
		_, l := left.Get("x")
		_, r := right.Get("x")
		passes++
		if l == r {
			wrong++
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2000 {
			e.Together(func() {
				if i%2 == 0 {
					right.Set("x", 1)
					left.Delete("x")
				} else {
					left.Set("x", 1)
					right.Delete("x")
				}
			})
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		e.Pass()
	}
	if passes == 0 || wrong > 0 {
		t.Errorf("%d of %d passes saw half a move", wrong, passes)
	}
}

// TestUnordered has the same rows as All.
func TestUnordered(t *testing.T) {
	e := New()
	in := NewSource[Name, int](e, "in")
	for i, n := range []Name{"c", "a", "b"} {
		in.Set(n, i+1)
	}
	in.Loaded()
	e.Pass()
	have := in.Unordered()
	slices.SortFunc(have, func(a, b Row[Name, int]) int { return a.Key.Compare(b.Key) })
	if diff := gocmp.Diff(in.All(), have); diff != "" || len(have) != 3 {
		t.Errorf("%d rows, -want +have:\n%s", len(have), diff)
	}
}
