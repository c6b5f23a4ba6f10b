package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// A Pod may have further interfaces, each with a port in a VirtualNetwork. Such a port has a network of tenants as the
// first port of an isolated Pod has, and the same flows in table Tenant. The differences are:
//
//   - Addresses are of Subnets. Nodes have blocks of these (tenant.NodeBlocks), and not one podCIDR for all networks. A
//     Node sends packets for a block to the Node that has it. From that Node it admits packets with a source in the
//     block only if they are in the block's network.
//   - The gateway of a Subnet is no host. The switch answers requests for its address, but only in the network.
//   - There are no Services. With a bit of the register, packets skip the tables that choose endpoints. No packet
//     leaves the network except to networks that it is joined with, and only refusals of the agent enter it.
//
// The first interface of a Pod may be such a port, too. Then the host of its Node has a route to its address, and the
// host's own packets are delivered, as for an isolated Namespace. It has Services (ownTables). No other packet of the
// default network goes to the address: the host would send it back.
//
// The Node's host and Services route by addresses. So if a Pod's own network is a separate one, the first interface has
// addresses of the Node (Pod.Inside). Its flows are these of an isolated Pod, with the number of the VirtualNetwork.
// Its Services are these of a first interface in a VirtualNetwork. A further interface of the Pod has the address of
// the network.
//
// A separate network has addresses that other networks may have, too (tenant.VirtualNetwork.Zone). Its packets carry
// the number of its zone of connection tracking in a register, from the Pod's port or from the tunnel. It is joined
// only with networks of this zone. All other flows about its addresses match the network anyway.
//
// A Node has the flows of a VirtualNetwork while a Pod of it is in the network, or in one that is joined with it. A
// Gateway has the blocks of these that are joined with networks of other clusters (virtualclusters.go).

// placeAt returns the network of a Pod's port.
func (t *tenantTables) placeAt(r *derive.Reader, pod Pod) tenant.Place {
	network := pod.Network
	if pod.isInside() {
		network = pod.Inside
	}
	if network == (derive.Object{}) {
		return t.placeOf(r, pod.Namespace)
	}
	if t.base.Networks == nil {
		return tenant.Place{}
	}
	n, _ := derive.Get(r, t.base.Networks, network)
	return n.Place
}

// addVirtual adds the tables that other features read.
func (t *tenantTables) addVirtual(e *derive.Engine) {
	if t.base.Networks == nil {
		return
	}
	byNetwork := derive.NewIndex(t.base.Pods, "virtual network", func(_ derive.Name, p Pod) []derive.Object {
		if !p.inVirtual() {
			return nil
		}
		return []derive.Object{p.Network}
	})
	t.entered = derive.NewTable(e, "entered-networks",
		func(k derive.Object, r *derive.Reader) (tenant.ID, []problem.Problem) {
			n, _ := derive.Get(r, t.base.Networks, k)
			return n.Place.ID, nil
		}, derive.KeysOfIndex(byNetwork))
	t.zones = derive.NewTable(e, "zones-of-entered-networks",
		func(k derive.Object, r *derive.Reader) (uint16, []problem.Problem) { return t.base.zoneOf(r, k), nil },
		derive.KeysOfIndex(byNetwork))
	t.present = derive.NewTable(e, "present-networks",
		func(_ derive.Name, r *derive.Reader) (ids []tenant.ID, _ []problem.Problem) {
			for _, row := range derive.All(r, t.entered) {
				ids = append(ids, row.Value)
			}
			for _, row := range derive.All(r, t.hosted) {
				ids = append(ids, t.placeOf(r, string(row.Key)).ID)
			}
			slices.Sort(ids)
			return slices.Compact(ids), nil
		}, derive.KeysOf(t.base.Node)).EqualBy(slices.Equal[[]tenant.ID])
}

// entersVirtual reports whether a Pod of this Node is in a VirtualNetwork.
func (t *tenantTables) entersVirtual(r *derive.Reader) bool {
	return t.entered != nil && len(derive.All(r, t.entered)) > 0
}

