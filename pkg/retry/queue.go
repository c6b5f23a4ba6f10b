package retry

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
)

// Offer is what one object of an API server needs.
type Offer struct {
	// Key names the object. One offer of a key is worked on at a time.
	Key string
	// Group takes turns with other groups: a member's cluster ID, a Namespace.
	Group string
	// Member is, for Reported, the cluster ID of the member to which the object belongs. It may be empty.
	Member string
	// After is a key whose writes have to be done first, or empty. A key without an offer counts as done. The offers of
	// one call of Set may be in any order.
	After string
	// Late marks writes that no other write depends on, such as a status about other writes. Writes of other offers come
	// first.
	Late bool
	// Wait is how long an offer waits before its writes begin. A newer offer replaces it meanwhile. It is for states that
	// will probably change in a moment.
	Wait time.Duration
	// Writes are done in this order, each when the one before has succeeded.
	Writes []Write
}

// The back-off of a Queue, unless its Options have another one.
const (
	Least = 200 * time.Millisecond
	Most  = 15 * time.Second
)

// againEvery is the time between two calls of Options.Again.
const againEvery = 30 * time.Second

// Options are the options of a Queue.
type Options struct {
	// Least is the wait after a write's first failure. The wait doubles with each further failure, up to Most. Zero stands
	// for the constants of these names.
	Least, Most time.Duration
	Parallel    int // writes at the same time
	Log         *slog.Logger
	// Quiet omits the log line about each write that succeeds.
	Quiet bool
	// Again queues all writes that are still due. Run calls it at intervals, until ctx ends: a Queue forgets writes once
	// they are done, and another client may have undone them before a watch showed them. No pass of tables may run at that
	// time, or Again would queue writes that the pass withdraws (derive.Engine.Do). Again may be nil.
	Again func(ctx context.Context)
	// Reported is called when the Problem of an offer's key appears, changes or ends (nil), in this order. The goroutine
	// of the write or the caller of Set calls it while the Queue is locked, so it must not call the Queue. It may be nil.
	// ReportTo returns such a function.
	Reported func(o Offer, p *problem.Problem)
	// Wrote is called after each try; it may be nil.
	Wrote func(took time.Duration, err error)
	// Done is called when all writes of an offer have succeeded. It gets the time since the offer, including waits and
	// failures. The goroutine of the write calls it, so it must not call the Queue. It may be nil.
	Done func(o Offer, took time.Duration)
}

// These bound how often an object that changes all the time is written: this many offers in a burst, and then so many a
// second. They also bound the cost of an object that another controller, or an admission webhook, changes again each
// time.
const (
	objectBurst = 20
	objectRate  = rate.Limit(5)
)

// writeLimit is the time limit for one write. In most configurations an API server gives an admission webhook up to 10
// seconds, and then answers. Such an answer has more information than a timeout of the client.
const writeLimit = 15 * time.Second

// silentKeys is the number of successive keys without an answer after which the server counts as unavailable. A
// connection that fails shows that at once.
const silentKeys = 3

// These bound the log lines about single writes of a group: this many in a burst, and then so many a second. So a
// tenant that causes writes all the time does not fill the log.
const (
	lineBurst = 100
	lineRate  = rate.Limit(1)
)

// fewLimits is how many limiters are kept without throwing away those at rest.
const fewLimits = 1000

// limits are limiters by key. Those at rest are forgotten.
type limits struct {
	rate  rate.Limit
	burst int
	byKey map[string]*rate.Limiter
	sweep int // how many there may be before those at rest go
}

func newLimits(r rate.Limit, burst int) limits {
	return limits{rate: r, burst: burst, byKey: map[string]*rate.Limiter{}, sweep: fewLimits}
}

// of returns the limiter of a key.
func (l *limits) of(key string) *rate.Limiter {
	if have := l.byKey[key]; have != nil {
		return have
	}
	if len(l.byKey) >= l.sweep {
		maps.DeleteFunc(l.byKey, func(_ string, one *rate.Limiter) bool { return one.Tokens() >= float64(l.burst) })
		l.sweep = max(fewLimits, 2*len(l.byKey)) // so that the sweeps cost in proportion
	}
	one := rate.NewLimiter(l.rate, l.burst)
	l.byKey[key] = one
	return one
}

