package hostnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// enter makes a network namespace and puts the test's thread into it. The namespace has no
// name: it ends with the test.
func enter(t *testing.T) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("make a network namespace (root is needed): %v", err)
	}
	t.Cleanup(func() { ns.Close() })
	sh(t, "ip link set lo up")
	return ns
}

// sh runs a command line, which has to succeed, in the namespace of the test's thread.
func sh(t testing.TB, line string) string {
	t.Helper()
	out, err := try(line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func try(line string) (string, error) {
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// run starts a manager in a namespace.
func run(t *testing.T, ns netns.NsHandle, resync time.Duration) *Manager {
	t.Helper()
	m, _ := start(t, ns, resync)
	return m
}

// start runs a manager until stop is called, or the test ends.
func start(t *testing.T, ns netns.NsHandle, resync time.Duration) (m *Manager, stop func()) {
	t.Helper()
	return startWith(t, New(Options{Namespace: &ns, Resync: resync}))
}

// startWith runs a manager that a test has prepared.
func startWith(t *testing.T, m *Manager) (_ *Manager, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return m, stop
}

func trySync(m *Manager, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return m.Synced(ctx)
}

func synced(t *testing.T, m *Manager) {
	t.Helper()
	if err := trySync(m, ovstest.Timeout()); err != nil {
		t.Fatal(err)
	}
}

// node is what the agent declares for a Node.
func node() Desired {
	vip := netip.MustParseAddr("169.254.0.253")
	own := netip.MustParseAddr("10.10.0.1")
	return Desired{
		Links: []Link{{Name: "gw0", MTU: 1450, Up: true, Addresses: []netip.Prefix{netip.PrefixFrom(own, 24)}}},
		Routes: []Route{
			{Dst: netip.MustParsePrefix("10.96.0.0/16"), Gateway: vip, Link: "gw0", Source: own, OnLink: true},
			{Dst: netip.MustParsePrefix("10.10.1.0/24"), Gateway: vip, Link: "gw0", Source: own, OnLink: true},
			{Dst: netip.PrefixFrom(vip, 32), Link: "gw0", Source: own},
		},
		Forwarded: []Route{{Dst: netip.MustParsePrefix("10.10.0.0/24"), Gateway: vip, Link: "gw0", OnLink: true}},
		Neighbors: []Neighbor{{Link: "gw0", Address: vip, MAC: "aa:bb:cc:dd:ee:ff"}},
		Sysctls:   map[string]string{"net/ipv4/ip_forward": "1", "net/ipv4/conf/gw0/rp_filter": "2"},
		Masquerade: Masquerade{
			Sources: []netip.Prefix{netip.PrefixFrom(vip, 32), netip.MustParsePrefix("10.10.0.0/24"),
				netip.MustParsePrefix("10.10.0.0/25")},
			Except:     []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16")},
			ExceptLink: "gw0",
		},
	}
}

// kernel is all that node() asks for, as the system's own tools print it.
func kernel() string {
	var b strings.Builder
	for _, line := range []string{
		"ip -4 -o addr show dev gw0 | grep -o 'inet [^ ]*'",
		"ip -o link show up dev gw0 | grep -o 'mtu [0-9]*'",
		"ip route show proto 0x74 | sort",
		"ip route show table 116; ip rule show | grep -w 116",
		"ip neigh show nud permanent dev gw0",
		"cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/gw0/rp_filter",
		"nft list table ip tombolo | grep -v '^table'",
	} {
		out, err := try(line)
		if err != nil {
			out = err.Error()
		}
		b.WriteString(out + "\n")
	}
	return b.String()
}

const addGateway = "ip link add gw0 type veth peer name gw0p && ip link set gw0p up"

func TestNode(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, time.Hour)
	m.Set(node())

	// The link is missing: everything else is done, and the error names the link.
	ovstest.Eventually(t, "the wait says what for", func() error {
		if err := trySync(m, 100*time.Millisecond); err == nil ||
			!strings.Contains(err.Error(), "link gw0: it does not exist yet") {
			return fmt.Errorf("error is %w", err)
		}
		return nil
	})
	if got := sh(t, "cat /proc/sys/net/ipv4/ip_forward"); got != "1" {
		t.Errorf("ip_forward is %s", got)
	}

	sh(t, addGateway)
	synced(t, m)
	want := kernel()
	for _, part := range []string{
		"10.10.0.1/24", "mtu 1450",
		"10.96.0.0/16 via 169.254.0.253 dev gw0 src 10.10.0.1 onlink",
		"169.254.0.253 dev gw0 scope link src 10.10.0.1",
		"169.254.0.253 lladdr aa:bb:cc:dd:ee:ff",
		`oifname != "gw0" ip saddr @sources ip daddr != @except masquerade fully-random`,
		"elements = { 10.10.0.0/24, 169.254.0.253 }",
	} {
		if !strings.Contains(want, part) {
			t.Errorf("kernel lacks %q:\n%s", part, want)
		}
	}

	// The second time there is nothing to do, and nothing for a new manager either.
	changes := m.Stats().Changes
	m.Set(node())
	synced(t, m)
	if n := m.Stats().Changes - changes; n != 0 {
		t.Errorf("the second sync made %d changes", n)
	}
	second := run(t, ns, time.Hour)
	second.Set(node())
	synced(t, second)
	if n := second.Stats().Changes; n != 0 {
		t.Errorf("a new manager made %d changes", n)
	}
	if p := second.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
}

func TestLinkComesBack(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, time.Hour)
	m.Set(node())
	sh(t, addGateway)
	synced(t, m)
	want := kernel()

	for range 5 { // long before the next resync
		sh(t, "ip link del gw0")
		sh(t, addGateway)
		ovstest.Eventually(t, "gw0 has its routes again", func() error {
			_, err := try("ip route get 10.96.0.10 | grep -q 'dev gw0'")
			return err
		})
		ovstest.Eventually(t, "gw0 is as before", func() error {
			return difference(want, kernel())
		})
	}
}

// node6 is a Node with IPv6 too.
func node6() Desired {
	d := node()
	vip, own := netip.MustParseAddr("fc01::aabb:ccdd:eeff"), netip.MustParseAddr("fd10::1")
	d.Links[0].Addresses = append(d.Links[0].Addresses, netip.PrefixFrom(own, 64))
	d.Routes = append(d.Routes,
		Route{Dst: netip.MustParsePrefix("fd96::/112"), Gateway: vip, Link: "gw0", Source: own, OnLink: true},
		Route{Dst: netip.MustParsePrefix("fd10:0:0:1::/64"), Gateway: vip, Link: "gw0", Source: own, OnLink: true},
		Route{Dst: netip.PrefixFrom(vip, 128), Link: "gw0", Source: own})
	d.Forwarded = append(d.Forwarded,
		Route{Dst: netip.MustParsePrefix("fd10::/64"), Gateway: vip, Link: "gw0", OnLink: true})
	d.Neighbors = append(d.Neighbors, Neighbor{Link: "gw0", Address: vip, MAC: "aa:bb:cc:dd:ee:ff"},
		Neighbor{Link: "gw0", Address: netip.MustParseAddr("fd10::2"), MAC: "02:00:00:00:00:02"})
	d.Sysctls["net/ipv6/conf/gw0/accept_ra"], d.Sysctls[forwarding6] = "0", "1"
	d.Masquerade.Sources = append(d.Masquerade.Sources, netip.MustParsePrefix("fd10::/64"))
	d.Masquerade.Except = append(d.Masquerade.Except, netip.MustParsePrefix("fd10::/56"))
	return d
}

// advertiseRouter sends a router advertisement of fe80::99 through a packet socket on a link.
func advertiseRouter(t *testing.T, from string) {
	t.Helper()
	link, err := net.InterfaceByName(from)
	if err != nil {
		t.Fatal(err)
	}
	protocol := bits.ReverseBytes16(unix.ETH_P_IPV6) // network byte order: these machines have the other
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(protocol))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}); err != nil {
		t.Fatal(err)
	}
	router, all := netip.MustParseAddr("fe80::99").As16(), netip.MustParseAddr("ff02::1").As16()
	message := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0} // a router for 1,800 s
	sum := uint32(0)
	for covered := slices.Concat(router[:], all[:], []byte{0, 0, 0, 16, 0, 0, 0, 58}, message); len(covered) > 0; {
		sum += uint32(covered[0])<<8 | uint32(covered[1])
		covered = covered[2:]
	}
	sum = sum&0xffff + sum>>16
	message[2], message[3] = ^byte(sum>>8), ^byte(sum)
	frame := slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0x99, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 58, 255},
		router[:], all[:], message)
	if _, err := unix.Write(fd, frame); err != nil {
		t.Fatal(err)
	}
}

