package manifest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tombolo-net/tombolo/test/apiserver"
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
		text, err := Renderer{}.text(p)
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
		text, err := Renderer{}.text(p)
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
	text, err := Renderer{}.text(member)
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
	if err := (Renderer{Registry: "registry.example:5000/net", Tag: "v1"}).Write(out); err != nil {
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
		if given != strings.Replace(string(shipped), givenHead, "", 1) ||
			strings.Contains(string(shipped), "imagePullPolicy: IfNotPresent") {
			t.Errorf("%s differs from the shipped one in more than images", file)
		}
	}
}

// TestRelease renders the manifests of a version, with digests where it has them, and bases that kustomize builds.
func TestRelease(t *testing.T) {
	program, err := apiserver.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	out, digest := t.TempDir(), "sha256:"+strings.Repeat("0a", 32)
	r := Renderer{Registry: "registry.example/net", Version: "v1.2.3",
		Digests: map[string]string{"tombolo-agent": digest, "tombolo-ovs": digest}}
	if err := r.Write(out); err != nil {
		t.Fatal(err)
	}
	if err := Kustomize(out); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]map[string]int{
		"agent": {"image: registry.example/net/tombolo-agent@" + digest: 2,
			"image: registry.example/net/tombolo-ovs@" + digest:     2,
			"image: registry.example/net/tombolo-controller:v1.2.3": 2, "app.kubernetes.io/version: v1.2.3": 40,
			"helm.sh/chart: tombolo-1.2.3": 40, "kind: CustomResourceDefinition": 10},
		"observe":   {"image: registry.example/net/tombolo-controller:v1.2.3": 1},
		"wireguard": {"image: registry.example/net/tombolo-agent@" + digest: 1, "kind: DaemonSet": 1},
		"leader":    {"image: registry.example/net/tombolo-controller:v1.2.3": 1, "kind: PodDisruptionBudget": 1},
		"central":   {"kind: ValidatingAdmissionPolicy\n": 2, "kind: ClusterRoleBinding\n": 1},
		"member":    {"image: registry.example/net/tombolo-controller:v1.2.3": 1, "kind: PodDisruptionBudget": 1},
	}
	for base := range bases {
		if wanted[base] == nil {
			t.Errorf("the base %s is not tested", base)
		}
	}
	for base, want := range wanted {
		c := exec.CommandContext(t.Context(), program)
		c.Args = []string{"kubectl", "kustomize", filepath.Join(out, "kustomize", base)}
		text, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", base, err, text)
		}
		for line, n := range want {
			if have := strings.Count(string(text), line); have != n && (n < 10 || have < n) {
				t.Errorf("%s: %q is there %d times, want %d", base, line, have, n)
			}
		}
		if strings.Contains(string(text), ":dev") || strings.Contains(string(text), "imagePullPolicy: Never") {
			t.Errorf("%s names images that Nodes have to be given", base)
		}
	}
}
