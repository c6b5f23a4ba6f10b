package node

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tombolo-net/tombolo/pkg/agent"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/child"
)

// The cluster of BenchmarkTableAgent.
var (
	scaleServices = flag.Int("scale.services", 10_000, "Services of BenchmarkTableAgent")
	scaleNodes    = flag.Int("scale.nodes", 1000, "Nodes of BenchmarkTableAgent")
)

const (
	scaleEndpoints = 10  // of each Service
	scalePods      = 100 // on this Node
	scaleChanges   = 300 // of one endpoint, one at a time
)

// BenchmarkTableAgent prints what changes cost an agent, as a process of its own, in a large
// cluster: a real API server, a real switch, the real plugin.
func BenchmarkTableAgent(b *testing.B) {
	fmt.Printf("\nagent: %d Services x %d endpoints, %d Nodes, %d Pods; real API server and switch\n\n", *scaleServices,
		scaleEndpoints, *scaleNodes, scalePods)
	fmt.Printf("%-58s %14s  %-16s %-8s\n", "what", "figure", "must be", "")
	s := newScale(b, false)
	s.starts(250)
	s.heartbeats("status every 5 min (kubelet's default)", 20*time.Second, 5*time.Minute)
	s.heartbeats("status every 10 s", 20*time.Second, 10*time.Second)
	s.changes()
	s.pods()
	fmt.Println()
}

// BenchmarkTableAgentDual prints what a start of an agent costs in a large dual-stack cluster whose Services all have a
// NodePort, which the agent serves.
func BenchmarkTableAgentDual(b *testing.B) {
	fmt.Printf("\nagent: %d dual-stack Services with a NodePort x %d endpoints, %d Nodes, %d Pods\n\n", *scaleServices,
		scaleEndpoints, *scaleNodes, scalePods)
	fmt.Printf("%-58s %14s  %-16s %-8s\n", "what", "figure", "must be", "")
	newScale(b, true).starts(300)
	fmt.Println()
}

// starts fills the cluster, and starts the agent twice. The second one may use so many MB.
func (s *scale) starts(megabytes float64) {
	s.fill()
	first := s.startAgent()
	row("start against an empty switch, until ready", fmt.Sprintf("%.1f s", first.Seconds()), "", true, "")
	for i := range scalePods {
		s.rig.add(fmt.Sprintf("pod-%d", i))
	}
	s.stopAgent()
	again := s.startAgent()
	status := s.status()
	row("start against a switch that holds everything, until ready", fmt.Sprintf("%.2f s", again.Seconds()), "<= 3 s",
		again <= 3*time.Second, "")
	mods := status.OpenFlow.FlowMods + status.OpenFlow.GroupMods
	row("the same, flow-mods and group-mods", fmt.Sprint(mods), "0", mods == 0, "")
	s.trimmed()
	rss := s.memory("VmRSS")
	row("the same, RSS", fmt.Sprintf("%.0f MB", rss), fmt.Sprintf("<= %.0f MB", megabytes), rss <= megabytes,
		fmt.Sprintf("at most %.0f MB; %d flows, %d groups", s.memory("VmHWM"), status.OpenFlow.Flows, status.OpenFlow.Groups))
}

func row(what, figure, limit string, met bool, note string) {
	verdict := ""
	if limit != "" {
		if verdict = "met"; !met {
			verdict = "NOT MET"
		}
	}
	fmt.Printf("%-58s %14s  %-16s %-8s %s\n", what, figure, limit, verdict, note)
}

// scale is the cluster, the Node and the agent's process.
type scale struct {
	b       *testing.B
	dual    bool // both families, and Services with a NodePort
	rig     *rig
	client  kubernetes.Interface
	program string
	process *exec.Cmd
	slices  []*discoveryv1.EndpointSlice
	random  *rand.Rand
}

func newScale(b *testing.B, dual bool) *scale {
	options, podCIDRs := apiserver.Options{ServiceCIDR: "10.97.0.0/16"}, []string{"10.11.1.0/24"}
	conf := "ovsDatapathType: netdev\nfeatureGates: {Multicluster: true}\nmulticluster: {enableGateway: true}\n"
	if dual {
		options.ServiceCIDR += ",fd97::/112"
		options.NodePorts = scaleNodePorts
		podCIDRs = append(podCIDRs, "fd11:1::/64")
		conf += "antreaProxy: {proxyAll: true}\n"
	}
	c := newClusterOf(b, options, podCIDRs...)
	config := rest.CopyConfig(c.server.Config)
	config.QPS, config.Burst = -1, 0
	s := &scale{b: b, dual: dual, rig: newRig(b, c).withOVS(), random: rand.New(rand.NewPCG(1, 2)),
		slices: make([]*discoveryv1.EndpointSlice, *scaleServices)}
	var err error
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		b.Fatal(err)
	}
	s.program = filepath.Join(s.rig.dir, "tombolo-agent")
	build := exec.Command("go", "build", "-trimpath", "-o", s.program, "github.com/tombolo-net/tombolo/cmd/tombolo-agent")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the agent: %v\n%s", err, out)
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["one"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData,
		CertificateAuthority: config.CAFile}
	kubeconfig.AuthInfos["one"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts["one"] = &clientcmdapi.Context{Cluster: "one", AuthInfo: "one"}
	kubeconfig.CurrentContext = "one"
	if err := clientcmd.WriteToFile(*kubeconfig, s.file("kubeconfig")); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(s.file("agent.conf"), []byte(conf), 0o600); err != nil {
		b.Fatal(err)
	}
	return s
}

