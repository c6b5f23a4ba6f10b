package unserved

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/service"
)

func finding(field, format string, args ...any) Finding {
	return Finding{Field: field, Message: fmt.Sprintf(format, args...)}
}

// when is a finding where something is asked for.
func when(asked bool, field, message string) []Finding {
	if !asked {
		return nil
	}
	return []Finding{{Field: field, Message: message}}
}

// outsideRemedy is the remedy of requests for clients outside.
const outsideRemedy = "set antreaProxy.proxyAll in antrea-agent.conf, run kube-proxy, or use the ClusterIP"

func nodePorts(s *corev1.Service) []Finding {
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
	if i < 0 {
		return nil
	}
	return []Finding{finding(fmt.Sprintf("spec.ports[%d].nodePort", i),
		"port %d of the Nodes is not served by Tombolo: "+outsideRemedy,
		s.Spec.Ports[i].NodePort)}
}

func loadBalancer(s *corev1.Service) []Finding {
	return when(s.Spec.Type == corev1.ServiceTypeLoadBalancer, "spec.type",
		"load balancer addresses are not served by Tombolo: "+outsideRemedy)
}

func loadBalancerClass(s *corev1.Service) []Finding {
	return when(s.Spec.LoadBalancerClass != nil && s.Annotations[crdv1beta1.AnnotationExternalIPPool] != "",
		"spec.loadBalancerClass", "a Service with a class gets no address of an ExternalIPPool: leave the class out when "+
			"you create the Service, or remove the annotation "+crdv1beta1.AnnotationExternalIPPool)
}

func sourceRanges(s *corev1.Service) []Finding {
	return when(len(s.Spec.LoadBalancerSourceRanges) > 0, "spec.loadBalancerSourceRanges",
		"Tombolo does not limit who may use the Service: "+outsideRemedy)
}

func externalIPs(s *corev1.Service) []Finding {
	return when(len(s.Spec.ExternalIPs) > 0, "spec.externalIPs",
		"external addresses are not served by Tombolo: "+outsideRemedy)
}

func externalLocal(s *corev1.Service) []Finding {
	return when(s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal, "spec.externalTrafficPolicy",
		"Local has no effect on Tombolo, which serves no NodePorts and no load balancer addresses: "+outsideRemedy)
}

// longAffinity is longer than a switch remembers.
func longAffinity(s *corev1.Service) []Finding {
	c := s.Spec.SessionAffinityConfig
	if s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP ||
		c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return nil
	}
	seconds, most := *c.ClientIP.TimeoutSeconds, int32(service.MaxAffinity/time.Second)
	if seconds <= most {
		return nil
	}
	return []Finding{finding("spec.sessionAffinityConfig.clientIP.timeoutSeconds",
		"a client is remembered for %d seconds after its last connection, not for %d: set at most %d", most, seconds, most)}
}
