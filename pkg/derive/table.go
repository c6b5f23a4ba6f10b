package derive

import (
	"fmt"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Table is a derived table.
type Table[K Key[K], V any] struct {
	*rows[K, V]
	derived *derived[K]
}

// Keys are the keys of a derived table: KeysOf a table, or of an index.
type Keys[K Key[K]] struct {
	has func(K) bool
	// feed calls each with each key that comes or goes. Before that it calls about with their number, if that is known.
	feed func(each func(K), about func(int))
}

// derived is the part of a derived table that depends on the type of its keys alone.
type derived[K Key[K]] struct {
	*head
	// call evaluates the table's function, and keeps the value for settle.
	call func(K, *Reader) []problem.Problem
	// settle puts the value of the last call, or no value if there was none since.
	settle func(K)
	had    func(K) bool
	keys   []Keys[K]
	cells  map[K]*cell[K]
	dirty  []*cell[K]
	room   room // of cells
}

// cell is one key of a derived table, whether it has a value or not.
type cell[K Key[K]] struct {
	table    *derived[K]
	key      K
	dirty    bool
	round    uint64
	deps     []*readers
	problems []problem.Problem
}

// NewTable adds a table. Its keys are the rows of all of the given key sources, and the value of each key is the result
// of f. f may read tables that were made before.
func NewTable[K Key[K], V any](e *Engine, name string, f func(K, *Reader) (V, []problem.Problem),
	keys ...Keys[K]) *Table[K, V] {
	r := newRows[K, V](e, name)
	var value, none V // of the last call
	t := &Table[K, V]{rows: r, derived: &derived[K]{
		head: r.head, keys: keys, cells: map[K]*cell[K]{}, had: r.keyed.has,
		call: func(k K, reader *Reader) (problems []problem.Problem) {
			value, problems = f(k, reader)
			return problems
		},
		settle: func(k K) {
			v := value
			value = none
			put(r, k, v)
		},
	}}
	t.derived.begin()
	return t
}

// begin adds the table to the engine.
func (t *derived[K]) begin() {
	t.step = t.evaluateAll
	plain := t.explain
	t.head.explain = func(key string) (Explanation, bool) {
		x, ok := plain(key)
		return t.explainCell(key, x, ok)
	}
	t.engine.add(t.head)
	for _, k := range t.keys {
		k.feed(t.touch, func(n int) { t.cells = roomFor(t.cells, n, &t.room) })
	}
	t.fits = append(t.fits, func() { t.cells = fit(t.cells, &t.room) })
}

// EqualBy has values compared by f instead of reflect.DeepEqual, and returns the table.
func (t *Table[K, V]) EqualBy(f func(a, b V) bool) *Table[K, V] {
	t.equal = f
	return t
}

// touch has a key looked at in this pass.
func (t *derived[K]) touch(k K) {
	c := t.cells[k]
	if c == nil {
		c = &cell[K]{table: t, key: k}
		t.cells[k] = c
	}
	c.mark()
}

func (c *cell[K]) mark() {
	if !c.dirty {
		c.dirty = true
		c.table.dirty = append(c.table.dirty, c)
	}
}

func (c *cell[K]) identify() (table, key string) { return c.table.name, fmt.Sprint(c.key) }

func (t *derived[K]) evaluateAll() {
	if len(t.dirty) == 0 {
		return
	}
	dirty := t.dirty
	t.dirty = nil
	keys := make([]K, len(dirty))
	for i, c := range dirty {
		keys[i] = c.key
	}
	grow(t.head, len(dirty)-int(t.size.Load())) // where most are new
	for _, at := range orderOf(keys) {
		c := dirty[at]
		c.dirty = false
		var problems []problem.Problem
		old := c.deps
		c.deps = nil
		wanted := slices.ContainsFunc(t.keys, func(k Keys[K]) bool { return k.has(c.key) })
		failed := false
		c.round++
		if wanted {
			problems, failed = t.evaluate(c)
		}
		for _, d := range old {
			if d.roundOf(c) != c.round {
				d.remove(c)
			}
		}
		t.engine.count(c.problems, -1)
		t.engine.count(problems, +1)
		c.problems = problems
		if !wanted {
			delete(t.cells, c.key)
		}
		if !failed { // else the row stays as it is
			t.settle(c.key)
		}
	}
}

// evaluate calls the function. A panic becomes a Problem, and the key keeps its previous value. So a fault in one key
// does not affect others, and rows that depend on the key stay.
func (t *derived[K]) evaluate(c *cell[K]) (problems []problem.Problem, failed bool) {
	t.evaluated.Add(1)
	t.engine.evaluated++
	r := &Reader{reader: c, round: c.round, place: t.place, deps: t.engine.deps}
	defer func() {
		c.deps = slices.Clone(r.deps) // without room for more
		clear(r.deps)
		t.engine.deps = r.deps[:0]
		if p := recover(); p != nil {
			value := "its key has no value"
			if t.had(c.key) {
				value = "its key keeps the value that it had, which is stale"
			}
			problems = []problem.Problem{{
				Object: problem.Object{Kind: t.name, Name: fmt.Sprint(c.key)}, Reason: ReasonEvaluationFailed,
				Message: fmt.Sprintf("the function of this table failed, %s: %v; report this as a defect", value, p),
			}}
			failed = true
		}
	}()
	return t.call(c.key, r), false
}

// count notes Problems that came (+1) or went (-1) in this pass.
func (e *Engine) count(problems []problem.Problem, by int) {
	for _, p := range problems {
		e.changed[p] += by
	}
}

// KeysOf gives a derived table the keys of a table.
func KeysOf[K Key[K], V any](t Readable[K, V]) Keys[K] { return keysOf(t.store().keyed) }

func keysOf[K Key[K]](of *keyed[K]) Keys[K] {
	return Keys[K]{has: of.has, feed: func(each func(K), about func(int)) {
		of.feeds, of.grows = append(of.feeds, each), append(of.grows, about)
	}}
}
