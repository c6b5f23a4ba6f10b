package derive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// ordered is a source of names, and their order.
func ordered(last uint32) (*Engine, *Source[Name, bool], *Order[Name]) {
	e := New()
	s := NewSource[Name, bool](e, "names")
	o := NewOrder(e, "order", 1, last, KeysOf(s))
	s.Loaded()
	return e, s, o
}

// TestOrder adds and removes keys at random: numbers fall in the order of keys, within their range, and without a new
// neighbour none changes.
func TestOrder(t *testing.T) {
	for _, last := range []uint32{20, 65535} {
		t.Run(fmt.Sprint(last), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 0))
			e, s, o := ordered(last)
			changed, steps := 0, 3000
			o.Watch(func(c []Change[Name, uint32]) { changed += len(c) })
			there := map[Name]bool{}
			for range steps {
				for range 1 + r.IntN(3) {
					k := Name(fmt.Sprint(r.IntN(40)))
					if there[k] = !there[k]; there[k] {
						s.Set(k, true)
					} else {
						s.Delete(k)
						delete(there, k)
					}
				}
				e.Pass()
				rows := o.All()
				if want := min(len(there), int(last)); len(rows) != want {
					t.Fatalf("%d keys have numbers, want %d", len(rows), want)
				}
				if have, want := len(e.Problems()), max(0, len(there)-int(last)); have != want {
					t.Fatalf("%d problems, want %d", have, want)
				}
				for i, row := range rows {
					if row.Value < 1 || row.Value > last || i > 0 && row.Value >= rows[i-1].Value {
						t.Fatalf("not in order: %v", rows)
					}
				}
			}
			if last == 65535 && changed > 3*steps {
				t.Errorf("%d numbers changed in %d steps", changed, steps)
			}
		})
	}
}

// TestOrderAgain comes to the same numbers from the same keys, and keeps them while others come.
func TestOrderAgain(t *testing.T) {
	names := func() (*Engine, *Source[Name, bool], *Order[Name]) {
		e, s, o := ordered(60000)
		for i := range 1000 {
			s.Set(Name(fmt.Sprintf("%04d", i)), true)
		}
		e.Pass()
		return e, s, o
	}
	e, s, o := names()
	_, _, again := names()
	before := o.All()
	if !slices.Equal(before, again.All()) {
		t.Error("the same keys have other numbers")
	}
	for i := range 300 { // always at one place, which runs out of room
		s.Set(Name("0500"+strings.Repeat("x", i+1)), true)
		e.Pass()
	}
	kept := 0
	for _, row := range before {
		if n, _ := o.Get(row.Key); n == row.Value {
			kept++
		}
	}
	if kept < 800 || len(o.All()) != 1300 {
		t.Errorf("%d of 1000 numbers stayed, %d in all", kept, len(o.All()))
	}
}

// TestIndexOrder asks for the keys under one key of an index between changes: they are in order, however many there
// are, and what was given before stays as it was.
func TestIndexOrder(t *testing.T) {
	e := New()
	s := NewSource[Name, int](e, "rows")
	s.Loaded()
	x := NewIndex(s, "by nothing", func(Name, int) []Name { return []Name{""} })
	g := rand.New(rand.NewPCG(1, 2))
	var want, given, copied []Name
	for _, size := range []int{3, 100, orderKept - 10, orderKept + 200, orderKept - 100, 50, 1, 0} {
		for step := 0; step < 40 || len(want) != size; step++ {
			if len(want) > size || len(want) == size && step%2 == 0 && size > 0 {
				at := g.IntN(len(want))
				s.Delete(want[at])
				want = slices.Delete(want, at, at+1)
			} else {
				k := Name(fmt.Sprint(g.Uint64()))
				s.Set(k, 1)
				at, _ := slices.BinarySearch(want, k)
				want = slices.Insert(want, at, k)
			}
			if e.Pass(); step > 40 && step%50 > 0 && len(want) > 200 {
				continue // the test does not check after each change
			}
			if !slices.Equal(given, copied) {
				t.Fatalf("%d keys: those that were given before have changed", len(want))
			}
			if given = x.by.sorted(""); !slices.Equal(given, want) {
				t.Fatalf("%d keys: have %v, want %v", len(want), given, want)
			}
			copied = slices.Clone(given)
		}
	}
}
