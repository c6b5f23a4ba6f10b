package main

import (
	"os"
	"strings"
	"testing"
)

// TestDefinitions holds the manifests to the sequences in which the guides apply them: after each
// there are the definitions that the controllers in the cluster need.
func TestDefinitions(t *testing.T) {
	for _, sequence := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"a leader", []string{"antrea-multicluster-leader.yml"}, leaderCRDs},
		{"a leader, in two steps", []string{"antrea-multicluster-leader-global.yml", "antrea-multicluster-leader-namespaced.yml"}, leaderCRDs},
		{"a member", []string{"antrea-multicluster-member.yml"}, memberCRDs},
		{"a leader that becomes a member", []string{"antrea-multicluster-leader.yml", "antrea-multicluster-member.yml"}, both(leaderCRDs, memberCRDs)},
		{"v1.5: a member that becomes the leader", []string{"v1.5/antrea-multicluster-member.yml", "v1.5/antrea-multicluster-leader-namespaced.yml"}, both(leaderCRDs, memberCRDs)},
	} {
		var applied strings.Builder
		for _, file := range sequence.files {
			text, err := os.ReadFile("../" + file)
			if err != nil {
				t.Fatal(err)
			}
			applied.Write(text)
		}
		for _, plural := range sequence.want {
			if !strings.Contains(applied.String(), "\n    plural: "+plural+"\n") {
				t.Errorf("%s: no definition of %s", sequence.name, plural)
			}
		}
	}
}

// TestSideEffects lets the API server ask every webhook in a dry run too: none writes anything.
func TestSideEffects(t *testing.T) {
	for _, p := range []part{leader, leaderOf15, member} {
		text, err := p.text()
		if err != nil {
			t.Fatal(err)
		}
		hooks := strings.Count(text, "failurePolicy:")
		if none := strings.Count(text, "sideEffects: None\n"); hooks == 0 || none != hooks || strings.Count(text, "sideEffects:") != hooks {
			t.Errorf("%s in %s: %d of %d webhooks have no side effects", p.Role, p.Namespace, none, hooks)
		}
	}
}
