// Package metrics exposes counters and times of engines of derived tables and of writers. Agent, leader and member use
// the same metrics.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Tables is a collector of an engine's figures: what events cost, by table.
type Tables struct {
	engine *derive.Engine
	pass   prometheus.Histogram
}

var (
	table     = []string{"table"}
	evaluated = prometheus.NewDesc("tombolo_derive_evaluated_total", "Rows of derived tables that were evaluated.",
		table, nil)
	changed = prometheus.NewDesc("tombolo_derive_changed_total", "Rows that came, changed or went.", table, nil)
	ignored = prometheus.NewDesc("tombolo_derive_ignored_total", "Writes to sources that changed nothing.", table, nil)
	rows    = prometheus.NewDesc("tombolo_derive_rows", "Rows that there are.", table, nil)
	passes  = prometheus.NewDesc("tombolo_derive_passes_total", "Passes over the tables.", nil, nil)
)

// NewTables returns a collector. It is called before the engine runs.
func NewTables(e *derive.Engine) *Tables {
	t := &Tables{engine: e, pass: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tombolo_derive_pass_seconds", Help: "Time to evaluate what a pass has to, without writing it.",
		Buckets: prometheus.ExponentialBuckets(10e-6, 4, 10),
	})}
	e.WatchPasses(func(s derive.PassStats) { t.pass.Observe(s.Duration.Seconds()) })
	return t
}

// Describe implements prometheus.Collector.
func (t *Tables) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{evaluated, changed, ignored, rows, passes} {
		to <- d
	}
	t.pass.Describe(to)
}

// Collect implements prometheus.Collector.
func (t *Tables) Collect(to chan<- prometheus.Metric) {
	_, count, tables := t.engine.Stats()
	to <- prometheus.MustNewConstMetric(passes, prometheus.CounterValue, float64(count))
	for _, s := range tables {
		for desc, n := range map[*prometheus.Desc]uint64{evaluated: s.Evaluated, changed: s.Changed, ignored: s.Ignored} {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), s.Name)
		}
		to <- prometheus.MustNewConstMetric(rows, prometheus.GaugeValue, float64(s.Rows), s.Name)
	}
	t.pass.Collect(to)
}

// NewWrites returns a histogram of the time that writes to API servers take, by the target ("cluster", "leader") and by
// success.
func NewWrites() *Writes {
	return &Writes{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tombolo_write_seconds", Help: "Time that writes to API servers take.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
	}, []string{"to", "result"})}
}

// Writes is what NewWrites returns.
type Writes struct{ *prometheus.HistogramVec }

// To returns a function to be called after each write to a server, in the form that retry.Options need.
func (w *Writes) To(server string) func(took time.Duration, err error) {
	return func(took time.Duration, err error) {
		result := "success"
		if err != nil {
			result = "error"
		}
		w.WithLabelValues(server, result).Observe(took.Seconds())
	}
}

// Hops of a change from a Service in one cluster to the flows in another, in their order. One process with one clock
// measures each hop: from the pass that read the change until its result is written, or confirmed by the switch. The
// time that API servers' watches take is not in any hop.
const (
	ServiceToExport  = "service_to_export"  // member: a Service or its endpoints, until the leader has the ResourceExport
	ExportToImport   = "export_to_import"   // leader: a ResourceExport, until the ResourceImport is written
	ImportToService  = "import_to_service"  // member: a ResourceImport, until the Service or Endpoints are written
	EndpointsToFlows = "endpoints_to_flows" // agent: Endpoints, until the switch has confirmed the flows
)

// Propagation is a histogram of the time that changes take, by hop.
type Propagation struct{ *prometheus.HistogramVec }

// NewPropagation returns a histogram for the hops of one process.
func NewPropagation() *Propagation {
	return &Propagation{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tombolo_propagation_seconds", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		Help: "Time from the pass that saw a change until what it asks for is written, or confirmed by the switch, by hop.",
	}, []string{"hop"})}
}

// Took notes one change.
func (p *Propagation) Took(hop string, d time.Duration) { p.WithLabelValues(hop).Observe(d.Seconds()) }

// Expose registers collectors until the returned function is called. It leaves out collectors that the registry has
// already, which happens in tests with several controllers in one process.
func Expose(r prometheus.Registerer, collectors ...prometheus.Collector) (stop func()) {
	var registered []prometheus.Collector
	for _, c := range collectors {
		if r.Register(c) == nil {
			registered = append(registered, c)
		}
	}
	return func() {
		for _, c := range registered {
			r.Unregister(c)
		}
	}
}
