package exports

import (
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// States of a ServiceExport, by its condition Ready.
const (
	Exported = "exported"
	Pending  = "pending"
	Failed   = "failed"
)

// States counts the ServiceExports by state, and the conflicts by reason. If the conditions of an export stay as they
// are, the existing ones count.
func (t *Tables) States() (states, conflicts map[string]int) {
	states, conflicts = map[string]int{Exported: 0, Pending: 0, Failed: 0}, map[string]int{}
	for _, row := range t.ServiceExports.Unordered() {
		conditions, _ := t.Validity.Get(row.Key)
		if len(conditions) == 0 {
			conditions = row.Value.Status.Conditions
		}
		states[stateOf(conditions)]++
		c := apimeta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		if c != nil && c.Status == metav1.ConditionTrue {
			for reason := range strings.SplitSeq(c.Reason, ",") {
				conflicts[reason]++
			}
		}
	}
	return states, conflicts
}

// stateOf returns the state of a ServiceExport with these conditions.
func stateOf(conditions []metav1.Condition) string {
	ready := apimeta.FindStatusCondition(conditions, string(mcsv1beta1.ServiceExportConditionReady))
	switch {
	case ready == nil || ready.Reason == reasonPending.String():
		return Pending
	case ready.Status == metav1.ConditionTrue:
		return Exported
	}
	return Failed
}
