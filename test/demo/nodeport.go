package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

// nodePort is a Service of both families with a port of the Nodes.
const nodePort = `
apiVersion: v1
kind: Service
metadata: {name: nginx-outside, namespace: default}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {app: nginx}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
`

// nodePorts applies a Service of type NodePort in west, and lets a host outside send requests to each address of each
// Node.
func (d *demo) nodePorts(ctx context.Context) error {
	section("A NodePort in west, asked by a host outside the clusters over IPv4 and IPv6")
	fmt.Print(strings.TrimSpace(nodePort) + "\n\n")
	if err := d.world.Apply(ctx, "west", nodePort); err != nil {
		return err
	}
	out, err := d.world.Kubectl(ctx, "west", "get", "service", "nginx-outside", "-n", "default", "-o",
		"custom-columns=NAME:.metadata.name,CLUSTER-IPS:.spec.clusterIPs[*],NODE-PORT:.spec.ports[*].nodePort")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	fmt.Print(out)
	for _, node := range d.world.Lab.Cluster("west").Nodes() {
		for _, ip := range node.InternalIPs() {
			url := "http://" + netip.AddrPortFrom(ip, 30080).String() + "/"
			var out string
			if err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
				out, err = d.world.Lab.OutsideExec(ctx, filepath.Join(d.world.Lab.Repo(), "bin/echo"), "get", url, "--count",
					"4", "--timeout", "2s")
				return err
			}); err != nil {
				return fmt.Errorf("NodePort at %s: %w\n%s", url, err, out)
			}
			fmt.Printf("-- outside: 4 requests to %s (%s)\n%s", url, node.Name(), out)
		}
	}
	return nil
}
