package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// AntreaClusterFactsOf parses a ClusterNetworkPolicy of crd.antrea.io.
func AntreaClusterFactsOf(n *crdv1beta1.ClusterNetworkPolicy) Facts {
	return antreaFacts(Key{AntreaClusterNetworkPolicy, "", n.Name}, &n.Spec, Keeps(n))
}

// AntreaFactsOf parses a NetworkPolicy of crd.antrea.io.
func AntreaFactsOf(n *crdv1beta1.NetworkPolicy) Facts {
	return antreaFacts(Key{AntreaNetworkPolicy, n.Namespace, n.Name}, &n.Spec, Keeps(n))
}

// antreaFacts parses an Antrea-native policy. Its definition and admission refuse most of the faults reported here, but
// the policy may be older, or come from another cluster. A part with a fault stays closed: a rule that allows or passes
// has no effect through that part, and in a rule that denies the part matches everything.
func antreaFacts(k Key, spec *crdv1beta1.PolicySpec, keep bool) Facts {
	p := &antreaParser{parser: parser{object: k.problem()}, key: k}
	f := Facts{Tier: TierName(spec.Tier), Priority: spec.Priority, Keep: keep}
	if f.Tier == crdv1beta1.TierBaseline {
		f.Stage = Baseline
	}
	if spec.Priority < 1 || spec.Priority > 10000 {
		p.report("spec.priority", reasonInvalidPriority, "%v is not within 1 to 10000: correct it", spec.Priority)
	}
	f.AppliedTo, f.AppliedServices = p.appliedTo("spec.appliedTo", spec.AppliedTo)
	p.whole, p.services = len(spec.AppliedTo) > 0, len(f.AppliedServices) > 0
	f.Ingress = p.direction(Ingress, spec.Ingress)
	f.Egress = p.direction(Egress, spec.Egress)
	return p.done(f)
}

// TierName returns the name of a Tier from the text in a policy. An empty text means application, and default Tiers may
// begin with a capital, as in old documents.
func TierName(text string) string {
	switch text {
	case "Emergency", "SecurityOps", "NetworkOps", "Platform", "Application", "Baseline":
		return strings.ToLower(text)
	}
	return cmp.Or(text, crdv1beta1.TierApplication)
}

// TierFacts are the priority of a Tier, plus one.
type TierFacts int32

// TierFactsOf parses a Tier.
func TierFactsOf(t *crdv1beta1.Tier) TierFacts { return TierFacts(t.Spec.Priority) + 1 }

// tier sets the priority of the Tier in the Facts of an Antrea-native policy. If the Tier does not exist, the place of
// the policy in the order is unknown. Then the policy denies everything that it can deny, in Tier application, and
// allows nothing.
func (t *activeTables) tier(f Facts, k Key, r *derive.Reader) Facts {
	if priority, ok := crdv1beta1.DefaultTiers[f.Tier]; ok {
		f.TierPriority = uint8(priority)
		return f
	}
	tier, ok := derive.Get(r, t.all.Tiers, derive.Object{Name: f.Tier})
	if ok && tier >= 1 && tier <= 256 {
		f.TierPriority = uint8(tier - 1)
		return f
	}
	f.TierPriority = uint8(crdv1beta1.DefaultTiers[crdv1beta1.TierApplication])
	f.Ingress, f.Egress = f.Ingress.denying(), f.Egress.denying()
	f.Problems = append(slices.Clip(f.Problems), problem.Problem{
		Object: k.problem(), Field: "spec.tier", Reason: reasonUnknownTier,
		Message: fmt.Sprintf(
			"there is no Tier %s, so the rules that deny stand in Tier %s and the others do nothing: create it", f.Tier,
			crdv1beta1.TierApplication),
	})
	return f
}

