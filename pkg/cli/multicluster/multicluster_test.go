package multicluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
)

// program returns the command of a program with the group mc. For antctl it has the documented commands.
func program(name string) *cobra.Command {
	root := cli.Root(name, "")
	root.Version = "v0"
	if name == "antctl" {
		root.AddCommand(Documented())
	} else {
		root.AddCommand(Command())
	}
	return root
}

// tombolo runs a command line, whose first word is the program, and returns what it printed.
func tombolo(t *testing.T, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	root := program(words[0])
	return clitest.Run(t, root, Arguments(root, words[1:])...)
}

// apiServer serves ClusterSets and returns a kubeconfig for it.
func apiServer(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(answer, `"kind":"Status"`) {
			var s struct{ Code int }
			if err := json.Unmarshal([]byte(answer), &s); err != nil {
				t.Error(err)
			}
			w.WriteHeader(s.Code)
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"` +
		server.URL + `"}},{"name":"off","cluster":{"server":"http://127.0.0.1:1"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}},{"name":"off","context":{"cluster":"off"}},` +
		`{"name":"kube-system","context":{"cluster":"c","user":"u","namespace":"kube-system"}}],` +
		`"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	leaderSet = `{"apiVersion":"multicluster.crd.antrea.io/v1alpha2","kind":"ClusterSet",` +
		`"metadata":{"name":"tanzuhispano-clusterset","namespace":"antrea-multicluster","managedFields":[{"manager":"x"}]},` +
		`"spec":{"clusterID":"tanzuhispano-cluster-01","leaders":[{"clusterID":"tanzuhispano-cluster-01"}]},` +
		`"status":{"totalClusters":2,"readyClusters":2,"clusterStatuses":[` +
		`{"clusterID":"tanzuhispano-cluster-02","conditions":[{"type":"Ready","status":"True","reason":"Connected"}]},` +
		`{"clusterID":"tanzuhispano-cluster-01","conditions":[{"type":"Ready","status":"True","reason":"Connected"}]}]}}`
	memberSet = `{"apiVersion":"multicluster.crd.antrea.io/v1alpha2","kind":"ClusterSet",` +
		`"metadata":{"name":"tanzuhispano-clusterset","namespace":"kube-system"},` +
		`"spec":{"leaders":[{"clusterID":"tanzuhispano-cluster-01"}]},` +
		`"status":{"clusterStatuses":[{"clusterID":"tanzuhispano-cluster-01","conditions":[` +
		`{"type":"Ready","status":"False","reason":"Disconnected"},{"type":"IsLeader","status":"True"}]}]}}`
	newSet = `{"apiVersion":"multicluster.crd.antrea.io/v1alpha2","kind":"ClusterSet",` +
		`"metadata":{"name":"new","namespace":"other"},"spec":{"leaders":[]}}`
	sets = "/apis/multicluster.crd.antrea.io/v1alpha2/"
)

func setList(items ...string) string {
	return `{"apiVersion":"multicluster.crd.antrea.io/v1alpha2","kind":"ClusterSetList","metadata":{},"items":[` +
		strings.Join(items, ",") + `]}`
}

func TestClusterSets(t *testing.T) {
	kubeconfig := apiServer(t, map[string]string{
		sets + "namespaces/antrea-multicluster/clustersets/tanzuhispano-clusterset": leaderSet,
		sets + "clustersets":                        setList(memberSet, newSet, leaderSet),
		sets + "namespaces/default/clustersets":     setList(),
		sets + "namespaces/kube-system/clustersets": setList(memberSet),
		sets + "namespaces/kube-system/clustersets/none": `{"apiVersion":"v1","kind":"Status","status":"Failure",` +
			`"reason":"NotFound","code":404,"message":"not found",` +
			`"details":{"name":"none","group":"multicluster.crd.antrea.io","kind":"clustersets"}}`,
		sets + "namespaces/secret/clustersets": `{"apiVersion":"v1","kind":"Status","status":"Failure",` +
			`"reason":"Forbidden","code":403,"message":"clustersets is forbidden"}`,
	})
	for _, row := range []struct {
		golden string
		words  []string
	}{
		{"clusterset.txt", []string{"antctl", "mc", "get", "clusterset", "tanzuhispano-clusterset", "-n",
			"antrea-multicluster"}},
		{"clusterset.txt", []string{"antctl", "-t", "5s", "mc", "get", "clusterset", "tanzuhispano-clusterset", "-n",
			"antrea-multicluster"}},
		{"clusterset-all.txt", []string{"antctl", "mc", "get", "clustersets", "-A"}},
		{"clusterset-wide.txt", []string{"tombolo", "mc", "get", "clustersets", "-A"}},
		{"clusterset-bare.txt", []string{"tombolo", "--context", "kube-system", "mc", "get", "clustersets", "--no-headers"}},
		{"clusterset-name.txt", []string{"tombolo", "mc", "get", "clustersets", "-A", "-o", "name"}},
		{"clusterset.yaml", []string{"tombolo", "mc", "--context=kube-system", "get", "clusterset", "-o", "yaml"}},
		{"clusterset.yaml", []string{"antctl", "mc", "get", "--context", "kube-system", "clusterset", "-o", "yaml"}},
		{"clusterset.json", []string{"tombolo", "mc", "get", "clusterset", "tanzuhispano-clusterset", "-n",
			"antrea-multicluster", "-o", "json"}},
		{"clusterset.yaml", []string{"tombolo", "mc", "get", "clusterset", "-n", "kube-system", "-o", "yaml"}},
		{"clusterset-none.txt", []string{"tombolo", "mc", "get", "clusterset"}},
		{"clusterset-none.json", []string{"tombolo", "mc", "get", "clusterset", "-o", "json"}},
	} {
		t.Run(row.golden, func(t *testing.T) {
			out, stderr, code := tombolo(t, append(row.words, "-k", kubeconfig)...)
			if code != 0 || stderr != "" {
				t.Fatalf("code %d: %s", code, stderr)
			}
			clitest.Golden(t, row.golden, out)
		})
	}
	for _, row := range []struct {
		name  string
		words []string
		want  string
	}{
		{"by name everywhere", []string{"x", "-A"}, "a resource cannot be retrieved by name across all Namespaces"},
		{"not there", []string{"none", "-n", "kube-system"}, `ClusterSet "none" is not in Namespace kube-system`},
		{"kind unknown", []string{"-n", "uninstalled"}, "this cluster does not know ClusterSets"},
		{"kind unknown, by name", []string{"x", "-n", "uninstalled"}, "this cluster does not know ClusterSets"},
		{"forbidden", []string{"-n", "secret"}, "use a kubeconfig that may get and list"},
		{"unknown context", []string{"--context", "x"}, "x is neither a context of the kubeconfig nor a kubeconfig file"},
		{"no API server of a context", []string{"--context", "off"}, "are --context and --kubeconfig the right ones?"},
		{"no API server", []string{"-s", "http://127.0.0.1:1"}, "reach the API server"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, stderr, code := tombolo(t, append([]string{"tombolo", "mc", "get", "clusterset", "-k", kubeconfig},
				row.words...)...)
			if code != 1 || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d: %swant: %s", code, stderr, row.want)
			}
		})
	}
	for words, want := range map[string]string{
		"mc get clusterset --context kube-system |t": "tanzuhispano-clusterset\n:4\n",
		"mc get clusterset --context off |":          ":4\n",
		"mc verify c |k":                             "kube-system\n:0\n",
	} {
		before, word, _ := strings.Cut(words, "|")
		out, _, code := tombolo(t, slices.Concat([]string{"tombolo", "__complete"}, strings.Fields(before),
			[]string{"-k", kubeconfig, word})...)
		if code != 0 || out != want {
			t.Errorf("%s: code %d, have %q, want %q", words, code, out, want)
		}
	}
	if _, stderr, code := tombolo(t, "tombolo", "mc", "get", "clusterset", "-k", "/run/none"); code != 1 ||
		!strings.Contains(stderr, "name one with --kubeconfig") {
		t.Errorf("kubeconfig missing: code %d: %s", code, stderr)
	}
}
