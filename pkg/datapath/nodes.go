package datapath

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// host is the prefix of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// node adds what this Node needs whatever runs on it.
func (p *planner) node() {
	n := p.Node
	flows := n.classify()
	flows = append(flows, n.arp()...)
	flows = append(flows, n.conntrack()...)
	flows = append(flows, n.commit())
	flows = append(flows, n.hairpin()...)
	flows = append(flows, n.toHost()...)
	flows = append(flows, n.toNobody()...)
	flows = append(flows, n.output()...)
	p.add(NodeOwner(n.Name), problem.Object{Kind: "Node", Name: n.Name}, flows...)
}

// classify marks what comes from the host and from the tunnel. Both may use any source: the
// host speaks for others, and the far end of the tunnel has checked its Pods.
func (n Node) classify() []flow.Flow {
	flows := []flow.Flow{
		{Table: Classify, Priority: normal, Match: flow.All(flow.InPort(n.GatewayPort), flow.ARP()), Actions: flow.Do(flow.Goto(ARP))},
		n.accept(fromGateway, flow.InPort(n.GatewayPort), flow.IP()),
	}
	if n.TunnelPort != 0 {
		flows = append(flows, n.accept(fromTunnel, flow.InPort(n.TunnelPort), flow.IP()))
	}
	return flows
}

func (n Node) accept(from uint64, match ...flow.Cond) flow.Flow {
	return flow.Flow{
		Table: Classify, Priority: normal,
		Match:   flow.All(match...),
		Actions: flow.Do(flow.Load(source, from), flow.Goto(UnSNAT)),
	}
}

// conntrack looks every connection up. Packets of known connections, and errors about them,
// go past the choice of an endpoint.
func (n Node) conntrack() []flow.Flow {
	state := func(priority uint16, s string, actions ...ofp.Action) flow.Flow {
		return flow.Flow{Table: ConntrackState, Priority: priority, Match: flow.All(flow.IP(), flow.CTState(s)), Actions: actions}
	}
	return []flow.Flow{
		{
			Table: Conntrack, Priority: normal,
			Match:   flow.All(flow.IP()),
			Actions: flow.Do(flow.CT(ofp.CT{Zone: mainZone, NAT: &ofp.NAT{}, Table: ConntrackState})),
		},
		state(high, "+inv+trk"),
		state(normal, "-new+est+trk", flow.Goto(Route)),
		state(low, "+rel+trk", flow.Goto(Route)),
	}
}

// commit remembers a connection that table Service has not remembered. Nothing after it
// depends on ct_state, so it takes no recirculation.
func (n Node) commit() flow.Flow {
	return flow.Flow{
		Table: Commit, Priority: normal,
		Match: flow.All(flow.IP(), flow.CTState("+new+trk"), committed.Is(0)),
		Actions: flow.Do(
			flow.CT(ofp.CT{Flags: ofp.CTCommit, Zone: mainZone, Table: ofp.CTNoTable, Exec: flow.Do(flow.Move(source, markSource))}),
			flow.Goto(SNAT),
		),
	}
}

// hairpin makes connections that leave by the port they came from look as if they came from
// the Service address: otherwise the receiver would see its own address, or answer past the
// switch. An established connection is "committed" again, which only repeats its translation.
func (n Node) hairpin() []flow.Flow {
	return []flow.Flow{
		{
			Table: SNAT, Priority: normal,
			Match:   flow.All(flow.IP(), snat.Is(snatHairpin)),
			Actions: flow.Do(translateSource(n.ServiceVIP)),
		},
		{
			Table: UnSNAT, Priority: normal,
			Match:   flow.All(flow.IPDst(host(n.ServiceVIP))),
			Actions: flow.Do(restoreSource()),
		},
	}
}

// translateSource gives a connection a source address that replies come back to.
func translateSource(to netip.Addr) ofp.Action {
	return flow.CT(ofp.CT{Flags: ofp.CTCommit, Zone: snatZone, Table: Output, NAT: &ofp.NAT{Flags: ofp.NATSrc, IPMin: string(to.AsSlice())}})
}

// restoreSource undoes translateSource for a reply.
func restoreSource() ofp.Action {
	return flow.CT(ofp.CT{Zone: snatZone, Table: Conntrack, NAT: &ofp.NAT{}})
}

