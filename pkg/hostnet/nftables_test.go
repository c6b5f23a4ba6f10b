package hostnet

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestGuards: packets to an address are accepted only from the links that guard it, also from a link that is not there
// yet.
func TestGuards(t *testing.T) {
	address, guards := []netip.Prefix{netip.MustParsePrefix("10.97.0.0/32")}, []string{"wg0", "wg1"}
	links := []Link{{Name: "wg0", Addresses: address, Guards: guards}, {Name: "eth0", Addresses: address}}
	chains := contentsOf(knftables.IPv4Family, Desired{Links: links}).chains
	both := contentsOf(knftables.IPv4Family,
		Desired{Links: append(links, Link{Name: "wg1", Addresses: address, Guards: guards})}).chains
	if !slices.Equal(chains[uplinkChain].rules, both[uplinkChain].rules) {
		t.Errorf("with the second link the rules are %q", both[uplinkChain].rules)
	}
	rules := chains[uplinkChain].rules
	if want := []string{`ip daddr 10.97.0.0 iifname != { "wg0", "wg1" } drop`}; !slices.Equal(rules, want) {
		t.Fatalf("rules %q, want %q", rules, want)
	}
	check := exec.Command("unshare", "-n", "nft", "-c", "-f", "-")
	check.Stdin = strings.NewReader("table ip t {\nchain c {\ntype filter hook prerouting priority raw; " +
		rules[0] + "\n}\n}\n")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("nft refuses it: %v: %s", err, out)
	}
}

// TestBehind has a machine on the Nodes' link send packets in the name of a Pod. The host drops them. Packets from the
// gateway port, packets with the machine's own address, and answers to the host's own request pass.
func TestBehind(t *testing.T) {
	t.Parallel()
	far, machine, ns := enter(t), enter(t), enter(t)
	sh(t, "ip link add gw0 address 02:00:00:00:00:09 type veth peer name far && "+
		"ip link add eth1 type veth peer name wire")
	for name, to := range map[string]netns.NsHandle{"far": far, "wire": machine} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetNsFd(link, int(to))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sh(t, "ip addr add 2001:db8::1/64 dev eth1 nodad && ip link set eth1 up")
	inside(t, far, ns, func() {
		sh(t, "ip addr add fd10:0:0:1::7/128 dev far nodad && ip link set far up && ip route add fd10::1 dev far && "+
			"ip neigh add fd10::1 lladdr 02:00:00:00:00:09 dev far && ip route add default via fd10::1")
	})
	inside(t, machine, ns, func() {
		sh(t, "ip addr add fd10:0:0:1::7/128 dev lo && ip addr add 2001:db8::2/64 dev wire nodad && ip link set wire up && "+
			"ip route add default via 2001:db8::1")
	})
	m := run(t, ns, time.Hour)
	want := node6()
	want.Behind = Behind{Sources: prefixes("fd10::/64", "fd10:0:0:1::/64"), Link: "gw0"}
	m.Set(want)
	synced(t, m)
	const pod, other, host = "fd10:0:0:1::7", "2001:db8::2", "2001:db8::1"
	receive := func(port int) *net.UDPConn {
		t.Helper()
		c, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.ParseIP(host), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	send := func(c net.PacketConn, to string, port int) {
		t.Helper()
		if _, err := c.WriteTo([]byte("x"), &net.UDPAddr{IP: net.ParseIP(to), Port: port}); err != nil {
			t.Fatal(err)
		}
	}
	sendFrom := func(where netns.NsHandle, from, to string, port int) {
		t.Helper()
		inside(t, where, ns, func() {
			// A program that another test starts may still have the socket of the packet before, until it is executed.
			reuse := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) {
					_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // without it the port may be in use
				})
			}}
			c, err := reuse.ListenPacket(t.Context(), "udp6", netip.AddrPortFrom(netip.MustParseAddr(from), 9).String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			send(c, to, port)
		})
	}
	// arrives sends the packet, and after it one that always passes.
	last := receive(4999)
	arrives := func(from, to string, port int, seen func() bool) bool {
		t.Helper()
		sendFrom(machine, from, to, port)
		ovstest.Eventually(t, "the packet that passes always arrives", func() error {
			sendFrom(machine, other, host, 4999)
			last.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			_, _, err := last.ReadFrom(make([]byte, 9))
			return err
		})
		return seen()
	}
	sh(t, `nft 'table ip6 seen {
		counter pods { }
		counter others { }
		counter gateways { }
		chain forward { type filter hook forward priority 0;
			iifname "eth1" ip6 saddr fd10:0:0:1::7 counter name pods
			iifname "eth1" ip6 saddr 2001:db8::2 counter name others
			iifname "gw0" ip6 saddr fd10:0:0:1::7 counter name gateways
		}
	}'`)
	counted := func(counter string) func() bool {
		return func() bool {
			return !strings.Contains(sh(t, "nft reset counter ip6 seen "+counter), "packets 0 ")
		}
	}
	got := func(c *net.UDPConn) func() bool {
		return func() bool {
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			_, _, err := c.ReadFrom(make([]byte, 9))
			return err == nil
		}
	}
	asked, unasked := receive(4000), receive(4001)
	check := func(limited bool) {
		t.Helper()
		if !arrives(other, "fd10::2", 80, counted("others")) {
			t.Error("a packet with the machine's own address does not reach a Pod")
		}
		if arrives(pod, "fd10::2", 80, counted("pods")) || arrives(pod, "fd96::10", 80, counted("pods")) {
			t.Error("a packet with a Pod's address reaches a Pod or a Service")
		}
		if arrives(pod, host, 4001, got(unasked)) != limited {
			t.Errorf("a packet with a Pod's address reaches the host: %v, want %v", !limited, limited)
		}
		send(asked, pod, 9)
		if !arrives(pod, host, 4000, got(asked)) {
			t.Error("the answer to the host's own request does not arrive")
		}
	}
	check(false)
	sendFrom(far, pod, other, 80)
	ovstest.Eventually(t, "a Pod's packet from the gateway port is forwarded", func() error {
		if !counted("gateways")() {
			return errors.New("it is not")
		}
		return nil
	})
	want.Behind.To = prefixes("fd10::/64", "fd96::/112")
	m.Set(want)
	synced(t, m)
	check(true)
	want.Behind = Behind{}
	m.Set(want)
	synced(t, m)
	if !arrives(pod, "fd10::2", 80, counted("pods")) {
		t.Error("nothing is dropped any more, and a packet with a Pod's address does not reach a Pod")
	}
}

