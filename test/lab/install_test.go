package lab

import (
	"strings"
	"testing"
)

// TestSettings edits the shipped manifest: each setting has exactly one line there.
func TestSettings(t *testing.T) {
	repo, err := Repo()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(record{Config: Config{Name: "x", Clusters: []string{"north", "east"}, Nodes: 1}, Binaries: binaries{Repo: repo}}, nil)
	shipped, err := l.manifest(agentManifest)
	if err != nil {
		t.Fatal(err)
	}
	edited, err := l.Cluster("east").settings(shipped)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n    kubeAPIServerOverride: https://172.30.1.10:6443\n",
		"\n    transportInterface: eth1\n",
		"\n    ovsDatapathType: netdev\n",
	} {
		if !strings.Contains(edited, want) {
			t.Errorf("the edited manifest lacks %q", want)
		}
	}
	if a, b := strings.Count(shipped, "\n"), strings.Count(edited, "\n"); a != b {
		t.Errorf("the manifest had %d lines and has %d", a, b)
	}
}
