package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
)

// clusterSet allows one ClusterSet in a Namespace and refuses changes of its IDs. It warns about fields without effect.
func (h *handlers) clusterSet(ctx context.Context, req admission.Request) admission.Response {
	answer := h.checkClusterSet(ctx, req)
	if !answer.Allowed || req.Operation == admissionv1.Delete {
		return answer
	}
	var is mcv1alpha2.ClusterSet
	if err := h.decoder.DecodeRaw(req.Object, &is); err != nil {
		return badRequest(err)
	}
	// Only the schema of v1alpha1 has the field. The API server converts such an object for the
	// webhook and leaves it in.
	var old struct {
		Spec struct {
			Members []json.RawMessage `json:"members"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(req.Object.Raw, &old); err != nil {
		return badRequest(err)
	}
	if len(old.Spec.Members) > 0 {
		answer = answer.WithWarnings(
			fmt.Sprintf("spec.members has no effect: members announce themselves; to allow only some, annotate their "+
				"ServiceAccounts in the leader with %s, and remove spec.members", multicluster.AnnotationClusterID))
	}
	if h.role != Leader {
		return answer
	}
	if _, faults := claims.ReadPins(is.Annotations); len(faults) > 0 {
		return denied("ClusterSet %s: %s", req.Name, faults[0])
	}
	return answer
}

func (h *handlers) checkClusterSet(ctx context.Context, req admission.Request) admission.Response {
	switch req.Operation {
	case admissionv1.Create:
		var sets mcv1alpha2.ClusterSetList
		if err := h.client.List(ctx, &sets, client.InNamespace(req.Namespace)); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("list ClusterSets: %w", err))
		}
		if len(sets.Items) > 0 {
			return admission.Errored(http.StatusPreconditionFailed, fmt.Errorf(
				"multiple ClusterSets in a Namespace are not allowed: %s already has %s; delete that one first", req.Namespace,
				sets.Items[0].Name))
		}
	case admissionv1.Update:
		var was, is mcv1alpha2.ClusterSet
		if err := h.decode(req, &was, &is); err != nil {
			return badRequest(err)
		}
		if was.Spec.ClusterID != "" && is.Spec.ClusterID != was.Spec.ClusterID {
			return denied("ClusterSet %s: the field 'clusterID' is immutable: it is %s; delete the ClusterSet to use another",
				req.Name, was.Spec.ClusterID)
		}
		if len(was.Spec.Leaders) > 0 && len(is.Spec.Leaders) > 0 &&
			was.Spec.Leaders[0].ClusterID != is.Spec.Leaders[0].ClusterID {
			return denied("ClusterSet %s: the field 'clusterID' of the leader is immutable: it is %s; delete the ClusterSet "+
				"to use another", req.Name, was.Spec.Leaders[0].ClusterID)
		}
	case admissionv1.Delete:
		if h.role != Leader {
			break
		}
		var members mcv1alpha1.MemberClusterAnnounceList
		if err := h.client.List(ctx, &members, client.InNamespace(req.Namespace)); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("list MemberClusterAnnounces: %w", err))
		}
		if len(members.Items) > 0 {
			return admission.Errored(http.StatusPreconditionFailed, fmt.Errorf(
				"failed to delete ClusterSet %s: there are still member clusters connecting, such as %s; delete the ClusterSet "+
					"in the members first",
				req.Name, members.Items[0].ClusterID))
		}
	}
	return admission.Allowed("")
}

// decode reads the old and the new object of an update.
func (h *handlers) decode(req admission.Request, was, is client.Object) error {
	if err := h.decoder.DecodeRaw(req.OldObject, was); err != nil {
		return err
	}
	return h.decoder.DecodeRaw(req.Object, is)
}

// claimKind returns the well-known name of a claim: its own name, or the top-level name of v1alpha1.
func claimKind(c *mcv1alpha2.ClusterClaim) string {
	for _, name := range []string{c.ClaimName, c.Name} {
		switch {
		case name == multicluster.ClusterClaimClusterID:
			return multicluster.ClusterClaimClusterID
		case strings.EqualFold(name, multicluster.ClusterClaimClusterSet):
			return multicluster.ClusterClaimClusterSet
		}
	}
	return ""
}

// clusterClaim refuses changes and deletions of claims that are in use.
func (h *handlers) clusterClaim(ctx context.Context, req admission.Request) admission.Response {
	var was, is mcv1alpha2.ClusterClaim
	switch req.Operation {
	case admissionv1.Create:
		if err := h.decoder.DecodeRaw(req.Object, &is); err != nil {
			return badRequest(err)
		}
		if claimKind(&is) == "" {
			return denied("ClusterClaim %s: the name must be %s or %s", req.Name, multicluster.ClusterClaimClusterID,
				multicluster.ClusterClaimClusterSet)
		}
	case admissionv1.Update:
		if err := h.decode(req, &was, &is); err != nil {
			return badRequest(err)
		}
		if was.Value != is.Value || claimKind(&was) != claimKind(&is) {
			return denied("ClusterClaim %s: the field 'value' is immutable; delete the claim and create another", req.Name)
		}
	case admissionv1.Delete:
		if err := h.decoder.DecodeRaw(req.OldObject, &was); err != nil {
			return badRequest(err)
		}
		var sets mcv1alpha2.ClusterSetList
		if err := h.client.List(ctx, &sets, client.InNamespace(req.Namespace)); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("list ClusterSets: %w", err))
		}
		for _, set := range sets.Items {
			used := set.Name == was.Value || set.Spec.ClusterID == was.Value
			for _, l := range set.Spec.Leaders {
				used = used || l.ClusterID == was.Value
			}
			if used {
				return denied("ClusterClaim %s is used by ClusterSet %s: delete the ClusterSet first", req.Name, set.Name)
			}
		}
	}
	return admission.Allowed("")
}

// gateway lets only the controller and the agents write Gateways. Gateways are in the controller's Namespace. Agents
// run in kube-system.
func (h *handlers) gateway(_ context.Context, req admission.Request) admission.Response {
	namespace, name, _ := caller(req.UserInfo.Username)
	switch (types.NamespacedName{Namespace: namespace, Name: name}) {
	case types.NamespacedName{Namespace: h.namespace, Name: multicluster.ControllerName},
		types.NamespacedName{Namespace: multicluster.AgentNamespace, Name: multicluster.AgentName}:
		return admission.Allowed("")
	}
	return denied("Gateways are written by the multi-cluster controller: annotate a Node with %s instead",
		multicluster.AnnotationGateway)
}
