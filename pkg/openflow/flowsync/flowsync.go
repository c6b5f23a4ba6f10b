// Package flowsync is the only writer of a switch's flow, group and meter tables. Owners declare what they want; one
// goroutine compares that with what the switch holds and sends the difference in one atomic bundle, except for meters,
// which Open vSwitch does not accept in bundles: new ones are sent before it, unwanted ones removed after it. A new
// connection, a restarted switch and another program's change are the same case: compare, and send the difference.
//
// A group that changes is sent whole. The order of buckets has a meaning in fast-failover groups alone; of others they
// are kept by their numbers.
//
// The switch's entries are compared undecoded, part by part as they come. The lock is let go after each part and each
// few slots, so that the connection's reader and owners do not wait for a comparison.
//
// # States of a slot
//
// A slot is what is known of one flow or group: want is what its owner declares, have is what the switch holds as far
// as is known. "" is nothing. A change of either marks the slot dirty; plan looks at dirty slots only.
//
//		                 Set                      plan, send             confirm
//		  (no slot) ────────────► missing ───────────────────► in bundle ─────────► done
//		      ▲                want, have ""      have := want     │  │         want == have
//		      │                                   before := have   │  │           │     │
//		      │ tidy                                               │  │ refused   │     │ Set of another form, or a
//		      │                               connection is lost:  │  ▼           │     │ foreign change (foreign is set)
//		      │                               read again ◄─────────┘ refused      │     ▼
//		      │                                                   until := back-off  different
//		      │                                                       │           │  want != have
//		      │                                                       └──► dirty ◄┼─────┘
//		      │      confirm                 plan, send (released)                │ Set without it
//		    gone ◄──────────── in bundle ◄─────────────────────── unwanted ◄──────┘
//		  have ""                                                want "", have
//
//	  - doubt: the switch reported the slot while a bundle with it was under way, so the report may be older or newer
//	    than the bundle. The flow is sent once more.
//	  - refused: the entry is held back and tried again with back-off, or at once when what it needed came:
//	    a group, a meter, or room in the table.
//	  - unwanted: stays until Release, that is until every source of declarations has loaded once.
//	  - reserved: a read or a bundle under way refers to the slot, so tidy does not remove it.
package flowsync

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Options of a Syncer.
type Options struct {
	Dial ofconn.Dialer
	// Instance is the upper 16 bits of our flows' cookies. Flows with another instance are not ours and are never changed.
	// All groups and meters of the switch are ours.
	Instance uint16
	// PacketIn gets the packets that flows send to the controller. It must not block.
	PacketIn   func(ofp.PacketIn2)
	Logger     *slog.Logger          // may be nil
	Registerer prometheus.Registerer // may be nil
	// Compare is the interval at which everything is read and compared even without a report; default a minute. Groups and
	// meters are compared every GroupCompare, default half a minute. The switch reports changes that another program
	// requests, but not the consequences of these changes.
	Compare, GroupCompare time.Duration
}

// Stats is what a Syncer has done and how it is.
type Stats struct {
	Connected   bool
	Connections uint64
	Sent        map[string]uint64 // messages on the connections so far, by OpenFlow type
	FlowMods    uint64            // flow-mods sent
	GroupMods   uint64
	MeterMods   uint64
	Bundles     uint64
	Mended      uint64 // foreign changes put right
	Flows       int    // wanted
	Groups      int    // wanted
	Meters      int    // wanted
	LastError   string // why there is no connection, or why the last refused bundle was; "" when all is well again
	Refused     []string
}

// refusal is an entry that the switch did not take.
type refusal struct {
	form  form
	text  string // where there is no form
	err   error
	until time.Time
	delay time.Duration
}

// of is what was refused, in words.
func (r *refusal) of(sl *slot) string {
	if r.text != "" {
		return brief(r.text)
	}
	return brief(sl.id.text(r.form))
}

const (
	refusalMin = time.Second
	refusalMax = time.Minute
	redialMin  = 50 * time.Millisecond
	redialMax  = time.Second
	requestMax = 30 * time.Second
	forwardMin = 200 * time.Millisecond // between reads of the groups, while others change them
	settleMin  = 250 * time.Millisecond // after a connection was lost at work, between looks at
	settleMax  = 8 * time.Second        // what the switch made of it
)

