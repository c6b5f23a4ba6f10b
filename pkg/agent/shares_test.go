package agent

import (
	"errors"
	"slices"
	"testing"
)

// TestSharedQueue has one holder flood a queue that others use.
func TestSharedQueue(t *testing.T) {
	const most = 8
	q := newSharedQueue[string, int](most)
	lost := 0
	for i := range 1000 {
		if q.push("flood", i) != nil {
			lost++
		}
	}
	if lost != 1000-most || q.count != most {
		t.Errorf("%d items are lost and %d kept, want %d", lost, q.count, most)
	}
	for i, holder := range []string{"a", "b", "a"} {
		if !errors.Is(q.push(holder, i), errQueueFull) {
			t.Errorf("item %d of a full queue is added, and none is lost", i)
		}
	}
	for i := range 1000 { // it loses its own
		if !errors.Is(q.push("flood", i), errQueueFull) {
			t.Fatal("the flood has room again")
		}
	}
	// Each in turn: the flood's first three items made room.
	var have []int
	for {
		select {
		case <-q.wake:
		default:
			t.Fatal("nobody is woken though there are items")
		}
		item, ok := q.pop()
		if !ok {
			t.Fatal("woken for nothing")
		}
		if have = append(have, item); len(have) == most {
			break
		}
	}
	if want := []int{3, 0, 1, 4, 2, 5, 6, 7}; !slices.Equal(have, want) {
		t.Errorf("items are %v, want %v", have, want)
	}
	if _, ok := q.pop(); ok || len(q.items) != 0 || len(q.turns) != 0 {
		t.Errorf("an empty queue has %v, turns %v", q.items, q.turns)
	}
	// More holders than items.
	for i := range most {
		if q.push(string(rune('a'+i)), i) != nil {
			t.Errorf("item %d is lost, though the queue is not full", i)
		}
	}
	if !errors.Is(q.push("z", 100), errQueueFull) {
		t.Error("an item more is lost by nobody")
	}
	for have = nil; ; {
		item, ok := q.pop()
		if !ok {
			break
		}
		have = append(have, item)
	}
	if len(have) != most || !slices.Contains(have, 100) {
		t.Errorf("items are %v, want %d with the last one", have, most)
	}
}
