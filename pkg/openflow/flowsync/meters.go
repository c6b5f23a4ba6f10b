package flowsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// lastMeter is the last number of a meter that flows can use (OFPM_MAX, OpenFlow 1.5 section 7.3.4.5). Higher numbers
// are meters of the switch's connections to controllers, and belong to its administrator.
const lastMeter = 0xffff0000

// meters is the meter table. Open vSwitch takes no meter-mods in bundles (OFPBFC_MSG_UNSUP), so meters are kept apart
// from flows and groups. New and changed meters are sent before the bundle with the flows that use them, and removals
// after it. Switches do not report changes of meters, so meters are read and compared as often as groups.
type meters struct {
	owners  map[flow.Owner]map[uint32]flow.Meter
	claims  map[uint32][]meterClaim // in the owners' order; the first counts
	have    map[uint32]flow.Meter   // what the switch holds, as far as is known
	foreign map[uint32]struct{}     // what another program has changed
	refused map[uint32]*meterRefusal
	twice   map[flow.Owner][]error // what they want in two ways at once
	dirty   bool                   // since they were compared last
	drop    bool                   // they were compared, and undesired ones are still to be removed
}

type meterClaim struct {
	owner flow.Owner
	meter flow.Meter
}

type meterRefusal struct {
	meter flow.Meter
	err   error
	until time.Time
	delay time.Duration
}

func newMeters() meters {
	return meters{
		owners: map[flow.Owner]map[uint32]flow.Meter{}, claims: map[uint32][]meterClaim{}, have: map[uint32]flow.Meter{},
		foreign: map[uint32]struct{}{}, refused: map[uint32]*meterRefusal{}, twice: map[flow.Owner][]error{},
	}
}

// set declares all meters of an owner and reports whether that is anything new.
func (t *meters) set(o flow.Owner, list []flow.Meter) bool {
	before := t.owners[o]
	if len(before) == 0 && len(list) == 0 {
		return false
	}
	wanted := make(map[uint32]flow.Meter, len(list))
	delete(t.twice, o)
	for _, m := range list {
		if first, ok := wanted[m.ID]; ok {
			if !first.Equal(m) {
				t.twice[o] = append(t.twice[o], fmt.Errorf("%s wants %s, and in the same place %s: only the first is sent", o,
					first, m))
			}
			continue
		}
		m.Bands = slices.Clone(m.Bands)
		wanted[m.ID] = m
	}
	changed := false
	drop := func(c meterClaim) bool { return c.owner == o }
	for id := range before {
		if _, ok := wanted[id]; !ok {
			changed = true
			if t.claims[id][0].owner == o {
				delete(t.refused, id) // it was this one's
			}
			if t.claims[id] = slices.DeleteFunc(t.claims[id], drop); len(t.claims[id]) == 0 {
				delete(t.claims, id)
			}
		}
	}
	for id, m := range wanted {
		if was, ok := before[id]; ok && was.Equal(m) {
			continue
		}
		changed = true
		if claims := t.claims[id]; len(claims) == 0 || compareOwners(o, claims[0].owner) <= 0 {
			delete(t.refused, id)
		}
		claims := slices.DeleteFunc(t.claims[id], drop)
		i, _ := slices.BinarySearchFunc(claims, o, func(c meterClaim, o flow.Owner) int { return compareOwners(c.owner, o) })
		t.claims[id] = slices.Insert(claims, i, meterClaim{o, m})
	}
	if t.owners[o] = wanted; len(wanted) == 0 {
		delete(t.owners, o)
	}
	t.dirty = t.dirty || changed
	return changed
}

// problems returns the refusals of meters, and conflicts with other owners, of some owners. Without arguments it
// considers all owners.
func (t *meters) problems(owners []flow.Owner) []error {
	var errs []error
	for id, r := range t.refused {
		for _, c := range t.claims[id] {
			if (len(owners) == 0 || slices.Contains(owners, c.owner)) && c.meter.Equal(t.claims[id][0].meter) {
				errs = append(errs, fmt.Errorf("%s wants %s: %w", c.owner, r.meter, r.err))
				break
			}
		}
	}
	for _, o := range owners {
		errs = append(errs, t.twice[o]...)
		errs = append(errs, t.conflicts(o)...)
	}
	return errs
}

