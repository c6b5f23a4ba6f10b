// Package policystatus runs once in a cluster, for its policies. It writes the status of Antrea-native policies, groups
// and SIG Network's ClusterNetworkPolicies, and Events on policies that cannot be realized. It also serves webhooks for
// faults that no definition can express.
//
// It determines the Nodes that a policy concerns (policy.Spans). Each Node reports in its NodePolicyReport that it
// enforces the policy, once its switch has confirmed the flows. So a policy is Realized once every Node with Pods of it
// reports that. A Node without a report is missing.
//
//	API server: policies, tiers, groups, pods, namespaces, services ─► policy.Spans ─► judgements ─┐
//	            nodepolicyreports ─► node-reports (a row for each policy of each Node) ────────────┤
//	            present status of policies and groups ─────────────────────────────────────────────┤
//	API server ◄─ steps ◄──────────────────────────────────────────────────────────────────────────┘
package policystatus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// tables are the statuses that objects should have.
type tables struct {
	engine *derive.Engine
	kinds  *watch.Kinds
	spans  *policy.Spans

	// Objects with a status, as they are; a ClusterGroup has no Namespace.
	policies      [policy.Kinds]*derive.Source[derive.Object, object]
	groups        *derive.Source[derive.Object, object]
	clusterGroups *derive.Source[derive.Object, object]
	reports       *derive.Source[derive.Object, *tombolov1alpha1.NodePolicyReport]
	nodeReports   *derive.Source[nodePolicy, nodeReport]
	reporting     *derive.Source[derive.Name, bool] // the Nodes with a report: they have an agent

	reportsOf  *derive.Index[policy.Key, nodePolicy, nodeReport]
	byTier     *derive.Index[derive.Name, policy.Key, derive.Name]
	steps      *derive.Table[policy.Key, step]
	groupSteps *derive.Table[derive.Object, step]
}

// object is the part of an object outside of its spec that the tables read.
type object struct {
	UID        types.UID
	Generation int64
	Version    policy.Version
	Status     crdv1beta1.PolicyStatus // of other kinds its conditions alone
}

func objectOf(o metav1.Object, s crdv1beta1.PolicyStatus) object {
	return object{o.GetUID(), o.GetGeneration(), policy.VersionOf(o), s}
}

// nodePolicy is a policy on a Node.
type nodePolicy struct {
	Policy policy.Key
	Node   derive.Name
}

// Compare orders by policy, then Node.
func (n nodePolicy) Compare(o nodePolicy) int {
	return cmp.Or(n.Policy.Compare(o.Policy), n.Node.Compare(o.Node))
}

// nodeReport is a Node's report about a policy.
type nodeReport struct {
	Version          policy.Version // the version in its switch
	Failure, Problem string
}

// step is the desired status of an object. It also has the object's problems, whether or not the status has changed.
type step struct {
	Have     object
	Want     crdv1beta1.PolicyStatus
	Due      bool // the object has another status
	Problems []problem.Problem
}

func newTables() *tables {
	e := derive.New()
	t := &tables{engine: e, spans: policy.NewSpans(e)}
	t.declareKinds()
	t.nodeReports = derive.NewSource[nodePolicy, nodeReport](e, "node-reports")
	t.nodeReports.Loaded()
	t.reporting = derive.NewSource[derive.Name, bool](e, "reporting-nodes")
	t.reporting.Loaded()
	t.reports.Watch(t.splitReports)
	t.reportsOf = derive.NewIndex(t.nodeReports, "policy",
		func(k nodePolicy, _ nodeReport) []policy.Key { return []policy.Key{k.Policy} })
	tiers := derive.NewTable(e, "policy-tiers", func(k policy.Key, r *derive.Reader) (derive.Name, []problem.Problem) {
		f, _ := derive.Get(r, t.spans.Policies[k.Kind], derive.Object{Namespace: k.Namespace, Name: k.Name})
		return derive.Name(f.Tier), nil
	}, derive.KeysOf(t.spans.Judgements))
	t.byTier = derive.NewIndex(tiers, "tier",
		func(_ policy.Key, tier derive.Name) []derive.Name { return []derive.Name{tier} })
	t.steps = derive.NewTable(e, "policy-steps", t.policyStep, derive.KeysOf(t.spans.Judgements))
	t.groupSteps = derive.NewTable(e, "group-steps", t.groupStep, derive.KeysOf(t.spans.Grouped))
	return t
}

