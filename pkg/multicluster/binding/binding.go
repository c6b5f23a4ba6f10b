// Package binding decides which member a ServiceAccount of the Common Area acts for.
//
// The annotation multicluster.antrea.io/cluster-id of an account binds it to one cluster ID. An account without the
// annotation gets the ID of the announcement that it has made, unless another account is bound to that ID. Admission
// and the leader's controller both use this package. So an account has the same rights before the annotation is written
// as after.
package binding

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// Bound returns the cluster ID to which an account's annotation binds it. bound is true even if the ID is empty. Such
// an account acts for no member.
func Bound(account *corev1.ServiceAccount) (id string, bound bool) {
	id, bound = account.Annotations[multicluster.AnnotationClusterID]
	return id, bound
}

// Announcer returns the account that an announcement records as its maker. It is empty for announcements of earlier
// versions, which have no such record.
func Announcer(a *mcv1alpha1.MemberClusterAnnounce) string {
	return a.Annotations[multicluster.AnnotationAnnouncedBy]
}

// Compare orders announcements by age, then name. If two record one account, the first has it.
func Compare(a, b *mcv1alpha1.MemberClusterAnnounce) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Holder names an account other than this one that is bound to a cluster ID, or returns "".
func Holder(id, except string, accounts []*corev1.ServiceAccount) string {
	for _, account := range accounts {
		if has, bound := Bound(account); bound && has == id && account.Name != except {
			return account.Name
		}
	}
	return ""
}

// Decision is the result of announcements for the accounts that made them.
type Decision struct {
	// Unbound accounts, by name, and the announcement whose cluster ID they are to be bound to.
	Unbound map[string]*mcv1alpha1.MemberClusterAnnounce
	// Rivals are announcements whose account acts for another member, by name. The value is the announcement of that
	// member. No account acts for the rivals.
	Rivals map[string]*mcv1alpha1.MemberClusterAnnounce
}

// Decide looks at all accounts and announcements of a Common Area.
func Decide(accounts []*corev1.ServiceAccount, announces []*mcv1alpha1.MemberClusterAnnounce) Decision {
	d := Decision{Unbound: map[string]*mcv1alpha1.MemberClusterAnnounce{},
		Rivals: map[string]*mcv1alpha1.MemberClusterAnnounce{}}
	made := map[string][]*mcv1alpha1.MemberClusterAnnounce{} // by account, the winner first
	for _, a := range slices.SortedFunc(slices.Values(announces), Compare) {
		made[Announcer(a)] = append(made[Announcer(a)], a)
	}
	for _, account := range accounts {
		own := made[account.Name]
		id, bound := Bound(account)
		if bound {
			// One that was bound to another ID by hand has no announcement of that one yet.
			from := slices.IndexFunc(own, func(a *mcv1alpha1.MemberClusterAnnounce) bool { return a.ClusterID == id })
			if from > 0 {
				own[0], own[from] = own[from], own[0]
			}
			if from < 0 {
				continue
			}
		}
		if len(own) == 0 {
			continue
		}
		if !bound && account.Name != multicluster.ControllerName && Holder(own[0].ClusterID, account.Name, accounts) == "" {
			d.Unbound[account.Name] = own[0]
		}
		for _, a := range own[1:] {
			if a.ClusterID != own[0].ClusterID && Holder(a.ClusterID, account.Name, accounts) == "" {
				d.Rivals[a.Name] = own[0]
			}
		}
	}
	return d
}
