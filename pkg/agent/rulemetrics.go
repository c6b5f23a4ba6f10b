package agent

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// maxRuleSeries is how many rules have series of their own in each metric. docs/policy-status.md documents it.
const maxRuleSeries = 500

// ruleMetrics collects the switch's counters for rules. A rule keeps its series as long as it applies to Pods of this
// Node. If all series are in use, further rules are summed by direction under the rule "other".
type ruleMetrics struct {
	read func(context.Context) (ruleCounts, error)
	max  int
	log  *slog.Logger

	mu     sync.Mutex
	last   map[policy.RuleKey]api.Counters // that were read
	series map[ruleSeries]*api.Counters    // sums of all additions
	denied map[policy.Direction]*grown
	ended  map[policy.Direction]float64  // fragments
	frags  map[fragmentFlow]api.Counters // that were read last
}

// ruleSeries are the labels of a rule. For rules without a series of their own only the direction is set.
type ruleSeries struct {
	policy    policy.Key
	direction policy.Direction
	index     int
	other     bool
}

// grown is a counter that starts again when the switch's counter does.
type grown struct{ last, sum api.Counters }

// ruleReadTime bounds how long a scrape waits for the switch.
const ruleReadTime = 2 * time.Second

var (
	ruleLabels  = []string{"kind", "namespace", "policy", "direction", "rule"}
	rulePackets = prometheus.NewDesc("tombolo_policy_rule_packets_total",
		"Packets that a rule judged: those that open connections.", ruleLabels, nil)
	ruleBytes = prometheus.NewDesc("tombolo_policy_rule_bytes_total", "Bytes of the packets that a rule judged.",
		ruleLabels, nil)
	isolatedDenied = prometheus.NewDesc("tombolo_policy_isolation_dropped_packets_total",
		"Packets of isolated Pods that no rule allowed.", []string{"direction"}, nil)
	fragmentsEnded = prometheus.NewDesc("tombolo_policy_fragments_dropped_packets_total",
		"Fragments that were dropped since a rule with ports would have had to judge them.", []string{"direction"}, nil)
)

// maxFlowSeries is how many Namespaces have series of their own in tombolo_policy_flows. docs/policy-status.md has it.
const maxFlowSeries = 100

// otherFlows is the label of the Namespaces without series of their own. No Namespace can have this name.
const otherFlows = "(other)"

var policyFlows = prometheus.NewDesc("tombolo_policy_flows",
	"Flows that the rules of a Namespace's policies have on the Node.",
	[]string{"namespace"}, nil)

// flowMetrics collects the number of flows of policies by Namespace. The Namespaces with the most flows have series of
// their own. All others share one series. For policies without a Namespace, the label is empty.
type flowMetrics struct {
	read func(context.Context) (map[string]int, error)
	max  int
	log  *slog.Logger
}

// Describe implements prometheus.Collector.
func (m *flowMetrics) Describe(to chan<- *prometheus.Desc) { to <- policyFlows }

// Collect implements prometheus.Collector.
func (m *flowMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), ruleReadTime)
	defer cancel()
	flows, err := m.read(ctx)
	if err != nil {
		m.log.Debug("the flows of policies are not counted for this scrape", "error", err)
		return
	}
	names := slices.SortedFunc(maps.Keys(flows), func(a, b string) int {
		return cmp.Or(cmp.Compare(flows[b], flows[a]), cmp.Compare(a, b))
	})
	other := 0
	for i, name := range names {
		if i >= m.max {
			other += flows[name]
			continue
		}
		to <- prometheus.MustNewConstMetric(policyFlows, prometheus.GaugeValue, float64(flows[name]), name)
	}
	if other > 0 {
		to <- prometheus.MustNewConstMetric(policyFlows, prometheus.GaugeValue, float64(other), otherFlows)
	}
}

