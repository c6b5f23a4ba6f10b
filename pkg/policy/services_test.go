package policy

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestServiceRules applies rules to a Service. Parts that cannot be judged before an endpoint is chosen are closed.
func TestServiceRules(t *testing.T) {
	const to = "appliedTo: [{service: {name: web, namespace: x}}]"
	for _, row := range []struct {
		name, spec string
		namespace  string // of a NetworkPolicy
		want       []string
		problems   []string
	}{
		{
			name: "ranges and ports",
			spec: "{priority: 5, " + to + ", ingress: [{action: Allow, from: [{ipBlock: {cidr: 10.0.0.0/8}}]}, " +
				"{action: Drop, ports: [{port: 80, endPort: 82}]}]}",
			want: []string{"Allow [10.0.0.0/8] any port", "Drop any peer [TCP/80-82]"},
		},
		{
			name: "a policy with a Namespace", namespace: "x",
			spec: "{priority: 5, appliedTo: [{service: {name: web}}], ingress: [{action: Reject}]}",
			want: []string{"Reject any peer any port"},
		},
		{
			name: "of another Namespace", namespace: "y", spec: "{priority: 5, " + to + ", ingress: [{action: Reject}]}",
			problems: nil, // no Pod and no Service has the policy, so no Node reports it; the controller does
		},
		{
			name: "peers by labels",
			spec: "{priority: 5, ingress: [{action: Allow, from: [{ipBlock: {cidr: 10.0.0.0/8}}, {podSelector: {}}], " + to +
				"}, {action: Drop, from: [{namespaces: {match: Self}}], " + to + "}]}",
			want: []string{"Allow [10.0.0.0/8] any port", "Drop any peer any port"},
			problems: []string{
				"spec.ingress[0].from[1] InvalidPeer", "spec.ingress[1].from[0] InvalidPeer",
			},
		},
		{
			name: "ports by name, of clients, and messages",
			spec: "{priority: 5, " + to + ", ingress: [{action: Allow, ports: [{port: http}, {port: 80}]}, " +
				"{action: Drop, ports: [{port: 81, sourcePort: 7}]}, {action: Reject, protocols: [{icmp: {}}]}]}",
			want: []string{"Allow any peer [TCP/80]", "Drop any peer any port", "Reject any peer any port"},
			problems: []string{
				"spec.ingress[0].ports[0] InvalidPort", "spec.ingress[1].ports[0] InvalidPort",
				"spec.ingress[2].protocols InvalidProtocol",
			},
		},
		{
			name:     "an egress rule",
			spec:     "{priority: 5, " + to + ", egress: [{action: Drop}], ingress: [{action: Pass}]}",
			want:     []string{"Pass any peer any port"},
			problems: []string{"spec.egress[0] InvalidAppliedTo"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newClosed()
			c.Outside = true
			if row.namespace == "" {
				var p crdv1beta1.ClusterNetworkPolicy
				p.Name = "p"
				if err := yaml.UnmarshalStrict([]byte(row.spec), &p.Spec); err != nil {
					t.Fatal(err)
				}
				c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(&p), AntreaClusterFactsOf(&p))
			} else {
				p := crdv1beta1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: row.namespace, Name: "p"}}
				if err := yaml.UnmarshalStrict([]byte(row.spec), &p.Spec); err != nil {
					t.Fatal(err)
				}
				c.Sources.Policies[AntreaNetworkPolicy].Set(derive.ObjectOf(&p), AntreaFactsOf(&p))
			}
			c.engine.Pass()
			rules, _ := c.ServiceRules.Get(derive.Object{Namespace: "x", Name: "web"})
			var have, problems []string
			for _, r := range rules {
				text := r.Action.String() + " any peer"
				if !r.AnyPeer {
					text = fmt.Sprint(r.Action, " ", r.Blocks)
				}
				if r.AnyPort {
					text += " any port"
				} else {
					text += fmt.Sprint(" ", r.Ports)
				}
				have = append(have, text)
			}
			for _, p := range c.engine.Problems() {
				problems = append(problems, p.Field+" "+p.Reason.String())
			}
			if !slices.Equal(have, row.want) || !slices.Equal(problems, row.problems) {
				t.Errorf("rules %q, want %q; problems %q, want %q", have, row.want, problems, row.problems)
			}
			if v, _ := c.asks(Ingress); !v.Allowed || len(v.Steps[Admin].Policies) > 0 {
				t.Errorf("a Pod is judged: %+v", v)
			}
		})
	}
}

