package v1beta1_test

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/test/manifests"
)

// A definition is what an API server makes of a CustomResourceDefinition.
type definition struct {
	kind   string
	schema *schema.Structural
	plain  validation.SchemaValidator
	rules  *cel.Validator
}

func readDefinition(t testing.TB, plural string) definition {
	t.Helper()
	text, err := os.ReadFile(top + "deploy/crds/crd.antrea.io_" + plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &v1); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		v1.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	d := definition{kind: v1.Spec.Names.Kind}
	if d.schema, err = schema.NewStructural(&props); err != nil {
		t.Fatal(err)
	}
	if d.plain, _, err = validation.NewSchemaValidator(&props); err != nil {
		t.Fatal(err)
	}
	d.rules = cel.NewValidator(d.schema, true, celconfig.PerCallLimit)
	return d
}

// admit does what an API server does with a new object: it is changed as the server changes it, and the errors are
// why it is refused.
func (d definition) admit(ctx context.Context, object map[string]any) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.schema)
	defaulting.Default(object, d.schema)
	pruning.Prune(object, d.schema, true)
	if errs := validation.ValidateCustomResource(nil, object, d.plain); len(errs) > 0 {
		return errs
	}
	errs, _ := d.rules.Validate(ctx, nil, d.schema, object, nil, celconfig.RuntimeCELCostBudget)
	return errs
}

// FuzzAdmission gives objects of any shape to the definitions. An object that they accept decodes, and is the same when
// it is written again. Checks in Go, from a second reading of the fields' documentation, accept it too.
func FuzzAdmission(f *testing.F) {
	kinds := []definition{
		readDefinition(f, "clusternetworkpolicies"), readDefinition(f, "networkpolicies"), readDefinition(f, "tiers"),
		readDefinition(f, "clustergroups"), readDefinition(f, "groups"),
	}
	for i := range kinds {
		for _, spec := range []string{
			`{priority: 1, tier: baseline, appliedTo: [{podSelector: {matchLabels: {a: b}}, namespaceSelector: {}}, {group: g},
				{serviceAccount: {name: a, namespace: b}}, {nodeSelector: {}}]}`,
			`{priority: 2.5, ingress: [{action: Pass, appliedTo: [{service: {name: a, namespace: b}}],
				from: [{namespaces: {match: Self}}, {namespaces: {sameLabels: [a]}},
				{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}},
				{podSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}, scope: ClusterSet}]}]}`,
			`{priority: 3, appliedTo: [{podSelector: {}}], egress: [
				{action: Reject, name: n, enableLogging: true, logLabel: l,
				to: [{fqdn: '*.a.example'}, {group: g}, {nodeSelector: {}}],
				ports: [{port: 1, endPort: 2}, {protocol: UDP, port: dns}, {sourcePort: 3, sourceEndPort: 4}],
				protocols: [{icmp: {icmpType: 8, icmpCode: 0}}, {igmp: {groupAddress: 224.0.0.1}}]},
				{action: Drop, toServices: [{name: a, namespace: b, scope: ClusterSet}]}]}`,
			`{priority: 4, appliedTo: [{externalEntitySelector: {}}],
				ingress: [{action: Allow, l7Protocols: [{http: {}}], toNodes: [{}]}]}`,
			`{priority: 77, description: d}`,
			`{podSelector: {}, namespaceSelector: {matchLabels: {a: b}}}`,
			`{ipBlocks: [{cidr: 'fd00::/8', except: ['fd00::/16']}]}`,
			`{serviceReference: {name: a, namespace: b}}`, `{childGroups: [a]}`,
		} {
			text, err := yaml.YAMLToJSON([]byte(spec))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), string(text))
		}
	}
	for _, part := range []string{"policy-egress-to-service", "policy-ingress-cluster", "policy-ingress-namespace"} {
		text, err := manifests.V114().Part(part)
		if err != nil {
			f.Fatal(err)
		}
		spec, err := json.Marshal(parse(f, text)[0].Object["spec"])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(strings.Count(text, "kind: NetworkPolicy")), string(spec))
	}

	f.Fuzz(func(t *testing.T, kind uint8, spec string) {
		var content any
		if err := utiljson.Unmarshal([]byte(spec), &content); err != nil {
			return // not JSON: an API server does not get this far
		}
		check(t, kinds[int(kind)%len(kinds)], content)
	})
}

