package benchmark

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/benchmark"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
)

// report is of one client.
var report = benchmark.Report{Clusters: []string{"east", "west"}, Rounds: 5, EachSeconds: 0.5, Rows: []benchmark.Row{
	{From: "east/a", To: "east/a", Way: benchmark.SameNode, Figures: figures(1, 0)},
	{From: "east/a", To: "west/b", Way: benchmark.OtherCluster, Reference: benchmark.SameNode, Figures: figures(.5, .25)},
	{From: "east/b", To: "west/b", Way: benchmark.OtherCluster},
}, Warnings: []string{"east/b > west/b (other cluster): not measured: far at 10.1.0.1:8080 does not answer",
	"east/a > west/b (other cluster): the spread is above 10 %: p99.9 25 %"}}

func figures(ratio, spread float64) []benchmark.Figure {
	out := []benchmark.Figure{{Name: "1 stream", Unit: "bit/s", Median: 3e9 * ratio, Spread: .02},
		{Name: "8 streams", Unit: "bit/s", Median: 1.6e9 * ratio, Spread: .03, Limited: ratio == 1},
		{Name: "p50", Unit: "s", Median: 1e-4}, {Name: "p99", Unit: "s", Median: 2e-4},
		{Name: "p99.9", Unit: "s", Median: 3e-3, Spread: spread}, {Name: "connections", Unit: "1/s", Median: 4321}}
	for i := range out {
		if ratio < 1 && i != 1 { // its reference is limited
			out[i].Ratio = ratio
		}
	}
	return out
}

func TestTable(t *testing.T) {
	for _, format := range []string{"table", "wide"} {
		want, err := os.ReadFile(filepath.Join("testdata", format+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		f := cli.Format{}
		if err := f.Set(format); err != nil {
			t.Fatal(err)
		}
		if err := write(&b, report, f); err != nil || b.String() != string(want) {
			t.Errorf("%v, %s is\n%swant\n%s", err, format, b.String(), string(want))
		}
	}
}

// TestPrint prints a report of a run that has failed, if it has rows.
func TestPrint(t *testing.T) {
	for _, row := range []struct {
		report benchmark.Report
		err    error
		want   string
	}{
		{report, nil, "3.00 Gb/s"}, {report, errors.New("clean-up"), "3.00 Gb/s"},
		{benchmark.Report{}, errors.New("no rights"), ""},
	} {
		var b strings.Builder
		o := options{}
		if err := o.print(&b, row.report, row.err); err != nil || !strings.Contains(b.String(), row.want) ||
			row.want == "" && b.Len() > 0 {
			t.Errorf("%v: %v\n%s", row.err, err, b.String())
		}
	}
}

func TestFlags(t *testing.T) {
	for words, want := range map[string]string{
		"--rate fast":     "--rate fast is no number of bits a second",
		"--rate 10":       "--rate 10 is too little: expected 1M or more",
		"--rate 9E30":     "--rate 9E30 is too much: expected 1T or less",
		"--rate 1001G":    "--rate 1001G is too much: expected 1T or less",
		"--connections 0": "--connections 0: expected 1 to 100000",
		"--time 0s":       "--time 0s: expected a time up to 1h0m0s",
		"--time 2h":       "--time 2h0m0s: expected a time up to 1h0m0s",
		"--host-port 80":  "--host-port 80: expected 1024 to 65535",
		"--wait -1s":      "--wait -1s: expected a time",
		"--namespace=":    "--namespace is empty",
		"east":            `unknown command "east"`,
		"--context north": "north is neither a context of the kubeconfig nor a kubeconfig file",
	} {
		root := cli.Root("tombolo", "")
		root.AddCommand(Command())
		_, stderr, code := clitest.Run(t, root, append([]string{"benchmark"}, strings.Fields(words)...)...)
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, %s, want %s", words, code, stderr, want)
		}
	}
}

// TestLoadPlan writes for the Pod's status why a server is not measured.
func TestLoadPlan(t *testing.T) {
	to := filepath.Join(t.TempDir(), "log")
	for plan, want := range map[string]string{
		`{"rounds": 1, "targets": [{"address": "127.0.0.1:1", "name": "far"}]}`: `[{"fault":"far at 127.0.0.1:1 does not `,
		`{"rounds": 1}`: "[]",
	} {
		root := cli.Root("tombolo", "")
		root.AddCommand(Load())
		_, _, code := clitest.Run(t, root, "load", plan, "--to", to)
		text, err := os.ReadFile(to)
		if err != nil || !strings.Contains(string(text), want) || code != 0 {
			t.Errorf("%s: code %d, %s, %v", plan, code, text, err)
		}
	}
}
