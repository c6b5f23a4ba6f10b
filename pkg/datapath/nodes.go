package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// host is the prefix of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// claims are the Node's own addresses, ranges and ports.
func (n Node) claims() []claim {
	out := append(routes(n.GatewayIPs), routes(n.vips())...)
	for _, p := range n.PodCIDRs {
		if !p.IsSingleIP() {
			out = append(out, route(p))
		}
	}
	for _, port := range []ofp.Port{n.GatewayPort, n.Tunnels.Port} {
		if port != 0 {
			out = append(out, claim{kind: claimPort, ports: port})
		}
	}
	return out
}

// nodeFlows returns the flows for a Node: for this Node, or for the way to another one.
func (b *base) nodeFlows(name derive.Name, r *derive.Reader) (flow.Entries, []problem.Problem) {
	n := b.self(r)
	at, _ := derive.Get(r, b.role, Self)
	if n.Name == string(name) {
		own := n.entries(at)
		if b.observes(r) {
			reportOpened(own.Flows)
			own.Meters = append(own.Meters, meter(Opened.meter(), openedRate))
		}
		if t := b.tracing(r); t.On {
			own.Flows = append(own.Flows, n.traces(t)...)
			own.Meters = append(own.Meters, meter(Traced.meter(), tracedRate))
		}
		return own, nil
	}
	remote, _ := derive.Get(r, b.RemoteNodes, name)
	return b.remoteFlows(remote, n, at, r)
}

// entries returns the flows that this Node needs with any Pods and Services.
func (n Node) entries(at role) flow.Entries {
	var flows []flow.Flow
	for _, table := range Program.Tables() { // for packets that match no other flow of the table
		if table == Advertise || table == Tenant {
			continue // among n.neighbors, for IPv6, and n.tenants
		}
		f := flow.Flow{Table: table}
		if Program[table].Miss == flow.Next {
			f.Actions = flow.Do(flow.Goto(table + 1))
		}
		flows = append(flows, f)
	}
	flows = append(flows, n.classify()...)
	flows = append(flows, arp(n)...)
	flows = append(flows, neighbors(n)...)
	flows = append(flows, n.conntrack()...)
	flows = append(flows, n.commit()...)
	flows = append(flows, sctpByPort(n)...)
	flows = append(flows, policyBase(n)...)
	flows = append(flows, n.hairpin()...)
	flows = append(flows, n.toHost()...)
	flows = append(flows, n.toUnowned()...)
	flows = append(flows, n.output()...)
	flows = append(flows, outsideBase(n)...)
	if at.exportsAll {
		flows = append(flows, exportPods(n.PodCIDRs, n.GatewayIPs)...)
	}
	for _, end := range n.Tunnels.Ends {
		flows = append(flows, n.Tunnels.notToTunnel(end)...)
	}
	return flow.Entries{Flows: flows, Meters: append(meters(n.PacketInRate), neighborMeters(n)...)}
}

// meter drops packets beyond a rate in packets a second. It has room for a burst of one second.
func meter(id, rate uint32) flow.Meter { return burstMeter(id, rate, rate) }

// classify marks packets from the host. The host forwards packets of others too, so it may use any source. VLAN tags
// are dropped at every port, because the rest of the program would not see them and would pass them on.
func burstMeter(id, rate, burst uint32) flow.Meter {
	return flow.Meter{ID: id, Flags: ofp.MeterPktps | ofp.MeterBurst,
		Bands: []flow.Band{{Kind: ofp.BandDrop, Rate: rate, Burst: burst}}}
}

// classify marks packets from the host. The host forwards for others and may use any source. VLAN tags are dropped at
// every port, because the rest of the program would not see them and would pass them on.
func (n Node) classify() []flow.Flow {
	flows := []flow.Flow{
		{Table: Classify, Priority: never, Match: flow.All(flow.Tagged())},
		{Table: Classify, Priority: normal, Match: flow.All(flow.InPort(n.GatewayPort), flow.ARP()),
			Actions: flow.Do(flow.Goto(ARP))},
	}
	flows = append(flows, n.each(func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{n.accept(normal, fromGateway, flow.InPort(n.GatewayPort), ip)}
	})...)
	return append(flows, n.forwards()...)
}

