package hostnet

import (
	"encoding/binary"
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

// proxySysctls are the parameters of a link with proxies, and Linux' own values. An answer would wait up to
// proxy_delay, in hundredths of a second.
var proxySysctls = []struct{ before, after, value, initial string }{
	{"net/ipv6/conf/", "/proxy_ndp", "1", "0"}, {"net/ipv6/neigh/", "/proxy_delay", "0", "80"},
}

// proxies has the host answer for held addresses of IPv6 on the links whose networks have them. The kernel sends no
// events about proxies.
func (a *applier) proxies(everything bool) {
	var held []netip.Addr
	for _, l := range a.want.Links {
		for _, ip := range l.Held {
			if ip.Is6() {
				held = append(held, ip)
			}
		}
	}
	if len(held) == 0 && !everything {
		return
	}
	object := problem.Object{Kind: "neighbour proxies", Name: "IPv6"}
	ours, others, err := listProxies()
	if err != nil {
		a.change(err, object, "", "read them")
		return
	}
	want := map[proxy]bool{}
	if len(held) > 0 {
		addresses, err := rtnetlink.List(func() ([]netlink.Addr, error) { return a.handle.AddrList(nil, netlink.FAMILY_V6) })
		if err != nil {
			a.change(err, object, "", "read addresses")
			return
		}
		for _, ip := range held {
			for _, link := range linksOf(addresses, ip) {
				want[proxy{link, ip}] = true
			}
		}
	}
	links := map[int]bool{} // with proxies; false if all of them are to be removed
	for p := range ours {
		links[p.link] = links[p.link] || want[p]
	}
	for p := range others {
		if _, ok := links[p.link]; ok {
			links[p.link] = true
		}
	}
	for p := range want {
		links[p.link] = true
	}
	// Before proxies are removed: an agent that starts again between the two finds them, and sets the parameters.
	for _, link := range slices.Sorted(maps.Keys(links)) {
		a.proxySysctls(link, links[link])
	}
	for p := range want {
		if !ours[p] && !others[p] {
			a.change(changeProxy(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, p), object, "",
				"answer for %s on link %d", p.ip, p.link)
		}
	}
	for p := range ours {
		if !want[p] {
			a.change(changeProxy(unix.RTM_DELNEIGH, 0, p), object, "", "answer no longer for %s on link %d", p.ip, p.link)
		}
	}
}

// proxySysctls sets the parameters of a link with proxies, or gives it the values that new links have.
func (a *applier) proxySysctls(index int, proxies bool) {
	link, err := a.handle.LinkByIndex(index)
	if err != nil {
		return // it is gone, and its proxies with it
	}
	for _, s := range proxySysctls {
		key, want := s.before+link.Attrs().Name+s.after, s.value
		if !proxies {
			if want, err = sysctl.Get(s.before + "default" + s.after); err != nil {
				want = s.initial // network namespaces other than the first one lack neigh/default
			}
		}
		if have, err := sysctl.Get(key); err != nil || have != want {
			a.change(sysctl.Set(key, want), problem.Object{Kind: "sysctl", Name: key}, "", "set %s, was %s", want, have)
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
