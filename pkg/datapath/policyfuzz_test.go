package datapath

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/oftest"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// written are policies and groups as an API server may have them: of an older definition, from another cluster, or from
// an author whose objects are not checked.
var written = []func(c *sources, at metav1.ObjectMeta, spec []byte) error{
	func(c *sources, at metav1.ObjectMeta, spec []byte) error {
		o := &networkingv1.NetworkPolicy{ObjectMeta: at}
		return take(c.policy.Policies[policy.NetworkPolicy], o, &o.Spec, policy.FactsOf, spec)
	},
	func(c *sources, at metav1.ObjectMeta, spec []byte) error {
		o := &crdv1beta1.NetworkPolicy{ObjectMeta: at}
		return take(c.policy.Policies[policy.AntreaNetworkPolicy], o, &o.Spec, policy.AntreaFactsOf, spec)
	},
	func(c *sources, at metav1.ObjectMeta, spec []byte) error {
		o := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: at.Name}}
		return take(c.policy.Policies[policy.AntreaClusterNetworkPolicy], o, &o.Spec, policy.AntreaClusterFactsOf, spec)
	},
	func(c *sources, at metav1.ObjectMeta, spec []byte) error {
		o := &npv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: at.Name}}
		return take(c.policy.Policies[policy.ClusterNetworkPolicy], o, &o.Spec, policy.ClusterFactsOf, spec)
	},
	func(c *sources, at metav1.ObjectMeta, spec []byte) error {
		o := &crdv1beta1.Group{ObjectMeta: at}
		return take(c.policy.Groups, o, &o.Spec, policy.GroupFactsOf, spec)
	},
	func(c *sources, at metav1.ObjectMeta, spec []byte) error {
		o := &crdv1beta1.ClusterGroup{ObjectMeta: metav1.ObjectMeta{Name: at.Name}}
		return take(c.policy.ClusterGroups, o, &o.Spec, policy.ClusterGroupFactsOf, spec)
	},
}

// take writes an object to the tables.
func take[T metav1.Object, F, S any](to *derive.Source[derive.Object, F], o T, spec *S, facts func(T) F,
	text []byte) error {
	if err := json.Unmarshal(text, spec); err != nil {
		return err
	}
	to.Set(derive.ObjectOf(o), facts(o))
	return nil
}

// FuzzPolicies makes the flows of any policy on a Node that has another one. No function may fail, the switch has to
// take the flows, and once the policy is deleted they are gone.
func FuzzPolicies(f *testing.F) {
	for i, text := range []string{
		`{"podSelector":{},"policyTypes":["Egress"],
			"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],
				"ports":[{"port":"http"},{"protocol":"UDP","port":1,"endPort":65535}]}]}`,
		`{"tier":"securityops","priority":5.5,"appliedTo":[{"podSelector":{"matchLabels":{"app":"server"}}}],
			"ingress":[{"action":"Drop","from":[{"scope":"ClusterSet","podSelector":{}}]}],
			"egress":[{"action":"Reject","to":[{"fqdn":"*.example.com"}],"enableLogging":true,"logLabel":"x"},
				{"action":"Pass","toServices":[{"name":"web","scope":"ClusterSet"}]}]}`,
		`{"priority":1,"appliedTo":[{"namespaceSelector":{}}],
			"egress":[{"action":"Allow","to":[{"namespaces":{"sameLabels":["a"]}},{"group":"g"}],
				"protocols":[{"icmp":{"icmpType":8}},{"igmp":{"igmpType":17,"groupAddress":"224.0.0.1"}}],
				"ports":[{"port":80,"sourcePort":1,"sourceEndPort":9}]}]}`,
		`{"tier":"Admin","priority":3,"subject":{"namespaces":{}},
			"ingress":[{"action":"Deny","from":[{"namespaces":{}}],
				"protocols":[{"tcp":{"destinationPort":{"range":{"start":1,"end":3}}}}]}],
			"egress":[{"action":"Accept","to":[{"networks":["::/0","10.0.0.0/8"]},{"domainNames":["a.example.com"]}]}]}`,
		`{"childGroups":["web","other"],"ipBlocks":[{"cidr":"10.0.0.0/33"}]}`,
		`{"serviceReference":{"name":"web","namespace":"default"}}`,
	} {
		f.Add(uint8(i), []byte(text))
	}
	f.Fuzz(func(t *testing.T, kind uint8, spec []byte) {
		c := stretchedSources("west", 2)
		c.rules(about(policy.Drop, "app=a"))
		c.engine.Pass()
		before := slices.SortedFunc(maps.Keys(c.held), compareOwners)
		at := metav1.ObjectMeta{Namespace: "default", Name: "fuzzed"}
		put := written[int(kind)%len(written)]
		if err := put(c, at, spec); err != nil {
			return // an API server takes no such object
		}
		c.engine.Pass()
		for _, p := range c.engine.Problems() {
			if p.Reason == derive.ReasonEvaluationFailed {
				t.Fatalf("%s", p.Message)
			}
		}
		node, err := oftest.New(Program)
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Replace(slices.Collect(maps.Values(c.held))...); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.policy.Policies {
			s.Delete(derive.Object{Namespace: "default", Name: "fuzzed"})
			s.Delete(derive.Object{Name: "fuzzed"})
		}
		c.policy.Groups.Delete(derive.Object{Namespace: "default", Name: "fuzzed"})
		c.policy.ClusterGroups.Delete(derive.Object{Name: "fuzzed"})
		c.engine.Pass()
		if diff := cmp.Diff(before, slices.SortedFunc(maps.Keys(c.held), compareOwners)); diff != "" {
			t.Errorf("who has flows (-before +after):\n%s", diff)
		}
	})
}

func compareOwners(a, b flow.Owner) int { return strings.Compare(a.String(), b.String()) }
