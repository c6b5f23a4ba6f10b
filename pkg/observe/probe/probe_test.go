package probe

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// network carries probes of one prober, in a time of its own.
type network struct {
	*Prober
	t      *testing.T
	now    time.Time
	delay  func() time.Duration
	lost   func(Probe) bool
	flying []echo
	sent   int
	most   int // sent within one tick
}

type echo struct {
	Probe
	at time.Time
}

const tick = 100 * time.Millisecond

func newNetwork(t *testing.T) *network {
	nonce := uint64(0)
	n := &network{t: t, now: time.Unix(1000, 0),
		delay: func() time.Duration { return 20 * time.Millisecond }, lost: func(Probe) bool { return false }}
	n.Prober = New(func() uint64 { nonce++; return nonce << 32 })
	return n
}

// run lets time pass.
func (n *network) run(d time.Duration) {
	n.t.Helper()
	for end := n.now.Add(d); n.now.Before(end); n.now = n.now.Add(tick) {
		due := n.Due(n.now)
		n.most = max(n.most, len(due))
		n.sent += len(due)
		for _, p := range due {
			n.Sending(p, n.now)
			if !n.lost(p) {
				n.flying = append(n.flying, echo{p, n.now.Add(n.delay())})
			}
		}
		var later []echo
		for _, e := range n.flying {
			if e.at.After(n.now.Add(tick)) {
				later = append(later, e)
			} else if err := n.Take(e.Probe, e.at); err != nil && !errors.Is(err, ErrLate) {
				n.t.Fatalf("%+v: %v", e, err)
			}
		}
		n.flying = later
	}
}

func (n *network) only() api.ProbedWay {
	n.t.Helper()
	ways, _ := n.Results()
	if len(ways) != 1 {
		n.t.Fatalf("%d ways, want 1", len(ways))
	}
	return ways[0]
}

var one = Way{Peer: "west", To: "192.0.2.1", Port: 7, MTU: 1450, Up: true}

func TestTimesAndLoss(t *testing.T) {
	n := newNetwork(t)
	i := 0
	n.delay = func() time.Duration { i++; return time.Duration(i%100+1) * time.Millisecond }
	n.lost = func(p Probe) bool { return p.Size == smallSize && p.Seq%10 == 0 }
	n.Set(n.now, []Way{{Peer: "west", To: "192.0.2.1", Port: 7, Up: true}})
	n.run(400*time.Second + 2*Timeout)
	w := n.only()
	near := func(what string, have, want, by float64) {
		if math.Abs(have-want) > by {
			t.Errorf("%s is %v, want %v", what, have, want)
		}
	}
	near("p50", w.P50Seconds, .050, .006)
	near("p99", w.P99Seconds, .099, .002)
	near("loss60", w.Loss60, .1, .001)
	near("loss300", w.Loss300, .1, .001)
	if w.Samples != newest || w.Lost < 39 || w.Lost > 41 || w.Size != 0 {
		t.Errorf("have %+v", w)
	}
	n.Histograms(func(_ Way, h Histogram) {
		if h.Count != w.Sent-w.Lost || h.Below[.05] < h.Count*45/100 || h.Below[.1] != h.Count || h.Below[1] != h.Count {
			t.Errorf("histogram %+v of %+v", h, w)
		}
	})
	n.lost = func(Probe) bool { return false }
	n.run(61 * time.Second)
	if w := n.only(); w.Loss60 != 0 || w.Loss300 == 0 {
		t.Errorf("after a minute without loss: %+v", w)
	}
}

// TestSize measures the largest packet exactly, also with loss, and after the way has changed. While nothing passes,
// the result stays.
func TestSize(t *testing.T) {
	for _, loss := range []int{0, 5} {
		t.Run(fmt.Sprint("loss of ", loss), func(t *testing.T) {
			n := newNetwork(t)
			limit := 0
			rnd := rand.New(rand.NewPCG(1, 2))
			n.lost = func(p Probe) bool { return p.Size > limit || rnd.IntN(100) < loss }
			n.Set(n.now, []Way{one})
			for _, limit = range []int{1450, 1400, 1401, 1399, 9000, 1000, 576, 1449, 68, 1450} {
				n.run(2*sizeEvery + 20*time.Second)
				if have, want := n.only().Size, min(limit, 1450); have != want {
					t.Errorf("limit %d: the size is %d, want %d", limit, have, want)
				}
			}
			at := n.only().SizeAt
			limit = 0
			n.run(2 * sizeEvery)
			if w := n.only(); w.Size != 1450 || w.SizeAt == nil || w.SizeAt.Sub(*at) > sizeEvery {
				t.Errorf("while nothing passes: %+v", w)
			}
		})
	}
}

