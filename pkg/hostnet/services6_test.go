package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

var entries6 = netip.MustParsePrefix("fc01::aabb:ccdd:eef8/125")

// track6 has the kernel track connections of IPv6 before we have a table.
const track6 = "nft 'table ip6 other { chain output { type filter hook output priority 0; ct state new accept; }; }'"

// serving6 is serving with both versions of IP.
func serving6() Desired {
	d := serving()
	d.Services.Families = family.Dual
	d.Services.Entries = append(d.Services.Entries, entries6)
	d.HostPorts = HostPorts{Link: "gw0", Families: family.Dual, Addresses: d.Services.NodeAddresses}
	d.Sysctls["net/ipv6/conf/all/forwarding"] = "1"
	return d
}

// external6 is the translation of an external address and port of UDP over IPv6.
func external6(at string, number uint16) Translation {
	to := netip.MustParseAddrPort(at)
	return Translation{
		Address: to.Addr(), Protocol: "udp", Port: to.Port(),
		To:    netip.AddrPortFrom(netip.MustParseAddr("fc01::aabb:ccdd:eefc"), number),
		ToOwn: netip.AddrPortFrom(netip.MustParseAddr("fc01::aabb:ccdd:eefb"), number),
	}
}

// nodePort6 is the translation of a node port over IPv6.
func nodePort6(protocol string, port uint16) Translation {
	return Translation{
		Protocol: protocol, Port: port,
		To:    netip.AddrPortFrom(netip.MustParseAddr("fc01::aabb:ccdd:eefe"), port),
		ToOwn: netip.AddrPortFrom(netip.MustParseAddr("fc01::aabb:ccdd:eefd"), port),
	}
}

func listed6(t *testing.T, table, name string) []string {
	t.Helper()
	return listedOf(t, "ip6 "+table, name)
}

func wantListed6(t *testing.T, table, name string, want ...string) {
	t.Helper()
	if have := listed6(t, table, name); !slices.Equal(have, want) {
		t.Errorf("ip6 %s %s has %q, want %q", table, name, have, want)
	}
}

// wantTracked6 waits until the host's connections of UDP over IPv6 go to some addresses.
func wantTracked6(t *testing.T, want ...string) {
	t.Helper()
	ovstest.Eventually(t, "the host tracks datagrams", func() error {
		var have []string
		if err := listConnections(unix.AF_INET6, datagramConnections, func(c connection, _ []byte) {
			if c.protocol == unix.IPPROTO_UDP {
				have = append(have, c.to.String())
			}
		}); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			return fmt.Errorf("the host tracks %q, want %q", have, want)
		}
		return nil
	})
}

func withoutTable6(t *testing.T, table string) {
	t.Helper()
	ovstest.Eventually(t, "there is no table ip6 "+table, func() error {
		if out := sh(t, "nft list tables"); strings.Contains(out, "ip6 "+table) {
			return errors.New(out)
		}
		return nil
	})
}

// TestTranslations6 writes the table of IPv6 and the table of IPv4, ends connections of UDP that began before, and
// removes it.
func TestTranslations6(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link set lo up && ip link add gw0 type veth peer name far && ip link set gw0 up && "+
		"ip address add 192.0.2.1/24 dev lo && ip address add 2001:db8::1/128 dev lo")
	sh(t, "ip route add fc01::/64 dev gw0 && ip route add 2001:db8:100::/64 dev gw0")
	sh(t, track6)
	m := run(t, ns, time.Hour)
	m.Set(serving6())
	synced(t, m)
	for _, to := range []string{"[2001:db8::1]:30053", "[::1]:30053", "[2001:db8::1]:30054"} {
		send(t, to)
	}
	wantTracked6(t, "[2001:db8::1]:30053", "[2001:db8::1]:30054", "[::1]:30053")
	m.Translate("default/web", append(translationsOf("tcp 30080"), nodePort6("tcp", 30080),
		external6("[2001:db8:100::1]:53", 7)))
	m.TranslationsLoaded()
	translated(t, m)
	wantListed(t, nodePortIn, "tcp . 30080 : 169.254.0.252 . 30080")
	wantListed6(t, servicesTable, nodePortIn, "tcp . 30080 : fc01::aabb:ccdd:eefe . 30080")
	wantListed6(t, servicesTable, nodePortOut, "tcp . 30080 : fc01::aabb:ccdd:eefd . 30080")
	wantListed6(t, servicesTable, externalIn, "2001:db8:100::1 . udp . 53 : fc01::aabb:ccdd:eefc . 7")
	wantListed6(t, servicesTable, externalOut, "2001:db8:100::1 . udp . 53 : fc01::aabb:ccdd:eefb . 7")
	if out := sh(t, "nft list set ip6 "+servicesTable+" "+externalSet); !strings.Contains(out, "2001:db8:100::1") {
		t.Errorf("external addresses: %s", out)
	}
	if out := sh(t, "nft list set inet "+servicesTable+" "+externalSet); strings.Contains(out, "elements") {
		t.Errorf("external addresses of IPv4: %s", out)
	}

	// Nothing that the table does is for ::1, so its connections stay.
	m.Translate("default/dns", []Translation{nodePort6("udp", 30053)})
	translated(t, m)
	wantTracked6(t, "[2001:db8::1]:30054", "[::1]:30053")
	send(t, "[2001:db8::1]:30053")
	wantTracked6(t, "[2001:db8::1]:30053", "[2001:db8::1]:30054", "[::1]:30053")
	m.Translate("default/dns", nil)
	translated(t, m)
	wantListed6(t, servicesTable, nodePortIn, "tcp . 30080 : fc01::aabb:ccdd:eefe . 30080")
	wantTracked6(t, "[2001:db8::1]:30054", "[::1]:30053")

	sh(t, "nft flush chain ip6 "+servicesTable+" output")
	ovstest.Eventually(t, "the chain is mended", func() error {
		if out := sh(t, "nft list chain ip6 "+servicesTable+" output"); strings.Count(out, "dnat") != 2 {
			return errors.New(out)
		}
		return nil
	})

	// IPv6 is not served any more. A client that keeps its port gets an answer of the host again.
	send(t, "[2001:db8:100::1]:53")
	wantTracked6(t, "[2001:db8:100::1]:53", "[2001:db8::1]:30054", "[::1]:30053")
	d := serving6()
	d.Services.Families = family.IPv4
	m.Set(d)
	withoutTable6(t, servicesTable)
	wantTracked6(t, "[2001:db8::1]:30054", "[::1]:30053")
	wantListed(t, nodePortIn, "tcp . 30080 : 169.254.0.252 . 30080")
}

