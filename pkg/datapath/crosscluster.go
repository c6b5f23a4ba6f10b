package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// sourcesOf returns the sources of requests that a Gateway translates, of the versions of IP that this Node serves. end
// is where tunnels to that Gateway end.
func (n Node) sourcesOf(end netip.Addr) (out []netip.Addr) {
	if n.Families.Has4() {
		out = append(out, peering.Source(end, false))
	}
	if n.Families.Has6() {
		out = append(out, peering.Source(end, true))
	}
	return out
}

// claims returns the ranges and the gateways of a peer. A Gateway has different flows for requests and replies. On
// other Nodes the ranges are routes, like the ranges of Nodes.
func (at role) claims(peer peering.Peer, n Node) []claim {
	if at.part == peering.None || len(peer.Ends) == 0 {
		return nil
	}
	var out []claim
	for _, cidr := range peer.CIDRs {
		out = append(out, claim{kind: claimCluster, to: cidr.Masked()})
		if !at.direct(peer) {
			out = append(out, route(cidr))
		}
	}
	for _, w := range peer.Gateways {
		for _, ip := range n.sourcesOf(w.End()) {
			out = append(out, claim{kind: claimCluster, to: host(ip)})
		}
	}
	return out
}

// clusterTables are the tables about other clusters.
type clusterTables struct {
	base      *base
	tenants   *tenantTables
	ranges    *derive.Index[podRange, derive.Name, RemoteNode]
	lengths   *derive.Table[derive.Name, []int]
	wayGroups *derive.Table[derive.Name, []groupID]
	groups    *derive.Numbers[groupID] // of Services has the numbers of wayGroups
	gateway   *derive.Table[derive.Name, flow.Entries]
	peers     *derive.Table[derive.Name, flow.Entries]
	exports   *derive.Table[derive.Object, flow.Entries]
}

// newClusterTables adds the tables that other features read.
func newClusterTables(e *derive.Engine, b *base, tenants *tenantTables) *clusterTables {
	t, self := &clusterTables{base: b, tenants: tenants}, derive.KeysOf(b.Node)
	t.ranges = derive.NewIndex(b.RemoteNodes, "pod-range",
		func(_ derive.Name, n RemoteNode) []podRange { return podRanges(n.PodCIDRs) })
	t.lengths = derive.NewTable(e, "pod-range-lengths", t.lengthsOf, self)
	t.wayGroups = derive.NewTable(e, "way-groups", t.wayGroupsOf, self)
	return t
}

// addFlows adds the tables of flows.
func (t *clusterTables) addFlows(e *derive.Engine) {
	t.gateway = derive.NewTable(e, "gateway-flows", t.gatewayFlows, derive.KeysOf(t.base.Node))
	t.peers = derive.NewTable(e, "peer-flows", t.peerFlows, derive.KeysOf(t.base.Peering.Peers))
	t.exports = derive.NewTable(e, "export-flows", t.exportFlows, derive.KeysOf(t.base.Exported))
}

// owned lists the tables of flows.
func (t *clusterTables) owned() []owned {
	return []owned{
		entriesOf(t.gateway, func(derive.Name) flow.Owner { return GatewayOwner() }),
		entriesOf(t.peers, func(n derive.Name) flow.Owner { return PeerOwner(string(n)) }),
		entriesOf(t.exports, func(o derive.Object) flow.Owner { return ExportOwner(o.Namespace, o.Name) }),
	}
}

// gatewayFlows returns the flows that a Node needs for all peers together.
func (t *clusterTables) gatewayFlows(_ derive.Name, r *derive.Reader) (flow.Entries, []problem.Problem) {
	at, _ := derive.Get(r, t.base.role, Self)
	e := flow.Entries{Flows: t.neverInPlainText(r)}
	if at.part == peering.None {
		return e, nil
	}
	n := t.base.self(r)
	e.Flows = append(e.Flows, n.each(beginAgain)...)
	if !at.sends {
		e.Groups = t.ownWays(r, at).groups()
	}
	if !at.isGateway() {
		return e, nil
	}
	flows := append(e.Flows, n.each(exportsBase)...)
	for _, g := range at.others { // packets that another Gateway has let through
		if port := t.wayPort(r, g.InternalIP); port != 0 {
			flows = append(flows, n.each(func(ip flow.Cond) []flow.Flow {
				return []flow.Flow{export(high, ip, way.Is(uint64(port)))}
			})...)
		}
	}
	if at.own.IsValid() {
		flows = append(flows, crossCluster{node: n, at: at}.translate()...)
	}
	e.Flows, e.Meters = flows, probeMeters()
	return e, nil
}

