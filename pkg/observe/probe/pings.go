package probe

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

const (
	// MaxTargets bounds the addresses that are pinged.
	MaxTargets = 4000
	// pingsPerSecond bounds how many of them are pinged in a second.
	pingsPerSecond = 100
)

// Target is an address of a Node that is pinged.
type Target struct {
	Node string
	Addr netip.Addr
}

// Ping is an echo request.
type Ping struct {
	Addr  netip.Addr
	Nonce uint64
	Seq   uint32
}

// Pings decides which echo requests to Nodes are due, and keeps the results of their replies. It sends nothing, and has
// no clock. All its methods may be called at the same time.
type Pings struct {
	nonce func() uint64

	mu      sync.Mutex
	every   time.Duration
	targets map[netip.Addr]*target
	order   []*target // by Node and address
	foreign uint64
}

// target is the state of one address. At most one request waits for its reply, since the time between two requests is
// at least Timeout.
type target struct {
	Target
	nonce   uint64
	seq     uint32
	next    time.Time
	sent    time.Time // when the request seq was sent; zero once its result is known
	lost    bool      // the request seq was lost, and its reply would be late
	results results

	lastSent, lastReceived time.Time // of any request and reply
}

// NewPings returns Pings without targets. nonce returns random numbers that others cannot guess.
func NewPings(nonce func() uint64) *Pings {
	return &Pings{nonce: nonce, targets: map[netip.Addr]*target{}}
}

// Set sets the targets, and the time between two requests to each. The time is raised to at least a second, and further
// if more than pingsPerSecond requests a second would be sent. Targets that stay keep their results.
func (p *Pings) Set(now time.Time, targets []Target, every time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets = targets[:min(len(targets), MaxTargets)]
	turn := max(Timeout, time.Duration(len(targets))*time.Second/pingsPerSecond) // in which each gets one
	p.every = max(every, turn)
	keep := make(map[netip.Addr]*target, len(targets))
	p.order = p.order[:0]
	for i, to := range targets {
		t := p.targets[to.Addr]
		if t == nil || t.Target != to {
			first := now.Add(turn * time.Duration(i) / time.Duration(len(targets)))
			t = &target{Target: to, nonce: p.nonce(), next: first}
		}
		if t.next.After(now.Add(p.every)) { // the time between two has become shorter
			t.next = now.Add(turn * time.Duration(i) / time.Duration(len(targets)))
		}
		if keep[to.Addr] == nil {
			keep[to.Addr], p.order = t, append(p.order, t)
		}
	}
	p.targets = keep
	slices.SortFunc(p.order, func(a, b *target) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), a.Addr.Compare(b.Addr))
	})
}

// Due returns the requests that have to be sent now. Call it ten times a second.
func (p *Pings) Due(now time.Time) (out []Ping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.order {
		if !t.sent.IsZero() && now.Sub(t.sent) >= Timeout {
			t.miss()
		}
	}
	for _, t := range p.order {
		if now.Before(t.next) || !t.sent.IsZero() || len(out) > pingsPerSecond/10 {
			continue
		}
		if t.next = t.next.Add(p.every); t.next.Before(now) {
			t.next = now.Add(p.every)
		}
		t.seq++
		t.sent, t.lost = now, false
		out = append(out, Ping{t.Addr, t.nonce, t.seq})
	}
	return out
}

func (t *target) miss() {
	t.results.missed()
	t.sent, t.lost = time.Time{}, true
}

// Sending sets the time at which a request is sent.
func (p *Pings) Sending(one Ping, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.targets[one.Addr]; t != nil && t.nonce == one.Nonce && t.seq == one.Seq && !t.sent.IsZero() {
		t.sent, t.lastSent = now, now
	}
}

// Unsent takes a request back that the host has not sent. It is no loss.
func (p *Pings) Unsent(one Ping) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.targets[one.Addr]; t != nil && t.nonce == one.Nonce && t.seq == one.Seq {
		t.sent = time.Time{}
	}
}

// Take handles a reply. If the reply gives no sample, the error is ErrForeign, ErrLate or ErrOld.
func (p *Pings) Take(reply Ping, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[reply.Addr]
	switch {
	case t == nil || t.nonce != reply.Nonce || reply.Seq > t.seq:
		p.foreign++
		return ErrForeign
	case reply.Seq == t.seq && !t.sent.IsZero() && now.Sub(t.sent) < Timeout:
		t.results.answered(now.Sub(t.sent))
		t.sent, t.lastReceived = time.Time{}, now
		return nil
	case reply.Seq == t.seq && !t.sent.IsZero():
		t.miss()
	}
	if reply.Seq == t.seq && t.lost {
		t.results.late++
		t.lost, t.lastReceived = false, now
		return ErrLate
	}
	t.results.old++
	return ErrOld
}

// Results returns the results by Node and address, and the number of foreign replies.
func (p *Pings) Results() (out []api.ProbedNode, foreign uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.order {
		out = append(out, api.ProbedNode{Node: t.Node, To: t.Addr.String(), ProbeResult: t.results.result(),
			LastSent: t.lastSent, LastReceived: t.lastReceived})
	}
	return out, p.foreign
}
