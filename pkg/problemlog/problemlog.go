// Package problemlog writes bounded log lines about problems.
package problemlog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A source may have a burst of log lines about problems with one reason, and then one line in each pause. So a tenant
// with thousands of faulty policies, or with one that changes all the time, does not fill the log.
const (
	burst = 20
	pause = time.Minute
	// fewShares is how many shares of the log there are before full ones are removed.
	fewShares = 256
)

// Log writes lines when problems come and go. Any goroutine may call it.
type Log struct {
	to     *slog.Logger
	listed string

	mu     sync.Mutex // for what follows
	shares map[group]*share
	sweep  int
}

// group is the problems that share a part of the log.
type group struct{ source, reason string }

// share is the part of the log that a group has.
type share struct {
	limit   *rate.Limiter
	omitted int  // lines since the last one that was written
	noted   bool // a line reports that lines are omitted
}

// New returns a Log. When the limit of lines is reached, one line reports that. It ends with listed, which names a
// place that has all problems.
func New(to *slog.Logger, listed string) *Log {
	return &Log{to: to, listed: listed, shares: map[group]*share{}, sweep: fewShares}
}

// Changed logs added and removed problems of one pass. A problem of which only the message has changed gets one line.
// The source of a problem is the kind and the Namespace of its object.
func (l *Log) Changed(added, removed []problem.Problem) {
	still := map[problem.Problem]int{}
	for _, p := range added {
		l.write(slog.LevelWarn, p.Message, "", p)
		p.Message = ""
		still[p]++
	}
	for _, p := range removed {
		text := "no longer: " + p.Message
		if p.Message = ""; still[p] > 0 {
			still[p]--
			continue
		}
		l.write(slog.LevelInfo, text, "", p)
	}
}

// Came logs a new problem whose source is a member of a ClusterSet. Without a member the source is the same as in
// Changed.
func (l *Log) Came(member string, p problem.Problem) { l.write(slog.LevelWarn, p.Message, member, p) }

func (l *Log) write(level slog.Level, text, member string, p problem.Problem) {
	of := group{"kind " + p.Kind + "/" + p.Namespace, p.Reason.String()}
	source := []any{"kind", p.Kind, "namespace", p.Namespace}
	if member != "" {
		of.source, source = "member "+member, []any{"member", member}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shares[of]
	if s == nil {
		l.remove()
		s = &share{limit: rate.NewLimiter(rate.Every(pause), burst)}
		l.shares[of] = s
	}
	if s.limit.Tokens() >= burst {
		s.noted = false
	}
	fields := []any{"object", p.Object, "field", p.Field, "reason", p.Reason.String()}
	if s.omitted > 0 {
		fields = append(fields, "omitted", s.omitted)
	}
	switch {
	case s.limit.Allow():
		s.omitted = 0
		l.to.Log(context.Background(), level, text, fields...)
	case !s.noted:
		s.omitted, s.noted = s.omitted+1, true
		l.to.Warn(fmt.Sprintf("further lines about problems of this source and reason are limited to one in %s: %s",
			pause, l.listed), append(source, "reason", p.Reason.String())...)
	default:
		s.omitted++
	}
}

// remove forgets the shares that are as new ones.
func (l *Log) remove() {
	if len(l.shares) < l.sweep {
		return
	}
	maps.DeleteFunc(l.shares, func(_ group, s *share) bool { return s.limit.Tokens() >= burst })
	l.sweep = max(fewShares, 2*len(l.shares))
}
