package service

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// candidate is one address of a slice for one of its ports.
type candidate struct {
	addr     netip.AddrPort
	port     string
	protocol corev1.Protocol
	ready    bool
	draining bool // serving and terminating
}

type candidates []candidate

// candidates collects every endpoint of a Service, for all its ports.
func (p *planner) candidates(s *corev1.Service) candidates {
	var out candidates
	local := s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	for _, slice := range p.slices[s.Namespace+"/"+s.Name] {
		for i, e := range slice.Endpoints {
			if local && (e.NodeName == nil || *e.NodeName != p.view.NodeName) {
				continue
			}
			ip, ok := p.endpointAddress(slice, i, e)
			if !ok {
				continue
			}
			for _, port := range slice.Ports {
				if port.Port == nil || *port.Port < 1 || *port.Port > 65535 {
					continue // "all ports" has no meaning behind a ClusterIP
				}
				c := candidate{
					addr:     netip.AddrPortFrom(ip, uint16(*port.Port)),
					protocol: corev1.ProtocolTCP,
					ready:    s.Spec.PublishNotReadyAddresses || isReady(e.Conditions),
					draining: isDraining(e.Conditions),
				}
				if port.Name != nil {
					c.port = *port.Name
				}
				if port.Protocol != nil {
					c.protocol = *port.Protocol
				}
				out = append(out, c)
			}
		}
	}
	return out
}

// endpointAddress is the address of endpoint i of a slice. Of several addresses the API
// gives a meaning to the first alone.
func (p *planner) endpointAddress(slice *discoveryv1.EndpointSlice, i int, e discoveryv1.Endpoint) (netip.Addr, bool) {
	object := problem.Object{Kind: "EndpointSlice", Namespace: slice.Namespace, Name: slice.Name}
	field := fmt.Sprintf("endpoints[%d].addresses[0]", i)
	if len(e.Addresses) == 0 {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(e.Addresses[0])
	if err != nil || !ip.Is4() {
		p.report(object, field, "InvalidAddress", "%q is not an IPv4 address, the endpoint is left out: correct it", e.Addresses[0])
		return netip.Addr{}, false
	}
	if reason := unusable(ip); reason != "" {
		p.report(object, field, "InvalidAddress", "%s is %s, the endpoint is left out: correct it", ip, reason)
		return netip.Addr{}, false
	}
	return ip, true
}

// isReady reads a condition that means true where nothing is said (discovery/v1).
func isReady(c discoveryv1.EndpointConditions) bool { return c.Ready == nil || *c.Ready }

// isDraining says that an endpoint ends but still answers (KEP-1669). A serving condition
// that is missing is what ready says.
func isDraining(c discoveryv1.EndpointConditions) bool {
	serving := isReady(c)
	if c.Serving != nil {
		serving = *c.Serving
	}
	return serving && c.Terminating != nil && *c.Terminating
}

// choose returns the endpoints of one port: the ready ones, and only where there is none at
// all those that are ending but still serve (KEP-1669). Each address counts once.
func (cs candidates) choose(port string, protocol corev1.Protocol) []Endpoint {
	pick := func(want func(candidate) bool) []Endpoint {
		seen := map[netip.AddrPort]bool{}
		var out []Endpoint
		for _, c := range cs {
			if c.port == port && c.protocol == protocol && want(c) && !seen[c.addr] {
				seen[c.addr] = true
				out = append(out, Endpoint{Addr: c.addr, Weight: 1})
			}
		}
		slices.SortFunc(out, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
		return out
	}
	if out := pick(func(c candidate) bool { return c.ready }); len(out) > 0 {
		return out
	}
	return pick(func(c candidate) bool { return c.draining })
}