// TestRandom gives the definitions objects that are made by their schemas, with values that are likely to be right.
func TestRandom(t *testing.T) {
	for _, plural := range []string{"clusternetworkpolicies", "networkpolicies", "tiers", "clustergroups", "groups"} {
		t.Run(plural, func(t *testing.T) {
			d := readDefinition(t, plural)
			spec := d.schema.Properties["spec"]
			random := rand.New(rand.NewPCG(1, 2))
			accepted := 0
			const objects = 5000
			for range objects {
				content := randomValue(random, &spec)
				text, _ := json.Marshal(content)
				if check(t, d, content) {
					accepted++
				}
				if t.Failed() {
					t.Fatalf("%s %s", d.kind, text)
				}
			}
			t.Logf("%d of %d accepted", accepted, objects)
			if accepted < 20 || accepted == objects {
				t.Errorf("%d of %d objects are accepted: want some of each", accepted, objects)
			}
		})
	}
}

// likely are strings that mean something in one field or another.
var likely = []string{
	"10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8", "fd00::/16", "fd00:1::/32", "10.0.0.0", "224.0.0.1", "a", "b", "x", "http",
	"80", "*.example.com", "a b", "",
}

// randomValue makes a value of a schema: few fields, short lists.
func randomValue(random *rand.Rand, s *schema.Structural) any {
	if s.XIntOrString {
		if random.IntN(2) == 0 {
			return int64(random.IntN(70000) - 100)
		}
		return likely[random.IntN(len(likely))]
	}
	switch s.Type {
	case "object":
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			refused := slices.Contains([]string{"l7Protocols", "toNodes", "externalEntitySelector"}, name)
			required := s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name)
			if required && random.IntN(50) > 0 || random.IntN(len(s.Properties)+1) == 0 && (!refused || random.IntN(10) == 0) {
				p := s.Properties[name]
				out[name] = randomValue(random, &p)
			}
		}
		return out
	case "array":
		out := []any{}
		for range random.IntN(3) {
			out = append(out, randomValue(random, s.Items))
		}
		return out
	case "boolean":
		return random.IntN(2) == 0
	case "integer", "number":
		return int64(random.IntN([]int{10, 300, 70000}[random.IntN(3)]))
	}
	if v := s.ValueValidation; v != nil && len(v.Enum) > 0 && random.IntN(50) > 0 {
		return v.Enum[random.IntN(len(v.Enum))].Object
	}
	return likely[random.IntN(len(likely))]
}

// check gives a definition an object with a spec, and holds what it accepts against the documented meaning.
func check(t *testing.T, d definition, spec any) (accepted bool) {
	t.Helper()
	object := map[string]any{"apiVersion": "crd.antrea.io/v1beta1", "kind": d.kind,
		"metadata": map[string]any{"name": "x", "namespace": "default"}, "spec": spec}
	if errs := d.admit(t.Context(), object); len(errs) > 0 {
		for _, err := range errs {
			if err.Detail == "" && err.Type != field.ErrorTypeNotSupported && err.Type != field.ErrorTypeRequired {
				t.Errorf("%s is refused without a reason: %v", spec, err)
			}
		}
		return false
	}
	admitted, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	switch d.kind {
	case "ClusterNetworkPolicy":
		checkPolicy(t, decode[v1beta1.ClusterNetworkPolicy](t, admitted).Spec, false)
	case "NetworkPolicy":
		checkPolicy(t, decode[v1beta1.NetworkPolicy](t, admitted).Spec, true)
	case "Tier":
		p := decode[v1beta1.Tier](t, admitted).Spec.Priority
		if p < 0 || p > 250 {
			t.Errorf("a Tier has priority %d", p)
		}
		for _, of := range v1beta1.DefaultTiers {
			if p == of {
				t.Errorf("a Tier has priority %d of a default one", p)
			}
		}
	case "ClusterGroup":
		checkGroup(t, decode[v1beta1.ClusterGroup](t, admitted).Spec)
	case "Group":
		checkGroup(t, decode[v1beta1.Group](t, admitted).Spec)
	}
	return true
}

