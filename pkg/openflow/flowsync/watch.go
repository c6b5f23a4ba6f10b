package flowsync

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// read reads what the switch holds of ours: groups and meters, and flows where all is true. What differs
// from what was known is compared with what is wanted in the next round.
func (s *Syncer) read(ctx context.Context, conn *ofconn.Conn, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	s.mu.Lock()
	s.regroup = false
	if all {
		s.reread = false
	}
	s.touched = map[ident]struct{}{}
	s.mu.Unlock()
	found, err := s.find(ctx, conn, all)
	var meters []flow.Meter
	if err == nil {
		meters, err = readMeters(ctx, conn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := s.touched
	s.touched = nil
	if err != nil {
		return err
	}
	s.meters.found(meters, s.synced > 0)
	// What was reported while we read is newer than what we read.
	for id := range touched {
		delete(found, id)
	}
	for id, was := range s.have {
		if _, newer := touched[id]; newer || (!all && !id.isGroup) {
			continue
		}
		if now, ok := found[id]; !ok {
			s.noteForeign(id)
			delete(s.have, id)
		} else if now.equal(was) {
			delete(found, id) // keep the old value
		}
	}
	if len(s.have) == 0 {
		s.have = make(map[ident]entry, len(found))
	}
	for id, now := range found {
		s.have[id] = now
		if list := s.claims[id]; s.synced == 0 && len(list) > 0 && list[0].entry == now && s.refused[id] == nil {
			continue // a new connection: nobody has changed anything, and nothing is to be done
		}
		s.noteForeign(id)
	}
	// A full read leaves no doubt: everything wanted is compared, and everything that nobody
	// wants: its removal may have been lost with a connection.
	if all {
		s.meters.dirty = true
		clear(s.doubt)
		for id, list := range s.claims {
			if s.have[id] != list[0].entry || s.refused[id] != nil {
				s.dirty[id] = struct{}{}
			}
		}
		for id := range s.have {
			if _, wanted := s.claims[id]; !wanted {
				s.dirty[id] = struct{}{}
			}
		}
	}
	return nil
}

// find reads the switch.
func (s *Syncer) find(ctx context.Context, conn *ofconn.Conn, all bool) (map[ident]entry, error) {
	size := 0 // what is there is about what was there, or is wanted
	if all {
		s.mu.Lock()
		size = max(len(s.have), len(s.claims))
		s.mu.Unlock()
	}
	found := make(map[ident]entry, size)
	groups, err := readGroups(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		found[groupIdent(g.ID)] = entry{group: &g}
	}
	if !all {
		return found, nil
	}
	err = eachFlow(ctx, conn, func(list []ofp.FlowDesc) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, d := range list {
			f := flow.FromStats(d)
			if !s.ours(f.Cookie) {
				continue
			}
			id := identOf(f)
			// One value of what is wanted and there: the decoded one is garbage at once.
			if list := s.claims[id]; len(list) > 0 && list[0].entry.flow.Equal(f) {
				found[id] = list[0].entry
			} else {
				found[id] = entry{flow: &f}
			}
		}
	})
	return found, err
}

// noteForeign marks an entry that is not as it was known to be; s.mu is held.
func (s *Syncer) noteForeign(id ident) {
	s.dirty[id] = struct{}{}
	if r := s.refused[id]; r != nil {
		r.until = time.Time{} // refused for what is no longer so
	}
	if s.synced > 0 {
		s.foreign[id] = struct{}{}
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

// eachFlow reads all flows of the switch, part by part.
func eachFlow(ctx context.Context, conn *ofconn.Conn, take func([]ofp.FlowDesc)) error {
	var strange error
	err := conn.RequestParts(ctx, ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{
		Table: ofp.TableAll, OutPort: ofp.PortAny, OutGroup: ofp.GroupAny,
	}}, func(p ofp.Message) {
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
		before := len(s.dirty)
		for _, u := range m.Updates {
			s.update(u)
		}
		news := s.reread || s.regroup || len(s.dirty) > before
		s.mu.Unlock()
		if news {
			s.ring()
		}
	case ofp.Error:
		s.log.Warn("the switch complains", "error", m.Error())
	}
}

// update follows one report of the flow monitor; s.mu is held. The switch shortens reports of
// our own changes to nothing, but not always: while its queue to us is long it tells them as
// if they were somebody else's. They then say what we know already.
func (s *Syncer) update(u ofp.FlowUpdate) {
	switch u.Event {
	case ofp.UpdateAdded, ofp.UpdateModified, ofp.UpdateInitial:
		f := flow.FromUpdate(u)
		id := identOf(f)
		if !s.ours(f.Cookie) {
			s.gone(id) // somebody's own flow, which may have taken the place of one of ours
			return
		}
		was, ok := s.have[id]
		if ok { // reports do not have these
			f.Flags, f.Importance = was.flow.Flags, was.flow.Importance
		}
		s.touch(id)
		if ok && was.flow.Equal(f) {
			return
		}
		s.have[id] = entry{flow: &f}
		s.noteForeign(id)
	case ofp.UpdateRemoved:
		id := identOf(flow.FromUpdate(u))
		if e := s.have[id]; u.Reason == ofp.RemovedGroup && e.flow != nil && uses(e.actions(groupBegins), s.removing) {
			s.touch(id)
			delete(s.have, id) // with its group, our own doing
			s.dirty[id] = struct{}{}
			return
		}
		s.gone(id)
		if u.Reason == ofp.RemovedGroup || u.Reason == ofp.RemovedMeter {
			s.regroup = true // its group or meter is gone, which no switch reports
		}
	case ofp.UpdatePaused, ofp.UpdateResumed:
		s.reread = true // the switch has dropped reports
	}
}

// gone notes that the switch does not hold a flow of ours; s.mu is held.
func (s *Syncer) gone(id ident) {
	s.touch(id)
	if _, ok := s.have[id]; ok {
		delete(s.have, id)
		s.noteForeign(id)
	}
}

// touch tells a read that is under way of a newer report; s.mu is held.
func (s *Syncer) touch(id ident) {
	if s.touched != nil {
		s.touched[id] = struct{}{}
	}
}
