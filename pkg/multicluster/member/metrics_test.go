package member

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics/metricstest"
)

// seriesOf returns the metrics of a member's tables, whose last announcement is in the view.
func seriesOf(t *testing.T, tables *tables, v View) []string {
	t.Helper()
	return metricstest.Series(t, "tombolo_multicluster_", stateMetrics{tables: tables, problems: tables.Problems,
		synced: func(of membership.Area) time.Time {
			if of != v.Leader.Area {
				return time.Time{}
			}
			return v.Leader.Announcement.Done
		}})
}

// TestStateMetrics changes a member whose cluster exports web and imports db.
func TestStateMetrics(t *testing.T) {
	const connected, sync = `leader_connected 1`, `leader_last_sync_timestamp_seconds 1785585599`
	// one returns the series of a metric of which one object is in a state.
	one := func(metric, state string, states ...string) (out []string) {
		for _, s := range states {
			n := 0
			if s == state {
				n = 1
			}
			out = append(out, fmt.Sprintf(`%s{state=%q} %d`, metric, s, n))
		}
		return out
	}
	exports := func(state string) []string { return one("exports", state, "exported", "failed", "pending") }
	imports := func(state string) []string { return one("imports", state, "failed", "imported", "pending", "skipped") }
	joined := slices.Concat[[]string]
	imported := &corev1.Service{ObjectMeta: marked("default", "antrea-mc-db"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.9"}}
	condition := func(v *View, c mcv1alpha1.ResourceExportCondition) {
		for _, re := range v.Leader.ResourceExports {
			if re.Spec.Kind == multicluster.ServiceKind {
				re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{c}
			}
		}
	}
	peers := []string{`peer_info{peer="west",state="announced"} 1`}
	healthy := joined(exports("exported"), imports("imported"), []string{connected, sync}, peers)
	for _, row := range []struct {
		name   string
		change func(*View)
		want   []string
	}{
		{name: "all is well", change: func(*View) {}, want: healthy},
		{name: "the leader is away", change: func(v *View) { v.Leader.Announcement.Error = "no route to host" },
			want: joined(exports("exported"), imports("imported"), []string{`leader_connected 0`, sync}, peers)},
		{name: "the leader was not reached since the start", change: func(v *View) {
			v.Leader = Leader{Area: v.Leader.Area, Announcement: Announcement{Tried: now, Error: "no route to host"}}
		}, want: joined(exports("exported"), []string{`leader_connected 0`}, peers)},
		{name: "the leader does not have the export yet", change: func(v *View) {
			v.Leader.ResourceExports, v.ServiceExports = nil, exportingView().ServiceExports
		}, want: joined(exports("pending"), imports("imported"), []string{connected, sync}, peers)},
		{name: "the Common Area cannot be read", change: func(v *View) { v.Leader.Synced = false },
			want: joined(exports("exported"), []string{`leader_connected 0`, sync}, peers)},
		{name: "the Secret is missing", change: func(v *View) { v.Secrets = nil },
			want: joined(exports("exported"), []string{`leader_connected 0`}, peers,
				[]string{`problems{reason="LeaderNotConfigured"} 1`})},
		{name: "no ClusterSet", change: func(v *View) { v.ClusterSets, v.Leader = nil, Leader{} }},
		{name: "the leader refuses the export", change: func(v *View) {
			condition(v, mcv1alpha1.ResourceExportCondition{Type: mcv1alpha1.ResourceExportFailure,
				Status: corev1.ConditionFalse, Reason: "ConvergeFailure", Message: "spec.service is missing"})
		}, want: joined(exports("failed"), imports("imported"), []string{connected, sync}, peers,
			[]string{`problems{reason="ConvergeFailure"} 1`})},
		{name: "the export contradicts others", change: func(v *View) {
			condition(v, mcv1alpha1.ResourceExportCondition{Type: mcv1alpha1.ResourceExportSucceeded,
				Status: corev1.ConditionTrue, Reason: "PortConflict,LabelsConflict", Message: "ports"})
		}, want: joined([]string{`conflicts{reason="LabelsConflict"} 1`, `conflicts{reason="PortConflict"} 1`}, healthy)},
		{name: "the Service does not exist", change: func(v *View) { v.Services = v.Services[1:] },
			want: joined(exports("failed"), imports("imported"), []string{connected, sync}, peers)},
		{name: "the import has no address yet", change: func(v *View) { v.Services = v.Services[:1] },
			want: joined(exports("exported"), imports("pending"), []string{connected, sync}, peers)},
		{name: "a user's ServiceImport has the name", change: func(v *View) {
			v.Services = v.Services[:1]
			v.ServiceImports = []*mcsv1alpha1.ServiceImport{{ObjectMeta: meta("default", "db")}}
		}, want: joined(exports("exported"), imports("failed"), []string{connected, sync}, peers,
			[]string{`problems{reason="NotImported"} 1`})},
		{name: "the Namespace of the import does not exist", change: func(v *View) {
			v.Leader.ResourceImports[0] = importOf("shop", "db")
			v.Leader.ResourceImports[1] = endpointsOf("shop", "db", "10.98.0.7")
		}, want: joined(exports("exported"), imports("skipped"), []string{connected, sync}, peers,
			[]string{`problems{reason="NamespaceNotFound"} 1`})},
		{name: "the import is for other clusters", change: func(v *View) {
			v.Leader.ResourceImports[0].Spec.ClusterIDs = []string{"south"}
		}, want: joined(exports("exported"), imports(""), []string{connected, sync}, peers)},
		{name: "cluster west leaves", change: func(v *View) {
			v.Leader.ResourceImports = v.Leader.ResourceImports[:2]
		}, want: healthy[:len(healthy)-1]},
		{name: "cluster west is withdrawn", change: func(v *View) {
			v.Leader.ResourceImports = v.Leader.ResourceImports[:2]
			v.Reports = []*tombolov1alpha1.NodePolicyReport{{ObjectMeta: meta("", "node-1"),
				Features: map[string]string{mcv1alpha1.FeatureEncryptsPeers: ""}}}
		}, want: joined(healthy[:len(healthy)-1], []string{`peer_info{peer="west",state="withdrawn"} 1`})},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := exportingView()
			v.Services = append(v.Services, imported)
			withOwnExports(&v)
			west := clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101")
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"),
				endpointsOf("default", "db", "10.98.0.7"), west}
			v.ClusterInfoImports = []*mcv1alpha1.ClusterInfoImport{{ObjectMeta: meta("kube-system", "west-clusterinfo"),
				Spec: *west.Spec.ClusterInfo}}
			d, _ := Plan(v)
			v.ServiceExports = d.ServiceExports // with conditions
			before := newTables(v.Namespace, v.Config)
			before.load(v)
			before.Pass()
			if diff := cmp.Diff(healthy, seriesOf(t, before, v)); diff != "" {
				t.Errorf("before: -want +have:\n%s", diff)
			}
			// The running controller and one that starts with this state have the same metrics.
			to := v
			to.Leader.ResourceImports, to.Leader.ResourceExports = nil, nil
			for _, ri := range v.Leader.ResourceImports {
				to.Leader.ResourceImports = append(to.Leader.ResourceImports, ri.DeepCopy())
			}
			for _, re := range v.Leader.ResourceExports {
				to.Leader.ResourceExports = append(to.Leader.ResourceExports, re.DeepCopy())
			}
			row.change(&to)
			before.update(v, to)
			before.Pass()
			after := newTables(v.Namespace, v.Config)
			after.load(to)
			after.Pass()
			for name, tables := range map[string]*tables{"running": before, "started": after} {
				if diff := cmp.Diff(row.want, seriesOf(t, tables, to)); diff != "" {
					t.Errorf("%s: -want +have:\n%s", name, diff)
				}
			}
		})
	}
}

