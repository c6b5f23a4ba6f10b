package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// verify runs `tombolo mc verify` about east and west.
func verify(t *testing.T, args ...string) (string, error) {
	t.Helper()
	east, west := world.Lab.Cluster("east").Kubeconfig(), world.Lab.Cluster("west").Kubeconfig()
	return world.Lab.Tool(testContext(t), "east", "tombolo", append([]string{"mc", "verify", east, west}, args...)...)
}

// verifyWithoutGateways has it name what is missing, before anything is made.
func verifyWithoutGateways(t *testing.T) {
	out, err := verify(t)
	if err == nil {
		t.Error("clusters without gateways pass")
	}
	for _, want := range []string{"is a Ready member of ClusterSet test-clusterset as test-cluster-east", "has no Gateway",
		"annotate a Ready Node", "packets: not tried"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// testVerify checks that the command finds packets and policies in order, both ways, and leaves no objects behind.
func testVerify(t *testing.T) {
	start := time.Now()
	out, err := verify(t)
	if err != nil {
		t.Errorf("%v after %s", err, time.Since(start))
	}
	t.Logf("%s in all\n%s", time.Since(start).Round(time.Second), out)
	for _, check := range []string{"ways", "Services", "MTU", "policy"} {
		if n := strings.Count(out, " "+check+" "); n < 2 {
			t.Errorf("%s is checked %d times, want both ways", check, n)
		}
	}
	nothingLeft(t)
	t.Run("Pods that cannot run", func(t *testing.T) {
		out, err := verify(t, "--image", "tombolo/none:dev", "--wait", "4s", "--json")
		for _, want := range []string{`"passed": false`, `"status": "fail"`, "Pod server in east/kubeconfig: ",
			"Pods of image tombolo/none:dev have to be able to run there"} {
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("%v, %q is not in\n%s", err, want, out)
			}
		}
		nothingLeft(t)
	})
	t.Run("interrupted", func(t *testing.T) {
		made := make(chan bool, 1)
		ctx, cancel := context.WithCancel(testContext(t))
		go func() {
			made <- nil == scenario.Eventually(ctx, stateLimit, func(ctx context.Context) error {
				out, err := world.Kubectl(ctx, "west", "get", "pods", "-A", "-l", "app=tombolo-verify-server", "-o", "name")
				if err == nil && strings.TrimSpace(out) == "" {
					err = errors.New("no Pod yet")
				}
				return err
			})
			cancel()
		}()
		east, west := world.Lab.Cluster("east").Kubeconfig(), world.Lab.Cluster("west").Kubeconfig()
		out, err := world.Lab.Tool(ctx, "east", "tombolo", "mc", "verify", east, west)
		if !<-made || err == nil || !strings.Contains(out, "checks failed") {
			t.Errorf("%v\n%s", err, out)
		}
		nothingLeft(t)
	})
}

// testBenchmark measures the Nodes of east and west, and between the two. An interrupt leaves no objects behind.
func testBenchmark(t *testing.T) {
	contexts := world.Lab.Cluster("east").Kubeconfig() + "," + world.Lab.Cluster("west").Kubeconfig()
	// Steps that run meanwhile have to stay as they are, so the load is small. 40 s are the least for these ways.
	args := []string{"benchmark", "--context", contexts, "--hosts", "--time", "40s", "--rate", "100M",
		"--connections", "200"}
	out, err := world.Lab.Tool(testContext(t), "east", "tombolo", args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	if strings.Contains(out, "not measured") {
		t.Error("a way does not answer")
	}
	for _, way := range []string{"  same Node ", "  other Node ", "  other cluster ", "hosts, other Node ",
		"hosts, other cluster "} {
		if n := strings.Count(out, way); n < 2 {
			t.Errorf("%q has %d rows, want one of each cluster", way, n)
		}
	}
	measured := func() {
		t.Helper()
		for _, cluster := range []string{"east", "west"} {
			if left := kubectl(t, cluster, "get", "namespaces", "-o", "name", "-l", "app=tombolo-benchmark"); left != "" {
				t.Errorf("left in %s: %s", cluster, left)
			}
		}
	}
	measured()
	ctx, cancel := context.WithCancel(testContext(t))
	made := make(chan error, 1)
	go func() {
		made <- scenario.Eventually(ctx, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, "east", "get", "pods", "-n", "tombolo-benchmark", "-o", "name")
			if err == nil && !strings.Contains(out, "benchmark-client") {
				err = errors.New("no client yet: " + out)
			}
			return err
		})
		cancel()
	}()
	out, err = world.Lab.Tool(ctx, "east", "tombolo", args...)
	if notMade := <-made; notMade != nil || err == nil {
		t.Errorf("%v, %v\n%s", notMade, err, out)
	}
	measured()
}

func nothingLeft(t *testing.T) {
	t.Helper()
	for _, cluster := range []string{"east", "west"} {
		left := kubectl(t, cluster, "get", "namespaces", "-o", "name", "-l", "app=tombolo-verify")
		if strings.TrimSpace(left) != "" {
			t.Errorf("left in %s: %s", cluster, left)
		}
	}
}
