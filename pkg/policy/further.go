package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Pods have further addresses in VirtualNetworks, which are not in the status of Pods. Their Nodes report these. A
// reported address counts only if it is in a block of the reporting Node, like an address in a status, which must be in
// the podCIDR of the Pod's Node. So a Node can report only addresses of its own Pods.
//
// Tenants choose the ranges, so the same address may also be elsewhere. So these addresses are in separate tables: an
// address of a VirtualNetwork does not hide a Pod of this cluster or another one with the same address, and is not
// hidden by it.

// Two networks may have the same address, if one of them is separate (tenant.VirtualNetwork.Zone). So the tables have
// the network in their keys.

// NodeBlock is a range that the further addresses of a Node's Pods are from.
type NodeBlock struct {
	Node    string
	Range   netip.Prefix
	Network derive.Object // the VirtualNetwork
	Zone    uint16        // of connection tracking, if the network is separate, or 0
}

// FurtherAddr is an address in a VirtualNetwork, as a key.
type FurtherAddr struct {
	Network derive.Object
	Addr    netip.Addr
}

// Compare orders by address, then network.
func (a FurtherAddr) Compare(o FurtherAddr) int {
	return cmp.Or(a.Addr.Compare(o.Addr), a.Network.Compare(o.Network))
}

// String returns text such as "10.50.0.2 in shop/blue".
func (a FurtherAddr) String() string { return a.Addr.String() + " in " + a.Network.String() }

// Block is the range of a block of a VirtualNetwork, as a key.
type Block struct {
	Network derive.Object
	Range   PodRange
}

// Compare orders by range, then network.
func (b Block) Compare(o Block) int {
	return cmp.Or(b.Range.Compare(o.Range), b.Network.Compare(o.Network))
}

// String returns text such as "10.50.0.0/28 in shop/blue".
func (b Block) String() string { return b.Range.String() + " in " + b.Network.String() }

// BlocksOf returns the blocks in a SubnetLease.
func BlocksOf(l *tombolov1alpha1.SubnetLease) (out []NodeBlock) {
	network := derive.Object{Namespace: l.Spec.VirtualNetwork.Namespace, Name: l.Spec.VirtualNetwork.Name}
	for _, n := range l.Spec.Nodes {
		for _, text := range n.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, NodeBlock{n.Node, p.Masked(), network, uint16(l.Spec.Zone)})
			}
		}
	}
	return out
}

// FurtherAddress is an address of a Pod that a Node reports.
type FurtherAddress struct {
	IP  netip.Addr
	Pod derive.Object
	UID types.UID // "" if it is not known
	// Network is the VirtualNetwork.
	Network derive.Object
	// Own is set if it is the Pod's own network, and the Pod's first interface has addresses of the Node.
	Own bool
}

// maxFurther is the largest number of further addresses that count for a Node. With more, a faulty agent could delay
// all others.
const maxFurther = 16384

// FurtherOf returns the addresses in a NodeNetworkReport, sorted by address and network. If an address occurs twice in
// a network, the first entry is used.
func FurtherOf(n *tombolov1alpha1.NodeNetworkReport) (out []FurtherAddress) {
	for _, network := range n.Spec.Networks {
		for _, a := range network.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && len(out) < maxFurther {
				out = append(out, FurtherAddress{IP: ip, Pod: derive.Object{Namespace: network.Namespace, Name: a.Pod}, UID: a.UID,
					Network: derive.Object{Namespace: network.Namespace, Name: network.Name}, Own: a.Own})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b FurtherAddress) int { return a.key().Compare(b.key()) })
	return slices.CompactFunc(out, func(a, b FurtherAddress) bool { return a.key() == b.key() })
}

func (a FurtherAddress) key() FurtherAddr { return FurtherAddr{a.Network, a.IP} }

