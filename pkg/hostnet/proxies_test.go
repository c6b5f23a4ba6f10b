package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestHeld has two Nodes and a machine on one link. The Node that holds an address answers the machine. When the
// address has moved and is announced, the machine sends to the other Node at once.
func TestHeld(t *testing.T) {
	t.Parallel()
	nodes := []netns.NsHandle{enter(t), enter(t)}
	machine := enter(t)
	sh(t, "ip link add br0 type bridge && ip link set br0 up && ip addr add 192.0.2.9/24 dev br0 && "+
		"ip addr add 2001:db8::9/64 dev br0 nodad")
	managers := make([]*Manager, 2)
	for i, ns := range nodes {
		sh(t, fmt.Sprintf("ip link add up%d master br0 type veth peer name uplink && ip link set up%[1]d up", i))
		link, err := netlink.LinkByName("uplink")
		if err == nil {
			err = netlink.LinkSetNsFd(link, int(ns))
		}
		if err != nil {
			t.Fatal(err)
		}
		inside(t, ns, machine, func() {
			sh(t, addGateway)
			sh(t, fmt.Sprintf("ip link set uplink name eth0 address 02:00:00:00:01:0%d up && ip addr add 192.0.2.%[1]d/24 dev "+
				"eth0 && ip addr add 2001:db8::%[1]d/64 dev eth0 nodad", i+1))
		})
		managers[i] = run(t, ns, 200*time.Millisecond)
	}
	on := func(node int, what func()) { inside(t, nodes[node], machine, what) }
	set := func(node int, held ...string) {
		t.Helper()
		want := node6()
		for _, text := range held {
			want.Links[0].Held = append(want.Links[0].Held, netip.MustParseAddr(text))
		}
		managers[node].Set(want)
		synced(t, managers[node])
	}
	knows := func(node int, ip string) error {
		if have := sh(t, "ip neigh show "+ip+" dev br0"); !strings.Contains(have, fmt.Sprint("02:00:00:00:01:0", node+1)) {
			return fmt.Errorf("neighbour %q", have)
		}
		return nil
	}
	reaches := func(node int, ip string) {
		t.Helper()
		ovstest.Eventually(t, fmt.Sprintf("the machine reaches %s on Node %d", ip, node), func() error {
			return errors.Join(ping(ip), knows(node, ip))
		})
	}
	// left is what is on a Node of addresses that it has held.
	left := func(node int) (out string) {
		on(node, func() {
			out = sh(t, "ip -6 neigh show proxy; cat /proc/sys/net/ipv6/conf/eth0/proxy_ndp "+
				"/proc/sys/net/ipv6/neigh/eth0/proxy_delay; ip -o addr show to 2001:db8::77; ip -o addr show to 192.0.2.77")
		})
		return out
	}
	const clean = "0\n80"

	set(0)
	set(1)
	addresses := []string{"192.0.2.77", "2001:db8::77"}
	all := append(addresses, "2001:db8:9::9") // the last one is in no network of the Node
	set(0, all...)
	for _, ip := range addresses {
		reaches(0, ip)
	}
	want := left(0)
	if !strings.HasPrefix(want, "2001:db8::77 dev eth0 proxy proto 116 \n1\n0\n") ||
		!strings.Contains(want, "deprecated") {
		t.Errorf("the first Node has %q", want)
	}
	on(0, func() {
		sh(t, "ip route add 2001:db8:5::/64 dev gw0")
		if have := sh(t, "ip route get 2001:db8:5::1"); !strings.Contains(have, "src fd10::1 ") {
			t.Errorf("the host's own packets have another source: %s", have)
		}
	})
	for _, act := range []string{
		"ip -6 neigh del proxy 2001:db8::77 dev eth0", "echo 0 > /proc/sys/net/ipv6/conf/eth0/proxy_ndp",
		"echo 80 > /proc/sys/net/ipv6/neigh/eth0/proxy_delay", "ip -6 neigh add proxy 2001:db8::78 dev eth0 proto 116",
		"ip link set eth0 down && ip link set eth0 up && ip addr add 2001:db8::1/64 dev eth0 nodad",
	} {
		on(0, func() { sh(t, act) })
		ovstest.Eventually(t, act+" is mended", func() error { return difference(want, left(0)) })
	}
	changes := managers[0].Stats().Changes
	set(0, all...)
	if n := managers[0].Stats().Changes - changes; n != 0 {
		t.Errorf("the second sync made %d changes", n)
	}
	for _, ip := range addresses {
		reaches(0, ip)
	}

	set(0)
	set(1, addresses...)
	on(1, func() {
		for _, ip := range addresses {
			if err := Announce(netip.MustParseAddr(ip)); err != nil {
				t.Error(err)
			}
		}
	})
	for _, ip := range addresses {
		ovstest.Eventually(t, "the machine knows where "+ip+" is", func() error { return knows(1, ip) }) // without a packet
		reaches(1, ip)
	}
	if have := left(0); have != clean {
		t.Errorf("on the first Node are %q", have)
	}

	// A proxy of another program keeps the parameter that both need.
	on(1, func() { sh(t, "ip -6 neigh add proxy 2001:db8::99 dev eth0") })
	set(1)
	const others = "2001:db8::99 dev eth0 proxy \n1\n80"
	ovstest.Eventually(t, "the other program's proxy stays alone", func() error { return difference(others, left(1)) })
	on(1, func() { sh(t, "ip -6 neigh del proxy 2001:db8::99 dev eth0") })

	// Without IPv6 on the gateway port the host has no such address, so it answers for none.
	set(0, all...)
	on(0, func() { sh(t, "echo 1 > /proc/sys/net/ipv6/conf/gw0/disable_ipv6") })
	ovstest.Eventually(t, "the Node without the address of IPv6 is no proxy", func() error {
		have := left(0)
		if strings.Contains(have, "proxy") || !strings.HasPrefix(have, clean) || !strings.Contains(have, "192.0.2.77") {
			return fmt.Errorf("on the Node are %q", have)
		}
		return nil
	})
	on(0, func() { sh(t, "echo 0 > /proc/sys/net/ipv6/conf/gw0/disable_ipv6") })
	reaches(0, "2001:db8::77")
	// A Node that serves IPv4 alone by now gives the address back, and keeps other addresses of IPv6.
	managers[0].Set(node())
	synced(t, managers[0])
	ovstest.Eventually(t, "no held address is left", func() error { return difference(clean, left(0)) })
	on(0, func() {
		sh(t, "ip addr add 2001:db8:7::7/64 dev gw0 nodad && ip addr add 2001:db8:8::8/128 dev gw0 nodad && "+
			"ip addr del 10.10.0.1/24 dev gw0") // once it is mended, the manager has seen them all
		ovstest.Eventually(t, "the Node's own address is mended", func() error {
			if have := sh(t, "ip -o addr show dev gw0"); !strings.Contains(have, "10.10.0.1/24") {
				return errors.New(have)
			}
			return nil
		})
		have := sh(t, "ip -o addr show dev gw0")
		for _, other := range []string{"2001:db8:7::7/64", "2001:db8:8::8/128"} {
			if !strings.Contains(have, other) {
				t.Errorf("the gateway port has %s, want also %s", have, other)
			}
		}
	})
}

// TestProxyErrors has the kernel refuse proxies on a link that is gone.
func TestProxyErrors(t *testing.T) {
	t.Parallel()
	enter(t)
	for _, present := range []bool{true, false} {
		var a applier
		a.setProxy("eth7", proxy{7777, netip.MustParseAddr("2001:db8::77")}, present)
		if len(a.failed) != 1 {
			t.Fatalf("failed %v", a.failed)
		}
		p := a.failed[0]
		if p.Kind != "link" || p.Name != "eth7" || p.Field != "2001:db8::77" ||
			!strings.Contains(p.Message, "ip -6 neighbour ") || !strings.Contains(p.Message, " dev eth7") {
			t.Errorf("problem %s", p)
		}
	}
}
