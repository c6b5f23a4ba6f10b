package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/test/manifests"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// joining is a document's procedure to join three clusters. Its manifests (test/manifests) are applied unedited except
// for the leader's address.
type joining struct {
	leaderNamespace, clusterSet string
	server                      string // the leader's address in the document
	access                      []string
	tokens                      map[string]string // Secret, by cluster
	leader                      string
	update                      string            // of the leader's ClusterSet when the members are there
	members                     map[string]string // manifest, by cluster
	ids                         map[string]string // cluster ID, by cluster
}

// testGuideOfV15 follows the guide of v1.5: ClusterClaims and ClusterSet v1alpha1, access for each member, the leader a
// member too.
func testGuideOfV15(t *testing.T) {
	ctx := testContext(t)
	part := func(name string) string {
		t.Helper()
		m, err := manifests.V15().Part(name)
		must(t, err)
		return m
	}
	// Each controller takes a Node's host ports, and this cluster has two Nodes.
	kubectl(t, "north", "scale", "deployment", "antrea-mc-controller", "-n", scenario.LeaderNamespace, "--replicas=0")
	kubectl(t, "north", "wait", "--for=delete", "pod", "-l", "component=antrea-mc-controller", "-n",
		scenario.LeaderNamespace, "--timeout=4m")
	must(t, world.Lab.InstallLeader(ctx, "antrea-mcs-ns"))

	east := part("access-east")
	j := joining{
		leaderNamespace: "antrea-mcs-ns", clusterSet: "test-clusterset", server: "https://172.18.0.2:6443",
		access: []string{
			east,
			strings.ReplaceAll(east, "east", "west"), // as the guide says to
			part("access-north"),
		},
		leader:  part("leader"),
		update:  part("leader-with-north"),
		tokens:  map[string]string{},
		members: map[string]string{},
		ids:     map[string]string{},
	}
	for _, c := range world.Members() {
		j.tokens[c] = "member-" + c + "-access-token"
		j.members[c] = part("member-" + c)
		j.ids[c] = scenario.ClusterID(c)
	}
	j.run(t)

	kubectl(t, "north", "delete", "deployment", "antrea-mc-controller", "-n", "antrea-mcs-ns")
	kubectl(t, "north", "delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "-l",
		"served-in=antrea-mcs-ns")
	kubectl(t, "north", "delete", "namespace", "antrea-mcs-ns", "--timeout=4m")
	kubectl(t, "north", "scale", "deployment", "antrea-mc-controller", "-n", scenario.LeaderNamespace, "--replicas=2")
	kubectl(t, "north", "rollout", "status", "deployment", "antrea-mc-controller", "-n", scenario.LeaderNamespace,
		"--timeout=4m")
}

// testThreeClusters follows the walk-through with ClusterClaims v1alpha2 and ClusterSet v1alpha1.
func testThreeClusters(t *testing.T) {
	part := func(name string) string {
		t.Helper()
		m, err := manifests.ThreeClusters().Part(name)
		must(t, err)
		return m
	}
	names := map[string]string{"north": "db", "east": "01", "west": "02"}
	j := joining{
		leaderNamespace: "antrea-multicluster", clusterSet: "tanzuhispano-clusterset", server: "https://10.118.5.200:6443",
		access:  []string{part("access")},
		leader:  part("leader"),
		tokens:  map[string]string{},
		members: map[string]string{},
		ids:     map[string]string{},
	}
	for c, name := range names {
		j.tokens[c] = "member-tanzuhispano-" + name + "-token"
		j.members[c] = part("member-" + name)
		j.ids[c] = "tanzuhispano-cluster-" + name
	}
	j.run(t)
}

// run joins, checks that all are Ready, and leaves again.
func (j joining) run(t *testing.T) {
	t.Helper()
	ctx := testContext(t)
	for _, m := range j.access {
		must(t, world.Apply(ctx, "north", m))
	}
	for cluster, name := range j.tokens {
		token, err := world.TokenSecret(ctx, j.leaderNamespace, name)
		must(t, err)
		must(t, world.Apply(ctx, cluster, token))
	}
	must(t, world.Apply(ctx, "north", j.leader))
	for cluster, m := range j.members {
		must(t, world.Apply(ctx, cluster, strings.ReplaceAll(m, j.server, world.Lab.Cluster("north").Server())))
	}
	if j.update != "" {
		must(t, world.Apply(ctx, "north", j.update))
	}
	for cluster := range j.members {
		must(t, world.WaitJoined(ctx, cluster, j.clusterSet, stateLimit))
	}
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Lab.Tool(ctx, "north", "tombolo", "mc", "get", "clusterset", j.clusterSet, "-n", j.leaderNamespace)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, id := range j.ids {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), id+" "+j.leaderNamespace+" "+j.clusterSet+
				" Ready True Connected") {
				return fmt.Errorf("%s is not Ready:\n%s", id, out)
			}
		}
		return nil
	})

	for cluster := range j.members {
		kubectl(t, cluster, "delete", "clusterset", j.clusterSet, "-n", scenario.MemberNamespace)
		kubectl(t, cluster, "delete", "clusterclaim", "--all", "-n", scenario.MemberNamespace)
	}
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Kubectl(ctx, "north", "get", "memberclusterannounce", "-n", j.leaderNamespace, "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("the members have left, and still there is %s", out)
		}
		return err
	})
	kubectl(t, "north", "delete", "clusterset", j.clusterSet, "-n", j.leaderNamespace)
	kubectl(t, "north", "delete", "clusterclaim", "--all", "-n", j.leaderNamespace)
}