// Queue does writes to one API server in parallel: in order for each object, in turns between groups, each with its own
// back-off. It is level-triggered: Set declares the writes that an object needs now, which may be no writes any more.
//
//	Set ──► ready, by lane and group ──► running ──► done: forgotten
//	 │          ▲                           │ failed
//	 └──────────┴──────── waiting ◄─────────┘
//
// A server that gives no answer pauses the whole queue. If other writes get answers, a write without an answer delays
// only its object.
type Queue struct {
	o Options

	mu     sync.Mutex
	wake   *sync.Cond
	items  map[string]*item               // by key; none for what is done
	after  map[string]map[string]struct{} // keys that wait for a key
	lanes  [2]lane                        // the second one of late offers
	takes  uint                           // from lanes so far
	held   bool                           // by Hold
	paused bool                           // the server gives no answer
	pause  *time.Timer                    // ends that
	delay  time.Duration                  // of the last pause
	silent map[string]struct{}            // keys that got no answer since another one did
	ended  bool
	brakes limits // of the keys that were written lately
	lines  limits // of the groups that were written lately
	hidden int    // writes without a log line since the last one
}

// item is a key's offer and where it is.
type item struct {
	offer   Offer
	state   state
	next    *Offer // set while it was running; one without writes withdraws
	timer   *time.Timer
	failure failure
	what    string // the write that failed
	stale   bool   // the failure may come from an old view of the object
	silent  bool   // the failure is that there was no answer
	early   bool   // it waits because its offer requires it

	since, nextSince time.Time // the object needs something, and what it needs next
}

// lane has the items that are ready, in turns between groups.
type lane struct {
	ready map[string][]*item // by group, the first to be offered first
	turns []string           // groups with ready items, the next one first
}

// After this many offers, one is taken from the lane of late offers, so that these are not delayed for ever.
const lateTurn = 8

type state int

const (
	blocked state = iota // by After
	ready
	running
	waiting // after a failure, for the brake, or for another offer
)

// NewQueue returns a Queue that does nothing until Run.
func NewQueue(o Options) *Queue {
	o.Least, o.Most = cmp.Or(o.Least, Least), cmp.Or(o.Most, Most)
	q := &Queue{o: o, items: map[string]*item{}, after: map[string]map[string]struct{}{},
		silent: map[string]struct{}{}, brakes: newLimits(objectRate, objectBurst), lines: newLimits(lineRate, lineBurst)}
	for i := range q.lanes {
		q.lanes[i].ready = map[string][]*item{}
	}
	q.wake = sync.NewCond(&q.mu)
	return q
}

// Set replaces the offers for some keys. An offer without writes withdraws the earlier one. Running writes are not
// interrupted. No write begins before all given offers are recorded. Any goroutine may call it.
func (q *Queue) Set(offers ...Offer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range offers {
		q.set(o)
	}
}

func (q *Queue) set(o Offer) {
	it := q.items[o.Key]
	switch {
	case it == nil && len(o.Writes) == 0:
	case it == nil:
		it = &item{offer: o, since: time.Now()}
		q.items[o.Key] = it
		q.start(it)
	case it.state == running:
		if it.next == nil {
			it.nextSince = time.Now()
		}
		it.next = &o
	case len(o.Writes) == 0:
		if it.failure.reported != nil {
			q.report(it.offer, nil)
		}
		q.drop(it)
	case it.state == ready && it.offer.Group == o.Group && it.offer.Late == o.Late:
		it.offer = o // its turn stays
	default:
		q.leave(it)
		it.offer = o
		// A write that failed because it came from an old view need not wait: this is a newer one.
		if it.state != waiting || (it.stale || it.early && o.Wait == 0) && it.timer.Stop() {
			it.early = false
			q.admit(it)
		}
	}
}

// Hold stops new writes until Resume. Meanwhile offers are recorded, and writes that are withdrawn are never done.
// Running writes continue.
func (q *Queue) Hold() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = true
}

// Resume goes on after Hold, at once also with what got no answer before.
func (q *Queue) Resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.held {
		return
	}
	if q.paused {
		q.pause.Stop()
	}
	q.held, q.paused, q.delay = false, false, 0
	clear(q.silent)
	for _, key := range slices.Sorted(maps.Keys(q.items)) {
		if it := q.items[key]; it.state == waiting && it.silent && it.timer.Stop() {
			it.failure.delay = 0
			q.admit(it)
		}
	}
	q.wake.Broadcast()
}