// entersSeparate reports whether a Pod of this Node is in a separate network.
func (t *tenantTables) entersSeparate(r *derive.Reader) bool {
	return t.zones != nil && len(derive.All(r, t.zones)) > 0
}

// intoVirtual returns the actions that mark a packet of a further interface. zone is not 0 if its network is separate.
func intoVirtual(zone uint16) flow.Actions {
	out := flow.Do(flow.Load(isVirtual, 1))
	if zone != 0 {
		out = append(out, flow.Load(inZone, separate(zone)))
	}
	return out
}

// separate returns the register's value for the zone of a separate network.
func separate(zone uint16) uint64 { return 1<<zoneID.Width | uint64(zone) }

// separateBase returns the flows for connections in separate networks. They do what the flows for all other
// connections do, in the zone of the network. Nothing is translated there. SCTP is dropped if the zones are taken for
// its ports (sctpByPort).
func separateBase(n Node) []flow.Flow {
	t := tracking{separate: true}
	return n.each(func(ip flow.Cond) []flow.Flow {
		flows := slices.Concat([]flow.Flow{
			t.flow(Conntrack, normal, flow.Do(t.ct(ofp.CT{Table: ConntrackState})), ip),
		}, t.again(ip), t.remember(ip))
		if n.SCTPByPort {
			flows = append(flows, flow.Flow{Table: Conntrack, Priority: never,
				Match: flow.All(ip, flow.SCTP(), isSeparate.Is(1))})
		}
		return flows
	})
}

// tracking is where connections are tracked: in one zone for all networks that are not separate, or in the zone of the
// packet's separate network.
type tracking struct{ separate bool }

// ct returns an action of connection tracking in the zone.
func (t tracking) ct(c ofp.CT) ofp.Action {
	if c.Zone = mainZone; t.separate {
		c.Zone, c.ZoneSrc = 0, ofp.Bits{Field: zoneID.Field, First: zoneID.First, Width: zoneID.Width}
	}
	return flow.CT(c)
}

// flow returns a flow for packets whose connections are tracked there. Flows for separate networks come directly before
// the flows of the same priority for all packets.
func (t tracking) flow(table ofp.Table, priority uint16, actions flow.Actions, match ...flow.Cond) flow.Flow {
	if t.separate {
		match = append(match, isSeparate.Is(1))
		priority += differ - normal
	}
	return flow.Flow{Table: table, Priority: priority, Match: flow.All(match...), Actions: actions}
}

// aroundServices leads new connections in VirtualNetworks around the choice of an endpoint.
func aroundServices() flow.Flow {
	return flow.Flow{Table: ConntrackState, Priority: closed, Match: flow.All(isVirtual.Is(1)),
		Actions: flow.Do(flow.Goto(Egress))}
}

// sendersAround lets connections to addresses of a VirtualNetwork, from networks that reach it, skip the choice of an
// endpoint. Otherwise the author of a Service could redirect them with a Service that has the same external address.
// This is needed for first interfaces in VirtualNetworks and for Pods of isolated Namespaces, since these have
// Services.
func sendersAround(senders []tenant.ID, to netip.Prefix) (flows []flow.Flow) {
	for _, id := range senders {
		flows = append(flows, flow.Flow{Table: ConntrackState, Priority: closed,
			Match:   flow.All(isVirtual.Is(0), inTenant.Is(network(id)), flow.IPDst(to.Masked())),
			Actions: flow.Do(flow.Goto(Egress))})
	}
	return flows
}