// forwards separates packets that the host forwards to Pods of this Node from the host's own packets. A program such as
// kube-proxy may have given forwarded packets the host's address. The host sends forwarded packets to the virtual MAC
// (agent.hostOf), and its own packets to the Pods' MACs.
func (n Node) forwards() (flows []flow.Flow) {
	for _, ip := range n.GatewayIPs {
		for _, cidr := range n.PodCIDRs {
			if ip.Is4() != cidr.Addr().Is4() {
				continue
			}
			f := n.accept(high, fromGateway, flow.InPort(n.GatewayPort), flow.EthDst(InClusterMAC),
				flow.IPSrc(host(ip)), flow.IPDst(cidr.Masked()))
			f.Actions = append(flow.Do(flow.Load(forwarded, 1)), f.Actions...)
			flows = append(flows, f)
		}
		for _, e := range Entries { // clients outside, whose address a program of the host may have translated
			if n.Outside && !e.Own && e.Addr.Is4() == ip.Is4() {
				f := n.accept(high, fromGateway, flow.InPort(n.GatewayPort), flow.IPSrc(host(ip)), flow.IPDst(host(e.Addr)))
				f.Actions = append(flow.Do(flow.Load(forwarded, 1)), f.Actions...)
				flows = append(flows, f)
			}
		}
	}
	return flows
}

func (n Node) accept(priority uint16, from uint64, match ...flow.Cond) flow.Flow {
	actions := flow.Do(flow.Load(source, from))
	if n.Tunnels.Stretched {
		actions = append(actions, keyOf[from]...)
	}
	return flow.Flow{
		Table: Classify, Priority: priority,
		Match:   flow.All(match...),
		Actions: append(actions, flow.Goto(UnSNAT)),
	}
}

// keyOf reads the tunnel's key, depending on the source of the packet. In packets from a Node of this cluster the key
// names the sender for other clusters. In packets from another cluster it names the sender for this cluster. Key 0
// stands for a sender that no rule names.
var keyOf = map[uint64]flow.Actions{
	fromTunnel: flow.Do(flow.Move(tunnelKey, clusterSetID)),
	fromPeer: flow.Do(flow.Load(sender, remote),
		flow.Move(tunnelKey, flow.Bits{Field: sender.Field, First: sender.First, Width: tunnelKey.Width})),
}

// nodeLink makes the flows between this Node and another one of the cluster.
type nodeLink struct {
	node Node
	to   RemoteNode
}

// fromNode admits packets that another Node of this cluster sends through its tunnel to this Node's address. They must
// have addresses of its Pods or of its host.
func (l nodeLink) fromNode(cidr netip.Prefix) []flow.Flow {
	var flows []flow.Flow
	for _, from := range l.to.sources() {
		flows = append(flows, l.node.throughTunnelFrom(host(from), normal, fromTunnel, cidr)...)
	}
	return flows
}

// fromHostOf admits packets of another Node's host with the Node's own addresses.
func (l nodeLink) fromHostOf() []flow.Flow {
	var flows []flow.Flow
	for _, from := range l.to.sources() {
		for _, ip := range l.to.hosts() {
			flows = append(flows, l.node.throughTunnelFrom(host(from), high, fromTunnel, host(ip))...)
		}
	}
	return flows
}

// throughTunnelFrom admits packets of a Node of this cluster with one inner source.
func (n Node) throughTunnelFrom(from netip.Prefix, priority uint16, as uint64, inside netip.Prefix) []flow.Flow {
	return n.acceptTunnel(from, priority, as, flow.EthDstMasked(InClusterMAC, ourMACs), flow.IPSrc(inside))
}

// acceptTunnel admits packets of a tunnel from an address. A packet to an address where no tunnel ends does not come
// from the switch of a Node or of a peer. Packets from an end that BFD watches come through the port for that end.
// Other packets come through the port for all tunnels. The match needs no port, since only packets from tunnel ports
// have an outer source. BFD watches no ends in a range.
func (n Node) acceptTunnel(from netip.Prefix, priority uint16, as uint64, match ...flow.Cond) []flow.Flow {
	match = append([]flow.Cond{flow.TunnelSrc(from)}, match...)
	if !from.IsSingleIP() {
		match = append(match, flow.InPort(n.Tunnels.Port))
	}
	var flows []flow.Flow
	known := false
	for _, end := range n.Tunnels.Ends {
		known = true
		if end.Is4() == from.Addr().Is4() {
			flows = append(flows, n.accept(priority, as, append(slices.Clone(match), flow.TunnelDst(host(end)))...))
		}
	}
	if !known {
		flows = append(flows, n.accept(priority, as, match...))
	}
	return flows
}

