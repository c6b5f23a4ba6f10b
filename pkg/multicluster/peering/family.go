package peering

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
)

// Translated6 has the IPv6 sources of requests that Gateways translate. It is a part of family.SwitchRange6, so no
// range of users meets it.
var Translated6 = netip.MustParsePrefix("fc01::1:0:0:0/96")

// Source returns the source address of requests that a Gateway translates: of IPv4, or of IPv6. end is where tunnels
// to the Gateway end. In the same version of IP the source is the end itself. In the other version it follows from the
// end, so both clusters know it.
func Source(end netip.Addr, is6 bool) netip.Addr {
	if end.Is6() == is6 || !end.Is4() {
		return end
	}
	a, tail := Translated6.Addr().As16(), end.As4()
	copy(a[12:], tail[:])
	return netip.AddrFrom16(a)
}

// serves reports whether this Node routes packets to a range. Other Nodes, and other clusters, may serve other versions
// of IP.
func (p *planner) serves(r netip.Prefix) bool { return p.view.Families.Serve(r.Addr()) }

// tunnelEnd reads an address that this cluster's tunnels can end at.
func tunnelEnd(text string) (netip.Addr, error) {
	ip, err := claims.Address(text)
	if err == nil && !ip.Is4() {
		return netip.Addr{}, fmt.Errorf("%s is an IPv6 address, which tunnels between clusters do not use yet", ip)
	}
	return ip, err
}
