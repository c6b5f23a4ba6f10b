package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
)

// The routes of further interfaces follow the joins of their networks while the Pod runs. ADD and MendRoutes use the
// same comparison. It changes only routes that have podRouteProtocol and lead over the gateway of an interface.

// Routes are the wanted routes of a Pod's interface in a VirtualNetwork, in the main table.
type Routes struct {
	IfName   string
	PortName string // of the host's end; Extras leaves it empty
	// Ranges are of the interface's own network. Without a gateway the route to a range stays as it is.
	Ranges []ExtraRange
	Joined []netip.Prefix // ranges of networks that it is joined with
}

// PodRoutes are the wanted routes of all further interfaces of a Pod.
type PodRoutes struct {
	Netns      string
	Interfaces []Routes // Share has shared their joined ranges out
}

// Share leaves each joined range to one of a Pod's further interfaces: the first by name whose network reaches it. A
// range of one of the Pod's own networks stays with the interface there.
//
// reached are the ranges that the network of the first interface is or reaches. They stay with that interface. It has
// no routing table of its own, so its replies would leave through the further interface, and the switch would drop
// them.
func Share(reached []netip.Prefix, list ...*Routes) {
	taken := slices.Clone(reached)
	for _, x := range list {
		for _, r := range x.Ranges {
			taken = append(taken, r.CIDR)
		}
	}
	for _, x := range slices.SortedFunc(slices.Values(list), compareNames) {
		var joined []netip.Prefix
		for _, p := range x.Joined {
			if !slices.ContainsFunc(taken, p.Overlaps) {
				joined = append(joined, p)
			}
		}
		x.Joined = slices.Compact(joined)
		taken = append(taken, x.Joined...)
	}
}

// compareNames orders eth2 before eth10.
func compareNames(a, b *Routes) int {
	return cmp.Or(cmp.Compare(len(a.IfName), len(b.IfName)), cmp.Compare(a.IfName, b.IfName))
}

// hop is where a route leads to.
type hop struct {
	link    int // index of the Pod's end of an interface
	gateway netip.Addr
}

// wanted returns the routes over the interfaces that are there, by destination.
func (p PodRoutes) wanted(links map[string]int) map[netip.Prefix]hop {
	out := map[netip.Prefix]hop{}
	byName := func(a, b Routes) int { return compareNames(&a, &b) }
	for _, x := range slices.SortedFunc(slices.Values(p.Interfaces), byName) {
		link, ok := links[x.IfName]
		if !ok {
			continue
		}
		for _, own := range x.Ranges {
			if !own.Gateway.IsValid() {
				continue
			}
			for _, to := range append([]netip.Prefix{own.CIDR}, x.Joined...) {
				if _, taken := out[to.Masked()]; !taken && to.Addr().Is4() == own.Gateway.Is4() {
					out[to.Masked()] = hop{link, own.Gateway}
				}
			}
		}
	}
	return out
}

// leads reports whether a gateway is the gateway of an interface's network.
func (p PodRoutes) leads(links map[string]int, h hop) bool {
	return slices.ContainsFunc(p.Interfaces, func(x Routes) bool {
		link, ok := links[x.IfName]
		return ok && link == h.link && slices.ContainsFunc(x.Ranges, func(own ExtraRange) bool {
			return own.Gateway == h.gateway || !own.Gateway.IsValid() && own.CIDR.Contains(h.gateway)
		})
	})
}

// own reports whether a destination is a range of one of the Pod's networks.
func (p PodRoutes) own(to netip.Prefix) bool {
	return slices.ContainsFunc(p.Interfaces, func(x Routes) bool {
		return slices.ContainsFunc(x.Ranges, func(own ExtraRange) bool { return own.CIDR.Masked() == to })
	})
}

// ErrBusy reports that MendRoutes has done nothing, since a request for the container runs.
var ErrBusy = errors.New("a CNI request for the Pod runs")

// busyWait is how long MendRoutes waits for a request.
const busyWait = 100 * time.Millisecond

// MendRoutes compares the routes of a Pod's further interfaces with the wanted ones, and corrects them. While no
// request for the container runs, it calls wanted, which returns false if there is nothing to do. It does not change a
// route that others have put there, and leaves out an interface or a network namespace that is gone.
func (s *Server) MendRoutes(ctx context.Context, container string, wanted func() (PodRoutes, bool)) error {
	short, cancel := context.WithTimeout(ctx, busyWait)
	defer cancel()
	unlock, err := s.lock(short, ipam.Key{ContainerID: container, IfName: defaultIfName})
	if err != nil {
		return ErrBusy
	}
	defer unlock()
	p, ok := wanted()
	if !ok {
		return nil
	}
	_, err = p.mend()
	return err
}