// TestServicesOf6 has the chains and sets of the table of IPv6.
func TestServicesOf6(t *testing.T) {
	six := versions[knftables.IPv6Family]
	if c := servicesOf(serving().Services, six); len(c.chains)+len(c.sets) != 0 {
		t.Errorf("without IPv6 there is %v", c)
	}
	c := servicesOf(serving6().Services, six)
	for _, name := range []string{nodeSet, ownSet} {
		if have := c.sets[name].elements; !slices.Equal(have, []string{"2001:db8::1"}) {
			t.Errorf("%s: %q", name, have)
		}
	}
	if guard := c.chains["guard"].rules; len(guard) != 1 || !strings.Contains(guard[0], entries6.String()) {
		t.Errorf("guard: %q", guard)
	}
	only6 := serving6().Services
	only6.Families = family.IPv6
	if c := servicesOf(only6, versions[knftables.IPv4Family]); len(c.chains) != 0 {
		t.Errorf("without IPv4 there is %v", c)
	}
}

// TestHostPorts6 writes the table of ports of IPv6, and ends connections of UDP that go elsewhere.
func TestHostPorts6(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link set lo up && ip link add gw0 type veth peer name far && ip link set gw0 up && "+
		"ip address add 2001:db8::1/128 dev lo && ip route add fd11::/64 dev gw0")
	sh(t, track6)
	m := run(t, ns, time.Hour)
	m.Set(serving6())
	synced(t, m)
	send(t, "[2001:db8::1]:53")
	send(t, "[::1]:53")
	m.MapPorts("web", hostPortsFrom("tcp 8080 10.1.0.2:80", "tcp 8080 [fd11::2]:80", "udp 53 [fd11::2]:53",
		"tcp [2001:db8::1]:81 [fd11::2]:81"))
	m.PortsLoaded()
	mapped(t, m)
	wantTracked6(t, "[::1]:53")
	wantListed6(t, hostPortsTable, hostPortAny, "tcp . 8080 : fd11::2 . 80", "udp . 53 : fd11::2 . 53")
	wantListed6(t, hostPortsTable, hostPortAt, "2001:db8::1 . tcp . 81 : fd11::2 . 81")
	if have := listedIn(t, hostPortsTable, hostPortAny); !slices.Equal(have, []string{"tcp . 8080 : 10.1.0.2 . 80"}) {
		t.Errorf("IPv4 has %q", have)
	}
	send(t, "[2001:db8::1]:53")
	wantTracked6(t, "[2001:db8::1]:53", "[::1]:53")
	d := serving6()
	d.HostPorts.Families = family.IPv4
	m.Set(d)
	withoutTable6(t, hostPortsTable)
	wantTracked6(t, "[::1]:53")
}