// Syncer keeps one switch as its owners want it.
type Syncer struct {
	options Options
	log     *slog.Logger
	counts  ofconn.Counters
	latency prometheus.Histogram
	trigger chan struct{}
	torn    bool          // the last connection was lost in a round; for Run alone
	redial  time.Duration // at most so long between two attempts to connect

	// mu guards the rest, and the methods of its parts are called with it.
	mu       sync.Mutex
	owners   owners
	slots    *slots
	meters   meters
	released bool
	stale    stale
	progress progress
	session  *session // nil without a connection
	stats    Stats
	reasons  reasons
}

// stale is what has to be read again.
type stale struct {
	all        bool      // something was reported that cannot be followed
	groups     bool      // the same for groups alone
	forwarded  bool      // another program has changed a group or a meter
	groupsRead time.Time // when the last read of the groups began
}

// due returns whether everything has to be read now, and whether groups have to be.
func (st *stale) due() (all, groups bool) {
	return st.all, st.groups || st.forwarded && time.Since(st.groupsRead) >= forwardMin
}

// reading notes that a read of the groups begins, and if all is true of everything.
func (st *stale) reading(all bool) {
	st.groups, st.forwarded, st.groupsRead = false, false, time.Now()
	if all {
		st.all = false
	}
}

// progress counts declarations, and which of them the switch has confirmed.
type progress struct {
	gen     uint64        // counts declarations
	waiting time.Time     // of the first declaration that no round has taken up; zero if there is no such declaration
	synced  uint64        // the last declaration that the switch has confirmed
	changed chan struct{} // closed and replaced when synced, refused or the connection changes
}

// declared counts a declaration.
func (p *progress) declared() {
	p.gen++
	if p.waiting.IsZero() {
		p.waiting = time.Now()
	}
}

// take returns the number of the last declaration, and the time of the first declaration that no round has handled yet.
func (p *progress) take() (gen uint64, since time.Time) {
	gen, since = p.gen, p.waiting
	p.waiting = time.Time{}
	return gen, since
}

// wake wakes waiters after a change.
func (p *progress) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// New returns a Syncer that does nothing until Run.
func New(o Options) *Syncer {
	if o.Compare == 0 {
		o.Compare = time.Minute
	}
	if o.GroupCompare == 0 {
		o.GroupCompare = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Syncer{
		options: o,
		log:     o.Logger.With("component", "flowsync"),
		trigger: make(chan struct{}, 1),
		redial:  redialMax,
		slots:   newSlots(),
		meters:  newMeters(),
		latency: newLatency(),
		reasons: reasons{},
		progress: progress{
			changed: make(chan struct{}),
			gen:     1, // so that nothing declared is confirmed by the first round, and no later one with it
		},
	}
	s.owners = newOwners(s.slots, o.Instance)
	if o.Registerer != nil {
		o.Registerer.MustRegister(collector{s}, s.latency)
	}
	return s
}

func (s *Syncer) signal() {
	select {
	case s.trigger <- struct{}{}:
	default:
	}
}

// Cookie returns the cookie of an owner's flows. Two owners may have one cookie by chance.
func (s *Syncer) Cookie(o flow.Owner) uint64 { return s.owners.cookie(o) }

// Set declares all desired entries of the owner o, which replace its earlier entries, and returns at once. An owner
// without entries is removed.
func (s *Syncer) Set(o flow.Owner, e flow.Entries) {
	s.SetSome(func(yield func(flow.Owner, flow.Entries) bool) { yield(o, e) })
}

// SetSome declares the entries of several owners, as Set does, but all at once. So an entry that moves from one owner
// to another is not missing in between.
func (s *Syncer) SetSome(some iter.Seq2[flow.Owner, flow.Entries]) {
	s.mu.Lock()
	for o, e := range some {
		meters := s.meters.set(o, e.Meters)
		if s.owners.set(o, e) || meters {
			s.progress.declared()
		}
	}
	s.mu.Unlock()
	s.signal()
}

// Release allows removals. The caller has loaded every source of declarations once. Before that, undesired flows and
// groups stay.
func (s *Syncer) Release() {
	s.mu.Lock()
	if !s.released {
		s.released = true
		s.meters.dirty = true
		for sl := range s.slots.all {
			if (sl.have != "" || sl.doubt) && sl.owner == nil {
				s.slots.mark(sl)
			}
		}
		s.progress.declared()
	}
	s.mu.Unlock()
	s.signal()
}

// Synced waits until the switch has confirmed all declarations before the call. If an entry of these owners was
// refused, it returns an error that names the flow. Without arguments it considers all owners. It also returns an error
// if ctx ends.
func (s *Syncer) Synced(ctx context.Context, owners ...flow.Owner) error {
	s.mu.Lock()
	gen := s.progress.gen
	s.mu.Unlock()
	for {
		s.mu.Lock()
		changed := s.progress.changed
		if s.session != nil && s.progress.synced >= gen {
			err := s.refusals(owners)
			s.mu.Unlock()
			return err
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %s", ctx.Err(), s.why())
		case <-changed:
		}
	}
}

// why returns the reason for which Synced was waiting.
func (s *Syncer) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return "no connection to the switch: " + s.stats.LastError
	}
	return "the switch has not confirmed yet"
}

