package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// serving is a Node with a table of Services.
func serving() Desired {
	d := node()
	d.Services = Services{
		Link: "gw0", NodeAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Entries: []netip.Prefix{netip.MustParsePrefix("169.254.0.248/29")},
	}
	return d
}

// translation reads "tcp 30080" and "tcp 198.51.100.1:80 7".
func translation(text string) Translation {
	var at string
	var number uint16
	var t Translation
	fmt.Sscan(text, &t.Protocol, &at, &number)
	in, own := netip.MustParseAddr("169.254.0.252"), netip.MustParseAddr("169.254.0.251")
	if !strings.Contains(at, ":") {
		fmt.Sscan(at, &t.Port)
		number = t.Port
	} else {
		to := netip.MustParseAddrPort(at)
		t.Address, t.Port = to.Addr(), to.Port()
		in, own = netip.MustParseAddr("169.254.0.250"), netip.MustParseAddr("169.254.0.249")
	}
	t.To, t.ToOwn = netip.AddrPortFrom(in, number), netip.AddrPortFrom(own, number)
	return t
}

func translationsOf(texts ...string) (out []Translation) {
	for _, text := range texts {
		out = append(out, translation(text))
	}
	return out
}

// listed are the elements of a map, as nft writes them.
func listed(t *testing.T, name string) []string {
	t.Helper()
	return listedIn(t, servicesTable, name)
}

func listedIn(t *testing.T, table, name string) []string {
	t.Helper()
	return listedOf(t, "inet "+table, name)
}

// listedOf is listedIn for a table with its family.
func listedOf(t *testing.T, table, name string) []string {
	t.Helper()
	out, err := try("nft list map " + table + " " + name)
	if err != nil {
		return []string{err.Error()}
	}
	_, out, ok := strings.Cut(out, "elements = {")
	if !ok {
		return nil
	}
	out, _, _ = strings.Cut(out, "}")
	var list []string
	for one := range strings.SplitSeq(out, ",") {
		list = append(list, strings.Join(strings.Fields(one), " "))
	}
	slices.Sort(list)
	return list
}

// handles name the rules of the table: they are others once it was written as a whole.
func handles(t *testing.T) string {
	t.Helper()
	return sh(t, "nft -a list chain inet "+servicesTable+" prerouting")
}

func translated(t *testing.T, m *Manager) {
	t.Helper()
	ctx, cancel := deadline(t)
	defer cancel()
	if err := m.TranslationsSynced(ctx); err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), ovstest.Timeout())
}

