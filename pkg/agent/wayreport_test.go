package agent

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// TestWayReport reports the loss of a way at once, its return when that lasts, and changes no more than six times a minute.
func TestWayReport(t *testing.T) {
	type ways = map[string]bool
	type report = map[string]string
	type step struct {
		at     time.Duration
		ways   ways
		report report // nil: an earlier report stays
	}
	for _, row := range []struct {
		name  string
		steps []step
	}{
		{"a new way comes up", []step{
			{0, nil, nil}, {time.Second, ways{"west/1": false}, nil}, {2 * time.Second, ways{"west/1": true}, report{"west/1": "up"}}}},
		{"a new way stays down", []step{
			{0, ways{"west/1": false}, nil}, {9 * time.Second, ways{"west/1": false}, nil}, {10 * time.Second, ways{"west/1": false}, report{"west/1": "down"}}}},
		{"no way", []step{{0, nil, nil}, {10 * time.Second, nil, report{}}}},
		{"a way is lost and comes back", []step{
			{0, ways{"west/1": true, "west/2": true}, report{"west/1": "up", "west/2": "up"}},
			{time.Minute, ways{"west/1": false, "west/2": true}, report{"west/1": "down", "west/2": "up"}},
			{61 * time.Second, ways{"west/1": true, "west/2": true}, report{"west/1": "down", "west/2": "up"}},
			{70 * time.Second, ways{"west/1": true, "west/2": true}, report{"west/1": "down", "west/2": "up"}},
			{71 * time.Second, ways{"west/1": true, "west/2": true}, report{"west/1": "up", "west/2": "up"}},
		}},
		{"a second loss waits", []step{
			{0, ways{"west/1": true, "west/2": true}, report{"west/1": "up", "west/2": "up"}},
			{time.Minute, ways{"west/1": false, "west/2": true}, report{"west/1": "down", "west/2": "up"}},
			{63 * time.Second, ways{"west/1": false, "west/2": false}, report{"west/1": "down", "west/2": "up"}},
			{70 * time.Second, ways{"west/1": false, "west/2": false}, report{"west/1": "down", "west/2": "down"}},
		}},
		{"the Node is no Gateway any more", []step{
			{0, ways{"west/1": true}, report{"west/1": "up"}}, {time.Minute, nil, report{}}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var w wayReport
			begin := time.Unix(1000, 0)
			var before report
			for _, step := range row.steps {
				changed, _ := w.observe(begin.Add(step.at), step.ways)
				have := w.now()
				if !maps.Equal(have, step.report) || (have == nil) != (step.report == nil) {
					t.Errorf("after %s %v is reported, want %v", step.at, have, step.report)
				}
				if same := maps.Equal(have, before) && (have == nil) == (before == nil); changed == same {
					t.Errorf("after %s: changed is %v: %v, then %v", step.at, changed, before, have)
				}
				before = have
			}
		})
	}
}

// TestWayReportRate has ways go down and up at random for an hour, by intervals from less than a second to half a minute.
func TestWayReportRate(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w wayReport
		now, ways, changes := time.Unix(1000, 0), map[string]bool{"west/1": true, "west/2": true, "south/1": true}, 0
		end := now.Add(time.Hour)
		most := time.Duration(1+r.IntN(30)) * time.Second
		for now.Before(end) {
			if changed, again := w.observe(now, ways); changed {
				changes++
			} else if !again {
				t.Fatal("ways are not looked at again")
			}
			for k := range ways {
				ways[k] = r.IntN(2) == 0
			}
			now = now.Add(rand.N(most))
		}
		if changes > 360 || changes < 2 {
			t.Errorf("seed %d: %d reports in an hour, want 360 at most", seed, changes)
		}
		for k := range ways {
			ways[k] = true
		}
		for range 30 { // once they are left alone, what is reported is what is
			now = now.Add(wayLook)
			w.observe(now, ways)
		}
		if have := w.now(); !maps.Equal(have, map[string]string{"west/1": "up", "west/2": "up", "south/1": "up"}) {
			t.Errorf("seed %d: at last %v is reported", seed, have)
		}
	}
}
