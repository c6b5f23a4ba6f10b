package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// markResourceExport labels policies that an administrator exports by hand. It also labels a ClusterInfo, since
// Antrea's members write it without the labels of their other exports. The validating webhook decides whether they may
// write it.
func (h *handlers) markResourceExport(_ context.Context, req admission.Request) admission.Response {
	var re mcv1alpha1.ResourceExport
	if err := h.decoder.DecodeRaw(req.Object, &re); err != nil {
		return badRequest(err)
	}
	kind := re.Spec.Kind
	if re.Spec.ClusterNetworkPolicy != nil {
		kind = multicluster.AntreaClusterNetworkPolicyKind
	}
	if re.Labels == nil {
		re.Labels = map[string]string{}
	}
	switch {
	case kind == multicluster.ClusterInfoKind && fillLabels(&re):
		return patched(req, &re)
	case !multicluster.IsPolicy(kind):
		return admission.Allowed("")
	}
	re.Labels[multicluster.LabelSourceName] = re.Spec.Name
	re.Labels[multicluster.LabelSourceNamespace] = ""
	if kind == multicluster.NetworkPolicyKind {
		re.Labels[multicluster.LabelSourceNamespace] = re.Spec.Namespace
	}
	re.Labels[multicluster.LabelSourceKind] = kind
	if re.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(&re, multicluster.ResourceExportFinalizer)
	}
	return patched(req, &re)
}

// fillLabels adds the missing labels of a ClusterInfo's export, and reports whether any were missing. It keeps wrong
// labels, which the validating webhook refuses.
func fillLabels(re *mcv1alpha1.ResourceExport) (missing bool) {
	for key, value := range map[string]string{multicluster.LabelSourceClusterID: re.Spec.ClusterID,
		multicluster.LabelSourceKind: re.Spec.Kind} {
		if _, has := re.Labels[key]; !has {
			re.Labels[key], missing = value, true
		}
	}
	return missing
}

func patched(req admission.Request, re *mcv1alpha1.ResourceExport) admission.Response {
	marked, err := json.Marshal(re)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, marked)
}

// resourceExport lets members write their own exports, under the names that belong to them.
func (h *handlers) resourceExport(ctx context.Context, req admission.Request) admission.Response {
	namespace, name, isAccount := caller(req.UserInfo.Username)
	if !isAccount || namespace != h.namespace {
		return h.byAdministrator(req)
	}
	if name == multicluster.ControllerName && req.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	var was, is mcv1alpha1.ResourceExport
	if len(req.OldObject.Raw) > 0 {
		if err := h.decoder.DecodeRaw(req.OldObject, &was); err != nil {
			return badRequest(err)
		}
	}
	if req.Operation != admissionv1.Delete {
		if err := h.decoder.DecodeRaw(req.Object, &is); err != nil {
			return badRequest(err)
		}
	}
	account, refusal := h.account(ctx, name)
	if refusal != nil {
		if req.Operation == admissionv1.Delete && was.DeletionTimestamp != nil {
			return admission.Allowed("")
		}
		return *refusal
	}
	id, bound, refusal := h.actsFor(ctx, account)
	switch {
	case refusal != nil:
		return *refusal
	case !bound:
		return denied("ServiceAccount %s is not bound to a cluster ID: announce the member first, or annotate the "+
			"ServiceAccount with %s", name, multicluster.AnnotationClusterID)
	case id == "":
		return denied("ServiceAccount %s: annotation %s is empty; set it to the member's cluster ID", name,
			multicluster.AnnotationClusterID)
	case req.Operation != admissionv1.Create && was.Spec.ClusterID != id:
		return denied("ServiceAccount %s is bound to cluster ID %s and not authorized to change an export of %s", name, id,
			was.Spec.ClusterID)
	case req.Operation == admissionv1.Delete:
		return admission.Allowed("")
	}
	wrong := checkMeta(&was, &is, multicluster.ResourceExportFinalizer, multicluster.ResourceExportFinalizerOld)
	if wrong != "" {
		return denied("ResourceExport %s: %s", req.Name, wrong)
	}
	if req.Operation == admissionv1.Update {
		if held(&was) && !held(&is) && was.DeletionTimestamp == nil {
			return denied("ResourceExport %s: finalizer %s is taken off by the leader only", req.Name,
				multicluster.ResourceExportFinalizer)
		}
		if was.Spec.Kind != is.Spec.Kind || was.Spec.Name != is.Spec.Name {
			return denied("ResourceExport %s: spec.kind and spec.name are immutable", req.Name)
		}
		if was.Spec.Namespace != is.Spec.Namespace && ofNamespace(is.Spec.Kind) {
			return denied("ResourceExport %s: spec.namespace of kind %s is immutable", req.Name, is.Spec.Kind)
		}
	} else if !held(&is) && multicluster.HaveFinalizer(is.Spec.Kind) {
		return denied("ResourceExport %s: finalizer %s is missing", req.Name, multicluster.ResourceExportFinalizer)
	}
	if wrong := checkExport(&is, id); wrong != "" {
		return denied("ResourceExport %s: %s", req.Name, wrong)
	}
	if wrong := checkPayload(&is); wrong != nil {
		return denied("ResourceExport %s: %v", req.Name, wrong)
	}
	return h.limits.admit(req, id, is.Spec.Kind)
}

