package flowsync

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// change is what one round sends.
type change struct {
	messages []ofp.Message
	ids      []ident
	after    []entry // what the switch then holds under each id; the zero entry: nothing
}

func (c *change) add(id ident, m ofp.Message, after entry) {
	c.messages, c.ids, c.after = append(c.messages, m), append(c.ids, id), append(c.after, after)
}

func (c change) slice(from, to int) change {
	return change{c.messages[from:to], c.ids[from:to], c.after[from:to]}
}

// round sends the difference. It returns after how long to look again, or the error that ends
// the session.
func (s *Syncer) round(ctx context.Context, conn *ofconn.Conn) (time.Duration, error) {
	s.mu.Lock()
	all, groups := s.reread, s.regroup
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
	// What follows from a change is sent before it counts as done: flows that went with their
	// group, flows that there is room for now. Another controller may keep us from an end.
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
	s.mu.Lock()
	if s.synced < gen {
		s.synced = gen
	}
	if !since.IsZero() {
		s.metrics.latency.Observe(time.Since(since).Seconds())
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
	for _, r := range s.refused {
		again = max(min(again, time.Until(r.until)), 0)
	}
	return again, nil
}

const (
	followMax  = 4                      // passes before a round ends
	messageMax = 100 * time.Microsecond // more for each message of a bundle; it takes a twentieth of that
	retryMax   = 64                     // refused entries that are tried again at once: what is declared meanwhile waits for them
)

// pass sends what is dirty. It says whether there is more to do because of what it did.
func (s *Syncer) pass(ctx context.Context, conn *ofconn.Conn) (bool, error) {
	if err := s.setMeters(ctx, conn); err != nil {
		return false, err
	}
	s.mu.Lock()
	s.follow = false
	for id, r := range s.refused {
		if r.until.IsZero() {
			s.dirty[id] = struct{}{}
		}
	}
	c := s.plan(time.Now())
	s.dirty, s.foreign = map[ident]struct{}{}, map[ident]struct{}{} // clear takes as long as they once were large
	s.mu.Unlock()
	err := s.send(ctx, conn, c)
	if err == nil {
		err = s.dropMeters(ctx, conn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.follow, err
}

// retry marks refused entries whose time has come, after everything else: others do not wait
// for them. s.mu is held.
func (s *Syncer) retry(now time.Time) bool {
	n := 0
	for id, r := range s.refused {
		if n < retryMax && !now.Before(r.until) {
			s.dirty[id] = struct{}{}
			n++
		}
	}
	return n > 0
}

// plan compares what is dirty; s.mu is held. Groups come before the flows that use them,
// removals last.
func (s *Syncer) plan(now time.Time) change {
	s.forgot = false
	var c, delFlows, delGroups change
	flows := change{make([]ofp.Message, 0, len(s.dirty)), make([]ident, 0, len(s.dirty)), make([]entry, 0, len(s.dirty))}
	for id := range s.dirty {
		list := s.claims[id]
		had, there := s.have[id]
		_, doubt := s.doubt[id]
		if len(list) == 0 {
			if !there && !doubt {
				delete(s.refused, id)
			}
			if r := s.refused[id]; !there && !doubt || !s.released || (r != nil && now.Before(r.until)) {
				continue
			}
			s.countMended(id)
			if id.isGroup {
				delGroups.add(id, had.group.Mod(ofp.GroupDelete), entry{})
			} else {
				delFlows.add(id, s.deletion(id), entry{})
			}
			continue
		}
		want := list[0].entry
		if there && !doubt && want.equal(had) {
			delete(s.refused, id)
			continue
		}
		if r := s.refused[id]; r != nil && now.Before(r.until) {
			continue
		}
		if err := want.err(); err != nil {
			s.refuse(id, want, err)
			continue
		}
		s.countMended(id)
		switch {
		case id.isGroup && there:
			c.add(id, want.group.Mod(ofp.GroupModify), want)
		case id.isGroup:
			c.add(id, want.group.Mod(ofp.GroupAdd), want)
		case there && !doubt && onlyActions(*had.flow, *want.flow):
			flows.add(id, want.flow.Mod(ofp.FlowModifyStrict), want)
		default:
			flows.add(id, want.flow.Mod(ofp.FlowAdd), want)
		}
	}
	if len(c.ids) == 0 {
		c, flows = flows, c // nothing to copy
	}
	for _, part := range []change{flows, delFlows, delGroups} {
		c.messages = append(c.messages, part.messages...)
		c.ids = append(c.ids, part.ids...)
		c.after = append(c.after, part.after...)
	}
	return c
}

// deletion deletes the flow with a key, if it is ours: somebody else's may have taken its place
// since we last heard of it.
func (s *Syncer) deletion(id ident) ofp.FlowMod {
	m := flow.Flow{Table: id.table, Priority: id.priority, Match: flow.MatchOf(id.match)}.Mod(ofp.FlowDeleteStrict)
	m.Cookie, m.CookieMask = uint64(s.options.Instance)<<48, 0xffff<<48
	return m
}

// countMended counts a change that answers somebody else's; s.mu is held.
func (s *Syncer) countMended(id ident) {
	if _, ok := s.foreign[id]; ok {
		s.stats.Mended++
	}
}

// onlyActions says whether a flow can be changed in place, which keeps its counters: a modify
// changes neither cookie nor timeouts nor flags.
func onlyActions(a, b flow.Flow) bool {
	a.Actions = b.Actions
	return a.Equal(b)
}

// refuse keeps an entry back for a while; s.mu is held.
func (s *Syncer) refuse(id ident, e entry, err error) {
	if s.refused[id] == nil {
		s.log.Error("the switch does not take an entry; the others go on", "entry", e.String(), "error", err)
	}
	s.keepBack(id, e, err)
	// It may be refused because what we know of the groups is no longer so: look again, and if
	// that is it, do not wait.
	if (id.isGroup || e.flow != nil) && !isTableFull(err) {
		s.regroup = true
		s.ring()
	}
}

func (s *Syncer) keepBack(id ident, e entry, err error) {
	r := s.refused[id]
	if r == nil {
		r = &refusal{}
		s.refused[id] = r
	}
	r.entry, r.err = e, err
	r.delay = min(max(2*r.delay, refusalMin), refusalMax)
	r.until = time.Now().Add(r.delay)
	s.metrics.refused(err)
}

// isTableFull says whether a switch refused a flow since its table has as many as it may.
func isTableFull(err error) bool {
	var e *ofconn.SwitchError
	return errors.As(err, &e) && e.Refusal.Name() == "OFPFMFC_TABLE_FULL"
}

// send sends a change. A message that the switch refuses is held back, what comes before and
// after it is sent in bundles of their own. An error means that the connection is of no more
// use.
func (s *Syncer) send(ctx context.Context, conn *ofconn.Conn, c change) error {
	for len(c.messages) > 0 {
		before := s.assume(c)
		err := bundle(ctx, conn, c.messages)
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
		s.retract(c, before)
		if i < 0 && len(c.messages) == 1 {
			i = 0
		}
		if i >= 0 {
			s.stats.LastError = bad.Error()
			s.refuse(c.ids[i], c.after[i].or(before[i]), bad.Err)
		}
		s.mu.Unlock()
		if i < 0 { // the switch does not say which one: halve until it is found
			i = len(c.messages) / 2
			if err := s.send(ctx, conn, c.slice(0, i)); err != nil {
				return err
			}
			c = c.slice(i, len(c.messages))
			continue
		}
		if err := s.send(ctx, conn, c.slice(0, i)); err != nil {
			return err
		}
		rest := c.slice(i+1, len(c.messages))
		if isTableFull(bad.Err) {
			rest = s.withoutAdditions(rest, c.ids[i].table, bad.Err)
		}
		// In halves, so that with many refusals what is sent grows little faster than they do.
		half := len(rest.messages) / 2
		if err := s.send(ctx, conn, rest.slice(0, half)); err != nil {
			return err
		}
		c = rest.slice(half, len(rest.messages))
	}
	return nil
}

// bundle is one bundle, for which the switch has a time of its own: one that ends within a
// large bundle every time would never get anywhere.
func bundle(ctx context.Context, conn *ofconn.Conn, messages []ofp.Message) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax+time.Duration(len(messages))*messageMax)
	defer cancel()
	return conn.Bundle(ctx, messages)
}

// withoutAdditions holds back all flows of a change that are new in a table that is full, and
// returns the rest.
func (s *Syncer) withoutAdditions(c change, table ofp.Table, err error) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest change
	for i, id := range c.ids {
		_, there := s.have[id]
		if c.after[i].flow != nil && !there && id.table == table {
			s.keepBack(id, c.after[i], err)
		} else {
			rest.add(id, c.messages[i], c.after[i])
		}
	}
	if n := len(c.ids) - len(rest.ids); n > 0 {
		s.log.Error("a table of the switch is full; more flows are held back", "table", table, "flows", n)
	}
	return rest
}

