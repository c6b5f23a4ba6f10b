package flowsync

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// endpoints returns a group with buckets to as many addresses.
func endpoints(t *testing.T, n int) flow.Group {
	t.Helper()
	g := flow.Group{ID: 7, Type: flow.Select, Selection: flow.Selection{Method: "dp_hash"}}
	for i := range n {
		g.Buckets = append(g.Buckets, flow.Bucket{ID: uint32(i * 7919), Weight: 1, Actions: flow.Do(
			flow.Load(flow.Reg(0).Bits(7, 1), 1),
			flow.CT(ofp.CT{Flags: ofp.CTCommit, Zone: 65520, Table: 7,
				NAT: &ofp.NAT{Flags: ofp.NATDst, IPMin: string([]byte{10, byte(i >> 8), byte(i), 9}), PortMin: 8080}}),
		)})
	}
	return g
}

// TestPacked packs messages of groups and others, and unpacks them.
func TestPacked(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	messages := map[string][]byte{"nothing": nil, "a header that is cut": make([]byte, 9), "a header": make([]byte, 24),
		"one byte of a bucket": make([]byte, 25), "zeros": make([]byte, 3000)}
	for _, n := range []int{0, 1, 2, 10, 400} {
		g := endpoints(t, n)
		b, err := g.AppendAdd(nil)
		if err != nil {
			t.Fatal(err)
		}
		messages[fmt.Sprintf("%d buckets", n)] = b
	}
	for i := range 200 {
		b := make([]byte, random.IntN(1000))
		for at := range b {
			b[at] = byte(random.IntN(3))
		}
		messages[fmt.Sprintf("random %d", i)] = b
	}
	for name, m := range messages {
		packed := appendPacked([]byte("x"), m)
		if back := appendUnpacked([]byte("yz"), form(packed[1:])); !bytes.Equal(back[2:], m) {
			t.Errorf("%s: %x is packed as %x, which is %x", name, m, packed[1:], back[2:])
		}
	}
	const most = 0.25
	if message, packed := messages["10 buckets"], appendPacked(nil, messages["10 buckets"]); float64(len(packed)) >
		most*float64(len(message)) {
		t.Errorf("10 buckets of %d bytes are packed in %d: want at most %.2f of them", len(message), len(packed), most)
	}
}

// TestPackingAllocates measures what the form of a group costs while a read compares it.
func TestPackingAllocates(t *testing.T) {
	g := endpoints(t, 10)
	slices.Reverse(g.Buckets) // as Open vSwitch reports them
	message, err := g.AppendAdd(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := ofp.GroupDescBytes{ID: g.ID, GroupType: ofp.GroupType(g.Type), Buckets: message[groupBuckets:]}
	b := appendReportedGroup(nil, d)
	if n := testing.AllocsPerRun(100, func() { b = appendReportedGroup(b[:0], d) }); n > 0 {
		t.Errorf("a reported group takes %.0f allocations, want none", n)
	}
}
