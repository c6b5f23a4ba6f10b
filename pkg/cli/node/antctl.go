package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
)

// documented has the commands of antctl. In the Pod of an agent they ask that agent. Elsewhere the commands that have a
// meaning for a cluster ask its API server, and through it the agents.
type documented struct {
	node
	kubeconfig string
}

// Documented returns the documented debug commands of antctl. A command that has no meaning here names what to use
// instead.
func Documented() []*cobra.Command {
	d := &documented{node: node{agents: &agents{antctl: true}}}
	all := []*cobra.Command{
		d.get(d.networkPolicies(), d.podInterface(), d.ovsFlows(), d.agentInfo(), d.controllerInfo(), d.featureGates(),
			d.fqdnCache(), d.serviceExternalIP(), d.memberList(),
			instead("appliedtogroup", "policies apply to identities here: use `tombolo get rules` for those of each rule, and "+
				"`tombolo get identities` for their Pods", "appliedtogroups", "atg"),
			instead("addressgroup", "rules name identities as peers here: use `tombolo get rules` for those of each rule, and "+
				"`tombolo get identities` for their Pods", "addressgroups", "ag"),
			instead("flowrecords", "there is no flow aggregator: use `tombolo observe`, which asks all Nodes and clusters"),
			instead("recordmetrics", "there is no flow aggregator: use `tombolo get metrics`"),
			instead("podmulticaststats", "this version has no multicast (docs/not-supported.md)"),
			instead("bgppolicy", notBGP), instead("bgppeers", notBGP), instead("bgproutes", notBGP)),
		d.version(), d.logLevel(), d.tracePacket(), d.traceflow(), d.packetCapture(),
		cli.Group("query", "Ask which policies decide", d.queryEndpoint(), d.queryEvaluation()),
		cli.Group("check", "Check a cluster",
			instead("cluster", "use `tombolo diagnose`, which checks a cluster with and without Tombolo's agents"),
			instead("installation", "use `tombolo diagnose`, and `tombolo mc verify` to send packets")),
		cli.Group("set", "Change settings",
			instead("log-level", "there is no flow aggregator: `antctl log-level` is an agent's"),
			instead("params", "there is no flow aggregator: change antrea-agent.conf")),
		cli.Group("upgrade", "Prepare an upgrade",
			instead("api-storage", "Tombolo keeps each kind in one stored version: nothing has to be rewritten")),
		instead("proxy", "agents and controllers have no port for it: use `tombolo gather` and `tombolo observe`, which "+
			"reach the agents through the API server"),
	}
	for _, c := range all {
		d.agents.flags(c)
		c.PersistentFlags().StringVarP(&d.kubeconfig, "kubeconfig", "k", "",
			"kubeconfig file; $KUBECONFIG or ~/.kube/config when empty")
		if c.Name() == "packetcapture" {
			timeout := c.PersistentFlags().Lookup("timeout")
			timeout.DefValue, timeout.Usage = captureTime.String(), "the longest time of the capture"
		}
	}
	return all
}

const notBGP = "this version has no BGP (docs/not-supported.md)"

// instead returns a documented command that has no meaning here. It accepts all words and flags, and names the command
// to use.
func instead(name, text string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: name, Aliases: aliases, Short: "Not here: " + text, DisableFlagParsing: true, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return fmt.Errorf("%s: %s", cmd.CommandPath(), text) },
	}
}

// inPod reports whether the command asks the agent of this Node. It does if the agent's socket exists and no kubeconfig
// was given.
func (d *documented) inPod() bool {
	_, err := os.Stat(d.agents.socket)
	return err == nil && d.kubeconfig == ""
}

// cluster returns the cluster of the kubeconfig.
func (d *documented) cluster() (*remote.Cluster, error) {
	c, err := remote.Open(d.kubeconfig, "")
	if err != nil {
		return nil, fmt.Errorf("%w; on a Node, run this in the tombolo-agent Pod", err)
	}
	c.Timeout = d.agents.timeout
	return c, nil
}

// askNode reads one path of an agent into v. If inPod, that is the agent of this Node. Otherwise it is the agent of the
// named Node, through the API server.
func (d *documented) askNode(ctx context.Context, name, path string, query url.Values, v any) error {
	if d.inPod() {
		return d.agents.ask(ctx, path, query, v)
	}
	c, err := d.cluster()
	if err != nil {
		return err
	}
	if name == "" {
		if name, err = anyNode(ctx, c); err != nil {
			return err
		}
	}
	body, err := c.Ask(ctx, name, path, query)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("understand the answer of Node %s for %s: %w; are this command and the agent of one version?",
			name, path, err)
	}
	return nil
}

// anyNode returns a Node with an agent that runs.
func anyNode(ctx context.Context, c *remote.Cluster) (string, error) {
	agents, err := c.Agents(ctx)
	if err != nil {
		return "", err
	}
	for _, a := range agents {
		if a.Pod != nil && a.Pod.Status.Phase == "Running" {
			return a.Node, nil
		}
	}
	return "", fmt.Errorf("no Node of cluster %s has an agent that runs: install Tombolo, or see `tombolo diagnose`",
		c.Name)
}
