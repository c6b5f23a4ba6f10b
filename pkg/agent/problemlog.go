package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"golang.org/x/time/rate"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A Namespace may have problemBurst log lines about problems of one reason at once, then one each problemPause. So a
// tenant with thousands of faulty policies, or one that is corrected and broken in turn, does not fill the log.
const (
	problemBurst = 20
	problemPause = time.Minute
	// fewShares is how many shares of the log there are before full ones are removed.
	fewShares = 256
)

// problemLog writes lines when problems come and go. It is used by one goroutine.
type problemLog struct {
	to     *slog.Logger
	shares map[problemGroup]*problemShare
	sweep  int
}

// problemGroup is the problems that share a part of the log.
type problemGroup struct{ kind, namespace, reason string }

// problemShare is the part of the log that a group has.
type problemShare struct {
	limit   *rate.Limiter
	omitted int  // lines since the last one that was written
	noted   bool // a line reports that lines are omitted
}

func newProblemLog(to *slog.Logger) *problemLog {
	return &problemLog{to: to, shares: map[problemGroup]*problemShare{}, sweep: fewShares}
}

// changed writes what came and what went together. A problem whose message alone is another has one line.
func (l *problemLog) changed(added, removed []problem.Problem) {
	still := map[problem.Problem]int{}
	for _, p := range added {
		l.write(slog.LevelWarn, p.Message, p)
		p.Message = ""
		still[p]++
	}
	for _, p := range removed {
		text := "no longer: " + p.Message
		if p.Message = ""; still[p] > 0 {
			still[p]--
			continue
		}
		l.write(slog.LevelInfo, text, p)
	}
}

func (l *problemLog) write(level slog.Level, text string, p problem.Problem) {
	of := problemGroup{p.Kind, p.Namespace, p.Reason}
	share := l.shares[of]
	if share == nil {
		l.remove()
		share = &problemShare{limit: rate.NewLimiter(rate.Every(problemPause), problemBurst)}
		l.shares[of] = share
	}
	if share.limit.Tokens() >= problemBurst {
		share.noted = false
	}
	fields := []any{"object", p.Object, "field", p.Field, "reason", p.Reason}
	if share.omitted > 0 {
		fields = append(fields, "omitted", share.omitted)
	}
	switch {
	case share.limit.Allow():
		share.omitted = 0
		l.to.Log(context.Background(), level, text, fields...)
	case !share.noted:
		share.omitted, share.noted = share.omitted+1, true
		l.to.Warn(fmt.Sprintf("further lines about problems of this kind, Namespace and reason are limited to one in %s: "+
			"\"tombolo get status\" lists the problems", problemPause),
			"kind", p.Kind, "namespace", p.Namespace, "reason", p.Reason)
	default:
		share.omitted++
	}
}

// remove forgets the shares that are as new ones.
func (l *problemLog) remove() {
	if len(l.shares) < l.sweep {
		return
	}
	maps.DeleteFunc(l.shares, func(_ problemGroup, s *problemShare) bool {
		return s.limit.Tokens() >= problemBurst
	})
	l.sweep = max(fewShares, 2*len(l.shares))
}
