package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// ownNetworks are two VirtualNetworks of Namespace shop. The Namespace's annotation puts its Pods into blue.
const ownNetworks = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {net.juniper.contrail.podnetwork: shop/blue}}
---
apiVersion: core.contrail.juniper.net/v4
kind: Subnet
metadata: {namespace: shop, name: blue-v4}
spec: {cidr: 10.50.0.0/24}
---
apiVersion: core.contrail.juniper.net/v4
kind: Subnet
metadata: {namespace: shop, name: blue-v6}
spec: {cidr: "fd50::/64"}
---
apiVersion: core.contrail.juniper.net/v4
kind: VirtualNetwork
metadata: {namespace: shop, name: blue, labels: {vn: blue}}
spec: {podNetwork: true, v4SubnetReference: {name: blue-v4}, v6SubnetReference: {name: blue-v6}}
---
apiVersion: core.contrail.juniper.net/v4
kind: Subnet
metadata: {namespace: shop, name: red-v4}
spec: {cidr: 10.51.0.0/24}
---
apiVersion: core.contrail.juniper.net/v4
kind: Subnet
metadata: {namespace: shop, name: red-v6}
spec: {cidr: "fd51::/64"}
---
apiVersion: core.contrail.juniper.net/v4
kind: VirtualNetwork
metadata: {namespace: shop, name: red, labels: {vn: red}}
spec: {podNetwork: true, v4SubnetReference: {name: red-v4}, v6SubnetReference: {name: red-v6}}
`

// ownRouter joins both networks.
const ownRouter = `
apiVersion: core.contrail.juniper.net/v4
kind: VirtualNetworkRouter
metadata: {namespace: shop, name: all}
spec:
  type: mesh
  virtualNetworkSelector: {matchExpressions: [{key: vn, operator: In, values: [blue, red]}]}
`

// sharedServices are a Service of the default network, and one of Namespace shop.
const sharedServices = `
apiVersion: v1
kind: Service
metadata: {namespace: default, name: shared}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: client}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: db}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: db}
  ports: [{port: 80, targetPort: 8080}]
