package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// bounded returns tables with Pods "a" and "b" of this Node in each of some Namespaces, 10.10.N.1 and 10.10.N.2.
func bounded(b Bounds, namespaces ...string) (*Tables, *derive.Engine) {
	e := derive.New()
	attachments := derive.NewSource[derive.Name, Attachment](e, "attachments")
	t := NewTables(e, "node-1", attachments).Bounded(b)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.10.0.0/16"}}}
	t.Nodes.Set(derive.Object{Name: "node-1"}, NodeFactsOf(node))
	for i, ns := range namespaces {
		t.Namespaces.Set(derive.Object{Name: ns}, NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
		for j, name := range []string{"a", "b"} {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}},
				Spec: corev1.PodSpec{NodeName: "node-1"}}
			p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.10.%d.%d", i, j+1)}}
			f := PodFactsOf(p)
			t.Pods.Set(derive.ObjectOf(p), f)
			attachments.Set(derive.Name(ns+name), Attachment{Pod: derive.ObjectOf(p), UID: f.UID, IPs: f.IPs})
		}
	}
	attachments.Loaded()
	t.Loaded()
	return t, e
}

func (t *Tables) network(namespace, name string,
	ingress ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicy {
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	n.Spec.Ingress = ingress
	t.Policies[NetworkPolicy].Set(derive.ObjectOf(n), FactsOf(n))
	return n
}

func fromBlock(port int32, cidr string, except ...string) networkingv1.NetworkPolicyIngressRule {
	r := networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}}}
	if port > 0 {
		r.Ports = []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(port))}}
	}
	return r
}

func (t *Tables) antreaIn(namespace, name string, priority float64, rules ...crdv1beta1.Rule) {
	n := &crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	n.Spec.Priority, n.Spec.AppliedTo, n.Spec.Ingress = priority,
		[]crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}, rules
	t.Policies[AntreaNetworkPolicy].Set(derive.ObjectOf(n), AntreaFactsOf(n))
}

func ruleFrom(action crdv1beta1.Action, cidr string) crdv1beta1.Rule {
	return crdv1beta1.Rule{Action: action, From: []crdv1beta1.Peer{{IPBlock: &crdv1beta1.IPBlock{CIDR: cidr}}}}
}

func (t *Tables) enters(namespace, pod, from string, port uint16) Verdict {
	f, _ := t.Pods.Get(derive.Object{Namespace: namespace, Name: pod})
	return t.Decide(derive.Object{Namespace: namespace, Name: pod}, Ingress,
		Connection{From: netip.MustParseAddr(from), To: f.IPs[0], Protocol: corev1.ProtocolTCP, Port: port})
}

// tooLargeOf are the objects with a Problem that says TooLarge.
func tooLargeOf(problems []problem.Problem) (out []string) {
	for _, p := range problems {
		if p.Reason == ReasonTooLarge {
			out = append(out, p.Object.String())
		}
	}
	return out
}

// scattered returns exceptions that are not adjacent to each other.
func scattered(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%d.%d.%d.77/32", 11+i%200, i/200%256, 7+i%3))
	}
	return out
}

