package flowsync

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// metrics are what Prometheus sees of a Syncer.
type metrics struct {
	refusals *prometheus.CounterVec
	latency  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, s *Syncer) *metrics {
	m := &metrics{
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tombolo_flowsync_refusals_total",
			Help: "Entries that were refused, each attempt counted, by the switch's error, or invalid for those that were not sent.",
		}, []string{"reason"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tombolo_flowsync_sync_seconds",
			Help:    "Time from a declaration up to the switch's confirmation; the oldest of those that are confirmed together.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
	}
	if r == nil {
		return m
	}
	r.MustRegister(m.refusals, m.latency)
	counter := func(name, help string, labels prometheus.Labels, value func() uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tombolo_flowsync_" + name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value()) }))
	}
	gauge := func(name, help string, value func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tombolo_flowsync_" + name, Help: help},
			func() float64 { s.mu.Lock(); defer s.mu.Unlock(); return float64(value()) }))
	}
	for command, label := range map[ofp.FlowCommand]string{
		ofp.FlowAdd: "add", ofp.FlowModifyStrict: "modify_strict", ofp.FlowDeleteStrict: "delete_strict",
	} {
		counter("flow_mods_total", "Flow-mods sent, by command.", prometheus.Labels{"command": label},
			func() uint64 { return s.counts.FlowMods(command) })
	}
	counter("group_mods_total", "Group-mods sent.", nil, func() uint64 { return s.counts.Sent(ofp.TypeGroupMod) })
	counter("meter_mods_total", "Meter-mods sent.", nil, func() uint64 { return s.counts.Sent(ofp.TypeMeterMod) })
	locked := func(value *uint64) func() uint64 {
		return func() uint64 { s.mu.Lock(); defer s.mu.Unlock(); return *value }
	}
	counter("bundles_total", "Bundles committed.", nil, locked(&s.stats.Bundles))
	counter("mended_total", "Foreign changes put right.", nil, locked(&s.stats.Mended))
	counter("connections_total", "Connections to the switch that came up.", nil, locked(&s.stats.Connections))
	gauge("flows_wanted", "Flows that owners want.", func() int { return s.wanted.flows })
	gauge("groups_wanted", "Groups that owners want.", func() int { return s.wanted.groups })
	gauge("meters_wanted", "Meters that owners want.", func() int { return len(s.meters.claims) })
	gauge("refused", "Entries that are held back since the switch refused them.", func() int { return len(s.refused) + len(s.meters.refused) })
	gauge("connected", "1 while there is a connection to the switch.", func() int {
		if s.conn == nil {
			return 0
		}
		return 1
	})
	return m
}

// refused counts a refusal.
func (m *metrics) refused(err error) {
	reason := "invalid"
	var e *ofconn.SwitchError
	if errors.As(err, &e) {
		reason = e.Refusal.Name()
	}
	m.refusals.WithLabelValues(reason).Inc()
}
