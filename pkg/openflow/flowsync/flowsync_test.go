package flowsync_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

var (
	alice = flow.Owner{Kind: 1, Name: "alice"}
	bob   = flow.Owner{Kind: 1, Name: "bob"}
)

func TestSyncTwiceSendsNothing(t *testing.T) {
	t.Parallel()
	o, want := startOVS(t), gateway(t)
	s, stop := o.start(flowsync.Options{})
	setAll(s, want)
	s.Release()
	synced(t, s)
	if err := o.differs(want); err != nil {
		t.Fatal(err)
	}
	before := s.Stats()
	if before.Bundles != 1 || before.FlowMods != uint64(before.Flows) || before.GroupMods != uint64(before.Groups) {
		t.Errorf("the first time took %+v, want one bundle with each entry once", before)
	}
	setAll(s, gateway(t))
	synced(t, s)
	quiet(t, s, before)
	stop()

	again, _ := o.start(flowsync.Options{GroupCompare: 20 * time.Millisecond, Compare: 20 * time.Millisecond})
	setAll(again, want)
	again.Release()
	synced(t, again)
	quiet(t, again, flowsync.Stats{})
	// Several comparisons find nothing either.
	o.Eventually("it has compared five times", func() error {
		if n := again.Stats().Sent["multipart_request"]; n < 12 {
			return fmt.Errorf("%d multipart requests: %v", n, again.Stats().Sent)
		}
		return nil
	})
	quiet(t, again, flowsync.Stats{})
}

func TestMend(t *testing.T) {
	t.Parallel()
	o, want := startOVS(t), gateway(t)
	// flows are mended since they are reported
	s, _ := o.start(flowsync.Options{Compare: time.Hour, GroupCompare: 300 * time.Millisecond})
	setAll(s, want)
	s.Release()
	synced(t, s)
	ours := "0x007b030000000000"
	for _, test := range []struct {
		name string
		do   func()
	}{
		{"all flows deleted", func() { o.ofctl("del-flows") }},
		{"one flow deleted", func() { o.ofctl("del-flows", "table=0,in_port=1") }},
		{"actions changed", func() { o.ofctl("mod-flows", "table=0,in_port=1 actions=drop") }},
		{"all groups deleted, and with them flows", func() { o.ofctl("del-groups") }},
		{"a flow added under our cookie",
			func() { o.ofctl("add-flow", "cookie="+ours+",table=5,priority=7,ip,actions=drop") }},
		{"a foreign flow in the place of one of ours", func() {
			o.ofctl("add-flow", "cookie=0x1,table=3,priority=200,ip,actions=drop")
		}},
		{"a group added", func() { o.ofctl("add-group", "group_id=4000000000,type=all,bucket=output:1") }},
		{"groups and flows deleted at once", func() { o.ofctl("del-groups"); o.ofctl("del-flows") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &ovs{o.Switch, t}
			mended := s.Stats().Mended
			test.do()
			o.becomes(want)
			if s.Stats().Mended == mended {
				t.Error("it was not counted")
			}
			if err := trySync(s, ovstest.Timeout()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a flow under a foreign cookie", func(t *testing.T) {
		o := &ovs{o.Switch, t}
		before := s.Stats()
		o.ofctl("add-flow", "cookie=0x1234,table=5,priority=7,ip,actions=drop")
		o.ofctl("mod-flows", "cookie=0x1234/-1,table=5,actions=output:1")
		// Something of ours after it, so that it has been noticed.
		s.Set(alice, entries(t, "table=9,priority=7,ip,actions=drop"))
		synced(t, s)
		if out := o.ofctl("dump-flows", "cookie=0x1234/-1"); !strings.Contains(out, "output:1") {
			t.Errorf("it is not left alone: %s", out)
		}
		if now := s.Stats(); now.FlowMods != before.FlowMods+1 || now.Mended != before.Mended {
			t.Errorf("it was answered: %+v, before %+v", now, before)
		}
	})
}

func TestNothingIsRemovedBeforeRelease(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	o.ofctl("add-group", "group_id=1,type=all,bucket=bucket_id:0,actions=output:1")
	o.ofctl("add-flow", "cookie=0x007b010000000000,table=1,priority=1,ip,actions=group:1")
	left := entries(t, "table=1,priority=1,ip,actions=group:1")
	left.Groups = []flow.Group{{ID: 1, Type: flow.AllBuckets, Buckets: []flow.Bucket{{Actions: flow.Do(flow.Output(1))}}}}
	mine := entries(t, "table=2,priority=1,ip,actions=drop")
	s, _ := o.start(flowsync.Options{GroupCompare: 10 * time.Millisecond, Compare: 10 * time.Millisecond})
	s.Set(alice, mine)
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: mine, bob: left}); err != nil {
		t.Error(err)
	}
	// Entries that an owner gives up stay as well, and can be taken again.
	s.Set(alice, flow.Entries{})
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: mine, bob: left}); err != nil {
		t.Error(err)
	}
	s.Set(bob, mine)
	s.Release()
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{bob: mine}); err != nil {
		t.Error(err)
	}
}

