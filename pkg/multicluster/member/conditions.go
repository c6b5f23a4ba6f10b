package member

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// setClusterCondition returns the conditions with one replaced or added. The transition time
// changes only when the status does.
func setClusterCondition(have []mcv1alpha2.ClusterCondition, c condition, now metav1.Time) []mcv1alpha2.ClusterCondition {
	conditions := slices.Clone(have)
	want := mcv1alpha2.ClusterCondition{
		Type: mcv1alpha2.ClusterConditionType(c.kind), Status: c.status, LastTransitionTime: now, Reason: c.reason, Message: c.message,
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
func setClusterSetCondition(have []mcv1alpha2.ClusterSetCondition, c condition, now metav1.Time) []mcv1alpha2.ClusterSetCondition {
	conditions := slices.Clone(have)
	want := mcv1alpha2.ClusterSetCondition{
		Type: mcv1alpha2.ClusterSetConditionType(c.kind), Status: c.status, LastTransitionTime: now, Reason: c.reason, Message: c.message,
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
