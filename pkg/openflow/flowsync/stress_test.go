package flowsync_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestDeclarationsAreCoalesced has ten owners that each declare every millisecond while a bundle takes the switch half
// a second. All declarations during one bundle are in the next.
func TestDeclarationsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScripted(t)
		w.received = func(_ int, m ofp.Message) bool {
			if c, ok := m.(ofp.BundleControl); ok && c.Ctrl == ofp.BundleCommitRequest {
				timer := time.NewTimer(500 * time.Millisecond)
				<-timer.C
			}
			return false
		}
		s, stop := w.start()
		defer stop()
		s.Release()
		want := map[flow.Owner]flow.Entries{}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := range 5000 {
			<-tick.C
			for i := range 10 {
				owner := flow.Owner{Kind: 1, Name: fmt.Sprint(i)}
				want[owner] = flow.Entries{Flows: []flow.Flow{{
					Table: ofp.Table(i), Match: flow.All(flow.IP()),
					Actions: flow.Do(flow.Load(flow.Reg(1).Bits(0, 32), uint64(n)), flow.Resubmit(20)),
				}}}
				s.Set(owner, want[owner])
			}
		}
		if err := trySync(s, ovstest.Timeout()); err != nil {
			t.Fatal(err)
		}
		if d := w.differs(want); d != "" {
			t.Error(d)
		}
		if n, mods := len(w.log()), s.Stats().FlowMods; n > 13 || mods > 130 {
			t.Errorf("%d bundles with %d flow-mods for 50,000 declarations in five seconds", n, mods)
		}
	})
}

// TestStalledSwitchTakesNoMemory has a switch that stops reading in the middle of a bundle while owners go on: hundreds
// of thousands of declarations, thousands of waiting callers. Only the last desired state is kept. It does not run in
// parallel with others, since it measures the heap.
//
//tombolo:unraced
func TestStalledSwitchTakesNoMemory(t *testing.T) {
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	s.Release()
	r := rand.New(rand.NewPCG(1, 2))
	owner := func(i int) flow.Owner { return flow.Owner{Kind: 1, Name: fmt.Sprint(i)} }
	random := func(i int) flow.Entries {
		var e flow.Entries
		for n := range 20 {
			e.Flows = append(e.Flows, flow.Flow{
				Table: ofp.Table(i), Priority: uint16(r.IntN(100)*20 + n), Match: flow.All(flow.IP()),
				Actions: flow.Do(flow.Load(flow.Reg(1).Bits(0, 32), r.Uint64N(1000)), flow.Resubmit(100)),
			})
		}
		return e
	}
	want := map[flow.Owner]flow.Entries{}
	declare := func(n int) {
		for range n {
			i := r.IntN(50)
			want[owner(i)] = random(i)
			s.Set(owner(i), want[owner(i)])
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	declare(500)
	synced(t, s)
	stalled := make(chan struct{})
	p.after(100_000, func() { p.pause(toSwitch, fromSwitch); close(stalled) })
	declare(500)
	select {
	case <-stalled:
	case <-time.After(ovstest.Timeout()):
		t.Fatal("nothing is being sent")
	}
	declare(500)
	bundles, mods := s.Stats().Bundles, s.Stats().FlowMods
	before, goroutines := heap(), runtime.NumGoroutine()
	var waiting sync.WaitGroup
	for range 20 {
		for range 100 {
			waiting.Go(func() {
				if err := trySync(s, 20*time.Millisecond); err == nil {
					t.Error("confirmed by a switch that is not there")
				}
			})
		}
		declare(1000)
		waiting.Wait()
	}
	after := heap()
	t.Logf("heap %d KB before, %d KB after 20,000 declarations of 20 flows", before>>10, after>>10)
	if after > before+2<<20 {
		t.Errorf("20,000 declarations to a stalled switch have taken %d KB", (after-before)>>10)
	}
	if n := runtime.NumGoroutine(); n > goroutines+200 { // of 2,000 that have waited; other tests have some, too
		t.Errorf("%d goroutines, before %d", n, goroutines)
	}
	p.resume(toSwitch, fromSwitch)
	synced(t, s)
	if err := o.differs(want); err != nil {
		t.Error(err)
	}
	// The stopped bundle, the last desired state, and nothing in between.
	if st := s.Stats(); st.Bundles > bundles+4 || st.FlowMods > mods+4*50*20*2 {
		t.Errorf("%d bundles, %d flow-mods since", st.Bundles-bundles, st.FlowMods-mods)
	}
}

// TestSilentAtAnyMessage has a connection that stays open and goes silent, as when a host
// goes without a word, at each message that a session has: it is given up and replaced.
func TestSilentAtAnyMessage(t *testing.T) {
	first := map[flow.Owner]flow.Entries{alice: drops(t, 1, 3)}
	second := map[flow.Owner]flow.Entries{alice: drops(t, 1, 5), bob: drops(t, 2, 1)}
	for n := 1; ; n++ {
		reached := false
		synctest.Test(t, func(t *testing.T) {
			w := newScripted(t)
			var received, last atomic.Int64
			w.received = func(connection int, m ofp.Message) bool {
				if connection > 1 {
					return false
				}
				last.Store(int64(m.Type()))
				return received.Add(1) == int64(n)
			}
			at := func() ofp.Type { return ofp.Type(last.Load()) }
			s, stop := w.start()
			defer stop()
			s.Release()
			start := time.Now()
			for _, want := range []map[flow.Owner]flow.Entries{first, second} {
				setAll(s, want)
				if err := trySync(s, 40*time.Second); err != nil {
					t.Errorf("silent at message %d, %s: %v", n, at(), err)
				}
				if d := w.differs(want); d != "" {
					t.Errorf("silent at message %d, %s: the switch differs:\n%s", n, at(), d)
				}
			}
			if took := time.Since(start); took > 25*time.Second {
				t.Errorf("silent at message %d, %s: replaced after %s", n, at(), took)
			}
			// Only echoes and comparisons are left to send: the Syncer still notices silence. This checks a moment
			// without other work: a request without an answer after half a minute is given up 20 s later.
			if s.Stats().Connections == 1 {
				time.Sleep(53 * time.Second) // of the bubble's clock
			}
			st := s.Stats()
			reached = st.Connections == 2 || n < 10 && received.Load() >= int64(n)
			if st.Connections > 2 || !st.Connected {
				t.Errorf("silent at message %d, %s: %+v", n, at(), st)
			}
		})
		if t.Failed() {
			return
		}
		if !reached {
			t.Logf("silent at each of %d messages", n-1)
			if n < 25 {
				t.Errorf("a session has only %d messages", n-1)
			}
			return
		}
		if n > 200 {
			t.Fatal("a session does not come to rest")
		}
	}
}

// TestComesAndGoes has flows that come and go faster than rounds do, so that some go between the comparison and the
// bundle. In the end no flow is left.
func TestComesAndGoes(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{Compare: time.Hour})
	s.Release()
	synced(t, s)
	e := drops(t, 1, 1)
	for range 60 {
		for n := range 2000 {
			e.Flows[0].Priority = uint16(n)
			s.Set(alice, e)
			if n%5 == 0 {
				runtime.Gosched()
			}
			s.Set(alice, flow.Entries{})
		}
		synced(t, s)
		if err := o.differs(nil); err != nil {
			t.Fatal(err)
		}
	}
	if s.Stats().FlowMods == 0 {
		t.Error("nothing has ever been sent")
	}
}
