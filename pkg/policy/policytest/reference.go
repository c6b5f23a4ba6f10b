// Package policytest is what tests hold policies against: an evaluator of all kinds of policies that is written from
// their specifications alone, and clusters that change at random.
package policytest

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Cluster is what an API server has, objects by "namespace/name".
type Cluster struct {
	Pods       map[string]*corev1.Pod
	Namespaces map[string]*corev1.Namespace
	Policies   map[string]*networkingv1.NetworkPolicy
	Others
}

// Connection is the first packet of a connection, after a Service's endpoint was chosen.
type Connection struct {
	From, To netip.Addr
	Protocol corev1.Protocol
	Port     uint16 // the destination's; of ICMP 256 times the type, plus the code; of IGMP the type, or Untold
	// SourcePort is the client's.
	SourcePort uint16
	// Service is what the connection was made to, if anything but its endpoint.
	Service derive.Object
	// ClusterSet is the number in the tunnel's key, of a connection from another cluster.
	ClusterSet uint32
}

// Untold is the type of IGMP where types cannot be told apart, as in a switch: a rule about one denies all of them,
// and allows none.
const Untold uint16 = 0xffff

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

// At is the Pod that has an address, nil for none.
func (c Cluster) At(a netip.Addr) *corev1.Pod {
	for _, p := range c.Pods {
		for _, ip := range p.Status.PodIPs {
			if ip.IP == a.String() && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning {
				return p
			}
		}
	}
	return nil
}

func has(types []networkingv1.PolicyType, t networkingv1.PolicyType) bool {
	return slices.Contains(types, t)
}

// Allows says whether a connection may enter a Pod or, with egress, leave it.
func (c Cluster) Allows(pod *corev1.Pod, egress bool, conn Connection) bool {
	return c.Judge(pod, egress, conn) == allow
}

// networkPolicies says whether NetworkPolicies isolate a Pod, and whether they allow a connection.
func (c Cluster) networkPolicies(pod *corev1.Pod, egress bool, conn Connection) (allowed, isolated bool) {
	for _, p := range c.Policies {
		if p.Namespace != pod.Namespace || !selects(p.Spec.PodSelector, pod.Labels) {
			continue
		}
		if !egress && has(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			isolated = true
			for _, r := range p.Spec.Ingress {
				if c.peers(p.Namespace, r.From, conn.From) && c.ports(r.Ports, conn) {
					return true, true
				}
			}
		}
		if egress && has(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			isolated = true
			for _, r := range p.Spec.Egress {
				if c.peers(p.Namespace, r.To, conn.To) && c.ports(r.Ports, conn) {
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
				for _, port := range pod.Spec.Containers[0].Ports {
					if port.Name == p.Port.StrVal && port.Protocol == protocol && port.ContainerPort == int32(conn.Port) {
						return true
					}
				}
			}
		}
	}
	return false
}
