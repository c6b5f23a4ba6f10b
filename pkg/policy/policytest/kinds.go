package policytest

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Others are the objects of all other kinds. The key is "namespace/name", or the name for kinds without a Namespace.
type Others struct {
	Nodes           map[string]*corev1.Node
	Services        map[string]*corev1.Service
	Antrea          map[string]*crdv1beta1.NetworkPolicy
	AntreaCluster   map[string]*crdv1beta1.ClusterNetworkPolicy
	Tiers           map[string]*crdv1beta1.Tier
	Groups          map[string]*crdv1beta1.Group
	ClusterGroups   map[string]*crdv1beta1.ClusterGroup
	Cluster         map[string]*npv1alpha2.ClusterNetworkPolicy
	LabelIdentities map[string]*mcv1alpha1.LabelIdentity
	PodAddresses    map[string]*mcv1alpha1.PodAddressImport
}

// Answers.
const (
	allow  = "Allow"
	drop   = "Drop"
	reject = "Reject"
	pass   = "Pass"
)

// decision is a rule that is about a connection.
type decision struct {
	tier     int
	priority float64
	index    int
	action   string
}

// before compares two decisions; the smaller one has precedence. Specifications do not order two policies of equal
// priority. Here, of rules with the same index, the stricter one comes first.
func before(a, b decision) int {
	strict := []string{drop, reject, pass, allow}
	return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.priority, b.priority), cmp.Compare(a.index, b.index),
		cmp.Compare(slices.Index(strict, a.action), slices.Index(strict, b.action)))
}

// Judge returns the decision about a connection that enters a Pod or, with egress, leaves it: Allow, Drop or Reject.
func (c Cluster) Judge(pod *corev1.Pod, egress bool, conn Connection) string {
	a := asked{c, pod, egress, conn, conn.From, c.beyond(pod.Spec.NodeName, pod.Namespace)}
	if egress {
		a.peer = conn.To
	}
	if a.unknown() {
		return drop
	}
	all := slices.Concat(a.antrea(), a.cluster())
	slices.SortStableFunc(all, before)
	first := func(from, to int) string {
		for _, d := range all {
			if d.tier >= from && d.tier <= to {
				return d.action
			}
		}
		return ""
	}
	if action := first(0, 252); action != "" && action != pass {
		return action
	}
	if allowed, isolated := c.networkPolicies(pod, egress, conn, a.over); isolated {
		if allowed {
			return allow
		}
		return drop
	}
	if action := first(253, 255); action != "" && action != pass {
		return action
	}
	return allow
}

// asked is a question.
type asked struct {
	Cluster
	pod    *corev1.Pod
	egress bool
	conn   Connection
	peer   netip.Addr
	over   map[ruleOf]bool // the rules beyond a limit
}

// beyondLimit reports whether a rule is beyond a limit. If widened is set, the rule then denies everything.
func (a asked) beyondLimit(kind int, namespace, name string, index int) (widened, over bool) {
	widened, over = a.over[ruleOf{kind, namespace, name, a.egress, index}]
	return widened, over
}

// in reports whether labels selectors select a Pod; nil selects all.
func (c Cluster) in(pod *corev1.Pod, pods, namespaces *metav1.LabelSelector) bool {
	n := c.Namespaces[pod.Namespace]
	return n != nil && (pods == nil || selects(*pods, pod.Labels)) &&
		(namespaces == nil || selects(*namespaces, c.spaceLabels(pod.Namespace)))
}

// spaceLabels returns the labels of a Namespace, with the label of its name, which API servers set.
func (c Cluster) spaceLabels(name string) map[string]string {
	out := map[string]string{corev1.LabelMetadataName: name}
	for k, v := range c.Namespaces[name].Labels {
		out[k] = v
	}
	return out
}

// tierOf is the priority of a Tier; of an unknown one that of application, and false.
func (c Cluster) tierOf(name string) (int, bool) {
	switch name {
	case "":
		return 250, true
	case "Emergency", "SecurityOps", "NetworkOps", "Platform", "Application", "Baseline":
		name = strings.ToLower(name)
	}
	if p, ok := map[string]int{"emergency": 50, "securityops": 100, "networkops": 150, "platform": 200, "application": 250,
		"baseline": 253}[name]; ok {
		return p, true
	}
	if t := c.Tiers[name]; t != nil {
		return int(t.Spec.Priority), true
	}
	return 250, false
}

