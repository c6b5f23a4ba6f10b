package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// networks are of two tenants: blue has Namespaces in two clusters, shared in one.
const networks = `
apiVersion: tombolo.io/v1alpha1
kind: TenantNetwork
metadata: {namespace: antrea-multicluster, name: blue}
spec:
  connections: [platform]
  members:
    - {clusterID: test-cluster-east, namespaceSelector: {matchLabels: {team: blue}}}
    - {clusterID: test-cluster-west, namespaceSelector: {matchLabels: {team: blue}}}
---
apiVersion: tombolo.io/v1alpha1
kind: TenantNetwork
metadata: {namespace: antrea-multicluster, name: shared}
spec:
  connections: [platform]
  members:
    - {clusterID: test-cluster-west, namespaceSelector: {matchLabels: {team: shared}}}
`

// connection joins them: both have agreed by spec.connections.
const connection = `
apiVersion: tombolo.io/v1alpha1
kind: NetworkConnection
metadata: {namespace: antrea-multicluster, name: platform}
spec: {hubs: [shared], spokes: [blue]}
`

// tenantPod is a Pod that asks and answers.
type tenantPod struct {
	cluster, namespace, name, node string
	network                        string // empty: the default one
	ips                            []netip.Addr
}

func (p *tenantPod) String() string { return p.cluster + " " + p.namespace + "/" + p.name }

// tenants shows which Pods reach each other between Namespaces of two networks, before and after the networks are
// joined.
func (d *demo) tenants(ctx context.Context) error {
	section("Networks of tenants over clusters: isolated Namespaces of east and west")
	fmt.Print(strings.TrimSpace(networks) + "\n\n")
	if err := d.world.Apply(ctx, "north", networks); err != nil {
		return err
	}
	pods := []*tenantPod{
		{cluster: "east", namespace: "blue", name: "web", node: "node-2", network: "blue"},
		{cluster: "west", namespace: "blue", name: "web", node: "node-2", network: "blue"},
		{cluster: "west", namespace: "shared", name: "web", node: "node-1", network: "shared"},
		{cluster: "east", namespace: "default", name: "client", node: "node-2"},
	}
	for _, p := range pods {
		if err := d.tenantPod(ctx, p); err != nil {
			return err
		}
	}
	same := func(from, to *tenantPod) bool { return from.network == to.network }
	if err := d.matrix(ctx, "Who reaches whom by address, over IPv4 and IPv6", pods, same); err != nil {
		return err
	}
	fmt.Print("\n" + strings.TrimSpace(connection) + "\n\n")
	if err := d.world.Apply(ctx, "north", connection); err != nil {
		return err
	}
	joined := func(from, to *tenantPod) bool { return same(from, to) || from.network != "" && to.network != "" }
	if err := d.matrix(ctx, "After this join", pods, joined); err != nil {
		return err
	}
	for _, show := range []struct{ cluster, kind string }{{"north", "tenantnetworks"}, {"east", "tenantnetworkimports"}} {
		out, err := d.world.Kubectl(ctx, show.cluster, "get", show.kind, "-n", scenario.LeaderNamespace)
		fmt.Printf("-- %s: kubectl get %s\n%s", show.cluster, show.kind, out)
		if err != nil {
			return err
		}
	}
	if err := d.seesClient(ctx, pods[0], pods[1]); err != nil {
		return err
	}
	if err := d.podNetwork(ctx, pods[3]); err != nil {
		return err
	}
	return d.central(ctx)
}

// seesClient lets a Pod send a request to another one, which has to see the Pod's own address, since no Node translates
// it.
func (d *demo) seesClient(ctx context.Context, from, to *tenantPod) error {
	for _, ip := range to.ips {
		out, err := d.askPod(ctx, from, ip, "--clients")
		fmt.Printf("-- %s asks %s, which sees this client: %s", from, to, out)
		if err != nil {
			return err
		}
		if own := from.address(ip.Is4()); !strings.Contains(out, own.String()) {
			return fmt.Errorf("%s sees another client than %s: %s", to, own, out)
		}
	}
	return nil
}

// address returns a Pod's address of a version of IP.
func (p *tenantPod) address(v4 bool) netip.Addr {
	for _, ip := range p.ips {
		if ip.Is4() == v4 {
			return ip
		}
	}
	return netip.Addr{}
}

// tenantPod makes a Namespace in a network, and a Pod in it. The Namespace has the annotation with which its owner
// agrees to the network.
func (d *demo) tenantPod(ctx context.Context, p *tenantPod) error {
	var calls [][]string
	if p.network != "" {
		calls = [][]string{
			{"create", "namespace", p.namespace},
			{"label", "namespace", p.namespace, "team=" + p.network, "core.juniper.net/isolated-namespace=true"},
			{"annotate", "namespace", p.namespace, "tombolo.io/tenant-network=" + p.network},
		}
	}
	for _, args := range calls {
		fmt.Printf("-- %s: kubectl %s\n", p.cluster, strings.Join(args, " "))
		if out, err := d.world.Kubectl(ctx, p.cluster, args...); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err := d.world.ClientPod(ctx, p.cluster, p.namespace+"/"+p.name, p.node); err != nil {
		return err
	}
	return d.readAddresses(ctx, p)
}

// readAddresses reads the addresses of a Pod from its status.
func (d *demo) readAddresses(ctx context.Context, p *tenantPod) error {
	out, err := d.world.Kubectl(ctx, p.cluster, "get", "pod", p.name, "-n", p.namespace, "-o",
		"jsonpath={.status.podIPs[*].ip}")
	if err != nil {
		return err
	}
	for _, text := range strings.Fields(out) {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("addresses of Pod %s: %w", p, err)
		}
		p.ips = append(p.ips, ip)
	}
	if len(p.ips) != 2 {
		return fmt.Errorf("Pod %s has the addresses %v, want one of IPv4 and one of IPv6", p, p.ips)
	}
	return nil
}

// askPod sends one request to a Pod's address.
func (d *demo) askPod(ctx context.Context, from *tenantPod, to netip.Addr, flags ...string) (string, error) {
	url := "http://" + netip.AddrPortFrom(to, 8080).String() + "/"
	return d.world.Exec(ctx, from.cluster, from.namespace+"/"+from.name,
		append([]string{"/echo", "get", url, "--count", "1", "--timeout", "1s"}, flags...)...)
}

// matrix waits until Pods reach each other as expected, over both versions of IP, and prints the result.
func (d *demo) matrix(ctx context.Context, title string, pods []*tenantPod, want func(from, to *tenantPod) bool) error {
	if err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		var all errgroup.Group
		for _, from := range pods {
			for _, to := range pods {
				for _, ip := range to.ips {
					all.Go(func() error {
						_, err := d.askPod(ctx, from, ip)
						if reached := err == nil; from != to && reached != want(from, to) {
							return fmt.Errorf("%s reaches %s at %s: %t, want %t", from, to, ip, reached, want(from, to))
						}
						return nil
					})
				}
			}
		}
		return all.Wait()
	}); err != nil {
		return err
	}
	fmt.Printf("-- %s\n", title)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "FROM")
	for _, to := range pods {
		fmt.Fprintf(table, "\t%s", to)
	}
	fmt.Fprintln(table)
	for _, from := range pods {
		fmt.Fprint(table, from)
		for _, to := range pods {
			reached := "-"
			if from == to || want(from, to) {
				reached = "yes"
			}
			fmt.Fprintf(table, "\t%s", reached)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}
