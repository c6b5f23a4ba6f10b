package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
)

// lookedAt is a switch whose connections a rechecker looks at.
type lookedAt struct {
	sync.Mutex
	number uint64
	err    error
	found  int // reasons that a look finds
	looks  int
	wanted int // reasons that were handed on last
	many   int // connections, where listing them stops the switch
}

func (s *lookedAt) stopping(context.Context) (int, error) {
	s.Lock()
	defer s.Unlock()
	return s.many, nil
}

func (s *lookedAt) session() uint64 {
	s.Lock()
	defer s.Unlock()
	return s.number
}

func (s *lookedAt) applied(context.Context) error { return nil }

func (s *lookedAt) compared(context.Context) ([]datapath.Recheck, error) {
	s.Lock()
	defer s.Unlock()
	s.looks++
	list := make([]datapath.Recheck, s.found)
	for i := range list {
		list[i] = datapath.Recheck{Why: datapath.RuleGone, Rule: uint32(1000 + i)}
	}
	return list, s.err
}

func (s *lookedAt) recheck(list []datapath.Recheck) {
	s.Lock()
	defer s.Unlock()
	s.wanted = len(list)
}

// TestRechecker looks at the switch when there is a reason to, and then only.
func TestRechecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lookedAt{}
		c := newRechecker(s, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.run(ctx)
		step := func(name string, change func(), after time.Duration, looks, wanted int) {
			t.Helper()
			s.Lock()
			s.looks = 0
			change()
			s.Unlock()
			time.Sleep(after)
			synctest.Wait()
			s.Lock()
			defer s.Unlock()
			if s.looks != looks || s.wanted != wanted {
				t.Errorf("%s: %d looks, %d rechecks wanted; want %d and %d", name, s.looks, s.wanted, looks, wanted)
			}
		}
		step("no plan yet: all rules would seem to be gone", func() { s.number = 1; c.changed() }, time.Minute, 0, 0)
		step("no switch", func() { s.number = 0; c.start(); c.start() }, 5*time.Second, 0, 0)
		step("the first connection to the switch", func() { s.number, s.found = 1, 2 }, 2*time.Second, 1, 2)
		step("nothing happens, some wait for a packet", func() {}, recheckLonger+2*recheckPause, 1, 2)
		step("they are done", func() { s.found = 0 }, recheckLonger+2*recheckPause, 1, 0)
		step("nothing happens", func() {}, 10*recheckLonger, 0, 0)
		step("policies change", func() { s.found = 1; c.changed() }, time.Millisecond, 1, 1)
		step("they change again at once", func() { s.found = 0; c.changed() }, 2*recheckPause, 1, 0)
		step("the switch restarts", func() { s.number, s.found = 2, 3 }, recheckLonger+2*recheckPause, 1, 3)
		step("the look fails", func() { s.err, s.found = errors.New("no answer"), 0; c.changed() }, time.Millisecond, 1, 3)
		if p := c.problems("node-1"); len(p) != 1 || p[0].Reason.String() != "ConnectionsNotRead" {
			t.Errorf("problems after a look that failed: %v", p)
		}
		step("and is tried again", func() { s.err = nil }, 2*recheckPause, 1, 0)
		if p := c.problems("node-1"); len(p) != 0 {
			t.Errorf("problems after a look: %v", p)
		}
		goneOf := func(rule uint32, of string) []datapath.Cause {
			return []datapath.Cause{{Recheck: datapath.Recheck{Why: datapath.RuleGone, Rule: rule}, Of: of}}
		}
		gone := func(rule uint32) []datapath.Cause { return goneOf(rule, fmt.Sprint("rule ", rule)) }
		step("many connections, a rule goes", func() {
			s.many, s.found = 100_000, 7
			c.concern(datapath.Concern{Since: gone(5)})
			c.changed()
		}, 2*recheckPause, 0, 1)
		step("ten changes a second", func() {
			for i := range uint32(100) {
				c.concern(datapath.Concern{Since: gone(10 + i%2), Until: gone(11 - i%2)})
				c.changed()
			}
		}, 2*recheckPause, 0, 2)
		step("another rule has its number", func() {
			c.concern(datapath.Concern{Until: goneOf(5, "rule of somebody else")})
			c.changed()
		}, 2*recheckPause, 0, 2)
		step("the rule is back", func() { c.concern(datapath.Concern{Until: gone(5)}); c.changed() }, 2*recheckPause, 0, 1)
		step("only a look would tell", func() { c.concern(datapath.Concern{Look: true}); c.changed() }, 2*recheckPause, 0, 1)
		step("after a while there is one", func() { s.found = 2 }, 100_000*recheckStop*recheckCalm+recheckLonger, 1, 2)
		step("no connection needs them any more", func() { s.found = 0 }, 100_000*recheckStop*recheckCalm+recheckLonger, 1, 0)
		step("nothing happens, with many", func() {}, 10*recheckLonger, 0, 0)
		rules := func(n uint32) {
			var c2 datapath.Concern
			for i := range n {
				c2.Since = append(c2.Since, gone(1000+i)...)
			}
			c.concern(c2)
			c.changed()
		}
		step("a hundred rules go", func() { rules(100) }, 2*recheckPause, 0, 100)
		step("thousands of rules go", func() { rules(2 * recheckMany) }, 2*recheckPause, 1, 0)
		step("the switch restarts with many", func() { s.number, s.found = 3, 1 }, recheckLonger+2*recheckPause, 1, 1)
	})
}
