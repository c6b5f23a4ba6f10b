package flow

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// conds are the conditions of a match, by field.
type conds []ofp.MatchField

func (c conds) get(f ofp.Field) (ofp.MatchField, bool) {
	for i := range c {
		if c[i].Field == f {
			return c[i], true
		}
	}
	return ofp.MatchField{}, false
}

// style is how match_format writes a field, which is not always how mf_format does.
type style uint8

const (
	plain    style = iota // as in set_field
	hexadec               // %#x, mask after a slash
	decimal               // decimal where exact, hexadecimal where masked
	byte8                 // decimal where exact, two hexadecimal digits where masked
	hex32                 // 0x%x
	unmasked              // as OVS writes it without its mask
	valued                // the same, and OVS takes the value for the mask: zero is any
)

// match prints the conditions in the order and form of OVS's match_format, each followed by a
// comma.
func (p *printer) match(m Match) {
	var c conds
	for x := range m.oxm.All() {
		c = append(c, x)
	}
	p.field(c, "pkt_mark", ofp.PktMark, hexadec)
	p.field(c, "recirc_id", ofp.RecircID, hexadec)
	p.field(c, "dp_hash", ofp.DPHash, hexadec)
	p.field(c, "conj_id", ofp.ConjID, decimal)
	p.field(c, "actset_output", ofp.ActsetOutput, plain)
	p.conntrack(c)
	eth, proto := p.protocol(c)
	for f := ofp.Reg0; f <= ofp.Reg31; f++ {
		p.field(c, f.String(), f, hexadec)
	}
	p.tunnel(c)
	p.field(c, "metadata", ofp.Metadata, hexadec)
	p.field(c, "in_port", ofp.InPort, plain)
	p.field(c, "in_port", ofp.NXMInPort, plain)
	p.vlan(c)
	p.field(c, "dl_src", ofp.EthSrc, plain)
	p.field(c, "dl_dst", ofp.EthDst, plain)
	if x, ok := c.get(ofp.EthType); ok && !eth {
		p.f("dl_type=0x%04x,", x.Value.Lo)
	}
	p.network(c, proto)
	p.transport(c)
	for _, x := range c {
		if x.Field == 0 && !p.asOVS {
			p.f("raw:%x,", x.Raw)
		}
	}
}

// field prints one condition.
func (p *printer) field(c conds, name string, f ofp.Field, s style) {
	x, ok := c.get(f)
	if !ok || s == valued && p.asOVS && x.Value.IsZero() {
		return
	}
	p.str(name)
	p.str("=")
	full := x.Mask == ofp.Ones(f.Bits())
	switch {
	case s == plain, s >= unmasked && (full || !p.asOVS):
		p.value(f, x.Value, x.Mask)
	case s >= unmasked:
		p.value(f, x.Value, ofp.Ones(f.Bits()))
	case s == hexadec:
		p.str(hexAlt(x.Value.Lo))
		if !full {
			p.str("/" + hexAlt(x.Mask.Lo))
		}
	case s == hex32:
		p.f("0x%x", x.Value.Lo)
		if !full {
			p.f("/0x%x", x.Mask.Lo)
		}
	case full:
		p.num(x.Value.Lo)
	case s == byte8:
		p.f("0x%02x/0x%02x", x.Value.Lo, x.Mask.Lo)
	default:
		p.f("0x%x/0x%x", x.Value.Lo, x.Mask.Lo)
	}
	p.str(",")
}

func (p *printer) conntrack(c conds) {
	if x, ok := c.get(ofp.CTState); ok {
		p.str("ct_state=")
		p.flags(x.Value.Lo, x.Mask.Lo, ctStates, x.Mask.Lo == 0xff || x.Mask == ofp.Ones(32))
		p.str(",")
	}
	p.field(c, "ct_zone", ofp.CTZone, decimal)
	p.field(c, "ct_mark", ofp.CTMark, hexadec)
	p.field(c, "ct_label", ofp.CTLabel, plain)
	p.field(c, "ct_nw_src", ofp.CTNwSrc, plain)
	p.field(c, "ct_ipv6_src", ofp.CTIPv6Src, plain)
	p.field(c, "ct_nw_dst", ofp.CTNwDst, plain)
	p.field(c, "ct_ipv6_dst", ofp.CTIPv6Dst, plain)
	p.field(c, "ct_nw_proto", ofp.CTNwProto, decimal)
	p.field(c, "ct_tp_src", ofp.CTTpSrc, decimal)
	p.field(c, "ct_tp_dst", ofp.CTTpDst, decimal)
}

