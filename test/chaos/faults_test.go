package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
	"github.com/tombolo-net/tombolo/test/wallclock"
)

// loss is what a fault may do to traffic between Pods that are there.
type loss int

const (
	// nothing: every request is answered.
	nothing loss = iota
	// delay: packets of connections wait until it is over, and no packet is lost for good.
	delay
	// packets: those under way at the time. Connections wait and go on; new ones may fail until the
	// switch is back.
	packets
)

// fault is one thing that breaks. inject does it on a Node, or in the Node's cluster, and returns
// where and how to end it.
type fault struct {
	name   string
	loses  loss
	inject func(ctx context.Context, at *lab.Node, random *rand.Rand) (where string, heal func(context.Context) error,
		err error)
}

// faults are all there are. docs/testing.md lists them with what each may lose.
func faults() []fault {
	return []fault{
		{"agent killed", nothing, killed("tombolo-agent", "")},
		{"agent paused", nothing, paused("tombolo-agent", "")},
		// The userspace datapath forwards in ovs-vswitchd itself, and its conntrack dies with it.
		{"ovs-vswitchd killed", packets, killed("ovs-vswitchd", "")},
		{"ovs-vswitchd paused", packets, paused("ovs-vswitchd", "")},
		// The userspace datapath forwards nothing while ovs-vswitchd has no connection to its database:
		// its main loop waits for the database's lock. It tries again after 1, 2, 4, then 8 seconds.
		{"ovsdb-server killed", delay, killed("ovsdb-server", "")},
		{"ovsdb-server paused", nothing, paused("ovsdb-server", "")},
		{"API server killed", nothing, apiServerKilled},
		{"API server paused", nothing, apiServerPaused},
		{"leader killed", nothing, inCluster(scenario.Leader, killed("tombolo-controller", "leader"))},
		{"leader paused", nothing, inCluster(scenario.Leader, paused("tombolo-controller", "leader"))},
		{"member killed", nothing, inCluster("", killed("tombolo-controller", "member"))},
		{"member paused", nothing, inCluster("", paused("tombolo-controller", "member"))},
		{"kubelet killed", nothing, kubeletKilled},
		{"kubelet paused", nothing, paused("kubelet", "")},
		{"agent's disk full", nothing, diskFull(agentDisk)},
		{"switch's disk full", nothing, diskFull(switchDisk)},
		{"agent's clock off", nothing, clockOff("tombolo-agent", "")},
		{"leader's clock off", nothing, inCluster(scenario.Leader, clockOff("tombolo-controller", "leader"))},
		{"member's clock off", nothing, inCluster("", clockOff("tombolo-controller", "member"))},
	}
}

type injection = func(ctx context.Context, at *lab.Node, random *rand.Rand) (string, func(context.Context) error, error)

// errNoProcess is that a process does not run, since another fault killed it.
var errNoProcess = errors.New("does not run")

// find returns a Node's processes of that name, and with that first argument unless it is "".
func find(n *lab.Node, name, argument string) ([]lab.Process, error) {
	all, err := n.Processes()
	if err != nil {
		return nil, err
	}
	var found []lab.Process
	for _, p := range all {
		if p.Name() == name && (argument == "" || len(p.Args) > 1 && p.Args[1] == argument) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s %s on %s: %w", name, argument, n, errNoProcess)
	}
	return found, nil
}

// findElected is find, but of the replicas of a controller it returns only the elected one: a fault of the other one
// changes nothing. While the API server is unavailable it returns any of them.
func findElected(ctx context.Context, n *lab.Node, name, role string) ([]lab.Process, error) {
	found, err := find(n, name, role)
	if err != nil || role == "" {
		return found, err
	}
	namespace := scenario.MemberNamespace
	if role == "leader" {
		namespace = scenario.LeaderNamespace
	}
	holder, err := clusterOf(n).Kubectl(ctx, "get", "lease", "antrea-mc-controller", "-n", namespace,
		"--request-timeout=5s", "-o", "jsonpath={.spec.holderIdentity}")
	if err != nil {
		return found, nil
	}
	pod, _, _ := strings.Cut(holder, "_")
	for _, p := range found {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), "HOSTNAME="+pod) {
			return []lab.Process{p}, nil
		}
	}
	return nil, fmt.Errorf("%s %s on %s is not the elected one: %w", name, role, n, errNoProcess)
}

