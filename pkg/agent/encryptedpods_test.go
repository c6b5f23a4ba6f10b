package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/child"
)

// secret is part of everything that Pods send.
const secret = "nobody on the wire may read this"

// place is a network namespace: a Node's, or a Pod's.
type place struct {
	t  *testing.T
	ns netns.NsHandle
}

func placeOf(t *testing.T, pid int) place {
	t.Helper()
	ns, err := netns.GetFromPath(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return place{t, ns}
}

// do calls f inside. Sockets that f makes stay there.
func (p place) do(f func() error) {
	p.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		err := netns.Set(p.ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		p.t.Fatal(err)
	}
}

// capture counts the frames on a link: frames of WireGuard, and frames in plain text. It logs the first of the latter.
// Until the socket is bound to the link it receives nothing, since frames of other links are in plain text.
func (p place) capture(link string) (end func() (encrypted, clear int)) {
	p.t.Helper()
	fd := -1
	p.do(func() error {
		i, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		const all = 0x0300 // ETH_P_ALL in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
	})
	var encrypted, clear int
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 65536)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil { // nothing came
				select {
				case <-stop:
					return
				default:
					continue
				}
			}
			frame := b[:n]
			udp := n > 38 && frame[12] == 8 && frame[13] == 0 && frame[23] == unix.IPPROTO_UDP
			switch {
			case bytes.Contains(frame, []byte(secret)), udp && binary.BigEndian.Uint16(frame[36:]) == 6081: // Geneve
				if clear++; clear <= 5 {
					p.t.Logf("%s: frame %d in plain text: %x", time.Now().Format("15:04:05.000"), clear, frame[:min(n, 110)])
				}
			case udp && slices.Contains([]uint16{51820, 51821, 51822, 51823}, binary.BigEndian.Uint16(frame[36:])):
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

// encryptedPod is a Pod that answers all datagrams, and returns all data that it reads from connections.
type encryptedPod struct {
	place
	ip netip.Addr
}

// attach makes a Pod on a side's switch, as the container runtime does.
func (s *rotating) attach(dir, name string) *encryptedPod {
	s.t.Helper()
	holder := child.Namespace(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), long)
	defer cancel()
	answer, err := wire.Call(ctx, filepath.Join(dir, "run", wire.Socket), wire.PathAdd, wire.Request{
		ContainerID: name, IfName: "eth0", Netns: fmt.Sprintf("/proc/%d/ns/net", holder), Path: "/opt/cni/bin",
		Args:   "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + name,
		Config: json.RawMessage(`{"cniVersion":"1.0.0","name":"tombolo","type":"tombolo"}`),
	})
	var result types100.Result
	if err == nil {
		err = json.Unmarshal(answer, &result)
	}
	if err != nil || len(result.IPs) != 1 {
		s.t.Fatalf("attach Pod %s: %v: %s", name, err, answer)
	}
	ip, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
	p := &encryptedPod{placeOf(s.t, holder), ip.Unmap()}
	var c *net.UDPConn
	var l net.Listener
	p.do(func() (err error) {
		if c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.ip, 7))); err == nil {
			l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.ip, 7)))
		}
		return err
	})
	var accepting, answering sync.WaitGroup
	var open []net.Conn // their other ends may be gone without a word
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
			answering.Go(func() { _, _ = io.Copy(c, c) })
		}
	})
	s.t.Cleanup(func() {
		l.Close()
		accepting.Wait()
		for _, c := range open {
			c.Close()
		}
		answering.Wait()
	})
	roomy(c)
	done := make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	s.t.Cleanup(func() { c.Close(); <-done })
	return p
}

func (p *encryptedPod) dial(to *encryptedPod) (c *net.UDPConn) {
	p.t.Helper()
	p.do(func() (err error) {
		c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.ip, 7)))
		return err
	})
	return c
}

// ask sends a datagram of a size and waits for the answer.
func (p *encryptedPod) ask(to *encryptedPod, size int, wait time.Duration) error {
	c := p.dial(to)
	defer c.Close()
	if _, err := c.Write([]byte(secret + strings.Repeat("x", size-len(secret)))); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	n, err := c.Read(make([]byte, 2000))
	if err == nil && n != size {
		err = fmt.Errorf("the answer has %d bytes, want %d", n, size)
	}
	return err
}

// again is the time after which a client repeats a datagram. An emulated guest takes up to a second for an answer.
const again = 5 * time.Second

// reach opens a connection and waits for an answer. If there is no answer, it repeats the datagram, as clients do, and
// returns how often that was. A connection that carries nothing is an error after ovstest.Timeout().
func (p *encryptedPod) reach(to *encryptedPod, size int) (lost int, err error) {
	c := p.dial(to)
	defer c.Close()
	answer := make([]byte, 2000)
	for deadline := time.Now().Add(ovstest.Timeout()); time.Now().Before(deadline); lost++ {
		if _, err := c.Write([]byte(secret + strings.Repeat("x", size-len(secret)))); err != nil {
			return lost, err
		}
		_ = c.SetReadDeadline(time.Now().Add(again))
		n, err := c.Read(answer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err == nil && n != size:
			err = fmt.Errorf("the answer has %d bytes, want %d", n, size)
		}
		return lost, err
	}
	return lost, fmt.Errorf("%v to %v: none of %d datagrams was answered", c.LocalAddr(), c.RemoteAddr(), lost)
}

