package policy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// ClusterFactsOf parses a ClusterNetworkPolicy of policy.networking.k8s.io. An unknown peer or protocol comes from a
// later version. As the specification requires, a rule that accepts then has no effect, and a rule that denies or
// passes denies everything.
func ClusterFactsOf(n *npv1alpha2.ClusterNetworkPolicy) Facts {
	p := &clusterParser{parser{object: Key{ClusterNetworkPolicy, "", n.Name}.problem()}}
	f := Facts{TierPriority: tierAdmin, Priority: float64(n.Spec.Priority), Keep: Keeps(n)}
	switch n.Spec.Tier {
	case npv1alpha2.BaselineTier:
		f.Stage, f.TierPriority = Baseline, tierBaseline
	case npv1alpha2.AdminTier:
	default:
		p.report("spec.tier", reasonUnknownTier,
			"tier %q is not one of Admin and Baseline, so the rules that deny stand in Admin and the others do nothing: "+
				"correct it", n.Spec.Tier)
	}
	unknown := len(p.problems) > 0
	subject, ok := p.pods("spec.subject", n.Spec.Subject.Namespaces, n.Spec.Subject.Pods)
	if !ok {
		return Facts{Problems: p.problems}
	}
	f.AppliedTo = []Selector{subject}
	for i, r := range n.Spec.Ingress {
		var peers []npv1alpha2.ClusterNetworkPolicyEgressPeer // they have all fields of the others
		for _, from := range r.From {
			peers = append(peers, npv1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: from.Namespaces, Pods: from.Pods})
		}
		if f.Ingress == nil {
			f.Ingress = &DirectionFacts{}
		}
		f.Ingress.Rules = append(f.Ingress.Rules, p.clusterRule(fmt.Sprintf("spec.ingress[%d]", i), "from", r.Name, r.Action,
			peers, r.Protocols))
	}
	for i, r := range n.Spec.Egress {
		if f.Egress == nil {
			f.Egress = &DirectionFacts{}
		}
		f.Egress.Rules = append(f.Egress.Rules, p.clusterRule(fmt.Sprintf("spec.egress[%d]", i), "to", r.Name, r.Action, r.To,
			r.Protocols))
	}
	if unknown {
		f.Ingress, f.Egress = f.Ingress.denying(), f.Egress.denying()
	}
	return p.done(f)
}

// clusterParser parses one ClusterNetworkPolicy.
type clusterParser struct{ parser }

// pods is a subject or a peer that selects Pods.
func (p *clusterParser) pods(field string, namespaces *metav1.LabelSelector,
	pods *npv1alpha2.NamespacedPod) (s Selector, ok bool) {
	switch {
	case (namespaces == nil) == (pods == nil):
		p.report(field, reasonInvalidSelector, "it has to be either namespaces or pods: correct it")
		return s, false
	case namespaces != nil:
		s.Namespaces, ok = p.selector(field+".namespaces", namespaces)
		return s, ok
	}
	if s.Namespaces, ok = p.selector(field+".pods.namespaceSelector", &pods.NamespaceSelector); !ok {
		return s, false
	}
	s.Pods, ok = p.selector(field+".pods.podSelector", &pods.PodSelector)
	return s, ok
}

func (p *clusterParser) clusterRule(field, peerField, name string, action npv1alpha2.ClusterNetworkPolicyRuleAction,
	peers []npv1alpha2.ClusterNetworkPolicyEgressPeer, protocols []npv1alpha2.ClusterNetworkPolicyProtocol) RuleFacts {
	r := RuleFacts{Name: name}
	p.cost = 1
	switch action {
	case npv1alpha2.ClusterNetworkPolicyRuleActionAccept:
		r.Action = Allow
	case npv1alpha2.ClusterNetworkPolicyRuleActionPass:
		r.Action = Pass
	case npv1alpha2.ClusterNetworkPolicyRuleActionDeny:
	default:
		p.report(field+".action", reasonInvalidAction,
			"action %q is not one of Accept, Deny and Pass, so the rule denies: correct it", action)
	}
	understood := len(peers) > 0
	if !understood {
		p.report(field+"."+peerField, reasonInvalidPeer, "there is no peer: give one")
	}
	for i, peer := range peers {
		if !p.clusterPeer(fmt.Sprintf("%s.%s[%d]", field, peerField, i), &peer, &r) {
			understood = false
		}
	}
	r.AnyPort = len(protocols) == 0
	for i, protocol := range protocols {
		if !p.protocol(fmt.Sprintf("%s.protocols[%d]", field, i), &protocol, &r) {
			understood = false
		}
	}
	switch {
	case understood:
	case r.Action == Allow:
		r.Void = true
	default:
		return RuleFacts{Name: name, AnyPeer: true, AnyPort: true, Cost: p.costed(r).Cost}
	}
	r.Peers, r.Ports, r.Named = sorted(r.Peers, Selector.Compare), sorted(r.Ports, PortRange.Compare),
		sorted(r.Named, portName.Compare)
	return p.costed(r)
}

