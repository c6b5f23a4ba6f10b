package flowsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Run connects and keeps the switch as wanted, for ever, until ctx ends.
func (s *Syncer) Run(ctx context.Context) error {
	delay := redialMin
	for ctx.Err() == nil {
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > 5*time.Second {
			delay = redialMin
		}
		s.mu.Lock()
		news := s.stats.LastError != err.Error()
		s.stats.LastError = err.Error()
		s.mu.Unlock()
		if news {
			s.log.Warn("no OpenFlow connection; trying again", "error", err)
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		delay = min(2*delay, redialMax)
	}
	return nil
}

// session is the life of one connection. It returns why it ended.
func (s *Syncer) session(ctx context.Context) error {
	conn, err := ofconn.Connect(ctx, s.options.Dial, &s.counts, s.handle)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := s.begin(ctx, conn); err != nil {
		return err
	}
	s.mu.Lock()
	s.conn = conn
	s.stats.Connections++
	s.stats.LastError = ""
	s.synced = 0
	s.wake()
	s.mu.Unlock()
	s.log.Info("connected to the switch")
	defer func() {
		s.mu.Lock()
		s.conn = nil
		s.synced = 0
		s.wake()
		s.mu.Unlock()
	}()

	compare, groups := time.NewTicker(s.options.Compare), time.NewTicker(s.options.GroupCompare)
	defer compare.Stop()
	defer groups.Stop()
	for {
		again, err := s.round(ctx, conn)
		if err != nil {
			return err
		}
		retry := time.NewTimer(again)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-conn.Done():
			err = conn.Err()
		case <-s.bell:
		case <-retry.C:
		case <-compare.C:
			err = s.read(ctx, conn, true)
		case <-groups.C:
			err = s.read(ctx, conn, false)
		}
		retry.Stop()
		if err != nil {
			return err
		}
	}
}

// begin asks for packet-ins and for reports of others' changes, then reads what is there. The
// monitor comes first: a change between the two is reported or read, or both.
func (s *Syncer) begin(ctx context.Context, conn *ofconn.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	if err := conn.Send(
		ofp.SetPacketInFormat{Format: ofp.PacketInNXM2},
		ofp.SetConfig{MissSendLen: 0xffff}, // a connection by the management socket hears nothing before
	); err != nil {
		return err
	}
	if err := conn.Barrier(ctx); err != nil {
		return fmt.Errorf("ask for packet-ins: %w", err)
	}
	if _, err := conn.Request(ctx, ofp.FlowMonitorRequest{
		ID:       1,
		Flags:    ofp.MonitorAdd | ofp.MonitorRemoved | ofp.MonitorModify | ofp.MonitorActions,
		Table:    ofp.TableAll,
		OutPort:  ofp.PortAny,
		OutGroup: ofp.GroupAny,
	}); err != nil {
		return fmt.Errorf("monitor the flows: %w", err)
	}
	return s.read(ctx, conn, true)
}

