// Package diagnosis puts faults into a lab, one after the other. `tombolo diagnose` has to name each fault first, with
// its place, and the map of `tombolo ui` has to show it. A seed decides the order and the places. Before each fault the
// clusters are healthy, and no check may fail then.
package diagnosis

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

	"github.com/tombolo-net/tombolo/pkg/diagnose"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

var (
	seed   = flag.Uint64("diagnosis.seed", 1, "decides the order of the faults and their places")
	count  = flag.Int("diagnosis.faults", 0, "how many faults; each kind once when 0")
	checks = flag.Int("diagnosis.healthy", 3, "how many times healthy clusters are asked before each fault")
	only   = flag.String("diagnosis.run", ".", "take only faults whose names match this regular expression")
)

// world is the lab of all tests here.
var world *scenario.Scenario

func TestMain(m *testing.M) {
	flag.Parse()
	setup := scenario.Setup{Name: "diagnosis", Clusters: []string{"north", "east", "west"}, Nodes: 2}
	os.Exit(setup.Run(func(s *scenario.Scenario) int {
		world = s
		return m.Run()
	}))
}

// soon is how long a state may take that comes within seconds, on a busy machine.
const soon = 3 * time.Minute

// asked is how many times healthy clusters were asked.
type asked struct{ runs, alarms int }

func TestDiagnosis(t *testing.T) {
	prepare(t)
	t.Logf("seed %d; repeat with: make diagnosis SEED=%d FAULTS=%d", *seed, *seed, *count)
	random := rand.New(rand.NewPCG(*seed, 0))
	chosen := regexp.MustCompile(*only)
	kinds := slices.DeleteFunc(faults(), func(f fault) bool { return !chosen.MatchString(f.name) })
	if len(kinds) == 0 {
		t.Fatalf("no fault matches %s", *only)
	}
	shown := openMap(t)
	var healthy asked
	var order []int
	for len(order) < max(*count, len(kinds)) {
		order = append(order, random.Perm(len(kinds))...)
	}
	if *count > 0 {
		order = order[:*count]
	}
	named := 0
	for i, k := range order {
		healthy.ask(t)
		if t.Run(fmt.Sprintf("%02d %s", i+1, kinds[k].name), func(t *testing.T) { kinds[k].find(t, random, shown) }) {
			named++
		}
	}
	healthy.ask(t)
	t.Logf("%d of %d faults were named first and shown; %d of %d diagnoses of healthy clusters had a false alarm",
		named, len(order), healthy.alarms, healthy.runs)
}

// ask waits until no check fails or is unknown. Then it asks more times, and no check may fail.
func (a *asked) ask(t *testing.T) {
	t.Helper()
	start := time.Now()
	eventually(t, 8*time.Minute, func(ctx context.Context) error { // of which 5 min are the time of TD044
		d, err := world.Diagnose(ctx)
		if err == nil && d.Failed+d.Unknown > 0 {
			err = errors.New(d.Faults())
		}
		return err
	})
	took := time.Since(start)
	for range *checks {
		d, err := world.Diagnose(t.Context())
		if a.runs++; err != nil || d.Failed > 0 {
			a.alarms++
			t.Errorf("false alarm: %v\n%s", err, d.Faults())
		}
	}
	t.Logf("healthy after %.0f s, then asked %d times", took.Seconds(), *checks)
}

// fault is one kind of fault.
type fault struct {
	name string
	// limit is how long it may take until the fault is named; soon when zero.
	limit  time.Duration
	inject func(ctx context.Context, at place) (effect, error)
}

// place is where a fault is.
type place struct {
	random *rand.Rand
	// cluster and other are two clusters.
	cluster, other *lab.Cluster
	node           *lab.Node // of cluster
}

// effect is what a fault does.
type effect struct {
	where string
	code  string   // of the check that has to fail first
	words []string // in the printed result
	// shown returns an error while the part of the map is good that the fault is about; nil without such a part.
	shown func(*shownMap) error
	heal  func(context.Context) error
}