// assume takes a change for done before it is sent, so that a report that comes while the
// switch is at work is not forgotten. It returns what was there.
func (s *Syncer) assume(c change) []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched, s.removing = map[ident]struct{}{}, map[uint32]bool{}
	if len(s.have) == 0 {
		s.have = make(map[ident]entry, len(c.ids))
	}
	before := make([]entry, len(c.ids))
	for i, id := range c.ids {
		before[i] = s.have[id]
		// Since the plan was made the flow may have gone: a modify would do nothing then.
		if want, had := c.after[i].flow, before[i].flow; want != nil && (had == nil || !onlyActions(*had, *want)) {
			c.messages[i] = want.Mod(ofp.FlowAdd)
		}
		s.hold(id, c.after[i])
		if id.isGroup && c.after[i] == (entry{}) {
			s.removing[id.group] = true
		}
	}
	return before
}

// retract undoes assume, but for what was reported since; s.mu is held.
func (s *Syncer) retract(c change, before []entry) {
	for i, id := range c.ids {
		if _, newer := s.touched[id]; !newer {
			s.hold(id, before[i])
		}
	}
	s.touched, s.removing = nil, nil
}

// hold notes what the switch holds, the zero entry for nothing; s.mu is held.
func (s *Syncer) hold(id ident, e entry) {
	if e == (entry{}) {
		delete(s.have, id)
	} else {
		s.have[id] = e
	}
}

