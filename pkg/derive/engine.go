package derive

import (
	"context"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Engine owns tables and evaluates them. Tables are added before Run or the first Pass.
type Engine struct {
	wake  chan struct{}
	calls chan func() // from other goroutines, for the evaluating one

	tables  []*head  // in the order in which they were made, which is the order of evaluation
	sources []func() // take what was written to the sources

	together sync.Mutex // held while what belongs to one pass is written or taken

	mu       sync.Mutex
	waiting  map[string]bool // sources that were not declared loaded yet
	problems map[problem.Problem]int
	most     room // of problems
	last     PassStats
	passes   uint64
	watchers []func(added, removed []problem.Problem)
	passed   []func(PassStats)

	// Of the running pass; used by the evaluating goroutine only.
	changed     map[problem.Problem]int // by how much the count of each problem differs
	evaluated   int
	rowsChanged int
	deps        []*readers // empty between evaluations, with the room of the longest one
}

// PassStats is what one pass did.
type PassStats struct {
	Started   time.Time
	Duration  time.Duration
	Evaluated int // keys of derived tables
	Changed   int // rows of all tables
}

// TableStats is what a table holds and has done so far.
type TableStats struct {
	Name      string
	Rows      int
	Evaluated uint64 // evaluations of its function; 0 for a Source
	Changed   uint64 // rows that came, changed or went
	Ignored   uint64 // writes to a Source that changed nothing
}

// New returns an engine without tables.
func New() *Engine {
	return &Engine{
		wake: make(chan struct{}, 1), calls: make(chan func()), waiting: map[string]bool{},
		problems: map[problem.Problem]int{}, changed: map[problem.Problem]int{},
	}
}

// Run makes a pass whenever a Source was written, until ctx ends. The first one waits until
// all sources are loaded.
func (e *Engine) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-e.calls:
			f()
		case <-e.wake:
			e.Pass()
		}
	}
}

// Do makes the evaluating goroutine call f between two passes. f reads the tables in the state that watches have been
// called for. Do returns when f has returned. If ctx ends before f is called, it returns false without a call.
func (e *Engine) Do(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	select {
	case e.calls <- func() { defer close(done); f() }:
		<-done
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Loaded reports whether every source was declared loaded, and which were not.
func (e *Engine) Loaded() (bool, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 {
		return true, nil
	}
	var names []string
	for _, t := range e.tables {
		if e.waiting[t.name] {
			names = append(names, t.name)
		}
	}
	return len(names) == 0, names
}

// Pass takes all pending writes to sources, evaluates the rows that depend on them, and calls the watches. Run calls
// it; tests may call it themselves. Only one goroutine may call it at a time. While a Source is not loaded, it does
// nothing and returns false.
func (e *Engine) Pass() bool {
	if ok, _ := e.Loaded(); !ok {
		return false
	}
	stats := PassStats{Started: time.Now()}
	e.evaluated, e.rowsChanged = 0, 0
	e.together.Lock()
	for _, take := range e.sources {
		take()
	}
	e.together.Unlock()
	for _, t := range e.tables {
		t.step()
	}
	added, removed := e.settleProblems()
	for _, t := range e.tables {
		t.notify()
		for _, fit := range t.fits {
			fit()
		}
	}
	if len(added)+len(removed) > 0 {
		for _, f := range e.watchers {
			f(added, removed)
		}
	}
	stats.Duration, stats.Evaluated, stats.Changed = time.Since(stats.Started), e.evaluated, e.rowsChanged
	e.mu.Lock()
	e.last = stats
	e.passes++
	e.mu.Unlock()
	for _, f := range e.passed {
		f(stats)
	}
	return true
}

// Together has everything that f writes to sources taken by the same pass.
func (e *Engine) Together(f func()) {
	e.together.Lock()
	defer e.together.Unlock()
	f()
}

// WatchPasses makes the evaluating goroutine call f at the end of each pass, after all other watches.
func (e *Engine) WatchPasses(f func(PassStats)) { e.passed = append(e.passed, f) }

// settleProblems takes the pass's differences over.
func (e *Engine) settleProblems() (added, removed []problem.Problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for p, by := range e.changed {
		had := e.problems[p]
		if has := had + by; has == 0 {
			delete(e.problems, p)
		} else {
			e.problems[p] = has
		}
		switch has := e.problems[p]; {
		case had == 0 && has > 0:
			added = append(added, p)
		case had > 0 && has == 0:
			removed = append(removed, p)
		}
	}
	e.changed = emptied(e.changed)
	e.problems = fit(e.problems, &e.most)
	sortProblems(added)
	sortProblems(removed)
	return added, removed
}

// Problems returns what functions have reported and still hold, ordered by object.
func (e *Engine) Problems() []problem.Problem {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]problem.Problem, 0, len(e.problems))
	for p := range e.problems {
		out = append(out, p)
	}
	sortProblems(out)
	return out
}

// WatchProblems makes the evaluating goroutine call f after each pass that added or removed Problems.
func (e *Engine) WatchProblems(f func(added, removed []problem.Problem)) {
	e.watchers = append(e.watchers, f)
}

// Passes returns the number of passes so far. Before the first one no derived table has rows.
func (e *Engine) Passes() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.passes
}

// Stats returns what the last pass did, how many there were, and the tables in their order.
func (e *Engine) Stats() (last PassStats, passes uint64, tables []TableStats) {
	for _, t := range e.tables {
		tables = append(tables, describe(t))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last, e.passes, tables
}

// loaded declares a source loaded.
func (e *Engine) loaded(source string) {
	e.mu.Lock()
	delete(e.waiting, source)
	e.mu.Unlock()
	e.signal()
}

// add makes a table the next one in the order.
func (e *Engine) add(t *head) {
	for _, other := range e.tables {
		if other.name == t.name {
			panic("derive: two tables are named " + t.name) // a mistake in the program's wiring
		}
	}
	t.place = len(e.tables)
	e.tables = append(e.tables, t)
}
