package ofp

import (
	"errors"
	"fmt"
)

// PushVLAN pushes a VLAN header with the given Ethernet type (0x8100 or 0x88a8).
type PushVLAN struct{ EthType uint16 }

// PopVLAN pops the outermost VLAN header.
type PopVLAN struct{}

// PushMPLS pushes an MPLS label stack entry; EthType is 0x8847 or 0x8848.
type PushMPLS struct{ EthType uint16 }

// PopMPLS pops the outermost MPLS label stack entry; EthType is of what follows it.
type PopMPLS struct{ EthType uint16 }

// DecMPLSTTL decrements the TTL of the outermost MPLS label stack entry.
type DecMPLSTTL struct{}

// SetMPLSTTL sets that TTL.
type SetMPLSTTL struct{ TTL uint8 }

// DecTTL decrements the IP TTL or hop limit. If it reaches zero, the controllers in IDs are notified. An empty list
// means the controller with id 0.
type DecTTL struct{ IDs []uint16 }

// SetTTL sets the IP TTL or hop limit.
type SetTTL struct{ TTL uint8 }

// Packet types (OpenFlow 1.5, 7.2.3.11): a namespace and a type within it. In namespace 1 the
// type is an Ethernet type.
const (
	PacketEthernet     uint32 = packetEthernet
	PacketNSH          uint32 = 1<<16 | uint32(ethTypeNSH)
	PacketMPLS         uint32 = 1<<16 | uint32(ethTypeMPLS)
	PacketMPLSMcast    uint32 = 1<<16 | uint32(ethTypeMPLM)
	PacketUseNextProto uint32 = 0xfffe
)

// Encap puts a new header in front of the packet: PacketEthernet, PacketNSH, PacketMPLS or
// PacketMPLSMcast. HdrSize is 0 for the usual size; Props are for NSH (NXAST_ENCAP).
type Encap struct {
	PacketType uint32
	HdrSize    uint16
	Props      []EncapProp
}

// Kinds of properties of an [Encap].
const (
	EncapNSHMDType uint8 = 1
	EncapNSHTLV    uint8 = 2
)

// EncapProp is a property of a new NSH header: the type of its metadata (1 or 2), or a TLV for metadata of type 2.
type EncapProp struct {
	Kind     uint8
	MDType   uint8
	TLVClass uint16
	TLVType  uint8
	Data     string // up to 240 bytes
}

// Decap removes the outermost header. PacketType is the type of the inner packet, or PacketUseNextProto if the header
// contains it (NXAST_DECAP).
type Decap struct{ PacketType uint32 }

// DecNSHTTL decrements the TTL of an NSH header (NXAST_DEC_NSH_TTL).
type DecNSHTTL struct{}

func (a PushVLAN) check() error {
	if a.EthType != 0x8100 && a.EthType != 0x88a8 {
		return fmt.Errorf("push_vlan: %#x is no VLAN's Ethernet type, want 0x8100 or 0x88a8", a.EthType)
	}
	return nil
}

func (a PushVLAN) appendTo(e *encoder) { e.ethType(actPushVLAN, a.EthType) }

func (e *encoder) ethType(typ, v uint16) {
	s := e.actionStart(typ)
	e.u16(v)
	e.actionEnd(s)
}

func (e *encoder) ttl(typ uint16, v uint8) {
	s := e.actionStart(typ)
	e.u8(v)
	e.actionEnd(s)
}

func (PopVLAN) check() error        { return nil }
func (PopVLAN) appendTo(e *encoder) { e.simple(actPopVLAN) }

func (a PushMPLS) check() error {
	if a.EthType != ethTypeMPLS && a.EthType != ethTypeMPLM {
		return fmt.Errorf("push_mpls: %#x is not MPLS's Ethernet type, want 0x8847 or 0x8848", a.EthType)
	}
	return nil
}

func (a PushMPLS) appendTo(e *encoder)   { e.ethType(actPushMPLS, a.EthType) }
func (PopMPLS) check() error             { return nil }
func (a PopMPLS) appendTo(e *encoder)    { e.ethType(actPopMPLS, a.EthType) }
func (DecMPLSTTL) check() error          { return nil }
func (DecMPLSTTL) appendTo(e *encoder)   { e.simple(actDecMPLSTTL) }
func (SetMPLSTTL) check() error          { return nil }
func (a SetMPLSTTL) appendTo(e *encoder) { e.ttl(actSetMPLSTTL, a.TTL) }
func (SetTTL) check() error              { return nil }
func (a SetTTL) appendTo(e *encoder)     { e.ttl(actSetTTL, a.TTL) }

