// Package runner calls one function again and again: soon after something has happened, at
// the time that the function asked for, and now and then though nothing has happened. It
// knows nothing else, so that all that watch, plan and apply do it alike.
package runner

import (
	"context"
	"time"
)

// Options are a Runner's times.
type Options struct {
	// Settle is waited for after a trigger, so that what comes together is one call.
	Settle time.Duration
	// Resync is after how long the function is called without a trigger.
	Resync time.Duration
	// RetryMin is waited for after a call that failed. It doubles with each failure in a row,
	// up to RetryMost.
	RetryMin, RetryMost time.Duration
	// Failed is called with each failure and when the next call will be; it may be nil.
	Failed func(err error, retry time.Duration)
}

// Runner calls a function when it was triggered. It may be triggered before Run, and from
// any goroutine.
type Runner struct {
	options Options
	trigger chan struct{}
}

// New returns a Runner that does nothing until Run.
func New(o Options) *Runner { return &Runner{options: o, trigger: make(chan struct{}, 1)} }

// Trigger asks for a call. It never blocks, and any number of triggers between two calls are one. A
// trigger during a call leads to another one, since the call may have looked before.
func (r *Runner) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default:
	}
}

// Run calls f at once and then until ctx ends, never twice at the same time. f may name a
// time to be called again, the zero time for none. After an error it is called again with
// back-off, which a trigger does not shorten: what fails because of many events would else be
// tried at each of them.
func (r *Runner) Run(ctx context.Context, f func(context.Context) (again time.Time, err error)) {
	o := r.options
	delay := time.Duration(0)
	for ctx.Err() == nil {
		select {
		case <-r.trigger: // the call below sees what triggered it
		default:
		}
		again, err := f(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			delay = min(max(2*delay, o.RetryMin), o.RetryMost)
			if o.Failed != nil {
				o.Failed(err, delay)
			}
			wait(ctx, delay, nil)
			continue
		}
		delay = 0
		next := o.Resync
		if !again.IsZero() {
			next = max(min(time.Until(again), o.Resync), o.Settle)
		}
		if wait(ctx, next, r.trigger) {
			wait(ctx, o.Settle, nil)
		}
	}
}

// wait waits for some time, to be woken, or until ctx ends; it is true when it was woken.
func wait(ctx context.Context, d time.Duration, trigger <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-trigger:
		return true
	}
	return false
}
