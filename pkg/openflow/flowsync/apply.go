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
	start := time.Now()
	s.mu.Lock()
	gen := s.gen
	for id, r := range s.refused {
		if !start.Before(r.until) {
			s.dirty[id] = struct{}{}
		}
	}
	c := s.plan(start)
	clear(s.dirty)
	clear(s.foreign)
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	if err := s.send(ctx, conn, c); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced < gen {
		s.synced = gen
		s.metrics.latency.Observe(time.Since(start).Seconds())
	}
	s.wake()
	again := time.Hour
	for _, r := range s.refused {
		again = max(min(again, time.Until(r.until)), 0)
	}
	return again, nil
}

// plan compares what is dirty; s.mu is held. Groups come before the flows that use them,
// removals last.
func (s *Syncer) plan(now time.Time) change {
	var c, flows, delFlows, delGroups change
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
				delFlows.add(id, s.deletion(id.key), entry{})
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
	for _, part := range []change{flows, delFlows, delGroups} {
		c.messages = append(c.messages, part.messages...)
		c.ids = append(c.ids, part.ids...)
		c.after = append(c.after, part.after...)
	}
	return c
}

// deletion deletes the flow with a key, if it is ours: somebody else's may have taken its place
// since we last heard of it.
func (s *Syncer) deletion(k flow.Key) ofp.FlowMod {
	m := flow.Flow{Table: k.Table, Priority: k.Priority, Match: k.Match}.Mod(ofp.FlowDeleteStrict)
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
	r := s.refused[id]
	if r == nil {
		r = &refusal{}
		s.refused[id] = r
		s.log.Error("the switch does not take an entry; the others go on", "entry", e.String(), "error", err)
	}
	r.entry, r.err = e, err
	r.delay = min(max(2*r.delay, refusalMin), refusalMax)
	r.until = time.Now().Add(r.delay)
	// It may be refused because what we know of the groups is no longer so: look again, and if
	// that is it, do not wait.
	if id.isGroup || e.flow != nil {
		s.regroup = true
		s.ring()
	}
	s.metrics.refusals.Inc()
}

// send sends a change. A message that the switch refuses is held back, what comes before and
// after it is sent in bundles of their own. An error means that the connection is of no more
// use.
func (s *Syncer) send(ctx context.Context, conn *ofconn.Conn, c change) error {
	for len(c.messages) > 0 {
		before := s.assume(c)
		err := conn.Bundle(ctx, c.messages)
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
		first, rest := i, i+1
		if i < 0 { // the switch does not say which one: halve until it is found
			first, rest = len(c.messages)/2, len(c.messages)/2
		}
		if err := s.send(ctx, conn, c.slice(0, first)); err != nil {
			return err
		}
		c = c.slice(rest, len(c.messages))
	}
	return nil
}

// assume takes a change for done before it is sent, so that a report that comes while the
// switch is at work is not forgotten. It returns what was there.
func (s *Syncer) assume(c change) []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = map[ident]struct{}{}
	before := make([]entry, len(c.ids))
	for i, id := range c.ids {
		before[i] = s.have[id]
		// Since the plan was made the flow may have gone: a modify would do nothing then.
		if want, had := c.after[i].flow, before[i].flow; want != nil && (had == nil || !onlyActions(*had, *want)) {
			c.messages[i] = want.Mod(ofp.FlowAdd)
		}
		s.hold(id, c.after[i])
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
	s.touched = nil
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
	s.touched = nil
	removed := map[uint32]bool{}
	for i, id := range c.ids {
		delete(s.refused, id)
		delete(s.doubt, id)
		if _, reported := touched[id]; reported && !same(s.have[id], c.after[i]) {
			s.doubt[id] = struct{}{}
			s.dirty[id] = struct{}{}
			s.ring()
		}
		switch {
		case !id.isGroup:
		case c.after[i] == (entry{}):
			removed[id.group] = true
		default: // what was refused for want of a group may be taken now
			for _, r := range s.refused {
				r.until = time.Time{}
			}
		}
	}
	if len(removed) == 0 {
		return
	}
	// The switch removes the flows that use a group with the group (OpenFlow 1.5 section
	// 6.7), and does not report it since it was our doing.
	for id, e := range s.have {
		if e.flow != nil && uses(e.flow.Actions, removed) {
			delete(s.have, id)
			s.dirty[id] = struct{}{}
			s.ring()
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
