package member

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/tombolo-net/tombolo/pkg/multicluster/retry"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// Kinds of replicated policies, as Writes name them.
const (
	kindACNP          = "ClusterNetworkPolicy.crd.antrea.io"
	kindCNP           = "ClusterNetworkPolicy.policy.networking.k8s.io"
	kindNetworkPolicy = "NetworkPolicy"
)

// Reasons of Events about policies that are not imported. The first one is documented for policies of Antrea.
const (
	reasonACNPFailed   = "ACNPImportFailed"
	reasonPolicyFailed = "PolicyImportFailed"
)

// replicated says whether a policy carries the mark of a replicated one.
func replicated(o metav1.Object) bool {
	_, acnp := o.GetAnnotations()[multicluster.AnnotationImportedACNP]
	_, policy := o.GetAnnotations()[multicluster.AnnotationImportedPolicy]
	return acnp || policy
}

// Facts of policies: none of those that cannot be in the way, since their names begin otherwise.

func policyMeta(o metav1.Object) metav1.ObjectMeta {
	m := metaFacts(o, multicluster.AnnotationImportedACNP, multicluster.AnnotationImportedPolicy)
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

// policyVersion is the version of what may be written.
func policyVersion[T metav1.Object](o T) string {
	if !replicated(o) {
		return ""
	}
	return o.GetResourceVersion()
}

func tierFacts(*crdv1beta1.Tier) bool { return true }

// replica is what a ResourceImport of a policy becomes here.
type replica struct {
	Import derive.Object // the ResourceImport
	UID    types.UID     // of it
	Kind   string
	Target derive.Object
	Object client.Object // as it should be; nil for none
	Keep   bool          // what is there stays
	Hash   string        // of the spec
	Fault  string        // why it is not in place
	Done   bool          // it is
}

// name is that of the object here, with its Namespace if it has one.
func (c *replica) name() string { return strings.TrimPrefix(c.Target.String(), "/") }

// policyKey is the key of a replica's object among those of all kinds.
func policyKey(kind string, k derive.Object) derive.Name {
	return derive.Name(object(kind, k.Namespace, k.Name).String())
}

// policyTables are the policies that the leader replicates to all members.
type policyTables struct {
	base *membershipTables

	acnps           *derive.Source[derive.Object, *crdv1beta1.ClusterNetworkPolicy]
	cnps            *derive.Source[derive.Object, *npv1alpha2.ClusterNetworkPolicy]
	networkPolicies *derive.Source[derive.Object, *networkingv1.NetworkPolicy]
	tiers           *derive.Source[derive.Object, bool]
	refusedWrites   *derive.Source[derive.Name, string]        // why policies could not be written, by policyKey
	writtenPolicies *derive.Source[derive.Name, writtenPolicy] // by policyKey

	replicas         *derive.Table[derive.Object, *replica] // by the ResourceImport
	replicasByObject *derive.Index[derive.Name, derive.Object, *replica]
	report           *derive.Table[derive.Name, *mcv1alpha1.ResourceExport]
	reportByName     *derive.Index[derive.Object, derive.Name, *mcv1alpha1.ResourceExport]
}

func newPolicyTables(k *kinds, base *membershipTables) *policyTables {
	t := &policyTables{base: base}
	e, optional := k.Engine, watch.Optional()
	t.refusedWrites = derive.NewSource[derive.Name, string](e, "refused writes")
	t.refusedWrites.Loaded()
	t.writtenPolicies = derive.NewSource[derive.Name, writtenPolicy](e, "written policies")
	t.writtenPolicies.Loaded()
	t.acnps = writtenKind(k, k.cluster, kindACNP, "clusternetworkpolicies of crd.antrea.io",
		acnpFacts, policyVersion, optional)
	t.cnps = writtenKind(k, k.cluster, kindCNP, "clusternetworkpolicies of policy.networking.k8s.io",
		cnpFacts, policyVersion, optional)
	t.networkPolicies = writtenKind(k, k.cluster, kindNetworkPolicy, "networkpolicies", networkPolicyFacts, policyVersion)
	t.tiers = watch.NewSource(k.cluster, "tiers", tierFacts, optional)
	policies := derive.NewIndex(t.base.resourceImports, "policies",
		func(k derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
			if !multicluster.IsPolicy(ri.Spec.Kind) {
				return nil
			}
			return []derive.Object{k}
		})
	t.replicas = derive.NewTable(e, "replicas of policies", t.replicaOf, derive.KeysOfIndex(policies))
	t.replicasByObject = derive.NewIndex(t.replicas, "object", func(_ derive.Object, c *replica) []derive.Name {
		return []derive.Name{policyKey(c.Kind, c.Target)}
	})
	t.report = derive.NewTable(e, "report of policies", t.policyReportOf, derive.KeysOf(t.base.environment))
	t.reportByName = derive.NewIndex(t.report, "name", func(_ derive.Name, re *mcv1alpha1.ResourceExport) []derive.Object {
		return []derive.Object{keyOf(re)}
	})
	return t
}

// writes adds the tables of missing writes, in the order of their kinds.
func (t *policyTables) writes(k *kinds) []*writeTable {
	return []*writeTable{
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
}](t *policyTables, k *kinds, name, kind string, have *derive.Source[derive.Object, T],
	set func(into, want T)) *writeTable {
	targets := derive.NewIndex(t.replicas, kind, func(_ derive.Object, c *replica) []derive.Object {
		if c.Kind != kind {
			return nil
		}
		return []derive.Object{c.Target}
	})
	return k.table(name, writePolicy(t, kind, have, set), derive.KeysOf(have), derive.KeysOfIndex(targets))
}

// replicaOf decides about the ResourceImport of a policy.
func (t *policyTables) replicaOf(k derive.Object, r *derive.Reader) (*replica, []problem.Problem) {
	m, _ := derive.Get(r, t.base.membership, here)
	ri, ok := derive.Get(r, t.base.resourceImports, k)
	if !m.Joined || !ok || !ri.DeletionTimestamp.IsZero() || !m.isFor(ri) {
		return nil, nil
	}
	c := &replica{Import: k, UID: ri.UID, Target: derive.Object{Name: multicluster.ImportedPrefix + ri.Spec.Name}}
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
		c.Keep, c.Fault = true, fmt.Sprintf("the policy cannot be read in cluster %s: %s is missing", m.ID, exportcheck.PolicyField(ri.Spec.Kind))
	case err != nil: // of a later version, say: what is there goes on
		c.Keep, c.Fault = true, fmt.Sprintf("the policy cannot be read in cluster %s: %v", m.ID, err)
	default:
		c.Object = p.Object
		t.check(c, m, r)
	}
	var ps faults
	if c.Fault != "" && c.Object == nil {
		ps.add(m.set(), "", policyReason(c), fmt.Sprintf("ResourceImport %s/%s of the leader is not imported: %s", ri.Namespace, ri.Name, c.Fault))
	}
	return c, ps
}

