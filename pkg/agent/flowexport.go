package agent

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/ipfix"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// flowExport sends the records of the observer to a collector.
type flowExport struct {
	*ipfix.Exporter
	observer *observer
}

// newFlowExport returns nil if the configuration asks for no flow records.
func newFlowExport(c config.Config, node string, o *observer) (*flowExport, error) {
	if !c.Enabled("FlowExporter") || !c.FlowExporter.Enable {
		return nil, nil
	}
	collector, err := ipfix.ParseCollector(c.FlowExporter.FlowCollectorAddr)
	if err != nil {
		return nil, fmt.Errorf("flowExporter.flowCollectorAddr %w", err)
	}
	domain := fnv.New32a()
	_, _ = domain.Write([]byte(node))
	x := &flowExport{observer: o}
	x.Exporter = ipfix.New(ipfix.Options{
		Collector: collector, CA: []byte(c.FlowExporter.FlowCollectorCA), Domain: domain.Sum32(), Log: o.log,
		Cluster: x.cluster, Service: x.service,
	})
	return x, nil
}

// cluster returns the ID of this cluster in its ClusterSet, or nothing.
func (x *flowExport) cluster(ctx context.Context) (id string) {
	t := x.observer.tables
	_ = ask(ctx, t.engine, func() {
		for _, set := range t.objects.sets.All() {
			id = cmp.Or(id, set.Value.Spec.ClusterID)
		}
	})
	return id
}

// service returns the address of a Service. The host of each Node reaches it.
func (x *flowExport) service(ctx context.Context, namespace, name string) (at netip.Addr, err error) {
	t := x.observer.tables
	if err := ask(ctx, t.engine, func() {
		f, _ := t.services.Services.Get(derive.Object{Namespace: namespace, Name: name})
		if len(f.VIPs) > 0 {
			at = f.VIPs[0]
		}
	}); err != nil {
		return at, err
	}
	if !at.IsValid() {
		return at, fmt.Errorf("there is no Service %s/%s with a cluster IP: create it, or correct "+
			"flowExporter.flowCollectorAddr", namespace, name)
	}
	return at, nil
}

// run sends records until ctx ends.
func (x *flowExport) run(ctx context.Context) error {
	if x == nil {
		return nil
	}
	if x.observer.config.Connections != "off" {
		defer x.observer.observe()()
	}
	return x.Run(ctx)
}

// add has the records of events sent that this Node speaks for. So each connection comes from one Node of the cluster.
func (x *flowExport) add(events []record.Event) {
	if x == nil {
		return
	}
	var flows []ipfix.Flow
	for _, e := range events {
		if e.Drop == nil && e.Record() != nil && !speaksFor(e.Record()) {
			continue
		}
		if f, ok := ipfix.FlowOf(e); ok {
			flows = append(flows, f)
		}
	}
	x.Add(flows...)
}

// problems reports that the collector gets no records.
func (x *flowExport) problems(node string) []problem.Problem {
	if x == nil || x.Failed() == "" {
		return nil
	}
	return []problem.Problem{{
		Object: problem.Object{Kind: "Node", Name: node}, Reason: "FlowCollectorUnreachable",
		Message: fmt.Sprintf("flow records do not reach the collector of flowExporter.flowCollectorAddr %s: %s",
			x.Collector, x.Failed()),
	}}
}

var exportDesc = prometheus.NewDesc("tombolo_flow_records_total",
	"Flow records for the collector, by what became of them: sent, or dropped since the collector was away or slow.",
	[]string{"result"}, nil)

// Describe implements prometheus.Collector.
func (x *flowExport) Describe(to chan<- *prometheus.Desc) { to <- exportDesc }

// Collect implements prometheus.Collector.
func (x *flowExport) Collect(to chan<- prometheus.Metric) {
	if x == nil {
		return
	}
	c := x.Counts()
	for result, n := range map[string]uint64{"sent": c.Sent, "dropped": c.Dropped} {
		to <- prometheus.MustNewConstMetric(exportDesc, prometheus.CounterValue, float64(n), result)
	}
}