// antrea are the decisions of Antrea-native policies.
func (a asked) antrea() (out []decision) {
	add := func(kind int, namespace, name string, spec *crdv1beta1.PolicySpec) {
		tier, known := a.tierOf(spec.Tier)
		rules := spec.Ingress
		if a.egress {
			rules = spec.Egress
		}
		for i, r := range rules {
			d := decision{tier, spec.Priority, i, string(r.Action)}
			if d.action == "Deny" {
				d.action = drop
			}
			if !known && (d.action == allow || d.action == pass) {
				continue
			}
			widened, over := a.beyondLimit(kind, namespace, name, i)
			if over {
				if d.action == pass {
					d.action = drop
				}
				if widened && a.applied(namespace, slices.Concat(spec.AppliedTo, r.AppliedTo)) {
					out = append(out, d)
				}
				continue
			}
			if a.applied(namespace, slices.Concat(spec.AppliedTo, r.AppliedTo)) && a.antreaPeers(namespace, &r, d.action) &&
				a.antreaPorts(&r) {
				out = append(out, d)
			}
		}
	}
	for _, p := range a.Antrea {
		add(kindAntrea, p.Namespace, p.Name, &p.Spec)
	}
	for _, p := range a.AntreaCluster {
		add(kindAntreaCluster, "", p.Name, &p.Spec)
	}
	return out
}

// unknown reports whether the client is a Pod of another cluster that has no number yet, and a rule about such Pods is
// applied.
func (a asked) unknown() bool {
	if a.egress || a.conn.ClusterSet != 1<<24-1 {
		return false
	}
	about := func(kind int, namespace, name string, spec *crdv1beta1.PolicySpec) bool {
		_, known := a.tierOf(spec.Tier)
		index := -1
		return slices.ContainsFunc(spec.Ingress, func(r crdv1beta1.Rule) bool {
			index++
			_, over := a.beyondLimit(kind, namespace, name, index)
			void := !known && (string(r.Action) == allow || string(r.Action) == pass)
			return !void && !over && a.applied(namespace, slices.Concat(spec.AppliedTo, r.AppliedTo)) &&
				slices.ContainsFunc(r.From, func(p crdv1beta1.Peer) bool { return p.Scope == crdv1beta1.ScopeClusterSet })
		})
	}
	for _, p := range a.Antrea {
		if about(kindAntrea, p.Namespace, p.Name, &p.Spec) {
			return true
		}
	}
	for _, p := range a.AntreaCluster {
		if about(kindAntreaCluster, "", p.Name, &p.Spec) {
			return true
		}
	}
	return false
}

func (a asked) applied(namespace string, list []crdv1beta1.AppliedTo) bool {
	if namespace != "" && a.pod.Namespace != namespace {
		return false
	}
	return slices.ContainsFunc(list, func(s crdv1beta1.AppliedTo) bool {
		switch {
		case s.Group != "":
			inside, _, _ := a.inGroup(namespace, s.Group, a.pod, netip.Addr{}, nil)
			return inside
		case s.ServiceAccount != nil:
			return a.runsWith(a.pod, namespace, s.ServiceAccount)
		}
		return a.in(a.pod, s.PodSelector, s.NamespaceSelector)
	})
}

func (a asked) runsWith(pod *corev1.Pod, namespace string, account *crdv1beta1.ObjectReference) bool {
	return a.Namespaces[pod.Namespace] != nil && pod.Namespace == cmp.Or(account.Namespace, namespace) &&
		pod.Spec.ServiceAccountName == account.Name
}

