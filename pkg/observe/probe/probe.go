// Package probe measures ways between clusters: the round-trip time, the loss and the largest packet that passes. It
// decides which probes are due and keeps the results of their echoes. It sends nothing, and has no clock.
package probe

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

const (
	// Timeout is when a probe counts as lost.
	Timeout = time.Second
	// interval is the time between two probes of a way. With more than fastWays ways it is longer, so that the number of
	// probes a second does not grow further.
	interval = time.Second
	fastWays = 40
	// smallSize is the size of the probes that measure time and loss.
	smallSize = 64
	// lateKept is how long the loss of a probe is remembered, so that its echo counts as late.
	lateKept = 30 * time.Second
	// MaxWays bounds the ways that are measured.
	MaxWays = 1000
)

// Way is a way to measure.
type Way struct {
	Peer, To string // the cluster, and the address of its gateway
	Port     uint32 // in the switch
	MTU      int    // the largest packet that Pods send; 0 if it is not known yet
	Up       bool   // by BFD; a way that is down is not probed
}

// key returns what makes a way this one. A way at another port is another way.
func (w Way) key() Way { return Way{Peer: w.Peer, To: w.To, Port: w.Port} }

// Probe is one probe. Its size is what an IP packet would have in its place.
type Probe struct {
	Port  uint32
	Nonce uint64
	Seq   uint32
	Size  int
}

// Errors of echoes that are no sample.
var (
	ErrForeign = errors.New("the echo is of no probe of this agent")
	ErrLate    = errors.New("the echo came after more than a second")
	ErrOld     = errors.New("the echo's probe was answered or is forgotten")
)

// Prober has the state of all ways. All its methods may be called at the same time.
type Prober struct {
	nonce func() uint64

	mu      sync.Mutex
	ways    map[uint32]*way // by port
	order   []*way          // by cluster and address
	foreign uint64
}

// way is the state of one way.
type way struct {
	Way
	nonce   uint64
	seq     uint32
	next    time.Time // the next small probe
	pending map[uint32]pending
	expired map[uint32]time.Time // small probes that were lost
	results results
	size    sizing
}

// pending is a probe on its way.
type pending struct {
	at      time.Time
	size    int
	forSize bool
}

// New returns a prober. nonce returns random numbers that others cannot guess.
func New(nonce func() uint64) *Prober {
	return &Prober{nonce: nonce, ways: map[uint32]*way{}}
}

// Set sets the ways that are measured. Ways that stay keep their results.
func (p *Prober) Set(now time.Time, ways []Way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ways = ways[:min(len(ways), MaxWays)]
	keep := make(map[uint32]*way, len(ways))
	for i, to := range ways {
		w := p.ways[to.Port]
		if w == nil || w.key() != to.key() {
			// The first probes are spread, and so are all that follow.
			first := now.Add(every(len(ways)) * time.Duration(i) / time.Duration(len(ways)))
			w = &way{nonce: p.nonce(), next: first, pending: map[uint32]pending{}, expired: map[uint32]time.Time{}}
		}
		if to.MTU != w.MTU {
			w.size = sizing{mtu: to.MTU}
		}
		if w.Up && !to.Up { // what is on its way is lost with the way, which BFD reports
			clear(w.pending)
			w.size.forget()
		}
		w.Way = to
		keep[to.Port] = w
	}
	p.ways, p.order = keep, slices.SortedFunc(maps.Values(keep), func(a, b *way) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.To, b.To), cmp.Compare(a.Port, b.Port))
	})
}

// every is the time between two probes of a way.
func every(ways int) time.Duration {
	return max(interval, time.Duration(ways)*time.Second/fastWays)
}

