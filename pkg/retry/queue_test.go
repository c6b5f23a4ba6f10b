package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

var (
	things   = schema.GroupResource{Resource: "things"}
	conflict = apierrors.NewConflict(things, "x", errors.New("changed"))
	refusal  = apierrors.NewForbidden(things, "x", errors.New("no"))
	// denial is a webhook's that gives no reason.
	denial = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest,
		Message: "denied"}}
)

func expect(t *testing.T, what string, have, want any) {
	t.Helper()
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (-want +have):\n%s", what, diff)
	}
}

// bench is a Queue with a server that takes 10 ms for each write.
type bench struct {
	*Queue
	mu       sync.Mutex
	answers  map[string]error // by What
	order    []string         // of the writes that were begun
	hangs    map[string]bool  // by What: there is no answer
	now, max int
	reported map[string]string
}

const writeTakes = 10 * time.Millisecond

func newBench(t *testing.T, parallel int) *bench {
	t.Helper()
	b := &bench{answers: map[string]error{}, hangs: map[string]bool{}, reported: map[string]string{}}
	b.Queue = NewQueue(Options{Least: 200 * time.Millisecond, Most: time.Second, Parallel: parallel,
		Log: slog.New(slog.DiscardHandler),
		Reported: func(o Offer, p *problem.Problem) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if delete(b.reported, o.Key); p != nil {
				b.reported[o.Key] = p.String()
			}
		}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

// offer is of one key, with writes of these names.
func (b *bench) offer(group, key, after string, names ...string) Offer {
	o := Offer{Key: key, Group: group, After: after}
	for _, name := range names {
		o.Writes = append(o.Writes, Write{What: name,
			Blame: problem.Problem{Object: problem.Object{Kind: "Thing", Name: key}}, Do: func(ctx context.Context) error {
				b.mu.Lock()
				b.order = append(b.order, name)
				b.now++
				b.max = max(b.max, b.now)
				err, hangs := b.answers[name], b.hangs[name]
				b.mu.Unlock()
				if hangs {
					<-ctx.Done()
					err = fmt.Errorf("put it: %w", &url.Error{Op: "Put", URL: "https://server", Err: ctx.Err()})
				}
				time.Sleep(writeTakes) // of the bubble's clock
				b.mu.Lock()
				b.now--
				b.mu.Unlock()
				return err
			}})
	}
	return o
}

// passes lets time pass, and returns which writes were begun meanwhile.
func (b *bench) passes(d time.Duration) []string {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	order := b.order
	b.order = nil
	return order
}

func (b *bench) answer(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[name] = err
}

func (b *bench) hang(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hangs[name] = true
}

func TestQueueInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		for i := range 16 {
			b.Set(b.offer("east", fmt.Sprint(i), "", fmt.Sprint("a", i), fmt.Sprint("b", i)))
		}
		if done := b.passes(8 * writeTakes); len(done) != 32 || b.max != 4 || b.Len() != 0 {
			t.Errorf("%d writes begun, %d at the same time, %d objects left: want 32, 4, 0", len(done), b.max, b.Len())
		}
	})
}

// TestQueueInOrder keeps the writes of one object in order, and what comes after another object, in whatever order they
// are offered: the changes of a table come by their keys.
func TestQueueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		first, then := b.offer("", "import", "", "create", "status"), b.offer("", "export", "import", "release")
		for _, offers := range [][]Offer{{first, then}, {then, first}} {
			b.Set(offers...)
			expect(t, "order", b.passes(time.Second), []string{"create", "status", "release"})
			expect(t, "left", b.Len(), 0)

			b.answer("create", refusal)
			b.Set(offers...)
			expect(t, "refused", b.passes(writeTakes), []string{"create"})
			for range 100 {
				b.Set(then)
			}
			expect(t, "those that wait for the import", len(b.after["import"]), 1)
			b.Set(b.offer("", "import", "")) // not needed any more
			expect(t, "withdrawn", b.passes(time.Minute), []string{"release"})
			expect(t, "those that wait", len(b.after), 0)
			b.answer("create", nil)
		}
		// In a circle one has to be first.
		b.Set(b.offer("", "a", "b", "write a"), b.offer("", "b", "a", "write b"))
		expect(t, "in a circle", len(b.passes(time.Second)), 2)
	})
}