// neverInPlainText drops packets to ranges of clusters that may be reached only with encryption, if no other flow sends
// these packets. Otherwise the host would send them through its default route in plain text. There are two such cases:
// the cluster's key is missing, or a server answers to a former address of its client's Gateway.
func (t *clusterTables) neverInPlainText(r *derive.Reader) (flows []flow.Flow) {
	p, _ := derive.Get(r, t.base.Peering.Part, Self)
	var ranges []netip.Prefix
	for _, c := range p.Closed {
		for _, cidr := range c.CIDRs {
			if slices.Contains(ranges, cidr) { // two clusters have it
				continue
			}
			ranges = append(ranges, cidr)
			flows = append(flows, flow.Flow{Table: Route, Priority: closed, Match: flow.All(flow.IPDst(cidr))})
		}
	}
	return flows
}

// peerFlows are the ways between this cluster and a peer.
func (t *clusterTables) peerFlows(id derive.Name, r *derive.Reader) (flow.Entries, []problem.Problem) {
	at, _ := derive.Get(r, t.base.role, Self)
	if at.part == peering.None {
		return flow.Entries{}, nil
	}
	peer, _ := derive.Get(r, t.base.Peering.Peers, id)
	object := problem.Object{Kind: "cluster", Name: peer.ClusterID}
	if len(peer.Ends) == 0 {
		return flow.Entries{}, []problem.Problem{{Object: object, Reason: reasonInvalidGatewayIP, Message: fmt.Sprintf(
			"cluster %s ignored: there is no address that a tunnel to it can end at: correct "+
				"the addresses of its Gateways", peer.ClusterID)}}
	}
	if problems := t.base.refused(r, peerCluster(id), object, at.claims(peer, t.base.self(r))); problems != nil {
		return flow.Entries{}, problems
	}
	c := crossCluster{node: t.base.self(r), at: at, gateways: t.otherGateways(r, at, peer)}
	var e flow.Entries
	if at.takes(peer) && peer.Base.IsValid() && peer.Base != at.own {
		c.node.Tunnels.PeerSource, c.at.own = peer.Base, peer.Base
		e.Flows = c.translate(peer.CIDRs...)
	}
	c.nodes = c.node
	ends := c.node.Tunnels.Ends
	if at.takes(peer) && c.at.own.IsValid() && len(ends) > 0 && !slices.Contains(ends, c.at.own) {
		c.node.Tunnels.Ends = append(slices.Clone(ends), c.at.own) // peers send to it
		if !c.node.Tunnels.Encrypted {
			c.nodes = c.node
		}
	}
	c.ways = t.waysTo(r, at, peer)
	c.portOf = func(end netip.Addr) ofp.Port { return t.wayPort(r, end) }
	if at.direct(peer) {
		e.Groups = c.ways.groups() // on other Nodes all peers share them
	}
	for _, cidr := range peer.CIDRs {
		e.Flows = append(e.Flows, c.toPeer(peer, cidr.Masked())...)
	}
	for _, w := range peer.Gateways {
		for _, ip := range c.node.sourcesOf(w.End()) {
			e.Flows = append(e.Flows, c.reply(peer, w.End(), flow.IPDst(host(ip)))...)
		}
	}
	e.Flows = append(e.Flows, c.transit(peer)...)
	e.Flows = append(e.Flows, c.admit(peer)...)
	e.Flows = append(e.Flows, c.probes(peer)...)
	tenants, ps := t.tenants.peer(r, c, peer)
	e.Flows = append(e.Flows, tenants...)
	for _, w := range peer.Gateways {
		e.Flows = append(e.Flows, c.node.Tunnels.notToTunnel(w.End())...)
	}
	return e, ps
}

// crossCluster is this Node's part in traffic with a peer.
type crossCluster struct {
	node     Node // this one, as the peer sees it
	nodes    Node // this one, as the other Nodes of this cluster see it
	at       role // in which own is the address that the peer has
	ways     ways
	gateways []otherGateway
	portOf   func(end netip.Addr) ofp.Port
}

// otherGateway is a Gateway of this cluster on another Node through which packets of a peer may come.
type otherGateway struct {
	way  wayTo
	from []netip.Prefix // sources of its tunnels
}

// otherGateways returns the other Gateways of this cluster through which packets of a peer may come. If two Nodes have
// the same address for a moment, it returns only one of them. So all tunnel sources differ.
func (t *clusterTables) otherGateways(r *derive.Reader, at role, peer peering.Peer) []otherGateway {
	var out []otherGateway
	taken := map[netip.Prefix]bool{}
	for _, g := range at.others {
		isEnd := func(e peering.End) bool { return e.Addr == g.InternalIP }
		if !peer.Active && !slices.ContainsFunc(peer.Ends, isEnd) {
			continue // the peer supports the first alone
		}
		remote, _ := derive.Get(r, t.base.RemoteNodes, derive.Name(g.Name))
		to := wayTo{end: g.InternalIP, port: t.wayPort(r, g.InternalIP)}
		from := slices.DeleteFunc(gatewayEnds(g.InternalIP, remote), func(end netip.Prefix) bool { return taken[end] })
		for _, end := range from {
			taken[end] = true
		}
		out = append(out, otherGateway{to, from})
	}
	return out
}

