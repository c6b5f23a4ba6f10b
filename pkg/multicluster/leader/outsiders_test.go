package leader

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// TestOutsiders has exports of clusters that are no members.
func TestOutsiders(t *testing.T) {
	type re = mcv1alpha1.ResourceExport
	found := func(ago time.Duration) func(*re) {
		return func(r *re) {
			r.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportFailure,
				Status: corev1.ConditionFalse,
				Reason: reasonNotAnnounced.String(), LastTransitionTime: metav1.NewTime(noon.Add(-ago))}}
		}
	}
	web := func(change ...func(*re)) *re {
		r := service("east", "default", "web", 48*time.Hour, 80)
		for _, f := range change {
			f(r)
		}
		return r
	}
	foreign := func(r *re) { r.Finalizers = []string{"example.org/mine"} }
	gone := func(r *re) { leaving(r) }
	rivals := []*mcv1alpha1.MemberClusterAnnounce{announcedBy("member", "west", time.Hour),
		announcedBy("member", "east", time.Minute)}
	departing := announced("east")
	departing[0].DeletionTimestamp = &metav1.Time{Time: noon}
	for _, row := range []struct {
		name      string
		announces []*mcv1alpha1.MemberClusterAnnounce
		export    *re
		condition string // a part of its message; empty for no condition
		since     time.Duration
		deleted   bool
		free      bool
	}{
		{name: "a member's", announces: announced("east"), export: web()},
		{name: "nobody's, just found", export: web(),
			condition: "it has no MemberClusterAnnounce; this ResourceExport is deleted after 1h0m0s"},
		{name: "nobody's, that has failed for something else before", condition: "it has no MemberClusterAnnounce",
			export: web(found(48*time.Hour), func(r *re) { r.Status.Conditions[0].Reason = "ConvergeFailure" })},
		{name: "nobody's for half an hour", export: web(found(30 * time.Minute)),
			condition: "it has no MemberClusterAnnounce", since: 30 * time.Minute},
		{name: "nobody's since a time in the future", export: web(found(-time.Hour)),
			condition: "it has no MemberClusterAnnounce"},
		{name: "nobody's for two hours", export: web(found(2 * time.Hour)), deleted: true},
		{name: "nobody's, deleted, with a foreign finalizer", export: web(foreign, gone), free: true},
		{name: "a member's that was nobody's", announces: announced("east"), export: web(found(2 * time.Hour))},
		{name: "a label of nobody's for two hours", deleted: true,
			export: web(found(2*time.Hour), func(r *re) { r.Spec.Kind = multicluster.LabelIdentityKind })},
		{name: "an administrator's policy", condition: "spec.clusterNetworkPolicy is missing", since: 2 * time.Hour,
			export: web(found(2*time.Hour), func(r *re) { r.Spec.Kind = multicluster.AntreaClusterNetworkPolicyKind })},
		{name: "of a rival", announces: rivals, export: web(), condition: "its ServiceAccount member acts for cluster west"},
		{name: "of a member that leaves", announces: departing, export: web(), deleted: true},
		{name: "of a member that leaves, deleted, with a foreign finalizer", announces: departing, export: web(foreign, gone),
			free: true},
		{name: "of a member, deleted, with a foreign finalizer", announces: announced("east"), export: web(foreign, gone)},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, _ := Plan(View{Namespace: "area", Now: noon, Announces: row.announces, ResourceExports: []*re{row.export},
				Accounts: []*corev1.ServiceAccount{serviceAccount("member", "")}})
			c, failed := d.Conditions[row.export.Name]
			failed = failed && c.Type == mcv1alpha1.ResourceExportFailure
			if failed != (row.condition != "") || !strings.Contains(c.Message, row.condition) {
				t.Errorf("condition %+v, want a failure with %q", c, row.condition)
			}
			if failed && !c.LastTransitionTime.Time.Equal(noon.Add(-row.since)) {
				t.Errorf("since %s, want %s ago", c.LastTransitionTime, row.since)
			}
			if deleted := slices.Contains(d.DeleteExports, row.export.Name); deleted != row.deleted {
				t.Errorf("deleted %v, want %v", deleted, row.deleted)
			}
			if free := d.FreeExports[row.export.Name] && slices.Contains(d.ReleaseExports, row.export.Name); free != row.free {
				t.Errorf("freed of all finalizers %v, want %v", free, row.free)
			}
			imported := len(d.Imports) > 0
			if want := row.announces != nil && !failed && !row.deleted && row.export.DeletionTimestamp == nil; imported != want {
				t.Errorf("imported %v, want %v", imported, want)
			}
		})
	}
}

