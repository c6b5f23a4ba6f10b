package policy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// closed is a world with a Pod of this Node, and what a connection to and from it gets.
type closed struct {
	*world
	pod derive.Object
}

func newClosed() closed {
	w := newWorld(1)
	w.Tables.Namespaces.Set(derive.Object{Name: "x"},
		NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod"},
		Spec: corev1.PodSpec{NodeName: "node-1"}}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.10.0.2"}}
	w.Sources.Pods.Set(derive.ObjectOf(pod), PodFactsOf(pod))
	return closed{w, derive.ObjectOf(pod)}
}

// asks returns what becomes of a connection, and the problems.
func (c closed) asks(d Direction) (Verdict, string) {
	c.engine.Pass()
	var problems []string
	for _, p := range c.engine.Problems() {
		problems = append(problems, p.String())
	}
	in := Connection{From: c.Walk.Addresses["node-1"][4], To: c.Walk.Addresses["node-1"][0], Protocol: corev1.ProtocolTCP,
		Port: 80}
	if d == Egress {
		in.From, in.To = in.To, in.From
	}
	return c.Decide(c.pod, d, in), strings.Join(problems, "\n")
}

// TestNotUnderstood checks the message for each part of a rule with a fault, or that is not served. A rule that denies
// denies whatever the part could have meant. A rule that allows has no effect, so the next rule decides.
func TestNotUnderstood(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	none := []crdv1beta1.Peer{{IPBlock: &crdv1beta1.IPBlock{CIDR: "192.0.2.1/32"}}} // does not match
	with := func(p crdv1beta1.Peer) crdv1beta1.Rule { return crdv1beta1.Rule{To: append(none, p)} }
	for _, row := range []struct {
		name, want string
		rule       crdv1beta1.Rule
	}{
		{"CIDR", `spec.egress[0].to[1].ipBlock.cidr: "x" is not a range`,
			with(crdv1beta1.Peer{IPBlock: &crdv1beta1.IPBlock{CIDR: "x"}})},
		{"two kinds", "spec.egress[0].to[1]: it has to be either", with(crdv1beta1.Peer{Group: "g", FQDN: "a.b"})},
		{"nothing", "spec.egress[0].to[1]: it has to be either", with(crdv1beta1.Peer{})},
		{"selector", `spec.egress[0].to[1].podSelector: "Near" is not a valid`, with(crdv1beta1.Peer{PodSelector: bad})},
		{"Namespaces and their selector", "spec.egress[0].to[1]: it has to be either",
			with(crdv1beta1.Peer{NamespaceSelector: &metav1.LabelSelector{},
				Namespaces: &crdv1beta1.PeerNamespaces{Match: "Self"}})},
		{"no relation", "spec.egress[0].to[1].namespaces: it has to be either match Self",
			with(crdv1beta1.Peer{Namespaces: &crdv1beta1.PeerNamespaces{}})},

		{"unknown group", "spec.egress[0]: there is no ClusterGroup g", with(crdv1beta1.Peer{Group: "g"})},
		{"account", "spec.egress[0].to[1].serviceAccount.namespace: the Namespace is missing",
			with(crdv1beta1.Peer{ServiceAccount: &crdv1beta1.ObjectReference{Name: "a"}})},
		{"Service", "spec.egress[0].toServices[0].namespace: the Namespace is missing",
			crdv1beta1.Rule{To: none, ToServices: []crdv1beta1.ServiceReference{{Name: "a"}}}},
		{"layer 7", "spec.egress[0].l7Protocols: packets are not looked into",
			crdv1beta1.Rule{L7Protocols: make([]crdv1beta1.Refused, 1)}},
		{"Nodes", "spec.egress[0]: toNodes, to and toServices", crdv1beta1.Rule{ToNodes: make([]crdv1beta1.Refused, 1)}},
		{"port", "spec.egress[0].ports[0]: ports 0 to 0",
			crdv1beta1.Rule{Ports: []crdv1beta1.Port{{Port: new(intstr.FromInt32(0))}}}},
		{"source of a name", "spec.egress[0].ports[0].sourcePort: a port that is named",
			crdv1beta1.Rule{Ports: []crdv1beta1.Port{{Port: new(intstr.FromString("a")), SourcePort: new(int32(1))}}}},
		{"ICMP", "spec.egress[0].protocols[0].icmp.icmpType: 256 is not within",
			crdv1beta1.Rule{Protocols: []crdv1beta1.Protocol{{ICMP: &crdv1beta1.ICMP{ICMPType: new(int32(256))}}}}},
		{"no protocol", "spec.egress[0].protocols[0]: it has to be either icmp or igmp",
			crdv1beta1.Rule{Protocols: []crdv1beta1.Protocol{{}}}},
	} {
		for _, action := range []crdv1beta1.Action{crdv1beta1.ActionReject, crdv1beta1.ActionAllow} {
			t.Run(row.name+"/"+string(action), func(t *testing.T) {
				c := newClosed()
				n := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
				row.rule.Action = action
				n.Spec = crdv1beta1.PolicySpec{Priority: 5,
					AppliedTo: []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}},
					Egress:    []crdv1beta1.Rule{row.rule, {Action: crdv1beta1.ActionDrop}}}
				c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(n), AntreaClusterFactsOf(n))
				v, problems := c.asks(Egress)
				verdicts := map[crdv1beta1.Action]Action{crdv1beta1.ActionReject: Reject, crdv1beta1.ActionAllow: Drop}
				if want := verdicts[action]; v.Action != want {
					t.Errorf("%s, want %s: %+v", v.Action, want, v)
				}
				if want := "AntreaClusterNetworkPolicy p: " + row.want; !strings.Contains(problems, want) {
					t.Errorf("problems %q, want %q", problems, want)
				}
			})
		}
	}
}

