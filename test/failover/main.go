// Command failover measures, in a lab of three clusters with three Nodes each, what clients of one cluster notice when Gateways
// fail, come and go on their way to a server of another. It prints a row for each kind of event:
//
//	failover [--runs N] [--wireguard] [--bfd D] [--only TEXT] [--how kept|translated]
//
// The clients are those of scenario.Load; client and server are on Nodes that are no Gateways at first. Nothing here fails by time:
// machines differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

func main() {
	runs := flag.Int("runs", 10, "how often each failure is made")
	encrypted := flag.Bool("wireguard", false, "encrypt between the clusters")
	only := flag.String("only", "", "only events whose name has this in it")
	how := flag.String("how", "", "kept or translated: only with clients' addresses kept, or translated")
	bfd := flag.Duration("bfd", 100*time.Millisecond, "interval of BFD; a way is down after three")
	flag.Parse()
	setup := scenario.Setup{
		Name: "failover", Clusters: []string{scenario.Leader, "east", "west"}, Nodes: 3, Encrypted: *encrypted, ActiveGateways: 3,
		NodeGrace: time.Minute, // the control planes shall not notice before BFD
		BFD:       lab.BFD{Interval: *bfd, Multiplier: 3},
	}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, s, *runs, *only, *how); err != nil {
			fmt.Fprintln(os.Stderr, "failover:", err)
			return 1
		}
		return 0
	}))
}

// event is something that happens to Gateways. heal, if any, undoes it; both may take their time.
type event struct {
	name    string
	repeat  bool // it is made as often as --runs says, else once
	inject  func(ctx context.Context, run int) (heal func(context.Context) error, err error)
	lasting time.Duration // how long clients are watched after it
}

