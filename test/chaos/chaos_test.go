// Package chaos breaks things in a lab, at random but repeatably, while connections and requests
// go on, and compares the clusters afterwards with what they were.
//
//	go test ./test/chaos -v -chaos.seed 7 -chaos.steps 40
//	make chaos MINUTES=60
//
// The first steps take each fault alone, in an order that the seed decides; those after them take
// pairs. After each step, within settleLimit: the kept connections go on, what the fault may lose
// is over, switches, OVSDBs, routes of objects and both clusters' objects are as before, and no
// port, interface, network namespace, address, process, file descriptor or goroutine is left over.
package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/echo/watched"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

var (
	seed    = flag.Uint64("chaos.seed", 1, "decides the faults, their order, their places and how long they last")
	pairs   = flag.Int("chaos.pairs", 4, "steps with two faults at once, after each fault alone")
	only    = flag.String("chaos.faults", ".", "take only faults whose names match this regular expression")
	minutes = flag.Int("chaos.minutes", 0, "go on with pairs until so many minutes have passed")
)

// world is the lab of all tests here.
var world *scenario.Scenario

func TestMain(m *testing.M) {
	flag.Parse()
	setup := scenario.Setup{Name: "chaos", Clusters: []string{"north", "east"}, Nodes: 2, NodeGrace: nodeGrace,
		Prepare: smallDisks}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

const (
	holdMin, holdMax = 2 * time.Second, 5 * time.Second // how long a fault lasts
	settleLimit      = 3 * time.Minute
	// nodeGrace is longer than an API server or a kubelet is away on a slow machine: Pods of a Node
	// that is silent for longer are no endpoints any more, whatever the network does.
	nodeGrace = 2 * time.Minute
)

func TestChaos(t *testing.T) {
	begin := time.Now()
	t.Logf("seed %d; repeat with: go test ./test/chaos -chaos.seed %d", *seed, *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	prepare(t)
	streams := watch(t)
	steps := watched.Steps{{Name: "the preparation", Start: time.Now(), Limits: limits(nothing, 0)}}
	before := steady(t)

	chosen := regexp.MustCompile(*only)
	all := slices.DeleteFunc(faults(), func(f fault) bool { return !chosen.MatchString(f.name) })
	if len(all) == 0 {
		t.Fatalf("no fault matches %s", *only)
	}
	order := random.Perm(len(all))
	for step := 0; ; step++ {
		var chosen []fault
		if step < len(order) {
			chosen = []fault{all[order[step]]}
		} else {
			over := step >= len(order)+*pairs
			if *minutes > 0 {
				over = time.Since(begin) > time.Duration(*minutes)*time.Minute
			}
			if over {
				t.Logf("%d steps (%d faults alone, %d pairs) with seed %d in %.0f s", step, len(order), step-len(order), *seed,
					time.Since(begin).Seconds())
				return
			}
			// A fault may be paired with itself, mostly in another place.
			chosen = []fault{all[random.IntN(len(all))], all[random.IntN(len(all))]}
		}
		if !t.Run(fmt.Sprintf("%02d", step+1),
			func(t *testing.T) { runStep(t, step, random, chosen, streams, &steps, before) }) {
			t.Fatalf("step %d failed with seed %d after %.0f s", step+1, *seed, time.Since(begin).Seconds())
		}
	}
}

// runStep injects faults, changes something while they last, heals, and checks. It adds itself to the steps.
func runStep(t *testing.T, number int, random *rand.Rand, chosen []fault, streams []*stream, steps *watched.Steps,
	before state) {
	start := time.Now()
	hold := holdMin + time.Duration(random.Int64N(int64(holdMax-holdMin)))
	var names []string
	var heals []func(context.Context) error
	mayLose := nothing
	for _, f := range chosen {
		at := place(random)
		name, heal, err := f.inject(t.Context(), at, random)
		names = append(names, f.name+" "+name)
		if heal != nil {
			// Also when the test ends early: a process that is stopped for ever outlives the lab.
			healed := false
			once := func(ctx context.Context) error {
				if healed {
					return nil
				}
				healed = true
				return heal(ctx)
			}
			heals = append(heals, once)
			t.Cleanup(func() { _ = once(context.WithoutCancel(t.Context())) })
		}
		if err != nil {
			t.Fatalf("%s %s: %v", f.name, name, err)
		}
		mayLose = max(mayLose, f.loses)
	}
	where := place(random)
	changed := make(chan error, 1)
	go func() { changed <- churn(t.Context(), where, number) }()
	wait(t, hold)
	for i := len(heals) - 1; i >= 0; i-- {
		if err := heals[i](t.Context()); err != nil {
			t.Fatalf("heal %s: %v", names[i], err)
		}
	}
	healed := time.Now()
	*steps = append(*steps, watched.Step{Name: fmt.Sprintf("step %d", number+1), Start: start,
		Limits: limits(mayLose, healed.Sub(start))})
	if err := <-changed; err != nil {
		t.Errorf("a Pod and a Service that come and go on %s: %v", where, err)
	}
	churned := time.Since(healed)
	settled(t, &before)
	now := time.Now()
	var seen []string
	for _, s := range streams {
		seen = append(seen, s.check(t, *steps, now))
	}
	t.Logf("%s, for %.1f s; a Pod on %s came and went until %.1f s after, settled %.1f s after; %s",
		strings.Join(names, " with "), healed.Sub(start).Seconds(), where, churned.Seconds(), now.Sub(healed).Seconds(),
		strings.Join(seen, ", "))
	if t.Failed() {
		diagnose(t)
	}
}

// wait lets a fault last: nothing that could be waited for happens at its end.
func wait(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// place chooses a Node.
func place(random *rand.Rand) *lab.Node {
	clusters := world.Lab.Clusters()
	nodes := clusters[random.IntN(len(clusters))].Nodes()
	return nodes[random.IntN(len(nodes))]
}

// clusterOf returns the cluster of a Node.
func clusterOf(n *lab.Node) *lab.Cluster {
	name, _, _ := strings.Cut(n.String(), "/")
	return world.Lab.Cluster(name)
}

// smallDisks gives each Node file systems of its own for what the agent and Open vSwitch keep, so
// that they can be filled.
func smallDisks(ctx context.Context, l *lab.Lab) error {
	for _, c := range l.Clusters() {
		for _, n := range c.Nodes() {
			for _, dir := range []string{agentDisk, switchDisk} {
				if _, err := n.Exec(ctx, "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", dir); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// prepare joins the clusters: north exports nginx, east has one too, clients are on east/node-2.
func prepare(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { return world.Access(ctx) },
		func() error { return world.Join(ctx) },
		func() error { return world.ChooseGateway(ctx, "north", "node-1") },
		func() error { return world.ChooseGateway(ctx, "east", "node-1") },
		func() error { return world.Nginx(ctx, "north", 2) },
		func() error { return world.Nginx(ctx, "east", 2) },
		func() error { return world.Export(ctx, "north") },
		func() error { return world.ClientPod(ctx, "east", "client", "node-2") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// churn creates a Pod and its Service on a Node, asks the Service from the Node, and deletes
// both. It tries for as long as a fault and its consequences may last.
func churn(ctx context.Context, n *lab.Node, number int) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	cluster, name := clusterOf(n), fmt.Sprintf("churn-%d", number)
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default, labels: {run: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
    - {name: echo, image: "tombolo/echo:dev", imagePullPolicy: Never, args: [serve]}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  selector: {run: %[1]s}
  ports: [{port: 80, targetPort: 8080}]
`, name, n.Name())
	try := func(what string, f func(context.Context) error) error {
		if err := scenario.Eventually(ctx, settleLimit, f); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	if err := try("create", func(ctx context.Context) error {
		_, err := cluster.KubectlInput(ctx, manifest, "apply", "--request-timeout=5s", "-f", "-")
		return err
	}); err != nil {
		return err
	}
	err := try("ask", func(ctx context.Context) error {
		ip, err := cluster.Kubectl(ctx, "get", "service", name, "--request-timeout=5s", "-o", "jsonpath={.spec.clusterIP}")
		if err != nil {
			return err
		}
		_, err = n.Exec(ctx, "curl", "-sS", "--max-time", "2", "http://"+ip+"/")
		return err
	})
	return errors.Join(err, try("delete", func(ctx context.Context) error {
		_, err := cluster.Kubectl(ctx, "delete", "pod,service", name, "--ignore-not-found", "--request-timeout=20s")
		return err
	}))
}