// TestUnknownTier keeps what denies, and lets nothing in.
func TestUnknownTier(t *testing.T) {
	c := newClosed()
	n := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
	n.Spec = crdv1beta1.PolicySpec{Tier: "late", Priority: 5,
		AppliedTo: []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}},
		Ingress:   []crdv1beta1.Rule{{Action: crdv1beta1.ActionAllow}, {Action: crdv1beta1.ActionDrop}}}
	c.Sources.Policies[AntreaNetworkPolicy].Set(derive.ObjectOf(n), AntreaFactsOf(n))
	if v, problems := c.asks(Ingress); v.Action != Drop ||
		!strings.Contains(problems, "AntreaNetworkPolicy x/p: spec.tier: there is no Tier late") {
		t.Errorf("%+v, %s", v, problems)
	}
	c.Tiers.Set(derive.Object{Name: "late"}, TierFactsOf(&crdv1beta1.Tier{Spec: crdv1beta1.TierSpec{Priority: 0}}))
	if v, problems := c.asks(Ingress); v.Action != Allow || problems != "" || v.Stage != Admin {
		t.Errorf("with the Tier: %+v, %s", v, problems)
	}
}

// TestGroupCycle names the groups that contain each other, and keeps what else is in them.
func TestGroupCycle(t *testing.T) {
	c := newClosed()
	for _, g := range []struct{ name, child string }{{"a", "b"}, {"b", "a"}} {
		o := &crdv1beta1.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Name: g.name},
			Spec: crdv1beta1.GroupSpec{ChildGroups: []string{g.child, "c"}}}
		c.ClusterGroups.Set(derive.ObjectOf(o), ClusterGroupFactsOf(o))
	}
	all := &crdv1beta1.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: crdv1beta1.GroupSpec{PodSelector: &metav1.LabelSelector{}}}
	c.ClusterGroups.Set(derive.ObjectOf(all), ClusterGroupFactsOf(all))
	n := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	n.Spec = crdv1beta1.PolicySpec{Priority: 5, AppliedTo: []crdv1beta1.AppliedTo{{Group: "a"}},
		Ingress: []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop}}}
	c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(n), AntreaClusterFactsOf(n))
	v, problems := c.asks(Ingress)
	if v.Action != Drop ||
		!strings.Contains(problems, "ClusterGroup a: spec.childGroups: the group contains itself, by a, b, a") {
		t.Errorf("%+v, %s", v, problems)
	}
}

// TestLaterVersion has a ClusterNetworkPolicy of a version with more features: as the specification requires, Accept
// then has no effect, and Deny and Pass deny everything.
func TestLaterVersion(t *testing.T) {
	for action, want := range map[npv1alpha2.ClusterNetworkPolicyRuleAction]Action{"Accept": Allow, "Deny": Drop,
		"Pass": Drop} {
		for name, rule := range map[string]npv1alpha2.ClusterNetworkPolicyIngressRule{
			"peer": {From: []npv1alpha2.ClusterNetworkPolicyIngressPeer{{}}},
			"protocol": {From: []npv1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
				Protocols: []npv1alpha2.ClusterNetworkPolicyProtocol{{}}},
		} {
			c := newClosed()
			n := &npv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			rule.Action = action
			n.Spec = npv1alpha2.ClusterNetworkPolicySpec{Tier: npv1alpha2.AdminTier,
				Subject: npv1alpha2.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
				Ingress: []npv1alpha2.ClusterNetworkPolicyIngressRule{rule}}
			c.Sources.Policies[ClusterNetworkPolicy].Set(derive.ObjectOf(n), ClusterFactsOf(n))
			if v, problems := c.asks(Ingress); v.Action != want || (v.Rule == nil) != (action == "Accept") ||
				!strings.Contains(problems, "ClusterNetworkPolicy p: spec.ingress[0]") {
				t.Errorf("%s of an unknown %s: %+v, %s", action, name, v, problems)
			}
		}
	}
}

// TestForeignAccount applies a NetworkPolicy to a ServiceAccount of another Namespace, which API servers refuse. It
// applies to no Pod there, and to its own Namespace's Pods as written.
func TestForeignAccount(t *testing.T) {
	for namespace, want := range map[string]Action{"elsewhere": Allow, "x": Drop} {
		c := newClosed()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod"},
			Spec: corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "builder"}}
		pod.Status.PodIPs = []corev1.PodIP{{IP: "10.10.0.2"}}
		c.Sources.Pods.Set(derive.ObjectOf(pod), PodFactsOf(pod))
		n := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
		n.Spec = crdv1beta1.PolicySpec{
			Priority: 5, AppliedTo: []crdv1beta1.AppliedTo{{ServiceAccount: &crdv1beta1.ObjectReference{Namespace: "x",
				Name: "builder"}}},
			Ingress: []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop}},
		}
		c.Sources.Policies[AntreaNetworkPolicy].Set(derive.ObjectOf(n), AntreaFactsOf(n))
		if v, _ := c.asks(Ingress); v.Action != want {
			t.Errorf("a policy of Namespace %s: %+v, want %s", namespace, v, want)
		}
	}
}
