package problemlog

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

var (
	tooLarge     = reasons.New(reasons.Row{Name: "TooLarge"})
	unknownGroup = reasons.New(reasons.Row{Name: "UnknownGroup"})
)

// TestLog has thousands of problems come and go. The lines about them are few, and other Namespaces and reasons
// keep theirs.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&log, nil)), `"tombolo get status" lists the problems`)
		large := func(namespace string, n int) problem.Problem {
			return problem.Problem{
				Object: problem.Object{Kind: "NetworkPolicy", Namespace: namespace, Name: fmt.Sprint("p", n)},
				Field:  "spec.ingress[0]", Reason: tooLarge, Message: fmt.Sprint(n, " of its rules are beyond a bound"),
			}
		}
		lines := func() (out []string) {
			out = strings.Split(strings.TrimSpace(log.String()), "\n")
			log.Reset()
			return out
		}

		var all []problem.Problem
		for i := range 5000 {
			all = append(all, large("x", i))
		}
		l.Changed(all, nil)
		l.Changed(nil, all)
		if have := lines(); len(have) != burst+1 || !strings.Contains(have[burst], "tombolo get status") {
			t.Errorf("%d lines of 10,000 changes, the last is %s", len(have), have[len(have)-1])
		}

		other := large("x", 1)
		other.Reason = unknownGroup
		l.Changed([]problem.Problem{large("y", 1), other}, nil)
		if have := lines(); len(have) != 2 {
			t.Errorf("%d lines of another Namespace and another reason, want 2", len(have))
		}

		time.Sleep(pause)
		l.Changed([]problem.Problem{large("x", 1), large("x", 2)}, nil)
		if have := lines(); len(have) != 1 || !strings.Contains(have[0], "omitted=9980") {
			t.Errorf("after a pause: %q, want one line that counts 9,980 omitted ones", have)
		}

		old, now := large("z", 1), large("z", 1)
		now.Message = "2 of its rules are beyond a bound"
		l.Changed([]problem.Problem{now}, []problem.Problem{old})
		l.Changed(nil, []problem.Problem{now})
		have := lines()
		if len(have) != 2 || !strings.Contains(have[0], "2 of its rules") || !strings.Contains(have[1], "no longer: 2 of") {
			t.Errorf("a problem whose message changes, then ends: %q", have)
		}

		for i := range 1000 {
			l.Came("east", large(fmt.Sprint("n", i), 1))
			l.Came("west", large("n", i%2))
		}
		if have := lines(); len(have) != 2*(burst+1) || !strings.Contains(have[2*burst], "member=") {
			t.Errorf("%d lines of two members, want %d, and one that names the member: %s",
				len(have), 2*(burst+1), have[len(have)-1])
		}

		for i := range 10 * fewShares {
			l.Changed([]problem.Problem{large(fmt.Sprint("n", i), 1)}, nil)
			time.Sleep(pause)
		}
		if n := len(l.shares); n > 2*fewShares {
			t.Errorf("%d shares of Namespaces that are silent are kept, want at most %d", n, 2*fewShares)
		}
	})
}
