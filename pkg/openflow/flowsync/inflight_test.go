package flowsync_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestChangedWhileItIsRefused has an owner declare a better flow in the moment in which the switch refuses the first.
// The better one is not held back for the refusal, and its owner gets no report of it.
func TestChangedWhileItIsRefused(t *testing.T) {
	for _, full := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newScripted(t)
			var s *flowsync.Syncer
			var stop func()
			var changed atomic.Bool
			bad := entries(t, "table=7,priority=1,ip,actions=output:9", "table=7,priority=2,ip,actions=output:9")
			good := entries(t, "table=7,priority=1,ip,actions=output:1", "table=7,priority=2,ip,actions=output:1")
			refusal := &ofp.Error{ErrType: 2, Code: 4} // OFPBAC_BAD_OUT_PORT
			if full {
				refusal = &ofp.Error{ErrType: 5, Code: 1} // OFPFMFC_TABLE_FULL
			}
			w.refuse = func(m ofp.Message) *ofp.Error {
				f, ok := m.(ofp.FlowMod)
				if !ok || f.Table != 7 || !flow.Actions(f.Actions).Equal(bad.Flows[0].Actions) {
					return nil
				}
				if changed.CompareAndSwap(false, true) {
					s.Set(alice, good)
				}
				return refusal
			}
			s, stop = w.start()
			defer stop()
			s.Release()
			s.Set(alice, bad)
			synctest.Wait()
			start := time.Now()
			if err := trySync(s, time.Minute, alice); err != nil {
				t.Errorf("table full %t: of what it wants now alice got: %v", full, err)
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("table full %t: it is held back for %s", full, took)
			}
			if d := w.differs(map[flow.Owner]flow.Entries{alice: good}); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestMetersOfTheSameDeclaration declares a meter and a flow that uses it while other meters are being sent: the flow
// waits for its meter.
func TestMetersOfTheSameDeclaration(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket), GroupCompare: time.Hour, Compare: time.Hour})
	s.Release()
	synced(t, s)
	p.pause(fromSwitch)
	one := metered(t, []flow.Meter{meter(1, 1)}, "table=1,ip,actions=meter:1,output:1")
	two := metered(t, []flow.Meter{meter(2, 1)}, "table=2,ip,actions=meter:2,output:1")
	s.Set(alice, one)
	o.Eventually("the meter is sent", func() error {
		if s.Stats().MeterMods == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	s.Set(bob, two)
	p.resume(fromSwitch)
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: one, bob: two}); err != nil {
		t.Error(err)
	}
	if n := s.Stats().FlowMods; n != 2 {
		t.Errorf("%d flow-mods were sent for two flows", n)
	}
}
