package node

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/gather"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/kubelet"
)

// cluster is a cluster whose agents answer at a socket.
func cluster(t *testing.T, socket string, nodes ...string) *rest.Config {
	t.Helper()
	config := apiserver.Start(t)
	(&kubelet.Kubelet{
		Log: func(string, string, string, bool, io.Writer) error { return nil },
		Exec: func(_, _, _ string, command []string, stdout, stderr io.Writer) int {
			root := cli.Root(command[0], "")
			root.AddCommand(Commands()...)
			return cli.Run(t.Context(), root, append(command[1:], "--socket", socket), stdout, stderr)
		},
	}).Start(t, config, nodes...)
	c, err := kubeclient.New(config, kubeclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		if node == "node-9" {
			continue // it has no agent
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent-of-" + node,
			Labels: map[string]string{"app": "tombolo", "component": "tombolo-agent"}}}
		pod.Spec.NodeName = node
		pod.Spec.Containers = []corev1.Container{{Name: "tombolo-agent", Image: "x"}}
		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// bundle makes a bundle of a cluster whose agents answer at a socket.
func bundle(t *testing.T, socket string, nodes ...string) string {
	t.Helper()
	config := cluster(t, socket, nodes...)
	o := gather.Options{Since: time.Hour, File: filepath.Join(t.TempDir(), "bundle.tar.gz"),
		Clusters: []*remote.Cluster{remote.New("east", config)}}
	if _, err := gather.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o.File
}

// TestBundle compares the output of all commands that a bundle answers with the output for the agent.
func TestBundle(t *testing.T) {
	socket := agent(t, answers)
	file := bundle(t, socket, "node-1", "node-2", "node-9")
	compared := 0
	words := [][]string{{"tombolo", "get", "metrics"}}
	for _, row := range commands {
		if row.words[1] == "get" && row.words[0] != "antctl" {
			words = append(words, row.words)
		}
	}
	for _, w := range words {
		live, stderr, code := tombolo(t, slices.Concat(w, []string{"--socket", socket})...)
		if code != 0 {
			t.Fatalf("%v: %s", w, stderr)
		}
		offline, stderr, code := tombolo(t, slices.Concat(w, []string{"--bundle", file, "--node", "node-2"})...)
		if code != 0 || offline != live || strings.Count(stderr, "as of 20") != 1 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: code %d, %s\n%s\nand the agent's answer:\n%s", w, code, stderr, offline, live)
		}
		compared++
	}
	if compared < 14 {
		t.Errorf("%d commands were compared", compared)
	}
	for _, row := range []struct{ words, want string }{
		{"get flows", "has several Nodes: choose one with --node; it has east/node-1, east/node-2"},
		{"get flows --node node-3", "has no Node node-3; it has east/node-1"},
		{"get flows --node node-9", "the Node has no Pod of tombolo-agent"},
		{"get flows --node node-1 --context west", "has no cluster west; it has east"},
		{"get flows --node node-1 -T Nothing", `no flows with table "Nothing"`},
		{"get rules shop/nothing --node node-1", `no policy "shop/nothing" has rules in the bundle`},
		{"policy why --from a/b --to c/d --node node-1", "has no answer for /v1/why"},
	} {
		stdout, stderr, code := tombolo(t, append([]string{"tombolo"}, append(strings.Fields(row.words), "--bundle",
			file)...)...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: code %d, %q, %q", row.words, code, stdout, stderr)
		}
	}
	if _, stderr, code := tombolo(t, "tombolo", "get", "flows", "--node", "node-1,node-2", "--bundle", file); code != 1 ||
		!strings.Contains(stderr, "a bundle answers for one Node: name one") {
		t.Errorf("two Nodes of a bundle: code %d, %q", code, stderr)
	}
	if _, stderr, code := tombolo(t, "tombolo", "get", "flows", "--bundle", "node_test.go"); code != 1 ||
		!strings.Contains(stderr, "name a file that `tombolo gather` wrote") {
		t.Errorf("a file that is no bundle: code %d, %q", code, stderr)
	}
}