// load sends a datagram every few milliseconds until the returned function is called. That returns how many were sent,
// and how many had no answer.
func (p *encryptedPod) load(to *encryptedPod) (end func() (sent, lost int)) {
	p.t.Helper()
	c := p.dial(to)
	roomy(c)
	answered := map[uint32]bool{}
	var both sync.WaitGroup
	both.Go(func() {
		for b := make([]byte, 2000); ; {
			n, err := c.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if n > 4 {
				answered[binary.BigEndian.Uint32(b)] = true
			}
		}
	})
	stop := make(chan bool)
	sent := uint32(0)
	both.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				time.Sleep(time.Second) // for datagrams on the wire
				c.Close()
				return
			case <-tick.C:
			}
			_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, sent), secret...))
			sent++
		}
	})
	return func() (int, int) {
		close(stop)
		both.Wait()
		return int(sent), int(sent) - len(answered)
	}
}

// wholeSides starts whole agents of two Nodes, or of the Gateways of two clusters. They have their switches, on a wire
// that must carry no plain text. The kernel's datapath uses the kernel's WireGuard if there is one.
func wholeSides(t *testing.T, nodes bool) (s *rotatingSides, dirs []string, switches []*ovstest.Switch) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread stays in another network namespace
	s = &rotatingSides{t: t, whole: true, noInside: true}
	for i := range 2 {
		dir, err := os.MkdirTemp("", "pods") // t.TempDir's names are too long for sockets
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		dirs = append(dirs, dir)
		s.all = append(s.all, startRotating(t, sideName(i), sideSpec{Dir: dir, Nodes: nodes, Self: i, Whole: true}))
	}
	a, b := s.all[0], s.all[1]
	a.sh(fmt.Sprintf("ip link add wire type veth peer name wire netns %d", b.cmd.Process.Pid))
	for i, side := range s.all {
		// The default route leads to the other side, on the wire. It takes packets that have no other route.
		side.sh(fmt.Sprintf(
			"ip link set lo up; ip address add %s/24 dev wire; ip link set wire up; ip route add default via %s", sideAddress(i),
			sideAddress(1-i)))
		if err := netns.Set(placeOf(t, side.cmd.Process.Pid).ns); err != nil {
			t.Fatal(err)
		}
		ovs := ovstest.Start(t, ovstest.Userspace)
		switches = append(switches, ovs)
		s.set(func() {
			side.order.Switch = ovs.RunDir()
			s.deliver(side)
		})
	}
	s.announce()
	for _, side := range s.all {
		side.until("it is ready, and knows the other", long, func(r sideReport) bool { return r.Ready && r.Peers == 1 })
		side.kernels()
	}
	return s, dirs, switches
}

// probedWhole returns an error until the probes of an agent's only way have come back, one with the size of the largest
// packet of a Pod.
func probedWhole(t *testing.T, dir string) error {
	t.Helper()
	var p api.Probes
	if err := askSocket(filepath.Join(dir, "run", api.Socket), api.PathProbes, &p); err != nil {
		return err
	}
	if len(p.Ways) != 1 || p.Ways[0].P50Seconds == 0 || p.Ways[0].Size != 1390 || p.Ways[0].MTU != 1390 {
		return fmt.Errorf("the results are %+v", p)
	}
	return nil
}

