package datapath

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Scenarios of IPv4 are scenarios of IPv6, too: each address inside of tunnels has a counterpart in fd0a::/96.

// six returns the counterpart of an address.
func six(a netip.Addr) netip.Addr {
	if a == vip {
		return vip6
	}
	out, tail := addrOf("fd0a::").As16(), a.As4()
	copy(out[12:], tail[:])
	return netip.AddrFrom16(out)
}

func sixPort(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(six(a.Addr()), a.Port()) }

func sixRange(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(six(p.Addr()), 96+p.Bits()) }

var addressPort = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`)

// sixText replaces each address and port of a text. A Node's address with a client's port is the source of a request
// that a Gateway has translated.
func sixText(text string) string {
	return addressPort.ReplaceAllStringFunc(text, func(s string) string {
		a := netip.MustParseAddrPort(s)
		if a.Port() >= 40000 && rangeOf("192.168.0.0/16").Contains(a.Addr()) {
			return "[" + peering.Source(a.Addr(), true).String() + "]:" + strconv.Itoa(int(a.Port()))
		}
		return sixPort(a).String()
	})
}

// inSix returns a state of IPv4 with the counterparts of all addresses inside of tunnels, instead of these or next to
// them.
func (s State) inSix(families family.Families) State {
	ips, cidrs := both(families, six), both(families, sixRange)
	s.Node.Families, s.Node.ServiceVIP6, s.Node.NoND = families, vip6, ovstest.System()
	s.Node.PodCIDRs, s.Node.GatewayIPs = cidrs(s.Node.PodCIDRs), ips(s.Node.GatewayIPs)
	s.Node.ServiceCIDRs = cidrs(s.Node.ServiceCIDRs)
	s.Pods, s.RemoteNodes = slices.Clone(s.Pods), slices.Clone(s.RemoteNodes)
	for i := range s.Pods {
		s.Pods[i].IPs = ips(s.Pods[i].IPs)
	}
	for i := range s.RemoteNodes {
		r := &s.RemoteNodes[i]
		r.PodCIDRs, r.GatewayIPs = cidrs(r.PodCIDRs), ips(r.GatewayIPs)
	}
	s.Frontends = both(families, func(f service.Frontend) service.Frontend {
		f.VIP, f.Endpoints = sixPort(f.VIP), slices.Clone(f.Endpoints)
		for i := range f.Endpoints {
			f.Endpoints[i].Addr = sixPort(f.Endpoints[i].Addr)
		}
		return f
	})(s.Frontends)
	all := map[derive.Object]service.SliceFacts{}
	for key, slice := range s.Slices {
		slice.Endpoints = slices.Clone(slice.Endpoints)
		if families.Has4() {
			all[key] = slice
		}
		for i := range slice.Endpoints {
			slice.Endpoints[i].Addr = six(slice.Endpoints[i].Addr)
		}
		key.Name += "-6"
		all[key] = slice
	}
	s.Slices = all
	s.Peering.Peers = slices.Clone(s.Peering.Peers)
	for i := range s.Peering.Peers {
		s.Peering.Peers[i].CIDRs = cidrs(s.Peering.Peers[i].CIDRs)
	}
	return s
}

// both returns a function that adds counterparts to a list, or has them alone.
func both[T any](families family.Families, counterpart func(T) T) func([]T) []T {
	return func(list []T) (out []T) {
		if families.Has4() {
			out = slices.Clone(list)
		}
		for _, v := range list {
			out = append(out, counterpart(v))
		}
		return out
	}
}

// inner returns an address that is inside of tunnels, as this cable has it.
func (c *cable) inner(a netip.Addr) netip.Addr {
	if c.six && a.Is4() {
		return six(a)
	}
	return a
}

// translated returns the source of requests that a Gateway has translated, as this cable has it.
func (c *cable) translated(end netip.Addr) netip.Addr { return peering.Source(end, c.six) }

// inSix makes all Nodes of a cable Nodes with IPv6.
func (c *cable) inSix(families family.Families) *cable {
	states := map[string]State{}
	for name, s := range c.states {
		states[name] = s.inSix(families)
	}
	return cableOf(c.t, states)
}
