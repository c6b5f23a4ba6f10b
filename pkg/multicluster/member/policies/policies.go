// Package policies makes the policies of this cluster from the policies that the leader replicates to all members.
package policies

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Kinds of replicated policies, as Writes name them.
const (
	kindACNP          = "ClusterNetworkPolicy.crd.antrea.io"
	kindCNP           = "ClusterNetworkPolicy.policy.networking.k8s.io"
	kindNetworkPolicy = "NetworkPolicy"
)

// replicated reports whether a policy carries the mark of a replicated one.
func replicated(o metav1.Object) bool {
	_, acnp := o.GetAnnotations()[multicluster.AnnotationImportedACNP]
	_, policy := o.GetAnnotations()[multicluster.AnnotationImportedPolicy]
	return acnp || policy
}

func policyMeta(o metav1.Object) metav1.ObjectMeta {
	m := writes.MetaFacts(o, multicluster.AnnotationImportedACNP, multicluster.AnnotationImportedPolicy)
	m.Generation = o.GetGeneration()
	return m
}

func acnpFacts(o *crdv1beta1.ClusterNetworkPolicy) *crdv1beta1.ClusterNetworkPolicy {
	if !strings.HasPrefix(o.Name, multicluster.ImportedPrefix) {
		return nil
	}
	return &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: policyMeta(o), Spec: o.Spec}
}

func cnpFacts(o *npv1alpha2.ClusterNetworkPolicy) *npv1alpha2.ClusterNetworkPolicy {
	if !strings.HasPrefix(o.Name, multicluster.ImportedPrefix) {
		return nil
	}
	return &npv1alpha2.ClusterNetworkPolicy{ObjectMeta: policyMeta(o), Spec: o.Spec}
}

func networkPolicyFacts(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	if !strings.HasPrefix(o.Name, multicluster.ImportedPrefix) {
		return nil
	}
	return &networkingv1.NetworkPolicy{ObjectMeta: policyMeta(o), Spec: o.Spec}
}

// policyVersion returns the version of a policy that this controller may write, else "".
func policyVersion[T metav1.Object](o T) string {
	if !replicated(o) {
		return ""
	}
	return o.GetResourceVersion()
}

func tierFacts(*crdv1beta1.Tier) bool { return true }

// Replica is the result for a ResourceImport of a policy.
type Replica struct {
	Import derive.Object // the ResourceImport
	UID    types.UID     // of it
	Kind   string
	Target derive.Object
	Object client.Object // the desired object; nil for no object
	Keep   bool          // the existing object stays
	Hash   string        // of the spec
	Fault  string        // why it is not in place
	Done   bool          // it is
}

// name returns the name of the object here, with its Namespace if it has one.
func (c *Replica) name() string { return strings.TrimPrefix(c.Target.String(), "/") }

// Key returns the key of a replica's object among the objects of all kinds.
func Key(kind string, k derive.Object) derive.Name {
	return derive.Name(problem.About(kind, k.Namespace, k.Name).String())
}

// Tables has the policies that the leader replicates to all members.
type Tables struct {
	base *membership.Tables

	acnps           *derive.Source[derive.Object, *crdv1beta1.ClusterNetworkPolicy]
	cnps            *derive.Source[derive.Object, *npv1alpha2.ClusterNetworkPolicy]
	networkPolicies *derive.Source[derive.Object, *networkingv1.NetworkPolicy]
	tiers           *derive.Source[derive.Object, bool]
	RefusedWrites   *derive.Source[derive.Name, string]  // why policies could not be written, by policyKey
	WrittenPolicies *derive.Source[derive.Name, Written] // by policyKey

	Replicas         *derive.Table[derive.Object, *Replica] // by the ResourceImport
	replicasByObject *derive.Index[derive.Name, derive.Object, *Replica]
	Report           *derive.Table[derive.Name, *mcv1alpha1.ResourceExport]
	ReportByName     *derive.Index[derive.Object, derive.Name, *mcv1alpha1.ResourceExport]
}