// Len is how many objects need something.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Problems returns the problems of writes that were refused, or keep failing, ordered by object.
func (q *Queue) Problems() []problem.Problem {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []problem.Problem
	for _, it := range q.items {
		if it.failure.reported != nil {
			out = append(out, *it.failure.reported)
		}
	}
	slices.SortFunc(out, func(a, b problem.Problem) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// Run does what is offered until ctx ends, and returns when no write runs any more.
func (q *Queue) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ended = true
		for _, it := range q.items {
			if it.timer != nil {
				it.timer.Stop()
			}
		}
		q.wake.Broadcast()
	})
	defer stop()
	var workers sync.WaitGroup
	if q.o.Again != nil {
		workers.Go(func() { q.again(ctx) })
	}
	for range q.o.Parallel {
		workers.Go(func() {
			for {
				it, ok := q.take()
				if !ok {
					return
				}
				q.done(it, q.do(ctx, it.offer))
			}
		})
	}
	workers.Wait()
}

// again calls Options.Again until ctx ends.
func (q *Queue) again(ctx context.Context) {
	tick := time.NewTicker(againEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			q.o.Again(ctx)
		}
	}
}

// failed is a write of an offer that failed, and how.
type failed struct {
	write Write
	err   error
}

// do does the writes of one offer, up to the first that fails.
func (q *Queue) do(ctx context.Context, o Offer) *failed {
	for _, w := range o.Writes {
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, writeLimit)
		err := w.Do(limited)
		cancel()
		if q.o.Wrote != nil {
			q.o.Wrote(time.Since(start), err)
		}
		if err != nil {
			return &failed{w, err}
		}
		q.wrote(o.Group, w.What)
	}
	return nil
}

// wrote logs a write, if its group has not had too many lines lately.
func (q *Queue) wrote(group, what string) {
	if q.o.Quiet {
		return
	}
	q.mu.Lock()
	hidden := q.hidden
	q.hidden++
	shown := q.lines.of(group).Allow()
	if shown {
		q.hidden = 0
	}
	q.mu.Unlock()
	switch {
	case !shown:
		q.o.Log.Debug("wrote", "what", what)
	case hidden > 0:
		q.o.Log.Info("wrote", "what", what, "alsoWithoutLine", hidden)
	default:
		q.o.Log.Info("wrote", "what", what)
	}
}

// take waits for the next offer whose turn it is; ok is false at the end.
func (q *Queue) take() (_ *item, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for !q.ended && (q.paused || q.held || len(q.lanes[0].turns)+len(q.lanes[1].turns) == 0) {
			q.wake.Wait()
		}
		if q.ended {
			return nil, false
		}
		q.takes++
		from := &q.lanes[0]
		if late := &q.lanes[1]; len(from.turns) == 0 || q.takes%lateTurn == 0 && len(late.turns) > 0 {
			from = late
		}
		it := from.take()
		if q.comesAfter(it) { // that was offered later
			q.block(it)
			continue
		}
		it.state = running
		return it, true
	}
}

func (l *lane) take() *item {
	group := l.turns[0]
	l.turns = l.turns[1:]
	it := l.ready[group][0]
	if l.ready[group] = l.ready[group][1:]; len(l.ready[group]) > 0 {
		l.turns = append(l.turns, group)
	} else {
		delete(l.ready, group)
	}
	return it
}

// done takes note of what became of an offer.
func (q *Queue) done(it *item, f *failed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	offer, before := it.offer, it.failure.reported
	next := it.next
	it.next = nil
	if f == nil || answered(f.err) {
		q.delay = 0
		clear(q.silent)
	}
	if f == nil {
		it.failure, it.what, it.stale, it.silent = failure{}, "", false, false
		q.brake(offer.Key)
		if q.o.Done != nil {
			q.o.Done(it.offer, time.Since(it.since))
		}
		it.since = it.nextSince // what comes next, if anything, is of a later change
	} else {
		q.fails(it, *f)
	}
	now := it.failure.reported
	switch {
	case next == nil && f == nil, next != nil && len(next.Writes) == 0:
		now = nil
		q.drop(it)
	case next != nil && (f == nil || it.stale):
		it.offer = *next
		q.start(it)
	default:
		if next != nil {
			it.offer = *next
		}
		q.wait(it, time.Until(it.failure.until))
	}
	if (before == nil) != (now == nil) || before != nil && *before != *now {
		q.report(offer, now)
	}
}

// wait admits an item later.
func (q *Queue) wait(it *item, d time.Duration) {
	it.state = waiting
	key := it.offer.Key
	it.timer = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.items[key] == it && it.state == waiting {
			it.early = false
			q.admit(it)
		}
	})
	if q.ended {
		it.timer.Stop()
	}
}

// brake counts what was written of a key.
func (q *Queue) brake(key string) {
	q.brakes.of(key).Reserve()
}

