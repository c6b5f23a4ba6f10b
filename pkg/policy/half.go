package policy

import (
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Half is the decision of one Pod's policies about a connection from it or to it, with the reasons.
type Half struct {
	Verdict
	Identity Identity // of the Pod; empty while its labels or its Namespace's are not known
	Number   uint32
	Peer     Identity // of the other end, none where that is no Pod that is known
	// UnknownPeer is set if the other end is an unknown Pod.
	UnknownPeer bool
	Text        *RuleText // the rule that decided
}

// Why is Decide with what the verdict comes from.
func (t *Tables) Why(pod derive.Object, d Direction, c Connection) Half {
	h := Half{Verdict: t.Decide(pod, d, c)}
	h.Identity, _ = t.ids.here.Get(pod)
	h.Number, _ = t.Numbers.Get(h.Identity)
	other := c.peer(d)
	if c.ClusterSet != 0 {
		h.Peer, _ = t.ClusterSetIdentity(c.ClusterSet)
	} else if network := c.peerNetwork(d); network != (derive.Object{}) {
		who, _ := t.Virtual.PodIn(network, other)
		h.Peer, h.UnknownPeer = who.Identity, who.Identity == "" && t.Virtual.BlockIn(network, other).Node != ""
	} else if h.UnknownPeer = t.IsUnknownPod(other); h.UnknownPeer {
		h.Peer = ""
	} else if who, ok := t.OccupantAt(other); ok {
		h.Peer = who.Identity
	} else if d == Egress {
		h.Peer = t.others.serverAt(other)
	}
	if h.Rule != nil {
		f, _ := t.rules.resolved.Get(*h.Rule)
		text := f.text(*h.Rule)
		h.Text = &text
	}
	return h
}

// Elsewhere returns tables that treat some Pods of other Nodes as Pods of this Node. Decisions depend only on the Pods'
// labels, their Namespaces' labels and policies. So these tables decide in the same way as the Pods' own Nodes.
func (t *Tables) Elsewhere(pods ...derive.Object) *Tables {
	e := derive.New()
	attachments := derive.NewSource[derive.Name, Attachment](e, "attachments")
	out := NewTables(e, t.node, attachments)
	out.stretched, out.limits.bounds = t.stretched, t.limits.bounds
	namespaces := map[string]bool{"": true} // policies of the whole cluster are under this one
	for _, pod := range pods {
		f, ok := t.Pods.Get(pod)
		if !ok {
			continue
		}
		f.Node, f.IPs = t.node, t.AddressesOf(pod)
		out.Pods.Set(pod, f)
		attachments.Set(derive.Name(pod.String()), Attachment{Pod: pod, UID: f.UID, IPs: f.IPs})
		for _, a := range t.Virtual.Of(pod) {
			attachments.Set(derive.Name(pod.String()+" "+a.key().String()), Attachment{Pod: pod, UID: f.UID,
				IPs: []netip.Addr{a.IP}, Network: a.Network})
		}
		namespaces[pod.Namespace] = true
	}
	attachments.Loaded()
	for namespace := range namespaces {
		labels, _ := t.Namespaces.Get(derive.Object{Name: namespace})
		out.Namespaces.Set(derive.Object{Name: namespace}, labels)
		for kind, subjects := range t.actives.subjects {
			for _, policy := range subjects.Keys(derive.Name(namespace)) {
				f, _ := t.Policies[kind].Get(policy)
				out.Policies[kind].Set(policy, f)
			}
		}
	}
	copyRows(out.Nodes, t.Nodes)
	copyRows(out.ServiceSelectors, t.ServiceSelectors)
	copyRows(out.Tiers, t.Tiers)
	copyRows(out.ClusterGroups, t.ClusterGroups)
	copyRows(out.Groups, t.Groups)
	copyRows(out.LabelIdentities, t.LabelIdentities)
	for _, row := range t.Learned.All() {
		out.Learned.Set(row.Key, row.Value)
	}
	copyRows(out.PodAddresses, t.PodAddresses)
	copyRows(out.Blocks, t.Blocks)
	copyRows(out.Further, t.Further)
	out.Loaded()
	e.Pass()
	return out
}

func copyRows[V any](to, from *derive.Source[derive.Object, V]) {
	for _, row := range from.All() {
		to.Set(row.Key, row.Value)
	}
}

// Facts returns the facts of a policy that applies to Pods of this Node.
func (t *Tables) Facts(k Key) Facts {
	f, _ := t.actives.active.Get(k)
	return f
}
