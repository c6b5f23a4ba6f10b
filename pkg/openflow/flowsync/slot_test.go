package flowsync

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// model is a Syncer as it would be without any thought of speed.
type model struct {
	desired map[flow.Owner]flow.Entries
	have    map[ident]form
}

// wanted returns the desired contents of the switch: for each ident its first owner's entry, and of two entries of one
// owner the first. An ident with a wrong entry keeps its earlier entry.
func (m *model) wanted(s *Syncer) (want map[ident]form, wrong map[ident]bool, flows, groups int) {
	want, wrong = map[ident]form{}, map[ident]bool{}
	owners := make([]flow.Owner, 0, len(m.desired))
	for o := range m.desired {
		owners = append(owners, o)
	}
	slices.SortFunc(owners, compareOwners)
	for _, o := range owners {
		for _, f := range m.desired[o].Flows {
			id := ident(appendIdent(nil, &f))
			if _, taken := want[id]; taken || wrong[id] {
				continue
			}
			flows++
			head := appendHeader(nil, s.owners.cookie(o), f.IdleTimeout, f.HardTimeout, f.Flags, f.Importance)
			b, err := f.AppendInstructions(head)
			if err != nil {
				wrong[id] = true
			} else {
				want[id] = form(b)
			}
		}
		for _, g := range m.desired[o].Groups {
			id := groupIdent(g.ID)
			if _, taken := want[id]; taken || wrong[id] {
				continue
			}
			groups++
			if now, err := groupForm(g); err != nil || g.Err() != nil {
				wrong[id] = true
			} else {
				want[id] = now
			}
		}
	}
	return want, wrong, flows, groups
}

// TestSlotsAgainstModel declares at random, lets the switch accept the plan or not, and compares with the model: the
// sent messages, the counters, and that no other slot is kept.
func TestSlotsAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := New(Options{Instance: 7})
		se := newSession(s, nil)
		s.Release()
		m := &model{map[flow.Owner]flow.Entries{}, map[ident]form{}}
		for step := range 200 {
			for range 1 + r.IntN(3) {
				o := flow.Owner{Kind: flow.Kind(1 + r.IntN(2)), Name: fmt.Sprint(r.IntN(3))}
				e := randomEntries(r)
				s.Set(o, e)
				if m.desired[o] = e; len(e.Flows)+len(e.Groups) == 0 {
					delete(m.desired, o)
				}
			}
			if r.IntN(3) == 0 {
				agree(t, s, m, fmt.Sprintf("seed %d, step %d, before it is sent", seed, step))
				continue
			}
			s.mu.Lock()
			c := se.plan(time.Now().Add(time.Hour)) // past all back-off
			s.mu.Unlock()
			if r.IntN(4) == 0 { // the connection is lost
				se.assume(c)
				s.mu.Lock()
				s.slots.retract(c)
				for _, st := range c {
					s.slots.mark(st.slot)
				}
			} else {
				se.assume(c)
				if r.IntN(3) == 0 { // an owner declares while the switch is at work
					o := flow.Owner{Kind: 1, Name: "0"}
					delete(m.desired, o)
					s.Set(o, flow.Entries{})
				}
				for _, st := range c {
					before, there := m.have[st.id]
					switch {
					case st.op == remove && !there:
						t.Fatalf("seed %d, step %d: %s is removed and not there", seed, step, st.id.text(st.before))
					case st.op == modify && !there:
						t.Fatalf("seed %d, step %d: %s is changed and not there", seed, step, st.id.text(st.after))
					case st.op != remove && there && st.id.same(before, st.after):
						t.Fatalf("seed %d, step %d: %s is sent and there already", seed, step, st.id.text(st.after))
					}
					if m.have[st.id] = st.after; st.after == "" {
						delete(m.have, st.id)
					}
				}
				se.confirm(c)
				s.mu.Lock()
			}
			s.slots.commit()
			s.mu.Unlock()
			agree(t, s, m, fmt.Sprintf("seed %d, step %d", seed, step))
			if t.Failed() {
				return
			}
		}
	}
}

