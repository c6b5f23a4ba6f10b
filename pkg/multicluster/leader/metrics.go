package leader

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

var (
	memberInfo = prometheus.NewDesc("tombolo_multicluster_member_info",
		"1 for each member, with its state: connected or disconnected.", []string{"peer", "state"}, nil)
	memberReport = prometheus.NewDesc("tombolo_multicluster_member_last_report_timestamp_seconds",
		"When the last heartbeat of a member was received.", []string{"peer"}, nil)
	exportCount = prometheus.NewDesc("tombolo_multicluster_leader_exports",
		"ResourceExports of the Common Area, by state: succeeded or failed.", []string{"state"}, nil)
	conflictCount = prometheus.NewDesc("tombolo_multicluster_leader_conflicts",
		"Services whose exports contradict each other, by reason. A Service with several reasons counts for each.",
		[]string{"reason"}, nil)
	problemCount = prometheus.NewDesc("tombolo_multicluster_leader_problems",
		"Problems of objects of the Common Area, by reason.", []string{"reason"}, nil)
)

// States of a ResourceExport, by its condition.
const (
	succeeded = "succeeded"
	failed    = "failed"
)

// States of a member.
const (
	connected    = "connected"
	disconnected = "disconnected"
)

// stateMetrics is a collector of the state of the leader. It reads the tables when it is asked.
type stateMetrics struct {
	tables   *tables
	problems func() []problem.Problem
	reports  func() map[derive.Object]time.Time // of announcements
}

// newStateMetrics returns the collector of a controller.
func newStateMetrics(c *controller) stateMetrics {
	return stateMetrics{tables: c.tables, reports: c.clock.reports, problems: func() []problem.Problem {
		return slices.Concat(c.tables.engine.Problems(), c.queue.Problems())
	}}
}

// Describe implements prometheus.Collector.
func (s stateMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{memberInfo, memberReport, exportCount, conflictCount, problemCount} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s stateMetrics) Collect(to chan<- prometheus.Metric) {
	members := s.tables.memberStates()
	metrics.States(to, memberInfo, members)
	metrics.Times(to, memberReport, s.lastReports(members))
	metrics.Counts(to, exportCount, s.tables.exportStates())
	metrics.Counts(to, conflictCount, s.tables.conflicts())
	metrics.Counts(to, problemCount, metrics.ByReason(s.problems()))
}

// lastReports returns the times of the last heartbeats of members, by cluster ID.
func (s stateMetrics) lastReports(members map[string]string) map[string]time.Time {
	out := map[string]time.Time{}
	for key, at := range s.reports() {
		a, _ := s.tables.announces.Get(key)
		if a == nil {
			continue
		}
		if _, member := members[a.ClusterID]; member && at.After(out[a.ClusterID]) {
			out[a.ClusterID] = at
		}
	}
	return out
}

// memberStates returns the states of the members by cluster ID, as the status of the ClusterSet has them.
func (t *tables) memberStates() map[string]string {
	out := map[string]string{}
	step, _ := t.steps.setSteps.Get(one)
	if step.Want == nil {
		return out
	}
	for _, s := range step.Want.Status.ClusterStatuses {
		out[s.ClusterID] = disconnected
		if slices.ContainsFunc(s.Conditions, func(c mcv1alpha2.ClusterCondition) bool {
			return c.Type == mcv1alpha2.ClusterReady && c.Status == corev1.ConditionTrue
		}) {
			out[s.ClusterID] = connected
		}
	}
	return out
}

// exportStates counts the ResourceExports by state. Exports that are or will be deleted do not count.
func (t *tables) exportStates() map[string]int {
	out := map[string]int{succeeded: 0, failed: 0}
	for _, row := range t.facts.exports.Unordered() {
		have, _ := t.facts.written.Get(row.Key)
		conditions := have.Conditions
		step, _ := t.steps.exportSteps.Get(row.Key)
		switch {
		case row.Value.Deleted || step != nil && step.Verb == remove:
			continue
		case step != nil && step.Verb == updateStatus:
			conditions = []mcv1alpha1.ResourceExportCondition{step.Condition}
		}
		state := succeeded
		if slices.ContainsFunc(conditions, func(c mcv1alpha1.ResourceExportCondition) bool {
			return c.Type == mcv1alpha1.ResourceExportFailure && c.Status == corev1.ConditionFalse
		}) {
			state = failed
		}
		out[state]++
	}
	return out
}

// conflicts counts the Services with contradictions, by reason.
func (t *tables) conflicts() map[string]int {
	out := map[string]int{}
	for _, row := range t.services.Unordered() {
		if row.Value.Conflict == nil {
			continue
		}
		for reason := range strings.SplitSeq(row.Value.Conflict.Reason, ",") {
			out[reason]++
		}
	}
	return out
}