// addFurther adds the indexes by which further addresses are found.
func (t *unknownTables) addFurther(e *derive.Engine) {
	t.furtherAt = derive.NewIndex(t.all.Further, "address",
		func(_ derive.Object, list []FurtherAddress) (out []FurtherAddr) {
			for _, a := range list {
				out = append(out, a.key())
			}
			return out
		})
	t.furtherOf = derive.NewIndex(t.all.Further, "pod",
		func(_ derive.Object, list []FurtherAddress) (out []derive.Object) {
			for _, a := range list {
				out = append(out, a.Pod)
			}
			slices.SortFunc(out, derive.Object.Compare)
			return slices.Compact(out)
		})
	t.blocks = derive.NewIndex(t.all.Blocks, "block", func(_ derive.Object, list []NodeBlock) (out []Block) {
		for _, b := range list {
			out = append(out, Block{b.Network, podRange{b.Range}})
		}
		return out
	})
	t.separate = derive.NewIndex(t.all.Blocks, "separate network",
		func(_ derive.Object, list []NodeBlock) (out []derive.Object) {
			for _, b := range list {
				if b.Zone != 0 {
					out = append(out, b.Network)
				}
			}
			slices.SortFunc(out, derive.Object.Compare)
			return slices.Compact(out)
		})
	t.shared = derive.NewIndex(t.all.Blocks, "shared block", func(_ derive.Object, list []NodeBlock) (out []podRange) {
		for _, b := range list {
			if b.Zone == 0 {
				out = append(out, podRange{b.Range})
			}
		}
		return out
	})
	byLength := derive.NewIndex(t.all.Blocks, "block-length", func(_ derive.Object, list []NodeBlock) []rangeLength {
		out := make([]rangeLength, len(list))
		for i, b := range list {
			out[i] = rangeLength{b.Range.Addr().Is6(), b.Range.Bits()}
		}
		return out
	})
	t.blockLengths = derive.NewTable(e, "block-lengths",
		func(rangeLength, *derive.Reader) (bool, []problem.Problem) { return true, nil }, derive.KeysOfIndex(byLength))
}

// blockAt returns a block. If network is zero, it returns a block of a network that is not separate.
func (t *unknownTables) blockAt(r *derive.Reader, network derive.Object, p podRange) (out NodeBlock) {
	none := network == derive.Object{}
	rows := t.blockRows(r, network, p)
	for _, row := range rows {
		for _, b := range row.Value {
			if b.Range == p.Prefix && (none && b.Zone == 0 || b.Network == network) {
				return b
			}
		}
	}
	return out
}

// blockRows returns the rows with a block that blockAt may return.
func (t *unknownTables) blockRows(r *derive.Reader, network derive.Object, p podRange,
) []derive.Row[derive.Object, []NodeBlock] {
	if network == (derive.Object{}) {
		return list(r, t.all.Blocks, t.shared, p)
	}
	return list(r, t.all.Blocks, t.blocks, Block{network, p})
}

// blockOf returns the longest block of a network that has an address; r is nil between two passes. If network is zero,
// it searches all networks that are not separate.
func (t *unknownTables) blockOf(r *derive.Reader, network derive.Object, a netip.Addr) NodeBlock {
	lengths := t.blockLengths.All
	if r != nil {
		lengths = func() []derive.Row[rangeLength, bool] { return derive.All(r, t.blockLengths) }
	}
	for _, length := range lengths() {
		if p, ok := length.Key.around(a); ok {
			if b := t.blockAt(r, network, p); b.Node != "" {
				return b
			}
		}
	}
	return NodeBlock{}
}

// VirtualAddresses find Pods by their addresses in VirtualNetworks.
type VirtualAddresses struct {
	all *Tables
	// Addresses are the Pods that rules match by these addresses.
	Addresses *derive.Table[FurtherAddr, Holder]
	// Blocks are the blocks of Subnets. An address in a block without a row in Addresses belongs to an unknown Pod.
	Blocks *derive.Table[Block, RangeOfPods]
}

// BlockAt returns the block that contains an address, of a network that is not separate, or the zero value. Call it
// between two passes (derive.Engine.Do).
func (v VirtualAddresses) BlockAt(a netip.Addr) NodeBlock {
	return v.all.unknown.blockOf(nil, derive.Object{}, a)
}

// BlockIn returns the block of a network that contains an address, or the zero value. Call it between two passes
// (derive.Engine.Do).
func (v VirtualAddresses) BlockIn(network derive.Object, a netip.Addr) NodeBlock {
	return v.all.unknown.blockOf(nil, network, a)
}

