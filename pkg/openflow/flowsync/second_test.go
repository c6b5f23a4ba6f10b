package flowsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestSecondController has another controller change our flows and groups while we change them ourselves. When it ends
// the switch equals the desired state, only because of the switch's reports: the slow comparison of flows does not run.
func TestSecondController(t *testing.T) {
	t.Parallel()
	const seed = 103
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{Compare: time.Hour, GroupCompare: 200 * time.Millisecond})
	s.Release()
	other := o.connect()
	for round := range 6 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		meddling := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			r := rand.New(rand.NewPCG(seed, uint64(1000+round)))
			for ctx.Err() == nil {
				if err := other.Send(meddle(r)...); err != nil {
					meddling <- err
					return
				}
				if err := other.Barrier(context.Background()); err != nil {
					meddling <- err
					return
				}
			}
			meddling <- nil
		}()
		var w map[flow.Owner]flow.Entries
		for range 40 {
			w = world(r)
			setAll(s, w)
			_ = trySync(s, ovstest.Timeout()) // entries whose group was taken away may be refused
		}
		cancel()
		if err := <-meddling; err != nil {
			t.Fatal(err)
		}
		o.Eventually("the switch equals the desired state", func() error {
			if err := o.differs(settle(w)); err != nil {
				return fmt.Errorf("%w\n%+v", err, s.Stats())
			}
			return nil
		})
	}
	if s.Stats().Mended == 0 || s.Stats().Connections != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// meddle is something that the other controller does.
func meddle(r *rand.Rand) []ofp.Message {
	table := ofp.Table(1 + r.IntN(2))
	switch r.IntN(6) {
	case 0:
		return []ofp.Message{ofp.FlowMod{Command: ofp.FlowDelete, Table: table}}
	case 1:
		return []ofp.Message{ofp.GroupMod{Command: ofp.GroupDelete, ID: uint32(100*(1+r.IntN(3)) + r.IntN(4))}}
	case 2: // what we might want, with other actions, under our cookie or another
		f := flow.Flow{Table: 1, Priority: uint16(r.IntN(12)), Match: flow.All(flow.IP()), Cookie: instance << 48}
		return []ofp.Message{f.Mod(ofp.FlowAdd)}
	case 3:
		f := flow.Flow{Table: table, Priority: 900, Match: flow.All(flow.Reg(0).Bits(0, 16).Is(r.Uint64N(1000))),
			Cookie: instance<<48 | 5}
		return []ofp.Message{f.Mod(ofp.FlowAdd)}
	case 4:
		return []ofp.Message{ofp.FlowMod{Command: ofp.FlowModify, Table: table, Actions: flow.Do(flow.Resubmit(7))}}
	default: // and back at once
		f := flow.Flow{Table: table, Priority: 901, Cookie: instance << 48}
		return []ofp.Message{f.Mod(ofp.FlowAdd), f.Mod(ofp.FlowDeleteStrict)}
	}
}

// TestMoreThanTheSwitchReports has another controller fill the switch faster than its reports are read. The switch then
// pauses them, and reports our own changes as if they were foreign.
func TestMoreThanTheSwitchReports(t *testing.T) {
	t.Parallel()
	o, want := startOVS(t), gateway(t)
	s, _ := o.start(flowsync.Options{Compare: time.Hour})
	setAll(s, want)
	s.Release()
	synced(t, s)
	var flood []ofp.Message
	for n := range 30000 {
		flood = append(flood, flow.Flow{
			Table: 9, Priority: uint16(n), Match: flow.All(flow.IP(), flow.Reg(0).Bits(0, 32).Is(uint64(n))),
			Cookie: instance<<48 | 9,
		}.Mod(ofp.FlowAdd))
	}
	o.must(o.connect().Bundle(t.Context(), flood))
	o.becomes(want)
	before := s.Stats()
	if before.Mended < 30000 {
		t.Errorf("%d changes mended, want 30000", before.Mended)
	}
	// It has come to rest.
	setAll(s, want)
	synced(t, s)
	quiet(t, s, before)
}
