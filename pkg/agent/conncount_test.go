package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestConnectionCount reports the limit before it is reached.
func TestConnectionCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tracked atomic.Int64
		c := &connectionCount{log: slog.New(slog.DiscardHandler), read: func(context.Context) (int, int, error) {
			if n := tracked.Load(); n >= 0 {
				return int(n), 1000, nil
			}
			return 0, 0, errors.New("no answer")
		}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.run(ctx)
		for _, row := range []struct {
			tracked  int64
			problems int
		}{{0, 0}, {799, 0}, {800, 1}, {1000, 1}, {100, 0}, {900, 1}, {-1, 0}} {
			tracked.Store(row.tracked)
			time.Sleep(2 * countPause)
			synctest.Wait()
			if have := c.problems("node-1"); len(have) != row.problems {
				t.Errorf("%d of 1,000: problems %v", row.tracked, have)
			}
		}
	})
}

// TestConnectionReader lets readers ask within a second. They share a list, which begins after the last request.
func TestConnectionReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		r := &connectionReader{list: func(_ context.Context, each func(string)) error {
			lists.Add(1)
			each("one")
			time.Sleep(time.Millisecond)
			each("two")
			return nil
		}}
		ask := func() {
			var lines []string
			err := r.read(t.Context(), func(line string) { lines = append(lines, line) })
			if !slices.Equal(lines, []string{"one", "two"}) || err != nil {
				t.Errorf("%q, %v", lines, err)
			}
		}
		ask()
		for range 10 {
			go ask()
			time.Sleep(readPause / 20)
		}
		time.Sleep(2 * readPause)
		synctest.Wait()
		if n := lists.Load(); n != 2 {
			t.Errorf("%d lists for eleven that ask within a second, want 2", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var lines int
		err := r.read(ctx, func(string) { lines++; cancel() })
		if !errors.Is(err, context.Canceled) || lines != 1 {
			t.Errorf("one that gives up: %v, %d lines", err, lines)
		}
		time.Sleep(2 * readPause)
		if lines != 1 {
			t.Errorf("one that has given up gets %d lines", lines)
		}
	})
}
