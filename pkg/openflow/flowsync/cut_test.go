package flowsync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
)

// cutDesired returns the declarations of TestCutAtEveryThirdByte, one after the other. Groups come, change and go.
// Flows come, change in place, change their timeout and go. The switch refuses one flow of the second, which is not in
// remains.
func cutDesired(t testing.TB) (first, second, remains map[flow.Owner]flow.Entries) {
	group := func(id uint32, port ...uint64) flow.Group {
		g := flow.Group{ID: id, Type: flow.Select, Selection: flow.Selection{Method: "dp_hash"}}
		for i, p := range port {
			g.Buckets = append(g.Buckets,
				flow.Bucket{ID: uint32(i), Weight: 1, Actions: flow.Do(flow.Load(flow.Reg(1).Bits(0, 8), p), flow.Resubmit(4))})
		}
		return g
	}
	a := entries(t, "table=1,priority=1,ip,actions=group:1", "table=1,priority=2,ip,actions=group:2",
		"table=1,priority=3,ip,actions=drop", "table=1,priority=4,ip,actions=drop")
	a.Groups = []flow.Group{group(1, 1, 2), group(2, 3)}
	b := entries(t, "table=2,priority=1,ip,actions=resubmit(,3)", "table=2,priority=2,ip,actions=drop")
	c := entries(t, "table=1,priority=1,ip,actions=group:1", "table=1,priority=2,ip,actions=group:3",
		"table=1,priority=4,ip,idle_timeout=9000,actions=drop")
	c.Groups = []flow.Group{group(1, 1, 2, 5), group(3, 3)}
	d := entries(t, "table=2,priority=1,ip,actions=resubmit(,4)", "table=2,priority=3,ip,actions=drop")
	bad := entries(t, "table=3,priority=1,ip,actions=group:77")
	carol := flow.Owner{Kind: 2, Name: "carol"}
	return map[flow.Owner]flow.Entries{alice: a, bob: b},
		map[flow.Owner]flow.Entries{alice: c, bob: d, carol: bad},
		map[flow.Owner]flow.Entries{alice: c, bob: d}
}

// TestCutAtEveryThirdByte cuts the connection after every third byte to the switch, and every third from it, over the
// handshake, the first declaration and one that changes it. TestMetersOverCutConnections cuts it in the same goroutines
// at random.
//
//tombolo:unraced
func TestCutAtEveryThirdByte(t *testing.T) {
	t.Parallel()
	first, second, remains := cutDesired(t)
	for d, name := range []string{"to the switch", "from the switch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startOVS(t)
			p := newProxy(t, o)
			run := func(n int) {
				var limit limits
				limit.each[d] = n
				p.limitNext(limit)
				cuts := p.cut()
				s, stop := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
				defer stop()
				s.RedialWithin(time.Millisecond)
				s.Release()
				for step, w := range []struct{ declare, hold map[flow.Owner]flow.Entries }{{first, first}, {second, remains}} {
					setAll(s, w.declare)
					synced(t, s, alice, bob)
					if err := o.differs(w.hold); err != nil {
						t.Fatalf("cut after %d bytes: step %d: %v", n, step, err)
					}
				}
				if n > 0 && p.cut() == cuts {
					o.Eventually(fmt.Sprintf("the cut after %d bytes", n), func() error {
						if p.cut() == cuts {
							return fmt.Errorf("%v bytes have passed", p.bytes())
						}
						return nil
					})
				}
			}
			run(0)
			total := p.bytes()[d]
			if total < 500 {
				t.Fatalf("only %d bytes pass", total)
			}
			for n := 1; n < total*9/10; n += 3 { // the last ones depend on the order of messages
				run(n)
			}
		})
	}
}