func (a DecTTL) check() error {
	if len(a.IDs) > 0x7ff0 {
		return fmt.Errorf("dec_ttl: %d controllers are more than an action can name", len(a.IDs))
	}
	return nil
}

func (a DecTTL) appendTo(e *encoder) {
	if len(a.IDs) == 0 {
		e.simple(actDecTTL)
		return
	}
	s := e.nicira(nxDecTTLIDs)
	e.u16(uint16(len(a.IDs)))
	e.zero(4)
	for _, id := range a.IDs {
		e.u16(id)
	}
	e.actionEnd(s)
}

func (d *decoder) decTTLIDs() Action {
	n := int(d.u16("n_controllers"))
	d.skip(4)
	ids := make([]uint16, 0, min(n, d.left()/2))
	for range n {
		if !d.ok() {
			return nil
		}
		ids = append(ids, d.u16("controller id"))
	}
	if n == 0 {
		return nil
	}
	return DecTTL{ids}
}

func (a Encap) check() error {
	switch a.PacketType {
	case PacketNSH:
	case PacketEthernet, PacketMPLS, PacketMPLSMcast:
		if len(a.Props) > 0 {
			return errors.New("encap: only nsh has properties")
		}
	default:
		return fmt.Errorf("encap: packet type %#x cannot be put on, want ethernet, nsh, mpls or mpls_mc", a.PacketType)
	}
	for _, p := range a.Props {
		switch {
		case p.Kind == EncapNSHMDType && (p.MDType < 1 || p.MDType > 2):
			return fmt.Errorf("encap: NSH has metadata of type 1 or 2, not %d", p.MDType)
		case p.Kind == EncapNSHMDType && p.TLVClass == 0 && p.TLVType == 0 && p.Data == "":
		case p.Kind == EncapNSHTLV && p.MDType == 0 && len(p.Data) <= 240:
		default:
			return fmt.Errorf("encap: property %+v is neither an md_type nor a tlv of up to 240 bytes", p)
		}
	}
	return nil
}

// propsNSH is the class of NSH's properties (ofp-ed-props.h, OFPPPC_NSH).
const propsNSH uint16 = 4

func (a Encap) appendTo(e *encoder) {
	s := e.nicira(nxEncap)
	e.u16(a.HdrSize)
	e.u32(a.PacketType)
	for _, p := range a.Props {
		e.u16(propsNSH)
		e.u8(p.Kind)
		if p.Kind == EncapNSHMDType {
			e.u8(5)
			e.u8(p.MDType)
			e.zero(3)
			continue
		}
		at := len(e.b)
		e.u8(uint8(8 + (len(p.Data)+7)/8*8))
		e.u16(p.TLVClass)
		e.u8(p.TLVType)
		e.u8(uint8(len(p.Data)))
		e.str(p.Data)
		e.pad8(at - 3)
	}
	e.actionEnd(s)
}

func (d *decoder) encap() Action {
	a := Encap{HdrSize: d.u16("hdr_size"), PacketType: d.u32("new packet type")}
	for d.left() > 0 {
		class, kind, n := d.u16("property class"), d.u8("property type"), int(d.u8("property length"))
		if d.ok() && (class != propsNSH || n < 5) {
			d.fail("property", "class %d type %d length %d is not known", class, kind, n)
		}
		p := d.sub("property", (n+7)/8*8-4)
		x := EncapProp{Kind: kind}
		switch kind {
		case EncapNSHMDType:
			if x.MDType = p.u8("md_type"); n > 8 {
				d.fail("property", "an md_type of %d bytes", n)
			}
		case EncapNSHTLV:
			x.TLVClass, x.TLVType = p.u16("tlv class"), p.u8("tlv type")
			x.Data = string(p.take("tlv", int(p.u8("tlv length"))))
		default:
			d.fail("property", "type %d is not known", kind)
		}
		if !d.ok() {
			return nil
		}
		a.Props = append(a.Props, x)
	}
	return a
}

func (Decap) check() error { return nil }
func (a Decap) appendTo(e *encoder) {
	s := e.nicira(nxDecap)
	e.zero(2)
	e.u32(a.PacketType)
	e.actionEnd(s)
}

func (d *decoder) decap() Action {
	d.skip(2)
	a := Decap{d.u32("new packet type")}
	if d.left() > 0 {
		return nil // properties, all unknown
	}
	return a
}

func (DecNSHTTL) check() error        { return nil }
func (DecNSHTTL) appendTo(e *encoder) { e.actionEnd(e.nicira(nxDecNSHTTL)) }
