package flowsync

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// slot is the whole state of one ident: its owners' claims, and the switch's entry. There is a slot for each desired
// flow and group, for each of ours in the switch, and for each with pending work.
type slot struct {
	id    ident
	claim          // the claim that counts; without an owner nothing is desired
	more  *[]claim // other owners' claims, in the owners' order; different ones are conflicts
	have  form     // what the switch holds, as far as is known

	next, prev *slot // of what is dirty

	found    uint32 // the last read that has found it
	dirty    bool   // to be compared
	foreign  bool   // another program has changed it
	doubt    bool   // the switch may hold it or not, whatever have says
	reserved bool   // a read or a bundle that is under way refers to it
}

// claim is what one owner wants.
type claim struct {
	owner *owner
	want  form
	wrong *wrong // instead of want, for what the switch would refuse
	round bool   // which of the owner's declarations it was last in, odd or even ones
}

// wrong is an entry that is not sent.
type wrong struct {
	text string
	err  error
}

// owner is what entries belong to.
type owner struct {
	flow.Owner
	slots []*slot
	twice []error // what it wants in two ways at once
	round bool
}

// agree reports whether two claims on the slot want the same.
func (sl *slot) agree(c, d claim) bool {
	if c.wrong != nil || d.wrong != nil {
		return c.wrong != nil && d.wrong != nil && c.wrong.text == d.wrong.text
	}
	return sl.id.same(c.want, d.want)
}

// against reports whether a claim is a conflict with the claim that counts.
func (sl *slot) against(c claim) bool {
	return !sl.agree(sl.claim, c) && !sl.id.sameButCookie(sl.want, c.want)
}

// text is what the claim wants under an ident.
func (c *claim) text(id ident) string {
	if c.wrong != nil {
		return brief(c.wrong.text)
	}
	return brief(id.text(c.want))
}

// claims goes through the claims, beginning with the claim that counts.
func (sl *slot) claims(yield func(*claim) bool) {
	if sl.owner == nil || !yield(&sl.claim) || sl.more == nil {
		return
	}
	for i := range *sl.more {
		if !yield(&(*sl.more)[i]) {
			return
		}
	}
}

func (sl *slot) claimOf(o *owner) *claim {
	for c := range sl.claims {
		if c.owner == o {
			return c
		}
	}
	return nil
}

// done reports whether the switch holds what is wanted.
func (sl *slot) done() bool {
	return sl.wrong == nil && sl.have != "" && !sl.doubt && sl.id.same(sl.want, sl.have)
}

// dirtyList is the slots that are to be compared, in the order in which they became dirty.
type dirtyList struct {
	first, last *slot
	n           int
}

func (l *dirtyList) add(sl *slot) {
	if sl.dirty {
		return
	}
	sl.dirty, sl.prev = true, l.last
	if l.last == nil {
		l.first = sl
	} else {
		l.last.next = sl
	}
	l.last = sl
	l.n++
}

func (l *dirtyList) remove(sl *slot) {
	if !sl.dirty {
		return
	}
	if sl.prev == nil {
		l.first = sl.next
	} else {
		sl.prev.next = sl.next
	}
	if sl.next == nil {
		l.last = sl.prev
	} else {
		sl.next.prev = sl.prev
	}
	sl.dirty, sl.prev, sl.next = false, nil, nil
	l.n--
}

// slots are all slots by their ident. Groups are apart, since they are read more often.
type slots struct {
	flows  map[ident]*slot
	groups map[ident]*slot
}

func (t *slots) of(group bool) map[ident]*slot {
	if group {
		return t.groups
	}
	return t.flows
}

// get finds a slot; nil if it does not exist.
func (t *slots) get(id []byte) *slot { return t.of(id[0] == kindGroup)[ident(id)] }

// make finds a slot or makes it.
func (t *slots) make(id []byte) *slot {
	sl := t.get(id)
	if sl == nil {
		sl = &slot{id: ident(id)}
		t.of(sl.id.isGroup())[sl.id] = sl
	}
	return sl
}

