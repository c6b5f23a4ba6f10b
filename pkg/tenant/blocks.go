package tenant

import (
	"cmp"
	"math/big"
	"net/netip"
	"slices"
)

// A Subnet is cut into blocks, and Nodes have blocks of it. A block has at most 16 addresses, and a Subnet has at least
// 16 blocks if it has as many addresses. So a small Subnet suffices for several Nodes. A Node gets more blocks when it
// has more Pods, and returns all of them when it has no Pods any more.

// Claim is what a Node claims of a Subnet.
type Claim struct {
	Node, Claim string
	Pods        int
	Held        []netip.Addr // that its Pods have
	Requested   []netip.Addr // that its Pods request
}

// maxClaimed is how many addresses of a Subnet one Node may claim. With more, a faulty agent could exhaust the memory
// of the controller, or make the lease larger than an object may be.
const maxClaimed = 4096

// bounded leaves out the part of a claim that does not count.
func (c Claim) bounded() Claim {
	c.Pods = min(c.Pods, maxClaimed)
	c.Held, c.Requested = c.Held[:min(len(c.Held), maxClaimed)], c.Requested[:min(len(c.Requested), maxClaimed)]
	return c
}

// Grant returns the blocks of each Node that claims blocks, in the order of the Nodes' names. have has the present
// blocks. A Node keeps its blocks while it has the same claim. It also returns the Nodes that lack addresses.
func Grant(g Range, pools []netip.Prefix, have []NodeBlocks, claims []Claim) (out []NodeBlocks, short []string) {
	claims = slices.SortedFunc(slices.Values(claims), func(a, b Claim) int { return cmp.Compare(a.Node, b.Node) })
	for i := range claims {
		claims[i] = claims[i].bounded()
	}
	c := cutter{within: g, bits: blockBits(g.CIDR)}
	for _, claim := range claims {
		n := NodeBlocks{Node: claim.Node, Claim: claim.Claim}
		i := slices.IndexFunc(have, func(h NodeBlocks) bool { return h.Node == n.Node && h.Claim == n.Claim })
		if i >= 0 {
			for _, b := range have[i].Blocks {
				if c.take(b) {
					n.Blocks = append(n.Blocks, b)
				}
			}
		}
		out = append(out, n)
	}
	for _, list := range []func(Claim) []netip.Addr{
		func(c Claim) []netip.Addr { return c.Held }, func(c Claim) []netip.Addr { return c.Requested },
	} {
		for i, claim := range claims {
			for _, ip := range list(claim) {
				if one := netip.PrefixFrom(ip, ip.BitLen()); g.Usable(ip) && c.take(one) {
					out[i].Blocks = append(out[i].Blocks, one)
				}
			}
		}
	}
	for i, claim := range claims {
		room := 0
		for _, b := range out[i].Blocks {
			room += g.usable(b)
		}
		for room < claim.Pods {
			b, ok := c.next(pools)
			if !ok {
				short = append(short, claim.Node)
				break
			}
			c.take(b)
			out[i].Blocks = append(out[i].Blocks, b)
			room += g.usable(b)
		}
		slices.SortFunc(out[i].Blocks, netip.Prefix.Compare)
	}
	return slices.DeleteFunc(out, func(n NodeBlocks) bool { return len(n.Blocks) == 0 }), short
}

// blockBits returns the length of the blocks of a Subnet.
func blockBits(cidr netip.Prefix) int {
	return min(cidr.Addr().BitLen(), max(cidr.Bits()+4, cidr.Addr().BitLen()-4))
}

// usable returns how many addresses of a block Pods may have.
func (g Range) usable(block netip.Prefix) int {
	n := 1 << min(20, block.Addr().BitLen()-block.Bits())
	for _, ip := range []netip.Addr{g.Gateway, g.CIDR.Addr(), lastOf(g.CIDR)} {
		if block.Contains(ip) && !g.Usable(ip) {
			n--
		}
	}
	return n
}

// Usage returns the used part of a range with a number of Pods' addresses, in percent.
func (g Range) Usage(pods int) float64 {
	reserved := 2 // the range's own address and the gateway
	if g.CIDR.Addr().Is4() {
		reserved++ // broadcast
	}
	size, _ := new(big.Float).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(g.CIDR.Addr().BitLen()-g.CIDR.Bits()))).Float64()
	return 100 * float64(reserved+pods) / size
}

// cutter cuts free blocks out of a range.
type cutter struct {
	within Range
	bits   int
	taken  []netip.Prefix // sorted, and none overlaps another one
}

// at returns the index of a block in the sorted list of taken blocks, and whether one of these overlaps it.
func (c *cutter) at(p netip.Prefix) (int, bool) {
	i, _ := slices.BinarySearchFunc(c.taken, p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return i, i < len(c.taken) && c.taken[i].Overlaps(p) || i > 0 && c.taken[i-1].Overlaps(p)
}

// take takes a block, unless a part of it is taken.
func (c *cutter) take(p netip.Prefix) bool {
	i, overlaps := c.at(p)
	if overlaps || !c.within.CIDR.Contains(p.Addr()) || p.Bits() < c.within.CIDR.Bits() {
		return false
	}
	c.taken = slices.Insert(c.taken, i, p)
	return true
}

// next returns the first free block of the pools.
func (c *cutter) next(pools []netip.Prefix) (netip.Prefix, bool) {
	for _, p := range pools {
		if b, ok := c.free(p); ok {
			return b, true
		}
	}
	return netip.Prefix{}, false
}

// free returns the first free block of a range.
func (c *cutter) free(p netip.Prefix) (netip.Prefix, bool) {
	i, overlaps := c.at(p)
	covered := func(i int) bool {
		return i >= 0 && i < len(c.taken) && c.taken[i].Bits() <= p.Bits() && c.taken[i].Overlaps(p)
	}
	switch {
	case overlaps && (covered(i) || covered(i-1)):
		return netip.Prefix{}, false
	case !overlaps && p.Bits() >= c.bits:
		return p, c.within.usable(p) > 0
	case p.Bits() == p.Addr().BitLen():
		return netip.Prefix{}, false
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	if b, ok := c.free(low); ok {
		return b, true
	}
	return c.free(netip.PrefixFrom(lastOf(low).Next(), p.Bits()+1))
}
