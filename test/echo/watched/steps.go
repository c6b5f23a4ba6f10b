package watched

import (
	"fmt"
	"time"
)

// Limits are what may become of a request.
type Limits struct {
	Lose bool          // it may fail
	Took time.Duration // it takes no longer than this
}

// or is the laxer of both.
func (l Limits) or(other Limits) Limits {
	return Limits{Lose: l.Lose || other.Lose, Took: max(l.Took, other.Took)}
}

// Step is a time with limits of its own. It lasts until the next one begins.
type Step struct {
	Name   string
	Start  time.Time
	Limits Limits
}

// Steps are all steps so far, in their order.
type Steps []Step

// of returns the step in which a request began, and the limits for it. If a request is open and within its limits when
// the next step begins, the next step's fault may hit it too. Then the laxer limits count. A request that has exceeded
// its limits when the next step begins is not excused by that step.
func (s Steps) of(r Request) (Step, Limits) {
	at := 0
	for i := range s {
		if !s[i].Start.After(r.Start) {
			at = i
		}
	}
	limits := s[at].Limits
	for _, next := range s[at+1:] {
		if !next.Start.Before(r.End()) || next.Start.Sub(r.Start) > limits.Took {
			break
		}
		limits = limits.or(next.Limits)
	}
	return s[at], limits
}

// Judge returns the faults of requests as text: one line for each that has failed or exceeded its limits.
func (s Steps) Judge(requests []Request) (wrong []string) {
	for _, r := range requests {
		step, limits := s.of(r)
		report := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("request at %s, %.1f s after the beginning of %s, ", r.Start.Format(clock),
				r.Start.Sub(step.Start).Seconds(), step.Name)+
				fmt.Sprintf(format, args...))
		}
		switch {
		case r.Failed != "" && !limits.Lose:
			report("failed after %s: %s; want none lost", r.Took, r.Failed)
		case r.Took > limits.Took:
			report("took %s, want at most %s", r.Took, limits.Took)
		}
	}
	return wrong
}
