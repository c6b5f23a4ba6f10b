package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// With traffic mode noEncap or hybrid, the host routes packets to the Pods of direct Nodes (RemoteNode.DirectTo). The
// switch sends such packets to the gateway port, and receives the packets of those Pods from it. Policies identify the
// senders by their addresses.

// direct routes packets for Pods of another Node to the host, which routes them on.
func (l nodeLink) direct(cidr netip.Prefix) []flow.Flow {
	to := flow.IPDst(cidr)
	flows := []flow.Flow{
		l.node.toGateway(normal, 0, to),
		// The host has routes of its own to these Pods. Without this flow, a packet that the host sends here by mistake
		// would loop between host and switch.
		{Table: Route, Priority: differ, Match: flow.All(source.Is(fromGateway), to)},
		// This flow is for the host's own connection to a Service. The endpoint has to answer to the switch, which reverses
		// the translation to the endpoint. So the source becomes the switch's address.
		l.node.toGateway(same, snatHairpin, source.Is(fromGateway), to, flow.CTState("-rpl+trk"), markService.Is(1)),
	}
	// Packets of other clusters. The network between the Nodes does not know their sources.
	for _, from := range []uint64{fromTunnel, fromPeer} {
		flows = append(flows, l.node.throughTunnel(differ, InClusterMAC, l.to.Address, 0, source.Is(from), to))
	}
	// While the other Node still uses tunnels, connections of its host to Services use them too, and that Node's switch
	// reverses the translation to the endpoint. So replies must go to that switch, and not to the host. Connections of
	// clients outside have the Node's service source as their source, which no interface has.
	ends := slices.Clone(l.to.GatewayIPs)
	if ip, ok := policy.ServiceSource(cidr); ok {
		ends = append(ends, ip)
	}
	for _, ip := range ends {
		if cidr.Contains(ip) {
			flows = append(flows, l.node.throughTunnel(high, InClusterMAC, l.to.Address, 0, flow.IPDst(host(ip)),
				flow.CTState("+rpl+trk"), markSource.Is(fromTunnel)))
		}
	}
	return flows
}

// rangesOf returns the ranges of another Node's Pods that packets are routed to. It leaves out a range that has another
// owner.
func (b *base) rangesOf(r *derive.Reader, remote RemoteNode) []netip.Prefix {
	var out []netip.Prefix
	for _, c := range remote.claims() {
		if holder, _ := derive.Get(r, b.holders, c); holder == remoteNode(derive.Name(remote.Name)) {
			out = append(out, c.to)
		}
	}
	return out
}