// TestUnaskedEchoes takes echoes that are no sample.
func TestUnaskedEchoes(t *testing.T) {
	n := newNetwork(t)
	n.Set(n.now, []Way{one})
	first := n.Due(n.now)[0]
	n.Sending(first, n.now)
	take := func(what string, p Probe, after time.Duration, want error) {
		t.Helper()
		if err := n.Take(p, n.now.Add(after)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	other := first
	other.Nonce++
	take("another nonce", other, 0, ErrForeign)
	other = first
	other.Seq++
	take("not sent yet", other, 0, ErrForeign)
	other = first
	other.Port++
	take("another port", other, 0, ErrForeign)
	other = first
	other.Size--
	take("cut", other, 0, ErrOld)
	take("in time", first, Timeout-1, nil)
	take("twice", first, Timeout-1, ErrOld)
	n.now = n.now.Add(interval)
	second := n.Due(n.now)[0]
	n.Sending(second, n.now)
	take("late", second, Timeout, ErrLate)
	take("late twice", second, Timeout, ErrOld)
	n.now = n.now.Add(interval)
	third := n.Due(n.now)[0]
	n.now = n.now.Add(lateKept + 2*Timeout)
	n.Due(n.now)
	n.now = n.now.Add(lateKept)
	n.Due(n.now)
	take("after long", third, 0, ErrOld)
	ways, foreign := n.Results()
	if w := ways[0]; foreign != 3 || w.Late != 1 || w.Old != 4 || w.Sent-w.Lost != 1 {
		t.Errorf("%d foreign, %+v", foreign, w)
	}
}

// TestDown sends nothing while BFD reports the way down, and counts nothing as lost.
func TestDown(t *testing.T) {
	n := newNetwork(t)
	n.Set(n.now, []Way{one})
	n.run(10 * time.Second)
	before := n.only()
	down := one
	down.Up = false
	n.Due(n.now)
	n.Set(n.now, []Way{down})
	sent := n.sent
	n.run(time.Minute)
	after := n.only()
	if n.sent != sent || after.Lost != 0 || !after.Paused || after.Size != 0 || before.Size != 1450 {
		t.Errorf("before %+v, after %+v, %d sent meanwhile", before, after, n.sent-sent)
	}
	n.Set(n.now, []Way{one})
	n.run(10 * time.Second)
	if w := n.only(); w.Lost != 0 || w.Paused || w.Size != 1450 || w.Sent < before.Sent+9 {
		t.Errorf("up again: %+v", w)
	}
	probe := n.Due(n.now.Add(interval))[0]
	n.Unsent(probe)
	n.now = n.now.Add(3 * interval)
	n.Due(n.now)
	if w := n.only(); w.Lost != 0 {
		t.Errorf("a probe that the switch did not get is lost: %+v", w)
	}
	moved := one
	moved.Port++
	n.Set(n.now, []Way{moved})
	if w := n.only(); w.Sent != 0 {
		t.Errorf("a way at another port has results of the earlier one: %+v", w)
	}
}

// TestRate bounds the probes of many ways, whatever becomes of them.
func TestRate(t *testing.T) {
	for _, ways := range []int{1, 16, 40, 1000, 1100} {
		for _, lost := range []bool{false, true} {
			n := newNetwork(t)
			n.lost = func(p Probe) bool { return lost && (p.Size > 1400 || p.Seq%3 == 0) }
			var list []Way
			for i := range ways {
				w := one
				w.Port, w.To = uint32(i+1), fmt.Sprint(i)
				list = append(list, w)
			}
			n.Set(n.now, list)
			n.run(2 * time.Minute)
			if rate := float64(n.sent) / 120; rate > 80 || n.most > 2*maxSearches+fastWays/2 {
				t.Errorf("%d ways: %.1f probes a second, at most %d at once", ways, rate, n.most)
			}
			have, _ := n.Results()
			if want := min(ways, MaxWays); len(have) != want {
				t.Errorf("%d ways have results, want %d", len(have), want)
			}
			for _, w := range n.ways {
				if len(w.pending) > 8 || len(w.expired) > 40 {
					t.Fatalf("%d pending, %d expired", len(w.pending), len(w.expired))
				}
			}
		}
	}
}
