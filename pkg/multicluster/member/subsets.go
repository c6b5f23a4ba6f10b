package member

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// The documented API is made of core/v1 Endpoints and their subsets, which Kubernetes mirrors
// to EndpointSlices.
//
//nolint:staticcheck // deprecated in Kubernetes, but what users and the leader see
type (
	// Endpoints are those of an imported Service.
	Endpoints = corev1.Endpoints
	subset    = corev1.EndpointSubset
	address   = corev1.EndpointAddress
	port      = corev1.EndpointPort
)

// podSubsets returns the IPv4 addresses of some endpoints of EndpointSlices with their ports: one subset for
// each set of ports, each address once, in a fixed order.
func podSubsets(endpointSlices []*discoveryv1.EndpointSlice, takes func(discoveryv1.Endpoint) bool) []subset {
	ports := map[string][]port{}
	addresses := map[string]map[string]string{} // host names, by port set and address
	for _, s := range endpointSlices {
		if s.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		var ps []port
		for _, p := range s.Ports {
			if p.Port == nil {
				continue // "all ports" has no form in a subset
			}
			one := port{Port: *p.Port, Protocol: corev1.ProtocolTCP}
			if p.Name != nil {
				one.Name = *p.Name
			}
			if p.Protocol != nil {
				one.Protocol = *p.Protocol
			}
			ps = append(ps, one)
		}
		slices.SortFunc(ps, func(a, b port) int { return cmp.Compare(portText(a), portText(b)) })
		id := portsText(ps)
		for _, e := range s.Endpoints {
			if !takes(e) {
				continue
			}
			for _, a := range e.Addresses {
				if !isIPv4(a) {
					continue
				}
				if addresses[id] == nil {
					ports[id], addresses[id] = ps, map[string]string{}
				}
				addresses[id][a] = max(addresses[id][a], ptr.Deref(e.Hostname, ""))
			}
		}
	}
	var subsets []subset
	for _, id := range slices.Sorted(maps.Keys(addresses)) {
		one := subset{Ports: ports[id]}
		for _, a := range slices.Sorted(maps.Keys(addresses[id])) {
			one.Addresses = append(one.Addresses, address{IP: a, Hostname: addresses[id][a]})
		}
		subsets = append(subsets, one)
	}
	return subsets
}

func portText(p port) string {
	return fmt.Sprintf("%s/%s/%d", p.Name, cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port)
}

// portsText tells sets of ports apart. Ports are in the order in which they are given.
func portsText(ps []port) string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = portText(p)
	}
	return strings.Join(texts, ",")
}

// withoutAway moves the addresses of clusters that are away to those that are not ready. The subsets are those of all sources together; an
// address that a cluster offers which is not away stays ready.
func withoutAway(subsets []subset, sources map[string]exportcheck.Part, away func(id string, s subset) bool) []subset {
	lost := map[string]bool{}
	for id, part := range sources {
		for _, s := range part.Subsets {
			for _, a := range s.Addresses {
				key := portsText(s.Ports) + " " + a.IP
				gone, known := lost[key]
				lost[key] = away(id, s) && (gone || !known)
			}
		}
	}
	out := make([]subset, len(subsets))
	for i, s := range subsets {
		out[i] = subset{Ports: s.Ports, NotReadyAddresses: slices.Clone(s.NotReadyAddresses)}
		for _, a := range s.Addresses {
			if lost[portsText(s.Ports)+" "+a.IP] {
				out[i].NotReadyAddresses = append(out[i].NotReadyAddresses, a)
			} else {
				out[i].Addresses = append(out[i].Addresses, a)
			}
		}
	}
	return out
}

// sameSubsets says whether two lists of subsets mean the same endpoints. API servers may
// group and sort subsets anew, so the addresses with their ports are compared.
func sameSubsets(a, b []subset) bool {
	return maps.Equal(flatten(a), flatten(b))
}

func flatten(subsets []subset) map[string]bool {
	m := map[string]bool{}
	for _, s := range subsets {
		texts := make([]string, len(s.Ports))
		for i, p := range s.Ports {
			texts[i] = portText(p)
		}
		if len(texts) == 0 {
			texts = []string{"none"}
		}
		for _, t := range texts {
			for _, a := range s.Addresses {
				m["ready "+a.IP+" "+a.Hostname+" "+t] = true
			}
			for _, a := range s.NotReadyAddresses {
				m["not ready "+a.IP+" "+t] = true
			}
		}
	}
	return m
}

func isIPv4(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is4()
}
