package member

import (
	"context"
	"time"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// bell wakes a runner. Ringing never blocks, and any number of rings before the runner looks
// count as one.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

const (
	settle    = 50 * time.Millisecond  // events that come together are planned together
	resync    = 5 * time.Minute        // even if nothing has happened
	retryMin  = 200 * time.Millisecond // after a failed write
	retryMost = 30 * time.Second
)

// run calls round whenever the bell rings, at the time the last round asked for, and at the
// latest after the resync period, until ctx ends.
func run(ctx context.Context, b bell, round func(context.Context) (again time.Time)) {
	for {
		wait := resync
		if again := round(ctx); !again.IsZero() {
			wait = max(min(time.Until(again), resync), settle)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-b:
			timer.Reset(settle)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	}
}

// patience spaces the retries of writes that fail, each write by itself.
type patience map[string]attempts

type attempts struct {
	until   time.Time // not before
	delay   time.Duration
	tries   int
	failure *problem.Problem // if it is one to tell users of
}

// waits says until when a write is not to be tried again; zero if it may be.
func (p patience) waits(what string, now time.Time) time.Time {
	if w, ok := p[what]; ok && now.Before(w.until) {
		return w.until
	}
	return time.Time{}
}

// failed notes a failure and returns how often the write has failed in a row.
func (p patience) failed(what string, now time.Time) int {
	w := p[what]
	w.delay = min(max(2*w.delay, retryMin), retryMost)
	w.until, w.tries = now.Add(w.delay), w.tries+1
	p[what] = w
	return w.tries
}

// blame keeps a failure as a Problem for as long as the write is not done.
func (p patience) blame(what string, failure problem.Problem) {
	w := p[what]
	w.failure = &failure
	p[what] = w
}

// keep forgets all writes but those still wanted.
func (p patience) keep(wanted map[string]bool) {
	for what := range p {
		if !wanted[what] {
			delete(p, what)
		}
	}
}
