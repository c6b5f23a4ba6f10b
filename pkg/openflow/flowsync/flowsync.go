// Package flowsync is the one writer of a switch's flow, group and meter tables. Owners declare what
// they want; one goroutine compares that with what the switch holds and sends the difference
// in one atomic bundle, but for meters, which Open vSwitch takes in none: they come before it and
// go after it. A new connection, a restarted switch and somebody else's change are
// the same case: compare, and send the difference.
package flowsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
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
	// Instance is the upper 16 bits of our flows' cookies. Flows under another instance
	// are not ours and never touched. All groups and meters of the switch are ours.
	Instance uint16
	// PacketIn gets the packets that flows send to the controller. It must not block.
	PacketIn   func(ofp.PacketIn2)
	Logger     *slog.Logger          // may be nil
	Registerer prometheus.Registerer // may be nil
	// Compare is how often everything is read and compared though nothing was reported;
	// default a minute. Groups and meters, whose changes no switch reports, are compared every
	// GroupCompare, default five seconds.
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
	LastError   string // why there is no connection, or why the last bundle failed
	Refused     []string
}

// ident is the switch's own identity of an entry: a flow's key or a group's number. It is as
// small as can be: there are several for each flow.
type ident struct {
	match    ofp.Match // or, behind a zero byte, what is wrong with it
	group    uint32
	priority uint16
	table    ofp.Table
	isGroup  bool
}

func identOf(f flow.Flow) ident {
	id := ident{match: f.Match.OXM(), priority: f.Priority, table: f.Table}
	if err := f.Match.Err(); err != nil {
		id.match = ofp.Match("\x00" + err.Error())
	}
	return id
}

func groupIdent(id uint32) ident { return ident{group: id, isGroup: true} }

// entry is a flow or a group.
type entry struct {
	flow  *flow.Flow
	group *flow.Group
}

func (e entry) equal(o entry) bool {
	if e == o {
		return true
	}
	if e.group != nil {
		return o.group != nil && e.group.Equal(*o.group)
	}
	return o.flow != nil && e.flow.Equal(*o.flow)
}

func (e entry) String() string {
	switch {
	case e.group != nil:
		return e.group.String()
	case e.flow != nil:
		return e.flow.String()
	}
	return "nothing"
}

func (e entry) err() error {
	if e.group != nil {
		return e.group.Err()
	}
	return e.flow.Err()
}

// claim is what one owner wants under an ident.
type claim struct {
	owner flow.Owner
	entry entry
}

// refusal is an entry that the switch did not take.
type refusal struct {
	entry entry
	err   error
	until time.Time
	delay time.Duration
}

const (
	refusalMin = time.Second
	refusalMax = time.Minute
	redialMin  = 50 * time.Millisecond
	redialMax  = time.Second
	requestMax = 30 * time.Second
	settleMin  = 250 * time.Millisecond // after a connection was lost at work, between looks at
	settleMax  = 8 * time.Second        // what the switch made of it
)

// Syncer keeps one switch as its owners want it.
type Syncer struct {
	options Options
	log     *slog.Logger
	counts  ofconn.Counters
	metrics *metrics
	bell    chan struct{}
	torn    bool          // the last connection was lost in a round; for Run alone
	redial  time.Duration // at most so long between two attempts to connect

	mu       sync.Mutex
	owners   map[flow.Owner]map[ident]entry
	twice    map[flow.Owner][]error // what owners want in two ways at once
	claims   map[ident][]claim      // in the owners' order; the first counts, others that differ are conflicts
	wanted   tally
	have     map[ident]entry // what the switch holds of ours, as far as is known
	dirty    map[ident]struct{}
	foreign  map[ident]struct{} // of dirty, what somebody else has changed
	doubt    map[ident]struct{} // what the switch may hold or not, whatever have says
	touched  map[ident]struct{} // what was reported during a read or a bundle; else nil
	removing map[uint32]bool    // groups whose removal is being sent
	refused  map[ident]*refusal
	meters   meters
	released bool
	reread   bool // something was reported that cannot be followed: read everything again
	regroup  bool // the same for groups alone
	conn     *ofconn.Conn
	follow   bool          // what was done makes more to do
	forgot   bool          // since the last plan something was dropped that nobody wants any more
	gen      uint64        // counts declarations
	waiting  time.Time     // of the first declaration that no round has taken up; zero while there is none
	synced   uint64        // the last declaration that the switch has confirmed
	changed  chan struct{} // closed and replaced when synced, refused or the connection changes
	stats    Stats
}

