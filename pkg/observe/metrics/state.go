package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Bounds of labels. Further names share the label Other.
const (
	MaxPeers   = 1000 // clusters in a metric
	maxReasons = 100  // reasons in a metric
	maxLabel   = 256  // bytes
	// Other is the label of names beyond a bound.
	Other = "other"
)

// ByReason counts Problems by their reasons.
func ByReason(lists ...[]problem.Problem) map[string]int {
	out := map[string]int{}
	for _, p := range slices.Concat(lists...) {
		out[cmp.Or(p.Reason.String(), Other)]++
	}
	return out
}

// Counts sends a gauge for each word, which is a state or a reason.
func Counts(to chan<- prometheus.Metric, desc *prometheus.Desc, counts map[string]int) {
	sums := map[string]int{}
	label := labels(slices.Collect(maps.Keys(counts)), maxReasons)
	for word, n := range counts {
		sums[label(word)] += n
	}
	for word, n := range sums {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), word)
	}
}

// States sends a gauge of 1 for each cluster and its state. Clusters beyond the bound are counted by their state.
func States(to chan<- prometheus.Metric, desc *prometheus.Desc, states map[string]string) {
	type row struct{ peer, state string }
	sums := map[row]int{}
	label := labels(slices.Collect(maps.Keys(states)), MaxPeers)
	for peer, state := range states {
		sums[row{label(peer), state}]++
	}
	for r, n := range sums {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), r.peer, r.state)
	}
}

// Times sends a gauge of a time for each cluster, in seconds since 1970. Of the clusters beyond the bound it sends the
// oldest time.
func Times(to chan<- prometheus.Metric, desc *prometheus.Desc, times map[string]time.Time) {
	oldest := map[string]time.Time{}
	label := labels(slices.Collect(maps.Keys(times)), MaxPeers)
	for peer, at := range times {
		name := label(peer)
		if known, ok := oldest[name]; !ok || at.Before(known) {
			oldest[name] = at
		}
	}
	for peer, at := range oldest {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, Seconds(at), peer)
	}
}

// Seconds returns a time in seconds since 1970.
func Seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// labels returns the labels of names: the first names in their order keep theirs. Prometheus escapes them, and refuses
// only text that is not UTF-8.
func labels(names []string, most int) func(name string) string {
	slices.Sort(names)
	kept := map[string]string{}
	for _, name := range names[:min(len(names), most)] {
		if len(name) <= maxLabel {
			kept[name] = strings.ToValidUTF8(name, "\uFFFD")
		}
	}
	return func(name string) string { return cmp.Or(kept[name], Other) }
}
