package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/test/manifests"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// testReplication exports the guide's policy that isolates Namespaces, with a Tier that no member has at first. Then
// Pods of another Namespace reach nothing in any member. Pods of the same Namespace and Pods of other clusters do.
func testReplication(t *testing.T) {
	ctx := testContext(t)
	text, err := manifests.V114().Part("replicated-policy")
	must(t, err)
	const name, imported = "strict-namespace-isolation-for-test-clusterset", "antrea-mc-strict-namespace-isolation"
	urls := map[string]string{}
	for _, cluster := range world.Members() {
		if cluster == scenario.Leader {
			continue // it has neither server nor client of its own
		}
		must(t, world.Apply(ctx, cluster, "apiVersion: v1\nkind: Namespace\nmetadata: {name: guests}\n"))
		must(t, world.ClientPod(ctx, cluster, "guests/guest", "node-2"))
		urls[cluster] = "http://" + kubectl(t, cluster, "get", "service", "nginx", "-n", "default", "-o",
			"jsonpath={.spec.clusterIP}") + "/"
		ask(t, cluster, "guests/guest", urls[cluster], 4)
	}

	t.Run("no such Tier", func(t *testing.T) {
		must(t, world.Apply(ctx, scenario.Leader, strings.Replace(text, "tier: securityops", "tier: random", 1)))
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, scenario.Leader, "describe", "resourceimport", "-A")
			for _, cluster := range world.Members() {
				if text := "does not exist in importing cluster " + scenario.ClusterID(cluster); !strings.Contains(out, text) {
					err = errors.Join(err, fmt.Errorf("no Event %q", text))
				}
			}
			return err
		})
		for cluster := range urls {
			if out, err := world.Kubectl(ctx, cluster, "get", "acnp", imported); err == nil {
				t.Errorf("%s has the policy without its Tier:\n%s", cluster, out)
			}
		}
	})
	t.Run("in force", func(t *testing.T) {
		must(t, world.Apply(ctx, scenario.Leader, text))
		for cluster, url := range urls {
			reaches(t, cluster, "guests/guest", url, false)
			ask(t, cluster, clientOf[cluster], url, 8)
		}
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, scenario.Leader, "get", "resourceexport", "-n", scenario.LeaderNamespace, name, "-o",
				"jsonpath={.status.conditions[0].message}")
			for _, cluster := range world.Members() {
				if !strings.Contains(out, scenario.ClusterID(cluster)) || strings.Contains(out, "not in") {
					err = errors.Join(err, fmt.Errorf("the export says %q, want the policy in place in %s", out, cluster))
				}
			}
			return err
		})
	})
	t.Run("other clusters are no Namespace", func(t *testing.T) {
		ip, err := world.ImportedIP(ctx, "east", "antrea-mc-nginx", 1, stateLimit)
		must(t, err)
		ask(t, "east", "client", "http://"+ip+"/", 8)
	})
	t.Run("and gone with its export", func(t *testing.T) {
		kubectl(t, scenario.Leader, "delete", "resourceexport", "-n", scenario.LeaderNamespace, name)
		for cluster, url := range urls {
			reaches(t, cluster, "guests/guest", url, true)
			kubectl(t, cluster, "delete", "namespace", "guests", "--wait=false")
		}
	})
}

// clientOf are Pods in the servers' own Namespace.
var clientOf = map[string]string{"east": "client", "west": "client-1"}