// read reads what the switch holds of ours: groups, and flows where all is true. What differs
// from what was known is compared with what is wanted in the next round.
func (s *Syncer) read(ctx context.Context, conn *ofconn.Conn, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	found := map[ident]entry{}
	groups, err := readGroups(ctx, conn)
	if err != nil {
		return err
	}
	for _, g := range groups {
		found[ident{group: g.ID, isGroup: true}] = entry{group: &g}
	}
	if all {
		flows, err := readFlows(ctx, conn)
		if err != nil {
			return err
		}
		for _, d := range flows {
			if f := flow.FromStats(d); s.ours(f.Cookie) {
				found[ident{key: f.Key()}] = entry{flow: &f}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if all {
		s.reread = false
	}
	for id, was := range s.have {
		if !all && !id.isGroup {
			continue
		}
		if now, ok := found[id]; !ok {
			s.noteForeign(id)
			delete(s.have, id)
		} else if now.equal(was) {
			found[id] = was
		}
	}
	for id, now := range found {
		if was, ok := s.have[id]; !ok || was != now {
			s.noteForeign(id)
			s.have[id] = now
		}
	}
	// A full read leaves no doubt: everything wanted is compared.
	if all {
		for id := range s.claims {
			s.dirty[id] = struct{}{}
		}
	}
	return nil
}

// noteForeign marks an entry that is not as it was known to be; s.mu is held.
func (s *Syncer) noteForeign(id ident) {
	s.dirty[id] = struct{}{}
	if s.synced > 0 {
		s.stats.Mended++
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

func readFlows(ctx context.Context, conn *ofconn.Conn) ([]ofp.FlowDesc, error) {
	parts, err := conn.Request(ctx, ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{
		Table: ofp.TableAll, OutPort: ofp.PortAny, OutGroup: ofp.GroupAny,
	}})
	if err != nil {
		return nil, fmt.Errorf("read the flows: %w", err)
	}
	var out []ofp.FlowDesc
	for _, p := range parts {
		reply, ok := p.(ofp.FlowDescReply)
		if !ok {
			return nil, fmt.Errorf("read the flows: the switch answers with %s", p.Type())
		}
		out = append(out, reply.Flows...)
	}
	return out, nil
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
		for _, u := range m.Updates {
			s.update(u)
		}
		s.mu.Unlock()
		s.ring()
	case ofp.Error:
		s.log.Warn("the switch complains", "error", m.Error())
	}
}

// update follows one report of the flow monitor; s.mu is held.
func (s *Syncer) update(u ofp.FlowUpdate) {
	switch u.Event {
	case ofp.UpdateAdded, ofp.UpdateModified, ofp.UpdateInitial:
		f := flow.FromUpdate(u)
		id, now := ident{key: f.Key()}, entry{flow: &f}
		if !s.ours(f.Cookie) {
			// Somebody's own flow. If it has taken the place of one of ours, ours comes back.
			if _, ok := s.have[id]; ok {
				delete(s.have, id)
				s.noteForeign(id)
			}
			return
		}
		if was, ok := s.have[id]; ok && was.equal(now) {
			return
		}
		s.have[id] = now
		s.noteForeign(id)
	case ofp.UpdateRemoved:
		id := ident{key: flow.FromUpdate(u).Key()}
		if _, ok := s.have[id]; ok {
			delete(s.have, id)
			s.noteForeign(id)
		}
	case ofp.UpdatePaused, ofp.UpdateResumed:
		s.reread = true // the switch has dropped reports
	}
}

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
	reread := s.reread
	s.mu.Unlock()
	if reread {
		if err := s.read(ctx, conn, true); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	s.mu.Lock()
	gen, again := s.gen, time.Hour
	for id, r := range s.refused {
		if wait := time.Until(r.until); wait > 0 {
			again = min(again, wait)
		} else {
			s.dirty[id] = struct{}{}
		}
	}
	c := s.plan()
	clear(s.dirty)
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	refused, err := s.send(ctx, conn, c)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused {
		again = min(again, refusalMin)
	}
	if s.synced < gen || gen == 0 {
		s.synced = max(gen, 1)
		s.metrics.latency.Observe(time.Since(start).Seconds())
	}
	s.wake()
	return again, nil
}

// plan compares what is dirty; s.mu is held. Groups come before the flows that use them,
// removals last.
func (s *Syncer) plan() change {
	var c, flows, delFlows, delGroups change
	now := time.Now()
	for id := range s.dirty {
		list := s.claims[id]
		had, there := s.have[id]
		if len(list) == 0 {
			if !there || !s.released {
				continue
			}
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

// send sends a change. A message that the switch refuses is held back, the rest sent again. It
// reports whether any was refused; an error means that the connection is of no more use.
func (s *Syncer) send(ctx context.Context, conn *ofconn.Conn, c change) (refused bool, err error) {
	for len(c.messages) > 0 {
		err := conn.Bundle(ctx, c.messages)
		var bad *ofconn.BundleError
		switch {
		case err == nil:
			s.mu.Lock()
			s.stats.Bundles++
			for i, id := range c.ids {
				if c.after[i] == (entry{}) {
					delete(s.have, id)
				} else {
					s.have[id] = c.after[i]
				}
				delete(s.refused, id)
			}
			s.mu.Unlock()
			return refused, nil
		case !errors.As(err, &bad):
			return refused, err
		case bad.Index < 0 && len(c.messages) > 1:
			// The switch does not say which one: halve until it is found.
			half := len(c.messages) / 2
			first, err := s.send(ctx, conn, c.slice(0, half))
			if err != nil {
				return true, err
			}
			second, err := s.send(ctx, conn, c.slice(half, len(c.messages)))
			return refused || first || second, err
		}
		i := max(bad.Index, 0)
		refused = true
		s.mu.Lock()
		s.stats.LastError = bad.Error()
		s.refuse(c.ids[i], c.after[i].or(s.have[c.ids[i]]), bad.Err)
		s.mu.Unlock()
		rest := c.slice(0, i)
		rest.messages = append(rest.messages[:i:i], c.messages[i+1:]...)
		rest.ids = append(rest.ids[:i:i], c.ids[i+1:]...)
		rest.after = append(rest.after[:i:i], c.after[i+1:]...)
		c = rest
	}
	return refused, nil
}

// or is e, or o where e is nothing.
func (e entry) or(o entry) entry {
	if e == (entry{}) {
		return o
	}
	return e
}

// DumpedFlow is a flow as the switch holds it.
type DumpedFlow struct {
	Flow           flow.Flow
	Owner          flow.Owner // zero for a flow that is not ours, or that nobody wants
	Packets, Bytes uint64
	Duration       time.Duration
}

// DumpedGroup is a group as the switch holds it.
type DumpedGroup struct {
	Group flow.Group
	Owner flow.Owner
}

// Dump is what the switch holds, everybody's.
type Dump struct {
	Flows  []DumpedFlow
	Groups []DumpedGroup
}

// Dump reads the switch.
func (s *Syncer) Dump(ctx context.Context) (Dump, error) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return Dump{}, errors.New("no connection to the switch: is ovs-vswitchd running?")
	}
	flows, err := readFlows(ctx, conn)
	if err != nil {
		return Dump{}, err
	}
	groups, err := readGroups(ctx, conn)
	if err != nil {
		return Dump{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := func(id ident) flow.Owner {
		if list := s.claims[id]; len(list) > 0 {
			return list[0].owner
		}
		return flow.Owner{}
	}
	var d Dump
	for _, f := range flows {
		v := flow.FromStats(f)
		out := DumpedFlow{
			Flow: v, Packets: f.Stats.Packets, Bytes: f.Stats.Bytes,
			Duration: time.Duration(f.Stats.DurationSec)*time.Second + time.Duration(f.Stats.DurationNsec),
		}
		if s.ours(v.Cookie) {
			out.Owner = owner(ident{key: v.Key()})
		}
		d.Flows = append(d.Flows, out)
	}
	for _, g := range groups {
		d.Groups = append(d.Groups, DumpedGroup{Group: g, Owner: owner(ident{group: g.ID, isGroup: true})})
	}
	return d, nil
}
