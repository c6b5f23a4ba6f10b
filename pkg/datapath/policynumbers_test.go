package datapath

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// sharedNumber is the data with which two policies of one Node share a number: names that were searched for it.
type sharedNumber struct {
	*sources
	victim, attacker derive.Object // for pod1 and for pod2
}

// selecting returns a policy that lets the Pods of node-2 into the Pods with a label, or no Pod.
func selecting(name derive.Object, app string, allows bool) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	if allows {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.11.1.0/24"}}},
		}}
	}
	return p
}

func (s *sharedNumber) set(name derive.Object, app string, allows bool) {
	s.policy.Policies[policy.NetworkPolicy].Set(name, policy.FactsOf(selecting(name, app, allows)))
}

// ruleOf is the key of a policy's first rule.
func ruleOf(name derive.Object) policy.RuleKey {
	return policy.RuleKey{Policy: policy.Key{Kind: policy.NetworkPolicy, Namespace: name.Namespace, Name: name.Name}}
}

// number returns the number of a policy's first rule; 0 without one.
func (s *sharedNumber) number(name derive.Object) uint32 {
	n, _ := s.tables.Policies.numbers.rules.Get(ruleOf(name))
	return n
}

// rekey gives the Node a key.
func (s *sharedNumber) rekey(key Secret) {
	s.Node.RuleKey = key
	s.node.Set(Self, s.Node)
	s.engine.Pass()
}

// newSharedNumber searches names of policies whose rules share a number without a key.
func newSharedNumber(t *testing.T) *sharedNumber {
	t.Helper()
	s := &sharedNumber{sources: unknownSources()}
	probe := map[string]derive.Object{}
	meaning := map[string]uint64{}
	for _, app := range []string{"server", "b"} {
		probe[app] = derive.Object{Namespace: "default", Name: "probe-" + app}
		s.set(probe[app], app, true)
		s.engine.Pass()
		rule, _ := s.policy.Rules.Get(ruleOf(probe[app]))
		meaning[app] = rule.Meaning
		if n := numberOf("", ruleOf(probe[app]), rule.Meaning, []string{}); n != s.number(probe[app]) {
			t.Fatalf("the rule for %s has number %d, want %d", app, s.number(probe[app]), n)
		}
		s.policy.Policies[policy.NetworkPolicy].Delete(probe[app])
	}
	names := func(app string, i int) (derive.Object, uint32) {
		name := derive.Object{Namespace: "default", Name: fmt.Sprint(app, "-", i)}
		return name, numberOf("", ruleOf(name), meaning[app], []string{})
	}
	victims := map[uint32]derive.Object{}
	for i := range 1 << 17 {
		name, n := names("server", i)
		victims[n] = name
	}
	for i := range 1 << 17 {
		name, n := names("b", i)
		if victim, ok := victims[n]; ok {
			s.victim, s.attacker = victim, name
			break
		}
	}
	if s.victim.Name == "" {
		t.Fatal("no two names with the same number")
	}
	for i := range 8 {
		key := Secret(fmt.Sprint("key ", i))
		a := numberOf(key, ruleOf(s.victim), meaning["server"], []string{})
		if b := numberOf(key, ruleOf(s.attacker), meaning["b"], []string{}); a == b {
			t.Errorf("%s and %s share a number without a key, and %d with %q, too", s.victim, s.attacker, a, string(key))
		}
	}
	return s
}