// inGroup reports whether a Pod is in a group, or an address in one of its ranges, and whether the whole group is
// without faults.
func (a asked) inGroup(namespace, name string, pod *corev1.Pod, address netip.Addr, path []string) (podIn, addressIn,
	understood bool) {
	var spec *crdv1beta1.GroupSpec
	if g := a.Groups[namespace+"/"+name]; namespace != "" && g != nil {
		spec = &g.Spec
	} else if g := a.ClusterGroups[name]; namespace == "" && g != nil {
		spec = &g.Spec
	}
	if spec == nil || slices.Contains(path, name) {
		return false, false, false
	}
	understood = true
	for _, b := range spec.IPBlocks {
		addressIn = addressIn || inBlock(&b, address)
	}
	if spec.PodSelector != nil || spec.NamespaceSelector != nil {
		podIn = pod != nil && (namespace == "" || spec.NamespaceSelector != nil || pod.Namespace == namespace) &&
			a.in(pod, spec.PodSelector, spec.NamespaceSelector)
	}
	if r := spec.ServiceReference; r != nil {
		service := a.Services[cmp.Or(r.Namespace, namespace)+"/"+r.Name]
		if service == nil || len(service.Spec.Selector) == 0 {
			return false, false, false
		}
		podIn = pod != nil && a.Namespaces[pod.Namespace] != nil && pod.Namespace == service.Namespace &&
			selects(metav1.LabelSelector{MatchLabels: service.Spec.Selector}, pod.Labels)
	}
	for _, child := range spec.ChildGroups {
		p, r, u := a.inGroup(namespace, child, pod, address, append(slices.Clone(path), name))
		podIn, addressIn, understood = podIn || p, addressIn || r, understood && u
	}
	return podIn, addressIn, understood
}

// groupSelects reports whether a group has members by their labels.
func (a asked) groupSelects(namespace, name string, path ...string) bool {
	var spec *crdv1beta1.GroupSpec
	if g := a.Groups[namespace+"/"+name]; namespace != "" && g != nil {
		spec = &g.Spec
	} else if g := a.ClusterGroups[name]; namespace == "" && g != nil {
		spec = &g.Spec
	}
	if spec == nil || slices.Contains(path, name) {
		return false
	}
	return spec.PodSelector != nil || spec.NamespaceSelector != nil || spec.ServiceReference != nil ||
		slices.ContainsFunc(spec.ChildGroups,
			func(child string) bool { return a.groupSelects(namespace, child, append(slices.Clone(path), name)...) })
}

func inBlock(b *crdv1beta1.IPBlock, a netip.Addr) bool {
	inside := func(text string) bool { return netip.MustParsePrefix(text).Contains(a) }
	return inside(b.CIDR) && !slices.ContainsFunc(b.Except, inside)
}

