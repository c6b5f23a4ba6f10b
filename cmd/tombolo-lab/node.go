package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/test/lab"
)

// node finds CLUSTER/NODE.
func (o *options) node(name string) (*lab.Node, error) {
	l, err := lab.Open(o.name)
	if err != nil {
		return nil, err
	}
	for _, c := range l.Clusters() {
		for _, n := range c.Nodes() {
			if n.String() == name {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("lab %s has no Node %s: Nodes are named as in east/node-1", o.name, name)
}

// attached runs a command with this process's streams. The command gets the signals of the
// terminal itself.
func attached(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func (o *options) exec() *cobra.Command {
	return &cobra.Command{
		Use: "exec CLUSTER/NODE -- COMMAND...", Short: "Run a command on a Node", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := o.node(args[0])
			if err != nil {
				return err
			}
			c, err := n.Command(cmd.Context(), args[1:]...)
			if err != nil {
				return err
			}
			return attached(c)
		},
	}
}

func (o *options) kubectl() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubectl CLUSTER ARGS...", Short: "Run kubectl as a cluster's administrator", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Open(o.name)
			if err != nil {
				return err
			}
			for _, c := range l.Clusters() {
				if c.Name() == args[0] {
					args = args[1:]
					if args[0] == "--" && len(args) > 1 { // as exec has it
						args = args[1:]
					}
					return attached(c.KubectlCommand(cmd.Context(), args...))
				}
			}
			return fmt.Errorf("lab %s has no cluster %s", o.name, args[0])
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the cluster is kubectl's
	return cmd
}

func (o *options) cut() *cobra.Command {
	return o.cable("cut", "Pull a Node's cables", (*lab.Node).Cut)
}

func (o *options) heal() *cobra.Command {
	return o.cable("heal", "Plug a Node's cables in again", (*lab.Node).Heal)
}

func (o *options) cable(use, short string, f func(*lab.Node, ...lab.Link) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " CLUSTER/NODE [mgmt|transport]", Short: short, Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := o.node(args[0])
			if err != nil {
				return err
			}
			var links []lab.Link
			for _, a := range args[1:] {
				if l := lab.Link(a); l != lab.Mgmt && l != lab.Transport {
					return fmt.Errorf("a Node has no link %s: want %s or %s", a, lab.Mgmt, lab.Transport)
				}
				links = append(links, lab.Link(a))
			}
			return f(n, links...)
		},
	}
}

func (o *options) powerOff() *cobra.Command {
	return &cobra.Command{
		Use: "power-off CLUSTER/NODE", Short: "Kill everything on a Node at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := o.node(args[0])
			if err != nil {
				return err
			}
			return n.KillAll(cmd.Context())
		},
	}
}

func (o *options) powerOn() *cobra.Command {
	return &cobra.Command{
		Use: "power-on CLUSTER/NODE", Short: "Boot a Node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := o.node(args[0])
			if err != nil {
				return err
			}
			return n.PowerOn(cmd.Context())
		},
	}
}

// addresses are a Node's InternalIPs.
func addresses(n *lab.Node) string {
	var texts []string
	for _, a := range n.InternalIPs() {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

func (o *options) status() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the labs of this machine and the Nodes of this one", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := lab.Names()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				fmt.Println("there is no lab: `tombolo-lab up` makes one")
				return nil
			}
			fmt.Println("labs:", strings.Join(names, " "))
			l, err := lab.Open(o.name)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "NODE\tINTERNAL-IP\tPOWER\tREADY\tKUBECONFIG")
			for _, c := range l.Clusters() {
				for _, n := range c.Nodes() {
					power := "off"
					if n.On() {
						power = "on"
					}
					ready, err := c.Kubectl(cmd.Context(), "get", "node", n.Name(), "--request-timeout=3s", "-o",
						`jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
					if err != nil {
						ready = "?"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", n, addresses(n), power, ready, c.Kubeconfig())
				}
			}
			return w.Flush()
		},
	}
}