// kernel6 is the part of node6() that is of IPv6. An address that is "tentative" or "dadfailed" cannot be used.
func kernel6() string {
	var b strings.Builder
	for _, line := range []string{
		"ip -6 -o addr show dev gw0 scope global | sed 's/.*inet6 //'",
		"ip -6 -o addr show dev gw0 scope link | grep -c fe80",
		"ip -6 route show proto 0x74 | sort",
		"ip -6 route show table 116; ip -6 rule show | grep -w 116",
		"ip -6 neigh show nud permanent dev gw0 | grep -v ^ff | sort",
		"cat /proc/sys/net/ipv6/conf/gw0/accept_ra /proc/sys/net/ipv6/conf/all/forwarding",
		"ip -6 route show default dev other | sed 's/ expires.*//'; cat /proc/sys/net/ipv6/conf/other/accept_ra",
		"nft list table ip6 tombolo | grep -v comment; nft list table ip6 tombolo | grep -c masquerade",
	} {
		out, err := try(line)
		if err != nil {
			out = err.Error()
		}
		b.WriteString(out + "\n")
	}
	return b.String()
}

// TestNode6 has a Node with both families, and changes the part of IPv6 from outside. If IPv6 goes, its routes and
// its rule go, and IPv4 stays as it is.
func TestNode6(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, 200*time.Millisecond)
	sh(t, addGateway)
	sh(t, "ip link add other address 02:00:00:00:00:01 type veth peer name otherp && ip link set other up && ip link set "+
		"otherp up")
	ovstest.Eventually(t, "the Node has a route from a router", func() error {
		advertiseRouter(t, "otherp")
		_, err := try("ip -6 route show default dev other | grep 'proto ra'")
		return err
	})
	m.Set(node6())
	synced(t, m)
	ovstest.Eventually(t, "gw0 has an address of its link", func() error {
		_, err := try("ip -6 -o addr show dev gw0 scope link | grep fe80 | grep -v tentative")
		return err
	})
	want := kernel6()
	for _, part := range []string{
		"fd10::1/64 scope global nodad",
		"fd96::/112 via fc01::aabb:ccdd:eeff dev gw0 src fd10::1",
		"fd10::/64 via fc01::aabb:ccdd:eeff dev gw0 proto 116",
		"not from all iif lo lookup 116",
		"fc01::aabb:ccdd:eeff lladdr aa:bb:cc:dd:ee:ff", "fd10::2 lladdr 02:00:00:00:00:02",
		"default via fe80::99 proto ra metric 1024\n2\n", // the route of the router has stayed
		"elements = { fd10::/64 }", "elements = { fd10::/56 }",
	} {
		if !strings.Contains(want, part) {
			t.Errorf("kernel lacks %q:\n%s", part, want)
		}
	}
	for _, act := range []string{
		"ip addr del fd10::1/64 dev gw0",
		"ip addr add fd99::1/64 dev gw0",
		"ip -6 route del fd96::/112",
		"ip -6 route add fd97::/112 dev gw0 proto 0x74",
		"ip -6 rule del priority 29696",
		"ip -6 route flush table 116",
		"ip neigh del fc01::aabb:ccdd:eeff dev gw0",
		"ip neigh replace fd10::2 lladdr 02:00:00:00:00:01 dev gw0 nud permanent",
		"ip neigh add fd10::7 lladdr 02:00:00:00:00:07 dev gw0",
		"echo 1 > /proc/sys/net/ipv6/conf/gw0/accept_ra",
		"nft flush chain ip6 tombolo postrouting", "nft delete table ip6 tombolo",
		"ip link set gw0 down", // which removes all of IPv6
	} {
		sh(t, act)
		ovstest.Eventually(t, act+" is mended", func() error { return difference(want, kernel6()) })
	}
	changes := m.Stats().Changes
	m.Set(node6())
	synced(t, m)
	if n := m.Stats().Changes - changes; n != 0 {
		t.Errorf("the second sync made %d changes", n)
	}
	four := kernel()
	m.Set(node())
	synced(t, m)
	ovstest.Eventually(t, "IPv6 is gone", func() error {
		if out, _ := try("ip -6 route show table all proto 0x74; ip -6 rule show | grep -w 116; " +
			"nft list table ip6 tombolo 2>/dev/null"); out != "" {
			return fmt.Errorf("left: %s", out)
		}
		return nil
	})
	// The permanent neighbours of IPv6 were among the lines of the gateway port.
	ovstest.Eventually(t, "IPv4 is as before", func() error { return difference(without6(four), without6(kernel())) })
}

