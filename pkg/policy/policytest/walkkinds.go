package policytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

func newOthers() Others {
	return Others{
		Nodes: map[string]*corev1.Node{}, Services: map[string]*corev1.Service{},
		Antrea: map[string]*crdv1beta1.NetworkPolicy{}, AntreaCluster: map[string]*crdv1beta1.ClusterNetworkPolicy{},
		Tiers: map[string]*crdv1beta1.Tier{}, Groups: map[string]*crdv1beta1.Group{},
		ClusterGroups: map[string]*crdv1beta1.ClusterGroup{},
		Cluster:       map[string]*npv1alpha2.ClusterNetworkPolicy{}, LabelIdentities: map[string]*mcv1alpha1.LabelIdentity{},
		PodAddresses: map[string]*mcv1alpha1.PodAddressImport{},
	}
}

// change has an object come, change or, one time of four, go.
func change[T any](g *Walk, m map[string]*T, namespace, name string, o *T) string {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	if g.IntN(4) == 0 {
		o = nil
		delete(m, key)
	} else {
		m[key] = o
	}
	g.Watch.Other(namespace, name, o)
	return fmt.Sprintf("%T %s, %v", o, key, o != nil)
}

// other changes an object of another kind.
func (g *Walk) other(namespace string) string {
	name := fmt.Sprint("o", g.IntN(3))
	meta := metav1.ObjectMeta{Name: name}
	spaced := metav1.ObjectMeta{Namespace: namespace, Name: name}
	switch g.IntN(14) {
	case 0, 1, 2:
		return change(g, g.AntreaCluster, "", name, &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: meta, Spec: g.antrea("")})
	case 3, 4:
		return change(g, g.Antrea, namespace, name, &crdv1beta1.NetworkPolicy{ObjectMeta: spaced, Spec: g.antrea(namespace)})
	case 5, 6:
		return change(g, g.Others.Cluster, "", name, g.clusterPolicy(name))
	case 7:
		return change(g, g.Tiers, "", "custom",
			&crdv1beta1.Tier{ObjectMeta: metav1.ObjectMeta{Name: "custom"},
				Spec: crdv1beta1.TierSpec{Priority: Pick[int32](g, 0, 10, 220, 252)}})
	case 8:
		return change(g, g.ClusterGroups, "", name, &crdv1beta1.ClusterGroup{ObjectMeta: meta, Spec: g.group("")})
	case 9:
		return change(g, g.Groups, namespace, name, &crdv1beta1.Group{ObjectMeta: spaced, Spec: g.group(namespace)})
	case 10:
		if g.IntN(2) == 0 {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: g.labels()}}
			n.Spec.PodCIDRs = []string{Pick(g, "10.10.0.0/30", "10.10.0.8/30", "fd10::/126", "fd10::8/126")}
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
				Address: Pick(g, "198.51.100.7", "203.0.113.1", "2001:db8::7", "2001:db8:1::1")}}
			return change(g, g.Nodes, "", name, n)
		}
		return change(g, g.Services, namespace, "svc",
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "svc"},
				Spec: corev1.ServiceSpec{Selector: g.labels()}})
	case 11, 12: // of each block one address, and sometimes another's
		of := g.IntN(4)
		name, ip := fmt.Sprint("block", of), []string{"198.51.100.7", "198.51.100.8", "203.0.113.1", "2001:db8::7"}[of]
		block := &mcv1alpha1.PodAddressImport{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, ip := range []string{ip, Pick(g, "10.10.0.3", "10.10.0.4", "203.0.113.1", "fd10::3", "2001:db8::7")} {
			block.Spec.Pods = append(block.Spec.Pods, mcv1alpha1.PodAddresses{LabelIdentity: fmt.Sprint("label", 1+g.IntN(4)),
				Addresses: []string{ip}})
		}
		return change(g, g.PodAddresses, "", name, block)
	default:
		id := uint32(1 + g.IntN(4))
		name := fmt.Sprint("label", id)
		label := fmt.Sprintf("ns:kubernetes.io/metadata.name=%s,tier=%s&pod:app=%s", namespace, Pick(g, "a", "b"),
			Pick(g, "a", "b", "c"))
		return change(g, g.LabelIdentities, "", name, &mcv1alpha1.LabelIdentity{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: mcv1alpha1.LabelIdentitySpec{Label: label, ID: id}})
	}
}

func (g *Walk) group(namespace string) (s crdv1beta1.GroupSpec) {
	switch g.IntN(6) {
	case 0:
		s.IPBlocks = []crdv1beta1.IPBlock{{CIDR: Pick(g, "10.10.0.0/29", "198.51.100.0/24"),
			Except: []string{"10.10.0.2/31"}}}
		if g.IntN(2) == 0 {
			s.IPBlocks = append(s.IPBlocks, crdv1beta1.IPBlock{CIDR: Pick(g, "fd10::/125", "2001:db8::/64"),
				Except: []string{"fd10::2/127"}})
		}
	case 1:
		s.ServiceReference = &crdv1beta1.ObjectReference{Name: "svc", Namespace: namespace}
		if namespace == "" {
			s.ServiceReference.Namespace = Pick(g, "x", "y")
		}
	case 2, 3:
		s.ChildGroups = []string{Pick(g, "o0", "o1", "o2"), Pick(g, "o0", "o1", "o2", "o9")}
	case 4:
		s.NamespaceSelector = &metav1.LabelSelector{}
	default:
		s.PodSelector = new(g.selector())
	}
	return s
}

