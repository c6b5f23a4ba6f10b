package agent

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// familiesOf returns the versions of IP that this Node serves to its Pods. Its podCIDRs are of these versions, and the
// agent serves them. While the Node is unknown, it is the zero value, IPv4 alone. Other Nodes may serve others.
func (t *ownNode) familiesOf(_ derive.Name, r *derive.Reader) (family.Families, []problem.Problem) {
	n, _, _ := t.ready(r)
	both, ok := family.Of(n.PodCIDRs).And(t.serves)
	if !ok {
		return t.serves, nil // nodeOf reports that there is no podCIDR
	}
	return both, nil
}

// families returns the row of familiesOf.
func (t *ownNode) families(r *derive.Reader) family.Families {
	f, _ := derive.Get(r, t.familiesRow, self)
	return f
}

// carriesTunnels reports whether tunnels between Nodes and between clusters can end at an address. They are over IPv4,
// whatever is inside.
func carriesTunnels(ip netip.Addr) bool { return ip.Is4() }

// is4 reports whether a range is of IPv4. Traffic between clusters and masquerading are of IPv4 alone.
func is4(p netip.Prefix) bool { return p.Addr().Is4() }

func only4(list []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return !is4(p) })
}
