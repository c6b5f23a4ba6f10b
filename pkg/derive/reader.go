package derive

import (
	"fmt"
	"slices"
)

// Reader is how a table's function reads other tables. It is valid during that call only.
type Reader struct {
	reader reader
	round  uint64
	place  int
	deps   []*readers // what it has read, in that order
}

// reader is a cell that has read something.
type reader interface {
	mark()
	identify() (table, key string)
}

// readers are the cells that have read one thing: a key, even without a row, a key of an index, or a whole table. Large
// clusters have hundreds of thousands of them, most with one or two cells.
type readers struct {
	key  any   // nil for the whole table
	of   owner // is notified when there are no more readers
	one  reading
	more *others // nil without
}

// reading is a cell that has read something, with the number of its evaluation.
type reading struct {
	reader
	round uint64
}

// others are all readings except the first. They are a list while they are few, since a map takes several times as much
// memory.
type others struct {
	few  []reading
	many map[reader]uint64
	most room // of many
}

// fewReaders is how many others are in a list.
const fewReaders = 8

// owner keeps readers by their keys.
type owner interface {
	release(*readers)
	names() (table, index string) // the index is empty for the table's own keys
}

// asked are readers by the key that they have read, of a table or of an index.
type asked[K Key[K]] struct {
	table, index string
	m            map[K]*readers
}

func newAsked[K Key[K]](table, index string) *asked[K] {
	return &asked[K]{table: table, index: index, m: map[K]*readers{}}
}

// readers returns the readers of a key, for a cell that is about to become one.
func (a *asked[K]) readers(k K) *readers {
	w := a.m[k]
	if w == nil {
		w = &readers{key: k, of: a}
		a.m[k] = w
	}
	return w
}

func (a *asked[K]) release(w *readers) { delete(a.m, w.key.(K)) }

func (a *asked[K]) names() (table, index string) { return a.table, a.index }

// wholeTable is the owner of the readers of all rows.
type wholeTable struct{ *head }

func (t wholeTable) release(*readers) { t.whole = nil }

func (t wholeTable) names() (table, index string) { return t.name, "" }

// readersOfAll returns the readers of a whole table. The caller is about to add a cell to them.
func readersOfAll(h *head) *readers {
	if h.whole == nil {
		h.whole = &readers{of: wholeTable{h}}
	}
	return h.whole
}

// all goes through the readings.
func (w *readers) all(yield func(reader) bool) {
	if w == nil || w.one.reader != nil && !yield(w.one.reader) || w.more == nil {
		return
	}
	for _, r := range w.more.few {
		if !yield(r.reader) {
			return
		}
	}
	for r := range w.more.many {
		if !yield(r) {
			return
		}
	}
}

func (w *readers) mark() {
	for r := range w.all {
		r.mark()
	}
}

// roundOf returns in which of its evaluations r has read this last, 0 for never.
func (w *readers) roundOf(r reader) uint64 {
	switch {
	case w.one.reader == r:
		return w.one.round
	case w.more == nil:
		return 0
	case w.more.many != nil:
		return w.more.many[r]
	}
	if i := w.more.at(r); i >= 0 {
		return w.more.few[i].round
	}
	return 0
}

// at returns the place of a reader in the list, or -1.
func (o *others) at(r reader) int {
	return slices.IndexFunc(o.few, func(x reading) bool { return x.reader == r })
}

func (w *readers) add(r reader, round uint64) {
	if w.one.reader == r || w.one.reader == nil && w.roundOf(r) == 0 {
		w.one = reading{r, round}
		return
	}
	if w.more == nil {
		w.more = &others{}
	}
	w.more.set(r, round)
}

func (o *others) set(r reader, round uint64) {
	if o.many == nil {
		if i := o.at(r); i >= 0 {
			o.few[i].round = round
			return
		}
		if len(o.few) < fewReaders {
			o.few = append(o.few, reading{r, round})
			return
		}
		o.many = make(map[reader]uint64, 2*fewReaders)
		for _, x := range o.few {
			o.many[x.reader] = x.round
		}
		o.few = nil
	}
	o.many[r] = round
	o.most = max(o.most, room(len(o.many)))
}

func (w *readers) remove(r reader) {
	switch {
	case w.one.reader == r:
		w.one = reading{}
	case w.more == nil:
	case w.more.many != nil:
		delete(w.more.many, r)
		w.more.many = fit(w.more.many, &w.more.most)
	default:
		if i := w.more.at(r); i >= 0 {
			w.more.few = slices.Delete(w.more.few, i, i+1)
		}
	}
	if w.more != nil && len(w.more.few)+len(w.more.many) == 0 {
		w.more = nil
	}
	if w.one.reader == nil && w.more == nil {
		w.of.release(w)
	}
}

// note records that the reader depends on something of a table.
func (r *Reader) note(w *readers) {
	if w.roundOf(r.reader) == r.round {
		return
	}
	w.add(r.reader, r.round)
	r.deps = append(r.deps, w)
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
	r.note(t.keyed.asked.readers(k))
	v, ok := t.m[k]
	return v, ok
}

// All returns all rows of a table, ordered by key. Any change of the table then causes another evaluation of the
// reader. If a part of the rows is enough, an Index costs less.
func All[K Key[K], V any](r *Reader, from Readable[K, V]) []Row[K, V] {
	t := from.store()
	r.before(t.name, t.place)
	r.note(readersOfAll(t.head))
	return sortedRows(t.m)
}

// Count returns how many rows an index has under a key, without looking at them.
func Count[I Key[I], K Key[K], V any](r *Reader, from *Index[I, K, V], under I) int {
	r.before(from.of.name, from.of.place)
	r.note(from.by.asked.readers(under))
	if m, any := from.by.m[under]; any {
		return m.len()
	}
	return 0
}

// List returns the rows that an index has under a key, ordered by their own keys.
func List[I Key[I], K Key[K], V any](r *Reader, from *Index[I, K, V], under I) []Row[K, V] {
	t := from.of
	r.before(t.name, t.place)
	r.note(from.by.asked.readers(under))
	keys := from.by.sorted(under)
	out := make([]Row[K, V], len(keys))
	for i, k := range keys {
		out[i] = Row[K, V]{k, t.m[k]}
	}
	return out
}
