// Command between measures, in a lab of clusters with three Nodes each, the capacity of the path from a Pod to a Pod of
// another cluster. For comparison it measures the Nodes themselves and the path to another Node of the cluster. It
// prints a row for each path, then switches encryption between the clusters on and prints all rows again:
//
//	between [--time D] [--plain]
//	between --joins
//
// With --joins it measures how long it takes until a join of two networks of tenants in the leader has an effect.
//
// Client and server are on Nodes that are not Gateways. Compare figures only within one run: machines differ.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-net/tombolo/pkg/benchmark/load"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

func main() {
	lasts := flag.Duration("time", 5*time.Second, "how long each figure is measured")
	plain := flag.Bool("plain", false, "in plain text alone, without the rows of encrypted ways")
	tenants := flag.Bool("joins", false, "only how long joins of networks of tenants take")
	flag.Parse()
	setup := scenario.Setup{Name: "between", Clusters: []string{scenario.Leader, "east", "west"}, Nodes: 3,
		ActiveGateways: 2}
	if *tenants {
		setup.Tenants, setup.Nodes, setup.ActiveGateways = true, 2, 1
	}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		b := bench{s, *lasts, filepath.Join(s.Lab.Repo(), "bin", "echo")}
		run := func(ctx context.Context) error { return b.run(ctx, *plain) }
		if *tenants {
			run = b.joined
		}
		if err := run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "between:", err)
			return 1
		}
		return 0
	}))
}

type bench struct {
	*scenario.Scenario
	lasts time.Duration
	echo  string // on Nodes
}

func (b bench) run(ctx context.Context, plain bool) error {
	err := errors.Join(b.Pair(ctx, "node-3", "node-1"), b.ClientPod(ctx, "east", "near", "node-2"), b.PairSettled(ctx))
	if err != nil {
		return err
	}
	if err := b.table(ctx, "in plain text"); err != nil || plain {
		return err
	}
	if err := b.gateways(ctx, "node-1"); err != nil {
		return err
	}
	if err := b.encrypt(ctx); err != nil {
		return fmt.Errorf("encrypt between the clusters: %w", err)
	}
	return b.table(ctx, "encrypted")
}

// encrypt switches encryption of traffic between the clusters on, and waits until traffic passes.
func (b bench) encrypt(ctx context.Context) error {
	if err := b.InstallWireGuard(ctx); err != nil {
		return err
	}
	err := b.ConfigureAgents(ctx, b.Members(), "trafficEncryptionMode: none", "trafficEncryptionMode: wireGuard")
	if err != nil {
		return err
	}
	if err := b.keys(ctx); err != nil {
		return err
	}
	if err := b.pods(ctx); err != nil {
		return err
	}
	return b.PairSettled(ctx)
}

// pods recreates client and servers. A Pod keeps the MTU with which it was made, and encryption needs a smaller one.
func (b bench) pods(ctx context.Context) error {
	for cluster, pods := range map[string]map[string]string{"east": {"client": "node-3", "near": "node-2"},
		"west": {"server": "node-3"}} {
		for pod, node := range pods {
			if out, err := b.Kubectl(ctx, cluster, "delete", "pod", pod, "-n", "default", "--now"); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			if err := b.ClientPod(ctx, cluster, pod, node); err != nil {
				return err
			}
		}
	}
	return nil
}