func (t *meters) conflicts(o flow.Owner) []error {
	var errs []error
	for id, m := range t.owners[o] {
		if first := t.claims[id][0]; first.owner != o && !first.meter.Equal(m) {
			errs = append(errs, fmt.Errorf("%s wants %s, which %s wants as %s", o, m, first.owner, first.meter))
		}
	}
	return errs
}

// found notes the result of a read. With news, differences are another program's changes.
func (t *meters) found(list []flow.Meter, news bool) {
	now := make(map[uint32]flow.Meter, len(list))
	note := func(id uint32) {
		t.dirty = true
		if news {
			t.foreign[id] = struct{}{}
		}
		if r := t.refused[id]; r != nil {
			r.until = time.Time{} // refused for what is no longer so
		}
	}
	for _, m := range list {
		now[m.ID] = m
		if was, ok := t.have[m.ID]; !ok || !was.Equal(m) {
			note(m.ID)
		}
	}
	for id := range t.have {
		if _, ok := now[id]; !ok {
			note(id)
		}
	}
	t.have = now
}

// plan is what has to be sent: additions and changes, or removals.
func (t *meters) plan(now time.Time, removals bool) []ofp.MeterMod {
	var out []ofp.MeterMod
	if removals {
		for id, m := range t.have {
			r := t.refused[id]
			if _, wanted := t.claims[id]; !wanted && id <= lastMeter && (r == nil || !now.Before(r.until)) {
				out = append(out, m.Mod(ofp.MeterDelete))
			}
		}
		return out
	}
	for id := range t.refused {
		if _, there := t.have[id]; !there && len(t.claims[id]) == 0 {
			delete(t.refused, id) // its removal was refused, and it is gone
		}
	}
	for id, claims := range t.claims {
		want := claims[0].meter
		if had, there := t.have[id]; there && had.Equal(want) {
			delete(t.refused, id)
		} else if r := t.refused[id]; r != nil && now.Before(r.until) {
			continue
		} else if there {
			out = append(out, want.Mod(ofp.MeterModify))
		} else {
			out = append(out, want.Mod(ofp.MeterAdd))
		}
	}
	return out
}

// current reports whether a meter-mod brings what is wanted still.
func (t *meters) current(m ofp.MeterMod) bool {
	claims := t.claims[m.ID]
	if m.Command == ofp.MeterDelete || len(claims) == 0 {
		return m.Command == ofp.MeterDelete && len(claims) == 0
	}
	return claims[0].meter.Equal(flow.Meter{ID: m.ID, Flags: m.Flags, Bands: m.Bands})
}

// due says after how long a refused meter is tried again.
func (t *meters) due() time.Duration {
	again := time.Hour
	for _, r := range t.refused {
		again = max(min(again, time.Until(r.until)), 0)
	}
	return again
}

// setMeters sends the meters that are new or changed.
func (se *session) setMeters(ctx context.Context) error {
	se.syncer.mu.Lock()
	var mods []ofp.MeterMod
	if se.syncer.meters.dirty || se.syncer.meters.due() == 0 {
		mods = se.syncer.meters.plan(time.Now(), false)
		se.syncer.meters.dirty, se.syncer.meters.drop = false, true
	}
	se.syncer.mu.Unlock()
	return se.sendMeters(ctx, mods)
}

// dropMeters removes undesired meters, after the flows that used them.
func (se *session) dropMeters(ctx context.Context) error {
	return se.sendMeters(ctx, se.metersToDrop())
}

// metersToDrop returns the meters to remove now. While there are new declarations it returns none, since flows may
// still have to change from one meter to another.
func (se *session) metersToDrop() []ofp.MeterMod {
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	var mods []ofp.MeterMod
	if se.syncer.meters.drop && se.syncer.released && !se.syncer.meters.dirty {
		mods = se.syncer.meters.plan(time.Now(), true)
	}
	se.syncer.meters.drop = false
	// With a meter the switch removes the flows that use it. For an owner that still wants such a flow, that is an error,
	// as for a refused flow.
	gone := map[uint32]bool{}
	for _, m := range mods {
		gone[m.ID] = true
	}
	if len(gone) > 0 {
		for sl := range se.slots.linked {
			if sl.id.usesMeter(sl.have, gone) {
				sl.have = ""
				se.slots.mark(sl)
				se.follow = true
			}
		}
	}
	return mods
}

