package desired

import (
	"slices"
	"testing"
)

func TestState(t *testing.T) {
	s := New(slices.Clone[[]int])
	if have, round := s.Get(); have != nil || round != 0 {
		t.Errorf("before the first Set: %v, round %d", have, round)
	}
	if !s.Set(nil) { // also nothing may be desired
		t.Error("the first Set changes nothing")
	}
	mine := []int{1}
	if !s.Set(mine) || s.Set([]int{1}) {
		t.Error("one of two equal Sets is a change")
	}
	mine[0] = 2
	if have, round := s.Get(); !slices.Equal(have, []int{1}) || round != 2 {
		t.Errorf("%v, round %d", have, round)
	}
	if !s.Set(mine) {
		t.Error("another value is no change")
	}
}
