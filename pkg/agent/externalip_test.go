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

// TestCandidates has two Nodes, of which one has podCIDRs of IPv4 alone, and a Service with an address of each version.
func TestCandidates(t *testing.T) {
	const addr4, addr6 = "198.51.100.7", "2001:db8::7"
	six := policy.Addr{Addr: netip.MustParseAddr(addr6)}
	local := func(v *View) {
		v.Services[0].Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		v.EndpointSlices[0].Endpoints[0].NodeName = new("node-1")
		v.EndpointSlices[1].Endpoints[0].NodeName = new("node-2")
	}
	for _, row := range []struct {
		name         string
		change       func(*View)
		held         []policy.Addr
		unread       bool // the underlay
		want4, want6 []string
		gateway      []netip.Addr // what the gateway port holds
	}{
		{
			name: "a podCIDR of IPv4 alone", held: []policy.Addr{six}, want4: []string{"node-1", "node-2"},
			want6: []string{"node-1"}, gateway: []netip.Addr{six.Addr},
		},
		{
			name: "the kernel's IPv6 is off: this Node releases the address", held: []policy.Addr{six},
			change: func(v *View) { v.Underlay.NoIPv6 = true }, want4: []string{"node-1", "node-2"},
			gateway: []netip.Addr{six.Addr}, // until the Lease is released
		},
		{
			name: "a restart keeps the held address, and takes no other", held: []policy.Addr{six}, unread: true,
			want4: []string{"node-2"}, want6: []string{"node-1"},
		},
		{
			name: "Local: endpoints of IPv4 on one Node, of IPv6 on the other", change: func(v *View) {
				local(v)
				v.Nodes[1].Spec.PodCIDRs = append(v.Nodes[1].Spec.PodCIDRs, "fd11:0:0:1::/64")
			},
			want4: []string{"node-1"}, want6: []string{"node-2"},
		},
		{
			name: "Local: the Node with the endpoint of IPv6 has no podCIDR of it", change: local, want4: []string{"node-1"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := dualView()
			v.Nodes[1].Spec.PodCIDRs = v.Nodes[1].Spec.PodCIDRs[:1]
			s := v.Services[0]
			s.Annotations = map[string]string{crdv1beta1.AnnotationExternalIPPool: "edge"}
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr4}, {IP: addr6}}
			if row.change != nil {
				row.change(&v)
			}
			tables := newTables(v.Config, v.NodeName)
			tables.set(v)
			if row.unread {
				tables.this.underlay.Delete(self)
			}
			tables.external.pools.Set(derive.Object{Name: "edge"}, poolSelector{Known: true})
			for _, n := range v.Nodes {
				n.Status.Conditions = append(n.Status.Conditions,
					corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
				tables.external.nodes.Set(derive.ObjectOf(n), holderNodeOf(n))
			}
			for _, a := range row.held {
				tables.external.held.Set(a, true)
			}
			tables.engine.Pass()
			for ip, want := range map[string][]string{addr4: row.want4, addr6: row.want6} {
				have, _ := tables.external.candidates.Get(policy.Addr{Addr: netip.MustParseAddr(ip)})
				slices.Sort(have.Nodes)
				if !slices.Equal(have.Nodes, want) {
					t.Errorf("%s: candidates %q, want %q", ip, have.Nodes, want)
				}
			}
			var gateway []netip.Addr
			if d, _ := tables.outputs.host.Get(self); len(d.Links) > 0 {
				gateway = d.Links[0].Held
			}
			if !slices.Equal(gateway, row.gateway) {
				t.Errorf("the gateway port holds %v, want %v", gateway, row.gateway)
			}
		})
	}
}
