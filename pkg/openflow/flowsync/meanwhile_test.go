package flowsync

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

var (
	ann        = flow.Owner{Kind: 1, Name: "ann"}
	ben        = flow.Owner{Kind: 1, Name: "ben"}
	errRefused = errors.New("refused")
)

// sent plans, and takes what is planned for sent.
func sent(s *Syncer) change {
	se := newSession(s, nil)
	s.mu.Lock()
	c := se.plan(time.Now().Add(time.Hour)) // past all back-off
	s.mu.Unlock()
	se.assume(c)
	return c
}

// answer is the switch's answer to all of a change: it is taken, or each step is refused.
func answer(s *Syncer, c change, err error) {
	se := newSession(s, nil)
	if err == nil {
		se.confirm(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.slots.retract(c)
		for _, st := range c {
			se.refuseStep(st, err)
		}
	}
	s.slots.commit()
}

func desired(variant int) flow.Entries { return flow.Entries{Flows: []flow.Flow{address(1, variant)}} }

// TestGivenUpWhileItIsRefused gives up a change of a flow while the switch refuses it, before removals are allowed. No
// entry may be left that is tried again and again.
func TestGivenUpWhileItIsRefused(t *testing.T) {
	s := New(Options{Instance: 7})
	s.Set(ann, desired(1))
	answer(s, sent(s), nil)
	s.Set(ann, desired(2))
	c := sent(s)
	s.Set(ann, flow.Entries{})
	answer(s, c, errRefused)
	sent(s)
	if len(s.slots.refused) != 0 {
		t.Errorf("a refusal is left of what nobody wants: %v", s.Stats().Refused)
	}
	s.Release()
	if c := sent(s); len(c) != 1 || c[0].op != remove {
		t.Errorf("after the release %d steps are sent, want the removal", len(c))
	}
}

// TestOthersKeepARefusal has a second owner come, change its declaration and go while the first one's flow is refused.
// The first owner gets the refusal all the time, the second only reports of its own mistake.
func TestOthersKeepARefusal(t *testing.T) {
	s := New(Options{Instance: 7})
	s.Release()
	s.Set(ann, desired(1))
	answer(s, sent(s), errRefused)
	reported := func(o flow.Owner) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return errors.Is(s.refusals([]flow.Owner{o}), errRefused)
	}
	for i, e := range []flow.Entries{{}, desired(2), desired(3), {}} {
		s.Set(ben, e)
		if !reported(ann) {
			t.Errorf("step %d: the first owner is not told any more", i)
		}
		if reported(ben) {
			t.Errorf("step %d: the second owner is told of what it does not want", i)
		}
	}
	s.Set(ben, desired(1))
	if !reported(ben) {
		t.Error("who wants the same is not reported")
	}
	s.Set(ann, flow.Entries{})
	if reported(ben) {
		t.Error("another owner's flow has not been tried yet, and counts as refused")
	}
}

// TestReleaseRemovesWhatIsInDoubt releases when the switch may hold a flow that is no longer desired.
func TestReleaseRemovesWhatIsInDoubt(t *testing.T) {
	s := New(Options{Instance: 7})
	s.Set(ann, desired(1))
	c := sent(s)
	s.mu.Lock() // another program deletes it before it is added, or after
	f := c[0].id.flow(c[0].after)
	s.slots.gone(&f, s.progress.synced > 0)
	s.mu.Unlock()
	s.Set(ann, flow.Entries{})
	answer(s, c, nil)
	sent(s)
	s.Release()
	if c := sent(s); len(c) != 1 || c[0].op != remove {
		t.Errorf("after the release %d steps are sent, want the removal", len(c))
	}
}

// TestMeterGivenUpWhileItIsRefused gives up or changes a meter while the switch refuses it.
func TestMeterGivenUpWhileItIsRefused(t *testing.T) {
	rate := func(r uint32) flow.Meter {
		return flow.Meter{ID: 1, Flags: ofp.MeterPktps, Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: r}}}
	}
	for _, then := range [][]flow.Meter{nil, {rate(2)}} {
		s := New(Options{Instance: 7})
		se := newSession(s, nil)
		s.Release()
		s.Set(ann, flow.Entries{Meters: []flow.Meter{rate(1)}})
		mods := s.meters.plan(time.Now(), false)
		s.Set(ann, flow.Entries{Meters: then})
		se.metersSent(mods, []error{errRefused})
		if now := s.meters.plan(time.Now(), false); len(now) != len(then) {
			t.Errorf("%d meters are sent, want %d", len(now), len(then))
		}
		if len(s.meters.refused) != 0 {
			t.Errorf("a refusal is left of what nobody wants: %v", s.meters.refused)
		}
	}
	// A removal that is refused, and then the meter is gone.
	s := New(Options{Instance: 7})
	se := newSession(s, nil)
	s.Release()
	s.meters.found([]flow.Meter{rate(1)}, false)
	se.metersSent(s.meters.plan(time.Now(), true), []error{errRefused})
	if len(s.meters.refused) != 1 || len(s.meters.plan(time.Now(), true)) != 0 {
		t.Error("the refused removal is tried again at once")
	}
	s.meters.found(nil, false)
	s.meters.plan(time.Now(), false)
	if due := s.meters.due(); due <= 0 {
		t.Error("what is not there is to be removed again and again")
	}
}

