package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/deploy/charts"
	checks "github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// finds waits until the first failed check names a fault.
func finds(t *testing.T, code string, want []string, args ...string) {
	t.Helper()
	start := time.Now()
	eventually(t, stateLimit, func(ctx context.Context) error {
		d, err := world.Diagnose(ctx, args...)
		if err != nil {
			return err
		}
		first, ok := d.First()
		if !ok || first.Code != code {
			return fmt.Errorf("want %s first:\n%s", code, d.Faults())
		}
		printed := scenario.Printed([]checks.Result{first})
		for _, w := range want {
			if !strings.Contains(printed, w) {
				return fmt.Errorf("%q is not in\n%s", w, printed)
			}
		}
		t.Logf("found after %s, of which the command took %.1f s\n%s", time.Since(start).Round(100*time.Millisecond),
			d.Seconds, printed)
		return nil
	})
}

// glance wants each cluster without a fault in `tombolo status`, and one version everywhere.
func glance(t *testing.T) {
	t.Helper()
	contexts := world.Kubeconfigs()
	for _, args := range [][]string{{"status", "--context", contexts, "--wait", "1m"},
		{"version", "--context", contexts}} {
		// An agent of a busy machine may answer after the command's limit.
		eventually(t, time.Minute, func(ctx context.Context) error {
			out, err := world.Lab.Tool(ctx, "north", "tombolo", args...)
			if err != nil || strings.Count(out, "/kubeconfig ") != len(world.Members()) {
				return fmt.Errorf("tombolo %s: %w\n%s", args[0], err, out)
			}
			t.Log(out)
			return nil
		})
	}
}

// helmTest runs the Pod of `helm test` in the east as Helm does, with the chart's account and admission policy.
func helmTest(t *testing.T) {
	t.Helper()
	text, err := charts.Tests(filepath.Join(world.Lab.Repo(), "deploy", "charts"), charts.Agent, "kube-system",
		map[string]any{"images": map[string]any{"pullPolicy": "Never"}})
	must(t, err)
	must(t, world.Apply(testContext(t), "east", text))
	kubectl(t, "east", "wait", "pod/tombolo-test", "-n", "kube-system", "--for=jsonpath={.status.phase}=Succeeded",
		"--timeout=3m")
	if log := kubectl(t, "east", "logs", "tombolo-test", "-n", "kube-system"); !strings.Contains(log, " OK") {
		t.Errorf("the log of the Pod of helm test has no OK:\n%s", log)
	}
	_, err = world.Lab.Cluster("east").KubectlInput(testContext(t), text, "delete", "--now", "-f", "-")
	must(t, err)
}

// healthy waits until no check fails or is unknown.
func healthy(t *testing.T) {
	t.Helper()
	eventually(t, stateLimit, func(ctx context.Context) error {
		d, err := world.Diagnose(ctx)
		if err == nil && d.Failed+d.Unknown > 0 {
			err = errors.New(d.Faults())
		}
		if err == nil {
			t.Logf("healthy: %d results in %.1f s", len(d.Results), d.Seconds)
		}
		return err
	})
}

// testDiagnose has `tombolo diagnose` find nothing in healthy clusters, and name faults that the test makes.
func testDiagnose(t *testing.T) {
	healthy(t)
	glance(t)
	helmTest(t)
	const objects = `
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: default}
spec: {selector: {app: missing}, ports: [{port: 80}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: empty, namespace: default}
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: diagnose}
spec: {priority: 5, appliedTo: [{group: missing}], ingress: [{action: Allow}]}
`
	must(t, world.Apply(testContext(t), "east", objects)) // statuses have half a minute to be right

	east := world.Lab.Cluster("east").Node(gatewayOf(t, "east"))
	west := world.Lab.Cluster("west").Node(gatewayOf(t, "west"))
	firewall := func(rules string) {
		onRouter(t, "table ip e2e-diagnose { chain forward { type filter hook forward priority filter; "+rules+"; }; }",
			"nft",
			"-f", "-")
	}
	t.Cleanup(func() { // a failed step must not stop the others; most often the table is gone
		_, _ = world.Lab.RouterExec(context.WithoutCancel(t.Context()), "", "nft", "delete", "table", "ip", "e2e-diagnose")
	})
	open := func() { onRouter(t, "", "nft", "delete", "table", "ip", "e2e-diagnose") }
	firewall(fmt.Sprintf("ip saddr %s ip daddr %s udp dport 6081 drop", east.InternalIP(), west.InternalIP()))
	finds(t, "TD036", []string{"UDP 6081 (geneve) from east/kubeconfig/" + east.Name() + " to " +
		"west/kubeconfig/" + west.Name() +
		" does not arrive, and the other direction works", "remedy: let UDP 6081"})
	open()
	firewall(fmt.Sprintf("ip saddr %s udp dport 6081 drop; ip daddr %s udp dport 6081 drop", west.InternalIP(),
		west.InternalIP()))
	finds(t, "TD035", []string{"Gateway west/kubeconfig/" + west.Name() + ": it is cut off: all 2 ways"})
	open()

	node := world.Lab.Cluster("east").Node(regular(t, "east"))
	must(t, node.Signal("tombolo-agent", syscall.SIGSTOP))
	t.Cleanup(func() { _ = node.Signal("tombolo-agent", syscall.SIGCONT) })
	finds(t, "TD011", []string{"Node " + node.Name(), "there was no answer within 4s"}, "--timeout", "4s")
	must(t, node.Signal("tombolo-agent", syscall.SIGCONT))

	secret := func(cluster string) string {
		return kubectl(t, cluster, "get", "secret", "-n", "kube-system", "member-"+cluster+"-token", "-o",
			"jsonpath={.data.token}")
	}
	own := secret("west")
	token := func(text string) {
		kubectl(t, "west", "patch", "secret", "-n", "kube-system", "member-west-token", "-p", `{"data":{"token":"`+text+`"}}`)
	}
	token(secret("east"))
	finds(t, "TD021", []string{"east/kubeconfig and west/kubeconfig use the token of one account", "create membertoken"})
	token("d3Jvbmc=")
	finds(t, "TD020", []string{"Secret kube-system/member-west-token", "three parts"})
	token(own)

	const theirs = "10.11.0.0/16" // of east
	before := memberSets(t, "north", map[string]string{"podCIDRs": `["` + theirs + `"]`})
	finds(t, "TD030", []string{"the Pod range " + theirs + " of north/kubeconfig meets the Pod range " + theirs + " of " +
		"east"})
	memberSets(t, "north", before)

	finds(t, "TD042", []string{"east/kubeconfig: Service default/empty", "no ready endpoint"})
	kubectl(t, "east", "delete", "service,serviceexport", "empty", "-n", "default")
	finds(t, "TD050", []string{"ClusterNetworkPolicy diagnose", "there is no ClusterGroup missing"})
	kubectl(t, "east", "delete", "clusternetworkpolicies.crd.antrea.io", "diagnose")
	healthy(t)
}
