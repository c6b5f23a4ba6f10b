package hostnet

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// tunnelHops maps names of links to their indexes. These are the links on which the host has asked for the MACs of all
// next hops of tunnels.
type tunnelHops map[string]int

// ask makes the kernel ask for the MACs of the next hops to the tunnels' ends, unless the kernel has confirmed them. It
// leaves out a peer without a route, or with a route through another link. Routes may come later, or the operator has
// to add them.
func (h *tunnelHops) ask(a *applier, everything bool) {
	before := *h
	*h = tunnelHops{}
	for _, t := range a.want.Tunnels {
		h.askBy(a, t, before[t.Link], everything)
	}
}

// askBy does so for the tunnels through one link.
func (h tunnelHops) askBy(a *applier, t Tunnels, before int, everything bool) {
	link := a.link(t.Link)
	// Without its switch a port has no carrier. Both forget all neighbours then.
	if link == nil || link.Attrs().RawFlags&unix.IFF_RUNNING == 0 || len(t.Peers) == 0 {
		return
	}
	index := link.Attrs().Index
	if before == index && !everything {
		h[t.Link] = index
		return
	}
	all := true
	hops := map[netip.Addr]bool{}
	for _, peer := range t.Peers {
		if hop, ok := nextHop(a.handle, peer, index); ok {
			hops[hop] = true
		} else {
			all = false // again at the next event
		}
	}
	if all {
		h[t.Link] = index
	}
	object := problem.Object{Kind: "neighbours", Name: t.Link}
	known, err := a.handle.NeighList(index, netlink.FAMILY_ALL)
	if err != nil {
		a.change(err, object, "", "read them")
		return
	}
	for _, n := range known {
		if addr, ok := netip.AddrFromSlice(n.IP); ok &&
			n.State&(netlink.NUD_REACHABLE|netlink.NUD_PROBE|netlink.NUD_PERMANENT) != 0 {
			delete(hops, addr.Unmap())
		}
	}
	for hop := range hops {
		// NTF_USE starts a resolution, as a packet to the next hop would (rtnetlink(7)). It leaves no lasting change, so it
		// is not reported as one.
		if err := a.handle.NeighSet(&netlink.Neigh{LinkIndex: index, Flags: netlink.NTF_USE, IP: hop.AsSlice()}); err != nil {
			a.change(err, object, "", "ask for %s", hop)
		}
	}
}

// nextHop returns the next hop of a packet to a peer on the link. ok is false if there is no route, or the route uses
// another link.
func nextHop(handle *netlink.Handle, peer netip.Addr, link int) (hop netip.Addr, ok bool) {
	routes, err := handle.RouteGet(peer.AsSlice())
	if err != nil || len(routes) != 1 || routes[0].LinkIndex != link || routes[0].Type != unix.RTN_UNICAST {
		return netip.Addr{}, false
	}
	if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		return gw.Unmap(), true
	}
	return peer, true
}
