package policy

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// podRange is a podCIDR, as the key of an index.
type podRange struct{ netip.Prefix }

// Compare orders by address, then length.
func (p podRange) Compare(o podRange) int {
	return cmp.Or(p.Addr().Compare(o.Addr()), cmp.Compare(p.Bits(), o.Bits()))
}

// rangeLength is the length of podCIDRs of a family, as the key of a table.
type rangeLength struct {
	v6   bool
	bits int
}

// Compare orders by family; the longest prefix is first.
func (l rangeLength) Compare(o rangeLength) int {
	if l.v6 != o.v6 {
		if o.v6 {
			return -1
		}
		return 1
	}
	return cmp.Compare(o.bits, l.bits)
}

// podRanges adds the tables by which the Node of an address is found.
func (t *Tables) podRanges(e *derive.Engine) {
	t.ranges = derive.NewIndex(t.Nodes, "pod-range", func(_ derive.Object, n NodeFacts) []podRange {
		out := make([]podRange, len(n.PodCIDRs))
		for i, p := range n.PodCIDRs {
			out[i] = podRange{p}
		}
		return out
	})
	byLength := derive.NewIndex(t.Nodes, "pod-range-length", func(_ derive.Object, n NodeFacts) []rangeLength {
		out := make([]rangeLength, len(n.PodCIDRs))
		for i, p := range n.PodCIDRs {
			out[i] = rangeLength{p.Addr().Is6(), p.Bits()}
		}
		return out
	})
	t.lengths = derive.NewTable(e, "podcidr-lengths", func(rangeLength, *derive.Reader) (bool, []problem.Problem) { return true, nil },
		derive.KeysOfIndex(byLength))
}

// nodeOf returns the name of the Node whose podCIDRs have an address, "" for none. Of podCIDRs that overlap the longest
// counts; of Nodes that have the same one, this Node and then the first by name. This is where packets to the
// address are sent, too (datapath, claims).
func (t *Tables) nodeOf(r *derive.Reader, a netip.Addr) string {
	for _, length := range derive.All(r, t.lengths) {
		if p, ok := length.Key.around(a); ok {
			if rows := derive.List(r, t.ranges, p); len(rows) > 0 {
				names := make([]string, len(rows))
				for i, row := range rows {
					names[i] = row.Key.Name
				}
				return t.firstNode(names)
			}
		}
	}
	return ""
}

// NodeAt is nodeOf for questions between two passes.
func (t *Tables) NodeAt(a netip.Addr) string {
	for _, length := range t.lengths.All() {
		if p, ok := length.Key.around(a); ok {
			if keys := t.ranges.Keys(p); len(keys) > 0 {
				names := make([]string, len(keys))
				for i, k := range keys {
					names[i] = k.Name
				}
				return t.firstNode(names)
			}
		}
	}
	return ""
}

// around returns the range of this length that has an address; false for one of the other family.
func (l rangeLength) around(a netip.Addr) (podRange, bool) {
	p, err := a.Prefix(l.bits)
	return podRange{p}, err == nil && a.Is6() == l.v6
}

// firstNode chooses the Node that a range counts for.
func (t *Tables) firstNode(names []string) string {
	first := names[0]
	for _, name := range names[1:] {
		if first != t.node && (name == t.node || strings.Compare(name, first) < 0) {
			first = name
		}
	}
	return first
}
