// Package e2e tests the whole system: three clusters of two Nodes each, joined by the manifests of the users'
// documents, with real Pods, real Open vSwitch and real packets.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// world is the lab that the tests of this package share: it takes a minute to come up.
var world *scenario.Scenario

func TestMain(m *testing.M) {
	setup := scenario.Setup{Name: "e2e", Clusters: []string{"north", "east", "west"}, Nodes: 2, Charts: []string{"west"},
		Tenants: true}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

// step is a part of TestClusterSet.
type step struct {
	name string
	run  func(*testing.T)
}

// stages are the steps of TestClusterSet. A stage begins when all steps of the previous stage have passed. The chains
// of a stage run at the same time, and the steps of a chain one after the other. Steps of two chains of a stage use
// different Pods, Services and policies, and expect nothing of an object that the other chain changes.
var stages = [][][]step{
	{ // one cluster's own work; clusters that join and leave
		{{"InCluster", testInCluster}, {"Relay", testRelay}, {"Policies", testPolicies}},
		{{"GuideOfV15", testGuideOfV15}, {"ThreeClusters", testThreeClusters}},
	},
	{{{"Antctl", testAntctl}, {"Join", testJoin}, {"Underlay", testUnderlay},
		{"Gateways", testGateways}, {"Diagnose", testDiagnose}}},
	{ // Services of the Namespace default, and of the Namespace mcs; networks of tenants
		{{"Verify", testVerify}, {"Benchmark", testBenchmark}, {"Export", testExport},
			{"StretchedPolicies", testStretchedPolicies}},
		{{"MultiClusterServices", testMultiClusterServices}, {"Tenants", testTenants},
			{"VirtualNetworks", testVirtualNetworks}},
	},
	{{
		{"Trace", testTrace},
		{"SecondExporter", testSecondExporter},
		{"ClientAddresses", testClientAddresses},
		{"Gather", testGather},
		{"Replication", testReplication},
		{"BadInput", testBadInput},
		{"AgentsKilled", testAgentsKilled},
		{"FlowsDeleted", testFlowsDeleted},
		{"SwitchKilled", testSwitchKilled},
		{"LeaderAway", testLeaderAway},
		{"Encryption", testEncryption},
		{"GatewayDies", testGatewayDies},
		{"Unexport", testUnexport},
		{"Leave", testLeave},
		{"Uninstall", testUninstall},
	}},
}

// TestClusterSet goes through the life of a ClusterSet. Its steps build on each other: after a step that failed, no
// further stage begins.
func TestClusterSet(t *testing.T) {
	var together sync.Mutex // diagnoses print one after the other
	for _, chains := range stages {
		var all sync.WaitGroup
		for _, chain := range chains {
			all.Go(func() {
				for _, s := range chain {
					if !t.Run(s.name, func(t *testing.T) {
						t.Cleanup(func() {
							if t.Failed() {
								together.Lock()
								defer together.Unlock()
								diagnose(t)
							}
						})
						s.run(t)
					}) {
						return
					}
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
}

// stateLimit is how long a test waits for a state. Each state takes seconds, but a machine at a high load is ten times
// slower.
const stateLimit = 3 * time.Minute

// testContext is for one command or a few, and for all commands of a step.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl and fails the test when it fails.
func kubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	out, err := world.Kubectl(testContext(t), cluster, args...)
	if err != nil {
		t.Fatalf("kubectl %s in %s: %v\n%s", strings.Join(args, " "), cluster, err, out)
	}
	return out
}

// eventually fails the test when f does not return nil within limit.
func eventually(t *testing.T, limit time.Duration, f func(ctx context.Context) error) {
	t.Helper()
	must(t, scenario.Eventually(t.Context(), limit, f))
}

// answers is the summary that the echo client prints: how many answers by which server.
type answers struct {
	ok, failed int
	by         map[string]int // "cluster/node/pod"
}

// get asks a URL from a Pod count times, each on a new connection.
func get(ctx context.Context, cluster, pod, url string, count int, extra ...string) (answers, error) {
	args := append([]string{"/echo", "get", url, "--count", strconv.Itoa(count)}, extra...)
	out, err := world.Exec(ctx, cluster, pod, args...)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return parseAnswers(out), err
}

var (
	answerLine  = regexp.MustCompile(`(?m)^\s*(\d+)\s+(\S+/\S+/\S+)\s*$`)
	summaryLine = regexp.MustCompile(`(?m)^(\d+) answered, (\d+) failed`)
)

func parseAnswers(out string) answers {
	a := answers{by: map[string]int{}}
	for _, m := range answerLine.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1])
		a.by[m[2]] += n
	}
	if m := summaryLine.FindStringSubmatch(out); m != nil {
		a.ok, _ = strconv.Atoi(m[1])
		a.failed, _ = strconv.Atoi(m[2])
	}
	return a
}

// share counts the answers of servers whose name begins with prefix.
func (a answers) share(prefix string) int {
	n := 0
	for server, count := range a.by {
		if strings.HasPrefix(server, prefix) {
			n += count
		}
	}
	return n
}

// ask asks a URL and fails the test unless every request is answered.
func ask(t *testing.T, cluster, pod, url string, count int) answers {
	t.Helper()
	return askWith(t, cluster, pod, url, count)
}

// askWith is ask with flags of the echo client.
func askWith(t *testing.T, cluster, pod, url string, count int, flags ...string) answers {
	t.Helper()
	flags = append([]string{"--timeout", "15s"}, flags...)
	a, err := get(testContext(t), cluster, pod, url, count, flags...)
	if err != nil || a.ok != count || a.failed != 0 {
		t.Fatalf("%d requests from %s/%s to %s: %d answered, %d failed: %v", count, cluster, pod, url, a.ok, a.failed, err)
	}
	return a
}

// nodeExec runs a command on a Node.
func nodeExec(t *testing.T, cluster, node string, args ...string) string {
	t.Helper()
	out, err := world.Lab.Cluster(cluster).Node(node).Exec(testContext(t), args...)
	if err != nil {
		t.Fatalf("%s on %s/%s: %v\n%s", strings.Join(args, " "), cluster, node, err, out)
	}
	return out
}

// diagnose prints a short summary of the first things to look at. It is separate from the test's own messages, which
// follow it: the beginning of a long log may be cut off.
func diagnose(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	show := func(what, out string, err error, lines int) {
		if err != nil {
			out += "\n" + err.Error()
		}
		fmt.Printf("%s\n%s\n", what, tail(out, lines))
	}
	if d, err := world.Diagnose(ctx); err == nil {
		show("tombolo diagnose", d.Faults(), nil, 60)
	}
	for _, cluster := range world.Members() {
		out, err := world.Kubectl(ctx, cluster, "get", "gateway,clusterinfoimport,clusterset,serviceexport,serviceimport",
			"-A", "--no-headers")
		show(cluster+": what the ClusterSet consists of", out, err, 12)
		for _, args := range [][]string{
			{"get", "pods", "-A", "-o", "wide", "--no-headers"},
			{"get", "gateway,clusterinfoimport", "-n", "kube-system", "-o",
				`jsonpath={range .items[*]}{.metadata.name} {.wireGuard} {.spec.wireGuard} {.spec.gatewayInfos}{"\n"}{end}`},
			{"logs", "-n", "kube-system", "-l", "component=antrea-mc-controller", "--tail=12", "--prefix"},
			{"logs", "-n", "kube-system", "deployment/tombolo-policy-controller", "--tail=10"},
			{"get", "nodepolicyreports", "--no-headers"},
			{"get", "gateway,resourceexport,resourceimport", "-A", "--no-headers"},
			{"logs", "-n", "kube-system", "-l", "component=tombolo-agent", "-c", "tombolo-agent", "--tail=15", "--prefix"},
		} {
			out, err := world.Kubectl(ctx, cluster, args...)
			show(cluster+": kubectl "+strings.Join(args, " "), out, err, 30)
		}
		for _, node := range world.Lab.Cluster(cluster).Nodes() {
			s, err := status(ctx, node)
			out := fmt.Sprintf("%s, ready %t, waits for %v, since %s", s.Role, s.Ready, s.Waiting,
				s.Started.Format(time.RFC3339))
			for _, p := range s.Problems {
				out += fmt.Sprintf("\n%s %s: %s", p.Object, p.Reason, p.Message)
			}
			show(fmt.Sprintf("agent of %s/%s", cluster, node.Name()), out, err, 5)
			out, err = node.Exec(ctx, "curl", "-sS", "--max-time", "3", "--unix-socket", api.DefaultSocket,
				"http://agent"+api.PathPeers)
			show("its peers", out, err, 1)
		}
	}
}

// tail is the last lines of a text, each cut after 600 characters.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		if len(line) > 600 {
			all[i] = line[:600] + "…"
		}
	}
	return strings.Join(all, "\n")
}

// errNotYet is for conditions that need no more words.
var errNotYet = errors.New("not yet")
