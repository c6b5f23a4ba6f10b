package peering

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
)

// Translated6 has the IPv6 sources of requests that Gateways translate. It is a part of family.SwitchRange6, so no
// range of users overlaps it.
var Translated6 = netip.MustParsePrefix("fc01::1:0:0:0/96")

// Source returns the source address of requests that a Gateway translates: of IPv4, or of IPv6. end is where tunnels to
// the Gateway end. In the same version of IP the source is the end itself. In the other version it is computed from the
// end, so both clusters compute the same one: in IPv4 it is the end's address inside WireGuard (claims.InsideOf).
func Source(end netip.Addr, is6 bool) netip.Addr {
	switch {
	case !end.IsValid() || end.Is6() == is6:
		return end
	case !is6:
		return claims.InsideOf(end)
	}
	a, tail := Translated6.Addr().As16(), end.As4()
	copy(a[12:], tail[:])
	return netip.AddrFrom16(a)
}

// sameSources reports whether requests that two Gateways translate have the same source. Two IPv6 addresses may have
// the same hash.
func sameSources(a, b netip.Addr) bool { return Source(a, false) == Source(b, false) }

// serves reports whether this Node routes packets to a range. Other Nodes, and other clusters, may serve other versions
// of IP.
func (p *planner) serves(r netip.Prefix) bool { return p.view.Families.Serve(r.Addr()) }
