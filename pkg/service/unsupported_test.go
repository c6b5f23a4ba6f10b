package service

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestUnsupported(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*corev1.Service)
		want   []string
	}{
		{name: "plain ClusterIP", change: func(*corev1.Service) {}},
		{name: "headless", change: func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }},
		{name: "internalTrafficPolicy Local is served", change: func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
		}},
		{name: "ExternalName", change: func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org", ExternalIPs: []string{"192.0.2.1"}}
		}},
		{name: "NodePort", want: []string{"spec.ports[1].nodePort NodePortNotSupported"}, change: func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 81, NodePort: 30081})
		}},
		{name: "LoadBalancer without NodePorts", want: []string{"spec.type LoadBalancerNotSupported"}, change: func(s *corev1.Service) {
			s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, ptr(false)
		}},
		{
			name: "LoadBalancer for local endpoints",
			want: []string{"spec.ports[0].nodePort NodePortNotSupported", "spec.type LoadBalancerNotSupported", "spec.externalTrafficPolicy ExternalTrafficPolicyNotSupported"},
			change: func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
				s.Spec.Ports[0].NodePort = 30080
			},
		},
		{name: "external address", want: []string{"spec.externalIPs ExternalIPsNotSupported"}, change: func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"192.0.2.1"}
		}},
		{name: "session affinity is served", change: func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}},
		{name: "session affinity for longer than is served", want: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds AffinityTimeoutShortened"}, change: func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityClientIP, remembering(65536).Spec.SessionAffinityConfig
		}},
		{name: "traffic distribution is served", change: func(s *corev1.Service) {
			s.Spec.TrafficDistribution = ptr(corev1.ServiceTrafficDistributionPreferSameZone)
		}},
		{name: "topology hints are used", change: func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto", corev1.DeprecatedAnnotationTopologyAwareHints: "auto"}
		}},
		{name: "both families", want: []string{"spec.ipFamilies IPv6NotSupported"}, change: func(s *corev1.Service) {
			s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00::10"}
		}},
		{name: "only IPv6", want: []string{"spec.ipFamilies IPv6NotSupported"}, change: func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00::10", []string{"fd00::10"}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := svc("web", "10.96.0.10", "/TCP/80")
			row.change(s)
			var have []string
			for _, p := range Unsupported(s) {
				have = append(have, p.Field+" "+p.Reason)
				if p.Object.String() != "Service default/web" || !strings.Contains(p.Message, ":") {
					t.Errorf("names no object or no remedy: %s", p)
				}
			}
			if diff := cmp.Diff(row.want, have); diff != "" {
				t.Errorf("problems (-want +have):\n%s", diff)
			}
		})
	}
}