// toHost sends what is for the host, or for the world behind it, to the gateway port.
func (n Node) toHost() []flow.Flow {
	var flows []flow.Flow
	for _, ip := range n.GatewayIPs {
		if !ip.Is4() {
			continue
		}
		flows = append(flows,
			n.toGateway(normal, 0, flow.IPDst(host(ip))),
			// The host's own connection to a Service whose endpoint is the host.
			n.toGateway(high, snatHairpin, flow.IPDst(host(ip)), source.Is(fromGateway), flow.CTState("-rpl+trk"), markService.Is(1)),
		)
	}
	return append(flows,
		// A Pod to the world; the host masquerades it.
		n.toGateway(last, 0, flow.IP(), source.Is(fromPod)),
		// Replies to an address of the host that is not the gateway port's.
		n.toGateway(last, 0, flow.IP(), flow.CTState("+rpl+trk")),
		n.toGateway(last, 0, flow.IP(), generated.Is(1)),
		// The host's or another cluster's connection to a Service whose endpoint is no Pod:
		// the host, the API server, a machine outside. The host would answer the client
		// directly if it saw its address. Only Services: anything else that neither a Pod nor
		// a route is for would go round between host and switch.
		n.toGateway(last, snatHairpin, flow.IP(), source.Is(fromGateway), flow.CTState("-rpl+trk"), markService.Is(1)),
		n.toGateway(last, snatHairpin, flow.IP(), source.Is(fromTunnel), flow.CTState("-rpl+trk"), markService.Is(1)),
	)
}

// toGateway routes to the gateway port. For the host everything comes from the next hop of
// its routes, also its own packets.
func (n Node) toGateway(priority uint16, translate uint64, match ...flow.Cond) flow.Flow {
	actions := flow.Do(
		flow.SetEthSrc(inClusterMAC),
		flow.SetEthDst(n.GatewayMAC),
		flow.Load(outPort, uint64(n.GatewayPort)),
	)
	if translate != 0 {
		actions = append(actions, flow.Load(snat, translate))
	}
	return flow.Flow{Table: Route, Priority: priority, Match: flow.All(match...), Actions: append(actions, flow.Goto(Commit))}
}

// toNobody drops what is for an address of this Node that no Pod has. The host would send it
// back to the switch.
func (n Node) toNobody() []flow.Flow {
	var flows []flow.Flow
	for _, r := range n.PodCIDRs {
		if r.Addr().Is4() {
			flows = append(flows, flow.Flow{Table: Route, Priority: low, Match: flow.All(flow.IPDst(r.Masked()))})
		}
	}
	return flows
}

// output sends a packet. A switch never sends one back by the port it came from unless it is
// told so in these words.
func (n Node) output() []flow.Flow {
	flows := []flow.Flow{
		{Table: Output, Priority: normal, Actions: flow.Do(flow.OutputReg(outPort))},
		back(n.GatewayPort),
	}
	if n.TunnelPort != 0 {
		flows = append(flows, back(n.TunnelPort))
	}
	return flows
}

// back sends what came by a port and has to leave by it.
func back(port ofp.Port) flow.Flow {
	return flow.Flow{
		Table: Output, Priority: high,
		Match:   flow.All(flow.InPort(port), outPort.Is(uint64(port))),
		Actions: flow.Do(flow.ToInPort()),
	}
}

// remoteNodes adds the way to the Pods of the other Nodes.
func (p *planner) remoteNodes() {
	for _, r := range p.RemoteNodes {
		if r.Name == p.Node.Name || p.Node.TunnelPort == 0 {
			continue
		}
		object := problem.Object{Kind: "Node", Name: r.Name}
		if !r.Address.Is4() {
			p.report(object, "status.addresses", "InvalidAddress", "its Pods cannot be reached: %s is not an IPv4 address that a tunnel can end at; give the Node an IPv4 InternalIP", r.Address)
			continue
		}
		for _, cidr := range r.PodCIDRs {
			if cidr.Addr().Is4() {
				p.add(NodeOwner(r.Name), object, p.Node.throughTunnel(normal, inClusterMAC, r.Address, 0, flow.IPDst(cidr.Masked())))
			}
		}
	}
}

// throughTunnel routes to another tunnel end. The MAC tells the far side what the packet is.
func (n Node) throughTunnel(priority uint16, mac ofp.MAC, to netip.Addr, translate uint64, match ...flow.Cond) flow.Flow {
	actions := flow.Do(
		flow.SetEthSrc(n.GatewayMAC),
		flow.SetEthDst(mac),
		flow.SetTunnelDst(to),
		flow.DecTTL(),
		flow.Load(outPort, uint64(n.TunnelPort)),
	)
	if translate != 0 {
		actions = append(actions, flow.Load(snat, translate))
	}
	return flow.Flow{Table: Route, Priority: priority, Match: flow.All(match...), Actions: append(actions, flow.Goto(Commit))}
}
