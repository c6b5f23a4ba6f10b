package derive

import (
	"cmp"
	"runtime"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

type number int

func (n number) Compare(o number) int { return cmp.Compare(n, o) }

// TestRoom fills tables with many rows that depend on each other and takes them away: memory is as before, and so is
// what a pass costs.
func TestRoom(t *testing.T) {
	const many = 30_000
	e := New()
	source := NewSource[number, number](e, "source")
	half := NewIndex(source, "half", func(_ number, v number) []number { return []number{v / 2, many} })
	numbers := NewNumbers(e, "numbers", 1, 1<<31, KeysOf(source))
	order := NewOrder(e, "order", 1, many/2, KeysOf(source)) // half of them have no number
	one := NewTable(e, "one", func(k number, r *Reader) (int, []problem.Problem) { return len(List(r, half, k)), nil },
		KeysOfIndex(half))
	sum := NewTable(e, "sum", func(k number, r *Reader) (number, []problem.Problem) {
		rows, _ := Get(r, source, 0) // all read one row
		n, _ := Get(r, numbers, k)
		return rows + number(n), nil
	}, KeysOf(source))
	sum.Watch(func([]Change[number, number]) {})
	source.Set(0, 1)
	source.Loaded()
	e.Pass()
	held := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	for range 2 {
		for k := range number(many) {
			source.Set(k, k+1)
		}
		e.Pass()
		if n := one.Len(); n < many/2 {
			t.Fatalf("%d rows, want more than %d: the test fills nothing", n, many/2)
		}
		full := held()
		for k := range number(many) {
			if k > 0 {
				source.Delete(k)
			}
		}
		e.Pass()
		after := held()
		if order.Len() != 1 || sum.Len() != 1 || len(e.Problems()) != 0 {
			t.Fatalf("%d and %d rows are left, and %d problems, want 1, 1, 0", order.Len(), sum.Len(), len(e.Problems()))
		}
		if grown := max(after, before) - before; grown > (full-before)/20 {
			t.Errorf("of %d KiB that the rows held %d are still held without them", (full-before)>>10, grown>>10)
		}
	}
}

// TestManyUnderOneKey adds rows one by one under a key of an index that is not read meanwhile: the cost of a row does
// not depend on how many there are.
func TestManyUnderOneKey(t *testing.T) {
	const many, most = orderKept, 500 // bytes for a row; with copies of the order it would be many times as much
	e := New()
	source := NewSource[number, number](e, "source")
	same := NewIndex(source, "same", func(number, number) []number { return []number{0} })
	for k := range number(many) {
		source.Set(k, 1)
	}
	source.Loaded()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e.Pass()
	runtime.ReadMemStats(&after)
	if n := len(same.Keys(0)); n != many {
		t.Fatalf("%d rows under the key, want %d", n, many)
	}
	if n := (after.TotalAlloc - before.TotalAlloc) / many; n > most {
		t.Errorf("a row takes %d bytes, want at most %d", n, most)
	}
}
