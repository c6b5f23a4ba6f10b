package policytest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Walk changes a Cluster at random. It uses few names, labels and addresses, so that objects often have the same ones.
type Walk struct {
	*rand.Rand
	Cluster
	// Addresses are the addresses that Pods of a Node may have, by its name.
	Addresses map[string][]netip.Addr
	// Watch receives each change; nil objects are gone.
	Watch Watch
	// Faithful keeps the Cluster consistent: each Pod of Cluster.AskedNode is attached with the addresses in its status,
	// and no Node reports addresses of other Nodes. Without it, interfaces may outlive their Pods or come before the
	// status, and Nodes may report any addresses.
	Faithful bool

	made int64 // Pods
}

// Watch is called with what has changed.
type Watch struct {
	Pod       func(namespace, name string, p *corev1.Pod)
	Namespace func(name string, n *corev1.Namespace)
	Policy    func(namespace, name string, p *networkingv1.NetworkPolicy)
	// Attached receives interfaces of Cluster.AskedNode; one without addresses is gone.
	Attached func(port string, a Attached)
	// Node receives the Nodes that there are from the beginning, where Other is nil.
	Node func(name string, n *corev1.Node)
	// Other is called with each changed object of all other kinds. If it is nil, the cluster has no such objects. A nil
	// object of a type means a deletion.
	Other func(namespace, name string, o any)
}

// TwoRanges lists addresses of Pods of two Nodes, whose podCIDRs are 10.10.0.0/29 and 10.10.0.8/29.
func TwoRanges() (here, far []netip.Addr) {
	for i := range 5 {
		here = append(here, netip.AddrFrom4([4]byte{10, 10, 0, byte(2 + i)}))
		far = append(far, netip.AddrFrom4([4]byte{10, 10, 0, byte(10 + i)}))
	}
	return here, far
}

// TwoRanges6 are addresses of the same Nodes in IPv6, whose podCIDRs are fd10::/125 and fd10::8/125.
func TwoRanges6() (here, far []netip.Addr) {
	for i := range 5 {
		here = append(here, netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x10, 15: byte(2 + i)}))
		far = append(far, netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x10, 15: byte(10 + i)}))
	}
	return here, far
}

// Like returns the addresses of a list that have the version of IP of another address.
func Like(a netip.Addr, list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(b netip.Addr) bool { return a.Is4() != b.Is4() })
}

// NewWalk returns a Walk through a Cluster that at first has only Nodes with these addresses. AskedNode is node-1.
func NewWalk(seed uint64, addresses map[string][]netip.Addr, w Watch) *Walk {
	g := &Walk{
		Rand: rand.New(rand.NewPCG(seed, 0)), Addresses: addresses, Watch: w,
		Cluster: Cluster{
			Pods: map[string]*corev1.Pod{}, Namespaces: map[string]*corev1.Namespace{},
			Policies:  map[string]*networkingv1.NetworkPolicy{},
			AskedNode: "node-1", Attached: map[string]Attached{}, Others: newOthers(),
		},
	}
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, version := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			if list := Like(version, addresses[name]); len(list) > 0 {
				n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, around(list).String())
			}
		}
		g.Nodes[name] = n
		switch {
		case w.Other != nil:
			w.Other("", name, n)
		case w.Node != nil:
			w.Node(name, n)
		}
	}
	return g
}

// around is the smallest range that has some addresses.
func around(list []netip.Addr) netip.Prefix {
	p := netip.PrefixFrom(list[0], list[0].BitLen())
	for _, a := range list {
		for !p.Contains(a) {
			p = netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()
		}
	}
	return p
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
			s.MatchExpressions = append(s.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key,
					Operator: Pick(g, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)})
		case 1:
			s.MatchExpressions = append(s.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: Pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn),
					Values: []string{Pick(g, "a", "b", ""), Pick(g, "b", "c")}})
		default:
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[key] = Pick(g, "a", "b")
		}
	}
	return s
}

// PortNames are the names that Pods of a Walk give ports.
var PortNames = []string{"web", "dns", "metrics"}

func (g *Walk) pod(namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: g.labels()}}
	p.Spec.NodeName = Pick(g, slices.Sorted(maps.Keys(g.Addresses))...)
	p.Spec.HostNetwork = g.IntN(12) == 0
	p.Status.Phase = Pick(g, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded,
		corev1.PodFailed)
	p.Spec.Containers = []corev1.Container{g.container(2)}
	if g.IntN(4) == 0 {
		p.Spec.Containers = append(p.Spec.Containers, g.container(4))
	}
	if g.IntN(3) == 0 {
		p.Spec.InitContainers = []corev1.Container{g.container(2), g.container(2)}
		policy := Pick(g, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyOnFailure)
		p.Spec.InitContainers[g.IntN(2)].RestartPolicy = &policy
	}
	if g.Watch.Other != nil {
		p.Spec.ServiceAccountName = Pick(g, "default", "builder", "deployer")
	}
	return p
}

