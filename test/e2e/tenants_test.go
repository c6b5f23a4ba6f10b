package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// testTenants follows the guide of networks of tenants across clusters. Namespace blue is in both members, red in west
// alone. Their Pods are on different Nodes, so packets pass Gateways and regular Nodes.
func testTenants(t *testing.T) {
	ctx := testContext(t)
	leader := func(manifest string) { t.Helper(); must(t, world.Apply(ctx, "north", manifest)) }
	network := func(name, connection string, members ...string) {
		t.Helper()
		var list strings.Builder
		for _, m := range members {
			fmt.Fprintf(&list, "    - clusterID: test-cluster-%s\n      namespaceSelector: {matchLabels: {team: %s}}\n", m, name)
		}
		leader(fmt.Sprintf("apiVersion: tombolo.io/v1alpha1\nkind: TenantNetwork\n"+
			"metadata: {namespace: antrea-multicluster, name: %s}\nspec:\n  connections: [%s]\n  members:\n%s", name, connection,
			&list))
	}
	for _, at := range []struct{ cluster, namespace, node string }{
		{"east", "blue", "node-1"}, {"west", "blue", "node-2"}, {"west", "red", "node-1"}, {"east", "plain", "node-2"},
	} {
		kubectl(t, at.cluster, "create", "namespace", at.namespace)
		t.Cleanup(func() {
			_, _ = world.Kubectl(context.WithoutCancel(ctx), at.cluster, "delete", "namespace", at.namespace, "--wait=false")
		})
		if at.namespace != "plain" {
			kubectl(t, at.cluster, "label", "namespace", at.namespace, "team="+at.namespace,
				"core.juniper.net/isolated-namespace=true")
		}
		must(t, world.ClientPod(ctx, at.cluster, at.namespace+"/web", at.node))
	}
	url := func(cluster, namespace string) string {
		t.Helper()
		return "http://" + kubectl(t, cluster, "get", "pod", "web", "-n", namespace, "-o", "jsonpath={.status.podIP}") + ":8080/"
	}
	east, west, red := url("east", "blue"), url("west", "blue"), url("west", "red")
	apart := func() {
		t.Helper()
		reaches(t, "east", "blue/web", west, false)
		reaches(t, "west", "blue/web", east, false)
	}

	network("blue", "", "east", "west")
	network("red", "", "west")
	apart() // no Namespace has agreed
	for _, at := range [][2]string{{"east", "blue"}, {"west", "blue"}, {"west", "red"}} {
		kubectl(t, at[0], "annotate", "namespace", at[1], "tombolo.io/tenant-network="+at[1])
	}
	reaches(t, "east", "blue/web", west, true)
	reaches(t, "west", "blue/web", east, true)
	number := kubectl(t, "north", "get", "tn", "blue", "-n", "antrea-multicluster", "-o", "jsonpath={.status.number}")
	for _, cluster := range []string{"east", "west"} {
		if have := kubectl(t, cluster, "get", "tni", "blue", "-o", "jsonpath={.spec.number}"); have != number || have == "" {
			t.Errorf("network blue has number %q in %s, and %q at the leader", have, cluster, number)
		}
	}
	notJoined := func() {
		t.Helper()
		reaches(t, "west", "red/web", east, false)
		reaches(t, "west", "red/web", west, false)
		reaches(t, "east", "blue/web", red, false)
		reaches(t, "east", "plain/web", west, false)
	}
	notJoined()

	leader("apiVersion: tombolo.io/v1alpha1\nkind: NetworkConnection\n" +
		"metadata: {namespace: antrea-multicluster, name: platform}\nspec: {hubs: [blue], spokes: [red]}\n")
	network("blue", "platform", "east", "west")
	notJoined() // red has not agreed
	network("red", "platform", "west")
	reaches(t, "west", "red/web", east, true)
	reaches(t, "west", "red/web", west, true)
	reaches(t, "east", "blue/web", red, true)
	reaches(t, "east", "plain/web", red, false)
	network("red", "", "west")
	notJoined()

	kubectl(t, "north", "delete", "tn", "blue", "red", "-n", "antrea-multicluster")
	kubectl(t, "north", "delete", "nc", "platform", "-n", "antrea-multicluster")
	apart()
	eventually(t, stateLimit, func(ctx context.Context) error {
		if out, err := world.Kubectl(ctx, "east", "get", "tni", "-o", "name"); err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("the imports of deleted networks are there: %q, %w", out, err)
		}
		return nil
	})
}