// TestHostPortsAtLoopback6 asks ports at ::1. A Pod gets packets with another source, and no packet from ::1.
func TestHostPortsAtLoopback6(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link set lo up && ip link add gw0 type veth peer name far && ip link set gw0 up && "+
		"ip address add 2001:db8::1/128 dev lo && ip route add fd11::/64 dev gw0")
	sh(t, track6)
	m := run(t, ns, time.Hour)
	m.Set(serving6())
	synced(t, m)
	m.MapPorts("web", hostPortsFrom("udp [::1]:53 [fd11::2]:5353", "udp 54 [fd11::2]:5454"))
	m.PortsLoaded()
	mapped(t, m)
	for _, source := range []string{"::1", "2001:db8::1"} {
		for _, port := range []int{53, 54} {
			conn, err := net.DialUDP("udp6", &net.UDPAddr{IP: net.ParseIP(source)},
				&net.UDPAddr{IP: net.IPv6loopback, Port: port})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			conn.Close()
		}
	}
	ovstest.Eventually(t, "packets to ::1 are translated by their source", func() error {
		var have []string
		if err := listConnections(unix.AF_INET6, datagramConnections, func(c connection, _ []byte) {
			if c.protocol == unix.IPPROTO_UDP {
				have = append(have, c.answers.String())
			}
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(have)
		if want := []string{"[::1]:53", "[::1]:54", "[fd11::2]:5353", "[fd11::2]:5454"}; !slices.Equal(have, want) {
			return fmt.Errorf("answers come from %q, want %q", have, want)
		}
		return nil
	})
}

// TestExternalPackets6 has a router send packets to an external address. A packet to a Service's port goes to the
// entry, and no packet to another port comes back.
func TestExternalPackets6(t *testing.T) {
	ns := enter(t)
	router, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	in := func(where netns.NsHandle, do func()) {
		t.Helper()
		if err := netns.Set(where); err != nil {
			t.Fatal(err)
		}
		do()
		if err := netns.Set(ns); err != nil {
			t.Fatal(err)
		}
	}
	in(ns, func() {
		sh(t, "ip link add gw0 type veth peer name far && ip link set far up && ip link set gw0 up && "+
			"ip link add uplink type veth peer name router")
	})
	peer, err := netlink.LinkByName("router")
	if err == nil {
		err = netlink.LinkSetNsFd(peer, int(router))
	}
	if err != nil {
		t.Fatal(err)
	}
	in(ns, func() {
		sh(t, "ip address add 2001:db8::1/64 dev uplink nodad && ip link set uplink up && "+
			"ip route add default via 2001:db8::2 && ip route add fc01::/64 dev gw0 && "+
			"ip neigh add fc01::aabb:ccdd:eefc lladdr aa:bb:cc:dd:ee:ff dev gw0")
		sh(t, `nft 'table ip6 seen {
			counter entry { }
			chain post { type filter hook postrouting priority 200;
				oifname "gw0" ip6 daddr fc01::aabb:ccdd:eefc udp dport 7 counter name entry; }
		}'`)
	})
	in(router, func() {
		sh(t, "ip link set lo up && ip address add 2001:db8::2/64 dev router nodad && ip link set router up && "+
			"ip route add default via 2001:db8::1")
		sh(t, `nft 'table ip6 returned {
			counter back { }
			chain in { type filter hook prerouting priority raw; udp dport 81 counter name back; }
		}'`)
	})
	m := run(t, ns, time.Hour)
	m.Set(serving6())
	synced(t, m)
	m.Translate("default/web", []Translation{external6("[2001:db8:100::1]:80", 7)})
	m.TranslationsLoaded()
	translated(t, m)
	packets := func(where netns.NsHandle, counter string) (n int) {
		in(where, func() {
			_, text, _ := strings.Cut(sh(t, "nft list counter ip6 "+counter), "packets ")
			fmt.Sscan(text, &n)
		})
		return n
	}
	sent := func(to string) { in(router, func() { send(t, to) }) }
	sent("[2001:db8:200::1]:81") // returned, so that the counter works
	ovstest.Eventually(t, "a packet to another address goes back", func() error {
		if packets(router, "returned back") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	before := packets(router, "returned back")
	sent("[2001:db8:100::1]:81") // comes before the next one
	sent("[2001:db8:100::1]:80")
	ovstest.Eventually(t, "the packet to the Service goes to the entry", func() error {
		if n := packets(ns, "seen entry"); n != 1 {
			return fmt.Errorf("%d packets", n)
		}
		return nil
	})
	if n := packets(router, "returned back"); n != before {
		t.Errorf("%d packets to a port that no Service has go back to the router", n-before)
	}
	sent("[fc01::aabb:ccdd:eefc]:7") // of no translation
	sent("[2001:db8:100::1]:80")
	ovstest.Eventually(t, "the next packet goes to the entry", func() error {
		if n := packets(ns, "seen entry"); n != 2 {
			return fmt.Errorf("%d packets", n)
		}
		return nil
	})
}