func policyReason(c *replica) string {
	if c.Kind == kindACNP {
		return reasonACNPFailed
	}
	return reasonPolicyFailed
}

// check says what is in the way of a policy, and marks it as replicated.
func (t *policyTables) check(c *replica, m membership, r *derive.Reader) {
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
		if ns, ok := derive.Get(r, t.base.namespaces, derive.Object{Name: c.Target.Namespace}); !ok ||
			!ns.DeletionTimestamp.IsZero() {
			c.Object, c.Fault = nil, fmt.Sprintf("Namespace %s does not exist in cluster %s", c.Target.Namespace, m.ID)
		}
		have = existing(r, t.networkPolicies, c.Target)
	}
	switch {
	case have != nil && !replicated(have):
		c.Object, c.Fault = nil, fmt.Sprintf("Unable to import policy %s which conflicts with existing one in cluster %s: rename or delete that one", c.name(), m.ID)
		return
	case c.Object == nil:
		return
	}
	c.Object.SetAnnotations(map[string]string{mark: "true"})
	if why, refused := derive.Get(r, t.refusedWrites, policyKey(c.Kind, c.Target)); refused {
		c.Fault = fmt.Sprintf("Failed to write policy %s in cluster %s: %s", c.name(), m.ID, why)
		return
	}
	if have == nil || have.GetDeletionTimestamp() != nil {
		return
	}
	var changed string
	if c.Done, changed = t.kept(policyKey(c.Kind, c.Target), have, c.Object, r); changed != "" {
		c.Fault = fmt.Sprintf("Policy %s is not kept in cluster %s as it is sent there: %s is lost or changed; update its CustomResourceDefinition, or exempt the policy from admission that changes it",
			c.name(), m.ID, changed)
	}
}

