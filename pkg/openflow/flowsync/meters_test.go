package flowsync_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// meter drops what is above a rate in packets a second.
func meter(id, rate uint32) flow.Meter {
	return flow.Meter{ID: id, Flags: ofp.MeterPktps | ofp.MeterBurst,
		Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: rate, Burst: 2 * rate}}}
}

// metered is flows in ovs-ofctl's text with meters.
func metered(t testing.TB, meters []flow.Meter, flows ...string) flow.Entries {
	t.Helper()
	e := entries(t, flows...)
	e.Meters = meters
	return e
}

func TestMeters(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	o.ofctl("add-meter", "meter=500 kbps band=type=drop rate=1")
	s, _ := o.start(flowsync.Options{GroupCompare: 20 * time.Millisecond})
	all := []flow.Meter{
		meter(1, 100),
		{ID: 2, Flags: ofp.MeterKbps, Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: 5000}}},
		{ID: 3, Flags: ofp.MeterKbps | ofp.MeterStats | ofp.MeterBurst,
			Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: 7, Burst: 9}}},
	}
	left := flow.Entries{Meters: []flow.Meter{{ID: 500, Flags: ofp.MeterKbps,
		Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: 1}}}}}
	want := map[flow.Owner]flow.Entries{alice: metered(t, all, "table=1,priority=1,ip,actions=meter:1,output:1",
		"table=1,priority=2,ip,actions=meter:3,output:2")}
	setAll(s, want)
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{alice: want[alice], bob: left}); err != nil {
		t.Fatalf("before the release: %v", err)
	}
	s.Release()
	synced(t, s)
	if err := o.differs(want); err != nil {
		t.Fatalf("after it: %v", err)
	}
	if st := s.Stats(); st.Meters != 3 || st.MeterMods != 4 || len(st.Refused) != 0 || st.Mended != 0 {
		t.Errorf("%+v", st)
	}
	stats, err := s.MeterStats(t.Context())
	ids := map[uint32]int{}
	for _, m := range stats {
		ids[m.ID] = len(m.Bands)
	}
	if want := map[uint32]int{1: 1, 2: 1, 3: 1}; err != nil || !maps.Equal(ids, want) {
		t.Errorf("counters of meters with bands: %v, %v; want %v", ids, err, want)
	}
	if ports, err := s.PortStats(t.Context()); err != nil || ports[ofp.PortLocal].Port != ofp.PortLocal {
		t.Errorf("counters of ports: %v, %v; want at least those of the bridge's own", ports, err)
	}
	before := s.Stats()
	setAll(s, map[flow.Owner]flow.Entries{alice: metered(t, all, "table=1,priority=1,ip,actions=meter:1,output:1",
		"table=1,priority=2,ip,actions=meter:3,output:2")})
	synced(t, s)
	o.Eventually("it has compared five times", func() error {
		if n := s.Stats().Sent["multipart_request"]; n < before.Sent["multipart_request"]+10 {
			return fmt.Errorf("%d multipart requests", n)
		}
		return nil
	})
	quiet(t, s, before)

	// One is changed, one goes with its flow, one changes hands.
	want = map[flow.Owner]flow.Entries{
		alice: metered(t, []flow.Meter{meter(1, 200)}, "table=1,priority=1,ip,actions=meter:1,output:1"),
		bob:   metered(t, []flow.Meter{all[1], meter(4, 7)}, "table=2,priority=1,ip,actions=meter:4,output:1"),
	}
	setAll(s, want)
	synced(t, s)
	if err := o.differs(want); err != nil {
		t.Errorf("after a change: %v", err)
	}
	if st := s.Stats(); st.MeterMods != before.MeterMods+3 || st.Mended != 0 {
		t.Errorf("%d meter-mods, want 3; %d mended", st.MeterMods-before.MeterMods, st.Mended)
	}
	d, err := s.Dump(t.Context())
	if err != nil || len(d.Meters) != 3 || d.Meters[0].Owner == (flow.Owner{}) {
		t.Errorf("dump: %+v, %v", d.Meters, err)
	}
	if meters, err := s.DumpMeters(t.Context()); err != nil || !reflect.DeepEqual(meters, d.Meters) {
		t.Errorf("dump of meters alone: %+v, %v, want %+v", meters, err, d.Meters)
	}
	if groups, err := s.DumpGroups(t.Context()); err != nil || !reflect.DeepEqual(groups, d.Groups) {
		t.Errorf("dump of groups alone: %+v, %v, want %+v", groups, err, d.Groups)
	}
	// Both want it; the one who gives it up leaves it to the other.
	shared := map[flow.Owner]flow.Entries{alice: want[alice], bob: {Meters: []flow.Meter{meter(1, 200)}}}
	setAll(s, shared)
	synced(t, s, alice, bob)
	s.Set(alice, flow.Entries{})
	synced(t, s)
	if err := o.differs(map[flow.Owner]flow.Entries{bob: shared[bob]}); err != nil {
		t.Error(err)
	}
	// Each wants another meter: the first owner gets it, the other gets an error.
	s.Set(alice, flow.Entries{Meters: []flow.Meter{meter(1, 300)}})
	synced(t, s, alice)
	if err := trySync(s, ovstest.Timeout(), bob); err == nil || !strings.Contains(err.Error(), "1/bob wants meter=1 ") ||
		!strings.Contains(err.Error(), "which 1/alice wants as") {
		t.Errorf("bob got: %v", err)
	}
	setAll(s, nil)
	synced(t, s)
	if err := o.differs(nil); err != nil {
		t.Error(err)
	}
}

