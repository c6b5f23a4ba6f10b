package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

func testJoin(t *testing.T) {
	ctx := testContext(t)
	must(t, world.Access(ctx))
	must(t, world.Join(ctx))
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Lab.Tool(ctx, scenario.Leader, "tombolo", "mc", "get", "clusterset", scenario.ClusterSet, "-n",
			scenario.LeaderNamespace)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got, want := strings.Fields(lines[0]), []string{"CLUSTER-ID", "NAMESPACE", "CLUSTERSET-ID", "TYPE", "STATUS",
			"REASON"}; fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("columns %v, want %v", got, want)
		}
		for _, member := range world.Members() {
			row := regexp.MustCompile(scenario.ClusterID(member) +
				`\s+antrea-multicluster\s+test-clusterset\s+Ready\s+True\s+Connected`)
			if !row.MatchString(out) {
				return fmt.Errorf("no Ready row for %s:\n%s", member, out)
			}
		}
		return nil
	})
}

func testGateways(t *testing.T) {
	ctx := testContext(t)
	verifyWithoutGateways(t)
	must(t, world.ChooseGateway(ctx, "north", "node-1"))
	must(t, world.ChooseGateway(ctx, "east", "node-1"))
	must(t, world.ChooseGateway(ctx, "west", "node-1"))
	eventually(t, stateLimit, func(ctx context.Context) error {
		have, err := world.Kubectl(ctx, "east", "get", "clusterinfoimport", "-n", "kube-system",
			"test-cluster-west-clusterinfo", "-o", "jsonpath={.spec.gatewayInfos[*].gatewayIP} {.spec.features[*]}")
		want := kubectl(t, "west", "get", "gateway", "-n", "kube-system", "--sort-by=.metadata.creationTimestamp", "-o",
			"jsonpath={.items[*].gatewayIP}") + " ActiveGateways PreserveClientIP SingleWays WayEcho"
		if err == nil && (have != want || len(strings.Fields(have)) != 5) {
			err = fmt.Errorf("east knows west by %s, want %s", have, want)
		}
		return err
	})
	columns(t, kubectl(t, "east", "get", "gateway", "-n", "kube-system"), "NAME", "GATEWAY IP", "INTERNAL IP", "AGE")
	columns(t, kubectl(t, "west", "get", "clusterinfoimport", "-n", "kube-system"), "NAME", "CLUSTER ID",
		"SERVICE CIDR", "AGE")
	out := kubectl(t, "west", "get", "clusterinfoimport", "-n", "kube-system")
	if !regexp.MustCompile(`test-cluster-east-clusterinfo\s+test-cluster-east\s+10\.97\.0\.0/16`).MatchString(out) {
		t.Errorf("west does not know east as the guide shows it:\n%s", out)
	}
}

// columns checks the header of what kubectl printed.
func columns(t *testing.T, out string, want ...string) {
	t.Helper()
	header, _, _ := strings.Cut(out, "\n")
	got := regexp.MustCompile(`\s{2,}`).Split(strings.TrimSpace(header), -1)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("columns are %q, want %q", got, want)
	}
}

func testExport(t *testing.T) {
	ctx := testContext(t)
	must(t, world.ClientPod(ctx, "east", "client", "node-2"))
	must(t, world.Export(ctx, "west"))
	ip, err := world.ImportedIP(ctx, "east", "antrea-mc-nginx", 1, stateLimit)
	must(t, err)

	columns(t, kubectl(t, "north", "get", "resourceexport", "-n", "antrea-multicluster"), "NAME", "CLUSTER ID", "KIND",
		"NAMESPACE", "NAME", "AGE")
	columns(t, kubectl(t, "north", "get", "resourceimport", "-n", "antrea-multicluster"), "NAME", "KIND", "NAMESPACE",
		"NAME", "AGE")
	kubectl(t, "north", "get", "resourceexport", "-n", "antrea-multicluster", "test-cluster-west-default-nginx-service",
		"test-cluster-west-default-nginx-endpoints")
	kubectl(t, "north", "get", "resourceimport", "-n", "antrea-multicluster", "default-nginx-service",
		"default-nginx-endpoints")
	columns(t, kubectl(t, "east", "get", "serviceimport", "nginx", "-n", "default"), "NAME", "TYPE", "IP", "AGE")

	url := "http://" + ip + "/"
	waitAnswer(t, "east", "client", url)
	ask(t, "east", "client", url, 200)
	reachesBoth(t, "east", "client", url)
	t.Run("from the gateway Node", func(t *testing.T) {
		must(t, world.ClientPod(ctx, "east", "client-gw", "node-1"))
		ask(t, "east", "client-gw", url, 20)
	})
	t.Run("from the host", func(t *testing.T) {
		nodeExec(t, "east", "node-2", "curl", "-sS", "--max-time", "15", url)
	})
}