// mend compares the routes of the Pod with the wanted ones, and corrects them. It returns the names of interfaces that
// have no routes since they are not there, or down.
func (p PodRoutes) mend() (missing []string, err error) {
	pod, err := openNetns(p.Netns)
	var gone ns.NSPathNotExistErr
	var other ns.NSPathNotNSErr
	if errors.As(err, &gone) || errors.As(err, &other) || errors.Is(err, os.ErrNotExist) {
		for _, x := range p.Interfaces {
			missing = append(missing, x.IfName)
		}
		return missing, nil
	}
	if err != nil {
		return nil, err
	}
	defer pod.Close()
	ends, err := p.hostEnds(pod)
	if err != nil {
		return nil, err
	}
	err = pod.Do(func(ns.NetNS) error {
		m, err := newMending(p, ends)
		if err != nil {
			return err
		}
		defer m.handle.Close()
		err = m.run()
		missing = m.missing()
		return err
	})
	if err != nil {
		err = fmt.Errorf("correct the routes in network namespace %s: %w", p.Netns, err)
	}
	return missing, err
}

// hostEnds returns the host's ends of the interfaces in a network namespace, by IfName.
func (p PodRoutes) hostEnds(pod ns.NetNS) (map[string]netlink.Link, error) {
	out := map[string]netlink.Link{}
	for _, x := range p.Interfaces {
		host, err := netlink.LinkByName(x.PortName)
		if err != nil && !isNotFound(err) {
			return nil, fmt.Errorf("look for %s: %w", x.PortName, err)
		}
		if err == nil && host.Type() == "veth" {
			out[x.IfName] = host
		}
	}
	id, err := netlink.GetNetNsIdByFd(int(pod.Fd())) // the kernel assigns it when it returns a link
	if err != nil {
		return nil, fmt.Errorf("look for the Pod's network namespace %q: %w", p.Netns, err)
	}
	maps.DeleteFunc(out, func(_ string, host netlink.Link) bool { return id < 0 || host.Attrs().NetNsID != id })
	return out, nil
}

// mending corrects the routes of one Pod. Its handle has sockets in the Pod's network namespace.
type mending struct {
	PodRoutes
	handle *netlink.Handle
	links  map[string]int // indexes of the Pod's ends, by IfName
	down   map[int]bool   // links that take no routes now
	want   map[netip.Prefix]hop
}

// podRouteProtocol marks the routes in Pods (rtm_protocol, rtnetlink(7)). The host's routes have another number
// (hostnet.RouteProtocol): a Pod may be a Node itself, whose agent removes unknown routes with that number.
const podRouteProtocol netlink.RouteProtocol = 0x75

const (
	// mendTimeout bounds one request to the kernel.
	mendTimeout = 5 * time.Second
	// maxOwnRoutes bounds how many routes with podRouteProtocol are read. A Pod may make any number of them.
	maxOwnRoutes = 1 << 14
)

// newMending finds the Pod's ends. It runs in the Pod's namespace. A Pod may give an interface another name, so the
// index counts.
func newMending(p PodRoutes, ends map[string]netlink.Link) (*mending, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	m := &mending{PodRoutes: p, handle: h, links: map[string]int{}, down: map[int]bool{}}
	_ = h.SetStrictCheck(true) // earlier kernels list all routes, and the library filters
	err = h.SetSocketTimeout(mendTimeout)
	for name, host := range ends {
		link, failed := h.LinkByIndex(host.Attrs().ParentIndex)
		if failed != nil && !isNotFound(failed) {
			err = errors.Join(err, failed)
		}
		// The Pod routes in a VRF by itself, and does not route over a port of a bridge.
		if failed == nil && link.Attrs().MasterIndex == 0 {
			m.links[name] = link.Attrs().Index
		}
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	m.want = p.wanted(m.links)
	return m, nil
}

// missing returns the names of interfaces without routes.
func (m *mending) missing() (out []string) {
	for _, x := range m.Interfaces {
		if link, ok := m.links[x.IfName]; !ok || m.down[link] {
			out = append(out, x.IfName)
		}
	}
	return out
}

// run corrects the routes of both versions of IP.
func (m *mending) run() error {
	var errs []error
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if slices.ContainsFunc(m.Interfaces, func(x Routes) bool {
			return slices.ContainsFunc(x.Ranges, func(own ExtraRange) bool { return familyOf(own.CIDR) == family })
		}) {
			errs = append(errs, m.correct(family))
		}
	}
	return errors.Join(errs...)
}

