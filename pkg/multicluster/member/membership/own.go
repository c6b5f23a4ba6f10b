package membership

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// OwnRanges are the addresses of this cluster.
type OwnRanges struct {
	Service netip.Prefix // invalid while it is unknown
	Pods    []netip.Prefix
	Nodes   []NodeAddr
}

// NodeAddr is an address of a Node.
type NodeAddr struct {
	Node string
	Addr netip.Addr
}

func (t *Tables) ownOf(_ derive.Name, r *derive.Reader) (OwnRanges, []problem.Problem) {
	env, _ := derive.Get(r, t.Environment, Here)
	var own OwnRanges
	own.Service, _ = netip.ParsePrefix(env.ServiceCIDR)
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

// Meets returns the part of this cluster that a range overlaps; empty for no part.
func (own OwnRanges) Meets(r netip.Prefix) string {
	if own.Service.IsValid() && own.Service.Overlaps(r) {
		return own.Service.String()
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
