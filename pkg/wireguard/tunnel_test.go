package wireguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/leaks"
	"github.com/tombolo-net/tombolo/test/logtext"
)

// serveEnv makes the test's binary a process that serves a device, until its standard input ends.
const serveEnv = "TOMBOLO_TEST_SERVE_WIREGUARD"

func TestMain(m *testing.M) {
	if name := os.Getenv(serveEnv); name != "" {
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		Serve(ctx, name, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		os.Exit(0)
	}
	leaks.Main(m)
}

// host is a network namespace with a WireGuard device.
type host struct {
	t      *testing.T
	ns     netns.NsHandle
	device string
	port   string // the link with the address: the device, or the switch's port
	key    PrivateKey
	at     netip.AddrPort
	inside netip.Addr

	manager *Manager
	stop    func() // the manager
	end     func() // the process that serves the device
}

func newHost(t *testing.T, name, address, inside string) *host {
	t.Helper()
	h := &host{
		t: t, device: fmt.Sprintf("wg%s%d", name, os.Getpid()), key: testKey(t),
		at: netip.AddrPortFrom(netip.MustParseAddr(address), 51821), inside: netip.MustParseAddr(inside),
	}
	h.port = h.device
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		ns, err := netns.New()
		h.ns = ns
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatalf("make a network namespace (root is needed): %v", err)
	}
	t.Cleanup(func() { h.ns.Close() })
	h.sh("ip link set lo up")
	return h
}

// do runs a function in the namespace.
func (h *host) do(f func() error) {
	h.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(h.ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) sh(line string) {
	h.t.Helper()
	h.do(func() error {
		out, err := exec.Command("sh", "-ec", line).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
		return nil
	})
}

// serve starts the process that serves the device.
func (h *host) serve() {
	h.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+h.device)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	h.do(cmd.Start)
	h.end = func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("the process that serves %s: %v: %s", h.device, err, log.String())
		}
		h.end = func() {}
	}
	h.t.Cleanup(func() { h.end() })
}

// resyncOfTests is how often managers compare.
const resyncOfTests = 100 * time.Millisecond

// run starts a manager, and returns what it logs.
func (h *host) run(o Options) *logtext.Buffer {
	h.t.Helper()
	log := &logtext.Buffer{}
	o.Name, o.Namespace, o.Resync, o.Logger = h.device, &h.ns, resyncOfTests, slog.New(slog.NewTextHandler(log, nil))
	h.manager = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.manager.Run(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
		h.stop = func() {}
	}
	h.t.Cleanup(func() { h.stop() })
	return log
}

func (h *host) ready() {
	h.t.Helper()
	ovstest.Eventually(h.t, h.device+" is ready", func() error {
		if !h.manager.State().Ready {
			return fmt.Errorf("it is not: %v", h.manager.Problems())
		}
		return nil
	})
}

// want has the device know the other hosts.
func (h *host) want(others ...*host) {
	d := &Desired{PrivateKey: h.key, ListenPort: int(h.at.Port())}
	for _, o := range others {
		d.Peers = append(d.Peers, Peer{o.key.Public(), o.at, []netip.Prefix{netip.PrefixFrom(o.inside, 32)}})
	}
	h.manager.Set(d)
}

// address does what is hostnet's in the product.
func (h *host) address(others ...*host) {
	h.t.Helper()
	line := fmt.Sprintf("ip link set %s mtu 1440 up; ip address replace %s/32 dev %s", h.port, h.inside, h.port)
	for _, o := range others {
		line += fmt.Sprintf("; ip route replace %s dev %s", o.inside, h.port)
	}
	h.sh(line)
}

// echo answers datagrams at the address inside.
func (h *host) echo() {
	h.t.Helper()
	var c *net.UDPConn
	h.do(func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.inside, 7)))
		return err
	})
	done := make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	h.t.Cleanup(func() { c.Close(); <-done })
}

// secret is in every datagram.
const secret = "nobody on the way may read this"

// ask sends a datagram that must not be lost, and waits for its echo, also on a busy machine.
func (h *host) ask(o *host, size int) error { return h.askFor(o, size, ovstest.Timeout()) }