func (p *clusterParser) clusterPeer(field string, peer *npv1alpha2.ClusterNetworkPolicyEgressPeer, r *RuleFacts) bool {
	if !exactlyOne(peer.Namespaces != nil, peer.Pods != nil, peer.Nodes != nil, len(peer.Networks) > 0,
		len(peer.DomainNames) > 0) {
		p.report(field, reasonInvalidPeer, "it has to be one kind of peer: correct it")
		return false
	}
	if len(peer.Networks) == 0 {
		p.cost++
	}
	switch {
	case peer.Nodes != nil:
		text, ok := p.selector(field+".nodes", peer.Nodes)
		if ok {
			r.Nodes = append(r.Nodes, text)
		}
		return ok
	case len(peer.Networks) > 0:
		for i, cidr := range peer.Networks {
			block, ok := p.block(fmt.Sprintf("%s.networks[%d]", field, i), string(cidr), nil)
			if !ok {
				return false
			}
			r.Ranges = append(r.Ranges, block)
		}
		return true
	case len(peer.DomainNames) > 0:
		for _, name := range peer.DomainNames {
			r.Names = append(r.Names, NameOf(string(name)))
		}
		if r.Action != Allow {
			p.report(field+".domainNames", reasonInvalidPeer,
				"names are for rules that accept, so the rule is for every address: deny networks instead, behind a rule that "+
					"accepts names")
		}
		return r.Action == Allow
	}
	s, ok := p.pods(field, peer.Namespaces, peer.Pods)
	if ok {
		r.Peers = append(r.Peers, s)
	}
	return ok
}

func (p *clusterParser) protocol(field string, in *npv1alpha2.ClusterNetworkPolicyProtocol, r *RuleFacts) bool {
	var port *npv1alpha2.Port
	var protocol corev1.Protocol
	switch {
	case !exactlyOne(in.TCP != nil, in.UDP != nil, in.SCTP != nil, in.DestinationNamedPort != ""):
		p.report(field, reasonInvalidProtocol, "it has to be one of tcp, udp, sctp and destinationNamedPort: correct it")
		return false
	case in.TCP != nil:
		protocol, port = corev1.ProtocolTCP, in.TCP.DestinationPort
	case in.UDP != nil:
		protocol, port = corev1.ProtocolUDP, in.UDP.DestinationPort
	case in.SCTP != nil:
		protocol, port = corev1.ProtocolSCTP, in.SCTP.DestinationPort
	default:
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			r.Named = append(r.Named, portName{in.DestinationNamedPort, protocol})
		}
		p.cost++
		return true
	}
	from, to := int32(0), int32(65535)
	if port != nil {
		if from, to = port.Number, port.Number; port.Range != nil {
			if from, to = port.Range.Start, port.Range.End; port.Number != 0 {
				from = 0 // both
			}
		}
		if from < 1 || from > to || to > 65535 {
			p.report(field, reasonInvalidPort, "it has to be a number or a range within 1 to 65535: correct it")
			return false
		}
	}
	r.Ports = append(r.Ports, PortRange{Protocol: protocol, From: uint16(from), To: uint16(to)})
	p.cost += r.Ports[len(r.Ports)-1].matches()
	return true
}

// addresses returns a Node's addresses for policies of a kind. For Antrea's policies they include the address from
// which it reaches Pods.
func (n NodeFacts) addresses(k Kind) []netip.Addr {
	if k == ClusterNetworkPolicy {
		return n.IPs
	}
	return slices.Concat(n.IPs, n.Gateways)
}
