package agent

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/ended"
	"github.com/tombolo-net/tombolo/pkg/observe/ipfix"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// flowExport sends the records of the observer to a collector.
type flowExport struct {
	*ipfix.Exporter
	observer     *observer
	active, idle time.Duration
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
	x := &flowExport{observer: o, active: c.FlowExporter.ActiveFlowExportTimeout,
		idle: c.FlowExporter.IdleFlowExportTimeout}
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
	var looking sync.WaitGroup
	defer looking.Wait()
	if x.observer.config.Connections != "off" {
		defer x.observer.observe()()
		looking.Go(func() { x.look(ctx) })
	}
	return x.Run(ctx)
}

// lookShare is the ratio of the pause after a list of connections to the time that the list took. So lists take at most
// 2 % of a core.
const lookShare = 50

// look lists the connections that live, at intervals, for records about them.
func (x *flowExport) look(ctx context.Context) {
	ends := x.observer.ends
	if ends.list == nil {
		return
	}
	pause, failed := x.active, ""
	for sleep(ctx, pause) == nil {
		began := time.Now()
		list, err := ends.list()
		pause = max(x.active, lookShare*time.Since(began))
		if err != nil {
			if failed == "" {
				x.Log.Warn("no flow records of connections that live", "error", err)
			}
			failed = err.Error()
			continue
		}
		failed = ""
		select {
		case <-ctx.Done():
		case ends.living <- list:
		}
	}
}

// exportLiving exports records of connections that have not ended. A connection with packets since its last record gets
// a record. A connection without packets gets one record after the idle timeout.
func (o *observer) exportLiving(ctx context.Context, list []ended.Connection, now time.Time) {
	var unnamed []ended.Connection
	for _, c := range list {
		if c.Client.Port() == 0 {
			continue // several may have one key
		}
		b := o.ends.births[keyOfEnd(c)]
		if b == nil {
			if len(unnamed) < endsBatch {
				unnamed = append(unnamed, c)
			}
			continue
		}
		for b.next != nil {
			b = b.next // the others have ended
		}
		if f, ok := b.grown(c, now, o.export.idle); ok && speaksFor(b.Record) {
			o.export.Add(f)
		}
	}
	if len(unnamed) == 0 {
		return
	}
	_ = ask(ctx, o.tables.engine, func() { // if it fails, the next list names them
		for _, c := range unnamed {
			if !o.tables.objects.networks.separate.knows(c.Zone, c.Client.Addr()) {
				continue
			}
			o.ends.keep(&birth{Record: o.namedLate(c, now), key: keyOfEnd(c), late: true,
				sent: c.Sent, received: c.Received, changed: now})
		}
	})
}

// grown makes a record of a connection that lives, if one is due.
func (b *birth) grown(c ended.Connection, now time.Time, idle time.Duration) (ipfix.Flow, bool) {
	reason := ipfix.Active
	switch {
	case c.Sent != b.sent || c.Received != b.received:
		b.idle, b.changed = false, now
	case !b.idle && now.Sub(b.changed) >= idle:
		b.idle, reason = true, ipfix.Idle
	default:
		return ipfix.Flow{}, false
	}
	out := *b.Record
	out.Time = now
	f := ipfix.Flow{Record: &out, EndReason: reason, Began: b.Time, Sent: record.Traffic(c.Sent),
		Received: record.Traffic(c.Received), SentDelta: deltaOf(c.Sent, b.sent),
		ReceivedDelta: deltaOf(c.Received, b.received)}
	if b.late && !c.Began.IsZero() {
		f.Began = c.Began
	}
	b.sent, b.received = c.Sent, c.Received
	return f, true
}

// deltaOf is what a direction has grown by.
func deltaOf(now, before ended.Counter) record.Traffic {
	return record.Traffic{Packets: now.Packets - min(before.Packets, now.Packets),
		Bytes: now.Bytes - min(before.Bytes, now.Bytes)}
}

// addEnd exports the record of an end. Its counters are the packets since the last record of the connection's birth b,
// which may be nil.
func (x *flowExport) addEnd(e record.Event, b *birth) {
	if x == nil || !speaksFor(e.End) {
		return
	}
	f, ok := ipfix.FlowOf(e)
	if !ok {
		return
	}
	if b != nil {
		f.SentDelta, f.ReceivedDelta = deltaOf(ended.Counter(f.Sent), b.sent), deltaOf(ended.Counter(f.Received), b.received)
	}
	x.Add(f)
}

// add exports the records of events for which this Node is responsible (speaksFor). So each connection is exported by
// one Node of the cluster.
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
		Object: problem.Object{Kind: "Node", Name: node}, Reason: reasonFlowCollectorUnreachable,
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
