package member

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// setClusterCondition returns the conditions with one replaced or added. The transition time
// stays when the status does; otherwise it is left to stampClusterSet.
func setClusterCondition(have []mcv1alpha2.ClusterCondition, c condition) []mcv1alpha2.ClusterCondition {
	conditions := slices.Clone(have)
	want := mcv1alpha2.ClusterCondition{
		Type: mcv1alpha2.ClusterConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message,
	}
	for i, old := range conditions {
		if old.Type == want.Type {
			if old.Status == want.Status {
				want.LastTransitionTime = old.LastTransitionTime
			}
			conditions[i] = want
			return conditions
		}
	}
	return append(conditions, want)
}

// setClusterSetCondition is setClusterCondition for the conditions of the set as a whole.
func setClusterSetCondition(have []mcv1alpha2.ClusterSetCondition, c condition) []mcv1alpha2.ClusterSetCondition {
	conditions := slices.Clone(have)
	want := mcv1alpha2.ClusterSetCondition{
		Type: mcv1alpha2.ClusterSetConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message,
	}
	for i, old := range conditions {
		if old.Type == want.Type {
			if old.Status == want.Status {
				want.LastTransitionTime = old.LastTransitionTime
			}
			conditions[i] = want
			return conditions
		}
	}
	return append(conditions, want)
}

// withConditions are conditions with some replaced or added. The transition time stays when the status does; otherwise it is left
// to stamp.
func withConditions(have, news []metav1.Condition) []metav1.Condition {
	out := slices.Clone(have)
	for _, c := range news {
		i := slices.IndexFunc(out, func(old metav1.Condition) bool { return old.Type == c.Type })
		if i < 0 {
			out = append(out, c)
			continue
		}
		if old := out[i]; old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out[i] = c
	}
	return out
}

// exportWith is a ServiceExport with conditions.
func exportWith(have *mcsv1alpha1.ServiceExport, conditions []metav1.Condition) *mcsv1alpha1.ServiceExport {
	want := have.DeepCopy()
	want.Status.Conditions = withConditions(have.Status.Conditions, conditions)
	return want
}

// stamp gives conditions that are new their time.
func stamp(conditions []metav1.Condition, now metav1.Time) {
	for i := range conditions {
		if conditions[i].LastTransitionTime.IsZero() {
			conditions[i].LastTransitionTime = now
		}
	}
}

// stampClusterSet gives conditions that are new their time.
func stampClusterSet(cs *mcv1alpha2.ClusterSet, now metav1.Time) {
	for i := range cs.Status.Conditions {
		if c := &cs.Status.Conditions[i]; c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now
		}
	}
	for i := range cs.Status.ClusterStatuses {
		for j := range cs.Status.ClusterStatuses[i].Conditions {
			if c := &cs.Status.ClusterStatuses[i].Conditions[j]; c.LastTransitionTime.IsZero() {
				c.LastTransitionTime = now
			}
		}
	}
}
