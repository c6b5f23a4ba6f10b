package benchmark

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/benchmark/plan"
)

func TestFigure(t *testing.T) {
	for _, row := range []struct {
		values []float64
		want   Figure
	}{
		{[]float64{5, 1, 3, 2, 4}, Figure{Median: 3, Least: 1, Most: 5, Spread: 4. / 3}},
		{[]float64{4, 2}, Figure{Median: 3, Least: 2, Most: 4, Spread: 2. / 3}},
		{[]float64{7}, Figure{Median: 7, Least: 7, Most: 7}},
		{[]float64{0, 0, 0}, Figure{}},
	} {
		if have := figureOf(row.values); have != row.want {
			t.Errorf("%v: %+v, want %+v", row.values, have, row.want)
		}
	}
}

// rounds returns rounds whose figures are all a factor of the first.
func rounds(factors ...float64) (out []plan.Round) {
	for _, f := range factors {
		out = append(out, plan.Round{plan.Stream: 5e8 * f, plan.Streams: 6e8 * f, plan.P50: 1e-4 * f, plan.P99: 2e-4 * f,
			plan.P999: 3e-4 * f, plan.Connections: 1000 * f, plan.RoundTrips: 2000})
	}
	return out
}

func TestWarnings(t *testing.T) {
	o := Options{Rate: 1e9, Connections: 5000}
	few := rounds(1, 1, 1)
	few[1][plan.RoundTrips] = 300
	for _, row := range []struct {
		name    string
		rounds  []plan.Round
		options Options
		want    []string
	}{
		{"quiet", rounds(1, 1.05, 1), o, nil},
		{"a spread above 10 %", rounds(1, 1.2, 1), o,
			[]string{"the spread is above 10 %: 1 stream 20 %, 8 streams 20 %, p50"}},
		{"the limits", rounds(1, 1, 1), Options{Rate: 6.1e8, Connections: 1000},
			[]string{"the limit of the run is reached: 8 streams, connections"}},
		{"few round trips", few, o, []string{"p99.9 is of 300 round trips"}},
	} {
		_, have := rowOf(Row{From: "east/a", To: "west/b", Way: OtherCluster}, plan.Measured{Rounds: row.rounds}, row.options)
		if len(have) != len(row.want) {
			t.Errorf("%s: %q, want %q", row.name, have, row.want)
			continue
		}
		for i, want := range row.want {
			if !strings.HasPrefix(have[i], "east/a > west/b (other cluster): "+want) {
				t.Errorf("%s: %q, want %q", row.name, have[i], want)
			}
		}
	}
}

// TestCompare holds which reference each row has.
func TestCompare(t *testing.T) {
	row := func(from, to, way string, factor float64) Row {
		m := plan.Measured{Rounds: rounds(factor)}
		if factor == 0 {
			m = plan.Measured{Fault: "silent"}
		}
		r, _ := rowOf(Row{From: from, To: to, Way: way}, m, Options{Rate: 4e9, Connections: 1e6})
		return r
	}
	pods := []Row{row("e/1", "e/1", SameNode, 2), row("e/1", "e/2", OtherNode, 1), row("e/1", "w/2", OtherCluster, .5),
		row("w/1", "w/1", SameNode, 4), row("w/1", "e/2", OtherCluster, 1)}
	hosts := []Row{row("e/1", "e/2", HostsNode, 1), row("e/1", "w/2", HostsCluster, 1)}
	for _, c := range []struct {
		name string
		rows []Row
		want string
	}{
		{"without hosts", pods, " 0.00, same Node 0.50, same Node 0.25,  0.00, same Node 0.25"},
		{"with hosts", slices.Concat(pods, hosts), " 0.00, hosts, other Node 1.00, hosts, other cluster 0.50,  0.00, " +
			"same Node 0.25,  0.00,  0.00"},
		{"with a limit", []Row{row("e/1", "e/1", SameNode, 8), row("e/1", "e/2", OtherNode, 1),
			row("w/1", "w/1", SameNode, 1), row("w/1", "w/2", OtherNode, 8)}, " 0.00, same Node 0.00,  0.00, same Node 0.00"},
		{"with a silent way", []Row{row("e/1", "e/1", SameNode, 2), row("e/1", "e/2", OtherNode, 1),
			row("e/1", "e/2", HostsNode, 0), row("e/1", "w/1", OtherCluster, 0)}, " 0.00, same Node 0.50,  -,  -"},
	} {
		rows := slices.Clone(c.rows)
		for i := range rows {
			rows[i].Figures = slices.Clone(rows[i].Figures)
		}
		compare(rows)
		var have []string
		for _, r := range rows {
			if len(r.Figures) == 0 {
				have = append(have, r.Reference+" -")
				continue
			}
			have = append(have, fmt.Sprintf("%s %.2f", r.Reference, r.Figures[0].Ratio))
		}
		if text := strings.Join(have, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	node := func(name string, change func(*corev1.Node)) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		if change != nil {
			change(&n)
		}
		return n
	}
	nodes := []corev1.Node{
		node("a-gateway", func(n *corev1.Node) { n.Annotations = map[string]string{multicluster.AnnotationGateway: "true"} }),
		node("b-down", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }),
		node("c-refused", func(n *corev1.Node) { n.Labels = map[string]string{LabelRefused: ""} }),
		node("d-cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		node("e-tainted", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
		}),
		node("f", nil), node("g", nil),
	}
	for _, row := range []struct {
		only []string
		want string
	}{
		{nil, "f g a-gateway"}, {[]string{"g", "a-gateway", "other"}, "g a-gateway"},
		{[]string{"c-refused", "b-down"},
			"no Node is usable: b-down is not Ready, c-refused has the label tombolo.io/no-benchmark"},
		{[]string{"other"}, "no Node is usable: --node names none of them"},
	} {
		chosen, err := choose(nodes, row.only)
		var names []string
		for _, n := range chosen {
			names = append(names, n.Name)
		}
		have := strings.Join(names, " ")
		if err != nil {
			have = err.Error()
		}
		if have != row.want {
			t.Errorf("%v: %s, want %s", row.only, have, row.want)
		}
	}
}
