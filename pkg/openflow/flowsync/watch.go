package flowsync

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// read reads our entries in the switch: groups and meters, and flows if all is true. The next round compares changed
// entries with the desired ones.
func (s *Syncer) read(ctx context.Context, conn *ofconn.Conn, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	s.mu.Lock()
	s.regroup, s.forwarded, s.groupsRead = false, false, time.Now()
	if all {
		s.reread = false
	}
	s.touched = map[*slot]struct{}{}
	s.reads++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.commit()
		s.mu.Unlock()
	}()
	found, err := s.find(ctx, conn, all)
	if err != nil {
		return err
	}
	meters, err := readMeters(ctx, conn)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.meters.found(meters, s.synced > 0)
	s.mu.Unlock()
	some(s, maps.Values(s.slots.groups), s.missing)
	if all {
		some(s, maps.Values(s.slots.flows), s.missing)
	}
	some(s, slices.Values(found), func(f different) {
		if _, newer := s.touched[f.slot]; newer {
			return
		}
		f.have = f.compared(f.form) // it may have an owner since
		if s.synced == 0 && f.done() && s.refused[f.slot] == nil {
			return // a new connection: no program has changed anything, and nothing is to be done
		}
		s.noteForeign(f.slot)
	})
	// A full read leaves no doubt: all desired and all undesired entries are compared, since a removal may have been
	// lost with a connection.
	if all {
		s.mu.Lock()
		s.meters.dirty = true
		s.mu.Unlock()
		some(s, s.slots.all, func(sl *slot) {
			sl.doubt = false
			if sl.owner == nil && sl.have != "" || sl.owner != nil && (!sl.done() || s.refused[sl] != nil) {
				s.mark(sl)
			}
		})
	}
	return nil
}

// atOnce is the number of slots that are read while s.mu is held: the connection's reader and owners wait for it.
const atOnce = 256

// some calls f for some entries with s.mu held, lets other goroutines have it, and goes on. Entries that are added
// meanwhile may be left out.
func some[T any](s *Syncer, list iter.Seq[T], f func(T)) {
	n := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for entry := range list {
		f(entry)
		if n++; n%atOnce == 0 {
			s.mu.Unlock()
			runtime.Gosched()
			s.mu.Lock()
		}
	}
}

// missing notes that a read has not found a known entry; s.mu is held.
func (s *Syncer) missing(sl *slot) {
	// Reports during the read are newer than the read.
	if _, newer := s.touched[sl]; newer || sl.found == s.reads || sl.have == "" {
		return
	}
	sl.have = ""
	s.noteForeign(sl)
}

// different is an entry that a read has found, and not as it was known to be.
type different struct {
	*slot
	form form
}