// TestQueueHeld holds a queue. A write that is withdrawn meanwhile is never done. A write that got no answer before is
// done at once afterwards.
func TestQueueHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		b.answer("lost", &url.Error{Op: "Put", URL: "https://server", Err: syscall.ECONNREFUSED})
		b.Set(b.offer("", "lost", "", "lost"))
		b.passes(time.Minute)
		b.Hold()
		b.answer("lost", nil)
		b.Set(b.offer("", "x", "", "delete"))
		b.Set(b.offer("", "y", "", "create"), b.offer("", "z", "", "old"))
		expect(t, "held", len(b.passes(time.Minute)), 0)
		b.Set(b.offer("", "x", ""), b.offer("", "z", "", "new"))
		b.Resume()
		b.Resume()
		done := b.passes(writeTakes)
		slices.Sort(done)
		expect(t, "when it goes on", done, []string{"create", "lost", "new"})
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueOneSilent has a single object get no answer: others go on, and its failure is reported after some tries.
func TestQueueOneSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.hang("hangs")
		b.Set(b.offer("", "bad", "", "hangs"))
		for i := range 60 {
			b.Set(b.offer("", "good", "", "good"))
			time.Sleep(time.Second) // of the bubble's clock
			if n := b.Len(); n != 1 {
				t.Fatalf("after %d s %d objects are left, want the one that hangs", i, n)
			}
		}
		if b.passes(time.Minute); !strings.Contains(b.reported["bad"], "Thing bad: hangs: ") ||
			!strings.Contains(b.reported["bad"], "deadline exceeded") {
			t.Errorf("reported: %v", b.reported)
		}
	})
}

// TestQueueReportsInOrder withdraws an object while its refusal is being reported: the end is reported last.
func TestQueueReportsInOrder(t *testing.T) {
	withdrawn := make(chan struct{})
	var q *Queue
	var mu sync.Mutex
	var reports []string
	q = NewQueue(Options{Least: time.Second, Most: time.Second, Parallel: 1, Log: slog.New(slog.DiscardHandler),
		Reported: func(o Offer, p *problem.Problem) {
			if p != nil {
				go func() {
					defer close(withdrawn)
					q.Set(Offer{Key: o.Key})
				}()
				time.Sleep(50 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, fmt.Sprint(p != nil))
		}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	q.Set(Offer{Key: "x", Writes: []Write{{What: "write", Do: func(context.Context) error { return refusal }}}})
	<-withdrawn
	cancel()
	running.Wait()
	expect(t, "reports", reports, []string{"true", "false"})
}

// TestQueueFair has a group with many writes take turns with one that has few.
func TestQueueFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		for i := range 100 {
			b.Set(b.offer("noisy", fmt.Sprint("noisy-", i), "", "noisy"))
		}
		b.Set(b.offer("east", "east", "", "east"))
		b.Set(b.offer("west", "west", "", "west"))
		begun := b.passes(4*writeTakes - 1)
		if !slices.Contains(begun, "east") || !slices.Contains(begun, "west") {
			t.Errorf("the first writes are %v, want those of east and west among them", begun)
		}
		b.passes(time.Minute)
	})
}

// TestQueueRefused backs off for one object alone, and reports it for as long as it lasts.
func TestQueueRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.answer("bad", refusal)
		b.Set(b.offer("", "bad", "", "bad"))
		b.Set(b.offer("", "good", "", "good"))
		b.passes(writeTakes)
		expect(t, "reported", b.reported, map[string]string{"bad": `Thing bad: bad: things "x" is forbidden: no`})
		expect(t, "problems", len(b.Problems()), 1)
		b.Set(b.offer("", "bad", "", "bad")) // does not shorten the wait: the answer would be the same
		expect(t, "while it waits", len(b.passes(199*time.Millisecond)), 0)
		expect(t, "tried again", b.passes(time.Millisecond), []string{"bad"})
		expect(t, "while it waits for longer", len(b.passes(writeTakes+399*time.Millisecond)), 0)
		b.answer("bad", nil)
		expect(t, "tried again", b.passes(time.Millisecond), []string{"bad"})
		b.passes(writeTakes)
		expect(t, "reported", b.reported, map[string]string{})
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueDenied reports a webhook's denial at once, although it gives no reason.
func TestQueueDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.answer("bad", denial)
		b.Set(b.offer("", "bad", "", "bad"))
		b.passes(writeTakes)
		expect(t, "reported", b.reported, map[string]string{"bad": "Thing bad: bad: denied"})
		b.Set(Offer{Key: "bad"})
		b.passes(time.Minute)
		expect(t, "reported", b.reported, map[string]string{})
	})
}

