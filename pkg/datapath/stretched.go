package datapath

import (
	"cmp"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Policies with scope ClusterSet apply to Pods of other clusters, too. Gateways translate addresses of clients. So the
// client's Node writes the ClusterSet's number of the Pod's identity into the key of the tunnel (sends, toPeer), and
// both Gateways keep it. On the server's side this number is the sender of a packet from another cluster (keyOf): a
// peer of rules like one of this cluster, but with numbers of their own.
//
// A Pod whose identity has no number yet sends the unknown number. Any Pod may have sent it. So such a packet reaches
// no Pod under a rule about other clusters: it is dropped before any rule decides, whether that rule allows or denies.
// A cluster that does not take part sends key 0, and so do its hosts. This is no peer of such rules, and other rules
// judge it. Known connections go on under key 0 as under the unknown number: Nodes of Antrea send it for a moment when
// their agent starts again.

// noNumber is in the key of what no number is known for where it was sent.
const noNumber = 0

// stretched are the flows that policies about other clusters need whatever they are.
func stretched() []flow.Flow {
	return []flow.Flow{
		// The address belongs to a Gateway, and not to a Pod.
		{Table: IngressPeer, Priority: high, Match: flow.All(source.Is(fromPeer)), Actions: flow.Do(flow.Goto(IngressAdmin))},
		known(same, flow.Do(flow.Goto(Route)), sender.Is(remote|policy.UnknownClusterSet)),
		known(same, flow.Do(flow.Goto(Route)), sender.Is(remote|noNumber)),
	}
}

// dropUnnumbered drops packets from Pods of other clusters that have no number yet.
func dropUnnumbered(receives uint32) flow.Flow {
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

// followedFlows start to judge a known connection again if its packets show that its client has got other labels, and a
// rule names the old or the new number. While the Pod has no number the connection goes on: that is soon over, and new
// connections are dropped meanwhile.
func followedFlows(n remoteNumber, _ *derive.Reader) (flow.Entries, []problem.Problem) {
	now, before := sender.Is(remote|uint64(n)), labelSender.Is(remote|uint64(n))
	return flow.Entries{Flows: []flow.Flow{
		known(same, flow.Do(flow.Goto(Route)), now, before),
		known(differ, flow.Do(flow.Goto(Again)), now),
		known(differ, flow.Do(flow.Goto(Again)), before),
	}}, nil
}

// stretchedOver are the subjects of rules about Pods of other clusters.
func stretchedOver(k policy.RuleKey, r policy.Rule) []subject {
	if !r.Stretched || k.Direction != policy.Ingress {
		return nil
	}
	return subjects(k, r)
}
