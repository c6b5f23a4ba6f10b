package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netns"

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

func difference(want, have string) error {
	if diff := cmp.Diff(want, have); diff != "" {
		return fmt.Errorf("-want +have:\n%s", diff)
	}
	return nil
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

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces: run them as root")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