func (h *host) askFor(o *host, size int, wait time.Duration) error {
	var c *net.UDPConn
	h.do(func() (err error) {
		c, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.inside, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.inside, 7)))
		return err
	})
	defer c.Close()
	sent := []byte(secret + strings.Repeat("x", size))[:max(size, len(secret))]
	if _, err := c.Write(sent); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	b := make([]byte, 2000)
	n, err := c.Read(b)
	if err == nil && !bytes.Equal(b[:n], sent) {
		err = fmt.Errorf("the echo is %q", b[:n])
	}
	return err
}

// asked asks until there is an answer.
func (h *host) asked(o *host) {
	h.t.Helper()
	ovstest.Eventually(h.t, "answers come through the tunnel",
		func() error { return errors.Join(h.askFor(o, 0, time.Second), h.askFor(o, 1412, time.Second)) })
}

// capture counts frames on a link: all, frames with the port of WireGuard, and readable ones.
func (h *host) capture(link string) func() (encrypted, clear int) {
	h.t.Helper()
	fd := -1
	h.do(func() (err error) {
		all := int(uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8)
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		i, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: i.Index})
	})
	var encrypted, clear int
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 70000)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			switch {
			case err != nil: // nothing came
				select {
				case <-stop:
					return
				default:
				}
			case bytes.Contains(b[:n], []byte(secret)):
				clear++
			case n > 42 && b[12] == 8 && b[13] == 0 && b[23] == 17 && b[36] == 51821>>8 && b[37] == 51821&0xff:
				encrypted++
			}
		}
	}()
	return func() (int, int) {
		close(stop)
		<-done
		unix.Close(fd)
		return encrypted, clear
	}
}

// connect joins two hosts by a cable.
func connect(a, b *host) {
	a.t.Helper()
	name := fmt.Sprintf("wgtest%d", os.Getpid())
	a.sh(fmt.Sprintf("ip link add eth0 type veth peer name %s; ip address add %s/24 dev eth0; ip link set eth0 up", name,
		a.at.Addr()))
	a.do(func() error { return moveLink(name, b.ns) })
	b.sh(fmt.Sprintf("ip link set %s name eth0; ip address add %s/24 dev eth0; ip link set eth0 up", name, b.at.Addr()))
}

func moveLink(name string, to netns.NsHandle) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetNsFd(link, int(to))
}

// TestTunnel sends packets between two hosts through the available kind of WireGuard, and goes on while managers are
// replaced.
func TestTunnel(t *testing.T) {
	a, b := newHost(t, "a", "192.0.2.1", "10.97.0.0"), newHost(t, "b", "192.0.2.2", "10.98.0.0")
	connect(a, b)
	for _, h := range []*host{a, b} {
		h.serve()
		h.run(Options{})
	}
	a.want(b)
	b.want(a)
	for _, h := range []*host{a, b} {
		h.ready()
	}
	kind := a.manager.State().Kind
	t.Logf("the device is of kind %s", kind)
	if ovstest.System() && kind != Kernel {
		t.Errorf("the kernel has WireGuard, and the device is of kind %q", kind)
	}
	a.address(b)
	b.address(a)
	testTunnel(t, a, b)
}

