package service

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// packed is an address as numbers: thousands are sorted each time that one of them changes, and sorting what
// has pointers costs several times as much.
type packed struct {
	high, low uint64
	port      uint16
}

func pack(ip netip.Addr, port uint16) packed {
	b := ip.As16()
	return packed{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), port}
}

func (p packed) compare(o packed) int {
	return cmp.Or(cmp.Compare(p.high, o.high), cmp.Compare(p.low, o.low), cmp.Compare(p.port, o.port))
}

// unpack returns the address, of IPv4 or not.
func (p packed) unpack(is4 bool) netip.AddrPort {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], p.high)
	binary.BigEndian.PutUint64(b[8:], p.low)
	ip := netip.AddrFrom16(b)
	if is4 {
		ip = ip.Unmap()
	}
	return netip.AddrPortFrom(ip, p.port)
}

// candidates are the endpoints of a Service.
type candidates struct {
	service Facts
	node    string
	slices  []derive.Row[derive.Object, SliceFacts]
}

// choose returns the endpoints of one port, of the family of its virtual address, ordered by address: the
// ready ones, and only where there is none at all those that are ending but still serve (KEP-1669).
// Each address counts once.
func (c candidates) choose(port Port, vip netip.Addr) []Endpoint {
	ready := func(e EndpointFacts) bool { return c.service.PublishNotReady || e.Ready }
	if out := c.pick(port, vip, ready); len(out) > 0 {
		return out
	}
	return c.pick(port, vip, func(e EndpointFacts) bool { return e.Draining })
}

func (c candidates) pick(port Port, vip netip.Addr, want func(EndpointFacts) bool) []Endpoint {
	n := 0
	for _, slice := range c.slices {
		n += len(slice.Value.Endpoints)
	}
	list := make([]packed, 0, n)
	for _, slice := range c.slices {
		for _, p := range slice.Value.Ports {
			if p.Name != port.Name || p.Protocol != port.Protocol {
				continue
			}
			for _, e := range slice.Value.Endpoints {
				if e.Addr.Is4() == vip.Is4() && (!c.service.Local || e.Node == c.node || c.service.Imported) && want(e) {
					list = append(list, pack(e.Addr, p.Port))
				}
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, packed.compare)
	list = slices.Compact(list)
	out := make([]Endpoint, len(list))
	for i, p := range list {
		out[i] = Endpoint{Addr: p.unpack(vip.Is4()), Weight: 1}
	}
	if c.service.Imported {
		c.weigh(out)
	}
	return out
}

// weigh gives the endpoints that stand for several their weight.
func (c candidates) weigh(list []Endpoint) {
	weights := map[netip.Addr]uint16{}
	for _, slice := range c.slices {
		if slice.Value.Weight < 2 {
			continue
		}
		for _, e := range slice.Value.Endpoints {
			weights[e.Addr] = max(weights[e.Addr], slice.Value.Weight)
		}
	}
	if len(weights) == 0 {
		return
	}
	for i, e := range list {
		list[i].Weight = max(1, weights[e.Addr.Addr()])
	}
}