// inCluster tries an injection on the Nodes of a cluster (without a name the chosen Node's) until one has the process:
// a Deployment's Pod is on one of them.
func inCluster(cluster string, inject injection) injection {
	return func(ctx context.Context, at *lab.Node, random *rand.Rand) (string, func(context.Context) error, error) {
		c := clusterOf(at)
		if cluster != "" {
			c = world.Lab.Cluster(cluster)
		}
		var where string
		var heal func(context.Context) error
		var failed error
		err := scenario.Eventually(ctx, settleLimit, func(ctx context.Context) error {
			for _, n := range c.Nodes() {
				if where, heal, failed = inject(ctx, n, random); !errors.Is(failed, errNoProcess) {
					return nil // done, or failed for good
				}
			}
			return failed
		})
		return where, heal, cmp.Or(failed, err)
	}
}

func killed(name, argument string) injection {
	return func(ctx context.Context, at *lab.Node, _ *rand.Rand) (string, func(context.Context) error, error) {
		return "on " + at.String(), nil, signal(ctx, at, name, argument, syscall.SIGKILL, nil)
	}
}

func paused(name, argument string) injection {
	return func(ctx context.Context, at *lab.Node, _ *rand.Rand) (string, func(context.Context) error, error) {
		var pids []int
		err := signal(ctx, at, name, argument, syscall.SIGSTOP, &pids)
		return "on " + at.String(), func(context.Context) error { return proceed(pids) }, err
	}
}

// signal signals a Node's processes. Processes that another fault killed may have to come back first.
func signal(ctx context.Context, at *lab.Node, name, argument string, s syscall.Signal, pids *[]int) error {
	try := func(context.Context) error {
		found, err := findElected(ctx, at, name, argument)
		if err != nil {
			return err
		}
		for _, p := range found {
			if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
			if pids != nil {
				*pids = append(*pids, p.PID)
			}
		}
		return nil
	}
	if argument != "" { // inCluster looks on the other Nodes
		return try(ctx)
	}
	return scenario.Eventually(ctx, settleLimit, try)
}