// notToTunnel drops packets that look like tunnel packets and go to an address where a tunnel ends. If the host
// masqueraded such a packet, the other end would take it for a packet of this Node. The flow comes after the choice of
// an endpoint, so that a Service cannot bypass it. The userspace datapath does not know the ports of fragments, so it
// drops fragments of requests to any port of this address. The kernel's datapath reassembles fragments first, so it
// drops only packets to the tunnel's port.
func (t Tunnels) notToTunnel(end netip.Addr) []flow.Flow {
	if t.Outer.Protocol == 0 {
		return nil
	}
	drop := func(more ...flow.Cond) flow.Flow {
		return flow.Flow{Table: Route, Priority: never,
			Match: flow.All(append(more, flow.IPProto(t.Outer.Protocol), flow.IPDst(host(end)))...)}
	}
	if t.Outer.Port == 0 {
		return []flow.Flow{drop()}
	}
	return []flow.Flow{drop(flow.UDPDst(t.Outer.Port)), drop(flow.Fragment(), flow.CTState("-rpl+trk"))}
}

// conntrack looks up every connection. Packets of known connections, and ICMP errors about them, skip the choice of an
// endpoint.
func (n Node) conntrack() []flow.Flow {
	flows := []flow.Flow{
		// This flow is for the agent's refusal of a connection, in any state of connection tracking. The refusal's
		// translation has been reversed already.
		{Table: ConntrackState, Priority: never, Match: flow.All(generated.Is(1)), Actions: flow.Do(flow.Goto(Route))},
		{Table: ConntrackState, Priority: last, Actions: flow.Do(flow.Goto(Exports))},
	}
	return append(flows, n.each(func(ip flow.Cond) []flow.Flow {
		state := func(priority uint16, s string, actions ...ofp.Action) flow.Flow {
			return flow.Flow{Table: ConntrackState, Priority: priority, Match: flow.All(ip, flow.CTState(s)),
				Actions: actions}
		}
		return []flow.Flow{
			tracking{}.flow(Conntrack, normal,
				flow.Do(tracking{}.ct(ofp.CT{NAT: &ofp.NAT{}, Table: ConntrackState})), ip),
			state(high, "+inv+trk"),
			state(normal, "-new+est+trk", flow.Goto(Route)),
			state(low, "+rel+trk", flow.Goto(Route)),
		}
	})...)
}

// commit remembers connections that table Service has not remembered. For connections that Service has remembered, it
// adds that policies have allowed them. In both cases it stores the rules that judged the connection. No later table
// depends on ct_state, so commit takes no recirculation.
func (n Node) commit() []flow.Flow {
	flows := n.each(tracking{}.remember)
	flows = append(flows, flow.Flow{
		// The agent's refusal of a connection makes no new connection.
		Table: Commit, Priority: high, Match: flow.All(generated.Is(1)), Actions: flow.Do(flow.Goto(SNAT)),
	})
	return append(flows, n.withoutService()...)
}

// remember returns the flows of commit for a version of IP.
func (t tracking) remember(ip flow.Cond) []flow.Flow {
	commit := func(exec ofp.Action, match ...flow.Cond) flow.Flow {
		return t.flow(Commit, normal, flow.Do(
			t.ct(ofp.CT{Flags: ofp.CTCommit, Table: ofp.CTNoTable,
				Exec: flow.Do(exec, flow.Move(way, markWay), flow.Move(untranslated, markUntranslated),
					flow.Move(ingressRule, labelIngress), flow.Move(egressRule, labelEgress), flow.Move(sender, labelSender),
					flow.Move(receiver, labelReceiver))}),
			flow.Goto(SNAT),
		), match...)
	}
	return []flow.Flow{
		commit(flow.Move(source, markSource), ip, flow.CTState("+new+trk"), committed.Is(0)),
		commit(flow.Load(markPending, 0), ip, committed.Is(1)),
	}
}

// withoutService keeps packets to ClusterIPs that no Service has translated out of connection tracking. If such a
// connection were tracked, it would stay untranslated after its Service is created, for as long as the client sends.
func (n Node) withoutService() []flow.Flow {
	var flows []flow.Flow
	for _, cidr := range n.ServiceCIDRs {
		flows = append(flows, flow.Flow{
			Table: Commit, Priority: differ,
			Match:   flow.All(flow.IPDst(cidr.Masked()), flow.CTState("+new+trk"), committed.Is(0)),
			Actions: flow.Do(flow.Goto(SNAT)),
		})
	}
	return flows
}

