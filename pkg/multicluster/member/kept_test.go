package member

import (
	"slices"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// TestPlanKeptPods announces that clients' addresses are kept, once the agents of all Nodes support that. The Gateways
// show it once the leader passes it on.
func TestPlanKeptPods(t *testing.T) {
	const ranges = "10.11.0.0/16,10.12.0.0/16"
	for _, row := range []struct {
		name   string
		change func(*View)
		info   bool   // the feature is announced
		kept   string // in the Gateways
	}{
		{name: "all can", change: func(*View) {}, info: true, kept: ranges},
		{name: "no ranges", change: func(v *View) { v.Config.PodCIDRs = nil }},
		{name: "one Node's agent cannot", change: func(v *View) { v.Reports[2].Features = map[string]string{"Other": ""} }},
		{name: "a Node has no report", change: func(v *View) { v.Reports = v.Reports[:2] }, info: true, kept: ranges},
		{name: "a Gateway has no report", change: func(v *View) { v.Reports = v.Reports[1:] }},
		{name: "a Gateway that comes has no report", info: true, kept: ranges, change: func(v *View) {
			v.Reports = slices.Delete(v.Reports, 1, 2)
			v.Gateways[1].Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseJoining}
		}},
		{name: "an agent of another kind", change: func(v *View) { v.Reports = nil }},
		{name: "the leader has not answered yet", change: func(v *View) { v.Leader.ResourceImports = nil }, info: true},
		{name: "a leader that does not know features",
			change: func(v *View) { v.Leader.ResourceImports[0].Spec.ClusterInfo.Features = nil }, info: true},
		{name: "the leader refuses a range", info: true, kept: "10.12.0.0/16",
			change: func(v *View) { v.Leader.ResourceImports[0].Spec.ClusterInfo.PodCIDRs = []string{"10.12.0.0/16"} }},
		{name: "a range is withdrawn", info: true, kept: "10.12.0.0/16",
			change: func(v *View) { v.Config.PodCIDRs = v.Config.PodCIDRs[1:] }},
		{name: "the leader is not reached after a restart", info: true, kept: "10.11.0.0/16",
			change: func(v *View) {
				v.Leader.Synced, v.Leader.ResourceImports = false, nil
				for _, g := range v.Gateways {
					g.Annotations = map[string]string{multicluster.AnnotationKeptPods: "10.11.0.0/16"}
				}
			}},
		{name: "the same, and an agent cannot any more", change: func(v *View) {
			v.Leader.Synced, v.Leader.ResourceImports, v.Reports[0].Features = false, nil, nil
			v.Gateways[0].Annotations = map[string]string{multicluster.AnnotationKeptPods: ranges}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1"), node("node-2", "10.0.0.2")}
			v.Config.PodCIDRs = []string{"10.11.0.0/16", "10.12.0.0/16"}
			for _, name := range []string{"node-1", "node-2", "node-3"} {
				v.Reports = append(v.Reports, &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", name),
					Features: map[string]string{mcv1alpha1.FeaturePreserveClientIP: ""}})
			}
			for i, name := range []string{"node-1", "node-2"} {
				v.Gateways = append(v.Gateways, &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", name), GatewayIP: "10.0.0." +
					string(rune('1'+i)), InternalIP: "10.0.0." + string(rune('1'+i)), ServiceCIDR: "10.97.0.0/16"})
			}
			own := clusterInfoOf("east", "10.97.0.0/16", "10.0.0.1")
			own.Spec.ClusterInfo.PodCIDRs = slices.Clone(v.Config.PodCIDRs)
			own.Spec.ClusterInfo.Features = []string{mcv1alpha1.FeatureActiveGateways, mcv1alpha1.FeaturePreserveClientIP}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{own}
			row.change(&v)
			d, _ := Plan(v)
			for _, re := range d.ResourceExports {
				if have := slices.Contains(re.Spec.ClusterInfo.Features, mcv1alpha1.FeaturePreserveClientIP); have != row.info {
					t.Errorf("%v is announced, want the feature %v", re.Spec.ClusterInfo.Features, row.info)
				}
			}
			if len(d.Gateways) != 2 {
				t.Fatalf("Gateways %v", d.Gateways)
			}
			for _, g := range d.Gateways {
				expect(t, "Gateway "+g.Name, g.Annotations[multicluster.AnnotationKeptPods], row.kept)
			}
			for _, w := range d.Change.Local {
				if g, ok := w.Object.(*mcv1alpha1.Gateway); ok {
					expect(t, "written "+g.Name, g.Annotations[multicluster.AnnotationKeptPods], row.kept)
				}
			}
			wrote := slices.ContainsFunc(d.Change.Local, func(w writes.Write) bool { return w.Kind == "Gateway" })
			if want := v.Gateways[0].Annotations[multicluster.AnnotationKeptPods] != row.kept; wrote != want {
				t.Errorf("Gateways are written: %v, want %v", wrote, want)
			}
		})
	}
}
