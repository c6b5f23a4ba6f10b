package imports

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// reach is where gateways forward to: the ranges of all clusters.
type reach struct{ Ranges []netip.Prefix }

// reachableOf returns the ranges that gateways forward to. If no cluster announces a range, there is no row: then the
// network between the clusters is assumed to forward packets.
func (t *Tables) reachableOf(_ derive.Name, r *derive.Reader) (*reach, []problem.Problem) {
	infos, _ := derive.Get(r, t.in.Infos, membership.Here)
	if len(infos) == 0 {
		return nil, nil
	}
	own, _ := derive.Get(r, t.base.Own, membership.Here)
	out := &reach{Ranges: slices.Concat(own.Announced(true), own.Pods)}
	for _, cii := range infos {
		out.Ranges = append(out.Ranges, claims.Ranges(&cii.Spec)...)
	}
	return out, nil
}

// report reports an imported Service that has endpoints outside of all announced ranges. No gateway forwards to them.
func (to *reach) report(service derive.Object, subsets []services.Subset, ps *problem.List) {
	if to == nil {
		return
	}
	for _, s := range subsets {
		for _, a := range s.Addresses {
			ip, err := netip.ParseAddr(a.IP)
			if err == nil && !slices.ContainsFunc(to.Ranges, func(r netip.Prefix) bool { return r.Contains(ip) }) {
				ps.Add(problem.About("Service", service.Namespace, service.Name), "", reasonUnreachable, fmt.Sprintf(
					"endpoint %s is in no range that a cluster of the ClusterSet announces, so gateways do not forward "+
						"to it: set podCIDRs in the member controller's configuration of the cluster that exports it, unless "+
						"its Pods are in a network that all clusters reach", ip))
				return
			}
		}
	}
}
