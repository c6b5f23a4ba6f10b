package datapath

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// In the userspace datapath connection tracking knows no ports of SCTP. All associations between two addresses would be
// one connection, so an association that policies allow would open every port, in both directions. There SCTP has a
// zone for each port of a server, in which policies remember who may get answers from it. A packet that is no such
// answer is judged in any state, also each further one of an association. One opening remains: a server that answers a
// client may send from the same port to all of the client's ports.
//
// The switch hides the ports of fragments, so that they never meet in one zone: no fragments of SCTP pass. SCTP itself
// splits large messages, and asks for no fragments.

// sctpByPort are the flows of SCTP where connection tracking does not know its ports.
func (n Node) sctpByPort() []flow.Flow {
	if !n.SCTPByPort {
		return nil
	}
	zone := func(port ofp.Field) ofp.Bits { return ofp.Bits{Field: port, Width: 16} }
	return []flow.Flow{
		{Table: Conntrack, Priority: high, Match: flow.All(flow.SCTP()), Actions: flow.Do(flow.CT(ofp.CT{ZoneSrc: zone(ofp.SCTPSrc), Table: ConntrackState}))},
		{Table: ConntrackState, Priority: never, Match: flow.All(flow.SCTP(), flow.CTState("-inv-rpl+trk")), Actions: flow.Do(flow.Load(committed, 1), flow.Goto(Exports))},
		{
			Table: Commit, Priority: high,
			Match: flow.All(flow.SCTP(), committed.Is(1)),
			Actions: flow.Do(
				flow.CT(ofp.CT{Flags: ofp.CTCommit, ZoneSrc: zone(ofp.SCTPDst), Table: ofp.CTNoTable, Exec: flow.Do(flow.Move(source, markSource))}),
				flow.Goto(SNAT),
			),
		},
	}
}
