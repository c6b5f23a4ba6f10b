package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// kubemanagers name the clusters, as in the guide of Contrail CN2. The field listenerPort has no effect, so the
// Kubemanager that sets it has state Warning.
const kubemanagers = `
apiVersion: v1
kind: Namespace
metadata: {name: contrail}
---
apiVersion: configplane.juniper.net/v1alpha1
kind: Kubemanager
metadata: {namespace: contrail, name: km-e}
spec: {clusterName: test-cluster-east}
---
apiVersion: configplane.juniper.net/v1alpha1
kind: Kubemanager
metadata: {namespace: contrail, name: km-n}
spec: {clusterName: test-cluster-north, listenerPort: 19446}
`

// isolatedNamespace is what users of a member create. Its label ns selects the copy.
const isolatedNamespace = `
apiVersion: v1
kind: Namespace
metadata:
  name: ns1
  labels: {core.juniper.net/isolated-namespace: "true", ns: %s-ns1}
`

// sides are the clusters whose Namespaces are joined. north is the central cluster, and is a member too.
var sides = []string{"north", "east"}

// copies are the Namespaces of the central cluster, by the member.
var copies = map[string]string{"north": "km-n-test-cluster-north-ns1", "east": "km-e-test-cluster-east-ns1"}

// routerTo is a router in a copy that imports the router of the other copy.
func routerTo(own, other string) string {
	return fmt.Sprintf(`
apiVersion: core.contrail.juniper.net/v1alpha1
kind: VirtualNetworkRouter
metadata: {namespace: %s, name: vnr-%s, labels: {vnr: vnr-%s}}
spec:
  type: mesh
  virtualNetworkSelector: {matchLabels: {ns: %s-ns1}}
  import:
    virtualNetworkRouters:
      - virtualNetworkRouterSelector: {matchLabels: {vnr: vnr-%s}}
        namespaceSelector: {matchLabels: {ns: %s-ns1}}
`, copies[own], own, own, own, other, other)
}

