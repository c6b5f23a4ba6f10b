package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

var wayUp = prometheus.NewDesc("tombolo_multicluster_way_up",
	"Whether BFD finds a way from this Node to another cluster up: 1 or 0. A single way is not watched.", []string{"cluster", "to"}, nil)

// ways are the ways to peers by cluster ID, with the state that the switch's BFD gives each.
func (a *Agent) ways() map[string][]api.Way {
	p, _ := a.tables.peering.Get(self)
	ports := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports
	out := map[string][]api.Way{}
	for _, peer := range p.Peers {
		for _, end := range peer.Ways {
			out[peer.ClusterID] = append(out[peer.ClusterID], api.Way{To: end.String(), State: ports[wayPort(end)].BFD})
		}
	}
	return out
}

// wayMetrics is a collector of the state of ways.
type wayMetrics struct {
	ways func() map[string][]api.Way
}

// Describe implements prometheus.Collector.
func (m wayMetrics) Describe(to chan<- *prometheus.Desc) { to <- wayUp }

// Collect implements prometheus.Collector.
func (m wayMetrics) Collect(to chan<- prometheus.Metric) {
	for cluster, ways := range m.ways() {
		for _, w := range ways {
			if w.State == "" {
				continue
			}
			up := 0.
			if w.State == "up" {
				up = 1
			}
			to <- prometheus.MustNewConstMetric(wayUp, prometheus.GaugeValue, up, cluster, w.To)
		}
	}
}
