package ofp

import "net/netip"

// CTFlushZone forgets all connections of a zone (NXT_CT_FLUSH_ZONE).
type CTFlushZone struct{ Zone uint16 }

// CTFlush removes the connections that match a tuple, or parts of it (NXT_CT_FLUSH, Open vSwitch 3.1 and later).
// Without Proto it matches any protocol, without tuples all connections.
type CTFlush struct {
	Proto       uint8
	HasZone     bool // only in Zone
	Zone        uint16
	Orig, Reply CTTuple
	// Only connections whose mark and labels have these values under a nonzero mask are removed (Open vSwitch 3.3 and
	// later).
	Mark, MarkMask     uint32
	Labels, LabelsMask Value
	Properties         []RawProperty // properties unknown to the package
}

// CTTuple is one direction of a connection. Zero fields do not restrict. For protocols 1 and 58 the fields of ICMP are
// used, for all others the ports.
type CTTuple struct {
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16
	ICMPID             uint16
	ICMPType, ICMPCode uint8
}

// Type of the messages that flush connections.
func (CTFlushZone) Type() Type { return TypeExperimenter }
func (CTFlush) Type() Type     { return TypeExperimenter }

func (m CTFlushZone) appendTo(e *encoder) {
	e.vendor(nxtCTFlushZone)
	e.zero(6)
	e.u16(m.Zone)
}
func (d *decoder) ctFlushZone() Message {
	d.zeros("zero", 6)
	return CTFlushZone{d.u16("zone_id")}
}

// zeros reads n bytes that must be zero (NXBRC_MUST_BE_ZERO).
func (d *decoder) zeros(field string, n int) {
	at := *d
	for _, b := range d.take(field, n) {
		if b != 0 {
			at.fail(field, "these bytes must be zero")
		}
	}
}

// Properties of NXT_CT_FLUSH and of its tuples (nicira-ext.h).
const (
	ctOrig uint16 = iota
	ctReply
	ctZone
	ctMark
	ctMarkMask
	ctLabels
	ctLabelsMask
)
const (
	ctSrc uint16 = iota
	ctDst
	ctSrcPort
	ctDstPort
	ctICMPID
	ctICMPType
	ctICMPCode
)

func isICMP(proto uint8) bool { return proto == 1 || proto == 58 }

func (m CTFlush) appendTo(e *encoder) {
	e.vendor(nxtCTFlush)
	e.u8(m.Proto)
	e.zero(7)
	family := 0
	for _, a := range [...]netip.Addr{m.Orig.Src, m.Orig.Dst, m.Reply.Src, m.Reply.Dst} {
		if !a.IsValid() || a.IsUnspecified() {
			continue
		}
		if n := a.Unmap().BitLen(); family == 0 {
			family = n
		} else if family != n {
			e.fail("%s: a connection has addresses of IPv4 or of IPv6, not of both", a)
		}
	}
	e.tuple(ctOrig, m.Orig, m.Proto)
	e.tuple(ctReply, m.Reply, m.Proto)
	if m.HasZone {
		p := e.propStart(ctZone)
		e.u16s(m.Zone, 0)
		e.propEnd(p)
	} else if m.Zone != 0 {
		e.fail("zone %d is given without HasZone", m.Zone)
	}
	e.ctMarks(m)
	e.raw(m.Properties)
}

// ctMarks appends mark and labels; a mask that is full goes without saying.
func (e *encoder) ctMarks(m CTFlush) {
	if m.Mark&^m.MarkMask != 0 {
		e.fail("mark %#x has bits outside of its mask %#x", m.Mark, m.MarkMask)
	}
	if m.Labels.And(m.LabelsMask) != m.Labels {
		e.fail("the labels have bits outside of their mask")
	}
	mark := func(kind uint16, v uint32) {
		p := e.propStart(kind)
		e.u32(v)
		e.propEnd(p)
	}
	labels := func(kind uint16, v Value) {
		p := e.propStart(kind)
		e.u64(v.Hi)
		e.u64(v.Lo)
		e.propEnd(p)
	}
	if m.MarkMask != 0 {
		mark(ctMark, m.Mark)
		if m.MarkMask != ^uint32(0) {
			mark(ctMarkMask, m.MarkMask)
		}
	}
	if !m.LabelsMask.IsZero() {
		labels(ctLabels, m.Labels)
		if m.LabelsMask != Ones(128) {
			labels(ctLabelsMask, m.LabelsMask)
		}
	}
}

