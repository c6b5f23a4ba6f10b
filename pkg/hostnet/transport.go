package hostnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
	"github.com/tombolo-net/tombolo/pkg/sysctl"
)

// Transport is an interface that carries the Node's traffic, as the kernel has it.
type Transport struct {
	Interface string
	Addresses []netip.Prefix // without link-local IPv6 addresses
	Routes    []Route        // routes of the main table, without the routes that come with the addresses
	MTU       int
	MAC       string
}

// ReadTransport reads an interface in the network namespace of the calling thread.
func ReadTransport(iface string) (Transport, error) {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return Transport{}, fmt.Errorf("read interface %s: %w", iface, err)
	}
	t := Transport{Interface: iface, MTU: link.Attrs().MTU, MAC: link.Attrs().HardwareAddr.String()}
	addresses, err := rtnetlink.List(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return Transport{}, fmt.Errorf("read the addresses of interface %s: %w", iface, err)
	}
	for _, a := range addresses {
		if p, ok := prefixOf(a.IPNet); ok && (p.Addr().Is4() || !p.Addr().IsLinkLocalUnicast()) {
			t.Addresses = append(t.Addresses, p)
		}
	}
	routes, err := rtnetlink.List(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL,
			&netlink.Route{Table: unix.RT_TABLE_MAIN, LinkIndex: link.Attrs().Index},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	})
	if err != nil {
		return Transport{}, fmt.Errorf("read the routes of interface %s: %w", iface, err)
	}
	for _, r := range routes {
		dst, ok := routeDst(r)
		if !ok || r.Type != unix.RTN_UNICAST || r.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		route := Route{Dst: dst, Link: iface, Metric: metricOf(r), MTU: r.MTU, OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0}
		if gw, ok := netip.AddrFromSlice(r.Gw); ok {
			route.Gateway = gw.Unmap()
		}
		if src, ok := netip.AddrFromSlice(r.Src); ok {
			route.Source = src.Unmap()
		}
		// These are the host's routes to Pods of other Nodes. They do not belong to the interface's configuration. Their
		// source is the gateway port's address.
		if r.Protocol == RouteProtocol && route.Source.IsValid() && !slices.ContainsFunc(t.Addresses,
			func(p netip.Prefix) bool { return p.Addr() == route.Source }) {
			continue
		}
		t.Routes = append(t.Routes, route)
	}
	return t, nil
}

// Addresses returns the addresses of this host in order, in the network namespace of the calling thread. It leaves out
// link-local IPv6 addresses.
func Addresses() ([]netip.Addr, error) {
	list, err := rtnetlink.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("read the host's addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if p, ok := prefixOf(a.IPNet); ok && (p.Addr().Is4() || !p.Addr().IsLinkLocalUnicast()) {
			out = append(out, p.Addr())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// HasIPv6 reports whether IPv6 is switched on in the kernel, in the network namespace of the calling thread.
func HasIPv6() (bool, error) {
	off, err := sysctl.Get("net/ipv6/conf/all/disable_ipv6")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read whether IPv6 is off: %w", err)
	}
	return off == "0", nil
}

// InterfaceWith returns the name of the interface that holds an address, in the network
// namespace of the calling thread.
func InterfaceWith(addr netip.Addr) (string, error) {
	list, err := rtnetlink.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return "", fmt.Errorf("find the interface with address %s: %w", addr, err)
	}
	for _, a := range list {
		if p, ok := prefixOf(a.IPNet); ok && p.Addr() == addr.Unmap() {
			link, err := netlink.LinkByIndex(a.LinkIndex)
			if err != nil {
				return "", fmt.Errorf("find the interface with address %s: %w", addr, err)
			}
			return link.Attrs().Name, nil
		}
	}
	return "", fmt.Errorf("no interface has address %s; set transportInterface in the agent's configuration, "+
		"or correct the Node's InternalIP", addr)
}

// These are keys in the transport bridge's external_ids. While the bridge has taken over the uplink, they hold the
// uplink's configuration as JSON. If ovs-vswitchd dies, no link has the addresses, and only this record can bring the
// Node back.
const (
	UplinkAddressesKey = "tombolo-uplink-addresses"
	UplinkRoutesKey    = "tombolo-uplink-routes"
)

// Uplink describes how an interface is moved onto a bridge of the userspace datapath. The bridge has fail_mode
// standalone, and the interface is its port.
//
// It has to be in the database, with ExternalIDs, before Links and Routes are applied: after that, only this record has
// the addresses.
type Uplink struct {
	ExternalIDs  map[string]string // the record, for the bridge
	HardwareAddr string            // for the bridge, which takes over the interface's MAC
	MTU          int               // of both
	Addresses    []netip.Prefix    // that the bridge's local port has
	Links        []Link            // the interface without, the bridge's local port with the addresses
	Routes       []Route           // of the interface, by the bridge
}