// TestRuleNumbers searches, as a tenant would, for a policy's name whose rule has the number of another tenant's rule.
// The number lets only allowed connections go on, and with a key there is no such name.
func TestRuleNumbers(t *testing.T) {
	s := newSharedNumber(t)
	// A literal, because connections keep their numbers over an upgrade.
	if n := numberOf("", "NetworkPolicy default/web ingress[0]", uint64(7), []string{}); n != 1026513898 {
		t.Errorf("without a key a rule has number %d, want 1026513898 as before", n)
	}
	s.set(s.victim, "server", true)
	s.set(s.attacker, "b", true)
	s.set(derive.Object{Namespace: "default", Name: "closed"}, "server", false)
	s.engine.Pass()
	if v, a := s.number(s.victim), s.number(s.attacker); v == 0 || v != a {
		t.Fatalf("numbers are %d and %d, want the same", v, a)
	}
	sw, err := oftest.New(Program)
	if err != nil {
		t.Fatal(err)
	}
	put := func() {
		t.Helper()
		s.engine.Pass()
		if err := sw.Replace(slices.Collect(maps.Values(s.held))...); err != nil {
			t.Fatal(err)
		}
	}
	put()
	from := func(i int) oftest.Packet {
		return oftest.Packet{
			InPort: tunnelPort, EthSrc: gwMAC, EthDst: InClusterMAC, TunSrc: eastTwo, TunDst: eastOne,
			IPSrc: knownFar, IPDst: s.Pods[i].IPs[0], Proto: oftest.TCP, SrcPort: 1024, DstPort: 80,
		}
	}
	back := func(i int) oftest.Packet {
		pod, there := s.Pods[i], from(i)
		return oftest.Packet{InPort: pod.Port, EthSrc: pod.MAC, EthDst: gwMAC, IPSrc: there.IPDst, IPDst: there.IPSrc,
			Proto: oftest.TCP, SrcPort: 80, DstPort: 1024}
	}
	for i := range s.Pods[:2] {
		if have := met(sw.Send(from(i))); have != allowed {
			t.Fatalf("a connection to %s: %s", s.Pods[i].Name, have)
		}
		sw.Send(back(i))
	}

	s.policy.Policies[policy.NetworkPolicy].Delete(s.victim)
	put()
	list := s.tables.Policies.Known.Rechecks(sw.DumpConntrack())
	want := Recheck{Why: RuleOfOthers, Direction: policy.Ingress, Addr: s.Pods[0].IPs[0], Rule: s.number(s.attacker)}
	if !slices.Equal(list, []Recheck{want}) {
		t.Fatalf("judged again are %v, want %s", list, want)
	}
	s.tables.Policies.Known.Recheck(list)
	put()
	if have := met(sw.Send(from(0))); have != dropped {
		t.Errorf("a connection whose rule has gone, while another Pod's rule has its number: %s", have)
	}
	if r := sw.Send(from(1)); met(r) != allowed || slices.Contains(r.Tables, "Again") {
		t.Errorf("the other Pod's connection: %s by %v, want it not judged again", r, r.Tables)
	}
	if list := s.tables.Policies.Known.Rechecks(sw.DumpConntrack()); len(list) != 0 {
		t.Errorf("all were judged again, and still %v", list)
	}

	// Two Nodes have different keys; one Node keeps its own.
	s.set(s.victim, "server", true)
	numbers := map[Secret][2]uint32{}
	for _, key := range []Secret{"key one", "key other", "key one"} {
		s.rekey(key)
		have := [2]uint32{s.number(s.victim), s.number(s.attacker)}
		if before, ok := numbers[key]; ok && before != have {
			t.Errorf("with key %v numbers are %v, and %v at first", string(key), have, before)
		}
		if numbers[key] = have; have[0] == have[1] {
			t.Errorf("with key %v the two rules share number %d", string(key), have[0])
		}
		for _, n := range have {
			if n&firstRuleNumber == 0 || n&keepRule != 0 {
				t.Errorf("with key %v a rule has number %#x", string(key), n)
			}
		}
	}
	text := fmt.Sprintf("%+v", s.Node)
	if strings.Contains(text, "key one") || !strings.Contains(text, "RuleKey:(secret)") {
		t.Errorf("the key is printed: %s", text)
	}
	if numbers["key one"] == numbers["key other"] {
		t.Errorf("two keys give the same numbers: %v", numbers)
	}
}
