package member

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// TestPlanOwnEndpoints imports endpoints from another cluster's export that belong to this cluster. They are left out.
func TestPlanOwnEndpoints(t *testing.T) {
	const node, pod, service, second, server, gateway, own, foreign = "192.168.78.101",
		"10.11.3.4", "10.97.0.77", "10.200.0.9", "172.30.0.10", "203.0.113.7", "10.97.0.10", "10.98.0.7"
	from := func(id string) func(*mcv1alpha1.ResourceImport) {
		return func(ri *mcv1alpha1.ResourceImport) {
			ri.Annotations = map[string]string{
				multicluster.AnnotationSources: exportcheck.SourcesText([]exportcheck.Source{{Cluster: id, Subsets: 1}})}
		}
	}
	for _, row := range []struct {
		name   string
		ip     string
		export bool // this cluster exports the Service, too
		from   func(*mcv1alpha1.ResourceImport)
		why    string // it is left out for; empty if it is imported
		quiet  bool   // and without a report
	}{
		{name: "another cluster's", ip: foreign},
		{name: "a Node", ip: node, why: "a Node"},
		{name: "a Node, as another cluster's", ip: node, from: from("west"), why: "a Node"},
		{name: "a Pod", ip: pod, why: "in a Pod range"},
		{name: "a Service", ip: service, why: "in a Service range"},
		{name: "a Service of another Service range", ip: second, why: "a Service"},
		{name: "the API server", ip: server, why: "an API server"},
		{name: "a gateway", ip: gateway, why: "a gateway"},
		{name: "the Service that this cluster exports", ip: own, export: true},
		{name: "the Service that this cluster exports, as the leader says", ip: own, export: true, from: from("east")},
		{name: "another Service, as another cluster's, of one that this cluster exports",
			ip: service, export: true, from: from("west"), why: "in a Service range"},
		{name: "another Service, of one that this cluster exports", ip: service, export: true,
			why: "in a Service range", quiet: true},
		{name: "this cluster's, as the leader says", ip: own, from: from("east")},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := exportingView()
			v.Config.PodCIDRs = []string{"10.11.0.0/16"}
			v.Nodes = []*corev1.Node{{ObjectMeta: meta("", "node-1"),
				Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: node}}}}}
			v.Gateways = []*mcv1alpha1.Gateway{
				{ObjectMeta: meta("kube-system", "node-9"), GatewayIP: gateway, InternalIP: gateway}}
			kubernetes := &discoveryv1.EndpointSlice{ObjectMeta: meta("default", "kubernetes"),
				AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{server}}}}
			kubernetes.Labels = map[string]string{discoveryv1.LabelServiceName: "kubernetes"}
			v.EndpointSlices = append(v.EndpointSlices, kubernetes)
			v.Services = append(v.Services, &corev1.Service{ObjectMeta: meta("default", "second"),
				Spec: corev1.ServiceSpec{ClusterIP: second, ClusterIPs: []string{second}}})
			if !row.export {
				v.ServiceExports = nil
			}
			ri, endpoints := importOf("default", "web"), endpointsOf("default", "web", row.ip)
			if row.from != nil {
				row.from(endpoints)
			}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{ri, endpoints}
			v.Services = append(v.Services, &corev1.Service{ObjectMeta: marked("default", "antrea-mc-web"),
				Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.9"}})
			d, ps := Plan(v)
			var in []string
			for _, s := range d.EndpointSlices {
				for _, e := range s.Endpoints {
					in = append(in, e.Addresses...)
				}
			}
			for _, e := range d.Endpoints {
				for _, s := range e.Subsets {
					for _, a := range slices.Concat(s.Addresses, s.NotReadyAddresses) {
						if !slices.Contains(in, a.IP) {
							t.Errorf("Endpoints have %s, which no EndpointSlice has", a.IP)
						}
					}
				}
			}
			if imported := slices.Contains(in, row.ip); imported != (row.why == "") {
				t.Errorf("imported %v, want %v", imported, row.why == "")
			}
			want := row.ip + " is " + row.why + " of this cluster, which does not export it"
			i := slices.IndexFunc(d.ServiceImports, func(si *mcsv1alpha1.ServiceImport) bool { return si.Name == "web" })
			if i < 0 {
				t.Fatal("there is no ServiceImport")
			}
			expected := row.why != "" && !row.quiet
			if have := d.ServiceImports[i].Status.Conditions[0].Message; strings.Contains(have, want) != expected {
				t.Errorf("condition of the ServiceImport %q, want %q in it: %v", have, want, expected)
			}
			reported := false
			for _, p := range ps {
				reported = reported || p.Reason.String() == "ResourceImportInvalid" && strings.Contains(p.Message, want)
			}
			if reported != expected {
				t.Errorf("reported %v, want %v: %v", reported, expected, ps)
			}
		})
	}
}
