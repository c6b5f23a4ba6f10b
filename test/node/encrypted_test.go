package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent"
	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/wireguard"
	"github.com/tombolo-net/tombolo/pkg/wireguard/publickey"
	"github.com/tombolo-net/tombolo/test/child"
)

// encryptAgent makes this process the agent of a Node whose traffic is encrypted, between Nodes and between clusters,
// and serves its devices. Their sockets have one path on every Node.
func encryptAgent(ctx context.Context, conf *config.Config) error {
	const sockets = "/var/run/wireguard"
	if err := os.MkdirAll(sockets, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", sockets, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a directory for sockets: %w", err)
	}
	conf.TrafficEncryptionMode = "wireGuard"
	conf.FeatureGates = map[string]bool{"Multicluster": true}
	conf.Multicluster.EnableGateway, conf.Multicluster.TrafficEncryptionMode = true, "wireGuard"
	for _, device := range agent.WireGuardDevices(true) {
		go wireguard.Serve(ctx, device, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	return nil
}

// secureNode is a Node with network and agent of its own.
type secureNode struct {
	*rig
	name string
	ns   netns.NsHandle
	url  string
	cmd  *exec.Cmd
	spec agentSpec // but for what differs between Nodes
}

// in runs f in the Node's network namespace; the thread of the test is locked.
func (n *secureNode) in(f func()) {
	n.t.Helper()
	back, err := netns.Get()
	if err == nil {
		err = netns.Set(n.ns)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(back); err != nil {
			n.t.Fatal(err)
		}
		back.Close()
	}()
	f()
}

func (n *secureNode) start() {
	n.t.Helper()
	own := n.spec
	own.Host, own.OVSRunDir, own.Dir, own.Node, own.Transport = n.url, n.runDir, n.dir, n.name, "eth1"
	spec, err := json.Marshal(own)
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd = exec.Command("/proc/self/exe")
	n.cmd.Env = append(os.Environ(), asAgent+"="+string(spec))
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if n.spec.Encrypted { // the sockets of its devices
		n.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}
	n.in(func() {
		if err := child.Start(n.cmd); err != nil {
			n.t.Fatal(err)
		}
	})
}

func (n *secureNode) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// pod makes a Pod whose namespace all agents see.
func (n *secureNode) pod(name string) *pod { return n.podWith(name, "") }

// podWith is pod with a runtimeConfig.
func (n *secureNode) podWith(name, runtime string) *pod {
	n.t.Helper()
	p := n.sandboxed(name, runtime)
	n.eventually("Pod "+name+" is attached", func() error { return n.attach(p) })
	return p
}

// sandboxed makes a Pod's namespace.
func (n *secureNode) sandboxed(name, runtime string) *pod {
	n.t.Helper()
	return &pod{name: name, container: name + "-0", netns: fmt.Sprintf("/proc/%d/ns/net", child.Namespace(n.t)),
		runtime: runtime}
}

// wire counts frames on the link between the Nodes: WireGuard's frames between them, and readable ones.
func (n *secureNode) wire(secret string) func() (encrypted, clear int) {
	n.t.Helper()
	var encrypted, clear int
	end := n.sniff(func(frame []byte) {
		if bytes.Contains(frame, []byte(secret)) || isUDP(frame, 6081) {
			clear++
		}
		if isUDP(frame, 51820) {
			encrypted++
		}
	})
	return func() (int, int) {
		end()
		return encrypted, clear
	}
}

// isUDP reports whether a frame has a UDP datagram for a port.
func isUDP(frame []byte, port uint16) bool {
	at, protocol := 36, 23
	if len(frame) > 58 && frame[12] == 0x86 && frame[13] == 0xdd {
		at, protocol = 56, 20
	}
	return len(frame) > at+2 && frame[protocol] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(frame[at:at+2]) == port
}

// sniff calls a function with each frame on the link between the Nodes, until its result is called.
func (n *secureNode) sniff(look func(frame []byte)) (end func()) {
	n.t.Helper()
	fd := -1
	n.in(func() {
		link, err := net.InterfaceByName("eth1")
		if err == nil {
			const all = 0x0300 // ETH_P_ALL in network order
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
			}
			if err == nil {
				err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
			}
		}
		if err != nil {
			n.t.Fatal(err)
		}
	})
	var ended atomic.Bool
	done := make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 65536)
		for {
			size, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				if ended.Load() {
					return
				}
				continue
			}
			look(b[:size])
		}
	}()
	return func() {
		ended.Store(true)
		<-done
		unix.Close(fd)
	}
}