// keys waits until all Gateways have one of WireGuard.
func (b bench) keys(ctx context.Context) error {
	return scenario.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
		for _, cluster := range b.Members() {
			out, err := b.Kubectl(ctx, cluster, "get", "gateway", "-n", scenario.MemberNamespace, "-o",
				`jsonpath={range .items[*]}{.metadata.name}:{.wireGuard.publicKey},{end}`)
			if err == nil && (out == "" || strings.Contains(out, ":,")) {
				err = fmt.Errorf("%s's Gateways and their keys are %q, want a key for each", cluster, out)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// table measures all ways, to other clusters by one Gateway, and then by two, which stay.
func (b bench) table(ctx context.Context, how string) error {
	url, err := b.PairURL(ctx)
	if err != nil {
		return err
	}
	near, err := b.Kubectl(ctx, "east", "get", "pod", "near", "-n", "default", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		return err
	}
	fmt.Printf("\nbetween clusters %s\n"+columns, how, "way", "1 stream", "CPU", "4 streams", "requests", "p50, p99",
		"connections", "p50, p99", "megaflows")
	if err := b.underlay(ctx); err != nil {
		return err
	}
	inPod := func(ctx context.Context, args ...string) (string, error) {
		return b.Exec(ctx, "east", "client", append([]string{"/echo"}, args...)...)
	}
	if err := b.row(ctx, "to a Pod of another Node", "http://"+near+":8080/", inPod, "east/node-3",
		"east/node-2"); err != nil {
		return err
	}
	if err := b.row(ctx, "to another cluster, one Gateway", url, inPod, "east/node-3", "east/node-1", "west/node-1",
		"west/node-3"); err != nil {
		return err
	}
	if err := b.gateways(ctx, "node-1", "node-2"); err != nil {
		return err
	}
	return b.row(ctx, "to another cluster, two Gateways", url, inPod, "east/node-3", "east/node-1", "east/node-2",
		"west/node-1", "west/node-2", "west/node-3")
}

// columns is the format of the tables.
const columns = "%-34s %12s %10s %12s %12s %20s %14s %20s  %s\n"

// underlay measures the way between the two Nodes without Tombolo.
func (b bench) underlay(ctx context.Context) error {
	client, server := b.Lab.Cluster("east").Node("node-3"), b.Lab.Cluster("west").Node("node-3")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	address := server.InternalIP() + ":18080"
	cmd, err := server.Command(ctx, b.echo, "serve", "--http", address, "--udp", address)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nsenter forks: both are to end, the port is used again
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { stop(); _ = cmd.Wait() }()
	onNode := func(ctx context.Context, args ...string) (string, error) {
		return client.Exec(ctx, append([]string{b.echo}, args...)...)
	}
	if err := scenario.Eventually(ctx, 10*time.Second, func(ctx context.Context) error {
		_, err := onNode(ctx, "get", "http://"+address+"/")
		return err
	}); err != nil {
		return err
	}
	return b.row(ctx, "between the Nodes themselves", "http://"+address+"/", onNode)
}

// row measures a way, and counts the megaflows that 1,000 connections make on Nodes.
func (b bench) row(ctx context.Context, name, url string, echo func(context.Context, ...string) (string, error),
	nodes ...string) error {
	measure := func(args ...string) (r load.Result, err error) {
		out, err := echo(ctx, append([]string{"load", "--time", b.lasts.String()}, args...)...)
		if err == nil {
			err = json.Unmarshal([]byte(out), &r)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		return r, err
	}
	const endless = "download?bytes=1000000000000"
	before, err := b.cpu()
	if err != nil {
		return err
	}
	one, err := measure(url + endless)
	if err != nil {
		return err
	}
	after, err := b.cpu()
	if err != nil {
		return err
	}
	four, err := measure(url+endless, "--parallel", "4")
	if err != nil {
		return err
	}
	kept, err := measure(url)
	if err != nil {
		return err
	}
	fresh, err := measure(url, "--fresh", "--parallel", "4")
	if err != nil {
		return err
	}
	var megaflows []string
	if len(nodes) > 0 {
		if out, err := echo(ctx, "get", url, "--count", "1000"); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		for _, node := range nodes {
			cluster, node, _ := strings.Cut(node, "/")
			out, err := b.Lab.Cluster(cluster).Node(node).Exec(ctx, "ovs-appctl", "dpctl/dump-flows")
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			megaflows = append(megaflows, fmt.Sprintf("%s/%s %d", cluster, node, strings.Count(out, "actions:")))
		}
	}
	megabits := func(r load.Result) string { return fmt.Sprintf("%.0f Mb/s", float64(r.Bytes)*8/1e6/r.Seconds) }
	rate := func(r load.Result) string { return fmt.Sprintf("%.0f/s", float64(r.Requests)/r.Seconds) }
	times := func(r load.Result) string { return fmt.Sprintf("%.2f, %.2f ms", r.P50*1e3, r.P99*1e3) }
	fmt.Printf(columns, name, megabits(one), fmt.Sprintf("%.1f s/GB", (after-before).Seconds()/(float64(one.Bytes)/1e9)),
		megabits(four), rate(kept), times(kept),
		rate(fresh), times(fresh), strings.Join(megaflows, ", "))
	return nil
}

// cpu returns the processor time that the switches, the agents and WireGuard have used on all Nodes of east and west.
func (b bench) cpu() (time.Duration, error) {
	const hz = 100 // USER_HZ, proc(5)
	ticks := 0
	for _, cluster := range []string{"east", "west"} {
		for _, n := range b.Lab.Cluster(cluster).Nodes() {
			all, err := n.Processes()
			if err != nil {
				return 0, err
			}
			for _, p := range all {
				if !slices.Contains([]string{"ovs-vswitchd", "tombolo-agent"}, p.Name()) {
					continue
				}
				used, err := ticksOf(p)
				if err != nil {
					return 0, err
				}
				ticks += used
			}
		}
	}
	return time.Duration(ticks) * time.Second / hz, nil
}

func ticksOf(p lab.Process) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", p.PID, len(fields))
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return user + system, errors.Join(err, err2)
}

// gateways makes the given Nodes, of node-1 and node-2 of both clusters, Gateways, and waits until only they carry
// traffic to other clusters.
func (b bench) gateways(ctx context.Context, want ...string) error {
	phases := strings.Join(want, " ,") + " ," // a Gateway that comes or goes has one
	for _, cluster := range []string{"east", "west"} {
		value := "-"
		if slices.Contains(want, "node-2") {
			value = "=true"
		}
		if out, err := b.Kubectl(ctx, cluster, "annotate", "--overwrite", "node", "node-2", "multicluster.antrea.io/gateway"+
			value); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	err := scenario.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
		for _, cluster := range []string{"east", "west"} {
			out, err := b.Kubectl(ctx, cluster, "get", "gateway", "-n", scenario.MemberNamespace, "-o",
				`jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations.multicluster\.tombolo\.io/phase},{end}`)
			if err == nil && out != phases {
				err = fmt.Errorf("%s's Gateways and their phases are %q, want %q", cluster, out, phases)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.PairSettled(ctx)
}
