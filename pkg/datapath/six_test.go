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

// outerSix returns the counterpart of an address of a Node, where tunnels end.
func outerSix(a netip.Addr) netip.Addr {
	if !a.Is4() {
		return a
	}
	out, tail := addrOf("fd0e::").As16(), a.As4()
	copy(out[12:], tail[:])
	return netip.AddrFrom16(out)
}

// over6 returns the state of a Node whose tunnels are over IPv6.
func over6(s State) State {
	s.Node.Tunnels.Ends, s.RemoteNodes = slices.Clone(s.Node.Tunnels.Ends), slices.Clone(s.RemoteNodes)
	for i := range s.Node.Tunnels.Ends {
		s.Node.Tunnels.Ends[i] = outerSix(s.Node.Tunnels.Ends[i])
	}
	s.Node.Tunnels.Source, s.Node.Tunnels.PeerSource = outerSix(s.Node.Tunnels.Source), outerSix(s.Node.Tunnels.PeerSource)
	for i := range s.RemoteNodes {
		s.RemoteNodes[i].Address = outerSix(s.RemoteNodes[i].Address)
	}
	p := &s.Peering
	p.Part.Gateways, p.Peers = slices.Clone(p.Part.Gateways), slices.Clone(p.Peers)
	for _, g := range []*peering.GatewayNode{&p.Part.Gateway, &p.Part.Gateways[0]} {
		g.GatewayIP, g.InternalIP = outerSix(g.GatewayIP), outerSix(g.InternalIP)
	}
	p.Part.End = outerSix(p.Part.End)
	s.Node.Tunnels.PeerEnd = p.Part.End
	for i := range p.Peers {
		p.Peers[i].Gateways = []peering.Way{{Outside: outerSix(p.Peers[i].Gateways[0].Outside)}}
		p.Peers[i].Ends = []peering.End{{Addr: outerSix(p.Peers[i].Ends[0].Addr)}}
	}
	return s
}

// over6 returns a cable whose tunnels are over IPv6.
func (c *cable) over6() *cable {
	states, ends := map[string]State{}, map[netip.Addr]string{}
	for name, s := range c.states {
		states[name] = over6(s)
	}
	for end, name := range c.ends {
		ends[outerSix(end)] = name
	}
	out := cableOf(c.t, states)
	out.ends, out.six = ends, c.six
	return out
}

// textOver6 replaces the sources that Gateways give to requests in a text, as sixText does.
func textOver6(text string, is6 bool) string {
	return addressPort.ReplaceAllStringFunc(text, func(s string) string {
		a := netip.MustParseAddrPort(s)
		switch {
		case a.Port() >= 40000 && rangeOf("192.168.0.0/16").Contains(a.Addr()):
			return netip.AddrPortFrom(peering.Source(outerSix(a.Addr()), is6), a.Port()).String()
		case is6:
			return sixPort(a).String()
		}
		return s
	})
}
