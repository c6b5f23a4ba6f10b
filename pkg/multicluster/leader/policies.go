package leader

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// policy merges the exports of one policy. As with Services, the imported form stays as long as a cluster exports it.
// If no cluster does, the oldest export decides. The others have to agree with it.
func (t *policyTables) policy(key derive.Object, r *derive.Reader) (joint, []problem.Problem) {
	exports := t.all.counting(r, derive.List(r, t.policiesOf, key))
	if len(exports) == 0 {
		return joint{}, nil
	}
	j := joint{There: true, Failed: map[string]string{}}
	var candidates []*export
	for _, e := range exports {
		switch {
		case e.Missing:
			j.fail(e, "%s is missing: write the policy's spec there", exportcheck.PolicyField(e.Kind))
		case e.Wrong != "":
			j.fail(e, "%s", e.Wrong)
		default:
			candidates = append(candidates, e)
		}
	}
	if len(candidates) == 0 {
		return j, nil
	}
	first := candidates[0]
	if current, _ := derive.Get(r, t.all.facts.imports, key); current != nil && len(candidates) > 1 {
		of := object{current.Spec.Namespace, current.Spec.Name}
		have, _, err := exportcheck.ImportedPolicy(current.Spec)
		if i := slices.IndexFunc(candidates,
			func(e *export) bool { return err == nil && e.Of == of && e.Policy == have.Spec }); i >= 0 {
			first = candidates[i]
		}
	}
	for _, e := range candidates {
		switch {
		case e.Of != first.Of:
			j.fail(e, "%s %s/%s has the derived name of %s/%s, which is imported already; rename one of the two", e.Kind,
				e.Of.namespace, e.Of.name, first.Of.namespace, first.Of.name)
		case e.Policy != first.Policy:
			j.fail(e, "%s differs from that of ResourceExport %s, which exports the same policy and is imported: make them "+
				"equal, or delete one of them",
				exportcheck.PolicyField(e.Kind), first.Key.Name)
		}
	}
	j.Of = first.Of
	j.Import = newImport(key, nil, exportcheck.PolicyImport(first.Kind, first.Of.namespace, first.Of.name, first.Policy))
	return j, nil
}

// policyState is how a policy fares in the members.
type policyState struct {
	Clusters []mcv1alpha1.ResourceImportClusterStatus // in the order of their IDs, without times
	Summary  string
}

// policyState collects the members' reports about the present spec. It omits members that have not reported on it.
func (t *policyTables) policyState(key derive.Object, r *derive.Reader) (s policyState, _ []problem.Problem) {
	j, _ := derive.Get(r, t.policies, key)
	if j.Import == nil {
		return s, nil
	}
	p, _, err := exportcheck.ImportedPolicy(j.Import.Spec)
	if err != nil {
		return s, nil // not reached, since the import was made from a valid export
	}
	hash := multicluster.LabelHash(p.Spec)
	var in, out []string
	for _, row := range derive.All(r, t.reports) {
		state, reported := row.Value[key.Name]
		if !reported || state.Hash != hash {
			continue
		}
		c := mcv1alpha1.ResourceImportCondition{Type: mcv1alpha1.ResourceImportSucceeded, Status: corev1.ConditionTrue,
			Message: "the policy is in place"}
		if state.Problem == "" {
			in = append(in, string(row.Key))
		} else {
			out = append(out, fmt.Sprintf("%s (%s)", row.Key, state.Problem))
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonImportFailed.String(), state.Problem
		}
		s.Clusters = append(s.Clusters, mcv1alpha1.ResourceImportClusterStatus{ClusterID: string(row.Key),
			Conditions: []mcv1alpha1.ResourceImportCondition{c}})
	}
	var words []string
	if len(in) > 0 {
		words = append(words, "in place in cluster "+strings.Join(in, ", "))
	}
	if len(out) > 0 {
		words = append(words, "not in cluster "+strings.Join(out, ", "))
	}
	if s.Summary = strings.Join(words, "; "); len(s.Summary) > 4096 {
		s.Summary = strings.ToValidUTF8(s.Summary[:4096], "") + "..."
	}
	return s, nil
}

// report returns a cluster's report about its policies.
func (t *policyTables) report(cluster derive.Name, r *derive.Reader) (
	map[string]exportcheck.PolicyState, []problem.Problem,
) {
	for _, e := range t.all.counting(r, derive.List(r, t.reportsOf, cluster)) {
		if e.Key.Name == e.ClusterID+multicluster.PolicyReportSuffix {
			return e.Report, nil
		}
	}
	return nil, nil
}

// policyTables adds the tables of replicated policies.
func (t *policyTables) policyTables() {
	t.policiesOf = derive.NewIndex(t.all.facts.exports, "policies", func(k derive.Object, e *export) []derive.Object {
		if !multicluster.IsPolicy(e.Kind) {
			return nil
		}
		return []derive.Object{{Namespace: k.Namespace, Name: importName(e)}}
	})
	t.reportsOf = derive.NewIndex(t.all.facts.exports, "PolicyReport", func(_ derive.Object, e *export) []derive.Name {
		if e.Kind != multicluster.PolicyReportKind {
			return nil
		}
		return []derive.Name{derive.Name(e.ClusterID)}
	})
	t.policies = derive.NewTable(t.all.engine, "policies", t.policy, derive.KeysOfIndex(t.policiesOf))
	t.reports = derive.NewTable(t.all.engine, "reports of policies", t.report, derive.KeysOfIndex(t.reportsOf))
	t.policyStates = derive.NewTable(t.all.engine, "states of policies", t.policyState, derive.KeysOf(t.policies))
}

// sameSpec compares two specs of imports. A policy's may be written in different ways.
func sameSpec(have, want mcv1alpha1.ResourceImportSpec) bool {
	if multicluster.IsPolicy(want.Kind) {
		if p, missing, err := exportcheck.ImportedPolicy(have); err == nil && !missing {
			same := exportcheck.PolicyImport(have.Kind, have.Namespace, have.Name, p.Spec)
			have.ClusterNetworkPolicy, have.Raw = same.ClusterNetworkPolicy, same.Raw
		}
	}
	return equality.Semantic.DeepEqual(have, want)
}