func (e *encoder) tuple(kind uint16, t CTTuple, proto uint8) {
	start := e.propStart(kind)
	e.zero(4)
	from := len(e.b)
	e.tupleAddress(ctSrc, t.Src)
	e.tupleAddress(ctDst, t.Dst)
	if isICMP(proto) {
		if t.SrcPort != 0 || t.DstPort != 0 {
			e.fail("protocol %d has no ports", proto)
		}
		p := e.propStart(ctICMPID)
		e.u16s(t.ICMPID, 0)
		e.propEnd(p)
		e.tupleByte(ctICMPType, t.ICMPType)
		e.tupleByte(ctICMPCode, t.ICMPCode)
	} else {
		if t.ICMPID != 0 || t.ICMPType != 0 || t.ICMPCode != 0 {
			e.fail("protocol %d is not ICMP: it has no id, type and code", proto)
		}
		if (t.SrcPort != 0 || t.DstPort != 0) && proto == 0 {
			e.fail("a port has no meaning without the protocol")
		}
		e.tuplePort(ctSrcPort, t.SrcPort)
		e.tuplePort(ctDstPort, t.DstPort)
	}
	if len(e.b) == from {
		e.b = e.b[:start]
		return
	}
	e.propEnd(start)
}
func (e *encoder) tupleAddress(kind uint16, a netip.Addr) {
	if !a.IsValid() || a.IsUnspecified() {
		return
	}
	p, b := e.propStart(kind), a.As16()
	e.bytes(b[:])
	e.propEnd(p)
}
func (e *encoder) tuplePort(kind, port uint16) {
	if port == 0 {
		return
	}
	p := e.propStart(kind)
	e.u16s(port, 0)
	e.propEnd(p)
}
func (e *encoder) tupleByte(kind uint16, v uint8) {
	p := e.propStart(kind)
	e.u8(v)
	e.propEnd(p)
}

func (d *decoder) ctFlush() Message {
	m := CTFlush{Proto: d.u8("ip_proto")}
	d.zeros("padding", 7)
	var seen [ctLabelsMask + 1]bool
	for d.left() > 0 {
		kind, p := d.prop("connection property")
		if int(kind) < len(seen) {
			seen[kind] = true
		}
		switch kind {
		case ctMark:
			m.Mark = p.u32("mark")
		case ctMarkMask:
			m.MarkMask = p.u32("mark mask")
		case ctLabels:
			m.Labels = Value{Hi: p.u64("labels"), Lo: p.u64("labels")}
		case ctLabelsMask:
			m.LabelsMask = Value{Hi: p.u64("labels mask"), Lo: p.u64("labels mask")}
		case ctOrig:
			m.Orig = p.tuple("orig")
		case ctReply:
			m.Reply = p.tuple("reply")
		case ctZone:
			m.HasZone, m.Zone = true, p.u16("zone_id")
		default:
			m.Properties = append(m.Properties, p.raw(kind))
		}
	}
	if seen[ctMark] && !seen[ctMarkMask] {
		m.MarkMask = ^uint32(0)
	}
	if seen[ctLabels] && !seen[ctLabelsMask] {
		m.LabelsMask = Ones(128)
	}
	m.Mark, m.Labels = m.Mark&m.MarkMask, m.Labels.And(m.LabelsMask) // bits outside of the mask do not count
	return m
}
func (d *decoder) tuple(field string) CTTuple {
	var t CTTuple
	d.skip(4)
	for d.left() > 0 {
		switch kind, p := d.prop(field + " tuple"); kind {
		case ctSrc:
			t.Src = p.tupleAddress(field + " source")
		case ctDst:
			t.Dst = p.tupleAddress(field + " destination")
		case ctSrcPort:
			t.SrcPort = p.u16(field + " source port")
		case ctDstPort:
			t.DstPort = p.u16(field + " destination port")
		case ctICMPID:
			t.ICMPID = p.u16(field + " icmp_id")
		case ctICMPType:
			t.ICMPType = p.u8(field + " icmp_type")
		case ctICMPCode:
			t.ICMPCode = p.u8(field + " icmp_code")
		default:
			d.fail(field+" tuple", "type %d is not known", kind)
		}
	}
	return t
}
func (d *decoder) tupleAddress(field string) netip.Addr {
	b := d.take(field, 16)
	if b == nil {
		return netip.Addr{}
	}
	a := netip.AddrFrom16([16]byte(b)).Unmap()
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}