// New adds the tables of replicated policies.
func New(k *writes.Kinds, base *membership.Tables) *Tables {
	t := &Tables{base: base}
	e, optional := k.Engine, watch.Optional()
	t.RefusedWrites = derive.NewSource[derive.Name, string](e, "refused writes")
	t.RefusedWrites.Loaded()
	t.WrittenPolicies = derive.NewSource[derive.Name, Written](e, "written policies")
	t.WrittenPolicies.Loaded()
	t.acnps = writes.NewSource(k, k.Cluster, kindACNP, "clusternetworkpolicies of crd.antrea.io",
		acnpFacts, policyVersion, optional)
	t.cnps = writes.NewSource(k, k.Cluster, kindCNP, "clusternetworkpolicies of policy.networking.k8s.io",
		cnpFacts, policyVersion, optional)
	t.networkPolicies = writes.NewSource(k, k.Cluster, kindNetworkPolicy, "networkpolicies", networkPolicyFacts,
		policyVersion)
	t.tiers = watch.NewSource(k.Cluster, "tiers", tierFacts, optional)
	policies := derive.NewIndex(t.base.ResourceImports, "policies",
		func(k derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
			if !multicluster.IsPolicy(ri.Spec.Kind) {
				return nil
			}
			return []derive.Object{k}
		})
	t.Replicas = derive.NewTable(e, "replicas of policies", t.replicaOf, derive.KeysOfIndex(policies))
	t.replicasByObject = derive.NewIndex(t.Replicas, "object", func(_ derive.Object, c *Replica) []derive.Name {
		return []derive.Name{Key(c.Kind, c.Target)}
	})
	t.Report = derive.NewTable(e, "report of policies", t.policyReportOf, derive.KeysOf(t.base.Environment))
	t.ReportByName = derive.NewIndex(t.Report, "name", func(_ derive.Name, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{derive.ObjectOf(re)}
	})
	return t
}

// Writes adds the tables of missing writes, in the order of their kinds.
func (t *Tables) Writes(k *writes.Kinds) []*writes.Table {
	return []*writes.Table{
		writePolicies(t, k, "write-acnps", kindACNP, t.acnps,
			func(into, want *crdv1beta1.ClusterNetworkPolicy) { into.Spec = want.Spec }),
		writePolicies(t, k, "write-cnps", kindCNP, t.cnps,
			func(into, want *npv1alpha2.ClusterNetworkPolicy) { into.Spec = want.Spec }),
		writePolicies(t, k, "write-networkpolicies", kindNetworkPolicy, t.networkPolicies,
			func(into, want *networkingv1.NetworkPolicy) { into.Spec = want.Spec }),
	}
}

// writePolicies adds the table of missing writes of one kind of policy.
func writePolicies[T interface {
	comparable
	client.Object
}](t *Tables, k *writes.Kinds, name, kind string, have *derive.Source[derive.Object, T],
	set func(into, want T)) *writes.Table {
	targets := derive.NewIndex(t.Replicas, kind, func(_ derive.Object, c *Replica) []derive.Object {
		if c.Kind != kind {
			return nil
		}
		return []derive.Object{c.Target}
	})
	return k.Table(name, writePolicy(t, kind, have, set), derive.KeysOf(have), derive.KeysOfIndex(targets))
}

