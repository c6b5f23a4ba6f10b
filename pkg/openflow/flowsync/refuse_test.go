package flowsync_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// drops is n flows of a table.
func drops(t testing.TB, table, n int) flow.Entries {
	t.Helper()
	var e flow.Entries
	for i := range n {
		e.Flows = append(e.Flows, flow.Flow{Table: ofp.Table(table), Priority: uint16(i), Match: flow.All(flow.IP())})
	}
	return e
}

// TestBackOff has a switch that refuses one flow for an hour. It is asked again after 1, 2,
// 4 seconds and so on, at last every minute, and takes the flow within the minute.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, start := newScripted(t), time.Now()
		w.refuse = func(m ofp.Message) *ofp.Error {
			if f, ok := m.(ofp.FlowMod); ok && f.Table == 7 && time.Since(start) < time.Hour {
				return &ofp.Error{ErrType: 2, Code: 4} // OFPBAC_BAD_OUT_PORT
			}
			return nil
		}
		s, stop := w.start()
		defer stop()
		s.Release()
		want := map[flow.Owner]flow.Entries{alice: drops(t, 1, 10), bob: entries(t, "table=7,ip,actions=output:9")}
		setAll(s, want)
		if err := trySync(s, time.Second, alice); err != nil {
			t.Fatal(err)
		}
		if err := trySync(s, time.Second, bob); err == nil || !strings.Contains(err.Error(), "1/bob wants ") ||
			!strings.Contains(err.Error(), "table=7, ip actions=output:9") ||
			!strings.Contains(err.Error(), "OFPBAC_BAD_OUT_PORT") {
			t.Errorf("bob got: %v", err)
		}
		timer := time.NewTimer(time.Hour + time.Minute + time.Second)
		<-timer.C
		var last time.Time
		var gaps []string
		for _, c := range w.log() {
			if !c.taken {
				if !last.IsZero() && len(gaps) < 8 {
					gaps = append(gaps, c.at.Sub(last).String())
				}
				last = c.at
			}
		}
		if got := strings.Join(gaps, " "); got != "1s 2s 4s 8s 16s 32s 1m0s 1m0s" {
			t.Errorf("tried again after %s", got)
		}
		if err := trySync(s, time.Second, bob); err != nil {
			t.Error(err)
		}
		if d := w.differs(want); d != "" {
			t.Error(d)
		}
	})
}

// TestManyRefusalsAreCheap has a switch that refuses a tenth of many flows. The number of sent messages grows little
// faster than the flows; while refused flows are tried again others wait for few of them.
func TestManyRefusalsAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScripted(t)
		w.refuse = func(m ofp.Message) *ofp.Error {
			if f, ok := m.(ofp.FlowMod); ok && f.Table == 1 && f.Priority%10 == 3 {
				return &ofp.Error{ErrType: 2, Code: 4}
			}
			return nil
		}
		s, stop := w.start()
		defer stop()
		s.Release()
		const n = 4000
		s.Set(alice, drops(t, 1, n))
		if err := trySync(s, ovstest.Timeout(), alice); err == nil || strings.Count(err.Error(), " wants ") != n/10 {
			t.Errorf("%d refusals are reported", strings.Count(fmt.Sprint(err), " wants "))
		}
		log, sent := w.log(), 0
		for _, c := range log {
			sent += c.size
		}
		if sent > 14*n || len(log) > n/2 {
			t.Errorf("%d messages in %d bundles for %d flows", sent, len(log), n)
		}
		// A second later they are tried again; one who declares then waits for some of them only.
		timer := time.NewTimer(1100 * time.Millisecond)
		<-timer.C
		before := len(w.log())
		s.Set(bob, drops(t, 2, 1))
		if err := trySync(s, time.Second, bob); err != nil {
			t.Error(err)
		}
		if waited := len(w.log()) - before; waited > 200 {
			t.Errorf("one flow waited for %d bundles", waited)
		}
	})
}

