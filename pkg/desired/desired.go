// Package desired has what was last asked of a writer that compares and mends.
package desired

import (
	"reflect"
	"sync"
)

// State is the desired state of one writer. All methods may be called at any time, from any goroutine.
type State[T any] struct {
	clone func(T) T

	mu    sync.Mutex
	want  T
	round uint64 // how often it was set to something else
}

// New returns a State that was never Set. clone copies what the setter may still change.
func New[T any](clone func(T) T) *State[T] { return &State[T]{clone: clone} }

// Set declares what is desired, and reports whether that is something else than before.
func (s *State[T]) Set(want T) bool {
	want = s.clone(want)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.round > 0 && reflect.DeepEqual(s.want, want) {
		return false
	}
	s.want, s.round = want, s.round+1
	return true
}

// Get returns the desired state, which the caller must not change, and the number of changes so far: 0 before the first
// Set.
func (s *State[T]) Get() (want T, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want, s.round
}