// waitAnswer waits for the first answer: the flows of every Node on the path follow the objects with a delay of their
// own.
func waitAnswer(t *testing.T, cluster, pod, url string) {
	t.Helper()
	eventually(t, stateLimit, func(ctx context.Context) error {
		_, err := get(ctx, cluster, pod, url, 1, "--timeout", "2s")
		return err
	})
}

func testSecondExporter(t *testing.T) {
	ctx := testContext(t)
	must(t, world.Nginx(ctx, "east", 2))
	must(t, world.Export(ctx, "east"))
	for _, client := range []string{"east", "north"} {
		if client == "north" {
			must(t, world.ClientPod(ctx, "north", "client", "node-2"))
		}
		ip, err := world.ImportedIP(ctx, client, "antrea-mc-nginx", 2, stateLimit)
		must(t, err)
		eventually(t, stateLimit, func(ctx context.Context) error {
			a, err := get(ctx, client, "client", "http://"+ip+"/", 40)
			if err != nil {
				return err
			}
			if a.share("test-cluster-east/") == 0 || a.share("test-cluster-west/") == 0 {
				return fmt.Errorf("asked from %s, answers come from %v, want both clusters", client, a.by)
			}
			return nil
		})
	}
	testWhereRequestsGo(t)
	testClusterGone(t)
	kubectl(t, "east", "delete", "serviceexport", "nginx", "-n", "default")
	ip, err := world.ImportedIP(ctx, "north", "antrea-mc-nginx", 1, stateLimit)
	must(t, err)
	eventually(t, stateLimit, func(ctx context.Context) error {
		a, err := get(ctx, "north", "client", "http://"+ip+"/", 20)
		if err == nil && a.share("test-cluster-west/") != 20 {
			err = fmt.Errorf("east no longer exports, yet answers come from %v", a.by)
		}
		return err
	})
}

// testClusterGone unplugs west. East gets its share of north's requests until west is back.
func testClusterGone(t *testing.T) {
	ip, err := world.ImportedIP(testContext(t), "north", "antrea-mc-nginx", 2, stateLimit)
	must(t, err)
	state := func(ctx context.Context, gone bool) error {
		out, err := world.Kubectl(ctx, "north", "get", "clusterset", "-n", "kube-system", "-o",
			`jsonpath={range .items[*].status.clusterStatuses[?(@.clusterID=="test-cluster-west")]`+
				`.conditions[?(@.type=="Reachable")]}{.reason}{end}`)
		if err == nil && (out == "ClusterGone") != gone {
			err = fmt.Errorf("west's condition Reachable in north has the reason %q", out)
		}
		return err
	}
	answer := func(ctx context.Context, clusters ...string) error {
		a, err := get(ctx, "north", "client", "http://"+ip+"/", 40, "--timeout", "1s")
		if err != nil {
			return err
		}
		for _, cluster := range []string{"east", "west"} {
			if answers := a.share("test-cluster-"+cluster+"/") > 0; answers != slices.Contains(clusters, cluster) {
				return fmt.Errorf("answers come from %v, want %v", a.by, clusters)
			}
		}
		return nil
	}
	eventually(t, stateLimit, func(ctx context.Context) error { return answer(ctx, "east", "west") })
	nodes := world.Lab.Cluster("west").Nodes()
	for _, n := range nodes {
		must(t, n.Cut())
	}
	cut := time.Now()
	t.Cleanup(func() {
		for _, n := range nodes {
			must(t, n.Heal())
		}
	})
	eventually(t, stateLimit, func(ctx context.Context) error { return state(ctx, true) })
	found := time.Since(cut)
	eventually(t, stateLimit, func(ctx context.Context) error { return answer(ctx, "east") })
	waysSeen(t, "down", "0", "Down")
	t.Logf("west was found gone %.1f s after it was unplugged; 40 of 40 requests answered by %.1f s", found.Seconds(),
		time.Since(cut).Seconds())
	for _, n := range nodes {
		must(t, n.Heal())
	}
	back := time.Now()
	eventually(t, stateLimit,
		func(ctx context.Context) error { return errors.Join(state(ctx, false), answer(ctx, "east", "west")) })
	waysSeen(t, "up", "1", "Up")
	t.Logf("west answers again %.1f s after it was plugged in", time.Since(back).Seconds())
}

