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
func (se *session) read(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	se.syncer.mu.Lock()
	se.syncer.stale.reading(all)
	se.slots.touched = map[*slot]struct{}{}
	se.slots.reads++
	se.syncer.mu.Unlock()
	defer func() {
		se.syncer.mu.Lock()
		se.slots.commit()
		se.syncer.mu.Unlock()
	}()
	found, err := se.find(ctx, all)
	if err != nil {
		return err
	}
	meters, err := readMeters(ctx, se.conn)
	if err != nil {
		return err
	}
	se.syncer.mu.Lock()
	se.syncer.meters.found(meters, se.syncer.progress.synced > 0)
	se.syncer.mu.Unlock()
	missing := func(sl *slot) { se.slots.missing(sl, se.syncer.progress.synced > 0) }
	some(se.syncer, maps.Values(se.slots.groups), missing)
	if all {
		some(se.syncer, maps.Values(se.slots.flows), missing)
	}
	some(se.syncer, slices.Values(found), func(f different) {
		if _, newer := se.slots.touched[f.slot]; newer {
			return
		}
		f.have = f.compared(f.form) // it may have an owner since
		if se.syncer.progress.synced == 0 && f.done() && se.slots.refused[f.slot] == nil {
			return // a new connection: no program has changed anything, and nothing is to be done
		}
		se.slots.noteForeign(f.slot, se.syncer.progress.synced > 0)
	})
	// After a full read no slot is in doubt: all desired and all undesired entries are compared, since a removal may have
	// been lost with a connection.
	if all {
		se.syncer.mu.Lock()
		se.syncer.meters.dirty = true
		se.syncer.mu.Unlock()
		some(se.syncer, se.slots.all, func(sl *slot) {
			sl.doubt = false
			if sl.owner == nil && sl.have != "" || sl.owner != nil && (!sl.done() || se.slots.refused[sl] != nil) {
				se.slots.mark(sl)
			}
		})
	}
	return nil
}

// atOnce is the largest number of slots that are handled before s.mu is released. The reader of the connection, and
// owners, wait for this lock.
const atOnce = 256

// some calls f for a part of the entries with s.mu held, releases the lock for other goroutines, and continues. It may
// leave out entries that are added meanwhile.
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

// missing records that a read has not found a known entry. If news is set, another program has removed it.
func (t *slots) missing(sl *slot, news bool) {
	// Reports during the read are newer than the read.
	if _, newer := t.touched[sl]; newer || sl.found == t.reads || sl.have == "" {
		return
	}
	sl.have = ""
	t.noteForeign(sl, news)
}

// different is an entry that a read has found, and not as it was known to be.
type different struct {
	*slot
	form form
}

