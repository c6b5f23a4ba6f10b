package flowsync

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// BenchmarkOneOfMany declares another form of one flow among many in the switch, plans, and encodes the change: no cost
// may grow with the number of flows.
func BenchmarkOneOfMany(b *testing.B) {
	for _, many := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(many), func(b *testing.B) {
			s := New(Options{Instance: 7})
			se := newSession(s, nil)
			s.Release()
			for i := 0; i < many; i += 100 {
				var e flow.Entries
				for j := i; j < i+100; j++ {
					e.Flows = append(e.Flows, address(j, 0))
				}
				s.Set(flow.Owner{Kind: 1, Name: strconv.Itoa(i)}, e)
			}
			encode := func(buf []byte) []byte {
				c := se.plan(time.Now())
				se.assume(c)
				for i := range c {
					var err error
					if buf, err = c[i].append(&s.owners, buf, 1); err != nil {
						b.Fatal(err)
					}
				}
				se.confirm(c)
				s.slots.commit()
				return buf
			}
			buf := encode(nil)
			i := 0
			for b.Loop() {
				i++
				s.Set(flow.Owner{Kind: 2, Name: "one"}, flow.Entries{Flows: []flow.Flow{address(many, i)}})
				if len(encode(buf[:0])) == 0 {
					b.Fatal("nothing to send")
				}
			}
		})
	}
}

func address(i, variant int) flow.Flow {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(i))
	return flow.Flow{
		Table: 10, Priority: 200, Match: flow.All(flow.IPDst(netip.PrefixFrom(netip.AddrFrom4(a), 32))),
		Actions: flow.Do(
			flow.SetEthDst(ofp.MAC{2, 0, a[0], a[1], a[2], a[3]}),
			flow.SetTunnelDst(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})),
			flow.Load(flow.Reg(1).Bits(0, 32), uint64(variant)),
			flow.Resubmit(20),
		),
	}
}