// TestOneSided has one host behind another that translates its packets and passes only answers. No host reaches its
// announced address. It opens the path itself, and connections from the other host use it too.
func TestOneSided(t *testing.T) {
	a, b := newHost(t, "a", "192.0.2.1", "10.97.0.0"), newHost(t, "b", "203.0.113.2", "10.98.0.0")
	between := newHost(t, "n", "203.0.113.1", "10.99.0.0")
	connect(between, b)
	name := fmt.Sprintf("wgnat%d", os.Getpid())
	between.sh(fmt.Sprintf(
		"ip link add %s type veth peer name eth1; ip address add 192.0.2.254/24 dev eth1; ip link set eth1 up", name))
	between.do(func() error { return moveLink(name, a.ns) })
	a.sh(fmt.Sprintf(
		"ip link set %s name eth0; ip address add 192.0.2.1/24 dev eth0; ip link set eth0 up; ip route add default via "+
			"192.0.2.254", name))
	between.sh(`echo 1 >/proc/sys/net/ipv4/ip_forward
nft 'add table ip t; add chain ip t out { type nat hook postrouting priority 100; }'
nft 'add rule ip t out oifname eth0 masquerade random'
nft 'add chain ip t through { type filter hook forward priority 0; }'
nft 'add rule ip t through iifname eth0 ct state new drop'`)
	b.sh("ip route add 192.0.2.0/24 via 203.0.113.1")
	for _, h := range []*host{a, b} {
		h.serve()
		h.run(Options{})
	}
	a.want(b)
	b.want(a)
	for _, h := range []*host{a, b} {
		h.ready()
	}
	a.address(b)
	b.address(a)
	a.echo()
	if err := b.askFor(a, 0, time.Second); err == nil {
		t.Fatal("packets come through although nothing was let in")
	}
	a.manager.Set(&Desired{PrivateKey: a.key, ListenPort: int(a.at.Port()), Keepalive: time.Second,
		Peers: []Peer{{b.key.Public(), b.at, []netip.Prefix{netip.PrefixFrom(b.inside, 32)}}}})
	b.asked(a) // nothing of a's but what keeps the way open
	ovstest.Eventually(t, "the manager has compared since the handshake", func() error {
		if peers := b.manager.State().Peers; len(peers) != 1 || peers[0].LastHandshake.IsZero() {
			return fmt.Errorf("its peers are %+v", peers)
		}
		return nil
	})
	time.Sleep(5 * resyncOfTests)
	peers := b.manager.State().Peers
	if len(peers) != 1 || peers[0].Endpoint.Addr() != between.at.Addr() {
		t.Errorf("the other host answers to %+v, want %s", peers, between.at.Addr())
	}
	b.asked(a)
	b.stop()
	log := b.run(Options{})
	b.want(a)
	b.ready()
	if err := b.ask(a, 0); err != nil {
		t.Errorf("with a new manager: %v", err)
	}
	time.Sleep(5 * resyncOfTests)
	if text := log.String(); text != "" {
		t.Errorf("a new manager has changed something: %s", text)
	}
}

// TestTunnelForSwitch does the same where what sends knows Ethernet alone.
func TestTunnelForSwitch(t *testing.T) {
	a, b := newHost(t, "a", "192.0.2.1", "10.97.0.0"), newHost(t, "b", "192.0.2.2", "10.98.0.0")
	connect(a, b)
	for i, h := range []*host{a, b} {
		h.serve()
		mac, _ := net.ParseMAC(bridge.MACOf(h.device))
		h.run(Options{HardwareAddr: mac})
		h.want([]*host{b, a}[i])
		h.ready()
		if kind := h.manager.State().Kind; kind != Userspace {
			t.Errorf("kind %q, want %q", kind, Userspace)
		}
		h.address([]*host{b, a}[i])
	}
	testTunnel(t, a, b)
}

