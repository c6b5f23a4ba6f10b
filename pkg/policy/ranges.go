package policy

import (
	"cmp"
	"net/netip"

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
func (t *unknownTables) podRanges(e *derive.Engine) {
	t.ranges = derive.NewIndex(t.all.Nodes, "pod-range", func(_ derive.Object, n NodeFacts) []podRange {
		out := make([]podRange, len(n.PodCIDRs))
		for i, p := range n.PodCIDRs {
			out[i] = podRange{p}
		}
		return out
	})
	byLength := derive.NewIndex(t.all.Nodes, "pod-range-length", func(_ derive.Object, n NodeFacts) []rangeLength {
		out := make([]rangeLength, len(n.PodCIDRs))
		for i, p := range n.PodCIDRs {
			out[i] = rangeLength{p.Addr().Is6(), p.Bits()}
		}
		return out
	})
	t.addFurther(e)
	t.lengths = derive.NewTable(e, "podcidr-lengths",
		func(rangeLength, *derive.Reader) (bool, []problem.Problem) { return true, nil }, derive.KeysOfIndex(byLength))
}

// nodeOf returns the name of the Node whose podCIDRs have an address, or "". r is nil between two passes. If podCIDRs
// overlap, the longest one decides. If several Nodes have the same podCIDR, the result is this Node if it is one of
// them. Otherwise it is the first Node by name. Packets to the address are sent to the same Node (datapath, claims).
func (t *unknownTables) nodeOf(r *derive.Reader, a netip.Addr) string {
	lengths := t.lengths.All
	if r != nil {
		lengths = func() []derive.Row[rangeLength, bool] { return derive.All(r, t.lengths) }
	}
	for _, length := range lengths() {
		if p, ok := length.Key.around(a); ok {
			if rows := list(r, t.all.Nodes, t.ranges, p); len(rows) > 0 {
				return t.firstNode(rows)
			}
		}
	}
	return ""
}

// NodeAt returns the name of the Node whose podCIDRs have an address, or "". It is called between two passes
// (derive.Engine.Do).
func (t *Tables) NodeAt(a netip.Addr) string { return t.unknown.nodeOf(nil, a) }

// around returns the range of a length that contains an address. ok is false for an address of the other family.
func (l rangeLength) around(a netip.Addr) (podRange, bool) {
	p, err := a.Prefix(l.bits)
	return podRange{p}, err == nil && a.Is6() == l.v6
}

// firstNode chooses the Node to which a range belongs. The rows are in the order of their names.
func (t *unknownTables) firstNode(rows []derive.Row[derive.Object, NodeFacts]) string {
	for _, row := range rows {
		if row.Key.Name == t.all.node {
			return t.all.node
		}
	}
	return rows[0].Key.Name
}
