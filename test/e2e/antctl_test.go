package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// testAntctl sets a ClusterSet up and removes it with the documented commands: with a join configuration that has the
// token, with files, and with flags alone. All traffic is encrypted, between clusters and between Nodes; in the end
// between Nodes alone.
func testAntctl(t *testing.T) {
	ctx := testContext(t)
	run := func(cluster string, args ...string) string {
		t.Helper()
		out, err := world.Lab.Tool(ctx, cluster, "antctl", append([]string{"mc"}, args...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	has := func(out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%q is not in\n%s", w, out)
			}
		}
	}
	const area, set = scenario.LeaderNamespace, "antctl-clusterset"
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }

	has(run("north", "deploy", "leadercluster", "-n", area), "Deployment/antrea-mc-controller ",
		"Antrea Multi-cluster successfully deployed")
	has(run("north", "init", "-n", area, "--clusterset", set, "--clusterid", "antctl-north", "-j", file("join.yml")),
		`ClusterSet "antctl-clusterset" created in Namespace antrea-multicluster`,
		"Successfully initialized ClusterSet antctl-clusterset")
	for _, cluster := range []string{"east", "west"} { // north joins with the leader's own token
		has(run("north", "create", "membertoken", "antctl-"+cluster, "-n", area, "--cluster-id", "antctl-"+cluster, "-o",
			file(cluster+".yml")),
			`ServiceAccount "antctl-`+cluster+`" created`, `RoleBinding "antctl-`+cluster+`" created`,
			`Secret "antctl-`+cluster+`" created`)
		if info, err := os.Stat(file(cluster + ".yml")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the token's file: %v, %v, want mode 0600", info, err)
		}
	}
	has(run("north", "get", "membertoken", "-n", area), "antctl-east", "antctl-west")
	has(run("north", "create", "membertoken", "antctl-west", "-n", area, "--cluster-id", "antctl-west"),
		`ServiceAccount "antctl-west" already exists`)
	run("north", "create", "membertoken", "antctl-spare", "-n", area, "--cluster-id", "antctl-spare")
	has(run("north", "delete", "membertoken", "antctl-spare", "-n", area), `Secret "antctl-spare" deleted`,
		`RoleBinding "antctl-spare" deleted`, `ServiceAccount "antctl-spare" deleted`)

	// The command reports input that the leader would refuse before it creates anything.
	for _, row := range []struct{ id, token, want string }{
		{"antctl-other", "east.yml", `is bound to cluster ID "antctl-east"`},
	} {
		out, err := world.Lab.Tool(ctx, "east", "antctl", "mc", "join", "--clusterid", row.id, "-f", file("join.yml"),
			"--token-secret-file", file(row.token))
		if err == nil || strings.Contains(out, "created") || !strings.Contains(out+fmt.Sprint(err), row.want) {
			t.Errorf("join as %s: %v\n%s\nwant %q and nothing made", row.id, err, out, row.want)
		}
	}

	const joined = "Member cluster joined successfully"
	// The leader's own token is good for one member; the next one gets an error.
	must(t, os.WriteFile(file("default-join.yml"),
		[]byte(run("north", "get", "joinconfig", "-n", area, "--member-token", "antrea-mc-member-access-token")), 0o600))
	has(run("north", "join", "--clusterid", "antctl-north", "-f", file("default-join.yml")), joined)
	if out, err := world.Lab.Tool(ctx, "east", "antctl", "mc", "join", "--clusterid", "antctl-east", "-f",
		file("default-join.yml")); err == nil || strings.Contains(out, "created") ||
		!strings.Contains(out+fmt.Sprint(err), `is bound to cluster ID "antctl-north"`) ||
		!strings.Contains(out+fmt.Sprint(err), "use another ServiceAccount for each member") {
		t.Errorf("east joins with the token of north: %v\n%s\nwant a refusal with the remedy, and nothing made", err, out)
	}
	has(run("east", "join", "--clusterid", "antctl-east", "-f", file("join.yml"), "--token-secret-file",
		file("east.yml")), joined)
	must(t, world.Apply(ctx, "west", strings.Replace(readFile(t, file("west.yml")), "name: antctl-west",
		"name: antctl-west\n  namespace: kube-system", 1)))

	has(run("west", "join", "--clusterset", set, "--clusterid", "antctl-west", "--leader-clusterid", "antctl-north",
		"--leader-namespace", area,
		"--leader-apiserver", world.Lab.Cluster("north").Server(), "--token-secret-name", "antctl-west"), joined)
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Lab.Tool(ctx, "north", "antctl", "mc", "get", "clusterset", set, "-n", area)
		for _, cluster := range world.Members() {
			if want := "antctl-" + cluster + " " + area + " " + set +
				" Ready True Connected"; !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				err = errors.Join(err, fmt.Errorf("no row %q:\n%s", want, out))
			}
		}
		return err
	})
	installWireGuard(t)
	configure(t, "trafficEncryptionMode: none", "trafficEncryptionMode: wireGuard", nodesInPlain, nodesEncrypted)
	antctlExports(t, func(args ...string) string { return run("north", append(args, "-n", area)...) })

	for _, cluster := range world.Members() {
		has(run(cluster, "leave", "--clusterset", set), `ClusterSet "antctl-clusterset" deleted`)
	}
	kubectl(t, "west", "delete", "secret", "antctl-west", "-n", "kube-system")
	has(run("north", "destroy", "--clusterset", set, "-n", area), `ClusterSet "antctl-clusterset" deleted`,
		`ServiceAccount "antctl-east" deleted`)
	has(run("north", "get", "membertokens", "-n", area), "No membertoken found in Namespace antrea-multicluster")

	configure(t, "      trafficEncryptionMode: wireGuard", "      trafficEncryptionMode: none") // of multicluster alone
	nodesTalkIn(t, "WireGuard")
	configure(t, nodesEncrypted, nodesInPlain)
	removeWireGuard(t)
	nodesTalkIn(t, "Geneve")
}

