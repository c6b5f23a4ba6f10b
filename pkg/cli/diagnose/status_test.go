package diagnose

import (
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
	"github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// TestStatus asks for the state and the versions of a cluster whose API server is away.
func TestStatus(t *testing.T) {
	file := awayFile(t)
	for _, row := range []struct {
		words, want string
		code        int
	}{
		{"status --context " + file, "away: the API server does not answer: ", 1},
		{"status --context " + file + " --wait 1ms -o json", `"ok": false`, 1},
		{"status --context north", "north is neither a context of the kubeconfig nor a kubeconfig file", 1},
		{"version --client", version.String() + "\n", 0},
		{"version --context " + file, "tombolo " + version.String() + "\nCLUSTER  KUBERNETES  AGENTS     NODES\n" +
			"away     no answer   no answer  0/0\n", 1},
		{"version --context north", "--client shows the version of this command alone", 1},
	} {
		root := cli.Root("tombolo", "")
		root.AddCommand(Status(), Version())
		stdout, stderr, code := clitest.Run(t, root, strings.Fields(row.words)...)
		if code != row.code || !strings.Contains(stdout+stderr, row.want) {
			t.Errorf("%s: code %d, %q, %q, want %d, %q", row.words, code, stdout, stderr, row.code, row.want)
		}
	}
}

// TestPrintStatus writes the states of two clusters.
func TestPrintStatus(t *testing.T) {
	var b strings.Builder
	if err := printStatus(&b, []diagnose.Summary{
		{Cluster: "north", OK: true, Kubernetes: "v1.36.3", Agents: map[string]int{"v0.1.0": 2},
			Nodes: diagnose.Ready{Ready: 2, All: 2}, Controllers: diagnose.Ready{Ready: 3, All: 3}, ClusterSet: "set", ID: "n",
			Leads: []string{"area"}, Ways: diagnose.Ready{Ready: 2, All: 2}},
		{Cluster: "e", Kubernetes: "v1.36.3", Agents: map[string]int{"v0.2.0": 1, "v0.1.0": 1},
			Nodes: diagnose.Ready{Ready: 1, All: 2}, Faults: []string{"Node a: x", "y"}},
	}, cli.Format{}); err != nil {
		t.Fatal(err)
	}
	const want = `CLUSTER  KUBERNETES  VERSION        NODES  CONTROLLERS  CLUSTERSET      WAYS  STATUS
north    v1.36.3     v0.1.0         2/2    3/3          set (n) leader  2/2   OK
e        v1.36.3     v0.1.0,v0.2.0  1/2    -            -               -     2 faults
e: Node a: x
e: y
`
	if b.String() != want {
		t.Errorf("have\n%s\nwant\n%s", b.String(), want)
	}
}
