package families

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// TestJoined joins the clusters. Tunnels between them are over IPv6: the Gateway of a cluster of both families is
// annotated with its IPv6 address. Each cluster exports the servers of TestFamilies to the other one. Their clients are
// on the Node that is no Gateway.
func TestJoined(t *testing.T) {
	ctx := t.Context()
	if err := errors.Join(world.Access(ctx), world.Join(ctx)); err != nil {
		t.Fatal(err)
	}
	for i, name := range clusters {
		c := &cluster{t, name, families[i]}
		ips := world.Lab.Cluster(name).Node("node-2").InternalIPs()
		over := ips[len(ips)-1].String()
		if families[i] == family.Dual {
			c.kubectl("annotate", "node", "node-2", "multicluster.antrea.io/gateway-ip="+over)
		}
		if err := world.ChooseGateway(ctx, name, "node-2"); err != nil {
			t.Fatal(err)
		}
		have := c.list("gateway", "node-2", "-n", scenario.MemberNamespace, "-o", "jsonpath={.gatewayIP}")
		if have[0] != over {
			t.Errorf("the Gateway of %s has the address %s, want %s", name, have[0], over)
		}
		c.apply(fmt.Sprintf(exported, name))
	}
	for i, name := range clusters {
		other := clusters[1-i]
		t.Run("from "+name+" to "+other, func(t *testing.T) {
			t.Parallel()
			(&cluster{t, name, families[i]}).asks(other)
		})
	}
	t.Run("verify", func(t *testing.T) {
		out, err := world.Lab.Tool(t.Context(), clusters[0], "tombolo", "mc", "verify",
			world.Lab.Cluster(clusters[0]).Kubeconfig(), world.Lab.Cluster(clusters[1]).Kubeconfig())
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

const exported = `
apiVersion: v1
kind: Service
metadata: {name: from-%[1]s, namespace: default}
spec: {ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: from-%[1]s, namespace: default}
`

// asks sends requests of the client, and of a process of the Node, to the Service of another cluster by each address of
// its import. One of them is of IPv6. Servers on both Nodes answer.
func (c *cluster) asks(other string) {
	service := "antrea-mc-from-" + other
	if _, err := world.ImportedIP(c.t.Context(), c.name, service, 1, limit); err != nil {
		c.t.Fatal(err)
	}
	ips := c.list("service", service, "-o", "jsonpath={.spec.clusterIPs[*]}")
	if !slices.ContainsFunc(ips, func(ip string) bool { return !netip.MustParseAddr(ip).Is4() }) {
		c.t.Errorf("%s has the addresses %v, none of IPv6", service, ips)
	}
	for _, ip := range ips {
		for _, from := range []string{"client", "host"} {
			out := c.answers(from, ip, 80, 24)
			for _, server := range []string{"/node-1/", "/node-2/"} {
				if !strings.Contains(out, server) {
					c.t.Errorf("24 requests from %s to %s of %s, none answered by %s:\n%s", from, ip, other, server, out)
				}
			}
		}
	}
}
