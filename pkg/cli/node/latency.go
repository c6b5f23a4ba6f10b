package node

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// latency returns the command that shows the results of probes.
func (n *node) latency() *cobra.Command {
	var out cli.Format
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
			return question[api.Probes]{kind: "Probes", path: api.PathProbes, rows: probeRows}.show(cmd, n, out)
		},
	}
	out.Flag(cmd)
	return cmd
}

// probeRows has a row for each way, and for each other Node.
func probeRows(p api.Probes) cli.Rows {
	t := cli.Rows{{"PEER", "TO", "P50", "P99", "LOSS-60", "LOSS-300", "SENT", "LOST", "LATE", "SIZE"}}
	for _, way := range p.Ways {
		to := way.To
		if way.Paused {
			to += " (down)"
		}
		t.Add(append(append([]string{way.Peer, to}, resultCells(way.ProbeResult)...), sizeCell(way))...)
	}
	for _, node := range p.Nodes {
		t.Add(append(append([]string{"node/" + node.Node, node.To}, resultCells(node.ProbeResult)...), "-")...)
	}
	return t
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
