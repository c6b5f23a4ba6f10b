package hostnet

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
	"github.com/tombolo-net/tombolo/pkg/sysctl"
)

// Linux answers ARP on each link for all addresses of the host, but Neighbor Solicitations only for addresses of the
// same link. So the host is a proxy for addresses that it holds on the gateway port. Our proxies have RouteProtocol.

// proxy has the host answer Neighbor Solicitations for an address on a link.
type proxy struct {
	link int
	ip   netip.Addr
}

// proxySysctls are the kernel parameters of a link with proxies, and the values that Linux sets. With Linux's
// proxy_delay, in hundredths of a second, an answer would wait. Parameters marked as shared are needed by proxies of
// other programs, too.
var proxySysctls = []struct {
	before, after, value, initial string
	shared                        bool
}{
	{"net/ipv6/conf/", "/proxy_ndp", "1", "0", true}, {"net/ipv6/neigh/", "/proxy_delay", "0", "80", false},
}

// proxyUsers are the programs whose proxies a link has.
type proxyUsers struct{ ours, others bool }

// proxies makes the host answer for held IPv6 addresses on the links whose networks contain them, once the addresses
// are set. The kernel sends no events about proxies.
func (a *applier) proxies(everything bool) {
	holds := func(l Link) bool { return slices.ContainsFunc(l.Held, netip.Addr.Is6) }
	if !everything && !slices.ContainsFunc(a.want.Links, holds) {
		return
	}
	object := problem.Object{Kind: "neighbour proxies", Name: "IPv6"}
	ours, others, err := listProxies()
	if err != nil {
		a.change(err, object, "", "read them")
		return
	}
	want := map[proxy]bool{}
	for _, l := range slices.DeleteFunc(slices.Clone(a.want.Links), func(l Link) bool { return !holds(l) }) {
		addresses, err := rtnetlink.List(func() ([]netlink.Addr, error) { return a.handle.AddrList(nil, netlink.FAMILY_V6) })
		if err != nil {
			a.change(err, problem.Object{Kind: "link", Name: l.Name}, "addresses", "read addresses")
			return
		}
		for _, ip := range a.got(l, addresses) {
			for _, link := range linksOf(addresses, ip) {
				want[proxy{link, ip}] = true
			}
		}
	}
	links := map[int]proxyUsers{}
	for p := range ours {
		links[p.link] = proxyUsers{}
	}
	for p := range want {
		links[p.link] = proxyUsers{ours: true}
	}
	for p := range others {
		if users, ok := links[p.link]; ok {
			users.others = true
			links[p.link] = users
		}
	}
	for _, index := range slices.Sorted(maps.Keys(links)) {
		link, err := a.handle.LinkByIndex(index)
		if err != nil {
			continue // it is gone, and its proxies with it
		}
		name := link.Attrs().Name
		// The parameters are set before proxies are removed. If the agent stops between the two, the next one finds the
		// remaining proxies, and sets the parameters again.
		a.proxySysctls(name, links[index])
		for p := range want {
			if p.link == index && !ours[p] && !others[p] {
				a.setProxy(name, p, true)
			}
		}
		for p := range ours {
			if p.link == index && !want[p] {
				a.setProxy(name, p, false)
			}
		}
	}
}

// got returns the held addresses of IPv6 that a link has got.
func (a *applier) got(l Link, list []netlink.Addr) (out []netip.Addr) {
	link := a.link(l.Name)
	if link == nil {
		return nil
	}
	for _, have := range list {
		if p, ok := prefixOf(have.IPNet); ok && have.LinkIndex == link.Attrs().Index && p.IsSingleIP() &&
			slices.Contains(l.Held, p.Addr()) {
			out = append(out, p.Addr())
		}
	}
	return out
}

// setProxy adds or removes a proxy on a link.
func (a *applier) setProxy(name string, p proxy, present bool) {
	object, field := problem.Object{Kind: "link", Name: name}, p.ip.String()
	if present {
		a.change(remedied(changeProxy(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, p),
			"add it with: ip -6 neighbour add proxy %s dev %s protocol %d", p.ip, name, RouteProtocol), object, field,
			"answer Neighbor Solicitations for it")
		return
	}
	a.change(remedied(changeProxy(unix.RTM_DELNEIGH, 0, p), "remove it with: ip -6 neighbour del proxy %s dev %s", p.ip,
		name), object, field, "answer Neighbor Solicitations for it no longer")
}

// remedied adds a remedy to an error.
func remedied(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...))
}

// proxySysctls sets the parameters of a link with our proxies. On another link it resets them to the values of new
// links, except parameters that other programs need.
func (a *applier) proxySysctls(link string, users proxyUsers) {
	for _, s := range proxySysctls {
		key, want := s.before+link+s.after, s.value
		if !users.ours {
			if s.shared && users.others {
				continue
			}
			var err error
			if want, err = sysctl.Get(s.before + "default" + s.after); err != nil {
				want = s.initial // network namespaces other than the first one lack neigh/default
			}
		}
		if have, err := sysctl.Get(key); err != nil || have != want {
			a.change(remedied(sysctl.Set(key, want), "set it with: sysctl -w %s=%s", key, want),
				problem.Object{Kind: "link", Name: link}, key, "set %s, was %s", want, have)
		}
	}
}

// linksOf returns the numbers of the links that have an address of the same network.
func linksOf(list []netlink.Addr, ip netip.Addr) (out []int) {
	for _, a := range list {
		if p, ok := prefixOf(a.IPNet); ok && !p.IsSingleIP() && p.Contains(ip) && !slices.Contains(out, a.LinkIndex) {
			out = append(out, a.LinkIndex)
		}
	}
	return out
}

// listProxies lists the proxies of IPv6 that are ours, and the proxies of other programs.
func listProxies() (ours, others map[proxy]bool, err error) {
	ours, others = map[proxy]bool{}, map[proxy]bool{}
	list, err := rtnetlink.List(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		req.AddData(&netlink.Ndmsg{Family: unix.AF_INET6, Flags: netlink.NTF_PROXY})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	})
	const ndmsg = 12 // struct ndmsg: the link is at byte 4
	for _, msg := range list {
		if len(msg) < ndmsg {
			continue
		}
		ip, ok := netip.AddrFromSlice(attribute(msg[ndmsg:], netlink.NDA_DST))
		if !ok {
			continue
		}
		into := others
		if p := attribute(msg[ndmsg:], netlink.NDA_PROTOCOL); len(p) == 1 && p[0] == byte(RouteProtocol) {
			into = ours
		}
		into[proxy{int(binary.NativeEndian.Uint32(msg[4:])), ip}] = true
	}
	return ours, others, err
}

// changeProxy adds or removes a proxy.
func changeProxy(kind, flags int, p proxy) error {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{Family: unix.AF_INET6, Index: uint32(p.link), State: netlink.NUD_PERMANENT,
		Flags: netlink.NTF_PROXY})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, p.ip.AsSlice()))
	req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{byte(RouteProtocol)}))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