// existing is an object of a source as an interface that is nil for none.
func existing[T interface {
	comparable
	client.Object
}](r *derive.Reader, source *derive.Source[derive.Object, T], k derive.Object) client.Object {
	if o, ok := derive.Get(r, source, k); ok {
		return o
	}
	return nil
}

// tierExists knows the default Tiers, which may be written with capitals.
func (t *policyTables) tierExists(name string, r *derive.Reader) bool {
	if _, ok := legacyTiers[name]; ok {
		return true
	}
	if _, ok := crdv1beta1.DefaultTiers[name]; ok {
		return true
	}
	_, ok := derive.Get(r, t.tiers, derive.Object{Name: name})
	return ok
}

var legacyTiers = map[string]bool{"Emergency": true, "SecurityOps": true, "NetworkOps": true, "Platform": true, "Application": true, "Baseline": true}

// specOf is the spec of a policy of any kind.
func specOf(o client.Object) any {
	switch o := o.(type) {
	case *crdv1beta1.ClusterNetworkPolicy:
		return o.Spec
	case *npv1alpha2.ClusterNetworkPolicy:
		return o.Spec
	case *networkingv1.NetworkPolicy:
		return o.Spec
	}
	return nil
}

func samePolicy(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(specOf(a), specOf(b))
}

// writtenPolicy is the spec of a policy that the API server took, and the generation that it gave to the result: whatever a
// definition's defaults and admission made of it, is all in that generation, and nothing of anybody else.
type writtenPolicy struct {
	Spec       any
	UID        types.UID
	Generation int64
}

// kept compares a policy with the wanted one. It is kept where both are the same, but for what the API server here added; a
// field that somebody else added is drift, since it may let through what should not be. changed is the first field that the
// API server did not keep as it was sent.
func (t *policyTables) kept(key derive.Name, have, want client.Object, r *derive.Reader) (ok bool, changed string) {
	if samePolicy(have, want) {
		return true, ""
	}
	last, _ := derive.Get(r, t.writtenPolicies, key)
	if last.UID != have.GetUID() || last.Generation != have.GetGeneration() || !equality.Semantic.DeepEqual(last.Spec, specOf(want)) {
		return false, ""
	}
	changed = changedField(specOf(want), specOf(have))
	return changed == "", changed
}

// changedField is the first field that a spec has, and another one has not or otherwise; empty for none.
func changedField(sent, kept any) string {
	var trees [2]any
	for i, spec := range []any{sent, kept} {
		data, err := json.Marshal(spec)
		if err == nil {
			err = json.Unmarshal(data, &trees[i])
		}
		if err != nil {
			return "spec"
		}
	}
	return lost("spec", trees[0], trees[1])
}

// lost is the path of the first field of a value that another one does not have, or has otherwise; empty for none. The
// values are those of encoding/json.
func lost(path string, sent, kept any) string {
	switch sent := sent.(type) {
	case map[string]any:
		fields, ok := kept.(map[string]any)
		if !ok {
			return path
		}
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			if p := lost(path+"."+name, sent[name], fields[name]); p != "" {
				return p
			}
		}
	case []any:
		list, ok := kept.([]any)
		if !ok || len(list) != len(sent) {
			return path
		}
		for i := range sent {
			if p := lost(fmt.Sprintf("%s[%d]", path, i), sent[i], list[i]); p != "" {
				return p
			}
		}
	default:
		if sent != kept {
			return path
		}
	}
	return ""
}

