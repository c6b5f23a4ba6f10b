package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/lab"
)

// everyNode calls f for each Node on the way from east to west and back.
func everyNode(f func(cluster string, n *lab.Node)) {
	for _, cluster := range []string{"east", "west"} {
		for _, name := range []string{"node-1", "node-2"} {
			f(cluster, world.Lab.Cluster(cluster).Node(name))
		}
	}
}

// status asks an agent how it is.
func status(ctx context.Context, n *lab.Node) (api.Status, error) {
	out, err := n.Exec(ctx, "curl", "-sS", "--max-time", "3", "--unix-socket", api.DefaultSocket,
		"http://agent"+api.PathStatus)
	if err != nil {
		return api.Status{}, fmt.Errorf("%w: %s", err, out)
	}
	var s api.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return api.Status{}, fmt.Errorf("status: %w: %s", err, out)
	}
	return s, nil
}

// serviceURL is the imported Service as a client in east sees it.
func serviceURL(t *testing.T) string {
	t.Helper()
	ip, err := world.ImportedIP(testContext(t), "east", "antrea-mc-nginx", 1, stateLimit)
	must(t, err)
	return "http://" + ip
}

// lossLimit is the time limit of a request that may lose packets while the switch of a Node waits for a processor. TCP
// sends a SYN again after 1 s and after 3 s.
const lossLimit = "6s"

// background runs one command of the echo client while a test goes on. It returns a function that checks the result.
func background(t *testing.T, args ...string) func() {
	t.Helper()
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	ctx := testContext(t)
	go func() {
		out, err := world.Exec(ctx, "east", "client", args...)
		done <- result{out, err}
	}()
	return func() {
		t.Helper()
		r := <-done
		if r.err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), r.err, r.out)
		} else {
			t.Logf("%s:\n%s", strings.Join(args, " "), r.out)
		}
	}
}

// quiet waits until every cluster has the two others, no connection waits to be judged again or to be flushed, and no
// agent on the path has changed its switch for three seconds.
func quiet(t *testing.T) {
	t.Helper()
	type counters struct{ flowMods, groupMods uint64 }
	var before map[string]counters
	var since time.Time
	eventually(t, 4*time.Minute, func(ctx context.Context) error {
		for _, cluster := range world.Members() {
			out, err := world.Kubectl(ctx, cluster, "get", "clusterinfoimport", "-n", "kube-system", "-o", "name")
			if err != nil {
				return err
			}
			if n := len(strings.Fields(out)); n != len(world.Members())-1 {
				return fmt.Errorf("%s knows %d other clusters: %s", cluster, n, out)
			}
		}
		now := map[string]counters{}
		var failed error
		everyNode(func(cluster string, n *lab.Node) {
			s, err := status(ctx, n)
			failed = errors.Join(failed, err)
			now[cluster+"/"+n.Name()] = counters{s.OpenFlow.FlowMods, s.OpenFlow.GroupMods}
			out, err := n.Exec(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int",
				fmt.Sprintf("table=%d", datapath.ConntrackState), "--no-stats")
			failed = errors.Join(failed, err)
			for line := range strings.Lines(out) {
				if strings.Contains(line, ",ct_label=") || strings.Contains(line, ",ct_tp_dst=") {
					failed = errors.Join(failed, fmt.Errorf("%s/%s: connections wait: %s", cluster, n.Name(), line))
					break
				}
			}
		})
		if failed != nil {
			return failed
		}
		if !maps.Equal(now, before) {
			before, since = now, time.Now()
		}
		if time.Since(since) < 3*time.Second {
			return fmt.Errorf("the switches still change: %v", now)
		}
		return nil
	})
}