// virtualNetwork returns the flows of a VirtualNetwork: the answers of its gateways, and the ways to the blocks of
// other Nodes.
func (t *tenantTables) virtualNetwork(k derive.Object, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	v, _ := derive.Get(r, t.base.Networks, k)
	senders, answers := t.senders(r, v), t.own.answers(r, v)
	entering, passes := t.entering(r, v)
	if len(senders) == 0 && !answers && !passes {
		return e, nil
	}
	n := t.base.self(r)
	if answers && n.Tunnels.Port != 0 {
		e.Flows = onlyClients(n) // each such network has the same
	}
	_, here := derive.Get(r, t.entered, k)
	for _, l := range v.Leases {
		if !n.Families.Serve(l.Range.Gateway) {
			continue
		}
		if here && !answered(v, l.Range) {
			for _, f := range n.answer(l.Range.Gateway, n.GatewayMAC, asRouter, inTenant.Is(network(v.Place.ID))) {
				e.Flows = append(e.Flows, atTenant(f))
			}
		}
		e.Flows = append(e.Flows, sendersAround(senders, l.Range.CIDR)...)
		for _, b := range l.Nodes {
			if here && b.Node == n.Name && n.Tunnels.Port != 0 {
				for _, block := range b.Blocks {
					e.Flows = append(e.Flows, fromFarInto(entering, block.Masked())...)
				}
			}
			remote, there := derive.Get(r, t.base.RemoteNodes, derive.Name(b.Node))
			if !there || n.Tunnels.Port == 0 {
				continue
			}
			for _, block := range b.Blocks {
				link, block := nodeLink{n, remote}, block.Masked()
				if len(senders) > 0 || passes {
					e.Flows = append(e.Flows, link.virtualBlock(v, senders, block)...)
				}
				if passes {
					e.Flows = append(e.Flows, link.fromFarTo(entering, block)...)
				}
				if answers {
					e.Flows = append(e.Flows, t.own.answersTo(r, link, block)...)
				}
			}
		}
	}
	return e, nil
}

// senders returns the networks with Pods on this Node whose packets reach a VirtualNetwork.
func (t *tenantTables) senders(r *derive.Reader, v tenant.VirtualNetwork) []tenant.ID {
	if v.Place.Closed() {
		return nil
	}
	present, _ := derive.Get(r, t.present, Self)
	return slices.DeleteFunc(append(slices.Clone(v.Place.Joined), v.Place.ID), func(id tenant.ID) bool {
		return id == 0 || !slices.Contains(present, id)
	})
}

// These are priorities of flows about addresses of VirtualNetworks, in tables where policies look up an address. Such a
// flow matches only packets of certain networks. They come before flows about the same address elsewhere, such as in
// another cluster.
const (
	inBlock        = differ + iota // no Pod that a rule asks for
	unknownInBlock                 // an unknown Pod
	knownInBlock
)

// furtherFlows returns the flows that identify the owner of an address in a VirtualNetwork, for packets of networks
// that reach it. For packets of other networks the address belongs to another machine.
func (p *Policies) furtherFlows(a policy.FurtherAddr, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	h, _ := derive.Get(r, p.in.Virtual.Addresses, a)
	if !derived(r, p.base.outside).Families.Serve(a.Addr) {
		return e, nil
	}
	for d, s := range directions {
		if !h.Asked[d] {
			continue
		}
		for _, packets := range p.tenants.packetsWith(r, h.Network, policy.Direction(d)) {
			e.Flows = append(e.Flows, s.isAt(knownInBlock, uint64(h.Number), host(a.Addr), packets))
		}
	}
	return e, nil
}

// blockFlows identify other addresses of a block as unknown Pods, in directions in which a rule denies these. They take
// precedence over flows about the same address elsewhere.
func (p *Policies) blockFlows(of policy.Block, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	in, _ := derive.Get(r, p.in.Virtual.Blocks, of)
	if !derived(r, p.base.outside).Families.Serve(of.Range.Addr()) {
		return e, nil
	}
	judging, _ := derive.Get(r, p.judging, Self)
	for d, s := range directions {
		if !judging[d] {
			continue
		}
		for _, packets := range p.tenants.packetsWith(r, in.Network, policy.Direction(d)) {
			if in.Denied[d] {
				e.Flows = append(e.Flows, s.isAt(unknownInBlock, policy.UnknownPod, of.Range.Prefix, packets, s.other.Is(0)))
			}
			e.Flows = append(e.Flows, flow.Flow{Table: s.peers, Priority: inBlock,
				Match: flow.All(packets, s.otherIP(of.Range.Prefix)), Actions: flow.Do(flow.Goto(s.stages[policy.Admin]))})
		}
	}
	return e, nil
}