// TestBounds asks about policies beyond each bound, and about other policies.
func TestBounds(t *testing.T) {
	few := DefaultBounds
	few.Policy, few.Namespace, few.Rules, few.Members, few.Clause = 40, 60, 6, 8, 8
	const outside = "198.51.100.7"
	web := fromBlock(80, "198.51.100.0/24")
	for _, row := range []struct {
		name     string
		bounds   Bounds
		fill     func(*Tables)
		ask      func(*Tables) []bool // of "x", and last of "y"
		want     []bool
		problems []string
	}{
		{
			name: "8,000 scattered exceptions: the allow is left out whole, the rule beside it stays", bounds: DefaultBounds,
			fill: func(t *Tables) {
				t.network("x", "huge", fromBlock(0, "0.0.0.0/0", scattered(8000)...), web)
				t.network("y", "web", web)
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", outside, 81).Allowed, t.enters("x", "a", outside, 80).Allowed,
					t.enters("y", "a", outside, 80).Allowed}
			},
			want: []bool{false, true, true}, problems: []string{"NetworkPolicy x/huge"},
		},
		{
			name: "300 scattered exceptions are within the bounds", bounds: DefaultBounds,
			fill: func(t *Tables) { t.network("x", "large", fromBlock(0, "0.0.0.0/0", scattered(300)...)) },
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", outside, 81).Allowed, t.enters("x", "a", "11.0.7.77", 81).Allowed,
					t.enters("y", "a", outside, 80).Allowed}
			},
			want: []bool{true, false, true},
		},
		{
			name: "a deny beyond the policy's bound denies everything", bounds: few,
			fill: func(t *Tables) {
				deny := ruleFrom(crdv1beta1.ActionDrop, "203.0.113.0/24")
				for i := range 20 {
					deny.From[0].IPBlock.Except = append(deny.From[0].IPBlock.Except, fmt.Sprintf("203.0.113.%d/32", 1+12*i))
				}
				t.antreaIn("x", "deny", 5, ruleFrom(crdv1beta1.ActionAllow, "198.51.100.7/32"), deny)
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", outside, 80).Allowed, t.enters("x", "a", "192.0.2.1", 80).Allowed,
					t.enters("y", "a", outside, 80).Allowed}
			},
			want: []bool{true, false, true}, problems: []string{"AntreaNetworkPolicy x/deny"},
		},
		{
			name: "more rules than a Namespace may have: the first by name are in force", bounds: few,
			fill: func(t *Tables) {
				for i := range 9 {
					t.network("x", fmt.Sprint("p", i), fromBlock(int32(80+i), "198.51.100.0/24"))
				}
				t.network("y", "web", web)
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", outside, 85).Allowed, t.enters("x", "a", outside, 86).Allowed,
					t.enters("y", "a", outside, 80).Allowed}
			},
			want:     []bool{true, false, true},
			problems: []string{"NetworkPolicy x/p6", "NetworkPolicy x/p7", "NetworkPolicy x/p8"},
		},
		{
			name: "denies beyond the Namespace's bound are one rule", bounds: few,
			fill: func(t *Tables) {
				for i := range 30 {
					t.antreaIn("x", fmt.Sprintf("p%02d", i), float64(1+i),
						ruleFrom(crdv1beta1.ActionDrop, fmt.Sprintf("203.0.113.%d/32", i)))
				}
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", outside, 80).Allowed, len(t.Rules.All()) <= few.Rules+1,
					t.enters("y", "a", outside, 80).Allowed}
			},
			want: []bool{false, true, true},
		},
		{
			name: "a Namespace that selects too many peers", bounds: few,
			fill: func(t *Tables) {
				all := networkingv1.NetworkPolicyIngressRule{
					From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}
				t.network("x", "all", all)
				t.network("x", "more", all)
				t.network("x", "most", all, web)
				t.network("y", "all", all)
			},
			ask: func(t *Tables) []bool {
				most, _ := t.Rules.Get(RuleKey{Policy: Key{NetworkPolicy, "x", "most"}})
				return []bool{t.enters("x", "a", "10.10.1.1", 81).Allowed, len(most.Peers) > 0,
					t.enters("x", "a", outside, 80).Allowed, t.enters("y", "a", "10.10.0.1", 81).Allowed}
			},
			want: []bool{true, false, true, true}, problems: []string{"NetworkPolicy x/most"},
		},
		{
			name:   "a clause that too many rules share: the Namespace with most gives way",
			bounds: Bounds{Policy: 1000, Wide: 1000, Namespace: 1000, Rules: 1000, Members: 1000, Clause: 8},
			fill: func(t *Tables) {
				for i := range 7 {
					t.network("x", fmt.Sprint("p", i), fromBlock(80, fmt.Sprintf("198.51.100.%d/32", 1+i)))
				}
				for i := range 3 {
					t.network("y", fmt.Sprint("p", i), fromBlock(80, fmt.Sprintf("198.51.100.%d/32", 5+i)))
				}
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", "198.51.100.5", 80).Allowed, t.enters("x", "a", "198.51.100.6", 80).Allowed,
					t.enters("y", "a", "198.51.100.5", 80).Allowed, t.enters("y", "b", outside, 80).Allowed}
			},
			want: []bool{true, false, true, true}, problems: []string{"NetworkPolicy x/p5", "NetworkPolicy x/p6"},
		},
		{
			name:   "denies of one rank that share a clause",
			bounds: Bounds{Policy: 1000, Wide: 1000, Namespace: 1000, Rules: 1000, Members: 1000, Clause: 8},
			fill: func(t *Tables) {
				for i := range 20 {
					t.antreaIn("x", fmt.Sprintf("p%02d", i), 5, ruleFrom(crdv1beta1.ActionDrop, fmt.Sprintf("203.0.113.%d/32", i)))
				}
				t.antreaIn("y", "p", 5, ruleFrom(crdv1beta1.ActionDrop, "203.0.113.7/32"))
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", outside, 80).Allowed, len(t.Rules.All()) <= 8+1+2,
					t.enters("y", "a", "203.0.113.7", 80).Allowed, t.enters("y", "a", outside, 80).Allowed}
			},
			want: []bool{false, true, false, true},
		},
		{
			name: "a podSelector of 9,000 values isolates the Namespace", bounds: DefaultBounds,
			fill: func(t *Tables) {
				n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "huge"}}
				e := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpNotIn,
					Values: make([]string, 9000)}
				for i := range e.Values {
					e.Values[i] = fmt.Sprint("v", i)
				}
				n.Spec.PodSelector.MatchExpressions, n.Spec.Ingress = []metav1.LabelSelectorRequirement{e},
					[]networkingv1.NetworkPolicyIngressRule{web}
				t.Policies[NetworkPolicy].Set(derive.ObjectOf(n), FactsOf(n))
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", outside, 80).Allowed, t.enters("y", "a", outside, 80).Allowed}
			},
			want: []bool{false, true}, problems: []string{"NetworkPolicy x/huge"},
		},
		{
			name: "a Pod with 5,000 labels is nobody whom a rule allows, and costs no more than others", bounds: DefaultBounds,
			fill: func(t *Tables) {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a", Labels: map[string]string{"app": "a"}},
					Spec: corev1.PodSpec{NodeName: "node-1"}}
				for i := range 5000 {
					p.Labels[fmt.Sprint("l", i)] = "v"
				}
				p.Status.PodIPs = []corev1.PodIP{{IP: "10.10.0.1"}}
				t.Pods.Set(derive.ObjectOf(p), PodFactsOf(p))
				t.network("y", "from-x",
					networkingv1.NetworkPolicyIngressRule{
						From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}})
			},
			ask: func(t *Tables) []bool {
				f, _ := t.Pods.Get(derive.Object{Namespace: "x", Name: "a"})
				return []bool{len(f.Labels) < 10, t.enters("y", "a", "10.10.0.1", 80).Allowed,
					t.enters("y", "a", "10.10.0.2", 80).Allowed}
			},
			want: []bool{true, false, true}, problems: []string{"Pod x/a"},
		},
		{
			name: "a group of more ranges than a policy may have", bounds: few,
			fill: func(t *Tables) {
				g := &crdv1beta1.Group{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "g"}}
				for i := range 50 {
					g.Spec.IPBlocks = append(g.Spec.IPBlocks, crdv1beta1.IPBlock{CIDR: fmt.Sprintf("198.51.100.%d/32", 2*i)})
				}
				t.Groups.Set(derive.ObjectOf(g), GroupFactsOf(g))
				t.antreaIn("x", "allow", 5, crdv1beta1.Rule{Action: crdv1beta1.ActionAllow, From: []crdv1beta1.Peer{{Group: "g"}}})
				t.network("x", "none")
			},
			ask: func(t *Tables) []bool {
				return []bool{t.enters("x", "a", "198.51.100.8", 80).Allowed, t.enters("y", "a", outside, 80).Allowed}
			},
			want: []bool{false, true}, problems: []string{"AntreaNetworkPolicy x/allow"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			tables, e := bounded(row.bounds, "x", "y")
			row.fill(tables)
			e.Pass()
			if have := row.ask(tables); !slices.Equal(have, row.want) {
				t.Errorf("answers %v, want %v", have, row.want)
			}
			have := tooLargeOf(e.Problems())
			if slices.Sort(have); row.problems != nil && !slices.Equal(have, row.problems) {
				t.Errorf("problems of %v, want %v", have, row.problems)
			}
			for _, p := range e.Problems() {
				if strings.Contains(p.Namespace, "y") {
					t.Errorf("the other tenant has a problem: %v", p)
				}
			}
		})
	}
}

