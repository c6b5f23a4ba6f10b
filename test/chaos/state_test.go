package chaos

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// state is what has to be the same after each step: lines by where they are from.
type state struct {
	lines  map[string][]string
	counts map[string]int // of what may grow by a little: file descriptors, goroutines
}

// slack is by how much a count may be larger than at the beginning.
const slack = 15

// settled waits until everything works, and is as it was before when that is given.
func settled(t *testing.T, before *state) state {
	t.Helper()
	var now state
	err := scenario.Eventually(t.Context(), settleLimit, func(ctx context.Context) (err error) {
		now, err = look(ctx)
		if err == nil && before != nil {
			err = before.compare(now)
		}
		return err
	})
	if err != nil {
		diagnose(t)
		t.Fatal(err)
	}
	return now
}

// steady waits until everything works and two looks, one after the other, find the same. Agents and controllers may
// still be at work when everything works for the first time.
func steady(t *testing.T) state {
	t.Helper()
	last := settled(t, nil)
	err := scenario.Eventually(t.Context(), settleLimit, func(ctx context.Context) error {
		now, err := look(ctx)
		if err != nil {
			return err
		}
		err = last.compare(now)
		last = now
		return err
	})
	if err != nil {
		diagnose(t)
		t.Fatal(err)
	}
	return last
}

// look reads everything. It is an error when something does not work.
func look(ctx context.Context) (state, error) {
	s := state{lines: map[string][]string{}, counts: map[string]int{}}
	parts := make(chan func(), 100)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, c := range world.Lab.Clusters() {
		g.Go(func() error {
			lines, err := objects(gctx, c)
			parts <- func() { s.lines["objects of "+c.Name()] = lines }
			return err
		})
		for _, n := range c.Nodes() {
			g.Go(func() error {
				lines, counts, err := node(gctx, n)
				parts <- func() {
					maps.Copy(s.lines, lines)
					maps.Copy(s.counts, counts)
				}
				return err
			})
		}
	}
	err := g.Wait()
	close(parts)
	for add := range parts {
		add()
	}
	return s, err
}

// objects returns the objects of the ClusterSet in one cluster, and its Services and Endpoints.
func objects(ctx context.Context, c *lab.Cluster) ([]string, error) {
	get := func(args ...string) (string, error) {
		return c.Kubectl(ctx, append([]string{"get", "--request-timeout=5s"}, args...)...)
	}
	ready, err := get("clusterset", scenario.ClusterSet, "-n", scenario.MemberNamespace, "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	if err != nil {
		return nil, err
	}
	if ready != "True" {
		return nil, fmt.Errorf("ClusterSet of %s: Ready is %q", c.Name(), ready)
	}
	const fields = "-o=jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.spec.clusterIP} " +
		`{.subsets[*].addresses[*].ip}{"\n"}{end}`
	kinds := "services,endpoints,serviceimports,serviceexports,gateways,clusterinfoimports,pods"
	if c.Name() == scenario.Leader {
		kinds += ",resourceexports,resourceimports,memberclusterannounces"
		out, err := get("clusterset", scenario.ClusterSet, "-n", scenario.LeaderNamespace, "-o",
			`jsonpath={.status.readyClusters}`)
		if err != nil {
			return nil, err
		}
		if out != strconv.Itoa(len(world.Members())) {
			return nil, fmt.Errorf("the leader calls %s members ready, want %d", out, len(world.Members()))
		}
	}
	out, err := get(kinds, "-A", fields)
	return sorted(out), err
}

func sorted(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	slices.Sort(lines)
	return lines
}

// node is what one Node has.
func node(ctx context.Context, n *lab.Node) (map[string][]string, map[string]int, error) {
	lines, counts := map[string][]string{}, map[string]int{}
	at := func(what string) string { return what + " of " + n.String() }
	exec := func(what string, edit func(string) string, args ...string) error {
		out, err := n.Exec(ctx, args...)
		if edit != nil {
			out = edit(out)
		}
		lines[at(what)] = sorted(out)
		return err
	}
	ofctl := []string{"ovs-ofctl", "-O", "OpenFlow15", "--names", "--no-stats", "--timeout=5"}
	err := errors.Join(
		exec("flows", withoutCookie, append(ofctl, "dump-flows", "br-int")...),
		exec("groups", nil, append(ofctl, "dump-groups", "br-int")...),
		exec("ports", nil, "ovs-vsctl", "--timeout=5", "list-ports", "br-int"),
		exec("interfaces", nil, "ip", "-brief", "link", "show"),
		exec("routes", nil, "ip", "route", "show"),
		exec("network namespaces", nil, "ls", "/var/run/netns"),
		exec("attachments", addresses, "cat", path.Join(agentDisk, "ipam.json")),
	)
	if err != nil {
		return nil, nil, err
	}
	lines[at("interfaces")] = firstWords(lines[at("interfaces")])

	s, err := status(ctx, n)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !s.Ready, !s.OpenFlow.Connected:
		return nil, nil, fmt.Errorf("agent of %s is not ready: %v", n, s.Waiting)
	case len(s.Problems) > 0:
		return nil, nil, fmt.Errorf("agent of %s reports %v", n, s.Problems)
	case s.OpenFlow.LastError != "", len(s.OpenFlow.Refused) > 0:
		return nil, nil, fmt.Errorf("agent of %s: %s %v", n, s.OpenFlow.LastError, s.OpenFlow.Refused)
	}
	for what, want := range map[string]int{"flows": s.OpenFlow.Flows, "groups": s.OpenFlow.Groups} {
		have := len(slices.DeleteFunc(slices.Clone(lines[at(what)]), func(l string) bool { return !isEntry.MatchString(l) }))
		if have != want {
			return nil, nil, fmt.Errorf("%s: the switch has %d, the agent wants %d", at(what), have, want)
		}
	}

	processes, err := n.Processes()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range processes {
		name := p.Name()
		if slices.Contains(probes, name) || name == shim &&
			slices.Contains([]string{"start", "delete"}, p.Args[len(p.Args)-1]) {
			continue
		}
		lines[at("processes")] = append(lines[at("processes")], name)
		if !slices.Contains([]string{"tombolo-agent", "tombolo-controller", "ovs-vswitchd", "ovsdb-server"}, name) {
			continue
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
		if err != nil {
			return nil, nil, err
		}
		key := strings.Join(append([]string{name}, firstOf(p.Args[1:])...), " ")
		counts[at("open files of "+key)] = len(files)
	}
	slices.Sort(lines[at("processes")])
	metrics, err := n.Exec(ctx, "curl", "-sS", "--max-time", "3", "--unix-socket", api.DefaultSocket,
		"http://agent/metrics")
	if err != nil {
		return nil, nil, err
	}
	m := goroutines.FindStringSubmatch(metrics)
	if m == nil {
		return nil, nil, fmt.Errorf("agent of %s: its metrics lack go_goroutines", n)
	}
	counts[at("goroutines of the agent")], err = strconv.Atoi(m[1])
	return lines, counts, err
}