// TestTableFullAtScale has a table that takes a hundred flows, and an owner who wants three
// thousand. When others make room it is used at once.
func TestTableFullAtScale(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	o.Vsctl("--", "--id=@t", "create", "Flow_Table", "flow_limit=100", "overflow_policy=refuse", "--", "set", "bridge",
		"br0", "flow_tables:1=@t")
	s, _ := o.start(flowsync.Options{})
	s.Release()
	s.Set(alice, drops(t, 1, 3000))
	other := drops(t, 2, 50)
	s.Set(bob, other)
	start := time.Now()
	synced(t, s, bob)
	err := trySync(s, ovstest.Timeout(), alice)
	if n := strings.Count(fmt.Sprint(err), "OFPFMFC_TABLE_FULL"); n != 2900 {
		t.Errorf("%d refusals are reported", n)
	}
	if st := s.Stats(); st.FlowMods > 20_000 {
		t.Errorf("%d flow-mods in %s", st.FlowMods, time.Since(start))
	}
	// All flows of a full table are replaced by others: the removals make the room.
	for _, first := range []int{5000, 0, 7000} {
		e := drops(t, 1, 100)
		for i := range e.Flows {
			e.Flows[i].Priority += uint16(first)
		}
		s.Set(alice, e)
		synced(t, s, alice, bob)
		if err := o.differs(map[flow.Owner]flow.Entries{alice: e, bob: other}); err != nil {
			t.Fatal(err)
		}
	}
	// Owners share the table; who does not fit comes in when another leaves.
	s.Set(alice, drops(t, 1, 60))
	synced(t, s, alice)
	e := drops(t, 1, 60)
	for i := range e.Flows {
		e.Flows[i].Priority += 9000
	}
	s.Set(bob, e)
	if err := trySync(s, ovstest.Timeout(), bob); err == nil || strings.Count(err.Error(), "1/bob wants") != 20 {
		t.Errorf("bob got: %v", err)
	}
	s.Set(alice, flow.Entries{})
	synced(t, s, bob)
	if err := o.differs(map[flow.Owner]flow.Entries{bob: e}); err != nil {
		t.Error(err)
	}
}

// TestRefusalsOnARealSwitch mixes flows that OVS refuses for several reasons with good ones, at random. Exactly the
// owners of refused flows get an error, by name.
func TestRefusalsOnARealSwitch(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	bad := []struct{ flow, reason string }{
		{"table=9,priority=%d,ip,actions=group:77", "OFPBAC_BAD_OUT_GROUP"},
		{"table=9,priority=%d,ip,actions=meter:77,output:1", "OFPMMFC_INVALID_METER"},
		{"table=9,priority=%d,ip,actions=set_field:0.0.0.1->nw_src,group:78", "OFPBAC_BAD_OUT_GROUP"},
	}
	for range 20 {
		want, reasons := map[flow.Owner]flow.Entries{}, map[flow.Owner]string{}
		all := map[flow.Owner]flow.Entries{}
		for i := range 12 {
			owner := flow.Owner{Kind: 3, Name: fmt.Sprintf("owner-%d", i)}
			good := drops(t, 10+i, 1+r.IntN(5))
			want[owner], all[owner] = good, good
			if r.IntN(3) == 0 {
				b := bad[r.IntN(len(bad))]
				reasons[owner] = b.reason
				all[owner] = flow.Entries{Flows: append(entries(t, fmt.Sprintf(b.flow, i)).Flows, good.Flows...)}
			}
		}
		setAll(s, all)
		for owner := range all {
			err := trySync(s, ovstest.Timeout(), owner)
			if reason := reasons[owner]; reason == "" && err != nil {
				t.Errorf("%s: %v", owner, err)
			} else if reason != "" && (err == nil || !strings.HasPrefix(err.Error(), owner.String()+" wants ") ||
				!strings.Contains(err.Error(), reason)) {
				t.Errorf("%s: %v, want %s", owner, err, reason)
			}
		}
		if err := o.differs(want); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWantedTwice has an owner that wants two things under one key: the first is sent, and the owner gets an error.
func TestWantedTwice(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	first, other := entries(t, "table=1,priority=1,ip,actions=output:1"), entries(t, "table=1,priority=2,ip,actions=drop")
	second := entries(t, "table=1,priority=1,ip,actions=output:2")
	s.Set(alice, flow.Entries{Flows: slices.Concat(first.Flows, other.Flows, second.Flows, first.Flows)})
	if err := trySync(s, ovstest.Timeout(), alice); err == nil || strings.Count(err.Error(), "1/alice wants") != 1 ||
		!strings.Contains(err.Error(), "output:2") {
		t.Errorf("alice got: %v", err)
	}
	if err := o.differs(map[flow.Owner]flow.Entries{alice: {Flows: slices.Concat(first.Flows, other.Flows)}}); err != nil {
		t.Error(err)
	}
	if n := len(s.Stats().Refused); n != 1 {
		t.Errorf("%d are reported by Stats", n)
	}
	s.Set(alice, second)
	synced(t, s, alice)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: second}); err != nil {
		t.Error(err)
	}
}

// TestGroupsOfGroups has groups that use each other, declared at once in any order, and removed at once.
func TestGroupsOfGroups(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	e := entries(t, "table=1,ip,actions=group:1")
	for id := range uint32(12) {
		action := flow.ToGroup(id + 2)
		if id == 11 {
			action = flow.Output(1)
		}
		e.Groups = append(e.Groups,
			flow.Group{ID: id + 1, Type: flow.Indirect, Buckets: []flow.Bucket{{Actions: flow.Do(action)}}})
	}
	for range 5 {
		s.Set(alice, e)
		synced(t, s, alice)
		if err := o.differs(map[flow.Owner]flow.Entries{alice: e}); err != nil {
			t.Fatal(err)
		}
		s.Set(alice, flow.Entries{})
		synced(t, s)
		if err := o.differs(nil); err != nil {
			t.Fatal(err)
		}
	}
}
