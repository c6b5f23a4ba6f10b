package derive

import (
	"maps"
	"slices"
)

// Index finds the rows of a table by other keys than their own. A row may be found under any number of keys.
type Index[I Key[I], K Key[K], V any] struct {
	of   *rows[K, V]
	by   *index[I, K]
	same func(a, b V) bool // nil: any change of a row counts
}

// index is the part of an Index that depends on the types of the keys alone.
type index[I Key[I], K Key[K]] struct {
	m     map[I]members[K]
	asked *asked[I]
	feeds []func(I)
}

// SameBy makes an index ignore some changes of rows: if f returns true for the old and the new row, functions that have
// read it under keys that it keeps are not evaluated again. It returns the index. It is for rows that are under many
// keys. A row must not name a key twice.
func (x *Index[I, K, V]) SameBy(f func(a, b V) bool) *Index[I, K, V] {
	x.same = f
	return x
}

// differing are the parts of two lists that are not equal at their beginnings and ends.
func differing[I comparable](a, b []I) ([]I, []I) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// NewIndex adds an index to a table. under must depend on the row alone.
func NewIndex[I Key[I], K Key[K], V any](of Readable[K, V], name string, under func(K, V) []I) *Index[I, K, V] {
	t := of.store()
	x := &Index[I, K, V]{of: t, by: newIndex[I, K](t.head, name)}
	t.indexes = append(t.indexes, func(k K, old, now V) {
		var before, after []I
		if !absent(old) {
			before = under(k, old)
		}
		if !absent(now) {
			after = under(k, now)
		}
		if x.same != nil && len(before) > 0 && len(after) > 0 && x.same(old, now) {
			before, after = differing(before, after)
		}
		x.by.move(k, before, after)
	})
	t.listed = append(t.listed, func(k K, v V) []Fact { return x.by.readersUnder(under(k, v)) })
	return x
}

func newIndex[I Key[I], K Key[K]](of *head, name string) *index[I, K] {
	x := &index[I, K]{m: map[I]members[K]{}, asked: newAsked[I](of.name, name)}
	keepFit(of, &x.m)
	keepFit(of, &x.asked.m)
	return x
}

// readersUnder returns the rows that have read what is under keys.
func (x *index[I, K]) readersUnder(keys []I) []Fact {
	var out []Fact
	for _, i := range keys {
		out = append(out, x.asked.m[i].facts()...)
	}
	return out
}

// move moves a changed row, and marks the cells that have listed it where it was or is.
func (x *index[I, K]) move(k K, before, after []I) {
	if slices.Equal(before, after) { // the row stays where it is
		for _, i := range after {
			x.asked.m[i].mark()
		}
		return
	}
	var few [8]I
	had := few[:0] // the keys of this change that had rows
	if len(x.feeds) > 0 {
		for _, list := range [2][]I{before, after} {
			for _, i := range list {
				if _, has := x.m[i]; has {
					had = append(had, i)
				}
			}
		}
	}
	for _, i := range before {
		if in := x.m[i]; !in.has(k) {
			continue // named twice
		}
		if in := x.m[i]; in.more == nil {
			delete(x.m, i)
		} else {
			x.m[i] = in.without(k)
		}
		x.asked.m[i].mark()
	}
	for _, i := range after {
		in, any := x.m[i]
		switch {
		case !any:
			in.one = k
		case in.has(k): // named twice
		default:
			in = in.with(k)
		}
		x.m[i] = in
		x.asked.m[i].mark()
	}
	for _, feed := range x.feeds {
		for _, list := range [2][]I{before, after} {
			for _, i := range list {
				if _, has := x.m[i]; has != slices.Contains(had, i) {
					feed(i)
				}
			}
		}
	}
}

// members are the rows under one key of an index. Most keys have one row, which is kept without a map, since a map
// takes several times as much memory.
type members[K Key[K]] struct {
	one  K // where more is nil
	more *several[K]
}