func TestSwitchRestarts(t *testing.T) {
	t.Parallel()
	o, want := startOVS(t), gateway(t)
	s, _ := o.start(flowsync.Options{})
	setAll(s, want)
	s.Release()
	synced(t, s)
	o.StopDaemon()
	o.Eventually("the loss is noticed", func() error {
		if s.Stats().Connected {
			return errors.New("still connected")
		}
		return nil
	})
	start := time.Now()
	err := trySync(s, 100*time.Millisecond)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > ovstest.Timeout() {
		t.Errorf("without a switch: %v after %s, want an error at the end of the context", err, time.Since(start))
	}
	mended := s.Stats().Mended
	o.StartDaemon()
	synced(t, s)
	if err := o.differs(want); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Mended != mended || st.Connections != 2 || st.LastError != "" {
		t.Errorf("a restart leads to %+v", st)
	}
}

func TestRefusedFlowsAreHeldBack(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	good := entries(t, "table=1,priority=1,ip,actions=drop", "table=1,priority=2,ip,actions=output:1",
		"table=1,priority=3,ip,actions=drop")
	s.Set(alice, good)
	group := flow.Group{ID: 77, Type: flow.Select,
		Buckets: []flow.Bucket{{ID: 1, Weight: 1, Actions: flow.Do(flow.Output(1))}}}
	needsGroup := entries(t, "table=1,priority=4,ip,actions=group:77")
	badAction := flow.Entries{
		Flows: []flow.Flow{{Table: 2, Priority: 9, Actions: flow.Do(flow.SetIPSrc(mustAddr("10.0.0.1")))}}}
	badMeter := entries(t, "table=2,priority=10,ip,actions=meter:99,output:1")
	carol, dave := flow.Owner{Kind: 2, Name: "carol"}, flow.Owner{Kind: 2, Name: "dave"}
	s.Set(bob, needsGroup)
	s.Set(carol, badAction)
	s.Set(dave, badMeter)
	for _, test := range []struct {
		owner flow.Owner
		want  []string
	}{
		{bob, []string{"1/bob wants", "group:77", "OFPBAC_BAD_OUT_GROUP"}},
		{carol, []string{"2/carol wants", "10.0.0.1"}},
		{dave, []string{"2/dave wants", "meter:99"}},
	} {
		err := trySync(s, ovstest.Timeout(), test.owner)
		if err == nil {
			t.Errorf("%s: no error", test.owner)
			continue
		}
		if strings.Count(err.Error(), " wants ") != 1 {
			t.Errorf("%s: the error names others: %v", test.owner, err)
		}
		for _, w := range test.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", test.owner, err, w)
			}
		}
	}
	synced(t, s, alice)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: good}); err != nil {
		t.Error(err)
	}
	if n := len(s.Stats().Refused); n != 3 {
		t.Errorf("Stats names %d refusals: %q", n, s.Stats().Refused)
	}
	// The group comes: the flow is taken at once, not after its back-off.
	s.Set(alice, flow.Entries{Flows: good.Flows, Groups: []flow.Group{group}})
	o.Eventually("the flow is taken", func() error { return trySync(s, time.Second, bob) })
	s.Set(carol, flow.Entries{})
	s.Set(dave, flow.Entries{})
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: good,
		bob: {Flows: needsGroup.Flows, Groups: []flow.Group{group}}}); err != nil {
		t.Error(err)
	}
	// The group goes while the flow still wants it: OVS removes the flow with it.
	s.Set(alice, good)
	o.Eventually("the flow is refused again", func() error {
		if err := trySync(s, time.Second, bob); err == nil || !strings.Contains(err.Error(), "BAD_OUT_GROUP") {
			return fmt.Errorf("Synced says %w", err)
		}
		return nil
	})
	if err := o.differs(map[flow.Owner]flow.Entries{alice: good}); err != nil {
		t.Error(err)
	}
}

