package hostnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/sysctl"
)

// applier makes one comparison after the other. After begin, each part reads its share of
// the kernel's state and sends what differs; a part that fails does not stop the others.
type applier struct {
	handle *netlink.Handle
	log    *slog.Logger
	reads  uint64 // how often a table was read
	// These keep what earlier comparisons have found.
	hops    tunnelHops
	routers routerLinks

	ctx     context.Context
	want    Desired
	index   map[string]netlink.Link // links that exist
	changes []string
	pending []problem.Problem
	failed  []problem.Problem
	noted   []problem.Problem // nothing waits for these
}

func (a *applier) begin(ctx context.Context, want Desired) {
	a.ctx, a.want = ctx, want
	a.changes, a.pending, a.failed, a.noted = nil, nil, nil, nil
	a.index, a.routers.found = map[string]netlink.Link{}, nil
}

// change counts and describes a change that was sent, or the kernel's refusal.
func (a *applier) change(err error, object problem.Object, field, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if err != nil {
		a.failed = append(a.failed, problem.Problem{Object: object, Field: field, Reason: reasonRefused,
			Message: fmt.Sprintf("%s: %v", text, err)})
		return
	}
	a.changes = append(a.changes, object.String()+": "+text)
}

func (a *applier) wait(object problem.Object, format string, args ...any) {
	a.pending = append(a.pending,
		problem.Problem{Object: object, Reason: reasonPending, Message: fmt.Sprintf(format, args...)})
}

// report notes a problem for which nothing waits.
func (a *applier) report(object problem.Object, format string, args ...any) {
	a.noted = append(a.noted,
		problem.Problem{Object: object, Reason: reasonRefused, Message: fmt.Sprintf(format, args...)})
}

// link returns a link by name, or nil.
func (a *applier) link(name string) netlink.Link {
	if l, ok := a.index[name]; ok {
		return l
	}
	l, err := a.handle.LinkByName(name)
	if err != nil {
		var missing netlink.LinkNotFoundError
		if !errors.As(err, &missing) {
			a.change(err, problem.Object{Kind: "link", Name: name}, "", "read it")
		}
		l = nil
	}
	a.index[name] = l
	return l
}

func (a *applier) links() {
	// Addresses leave one link before they come to another.
	ordered := slices.Clone(a.want.Links)
	slices.SortStableFunc(ordered, func(x, y Link) int {
		switch {
		case x.NoAddresses == y.NoAddresses:
			return 0
		case x.NoAddresses:
			return -1
		}
		return 1
	})
	for _, want := range ordered {
		object := problem.Object{Kind: "link", Name: want.Name}
		have := a.link(want.Name)
		if have == nil {
			a.wait(object, "it does not exist yet")
			continue
		}
		if attrs := have.Attrs(); want.MTU != 0 && attrs.MTU != want.MTU {
			a.change(a.handle.LinkSetMTU(have, want.MTU), object, "mtu", "set MTU %d, was %d", want.MTU, attrs.MTU)
		}
		if want.Up && have.Attrs().Flags&net.FlagUp == 0 {
			a.change(a.handle.LinkSetUp(have), object, "up", "bring it up")
		}
		a.addresses(want, have)
	}
}

func (a *applier) addresses(want Link, link netlink.Link) {
	if len(want.Addresses) == 0 && !want.NoAddresses {
		return
	}
	object := problem.Object{Kind: "link", Name: want.Name}
	have, err := a.handle.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		a.change(err, object, "addresses", "read addresses")
		return
	}
	addresses := slices.Clone(want.Addresses)
	for _, ip := range want.Held {
		addresses = append(addresses, netip.PrefixFrom(ip, ip.BitLen()))
	}
	families := map[bool]bool{true: want.NoAddresses, false: want.NoAddresses} // key: is IPv4
	for _, p := range addresses {
		families[p.Addr().Is4()] = true
	}
	there := map[netip.Prefix]bool{}
	for _, addr := range have {
		p, ok := prefixOf(addr.IPNet)
		if !ok || p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() {
			continue
		}
		there[p] = true
		// The Node should have no address of this version of IP on the link. Only a former held address is removed: it is
		// deprecated.
		wasHeld := p.IsSingleIP() && (p.Addr().Is4() || addr.PreferedLft == 0)
		if slices.Contains(addresses, p) || want.Shared || !families[p.Addr().Is4()] && !wasHeld {
			continue
		}
		err := a.handle.AddrDel(link, &addr)
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			continue // a secondary address has gone with its primary
		}
		a.change(err, object, "addresses", "remove address %s", p)
	}
	for i, p := range addresses {
		if !there[p] {
			add := netlinkAddr(p)
			if i >= len(want.Addresses) && p.Addr().Is6() {
				add.ValidLft = math.MaxUint32 // for ever, and deprecated: PreferedLft is 0
			}
			a.change(a.handle.AddrAdd(link, add), object, "addresses", "add address %s", p)
		}
	}
}

