package runner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var times = Options{Settle: 50 * time.Millisecond, Resync: time.Minute, RetryMin: 200 * time.Millisecond, RetryMost: time.Second}

// calls runs a runner in a bubble and notes when f is called, from its start on.
type calls struct {
	*Runner
	start time.Time
	mu    sync.Mutex
	at    []time.Duration
	f     func(n int) (time.Time, error) // n from 1; nil: nothing to do
}

// run starts the runner; what happens is the bubble's clock's affair.
func (c *calls) run(t *testing.T) {
	t.Helper()
	c.start = time.Now()
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		c.Run(ctx, func(context.Context) (time.Time, error) {
			c.mu.Lock()
			c.at = append(c.at, time.Since(c.start))
			n := len(c.at)
			c.mu.Unlock()
			if c.f == nil {
				return time.Time{}, nil
			}
			return c.f(n)
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// until lets the clock go on, and says when there were calls.
func (c *calls) until(t *testing.T, d time.Duration, want ...time.Duration) {
	t.Helper()
	time.Sleep(d - time.Since(c.start)) // of the bubble's clock
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.at, want) {
		t.Errorf("after %s there were calls at %v, want %v", d, c.at, want)
	}
}

func TestRingsAreOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{Runner: New(times)}
		c.Trigger() // before it runs: seen by the first call
		c.run(t)
		c.until(t, 10*time.Second, 0)
		for range 100 {
			c.Trigger()
			time.Sleep(time.Millisecond / 10)
		}
		c.until(t, 50*time.Second, 0, 10*time.Second+50*time.Millisecond)
	})
}

func TestARingDuringACallIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{Runner: New(times)}
		c.f = func(n int) (time.Time, error) {
			if n == 1 {
				c.Trigger()
				time.Sleep(time.Second)
			}
			return time.Time{}, nil
		}
		c.run(t)
		c.until(t, 30*time.Second, 0, time.Second+50*time.Millisecond)
	})
}

func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{Runner: New(times)}
		c.run(t)
		c.until(t, 2*time.Minute, 0, time.Minute, 2*time.Minute)
	})
}

func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{Runner: New(times)}
		c.f = func(n int) (time.Time, error) {
			switch n {
			case 1:
				return time.Now().Add(3 * time.Second), nil
			case 2: // in the past: not at once, which would turn in a circle
				return time.Now().Add(-time.Hour), nil
			case 3: // later than the resync
				return time.Now().Add(time.Hour), nil
			}
			return time.Time{}, nil
		}
		c.run(t)
		third := 3*time.Second + 50*time.Millisecond
		c.until(t, 62*time.Second, 0, 3*time.Second, third)
		c.until(t, 64*time.Second, 0, 3*time.Second, third, third+time.Minute)
	})
}

func TestARingComesBeforeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{Runner: New(times)}
		c.f = func(n int) (time.Time, error) {
			if n == 1 {
				return c.start.Add(10 * time.Second), nil
			}
			return time.Time{}, nil
		}
		c.run(t)
		time.Sleep(time.Second)
		c.Trigger()
		c.until(t, 30*time.Second, 0, time.Second+50*time.Millisecond)
	})
}

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []time.Duration
		o := times
		o.Failed = func(err error, retry time.Duration) {
			if err == nil {
				t.Error("told of no error")
			}
			reported = append(reported, retry)
		}
		c := &calls{Runner: New(o)}
		c.f = func(n int) (time.Time, error) {
			if n <= 6 {
				c.Trigger() // as a failed write's own events do: no reason to come sooner
			}
			if n < 6 || n == 7 {
				return time.Now(), errors.New("no")
			}
			return time.Time{}, nil
		}
		c.run(t)
		// 200, 400 and 800 ms, then the most. The sixth call succeeds and its trigger counts,
		// and the seventh fails for the first time.
		ms := time.Millisecond
		c.until(t, 10*time.Second, 0, 200*ms, 600*ms, 1400*ms, 2400*ms, 3400*ms, 3450*ms, 3650*ms)
		if want := []time.Duration{200 * ms, 400 * ms, 800 * ms, time.Second, time.Second, 200 * ms}; !slices.Equal(reported, want) {
			t.Errorf("told of retries in %v, want %v", reported, want)
		}
	})
}

func TestItEndsWithItsContext(t *testing.T) {
	for _, test := range []struct {
		name string
		f    func(context.Context, *Runner) (time.Time, error)
	}{
		{"while it waits", func(context.Context, *Runner) (time.Time, error) { return time.Time{}, nil }},
		{"while it backs off", func(context.Context, *Runner) (time.Time, error) { return time.Time{}, errors.New("no") }},
		{"in a call", func(ctx context.Context, r *Runner) (time.Time, error) {
			r.Trigger()
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := times
				ctx, cancel := context.WithCancel(t.Context())
				o.Failed = func(err error, _ time.Duration) {
					if ctx.Err() != nil {
						t.Errorf("the end is reported as a failure: %v", err)
					}
				}
				r := New(o)
				ended := make(chan struct{})
				go func() {
					r.Run(ctx, func(ctx context.Context) (time.Time, error) { return test.f(ctx, r) })
					close(ended)
				}()
				synctest.Wait()
				before := time.Now()
				cancel()
				<-ended
				if took := time.Since(before); took > 0 {
					t.Errorf("it ended %s later", took)
				}
			})
		})
	}
}
