// Command failover measures, in a lab of three clusters with three Nodes each, the effect on clients of one cluster
// when Gateways on their path to a server of another cluster fail, join and leave. It prints a row for each kind of
// event:
//
//	failover [--runs N] [--wireguard] [--bfd D] [--away D] [--only TEXT] [--how kept|translated]
//
// The clients are scenario.Load's. Client and server are on Nodes that are not Gateways at first. In addition to the
// clients' losses it prints how long the switches of other Nodes took to find the Gateway down (detect.go). No measured
// time makes the command fail, since machines differ.
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
	away := flag.Duration("away", time.Minute, "how long the leader is away when a Gateway fails without it")
	flag.Parse()
	setup := scenario.Setup{
		Name: "failover", Clusters: []string{scenario.Leader, "east", "west"}, Nodes: 3, Encrypted: *encrypted,
		ActiveGateways: 3,
		NodeGrace:      time.Minute, // the control planes shall not notice before BFD
		BFD:            lab.BFD{Interval: *bfd, Multiplier: 3},
	}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, s, *runs, *away, *only, *how); err != nil {
			fmt.Fprintln(os.Stderr, "failover:", err)
			return 1
		}
		return 0
	}))
}

// event is something that happens to Gateways.
type event struct {
	name    string
	repeat  bool                                     // it is made as often as --runs says, else once
	prepare func(context.Context) error              // what is done before the event, under load; may be nil
	inject  func(ctx context.Context, run int) error // may take its time
	heal    func(ctx context.Context, run int) error // undoes both; may be nil
	fails   func(run int) *lab.Node                  // the Gateway that others find down, or nil
	lasting time.Duration                            // how long clients are watched after it
}

func run(ctx context.Context, s *scenario.Scenario, runs int, away time.Duration, only, which string) error {
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
		if err := errors.Join(s.MemberConfig(ctx, "west", map[string]string{"endpointIPType": endpoints}),
			s.PairSettled(ctx)); err != nil {
			return err
		}
		fmt.Printf("\n%s\n"+columns, how, "event", "runs", "new ones lost during", "first Node finds it down",
			"last Node finds it down", "long ones wait", "broken of them", "new ones lost, of", "lost before, of")
		for _, e := range events(s, away) {
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
		if translated && strings.Contains(unplugged, only) { // once, with what west and north export by default
			if err := unplug(ctx, s); err != nil {
				err = fmt.Errorf("%s: %w", unplugged, err)
				fmt.Println(err)
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}

// columns is the format of the table.
const columns = "%-46s %4v  %-24s  %-24s  %-24s  %-24s  %-15s  %-18s  %s\n"

// events are what happens to the Gateways node-1 and node-2 of both clusters.
func events(s *scenario.Scenario, away time.Duration) []event {
	node := func(run int) *lab.Node {
		cluster := []string{"west", "east"}[run%2]
		return s.Lab.Cluster(cluster).Node(fmt.Sprintf("node-%d", 1+run/2%2))
	}
	annotate := func(value string) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			var failed []error
			for _, cluster := range members {
				if out, err := s.Kubectl(ctx, cluster, "annotate", "--overwrite", "node", "node-3",
					"multicluster.antrea.io/gateway"+value); err != nil {
					failed = append(failed, fmt.Errorf("%w\n%s", err, out))
				}
			}
			return errors.Join(failed...)
		}
	}
	kill := func(_ context.Context, run int) error { return node(run).Signal("ovs-vswitchd", syscall.SIGKILL) }
	agents := func(how string) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			return rollout(ctx, s, how, members, "kube-system/daemonset/tombolo-agent")
		}
	}
	controllers := func(how string) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			return errors.Join(rollout(ctx, s, how, []string{scenario.Leader}, scenario.LeaderNamespace+
				"/deployment/antrea-mc-controller"),
				rollout(ctx, s, how, members, "kube-system/deployment/antrea-mc-controller",
					"kube-system/deployment/tombolo-controller", "kube-system/deployment/tombolo-policy-controller"))
		}
	}
	leader := s.Lab.Cluster(scenario.Leader)
	return []event{
		{name: "a Gateway's ovs-vswitchd killed", repeat: true, inject: kill, fails: node, lasting: 8 * time.Second},
		{name: "a Gateway's Node cut off", repeat: true, fails: node, lasting: 8 * time.Second,
			inject: func(_ context.Context, run int) error { return node(run).Cut() },
			heal:   func(_ context.Context, run int) error { return node(run).Heal() }},
		{name: "leader away, a Gateway's ovs-vswitchd killed", prepare: leader.StopAPIServer, inject: kill, fails: node,
			lasting: away,
			heal:    func(ctx context.Context, _ int) error { return leader.StartAPIServer(ctx) }},
		{name: "a third Gateway in both clusters", inject: annotate("=true"), lasting: 20 * time.Second},
		{name: "and it goes again", inject: annotate("-"), lasting: 30 * time.Second},
		{name: "new agents on all Nodes, one after the other", inject: agents("restart"), lasting: 5 * time.Second},
		{name: "and back to the agents of before", inject: agents("undo"), lasting: 5 * time.Second},
		{name: "new controllers in all clusters", inject: controllers("restart"), lasting: 5 * time.Second},
		{name: "and back to the controllers of before", inject: controllers("undo"), lasting: 5 * time.Second},
		{name: "new Open vSwitch on all Nodes, one after the other", lasting: 12 * time.Second,
			inject: func(ctx context.Context, _ int) error { return renewSwitches(ctx, s) }},
	}
}