// protocol prints the word for the Ethernet type, and maybe for the IP protocol. It returns which of them the word
// covers.
func (p *printer) protocol(c conds) (eth, proto bool) {
	if x, ok := c.get(ofp.PacketType); ok {
		// ovs-ofctl does not print that packets are to begin with Ethernet, as if all did.
		if x.Value.IsZero() {
			if !p.asOVS {
				p.str("eth,")
			}
		} else {
			p.str("packet_type=" + packetTypeText(x.Value.Lo) + ",")
		}
	}
	e, ok := c.get(ofp.EthType)
	if !ok {
		return false, false
	}
	i, hasProto := c.get(ofp.IPProto)
	for _, w := range protocolWords {
		if uint64(w.ethType) == e.Value.Lo && (w.proto == 0 || hasProto && uint64(w.proto) == i.Value.Lo) {
			p.str(w.name + ",")
			return true, w.proto != 0
		}
	}
	return false, false
}

// protocolWords are the words that match_format uses, the most special first.
var protocolWords = []struct {
	name    string
	ethType uint16
	proto   uint8
}{
	{"icmp", 0x0800, 1}, {"tcp", 0x0800, 6}, {"udp", 0x0800, 17}, {"sctp", 0x0800, 132}, {"ip", 0x0800, 0},
	{"icmp6", 0x86dd, 58}, {"tcp6", 0x86dd, 6}, {"udp6", 0x86dd, 17}, {"sctp6", 0x86dd, 132}, {"ipv6", 0x86dd, 0},
	{"arp", 0x0806, 0}, {"rarp", 0x8035, 0}, {"mpls", 0x8847, 0}, {"mplsm", 0x8848, 0},
}

func (p *printer) tunnel(c conds) {
	p.field(c, "tun_id", ofp.TunID, hexadec)
	p.field(c, "tun_src", ofp.TunIPv4Src, plain)
	p.field(c, "tun_dst", ofp.TunIPv4Dst, plain)
	p.field(c, "tun_ipv6_src", ofp.TunIPv6Src, plain)
	p.field(c, "tun_ipv6_dst", ofp.TunIPv6Dst, plain)
	p.field(c, "tun_gbp_id", ofp.TunGBPID, decimal)
	p.field(c, "tun_gbp_flags", ofp.TunGBPFlags, unmasked)
	p.field(c, "tun_erspan_ver", ofp.TunERSPANVer, valued)
	// ovs-ofctl prints them only together with version 1 or 2.
	v, _ := c.get(ofp.TunERSPANVer)
	if !p.asOVS || v.Value.Lo == 1 {
		p.field(c, "tun_erspan_idx", ofp.TunERSPANIdx, unmasked)
	}
	if !p.asOVS || v.Value.Lo == 2 {
		p.field(c, "tun_erspan_dir", ofp.TunERSPANDir, valued)
		p.field(c, "tun_erspan_hwid", ofp.TunERSPANHWID, valued)
	}
	gtpu := "tun_gtpu_"
	if p.asOVS {
		gtpu = "gtpu_" // which ovs-ofctl cannot read
	}
	p.field(c, gtpu+"flags", ofp.TunGTPUFlags, valued)
	p.field(c, gtpu+"msgtype", ofp.TunGTPUMsgType, valued)
	if x, ok := c.get(ofp.TunFlags); ok {
		p.str("tun_flags=" + flagsText(x.Value.Lo, x.Mask.Lo, tunFlags) + ",")
	}
	for _, x := range c {
		if x.Field.Long() {
			p.option(x)
		}
	}
}

// option prints what is asked of a tunnel option.
func (p *printer) option(x ofp.MatchField) {
	p.str(x.Field.String())
	if x.BytesMask == "" || hexString(x.BytesMask) != "0" {
		p.str("=" + hexString(x.Bytes))
		// ovs-ofctl leaves a mask out that ends where the option's value does.
		if x.BytesMask != "" && (!p.asOVS || !allOnes(x.BytesMask)) {
			p.str("/" + hexString(x.BytesMask))
		}
	}
	p.str(",")
}

func allOnes(s string) bool {
	for i := range len(s) {
		if s[i] != 0xff {
			return false
		}
	}
	return true
}

// vlan prints what is matched of the outer VLAN tag.
func (p *printer) vlan(c conds) {
	const cfi = 0x1000
	x, _ := c.get(ofp.VLANVID)
	y, _ := c.get(ofp.VLANPCP)
	vid, vidMask, pcp, pcpMask := x.Value.Lo, x.Mask.Lo, y.Value.Lo, y.Mask.Lo
	if z, ok := c.get(ofp.VLANTCI); ok {
		vid, vidMask, pcp, pcpMask = z.Value.Lo&0x1fff, z.Mask.Lo&0x1fff, z.Value.Lo>>13, z.Mask.Lo>>13
	} else if pcpMask != 0 { // a matched priority implies a tag
		vid, vidMask = vid|cfi, vidMask|cfi
	}
	if vidMask == 0 && pcpMask == 0 {
		return
	}
	m := vidMask & 0xfff
	if vidMask&cfi != 0 && vid&cfi != 0 && (m == 0 || m == 0xfff) && (pcpMask == 0 || pcpMask == 7) &&
		(m != 0 || pcpMask != 0) {
		if m != 0 {
			p.f("dl_vlan=%d,", vid&0xfff)
		}
		if pcpMask != 0 {
			p.f("dl_vlan_pcp=%d,", pcp)
		}
		return
	}
	tci, tciMask := vid|pcp<<13, vidMask|pcpMask<<13
	if tciMask == 0xffff {
		p.f("vlan_tci=0x%04x,", tci)
	} else {
		p.f("vlan_tci=0x%04x/0x%04x,", tci, tciMask)
	}
}