// PodAt returns the Pod that has an address in a VirtualNetwork that is not separate. Call it between two passes
// (derive.Engine.Do).
func (v VirtualAddresses) PodAt(a netip.Addr) (Occupant, bool) {
	places, unknown := &v.all.places, &v.all.unknown
	for _, port := range places.furtherAt.Keys(Addr{a}) {
		if at, _ := places.attachments.Get(port); len(unknown.separate.Keys(at.Network)) == 0 {
			return v.PodIn(at.Network, a)
		}
	}
	return v.PodIn(v.BlockAt(a).Network, a)
}

// PodIn returns the Pod that has an address in a VirtualNetwork. Call it between two passes (derive.Engine.Do).
func (v VirtualAddresses) PodIn(network derive.Object, a netip.Addr) (Occupant, bool) {
	return v.all.places.further(nil, FurtherAddr{network, a})
}

// Of returns the addresses of a Pod in VirtualNetworks. It is called between two passes (derive.Engine.Do).
func (v VirtualAddresses) Of(pod derive.Object) []FurtherAddress {
	f, _ := v.all.Pods.Get(pod)
	return v.all.places.furtherOfPod(nil, pod, f)
}

// furtherOfPod returns the addresses of a Pod in VirtualNetworks, sorted; r is nil between two passes.
func (t *attachmentTables) furtherOfPod(r *derive.Reader, pod derive.Object, f PodFacts) (out []FurtherAddress) {
	var claims []FurtherAddr
	if f.Node == t.all.node {
		for _, row := range list(r, t.attachments, t.attachmentsOf, pod) {
			if row.Value.Network == (derive.Object{}) {
				continue
			}
			for _, ip := range row.Value.IPs {
				claims = append(claims, FurtherAddr{row.Value.Network, ip})
			}
		}
	} else {
		for _, row := range list(r, t.all.Further, t.all.unknown.furtherOf, pod) {
			for _, a := range row.Value {
				if a.Pod == pod {
					claims = append(claims, a.key())
				}
			}
		}
	}
	for _, a := range sorted(claims, FurtherAddr.Compare) {
		if who, _ := t.further(r, a); who.Known && who.Pod == pod {
			out = append(out, FurtherAddress{IP: a.Addr, Pod: pod, UID: f.UID, Network: who.Network})
		}
	}
	return out
}

// furtherAddress is the Pod that has an address in a VirtualNetwork, if a rule needs it.
func (t *identityTables) furtherAddress(a FurtherAddr, r *derive.Reader) (Holder, []problem.Problem) {
	who, _ := t.all.places.further(r, a)
	return t.holderOf(who, r), nil
}

// rangeOfBlock is what a block of a Subnet means to policies.
func (t *unknownTables) rangeOfBlock(b Block, r *derive.Reader) (out RangeOfPods, _ []problem.Problem) {
	out.Network, out.Denied = b.Network, t.deniedUnknown(r)
	return out, nil
}

// further returns the Pod that has an address in a VirtualNetwork; r is nil between two passes.
func (t *attachmentTables) further(r *derive.Reader, a FurtherAddr) (Occupant, bool) {
	if who, ok := t.attachedAt(r, list(r, t.attachments, t.furtherHere, a)); ok {
		return who, true
	}
	rows := list(r, t.all.Further, t.all.unknown.furtherAt, a)
	if len(rows) == 0 {
		return Occupant{}, false
	}
	node := t.all.unknown.blockOf(r, a.Network, a.Addr).Node // a Node cannot move its block to another network
	for _, row := range rows {
		if row.Key.Name != node || node == t.all.node {
			continue
		}
		i, found := slices.BinarySearchFunc(row.Value, a, func(f FurtherAddress, a FurtherAddr) int {
			return f.key().Compare(a)
		})
		if !found {
			continue
		}
		f, ok := rowOf(r, t.all.Pods, row.Value[i].Pod)
		if !ok || f.Node != node || row.Value[i].UID != "" && row.Value[i].UID != f.UID {
			continue
		}
		identity, _ := rowOf(r, t.all.Identities, row.Value[i].Pod)
		return Occupant{Pod: row.Value[i].Pod, Known: true, Identity: identity, Network: row.Value[i].Network}, true
	}
	return Occupant{}, false
}
