package agent

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestCandidates has two Nodes, of which one serves IPv4 alone, and a Service with an address of each version.
func TestCandidates(t *testing.T) {
	v := dualView()
	v.Nodes[1].Spec.PodCIDRs = v.Nodes[1].Spec.PodCIDRs[:1]
	for _, n := range v.Nodes {
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
	}
	s := v.Services[0]
	s.Annotations = map[string]string{crdv1beta1.AnnotationExternalIPPool: "edge"}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}, {IP: "2001:db8::7"}}
	tables := newTables(v.Config, v.NodeName)
	tables.set(v)
	tables.external.pools.Set(derive.Object{Name: "edge"}, poolSelector{Known: true})
	for _, n := range v.Nodes {
		tables.external.nodes.Set(derive.ObjectOf(n), holderNodeOf(n))
	}
	six := policy.Addr{Addr: netip.MustParseAddr("2001:db8::7")}
	tables.external.held.Set(six, true)
	tables.engine.Pass()
	for ip, want := range map[string][]string{"198.51.100.7": {"node-1", "node-2"}, "2001:db8::7": {"node-1"}} {
		row, _ := tables.external.candidates.Get(policy.Addr{Addr: netip.MustParseAddr(ip)})
		slices.Sort(row.Nodes)
		if !slices.Equal(row.Nodes, want) {
			t.Errorf("%s: candidates %q, want %q", ip, row.Nodes, want)
		}
	}
	d, _ := tables.outputs.host.Get(self)
	if l := d.Links[0]; !slices.Equal(l.Held, []netip.Addr{six.Addr}) {
		t.Errorf("the gateway port holds %v", l.Held)
	}
}