func newRuleMetrics(read func(context.Context) (ruleCounts, error), limit int, log *slog.Logger) *ruleMetrics {
	return &ruleMetrics{
		read: read, max: limit, log: log, last: map[policy.RuleKey]api.Counters{}, series: map[ruleSeries]*api.Counters{},
		denied: map[policy.Direction]*grown{policy.Ingress: {}, policy.Egress: {}}, ended: map[policy.Direction]float64{},
	}
}

// Describe implements prometheus.Collector.
func (m *ruleMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- rulePackets
	to <- ruleBytes
	to <- isolatedDenied
	to <- fragmentsEnded
}

// Collect implements prometheus.Collector. While the switch does not answer, counters stay.
func (m *ruleMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), ruleReadTime)
	defer cancel()
	m.mu.Lock() // covers the reading: an older reading is never added after a newer one
	counts, err := m.read(ctx)
	if err != nil {
		m.log.Debug("the counters of rules are not read for this scrape", "error", err)
	} else {
		m.add(counts)
	}
	var out []prometheus.Metric // handed over without the lock: a scrape may be slow
	for s, c := range m.series {
		labels := []string{s.policy.Kind.String(), s.policy.Namespace, s.policy.Name, s.direction.String(),
			strconv.Itoa(s.index)}
		if s.other {
			labels = []string{"", "", "", s.direction.String(), "other"}
		}
		out = append(out, prometheus.MustNewConstMetric(rulePackets, prometheus.CounterValue, float64(c.Packets), labels...),
			prometheus.MustNewConstMetric(ruleBytes, prometheus.CounterValue, float64(c.Bytes), labels...))
	}
	for d, g := range m.denied {
		out = append(out, prometheus.MustNewConstMetric(isolatedDenied, prometheus.CounterValue, float64(g.sum.Packets),
			d.String()),
			prometheus.MustNewConstMetric(fragmentsEnded, prometheus.CounterValue, m.ended[d], d.String()))
	}
	m.mu.Unlock()
	for _, metric := range out {
		to <- metric
	}
}

// add adds the increase of the switch's counters since the last reading. The caller holds m.mu.
func (m *ruleMetrics) add(counts ruleCounts) {
	there := map[ruleSeries]bool{}
	for k := range counts.rules {
		there[seriesOf(k)] = true
	}
	own := 0
	for s := range m.series {
		if !s.other && !there[s] {
			delete(m.series, s)
		} else if !s.other {
			own++
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(counts.rules), policy.RuleKey.Compare) {
		s := seriesOf(k)
		if m.series[s] == nil && own >= m.max {
			s = ruleSeries{direction: k.Direction, other: true}
		} else if m.series[s] == nil {
			own++
		}
		if m.series[s] == nil {
			m.series[s] = &api.Counters{}
		}
		m.series[s].Add(since(m.last[k], counts.rules[k]))
	}
	m.last = counts.rules
	for d, g := range m.denied {
		g.sum.Add(since(g.last, counts.denied[d]))
		g.last = counts.denied[d]
	}
	for f, count := range counts.fragments {
		m.ended[datapath.RuleTables[f.table]] += float64(since(m.frags[f], count).Packets)
	}
	m.frags = counts.fragments
}

// seriesOf has one series for a rule that is one for each Namespace.
func seriesOf(k policy.RuleKey) ruleSeries {
	return ruleSeries{policy: k.Policy, direction: k.Direction, index: k.Index}
}

// since returns the growth of a counter. A counter that has shrunk belongs to a new flow or a new ovs-vswitchd, so its
// whole value is the growth.
func since(before, now api.Counters) api.Counters {
	if cmp.Or(cmp.Compare(now.Packets, before.Packets), cmp.Compare(now.Bytes, before.Bytes)) < 0 {
		return now
	}
	return api.Counters{Packets: now.Packets - before.Packets, Bytes: now.Bytes - before.Bytes,
		Connections: now.Connections - before.Connections}
}
