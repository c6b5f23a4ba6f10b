package policy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// An address in a podCIDR of this cluster without a known Pod belongs to an unknown Pod. Either the Pod's kubelet has
// not reported the address yet, or the Pod was deleted by force and still runs. A rule that denies by labels, or by the
// names of ports, denies unknown Pods. No rule allows unknown Pods by labels or names. Ranges of addresses match their
// addresses like any others. The first address of a podCIDR is the Node's own, not a Pod's. Neither is the last one, if
// Nodes serve clients outside.
//
// The switch can distinguish an unknown Pod only from known Pods. So if a rule denies by labels, Addresses has every
// Pod of the cluster, whether a rule names its identity or not.

// UnknownPod is the number of the identity of unknown Pods. No set of labels has it.
const UnknownPod = MaxIdentity

// Compare makes a Direction the key of a table.
func (d Direction) Compare(o Direction) int { return cmp.Compare(d, o) }

// PodRange is a podCIDR as the key of a table.
type PodRange = podRange

// RangeOfPods is what a podCIDR means to policies.
type RangeOfPods struct {
	Gateway netip.Addr // of the Node; not valid for a block of a Subnet (Virtual.Blocks)
	Source  netip.Addr // from which clients outside reach Pods of other Nodes; not valid if they are not served
	Denied  [2]bool    // by direction: a rule denies unknown Pods
	// Network is the VirtualNetwork of a block.
	Network derive.Object
}

// IsNode reports whether an address of a podCIDR is the Node's, and no Pod's.
func (p RangeOfPods) IsNode(a netip.Addr) bool {
	return a == p.Gateway || p.Source.IsValid() && a == p.Source
}

// Own returns the addresses of a podCIDR that are the Node's.
func (p RangeOfPods) Own() []netip.Addr {
	var out []netip.Addr
	if p.Gateway.IsValid() {
		out = append(out, p.Gateway)
	}
	if p.Source.IsValid() {
		out = append(out, p.Source)
	}
	return out
}

// ServiceSource returns the address of a podCIDR from which clients outside reach endpoints on other Nodes: the last
// address that a Pod could have. No interface has it. A range of fewer than eight addresses has no such address.
func ServiceSource(podCIDR netip.Prefix) (netip.Addr, bool) {
	if podCIDR.Addr().BitLen()-podCIDR.Bits() < 3 {
		return netip.Addr{}, false
	}
	last := podCIDR.Masked().Addr().AsSlice()
	for bit := podCIDR.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	last[len(last)-1]-- // the last address of all is IPv4's broadcast address
	ip, _ := netip.AddrFromSlice(last)
	return ip, true
}

// unknownTables find addresses of Pods that are not known.
type unknownTables struct {
	all     *Tables
	ranges  *derive.Index[podRange, derive.Object, NodeFacts] // Nodes by their podCIDRs
	lengths *derive.Table[rangeLength, bool]                  // that podCIDRs have
	denying *derive.Table[Direction, bool]                    // directions in which a rule denies unknown Pods

	blocks       *derive.Index[Block, derive.Object, []NodeBlock]
	shared       *derive.Index[podRange, derive.Object, []NodeBlock]      // of networks that are not separate
	separate     *derive.Index[derive.Object, derive.Object, []NodeBlock] // by separate network
	blockLengths *derive.Table[rangeLength, bool]
	furtherAt    *derive.Index[FurtherAddr, derive.Object, []FurtherAddress]
	furtherOf    *derive.Index[derive.Object, derive.Object, []FurtherAddress] // by Pod
}