// agree compares a Syncer with the model.
func agree(t *testing.T, s *Syncer, m *model, when string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	want, wrong, flows, groups := m.wanted(s)
	if s.owners.wanted != (tally{flows, groups}) {
		t.Errorf("%s: %+v are wanted, want %d flows and %d groups", when, s.owners.wanted, flows, groups)
	}
	if len(s.owners.all) != len(m.desired) {
		t.Errorf("%s: there are %d owners, want %d", when, len(s.owners.all), len(m.desired))
	}
	n := 0
	for sl := range s.slots.all {
		if sl.owner == nil && sl.have == "" && !sl.dirty && s.slots.refused[sl] == nil {
			t.Errorf("%s: a slot is kept for nothing: %+v", when, sl)
		}
		if w, ok := want[sl.id]; ok && sl.want != w {
			t.Errorf("%s: wanted is %s, want %s", when, sl.text(sl.id), sl.id.text(w))
		}
		if sl.owner != nil {
			n++
		}
		if (sl.owner != nil) != (want[sl.id] != "" || wrong[sl.id]) || (sl.wrong != nil) != wrong[sl.id] {
			t.Errorf("%s: %q has owner %v, wrong %v", when, sl.id, sl.owner, sl.wrong)
		}
		if sl.have != m.have[sl.id] {
			t.Errorf("%s: the switch holds %s, and is thought to hold %s", when, sl.id.text(m.have[sl.id]), sl.id.text(sl.have))
		}
		if _, contested := s.owners.contested[sl]; contested != (sl.more != nil) || contested && len(*sl.more) == 0 {
			t.Errorf("%s: %q: contested %t, more %v", when, sl.id, contested, sl.more)
		}
		if todo := sl.owner == nil && sl.have != "" || sl.owner != nil && sl.wrong == nil && !sl.done(); todo && !sl.dirty {
			t.Errorf("%s: %q is not as wanted and nothing is to be done", when, sl.id)
		}
	}
	if n != flows+groups {
		t.Errorf("%s: %d slots are owned, want %d", when, n, flows+groups)
	}
	dirty := 0
	for sl := s.slots.dirty.first; sl != nil; sl = sl.next {
		if dirty++; !sl.dirty || sl.next != nil && sl.next.prev != sl {
			t.Fatalf("%s: the list of what is dirty is broken", when)
		}
	}
	if dirty != s.slots.dirty.n {
		t.Errorf("%s: %d are dirty, counted are %d", when, dirty, s.slots.dirty.n)
	}
}

func randomEntries(r *rand.Rand) flow.Entries {
	var e flow.Entries
	for range r.IntN(8) {
		f := flow.Flow{Table: 1, Priority: uint16(r.IntN(6)), Match: flow.All(flow.IP()),
			Actions: flow.Do(flow.Output(ofp.Port(1 + r.IntN(2))))}
		switch r.IntN(12) {
		case 0:
			f.Actions = flow.Do(flow.Goto(0)) // backwards
		case 1:
			f.Match = flow.All(flow.IP(), flow.IPv6()) // a contradiction
		case 2:
			f.IdleTimeout = 9
		}
		e.Flows = append(e.Flows, f)
	}
	for range r.IntN(3) {
		g := flow.Group{ID: uint32(1 + r.IntN(3)), Type: flow.AllBuckets}
		for b := range r.IntN(3) {
			g.Buckets = append(g.Buckets, flow.Bucket{ID: uint32(b), Actions: flow.Do(flow.Output(3))})
		}
		if r.IntN(6) == 0 {
			g.ID = 0xffffff01 // reserved
		}
		e.Groups = append(e.Groups, g)
	}
	return e
}

// TestTwiceInOneDeclaration has an owner want two things in one place: the first counts, the owner gets an error for
// the other, and the same thing twice is no mistake.
func TestTwiceInOneDeclaration(t *testing.T) {
	s := New(Options{Instance: 7})
	o := flow.Owner{Kind: 1, Name: "alice"}
	first, second := address(1, 1), address(1, 2)
	twice := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.owners.all[o] == nil {
			return 0
		}
		return len(s.owners.all[o].twice)
	}
	for _, test := range []struct {
		name  string
		flows []flow.Flow
		want  int
	}{
		{"two", []flow.Flow{first, second}, 1},
		{"again", []flow.Flow{first, second}, 1},
		{"the same", []flow.Flow{first, first}, 0},
		{"the other way around", []flow.Flow{second, first}, 1},
		{"nothing", nil, 0},
	} {
		s.Set(o, flow.Entries{Flows: test.flows})
		if n := twice(); n != test.want {
			t.Errorf("%s: %d are reported, want %d", test.name, n, test.want)
		}
		if len(test.flows) == 0 {
			continue
		}
		f := test.flows[0]
		f.Cookie = s.owners.cookie(o)
		id, want := formOf(t, f)
		if sl := s.slots.flows[id]; sl == nil || sl.want != want {
			t.Errorf("%s: the first does not count", test.name)
		}
	}
	if len(s.slots.flows) != 0 {
		t.Errorf("%d slots are left", len(s.slots.flows))
	}
}
