package cni

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/test/child"
)

const (
	inside = "TOMBOLO_CNI_TEST_INSIDE"
	// builtPlugin names a plugin that is built already, for machines without Go (test/kernel).
	builtPlugin = "TOMBOLO_CNI_TEST_PLUGIN"
)

// plugin is the path of the built plugin.
var plugin string

// TestMain runs the tests in a network and mount namespace of their own. So nothing that they make can outlive them or
// collide with the machine's interfaces.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv(inside) == "" {
		dir, err := os.MkdirTemp("", "tc")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "tombolo"),
			"github.com/tombolo-net/tombolo/plugins/tombolo-cni")
		if built := os.Getenv(builtPlugin); built != "" {
			build = exec.Command("cp", built, filepath.Join(dir, "tombolo"))
		}
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
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintf(os.Stderr, "make mounts private: %v\n", err)
		return 1
	}
	plugin = filepath.Join(os.Getenv(inside), "tombolo")
	return m.Run()
}

// fakeNode records attachments. It refuses a port that is not up. ovs-vswitchd sets all flags of a new port to the
// values that it read last, so a port that comes up in between goes down again.
type fakeNode struct {
	mu        sync.Mutex
	network   *Network // nil: not ready
	attached  map[ipam.Key]Attachment
	device    map[ipam.Key]int // index of the port's device
	attaches  int
	refuse    error            // of the next Attach
	hang      chan struct{}    // Attach closes it and then waits for its context
	together  int              // no Attach ends before so many have begun
	begun     chan struct{}    // closed then
	refuseAll map[string]error // by interface
	detachErr error
	away      bool // Detach waits for its context
}

func newFakeNode(cidr string) *fakeNode {
	p := netip.MustParsePrefix(cidr)
	return &fakeNode{
		network: &Network{PodCIDRs: []netip.Prefix{p}, Gateways: []netip.Addr{p.Addr().Next()}, MTU: 1400,
			GatewayMAC: "0e:00:00:00:00:01", DisableTXChecksum: true},
		attached: map[ipam.Key]Attachment{},
		device:   map[ipam.Key]int{},
	}
}

func (n *fakeNode) Network(ctx context.Context) (Network, error) {
	n.mu.Lock()
	network := n.network
	n.mu.Unlock()
	if network == nil {
		<-ctx.Done()
		return Network{}, errors.New("the bridge is not there")
	}
	return *network, nil
}

func (n *fakeNode) Attach(ctx context.Context, a Attachment) error {
	link, err := netlink.LinkByName(a.PortName)
	if err != nil {
		return err
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("port %s is down", a.PortName)
	}
	n.mu.Lock()
	n.attaches++
	refuse, hang, begun := cmp.Or(n.refuse, n.refuseAll[a.IfName]), n.hang, n.begun
	if n.attaches == n.together {
		close(begun)
	}
	k := ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}
	if _, still := n.attached[k]; still && n.device[k] != 0 && n.device[k] != link.Attrs().Index && refuse == nil {
		refuse = fmt.Errorf("port %s got another device while the switch had it", a.PortName)
	}
	if refuse == nil {
		n.attached[k], n.device[k] = a, link.Attrs().Index
	}
	n.mu.Unlock()
	if begun != nil {
		select {
		case <-begun:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if hang != nil {
		close(hang)
		<-ctx.Done()
		return ctx.Err()
	}
	return refuse
}

func (n *fakeNode) Detach(ctx context.Context, container, ifName string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		<-ctx.Done()
		return ctx.Err()
	}
	if n.detachErr != nil {
		return n.detachErr
	}
	delete(n.attached, ipam.Key{ContainerID: container, IfName: ifName})
	return nil
}

func (n *fakeNode) Attachments() []Attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Attachment
	for _, a := range n.attached {
		out = append(out, a)
	}
	return out
}

// rig is a Server with everything around it.
type rig struct {
	t      *testing.T
	dir    string
	node   *fakeNode
	store  *ipam.Store
	server *Server
	stop   func()

	incomplete bool // the next start cannot rebuild everything
	// unrecovered gets the attachments that could not be rebuilt, each time they change.
	unrecovered chan []Unrecovered
}

// newRig starts a Server on a Node with the range 10.10.1.0/24.
func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "r") // t.TempDir's names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, node: newFakeNode("10.10.1.0/24")}
	r.eventually("the kernel to remove the interfaces of earlier tests' namespaces", func() bool {
		own, err := ownLinks()
		return err == nil && len(own) == 0
	})
	r.start()
	return r
}