// ofNamespace reports whether the imports of a kind are made for spec.namespace. For other kinds that field has at most
// the Namespace of the member's controller, which changes if an Antrea member moves.
func ofNamespace(kind string) bool {
	return kind == multicluster.ServiceKind || kind == multicluster.EndpointsKind || multicluster.IsPolicy(kind)
}

// held reports whether the deletion of an export waits for the leader. Members before Antrea v2.2 have only the old
// finalizer.
func held(re *mcv1alpha1.ResourceExport) bool {
	return slices.Contains(re.Finalizers, multicluster.ResourceExportFinalizer) ||
		slices.Contains(re.Finalizers, multicluster.ResourceExportFinalizerOld)
}

// byAdministrator refuses policies that cannot be read. It allows all other writes of administrators and of garbage
// collection.
func (h *handlers) byAdministrator(req admission.Request) admission.Response {
	if req.Operation == admissionv1.Delete {
		return admission.Allowed("")
	}
	var re mcv1alpha1.ResourceExport
	if err := h.decoder.DecodeRaw(req.Object, &re); err != nil {
		return badRequest(err)
	}
	if !multicluster.IsPolicy(re.Spec.Kind) || re.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	switch _, missing, err := exportcheck.ExportedPolicy(re.Spec); {
	case missing:
		return denied("ResourceExport %s: %s is missing: write the policy's spec there", req.Name,
			exportcheck.PolicyField(re.Spec.Kind))
	case err != nil:
		return denied("ResourceExport %s: %v", req.Name, err)
	}
	return admission.Allowed("")
}

// checkMeta returns a text about metadata that a member may not write into an object, or "". A finalizer or an owner
// that no controller removes would prevent the deletion of the object, the member and the Namespace. With an owner that
// does not exist, the object is deleted.
func checkMeta(was, is metav1.Object, finalizers ...string) string {
	for _, f := range is.GetFinalizers() {
		if !slices.Contains(finalizers, f) && !slices.Contains(was.GetFinalizers(), f) {
			return fmt.Sprintf("metadata.finalizers: members may not add %q", f)
		}
	}
	for _, o := range is.GetOwnerReferences() {
		if !slices.ContainsFunc(was.GetOwnerReferences(),
			func(w metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(w, o) }) {
			return fmt.Sprintf("metadata.ownerReferences: members may not add one (%s %s)", o.Kind, o.Name)
		}
	}
	return ""
}

// checkPayload returns an error for a port or endpoint of an export that other clusters could not import. The leader's
// plan, which has the announced ranges, decides whether endpoints are in them.
func checkPayload(re *mcv1alpha1.ResourceExport) error {
	switch re.Spec.Kind {
	case multicluster.ServiceKind:
		if _, err := exportcheck.ReadServiceFacts(re.Annotations[multicluster.AnnotationService]); err != nil {
			return err
		}
		_, wrong := exportcheck.ServicePorts("spec.service.serviceSpec.ports", re.Spec.Service.ServiceSpec.Ports)
		return exportcheck.First(wrong)
	case multicluster.EndpointsKind:
		_, wrong := exportcheck.Subsets("spec.endpoints.subsets", re.Spec.Endpoints.Subsets, exportcheck.Allowed{},
			exportcheck.MaxEndpoints)
		return exportcheck.First(wrong)
	case multicluster.PolicyReportKind:
		_, err := exportcheck.PolicyReport(re.Spec.Raw.Data)
		return err
	case multicluster.LabelIdentityKind:
		return exportcheck.Label("spec.labelIdentity.normalizedLabel", re.Spec.LabelIdentity.NormalizedLabel)
	}
	return nil
}