// TestFold makes few rules of many that are alike, which allow what the many did.
func TestFold(t *testing.T) {
	tables, e := bounded(DefaultBounds, "x")
	var rules []networkingv1.NetworkPolicyIngressRule
	for i := range 4100 {
		rules = append(rules, fromBlock(80, fmt.Sprintf("10.%d.%d.0/31", 20+i/200, i%200)))
	}
	for i := range 200 {
		rules = append(rules, fromBlock(int32(1000+i), "198.51.100.7/32"))
	}
	tables.network("x", "many", rules...)
	e.Pass()
	if n := len(tables.Rules.All()); n != 2 {
		t.Errorf("%d rules, want 2", n)
	}
	for _, row := range []struct {
		from string
		port uint16
		want bool
	}{{"10.40.99.1", 80, true}, {"10.40.99.1", 81, false}, {"10.40.99.2", 80, false}, {"198.51.100.7", 1199, true},
		{"198.51.100.7", 1200, false}} {
		if have := tables.enters("x", "a", row.from, row.port).Allowed; have != row.want {
			t.Errorf("from %s to port %d: allowed %v, want %v", row.from, row.port, have, row.want)
		}
	}
	if p := e.Problems(); len(p) > 0 {
		t.Errorf("problems %v", p)
	}
}

