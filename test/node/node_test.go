// Package node tests a whole Node: the agent with a real API server, a real Open vSwitch with the
// userspace datapath, the CNI plugin, and Pods' network namespaces with real packets.
package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/tombolo-net/tombolo/test/logtext"
)

const inside = "TOMBOLO_NODE_TEST_INSIDE"

// plugin is the path of the built CNI plugin.
var plugin string

// TestMain runs the tests in a network and mount namespace of their own, which is the Node.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if spec := os.Getenv(asAgent); spec != "" {
		return runAgent(spec)
	}
	if os.Getenv(inside) == "" {
		dir, err := os.MkdirTemp("", "node")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "tombolo"),
			"github.com/tombolo-net/tombolo/plugins/tombolo-cni")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the plugin: %v\n%s", err, out)
			return 1
		}
		self := exec.Command("/proc/self/exe", os.Args[1:]...)
		self.Env = append(os.Environ(), inside+"="+dir)
		self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
		self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		err = child.Run(self)
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			return exit.ExitCode()
		case err != nil:
			fmt.Fprintf(os.Stderr, "these tests need root, to make network namespaces: %v\n", err)
			return 1
		}
		return 0
	}
	plugin = filepath.Join(os.Getenv(inside), "tombolo")
	ctrl.SetLogger(logr.Discard())
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the Node's namespace:", err)
		return 1
	}
	return m.Run()
}

const (
	nodeName    = "node-1"
	nodeAddress = "192.168.78.101"
	namespace   = "kube-system"
)

// prepare makes the Node's interfaces: lo, and an uplink that leads nowhere.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "uplink"
	pair := netlink.NewVeth(attrs)
	pair.PeerName = "nowhere"
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	address, err := netlink.ParseAddr(nodeAddress + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(pair, address); err != nil {
		return err
	}
	for _, name := range []string{"lo", "nowhere", "uplink"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	// The API server does not start on a machine without a default route.
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: pair.Index, Dst: everything, Scope: netlink.SCOPE_LINK})
}

// cluster is the API server that the tests of one process share.
type cluster struct {
	server *apiserver.Server
	client kubernetes.Interface
}

func newCluster(t testing.TB) *cluster {
	return newClusterOf(t, apiserver.Options{ServiceCIDR: "10.97.0.0/16"}, "10.11.1.0/24")
}

// newClusterOf makes a cluster with Tombolo's definitions, and a Node with these podCIDRs.
func newClusterOf(t testing.TB, options apiserver.Options, podCIDRs ...string) *cluster {
	t.Helper()
	options.CRDs = []string{"../../deploy/crds"}
	c := &cluster{server: apiserver.New(t, options)}
	var err error
	if c.client, err = kubernetes.NewForConfig(c.server.Config); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec: corev1.NodeSpec{PodCIDR: podCIDRs[0], PodCIDRs: podCIDRs}}
	if node, err = c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}}
	if _, err = c.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// rig is one Node: a switch and, between start and stop, an agent.
type rig struct {
	t       testing.TB
	cluster *cluster
	ovs     *ovstest.Switch
	runDir  string // of Open vSwitch
	dir     string
	rest    *rest.Config
	log     *buffer
	stop    func()
	edit    func(*config.Config) // of the agent's configuration, where not nil
	uids    sync.Map             // of the API objects of Pods, by name
}

func newRig(t testing.TB, c *cluster) *rig {
	t.Helper()
	r := &rig{t: t, cluster: c, rest: rest.CopyConfig(c.server.Config), log: &buffer{}, stop: func() {}}
	var err error
	if r.dir, err = os.MkdirTemp("", "n"); err != nil { // t.TempDir's names are too long for sockets
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("of the agent's log:\n%s", r.log.notable())
		}
		os.RemoveAll(r.dir)
	})
	return r
}

// withOVS starts an Open vSwitch for the Node.
func (r *rig) withOVS() *rig {
	r.ovs = ovstest.Start(r.t)
	r.runDir = r.ovs.RunDir()
	return r
}

// start starts the agent and returns without waiting for anything.
func (r *rig) start() {
	r.t.Helper()
	conf := config.Default()
	conf.OVSDatapathType = "netdev"
	conf.FeatureGates = map[string]bool{"Multicluster": true}
	conf.Multicluster.EnableGateway = true
	if r.edit != nil {
		r.edit(&conf)
	}
	registry := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			Config: conf, NodeName: nodeName, REST: r.rest, Namespace: namespace,
			OVSRunDir: r.runDir, RunDir: filepath.Join(r.dir, "run"), StateDir: filepath.Join(r.dir, "state"),
			LogDir: filepath.Join(r.dir, "log"),
			Logger: slog.New(slog.NewTextHandler(r.log, nil)), Registerer: registry, Gatherer: registry,
		})
	}()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				r.t.Errorf("the agent ended with: %v", err)
			}
		})
	}
	r.t.Cleanup(r.stop)
}