// rest is how long a key that was written too often has to wait.
func (q *Queue) rest(key string) time.Duration {
	if l := q.brakes.byKey[key]; l != nil {
		return time.Duration(max(0, 1-l.Tokens()) / float64(objectRate) * float64(time.Second))
	}
	return 0
}

// fails notes one more failure of an item.
func (q *Queue) fails(it *item, f failed) {
	if it.what != f.write.What {
		it.failure, it.what = failure{}, f.write.What
	}
	it.stale, it.silent = stale(f.err), !answered(f.err)
	if it.silent {
		q.silent[it.offer.Key] = struct{}{}
	}
	away := it.silent && (Lost(f.err) || len(q.silent) >= silentKeys)
	it.failure = it.failure.again(f.write, f.err, away, q.o.Least, q.o.Most)
	q.o.Log.Debug("write is tried again", "what", f.write.What, "in", it.failure.delay, "error", f.err)
	if !away || q.paused || q.ended {
		return
	}
	q.delay = nextDelay(q.delay, q.o.Least, q.o.Most)
	q.paused = true
	q.o.Log.Error("the API server gives no answer; trying again", "in", q.delay, "what", f.write.What, "error", f.err)
	var pause *time.Timer
	pause = time.AfterFunc(q.delay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.pause == pause {
			q.paused = false
			q.wake.Broadcast()
		}
	})
	q.pause = pause
}

// ReportTo returns a function for Options.Reported that logs Problems as they come.
func ReportTo(log *problemlog.Log) func(Offer, *problem.Problem) {
	return func(_ Offer, p *problem.Problem) {
		if p != nil {
			log.Changed([]problem.Problem{*p}, nil)
		}
	}
}

func (q *Queue) report(o Offer, p *problem.Problem) {
	if q.o.Reported != nil {
		q.o.Reported(o, p)
	}
}

// start admits an item, at once or when its offer has waited.
func (q *Queue) start(it *item) {
	if it.early = it.offer.Wait > 0; it.early {
		q.wait(it, it.offer.Wait)
	} else {
		q.admit(it)
	}
}

// admit makes an item ready, or has it wait for its predecessor.
func (q *Queue) admit(it *item) {
	if q.comesAfter(it) {
		q.block(it)
		return
	}
	if d := q.rest(it.offer.Key); d > 0 {
		q.wait(it, d)
		return
	}
	it.state = ready
	l, group := q.lane(it), it.offer.Group
	if len(l.ready[group]) == 0 {
		l.turns = append(l.turns, group)
	}
	l.ready[group] = append(l.ready[group], it)
	q.wake.Signal()
}

// comesAfter reports whether an item has to wait for another, which does not wait for it.
func (q *Queue) comesAfter(it *item) bool {
	first := q.items[it.offer.After]
	for other := first; other != nil; other = q.items[other.offer.After] {
		if other == it {
			return false
		}
		if other.state != blocked {
			break
		}
	}
	return first != nil
}

func (q *Queue) block(it *item) {
	it.state = blocked
	if q.after[it.offer.After] == nil {
		q.after[it.offer.After] = map[string]struct{}{}
	}
	q.after[it.offer.After][it.offer.Key] = struct{}{}
}

// leave removes an item from the items that wait for their turn, or for another.
func (q *Queue) leave(it *item) {
	switch it.state {
	case ready:
		q.unready(it)
	case blocked:
		keys := q.after[it.offer.After]
		if delete(keys, it.offer.Key); len(keys) == 0 {
			delete(q.after, it.offer.After)
		}
	}
}

// unready removes an item from the items that wait for their turn.
func (q *Queue) unready(it *item) {
	l, group := q.lane(it), it.offer.Group
	l.ready[group] = slices.DeleteFunc(l.ready[group], func(other *item) bool { return other == it })
	if len(l.ready[group]) == 0 {
		delete(l.ready, group)
		l.turns = slices.DeleteFunc(l.turns, func(other string) bool { return other == group })
	}
}

func (q *Queue) lane(it *item) *lane {
	if it.offer.Late {
		return &q.lanes[1]
	}
	return &q.lanes[0]
}

// drop forgets an item, and goes on with its successors.
func (q *Queue) drop(it *item) {
	q.leave(it)
	if it.timer != nil {
		it.timer.Stop()
	}
	delete(q.items, it.offer.Key)
	delete(q.silent, it.offer.Key)
	blockedBy := q.after[it.offer.Key]
	delete(q.after, it.offer.Key)
	for _, key := range slices.Sorted(maps.Keys(blockedBy)) {
		q.admit(q.items[key])
	}
}