// find reads the switch. It marks what it has found, and returns what differs.
func (se *session) find(ctx context.Context, all bool) ([]different, error) {
	var list []different
	note := func(sl *slot, now form) {
		if sl.found = se.slots.reads; !sl.id.same(now, sl.have) {
			se.slots.reserve(sl)
			list = append(list, different{sl, now})
		}
	}
	err := se.conn.RequestBytes(ctx, ofp.GroupDescRequest{ID: ofp.GroupAll}, func(part []byte) error {
		se.syncer.mu.Lock()
		defer se.syncer.mu.Unlock()
		return ofp.EachGroupDesc(part, func(d ofp.GroupDescBytes) error {
			note(se.slots.reportedGroup(d))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the groups: %w", err)
	}
	if !all {
		return list, nil
	}
	se.syncer.mu.Lock()
	if len(se.slots.flows) > bulk {
		list = slices.Grow(list, len(se.slots.flows))
	}
	se.syncer.mu.Unlock()
	err = se.conn.RequestBytes(ctx, allFlows, func(part []byte) error {
		se.syncer.mu.Lock()
		defer se.syncer.mu.Unlock()
		return ofp.EachFlowDesc(part, func(d ofp.FlowDescBytes) error {
			if !se.syncer.owners.ours(d.Cookie) {
				return nil
			}
			sl, now, err := se.slots.reported(d)
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

// reported finds the slot and the form of a flow that the switch reports. Most flows equal the desired
// ones, byte for byte, and are neither decoded nor kept twice.
func (t *slots) reported(d ofp.FlowDescBytes) (*slot, form, error) {
	t.id = append(appendFlowIdent(t.id[:0], d.Table, d.Priority), d.Match...)
	t.form = appendHeader(t.form[:0], d.Cookie, d.IdleTimeout, d.HardTimeout, d.Flags, d.Importance)
	t.form = append(t.form, d.Instructions...)
	sl := t.get(t.id)
	if sl != nil {
		for _, known := range [...]form{sl.have, sl.want} {
			if string(known) == string(t.form) {
				return sl, known, nil
			}
		}
	}
	whole, err := d.Decode()
	if err != nil {
		return nil, "", err
	}
	f := flow.FromStats(whole)
	sl, now := t.slotOf(&f)
	return sl, now, nil
}

// reportedGroup finds the slot and the form of a group that the switch reports. Most groups equal the
// desired ones, byte for byte. A group that has no owner yet stays as reported, because its owner may want these bytes.
func (t *slots) reportedGroup(d ofp.GroupDescBytes) (*slot, form) {
	t.id = appendGroupIdent(t.id[:0], d.ID)
	t.form = appendReportedGroup(t.form[:0], d)
	sl := t.make(t.id)
	for _, known := range [...]form{sl.have, sl.want} {
		if string(known) == string(t.form) {
			return sl, known
		}
	}
	return sl, sl.compared(form(t.form))
}

// compared returns the form in which a group that the switch has reported is compared with the owner's. The switch may
// write other bytes for the same group than we do.
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

// slotOf finds the slot and the form of a flow that the switch has reported. Equal forms share memory
// with the desired or known one.
func (t *slots) slotOf(f *flow.Flow) (*slot, form) {
	t.id = appendIdent(t.id[:0], f)
	t.form = appendReported(t.form[:0], f)
	sl := t.make(t.id)
	now := form(t.form)
	for _, known := range [...]form{sl.have, sl.want} {
		if known != "" && sl.id.same(known, now) {
			return sl, known
		}
	}
	t.link(sl, now)
	return sl, now
}

// noteForeign marks an entry whose state is not the known one. If news is set, another program has changed it.
func (t *slots) noteForeign(sl *slot, news bool) {
	t.mark(sl)
	if r := t.refused[sl]; r != nil {
		r.until = time.Time{} // refused for what is no longer so
	}
	if news {
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
		before := s.slots.dirty.n
		for _, u := range m.Updates {
			s.update(u)
		}
		news := s.stale.all || s.stale.groups || s.slots.dirty.n > before
		s.mu.Unlock()
		if news {
			s.signal()
		}
	case ofp.RequestForward: // another program's change of a group or a meter
		s.mu.Lock()
		s.stale.forwarded = true
		s.mu.Unlock()
		s.signal()
	case ofp.Error:
		s.log.Warn("the switch complains", "error", m.Error())
	}
}

// update handles one report of the flow monitor. The caller holds s.mu. The switch usually leaves out our own changes.
// But while its queue to us is long, it reports them like another program's. Such reports repeat known changes.
func (s *Syncer) update(u ofp.FlowUpdate) {
	news := s.progress.synced > 0
	switch u.Event {
	case ofp.UpdateAdded, ofp.UpdateModified, ofp.UpdateInitial:
		f := flow.FromUpdate(u)
		if !s.owners.ours(f.Cookie) {
			s.slots.gone(&f, news) // another program's own flow, which may have taken the place of one of ours
			return
		}
		if sl := s.slots.slotOfFlow(&f); sl != nil && sl.have != "" { // reports do not have these
			f.Flags, f.Importance = sl.have.flags(), sl.have.importance()
		}
		sl, now := s.slots.slotOf(&f)
		s.slots.touch(sl)
		if sl.have == now {
			return
		}
		sl.have = now
		s.slots.noteForeign(sl, news)
	case ofp.UpdateRemoved:
		f := flow.FromUpdate(u)
		sl := s.slots.slotOfFlow(&f)
		if sl != nil && u.Reason == ofp.RemovedGroup && sl.id.uses(sl.have, s.slots.removing) {
			s.slots.touch(sl)
			sl.have = "" // with its group, our own doing
			s.slots.mark(sl)
			return
		}
		s.slots.gone(&f, news)
		if u.Reason == ofp.RemovedGroup || u.Reason == ofp.RemovedMeter {
			s.stale.groups = true // its group or meter is gone
		}
	case ofp.UpdatePaused, ofp.UpdateResumed:
		s.stale.all = true // the switch has dropped reports
	}
}

// slotOfFlow finds the slot of a flow; nil if it does not exist.
func (t *slots) slotOfFlow(f *flow.Flow) *slot {
	t.id = appendIdent(t.id[:0], f)
	return t.get(t.id)
}

// gone records that the switch does not have a flow of ours. If news is set, another program has removed it.
func (t *slots) gone(f *flow.Flow, news bool) {
	sl := t.slotOfFlow(f)
	if sl == nil {
		if t.touched == nil {
			return
		}
		sl = t.make(t.id) // the read that is under way may still report it
	}
	t.touch(sl)
	if sl.have != "" {
		sl.have = ""
		t.noteForeign(sl, news)
	}
}

// touch notes a newer report for a read or a bundle that is under way.
func (t *slots) touch(sl *slot) {
	if t.touched != nil {
		t.reserve(sl)
		t.touched[sl] = struct{}{}
	}
}