// all goes through all slots.
func (t *slots) all(yield func(*slot) bool) {
	for _, m := range []map[ident]*slot{t.groups, t.flows} {
		for _, sl := range m {
			if !yield(sl) {
				return
			}
		}
	}
}

// mark notes that a slot is to be compared; s.mu is held.
func (s *Syncer) mark(sl *slot) { s.dirty.add(sl) }

// tidy forgets a slot of which nothing is known any more; s.mu is held.
func (s *Syncer) tidy(sl *slot) {
	if sl.owner == nil && sl.have == "" && !sl.doubt && !sl.dirty && !sl.reserved && s.refused[sl] == nil {
		delete(s.linked, sl)
		delete(s.slots.of(sl.id.isGroup()), sl.id)
	}
}

// link notes a flow that goes with a group or a meter, so that a removal need not look at all flows. All desired and
// reported flows pass here. s.mu is held.
func (s *Syncer) link(sl *slot, f form) {
	if sl.id.links(f) {
		s.linked[sl] = struct{}{}
	}
}

// reserve keeps a slot until commit; s.mu is held.
func (s *Syncer) reserve(sl *slot) {
	if !sl.reserved {
		sl.reserved = true
		s.reserved = append(s.reserved, sl)
	}
}

// commit notes that no read and no bundle is under way any more; s.mu is held.
func (s *Syncer) commit() {
	s.touched, s.removing = nil, nil
	reserved := s.reserved
	s.reserved = nil
	for _, sl := range reserved {
		sl.reserved = false
		s.tidy(sl)
	}
}

// set declares all that an owner wants; s.mu is held.
func (s *Syncer) set(name flow.Owner, e flow.Entries) {
	any := s.meters.set(name, e.Meters)
	o := s.owners[name]
	if o == nil {
		if len(e.Flows)+len(e.Groups) == 0 {
			if any {
				s.declared()
			}
			return
		}
		o = &owner{Owner: name}
		s.owners[name] = o
	}
	before, had := o.slots, len(o.slots)
	o.round = !o.round
	o.twice = nil
	o.slots = make([]*slot, 0, len(e.Flows)+len(e.Groups))
	cookie := s.cookie(name)
	for i := range e.Flows {
		f := &e.Flows[i]
		s.id = appendIdent(s.id[:0], f)
		s.form = appendHeader(s.form[:0], cookie, f.IdleTimeout, f.HardTimeout, f.Flags, f.Importance)
		out, err := f.AppendInstructions(s.form)
		s.form = out
		any = s.want(o, err, func() string { return f.String() }) || any
	}
	for i := range e.Groups {
		g := &e.Groups[i]
		s.id = appendGroupIdent(s.id[:0], g.ID)
		out, err := appendGroup(s.form[:0], g)
		s.form = out
		any = s.want(o, err, func() string { return g.String() }) || any
	}
	if had > 0 && (had != len(o.slots) || any) {
		for _, sl := range before {
			if c := sl.claimOf(o); c != nil && c.round != o.round {
				s.unclaim(sl, o)
				any = true
			}
		}
	}
	if len(o.slots) == 0 {
		delete(s.owners, name)
	}
	if any {
		s.declared()
	}
}

