// Package metricstest reads collectors in tests.
package metricstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Series returns the gauges of a collector as "name{label="value"} 1", without a prefix of their names, in order. The
// collector has to keep the rules of promlint, and may only send what it describes.
func Series(t testing.TB, prefix string, c prometheus.Collector) []string {
	t.Helper()
	if faults, err := testutil.CollectAndLint(c); err != nil || len(faults) > 0 {
		t.Errorf("promlint: %v, %v", faults, err)
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := strings.TrimPrefix(f.GetName(), prefix)
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			out = append(out, fmt.Sprintf("%s %.10g", name, m.GetGauge().GetValue()))
		}
	}
	slices.Sort(out)
	return out
}
