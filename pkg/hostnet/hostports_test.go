package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// mapping is a Node with a table of ports.
func mapping() Desired {
	d := node()
	d.HostPorts = HostPorts{Link: "gw0", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	return d
}

// hostPortsFrom reads "tcp 8080 10.1.0.2:80" and "udp 127.0.0.1:53 10.1.0.2:53".
func hostPortsFrom(texts ...string) (out []HostPort) {
	for _, text := range texts {
		var p HostPort
		var at, to string
		fmt.Sscan(text, &p.Protocol, &at, &to)
		p.To = netip.MustParseAddrPort(to)
		if strings.Contains(at, ":") {
			from := netip.MustParseAddrPort(at)
			p.Address, p.Port = from.Addr(), from.Port()
		} else {
			fmt.Sscan(at, &p.Port)
		}
		out = append(out, p)
	}
	return out
}

func mapped(t *testing.T, m *Manager) {
	t.Helper()
	ctx, cancel := deadline(t)
	defer cancel()
	if err := m.PortsSynced(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestHostPorts writes the table of ports with the real nft, ends connections of UDP that go elsewhere, mends what
// another program changes, and removes the table.
func TestHostPorts(t *testing.T) {
	ns := enter(t)
	sh(t, "ip link add gw0 type veth peer name far && ip link set gw0 up && ip address add 192.0.2.1/24 dev lo")
	sh(t, "ip route add 10.1.0.0/24 dev gw0")
	m := run(t, ns, time.Hour)
	m.Set(mapping())
	synced(t, m)
	m.MapPorts("web", hostPortsFrom("tcp 8080 10.1.0.2:80", "sctp 127.0.0.1:9090 10.1.0.2:90"))
	if out := sh(t, "nft list tables"); strings.Contains(out, hostPortsTable) {
		t.Errorf("before all Pods are declared there is %s", out)
	}
	m.PortsLoaded()
	mapped(t, m)
	elements := func(want ...string) {
		t.Helper()
		if have := listedIn(t, hostPortsTable, hostPortAny); !slices.Equal(have, want) {
			t.Errorf("%s has %q, want %q", hostPortAny, have, want)
		}
	}
	elements("tcp . 8080 : 10.1.0.2 . 80")
	at := listedIn(t, hostPortsTable, hostPortAt)
	if want := []string{"127.0.0.1 . sctp . 9090 : 10.1.0.2 . 90"}; !slices.Equal(at, want) {
		t.Errorf("%s has %q, want %q", hostPortAt, at, want)
	}

	// A machine on the link may ask for 127.0.0.1. Own processes do not pass this chain.
	if out := sh(t, "nft list chain inet "+hostPortsTable+" prerouting"); strings.Count(out, "dnat") != 2 ||
		strings.Count(out, "ip daddr != 127.0.0.0/8") != 2 {
		t.Errorf("127.0.0.1 is translated for other machines:\n%s", out)
	}

	// A client that was there before the Pod, of a port at every address and of one at a single address.
	for _, to := range []string{"192.0.2.1:53", "127.0.0.1:53", "192.0.2.1:54", "192.0.2.1:55"} {
		send(t, to)
	}
	wantTracked(t, "127.0.0.1:53", "192.0.2.1:53", "192.0.2.1:54", "192.0.2.1:55")
	m.MapPorts("dns", hostPortsFrom("udp 53 10.1.0.3:53", "udp 192.0.2.1:54 10.1.0.3:54"))
	mapped(t, m)
	wantTracked(t, "192.0.2.1:55")
	// The Pod goes, and its clients' connections with it.
	send(t, "192.0.2.1:53")
	wantTracked(t, "192.0.2.1:53", "192.0.2.1:55")
	m.MapPorts("dns", nil)
	mapped(t, m)
	wantTracked(t, "192.0.2.1:55")
	elements("tcp . 8080 : 10.1.0.2 . 80")

	for _, line := range []string{"nft delete table inet " + hostPortsTable,
		"nft flush chain inet " + hostPortsTable + " output"} {
		sh(t, line)
		ovstest.Eventually(t, line, func() error {
			out, err := try("nft list table inet " + hostPortsTable)
			if err == nil && (!strings.Contains(out, "10.1.0.2 . 80") || strings.Count(out, "dnat") != 4) {
				err = errors.New(out)
			}
			return err
		})
	}

	// The last Pod with a port goes: the table goes with its connections. It also goes if an earlier agent wrote it.
	m.MapPorts("dns", hostPortsFrom("udp 53 10.1.0.3:53"))
	mapped(t, m)
	send(t, "192.0.2.1:53")
	wantTracked(t, "192.0.2.1:53", "192.0.2.1:55")
	m.Set(unmapped())
	ovstest.Eventually(t, "removed", func() error { return withoutTable(t) })
	wantTracked(t, "192.0.2.1:55")
	send(t, "192.0.2.1:53")
	wantTracked(t, "192.0.2.1:53", "192.0.2.1:55")
	sh(t, fmt.Sprintf(`nft 'table inet %s {
		map %s { type %s; elements = { udp . 53 : 10.1.0.3 . 53 }; }
		map %s { type %s; }
	}'`, hostPortsTable, hostPortAny, hostPortMaps[hostPortAny], hostPortAt, hostPortMaps[hostPortAt]))
	ovstest.Eventually(t, "the other agent's is removed", func() error { return withoutTable(t) })
	wantTracked(t, "192.0.2.1:55")
}

// unmapped is the Node without ports.
func unmapped() Desired {
	d := mapping()
	d.HostPorts.Link = ""
	return d
}

func withoutTable(t *testing.T) error {
	if out := sh(t, "nft list tables"); strings.Contains(out, hostPortsTable) {
		return errors.New(out)
	}
	return nil
}
