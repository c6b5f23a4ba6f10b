package derive

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Numbers is a table that assigns a different number to each key, from first to last. The numbers depend only on the
// set of keys, not on the order in which keys came. The keys choose in sorted order: each takes the number that is the
// hash of its text, or else the next free number. So the numbers are the same after a restart.
//
// A key's number changes only if a key that sorts before it takes the number, or if the number that it prefers
// becomes free. If no number is free for a key, it has no row until one becomes free.
type Numbers[K Key[K]] struct {
	*rows[K, uint32]
	first   uint32
	size    uint64
	keys    []Keys[K]
	holder  map[uint64]K // by place: the number less the first
	dirty   map[K]bool
	without map[K]bool
	kept    map[uint64]bool // places that no key gets
}

// NewNumbers adds a table of numbers for these keys, from first (at least 1) to last.
func NewNumbers[K Key[K]](e *Engine, name string, first, last uint32, keys ...Keys[K]) *Numbers[K] {
	if first == 0 || last < first {
		panic(fmt.Sprintf("derive: numbers %s from %d to %d: want 1 or more, in order", name, first, last))
	}
	n := &Numbers[K]{
		rows: newRows[K, uint32](e, name), first: first, size: uint64(last-first) + 1, keys: keys,
		holder: map[uint64]K{}, dirty: map[K]bool{}, without: map[K]bool{},
	}
	n.step = n.assign
	e.add(n.head)
	keepFit(n.head, &n.holder)
	keepFit(n.head, &n.without)
	for _, k := range keys {
		k.feed(func(k K) { n.dirty[k] = true }, func(int) {})
	}
	return n
}

// Except reserves a number, which no key gets, and returns the table. Call it before the first pass. The other keys
// have the same numbers as without it.
func (n *Numbers[K]) Except(number uint32) *Numbers[K] {
	if number < n.first || uint64(number-n.first) >= n.size {
		panic(fmt.Sprintf("derive: numbers %s have no %d", n.name, number))
	}
	n.kept = map[uint64]bool{uint64(number - n.first): true}
	return n
}

// wants is the place that a key chooses where it is free.
func (n *Numbers[K]) wants(k K) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, k)
	return h.Sum64() % n.size
}

func (n *Numbers[K]) assign() {
	if len(n.dirty) == 0 {
		return
	}
	var come []K
	var left []uint64
	for k := range n.dirty {
		number, has := n.m[k]
		wanted := slices.ContainsFunc(n.keys, func(keys Keys[K]) bool { return keys.has(k) })
		switch {
		case wanted && !has:
			come = append(come, k)
		case !wanted && has:
			place := uint64(number - n.first)
			delete(n.holder, place)
			left = append(left, place)
			put(n.rows, k, 0)
		case !wanted:
			n.found(k)
		}
	}
	n.dirty = emptied(n.dirty)
	// The keys right behind it may want the place.
	for _, place := range left {
		for at := n.next(place); ; at = n.next(at) {
			if n.kept[at] {
				continue
			}
			k, taken := n.holder[at]
			if !taken {
				break
			}
			delete(n.holder, at)
			come = append(come, k)
		}
	}
	if uint64(len(n.holder)) < n.size {
		come = slices.AppendSeq(come, maps.Keys(n.without))
	}
	slices.SortFunc(come, func(a, b K) int { return a.Compare(b) })
	placed := map[K]uint32{}
	for _, k := range slices.Compact(come) {
		n.evaluated.Add(1)
		n.insert(k, placed)
	}
	for k, number := range placed {
		if number > 0 {
			n.found(k)
		} else if !n.without[k] {
			n.without[k] = true
			n.engine.count(n.problem(k), +1)
		}
		put(n.rows, k, number)
	}
}

func (n *Numbers[K]) next(place uint64) uint64 { return (place + 1) % n.size }

// insert assigns a number to a key. If the key sorts before the current holder of a number, it takes this number, and
// the holder gets a later one. placed gets the new numbers of all keys whose number changes, 0 for no number.
func (n *Numbers[K]) insert(k K, placed map[K]uint32) {
	at := n.wants(k)
	for tried := uint64(0); tried < n.size; tried++ {
		if n.kept[at] {
			at = n.next(at)
			continue
		}
		other, taken := n.holder[at]
		if !taken || k.Compare(other) < 0 {
			n.holder[at], placed[k] = k, n.first+uint32(at)
			if !taken {
				return
			}
			k = other
			tried = (at + n.size - n.wants(k)) % n.size
		}
		at = n.next(at)
	}
	placed[k] = 0
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
		Object: problem.Object{Kind: n.name, Name: fmt.Sprint(k)}, Reason: reasonNoNumberLeft,
		Message: fmt.Sprintf("all %d numbers are taken, it is left out: remove something else", n.size),
	}}
}