// TestRuleOfPodsAndServices applies a policy to Pods and to a Service. For the Pods its rules mean what is written.
func TestRuleOfPodsAndServices(t *testing.T) {
	rules := func(alone bool) (of []RuleFacts, facts Facts) {
		var p crdv1beta1.ClusterNetworkPolicy
		text := `{priority: 5, appliedTo: [{podSelector: {matchLabels: {app: web}}}, {service: {name: web, namespace: x}}],
			ingress: [
				{action: Allow, from: [{podSelector: {matchLabels: {app: a}}}, {ipBlock: {cidr: 10.0.0.0/8}}],
					ports: [{port: http}, {port: 81, sourcePort: 7}]},
				{action: Drop, from: [{namespaces: {match: Self}}], protocols: [{icmp: {}}]}]}`
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatal(err)
		}
		if alone {
			p.Spec.AppliedTo = p.Spec.AppliedTo[:1]
		}
		facts = AntreaClusterFactsOf(&p)
		for _, r := range facts.Ingress.Rules {
			r.OtherPeers, r.OtherPorts = false, false
			of = append(of, r)
		}
		return of, facts
	}
	pods, _ := rules(true)
	both, facts := rules(false)
	if !reflect.DeepEqual(pods, both) {
		t.Errorf("with a Service the rules mean %+v for the Pods, without it %+v", both, pods)
	}
	c := newClosed()
	c.Outside = true
	c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.Object{Name: "p"}, facts)
	c.engine.Pass()
	list, _ := c.ServiceRules.Get(derive.Object{Namespace: "x", Name: "web"})
	if len(list) != 2 {
		t.Fatalf("rules of the Service: %+v", list)
	}
	if allow := list[0]; allow.AnyPeer || fmt.Sprint(allow.Blocks) != "[10.0.0.0/8]" || allow.AnyPort ||
		len(allow.Ports) > 0 {
		t.Errorf("the rule that allows: %+v", allow)
	}
	if drop := list[1]; !drop.AnyPeer || !drop.AnyPort {
		t.Errorf("the rule that denies: %+v", drop)
	}
}

// TestServiceRulesNotServed applies a policy to a Service on a Node that serves no clients outside.
func TestServiceRulesNotServed(t *testing.T) {
	c := newClosed()
	p := crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec = crdv1beta1.PolicySpec{
		Priority: 5, AppliedTo: []crdv1beta1.AppliedTo{{Service: &crdv1beta1.ObjectReference{Namespace: "x", Name: "web"}}},
		Ingress: []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop}},
	}
	c.Sources.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(&p), AntreaClusterFactsOf(&p))
	c.engine.Pass()
	list := c.engine.Problems()
	if len(list) != 1 || list[0].Reason.String() != "NotServed" || list[0].Name != "p" || c.ServiceRules.Len() != 0 {
		t.Errorf("problems %v, %d Services with rules", list, c.ServiceRules.Len())
	}
}

// TestServiceSpan has the controller expect a policy of a Service from each Node with an agent.
func TestServiceSpan(t *testing.T) {
	e := derive.New()
	s := NewSpans(e)
	s.Namespaces.Set(derive.Object{Name: "x"},
		NamespaceLabels(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}))
	for i := range 3 {
		s.Pods.Set(derive.Object{Namespace: "x", Name: fmt.Sprint(i)}, PodFacts{Node: fmt.Sprint("node-", i)})
	}
	var p crdv1beta1.ClusterNetworkPolicy
	p.Name = "p"
	p.Spec = crdv1beta1.PolicySpec{Priority: 5, Ingress: []crdv1beta1.Rule{{
		Action:    crdv1beta1.ActionDrop,
		AppliedTo: []crdv1beta1.AppliedTo{{Service: &crdv1beta1.ObjectReference{Namespace: "x", Name: "web"}}},
	}}}
	s.Policies[AntreaClusterNetworkPolicy].Set(derive.ObjectOf(&p), AntreaClusterFactsOf(&p))
	s.Loaded()
	e.Pass()
	j, _ := s.Judgements.Get(Key{Kind: AntreaClusterNetworkPolicy, Name: "p"})
	if !j.Everywhere || len(j.Nodes) != 0 || len(j.Problems) > 0 {
		t.Errorf("%+v, want each Node with an agent", j)
	}
}
