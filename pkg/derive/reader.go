package derive

import "fmt"

// Reader is how a table's function reads other tables. It is valid during that call only.
type Reader struct {
	reader reader
	round  uint64
	place  int
	deps   *[]*readers
}

// reader is a cell that has read something.
type reader interface {
	mark()
	identify() (table, key string)
}

// readers are the cells that have read one thing: a key, whether it has a row or not, a key of
// an index, or a whole table. Each is kept with the number of its evaluation.
type readers struct {
	table string
	index string // empty for the table's own keys
	key   any    // nil for the whole table
	one   reader // most things are read by one cell
	round uint64 // of one
	more  map[reader]uint64
	most  room  // of more
	owner owner // is notified when there are no more readers
}

// owner keeps readers by their keys.
type owner interface{ release(*readers) }

func (w *readers) mark() {
	if w == nil {
		return
	}
	if w.one != nil {
		w.one.mark()
	}
	for r := range w.more {
		r.mark()
	}
}

// roundOf returns in which of its evaluations r has read this last, 0 for never.
func (w *readers) roundOf(r reader) uint64 {
	if w.one == r {
		return w.round
	}
	return w.more[r]
}

func (w *readers) add(r reader, round uint64) {
	_, among := w.more[r]
	switch {
	case w.one == r || w.one == nil && !among:
		w.one, w.round = r, round
		return
	case w.more == nil:
		w.more = map[reader]uint64{}
	}
	w.more[r] = round
	w.most = max(w.most, room(len(w.more)))
}

func (w *readers) remove(r reader) {
	if w.one == r {
		w.one = nil
	} else {
		delete(w.more, r)
		w.more = fit(w.more, &w.most)
	}
	if w.one == nil && len(w.more) == 0 {
		w.owner.release(w)
	}
}

// note records that the reader depends on something of a table.
func (r *Reader) note(w *readers) {
	if w.roundOf(r.reader) == r.round {
		return
	}
	w.add(r.reader, r.round)
	*r.deps = append(*r.deps, w)
}

// before refuses what would be a cycle.
func (r *Reader) before(table string, place int) {
	if place >= r.place {
		name, _ := r.reader.identify()
		panic(fmt.Sprintf("table %s reads table %s, which is not made before it", name, table))
	}
}

// Get returns the row of a key.
func Get[K Key[K], V any](r *Reader, from Readable[K, V], k K) (V, bool) {
	t := from.store()
	r.before(t.name, t.place)
	r.note(t.readersOf(k))
	v, ok := t.m[k]
	return v, ok
}

// All returns all rows of a table, ordered by key. Any change of the table then evaluates the
// reader again: where a part is enough, an Index costs less.
func All[K Key[K], V any](r *Reader, from Readable[K, V]) []Row[K, V] {
	t := from.store()
	r.before(t.name, t.place)
	r.note(t.readersOfAll())
	return sortedRows(t.m)
}

// Count returns how many rows an index has under a key, without looking at them.
func Count[I Key[I], K Key[K], V any](r *Reader, from *Index[I, K, V], under I) int {
	r.before(from.of.name, from.of.place)
	r.note(from.readersOf(under))
	switch m, any := from.m[under]; {
	case !any:
		return 0
	case m.more == nil:
		return 1
	default:
		return len(m.more.keys)
	}
}

// List returns the rows that an index has under a key, ordered by their own keys.
func List[I Key[I], K Key[K], V any](r *Reader, from *Index[I, K, V], under I) []Row[K, V] {
	t := from.of
	r.before(t.name, t.place)
	r.note(from.readersOf(under))
	keys := from.sorted(under)
	out := make([]Row[K, V], len(keys))
	for i, k := range keys {
		out[i] = Row[K, V]{k, t.m[k]}
	}
	return out
}