// correct corrects the routes of one version of IP. A route of others to the same destination stays, and is used if it
// has the same metric.
func (m *mending) correct(family int) error {
	have, err := m.list(family, podRouteProtocol)
	errs := []error{err}
	there := map[netip.Prefix]bool{}
	for _, r := range have {
		to, h := hopOf(r)
		want, ok := m.want[to]
		switch {
		case !h.gateway.IsValid() || !m.leads(m.links, h): // put there by others
		case ok && want == h && plain(r):
			there[to] = true
		case ok && plain(r):
			there[to] = true
			errs = append(errs, m.put(to, want, m.handle.RouteReplace))
		case !ok && m.own(to): // its gateway is not known now
		default:
			errs = append(errs, m.remove(to, h, r.Priority))
		}
	}
	lacking := map[netip.Prefix]bool{}
	for _, to := range slices.SortedFunc(maps.Keys(m.want), netip.Prefix.Compare) {
		if there[to] || familyOf(to) != family {
			continue
		}
		err := m.put(to, m.want[to], m.handle.RouteAdd)
		if errors.Is(err, unix.EEXIST) {
			lacking[to] = true
			continue
		}
		errs = append(errs, err)
	}
	if len(lacking) > 0 {
		errs = append(errs, m.adopt(family, lacking))
	}
	return errors.Join(errs...)
}

// adopt marks routes that earlier versions have put there. They have the number of routes that a user adds. But no user
// needs the flag onlink for a gateway that is on the link.
func (m *mending) adopt(family int, lacking map[netip.Prefix]bool) error {
	have, err := m.list(family, unix.RTPROT_BOOT)
	errs := []error{err}
	for _, r := range have {
		to, h := hopOf(r)
		if lacking[to] && m.leads(m.links, h) && plain(r) && r.Flags&int(netlink.FLAG_ONLINK) != 0 {
			errs = append(errs, m.put(to, m.want[to], m.handle.RouteReplace))
		}
	}
	return errors.Join(errs...)
}

// list returns the unicast routes of the main table with a number. If the Pod changes its routes all the time, some may
// be missing. Then there is an error, too.
func (m *mending) list(family int, protocol netlink.RouteProtocol) ([]netlink.Route, error) {
	out, err := rtnetlink.List(func() (out []netlink.Route, err error) {
		err = m.handle.RouteListFilteredIter(family, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL,
			func(r netlink.Route) bool {
				if r.Type == unix.RTN_UNICAST {
					out = append(out, r)
				}
				return len(out) < maxOwnRoutes
			})
		return out, err
	})
	if err != nil {
		err = fmt.Errorf("list routes: %w", err)
	}
	return out, err
}

// put adds or replaces a route. A link that is down, or has IPv6 turned off, takes no route.
func (m *mending) put(to netip.Prefix, over hop, request func(*netlink.Route) error) error {
	if m.down[over.link] {
		return nil
	}
	err := request(&netlink.Route{LinkIndex: over.link, Dst: ipNet(to), Gw: over.gateway.AsSlice(),
		Protocol: podRouteProtocol, Flags: int(netlink.FLAG_ONLINK)})
	if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EACCES) {
		m.down[over.link] = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("add the route to %s: %w", to, err)
	}
	return nil
}

// remove removes a route of ours, and no other route to the destination.
func (m *mending) remove(to netip.Prefix, over hop, metric int) error {
	err := m.handle.RouteDel(&netlink.Route{LinkIndex: over.link, Dst: ipNet(to), Gw: over.gateway.AsSlice(),
		Protocol: podRouteProtocol, Priority: metric})
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the route to %s: %w", to, err)
	}
	return nil
}

// hopOf returns the destination of a route and where it leads to. The zero values stand for routes that are never ours.
func hopOf(r netlink.Route) (netip.Prefix, hop) {
	gateway, ok := netip.AddrFromSlice(r.Gw)
	if !ok || r.Dst == nil {
		return netip.Prefix{}, hop{}
	}
	to, ok := prefixOf(*r.Dst)
	if !ok || !to.IsValid() { // such as ::ffff:0:0/96, which no network has
		return netip.Prefix{}, hop{}
	}
	return to, hop{r.LinkIndex, gateway.Unmap()}
}

// plain reports whether a route has the default metric, which is 1024 in IPv6.
func plain(r netlink.Route) bool {
	return r.Tos == 0 && (r.Priority == 0 || r.Priority == 1024 && r.Family == netlink.FAMILY_V6)
}

func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}
