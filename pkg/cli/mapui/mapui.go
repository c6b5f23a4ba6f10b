// Package mapui has the command that serves the map of a ClusterSet.
package mapui

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
)

// Command returns the command ui.
func Command() *cobra.Command {
	var flags remote.Flags
	var port int
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the map of a ClusterSet on 127.0.0.1: clusters, Gateways, ways, Services, Nodes, changes",
		Long: "Serve the map of a ClusterSet on 127.0.0.1, and print the URL that opens it. The map shows clusters, " +
			"Gateways, ways\nwith their states, exported and imported Services, Nodes with their problems, and changes since " +
			"the start.\nIt reads with the rights of the kubeconfig and changes nothing. The URL has a token: who has it sees " +
			"the map.",
		Example: "  tombolo ui --context east,west,north\n  tombolo ui --port 8090",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := flags.Clusters()
			if err != nil {
				return err
			}
			// Libraries log failed watches. The page shows them.
			klog.SetSlogLogger(slog.New(slog.DiscardHandler))
			return serve(cmd.Context(), flags, clusters, port, func(url string) {
				fmt.Fprintf(cmd.OutOrStdout(), "The map is at %s\nCtrl-C ends it.\n", url)
			})
		},
	}
	flags.Add(cmd.Flags())
	if err := cmd.Flags().MarkHidden("node"); err != nil {
		panic(err) // the flag has just been added
	}
	cmd.Flags().IntVar(&port, "port", 0, "port of 127.0.0.1; a free one when 0")
	return cmd
}

// serve serves the map until ctx ends.
func serve(ctx context.Context, flags remote.Flags, clusters []*remote.Cluster, port int,
	ready func(url string)) error {
	wake := make(chan struct{}, 1)
	changed := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	var sources []*ui.Source
	var recorders []ui.Recorder
	var names []string
	for i, c := range clusters {
		name := "" // the current context
		if i < len(flags.Contexts) {
			name = flags.Contexts[i]
		}
		s, err := ui.NewSource(access(flags.Kubeconfig, name, c.Name), c.Config, c.Ask, c.Stream, changed)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		sources, recorders, names = append(sources, s), append(recorders, s), append(names, c.Name)
	}
	hub := ui.NewHub()
	server, err := ui.Listen(port, hub, recorders...)
	if err != nil {
		return err
	}
	server.AnswerWith(ui.Asking{Sources: sources,
		Follow: func(ctx context.Context, q follow.Question) (follow.Answer, error) {
			followed, err := remote.Followed(clusters...)
			if err != nil {
				return follow.Answer{}, err
			}
			return follow.Follow(ctx, followed, q)
		}})
	for _, s := range sources {
		s.AskWhile(func() bool { return server.Pages() > 0 })
	}
	ready(server.URL())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	for _, s := range sources {
		running.Go(func() { s.Run(ctx) })
	}
	again := []string{"tombolo", "diagnose"}
	if flags.Kubeconfig != "" {
		again = append(again, "--kubeconfig", flags.Kubeconfig)
	}
	if len(flags.Contexts) > 0 {
		again = append(again, "--context", strings.Join(flags.Contexts, ","))
	}
	diagnosis := ui.NewDiagnosis(func(ctx context.Context) []ui.Fault {
		return faultsOf(names, again, diagnose.Run(diagnose.Gather(ctx, clusters)))
	}, func() bool { return server.Pages() > 0 }, changed)
	running.Go(func() { diagnosis.Run(ctx) })
	running.Go(func() { hub.Follow(ctx, sources, diagnosis, wake) })
	err = server.Serve(ctx)
	stop()
	running.Wait()
	return err
}

// faultsOf returns the failed results about clusters with these names. A result between clusters is about these that it
// names, or about all. The words again are the command that looks again.
func faultsOf(names, again []string, results []diagnose.Result) (faults []ui.Fault) {
	for _, r := range results {
		if r.Status != diagnose.Fail {
			continue
		}
		f := ui.Fault{Contexts: []string{r.Cluster}, Problem: ui.Problem{Object: cmp.Or(r.Object, r.Check), Reason: r.Code,
			Message: r.Check + ": " + r.Detail + ". Remedy: " + r.Remedy + ".", Command: ui.Command(again...)}}
		if r.Cluster == "" {
			text := strings.Join(append(slices.Clone(r.Evidence), r.Object, r.Detail), " ")
			f.Contexts = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.Contains(text, name) })
		}
		if len(f.Contexts) == 0 {
			f.Contexts = names
		}
		faults = append(faults, f)
	}
	return faults
}

// access returns how commands reach a cluster: name is the flag's context or kubeconfig file, empty for the current
// context.
func access(kubeconfig, name, shown string) ui.Access {
	if _, err := os.Stat(name); err == nil {
		return ui.Access{Name: shown, Arg: name, Kubectl: []string{"--kubeconfig", name}}
	}
	a := ui.Access{Name: shown, Arg: name}
	if name != "" {
		a.Kubectl = []string{"--context", name}
	}
	if kubeconfig != "" {
		a.Tombolo = []string{"--kubeconfig", kubeconfig}
		a.Kubectl = slices.Concat(a.Tombolo, a.Kubectl)
	}
	return a
}
