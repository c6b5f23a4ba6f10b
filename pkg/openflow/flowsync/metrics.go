package flowsync

import (
	"errors"
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// collector exports a Syncer's metrics. It copies the Syncer's numbers under s.mu and passes them on without the lock.
// Metrics of Prometheus must not be read or changed under s.mu: their locks are held while a scrape waits for a slow
// reader, and that reader may be waiting for s.mu.
type collector struct{ s *Syncer }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tombolo_flowsync_"+name, help, labels, nil)
}

var (
	flowModsDesc = describe("flow_mods_total", "Flow-mods sent, by command.", "command")
	refusalsDesc = describe("refusals_total",
		"Entries that were refused, each attempt counted, by the switch's error, or invalid for entries that were not sent.",
		"reason")
)

// numbers are the metrics without labels.
var numbers = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Syncer) uint64 // called with s.mu held
}{
	{describe("group_mods_total", "Group-mods sent."), prometheus.CounterValue,
		func(s *Syncer) uint64 { return s.counts.Sent(ofp.TypeGroupMod) }},
	{describe("meter_mods_total", "Meter-mods sent."), prometheus.CounterValue,
		func(s *Syncer) uint64 { return s.counts.Sent(ofp.TypeMeterMod) }},
	{describe("bundles_total", "Bundles committed."), prometheus.CounterValue,
		func(s *Syncer) uint64 { return s.stats.Bundles }},
	{describe("mended_total", "Foreign changes that were reverted."), prometheus.CounterValue,
		func(s *Syncer) uint64 { return s.stats.Mended }},
	{describe("connections_total", "Connections to the switch that were established."), prometheus.CounterValue,
		func(s *Syncer) uint64 { return s.stats.Connections }},
	{describe("flows_wanted", "Flows that owners want."), prometheus.GaugeValue,
		func(s *Syncer) uint64 { return uint64(s.owners.wanted.flows) }},
	{describe("groups_wanted", "Groups that owners want."), prometheus.GaugeValue,
		func(s *Syncer) uint64 { return uint64(s.owners.wanted.groups) }},
	{describe("meters_wanted", "Meters that owners want."), prometheus.GaugeValue,
		func(s *Syncer) uint64 { return uint64(len(s.meters.claims)) }},
	{describe("refused", "Entries that are held back since the switch refused them."), prometheus.GaugeValue,
		func(s *Syncer) uint64 { return uint64(len(s.slots.refused) + len(s.meters.refused)) }},
	{describe("connected", "1 while there is a connection to the switch."), prometheus.GaugeValue,
		func(s *Syncer) uint64 {
			if s.session == nil {
				return 0
			}
			return 1
		}},
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- flowModsDesc
	out <- refusalsDesc
	for _, n := range numbers {
		out <- n.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	values := make([]uint64, len(numbers))
	c.s.mu.Lock()
	refusals := maps.Clone(c.s.reasons)
	for i, n := range numbers {
		values[i] = n.value(c.s)
	}
	c.s.mu.Unlock()
	for i, n := range numbers {
		out <- prometheus.MustNewConstMetric(n.desc, n.kind, float64(values[i]))
	}
	for reason, n := range refusals {
		out <- prometheus.MustNewConstMetric(refusalsDesc, prometheus.CounterValue, float64(n), reason)
	}
	for command, label := range map[ofp.FlowCommand]string{
		ofp.FlowAdd: "add", ofp.FlowModifyStrict: "modify_strict", ofp.FlowDeleteStrict: "delete_strict",
	} {
		out <- prometheus.MustNewConstMetric(flowModsDesc, prometheus.CounterValue,
			float64(c.s.counts.FlowMods(command)), label)
	}
}

// newLatency returns the histogram of the time from a declaration to its confirmation. It is registered in addition to
// the collector.
func newLatency() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tombolo_flowsync_sync_seconds",
		Help: "Time from a declaration to the switch's confirmation; the oldest of the declarations that are confirmed " +
			"together.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
	})
}

// reasons counts refused attempts by the switch's error.
type reasons map[string]uint64

// count counts a refusal.
func (r reasons) count(err error) {
	reason := "invalid"
	var e *ofconn.SwitchError
	if errors.As(err, &e) {
		reason = e.Refusal.Name()
	}
	r[reason]++
}
