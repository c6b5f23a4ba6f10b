package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
)

// runTrace follows a packet over clusters.
func runTrace(ctx context.Context, clusters string, args ...string) (hops.Path, error) {
	var files []string
	for _, cluster := range strings.Split(clusters, ",") {
		files = append(files, world.Lab.Cluster(cluster).Kubeconfig())
	}
	out, err := world.Lab.Tool(ctx, "north", "tombolo", append([]string{"trace", "--context", strings.Join(files, ","),
		"--family", "ipv4", "-o", "json"}, args...)...)
	var a follow.Answer
	if err == nil {
		err = json.Unmarshal([]byte(out), &a)
	}
	if err == nil && len(a.Paths) != 1 {
		err = fmt.Errorf("want one path")
	}
	if err != nil {
		return hops.Path{}, fmt.Errorf("%w: %s", err, out)
	}
	return a.Paths[0], nil
}

// nodesOf returns the Nodes of a path: "east/node-2 east/node-1".
func nodesOf(p hops.Path) string {
	var out []string
	for _, h := range p.Hops {
		cluster, _, _ := strings.Cut(h.Cluster, "/")
		out = append(out, cluster+"/"+h.Node)
	}
	return strings.Join(out, " ")
}

// traced waits until a path ends as it is wanted.
func traced(t *testing.T, clusters, verdict, text string, args ...string) hops.Path {
	t.Helper()
	var p hops.Path
	eventually(t, stateLimit, func(ctx context.Context) (err error) {
		start := time.Now()
		if p, err = runTrace(ctx, clusters, args...); err != nil {
			return err
		}
		if p.End.Verdict != verdict || !strings.Contains(p.End.Text, text) {
			return fmt.Errorf("%s: %+v, want %s, %s", nodesOf(p), p.End, verdict, text)
		}
		t.Logf("%s: %s (%.1f s)", nodesOf(p), p.End.Text, time.Since(start).Seconds())
		return nil
	})
	return p
}

// sentPacket sends packets until one ends as it is wanted.
func sentPacket(t *testing.T, verdict, text string, args ...string) hops.PacketPath {
	t.Helper()
	var a follow.PacketAnswer
	contexts := world.Lab.Cluster("east").Kubeconfig() + "," + world.Lab.Cluster("west").Kubeconfig()
	eventually(t, stateLimit, func(ctx context.Context) error {
		start := time.Now()
		out, err := world.Lab.Tool(ctx, "north", "tombolo", append([]string{"trace", "--packet", "--context", contexts,
			"--family", "ipv4", "-o", "json", "--timeout", "4s"}, args...)...)
		if err == nil {
			a = follow.PacketAnswer{}
			err = json.Unmarshal([]byte(out), &a)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if e := a.Path.End; e.Verdict != verdict || !strings.Contains(e.Text, text) {
			return fmt.Errorf("%s: %+v, want %s, %s; not watched: %q", visitsOf(a.Path), e, verdict, text, a.Unwatched)
		}
		t.Logf("%s: %s (%.1f s)", visitsOf(a.Path), a.Path.End.Text, time.Since(start).Seconds())
		return nil
	})
	return a.Path
}

// visitsOf returns the Nodes that a packet has met, as nodesOf.
func visitsOf(p hops.PacketPath) string {
	var out []string
	for _, v := range p.Visits {
		cluster, _, _ := strings.Cut(v.Cluster, "/")
		out = append(out, cluster+"/"+v.Node)
	}
	return strings.Join(out, " ")
}

// testTrace follows packets from a Pod of east to nginx of west, without sending them and sent: to each server, to a
// policy that drops them, to a Gateway that is silent, and to the border of what is asked.
func testTrace(t *testing.T) {
	ask := []string{"--from", "default/client", "--to", "default/nginx", "--to-cluster", "test-cluster-west"}
	first := "east/" + regular(t, "east") + " east/" + gatewayOf(t, "east") + " west/" + gatewayOf(t, "west")
	servers := strings.Fields(kubectl(t, "west", "get", "pods", "-n", "default", "-l", "app=nginx", "-o",
		`jsonpath={range .items[*]}{.metadata.name}/{.spec.nodeName}{"\n"}{end}`))
	if len(servers) != 2 {
		t.Fatalf("servers: %v", servers)
	}
	for _, server := range servers {
		name, node, _ := strings.Cut(server, "/")
		p := traced(t, "east,west", "delivered", "delivered to Pod default/"+name+" at Node west/kubeconfig/"+node,
			slices.Concat(ask, []string{"--endpoint", "default/" + name})...)
		want := first
		if node != gatewayOf(t, "west") {
			want += " west/" + node
		}
		if nodesOf(p) != want {
			t.Errorf("path %s, want %s", nodesOf(p), want)
		}
		if choice := p.Hops[2].Choices; len(choice) == 0 || choice[0].Owner != "Service default/nginx" ||
			choice[0].Buckets[choice[0].Chosen].Name != "default/"+name {
			t.Errorf("choices at the Gateway of west: %+v", choice)
		}
	}
	sentTo := func(verdict, text, visits string) {
		t.Helper()
		p := sentPacket(t, verdict, text, "--from", "default/client", "--to", "default/antrea-mc-nginx")
		if !strings.HasPrefix(visitsOf(p), visits) {
			t.Errorf("the packet has met %s, want %s", visitsOf(p), visits)
		}
	}
	sentTo("delivered", "reached Pod default/nginx-", first)
	traced(t, "east", "out-of-sight", "cluster test-cluster-west, which is not among the clusters that are asked",
		"--from", "default/client", "--to", "default/nginx")
	must(t, world.Apply(testContext(t), "west", `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: traced, namespace: default}
spec: {podSelector: {matchLabels: {app: nginx}}, policyTypes: [Ingress]}
`))
	traced(t, "east,west", "dropped", "(isolated): isolated for ingress by NetworkPolicy default/traced", ask...)
	sentTo("dropped", "(isolated): isolated for ingress by NetworkPolicy default/traced", first)
	kubectl(t, "west", "delete", "networkpolicy", "traced", "-n", "default")
	traced(t, "east,west", "delivered", "delivered to Pod default/nginx-", ask...)

	gateway := world.Lab.Cluster("west").Node(gatewayOf(t, "west"))
	must(t, gateway.Signal("tombolo-agent", syscall.SIGSTOP))
	t.Cleanup(func() { _ = gateway.Signal("tombolo-agent", syscall.SIGCONT) })
	p := traced(t, "east,west", "unanswered", "it is sent to Node west/kubeconfig/"+gateway.Name(),
		slices.Concat(ask, []string{"--timeout", "4s"})...)
	if nodesOf(p) != strings.TrimSuffix(first, " west/"+gateway.Name()) {
		t.Errorf("path %s", nodesOf(p))
	}
	sentTo("out-of-sight", "for cluster test-cluster-west, by the tunnel to",
		strings.TrimSuffix(first, " west/"+gateway.Name()))
	must(t, gateway.Signal("tombolo-agent", syscall.SIGCONT))
	traced(t, "east,west", "delivered", "delivered to Pod default/nginx-", ask...)
}
