// Command tombolo-lab makes whole Kubernetes clusters on one machine, for demos and tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/test/lab"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := command().ExecuteContext(ctx)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode() // the program on the Node has printed the error
	}
	fmt.Fprintln(os.Stderr, "tombolo-lab:", err)
	return 1
}

// options are the flags of all subcommands.
type options struct{ name string }

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "tombolo-lab",
		Short:         "Whole Kubernetes clusters on one machine, joined by routers, for demos and tests",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.PersistentFlags().StringVar(&o.name, "lab", lab.DefaultName, "name of the lab; several run side by side")
	cmd.AddCommand(o.up(), o.down(), o.status(), o.install(), o.exec(), o.kubectl(), o.cut(), o.heal(),
		o.powerOff(), o.powerOn(), o.loadImage())
	return cmd
}

// progress prints each step with the seconds since the start.
func progress() func(string) {
	start := time.Now()
	return func(s string) { fmt.Printf("%6.1fs  %s\n", time.Since(start).Seconds(), s) }
}

func (o *options) up() *cobra.Command {
	config, families := lab.Config{}, ""
	cmd := &cobra.Command{
		Use: "up", Short: "Make the clusters; their Nodes are NotReady until a network is installed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.Name, config.Progress = o.name, progress()
			var err error
			if config.Families, err = lab.ParseFamilies(families); err != nil {
				return err
			}
			l, err := lab.Up(cmd.Context(), config)
			if err != nil {
				return err
			}
			for _, c := range l.Clusters() {
				fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig())
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&config.Clusters, "clusters", []string{"north", "east", "west"}, "names of the clusters")
	cmd.Flags().StringVar(&families, "families", "4", "IP families of Pods and Services: 4, 46 or 6, or one for each "+
		"cluster with commas between; Nodes have addresses of the same families")
	cmd.Flags().IntVar(&config.Nodes, "nodes", 2, "Nodes in each cluster")
	cmd.Flags().StringVar(&config.Dir, "dir", "", "where the lab keeps its files (default /var/lib/tombolo-lab/NAME)")
	return cmd
}

func (o *options) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Remove everything, whatever state it is in", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return lab.Remove(cmd.Context(), o.name) },
	}
}

func (o *options) install() *cobra.Command {
	return &cobra.Command{
		Use: "install", Short: "Load Tombolo's images and apply its manifests in all clusters", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Open(o.name)
			if err != nil {
				return err
			}
			l.SetProgress(progress())
			return l.Install(cmd.Context())
		},
	}
}

func (o *options) loadImage() *cobra.Command {
	return &cobra.Command{
		Use: "load-image TAR...", Short: "Load images from archives on all Nodes", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Open(o.name)
			if err != nil {
				return err
			}
			for _, tar := range args {
				if err := l.LoadImage(cmd.Context(), tar); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
