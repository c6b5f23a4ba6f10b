package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Kinds of objects in problems. kindRoutes is about all routes of a table.
const (
	kindRoute     = "route"
	kindForwarded = "route of what is forwarded"
	kindRoutes    = "routes"
	kindRule      = "rule"
)

// routeKey is what makes two routes of a table the same route for the kernel.
type routeKey struct {
	dst    netip.Prefix
	metric int
}

func (k routeKey) String() string {
	if k.metric == 0 {
		return k.dst.String()
	}
	return fmt.Sprintf("%s metric %d", k.dst, k.metric)
}

// aboutRoute reports whether a problem is about the routes to some addresses, or about all routes.
func aboutRoute(p problem.Problem, to []netip.Addr) bool {
	switch p.Kind {
	case kindRoutes, kindRule:
		return true
	case kindRoute, kindForwarded:
		return slices.ContainsFunc(to, func(ip netip.Addr) bool {
			return p.Name == routeKey{dst: netip.PrefixFrom(ip, ip.BitLen())}.String()
		})
	}
	return false
}

// routes adds and replaces routes, and removes our routes that are no longer desired. It leaves out destinations for
// which another program has a route.
func (a *applier) routes() {
	a.routesIn(unix.RT_TABLE_MAIN, kindRoute, a.want.Routes)
	a.routesIn(forwardTable, kindForwarded, a.want.Forwarded)
	a.forwardRule(netlink.FAMILY_V4, netip.Addr.Is4)
	a.forwardRule(netlink.FAMILY_V6, netip.Addr.Is6)
}

// forwardRule makes forwarded packets of a family use forwardTable first: all packets except packets from "lo", which
// are the host's own. A rule with forwardPriority is ours; rules of other programs may lead to the table, too. A kernel
// without IPv6 has no IPv6 rules.
func (a *applier) forwardRule(family int, of func(netip.Addr) bool) {
	object := problem.Object{Kind: kindRule, Name: strconv.Itoa(forwardPriority)}
	wanted := slices.ContainsFunc(a.want.Forwarded, func(r Route) bool { return of(r.Dst.Addr()) })
	list, err := a.handle.RuleList(family)
	if !wanted && errors.Is(err, unix.EAFNOSUPPORT) {
		return
	}
	if err != nil {
		a.change(err, object, "", "read the rules")
		return
	}
	there := false
	for _, have := range list {
		switch {
		case have.Table != forwardTable || have.Priority != forwardPriority: // of another program
		case wanted && !there && have.Invert && have.IifName == loopback:
			there = true
		default:
			a.change(a.handle.RuleDel(&have), object, "", "remove %s", have)
		}
	}
	if wanted && !there {
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Table = family, forwardPriority, forwardTable
		rule.IifName, rule.Invert = loopback, true
		a.change(a.handle.RuleAdd(rule), object, "", "have packets that are forwarded look into table %d", forwardTable)
	}
}

const loopback = "lo"

// routesIn does so in one table.
func (a *applier) routesIn(table int, kind string, list []Route) {
	ours, others, err := a.readRoutes(table)
	if err != nil {
		a.change(err, problem.Object{Kind: kindRoutes}, "", "read table %d", table)
		return
	}
	wanted := map[routeKey]bool{}
	for _, want := range connectedFirst(list) {
		key := routeKey{want.Dst.Masked(), want.Metric}
		wanted[key] = true
		object := problem.Object{Kind: kind, Name: key.String()}
		link := a.link(want.Link)
		if link == nil {
			a.wait(object, "its link %s does not exist yet", want.Link)
			continue
		}
		route := netlinkRoute(want, table, link.Attrs().Index)
		if have, ok := ours[key]; ok && sameRoute(have, route) {
			continue
		}
		if other, ok := others[key]; ok && !a.left(other.LinkIndex) {
			if !sameRoute(other, route) && !want.Yields {
				a.failed = append(a.failed, problem.Problem{Object: object, Reason: reasonTaken,
					Message: fmt.Sprintf(
						"another program has a route for it (protocol %d, link number %d, gateway %v): remove that route", other.Protocol,
						other.LinkIndex, other.Gw)})
			}
			continue
		}
		err := a.handle.RouteReplace(&route)
		switch {
		case errors.Is(err, unix.ENETDOWN):
			a.wait(object, "its link %s is down", want.Link)
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EINVAL) &&
			want.Source.IsValid() && !a.hasAddress(link, want.Source):
			a.wait(object, "its gateway %s or source %s cannot be used on link %s yet: %v", text(want.Gateway),
				text(want.Source), want.Link, err)
		default:
			a.change(err, object, "", "%s", routeText(want))
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(ours), compareKeys) {
		if wanted[key] {
			continue
		}
		route := ours[key]
		if err := a.handle.RouteDel(&route); !errors.Is(err, unix.ESRCH) {
			a.change(err, problem.Object{Kind: kind, Name: key.String()}, "", "remove it")
		}
	}
}