// TestAcceptRouters: links with a route from router advertisements accept them while the host forwards. So does
// RouterLink, which has no such route yet. They do so again if a program changes that, or a link is made again. Other
// links are left alone.
func TestAcceptRouters(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, 200*time.Millisecond)
	sh(t, addGateway)
	addLink := func(name string) {
		t.Helper()
		sh(t, fmt.Sprintf("ip link add %[1]s type veth peer name %[1]sp && ip link set %[1]s up && "+
			"ip link set %[1]sp up", name))
	}
	for _, name := range []string{"had", "none", "off", "later", "port"} {
		addLink(name)
	}
	sh(t, "echo 0 > /proc/sys/net/ipv6/conf/off/accept_ra")
	hears := func(link string) func() error {
		return func() error {
			advertiseRouter(t, link+"p")
			_, err := try("ip -6 route show default dev " + link + " | grep 'proto ra'")
			return err
		}
	}
	accepts := func(want string) func() error {
		return func() error {
			have, err := try("cd /proc/sys/net/ipv6/conf && for l in had none off later port; do cat $l/accept_ra; done")
			have = strings.Join(strings.Fields(have), " ")
			if err == nil && have != want {
				err = fmt.Errorf("accept_ra is %q, want %q", have, want)
			}
			return err
		}
	}
	ovstest.Eventually(t, "there is a route from a router", hears("had"))
	ovstest.Eventually(t, "the port has a route from a router", hears("port"))
	d := node6()
	d.RouterLink = "later"
	d.Links = append(d.Links, Link{Name: "port", NoAddresses: true})
	m.Set(d)
	synced(t, m)
	if err := accepts("2 1 0 2 1")(); err != nil {
		t.Error(err)
	}
	ovstest.Eventually(t, "the first advertisement on a host that forwards is accepted", hears("later"))
	for _, link := range []string{"had", "later"} {
		sh(t, "echo 1 > /proc/sys/net/ipv6/conf/"+link+"/accept_ra")
		ovstest.Eventually(t, link+" accepts advertisements again", accepts("2 1 0 2 1"))
		sh(t, "ip link del "+link)
		addLink(link)
		ovstest.Eventually(t, link+" is made again and accepts advertisements", accepts("2 1 0 2 1"))
		ovstest.Eventually(t, link+" has a route again", hears(link))
	}
	changes := m.Stats().Changes
	d.RouterLink = ""
	m.Set(d)
	synced(t, m)
	if err := accepts("2 1 0 2 1")(); err != nil {
		t.Error(err)
	}
	if n := m.Stats().Changes - changes; n != 0 {
		t.Errorf("%d changes without a reason", n)
	}
}