func (s *scale) file(name string) string { return filepath.Join(s.rig.dir, name) }

// each does something n times, many at once.
func (s *scale) each(n int, f func(ctx context.Context, i int) error) {
	s.b.Helper()
	g, ctx := errgroup.WithContext(s.b.Context())
	g.SetLimit(32)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	if err := g.Wait(); err != nil {
		s.b.Fatal(err)
	}
}

// endpoint returns the address of a number: one of a Node's Pods. The second generation has as many others.
func endpoint(n, generation int) string {
	node := n % *scaleNodes
	return fmt.Sprintf("10.%d.%d.%d", 32+node/250, node%250, 2 + n / *scaleNodes + generation*120)
}

// fill makes the cluster's objects.
func (s *scale) fill() {
	begin := time.Now()
	s.each(*scaleNodes, func(ctx context.Context, i int) error {
		cidr := fmt.Sprintf("10.%d.%d.0/24", 32+i/250, i%250)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)},
			Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}}}
		if s.dual {
			n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, fmt.Sprintf("fd32:%x::/64", i+1))
		}
		n, err := s.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: fmt.Sprintf("172.20.%d.%d", i/250, 1+i%250)}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = s.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
	s.fillServices()
	row("objects written in", fmt.Sprintf("%.0f s", time.Since(begin).Seconds()), "", true, "")
}

// startAgent returns how long the agent took to be ready.
func (s *scale) startAgent() time.Duration {
	s.b.Helper()
	log, err := os.OpenFile(s.file("agent.log"), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.b.Fatal(err)
	}
	defer log.Close()
	s.process = exec.Command(s.program, "--config", s.file("agent.conf"), "--kubeconfig", s.file("kubeconfig"),
		"--ovs-run-dir", s.rig.runDir, "--run-dir", s.file("run"), "--state-dir", s.file("state"))
	s.process.Env = append(os.Environ(), "NODE_NAME="+nodeName, "POD_NAMESPACE="+namespace)
	s.process.Stdout, s.process.Stderr = log, log
	begin := time.Now()
	if err := child.Start(s.process); err != nil {
		s.b.Fatal(err)
	}
	s.b.Cleanup(s.stopAgent)
	for end := begin.Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if status, err := s.rig.status(); err == nil && status.Ready {
			return time.Since(begin)
		}
	}
	text, _ := os.ReadFile(s.file("agent.log"))
	s.b.Fatalf("the agent is not ready after two minutes:\n%s", text[max(0, len(text)-4000):])
	return 0
}

func (s *scale) stopAgent() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGTERM)
	_ = s.process.Wait()
	s.process = nil
}

func (s *scale) status() api.Status {
	status, err := s.rig.status()
	if err != nil {
		s.b.Fatal(err)
	}
	return status
}

// memory is a line of the agent's /proc/PID/status, in MB.
func (s *scale) memory(name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	if err != nil {
		s.b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), name+":")
	var kilobytes float64
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		s.b.Fatal(err)
	}
	return kilobytes / 1000
}

// cpu is how much time of a processor the agent has taken.
func (s *scale) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		s.b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after) // from the third field on; proc(5)
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			s.b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// settle waits until the agent has been idle for a second.
func (s *scale) settle() {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		before := s.cpu()
		time.Sleep(time.Second)
		if s.cpu()-before <= 20*time.Millisecond {
			return
		}
	}
	s.b.Log("the agent does not come to rest")
}

// trimmed waits until the agent has returned the memory of its start to the system, and is idle. It does so when the
// switch has all flows, and the host all translations.
func (s *scale) trimmed() {
	s.b.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(s.file("agent.log"))
		if err != nil {
			s.b.Fatal(err)
		}
		if strings.Contains(string(text), agent.MemoryReturned) {
			break
		}
		if time.Now().After(end) {
			s.b.Fatalf("the agent has not logged %q after two minutes", agent.MemoryReturned)
		}
	}
	s.settle()
}

