package policytest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

// Limits are the bounds of docs/policy-guarantees.md: the cost of one policy with a Namespace (Policy) or without
// (Wide), and the cost and the number of rules in a direction of a Namespace's policies that apply to Pods of a Node.
type Limits struct{ Policy, Wide, Namespace, Rules int }

// ruleOf names a rule. The order of kinds is the order of policies of equal rank.
type ruleOf struct {
	kind            int
	namespace, name string
	egress          bool
	index           int
}

const (
	kindNetworkPolicy = iota
	kindAntreaCluster
	kindAntrea
	kindCluster
)

// costing is a rule as limits see it.
type costing struct {
	ruleOf
	cost   int
	allows bool // left out beyond a limit; others are widened
}

// kindNames are the kinds of policies in Costs.
var kindNames = [...]string{
	kindNetworkPolicy: "NetworkPolicy", kindAntreaCluster: "AntreaClusterNetworkPolicy",
	kindAntrea: "AntreaNetworkPolicy", kindCluster: "ClusterNetworkPolicy",
}

// Costs returns what each rule of each policy costs, by "KIND NAMESPACE/NAME ingress[0]".
func (c Cluster) Costs() map[string]int {
	out := map[string]int{}
	for _, s := range c.standings("") {
		for _, r := range s.rules {
			name, direction := r.name, "ingress"
			if r.namespace != "" {
				name = r.namespace + "/" + name
			}
			if r.egress {
				direction = "egress"
			}
			out[fmt.Sprintf("%s %s %s[%d]", kindNames[r.kind], name, direction, r.index)] = r.cost
		}
	}
	return out
}

// standing is a policy as limits see it.
type standing struct {
	stage, tier int
	priority    float64
	rules       []costing // ingress first
	here        bool      // it applies to Pods of the Node
}

// beyond returns the rules beyond a limit on a Node, for Pods of a Namespace. The value of a rule is true if it denies
// everything.
func (c Cluster) beyond(node, namespace string) map[ruleOf]bool {
	if c.Limits == (Limits{}) {
		return nil
	}
	out := map[ruleOf]bool{}
	var of []standing
	for _, s := range c.standings(node) {
		limit, sum := c.Limits.Wide, 0
		if len(s.rules) == 0 {
			continue
		}
		if s.rules[0].namespace != "" {
			limit = c.Limits.Policy
		}
		for i := range s.rules {
			r := &s.rules[i]
			if sum+r.cost <= limit {
				sum += r.cost
				continue
			}
			out[r.ruleOf] = !r.allows
			r.cost = 1
		}
		if s.here && s.rules[0].namespace == namespace && namespace != "" {
			of = append(of, s)
		}
	}
	slices.SortFunc(of, func(a, b standing) int {
		x, y := a.rules[0], b.rules[0]
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.tier, b.tier), cmp.Compare(a.priority, b.priority),
			cmp.Compare(x.kind, y.kind), cmp.Compare(x.name, y.name))
	})
	sum, rules := 0, map[bool]int{}
	for _, s := range of {
		for _, r := range s.rules {
			if denies, over := out[r.ruleOf]; over && !denies {
				continue
			}
			if rules[r.egress]++; rules[r.egress] > c.Limits.Rules || sum+r.cost > c.Limits.Namespace {
				out[r.ruleOf] = !r.allows
				continue
			}
			sum += r.cost
		}
	}
	return out
}

func (c Cluster) standings(node string) (out []standing) {
	var here []*corev1.Pod
	for _, p := range c.Pods {
		runs := !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning
		if p.Spec.NodeName == node && runs && c.Namespaces[p.Namespace] != nil {
			here = append(here, p)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Policies)) {
		p := c.Policies[key]
		s := standing{stage: 1, here: slices.ContainsFunc(here, func(pod *corev1.Pod) bool {
			return pod.Namespace == p.Namespace && selects(p.Spec.PodSelector, pod.Labels)
		})}
		if has(p.Spec.PolicyTypes, "Ingress") {
			for i, r := range p.Spec.Ingress {
				s.add(ruleOf{kindNetworkPolicy, p.Namespace, p.Name, false, i}, networkCost(r.From, r.Ports), true)
			}
		}
		if has(p.Spec.PolicyTypes, "Egress") {
			for i, r := range p.Spec.Egress {
				s.add(ruleOf{kindNetworkPolicy, p.Namespace, p.Name, true, i}, networkCost(r.To, r.Ports), true)
			}
		}
		out = append(out, s)
	}
	antrea := func(kind int, namespace, name string, spec *crdv1beta1.PolicySpec) {
		s := standing{priority: spec.Priority}
		var known bool
		if s.tier, known = c.tierOf(spec.Tier); known && s.tier == 253 {
			s.stage = 2
		}
		for d, rules := range [][]crdv1beta1.Rule{spec.Ingress, spec.Egress} {
			for i, r := range rules {
				allows := string(r.Action) == allow || !known && string(r.Action) == pass
				s.add(ruleOf{kind, namespace, name, d == 1, i}, antreaCost(&r), allows)
				s.here = s.here || slices.ContainsFunc(here, func(pod *corev1.Pod) bool {
					a := asked{Cluster: c, pod: pod}
					return a.applied(namespace, spec.AppliedTo) || a.applied(namespace, r.AppliedTo)
				})
			}
		}
		out = append(out, s)
	}
	for _, p := range c.Antrea {
		antrea(kindAntrea, p.Namespace, p.Name, &p.Spec)
	}
	for _, p := range c.AntreaCluster {
		antrea(kindAntreaCluster, "", p.Name, &p.Spec)
	}
	for _, p := range c.Cluster {
		var s standing
		for i, r := range p.Spec.Ingress {
			n := 1 + len(r.From) + protocolCost(r.Protocols)
			for _, peer := range r.From {
				n += subjectCost(peer.Namespaces, peer.Pods)
			}
			s.add(ruleOf{kindCluster, "", p.Name, false, i}, n, r.Action == npv1alpha2.ClusterNetworkPolicyRuleActionAccept)
		}
		for i, r := range p.Spec.Egress {
			n := 1 + protocolCost(r.Protocols)
			var ranges []crdv1beta1.IPBlock
			for _, peer := range r.To {
				if len(peer.Networks) == 0 {
					n += 1 + subjectCost(peer.Namespaces, peer.Pods) + labelsCost(peer.Nodes)
				}
				for _, cidr := range peer.Networks {
					ranges = append(ranges, crdv1beta1.IPBlock{CIDR: string(cidr)})
				}
			}
			n += fewest(ranges)
			s.add(ruleOf{kindCluster, "", p.Name, true, i}, n, r.Action == npv1alpha2.ClusterNetworkPolicyRuleActionAccept)
		}
		out = append(out, s)
	}
	return out
}