// without6 leaves out lines with addresses of IPv6.
func without6(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "::") {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	return b.String()
}

func difference(want, have string) error {
	if diff := cmp.Diff(want, have); diff != "" {
		return fmt.Errorf("-want +have:\n%s", diff)
	}
	return nil
}

// TestForeignChanges changes everything from outside in random order.
func TestForeignChanges(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, 200*time.Millisecond)
	m.Set(node())
	sh(t, addGateway)
	sh(t, "ip link add other type veth peer name otherp && ip addr add 172.16.0.1/24 dev other && ip link set other up "+
		"&& ip link set otherp up")
	sh(t, "ip route add 10.50.0.0/16 via 172.16.0.2 proto static && ip route add 10.51.0.0/16 via 172.16.0.2 proto 0x75")
	sh(t, "nft add table ip theirs && nft add chain ip theirs input '{ type filter hook input priority 0; }'")
	sh(t, "ip neigh add 172.16.0.9 lladdr 02:00:00:00:00:09 dev other")
	sh(t, "ip rule add priority 20000 iif other lookup 116")
	synced(t, m)
	want := kernel()

	vandalism := []string{
		"ip addr del 10.10.0.1/24 dev gw0",
		"ip addr add 10.10.0.77/24 dev gw0",
		"ip addr add 10.99.0.1/16 dev gw0",
		"ip link set gw0 mtu 1300",
		"ip link set gw0 down",
		"ip route del 10.96.0.0/16",
		"ip route change 10.96.0.0/16 via 169.254.0.253 dev gw0 proto 0x74 onlink",
		"ip route add 10.97.0.0/16 dev gw0 proto 0x74",
		"ip rule del priority 29696",
		"ip rule add priority 29696 iif gw0 lookup 116",
		"ip route flush table 116",
		"ip neigh del 169.254.0.253 dev gw0",
		"ip neigh replace 169.254.0.253 lladdr 02:00:00:00:00:01 dev gw0 nud permanent",
		"echo 0 > /proc/sys/net/ipv4/ip_forward",
		"nft flush ruleset ip; nft add table ip theirs && nft add chain ip theirs input '{ type filter hook input priority " +
			"0; }'",
		"nft flush chain ip tombolo postrouting",
		"nft delete element ip tombolo except '{ 10.10.0.0/16 }'",
		"nft add element ip tombolo sources '{ 10.0.7.0/24 }'",
		"nft add rule ip tombolo postrouting accept",
		"ip link del gw0 && " + addGateway,
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	rnd.Shuffle(len(vandalism), func(i, j int) { vandalism[i], vandalism[j] = vandalism[j], vandalism[i] })
	for _, act := range vandalism {
		sh(t, act)
		ovstest.Eventually(t, act+" is mended", func() error { return difference(want, kernel()) })
	}
	for _, theirs := range []string{
		"ip route show 10.50.0.0/16 | grep static", "ip route show 10.51.0.0/16 | grep 172.16.0.2",
		"ip addr show dev other | grep 172.16.0.1/24", "nft list chain ip theirs input",
		"ip neigh show dev other | grep 172.16.0.9", "ip rule show priority 20000 | grep 116",
	} {
		sh(t, theirs)
	}

	// Wanting nothing removes our routes and table, and nothing else.
	m.Set(Desired{})
	synced(t, m)
	ovstest.Eventually(t, "routes and table are gone", func() error {
		out, _ := try("ip route show table all proto 0x74; ip rule show priority 29696; " +
			"nft list table ip tombolo 2>/dev/null")
		if out != "" {
			return fmt.Errorf("left: %s", out)
		}
		return nil
	})
	sh(t, "ip route show 10.50.0.0/16 | grep static")
	sh(t, "nft list chain ip theirs input")
}

