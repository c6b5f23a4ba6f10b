package agent

import (
	"context"
	"time"
)

// runner calls one function whenever its bell has rung, never twice at once. Any number of
// rings between two calls is one call. A failed call is tried again with back-off; without
// any ring the function runs every resync, so that what no event told is found too.
type runner struct {
	bell   chan struct{}
	settle time.Duration // waits this long after a ring, so that a burst of events is one call
	resync time.Duration
	retry  time.Duration // first back-off; doubles up to 32 times this
}

func newRunner() *runner {
	return &runner{
		bell:   make(chan struct{}, 1),
		settle: 5 * time.Millisecond,
		resync: 30 * time.Second,
		retry:  100 * time.Millisecond,
	}
}

// ring asks for a call. It never blocks.
func (r *runner) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// run calls f until ctx ends. f returns an error when it wants to be tried again soon.
func (r *runner) run(ctx context.Context, f func(context.Context) error) {
	failures := 0
	for {
		wait := r.resync
		if failures > 0 {
			wait = r.retry << min(failures-1, 5)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.bell:
			timer.Stop()
			if !sleep(ctx, r.settle) {
				return
			}
			// What rang meanwhile is seen by the call below.
			select {
			case <-r.bell:
			default:
			}
		case <-timer.C:
		}
		if err := f(ctx); err != nil {
			failures++
		} else {
			failures = 0
		}
	}
}

// sleep waits for d; it returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
