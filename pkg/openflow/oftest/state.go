package oftest

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// state is a packet on its way, with everything that flows can match.
type state struct {
	fields map[ofp.Field]ofp.Value // what is not there is zero
	stack  []ofp.Value
	conn   *conn // what the last look-up found, in this zone
	zone   uint16
	hidden [2]uint16   // ports of a fragment; identifier of an ICMP message
	icmp   ICMPMessage // of a fragment
	proto  uint8       // of a later fragment of IPv6
	inner  *Packet
	bare   bool // a message of Neighbor Discovery without an option
}

// Bits of ip_frag (nicira-ext.h).
const (
	fragAny   = 1
	fragLater = 2
)

// ICMP destination unreachable, which stands for all errors, in both versions.
const (
	icmpUnreachable   = 3
	icmpV6Unreachable = 1
)

// protoFragment is the number of IPv6's header for fragments, which Open vSwitch treats as the protocol of a later
// fragment.
const protoFragment = 44

// ports are the fields of a protocol's ports.
var ports = map[uint8][2]ofp.Field{TCP: {ofp.TCPSrc, ofp.TCPDst}, UDP: {ofp.UDPSrc, ofp.UDPDst},
	SCTP: {ofp.SCTPSrc, ofp.SCTPDst}}

const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeIPv6 = 0x86dd
)

func newState(p Packet) *state {
	st := &state{fields: map[ofp.Field]ofp.Value{}}
	number := func(f ofp.Field, v uint64) { st.set(f, ofp.Value{Lo: v}) }
	number(ofp.InPort, uint64(p.InPort))
	st.set(ofp.EthSrc, ofp.ToValue(p.EthSrc[:]))
	st.set(ofp.EthDst, ofp.ToValue(p.EthDst[:]))
	st.setAddr(ofp.TunIPv4Src, ofp.TunIPv6Src, p.TunSrc)
	st.setAddr(ofp.TunIPv4Dst, ofp.TunIPv6Dst, p.TunDst)
	number(ofp.TunID, p.TunID)
	number(ofp.VLANVID, uint64(p.VLAN&0x1fff))
	number(ofp.VLANPCP, uint64(p.VLAN>>13))
	st.inner = p.Inner
	if a := p.ARP; a != nil {
		number(ofp.EthType, typeARP)
		number(ofp.ARPOp, uint64(a.Op))
		st.set(ofp.ARPSHA, ofp.ToValue(a.SHA[:]))
		st.set(ofp.ARPTHA, ofp.ToValue(a.THA[:]))
		st.setAddr(ofp.ARPSPA, ofp.ARPSPA, a.SPA)
		st.setAddr(ofp.ARPTPA, ofp.ARPTPA, a.TPA)
		return st
	}
	number(ofp.EthType, typeIPv4)
	if p.IPDst.Is6() {
		number(ofp.EthType, typeIPv6)
	}
	st.setAddr(ofp.IPv4Src, ofp.IPv6Src, p.IPSrc)
	st.setAddr(ofp.IPv4Dst, ofp.IPv6Dst, p.IPDst)
	number(ofp.IPProto, uint64(p.Proto))
	number(ofp.IPTTL, uint64(p.TTL))
	if p.TTL == 0 && !p.Expired {
		number(ofp.IPTTL, 64)
	}
	switch {
	case p.Inner != nil && p.Proto == ICMPv6:
		number(ofp.ICMPv6Type, icmpV6Unreachable)
	case p.Inner != nil:
		number(ofp.ICMPType, icmpUnreachable)
	case p.Proto == ICMP:
		number(ofp.ICMPType, uint64(p.ICMP.Type))
		number(ofp.ICMPCode, uint64(p.ICMP.Code))
		st.hidden[0] = p.SrcPort
	case p.Proto == ICMPv6:
		number(ofp.ICMPv6Type, uint64(p.ICMP.Type))
		number(ofp.ICMPv6Code, uint64(p.ICMP.Code))
		st.hidden[0] = p.SrcPort
		st.setND(p.ND)
	}
	if p.Fragment != Whole {
		number(ofp.IPFrag, map[Fragment]uint64{First: fragAny, Later: fragAny | fragLater}[p.Fragment])
		st.hidden, st.icmp = [2]uint16{p.SrcPort, p.DstPort}, p.ICMP
		for _, f := range []ofp.Field{ofp.ICMPType, ofp.ICMPCode, ofp.ICMPv6Type, ofp.ICMPv6Code} {
			number(f, 0) // where the ports of others are
		}
		if p.Fragment == Later && p.IPDst.Is6() { // its protocol is in the first one
			st.proto = p.Proto
			number(ofp.IPProto, protoFragment)
		}
		return st
	}
	if f, ok := ports[p.Proto]; ok {
		number(f[0], uint64(p.SrcPort))
		number(f[1], uint64(p.DstPort))
	}
	if p.Proto == TCP {
		number(ofp.TCPFlags, uint64(p.Flags))
	}
	return st
}

