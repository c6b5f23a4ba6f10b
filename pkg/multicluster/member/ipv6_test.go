package member

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// TestPlanCarriesIPv6 announces, exports and imports IPv6 while the agents of all Gateways report that they carry it
// between clusters, and no agent reports without it.
func TestPlanCarriesIPv6(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	const both = "10.97.0.0/16 [10.97.0.0/16 fd00:97::/112] [10.11.0.0/16 fd00:11::/56], web 10.97.0.10 fd00:97::10, " +
		"db [IPv4 IPv6]"
	const one = "10.97.0.0/16 [] [10.11.0.0/16], web 10.97.0.10, db [IPv4]"
	without := func(i int) func(*View) { return func(v *View) { v.Reports[i].Features = nil } }
	for _, row := range []struct {
		name   string
		change func(*View)
		want   string
		blamed string // the Node with a problem
	}{
		{name: "all report it", want: both},
		{name: "a Node has no report", change: func(v *View) { v.Reports = v.Reports[:2] }, want: both},
		{name: "an agent reports without it", change: without(2), want: one, blamed: "node-3"},
		{name: "a Gateway's agent reports without it", change: without(0), want: one, blamed: "node-1"},
		{name: "a Gateway has no report", change: func(v *View) { v.Reports = v.Reports[1:] }, want: one, blamed: "node-1"},
		{name: "a Gateway that comes has no report", want: both, change: func(v *View) {
			v.Reports = slices.Delete(v.Reports, 1, 2)
			v.Gateways[1].Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseJoining}
		}},
		{name: "IPv6 first in the configuration", want: "10.97.0.0/16 [] [10.11.0.0/16], web 10.97.0.10, db [IPv4]",
			blamed: "node-3", change: func(v *View) {
				without(2)(v)
				v.ConfiguredCIDRs = "fd00:97::/112,10.97.0.0/16"
				v.ServiceCIDR = "fd00:97::/112"
			}},
		{name: "a cluster without IPv6", want: one, change: func(v *View) {
			without(2)(v)
			v.ServiceCIDRs, v.Config.PodCIDRs = serviceCIDRs("10.97.0.0/16"), v.Config.PodCIDRs[:1]
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := exportingView()
			v.ServiceCIDRs = serviceCIDRs("10.97.0.0/16,fd00:97::/112")
			v.Config.PodCIDRs = []string{"10.11.0.0/16", "fd00:11::/56"}
			v.Services[0].Spec.ClusterIPs = []string{"10.97.0.10", "fd00:97::10"}
			v.Services[0].Spec.IPFamilies = []corev1.IPFamily{v4, v6}
			v.EndpointSlices = append(v.EndpointSlices, webSlice6())
			v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1"), node("node-2", "10.0.0.2")}
			for i, name := range []string{"node-1", "node-2", "node-3"} {
				v.Reports = append(v.Reports, &tombolov1alpha1.NodePolicyReport{ObjectMeta: meta("", name),
					Features: map[string]string{mcv1alpha1.FeatureIPv6: ""}})
				if ip := fmt.Sprintf("10.0.0.%d", i+1); i < 2 {
					v.Gateways = append(v.Gateways, &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", name), GatewayIP: ip,
						InternalIP: ip, ServiceCIDR: "10.97.0.0/16"})
				}
			}
			db := importOf("default", "db")
			db.Spec.ServiceImport.Spec.IPFamilies = []corev1.IPFamily{v4, v6}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{db}
			if row.change != nil {
				row.change(&v)
			}
			// The derived Service already has a second ClusterIP.
			had := &corev1.Service{ObjectMeta: marked("default", "antrea-mc-db"), Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.9", ClusterIPs: []string{"10.97.0.9", "fd00:97::9"},
				IPFamilies: []corev1.IPFamily{v4, v6}}}
			v.Services = append(v.Services, had)
			d, ps := Plan(v)
			info, web := "", ""
			for _, re := range d.ResourceExports {
				if ci := re.Spec.ClusterInfo; ci != nil {
					info = fmt.Sprint(ci.ServiceCIDR, " ", ci.ServiceCIDRs, " ", ci.PodCIDRs)
				}
				if e := re.Spec.Endpoints; e != nil {
					for _, a := range e.Subsets[0].Addresses {
						web += " " + a.IP
					}
				}
			}
			i := slices.IndexFunc(d.Services, func(s *corev1.Service) bool { return s.Name == had.Name })
			expect(t, "IPv6", fmt.Sprintf("%s, web%s, db %v", info, web, d.Services[i].Spec.IPFamilies), row.want)
			for _, w := range d.Change.Local {
				if o, ok := w.Object.(*corev1.Service); ok {
					single := o.Spec.IPFamilyPolicy != nil && *o.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
					expect(t, "the second ClusterIP is removed", single, row.want == one)
				}
			}
			var blamed []string
			for _, text := range problems(ps) {
				if strings.HasSuffix(text, ": IPv6NotCarried") {
					blamed = append(blamed, strings.TrimSuffix(strings.TrimPrefix(text, "Node "), ": IPv6NotCarried"))
				}
			}
			expect(t, "Nodes with a problem", strings.Join(blamed, " "), row.blamed)
		})
	}
}

