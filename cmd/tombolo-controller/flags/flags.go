// Package flags declares the commands of tombolo-controller and their flags. The reference is made of them, without the
// code that they run.
package flags

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// Policy are the flags of the command policy.
type Policy struct {
	Health, Metrics, WebhookHost string
	WebhookPort                  int
}

// Observe are the flags of the command observe.
type Observe struct{ Health, Listen, Agents string }

// Run has the functions that the commands run. Leader and Member get the path of the configuration file.
type Run struct {
	Log            func(verbosity int) // called before each of the others
	Leader, Member func(ctx context.Context, file string) error
	Cluster        func(ctx context.Context, health string) error
	Policy         func(context.Context, Policy) error
	Observe        func(context.Context, Observe) error
}

// commands makes commands that share flags.
type commands struct {
	run       Run
	file      string
	verbosity int
}

// Command returns the command of the program, with the commands below it.
func Command(run Run) *cobra.Command {
	c := &commands{run: run}
	root := &cobra.Command{
		Use: "tombolo-controller", Short: "Join Kubernetes clusters into a ClusterSet", Version: version.String(),
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&c.file, "config", "", "configuration file of kind MultiClusterConfig")
	root.PersistentFlags().IntVar(&c.verbosity, "v", 0,
		"log verbosity: 0 logs changes, 1 and more also logs their reasons")
	root.AddCommand(
		c.command("leader", "Run in the leader cluster, once for each Common Area",
			func(ctx context.Context) error { return run.Leader(ctx, c.file) }),
		c.command("member", "Run in a member cluster",
			func(ctx context.Context) error { return run.Member(ctx, c.file) }),
		c.cluster(), c.policy(), c.observe(),
	)
	return root
}

// command returns a command without arguments.
func (c *commands) command(use, short string, run func(context.Context) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.run.Log(c.verbosity)
			return run(cmd.Context())
		}}
}

const healthUsage = "address of /healthz and /readyz; 0 for none"

func (c *commands) cluster() *cobra.Command {
	var health string
	cmd := c.command("cluster", "Run in every cluster: report what its Nodes do not serve, give Services addresses of "+
		"ExternalIPPools, and write the state of VirtualNetworks",
		func(ctx context.Context) error { return c.run.Cluster(ctx, health) })
	cmd.Flags().StringVar(&health, "health", ":8080", healthUsage)
	return cmd
}

func (c *commands) policy() *cobra.Command {
	var f Policy
	cmd := c.command("policy", "Run in every cluster: write the status of policies and groups, and check what is written "+
		"of them", func(ctx context.Context) error { return c.run.Policy(ctx, f) })
	cmd.Flags().StringVar(&f.Health, "health", ":8080", healthUsage)
	cmd.Flags().StringVar(&f.Metrics, "metrics", "0", "address of /metrics; 0 for none")
	cmd.Flags().StringVar(&f.WebhookHost, "webhook-host", "",
		"address that the webhooks listen at; all of them without it")
	cmd.Flags().IntVar(&f.WebhookPort, "webhook-port", 9443, "port of the webhooks")
	return cmd
}

// observe runs the relay, by which people and programs ask the agents of all Nodes.
func (c *commands) observe() *cobra.Command {
	var f Observe
	cmd := c.command("observe", "Run the relay: let people and programs ask the agents of all Nodes at one place",
		func(ctx context.Context) error { return c.run.Observe(ctx, f) })
	cmd.Flags().StringVar(&f.Health, "health", ":8080", healthUsage)
	cmd.Flags().StringVar(&f.Listen, "listen", fmt.Sprintf(":%d", api.RelayPort), "address for agents and readers, TLS")
	cmd.Flags().StringVar(&f.Agents, "agents", "system:serviceaccount:kube-system:antrea-agent",
		"user name of the agents' ServiceAccount")
	return cmd
}