// connectedFirst returns routes in the order in which they are added. Routes without a gateway come first, since
// gateways may be reached through them.
func connectedFirst(list []Route) []Route {
	ordered := slices.Clone(list)
	slices.SortStableFunc(ordered, func(x, y Route) int {
		return cmp.Compare(b2i(x.Gateway.IsValid()), b2i(y.Gateway.IsValid()))
	})
	return ordered
}

// left reports whether the host's addresses have moved away from a link. Linux removes a link's IPv4 routes with its
// last address. Its IPv6 routes with a gateway stay, but do not work.
func (a *applier) left(index int) bool {
	return slices.ContainsFunc(a.want.Links, func(l Link) bool {
		if !l.NoAddresses {
			return false
		}
		link := a.link(l.Name)
		return link != nil && link.Attrs().Index == index
	})
}

// readRoutes returns the unicast routes of a table. It notes the links with routes from router advertisements.
func (a *applier) readRoutes(table int) (ours, others map[routeKey]netlink.Route, err error) {
	ours, others = map[routeKey]netlink.Route{}, map[routeKey]netlink.Route{}
	list, err := a.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, nil, err
	}
	if a.routers.found == nil {
		a.routers.found = map[int]bool{}
	}
	for _, r := range list {
		if r.Protocol == unix.RTPROT_RA {
			a.routers.found[r.LinkIndex] = true
		}
		dst, ok := routeDst(r)
		if !ok || r.Type != unix.RTN_UNICAST {
			continue
		}
		key := routeKey{dst, metricOf(r)}
		if r.Protocol == RouteProtocol {
			ours[key] = r
		} else {
			others[key] = r
		}
	}
	return ours, others, nil
}

func (a *applier) hasAddress(link netlink.Link, addr netip.Addr) bool {
	list, err := a.handle.AddrList(link, netlink.FAMILY_ALL)
	return err == nil && slices.ContainsFunc(list, func(have netlink.Addr) bool {
		p, ok := prefixOf(have.IPNet)
		return ok && p.Addr() == addr
	})
}

// netlinkRoute translates; what it leaves zero the kernel chooses.
func netlinkRoute(r Route, table, index int) netlink.Route {
	n := netlink.Route{
		LinkIndex: index,
		Dst:       ipNet(r.Dst.Masked()),
		Table:     table,
		Type:      unix.RTN_UNICAST,
		Protocol:  RouteProtocol,
		Priority:  r.Metric,
		MTU:       r.MTU,
		Scope:     netlink.SCOPE_UNIVERSE,
	}
	if r.Gateway.IsValid() {
		n.Gw = r.Gateway.AsSlice()
	} else if r.Dst.Addr().Is4() {
		n.Scope = netlink.SCOPE_LINK
	}
	if r.Source.IsValid() {
		n.Src = r.Source.AsSlice()
	}
	if r.OnLink {
		n.Flags = int(netlink.FLAG_ONLINK)
	}
	return n
}

// sameRoute compares what a Route can say.
func sameRoute(a, b netlink.Route) bool {
	return a.LinkIndex == b.LinkIndex && a.Gw.Equal(b.Gw) && a.Src.Equal(b.Src) && a.Scope == b.Scope &&
		a.MTU == b.MTU && a.Flags&int(netlink.FLAG_ONLINK) == b.Flags&int(netlink.FLAG_ONLINK) &&
		len(a.MultiPath) == len(b.MultiPath)
}

// routeDst returns a route's destination. The kernel's default routes may have no destination.
func routeDst(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		if r.Family == netlink.FAMILY_V6 {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0), true
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), true
	}
	return prefixOf(r.Dst)
}

// metricOf hides that IPv6 routes without a metric are given 1024.
func metricOf(r netlink.Route) int {
	if r.Family == netlink.FAMILY_V6 && r.Priority == 1024 {
		return 0
	}
	return r.Priority
}

func compareKeys(a, b routeKey) int {
	return cmp.Or(a.dst.Addr().Compare(b.dst.Addr()), cmp.Compare(a.dst.Bits(), b.dst.Bits()),
		cmp.Compare(a.metric, b.metric))
}

func routeText(r Route) string {
	s := "set it to link " + r.Link
	if r.Gateway.IsValid() {
		s += " by " + r.Gateway.String()
	}
	return s
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return "(none)"
	}
	return a.String()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
