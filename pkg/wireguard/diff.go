package wireguard

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// diff is what has to be sent to a device so that it has what is wanted, and what that is in words, without secrets.
// Peers that stay as they are are not named: they keep their sessions. set are the endpoints that were sent before: one
// that the peer has changed since, by sending from elsewhere, stays.
func diff(have wgtypes.Device, want Desired, set map[PublicKey]netip.AddrPort) (wgtypes.Config, []string) {
	var c wgtypes.Config
	var changes []string
	if have.PrivateKey != want.PrivateKey.key {
		c.PrivateKey = &want.PrivateKey.key
		changes = append(changes, "set the key "+want.PrivateKey.Public().String())
	}
	if have.ListenPort != want.ListenPort {
		c.ListenPort = &want.ListenPort
		changes = append(changes, fmt.Sprintf("listen on port %d, was %d", want.ListenPort, have.ListenPort))
	}
	wanted := map[PublicKey]bool{}
	for _, p := range want.Peers {
		wanted[p.PublicKey] = true
	}
	there := map[PublicKey]wgtypes.Peer{}
	for _, p := range have.Peers {
		key := PublicKey(p.PublicKey)
		there[key] = p
		if !wanted[key] { // first: another may get its addresses
			c.Peers = append(c.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true})
			changes = append(changes, "remove peer "+key.String())
		}
	}
	for _, p := range want.Peers {
		old, known := there[p.PublicKey]
		change := wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.PublicKey)}
		what := ""
		if at := endpointOf(old); !known || !at.IsValid() || at != p.Endpoint && set[p.PublicKey] != p.Endpoint {
			change.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
			what += fmt.Sprintf(" at %s", p.Endpoint)
		}
		if !known || !samePrefixes(allowedOf(old), p.AllowedIPs) {
			change.ReplaceAllowedIPs = true
			for _, a := range p.AllowedIPs {
				change.AllowedIPs = append(change.AllowedIPs, net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())})
			}
			what += fmt.Sprintf(" with %v", p.AllowedIPs)
		}
		if old.PersistentKeepaliveInterval != want.Keepalive {
			change.PersistentKeepaliveInterval = &want.Keepalive
			what += fmt.Sprintf(" kept alive every %s", want.Keepalive)
		}
		if what != "" {
			c.Peers = append(c.Peers, change)
			changes = append(changes, "set peer "+p.PublicKey.String()+what)
		}
	}
	return c, changes
}

func endpointOf(p wgtypes.Peer) netip.AddrPort {
	if p.Endpoint == nil {
		return netip.AddrPort{}
	}
	at := p.Endpoint.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

func allowedOf(p wgtypes.Peer) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range p.AllowedIPs {
		addr, ok := netip.AddrFromSlice(n.IP)
		if ones, bits := n.Mask.Size(); ok && bits != 0 {
			out = append(out, netip.PrefixFrom(addr.Unmap(), ones))
		}
	}
	return out
}

func samePrefixes(a, b []netip.Prefix) bool {
	order := func(x, y netip.Prefix) int {
		return cmp.Or(x.Addr().Compare(y.Addr()), cmp.Compare(x.Bits(), y.Bits()))
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	return slices.Equal(a, b)
}
