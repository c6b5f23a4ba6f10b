package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
)

// markAnnounce records in an announcement the account that creates it. No later writer can change the record. An
// announcement that an older version created has no record. The next account that writes it is recorded then, except
// the controller's. admitAnnounce refuses an account that may not write the announcement.
func (h *handlers) markAnnounce(_ context.Context, req admission.Request) admission.Response {
	var was, is mcv1alpha1.MemberClusterAnnounce
	if err := h.decoder.DecodeRaw(req.Object, &is); err != nil {
		return badRequest(err)
	}
	record := ""
	if namespace, name, isAccount := caller(req.UserInfo.Username); isAccount && namespace == h.namespace {
		record = name
	}
	if req.Operation == admissionv1.Update {
		if err := h.decoder.DecodeRaw(req.OldObject, &was); err != nil {
			return badRequest(err)
		}
		if stored := binding.Announcer(&was); stored != "" || record == multicluster.ControllerName {
			record = stored
		}
	}
	have, present := is.Annotations[multicluster.AnnotationAnnouncedBy]
	switch {
	case have == record && present == (record != ""):
		return admission.Allowed("")
	case record == "":
		delete(is.Annotations, multicluster.AnnotationAnnouncedBy)
	default:
		metav1.SetMetaDataAnnotation(&is.ObjectMeta, multicluster.AnnotationAnnouncedBy, record)
	}
	marked, err := json.Marshal(&is)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, marked)
}

// announce lets each member announce itself, and only itself.
func (h *handlers) announce(ctx context.Context, req admission.Request) admission.Response {
	namespace, name, isAccount := caller(req.UserInfo.Username)
	if req.Operation == admissionv1.Delete {
		return h.deleteAnnounce(ctx, req, namespace, name, isAccount)
	}
	var was, is mcv1alpha1.MemberClusterAnnounce
	if err := h.decoder.DecodeRaw(req.Object, &is); err != nil {
		return badRequest(err)
	}
	if req.Operation == admissionv1.Update {
		if err := h.decoder.DecodeRaw(req.OldObject, &was); err != nil {
			return badRequest(err)
		}
	}
	switch {
	case !isAccount:
		return badRequest(fmt.Errorf("user %q is not a ServiceAccount: MemberClusterAnnounces are written by members",
			req.UserInfo.Username))
	case namespace != h.namespace:
		return denied("ServiceAccount %s/%s is not in Namespace %s", namespace, name, h.namespace)
	}
	// The marks of markAnnounce are checked too: its configuration may not be installed.
	if old, record := binding.Announcer(&was), binding.Announcer(&is); record != old && (old != "" || record != name) {
		return denied("MemberClusterAnnounce %s: annotation %s is %q: it is written by the leader only", req.Name,
			multicluster.AnnotationAnnouncedBy, record)
	}
	if req.Operation == admissionv1.Update {
		if was.ClusterID != is.ClusterID || was.ClusterSetID != is.ClusterSetID || was.LeaderClusterID != is.LeaderClusterID {
			return denied("MemberClusterAnnounce %s: clusterID, clusterSetID and leaderClusterID are immutable", req.Name)
		}
		if name == multicluster.ControllerName {
			return admission.Allowed("")
		}
	}
	if wrong := checkAnnounceMeta(&was, &is, len(req.Object.Raw)); wrong != "" {
		return denied("MemberClusterAnnounce %s: %s", req.Name, wrong)
	}
	if r := h.admitAnnounce(ctx, req, name, &is); !r.Allowed {
		return r
	}
	return h.limits.admitAnnounce(req)
}

// checkAnnounceMeta returns a text about metadata that a member may not write into its announcement, or "". Only the
// leader adds and removes its finalizer: without it a member's exports would outlive the member.
func checkAnnounceMeta(was, is *mcv1alpha1.MemberClusterAnnounce, size int) string {
	if size > maxAnnounceBytes {
		return fmt.Sprintf("it has %d bytes: expected at most %d", size, maxAnnounceBytes)
	}
	for _, f := range was.Finalizers {
		if !slices.Contains(is.Finalizers, f) {
			return fmt.Sprintf("metadata.finalizers: %q is removed by the leader only", f)
		}
	}
	return checkMeta(was, is)
}

// admitAnnounce lets an account announce the cluster ID that it is bound to, or a cluster ID that it may be bound to.
func (h *handlers) admitAnnounce(ctx context.Context, req admission.Request, name string,
	is *mcv1alpha1.MemberClusterAnnounce) admission.Response {
	account, refusal := h.account(ctx, name)
	if refusal != nil {
		return *refusal
	}
	id, bound := binding.Bound(account)
	switch {
	case bound && id != is.ClusterID:
		return denied("ServiceAccount %s is bound to cluster ID %q by annotation %s and may not announce %q; use another "+
			"ServiceAccount for each member",
			name, id, multicluster.AnnotationClusterID, is.ClusterID)
	case bound && req.Operation == admissionv1.Update:
		return admission.Allowed("")
	case !bound && name == multicluster.ControllerName:
		return denied("ServiceAccount %s is the leader's own and not bound to cluster ID %q; use another ServiceAccount "+
			"for the member", name, is.ClusterID)
	}
	if req.Operation == admissionv1.Create {
		if refusal := h.checkAnnounce(ctx, is); refusal != nil {
			return *refusal
		}
	}
	accounts, announces, refusal := h.area(ctx)
	if refusal != nil {
		return *refusal
	}
	wrong := ""
	if !bound {
		wrong = checkUnbound(name, is, req.Operation, accounts, announces)
	}
	if wrong == "" && req.Operation == admissionv1.Create {
		wrong = checkAmbiguous(name, is.ClusterID, accounts, announces)
	}
	if wrong != "" {
		return denied("%s", wrong)
	}
	return admission.Allowed("")
}

