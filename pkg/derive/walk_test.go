package derive

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 0, "seed of the random graphs; 0 for a few fixed ones")
	walkSteps = flag.Int("walk.steps", 100, "steps of each random walk")
)

type num int

func (n num) Compare(o num) int { return cmp.Compare(n, o) }

type val struct{ A, B int }

// graph is a random program over random tables: the same seed makes the same program.
type graph struct {
	engine  *Engine
	faulty  *Source[num, bool] // row 0: functions may panic
	sources []*Source[num, val]
	tables  []Readable[num, val]
	indexes []*Index[num, num, val]
	derived []*Table[num, val]
	numbers *Numbers[num]
}

const walkKeys = 12

func newGraph(seed uint64) *graph {
	random := rand.New(rand.NewPCG(seed, 1))
	g := &graph{engine: New()}
	g.faulty = NewSource[num, bool](g.engine, "faulty")
	g.faulty.Loaded()
	for i := range 2 + random.IntN(3) {
		s := NewSource[num, val](g.engine, fmt.Sprintf("source%d", i))
		s.Loaded()
		g.sources = append(g.sources, s)
		g.tables = append(g.tables, s)
	}
	for i := range 2 + random.IntN(6) {
		for _, t := range g.tables[max(0, len(g.tables)-2):] {
			if random.IntN(2) == 0 {
				g.indexes = append(g.indexes, NewIndex(t, fmt.Sprintf("index%d", len(g.indexes)), func(k num, v val) []num {
					return []num{num(v.A % walkKeys), num(v.B % 3), num(v.A % walkKeys)} // sometimes one twice
				}))
			}
		}
		var keys []Keys[num]
		for range 1 + random.IntN(2) {
			if len(g.indexes) > 0 && random.IntN(3) == 0 {
				keys = append(keys, KeysOfIndex(g.indexes[random.IntN(len(g.indexes))]))
			} else {
				keys = append(keys, KeysOf(g.tables[random.IntN(len(g.tables))]))
			}
		}
		t := NewTable(g.engine, fmt.Sprintf("table%d", i), g.program(random.Uint64(), len(g.tables), len(g.indexes)), keys...)
		if i == 0 {
			g.numbers = NewNumbers(g.engine, "numbers", 1, 9, KeysOf(t)) // too few for all
		}
		g.derived = append(g.derived, t)
		g.tables = append(g.tables, t)
	}
	return g
}

// program makes a function that reads what depends on what it has read before.
func (g *graph) program(seed uint64, tables, indexes int) func(num, *Reader) (val, []problem.Problem) {
	return func(k num, r *Reader) (val, []problem.Problem) {
		random := rand.New(rand.NewPCG(seed, uint64(k)))
		sum := val{A: int(seed % 5), B: int(k)}
		for range random.IntN(5) {
			which := random.IntN(10) + sum.A%3
			switch {
			case which < 6:
				if v, ok := Get(r, g.tables[random.IntN(tables)], num((random.IntN(walkKeys)+sum.A)%walkKeys)); ok {
					sum.A, sum.B = sum.A+v.A, sum.B*3+v.B
				}
			case which < 9 && indexes > 0:
				for _, row := range List(r, g.indexes[random.IntN(indexes)], num(sum.B%walkKeys)) {
					sum.A, sum.B = sum.A*5+row.Value.A+int(row.Key), sum.B+1
				}
			case which == 10:
				for _, row := range All(r, g.tables[random.IntN(tables)]) {
					sum.A = sum.A*7 + row.Value.A
				}
			}
			sum.A, sum.B = abs(sum.A)%1000, abs(sum.B)%1000
		}
		var problems []problem.Problem
		switch {
		case sum.A%19 == 1:
			if faulty, _ := Get(r, g.faulty, 0); faulty {
				panic(fmt.Sprintf("unlucky %d", sum.B))
			}
		case sum.A%7 == 2:
			problems = append(problems, problem.Problem{Object: problem.Object{Kind: "Thing", Name: fmt.Sprint(k)},
				Message: fmt.Sprint(sum.B % 2)})
		case sum.A%5 == 3:
			return val{}, nil
		}
		return val{sum.A % 40, sum.B % 4}, problems
	}
}

func abs(i int) int { return max(i, -i) }

// state is all that a graph holds.
func (g *graph) state() map[string]any {
	out := map[string]any{"problems": g.engine.Problems(), "numbers": g.numbers.All()}
	for i, t := range g.tables {
		out[fmt.Sprint("table ", i)] = t.store().All()
	}
	return out
}