// hairpin makes the Service address the source of connections that leave through the port they came from. Otherwise the
// receiver would see its own address, or its answer would not go through the switch. An established connection is
// "committed" again, which only repeats its translation.
func (n Node) hairpin() []flow.Flow {
	var flows []flow.Flow
	for _, vip := range n.vips() {
		flows = append(flows,
			flow.Flow{
				Table: SNAT, Priority: normal,
				Match:   flow.All(versionOf(vip), snat.Is(snatHairpin)),
				Actions: flow.Do(translateSource(vip)),
			},
			flow.Flow{
				Table: UnSNAT, Priority: normal,
				Match:   flow.All(flow.IPDst(host(vip))),
				Actions: flow.Do(restoreSource()),
			})
	}
	return flows
}

// translateSource gives a connection a source address that replies come back to.
func translateSource(to netip.Addr) ofp.Action {
	return flow.CT(ofp.CT{Flags: ofp.CTCommit, Zone: snatZone, Table: Output,
		NAT: &ofp.NAT{Flags: ofp.NATSrc, IPMin: string(to.AsSlice())}})
}

// restoreSource undoes translateSource for a reply.
func restoreSource() ofp.Action {
	return flow.CT(ofp.CT{Zone: snatZone, Table: Conntrack, NAT: &ofp.NAT{}})
}

// toHost sends packets for the host, and for the world behind it, to the gateway port.
func (n Node) toHost() []flow.Flow {
	var flows []flow.Flow
	for _, ip := range n.GatewayIPs {
		flows = append(flows,
			n.toGateway(normal, 0, flow.IPDst(host(ip))),
			// The host's own connection to a Service whose endpoint is the host.
			n.toGateway(high, snatHairpin, flow.IPDst(host(ip)), source.Is(fromGateway), flow.CTState("-rpl+trk"),
				markService.Is(1)),
		)
	}
	return append(flows, n.each(func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{
			// A Pod to the world; the host masquerades it.
			n.toGateway(last, 0, ip, source.Is(fromPod)),
			// Replies to an address of the host that is not the gateway port's.
			n.toGateway(last, 0, ip, flow.CTState("+rpl+trk")),
			n.toGateway(last, 0, ip, generated.Is(1)),
			// These flows are for connections to a Service from the host or from another cluster, if the endpoint is not a Pod:
			// the host, the API server, or a machine outside. They translate the client's address, since such an endpoint would
			// otherwise answer the client directly. They match only connections to Services. Otherwise packets without a Pod or
			// a route would loop between host and switch.
			n.toGateway(last, snatHairpin, ip, source.Is(fromGateway), flow.CTState("-rpl+trk"), markService.Is(1)),
			n.toGateway(last, snatHairpin, ip, source.Is(fromPeer), flow.CTState("-rpl+trk"), markService.Is(1)),
		}
	})...)
}

// toGateway routes to the gateway port. Every packet to the host comes from the MAC of the host's next hop, even the
// host's own packets.
func (n Node) toGateway(priority uint16, translate uint64, match ...flow.Cond) flow.Flow {
	actions := flow.Do(
		flow.SetEthSrc(InClusterMAC),
		flow.SetEthDst(n.GatewayMAC),
		flow.Load(outPort, uint64(n.GatewayPort)),
	)
	if translate != 0 {
		actions = append(actions, flow.Load(snat, translate))
	}
	return flow.Flow{Table: Route, Priority: priority, Match: flow.All(match...),
		Actions: append(actions, flow.Goto(Commit))}
}

// unroutable are the addresses whose packets the host must not get: "this network", loopback, multicast, reserved and
// broadcast (RFC 6890). The host would accept some of them itself, such as 127.0.0.1 if a program has turned on
// route_localnet.
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// unroutable6 are the same for IPv6: the unspecified address and loopback, IPv4 addresses in the form of IPv6,
// link-local addresses, and multicast (RFC 6890).
var unroutable6 = []netip.Prefix{
	netip.MustParsePrefix("::/127"),
	netip.MustParsePrefix("::ffff:0:0/96"),
	linkLocal,
	netip.MustParsePrefix("ff00::/8"),
}

// Unroutable reports whether packets to an address are never routed.
func (n Node) Unroutable(ip netip.Addr) bool {
	return slices.ContainsFunc(n.unroutable(), func(p netip.Prefix) bool { return p.Contains(ip) })
}

