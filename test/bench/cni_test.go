package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tombolo-net/tombolo/pkg/agent"
	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/child"
)

const (
	cniVariable  = "TOMBOLO_BENCH_CNI" // set in the Node's namespaces: the plugins' directory
	cniPods      = 100                 // that are there, and that come
	cniEndpoints = 10                  // of each Service
)

// The cluster of BenchmarkTableCNI.
var (
	cniServices = flag.Int("cni.services", 10_000, "Services of BenchmarkTableCNI")
	cniNodes    = flag.Int("cni.nodes", 1000, "Nodes of BenchmarkTableCNI")
)

// BenchmarkTableCNI prints how long the CNI plugin takes in a large cluster, and the bridge plugin with host-local. The
// Node is a network and a mount namespace with a switch (userspace datapath), an API server and an agent in one
// process. The bridge plugin has a network namespace of its own: ovs-vswitchd would read the routes of all its
// interfaces again at each change. Both have 100 Pods, and more are added and removed.
func BenchmarkTableCNI(b *testing.B) {
	bin := onNode(b, buildPlugins, "-cni.services="+strconv.Itoa(*cniServices), "-cni.nodes="+strconv.Itoa(*cniNodes))
	if bin == "" {
		return
	}
	t, n := table{b}, newBenchNode(b, bin, config.Default())
	ours, theirs := n.tombolo(), n.bridge()
	for range cniPods {
		ours.must("ADD", n.pod())
		theirs.must("ADD", n.pod())
	}
	var took [4][]time.Duration // ADD of ours, of theirs, DEL of ours, of theirs
	for i := range cniPods + 5 {
		a, o := n.pod(), n.pod()
		each := []time.Duration{ours.must("ADD", a), theirs.must("ADD", o), ours.must("DEL", a), theirs.must("DEL", o)}
		a.remove()
		o.remove()
		for k := range each {
			if i >= 5 { // the first ones make the bridge and fill caches
				took[k] = append(took[k], each[k])
			}
		}
	}
	limit := n.switchAlone()
	fmt.Printf("\nCNI, %d Services x %d endpoints, %d Nodes, %d Pods; %d more one by one, then at once\n\n", *cniServices,
		cniEndpoints, *cniNodes, cniPods, cniPods)
	for k, command := range []string{"ADD", "DEL"} {
		for _, p := range []int{50, 99} {
			mine, bridge := percentile(took[2*k], p), percentile(took[2*k+1], p)
			note := fmt.Sprintf("ours %.1f ms, bridge with host-local %.1f ms", mine, bridge)
			if command == "ADD" {
				note += fmt.Sprintf("; the switch alone, transaction to port number, %.1f ms", percentile(limit, p))
			}
			t.row(fmt.Sprintf("CNI %s one by one, p%d", command, p), fmt.Sprintf("%.2f", mine/bridge), "<= 0.70",
				mine <= 0.7*bridge, note)
		}
	}
	for _, command := range []string{"ADD", "DEL"} {
		mine, all := ours.atOnce(command)
		bridge, allBridge := theirs.atOnce(command)
		t.row(fmt.Sprintf("CNI %s, %d at once, wall", command, cniPods),
			fmt.Sprintf("%.2f", all.Seconds()/allBridge.Seconds()), "", true,
			fmt.Sprintf("ours %.0f ms (p50 %.0f, p99 %.0f), bridge with host-local %.0f ms (p50 %.0f, p99 %.0f)",
				all.Seconds()*1e3, percentile(mine, 50), percentile(mine, 99),
				allBridge.Seconds()*1e3, percentile(bridge, 50), percentile(bridge, 99)))
	}
	fmt.Println()
}

// onNode runs a benchmark again as a process in a Node's namespaces. It returns the directory of the plugins there,
// and "" in the process outside.
func onNode(b *testing.B, build func(b *testing.B, dir string), args ...string) string {
	b.Helper()
	if bin := os.Getenv(cniVariable); bin != "" {
		return bin
	}
	bin := b.TempDir()
	build(b, bin)
	c := exec.Command(os.Args[0], append([]string{"-test.run=^$", "-test.bench=^" + b.Name() + "$",
		"-test.benchtime=1x"}, args...)...)
	c.Env = append(os.Environ(), cniVariable+"="+bin)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := child.Run(c); err != nil {
		b.Fatalf("on a Node: %v", err)
	}
	return ""
}

