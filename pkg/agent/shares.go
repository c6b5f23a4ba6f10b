package agent

import (
	"slices"
	"sync"
)

// sharedQueue is a bounded queue of items that belong to holders, such as Pods. If it is full, the holder with the most
// items loses one. So no holder can fill the queue for the others. The holders are served in turn. Any goroutine may
// use it.
type sharedQueue[H comparable, T any] struct {
	wake chan struct{} // has an entry if there may be items

	mu    sync.Mutex
	max   int
	items map[H][]T // in the order of their arrival
	turns []H       // each holder once
	count int
}

func newSharedQueue[H comparable, T any](most int) *sharedQueue[H, T] {
	return &sharedQueue[H, T]{max: most, items: map[H][]T{}, wake: make(chan struct{}, 1)}
}

// push adds an item. It returns errQueueFull if an item is lost. If the holder of the new item has the most items, the
// new item is lost. Otherwise the oldest item of the holder with the most is lost.
func (q *sharedQueue[H, T]) push(holder H, item T) (err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == q.max {
		err = errQueueFull
		most := holder
		for h, list := range q.items {
			if len(list) > len(q.items[most]) {
				most = h
			}
		}
		if most == holder {
			return err
		}
		if q.take(most); len(q.items[most]) == 0 {
			delete(q.items, most)
			q.turns = slices.DeleteFunc(q.turns, func(h H) bool { return h == most })
		}
	}
	if len(q.items[holder]) == 0 {
		q.turns = append(q.turns, holder)
	}
	q.items[holder] = append(q.items[holder], item)
	q.count++
	q.signal()
	return err
}

// take takes the oldest item of a holder that has some. q.mu is held.
func (q *sharedQueue[H, T]) take(holder H) T {
	list := q.items[holder]
	item := list[0]
	q.items[holder] = list[1:]
	q.count--
	return item
}

// pop takes an item of the holder whose turn it is. If the queue is empty, ok is false.
func (q *sharedQueue[H, T]) pop() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == 0 {
		return item, false
	}
	holder := q.turns[0]
	q.turns = q.turns[1:]
	item = q.take(holder)
	if len(q.items[holder]) == 0 {
		delete(q.items, holder)
	} else {
		q.turns = append(q.turns, holder)
	}
	if q.count > 0 {
		q.signal()
	}
	return item, true
}

func (q *sharedQueue[H, T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
