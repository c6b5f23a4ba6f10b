package derive

import (
	"fmt"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Table is a derived table.
type Table[K Key[K], V any] struct {
	*rows[K, V]
	f     func(K, *Reader) (V, []problem.Problem)
	keys  []Keys[K]
	cells map[K]*cell[K, V]
	dirty []*cell[K, V]
	room  room // of cells
}

// Keys are the keys of a derived table: KeysOf a table, or of an index.
type Keys[K Key[K]] interface {
	has(K) bool
	// have each called with each key that comes or goes, before that about with how many come, where that is known
	feed(each func(K), about func(int))
}

// cell is one key of a derived table, whether it has a value or not.
type cell[K Key[K], V any] struct {
	table    *Table[K, V]
	key      K
	dirty    bool
	round    uint64
	deps     []*readers
	problems []problem.Problem
}

// NewTable adds a table whose keys are the keys of all keys together, and whose value for each is the result of f. f
// may read tables that were made before.
func NewTable[K Key[K], V any](e *Engine, name string, f func(K, *Reader) (V, []problem.Problem),
	keys ...Keys[K]) *Table[K, V] {
	t := &Table[K, V]{rows: newRows[K, V](e, name), f: f, keys: keys, cells: map[K]*cell[K, V]{}}
	t.place = e.add(t, name)
	for _, k := range keys {
		k.feed(t.touch, func(n int) { t.cells = roomFor(t.cells, n, &t.room) })
	}
	t.fits = append(t.fits, func() { t.cells = fit(t.cells, &t.room) })
	return t
}

// EqualBy has values compared by f instead of reflect.DeepEqual, and returns the table.
func (t *Table[K, V]) EqualBy(f func(a, b V) bool) *Table[K, V] {
	t.equal = f
	return t
}

// touch has a key looked at in this pass.
func (t *Table[K, V]) touch(k K) {
	c := t.cells[k]
	if c == nil {
		c = &cell[K, V]{table: t, key: k}
		t.cells[k] = c
	}
	c.mark()
}

func (c *cell[K, V]) mark() {
	if !c.dirty {
		c.dirty = true
		c.table.dirty = append(c.table.dirty, c)
	}
}

func (c *cell[K, V]) identify() (table, key string) { return c.table.name, fmt.Sprint(c.key) }

func (t *Table[K, V]) step() {
	if len(t.dirty) == 0 {
		return
	}
	dirty := t.dirty
	t.dirty = nil
	keys := make([]K, len(dirty))
	for i, c := range dirty {
		keys[i] = c.key
	}
	t.grow(len(dirty) - len(t.m)) // where most are new
	for _, at := range orderOf(keys) {
		c := dirty[at]
		c.dirty = false
		var v V
		var problems []problem.Problem
		old := c.deps
		c.deps = nil
		wanted := slices.ContainsFunc(t.keys, func(k Keys[K]) bool { return k.has(c.key) })
		failed := false
		c.round++
		if wanted {
			v, problems, failed = t.evaluate(c)
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
			t.put(c.key, v)
		}
	}
}

// evaluate calls the function. A panic becomes a Problem, and the key keeps the value that it had: a fault of
// one key stays its own, and takes nothing away that was made from the key.
func (t *Table[K, V]) evaluate(c *cell[K, V]) (v V, problems []problem.Problem, failed bool) {
	t.evaluated.Add(1)
	t.engine.evaluated++
	r := &Reader{reader: c, round: c.round, place: t.place, deps: t.engine.deps}
	defer func() {
		c.deps = slices.Clone(r.deps) // without room for more
		clear(r.deps)
		t.engine.deps = r.deps[:0]
		if p := recover(); p != nil {
			value := "its key has no value"
			if _, had := t.m[c.key]; had {
				value = "its key keeps the value that it had, which is stale"
			}
			problems = []problem.Problem{{
				Object: problem.Object{Kind: t.name, Name: fmt.Sprint(c.key)}, Reason: ReasonEvaluationFailed,
				Message: fmt.Sprintf("the function of this table failed, %s: %v; report this as a defect", value, p),
			}}
			failed = true
		}
	}()
	v, problems = t.f(c.key, r)
	return v, problems, false
}

// count notes Problems that came (+1) or went (-1) in this pass.
func (e *Engine) count(problems []problem.Problem, by int) {
	for _, p := range problems {
		e.changed[p] += by
	}
}

// KeysOf gives a derived table the keys of a table.
func KeysOf[K Key[K], V any](t Readable[K, V]) Keys[K] { return keysOfTable[K, V]{t.store()} }

// keysOfTable embeds no rows: their methods would all be compiled a second time.
type keysOfTable[K Key[K], V any] struct{ of *rows[K, V] }

func (k keysOfTable[K, V]) has(key K) bool {
	_, ok := k.of.m[key]
	return ok
}

func (k keysOfTable[K, V]) feed(each func(K), about func(int)) {
	k.of.feeds, k.of.grows = append(k.of.feeds, each), append(k.of.grows, about)
}