// packetsWith returns matches of the packets for which an address is one of a VirtualNetwork: packets from it, also to
// servers of the default network, and packets of networks that reach it.
func (t *tenantTables) packetsWith(r *derive.Reader, k derive.Object, d policy.Direction) (out []flow.Cond) {
	if t.base.Networks == nil {
		return nil
	}
	v, _ := derive.Get(r, t.base.Networks, k)
	ids := t.senders(r, v)
	if d == policy.Ingress && !v.Place.Closed() {
		ids = []tenant.ID{v.Place.ID}
	}
	for _, id := range ids {
		out = append(out, inTenant.Is(network(id)))
	}
	if d == policy.Ingress && t.own.answers(r, v) {
		out = append(out, source.Is(fromFirst))
	}
	return out
}

// answered reports whether an earlier lease of a network has the same gateway.
func answered(v tenant.VirtualNetwork, g tenant.Range) bool {
	for _, l := range v.Leases {
		if l.Range == g {
			return false
		}
		if l.Range.Gateway == g.Gateway {
			return true
		}
	}
	return false
}

// virtualBlock returns the flows for a block of another Node. Only packets of the senders' networks go there. For
// packets of other networks, which may leave the cluster, the same addresses are outside.
func (l nodeLink) virtualBlock(v tenant.VirtualNetwork, senders []tenant.ID, block netip.Prefix) []flow.Flow {
	var flows []flow.Flow
	id := v.Place.ID
	for _, from := range l.to.sources() {
		for _, f := range l.node.acceptTunnel(host(from), normal, fromTunnel, flow.EthDst(MACOf(id)), flow.IPSrc(block)) {
			f.Actions = slices.Concat(flow.Do(flow.Load(inTenant, network(id))), intoVirtual(v.Zone), f.Actions)
			flows = append(flows, f)
		}
	}
	for _, sender := range senders {
		of := inTenant.Is(network(sender))
		flows = append(flows, l.toNetwork(of, block, flow.Do(flow.Move(senderKey, tunnelKey)), source.Is(fromPod)),
			l.toNetwork(of, block, nil, generated.Is(1)))
	}
	return flows
}

// onlyItsHost drops packets of the default network to a first interface in a VirtualNetwork. Forwarded packets are
// dropped too, even if another program on the host has given them the host's address. Flows of a higher priority
// deliver the host's own packets, and replies of Services.
func (p nodePod) onlyItsHost(ip netip.Addr) []flow.Flow {
	enters := flow.Flow{Table: Classify, Priority: high,
		Match: flow.All(flow.InPort(p.node.GatewayPort), flow.EthDst(InClusterMAC), flow.IPDst(host(ip)))}
	if p.services { // the host forwards answers of servers outside
		f := p.node.accept(enters.Priority, fromGateway)
		enters.Actions = append(flow.Do(flow.Load(forwarded, 1)), f.Actions...)
	}
	return []flow.Flow{enters, {Table: Route, Priority: low, Match: flow.All(flow.IPDst(host(ip)))}}
}

// inVirtual reports whether the port is in a VirtualNetwork, with addresses of it.
func (pod Pod) inVirtual() bool { return pod.Network != derive.Object{} }

// isInside reports whether the Pod's packets are in a VirtualNetwork, with addresses of the Node.
func (pod Pod) isInside() bool { return pod.Inside != derive.Object{} }

// own returns the VirtualNetwork that is the own network of the Pod, or zero. It returns zero for ports of further
// interfaces.
func (pod Pod) own() derive.Object {
	if pod.First {
		return pod.Network
	}
	return pod.Inside
}

// virtualOwner owns the flows of a VirtualNetwork.
func virtualOwner(k derive.Object) flow.Owner {
	return flow.Owner{Kind: KindTenant, Name: "network " + k.Namespace + "/" + k.Name}
}