// gatewayEnds are the addresses that the tunnels of a Gateway of this cluster come from.
func gatewayEnds(internal netip.Addr, gateway RemoteNode) []netip.Prefix {
	var ends []netip.Prefix
	for _, a := range append([]netip.Addr{internal}, gateway.sources()...) {
		if a.IsValid() && !slices.Contains(ends, host(a)) {
			ends = append(ends, host(a))
		}
	}
	return ends
}

// admit admits packets of a peer: requests from the addresses of its gateways, and requests and replies from its
// ranges. A Gateway accepts them from the ends of the peer's tunnels. Every Node accepts them from the other Gateways
// of this cluster. The outer destination must be an address where tunnels end.
func (c crossCluster) admit(peer peering.Peer) []flow.Flow {
	var flows []flow.Flow
	from := func(priority uint16, inside netip.Prefix) []flow.Flow {
		return append(c.fromGateways(priority, inside, flow.EthDstMasked(InClusterMAC, ourMACs)),
			c.fromPeer(peer, priority, inside, flow.EthDst(CrossClusterMAC))...)
	}
	for _, cidr := range peer.CIDRs {
		admitted := from(normal, cidr.Masked())
		if transits(peer) && slices.Contains(peer.Pods, cidr) {
			admitted = fromPods(admitted)
		}
		flows = append(flows, admitted...)
	}
	for _, w := range peer.Gateways {
		for _, ip := range c.node.sourcesOf(w.End()) {
			flows = append(flows, from(high, host(ip))...)
		}
	}
	return flows
}

// fromGateways admits a peer's packets with one inner source from this cluster's other Gateways.
func (c crossCluster) fromGateways(priority uint16, inside netip.Prefix, mac flow.Cond) (flows []flow.Flow) {
	for _, g := range c.gateways {
		for _, end := range g.from {
			flows = append(flows, cameBy(g.way.port,
				c.nodes.acceptTunnel(end, priority, fromPeer, mac, flow.IPSrc(inside)))...)
		}
	}
	return flows
}

// fromPeer admits packets with one inner source from the peer's own tunnels, on a Gateway.
func (c crossCluster) fromPeer(peer peering.Peer, priority uint16, inside netip.Prefix, mac flow.Cond) []flow.Flow {
	if !c.at.takes(peer) {
		return nil
	}
	var flows []flow.Flow
	here := c.node
	if peer.Encrypted() {
		here.Tunnels.Ends = []netip.Addr{c.at.own} // inside: plain text arrives at another address
	}
	for _, end := range peer.TunnelSources() {
		by := ofp.Port(0)
		if end.IsSingleIP() {
			by = c.portOf(end.Addr())
		}
		flows = append(flows, cameBy(by, here.acceptTunnel(end, priority, fromPeer, mac, flow.IPSrc(inside)))...)
	}
	return flows
}

// toPeer sends requests for the peer's Services, and for its Pods if they are shared, to a Gateway of this cluster,
// which sends them to a gateway of the peer. The MAC shows the far side that the packet comes from another cluster. On
// the Gateway the source becomes the Gateway's address, so that the peer needs no facts about this cluster's Pods. For
// the peer's policies the tunnel's key names the sender.
func (c crossCluster) toPeer(peer peering.Peer, cidr netip.Prefix) []flow.Flow {
	if c.at.direct(peer) {
		flows := c.ways.send(sentRequest, snatCross, flow.IPDst(cidr), flow.CTState("-rpl+trk"))
		if first, ok := c.before(peer); ok {
			old := first.send(sentRequest, 0, flow.IPDst(cidr), flow.CTState("+est-rpl+trk"), markWay.Is(0))
			old[0].Priority = same
			flows = append(flows, old...)
		}
		for _, g := range c.gateways { // from before this Node was a Gateway, or was one again
			if port := g.way.port; port != 0 {
				back := ways{node: c.node, list: []wayTo{g.way}}
				hasWay := []flow.Cond{flow.IPDst(cidr), flow.CTState("+est-rpl+trk"), markWay.Is(uint64(port))}
				old := back.send(sentRequest, 0, hasWay...)
				old[0].Priority = differ
				flows = append(flows, old...)
			}
		}
		return flows
	}
	return append(c.ways.send(sentRequest, 0, flow.IPDst(cidr)), c.untilTheyEnd(peer, cidr)...)
}

