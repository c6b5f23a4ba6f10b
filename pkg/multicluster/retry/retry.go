// Package retry does writes to an API server so that one that fails holds up no other: each
// is tried again after its own back-off, and blamed on an object when it was refused. The
// leader's and the member's controller write by it.
package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// triesBeforeBlame is for failures that mostly pass, such as a conflict.
const triesBeforeBlame = 5

// Write is one write to an API server.
type Write struct {
	// What reads "create Service default/web". Among the writes of a round it is unique; from
	// round to round it says which are the same.
	What string
	// After is the What of a write that comes earlier in the same round, and without which
	// this one is not done; may be empty.
	After string
	// Blame is the Problem to tell of when the write is refused. Its Message, a remedy if there
	// is one, comes after what the server answered.
	Blame problem.Problem
	// Do does it. Its error tells by apierrors what the server answered.
	Do func(context.Context) error
}

// Writer does the writes of one controller to one API server, round by round. It is not for
// use by several goroutines.
type Writer struct {
	min, most time.Duration
	log       *slog.Logger
	failed    map[string]failure // by What
}

// failure is a write that has failed in its last tries.
type failure struct {
	until    time.Time // not to be tried again before
	delay    time.Duration
	tries    int
	reported *problem.Problem // nil as long as it may pass
}

// New returns a Writer that waits least after a write's first failure, and twice as long after
// each further one, up to most.
func New(least, most time.Duration, log *slog.Logger) *Writer {
	return &Writer{min: least, most: most, log: log, failed: map[string]failure{}}
}

// Forget lets every write be tried at once.
func (w *Writer) Forget() { clear(w.failed) }

// Round does the writes that are wanted now, in their order, but those that have to wait. What
// an earlier round wanted is forgotten. again is when the next write may be tried again, zero
// for never; problems are the writes that were refused, or keep failing, for as long as that
// lasts. lost says that the server gave no answer: nothing more was tried.
func (w *Writer) Round(ctx context.Context, writes []Write) (again time.Time, problems []problem.Problem, lost error) {
	w.keep(writes)
	undone := map[string]bool{}
	for _, write := range writes {
		f := w.failed[write.What]
		if lost == nil && !undone[write.After] && !time.Now().Before(f.until) {
			err := write.Do(ctx)
			if err == nil {
				delete(w.failed, write.What)
				w.log.Info("wrote", "what", write.What)
				continue
			}
			f = w.fails(write, f, err)
			if !answered(err) {
				lost = fmt.Errorf("%s: %w", write.What, err)
			}
		}
		undone[write.What] = true
		if f.until.After(time.Now()) { // else it waits for the write that it comes after
			again = earlier(again, f.until)
		}
		if f.reported != nil {
			problems = append(problems, *f.reported)
		}
	}
	return again, problems, lost
}

// fails notes one more failure of a write.
func (w *Writer) fails(write Write, f failure, err error) failure {
	f.delay = min(max(2*f.delay, w.min), w.most)
	f.until, f.tries = time.Now().Add(f.delay), f.tries+1
	if answered(err) && (!passing(err) || f.tries >= triesBeforeBlame) {
		blame := write.Blame
		blame.Message = fmt.Sprintf("%s: %v", write.What, err)
		if write.Blame.Message != "" {
			blame.Message += "; " + write.Blame.Message
		}
		f.reported = &blame
	}
	w.failed[write.What] = f
	w.log.Debug("write is tried again", "what", write.What, "in", f.delay, "error", err)
	return f
}

// keep forgets all failures but those of writes still wanted.
func (w *Writer) keep(writes []Write) {
	wanted := map[string]bool{}
	for _, write := range writes {
		wanted[write.What] = true
	}
	for what := range w.failed {
		if !wanted[what] {
			delete(w.failed, what)
		}
	}
}

// answered says whether an error is what an API server answered. A webhook's denial may come
// without any reason, so that is not asked for.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// passing says whether an API server's refusal is one that comes from an old view of things,
// or from load.
func passing(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// earlier is the earlier of two times, of which the first may be zero for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