// confirm notes that the switch has taken a change. What was reported of the same flows since it
// was sent was before the change or after it: such flows are in doubt, and sent once more.
func (s *Syncer) confirm(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Bundles++
	touched := s.touched
	s.touched, s.removing = nil, nil
	removed, came, room := map[uint32]bool{}, map[uint32]bool{}, map[ofp.Table]bool{}
	for i, id := range c.ids {
		delete(s.refused, id)
		delete(s.doubt, id)
		if _, reported := touched[id]; reported && !same(s.have[id], c.after[i]) {
			s.doubt[id] = struct{}{}
			s.dirty[id] = struct{}{}
			s.follow = true
			s.ring()
		}
		if s.forgot && c.after[i] != (entry{}) && len(s.claims[id]) == 0 {
			s.dirty[id] = struct{}{} // given up between the plan and the bundle
			s.ring()
		}
		switch gone := c.after[i] == (entry{}); {
		case !id.isGroup && gone:
			room[id.table] = true
		case !id.isGroup:
		case gone:
			removed[id.group] = true
		default:
			came[id.group] = true
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
	for id, e := range s.have {
		if e.flow != nil && uses(e.actions(groupBegins), removed) {
			delete(s.have, id)
			s.dirty[id] = struct{}{}
			s.ring()
		}
	}
}

// reconsider lets go what was refused for want of room in a table, or of a group; s.mu is held.
func (s *Syncer) reconsider(room map[ofp.Table]bool, came map[uint32]bool) {
	for id, r := range s.refused {
		switch {
		case id.isGroup && len(came) > 0,
			r.entry.flow != nil && room[id.table] && isTableFull(r.err),
			r.entry.flow != nil && len(came) > 0 && uses(r.entry.actions(groupBegins), came):
			r.until = time.Time{}
			s.follow = true
		}
	}
}

// same says whether the switch holds the same, or nothing, in both cases.
func same(a, b entry) bool {
	if a == (entry{}) || b == (entry{}) {
		return a == b
	}
	return a.equal(b)
}

// uses says whether actions use one of some groups.
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

// or is e, or o where e is nothing.
func (e entry) or(o entry) entry {
	if e == (entry{}) {
		return o
	}
	return e
}