// denying returns the rules without rules that allow or pass.
func (d *DirectionFacts) denying() *DirectionFacts {
	if d == nil {
		return nil
	}
	out := &DirectionFacts{Rules: slices.Clone(d.Rules)}
	for i := range out.Rules {
		if !out.Rules[i].denies() {
			out.Rules[i].Void = true
		}
	}
	return out
}

func (r RuleFacts) denies() bool { return r.Action == Drop || r.Action == Reject }

// antreaParser parses one Antrea-native policy.
type antreaParser struct {
	parser
	key      Key
	whole    bool // the policy has an appliedTo
	services bool // which has Services
}

// namespaceOf is the Namespace of an object that the policy refers to.
func (p *antreaParser) namespaceOf(namespace string) string {
	return cmp.Or(namespace, p.key.Namespace)
}

func (p *antreaParser) appliedTo(field string, list []crdv1beta1.AppliedTo) (out []Selector, services []derive.Object) {
	for i, a := range list {
		field := fmt.Sprintf("%s[%d]", field, i)
		one := exactlyOne(a.PodSelector != nil || a.NamespaceSelector != nil, a.Group != "", a.ServiceAccount != nil,
			a.Service != nil, a.NodeSelector != nil, a.ExternalEntitySelector != nil)
		switch {
		case !one:
			p.report(field, reasonInvalidAppliedTo,
				"it has to be either selectors of Pods and Namespaces, or a group, a serviceAccount or a service, so it selects "+
					"nothing: correct it")
		case a.Group != "":
			out = append(out, Selector{Namespace: p.key.Namespace, Group: a.Group})
		case a.ServiceAccount != nil && p.namespaceOf(a.ServiceAccount.Namespace) == "":
			p.report(field+".serviceAccount.namespace", reasonInvalidAppliedTo, "the Namespace is missing: give it")
		case a.ServiceAccount != nil:
			out = append(out, Selector{Namespace: p.namespaceOf(a.ServiceAccount.Namespace), Account: a.ServiceAccount.Name})
		case a.Service != nil:
			namespace := p.namespaceOf(a.Service.Namespace)
			if namespace == "" || p.key.Namespace != "" && namespace != p.key.Namespace {
				p.report(field+".service.namespace", reasonInvalidAppliedTo,
					"it is missing, or is not the Namespace of the policy, so it selects nothing: correct it")
				continue
			}
			services = append(services, derive.Object{Namespace: namespace, Name: a.Service.Name})
		case a.NodeSelector != nil:
			p.report(field+".nodeSelector", reasonNotServed, "policies for Nodes are not served yet, so it selects "+
				"nothing: remove it")
		case a.ExternalEntitySelector != nil:
			p.report(field+".externalEntitySelector", reasonNotServed,
				"there are no ExternalEntities, so it selects nothing: remove it")
		default:
			if s, ok := p.pods(field, a.PodSelector, a.NamespaceSelector); ok {
				out = append(out, s)
			}
		}
	}
	return sorted(out, Selector.Compare), sorted(services, derive.Object.Compare)
}

// pods parses a selector of Pods and Namespaces. A selector with only Pods means the policy's own Namespace, if it has
// one.
func (p *antreaParser) pods(field string, pods, namespaces *metav1.LabelSelector) (s Selector, ok bool) {
	if namespaces == nil {
		s.Namespace = p.key.Namespace
	} else if s.Namespaces, ok = p.selector(field+".namespaceSelector", namespaces); !ok {
		return s, false
	}
	if pods != nil {
		if s.Pods, ok = p.selector(field+".podSelector", pods); !ok {
			return s, false
		}
	}
	return s, true
}

func exactlyOne(these ...bool) bool {
	n := 0
	for _, is := range these {
		if is {
			n++
		}
	}
	return n == 1
}

func sorted[T comparable](list []T, compare func(a, b T) int) []T {
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}