// buildPlugin compiles our plugin.
func buildPlugin(b *testing.B, dir string) {
	b.Helper()
	c := exec.Command("go", "build", "-o", filepath.Join(dir, "tombolo"), "../../plugins/tombolo-cni")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-ldflags=-s")
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("build the plugin: %v: %s", err, out)
	}
}

// buildPlugins compiles ours, and the bridge plugin and host-local of the version in go.mod.
func buildPlugins(b *testing.B, dir string) {
	b.Helper()
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}",
		"github.com/containernetworking/plugins").Output()
	if err != nil {
		b.Fatal(err)
	}
	buildPlugin(b, dir)
	for _, args := range [][]string{
		{"install", "github.com/containernetworking/plugins/plugins/main/bridge@" + strings.TrimSpace(string(version))},
		{"install", "github.com/containernetworking/plugins/plugins/ipam/host-local@" + strings.TrimSpace(string(version))},
	} {
		c := exec.Command("go", args...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-ldflags=-s", "GOBIN="+dir)
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("go %q: %v: %s", args, err, out)
		}
	}
}

// benchNode is a Node with a ready agent.
type benchNode struct {
	b        *testing.B
	bin, dir string
	ovs      *ovstest.Switch
	rest     *rest.Config // of the API server
	pods     int
}

func newBenchNode(b *testing.B, bin string, conf config.Config) *benchNode {
	b.Helper()
	ctrl.SetLogger(logr.Discard())
	n := &benchNode{b: b, bin: bin}
	var err error
	if n.dir, err = os.MkdirTemp("", "n"); err != nil { // b.TempDir's names are too long for sockets
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(n.dir) })
	n.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	n.must(unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "nowhere"}
	n.must(netlink.LinkAdd(pair))
	address, err := netlink.ParseAddr("192.168.78.101/24")
	n.must(err)
	n.must(netlink.AddrAdd(pair, address))
	for _, name := range []string{"lo", "nowhere", "uplink"} {
		link, err := netlink.LinkByName(name)
		n.must(err)
		n.must(netlink.LinkSetUp(link))
	}
	// The API server does not start on a machine without a default route.
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	n.must(err)
	n.must(netlink.RouteAdd(&netlink.Route{LinkIndex: pair.Index, Dst: everything, Scope: netlink.SCOPE_LINK}))

	server := apiserver.New(b, apiserver.Options{CRDs: []string{"../../deploy/crds"}, ServiceCIDR: "10.97.0.0/16"})
	client, err := kubernetes.NewForConfig(server.Config)
	n.must(err)
	node, err := client.CoreV1().Nodes().Create(b.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.11.0.0/22", PodCIDRs: []string{"10.11.0.0/22"}},
	}, metav1.CreateOptions{})
	n.must(err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.78.101"}}
	_, err = client.CoreV1().Nodes().UpdateStatus(b.Context(), node, metav1.UpdateOptions{})
	n.must(err)

	n.fill(server.Config)
	n.ovs = ovstest.Start(b)
	n.rest = server.Config
	conf.OVSDatapathType = "netdev"
	registry := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			Config: conf, NodeName: "node-1", REST: server.Config, Namespace: "kube-system",
			OVSRunDir: n.ovs.RunDir(), RunDir: filepath.Join(n.dir, "run"), StateDir: filepath.Join(n.dir, "state"),
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), Registerer: registry,
			Gatherer: registry,
		})
	}()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("the agent ended with: %v", err)
		}
	})
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := n.ready()
		if err == nil {
			return n
		}
		if time.Now().After(end) {
			b.Fatalf("the agent is not ready after two minutes: %v", err)
		}
	}
}