// ready starts the agent and waits until it is ready.
func (r *rig) ready() {
	r.t.Helper()
	r.start()
	r.eventually("the agent is ready", func() error {
		s, err := r.status()
		if err == nil && !s.Ready {
			err = fmt.Errorf("it waits for %q; problems: %v", s.Waiting, s.Problems)
		}
		return err
	})
}

// status asks the agent how it is.
func (r *rig) status() (s api.Status, err error) {
	return s, r.debug(api.PathStatus, &s)
}

func (r *rig) debug(path string, into any) error {
	text, err := r.fetch(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// fetch reads a page of the agent's debug API.
func (r *rig) fetch(path string) ([]byte, error) {
	client := &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(r.dir, "run", "debug.sock"))
		}}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://agent" + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	return io.ReadAll(answer.Body)
}

func (r *rig) eventually(what string, f func() error) {
	r.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within two minutes: %v", what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// pod is a Pod's network namespace.
type pod struct {
	namespace              string // empty for default
	name, container, netns string
	ip, mac                string
	ips                    []string // all addresses, of which ip is the first
	runtime                string   // runtimeConfig of its network configuration, as JSON
	unmount                func()
	received               sync.Map // datagrams that serveOutside got
}

// add makes a Pod and calls CNI ADD.
func (r *rig) add(name string) *pod {
	r.t.Helper()
	p := r.sandbox(name)
	if err := r.attach(p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// sandbox makes a Pod's network namespace.
func (r *rig) sandbox(name string) *pod {
	r.t.Helper()
	p := &pod{name: name, container: fmt.Sprintf("%s-%d", name, time.Now().UnixNano()),
		netns: filepath.Join(r.dir, "netns-"+name)}
	if err := os.WriteFile(p.netns, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	holder := exec.Command("sleep", "1000")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := child.Start(holder); err != nil {
		r.t.Fatal(err)
	}
	err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid), p.netns, "", unix.MS_BIND, "")
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if err != nil {
		r.t.Fatal(err)
	}
	var once sync.Once
	p.unmount = func() {
		once.Do(func() {
			if err := errors.Join(unix.Unmount(p.netns, unix.MNT_DETACH), os.Remove(p.netns)); err != nil {
				r.t.Error(err)
			}
		})
	}
	r.t.Cleanup(p.unmount)
	return p
}

// attach calls CNI ADD.
func (r *rig) attach(p *pod) error {
	out, err := r.call("ADD", p)
	if err != nil {
		return err
	}
	var result types100.Result
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) == 0 || len(result.Interfaces) != 2 {
		return fmt.Errorf("answer to ADD: %w: %s", err, out)
	}
	p.ip, p.ips, p.mac = result.IPs[0].Address.IP.String(), nil, result.Interfaces[1].Mac
	for _, ip := range result.IPs {
		p.ips = append(p.ips, ip.Address.IP.String())
	}
	return nil
}

// del calls CNI DEL and removes the Pod's namespace.
func (r *rig) del(p *pod) {
	r.t.Helper()
	if _, err := r.call("DEL", p); err != nil {
		r.t.Fatal(err)
	}
	p.unmount()
}

// call calls the plugin as a runtime does.
func (r *rig) call(command string, p *pod) ([]byte, error) {
	cmd := exec.Command(plugin)
	args := "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + cmp.Or(p.namespace, "default") + ";K8S_POD_NAME=" + p.name
	if uid, ok := r.uids.Load(p.name); ok {
		args += fmt.Sprint(";K8S_POD_UID=", uid)
	}
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_PATH=/opt/cni/bin", "CNI_CONTAINERID=" + p.container, "CNI_NETNS=" + p.netns,
		"CNI_IFNAME=eth0",
		"CNI_ARGS=" + args,
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"tombolo","type":"tombolo","socket":%q,"runtimeConfig":%s}`,
		filepath.Join(r.dir, "run", "cni.sock"), cmp.Or(p.runtime, "{}")))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("CNI %s of %s: %w: %s%s", command, p.name, err, out, &stderr)
	}
	return out, nil
}

// within runs f in the Pod's namespace. Sockets that f makes stay there.
func (p *pod) within(f func() error) error {
	return ns.WithNetNSPath(p.netns, func(ns.NetNS) error { return f() })
}

// dial opens a UDP socket or a TCP connection from the Pod.
func (p *pod) dial(network, address string) (conn net.Conn, err error) {
	err = p.within(func() error {
		conn, err = net.DialTimeout(network, address, 5*time.Second)
		return err
	})
	return conn, err
}

// serve answers every TCP line and UDP datagram on a port with the Pod's name and what it got.
func (p *pod) serve(t *testing.T, port int) {
	t.Helper()
	var tcp net.Listener
	var udp net.PacketConn
	err := p.within(func() (err error) {
		if tcp, err = net.Listen("tcp", fmt.Sprint(":", port)); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", fmt.Sprint(":", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	answer(t, tcp, udp, func(text string) string { return p.name + " " + text })
}

// answer answers every TCP line and UDP datagram until the test ends.
func answer(t testing.TB, tcp net.Listener, udp net.PacketConn, with func(text string) string) {
	t.Cleanup(func() { tcp.Close(); udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				defer c.Close() // thousands of connections come
				b := make([]byte, 100)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if _, err := c.Write([]byte(with(string(b[:n])))); err != nil {
						return
					}
				}
			}()
		}
	}()
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte(with(string(b[:n]))), from) // a lost answer is noticed
		}
	}()
}

// ask sends a word and returns the answer.
func ask(c net.Conn, word string, timeout time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(word)); err != nil {
		return "", err
	}
	b := make([]byte, 200)
	for {
		n, err := c.Read(b)
		if err != nil {
			return "", err
		}
		if answer := string(b[:n]); strings.HasSuffix(answer, word) { // not a late one
			return answer, nil
		}
	}
}

// buffer keeps the agent's log.
type buffer struct{ logtext.Buffer }

// notable returns the part of the log that a failed test shows: its last lines, without lines of every start and of
// every end of a Pod. The whole log would hide the test's own messages.
func (b *buffer) notable() string {
	var lines []string
	for line := range strings.Lines(b.String()) {
		if !slices.ContainsFunc([]string{"|INFO|", "msg=watching", "Network is down", "No such device",
			"CNI request done"}, func(usual string) bool { return strings.Contains(line, usual) }) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

// TestNode has one API server, which takes longest to start.
func TestNode(t *testing.T) {
	c := newCluster(t)
	t.Run("uninstall", func(t *testing.T) { testUninstall(t, c) }) // first: other tests' switches leave links
	t.Run("rebuild", func(t *testing.T) { testRebuild(t, c) })
	t.Run("observed", func(t *testing.T) { testObserved(t, c) })
	t.Run("udp", func(t *testing.T) { testUDP(t, c) })
	t.Run("bandwidth", func(t *testing.T) { testBandwidth(t, c) })
	t.Run("labels", func(t *testing.T) { testLabels(t, c) })
	t.Run("restart", func(t *testing.T) { testRestart(t, c) })
	t.Run("sources", func(t *testing.T) { testSources(t, c) })
	t.Run("starts", func(t *testing.T) { testStarts(t, c) })
	t.Run("guarded", func(t *testing.T) { testGuarded(t, c) })
	t.Run("names", func(t *testing.T) { testNames(t, c) })
	t.Run("flood", func(t *testing.T) { testFlood(t, c) })
	t.Run("encrypted", func(t *testing.T) { testEncrypted(t, c) })
	t.Run("encrypted with slow nft", func(t *testing.T) { testEncryptedWithSlowNft(t, c) })
	dual := newClusterOf(t, apiserver.Options{ServiceCIDR: "10.97.0.0/16,fd97::/112"}, "10.11.1.0/24")
	t.Run("families", func(t *testing.T) { testFamilies(t, dual) })
	t.Run("modes", func(t *testing.T) { testModes(t, dual) })
	t.Run("encrypted over IPv6", func(t *testing.T) { testEncrypted6(t, dual) })
	t.Run("same name", func(t *testing.T) { testSameName(t, c) })
	t.Run("newcomers", func(t *testing.T) { testNewcomers(t, c) })
	t.Run("outside", func(t *testing.T) { testOutside(t, c) })
	t.Run("networks of copies", func(t *testing.T) { testNetworksOfCopies(t, c) })
	t.Run("later joins", func(t *testing.T) { testLaterJoins(t, c) })
	t.Run("own network", func(t *testing.T) { testOwnNetwork(t, c) })
	t.Run("equal ranges", func(t *testing.T) { testEqualRanges(t, c) })
	t.Run("separate own networks", func(t *testing.T) { testSeparateOwn(t, c) })
	t.Run("gone device", func(t *testing.T) { testGoneDevice(t, c) })
}
