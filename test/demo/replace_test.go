package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// replace runs the commands of docs/replace-cni.md in one of the demo's clusters: first back to another plugin, then
// from it to Tombolo. The other one is the plugins `bridge` and `host-local`, with routes between Nodes. Each time Pods
// of two Nodes reach each other, over IPv4.
func replace(ctx context.Context, t *testing.T, d *demo) {
	t.Helper()
	const cluster = "east"
	c := d.world.Lab.Cluster(cluster)
	dir := t.TempDir()
	if err := os.Symlink(c.Kubeconfig(), filepath.Join(dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tombolo", "tombolo-crds", "tombolo-uninstall"} {
		text, err := c.Manifest("agent/" + name + ".yml")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".yml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(d.world.Lab.Repo(), "docs", "replace-cni.md"))
	if err != nil {
		t.Fatal(err)
	}
	section := func(heading string) []step {
		_, text, found := strings.Cut(string(page), "\n## "+heading+"\n")
		if !found {
			t.Fatalf("docs/replace-cni.md has no section %q", heading)
		}
		text, _, _ = strings.Cut(text, "\n## ")
		return stepsOf(text)
	}
	run := func(steps ...step) {
		for _, s := range steps {
			s.run(ctx, t, d.world.Lab, dir)
		}
	}
	if err := d.world.Nginx(ctx, cluster, 2); err != nil {
		t.Fatal(err)
	}
	run(section("Before")...)
	back, from := section("Back to another plugin"), section("From another plugin")
	if len(back) != 2 || len(from) != 2 {
		t.Fatalf("%d steps lead back and %d from another plugin, want 2 each", len(back), len(from))
	}
	began := time.Now()
	run(back[0])
	for _, n := range c.Nodes() {
		otherPlugin(ctx, t, d, c, n)
	}
	run(back[1])
	reachesEachOther(ctx, t, d, cluster)
	t.Logf("Pods have the other plugin's network %.0f s after the beginning", time.Since(began).Seconds())

	began = time.Now()
	for _, n := range c.Nodes() {
		onNode(ctx, t, n, "rm /etc/cni/net.d/10-bridge.conflist; ip link delete cni0; ip route flush proto 99")
	}
	run(from...)
	reachesEachOther(ctx, t, d, cluster)
	t.Logf("Pods have Tombolo's network %.0f s after the beginning", time.Since(began).Seconds())
}

// otherPlugin gives a Node the reference plugins of Debian's package, and routes to the Pods of the other Nodes.
func otherPlugin(ctx context.Context, t *testing.T, d *demo, c *lab.Cluster, n *lab.Node) {
	t.Helper()
	ranges := func(name string) netip.Prefix {
		out, err := d.world.Kubectl(ctx, c.Name(), "get", "node", name, "-o", "jsonpath={.spec.podCIDRs[0]}")
		if err != nil {
			t.Fatal(err)
		}
		return netip.MustParsePrefix(out)
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"bridge","bridge":"cni0",`+
		`"isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":%q}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`,
		ranges(n.Name()))
	commands := []string{"cp /usr/lib/cni/bridge /usr/lib/cni/host-local /opt/cni/bin/"}
	for _, other := range c.Nodes() {
		if other.Name() != n.Name() {
			commands = append(commands,
				fmt.Sprintf("ip route replace %s via %s proto 99", ranges(other.Name()), other.InternalIP()))
		}
	}
	onNode(ctx, t, n, strings.Join(append(commands,
		"cat >/etc/cni/net.d/10-bridge.conflist <<'END'\n"+conf+"\nEND"), "\n"))
}

// onNode runs commands on a Node.
func onNode(ctx context.Context, t *testing.T, n *lab.Node, commands string) {
	t.Helper()
	if out, err := n.Exec(ctx, "sh", "-ec", commands); err != nil {
		t.Fatalf("on %s: %v\n%s\n%s", n, err, commands, out)
	}
}

// reachesEachOther waits until the server on each Node answers a client on node-1.
func reachesEachOther(ctx context.Context, t *testing.T, d *demo, cluster string) {
	t.Helper()
	if err := d.world.ClientPod(ctx, cluster, "reach", "node-1"); err != nil {
		t.Fatal(err)
	}
	err := scenario.Eventually(ctx, 3*time.Minute, func(ctx context.Context) error {
		out, err := d.world.Kubectl(ctx, cluster, "get", "pods", "-n", "default", "-l", "app=nginx", "-o",
			`jsonpath={range .items[?(@.status.phase=="Running")]}{.status.podIP}{"\n"}{end}`)
		if err != nil {
			return err
		}
		servers := strings.Fields(out)
		if len(servers) != 2 {
			return fmt.Errorf("there are the servers %v, want 2", servers)
		}
		for _, ip := range servers {
			if out, err := d.world.Exec(ctx, cluster, "reach", "/echo", "get", "http://"+ip+":8080/", "--count", "5",
				"--timeout", "2s"); err != nil || !strings.Contains(out, "5 answered, 0 failed") {
				return fmt.Errorf("server %s does not answer: %w\n%s", ip, err, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := d.world.Kubectl(ctx, cluster, "delete", "pod", "reach", "-n", "default", "--now"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