func (p *antreaParser) direction(d Direction, rules []crdv1beta1.Rule) *DirectionFacts {
	if len(rules) == 0 {
		return nil // it judges nothing
	}
	out := &DirectionFacts{}
	for i := range rules {
		out.Rules = append(out.Rules, p.antreaRule(fmt.Sprintf("spec.%s[%d]", d, i), d, &rules[i]))
	}
	return out
}

func (p *antreaParser) antreaRule(field string, d Direction, in *crdv1beta1.Rule) RuleFacts {
	r := RuleFacts{Name: in.Name, Log: in.EnableLogging, LogLabel: in.LogLabel}
	switch in.Action {
	case crdv1beta1.ActionAllow:
		r.Action = Allow
	case crdv1beta1.ActionPass:
		r.Action = Pass
	case crdv1beta1.ActionReject:
		r.Action = Reject
	case crdv1beta1.ActionDrop, crdv1beta1.ActionDeny:
	default:
		p.report(field+".action", reasonInvalidAction,
			"action %q is not one of Allow, Drop, Reject and Pass, so the rule drops: correct it", in.Action)
	}
	r.AppliedTo, r.AppliedServices = p.appliedTo(field+".appliedTo", in.AppliedTo)
	p.cost = 1 + len(in.ToServices) + len(in.Protocols)
	switch {
	case p.whole && len(in.AppliedTo) > 0:
		p.report(field+".appliedTo", reasonInvalidAppliedTo, "the policy has an appliedTo as well: remove one of them")
		r.Void = !r.denies()
	case !p.whole && len(in.AppliedTo) == 0:
		p.report(field+".appliedTo", reasonInvalidAppliedTo,
			"neither the policy nor the rule has an appliedTo, so it applies to nothing: give one")
	}
	if len(in.L7Protocols) > 0 {
		p.report(field+".l7Protocols", reasonNotServed, "packets are not looked into above layer 4, so %s: remove it",
			r.without())
		r.Void = r.Void || !r.denies()
	}
	peers, peerField := in.From, "from"
	if d == Egress {
		peers, peerField = in.To, "to"
	}
	if len(in.ToNodes) > 0 || d == Ingress && (len(in.To) > 0 || len(in.ToServices) > 0) || d == Egress &&
		len(in.From) > 0 {
		p.report(field, reasonInvalidPeer,
			"toNodes, to and toServices of ingress rules, and from of egress rules, mean nothing, so %s: write peers in %s",
			r.without(), peerField)
		r.Void = r.Void || !r.denies()
	}
	p.antreaPeers(field, peerField, d, peers, in.ToServices, &r)
	p.antreaPorts(field, in, &r)
	if p.services || len(r.AppliedServices) > 0 {
		p.forServices(field, d, in, &r)
	}
	return p.costed(r)
}

// forServices checks a rule that is applied to Services. Such a rule judges the packet of the client before an endpoint
// is chosen. So it cannot use labels of the client or properties of the endpoint. If the rule is also applied to Pods,
// all its parts have an effect for the Pods.
func (p *antreaParser) forServices(field string, d Direction, in *crdv1beta1.Rule, r *RuleFacts) {
	if d == Egress {
		p.report(field, reasonInvalidAppliedTo,
			"a service is applied to in ingress rules only, so the rule does nothing for it: write an ingress rule")
		return
	}
	var peers, ports bool // that it cannot judge
	for i, from := range in.From {
		if from.IPBlock == nil {
			p.report(fmt.Sprintf("%s.from[%d]", field, i), reasonInvalidPeer,
				"clients of a service are judged by their address alone, so for services %s: write ipBlock", r.without())
			peers = true
		}
	}
	for i, port := range in.Ports {
		if port.SourcePort != nil || port.SourceEndPort != nil || port.Port != nil && port.Port.StrVal != "" {
			p.report(fmt.Sprintf("%s.ports[%d]", field, i), reasonInvalidPort,
				"a service has node ports and external ports by number alone, and no ports of clients, so for services %s: "+
					"write their numbers",
				r.without())
			ports = true
		}
	}
	if len(in.Protocols) > 0 {
		p.report(field+".protocols", reasonInvalidProtocol, "a service has ports alone, so for services %s: write ports",
			r.without())
		ports = true
	}
	r.OtherPeers, r.OtherPorts = peers, ports
}

