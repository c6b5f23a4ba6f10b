package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/version"
)

// stateMetrics collects the state of the agent, as `tombolo get status` shows it.
type stateMetrics struct{ agent *Agent }

var (
	readyDesc = prometheus.NewDesc("tombolo_agent_ready", "1 while the Node's network is ready.", nil, nil)
	ovsdbDesc = prometheus.NewDesc("tombolo_agent_ovsdb_connected", "1 while there is a connection to the OVSDB.",
		nil, nil)
	infoDesc = prometheus.NewDesc("tombolo_agent_info", "The versions of the agent and of Open vSwitch.",
		[]string{"version", "ovs", "datapath"}, nil)
	problemsDesc = prometheus.NewDesc("tombolo_agent_problems", "Problems of objects on this Node, by reason.",
		[]string{"reason"}, nil)
	unwatchedDesc = prometheus.NewDesc("tombolo_agent_unwatched_kinds",
		"Kinds of objects that the agent does not read from the API server now.", nil, nil)
	conntrackDesc = prometheus.NewDesc("tombolo_conntrack_entries", "Connections that the datapath tracks.", nil, nil)
	limitDesc     = prometheus.NewDesc("tombolo_conntrack_max",
		"The most connections that the datapath tracks: new ones are dropped beyond.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m stateMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readyDesc, ovsdbDesc, infoDesc, problemsDesc, unwatchedDesc, conntrackDesc,
		limitDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m stateMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	is := map[bool]int{true: 1}
	s := m.agent.status()
	gauge(readyDesc, is[s.Ready])
	gauge(ovsdbDesc, is[m.agent.switchPorts.State().Connected])
	gauge(infoDesc, 1, version.String(), s.OVS, s.Datapath)
	problems := map[string]int{}
	for _, p := range s.Problems {
		problems[p.Reason]++
	}
	for reason, n := range problems {
		gauge(problemsDesc, n, reason)
	}
	unwatched := 0
	for _, w := range m.agent.watcher.Status() {
		if w.Waiting != "" {
			unwatched++
		}
	}
	gauge(unwatchedDesc, unwatched)
	if tracked, limit, ok := m.agent.connections.count.last(); ok {
		gauge(conntrackDesc, tracked)
		gauge(limitDesc, limit)
	}
}
