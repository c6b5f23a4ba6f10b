package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// probesOf are the results of the probes of a Node, or why they are missing.
type probesOf struct {
	Cluster string      `json:"cluster,omitempty"`
	Node    string      `json:"node"`
	Error   string      `json:"error,omitempty"`
	Probes  *api.Probes `json:"probes,omitempty"`
}

// latency returns the command that shows the results of probes.
func (n *node) latency() *cobra.Command {
	var (
		out cli.Format
		to  remote.Flags
	)
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Round-trip time, loss and packet size of ways to other clusters, and between Nodes",
		Long: "Show the results of the probes of ways to other clusters. If a NodeLatencyMonitor asks for them, the\n" +
			"probes of other Nodes are shown too.\n" +
			"On a Node it asks the agent there. With --context, --kubeconfig or --node it asks all agents of the clusters\n" +
			"through their API servers.",
		Example: "  tombolo get latency\n  tombolo get latency --context east,west\n" +
			"  tombolo get latency --bundle incident.tar.gz",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := n.allProbes(cmd, to)
			if err != nil {
				return err
			}
			err = out.Print(cmd.OutOrStdout(), all, func() error { return printProbes(cmd.OutOrStdout(), all) })
			for _, p := range all {
				if p.Error != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), p.Error)
				}
			}
			return errors.Join(err, missing(all))
		},
	}
	to.Add(cmd.Flags())
	out.Flag(cmd)
	return cmd
}

// missing returns an error if Nodes have not answered.
func missing(all []probesOf) error {
	count := 0
	for _, p := range all {
		if p.Error != "" {
			count++
		}
	}
	if count > 0 {
		return fmt.Errorf("%d of %d Nodes have not answered", count, len(all))
	}
	return nil
}

// allProbes asks the agent of this Node, the bundle, or all agents of the named clusters.
func (n *node) allProbes(cmd *cobra.Command, to remote.Flags) ([]probesOf, error) {
	far := false
	for _, name := range []string{"context", "kubeconfig", "node"} {
		far = far || cmd.Flags().Changed(name)
	}
	if !far || n.agent.bundle != "" {
		if len(to.Contexts) > 1 || len(to.Nodes) > 1 {
			return nil, errors.New("a bundle answers for one Node: name one with --context and --node")
		}
		if len(to.Contexts) == 1 {
			n.agent.context = to.Contexts[0]
		}
		if len(to.Nodes) == 1 {
			n.agent.name = to.Nodes[0]
		}
		n.agent.timeout = to.Timeout
		var p api.Probes
		if err := n.agent.ask(cmd.Context(), api.PathProbes, nil, &p); err != nil {
			return nil, err
		}
		return []probesOf{{Node: p.Node, Probes: &p}}, nil
	}
	clusters, err := to.Clusters()
	if err != nil {
		return nil, err
	}
	var all []probesOf
	for _, c := range clusters {
		agents, err := c.Agents(cmd.Context())
		if err != nil {
			return nil, err
		}
		of := make([]probesOf, len(agents))
		var asking sync.WaitGroup
		for i, a := range agents {
			asking.Go(func() { of[i] = probesAt(cmd.Context(), c.Name, a) })
		}
		asking.Wait()
		all = append(all, of...)
	}
	return all, nil
}

// probesAt asks the agent of a Node.
func probesAt(ctx context.Context, cluster string, a remote.Agent) probesOf {
	out := probesOf{Cluster: cluster, Node: a.Node}
	body, err := a.Ask(ctx, api.PathProbes, nil)
	if err == nil {
		err = json.Unmarshal(body, &out.Probes)
	}
	if err != nil {
		out.Error, out.Probes = err.Error(), nil
	}
	return out
}

// printProbes prints a row for each way, and for each other Node.
func printProbes(w io.Writer, all []probesOf) error {
	head, own := []string{"NODE", "PEER", "TO", "P50", "P99", "LOSS-60", "LOSS-300", "SENT", "LOST", "LATE", "SIZE"}, 0
	for _, p := range all {
		if p.Cluster != "" {
			own = 1
		}
	}
	if own == 1 {
		head = append([]string{"CLUSTER"}, head...)
	}
	t := cli.Rows{head}
	for _, p := range all {
		if p.Probes == nil {
			continue
		}
		for _, way := range p.Probes.Ways {
			to := way.To
			if way.Paused {
				to += " (down)"
			}
			row := append([]string{p.Cluster, p.Node, way.Peer, to}, resultCells(way.ProbeResult)...)
			t.Add(append(row, sizeCell(way))[1-own:]...)
		}
		for _, node := range p.Probes.Nodes {
			row := append([]string{p.Cluster, p.Node, "node/" + node.Node, node.To}, resultCells(node.ProbeResult)...)
			t.Add(append(row, "-")[1-own:]...)
		}
	}
	return t.Write(w, "  ")
}

// resultCells returns the cells from P50 to LATE.
func resultCells(r api.ProbeResult) []string {
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	last := []string{count(r.Sent), count(r.Lost), count(r.Late)}
	if r.Samples == 0 {
		return append([]string{"-", "-", "-", "-"}, last...)
	}
	return append([]string{shortTime(r.P50Seconds), shortTime(r.P99Seconds), percent(r.Loss60), percent(r.Loss300)},
		last...)
}

// sizeCell names the largest packet that passes, and the MTU of Pods if that is larger.
func sizeCell(w api.ProbedWay) string {
	switch {
	case w.Size == 0:
		return "-"
	case w.Size < w.MTU:
		return fmt.Sprintf("%d of %d", w.Size, w.MTU)
	}
	return strconv.Itoa(w.Size)
}

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + "%" }

// shortTime shortens a round-trip time; without a time it is a dash.
func shortTime(s float64) string {
	if s <= 0 || s > 1e6 {
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond).String()
}