// send sends a datagram, from a port of its own.
func send(t *testing.T, to string) {
	t.Helper()
	c, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// wantTracked waits until the host's connections of UDP go to some addresses.
func wantTracked(t *testing.T, want ...string) {
	t.Helper()
	ovstest.Eventually(t, "the host tracks datagrams", func() error {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, f := range list {
			if f.Forward.Protocol == unix.IPPROTO_UDP {
				have = append(have, fmt.Sprintf("%s:%d", f.Forward.DstIP, f.Forward.DstPort))
			}
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			return fmt.Errorf("the host tracks %q, want %q", have, want)
		}
		return nil
	})
}

func wantListed(t *testing.T, name string, want ...string) {
	t.Helper()
	if have := listed(t, name); !slices.Equal(have, want) {
		t.Errorf("%s has %q, want %q", name, have, want)
	}
}

// TestTranslations writes the table of Services with the real nft: by differences, and again after another program has
// changed it.
func TestTranslations(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link add gw0 type veth peer name far && ip link set gw0 up && ip address add 192.0.2.1/24 dev lo")
	m, stop := start(t, ns, time.Hour)
	m.Set(serving())
	synced(t, m)
	m.Translate("default/web", translationsOf("tcp 30080", "tcp 198.51.100.1:80 7"))
	m.Translate("default/dns", translationsOf("udp 30053"))
	if out := sh(t, "nft list tables"); strings.Contains(out, servicesTable) {
		t.Errorf("before all Services are declared there is %s", out)
	}
	m.TranslationsLoaded()
	translated(t, m)
	wantListed(t, nodePortIn, "tcp . 30080 : 169.254.0.252 . 30080", "udp . 30053 : 169.254.0.252 . 30053")
	wantListed(t, nodePortOut, "tcp . 30080 : 169.254.0.251 . 30080", "udp . 30053 : 169.254.0.251 . 30053")
	wantListed(t, externalIn, "198.51.100.1 . tcp . 80 : 169.254.0.250 . 7")
	wantListed(t, externalOut, "198.51.100.1 . tcp . 80 : 169.254.0.249 . 7")
	forwarded := func(want string) {
		t.Helper()
		out := sh(t, "nft list set inet "+servicesTable+" "+externalSet)
		if strings.Contains(out, "198.51.100.1") != (want != "") || strings.Count(out, ".100.") > 1 {
			t.Errorf("external addresses, want %q: %s", want, out)
		}
	}
	forwarded("198.51.100.1")
	before := handles(t)

	// An element comes, one goes, one moves to another Service and gets another value.
	m.Translate("default/api", translationsOf("tcp 30443", "tcp 198.51.100.1:80 9"))
	m.Translate("default/web", translationsOf("tcp 30081"))
	translated(t, m)
	wantListed(t, nodePortIn, "tcp . 30081 : 169.254.0.252 . 30081", "tcp . 30443 : 169.254.0.252 . 30443",
		"udp . 30053 : 169.254.0.252 . 30053")
	wantListed(t, externalIn, "198.51.100.1 . tcp . 80 : 169.254.0.250 . 9")
	if after := handles(t); after != before {
		t.Errorf("the table was written again for a change of elements:\n%s\n%s", before, after)
	}

	// Another program.
	for _, line := range []string{
		"nft delete table inet " + servicesTable,
		"nft flush chain inet " + servicesTable + " prerouting",
		"nft add rule inet " + servicesTable + " output counter",
		"nft flush ruleset",
	} {
		sh(t, line)
		ovstest.Eventually(t, line, func() error {
			out, err := try("nft list table inet " + servicesTable)
			if err == nil && (len(listed(t, nodePortIn)) != 3 || strings.Count(out, "dnat") != 4 ||
				strings.Contains(out, "counter")) {
				err = errors.New(out)
			}
			return err
		})
	}

	// A restart keeps what is right, and removes what no Service has.
	stop()
	sh(t, "nft add element inet "+servicesTable+" "+nodePortIn+" '{ tcp . 31000 : 169.254.0.252 . 31000 }'")
	before = handles(t)
	again := run(t, ns, 100*time.Millisecond)
	again.Set(serving())
	again.Translate("default/api", translationsOf("tcp 30443"))
	again.TranslationsLoaded()
	translated(t, again)
	wantListed(t, nodePortIn, "tcp . 30443 : 169.254.0.252 . 30443")
	wantListed(t, externalIn)
	forwarded("")
	if after := handles(t); after != before {
		t.Errorf("the table was written again at a restart:\n%s\n%s", before, after)
	}

	// The kernel's events have ended: elements are compared at each resync, too.
	again.events.ended.Store(true)
	sh(t, "nft add element inet "+servicesTable+" "+nodePortIn+" '{ tcp . 31000 : 169.254.0.252 . 31000 }'")
	ovstest.Eventually(t, "a foreign element is removed", func() error {
		if have := listed(t, nodePortIn); len(have) != 1 {
			return fmt.Errorf("%q", have)
		}
		return nil
	})
	sh(t, "nft add element inet "+servicesTable+" "+nodePortIn+" '{ 136 . 31000 : 169.254.0.252 . 31000 }'")
	ovstest.Eventually(t, "a foreign element of another protocol is removed", func() error {
		if have := listed(t, nodePortIn); len(have) != 1 {
			return fmt.Errorf("%q", have)
		}
		return nil
	})

	// Not served any more.
	again.Set(node())
	ovstest.Eventually(t, "removed", func() error {
		if out := sh(t, "nft list tables"); strings.Contains(out, servicesTable) {
			return errors.New(out)
		}
		return nil
	})
}

// TestProtocolNumbers has an nft that prints protocols as numbers, as in a container without /etc/protocols. Elements
// that are right stay.
func TestProtocolNumbers(t *testing.T) {
	ns := enter(t)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec %s -p \"$@\"\n", nft)
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	all := translationsOf("tcp 30001", "udp 30001", "sctp 30001", "tcp 30002", "udp 30002", "tcp 198.51.100.1:80 7")
	want := []string{"132 . 30001", "17 . 30001", "17 . 30002", "6 . 30001", "6 . 30002"}
	for range 2 { // the second one reads what the first one wrote
		m, stop := start(t, ns, time.Hour)
		m.Set(serving())
		m.Translate("default/web", all)
		m.TranslationsLoaded()
		translated(t, m)
		var have []string
		for _, one := range listed(t, nodePortIn) {
			key, _, _ := strings.Cut(one, " :")
			have = append(have, key)
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s has %q, want %q", nodePortIn, have, want)
		}
		if n := len(listed(t, externalIn)); n != 1 {
			t.Errorf("%s has %d elements, want 1", externalIn, n)
		}
		stop()
	}
}

