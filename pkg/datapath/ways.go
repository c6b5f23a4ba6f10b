package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// There may be several ways between clusters. A Node has ways to the Gateways of its cluster. A Gateway has ways to the
// gateways of the peer. Each way has a tunnel port of its own with BFD. BFD reports whether the far end runs and
// whether its packets arrive. The port's number in the switch is the number of the way.
//
// New connections are spread over the ways that are up. A connection stays on the way of its first packet. Gateways
// translate addresses, and only the two ends of a connection's way have its translation.
// docs/design/0008-active-gateways.md has the design.
//
// Packets leave through the port for all tunnels, and the packet names the far end. The ports with BFD are watched, and
// packets from their far ends come in through them.

// WayEnd is the far end of a way, as the key of a table.
type WayEnd struct{ netip.Addr }

// Compare orders by address.
func (w WayEnd) Compare(o WayEnd) int { return w.Addr.Compare(o.Addr) }

// wayTo is one way: its far end, and the port with BFD, 0 if there is no such port.
type wayTo struct {
	end  netip.Addr
	port ofp.Port
	lost bool // it has been down for a while
	// going is set if the far end is leaving. Then the way keeps its connections but gets no new ones.
	going bool
}

// ways are the ways that packets to a destination may take, the oldest first.
type ways struct {
	node Node // this one
	list []wayTo
	// These are numbers of groups, if there are several ways. live is the group of the ways that are up. any is the same
	// group with the first way as a fallback while no way is up. pinned has a group for the connections of each way.
	live, any uint32
	pinned    []uint32
}

// wayPort returns the port with BFD to a far end, 0 if there is no such port.
func (t *clusterTables) wayPort(r *derive.Reader, end netip.Addr) ofp.Port {
	if t.base.Ways == nil {
		return 0
	}
	port, _ := derive.Get(r, t.base.Ways, WayEnd{end})
	return ofp.Port(port)
}

// lostWay reports whether the way to a far end has been down for a while.
func (t *clusterTables) lostWay(r *derive.Reader, end netip.Addr) bool {
	if t.base.Lost == nil {
		return false
	}
	_, lost := derive.Get(r, t.base.Lost, WayEnd{end})
	return lost
}

// waysTo are the ways to a peer.
func (t *clusterTables) waysTo(r *derive.Reader, at role, peer peering.Peer) ways {
	node := t.base.self(r)
	switch {
	case at.direct(peer):
		node.Tunnels.Source = node.Tunnels.PeerSource
		if peer.Base.IsValid() {
			node.Tunnels.Source = peer.Base
		}
		return t.waysOver(r, node, peer.ClusterID, peer.Ends)
	case peer.Active:
		return t.ownWays(r, at)
	}
	return t.waysOver(r, node, "", []peering.End{{Addr: peer.Ends[0].Addr}})
}

// ownWays are the ways to this cluster's Gateways.
func (t *clusterTables) ownWays(r *derive.Reader, at role) ways {
	return t.waysOver(r, t.base.self(r), ownGateways, at.ends)
}

// ownGateways is the name of the ways to this cluster's Gateways. No cluster is called so.
const ownGateways = "own gateways"

// waysOver returns the ways to some ends, with leaving ends at the end of the list. name is the name of their groups.
func (t *clusterTables) waysOver(r *derive.Reader, node Node, name string, ends []peering.End) ways {
	w := ways{node: node}
	for _, end := range ends {
		w.list = append(w.list, wayTo{end.Addr, t.wayPort(r, end.Addr), t.lostWay(r, end.Addr), end.Leaving})
	}
	if len(ends) < 2 {
		return w
	}
	ids := wayGroups(name, ends)
	numbers := make([]uint32, len(ids))
	for i, id := range ids {
		numbers[i], _ = derive.Get(r, t.groups, id)
		if numbers[i] == 0 { // the table of numbers reports it
			w.list = w.list[:1]
			return w
		}
	}
	w.live, w.any, w.pinned = numbers[0], numbers[1], numbers[2:]
	return w
}