// waysSeen checks the state of north's way to west where it is shown: the agent's peers and metric, and the Gateway's
// status.
func waysSeen(t *testing.T, peers, metric, gateway string) {
	t.Helper()
	n := world.Lab.Cluster("north").Node(gatewayOf(t, "north"))
	shown := func(ctx context.Context, path string) (string, error) {
		return n.Exec(ctx, "curl", "-sS", "--max-time", "3", "--unix-socket", api.DefaultSocket, "http://agent"+path)
	}
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := shown(ctx, api.PathPeers)
		var list api.PeerList
		if err == nil {
			err = json.Unmarshal([]byte(out), &list)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		i := slices.IndexFunc(list.Peers, func(p api.Peer) bool { return p.Name == "test-cluster-west" })
		if i < 0 || len(list.Peers[i].Ways) != 1 || list.Peers[i].Ways[0].State != peers {
			return fmt.Errorf("want one way to west that is %s: %s", peers, out)
		}
		way := list.Peers[i].Ways[0]
		if way.State == "up" && (!way.Forwarding || way.RemoteState != "up" || way.RxPackets == 0 || way.TxPackets == 0) {
			return fmt.Errorf("want the far end's state and packets both ways: %+v", way)
		}
		to := way.To
		out, err = shown(ctx, "/metrics")
		if line := regexp.MustCompile(`(?m)^tombolo_multicluster_way_up\{cluster="test-cluster-west",[^}]*"` +
			regexp.QuoteMeta(to) + `"\} ` + metric + `$`); err == nil && !line.MatchString(out) {
			err = fmt.Errorf("want the metric of the way to %s with value %s: %s", to, metric,
				regexp.MustCompile(`(?m)^tombolo_multicluster.*$`).FindAllString(out, -1))
		}
		if err != nil {
			return err
		}
		out, err = world.Kubectl(ctx, "north", "get", "gateway", "-n", "kube-system", n.Name(), "-o",
			`jsonpath={.status.ways[?(@.clusterID=="test-cluster-west")].state}`)
		if err == nil && out != gateway {
			err = fmt.Errorf("the Gateway's status has west %q, want %q", out, gateway)
		}
		return err
	})
}

// testWhereRequestsGo exports nginx from east and west; annotations decide which of them answers.
func testWhereRequestsGo(t *testing.T) {
	ctx := testContext(t)
	answer := func(client string, clusters ...string) {
		t.Helper()
		ip, err := world.ImportedIP(ctx, client, "antrea-mc-nginx", 2, stateLimit)
		must(t, err)
		eventually(t, stateLimit, func(ctx context.Context) error {
			a, err := get(ctx, client, "client", "http://"+ip+"/", 40)
			if err != nil {
				return err
			}
			for _, cluster := range []string{"east", "west"} {
				if answers := a.share("test-cluster-"+cluster+"/") > 0; answers != slices.Contains(clusters, cluster) {
					return fmt.Errorf("asked from %s, answers come from %v, want %v", client, a.by, clusters)
				}
			}
			return nil
		})
	}
	const prefix = "multicluster.tombolo.io/"
	kubectl(t, "west", "annotate", "serviceexport", "nginx", "-n", "default", prefix+"requests=local")
	answer("east", "east")
	answer("north", "east", "west") // has no Pods of its own
	kubectl(t, "north", "annotate", "serviceimport", "nginx", "-n", "default", prefix+"requests=cluster-order", prefix+
		"cluster-order=test-cluster-west")
	answer("north", "west")
	kubectl(t, "north", "annotate", "serviceimport", "nginx", "-n", "default", prefix+"minimum-ready=1000")
	answer("north", "east", "west")
	kubectl(t, "north", "annotate", "serviceimport", "nginx", "-n", "default", prefix+"requests-", prefix+"cluster-order-",
		prefix+"minimum-ready-")
	kubectl(t, "west", "annotate", "serviceexport", "nginx", "-n", "default", prefix+"requests-")
	answer("east", "east", "west")
}

