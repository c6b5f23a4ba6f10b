package flow

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Set is the actual or desired contents of a switch. The zero value is empty, and entries cannot be added to it: use
// NewSet.
type Set struct {
	flows  map[Key]Flow
	groups map[uint32]Group
	meters map[uint32]Meter
}

// NewSet is an empty set.
func NewSet() *Set {
	return &Set{flows: map[Key]Flow{}, groups: map[uint32]Group{}, meters: map[uint32]Meter{}}
}

// Add adds a flow. It refuses a flow that the switch would refuse, and a second flow with the same key unless the two
// are equal.
func (s *Set) Add(f Flow) error {
	if err := f.Err(); err != nil {
		return err
	}
	if old, ok := s.flows[f.Key()]; ok && !old.sameBody(f) {
		return fmt.Errorf("two flows with the same table, priority and match: %q and %q", old, f)
	}
	s.flows[f.Key()] = f
	return nil
}

// AddGroup adds a group; it refuses another one with the same number.
func (s *Set) AddGroup(g Group) error {
	if err := g.Err(); err != nil {
		return err
	}
	if old, ok := s.groups[g.ID]; ok && !old.Equal(g) {
		return fmt.Errorf("two groups with the same number: %q and %q", old, g)
	}
	s.groups[g.ID] = g
	return nil
}

// AddMeter adds a meter; it refuses another one with the same number.
func (s *Set) AddMeter(m Meter) error {
	if old, ok := s.meters[m.ID]; ok && !old.Equal(m) {
		return fmt.Errorf("two meters with the same number: %q and %q", old, m)
	}
	s.meters[m.ID] = m
	return nil
}