// TestReleaseAnnounce removes the announcement of a member without exports, whatever finalizers the announcement got
// while the webhooks were unavailable.
func TestReleaseAnnounce(t *testing.T) {
	a := announced("east")[0]
	a.DeletionTimestamp = &metav1.Time{Time: noon}
	a.Finalizers = []string{"example.org/mine"}
	v := View{Namespace: "area", Now: noon, Announces: []*mcv1alpha1.MemberClusterAnnounce{a}}
	if d, _ := Plan(v); !slices.Equal(d.ReleaseAnnounces, []string{a.Name}) {
		t.Errorf("releases %v, want %s", d.ReleaseAnnounces, a.Name)
	}
	v.ResourceExports = []*mcv1alpha1.ResourceExport{leaving(service("east", "default", "web", time.Hour, 80))}
	if d, _ := Plan(v); len(d.ReleaseAnnounces) > 0 {
		t.Errorf("releases %v while an export is left", d.ReleaseAnnounces)
	}
}

// TestForgedStatus restores the leader's conditions of exports and the status of imports.
func TestForgedStatus(t *testing.T) {
	good := mcv1alpha1.ResourceExportCondition{Type: mcv1alpha1.ResourceExportSucceeded, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(noon)}
	earlier, later, other := good, good, good
	earlier.LastTransitionTime = metav1.NewTime(noon.Add(-time.Hour))
	later.LastTransitionTime = metav1.NewTime(noon.Add(time.Hour))
	other.Message = "forged"
	for _, row := range []struct {
		name string
		have []mcv1alpha1.ResourceExportCondition
		same bool
	}{
		{"as it is", []mcv1alpha1.ResourceExportCondition{good}, true},
		{"earlier", []mcv1alpha1.ResourceExportCondition{earlier}, true},
		{"later", []mcv1alpha1.ResourceExportCondition{later}, true},
		{"another message", []mcv1alpha1.ResourceExportCondition{other}, false},
		{"one more", []mcv1alpha1.ResourceExportCondition{good, other}, false},
		{"none", nil, false},
	} {
		if have := sameConditions(row.have, good); have != row.same {
			t.Errorf("export, %s: %v, want %v", row.name, have, row.same)
		}
	}
	d, _ := Plan(View{Namespace: "area", Now: noon, Announces: announced("east"),
		ResourceExports: []*mcv1alpha1.ResourceExport{service("east", "default", "web", time.Hour, 80)}})
	want := d.Imports["default-web-service"].Status
	for _, row := range []struct {
		name   string
		change func(*mcv1alpha1.ResourceImportStatus)
		same   bool
	}{
		{"as it is", func(*mcv1alpha1.ResourceImportStatus) {}, true},
		{"earlier", func(s *mcv1alpha1.ResourceImportStatus) {
			s.ClusterStatuses[0].Conditions[0].LastTransitionTime = earlier.LastTransitionTime
		}, true},
		{"another status", func(s *mcv1alpha1.ResourceImportStatus) {
			s.ClusterStatuses[0].Conditions[0].Status = corev1.ConditionFalse
		}, false},
		{"another message",
			func(s *mcv1alpha1.ResourceImportStatus) { s.ClusterStatuses[0].Conditions[0].Message = "forged" }, false},
		{"one more condition", func(s *mcv1alpha1.ResourceImportStatus) {
			s.ClusterStatuses[0].Conditions = append(s.ClusterStatuses[0].Conditions, s.ClusterStatuses[0].Conditions[0])
		}, false},
		{"one more cluster", func(s *mcv1alpha1.ResourceImportStatus) {
			s.ClusterStatuses = append(s.ClusterStatuses, s.ClusterStatuses[0])
		}, false},
	} {
		have := want.DeepCopy()
		row.change(have)
		if same := sameStatus(*have, want); same != row.same {
			t.Errorf("import, %s: %v, want %v", row.name, same, row.same)
		}
	}
}
