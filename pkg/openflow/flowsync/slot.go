package flowsync

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
)

// slot is the whole state of one ident: its owners' claims, and the switch's entry. There is a slot for each flow and
// group that is desired, that is ours in the switch, or that has pending work.
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

// slots has all slots by their ident, and the work that is being done on them. Groups are in a separate map, since they
// are read more often.
type slots struct {
	flows    map[ident]*slot
	groups   map[ident]*slot
	linked   map[*slot]struct{} // flows that use groups or meters, or have since their slot was made
	dirty    dirtyList
	reads    uint32             // counts reads
	touched  map[*slot]struct{} // what was reported during a read or a bundle; else nil
	reserved []*slot            // what it refers to, or the bundle that is about to be sent
	removing map[uint32]bool    // groups whose removal is being sent
	refused  map[*slot]*refusal
	id, form []byte // of what is looked at, to be used again
}

func newSlots() *slots {
	return &slots{flows: map[ident]*slot{}, groups: map[ident]*slot{}, linked: map[*slot]struct{}{},
		refused: map[*slot]*refusal{}}
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

// mark notes that a slot is to be compared.
func (t *slots) mark(sl *slot) { t.dirty.add(sl) }

// tidy forgets a slot of which nothing is known any more.
func (t *slots) tidy(sl *slot) {
	if sl.owner == nil && sl.have == "" && !sl.doubt && !sl.dirty && !sl.reserved && t.refused[sl] == nil {
		delete(t.linked, sl)
		delete(t.of(sl.id.isGroup()), sl.id)
	}
}

// link records that a flow depends on a group or a meter, with which the switch would remove it. So a removal need not
// search all flows. It is called for all desired and reported flows.
func (t *slots) link(sl *slot, f form) {
	if sl.id.links(f) {
		t.linked[sl] = struct{}{}
	}
}

// reserve keeps a slot until commit.
func (t *slots) reserve(sl *slot) {
	if !sl.reserved {
		sl.reserved = true
		t.reserved = append(t.reserved, sl)
	}
}

// commit notes that no read and no bundle is under way any more.
func (t *slots) commit() {
	t.touched, t.removing = nil, nil
	reserved := t.reserved
	t.reserved = nil
	for _, sl := range reserved {
		sl.reserved = false
		t.tidy(sl)
	}
}