// untilTheyEnd is for a Gateway that joins or leaves. It keeps existing connections on the Gateway's own ways, and
// sends new connections through other Gateways.
func (c crossCluster) untilTheyEnd(peer peering.Peer, cidr netip.Prefix) (flows []flow.Flow) {
	if !c.at.takes(peer) {
		return nil
	}
	own := ways{node: c.node}
	own.node.Tunnels.Source = own.node.Tunnels.PeerSource
	if peer.Base.IsValid() {
		own.node.Tunnels.Source = peer.Base
	}
	gateways := peer.Gateways
	if !peer.Active {
		gateways = gateways[:min(1, len(gateways))]
	}
	for _, w := range gateways {
		port := c.portOf(w.End())
		if port == 0 {
			continue
		}
		own.list = []wayTo{{end: w.End(), port: port}}
		old := own.send(sentRequest, snatCross, flow.IPDst(cidr), flow.CTState("+est-rpl+trk"), markWay.Is(uint64(port)))
		old[0].Priority = differ
		flows = append(flows, old...)
	}
	return flows
}

// before returns the way of connections without a recorded way. These connections began before this Node became a
// Gateway, when the oldest Gateway was the only one. So they use the oldest Gateway. All other connections have a
// recorded way, unless the peer's tunnels come from addresses that BFD cannot watch.
func (c crossCluster) before(peer peering.Peer) (ways, bool) {
	unwatched := slices.ContainsFunc(peer.TunnelSources(),
		func(s netip.Prefix) bool { return !s.IsSingleIP() || c.portOf(s.Addr()) == 0 })
	if !c.at.later || unwatched {
		return ways{}, false
	}
	return ways{node: c.node, list: []wayTo{{end: c.at.others[0].InternalIP}}}, true
}

// reply sends answers to a peer's requests back along their path. On a Gateway, the path leads to the peer's gateway
// that sent the request, even if new requests use another one. If another Gateway of this cluster passed the request
// on, the path leads to that Gateway. Rejections from the agent take the same path. to matches the source of the
// requests.
func (c crossCluster) reply(peer peering.Peer, gateway netip.Addr, to flow.Cond) []flow.Flow {
	if !c.at.takes(peer) {
		return append(c.ways.send(sentReply, 0, to, flow.CTState("+rpl+trk")),
			c.ways.send(sentRefusal, 0, to, generated.Is(1))...)
	}
	back := ways{node: c.node, list: []wayTo{{end: gateway}}}
	back.node.Tunnels.Source = back.node.Tunnels.PeerSource
	flows := append(back.send(sentReply, 0, to, flow.CTState("+rpl+trk")),
		back.send(sentRefusal, 0, to, generated.Is(1))...)
	if first, ok := c.before(peer); ok {
		old := first.send(sentReply, 0, to, flow.CTState("+rpl+trk"), markWay.Is(0))
		old[0].Priority = differ
		flows = append(flows, old...)
		// If a policy rejects a connection, connection tracking has no way for it. The endpoint may have been chosen on this
		// Node.
		flows = append(flows, back.node.throughTunnel(same, CrossClusterMAC, gateway, 0,
			to, generated.Is(1), way.Is(uint64(c.portOf(gateway)))))
	}
	for _, g := range c.gateways {
		if g.way.port == 0 {
			continue // the way of the requests is unknown
		}
		flows = append(flows,
			c.node.throughTunnel(differ, CrossClusterMAC, g.way.end, 0,
				to, flow.CTState("+rpl+trk"), markWay.Is(uint64(g.way.port))),
			c.node.throughTunnel(same, CrossClusterMAC, g.way.end, 0,
				to, generated.Is(1), way.Is(uint64(g.way.port))))
	}
	return flows
}

// translate changes the source of requests to peers to the Gateway's address. For some ranges of a peer, it uses the
// address that this Node has for that peer. It also reverses the translation in replies, which come from peers. The
// host may use the same address, but not for connections with peers.
func (c crossCluster) translate(to ...netip.Prefix) (flows []flow.Flow) {
	for _, own := range c.node.sourcesOf(c.at.own) {
		request := func(priority uint16, more ...flow.Cond) {
			flows = append(flows, flow.Flow{
				Table: SNAT, Priority: priority,
				Match:   flow.All(append(more, versionOf(own), snat.Is(snatCross))...),
				Actions: flow.Do(translateSource(own)),
			})
		}
		if len(to) == 0 {
			request(normal)
		}
		for _, cidr := range to {
			if cidr.Addr().Is4() == own.Is4() {
				request(high, flow.IPDst(cidr.Masked()))
			}
		}
		flows = append(flows, flow.Flow{
			Table: UnSNAT, Priority: normal,
			Match:   flow.All(source.Is(fromPeer), flow.IPDst(host(own))),
			Actions: flow.Do(restoreSource()),
		})
	}
	return flows
}
