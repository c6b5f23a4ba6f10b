package agent

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// clusterRange is a range of Pods of another cluster.
type clusterRange struct {
	cluster string
	pods    netip.Prefix
}

// peersPodsOf returns the Pod ranges of other clusters that cannot be reached. These are all Pod ranges if Pod-to-Pod
// connectivity is off.
func (t *peerTables) peersPodsOf(_ derive.Name, r *derive.Reader) ([]clusterRange, []problem.Problem) {
	if !t.config.MulticlusterGateway() || t.config.Multicluster.EnablePodToPodConnectivity {
		return nil, nil
	}
	var out []clusterRange
	for _, ci := range derive.All(r, t.objects.imports) {
		for _, text := range ci.Value.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, clusterRange{ci.Value.Spec.ClusterID, p.Masked()})
			}
		}
	}
	return out, nil
}

// importedService indexes the slices of imported Services by Service.
func importedService(_ derive.Object, s service.SliceFacts) []derive.Object {
	if !strings.HasPrefix(s.Service.Name, multicluster.ImportedPrefix) {
		return nil
	}
	return []derive.Object{s.Service}
}

// unreachable reports once that an imported Service has endpoints that cannot be reached, since they are Pods of other
// clusters.
func (t *peerTables) unreachable(key derive.Object, r *derive.Reader) (bool, []problem.Problem) {
	ranges, _ := derive.Get(r, t.unreached, self)
	for _, s := range derive.List(r, t.services.ByService, key) {
		for _, e := range s.Value.Endpoints {
			i := slices.IndexFunc(ranges, func(c clusterRange) bool { return c.pods.Contains(e.Addr) })
			if i < 0 {
				continue
			}
			var ps problems
			ps.report(problem.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name},
				"multicluster.enablePodToPodConnectivity", reasonPodEndpointsUnreachable,
				"endpoint %s is a Pod of cluster %s, which is not reached: set multicluster.enablePodToPodConnectivity to true "+
					"in antrea-agent.conf of both clusters", e.Addr, ranges[i].cluster)
			return true, ps
		}
	}
	return false, nil
}
