package diagnose

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// statusPause is the pause between two looks with --wait.
const statusPause = 2 * time.Second

// Status returns the command status.
func Status() *cobra.Command {
	var (
		flags = remote.Flags{Timeout: 5 * time.Second}
		out   cli.Format
		wait  time.Duration
	)
	cmd := &cobra.Command{
		Use: "status", Args: cobra.NoArgs, Short: "Show the state of clusters: Nodes, controllers, ClusterSet, ways",
		Long: "Show the state of clusters at a glance: how many Nodes and controllers are ready, the ClusterSet, the ways " +
			"to other clusters, and each fault in a line.\n\nThe exit code is 1 if a cluster has a fault. `tombolo diagnose` " +
			"finds causes. `tombolo get status` has the state of one Node.",
		Example: "  tombolo status\n  tombolo status --context east,west,north\n" +
			"  tombolo status --context east,west --wait 5m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			clusters, err := flags.Clusters()
			if err != nil {
				return err
			}
			list, err := settled(cmd.Context(), clusters, wait)
			if err != nil {
				return err
			}
			err = out.Print(cmd.OutOrStdout(), cli.Object("StatusList", list),
				func() error { return printStatus(cmd.OutOrStdout(), list, out) })
			if err == nil && !fine(list) {
				return cli.ExitCode(1)
			}
			return err
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait until no cluster has a fault")
	out.Flag(cmd)
	return cmd
}

// settled looks at clusters until no cluster has a fault, or the time to wait is over.
func settled(ctx context.Context, clusters []*remote.Cluster, wait time.Duration) ([]diagnose.Summary, error) {
	end := time.Now().Add(wait)
	for {
		list := diagnose.Summarize(diagnose.Gather(ctx, clusters), version.String())
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if fine(list) || !time.Now().Before(end) {
			return list, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(statusPause):
		}
	}
}

// fine reports whether no cluster has a fault.
func fine(list []diagnose.Summary) bool {
	return !slices.ContainsFunc(list, func(s diagnose.Summary) bool { return !s.OK })
}

// printStatus writes a line for each cluster, and then their faults.
func printStatus(w io.Writer, list []diagnose.Summary, out cli.Format) error {
	rows := cli.Rows{{"CLUSTER", "KUBERNETES", "VERSION", "NODES", "CONTROLLERS", "CLUSTERSET", "WAYS", "STATUS"}}
	var faults strings.Builder
	for _, s := range list {
		state, set := "OK", s.ClusterSet
		if !s.OK {
			state = fmt.Sprintf("%d faults", len(s.Faults))
		}
		if s.ID != "" {
			set += " (" + s.ID + ")"
		}
		if len(s.Leads) > 0 {
			set = strings.TrimSpace(set + " leader")
		}
		rows.Add(s.Cluster, cli.Or(s.Kubernetes, "-"), cli.Or(versionsOf(s), "-"), s.Nodes.String(), s.Controllers.String(),
			cli.Or(set, "-"), s.Ways.String(), state)
		for _, f := range s.Faults {
			fmt.Fprintf(&faults, "%s: %s\n", s.Cluster, f)
		}
	}
	if err := out.Rows(w, rows); err != nil {
		return err
	}
	_, err := io.WriteString(w, faults.String())
	return err
}

// versionsOf returns the versions of a cluster's agents.
func versionsOf(s diagnose.Summary) string {
	return strings.Join(slices.Sorted(maps.Keys(s.Agents)), ",")
}

// Version returns the command version.
func Version() *cobra.Command {
	var (
		flags  = remote.Flags{Timeout: 5 * time.Second}
		client bool
		out    cli.Format
	)
	cmd := &cobra.Command{
		Use: "version", Args: cobra.NoArgs, Short: "Show the versions of this command, of agents and of Kubernetes",
		Long: "Show the versions of this command, and of the agents and API servers of clusters.\n\nThe exit code is 1 if " +
			"a cluster's agents cannot be asked, or have other versions than this command.",
		Example: "  tombolo version --client\n  tombolo version --context east,west",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if client {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
				return err
			}
			clusters, err := flags.Clusters()
			if err != nil {
				return fmt.Errorf("%w; --client shows the version of this command alone", err)
			}
			list := versionList{Client: version.String()}
			skew := false
			for _, s := range diagnose.Summarize(diagnose.Gather(cmd.Context(), clusters), version.String()) {
				list.Clusters = append(list.Clusters, clusterVersions{s.Cluster, s.Kubernetes, s.Agents, s.Nodes.All})
				skew = skew || s.Agents[list.Client] != s.Nodes.All || s.Nodes.All == 0
			}
			err = out.Print(cmd.OutOrStdout(), cli.Object("VersionList", list),
				func() error { return list.print(cmd.OutOrStdout(), out) })
			if err == nil && skew {
				return cli.ExitCode(1)
			}
			return err
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().BoolVar(&client, "client", false, "of this command alone, without a request")
	out.Flag(cmd)
	return cmd
}

// versionList is the answer of the command version.
type versionList struct {
	Client   string            `json:"client"`
	Clusters []clusterVersions `json:"clusters"`
}

// clusterVersions are the versions of the programs in a cluster. Agents has the number of Nodes for each version of the
// agent.
type clusterVersions struct {
	Cluster    string         `json:"cluster"`
	Kubernetes string         `json:"kubernetes,omitempty"`
	Agents     map[string]int `json:"agents"`
	Nodes      int            `json:"nodes"`
}

func (l versionList) print(w io.Writer, out cli.Format) error {
	rows := cli.Rows{{"CLUSTER", "KUBERNETES", "AGENTS", "NODES"}}
	for _, c := range l.Clusters {
		var agents []string
		answered := 0
		for _, v := range slices.Sorted(maps.Keys(c.Agents)) {
			agents = append(agents, v)
			answered += c.Agents[v]
		}
		rows.Add(c.Cluster, cli.Or(c.Kubernetes, "no answer"), cli.Or(strings.Join(agents, ","), "no answer"),
			fmt.Sprintf("%d/%d", answered, c.Nodes))
	}
	if _, err := fmt.Fprintf(w, "tombolo %s\n", l.Client); err != nil {
		return err
	}
	return out.Rows(w, rows)
}
