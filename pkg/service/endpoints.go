package service

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// candidate is one address of a slice for one of its ports.
type candidate struct {
	addr     netip.AddrPort
	port     string
	protocol corev1.Protocol
	ready    bool
	draining bool
}

type candidates []candidate

// add appends the endpoints of one slice of a Service, for all its ports.
func (cs candidates) add(service Facts, slice SliceFacts, node string) candidates {
	for _, e := range slice.Endpoints {
		if service.Local && e.Node != node {
			continue
		}
		for _, port := range slice.Ports {
			cs = append(cs, candidate{
				addr:     netip.AddrPortFrom(e.Addr, port.Port),
				port:     port.Name,
				protocol: port.Protocol,
				ready:    service.PublishNotReady || e.Ready,
				draining: e.Draining,
			})
		}
	}
	return cs
}

// choose returns the endpoints of one port, of the family of its virtual address: the ready
// ones, and only where there is none at all those that are ending but still serve (KEP-1669).
// Each address counts once.
func (cs candidates) choose(port string, protocol corev1.Protocol, vip netip.Addr) []Endpoint {
	pick := func(want func(candidate) bool) []Endpoint {
		var out []Endpoint
		for _, c := range cs {
			if c.port == port && c.protocol == protocol && c.addr.Addr().Is4() == vip.Is4() && want(c) {
				out = append(out, Endpoint{Addr: c.addr, Weight: 1})
			}
		}
		slices.SortFunc(out, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
		return slices.Compact(out)
	}
	if out := pick(func(c candidate) bool { return c.ready }); len(out) > 0 {
		return out
	}
	return pick(func(c candidate) bool { return c.draining })
}
