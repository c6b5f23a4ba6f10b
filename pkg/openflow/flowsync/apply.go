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

// append appends the step's message. A changed group is sent as a whole, without messages that insert or remove single
// buckets. After an insertion, Open vSwitch 3.1 makes the table of hash values of a select group only from the inserted
// buckets, and all connections go to them. After a removal it has no such table (ofproto.c, init_group() calls
// group_construct() before modify_group_start() adds the other buckets).
func (st *step) append(t *owners, b []byte, xid uint32) ([]byte, error) {
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
		m := t.deletion(st.id)
		return ofp.AppendFlowMod(b, xid, &m, "")
	}
	command := ofp.FlowAdd
	if st.op == modify {
		command = ofp.FlowModifyStrict
	}
	m := st.id.header(st.after, command)
	return ofp.AppendFlowMod(b, xid, &m, string(st.after[formInstructions:]))
}

// round sends the difference. It returns the time until the next comparison, or the error that ends the session.
func (se *session) round(ctx context.Context) (time.Duration, error) {
	se.syncer.mu.Lock()
	all, groups := se.syncer.stale.due()
	se.syncer.mu.Unlock()
	if all || groups {
		if err := se.read(ctx, all); err != nil {
			return 0, err
		}
	}
	se.syncer.mu.Lock()
	gen, since := se.syncer.progress.take()
	se.syncer.mu.Unlock()
	// Consequences of a change are sent before the change counts as done, for example flows that were removed with their
	// group, or flows for which there is room now. The number of passes is bounded, since another controller could keep
	// causing changes.
	for n := 0; n < followMax; n++ {
		more, err := se.pass(ctx)
		if err != nil {
			se.syncer.mu.Lock()
			if !since.IsZero() {
				se.syncer.progress.waiting = since // to be confirmed over another connection
			}
			se.syncer.mu.Unlock()
			return 0, err
		}
		if !more {
			break
		}
	}
	if !since.IsZero() {
		se.syncer.latency.Observe(time.Since(since).Seconds())
	}
	se.syncer.mu.Lock()
	if se.syncer.progress.synced < gen {
		se.syncer.progress.synced = gen
	}
	se.syncer.progress.wake()
	retries := se.slots.retry(time.Now())
	se.syncer.mu.Unlock()
	if retries {
		if _, err := se.pass(ctx); err != nil {
			return 0, err
		}
	}
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	se.syncer.progress.wake()
	again := se.syncer.meters.due()
	if se.syncer.stale.forwarded {
		again = max(min(again, forwardMin-time.Since(se.syncer.stale.groupsRead)), 0)
	}
	for _, r := range se.slots.refused {
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
func (se *session) pass(ctx context.Context) (bool, error) {
	for n := 0; ; n++ {
		if err := se.setMeters(ctx); err != nil {
			return false, err
		}
		se.syncer.mu.Lock()
		if !se.syncer.meters.dirty || n == followMax {
			break
		}
		se.syncer.mu.Unlock() // declared while others were sent: the flows that use them wait for them
	}
	se.follow = false
	for sl, r := range se.slots.refused {
		if r.until.IsZero() {
			se.slots.mark(sl)
		}
	}
	c := se.plan(time.Now())
	se.syncer.mu.Unlock()
	err := se.send(ctx, c)
	se.syncer.mu.Lock()
	se.slots.commit()
	se.syncer.mu.Unlock()
	if err == nil {
		err = se.dropMeters(ctx)
	}
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	return se.follow, err
}

// retry marks refused entries whose back-off has passed. They come after all other entries, so that these do not wait
// for them.
func (t *slots) retry(now time.Time) bool {
	n := 0
	for sl, r := range t.refused {
		if n < retryMax && !now.Before(r.until) {
			t.mark(sl)
			n++
		}
	}
	return n > 0
}

// plan compares the dirty slots and clears their marks. The caller holds syncer.mu. Groups come before the flows that
// use them, and removals last.
func (se *session) plan(now time.Time) change {
	var groups, flows, delFlows, delGroups change
	if se.slots.dirty.n > bulk {
		flows = make(change, 0, se.slots.dirty.n)
	}
	for se.slots.dirty.first != nil {
		sl := se.slots.dirty.first
		se.slots.dirty.remove(sl)
		foreign := sl.foreign
		sl.foreign = false
		r := se.slots.refused[sl]
		back := r != nil && now.Before(r.until)
		switch {
		case sl.owner == nil && sl.have == "" && !sl.doubt:
			delete(se.slots.refused, sl)
			se.slots.tidy(sl)
			continue
		case sl.owner == nil && (!se.syncer.released || back):
			continue
		case sl.owner != nil && sl.done():
			delete(se.slots.refused, sl)
			continue
		case back:
			continue
		case sl.wrong != nil:
			se.refuse(sl, "", sl.wrong.text, sl.wrong.err)
			continue
		}
		if foreign {
			se.syncer.stats.Mended++ // it answers another program's change
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
		se.slots.reserve(st.slot)
	}
	return c
}

// bulk is from how many flows on it is worth to know their number beforehand.
const bulk = 1000

// refuse keeps an entry back for a while; syncer.mu is held.
func (se *session) refuse(sl *slot, f form, text string, err error) {
	news := se.slots.refused[sl] == nil
	r := se.keepBack(sl, f, text, err)
	if news {
		se.syncer.log.Error("the switch does not take an entry; the others go on", "entry", r.of(sl),
			"error", err)
	}
	// The switch may have refused the entry because of an outdated group. So the groups are read again. If one was
	// outdated, the entry does not wait for its back-off.
	if !isTableFull(err) {
		se.syncer.stale.groups = true
		se.syncer.signal()
	}
}

// refuseStep holds back an entry that the switch has refused. The caller holds syncer.mu. If the desired entry has
// changed meanwhile, the refusal was not for the new one.
func (se *session) refuseStep(st step, err error) {
	if !st.current() {
		se.slots.mark(st.slot)
		return
	}
	se.refuse(st.slot, cmp.Or(st.after, st.before), "", err)
}

func (se *session) keepBack(sl *slot, f form, text string, err error) *refusal {
	r := se.slots.refused[sl]
	if r == nil {
		r = &refusal{}
		se.slots.refused[sl] = r
	}
	r.form, r.text, r.err = f, text, err
	r.delay = min(max(2*r.delay, refusalMin), refusalMax)
	r.until = time.Now().Add(r.delay)
	se.syncer.reasons.count(err)
	return r
}

// isTableFull reports whether a switch refused a flow because its table is full.
func isTableFull(err error) bool {
	var e *ofconn.SwitchError
	return errors.As(err, &e) && e.Refusal.Name() == "OFPFMFC_TABLE_FULL"
}

// send sends a change. If the switch refuses a message, send holds that message back, and sends the messages before and
// after it in separate bundles. After an error the connection cannot be used any more.
func (se *session) send(ctx context.Context, c change) error {
	for len(c) > 0 {
		se.assume(c)
		err := se.bundle(ctx, c)
		var bad *ofconn.BundleError
		switch {
		case err == nil:
			se.confirm(c)
			return nil
		case !errors.As(err, &bad):
			return err
		}
		i := bad.Index
		se.syncer.mu.Lock()
		se.slots.retract(c)
		if i < 0 && len(c) == 1 {
			i = 0
		}
		if i >= 0 {
			se.syncer.stats.LastError = bad.Error()
			se.refuseStep(c[i], bad.Err)
		}
		se.syncer.mu.Unlock()
		if i < 0 { // the switch does not name it: halve until it is found
			i = len(c) / 2
			if err := se.send(ctx, c[:i]); err != nil {
				return err
			}
			c = c[i:]
			continue
		}
		if err := se.send(ctx, c[:i]); err != nil {
			return err
		}
		rest := c[i+1:]
		if isTableFull(bad.Err) {
			rest = se.withoutAdditions(rest, c[i].id.table(), bad.Err)
		}
		// In halves, so that with many refusals what is sent grows little faster than they do.
		half := len(rest) / 2
		if err := se.send(ctx, rest[:half]); err != nil {
			return err
		}
		c = rest[half:]
	}
	return nil
}

// bundle sends one bundle. The time limit depends on the number of messages: with a fixed limit a large bundle would be
// interrupted at every attempt.
func (se *session) bundle(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, requestMax+time.Duration(len(c))*messageMax)
	defer cancel()
	return se.conn.BundleBytes(ctx, len(c),
		func(b []byte, xid uint32, i int) ([]byte, error) { return c[i].append(&se.syncer.owners, b, xid) })
}

// withoutAdditions holds back all new flows of a change that are for a full table, and returns the rest.
func (se *session) withoutAdditions(c change, table ofp.Table, err error) change {
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	var rest change
	for _, st := range c {
		switch {
		case st.id.isGroup() || st.after == "" || st.have != "" || st.id.table() != table:
			rest = append(rest, st)
		case st.current():
			se.keepBack(st.slot, st.after, "", err)
		default:
			se.slots.mark(st.slot)
		}
	}
	if n := len(c) - len(rest); n > 0 {
		se.syncer.log.Error("a table of the switch is full; more flows are held back", "table", table, "flows", n)
	}
	return rest
}

// assume records a change as done before it is sent, so that reports that arrive while the switch works on it are
// handled right. It keeps the earlier state in each step.
func (se *session) assume(c change) {
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	se.slots.touched, se.slots.removing = map[*slot]struct{}{}, map[uint32]bool{}
	for i := range c {
		st := &c[i]
		st.before = st.have
		// Since the plan was made the flow may have gone: a modify would do nothing then.
		if st.op == modify && !st.id.isGroup() && !onlyActions(st.before, st.after) {
			st.op = add
		}
		st.have = st.after
		if st.id.isGroup() && st.op == remove {
			se.slots.removing[st.id.group()] = true
		}
	}
}

// retract undoes assume, but for what was reported since.
func (t *slots) retract(c change) {
	for _, st := range c {
		if _, newer := t.touched[st.slot]; !newer {
			st.have = st.before
		}
	}
	t.touched, t.removing = nil, nil
}

// confirm records that the switch has accepted a change. Reports about the same flows since it was sent may be older or
// newer than the change. Such flows are in doubt, and are sent once more.
func (se *session) confirm(c change) {
	se.syncer.mu.Lock()
	defer se.syncer.mu.Unlock()
	se.syncer.stats.Bundles++
	touched := se.slots.touched
	se.slots.touched, se.slots.removing = nil, nil
	removed, came, room := map[uint32]bool{}, map[uint32]bool{}, map[ofp.Table]bool{}
	for _, st := range c {
		delete(se.slots.refused, st.slot)
		st.doubt = false
		if len(touched) > 0 {
			if _, reported := touched[st.slot]; reported && !st.id.same(st.have, st.after) {
				st.doubt = true
				se.slots.mark(st.slot)
				se.follow = true
				se.syncer.signal()
			}
		}
		if st.op != remove && st.owner == nil {
			se.slots.mark(st.slot) // given up between the plan and the bundle
			se.syncer.signal()
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
		if se.slots.reconsider(room, came) {
			se.follow = true
		}
	}
	if len(removed) == 0 {
		return
	}
	// With a group the switch removes the flows that use it (OpenFlow 1.5 section 6.7). It may not report that, since this
	// connection has caused it.
	se.follow = true
	for sl := range se.slots.linked {
		if sl.id.uses(sl.have, removed) {
			sl.have = ""
			se.slots.mark(sl)
			se.syncer.signal()
		}
	}
}

// reconsider releases entries that were refused because a table was full or a group was missing. It reports whether
// there are any.
func (t *slots) reconsider(room map[ofp.Table]bool, came map[uint32]bool) (any bool) {
	for sl, r := range t.refused {
		group := sl.id.isGroup()
		switch {
		case group && len(came) > 0,
			!group && room[sl.id.table()] && isTableFull(r.err),
			!group && len(came) > 0 && sl.id.uses(r.form, came):
			r.until = time.Time{}
			any = true
		}
	}
	return any
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