// TestQuiet makes changes that do not concern the Manager: the same desired states again, and links, addresses and
// nftables of others. The nft program does not run for them, and an equal Set is not even compared.
func TestQuiet(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	m := run(t, ns, time.Hour)
	sh(t, addGateway)
	m.Set(node())
	synced(t, m)
	// settled returns what was done once nothing has been for a second.
	settled := func() Stats {
		t.Helper()
		var before Stats
		var since time.Time
		ovstest.Eventually(t, "the manager is quiet", func() error {
			if now := m.Stats(); now != before {
				before, since = now, time.Now()
			}
			if time.Since(since) < time.Second {
				return fmt.Errorf("still at work: %+v", before)
			}
			return nil
		})
		return before
	}
	// The table's own change causes its last comparison.
	var before Stats
	ovstest.Eventually(t, "the table was read after it was made", func() error {
		if before = settled(); before.NFTReads < 2 {
			return fmt.Errorf("read %d times", before.NFTReads)
		}
		return nil
	})
	for range 100 {
		m.Set(node())
	}
	synced(t, m)
	_, round := m.want.Get()
	if now := settled(); now.NFTReads != before.NFTReads || round != 1 {
		t.Errorf("setting the same again had %+v done, was %+v, in round %d", now, before, round)
	}
	sh(t, "ip link add other type veth peer name otherp && ip addr add 172.16.0.1/24 dev other && ip link set other up")
	sh(t, "nft add table ip theirs && nft add chain ip theirs input '{ type filter hook input priority 0; }'")
	sh(t, "nft add table arp tombolo && nft add chain arp tombolo input")
	ovstest.Eventually(t, "links were compared", func() error {
		if m.Stats().Compares == before.Compares {
			return errors.New("no comparison after events of links")
		}
		return nil
	})
	if now := settled(); now.NFTReads != before.NFTReads || now.Changes != before.Changes {
		t.Errorf("what others did had %+v done, was %+v", now, before)
	}
	sh(t, "nft flush chain ip tombolo postrouting")
	ovstest.Eventually(t, "the table is mended without a resync", func() error {
		if out := sh(t, "nft list chain ip tombolo postrouting"); !strings.Contains(out, "masquerade") {
			return errors.New(out)
		}
		return nil
	})
}