// unroutable returns the ranges of unroutable addresses of a version of IP. It includes the Service address and
// entries, which only translated connections may use.
func (n Node) unroutable() (out []netip.Prefix) {
	if n.Families.Has4() {
		out = append(out, unroutable...)
		if n.ServiceVIP.IsValid() {
			out = append(out, host(n.ServiceVIP))
		}
		if n.Outside { // SwitchRange6 has EntryRange6
			out = append(out, EntryRange)
		}
	}
	if n.Families.Has6() {
		out = append(append(out, unroutable6...), family.SwitchRange6)
	}
	return out
}

// toUnowned drops three kinds of packets: to addresses in this Node's podCIDRs without a Pod, to the Service address
// (serviceVIP) outside of a connection, and to addresses that are never routed. The host would send the first two kinds
// back to the switch.
func (n Node) toUnowned() []flow.Flow {
	var flows []flow.Flow
	for _, r := range slices.Concat(n.PodCIDRs, n.unroutable()) {
		priority := low
		if translated(n.Tunnels.PeerEnd, r) { // behind the routes of refusals to other clusters' Gateways
			priority = closed
		}
		flows = append(flows, flow.Flow{Table: Route, Priority: priority, Match: flow.All(flow.IPDst(r.Masked()))})
	}
	return flows
}

// translated reports whether a range contains sources of requests that Gateways translate. end is the address of a
// tunnel's end, for its version of IP.
func translated(end netip.Addr, r netip.Prefix) bool {
	return end.IsValid() && (r.Contains(peering.Source(end, false)) || r.Contains(peering.Source(end, true)))
}

// output sends a packet. A switch never sends a packet back through the port it came from unless the action is IN_PORT.
func (n Node) output() []flow.Flow {
	flows := []flow.Flow{
		{Table: Output, Priority: low, Actions: flow.Do(flow.OutputReg(outPort))},
		back(n.GatewayPort),
	}
	if n.Tunnels.Port != 0 {
		flows = append(flows, n.outputTunnel()...)
	}
	return flows
}

// outputTunnel decrements the TTL of packets to another Node. A flow drops packets whose TTL ends. Otherwise dec_ttl
// would send each of them to the controllers, without a meter.
func (n Node) outputTunnel() []flow.Flow {
	toTunnel := outPort.Is(uint64(n.Tunnels.Port))
	return n.each(func(ip flow.Cond) []flow.Flow {
		flows := []flow.Flow{
			{Table: Output, Priority: normal, Match: flow.All(ip, toTunnel),
				Actions: flow.Do(flow.DecTTL(), flow.OutputReg(outPort))},
			{Table: Output, Priority: high, Match: flow.All(ip, flow.InPort(n.Tunnels.Port), toTunnel),
				Actions: flow.Do(flow.DecTTL(), flow.ToInPort())},
		}
		for ttl := range uint8(2) {
			flows = append(flows, flow.Flow{Table: Output, Priority: never, Match: flow.All(ip, toTunnel, flow.TTL(ttl))})
		}
		return flows
	})
}

// back returns the flow for packets that leave through the port they came from.
func back(port ofp.Port) flow.Flow {
	return flow.Flow{
		Table: Output, Priority: high,
		Match:   flow.All(flow.InPort(port), outPort.Is(uint64(port))),
		Actions: flow.Do(flow.ToInPort()),
	}
}

// claims are the ranges of the Node's Pods.
func (r RemoteNode) claims() []claim {
	var out []claim
	for _, cidr := range r.PodCIDRs {
		out = append(out, route(cidr))
	}
	return out
}

