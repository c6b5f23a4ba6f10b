// Package program has the commands of the program tombolo. It is a package of its own, so that build/reference can
// import it.
package program

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
	"github.com/tombolo-net/tombolo/pkg/cli/benchmark"
	"github.com/tombolo-net/tombolo/pkg/cli/diagnose"
	"github.com/tombolo-net/tombolo/pkg/cli/gather"
	"github.com/tombolo-net/tombolo/pkg/cli/mapui"
	"github.com/tombolo-net/tombolo/pkg/cli/multicluster"
	"github.com/tombolo-net/tombolo/pkg/cli/node"
	"github.com/tombolo-net/tombolo/pkg/cli/openflow"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// Run runs the program and returns its exit code.
func Run() int {
	// Kubernetes' libraries print errors here that they also return, such as a connection that a time limit ends.
	utilruntime.ErrorHandlers = nil
	ctx, stop := signal.NotifyContext(context.Background(), ends()...)
	code := run(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	return code
}

// ends are the signals that interrupt commands, which then clean up. A terminal that is closed sends SIGHUP. Under
// nohup SIGHUP stays ignored.
func ends() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// run is Run with everything given. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	name := "tombolo"
	if len(args) > 0 {
		name = strings.TrimSuffix(filepath.Base(args[0]), ".exe")
		args = args[1:]
	}
	root := Command(name)
	return cli.Run(ctx, root, multicluster.Arguments(root, args), stdout, stderr)
}

// Command returns the program's root command with all commands below it. It has the name by which the program was
// called.
func Command(name string) *cobra.Command {
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
		benchmark.Command(), mapui.Command(), multicluster.Probes(benchmark.Load()))
	root.AddCommand(gather.Command(), cli.ExitCodes())
	remote.Complete(root)
	return root
}