// TestRoutesDoNotWaitForRules has the nft program take as long as it likes.
func TestRoutesDoNotWaitForRules(t *testing.T) {
	dir := t.TempDir()
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nwhile [ ! -e %s/go ]; do sleep 0.05; done\nexec %s \"$@\"\n", dir, nft)
	if err := os.WriteFile(dir+"/nft", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ns := enter(t)
	m := run(t, ns, time.Hour)
	sh(t, addGateway)
	want := node()
	for _, services := range []string{"10.96.0.0/16", "10.97.0.0/16"} {
		want.Routes[0].Dst = netip.MustParsePrefix(services)
		want.Masquerade.Except = append(want.Masquerade.Except, want.Routes[0].Dst)
		m.Set(want)
		ovstest.Eventually(t, "there is a route while nft works", func() error {
			_, err := try("ip route show proto 0x74 | grep " + services)
			return err
		})
	}
	if err := trySync(m, 100*time.Millisecond); err == nil {
		t.Error("all is there, and nft has not ended")
	}
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	synced(t, m)
	if have := sh(t, "nft list table ip tombolo"); !strings.Contains(have, "10.97.0.0/16") ||
		!strings.Contains(have, "masquerade") {
		t.Errorf("the table has %s", have)
	}
}

// TestTrafficModes changes the traffic mode of a Node, whose host routes to the Pods of another Node first through the
// switch and then directly. A third Node gets the podCIDR of the second. Each pass changes routes and rules together.
func TestTrafficModes(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	sh(t, addGateway)
	sh(t, "ip link add eth0 type veth peer name wire && ip addr add 172.18.0.1/24 dev eth0 && ip link set eth0 up "+
		"&& ip link set wire up")
	m := run(t, ns, time.Hour)
	m.Set(node())
	synced(t, m)
	direct := node()
	vip, own := direct.Masquerade.Sources[0], direct.Links[0].Addresses[0].Addr()
	direct.Routes[1] = Route{Dst: netip.MustParsePrefix("10.10.1.0/24"), Gateway: netip.MustParseAddr("172.18.0.2"),
		Link: "eth0", Source: own, Yields: true}
	direct.Masquerade = Masquerade{
		Always: []netip.Prefix{vip}, Sources: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")},
		Except:     []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24"), netip.MustParsePrefix("10.10.1.0/24")},
		ExceptLink: "gw0",
	}
	check := func(what, hop string) {
		t.Helper()
		ovstest.Eventually(t, what, func() error {
			have := sh(t, "ip route show 10.10.1.0/24")
			if !strings.Contains(have, hop) || !strings.Contains(have, "src 10.10.0.1") || strings.Count(have, "\n") > 1 {
				return fmt.Errorf("the route is %q, want one by %s", have, hop)
			}
			return nil
		})
	}
	m.Set(direct)
	synced(t, m)
	check("the host routes directly", "via 172.18.0.2 dev eth0 proto 116")
	rules := sh(t, "nft list chain ip tombolo postrouting")
	for _, want := range []string{
		`oifname != "gw0" ip saddr @sources ip daddr != @except masquerade`, `oifname != "gw0" ip saddr @always masquerade`,
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("the chain lacks %s:\n%s", want, rules)
		}
	}

	if up, err := ReadTransport("eth0"); err != nil || len(up.Routes) != 0 {
		t.Errorf("a switch that takes the interface over would keep the route to Pods: %+v, %v", up.Routes, err)
	}

	sh(t, "ip route del 10.10.1.0/24")
	check("a removed route comes back", "via 172.18.0.2 dev eth0 proto 116")

	direct.Routes = slices.Clone(direct.Routes)
	direct.Routes[1].Gateway = netip.MustParseAddr("172.18.0.3")
	m.Set(direct)
	synced(t, m)
	check("the podCIDR is of another Node", "via 172.18.0.3 dev eth0 proto 116")

	m.Set(node())
	synced(t, m)
	check("tunnels again", "via 169.254.0.253 dev gw0 proto 116")
	if have := sh(t, "nft list table ip tombolo"); strings.Contains(have, "always") {
		t.Errorf("rules of the other mode stay:\n%s", have)
	}

	sh(t, "ip route replace 10.10.1.0/24 via 172.18.0.9 src 10.10.0.1 proto bird")
	m.Set(direct)
	synced(t, m)
	check("a routing daemon's route stays", "via 172.18.0.9 dev eth0 proto bird")
}