// register creates the Node's object, with an InternalIP and podCIDRs, or without podCIDRs at first. A comma separates
// two InternalIPs.
func (n *secureNode) register(internal string, podCIDRs ...string) {
	n.t.Helper()
	nodes := n.cluster.client.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	if len(podCIDRs) > 0 {
		node.Spec.PodCIDR = podCIDRs[0]
	}
	node, err := nodes.Create(n.t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for ip := range strings.SplitSeq(internal, ",") {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	if _, err = nodes.UpdateStatus(n.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// newSecureNodes starts two Nodes, each with network, switch and agent of its own, on one link. Tunnels go encrypted,
// or in plain text. The machine of the test is their neighbour 10.200.N.1 on eth0. The thread of the test stays locked:
// the switches end with it. A comma separates two podCIDRs of a Node. The Node has an InternalIP of the version of each
// podCIDR.
func newSecureNodes(t testing.TB, c *cluster, name string, podCIDRs [2]string, spec agentSpec) []*secureNode {
	t.Helper()
	runtime.LockOSThread()
	target, err := url.Parse(c.server.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(c.server.Config)
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	if api.Listener, err = net.Listen("tcp4", ":0"); err != nil {
		t.Fatal(err)
	}
	api.Start()
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })

	sh := func(line string) {
		t.Helper()
		if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	var nodes []*secureNode
	for i := 1; i <= 2; i++ {
		n := &secureNode{rig: newRig(t, c), name: fmt.Sprintf("%s-%d", name, i), spec: spec}
		nodes = append(nodes, n)
		own, err := netns.Get()
		if err == nil {
			n.ns, err = netns.New()
		}
		if err == nil {
			err = netns.Set(own)
		}
		if err != nil {
			t.Fatal(err)
		}
		own.Close()
		t.Cleanup(func() { n.ns.Close() })
		// One link for the API server, and one for tunnels, which the switch takes over.
		if i == 1 {
			sh("ip link add secure1 type veth peer name secure2")
		}
		sh(fmt.Sprintf("ip link add api%d type veth peer name ipa%d; ip address add 10.200.%d.1/24 dev api%d; ip link set "+
			"api%d up", i, i, i, i, i))
		for _, link := range []string{"ipa", "secure"} {
			sh(fmt.Sprintf("ip link set %s%d netns /proc/%d/fd/%d", link, i, os.Getpid(), n.ns))
		}
		n.in(func() {
			sh(fmt.Sprintf("ip link set ipa%d name eth0; ip link set secure%d name eth1", i, i))
			sh(fmt.Sprintf("ip link set lo up; ip address add 10.200.%d.2/24 dev eth0; ip link set eth0 up", i))
		})
		n.url = fmt.Sprintf("http://10.200.%d.1:%d", i, api.Listener.Addr().(*net.TCPAddr).Port)
		t.Cleanup(func() {
			_ = exec.Command("ip", "link", "delete", fmt.Sprint("api", i)).Run()
			ctx := context.WithoutCancel(t.Context())
			if err := c.client.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		var internal []string
		cidrs := strings.Split(podCIDRs[i-1], ",")
		for _, cidr := range cidrs {
			ip := "192.168.77."
			if strings.Contains(cidr, ":") {
				ip = "fd77::"
			}
			internal = append(internal, fmt.Sprint(ip, i))
		}
		n.register(strings.Join(internal, ","), cidrs...)
	}
	for i, n := range nodes {
		n.in(func() {
			sh(fmt.Sprintf("ip address add 192.168.77.%d/24 dev eth1; ip address add fd77::%[1]d/64 dev eth1 nodad; "+
				"ip link set eth1 up", i+1))
			n.ovs = ovstest.Start(t)
			n.runDir = n.ovs.RunDir()
		})
		n.start()
		t.Cleanup(n.kill)
	}
	return nodes
}

// testEncrypted6 has two Nodes with addresses of IPv6 alone, whose Pods send over a wire on which no frame is readable.
func testEncrypted6(t *testing.T, c *cluster) {
	nodes := newSecureNodes(t, c, "secure-6", [2]string{"fd18:0:0:1::/64", "fd18:0:0:2::/64"},
		agentSpec{Encrypted: true})
	const secret = "nobody on the wire may read this either"
	end := nodes[0].wire(secret)
	asker, server := nodes[0].pod("client-6"), nodes[1].pod("server-6")
	server.serve(t, familiesPort)
	nodes[0].eventually("Pods of two Nodes talk", func() error { return asks(asker, server.ip, familiesPort, secret) })
	for range 20 {
		if err := asks(asker, server.ip, familiesPort, secret); err != nil {
			t.Error(err)
		}
	}
	families{t, c, nodes}.large(asker, server)
	if err := asker.within(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil && link.MTU != 1370 {
			err = fmt.Errorf("the MTU of Pods is %d, want 1370", link.MTU)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if encrypted, clear := end(); encrypted < 40 || clear != 0 {
		t.Errorf("%d frames of WireGuard have passed, and %d that one can read", encrypted, clear)
	}
}

// testEncryptedWithSlowNft has a Gateway whose nft takes a fifth of a second longer. The switch gets its bridges once
// the host drops packets that would leave in plain text, and flows to a cluster that joins once the host drops packets
// to the end of its tunnel.
func testEncryptedWithSlowNft(t *testing.T, c *cluster) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	slow := t.TempDir()
	script := "#!/bin/sh\nsleep 0.2\nexec " + nft + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(slow, "nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", slow+":"+os.Getenv("PATH"))
	objects := c.objects(t)
	create := func(o client.Object) {
		t.Helper()
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := objects.Delete(context.WithoutCancel(t.Context()), o); err != nil {
				t.Error(err)
			}
		})
	}
	create(&mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "slow-1"},
		GatewayIP: "192.168.77.1", InternalIP: "192.168.77.1", ServiceCIDR: "10.97.0.0/16"})
	nodes := newSecureNodes(t, c, "slow", [2]string{"10.19.1.0/24", "10.19.2.0/24"}, agentSpec{Encrypted: true})
	gateway := nodes[0]
	// drops waits until the switch has something, and reports whether the host drops packets to an address then.
	drops := func(what, to string, there func() bool) {
		t.Helper()
		gateway.eventually(what, func() error {
			if !there() {
				return errors.New("not yet")
			}
			return nil
		})
		gateway.in(func() {
			if out, err := exec.Command(nft, "list", "table", "netdev", "tombolo").CombinedOutput(); err != nil ||
				!bytes.Contains(out, []byte(to)) {
				t.Errorf("%s while the host does not drop packets to %s yet: %v %s", what, to, err, out)
			}
		})
	}
	drops("the switch has the bridge of Pods", "240.0.0.0/4",
		func() bool { return strings.Contains(gateway.ovs.Vsctl("list-br"), "br-int") })
	gateway.eventually("the agent is ready", func() error {
		s, err := gateway.status()
		if err == nil && !s.Ready {
			err = fmt.Errorf("it waits for %q", s.Waiting)
		}
		return err
	})
	west := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "west"}}
	west.Spec.ClusterID, west.Spec.ServiceCIDR = "west", "10.98.0.0/16"
	west.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{1}.String()}
	west.Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.79.101"}}
	create(west)
	drops("the switch has flows to the other cluster", "10.98.0.0",
		func() bool { return strings.Contains(gateway.flows(), "10.98.0.0->tun_dst") })
}

