package flowsync

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// change is what one round sends.
type change []step

// step is one message of a change.
type step struct {
	*slot
	op            op
	after, before form // what the switch holds then, and held before; the empty form: nothing
}

// current reports whether the step brings what is wanted still.
func (st *step) current() bool {
	if st.op == remove {
		return st.owner == nil
	}
	return st.owner != nil && st.wrong == nil && st.want == st.after
}

type op uint8

const (
	add op = iota
	modify
	remove
)

// append appends the step's message. A group is sent whole. For inserted buckets Open vSwitch 3.1 makes the table of
// hash values of a select group only from them, and all connections go to them. After a removal it has no table
// (ofproto.c, init_group() calls group_construct() before modify_group_start() adds the other buckets).
func (st *step) append(s *Syncer, b []byte, xid uint32) ([]byte, error) {
	switch {
	case st.id.isGroup() && st.op == remove:
		return ofp.AppendMessage(b, xid,
			ofp.GroupMod{Command: ofp.GroupDelete, ID: st.id.group(), CommandBucket: ofp.BucketAll})
	case st.id.isGroup():
		command := ofp.GroupAdd
		if st.op == modify {
			command = ofp.GroupModify
		}
		start := len(b)
		b = appendUnpacked(b, st.after)
		binary.BigEndian.PutUint32(b[start+4:], xid)
		binary.BigEndian.PutUint16(b[start+groupCommand:], uint16(command))
		return b, nil
	case st.op == remove:
		m := s.deletion(st.id)
		return ofp.AppendFlowMod(b, xid, &m, "")
	}
	command := ofp.FlowAdd
	if st.op == modify {
		command = ofp.FlowModifyStrict
	}
	m := st.id.header(st.after, command)
	return ofp.AppendFlowMod(b, xid, &m, string(st.after[formInstructions:]))
}