// TestStateOfGone has a cluster to which all ways are lost.
func TestStateOfGone(t *testing.T) {
	v := lostView(nil)
	tables := newTables(v.Namespace, v.Config)
	tables.load(v)
	tables.Pass()
	var have []string
	for _, s := range seriesOf(t, tables, v) {
		if strings.HasPrefix(s, "peer_info") {
			have = append(have, s)
		}
	}
	if diff := cmp.Diff([]string{`peer_info{peer="north",state="announced"} 1`,
		`peer_info{peer="south",state="announced"} 1`, `peer_info{peer="west",state="gone"} 1`}, have); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

// TestStateMetricsStartAgain replaces the controller, as a change of its configuration does.
func TestStateMetricsStartAgain(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, v := range []View{exportingView(), joinedView()} {
		tables := newTables(v.Namespace, v.Config)
		tables.load(v)
		tables.Pass()
		stop := metrics.Expose(registry, stateMetrics{tables: tables, problems: tables.Problems,
			synced: func(membership.Area) time.Time { return time.Time{} }})
		if n, err := testutil.GatherAndCount(registry, "tombolo_multicluster_leader_connected"); err != nil || n != 1 {
			t.Errorf("%d series: %v", n, err)
		}
		want := fmt.Sprintf(`# HELP tombolo_multicluster_exports ServiceExports of this cluster, by state: `+
			`exported, pending or failed.
# TYPE tombolo_multicluster_exports gauge
tombolo_multicluster_exports{state="exported"} 0
tombolo_multicluster_exports{state="failed"} 0
tombolo_multicluster_exports{state="pending"} %d
`, len(v.ServiceExports))
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "tombolo_multicluster_exports"); err != nil {
			t.Error(err)
		}
		stop()
		if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
			t.Errorf("%d series are left: %v", n, err)
		}
	}
}
