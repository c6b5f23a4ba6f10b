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
	if s.synced < gen || gen == 0 {
		s.synced = max(gen, 1)
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
		if len(list) == 0 {
			if !there {
				delete(s.refused, id)
			}
			if r := s.refused[id]; !there || !s.released || (r != nil && now.Before(r.until)) {
				continue
			}
			s.countMended(id)
			if id.isGroup {
				delGroups.add(id, had.group.Mod(ofp.GroupDelete), entry{})
			} else {
				delFlows.add(id, had.flow.Mod(ofp.FlowDeleteStrict), entry{})
			}
			continue
		}
		want := list[0].entry
		if there && want.equal(had) {
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
		case there && onlyActions(*had.flow, *want.flow):
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

// assume takes a change for done before it is sent: a report that comes in the meantime is
// then always about something later, or is harmless. It returns what was there.
func (s *Syncer) assume(c change) []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := make([]entry, len(c.ids))
	for i, id := range c.ids {
		before[i] = s.have[id]
		s.hold(id, c.after[i])
	}
	return before
}

// retract undoes assume where nothing newer is known; s.mu is held.
func (s *Syncer) retract(c change, before []entry) {
	for i, id := range c.ids {
		if s.have[id] == c.after[i] {
			s.hold(id, before[i])
		}
	}
}

// hold notes what the switch holds, the zero entry for nothing; s.mu is held.
func (s *Syncer) hold(id ident, e entry) {
	if e == (entry{}) {
		delete(s.have, id)
	} else {
		s.have[id] = e
	}
}

// confirm notes that the switch has taken a change.
func (s *Syncer) confirm(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Bundles++
	removed := map[uint32]bool{}
	for i, id := range c.ids {
		delete(s.refused, id)
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
