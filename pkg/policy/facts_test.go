package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestBadParts checks that the message names each part with a fault, and that the part allows nothing, while the Pods
// stay isolated.
func TestBadParts(t *testing.T) {
	good := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/24"}}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	for _, row := range []struct {
		name, want string
		peer       networkingv1.NetworkPolicyPeer
		port       *networkingv1.NetworkPolicyPort
	}{
		{name: "no peer", want: "spec.ingress[0].from[0]: there is no podSelector"},
		{name: "two kinds", peer: networkingv1.NetworkPolicyPeer{IPBlock: good.IPBlock, PodSelector: &metav1.LabelSelector{}},
			want: "spec.ingress[0].from[0]: ipBlock stands next to a selector"},
		{name: "CIDR", peer: networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/33"}},
			want: `spec.ingress[0].from[0].ipBlock.cidr: "10.0.0.0/33" is not a range`},
		{name: "except",
			peer: networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"x"}}},
			want: `spec.ingress[0].from[0].ipBlock.except[0]: nothing of 0.0.0.0/0 is selected: "x" is not a range`},
		{name: "IPv4 as IPv6",
			peer: networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "::ffff:10.1.0.0/112"}},
			want: "spec.ingress[0].from[0].ipBlock.cidr: ::ffff:10.1.0.0/112 is a range of IPv4 in the form of IPv6, " +
				"which no packet has: write 10.1.0.0/16"},
		{name: "Pods", peer: networkingv1.NetworkPolicyPeer{PodSelector: bad},
			want: `spec.ingress[0].from[0].podSelector: "Near" is not a valid`},
		{name: "Namespaces", peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: bad},
			want: `spec.ingress[0].from[0].namespaceSelector: "Near" is not a valid`},
		{name: "protocol", peer: good, port: &networkingv1.NetworkPolicyPort{Protocol: new(corev1.Protocol("ICMP"))},
			want: `spec.ingress[0].ports[0].protocol: protocol "ICMP" is not one of`},
		{name: "port", peer: good, port: &networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(0))},
			want: "spec.ingress[0].ports[0]: ports 0 to 0 are not within 1 to 65535"},
		{name: "range", peer: good, port: &networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(90)),
			EndPort: new(int32(80))}, want: "spec.ingress[0].ports[0]: ports 90 to 80 are not"},
		{name: "range without a first port", peer: good, port: &networkingv1.NetworkPolicyPort{EndPort: new(int32(80))},
			want: "spec.ingress[0].ports[0].endPort: endPort is given without port"},
		{name: "range from a name", peer: good, port: &networkingv1.NetworkPolicyPort{Port: new(intstr.FromString("web")),
			EndPort: new(int32(80))}, want: `spec.ingress[0].ports[0].endPort: endPort stands next to the name "web"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(1)
			n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
			rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{row.peer}}
			if row.port != nil {
				rule.Ports = []networkingv1.NetworkPolicyPort{*row.port}
			}
			n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{rule}
			f := FactsOf(n)
			if len(f.Problems) != 1 || !strings.Contains(f.Problems[0].String(), row.want) ||
				f.Problems[0].Object.String() != "NetworkPolicy x/p" {
				t.Fatalf("problems %v, want one with %q", f.Problems, row.want)
			}
			w.Sources.Policies[NetworkPolicy].Set(derive.ObjectOf(n), f)
			w.Sources.Namespaces.Set(derive.Object{Name: "x"},
				NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod"},
				Spec: corev1.PodSpec{NodeName: "node-1"}}
			pod.Status.PodIPs = []corev1.PodIP{{IP: "10.10.0.2"}}
			w.Sources.Pods.Set(derive.ObjectOf(pod), PodFactsOf(pod))
			w.engine.Pass()
			own := netip.MustParseAddr("10.10.0.2")
			c := Connection{From: w.address(own), To: own, Protocol: corev1.ProtocolTCP, Port: 80}
			if v := w.Decide(derive.ObjectOf(pod), Ingress, c); v.Allowed || v.Stage != NetworkPolicies ||
				len(v.Steps[NetworkPolicies].Policies) != 1 {
				t.Errorf("a connection is allowed: %+v", v)
			}
			if v := w.Decide(derive.ObjectOf(pod), Egress, c); !v.Allowed {
				t.Error("the Pod is isolated for egress as well")
			}
			if diff := cmp.Diff(f.Problems, w.engine.Problems()); diff != "" {
				t.Errorf("problems that are reported (-want +have):\n%s", diff)
			}
		})
	}
}

// TestUnknownAppliedTo leaves out a policy whose appliedTo has a fault.
func TestUnknownAppliedTo(t *testing.T) {
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
	n.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}
	if f := FactsOf(n); f.Ingress != nil || len(f.Problems) != 1 || f.Problems[0].Field != "spec.podSelector" {
		t.Errorf("%+v", f)
	}
}

// TestNormalForm checks the form that clusters exchange: sorted, without names except names that are labels.
func TestNormalForm(t *testing.T) {
	have := identityOf(
		NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop",
			Labels: map[string]string{"team": "a"}}}), normalForm(map[string]string{"tier": "web", "app": ""}), "")
	if want := Identity("ns:kubernetes.io/metadata.name=shop,team=a&pod:app=,tier=web"); have != want {
		t.Errorf("%q, want %q", have, want)
	}
	set := have.labels()
	if diff := cmp.Diff(map[string]string{"tier": "web", "app": ""}, map[string]string(set.pod)); diff != "" ||
		set.namespaceName() != "shop" || set.namespace["team"] != "a" {
		t.Errorf("%+v", set)
	}
}

// TestCost counts what one change evaluates in a cluster of 200 Namespaces.
func TestCost(t *testing.T) {
	e := derive.New()
	tables := NewTables(e, "node-1", nil)
	tables.Nodes.Set(derive.Object{Name: "node-3"},
		NodeFacts{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}})
	pod := func(namespace, name, app, node, ip string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{NodeName: node}}
		p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
		tables.Pods.Set(derive.ObjectOf(p), PodFactsOf(p))
	}
	policy := func(namespace, name string) {
		n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}}}}}
		tables.Policies[NetworkPolicy].Set(derive.ObjectOf(n), FactsOf(n))
	}
	names := make([]string, 200)
	for i := range names {
		names[i] = string(rune('a'+i/26)) + string(rune('a'+i%26))
		tables.Namespaces.Set(derive.Object{Name: names[i]},
			NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}))
		for j, app := range []string{"client", "server", "other"} {
			pod(names[i], app, app, []string{"node-2", "node-1", "node-2"}[j],
				strings.Join([]string{"10.10", string(rune('0' + j)), "0"}, ".")+string(rune('0'+i%10)))
		}
		policy(names[i], "p")
	}
	tables.Loaded()
	e.Pass()
	for _, row := range []struct {
		name   string
		change func()
		want   int
	}{
		{"nothing", func() { policy(names[5], "p") }, 0},
		{"a Pod elsewhere that a rule names", func() { pod(names[5], "client-2", "client", "node-3", "10.20.0.1") }, 2},
		{"a Pod elsewhere that no rule names", func() { pod(names[5], "other-2", "other", "node-3", "10.20.0.2") }, 2},
		{"a Pod with new labels", func() { pod(names[5], "new", "new", "node-3", "10.20.0.3") }, 4},
		{"a policy", func() { policy(names[5], "q") }, 13},
		{"a policy where no Pod is here", func() { policy("elsewhere", "q") }, 0},
	} {
		row.change()
		e.Pass()
		last, _, _ := e.Stats()
		if last.Evaluated > row.want {
			t.Errorf("%s: %d keys evaluated, want at most %d", row.name, last.Evaluated, row.want)
		}
	}
}