// refusals joins what was refused of some owners; s.mu is held.
func (s *Syncer) refusals(owners []flow.Owner) error {
	var errs []error
	for sl, r := range s.slots.refused {
		for c := range sl.claims {
			if (len(owners) == 0 || slices.Contains(owners, c.owner.Owner)) && !sl.against(*c) {
				errs = append(errs, fmt.Errorf("%s wants %s: %w", c.owner, r.of(sl), r.err))
				break
			}
		}
	}
	if len(owners) > 0 {
		for _, o := range owners {
			if o := s.owners.all[o]; o != nil {
				errs = append(errs, o.twice...)
			}
		}
		errs = append(errs, s.owners.conflicts(func(o *owner) bool { return slices.Contains(owners, o.Owner) })...)
	}
	errs = append(errs, s.meters.problems(owners)...)
	return errors.Join(errs...)
}

// Refused returns the owners with entries that are not in the switch, each with a reason: the switch refused them, or
// another owner wants them differently.
func (s *Syncer) Refused() map[flow.Owner]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[flow.Owner]error{}
	for sl, r := range s.slots.refused {
		for c := range sl.claims {
			if !sl.against(*c) {
				out[c.owner.Owner] = fmt.Errorf("%s: %w", r.of(sl), r.err)
			}
		}
	}
	for sl := range s.owners.contested {
		for _, c := range *sl.more {
			if sl.against(c) {
				out[c.owner.Owner] = fmt.Errorf("%s: %s wants it as %s", c.text(sl.id), sl.owner, sl.text(sl.id))
			}
		}
	}
	return out
}

// PacketOut sends a packet through the switch. If the switch does not read, it waits, at most until ctx ends.
func (s *Syncer) PacketOut(ctx context.Context, p ofp.PacketOut) error {
	s.mu.Lock()
	se := s.session
	s.mu.Unlock()
	if se == nil {
		return errors.New("no connection to the switch")
	}
	return se.conn.SendContext(ctx, p)
}

// Stats returns counters of the work done, and the present state.
func (s *Syncer) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Connected = s.session != nil
	if st.Connected && len(s.slots.refused) == 0 && len(s.meters.refused) == 0 {
		st.LastError = "" // what it was about is over
	}
	st.Sent = s.counts.SentByName()
	st.FlowMods, st.GroupMods = s.counts.Sent(ofp.TypeFlowMod), s.counts.Sent(ofp.TypeGroupMod)
	st.MeterMods = s.counts.Sent(ofp.TypeMeterMod)
	st.Flows, st.Groups, st.Meters = s.owners.wanted.flows, s.owners.wanted.groups, len(s.meters.claims)
	for sl, r := range s.slots.refused {
		owner := "nobody"
		if sl.owner != nil {
			owner = sl.owner.String()
		}
		st.Refused = append(st.Refused, fmt.Sprintf("%s wants %s: %v", owner, r.of(sl), r.err))
	}
	errs := s.owners.conflicts(func(*owner) bool { return true })
	for _, o := range s.owners.all {
		errs = append(errs, o.twice...)
	}
	for _, err := range append(errs, s.meters.problems(slices.Collect(maps.Keys(s.meters.owners)))...) {
		st.Refused = append(st.Refused, err.Error())
	}
	slices.Sort(st.Refused)
	return st
}
