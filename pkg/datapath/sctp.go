package datapath

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// In the userspace datapath, connection tracking does not read the ports of SCTP. All associations between two
// addresses would be one connection. So an association that policies allow would open every port, in both directions.
// So on this datapath, SCTP has a zone of connection tracking for each port of a server. The zone records the clients
// that may get answers from the port. All other packets are judged, even each further packet of an association. One gap
// remains: a server that answers a client may send from the same port to all of the client's ports.
//
// The switch hides the ports of fragments, so the fragments of a packet would not all be in one zone. Fragments of SCTP
// are dropped. SCTP itself splits large messages, and requests no fragments.

// sctpByPort returns the flows for SCTP on a datapath whose connection tracking does not read SCTP's ports.
func sctpByPort(n Node) []flow.Flow {
	if !n.SCTPByPort {
		return nil
	}
	return n.each(sctpByPortOf)
}

// sctpByPortOf returns these flows for a version of IP.
func sctpByPortOf(ip flow.Cond) []flow.Flow {
	zone := func(port ofp.Field) ofp.Bits { return ofp.Bits{Field: port, Width: 16} }
	return []flow.Flow{
		{Table: Conntrack, Priority: high, Match: flow.All(ip, flow.SCTP()),
			Actions: flow.Do(flow.CT(ofp.CT{ZoneSrc: zone(ofp.SCTPSrc), Table: ConntrackState}))},
		{Table: ConntrackState, Priority: never, Match: flow.All(ip, flow.SCTP(), flow.CTState("-inv-rpl+trk")),
			Actions: flow.Do(flow.Load(committed, 1), flow.Goto(Exports))},
		// A reply does not go to table Again, since that table uses the zone of other protocols. This is safe, since the
		// client's next packet is judged in any case.
		{Table: ConntrackState, Priority: never, Match: flow.All(ip, flow.SCTP(), flow.CTState("-new+est-inv+rpl+trk")),
			Actions: flow.Do(flow.Goto(Route))},
		{
			Table: Commit, Priority: high,
			Match: flow.All(ip, flow.SCTP(), committed.Is(1)),
			Actions: flow.Do(
				flow.CT(ofp.CT{Flags: ofp.CTCommit, ZoneSrc: zone(ofp.SCTPDst), Table: ofp.CTNoTable,
					Exec: flow.Do(flow.Move(source, markSource))}),
				flow.Goto(SNAT),
			),
		},
	}
}