// without returns a text for a rule of which a part has a fault: the effect of the rule.
func (r RuleFacts) without() string {
	if r.denies() {
		return "the rule denies whatever that could have meant"
	}
	return "the rule does nothing"
}

func (p *antreaParser) antreaPeers(field, peerField string, d Direction, peers []crdv1beta1.Peer,
	services []crdv1beta1.ServiceReference, r *RuleFacts) {
	r.AnyPeer = len(peers) == 0 && (d == Ingress || len(services) == 0)
	understood := true
	for i := range peers {
		if !p.peer(fmt.Sprintf("%s.%s[%d]", field, peerField, i), d, &peers[i], r) {
			understood = false
		}
	}
	if d == Egress {
		for i, s := range services {
			if p.namespaceOf(s.Namespace) == "" {
				p.report(fmt.Sprintf("%s.toServices[%d].namespace", field, i), reasonInvalidPeer,
					"the Namespace is missing: give it")
				understood = false
				continue
			}
			r.Services = append(r.Services, ServicePeer{derive.Object{Namespace: p.namespaceOf(s.Namespace), Name: s.Name},
				s.Scope == crdv1beta1.ScopeClusterSet})
		}
	}
	if !understood && r.denies() {
		r.AnyPeer = true
	}
	r.Peers = sorted(r.Peers, Selector.Compare)
	r.ClusterSet = sorted(r.ClusterSet, Selector.Compare)
}

// peer adds a peer to a rule; false where it is not understood, or not served.
func (p *antreaParser) peer(field string, d Direction, in *crdv1beta1.Peer, r *RuleFacts) bool {
	selectors := in.PodSelector != nil || in.NamespaceSelector != nil || in.Namespaces != nil
	if !exactlyOne(selectors, in.IPBlock != nil, in.Group != "", in.ServiceAccount != nil, in.NodeSelector != nil,
		in.FQDN != "", in.ExternalEntitySelector != nil) ||
		in.Namespaces != nil && in.NamespaceSelector != nil {
		p.report(field, reasonInvalidPeer,
			"it has to be either selectors of Pods and Namespaces, or one other kind of peer, so %s: correct it", r.without())
		return false
	}
	if in.IPBlock == nil {
		p.cost++
	}
	switch {
	case in.IPBlock != nil:
		block, ok := p.block(field+".ipBlock", in.IPBlock.CIDR, in.IPBlock.Except)
		if ok {
			r.Ranges = append(r.Ranges, block)
		}
		return ok
	case in.Group != "":
		r.Peers = append(r.Peers, Selector{Namespace: p.key.Namespace, Group: in.Group})
	case in.ServiceAccount != nil:
		namespace := p.namespaceOf(in.ServiceAccount.Namespace)
		if namespace == "" {
			p.report(field+".serviceAccount.namespace", reasonInvalidPeer, "the Namespace is missing: give it")
			return false
		}
		r.Peers = append(r.Peers, Selector{Namespace: namespace, Account: in.ServiceAccount.Name})
	case in.NodeSelector != nil:
		text, ok := p.selector(field+".nodeSelector", in.NodeSelector)
		if ok {
			r.Nodes = append(r.Nodes, text)
		}
		return ok
	case in.FQDN != "" && d == Ingress:
		p.report(field+".fqdn", reasonInvalidPeer, "clients have no names, so %s: write the rule for egress", r.without())
		return false
	case in.FQDN != "":
		r.Names = append(r.Names, NameOf(in.FQDN))
	case in.ExternalEntitySelector != nil:
		p.report(field+".externalEntitySelector", reasonNotServed, "there are no ExternalEntities, so %s: remove it",
			r.without())
		return false
	case in.Namespaces != nil:
		return p.relative(field, in, r)
	default:
		s, ok := p.pods(field, in.PodSelector, in.NamespaceSelector)
		if !ok {
			return false
		}
		r.Peers = append(r.Peers, s)
		if in.Scope == crdv1beta1.ScopeClusterSet {
			r.ClusterSet = append(r.ClusterSet, s)
		}
	}
	return true
}