// start starts a Server as the agent does, on the node's attachments.
func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.store, err = ipam.Open(filepath.Join(r.dir, "ipam.json")); err != nil {
		r.t.Fatal(err)
	}
	r.unrecovered = make(chan []Unrecovered, 10)
	r.server = NewServer(Options{Node: r.node, IPAM: r.store, Socket: r.socket(), NetworkTimeout: 300 * time.Millisecond,
		Unrecovered: func(left []Unrecovered) { r.unrecovered <- left }})
	restored, err := r.server.Recover(r.t.Context(), r.node.Attachments())
	if (err != nil) != r.incomplete {
		r.t.Fatal(err)
	}
	for _, a := range restored {
		r.node.attached[ipam.Key{ContainerID: a.ContainerID, IfName: a.IfName}] = a
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				r.t.Errorf("Run: %v", err)
			}
		})
	}
	r.t.Cleanup(r.stop)
	r.eventually("the socket to answer", func() bool {
		_, err := r.exec("STATUS", nil, r.conf(nil))
		return err == nil || err.Code != 11
	})
}

func (r *rig) socket() string { return filepath.Join(r.dir, "cni.sock") }

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			r.t.Fatalf("waited a minute for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// conf is a network configuration for this rig's socket, with changes.
func (r *rig) conf(change map[string]any) string {
	c := map[string]any{"cniVersion": "1.1.0", "name": "tombolo", "type": "tombolo", "socket": r.socket()}
	for k, v := range change {
		if v == nil {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// netns makes a Pod's network namespace and returns its path. remove deletes it before the end of the test.
func (r *rig) netns() (path string, remove func()) {
	r.t.Helper()
	path = makeNetns(r.t, filepath.Join(r.dir, fmt.Sprintf("netns-%d", time.Now().UnixNano())))
	var once sync.Once
	remove = func() {
		once.Do(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				r.t.Error(err)
			}
			os.Remove(path)
		})
	}
	r.t.Cleanup(remove)
	return path, remove
}

// makeNetns makes a network namespace at a path, until the test ends, and returns the path.
func makeNetns(t testing.TB, path string) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("sleep", "1000")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid), path, "", unix.MS_BIND, "")
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

// podUID is the UID of environment's Pod.
const podUID = "6f1c7a52-0b7e-4c57-9d0a-1d2f3a4b5c6d"

// environment of a command for one container.
func environment(container, netns string) map[string]string {
	return map[string]string{
		"CNI_CONTAINERID": container,
		"CNI_NETNS":       netns,
		"CNI_IFNAME":      "eth0",
		"CNI_PATH":        "/opt/cni/bin",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-5d8f7c;K8S_POD_UID=" + podUID +
			";K8S_POD_INFRA_CONTAINER_ID=" + container,
	}
}

// exec runs the plugin as a runtime does.
func (r *rig) exec(command string, env map[string]string, conf string) (string, *types.Error) {
	r.t.Helper()
	cmd := exec.Command(plugin)
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_PATH=/opt/cni/bin"}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdin = strings.NewReader(conf)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	e := &types.Error{}
	if jsonErr := json.Unmarshal(out, e); jsonErr != nil {
		r.t.Fatalf("%s: %v, and its output is no error object: %q %q", command, err, out, stderr.String())
	}
	return "", e
}

// must runs a command that has to succeed.
func (r *rig) must(command string, env map[string]string, conf string) string {
	r.t.Helper()
	out, err := r.exec(command, env, conf)
	if err != nil {
		r.t.Fatalf("%s: code %d: %s (%s)", command, err.Code, err.Msg, err.Details)
	}
	return out
}

// leftovers lists the objects that a clean Node must not have.
func (r *rig) leftovers() []string {
	r.t.Helper()
	var out []string
	for _, k := range r.store.Keys() {
		out = append(out, "address of "+k.ContainerID)
	}
	for _, a := range r.node.Attachments() {
		out = append(out, "attachment "+a.PortName)
	}
	own, err := ownLinks()
	if err != nil {
		r.t.Fatal(err)
	}
	for name := range own {
		out = append(out, "veth "+name)
	}
	slices.Sort(out)
	return out
}

func (r *rig) clean() {
	r.t.Helper()
	if left := r.leftovers(); len(left) > 0 {
		r.t.Errorf("left behind: %v", left)
	}
}
