package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// gathered are the series of the metrics of packets: "default/web ingress 0: 5".
func gathered(t *testing.T, m prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if !strings.HasSuffix(f.GetName(), "packets_total") {
			continue
		}
		fragments := strings.Contains(f.GetName(), "fragments")
		for _, metric := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range metric.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			if fragments && metric.GetCounter().GetValue() == 0 {
				continue
			}
			if fragments {
				label["rule"] = "fragments"
			}
			out = append(out,
				strings.TrimSpace(fmt.Sprintf("%s/%s %s %s: %v", label["namespace"], label["policy"], label["direction"],
					label["rule"], metric.GetCounter().GetValue())))
		}
	}
	slices.Sort(out)
	return out
}

// TestRuleSeries reads counters that grow, start again and disappear, for more rules than there are series.
func TestRuleSeries(t *testing.T) {
	rule := func(name string, index int, namespace string) policy.RuleKey {
		return policy.RuleKey{Policy: policy.Key{Kind: policy.NetworkPolicy, Namespace: "default", Name: name}, Index: index,
			For: namespace}
	}
	var (
		now    ruleCounts
		failed error
	)
	m := newRuleMetrics(func(context.Context) (ruleCounts, error) { return now, failed }, 2, slog.New(slog.DiscardHandler))
	for _, row := range []struct {
		name   string
		counts map[policy.RuleKey]uint64
		denied uint64
		parts  map[string]uint64 // by the owner of a flow that ends fragments
		err    error
		want   []string
	}{
		{
			name:   "first of more than there are series for",
			counts: map[policy.RuleKey]uint64{rule("b", 0, ""): 5, rule("b", 1, ""): 1, rule("c", 0, ""): 7}, denied: 2,
			want: []string{"/ egress : 0", "/ ingress : 2", "/ ingress other: 7", "default/b ingress 0: 5",
				"default/b ingress 1: 1"},
		},
		{
			name: "one comes that is earlier by name",
			counts: map[policy.RuleKey]uint64{rule("a", 0, ""): 1, rule("b", 0, ""): 6, rule("b", 1, ""): 1,
				rule("c", 0, ""): 7}, denied: 2,
			want: []string{"/ egress : 0", "/ ingress : 2", "/ ingress other: 8", "default/b ingress 0: 6",
				"default/b ingress 1: 1"},
		},
		{
			name: "the switch does not answer", err: errors.New("no switch"),
			want: []string{"/ egress : 0", "/ ingress : 2", "/ ingress other: 8", "default/b ingress 0: 6",
				"default/b ingress 1: 1"},
		},
		{
			name: "the switch starts anew", counts: map[policy.RuleKey]uint64{rule("a", 0, ""): 0, rule("b", 0, ""): 2,
				rule("b", 1, ""): 0, rule("c", 0, ""): 1}, denied: 1,
			want: []string{"/ egress : 0", "/ ingress : 3", "/ ingress other: 9", "default/b ingress 0: 8",
				"default/b ingress 1: 1"},
		},
		{
			name:   "one goes and the place is taken, by the sum over Namespaces",
			counts: map[policy.RuleKey]uint64{rule("b", 0, ""): 2, rule("c", 0, "x"): 3, rule("c", 0, "y"): 4}, denied: 1,
			want: []string{"/ egress : 0", "/ ingress : 3", "/ ingress other: 9", "default/b ingress 0: 8",
				"default/c ingress 0: 7"},
		},
		{
			name: "fragments end, by two flows", parts: map[string]uint64{"a": 3, "b": 2},
			want: []string{"/ egress : 0", "/ ingress : 3", "/ ingress fragments: 5", "/ ingress other: 9"},
		},
		{
			name: "one of these flows goes, the other counts", parts: map[string]uint64{"b": 6},
			want: []string{"/ egress : 0", "/ ingress : 3", "/ ingress fragments: 9", "/ ingress other: 9"},
		},
	} {
		now, failed = ruleCounts{rules: map[policy.RuleKey]api.Counters{},
			denied: map[policy.Direction]api.Counters{policy.Ingress: {Packets: row.denied}}}, row.err
		now.fragments = map[fragmentFlow]api.Counters{}
		for owner, n := range row.parts {
			now.fragments[fragmentFlow{flow.Owner{Name: owner}, datapath.IngressRule}] = api.Counters{Packets: n}
		}
		for k, n := range row.counts {
			now.rules[k] = api.Counters{Packets: n, Bytes: 54 * n}
		}
		if diff := cmp.Diff(row.want, gathered(t, m)); diff != "" {
			t.Errorf("%s (-want +have):\n%s", row.name, diff)
		}
	}
}

// TestRuleMetrics counts connections on a real switch.
func TestRuleMetrics(t *testing.T) {
	a := newAsked(t)
	m := newRuleMetrics(a.agent.answers.policies.countRules, maxRuleSeries, slog.New(slog.DiscardHandler))
	a.send(a.web, a.db.IPs[0].Addr(), 5432)
	a.send(a.web, a.db.IPs[0].Addr(), 80)
	a.ovs.Eventually("the switch's counters", func() error {
		have := gathered(t, m)
		for _, want := range []string{"default/db ingress 0: 1", "default/web egress 0: 2", "/ ingress : 1", "/ egress : 0"} {
			if !slices.Contains(have, want) {
				return fmt.Errorf("no %q in %q", want, have)
			}
		}
		return nil
	})
}

// TestRuleScrapesAtOnce runs several scrapes while a counter grows. Each increase is added once.
func TestRuleScrapesAtOnce(t *testing.T) {
	var n atomic.Uint64
	k := policy.RuleKey{Policy: policy.Key{Namespace: "default", Name: "web"}}
	m := newRuleMetrics(func(context.Context) (ruleCounts, error) {
		c := api.Counters{Packets: n.Add(1)}
		runtime.Gosched() // so that the other goroutines read m
		return ruleCounts{rules: map[policy.RuleKey]api.Counters{k: c}}, nil
	}, 1, slog.New(slog.DiscardHandler))
	var scrapes sync.WaitGroup
	for range 8 {
		scrapes.Go(func() {
			for range 50 {
				gathered(t, m)
			}
		})
	}
	scrapes.Wait()
	if have, want := gathered(t, m), fmt.Sprint("default/web ingress 0: ", n.Load()); !slices.Contains(have, want) {
		t.Errorf("have %q, want %q", have, want)
	}
}

// TestFlowSeries has series for the Namespaces with the most flows, and one for all others.
func TestFlowSeries(t *testing.T) {
	m := &flowMetrics{func(context.Context) (map[string]int, error) {
		return map[string]int{"": 3, "shop": 70, "other": 9, "a": 1, "b": 1}, nil
	}, 3, slog.New(slog.DiscardHandler)}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]float64{}
	for _, metric := range families[0].GetMetric() {
		have[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
	}
	if diff := cmp.Diff(map[string]float64{"": 3, "shop": 70, "other": 9, "(other)": 2}, have); diff != "" {
		t.Errorf("flows by Namespace (-want +have):\n%s", diff)
	}
}
