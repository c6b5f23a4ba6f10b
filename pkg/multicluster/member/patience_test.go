package member

import (
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

func TestPatience(t *testing.T) {
	p := patience{}
	if !p.waits("create x", now).IsZero() {
		t.Error("the first try has to wait")
	}
	var delays []time.Duration
	for range 10 {
		p.failed("create x", now)
		delays = append(delays, p.waits("create x", now).Sub(now))
	}
	expect(t, "first", delays[0], retryMin)
	expect(t, "second", delays[1], 2*retryMin)
	expect(t, "last", delays[9], retryMost)
	if !p.waits("create y", now).IsZero() {
		t.Error("one failure holds up another write")
	}
	p.blame("create x", problem.Problem{Reason: "R"})
	p.failed("create x", now)
	expect(t, "problem kept", p["create x"].failure.Reason, "R")
	p.keep(map[string]bool{"create y": true})
	expect(t, "forgotten", len(p), 0)
}
