// Command tombolo shows what Tombolo does: on a Node, from the agent's debug API; for a
// cluster, from its API server. Called as kubectl-tombolo it is a kubectl plugin, and called
// as antctl it answers the documented `antctl mc` commands and `antctl get networkpolicy`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main with everything given; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name := "tombolo"
	if len(args) > 0 {
		name = strings.TrimSuffix(filepath.Base(args[0]), ".exe")
		args = args[1:]
	}
	root := command(name)
	root.SetArgs(asDocumented(globalsBehind(root, args)))
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		var code exitCode
		if errors.As(err, &code) {
			return int(code)
		}
		fmt.Fprintf(stderr, "%s: %v\n", root.DisplayName(), err)
		return 1
	}
	return 0
}

// globalsBehind puts flags of the group mc that stand before it behind it: documents call them global, as in
// `antctl -v mc get clusterset`, and other commands do not have them.
func globalsBehind(root *cobra.Command, args []string) []string {
	mc, _, err := root.Find([]string{"mc"})
	if err != nil {
		return args
	}
	n := 0
	for n < len(args) && strings.HasPrefix(args[n], "-") {
		name, _, hasValue := strings.Cut(strings.TrimLeft(args[n], "-"), "=")
		flag := mc.PersistentFlags().Lookup(name)
		if name != "" && !strings.HasPrefix(args[n], "--") {
			flag = mc.PersistentFlags().ShorthandLookup(name[:1])
			hasValue = hasValue || len(name) > 1
		}
		if flag == nil {
			return args
		}
		if n++; flag.NoOptDefVal == "" && !hasValue {
			n++
		}
	}
	if n == 0 || n >= len(args) || args[n] != mc.Name() && !mc.HasAlias(args[n]) {
		return args
	}
	return slices.Concat(args[n:n+1], args[:n], args[n+1:])
}

// asDocumented rewrites the one option of mc commands that documents print with one dash: -clusterid.
func asDocumented(args []string) []string {
	if len(args) == 0 || args[0] != "mc" && args[0] != "multicluster" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "-clusterid" || strings.HasPrefix(arg, "-clusterid=") {
			args[i] = "-" + arg
		}
	}
	return args
}

// exitCode ends the program without a word more: all has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// command returns the tree of commands for the name that the program was called by.
func command(name string) *cobra.Command {
	root := &cobra.Command{
		Use:           "tombolo",
		Short:         "Look at Tombolo: a Node's flows, groups, ports and peers; a ClusterSet's clusters",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	switch name {
	case "antctl":
		root.Use = name
		root.Short = "Documented antctl commands, answered by Tombolo"
		n := &node{}
		get := &cobra.Command{Use: "get", Short: "Show what this Node has", Args: noCommand, RunE: help}
		get.AddCommand(n.networkPolicies())
		n.flags(get)
		root.AddCommand(get, multicluster(false))
		return root
	case "kubectl-tombolo":
		root.Use = name
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tombolo"}
	}
	n := &node{}
	get := &cobra.Command{Use: "get", Short: "Show what this Node has", Args: noCommand, RunE: help}
	get.AddCommand(n.flows(), n.groups(), n.ports(), n.peers(), n.status(), n.metrics(), n.policies(), n.rules(), n.identities(), n.networkPolicies())
	all := []*cobra.Command{get, n.trace(), n.explain(), n.policy(), n.check()}
	for _, c := range all {
		n.flags(c)
	}
	root.AddCommand(all...)
	root.AddCommand(multicluster(true), openflow(), probes())
	return root
}

// flags adds those that say which agent is asked.
func (n *node) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&n.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	c.PersistentFlags().DurationVarP(&n.timeout, "timeout", "t", 10*time.Second, "how long to wait for the agent")
}

// help is what a command that only has others below it does.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// noCommand refuses words that are no command, naming those that are.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("%s does not know %q; it knows %s", cmd.CommandPath(), args[0], strings.Join(known, ", "))
}
