package member

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// TestPlanWithdrawn removes all information about cluster west from the leader.
func TestPlanWithdrawn(t *testing.T) {
	const now, hourAgo, dayAgo = "2026-01-31T12:00:00Z", "2026-01-31T11:00:00Z", "2026-01-30T12:00:00Z"
	at, err := time.Parse(time.RFC3339, now)
	if err != nil {
		t.Fatal(err)
	}
	since := func(text string) func(*View) {
		return func(v *View) {
			have := v.ClusterInfoImports[0]
			have.Annotations = map[string]string{multicluster.AnnotationWithdrawn: text}
			have.Spec = mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.98.0.0/16",
				PodCIDRs: []string{"10.20.0.0/16"}}
		}
	}
	encrypts := []*tombolov1alpha1.NodePolicyReport{{ObjectMeta: meta("", "node-1"),
		Features: map[string]string{mcv1alpha1.FeatureEncryptsPeers: ""}}, {ObjectMeta: meta("", "node-2")}}
	const update, remove = "update ClusterInfoImport kube-system/west-clusterinfo",
		"delete ClusterInfoImport kube-system/west-clusterinfo"
	for _, row := range []struct {
		name   string
		change func(*View)
		write  string
		since  string // empty: it does not stay withdrawn
	}{
		{name: "this cluster encrypts", write: update, since: now},
		{name: "this cluster does not encrypt", change: func(v *View) { v.Reports = v.Reports[1:] }, write: remove},
		{name: "this cluster encrypts no more", change: func(v *View) {
			since(hourAgo)(v)
			v.Reports = v.Reports[1:]
		}, write: remove},
		{name: "an hour later", change: since(hourAgo), since: hourAgo},
		{name: "a day later", change: since(dayAgo), write: remove},
		{name: "somebody has changed the time", change: since("yesterday"), write: update, since: now},
		{name: "the leader deletes it", change: func(v *View) {
			west := clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101")
			west.DeletionTimestamp = &metav1.Time{Time: at}
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, west)
		}, write: update, since: now},
		{name: "it is back", change: func(v *View) {
			since(hourAgo)(v)
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101"))
		}, write: update},
		{name: "another cluster has a part of its ranges", change: func(v *View) {
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, clusterInfoOf("north", "10.20.0.0/24", "192.168.79.102"))
		}, write: update, since: now},
		{name: "another cluster has its ranges", change: func(v *View) {
			north := clusterInfoOf("north", "10.98.0.0/15", "192.168.79.102")
			north.Spec.ClusterInfo.PodCIDRs = []string{"10.20.0.0/16"}
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, north)
		}, write: remove},
		{name: "this cluster has left", change: func(v *View) { v.ClusterSets, v.Leader = nil, Leader{} }, write: remove},
		{name: "the leader is not reached", change: func(v *View) { v.Leader.Synced = false }},
		{name: "it has no usable range", change: func(v *View) {
			v.ClusterInfoImports[0].Spec.ServiceCIDR, v.ClusterInfoImports[0].Spec.PodCIDRs = "ten", nil
		}, write: remove},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Now, v.Leader.ResourceImports = at, nil
			west := &mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", "west-clusterinfo"),
				Spec: *clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101").Spec.ClusterInfo}
			west.Spec.PodCIDRs, west.Spec.Features = []string{"10.20.0.0/16"}, []string{mcv1alpha1.FeatureActiveGateways}
			west.Spec.WireGuard = &mcv1alpha1.WireGuardInfo{PublicKey: "key"}
			v.Reports = encrypts
			v.ClusterInfoImports = []*mcv1alpha1.ClusterInfoImport{west}
			if row.change != nil {
				row.change(&v)
			}
			d, _ := Plan(v)
			var have string
			for _, w := range d.Change.Local {
				if w.Kind == "ClusterInfoImport" && w.Object.GetName() == west.Name {
					have = w.String()
				}
			}
			expect(t, "write", have, row.write)
			var kept *mcv1alpha1.ClusterInfoImport
			for _, cii := range d.ClusterInfoImports {
				if _, ok := cii.Annotations[multicluster.AnnotationWithdrawn]; ok {
					kept = cii
				}
			}
			switch {
			case row.since == "" && kept != nil:
				t.Errorf("it is kept as withdrawn: %v", kept.Annotations)
			case row.since == "":
			case kept == nil:
				t.Error("it is not kept")
			default:
				expect(t, "since", kept.Annotations[multicluster.AnnotationWithdrawn], row.since)
				want := mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.98.0.0/16", PodCIDRs: []string{"10.20.0.0/16"}}
				expect(t, "spec", kept.Spec, want)
			}
		})
	}
}