// container gives one in so many names of ports.
func (g *Walk) container(in int) (c corev1.Container) {
	for _, name := range PortNames {
		if g.IntN(in) == 0 {
			c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, Protocol: Pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP),
				ContainerPort: int32(Pick(g, 53, 80, 81))})
		}
	}
	return c
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
			p.IPBlock = &networkingv1.IPBlock{CIDR: Pick(g, "10.10.0.0/28", "10.10.0.0/16", "0.0.0.0/0", "198.51.100.0/24",
				"fd10::/124", "fd00::/8", "::/0", "2001:db8::/64")}
			if g.IntN(2) == 0 {
				p.IPBlock.Except = []string{Pick(g, "10.10.0.0/30", "10.10.0.4/31", "198.51.100.7/32", "fd10::/126", "fd10::4/127",
					"2001:db8::7/128")}
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
			p.Port = new(intstr.FromString(Pick(g, PortNames...)))
		case 2:
			p.Port, p.EndPort = new(intstr.FromInt32(Pick[int32](g, 53, 80))), new(Pick[int32](g, 80, 81, 90))
		default:
			p.Port = new(intstr.FromInt32(Pick[int32](g, 53, 80, 81)))
		}
		out = append(out, p)
	}
	return out
}

// Step changes one object, and returns its description.
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
		if before := g.Pods[key]; before != nil && g.IntN(2) == 0 { // the same
			p.UID, p.CreationTimestamp = before.UID, before.CreationTimestamp
			p.Spec.NodeName, p.Spec.HostNetwork = before.Spec.NodeName, before.Spec.HostNetwork
		} else {
			g.made++
			p.UID, p.CreationTimestamp = types.UID(fmt.Sprint("uid-", g.made)), metav1.Unix(1700000000+g.made/2, 0)
		}
		if !g.Faithful && g.IntN(12) == 0 {
			p.Spec.NodeName = "" // not scheduled yet, or a Node that is gone
		}
		for range g.IntN(3) {
			a := Pick(g, g.Addresses[cmp.Or(p.Spec.NodeName, g.AskedNode)]...)
			holder := g.At(a)
			free := holder == nil || holder.Name == name && holder.Namespace == namespace
			if !g.Faithful && g.IntN(4) == 0 { // an address of another Pod of the Node, or of another Node
				node := Pick(g, slices.Sorted(maps.Keys(g.Addresses))...)
				a, free = Pick(g, g.Addresses[node]...), true
			}
			if free {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
			}
		}
		g.Pods[key] = p
		g.Watch.Pod(namespace, name, p)
		g.attach(key, p)
		return "Pod " + key
	case 3:
		delete(g.Pods, key)
		g.Watch.Pod(namespace, name, nil)
		g.attach(key, nil)
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

// attach changes the interfaces of Pods of this name on the Node that is asked.
func (g *Walk) attach(key string, p *corev1.Pod) {
	set := func(port string, a Attached) {
		if g.Attached[port] = a; len(a.IPs) == 0 {
			delete(g.Attached, port)
		}
		if g.Watch.Attached != nil {
			g.Watch.Attached(port, a)
		}
	}
	here := p != nil && counts(p) && p.Spec.NodeName == g.AskedNode
	prefix := strings.ReplaceAll(key, "/", "-")
	if g.Faithful {
		at := Attached{Pod: key}
		if here {
			at.UID = p.UID
			for _, ip := range p.Status.PodIPs {
				at.IPs = append(at.IPs, netip.MustParseAddr(ip.IP))
			}
		}
		set(prefix, at)
		return
	}
	taken := map[netip.Addr]bool{}
	for _, port := range slices.Sorted(maps.Keys(g.Attached)) {
		switch a := g.Attached[port]; {
		case a.Pod == key && g.IntN(3) == 0, g.IntN(12) == 0:
			set(port, Attached{})
		default:
			taken[a.IPs[0]] = true
		}
	}
	if !here {
		return
	}
	list := []netip.Addr{Pick(g, g.Addresses[g.AskedNode]...)} // before the status has the address
	for _, ip := range p.Status.PodIPs {
		list = append(list, netip.MustParseAddr(ip.IP))
	}
	for i, a := range list {
		if !taken[a] && (i > 0 || g.IntN(4) == 0) && slices.Contains(g.Addresses[g.AskedNode], a) && g.IntN(8) > 0 {
			taken[a] = true
			set(fmt.Sprint(prefix, "-", a), Attached{Pod: key, UID: Pick(g, p.UID, p.UID, ""), IPs: []netip.Addr{a}})
		}
	}
}

// Here are the Pods of a Node that have an address, and whose Namespace is known.
func (g *Walk) Here(node string) []*corev1.Pod {
	var here []*corev1.Pod
	for _, key := range slices.Sorted(maps.Keys(g.Pods)) {
		p := g.Pods[key]
		if p.Spec.NodeName == node && len(g.Own(p)) > 0 && g.Namespaces[p.Namespace] != nil {
			here = append(here, p)
		}
	}
	return here
}
