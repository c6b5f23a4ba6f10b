package up

import (
	"testing"

	"github.com/tombolo-net/tombolo/deploy"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// TestMembers: members of the ClusterSet are no fault, unless they have another leader.
func TestMembers(t *testing.T) {
	w := newWorld(t, definitions)
	w.node(0, node("north-1", "10.10.0.0/24"))
	w.node(1, node("east-1", "10.20.0.0/24"))
	o := w.options()
	w.create(1, clusterSet(deploy.MemberNamespace, "set", "east",
		mcv1alpha2.LeaderClusterInfo{ClusterID: "north", Server: o.LeaderServer, Secret: "t"}))
	if _, err := Plan(t.Context(), w.clusters, o); err != nil {
		t.Errorf("a member of this leader: %v", err)
	}
	o.LeaderServer = "https://192.0.2.9:6443"
	w.refused("another server", w.clusters, o, `cluster east: spec.leaders of its ClusterSet kube-system/set has the `+
		`server "https://192.0.2.1:6443", not https://192.0.2.9:6443: give --leader-apiserver https://192.0.2.1:6443 if `)
	other := []Cluster{w.clusters[0], w.clusters[1]}
	other[0].ID = "hub"
	w.refused("another leader", other, o, `cluster east: spec.leaders of its ClusterSet kube-system/set names the leader `+
		`"north", not hub: name that leader first, or `)
}