// actsFor returns the cluster ID that an account is bound to. If the leader's controller has not seen the account's
// announcement yet, it returns the announced ID.
func (h *handlers) actsFor(ctx context.Context, account *corev1.ServiceAccount) (id string, ok bool,
	refusal *admission.Response) {
	if id, ok = binding.Bound(account); ok {
		return id, true, nil
	}
	accounts, announces, refusal := h.area(ctx)
	if refusal != nil {
		return "", false, refusal
	}
	// The account itself as the list has it: it may have been bound since.
	for _, a := range accounts {
		if a.Name != account.Name {
			continue
		}
		if id, ok = binding.Bound(a); ok {
			return id, true, nil
		}
	}
	if a := binding.Decide(accounts, announces).Unbound[account.Name]; a != nil {
		return a.ClusterID, true, nil
	}
	return "", false, nil
}

// checkExport returns the fault of a member's export, or "".
func checkExport(re *mcv1alpha1.ResourceExport, id string) string {
	s := re.Spec
	labels := map[string]string{multicluster.LabelSourceClusterID: id, multicluster.LabelSourceKind: s.Kind}
	var name string
	switch s.Kind {
	case multicluster.ServiceKind, multicluster.EndpointsKind:
		suffix := multicluster.ServiceSuffix
		missing := s.Service == nil
		if s.Kind == multicluster.EndpointsKind {
			suffix, missing = multicluster.EndpointsSuffix, s.Endpoints == nil
		}
		if missing {
			return "has no spec for its kind " + s.Kind
		}
		if e := validation.IsDNS1123Label(s.Namespace); len(e) > 0 {
			return fmt.Sprintf("spec.namespace: %q: %s", s.Namespace, e[0])
		}
		if e := validation.IsDNS1123Label(s.Name); len(e) > 0 {
			return fmt.Sprintf("spec.name: %q: %s", s.Name, e[0])
		}
		labels[multicluster.LabelSourceName], labels[multicluster.LabelSourceNamespace] = s.Name, s.Namespace
		name = multicluster.ResourceExportName(id, s.Namespace, s.Name, suffix)
	case multicluster.ClusterInfoKind:
		if s.ClusterInfo != nil && s.ClusterInfo.ClusterID != id {
			return fmt.Sprintf("spec.clusterInfo.clusterID is %q, want %q", s.ClusterInfo.ClusterID, id)
		}
		name = id + multicluster.ClusterInfoSuffix
	case multicluster.LabelIdentityKind:
		if s.LabelIdentity == nil {
			return "has no spec for its kind " + s.Kind
		}
		name = id + "-" + multicluster.LabelHash(s.LabelIdentity.NormalizedLabel)
	case multicluster.PolicyReportKind:
		if s.Raw == nil {
			return "has no spec for its kind " + s.Kind
		}
		name = id + multicluster.PolicyReportSuffix
	case multicluster.NamespacesKind:
		if s.Raw == nil {
			return "has no spec for its kind " + s.Kind
		}
		list, err := exportcheck.ReadNamespaces(s.Raw.Data)
		switch {
		case err != nil:
			return err.Error()
		case list.ClusterID != id:
			return fmt.Sprintf("spec.raw.data.clusterID is %q, want %q", list.ClusterID, id)
		}
		name = id + multicluster.NamespacesSuffix
	case multicluster.PodAddressesKind:
		if s.Raw == nil {
			return "has no spec for its kind " + s.Kind
		}
		p, err := exportcheck.ReadPodAddresses(s.Raw.Data)
		switch {
		case err != nil:
			return err.Error()
		case p.ClusterID != id:
			return fmt.Sprintf("spec.raw.data.clusterID is %q, want %q", p.ClusterID, id)
		}
		name = multicluster.PodAddressesName(id, p.Block)
	default:
		return fmt.Sprintf("spec.kind: members may not export %q", s.Kind)
	}
	if s.ClusterID != id {
		return fmt.Sprintf("spec.clusterID is %q, want %q", s.ClusterID, id)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		have, there := re.Labels[key]
		if !there && s.Kind == multicluster.ClusterInfoKind {
			continue // of an Antrea member, where the mutating webhook is not installed; the leader's controller reads the spec
		}
		if want := labels[key]; have != want {
			return fmt.Sprintf("label %s is %q, want %q", key, have, want)
		}
	}
	if re.Name != name {
		return fmt.Sprintf("the name must be %s", name)
	}
	return ""
}
