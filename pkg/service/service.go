// Package service turns Services and EndpointSlices into what a load balancer needs: one
// Frontend for each virtual address and port, with its endpoints and their weights. It is
// pure: no client, no clock.
package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// View is everything that the load balancing of a Node depends on.
type View struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	// NodeName is this Node: internalTrafficPolicy Local keeps to its endpoints.
	NodeName string
	// SCTP says that the datapath's connection tracker knows SCTP: the kernel's does, the
	// userspace datapath's of Open vSwitch 3.1 does not.
	SCTP bool
}

// Endpoint is one address that connections to a Frontend are sent to. Its share of them is
// Weight over the sum of all weights.
type Endpoint struct {
	Addr   netip.AddrPort
	Weight uint16
}

// Frontend is one virtual address and port of a Service. No Endpoints means that connections
// are to be refused.
type Frontend struct {
	Namespace string
	Service   string
	Port      string // the port's name, empty where the only port has none
	Protocol  corev1.Protocol
	VIP       netip.AddrPort
	Endpoints []Endpoint // ordered by address
}

// String names the frontend for people: default/web:http 10.96.0.10:80/TCP.
func (f Frontend) String() string {
	name := f.Namespace + "/" + f.Service
	if f.Port != "" {
		name += ":" + f.Port
	}
	return fmt.Sprintf("%s %s/%s", name, f.VIP, f.Protocol)
}

// address is what a packet names: two frontends cannot share one.
type address struct {
	protocol corev1.Protocol
	addr     netip.AddrPort
}

// Plan returns the frontends, ordered by namespace, Service, protocol and address. What
// cannot be served becomes a Problem and nothing else stops. Headless and ExternalName
// Services have no address to serve and are left out. What no Node serves is left out without
// a Problem: see Unsupported, which is reported once for the cluster.
func Plan(v View) ([]Frontend, []problem.Problem) {
	p := planner{view: v, slices: slicesByService(v.Slices), frontends: map[address]int{}, reported: map[problem.Problem]bool{}}
	services := slices.Clone(v.Services)
	slices.SortStableFunc(services, func(a, b *corev1.Service) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, s := range services {
		p.service(s)
	}
	p.flatten()
	slices.SortStableFunc(p.out, func(a, b Frontend) int { return strings.Compare(a.sortKey(), b.sortKey()) })
	return p.out, p.problems
}

// sortKey orders frontends for people.
func (f Frontend) sortKey() string {
	return fmt.Sprintf("%s/%s %s %s %05d", f.Namespace, f.Service, f.Protocol, f.VIP.Addr().StringExpanded(), f.VIP.Port())
}

type planner struct {
	view      View
	slices    map[string][]*discoveryv1.EndpointSlice
	out       []Frontend
	frontends map[address]int // index in out
	problems  []problem.Problem
	reported  map[problem.Problem]bool // of those that nesting has found
}

func (p *planner) report(object problem.Object, field, reason, format string, args ...any) {
	p.problems = append(p.problems, problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// slicesByService groups slices by "namespace/service", each group ordered by name.
func slicesByService(all []*discoveryv1.EndpointSlice) map[string][]*discoveryv1.EndpointSlice {
	out := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range all {
		name := s.Labels[discoveryv1.LabelServiceName]
		if name == "" || s.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		key := s.Namespace + "/" + name
		out[key] = append(out[key], s)
	}
	for _, group := range out {
		slices.SortFunc(group, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// service adds the frontends of one Service.
func (p *planner) service(s *corev1.Service) {
	object := problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}
	vips := p.vips(s, object)
	if len(vips) == 0 {
		return
	}
	candidates := p.candidates(s)
	for i, port := range s.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		switch {
		case protocol == corev1.ProtocolSCTP && !p.view.SCTP:
			p.report(object, field, "SCTPNotSupported",
				"port %d/SCTP is not served: the userspace datapath's connection tracker does not know SCTP; set ovsDatapathType to system in antrea-agent.conf, or use TCP or UDP", port.Port)
			continue
		case protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP && protocol != corev1.ProtocolSCTP:
			p.report(object, field+".protocol", "InvalidProtocol", "protocol %q is not one of TCP, UDP and SCTP: correct it", protocol)
			continue
		case port.Port < 1 || port.Port > 65535:
			p.report(object, field+".port", "InvalidPort", "port %d is not in 1 to 65535: correct it", port.Port)
			continue
		}
		endpoints := candidates.choose(port.Name, protocol)
		for _, vip := range vips {
			p.add(object, field, Frontend{
				Namespace: s.Namespace, Service: s.Name, Port: port.Name, Protocol: protocol,
				VIP: netip.AddrPortFrom(vip, uint16(port.Port)), Endpoints: slices.Clone(endpoints),
			})
		}
	}
}

// add takes a frontend unless another Service has its address already.
func (p *planner) add(object problem.Object, field string, f Frontend) {
	key := address{f.Protocol, f.VIP}
	if i, taken := p.frontends[key]; taken {
		p.report(object, field, "AddressInUse", "%s/%s is served for Service %s/%s already: give one of the two Services another ClusterIP or port",
			f.VIP, f.Protocol, p.out[i].Namespace, p.out[i].Service)
		return
	}
	p.frontends[key] = len(p.out)
	p.out = append(p.out, f)
}

// vips returns the IPv4 ClusterIPs of a Service, none where it is of a kind without.
func (p *planner) vips(s *corev1.Service, object problem.Object) []netip.Addr {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	texts, field := s.Spec.ClusterIPs, "spec.clusterIPs"
	if len(texts) == 0 {
		texts, field = []string{s.Spec.ClusterIP}, "spec.clusterIP"
	}
	var out []netip.Addr
	for _, text := range texts {
		if text == "" || text == corev1.ClusterIPNone {
			continue
		}
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil || !ip.Is4() && !ip.Is6():
			p.report(object, field, "InvalidClusterIP", "%q is not an IP address: recreate the Service to get another", text)
		case ip.Is4():
			if reason := unusable(ip); reason != "" {
				p.report(object, field, "InvalidClusterIP", "%s is %s: recreate the Service to get another", ip, reason)
				continue
			}
			out = append(out, ip)
		}
	}
	return out
}

// unusable says why nothing can be sent to an address, or returns "".
func unusable(ip netip.Addr) string {
	switch {
	case ip.IsUnspecified():
		return "the unspecified address"
	case ip.IsLoopback():
		return "a loopback address"
	case ip.IsMulticast():
		return "a multicast address"
	case ip.IsLinkLocalUnicast():
		return "a link-local address"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	}
	return ""
}