func (g *Walk) appliedTo(namespace string) (a crdv1beta1.AppliedTo) {
	switch g.IntN(6) {
	case 0:
		a.Group = Pick(g, "o0", "o1", "o2", "o9")
	case 1:
		a.ServiceAccount = g.account(namespace)
	case 2, 3:
		a.PodSelector = new(g.selector())
	default:
		if namespace == "" {
			a.NamespaceSelector = new(g.selector())
		}
		if namespace != "" || g.IntN(2) == 0 {
			a.PodSelector = new(g.selector())
		}
	}
	return a
}

func (g *Walk) account(namespace string) *crdv1beta1.ObjectReference {
	r := &crdv1beta1.ObjectReference{Name: Pick(g, "builder", "deployer"), Namespace: namespace}
	if namespace == "" {
		r.Namespace = Pick(g, "x", "y", "z")
	}
	return r
}

func (g *Walk) antrea(namespace string) (s crdv1beta1.PolicySpec) {
	s.Tier = Pick(g, "", "Application", "emergency", "custom", "baseline", "Baseline")
	s.Priority = Pick(g, 1, 1.5, 5, 100)
	whole := g.IntN(3) > 0
	if whole {
		for range 1 + g.IntN(2) {
			s.AppliedTo = append(s.AppliedTo, g.appliedTo(namespace))
		}
	}
	rule := func(egress bool) crdv1beta1.Rule {
		r := crdv1beta1.Rule{Action: Pick(g, crdv1beta1.ActionAllow, crdv1beta1.ActionDrop, crdv1beta1.ActionReject,
			crdv1beta1.ActionPass, crdv1beta1.ActionDeny)}
		if !whole {
			r.AppliedTo = []crdv1beta1.AppliedTo{g.appliedTo(namespace)}
		}
		if egress && g.IntN(5) == 0 {
			service := crdv1beta1.ServiceReference{Name: "svc", Namespace: namespace,
				Scope: Pick(g, "", crdv1beta1.ScopeCluster, crdv1beta1.ScopeClusterSet)}
			if namespace == "" {
				service.Namespace = Pick(g, "x", "y")
			}
			r.ToServices = []crdv1beta1.ServiceReference{service}
			return r
		}
		var peers []crdv1beta1.Peer
		for range g.IntN(3) {
			peers = append(peers, g.antreaPeer(namespace, egress))
		}
		if r.From = peers; egress {
			r.From, r.To = nil, peers
		}
		for range g.IntN(3) {
			r.Ports = append(r.Ports, g.antreaPort())
		}
		if g.IntN(4) == 0 {
			r.Protocols = append(r.Protocols, g.antreaProtocol())
		}
		return r
	}
	for range g.IntN(3) {
		s.Ingress = append(s.Ingress, rule(false))
	}
	for range g.IntN(3) {
		s.Egress = append(s.Egress, rule(true))
	}
	return s
}

func (g *Walk) antreaPeer(namespace string, egress bool) (p crdv1beta1.Peer) {
	switch g.IntN(12) {
	case 0:
		p.IPBlock = &crdv1beta1.IPBlock{CIDR: Pick(g, "10.10.0.0/28", "0.0.0.0/0", "198.51.100.0/24", "fd10::/124", "::/0"),
			Except: []string{Pick(g, "10.10.0.0/30", "198.51.100.7/32", "fd10::/126")}}
	case 1:
		p.Group = Pick(g, "o0", "o1", "o2", "o9")
	case 2:
		p.ServiceAccount = g.account(namespace)
	case 3:
		p.NodeSelector = new(g.selector())
	case 4, 6, 7:
		if namespace == "" {
			if p.Namespaces = (&crdv1beta1.PeerNamespaces{Match: crdv1beta1.MatchSelf}); g.IntN(2) == 0 {
				p.Namespaces = &crdv1beta1.PeerNamespaces{SameLabels: []string{Pick(g, "app", "tier")}}
			}
			if g.IntN(2) == 0 {
				p.PodSelector = new(g.selector())
			}
			break
		}
		p.PodSelector = new(g.selector())
	case 8, 9, 10:
		p.NamespaceSelector, p.Scope = &metav1.LabelSelector{}, crdv1beta1.ScopeClusterSet
		if g.IntN(2) == 0 {
			p.PodSelector, p.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": Pick(g, "a", "b",
				"c")}}, nil
		}
	case 5:
		if egress {
			p.FQDN = "*.example.com"
			break
		}
		fallthrough
	default:
		switch g.IntN(3) {
		case 0:
			p.PodSelector = new(g.selector())
		case 1:
			p.NamespaceSelector = new(g.selector())
		default:
			p.PodSelector, p.NamespaceSelector = new(g.selector()), new(g.selector())
		}
		p.Scope = Pick(g, "", crdv1beta1.ScopeCluster, crdv1beta1.ScopeClusterSet)
	}
	return p
}

