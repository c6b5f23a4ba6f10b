package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
)

// bindings decides which accounts are bound to the cluster ID that they announced. Two members
// that announced themselves at the same time with one account both passed admission: the first
// has the account, the other is no member.
func (p *planner) bindings() {
	decision := binding.Decide(p.Accounts, p.Announces)
	for name, a := range decision.Unbound {
		if a.DeletionTimestamp == nil {
			p.desired.Bind[name] = a.ClusterID
		}
	}
	p.rivals = decision.Rivals
	for _, a := range inOrder(p.Announces) {
		winner := p.rivals[a.Name]
		if winner == nil || a.DeletionTimestamp != nil {
			continue
		}
		p.problem("MemberClusterAnnounce "+a.Namespace+"/"+a.Name, "metadata.annotations", "AccountOfAnotherMember",
			"it was made by ServiceAccount %s, which acts for cluster %s (MemberClusterAnnounce %s): cluster %s is left out of the ClusterSet; delete this MemberClusterAnnounce and give cluster %s a ServiceAccount of its own",
			binding.Announcer(a), winner.ClusterID, winner.Name, a.ClusterID, a.ClusterID)
	}
}

// bind writes the bindings. The lock keeps what an operator writes at the same time; the event
// of that starts the next round.
func (c *controller) bind(ctx context.Context, v View, d Desired) error {
	accounts := byName(v.Accounts)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(d.Bind)) {
		account, id := accounts[name].DeepCopy(), d.Bind[name]
		before := account.DeepCopy()
		metav1.SetMetaDataAnnotation(&account.ObjectMeta, multicluster.AnnotationClusterID, id)
		err := c.client.Patch(ctx, account, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case err == nil:
			c.log.Info("ServiceAccount is bound to the cluster ID that it announced", "account", name, "clusterID", id)
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("bind ServiceAccount %s to cluster ID %s: %w", name, id, err))
		}
	}
	return errors.Join(errs...)
}
