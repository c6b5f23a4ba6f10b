package derive

import (
	"fmt"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Order is a table that assigns a different number to each key, from first to last. A key that comes before another has
// the higher number, which can serve as a priority in a switch.
//
// A key keeps its number while it exists. Only if a new key finds no free number between its neighbours, keys around it
// are spaced again, as few as possible. The first pass spaces all keys evenly, so every restart with the same keys
// comes to the same numbers.
//
// If there are more keys than numbers, the last keys have no row until there is room.
type Order[K Key[K]] struct {
	*rows[K, uint32]
	first, last uint32
	keys        []Keys[K]
	sorted      []K // all that are wanted
	dirty       map[K]bool
	without     map[K]bool
}

// NewOrder adds a table of numbers for these keys, from first (at least 1) to last.
func NewOrder[K Key[K]](e *Engine, name string, first, last uint32, keys ...Keys[K]) *Order[K] {
	if first == 0 || last < first || last-first > 1<<30 {
		panic(fmt.Sprintf("derive: order %s from %d to %d: want 1 or more, in order", name, first, last))
	}
	o := &Order[K]{rows: newRows[K, uint32](e, name), first: first, last: last, keys: keys, dirty: map[K]bool{},
		without: map[K]bool{}}
	o.step = o.assign
	e.add(o.head)
	keepFit(o.head, &o.without)
	for _, k := range keys {
		k.feed(func(k K) { o.dirty[k] = true }, func(int) {})
	}
	return o
}

func (o *Order[K]) assign() {
	if len(o.dirty) == 0 {
		return
	}
	compare := func(a, b K) int { return a.Compare(b) }
	var come []K
	for k := range o.dirty {
		at, found := slices.BinarySearchFunc(o.sorted, k, compare)
		switch wanted := slices.ContainsFunc(o.keys, func(keys Keys[K]) bool { return keys.has(k) }); {
		case wanted && !found:
			come = append(come, k)
		case !wanted && found:
			o.sorted = slices.Delete(o.sorted, at, at+1)
			put(o.rows, k, 0)
			o.found(k)
		}
	}
	o.sorted = append(o.sorted, come...)
	slices.SortFunc(o.sorted, compare)
	o.dirty = emptied(o.dirty)
	fit := o.sorted[:min(len(o.sorted), int(o.last-o.first)+1)]
	for _, k := range o.sorted[len(fit):] {
		put(o.rows, k, 0)
		if !o.without[k] {
			o.without[k] = true
			o.engine.count(o.problem(k), +1)
		}
	}
	// Places count from the key that comes first: the higher the place, the lower the number.
	places := make([]uint32, len(fit)) // 0 for none yet
	for i, k := range fit {
		if n, has := o.m[k]; has {
			places[i] = o.last - n + 1
		} else {
			o.found(k)
		}
	}
	for i := 0; i < len(fit); i++ {
		if places[i] != 0 {
			continue
		}
		end := i + 1
		for end < len(fit) && places[end] == 0 {
			end++
		}
		o.space(places, i, end)
		i = end
	}
	for i, k := range fit {
		o.evaluated.Add(1)
		if n := o.last - places[i] + 1; o.m[k] != n {
			put(o.rows, k, n)
		}
	}
}

// space gives numbers to a range of keys without numbers, between the numbers of their neighbours. If there is too
// little room, it also renumbers as many neighbours on both sides as there are keys, then twice as many, and so on.
func (o *Order[K]) space(places []uint32, from, to int) {
	for {
		for to < len(places) && places[to] == 0 {
			to++
		}
		for from > 0 && places[from-1] == 0 {
			from--
		}
		before, after := uint64(0), uint64(o.last-o.first)+2
		if from > 0 {
			before = uint64(places[from-1])
		}
		if to < len(places) {
			after = uint64(places[to])
		}
		n := uint64(to - from)
		room := after - before - 1
		if room >= 2*n || room >= n && (n == 1 || from == 0 && to == len(places)) {
			for i := range n {
				places[from+int(i)] = uint32(before + (i+1)*(after-before)/(n+1))
			}
			return
		}
		from, to = max(0, from-int(n)), min(len(places), to+int(n))
	}
}

// found ends the Problem of a key that had no number.
func (o *Order[K]) found(k K) {
	if o.without[k] {
		delete(o.without, k)
		o.engine.count(o.problem(k), -1)
	}
}

func (o *Order[K]) problem(k K) []problem.Problem {
	return []problem.Problem{{
		Object: problem.Object{Kind: o.name, Name: fmt.Sprint(k)}, Reason: reasonNoNumberLeft,
		Message: fmt.Sprintf("all %d numbers are taken by objects that come before it, it is left out: remove something else",
			o.last-o.first+1),
	}}
}