// relative adds a peer that depends on the Namespace of the Pod that the rule is applied to.
func (p *antreaParser) relative(field string, in *crdv1beta1.Peer, r *RuleFacts) bool {
	self := in.Namespaces.Match == crdv1beta1.MatchSelf
	if self == (len(in.Namespaces.SameLabels) > 0) {
		p.report(field+".namespaces", reasonInvalidPeer, "it has to be either match Self or sameLabels, so %s: correct it",
			r.without())
		return false
	}
	n := Relative{SameLabels: strings.Join(in.Namespaces.SameLabels, ",")}
	if in.PodSelector != nil {
		var ok bool
		if n.Pods, ok = p.selector(field+".podSelector", in.PodSelector); !ok {
			return false
		}
	}
	r.Relative = append(r.Relative, n)
	return true
}

func (p *antreaParser) antreaPorts(field string, in *crdv1beta1.Rule, r *RuleFacts) {
	r.AnyPort = len(in.Ports) == 0 && len(in.Protocols) == 0
	understood := true
	for i, port := range in.Ports {
		field := fmt.Sprintf("%s.ports[%d]", field, i)
		named := len(r.Named)
		if !p.port(field, portFacts{port.Protocol, port.Port, port.EndPort, port.SourcePort, port.SourceEndPort}, r) {
			understood = false
		} else if len(r.Named) > named && port.SourcePort != nil {
			p.report(field+".sourcePort", reasonInvalidPort,
				"a port that is named cannot have a sourcePort, so %s: give its number",
				r.without())
			r.Named, understood = r.Named[:named], false
		}
	}
	for i, protocol := range in.Protocols {
		field := fmt.Sprintf("%s.protocols[%d]", field, i)
		switch {
		case (protocol.ICMP != nil) == (protocol.IGMP != nil):
			p.report(field, reasonInvalidProtocol, "it has to be either icmp or igmp, so %s: correct it", r.without())
			understood = false
		case protocol.ICMP != nil:
			kind, ok1 := p.octet(field+".icmp.icmpType", protocol.ICMP.ICMPType)
			code, ok2 := p.octet(field+".icmp.icmpCode", protocol.ICMP.ICMPCode)
			if understood = understood && ok1 && ok2; ok1 && ok2 {
				r.ICMP = append(r.ICMP, ICMP{kind, code})
			}
		default:
			kind, ok := p.octet(field+".igmp.igmpType", protocol.IGMP.IGMPType)
			if protocol.IGMP.IGMPType != nil {
				meant := "the rule does nothing with it"
				if r.denies() {
					meant = "the rule denies all of IGMP"
				}
				p.report(field+".igmp.igmpType", reasonNotServed,
					"switches do not distinguish the types of IGMP, so %s: leave it out", meant)
				if !r.denies() {
					continue
				}
				if ok {
					kind = Any
				}
			}
			group, err := netip.ParseAddr(protocol.IGMP.GroupAddress)
			if err != nil && protocol.IGMP.GroupAddress != "" {
				p.report(field+".igmp.groupAddress", reasonInvalidProtocol, "%q is not an address: correct it",
					protocol.IGMP.GroupAddress)
				ok = false
			}
			if understood = understood && ok; ok {
				r.IGMP = append(r.IGMP, IGMP{kind, group})
			}
		}
	}
	if !understood && r.denies() {
		r.AnyPort = true
	}
	r.Ports, r.Named = sorted(r.Ports, PortRange.Compare), sorted(r.Named, portName.Compare)
	r.ICMP, r.IGMP = sorted(r.ICMP, ICMP.Compare), sorted(r.IGMP, IGMP.Compare)
}

