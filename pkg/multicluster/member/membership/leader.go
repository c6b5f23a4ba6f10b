package membership

import (
	"maps"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

func resourceImportFacts(o *mcv1alpha1.ResourceImport) *mcv1alpha1.ResourceImport {
	m := writes.MetaFacts(o, append([]string{multicluster.AnnotationExported, multicluster.AnnotationSources,
		multicluster.AnnotationReached}, requests.Keys...)...)
	m.CreationTimestamp = o.CreationTimestamp
	return &mcv1alpha1.ResourceImport{ObjectMeta: m, Spec: o.Spec}
}

// importedName indexes ResourceImports of Services by the Service.
func importedName(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Object {
	if ri.Spec.Kind != multicluster.ServiceImportKind && ri.Spec.Kind != multicluster.EndpointsKind {
		return nil
	}
	return []derive.Object{{Namespace: ri.Spec.Namespace, Name: ri.Spec.Name}}
}

// importedKind indexes the ResourceImports of ClusterInfos, the only kind that is read as a list.
func importedKind(_ derive.Object, ri *mcv1alpha1.ResourceImport) []derive.Name {
	if ri.Spec.Kind != multicluster.ClusterInfoKind {
		return nil
	}
	return []derive.Name{multicluster.ClusterInfoKind}
}

func resourceExportFacts(o *mcv1alpha1.ResourceExport) *mcv1alpha1.ResourceExport {
	m := writes.MetaFacts(o, multicluster.AnnotationService, multicluster.AnnotationReady, multicluster.AnnotationReached)
	m.Labels, m.Finalizers = o.Labels, o.Finalizers
	re := &mcv1alpha1.ResourceExport{ObjectMeta: m, Spec: o.Spec}
	for _, c := range o.Status.Conditions {
		if Refuses(c) || Contradicts(c) || LeavesOut(c) { // no decision reads that it was accepted, and when
			re.Status.Conditions = append(re.Status.Conditions,
				mcv1alpha1.ResourceExportCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	return re
}

// Refuses reports whether the leader refuses an export by a condition.
func Refuses(c mcv1alpha1.ResourceExportCondition) bool {
	return c.Type == mcv1alpha1.ResourceExportFailure && c.Status == corev1.ConditionFalse
}

// ReasonOf returns the reason of a condition by which the leader refuses an export.
func ReasonOf(c mcv1alpha1.ResourceExportCondition) reasons.Reason {
	if c.Reason == reasonNotAnnounced.String() {
		return reasonNotAnnounced
	}
	return ReasonConvergeFailure
}

// Contradicts reports whether a condition names exports of other clusters that contradict an imported export.
func Contradicts(c mcv1alpha1.ResourceExportCondition) bool {
	return c.Type == mcv1alpha1.ResourceExportSucceeded && c.Status == corev1.ConditionTrue &&
		strings.HasSuffix(c.Reason, "Conflict")
}

// LeavesOut reports whether the leader imports only some endpoints of an export.
func LeavesOut(c mcv1alpha1.ResourceExportCondition) bool {
	return c.Type == mcv1alpha1.ResourceExportSucceeded && c.Status == corev1.ConditionTrue &&
		c.Reason == mcv1alpha1.ReasonEndpointsLeftOut
}

// IsOwnExport reports whether this controller makes and removes ResourceExports of that kind.
func IsOwnExport(re *mcv1alpha1.ResourceExport) bool {
	switch re.Spec.Kind {
	case multicluster.ServiceKind, multicluster.EndpointsKind, multicluster.ClusterInfoKind,
		multicluster.LabelIdentityKind, multicluster.PolicyReportKind, multicluster.PodAddressesKind,
		multicluster.NamespacesKind:
		return true
	}
	return false
}

// SameSource reports whether two ResourceExports of one name are of the same object. Two Services may lead to one
// derived name. The object of an export cannot be changed.
func SameSource(a, b *mcv1alpha1.ResourceExport) bool {
	return a.Spec.Kind == b.Spec.Kind && a.Spec.Namespace == b.Spec.Namespace && a.Spec.Name == b.Spec.Name
}

// MergeResourceExport changes a ResourceExport to the desired one. It keeps labels and finalizers of other controllers.
func MergeResourceExport(into, want *mcv1alpha1.ResourceExport) {
	into.Spec = want.Spec
	if _, ok := want.Annotations[multicluster.AnnotationService]; ok {
		writes.MergeAnnotation(into, want, multicluster.AnnotationService)
	}
	writes.MergeAnnotation(into, want, multicluster.AnnotationReady)
	writes.MergeAnnotation(into, want, multicluster.AnnotationReached)
	if into.Labels == nil {
		into.Labels = map[string]string{}
	}
	maps.Copy(into.Labels, want.Labels)
	for _, f := range want.Finalizers {
		if !slices.Contains(into.Finalizers, f) {
			into.Finalizers = append(into.Finalizers, f)
		}
	}
}