// members are the clusters whose Gateways fail, come and go.
var members = []string{"east", "west"}

// rollout replaces the Pods of workloads, each named with its Namespace and kind, all clusters at once. It uses kubectl
// rollout restart as an upgrade does, or kubectl rollout undo, which restores the earlier template.
func rollout(ctx context.Context, s *scenario.Scenario, how string, clusters []string, workloads ...string) error {
	each := make([]error, len(clusters))
	var all sync.WaitGroup
	for i, cluster := range clusters {
		all.Go(func() {
			for _, workload := range workloads {
				namespace, name, _ := strings.Cut(workload, "/")
				for _, args := range [][]string{{how}, {"status", "--timeout=5m"}} {
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

// renewSwitches replaces Open vSwitch on Nodes, one after the other. Its DaemonSet does not replace Pods by itself, so
// that the administrator chooses the time.
func renewSwitches(ctx context.Context, s *scenario.Scenario) error {
	for _, cluster := range members {
		for _, n := range s.Lab.Cluster(cluster).Nodes() {
			pod := []string{"-n", "kube-system", "-l", "component=tombolo-ovs", "--field-selector", "spec.nodeName=" + n.Name()}
			if out, err := s.Kubectl(ctx, cluster, append([]string{"delete", "pod"}, pod...)...); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			err := scenario.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
				out, err := s.Kubectl(ctx, cluster, append([]string{"wait", "--for=condition=Ready", "--timeout=60s", "pod"},
					pod...)...)
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
	var r row
	for i := range runs {
		if err := r.add(ctx, s, e, i); err != nil {
			return err
		}
	}
	first, last := "", ""
	if e.fails != nil {
		first, last = detected(r.first, runs), detected(r.last, runs)
	}
	fmt.Printf(columns, e.name, runs, spread(r.away), first, last, spread(r.long),
		fmt.Sprintf("%d of %d", r.broken, runs*scenario.LongOnes),
		fmt.Sprintf("%d, %d", r.lost, r.of), fmt.Sprintf("%d, %d", r.lostBefore, r.before))
	return nil
}

// row is what clients and switches noticed of the runs of an event.
type row struct {
	first, last                          []time.Duration // until the Gateway was down for one other Node, and for all
	away, long                           []time.Duration
	broken, lost, of, lostBefore, before int
}

// add makes an event once.
func (r *row) add(ctx context.Context, s *scenario.Scenario, e event, run int) error {
	if err := s.PairSettled(ctx); err != nil {
		return err
	}
	u, err := s.PairURL(ctx)
	if err != nil {
		return err
	}
	watched := func(time.Time) ([]time.Duration, error) { return nil, nil }
	if e.fails != nil {
		if watched, err = detect(ctx, s, e.fails(run)); err != nil {
			return err
		}
	}
	load := s.Load(ctx, u)
	time.Sleep(4 * time.Second) // all of it runs
	start, err := e.happen(ctx, run)
	seen, loadErr := load()
	took, watchErr := watched(start)
	if e.heal != nil {
		err = errors.Join(err, e.heal(ctx, run))
	}
	if err := errors.Join(err, loadErr); err != nil {
		return err
	}
	if watchErr != nil { // what clients noticed is a figure without it
		fmt.Println(watchErr)
	}
	if len(took) > 0 {
		r.first, r.last = append(r.first, took[0]), append(r.last, took[len(took)-1])
	}
	n, all := seen.Before(start)
	r.lostBefore, r.before = r.lostBefore+n, r.before+all
	n, all = seen.After(start)
	r.lost, r.of = r.lost+n, r.of+all
	r.away = append(r.away, seen.Away(start))
	r.long = append(r.long, seen.Longest(start))
	r.broken += seen.Broken
	return nil
}

// happen causes the event and waits for the time in which clients are watched. It returns the time at which the event
// began.
func (e event) happen(ctx context.Context, run int) (start time.Time, err error) {
	if e.prepare != nil {
		if err := e.prepare(ctx); err != nil {
			return time.Now(), err
		}
	}
	start = time.Now()
	if err := e.inject(ctx, run); err != nil {
		return start, err
	}
	select {
	case <-time.After(e.lasting):
	case <-ctx.Done():
	}
	return start, ctx.Err()
}

// spread is the median and the longest.
func spread(all []time.Duration) string {
	slices.Sort(all)
	if len(all) == 1 {
		return fmt.Sprintf("%d ms", all[0].Milliseconds())
	}
	return fmt.Sprintf("%d ms, at most %d ms", all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
}