// replicaOf decides about the ResourceImport of a policy.
func (t *Tables) replicaOf(k derive.Object, r *derive.Reader) (*Replica, []problem.Problem) {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	ri, ok := derive.Get(r, t.base.ResourceImports, k)
	if !m.Joined || !ok || !ri.DeletionTimestamp.IsZero() || !m.IsFor(ri) {
		return nil, nil
	}
	c := &Replica{Import: k, UID: ri.UID, Target: derive.Object{Name: multicluster.ImportedPrefix + ri.Spec.Name}}
	p, missing, err := exportcheck.ImportedPolicy(ri.Spec)
	c.Hash = multicluster.LabelHash(p.Spec)
	switch ri.Spec.Kind {
	case multicluster.AntreaClusterNetworkPolicyKind:
		c.Kind = kindACNP
	case multicluster.ClusterNetworkPolicyKind:
		c.Kind = kindCNP
	default:
		c.Kind, c.Target.Namespace = kindNetworkPolicy, ri.Spec.Namespace
	}
	switch {
	case missing:
		c.Keep, c.Fault = true, fmt.Sprintf("the policy cannot be read in cluster %s: %s is missing", m.ID,
			exportcheck.PolicyField(ri.Spec.Kind))
	case err != nil: // of a later version, for example: the existing policy stays
		c.Keep, c.Fault = true, fmt.Sprintf("the policy cannot be read in cluster %s: %v", m.ID, err)
	default:
		c.Object = p.Object
		t.check(c, m, r)
	}
	var ps problem.List
	if c.Fault != "" && c.Object == nil {
		ps.Add(m.ClusterSet(), "", Reason(c),
			fmt.Sprintf("ResourceImport %s/%s of the leader is not imported: %s", ri.Namespace, ri.Name, c.Fault))
	}
	return c, ps
}

// Reason returns the reason of Events and Problems about a policy that is not imported.
func Reason(c *Replica) reasons.Reason {
	if c.Kind == kindACNP {
		return reasonACNPFailed
	}
	return reasonPolicyFailed
}

// check finds the obstacles to a policy, and marks it as replicated.
func (t *Tables) check(c *Replica, m membership.Membership, r *derive.Reader) {
	mark := multicluster.AnnotationImportedPolicy
	var have client.Object
	switch want := c.Object.(type) {
	case *crdv1beta1.ClusterNetworkPolicy:
		mark = multicluster.AnnotationImportedACNP
		if tier := want.Spec.Tier; !t.tierExists(tier, r) {
			c.Object, c.Fault = nil, fmt.Sprintf("ACNP Tier %s does not exist in importing cluster %s", tier, m.ID)
		}
		have = existing(r, t.acnps, c.Target)
	case *npv1alpha2.ClusterNetworkPolicy:
		have = existing(r, t.cnps, c.Target)
	case *networkingv1.NetworkPolicy:
		if ns, ok := derive.Get(r, t.base.Namespaces, derive.Object{Name: c.Target.Namespace}); !ok ||
			!ns.DeletionTimestamp.IsZero() {
			c.Object, c.Fault = nil, fmt.Sprintf("Namespace %s does not exist in cluster %s", c.Target.Namespace, m.ID)
		}
		have = existing(r, t.networkPolicies, c.Target)
	}
	switch {
	case have != nil && !replicated(have):
		c.Object, c.Fault = nil, fmt.Sprintf("Unable to import policy %s which conflicts with existing one in "+
			"cluster %s: rename or delete that one", c.name(), m.ID)
		return
	case c.Object == nil:
		return
	}
	c.Object.SetAnnotations(map[string]string{mark: "true"})
	if why, refused := derive.Get(r, t.RefusedWrites, Key(c.Kind, c.Target)); refused {
		c.Fault = fmt.Sprintf("Failed to write policy %s in cluster %s: %s", c.name(), m.ID, why)
		return
	}
	if have == nil || have.GetDeletionTimestamp() != nil {
		return
	}
	var changed string
	if c.Done, changed = t.kept(Key(c.Kind, c.Target), have, c.Object, r); changed != "" {
		c.Fault = fmt.Sprintf("Policy %s is not kept in cluster %s as it is sent there: %s is lost or changed; "+
			"update its CustomResourceDefinition, or exempt the policy from admission that changes it",
			c.name(), m.ID, changed)
	}
}

// existing returns an object of a source as an interface, which is nil if there is no object. A nil pointer in the
// interface would not compare as nil.
func existing[T interface {
	comparable
	client.Object
}](r *derive.Reader, source *derive.Source[derive.Object, T], k derive.Object) client.Object {
	if o, ok := derive.Get(r, source, k); ok {
		return o
	}
	return nil
}