func (p *antreaParser) octet(field string, v *int32) (int16, bool) {
	switch {
	case v == nil:
		return Any, true
	case *v < 0 || *v > 255:
		p.report(field, reasonInvalidProtocol, "%d is not within 0 to 255: correct it", *v)
		return 0, false
	}
	return int16(*v), true
}

// GroupFacts are a group, parsed once.
type GroupFacts struct {
	Known     bool // the zero GroupFacts are no row
	Selectors []Selector
	Ranges    []Range
	Service   derive.Object // whose Pods they are, if it has a name
	Children  []string
	Broken    bool // a part is not understood
	Problems  []problem.Problem
}

// ClusterGroupFactsOf parses a ClusterGroup.
func ClusterGroupFactsOf(g *crdv1beta1.ClusterGroup) GroupFacts {
	return groupFacts(problem.Object{Kind: "ClusterGroup", Name: g.Name}, &g.Spec)
}

// GroupFactsOf parses a Group.
func GroupFactsOf(g *crdv1beta1.Group) GroupFacts {
	return groupFacts(problem.Object{Kind: "Group", Namespace: g.Namespace, Name: g.Name}, &g.Spec)
}

func groupFacts(o problem.Object, spec *crdv1beta1.GroupSpec) GroupFacts {
	p := &antreaParser{parser: parser{object: o}, key: Key{Namespace: o.Namespace}}
	f := GroupFacts{Known: true, Children: spec.ChildGroups}
	switch {
	case !exactlyOne(spec.PodSelector != nil || spec.NamespaceSelector != nil, len(spec.IPBlocks) > 0,
		spec.ServiceReference != nil, len(spec.ChildGroups) > 0, spec.ExternalEntitySelector != nil):
		p.report("spec", reasonInvalidGroup,
			"it has to be either selectors of Pods and Namespaces, or ipBlocks, or a serviceReference, or childGroups, so "+
				"nothing is in it: correct it")
		f = GroupFacts{Known: true, Broken: true}
	case spec.ExternalEntitySelector != nil:
		p.report("spec.externalEntitySelector", reasonNotServed,
			"there are no ExternalEntities, so nothing is in it: remove it")
		f.Broken = true
	case spec.ServiceReference != nil:
		f.Service = derive.Object{Namespace: p.namespaceOf(spec.ServiceReference.Namespace), Name: spec.ServiceReference.Name}
		if o.Namespace != "" && f.Service.Namespace != o.Namespace {
			p.report("spec.serviceReference.namespace", reasonInvalidGroup,
				"a Group has Pods of its own Namespace alone: correct it")
			f.Service, f.Broken = derive.Object{}, true
		}
	case len(spec.IPBlocks) > 0:
		for i, b := range spec.IPBlocks {
			block, ok := p.block(fmt.Sprintf("spec.ipBlocks[%d]", i), b.CIDR, b.Except)
			if ok {
				f.Ranges = append(f.Ranges, block)
			}
			f.Broken = f.Broken || !ok
		}
		if bound := DefaultBounds.of(o.Namespace); p.ranges > bound || len(prefixes(f.Ranges)) > bound {
			p.report("spec.ipBlocks", ReasonTooLarge,
				"they are more than %d ranges, as written or once exceptions divide them, "+
					"so they are not in the group: write larger ranges or fewer exceptions", bound)
			f.Ranges, f.Broken = nil, true
		}
	case spec.PodSelector != nil || spec.NamespaceSelector != nil:
		s, ok := p.pods("spec", spec.PodSelector, spec.NamespaceSelector)
		if ok {
			f.Selectors = []Selector{s}
		}
		f.Broken = !ok
	}
	f.Problems = p.all()
	return f
}