// unknownPods adds the tables that are about unknown Pods.
func (t *unknownTables) unknownPods(e *derive.Engine) {
	t.denying = derive.NewTable(e, "denying-directions",
		func(Direction, *derive.Reader) (bool, []problem.Problem) { return true, nil },
		derive.KeysOfIndex(derive.NewIndex(t.all.rules.standing, "denying", func(k RuleKey, f ruleFacts) []Direction {
			if !f.deniesUnknown(k.Direction) {
				return nil
			}
			return []Direction{k.Direction}
		})))
	t.all.PodRanges = derive.NewTable(e, "pod-ranges", t.rangeOfPods, derive.KeysOfIndex(t.ranges))
	t.all.Virtual.Blocks = derive.NewTable(e, "block-ranges", t.rangeOfBlock, derive.KeysOfIndex(t.blocks))
}

// deniesUnknown reports whether a rule denies by the labels of the other end, or by the names of the other end's ports.
func (f ruleFacts) deniesUnknown(d Direction) bool {
	return f.denies() && (!f.AnyPeer && len(f.Peers) > 0 || f.namesUnknown(d))
}

// namesUnknown reports whether a rule denies by the names of the other end's ports.
func (f ruleFacts) namesUnknown(d Direction) bool {
	return f.denies() && d == Egress && len(f.Named) > 0
}

// unknownPorts returns the protocols for which a rule denies every port of unknown Pods. These are the protocols of its
// named ports.
func (f ruleFacts) unknownPorts(d Direction) (out []corev1.Protocol) {
	if !f.namesUnknown(d) {
		return nil
	}
	for _, name := range f.Named {
		out = append(out, name.Protocol)
	}
	return sorted(out, cmp.Compare[corev1.Protocol])
}

func (t *unknownTables) rangeOfPods(p PodRange, r *derive.Reader) (out RangeOfPods, _ []problem.Problem) {
	if out.Gateway = p.Addr().Next(); !p.Contains(out.Gateway) {
		return RangeOfPods{}, nil // it has no room for Pods
	}
	if t.all.Outside {
		out.Source, _ = ServiceSource(p.Prefix)
	}
	out.Denied = t.deniedUnknown(r)
	return out, nil
}

// deniedUnknown returns the directions in which a rule denies unknown Pods.
func (t *unknownTables) deniedUnknown(r *derive.Reader) (out [2]bool) {
	for d := range out {
		out[d], _ = derive.Get(r, t.denying, Direction(d))
	}
	return out
}

// DeniesUnknown reports whether a rule of this Node denies unknown Pods, in any direction.
func (t *Tables) DeniesUnknown(r *derive.Reader) bool {
	ingress, _ := derive.Get(r, t.unknown.denying, Ingress)
	egress, _ := derive.Get(r, t.unknown.denying, Egress)
	return ingress || egress
}

// rangesWith are the podCIDRs that an address is in.
func (t *unknownTables) rangesWith(a netip.Addr) (out []RangeOfPods) {
	for _, length := range t.lengths.All() {
		if p, ok := length.Key.around(a); ok {
			if of, ok := t.all.PodRanges.Get(p); ok {
				out = append(out, of)
			}
		}
	}
	return out
}

// deniesUnknownAt reports whether a rule of a direction denies unknown Pods, and an address without a row in Addresses
// belongs to one. It does if it is in a podCIDR and is not a Node's own address.
func (t *unknownTables) deniesUnknownAt(d Direction, a netip.Addr) bool {
	ranges := t.rangesWith(a)
	return slices.ContainsFunc(ranges, func(p RangeOfPods) bool { return p.Denied[d] }) &&
		!slices.ContainsFunc(ranges, func(p RangeOfPods) bool { return p.IsNode(a) })
}

// IsUnknownPod reports whether an address belongs to an unknown Pod, even if no rule needs that. Call it between two
// passes (derive.Engine.Do).
func (t *Tables) IsUnknownPod(a netip.Addr) bool {
	ranges := t.unknown.rangesWith(a)
	if len(ranges) == 0 || slices.ContainsFunc(ranges, func(p RangeOfPods) bool { return p.IsNode(a) }) {
		return false
	}
	who, _ := t.OccupantAt(a)
	return who.Identity == ""
}