// TestPlanFamiliesOfEndpoints adds a version of IP to a derived Service once there are endpoints of it, and keeps it
// afterwards. It reports endpoints out of reach only of versions that the Service has.
func TestPlanFamiliesOfEndpoints(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	type list = []corev1.IPFamily
	for _, row := range []struct {
		name           string
		exported, have list
		endpoints      []string
		want           list
		problems       int
	}{
		{name: "a new Service, endpoints of IPv4", exported: list{v4, v6}, endpoints: []string{"10.98.0.7"}, want: list{v4}},
		{name: "IPv6 is not added", exported: list{v4, v6}, have: list{v4}, endpoints: []string{"10.98.0.7"}, want: list{v4}},
		{name: "IPv6 is added", exported: list{v4, v6}, have: list{v4}, endpoints: []string{"10.98.0.7", "fd00:98::7"},
			want: list{v4, v6}},
		{name: "IPv6 stays", exported: list{v4, v6}, have: list{v4, v6}, endpoints: []string{"10.98.0.7"},
			want: list{v4, v6}},
		{name: "no endpoints yet", exported: list{v4, v6}, have: list{v4}, want: list{v4, v6}},
		{name: "a range of IPv6 that is not announced", exported: list{v4, v6}, have: list{v4, v6},
			endpoints: []string{"10.98.0.7", "fd00:99::7"}, want: list{v4, v6}, problems: 1},
		{name: "the same under another implementation", have: list{v4}, endpoints: []string{"10.98.0.7", "fd00:99::7"},
			want: list{v4}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.ServiceCIDRs = serviceCIDRs("10.97.0.0/16,fd00:97::/112")
			west := clusterInfoOf("west", "10.98.0.0/16", "192.168.79.102")
			west.Spec.ClusterInfo.ServiceCIDRs = []string{"10.98.0.0/16", "fd00:98::/112"}
			db := importOf("default", "db")
			db.Spec.ServiceImport.Spec.IPFamilies = row.exported
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{db, west}
			if row.endpoints != nil {
				endpoints := endpointsOf("default", "db", row.endpoints...)
				endpoints.Annotations = map[string]string{multicluster.AnnotationSources: `[{"cluster":"west","subsets":1}]`}
				v.Leader.ResourceImports = append(v.Leader.ResourceImports, endpoints)
			}
			if row.have != nil {
				v.Services = []*corev1.Service{{ObjectMeta: marked("default", "antrea-mc-db"), Spec: corev1.ServiceSpec{
					Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.9", ClusterIPs: []string{"10.97.0.9"},
					IPFamilies: row.have}}}
			}
			d, ps := Plan(v)
			expect(t, "ipFamilies", d.Services[0].Spec.IPFamilies, row.want)
			expect(t, "dual stack", d.Services[0].Spec.IPFamilyPolicy != nil, len(row.want) == 2)
			expect(t, "problems", len(ps), row.problems)
		})
	}
}