// want declares that an owner wants the entry whose ident and form are s.id and s.form or, if err is not nil, a wrong
// entry. It reports whether that is new.
func (s *Syncer) want(o *owner, err error, text func() string) bool {
	sl := s.slots.make(s.id)
	c := sl.claimOf(o)
	if c != nil && c.round == o.round {
		now := claim{want: form(s.form)}
		if err != nil {
			now = claim{wrong: &wrong{text: text()}}
		}
		if !sl.agree(*c, now) {
			o.twice = append(o.twice, fmt.Errorf("%s wants %s, and in the same place %s: only the first is sent", o,
				c.text(sl.id), brief(text())))
		}
		return false
	}
	o.slots = append(o.slots, sl)
	now := claim{owner: o, round: o.round}
	switch {
	case err != nil:
		now.wrong = &wrong{text(), err}
	case c != nil && string(c.want) == string(s.form):
		now.want = c.want // keep the old value: no garbage for what has not changed
	case string(sl.have) == string(s.form):
		now.want = sl.have
	default:
		now.want = form(s.form)
	}
	counted := sl.claim
	switch {
	case c == nil:
		s.claim(sl, now)
	case sl.agree(*c, now):
		c.round = o.round
		return false
	default:
		*c = now
	}
	if counted.owner == nil {
		sl.have = sl.compared(sl.have)
	}
	s.link(sl, now.want)
	s.recount(sl, counted)
	return true
}

// recount updates a slot whose claims have changed, if another claim may count now; s.mu is held. A refused claim stays
// refused while only other claims change.
func (s *Syncer) recount(sl *slot, counted claim) {
	if sl.claim != counted {
		delete(s.refused, sl)
		s.mark(sl)
	}
}

// claim adds an owner's claim; s.mu is held.
func (s *Syncer) claim(sl *slot, c claim) {
	if sl.owner == nil {
		sl.claim = c
		s.wanted.count(sl.id, 1)
		return
	}
	list := make([]claim, 0, 2)
	for old := range sl.claims {
		list = append(list, *old)
	}
	i, _ := slices.BinarySearchFunc(list, c, func(a, b claim) int { return compareOwners(a.owner.Owner, b.owner.Owner) })
	s.setClaims(sl, slices.Insert(list, i, c))
}

func (s *Syncer) setClaims(sl *slot, list []claim) {
	delete(s.contested, sl)
	sl.claim, sl.more = claim{}, nil
	if len(list) > 0 {
		sl.claim = list[0]
	}
	if len(list) > 1 {
		rest := slices.Clone(list[1:])
		sl.more = &rest
		s.contested[sl] = struct{}{}
	}
}

// compareOwners decides conflicts, the same way after a restart.
func compareOwners(a, b flow.Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func (s *Syncer) unclaim(sl *slot, o *owner) {
	counted := sl.claim
	if sl.more != nil {
		var list []claim
		for c := range sl.claims {
			if c.owner != o {
				list = append(list, *c)
			}
		}
		s.setClaims(sl, list)
		s.recount(sl, counted)
		return
	}
	sl.claim = claim{}
	delete(s.refused, sl)
	s.wanted.count(sl.id, -1)
	if sl.have != "" || sl.doubt {
		s.mark(sl)
		return
	}
	// An entry that was never sent needs no removal. Otherwise all entries that come and go while the switch is
	// unavailable would be kept. It may be about to be sent: confirm checks that.
	s.dirty.remove(sl)
	s.tidy(sl)
}

// tally has the numbers of desired flows and groups.
type tally struct{ flows, groups int }

func (t *tally) count(id ident, by int) {
	if id.isGroup() {
		t.groups += by
	} else {
		t.flows += by
	}
}

// conflicts returns errors for the entries of some owners that other owners want differently; s.mu is held.
func (s *Syncer) conflicts(of func(*owner) bool) []error {
	var errs []error
	for sl := range s.contested {
		for _, c := range *sl.more {
			if of(c.owner) && sl.against(c) {
				errs = append(errs, fmt.Errorf("%s wants %s, which %s wants as %s", c.owner, c.text(sl.id), sl.owner,
					sl.text(sl.id)))
			}
		}
	}
	return errs
}

// deletion returns the message that deletes the flow with an ident, if it is ours: another program's flow may have
// taken its place since its last report.
func (s *Syncer) deletion(id ident) ofp.FlowMod {
	return ofp.FlowMod{
		Command: ofp.FlowDeleteStrict, Table: id.table(), Priority: id.priority(), Match: id.match(),
		Cookie: uint64(s.options.Instance) << 48, CookieMask: 0xffff << 48,
	}
}
