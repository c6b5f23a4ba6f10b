package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// friends is a policy in west about clients of all clusters.
const friends = `
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: friends, namespace: default}
spec:
  tier: securityops
  priority: 5
  appliedTo: [{podSelector: {matchLabels: {app: nginx}}}]
  ingress:
    - {name: friends, action: Allow, from: [{scope: ClusterSet, podSelector: {matchLabels: {role: friend}}}]}
    - {name: others, action: Reject}
`

// policy applies a policy by labels in west, and lets two clients in east send requests to each address. One of the
// clients has the label.
func (d *demo) policy(ctx context.Context, ips []netip.Addr) error {
	section("A policy in west that selects Pods of all clusters")
	fmt.Print(strings.TrimSpace(friends) + "\n\n")
	if err := d.world.Apply(ctx, "west", friends); err != nil {
		return err
	}
	if _, err := d.world.Kubectl(ctx, "east", "label", "pod", "client", "-n", "default", "role=friend"); err != nil {
		return err
	}
	if err := d.world.ClientPod(ctx, "east", "stranger", "node-2"); err != nil {
		return err
	}
	for _, client := range []struct {
		name     string
		answered bool
	}{{"client", true}, {"stranger", false}} {
		for _, ip := range ips {
			var out string
			// The label has to reach the leader, which assigns it a number, and the number has to reach both clusters.
			if err := scenario.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
				var err error
				out, err = d.world.Exec(ctx, "east", client.name, "/echo", "get", urlOf(ip), "--count", "4", "--timeout", "1s")
				if (err == nil) != client.answered {
					return fmt.Errorf("default/%s in east: answered is to be %t: %w\n%s", client.name, client.answered, err, out)
				}
				return nil
			}); err != nil {
				return err
			}
			fmt.Printf("-- default/%s in east, 4 requests to %s\n%s", client.name, ip, out)
		}
	}
	// Each cluster shows its own part: east the number in the packets, and west the decision.
	server, err := d.world.Kubectl(ctx, "west", "get", "pods", "-n", "default", "-l", "app=nginx", "-o",
		`jsonpath={.items[?(@.spec.nodeName=="node-2")].metadata.name}`)
	if err != nil {
		return err
	}
	for _, client := range []string{"client", "stranger"} {
		args := []string{"--from", "default/" + client, "--to", "default/antrea-mc-nginx", "--cluster",
			scenario.ClusterID("west")}
		out, err := d.why(ctx, "east", append(args, "-o", "json")...)
		var why api.Why
		if err == nil {
			err = json.Unmarshal([]byte(out), &why)
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		for _, question := range [][]string{
			append([]string{"east"}, args...),
			{"west", "--from", fmt.Sprintf("identity/%d", why.From.ClusterSet), "--cluster", scenario.ClusterID("east"), "--to",
				"default/" + strings.TrimSpace(server), "--port", "8080", "--trace"},
		} {
			cluster, args := question[0], question[1:]
			out, err := d.why(ctx, cluster, args...)
			fmt.Printf("-- %s/node-2: tombolo policy why %s\n%s", cluster, strings.Join(args, " "), out)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// why asks the agent of node-2 which rules decide.
func (d *demo) why(ctx context.Context, cluster string, args ...string) (string, error) {
	return d.ask(ctx, cluster, append([]string{"policy", "why"}, args...)...)
}

// ask asks the agent of node-2, as users do.
func (d *demo) ask(ctx context.Context, cluster string, args ...string) (string, error) {
	agent, err := d.world.Kubectl(ctx, cluster, "get", "pods", "-n", "kube-system", "-l", "component=tombolo-agent",
		"--field-selector", "spec.nodeName=node-2", "-o", "name")
	if err != nil {
		return "", err
	}
	return d.world.Kubectl(ctx, cluster,
		append([]string{"exec", "-n", "kube-system", strings.TrimSpace(agent), "--", "tombolo"}, args...)...)
}