// TestSharedPeers compares the lists of rules with the same selector: it is one list. A rule that denies unknown Pods
// has another one.
func TestSharedPeers(t *testing.T) {
	tables, e := bounded(DefaultBounds, "x", "y")
	all := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}
	for i := range 2 {
		tables.network("x", fmt.Sprint("p", i), networkingv1.NetworkPolicyIngressRule{From: all})
	}
	deny := crdv1beta1.Rule{Action: crdv1beta1.ActionDrop}
	deny.From = []crdv1beta1.Peer{{NamespaceSelector: &metav1.LabelSelector{}}}
	tables.antreaIn("x", "deny", 5, deny)
	e.Pass()
	var lists [3][]uint32
	for i, key := range []Key{{NetworkPolicy, "x", "p0"}, {NetworkPolicy, "x", "p1"}, {AntreaNetworkPolicy, "x", "deny"}} {
		rule, _ := tables.Rules.Get(RuleKey{Policy: key})
		lists[i] = rule.Peers
	}
	if len(lists[0]) != 4 || len(lists[1]) != 4 || &lists[0][0] != &lists[1][0] {
		t.Errorf("rules from all Pods have the lists %v and %v, want one of 4 numbers", lists[0], lists[1])
	}
	if want := append(slices.Clone(lists[0]), UnknownPod); !slices.Equal(lists[2], want) {
		t.Errorf("the rule that denies has %v, want %v", lists[2], want)
	}
}

// TestManyProblems reports the first of many faults, and how many more there are.
func TestManyProblems(t *testing.T) {
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: make([]networkingv1.NetworkPolicyPeer, 1000)}}
	f := FactsOf(n)
	if last := f.Problems[len(f.Problems)-1]; len(f.Problems) != maxProblems+1 ||
		!strings.Contains(last.Message, "980 more") {
		t.Errorf("%d problems, the last is %v", len(f.Problems), last)
	}
}