func TestRefusedAndTaken(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	sh(t, addGateway)
	sh(t, "ip link add other type veth peer name otherp && ip addr add 172.16.0.1/24 dev other && ip link set other up "+
		"&& ip link set otherp up")
	sh(t, "ip route add 10.96.0.0/16 via 172.16.0.2")
	m := run(t, ns, time.Hour)
	d := node()
	d.Neighbors[0].MAC = "nonsense"
	d.Links[0].MTU = 1 << 20
	m.Set(d)
	err := trySync(m, ovstest.Timeout())
	if err == nil {
		t.Fatal("Synced succeeded")
	}
	for _, want := range []string{
		"link gw0: mtu: set MTU 1048576, was 1500: ",
		"route 10.96.0.0/16: another program has a route for it (protocol 3, ",
		`neighbours gw0: mac: set 169.254.0.253 to "nonsense": `,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if out := sh(t, "ip route show 10.10.1.0/24"); !strings.Contains(out, "dev gw0") {
		t.Errorf("the other routes were held up: %q", out)
	}
	if out := sh(t, "ip route show 10.96.0.0/16"); !strings.Contains(out, "172.16.0.2") {
		t.Errorf("their route is %q", out)
	}
	if n := len(m.Problems()); n != 3 {
		t.Errorf("problems: %v", m.Problems())
	}
}

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces: run them as root")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

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
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(protocol))
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