// TestMendMeters has another program change meters.
func TestMendMeters(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{GroupCompare: time.Hour, Compare: time.Hour})
	want := map[flow.Owner]flow.Entries{
		alice: metered(t, []flow.Meter{meter(1, 100), meter(2, 100)}, "table=1,priority=1,ip,actions=meter:1,output:1",
			"table=1,priority=2,ip,actions=drop"),
	}
	setAll(s, want)
	s.Release()
	synced(t, s)
	conn := o.connect()
	for _, test := range []struct {
		name string
		do   func()
	}{
		{"one deleted, and with it a flow", func() { o.ofctl("del-meter", "meter=1") }},
		{"one without flows deleted", func() { o.ofctl("del-meter", "meter=2") }},
		{"all deleted", func() { o.ofctl("del-meters") }},
		{"one changed", func() { o.ofctl("mod-meter", "meter=1 kbps band=type=drop rate=1") }},
		{"one added", func() { o.ofctl("add-meter", "meter=77 kbps band=type=drop rate=1") }},
		{"one added, with a flow of somebody's that uses it", func() {
			// Both at once: alone, the meter may be gone before the flow comes.
			theirs := flow.Flow{Cookie: 0x007b000000000001, Table: 7, Actions: flow.Do(ofp.Meter{ID: 78}, flow.Output(1))}
			refused, err := conn.Each(t.Context(), []ofp.Message{meter(78, 1).Mod(ofp.MeterAdd), theirs.Mod(ofp.FlowAdd)})
			o.must(errors.Join(append(refused, err)...))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &ovs{o.Switch, t}
			mended := s.Stats().Mended
			test.do()
			o.becomes(want)
			if s.Stats().Mended == mended {
				t.Error("it was not counted")
			}
			o.Eventually("nothing is refused", func() error { return trySync(s, time.Second) })
		})
	}
}

