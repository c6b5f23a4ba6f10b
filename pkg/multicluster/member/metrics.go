package member

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

var (
	leaderConnected = prometheus.NewDesc("tombolo_multicluster_leader_connected",
		"1 while the leader accepts the announcements of this cluster and its Common Area was read. Absent in a cluster "+
			"without a ClusterSet.", nil, nil)
	leaderSync = prometheus.NewDesc("tombolo_multicluster_leader_last_sync_timestamp_seconds",
		"When the leader accepted the last announcement of this cluster.", nil, nil)
	peerInfo = prometheus.NewDesc("tombolo_multicluster_peer_info",
		"1 for each other cluster, with its state: announced, gone or withdrawn.", []string{"peer", "state"}, nil)
	exportCount = prometheus.NewDesc("tombolo_multicluster_exports",
		"ServiceExports of this cluster, by state: exported, pending or failed.", []string{"state"}, nil)
	importCount = prometheus.NewDesc("tombolo_multicluster_imports",
		"Services of the ClusterSet that are for this cluster, by state: imported, pending, failed, or skipped since their "+
			"Namespace does not exist here.", []string{"state"}, nil)
	conflictCount = prometheus.NewDesc("tombolo_multicluster_conflicts",
		"ServiceExports of this cluster that contradict exports of other clusters, by reason. An export with several "+
			"reasons counts for each.", []string{"reason"}, nil)
	problemCount = prometheus.NewDesc("tombolo_multicluster_problems",
		"Problems of objects of this cluster, by reason.", []string{"reason"}, nil)
)

// stateMetrics is a collector of the state of a member. It reads the tables when it is asked.
type stateMetrics struct {
	tables   *tables
	problems func() []problem.Problem
	synced   func(membership.Area) time.Time // the last announcement that the leader accepted; zero for none
}

// newStateMetrics returns the collector of a controller.
func newStateMetrics(c *controller) stateMetrics {
	return stateMetrics{tables: c.tables, problems: c.problems, synced: func(of membership.Area) time.Time {
		c.mu.Lock()
		area := c.area
		c.mu.Unlock()
		if area == nil || area.area != of {
			return time.Time{}
		}
		return area.state().Done
	}}
}

// Describe implements prometheus.Collector.
func (s stateMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaderConnected, leaderSync, peerInfo, exportCount, importCount, conflictCount,
		problemCount} {
		to <- d
	}
}

// Collect implements prometheus.Collector. In a cluster without a ClusterSet there are only Problems.
func (s stateMetrics) Collect(to chan<- prometheus.Metric) {
	metrics.Counts(to, problemCount, metrics.ByReason(s.problems()))
	m, ok := s.tables.base.Membership.Get(membership.Here)
	if !ok || m.Leave {
		return
	}
	connected := 0.0
	if c, _ := s.tables.base.Connection.Get(membership.Here); m.Joined && c.Error == "" {
		connected = 1
	}
	to <- prometheus.MustNewConstMetric(leaderConnected, prometheus.GaugeValue, connected)
	if m.Area != nil {
		if at := s.synced(*m.Area); !at.IsZero() {
			to <- prometheus.MustNewConstMetric(leaderSync, prometheus.GaugeValue, metrics.Seconds(at))
		}
	}
	metrics.States(to, peerInfo, s.tables.reach.States(m))
	exports, conflicts := s.tables.exports.States()
	metrics.Counts(to, exportCount, exports)
	metrics.Counts(to, conflictCount, conflicts)
	if m.Joined { // before, nothing is known of the leader's imports
		metrics.Counts(to, importCount, s.tables.imports.States(m))
	}
}