// decode reads an object strictly, and reads what it writes once more.
func decode[T any](t *testing.T, text []byte) T {
	t.Helper()
	var o, again T
	if strict, err := kjson.UnmarshalStrict(text, &o); err != nil || strict != nil {
		t.Fatalf("admitted and not understood: %v %v\n%s", err, strict, text)
	}
	written, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(written, &again); err != nil {
		t.Fatal(err)
	}
	rewritten, err := json.Marshal(again)
	if err != nil || !reflect.DeepEqual(written, rewritten) {
		t.Errorf("%v: written as\n%s\nand then as\n%s", err, written, rewritten)
	}
	return o
}

func count(these ...bool) int {
	n := 0
	for _, is := range these {
		if is {
			n++
		}
	}
	return n
}

func checkSelectors(t *testing.T, selectors ...*metav1.LabelSelector) {
	t.Helper()
	for _, s := range selectors {
		if s == nil {
			continue
		}
		// keys of MatchLabels are for the admission policies
		values := &metav1.LabelSelector{MatchExpressions: s.MatchExpressions}
		if _, err := metav1.LabelSelectorAsSelector(values); err != nil {
			t.Errorf("an invalid selector: %v", err)
		}
	}
}

func checkBlock(t *testing.T, b v1beta1.IPBlock) {
	t.Helper()
	of, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		t.Errorf("an invalid range: %v", err)
	}
	for _, text := range b.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil || except.Bits() < of.Bits() || !of.Masked().Contains(except.Addr()) {
			t.Errorf("%s is not inside %s: %v", text, b.CIDR, err)
		}
	}
}

func checkPolicy(t *testing.T, spec v1beta1.PolicySpec, namespaced bool) {
	t.Helper()
	if spec.Priority < 1 || spec.Priority > 10000 {
		t.Errorf("priority %v", spec.Priority)
	}
	all := slices.Concat(spec.Ingress, spec.Egress)
	if len(all) == 0 && len(spec.AppliedTo) == 0 {
		t.Error("nothing is applied to")
	}
	checkAppliedTo(t, spec.AppliedTo, namespaced, len(spec.Egress) > 0)
	for i, r := range all {
		egress := i >= len(spec.Ingress)
		if (len(spec.AppliedTo) > 0) == (len(r.AppliedTo) > 0) {
			t.Error("appliedTo is in the policy and the rule, or in none of them")
		}
		checkAppliedTo(t, r.AppliedTo, namespaced, egress)
		if !slices.Contains([]v1beta1.Action{v1beta1.ActionAllow, v1beta1.ActionDrop, v1beta1.ActionReject,
			v1beta1.ActionPass, v1beta1.ActionDeny}, r.Action) {
			t.Errorf("action %q", r.Action)
		}
		if (spec.Tier == v1beta1.TierBaseline || spec.Tier == "Baseline") && r.Action == v1beta1.ActionPass {
			t.Error("Pass in Tier baseline")
		}
		if r.L7Protocols != nil || r.ToNodes != nil || egress && len(r.From) > 0 || !egress &&
			len(r.To)+len(r.ToServices) > 0 {
			t.Errorf("a field that is refused: %+v", r)
		}
		if len(r.ToServices) > 0 && len(r.To)+len(r.Ports)+len(r.Protocols) > 0 {
			t.Error("toServices is not alone")
		}
		for _, s := range r.ToServices {
			if s.Name == "" || !namespaced && s.Namespace == "" {
				t.Errorf("Service %+v", s)
			}
		}
		for _, p := range slices.Concat(r.From, r.To) {
			checkPeer(t, p, namespaced, egress)
		}
		for _, p := range r.Ports {
			checkPort(t, p)
		}
		for _, p := range r.Protocols {
			if (p.ICMP == nil) == (p.IGMP == nil) || p.ICMP != nil && p.ICMP.ICMPCode != nil && p.ICMP.ICMPType == nil {
				t.Errorf("protocol %+v", p)
			}
		}
	}
}

