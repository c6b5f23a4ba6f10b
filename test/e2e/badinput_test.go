package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// exportCondition waits until a ServiceExport of default has the reason.
func exportCondition(t *testing.T, cluster, name, reason string) {
	t.Helper()
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Kubectl(ctx, cluster, "get", "serviceexport", name, "-n", "default", "-o",
			"jsonpath={.status.conditions[*].reason}")
		if err == nil && !slices.Contains(strings.Fields(out), reason) {
			err = fmt.Errorf("ServiceExport %s: reasons %q, want %s", name, out, reason)
		}
		return err
	})
}

// testBadInput makes mistakes that people make. Each gets a report, and everything else goes on working.
func testBadInput(t *testing.T) {
	ctx := testContext(t)
	url := serviceURL(t)

	t.Run("exports that cannot be", func(t *testing.T) {
		must(t, world.Apply(ctx, "west", `
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: missing, namespace: default}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: antrea-mc-nginx, namespace: default}
`))
		exportCondition(t, "west", "missing", "ServiceNotFound")
		exportCondition(t, "west", "antrea-mc-nginx", "ImportedService")
		kubectl(t, "west", "delete", "serviceexport", "-n", "default", "missing", "antrea-mc-nginx")
	})

	t.Run("ports that conflict", func(t *testing.T) {
		kubectl(t, "east", "patch", "service", "nginx", "-n", "default", "--type=json", "-p",
			`[{"op":"replace","path":"/spec/ports/0/port","value":81}]`)
		must(t, world.Export(ctx, "east"))
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, "north", "get", "resourceexport", "-n", "antrea-multicluster",
				"test-cluster-east-default-nginx-service",
				"-o", `jsonpath={.status.conditions[?(@.type=="Succeeded")].reason}`)
			if err == nil && out != "PortConflict" {
				err = fmt.Errorf("reason %q, want PortConflict", out)
			}
			return err
		})
		for _, cluster := range []string{"east", "west"} {
			exportCondition(t, cluster, "nginx", "PortConflict")
		}
		kubectl(t, "east", "delete", "serviceexport", "nginx", "-n", "default")
		kubectl(t, "east", "patch", "service", "nginx", "-n", "default", "--type=json", "-p",
			`[{"op":"replace","path":"/spec/ports/0/port","value":80}]`)
	})

	t.Run("a second ClusterSet in a Namespace", func(t *testing.T) {
		err := world.Apply(ctx, "east", `
apiVersion: multicluster.crd.antrea.io/v1alpha2
kind: ClusterSet
metadata: {name: another, namespace: kube-system}
spec:
  clusterID: test-cluster-east
  leaders: [{clusterID: test-cluster-north, secret: member-east-token, server: "https://192.0.2.1:6443"}]
  namespace: antrea-multicluster
`)
		if err == nil || !strings.Contains(err.Error(), "ClusterSet") {
			t.Fatalf("want a refusal that names ClusterSet, got %v", err)
		}
	})

	t.Run("cluster information that cannot be used", func(t *testing.T) {
		// A member removes objects that are not its leader's at once. While the member's controller does not run, the agents
		// have to live with them.
		kubectl(t, "east", "scale", "deployment", "antrea-mc-controller", "-n", "kube-system", "--replicas=0")
		kubectl(t, "east", "wait", "--for=delete", "pod", "-l", "component=antrea-mc-controller", "-n", "kube-system",
			"--timeout=4m")
		must(t, world.Apply(ctx, "east", `
apiVersion: multicluster.crd.antrea.io/v1alpha1
kind: ClusterInfoImport
metadata: {name: bad-overlap, namespace: kube-system}
spec: {clusterID: zz-overlap, serviceCIDR: 10.98.0.0/16, gatewayInfos: [{gatewayIP: 192.0.2.7}]}
---
apiVersion: multicluster.crd.antrea.io/v1alpha1
kind: ClusterInfoImport
metadata: {name: bad-cidr, namespace: kube-system}
spec: {clusterID: zz-cidr, serviceCIDR: 10.300.0.0/16, gatewayInfos: [{gatewayIP: 192.0.2.8}]}
---
apiVersion: multicluster.crd.antrea.io/v1alpha1
kind: ClusterInfoImport
metadata: {name: bad-gateway, namespace: kube-system}
spec: {clusterID: zz-gateway, serviceCIDR: 10.199.0.0/16, gatewayInfos: [{gatewayIP: nonsense}]}
`))
		eventually(t, stateLimit, func(ctx context.Context) error {
			s, err := status(ctx, world.Lab.Cluster("east").Node("node-2"))
			if err != nil {
				return err
			}
			text := fmt.Sprint(s.Problems)
			for _, name := range []string{"bad-overlap", "bad-cidr", "bad-gateway"} {
				if !strings.Contains(text, name) {
					return fmt.Errorf("no Problem names %s: %s", name, text)
				}
			}
			return nil
		})
		ask(t, "east", "client", url+"/", 10)
		kubectl(t, "east", "scale", "deployment", "antrea-mc-controller", "-n", "kube-system", "--replicas=2")
		kubectl(t, "east", "rollout", "status", "deployment", "antrea-mc-controller", "-n", "kube-system", "--timeout=4m")
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, "east", "get", "clusterinfoimport", "-n", "kube-system", "-o", "name")
			if err == nil && strings.Contains(out, "bad-") {
				err = fmt.Errorf("the member has not removed what is not of its leader: %s", out)
			}
			return err
		})
	})

	t.Run("a Gateway with an unusable address", func(t *testing.T) {
		kubectl(t, "north", "annotate", "--overwrite", "node", "node-1", "multicluster.antrea.io/gateway-ip=nonsense")
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, "north", "get", "events", "-A", "--field-selector",
				"involvedObject.kind=Node,type=Warning", "-o", "jsonpath={.items[*].message}")
			if err == nil && !strings.Contains(out, "nonsense") {
				err = fmt.Errorf("no Event on the Node names the address: %s", out)
			}
			return err
		})
		kubectl(t, "north", "annotate", "node", "node-1", "multicluster.antrea.io/gateway-ip-")
		must(t, world.ChooseGateway(ctx, "north", "node-1"))
	})

	t.Run("a Gateway address that nobody reaches", func(t *testing.T) {
		const dead = "192.0.2.77"
		kubectl(t, "north", "annotate", "--overwrite", "node", "node-1", "multicluster.antrea.io/gateway-ip="+dead)
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, "east", "get", "clusterset", "test-clusterset", "-n", "kube-system", "-o",
				`jsonpath={.status.clusterStatuses[?(@.clusterID=="test-cluster-north")]`+
					`.conditions[?(@.type=="Reachable")].message}`)
			for _, want := range []string{"to " + dead, "Check that these are addresses"} {
				if err == nil && !strings.Contains(out, want) {
					err = fmt.Errorf("east's ClusterSet says of north %q, want %q in it", out, want)
				}
			}
			return err
		})
		ask(t, "east", "client", url+"/", 10)
		kubectl(t, "north", "annotate", "node", "node-1", "multicluster.antrea.io/gateway-ip-")
		must(t, world.ChooseGateway(ctx, "north", "node-1"))
	})

	t.Run("a wrong token", func(t *testing.T) {
		good := kubectl(t, "north", "get", "secret", "member-north-token", "-n", "kube-system", "-o",
			"jsonpath={.data.token}")
		kubectl(t, "north", "patch", "secret", "member-north-token", "-n", "kube-system", "-p",
			`{"data":{"token":"bm9uc2Vuc2U="}}`)
		must(t, world.WaitReady(ctx, "north", "test-clusterset", "False", stateLimit))
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, "north", "get", "clusterset", "test-clusterset", "-n", "kube-system", "-o",
				"jsonpath={.status.clusterStatuses}")
			for _, want := range []string{"Disconnected", "Secret"} {
				if err == nil && !strings.Contains(out, want) {
					err = fmt.Errorf("want %q in the condition, got %s", want, out)
				}
			}
			return err
		})
		kubectl(t, "north", "patch", "secret", "member-north-token", "-n", "kube-system", "-p",
			`{"data":{"token":"`+good+`"}}`)
		must(t, world.WaitReady(ctx, "north", "test-clusterset", "True", stateLimit))
	})
	ask(t, "east", "client", url+"/", 10)
}
