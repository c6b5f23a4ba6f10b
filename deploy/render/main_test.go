package main

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestDefinitions applies the manifests in the sequences of the guides. After each sequence all definitions exist that
// the controllers in the cluster need.
func TestDefinitions(t *testing.T) {
	t.Chdir("../..")
	for _, sequence := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"a cluster with agents", []string{"../agent/tombolo-crds.yml"}, []string{
			"antreanetworkpolicies", "clustergroups", "clusternetworkpolicies", "groups", "networkpolicies", "nodepolicyreports",
			"tiers",
		}},
		{"a leader", []string{"antrea-multicluster-leader.yml"}, leaderCRDs},
		{"a leader, in two steps",
			[]string{"antrea-multicluster-leader-global.yml", "antrea-multicluster-leader-namespaced.yml"}, leaderCRDs},
		{"a member", []string{"antrea-multicluster-member.yml"}, memberCRDs},
		{"a leader that becomes a member", []string{"antrea-multicluster-leader.yml", "antrea-multicluster-member.yml"},
			both(leaderCRDs, memberCRDs)},
		{"v1.5: a member that becomes the leader",
			[]string{"v1.5/antrea-multicluster-member.yml", "v1.5/antrea-multicluster-leader-namespaced.yml"},
			both(leaderCRDs, memberCRDs)},
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

// TestSideEffects lets the API server call every webhook in a dry run too: webhooks write nothing.
func TestSideEffects(t *testing.T) {
	t.Chdir("../..")
	for _, p := range []part{leader, leaderOf15, member} {
		text, err := renderer{}.text(p)
		if err != nil {
			t.Fatal(err)
		}
		hooks := strings.Count(text, "admissionReviewVersions:")
		if none := strings.Count(text, "sideEffects: None\n"); hooks == 0 || none != hooks ||
			strings.Count(text, "sideEffects:") != hooks {
			t.Errorf("%s in %s: %d of %d webhooks have no side effects", p.role, p.namespace, none, hooks)
		}
	}
}

// TestEarlierReplicas runs a member's replica of an earlier version, which writes with update, under the role of this
// version: an upgrade replaces the role before the replicas.
func TestEarlierReplicas(t *testing.T) {
	t.Chdir("../..")
	text, err := renderer{}.text(member)
	if err != nil {
		t.Fatal(err)
	}
	_, role, _ := strings.Cut(text, "kind: ClusterRole\nmetadata:\n  name: antrea-mc-controller-role\n")
	role, _, _ = strings.Cut(role, "\n---\n")
	for _, resources := range []string{
		"services, endpoints", "clustersets", "clustersets/status", "gateways, clusterinfoimports",
		"serviceexports/status, serviceimports/status", "serviceimports",
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
	for file, want := range map[string]int{"agent/tombolo.yml": 6, "multicluster/antrea-multicluster-leader.yml": 1,
		"multicluster/antrea-multicluster-member.yml": 1} {
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
		given := strings.ReplaceAll(image.ReplaceAllString(string(text), "image: tombolo/$1:dev\n"),
			"imagePullPolicy: IfNotPresent\n", "imagePullPolicy: Never\n")
		if given != string(shipped) || strings.Contains(string(shipped), "imagePullPolicy: IfNotPresent") {
			t.Errorf("%s differs from the shipped one in more than images", file)
		}
	}
}

// TestShipped compares every file that this program writes with the one in deploy/, in both directions.
func TestShipped(t *testing.T) {
	t.Chdir("../..")
	out := t.TempDir()
	if err := (renderer{}).write(out); err != nil {
		t.Fatal(err)
	}
	if err := derived(out); err != nil {
		t.Fatal(err)
	}
	rendered := readFiles(t, out, func(string) bool { return true })
	if len(rendered) < 14 {
		t.Errorf("%d files were rendered, want 14 or more: %q", len(rendered), slices.Sorted(maps.Keys(rendered)))
	}
	for _, problem := range compare(rendered, readFiles(t, "deploy", isRendered)) {
		t.Errorf("%s: run `make generate` and commit the result", problem)
	}
}

// isRendered reports whether a file at a path below deploy/ has to come from this program.
func isRendered(name string) bool {
	if name == "multicluster/coredns-clusterset.yml" { // written by hand
		return false
	}
	for _, pattern := range []string{"agent/*", "multicluster/*", "multicluster/v1.5/*", "charts/*/crds/*",
		"charts/*/values.schema.json", "charts/*/feature-gates.txt"} {
		if match, _ := path.Match(pattern, name); match {
			return true
		}
	}
	return false
}

// readFiles reads the files below a folder that a function chooses, by their paths in it.
func readFiles(t *testing.T, folder string, choose func(name string) bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !choose(name) {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, name))
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// compare names the fault with shipped files, in the order of their names.
func compare(rendered, shipped map[string]string) []string {
	var problems []string
	for _, name := range both(slices.Collect(maps.Keys(rendered)), slices.Collect(maps.Keys(shipped))) {
		want, isWanted := rendered[name]
		have, isThere := shipped[name]
		switch {
		case !isThere:
			problems = append(problems, "deploy/"+name+" is missing")
		case !isWanted:
			problems = append(problems, "deploy/"+name+" is rendered by nothing")
		case want != have:
			problems = append(problems, "deploy/"+name+" differs (-shipped +rendered):\n"+
				cmp.Diff(strings.Split(have, "\n"), strings.Split(want, "\n")))
		}
	}
	return problems
}

// TestCompare finds each kind of difference.
func TestCompare(t *testing.T) {
	rendered := map[string]string{"agent/a.yml": "1\n2\n", "agent/b.yml": "1\n"}
	for _, row := range []struct {
		name    string
		shipped map[string]string
		want    []string
	}{
		{"equal", map[string]string{"agent/a.yml": "1\n2\n", "agent/b.yml": "1\n"}, nil},
		{"missing", map[string]string{"agent/a.yml": "1\n2\n"}, []string{"deploy/agent/b.yml is missing"}},
		{"superfluous", map[string]string{"agent/a.yml": "1\n2\n", "agent/b.yml": "1\n", "agent/c.yml": ""},
			[]string{"deploy/agent/c.yml is rendered by nothing"}},
		{"different", map[string]string{"agent/a.yml": "1\n3\n", "agent/b.yml": "1\n"},
			[]string{"deploy/agent/a.yml differs"}},
	} {
		have := compare(rendered, row.shipped)
		if !slices.EqualFunc(have, row.want, strings.HasPrefix) {
			t.Errorf("%s: have %q, want %q", row.name, have, row.want)
		}
	}
}