// testAgentsKilled kills each agent in turn while requests and a download go on for a minute. Nothing may fail, and an
// agent that comes back sends no flow-mod.
//
// The minute serves another test too: of two clients behind one Gateway the second uses the ports of the first, while
// the servers' kernels still remember the first client's connections.
func testAgentsKilled(t *testing.T) {
	url := serviceURL(t)
	quiet(t) // what changes while an agent is away, it has to send afterwards
	ports := []string{"--port", "20001", "--timeout", lossLimit}
	askWith(t, "east", "client", url+"/", 20, ports...)
	closed := time.Now()
	requests := background(t, "/echo", "get", url+"/", "--count", "600", "--interval", "100ms", "--timeout", lossLimit)
	download := background(t, "/echo", "download", url+"/download?bytes=6000000&rate=100000")
	everyNode(func(cluster string, n *lab.Node) {
		before, err := status(t.Context(), n)
		must(t, err)
		slices, groups := endpointSlices(t, cluster), groupsOf(t, n)
		nodeExec(t, cluster, n.Name(), "pkill", "-KILL", "-x", "tombolo-agent")
		eventually(t, stateLimit, func(ctx context.Context) error {
			s, err := status(ctx, n)
			switch {
			case err != nil:
				return err
			case !s.Started.After(before.Started):
				return fmt.Errorf("agent of %s/%s: the old one still answers", cluster, n.Name())
			case !s.Ready:
				return fmt.Errorf("agent of %s/%s is not ready: %v", cluster, n.Name(), s.Waiting)
			}
			return nil
		})
		s, err := status(t.Context(), n)
		must(t, err)
		switch now := endpointSlices(t, cluster); {
		case s.OpenFlow.FlowMods == 0 && s.OpenFlow.GroupMods == 0:
		case now != slices: // on a slow machine the kubelet may find a Pod not ready
			t.Logf("agent of %s/%s sent %d flow-mods and %d group-mods: EndpointSlices changed from\n%s\nto\n%s", cluster,
				n.Name(), s.OpenFlow.FlowMods, s.OpenFlow.GroupMods, slices, now)
		default:
			t.Errorf("agent of %s/%s sent %d flow-mods and %d group-mods after its restart, want none (sent: %v); groups "+
				"before\n%s\nand now\n%s", cluster, n.Name(), s.OpenFlow.FlowMods, s.OpenFlow.GroupMods,
				s.OpenFlow.MessagesSent, groups, groupsOf(t, n))
		}
	})
	// Later than the userspace datapath would forget a closed connection, and earlier than Linux does.
	if rest := 48*time.Second - time.Since(closed); rest > 0 {
		timer := time.NewTimer(rest)
		<-timer.C
	}
	askWith(t, "east", "client-gw", url+"/", 20, ports...)
	requests()
	download()
}

// endpointSlices returns the names and versions of a cluster's EndpointSlices.
func endpointSlices(t *testing.T, cluster string) string {
	t.Helper()
	return kubectl(t, cluster, "get", "endpointslices", "-A", "-o",
		`jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
}

// groupsOf returns the groups of a Node's switch.
func groupsOf(t *testing.T, n *lab.Node) string {
	t.Helper()
	out, err := n.Exec(testContext(t), "ovs-ofctl", "-O", "OpenFlow15", "dump-groups", "br-int")
	must(t, err)
	return out
}

// noticed is how long an agent may take to mend flows. The switch reports a change at once, and the agent compares all
// flows once a minute.
const noticed = 15 * time.Second

// testFlowsDeleted deletes the flows behind the agent's back, and adds one flow with our cookie and one with a foreign
// cookie.
func testFlowsDeleted(t *testing.T) {
	url := serviceURL(t)
	ofctl := func(args ...string) string {
		return nodeExec(t, "east", "node-2", append([]string{"ovs-ofctl", "-O", "OpenFlow15"}, args...)...)
	}
	count := func(out string) int { return strings.Count(out, "table=") }
	want := count(ofctl("dump-flows", "br-int"))

	ofctl("del-flows", "br-int")
	eventually(t, noticed, func(ctx context.Context) error {
		out, err := world.Lab.Cluster("east").Node("node-2").Exec(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows",
			"br-int")
		if err == nil && count(out) != want {
			err = fmt.Errorf("%d flows, want %d", count(out), want)
		}
		return err
	})
	ask(t, "east", "client", url+"/", 5)

	ofctl("add-flow", "br-int", "cookie=0x0001030000000099,table=5,priority=77,ip,nw_dst=192.0.2.1,actions=drop")
	ofctl("add-flow", "br-int", "cookie=0xabcd,table=5,priority=78,ip,nw_dst=192.0.2.2,actions=drop")
	eventually(t, noticed, func(ctx context.Context) error {
		out, err := world.Lab.Cluster("east").Node("node-2").Exec(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows",
			"br-int")
		if err == nil && strings.Contains(out, "192.0.2.1") {
			err = errNotYet
		}
		return err
	})
	if !strings.Contains(ofctl("dump-flows", "br-int"), "192.0.2.2") {
		t.Error("the flow under a foreign cookie was removed")
	}
	ofctl("del-flows", "br-int", "cookie=0xabcd/-1")
}

// testSwitchKilled kills ovs-vswitchd on a Node of each cluster.
func testSwitchKilled(t *testing.T) {
	url := serviceURL(t)
	for _, cluster := range []string{"east", "west"} {
		nodeExec(t, cluster, "node-1", "pkill", "-KILL", "-x", "ovs-vswitchd")
		n := world.Lab.Cluster(cluster).Node("node-1")
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := n.Exec(ctx, "ovs-appctl", "version")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		back := time.Now()
		eventually(t, stateLimit, func(ctx context.Context) error {
			_, err := get(ctx, "east", "client", url+"/", 1, "--timeout", "2s")
			return err
		})
		t.Logf("%s/node-1: first answer %.1f s after ovs-vswitchd was back", cluster, time.Since(back).Seconds())
	}
	reachesBoth(t, "east", "client", url+"/")
	ask(t, "east", "client", url+"/", 20)
}

// testLeaderAway stops the leader's API server for half a minute: longer than the leases of its clients last. An export
// made meanwhile arrives when it is back. (In `make failover` the leader is unavailable for longer.)
func testLeaderAway(t *testing.T) {
	url := serviceURL(t)
	ctx := testContext(t)
	must(t, world.Lab.Cluster("north").StopAPIServer(ctx))
	stopped := time.Now()
	requests := background(t, "/echo", "get", url+"/", "--count", "270", "--interval", "100ms", "--timeout", lossLimit)
	must(t, world.Export(ctx, "east"))
	requests()
	if rest := 30*time.Second - time.Since(stopped); rest > 0 {
		timer := time.NewTimer(rest)
		<-timer.C
	}
	must(t, world.Lab.Cluster("north").StartAPIServer(ctx))
	for _, cluster := range world.Members() {
		_, err := world.ImportedIP(ctx, cluster, "antrea-mc-nginx", 2, 4*time.Minute)
		must(t, err)
	}
	kubectl(t, "east", "delete", "serviceexport", "nginx", "-n", "default")
	_, err := world.ImportedIP(ctx, "east", "antrea-mc-nginx", 1, stateLimit)
	must(t, err)
}

// secondGateway makes west's other Node a Gateway, under requests, and its clients lose either for a moment.
func secondGateway(t *testing.T, url string) {
	t.Helper()
	kubectl(t, "west", "annotate", "node", "node-2", "multicluster.antrea.io/gateway=true")
	gatewaysAre(t, url, "node-1 ,node-2 ,")
	out, err := verify(t, "--disruptive")
	if err != nil || !strings.Contains(out, "failover east/kubeconfig to west/kubeconfig: ") ||
		!strings.Contains(out, "did not run: new connections failed for") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("verify --disruptive:\n%s", out)
}

// gatewaysAre waits for west's Gateways, each with its phase, while no request is lost.
func gatewaysAre(t *testing.T, url, want string) {
	t.Helper()
	eventually(t, stateLimit, func(ctx context.Context) error {
		if a, err := get(ctx, "east", "client", url+"/", 100, "--timeout", "15s"); err != nil || a.ok != 100 {
			t.Errorf("while a Gateway comes or goes %d of 100 answered, by %v: %v", a.ok, a.by, err)
		}
		out, err := world.Kubectl(ctx, "west", "get", "gateway", "-n", "kube-system", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations.multicluster\.tombolo\.io/phase},{end}`)
		if err == nil && out != want {
			err = fmt.Errorf("west's Gateways and their phases are %q, want %q", out, want)
		}
		return err
	})
}