// proceed ends the pause of processes. It ignores processes that were killed meanwhile.
func proceed(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

func apiServerKilled(ctx context.Context, at *lab.Node, _ *rand.Rand) (string, func(context.Context) error, error) {
	c := clusterOf(at)
	return "in " + c.Name(), func(ctx context.Context) error {
		if _, err := c.APIServer(); err == nil {
			return nil // it runs
		}
		return c.StartAPIServer(ctx)
	}, c.StopAPIServer(ctx)
}

func apiServerPaused(_ context.Context, at *lab.Node, _ *rand.Rand) (string, func(context.Context) error, error) {
	c := clusterOf(at)
	p, err := c.APIServer()
	if err != nil {
		return "in " + c.Name() + ", where it is dead already", nil, nil
	}
	return "in " + c.Name(), func(context.Context) error { return proceed([]int{p.PID}) },
		syscall.Kill(p.PID, syscall.SIGSTOP)
}

func kubeletKilled(ctx context.Context, at *lab.Node, _ *rand.Rand) (string, func(context.Context) error, error) {
	return "on " + at.String(), func(context.Context) error {
		if _, err := find(at, "kubelet", ""); err == nil {
			return nil
		}
		return at.StartKubelet()
	}, signal(ctx, at, "kubelet", "", syscall.SIGKILL, nil)
}

// Directories that have a small file system of their own on each Node.
const (
	agentDisk  = "/var/lib/tombolo"
	switchDisk = "/var/lib/openvswitch"
)

func diskFull(dir string) injection {
	return func(ctx context.Context, at *lab.Node, _ *rand.Rand) (string, func(context.Context) error, error) {
		fill := path.Join(dir, "fill")
		_, err := at.Exec(ctx, "sh", "-c", "cat /dev/zero >"+fill+" 2>/dev/null; df --output=avail "+dir+" | grep -qx ' *0'")
		return "on " + at.String(), func(ctx context.Context) error {
			_, err := at.Exec(ctx, "rm", "-f", fill)
			return err
		}, err
	}
}

// clockOff puts the wall clock of a process off by ten minutes, ahead or behind.
func clockOff(name, argument string) injection {
	return func(ctx context.Context, at *lab.Node, random *rand.Rand) (string, func(context.Context) error, error) {
		found, err := findElected(ctx, at, name, argument)
		if err != nil {
			return "on " + at.String(), nil, err
		}
		off := 10 * time.Minute
		if random.IntN(2) == 0 {
			off = -off
		}
		where := fmt.Sprintf("by %s on %s", strings.TrimSuffix(off.String(), "0s"), at)
		c, err := wallclock.Find(found[0].PID)
		if err != nil {
			return where, nil, err
		}
		before, err := connections(ctx, at)
		if err != nil {
			before = "" // another fault has ended one of the two
		}
		return where, func(ctx context.Context) error {
			return errors.Join(seenOff(ctx, at, found[0], off), keptConnection(ctx, at, before), c.PutRight())
		}, c.PutOff(off)
	}
}

// connections are the agent's connections to its switch so far, with both ends.
func connections(ctx context.Context, at *lab.Node) (string, error) {
	s, err := status(ctx, at)
	if err != nil {
		return "", err
	}
	ends, err := find(at, "ovs-vswitchd", "")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("agent since %s, switch %d: %d connections", s.Started, ends[0].PID, s.OpenFlow.Connections), nil
}

// keptConnection is an error when the agent has connected to the same switch again.
func keptConnection(ctx context.Context, at *lab.Node, before string) error {
	now, err := connections(ctx, at)
	if before == "" || err != nil {
		return nil //nolint:nilerr // another fault has ended one of the two
	}
	ends, _, _ := strings.Cut(before, ": ")
	if strings.HasPrefix(now, ends+": ") && now != before {
		return fmt.Errorf("the agent of %s gave up its connection when a clock was set: %s; now %s", at, before, now)
	}
	return nil
}

// seenOff waits until a member's announcement to the leader carries the wrong time: the fault has
// reached what it is about. Other processes write no time that could be read back, and one that
// was killed meanwhile has the right time again.
func seenOff(ctx context.Context, at *lab.Node, p lab.Process, off time.Duration) error {
	if len(p.Args) < 2 || p.Args[1] != "member" {
		return nil
	}
	return scenario.Eventually(ctx, settleLimit, func(ctx context.Context) error {
		if syscall.Kill(p.PID, 0) != nil {
			return nil
		}
		out, err := world.Kubectl(ctx, scenario.Leader, "get", "memberclusterannounce", "-n", scenario.LeaderNamespace,
			"--request-timeout=5s",
			"-o", `jsonpath={range .items[?(@.clusterID=="`+scenario.ClusterID(clusterOf(at).Name())+
				`")]}{.metadata.annotations.touch-ts}{end}`)
		if err != nil {
			return err
		}
		touched, err := time.Parse(time.RFC3339, strings.TrimSpace(out))
		if err != nil {
			return err
		}
		if have := time.Until(touched); (have - off).Abs() > 2*time.Minute {
			return fmt.Errorf("the announcement of %s is from %s, want the clock's error of %s in it", at, touched, off)
		}
		return nil
	})
}
