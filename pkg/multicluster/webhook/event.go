package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// Limits of the Events that one member may have in the Common Area.
const (
	MaxEvents     = 500
	maxEventBytes = 8 << 10
)

// markEvent labels an Event of a member with the member's cluster ID. It replaces the label that the member sends. The
// limit counts Events by this label, and readers see from which member an Event is.
func (h *handlers) markEvent(ctx context.Context, req admission.Request) admission.Response {
	id, isMember, refusal := h.eventOf(ctx, req)
	switch {
	case refusal != nil:
		return *refusal
	case !isMember:
		return admission.Allowed("")
	}
	var e corev1.Event
	if err := json.Unmarshal(req.Object.Raw, &e); err != nil {
		return badRequest(err)
	}
	if e.Labels[multicluster.AnnotationClusterID] == id {
		return admission.Allowed("")
	}
	metav1.SetMetaDataLabel(&e.ObjectMeta, multicluster.AnnotationClusterID, id)
	marked, err := json.Marshal(&e)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, marked)
}

// event limits the number and the size of a member's Events, so that the Events of others have room.
func (h *handlers) event(ctx context.Context, req admission.Request) admission.Response {
	id, isMember, refusal := h.eventOf(ctx, req)
	switch {
	case refusal != nil:
		return *refusal
	case !isMember:
		return admission.Allowed("")
	}
	if size := len(req.Object.Raw); size > maxEventBytes {
		return denied("Event %s has %d bytes: expected at most %d", req.Name, size, maxEventBytes)
	}
	var e metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.Object.Raw, &e); err != nil {
		return badRequest(err)
	}
	if have := e.Labels[multicluster.AnnotationClusterID]; have != id {
		return denied("Event %s: label %s is %q: expected %q, which the leader's mutating webhook writes; apply the "+
			"leader's manifest again",
			req.Name, multicluster.AnnotationClusterID, have, id)
	}
	events := &metav1.PartialObjectMetadataList{}
	events.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("EventList"))
	err := h.client.List(ctx, events, client.InNamespace(h.namespace),
		client.MatchingLabels{multicluster.AnnotationClusterID: id}, client.Limit(MaxEvents))
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("list Events of cluster %s: %w", id, err))
	}
	if len(events.Items) >= MaxEvents {
		return admission.Errored(http.StatusTooManyRequests,
			fmt.Errorf("cluster %s has %d Events: expected at most %d; the oldest are removed after a while",
				id, len(events.Items), MaxEvents))
	}
	return admission.Allowed("")
}

// eventOf returns the cluster ID of the member that writes an Event. It does not restrict other writers, such as the
// cluster's own components.
func (h *handlers) eventOf(ctx context.Context, req admission.Request) (id string, isMember bool,
	refusal *admission.Response) {
	namespace, name, isAccount := caller(req.UserInfo.Username)
	if !isAccount || namespace != h.namespace || name == multicluster.ControllerName {
		return "", false, nil
	}
	account, refusal := h.account(ctx, name)
	if refusal != nil {
		return "", false, refusal
	}
	id, bound, refusal := h.actsFor(ctx, account)
	if refusal == nil && (!bound || id == "") {
		r := denied("ServiceAccount %s is not bound to a cluster ID: announce the member first, or annotate the "+
			"ServiceAccount with %s", name, multicluster.AnnotationClusterID)
		refusal = &r
	}
	return id, refusal == nil, refusal
}