// find reads the switch. It marks what it has found, and returns what differs.
func (s *Syncer) find(ctx context.Context, conn *ofconn.Conn, all bool) ([]different, error) {
	var list []different
	note := func(sl *slot, now form) {
		if sl.found = s.reads; !sl.id.same(now, sl.have) {
			s.reserve(sl)
			list = append(list, different{sl, now})
		}
	}
	err := conn.RequestBytes(ctx, ofp.GroupDescRequest{ID: ofp.GroupAll}, func(part []byte) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return ofp.EachGroupDesc(part, func(d ofp.GroupDescBytes) error {
			note(s.reportedGroup(d))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the groups: %w", err)
	}
	if !all {
		return list, nil
	}
	s.mu.Lock()
	if len(s.slots.flows) > bulk {
		list = slices.Grow(list, len(s.slots.flows))
	}
	s.mu.Unlock()
	err = conn.RequestBytes(ctx, allFlows, func(part []byte) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return ofp.EachFlowDesc(part, func(d ofp.FlowDescBytes) error {
			if !s.ours(d.Cookie) {
				return nil
			}
			sl, now, err := s.reported(d)
			if err != nil {
				return err
			}
			note(sl, now)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the flows: %w", err)
	}
	return list, nil
}

// reported finds the slot and the form of a flow that the switch reports; s.mu is held. Most flows equal the desired
// ones, byte for byte, and are neither decoded nor kept twice.
func (s *Syncer) reported(d ofp.FlowDescBytes) (*slot, form, error) {
	s.id = append(appendFlowIdent(s.id[:0], d.Table, d.Priority), d.Match...)
	s.form = appendHeader(s.form[:0], d.Cookie, d.IdleTimeout, d.HardTimeout, d.Flags, d.Importance)
	s.form = append(s.form, d.Instructions...)
	sl := s.slots.get(s.id)
	if sl != nil {
		for _, known := range [...]form{sl.have, sl.want} {
			if string(known) == string(s.form) {
				return sl, known, nil
			}
		}
	}
	whole, err := d.Decode()
	if err != nil {
		return nil, "", err
	}
	f := flow.FromStats(whole)
	sl, now := s.slotOf(&f)
	return sl, now, nil
}

// reportedGroup finds the slot and the form of a group that the switch reports; s.mu is held. Most groups equal the
// desired ones, byte for byte. A group that has no owner yet stays as reported, because its owner may want these bytes.
func (s *Syncer) reportedGroup(d ofp.GroupDescBytes) (*slot, form) {
	s.id = appendGroupIdent(s.id[:0], d.ID)
	s.form = appendReportedGroup(s.form[:0], d)
	sl := s.slots.make(s.id)
	for _, known := range [...]form{sl.have, sl.want} {
		if string(known) == string(s.form) {
			return sl, known
		}
	}
	return sl, sl.compared(form(s.form))
}

// compared returns the form of a group that the switch has reported as it is compared with the owner's. The switch may
// write other bytes than we for the same group.
func (sl *slot) compared(reported form) form {
	if sl.owner == nil || !sl.id.isGroup() || reported == "" || reported == sl.want {
		return reported
	}
	g, err := reported.group()
	if err != nil {
		return unknown
	}
	now, err := groupForm(g)
	if err != nil {
		return unknown
	}
	return now
}

// slotOf finds the slot and the form of a flow that the switch has reported; s.mu is held. Equal forms share memory
// with the desired or known one.
func (s *Syncer) slotOf(f *flow.Flow) (*slot, form) {
	s.id = appendIdent(s.id[:0], f)
	s.form = appendReported(s.form[:0], f)
	sl := s.slots.make(s.id)
	now := form(s.form)
	for _, known := range [...]form{sl.have, sl.want} {
		if known != "" && sl.id.same(known, now) {
			return sl, known
		}
	}
	s.link(sl, now)
	return sl, now
}

// noteForeign marks an entry that is not as it was known to be; s.mu is held.
func (s *Syncer) noteForeign(sl *slot) {
	s.mark(sl)
	if r := s.refused[sl]; r != nil {
		r.until = time.Time{} // refused for what is no longer so
	}
	if s.synced > 0 {
		sl.foreign = true
	}
}

func readGroups(ctx context.Context, conn *ofconn.Conn) ([]flow.Group, error) {
	parts, err := conn.Request(ctx, ofp.GroupDescRequest{ID: ofp.GroupAll})
	if err != nil {
		return nil, fmt.Errorf("read the groups: %w", err)
	}
	var out []flow.Group
	for _, p := range parts {
		reply, ok := p.(ofp.GroupDescReply)
		if !ok {
			return nil, fmt.Errorf("read the groups: the switch answers with %s", p.Type())
		}
		for _, d := range reply.Groups {
			out = append(out, flow.FromGroupDesc(d))
		}
	}
	return out, nil
}

// allFlows asks for all flows.
var allFlows = ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll, OutPort: ofp.PortAny,
	OutGroup: ofp.GroupAny}}

// eachFlow reads flows of the switch, part by part.
func eachFlow(ctx context.Context, conn *ofconn.Conn, which ofp.FlowDescRequest, take func([]ofp.FlowDesc)) error {
	var strange error
	err := conn.RequestParts(ctx, which, func(p ofp.Message) {
		if reply, ok := p.(ofp.FlowDescReply); ok {
			take(reply.Flows)
		} else {
			strange = fmt.Errorf("the switch answers with %s", p.Type())
		}
	})
	if err = cmp.Or(err, strange); err != nil {
		return fmt.Errorf("read the flows: %w", err)
	}
	return nil
}

// handle takes what the switch says by itself. It runs on the connection's reader.
func (s *Syncer) handle(_ uint32, m ofp.Message) {
	switch m := m.(type) {
	case ofp.PacketIn2:
		if s.options.PacketIn != nil {
			s.options.PacketIn(m)
		}
	case ofp.FlowMonitorReply:
		s.mu.Lock()
		before := s.dirty.n
		for _, u := range m.Updates {
			s.update(u)
		}
		news := s.reread || s.regroup || s.dirty.n > before
		s.mu.Unlock()
		if news {
			s.signal()
		}
	case ofp.RequestForward: // another program's change of a group or a meter
		s.mu.Lock()
		s.forwarded = true
		s.mu.Unlock()
		s.signal()
	case ofp.Error:
		s.log.Warn("the switch complains", "error", m.Error())
	}
}

// update follows one report of the flow monitor; s.mu is held. The switch shortens reports of our own changes to
// nothing, but not always: while its queue to us is long it reports them as if they were another program's. They then
// repeat known changes.
func (s *Syncer) update(u ofp.FlowUpdate) {
	switch u.Event {
	case ofp.UpdateAdded, ofp.UpdateModified, ofp.UpdateInitial:
		f := flow.FromUpdate(u)
		if !s.ours(f.Cookie) {
			s.gone(&f) // another program's own flow, which may have taken the place of one of ours
			return
		}
		if sl := s.slotOfFlow(&f); sl != nil && sl.have != "" { // reports do not have these
			f.Flags, f.Importance = sl.have.flags(), sl.have.importance()
		}
		sl, now := s.slotOf(&f)
		s.touch(sl)
		if sl.have == now {
			return
		}
		sl.have = now
		s.noteForeign(sl)
	case ofp.UpdateRemoved:
		f := flow.FromUpdate(u)
		sl := s.slotOfFlow(&f)
		if sl != nil && u.Reason == ofp.RemovedGroup && sl.id.uses(sl.have, s.removing) {
			s.touch(sl)
			sl.have = "" // with its group, our own doing
			s.mark(sl)
			return
		}
		s.gone(&f)
		if u.Reason == ofp.RemovedGroup || u.Reason == ofp.RemovedMeter {
			s.regroup = true // its group or meter is gone
		}
	case ofp.UpdatePaused, ofp.UpdateResumed:
		s.reread = true // the switch has dropped reports
	}
}

// slotOfFlow finds the slot of a flow; nil if it does not exist. s.mu is held.
func (s *Syncer) slotOfFlow(f *flow.Flow) *slot {
	s.id = appendIdent(s.id[:0], f)
	return s.slots.get(s.id)
}

// gone notes that the switch does not hold a flow of ours; s.mu is held.
func (s *Syncer) gone(f *flow.Flow) {
	sl := s.slotOfFlow(f)
	if sl == nil {
		if s.touched == nil {
			return
		}
		sl = s.slots.make(s.id) // the read that is under way may still report it
	}
	s.touch(sl)
	if sl.have != "" {
		sl.have = ""
		s.noteForeign(sl)
	}
}

// touch notes a newer report for a read or a bundle that is under way; s.mu is held.
func (s *Syncer) touch(sl *slot) {
	if s.touched != nil {
		s.reserve(sl)
		s.touched[sl] = struct{}{}
	}
}