func testTunnel(t *testing.T, a, b *host) {
	end := b.capture("eth0")
	b.echo()
	a.echo()
	a.asked(b)
	b.asked(a)

	state := a.manager.State()
	ovstest.Eventually(t, "the handshake is reported", func() error {
		if state = a.manager.State(); len(state.Peers) != 1 || state.Peers[0].LastHandshake.IsZero() ||
			state.Peers[0].Received == 0 {
			return fmt.Errorf("peers %+v", state.Peers)
		}
		return nil
	})
	shaken := state.Peers[0].LastHandshake

	// Another manager finds everything as it wants it.
	a.stop()
	if err := a.ask(b, 0); err != nil {
		t.Errorf("without a manager: %v", err)
	}
	mac := a.manager.opts.HardwareAddr
	log := a.run(Options{HardwareAddr: mac})
	a.want(b)
	a.ready()
	if text := log.String(); text != "" {
		t.Errorf("a new manager has changed something: %s", text)
	}
	if err := a.ask(b, 0); err != nil {
		t.Errorf("with a new manager: %v", err)
	}

	// A peer that comes and one that goes do nothing to others.
	c := &host{t: t, key: testKey(t), at: netip.MustParseAddrPort("192.0.2.3:51821"),
		inside: netip.MustParseAddr("10.99.0.0")}
	a.want(b, c)
	ovstest.Eventually(t, "there is a second peer", func() error {
		if s := a.manager.State(); len(s.Peers) != 2 {
			return fmt.Errorf("peers %+v", s.Peers)
		}
		return nil
	})
	if err := a.ask(b, 0); err != nil {
		t.Errorf("with another peer: %v", err)
	}
	a.want(b)
	ovstest.Eventually(t, "the second peer has gone", func() error {
		if s := a.manager.State(); len(s.Peers) != 1 || !s.Peers[0].LastHandshake.Equal(shaken) {
			return fmt.Errorf("peers %+v, want one with a handshake at %s", s.Peers, shaken)
		}
		return nil
	})

	// The manager reverts changes of other programs.
	a.do(func() error {
		client, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer client.Close()
		return client.ConfigureDevice(a.device, wgtypes.Config{ReplacePeers: true})
	})
	a.asked(b)

	encrypted, clear := end()
	if encrypted == 0 || clear != 0 {
		t.Errorf("%d encrypted packets and %d that one can read have passed", encrypted, clear)
	}

	if a.manager.State().Kind == Userspace {
		a.end()
		a.sh("ip link show " + a.device) // stays, with its routes
		ovstest.Eventually(t, "the manager says what is missing", func() error {
			if p := fmt.Sprint(a.manager.Problems()); !strings.Contains(p, "tombolo-agent wireguard") ||
				a.manager.State().Ready {
				return fmt.Errorf("problems %s", p)
			}
			return nil
		})
		a.serve()
		a.asked(b)
		a.ready()
	}

	a.sh("ip link delete " + a.device)
	ovstest.Eventually(t, "the device is there again", func() error {
		if s := a.manager.State(); !s.Ready || !strings.Contains(log.String(), "added") {
			return fmt.Errorf("state %+v", s)
		}
		return nil
	})
	a.address(b)
	a.asked(b)

	a.manager.Set(nil)
	ovstest.Eventually(t, "the device is gone", func() (err error) {
		a.do(func() error {
			if l, e := netlink.LinkByName(a.device); e == nil {
				err = fmt.Errorf("there is %v", l.Attrs().Name)
			}
			return nil
		})
		return err
	})
}

// TestKeptForSwitch: a device that is a port of a switch stays the same while it is not desired, and then has no key.
func TestKeptForSwitch(t *testing.T) {
	a, b := newHost(t, "a", "192.0.2.1", "10.97.0.0"), newHost(t, "b", "192.0.2.2", "10.98.0.0")
	connect(a, b)
	mac, _ := net.ParseMAC(bridge.MACOf(a.device))
	index := func() (index int) {
		a.do(func() error {
			l, err := netlink.LinkByName(a.device)
			if err == nil {
				index = l.Attrs().Index
			}
			return err
		})
		return index
	}
	a.serve()
	a.run(Options{HardwareAddr: mac, Keep: true})
	a.want(b)
	a.ready()
	was := index()
	emptied := func() {
		t.Helper()
		a.manager.Set(nil)
		ovstest.Eventually(t, "the device is empty", func() (err error) {
			a.do(func() error {
				client, e := wgctrl.New()
				if e != nil {
					return e
				}
				defer client.Close()
				d, e := client.Device(a.device)
				if e == nil && (len(d.Peers) > 0 || d.PrivateKey != (wgtypes.Key{}) || d.ListenPort == int(a.at.Port())) {
					err = fmt.Errorf("%d peers, port %d", len(d.Peers), d.ListenPort)
				}
				return e
			})
			return err
		})
		if now := index(); now != was {
			t.Errorf("it is another one: %d, was %d", now, was)
		}
	}
	emptied()
	a.stop()
	log := a.run(Options{HardwareAddr: mac, Keep: true})
	emptied()
	if text := log.String(); text != "" {
		t.Errorf("a new manager has changed something: %s", text)
	}
	a.want(b)
	a.ready()
	if now := index(); now != was {
		t.Errorf("it is another one: %d, was %d", now, was)
	}
}

