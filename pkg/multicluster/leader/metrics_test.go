package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics/metricstest"
)

// TestStateMetrics lets members come, become disconnected, contradict each other, and leave.
func TestStateMetrics(t *testing.T) {
	now := noon
	tables := newTables()
	clock := newClock(tables)
	clock.watch(func() time.Time { return now })
	series := func() []string {
		t.Helper()
		tables.engine.Pass()
		clock.tick(now)
		tables.engine.Pass()
		return metricstest.Series(t, "tombolo_multicluster_", stateMetrics{tables: tables, reports: clock.reports,
			problems: tables.engine.Problems})
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, series()); diff != "" {
			t.Errorf("%s: -want +have:\n%s", what, diff)
		}
	}
	set := func(o client.Object) {
		o.SetNamespace("area")
		tables.kinds.Set(o)
	}
	announce := func(id string, touched time.Time) *mcv1alpha1.MemberClusterAnnounce {
		a := &mcv1alpha1.MemberClusterAnnounce{ClusterID: id}
		a.Name, a.UID, a.CreationTimestamp = multicluster.AnnounceName(id), "uid", metav1.NewTime(noon.Add(-time.Hour))
		a.ResourceVersion = touched.String()
		a.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: touched.UTC().Format(time.RFC3339)}
		return a
	}
	clusterSet := &mcv1alpha2.ClusterSet{Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north",
		Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}}
	clusterSet.Name = "set"

	tables.kinds.Fill()
	expect("nothing is there", `leader_exports{state="failed"} 0`, `leader_exports{state="succeeded"} 0`)
	set(clusterSet)
	// The clock of east is right, and the clock of west is a day ahead: the time of the first sighting counts.
	set(announce("east", noon.Add(-5*time.Second)))
	set(announce("west", noon.Add(24*time.Hour)))
	exports := []string{`leader_exports{state="failed"} 0`, `leader_exports{state="succeeded"} 0`}
	expect("two members", append(exports,
		`member_info{peer="east",state="connected"} 1`, `member_info{peer="west",state="connected"} 1`,
		`member_last_report_timestamp_seconds{peer="east"} 1767268795`,
		`member_last_report_timestamp_seconds{peer="west"} 1767268800`)...)

	now = noon.Add(40 * time.Second)
	set(announce("west", noon.Add(25*time.Hour)))
	expect("east is disconnected", append(exports,
		`member_info{peer="east",state="disconnected"} 1`, `member_info{peer="west",state="connected"} 1`,
		`member_last_report_timestamp_seconds{peer="east"} 1767268795`,
		`member_last_report_timestamp_seconds{peer="west"} 1767268840`)...)

	web := service("east", "default", "web", time.Hour, 80)
	other := service("west", "default", "web", time.Minute, 81)
	wrong := service("west", "default", "empty", time.Minute, 81)
	wrong.Spec.Service = nil
	foreign := service("south", "default", "web", time.Minute, 80)
	for _, re := range []*mcv1alpha1.ResourceExport{web, other, wrong, foreign,
		leaving(service("west", "default", "old", time.Hour, 80))} {
		set(re)
	}
	members := []string{`member_info{peer="east",state="disconnected"} 1`, `member_info{peer="west",state="connected"} 1`,
		`member_last_report_timestamp_seconds{peer="east"} 1767268795`,
		`member_last_report_timestamp_seconds{peer="west"} 1767268840`}
	expect("a conflict, a wrong export and one of a foreign cluster", slices.Concat([]string{
		`leader_conflicts{reason="PortConflict"} 1`, `leader_exports{state="failed"} 2`,
		`leader_exports{state="succeeded"} 2`}, members)...)

	// The conditions are written, and no step is left.
	step, _ := tables.steps.exportSteps.Get(keyOf(wrong))
	wrong = wrong.DeepCopy()
	wrong.Status.Conditions = []mcv1alpha1.ResourceExportCondition{step.Condition}
	set(wrong)
	series()
	if step, _ := tables.steps.exportSteps.Get(keyOf(wrong)); step != nil {
		t.Errorf("a step is left: %+v", step)
	}
	expect("the conditions are written", slices.Concat([]string{
		`leader_conflicts{reason="PortConflict"} 1`, `leader_exports{state="failed"} 2`,
		`leader_exports{state="succeeded"} 2`}, members)...)

	second := clusterSet.DeepCopy()
	second.Name, second.CreationTimestamp = "second", metav1.NewTime(noon)
	set(second)
	gone := announce("east", now)
	gone.Namespace = "area"
	tables.kinds.Delete(gone)
	for _, re := range []*mcv1alpha1.ResourceExport{web, foreign} {
		tables.kinds.Delete(re)
	}
	expect("east has left, and there is a problem", `leader_exports{state="failed"} 1`,
		`leader_exports{state="succeeded"} 1`, `leader_problems{reason="MultipleClusterSets"} 1`,
		`member_info{peer="west",state="connected"} 1`, `member_last_report_timestamp_seconds{peer="west"} 1767268840`)
}

// TestLastReport takes the time of a heartbeat from the surest source.
func TestLastReport(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	a := announceFacts(&mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{
		CreationTimestamp: metav1.NewTime(at(-100)),
		Annotations:       map[string]string{multicluster.AnnotationTouchTimestamp: at(-10).Format(time.RFC3339)}}})
	ahead := a
	ahead.Touched = at(1000).Format(time.RFC3339)
	unreadable := a
	unreadable.Touched = "noon"
	for _, row := range []struct {
		name        string
		seen        Sighting
		a           announce
		since, want time.Time
	}{
		{"a heartbeat was seen", Sighting{First: at(0), Changed: at(7), Touched: at(7)}, a, at(-50), at(7)},
		{"by the time stamp", Sighting{First: at(0), Changed: at(0)}, a, time.Time{}, at(-10)},
		{"the time stamp is in the future", Sighting{First: at(0), Changed: at(0)}, ahead, time.Time{}, at(0)},
		{"another leader found it disconnected", Sighting{First: at(0), Changed: at(0)}, ahead, at(-50), at(-50)},
		{"no readable time stamp", Sighting{First: at(0), Changed: at(0)}, unreadable, time.Time{}, at(-100)},
	} {
		if have := lastReport(row.seen, row.a, row.since); !have.Equal(row.want) {
			t.Errorf("%s: %s, want %s", row.name, have, row.want)
		}
	}
}