// round sends the difference. It returns the time until the next look, or the error that ends the session.
func (s *Syncer) round(ctx context.Context, conn *ofconn.Conn) (time.Duration, error) {
	s.mu.Lock()
	all, groups := s.reread, s.regroup || s.forwarded && time.Since(s.groupsRead) >= forwardMin
	s.mu.Unlock()
	if all || groups {
		if err := s.read(ctx, conn, all); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	gen, since := s.gen, s.waiting
	s.waiting = time.Time{}
	s.mu.Unlock()
	// Consequences of a change are sent before it counts as done: flows that went with their group, flows that there is
	// room for now. Another controller may keep this loop from an end.
	for n := 0; n < followMax; n++ {
		more, err := s.pass(ctx, conn)
		if err != nil {
			s.mu.Lock()
			if !since.IsZero() {
				s.waiting = since // to be confirmed over another connection
			}
			s.mu.Unlock()
			return 0, err
		}
		if !more {
			break
		}
	}
	if !since.IsZero() {
		s.latency.Observe(time.Since(since).Seconds())
	}
	s.mu.Lock()
	if s.synced < gen {
		s.synced = gen
	}
	s.wake()
	retries := s.retry(time.Now())
	s.mu.Unlock()
	if retries {
		if _, err := s.pass(ctx, conn); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
	again := s.meters.due()
	if s.forwarded {
		again = max(min(again, forwardMin-time.Since(s.groupsRead)), 0)
	}
	for _, r := range s.refused {
		again = max(min(again, time.Until(r.until)), 0)
	}
	return again, nil
}

const (
	followMax  = 4                      // passes before a round ends
	messageMax = 100 * time.Microsecond // more for each message of a bundle; it takes a twentieth of that
	// refused entries that are tried again at once: what is declared meanwhile waits for them
	retryMax = 64
)

// pass sends what is dirty. It reports whether there is more to do because of what it did.
func (s *Syncer) pass(ctx context.Context, conn *ofconn.Conn) (bool, error) {
	for n := 0; ; n++ {
		if err := s.setMeters(ctx, conn); err != nil {
			return false, err
		}
		s.mu.Lock()
		if !s.meters.dirty || n == followMax {
			break
		}
		s.mu.Unlock() // declared while others were sent: the flows that use them wait for them
	}
	s.follow = false
	for sl, r := range s.refused {
		if r.until.IsZero() {
			s.mark(sl)
		}
	}
	c := s.plan(time.Now())
	s.mu.Unlock()
	err := s.send(ctx, conn, c)
	s.mu.Lock()
	s.commit()
	s.mu.Unlock()
	if err == nil {
		err = s.dropMeters(ctx, conn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.follow, err
}

// retry marks refused entries whose time has come, after all other entries, so that these do not wait for them. s.mu is
// held.
func (s *Syncer) retry(now time.Time) bool {
	n := 0
	for sl, r := range s.refused {
		if n < retryMax && !now.Before(r.until) {
			s.mark(sl)
			n++
		}
	}
	return n > 0
}

// plan compares the dirty slots and clears the marks; s.mu is held. Groups come before the flows that use them,
// removals last.
func (s *Syncer) plan(now time.Time) change {
	var groups, flows, delFlows, delGroups change
	if s.dirty.n > bulk {
		flows = make(change, 0, s.dirty.n)
	}
	for s.dirty.first != nil {
		sl := s.dirty.first
		s.dirty.remove(sl)
		foreign := sl.foreign
		sl.foreign = false
		r := s.refused[sl]
		back := r != nil && now.Before(r.until)
		switch {
		case sl.owner == nil && sl.have == "" && !sl.doubt:
			delete(s.refused, sl)
			s.tidy(sl)
			continue
		case sl.owner == nil && (!s.released || back):
			continue
		case sl.owner != nil && sl.done():
			delete(s.refused, sl)
			continue
		case back:
			continue
		case sl.wrong != nil:
			s.refuse(sl, "", sl.wrong.text, sl.wrong.err)
			continue
		}
		if foreign {
			s.stats.Mended++ // it answers another program's change
		}
		switch group, there := sl.id.isGroup(), sl.have != ""; {
		case sl.owner == nil && group:
			delGroups = append(delGroups, step{slot: sl, op: remove})
		case sl.owner == nil:
			delFlows = append(delFlows, step{slot: sl, op: remove})
		case group && there:
			groups = append(groups, step{slot: sl, op: modify, after: sl.want})
		case group:
			groups = append(groups, step{slot: sl, op: add, after: sl.want})
		case there && !sl.doubt && onlyActions(sl.have, sl.want):
			flows = append(flows, step{slot: sl, op: modify, after: sl.want})
		default:
			flows = append(flows, step{slot: sl, op: add, after: sl.want})
		}
	}
	c := slices.Concat(groups, flows, delFlows, delGroups)
	for _, st := range c {
		s.reserve(st.slot)
	}
	return c
}

// bulk is from how many flows on it is worth to know their number beforehand.
const bulk = 1000

// refuse keeps an entry back for a while; s.mu is held.
func (s *Syncer) refuse(sl *slot, f form, text string, err error) {
	news := s.refused[sl] == nil
	r := s.keepBack(sl, f, text, err)
	if news {
		s.log.Error("the switch does not take an entry; the others go on", "entry", r.of(sl), "error", err)
	}
	// The refusal may have an outdated group as its reason. Read the groups again, and if that is it, do not wait.
	if !isTableFull(err) {
		s.regroup = true
		s.signal()
	}
}

// refuseStep holds back an entry that the switch has refused; s.mu is held. If the desired entry has changed meanwhile,
// the new one was not refused.
func (s *Syncer) refuseStep(st step, err error) {
	if !st.current() {
		s.mark(st.slot)
		return
	}
	s.refuse(st.slot, cmp.Or(st.after, st.before), "", err)
}

func (s *Syncer) keepBack(sl *slot, f form, text string, err error) *refusal {
	r := s.refused[sl]
	if r == nil {
		r = &refusal{}
		s.refused[sl] = r
	}
	r.form, r.text, r.err = f, text, err
	r.delay = min(max(2*r.delay, refusalMin), refusalMax)
	r.until = time.Now().Add(r.delay)
	s.countRefusal(err)
	return r
}

// isTableFull reports whether a switch refused a flow because its table is full.
func isTableFull(err error) bool {
	var e *ofconn.SwitchError
	return errors.As(err, &e) && e.Refusal.Name() == "OFPFMFC_TABLE_FULL"
}

// send sends a change. If the switch refuses a message, it holds that one back, and sends the messages before and after
// it in bundles of their own. After an error the connection is of no more use.
func (s *Syncer) send(ctx context.Context, conn *ofconn.Conn, c change) error {
	for len(c) > 0 {
		s.assume(c)
		err := s.bundle(ctx, conn, c)
		var bad *ofconn.BundleError
		switch {
		case err == nil:
			s.confirm(c)
			return nil
		case !errors.As(err, &bad):
			return err
		}
		i := bad.Index
		s.mu.Lock()
		s.retract(c)
		if i < 0 && len(c) == 1 {
			i = 0
		}
		if i >= 0 {
			s.stats.LastError = bad.Error()
			s.refuseStep(c[i], bad.Err)
		}
		s.mu.Unlock()
		if i < 0 { // the switch does not name it: halve until it is found
			i = len(c) / 2
			if err := s.send(ctx, conn, c[:i]); err != nil {
				return err
			}
			c = c[i:]
			continue
		}
		if err := s.send(ctx, conn, c[:i]); err != nil {
			return err
		}
		rest := c[i+1:]
		if isTableFull(bad.Err) {
			rest = s.withoutAdditions(rest, c[i].id.table(), bad.Err)
		}
		// In halves, so that with many refusals what is sent grows little faster than they do.
		half := len(rest) / 2
		if err := s.send(ctx, conn, rest[:half]); err != nil {
			return err
		}
		c = rest[half:]
	}
	return nil
}

// bundle is one bundle, for which the switch has a time of its own: one that ends within a
// large bundle every time would never get anywhere.
func (s *Syncer) bundle(ctx context.Context, conn *ofconn.Conn, c change) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax+time.Duration(len(c))*messageMax)
	defer cancel()
	return conn.BundleBytes(ctx, len(c),
		func(b []byte, xid uint32, i int) ([]byte, error) { return c[i].append(s, b, xid) })
}

// withoutAdditions holds back all flows of a change that are new in a table that is full, and
// returns the rest.
func (s *Syncer) withoutAdditions(c change, table ofp.Table, err error) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest change
	for _, st := range c {
		switch {
		case st.id.isGroup() || st.after == "" || st.have != "" || st.id.table() != table:
			rest = append(rest, st)
		case st.current():
			s.keepBack(st.slot, st.after, "", err)
		default:
			s.mark(st.slot)
		}
	}
	if n := len(c) - len(rest); n > 0 {
		s.log.Error("a table of the switch is full; more flows are held back", "table", table, "flows", n)
	}
	return rest
}

// assume takes a change for done before it is sent, so that a report that comes while the
// switch is at work is not forgotten. It notes what was there.
func (s *Syncer) assume(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched, s.removing = map[*slot]struct{}{}, map[uint32]bool{}
	for i := range c {
		st := &c[i]
		st.before = st.have
		// Since the plan was made the flow may have gone: a modify would do nothing then.
		if st.op == modify && !st.id.isGroup() && !onlyActions(st.before, st.after) {
			st.op = add
		}
		st.have = st.after
		if st.id.isGroup() && st.op == remove {
			s.removing[st.id.group()] = true
		}
	}
}

// retract undoes assume, but for what was reported since; s.mu is held.
func (s *Syncer) retract(c change) {
	for _, st := range c {
		if _, newer := s.touched[st.slot]; !newer {
			st.have = st.before
		}
	}
	s.touched, s.removing = nil, nil
}

// confirm notes that the switch has taken a change. Reports about the same flows since it was sent may be older or
// newer than the change: such flows are in doubt, and sent once more.
func (s *Syncer) confirm(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Bundles++
	touched := s.touched
	s.touched, s.removing = nil, nil
	removed, came, room := map[uint32]bool{}, map[uint32]bool{}, map[ofp.Table]bool{}
	for _, st := range c {
		delete(s.refused, st.slot)
		st.doubt = false
		if len(touched) > 0 {
			if _, reported := touched[st.slot]; reported && !st.id.same(st.have, st.after) {
				st.doubt = true
				s.mark(st.slot)
				s.follow = true
				s.signal()
			}
		}
		if st.op != remove && st.owner == nil {
			s.mark(st.slot) // given up between the plan and the bundle
			s.signal()
		}
		switch gone := st.op == remove; {
		case gone && !st.id.isGroup():
			room[st.id.table()] = true
		case gone:
			removed[st.id.group()] = true
		case st.id.isGroup():
			came[st.id.group()] = true
		}
	}
	if len(room)+len(came) > 0 {
		s.reconsider(room, came)
	}
	if len(removed) == 0 {
		return
	}
	// The switch removes the flows that use a group with the group (OpenFlow 1.5 section
	// 6.7), and reports that or not, since it was our doing.
	s.follow = true
	for sl := range s.linked {
		if sl.id.uses(sl.have, removed) {
			sl.have = ""
			s.mark(sl)
			s.signal()
		}
	}
}

// reconsider releases entries that were refused because a table was full or a group was missing; s.mu is held.
func (s *Syncer) reconsider(room map[ofp.Table]bool, came map[uint32]bool) {
	for sl, r := range s.refused {
		group := sl.id.isGroup()
		switch {
		case group && len(came) > 0,
			!group && room[sl.id.table()] && isTableFull(r.err),
			!group && len(came) > 0 && sl.id.uses(r.form, came):
			r.until = time.Time{}
			s.follow = true
		}
	}
}

// uses reports whether actions use one of some groups.
func uses(actions []ofp.Action, groups map[uint32]bool) bool {
	return slices.ContainsFunc(actions, func(a ofp.Action) bool {
		switch a := a.(type) {
		case ofp.Group:
			return groups[a.ID]
		case ofp.WriteActions:
			return uses(a.Actions, groups)
		case ofp.Clone:
			return uses(a.Actions, groups)
		}
		return false
	})
}
