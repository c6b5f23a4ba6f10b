// Command tombolo shows the state of Tombolo: on a Node from the agent's debug API, for a cluster from its API server.
// Called as kubectl-tombolo it is a kubectl plugin. Called as antctl it answers antctl's documented commands.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/diagnose"
	"github.com/tombolo-net/tombolo/pkg/cli/gather"
	"github.com/tombolo-net/tombolo/pkg/cli/mapui"
	"github.com/tombolo-net/tombolo/pkg/cli/multicluster"
	"github.com/tombolo-net/tombolo/pkg/cli/node"
	"github.com/tombolo-net/tombolo/pkg/cli/openflow"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/version"
)

func main() {
	// Kubernetes' libraries report errors here that they return as well, such as a connection that a time limit ends.
	utilruntime.ErrorHandlers = nil
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
	return cli.Run(ctx, root, multicluster.Arguments(root, args), stdout, stderr)
}

// command returns the tree of commands for the name that the program was called by.
func command(name string) *cobra.Command {
	if name == "antctl" {
		root := cli.Root(name, "Documented antctl commands, answered by Tombolo")
		root.Version = version.String()
		root.AddCommand(node.Documented()...)
		root.AddCommand(multicluster.Documented(), gather.Documented(), cli.ExitCodes())
		remote.Complete(root)
		return root
	}
	root := cli.Root("tombolo", "Show, check and set up Tombolo: Nodes, clusters, and ClusterSets")
	root.Version = version.String()
	if name == "kubectl-tombolo" {
		root.Use = name
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tombolo"}
	}
	root.AddCommand(node.Commands()...)
	root.AddCommand(multicluster.Command(), openflow.Command(), diagnose.Command(), diagnose.Status(), diagnose.Version(),
		mapui.Command(), multicluster.Probes())
	root.AddCommand(gather.Command(), cli.ExitCodes())
	remote.Complete(root)
	return root
}
