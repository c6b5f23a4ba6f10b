package flowsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestSyncedWaitsForTheFirstDeclaration makes the first declaration on a connection that is idle because it had nothing
// to do.
func TestSyncedWaitsForTheFirstDeclaration(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	synced(t, s)
	o.Eventually("the first round is over", func() error { return s.Idle() })
	p.pause(toSwitch)
	s.Set(alice, entries(t, "table=1,ip,actions=drop"))
	if err := trySync(s, 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the switch has not heard of it, and Synced says %v", err)
	}
	p.resume(toSwitch)
	synced(t, s)
}

// TestSyncedNeverLies has six owners that declare at random, each in a table of its own, while the connection stalls
// and is cut. Whenever Synced returns success for an owner, the owner asks the switch over another connection at once.
// Synced never returns later than its context ends.
func TestSyncedNeverLies(t *testing.T) {
	t.Parallel()
	const seed, workers, steps = 11, 6, 250
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	s.RedialWithin(time.Millisecond)
	s.Release()
	var confirmed, timeouts atomic.Int64
	var work, chaos sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	chaos.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1000))
		pause := time.NewTicker(2 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			switch r.IntN(8) {
			case 0:
				p.cutAll()
			case 1:
				p.pause(toSwitch)
			case 2:
				p.pause(fromSwitch)
			default:
				p.resume(toSwitch, fromSwitch)
			}
			<-pause.C
		}
		p.resume(toSwitch, fromSwitch)
	})
	last := make([]flow.Entries, workers)
	for w := range workers {
		work.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			eyes := o.connect()
			owner, table := flow.Owner{Kind: 4, Name: fmt.Sprintf("worker-%d", w)}, ofp.Table(20+w)
			for step := range steps {
				var e flow.Entries
				for n := range r.IntN(20) {
					e.Flows = append(e.Flows, flow.Flow{
						Table: table, Priority: uint16(n), Match: flow.All(flow.IP()),
						Actions: flow.Do(flow.Load(flow.Reg(1).Bits(0, 32), uint64(r.IntN(3))), flow.Resubmit(4)),
					})
				}
				last[w] = e
				s.Set(owner, e)
				limit := 10 * time.Second
				if r.IntN(3) == 0 {
					limit = time.Duration(r.IntN(20)) * time.Millisecond
				}
				start := time.Now()
				err := trySync(s, limit, owner)
				if took := time.Since(start); took > limit+ovstest.Timeout() {
					t.Errorf("worker %d, step %d: Synced has taken %s, its context %s", w, step, took, limit)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					timeouts.Add(1)
					continue
				}
				if err != nil {
					t.Errorf("worker %d, step %d: %v", w, step, err)
					continue
				}
				confirmed.Add(1)
				if d := look(t, eyes, table, e); d != "" {
					t.Errorf("worker %d, step %d: Synced says nil, and the switch differs:\n%s", w, step, d)
				}
			}
		})
	}
	work.Wait()
	cancel()
	chaos.Wait()
	want := map[flow.Owner]flow.Entries{}
	for w, e := range last {
		want[flow.Owner{Kind: 4, Name: fmt.Sprintf("worker-%d", w)}] = e
	}
	synced(t, s)
	if err := o.differs(want); err != nil {
		t.Error(err)
	}
	t.Logf("%d confirmed, %d timeouts, %d connections", confirmed.Load(), timeouts.Load(), s.Stats().Connections)
	if confirmed.Load() < workers*steps/3 || timeouts.Load() == 0 || s.Stats().Connections < 3 {
		t.Errorf("%d confirmed, %d timeouts, %d connections: too tame", confirmed.Load(), timeouts.Load(),
			s.Stats().Connections)
	}
}

// look returns the difference between one table of the switch and an owner's desired entries.
func look(t testing.TB, c *ofconn.Conn, table ofp.Table, e flow.Entries) string {
	parts, err := c.Request(context.Background(), ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{Table: table}})
	if err != nil {
		t.Error(err)
	}
	have, want := flow.NewSet(), flow.NewSet()
	for _, p := range parts {
		for _, d := range p.(ofp.FlowDescReply).Flows {
			f := flow.FromStats(d)
			f.Cookie = 0
			if err := have.Add(f); err != nil {
				t.Error(err)
			}
		}
	}
	if err := want.AddEntries(e); err != nil {
		t.Error(err)
	}
	return flow.Diff(have, want).String()
}

// TestSyncedEndsWithItsContext has a switch that is there and does nothing: unreachable, not answering, cut again and
// again, or dead.
func TestSyncedEndsWithItsContext(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	s.RedialWithin(time.Millisecond)
	s.Release()
	want := entries(t, "table=1,ip,actions=drop")
	for _, test := range []struct {
		name     string
		do, undo func()
	}{
		{"the switch reads nothing", func() { p.pause(toSwitch) }, func() { p.resume(toSwitch) }},
		{"the switch says nothing", func() { p.pause(fromSwitch) }, func() { p.resume(fromSwitch) }},
		{"neither", func() { p.pause(toSwitch, fromSwitch) }, func() { p.resume(toSwitch, fromSwitch) }},
		{"neither, and the connection is new", func() { p.pause(toSwitch, fromSwitch); p.cutAll() },
			func() { p.resume(toSwitch, fromSwitch) }},
		{"it is dead", o.StopDaemon, o.StartDaemon},
	} {
		t.Run(test.name, func(t *testing.T) {
			synced(t, s)
			test.do()
			want.Flows[0].Priority++
			s.Set(alice, want)
			for _, limit := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
				start := time.Now()
				if err := trySync(s, limit, alice); !errors.Is(err, context.DeadlineExceeded) ||
					time.Since(start) > limit+ovstest.Timeout() {
					t.Errorf("after %s with %s to go: %v", time.Since(start), limit, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				if _, err := s.Dump(ctx); err == nil || time.Since(start) > 2*limit+ovstest.Timeout() {
					t.Errorf("dump: after %s with %s to go: %v", time.Since(start), limit, err)
				}
				// is sent or not, but returns
				_ = s.PacketOut(ctx, ofp.PacketOut{InPort: ofp.PortController, Data: make([]byte, 64)})
				cancel()
			}
			test.undo()
			synced(t, s, alice)
			if err := o.differs(map[flow.Owner]flow.Entries{alice: want}); err != nil {
				t.Error(err)
			}
		})
	}
}
