package policystatus

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestLoaded waits only for watched kinds.
func TestLoaded(t *testing.T) {
	tables := newTables()
	tables.kinds.Loaded()
	if ok, waiting := tables.engine.Loaded(); !ok {
		t.Errorf("nobody fills %v", waiting)
	}
}

// TestNodesOfServicePolicies expects a policy of a Service from the Nodes that have an agent. A virtual Node has Pods,
// and no agent.
func TestNodesOfServicePolicies(t *testing.T) {
	tables := newTables()
	tables.kinds.Loaded()
	p := &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Generation: 1}}
	p.Spec = crdv1beta1.PolicySpec{Priority: 5, Ingress: []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop,
		AppliedTo: []crdv1beta1.AppliedTo{{Service: &crdv1beta1.ObjectReference{Namespace: "x", Name: "web"}}}}}}
	key, at := policy.Key{Kind: policy.AntreaClusterNetworkPolicy, Name: "p"}, derive.Object{Name: "p"}
	have := objectOf(p, p.Status)
	tables.policies[key.Kind].Set(at, have)
	tables.spans.Policies[key.Kind].Set(at, policy.AntreaClusterFactsOf(p))
	for i, node := range []string{"node-1", "node-2", "virtual"} {
		tables.spans.Pods.Set(derive.Object{Namespace: "x", Name: fmt.Sprint(i)}, policy.PodFacts{Node: node})
	}
	report := func(node string, policies map[string]string) {
		tables.reports.Set(derive.Object{Name: node}, &tombolov1alpha1.NodePolicyReport{
			ObjectMeta: metav1.ObjectMeta{Name: node}, Policies: policies})
	}
	want := func(current, desired int32, phase crdv1beta1.PolicyPhase) {
		t.Helper()
		for range 2 { // a report is split into rows by one pass
			tables.engine.Pass()
		}
		s, _ := tables.steps.Get(key)
		if w := s.Want; w.CurrentNodesRealized != current || w.DesiredNodesRealized != desired || w.Phase != phase {
			t.Errorf("%d of %d Nodes, %s; want %d of %d, %s", w.CurrentNodesRealized, w.DesiredNodesRealized, w.Phase, current,
				desired, phase)
		}
	}
	realized := map[string]string{key.Short(): string(have.Version)}
	report("node-1", realized)
	report("node-2", nil)
	want(1, 2, crdv1beta1.PhaseRealizing)
	report("node-2", realized)
	want(2, 2, crdv1beta1.PhaseRealized)
	tables.reports.Delete(derive.Object{Name: "node-2"})
	want(1, 1, crdv1beta1.PhaseRealized)
}
