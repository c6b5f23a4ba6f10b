package exports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// exportCondition makes conditions of a ServiceExport of a generation.
func exportCondition(generation int64) func(kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus,
	reason reasons.Reason, message string) metav1.Condition {
	return func(kind mcsv1beta1.ServiceExportConditionType, status metav1.ConditionStatus,
		reason reasons.Reason, message string) metav1.Condition {
		return metav1.Condition{Type: string(kind), Status: status, Reason: reason.String(), Message: message,
			ObservedGeneration: generation}
	}
}

// validityOf returns the conditions of a ServiceExport. Valid has the reasons of Antrea. Ready and Conflict have the
// reasons of the Multi-Cluster Services API. A Service counts as exported once the leader has it, and while the leader
// gets a newer state.
func (t *Tables) validityOf(k derive.Object, r *derive.Reader) ([]metav1.Condition, []problem.Problem) {
	x, ok := derive.Get(r, t.Exportable, k)
	if !ok {
		return t.leftOf(k, r), nil
	}
	is := exportCondition(x.Observed)
	none := is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse,
		reasonNoConflicts, "")
	invalid := func(reason reasons.Reason, message string) []metav1.Condition {
		return []metav1.Condition{
			is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, reason, message),
			is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, reasonFailed, message), none,
		}
	}
	if x.Refusal != nil {
		return invalid(x.Refusal, x.Message), nil
	}
	if holder, _ := derive.Get(r, t.Holders, derive.Name(x.Name)); holder != k {
		return invalid(reasonNameConflict, fmt.Sprintf(
			"ResourceExport name %s is taken by Service %s; rename one of the two Services", x.Name, holder)), nil
	}
	want, _ := derive.Get(r, t.Exports, k)
	var ps problem.List
	refused, part := "", ""
	for _, re := range want.List() {
		if have, ok := derive.Get(r, t.base.ResourceExports, derive.ObjectOf(re)); ok && membership.SameSource(have, re) {
			no, leftOut := leaderVerdict(k, have, &ps)
			refused, part = cmp.Or(refused, no), cmp.Or(part, leftOut)
		}
	}
	have, ok := derive.Get(r, t.base.ResourceExports, derive.ObjectOf(want.Service))
	switch {
	case ok && !membership.SameSource(have, want.Service):
		return invalid(reasonNameConflict, fmt.Sprintf(
			"ResourceExport name %s is still taken by Service %s/%s, which is not exported any more: wait until "+
				"the leader has removed that ResourceExport",
			x.Name, have.Spec.Namespace, have.Spec.Name)), ps
	case !ok || !have.DeletionTimestamp.IsZero() || !sameExport(have, want.Service):
		m, _ := derive.Get(r, t.base.Membership, membership.Here)
		export, _ := derive.Get(r, t.ServiceExports, k)
		if (ok && have.DeletionTimestamp.IsZero() || !m.Joined) &&
			apimeta.IsStatusConditionTrue(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady)) {
			return nil, ps // the leader has an older state, or has not been read
		}
		message := "the leader does not have the export yet"
		if !m.Joined {
			message = fmt.Sprintf("this cluster is not connected to a leader, see the status of %s", m.ClusterSet())
		}
		return []metav1.Condition{
			is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, reasonExportPending, "The Service can be exported"),
			is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, reasonPending,
				message), none,
		}, ps
	}
	message := "The Service is exported successfully"
	if x.Empty {
		message = "The Service is exported, without endpoints: none of them is ready, so other clusters' " +
			"connections to this one's are refused until one is"
	}
	if x.Left != "" {
		message += "; " + x.Left
	}
	if part != "" {
		message += "; " + part
	}
	out := []metav1.Condition{
		is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, reasonSucceed, message),
		is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, reasonExported, ""),
		none,
	}
	if refused != "" {
		out[1] = is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse,
			reasonFailed, RefusedExport+refused)
	}
	for _, c := range have.Status.Conditions {
		switch {
		case membership.Contradicts(c):
			out[2] = is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, nil, c.Message)
			out[2].Reason = c.Reason // of the leader
		case membership.Refuses(c) && !strings.HasPrefix(c.Message, exportcheck.Refused) && t.otherPorts(k, want.Service, r):
			out[2] = is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue,
				reasonPortConflict,
				"ports: this ClusterSet's leader imports no Service whose ports differ from the ports in the cluster that "+
					"exported it first, and leaves this export out: "+c.Message)
		}
	}
	return out, ps
}

