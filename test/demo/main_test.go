package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// TestDemo is README's first command, `make demo`. Then its clusters encrypt what they send each other, and `tombolo mc
// verify` has to find both versions of IP in order. The lab that is taken down leaves nothing behind.
func TestDemo(t *testing.T) {
	d := &demo{name: fmt.Sprintf("demo%d", os.Getpid()), withTenants: true, start: time.Now()}
	before, err := lab.Snapshot(d.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		l, err := lab.Open(d.name)
		if err == nil {
			err = l.Down(ctx)
		}
		if err == nil {
			err = before.Compare(ctx)
		}
		if err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if err := d.run(ctx); err != nil {
		t.Fatal(err)
	}
	traced(ctx, t, d)
	if err := d.world.InstallWireGuard(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.world.ConfigureAgents(ctx, d.world.Members(), "trafficEncryptionMode: none",
		"trafficEncryptionMode: wireGuard"); err != nil {
		t.Fatal(err)
	}
	verify(ctx, t, d)
	takenDown(ctx, t, d)
	guide(ctx, t, d)
	replace(ctx, t, d)
}

// traced follows a tenant's packet to the other cluster, whose two Gateways are chosen by a hash. Then it removes the
// tenants: their Namespaces name networks that go with the ClusterSet.
func traced(ctx context.Context, t *testing.T, d *demo) {
	t.Helper()
	contexts := d.world.Lab.Cluster("east").Kubeconfig() + "," + d.world.Lab.Cluster("west").Kubeconfig()
	for _, version := range []string{"ipv4", "ipv6"} {
		out, err := d.world.Lab.Tool(ctx, "east", "tombolo", "trace", "--context", contexts, "--from", "blue/web",
			"--from-cluster", "test-cluster-east", "--to", "blue/web", "--to-cluster", "test-cluster-west", "--port", "8080",
			"--family", version)
		if err != nil || !strings.Contains(out, "=> delivered to Pod blue/web") || strings.Contains(out, "chooses ,") {
			t.Errorf("a trace over %s: %v\n%s", version, err, out)
		}
	}
	for _, gone := range []struct {
		cluster string
		args    []string
	}{
		{"north", []string{"tn,nc", "--all", "-n", scenario.LeaderNamespace}},
		{"east", []string{"namespace", "blue"}},
		{"west", []string{"namespace", "blue", "shared"}},
	} {
		if out, err := d.world.Kubectl(ctx, gone.cluster, append([]string{"delete"}, gone.args...)...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// takenDown plans the set-up again, which joins nothing, and takes the ClusterSet down. Then no controller and no
// object of it is left, and agents stay.
func takenDown(ctx context.Context, t *testing.T, d *demo) {
	t.Helper()
	north := "north"
	out, err := d.world.Lab.Tool(ctx, north, "tombolo", append(slices.Clone(d.up), "--dry-run")...)
	if err != nil || strings.Contains(out, "join") || !strings.Contains(out, "leader of ClusterSet") {
		t.Errorf("a plan for clusters that are joined: %v\n%s", err, out)
	}
	out, err = d.world.Lab.Tool(ctx, north, "tombolo", "mc", "down", d.named(), "--clusterset", scenario.ClusterSet,
		"--yes")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	for _, cluster := range d.world.Members() {
		for _, kind := range []string{"clustersets", "clusterinfoimports", "gateways.multicluster.crd.antrea.io",
			"serviceimports", "deployments -l app=antrea", "resourceexports", "namespaces antrea-multicluster"} {
			args := append([]string{"get", "--ignore-not-found", "-o", "name"}, strings.Fields(kind)...)
			if !strings.HasPrefix(kind, "namespaces") {
				args = append(args, "-A")
			}
			err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
				out, err := d.world.Kubectl(ctx, cluster, args...)
				if err == nil && strings.TrimSpace(out) != "" {
					err = fmt.Errorf("%s of %s are left: %s", kind, cluster, out)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		out, err := d.world.Kubectl(ctx, cluster, "get", "daemonset", "tombolo-agent", "-n", "kube-system", "-o",
			"jsonpath={.status.numberReady}")
		if err != nil || out != "2" {
			t.Errorf("%s has %s agents, want 2: %v", cluster, out, err)
		}
	}
}

// verify runs `tombolo mc verify`: answers, the size of packets, and policies.
func verify(ctx context.Context, t *testing.T, d *demo) {
	t.Helper()
	out, err := d.world.Lab.Tool(ctx, "east", "tombolo", "mc", "verify", d.world.Lab.Cluster("east").Kubeconfig(),
		d.world.Lab.Cluster("west").Kubeconfig(), "--wait", "3m")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, check := range []string{"Services", "MTU", "Pods"} {
		for _, version := range []string{"", " over IPv6"} {
			if n := len(regexp.MustCompile(`(?m)^pass .* `+check+version+` \S+ to \S+: `).FindAllString(out, -1)); n != 2 {
				t.Errorf("%s%s passes %d times, want both ways:\n%s", check, version, n, out)
			}
		}
	}
}
