package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// testInCluster is the CNI's own work, in one cluster: Pods on one Node and on two, Services, the host, the outside.
func testInCluster(t *testing.T) {
	ctx := testContext(t)
	must(t, world.Nginx(ctx, "west", 2))
	must(t, world.ClientPod(ctx, "west", "client-1", "node-1"))
	must(t, world.ClientPod(ctx, "west", "client-2", "node-2"))

	t.Run("antctl", testDebugCommands)
	t.Run("Pod to Pod", func(t *testing.T) {
		for _, ip := range podsOf(t, "nginx") {
			for _, client := range []string{"client-1", "client-2"} {
				ask(t, "west", client, "http://"+ip+":8080/", 3)
			}
		}
	})

	ip := kubectl(t, "west", "get", "service", "nginx", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
	t.Run("Service from a Pod", func(t *testing.T) {
		reachesBoth(t, "west", "client-1", "http://"+ip+"/") // the Service comes to each Node at its own time
		ask(t, "west", "client-1", "http://"+ip+"/", 60)
	})
	t.Run("Service from the Node", func(t *testing.T) {
		for _, node := range []string{"node-1", "node-2"} {
			eventually(t, stateLimit, func(ctx context.Context) error {
				_, err := world.Lab.Cluster("west").Node(node).Exec(ctx, "curl", "-sS", "--max-time", "5", "http://"+ip+"/")
				return err
			})
			for range 4 {
				nodeExec(t, "west", node, "curl", "-sS", "--max-time", "15", "http://"+ip+"/")
			}
		}
	})
	t.Run("API server by its Service", func(t *testing.T) {
		// The endpoint is outside the Pod network: from the Node the connection leaves through the port it came in by.
		api := kubectl(t, "west", "get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
		nodeExec(t, "west", "node-1", "curl", "-ksS", "--max-time", "15", "https://"+api+"/version")
	})
	t.Run("Pod to itself by its Service", func(t *testing.T) {
		must(t, world.Apply(ctx, "west", `
apiVersion: v1
kind: Service
metadata: {name: client-1, namespace: default}
spec:
  selector: {run: client-1}
  ports: [{port: 80, targetPort: 8080}]
`))
		kubectl(t, "west", "label", "pod", "client-1", "-n", "default", "run=client-1")
		own := kubectl(t, "west", "get", "service", "client-1", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
		eventually(t, stateLimit, func(ctx context.Context) error {
			a, err := get(ctx, "west", "client-1", "http://"+own+"/", 2)
			if err == nil && a.ok != 2 {
				err = fmt.Errorf("%d of 2 answered", a.ok)
			}
			return err
		})
		kubectl(t, "west", "delete", "service", "client-1", "-n", "default")
	})
	t.Run("NodeLatencyMonitor", testNodeLatency)
	t.Run("no endpoint is refused at once", func(t *testing.T) {
		must(t, world.Apply(ctx, "west", `
apiVersion: v1
kind: Service
metadata: {name: nobody, namespace: default}
spec:
  selector: {app: nobody}
  ports: [{port: 80}]
`))
		service := kubectl(t, "west", "get", "service", "nobody", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Exec(ctx, "west", "client-1", "/echo", "get", "http://"+service+"/", "--count", "1",
				"--timeout", "3s")
			if err == nil {
				return fmt.Errorf("answered: %s", out)
			}
			if !strings.Contains(out+err.Error(), "refused") {
				return fmt.Errorf("want connection refused, got: %w %s", err, out)
			}
			return nil
		})
		kubectl(t, "west", "delete", "service", "nobody", "-n", "default")
	})
	t.Run("outside", func(t *testing.T) {
		out, err := world.Exec(ctx, "west", "client-2", "/echo", "get", "http://"+world.Lab.Outside()+":8080/",
			"--count", "2")
		if err != nil {
			t.Fatalf("ask the host outside: %v\n%s", err, out)
		}
	})
	t.Run("someone else's address is dropped", func(t *testing.T) {
		pid := strings.TrimSpace(nodeExec(t, "west", "node-1", "sh", "-c", "ls /var/run/netns | head -1"))
		if pid == "" {
			t.Fatal("node-1 has no Pod network namespace")
		}
		before, err := classifyDrops(ctx)
		must(t, err)
		out, err := world.Lab.Cluster("west").Node("node-1").Exec(ctx, "nsenter", "--net=/var/run/netns/"+pid, "sh", "-c",
			"ip address add 10.12.99.99/32 dev eth0 && curl -sS --interface 10.12.99.99 --max-time 2 http://"+ip+
				"/; rc=$?; ip address del 10.12.99.99/32 dev eth0; exit $rc")
		if err == nil || !strings.Contains(out+err.Error(), "timed out") {
			t.Fatalf("a connection from an address that is not the Pod's: want a time-out, got %v: %s", err, out)
		}
		// The switch counts with a delay of a second or two.
		eventually(t, stateLimit, func(ctx context.Context) error {
			after, err := classifyDrops(ctx)
			if err == nil && after <= before {
				err = fmt.Errorf("no packet was dropped in Classify: %d before, %d after", before, after)
			}
			return err
		})
		// An operator anywhere reads who was dropped, and the reason.
		out, err = world.Lab.Tool(ctx, "west", "tombolo", "observe", "--from", "10.12.99.99", "--since", "5m")
		if err != nil || !strings.Contains(out, "10.12.99.99:") || !strings.Contains(out, "[node-1 Classify]") {
			t.Errorf("tombolo observe: %v: %s", err, out)
		}
	})
}

// classifyDrops counts the packets that only Classify's last flow took, which drops.
func classifyDrops(ctx context.Context) (int, error) {
	out, err := world.Lab.Cluster("west").Node("node-1").Exec(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int",
		"table=0")
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	for _, line := range strings.Split(out, "\n") {
		if m := lastFlow.FindStringSubmatch(line); m != nil {
			return strconv.Atoi(m[1])
		}
	}
	return 0, fmt.Errorf("no flow of priority 0 in table 0:\n%s", out)
}

var lastFlow = regexp.MustCompile(`n_packets=(\d+),.* priority=0 actions=`)