// Due returns the probes that have to be sent now.
func (p *Prober) Due(now time.Time) (out []Probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	searches := 0
	for _, w := range p.order {
		w.expire(now)
		if w.size.active {
			searches++
		}
	}
	for _, w := range p.order {
		if !w.Up {
			continue
		}
		if !now.Before(w.next) {
			if w.next = w.next.Add(every(len(p.ways))); w.next.Before(now) {
				w.next = now.Add(every(len(p.ways)))
			}
			out = append(out, w.send(now, smallSize, false))
		}
		if !w.size.active && w.MTU > smallSize && !now.Before(w.size.next) && w.results.passes() && searches < maxSearches {
			searches++
			w.size.begin(now)
		}
		if w.size.due(now) {
			out = append(out, w.send(now, w.size.size, true))
		}
	}
	return out
}

func (w *way) send(now time.Time, size int, forSize bool) Probe {
	w.seq++
	w.pending[w.seq] = pending{now, size, forSize}
	return Probe{Port: w.Port, Nonce: w.nonce, Seq: w.seq, Size: size}
}

// expire counts the probes as lost whose time is over.
func (w *way) expire(now time.Time) {
	for seq, s := range w.pending {
		if now.Sub(s.at) >= Timeout {
			w.lose(seq, s, now)
		}
	}
	for seq, at := range w.expired {
		if now.Sub(at) >= lateKept {
			delete(w.expired, seq)
		}
	}
	if w.size.active && !w.results.passes() {
		w.size.drop() // it would measure the loss; the next probe that passes begins again
		w.size.next = now
	}
}

// lose takes a probe as lost.
func (w *way) lose(seq uint32, s pending, now time.Time) {
	delete(w.pending, seq)
	if !s.forSize {
		w.results.missed()
		w.expired[seq] = now
		return
	}
	same := 0
	for _, other := range w.pending {
		if other.forSize && other.size == s.size {
			same++
		}
	}
	w.size.missed(s.size, same, now)
}

// Sending sets the time at which a probe is handed to the switch.
func (p *Prober) Sending(probe Probe, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.ways[probe.Port]; w != nil {
		if s, ok := w.pending[probe.Seq]; ok && w.nonce == probe.Nonce {
			s.at = now
			w.pending[probe.Seq] = s
		}
	}
}

// Unsent takes a probe back that the switch has not got. It is no loss of the way.
func (p *Prober) Unsent(probe Probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.ways[probe.Port]
	if w == nil || w.nonce != probe.Nonce {
		return
	}
	if w.pending[probe.Seq].forSize {
		w.size.drop()
	}
	delete(w.pending, probe.Seq)
}

// Take takes an echo.
func (p *Prober) Take(echo Probe, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.ways[echo.Port]
	if w == nil || w.nonce != echo.Nonce || echo.Seq > w.seq {
		p.foreign++
		return ErrForeign
	}
	s, ok := w.pending[echo.Seq]
	if ok && now.Sub(s.at) >= Timeout {
		w.lose(echo.Seq, s, now)
		ok = false
	}
	if _, late := w.expired[echo.Seq]; !ok && late {
		delete(w.expired, echo.Seq)
		w.results.late++
		return ErrLate
	}
	if !ok || echo.Size != s.size {
		w.results.old++
		return ErrOld
	}
	delete(w.pending, echo.Seq)
	if s.forSize {
		w.size.passed(s.size, now)
	} else {
		w.results.answered(now.Sub(s.at))
	}
	return nil
}

// Results returns the results of all ways, by cluster and address, and the number of foreign echoes.
func (p *Prober) Results() (ways []api.ProbedWay, foreign uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ways = []api.ProbedWay{}
	for _, w := range p.order {
		out := api.ProbedWay{Peer: w.Peer, To: w.To, Paused: !w.Up, ProbeResult: w.results.result(), Size: w.size.known,
			MTU: w.MTU}
		if at := w.size.at; !at.IsZero() {
			out.SizeAt = &at
		}
		ways = append(ways, out)
	}
	return ways, p.foreign
}

// Histograms calls f with each way and its round-trip times.
func (p *Prober) Histograms(f func(Way, Histogram)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.order {
		f(w.Way, w.results.histogram())
	}
}