var (
	goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)
	isEntry    = regexp.MustCompile(`actions=|group_id=`)
	cookie     = regexp.MustCompile(`cookie=0x[0-9a-f]+,? ?`)
)

// probes are programs that kubelet starts for a moment now and then, with what starts them.
var probes = []string{"tombolo", "ovs-vsctl", "ovs-appctl", "runc", "sh", "exe", "runc:[1:CHILD]", "runc:[2:INIT]"}

// shim is the process that each Pod has; containerd executes it with "start" and "delete", too.
const shim = "containerd-shim-runc-v2"

// withoutCookie takes out what differs between runs of the agent.
func withoutCookie(dump string) string { return cookie.ReplaceAllString(dump, "") }

func firstOf(args []string) []string {
	if len(args) == 0 || strings.Contains(args[0], ":") || strings.HasPrefix(args[0], "-") ||
		strings.HasPrefix(args[0], "/") {
		return nil
	}
	return args[:1]
}

func firstWords(lines []string) []string {
	for i, line := range lines {
		word, _, _ := strings.Cut(line, " ")
		lines[i], _, _ = strings.Cut(word, "@")
	}
	slices.Sort(lines)
	return lines
}

// addresses lists the addresses in the IPAM record with their owners.
func addresses(text string) string {
	var record struct {
		Records []struct {
			IPs   []string `json:"ips"`
			Owner string   `json:"owner"`
		} `json:"records"`
	}
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return "not a record: " + err.Error()
	}
	var lines []string
	for _, r := range record.Records {
		lines = append(lines, fmt.Sprint(r.Owner, " ", r.IPs))
	}
	return strings.Join(lines, "\n")
}

func status(ctx context.Context, n *lab.Node) (api.Status, error) {
	var s api.Status
	out, err := n.Exec(ctx, "curl", "-sS", "--max-time", "3", "--unix-socket", api.DefaultSocket,
		"http://agent"+api.PathStatus)
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, out)
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("status of %s: %w: %s", n, err, out)
	}
	return s, nil
}

// compare names what is different.
func (s state) compare(now state) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.lines)) {
		missing, more := difference(s.lines[key], now.lines[key])
		if len(missing)+len(more) > 0 {
			errs = append(errs, fmt.Errorf("%s: missing %q, new %q", key, missing, more))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.counts)) {
		if now.counts[key] > s.counts[key]+slack {
			errs = append(errs, fmt.Errorf("%s: %d, before %d", key, now.counts[key], s.counts[key]))
		}
	}
	return errors.Join(errs...)
}

// difference compares sorted lines; the same line may be there more than once.
func difference(before, now []string) (missing, more []string) {
	for len(before) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(before) > 0 && cmp.Less(before[0], now[0]):
			missing, before = append(missing, before[0]), before[1:]
		case len(before) == 0 || cmp.Less(now[0], before[0]):
			more, now = append(more, now[0]), now[1:]
		default:
			before, now = before[1:], now[1:]
		}
	}
	return missing, more
}

// diagnose prints what one looks at first.
func diagnose(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	for _, c := range world.Lab.Clusters() {
		out, err := c.Kubectl(ctx, "get", "pods", "-A", "-o", "wide", "--no-headers", "--request-timeout=5s")
		t.Logf("%s: Pods (%v)\n%s", c.Name(), err, out)
		out, err = c.Kubectl(ctx, "logs", "-n", "kube-system", "deployment/antrea-mc-controller", "--tail=8",
			"--request-timeout=5s")
		t.Logf("%s: member (%v)\n%s", c.Name(), err, out)
		for _, n := range c.Nodes() {
			s, err := status(ctx, n)
			t.Logf("agent of %s (%v): %+v", n, err, s)
			for _, container := range []string{"tombolo-agent-*/tombolo-agent", "tombolo-ovs-*/ovs-vswitchd",
				"tombolo-ovs-*/ovsdb-server"} {
				out, err := n.Exec(ctx, "sh", "-c", "tail -qn 12 /var/log/pods/kube-system_"+container+"/*.log")
				t.Logf("log of %s (%v)", container, err)
				for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
					t.Log(lines.Text()[:min(len(lines.Text()), 300)])
				}
			}
		}
	}
}
