// Package benchmark has the command benchmark, which measures what Pods reach.
package benchmark

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/benchmark"
	"github.com/tombolo-net/tombolo/pkg/benchmark/plan"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
)

// Defaults and bounds of flags.
const (
	defaultTime      = time.Minute
	mostTime         = time.Hour
	leastRate        = 1_000_000
	mostRate         = 1_000_000_000_000
	mostConnections  = 100_000
	defaultNamespace = "tombolo-benchmark"
	// hostPort is the port of servers in the network of their Nodes. It is outside of the range of NodePorts, and of the
	// range from which kernels choose ports for clients.
	hostPort = 18517
)

// options are the flags of the command.
type options struct {
	benchmark.Options
	flags remote.Flags
	out   cli.Format
	rate  string
}

// Command returns the command benchmark.
func Command() *cobra.Command {
	o := options{flags: remote.Flags{Timeout: 10 * time.Second}}
	cmd := &cobra.Command{
		Use: "benchmark", Args: cobra.NoArgs,
		Short: "Measure throughput, round trips and new connections between Pods, within clusters and between them",
		Long: "Measure throughput of 1 and " + strconv.Itoa(plan.Parallel) + " streams, round trips, and new connections " +
			"a second, from a Pod to a Pod of the same\nNode, of another Node, and of each other cluster. Figures are " +
			"medians of " + strconv.Itoa(benchmark.Rounds) + " rounds. The number in parentheses is\nthe ratio to the " +
			"reference of the same run: the client's own Node, or with --hosts the way between the hosts.\nFigures of " +
			"several runs or machines cannot be compared, ratios can.\n\nThe load disturbs other traffic of these Nodes. " +
			"--time, --rate and --connections limit it. Benchmarks are refused\nby the label " + benchmark.LabelRefused +
			" on the Namespace, on a Node, or on the Namespace kube-system for the\nwhole cluster.\n\nTemporary Pods in " +
			"the Namespace send the packets, with the rights of your user. They are deleted again, also after\nan interrupt, " +
			"and so is the Namespace if the command has made it. --hosts makes Pods in the host's network\n(hostNetwork), " +
			"which the Namespace has to admit, and opens a port on the internal address of one Node of each\ncluster " +
			"meanwhile.",
		Example: "  tombolo benchmark\n  tombolo benchmark --context east,west\n" +
			"  tombolo benchmark --context east,west --hosts --time 3m --rate 10G -o json",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	o.flags.Add(flags)
	flags.StringVarP(&o.Namespace, "namespace", "n", defaultNamespace,
		"the Namespace of the Pods in all clusters; it is made, and deleted again, where it does not exist")
	flags.DurationVar(&o.Time, "time", defaultTime, "how long all loads together may take")
	flags.StringVar(&o.rate, "rate", "1G", "the most bits a second, such as 500M or 10G")
	flags.IntVar(&o.Connections, "connections", 5000, "the most new connections a second")
	flags.BoolVar(&o.Hosts, "hosts", false, "measure between the hosts, too: this needs Pods in the host's network")
	flags.IntVar(&o.HostPort, "host-port", hostPort, "the port of servers on hosts, with --hosts")
	flags.StringVar(&o.Image, "image", "", "image of the Pods, with the program tombolo; that of the agents when empty")
	flags.DurationVar(&o.Wait, "wait", time.Minute, "how long to wait for each Pod, import and first answer")
	o.out.Flag(cmd)
	return cmd
}

// check refuses flags before any request.
func (o *options) check() error {
	rate, err := resource.ParseQuantity(o.rate)
	if err != nil {
		return fmt.Errorf("--rate %s is no number of bits a second: expected a number such as 500M or 10G", o.rate)
	}
	o.Rate = rate.Value()
	switch {
	case rate.CmpInt64(mostRate) > 0:
		return fmt.Errorf("--rate %s is too much: expected 1T or less", o.rate)
	case o.Rate < leastRate:
		return fmt.Errorf("--rate %s is too little: expected 1M or more", o.rate)
	case o.Connections < 1 || o.Connections > mostConnections:
		return fmt.Errorf("--connections %d: expected 1 to %d", o.Connections, mostConnections)
	case o.Time <= 0 || o.Time > mostTime:
		return fmt.Errorf("--time %s: expected a time up to %s", o.Time, mostTime)
	case o.HostPort < 1024 || o.HostPort > 65535:
		return fmt.Errorf("--host-port %d: expected 1024 to 65535", o.HostPort)
	case o.Wait <= 0:
		return fmt.Errorf("--wait %s: expected a time such as 1m", o.Wait)
	case o.Namespace == "":
		return errors.New("--namespace is empty: name one")
	}
	return nil
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	found, err := o.flags.Clusters()
	if err != nil {
		return err
	}
	var clusters []benchmark.Cluster
	for _, c := range found {
		k, err := kubeclient.New(c.Config, kubeclient.Options{Scheme: verify.Scheme()})
		if err != nil {
			return fmt.Errorf("reach the API server of %s: %w", c.Name, err)
		}
		clusters = append(clusters, benchmark.Cluster{Name: c.Name, Client: k})
	}
	o.Nodes = o.flags.Nodes
	o.Progress = func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
	report, err := benchmark.Run(cmd.Context(), clusters, o.Options)
	if cmd.Context().Err() != nil {
		err = errors.Join(fmt.Errorf("interrupted: %w", cmd.Context().Err()), err)
	}
	return errors.Join(o.print(cmd.OutOrStdout(), report, err), err)
}

// print prints a report, also of a run that has failed after its first rows.
func (o *options) print(out io.Writer, report benchmark.Report, failed error) error {
	if failed != nil && len(report.Rows) == 0 {
		return nil
	}
	return o.out.Print(out, cli.Object("Benchmark", report), func() error { return write(out, report, o.out) })
}

// write writes a report for people.
func write(out io.Writer, report benchmark.Report, format cli.Format) error {
	t := cli.Rows{{"FROM", "TO", "WAY", "REFERENCE"}}
	names := benchmark.Names()
	for _, name := range names {
		t[0] = append(t[0], strings.ToUpper(name))
	}
	for _, r := range report.Rows {
		row := []string{r.From, r.To, r.Way, cli.Or(r.Reference, cli.Empty)}
		if len(r.Figures) == 0 {
			t = append(t, append(row, slices.Repeat([]string{cli.Empty}, len(names)+1)...))
			continue
		}
		widest := benchmark.Figure{}
		for _, f := range r.Figures {
			row = append(row, cell(f, format.Wide()))
			if f.Spread > widest.Spread {
				widest = f
			}
		}
		t = append(t, append(row, fmt.Sprintf("%.0f %% (%s)", 100*widest.Spread, widest.Name)))
	}
	t[0] = append(t[0], "SPREAD")
	if err := format.Rows(out, t); err != nil {
		return err
	}
	for _, w := range report.Warnings {
		if _, err := fmt.Fprintln(out, "warning: "+w); err != nil {
			return err
		}
	}
	return nil
}

// cell is a figure in a table: "3.10 Gb/s (0.62)". A wide one has its spread, too.
func cell(f benchmark.Figure, wide bool) string {
	text := ""
	switch f.Unit {
	case "s":
		text = fmt.Sprintf("%.3f ms", 1000*f.Median)
	case "bit/s":
		text = fmt.Sprintf("%.2f Gb/s", f.Median/1e9)
		if f.Median < 1e9 {
			text = fmt.Sprintf("%.0f Mb/s", f.Median/1e6)
		}
	default:
		text = fmt.Sprintf("%.0f/s", f.Median)
	}
	if f.Limited {
		text = ">= " + text
	}
	if f.Ratio > 0 {
		text += fmt.Sprintf(" (%.2f)", f.Ratio)
	}
	if wide {
		text += fmt.Sprintf(" %.0f %%", 100*f.Spread)
	}
	return text
}

// Load returns the command of the client in a Pod, for the group probe.
func Load() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "load PLAN", Args: cobra.ExactArgs(1),
		Short: "Put servers under load, and write the figures for the Pod's status",
		RunE: func(cmd *cobra.Command, args []string) error {
			var p plan.Plan
			if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
				return fmt.Errorf("read the plan: %w", err)
			}
			text, err := json.Marshal(p.Run(cmd.Context()))
			return errors.Join(err, os.WriteFile(to, text, 0o644))
		},
	}
	cmd.Flags().StringVar(&to, "to", "/dev/termination-log", "file to write the figures to")
	return cmd
}
