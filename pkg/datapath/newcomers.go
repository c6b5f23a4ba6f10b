package datapath

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A new Pod of another Node sends before its kubelet has reported the address. Its Node names it in the tunnel's key
// (sends, namingSender). Table Classify admits packets from that Node anyway. For the key it has a flow that loads the
// number of the Pod's identity, like the flow of a Pod of this Node. Table IngressPeer keeps that number, even if
// another Pod is known at the address. If there is no flow for a key, the sender is the Pod at the packet's address. If
// no Pod is known there, it is an unknown Pod.

// bySenderKey skips table IngressPeer for a sender that the key has named. So its address is not looked up.
func bySenderKey() flow.Flow {
	return flow.Flow{
		Table: IngressPeer, Priority: high, Match: flow.All(named.Is(1)), Actions: flow.Do(flow.Goto(IngressAdmin)),
	}
}

// newcomerFlows load the identity of a sender that the key of a Node's tunnel names.
func (p *Policies) newcomerFlows(k policy.SenderKey, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	who, _ := derive.Get(r, p.in.Newcomers, k)
	remote, ok := derive.Get(r, p.base.RemoteNodes, derive.Name(k.Node))
	n := p.base.self(r)
	if who.Number == 0 || !ok || n.Tunnels.Port == 0 {
		return e, nil
	}
	object := problem.Object{Kind: "Node", Name: remote.Name}
	for _, c := range remote.claims() {
		if p.base.refused(r, remoteNode(derive.Name(remote.Name)), object, []claim{c}) == nil { // nodeFlows reports it
			e.Flows = append(e.Flows, nodeLink{n, remote}.fromNewcomer(c.to, k.Key, who.Number, flow.EthDst(InClusterMAC))...)
			if p.tenants.servesTenants(r) {
				flows := nodeLink{n, remote}.fromNewcomer(c.to, k.Key, who.Number, flow.EthDstMasked(TenantMAC, tenantMACs))
				e.Flows = append(e.Flows, intoTenant(flows)...)
			}
		}
	}
	return e, nil
}

// fromNewcomer is fromNode for packets with a key and a MAC of the packet's network.
func (l nodeLink) fromNewcomer(cidr netip.Prefix, key, number uint32, mac flow.Cond) []flow.Flow {
	var flows []flow.Flow
	for _, from := range l.to.sources() {
		match := []flow.Cond{mac, flow.IPSrc(cidr), tunnelKey.Is(uint64(key))}
		for _, f := range l.node.acceptTunnel(host(from), differ, fromTunnel, match...) {
			f.Actions = append(append(load(sender, number), flow.Load(named, 1)), f.Actions...)
			flows = append(flows, f)
		}
	}
	return flows
}

// newcomer records that a tunnel key no longer names the same sender: it names another Pod, a Pod with another
// identity, or no Pod. The caller calls it between two passes.
func (c *Concern) newcomer(in *policy.Tables, old, now policy.Newcomer) {
	if old.Number == 0 || old == now {
		return
	}
	known := in.AddressesOfNewcomer(old)
	if len(known) == 0 { // the Pod is gone or has other labels, and its address is unknown
		c.Look = true
		return
	}
	for _, ip := range known {
		h, _ := in.Addresses.Get(policy.Addr{Addr: ip})
		number := uint32(0)
		if h.Asked[policy.Ingress] {
			number = h.Number
		}
		if number != old.Number {
			c.identityOf(policy.Egress, zoneAddr{Addr: ip}, old.Number, number)
		}
	}
}