// metric is the sum of a metric's series, as the agent exposes it now.
func (s *scale) metric(name string) float64 {
	s.b.Helper()
	client := &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", s.file("run/debug.sock"))
		}}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://agent/metrics")
	if err != nil {
		s.b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.b.Fatal(err)
	}
	var sum float64
	for _, m := range regexp.MustCompile(`(?m)^`+name+
		`(?:\{[^}]*\})? ([0-9.e+-]+)$`).FindAllStringSubmatch(string(text), -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			s.b.Fatal(err)
		}
		sum += v
	}
	return sum
}

// heartbeats writes the status of every Node once in a while. A kubelet renews its Lease every ten seconds, which the
// agent does not watch, and writes the status when something in it changes and otherwise every five
// minutes (nodeStatusReportFrequency).
func (s *scale) heartbeats(what string, d, every time.Duration) {
	idle, begin := s.cpu(), time.Now()
	time.Sleep(d / 2)
	idle = s.cpu() - idle
	idleShare := 100 * idle.Seconds() / time.Since(begin).Seconds()

	before, begin := s.cpu(), time.Now()
	written := 0
	pause := time.NewTicker(every / time.Duration(*scaleNodes))
	defer pause.Stop()
	for time.Since(begin) < d {
		<-pause.C
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`,
			time.Now().UTC().Format(time.RFC3339))
		name := fmt.Sprintf("other-%d", written%*scaleNodes)
		if _, err := s.client.CoreV1().Nodes().PatchStatus(s.b.Context(), name, []byte(patch)); err != nil {
			s.b.Fatal(err)
		}
		written++
	}
	share := 100 * (s.cpu() - before).Seconds() / time.Since(begin).Seconds()
	rate := float64(written) / time.Since(begin).Seconds()
	row("heartbeats, "+what+", of a core", fmt.Sprintf("%.1f %%", share), "<= 1 %", share <= 1,
		fmt.Sprintf("%.0f a second; without any %.1f %%", rate, idleShare))
}

// quantile of durations, in milliseconds.
func quantile(d []time.Duration, q float64) float64 {
	d = slices.Sorted(slices.Values(d))
	return float64(d[min(len(d)-1, int(q*float64(len(d))))].Microseconds()) / 1000
}

// change gives a Service's endpoint another address, and returns that.
func (s *scale) change(i, j, generation int) (string, error) {
	slice := s.slices[i].DeepCopy()
	address := endpoint(i*scaleEndpoints+j, generation)
	slice.Endpoints[j].Addresses = []string{address}
	slice, err := s.client.DiscoveryV1().EndpointSlices("default").Update(s.b.Context(), slice, metav1.UpdateOptions{})
	if err != nil {
		return "", err
	}
	s.slices[i] = slice
	return address, nil
}

// changes moves one endpoint at a time and waits until the switch has it.
func (s *scale) changes() {
	b := s.b
	conn, err := ofconn.Connect(b.Context(), ofconn.UnixDialer(filepath.Join(s.rig.runDir, "br-int.mgmt")),
		&ofconn.Counters{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	groups := map[string]uint32{}
	for g := range s.groups(conn, 0) {
		for _, address := range addresses(g) {
			groups[address] = g.ID
		}
	}
	watched, err := s.client.DiscoveryV1().EndpointSlices("default").Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer watched.Stop()
	var total, seen []time.Duration
	evaluated, allocated := s.metric("tombolo_derive_evaluated_total"), s.metric("go_memstats_alloc_bytes_total")
	for n := range scaleChanges {
		i, j := s.random.IntN(*scaleServices), s.random.IntN(scaleEndpoints)
		group, ok := groups[endpoint(i*scaleEndpoints+j, 0)]
		if !ok {
			continue // moved before
		}
		begin := time.Now()
		moved, err := s.change(i, j, 1)
		if err != nil {
			b.Fatal(err)
		}
		for e := range watched.ResultChan() { // as the agent's own watch
			if slice, ok := e.Object.(*discoveryv1.EndpointSlice); ok && slice.Name == s.slices[i].Name &&
				slice.ResourceVersion == s.slices[i].ResourceVersion {
				break
			}
		}
		event := time.Now()
		for !s.has(conn, group, moved) {
			if time.Since(begin) > 20*time.Second {
				b.Fatalf("change %d: group %d has no bucket for %s after 20 s", n, group, moved)
			}
		}
		delete(groups, endpoint(i*scaleEndpoints+j, 0))
		total, seen = append(total, time.Since(begin)), append(seen, max(0, time.Since(event)))
		time.Sleep(20 * time.Millisecond)
	}
	if len(total) == 0 {
		b.Fatal("no group of the switch has an endpoint's address")
	}
	count := float64(len(total))
	evaluated, allocated = (s.metric("tombolo_derive_evaluated_total")-evaluated)/count,
		(s.metric("go_memstats_alloc_bytes_total")-allocated)/count
	p99 := quantile(seen, 0.99)
	row("one endpoint changes, a watcher's event to switch, p99", fmt.Sprintf("%.1f ms", p99), "<= 5 ms", p99 <= 5,
		fmt.Sprintf("p50 %.1f ms; from before the write p50 %.1f ms, p99 %.1f ms", quantile(seen, 0.5), quantile(total, 0.5),
			quantile(total, 0.99)))
	row("what it adds to the way from another cluster, p99", fmt.Sprintf("%.1f ms", p99), "<= 10 ms", p99 <= 10,
		"Endpoints written there, until this Node's switch has confirmed")
	row("the same, keys evaluated", fmt.Sprintf("%.1f", evaluated), "<= 50", evaluated > 0 && evaluated <= 50, "")
	row("the same, allocated", fmt.Sprintf("%.0f kB", allocated/1000), "<= 100 kB", allocated <= 100_000,
		"with decoding of the event, and what runs beside")
}

// groups reads the switch's groups, or one.
func (s *scale) groups(conn *ofconn.Conn, id uint32) func(func(ofp.GroupDesc) bool) {
	return func(yield func(ofp.GroupDesc) bool) {
		parts, err := conn.Request(s.b.Context(), ofp.GroupDescRequest{ID: id})
		if err != nil {
			s.b.Fatal(err)
		}
		for _, p := range parts {
			reply, ok := p.(ofp.GroupDescReply)
			if !ok {
				s.b.Fatalf("answer to a request for groups: %T", p)
			}
			for _, g := range reply.Groups {
				if !yield(g) {
					return
				}
			}
		}
	}
}

func (s *scale) has(conn *ofconn.Conn, id uint32, want string) bool {
	for g := range s.groups(conn, id) {
		if slices.Contains(addresses(g), want) {
			return true
		}
	}
	return false
}

var natTo = regexp.MustCompile(`10\.\d+\.\d+\.\d+`)

// addresses are the endpoints of a group.
func addresses(g ofp.GroupDesc) []string {
	return natTo.FindAllString(flow.FromGroupDesc(g).String(), -1)
}

// pods attaches Pods while 50 endpoints change in a second.
func (s *scale) pods() {
	ctx, cancel := context.WithCancel(s.b.Context())
	var g errgroup.Group
	changed := 0
	g.Go(func() error {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if _, err := s.change(i%*scaleServices, 3, 1 - i / *scaleServices % 2); err != nil {
				return err
			}
			changed++
		}
	})
	begin := time.Now()
	confirmed := func(within string) float64 { return s.metric(`tombolo_flowsync_sync_seconds_` + within) }
	buckets := []string{"0.001", "0.002", "0.004", "0.008", "0.016", "0.032", "0.064", "0.128", "0.256", "0.512", "1.024",
		"2.048", "4.096", "8.192", "16.384", "+Inf"}
	var before []float64
	for _, le := range buckets {
		before = append(before, confirmed(`bucket\{le="`+regexp.QuoteMeta(le)+`"\}`))
	}
	var added, deleted []time.Duration
	for i := range 50 {
		start := time.Now()
		p := s.rig.add(fmt.Sprintf("late-%d", i))
		added = append(added, time.Since(start))
		start = time.Now()
		s.rig.del(p)
		deleted = append(deleted, time.Since(start))
	}
	rate := float64(changed) / time.Since(begin).Seconds()
	all := confirmed(`bucket\{le="\+Inf"\}`) - before[len(before)-1]
	at := slices.IndexFunc(buckets, func(le string) bool {
		return confirmed(`bucket\{le="`+regexp.QuoteMeta(le)+`"\}`)-before[slices.Index(buckets, le)] >= 0.99*all
	})
	defer row("flows of Pods and endpoints, declared to confirmed, p99", "<= "+buckets[at]+" s", "<= 10 ms",
		all > 0 && at < 4,
		fmt.Sprintf("of %.0f; the histogram's bucket", all))
	cancel()
	if err := g.Wait(); err != nil {
		s.b.Fatal(err)
	}
	row("CNI ADD while endpoints change, p50, p99",
		fmt.Sprintf("%.0f, %.0f ms", quantile(added, 0.5), quantile(added, 0.99)), "", true,
		fmt.Sprintf("%.0f changes a second; DEL %.0f, %.0f ms", rate, quantile(deleted, 0.5), quantile(deleted, 0.99)))
}
