package benchmark

import (
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
}, Warnings: []string{"east/a > west/b (other cluster): the spread is above 10 %: p99.9 25 %"}}

func figures(ratio, spread float64) []benchmark.Figure {
	out := []benchmark.Figure{{Name: "1 stream", Unit: "bit/s", Median: 3e9 * ratio, Spread: .02},
		{Name: "8 streams", Unit: "bit/s", Median: 1.6e9 * ratio, Spread: .03, Limited: ratio == 1},
		{Name: "p50", Unit: "s", Median: 1e-4}, {Name: "p99", Unit: "s", Median: 2e-4},
		{Name: "p99.9", Unit: "s", Median: 3e-3, Spread: spread}, {Name: "connections", Unit: "1/s", Median: 4321}}
	for i := range out {
		if ratio < 1 {
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

func TestFlags(t *testing.T) {
	for words, want := range map[string]string{
		"--rate fast":     "--rate fast is no number of bits a second",
		"--rate 10":       "--rate 10 is too little: expected 1M or more",
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

// TestLoadPlan writes the error of a client for its Pod's status, too.
func TestLoadPlan(t *testing.T) {
	to := filepath.Join(t.TempDir(), "log")
	for plan, want := range map[string]string{
		`{"rounds": 1, "targets": [{"address": "127.0.0.1:1", "name": "far"}]}`: "far at 127.0.0.1:1 does not answer: ",
		`{"rounds": 1}`: "[]",
	} {
		root := cli.Root("tombolo", "")
		root.AddCommand(Load())
		_, _, code := clitest.Run(t, root, "load", plan, "--to", to)
		text, err := os.ReadFile(to)
		if err != nil || !strings.Contains(string(text), want) || (code == 0) != (want == "[]") {
			t.Errorf("%s: code %d, %s, %v", plan, code, text, err)
		}
	}
}