// find makes a fault, waits until it is named and shown, and heals it.
func (f fault) find(t *testing.T, random *rand.Rand, shown *shownMap) {
	clusters := slices.Clone(world.Lab.Clusters())
	random.Shuffle(len(clusters), func(i, j int) { clusters[i], clusters[j] = clusters[j], clusters[i] })
	nodes := clusters[0].Nodes()
	at := place{random: random, cluster: clusters[0], other: clusters[1], node: nodes[random.IntN(len(nodes))]}
	start := time.Now()
	e, err := f.inject(t.Context(), at)
	if e.heal != nil {
		t.Cleanup(func() {
			if err := e.heal(context.WithoutCancel(t.Context())); err != nil {
				t.Errorf("heal %s: %v", e.where, err)
			}
		})
	}
	if err != nil {
		t.Fatalf("%s: %v", e.where, err)
	}
	limit := f.limit
	if limit == 0 {
		limit = soon
	}
	var part, mapped time.Duration // until a part of the map has another state, and until it has the fault's name
	watched := make(chan error, 1)
	go func() {
		var failed error
		if e.shown != nil {
			failed = scenario.Eventually(t.Context(), limit, func(context.Context) error { return e.shown(shown) })
			part = time.Since(start)
		}
		err := scenario.Eventually(t.Context(), limit, func(context.Context) error { return problem(e.code)(shown) })
		mapped = time.Since(start)
		watched <- errors.Join(failed, err)
	}()
	var named diagnose.Result
	var seconds float64
	err = scenario.Eventually(t.Context(), limit, func(ctx context.Context) error {
		d, err := world.Diagnose(ctx)
		if err != nil {
			return err
		}
		first, ok := d.First()
		if !ok || first.Code != e.code {
			return fmt.Errorf("want %s first:\n%s", e.code, d.Faults())
		}
		printed := scenario.Printed([]diagnose.Result{first})
		for _, word := range e.words {
			if !strings.Contains(printed, word) {
				return fmt.Errorf("%q is not in\n%s", word, printed)
			}
		}
		named, seconds = first, d.Seconds
		return nil
	})
	took := time.Since(start)
	if err != nil {
		t.Errorf("%s: %v", e.where, err)
	}
	if err := <-watched; err != nil {
		t.Errorf("%s: the map: %v", e.where, err)
	}
	on := fmt.Sprintf("its name is on the map after %.1f s", mapped.Seconds())
	if e.shown != nil {
		on = fmt.Sprintf("a part of the map is not good after %.1f s, and %s", part.Seconds(), on)
	}
	t.Logf("%s: %s %s after %.1f s, of which the command took %.1f s; %s\n%s", e.where, named.Code, named.Check,
		took.Seconds(), seconds, on, scenario.Printed([]diagnose.Result{named}))
}

// prepare joins the clusters. West and north export Service nginx, and Nodes probe each other.
func prepare(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { return world.Access(ctx) },
		func() error { return world.Join(ctx) },
		func() error { return world.ChooseGateway(ctx, "north", "node-1") },
		func() error { return world.ChooseGateway(ctx, "east", "node-1") },
		func() error { return world.ChooseGateway(ctx, "west", "node-1") },
		func() error { return world.Nginx(ctx, "north", 2) },
		func() error { return world.Nginx(ctx, "west", 2) },
		func() error { return world.Export(ctx, "north") },
		func() error { return world.Export(ctx, "west") },
		func() error { return world.ClientPod(ctx, "east", "client", "node-2") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually fails the test when f does not return nil within limit.
func eventually(t *testing.T, limit time.Duration, f func(ctx context.Context) error) {
	t.Helper()
	if err := scenario.Eventually(t.Context(), limit, f); err != nil {
		t.Fatal(err)
	}
}