// TestTakenName: a link of another kind belongs to another program.
func TestTakenName(t *testing.T) {
	h := newHost(t, "a", "192.0.2.1", "10.97.0.0")
	h.sh("ip link add " + h.device + " type veth peer name other")
	h.run(Options{})
	h.want()
	ovstest.Eventually(t, "the manager reports it", func() error {
		if p := fmt.Sprint(h.manager.Problems()); !strings.Contains(p, "of type veth: remove it") {
			return errors.New(p)
		}
		return nil
	})
	h.manager.Set(nil)
	ovstest.Eventually(t, "nothing is wrong any more", func() error {
		if p := h.manager.Problems(); p != nil {
			return fmt.Errorf("problems %v", p)
		}
		return nil
	})
	h.sh("ip link show " + h.device)
}

// TestTunnelOfSwitch has two switches in userspace send a tunnel of their own through WireGuard.
func TestTunnelOfSwitch(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the switches end with the thread
	a, b := newHost(t, "a", "192.0.2.1", "10.97.0.0"), newHost(t, "b", "192.0.2.2", "10.98.0.0")
	connect(a, b)
	pods := []*host{{t: t, ns: a.ns, inside: netip.MustParseAddr("10.1.0.1")},
		{t: t, ns: b.ns, inside: netip.MustParseAddr("10.1.0.2")}}
	for i, h := range []*host{a, b} {
		other := []*host{b, a}[i]
		mac, _ := net.ParseMAC(bridge.MACOf(h.device))
		h.serve()
		h.run(Options{HardwareAddr: mac})
		h.want(other)
		h.ready()
		if err := netns.Set(h.ns); err != nil {
			t.Fatal(err)
		}
		s := ovstest.Start(t, ovstest.Userspace)
		s.Vsctl("add-br", "inside", "--", "set", "bridge", "inside", "datapath_type=netdev", "other_config:hwaddr="+
			mac.String(), "--", "add-port", "inside", h.device)
		s.Vsctl("add-br", "pods", "--", "set", "bridge", "pods", "datapath_type=netdev",
			"--", "add-port", "pods", "tun0", "--", "set", "interface", "tun0", "type=geneve",
			"options:remote_ip="+other.inside.String(), "options:local_ip="+h.inside.String())
		h.sh(fmt.Sprintf(
			"ip link set %s mtu 1440 up; ip link set inside mtu 1440 up; ip address add 169.254.64.1/30 dev inside; ip "+
				"address add %s/32 dev inside", h.device, h.inside))
		h.sh(fmt.Sprintf(
			"ip route add %s via 169.254.64.2 dev inside src %s; ip link set pods mtu 1390 up; ip address add %s/24 dev pods",
			other.inside, h.inside, pods[i].inside))
	}
	end := b.capture("eth0")
	pods[1].echo()
	ovstest.Eventually(t, "answers come through the tunnel", func() error {
		return errors.Join(pods[0].askFor(pods[1], 0, time.Second), pods[0].askFor(pods[1], 1360, time.Second))
	})
	for range 20 {
		if err := pods[0].ask(pods[1], 1360); err != nil {
			t.Error(err)
		}
	}
	if encrypted, clear := end(); encrypted < 40 || clear != 0 {
		t.Errorf("%d encrypted packets and %d that one can read have passed", encrypted, clear)
	}
}

