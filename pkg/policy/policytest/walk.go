package policytest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Walk changes a Cluster at random, with few names, labels and addresses, so that they meet.
type Walk struct {
	*rand.Rand
	Cluster
	// Addresses are those that Pods of a Node may have, by its name.
	Addresses map[string][]netip.Addr
	// Watch hears of each change; nil objects are gone.
	Watch Watch
}

// Watch is called with what has changed.
type Watch struct {
	Pod       func(namespace, name string, p *corev1.Pod)
	Namespace func(name string, n *corev1.Namespace)
	Policy    func(namespace, name string, p *networkingv1.NetworkPolicy)
	// Other hears of every other kind; without it there are none of them. A nil object of its type is gone.
	Other func(namespace, name string, o any)
}

// NewWalk returns a Walk through a Cluster that is empty.
func NewWalk(seed uint64, addresses map[string][]netip.Addr, w Watch) *Walk {
	return &Walk{
		Rand: rand.New(rand.NewPCG(seed, 0)), Addresses: addresses, Watch: w,
		Cluster: Cluster{
			Pods: map[string]*corev1.Pod{}, Namespaces: map[string]*corev1.Namespace{}, Policies: map[string]*networkingv1.NetworkPolicy{},
			Others: newOthers(),
		},
	}
}

// Pick returns one of some.
func Pick[T any](g *Walk, of ...T) T { return of[g.IntN(len(of))] }

func (g *Walk) labels() map[string]string {
	out := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if g.IntN(3) > 0 {
			out[key] = Pick(g, "a", "b", "c", "")
		}
	}
	return out
}

func (g *Walk) selector() metav1.LabelSelector {
	var s metav1.LabelSelector
	for range g.IntN(3) {
		key := Pick(g, "app", "tier", "other")
		switch g.IntN(5) {
		case 0:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: Pick(g, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)})
		case 1:
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: Pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{Pick(g, "a", "b", ""), Pick(g, "b", "c")}})
		default:
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[key] = Pick(g, "a", "b")
		}
	}
	return s
}

var names = []string{"web", "dns", "metrics"}

func (g *Walk) pod(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: g.labels()}}
	p.Spec.NodeName = Pick(g, slices.Sorted(maps.Keys(g.Addresses))...)
	p.Spec.HostNetwork = g.IntN(12) == 0
	p.Status.Phase = Pick(g, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed)
	var c corev1.Container
	for _, name := range names {
		if g.IntN(2) == 0 {
			c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, Protocol: Pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP), ContainerPort: int32(Pick(g, 53, 80, 81))})
		}
	}
	p.Spec.Containers = []corev1.Container{c}
	if g.Watch.Other != nil {
		p.Spec.ServiceAccountName = Pick(g, "default", "builder", "deployer")
	}
	return p
}

func (g *Walk) policy(namespace, name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.PodSelector = g.selector()
	for _, t := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
		if g.IntN(3) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, t)
		}
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	}
	for range g.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: g.peers(), Ports: g.ports()})
	}
	for range g.IntN(3) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: g.peers(), Ports: g.ports()})
	}
	return p
}

func (g *Walk) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range g.IntN(3) {
		var p networkingv1.NetworkPolicyPeer
		switch g.IntN(4) {
		case 0:
			p.IPBlock = &networkingv1.IPBlock{CIDR: Pick(g, "10.10.0.0/28", "10.10.0.0/16", "0.0.0.0/0", "198.51.100.0/24", "fd00::/64")}
			if g.IntN(2) == 0 {
				p.IPBlock.Except = []string{Pick(g, "10.10.0.0/30", "10.10.0.4/31", "198.51.100.7/32")}
			}
		case 1:
			p.PodSelector = new(g.selector())
		case 2:
			p.NamespaceSelector = new(g.selector())
		default:
			p.NamespaceSelector, p.PodSelector = new(g.selector()), new(g.selector())
		}
		out = append(out, p)
	}
	return out
}

func (g *Walk) ports() (out []networkingv1.NetworkPolicyPort) {
	for range g.IntN(3) {
		var p networkingv1.NetworkPolicyPort
		if g.IntN(3) > 0 {
			p.Protocol = new(Pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP))
		}
		switch g.IntN(4) {
		case 0:
		case 1:
			p.Port = new(intstr.FromString(Pick(g, names...)))
		case 2:
			p.Port, p.EndPort = new(intstr.FromInt32(Pick[int32](g, 53, 80))), new(Pick[int32](g, 80, 81, 90))
		default:
			p.Port = new(intstr.FromInt32(Pick[int32](g, 53, 80, 81)))
		}
		out = append(out, p)
	}
	return out
}

// Step changes one object, and says which.
func (g *Walk) Step() string {
	namespace := Pick(g, "x", "y", "z")
	name := fmt.Sprint("o", g.IntN(6))
	key := namespace + "/" + name
	if g.Watch.Other != nil && g.IntN(2) == 0 {
		return g.other(namespace)
	}
	switch g.IntN(8) {
	case 0, 1, 2:
		p := g.pod(namespace, name)
		for range g.IntN(3) {
			a := Pick(g, g.Addresses[p.Spec.NodeName]...)
			if holder := g.At(a); holder == nil || holder.Name == name && holder.Namespace == namespace {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
			}
		}
		g.Pods[key] = p
		g.Watch.Pod(namespace, name, p)
		return "Pod " + key
	case 3:
		delete(g.Pods, key)
		g.Watch.Pod(namespace, name, nil)
		return "no Pod " + key
	case 4:
		if g.IntN(4) == 0 {
			delete(g.Namespaces, namespace)
			g.Watch.Namespace(namespace, nil)
			return "no Namespace " + namespace
		}
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: g.labels()}}
		g.Namespaces[namespace] = n
		g.Watch.Namespace(namespace, n)
		return "Namespace " + namespace
	case 5:
		delete(g.Policies, key)
		g.Watch.Policy(namespace, name, nil)
		return "no policy " + key
	default:
		p := g.policy(namespace, name)
		g.Policies[key] = p
		g.Watch.Policy(namespace, name, p)
		return "policy " + key
	}
}

// Here are the Pods of a Node that have an address, and whose Namespace is known.
func (g *Walk) Here(node string) []*corev1.Pod {
	var here []*corev1.Pod
	for _, key := range slices.Sorted(maps.Keys(g.Pods)) {
		p := g.Pods[key]
		if p.Spec.NodeName == node && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning && len(p.Status.PodIPs) > 0 && g.Namespaces[p.Namespace] != nil {
			here = append(here, p)
		}
	}
	return here
}
