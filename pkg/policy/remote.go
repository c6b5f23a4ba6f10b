package policy

import (
	"cmp"
	"net/netip"
	"slices"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// Rules identify servers in other clusters by their addresses, which those clusters publish. The number of such an
// address is the ClusterSet's number of the server's identity, with the bit Remote. So it differs from the numbers of
// this cluster's identities, even if the labels are the same. This is needed because rules without scope ClusterSet
// select only Pods of this cluster.

// RemotePods are Pods of another cluster, sorted by their addresses.
type RemotePods []RemotePod

// RemotePod is an address, and the name of the LabelIdentity of the Pod that has it.
type RemotePod struct {
	IP    netip.Addr
	Label string
}

// RemotePodsOf parses a PodAddressImport. It leaves out invalid addresses: the member controller, which wrote it, has
// checked it.
func RemotePodsOf(o *mcv1alpha1.PodAddressImport) RemotePods {
	var out RemotePods
	for _, pods := range o.Spec.Pods {
		for _, text := range pods.Addresses {
			if ip, err := netip.ParseAddr(text); err == nil {
				out = append(out, RemotePod{ip.Unmap(), pods.LabelIdentity})
			}
		}
	}
	slices.SortFunc(out, func(a, b RemotePod) int { return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Label, b.Label)) })
	return slices.Compact(out)
}

// clusterSetNumber is a number of the ClusterSet, as the key of an index.
type clusterSetNumber uint32

// Compare makes it a key.
func (n clusterSetNumber) Compare(o clusterSetNumber) int { return cmp.Compare(n, o) }

// at returns the label of the Pod that has an address. It is empty if no Pod has it, or if Pods with different labels
// claim it.
func at(a netip.Addr, blocks ...RemotePods) (label string) {
	for _, pods := range blocks {
		first, _ := slices.BinarySearchFunc(pods, a, func(p RemotePod, ip netip.Addr) int { return p.IP.Compare(ip) })
		for _, p := range pods[first:] {
			if p.IP != a {
				break
			}
			if label != "" && p.Label != label {
				return ""
			}
			label = p.Label
		}
	}
	return label
}

// remoteTables find Pods of other clusters.
type remoteTables struct {
	all           *Tables
	byExchanged   *derive.Index[Identity, derive.Object, LabelIdentity]
	remote        *derive.Table[Identity, *labelSets]
	byRemoteLabel *derive.Index[label, Identity, *labelSets]
	remotePeers   *derive.Table[Selector, []uint32]
	remoteServers *derive.Table[Selector, []uint32] // the same, of egress rules
	namedServers  *derive.Index[clusterSetNumber, Selector, []uint32]
	remoteAt      *derive.Index[Addr, derive.Object, RemotePods]
	publishing    *derive.Table[derive.Name, bool] // one row, if any other cluster publishes addresses
}

// remoteAddress returns the Pod of another cluster that has an address, if an egress rule needs it. Other clusters have
// no Pods in the podCIDRs of this one.
func (t *remoteTables) remoteAddress(a Addr, r *derive.Reader) Holder {
	if t.all.unknown.nodeOf(r, a.Addr) != "" {
		return Holder{}
	}
	var blocks []RemotePods
	for _, row := range derive.List(r, t.remoteAt, a) {
		blocks = append(blocks, row.Value)
	}
	l, _ := derive.Get(r, t.all.LabelIdentities, derive.Object{Name: at(a.Addr, blocks...)})
	if l.ID == 0 || len(derive.List(r, t.namedServers, clusterSetNumber(l.ID))) == 0 {
		return Holder{}
	}
	return Holder{Number: Remote | l.ID, Asked: [2]bool{Egress: true}}
}

// serverAt returns the identity of the Pod of another cluster that has an address, even if no rule needs it.
func (t *remoteTables) serverAt(a netip.Addr) Identity {
	if t.all.NodeAt(a) != "" {
		return ""
	}
	var blocks []RemotePods
	for _, k := range t.remoteAt.Keys(Addr{a}) {
		pods, _ := t.all.PodAddresses.Get(k)
		blocks = append(blocks, pods)
	}
	l, _ := t.all.LabelIdentities.Get(derive.Object{Name: at(a, blocks...)})
	return l.Label
}

// PeerAt returns the number by which rules of a direction match the Pod at an address. If network is not zero, the
// address is in this VirtualNetwork. An address of another cluster has a number only as a server, since clients have
// their number in the tunnel's key. If a rule denies unknown Pods, these have a number, too.
func (t *Tables) PeerAt(d Direction, a netip.Addr, network derive.Object) uint32 {
	further := network != derive.Object{}
	h, ok := t.Addresses.Get(Addr{a})
	if further {
		h, ok = t.Virtual.Addresses.Get(FurtherAddr{network, a})
	}
	switch {
	case h.Asked[d]:
		return h.Number
	case ok:
	case further:
		block, _ := t.Virtual.Blocks.Get(Block{network, PodRange{t.Virtual.BlockIn(network, a).Range}})
		if block.Denied[d] {
			return UnknownPod
		}
	case t.unknown.deniesUnknownAt(d, a):
		return UnknownPod
	}
	return 0
}