// TestQueueStale writes at once when a conflict is followed by a newer view.
func TestQueueStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.answer("update", conflict)
		b.Set(b.offer("", "x", "", "update"))
		b.passes(writeTakes)
		b.answer("update", nil)
		b.Set(b.offer("", "x", "", "update"))
		expect(t, "tried", b.passes(writeTakes), []string{"update"})
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueChanged takes the newest offer when one came while another ran, and nothing when it was
// withdrawn.
func TestQueueChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		b.Set(b.offer("", "x", "", "one"))
		expect(t, "first", b.passes(writeTakes/2), []string{"one"})
		b.Set(b.offer("", "x", "", "two"))
		b.Set(b.offer("", "x", "", "three"))
		expect(t, "then", b.passes(time.Second), []string{"three"})
		b.Set(b.offer("", "x", "", "four"))
		b.passes(writeTakes / 2)
		b.Set(b.offer("", "x", "", "five"))
		b.Set(b.offer("", "x", ""))
		expect(t, "withdrawn", len(b.passes(time.Second)), 0)
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueFight has another program revert each write at once: the object is written again, at a harmless rate, and
// others do not wait for it.
func TestQueueFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		writes := 0
		for range 3000 { // 30 seconds
			if b.Len() == 0 {
				b.Set(b.offer("", "x", "", "again"))
			}
			writes += len(b.passes(writeTakes))
		}
		if least := objectBurst + 28*int(objectRate); writes < least || writes > objectBurst+32*int(objectRate) {
			t.Errorf("%d writes in 30 s, want about %d", writes, least)
		}
		b.Set(b.offer("", "y", "", "other"))
		if done := b.passes(writeTakes / 2); !slices.Contains(done, "other") {
			t.Errorf("another object waits: %q", done)
		}
		for _, group := range []string{"east", "west"} {
			b.passes(time.Minute)
			for i := range 3 * fewLimits {
				b.Set(b.offer(group, fmt.Sprint(group, i), "", "once"))
			}
		}
		b.passes(time.Minute)
		b.Set(b.offer("", "x", "", "last"))
		expect(t, "after a rest", b.passes(writeTakes), []string{"last"})
		if len(b.brakes.byKey) > 4*fewLimits {
			t.Errorf("%d brakes are kept", len(b.brakes.byKey))
		}
	})
}

// TestQueueLines has one tenant's objects written all the time: the log gets few lines of them, and each of others.
func TestQueueLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		var text bytes.Buffer
		b.o.Log = slog.New(slog.NewTextHandler(&text, nil))
		const seconds = 10
		for i := range 1000 * seconds { // twice as many as the server takes
			b.Set(b.offer("tenant", fmt.Sprint("t", i%500), "", fmt.Sprint("write of the tenant ", i)))
			if i%1000 == 0 {
				b.Set(b.offer("other", fmt.Sprint("o", i), "", fmt.Sprint("write of another ", i)))
			}
			time.Sleep(time.Millisecond)
		}
		writes := len(b.passes(time.Minute))
		lines := strings.Count(text.String(), "write of the tenant")
		if most := lineBurst + seconds + 61; writes < 1000 || lines < lineBurst || lines > most {
			t.Errorf("%d lines of %d writes, want %d to %d", lines, writes, lineBurst, most)
		}
		if others := strings.Count(text.String(), "write of another"); others != seconds {
			t.Errorf("%d lines of others, want %d", others, seconds)
		}
		if !strings.Contains(text.String(), "alsoWithoutLine=") {
			t.Error("no line has the number of writes without a line")
		}
	})
}