func (g *Walk) antreaPort() (p crdv1beta1.Port) {
	if g.IntN(3) > 0 {
		p.Protocol = new(Pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP))
	}
	switch g.IntN(4) {
	case 0:
	case 1:
		p.Port = new(intstr.FromString(Pick(g, PortNames...)))
		return p
	case 2:
		p.Port, p.EndPort = new(intstr.FromInt32(Pick[int32](g, 53, 80))), new(Pick[int32](g, 80, 81, 90))
	default:
		p.Port = new(intstr.FromInt32(Pick[int32](g, 53, 80, 81)))
	}
	if g.IntN(3) == 0 {
		p.SourcePort = new(Pick[int32](g, 1024, 2000))
		if g.IntN(2) == 0 {
			p.SourceEndPort = new(int32(3000))
		}
	}
	return p
}

func (g *Walk) antreaProtocol() crdv1beta1.Protocol {
	if g.IntN(3) == 0 {
		return crdv1beta1.Protocol{IGMP: &crdv1beta1.IGMP{IGMPType: new(Pick[int32](g, 17, 34))}}
	}
	p := crdv1beta1.Protocol{ICMP: &crdv1beta1.ICMP{}}
	if g.IntN(2) == 0 {
		p.ICMP.ICMPType = new(Pick[int32](g, 0, 8, 128))
		if g.IntN(2) == 0 {
			p.ICMP.ICMPCode = new(Pick[int32](g, 0, 1))
		}
	}
	return p
}

func (g *Walk) clusterPolicy(name string) *npv1alpha2.ClusterNetworkPolicy {
	p := &npv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Tier, p.Spec.Priority = Pick(g, npv1alpha2.AdminTier, npv1alpha2.BaselineTier), Pick[int32](g, 0, 5, 1000)
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = g.clusterPods()
	action := func() npv1alpha2.ClusterNetworkPolicyRuleAction {
		return Pick(g, npv1alpha2.ClusterNetworkPolicyRuleActionAccept, npv1alpha2.ClusterNetworkPolicyRuleActionDeny,
			npv1alpha2.ClusterNetworkPolicyRuleActionPass)
	}
	for range g.IntN(3) {
		r := npv1alpha2.ClusterNetworkPolicyIngressRule{Action: action(), Protocols: g.clusterProtocols(true)}
		for range 1 + g.IntN(2) {
			var peer npv1alpha2.ClusterNetworkPolicyIngressPeer
			peer.Namespaces, peer.Pods = g.clusterPods()
			r.From = append(r.From, peer)
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
	}
	for range g.IntN(3) {
		r := npv1alpha2.ClusterNetworkPolicyEgressRule{Action: action()}
		named := true
		for range 1 + g.IntN(2) {
			var peer npv1alpha2.ClusterNetworkPolicyEgressPeer
			switch g.IntN(4) {
			case 0:
				peer.Nodes, named = new(g.selector()), false
			case 1:
				network := Pick[npv1alpha2.CIDR](g, "10.10.0.0/29", "0.0.0.0/0", "fd10::/125", "::/0")
				peer.Networks, named = []npv1alpha2.CIDR{network, "198.51.100.8/32"}, false
			default:
				peer.Namespaces, peer.Pods = g.clusterPods()
			}
			r.To = append(r.To, peer)
		}
		r.Protocols = g.clusterProtocols(named)
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}

func (g *Walk) clusterPods() (*metav1.LabelSelector, *npv1alpha2.NamespacedPod) {
	if g.IntN(2) == 0 {
		return new(g.selector()), nil
	}
	return nil, &npv1alpha2.NamespacedPod{NamespaceSelector: g.selector(), PodSelector: g.selector()}
}

func (g *Walk) clusterProtocols(named bool) (out []npv1alpha2.ClusterNetworkPolicyProtocol) {
	port := func() *npv1alpha2.Port {
		switch g.IntN(3) {
		case 0:
			return nil
		case 1:
			return &npv1alpha2.Port{Range: &npv1alpha2.PortRange{Start: 53, End: Pick[int32](g, 80, 81)}}
		}
		return &npv1alpha2.Port{Number: Pick[int32](g, 53, 80)}
	}
	for range g.IntN(3) {
		var p npv1alpha2.ClusterNetworkPolicyProtocol
		switch g.IntN(4) {
		case 0:
			p.UDP = &npv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port()}
		case 1:
			p.SCTP = &npv1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port()}
		case 2:
			if named {
				p.DestinationNamedPort = Pick(g, PortNames...)
				break
			}
			fallthrough
		default:
			p.TCP = &npv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port()}
		}
		out = append(out, p)
	}
	return out
}
