package watched

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// at is a moment, in seconds from the beginning of all steps.
func at(seconds float64) time.Time { return begin.Add(lasting(seconds)) }

func lasting(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// TestJudge has a step that may lose nothing, one in which the switch stands still, and two that may lose nothing.
func TestJudge(t *testing.T) {
	strict := Limits{Took: 5 * time.Second}
	lossy := Limits{Lose: true, Took: 50 * time.Second}
	steps := Steps{{"step 1", at(0), strict}, {"step 2", at(10), lossy}, {"step 3", at(18), strict},
		{"step 4", at(25), strict}}
	for _, row := range []struct {
		name   string
		start  float64
		took   float64
		failed string
		want   string // what the complaint has in it; "" for none
	}{
		{name: "quick", start: 1, took: 0.01},
		{name: "before all steps", start: -1, took: 0.5},
		{name: "slow", start: 1, took: 5.1, want: "1.0 s after the beginning of step 1, took 5.1s, want at most 5s"},
		{name: "failed", start: 1, took: 1, failed: "refused", want: "of step 1, failed after 1s: refused; want none lost"},
		{name: "slow where it may be", start: 11, took: 9},
		{name: "ends in the next step", start: 11, took: 14},
		// As seen: its SYNs met the switch that stood still in step 2, and it ended in step 4.
		{name: "ends two steps later", start: 10.8, took: 14.705},
		{name: "failed two steps later", start: 10.8, took: 14.705, failed: "timeout"},
		{name: "longer than a lossy step allows", start: 11, took: 51,
			want: "1.0 s after the beginning of step 2, took 51s, want at most 50s"},
		{name: "hit by the next step's fault", start: 9.9, took: 7},
		{name: "lost to the next step's fault", start: 9.9, took: 7, failed: "timeout"},
		{name: "no excuse by a lossy step that began later", start: 4, took: 7,
			want: "4.0 s after the beginning of step 1, took 7s, want at most 5s"},
		{name: "slow in a strict step, ends in the next", start: 19, took: 7,
			want: "1.0 s after the beginning of step 3, took 7s, want at most 5s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			have := strings.Join(
				steps.Judge([]Request{{Start: at(row.start), Took: lasting(row.took), Failed: row.failed}}), "\n")
			if (have == "") != (row.want == "") || !strings.Contains(have, row.want) {
				t.Errorf("judged %q, want %q", have, row.want)
			}
		})
	}
}

// TestLog has a step's judgement wait for a request that is open while others are answered.
func TestLog(t *testing.T) {
	var l Log
	ended := func(start, took float64, failed string) Request {
		r := Request{Start: at(start), Took: lasting(took), Failed: failed}
		l.Add(r.Line())
		return r
	}
	for _, start := range []float64{1, 2, 3, 4.5, 5, 5.5, 6} {
		l.Add(BegunLine(at(start)))
	}
	ended(2, 0.25, "")
	ended(3, 0.25, "refused")
	settled := at(4)
	if err := l.Settled(settled); err == nil || !strings.Contains(err.Error(), "0 requests") {
		t.Errorf("nothing was answered since: %v", err)
	}
	ended(4.5, 0.1, "")
	ended(5, 0.1, "")
	ended(5.5, 0.1, "")
	if err := l.Settled(settled); err == nil ||
		!strings.Contains(err.Error(), "the request of 15:04:06.000 is open, and is 3s older") {
		t.Errorf("a request that began before is open: %v", err)
	}
	open := ended(1, 7.5, "")
	if err := l.Settled(settled); err != nil {
		t.Errorf("only a request that began after the moment is open: %v", err)
	}
	taken := l.Take(settled)
	if len(taken) != 3 || taken[0] != open || taken[2].Failed != "refused" {
		t.Errorf("took %+v, want the three requests that began before, in their order", taken)
	}
	ended(6, 1, "")
	if rest := l.Take(at(100)); len(rest) != 4 || len(l.Take(at(100))) != 0 {
		t.Errorf("took %+v then, want the four others, once", rest)
	}
	l.End(errors.New("the client has ended"))
	if err := l.Settled(settled); err == nil {
		t.Error("a client that has ended is no error")
	}
	var broken Log
	broken.Add("curl: (7) failed")
	if err := broken.Settled(settled); err == nil || !strings.Contains(err.Error(), "not a line") {
		t.Errorf("a line of another program: %v", err)
	}
}

// TestLine has lines read as they are written.
func TestLine(t *testing.T) {
	for _, r := range []Request{
		{Start: at(1.25), Took: 4 * time.Millisecond},
		{Start: at(1), Took: 4 * time.Millisecond, Server: "test-cluster-west/node-1/nginx-b"},
		{Start: at(1), Took: 10 * time.Second, Failed: "dial tcp 10.96.0.7:80: i/o timeout"},
	} {
		if have, open, err := Parse(r.Line()); err != nil || open || have != r {
			t.Errorf("%q is read as %+v, %t, %v", r.Line(), have, open, err)
		}
	}
	if have, open, err := Parse(BegunLine(at(2))); err != nil || !open || have.Start != at(2) {
		t.Errorf("%q is read as %+v, %t, %v", BegunLine(at(2)), have, open, err)
	}
}
