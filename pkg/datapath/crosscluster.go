package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// crossCluster adds the ways between this cluster and its peers.
func (p *planner) crossCluster() {
	n := p.Node
	if p.Peering.Role == peering.None || n.TunnelPort == 0 {
		return
	}
	c := crossCluster{Node: n, gateway: p.isGateway(), own: p.Peering.GatewayIP}
	if !c.gateway {
		c.ends = p.gatewayEnds()
	}
	if c.gateway && c.own.Is4() {
		p.add(MulticlusterOwner(), problem.Object{Kind: "Gateway", Name: p.Peering.Gateway}, c.translate()...)
	}
	peers := sorted(p.Peering.Peers, func(p peering.Peer) string { return p.ClusterID })
	for _, peer := range peers {
		object := problem.Object{Kind: "cluster", Name: peer.ClusterID}
		if !peer.Via.Is4() {
			p.report(object, "", "InvalidGatewayIP", "cluster %s ignored: %s is not an IPv4 address that a tunnel can end at", peer.ClusterID, peer.Via)
			continue
		}
		var flows []flow.Flow
		for _, cidr := range sorted(peer.CIDRs, netip.Prefix.String) {
			if cidr.Addr().Is4() {
				flows = append(flows, c.toPeer(peer, cidr.Masked()))
			}
		}
		for _, ip := range sorted(peer.Gateways, netip.Addr.String) {
			if ip.Is4() {
				flows = append(flows, c.reply(peer, ip), c.rejection(peer, ip))
			}
		}
		flows = append(flows, c.admit(peer)...)
		if !p.add(MulticlusterOwner(), object, flows...) {
			continue
		}
		for _, ip := range peer.Gateways {
			p.share(MulticlusterOwner(), n.notToTunnel(ip)...)
		}
	}
}

// crossCluster is this Node's part in traffic between clusters.
type crossCluster struct {
	Node
	gateway bool       // this Node is the cluster's Gateway
	own     netip.Addr // the Gateway's address
	// ends are where the tunnels of this cluster's Gateway end, on a Node that is not the Gateway.
	ends []netip.Prefix
}

// isGateway reports whether this Node is the cluster's Gateway.
func (p *planner) isGateway() bool {
	return p.Peering.Role == peering.Gateway && p.Node.TunnelPort != 0
}

// gatewayEnds are the addresses that the tunnels of this cluster's Gateway come from.
func (p *planner) gatewayEnds() []netip.Prefix {
	var ends []netip.Prefix
	add := func(a netip.Addr) {
		if a.Is4() && !slices.Contains(ends, host(a)) {
			ends = append(ends, host(a))
		}
	}
	add(p.Peering.InternalIP)
	for _, r := range p.RemoteNodes {
		if r.Name == p.Peering.Gateway {
			for _, a := range r.sources() {
				add(a)
			}
		}
	}
	return ends
}

// admit lets in what a peer sends: its gateways' requests, with their own addresses, and replies
// and requests from the ranges behind it. The Gateway takes them from the ends of the peer's own
// tunnels, other Nodes from this cluster's Gateway alone.
func (c crossCluster) admit(peer peering.Peer) []flow.Flow {
	var flows []flow.Flow
	from := func(priority uint16, inside netip.Prefix) {
		if !c.gateway {
			for _, end := range c.ends {
				flows = append(flows, c.throughTunnelFrom(end, priority, fromPeer, inside)...)
			}
			return
		}
		for _, end := range peer.TunnelSources() {
			if end.Addr().Is4() {
				flows = append(flows, accept(priority, fromPeer, flow.InPort(c.TunnelPort), flow.TunnelSrc(end), flow.EthDst(crossClusterMAC), flow.IPSrc(inside)))
			}
		}
	}
	for _, cidr := range peer.CIDRs {
		if cidr.Addr().Is4() {
			from(normal, cidr.Masked())
		}
	}
	for _, ip := range peer.Gateways {
		if ip.Is4() {
			from(high, host(ip))
		}
	}
	return flows
}

// toPeer sends requests for the peer's Services, and Pods where they are shared, to the
// Gateway, and from there to the peer's. The MAC tells the far side that the packet comes
// from another cluster. On the Gateway the source becomes the Gateway's address, so that the
// peer needs to know nothing of this cluster's Pods.
func (c crossCluster) toPeer(peer peering.Peer, cidr netip.Prefix) flow.Flow {
	if !c.gateway {
		return c.throughTunnel(normal, crossClusterMAC, peer.Via, 0, flow.IPDst(cidr))
	}
	return c.throughTunnel(normal, crossClusterMAC, peer.Via, snatCross, flow.IPDst(cidr), flow.CTState("-rpl+trk"))
}

// reply sends answers to a peer's requests back the way they came.
func (c crossCluster) reply(peer peering.Peer, gateway netip.Addr) flow.Flow {
	return c.throughTunnel(normal, crossClusterMAC, c.back(peer, gateway), 0, flow.IPDst(host(gateway)), flow.CTState("+rpl+trk"))
}

// rejection does the same for the agent's answer to a request that no endpoint is for.
func (c crossCluster) rejection(peer peering.Peer, gateway netip.Addr) flow.Flow {
	return c.throughTunnel(low, crossClusterMAC, c.back(peer, gateway), 0, flow.IPDst(host(gateway)), generated.Is(1))
}

// back is where a reply for one of the peer's gateways goes: from the Gateway to that very
// one, whichever requests are sent to.
func (c crossCluster) back(peer peering.Peer, gateway netip.Addr) netip.Addr {
	if c.gateway {
		return gateway
	}
	return peer.Via
}

// translate gives requests to peers the Gateway's address, and undoes it for the replies,
// which come by the tunnel. The host uses that address too, but not through the tunnel.
func (c crossCluster) translate() []flow.Flow {
	return []flow.Flow{
		{
			Table: SNAT, Priority: normal,
			Match:   flow.All(flow.IP(), snat.Is(snatCross)),
			Actions: flow.Do(translateSource(c.own)),
		},
		{
			Table: UnSNAT, Priority: normal,
			Match:   flow.All(flow.InPort(c.TunnelPort), flow.IPDst(host(c.own))),
			Actions: flow.Do(restoreSource()),
		},
	}
}