`

// podNetwork shows Pods whose first interface is in a VirtualNetwork. Their status.podIPs are addresses of its Subnets.
// Probes of the kubelet, exec, cluster DNS and Services work. Pods of other networks, such as client, do not reach
// them.
func (d *demo) podNetwork(ctx context.Context, client *tenantPod) error {
	section("Virtual networks as the Pods' own network, in east")
	fmt.Print(strings.TrimSpace(ownNetworks) + "\n\n")
	if err := d.world.Apply(ctx, "east", ownNetworks); err != nil {
		return err
	}
	pods := []*tenantPod{
		{cluster: "east", namespace: "shop", name: "web", node: "node-1", network: "blue"},
		{cluster: "east", namespace: "shop", name: "db", node: "node-2", network: "blue"},
		{cluster: "east", namespace: "shop", name: "guest", node: "node-2", network: "red"},
	}
	for _, p := range pods {
		if err := d.ownPod(ctx, p); err != nil {
			return err
		}
	}
	pods = append(pods, client)
	same := func(from, to *tenantPod) bool { return from.network == to.network }
	if err := d.matrix(ctx, "Who reaches whom", pods, same); err != nil {
		return err
	}
	fmt.Print("\n" + strings.TrimSpace(ownRouter) + "\n\n")
	if err := d.world.Apply(ctx, "east", ownRouter); err != nil {
		return err
	}
	joined := func(from, to *tenantPod) bool { return same(from, to) || from.network != "" && to.network != "" }
	if err := d.matrix(ctx, "After this join", pods, joined); err != nil {
		return err
	}
	if err := d.seesClient(ctx, pods[0], pods[2]); err != nil {
		return err
	}
	if err := d.ownServices(ctx, pods); err != nil {
		return err
	}
	if err := d.matrix(ctx, "Servers do not reach their clients", pods, joined); err != nil {
		return err
	}
	for _, args := range [][]string{{"get", "sn,vn", "-n", "shop"}, {"get", "pods", "-n", "shop", "-o", "wide"}} {
		out, err := d.world.Kubectl(ctx, "east", args...)
		fmt.Printf("-- east: kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			return err
		}
	}
	if err := d.refusedPod(ctx); err != nil {
		return err
	}
	if out, err := d.world.Kubectl(ctx, "east", "delete", "namespace", "shop"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// ownServices asks Services by their names. Pods on both Nodes reach the DNS server, a server of the default network
// and one of their own. Servers see the addresses of their clients.
func (d *demo) ownServices(ctx context.Context, pods []*tenantPod) error {
	fmt.Print("\n" + strings.TrimSpace(sharedServices) + "\n\n")
	if err := errors.Join(d.world.DNS(ctx, "east"), d.world.Apply(ctx, "east", sharedServices)); err != nil {
		return err
	}
	const shared, db = "shared.default.svc.cluster.local", "db.shop.svc.cluster.local"
	for _, row := range []struct {
		from    *tenantPod
		service string
	}{{pods[0], shared}, {pods[1], shared}, {pods[2], shared}, {pods[0], db}, {pods[2], db}} {
		pod := row.from.namespace + "/" + row.from.name
		for _, option := range []string{"", "--aaaa"} {
			if err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
				answers, err := d.world.Resolve(ctx, "east", pod, row.service, strings.Fields(option)...)
				if err != nil {
					return err
				}
				ip, err := netip.ParseAddr(answers[0])
				if err != nil {
					return err
				}
				out, err := d.world.Exec(ctx, "east", pod, "/echo", "get", "http://"+netip.AddrPortFrom(ip, 80).String()+"/",
					"--count", "1", "--timeout", "5s", "--clients")
				if own := row.from.address(ip.Is4()).String(); err == nil && !strings.Contains(out, own) {
					err = fmt.Errorf("%s sees another client than %s: %s", row.service, own, out)
				}
				if err == nil {
					fmt.Printf("-- %s asks %s at %s, which sees this client: %s", row.from, row.service, ip, out)
				}
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownPod makes a Pod of Namespace shop in a network, with a probe for the kubelet, and reads its addresses. The
// Namespace's annotation names blue.
func (d *demo) ownPod(ctx context.Context, p *tenantPod) error {
	annotations := ""
	if p.network != "blue" {
		annotations = ", annotations: {net.juniper.contrail.podnetwork: shop/" + p.network + "}"
	}
	if err := d.world.Apply(ctx, p.cluster, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: %[2]s, labels: {app: %[1]s}%[3]s}
spec:
  nodeName: %[4]s
  terminationGracePeriodSeconds: 1
  containers:
    - name: echo
      image: tombolo/echo:dev
      imagePullPolicy: Never
      args: [serve]
      readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`, p.name, p.namespace, annotations, p.node)); err != nil {
		return err
	}
	if out, err := d.world.Kubectl(ctx, p.cluster, "wait", "--for=condition=Ready", "pod/"+p.name, "-n", p.namespace,
		"--timeout=2m"); err != nil {
		return fmt.Errorf("the kubelet's probe of Pod %s: %w\n%s", p, err, out)
	}
	if err := d.readAddresses(ctx, p); err != nil {
		return err
	}
	prefix := map[string]string{"blue": "[10.50.0.", "red": "[10.51.0."}[p.network]
	if have := fmt.Sprint(p.ips); !strings.HasPrefix(have, prefix) {
		return fmt.Errorf("Pod %s has the addresses %s, want them of VirtualNetwork %s", p, have, p.network)
	}
	return nil
}

// refusedPod makes a Pod that names a network that does not exist. The Pod does not start, and an Event has the remedy.
func (d *demo) refusedPod(ctx context.Context) error {
	if err := d.world.Apply(ctx, "east", `
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: shop, annotations: {net.juniper.contrail.podnetwork: shop/green}}
spec:
  nodeName: node-1
  containers: [{name: echo, image: "tombolo/echo:dev", imagePullPolicy: Never, args: [serve]}]
`); err != nil {
		return err
	}
	return scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := d.world.Kubectl(ctx, "east", "get", "events", "-n", "shop", "--field-selector",
			"involvedObject.name=lost", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, "VirtualNetwork shop/green is not there") {
			err = fmt.Errorf("Events of Pod shop/lost: %q, want the missing network", out)
		}
		return err
	})
}