func run(ctx context.Context, s *scenario.Scenario, runs int, only, which string) error {
	if err := s.Pair(ctx, "node-3", "node-1", "node-2"); err != nil {
		return err
	}
	var failed []error
	for _, translated := range []bool{true, false} {
		how, endpoints := "addresses kept", "PodIP"
		if translated {
			how, endpoints = "translated", "ClusterIP"
		}
		if !strings.Contains(how, which) {
			continue
		}
		if err := errors.Join(s.MemberConfig(ctx, "west", map[string]string{"endpointIPType": endpoints}), s.PairSettled(ctx)); err != nil {
			return err
		}
		fmt.Printf("\n%s\n%-46s %4s  %-24s  %-24s  %-15s  %-18s  %s\n", how, "event", "runs", "new ones lost during", "long ones wait", "broken of them", "new ones lost, of", "lost before, of")
		for _, e := range events(s) {
			if !strings.Contains(e.name, only) || translated && !e.repeat { // translated ones may break then
				continue
			}
			if err := measure(ctx, s, e, runs); err != nil {
				err = fmt.Errorf("%s, %s: %w", how, e.name, err)
				fmt.Println(err)
				failed = append(failed, err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return errors.Join(failed...)
}

// events are what happens to the Gateways node-1 and node-2 of both clusters.
func events(s *scenario.Scenario) []event {
	node := func(run int) *lab.Node {
		cluster := []string{"west", "east"}[run%2]
		return s.Lab.Cluster(cluster).Node(fmt.Sprintf("node-%d", 1+run/2%2))
	}
	annotate := func(ctx context.Context, cluster, value string) error {
		out, err := s.Kubectl(ctx, cluster, "annotate", "--overwrite", "node", "node-3", "multicluster.antrea.io/gateway"+value)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	both := func(f func(cluster string) error) error { return errors.Join(f("east"), f("west")) }
	kill := func(run int) error { return node(run).Signal("ovs-vswitchd", syscall.SIGKILL) }
	return []event{
		{"a Gateway's ovs-vswitchd killed", true, func(_ context.Context, run int) (func(context.Context) error, error) {
			return nil, kill(run)
		}, 8 * time.Second},
		{"a Gateway's Node cut off", true, func(_ context.Context, run int) (func(context.Context) error, error) {
			n := node(run)
			return func(context.Context) error { return n.Heal() }, n.Cut()
		}, 8 * time.Second},
		{"leader away, a Gateway's ovs-vswitchd killed", false, func(ctx context.Context, run int) (func(context.Context) error, error) {
			leader := s.Lab.Cluster(scenario.Leader)
			if err := leader.StopAPIServer(ctx); err != nil {
				return nil, err
			}
			return leader.StartAPIServer, kill(run)
		}, time.Minute},
		{"a third Gateway in both clusters", false, func(ctx context.Context, _ int) (func(context.Context) error, error) {
			return nil, both(func(cluster string) error { return annotate(ctx, cluster, "=true") })
		}, 20 * time.Second},
		{"and it goes again", false, func(ctx context.Context, _ int) (func(context.Context) error, error) {
			return nil, both(func(cluster string) error { return annotate(ctx, cluster, "-") })
		}, 30 * time.Second},
		{"new agents on all Nodes, one after the other", false, func(ctx context.Context, _ int) (func(context.Context) error, error) {
			return nil, renew(ctx, s, []string{"east", "west"}, "kube-system/daemonset/tombolo-agent")
		}, 5 * time.Second},
		{"new controllers in all clusters", false, func(ctx context.Context, _ int) (func(context.Context) error, error) {
			return nil, errors.Join(renew(ctx, s, []string{scenario.Leader}, scenario.LeaderNamespace+"/deployment/antrea-mc-controller"),
				renew(ctx, s, []string{"east", "west"}, "kube-system/deployment/antrea-mc-controller", "kube-system/deployment/tombolo-controller", "kube-system/deployment/tombolo-policy-controller"))
		}, 5 * time.Second},
		{"new Open vSwitch on all Nodes, one after the other", false, func(ctx context.Context, _ int) (func(context.Context) error, error) {
			return nil, renewSwitches(ctx, s)
		}, 12 * time.Second},
	}
}

// renew replaces the Pods of workloads, each named with its Namespace and kind, as an upgrade does; all clusters at once.
func renew(ctx context.Context, s *scenario.Scenario, clusters []string, workloads ...string) error {
	each := make([]error, len(clusters))
	var all sync.WaitGroup
	for i, cluster := range clusters {
		all.Go(func() {
			for _, workload := range workloads {
				namespace, name, _ := strings.Cut(workload, "/")
				for _, args := range [][]string{{"restart"}, {"status", "--timeout=5m"}} {
					out, err := s.Kubectl(ctx, cluster, append([]string{"rollout", args[0], name, "-n", namespace}, args[1:]...)...)
					if err != nil {
						each[i] = fmt.Errorf("%w\n%s", err, out)
						return
					}
				}
			}
		})
	}
	all.Wait()
	return errors.Join(each...)
}

// renewSwitches does so with Open vSwitch, whose DaemonSet leaves it to the administrator when a Node has a new one.
func renewSwitches(ctx context.Context, s *scenario.Scenario) error {
	for _, cluster := range []string{"east", "west"} {
		for _, n := range s.Lab.Cluster(cluster).Nodes() {
			pod := []string{"-n", "kube-system", "-l", "component=tombolo-ovs", "--field-selector", "spec.nodeName=" + n.Name()}
			if out, err := s.Kubectl(ctx, cluster, append([]string{"delete", "pod"}, pod...)...); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			err := scenario.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
				out, err := s.Kubectl(ctx, cluster, append([]string{"wait", "--for=condition=Ready", "--timeout=60s", "pod"}, pod...)...)
				if err != nil {
					err = fmt.Errorf("%w\n%s", err, out)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// measure makes an event under load and prints its row.
func measure(ctx context.Context, s *scenario.Scenario, e event, runs int) error {
	if !e.repeat {
		runs = 1
	}
	var away, long []time.Duration
	var broken, lost, of, lostBefore, before int
	for i := range runs {
		if err := s.PairSettled(ctx); err != nil {
			return err
		}
		u, err := s.PairURL(ctx)
		if err != nil {
			return err
		}
		load := s.Load(ctx, u)
		time.Sleep(4 * time.Second) // all of it runs
		start := time.Now()
		heal, err := e.inject(ctx, i)
		if err == nil {
			time.Sleep(e.lasting)
		}
		seen, loadErr := load()
		if heal != nil {
			err = errors.Join(err, heal(ctx))
		}
		if err := errors.Join(err, loadErr); err != nil {
			return err
		}
		n, all := seen.Before(start)
		lostBefore, before = lostBefore+n, before+all
		m, all := seen.After(start)
		lost, of = lost+m, of+all
		away = append(away, seen.Away(start))
		long = append(long, seen.Longest(start))
		broken += seen.Broken
	}
	fmt.Printf("%-46s %4d  %-24s  %-24s  %-15s  %-18s  %d, %d\n", e.name, runs, spread(away), spread(long), fmt.Sprintf("%d of %d", broken, runs*scenario.LongOnes),
		fmt.Sprintf("%d, %d", lost, of), lostBefore, before)
	return nil
}

// spread is the median and the longest.
func spread(all []time.Duration) string {
	slices.Sort(all)
	if len(all) == 1 {
		return fmt.Sprintf("%d ms", all[0].Milliseconds())
	}
	return fmt.Sprintf("%d ms, at most %d ms", all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
}
