package datapath

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// A network of tenants may have Pods in several clusters. Their packets go the way of untranslated packets between Pods
// (transit.go): to a Gateway of the sender's cluster, to a Gateway of the receiver's, to the receiver's Node. On each
// hop the number of the network is in the destination MAC. Gateways do not track the packets. As within a cluster, the
// receiver's Node decides.
//
// A Gateway sends a peer only packets of networks that have Pods there, or that are joined with such networks. It
// admits only packets of such networks, and only to Pods. So a cluster cannot act for a network that it has no part in.
// A gateway without the feature drops the MAC.

// fromPeerToTenants continues with a table for packets of other clusters in a network of tenants, if they are for a
// range of Pods.
func fromPeerToTenants(cidr netip.Prefix, to ofp.Table) flow.Flow {
	return flow.Flow{Table: UnSNAT, Priority: high,
		Match:   flow.All(source.Is(fromPeer), isTenant.Is(1), flow.IPDst(cidr.Masked())),
		Actions: flow.Do(flow.Goto(to))}
}

// passesTenants reports whether this Node is a Gateway of networks of tenants that have Pods in other clusters.
func (t *tenantTables) passesTenants(r *derive.Reader) bool {
	at, _ := derive.Get(r, t.base.role, Self)
	return at.isGateway() && t.spansClusters(r)
}

// spansClusters reports whether a network of tenants of this cluster has Pods in another one.
func (t *tenantTables) spansClusters(r *derive.Reader) bool {
	if t.spans == nil {
		return false
	}
	spans, _ := derive.Get(r, t.spans, Self)
	return spans
}

// fromOtherClusters lets packets of other clusters in networks of tenants reach only Pods, and no Service or host.
func (t *tenantTables) fromOtherClusters(r *derive.Reader, n Node) (flows []flow.Flow) {
	serves := t.servesTenants(r)
	if !t.spansClusters(r) || !serves && !t.passesTenants(r) {
		return nil
	}
	for _, ip := range versions(n.Families) {
		flows = append(flows, flow.Flow{Table: UnSNAT, Priority: differ,
			Match: flow.All(ip, source.Is(fromPeer), isTenant.Is(1))})
		if !serves { // other Nodes of the cluster, too
			flows = append(flows, flow.Flow{Table: UnSNAT, Priority: differ,
				Match: flow.All(ip, source.Is(fromTunnel), isTenant.Is(1))})
		}
		if serves && t.passesTenants(r) {
			flows = append(flows, export(high, ip, isTenant.Is(1)))
		}
	}
	if serves {
		for _, cidr := range n.PodCIDRs {
			flows = append(flows, fromPeerToTenants(cidr, Conntrack))
		}
	}
	return flows
}

// peer returns the flows for packets between this cluster and a peer in networks of tenants.
func (t *tenantTables) peer(r *derive.Reader, c crossCluster, peer peering.Peer) (flows []flow.Flow,
	ps problem.List,
) {
	if t.base.Remotes == nil || !peer.Active {
		return nil, nil
	}
	remote, there := derive.Get(r, t.base.Remotes, derive.Name(peer.ClusterID))
	if !there {
		return nil, nil
	}
	serves := t.servesTenants(r)
	for _, pods := range peer.Pods {
		pods = pods.Masked()
		for _, id := range remote.From {
			flows = append(flows, intoTenant(c.fromPeer(peer, normal, pods, flow.EthDst(MACOf(id))))...)
		}
		if serves {
			flows = append(flows, intoTenant(c.fromGateways(normal, pods, flow.EthDstMasked(TenantMAC, tenantMACs)))...)
		}
		flows = append(flows, c.tenantsTo(peer, pods, remote.To, serves)...)
	}
	for _, there := range remote.Virtual {
		if !c.node.Families.Serve(there.CIDR.Addr()) {
			continue
		}
		if taken, found := t.ownerOf(r, there.CIDR); found {
			ps.Add(problem.Object{Kind: "cluster", Name: peer.ClusterID}, "", reasonRangeTaken, fmt.Sprintf("Pods of this "+
				"cluster do not reach range %s of a VirtualNetwork there: %s of this or another cluster overlaps it: create "+
				"a Subnet with another range there, and a VirtualNetwork with it", there.CIDR, taken))
			continue
		}
		flows = append(flows, t.farRange(r, c, peer, there, serves)...)
	}
	return flows, ps
}

// tenantsTo sends packets of networks of tenants to a range of a peer's Pods. A Gateway sends only packets of networks
// that reach the peer. Other Nodes leave that check to the Gateway.
func (c crossCluster) tenantsTo(peer peering.Peer, pods netip.Prefix, ids []tenant.ID, serves bool) []flow.Flow {
	var flows []flow.Flow
	to := func(match ...flow.Cond) {
		flows = append(flows, numbered(c.ways.asItIs(normal, TenantMAC, false, append(match, flow.IPDst(pods))...)))
	}
	own := func(in flow.Cond) {
		if serves {
			to(in, source.Is(fromPod))
			to(in, generated.Is(1))
		}
	}
	if !c.at.direct(peer) {
		own(isTenant.Is(1))
		return flows
	}
	for _, id := range ids {
		in := inTenant.Is(network(id))
		own(in)
		to(in, source.Is(fromTunnel), flow.CTState("-trk"))
	}
	return append(flows, flow.Flow{Table: UnSNAT, Priority: high,
		Match:   flow.All(source.Is(fromTunnel), isTenant.Is(1), flow.IPDst(pods)),
		Actions: flow.Do(flow.Goto(Tenant))})
}
