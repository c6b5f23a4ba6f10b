package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testVirtualNetworks follows the guide of virtual networks, whose objects it takes from docs/virtual-networks.md. Pods
// web and db are in network blue, on two Nodes. Pod guest is in network red.
func testVirtualNetworks(t *testing.T) {
	ctx := testContext(t)
	const cluster = "east"
	apply := func(manifest string) { t.Helper(); must(t, world.Apply(ctx, cluster, manifest)) }
	page, err := os.ReadFile(filepath.Join(world.Lab.Repo(), "docs/virtual-networks.md"))
	must(t, err)
	_, guide, _ := strings.Cut(string(page), "   ```yaml\n")
	guide, _, found := strings.Cut(guide, "   ```\n")
	if !found {
		t.Fatal("docs/virtual-networks.md has no manifest")
	}
	var manifest strings.Builder
	for line := range strings.Lines(guide) {
		manifest.WriteString(strings.TrimPrefix(line, "   "))
	}
	apply(manifest.String())
	t.Cleanup(func() {
		_, _ = world.Kubectl(context.WithoutCancel(ctx), cluster, "delete", "namespace", "shop", "--wait=false")
	})
	apply(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  namespace: shop
  name: red
  labels: {vn: red}
  annotations: {juniper.net/networks: '{"ipamV4Subnet": "10.51.0.0/24"}'}
spec: {config: '{"cniVersion": "0.3.1", "type": "contrail-k8s-cni"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: shop, name: elsewhere}
spec: {config: '{"cniVersion": "0.3.1", "type": "bridge"}'}
`)
	state := func(want string) {
		t.Helper()
		eventually(t, stateLimit, func(context.Context) error {
			if have := kubectl(t, cluster, "get", "vn", "blue", "-n", "shop", "-o", "jsonpath={.status.state}"); have != want {
				return fmt.Errorf("VirtualNetwork shop/blue has state %q, want %q: %s", have, want,
					kubectl(t, cluster, "get", "sn,vn", "-n", "shop", "-o", "yaml"))
			}
			return nil
		})
	}
	state("Success")

	pod := func(name, node, networks string) {
		t.Helper()
		apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, annotations: {k8s.v1.cni.cncf.io/networks: '%s'}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - {name: echo, image: "tombolo/echo:dev", imagePullPolicy: Never, args: [serve], env: [{name: POD_NAME, value: %s}]}
`, name, networks, node, name))
	}
	ready := func(names ...string) {
		t.Helper()
		for _, name := range names {
			kubectl(t, cluster, "wait", "--for=condition=Ready", "pod/"+name, "-n", "shop", "--timeout=2m")
		}
	}
	url := func(node, network string) (to string) {
		t.Helper()
		eventually(t, stateLimit, func(context.Context) error {
			ip := kubectl(t, cluster, "get", "nnr", node, "-o",
				fmt.Sprintf(`jsonpath={.spec.networks[?(@.name=="%s")].addresses[*].address}`, network))
			if to = "http://" + ip + ":8080/"; ip == "" || strings.Contains(ip, " ") {
				return fmt.Errorf("NodeNetworkReport %s has the addresses %q of network %s, want one", node, ip, network)
			}
			return nil
		})
		return to
	}
	pod("web", "node-1", "blue")
	pod("db", "node-2", "blue")
	pod("guest", "node-2", "elsewhere, red") // the first one is another plugin's
	pod("lost", "node-1", "green")
	ready("web", "db", "guest")
	must(t, world.ClientPod(ctx, cluster, "shop/plain", "node-2"))
	web, db, guest := url("node-1", "blue"), url("node-2", "blue"), url("node-2", "red")
	if !strings.HasPrefix(web, "http://10.50.0.") || !strings.HasPrefix(guest, "http://10.51.0.") {
		t.Errorf("the addresses are %s and %s, want them of the Subnets", web, guest)
	}
	reaches(t, cluster, "shop/web", db, true)
	reaches(t, cluster, "shop/db", web, true)
	eventually(t, stateLimit, func(context.Context) error {
		have := kubectl(t, cluster, "get", "pod", "web", "-n", "shop", "-o",
			`jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
		for _, want := range []string{`"shop/default-podnetwork"`, `"default": true`, `"shop/blue"`, `"eth1"`,
			`"` + strings.TrimSuffix(strings.TrimPrefix(web, "http://"), ":8080/") + `"`, `"10.50.0.1"`} {
			if !strings.Contains(have, want) {
				return fmt.Errorf("the network status of Pod shop/web is %s, want one with %s", have, want)
			}
		}
		return nil
	})
	apart := func() {
		t.Helper()
		reaches(t, cluster, "shop/guest", db, false)
		reaches(t, cluster, "shop/guest", web, false)
		reaches(t, cluster, "shop/web", guest, false)
		reaches(t, cluster, "shop/plain", db, false)
	}
	apart()
	eventually(t, stateLimit, func(context.Context) error {
		have := kubectl(t, cluster, "get", "events", "-n", "shop", "--field-selector", "involvedObject.name=lost", "-o",
			"jsonpath={.items[*].message}")
		if !strings.Contains(have, "VirtualNetwork shop/green is not there") {
			return fmt.Errorf("Events of Pod shop/lost: %q, want the missing network", have)
		}
		return nil
	})

	apply(`
apiVersion: core.contrail.juniper.net/v4
kind: VirtualNetworkRouter
metadata: {namespace: shop, name: all}
spec:
  type: mesh
  virtualNetworkSelector: {matchExpressions: [{key: vn, operator: In, values: [blue, red]}]}
`)
	reaches(t, cluster, "shop/web", guest, true)
	reaches(t, cluster, "shop/guest", web, true)
	reaches(t, cluster, "shop/plain", guest, false)
	kubectl(t, cluster, "delete", "vnr", "all", "-n", "shop")
	apart()

	// Network twin has the range of blue. Its Pods twin-web and twin-db have the addresses of web and db. A router joins
	// it with network third.
	apply(`
apiVersion: core.contrail.juniper.net/v1alpha1
kind: Subnet
metadata: {namespace: shop, name: twin-v4}
spec: {cidr: 10.50.0.0/24}
---
apiVersion: core.contrail.juniper.net/v1alpha1
kind: VirtualNetwork
metadata: {namespace: shop, name: twin, labels: {vn: joined}}
spec:
  v4SubnetReference: {apiVersion: core.contrail.juniper.net/v1alpha1, kind: Subnet, namespace: shop, name: twin-v4}
---
apiVersion: core.contrail.juniper.net/v1alpha1
kind: Subnet
metadata: {namespace: shop, name: third-v4}
spec: {cidr: 10.52.0.0/24}
---
apiVersion: core.contrail.juniper.net/v1alpha1
kind: VirtualNetwork
metadata: {namespace: shop, name: third, labels: {vn: joined}}
spec:
  v4SubnetReference: {apiVersion: core.contrail.juniper.net/v1alpha1, kind: Subnet, namespace: shop, name: third-v4}
---
apiVersion: core.contrail.juniper.net/v4
kind: VirtualNetworkRouter
metadata: {namespace: shop, name: joined}
spec: {type: mesh, virtualNetworkSelector: {matchLabels: {vn: joined}}}
`)
	at := func(url string) string { return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), ":8080/") }
	for name, url := range map[string]string{"twin-web": web, "twin-db": db} {
		node := map[string]string{"twin-web": "node-1", "twin-db": "node-2"}[name]
		pod(name, node, fmt.Sprintf(`[{"name": "twin", "ips": ["%s"]}]`, at(url)))
	}
	pod("in-both", "node-1", "blue, twin")
	pod("third", "node-2", "third")
	ready("twin-web", "twin-db", "third")
	third := url("node-2", "third")
	for _, r := range []struct{ client, url, server string }{
		{"web", db, "db"}, {"twin-web", db, "twin-db"}, {"db", web, "web"}, {"twin-db", web, "twin-web"},
		{"twin-web", third, "third"}, {"third", web, "twin-web"}, {"third", db, "twin-db"},
	} {
		eventually(t, stateLimit, func(ctx context.Context) error {
			a, err := get(ctx, cluster, "shop/"+r.client, r.url, 20, "--timeout", "500ms")
			for by := range a.by {
				if !strings.HasSuffix(by, "/"+r.server) {
					t.Fatalf("Pod %s asks %s, and %s answers, want %s", r.client, r.url, by, r.server)
				}
			}
			if a.ok != 20 {
				return fmt.Errorf("Pod %s asks %s: %d of 20 answered: %w", r.client, r.url, a.ok, err)
			}
			return nil
		})
	}
	reaches(t, cluster, "shop/guest", db, false)
	reaches(t, cluster, "shop/web", third, false)
	eventually(t, stateLimit, func(context.Context) error {
		have := kubectl(t, cluster, "get", "events", "-n", "shop", "--field-selector", "involvedObject.name=in-both", "-o",
			"jsonpath={.items[*].message}")
		for _, want := range []string{"shop/blue", "shop/twin", "10.50.0.0/24"} {
			if !strings.Contains(have, want) {
				return fmt.Errorf("Events of Pod shop/in-both: %q, want both networks and the range", have)
			}
		}
		return nil
	})

	// Network mine has the range, too, and is the own network of Pods mine-web and mine-db. They have the addresses of web
	// and db there. The kubelet, Services and DNS use their addresses of the Nodes.
	apply(`
apiVersion: core.contrail.juniper.net/v1alpha1
kind: Subnet
metadata: {namespace: shop, name: mine-v4}
spec: {cidr: 10.50.0.0/24}
---
apiVersion: core.contrail.juniper.net/v1alpha1
kind: VirtualNetwork
metadata: {namespace: shop, name: mine}
spec:
  podNetwork: true
  v4SubnetReference: {apiVersion: core.contrail.juniper.net/v1alpha1, kind: Subnet, namespace: shop, name: mine-v4}
---
apiVersion: v1
kind: Service
metadata: {name: mine-db, namespace: shop}
spec: {selector: {app: mine-db}, ports: [{port: 80, targetPort: 8080}]}
`)
	for name, url := range map[string]string{"mine-web": web, "mine-db": db} {
		apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: shop
  labels: {app: %[1]s}
  annotations: {net.juniper.contrail.podnetwork: shop/mine, net.juniper.contrail.podnetwork.ip: %[2]s}
spec:
  nodeName: %[3]s
  terminationGracePeriodSeconds: 1
  containers:
  - name: echo
    image: tombolo/echo:dev
    imagePullPolicy: Never
    args: [serve]
    env: [{name: POD_NAME, value: %[1]s}]
    readinessProbe: {httpGet: {port: 8080, path: /}}
`, name, at(url), map[string]string{"mine-web": "node-1", "mine-db": "node-2"}[name]))
	}
	ready("mine-web", "mine-db")
	podIP := kubectl(t, cluster, "get", "pod", "mine-db", "-n", "shop", "-o", "jsonpath={.status.podIP}")
	byNode := "http://" + podIP + ":8080/"
	if !strings.HasPrefix(podIP, "10.11.1.") {
		t.Errorf("status.podIP of Pod mine-db is %s, want an address of its Node", podIP)
	}
	service := "http://" + kubectl(t, cluster, "get", "service", "mine-db", "-n", "shop", "-o",
		"jsonpath={.spec.clusterIP}") + "/"
	for _, url := range []string{db, byNode, service} {
		eventually(t, stateLimit, func(ctx context.Context) error {
			a, err := get(ctx, cluster, "shop/mine-web", url, 20, "--timeout", "1s")
			if a.ok != 20 || a.by["-/-/mine-db"] != 20 {
				return fmt.Errorf("Pod mine-web asks %s: %d of 20 answered by %v: %w", url, a.ok, a.by, err)
			}
			return nil
		})
	}
	for _, client := range []string{"shop/plain", "shop/web", "shop/twin-web"} {
		reaches(t, cluster, client, byNode, false)
	}

	kubectl(t, cluster, "delete", "sn", "blue-v4", "-n", "shop")
	state("Failure")
	reaches(t, cluster, "shop/web", db, true) // what runs goes on
	kubectl(t, cluster, "delete", "namespace", "shop")
	eventually(t, stateLimit, func(context.Context) error {
		if out := strings.TrimSpace(kubectl(t, cluster, "get", "subnetleases", "-o", "name")); out != "" {
			return fmt.Errorf("leases of deleted Subnets are there: %s", out)
		}
		return nil
	})
}