// New returns a Syncer that does nothing until Run.
func New(o Options) *Syncer {
	if o.Compare == 0 {
		o.Compare = time.Minute
	}
	if o.GroupCompare == 0 {
		o.GroupCompare = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Syncer{
		options: o,
		log:     o.Logger.With("component", "flowsync"),
		bell:    make(chan struct{}, 1),
		redial:  redialMax,
		owners:  map[flow.Owner]map[ident]entry{},
		twice:   map[flow.Owner][]error{},
		claims:  map[ident][]claim{},
		have:    map[ident]entry{},
		dirty:   map[ident]struct{}{},
		foreign: map[ident]struct{}{},
		doubt:   map[ident]struct{}{},
		refused: map[ident]*refusal{},
		meters:  newMeters(),
		changed: make(chan struct{}),
		gen:     1, // so that nothing declared is confirmed by the first round, and no later one with it
	}
	s.metrics = newMetrics(o.Registerer, s)
	return s
}

func (s *Syncer) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// cookie says in a flow whose it is: instance, kind, hash of the name.
func (s *Syncer) cookie(o flow.Owner) uint64 {
	h := fnv.New32a()
	h.Write([]byte(o.Name))
	return uint64(s.options.Instance)<<48 | uint64(o.Kind)<<40 | uint64(h.Sum32())
}

// ours reports whether a cookie is of our instance.
func (s *Syncer) ours(cookie uint64) bool { return uint16(cookie>>48) == s.options.Instance }

// Set declares everything that o wants, instead of what it wanted before, and returns at
// once. Nothing wanted is an owner that is gone.
func (s *Syncer) Set(o flow.Owner, e flow.Entries) {
	s.mu.Lock()
	s.set(o, e)
	s.mu.Unlock()
	s.ring()
}

// SetAll declares what all owners want: one that is not in m wants nothing any more.
func (s *Syncer) SetAll(m map[flow.Owner]flow.Entries) {
	s.mu.Lock()
	for o := range s.owners {
		if _, ok := m[o]; !ok {
			s.set(o, flow.Entries{})
		}
	}
	for o := range s.meters.owners {
		if _, ok := m[o]; !ok {
			s.set(o, flow.Entries{})
		}
	}
	for o, e := range m {
		s.set(o, e)
	}
	s.mu.Unlock()
	s.ring()
}

func (s *Syncer) set(o flow.Owner, e flow.Entries) {
	cookie := s.cookie(o)
	wanted := make(map[ident]entry, len(e.Flows)+len(e.Groups))
	var twice []error
	want := func(id ident, now entry) {
		if was, ok := wanted[id]; !ok {
			wanted[id] = now
		} else if !was.equal(now) {
			twice = append(twice, fmt.Errorf("%s wants %s, and in the same place %s: only the first is sent", o, was, now))
		}
	}
	for _, f := range e.Flows {
		f.Cookie = cookie
		f.Actions = pack(f)
		want(identOf(f), entry{flow: &f})
	}
	for _, g := range e.Groups {
		want(groupIdent(g.ID), entry{group: &g})
	}
	if delete(s.twice, o); len(twice) > 0 {
		s.twice[o] = twice
	}
	if len(s.claims) == 0 {
		s.claims = make(map[ident][]claim, len(wanted))
	}
	before := s.owners[o]
	if len(s.dirty) == 0 && len(before) == 0 {
		s.dirty = make(map[ident]struct{}, len(wanted)) // all of it is new
	}
	any := s.meters.set(o, e.Meters)
	for id, was := range before {
		if now, ok := wanted[id]; !ok {
			s.unclaim(id, o)
			any = true
		} else if now.equal(was) {
			wanted[id] = was // keep the old value: no garbage for what has not changed
		}
	}
	for id, now := range wanted {
		if was, ok := before[id]; !ok || was != now {
			s.claim(id, o, now)
			any = true
		}
	}
	if len(wanted) == 0 {
		delete(s.owners, o)
	} else {
		s.owners[o] = wanted
	}
	if any {
		s.declared()
	}
}

// pack is the flow's actions as they are kept; those that the switch would refuse stay as they
// are, for the plan to say so.
func pack(f flow.Flow) flow.Actions {
	if f.Match.Err() != nil || ofp.CheckPrerequisites(f.Match.OXM(), f.Actions) != nil {
		return f.Actions
	}
	packed, err := ofp.PackActions(f.Actions)
	if err != nil {
		return f.Actions
	}
	return packed
}

// actions are an entry's actions if they may hold one of a kind, of which every one begins with
// the same bytes.
func (e entry) actions(begin string) []ofp.Action {
	if len(e.flow.Actions) != 1 {
		return e.flow.Actions
	}
	switch p, ok := e.flow.Actions[0].(ofp.Packed); {
	case !ok:
		return e.flow.Actions
	case strings.Contains(string(p), begin):
		return e.flow.Actions.Canonical()
	}
	return nil
}

// Type and length of the actions group and meter (OpenFlow 1.5 sections 7.2.6.9 and 7.2.6.17).
const (
	groupBegins = "\x00\x16\x00\x08"
	meterBegins = "\x00\x1d\x00\x08"
)

func (s *Syncer) claim(id ident, o flow.Owner, e entry) {
	delete(s.refused, id)
	s.dirty[id] = struct{}{}
	list := s.claims[id]
	if i := slices.IndexFunc(list, func(c claim) bool { return c.owner == o }); i >= 0 {
		list[i].entry = e
		return
	}
	if len(list) == 0 {
		s.wanted.count(id, 1)
	}
	i, _ := slices.BinarySearchFunc(list, o, func(c claim, o flow.Owner) int { return compareOwners(c.owner, o) })
	s.claims[id] = slices.Insert(list, i, claim{o, e})
}

// compareOwners decides conflicts, the same way after a restart.
func compareOwners(a, b flow.Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func (s *Syncer) unclaim(id ident, o flow.Owner) {
	delete(s.refused, id)
	s.dirty[id] = struct{}{}
	list := slices.DeleteFunc(s.claims[id], func(c claim) bool { return c.owner == o })
	if len(list) == 0 {
		delete(s.claims, id)
		s.wanted.count(id, -1)
		// What was never sent needs no removal: else all that comes and goes while the switch is
		// away would be kept. It may be about to be sent: confirm looks.
		_, there := s.have[id]
		if _, doubt := s.doubt[id]; !there && !doubt {
			delete(s.dirty, id)
			s.forgot = true
		}
	} else {
		s.claims[id] = list
	}
}

// tally is how many flows and groups somebody wants.
type tally struct{ flows, groups int }

func (t *tally) count(id ident, by int) {
	if id.isGroup {
		t.groups += by
	} else {
		t.flows += by
	}
}

// Release allows removals: every source of what is declared has loaded once. Before, flows
// and groups that nobody wants stay.
func (s *Syncer) Release() {
	s.mu.Lock()
	if !s.released {
		s.released = true
		s.meters.dirty = true
		for id := range s.have {
			if _, ok := s.claims[id]; !ok {
				s.dirty[id] = struct{}{}
			}
		}
		s.declared()
	}
	s.mu.Unlock()
	s.ring()
}

// declared counts a declaration; s.mu is held.
func (s *Syncer) declared() {
	s.gen++
	if s.waiting.IsZero() {
		s.waiting = time.Now()
	}
}

// Synced waits until the switch has confirmed what was declared before the call. It returns
// an error that names the flow when one of these owners' entries was refused (of any owner if
// none is given), or when ctx ends.
func (s *Syncer) Synced(ctx context.Context, owners ...flow.Owner) error {
	s.mu.Lock()
	gen := s.gen
	s.mu.Unlock()
	for {
		s.mu.Lock()
		changed := s.changed
		if s.conn != nil && s.synced >= gen {
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

// why says what Synced was waiting for.
func (s *Syncer) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return "no connection to the switch: " + s.stats.LastError
	}
	return "the switch has not confirmed yet"
}

// refusals joins what was refused of some owners; s.mu is held.
func (s *Syncer) refusals(owners []flow.Owner) error {
	var errs []error
	for id, r := range s.refused {
		for _, c := range s.claims[id] {
			if len(owners) == 0 || slices.Contains(owners, c.owner) {
				errs = append(errs, fmt.Errorf("%s wants %s: %w", c.owner, r.entry, r.err))
				break
			}
		}
	}
	for _, o := range owners {
		errs = append(errs, s.conflicts(o)...)
	}
	errs = append(errs, s.meters.problems(owners)...)
	return errors.Join(errs...)
}

// conflicts are the entries of an owner that another owner, or itself, wants differently.
func (s *Syncer) conflicts(o flow.Owner) []error {
	errs := slices.Clone(s.twice[o])
	for id, e := range s.owners[o] {
		if first := s.claims[id][0]; first.owner != o && !first.entry.equal(e) && !sameButCookie(first.entry, e) {
			errs = append(errs, fmt.Errorf("%s wants %s, which %s wants as %s", o, e, first.owner, first.entry))
		}
	}
	return errs
}

// sameButCookie says whether two owners want the same.
func sameButCookie(a, b entry) bool {
	if a.flow == nil || b.flow == nil {
		return false
	}
	f := *b.flow
	f.Cookie = a.flow.Cookie
	return a.flow.Equal(f)
}

// wake tells waiters that something has changed; s.mu is held.
func (s *Syncer) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// PacketOut sends a packet through the switch. It waits, at most until ctx ends, while the
// switch does not read.
func (s *Syncer) PacketOut(ctx context.Context, p ofp.PacketOut) error {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return errors.New("no connection to the switch")
	}
	return conn.SendContext(ctx, p)
}

// Stats says what has been done and how it is.
func (s *Syncer) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Connected = s.conn != nil
	st.Sent = s.counts.SentByName()
	st.FlowMods, st.GroupMods = s.counts.Sent(ofp.TypeFlowMod), s.counts.Sent(ofp.TypeGroupMod)
	st.MeterMods = s.counts.Sent(ofp.TypeMeterMod)
	st.Flows, st.Groups, st.Meters = s.wanted.flows, s.wanted.groups, len(s.meters.claims)
	for id, r := range s.refused {
		owner := "nobody"
		if c := s.claims[id]; len(c) > 0 {
			owner = c[0].owner.String()
		}
		st.Refused = append(st.Refused, fmt.Sprintf("%s wants %s: %v", owner, r.entry, r.err))
	}
	for _, o := range slices.Collect(maps.Keys(s.owners)) {
		for _, err := range s.conflicts(o) {
			st.Refused = append(st.Refused, err.Error())
		}
	}
	for _, err := range s.meters.problems(slices.Collect(maps.Keys(s.meters.owners))) {
		st.Refused = append(st.Refused, err.Error())
	}
	slices.Sort(st.Refused)
	return st
}
