package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestDefinitions holds the manifests to the sequences in which the guides apply them: after each
// there are the definitions that the controllers in the cluster need.
func TestDefinitions(t *testing.T) {
	t.Chdir("../..")
	for _, sequence := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"a cluster with agents", []string{"../agent/tombolo-crds.yml"}, []string{
			"antreanetworkpolicies", "clustergroups", "clusternetworkpolicies", "groups", "networkpolicies", "nodepolicyreports", "tiers",
		}},
		{"a leader", []string{"antrea-multicluster-leader.yml"}, leaderCRDs},
		{"a leader, in two steps", []string{"antrea-multicluster-leader-global.yml", "antrea-multicluster-leader-namespaced.yml"}, leaderCRDs},
		{"a member", []string{"antrea-multicluster-member.yml"}, memberCRDs},
		{"a leader that becomes a member", []string{"antrea-multicluster-leader.yml", "antrea-multicluster-member.yml"}, both(leaderCRDs, memberCRDs)},
		{"v1.5: a member that becomes the leader", []string{"v1.5/antrea-multicluster-member.yml", "v1.5/antrea-multicluster-leader-namespaced.yml"}, both(leaderCRDs, memberCRDs)},
	} {
		var applied strings.Builder
		for _, file := range sequence.files {
			text, err := os.ReadFile("deploy/multicluster/" + file)
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

// TestReadyz lets the controllers ask whether an API server that denies a kind is ready.
func TestReadyz(t *testing.T) {
	t.Chdir("../..")
	for _, p := range []part{leader, leaderOf15, member} {
		text, err := renderer{}.text(p)
		if err != nil {
			t.Fatal(err)
		}
		granted := map[string]bool{}
		var bound []string
		for documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
				Rules    []rbacv1.PolicyRule
				RoleRef  rbacv1.RoleRef
				Subjects []rbacv1.Subject
			}
			if err := documents.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				continue // rules of other kinds look otherwise
			}
			switch o.Kind {
			case "ClusterRole":
				for _, rule := range o.Rules {
					if slices.Contains(rule.NonResourceURLs, "/readyz") && slices.Equal(rule.Verbs, []string{"get"}) {
						granted[o.Metadata.Name] = true
					}
				}
			case "ClusterRoleBinding":
				if len(o.Subjects) == 1 && o.Subjects[0].Name == "antrea-mc-controller" {
					bound = append(bound, o.RoleRef.Name)
				}
			}
		}
		if !slices.ContainsFunc(bound, func(role string) bool { return granted[role] }) {
			t.Errorf("%s in %s: the controller may not get /readyz; its roles are %q", p.role, p.namespace, bound)
		}
	}
}

// TestSideEffects lets the API server ask every webhook in a dry run too: none writes anything.
func TestSideEffects(t *testing.T) {
	t.Chdir("../..")
	for _, p := range []part{leader, leaderOf15, member} {
		text, err := renderer{}.text(p)
		if err != nil {
			t.Fatal(err)
		}
		hooks := strings.Count(text, "failurePolicy:")
		if none := strings.Count(text, "sideEffects: None\n"); hooks == 0 || none != hooks || strings.Count(text, "sideEffects:") != hooks {
			t.Errorf("%s in %s: %d of %d webhooks have no side effects", p.role, p.namespace, none, hooks)
		}
	}
}

// TestEarlierReplicas lets a member's replica of an earlier version, which writes by update, go on with the role of
// this one: an upgrade replaces the role before the replicas.
func TestEarlierReplicas(t *testing.T) {
	t.Chdir("../..")
	text, err := renderer{}.text(member)
	if err != nil {
		t.Fatal(err)
	}
	_, role, _ := strings.Cut(text, "kind: ClusterRole\nmetadata:\n  name: antrea-mc-controller-role\n")
	role, _, _ = strings.Cut(role, "\n---\n")
	for _, resources := range []string{
		"services, endpoints", "clustersets", "clustersets/status", "gateways, clusterinfoimports", "serviceexports/status, serviceimports/status", "serviceimports",
	} {
		_, rule, found := strings.Cut(role, "resources: ["+resources+"]\n")
		verbs, _, _ := strings.Cut(rule, "\n")
		if !found || !strings.Contains(verbs, "update") || !strings.Contains(verbs, "patch") {
			t.Errorf("%s: %q, want update and patch", resources, verbs)
		}
	}
}

// TestImages names the images of a registry in all that it renders, and only there.
func TestImages(t *testing.T) {
	t.Chdir("../..")
	out := t.TempDir()
	if err := (renderer{registry: "registry.example:5000/net", tag: "v1"}).write(out); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]int{"agent/tombolo.yml": 6, "multicluster/antrea-multicluster-leader.yml": 1, "multicluster/antrea-multicluster-member.yml": 1} {
		text, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		shipped, err := os.ReadFile(filepath.Join("deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		image := regexp.MustCompile(`image: registry\.example:5000/net/(tombolo-\w+):v1\n`)
		if n := len(image.FindAll(text, -1)); n != want {
			t.Errorf("%s has %d images of the registry, want %d", file, n, want)
		}
		if string(image.ReplaceAll(text, []byte("image: tombolo/$1:dev\n"))) != string(shipped) {
			t.Errorf("%s differs from the shipped one in more than images", file)
		}
	}
}