// AddEntries adds all that an owner wants; it stops at the first refusal.
func (s *Set) AddEntries(e Entries) error {
	for _, m := range e.Meters {
		if err := s.AddMeter(m); err != nil {
			return err
		}
	}
	for _, g := range e.Groups {
		if err := s.AddGroup(g); err != nil {
			return err
		}
	}
	for _, f := range e.Flows {
		if err := s.Add(f); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes a flow. A missing flow is no error.
func (s *Set) Remove(k Key) { delete(s.flows, k) }

// RemoveGroup takes a group out.
func (s *Set) RemoveGroup(id uint32) { delete(s.groups, id) }

// RemoveMeter takes a meter out.
func (s *Set) RemoveMeter(id uint32) { delete(s.meters, id) }

// Get finds a flow by its key.
func (s *Set) Get(k Key) (Flow, bool) { f, ok := s.flows[k]; return f, ok }

// Group finds a group by its number.
func (s *Set) Group(id uint32) (Group, bool) { g, ok := s.groups[id]; return g, ok }

// Meter finds a meter by its number.
func (s *Set) Meter(id uint32) (Meter, bool) { m, ok := s.meters[id]; return m, ok }

// Len is how many flows, groups and meters there are together.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.flows) + len(s.groups) + len(s.meters)
}

// Flows goes through the flows by table, falling priority and match.
func (s *Set) Flows() iter.Seq[Flow] {
	return func(yield func(Flow) bool) {
		if s == nil {
			return
		}
		keys := make([]Key, 0, len(s.flows))
		for k := range s.flows {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, CompareKeys)
		for _, k := range keys {
			if !yield(s.flows[k]) {
				return
			}
		}
	}
}

// Groups goes through the groups by number.
func (s *Set) Groups() iter.Seq[Group] {
	return func(yield func(Group) bool) {
		if s != nil {
			inOrder(s.groups, yield)
		}
	}
}

// Meters goes through the meters by number.
func (s *Set) Meters() iter.Seq[Meter] {
	return func(yield func(Meter) bool) {
		if s != nil {
			inOrder(s.meters, yield)
		}
	}
}

func inOrder[T any](m map[uint32]T, yield func(T) bool) {
	ids := make([]uint32, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if !yield(m[id]) {
			return
		}
	}
}

// Change turns one set into another. Mod has flows that are in both sets by their key, and whose actions, cookie,
// timeouts or flags change.
type Change struct {
	AddGroups, ModGroups, DelGroups []Group
	AddMeters, ModMeters, DelMeters []Meter
	Add, Mod, Del                   []Flow
}

// Diff returns the Change that turns have into want, in a fixed order. Two flows are the same flow when table, priority
// and match are equal: OpenFlow's own rule. A nil set is empty.
func Diff(have, want *Set) Change {
	var c Change
	if have == nil {
		have = NewSet()
	}
	if want == nil {
		want = NewSet()
	}
	Compare(have.groups, want.groups, cmp.Compare[uint32], Group.Equal, into(&c.AddGroups, &c.ModGroups, &c.DelGroups))
	Compare(have.meters, want.meters, cmp.Compare[uint32], Meter.Equal, into(&c.AddMeters, &c.ModMeters, &c.DelMeters))
	Compare(have.flows, want.flows, CompareKeys, Flow.sameBody, into(&c.Add, &c.Mod, &c.Del))
	return c
}

// into puts what Compare finds into the list that it belongs to.
func into[V any](add, mod, del *[]V) func(have, want *V) {
	return func(have, want *V) {
		switch {
		case have == nil:
			*add = append(*add, *want)
		case want == nil:
			*del = append(*del, *have)
		default:
			*mod = append(*mod, *want)
		}
	}
}

// Compare calls change for each entry that differs between two maps, in the order of keys. have or want is nil if the
// map lacks the entry.
func Compare[K comparable, V any](have, want map[K]V, order func(a, b K) int, equal func(a, b V) bool,
	change func(have, want *V)) {
	var keys []K
	for k, h := range have {
		if w, both := want[k]; !both || !equal(h, w) {
			keys = append(keys, k)
		}
	}
	for k := range want {
		if _, both := have[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, order)
	for _, k := range keys {
		var h, w *V
		if v, ok := have[k]; ok {
			h = &v
		}
		if v, ok := want[k]; ok {
			w = &v
		}
		change(h, w)
	}
}

// Empty reports whether there is nothing to do.
func (c Change) Empty() bool {
	return len(c.AddGroups)+len(c.ModGroups)+len(c.DelGroups)+len(c.AddMeters)+len(c.ModMeters)+
		len(c.DelMeters)+len(c.Add)+len(c.Mod)+len(c.Del) == 0
}

// String lists the change, one line an entry: + added, ~ modified, - removed.
func (c Change) String() string {
	var b strings.Builder
	list := func(sign string, n int, text func(int) string) {
		for i := range n {
			fmt.Fprintf(&b, "%s %s\n", sign, text(i))
		}
	}
	meters := func(sign string, m []Meter) { list(sign, len(m), func(i int) string { return m[i].String() }) }
	groups := func(sign string, g []Group) { list(sign, len(g), func(i int) string { return g[i].String() }) }
	flows := func(sign string, f []Flow) { list(sign, len(f), func(i int) string { return f[i].String() }) }
	meters("+", c.AddMeters)
	meters("~", c.ModMeters)
	groups("+", c.AddGroups)
	groups("~", c.ModGroups)
	flows("+", c.Add)
	flows("~", c.Mod)
	flows("-", c.Del)
	groups("-", c.DelGroups)
	meters("-", c.DelMeters)
	return b.String()
}

// Messages returns the messages that make the change, in an order without missing references: meters and groups before
// the flows that use them, and removals last, in reverse order.
func (c Change) Messages() []ofp.Message {
	var out []ofp.Message
	for _, m := range c.AddMeters {
		out = append(out, m.Mod(ofp.MeterAdd))
	}
	for _, m := range c.ModMeters {
		out = append(out, m.Mod(ofp.MeterModify))
	}
	for _, g := range c.AddGroups {
		out = append(out, g.Mod(ofp.GroupAdd))
	}
	for _, g := range c.ModGroups {
		out = append(out, g.Mod(ofp.GroupModify))
	}
	for _, f := range c.Add {
		out = append(out, f.Mod(ofp.FlowAdd))
	}
	for _, f := range c.Mod {
		out = append(out, f.Mod(ofp.FlowAdd))
	}
	for _, f := range c.Del {
		out = append(out, f.Mod(ofp.FlowDeleteStrict))
	}
	for _, g := range c.DelGroups {
		out = append(out, g.Mod(ofp.GroupDelete))
	}
	for _, m := range c.DelMeters {
		out = append(out, m.Mod(ofp.MeterDelete))
	}
	return out
}
