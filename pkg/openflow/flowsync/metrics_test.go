package flowsync_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// gathered returns the metrics of a registry, by name and labels; for a histogram its count and sum.
func gathered(t testing.TB, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := strings.TrimPrefix(f.GetName(), "tombolo_flowsync_")
			for _, l := range m.Label {
				name += fmt.Sprintf("{%s=%s}", l.GetName(), l.GetValue())
			}
			switch f.GetType().String() {
			case "HISTOGRAM":
				out[name+" count"], out[name+" sum"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
			case "COUNTER":
				out[name] = m.Counter.GetValue()
			default:
				out[name] = m.Gauge.GetValue()
			}
		}
	}
	return out
}

// TestMetrics reads the metrics through a registry, as Prometheus does, after each kind of
// thing that they count.
func TestMetrics(t *testing.T) {
	t.Parallel()
	o := startOVS(t)
	p := newProxy(t, o)
	registry := prometheus.NewRegistry()
	gate := make(chan struct{})
	dial := func(ctx context.Context) (net.Conn, error) {
		select {
		case <-gate:
			return ofconn.UnixDialer(p.socket)(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s, _ := o.start(flowsync.Options{Dial: dial, Registerer: registry, GroupCompare: time.Hour})
	s.RedialWithin(time.Millisecond)
	total := map[string]float64{}
	expect := func(what string, changes map[string]float64) {
		t.Helper()
		for name, by := range changes {
			total[name] += by
		}
		have := gathered(t, registry)
		for name, want := range total {
			if have[name] != want {
				t.Errorf("%s: %s is %g, want %g", what, name, have[name], want)
			}
		}
		for name, value := range have {
			if _, ok := total[name]; !ok && value != 0 && !strings.HasSuffix(name, " sum") {
				t.Errorf("%s: %s is %g, want nothing", what, name, value)
			}
		}
	}
	expect("new", nil)
	close(gate)
	s.Release() // a declaration, too
	synced(t, s)
	expect("connected", map[string]float64{"connected": 1, "connections_total": 1, "sync_seconds count": 1})

	e := metered(t, []flow.Meter{meter(1, 5)}, "table=1,priority=1,ip,actions=group:5",
		"table=1,priority=2,ip,actions=meter:1,output:1", "table=1,priority=3,ip,actions=drop")
	e.Groups = []flow.Group{{ID: 5, Type: flow.AllBuckets, Buckets: []flow.Bucket{{Actions: flow.Do(flow.Output(1))}}}}
	s.Set(alice, e)
	synced(t, s)
	expect("three flows, a group, a meter", map[string]float64{
		"flows_wanted": 3, "groups_wanted": 1, "meters_wanted": 1, "flow_mods_total{command=add}": 3, "group_mods_total": 1,
		"meter_mods_total": 1,
		"bundles_total":    1, "sync_seconds count": 1,
	})

	changed := metered(t, e.Meters, "table=1,priority=1,ip,actions=group:5",
		"table=1,priority=2,ip,actions=meter:1,output:2")
	changed.Groups = e.Groups
	s.Set(alice, changed)
	synced(t, s)
	expect("one flow changed, one removed", map[string]float64{
		"flows_wanted": -1, "flow_mods_total{command=modify_strict}": 1, "flow_mods_total{command=delete_strict}": 1,
		"bundles_total": 1, "sync_seconds count": 1,
	})

	s.Set(bob, entries(t, "table=2,priority=1,ip,actions=group:6", "table=2,priority=2,ip,actions=drop"))
	_ = trySync(s, ovstest.Timeout())
	have := gathered(t, registry)
	if have["refusals_total{reason=OFPBAC_BAD_OUT_GROUP}"] < 1 || have["refused"] != 1 || have["flows_wanted"] != 4 {
		t.Errorf("one flow refused: %v", have)
	}
	s.Set(bob, flow.Entries{Flows: []flow.Flow{{Table: 2, Actions: flow.Do(flow.SetIPSrc(mustAddr("10.0.0.1")))}}})
	_ = trySync(s, ovstest.Timeout())
	if have := gathered(t, registry); have["refusals_total{reason=invalid}"] != 1 || have["refused"] != 1 {
		t.Errorf("one flow invalid: %v", have)
	}
	s.Set(bob, flow.Entries{})
	synced(t, s)

	before := gathered(t, registry)
	o.ofctl("del-flows", "table=1,ip")
	o.becomes(map[flow.Owner]flow.Entries{alice: changed})
	synced(t, s)
	if have := gathered(t, registry); have["mended_total"] != before["mended_total"]+2 ||
		have["sync_seconds count"] != before["sync_seconds count"] {
		t.Errorf("two flows mended: %v, before %v", have, before)
	}

	// The time from declared to confirmed goes on over a connection that stalls and is lost.
	before = gathered(t, registry)
	p.pause(toSwitch)
	s.Set(bob, entries(t, "table=2,priority=9,ip,actions=drop"))
	if err := trySync(s, 300*time.Millisecond); err == nil {
		t.Error("confirmed by a switch that does not hear")
	}
	p.cutAll()
	p.resume(toSwitch)
	synced(t, s)
	have = gathered(t, registry)
	if took := have["sync_seconds sum"] - before["sync_seconds sum"]; took < 0.3 || took > 10 ||
		have["sync_seconds count"] != before["sync_seconds count"]+1 || have["connections_total"] != 2 {
		t.Errorf("confirmed over the second connection after %g s: %v, before %v", took, have, before)
	}
}
