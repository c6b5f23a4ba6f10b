package membership

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/claims"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// OwnRanges are the addresses of this cluster.
type OwnRanges struct {
	Services []netip.Prefix // first the range of Environment; empty while it is unknown
	Pods     []netip.Prefix
	Nodes    []NodeAddr
}

// NodeAddr is an address of a Node.
type NodeAddr struct {
	Node string
	Addr netip.Addr
}

func (t *Tables) ownOf(_ derive.Name, r *derive.Reader) (OwnRanges, []problem.Problem) {
	env, _ := derive.Get(r, t.Environment, Here)
	var own OwnRanges
	own.Services = t.services(env, r)
	pods := slices.Clone(t.Config.PodCIDRs)
	for _, node := range derive.Values(derive.All(r, t.Nodes)) {
		pods = append(pods, node.Spec.PodCIDRs...)
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				own.Nodes = append(own.Nodes, NodeAddr{node.Name, ip})
			}
		}
	}
	for _, text := range pods {
		if p, err := netip.ParsePrefix(text); err == nil {
			own.Pods = append(own.Pods, p)
		}
	}
	return own, nil
}

// services returns the ranges of ClusterIPs: the configured ones, or else the discovered ones together with the ranges
// of ServiceCIDR objects. A range within another one is left out.
func (t *Tables) services(env Environment, r *derive.Reader) (out []netip.Prefix) {
	first, err := netip.ParsePrefix(env.ServiceCIDR)
	if err != nil {
		return nil
	}
	var others []netip.Prefix
	for _, text := range slices.Concat(env.ServiceCIDRs, env.OtherCIDRs) {
		if p, err := netip.ParsePrefix(text); err == nil {
			others = append(others, p)
		}
	}
	if len(env.ServiceCIDRs) == 0 {
		for _, row := range derive.All(r, t.serviceCIDRs) {
			others = append(others, row.Value...)
		}
		slices.SortFunc(others, netip.Prefix.Compare) // a range is before those within it
	}
	out = []netip.Prefix{first}
	for _, p := range others {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) }) {
			out = append(out, p)
		}
	}
	return out
}

// Announced returns the ranges of ClusterIPs that other clusters are to reach, as many as a ClusterInfo may have. It
// omits ranges of IPv6 if the agents do not carry IPv6 between clusters.
func (own OwnRanges) Announced(ipv6 bool) []netip.Prefix {
	ranges := own.Services
	if !ipv6 {
		ranges = slices.DeleteFunc(slices.Clone(ranges), func(p netip.Prefix) bool { return p.Addr().Is6() })
	}
	return ranges[:min(len(ranges), claims.MaxServiceRanges)]
}

// Families returns the versions of IP of ClusterIPs that imports of this cluster may have, IPv4 first. If there are
// ranges of both versions but the agents do not carry IPv6 between clusters, it returns only IPv4. It returns nil while
// the ranges are unknown.
func (own OwnRanges) Families(ipv6 bool) []corev1.IPFamily {
	served := family.Of(own.Services)
	if served == family.Dual && !ipv6 {
		served = family.IPv4
	}
	switch {
	case len(own.Services) == 0:
		return nil
	case served == family.Dual:
		return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	case served == family.IPv6:
		return []corev1.IPFamily{corev1.IPv6Protocol}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// Serves reports whether an address is in a range of ClusterIPs.
func (own OwnRanges) Serves(ip netip.Addr) bool {
	return slices.ContainsFunc(own.Services, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Meets returns the part of this cluster that a range overlaps; empty for no part.
func (own OwnRanges) Meets(r netip.Prefix) string {
	for _, p := range own.Services {
		if p.Overlaps(r) {
			return p.String()
		}
	}
	for _, p := range own.Pods {
		if p.Overlaps(r) {
			return "Pod range " + p.String()
		}
	}
	for _, n := range own.Nodes {
		if r.Contains(n.Addr) {
			return "Node " + n.Node + " (" + n.Addr.String() + ")"
		}
	}
	return ""
}