// network prints IP, ARP, NSH and MPLS. proto is set if the protocol is printed already.
func (p *printer) network(c conds, proto bool) {
	p.field(c, "ipv6_src", ofp.IPv6Src, plain)
	p.field(c, "ipv6_dst", ofp.IPv6Dst, plain)
	if x, ok := c.get(ofp.IPv6Label); ok {
		p.f("ipv6_label=0x%05x", x.Value.Lo)
		if x.Mask != ofp.Ones(20) {
			p.f("/0x%05x", x.Mask.Lo)
		}
		p.str(",")
	}
	p.field(c, "arp_spa", ofp.ARPSPA, plain)
	p.field(c, "arp_tpa", ofp.ARPTPA, plain)
	p.nsh(c)
	p.field(c, "nw_src", ofp.IPv4Src, plain)
	p.field(c, "nw_dst", ofp.IPv4Dst, plain)
	if !proto {
		p.field(c, "nw_proto", ofp.IPProto, decimal)
	}
	p.field(c, "arp_op", ofp.ARPOp, decimal)
	p.field(c, "arp_sha", ofp.ARPSHA, plain)
	p.field(c, "arp_tha", ofp.ARPTHA, plain)
	if x, ok := c.get(ofp.IPDSCP); ok {
		p.f("nw_tos=%d,", x.Value.Lo<<2)
	} else if x, ok := c.get(ofp.IPTOS); ok {
		p.f("nw_tos=%d,", x.Value.Lo&0xfc)
	}
	p.field(c, "nw_ecn", ofp.IPECN, decimal)
	p.field(c, "nw_ttl", ofp.IPTTL, decimal)
	p.field(c, "mpls_label", ofp.MPLSLabel, decimal)
	p.field(c, "mpls_tc", ofp.MPLSTC, decimal)
	p.field(c, "mpls_ttl", ofp.MPLSTTL, decimal)
	p.field(c, "mpls_bos", ofp.MPLSBOS, decimal)
	p.field(c, "nw_frag", ofp.IPFrag, plain)
}

func (p *printer) nsh(c conds) {
	p.field(c, "nsh_flags", ofp.NSHFlags, byte8)
	p.field(c, "nsh_ttl", ofp.NSHTTL, byte8)
	p.field(c, "nsh_mdtype", ofp.NSHMDType, byte8)
	p.field(c, "nsh_np", ofp.NSHNP, byte8)
	p.field(c, "nsh_spi", ofp.NSHSPI, hex32)
	p.field(c, "nsh_si", ofp.NSHSI, byte8)
	// ovs-ofctl only prints the context where it is said to be there.
	if x, _ := c.get(ofp.NSHMDType); p.asOVS && x.Value.Lo != 1 {
		return
	}
	for f := ofp.NSHC1; f <= ofp.NSHC4; f++ {
		p.field(c, f.String(), f, hex32)
	}
}

func (p *printer) transport(c conds) {
	p.field(c, "icmp_type", ofp.ICMPType, decimal)
	p.field(c, "icmp_code", ofp.ICMPCode, decimal)
	p.field(c, "icmp_type", ofp.ICMPv6Type, decimal)
	p.field(c, "icmp_code", ofp.ICMPv6Code, decimal)
	p.field(c, "nd_target", ofp.NDTarget, plain)
	p.field(c, "nd_sll", ofp.NDSLL, plain)
	p.field(c, "nd_tll", ofp.NDTLL, plain)
	p.field(c, "nd_reserved", ofp.NDReserved, decimal)
	p.field(c, "nd_options_type", ofp.NDOptionsType, decimal)
	for f := ofp.TCPSrc; f <= ofp.SCTPDst; f++ {
		name := "tp_src"
		if (f-ofp.TCPSrc)%2 == 1 {
			name = "tp_dst"
		}
		p.field(c, name, f, decimal)
	}
	p.field(c, "tcp_flags", ofp.TCPFlags, plain)
}

// String is the match in ovs-ofctl's text. It is empty if the match matches all packets. Unlike ovs-ofctl's text, it is
// complete: see Flow.String.
func (m Match) String() string {
	var p printer
	p.wholeMatch(m)
	return string(p.b)
}

// wholeMatch is a match that stands alone.
func (p *printer) wholeMatch(m Match) {
	if m.err != "" {
		p.str("<" + m.err + ">")
		return
	}
	p.match(m)
	p.chomp()
}

// OVSText is String exactly as ovs-ofctl prints it: see Flow.OVSText.
func (m Match) OVSText() string {
	p := printer{asOVS: true}
	p.wholeMatch(m)
	return string(p.b)
}