func checkAppliedTo(t *testing.T, list []v1beta1.AppliedTo, namespaced, egress bool) {
	t.Helper()
	for _, a := range list {
		if count(a.PodSelector != nil || a.NamespaceSelector != nil, a.Group != "", a.ServiceAccount != nil, a.Service != nil,
			a.NodeSelector != nil) != 1 || a.ExternalEntitySelector != nil {
			t.Errorf("appliedTo has not one kind of content: %+v", a)
		}
		if namespaced && (a.NamespaceSelector != nil || a.NodeSelector != nil) || egress && a.Service != nil {
			t.Errorf("appliedTo of another kind of policy: %+v", a)
		}
		if !namespaced && (a.ServiceAccount != nil && a.ServiceAccount.Namespace == "" || a.Service != nil &&
			a.Service.Namespace == "") {
			t.Errorf("appliedTo of no Namespace: %+v", a)
		}
		checkSelectors(t, a.PodSelector, a.NamespaceSelector, a.NodeSelector)
	}
}

func checkPeer(t *testing.T, p v1beta1.Peer, namespaced, egress bool) {
	t.Helper()
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	if count(selects || p.Namespaces != nil, p.IPBlock != nil, p.Group != "", p.ServiceAccount != nil,
		p.NodeSelector != nil, p.FQDN != "") != 1 || p.ExternalEntitySelector != nil {
		t.Errorf("a peer has not one kind of content: %+v", p)
	}
	if p.Namespaces != nil &&
		(namespaced || p.NamespaceSelector != nil || (p.Namespaces.Match == "") == (len(p.Namespaces.SameLabels) == 0)) {
		t.Errorf("namespaces of peer %+v", p)
	}
	if p.Scope == v1beta1.ScopeClusterSet && (!selects || p.Namespaces != nil) {
		t.Errorf("scope of peer %+v", p)
	}
	if p.FQDN != "" && !egress || p.ServiceAccount != nil && !namespaced && p.ServiceAccount.Namespace == "" {
		t.Errorf("peer %+v", p)
	}
	checkSelectors(t, p.PodSelector, p.NamespaceSelector, p.NodeSelector)
	if p.IPBlock != nil {
		checkBlock(t, *p.IPBlock)
	}
}

func checkPort(t *testing.T, p v1beta1.Port) {
	t.Helper()
	first := int32(0) // of a range; 0 for a name
	if p.Port != nil {
		first = p.Port.IntVal
		if p.Port.StrVal == "" && (first < 1 || first > 65535) {
			t.Errorf("port %+v", p)
		}
	}
	if p.EndPort != nil && (first == 0 || *p.EndPort < first || *p.EndPort > 65535) {
		t.Errorf("range of ports %+v", p)
	}
	if p.SourceEndPort != nil && (p.SourcePort == nil || *p.SourceEndPort < *p.SourcePort || *p.SourceEndPort > 65535) {
		t.Errorf("range of source ports %+v", p)
	}
	if p.SourcePort != nil && p.Port != nil && p.Port.StrVal != "" {
		t.Errorf("a source port beside a name: %+v", p)
	}
}

func checkGroup(t *testing.T, g v1beta1.GroupSpec) {
	t.Helper()
	if count(g.PodSelector != nil || g.NamespaceSelector != nil, len(g.IPBlocks) > 0, g.ServiceReference != nil,
		len(g.ChildGroups) > 0) != 1 || g.ExternalEntitySelector != nil {
		t.Errorf("a group has not one kind of content: %+v", g)
	}
	if slices.Contains(g.ChildGroups, "x") {
		t.Error("a group is a part of itself")
	}
	checkSelectors(t, g.PodSelector, g.NamespaceSelector)
	for _, b := range g.IPBlocks {
		checkBlock(t, b)
	}
}