// TestQueueAway tries little while the server gives no answer, and reports no object.
func TestQueueAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		for i := range 50 {
			name := fmt.Sprint(i)
			b.answer(name, &url.Error{Op: "Put", URL: "https://server", Err: syscall.ECONNREFUSED})
			b.Set(b.offer("", name, "", name))
		}
		if tried := b.passes(time.Minute); len(tried) > 60*4+16 {
			t.Errorf("%d tries in a minute, want at most %d: four each second", len(tried), 60*4+16)
		}
		expect(t, "reported", b.reported, map[string]string{})
		for i := range 50 {
			b.answer(fmt.Sprint(i), nil)
		}
		b.passes(2 * time.Second)
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueSilent tries little while no write gets an answer in time, and reports no object: the connection is there,
// and the server hangs.
func TestQueueSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 4)
		for i := range 50 {
			name := fmt.Sprint(i)
			b.hang(name)
			b.Set(b.offer("", name, "", name))
		}
		b.passes(time.Hour)
		expect(t, "reported", b.reported, map[string]string{})
		b.mu.Lock()
		clear(b.hangs)
		b.mu.Unlock()
		b.passes(writeLimit + 2*time.Second)
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueLate has late offers go after others, and some of them all the same.
func TestQueueLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.Set(b.offer("east", "first", "", "first")) // keeps the one writer busy
		synctest.Wait()
		var want []string
		for i := range 10 {
			late := b.offer("east", fmt.Sprint("status", i), "", fmt.Sprint("status", i))
			late.Late = true
			b.Set(late)
		}
		for i := range 10 {
			b.Set(b.offer("east", fmt.Sprint(i), "", fmt.Sprint(i)))
		}
		want = []string{"first", "0", "1", "2", "3", "4", "5", "status0", "6", "7", "8", "9", "status1", "status2"}
		expect(t, "order", b.passes(time.Second)[:len(want)], want)
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueWait has an offer wait for another one.
func TestQueueWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		early := func(name string) Offer {
			o := b.offer("east", "thing", "", name)
			o.Wait = time.Second
			return o
		}
		b.Set(early("failure"))
		expect(t, "before the wait is over", b.passes(900*time.Millisecond), []string(nil))
		b.Set(early("another failure")) // the wait goes on
		expect(t, "when it is over", b.passes(200*time.Millisecond), []string{"another failure"})

		b.Set(early("failure"))
		expect(t, "in the wait", b.passes(500*time.Millisecond), []string(nil))
		b.Set(b.offer("east", "thing", "", "success"))
		expect(t, "with the offer that it waited for", b.passes(time.Millisecond), []string{"success"})
		expect(t, "after the wait", b.passes(2*time.Second), []string(nil))

		b.Set(early("failure"))
		b.passes(500 * time.Millisecond)
		b.Set(Offer{Key: "thing"})
		expect(t, "withdrawn", b.passes(2*time.Second), []string(nil))
		expect(t, "left", b.Len(), 0)
	})
}

// TestQueueDone measures from when an object needs something, failures included.
func TestQueueDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		var took []time.Duration
		b.o.Done = func(_ Offer, d time.Duration) { took = append(took, d) }
		b.Set(b.offer("east", "busy", "", "busy"))
		b.Set(b.offer("east", "thing", "", "thing"))
		b.passes(time.Second)
		expect(t, "one after the other", took, []time.Duration{writeTakes, 2 * writeTakes})

		took = nil
		b.answer("thing", refusal)
		b.Set(b.offer("east", "thing", "", "thing"))
		b.passes(writeTakes)
		b.answer("thing", nil)
		b.passes(time.Minute)
		if len(took) != 1 || took[0] < 200*time.Millisecond {
			t.Errorf("with a failure it took %v, want once, 200 ms or more", took)
		}

		took = nil
		b.Set(b.offer("east", "thing", "", "first"))
		b.passes(writeTakes / 2)
		b.Set(b.offer("east", "thing", "", "second"))
		b.passes(time.Second)
		expect(t, "what is offered meanwhile", took, []time.Duration{writeTakes, 3 * writeTakes / 2})
	})
}

// TestQueueOffersAgain has a Queue ask for what is still to be done, until it ends.
func TestQueueOffersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q *Queue
		var written []time.Duration
		start := time.Now()
		write := Offer{Key: "x", Writes: []Write{{What: "write x", Do: func(context.Context) error {
			written = append(written, time.Since(start))
			return nil
		}}}}
		q = NewQueue(Options{Parallel: 1, Log: slog.New(slog.DiscardHandler), Again: func(context.Context) { q.Set(write) }})
		ctx, cancel := context.WithTimeout(t.Context(), 2*againEvery+time.Second)
		defer cancel()
		q.Set(write)
		q.Run(ctx)
		expect(t, "writes", written, []time.Duration{0, againEvery, 2 * againEvery})
	})
}