// members are what is in a group and the groups in it.
type members struct {
	Known     bool
	Selectors []Selector
	Ranges    []Range
	Broken    bool
}

// group finds the members of a group.
func (t *selectorTables) group(k derive.Object, r *derive.Reader) (m members, problems []problem.Problem) {
	source, kind := t.all.Groups, "Group"
	if k.Namespace == "" {
		source, kind = t.all.ClusterGroups, "ClusterGroup"
	}
	object := problem.Object{Kind: kind, Namespace: k.Namespace, Name: k.Name}
	report := func(field string, reason reasons.Reason, format string, args ...any) {
		problems = append(problems,
			problem.Problem{Object: object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
		m.Broken = true
	}
	m.Known = true
	seen := map[string]bool{}
	var add func(name string, path []string)
	add = func(name string, path []string) {
		f, ok := derive.Get(r, source, derive.Object{Namespace: k.Namespace, Name: name})
		switch {
		case !ok:
			report("spec.childGroups", ReasonUnknownGroup, "there is no %s %s, which is in %s: create it", kind, name,
				path[len(path)-1])
			return
		case slices.Contains(path, name):
			report("spec.childGroups", reasonGroupCycle, "the group contains itself, by %s: remove one of them from another",
				strings.Join(append(path, name), ", "))
			return
		case seen[name]:
			return
		}
		seen[name] = true
		m.Selectors, m.Ranges = append(m.Selectors, f.Selectors...), append(m.Ranges, f.Ranges...)
		m.Broken = m.Broken || f.Broken
		if f.Service.Name != "" {
			if text, ok := derive.Get(r, t.all.ServiceSelectors, f.Service); ok {
				m.Selectors = append(m.Selectors, Selector{Namespace: f.Service.Namespace, Pods: text})
			} else {
				report("spec.serviceReference", reasonUnknownService,
					"there is no Service %s with a selector, so the group has no Pods of it: create it", f.Service)
			}
		}
		for _, child := range f.Children {
			add(child, append(slices.Clip(path), name))
		}
	}
	add(k.Name, nil)
	m.Selectors = sorted(m.Selectors, Selector.Compare)
	if f, _ := derive.Get(r, source, k); len(f.Problems) > 0 {
		problems = append(problems, f.Problems...)
	}
	return m, problems
}

// ServiceSelectorOf is the selector of a Service in text form.
func ServiceSelectorOf(s *corev1.Service) string {
	if len(s.Spec.Selector) == 0 {
		return ""
	}
	return labels.SelectorFromSet(s.Spec.Selector).String()
}

// NodeFacts are what policies depend on of a Node.
type NodeFacts struct {
	Labels   string         // in normal form
	IPs      []netip.Addr   // the addresses of its status, sorted
	PodCIDRs []netip.Prefix // of both families, each in its normal form
	Gateways []netip.Addr   // what it reaches Pods from: the first addresses of PodCIDRs
}

// NodeFactsOf parses a Node.
func NodeFactsOf(n *corev1.Node) NodeFacts {
	f := NodeFacts{Labels: normalForm(n.Labels)}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			f.IPs = append(f.IPs, ip.Unmap())
		}
	}
	f.IPs = sorted(f.IPs, netip.Addr.Compare)
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	for _, text := range texts {
		if r, err := netip.ParsePrefix(text); err == nil {
			f.PodCIDRs = append(f.PodCIDRs, r.Masked())
			f.Gateways = append(f.Gateways, r.Masked().Addr().Next())
		}
	}
	return f
}

// service returns the Service of toServices. For a Service of the ClusterSet it returns the imported Service, by its
// derived name.
func (s ServicePeer) service() derive.Object {
	if s.ClusterSet {
		return derive.Object{Namespace: s.Namespace, Name: multicluster.ImportedPrefix + s.Name}
	}
	return s.Object
}