func (a asked) antreaPeers(namespace string, r *crdv1beta1.Rule, action string) bool {
	peers := r.From
	if a.egress {
		peers = r.To
	}
	if len(peers) == 0 && len(r.ToServices) == 0 {
		return true
	}
	other := a.At(a.peer)
	denies := action == drop || action == reject
	unknown := denies && a.UnknownPod(a.peer) // it may have any labels
	for _, p := range peers {
		switch {
		case p.IPBlock != nil:
			if inBlock(p.IPBlock, a.peer) {
				return true
			}
		case p.Group != "":
			podIn, addressIn, understood := a.inGroup(namespace, p.Group, other, a.peer, nil)
			if podIn || addressIn || !understood && denies || unknown && a.groupSelects(namespace, p.Group) {
				return true
			}
		case p.ServiceAccount != nil:
			if unknown || other != nil && a.runsWith(other, namespace, p.ServiceAccount) {
				return true
			}
		case p.NodeSelector != nil:
			if a.isNode(*p.NodeSelector, true) {
				return true
			}
		case p.FQDN != "": // no Pod has asked DNS for a name
		case p.Namespaces != nil:
			if unknown && a.related(p.Namespaces, a.pod.Namespace) || other != nil && a.in(other, p.PodSelector, nil) &&
				a.related(p.Namespaces, other.Namespace) {
				return true
			}
		default:
			if unknown || other != nil && (namespace == "" || p.NamespaceSelector != nil || other.Namespace == namespace) &&
				a.in(other, p.PodSelector, p.NamespaceSelector) {
				return true
			}
			if p.Scope == crdv1beta1.ScopeClusterSet && a.ofClusterSet(namespace, p) {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.ToServices, func(s crdv1beta1.ServiceReference) bool {
		name := s.Name
		if s.Scope == crdv1beta1.ScopeClusterSet {
			name = "antrea-mc-" + name
		}
		return a.conn.Service == derive.Object{Namespace: cmp.Or(s.Namespace, namespace), Name: name}
	})
}

// related reports whether a Namespace is the Pod's own, or has the same labels.
func (a asked) related(n *crdv1beta1.PeerNamespaces, namespace string) bool {
	if n.Match == crdv1beta1.MatchSelf {
		return namespace == a.pod.Namespace
	}
	own, other := a.spaceLabels(a.pod.Namespace), a.spaceLabels(namespace)
	return !slices.ContainsFunc(n.SameLabels, func(key string) bool {
		value, has := own[key]
		there, hasThere := other[key]
		return !has || !hasThere || value != there
	})
}

// server returns the name of the LabelIdentity of the Pod with the server's address in another cluster, or "".
func (a asked) server() string {
	found := map[string]bool{}
	for _, block := range a.PodAddresses {
		for _, pods := range block.Spec.Pods {
			if slices.Contains(pods.Addresses, a.peer.String()) {
				found[pods.LabelIdentity] = true
			}
		}
	}
	for name := range found {
		if inside, _ := a.inPodCIDR(a.peer); len(found) == 1 && a.At(a.peer) == nil && !inside {
			return name
		}
	}
	return ""
}

// ofClusterSet asks the labels of the client's number, or of the server's address.
func (a asked) ofClusterSet(namespace string, p crdv1beta1.Peer) bool {
	server := ""
	if a.egress {
		server = a.server()
	}
	for name, l := range a.LabelIdentities {
		if a.egress && name != server || !a.egress && l.Spec.ID != a.conn.ClusterSet {
			continue
		}
		text, pod, _ := strings.Cut(strings.TrimPrefix(l.Spec.Label, "ns:"), "&pod:")
		labels := func(text string) map[string]string {
			out := map[string]string{}
			for pair := range strings.SplitSeq(text, ",") {
				if k, v, ok := strings.Cut(pair, "="); ok {
					out[k] = v
				}
			}
			return out
		}
		spaces := labels(text)
		if (namespace == "" || p.NamespaceSelector != nil || spaces[corev1.LabelMetadataName] == namespace) &&
			(p.PodSelector == nil || selects(*p.PodSelector, labels(pod))) &&
			(p.NamespaceSelector == nil || selects(*p.NamespaceSelector, spaces)) {
			return true
		}
	}
	return false
}

// isNode reports whether the other end is a Node. For Antrea's policies, the address from which a Node reaches Pods
// also belongs to it.
func (a asked) isNode(s metav1.LabelSelector, gateway bool) bool {
	for _, n := range a.Nodes {
		if !selects(s, n.Labels) {
			continue
		}
		for _, ip := range n.Status.Addresses {
			if ip.Address == a.peer.String() {
				return true
			}
		}
		for _, r := range n.Spec.PodCIDRs {
			if gateway && netip.MustParsePrefix(r).Addr().Next() == a.peer {
				return true
			}
		}
	}
	return false
}

func (a asked) antreaPorts(r *crdv1beta1.Rule) bool {
	if len(r.Ports) == 0 && len(r.Protocols) == 0 {
		return true
	}
	for _, p := range r.Protocols {
		switch {
		case p.ICMP != nil && a.conn.Protocol == "ICMP":
			if (p.ICMP.ICMPType == nil || *p.ICMP.ICMPType == int32(a.conn.Port/256)) &&
				(p.ICMP.ICMPCode == nil || *p.ICMP.ICMPCode == int32(a.conn.Port%256)) {
				return true
			}
		case p.IGMP != nil && a.conn.Protocol == "IGMP":
			anyType := a.conn.Port == UnknownType && r.Action != allow && r.Action != pass
			if (p.IGMP.IGMPType == nil || *p.IGMP.IGMPType == int32(a.conn.Port) || anyType) &&
				(p.IGMP.GroupAddress == "" || p.IGMP.GroupAddress == a.conn.To.String()) {
				return true
			}
		}
	}
	for _, p := range r.Ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if p.SourcePort != nil {
			last := *p.SourcePort
			if p.SourceEndPort != nil {
				last = *p.SourceEndPort
			}
			if int32(a.conn.SourcePort) < *p.SourcePort || int32(a.conn.SourcePort) > last {
				continue
			}
		}
		if protocol == a.conn.Protocol && a.port(p.Port, p.EndPort, r.Action != allow && r.Action != pass) {
			return true
		}
	}
	return false
}

// port reports whether a rule's port matches. nil matches every port. A name stands for the destination Pod's port of
// that name.
func (a asked) port(port *intstr.IntOrString, end *int32, denies bool) bool {
	switch {
	case port == nil:
		return true
	case port.Type == intstr.String:
		return a.called(port.StrVal, denies)
	case end != nil:
		return int32(a.conn.Port) >= port.IntVal && int32(a.conn.Port) <= *end
	}
	return int32(a.conn.Port) == port.IntVal
}

// called reports whether the destination Pod has a port of this name. For a rule that denies, an unknown Pod counts as
// having it.
func (a asked) called(name string, denies bool) bool {
	pod := a.At(a.conn.To)
	if denies && a.egress && a.UnknownPod(a.conn.To) {
		return slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP},
			a.conn.Protocol)
	}
	if pod == nil {
		return false
	}
	n, ok := Called(pod, name, a.conn.Protocol)
	return ok && n == int32(a.conn.Port)
}

