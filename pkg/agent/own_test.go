package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// endpoints returns endpoints with one address each. A second address of an endpoint would have no meaning.
func endpoints(addresses []string) []discoveryv1.Endpoint {
	var out []discoveryv1.Endpoint
	for _, a := range addresses {
		out = append(out, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return out
}

// TestOwn collects the addresses that no other cluster can have, including the API servers' addresses.
func TestOwn(t *testing.T) {
	slice := func(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service,
				Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   endpoints(addresses),
		}
	}
	v := View{
		Config:   config.Config{KubeAPIServerOverride: "https://172.30.0.10:6443", ServiceCIDR: "10.97.0.0/16"},
		NodeName: "node-1",
		Nodes: []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.11.1.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "192.168.78.101"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
				{Type: corev1.NodeExternalIP, Address: "203.0.113.1"}, {Type: corev1.NodeHostName, Address: "node-1"}}},
		}},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			slice("default", "kubernetes", "172.30.0.11", "172.30.0.10"), slice("default", "web", "10.11.1.9"),
			slice("other", "kubernetes", "10.11.1.8")},
		Underlay: Underlay{Networks: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24"),
			netip.MustParsePrefix("fd00::1/64")}},
	}
	services := []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	want := peering.Own{
		ServiceCIDRs: services,
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.11.1.0/24")},
		Nodes: []netip.Addr{netip.MustParseAddr("192.168.78.101"), netip.MustParseAddr("fd00::1"),
			netip.MustParseAddr("203.0.113.1")},
		APIServers: []netip.Addr{netip.MustParseAddr("172.30.0.10"), netip.MustParseAddr("172.30.0.11")},
		Networks:   []netip.Prefix{netip.MustParsePrefix("192.168.78.0/24"), netip.MustParsePrefix("fd00::/64")},
	}
	// A table of the test's own, since an Own is no table: it is part of the peering.
	tables := newTables(v.Config, v.NodeName)
	own := derive.NewTable(tables.engine, "own", func(_ derive.Name, r *derive.Reader) (peering.Own, []problem.Problem) {
		return tables.peers.own(r), nil
	}, derive.KeysOf(tables.this.settings))
	tables.set(v)
	tables.engine.Pass()
	have, _ := own.Get(self)
	if diff := cmp.Diff(want, have, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("want, have:\n%s", diff)
	}
}

// TestPodEndpoints reports an imported Service whose endpoints are another cluster's Pods.
func TestPodEndpoints(t *testing.T) {
	west := &mcv1alpha1.ClusterInfoImport{Spec: mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.96.0.0/16",
		PodCIDRs: []string{"10.10.0.0/16"}}}
	slice := func(service string, addresses ...string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service,
				Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   endpoints(addresses),
		}
	}
	conf := config.Default()
	conf.FeatureGates = map[string]bool{"Multicluster": true}
	conf.Multicluster.EnableGateway = true
	v := View{
		Config: conf, ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{west},
		EndpointSlices: []*discoveryv1.EndpointSlice{slice("web", "10.10.0.1"), slice("antrea-mc-db", "10.96.0.5"),
			slice("antrea-mc-web", "10.96.0.5", "10.10.0.1", "10.10.0.2")},
	}
	have := unreachable(t, v)
	if len(have) != 1 || have[0].Object.String() != "Service default/antrea-mc-web" ||
		!strings.Contains(have[0].Message, "endpoint 10.10.0.1 is a Pod of cluster west") {
		t.Errorf("problems %v", have)
	}
	v.Config.Multicluster.EnablePodToPodConnectivity = true
	if have := unreachable(t, v); len(have) != 0 {
		t.Errorf("with Pod-to-Pod connectivity: problems %v", have)
	}
}

// unreachable are the problems of endpoints that are not reached.
func unreachable(t *testing.T, v View) []problem.Problem {
	t.Helper()
	_, problems := Plan(v)
	return slices.DeleteFunc(problems, func(p problem.Problem) bool { return p.Reason != reasonPodEndpointsUnreachable })
}

// TestExportedEndpoints lists the endpoints of exported Services that other clusters may connect to.
func TestExportedEndpoints(t *testing.T) {
	v := testView()
	v.Gateways[0].Name, v.Gateways[0].GatewayIP, v.Gateways[0].InternalIP = "node-1", "192.168.78.101", "192.168.78.101"
	v.ServiceExports = []*mcsv1alpha1.ServiceExport{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}}
	// This Node would choose 10.11.0.2 alone.
	v.Services[0].Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	v.EndpointSlices[0].Endpoints = []discoveryv1.Endpoint{
		{Addresses: []string{"10.11.0.2"}, NodeName: new("node-1")},
		{Addresses: []string{"10.11.1.3"}, NodeName: new("node-2")},
		{Addresses: []string{"10.11.0.9"}, NodeName: new("node-1"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}},
	}
	other := v.EndpointSlices[0].DeepCopy()
	other.Labels = map[string]string{discoveryv1.LabelServiceName: "other"}
	other.Name, other.Endpoints[0].Addresses[0] = "other", "10.11.0.77"
	v.EndpointSlices = append(v.EndpointSlices, other)
	d, _ := Plan(v)
	allowed := map[string]bool{}
	for _, f := range d.Flows[datapath.ExportOwner("default", "web")].Flows {
		allowed[f.Match.String()] = true
	}
	for _, address := range []string{"10.11.0.2", "10.11.1.3", "10.11.0.9", "10.11.0.77"} {
		found := slices.ContainsFunc(slices.Collect(maps.Keys(allowed)), func(m string) bool {
			return strings.Contains(m, "nw_dst="+address+",") && strings.Contains(m, "tp_dst=8080")
		})
		if want := address != "10.11.0.77"; found != want {
			t.Errorf("connections to %s:8080 are admitted: %t, want %t; admitted are %q", address, found, want,
				slices.Sorted(maps.Keys(allowed)))
		}
	}
}