// several has the keys of two or more rows. The order of the keys is kept after its first use: a function that lists a
// thousand keys would otherwise sort all of them after each change. While there are few keys, there is only the order,
// and no map. When they become many, the order is dropped, since it would be copied for each of ten thousand rows that
// come before the next use.
type several[K Key[K]] struct {
	keys  map[K]struct{} // nil while there are few
	most  room           // of keys
	order []K            // nil while it is not known; never written to, for it was given away
}

// fewMembers is how many rows have no map.
const fewMembers = 8

// orderKept is the largest number of keys whose order is kept when a key comes or goes. A longer list would be copied
// at each of many changes before its next use.
const orderKept = 4096

func (m members[K]) len() int {
	switch {
	case m.more == nil:
		return 1
	case m.more.keys == nil:
		return len(m.more.order)
	}
	return len(m.more.keys)
}

func (m members[K]) has(k K) bool {
	switch {
	case m.more == nil:
		return m.one == k
	case m.more.keys == nil:
		return slices.Contains(m.more.order, k)
	}
	_, ok := m.more.keys[k]
	return ok
}

func (m members[K]) with(k K) members[K] {
	if m.more == nil {
		m.more = &several[K]{order: []K{m.one}}
	}
	if m.more.keys == nil && len(m.more.order) == fewMembers {
		m.more.keys = make(map[K]struct{}, 2*fewMembers)
		for _, k := range m.more.order {
			m.more.keys[k] = struct{}{}
		}
		m.more.order = nil
	}
	if m.more.keys != nil {
		m.more.keys[k] = struct{}{}
		m.more.most = max(m.more.most, room(len(m.more.keys)))
	}
	m.more.reorder(k, func(order []K, at int) []K {
		return append(append(append(make([]K, 0, len(order)+1), order[:at]...), k), order[at:]...)
	})
	return m
}

// without takes one of two or more away.
func (m members[K]) without(k K) members[K] {
	if m.more.keys != nil {
		delete(m.more.keys, k)
		m.more.keys = fit(m.more.keys, &m.more.most)
	}
	m.more.reorder(k, func(order []K, at int) []K {
		return append(append(make([]K, 0, len(order)-1), order[:at]...), order[at+1:]...)
	})
	if m.len() == 1 {
		return members[K]{one: m.more.sorted()[0]}
	}
	return m
}

// sorted returns the keys in order, to read only.
func (s *several[K]) sorted() []K {
	if s.order == nil {
		s.order = slices.SortedFunc(maps.Keys(s.keys), K.Compare)
	}
	return s.order
}

// reorder has the order that is known follow a change at the place of k.
func (s *several[K]) reorder(k K, changed func(order []K, at int) []K) {
	if len(s.order) > orderKept {
		s.order = nil
	}
	if s.order != nil {
		at, _ := slices.BinarySearchFunc(s.order, k, K.Compare)
		s.order = changed(s.order, at)
	}
}

// Keys returns the keys under i, in order. It is for readers between two passes (Engine.Do). Functions of tables must
// call derive.List instead, so that the read is recorded.
func (x *Index[I, K, V]) Keys(i I) []K { return slices.Clone(x.by.sorted(i)) }

// sorted returns the keys in order, to read only; none for an index key that has no rows.
func (x *index[I, K]) sorted(i I) []K {
	m, any := x.m[i]
	switch {
	case !any:
		return nil
	case m.more == nil:
		return []K{m.one}
	}
	return m.more.sorted()
}

// KeysOfIndex gives a derived table the keys under which an index has rows.
func KeysOfIndex[I Key[I], K Key[K], V any](x *Index[I, K, V]) Keys[I] { return x.by.keys() }

func (x *index[I, K]) keys() Keys[I] {
	return Keys[I]{
		has: func(i I) bool {
			_, has := x.m[i]
			return has
		},
		feed: func(each func(I), _ func(int)) { x.feeds = append(x.feeds, each) },
	}
}