// tierExists reports whether a Tier exists. It accepts the default Tiers, also with capitals.
func (t *Tables) tierExists(name string, r *derive.Reader) bool {
	if _, ok := legacyTiers[name]; ok {
		return true
	}
	if _, ok := crdv1beta1.DefaultTiers[name]; ok {
		return true
	}
	_, ok := derive.Get(r, t.tiers, derive.Object{Name: name})
	return ok
}

var legacyTiers = map[string]bool{"Emergency": true, "SecurityOps": true, "NetworkOps": true, "Platform": true,
	"Application": true, "Baseline": true}

// kept compares a policy with the desired one. It is kept if both are the same, except for fields that this cluster's
// API server added. A field that another client added is drift, since it may open more than the policy allows. changed
// is the first field that the API server did not keep as it was sent.
func (t *Tables) kept(key derive.Name, have, want client.Object, r *derive.Reader) (ok bool, changed string) {
	if SamePolicy(have, want) {
		return true, ""
	}
	last, _ := derive.Get(r, t.WrittenPolicies, key)
	if last.UID != have.GetUID() || last.Generation != have.GetGeneration() ||
		!equality.Semantic.DeepEqual(last.Spec, SpecOf(want)) {
		return false, ""
	}
	changed = changedField(SpecOf(want), SpecOf(have))
	return changed == "", changed
}

// policyReportOf returns the report to the leader about the policies that this cluster imports, or nil without
// policies.
func (t *Tables) policyReportOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	states := map[string]exportcheck.PolicyState{}
	for _, c := range derive.Values(derive.All(r, t.Replicas)) {
		if c.Done || c.Fault != "" {
			states[c.Import.Name] = exportcheck.PolicyState{Hash: c.Hash, Problem: c.Fault}
		}
	}
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	if len(states) == 0 || m.ID == "" {
		return nil, nil
	}
	data, err := json.Marshal(states)
	if err != nil || len(data) > exportcheck.MaxReportBytes {
		var ps problem.List
		ps.Add(m.ClusterSet(), "", reasonPolicyFailed,
			"the states of policies are not reported to the leader: there are too many policies: remove some of them")
		return nil, ps
	}
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Common, Name: m.ID + multicluster.PolicyReportSuffix,
			Labels: map[string]string{
				multicluster.LabelSourceKind: multicluster.PolicyReportKind, multicluster.LabelSourceClusterID: m.ID,
			}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: m.ID, Kind: multicluster.PolicyReportKind,
			Raw: &mcv1alpha1.RawResource{Data: data}},
	}, nil
}

// writePolicy is the function of a table of writes of one kind of policy.
func writePolicy[T interface {
	comparable
	client.Object
}](t *Tables, kind string, source *derive.Source[derive.Object, T], set func(into, want T)) func(derive.Object,
	*derive.Reader) *writes.Write {
	return func(k derive.Object, r *derive.Reader) *writes.Write {
		m, _ := derive.Get(r, t.base.Membership, membership.Here)
		if m.KeepsImports() {
			return nil
		}
		have, _ := derive.Get(r, source, k)
		var want T
		for _, row := range derive.List(r, t.replicasByObject, Key(kind, k)) {
			if row.Value.Keep {
				return nil
			}
			if o, ok := row.Value.Object.(T); ok {
				want = o
			}
		}
		var none T
		if have != none && !replicated(have) { // a user's
			return nil
		}
		return writes.Diff[T]{Kind: kind, Mine: func(o T) bool { return replicated(o) }, Merge: func(into, want T) {
			writes.MergeAnnotations(into, want)
			if ok, _ := t.kept(Key(kind, k), into, want, r); !ok {
				set(into, want)
			}
		}}.Between(have, want, t.base.About(m))
	}
}

// IsKind reports whether a kind, as Writes name it, is a kind of replicated policy.
func IsKind(kind string) bool {
	return kind == kindACNP || kind == kindCNP || kind == kindNetworkPolicy
}
