package leader

import (
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/binding"
	"github.com/tombolo-net/tombolo/pkg/problem"
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
		p.problem(problem.Object{Kind: "MemberClusterAnnounce", Namespace: a.Namespace, Name: a.Name}, "metadata.annotations", "AccountOfAnotherMember",
			"it was made by ServiceAccount %s, which acts for cluster %s (MemberClusterAnnounce %s): cluster %s is left out of the ClusterSet; delete this MemberClusterAnnounce and give cluster %s a ServiceAccount of its own",
			binding.Announcer(a), winner.ClusterID, winner.Name, a.ClusterID, a.ClusterID)
	}
}

// bindings write what was decided. The lock keeps what an operator writes at the same time.
func (w *writes) bindings(v View, d Desired) {
	accounts := byName(v.Accounts)
	for _, name := range slices.Sorted(maps.Keys(d.Bind)) {
		id := d.Bind[name]
		w.patch("give cluster ID "+id+" to", "ServiceAccount", accounts[name], "metadata.annotations", "", func(o client.Object) {
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[multicluster.AnnotationClusterID] = id
			o.SetAnnotations(annotations)
		})
	}
}
