package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

func prefixes(texts ...string) []netip.Prefix {
	var result []netip.Prefix
	for _, t := range texts {
		result = append(result, netip.MustParsePrefix(t))
	}
	return result
}

func TestPlanUplink(t *testing.T) {
	t.Parallel()
	route := func(link string) []Route {
		return []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.168.77.1"), Link: link}}
	}
	route6 := func(link, gateway string) []Route {
		return []Route{{Dst: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr(gateway), Link: link}}
	}
	const (
		oneAddress  = `["192.168.77.101/24"]`
		twoAddress  = `["192.168.77.101/24","192.168.77.102/24"]`
		defaultOnly = `[{"dst":"0.0.0.0/0","gateway":"192.168.77.1","link":"br-eth1"}]`

		default6Only = `[{"dst":"::/0","gateway":"fd77::1","link":"br-eth1"}]`
		default46    = `[{"dst":"0.0.0.0/0","gateway":"192.168.77.1","link":"br-eth1"},` +
			`{"dst":"::/0","gateway":"fd77::1","link":"br-eth1"}]`
	)
	for _, row := range []struct {
		name      string
		recorded  map[string]string
		found     Transport
		addresses []netip.Prefix
		routes    []Route
		err       string
	}{
		{
			name:      "first start: the interface has it all",
			found:     Transport{Addresses: prefixes("192.168.77.101/24"), Routes: route("eth1")},
			addresses: prefixes("192.168.77.101/24"), routes: route("br-eth1"),
		},
		{
			name:      "moved: the record has it all",
			recorded:  map[string]string{UplinkAddressesKey: oneAddress, UplinkRoutesKey: defaultOnly},
			addresses: prefixes("192.168.77.101/24"), routes: route("br-eth1"),
		},
		{
			name:      "half moved: one address is still on the interface",
			recorded:  map[string]string{UplinkAddressesKey: twoAddress, UplinkRoutesKey: defaultOnly},
			found:     Transport{Addresses: prefixes("192.168.77.102/24")},
			addresses: prefixes("192.168.77.101/24", "192.168.77.102/24"), routes: route("br-eth1"),
		},
		{
			name:      "readdressed: the record is out of date",
			recorded:  map[string]string{UplinkAddressesKey: twoAddress, UplinkRoutesKey: defaultOnly},
			found:     Transport{Addresses: prefixes("192.168.80.5/24")},
			addresses: prefixes("192.168.80.5/24"), routes: nil,
		},
		{
			name:      "IPv6 comes after IPv4 has moved",
			recorded:  map[string]string{UplinkAddressesKey: oneAddress, UplinkRoutesKey: defaultOnly},
			found:     Transport{Addresses: prefixes("fd77::101/64"), Routes: route6("eth1", "fd77::1")},
			addresses: prefixes("192.168.77.101/24", "fd77::101/64"),
			routes:    append(route("br-eth1"), route6("br-eth1", "fd77::1")...),
		},
		{
			name:      "IPv4 comes after IPv6 has moved",
			recorded:  map[string]string{UplinkAddressesKey: `["fd77::101/64"]`, UplinkRoutesKey: default6Only},
			found:     Transport{Addresses: prefixes("192.168.77.101/24"), Routes: route("eth1")},
			addresses: prefixes("fd77::101/64", "192.168.77.101/24"),
			routes:    append(route6("br-eth1", "fd77::1"), route("br-eth1")...),
		},
		{
			name: "readdressed in IPv6 alone",
			recorded: map[string]string{UplinkAddressesKey: `["192.168.77.101/24","fd77::101/64"]`,
				UplinkRoutesKey: default46},
			found:     Transport{Addresses: prefixes("fd80::5/64"), Routes: route6("eth1", "fd80::1")},
			addresses: prefixes("192.168.77.101/24", "fd80::5/64"),
			routes:    append(route("br-eth1"), route6("br-eth1", "fd80::1")...),
		},
		{
			name: "readdressed in both",
			recorded: map[string]string{UplinkAddressesKey: `["192.168.77.101/24","fd77::101/64"]`,
				UplinkRoutesKey: default46},
			found:     Transport{Addresses: prefixes("192.168.80.5/24", "fd80::5/64"), Routes: route6("eth1", "fd80::1")},
			addresses: prefixes("192.168.80.5/24", "fd80::5/64"), routes: route6("br-eth1", "fd80::1"),
		},
		{
			name: "nothing to move",
			err:  "interface eth1 cannot be moved onto bridge br-eth1: it has no address and no address is recorded",
		},
		{
			name:     "spoilt record",
			recorded: map[string]string{UplinkAddressesKey: "{"},
			err:      "bridge br-eth1: external_ids:" + UplinkAddressesKey,
		},
		{
			name:     "record with an empty address",
			recorded: map[string]string{UplinkAddressesKey: `[""]`},
			err:      "external_ids:tombolo-uplink-addresses: [\"\"] has an address without a value; remove the key",
		},
		{
			name:     "record with an empty route",
			recorded: map[string]string{UplinkAddressesKey: `["192.168.77.101/24"]`, UplinkRoutesKey: `[{}]`},
			err:      "external_ids:tombolo-uplink-routes: [{}] has a route without dst; remove the key",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.found.Interface, row.found.MTU, row.found.MAC = "eth1", 1500, "02:00:00:00:00:01"
			u, err := PlanUplink("br-eth1", row.recorded, row.found)
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Fatalf("error is %v, want %q", err, row.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			comparable := []cmp.Option{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
			if diff := cmp.Diff(row.addresses, u.Addresses, comparable...); diff != "" {
				t.Errorf("addresses: -want +have:\n%s", diff)
			}
			if diff := cmp.Diff(row.routes, u.Routes, comparable...); diff != "" {
				t.Errorf("routes: -want +have:\n%s", diff)
			}
			// Asked again with nothing but its own record, it says the same.
			again, err := PlanUplink("br-eth1", u.ExternalIDs, Transport{Interface: "eth1", MTU: 1500, MAC: "02:00:00:00:00:01"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(u, again, comparable...); diff != "" {
				t.Errorf("asked again: -first +second:\n%s", diff)
			}
		})
	}
}

// TestUplinkMoves puts an interface onto a bridge of the userspace datapath, as the agent
// does, and kills ovs-vswitchd, with and without the bridge's device and the Node's address
// on it.
func TestUplinkMoves(t *testing.T) {
	t.Parallel()
	router := enter(t)
	node := enter(t)
	sh(t, "ip link add eth1 type veth peer name uplink")
	uplinkTo(t, node, router)
	sh(t, "ip addr add 192.168.77.101/24 dev eth1 && ip addr add fd77::101/64 dev eth1 nodad && ip link set eth1 up &&"+
		"ip route add default via 192.168.77.1 && ip route add default via fd77::1")
	inside(t, router, node, func() { sh(t, "ip addr add fd77::1/64 dev uplink nodad; ip addr add fd99::9/128 dev lo") })
	reach := func() error { return ping("192.168.77.1", "10.9.9.9", "fd77::1", "fd99::9") }
	ovstest.Eventually(t, "ping before the move", reach)

	s := ovstest.Start(t, "--disable-system")
	bridges, stop := runBridges(t, s)
	host := run(t, node, time.Hour)
	apply := func() {
		t.Helper()
		found, err := ReadTransport("eth1")
		if err != nil {
			t.Fatal(err)
		}
		u, err := PlanUplink("br-eth1", bridges.State().Bridges["br-eth1"].ExternalIDs, found)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), ovstest.Timeout())
		defer cancel()
		bridges.Set([]bridge.Bridge{{
			Name: "br-eth1", DatapathType: "netdev", FailMode: "standalone",
			HardwareAddr: u.HardwareAddr, ExternalIDs: u.ExternalIDs,
			Ports: []bridge.Port{{Name: "eth1", ExternalIDs: map[string]string{bridge.TypeKey: "uplink"}}},
		}})
		if err := bridges.Synced(ctx); err != nil {
			t.Fatal(err)
		}
		host.Set(Desired{Links: u.Links, Routes: u.Routes})
		if err := host.Synced(ctx); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	ovstest.Eventually(t, "ping after the move", reach)
	if name, err := InterfaceWith(netip.MustParseAddr("192.168.77.101")); err != nil || name != "br-eth1" {
		t.Errorf("the address is on %q, %v", name, err)
	}
	out := sh(t, "ip addr show dev eth1 scope global; ip -6 route show default dev eth1")
	if strings.Contains(out, "inet") || strings.Contains(out, "default") {
		t.Errorf("eth1 still has %s", out)
	}
	// The host receives each packet once, although the kernel sees it on eth1 too.
	inside(t, router, node, func() {
		if err := ping("192.168.77.101", "fd77::101"); err != nil {
			t.Errorf("from the router: %v", err)
		}
	})
	changes, transactions := host.Stats().Changes, bridges.Stats().Transactions
	apply()
	if a, b := host.Stats().Changes, bridges.Stats().Transactions; a != changes || b > transactions+1 {
		t.Errorf("asked again: %d changes of the kernel, %d transactions", a-changes, b-transactions)
	}

	// ovs-vswitchd dies and comes back; nothing else is notified. Its devices are persistent
	// (TUNSETPERSIST) and survive a crash, but not an orderly removal.
	for _, device := range []string{"stays", "goes"} {
		s.StopDaemon()
		if device == "goes" {
			sh(t, "ip link del br-eth1")
		}
		if err := ping("192.168.77.1"); err == nil {
			t.Error("ping works without ovs-vswitchd")
		}
		s.StartDaemon()
		began := time.Now()
		ovstest.Eventually(t, "ping after ovs-vswitchd's restart", reach)
		t.Logf("the device %s: back after %v", device, time.Since(began))
	}

	// Both die: only the record in the database knows the address.
	s.StopDaemon()
	stop()
	sh(t, "ip link del br-eth1")
	s.StartDaemon()
	bridges, _ = runBridges(t, s)
	apply()
	ovstest.Eventually(t, "ping after everybody's restart", reach)
}

// TestTunnelsAskFirst: the switch has the next hops of its tunnels before it has sent anything there, also after its
// restart.
func TestTunnelsAskFirst(t *testing.T) {
	t.Parallel()
	router := enter(t)
	node := enter(t)
	sh(t, "ip link add eth1 type veth peer name uplink")
	uplinkTo(t, node, router)
	sh(t, "ip link set eth1 up")
	s := ovstest.Start(t, "--disable-system")
	bridges, _ := runBridges(t, s)
	bridges.Set([]bridge.Bridge{{
		Name: "br-eth1", DatapathType: "netdev", FailMode: "standalone",
		Ports: []bridge.Port{{Name: "eth1", ExternalIDs: map[string]string{bridge.TypeKey: "uplink"}}},
	}, {
		Name: "br-int", DatapathType: "netdev", FailMode: "secure",
		Ports: []bridge.Port{{Name: "tun0", Type: "geneve", Options: map[string]string{"remote_ip": "flow", "key": "flow"}}},
	}})
	host := run(t, node, time.Hour)
	host.Set(Desired{
		Links: []Link{{Name: "eth1", NoAddresses: true},
			{Name: "br-eth1", Up: true, Addresses: prefixes("192.168.77.101/24")}},
		Routes: []Route{{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: netip.MustParseAddr("192.168.77.1"),
			Link: "br-eth1"}},
		Tunnels: []Tunnels{{Link: "br-eth1", Peers: []netip.Addr{
			netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("192.168.77.7"), netip.MustParseAddr("203.0.113.9"),
		}}},
	})
	known := func() error {
		out, err := appctl.Client{RunDir: s.RunDir()}.Run(t.Context(), "tnl/neigh/show")
		if err != nil {
			return err
		}
		for _, hop := range []string{"192.168.77.1 ", "192.168.77.7 "} {
			if !strings.Contains(out, hop) {
				return fmt.Errorf("%s is not known: %s", hop, out)
			}
		}
		return nil
	}
	inside(t, router, node, func() { sh(t, "ip addr add 192.168.77.7/24 dev uplink") })
	ovstest.Eventually(t, "the next hops are known", known)
	synced(t, host) // an address without a route is not a problem here
	for _, device := range []string{"stays", "goes"} {
		s.StopDaemon()
		if device == "goes" {
			sh(t, "ip link del br-eth1")
		}
		s.StartDaemon()
		ovstest.Eventually(t, "the next hops are known after ovs-vswitchd's restart; the device "+device, known)
	}
}

// TestGatewayPort restarts ovs-vswitchd, with and without the gateway port's device. On the userspace datapath the
// device is a tap of ovs-vswitchd's, on the kernel's a port of the datapath. It has to come back with its MAC, address,
// MTU and routes.
func TestGatewayPort(t *testing.T) {
	t.Parallel()
	ns := enter(t)
	s := ovstest.Start(t, ovstest.Userspace)
	bridges, _ := runBridges(t, s)
	mac := bridge.MACOf("node")
	bridges.Set([]bridge.Bridge{{
		Name: "br-int", DatapathType: ovstest.Datapath(), FailMode: "secure",
		Ports: []bridge.Port{{Name: "gw0", Type: "internal", OFPort: 32769, MAC: mac, MTU: 1450,
			ExternalIDs: map[string]string{bridge.TypeKey: "gateway"}}},
	}})
	host := run(t, ns, time.Hour)
	host.Set(node())
	ctx, cancel := context.WithTimeout(context.Background(), ovstest.Timeout())
	defer cancel()
	if err := bridges.Synced(ctx); err != nil {
		t.Fatal(err)
	}
	synced(t, host)
	all := func() string {
		address, _ := try("ip -o link show dev gw0 | grep -o 'link/ether [^ ]*'")
		return kernel() + address
	}
	want := all()
	if !strings.Contains(want, mac) {
		t.Errorf("gw0's MAC is not %s:\n%s", mac, want)
	}
	for _, device := range []string{"stays", "goes"} {
		s.StopDaemon()
		switch {
		case device == "goes" && ovstest.System():
			sh(t, "ovs-dpctl del-dp ovs-system")
		case device == "goes":
			sh(t, "ip link del gw0")
		}
		s.StartDaemon()
		began := time.Now()
		ovstest.Eventually(t, "gw0 is as before", func() error { return difference(want, all()) })
		t.Logf("the device %s: back after %v", device, time.Since(began))
		if err := bridges.Synced(ctx); err != nil {
			t.Error(err)
		}
	}
}

// inside runs f in another network namespace.
func inside(t *testing.T, other, back netns.NsHandle, f func()) {
	t.Helper()
	if err := netns.Set(other); err != nil {
		t.Fatal(err)
	}
	f()
	if err := netns.Set(back); err != nil {
		t.Fatal(err)
	}
}

// uplinkTo moves the far end of eth1 to the router's namespace and configures it there.
func uplinkTo(t *testing.T, node, router netns.NsHandle) {
	t.Helper()
	link, err := netlink.LinkByName("uplink")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(link, int(router)); err != nil {
		t.Fatal(err)
	}
	inside(t, router, node, func() {
		sh(t, "ip addr add 192.168.77.1/24 dev uplink && ip link set uplink up && ip addr add 10.9.9.9/32 dev lo")
	})
}

// runBridges starts a bridge manager; stop ends it before the test does.
func runBridges(t *testing.T, s *ovstest.Switch) (m *bridge.Manager, stop func()) {
	t.Helper()
	m = bridge.New(bridge.Options{Endpoint: s.Endpoint()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			<-done
		}
	}
	t.Cleanup(stop)
	ovstest.Eventually(t, "the database is read", func() error {
		if !m.State().Connected {
			return fmt.Errorf("not connected")
		}
		return nil
	})
	return m, stop
}
