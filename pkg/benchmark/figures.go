package benchmark

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/benchmark/plan"
)

// Figures that a row has. The unit is of the value.
var kinds = []struct {
	name, unit string
	index      int
	limited    bool // by Options.Rate
}{
	{"1 stream", "bit/s", plan.Stream, true},
	{fmt.Sprintf("%d streams", plan.Parallel), "bit/s", plan.Streams, true},
	{"p50", "s", plan.P50, false},
	{"p99", "s", plan.P99, false},
	{"p99.9", "s", plan.P999, false},
	{"connections", "1/s", plan.Connections, false},
}

// Names returns the names of the figures that a row has, in order.
func Names() (out []string) {
	for _, k := range kinds {
		out = append(out, k.name)
	}
	return out
}

// Ways of rows.
const (
	SameNode     = "same Node"
	OtherNode    = "other Node"
	OtherCluster = "other cluster"
	HostsNode    = "hosts, other Node"
	HostsCluster = "hosts, other cluster"
)

// Row has the figures of one way.
type Row struct {
	From string `json:"from"` // cluster/node
	To   string `json:"to"`
	Way  string `json:"way"`
	// Reference is the way that the ratios are to: of the same client; empty without one.
	Reference string `json:"reference,omitempty"`
	// Figures are missing if the way does not answer. A warning of the report says why.
	Figures []Figure `json:"figures,omitempty"`
}

// Figure is one measured value.
type Figure struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	// Spread is the difference of most and least, as a part of the median.
	Spread float64 `json:"spread"`
	// Ratio is the median divided by the reference's median. It is 0 without a reference, or if either of the two is
	// limited.
	Ratio float64 `json:"ratio,omitempty"`
	// Limited is set if the limit of the run was reached: the way carries more.
	Limited bool `json:"limited,omitempty"`
}

// limitReached is the part of a limit from which a figure counts as limited.
const limitReached = .95

// leastRoundTrips is how many round trips p99.9 needs.
const leastRoundTrips = 1000

// manySpread is the spread from which figures are warned about.
const manySpread = .10

// rowOf makes a row of the rounds of a target. It returns warnings, too.
func rowOf(row Row, m plan.Measured, o Options) (Row, []string) {
	var warnings []string
	warn := func(format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf("%s > %s (%s): ", row.From, row.To, row.Way)+fmt.Sprintf(format, args...))
	}
	if m.Fault != "" {
		warn("not measured: %s", m.Fault)
		return row, warnings
	}
	rounds := m.Rounds
	var wide, limited []string
	for _, k := range kinds {
		var values []float64
		for _, r := range rounds {
			values = append(values, r[k.index])
		}
		f := figureOf(values)
		f.Name, f.Unit = k.name, k.unit
		f.Limited = k.limited && f.Median >= limitReached*float64(o.Rate) ||
			k.index == plan.Connections && f.Median >= limitReached*float64(o.Connections)
		if f.Limited {
			limited = append(limited, k.name)
		} else if f.Spread > manySpread {
			wide = append(wide, fmt.Sprintf("%s %.0f %%", k.name, 100*f.Spread))
		}
		row.Figures = append(row.Figures, f)
	}
	if len(wide) > 0 {
		warn("the spread is above %.0f %%: %s", 100*manySpread, strings.Join(wide, ", "))
	}
	if len(limited) > 0 {
		warn("the limit of the run is reached: %s; --rate and --connections raise it", strings.Join(limited, ", "))
	}
	n := slices.MinFunc(rounds, func(a, b plan.Round) int {
		return cmp.Compare(a[plan.RoundTrips], b[plan.RoundTrips])
	})[plan.RoundTrips]
	if n < leastRoundTrips {
		warn("p99.9 is of %.0f round trips in a round, and needs %d: raise --time", n, leastRoundTrips)
	}
	return row, warnings
}

// figureOf returns the median of values, and how far they differ.
func figureOf(values []float64) Figure {
	sorted := slices.Sorted(slices.Values(values))
	f := Figure{Median: sorted[len(sorted)/2], Least: sorted[0], Most: sorted[len(sorted)-1]}
	if len(sorted)%2 == 0 {
		f.Median = (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
	}
	if f.Median > 0 {
		f.Spread = (f.Most - f.Least) / f.Median
	}
	return f
}

// compare sets the ratios of rows. The reference of a row between Pods is the row between their hosts, if that was
// measured. Otherwise it is the row within the client's own Node.
func compare(rows []Row) {
	find := func(of Row, way string) *Row {
		i := slices.IndexFunc(rows, func(r Row) bool {
			return r.From == of.From && r.Way == way && len(r.Figures) > 0 && (way == SameNode || r.To == of.To)
		})
		if i < 0 {
			return nil
		}
		return &rows[i]
	}
	hosts := map[string]string{OtherNode: HostsNode, OtherCluster: HostsCluster}
	for i := range rows {
		r := &rows[i]
		if hosts[r.Way] == "" || len(r.Figures) == 0 {
			continue
		}
		to := cmp.Or(find(*r, hosts[r.Way]), find(*r, SameNode))
		if to == nil {
			continue
		}
		r.Reference = to.Way
		for j := range r.Figures {
			f, base := &r.Figures[j], to.Figures[j]
			if base.Median > 0 && !f.Limited && !base.Limited { // a limit is no property of a way
				f.Ratio = f.Median / base.Median
			}
		}
	}
}
