package service

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Unsupported returns what a Service asks for and no Node of any kind serves, one Problem for
// each field. What only some Nodes cannot serve (SCTP on the userspace datapath) is not among
// it: those agents report it themselves.
func Unsupported(s *corev1.Service) []problem.Problem {
	if s.Spec.Type == corev1.ServiceTypeExternalName || isOthers(s) {
		return nil // answered by DNS alone; served by another proxy
	}
	u := unsupported{object: problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}}
	u.addresses(s)
	u.families(s)
	u.affinity(s)
	return u.problems
}

type unsupported struct {
	object   problem.Object
	problems []problem.Problem
}

func (u *unsupported) add(field, reason, format string, args ...any) {
	u.problems = append(u.problems, problem.Problem{Object: u.object, Field: field, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// addresses are the ways to a Service other than its ClusterIPs.
func (u *unsupported) addresses(s *corev1.Service) {
	if i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 }); i >= 0 {
		u.add(fmt.Sprintf("spec.ports[%d].nodePort", i), "NodePortNotSupported",
			"port %d of the Nodes is not served by Tombolo: run kube-proxy for it, or use the ClusterIP", s.Spec.Ports[i].NodePort)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		u.add("spec.type", "LoadBalancerNotSupported",
			"load balancer addresses are not served by Tombolo: run kube-proxy for them, or use the ClusterIP")
	}
	if len(s.Spec.ExternalIPs) > 0 {
		u.add("spec.externalIPs", "ExternalIPsNotSupported", "external addresses are not served by Tombolo: run kube-proxy for them, or use the ClusterIP")
	}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		u.add("spec.externalTrafficPolicy", "ExternalTrafficPolicyNotSupported",
			"Local has no effect: Tombolo serves no NodePorts and no load balancer addresses")
	}
}

// affinity is longer than a switch remembers.
func (u *unsupported) affinity(s *corev1.Service) {
	c := s.Spec.SessionAffinityConfig
	if s.Spec.ClusterIP == corev1.ClusterIPNone || affinityOf(s) == 0 || c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return
	}
	if seconds, most := *c.ClientIP.TimeoutSeconds, int32(MaxAffinity/time.Second); seconds > most {
		u.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "AffinityTimeoutShortened",
			"a client is remembered for %d seconds after its last connection, not for %d: set at most %d", most, seconds, most)
	}
}

// families are those of the ClusterIPs.
func (u *unsupported) families(s *corev1.Service) {
	var has4, has6 bool
	for _, text := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if ip, err := netip.ParseAddr(text); err == nil {
			has4, has6 = has4 || ip.Is4(), has6 || ip.Is6()
		}
	}
	switch {
	case has6 && has4:
		u.add("spec.ipFamilies", "IPv6NotSupported", "the IPv6 ClusterIP is not served yet: use the IPv4 one, or set ipFamilies to [IPv4]")
	case has6:
		u.add("spec.ipFamilies", "IPv6NotSupported", "the Service has only an IPv6 ClusterIP, which is not served yet: recreate it with ipFamilies [IPv4]")
	}
}
