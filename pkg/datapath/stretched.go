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
// both Gateways keep it. On the server's side this number is the sender of a packet from another cluster (keyOf). Rules
// can name it as a peer, like an identity of this cluster, but these numbers are separate.
//
// If a Pod's identity has no number yet, the Pod sends the unknown number. Any Pod may have sent it. So if the receiver
// is under a rule about other clusters, such a packet is dropped before any rule decides, even one that allows. A
// cluster without this feature sends key 0, and so do hosts. Key 0 is not a peer of such rules, and other rules judge
// it. Known connections continue under key 0 and under the unknown number. Nodes of Antrea send key 0 for a moment when
// their agent starts again.

// noNumber is in the key if the sending side has no number for the sender.
const noNumber = 0

// stretched returns the flows that policies about other clusters always need.
func stretched(n Node) []flow.Flow {
	flows := []flow.Flow{
		// The address belongs to a Gateway, and not to a Pod.
		{Table: IngressPeer, Priority: high, Match: flow.All(source.Is(fromPeer)), Actions: flow.Do(flow.Goto(IngressAdmin))},
	}
	return append(flows, each(n.Families, func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{
			known(same, flow.Do(flow.Goto(Route)), ip, sender.Is(remote|policy.UnknownClusterSet)),
			known(same, flow.Do(flow.Goto(Route)), ip, sender.Is(remote|noNumber)),
		}
	})...)
}

// dropUnnumbered drops packets from Pods of other clusters that have no number yet.
func dropUnnumbered(receives uint32) flow.Flow {
	return flow.Flow{Table: Ingress, Priority: differ,
		Match: flow.All(receiver.Is(uint64(receives)), sender.Is(remote|policy.UnknownClusterSet))}
}

// known matches the client's packets of connections from other clusters that are known, and not pending.
func known(priority uint16, actions flow.Actions, more ...flow.Cond) flow.Flow {
	return flow.Flow{
		Table: ConntrackState, Priority: priority,
		Match: flow.All(
			append(more, flow.CTState("-new+est-rel-rpl-inv+trk"), markPending.Is(0), source.Is(fromPeer))...),
		Actions: actions,
	}
}

// remoteNumber is a number of the cluster set that rules name.
type remoteNumber uint32

// Compare makes a number the key of a table.
func (n remoteNumber) Compare(o remoteNumber) int { return cmp.Compare(n, o) }

func namedRemotely(k policy.RuleKey, r policy.Rule) []remoteNumber {
	if k.Direction == policy.Egress {
		return nil // servers: their packets carry no number
	}
	out := make([]remoteNumber, len(r.ClusterSet))
	for i, n := range r.ClusterSet {
		out[i] = remoteNumber(n)
	}
	return out
}

// followedFlows judge a known connection again if its packets show that its client's identity has changed, and a rule
// names the old or the new identity's number. While the Pod has no number, the connection continues. That time is
// short, and new connections are dropped in it.
func (p *Policies) followedFlows(n remoteNumber, r *derive.Reader) (flow.Entries, []problem.Problem) {
	now, before := sender.Is(remote|uint64(n)), labelSender.Is(remote|uint64(n))
	return flow.Entries{Flows: each(derived(r, p.base.outside).Families, func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{
			known(same, flow.Do(flow.Goto(Route)), ip, now, before),
			known(differ, flow.Do(flow.Goto(Again)), ip, now),
			known(differ, flow.Do(flow.Goto(Again)), ip, before),
		}
	})}, nil
}

// stretchedOver are the subjects of rules about Pods of other clusters.
func stretchedOver(k policy.RuleKey, r policy.Rule) []subject {
	if !r.Stretched || k.Direction != policy.Ingress {
		return nil
	}
	return subjects(k, r)
}