// splitReports splits reports into rows, so that a change of one row concerns only its policy.
func (t *tables) splitReports(changes []derive.Change[derive.Object, *tombolov1alpha1.NodePolicyReport]) {
	for _, c := range changes {
		before, now := nodeReportsIn(c.Old), nodeReportsIn(c.New)
		node := derive.Name(c.Key.Name)
		if c.New != nil {
			t.reporting.Set(node, true)
		} else {
			t.reporting.Delete(node)
		}
		for k, s := range before {
			if _, still := now[k]; !still && s != (nodeReport{}) {
				t.nodeReports.Delete(nodePolicy{k, node})
			}
		}
		for k, s := range now {
			if before[k] != s {
				t.nodeReports.Set(nodePolicy{k, node}, s)
			}
		}
	}
}

// nodeReportsIn reads a report. An entry that cannot be read is of a later version, and is ignored.
func nodeReportsIn(r *tombolov1alpha1.NodePolicyReport) map[policy.Key]nodeReport {
	if r == nil {
		return nil
	}
	out := map[policy.Key]nodeReport{}
	each := func(from map[string]string, put func(s *nodeReport, text string)) {
		for name, text := range from {
			if k, ok := policy.KeyOfShort(name); ok {
				s := out[k]
				put(&s, text)
				out[k] = s
			}
		}
	}
	each(r.Policies, func(s *nodeReport, text string) { s.Version = policy.Version(text) })
	each(r.Failures, func(s *nodeReport, text string) { s.Failure = text })
	each(r.Problems, func(s *nodeReport, text string) { s.Problem = text })
	return out
}

// conditionRealized is the condition that SIG Network's ClusterNetworkPolicies have instead of a phase. Their status
// has only conditions.
const conditionRealized = "Realized"

// policyStep decides about a policy's status.
func (t *tables) policyStep(k policy.Key, r *derive.Reader) (step, []problem.Problem) {
	have, ok := derive.Get(r, t.policies[k.Kind], derive.Object{Namespace: k.Namespace, Name: k.Name})
	j, known := derive.Get(r, t.spans.Judgements, k)
	if !ok || !known {
		return step{}, nil
	}
	s := step{Have: have, Problems: slices.Clip(j.Problems)}
	want := crdv1beta1.PolicyStatus{ObservedGeneration: have.Generation, DesiredNodesRealized: int32(len(j.Nodes))}
	if j.Everywhere {
		for _, row := range derive.All(r, t.reporting) {
			n, _ := derive.Get(r, t.spans.NodeNumbers, row.Key)
			if _, counted := slices.BinarySearch(j.Nodes, n); !counted {
				want.DesiredNodesRealized++
			}
		}
	}
	var failed []string // Nodes, and why
	leftOut := map[string][]string{}
	for _, row := range derive.List(r, t.reportsOf, k) {
		n, _ := derive.Get(r, t.spans.NodeNumbers, row.Key.Node)
		if _, concerned := slices.BinarySearch(j.Nodes, n); !concerned && !j.Everywhere {
			continue
		}
		if row.Value.Version == have.Version {
			want.CurrentNodesRealized++
		}
		if text, now := strings.CutPrefix(row.Value.Failure, string(have.Version)+" "); now {
			failed = append(failed, fmt.Sprintf("Node %s: %s", row.Key.Node, text))
		}
		if text := row.Value.Problem; text != "" {
			leftOut[text] = append(leftOut[text], string(row.Key.Node))
		}
	}
	object := problem.Object{Kind: k.Kind.String(), Namespace: k.Namespace, Name: k.Name}
	for _, text := range slices.Sorted(maps.Keys(leftOut)) {
		nodes := leftOut[text]
		field, message, _ := strings.Cut(text, ": ")
		s.Problems = append(s.Problems, problem.Problem{Object: object, Field: field, Reason: reasonLeftOut,
			Message: message + " (" + some(nodes, "Node") + ")"})
	}
	realizable := condition(crdv1beta1.ConditionRealizable, true, reasonUnderstood, "all of it is understood")
	if len(s.Problems) > 0 {
		realizable = condition(crdv1beta1.ConditionRealizable, false, s.Problems[0].Reason, textOf(s.Problems))
	}
	if len(failed) > 0 {
		s.Problems = append(s.Problems, problem.Problem{Object: object, Reason: reasonFlowsRefused, Message: failed[0]})
	}
	want.Phase = phase(want, len(s.Problems) > 0)
	if k.Kind == policy.ClusterNetworkPolicy {
		realized := condition(conditionRealized, want.Phase == crdv1beta1.PhaseRealized, reasonAllNodes,
			fmt.Sprintf("in force on %d of %d Nodes that have Pods of it", want.CurrentNodesRealized, want.DesiredNodesRealized))
		if want.CurrentNodesRealized < want.DesiredNodesRealized {
			realized.Reason = reasonNotAllNodes.String()
		} else if realized.Status == metav1.ConditionFalse {
			realized.Reason = s.Problems[0].Reason.String()
		}
		want = crdv1beta1.PolicyStatus{Conditions: []metav1.Condition{realizable, realized}}
	} else {
		failure := condition(crdv1beta1.ConditionRealizationFailure, len(failed) > 0, reasonNoFailure, "")
		if len(failed) > 0 {
			failure.Reason, failure.Message = reasonFlowsRefused.String(),
				brief(strings.Join(failed[:min(3, len(failed))], "; ")+more(len(failed)-3))
		}
		want.Conditions = []metav1.Condition{realizable, failure}
	}
	s.settle(want)
	return s, nil
}

