// Package policytest is a reference for tests of policies: an evaluator of all kinds of policies that is written only
// from their specifications, and clusters that change at random.
package policytest

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Cluster is what an API server has, objects by "namespace/name".
type Cluster struct {
	Pods       map[string]*corev1.Pod
	Namespaces map[string]*corev1.Namespace
	Policies   map[string]*networkingv1.NetworkPolicy
	// AskedNode is the name of the Node whose decisions are computed. Attached are the interfaces on its switch by port.
	AskedNode string
	Attached  map[string]Attached
	Others
	// Limits are the bounds of policies. The zero value has no bounds.
	Limits Limits
}

// Connection is the first packet of a connection, after a Service's endpoint was chosen.
type Connection struct {
	From, To netip.Addr
	// Networks are VirtualNetworks. This package makes no connection in one.
	Networks [2]derive.Object
	Protocol corev1.Protocol
	Port     uint16 // the destination's; of ICMP 256 times the type, plus the code; of IGMP the type, or UnknownType
	// SourcePort is the client's.
	SourcePort uint16
	// Service is what the connection was made to, if anything but its endpoint.
	Service derive.Object
	// Asked is the Service address to which the connection was made. For connections to other destinations it is not
	// valid.
	Asked netip.Addr
	// ClusterSet is the number in the tunnel's key, of a connection from another cluster.
	ClusterSet uint32
}

// UnknownType is the type of IGMP messages on a switch that cannot distinguish types. There a rule about one type
// denies all of them, and allows no packet.
const UnknownType uint16 = 0xffff

