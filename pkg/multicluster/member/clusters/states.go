package clusters

import (
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
)

// States of another cluster, as this cluster sees it.
const (
	Announced = "announced"
	Gone      = "gone"
	Withdrawn = "withdrawn"
)

// States returns the states of the other clusters by their IDs. Before the leader was read, these are the clusters that
// are imported.
func (t *Reach) States(m membership.Membership) map[string]string {
	infos, _ := t.clusters.Infos.Get(membership.Here)
	if m.KeepsImports() {
		infos = derive.Values(t.clusters.ClusterInfoImports.All())
	}
	gone, _ := t.Gone.Get(membership.Here)
	out := map[string]string{}
	for _, cii := range infos {
		state := Announced
		if _, ok := cii.Annotations[multicluster.AnnotationWithdrawn]; ok {
			state = Withdrawn
		} else if gone[cii.Spec.ClusterID] {
			state = Gone
		}
		out[cii.Spec.ClusterID] = state
	}
	return out
}
