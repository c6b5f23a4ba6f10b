package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/observe/metrics/metricstest"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// sends is a collector of one metric.
type sends struct {
	desc *prometheus.Desc
	send func(chan<- prometheus.Metric, *prometheus.Desc)
}

func (s sends) Describe(to chan<- *prometheus.Desc) { to <- s.desc }
func (s sends) Collect(to chan<- prometheus.Metric) { s.send(to, s.desc) }

// TestStates bounds labels. Names that Prometheus has to escape, that are no text, and that are equal to the label of
// all others break no scrape.
func TestStates(t *testing.T) {
	counts := map[string]int{"X": 2, strings.Repeat("long", 100): 3, "other": 4, "a\"b\nc\\": 1, "\xff": 5}
	states, times := map[string]string{"other": "gone"}, map[string]time.Time{}
	for i := range MaxPeers + 5 {
		id := fmt.Sprintf("c%05d", i)
		states[id], times[id] = "announced", time.Unix(int64(5000-i), 5e8)
	}
	for _, row := range []struct {
		name   string
		labels []string
		send   func(chan<- prometheus.Metric, *prometheus.Desc)
		want   []string // at the end
		n      int
	}{
		{"counts", []string{"reason"}, func(to chan<- prometheus.Metric, d *prometheus.Desc) { Counts(to, d, counts) },
			[]string{`x{reason="X"} 2`, `x{reason="a\"b\nc\\"} 1`, `x{reason="other"} 7`, `x{reason="�"} 5`}, 4},
		{"states", []string{"peer", "state"}, func(to chan<- prometheus.Metric, d *prometheus.Desc) { States(to, d, states) },
			[]string{`x{peer="other",state="announced"} 5`, `x{peer="other",state="gone"} 1`}, MaxPeers + 2},
		{"times", []string{"peer"}, func(to chan<- prometheus.Metric, d *prometheus.Desc) { Times(to, d, times) },
			[]string{`x{peer="c00999"} 4001.5`, `x{peer="other"} 3996.5`}, MaxPeers + 1},
	} {
		have := metricstest.Series(t, "", sends{prometheus.NewDesc("x", "Help.", row.labels, nil), row.send})
		if len(have) != row.n {
			t.Errorf("%s: %d series, want %d", row.name, len(have), row.n)
			continue
		}
		if diff := cmp.Diff(row.want, have[len(have)-len(row.want):]); diff != "" {
			t.Errorf("%s: -want +have:\n%s", row.name, diff)
		}
	}
	if diff := cmp.Diff(map[string]int{"other": 1}, ByReason(nil, []problem.Problem{{}})); diff != "" {
		t.Error(diff)
	}
}
