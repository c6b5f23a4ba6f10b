package unserved

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/service"
)

// withProxyAll are the reasons that agents with antreaProxy.proxyAll give no cause for.
var withProxyAll = map[string]bool{
	"NodePortNotSupported": true, "LoadBalancerNotSupported": true, "ExternalIPsNotSupported": true,
	"LoadBalancerSourceRangesNotSupported": true, "ExternalTrafficPolicyNotSupported": true,
}

func TestService(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*corev1.Service)
		want   []string
	}{
		{name: "plain ClusterIP", change: func(*corev1.Service) {}},
		{name: "headless", change: func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }},
		{name: "internalTrafficPolicy Local is served", change: func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		}},
		{name: "ExternalName", change: func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org",
				ExternalIPs: []string{"192.0.2.1"}}
		}},
		{name: "NodePort", want: []string{"spec.ports[1].nodePort NodePortNotSupported"}, change: func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 81, NodePort: 30081})
		}},
		{name: "LoadBalancer without NodePorts", want: []string{"spec.type LoadBalancerNotSupported"},
			change: func(s *corev1.Service) {
				s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
			}},
		{
			name: "LoadBalancer for local endpoints",
			want: []string{"spec.ports[0].nodePort NodePortNotSupported", "spec.type LoadBalancerNotSupported",
				"spec.externalTrafficPolicy ExternalTrafficPolicyNotSupported"},
			change: func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
				s.Spec.Ports[0].NodePort = 30080
			},
		},
		{name: "external address", want: []string{"spec.externalIPs ExternalIPsNotSupported"},
			change: func(s *corev1.Service) {
				s.Spec.ExternalIPs = []string{"192.0.2.1"}
			}},
		{name: "session affinity is served", change: func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}},
		{name: "session affinity for longer than is served",
			want: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds AffinityTimeoutShortened"},
			change: func(s *corev1.Service) {
				s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityClientIP,
					&corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(65536))}}
			}},
		{name: "traffic distribution is served", change: func(s *corev1.Service) {
			s.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferSameZone)
		}},
		{name: "topology hints are used", change: func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto",
				corev1.DeprecatedAnnotationTopologyAwareHints: "auto"}
		}},
		{name: "load balancer of a class, for some clients", change: func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new("example.org/metal")
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		}, want: []string{"spec.type LoadBalancerNotSupported",
			"spec.loadBalancerSourceRanges LoadBalancerSourceRangesNotSupported"}},
		{name: "load balancer of a class with a pool", change: func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new("example.org/metal")
			s.Annotations = map[string]string{"service.antrea.io/external-ip-pool": "pool"}
		}, want: []string{"spec.type LoadBalancerNotSupported", "spec.loadBalancerClass LoadBalancerClassNotSupported"}},
		{name: "annotations of Antrea", change: func(s *corev1.Service) {
			s.Annotations = map[string]string{"service.antrea.io/external-ip-pool": "pool",
				"service.antrea.io/load-balancer-mode": "dsr",
				"nodeportlocal.antrea.io/enabled":      "true", "example.org/service.antrea.io": "x"}
		}, want: []string{
			"metadata.annotations[service.antrea.io/load-balancer-mode] ServiceAnnotationNotSupported",
			"metadata.annotations[nodeportlocal.antrea.io/enabled] NodePortLocalNotSupported"}},
		{name: "another proxy's", change: func(s *corev1.Service) {
			s.Labels = map[string]string{service.LabelProxyName: "another"}
			s.Spec.ExternalIPs = []string{"192.0.2.1"}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
			s.Spec.ClusterIP, s.Spec.Ports = "10.96.0.10", []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
			row.change(s)
			same(t, "Service default/web", row.want, Service(s, Cluster{}))
			var left []string
			for _, want := range row.want {
				if _, reason, _ := strings.Cut(want, " "); !withProxyAll[reason] {
					left = append(left, want)
				}
			}
			same(t, "Service default/web", left, Service(s, Cluster{Outside: true}))
		})
	}
}