// fill makes the cluster's other Nodes, and Services with endpoints on them.
func (n *benchNode) fill(config *rest.Config) {
	n.b.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	n.must(err)
	each := func(count int, f func(ctx context.Context, i int) error) {
		g, ctx := errgroup.WithContext(n.b.Context())
		g.SetLimit(32)
		for i := range count {
			g.Go(func() error { return f(ctx, i) })
		}
		n.must(g.Wait())
	}
	each(*cniNodes, func(ctx context.Context, i int) error {
		cidr := fmt.Sprintf("10.%d.%d.0/24", 32+i/250, i%250)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)},
			Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}}}
		node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: fmt.Sprintf("172.20.%d.%d", i/250, 1+i%250)}}
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
	each(*cniServices, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("service-%d", i)
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}
		if _, err := client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return err
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		}
		for j := range cniEndpoints {
			e := i*cniEndpoints + j
			node := e % max(*cniNodes, 1)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 32+node/250, node%250, 2+e/max(*cniNodes, 1)%250)},
				NodeName:  new(fmt.Sprintf("other-%d", node)),
			})
		}
		_, err := client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{})
		return err
	})
}

func (n *benchNode) must(err error) {
	n.b.Helper()
	if err != nil {
		n.b.Fatal(err)
	}
}

func (n *benchNode) ready() error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(n.dir, "run", "debug.sock"))
		}}}
	answer, err := client.Get("http://agent" + api.PathStatus)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var s api.Status
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return err
	}
	if !s.Ready {
		return fmt.Errorf("it waits for %q; problems: %v", s.Waiting, s.Problems)
	}
	return nil
}

// benchPod is a Pod's network namespace.
type benchPod struct {
	n           *benchNode
	name, netns string
	namespace   string // "" for default
	uid         string // if the API server has the Pod
}

func (n *benchNode) pod() benchPod {
	n.b.Helper()
	n.pods++
	p := benchPod{n: n, name: fmt.Sprintf("pod-%d", n.pods), netns: filepath.Join(n.dir, fmt.Sprintf("netns-%d", n.pods))}
	n.must(os.WriteFile(p.netns, nil, 0o600))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	n.must(err)
	defer own.Close()
	n.must(unix.Unshare(unix.CLONE_NEWNET))
	n.must(errors.Join(unix.Mount("/proc/thread-self/ns/net", p.netns, "", unix.MS_BIND, ""),
		unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)))
	// namespaces that stay; the directory is removed afterwards
	n.b.Cleanup(func() { _ = unix.Unmount(p.netns, unix.MNT_DETACH) })
	return p
}

func (p benchPod) remove() {
	p.n.must(errors.Join(unix.Unmount(p.netns, unix.MNT_DETACH), os.Remove(p.netns)))
}

// cniPlugin is a plugin with its configuration.
type cniPlugin struct {
	n     *benchNode
	path  string
	conf  string
	netns string // of its Node, "" for the agent's
}

func (n *benchNode) tombolo() cniPlugin {
	return cniPlugin{n: n, path: filepath.Join(n.bin, "tombolo"),
		conf: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"tombolo","type":"tombolo","socket":%q}`,
			filepath.Join(n.dir, "run", "cni.sock"))}
}

func (n *benchNode) bridge() cniPlugin {
	return cniPlugin{n: n, path: filepath.Join(n.bin, "bridge"), netns: n.pod().netns,
		conf: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"bridge","bridge":"cni0","isGateway":true,
			"mtu":1400,"hairpinMode":true,
			"ipam":{"type":"host-local","ranges":[[{"subnet":"10.99.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":%q}}`,
			filepath.Join(n.dir, "host-local"))}
}

// call runs the plugin as a runtime does and returns how long it took.
func (c cniPlugin) call(command string, p benchPod) (time.Duration, error) {
	took, _, err := c.answer(command, p)
	return took, err
}

// answer is call with the plugin's answer.
func (c cniPlugin) answer(command string, p benchPod) (took time.Duration, out []byte, err error) {
	cmd := exec.Command(c.path)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_PATH=" + c.n.bin, "CNI_CONTAINERID=" + p.name, "CNI_NETNS=" + p.netns,
		"CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + cmp.Or(p.namespace, "default") + ";K8S_POD_NAME=" + p.name,
	}
	if p.uid != "" {
		cmd.Env[len(cmd.Env)-1] += ";K8S_POD_UID=" + p.uid
	}
	cmd.Stdin = strings.NewReader(c.conf)
	err = inNetns(c.netns, func() (err error) {
		began := time.Now()
		out, err = cmd.Output()
		took = time.Since(began)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(c.path), command, err, out)
	}
	return took, out, nil
}