// TestEgress drops the named packets at a link's egress, also if they are sent below the host's own stack as a
// userspace switch does. All other packets leave. The table is repaired, follows its link, and goes when it is not
// desired.
func TestEgress(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, time.Hour)
	const addUplink = "ip link add eth1 type veth peer name wire && ip link set eth1 up && ip link set wire up"
	sh(t, addUplink)
	want := node()
	want.Egress = []Egress{{Link: "eth1",
		Drop: []netip.Prefix{netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("10.97.0.0/32")}}}
	m.Set(want)
	sh(t, addGateway)
	synced(t, m)
	changes := m.Stats().Changes
	second := run(t, ns, time.Hour)
	second.Set(want)
	synced(t, second)
	if n := second.Stats().Changes; n != 0 {
		t.Errorf("a new manager made %d changes", n)
	}

	passes := func(dst string) bool {
		t.Helper()
		return sendsBelow(t, "eth1", "wire", netip.MustParseAddr(dst))
	}
	kept := func() error {
		for dst, want := range map[string]bool{"240.0.0.1": false, "255.0.0.9": false, "10.97.0.0": false, "10.97.0.1": true,
			"172.18.0.5": true} {
			if passes(dst) != want {
				return fmt.Errorf("a packet to %s passes: %v, want %v\n%s", dst, !want, want, sh(t, "nft list ruleset"))
			}
		}
		return nil
	}
	if err := kept(); err != nil {
		t.Error(err)
	}
	if n := m.Stats().Changes - changes; n != 0 {
		t.Errorf("%d changes while nothing changed", n)
	}
	for _, act := range []string{
		"nft delete table netdev tombolo",
		"nft flush table netdev tombolo",
		"ip link del eth1 && " + addUplink,
	} {
		sh(t, act)
		ovstest.Eventually(t, act+" is mended", kept)
	}

	want.Egress = nil
	for _, m := range []*Manager{m, second} {
		m.Set(want)
		synced(t, m)
	}
	ovstest.Eventually(t, "the table is gone, and the other is not", func() error {
		if out, err := try("nft list table netdev tombolo 2>/dev/null"); err == nil {
			return errors.New(out)
		}
		return difference("ok", sh(t, "nft list table ip tombolo >/dev/null && echo ok"))
	})
	if !passes("240.0.0.1") {
		t.Error("nothing is dropped any more, and a packet to 240.0.0.1 does not pass")
	}
}

