package hostnet

import (
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

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
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
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
