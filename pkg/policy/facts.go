package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"unique"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// PodFacts are the parts of a Pod that policies depend on. They are zero for a Pod without a network of its own, and
// for a Pod that has ended, whose addresses another Pod may have by now.
type PodFacts struct {
	Labels  string // in normal form
	Account string // its ServiceAccount
	Node    string
	UID     types.UID    // as the runtime knows it: that of a static Pod is not its mirror's
	Mirror  bool         // an annotation has the UID
	Created int64        // seconds since 1970
	IPs     []netip.Addr // that its status claims, of both families, sorted; see Tables.AddressesOf
	Ports   []NamedPort  // of its containers and sidecars, sorted, each name once for a protocol
}

// NamedPort is a port that a container gives a name.
type NamedPort struct {
	portName
	Port uint16
}

// portName is what policies name a port by.
type portName struct {
	Name     string
	Protocol corev1.Protocol
}

// Compare makes a name the key of an index.
func (p portName) Compare(o portName) int {
	return cmp.Or(cmp.Compare(p.Name, o.Name), cmp.Compare(p.Protocol, o.Protocol))
}

// portNames are the names of its ports, sorted.
func (f PodFacts) portNames() []portName {
	var out []portName
	for _, p := range f.Ports {
		out = append(out, p.portName)
	}
	return slices.Compact(out)
}

// PodFactsOf parses a Pod. It ignores invalid addresses without a report, since the kubelet writes them and not the
// user.
func PodFactsOf(p *corev1.Pod) PodFacts {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return PodFacts{}
	}
	f := PodFacts{
		Labels: unique.Make(boundedLabels(p.Labels)).Value(), Account: unique.Make(p.Spec.ServiceAccountName).Value(),
		Node: unique.Make(p.Spec.NodeName).Value(), UID: uidOf(p),
		Mirror: p.Annotations[corev1.MirrorPodAnnotationKey] != "",
	}
	if !p.CreationTimestamp.IsZero() {
		f.Created = p.CreationTimestamp.Unix()
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			f.IPs = append(f.IPs, a.Unmap())
		}
	}
	slices.SortFunc(f.IPs, netip.Addr.Compare)
	f.IPs = slices.Compact(f.IPs)
	f.Ports = namedPortsOf(p)
	return f
}

// uidOf returns the UID that the kubelet passes to the runtime. For a static Pod the API server has a mirror Pod with
// another UID. An annotation of the mirror Pod has the static Pod's UID.
func uidOf(p *corev1.Pod) types.UID {
	if uid := p.Annotations[corev1.MirrorPodAnnotationKey]; uid != "" {
		return types.UID(uid)
	}
	return p.UID
}

// namedPortsOf returns the numbers of named ports, as EndpointSlices have them: first from containers, then from
// sidecars (init containers that are restarted always). Other init containers have ended when the Pod serves. If a name
// occurs twice, the first one is used.
func namedPortsOf(p *corev1.Pod) (out []NamedPort) {
	add := func(ports []corev1.ContainerPort) {
		for _, port := range ports {
			name := portName{port.Name, protocolOf(port.Protocol)}
			taken := slices.ContainsFunc(out, func(n NamedPort) bool { return n.portName == name })
			if port.Name != "" && port.ContainerPort >= 1 && port.ContainerPort <= 65535 && !taken {
				out = append(out, NamedPort{name, uint16(port.ContainerPort)})
			}
		}
	}
	for _, c := range p.Spec.Containers {
		add(c.Ports)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c.Ports)
		}
	}
	slices.SortFunc(out, func(a, b NamedPort) int { return a.Compare(b.portName) })
	return out[:min(len(out), maxPodPorts)]
}

func protocolOf(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) }

// Facts are a policy, parsed once. Parts with faults are left out, with a Problem.
type Facts struct {
	// Stage, tier and Priority determine the rank of the rules. For NetworkPolicies it is only the Stage.
	Stage        Stage
	Tier         string // its name, for kinds that have Tiers
	TierPriority uint8
	Priority     float64
	AppliedTo    []Selector // Pods; empty where each rule has its own
	// AppliedServices are Services that ingress rules are applied to. The rules decide about connections to these Services
	// from outside (ServiceRule).
	AppliedServices []derive.Object
	Keep            bool // known connections go on whatever becomes of the policy (AnnotationEstablished)
	Ingress         *DirectionFacts
	Egress          *DirectionFacts
	Problems        []problem.Problem
}

