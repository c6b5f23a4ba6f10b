package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// endDatagramsThrough ends UDP connections to entries after the removal of the table. Then the switch does not serve
// entries any more. A client that keeps its port would otherwise send there for ever.
func endDatagramsThrough(t *translatedTable, a *applier) (done bool) {
	entries, ok := a.want.Services.entries(t.ip)
	return ok &&
		t.endDatagrams(a, translatedConnections, func(c connection) bool { return c.isThrough(entries) })
}

// datagrams is an address and port of UDP. The zero address stands for all addresses of the Node.
type datagrams struct {
	address netip.Addr
	port    uint16
}

// endStale ends UDP connections whose translation is out of date. Connection tracking repeats the translation of the
// first packet for as long as the client sends.
func (s *translator) endStale(a *applier) {
	if !s.known {
		return // what is written is not known
	}
	if len(s.table.contents(a.want).chains) == 0 && !s.cleared {
		s.cleared = s.table.removed(s.table, a)
	}
	if len(s.due) == 0 {
		return
	}
	stale := staleDatagrams{own: s.table.local(a.want), ports: map[uint16][]datagramsTo{}}
	for d := range s.due {
		to := s.valuesOf(d)
		stale.ports[d.port] = append(stale.ports[d.port], datagramsTo{d.address, to})
	}
	if s.table.endDatagrams(a, datagramConnections, stale.match) {
		clear(s.due)
	}
}

// LeadsTo reports whether a route to the entries leads through the link. Without such a route packets to the entries
// cannot pass.
func LeadsTo(link string, entries netip.Prefix) (bool, error) {
	gw, err := netlink.LinkByName(link)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("link %s: %w", link, err)
	}
	dst := &net.IPNet{IP: entries.Addr().AsSlice(), Mask: net.CIDRMask(entries.Bits(), entries.Addr().BitLen())}
	routes, err := netlink.RouteListFiltered(int(socketFamily(entries.Addr())),
		&netlink.Route{LinkIndex: gw.Attrs().Index, Dst: dst}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST)
	if errors.Is(err, unix.EAFNOSUPPORT) { // a kernel without IPv6
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("routes to %s: %w", entries, err)
	}
	return len(routes) > 0, nil
}

// OpenThrough returns the number of connections of the host that were translated to entries and have not ended. It
// leaves out UDP, whose connections have no end.
func OpenThrough(entries netip.Prefix) (int, error) {
	n := 0
	err := listConnections(socketFamily(entries.Addr()), translatedConnections, func(c connection, _ []byte) {
		if c.isThrough(entries) && c.protocol != unix.IPPROTO_UDP && !c.hasEnded() {
			n++
		}
	})
	if err != nil {
		return 0, fmt.Errorf("list connections of the host: %w", err)
	}
	return n, nil
}

// isThrough reports whether the host has translated a connection to an entry.
func (c connection) isThrough(entries netip.Prefix) bool {
	return c.zone == 0 && entries.Contains(c.answers.Addr()) && !entries.Contains(c.to.Addr())
}

// hasEnded reports whether both sides of a TCP connection have closed it, or one has never answered.
func (c connection) hasEnded() bool {
	return c.protocol == unix.IPPROTO_TCP && slices.Contains(
		[]uint8{nl.TCP_CONNTRACK_SYN_SENT, nl.TCP_CONNTRACK_TIME_WAIT, nl.TCP_CONNTRACK_CLOSE}, c.tcp)
}

// valuesOf returns the translated destinations for an address and port: one for packets from other machines, and one
// for packets of own processes.
func (s *translator) valuesOf(d datagrams) (out []netip.AddrPort) {
	for name := range s.table.maps {
		if s.table.byAddress(name) != d.address.IsValid() {
			continue
		}
		if to, ok := s.written[elementOf(name, d.address, "udp", d.port)]; ok {
			out = append(out, netip.AddrPortFrom(to.address.ip(), to.port))
		}
	}
	return out
}

// datagramsTo has the destinations to which datagrams to an address are translated. Without a translation the list is
// empty.
type datagramsTo struct {
	address netip.Addr // the zero address: one of the Node's
	to      []netip.AddrPort
}

// staleDatagrams finds UDP connections of the host whose translation differs from the present one. Connection tracking
// repeats the first translation for as long as the client sends.
type staleDatagrams struct {
	own   []netip.Addr
	ports map[uint16][]datagramsTo
}

// match reports whether a connection is stale.
func (s staleDatagrams) match(c connection) bool {
	to := c.to.Addr()
	return slices.ContainsFunc(s.ports[c.to.Port()], func(d datagramsTo) bool {
		if d.address.IsValid() && d.address != to {
			return false
		}
		if !d.address.IsValid() && (!to.IsLoopback() || !to.Is4()) && !slices.Contains(s.own, to) {
			return false
		}
		return !slices.Contains(d.to, c.answers)
	})
}