// phase sums a status up.
func phase(s crdv1beta1.PolicyStatus, wrong bool) crdv1beta1.PolicyPhase {
	switch {
	case wrong:
		return crdv1beta1.PhaseFailed
	case s.CurrentNodesRealized == s.DesiredNodesRealized:
		return crdv1beta1.PhaseRealized
	case s.CurrentNodesRealized == 0:
		return crdv1beta1.PhasePending
	}
	return crdv1beta1.PhaseRealizing
}

// groupStep decides about a group's status.
func (t *tables) groupStep(k derive.Object, r *derive.Reader) (step, []problem.Problem) {
	source := t.groups
	if k.Namespace == "" {
		source = t.clusterGroups
	}
	have, ok := derive.Get(r, source, k)
	j, known := derive.Get(r, t.spans.Grouped, k)
	if !ok || !known {
		return step{}, nil
	}
	s := step{Have: have, Problems: j.Problems}
	c := condition(crdv1beta1.ConditionGroupMembersComputed, true, reasonComputed, "")
	if len(j.Problems) > 0 {
		c = condition(c.Type, false, j.Problems[0].Reason, textOf(j.Problems))
	}
	s.settle(crdv1beta1.PolicyStatus{Conditions: []metav1.Condition{c}})
	return s, nil
}

// settle compares a status with the object's present one. Conditions of other writers stay. Times are not compared.
func (s *step) settle(want crdv1beta1.PolicyStatus) {
	conditions := slices.Clone(s.Have.Status.Conditions)
	for _, c := range want.Conditions {
		c.ObservedGeneration = s.Have.Generation
		if old := meta.FindStatusCondition(conditions, c.Type); old == nil {
			conditions = append(conditions, c)
		} else {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			*old = c
		}
	}
	want.Conditions = conditions
	s.Want = want
	have := s.Have.Status
	s.Due = have.Phase != want.Phase || have.ObservedGeneration != want.ObservedGeneration ||
		have.CurrentNodesRealized != want.CurrentNodesRealized || have.DesiredNodesRealized != want.DesiredNodesRealized ||
		!slices.Equal(have.Conditions, want.Conditions)
}

func condition(kind string, is bool, reason reasons.Reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason.String(), Message: message}
}

// maxText bounds a condition's message.
const maxText = 4096

func textOf(list []problem.Problem) string {
	var texts []string
	for _, p := range list[:min(20, len(list))] {
		if p.Field == "" {
			texts = append(texts, p.Message)
		} else {
			texts = append(texts, p.Field+": "+p.Message)
		}
	}
	return brief(strings.Join(texts, "; ") + more(len(list)-20))
}

func brief(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-3], "") + "..."
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("; and %d more", n)
}

// some names a few.
func some(names []string, kind string) string {
	text := kind + " " + names[0]
	if n := len(names) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