// central shows the guide of Contrail CN2. The leader is the central cluster. Namespaces of two members have copies in
// it, and routers in the copies join their networks. Then packets between the clusters have the addresses of the Pods.
func (d *demo) central(ctx context.Context) error {
	section("A central cluster: Namespaces of north and east, joined by routers in north")
	if err := d.makeCentral(ctx); err != nil {
		return err
	}
	pods := []*tenantPod{{cluster: "east", namespace: "ns1", name: "web", node: "node-2"},
		{cluster: "north", namespace: "ns1", name: "web", node: "node-2"}}
	for _, p := range pods {
		if err := d.world.Apply(ctx, p.cluster, fmt.Sprintf(isolatedNamespace, p.cluster)); err != nil {
			return err
		}
		if out, err := d.world.Kubectl(ctx, p.cluster, "annotate", "--overwrite", "clusterset", "--all", "-n",
			scenario.MemberNamespace, "tombolo.io/central=true"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		if err := d.tenantPod(ctx, p); err != nil {
			return err
		}
	}
	fmt.Print(strings.TrimSpace(kubemanagers) + "\n\n")
	if err := d.world.Apply(ctx, "north", kubemanagers); err != nil {
		return err
	}
	for _, c := range sides {
		if err := d.shows(ctx, []string{"get", "vn", "-n", copies[c]}, "default-podnetwork", "v6,v4", "Success"); err != nil {
			return err
		}
	}
	if err := d.shows(ctx, []string{"get", "kubemanagers", "-A"}, "km-e", "km-n", "Success", "Warning"); err != nil {
		return err
	}
	// Both are members of networks that the leader numbers, and not joined yet.
	for _, c := range sides {
		if err := d.imports(ctx, c, copies[c]); err != nil {
			return err
		}
	}
	never := func(*tenantPod, *tenantPod) bool { return false }
	if err := d.matrix(ctx, "Before the routers", pods, never); err != nil {
		return err
	}
	for _, r := range []string{routerTo("north", "east"), routerTo("east", "north")} {
		fmt.Print(strings.TrimSpace(r) + "\n\n")
		if err := d.world.Apply(ctx, "north", r); err != nil {
			return err
		}
	}
	always := func(*tenantPod, *tenantPod) bool { return true }
	if err := d.matrix(ctx, "After them", pods, always); err != nil {
		return err
	}
	for _, c := range sides {
		if err := d.shows(ctx, []string{"get", "vnr", "-n", copies[c]}, "vnr-"+c, "mesh", "Success"); err != nil {
			return err
		}
	}
	if err := d.seesClient(ctx, pods[0], pods[1]); err != nil {
		return err
	}
	if err := d.farNetworks(ctx); err != nil {
		return err
	}
	return d.notCentral(ctx, pods)
}

// farIn are the Namespaces of the central cluster where users create the VirtualNetworks, by the member.
var farIn = map[string]string{"north": "ns1", "east": copies["east"]}

// farNetwork is a VirtualNetwork with ranges of its own.
const farNetwork = `
apiVersion: core.contrail.juniper.net/v4
kind: Subnet
metadata: {namespace: %[2]s, name: vn1-v4}
spec: {cidr: 10.6%[1]d.0.0/24}
---
apiVersion: core.contrail.juniper.net/v4
kind: Subnet
metadata: {namespace: %[2]s, name: vn1-v6}
spec: {cidr: "fd6%[1]d::/64"}
---
apiVersion: core.contrail.juniper.net/v4
kind: VirtualNetwork
metadata: {namespace: %[2]s, name: vn1, labels: {vn: vn1}}
spec: {v4SubnetReference: {name: vn1-v4}, v6SubnetReference: {name: vn1-v6}}
`

// farRouter is a router in the Namespace of the VirtualNetwork. It joins vn1 with vn1 of the other cluster.
const farRouter = `
apiVersion: core.contrail.juniper.net/v4
kind: VirtualNetworkRouter
metadata: {namespace: %[1]s, name: far, labels: {vnr: far}}
spec:
  type: mesh
  virtualNetworkSelector: {matchLabels: {vn: vn1}}
  import:
    virtualNetworkRouters:
      - virtualNetworkRouterSelector: {matchLabels: {vnr: far}}
        namespaceSelector: {matchLabels: {ns: %[2]s-ns1}}
`

// farPod has a further interface in VirtualNetwork vn1. It names the Namespace of the central cluster.
const farPod = `
apiVersion: v1
kind: Pod
metadata: {namespace: ns1, name: far, annotations: {k8s.v1.cni.cncf.io/networks: %s/vn1}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: echo, image: "tombolo/echo:dev", imagePullPolicy: Never, args: [serve]}]
`

// farNetworks shows VirtualNetworks of two clusters, in the order of the guide of Contrail CN2. Users create them in
// the central cluster, and routers there join them: in Namespace ns1 of the central cluster itself, and in the copy of
// ns1 of east. Pods have further interfaces in them, and see each other's addresses. When a router goes, they do not
// reach each other any more.
func (d *demo) farNetworks(ctx context.Context) error {
	section("VirtualNetworks of north and east, created and joined in north")
	for i, c := range sides {
		manifest := fmt.Sprintf(farNetwork, i, farIn[c])
		fmt.Print(strings.TrimSpace(manifest) + "\n\n")
		if err := d.world.Apply(ctx, "north", manifest); err != nil {
			return err
		}
	}
	for _, c := range sides {
		if err := d.shows(ctx, []string{"get", "vn", "vn1", "-n", copies[c]}, "v6,v4", "Success"); err != nil {
			return err
		}
	}
	for i, c := range sides {
		manifest := fmt.Sprintf(farRouter, farIn[c], sides[1-i])
		fmt.Print(strings.TrimSpace(manifest) + "\n\n")
		if err := d.world.Apply(ctx, "north", manifest); err != nil {
			return err
		}
	}
	pods := []*tenantPod{{cluster: "east", namespace: "ns1", name: "far", node: "node-1"},
		{cluster: "north", namespace: "ns1", name: "far", node: "node-2"}}
	for _, p := range pods {
		if err := d.farPod(ctx, p); err != nil {
			return err
		}
	}
	if err := d.matrix(ctx, "By their further interfaces", pods,
		func(*tenantPod, *tenantPod) bool { return true }); err != nil {
		return err
	}
	if err := d.seesClient(ctx, pods[0], pods[1]); err != nil {
		return err
	}
	if out, err := d.world.Kubectl(ctx, "north", "delete", "vnr", "far", "-n", copies["east"]); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return d.matrix(ctx, "With one router", pods, func(*tenantPod, *tenantPod) bool { return false })
}

// farPod makes a Pod with an interface in VirtualNetwork vn1 once its cluster has the join, and reads the addresses of
// this interface. A Pod gets the routes to joined networks when it starts.
func (d *demo) farPod(ctx context.Context, p *tenantPod) error {
	if err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := d.world.Kubectl(ctx, p.cluster, "get", "tni", copies[p.cluster]+".vn1", "-o",
			"jsonpath={.spec.joined[*].cidrs[*]}")
		if err == nil && len(strings.Fields(out)) != 2 {
			err = fmt.Errorf("cluster %s knows the ranges %q of joined networks, want two", p.cluster, out)
		}
		return err
	}); err != nil {
		return err
	}
	if err := d.world.Apply(ctx, p.cluster, fmt.Sprintf(farPod, farIn[p.cluster], p.node)); err != nil {
		return err
	}
	if out, err := d.world.Kubectl(ctx, p.cluster, "wait", "--for=condition=Ready", "pod/"+p.name, "-n", p.namespace,
		"--timeout=2m"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := d.world.Kubectl(ctx, p.cluster, "get", "pod", p.name, "-n", p.namespace, "-o",
			`jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
		if err != nil {
			return err
		}
		var interfaces []struct {
			Interface string       `json:"interface"`
			IPs       []netip.Addr `json:"ips"`
		}
		if err := json.Unmarshal([]byte(out), &interfaces); err != nil {
			return fmt.Errorf("interfaces of Pod %s: %w in %q", p, err, out)
		}
		for _, i := range interfaces {
			if i.Interface == "eth1" && len(i.IPs) == 2 {
				p.ips = i.IPs
				return nil
			}
		}
		return fmt.Errorf("Pod %s has the interfaces %s, want eth1 with two addresses", p, out)
	})
}

// makeCentral gives the leader's controller its rights in the central cluster, and lets it use them.
func (d *demo) makeCentral(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(d.world.Lab.Repo(), "deploy", "multicluster", "tombolo-central.yml"))
	if err != nil {
		return err
	}
	if err := d.world.Apply(ctx, "north", string(text)); err != nil {
		return err
	}
	name := []string{"configmap", "antrea-mc-controller-config", "-n", scenario.LeaderNamespace}
	config, err := d.world.Kubectl(ctx, "north", append([]string{"get", "-o",
		`jsonpath={.data.controller_manager_config\.yaml}`}, name...)...)
	if err != nil {
		return err
	}
	const on = "\ncentral: true"
	patch := fmt.Sprintf(`{"data": {"controller_manager_config.yaml": %q}}`,
		strings.TrimSuffix(strings.TrimSpace(config), on)+on+"\n")
	for _, args := range [][]string{
		append([]string{"patch", "--type", "merge", "-p", patch}, name...),
		{"rollout", "restart", "deployment/antrea-mc-controller", "-n", scenario.LeaderNamespace},
		{"rollout", "status", "deployment/antrea-mc-controller", "-n", scenario.LeaderNamespace, "--timeout=3m"},
	} {
		if out, err := d.world.Kubectl(ctx, "north", args...); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

// shows waits until the central cluster prints all words for a command, and prints it.
func (d *demo) shows(ctx context.Context, args []string, words ...string) error {
	out := ""
	err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
		if out, err = d.world.Kubectl(ctx, "north", args...); err != nil {
			return err
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				return fmt.Errorf("kubectl %s does not print %q:\n%s", strings.Join(args, " "), word, out)
			}
		}
		return nil
	})
	fmt.Printf("-- north: kubectl %s\n%s", strings.Join(args, " "), out)
	return err
}

// imports waits until a member has the network of a copy.
func (d *demo) imports(ctx context.Context, cluster, name string) error {
	return scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := d.world.Kubectl(ctx, cluster, "get", "tni", name, "-o", "jsonpath={.spec.namespace.name}")
		if err == nil && out != "ns1" {
			err = fmt.Errorf("TenantNetworkImport %s is of Namespace %q", name, out)
		}
		return err
	})
}

// notCentral removes the members from the central cluster. Their copies are deleted, and their Namespaces are separate
// again.
func (d *demo) notCentral(ctx context.Context, pods []*tenantPod) error {
	if out, err := d.world.Kubectl(ctx, "north", "delete", "kubemanagers", "--all", "-n", "contrail"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := d.matrix(ctx, "Without Kubemanagers", pods, func(*tenantPod, *tenantPod) bool { return false }); err != nil {
		return err
	}
	if out, err := d.world.Kubectl(ctx, "north", "wait", "--for=delete", "namespace/"+copies["north"],
		"namespace/"+copies["east"], "--timeout=2m"); err != nil {
		return fmt.Errorf("copies are left: %w\n%s", err, out)
	}
	for _, p := range pods {
		if out, err := d.world.Kubectl(ctx, p.cluster, "delete", "namespace", p.namespace, "--wait=false"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}
