package derive

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Numbers is a table that gives each key a number of its own, from first to last. A key keeps
// its number as long as it is there. A new key gets
//
//  1. the number that kept has for it: what was read back after a restart;
//  2. else the number that its text hashes to;
//  3. where that is taken, the next free one; of keys that come in one pass, the first in
//     order chooses first.
//
// Without collisions a number therefore depends on the key alone. A key that finds no number
// has no row, and gets one when there is one again.
type Numbers[K Key[K]] struct {
	*rows[K, uint32]
	first, last uint32
	keys        []Keys[K]
	kept        *Source[K, uint32]
	holder      map[uint32]K
	dirty       map[K]bool
	without     map[K]bool
}

// NewNumbers adds a table of numbers for these keys, from first (at least 1) to last. kept may
// be nil.
func NewNumbers[K Key[K]](e *Engine, name string, first, last uint32, kept *Source[K, uint32], keys ...Keys[K]) *Numbers[K] {
	if first == 0 || last < first {
		panic(fmt.Sprintf("derive: numbers %s from %d to %d: want 1 or more, in order", name, first, last))
	}
	n := &Numbers[K]{
		rows: newRows[K, uint32](e, name), first: first, last: last, keys: keys, kept: kept,
		holder: map[uint32]K{}, dirty: map[K]bool{}, without: map[K]bool{},
	}
	n.place = e.add(n, name)
	for _, k := range keys {
		k.feed(func(k K) { n.dirty[k] = true })
	}
	return n
}

func (n *Numbers[K]) step() {
	var come []K
	for k := range n.dirty {
		number, has := n.m[k]
		wanted := slices.ContainsFunc(n.keys, func(keys Keys[K]) bool { return keys.has(k) })
		switch {
		case wanted && !has:
			come = append(come, k)
		case !wanted && has:
			delete(n.holder, number)
			n.put(k, 0)
		case !wanted:
			n.found(k)
		}
	}
	clear(n.dirty)
	if len(n.holder) < int(n.last-n.first)+1 {
		come = slices.AppendSeq(come, maps.Keys(n.without))
	}
	slices.SortFunc(come, func(a, b K) int { return a.Compare(b) })
	come = slices.Compact(come)
	var rest []K
	for _, k := range come { // what was kept first: a new key must not take it
		if n.kept != nil {
			if number := n.kept.m[k]; number >= n.first && number <= n.last && n.give(k, number) {
				continue
			}
		}
		rest = append(rest, k)
	}
	for _, k := range rest {
		n.choose(k)
	}
}

// give gives a number to a key unless another one has it.
func (n *Numbers[K]) give(k K, number uint32) bool {
	if _, taken := n.holder[number]; taken {
		return false
	}
	n.found(k)
	n.holder[number] = k
	n.put(k, number)
	return true
}

// choose finds a number for a key, or notes that there is none.
func (n *Numbers[K]) choose(k K) {
	n.evaluated.Add(1)
	size := uint64(n.last-n.first) + 1
	if uint64(len(n.holder)) < size {
		h := fnv.New64a()
		fmt.Fprint(h, k)
		for at := h.Sum64() % size; ; at = (at + 1) % size {
			if n.give(k, n.first+uint32(at)) {
				return
			}
		}
	}
	if !n.without[k] {
		n.without[k] = true
		n.engine.count(n.problem(k), +1)
	}
}

// found ends the Problem of a key that had no number.
func (n *Numbers[K]) found(k K) {
	if n.without[k] {
		delete(n.without, k)
		n.engine.count(n.problem(k), -1)
	}
}

func (n *Numbers[K]) problem(k K) []problem.Problem {
	return []problem.Problem{{
		Object: problem.Object{Kind: n.name, Name: fmt.Sprint(k)}, Reason: "NoNumberLeft",
		Message: fmt.Sprintf("all %d numbers are taken, it is left out: remove something else", uint64(n.last-n.first)+1),
	}}
}
