package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// testUninstall follows the documents: it removes Tombolo from a cluster's Nodes without a reboot. Then each Node has
// its addresses again, and nothing of Tombolo. The API server still reaches its kubelet.
func testUninstall(t *testing.T) {
	const cluster = "east" // a Node of west is off
	manifests := filepath.Join(world.Lab.Repo(), "deploy", "agent")
	file := func(name string) string { return filepath.Join(manifests, name) }
	kubectl(t, cluster, "delete", "daemonset", "-n", "kube-system", "tombolo-agent")
	kubectl(t, cluster, "apply", "-f", file("tombolo-uninstall.yml"))
	kubectl(t, cluster, "rollout", "status", "-n", "kube-system", "daemonset/tombolo-uninstall", "--timeout=4m")
	log := kubectl(t, cluster, "logs", "-n", "kube-system", "-l", "component=tombolo-uninstall", "-c", "uninstall",
		"--tail=-1")
	nodes := world.Lab.Cluster(cluster).Nodes()
	if n := strings.Count(log, "this Node has nothing of Tombolo any more"); n != len(nodes) {
		t.Errorf("%d of %d Nodes have nothing of Tombolo any more:\n%s", n, len(nodes), log)
	}
	for _, n := range nodes {
		links := nodeExec(t, cluster, n.Name(), "ip", "-brief", "address")
		if !strings.Contains(links, n.InternalIP()+"/") {
			t.Errorf("%s has lost its address %s:\n%s", n, n.InternalIP(), links)
		}
		for _, name := range []string{"br-", "antrea-", "tombolo"} {
			if strings.Contains(links, name) {
				t.Errorf("%s still has an interface %q:\n%s", n, name, links)
			}
		}
		for what, args := range map[string][]string{
			"tables": {"nft", "list", "tables"}, "rules": {"ip", "rule"}, "routes": {"ip", "route", "show", "proto", "116"},
			"files": {"find", "/etc/cni/net.d", "/opt/cni/bin", "/var/lib/tombolo", "-name", "*tombolo*", "-type", "f"},
		} {
			out := nodeExec(t, cluster, n.Name(), args...)
			if strings.Contains(out, "tombolo") || strings.Contains(out, "116") {
				t.Errorf("%s still has %s:\n%s", n, what, out)
			}
		}
	}
	kubectl(t, cluster, "delete", "validatingadmissionpolicybinding", "tombolo-tiers")
	for _, name := range []string{"tombolo-uninstall.yml", "tombolo-wireguard.yml", "tombolo.yml"} {
		// The API server reads the deletion of the binding some seconds later, and refuses that of default Tiers until then.
		eventually(t, stateLimit, func(ctx context.Context) error {
			_, err := world.Kubectl(ctx, cluster, "delete", "-f", file(name), "--ignore-not-found", "--timeout=2m")
			return err
		})
	}
	// Pods that are not in the host's network end when there is a CNI plugin again.
	if left := kubectl(t, cluster, "get", "daemonsets,deployments,configmaps,serviceaccounts,services", "-n",
		"kube-system", "-l", "app=tombolo", "-o", "name"); left != "" {
		t.Errorf("the cluster still has\n%s", left)
	}
}
