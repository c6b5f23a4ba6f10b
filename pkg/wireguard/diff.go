package wireguard

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// diff returns the changes that make a device equal to the desired state, and a text about them without secrets. It
// leaves out unchanged peers, which keep their sessions. before is the result of the previous diff for endpoints.
func diff(have wgtypes.Device, want Desired, before map[PublicKey]announced, now time.Time) (wgtypes.Config, []string,
	map[PublicKey]announced) {
	var c wgtypes.Config
	var changes []string
	endpoints := map[PublicKey]announced{}
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
		var send bool
		if send, endpoints[p.PublicKey] = before[p.PublicKey].next(p.Endpoint, old, now); send {
			change.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
			what += fmt.Sprintf(" at %s", p.Endpoint)
		}
		if !known || !samePrefixes(allowedOf(old), p.AllowedIPs) {
			change.ReplaceAllowedIPs = true
			for _, a := range p.AllowedIPs {
				change.AllowedIPs = append(change.AllowedIPs,
					net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())})
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
	return c, changes, endpoints
}

// announced is the endpoint that a peer announced at the last comparison. It is the zero value before the first one.
type announced struct {
	at netip.AddrPort
	// kept is set if the endpoint was not sent to the device, because the device had another one and a session.
	kept bool
}

// sessionLost is the time from a handshake until its session ends (REJECT_AFTER_TIME of WireGuard).
const sessionLost = 180 * time.Second

// next decides whether the announced endpoint of a peer is sent to the device. If the peer has sent packets from
// another address, the device uses that one, and it stays: the peer may be behind NAT and not reachable at its
// announced address. After a restart the sent endpoints are unknown, so an endpoint with a session stays as well. If
// the peer has announced another endpoint meanwhile, that may be the old one. Then no packet reaches the peer until it
// sends one itself, or until the session has ended. So each comparison decides again.
func (a announced) next(at netip.AddrPort, have wgtypes.Peer, now time.Time) (send bool, _ announced) {
	old, age, first := endpointOf(have), now.Sub(have.LastHandshakeTime), !a.at.IsValid()
	switch {
	case old == at:
		return false, announced{at: at}
	case !old.IsValid() || !first && a.at != at:
		return true, announced{at: at}
	case !first && !a.kept:
		return false, a
	case age >= 0 && age < sessionLost:
		return false, announced{at: at, kept: true}
	}
	return true, announced{at: at}
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
