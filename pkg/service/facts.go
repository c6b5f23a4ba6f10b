package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Facts are the inputs of a Service's load balancing, parsed once. They are zero for a Service without an address,
// headless or ExternalName. They are also zero if the Service's labels name another proxy.
type Facts struct {
	VIPs  []netip.Addr // of both families
	Ports []Port
	Local bool // internalTrafficPolicy Local: endpoints of this Node only
	// Affinity is how long a client without new connections is remembered, with sessionAffinity ClientIP. 0 turns it off.
	Affinity time.Duration
	// Imported is set if the Service was made from other clusters' exports. Its endpoints are on no Node of this cluster.
	Imported bool
	// First lists the clusters that get requests to an imported Service first, in order. Minimum is the number of ready
	// endpoints that suffices. If First is empty, all clusters get requests.
	First   []string
	Minimum int
	// DNS is true of the cluster's DNS.
	DNS bool
	// Outside are the addresses of the Service outside of the Pods' network.
	Outside Outside
	// PublishNotReady has endpoints count as ready.
	PublishNotReady bool
	Problems        []problem.Problem // about parts that cannot be parsed, and are left out
}

// Port is a port of a Service.
type Port struct {
	Field    string // its path, for Problems
	Name     string
	Protocol corev1.Protocol // TCP, UDP or SCTP
	Port     uint16
	NodePort uint16 // 0: no port
}

// SliceFacts is the part of an EndpointSlice that load balancing depends on. It is zero if the slice belongs to no
// Service or has no addresses.
type SliceFacts struct {
	Service   derive.Object
	Ports     []SlicePort
	Endpoints []EndpointFacts
	// Weight is the number of endpoints behind each address, if the address is of another cluster's Service. 0 means one.
	Weight uint16
	// Cluster is whose endpoints they are, for an imported Service.
	Cluster  string
	Problems []problem.Problem // about parts that cannot be parsed, and are left out
}

// SlicePort is a port that all endpoints of an EndpointSlice have.
type SlicePort struct {
	Name     string
	Protocol corev1.Protocol
	Port     uint16
}

// EndpointFacts is one endpoint of an EndpointSlice.
type EndpointFacts struct {
	Addr     netip.Addr
	Node     string
	Ready    bool
	Draining bool // serving and terminating
	// Hints are the Nodes and zones whose clients should use the endpoint, or nil. There are many endpoints, and few have
	// hints.
	Hints *Hints
}

// Hints are the Nodes and zones whose clients should use an endpoint (discovery/v1, EndpointHints). Each list is empty
// if there are no hints of its kind.
type Hints struct {
	Nodes []string
	Zones []string
}

func hintsOf(h *discoveryv1.EndpointHints) *Hints {
	if h == nil || len(h.ForNodes) == 0 && len(h.ForZones) == 0 {
		return nil
	}
	out := &Hints{}
	for _, n := range h.ForNodes {
		out.Nodes = append(out.Nodes, n.Name)
	}
	for _, z := range h.ForZones {
		out.Zones = append(out.Zones, z.Name)
	}
	return out
}

// ZoneOf returns the zone of a Node, "" if its labels have no zone.
func ZoneOf(n *corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }

// LabelProxyName on a Service names another proxy that serves it. Tombolo leaves such a Service alone. The name is of
// k8s.io/kubernetes/pkg/proxy/apis.
const LabelProxyName = "service.kubernetes.io/service-proxy-name"

// IsOthers reports whether a Service or an EndpointSlice has a label for which kube-proxy ignores it.
func IsOthers(o metav1.Object) bool {
	for _, label := range []string{LabelProxyName, corev1.IsHeadlessService} {
		if _, ok := o.GetLabels()[label]; ok {
			return true
		}
	}
	return false
}

// isDNS reports whether a Service is the cluster's DNS. Installers give it a known name or label.
func isDNS(s *corev1.Service) bool {
	return s.Namespace == metav1.NamespaceSystem && (s.Name == "kube-dns" || s.Labels["k8s-app"] == "kube-dns")
}

// FactsOf parses a Service. It leaves out parts with faults.
func FactsOf(s *corev1.Service) Facts {
	var f Facts
	report := func(field string, reason reasons.Reason, format string, args ...any) {
		f.Problems = append(f.Problems, problem.Problem{
			Object: problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name},
			Field:  field, Reason: reason, Message: fmt.Sprintf(format, args...),
		})
	}
	if IsOthers(s) {
		return f
	}
	f.DNS = isDNS(s)
	f.VIPs = vips(s, report)
	if len(f.VIPs) == 0 {
		return Facts{Problems: f.Problems, DNS: f.DNS}
	}
	f.Local = s.Spec.InternalTrafficPolicy != nil &&
		*s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	f.Affinity = affinityOf(s)
	_, f.Imported = s.Annotations[multicluster.AnnotationImportedService]
	if order, ok := s.Annotations[multicluster.AnnotationClusterOrder]; ok && f.Imported {
		f.First, f.Minimum = requests.ReadOrder(order), 1
		// as the member controller writes it
		if n, err := strconv.Atoi(s.Annotations[multicluster.AnnotationMinimumReady]); err == nil {
			f.Minimum = n
		}
	}
	f.PublishNotReady = s.Spec.PublishNotReadyAddresses
	f.Outside = outsideOf(s, report)
	for i, port := range s.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		switch {
		case !known(protocol):
			report(field+".protocol", reasonInvalidProtocol, "protocol %q is not one of TCP, UDP and SCTP: correct it", protocol)
		case port.Port < 1 || port.Port > 65535:
			report(field+".port", reasonInvalidPort, "port %d is not in 1 to 65535: correct it", port.Port)
		case port.NodePort < 0 || port.NodePort > 65535:
			report(field+".nodePort", reasonInvalidPort, "port %d is not in 1 to 65535: correct it", port.NodePort)
		default:
			f.Ports = append(f.Ports, Port{
				Field: field, Name: port.Name, Protocol: protocol, Port: uint16(port.Port), NodePort: uint16(port.NodePort),
			})
		}
	}
	return f
}

