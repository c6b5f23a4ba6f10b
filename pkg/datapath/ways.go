package datapath

import (
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Between clusters there may be several ways: a Node has those to the Gateways of its cluster, a Gateway those to the
// gateways of the peer. Each has a tunnel port of its own with BFD, which says whether the far end is there and what it
// sends arrives; the port is named by its number in the switch, the way's number. New connections are spread over the
// ways that are up, and go on by the way that their first packet took: gateways translate addresses, and those of a
// connection are known at the two ends of its way alone. docs/design/0008-active-gateways.md says more.
//
// Packets leave by the port for all tunnels, which takes the far end from the packet; the ports with BFD are watched, and
// what their ends send arrives by them.

// WayEnd is the far end of a way, as the key of a table.
type WayEnd struct{ netip.Addr }

// Compare orders by address.
func (w WayEnd) Compare(o WayEnd) int { return w.Addr.Compare(o.Addr) }

// wayTo is one way: where it ends, and the port with BFD, 0 where there is none.
type wayTo struct {
	end  netip.Addr
	port ofp.Port
	lost bool // it has been down for a while
	// going says that its far end is about to go: it carries the connections that it has, and no new ones.
	going bool
}

// ways are the ways that packets to a destination may take, the oldest first.
type ways struct {
	node Node // this one
	list []wayTo
	// Numbers of groups, where there are several ways: that of the ways that are up, that with the first way for
	// when none is, and for each way the one for connections that have it.
	live, any uint32
	pinned    []uint32
}

// wayPort is the port with BFD to a far end, 0 where there is none.
func (t *Tables) wayPort(r *derive.Reader, end netip.Addr) ofp.Port {
	if t.Ways == nil {
		return 0
	}
	port, _ := derive.Get(r, t.Ways, WayEnd{end})
	return ofp.Port(port)
}

// lostWay says whether the way to a far end has been down for a while.
func (t *Tables) lostWay(r *derive.Reader, end netip.Addr) bool {
	if t.Lost == nil {
		return false
	}
	_, lost := derive.Get(r, t.Lost, WayEnd{end})
	return lost
}

// waysTo are the ways to a peer.
func (t *Tables) waysTo(r *derive.Reader, at role, peer peering.Peer) ways {
	node := t.self(r)
	switch {
	case at.direct(peer):
		node.TunnelSource = node.PeerSource
		if peer.Base.IsValid() {
			node.TunnelSource = peer.Base
		}
		return t.waysOver(r, node, peer.ClusterID, peer.Ends)
	case peer.Active:
		return t.ownWays(r, at)
	}
	return t.waysOver(r, node, "", []peering.End{{Addr: peer.Ends[0].Addr}})
}

// ownWays are the ways to this cluster's Gateways.
func (t *Tables) ownWays(r *derive.Reader, at role) ways {
	return t.waysOver(r, t.self(r), ownGateways, at.ends)
}

// ownGateways is the name of the ways to this cluster's Gateways. No cluster is called so.
const ownGateways = "own gateways"

// waysOver returns the ways to some ends. Ends that are leaving are behind the others. Their groups have the name.
func (t *Tables) waysOver(r *derive.Reader, node Node, name string, ends []peering.End) ways {
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

// wayGroups names the groups of some ways, as waysOver uses them. They are no Service's: those have a Namespace.
func wayGroups(name string, ends []peering.End) []groupID {
	named := func(what string) groupID { return groupID{frontendID: frontendID{service: name, port: what}} }
	out := []groupID{named("live"), named("any")}
	for _, end := range ends {
		out = append(out, named(end.Addr.String()))
	}
	return out
}

// wayGroupsOf are the groups of all ways of this Node.
func (t *Tables) wayGroupsOf(_ derive.Name, r *derive.Reader) ([]groupID, []problem.Problem) {
	p, _ := derive.Get(r, t.Peering.Part, Self)
	var out []groupID
	add := func(name string, ends []peering.End) {
		if len(ends) > 1 {
			out = append(out, wayGroups(name, ends)...)
		}
	}
	if p.Role != peering.None && !p.Direct(peering.Peer{}) {
		add(ownGateways, p.OwnEnds())
	}
	for _, peer := range derive.All(r, t.Peering.Peers) {
		if p.Direct(peer.Value) {
			add(peer.Value.ClusterID, peer.Value.Ends)
		}
	}
	return out, nil
}

// What is sent to a peer, which decides how a way is known.
type sent int

const (
	sentRequest sent = iota // of a client here: its connection's way was chosen here
	sentReply               // of a server here: its connection's way is the one that the request came by
	sentRefusal             // the agent's: the refused packet's way is in the register
)

// send routes packets over the ways: those of a connection that has a way take it.
func (w ways) send(what sent, translate uint64, match ...flow.Cond) []flow.Flow {
	priority := normal
	if what == sentRefusal {
		priority = low
	}
	if len(w.list) == 1 {
		f := w.node.throughTunnel(priority, CrossClusterMAC, w.list[0].end, translate, match...)
		if w.node.Stretched && what == sentRequest { // a peer's packet keeps its key, on the way to another Node
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
		if w.node.Stretched && what != sentRequest {
			actions = append(actions, flow.Load(clusterSetID, 0))
		}
		return flow.Flow{Table: Route, Priority: priority, Match: flow.All(append(slices.Clone(match), more...)...), Actions: append(actions, where...)}
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

// groups are the groups of several ways.
//
// The datapath's hash of a connection chooses from the ways that are up, so that many connections share one megaflow, and
// those of a way that goes down move alone. While none is up all go by the first: before BFD has come up for the first
// time, and where the far end does not know it, as an agent that is being upgraded. A connection whose way is down goes
// by the next one, but one of TCP not before the way is lost for good, and its first packet: only the Gateways on it can translate the
// others, and BFD may be wrong for a moment, where a switch is short of time.
func (w ways) groups() []flow.Group {
	if len(w.list) < 2 {
		return nil
	}
	watched := func(id int, one wayTo) flow.Bucket {
		port := one.port
		if port == 0 {
			port = w.node.TunnelPort // is up
		}
		return flow.Bucket{ID: uint32(id), WatchPort: port, Actions: w.take(one)}
	}
	first := func(id int) flow.Bucket {
		return flow.Bucket{ID: uint32(id), WatchPort: w.node.TunnelPort, Actions: w.take(w.list[0])}
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

// beginAgain gives a connection of TCP the way of its first packet when that is sent again: it is sent by another one when the
// first is down.
func beginAgain() flow.Flow {
	return flow.Flow{
		Table: Commit, Priority: same,
		Match:   flow.All(flow.TCPFlags("+syn-ack"), flow.CTState("+est-rpl+trk"), committed.Is(0)),
		Actions: flow.Do(flow.CT(ofp.CT{Flags: ofp.CTCommit, Zone: mainZone, Table: ofp.CTNoTable, Exec: flow.Do(flow.Move(way, markWay))}), flow.Goto(SNAT)),
	}
}

// take sends a packet by a way.
func (w ways) take(one wayTo) flow.Actions {
	var actions flow.Actions
	if w.node.Stretched { // not before the group: what chooses forgets the key of a tunnel without an address
		actions = append(actions, flow.Move(clusterSetID, tunnelKey))
	}
	actions = append(actions, w.node.tunnelTo(one.end)...)
	return append(actions, flow.Load(way, uint64(one.port)), flow.Resubmit(Commit))
}

// wayHash is the basis of the hash by which a way is chosen.
const wayHash = 0x776179

// spread says for the values of the hash which of n ways each takes: all as often as the next, but in no order. The hash may
// have chosen an endpoint before, by its lowest bits in turn; by turns the ways would follow the endpoints. And those
// of a way that is down go on to the ways behind it, which are different ones.
func spread(n int) []int {
	slots := 16 // no less than Open vSwitch makes of it
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

// cameBy notes the way that packets come by.
func cameBy(port ofp.Port, flows []flow.Flow) []flow.Flow {
	if port == 0 {
		return flows
	}
	for i := range flows {
		flows[i].Actions = append(flow.Do(flow.Load(way, uint64(port))), flows[i].Actions...)
	}
	return flows
}