// netlinkAddr returns an address as it is added. Linux does not check whether another host has an IPv6 address: the
// switch answers for the address itself, and Linux would not use it.
func netlinkAddr(p netip.Prefix) *netlink.Addr {
	addr := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

// neighbors keeps permanent entries. On a link that has one of ours it removes all other permanent entries: no other
// program has a reason to add any there.
func (a *applier) neighbors() {
	byLink := map[string][]Neighbor{}
	for _, n := range a.want.Neighbors {
		byLink[n.Link] = append(byLink[n.Link], n)
	}
	for _, name := range slices.Sorted(maps.Keys(byLink)) {
		link := a.link(name)
		if link == nil {
			a.wait(problem.Object{Kind: "neighbours", Name: name}, "the link does not exist yet")
			continue
		}
		a.neighborsOn(name, link, byLink[name])
	}
}

func (a *applier) neighborsOn(name string, link netlink.Link, want []Neighbor) {
	object := problem.Object{Kind: "neighbours", Name: name}
	list, err := a.handle.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		a.change(err, object, "", "read them")
		return
	}
	have := map[netip.Addr]string{}
	for _, n := range list {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State&netlink.NUD_PERMANENT != 0 {
			have[addr.Unmap()] = n.HardwareAddr.String()
		}
	}
	for _, n := range want {
		mac, err := net.ParseMAC(n.MAC)
		if err != nil {
			a.change(err, object, "mac", "set %s to %q", n.Address, n.MAC)
			continue
		}
		if have[n.Address] != mac.String() {
			err := a.handle.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: n.Address.AsSlice(), HardwareAddr: mac})
			a.change(err, object, "", "set %s to %s", n.Address, mac)
		}
		delete(have, n.Address)
	}
	for _, addr := range slices.SortedFunc(maps.Keys(have), netip.Addr.Compare) {
		if addr.IsMulticast() {
			continue // the kernel's own
		}
		err := a.handle.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: addr.AsSlice()})
		a.change(err, object, "", "remove %s", addr)
	}
}

// forwarding6 makes the host forward IPv6 packets.
const forwarding6 = "net/ipv6/conf/all/forwarding"

// routerLinks are the links whose router advertisements the host uses.
type routerLinks struct {
	// names has the links that have had a route from router advertisements.
	names map[string]bool
	// found has the indexes of the links that have been seen in this comparison. It is nil until the routes have been
	// read.
	found map[int]bool
}

// keep lets links accept router advertisements on a host that forwards, too. Otherwise Linux would remove the
// routes from advertisements when the host begins to forward, and ignore later advertisements. The Node might lose its
// default route. It concerns RouterLink, and links that have had such a route: a link that is made again comes without.
// It reports whether all these links are ready.
func (l *routerLinks) keep(a *applier) bool {
	if l.found == nil {
		return false // routes has reported why
	}
	for index := range l.found {
		link, err := a.handle.LinkByIndex(index)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			a.change(err, problem.Object{Kind: "sysctl", Name: forwarding6}, "",
				"find link %d, which has a route from router advertisements", index)
			return false
		}
		l.names[link.Attrs().Name] = true
	}
	names := slices.Collect(maps.Keys(l.names))
	if a.want.RouterLink != "" {
		names = append(names, a.want.RouterLink)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !a.acceptRouters(name) {
			return false
		}
	}
	return true
}

// acceptRouters lets a link accept router advertisements. It leaves out a port of a userspace switch, since its packets
// are not the host's.
func (a *applier) acceptRouters(name string) bool {
	if slices.ContainsFunc(a.want.Links, func(l Link) bool { return l.Name == name && l.NoAddresses }) {
		return true
	}
	key := "net/ipv6/conf/" + name + "/accept_ra"
	have, err := sysctl.Get(key)
	if errors.Is(err, fs.ErrNotExist) || err == nil && have != "1" {
		return true // there is no such link, a program reads the advertisements, or Linux accepts them already
	}
	if err == nil {
		err = sysctl.Set(key, "2")
	}
	a.change(err, problem.Object{Kind: "sysctl", Name: key}, "", "set 2, was %s", have)
	return err == nil
}

// sysctls writes what differs.
func (a *applier) sysctls() {
	ready := a.want.Sysctls[forwarding6] != "1" || a.routers.keep(a)
	for _, key := range slices.Sorted(maps.Keys(a.want.Sysctls)) {
		want := a.want.Sysctls[key]
		object := problem.Object{Kind: "sysctl", Name: key}
		have, err := sysctl.Get(key)
		if errors.Is(err, fs.ErrNotExist) {
			a.wait(object, "it does not exist yet")
			continue
		}
		if err != nil {
			a.change(err, object, "", "read it")
			continue
		}
		if have == want || key == forwarding6 && !ready ||
			want == "0" && strings.HasSuffix(key, "/route_localnet") && othersMapPorts() {
			continue
		}
		a.change(sysctl.Set(key, want), object, "", "set %s, was %s", want, have)
	}
}

func (d Desired) clone() Desired {
	d.Links = slices.Clone(d.Links)
	for i, l := range d.Links {
		d.Links[i].Addresses, d.Links[i].Guards = slices.Clone(l.Addresses), slices.Clone(l.Guards)
		d.Links[i].Held = slices.Clone(l.Held)
	}
	d.Routes, d.Forwarded, d.Neighbors = slices.Clone(d.Routes), slices.Clone(d.Forwarded), slices.Clone(d.Neighbors)
	d.Sysctls = maps.Clone(d.Sysctls)
	d.Services.NodeAddresses = slices.Clone(d.Services.NodeAddresses)
	d.Services.Entries = slices.Clone(d.Services.Entries)
	d.HostPorts.Addresses = slices.Clone(d.HostPorts.Addresses)
	d.Egress = slices.Clone(d.Egress)
	for i, e := range d.Egress {
		d.Egress[i].Drop = slices.Clone(e.Drop)
	}
	d.Tunnels = slices.Clone(d.Tunnels)
	for i, t := range d.Tunnels {
		d.Tunnels[i].Peers = slices.Clone(t.Peers)
	}
	d.Behind.Sources, d.Behind.To = slices.Clone(d.Behind.Sources), slices.Clone(d.Behind.To)
	m := &d.Masquerade
	m.Sources, m.Except, m.Always = slices.Clone(m.Sources), slices.Clone(m.Except), slices.Clone(m.Always)
	return d
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr.Unmap(), ones), true
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
