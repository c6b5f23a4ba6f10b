package member

import (
	"time"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

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