// selects is metav1.LabelSelector: all requirements hold.
func selects(s metav1.LabelSelector, set map[string]string) bool {
	for k, v := range s.MatchLabels {
		if have, ok := set[k]; !ok || have != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := set[e.Key]
		var ok bool
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			ok = has && slices.Contains(e.Values, value)
		case metav1.LabelSelectorOpNotIn:
			ok = !has || !slices.Contains(e.Values, value)
		case metav1.LabelSelectorOpExists:
			ok = has
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return true
}

// Attached is an interface on the switch of Cluster.AskedNode.
type Attached struct {
	Pod string    // "namespace/name"
	UID types.UID // "" if no UID was recorded
	IPs []netip.Addr
}

// At returns the known Pod that has an address, or nil. On the Node AskedNode the interface with the address decides.
// Elsewhere it is a Pod of the Node whose podCIDR contains the address.
func (c Cluster) At(a netip.Addr) *corev1.Pod {
	for _, port := range slices.Sorted(maps.Keys(c.Attached)) {
		if slices.Contains(c.Attached[port].IPs, a) {
			return c.Of(c.Attached[port])
		}
	}
	node := c.nodeOf(a)
	if node == c.AskedNode {
		return nil
	}
	var at *corev1.Pod
	for _, p := range c.Pods {
		if p.Spec.NodeName != node || !counts(p) || !claims(p, a) {
			continue
		}
		if at == nil || at.CreationTimestamp.Before(&p.CreationTimestamp) ||
			at.CreationTimestamp.Equal(&p.CreationTimestamp) && p.UID < at.UID {
			at = p
		}
	}
	return at
}

// Of returns the known Pod of an interface, or nil.
func (c Cluster) Of(at Attached) *corev1.Pod {
	p := c.Pods[at.Pod]
	switch {
	case p == nil || !counts(p) || p.Spec.NodeName != c.AskedNode:
		return nil
	case at.UID != "" && at.UID != p.UID:
		return nil
	case at.UID == "" && !slices.ContainsFunc(at.IPs, func(a netip.Addr) bool { return claims(p, a) }):
		return nil
	}
	return p
}

// Own are the addresses that a Pod has, sorted.
func (c Cluster) Own(p *corev1.Pod) (out []netip.Addr) {
	try := func(a netip.Addr) {
		if c.At(a) == p && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, at := range c.Attached {
		for _, a := range at.IPs {
			try(a)
		}
	}
	for _, ip := range p.Status.PodIPs {
		try(netip.MustParseAddr(ip.IP))
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// counts reports whether a Pod has a network of its own, and has not ended.
func counts(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func claims(p *corev1.Pod, a netip.Addr) bool {
	return slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == a.String() })
}

// nodeOf returns the Node whose podCIDR contains an address. The longest podCIDR has precedence, then AskedNode, then
// the first Node.
func (c Cluster) nodeOf(a netip.Addr) (node string) {
	longest := -1
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		for _, text := range c.Nodes[name].Spec.PodCIDRs {
			r := netip.MustParsePrefix(text)
			if r.Contains(a) && (r.Bits() > longest || r.Bits() == longest && name == c.AskedNode) {
				node, longest = name, r.Bits()
			}
		}
	}
	return node
}

// Called returns the number of a Pod's port by its name. Containers come first, then init containers that run together
// with them.
func Called(p *corev1.Pod, name string, protocol corev1.Protocol) (int32, bool) {
	sidecars := slices.DeleteFunc(slices.Clone(p.Spec.InitContainers), func(c corev1.Container) bool {
		return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})
	for _, c := range append(slices.Clone(p.Spec.Containers), sidecars...) {
		for _, port := range c.Ports {
			if port.Name == name && port.Protocol == protocol {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}

// inPodCIDR reports whether an address is in a podCIDR, and whether it is an address of the Node itself there.
func (c Cluster) inPodCIDR(a netip.Addr) (inside, node bool) {
	for _, n := range c.Nodes {
		for _, text := range n.Spec.PodCIDRs {
			if r := netip.MustParsePrefix(text); r.Contains(a) {
				inside, node = true, node || r.Masked().Addr().Next() == a
			}
		}
	}
	return inside, node
}

// UnknownPod reports whether an address belongs to an unknown Pod.
func (c Cluster) UnknownPod(a netip.Addr) bool {
	inside, node := c.inPodCIDR(a)
	pod := c.At(a)
	return inside && !node && (pod == nil || c.Namespaces[pod.Namespace] == nil)
}

func has(types []networkingv1.PolicyType, t networkingv1.PolicyType) bool {
	return slices.Contains(types, t)
}

// Allows reports whether a connection may enter a Pod or, with egress, leave it.
func (c Cluster) Allows(pod *corev1.Pod, egress bool, conn Connection) bool {
	return c.Judge(pod, egress, conn) == allow
}

// networkPolicies reports whether NetworkPolicies isolate a Pod, and whether they allow a connection.
func (c Cluster) networkPolicies(pod *corev1.Pod, egress bool, conn Connection, beyond map[ruleOf]bool) (
	allowed, isolated bool,
) {
	over := func(p *networkingv1.NetworkPolicy, index int) bool {
		_, over := beyond[ruleOf{kindNetworkPolicy, p.Namespace, p.Name, egress, index}]
		return over
	}
	for _, p := range c.Policies {
		if p.Namespace != pod.Namespace || !selects(p.Spec.PodSelector, pod.Labels) {
			continue
		}
		if !egress && has(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			isolated = true
			for i, r := range p.Spec.Ingress {
				if !over(p, i) && c.peers(p.Namespace, r.From, conn.From) && c.ports(r.Ports, conn) {
					return true, true
				}
			}
		}
		if egress && has(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			isolated = true
			for i, r := range p.Spec.Egress {
				if !over(p, i) && c.peers(p.Namespace, r.To, conn.To) && c.ports(r.Ports, conn) {
					return true, true
				}
			}
		}
	}
	return false, isolated
}

// peers: an empty list matches all.
func (c Cluster) peers(namespace string, list []networkingv1.NetworkPolicyPeer, a netip.Addr) bool {
	if len(list) == 0 {
		return true
	}
	pod := c.At(a)
	for _, p := range list {
		if p.IPBlock != nil {
			inside := func(text string) bool { return netip.MustParsePrefix(text).Contains(a) }
			if inside(p.IPBlock.CIDR) && !slices.ContainsFunc(p.IPBlock.Except, inside) {
				return true
			}
			continue
		}
		if pod == nil || c.Namespaces[pod.Namespace] == nil {
			continue
		}
		if p.NamespaceSelector == nil && pod.Namespace != namespace {
			continue
		}
		if p.NamespaceSelector != nil && !selects(*p.NamespaceSelector, c.Namespaces[pod.Namespace].Labels) {
			continue
		}
		if p.PodSelector == nil || selects(*p.PodSelector, pod.Labels) {
			return true
		}
	}
	return false
}

// ports: an empty list matches all; a name is the destination Pod's own.
func (c Cluster) ports(list []networkingv1.NetworkPolicyPort, conn Connection) bool {
	if len(list) == 0 {
		return true
	}
	for _, p := range list {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if protocol != conn.Protocol {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.Int && p.EndPort != nil:
			if int32(conn.Port) >= p.Port.IntVal && int32(conn.Port) <= *p.EndPort {
				return true
			}
		case p.Port.Type == intstr.Int:
			if int32(conn.Port) == p.Port.IntVal {
				return true
			}
		default:
			if pod := c.At(conn.To); pod != nil {
				if n, ok := Called(pod, p.Port.StrVal, protocol); ok && n == int32(conn.Port) {
					return true
				}
			}
		}
	}
	return false
}