// leftOf returns the conditions of a ServiceExport in a cluster that is in no ClusterSet. If the ServiceExport has no
// condition of this controller, it returns nil, since the cluster may never have been in a ClusterSet.
func (t *Tables) leftOf(k derive.Object, r *derive.Reader) []metav1.Condition {
	m, _ := derive.Get(r, t.base.Membership, membership.Here)
	export, ok := derive.Get(r, t.ServiceExports, k)
	if !m.Leave || !ok || !export.DeletionTimestamp.IsZero() {
		return nil
	}
	valid := apimeta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	if valid == nil || !slices.ContainsFunc(reasonsOfValid,
		func(r reasons.Reason) bool { return r.String() == valid.Reason }) {
		return nil
	}
	const message = "this cluster is in no ClusterSet; create a ClusterSet to export the Service"
	is := exportCondition(export.Generation)
	return []metav1.Condition{
		is(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionUnknown, reasonNoClusterSet, message),
		is(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, reasonFailed,
			message),
		is(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse,
			reasonNoConflicts, ""),
	}
}

// otherPorts reports whether the imported ports of a Service differ from its exported ones. It is used if a leader of
// another implementation refuses an export without a reason.
func (t *Tables) otherPorts(k derive.Object, want *mcv1alpha1.ResourceExport, r *derive.Reader) bool {
	for _, ri := range derive.Values(derive.List(r, t.base.ImportsByName, k)) {
		if ri.Spec.Kind != multicluster.ServiceImportKind || ri.Spec.ServiceImport == nil {
			continue
		}
		ours, _ := exportcheck.ServicePorts("", want.Spec.Service.ServiceSpec.Ports)
		theirs, _ := exportcheck.ImportPorts("", ri.Spec.ServiceImport.Spec.Ports)
		if !slices.EqualFunc(ours, theirs, func(a, b mcsv1alpha1.ServicePort) bool {
			return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port
		}) {
			return true
		}
	}
	return false
}

// sameExport reports whether the leader has the wanted state of an export.
func sameExport(have, want *mcv1alpha1.ResourceExport) bool {
	return equality.Semantic.DeepEqual(have.Spec, want.Spec) &&
		have.Annotations[multicluster.AnnotationService] == want.Annotations[multicluster.AnnotationService]
}

// RefusedExport begins the message of a ServiceExport that the leader refuses.
const RefusedExport = "the leader refuses the export: "

// leaderVerdict reports and returns why the leader does not import a ResourceExport, or only a part of its endpoints.
func leaderVerdict(export derive.Object, have *mcv1alpha1.ResourceExport, ps *problem.List) (refused, part string) {
	for _, c := range have.Status.Conditions {
		if membership.LeavesOut(c) {
			ps.Add(problem.About("ServiceExport", export.Namespace, export.Name), "", reasonEndpointsLeftOut, fmt.Sprintf(
				"the leader imports a part of ResourceExport %s/%s: %s", have.Namespace, have.Name, c.Message))
			part = c.Message
		}
		if membership.Refuses(c) {
			ps.Add(problem.About("ServiceExport", export.Namespace, export.Name), "", membership.ReasonConvergeFailure,
				fmt.Sprintf(
					"the leader refuses ResourceExport %s/%s: %s", have.Namespace, have.Name, c.Message))
			refused = c.Message
		}
	}
	return refused, part
}

func (t *Tables) writeServiceExport(k derive.Object, r *derive.Reader) *writes.Write {
	have, ok := derive.Get(r, t.ServiceExports, k)
	conditions, _ := derive.Get(r, t.Validity, k)
	if !ok {
		return nil
	}
	service, _ := derive.Get(r, t.services.Services, k)
	_, wrong := services.RequestsOf(have, service != nil && services.Headless(service))
	conditions = append(slices.Clone(conditions), services.RequestsCondition(have, wrong)...)
	want := ExportWith(have, conditions)
	want.Status.Conditions = services.WithoutRequests(want.Status.Conditions, have.Annotations)
	if equality.Semantic.DeepEqual(have.Status, want.Status) {
		return nil
	}
	return &writes.Write{Verb: writes.UpdateStatus, Kind: "ServiceExport", Have: have, Object: want,
		About: problem.About("ServiceExport", k.Namespace, k.Name)}
}

// ExportWith is a ServiceExport with conditions.
func ExportWith(have *mcsv1alpha1.ServiceExport, conditions []metav1.Condition) *mcsv1alpha1.ServiceExport {
	want := have.DeepCopy()
	want.Status.Conditions = services.WithConditions(have.Status.Conditions, conditions)
	return want
}
