package agent

import (
	"fmt"
	"net/netip"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// podEndpoints reports imported Services with endpoints among the Pods of other clusters, which
// are not reached while Pod-to-Pod connectivity is off. Each Service is reported once.
func (v View) podEndpoints() []problem.Problem {
	type pods struct {
		cluster string
		prefix  netip.Prefix
	}
	var ranges []pods
	for _, ci := range v.ClusterInfoImports {
		for _, text := range ci.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				ranges = append(ranges, pods{ci.Spec.ClusterID, p.Masked()})
			}
		}
	}
	if len(ranges) == 0 || v.Config.Multicluster.EnablePodToPodConnectivity {
		return nil
	}
	var out []problem.Problem
	done := map[problem.Object]bool{}
	for _, s := range v.EndpointSlices {
		object := problem.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		if done[object] || !strings.HasPrefix(object.Name, multicluster.ImportedPrefix) {
			continue
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				ip, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				for _, r := range ranges {
					if !done[object] && r.prefix.Contains(ip) {
						done[object] = true
						out = append(out, problem.Problem{Object: object, Field: "multicluster.enablePodToPodConnectivity", Reason: "PodEndpointsUnreachable", Message: fmt.Sprintf(
							"endpoint %s is a Pod of cluster %s, which is not reached: set multicluster.enablePodToPodConnectivity to true in antrea-agent.conf of both clusters", ip, r.cluster)})
					}
				}
			}
		}
	}
	return out
}