// testGatewayDies makes another Node a Gateway, removes it, and adds it again, under requests and open connections.
// Then it switches the first one off for good while the leader is unavailable.
func testGatewayDies(t *testing.T) {
	url := serviceURL(t)
	ctx := testContext(t)
	const gateway, other = "node-1", "node-2"
	server := kubectl(t, "west", "get", "pods", "-n", "default", "-l", "app=nginx", "--field-selector",
		"spec.nodeName="+other, "-o", "jsonpath={.items[0].status.podIP}")
	stay := world.LongConnections(ctx, "http://"+server+":8080/")
	secondGateway(t, url)
	kubectl(t, "west", "annotate", "node", other, "multicluster.antrea.io/gateway-")
	gatewaysAre(t, url, gateway+" ,")
	kubectl(t, "west", "annotate", "node", other, "multicluster.antrea.io/gateway=true")
	gatewaysAre(t, url, gateway+" ,"+other+" ,")
	noneBroke(t, stay)

	must(t, world.Lab.Cluster("north").StopAPIServer(ctx))
	must(t, world.Lab.Cluster("west").Node(gateway).KillAll(ctx))
	start := time.Now()
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Kubectl(ctx, "west", "get", "gateway", "-n", "kube-system", "-o",
			"jsonpath={.items[*].metadata.name}")
		if err == nil && strings.TrimSpace(out) != other {
			err = fmt.Errorf("west's Gateways are %q, want %s", out, other)
		}
		return err
	})
	took := time.Since(start)
	answered(t, url)
	t.Logf("gateway %s switched off with the leader away: %s is the Gateway after %.1f s, requests succeed after %.1f s",
		gateway, other, took.Seconds(), time.Since(start).Seconds())
	must(t, world.Lab.Cluster("north").StartAPIServer(ctx))
	for _, cluster := range []string{"north", "east"} {
		eventually(t, 4*time.Minute, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, cluster, "get", "clusterinfoimport", "-n", "kube-system",
				"test-cluster-west-clusterinfo", "-o", "jsonpath={.spec.gatewayInfos[*].gatewayIP}")
			if want := world.Lab.Cluster("west").Node(other).InternalIP(); err == nil && out != want {
				err = fmt.Errorf("%s knows west by %q after the leader is back, want %s", cluster, out, want)
			}
			return err
		})
	}
}