// PlanUplink decides what to keep and what to configure. recorded is the bridge's external_ids, empty before the move.
// found is the interface as it is now. The result is the same before, during and after the move, so it can be computed
// again after every restart.
//
// If the interface has an address that the record lacks, the interface has been configured again in that version of IP.
// Its addresses and routes of that version replace the recorded ones. The record of the other version stays: the
// interface lacks it since it has moved.
func PlanUplink(bridge string, recorded map[string]string, found Transport) (Uplink, error) {
	var addresses []netip.Prefix
	var routes []Route
	for key, into := range map[string]any{UplinkAddressesKey: &addresses, UplinkRoutesKey: &routes} {
		if text := recorded[key]; text != "" {
			err := json.Unmarshal([]byte(text), into)
			switch { // an empty text is JSON's way to write no address
			case err != nil:
			case slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return !p.IsValid() }):
				err = fmt.Errorf("%s has an address without a value", text)
			case slices.ContainsFunc(routes, func(r Route) bool { return !r.Dst.IsValid() }):
				err = fmt.Errorf("%s has a route without dst", text)
			}
			if err != nil {
				return Uplink{}, fmt.Errorf("bridge %s: external_ids:%s: %w; remove the key and give the addresses back to %s",
					bridge, key, err, found.Interface)
			}
		}
	}
	changed := map[bool]bool{} // key: is IPv4
	for _, p := range found.Addresses {
		if !slices.Contains(addresses, p) {
			changed[is4(p)] = true
		}
	}
	addresses = slices.DeleteFunc(addresses, func(p netip.Prefix) bool { return changed[is4(p)] })
	routes = slices.DeleteFunc(routes, func(r Route) bool { return changed[is4(r.Dst)] })
	for _, p := range found.Addresses {
		if changed[is4(p)] {
			addresses = append(addresses, p)
		}
	}
	for _, r := range found.Routes {
		r.Link = bridge
		i := slices.IndexFunc(routes, func(old Route) bool { return old.Dst == r.Dst && old.Metric == r.Metric })
		if i >= 0 {
			routes[i] = r
		} else {
			routes = append(routes, r)
		}
	}
	if len(addresses) == 0 {
		return Uplink{},
			fmt.Errorf("interface %s cannot be moved onto bridge %s: it has no address and no address is recorded; configure "+
				"it, or set another transportInterface", found.Interface, bridge)
	}
	if routes == nil {
		routes = []Route{} // recorded as [], not null
	}
	for i := range routes {
		routes[i].Link = bridge
	}
	u := Uplink{
		ExternalIDs:  map[string]string{},
		HardwareAddr: found.MAC,
		MTU:          found.MTU,
		Addresses:    addresses,
		Links: []Link{
			{Name: found.Interface, MTU: found.MTU, Up: true, NoAddresses: true},
			{Name: bridge, MTU: found.MTU, Up: true, Addresses: addresses, Shared: true},
		},
		Routes: routes,
	}
	for key, value := range map[string]any{UplinkAddressesKey: addresses, UplinkRoutesKey: routes} {
		text, err := json.Marshal(value)
		if err != nil {
			return Uplink{}, fmt.Errorf("bridge %s: record %s: %w", bridge, key, err)
		}
		u.ExternalIDs[key] = string(text)
	}
	return u, nil
}

// ReturnUplink is the reverse of PlanUplink: it returns addresses and routes from a bridge to its interface, as the
// bridge's record lists them. It works in the network namespace of the calling thread. The bridge must be deleted
// before. The routes are marked as an administrator's routes, so no agent treats them as its own.
func ReturnUplink(bridge, iface string, recorded map[string]string) error {
	u, err := PlanUplink(bridge, recorded, Transport{Interface: iface})
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(iface)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("bring interface %s up: %w", iface, err)
	}
	for _, p := range u.Addresses {
		if err := netlink.AddrReplace(link, netlinkAddr(p)); err != nil {
			return fmt.Errorf("give address %s back to interface %s: %w", p, iface, err)
		}
	}
	for _, r := range connectedFirst(u.Routes) {
		route := netlinkRoute(r, unix.RT_TABLE_MAIN, link.Attrs().Index)
		route.Protocol = unix.RTPROT_BOOT
		if err := netlink.RouteReplace(&route); err != nil {
			return fmt.Errorf("give route %s back to interface %s: %w", r.Dst, iface, err)
		}
	}
	return nil
}

func is4(p netip.Prefix) bool { return p.Addr().Is4() }
