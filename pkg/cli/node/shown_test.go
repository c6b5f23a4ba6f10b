package node

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
)

// kubeconfigOf writes a kubeconfig with the context east, in Namespace shop.
func kubeconfigOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(api.Config{
		CurrentContext: "east",
		Contexts: map[string]*api.Context{"east": {Cluster: "c", AuthInfo: "u", Namespace: "shop"},
			"west": {Cluster: "c", AuthInfo: "u"}},
		Clusters:  map[string]*api.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*api.AuthInfo{"u": {Token: config.BearerToken}},
	}, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestElsewhere asks agents from a machine without an agent.
func TestElsewhere(t *testing.T) {
	socket := agent(t, answers)
	config := cluster(t, socket, "node-1", "node-2", "node-9")
	c, err := kubeclient.New(config, kubeclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{
		NodeName: "node-2", Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
	for _, o := range []kubeclient.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, web} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := kubeconfigOf(t, config)
	const absent = "cluster east: Node node-9: ask the agent for /v1/"
	for _, row := range []struct {
		golden, words, stderr string
		code                  int
	}{
		{"flows.txt", "get flows --node node-2", "", 0},
		{"rules-one.json", "get rules default/web --node node-1 -o json", "", 0},
		{"elsewhere-groups.txt", "get groups", "1 of 3 Nodes have not answered", 1},
		{"elsewhere-identities.yaml", "get identities --here -o yaml --node node-1,node-9", absent + "identities", 1},
		{"elsewhere-contexts.txt", "get identities --here --context east,west --node node-1,node-2", "", 0},
		{"elsewhere-status.txt", "get status --node node-1,node-2", "", 0},
		{"elsewhere-name.txt", "get flows -o name --node node-1,node-2", "", 0},
		{"explain.txt", "explain default/web --node node-1", "", 0},
		{"trace.txt", "trace in_port=3,ip --node node-1", "", 0},
		{"why.txt", "policy why --from web --to db --trace", "", 0}, // in the context's Namespace, on the Pod's Node
		{"why.txt", "policy why --from shop/web --to db --trace --node node-1", "", 0},
		{"", "policy why --from shop/web --to db --node node-9", absent + "why", 1},
		{"", "policy why --from web --to db --node node-1,node-2", "one agent answers this", 1},
		{"", "get networkpolicy none --node node-1", `no policy "none" applies to Pods of this Node`, 1},
		{"", "get networkpolicy none --node node-1,node-2",
			`each of 2 Nodes: no policy "none" applies to Pods of this Node`, 1},
		{"", "check --node node-1,node-2", "", 0},
		{"", "check --kubeconfig KUBECONFIG", absent + "status", 1},
		{"", "get metrics", "metrics are of one agent: name its Node with --node", 1},
		{"", "get flows --node node-3", "cluster east has no Node node-3; it has node-1, node-2, node-9", 1},
		{"", "trace in_port=3,ip", "name the Node with --node", 1},
	} {
		t.Run(row.words, func(t *testing.T) {
			t.Setenv("KUBECONFIG", kubeconfig)
			words := strings.Fields("tombolo " + strings.ReplaceAll(row.words, "KUBECONFIG", kubeconfig))
			out, stderr, code := tombolo(t, words...)
			if code != row.code || !strings.Contains(stderr, row.stderr) || row.stderr == "" && stderr != "" {
				t.Errorf("code %d, %s\nwant code %d, %s", code, stderr, row.code, row.stderr)
			}
			if row.golden != "" {
				clitest.Golden(t, row.golden, out)
			} else if out != "" {
				t.Errorf("it prints %s", out)
			}
		})
	}
	for words, want := range map[string]string{
		"get flows --node |":                           "node-1 node-2 node-9 :4",
		"get flows --node |node-2,node":                "node-2,node-1 node-2,node-2 node-2,node-9 :4",
		"trace --context |w":                           "west :4",
		"policy why --from |sh":                        "shop/ :6",
		"policy why --from |shop/":                     "shop/web :4",
		"policy why -n shop --from |w":                 "web :4",
		"get rules --namespace |sh":                    "shop :4",
		"get flows --kubeconfig /none --node |":        ":4",
		"get flows --table |":                          ":4",
		"get flows --socket " + socket + " --table |":  "Classify :4",
		"get flows --output |js":                       "table wide json yaml name jsonpath= :6",
		"get policies --kubeconfig /none --context |x": ":4",
	} {
		t.Setenv("KUBECONFIG", kubeconfig)
		before, word, _ := strings.Cut(words, "|")
		out, _, code := tombolo(t, slices.Concat([]string{"tombolo", "__complete"}, strings.Fields(before),
			[]string{word})...)
		if have := strings.Join(strings.Fields(out), " "); code != 0 || have != want {
			t.Errorf("%s: code %d, have %q, want %q", words, code, have, want)
		}
	}
	if out, stderr, code := tombolo(t, "tombolo", "get", "metrics", "--kubeconfig", kubeconfig,
		"--node", "node-1"); code != 0 ||
		out != metrics {
		t.Errorf("metrics: code %d, %s, %s", code, out, stderr)
	}
}

// TestWrongPlace names the right command on a machine without an agent and without a kubeconfig.
func TestWrongPlace(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, row := range []struct{ words, env, want string }{
		{"get flows", "", "there is no agent on this machine (/var/run/"},
		{"get flows", "10.96.0.1", "is tombolo-agent running on this Node? elsewhere, name a cluster with --context"},
		{"check", "", "is tombolo-agent running on this Node? elsewhere, name a cluster with --context"},
		{"get flows --context north", "", "north is neither a context of the kubeconfig nor a kubeconfig file"},
	} {
		t.Run(row.words+" "+row.env, func(t *testing.T) {
			t.Setenv(inPod, row.env)
			out, stderr, code := tombolo(t, append([]string{"tombolo"}, strings.Fields(row.words)...)...)
			if code != 1 || out != "" || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d, %q, %s\nwant %s", code, out, stderr, row.want)
			}
		})
	}
}
