package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

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
		return badRequest(fmt.Errorf("user %q is not a ServiceAccount: MemberClusterAnnounces are written by members", req.UserInfo.Username))
	case namespace != h.namespace:
		return denied("ServiceAccount %s/%s is not in Namespace %s", namespace, name, h.namespace)
	}
	if req.Operation == admissionv1.Update {
		if was.ClusterID != is.ClusterID || was.ClusterSetID != is.ClusterSetID || was.LeaderClusterID != is.LeaderClusterID {
			return denied("MemberClusterAnnounce %s: clusterID, clusterSetID and leaderClusterID are immutable", req.Name)
		}
		if name == multicluster.ControllerName {
			return admission.Allowed("")
		}
	}
	return h.admitAnnounce(ctx, req, name, &is)
}

// admitAnnounce lets an account announce the cluster ID that it is bound to, and binds one
// that is not. Bindings are made one after the other: two accounts that announce one ID at
// the same time do not both get it.
func (h *handlers) admitAnnounce(ctx context.Context, req admission.Request, name string, is *mcv1alpha1.MemberClusterAnnounce) admission.Response {
	h.binding.Lock()
	defer h.binding.Unlock()
	account, refusal := h.account(ctx, name)
	if refusal != nil {
		return *refusal
	}
	id, bound := boundID(account)
	switch {
	case bound && id != is.ClusterID:
		return denied("ServiceAccount %s is bound to cluster ID %q by annotation %s and may not announce %q; use another ServiceAccount for each member",
			name, id, multicluster.AnnotationClusterID, is.ClusterID)
	case bound && req.Operation == admissionv1.Update:
		return admission.Allowed("")
	case !bound && name == multicluster.ControllerName:
		return denied("ServiceAccount %s is the leader's own and not bound to cluster ID %q; use another ServiceAccount for the member", name, is.ClusterID)
	}
	if req.Operation == admissionv1.Create {
		if refusal := h.checkAnnounce(ctx, is); refusal != nil {
			return *refusal
		}
	}
	if refusal := h.checkOthers(ctx, req, name, bound, is); refusal != nil {
		return *refusal
	}
	if bound || (req.DryRun != nil && *req.DryRun) {
		return admission.Allowed("")
	}
	if err := h.bind(ctx, account, is.ClusterID); err != nil {
		return admission.Errored(http.StatusConflict, err)
	}
	return admission.Allowed("")
}

// checkOthers compares the announced cluster ID with those that other accounts are bound to.
func (h *handlers) checkOthers(ctx context.Context, req admission.Request, name string, bound bool, is *mcv1alpha1.MemberClusterAnnounce) *admission.Response {
	refuse := func(r admission.Response) *admission.Response { return &r }
	var accounts corev1.ServiceAccountList
	if err := h.client.List(ctx, &accounts, client.InNamespace(h.namespace)); err != nil {
		return refuse(admission.Errored(http.StatusInternalServerError, fmt.Errorf("list ServiceAccounts: %w", err)))
	}
	for i := range accounts.Items {
		other := &accounts.Items[i]
		otherID, has := boundID(other)
		switch {
		case other.Name == name || !has:
		case otherID == is.ClusterID && !bound:
			return refuse(denied("cluster ID %s is held by ServiceAccount %s; annotate ServiceAccount %s with %s=%s to let it act for that cluster too",
				is.ClusterID, other.Name, name, multicluster.AnnotationClusterID, is.ClusterID))
		case req.Operation == admissionv1.Create && multicluster.IDsConflict(otherID, is.ClusterID):
			return refuse(denied("ClusterID %s conflicts with an existing member's ClusterID %s: one continues the other after a dash, and names made of them would be ambiguous; choose another cluster ID",
				is.ClusterID, otherID))
		}
	}
	return nil
}

// bind writes the ID into the account. The optimistic lock lets only the first of two
// announcements that come at once have the account.
func (h *handlers) bind(ctx context.Context, account *corev1.ServiceAccount, id string) error {
	before := account.DeepCopy()
	if account.Annotations == nil {
		account.Annotations = map[string]string{}
	}
	account.Annotations[multicluster.AnnotationClusterID] = id
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := h.client.Patch(ctx, account, patch); err != nil {
		return fmt.Errorf("bind ServiceAccount %s to cluster ID %s: %w", account.Name, id, err)
	}
	return nil
}

// checkAnnounce checks a new announcement against the ClusterSet.
func (h *handlers) checkAnnounce(ctx context.Context, a *mcv1alpha1.MemberClusterAnnounce) *admission.Response {
	refuse := func(r admission.Response) *admission.Response { return &r }
	var sets mcv1alpha2.ClusterSetList
	if err := h.client.List(ctx, &sets, client.InNamespace(h.namespace)); err != nil {
		return refuse(admission.Errored(http.StatusInternalServerError, fmt.Errorf("list ClusterSets: %w", err)))
	}
	if len(sets.Items) == 0 {
		return refuse(admission.Errored(http.StatusPreconditionFailed, fmt.Errorf("no ClusterSet found in Namespace %s; create the leader's first", h.namespace)))
	}
	set := sets.Items[0]
	// The ID becomes the value of labels, and part of a finalizer's name, which has the same limits.
	invalid := validation.IsValidLabelValue(a.ClusterID)
	switch {
	case a.ClusterID == "":
		return refuse(badRequest(errors.New("clusterID: is empty")))
	case len(invalid) > 0:
		return refuse(denied("clusterID %q cannot be used in labels: %s; give the member's ClusterSet another clusterID", a.ClusterID, invalid[0]))
	case a.ClusterSetID != set.Name:
		return refuse(denied("Unknown ClusterSet ID %s: the ClusterSet of the leader is %s; give the member's ClusterSet that name", a.ClusterSetID, set.Name))
	case len(set.Spec.Leaders) == 0 || a.LeaderClusterID != set.Spec.Leaders[0].ClusterID:
		return refuse(denied("Leader cluster ID %s in the MemberClusterAnnounce does not match that of ClusterSet %s; correct spec.leaders[0].clusterID of the member's ClusterSet", a.LeaderClusterID, set.Name))
	case a.Name != multicluster.AnnounceName(a.ClusterID):
		return refuse(denied("MemberClusterAnnounce %s: the name must be %s", a.Name, multicluster.AnnounceName(a.ClusterID)))
	}
	return nil
}

// deleteAnnounce keeps members from removing each other. Whoever else RBAC allows may.
func (h *handlers) deleteAnnounce(ctx context.Context, req admission.Request, namespace, name string, isAccount bool) admission.Response {
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
	if id, bound := boundID(account); !bound || id != was.ClusterID {
		return denied("ServiceAccount %s is not bound to cluster ID %s and may not delete its announcement", name, was.ClusterID)
	}
	return admission.Allowed("")
}