// packet is the packet as it is now.
func (st *state) packet() Packet {
	p := Packet{
		InPort: ofp.Port(st.get(ofp.InPort).Lo), EthSrc: st.mac(ofp.EthSrc), EthDst: st.mac(ofp.EthDst),
		VLAN: uint16(st.get(ofp.VLANVID).Lo | st.get(ofp.VLANPCP).Lo<<13), Inner: st.inner,
		TunSrc: st.addr(ofp.TunIPv4Src, ofp.TunIPv6Src), TunDst: st.addr(ofp.TunIPv4Dst, ofp.TunIPv6Dst),
		TunID: st.get(ofp.TunID).Lo,
	}
	if st.get(ofp.EthType).Lo == typeARP {
		p.ARP = &ARP{
			Op: uint16(st.get(ofp.ARPOp).Lo), SHA: st.mac(ofp.ARPSHA), THA: st.mac(ofp.ARPTHA),
			SPA: st.addr(ofp.ARPSPA, 0), TPA: st.addr(ofp.ARPTPA, 0),
		}
		return p
	}
	p.Proto, p.TTL = uint8(st.get(ofp.IPProto).Lo), uint8(st.get(ofp.IPTTL).Lo)
	p.IPSrc, p.IPDst = st.addr(ofp.IPv4Src, ofp.IPv6Src), st.addr(ofp.IPv4Dst, ofp.IPv6Dst)
	if st.get(ofp.EthType).Lo == typeIPv6 { // which may be the unspecified address
		p.IPSrc, p.IPDst = st.addr16(ofp.IPv6Src), st.addr16(ofp.IPv6Dst)
	}
	p.Expired = p.TTL == 0
	if frag := st.get(ofp.IPFrag).Lo; frag != 0 {
		p.Fragment, p.SrcPort, p.DstPort, p.ICMP = First, st.hidden[0], st.hidden[1], st.icmp
		if frag&fragLater != 0 {
			p.Fragment = Later
		}
		if p.Proto == protoFragment {
			p.Proto = st.proto
		}
		return p
	}
	if p.Proto == ICMP && p.Inner == nil {
		p.SrcPort, p.ICMP = st.hidden[0], ICMPMessage{uint8(st.get(ofp.ICMPType).Lo), uint8(st.get(ofp.ICMPCode).Lo)}
	}
	if p.Proto == ICMPv6 && p.Inner == nil {
		p.SrcPort = st.hidden[0]
		p.ICMP = ICMPMessage{uint8(st.get(ofp.ICMPv6Type).Lo), uint8(st.get(ofp.ICMPv6Code).Lo)}
		p.ND = st.nd(p.ICMP.Type)
	}
	if f, ok := ports[p.Proto]; ok {
		p.SrcPort, p.DstPort = uint16(st.get(f[0]).Lo), uint16(st.get(f[1]).Lo)
	}
	p.Flags = uint16(st.get(ofp.TCPFlags).Lo)
	return p
}

func (st *state) copy() *state {
	c := *st
	c.fields = maps.Clone(st.fields)
	c.stack = append([]ofp.Value(nil), st.stack...)
	return &c
}

// parts are the 32-bit registers that a wide one consists of, most significant first.
func parts(f ofp.Field) []ofp.Field {
	width, first := 0, ofp.Field(0)
	switch {
	case f >= ofp.XReg0 && f <= ofp.XReg15:
		width, first = 2, ofp.Reg0+2*(f-ofp.XReg0)
	case f >= ofp.XXReg0 && f <= ofp.XXReg7:
		width, first = 4, ofp.Reg0+4*(f-ofp.XXReg0)
	}
	var out []ofp.Field
	for i := range width {
		out = append(out, first+ofp.Field(i))
	}
	return out
}