func (se *session) sendMeters(ctx context.Context, mods []ofp.MeterMod) error {
	if len(mods) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	messages := make([]ofp.Message, len(mods))
	for i, m := range mods {
		messages[i] = m
	}
	refused, err := se.conn.Each(ctx, messages)
	if err != nil {
		return fmt.Errorf("set the meters: %w", err)
	}
	se.metersSent(mods, refused)
	return nil
}

// metersSent notes what the switch has made of meter-mods.
func (se *session) metersSent(mods []ofp.MeterMod, refused []error) {
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	came := map[uint32]bool{}
	for i, m := range mods {
		meter := flow.Meter{ID: m.ID, Flags: m.Flags, Bands: m.Bands}
		if refused[i] != nil && !se.syncer.meters.current(m) {
			se.syncer.meters.dirty = true // a meter that has changed meanwhile was not refused
			continue
		}
		if refused[i] != nil {
			se.refuseMeter(meter, refused[i])
			continue
		}
		delete(se.syncer.meters.refused, m.ID)
		if _, ok := se.syncer.meters.foreign[m.ID]; ok {
			delete(se.syncer.meters.foreign, m.ID)
			se.syncer.stats.Mended++
		}
		if m.Command == ofp.MeterDelete {
			delete(se.syncer.meters.have, m.ID)
			continue
		}
		se.syncer.meters.have[m.ID] = meter
		came[m.ID] = true
	}
	for sl, r := range se.slots.refused { // for want of the meter, maybe
		if sl.id.isGroup() && len(came) > 0 || sl.id.usesMeter(r.form, came) {
			r.until = time.Time{}
			se.follow = true
		}
	}
}

// refuseMeter keeps a meter back for a while; syncer.mu is held.
func (se *session) refuseMeter(m flow.Meter, err error) {
	r := se.syncer.meters.refused[m.ID]
	if r == nil {
		r = &meterRefusal{}
		se.syncer.meters.refused[m.ID] = r
		se.syncer.log.Error("the switch does not take a meter; the others go on", "meter", m.String(), "error", err)
	}
	r.meter, r.err = m, err
	r.delay = min(max(2*r.delay, refusalMin), refusalMax)
	r.until = time.Now().Add(r.delay)
	se.syncer.stats.LastError = err.Error()
	se.syncer.reasons.count(err)
	se.syncer.stale.groups = true // maybe our record of the meters is out of date
	se.syncer.signal()
}

// readMeters reads all meters. A switch without them holds none.
func readMeters(ctx context.Context, conn *ofconn.Conn) ([]flow.Meter, error) {
	parts, err := conn.Request(ctx, ofp.MeterDescRequest{ID: ofp.MeterAll})
	var refusal *ofconn.SwitchError
	if errors.As(err, &refusal) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the meters: %w", err)
	}
	var out []flow.Meter
	for _, p := range parts {
		reply, ok := p.(ofp.MeterDescReply)
		if !ok {
			return nil, fmt.Errorf("read the meters: the switch answers with %s", p.Type())
		}
		for _, d := range reply.Meters {
			out = append(out, flow.FromMeterDesc(d))
		}
	}
	return out, nil
}

// MeterStats reads the counters of all meters. If the switch has no meters, the list is empty.
func (s *Syncer) MeterStats(ctx context.Context) ([]ofp.MeterStatistics, error) {
	se, err := s.connected()
	if err != nil {
		return nil, err
	}
	parts, err := se.conn.Request(ctx, ofp.MeterStatsRequest{ID: ofp.MeterAll})
	var refusal *ofconn.SwitchError
	if errors.As(err, &refusal) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the counters of the meters: %w", err)
	}
	var out []ofp.MeterStatistics
	for _, p := range parts {
		reply, ok := p.(ofp.MeterStatsReply)
		if !ok {
			return nil, fmt.Errorf("read the counters of the meters: the switch answers with %s", p.Type())
		}
		out = append(out, reply.Meters...)
	}
	return out, nil
}

// usesMeter reports whether actions use one of some meters.
func usesMeter(actions []ofp.Action, meters map[uint32]bool) bool {
	return slices.ContainsFunc(actions, func(a ofp.Action) bool {
		switch a := a.(type) {
		case ofp.Meter:
			return meters[a.ID]
		case ofp.Clone:
			return usesMeter(a.Actions, meters)
		case ofp.WriteActions:
			return usesMeter(a.Actions, meters)
		}
		return false
	})
}
