package agent

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// TestWayReport reports at once that a way is down. If that lasts, it reports the way as lost. It reports the way as up
// once that has lasted. It changes at most twelve times a minute.
func TestWayReport(t *testing.T) {
	type ways = map[string]wayNow
	type report = map[string]string
	type step struct {
		at     time.Duration
		ways   ways
		report report // nil: an earlier report stays
	}
	up, down, gone := wayNow{up: true, was: true}, wayNow{}, wayNow{was: true}
	for _, row := range []struct {
		name  string
		steps []step
	}{
		{"a new way comes up", []step{
			{0, nil, nil}, {time.Second, ways{"west/1": down}, nil},
			{2 * time.Second, ways{"west/1": up}, report{"west/1": "up"}}}},
		{"a new way stays down", []step{
			{0, ways{"west/1": down}, nil}, {9 * time.Second, ways{"west/1": down}, nil},
			{10 * time.Second, ways{"west/1": down}, report{"west/1": "down"}}}},
		{"no way", []step{{0, nil, nil}, {10 * time.Second, nil, report{}}}},
		{"a way is lost and comes back", []step{
			{0, ways{"west/1": up, "west/2": up}, report{"west/1": "up", "west/2": "up"}},
			{time.Minute, ways{"west/1": down, "west/2": up}, report{"west/1": "down", "west/2": "up"}},
			{61 * time.Second, ways{"west/1": up, "west/2": up}, report{"west/1": "down", "west/2": "up"}},
			{70 * time.Second, ways{"west/1": up, "west/2": up}, report{"west/1": "down", "west/2": "up"}},
			{71 * time.Second, ways{"west/1": up, "west/2": up}, report{"west/1": "up", "west/2": "up"}},
		}},
		{"a second loss waits", []step{
			{0, ways{"west/1": up, "west/2": up}, report{"west/1": "up", "west/2": "up"}},
			{time.Minute, ways{"west/1": down, "west/2": up}, report{"west/1": "down", "west/2": "up"}},
			{63 * time.Second, ways{"west/1": down, "west/2": down}, report{"west/1": "down", "west/2": "up"}},
			{70 * time.Second, ways{"west/1": down, "west/2": down}, report{"west/1": "down", "west/2": "down"}},
		}},
		{"the Node is no Gateway any more", []step{
			{0, ways{"west/1": up}, report{"west/1": "up"}}, {time.Minute, nil, report{}}}},
		{"a way stays down that was up", []step{
			{0, ways{"west/1": up, "west/2": up}, report{"west/1": "up", "west/2": "up"}},
			{60 * time.Second, ways{"west/1": gone, "west/2": up}, report{"west/1": "down", "west/2": "up"}},
			{61 * time.Second, ways{"west/1": gone, "west/2": up}, report{"west/1": "down", "west/2": "up"}},
			{62 * time.Second, ways{"west/1": gone, "west/2": up}, report{"west/1": "lost", "west/2": "up"}},
			{63 * time.Second, ways{"west/1": gone, "west/2": gone}, report{"west/1": "lost", "west/2": "up"}},
			{66 * time.Second, ways{"west/1": gone, "west/2": gone}, report{"west/1": "lost", "west/2": "up"}},
			{70 * time.Second, ways{"west/1": gone, "west/2": gone}, report{"west/1": "lost", "west/2": "lost"}},
			{80 * time.Second, ways{"west/1": up, "west/2": gone}, report{"west/1": "lost", "west/2": "lost"}},
			{90 * time.Second, ways{"west/1": up, "west/2": gone}, report{"west/1": "up", "west/2": "lost"}},
		}},
		{"the switch starts anew", []step{
			{0, ways{"west/1": gone}, nil}, {2 * time.Second, ways{"west/1": gone}, report{"west/1": "lost"}},
			{time.Minute, ways{"west/1": down}, report{"west/1": "lost"}},
		}},
		{"the way stutters", []step{
			{0, ways{"west/1": up}, report{"west/1": "up"}},
			{60 * time.Second, ways{"west/1": gone}, report{"west/1": "down"}},
			{61 * time.Second, ways{"west/1": up}, report{"west/1": "down"}},
			{62 * time.Second, ways{"west/1": gone}, report{"west/1": "down"}},
			{63 * time.Second, ways{"west/1": up}, report{"west/1": "down"}},
			{73 * time.Second, ways{"west/1": up}, report{"west/1": "up"}},
		}},
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

// TestWayReportRate takes ways down and up at random for an hour, at intervals from less than a second to half a
// minute.
func TestWayReportRate(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w wayReport
		now, ways, changes := time.Unix(1000, 0),
			map[string]wayNow{"west/1": {up: true}, "west/2": {up: true}, "south/1": {up: true}}, 0
		end := now.Add(time.Hour)
		most := time.Duration(1+r.IntN(30)) * time.Second
		for now.Before(end) {
			if changed, again := w.observe(now, ways); changed {
				changes++
			} else if !again {
				t.Fatal("ways are not looked at again")
			}
			for k := range ways {
				ways[k] = wayNow{up: r.IntN(2) == 0, was: true}
			}
			now = now.Add(rand.N(most))
		}
		if changes > 720 || changes < 2 {
			t.Errorf("seed %d: %d reports in an hour, want 720 at most", seed, changes)
		}
		for k := range ways {
			ways[k] = wayNow{up: true, was: true}
		}
		for range 30 { // once the ways stay as they are, the report equals their state
			now = now.Add(wayLook)
			w.observe(now, ways)
		}
		if have := w.now(); !maps.Equal(have, map[string]string{"west/1": "up", "west/2": "up", "south/1": "up"}) {
			t.Errorf("seed %d: at last %v is reported", seed, have)
		}
	}
}