// wayGroups returns the names of the groups of some ways, as waysOver uses them. No group of a Service can have these
// names, since such a name contains a Namespace.
func wayGroups(name string, ends []peering.End) []groupID {
	named := func(what string) groupID { return groupID{Set: service.Set{Service: name, Port: what}} }
	out := []groupID{named("live"), named("any")}
	for _, end := range ends {
		out = append(out, named(end.Addr.String()))
	}
	return out
}

// wayGroupsOf are the groups of all ways of this Node.
func (t *clusterTables) wayGroupsOf(_ derive.Name, r *derive.Reader) ([]groupID, []problem.Problem) {
	p, _ := derive.Get(r, t.base.Peering.Part, Self)
	var out []groupID
	add := func(name string, ends []peering.End) {
		if len(ends) > 1 {
			out = append(out, wayGroups(name, ends)...)
		}
	}
	if p.Role != peering.None && !p.Direct(peering.Peer{}) {
		add(ownGateways, p.OwnEnds())
	}
	for _, peer := range derive.All(r, t.base.Peering.Peers) {
		if p.Direct(peer.Value) {
			add(peer.Value.ClusterID, peer.Value.Ends)
		}
	}
	return out, nil
}

// sent is the kind of a packet to a peer. It decides how the way of the packet is found.
type sent int

const (
	sentRequest sent = iota // of a client here; its connection's way was chosen here
	sentReply               // of a server here; its connection's way is the way of the request
	sentRefusal             // the agent's: the refused packet's way is in the register
)

// send routes packets over the ways. If a connection has a way, its packets take it.
func (w ways) send(what sent, translate uint64, match ...flow.Cond) []flow.Flow {
	priority := normal
	if what == sentRefusal {
		priority = low
	}
	if len(w.list) == 1 {
		f := w.node.throughTunnel(priority, CrossClusterMAC, w.list[0].end, translate, match...)
		if w.node.Tunnels.Stretched && what == sentRequest { // a peer's packet keeps its key, on the way to another Node
			f.Actions = append(flow.Do(flow.Move(clusterSetID, tunnelKey)), f.Actions...)
		}
		if what == sentRequest { // else it would look like one from before there were ways
			return cameBy(w.list[0].port, []flow.Flow{f})
		}
		return []flow.Flow{f}
	}
	to := func(priority uint16, where flow.Actions, more ...flow.Cond) flow.Flow {
		actions := flow.Do(flow.SetEthSrc(w.node.GatewayMAC), flow.SetEthDst(CrossClusterMAC))
		if translate != 0 {
			actions = append(actions, flow.Load(snat, translate))
		}
		if w.node.Tunnels.Stretched && what != sentRequest {
			actions = append(actions, flow.Load(clusterSetID, 0))
		}
		return flow.Flow{Table: Route, Priority: priority, Match: flow.All(append(slices.Clone(match), more...)...),
			Actions: append(actions, where...)}
	}
	group := func(id uint32) flow.Actions { return flow.Do(flow.ToGroup(id)) }
	flows := []flow.Flow{to(priority, group(w.any))}
	if what != sentRefusal {
		// From before there were several: the first was the only one.
		flows = append(flows, to(differ, group(w.pinned[0]), flow.CTState("+est+trk"), markWay.Is(0)))
	}
	for i, one := range w.list {
		switch {
		case one.port == 0:
		case what == sentRefusal:
			flows = append(flows, to(same, group(w.pinned[i]), way.Is(uint64(one.port))))
		default:
			flows = append(flows, to(differ, group(w.pinned[i]), markWay.Is(uint64(one.port))))
			if !one.lost {
				flows = append(flows, to(same, w.take(one), flow.TCPFlags("+ack"), markWay.Is(uint64(one.port))))
			}
		}
	}
	return flows
}

