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

// create creates an object. If a ResourceExport of this name exists that the watch does not show, create adopts it. The
// watch selects by a label, and Antrea's member v2.4 does not set the label on its ClusterInfo. commonArea.labelInfo
// labels a ClusterInfo that exists when the connection begins. create handles one that appears later, for example when
// Antrea's member stops after this one has started.
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
		// The error is not AlreadyExists, which means that the watch is late and the next attempt may succeed. This conflict
		// does not end by itself.
		return nil, &apierrors.StatusError{
			ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: fmt.Sprintf(
				"ResourceExport %s/%s exists already and is of cluster %q, not %q: delete "+
					"it in the leader if it is out of date; if it is not, rename the object that it is of in one of the two clusters",
				have.Namespace, have.Name, have.Spec.ClusterID, want.Spec.ClusterID)}}
	case !have.DeletionTimestamp.IsZero(): // it is created when the old one is gone
		return nil, exists
	case have.Labels[multicluster.LabelSourceClusterID] == want.Spec.ClusterID: // it is compared when the watch shows it
		return nil, exists
	case !membership.SameSource(have, want):
		if !membership.IsOwnExport(have) {
			return nil, exists
		}
		// The source of an export cannot be changed. So the old export is deleted, as writes.Diff does it.
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
