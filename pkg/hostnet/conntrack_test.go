package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// forgetful has a manager whose look at connections fails while failing is set.
func forgetful(t *testing.T, m *Manager) (failing *atomic.Bool) {
	t.Helper()
	failing = &atomic.Bool{}
	for _, table := range m.translatedTables() {
		table.end = func(family uint8, filter connectionFilter, match func(connection) bool) (int, error) {
			if failing.Load() {
				return 0, errors.New("interrupted")
			}
			return endConnections(family, filter, match)
		}
	}
	return failing
}

// unfinished waits until a manager reports that connections have to be looked at again, or does not.
func unfinished(t *testing.T, m *Manager, want bool) {
	t.Helper()
	ovstest.Eventually(t, "problem of connections", func() error {
		text := fmt.Sprint(m.Problems())
		if strings.Contains(text, "connections udp") != want {
			return fmt.Errorf("problems %s, want one of connections: %v", text, want)
		}
		return nil
	})
}

// TestConnectionsLookedAtAgain has looks at connections fail. They are repeated without another change, and no caller
// that waits for the translation fails.
func TestConnectionsLookedAtAgain(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link add gw0 type veth peer name far && ip link set gw0 up && ip address add 192.0.2.1/24 dev lo")
	sh(t, "ip route add 10.1.0.0/24 dev gw0 && ip route add 169.254.0.248/29 dev gw0")
	m := New(Options{Namespace: &ns, Resync: time.Hour})
	failing := forgetful(t, m)
	_, stop := startWith(t, m)
	d := serving()
	d.HostPorts = mapping().HostPorts
	m.Set(d)
	m.TranslationsLoaded()
	m.PortsLoaded()
	m.MapPorts("web", hostPortsFrom("tcp 8080 10.1.0.2:80"))
	mapped(t, m)
	translated(t, m)

	// A Pod and a Service come, and the Pod goes again.
	send(t, "192.0.2.1:53")
	send(t, "192.0.2.1:30053")
	failing.Store(true)
	m.MapPorts("dns", hostPortsFrom("udp 53 10.1.0.3:53"))
	m.Translate("default/dns", translationsOf("udp 30053"))
	mapped(t, m)
	translated(t, m)
	unfinished(t, m, true)
	wantTracked(t, "192.0.2.1:30053", "192.0.2.1:53")
	failing.Store(false)
	wantTracked(t)
	unfinished(t, m, false)
	send(t, "192.0.2.1:53")
	failing.Store(true)
	m.MapPorts("dns", nil)
	mapped(t, m)
	unfinished(t, m, true)
	failing.Store(false)
	wantTracked(t)

	// The agent ends before it looks.
	stop()
	element := " element inet " + servicesTable + " " + nodePortOut + " '{ udp . 30053 "
	sh(t, "nft delete"+element+"}'")
	send(t, "192.0.2.1:30053")
	sh(t, "nft add"+element+": 169.254.0.251 . 30053 }'")
	wantTracked(t, "192.0.2.1:30053")
	again := New(Options{Namespace: &ns, Resync: time.Hour})
	failing = forgetful(t, again)
	_, stop = startWith(t, again)
	again.Set(d)
	again.Translate("default/dns", translationsOf("udp 30053"))
	again.TranslationsLoaded()
	translated(t, again)
	wantTracked(t)

	// The table goes. Its agent ends before it looks.
	send(t, "192.0.2.1:30053")
	failing.Store(true)
	off := node()
	off.Services.Entries = serving().Services.Entries
	again.Set(off)
	unfinished(t, again, true)
	stop()
	if out := sh(t, "nft list tables"); strings.Contains(out, servicesTable) {
		t.Errorf("the table is still there: %s", out)
	}
	wantTracked(t, "192.0.2.1:30053")
	third := run(t, ns, time.Hour)
	third.Set(off)
	third.TranslationsLoaded()
	wantTracked(t)
}

// TestListConnections has the kernel select connections, and counts the connections that keep their flows.
func TestListConnections(t *testing.T) {
	enter(t)
	entries := serving().Services.Entries[0]
	sh(t, "ip link add gw0 type veth peer name far && ip link set gw0 up && ip address add 192.0.2.1/24 dev lo")
	sh(t, "ip address add 169.254.0.251/32 dev lo")
	sh(t, `nft 'table ip other { chain output { type nat hook output priority -100;
		tcp dport 30080 dnat to 169.254.0.251; udp dport 30053 dnat to 169.254.0.251; }; }'`)
	open := func() int {
		t.Helper()
		n, err := OpenThrough(entries)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	connect := func(to string) (client, server net.Conn) {
		t.Helper()
		_, port, _ := strings.Cut(to, ":")
		at := "192.0.2.1:" + port
		if strings.HasPrefix(port, "30") {
			at = "169.254.0.251:" + port
		}
		l, err := net.Listen("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if client, err = net.Dial("tcp4", to); err != nil {
			t.Fatal(err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); server.Close() })
		return client, server
	}
	client, server := connect("192.0.2.1:30080")
	connect("192.0.2.1:80")
	send(t, "192.0.2.1:30053")
	send(t, "192.0.2.1:54")
	leads := func(link string, want bool) {
		t.Helper()
		if leads, err := LeadsTo(link, entries); err != nil || leads != want {
			t.Errorf("a route to the entries by %s: %v %v, want %v", link, leads, err, want)
		}
	}
	leads("gw0", false)
	sh(t, "ip route add "+entries.String()+" dev gw0")
	leads("gw0", true)
	leads("far", false)
	leads("none", false)
	if n := open(); n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}

	// The kernel selects, since a host may have a million others.
	for _, row := range []struct {
		filter connectionFilter
		want   map[string]bool
	}{
		{translatedConnections, map[string]bool{
			"6 192.0.2.1:30080 169.254.0.251:30080": true, "17 192.0.2.1:30053 169.254.0.251:30053": true}},
		{datagramConnections, map[string]bool{
			"17 192.0.2.1:30053 169.254.0.251:30053": true, "17 192.0.2.1:54 192.0.2.1:54": true}},
	} {
		have := map[string]bool{}
		if err := listConnections(unix.AF_INET, row.filter, func(c connection, _ []byte) {
			have[fmt.Sprintf("%d %s %s", c.protocol, c.to, c.answers)] = true
		}); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(have) != fmt.Sprint(row.want) {
			t.Errorf("filter %d: %v, want %v", row.filter, have, row.want)
		}
	}

	server.Close()
	client.Close()
	ovstest.Eventually(t, "the connection has ended", func() error {
		if n := open(); n != 0 {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
}

// TestParseConnection reads messages of other forms, which must not panic.
func TestParseConnection(t *testing.T) {
	for _, msg := range [][]byte{nil, {2, 0, 0}, {2, 0, 0, 0}, {2, 0, 0, 0, 3, 0, 1, 128},
		{2, 0, 0, 0, 255, 255, 1, 128, 1}, {2, 0, 0, 0, 9, 0, 1, 128, 5, 0, 1, 128, 1, 0, 0, 0}} {
		if c, ok := parseConnection(msg); ok {
			t.Errorf("%v is a connection: %+v", msg, c)
		}
	}
	through := connection{protocol: unix.IPPROTO_TCP, to: netip.MustParseAddrPort("192.0.2.1:30080"),
		answers: netip.MustParseAddrPort("169.254.0.252:30080")}
	if !through.isThrough(serving().Services.Entries[0]) {
		t.Error("a connection to an entry is not found")
	}
	if through.zone = 65520; through.isThrough(serving().Services.Entries[0]) {
		t.Error("a connection of the switch is the host's")
	}
}
