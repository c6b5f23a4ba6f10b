package flowsync

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// owners are the owners of entries, and their claims on slots.
type owners struct {
	instance  uint16 // the upper 16 bits of our flows' cookies
	slots     *slots
	all       map[flow.Owner]*owner
	contested map[*slot]struct{} // with several owners
	wanted    tally
}

func newOwners(slots *slots, instance uint16) owners {
	return owners{instance: instance, slots: slots, all: map[flow.Owner]*owner{}, contested: map[*slot]struct{}{}}
}

// cookie says in a flow whose it is: instance, kind, hash of the name.
func (t *owners) cookie(o flow.Owner) uint64 {
	h := fnv.New32a()
	h.Write([]byte(o.Name))
	return uint64(t.instance)<<48 | uint64(o.Kind)<<40 | uint64(h.Sum32())
}

// ours reports whether a cookie is of our instance.
func (t *owners) ours(cookie uint64) bool { return uint16(cookie>>48) == t.instance }

// of returns the owner of an entry.
func (t *owners) of(id []byte) flow.Owner {
	if sl := t.slots.get(id); sl != nil && sl.owner != nil {
		return sl.owner.Owner
	}
	return flow.Owner{}
}

// set declares all desired flows and groups of an owner. It reports whether anything is new.
func (t *owners) set(name flow.Owner, e flow.Entries) (any bool) {
	o := t.all[name]
	if o == nil {
		if len(e.Flows)+len(e.Groups) == 0 {
			return false
		}
		o = &owner{Owner: name}
		t.all[name] = o
	}
	before, had := o.slots, len(o.slots)
	o.round = !o.round
	o.twice = nil
	o.slots = make([]*slot, 0, len(e.Flows)+len(e.Groups))
	cookie := t.cookie(name)
	for i := range e.Flows {
		f := &e.Flows[i]
		t.slots.id = appendIdent(t.slots.id[:0], f)
		t.slots.form = appendHeader(t.slots.form[:0], cookie, f.IdleTimeout, f.HardTimeout, f.Flags, f.Importance)
		out, err := f.AppendInstructions(t.slots.form)
		t.slots.form = out
		any = t.want(o, err, func() string { return f.String() }) || any
	}
	for i := range e.Groups {
		g := &e.Groups[i]
		t.slots.id = appendGroupIdent(t.slots.id[:0], g.ID)
		out, err := appendGroup(t.slots.form[:0], g)
		t.slots.form = out
		any = t.want(o, err, func() string { return g.String() }) || any
	}
	if had > 0 && (had != len(o.slots) || any) {
		for _, sl := range before {
			if c := sl.claimOf(o); c != nil && c.round != o.round {
				t.unclaim(sl, o)
				any = true
			}
		}
	}
	if len(o.slots) == 0 {
		delete(t.all, name)
	}
	return any
}

// want declares a desired entry of an owner, whose ident and form are in slots. If err is not nil, the entry is
// invalid. It reports whether anything is new.
func (t *owners) want(o *owner, err error, text func() string) bool {
	sl := t.slots.make(t.slots.id)
	c := sl.claimOf(o)
	if c != nil && c.round == o.round {
		now := claim{want: form(t.slots.form)}
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
	case c != nil && string(c.want) == string(t.slots.form):
		now.want = c.want // keep the old value: no garbage for what has not changed
	case string(sl.have) == string(t.slots.form):
		now.want = sl.have
	default:
		now.want = form(t.slots.form)
	}
	counted := sl.claim
	switch {
	case c == nil:
		t.claim(sl, now)
	case sl.agree(*c, now):
		c.round = o.round
		return false
	default:
		*c = now
	}
	if counted.owner == nil {
		sl.have = sl.compared(sl.have)
	}
	t.slots.link(sl, now.want)
	t.recount(sl, counted)
	return true
}

// recount updates a slot whose claims have changed, if another claim may count now. A refused claim stays
// refused while only other claims change.
func (t *owners) recount(sl *slot, counted claim) {
	if sl.claim != counted {
		delete(t.slots.refused, sl)
		t.slots.mark(sl)
	}
}

// claim adds an owner's claim.
func (t *owners) claim(sl *slot, c claim) {
	if sl.owner == nil {
		sl.claim = c
		t.wanted.count(sl.id, 1)
		return
	}
	list := make([]claim, 0, 2)
	for old := range sl.claims {
		list = append(list, *old)
	}
	i, _ := slices.BinarySearchFunc(list, c, func(a, b claim) int { return compareOwners(a.owner.Owner, b.owner.Owner) })
	t.setClaims(sl, slices.Insert(list, i, c))
}

func (t *owners) setClaims(sl *slot, list []claim) {
	delete(t.contested, sl)
	sl.claim, sl.more = claim{}, nil
	if len(list) > 0 {
		sl.claim = list[0]
	}
	if len(list) > 1 {
		rest := slices.Clone(list[1:])
		sl.more = &rest
		t.contested[sl] = struct{}{}
	}
}

// compareOwners decides conflicts, the same way after a restart.
func compareOwners(a, b flow.Owner) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func (t *owners) unclaim(sl *slot, o *owner) {
	counted := sl.claim
	if sl.more != nil {
		var list []claim
		for c := range sl.claims {
			if c.owner != o {
				list = append(list, *c)
			}
		}
		t.setClaims(sl, list)
		t.recount(sl, counted)
		return
	}
	sl.claim = claim{}
	delete(t.slots.refused, sl)
	t.wanted.count(sl.id, -1)
	if sl.have != "" || sl.doubt {
		t.slots.mark(sl)
		return
	}
	// An entry that was never sent needs no removal. If it stayed, all entries that come and go while the switch is
	// unavailable would be kept. The entry may be in a bundle that is being sent: confirm checks that.
	t.slots.dirty.remove(sl)
	t.slots.tidy(sl)
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

// conflicts returns errors for the entries of some owners that other owners want differently.
func (t *owners) conflicts(of func(*owner) bool) []error {
	var errs []error
	for sl := range t.contested {
		for _, c := range *sl.more {
			if of(c.owner) && sl.against(c) {
				errs = append(errs, fmt.Errorf("%s wants %s, which %s wants as %s", c.owner, c.text(sl.id), sl.owner,
					sl.text(sl.id)))
			}
		}
	}
	return errs
}

// deletion returns the message that deletes the flow with an ident, but only if the flow is ours: another program's
// flow may have taken its place since the last report.
func (t *owners) deletion(id ident) ofp.FlowMod {
	return ofp.FlowMod{
		Command: ofp.FlowDeleteStrict, Table: id.table(), Priority: id.priority(), Match: id.match(),
		Cookie: uint64(t.instance) << 48, CookieMask: 0xffff << 48,
	}
}