// cluster are the decisions of SIG Network's ClusterNetworkPolicies.
func (a asked) cluster() (out []decision) {
	actions := map[npv1alpha2.ClusterNetworkPolicyRuleAction]string{"Accept": allow, "Deny": drop, "Pass": pass}
	for _, p := range a.Others.Cluster {
		if !a.selected(a.pod, p.Spec.Subject.Namespaces, p.Spec.Subject.Pods) {
			continue
		}
		tier := map[npv1alpha2.Tier]int{"Admin": 251, "Baseline": 254}[p.Spec.Tier]
		within := func(i int, action string) bool {
			widened, over := a.beyondLimit(kindCluster, "", p.Name, i)
			if widened && action == pass {
				action = drop
			}
			if widened {
				out = append(out, decision{tier, float64(p.Spec.Priority), i, action})
			}
			return !over
		}
		if a.egress {
			for i, r := range p.Spec.Egress {
				denies := actions[r.Action] == drop
				if within(i, actions[r.Action]) && a.clusterTo(r.To, denies) && a.protocols(r.Protocols, denies) {
					out = append(out, decision{tier, float64(p.Spec.Priority), i, actions[r.Action]})
				}
			}
			continue
		}
		for i, r := range p.Spec.Ingress {
			other, unknown := a.At(a.peer), actions[r.Action] == drop && a.UnknownPod(a.peer)
			if within(i, actions[r.Action]) &&
				slices.ContainsFunc(r.From, func(p npv1alpha2.ClusterNetworkPolicyIngressPeer) bool {
					return unknown || other != nil && a.selected(other, p.Namespaces, p.Pods)
				}) && a.protocols(r.Protocols, actions[r.Action] == drop) {
				out = append(out, decision{tier, float64(p.Spec.Priority), i, actions[r.Action]})
			}
		}
	}
	return out
}

func (a asked) selected(pod *corev1.Pod, namespaces *metav1.LabelSelector, pods *npv1alpha2.NamespacedPod) bool {
	if pods != nil {
		return a.in(pod, &pods.PodSelector, &pods.NamespaceSelector)
	}
	return a.in(pod, nil, namespaces)
}

func (a asked) clusterTo(list []npv1alpha2.ClusterNetworkPolicyEgressPeer, denies bool) bool {
	other, unknown := a.At(a.peer), denies && a.UnknownPod(a.peer)
	return slices.ContainsFunc(list, func(p npv1alpha2.ClusterNetworkPolicyEgressPeer) bool {
		switch {
		case p.Nodes != nil:
			return a.isNode(*p.Nodes, false)
		case p.Networks != nil:
			return slices.ContainsFunc(p.Networks,
				func(n npv1alpha2.CIDR) bool { return netip.MustParsePrefix(string(n)).Contains(a.peer) })
		}
		return unknown || other != nil && a.selected(other, p.Namespaces, p.Pods)
	})
}

func (a asked) protocols(list []npv1alpha2.ClusterNetworkPolicyProtocol, denies bool) bool {
	inside := func(p *npv1alpha2.Port) bool {
		switch {
		case p == nil:
			return true
		case p.Range != nil:
			return int32(a.conn.Port) >= p.Range.Start && int32(a.conn.Port) <= p.Range.End
		}
		return int32(a.conn.Port) == p.Number
	}
	return len(list) == 0 || slices.ContainsFunc(list, func(p npv1alpha2.ClusterNetworkPolicyProtocol) bool {
		switch {
		case p.TCP != nil:
			return a.conn.Protocol == corev1.ProtocolTCP && inside(p.TCP.DestinationPort)
		case p.UDP != nil:
			return a.conn.Protocol == corev1.ProtocolUDP && inside(p.UDP.DestinationPort)
		case p.SCTP != nil:
			return a.conn.Protocol == corev1.ProtocolSCTP && inside(p.SCTP.DestinationPort)
		}
		return a.called(p.DestinationNamedPort, denies)
	})
}
