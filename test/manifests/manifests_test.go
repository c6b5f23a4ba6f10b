package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// originals is the optional directory of the users' documents, next to the repository.
const originals = "../../../shared/seeds"

// TestManifests compares every part with the manifest at its place in the original document. Without the
// originals it still holds the parts and kinds.
func TestManifests(t *testing.T) {
	for _, tc := range []struct {
		name     string
		document Document
		original string
		parts    []string
		kinds    map[string]int
	}{
		{
			name: "v1.5", document: V15(), original: "000_a8318f6c13251dbf.txt",
			parts: []string{"access-east", "member-east", "member-west", "leader", "access-north", "member-north",
				"leader-with-north", "export"},
			kinds: map[string]int{"ServiceAccount": 2, "Secret": 2, "RoleBinding": 2, "ClusterClaim": 8, "ClusterSet": 5,
				"ServiceExport": 1},
		},
		{
			name: "v1.14", document: V114(), original: "001_bb8af9a507607c57.txt",
			parts: []string{
				"agent-gateway", "access-east", "leader", "member-east", "member-west", "member-north", "agent-wireguard", "export",
				"controller-pod-cidrs", "agent-pod-to-pod", "agent-stretched-policy", "policy-egress-to-service",
				"policy-ingress-cluster",
				"policy-ingress-namespace", "controller-stretched-policy", "replicated-policy",
			},
			kinds: map[string]int{
				"ConfigMap": 5, "ServiceAccount": 1, "Secret": 1, "RoleBinding": 1, "ClusterSet": 4, "ServiceExport": 1,
				"ClusterNetworkPolicy": 2, "NetworkPolicy": 1, "MultiClusterConfig": 1, "ResourceExport": 1,
			},
		},
		{
			name: "three clusters", document: ThreeClusters(), original: "003_cffc477ac4b83e4c.txt",
			parts: []string{"access", "token-01", "leader", "member-01", "member-02", "member-db", "controller-config"},
			kinds: map[string]int{"ServiceAccount": 3, "Secret": 4, "RoleBinding": 3, "ClusterClaim": 8, "ClusterSet": 4,
				"ConfigMap": 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var parts []string
			var have [][]any
			kinds := map[string]int{}
			for _, p := range tc.document.parts {
				parts = append(parts, p.name)
				objects := decode(t, p.text)
				have = append(have, objects)
				for _, o := range objects {
					kinds[o.(map[string]any)["kind"].(string)]++
				}
			}
			if d := cmp.Diff(tc.parts, parts); d != "" {
				t.Errorf("parts (-want +have):\n%s", d)
			}
			if d := cmp.Diff(tc.kinds, kinds); d != "" {
				t.Errorf("objects of each kind (-want +have):\n%s", d)
			}
			if _, err := tc.document.Part("nonexistent"); err == nil {
				t.Error("a part that does not exist was found")
			}

			if _, err := os.Stat(originals); errors.Is(err, fs.ErrNotExist) {
				t.Logf("%s does not exist: nothing to compare with", originals)
				return
			}
			text, err := os.ReadFile(filepath.Join(originals, tc.original))
			if err != nil {
				t.Fatal(err)
			}
			var want [][]any
			for _, block := range blocks(string(text)) {
				want = append(want, decode(t, block))
			}
			if d := cmp.Diff(want, have); d != "" {
				t.Errorf("the manifests differ from %s (-original +have):\n%s", tc.original, d)
			}
		})
	}
}

// decode parses the objects of a manifest and sorts them by kind and name: within one their order means nothing. A
// ConfigMap's files are YAML themselves and are parsed too, so that comments and quotes do not count.
func decode(t *testing.T, manifest string) []any {
	t.Helper()
	var objects []any
	for _, text := range strings.Split(manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if object["apiVersion"] == nil || object["kind"] == nil {
			t.Fatalf("not an object:\n%s", text)
		}
		if data, ok := object["data"].(map[string]any); ok && object["kind"] == "ConfigMap" {
			for name, content := range data {
				var parsed map[string]any
				if err := yaml.UnmarshalStrict([]byte(content.(string)), &parsed); err != nil {
					t.Fatalf("%s: %v:\n%s", name, err, content)
				}
				data[name] = parsed
			}
		}
		objects = append(objects, object)
	}
	slices.SortStableFunc(objects, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	return objects
}

func key(object any) string {
	o := object.(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	return fmt.Sprint(o["kind"], "/", meta["name"])
}

// start is where a manifest begins in a document, behind any indentation of a list item.
var start = regexp.MustCompile(`^(\s*)(apiVersion|kind): \S`)

// blocks finds the manifests in a document by their content, not by their fences: some of those are broken. A
// manifest begins with apiVersion or kind and ends at a fence, at a here-document's end, or at a line that is
// indented less.
func blocks(document string) []string {
	document = misprints.Replace(document)
	document = omitted.ReplaceAllString(document, "<left out>")
	var found []string
	lines := strings.Split(document, "\n")
	for i := 0; i < len(lines); i++ {
		m := start.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		var block []string
		for ; i < len(lines); i++ {
			line := strings.TrimRight(lines[i], " \r")
			rest, ok := strings.CutPrefix(line, m[1])
			if line == "" {
				rest, ok = "", true
			}
			if !ok || slices.ContainsFunc([]string{"EOF", "```", "´´´"},
				func(end string) bool { return strings.HasPrefix(rest, end) }) {
				break
			}
			block = append(block, rest)
		}
		manifest := strings.TrimSpace(strings.Join(block, "\n")) + "\n"
		if strings.Contains(manifest, "apiVersion:") && strings.Contains(manifest, "kind:") {
			found = append(found, manifest)
		}
	}
	return found
}

var (
	// misprints are what is no YAML in the documents.
	misprints = strings.NewReplacer(`/22". #`, `/22" #`)
	// omitted is what an author left out of a token.
	omitted = regexp.MustCompile(`\S+ <omitido>`)
)
