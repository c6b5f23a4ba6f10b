package datapath

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
	"github.com/tombolo-net/tombolo/test/child"
)

// withOthers lets a test that mostly waits run at the same time as others of the kind. All switches share the
// kernel's datapath, so there it runs alone.
func withOthers(t *testing.T) {
	t.Helper()
	if !ovstest.System() {
		t.Parallel()
	}
}

// namespace is a network namespace that lives as long as a process of the test. So it does not remain, however the test
// ends.
type namespace struct{ pid int }

func newNamespace(t testing.TB) namespace {
	t.Helper()
	n := namespace{child.Namespace(t)}
	n.ip(t, "link set lo up")
	return n
}

func (n namespace) path() string { return fmt.Sprintf("/proc/%d/ns/net", n.pid) }

// ip runs commands of ip(8) inside, all in one process.
func (n namespace) ip(t testing.TB, commands ...string) {
	t.Helper()
	n.feed(t, strings.Join(commands, "\n"), "ip", "-batch", "-")
}

func (n namespace) run(t testing.TB, args ...string) {
	t.Helper()
	n.feed(t, "", args...)
}

// feed runs a program inside with an input.
func (n namespace) feed(t testing.TB, input string, args ...string) {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + n.path()}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, input, out)
	}
}

// do calls f in the namespace. Sockets that f makes stay there.
func (n namespace) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := netns.GetFromPath(n.path())
	if err != nil {
		return err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return err
	}
	defer func() {
		if err := netns.Set(home); err != nil {
			panic(err) // the thread must not be used again
		}
	}()
	return f()
}

// wholeChecksums makes the kernel compute checksums itself: the userspace datapath forwards packets as it reads them.
func (n namespace) wholeChecksums(t testing.TB, link string) {
	t.Helper()
	err := n.do(func() error { return rtnetlink.SwitchOff(link, rtnetlink.ChecksumOffload) })
	if err != nil {
		t.Fatalf("turn checksum offload of %s off: %v", link, err)
	}
}

// mute brings a link of the userspace datapath up and keeps the kernel's own stack from answering packets there. The
// kernel sees every packet that Open vSwitch reads, and would answer ARP requests for any address of the host.
func (n namespace) mute(t testing.TB, link string) {
	t.Helper()
	n.run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/"+link+"/disable_ipv6")
	n.ip(t, "link set "+link+" arp off up")
}

// serve answers each connection, or datagram, with the server's name and the client's address.
func (n namespace) serve(t testing.TB, network, address, name string) {
	t.Helper()
	err := n.do(func() error {
		if strings.HasPrefix(network, "udp") {
			c, err := net.ListenPacket(versioned(network), address)
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				buf := make([]byte, 100)
				for {
					_, from, err := c.ReadFrom(buf)
					if err != nil {
						return
					}
					_, _ = c.WriteTo(greeting(name, from), from)
				}
			}()
			return nil
		}
		l, err := listen(network, address)
		if err != nil {
			return err
		}
		accept(t, l, func(c net.Conn) {
			r := bufio.NewReader(c)
			for {
				if _, err := r.ReadString('\n'); err != nil {
					return
				}
				if _, err := c.Write(greeting(name, c.RemoteAddr())); err != nil {
					return
				}
			}
		})
		return nil
	})
	if err != nil {
		t.Fatalf("serve %s %s: %v", network, address, err)
	}
}

// accept serves connections, each by itself, until the test ends.
func accept(t testing.TB, l net.Listener, serve func(net.Conn)) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

// replyTimeout is how long a client waits for an answer that has to come.
func replyTimeout() time.Duration { return ovstest.Timeout() }

// silence is how long a client waits for an answer that may not come. It passes whole where no answer comes.
func silence() time.Duration {
	if ovstest.System() {
		return 12 * time.Second
	}
	return 2 * time.Second
}

// versioned returns a network with its version of IP, which is IPv4 for "tcp" and "udp".
func versioned(network string) string {
	if strings.HasSuffix(network, "6") {
		return network
	}
	return network + "4"
}

// listen listens for connections by TCP or SCTP.
func listen(network, address string) (net.Listener, error) {
	if network != "sctp" {
		return net.Listen(versioned(network), address)
	}
	f, err := socketSCTP(address, func(fd int, at unix.Sockaddr) error {
		if err := unix.Bind(fd, at); err != nil {
			return err
		}
		return unix.Listen(fd, 8)
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

func dialSCTP(address string, limit time.Duration) (net.Conn, error) {
	f, err := socketSCTP(address, func(fd int, at unix.Sockaddr) error {
		value := unix.NsecToTimeval(limit.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &value); err != nil {
			return err
		}
		return unix.Connect(fd, at)
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// socketSCTP makes a one-to-one socket. Package net then takes it for a socket of TCP: both are streams between two
// addresses with ports.
func socketSCTP(address string, use func(fd int, at unix.Sockaddr) error) (*os.File, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	at := &unix.SockaddrInet4{Port: int(number)}
	if host != "" {
		at.Addr = netip.MustParseAddr(host).As4()
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, fmt.Errorf("SCTP socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sctp")
	if err := use(fd, at); err != nil {
		f.Close()
		return nil, fmt.Errorf("SCTP %s: %w", address, err)
	}
	return f, nil
}

func greeting(name string, from net.Addr) []byte {
	return []byte(name + " " + netip.MustParseAddrPort(from.String()).Addr().String() + "\n")
}

// dial connects from the namespace to what has to answer.
func (n namespace) dial(network, address string) (net.Conn, error) {
	return n.dialWithin(replyTimeout(), network, address)
}

// dialWithin connects from the namespace.
func (n namespace) dialWithin(limit time.Duration, network, address string) (net.Conn, error) {
	var c net.Conn
	err := n.do(func() error {
		var err error
		if network == "sctp" {
			c, err = dialSCTP(address, limit)
		} else {
			c, err = dialFrom(int(20000+clientPorts.Add(1)%12000), versioned(network), address, limit)
		}
		return err
	})
	return c, err
}

// clientPorts counts the ports of clients. A client may connect to a Service and, from the same port, to an endpoint of
// the Service. Both answers would have the same addresses and ports, and the kernel's datapath refuses the later
// connection for as long as it remembers the earlier one. So each connection gets a port of its own, below the ports
// that the system assigns.
var clientPorts atomic.Uint32

func dialFrom(port int, network, address string, limit time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: limit, LocalAddr: &net.TCPAddr{Port: port}}
	if strings.HasPrefix(network, "udp") {
		d.LocalAddr = &net.UDPAddr{Port: port}
	}
	return d.Dial(network, address)
}

// ask connects, sends two lines one after the other and returns the answer, which must be the same both times. The
// second line goes through an established connection.
func (n namespace) ask(network, address string) (string, error) {
	return n.askWithin(replyTimeout(), network, address)
}

// askWithin does the same with a limit for each answer.
func (n namespace) askWithin(limit time.Duration, network, address string) (string, error) {
	c, err := n.dialWithin(limit, network, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var answers [2]string
	r := bufio.NewReader(c)
	for i := range answers {
		if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
			return "", err
		}
		if _, err := c.Write([]byte("who are you, and who am I?\n")); err != nil {
			return "", err
		}
		if answers[i], err = r.ReadString('\n'); err != nil {
			return "", err
		}
	}
	if answers[0] != answers[1] {
		return "", fmt.Errorf("the connection was answered %q and then %q", answers[0], answers[1])
	}
	return strings.TrimSpace(answers[0]), nil
}