// TestRefusedMeters has meters that the switch refuses, and flows that use them or undeclared meters.
func TestRefusedMeters(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	bad := flow.Meter{ID: 9, Flags: ofp.MeterPktps, Bands: []flow.Band{{Kind: ofp.BandDSCPRemark, Rate: 1, PrecLevel: 1}}}
	good := metered(t, []flow.Meter{meter(1, 1)}, "table=1,ip,actions=meter:1,output:1")
	carol := flow.Owner{Kind: 2, Name: "carol"}
	s.Set(alice, good)
	s.Set(bob, metered(t, []flow.Meter{bad}, "table=2,ip,actions=meter:9,output:1"))
	s.Set(carol, entries(t, "table=3,ip,actions=meter:8,output:1"))
	synced(t, s, alice)
	err := trySync(s, ovstest.Timeout(), bob)
	if err == nil || !strings.Contains(err.Error(), "1/bob wants meter=9 ") ||
		!strings.Contains(err.Error(), "OFPMMFC_") || !strings.Contains(err.Error(), "actions=meter:9") {
		t.Errorf("bob got: %v", err)
	}
	if err := trySync(s, ovstest.Timeout(), carol); err == nil || !strings.Contains(err.Error(), "meter:8") {
		t.Errorf("carol got: %v", err)
	}
	if err := o.differs(map[flow.Owner]flow.Entries{alice: good}); err != nil {
		t.Error(err)
	}
	// The right meters come: the flows are taken with them.
	want := map[flow.Owner]flow.Entries{
		alice: good,
		bob:   metered(t, []flow.Meter{meter(8, 1), meter(9, 1)}, "table=2,ip,actions=meter:9,output:1"),
		carol: entries(t, "table=3,ip,actions=meter:8,output:1"),
	}
	s.Set(bob, want[bob])
	synced(t, s, alice, bob, carol)
	if err := o.differs(want); err != nil {
		t.Error(err)
	}
	// A meter goes while a flow still wants it. Synced reports it at once: the switch has removed the flow.
	s.Set(bob, metered(t, []flow.Meter{meter(9, 1)}, "table=2,ip,actions=meter:9,output:1"))
	if err := trySync(s, ovstest.Timeout(), carol); err == nil || !strings.Contains(err.Error(), "meter:8") {
		t.Errorf("carol got: %v", err)
	}
	synced(t, s, alice, bob)
	if mended := s.Stats().Mended; mended != 0 {
		t.Errorf("%d changes of our own count as mended", mended)
	}
	s.Set(carol, flow.Entries{})
	synced(t, s)
}

// TestGroupGoesBeforeItsFlow removes a group while a flow still wants it: Synced reports it at once.
func TestGroupGoesBeforeItsFlow(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	s, _ := o.start(flowsync.Options{})
	s.Release()
	group := flow.Group{ID: 77, Type: flow.Select,
		Buckets: []flow.Bucket{{ID: 1, Weight: 1, Actions: flow.Do(flow.Output(1))}}}
	s.Set(bob, entries(t, "table=1,priority=4,ip,actions=group:77"))
	for range 10 {
		s.Set(alice, flow.Entries{Groups: []flow.Group{group}})
		synced(t, s, alice, bob)
		s.Set(alice, flow.Entries{})
		if err := trySync(s, ovstest.Timeout(), bob); err == nil || !strings.Contains(err.Error(), "BAD_OUT_GROUP") {
			t.Fatalf("bob got: %v", err)
		}
	}
	if mended := s.Stats().Mended; mended != 0 {
		t.Errorf("%d changes of our own count as mended", mended)
	}
}

// TestMetersOverCutConnections walks through desired states with meters while the connection is cut
// and the switch restarts empty.
func TestMetersOverCutConnections(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 1))
	o := startOVS(t)
	p := newProxy(t, o)
	s, _ := o.start(flowsync.Options{Dial: ofconn.UnixDialer(p.socket)})
	s.RedialWithin(time.Millisecond)
	s.Release()
	for step := range 60 {
		var e flow.Entries
		for id := range uint32(6) {
			if r.IntN(2) == 0 {
				e.Meters = append(e.Meters, meter(id+1, 1+r.Uint32N(3)))
				e.Flows = append(e.Flows,
					entries(t, fmt.Sprintf("table=1,priority=%d,ip,actions=meter:%d,output:%d", id, id+1, 1+r.IntN(3))).Flows...)
			}
		}
		switch {
		case step%20 == 10:
			o.StopDaemon()
			o.StartDaemon()
		case r.IntN(2) == 0:
			p.cutNext(1 + r.IntN(2500))
		}
		s.Set(alice, e)
		synced(t, s, alice)
		if err := o.differs(map[flow.Owner]flow.Entries{alice: e}); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	if p.cut() < 5 {
		t.Error(errors.New("the connection was hardly cut"))
	}
}