func testUnexport(t *testing.T) {
	ip, err := world.ImportedIP(testContext(t), "east", "antrea-mc-nginx", 1, stateLimit)
	must(t, err)
	// The addresses in the flows and groups of east: its own there, and west's as an endpoint.
	exported := kubectl(t, "west", "get", "service", "nginx", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
	left := func(ctx context.Context, n *lab.Node) (string, error) {
		flows, err := n.Exec(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int")
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, flows)
		}
		groups, err := n.Exec(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-groups", "br-int")
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, groups)
		}
		have := ""
		if strings.Contains(flows, "nw_dst="+ip+",") {
			have += "a flow for " + ip + " "
		}
		if strings.Contains(groups, "nat(dst="+exported+":") {
			have += "a group with " + exported
		}
		return strings.TrimSpace(have), nil
	}
	everything := "a flow for " + ip + " a group with " + exported
	eventually(t, stateLimit, func(ctx context.Context) error {
		have, err := left(ctx, world.Lab.Cluster("east").Node("node-2"))
		if err == nil && have != everything {
			err = fmt.Errorf("before the export is deleted node-2 has %q, want %q", have, everything)
		}
		return err
	})
	kubectl(t, "west", "delete", "serviceexport", "nginx", "-n", "default")
	eventually(t, stateLimit, func(ctx context.Context) error {
		for _, cluster := range world.Members() {
			out, err := world.Kubectl(ctx, cluster, "get", "service,endpoints,serviceimport", "-n", "default", "-o", "name")
			if err != nil {
				return err
			}
			if strings.Contains(out, "antrea-mc-nginx") || strings.Contains(out, "serviceimport") {
				return fmt.Errorf("%s still has %s", cluster, out)
			}
		}
		out, err := world.Kubectl(ctx, "north", "get", "resourceexport,resourceimport", "-n", "antrea-multicluster",
			"-o", "name")
		if err == nil && strings.Contains(out, "nginx") {
			err = fmt.Errorf("the leader still has %s", out)
		}
		return err
	})
	eventually(t, stateLimit, func(ctx context.Context) error {
		for _, node := range []string{"node-1", "node-2"} {
			have, err := left(ctx, world.Lab.Cluster("east").Node(node))
			if err != nil {
				return err
			}
			if have != "" {
				return fmt.Errorf("%s still has %s", node, have)
			}
		}
		return nil
	})
}

// toOtherClusters finds the MAC of packets for other clusters. It does not find the match with a mask, by which Nodes
// of a cluster admit each other's packets.
var toOtherClusters = regexp.MustCompile(`aa:bb:cc:dd:ee:f0([^/]|$)`)

// testLeave follows the guide's uninstallation: a member leaves, then the others, the leader, and the manifests of
// both. Traffic in a cluster goes on.
func testLeave(t *testing.T) {
	leave := func(cluster string) {
		t.Helper()
		kubectl(t, cluster, "annotate", "node", "--all", "multicluster.antrea.io/gateway-")
		kubectl(t, cluster, "delete", "clusterset", "test-clusterset", "-n", "kube-system")
		eventually(t, stateLimit, func(ctx context.Context) error {
			out, err := world.Kubectl(ctx, cluster, "get", "gateway,clusterinfoimport,serviceimport", "-A", "-o", "name")
			if err != nil {
				return err
			}
			if out != "" {
				return fmt.Errorf("%s has left and still has %s", cluster, out)
			}
			out, err = world.Kubectl(ctx, "north", "get", "memberclusterannounce,resourceexport", "-n", "antrea-multicluster",
				"-o", "name")
			if err == nil && strings.Contains(out, cluster) {
				err = fmt.Errorf("the leader still has %s", out)
			}
			return err
		})
	}
	leave("east")
	eventually(t, stateLimit, func(ctx context.Context) error {
		flows, err := world.Lab.Cluster("east").Node("node-2").Exec(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-flows",
			"br-int")
		if err == nil && toOtherClusters.MatchString(flows) {
			err = fmt.Errorf("east has left and still has flows to other clusters:\n%s", flows)
		}
		return err
	})
	leave("west")
	leave("north")
	if left := kubectl(t, "north", "get", "memberclusterannounce", "-n", "antrea-multicluster", "-o", "name"); left != "" {
		t.Errorf("all members have left, and still there is %s", left)
	}
	kubectl(t, "north", "delete", "clusterset", "test-clusterset", "-n", "antrea-multicluster")
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Kubectl(ctx, "north", "get", "resourceexports,resourceimports", "-n", "antrea-multicluster",
			"-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("the ClusterSet is deleted, and still there is %s", out)
		}
		return err
	})

	manifests := filepath.Join(world.Lab.Repo(), "deploy", "multicluster")
	kubectl(t, "east", "delete", "-f", filepath.Join(manifests, "antrea-multicluster-member.yml"), "--timeout=4m",
		"--ignore-not-found")
	// A Secret with a token goes with its ServiceAccount, mostly before kubectl comes to it.
	kubectl(t, "north", "delete", "-f", filepath.Join(manifests, "antrea-multicluster-leader.yml"), "--timeout=4m",
		"--ignore-not-found")
	// north keeps a member's
	for cluster, kind := range map[string]string{"north": "resourceexports.multicluster.", "east": ".multicluster."} {
		if left := kubectl(t, cluster, "get", "crd", "-o", "name"); strings.Contains(left, kind) {
			t.Errorf("%s still has something of the manifest that was deleted:\n%s", cluster, left)
		}
	}
	ip := kubectl(t, "east", "get", "service", "nginx", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
	ask(t, "east", "client", "http://"+ip+"/", 20)
}
