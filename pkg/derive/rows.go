package derive

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Key is the key of a table. Lists have its order, so that results do not depend on the order of events.
type Key[K any] interface {
	comparable
	Compare(K) int
}

// Name is a Key for what one text names.
type Name string

// Compare orders by the text.
func (n Name) Compare(o Name) int { return cmp.Compare(n, o) }

// Object is a Key for objects of one kind.
type Object struct{ Namespace, Name string }

// Compare orders by Namespace, then name.
func (o Object) Compare(other Object) int {
	return cmp.Or(cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Name, other.Name))
}

// ObjectOf is the key of an object of Kubernetes.
func ObjectOf(o interface {
	GetNamespace() string
	GetName() string
}) Object {
	return Object{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// ObjectsOf returns the keys of objects.
func ObjectsOf[T interface {
	GetNamespace() string
	GetName() string
}](list []T) []Object {
	keys := make([]Object, len(list))
	for i, o := range list {
		keys[i] = ObjectOf(o)
	}
	return keys
}

// String returns "namespace/name".
func (o Object) String() string { return o.Namespace + "/" + o.Name }

// Row is a key and its value.
type Row[K Key[K], V any] struct {
	Key   K
	Value V
}

// Values returns the values of rows.
func Values[K Key[K], V any](rows []Row[K, V]) []V {
	out := make([]V, len(rows))
	for i, row := range rows {
		out[i] = row.Value
	}
	return out
}

// Change is the effect of a pass on one key. A zero Old means that the key had no value before. A zero New means that
// it has no value now.
type Change[K Key[K], V any] struct {
	Key      K
	Old, New V
}

// Readable is a Source, Table or Numbers.
type Readable[K Key[K], V any] interface{ store() *rows[K, V] }

// A program has a hundred tables, and the compiler generates each generic function once for each pair of types. So head
// is the part of a table that depends on no type parameter, and keyed is the part that depends only on the type of
// keys. The methods of an embedded type are generated again for each type that embeds it. So head has no methods, and
// rows has only the methods that users of tables call.

// head is the part of any table that depends neither on its keys nor on its values.
type head struct {
	engine  *Engine
	name    string
	place   int
	size    atomic.Int64
	whole   *readers
	step    func()                               // takes what is pending, evaluates what is dirty
	notify  func()                               // calls the watches with what step has changed
	explain func(key string) (Explanation, bool) //
	fits    []func()                             // have the maps give their room back; see fit
	grows   []func(int)                          // called when about so many keys come

	evaluated, changed, ignored atomic.Uint64
}

// keyed is the part of any table that depends on the type of its keys alone.
type keyed[K Key[K]] struct {
	*head
	asked *asked[K]
	feeds []func(K) // called when a key came or went; for derived tables
	has   func(K) bool
}

// rows are the rows of any table, with the cells that have read them. Only the evaluating
// goroutine writes, so it reads without the lock.
type rows[K Key[K], V any] struct {
	*head
	keyed *keyed[K]
	equal func(a, b V) bool

	mu   sync.RWMutex // of m
	m    map[K]V
	most room // of m

	indexes []func(k K, old, new V) // keep an Index up to date
	listed  []func(k K, v V) []Fact // the cells that have listed a row by an Index
	watches []func([]Change[K, V])
	changes map[K]V // what changed rows were before the pass, where there are watches
}

// grow makes room for as many rows as arrive together when everything is loaded. A map that grows row by row would be
// copied a dozen times.
func grow(h *head, n int) {
	for _, f := range h.grows {
		f(n)
	}
}

// keepFit has a map give its memory back together with the table's maps.
func keepFit[A comparable, B any](h *head, m *map[A]B) {
	var most room
	h.fits = append(h.fits, func() { *m = fit(*m, &most) })
}

func newRows[K Key[K], V any](e *Engine, name string) *rows[K, V] {
	h := &head{engine: e, name: name}
	r := &rows[K, V]{
		head: h, equal: func(a, b V) bool { return reflect.DeepEqual(a, b) }, m: map[K]V{}, changes: map[K]V{},
		keyed: newKeyed[K](h),
	}
	r.keyed.has = func(k K) bool {
		_, ok := r.m[k]
		return ok
	}
	h.notify = func() { notify(r) }
	h.explain = func(key string) (Explanation, bool) { return explain(r, key) }
	h.grows = append(h.grows, func(n int) { resize(r, func() { r.m = roomFor(r.m, n, &r.most) }) })
	h.fits = append(h.fits, func() { resize(r, func() { r.m = fit(r.m, &r.most) }) })
	return r
}

func newKeyed[K Key[K]](h *head) *keyed[K] {
	k := &keyed[K]{head: h, asked: newAsked[K](h.name, "")}
	keepFit(h, &k.asked.m)
	return k
}

// resize has f replace the map of rows.
func resize[K Key[K], V any](r *rows[K, V], f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *rows[K, V]) store() *rows[K, V] { return r }

// Len is how many rows there are.
func (r *rows[K, V]) Len() int { return int(r.size.Load()) }

// absent reports whether a value is zero, that is, no value.
func absent[V any](v V) bool { return reflect.ValueOf(&v).Elem().IsZero() }

// put sets a row, or removes it if v is absent. It marks all cells that have read the row as dirty. It returns false if
// nothing has changed.
func put[K Key[K], V any](r *rows[K, V], k K, v V) bool {
	old, had := r.m[k]
	has := !absent(v)
	if had == has && (!had || r.equal(old, v)) {
		return false
	}
	r.mu.Lock()
	if has {
		r.m[k] = v
	} else {
		delete(r.m, k)
	}
	r.mu.Unlock()
	r.size.Store(int64(len(r.m)))
	r.keyed.asked.m[k].mark()
	for _, update := range r.indexes {
		update(k, old, v)
	}
	r.keyed.moved(k, had != has)
	if len(r.watches) > 0 {
		if _, noted := r.changes[k]; !noted {
			r.changes[k] = old
		}
	}
	return true
}

// moved notes that a row has changed, and whether its key came or went.
func (t *keyed[K]) moved(k K, key bool) {
	t.changed.Add(1)
	t.engine.rowsChanged++
	t.whole.mark()
	if key {
		for _, feed := range t.feeds {
			feed(k)
		}
	}
}

// Get returns a row of a table. Any goroutine may call it. Functions of tables must call derive.Get instead, so that
// the read is recorded.
func (r *rows[K, V]) Get(k K) (V, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	v, ok := r.m[k]
	return v, ok
}

// All returns all rows, ordered by key. Any goroutine may call it. Functions of tables must call derive.All instead, so
// that the read is recorded.
func (r *rows[K, V]) All() []Row[K, V] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return sortedRows(r.m)
}

// Watch makes the evaluating goroutine call f after each pass that has changed rows, with the changes ordered by key. f
// should hand them to a writer and return, without doing the work itself.
func (r *rows[K, V]) Watch(f func([]Change[K, V])) { r.watches = append(r.watches, f) }

func notify[K Key[K], V any](r *rows[K, V]) {
	if len(r.changes) == 0 {
		return
	}
	keys := make([]K, 0, len(r.changes))
	for k, old := range r.changes {
		now := r.m[k]
		if absent(old) && absent(now) || !absent(old) && !absent(now) && r.equal(old, now) {
			continue // it changed and changed back within the pass
		}
		keys = append(keys, k)
	}
	list := make([]Change[K, V], len(keys))
	for i, at := range orderOf(keys) {
		k := keys[at]
		list[i] = Change[K, V]{Key: k, Old: r.changes[k], New: r.m[k]}
	}
	r.changes = emptied(r.changes)
	if len(list) == 0 {
		return
	}
	for _, f := range r.watches {
		f(list)
	}
}

func describe(h *head) TableStats {
	return TableStats{
		Name: h.name, Rows: int(h.size.Load()), Evaluated: h.evaluated.Load(), Changed: h.changed.Load(),
		Ignored: h.ignored.Load(),
	}
}

func sortedRows[K Key[K], V any](m map[K]V) []Row[K, V] {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	out := make([]Row[K, V], len(keys))
	for i, at := range orderOf(keys) {
		out[i] = Row[K, V]{keys[at], m[keys[at]]}
	}
	return out
}

// orderOf returns the order of keys as positions. It sorts numbers, so that all tables share one compiled sort
// function. A sort of rows would be compiled for each type of values: such sorts were a fifth of the functions of
// pkg/agent.
func orderOf[K Key[K]](keys []K) []int {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return keys[a].Compare(keys[b]) })
	return order
}

func sortProblems(list []problem.Problem) {
	slices.SortFunc(list, func(a, b problem.Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason.String(), b.Reason.String()), cmp.Compare(a.Message, b.Message))
	})
}
