package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// inForce is how many times the test measures the time until a policy is in force between two clusters.
var inForce = flag.Int("inforce", 5,
	"measure so often how long a policy takes until it is in force between two clusters")

// fromAll applies a ClusterNetworkPolicy of west to the servers. It has rules about clients of all clusters, in one
// line each.
func fromAll(t *testing.T, rules ...string) {
	t.Helper()
	must(t, world.Apply(testContext(t), "west", `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: stretched}
spec:
  tier: securityops
  priority: 1
  appliedTo:
    - podSelector: {matchLabels: {app: nginx}}
      namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
  ingress:
    - `+strings.Join(rules, "\n    - ")+"\n"))
}

// testStretchedPolicies follows the guide's chapter on policies over all clusters. They are applied to servers on a
// Gateway and on a regular Node of west. Clients on both Nodes of east are distinguished by their labels and their
// Namespaces' labels.
func testStretchedPolicies(t *testing.T) {
	ctx := testContext(t)
	url := serviceURL(t) + "/"
	west := "http://" + kubectl(t, "west", "get", "service", "nginx", "-n", "default", "-o",
		"jsonpath={.spec.clusterIP}") + "/"
	answered := func(want map[string]bool) {
		t.Helper()
		for client, want := range want {
			cluster, at := "east", url
			if strings.HasPrefix(client, "client-1") {
				cluster, at = "west", west
			}
			reaches(t, cluster, client, at, want)
		}
	}
	const regular, gateway, local = "client", "client-gw", "client-1"

	t.Run("by Pod labels, Drop", func(t *testing.T) {
		fromAll(t, `{action: Drop, from: [{scope: ClusterSet, podSelector: {matchLabels: {app: client}}}]}`)
		answered(map[string]bool{regular: false, gateway: false, local: false})
	})
	t.Run("Reject", func(t *testing.T) {
		fromAll(t, `{action: Reject, from: [{scope: ClusterSet, podSelector: {matchLabels: {app: client}}}]}`)
		for _, client := range []string{regular, gateway} {
			eventually(t, stateLimit, func(ctx context.Context) error {
				out, err := world.Exec(ctx, "east", client, "/echo", "get", url, "--count", "8", "--timeout", "1s")
				if n := strings.Count(out, "connection refused"); n != 8 {
					return fmt.Errorf("%d of 8 refused: %w\n%s", n, err, out)
				}
				return nil
			})
		}
	})
	t.Run("a Pod gets other labels", func(t *testing.T) {
		kubectl(t, "east", "label", "pod", regular, "-n", "default", "--overwrite", "app=friend")
		reachesBoth(t, "east", regular, url)
		answered(map[string]bool{gateway: false})
	})
	t.Run("Allow, and the agents restart", func(t *testing.T) {
		fromAll(t, `{action: Allow, from: [{scope: ClusterSet, podSelector: {matchLabels: {app: friend}}}]}`,
			`{action: Drop}`)
		answered(map[string]bool{gateway: false})
		reachesBoth(t, "east", regular, url)
		requests := background(t, "/echo", "get", url, "--count", "100", "--interval", "50ms", "--timeout", lossLimit)
		nodeExec(t, "east", "node-2", "pkill", "-KILL", "-x", "tombolo-agent")
		nodeExec(t, "west", "node-1", "pkill", "-KILL", "-x", "tombolo-agent")
		requests()
		answered(map[string]bool{regular: true, gateway: false})
	})
	t.Run("by Pod and Namespace labels", func(t *testing.T) {
		fromAll(t, `{action: Drop, from: [{scope: ClusterSet, podSelector: {matchLabels: {app: client}}, `+
			`namespaceSelector: {matchLabels: {team: red}}}]}`)
		answered(map[string]bool{regular: true, gateway: true, local: true})
		kubectl(t, "east", "label", "namespace", "default", "team=red")
		answered(map[string]bool{gateway: false, regular: true, local: true})
	})
	t.Run("by Namespace labels alone", func(t *testing.T) {
		fromAll(t, `{action: Drop, from: [{scope: ClusterSet, namespaceSelector: {matchLabels: {team: red}}}]}`)
		answered(map[string]bool{regular: false, gateway: false, local: true})
		kubectl(t, "east", "label", "namespace", "default", "team-")
		answered(map[string]bool{regular: true, gateway: true})
	})
	kubectl(t, "west", "delete", "acnp", "stretched")
	kubectl(t, "east", "label", "pod", regular, "-n", "default", "--overwrite", "app=client")

	t.Run("time until it is in force", func(t *testing.T) {
		reachesBoth(t, "east", regular, url)
		ended := world.Load(ctx, url)
		type change struct{ began, done, seen time.Time }
		var changes []change
		for range *inForce {
			c := change{began: time.Now()}
			fromAll(t, `{action: Drop, from: [{scope: ClusterSet, podSelector: {matchLabels: {app: client}}}]}`)
			c.done = time.Now()
			answered(map[string]bool{regular: false})
			c.seen = time.Now()
			changes = append(changes, c)
			kubectl(t, "west", "delete", "acnp", "stretched")
			answered(map[string]bool{regular: true})
		}
		observed, err := ended()
		must(t, err)
		var after []time.Duration // kubectl has returned; before zero where it was in force by then
		for _, c := range changes {
			last := observed.LastAnswered(c.began, c.seen)
			after = append(after, max(0, last.Sub(c.done)).Round(time.Millisecond))
		}
		slices.Sort(after)
		t.Logf("a policy with scope ClusterSet drops new connections of another cluster after kubectl has returned: p50 "+
			"%s, p99 %s, of %d changes",
			after[len(after)/2], after[len(after)*99/100], len(after))
	})
	t.Run("toServices", func(t *testing.T) {
		must(t, world.Apply(ctx, "east", `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: to-services}
spec:
  tier: securityops
  priority: 1
  appliedTo: [{podSelector: {matchLabels: {app: client}}}]
  egress: [{action: Drop, toServices: [{name: nginx, namespace: default, scope: ClusterSet}]}]
`))
		answered(map[string]bool{regular: false, gateway: false})
		kubectl(t, "east", "delete", "acnp", "to-services")
		answered(map[string]bool{regular: true, gateway: true})
	})
	t.Run("egress to Pods", func(t *testing.T) {
		must(t, world.ClientPod(ctx, "west", "far", "node-2"))
		defer kubectl(t, "west", "delete", "pod", "far", "-n", "default", "--wait=false")
		far := "http://" + kubectl(t, "west", "get", "pod", "far", "-n", "default", "-o",
			"jsonpath={.status.podIP}") + ":8080/"
		to := func(want map[string]bool) {
			t.Helper()
			for client, want := range want {
				reaches(t, "east", client, far, want)
			}
		}
		to(map[string]bool{regular: true, gateway: true})
		must(t, world.Apply(ctx, "east", `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: to-pods}
spec:
  tier: securityops
  priority: 1
  appliedTo: [{podSelector: {matchLabels: {app: client}}}]
  egress: [{action: Reject, to: [{scope: ClusterSet, podSelector: {matchLabels: {secret: "yes"}}}]}]
`))
		defer kubectl(t, "east", "delete", "acnp", "to-pods")
		kubectl(t, "west", "label", "pod", "far", "-n", "default", "secret=yes")
		to(map[string]bool{regular: false, gateway: false})
		answered(map[string]bool{regular: true, gateway: true}) // the others of west
		kubectl(t, "west", "label", "pod", "far", "-n", "default", "secret=no", "--overwrite")
		to(map[string]bool{regular: true, gateway: true})
	})
}
