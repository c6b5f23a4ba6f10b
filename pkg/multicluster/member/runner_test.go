package member

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

func TestRunCoalescesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b, rounds := newBell(), 0
		again := time.Now().Add(10 * time.Second)
		go run(ctx, b, func(context.Context) time.Time {
			rounds++
			return again
		})
		synctest.Wait()
		expect(t, "at once", rounds, 1)
		for range 100 {
			b.ring()
		}
		time.Sleep(settle) // of the bubble's clock
		synctest.Wait()
		if rounds < 2 || rounds > 3 {
			t.Errorf("a hundred rings made %d rounds", rounds-1)
		}
		before := rounds
		again = again.Add(time.Hour)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, "rounds when one was asked for", rounds-before, 1)
		time.Sleep(resync)
		synctest.Wait()
		expect(t, "rounds in a resync period", rounds-before, 2)
		cancel()
		synctest.Wait()
	})
}

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