// checkUnbound returns the reason why an account without a binding may not write an announcement, or "".
func checkUnbound(name string, is *mcv1alpha1.MemberClusterAnnounce, op admissionv1.Operation,
	accounts []*corev1.ServiceAccount, announces []*mcv1alpha1.MemberClusterAnnounce,
) string {
	remedy := fmt.Sprintf("annotate ServiceAccount %s with %s=%s to let it act for that cluster", name,
		multicluster.AnnotationClusterID, is.ClusterID)
	if holder := binding.Holder(is.ClusterID, name, accounts); holder != "" {
		return fmt.Sprintf("cluster ID %s is held by ServiceAccount %s; %s too", is.ClusterID, holder, remedy)
	}
	switch record := binding.Announcer(is); record {
	case name:
	case "":
		return fmt.Sprintf(
			"MemberClusterAnnounce %s does not record its author: apply the leader's manifest again, which has the webhook "+
				"for it, or %s", is.Name, remedy)
	default:
		return fmt.Sprintf("MemberClusterAnnounce %s was made by ServiceAccount %s; %s too", is.Name, record, remedy)
	}
	for _, other := range announces {
		// Of two that came at once the first may go on.
		if binding.Announcer(other) == name && other.Name != is.Name &&
			(op == admissionv1.Create || binding.Compare(other, is) < 0) {
			return fmt.Sprintf(
				"ServiceAccount %s has announced cluster ID %q and may not announce %q; use another ServiceAccount for each member",
				name, other.ClusterID, is.ClusterID)
		}
	}
	return ""
}

// checkAmbiguous compares a new cluster ID with the IDs of other accounts.
func checkAmbiguous(name, id string, accounts []*corev1.ServiceAccount,
	announces []*mcv1alpha1.MemberClusterAnnounce) string {
	var others []string
	for _, account := range accounts {
		if other, bound := binding.Bound(account); bound && account.Name != name {
			others = append(others, other)
		}
	}
	for _, a := range announces {
		if by := binding.Announcer(a); by != "" && by != name {
			others = append(others, a.ClusterID)
		}
	}
	for _, other := range others {
		if multicluster.IDsConflict(other, id) {
			return fmt.Sprintf(
				"ClusterID %s conflicts with an existing member's ClusterID %s: one continues the other after a dash, and names "+
					"made of them would be ambiguous; choose another cluster ID", id, other)
		}
	}
	return ""
}

// checkAnnounce checks a new announcement against the ClusterSet.
func (h *handlers) checkAnnounce(ctx context.Context, a *mcv1alpha1.MemberClusterAnnounce) *admission.Response {
	refuse := func(r admission.Response) *admission.Response { return &r }
	var sets mcv1alpha2.ClusterSetList
	if err := h.client.List(ctx, &sets, client.InNamespace(h.namespace)); err != nil {
		return refuse(admission.Errored(http.StatusInternalServerError, fmt.Errorf("list ClusterSets: %w", err)))
	}
	if len(sets.Items) == 0 {
		return refuse(admission.Errored(http.StatusPreconditionFailed,
			fmt.Errorf("no ClusterSet found in Namespace %s; create the leader's first", h.namespace)))
	}
	set := sets.Items[0]
	// The ID becomes the value of labels, and part of a finalizer's name, which has the same limits.
	invalid := validation.IsValidLabelValue(a.ClusterID)
	switch {
	case a.ClusterID == "":
		return refuse(badRequest(errors.New("clusterID: is empty")))
	case len(invalid) > 0:
		return refuse(denied("clusterID %q cannot be used in labels: %s; give the member's ClusterSet another clusterID",
			a.ClusterID, invalid[0]))
	case a.ClusterSetID != set.Name:
		return refuse(denied(
			"Unknown ClusterSet ID %s: the ClusterSet of the leader is %s; give the member's ClusterSet that name",
			a.ClusterSetID, set.Name))
	case len(set.Spec.Leaders) == 0 || a.LeaderClusterID != set.Spec.Leaders[0].ClusterID:
		return refuse(denied(
			"Leader cluster ID %s in the MemberClusterAnnounce does not match that of ClusterSet %s; correct "+
				"spec.leaders[0].clusterID of the member's ClusterSet", a.LeaderClusterID, set.Name))
	case a.Name != multicluster.AnnounceName(a.ClusterID):
		return refuse(denied("MemberClusterAnnounce %s: the name must be %s", a.Name, multicluster.AnnounceName(a.ClusterID)))
	}
	return nil
}

// deleteAnnounce refuses that a member deletes another member's announcement. It does not restrict other accounts.
func (h *handlers) deleteAnnounce(ctx context.Context, req admission.Request, namespace, name string,
	isAccount bool) admission.Response {
	if !isAccount || namespace != h.namespace || name == multicluster.ControllerName {
		return admission.Allowed("")
	}
	var was mcv1alpha1.MemberClusterAnnounce
	if err := h.decoder.DecodeRaw(req.OldObject, &was); err != nil {
		return badRequest(err)
	}
	account, refusal := h.account(ctx, name)
	if refusal != nil {
		return *refusal
	}
	id, bound := binding.Bound(account)
	may := bound && id == was.ClusterID
	if !bound && binding.Announcer(&was) == name {
		accounts, _, refusal := h.area(ctx)
		if refusal != nil {
			return *refusal
		}
		may = binding.Holder(was.ClusterID, name, accounts) == ""
	}
	if !may {
		return denied("ServiceAccount %s is not bound to cluster ID %s and may not delete its announcement", name,
			was.ClusterID)
	}
	return admission.Allowed("")
}
