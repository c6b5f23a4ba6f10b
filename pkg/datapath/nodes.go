package datapath

import (
	"net/netip"
	"slices"

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
	if p.exportsPods() {
		flows = append(flows, p.exportPods(n.PodCIDRs, n.GatewayIPs)...)
	}
	p.add(NodeOwner(n.Name), problem.Object{Kind: "Node", Name: n.Name}, flows...)
	for _, end := range n.Ends {
		p.share(NodeOwner(n.Name), n.notToTunnel(end)...)
	}
	if n.PacketInRate > 0 {
		e := p.out[NodeOwner(n.Name)]
		e.Meters = append(e.Meters, rejectMeter(n.PacketInRate))
		p.out[NodeOwner(n.Name)] = e
	}
}

// rejectMeter drops what exceeds a rate of packets a second. It has room for a burst of one second.
func rejectMeter(rate uint32) flow.Meter {
	return flow.Meter{ID: meterReject, Flags: ofp.MeterPktps | ofp.MeterBurst, Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: rate, Burst: rate}}}
}

// classify marks what comes from the host, which speaks for others and may use any source. No
// port may use VLAN tags: the rest of the program would not see them and pass them on.
func (n Node) classify() []flow.Flow {
	return []flow.Flow{
		{Table: Classify, Priority: never, Match: flow.All(flow.Tagged())},
		{Table: Classify, Priority: normal, Match: flow.All(flow.InPort(n.GatewayPort), flow.ARP()), Actions: flow.Do(flow.Goto(ARP))},
		accept(normal, fromGateway, flow.InPort(n.GatewayPort), flow.IP()),
	}
}

func accept(priority uint16, from uint64, match ...flow.Cond) flow.Flow {
	return flow.Flow{
		Table: Classify, Priority: priority,
		Match:   flow.All(match...),
		Actions: flow.Do(flow.Load(source, from), flow.Goto(UnSNAT)),
	}
}

// fromNode admits what another Node of this cluster sends through its tunnel to this Node's
// address: packets of its Pods and of its host, and no others.
func (n Node) fromNode(r RemoteNode, cidr netip.Prefix) []flow.Flow {
	var flows []flow.Flow
	for _, from := range r.sources() {
		flows = append(flows, n.throughTunnelFrom(host(from), normal, fromTunnel, cidr)...)
	}
	return flows
}

// fromHostOf admits what the host of another Node sends with the Node's own addresses.
func (n Node) fromHostOf(r RemoteNode) []flow.Flow {
	var flows []flow.Flow
	for _, from := range r.sources() {
		for _, ip := range r.sources() {
			flows = append(flows, n.throughTunnelFrom(host(from), high, fromTunnel, host(ip))...)
		}
	}
	return flows
}

// throughTunnelFrom admits packets with a source inside that a Node of this cluster sends here. A
// packet to an address where no tunnel ends was not made by a Node's switch.
func (n Node) throughTunnelFrom(from netip.Prefix, priority uint16, as uint64, inside netip.Prefix) []flow.Flow {
	match := []flow.Cond{flow.InPort(n.TunnelPort), flow.TunnelSrc(from), flow.EthDstMasked(InClusterMAC, ourMACs), flow.IPSrc(inside)}
	var flows []flow.Flow
	for _, end := range n.Ends {
		if end.Is4() {
			flows = append(flows, accept(priority, as, append(match[:4:4], flow.TunnelDst(host(end)))...))
		}
	}
	if len(flows) == 0 {
		flows = append(flows, accept(priority, as, match...))
	}
	return flows
}

// notToTunnel drops what looks like a packet of a tunnel and is for an address where one ends:
// the far end would take it for this Node's, once the host has masqueraded it. It stands after
// the choice of an endpoint, so that a Service leads nowhere else. The switch hides the ports of
// fragments: requests in fragments are dropped whatever their port. The kernel's datapath
// reassembles them before, so it drops no others.
func (n Node) notToTunnel(end netip.Addr) []flow.Flow {
	if n.Tunnel.Protocol == 0 || !end.Is4() {
		return nil
	}
	drop := func(more ...flow.Cond) flow.Flow {
		return flow.Flow{Table: Route, Priority: never, Match: flow.All(append(more, flow.IPProto(n.Tunnel.Protocol), flow.IPDst(host(end)))...)}
	}
	if n.Tunnel.Port == 0 {
		return []flow.Flow{drop()}
	}
	return []flow.Flow{drop(flow.UDPDst(n.Tunnel.Port)), drop(flow.Fragment(), flow.CTState("-rpl+trk"))}
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
		n.toGateway(last, snatHairpin, flow.IP(), source.Is(fromPeer), flow.CTState("-rpl+trk"), markService.Is(1)),
	)
}

