package multicluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// TestUpArguments: wrong arguments of up and down are errors before any request, with the remedy.
func TestUpArguments(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	config := api.NewConfig()
	for _, name := range []string{"leader", "west"} {
		config.Clusters[name] = &api.Cluster{Server: "https://127.0.0.1:1"}
		config.AuthInfos[name] = &api.AuthInfo{}
		config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "list.yaml")
	if err := os.WriteFile(list, []byte("- a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		words string
		want  []string
	}{
		{"up", []string{"requires at least 1 arg"}},
		{"up leader", []string{"a ClusterSet is of two clusters or more"}},
		{"up leader,wst", []string{"wst is neither a context of the kubeconfig nor a kubeconfig file"}},
		{"up leader,,west", []string{"has a place without a cluster: separate clusters by one comma"}},
		{"up leader,west -s https://192.0.2.1", []string{"--server is one cluster's"}},
		{"up west --context leader", []string{"--context is one cluster's: name the clusters behind the command, as in " +
			"`tombolo mc up leader,west`"}},
		{"down west --context leader --yes", []string{"--context is one cluster's", "`tombolo mc down leader,west`"}},
		{"up leader,west --dedicated-leader --gateway leader=n,west=n", []string{
			"--gateway leader=n: leader is no member because of --dedicated-leader: leave one of these flags out"}},
		{"up leader,west --dedicated-leader --member-values leader=" + list, []string{
			"--member-values leader=" + list + ": leader is no member because of --dedicated-leader"}},
		{"up leader,west --gateway node-1", []string{"--gateway node-1: want ID=NODE with one of the IDs leader, west"}},
		{"up leader,west --gateway east=node-1", []string{"--gateway east=node-1: want ID=NODE"}},
		{"up leader,west --values west=/none", []string{"--values west=/none: open /none", "ID=FILE with one of the IDs"}},
		{"up leader,west --member-values " + list, []string{"--member-values: read values of " + list}},
		{"up a_=leader,west", []string{"invalid ClusterID \"a_\"", "give another one as ID=CONTEXT"}},
		{"up leader,west", []string{"nothing was changed", "leader and west are one cluster",
			"cluster leader: its API server https://127.0.0.1:1 does not answer", "cluster west: its API server"}},
		{"down leader,west --yes", []string{"nothing was changed", "cluster west: its API server"}},
		{"down leader,west --dry-run", []string{"nothing was changed", "cluster leader: its API server"}},
	} {
		t.Run(row.words, func(t *testing.T) {
			_, stderr, code := tombolo(t, append([]string{"tombolo", "mc", "-k", file}, strings.Fields(row.words)...)...)
			if code != 1 {
				t.Errorf("code %d", code)
			}
			for _, want := range row.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("error %q, want %q in it", stderr, want)
				}
			}
		})
	}
}
