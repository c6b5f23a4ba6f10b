package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// seen asks a URL until all answers are there, and returns the clients' addresses that servers saw.
func seen(t *testing.T, cluster, pod, url string, want func(string) error) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\s*\d+\s+\S+/(\S+)\s*$`)
	eventually(t, stateLimit, func(ctx context.Context) error {
		out, err := world.Exec(ctx, cluster, pod, "/echo", "get", url, "--clients", "--count", "5", "--timeout", "2s")
		if err != nil {
			return fmt.Errorf("%s/%s to %s: %w\n%s", cluster, pod, url, err, out)
		}
		for _, m := range line.FindAllStringSubmatch(out, -1) {
			if err := want(m[1]); err != nil {
				return fmt.Errorf("%s/%s to %s: %w", cluster, pod, url, err)
			}
		}
		return nil
	})
}

// testClientAddresses connects Pods on any Nodes of two clusters by their addresses, and through a Service whose
// endpoints are Pods: servers see the clients. A download and requests that began before the clusters agreed on it go
// on.
func testClientAddresses(t *testing.T) {
	ctx := testContext(t)
	far := map[string]string{"east": "west", "west": "east"}
	ips := map[string]string{} // by "cluster/node"
	for cluster := range far {
		for _, node := range []string{"node-1", "node-2"} {
			must(t, world.ClientPod(ctx, cluster, "kept-"+node, node))
			ips[cluster+"/"+node] = kubectl(t, cluster, "get", "pod", "kept-"+node, "-o", "jsonpath={.status.podIP}")
		}
	}
	url := serviceURL(t)
	requests := background(t, "/echo", "get", url+"/", "--count", "300", "--interval", "100ms", "--timeout", lossLimit)
	pairs := func(want func(client, saw string) error) {
		t.Helper()
		for from, address := range ips {
			cluster, node, _ := strings.Cut(from, "/")
			for to, ip := range ips {
				if strings.HasPrefix(to, far[cluster]) {
					seen(t, cluster, "kept-"+node, "http://"+ip+":8080/", func(saw string) error { return want(address, saw) })
				}
			}
		}
	}
	kept := func(client, saw string) error {
		if saw != client {
			return fmt.Errorf("the server saw %s, want the client's %s", saw, client)
		}
		return nil
	}
	translated := func(client, saw string) error {
		if saw == client || !strings.HasPrefix(saw, "172.") && !strings.HasPrefix(saw, "192.168.") {
			return fmt.Errorf("the server saw %s, want a Gateway's address", saw)
		}
		return nil
	}
	pairs(kept)
	controllers := controllerPods(t, "east")
	// While one cluster alone announces its Pods, the other's Pods reach them, and need not be announced.
	announced := memberSets(t, "east", map[string]string{"podCIDRs": "[]", "publishPodAddresses": "false"})
	for _, node := range []string{"node-1", "node-2"} {
		for _, to := range []string{"west/node-1", "west/node-2"} {
			from := ips["east/"+node]
			seen(t, "east", "kept-"+node, "http://"+ips[to]+":8080/", func(saw string) error { return translated(from, saw) })
		}
	}
	download := background(t, "/echo", "download", "http://"+ips["west/node-2"]+":8080/download?bytes=3000000&rate=100000")
	memberSets(t, "east", announced)
	start := time.Now()
	pairs(kept)
	t.Logf("all pairs of Pods see each other %.1f s after both clusters announce their ranges",
		time.Since(start).Seconds())
	download()
	requests()
	if now := controllerPods(t, "east"); now != controllers {
		t.Errorf("the member's controllers are %s after its configuration has changed, want %s: a change needs no restart",
			now, controllers)
	}
	// Gateways may remember earlier connections, which they translated, but track no new ones.
	between := fmt.Sprintf("orig=(src=%s,dst=%s,", ips["east/"+regular(t, "east")], ips["west/"+regular(t, "west")])
	tracked := func() map[string][]string { // by "cluster/node"
		out := map[string][]string{}
		for from := range ips {
			cluster, node, _ := strings.Cut(from, "/")
			for line := range strings.Lines(nodeExec(t, cluster, node, "ovs-appctl", "dpctl/dump-conntrack")) {
				if _, ports, ok := strings.Cut(line, between); ok {
					ports, _, _ = strings.Cut(ports, ")")
					out[from] = append(out[from], ports)
				}
			}
		}
		return out
	}
	before := tracked()
	// Only these two, just before the switches are read: a switch forgets a closed connection after half a minute.
	own, other := regular(t, "east"), ips["west/"+regular(t, "west")]
	seen(t, "east", "kept-"+own, "http://"+other+":8080/", func(saw string) error { return kept(ips["east/"+own], saw) })
	after := tracked()
	for from := range ips {
		cluster, node, _ := strings.Cut(from, "/")
		fresh := slices.DeleteFunc(after[from], func(ports string) bool { return slices.Contains(before[from], ports) })
		if gateway := node == gatewayOf(t, cluster); gateway == (len(fresh) > 0) {
			t.Errorf("%s, a Gateway: %v, tracks new connections between Pods of regular Nodes: %v", from, gateway, fresh)
		}
	}

	// The Service's endpoints are Pods from now on, and clusterIPs again afterwards.
	clusterIPs := memberSets(t, "west", map[string]string{"endpointIPType": "PodIP"})
	defer memberSets(t, "west", clusterIPs)
	for _, node := range []string{"node-1", "node-2"} {
		from := ips["east/"+node]
		seen(t, "east", "kept-"+node, url+"/", func(saw string) error { return kept(from, saw) })
	}
}

// controllerPods returns the UIDs of a member's controllers, with their numbers of restarts.
func controllerPods(t *testing.T, cluster string) string {
	t.Helper()
	return kubectl(t, cluster, "get", "pods", "-n", "kube-system", "-l", "component=antrea-mc-controller", "-o",
		"jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount} {end}")
}

// gatewayOf is the Node that is a cluster's Gateway.
func gatewayOf(t *testing.T, cluster string) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, cluster, "get", "gateway", "-n", "kube-system", "-o",
		"jsonpath={.items[0].metadata.name}"))
}

// regular is the Node that is not.
func regular(t *testing.T, cluster string) string {
	t.Helper()
	return map[string]string{"node-1": "node-2", "node-2": "node-1"}[gatewayOf(t, cluster)]
}

// memberSets changes keys of the member controller's configuration and returns their earlier values.
func memberSets(t *testing.T, cluster string, keys map[string]string) map[string]string {
	t.Helper()
	config, err := world.MemberConfigText(testContext(t), cluster)
	must(t, err)
	before := map[string]string{}
	for key := range keys {
		found := regexp.MustCompile(`(?m)^` + key + `: *(.*)$`).FindStringSubmatch(config)
		if found == nil {
			t.Fatalf("the member's configuration in %s has no %s:\n%s", cluster, key, config)
		}
		before[key] = found[1]
	}
	must(t, world.MemberConfig(testContext(t), cluster, keys))
	return before
}