// DirectionFacts are the rules of a direction. A NetworkPolicy isolates Pods except for these rules.
type DirectionFacts struct{ Rules []RuleFacts }

// RuleFacts decide about connections with any of the peers to any of the ports.
type RuleFacts struct {
	Action    Action
	Void      bool       // it does nothing: not understood, or beyond a bound
	Over      bool       // beyond a bound: it denies everything, if it is not Void
	Folded    bool       // an earlier rule of the policy has its peers and ports
	Cost      int        // what it counts against the bounds, as it is written
	AppliedTo []Selector // in addition to the policy's
	// AppliedServices are in addition to the policy's.
	AppliedServices []derive.Object
	// OtherPeers and OtherPorts are set if a rule for Services has peers, or ports, that cannot be checked for such
	// connections.
	OtherPeers, OtherPorts bool
	AnyPeer                bool
	Peers                  []Selector
	// ClusterSet are the Peers that mean Pods of other clusters too.
	ClusterSet []Selector
	// Relative are peers that depend on the Namespace of the Pod that the rule is applied to.
	Relative []Relative
	Nodes    []string // label selectors in text form
	Ranges   []Range
	Services []ServicePeer
	Names    []string // of DNS
	AnyPort  bool
	Ports    []PortRange
	Named    []portName
	ICMP     []ICMP
	IGMP     []IGMP
	// Log, Name and LogLabel are enableLogging, name and logLabel.
	Log            bool
	Name, LogLabel string
}

// AnnotationEstablished on a policy of any kind decides about known connections when the policy changes. With the value
// "keep" they continue. Otherwise they are judged again.
const AnnotationEstablished = "tombolo.io/established"

// Keeps reads AnnotationEstablished.
func Keeps(o metav1.Object) bool { return o.GetAnnotations()[AnnotationEstablished] == "keep" }

// Relative selects Pods of the Namespace of the Pod that a rule is applied to. With SameLabels it selects Pods of all
// Namespaces that have the same values of these keys. Commas separate the keys.
type Relative struct{ SameLabels, Pods string }

// ServicePeer is the Service of a connection; with ClusterSet a Service of the ClusterSet.
type ServicePeer struct {
	derive.Object
	ClusterSet bool
}

// PortRange is a range of destination ports of one protocol, both ends included. 0 to 65535 matches all ports, and also
// packets of a protocol without ports.
type PortRange struct {
	Protocol corev1.Protocol
	From, To uint16
	// SourceFrom and SourceTo are the source's ports, both ends included; 0 and 0 mean all ports.
	SourceFrom, SourceTo uint16
}

// ICMP are messages of a type and code, of ICMP and ICMPv6 alike; Any is every one.
type ICMP struct{ Type, Code int16 }

// Any type, or code, of ICMP and IGMP.
const Any = -1

// Compare orders by type, then code.
func (i ICMP) Compare(o ICMP) int {
	return cmp.Or(cmp.Compare(i.Type, o.Type), cmp.Compare(i.Code, o.Code))
}

// IGMP matches messages of a type, or of any type with Any, about one group. If the group is not valid, it matches
// every group.
type IGMP struct {
	Type  int16
	Group netip.Addr
}

// Compare orders by type, then group.
func (i IGMP) Compare(o IGMP) int {
	return cmp.Or(cmp.Compare(i.Type, o.Type), i.Group.Compare(o.Group))
}

// Compare orders by protocol, then ports, then source ports.
func (p PortRange) Compare(o PortRange) int {
	return cmp.Or(cmp.Compare(p.Protocol, o.Protocol), cmp.Compare(p.From, o.From), cmp.Compare(p.To, o.To),
		cmp.Compare(p.SourceFrom, o.SourceFrom), cmp.Compare(p.SourceTo, o.SourceTo))
}

// Range is the addresses of CIDR without the addresses of Except.
type Range struct {
	CIDR   netip.Prefix
	Except []netip.Prefix
}

// prefixes are the fewest that have all addresses of ranges, sorted.
func prefixes(ranges []Range) []netip.Prefix {
	var all netipx.IPSetBuilder
	for _, r := range ranges {
		if len(r.Except) == 0 {
			all.AddPrefix(r.CIDR)
			continue
		}
		var one netipx.IPSetBuilder
		one.AddPrefix(r.CIDR)
		for _, e := range r.Except {
			one.RemovePrefix(e)
		}
		if set, err := one.IPSet(); err == nil { // its only error is an invalid range
			all.AddSet(set)
		}
	}
	set, err := all.IPSet()
	if err != nil {
		return nil
	}
	return set.Prefixes()
}

