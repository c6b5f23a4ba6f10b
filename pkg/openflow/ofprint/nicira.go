package ofprint

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func (p *printer) tlvTableMod(m ofp.TLVTableMod) {
	p.str("\n ")
	switch m.Command {
	case ofp.TLVAdd:
		p.str("ADD")
	case ofp.TLVDelete:
		p.str("DEL")
	case ofp.TLVClear:
		p.str("CLEAR")
		return
	default:
		p.f("cmd:%d", m.Command)
	}
	p.tlvMaps(m.Maps)
}

func (p *printer) tlvTableReply(m ofp.TLVTableReply) {
	space := 0
	for _, x := range m.Maps {
		space += int(x.Length)
	}
	p.f("\n max option space=%d max fields=%d\n allocated option space=%d\n\n", m.MaxSpace, m.MaxFields, space)
	p.tlvMaps(m.Maps)
}

func (p *printer) tlvMaps(list []ofp.TLVMap) {
	p.str(" mapping table:\n  class  type  length  match field\n ------  ----  ------  --------------")
	for _, x := range list {
		p.f("\n %6s  %4s  %6d  tun_metadata%d", hexText(uint64(x.Class)), hexText(uint64(x.Kind)), x.Length, x.Index)
	}
}

// hexText is a number as C's %#x prints it.
func hexText(v uint64) string {
	var p printer
	p.hexAlt(v)
	return string(p.b)
}

func (p *printer) ctFlush(m ofp.CTFlush) {
	six := true
	for _, a := range []netip.Addr{m.Orig.Src, m.Orig.Dst, m.Reply.Src, m.Reply.Dst} {
		if a.IsValid() {
			six = !a.Unmap().Is4()
		}
	}
	p.f(" zone=%d ", m.Zone)
	if m.MarkMask != 0 {
		p.str("mark=")
		p.hexAlt(uint64(m.Mark))
		if m.MarkMask != ^uint32(0) {
			p.f("/0x%x", m.MarkMask)
		}
		p.str(" ")
	}
	if full := ofp.Ones(128); !m.LabelsMask.IsZero() {
		p.str("labels=" + labelsText(m.Labels))
		if m.LabelsMask != full {
			p.str("/" + labelsText(m.LabelsMask))
		}
		p.str(" ")
	}
	p.str("'")
	p.ctTuple(m.Orig, m.Proto, six)
	p.f(",ct_nw_proto=%d' '", m.Proto)
	p.ctTuple(m.Reply, m.Proto, six)
	p.str("'")
}

// labelsText is up to 128 bits in hexadecimal digits.
func labelsText(v ofp.Value) string {
	switch {
	case v.IsZero():
		return "0"
	case v.Hi == 0:
		return fmt.Sprintf("0x%x", v.Lo)
	}
	return fmt.Sprintf("0x%x%016x", v.Hi, v.Lo)
}

func (p *printer) ctTuple(t ofp.CTTuple, proto uint8, six bool) {
	name := "ct_nw"
	if six {
		name = "ct_ipv6"
	}
	addr := func(a netip.Addr) string {
		if !a.IsValid() {
			return "::"
		}
		if a = a.Unmap(); a.Is4() {
			return a.String()
		}
		return address(a.AsSlice())
	}
	p.f("%s_src=%s,%s_dst=%s", name, addr(t.Src), name, addr(t.Dst))
	if proto == protoICMP || proto == protoICM6 {
		p.f(",icmp_id=%d,icmp_type=%d,icmp_code=%d", t.ICMPID, t.ICMPType, t.ICMPCode)
	} else {
		p.f(",ct_tp_src=%d,ct_tp_dst=%d", t.SrcPort, t.DstPort)
	}
}