// TestStaleDatagrams ends connections of UDP that began before their translation.
func TestStaleDatagrams(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link add gw0 type veth peer name far && ip link set gw0 up && ip address add 192.0.2.1/24 dev lo")
	m := run(t, ns, time.Hour)
	m.Set(serving())
	m.Translate("default/web", translationsOf("tcp 30080"))
	m.TranslationsLoaded()
	translated(t, m)
	sh(t, "nft list table inet "+servicesTable)
	for _, to := range []string{"192.0.2.1:30053", "127.0.0.1:30053", "192.0.2.1:30054"} {
		send(t, to)
	}
	wantTracked(t, "127.0.0.1:30053", "192.0.2.1:30053", "192.0.2.1:30054")
	m.Translate("default/dns", translationsOf("udp 30053"))
	translated(t, m)
	wantTracked(t, "192.0.2.1:30054")
	// Without the table nothing serves the entries: a client that keeps its port gets an answer of the host again.
	sh(t, "ip route add "+serving().Services.Entries[0].String()+" dev gw0")
	send(t, "192.0.2.1:30053")
	wantTracked(t, "192.0.2.1:30053", "192.0.2.1:30054")
	off := node()
	off.Services.Entries = serving().Services.Entries
	m.Set(off)
	wantTracked(t, "192.0.2.1:30054")
}

// TestServicesOf has the table's chains and sets.
func TestServicesOf(t *testing.T) {
	if c := servicesOf(Services{}, versions[knftables.IPv4Family]); len(c.chains)+len(c.sets) != 0 {
		t.Errorf("without Services there is %v", c)
	}
	c := servicesOf(serving().Services, versions[knftables.IPv4Family])
	if have := c.sets[nodeSet].elements; !slices.Equal(have, []string{"192.0.2.1"}) {
		t.Errorf("node addresses: %q", have)
	}
	if have := c.sets[ownSet].elements; !slices.Equal(have, []string{"127.0.0.0/8", "192.0.2.1"}) {
		t.Errorf("own addresses: %q", have)
	}
	if first := c.chains["prerouting"].rules[0]; first != `iifname "gw0" accept` {
		t.Errorf("packets that come by the gateway port are translated: %s", first)
	}
}

// TestUnservedPort has a router send packets to an external address. It would get packets to a port that no Service
// has back, and send them again.
func TestUnservedPort(t *testing.T) {
	ns := enter(t)
	router, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	in := func(where netns.NsHandle, lines string) string {
		t.Helper()
		if err := netns.Set(where); err != nil {
			t.Fatal(err)
		}
		out := sh(t, lines)
		if err := netns.Set(ns); err != nil {
			t.Fatal(err)
		}
		return out
	}
	in(ns, "ip link add gw0 type veth peer name far && ip link set gw0 up")
	in(ns, "ip link add uplink type veth peer name router")
	peer, err := netlink.LinkByName("router")
	if err == nil {
		err = netlink.LinkSetNsFd(peer, int(router))
	}
	if err != nil {
		t.Fatal(err)
	}
	in(ns, "ip address add 192.0.2.1/24 dev uplink && ip link set uplink up && ip route add default via 192.0.2.2")
	in(router, "ip link set lo up && ip address add 192.0.2.2/24 dev router && ip link set router up && "+
		"ip route add default via 192.0.2.1")
	m := run(t, ns, time.Hour)
	m.Set(serving())
	synced(t, m)
	m.Translate("default/web", translationsOf("tcp 198.51.100.1:80 7"))
	m.TranslationsLoaded()
	translated(t, m)
	in(router, `nft 'table ip returned {
		chain in { type filter hook prerouting priority raw; udp dport 81 counter; }
	}'`)
	back := func() (n int) {
		_, text, _ := strings.Cut(in(router, "nft list chain ip returned in"), "packets ")
		fmt.Sscan(text, &n)
		return n
	}
	// returned is how many packets the router gets back. The answer to its ping comes after the first of them.
	returned := func(to string) int {
		t.Helper()
		before := back()
		if err := netns.Set(router); err != nil {
			t.Fatal(err)
		}
		send(t, to)
		err := ping("192.0.2.1")
		if err := errors.Join(err, netns.Set(ns)); err != nil {
			t.Fatal(err)
		}
		return back() - before
	}
	if n := returned("203.0.113.9:81"); n == 0 {
		t.Errorf("no packet to another address goes back to the router")
	}
	if n := returned("198.51.100.1:81"); n != 0 {
		t.Errorf("%d packets to an external address go back to the router", n)
	}
}