// parser collects what is wrong with one policy.
type parser struct {
	object   problem.Object
	problems []problem.Problem
	omitted  int // problems beyond maxProblems
	cost     int // of what was parsed of a rule
	ranges   int // and exceptions, of the whole object
}

func (p *parser) report(field string, reason reasons.Reason, format string, args ...any) {
	if len(p.problems) >= maxProblems {
		p.omitted++
		return
	}
	p.problems = append(p.problems,
		problem.Problem{Object: p.object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// FactsOf parses a NetworkPolicy. An API server has validated it, but a later version may have further features. A peer
// or port with a fault allows nothing.
func FactsOf(n *networkingv1.NetworkPolicy) Facts {
	p := &parser{object: Key{NetworkPolicy, n.Namespace, n.Name}.problem()}
	f := Facts{Stage: NetworkPolicies, Keep: Keeps(n)}
	pods, ok := p.selector("spec.podSelector", &n.Spec.PodSelector)
	if !ok {
		return Facts{Problems: p.problems}
	}
	f.AppliedTo = []Selector{{Namespace: n.Namespace, Pods: pods}}
	spec := n.Spec
	if p.cost > DefaultBounds.Policy {
		p.report("spec.podSelector", ReasonTooLarge,
			"it has %d labels, expressions and values, more than %d, so the policy isolates "+
				"all Pods of its Namespace and allows nothing: select by fewer", p.cost, DefaultBounds.Policy)
		f.AppliedTo[0].Pods, spec.Ingress, spec.Egress = "", nil, nil
	}
	types := n.Spec.PolicyTypes
	if len(types) == 0 { // as the API server's defaults
		if types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}; len(n.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	for i, t := range types {
		switch t {
		case networkingv1.PolicyTypeIngress:
			f.Ingress = &DirectionFacts{}
			for j, r := range spec.Ingress {
				f.Ingress.Rules = append(f.Ingress.Rules, p.rule(fmt.Sprintf("spec.ingress[%d]", j), "from", n.Namespace, r.From,
					r.Ports))
			}
		case networkingv1.PolicyTypeEgress:
			f.Egress = &DirectionFacts{}
			for j, r := range spec.Egress {
				f.Egress.Rules = append(f.Egress.Rules, p.rule(fmt.Sprintf("spec.egress[%d]", j), "to", n.Namespace, r.To, r.Ports))
			}
		default:
			p.report(fmt.Sprintf("spec.policyTypes[%d]", i), reasonInvalidPolicyType,
				"policy type %q is not one of Ingress and Egress: correct it", t)
		}
	}
	f.Ingress.fold()
	f.Egress.fold()
	return p.done(f)
}

// selector returns a label selector in text form.
func (p *parser) selector(field string, s *metav1.LabelSelector) (text string, ok bool) {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		p.report(field, reasonInvalidSelector, "%v: correct it", err)
		return "", false
	}
	p.cost += selectorCost(s)
	return parsed.String(), true
}

func (p *parser) rule(field, peers, namespace string, from []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) RuleFacts {
	r := RuleFacts{Action: Allow, AnyPeer: len(from) == 0, AnyPort: len(ports) == 0}
	p.cost = 1
	for i, peer := range from {
		field := fmt.Sprintf("%s.%s[%d]", field, peers, i)
		switch {
		case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
			p.report(field, reasonInvalidPeer,
				"ipBlock stands next to a selector, so this peer selects nothing: make two peers of them")
		case peer.IPBlock != nil:
			if block, ok := p.block(field+".ipBlock", peer.IPBlock.CIDR, peer.IPBlock.Except); ok {
				r.Ranges = append(r.Ranges, block)
			}
		case peer.PodSelector == nil && peer.NamespaceSelector == nil:
			p.report(field, reasonInvalidPeer,
				"there is no podSelector, namespaceSelector or ipBlock, so this peer selects nothing: give one")
		default:
			p.cost++
			s, ok := Selector{}, true
			if peer.NamespaceSelector == nil {
				s.Namespace = namespace
			} else {
				s.Namespaces, ok = p.selector(field+".namespaceSelector", peer.NamespaceSelector)
			}
			if ok && peer.PodSelector != nil {
				s.Pods, ok = p.selector(field+".podSelector", peer.PodSelector)
			}
			if ok {
				r.Peers = append(r.Peers, s)
			}
		}
	}
	r.Peers = sorted(r.Peers, Selector.Compare)
	for i, port := range ports {
		p.port(fmt.Sprintf("%s.ports[%d]", field, i),
			portFacts{protocol: port.Protocol, port: port.Port, end: port.EndPort}, &r)
	}
	r.Ports, r.Named = sorted(r.Ports, PortRange.Compare), sorted(r.Named, portName.Compare)
	return p.costed(r)
}

// block parses a range. Beyond the bound of one object it parses no further ranges, since that would cost too much.
func (p *parser) block(field, text string, exceptions []string) (Range, bool) {
	if p.ranges += 1 + len(exceptions); p.ranges > DefaultBounds.of(p.object.Namespace) {
		p.cost = tooCostly
		return Range{}, false
	}
	cidr, err := rangeOf(text)
	if err != nil {
		p.report(field+".cidr", reasonInvalidCIDR, "%v", err)
		return Range{}, false
	}
	p.mapped(field+".cidr", cidr)
	out := Range{CIDR: cidr}
	for i, one := range exceptions {
		except, err := rangeOf(one)
		if err != nil {
			p.report(fmt.Sprintf("%s.except[%d]", field, i), reasonInvalidCIDR, "nothing of %s is selected: %v", text, err)
			return Range{}, false
		}
		p.mapped(fmt.Sprintf("%s.except[%d]", field, i), except)
		out.Except = append(out.Except, except)
	}
	return out, true
}

// rangeOf parses a range. The error has the remedy.
func rangeOf(text string) (netip.Prefix, error) {
	out, err := netip.ParsePrefix(text)
	if err != nil {
		return out, fmt.Errorf("%q is not a range of addresses such as 10.0.0.0/8 or fd00::/8: correct it", text)
	}
	return out, nil
}

// mapped reports a range of IPv4 in the form of IPv6. No packet has an address in such a range. So it selects nothing,
// and the rest of the rule stays as it is.
func (p *parser) mapped(field string, r netip.Prefix) {
	if r.Addr().Is4In6() && r.Bits() >= 96 {
		v4 := netip.PrefixFrom(r.Addr().Unmap(), r.Bits()-96)
		p.report(field, reasonInvalidCIDR, "%s is a range of IPv4 in the form of IPv6, which no packet has: write %s", r, v4)
	}
}

// portFacts are a port of any kind of policy.
type portFacts struct {
	protocol               *corev1.Protocol
	port                   *intstr.IntOrString
	end, source, sourceEnd *int32
}

// port adds a port to a rule; false where it is not understood.
func (p *parser) port(field string, in portFacts, r *RuleFacts) bool {
	out := PortRange{Protocol: corev1.ProtocolTCP}
	if in.protocol != nil {
		out.Protocol = protocolOf(*in.protocol)
	}
	switch out.Protocol {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		p.report(field+".protocol", reasonInvalidProtocol, "protocol %q is not one of TCP, UDP and SCTP: correct it",
			out.Protocol)
		return false
	}
	var ok bool
	if out.SourceFrom, out.SourceTo, ok = p.between(field, in.source, in.sourceEnd); !ok {
		return false
	}
	switch {
	case in.port == nil && in.end != nil:
		p.report(field+".endPort", reasonInvalidPort, "endPort is given without port: give the first port of the range")
		return false
	case in.port == nil:
		out.To = 65535
	case in.port.Type == intstr.String && in.end != nil:
		p.report(field+".endPort", reasonInvalidPort, "endPort stands next to the name %q: give the first port's number",
			in.port.StrVal)
		return false
	case in.port.Type == intstr.String:
		r.Named = append(r.Named, portName{in.port.StrVal, out.Protocol})
		p.cost++
		return true
	default:
		if out.From, out.To, ok = p.between(field, &in.port.IntVal, in.end); !ok {
			return false
		}
	}
	r.Ports = append(r.Ports, out)
	p.cost += out.matches()
	return true
}

// between are the ports of a range with one end or both; without any, none.
func (p *parser) between(field string, first, last *int32) (from, to uint16, ok bool) {
	if first == nil && last == nil {
		return 0, 0, true
	}
	if first == nil {
		first = new(int32)
	}
	if last == nil {
		last = first
	}
	if *first < 1 || *first > *last || *last > 65535 {
		p.report(field, reasonInvalidPort, "ports %d to %d are not within 1 to 65535, in order: correct them", *first, *last)
		return 0, 0, false
	}
	return uint16(*first), uint16(*last), true
}
