package agent

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
)

// TestOwn collects the addresses that no other cluster can have, the API servers' among them.
func TestOwn(t *testing.T) {
	slice := func(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: addresses}},
		}
	}
	v := View{
		Config: config.Config{KubeAPIServerOverride: "https://172.30.0.10:6443"},
		Nodes: []*corev1.Node{{
			Spec: corev1.NodeSpec{PodCIDRs: []string{"10.11.1.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "192.168.78.101"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
				{Type: corev1.NodeExternalIP, Address: "203.0.113.1"}, {Type: corev1.NodeHostName, Address: "node-1"}}},
		}},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			slice("default", "kubernetes", "172.30.0.11", "172.30.0.10"), slice("default", "web", "10.11.1.9"), slice("other", "kubernetes", "10.11.1.8")},
		Underlay: Underlay{Networks: []netip.Prefix{netip.MustParsePrefix("192.168.78.101/24"), netip.MustParsePrefix("fd00::1/64")}},
	}
	services := []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	want := peering.Own{
		ServiceCIDRs: services,
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.11.1.0/24")},
		Nodes:        []netip.Addr{netip.MustParseAddr("192.168.78.101"), netip.MustParseAddr("203.0.113.1")},
		APIServers:   []netip.Addr{netip.MustParseAddr("172.30.0.10"), netip.MustParseAddr("172.30.0.11")},
		Networks:     []netip.Prefix{netip.MustParsePrefix("192.168.78.0/24")},
	}
	if diff := cmp.Diff(want, v.own(services), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("want, have:\n%s", diff)
	}
}

// TestPodEndpoints reports an imported Service whose endpoints are another cluster's Pods.
func TestPodEndpoints(t *testing.T) {
	west := &mcv1alpha1.ClusterInfoImport{Spec: mcv1alpha1.ClusterInfo{ClusterID: "west", ServiceCIDR: "10.96.0.0/16", PodCIDRs: []string{"10.10.0.0/16"}}}
	slice := func(service string, addresses ...string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: addresses}},
		}
	}
	v := View{
		ClusterInfoImports: []*mcv1alpha1.ClusterInfoImport{west},
		EndpointSlices:     []*discoveryv1.EndpointSlice{slice("web", "10.10.0.1"), slice("antrea-mc-db", "10.96.0.5"), slice("antrea-mc-web", "10.96.0.5", "10.10.0.1", "10.10.0.2")},
	}
	have := v.podEndpoints()
	if len(have) != 1 || have[0].Object.String() != "Service default/antrea-mc-web" || !strings.Contains(have[0].Message, "endpoint 10.10.0.1 is a Pod of cluster west") {
		t.Errorf("problems %v", have)
	}
	v.Config.Multicluster.EnablePodToPodConnectivity = true
	if have := v.podEndpoints(); len(have) != 0 {
		t.Errorf("with Pod-to-Pod connectivity: problems %v", have)
	}
}