// TestMeterWantedTwice has an owner want two meters under one number. TestTwiceInOneDeclaration does the same with
// flows.
func TestMeterWantedTwice(t *testing.T) {
	s := New(Options{Instance: 7})
	rate := func(r uint32) flow.Meter {
		return flow.Meter{ID: 1, Flags: ofp.MeterPktps, Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: r}}}
	}
	for _, test := range []struct {
		meters []flow.Meter
		want   int
	}{
		{[]flow.Meter{rate(1), rate(2)}, 1},
		{[]flow.Meter{rate(1), rate(2)}, 1},
		{[]flow.Meter{rate(2), rate(1), rate(2)}, 1},
		{[]flow.Meter{rate(1), rate(1)}, 0},
		{nil, 0},
	} {
		s.Set(ann, flow.Entries{Meters: test.meters})
		if n := len(s.Stats().Refused); n != test.want {
			t.Errorf("%v: %d are reported, want %d", test.meters, n, test.want)
		}
		if len(test.meters) > 0 && !s.meters.claims[1][0].meter.Equal(test.meters[0]) {
			t.Errorf("%v: the first does not count", test.meters)
		}
	}
}

// TestMeterGoesAfterItsFlowHasChanged changes a flow from one meter to another just before undesired meters are
// removed. The switch would remove the flow with its old meter, so that meter stays for another round.
func TestMeterGoesAfterItsFlowHasChanged(t *testing.T) {
	rate := func(id uint32) flow.Meter {
		return flow.Meter{ID: id, Flags: ofp.MeterPktps, Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: 1}}}
	}
	s := New(Options{Instance: 7})
	se := newSession(s, nil)
	s.Release()
	with := func(id uint32) flow.Entries {
		e := desired(1)
		e.Flows[0].Actions = flow.Do(ofp.Meter{ID: id}, flow.Output(1))
		e.Meters = []flow.Meter{rate(id)}
		return e
	}
	s.Set(ann, with(1))
	se.metersSent(s.meters.plan(time.Now(), false), []error{nil})
	s.meters.dirty, s.meters.drop = false, true // as in a round, behind setMeters
	answer(s, sent(s), nil)
	s.Set(ann, with(2))
	if mods := se.metersToDrop(); len(mods) != 0 {
		t.Errorf("meter %d is removed, and with it the flow that still uses it", mods[0].ID)
	}
	se.metersSent(s.meters.plan(time.Now(), false), []error{nil})
	s.meters.dirty, s.meters.drop = false, true
	answer(s, sent(s), nil)
	if mods := se.metersToDrop(); len(mods) != 1 || mods[0].ID != 1 {
		t.Errorf("once the flow has changed %v are removed, want meter 1", mods)
	}
}

// TestFlowsThatUseGroupsAreKnown has flows come, by declaration and by report, change and go. Flows that use groups or
// meters are found without a look at all flows, and forgotten with their slots.
func TestFlowsThatUseGroupsAreKnown(t *testing.T) {
	s := New(Options{Instance: 7})
	s.Release()
	using := func(i int, a ofp.Action) flow.Flow {
		f := address(i, 1)
		f.Actions = flow.Do(a, flow.Output(1))
		return f
	}
	s.Set(ann, flow.Entries{Flows: []flow.Flow{address(1, 1), address(2, 1), using(3, flow.ToGroup(5)),
		using(4, ofp.Meter{ID: 6})}})
	answer(s, sent(s), nil)
	s.mu.Lock()
	reported := using(5, flow.ToGroup(5))
	reported.Cookie = 7 << 48
	sl, now := s.slots.slotOf(&reported)
	sl.have = now
	s.slots.mark(sl)
	known := len(s.slots.linked)
	s.mu.Unlock()
	if known != 3 {
		t.Errorf("%d flows are known to use groups or meters, want 3 of 5", known)
	}
	s.Set(ann, flow.Entries{Flows: []flow.Flow{using(1, flow.ToGroup(5))}})
	answer(s, sent(s), nil)
	if len(s.slots.linked) != 1 || len(s.slots.flows) != 1 {
		t.Errorf("%d of %d flows are known to use groups or meters, want the one that is left", len(s.slots.linked),
			len(s.slots.flows))
	}
	s.Set(ann, flow.Entries{})
	answer(s, sent(s), nil)
	if len(s.slots.linked) != 0 {
		t.Errorf("%d flows are remembered that are gone", len(s.slots.linked))
	}
}

// BenchmarkGroupRemoval removes a group from among many flows: no cost may grow with their number.
func BenchmarkGroupRemoval(b *testing.B) {
	for _, many := range []int{1_000, 100_000} {
		b.Run(strconv.Itoa(many), func(b *testing.B) {
			s := New(Options{Instance: 7})
			s.Release()
			var e flow.Entries
			for i := range many {
				e.Flows = append(e.Flows, address(i, 0))
			}
			s.Set(ben, e)
			answer(s, sent(s), nil)
			group := flow.Entries{Groups: []flow.Group{{ID: 5, Type: flow.AllBuckets,
				Buckets: []flow.Bucket{{Actions: flow.Do(flow.Output(1))}}}}}
			for b.Loop() {
				s.Set(ann, group)
				answer(s, sent(s), nil)
				s.Set(ann, flow.Entries{})
				answer(s, sent(s), nil)
			}
		})
	}
}