// affinityOf reads the timeout of session affinity. An invalid timeout becomes the API's default.
func affinityOf(s *corev1.Service) time.Duration {
	if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil &&
		*c.ClientIP.TimeoutSeconds > 0 {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return min(time.Duration(seconds)*time.Second, MaxAffinity)
}

// MaxAffinity is the longest time for which a switch remembers a client without new connections. OpenFlow's
// idle_timeout has 16 bits, so it is 18 hours and 12 minutes. The API allows 24 hours.
const MaxAffinity = 65535 * time.Second

func known(p corev1.Protocol) bool {
	return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP || p == corev1.ProtocolSCTP
}

// vips returns the ClusterIPs of a Service. If the Service's kind has no ClusterIP, it returns nil.
func vips(s *corev1.Service, report func(field string, reason reasons.Reason, format string,
	args ...any)) []netip.Addr {
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
		if err != nil {
			report(field, reasonInvalidClusterIP, "%q is not an IP address: recreate the Service to get another", text)
			continue
		}
		if reason := unusable(ip); reason != "" {
			report(field, reasonInvalidClusterIP, "%s is %s: recreate the Service to get another", ip, reason)
			continue
		}
		out = append(out, ip)
	}
	return out
}

// SliceFactsOf parses an EndpointSlice. If an endpoint has several addresses, only the first has a meaning in the API.
func SliceFactsOf(s *discoveryv1.EndpointSlice) SliceFacts {
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" || IsOthers(s) ||
		s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 {
		return SliceFacts{}
	}
	f := SliceFacts{Service: derive.Object{Namespace: s.Namespace, Name: name}}
	// annotations of other slices are ignored
	if s.Labels[discoveryv1.LabelManagedBy] == multicluster.EndpointSliceManager {
		f.weigh(s)
		f.Cluster = s.Labels[mcsv1beta1.LabelSourceCluster]
	}
	for _, port := range s.Ports {
		if port.Port == nil || *port.Port < 1 || *port.Port > 65535 {
			continue // "all ports" has no meaning behind a ClusterIP
		}
		if port.Protocol != nil && !known(*port.Protocol) {
			continue
		}
		p := SlicePort{Protocol: corev1.ProtocolTCP, Port: uint16(*port.Port)}
		if port.Name != nil {
			p.Name = *port.Name
		}
		if port.Protocol != nil {
			p.Protocol = *port.Protocol
		}
		f.Ports = append(f.Ports, p)
	}
	f.Endpoints = slices.Grow(f.Endpoints, len(s.Endpoints))
	for i, e := range s.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		ip, why := endpointAddress(s.AddressType, e.Addresses[0])
		if why != "" {
			f.Problems = append(f.Problems, problem.Problem{
				Object: problem.Object{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name},
				Field:  fmt.Sprintf("endpoints[%d].addresses[0]", i), Reason: reasonInvalidAddress,
				Message: why + ", the endpoint is left out: correct it",
			})
			continue
		}
		facts := EndpointFacts{Addr: ip, Ready: isReady(e.Conditions), Draining: isDraining(e.Conditions),
			Hints: hintsOf(e.Hints)}
		if e.NodeName != nil {
			facts.Node = unique.Make(*e.NodeName).Value() // many endpoints are on one Node
		}
		f.Endpoints = append(f.Endpoints, facts)
	}
	return f
}

// weigh reads how many endpoints each one of an imported Service stands for.
func (f *SliceFacts) weigh(s *discoveryv1.EndpointSlice) {
	n, err := requests.ReadReady(s.Annotations[multicluster.AnnotationReady])
	if err != nil {
		f.Problems = append(f.Problems, problem.Problem{
			Object: problem.Object{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name},
			Field:  "metadata.annotations[" + multicluster.AnnotationReady + "]",
			Reason: reasonInvalidWeight, Message: err.Error() + "; its endpoints count as one each",
		})
	}
	f.Weight = uint16(n)
}

// endpointAddress parses an address of a slice, or returns why it cannot be used.
func endpointAddress(family discoveryv1.AddressType, text string) (ip netip.Addr, why string) {
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return ip, fmt.Sprintf("%q is not an %s address", text, family)
	}
	if reason := unusable(ip); reason != "" {
		return ip, fmt.Sprintf("%s is %s", ip, reason)
	}
	return ip, ""
}

// isReady returns the ready condition. If it is missing, it counts as true (discovery/v1).
func isReady(c discoveryv1.EndpointConditions) bool { return c.Ready == nil || *c.Ready }

// isDraining reports whether an endpoint terminates but still answers (KEP-1669). A missing serving condition has the
// value of ready.
func isDraining(c discoveryv1.EndpointConditions) bool {
	serving := isReady(c)
	if c.Serving != nil {
		serving = *c.Serving
	}
	return serving && c.Terminating != nil && *c.Terminating
}

// unusable returns why no packet can be sent to an address, or "".
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
	case family.SwitchRange6.Contains(ip.WithZone("")):
		return "an address that the switch uses itself"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	}
	return ""
}
