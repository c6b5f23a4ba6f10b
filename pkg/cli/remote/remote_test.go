package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// kubeconfig writes a file with a context of each name, the first of which is current.
func kubeconfig(t *testing.T, path string, contexts ...string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.CurrentContext = contexts[0]
	for i, name := range contexts {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", i+1)}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClusters(t *testing.T) {
	dir := t.TempDir()
	both := kubeconfig(t, filepath.Join(dir, "both"), "east", "west")
	one := kubeconfig(t, filepath.Join(dir, "one", "config"), "x")
	two := kubeconfig(t, filepath.Join(dir, "two", "config"), "x")
	for _, row := range []struct{ name, words, want, err string }{
		{"the current context", "", "east=https://127.0.0.1:1", ""},
		{"separated by commas", "--context west,east", "west=https://127.0.0.1:2 east=https://127.0.0.1:1", ""},
		{"repeated", "--context west --context east", "west=https://127.0.0.1:2 east=https://127.0.0.1:1", ""},
		{"files of one name", "--context " + one + "," + two,
			"one/config=https://127.0.0.1:1 two/config=https://127.0.0.1:1", ""},
		{"twice", "--context west,west", "", "--context names west twice"},
		{"unknown", "--context north", "", "north is neither a context of the kubeconfig nor a kubeconfig file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var f Flags
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.Add(flags)
			if err := flags.Parse(append(strings.Fields(row.words), "--kubeconfig", both, "--timeout", "3s")); err != nil {
				t.Fatal(err)
			}
			all, err := f.Clusters()
			var have []string
			for _, c := range all {
				have = append(have, c.Name+"="+c.Config.Host)
				if c.Timeout != 3*time.Second {
					t.Errorf("%s has the time limit %s", c.Name, c.Timeout)
				}
			}
			if strings.Join(have, " ") != row.want || (err == nil) != (row.err == "") ||
				err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("%v, %v", have, err)
			}
		})
	}
}

func TestAgents(t *testing.T) {
	c := New("east", apiserver.Start(t))
	core, err := c.core()
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n2", "n1", "n3"} {
		_, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "net"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := func(name, node, component string) {
		t.Helper()
		_, err := core.Pods("net").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "tombolo", "component": component},
				Finalizers: []string{"test/keep"}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: container, Image: "x"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	pod("old", "n1", "tombolo-agent")
	if err := core.Pods("net").Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pod("new", "n1", "tombolo-agent")
	pod("other", "n2", "tombolo-controller")
	pod("three", "n3", "tombolo-agent")

	list := func() []string {
		t.Helper()
		all, err := c.Agents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, a := range all {
			name := "none"
			if a.Pod != nil {
				name = a.Pod.Name
			}
			have = append(have, a.Node+" "+name)
		}
		return have
	}
	if diff := cmp.Diff([]string{"n1 new", "n2 none", "n3 three"}, list()); diff != "" {
		t.Errorf("agents (-want +have):\n%s", diff)
	}
	c.Only = []string{"n3"}
	if diff := cmp.Diff([]string{"n3 three"}, list()); diff != "" {
		t.Errorf("agents of one Node (-want +have):\n%s", diff)
	}
	c.Only = []string{"n4"}
	if _, err := c.Agents(t.Context()); err == nil || err.Error() != "cluster east has no Node n4; it has n1, n2, n3" {
		t.Error(err)
	}

	for _, row := range []struct{ node, want string }{
		{"n2", "cluster east: Node n2: ask the agent for /v1/status: the Node has no Pod of tombolo-agent; look at "},
		{"n1", "cluster east: Node n1: ask the agent for /v1/status: "}, // no kubelet
		{"n1", "; look at `kubectl describe pod -n net new`"},
	} {
		_, err := c.Ask(t.Context(), row.node, api.PathStatus, nil)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v\nwant %s", row.node, err, row.want)
		}
	}
	c.Config.Host = "https://127.0.0.1:1"
	down := New("west", c.Config)
	const want = "cluster west: list Nodes: "
	if _, err := down.Agents(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.HasSuffix(err.Error(), "; is the API server up, and may this user do it?") {
		t.Error(err)
	}
}