// TestTunnelOfSwitchAlternates has two switches in userspace send a tunnel through alternating devices, as they do
// while a key changes. Open vSwitch empties its table of routes before it reads them again, and flows that are
// revalidated at that moment drop. So a change may cost a packet; a path without a session would cost 200.
func TestTunnelOfSwitchAlternates(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the switches end with the thread
	a, b := newHost(t, "a", "192.0.2.1", "10.97.0.0"), newHost(t, "b", "192.0.2.2", "10.98.0.0")
	connect(a, b)
	second := map[*host]*host{}
	for _, h := range []*host{a, b} {
		second[h] = &host{t: t, ns: h.ns, device: h.device + "n", key: testKey(t), at: netip.AddrPortFrom(h.at.Addr(), 51822),
			inside: h.inside}
	}
	pods := []*host{{t: t, ns: a.ns, inside: netip.MustParseAddr("10.1.0.1")},
		{t: t, ns: b.ns, inside: netip.MustParseAddr("10.1.0.2")}}
	ways := []string{"169.254.64.2 dev inside", "169.254.64.10 dev second"}
	for i, h := range []*host{a, b} {
		other := []*host{b, a}[i]
		for _, end := range [][2]*host{{h, other}, {second[h], second[other]}} {
			mac, _ := net.ParseMAC(bridge.MACOf(end[0].device))
			end[0].serve()
			end[0].run(Options{HardwareAddr: mac})
			end[0].want(end[1])
			end[0].ready()
		}
		if err := netns.Set(h.ns); err != nil {
			t.Fatal(err)
		}
		s := ovstest.Start(t, ovstest.Userspace)
		for name, end := range map[string]*host{"inside": h, "second": second[h]} {
			s.Vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "other_config:hwaddr="+
				bridge.MACOf(end.device), "--", "add-port", name, end.device)
			h.sh(fmt.Sprintf("ip link set %s mtu 1440 up; ip link set %s mtu 1440 up; ip address add %s/32 dev %s", end.device,
				name, h.inside, name))
		}
		s.Vsctl("add-br", "pods", "--", "set", "bridge", "pods", "datapath_type=netdev",
			"--", "add-port", "pods", "tun0", "--", "set", "interface", "tun0", "type=geneve",
			"options:remote_ip="+other.inside.String(), "options:local_ip="+h.inside.String())
		h.sh("ip address add 169.254.64.1/30 dev inside; ip address add 169.254.64.9/30 dev second")
		h.sh(fmt.Sprintf("ip route add %s via %s src %s; ip link set pods mtu 1390 up; ip address add %s/24 dev pods",
			other.inside, ways[0], h.inside, pods[i].inside))
		// As hostnet does: the switch learns where the next hops are.
		h.sh("ip neigh replace 169.254.64.2 dev inside use; ip neigh replace 169.254.64.10 dev second use")
	}
	pods[1].echo()
	ovstest.Eventually(t, "answers come through the tunnel",
		func() error { return pods[0].askFor(pods[1], 0, time.Second) })

	var c *net.UDPConn
	pods[0].do(func() (err error) {
		c, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(pods[0].inside, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(pods[1].inside, 7)))
		return err
	})
	var answered atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 2000); ; answered.Add(1) {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}()
	sent, changes := 0, 0
	send := func(n int) {
		for range n {
			// No queue may overflow where a program gets no processor for a while.
			ovstest.Eventually(t, "earlier datagrams are answered", func() error {
				if n := sent - int(answered.Load()); n > 50 {
					return fmt.Errorf("%d of %d are not", n, sent)
				}
				return nil
			})
			if _, err := c.Write([]byte(secret)); err != nil {
				t.Error(err)
			}
			sent++
			time.Sleep(2 * time.Millisecond)
		}
	}
	for i := 1; i <= 8; i++ {
		for j, h := range []*host{a, b} {
			send(200)
			h.sh(fmt.Sprintf("ip route replace %s via %s src %s", []*host{b, a}[j].inside, ways[i%2], h.inside))
			changes++
		}
	}
	send(200)
	state := second[a].manager.State()
	// A change may lose the datagram that is on its way.
	ovstest.Eventually(t, "the datagrams are answered", func() error {
		if n := int(answered.Load()); n < sent-changes {
			return fmt.Errorf("%d of %d are, with %d changes", n, sent, changes)
		}
		return nil
	})
	c.Close()
	<-ended
	t.Logf("%d of %d are answered; by the second device have come %+v", answered.Load(), sent, state.Peers)
	if len(state.Peers) != 1 || state.Peers[0].Received < 100_000 {
		t.Errorf("by the second device have come %+v", state.Peers)
	}
}
