package datapath

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/policy/policytest"
)

// walkLimits are low bounds, which the walk reaches often. The evaluator uses them too.
var walkLimits = policytest.Limits{Policy: 40, Wide: 48, Namespace: 60, Rules: 7}

// bounded has tables keep to walkLimits.
func (c *sources) bounded() *sources {
	b := policy.DefaultBounds
	b.Policy, b.Wide, b.Namespace, b.Rules = walkLimits.Policy, walkLimits.Wide, walkLimits.Namespace, walkLimits.Rules
	c.policy.Bounded(b)
	return c
}

// conjunctions is how many rules share the flow that most rules share.
func (c *sources) conjunctions() (most int) {
	for _, e := range c.held {
		for _, f := range e.Flows {
			n := 0
			for _, a := range f.Actions {
				if _, ok := a.(ofp.Conjunction); ok {
					n++
				}
			}
			most = max(most, n)
		}
	}
	return most
}

// TestSharedFlows changes policies at random with a low bound on the rules that share a flow. No flow exceeds the
// bound, except by one rule for each Pod.
func TestSharedFlows(t *testing.T) {
	p := newPoliced(t, *walkSeed)
	b := policy.DefaultBounds
	b.Clause = 3
	p.policy.Bounded(b)
	cut := 0
	for step := range 300 {
		what := p.Step()
		p.attach(t)
		if most, bound := p.conjunctions(), b.Clause+len(p.Here("node-1")); most > bound {
			t.Fatalf("seed %d, step %d, %s: %d rules share a flow, want at most %d", *walkSeed, step, what, most, bound)
		}
		for _, problem := range p.engine.Problems() {
			if problem.Reason == policy.ReasonTooLarge {
				cut++
			}
		}
	}
	if cut == 0 {
		t.Error("no rule was beyond the bound: the walk is too tame")
	}
}

// TestTenants gives a Node tenants that write policies of absurd size, and one that does not. Open vSwitch takes all
// flows at once, as it does after a restart, and the last tenant's rules are in force.
func TestTenants(t *testing.T) {
	const tenants = 5
	s := onNode(1)
	s.Pods = nil
	for i := range tenants + 1 {
		ip := addrOf(fmt.Sprint("10.11.0.", 10+i))
		s.Pods = append(s.Pods, Pod{Namespace: fmt.Sprint("tenant", i), Name: "web", Interface: fmt.Sprint("web", i),
			MAC: ofp.MAC{0x0a, 0, 0, 0, 1, byte(i)}, Port: ofp.Port(10 + i)})
		s.Pods[i].IPs = append(s.Pods[i].IPs, ip)
	}
	c := newSources(s)
	for _, pod := range s.Pods {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}
		c.policy.Namespaces.Set(derive.ObjectOf(n), policy.NamespaceLabels(n))
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			Spec: corev1.PodSpec{NodeName: "node-1"}}
		p.Status.PodIPs = []corev1.PodIP{{IP: pod.IPs[0].String()}}
		c.policy.Pods.Set(derive.ObjectOf(p), policy.PodFactsOf(p))
	}
	web := func(cidr string, except ...string) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{
			From:  []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}},
		}
	}
	set := func(tenant int, name string, rules ...networkingv1.NetworkPolicyIngressRule) {
		n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("tenant", tenant), Name: name}}
		n.Spec.Ingress = rules
		c.policy.Policies[policy.NetworkPolicy].Set(derive.ObjectOf(n), policy.FactsOf(n))
	}
	for tenant := range tenants {
		for i := range 1100 {
			set(tenant, fmt.Sprint("p", i), web(fmt.Sprintf("172.%d.%d.%d/32", 16+tenant, i/250, i%250)))
		}
		var rules []networkingv1.NetworkPolicyIngressRule
		for i := range 4100 {
			rules = append(rules, web(fmt.Sprintf("10.%d.%d.0/31", 20+i/200, i%200)))
		}
		set(tenant, "a-many", rules...)
		var except []string
		for i := range 8000 {
			except = append(except, fmt.Sprintf("%d.%d.7.77/32", 11+i%200, i/200))
		}
		set(tenant, "b-scattered", web("0.0.0.0/0", except...))
	}
	set(tenants, "web", web("198.51.100.0/24"))
	c.engine.Pass()

	flows, most := setOf(t, c.held), c.conjunctions()
	if bound := policy.DefaultBounds.Clause + len(s.Pods); most <= 1000 || most > bound {
		t.Errorf("%d rules share a flow, want at most %d, and many", most, bound)
	}
	honest := 0
	for o := range c.held {
		if strings.Contains(o.Name, "tenant5/web") {
			honest++
		}
	}
	if honest != 1 {
		t.Errorf("%d rules of the tenant with one policy have flows", honest)
	}
	if of := c.tables.Policies.Flows(); of["tenant5"] != 4 || of["tenant0"] < 1000 {
		t.Errorf("flows by Namespace: %v", of)
	}
	o := newTracer(t)
	o.replace(t, flows)
	want := 0
	for range flows.Flows() {
		want++
	}
	dump := o.run(t, "", "ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", o.dir+"/br-int.mgmt")
	if have := strings.Count(strings.TrimSpace(dump), "\n") + 1; have < want {
		t.Errorf("the switch has %d flows, want %d", have, want)
	}
	dst := s.Pods[tenants].IPs[0]
	for _, row := range []struct {
		from string
		want bool
	}{{"198.51.100.7", true}, {"203.0.113.1", false}} {
		if v := c.policy.Decide(derive.Object{Namespace: "tenant5", Name: "web"}, policy.Ingress,
			policy.Connection{From: addrOf(row.from), To: dst, Protocol: corev1.ProtocolTCP, Port: 80}); v.Allowed != row.want {
			t.Errorf("from %s: allowed %v, want %v", row.from, v.Allowed, row.want)
		}
	}
	for _, p := range c.engine.Problems() {
		if p.Namespace == "tenant5" {
			t.Errorf("the tenant with one policy has a problem: %v", p)
		}
	}
	t.Logf("%d flows, the most shared one by %d rules", want, most)
}
