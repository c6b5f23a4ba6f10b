package peering

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
)

// routedRange reads a range of another cluster that this cluster's Nodes can route to.
func routedRange(text string) (netip.Prefix, error) {
	r, err := claims.Range(text)
	if err == nil && !r.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("%s is an IPv6 range, which is not routed between clusters yet", r)
	}
	return r, err
}

// tunnelEnd reads an address that this cluster's tunnels can end at.
func tunnelEnd(text string) (netip.Addr, error) {
	ip, err := claims.Address(text)
	if err == nil && !ip.Is4() {
		return netip.Addr{}, fmt.Errorf("%s is an IPv6 address, which tunnels between clusters do not use yet", ip)
	}
	return ip, err
}