func (s *standing) add(of ruleOf, cost int, allows bool) {
	s.rules = append(s.rules, costing{of, cost, allows})
}

// labelsCost is 1, and 1 for each label, expression and value.
func labelsCost(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	n := 1 + len(s.MatchLabels) + len(s.MatchExpressions)
	for _, e := range s.MatchExpressions {
		n += len(e.Values)
	}
	return n
}

func subjectCost(namespaces *metav1.LabelSelector, pods *npv1alpha2.NamespacedPod) int {
	n := labelsCost(namespaces)
	if pods != nil {
		n += labelsCost(&pods.NamespaceSelector) + labelsCost(&pods.PodSelector)
	}
	return n
}

// portsCost is how many values with a mask cover the numbers from first to last.
func portsCost(first, last int32) int {
	var cover func(from, size int32) int
	cover = func(from, size int32) int {
		switch {
		case from >= first && from+size-1 <= last:
			return 1
		case from > last || from+size-1 < first:
			return 0
		}
		return cover(from, size/2) + cover(from+size/2, size/2)
	}
	return cover(0, 1<<16)
}

func portCost(port *intstr.IntOrString, end *int32) int {
	switch {
	case port == nil || port.Type == intstr.String:
		return 1
	case end != nil:
		return portsCost(port.IntVal, *end)
	}
	return 1
}

func protocolCost(list []npv1alpha2.ClusterNetworkPolicyProtocol) (n int) {
	for _, p := range list {
		var port *npv1alpha2.Port
		switch {
		case p.TCP != nil:
			port = p.TCP.DestinationPort
		case p.UDP != nil:
			port = p.UDP.DestinationPort
		case p.SCTP != nil:
			port = p.SCTP.DestinationPort
		}
		if port != nil && port.Range != nil {
			n += portsCost(port.Range.Start, port.Range.End)
			continue
		}
		n++
	}
	return n
}

func networkCost(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) int {
	n := 1
	var ranges []crdv1beta1.IPBlock
	for _, p := range peers {
		if p.IPBlock != nil {
			ranges = append(ranges, crdv1beta1.IPBlock{CIDR: p.IPBlock.CIDR, Except: p.IPBlock.Except})
			continue
		}
		n++
		n += labelsCost(p.PodSelector) + labelsCost(p.NamespaceSelector)
	}
	for _, p := range ports {
		n += portCost(p.Port, p.EndPort)
	}
	return n + fewest(ranges)
}

func antreaCost(r *crdv1beta1.Rule) int {
	peers := slices.Concat(r.From, r.To)
	n := 1 + len(r.ToServices) + len(r.Protocols)
	var ranges []crdv1beta1.IPBlock
	for _, p := range peers {
		if p.IPBlock != nil {
			ranges = append(ranges, *p.IPBlock)
			continue
		}
		n++
		n += labelsCost(p.PodSelector) + labelsCost(p.NamespaceSelector) + labelsCost(p.NodeSelector)
	}
	for _, p := range r.Ports {
		source := 1
		if p.SourcePort != nil && p.SourceEndPort != nil {
			source = portsCost(*p.SourcePort, *p.SourceEndPort)
		}
		n += portCost(p.Port, p.EndPort) * source
	}
	return n + fewest(ranges)
}

// fewest returns the least number of IPv4 and of IPv6 prefixes that cover ranges without their exceptions.
func fewest(ranges []crdv1beta1.IPBlock) int {
	var cover func(p netip.Prefix) (n int, whole bool)
	cover = func(p netip.Prefix) (int, bool) {
		split := false
		for _, r := range ranges {
			cidr := netip.MustParsePrefix(r.CIDR)
			if !cidr.Overlaps(p) {
				continue
			}
			out, cut := false, cidr.Bits() > p.Bits()
			for _, text := range r.Except {
				e := netip.MustParsePrefix(text)
				out = out || e.Bits() <= p.Bits() && e.Overlaps(p)
				cut = cut || e.Overlaps(p)
			}
			switch {
			case out:
			case !cut:
				return 1, true
			default:
				split = true
			}
		}
		if !split {
			return 0, false
		}
		n, all := cover(netip.PrefixFrom(p.Addr(), p.Bits()+1))
		m, rest := cover(netip.PrefixFrom(netipx.PrefixLastIP(p), p.Bits()+1).Masked())
		if all && rest {
			return 1, true
		}
		return n + m, false
	}
	v4, _ := cover(netip.MustParsePrefix("0.0.0.0/0"))
	v6, _ := cover(netip.MustParsePrefix("::/0"))
	return v4 + v6
}
