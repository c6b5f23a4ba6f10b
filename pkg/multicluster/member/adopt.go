package member

import (
	"context"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// create creates an object, or adopts this cluster's ResourceExport of its name that the watch does not show: it selects by a label, which Antrea's
// member of v2.4 does not give to its ClusterInfo. commonArea.labelInfo labels one that is there when a connection begins, so this is for one that
// comes later, as when Antrea's member is stopped after this one has started.
func create(ctx context.Context, to client.Client, o client.Object) (client.Object, error) {
	want, isExport := o.DeepCopyObject().(*mcv1alpha1.ResourceExport)
	exists := served(to.Create(ctx, o))
	if !isExport || !apierrors.IsAlreadyExists(exists) {
		return o, exists
	}
	have := &mcv1alpha1.ResourceExport{}
	if err := to.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
		return nil, err
	}
	switch {
	case have.Spec.ClusterID != want.Spec.ClusterID:
		// Not AlreadyExists, which counts as an old view of things: this one does not pass by itself.
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: fmt.Sprintf(
			"ResourceExport %s/%s exists already and is of cluster %q, not %q: delete it in the leader if it is out of date; if it is not, rename the object that it is of in one of the two clusters",
			have.Namespace, have.Name, have.Spec.ClusterID, want.Spec.ClusterID)}}
	case !have.DeletionTimestamp.IsZero(): // created when it is gone
		return nil, exists
	case have.Labels[multicluster.LabelSourceClusterID] == want.Spec.ClusterID: // compared when the watch shows it
		return nil, exists
	case !membership.SameSource(have, want):
		if !membership.IsOwnExport(have) {
			return nil, exists
		}
		// As kindDiff has it: what an export is of cannot be changed.
		err := to.Delete(ctx, have, client.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("delete the one of %s %s/%s: %w", have.Spec.Kind, have.Spec.Namespace, have.Spec.Name, err)
		}
		return nil, exists
	}
	adopted := have.DeepCopy()
	membership.MergeResourceExport(adopted, want)
	return adopted, to.Patch(ctx, adopted, patch{have, have.ResourceVersion})
}