// TestEgressRefused: an error names the refused table, and everything else is there. Some kernels accept a link that
// does not exist yet; all refuse a name of more than 15 characters.
func TestEgressRefused(t *testing.T) {
	t.Parallel()
	m := run(t, enter(t), time.Hour)
	sh(t, addGateway)
	want := node()
	want.Egress = []Egress{{Link: "eth9-with-a-long-name", Drop: []netip.Prefix{netip.MustParsePrefix("240.0.0.0/4")}}}
	m.Set(want)
	err := trySync(m, ovstest.Timeout())
	if err == nil ||
		!strings.Contains(err.Error(),
			"nftables table netdev tombolo: set chain egress0 of link eth9-with-a-long-name (Linux 5.16 or later has this "+
				"hook) to ") {
		t.Errorf("the error is %v", err)
	}
	ovstest.Eventually(t, "the other table is there", func() error {
		_, err := try("nft list table ip tombolo | grep masquerade")
		return err
	})
}

// sendsBelow reports whether a UDP packet to dst arrives at the other end, if it is sent through a packet socket on a
// link, as ovs-vswitchd does.
func sendsBelow(t *testing.T, from, to string, dst netip.Addr) bool {
	t.Helper()
	socket := func(name string) int {
		link, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		protocol := bits.ReverseBytes16(unix.ETH_P_IP) // network byte order: these machines have the other
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	out, in := socket(from), socket(to)
	defer unix.Close(out)
	defer unix.Close(in)
	// A frame of Ethernet, IPv4 and UDP to port 6081, and behind it one that always passes. When the second arrives,
	// the first has arrived or was dropped.
	frame := func(dst netip.Addr) []byte {
		b := make([]byte, 14+20+8)
		copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 172, 18, 0, 4})
		copy(b[30:], dst.AsSlice())
		copy(b[34:], []byte{0xc0, 0, 0x17, 0xc1, 0, 8, 0, 0})
		return b
	}
	last := netip.MustParseAddr("172.18.0.99")
	send := func() { // again if both are lost, as on a link that has just come up
		for _, to := range []netip.Addr{dst, last} {
			// A packet that is dropped is an error to the sender (ENOBUFS), as it is to ovs-vswitchd.
			if _, err := unix.Write(out, frame(to)); err != nil && !errors.Is(err, unix.ENOBUFS) {
				t.Fatal(err)
			}
		}
	}
	send()
	if err := unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	buffer, passed, tries := make([]byte, 2048), false, 20
	for {
		n, err := unix.Read(in, buffer)
		if tries--; errors.Is(err, unix.EAGAIN) && tries > 0 {
			send()
			continue
		}
		if err != nil {
			t.Fatalf("the packet that passes always has not come: %v", err)
		}
		if n < 42 {
			continue
		}
		switch arrived, _ := netip.AddrFromSlice(buffer[30:34]); arrived {
		case dst:
			passed = true
		case last:
			return passed
		}
	}
}

// TestElements compares elements of random prefixes with the definition: no prefix is inside another one, and each
// given one is inside one that is there.
func TestElements(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var given []netip.Prefix
		for range r.IntN(12) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.IntN(3) * 64), 1}), 8+r.IntN(25))
			given = append(given, p, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(r.IntN(4))}), 120+r.IntN(9)))
		}
		want := map[string]bool{}
		for _, p := range given {
			widest := p.Masked()
			for _, other := range given {
				if other.Overlaps(widest) && other.Bits() < widest.Bits() {
					widest = other.Masked()
				}
			}
			if text := widest.String(); p.Addr().Is4() {
				want[strings.TrimSuffix(text, "/32")] = true
			}
		}
		if have := elements(given, netip.Addr.Is4); !slices.Equal(have, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("%v: %v, want %v", given, have, slices.Sorted(maps.Keys(want)))
		}
	}
}
