package diagnose

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
)

// awayFile returns a kubeconfig file of a cluster whose API server is away.
func awayFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "away")
	const config = `{"apiVersion": "v1", "kind": "Config", "current-context": "x", ` +
		`"contexts": [{"name": "x", "context": {"cluster": "x"}}], "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestDiagnose asks about a cluster whose API server is away.
func TestDiagnose(t *testing.T) {
	file := awayFile(t)
	run := func(args ...string) (stdout, stderr string, code int) {
		root := cli.Root("tombolo", "")
		root.AddCommand(Command())
		return clitest.Run(t, root, append([]string{"diagnose"}, args...)...)
	}
	stdout, stderr, code := run("--context", file)
	for _, want := range []string{"fail     TD001  API server: away: the API server does not answer: ",
		"connection refused",
		"remedy: ", "unknown  TD022  member and leader: away: its API server does not answer\n", "1 failed, "} {
		if code != 1 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("code %d, stderr %q, %q is not in\n%s", code, stderr, want, stdout)
		}
	}
	stdout, stderr, code = run("--context", file, "-o", "json")
	var r report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 1 || stderr != "" || r.Passed || r.Failed != 1 ||
		r.Unknown < 20 || r.Clusters[0] != "away" || r.Results[0].Code != "TD001" || r.Results[0].Remedy == "" {
		t.Errorf("code %d, stderr %q, %v: %s", code, stderr, err, stdout)
	}
	for words, want := range map[string]string{
		"-o xml":          "want table, wide, json, yaml, name or jsonpath=TEMPLATE",
		"--context north": "north is neither a context of the kubeconfig nor a kubeconfig file",
	} {
		if _, stderr, code := run(strings.Fields(words)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, %s", words, code, stderr)
		}
	}
}
