package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Outside are the inputs of how clients outside of the Pods' network reach a Service.
type Outside struct {
	// Local restricts clients outside of this Node to endpoints on it: externalTrafficPolicy Local.
	Local     bool
	Balancers []netip.Addr // addresses of status.loadBalancer whose packets come to the Nodes as they are
	External  []netip.Addr // externalIPs
	// Sources are loadBalancerSourceRanges, of both families. Limited4 and Limited6 are set if the ranges limit the
	// clients of a family.
	Sources            []netip.Prefix
	Limited4, Limited6 bool
	// Pool is the ExternalIPPool that gives the Service its load balancer's address.
	Pool string
	// HealthPort is the port at which load balancers ask whether this Node has endpoints, with Local. 0 means no port.
	HealthPort uint16
}

// MaxSources bounds the cost of a Service's loadBalancerSourceRanges: ranges times ports times addresses of the load
// balancer. A Node has three flows for each.
const MaxSources = 1024

// SourceProblems returns the problems of a Service whose loadBalancerSourceRanges exceed MaxSources. Such a Service
// admits no client.
func SourceProblems(s *corev1.Service) (out []problem.Problem) {
	for _, p := range FactsOf(s).Problems {
		if p.Reason == ReasonTooManySources {
			out = append(out, p)
		}
	}
	return out
}

// bound leaves out all ranges if they are beyond MaxSources. Then no client is let in.
func (o *Outside) bound(ports int, report reporter) {
	need := 0
	for _, ip := range o.Balancers {
		if list, limited := o.limits(ip); limited {
			need += len(list) * ports
		}
	}
	if need > MaxSources {
		report("spec.loadBalancerSourceRanges", ReasonTooManySources, "the ranges need %d entries (ranges x ports x "+
			"addresses), more than %d, and no client is let in: write fewer, larger ranges, or divide the ports over Services",
			need, MaxSources)
		o.Sources = nil
	}
}

// reporter reports a fault of a field.
type reporter func(field string, reason reasons.Reason, format string, args ...any)

// outsideOf parses the addresses of a Service outside of the Pods' network.
func outsideOf(s *corev1.Service, report reporter) Outside {
	o := Outside{
		Local:    s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		External: externalIPs(s, report),
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return o
	}
	if p := s.Spec.HealthCheckNodePort; o.Local && p > 0 && p <= 65535 {
		o.HealthPort = uint16(p)
	}
	if s.Spec.LoadBalancerClass == nil {
		o.Pool = s.Annotations[crdv1beta1.AnnotationExternalIPPool]
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue // a name, or the address of a proxy: its packets come to node ports
		}
		field := fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i)
		if ip, ok := outsideAddress(in.IP, field, reasonInvalidLoadBalancerIP, report); ok && !slices.Contains(o.Balancers,
			ip) {
			o.Balancers = append(o.Balancers, ip)
		}
	}
	o.sources(s.Spec.LoadBalancerSourceRanges, report)
	o.bound(len(s.Spec.Ports), report)
	return o
}

func externalIPs(s *corev1.Service, report reporter) (out []netip.Addr) {
	for i, text := range s.Spec.ExternalIPs {
		field := fmt.Sprintf("spec.externalIPs[%d]", i)
		if ip, ok := outsideAddress(text, field, reasonInvalidExternalIP, report); ok && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

func outsideAddress(text, field string, reason reasons.Reason, report reporter) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		report(field, reason, "%q is not an IP address: correct it", text)
		return ip, false
	}
	if why := unusable(ip); why != "" {
		report(field, reason, "%s is %s: choose another address", ip, why)
		return ip, false
	}
	return ip.Unmap(), true
}

// sources parses ranges of clients, as kube-proxy does: if all ranges are of one family, the other family is not
// restricted. An invalid range admits no client.
func (o *Outside) sources(texts []string, report reporter) {
	invalid := false
	for i, text := range texts {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			invalid = true
			report(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), reasonInvalidSourceRange,
				"%q is not a range of IP addresses, and no client is let in by it: correct it, for example to 192.0.2.0/24", text)
			continue
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()).Masked()
		o.Limited4, o.Limited6 = o.Limited4 || p.Addr().Is4(), o.Limited6 || p.Addr().Is6()
		if !slices.Contains(o.Sources, p) {
			o.Sources = append(o.Sources, p)
		}
	}
	if invalid && len(o.Sources) == 0 {
		o.Limited4, o.Limited6 = true, true
	}
	for _, p := range o.Sources {
		if p.Bits() == 0 && p.Addr().Is4() {
			o.Limited4 = false
		} else if p.Bits() == 0 {
			o.Limited6 = false
		}
	}
}

// limits returns the ranges of clients that may use a load balancer's address, of the address's family. It returns
// false if all clients may use it.
func (o Outside) limits(ip netip.Addr) ([]netip.Prefix, bool) {
	if ip.Is4() && !o.Limited4 || ip.Is6() && !o.Limited6 {
		return nil, false
	}
	var out []netip.Prefix
	for _, p := range o.Sources {
		if p.Addr().Is4() == ip.Is4() {
			out = append(out, p)
		}
	}
	return out, true
}

// frontends returns the frontends of a port in the family of a ClusterIP, without endpoints. With outside it returns
// those for clients outside of the Pods' network, too.
func (f Facts) frontends(port Port, vip netip.Addr, outside bool) []Frontend {
	at := func(ip netip.Addr, number uint16, kind Kind) Frontend {
		return Frontend{
			Port: port.Name, Protocol: port.Protocol, VIP: netip.AddrPortFrom(ip, number), Kind: kind, Affinity: f.Affinity,
		}
	}
	internal := at(vip, port.Port, ClusterIP)
	if f.Local {
		internal.Scope = Local
	}
	out := []Frontend{internal}
	if !outside {
		return out
	}
	// With externalTrafficPolicy Local a Node's own clients use all endpoints, as with kube-proxy.
	add := func(fs ...Frontend) {
		for _, fr := range fs {
			if !f.Outside.Local {
				out = append(out, fr)
				continue
			}
			own, others := fr, fr
			own.Clients, others.Clients, others.Scope = OwnClients, OtherClients, Local
			out = append(out, own, others)
		}
	}
	if port.NodePort != 0 {
		any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
		if vip.Is4() {
			add(at(any4, port.NodePort, NodePort))
		} else {
			add(at(any6, port.NodePort, NodePort))
		}
	}
	for _, ip := range f.Outside.Balancers {
		if ip.Is4() == vip.Is4() {
			fr := at(ip, port.Port, LoadBalancer)
			fr.Sources, fr.Limited = f.Outside.limits(ip)
			add(fr)
		}
	}
	for _, ip := range f.Outside.External {
		if ip.Is4() == vip.Is4() {
			add(at(ip, port.Port, ExternalIP))
		}
	}
	return out
}
