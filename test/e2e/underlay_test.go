package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// testUnderlay is row 2 of the guide's table of configurations. The network between the clusters routes Pods, no
// cluster has a Gateway, and an exported Service has the addresses of its Pods.
func testUnderlay(t *testing.T) {
	ctx := testContext(t)
	must(t, world.ClientPod(ctx, "east", "client", "node-2"))
	clusterIPs := memberSets(t, "west", map[string]string{"endpointIPType": "PodIP"})
	must(t, world.ExportPods(ctx, "west", "underlay", "app: nginx"))
	ip, err := world.ImportedIP(ctx, "east", "antrea-mc-underlay", 2, stateLimit)
	must(t, err)
	url := "http://" + ip + "/"
	unanswered := func() {
		t.Helper()
		if a, err := get(ctx, "east", "client", url, 4, "--timeout", "500ms"); err == nil || a.ok > 0 {
			t.Errorf("without routes to Pods %d of 4 requests are answered: %v", a.ok, err)
		}
	}

	unanswered()
	t.Cleanup(func() { must(t, world.Lab.RoutePods(context.WithoutCancel(ctx), false)) })
	must(t, world.Lab.RoutePods(ctx, true))
	start := time.Now()
	waitAnswer(t, "east", "client", url)
	t.Logf("the first answer came %.1f s after the network had routes to Pods", time.Since(start).Seconds())
	ask(t, "east", "client", url, 50)
	reachesBoth(t, "east", "client", url)
	nodeExec(t, "east", "node-2", "curl", "-sS", "--fail", "--max-time", "15", url)
	must(t, world.Lab.RoutePods(ctx, false))
	unanswered()

	kubectl(t, "west", "delete", "serviceexport,service", "underlay", "-n", "default")
	memberSets(t, "west", clusterIPs)
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Kubectl(ctx, "east", "get", "service", "antrea-mc-underlay", "-n", "default",
			"--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = errors.New(scenario.ClusterID("east") + " still has " + out)
		}
		return err
	})
}