// groups returns the groups for several ways.
//
// The datapath's hash of a connection chooses among the ways that are up. So many connections share one megaflow, and
// if a way goes down, only its connections move. While no way is up, all packets take the first one. That happens
// before BFD has come up for the first time, and if the far end has no BFD, such as during an upgrade of its agent.
//
// If the way of a connection is down, its packets take the next way. A TCP connection moves only if the way is lost for
// good, or with its first packet. Only the Gateways on its way can translate its other packets, and BFD may fail for a
// moment if a switch is slow.
func (w ways) groups() []flow.Group {
	if len(w.list) < 2 {
		return nil
	}
	watched := func(id int, one wayTo) flow.Bucket {
		port := one.port
		if port == 0 {
			port = w.node.Tunnels.Port // is up
		}
		return flow.Bucket{ID: uint32(id), WatchPort: port, Actions: w.take(one)}
	}
	first := func(id int) flow.Bucket {
		return flow.Bucket{ID: uint32(id), WatchPort: w.node.Tunnels.Port, Actions: w.take(w.list[0])}
	}
	live := flow.Group{ID: w.live, Type: flow.Select, Selection: flow.Selection{Method: "dp_hash", Param: wayHash}}
	for i, at := range spread(w.staying()) {
		b := watched(i+1, w.list[at])
		b.Weight = 1
		live.Buckets = append(live.Buckets, b)
	}
	out := []flow.Group{live, {ID: w.any, Type: flow.FastFailover, Buckets: []flow.Bucket{
		{ID: 1, WatchGroup: w.live, Actions: flow.Do(flow.ToGroup(w.live))}, first(2),
	}}}
	for i, group := range w.pinned {
		g := flow.Group{ID: group, Type: flow.FastFailover}
		for j := range w.list {
			if one := w.list[(i+j)%len(w.list)]; j == 0 || !one.going {
				g.Buckets = append(g.Buckets, watched(j+1, one))
			}
		}
		g.Buckets = append(g.Buckets, first(len(w.list)+1))
		out = append(out, g)
	}
	return out
}

// staying is how many of the ways new connections take.
func (w ways) staying() int {
	if i := slices.IndexFunc(w.list, func(one wayTo) bool { return one.going }); i > 0 {
		return i
	}
	return len(w.list)
}

// beginAgain sets the way of a TCP connection again when its first packet is repeated. If the earlier way is down, the
// repeated packet takes another one. ip is a version of IP.
func beginAgain(ip flow.Cond) []flow.Flow {
	return []flow.Flow{{
		Table: Commit, Priority: same,
		Match: flow.All(ip, flow.TCPFlags("+syn-ack"), flow.CTState("+est-rpl+trk"), committed.Is(0)),
		Actions: flow.Do(flow.CT(ofp.CT{Flags: ofp.CTCommit, Zone: mainZone, Table: ofp.CTNoTable,
			Exec: flow.Do(flow.Move(way, markWay))}), flow.Goto(SNAT)),
	}}
}

// take sends a packet by a way.
func (w ways) take(one wayTo) flow.Actions {
	var actions flow.Actions
	if w.node.Tunnels.Stretched { // not before the group: choosing clears the key of a tunnel without an address
		actions = append(actions, flow.Move(clusterSetID, tunnelKey))
	}
	actions = append(actions, w.node.tunnelTo(one.end)...)
	return append(actions, flow.Load(way, uint64(one.port)), flow.Resubmit(Commit))
}

// wayHash is the basis of the hash that chooses a way.
const wayHash = 0x776179

// spread assigns one of n ways to each value of the hash. All ways get equally many values, in an irregular order. The
// lowest bits of the same hash may have chosen an endpoint, so in a regular order the ways would follow the endpoints.
// If a way goes down, each of its values goes to the next way, and the irregular order spreads them over all others.
func spread(n int) []int {
	slots := 16 // at least as many as Open vSwitch uses
	for slots < 4*n && slots < maxSlots {
		slots *= 2
	}
	order := make([]int, slots)
	for i := range order {
		order[i] = i
	}
	mix := func(i int) uint64 { // the finalizer of SplitMix64
		h := (uint64(i) + 1) * 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		return h ^ h>>31
	}
	slices.SortFunc(order, func(a, b int) int {
		if mix(a) < mix(b) {
			return -1
		}
		return 1
	})
	out := make([]int, slots)
	for turn, slot := range order {
		out[slot] = turn % n
	}
	return out
}

// cameBy records the way through which packets come.
func cameBy(port ofp.Port, flows []flow.Flow) []flow.Flow {
	if port == 0 {
		return flows
	}
	for i := range flows {
		flows[i].Actions = append(flow.Do(flow.Load(way, uint64(port))), flows[i].Actions...)
	}
	return flows
}
