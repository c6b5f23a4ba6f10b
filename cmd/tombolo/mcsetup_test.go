package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSetupErrors: what is missing or has no effect is said before anything is asked of a cluster, in the documented words.
func TestSetupErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "join.yml")
	if err := os.WriteFile(file, []byte("apiVersion: multicluster.antrea.io/v1alpha1\nkind: ClusterSetJoinConfig\nclusterset: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		words string
		want  []string
	}{
		{"deploy leadercluster", []string{"Namespace must be specified"}},
		{"deploy membercluster -n a --antrea-version v9.9.9", []string{"for version v9.9.9 use its own program"}},
		{"deploy membercluster -n a --antrea-version v9.9.9 -f " + file, []string{"--antrea-version has no effect with --manifest-file"}},
		{"deploy membercluster -n a --image-tag v1 -f " + file, []string{"--image-tag have no effect with --manifest-file"}},
		{"deploy followercluster", []string{"it knows leadercluster, membercluster"}},
		{"init", []string{"Namespace must be specified", "ClusterSet must be provided", "ClusterID must be provided"}},
		{"join", []string{"ClusterSet must be provided", "ClusterID of leader cluster must be provided", "a token must be provided"}},
		{"join -f " + file, []string{"read join configuration " + file, `unknown field "clusterset"`}},
		{"join -f /none", []string{"open /none: no such file"}},
		{"join --token-secret-file " + file, []string{"read token " + file, "want a Secret of v1"}},
		{"leave", []string{"ClusterSet must be provided"}},
		{"destroy --clusterset x", []string{"Namespace must be specified"}},
		{"create membertoken", []string{"token name must be specified", "Namespace must be specified", "--cluster-id must be specified"}},
		{"delete membertoken", []string{"token name must be specified", "Namespace must be specified"}},
		{"get joinconfig", []string{"Namespace must be specified"}},
		{"get membertoken", []string{"Namespace must be specified"}},
		{"get resourceexport x -A", []string{"a resource cannot be retrieved by name across all Namespaces"}},
	} {
		t.Run(row.words, func(t *testing.T) {
			_, stderr, code := tombolo(t, append([]string{"antctl", "mc", "-k", "/none"}, strings.Fields(row.words)...)...)
			if code != 1 {
				t.Errorf("code %d", code)
			}
			for _, want := range row.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is not in %s", want, stderr)
				}
			}
		})
	}
}

// TestResources lists exports, of all members and of one, and imports.
func TestResources(t *testing.T) {
	export := func(cluster, name string) string {
		return `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceExport","metadata":{"namespace":"area","name":"` + cluster + "-" + name + `"},"spec":{"clusterID":"` + cluster + `","name":"` + name + `","namespace":"default","kind":"Service"}}`
	}
	kubeconfig := apiServer(t, map[string]string{
		"/apis/multicluster.crd.antrea.io/v1alpha1/namespaces/area/resourceexports": `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceExportList","metadata":{},"items":[` + export("west", "web") + "," + export("east", "web") + `]}`,
		"/apis/multicluster.crd.antrea.io/v1alpha1/resourceimports": `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceImportList","metadata":{},"items":[
			{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceImport","metadata":{"namespace":"area","name":"default-web-service"},"spec":{"kind":"ServiceImport"}}]}`,
	})
	for _, row := range []struct{ words, want string }{
		{"re -n area", "CLUSTER-ID NAMESPACE NAME KIND\neast area east-web Service\nwest area west-web Service"},
		{"resourceexports -n area --cluster-id east", "CLUSTER-ID NAMESPACE NAME KIND\neast area east-web Service"},
		{"resourceexport -n area --clusterid none", "No ResourceExport found in Namespace area"},
		{"ri -A", "NAMESPACE NAME KIND\narea default-web-service ServiceImport"},
	} {
		out, stderr, code := tombolo(t, append([]string{"antctl", "mc", "get", "-k", kubeconfig}, strings.Fields(row.words)...)...)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if have := strings.Join(lines, "\n"); code != 0 || have != row.want {
			t.Errorf("%s: code %d, %s%s\nwant %s", row.words, code, stderr, have, row.want)
		}
	}
}