// askSocket reads a path of an agent's debug API.
func askSocket(socket, path string, to any) error {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	answer, err := client.Get("http://agent" + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(to)
}

// TestEncryptedPods lets Pods of two Nodes, and Pods of two clusters, exchange data. It also reads the frames on the
// wire.
//
//tombolo:alone
func TestEncryptedPods(t *testing.T) {
	inParallel(t)
	for name, nodes := range map[string]bool{"between Nodes": true, "between clusters": false} {
		t.Run(name, func(t *testing.T) {
			inParallel(t)
			encryptedPods(t, nodes)
		})
	}
}

func encryptedPods(t *testing.T, nodes bool) {
	s, dirs, switches := wholeSides(t, nodes)
	a, b := s.all[0], s.all[1]
	end := placeOf(t, a.cmd.Process.Pid).capture("wire")
	one, other := a.attach(dirs[0], "one"), b.attach(dirs[1], "other")
	const largest = 1390 - 28 // the part of the wire's 1500 bytes that is left for Pods
	answered := func(what string) {
		t.Helper()
		ovstest.Eventually(t, what, func() error {
			return errors.Join(one.ask(other, 100, time.Second), other.ask(one, largest, time.Second))
		})
		// From then on every new connection works. While flows change, the switch loses a packet that is on its way through
		// the tables. Such a datagram is sent once more.
		lost := 0
		for range 10 {
			there, err := one.reach(other, largest)
			back, errBack := other.reach(one, 100)
			if err := errors.Join(err, errBack); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			lost += there + back
		}
		if lost > 2 {
			t.Errorf("%s: %d datagrams of 20 connections were lost", what, lost)
		}
	}
	watched := func() {
		t.Helper()
		for i, ovs := range switches {
			far := netip.MustParseAddr(sideInside(1 - i))
			ovs.Eventually("BFD goes through WireGuard", func() error {
				if state := strings.TrimSpace(
					ovs.Vsctl("--if-exists", "get", "interface", wayPort(far), "bfd_status:state")); state != "up" {
					return fmt.Errorf("on side %s it is %q", s.all[i].name, state)
				}
				return nil
			})
		}
	}
	answered("Pods talk")
	if !nodes {
		// The ends have each other's inside addresses from the bases of the Service ranges. They learn the final addresses
		// while Pods exchange data. A packet that is translated to an earlier address gets no answer any more, and certainly
		// no answer in plain text.
		loads := []func() (int, int){one.load(other), other.load(one)}
		s.set(func() { s.noInside = false })
		watched()
		time.Sleep(time.Second)
		for _, end := range loads {
			sent, lost := end()
			t.Logf("%d datagrams were sent while addresses inside came, and %d of them lost", sent, lost)
		}
		answered("Pods talk by the addresses inside")
		for _, dir := range dirs {
			ovstest.Eventually(t, "the way is probed through WireGuard", func() error { return probedWhole(t, dir) })
		}

		// If there is no key or no Gateway, there is no way, and no plain text.
		closed := func(what string, knows func(sideReport) bool, sides ...*rotating) {
			t.Helper()
			for _, side := range sides {
				side.until(what, long, knows)
			}
			silent := func() error {
				if one.ask(other, 100, 200*time.Millisecond) == nil || other.ask(one, 100, 200*time.Millisecond) == nil {
					return errors.New("there is an answer")
				}
				return nil
			}
			ovstest.Eventually(t, what, silent)
			for range 5 {
				if err := silent(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		noPeers := func(r sideReport) bool { return r.Peers == 0 }
		s.set(func() { s.noKey = true })
		closed("no cluster has a key", noPeers, a, b)
		s.set(func() { s.noKey = false })
		watched()
		answered("Pods talk by a key that is there again")
		gateway := func(is bool) {
			s.set(func() {
				a.order.Ordinary = !is
				s.deliver(a)
			})
		}
		gateway(false)
		closed("a cluster has no Gateway", noPeers, a)
		gateway(true)
		watched()
		answered("Pods talk by a Gateway that is one again")
	}

	// Both keys change while Pods exchange data. A userspace switch stops for a moment to take in a bridge. An emulated
	// guest stops while the machine is busy. Packets that arrive at such a time may be dropped. A broken way would lose
	// all packets for seconds.
	const few = 60 // 0.3 s
	loads := []func() (int, int){one.load(other), other.load(one)}
	s.change(a, b)
	for _, end := range loads {
		sent, lost := end()
		t.Logf("%d datagrams were sent, and %d of them lost", sent, lost)
		if sent < 100 || lost > few {
			t.Errorf("%d of %d datagrams were lost", lost, sent)
		}
	}

	// A userspace switch reads its routes again when a link comes or goes. Until it is done, it may use the default route.
	if !ovstest.System() {
		loads := []func() (int, int){one.load(other), other.load(one)}
		for _, side := range s.all {
			side.sh("for i in $(seq 100); do ip link add churn type veth peer name turned && ip link set churn up && ip link " +
				"delete churn; done")
		}
		for _, end := range loads {
			sent, lost := end()
			t.Logf("%d datagrams were sent while links came and went, and %d of them lost", sent, lost)
			if sent < 100 || lost > sent/2 {
				t.Errorf("%d of %d datagrams were lost while links came and went", lost, sent)
			}
		}
	}

	// Without device and agent no plain text is sent. Afterwards all connections continue.
	if ovstest.System() { // a userspace switch keeps its device; see TestNode/encrypted
		s.order(a, sideOrder{Away: true})
		first, _ := sideSpec{Nodes: nodes}.links()
		a.sh("ip link delete " + first.name)
		for range 5 {
			if one.ask(other, 100, 200*time.Millisecond) == nil || other.ask(one, 100, 200*time.Millisecond) == nil {
				t.Error("there is an answer while nothing encrypts")
			}
		}
		s.order(a, sideOrder{Restart: true})
		answered("Pods talk again with another device")
		if !nodes {
			watched()
		}
	}
	if encrypted, clear := end(); encrypted < 100 || clear != 0 {
		t.Errorf("%d frames of WireGuard have passed, and %d that one can read", encrypted, clear)
	}
}
