package member

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// TestClusterInfoForAntrea exchanges ClusterInfos through a leader whose kinds have no field for features. The peer
// reads only one gateway. Only that one field is missing, the oldest Gateway is the first, and nothing is written
// repeatedly.
func TestClusterInfoForAntrea(t *testing.T) {
	v := joinedView()
	v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1"), node("node-2", "10.0.0.2")}
	v.Config.PodCIDRs = []string{"10.11.0.0/16"}
	v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-2")},
		{ObjectMeta: meta("kube-system", "node-1")}}
	v.Gateways[1].CreationTimestamp = metav1.Time{Time: now}
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101")}
	d, ps := Plan(v)
	expect(t, "problems", len(ps), 0)
	for _, cii := range d.ClusterInfoImports {
		expect(t, "features of a peer that announces none", len(cii.Spec.Features), 0)
	}
	var re *mcv1alpha1.ResourceExport
	for _, w := range d.Change.Leader {
		if o, ok := w.Object.(*mcv1alpha1.ResourceExport); ok && o.Spec.Kind == multicluster.ClusterInfoKind {
			re = o.DeepCopy()
		}
	}
	if re == nil {
		t.Fatalf("no ClusterInfo is exported: %v", d.Change.Leader)
	}
	text, err := json.Marshal(re.Spec.ClusterInfo)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	expect(t, "fields", slices.Sorted(maps.Keys(fields)),
		[]string{"clusterID", "features", "gatewayInfos", "podCIDRs", "serviceCIDR"})
	expect(t, "gateways", re.Spec.ClusterInfo.GatewayInfos,
		[]mcv1alpha1.GatewayInfo{{GatewayIP: "10.0.0.2"}, {GatewayIP: "10.0.0.1"}})

	// The leader's API server drops fields that it does not have. The field is offered again, so that it arrives after an
	// upgrade of the leader. The API server finds no change in such a write.
	re.Spec.ClusterInfo.Features = nil
	re.ResourceVersion = "1"
	v.Leader.ResourceExports = []*mcv1alpha1.ResourceExport{re}
	d, ps = Plan(v)
	expect(t, "problems", len(ps), 0)
	expect(t, "writes", writeTexts(d.Change.Leader),
		[]string{"update ResourceExport antrea-multicluster/east-clusterinfo"})
	update := d.Change.Leader[0]
	patched, err := patch{update.Have, update.Version}.Data(update.Object)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "patch", string(patched),
		`{"metadata":{"resourceVersion":"1","uid":""},"spec":{"clusterInfo":{"features":["ActiveGateways"]}}}`)
}