func (st *state) get(f ofp.Field) ofp.Value {
	if wide := parts(f); wide != nil {
		var v ofp.Value
		for _, r := range wide {
			v = v.Shl(32).Or(st.fields[r])
		}
		return v
	}
	return st.fields[f]
}

func (st *state) set(f ofp.Field, v ofp.Value) {
	wide := parts(f)
	if wide == nil {
		st.fields[f] = v.And(ofp.Ones(f.Bits()))
		return
	}
	for i, r := range wide {
		st.fields[r] = v.Shr(32 * (len(wide) - 1 - i)).And(ofp.Ones(32))
	}
}

// read and write handle a range of bits.
func (st *state) read(r ofp.Bits) ofp.Value {
	return st.get(r.Field).Shr(r.First).And(ofp.Ones(r.Width))
}

func (st *state) write(r ofp.Bits, v ofp.Value) {
	mask := ofp.Ones(r.Width).Shl(r.First)
	st.setMasked(r.Field, v.Shl(r.First), mask)
}

func (st *state) setMasked(f ofp.Field, v, mask ofp.Value) {
	st.set(f, st.get(f).And(mask.Not()).Or(v.And(mask)))
}

func (st *state) mac(f ofp.Field) ofp.MAC { return ofp.MAC(st.get(f).Append(nil, 6)) }

// addr is the address in the field that is not zero.
func (st *state) addr(v4, v6 ofp.Field) netip.Addr {
	if v := st.get(v4); !v.IsZero() {
		return netip.AddrFrom4([4]byte(v.Append(nil, 4)))
	}
	if v := st.get(v6); !v.IsZero() {
		return netip.AddrFrom16([16]byte(v.Append(nil, 16)))
	}
	return netip.Addr{}
}

// addr16 is the IPv6 address in a field.
func (st *state) addr16(f ofp.Field) netip.Addr {
	return netip.AddrFrom16([16]byte(st.get(f).Append(nil, 16)))
}

// setND sets the fields of Neighbor Discovery. A switch has two fields for the link-layer addresses, one for each kind
// of option.
func (st *state) setND(n *ND) {
	if n == nil {
		return
	}
	st.bare = n.Option == 0
	st.set(ofp.NDTarget, ofp.ToValue(n.Target.AsSlice()))
	st.set(ofp.NDReserved, ofp.Value{Lo: uint64(n.Flags)})
	st.set(ofp.NDOptionsType, ofp.Value{Lo: uint64(n.Option)})
	switch n.Option {
	case flow.NDSourceOption:
		st.set(ofp.NDSLL, ofp.ToValue(n.Link[:]))
	case flow.NDTargetOption:
		st.set(ofp.NDTLL, ofp.ToValue(n.Link[:]))
	}
}

// nd reads them, for a type of message. A switch adds no option to a message.
func (st *state) nd(icmp uint8) *ND {
	if icmp != flow.NeighborSolicitation && icmp != flow.NeighborAdvertisement {
		return nil
	}
	n := &ND{Target: st.addr16(ofp.NDTarget), Flags: uint32(st.get(ofp.NDReserved).Lo),
		Option: uint8(st.get(ofp.NDOptionsType).Lo)}
	switch {
	case st.bare:
		n.Option = 0
	case n.Option == flow.NDSourceOption:
		n.Link = st.mac(ofp.NDSLL)
	case n.Option == flow.NDTargetOption:
		n.Link = st.mac(ofp.NDTLL)
	}
	return n
}

func (st *state) setAddr(v4, v6 ofp.Field, a netip.Addr) {
	switch {
	case a.Is4():
		st.set(v4, ofp.ToValue(a.AsSlice()))
	case a.Is6():
		st.set(v6, ofp.ToValue(a.AsSlice()))
	}
}

func (st *state) matches(m flow.Match) (bool, error) {
	for c := range m.OXM().All() {
		if c.Field == 0 {
			return false, fmt.Errorf("match field % x is not known", c.Raw)
		}
		if st.get(c.Field).And(c.Mask) != c.Value {
			return false, nil
		}
	}
	return true, nil
}