// writePolicy is the function of a table of writes of one kind of policy.
func writePolicy[T interface {
	comparable
	client.Object
}](t *policyTables, kind string, source *derive.Source[derive.Object, T], set func(into, want T)) func(derive.Object,
	*derive.Reader) *Write {
	return func(k derive.Object, r *derive.Reader) *Write {
		m, _ := derive.Get(r, t.base.membership, here)
		if m.keepsImports() {
			return nil
		}
		have, _ := derive.Get(r, source, k)
		var want T
		for _, row := range derive.List(r, t.replicasByObject, policyKey(kind, k)) {
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
		return kindDiff[T]{kind: kind, mine: func(o T) bool { return replicated(o) }, merge: func(into, want T) {
			mergeAnnotations(into, want)
			if ok, _ := t.kept(policyKey(kind, k), into, want, r); !ok {
				set(into, want)
			}
		}}.write(have, want, t.base.about(m))
	}
}

// policyReportOf tells the leader how the policies fare that it has this cluster import; none where there are none.
func (t *policyTables) policyReportOf(_ derive.Name, r *derive.Reader) (*mcv1alpha1.ResourceExport, []problem.Problem) {
	states := map[string]exportcheck.PolicyState{}
	for _, c := range values(derive.All(r, t.replicas)) {
		if c.Done || c.Fault != "" {
			states[c.Import.Name] = exportcheck.PolicyState{Hash: c.Hash, Problem: c.Fault}
		}
	}
	m, _ := derive.Get(r, t.base.membership, here)
	if len(states) == 0 || m.ID == "" {
		return nil, nil
	}
	data, err := json.Marshal(states)
	if err != nil || len(data) > exportcheck.MaxReportBytes {
		var ps faults
		ps.add(m.set(), "", reasonPolicyFailed, "how policies fare here is not reported to the leader: there are too many of them")
		return nil, ps
	}
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Common, Name: m.ID + multicluster.PolicyReportSuffix, Labels: map[string]string{
			multicluster.LabelSourceKind: multicluster.PolicyReportKind, multicluster.LabelSourceClusterID: m.ID,
		}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: m.ID, Kind: multicluster.PolicyReportKind, Raw: &mcv1alpha1.RawResource{Data: data}},
	}, nil
}

// policyEvents are the Events in the leader's Namespace about policies that are not imported here: one when a fault
// comes or changes.
func (c *controller) policyEvents(changes []derive.Change[derive.Object, *replica]) []retry.Offer {
	var out []retry.Offer
	m, _ := c.tables.base.membership.Get(here)
	for _, change := range changes {
		key := "Event of ResourceImport " + change.Key.String()
		switch was, is := change.Old, change.New; {
		case is == nil || is.Fault == "":
			out = append(out, retry.Offer{Key: key})
		case was == nil || was.Fault != is.Fault:
			to := c.leaderClient()
			out = append(out, retry.Offer{Key: key, Late: true, Writes: []retry.Write{{
				What:  "create an Event about ResourceImport " + change.Key.String(),
				Blame: problem.Problem{Object: m.set(), Reason: reasonWriteFailed},
				Do: func(ctx context.Context) error {
					if leader := to(); leader != nil {
						return leader.Create(ctx, policyEvent(is, time.Now()))
					}
					return nil
				},
			}}})
		}
	}
	return out
}

// policyEvent is the documented Event.
func policyEvent(c *replica, now time.Time) *corev1.Event {
	message := c.Fault
	if len(message) > 1024 { // the API's limit
		message = strings.ToValidUTF8(message[:1021], "") + "..."
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: c.Import.Namespace, Name: fmt.Sprintf("%s.%x", c.Import.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{APIVersion: mcv1alpha1.GroupVersion.String(), Kind: "ResourceImport", Namespace: c.Import.Namespace, Name: c.Import.Name, UID: c.UID},
		Type:           corev1.EventTypeWarning, Reason: policyReason(c), Message: message, Action: "synced",
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
		ReportingController: "resourceimport-controller", ReportingInstance: multicluster.ControllerName,
	}
}

func isPolicyKind(kind string) bool {
	return kind == kindACNP || kind == kindCNP || kind == kindNetworkPolicy
}

// wrotePolicy notes what became of a policy that was written. It returns when the tables know, so that nothing is written
// for what the watch may show before.
func (c *controller) wrotePolicy(ctx context.Context, w Write, answer client.Object) {
	key := policyKey(w.Kind, keyOf(w.Object))
	switch {
	case !isPolicyKind(w.Kind):
		return
	case w.Verb == Delete:
		c.tables.policies.writtenPolicies.Delete(key)
		return
	case w.Verb == Update && samePolicy(w.Have, w.Object): // no spec was sent
		return
	}
	c.tables.policies.writtenPolicies.Set(key, writtenPolicy{specOf(w.Object), answer.GetUID(), answer.GetGeneration()})
	c.tables.Do(ctx, func() { c.tables.Pass() })
}

// refused notes why a policy could not be written.
func (c *controller) refused(of retry.Offer, p *problem.Problem) {
	if kind, _, _ := strings.Cut(of.Key, " "); isPolicyKind(kind) {
		if p == nil {
			c.tables.policies.refusedWrites.Delete(derive.Name(of.Key))
		} else {
			c.tables.policies.refusedWrites.Set(derive.Name(of.Key), p.Message)
		}
	}
	signal(c.reporting)
}