// toGateway routes to the gateway port. For the host everything comes from the next hop of
// its routes, also its own packets.
func (n Node) toGateway(priority uint16, translate uint64, match ...flow.Cond) flow.Flow {
	actions := flow.Do(
		flow.SetEthSrc(InClusterMAC),
		flow.SetEthDst(n.GatewayMAC),
		flow.Load(outPort, uint64(n.GatewayPort)),
	)
	if translate != 0 {
		actions = append(actions, flow.Load(snat, translate))
	}
	return flow.Flow{Table: Route, Priority: priority, Match: flow.All(match...), Actions: append(actions, flow.Goto(Commit))}
}

// unroutable are addresses that the host must not get packets for: "this network", loopback,
// multicast, reserved and broadcast (RFC 6890). The host would take some of them for itself, such
// as 127.0.0.1 where something has turned route_localnet on.
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// toNobody drops what is for an address of this Node that no Pod has, and for the Service
// address where no connection has it: the host would send both back to the switch. It drops
// what is never routed, too.
func (n Node) toNobody() []flow.Flow {
	ranges := slices.Concat(n.PodCIDRs, unroutable)
	if n.ServiceVIP.IsValid() {
		ranges = append(ranges, host(n.ServiceVIP))
	}
	var flows []flow.Flow
	for _, r := range ranges {
		if r.Addr().Is4() {
			flows = append(flows, flow.Flow{Table: Route, Priority: low, Match: flow.All(flow.IPDst(r.Masked()))})
		}
	}
	return flows
}

// output sends a packet. A switch never sends one back by the port it came from unless the action
// is IN_PORT.
func (n Node) output() []flow.Flow {
	flows := []flow.Flow{
		{Table: Output, Priority: low, Actions: flow.Do(flow.OutputReg(outPort))},
		back(n.GatewayPort),
	}
	if n.TunnelPort != 0 {
		flows = append(flows, n.outputTunnel()...)
	}
	return flows
}

// outputTunnel decrements the TTL of what goes to another Node. A packet whose TTL ends is dropped
// here: dec_ttl would have the switch hand each to its controllers, past every meter.
func (n Node) outputTunnel() []flow.Flow {
	toTunnel := outPort.Is(uint64(n.TunnelPort))
	flows := []flow.Flow{
		{Table: Output, Priority: normal, Match: flow.All(flow.IP(), toTunnel), Actions: flow.Do(flow.DecTTL(), flow.OutputReg(outPort))},
		{Table: Output, Priority: high, Match: flow.All(flow.IP(), flow.InPort(n.TunnelPort), toTunnel), Actions: flow.Do(flow.DecTTL(), flow.ToInPort())},
	}
	for ttl := range byte(2) {
		flows = append(flows, flow.Flow{Table: Output, Priority: never, Match: flow.All(flow.IP(), toTunnel, flow.Field(ofp.IPTTL, []byte{ttl}, nil))})
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

// remoteNodes adds the way to the Pods of the other Nodes, and admits what comes from them.
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
		admitted := false
		for _, cidr := range r.PodCIDRs {
			if !cidr.Addr().Is4() {
				continue
			}
			flows := append(p.Node.fromNode(r, cidr.Masked()), p.Node.throughTunnel(normal, InClusterMAC, r.Address, 0, flow.IPDst(cidr.Masked())))
			if p.exportsPods() {
				flows = append(flows, p.exportPods([]netip.Prefix{cidr}, r.GatewayIPs)...)
			}
			admitted = p.add(NodeOwner(r.Name), object, flows...) || admitted
		}
		if !admitted {
			continue // another Node has its ranges
		}
		p.share(NodeOwner(r.Name), p.Node.fromHostOf(r)...)
		for _, end := range r.sources() {
			p.share(NodeOwner(r.Name), p.Node.notToTunnel(end)...)
		}
	}
}

// throughTunnel routes to another tunnel end. The MAC tells the far side what the packet is.
func (n Node) throughTunnel(priority uint16, mac ofp.MAC, to netip.Addr, translate uint64, match ...flow.Cond) flow.Flow {
	actions := flow.Do(
		flow.SetEthSrc(n.GatewayMAC),
		flow.SetEthDst(mac),
		flow.SetTunnelDst(to),
		flow.Load(outPort, uint64(n.TunnelPort)),
	)
	if translate != 0 {
		actions = append(actions, flow.Load(snat, translate))
	}
	return flow.Flow{Table: Route, Priority: priority, Match: flow.All(match...), Actions: append(actions, flow.Goto(Commit))}
}
