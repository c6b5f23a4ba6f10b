package flowsync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// metrics are what Prometheus sees of a Syncer.
type metrics struct {
	refusals prometheus.Counter
	latency  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, s *Syncer) *metrics {
	m := &metrics{
		refusals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tombolo_flowsync_refusals_total", Help: "Entries that the switch refused, each attempt counted.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tombolo_flowsync_sync_seconds", Help: "Time from a declaration being taken up to the switch's confirmation.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
	}
	if r == nil {
		return m
	}
	r.MustRegister(m.refusals, m.latency)
	for _, g := range []struct {
		name, help string
		value      func() float64
	}{
		{"tombolo_flowsync_flow_mods_total", "Flow-mods sent.", func() float64 { return float64(s.counts.Sent(ofp.TypeFlowMod)) }},
		{"tombolo_flowsync_group_mods_total", "Group-mods sent.", func() float64 { return float64(s.counts.Sent(ofp.TypeGroupMod)) }},
		{"tombolo_flowsync_bundles_total", "Bundles committed.", func() float64 { return float64(s.Stats().Bundles) }},
		{"tombolo_flowsync_mended_total", "Foreign changes put right.", func() float64 { return float64(s.Stats().Mended) }},
	} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: g.name, Help: g.help}, g.value))
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tombolo_flowsync_flows_wanted", Help: "Flows that owners want.",
	}, func() float64 { return float64(s.Stats().Flows) }))
	return m
}
