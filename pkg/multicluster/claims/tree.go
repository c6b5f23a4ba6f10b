package claims

import "net/netip"

// tree finds numbers by the range with which they were added. Each level of the tree is one bit of the address. The
// cost depends on the number of results, not on the size of the tree.
type tree struct {
	nodes  []node // the first one is 0.0.0.0/0, the second one ::/0
	values []value
}

// node is a range. Its fields are indexes in nodes and values plus one; zero means no index.
type node struct {
	halves [2]int32
	values int32 // the value that was added last
}

type value struct {
	of   int
	next int32 // of the same range, added before
}

// bits are an address to be walked, and the place of its family's root.
type bits struct {
	ip    [16]byte
	first int // the number of the address's first bit: 96 for IPv4
	root  int32
}

func bitsOf(ip netip.Addr) bits {
	if ip.Is4() {
		return bits{ip: ip.As16(), first: 96}
	}
	return bits{ip: ip.As16(), root: 1}
}

// at is a bit of the address, the first one with number 0.
func (b *bits) at(n int) byte {
	n += b.first
	return b.ip[n/8] >> (7 - n%8) & 1
}

// at returns the node of a range, and makes a missing one.
func (t *tree) at(p netip.Prefix) *node {
	if t.nodes == nil {
		t.nodes = make([]node, 2, 64)
	}
	ip := bitsOf(p.Addr())
	here := ip.root
	for n := range p.Bits() {
		half := ip.at(n)
		next := t.nodes[here].halves[half]
		if next == 0 {
			t.nodes = append(t.nodes, node{})
			next = int32(len(t.nodes))
			t.nodes[here].halves[half] = next
		}
		here = next - 1
	}
	return &t.nodes[here]
}

func (t *tree) add(p netip.Prefix, of int) {
	at := t.at(p)
	t.values = append(t.values, value{of: of, next: at.values})
	at.values = int32(len(t.values))
}

// remove takes back the last add of a range.
func (t *tree) remove(p netip.Prefix) {
	if at := t.at(p); at.values != 0 {
		at.values = t.values[at.values-1].next
	}
}

// containing calls f with what was added with this range or one that contains it.
func (t *tree) containing(p netip.Prefix, f func(int)) { t.path(p, f) }

// overlapping calls f with what was added with a range that shares addresses with this one.
func (t *tree) overlapping(p netip.Prefix, f func(int)) {
	if at, ok := t.path(p, f); ok {
		for _, half := range t.nodes[at].halves {
			t.below(half, f)
		}
	}
}

// path calls f for each range that contains a range, from the largest on. It returns the node of the range itself if
// there is one.
func (t *tree) path(p netip.Prefix, f func(int)) (at int32, ok bool) {
	if t.nodes == nil {
		return 0, false
	}
	ip := bitsOf(p.Addr())
	at = ip.root
	for n := 0; ; n++ {
		t.each(at, f)
		if n == p.Bits() {
			return at, true
		}
		next := t.nodes[at].halves[ip.at(n)]
		if next == 0 {
			return 0, false
		}
		at = next - 1
	}
}

func (t *tree) below(half int32, f func(int)) {
	if half == 0 {
		return
	}
	t.each(half-1, f)
	for _, next := range t.nodes[half-1].halves {
		t.below(next, f)
	}
}

func (t *tree) each(at int32, f func(int)) {
	for v := t.nodes[at].values; v != 0; v = t.values[v-1].next {
		f(t.values[v-1].of)
	}
}
