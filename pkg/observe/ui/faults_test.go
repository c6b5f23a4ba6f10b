package ui

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDiagnosis looks while a page is open, and not longer. Looks take at most a fifth of the time.
func TestDiagnosis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var open atomic.Bool
		var looks, changes atomic.Int32
		var takes atomic.Int64 // the time of a look
		takes.Store(int64(time.Second))
		d := NewDiagnosis(func(context.Context) []Fault {
			looks.Add(1)
			time.Sleep(time.Duration(takes.Load())) // in the bubble of synctest
			return []Fault{{Contexts: []string{"east"}, Problem: Problem{Reason: "TD011"}}}
		}, open.Load, func() { changes.Add(1) })
		done := make(chan struct{})
		go func() {
			d.Run(ctx)
			close(done)
		}()
		after := func(pass time.Duration, wantLooks int32, wantFaults int) {
			t.Helper()
			time.Sleep(pass)
			synctest.Wait()
			if have := len(d.Faults()); looks.Load() != wantLooks || have != wantFaults {
				t.Errorf("%d looks and %d faults, want %d and %d", looks.Load(), have, wantLooks, wantFaults)
			}
		}
		after(time.Minute, 0, 0)
		if n := changes.Load(); n != 0 {
			t.Errorf("%d changes while no page is open, want none", n)
		}
		open.Store(true)
		after(2500*time.Millisecond, 1, 1)
		after(11*time.Second, 2, 1)
		if n := changes.Load(); n != 1 {
			t.Errorf("%d changes after two looks with the same fault, want 1", n)
		}
		takes.Store(int64(10 * time.Second))
		after(11*time.Second, 3, 1)
		after(50*time.Second, 4, 1)
		open.Store(false)
		after(15*time.Second, 4, 0)
		stop()
		<-done
	})
}

// TestFaults: faults are the first problems of their clusters, in their order. A cluster whose API server does not
// answer has them too.
func TestFaults(t *testing.T) {
	fault := func(code string, contexts ...string) Fault {
		return Fault{Contexts: contexts, Problem: Problem{Object: "o", Reason: code, Message: "m"}}
	}
	one := Snapshot{Access: Access{Name: "one"}, Reach: Live, Listed: true,
		Missing: []Problem{{Object: "gateways", Reason: "Refused", Message: "no right"}}}
	two := Snapshot{Access: Access{Name: "two"}, Reach: Silent}
	m := Build([]Snapshot{one, two}, fault("TD001", "two"), fault("TD036", "one", "two"), fault("TD050", "three"))
	want := map[string][]string{"one": {"TD036", "Refused"}, "two": {"TD001", "TD036"}}
	for _, c := range m.Clusters {
		var have []string
		for _, p := range c.Problems {
			have = append(have, p.Reason)
		}
		if !slices.Equal(have, want[c.Context]) {
			t.Errorf("problems of %s are %q, want %q", c.Context, have, want[c.Context])
		}
	}
	if len(m.Clusters) != 2 {
		t.Errorf("clusters %+v, want two", m.Clusters)
	}
}
