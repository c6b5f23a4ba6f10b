package policy

import (
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

// NodeBlock is a range that the further addresses of a Node's Pods are from.
type NodeBlock struct {
	Node    string
	Range   netip.Prefix
	Network derive.Object // the VirtualNetwork
}

// BlocksOf returns the blocks in a SubnetLease.
func BlocksOf(l *tombolov1alpha1.SubnetLease) (out []NodeBlock) {
	network := derive.Object{Namespace: l.Spec.VirtualNetwork.Namespace, Name: l.Spec.VirtualNetwork.Name}
	for _, n := range l.Spec.Nodes {
		for _, text := range n.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, NodeBlock{n.Node, p.Masked(), network})
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
}

// maxFurther is the largest number of further addresses that count for a Node. With more, a faulty agent could delay
// all others.
const maxFurther = 16384

// FurtherOf returns the addresses in a NodeNetworkReport, sorted by address. If an address occurs twice, the first
// entry is used.
func FurtherOf(n *tombolov1alpha1.NodeNetworkReport) (out []FurtherAddress) {
	for _, network := range n.Spec.Networks {
		for _, a := range network.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && len(out) < maxFurther {
				out = append(out, FurtherAddress{IP: ip, Pod: derive.Object{Namespace: network.Namespace, Name: a.Pod}, UID: a.UID,
					Network: derive.Object{Namespace: network.Namespace, Name: network.Name}})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b FurtherAddress) int { return a.IP.Compare(b.IP) })
	return slices.CompactFunc(out, func(a, b FurtherAddress) bool { return a.IP == b.IP })
}

// addFurther adds the indexes by which further addresses are found.
func (t *unknownTables) addFurther(e *derive.Engine) {
	t.furtherAt = derive.NewIndex(t.all.Further, "address", func(_ derive.Object, list []FurtherAddress) (out []Addr) {
		for _, a := range list {
			out = append(out, Addr{a.IP})
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
	t.blocks = derive.NewIndex(t.all.Blocks, "block", func(_ derive.Object, list []NodeBlock) (out []podRange) {
		for _, b := range list {
			out = append(out, podRange{b.Range})
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

// blockAt returns a block.
func (t *unknownTables) blockAt(r *derive.Reader, p podRange) (out NodeBlock) {
	for _, row := range list(r, t.all.Blocks, t.blocks, p) {
		for _, b := range row.Value {
			if b.Range == p.Prefix {
				return b
			}
		}
	}
	return out
}

// blockOf returns the longest block that has an address; r is nil between two passes.
func (t *unknownTables) blockOf(r *derive.Reader, a netip.Addr) NodeBlock {
	lengths := t.blockLengths.All
	if r != nil {
		lengths = func() []derive.Row[rangeLength, bool] { return derive.All(r, t.blockLengths) }
	}
	for _, length := range lengths() {
		if p, ok := length.Key.around(a); ok {
			if b := t.blockAt(r, p); b.Node != "" {
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
	Addresses *derive.Table[Addr, Holder]
	// Blocks are the blocks of Subnets. An address in a block without a row in Addresses belongs to an unknown Pod.
	Blocks *derive.Table[PodRange, RangeOfPods]
}

// BlockAt returns the block of a Subnet that contains an address, or the zero value. Call it between two passes
// (derive.Engine.Do).
func (v VirtualAddresses) BlockAt(a netip.Addr) NodeBlock { return v.all.unknown.blockOf(nil, a) }

// PodAt returns the Pod that has an address in a VirtualNetwork. It is called between two passes
// (derive.Engine.Do).
func (v VirtualAddresses) PodAt(a netip.Addr) (Occupant, bool) {
	return v.all.places.further(nil, Addr{a})
}

// Of returns the addresses of a Pod in VirtualNetworks. It is called between two passes (derive.Engine.Do).
func (v VirtualAddresses) Of(pod derive.Object) []FurtherAddress {
	f, _ := v.all.Pods.Get(pod)
	return v.all.places.furtherOfPod(nil, pod, f)
}

// furtherOfPod returns the addresses of a Pod in VirtualNetworks, sorted; r is nil between two passes.
func (t *attachmentTables) furtherOfPod(r *derive.Reader, pod derive.Object, f PodFacts) (out []FurtherAddress) {
	var claims []netip.Addr
	if f.Node == t.all.node {
		for _, row := range list(r, t.attachments, t.attachmentsOf, pod) {
			if row.Value.Network != (derive.Object{}) {
				claims = append(claims, row.Value.IPs...)
			}
		}
	} else {
		for _, row := range list(r, t.all.Further, t.all.unknown.furtherOf, pod) {
			for _, a := range row.Value {
				if a.Pod == pod {
					claims = append(claims, a.IP)
				}
			}
		}
	}
	for _, ip := range sorted(claims, netip.Addr.Compare) {
		if who, _ := t.further(r, Addr{ip}); who.Known && who.Pod == pod {
			out = append(out, FurtherAddress{IP: ip, Pod: pod, UID: f.UID, Network: who.Network})
		}
	}
	return out
}

// furtherAddress is the Pod that has an address in a VirtualNetwork, if a rule needs it.
func (t *identityTables) furtherAddress(a Addr, r *derive.Reader) (Holder, []problem.Problem) {
	who, _ := t.all.places.further(r, a)
	return t.holderOf(who, r), nil
}

// rangeOfBlock is what a block of a Subnet means to policies.
func (t *unknownTables) rangeOfBlock(p PodRange, r *derive.Reader) (out RangeOfPods, _ []problem.Problem) {
	out.Network, out.Denied = t.blockAt(r, p).Network, t.deniedUnknown(r)
	return out, nil
}

// further returns the Pod that has an address in a VirtualNetwork; r is nil between two passes.
func (t *attachmentTables) further(r *derive.Reader, a Addr) (Occupant, bool) {
	if who, ok := t.attachedAt(r, t.furtherHere, a); ok {
		return who, true
	}
	rows := list(r, t.all.Further, t.all.unknown.furtherAt, a)
	if len(rows) == 0 {
		return Occupant{}, false
	}
	block := t.all.unknown.blockOf(r, a.Addr)
	node := block.Node
	for _, row := range rows {
		if row.Key.Name != node || node == t.all.node {
			continue
		}
		i, found := slices.BinarySearchFunc(row.Value, a.Addr, func(f FurtherAddress, ip netip.Addr) int {
			return f.IP.Compare(ip)
		})
		if !found || row.Value[i].Network != block.Network { // a Node cannot move its block to another network
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