// A text of the agents' configuration, with and without the line that encrypts traffic between Nodes.
const (
	nodesInPlain   = "    # What Pods send to other Nodes is encrypted"
	nodesEncrypted = "    trafficEncryptionMode: wireGuard\n" + nodesInPlain
)

// nodesTalkIn sends requests between Pods of west's two Nodes, and checks that only packets of one kind then go between
// the Nodes.
func nodesTalkIn(t *testing.T, kind string) {
	t.Helper()
	ips := podsOf(t, "nginx")
	talk := func(ctx context.Context) error {
		for _, ip := range ips {
			if a, err := get(ctx, "west", "client-1", "http://"+ip+":8080/", 20, "--timeout", "2s"); err != nil || a.ok != 20 {
				return fmt.Errorf("%d of 20 answered by %s: %w", a.ok, ip, err)
			}
		}
		return nil
	}
	eventually(t, stateLimit, func(ctx context.Context) error {
		end := capture(t)
		err := talk(ctx)
		if have := end().within; err == nil && (have[kind] < 20 || len(have) != 1) {
			err = fmt.Errorf("between Nodes packets %v have passed, want those of %s alone", have, kind)
		}
		return err
	})
}

// podsOf are the addresses of west's Pods of an app.
func podsOf(t *testing.T, app string) []string {
	t.Helper()
	ips := strings.Fields(kubectl(t, "west", "get", "pods", "-n", "default", "-l", "app="+app, "-o",
		"jsonpath={.items[*].status.podIP}"))
	if len(ips) != 2 {
		t.Fatalf("%s has Pod addresses %v, want 2", app, ips)
	}
	return ips
}

// antctlExports continues the guide: Gateways and an export, until requests are answered, and Pods that reach each
// other; then the export ends, and Gateways end. No packet goes in plain text, neither between clusters nor between
// Nodes.
func antctlExports(t *testing.T, antctl func(args ...string) string) {
	t.Helper()
	ctx := testContext(t)
	must(t, world.ClientPod(ctx, "east", "client", "node-2"))
	for _, cluster := range []string{"east", "west"} {
		kubectl(t, cluster, "annotate", "node", "node-1", "multicluster.antrea.io/gateway=true")
	}
	must(t, world.Export(ctx, "west"))
	ip, err := world.ImportedIP(ctx, "east", "antrea-mc-nginx", 1, stateLimit)
	must(t, err)
	waitAnswer(t, "east", "client", "http://"+ip+"/")
	if a := ask(t, "east", "client", "http://"+ip+"/", 20); a.share("test-cluster-west/") != 20 {
		t.Errorf("answers come from %v, want west", a.by)
	}
	encrypted := func(url string) {
		t.Helper()
		if within := passesIn(t, url, "WireGuard"); within["WireGuard"] == 0 || len(within) != 1 {
			t.Errorf("between Nodes packets %v have passed, want those of WireGuard alone", within)
		}
	}
	encrypted("http://" + ip)
	for _, pod := range podsOf(t, "nginx") {
		url := "http://" + pod + ":8080"
		encrypted(url)
		seen(t, "east", "client", url+"/", func(saw string) error {
			if own := kubectl(t, "east", "get", "pod", "client", "-n", "default", "-o", "jsonpath={.status.podIP}"); saw != own {
				return fmt.Errorf("the server saw %s, want the client's %s", saw, own)
			}
			return nil
		})
	}
	nodesTalkIn(t, "WireGuard")
	for _, row := range []struct{ list, want string }{
		{"resourceexports", "antctl-west-default-nginx-service"}, {"resourceexports", "antctl-west-default-nginx-endpoints"},
		{"resourceimports", "default-nginx-service"}, {"resourceimports", "default-nginx-endpoints"},
	} {
		if out := antctl("get", row.list); !strings.Contains(out, row.want) {
			t.Errorf("antctl mc get %s has no %s:\n%s", row.list, row.want, out)
		}
	}
	kubectl(t, "west", "delete", "serviceexport", "nginx", "-n", "default")
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Kubectl(ctx, "east", "get", "service", "-n", "default", "-o", "name")
		if err == nil && strings.Contains(out, "antrea-mc-nginx") {
			err = errors.New("west exports no more, and the Service is still there")
		}
		return err
	})
	for _, cluster := range []string{"east", "west"} {
		kubectl(t, cluster, "annotate", "node", "node-1", "multicluster.antrea.io/gateway-")
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