// testEncrypted has two Nodes, each with switch and agent, whose Pods send over a wire on which no frame is readable.
func testEncrypted(t *testing.T, c *cluster) {
	nodes := newSecureNodes(t, c, "secure", [2]string{"10.12.1.0/24", "10.12.2.0/24"},
		agentSpec{Encrypted: true})
	const secret, port = "nobody on the wire may read this", 8080
	end := nodes[0].wire(secret)
	asker, server := nodes[0].pod("client"), nodes[1].pod("server")
	server.serve(t, port)
	asked := func(network string) error {
		conn, err := asker.dial(network, fmt.Sprint(server.ip, ":", port))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = ask(conn, secret, time.Second)
		return err
	}
	answered := func(what string) {
		t.Helper()
		nodes[0].eventually(what, func() error { return asked("udp4") })
		for range 20 {
			if err := asked("tcp4"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	answered("Pods of two Nodes talk")
	for _, p := range []*pod{asker, server} {
		if err := p.within(func() error {
			link, err := net.InterfaceByName("eth0")
			if err == nil && link.MTU != 1390 {
				err = fmt.Errorf("the MTU of Pods is %d, want 1390", link.MTU)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if encrypted, clear := end(); encrypted < 100 || clear != 0 {
		t.Errorf("%d frames of WireGuard have passed, and %d that one can read", encrypted, clear)
	}

	// Without the process behind the device, and without agent, nothing goes in plain text, and all goes on afterwards.
	end = nodes[0].wire(secret)
	nodes[0].kill()
	for range 5 {
		if err := asked("udp4"); err == nil {
			t.Error("there is an answer while nothing encrypts")
		}
	}
	nodes[0].start()
	answered("Pods talk again after a crash")
	// Without the other Node's key, too; its agent announces it again.
	unannounced := []byte(`{"metadata":{"annotations":{"node.antrea.io/wireguard-public-key":null}}}`)
	if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), nodes[1].name, types.MergePatchType, unannounced,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	answered("Pods talk again after a key was removed")
	// In addition to encryption between clusters, of which the first Node is the Gateway.
	objects := c.objects(t)
	for _, all := range []client.Object{&mcv1alpha1.Gateway{}, &mcv1alpha1.ClusterInfoImport{}} { // of other tests
		if err := objects.DeleteAllOf(t.Context(), all, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	west := &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "west"}}
	west.Spec.ClusterID, west.Spec.ServiceCIDR, west.Spec.WireGuard = "west", "10.98.0.0/16",
		&mcv1alpha1.WireGuardInfo{PublicKey: publickey.Key{1}.String()}
	west.Spec.GatewayInfos = []mcv1alpha1.GatewayInfo{{GatewayIP: "192.168.79.101"}}
	gateway := &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nodes[0].name},
		GatewayIP: "192.168.77.1", InternalIP: "192.168.77.1", ServiceCIDR: "10.97.0.0/16"}
	for _, o := range []client.Object{west, gateway} {
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := objects.Delete(context.WithoutCancel(t.Context()), o); err != nil {
				t.Error(err)
			}
		})
	}
	nodes[0].eventually("the Gateway has a device for each", func() error {
		g := &mcv1alpha1.Gateway{}
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(gateway), g); err != nil || g.WireGuard == nil {
			return fmt.Errorf("no key is announced for other clusters (%w)", err)
		}
		return nil
	})
	nodes[0].in(func() {
		ovstest.Eventually(t, "there are routes to both", func() error {
			for to, dev := range map[string]string{"10.98.0.0": "antrea-mc-wg0", "240.168.77.2": "antrea-wg0"} {
				if out, err := exec.Command("ip", "route", "get", to).CombinedOutput(); err != nil ||
					!bytes.Contains(out, []byte("dev "+dev)) {
					return fmt.Errorf("%s: %w: %s", to, err, out)
				}
			}
			return nil
		})
	})
	answered("Pods talk beside encryption between clusters")
	// Both Nodes' keys change, the second asked for in the middle of the first, and Pods talk on. A userspace switch
	// that takes a bridge in may drop a packet; a way that does not carry loses all for seconds.
	announced := func(n *secureNode) (key, next string) {
		t.Helper()
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return node.Annotations["node.antrea.io/wireguard-public-key"],
			node.Annotations["tombolo.io/wireguard-next-public-key"]
	}
	before := map[*secureNode]string{}
	for _, n := range nodes {
		before[n], _ = announced(n)
	}
	again := func(n *secureNode) {
		t.Helper()
		desired := fmt.Sprintf(`{"metadata":{"annotations":{"tombolo.io/wireguard-key-not-before":%q}}}`,
			time.Now().UTC().Add(time.Second).Format(time.RFC3339))
		if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), n.name, types.MergePatchType, []byte(desired),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	again(nodes[0])
	requests, lost, asSecond, begun := 0, 0, false, time.Now()
	for {
		if err := asked("udp4"); err != nil {
			lost++
			if retried := asked("udp4"); retried != nil || lost > 3 {
				t.Fatalf("%.1f s after a new key was asked for, %d of %d requests were lost: %v, then %v",
					time.Since(begun).Seconds(), lost, requests, err, retried)
			}
		}
		if requests++; requests%20 != 0 {
			continue
		}
		first, next := announced(nodes[0])
		if next != "" && !asSecond {
			again(nodes[1])
			asSecond = true
		}
		second, nextOfSecond := announced(nodes[1])
		if first != before[nodes[0]] && second != before[nodes[1]] && next == "" && nextOfSecond == "" {
			break
		}
		if time.Since(begun) > 4*time.Minute {
			t.Fatalf("keys %s, next %q, and %s, next %q, after %d requests", first, next, second, nextOfSecond, requests)
		}
	}
	t.Logf("both keys have changed after %.0f s and %d requests, of which %d were lost", time.Since(begun).Seconds(),
		requests, lost)
	if encrypted, clear := end(); encrypted < 100 || clear != 0 {
		t.Errorf("%d frames of WireGuard have passed, and %d that one can read", encrypted, clear)
	}
	for _, n := range nodes {
		n.eventually("no problem is left", func() error {
			s, err := n.status()
			for _, p := range s.Problems {
				if strings.Contains(p.Object, "secure") || strings.Contains(p.Object, "antrea") {
					err = errors.Join(err, fmt.Errorf("%s: %+v", n.name, p))
				}
			}
			return err
		})
	}
}
