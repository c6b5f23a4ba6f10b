package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/tombolo-net/tombolo/pkg/datapath"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

var wayUp = prometheus.NewDesc("tombolo_multicluster_way_up",
	"Whether BFD finds a way from this Node to another cluster up: 1 or 0.", []string{"cluster", "to"}, nil)

// ways are the ways to peers by cluster ID, with the state that the switch's BFD gives each.
func (a *Agent) ways() map[string][]api.Way {
	p, _ := a.tables.peering.Get(self)
	ports := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports
	out := map[string][]api.Way{}
	for _, peer := range p.Peers {
		ends := p.Ends(peer)
		if len(ends) == 0 {
			ends = peer.Ways
		}
		for _, end := range ends {
			out[peer.ClusterID] = append(out[peer.ClusterID], api.Way{To: peer.Outside(end).String(), State: ports[wayPort(end)].BFD})
		}
	}
	return out
}

// ends are the far ends of all ways that BFD watches, with whether they are up.
func (a *Agent) ends() map[datapath.WayEnd]bool {
	ports := a.switchPorts.State().Bridges[a.config.OVSBridge].Ports
	watched, _ := a.tables.watched.Get(self)
	out := make(map[datapath.WayEnd]bool, len(watched))
	for _, end := range watched {
		if state := ports[wayPort(end.Addr)].BFD; state != "" {
			out[end] = state == wayIsUp
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
