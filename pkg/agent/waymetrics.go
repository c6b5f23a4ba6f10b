package agent

import (
	"net/netip"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/probe"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

var wayUp = prometheus.NewDesc("tombolo_multicluster_way_up",
	"Whether BFD finds a way from this Node to another cluster up: 1 or 0.", []string{"cluster", "to"}, nil)

// portsNow returns the ports of the Node's switch.
func portsNow(m *bridge.Manager, c config.Config) map[string]bridge.PortState {
	return m.State().Bridges[c.OVSBridge].Ports
}

// wayOf returns the way to an address, with the BFD state and the counters of its port.
func wayOf(to, end netip.Addr, ports map[string]bridge.PortState, counters map[ofp.Port]ofp.PortStats) api.Way {
	port := ports[wayPort(end)]
	w := api.Way{To: to.String(), State: port.BFD}
	if port.BFD == "" {
		return w
	}
	w.Forwarding = port.BFDStatus["forwarding"] == "true"
	w.Diagnostic = port.BFDStatus["diagnostic"]
	w.RemoteState, w.RemoteDiagnostic = port.BFDStatus["remote_state"], port.BFDStatus["remote_diagnostic"]
	w.Flaps, _ = strconv.ParseUint(port.BFDStatus["flap_count"], 10, 64)
	if c, ok := counters[ofp.Port(port.OFPort)]; ok && port.OFPort != 0 {
		w.RxPackets, w.TxPackets = c.RxPackets, c.TxPackets
	}
	return w
}

// byCluster returns the ways to peers by cluster ID.
func (t *wayTables) byCluster(ports map[string]bridge.PortState, counters map[ofp.Port]ofp.PortStats,
) map[string][]api.Way {
	p, _ := t.peering.Get(self)
	out := map[string][]api.Way{}
	for _, peer := range p.Peers {
		add := func(to, end netip.Addr) {
			out[peer.ClusterID] = append(out[peer.ClusterID], wayOf(to, end, ports, counters))
		}
		own := p.Part.Ways(peer)
		for _, w := range own {
			add(w.Outside, w.End())
		}
		if len(own) > 0 {
			continue
		}
		for _, end := range peer.Ends {
			add(end.Addr, end.Addr)
		}
	}
	return out
}

// endsUp returns the far ends of all ways that BFD watches, and whether each is up.
func (t *wayTables) endsUp(ports map[string]bridge.PortState) map[datapath.WayEnd]bool {
	watched, _ := t.watched.Get(self)
	out := make(map[datapath.WayEnd]bool, len(watched))
	for _, end := range watched {
		if state := ports[wayPort(end.Addr)].BFD; state != "" {
			out[end] = state == wayIsUp
		}
	}
	return out
}

// These are metrics of probes. The ID of the other cluster is the label peer, since metrics servers often set a label
// cluster of their own.
var (
	wayLabels = []string{"peer", "to"}
	wayRTT    = prometheus.NewDesc("tombolo_multicluster_way_rtt_seconds",
		"Round-trip times of probes of a way.", wayLabels, nil)
	wayProbesLost = prometheus.NewDesc("tombolo_multicluster_way_probes_lost_total",
		"Probes of a way that did not come back in a second.", wayLabels, nil)
	waySize = prometheus.NewDesc("tombolo_multicluster_way_packet_size_bytes",
		"The largest packet that passes a way, up to the MTU.", wayLabels, nil)
	wayFlaps = prometheus.NewDesc("tombolo_multicluster_way_flaps_total",
		"How often the state of a way has changed, by BFD.", wayLabels, nil)
)

// wayMetrics is a collector of the state of ways and of the results of their probes.
type wayMetrics struct {
	ways   func() map[string][]api.Way
	probes *probe.Prober
}

// Describe implements prometheus.Collector.
func (m wayMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{wayUp, wayRTT, wayProbesLost, waySize, wayFlaps} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m wayMetrics) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, peer, way string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, peer, way)
	}
	for cluster, ways := range m.ways() {
		for _, w := range ways {
			if w.State == "" {
				continue
			}
			up := 0.
			if w.State == wayIsUp {
				up = 1
			}
			send(wayUp, prometheus.GaugeValue, up, cluster, w.To)
			send(wayFlaps, prometheus.CounterValue, float64(w.Flaps), cluster, w.To)
		}
	}
	results, _ := m.probes.Results()
	for _, w := range results {
		send(wayProbesLost, prometheus.CounterValue, float64(w.Lost), w.Peer, w.To)
		if w.Size > 0 {
			send(waySize, prometheus.GaugeValue, float64(w.Size), w.Peer, w.To)
		}
	}
	m.probes.Histograms(func(w probe.Way, h probe.Histogram) {
		to <- prometheus.MustNewConstHistogram(wayRTT, h.Count, h.Sum, h.Below, w.Peer, w.To)
	})
}
