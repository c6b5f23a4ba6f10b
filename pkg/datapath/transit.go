package datapath

import (
	"slices"

	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Connections between Pods need no translation if their clusters have each other's ranges. Only the two Nodes of a
// connection then track it. Gateways pass its packets on without looking them up, each through any way that is up. So
// it survives the loss of a Gateway. A Gateway that sees only one direction does not treat it as invalid.
// docs/design/0009-client-addresses.md has the details.
//
// The client's Node decides once for a connection, and remembers the decision (markUntranslated). So a change of the
// clusters' agreement concerns only new connections. TransitMAC carries the decision to the Node's Gateways. Between
// clusters the source's range shows it. Gateways and the servers' Nodes accept such packets from all peers whose Pods
// this cluster reaches, even if this cluster translates its own packets. The reason: a peer may have decided before
// this cluster changed its setting.

// TransitMAC is the destination MAC, within a cluster, of packets that a Gateway passes on to a peer unchanged.
var TransitMAC = ofp.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xf1}

// transits reports whether packets to and from a peer's Pods may be untranslated.
func transits(peer peering.Peer) bool { return peer.Active && len(peer.Pods) > 0 }

// fromPods changes flows that match a source in a range of a peer's Pods, so that they mark the packet as untranslated.
// Packets to Pods have such a source only if they are untranslated.
func fromPods(flows []flow.Flow) []flow.Flow {
	for i := range flows {
		flows[i].Actions = append(flow.Do(flow.Load(untranslated, 1)), flows[i].Actions...)
	}
	return flows
}

// transit are the flows for untranslated packets to a peer's Pods.
func (c crossCluster) transit(peer peering.Peer) []flow.Flow {
	if !transits(peer) {
		return nil
	}
	mac := TransitMAC
	if c.at.direct(peer) {
		mac = CrossClusterMAC
	}
	var flows []flow.Flow
	for _, pods := range peer.Pods {
		to := func(priority uint16, remember bool, match ...flow.Cond) {
			flows = append(flows, c.ways.asItIs(priority, mac, remember, append(match, flow.IPDst(pods.Masked()))...))
		}
		// A sender that uses the address of a peer's Pod answers a packet that came untranslated.
		to(high, false, flow.CTState("+rpl+trk"))
		to(high, false, generated.Is(1))
		to(high, true, flow.CTState("-rpl+trk"), markUntranslated.Is(1))
		if slices.Contains(peer.Kept, pods) {
			to(same, true, flow.CTState("+new-rpl+trk"), source.Is(fromPod))
		}
		if c.at.direct(peer) {
			to(normal, false, flow.CTState("-trk"))
			flows = append(flows, flow.Flow{
				Table: UnSNAT, Priority: high,
				Match:   flow.All(source.Is(fromTunnel), flow.EthDst(TransitMAC), flow.IPDst(pods.Masked())),
				Actions: flow.Do(flow.Goto(Route)),
			})
		}
	}
	return flows
}

// transitTo returns the flows of a Gateway for untranslated packets of peers to Pods of another Node, in its range. The
// address of the Node's host is in that range too, but it has no such flow. If peers may send packets to it, these are
// translated.
func (r RemoteNode) transitTo(c claim) []flow.Flow {
	pass := func(priority uint16, to ofp.Table, dst flow.Cond) flow.Flow {
		return flow.Flow{Table: UnSNAT, Priority: priority, Match: flow.All(source.Is(fromPeer), untranslated.Is(1), dst),
			Actions: flow.Do(flow.Goto(to))}
	}
	flows := []flow.Flow{pass(high, Route, flow.IPDst(c.to))}
	for _, ip := range r.GatewayIPs {
		if c.to.Contains(ip) {
			flows = append(flows, pass(never, Conntrack, flow.IPDst(host(ip))))
		}
	}
	return flows
}

// asItIs sends each packet unchanged over any of the ways, since no Node on them tracks the connection.
func (w ways) asItIs(priority uint16, mac ofp.MAC, remember bool, match ...flow.Cond) flow.Flow {
	var f flow.Flow
	if len(w.list) == 1 {
		f = w.node.throughTunnel(priority, mac, w.list[0].end, 0, match...)
		if w.node.Tunnels.Stretched {
			f.Actions = append(flow.Do(flow.Move(clusterSetID, tunnelKey)), f.Actions...)
		}
	} else {
		f = flow.Flow{
			Table: Route, Priority: priority, Match: flow.All(match...),
			Actions: flow.Do(flow.SetEthSrc(w.node.GatewayMAC), flow.SetEthDst(mac), flow.ToGroup(w.any)),
		}
	}
	if remember {
		f.Actions = append(flow.Do(flow.Load(untranslated, 1)), f.Actions...)
	}
	return f
}