// remoteFlows returns the routes to the Pods of another Node, and the flows that admit its packets. Packets from its
// tunnel are admitted in each traffic mode: its agent may have another mode for a while, and Gateways always use the
// tunnel. If several owners need a flow, such as the flow for a tunnel's end, each of them has the same flow.
func (b *base) remoteFlows(remote RemoteNode, n Node, at role, r *derive.Reader) (flow.Entries, []problem.Problem) {
	if n.Tunnels.Port == 0 {
		return flow.Entries{}, nil
	}
	object := problem.Object{Kind: "Node", Name: remote.Name}
	var e flow.Entries
	var problems []problem.Problem
	link := nodeLink{n, remote}
	for _, c := range remote.claims() {
		if refused := b.refused(r, remoteNode(derive.Name(remote.Name)), object, []claim{c}); refused != nil {
			problems = append(problems, refused...)
			continue
		}
		e.Flows = append(e.Flows, link.fromNode(c.to)...)
		if remote.DirectTo(c.to.Addr()) {
			e.Flows = append(e.Flows, link.direct(c.to)...)
		} else {
			e.Flows = append(e.Flows, n.throughTunnel(normal, InClusterMAC, remote.Address, 0, flow.IPDst(c.to)))
			e.Flows = append(e.Flows, link.namingSender(c.to))
			e.Flows = append(e.Flows, link.returned(c.to)...)
		}
		if at.exportsAll {
			e.Flows = append(e.Flows, exportPods([]netip.Prefix{c.to}, remote.GatewayIPs)...)
			e.Flows = append(e.Flows, remote.transitTo(c)...)
		}
	}
	if len(e.Flows) == 0 {
		return e, problems // another Node has its ranges
	}
	e.Flows = append(e.Flows, link.fromHostOf()...)
	for _, end := range remote.sources() {
		e.Flows = append(e.Flows, n.Tunnels.notToTunnel(end)...)
	}
	for _, end := range remote.Hosts { // where tunnels would end in plain text
		e.Flows = append(e.Flows, n.Tunnels.notToTunnel(end)...)
	}
	return e, problems
}

// returned routes replies that the host has sent back to the switch, to Pods of another Node. The connections came
// through the gateway port, since the other Node routes directly, or has done so. With Outside, the replies leave
// through the gateway port too. But if the other Node now uses tunnels, the host sends them back to the switch. Replies
// that the host translates do not have a Pod's address as source.
func (l nodeLink) returned(cidr netip.Prefix) (flows []flow.Flow) {
	if !l.node.Outside {
		return nil
	}
	for _, own := range l.node.PodCIDRs {
		if own.Addr().Is4() == cidr.Addr().Is4() {
			flows = append(flows, l.node.throughTunnel(returned, InClusterMAC, l.to.Address, 0, source.Is(fromGateway),
				flow.CTState("+rpl+trk"), flow.IPSrc(own.Masked()), flow.IPDst(cidr)))
		}
	}
	return flows
}

// namingSender routes packets from Pods of this Node to Pods of another one, and writes the number of the sender into
// the tunnel's key. For packets from other clusters, a Gateway keeps the key.
func (l nodeLink) namingSender(cidr netip.Prefix) flow.Flow {
	f := l.node.throughTunnel(differ, InClusterMAC, l.to.Address, 0, flow.IPDst(cidr), source.Is(fromPod))
	f.Actions = append(flow.Do(flow.Move(senderKey, tunnelKey)), f.Actions...)
	return f
}

// throughTunnel routes to another tunnel end. The MAC shows the far side what kind of packet it is.
func (n Node) throughTunnel(priority uint16, mac ofp.MAC, to netip.Addr, translate uint64,
	match ...flow.Cond) flow.Flow {
	actions := append(flow.Do(flow.SetEthSrc(n.GatewayMAC), flow.SetEthDst(mac)), n.tunnelTo(to)...)
	if translate != 0 {
		actions = append(actions, flow.Load(snat, translate))
	}
	return flow.Flow{Table: Route, Priority: priority, Match: flow.All(match...),
		Actions: append(actions, flow.Goto(Commit))}
}

// tunnelTo sends a packet to another tunnel end. A packet that came from a tunnel still has the outer addresses of that
// tunnel. Open vSwitch prefers addresses of IPv4, and the kernel's datapath refuses a packet with addresses of both
// versions.
func (n Node) tunnelTo(to netip.Addr) flow.Actions {
	from, none, other := n.Tunnels.Source, netip.IPv4Unspecified(), netip.IPv6Unspecified()
	cameBy6 := n.Tunnels.PeerEnd.Is6() || slices.ContainsFunc(n.Tunnels.Ends, netip.Addr.Is6)
	if !to.Is4() {
		none, other, cameBy6 = other, none, true
	}
	var actions flow.Actions
	if cameBy6 {
		actions = flow.Do(flow.SetTunnelSrc(other), flow.SetTunnelDst(other))
	}
	if !from.IsValid() || from.Is4() != to.Is4() {
		from = none
	}
	return append(actions, flow.Do(flow.SetTunnelSrc(from), flow.SetTunnelDst(to),
		flow.Load(outPort, uint64(n.Tunnels.Port)))...)
}
