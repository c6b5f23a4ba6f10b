// Package retry writes to an API server. A write that fails delays no other write: each one has its own back-off. A
// write that is refused becomes a Problem of an object. All controllers, and the writer of Events, write through its
// Queue, in parallel and object by object.
package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// triesBeforeBlame is for failures that mostly pass, such as a conflict.
const triesBeforeBlame = 5

// Write is one write to an API server.
type Write struct {
	// The name of the write for logs and Problems, such as "create Service default/web".
	What string
	// Blame is the Problem to report if the write is refused. Its Message follows the server's answer, and may be a
	// remedy.
	Blame problem.Problem
	// Do does it. Its error carries the server's answer as in apierrors.
	Do func(context.Context) error
}

// Next returns the wait after a further failure, given the previous wait. Before the first failure that is 0.
func Next(delay time.Duration) time.Duration { return nextDelay(delay, Least, Most) }

func nextDelay(delay, least, most time.Duration) time.Duration { return min(max(2*delay, least), most) }

// failure is a write that has failed in its last tries.
type failure struct {
	until    time.Time // not to be tried again before
	delay    time.Duration
	tries    int
	reported *problem.Problem // nil as long as it may pass
}

// again returns the failure after one more try. If away is set, no write gets an answer, so the cause is not the
// object.
func (f failure) again(write Write, err error, away bool, least, most time.Duration) failure {
	f.delay = nextDelay(f.delay, least, most)
	f.until, f.tries = time.Now().Add(f.delay), f.tries+1
	if !away && (answered(err) && !passing(err) || f.tries >= triesBeforeBlame) {
		blame := write.Blame
		blame.Message = fmt.Sprintf("%s: %v", write.What, err)
		if write.Blame.Message != "" {
			blame.Message += "; " + write.Blame.Message
		}
		f.reported = &blame
	}
	return f
}

// answered reports whether an error is an answer of an API server. A webhook's denial may have no reason, so the reason
// is not checked.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// Lost reports whether there was no connection to the API server, or the connection broke. A write that took too long
// does not count, since its object may be the cause, for example through a webhook that hangs.
func Lost(err error) bool {
	var request *url.Error
	var network net.Error
	return !errors.Is(err, context.DeadlineExceeded) &&
		(errors.As(err, &request) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
			errors.Is(err, io.ErrUnexpectedEOF))
}

// passing reports whether an API server's refusal may end by itself: it was caused by an outdated object version, or by
// load.
func passing(err error) bool {
	return stale(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// stale reports whether a refusal comes from an old view of things.
func stale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
