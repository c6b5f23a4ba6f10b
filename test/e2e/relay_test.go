package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// testRelay installs the relay in one cluster, and asks it as an administrator, as a developer, and as a Prometheus
// server. The relay follows packets of Traceflows. It needs the drop, the Pods and the Service of testInCluster.
func testRelay(t *testing.T) {
	ctx := testContext(t)
	manifest, err := os.ReadFile(filepath.Join(world.Lab.Repo(), "deploy", "agent", "tombolo-observe.yml"))
	must(t, err)
	must(t, world.Apply(ctx, "west", string(manifest)))
	kubectl(t, "west", "rollout", "status", "deployment/tombolo-observe", "-n", "tombolo-observe", "--timeout=3m")
	words := []string{"observe", "--kubeconfig", world.Lab.Cluster("west").Kubeconfig(), "--since", "30m"}
	records := func(ctx context.Context, more ...string) (string, error) {
		return world.Lab.Tool(ctx, "west", "tombolo", append(words, more...)...)
	}
	whole := func(ctx context.Context) error {
		out, err := records(ctx, "--from", "10.12.99.99", "-o", "json")
		if err == nil && (!strings.Contains(out, `"table":"Classify"`) ||
			!strings.Contains(out, `"nodes":{"answering":2,"all":2}`)) {
			err = errors.New("want the drop of 10.12.99.99 and the answers of both Nodes")
		}
		if err != nil {
			return fmt.Errorf("%w:\n%s", err, out)
		}
		return nil
	}
	t.Run("all Nodes answer", func(t *testing.T) { eventually(t, stateLimit, whole) })

	t.Run("a developer", func(t *testing.T) {
		must(t, world.Apply(ctx, "west", `
apiVersion: v1
kind: ServiceAccount
metadata: {name: developer, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developer, namespace: tombolo-observe}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tombolo-observe-users}
subjects: [{kind: ServiceAccount, name: developer, namespace: default}]
`))
		words[2] = asAccount(t, "west", "developer")
		defer func() { words[2] = world.Lab.Cluster("west").Kubeconfig() }()
		out, err := records(ctx, "--namespace", "default")
		if text := out + fmt.Sprint(err); err == nil || !strings.Contains(text, "kind: Role") ||
			!strings.Contains(text, "namespace: default") {
			t.Fatalf("without a right: want the Role to ask for, got %v\n%s", err, out)
		}
		must(t, world.Apply(ctx, "west", `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developer, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tombolo-observe-flows}
subjects: [{kind: ServiceAccount, name: developer, namespace: default}]
`))
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := records(ctx, "--namespace", "default")
			if err != nil {
				return fmt.Errorf("%w:\n%s", err, out)
			}
			return nil
		})
	})

	t.Run("Prometheus", func(t *testing.T) {
		token := strings.TrimSpace(kubectl(t, "west", "create", "token", "tombolo-observer", "-n", "tombolo-observe",
			"--audience", "tombolo-observe"))
		ip := kubectl(t, "west", "get", "service", "tombolo-observe", "-n", "tombolo-observe", "-o",
			"jsonpath={.spec.clusterIP}")
		for path, want := range map[string]string{
			"/metrics/nodes/node-1": "tombolo_derive_passes_total", "/metrics": `tombolo_observe_relay_nodes{state="absent"} 0`,
			"/sd": `"/metrics/nodes/node-2"`,
		} {
			eventually(t, stateLimit, func(ctx context.Context) error {
				out, err := world.Lab.Cluster("west").Node("node-1").Exec(ctx, "curl", "-ksS", "--max-time", "10", "-H",
					"Authorization: Bearer "+token, "https://"+ip+":8443"+path)
				if err == nil && !strings.Contains(out, want) {
					err = fmt.Errorf("%s lacks %s: %.300s", path, want, out)
				}
				return err
			})
		}
	})

	t.Run("Traceflow", func(t *testing.T) { testTraceflow(t) })

	t.Run("one replica", func(t *testing.T) {
		kubectl(t, "west", "scale", "deployment/tombolo-observe", "-n", "tombolo-observe", "--replicas=1")
		eventually(t, stateLimit, whole)
	})
	kubectl(t, "west", "delete", "namespace", "tombolo-observe", "--wait=false")
}

// testTraceflow has two replicas of the relay follow packets: of the documented manifest to a Pod of the other Node, to
// a Service, and to a Pod that does not exist. A fourth object finds a connection of the Pods.
func testTraceflow(t *testing.T) {
	must(t, world.Apply(testContext(t), "west", `
apiVersion: crd.antrea.io/v1beta1
kind: Traceflow
metadata: {name: to-pod}
spec:
  source: {namespace: default, pod: client-1}
  destination: {namespace: default, pod: client-2}
  packet:
    ipHeader: {protocol: 6}
    transportHeader: {tcp: {srcPort: 10000, dstPort: 80, flags: 2}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Traceflow
metadata: {name: to-service}
spec:
  source: {namespace: default, pod: client-1}
  destination: {namespace: default, service: nginx}
---
apiVersion: crd.antrea.io/v1beta1
kind: Traceflow
metadata: {name: to-nobody}
spec:
  source: {namespace: default, pod: client-1}
  destination: {namespace: default, pod: client-3}
---
apiVersion: crd.antrea.io/v1beta1
kind: Traceflow
metadata: {name: live}
spec:
  source: {namespace: default, pod: client-1}
  destination: {namespace: default, pod: client-2}
  packet: {transportHeader: {tcp: {dstPort: 8080}}}
  liveTraffic: true
  timeout: 180
`))
	server := kubectl(t, "west", "get", "pod", "client-2", "-n", "default", "-o", "jsonpath={.status.podIP}")
	for name, want := range map[string][]string{
		"to-pod": {`"phase":"Succeeded"`, `"node":"node-1","observations":[{"action":"Forwarded","component":"SpoofGuard"}`,
			`"role":"Sender"`, `"tunnelDstIP":"192.168.79.102"`, `"node":"node-2"`, `"pod":"default/client-2"`,
			`"role":"Receiver"`},
		"to-service": {`"phase":"Succeeded"`, `"component":"LB"`, `"action":"Delivered"`, `"pod":"default/nginx-`},
		"to-nobody": {`"phase":"Failed"`, "spec.destination pod/default/client-3: there is no such Pod and no such " +
			"Service; did you mean default/client-"},
		"live": {`"phase":"Succeeded"`, `"role":"Sender"`, `"role":"Receiver"`, `"dstIP":"` + server + `"`},
	} {
		eventually(t, stateLimit, func(ctx context.Context) error {
			if name == "live" {
				if _, err := get(ctx, "west", "client-1", "http://"+server+":8080/", 1); err != nil {
					return err
				}
			}
			out, err := world.Kubectl(ctx, "west", "get", "traceflow", name, "-o", "jsonpath={.status}")
			if err != nil {
				return err
			}
			for _, text := range want {
				if !strings.Contains(out, text) {
					return fmt.Errorf("Traceflow %s lacks %s: %s", name, text, out)
				}
			}
			return nil
		})
	}
	kubectl(t, "west", "delete", "traceflows", "--all")
}

// asAccount writes a kubeconfig with a token of a ServiceAccount of the Namespace default.
func asAccount(t *testing.T, cluster, account string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(world.Lab.Cluster(cluster).Kubeconfig())
	must(t, err)
	token := kubectl(t, cluster, "create", "token", account, "-n", "default")
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, path))
	return path
}