// TestWalk changes sources at random. After each pass it compares all tables with the tables of a new engine, and the
// calls of watches with the changes.
func TestWalk(t *testing.T) {
	seeds := []uint64{*walkSeed}
	if *walkSeed == 0 {
		seeds = nil
		for s := range uint64(40) {
			seeds = append(seeds, s+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { walk(t, seed) })
	}
}

func walk(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	g := newGraph(seed)
	last := g.derived[len(g.derived)-1]
	watched := map[num]val{}
	last.Watch(func(list []Change[num, val]) {
		for i, c := range list {
			if watched[c.Key] != c.Old || c.Old == c.New || i > 0 && list[i-1].Key >= c.Key {
				t.Errorf("change %+v: the row was %+v", c, watched[c.Key])
			}
			watched[c.Key] = c.New
		}
	})
	problems := map[problem.Problem]bool{}
	g.engine.WatchProblems(func(added, removed []problem.Problem) {
		for _, p := range added {
			if problems[p] {
				t.Errorf("%s was added twice", p)
			}
			problems[p] = true
		}
		for _, p := range removed {
			if !problems[p] {
				t.Errorf("%s was removed and not there", p)
			}
			delete(problems, p)
		}
	})
	for step := range *walkSteps {
		for range 1 + random.IntN(4) {
			g.change(random)
		}
		if random.IntN(3) == 0 { // what a key keeps while its function panics has no trace later
			g.faulty.Set(0, true)
			g.engine.Pass()
			g.faulty.Delete(0)
		}
		g.engine.Pass()

		fresh := newGraph(seed)
		for i, s := range g.sources {
			for _, row := range s.All() {
				fresh.sources[i].Set(row.Key, row.Value)
			}
		}
		fresh.engine.Pass()
		if diff := gocmp.Diff(fresh.state(), g.state()); diff != "" {
			t.Fatalf("seed %d, step %d: the tables differ from those made from nothing (-nothing +incremental):\n%s", seed,
				step, diff)
		}
		for _, row := range last.All() {
			if watched[row.Key] != row.Value {
				t.Fatalf("seed %d, step %d: the watch has %+v of %+v", seed, step, watched[row.Key], row)
			}
		}
		if len(problems) != len(g.engine.Problems()) {
			t.Fatalf("seed %d, step %d: %d problems were reported, %d are there", seed, step, len(problems),
				len(g.engine.Problems()))
		}
		if evaluated := pass(g.engine).Evaluated; evaluated != 0 {
			t.Fatalf("seed %d, step %d: a pass without a change evaluated %d keys", seed, step, evaluated)
		}
	}
	g.empty(t)
}

// change does one random thing to a source.
func (g *graph) change(random *rand.Rand) {
	s := g.sources[random.IntN(len(g.sources))]
	k, v := num(random.IntN(walkKeys)), val{random.IntN(20), random.IntN(4)}
	switch random.IntN(12) {
	case 0, 1, 2:
		s.Delete(k)
	case 3:
		s.Replace(map[num]val{k: v, k + 1: v})
	case 4: // what is there already
		for _, row := range s.All() {
			s.Set(row.Key, row.Value)
		}
	default:
		s.Set(k, v)
	}
}

// empty takes everything away: nothing may remain that refers to what is gone.
func (g *graph) empty(t *testing.T) {
	t.Helper()
	for _, s := range g.sources {
		s.Replace(nil)
	}
	g.engine.Pass()
	for _, s := range g.tables {
		r := s.store()
		if len(r.m) > 0 || len(r.keyed.asked.m) > 0 || r.whole != nil {
			t.Errorf("%s has %d rows and %d reads of keys left", r.name, len(r.m), len(r.keyed.asked.m))
		}
	}
	for _, x := range g.indexes {
		if len(x.by.m) > 0 || len(x.by.asked.m) > 0 {
			t.Errorf("%s has %d keys and %d reads left", x.by.asked.index, len(x.by.m), len(x.by.asked.m))
		}
	}
	for _, table := range g.derived {
		if len(table.derived.cells) > 0 {
			t.Errorf("%s has %d cells left", table.name, len(table.derived.cells))
		}
	}
}

func pass(e *Engine) PassStats {
	e.Pass()
	last, _, _ := e.Stats()
	return last
}
