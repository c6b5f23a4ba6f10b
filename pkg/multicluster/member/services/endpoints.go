package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// The documented API consists of core/v1 Endpoints and their subsets, which Kubernetes mirrors to EndpointSlices.
//
//nolint:staticcheck // deprecated in Kubernetes, but what users and the leader see
type (
	// Endpoints is the object with the endpoints of an imported Service.
	Endpoints = corev1.Endpoints
	// Subset is a group of endpoints with the same ports.
	Subset = corev1.EndpointSubset
	// Address is one endpoint of a Subset.
	Address = corev1.EndpointAddress
	// Port is one port of a Subset.
	Port = corev1.EndpointPort
)

// PortText returns a text that differs for different ports.
func PortText(p Port) string {
	return fmt.Sprintf("%s/%s/%d", p.Name, cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port)
}

// PortsText returns a list of ports as text. Different lists have different texts, and the ports keep their order.
func PortsText(ps []Port) string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = PortText(p)
	}
	return strings.Join(texts, ",")
}

// Ready reports whether an endpoint accepts traffic. As the API defines, an endpoint without the condition counts as
// ready.
func Ready(e discoveryv1.Endpoint) bool {
	return e.Conditions.Ready == nil || *e.Conditions.Ready
}

// HasReady reports whether EndpointSlices have a ready endpoint.
func HasReady(endpointSlices []*discoveryv1.EndpointSlice) bool {
	for _, s := range endpointSlices {
		if slices.ContainsFunc(s.Endpoints, Ready) {
			return true
		}
	}
	return false
}

// Draining reports whether an endpoint terminates but still answers. If no endpoint of a Service is ready, connections
// go to such endpoints (KEP-1669).
func Draining(e discoveryv1.Endpoint) bool {
	return !Ready(e) && ptr.Deref(e.Conditions.Serving, false) && ptr.Deref(e.Conditions.Terminating, false)
}

// CountServing returns how many endpoints accept connections: the ready ones, or, if no endpoint is ready, the
// terminating ones that still answer. It counts only the address family with more endpoints, since a Pod with two
// addresses is one endpoint.
func CountServing(endpointSlices []*discoveryv1.EndpointSlice) int {
	for _, takes := range []struct {
		is  func(discoveryv1.Endpoint) bool
		key string
	}{{Ready, multicluster.AnnotationReady}, {Draining, factDraining}} {
		count := map[discoveryv1.AddressType]int{}
		for _, s := range endpointSlices {
			if n, err := strconv.Atoi(s.Annotations[takes.key]); err == nil { // see sliceFacts
				count[s.AddressType] += n
				continue
			}
			for _, e := range s.Endpoints {
				if takes.is(e) {
					count[s.AddressType]++
				}
			}
		}
		if n := max(count[discoveryv1.AddressTypeIPv4], count[discoveryv1.AddressTypeIPv6],
			count[discoveryv1.AddressTypeFQDN]); n > 0 {
			return n
		}
	}
	return 0
}

// FamilyOf returns the version of IP of an address.
func FamilyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