func TestManyRefusals(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	var bad, good []string
	for i := range 200 {
		bad = append(bad, fmt.Sprintf("table=1,priority=%d,ip,actions=group:%d", i, i+1))
		good = append(good, fmt.Sprintf("table=2,priority=%d,ip,actions=drop", i))
	}
	s.Set(alice, entries(t, bad...))
	s.Set(bob, entries(t, good...))
	synced(t, s, bob)
	if err := trySync(s, ovstest.Timeout(), alice); err == nil || strings.Count(err.Error(), "BAD_OUT_GROUP") != len(bad) {
		t.Errorf("want %d refusals, have %v", len(bad), err)
	}
	if err := o.differs(map[flow.Owner]flow.Entries{bob: entries(t, good...)}); err != nil {
		t.Error(err)
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	first := entries(t, "table=1,priority=1,ip,actions=output:1", "table=1,priority=2,ip,actions=drop")
	second := entries(t, "table=1,priority=1,ip,actions=output:2", "table=1,priority=2,ip,actions=drop")
	s.Set(bob, second)
	synced(t, s, bob)
	// The smaller name wins, whichever came first: after a restart it is the same.
	s.Set(alice, first)
	synced(t, s, alice)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: first}); err != nil {
		t.Error(err)
	}
	err := trySync(s, ovstest.Timeout(), bob)
	if err == nil || !strings.Contains(err.Error(), "1/bob wants") ||
		!strings.Contains(err.Error(), "which 1/alice wants as") || strings.Count(err.Error(), "wants as") != 1 {
		t.Errorf("bob got: %v", err)
	}
	s.Set(alice, flow.Entries{})
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{bob: second}); err != nil {
		t.Error(err)
	}
}

func TestChangedActionsKeepCounters(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	s.Set(alice, entries(t, "table=0,priority=1,actions=resubmit(,1)", "table=1,priority=1,actions=drop"))
	synced(t, s)
	for range 3 {
		o.ofctl("packet-out",
			"in_port=controller,packet=ffffffffffff0a00000000010800450000140000000040110000010101010a0a0a0a,"+
				"actions=resubmit(,0)")
	}
	s.Set(alice, entries(t, "table=0,priority=1,actions=resubmit(,2)", "table=1,priority=1,actions=drop"))
	synced(t, s)
	d, err := s.Dump(context.Background())
	if err != nil || len(d.Flows) != 2 {
		t.Fatalf("dump: %v, %v", d, err)
	}
	for _, f := range d.Flows {
		if f.Packets != 3 || f.Owner != alice {
			t.Errorf("%s of %s has counted %d packets, want 3", f.Flow, f.Owner, f.Packets)
		}
	}
	if text := strings.Join(lines(o.ofctl("dump-flows", "table=0")), "\n"); !strings.Contains(text, "resubmit(,2)") {
		t.Errorf("the actions are not changed: %s", text)
	}
}
