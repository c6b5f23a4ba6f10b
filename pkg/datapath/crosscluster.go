package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// claims are what a peer is reached by: its ranges and its gateways. On the Gateway requests and replies
// have flows of their own; on other Nodes its ranges are routes as those of Nodes are.
func (at role) claims(peer peering.Peer) []claim {
	if at.Role == peering.None || !peer.Via.IsValid() {
		return nil
	}
	var out []claim
	for _, cidr := range peer.CIDRs {
		out = append(out, claim{kind: claimCluster, to: cidr.Masked()})
		if !at.isGateway() {
			out = append(out, route(cidr))
		}
	}
	for _, ip := range peer.Gateways {
		out = append(out, claim{kind: claimCluster, to: host(ip)})
	}
	return out
}

// gatewayFlows are what the Gateway needs whatever its peers are.
func (t *Tables) gatewayFlows(_ derive.Name, r *derive.Reader) (flow.Entries, []problem.Problem) {
	at, _ := derive.Get(r, t.role, Self)
	if !at.isGateway() {
		return flow.Entries{}, nil
	}
	flows := exportsBase()
	if at.own.IsValid() {
		flows = append(flows, crossCluster{Node: t.self(r), role: at}.translate()...)
	}
	return flow.Entries{Flows: flows}, nil
}

// peerFlows are the ways between this cluster and a peer.
func (t *Tables) peerFlows(id derive.Name, r *derive.Reader) (flow.Entries, []problem.Problem) {
	at, _ := derive.Get(r, t.role, Self)
	if at.Role == peering.None {
		return flow.Entries{}, nil
	}
	peer, _ := derive.Get(r, t.peers, id)
	object := problem.Object{Kind: "cluster", Name: peer.ClusterID}
	if !peer.Via.IsValid() {
		return flow.Entries{}, []problem.Problem{{Object: object, Reason: "InvalidGatewayIP", Message: fmt.Sprintf(
			"cluster %s ignored: there is no address that a tunnel to it can end at", peer.ClusterID)}}
	}
	if problems := t.refused(r, peerCluster(id), object, at.claims(peer)); problems != nil {
		return flow.Entries{}, problems
	}
	c := crossCluster{Node: t.self(r), role: at}
	if !at.isGateway() {
		remote, _ := derive.Get(r, t.RemoteNodes, derive.Name(at.gateway))
		c.ends = gatewayEnds(at.internal, remote)
	} else {
		c.TunnelSource = c.PeerSource
	}
	if at.isGateway() && at.own.IsValid() && len(c.Ends) > 0 && !slices.Contains(c.Ends, at.own) {
		c.Ends = append(slices.Clone(c.Ends), at.own) // peers send to it
	}
	var flows []flow.Flow
	for _, cidr := range peer.CIDRs {
		flows = append(flows, c.toPeer(peer, cidr.Masked()))
	}
	for _, ip := range peer.Gateways {
		flows = append(flows, c.reply(peer, ip), c.rejection(peer, ip))
	}
	flows = append(flows, c.admit(peer)...)
	for _, ip := range peer.Gateways {
		flows = append(flows, c.notToTunnel(ip)...)
	}
	return flow.Entries{Flows: flows}, nil
}

// crossCluster is this Node's part in traffic between clusters.
type crossCluster struct {
	Node
	role
	// ends are where the tunnels of this cluster's Gateway end, on a Node that is not the Gateway.
	ends []netip.Prefix
}

// gatewayEnds are the addresses that the tunnels of this cluster's Gateway come from.
func gatewayEnds(internal netip.Addr, gateway RemoteNode) []netip.Prefix {
	var ends []netip.Prefix
	for _, a := range append([]netip.Addr{internal}, gateway.sources()...) {
		if a.IsValid() && !slices.Contains(ends, host(a)) {
			ends = append(ends, host(a))
		}
	}
	return ends
}

// admit lets in what a peer sends: its gateways' requests, with their own addresses, and replies
// and requests from the ranges behind it. The Gateway takes them from the ends of the peer's own
// tunnels, other Nodes from this cluster's Gateway alone, and both at addresses where tunnels end.
func (c crossCluster) admit(peer peering.Peer) []flow.Flow {
	var flows []flow.Flow
	from := func(priority uint16, inside netip.Prefix) {
		if !c.isGateway() {
			for _, end := range c.ends {
				flows = append(flows, c.throughTunnelFrom(end, priority, fromPeer, inside)...)
			}
			return
		}
		for _, end := range peer.TunnelSources() {
			flows = append(flows, c.acceptTunnel(priority, fromPeer, flow.TunnelSrc(end), flow.EthDst(CrossClusterMAC), flow.IPSrc(inside))...)
		}
	}
	for _, cidr := range peer.CIDRs {
		from(normal, cidr.Masked())
	}
	for _, ip := range peer.Gateways {
		from(high, host(ip))
	}
	return flows
}

// toPeer sends requests for the peer's Services, and Pods where they are shared, to the
// Gateway, and from there to the peer's. By the MAC the far side knows that the packet comes
// from another cluster. On the Gateway the source becomes the Gateway's address, so that the
// peer needs to know nothing of this cluster's Pods; for its policies the tunnel's key says who sends.
func (c crossCluster) toPeer(peer peering.Peer, cidr netip.Prefix) flow.Flow {
	f := c.throughTunnel(normal, CrossClusterMAC, peer.Via, 0, flow.IPDst(cidr))
	if c.isGateway() {
		f = c.throughTunnel(normal, CrossClusterMAC, peer.Via, snatCross, flow.IPDst(cidr), flow.CTState("-rpl+trk"))
	}
	if c.Stretched { // the key of what a peer sends stays as it is, on the way to another Node
		f.Actions = append(flow.Do(flow.Move(clusterSetID, tunnelKey)), f.Actions...)
	}
	return f
}

// reply sends answers to a peer's requests back the way they came.
func (c crossCluster) reply(peer peering.Peer, gateway netip.Addr) flow.Flow {
	return c.throughTunnel(normal, CrossClusterMAC, c.back(peer, gateway), 0, flow.IPDst(host(gateway)), flow.CTState("+rpl+trk"))
}

// rejection does the same for the agent's answer to a request that no endpoint is for.
func (c crossCluster) rejection(peer peering.Peer, gateway netip.Addr) flow.Flow {
	return c.throughTunnel(low, CrossClusterMAC, c.back(peer, gateway), 0, flow.IPDst(host(gateway)), generated.Is(1))
}

// back is where a reply for one of the peer's gateways goes: from the Gateway to that very
// one, whichever requests are sent to.
func (c crossCluster) back(peer peering.Peer, gateway netip.Addr) netip.Addr {
	if c.isGateway() {
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
