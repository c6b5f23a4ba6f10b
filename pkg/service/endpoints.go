package service

import (
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// packed is an address as integers. When one address changes, thousands are sorted again, and sorting values with
// pointers takes several times as long.
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
	zone    func() string // the Node's
	slices  []derive.Row[derive.Object, SliceFacts]
}

// choose returns the endpoints of one port, of the family of its virtual address, ordered by address. It returns the
// ready ones. If no endpoint is ready, it returns those still serving while they terminate (KEP-1669). Each address is
// in the result once. Hints restrict the ready endpoints. hidden is the number of endpoints that they exclude.
func (c candidates) choose(port Port, vip netip.Addr, scope Scope) (out []Endpoint, hidden int) {
	ready := func(e EndpointFacts) bool { return c.service.PublishNotReady || e.Ready }
	if out = c.pick(port, vip, scope, ready); len(out) == 0 {
		out = c.pick(port, vip, scope, func(e EndpointFacts) bool { return e.Draining })
		return out, 0
	}
	if scope == Local {
		return out, 0 // it has chosen already
	}
	if hinted := c.hinted(port, vip, ready); hinted != nil {
		all := len(out)
		out = c.pick(port, vip, scope, func(e EndpointFacts) bool { return ready(e) && hinted(e) })
		hidden = all - len(out)
	}
	return out, hidden
}

// anywhere reports whether a port has an endpoint on any Node.
func (c candidates) anywhere(port Port, vip netip.Addr) bool {
	list, _ := c.choose(port, vip, Cluster)
	return len(list) > 0
}

// hinted returns a filter for the ready endpoints whose hints name this Node or its zone, or nil if all endpoints are
// used. The result equals kube-proxy's in Kubernetes 1.36 (topologyModeFromHints). A kind of hint counts if all ready
// endpoints have it and at least one names this Node, or its zone. Hints for the Node have precedence over hints for
// the zone.
//
// So a missing hint, or clients in a zone without endpoints, lead to all endpoints. hinted does not read the Service's
// trafficDistribution and its annotation, since Kubernetes' controller writes hints from them.
func (c candidates) hinted(port Port, vip netip.Addr, ready func(EndpointFacts) bool) func(EndpointFacts) bool {
	nodes, zones, here, near := true, true, false, false
	zone, known := "", false
	for e := range c.of(port, vip, Cluster) {
		if !ready(e) {
			continue
		}
		if e.Hints == nil {
			return nil
		}
		nodes, zones = nodes && len(e.Hints.Nodes) > 0, zones && len(e.Hints.Zones) > 0
		here = here || slices.Contains(e.Hints.Nodes, c.node)
		if !near && len(e.Hints.Zones) > 0 {
			if !known {
				zone, known = c.zone(), true
			}
			near = slices.Contains(e.Hints.Zones, zone)
		}
	}
	switch {
	case nodes && here:
		return func(e EndpointFacts) bool { return slices.Contains(e.Hints.Nodes, c.node) }
	case zones && near:
		return func(e EndpointFacts) bool { return slices.Contains(e.Hints.Zones, zone) }
	}
	return nil
}

// of yields the endpoints of one port to which this Node may send connections, with their port numbers. They are of the
// family of the virtual address.
func (c candidates) of(port Port, vip netip.Addr, scope Scope) iter.Seq2[EndpointFacts, uint16] {
	return func(yield func(EndpointFacts, uint16) bool) {
		for _, slice := range c.slices {
			for _, p := range slice.Value.Ports {
				if p.Name != port.Name || p.Protocol != port.Protocol {
					continue
				}
				for _, e := range slice.Value.Endpoints {
					if e.Addr.Is4() == vip.Is4() && (scope == Cluster || e.Node == c.node || c.service.Imported) && !yield(e, p.Port) {
						return
					}
				}
			}
		}
	}
}

func (c candidates) pick(port Port, vip netip.Addr, scope Scope, want func(EndpointFacts) bool) []Endpoint {
	n := 0
	for _, slice := range c.slices {
		n += len(slice.Value.Endpoints)
	}
	list := make([]packed, 0, n)
	for e, number := range c.of(port, vip, scope) {
		if want(e) {
			list = append(list, pack(e.Addr, number))
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