// inNetns runs a function in a network namespace, "" for this one. The thread goes on afterwards: it may be the parent
// of processes that end with it.
func inNetns(path string, f func() error) error {
	if path == "" {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	other, err := os.Open(path)
	if err != nil {
		return err
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = f()
	return errors.Join(err, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET))
}

func (c cniPlugin) must(command string, p benchPod) time.Duration {
	c.n.b.Helper()
	took, err := c.call(command, p)
	c.n.must(err)
	return took
}

// atOnce adds or deletes many Pods at once, and returns the time of each and of all.
func (c cniPlugin) atOnce(command string) ([]time.Duration, time.Duration) {
	c.n.b.Helper()
	var pods []benchPod
	for range cniPods {
		pods = append(pods, c.n.pod())
	}
	run := func(command string) ([]time.Duration, time.Duration) {
		took, errs := make([]time.Duration, cniPods), make([]error, cniPods)
		began := time.Now()
		var running sync.WaitGroup
		for i, p := range pods {
			running.Go(func() { took[i], errs[i] = c.call(command, p) })
		}
		running.Wait()
		all := time.Since(began)
		c.n.must(errors.Join(errs...))
		return took, all
	}
	took, all := run("ADD")
	deleted, allDeleted := run("DEL")
	for _, p := range pods {
		p.remove()
	}
	if command == "DEL" {
		return deleted, allDeleted
	}
	return took, all
}

// switchAlone times how long ovs-vswitchd takes to give a veth a port number, from the transaction that asks for it. A
// client that waits for the number cannot be faster.
func (n *benchNode) switchAlone() []time.Duration {
	n.b.Helper()
	conn, err := net.Dial("unix", filepath.Join(n.ovs.RunDir(), "db.sock"))
	n.must(err)
	defer conn.Close()
	send := func(message string) {
		_, err := io.WriteString(conn, message)
		n.must(err)
	}
	type row struct {
		New struct {
			Name   string          `json:"name"`
			OFPort json.RawMessage `json:"ofport"`
		} `json:"new"`
	}
	numbered := make(chan string, 1000)
	go func() {
		defer close(numbered)
		messages := json.NewDecoder(bufio.NewReader(conn))
		for {
			var m struct {
				Method string            `json:"method"`
				Params []json.RawMessage `json:"params"`
			}
			if err := messages.Decode(&m); err != nil {
				return
			}
			if m.Method != "update" || len(m.Params) != 2 {
				continue
			}
			var tables map[string]map[string]row
			if json.Unmarshal(m.Params[1], &tables) != nil {
				continue
			}
			for _, r := range tables["Interface"] {
				if len(r.New.OFPort) > 0 && r.New.OFPort[0] != '[' {
					numbered <- r.New.Name
				}
			}
		}
	}()
	send(`{"method":"monitor","id":"m","params":["Open_vSwitch",null,
		{"Interface":{"columns":["name","ofport"],"select":{"initial":false}}}]}`)
	var took []time.Duration
	for i := range cniPods {
		name := fmt.Sprintf("alone%d", i)
		n.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
		began := time.Now()
		send(fmt.Sprintf(`{"method":"transact","id":%d,"params":["Open_vSwitch",
			{"op":"insert","table":"Interface","uuid-name":"i","row":{"name":%[2]q}},
			{"op":"insert","table":"Port","uuid-name":"p","row":{"name":%[2]q,"interfaces":["named-uuid","i"]}},
			{"op":"mutate","table":"Bridge","where":[["name","==","br-int"]],
				"mutations":[["ports","insert",["named-uuid","p"]]]},
			{"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[["next_cfg","+=",1]]}]}`, i, name))
		for found := range numbered {
			if found == name {
				break
			}
		}
		took = append(took, time.Since(began))
		n.ovs.Vsctl("del-port", "br-int", name)
		n.must(netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}}))
	}
	slices.Sort(took)
	return took
}
