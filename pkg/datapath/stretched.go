package datapath

import (
	"cmp"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Policies with scope ClusterSet are about Pods of other clusters, too. Gateways translate addresses of clients. So the client's Node writes the number that the cluster set gives the Pod's identity into the key
// of the tunnel (sends, toPeer), which both Gateways leave as it is, and on the server's side the sender of a packet
// from another cluster is that number (keyOf): a peer of rules like one of this cluster, but of numbers of their own.
//
// A Pod whose identity has no number yet sends the unknown one. It may be anybody's, so it reaches no Pod that a rule
// about other clusters is applied to, before any rule decides, whether that one allows or denies. A key of 0 is that of
// a cluster that does not take part, or of its hosts: it is no peer of such rules, and the others judge it. Connections that are
// known go on under it as under the unknown one: Nodes of Antrea send it for a moment when their agent starts again.

// noNumber is in the key of what no number is known for where it was sent.
const noNumber = 0

// stretched are the flows that policies about other clusters need whatever they are.
func stretched() []flow.Flow {
	return []flow.Flow{
		// The address is that of a Gateway, and no Pod's.
		{Table: IngressPeer, Priority: high, Match: flow.All(source.Is(fromPeer)), Actions: flow.Do(flow.Goto(IngressAdmin))},
		known(same, flow.Do(flow.Goto(Route)), sender.Is(remote|policy.UnknownClusterSet)),
		known(same, flow.Do(flow.Goto(Route)), sender.Is(remote|noNumber)),
	}
}

// nobodyUnknown drops what comes from a Pod of another cluster that has no number yet.
func nobodyUnknown(receives uint32) flow.Flow {
	return flow.Flow{Table: Ingress, Priority: differ, Match: flow.All(receiver.Is(uint64(receives)), sender.Is(remote|policy.UnknownClusterSet))}
}

// known matches the client's packets of connections from other clusters that are known, and not pending.
func known(priority uint16, actions flow.Actions, more ...flow.Cond) flow.Flow {
	return flow.Flow{
		Table: ConntrackState, Priority: priority,
		Match:   flow.All(append(more, flow.IP(), flow.CTState("-new+est-rel-rpl-inv+trk"), markPending.Is(0), source.Is(fromPeer))...),
		Actions: actions,
	}
}

// remoteNumber is a number of the cluster set that rules name.
type remoteNumber uint32

// Compare makes a number the key of a table.
func (n remoteNumber) Compare(o remoteNumber) int { return cmp.Compare(n, o) }

func namedRemotely(k policy.RuleKey, r policy.Rule) []remoteNumber {
	if k.Direction == policy.Egress {
		return nil // of servers: what they send carries no number
	}
	out := make([]remoteNumber, len(r.ClusterSet))
	for i, n := range r.ClusterSet {
		out[i] = remoteNumber(n)
	}
	return out
}

// followedFlows have a known connection judged again when its client has got other labels, which its packets say: it was
// of a number that a rule names, or is now. While the Pod has no number the connection goes on: that is soon over,
// and new ones are dropped meanwhile.
func followedFlows(n remoteNumber, _ *derive.Reader) (flow.Entries, []problem.Problem) {
	now, before := sender.Is(remote|uint64(n)), labelSender.Is(remote|uint64(n))
	return flow.Entries{Flows: []flow.Flow{
		known(same, flow.Do(flow.Goto(Route)), now, before),
		known(differ, flow.Do(flow.Goto(Again)), now),
		known(differ, flow.Do(flow.Goto(Again)), before),
	}}, nil
}

// stretchedOver are those that a rule about Pods of other clusters is applied to.
func stretchedOver(k policy.RuleKey, r policy.Rule) []subject {
	if !r.Stretched || k.Direction != policy.Ingress {
		return nil
	}
	return subjects(k, r)
}
