package requests

import (
	"math"
	"testing"
)

// TestRoundReady: the rounded number is near the exact one, never zero, and seldom changes.
func TestRoundReady(t *testing.T) {
	counts := map[int]bool{}
	for n := 1; n <= 3*MaxReady; n++ {
		have, want := RoundReady(n), float64(min(n, MaxReady))
		counts[have] = true
		if have < 1 || have > MaxReady || n <= 16 && have != n || math.Abs(float64(have)-want) > want/16+0.5 {
			t.Errorf("of %d ready endpoints %d are announced", n, have)
		}
		if n > 1 && have < RoundReady(n-1) {
			t.Errorf("%d is announced for %d, and more of one less", have, n)
		}
	}
	if len(counts) > 80 {
		t.Errorf("%d different numbers are announced", len(counts))
	}
}

func TestReadReady(t *testing.T) {
	for value, want := range map[string]int{"": 0, "1": 1, "1000": 1000, "0": -1, "1001": -1, "-3": -1, "many": -1,
		"1.5": -1, "99999999999999999999": -1} {
		have, err := ReadReady(value)
		if err != nil {
			have = -1
		}
		if have != want {
			t.Errorf("%q: %d, %v, want %d", value, have, err, want)
		}
	}
}
