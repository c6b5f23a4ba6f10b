package agent

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// minMTU6 is the smallest MTU of a link with IPv6 (RFC 8200 section 5). Linux removes all IPv6 addresses from an
// interface with a smaller one.
const minMTU6 = 1280

// familiesOf returns the versions of IP that this Node serves to its Pods. They are the versions of its podCIDRs, and
// of the addresses that its Pods still have. A Node that is registered again gets other podCIDRs, and has no podCIDRs
// at first. While the Node is unknown, the result is the zero value, which means only IPv4. Other Nodes may serve other
// versions.
func (t *ownNode) familiesOf(_ derive.Name, r *derive.Reader) (family.Families, []problem.Problem) {
	n, u, _ := t.ready(r)
	ranges := slices.Clone(n.PodCIDRs) // nodeOf reports that there is no podCIDR
	for _, a := range derive.All(r, t.attachments) {
		if a.Value.VirtualNetwork == "" {
			ranges = append(ranges, a.Value.IPs...)
		}
	}
	of := family.Of(ranges)
	var ps problems
	if of.Has4() && t.unreachable(n, false) {
		ps.report(t.object(), "status.addresses", reasonNoInternalIP, "its Pods have no IPv4: "+noNextHop, "IPv4")
		if of.Has6() {
			of = family.IPv6
		}
	}
	if !of.Has6() {
		return of, ps
	}
	const without = "its Pods have no IPv6: "
	switch mtu := podMTU(t.config, u); {
	case u.NoIPv6:
		ps.report(t.object(), "spec.podCIDRs", reasonIPv6Off, without+"the kernel's IPv6 is off: start it without "+
			"ipv6.disable=1, and set net.ipv6.conf.all.disable_ipv6 to 0, or give the cluster ranges of IPv4 alone")
	case t.unreachable(n, true):
		ps.report(t.object(), "status.addresses", reasonNoInternalIP, without+noNextHop, "IPv6")
	case mtu > 0 && mtu < minMTU6:
		ps.report(t.object(), "spec.podCIDRs", reasonMTUTooSmall, without+"their MTU is %d, and IPv6 needs %d: raise "+
			"defaultMTU in antrea-agent.conf, or the MTU of the interface between the Nodes", mtu, minMTU6)
	default:
		return of, ps
	}
	return family.IPv4, ps
}

const noNextHop = "with trafficEncapMode noEncap other Nodes reach them by an InternalIP of %s, which the Node " +
	"lacks: start its kubelet with a --node-ip of both versions, or set trafficEncapMode to encap in antrea-agent.conf"

// unreachable reports whether the hosts of other Nodes lack a next hop of a version of IP to this Node. Tunnels need no
// such next hop. While the kubelet has written no InternalIP, the result is false.
func (t *ownNode) unreachable(n nodeFacts, six bool) bool {
	_, ok := n.endOf(six)
	return t.config.TrafficEncapMode == config.NoEncap && len(n.Internal) > 0 && !ok
}

// families returns the row of familiesOf.
func (t *ownNode) families(r *derive.Reader) family.Families {
	f, _ := derive.Get(r, t.familiesRow, self)
	return f
}

// carriesTunnels reports whether tunnels can end at an address, whatever is inside.
func carriesTunnels(ip netip.Addr) bool { return ip.Is4() || ip.IsGlobalUnicast() && !ip.Is4In6() }

// is4 reports whether a range is of IPv4.
func is4(p netip.Prefix) bool { return p.Addr().Is4() }
