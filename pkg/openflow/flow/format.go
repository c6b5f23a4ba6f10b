package flow

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// printer writes ovs-ofctl's text.
type printer struct{ b []byte }

func (p *printer) str(s string)            { p.b = append(p.b, s...) }
func (p *printer) num(v uint64)            { p.b = strconv.AppendUint(p.b, v, 10) }
func (p *printer) f(s string, args ...any) { p.b = fmt.Appendf(p.b, s, args...) }
func (p *printer) chomp(c byte) {
	if n := len(p.b); n > 0 && p.b[n-1] == c {
		p.b = p.b[:n-1]
	}
}

var portNames = map[ofp.Port]string{
	ofp.PortInPort: "IN_PORT", ofp.PortTable: "TABLE", ofp.PortNormal: "NORMAL", ofp.PortFlood: "FLOOD",
	ofp.PortAll: "ALL", ofp.PortController: "CONTROLLER", ofp.PortLocal: "LOCAL", ofp.PortAny: "ANY",
	ofp.PortUnset: "UNSET",
}

func portText(port ofp.Port) string {
	if n := portNames[port]; n != "" {
		return n
	}
	return strconv.FormatUint(uint64(port), 10)
}

// hexText is a number as OVS's %#x prints it: 0 without prefix when alt is set.
func hexAlt(v uint64) string {
	if v == 0 {
		return "0"
	}
	return "0x" + strconv.FormatUint(v, 16)
}

// hexValue is 0x and digits without leading zeros, of up to 128 bits; just 0 for zero.
func hexValue(v ofp.Value) string {
	if v.Hi == 0 {
		return hexAlt(v.Lo)
	}
	return fmt.Sprintf("0x%x%016x", v.Hi, v.Lo)
}

// flagsText is +a-b for the bits of the mask, least significant first.
func flagsText(v, mask uint64, names []string) string {
	var s strings.Builder
	for i := range 64 {
		bit := uint64(1) << i
		if mask&bit == 0 {
			continue
		}
		if v&bit != 0 {
			s.WriteByte('+')
		} else {
			s.WriteByte('-')
		}
		if i < len(names) {
			s.WriteString(names[i])
		} else {
			fmt.Fprintf(&s, "[%d]", i)
		}
	}
	return s.String()
}

// flagNamesText is the names of the set bits, for a match on all of them.
func flagNamesText(v uint64, names []string) string {
	var on []string
	for i, n := range names {
		if v&(1<<i) != 0 {
			on = append(on, n)
		}
	}
	if len(on) == 0 {
		return "0"
	}
	return strings.Join(on, "|")
}

var (
	tcpFlags = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"}
	tunFlags = []string{"oam"}
)

func addrText(v ofp.Value, n int) string {
	a, _ := netip.AddrFromSlice(v.Append(nil, n))
	return a.String()
}

// maskedAddr is an address with a prefix length, or a mask where it is no prefix.
func maskedAddr(v, mask ofp.Value, n int) string {
	s := addr6(v, n)
	all := ofp.Ones(8 * n)
	if mask == all {
		return s
	}
	for l := range 8 * n {
		if mask == ofp.Ones(l).Shl(8*n-l) {
			return s + "/" + strconv.Itoa(l)
		}
	}
	return s + "/" + addr6(mask, n)
}

// addr6 prints addresses as inet_ntop does, which writes the low half of ::1.2.3.4 as IPv4.
func addr6(v ofp.Value, n int) string {
	if n == 16 && v.Hi == 0 && v.Lo>>32 == 0 && v.Lo > 0xffff {
		return "::" + addrText(ofp.Value{Lo: v.Lo}, 4)
	}
	return addrText(v, n)
}

func macText(v ofp.Value) string {
	var m ofp.MAC
	copy(m[:], v.Append(nil, 6))
	return m.String()
}

// valueText is a field's value and mask as in set_field and learn (mf_format).
func valueText(f ofp.Field, v, mask ofp.Value) string {
	full := mask == ofp.Ones(f.Bits())
	switch f.Format() {
	case ofp.FormatMAC:
		if full {
			return macText(v)
		}
		return macText(v) + "/" + macText(mask)
	case ofp.FormatIPv4:
		return maskedAddr(v, mask, 4)
	case ofp.FormatIPv6:
		return maskedAddr(v, mask, 16)
	case ofp.FormatPort:
		if full {
			return portText(ofp.Port(v.Lo))
		}
	case ofp.FormatCTState:
		return flagsText(v.Lo, mask.Lo, ctStates)
	case ofp.FormatTCPFlags:
		if full {
			return flagNamesText(v.Lo, tcpFlags)
		}
		return flagsText(v.Lo, mask.Lo, tcpFlags)
	case ofp.FormatTunFlags:
		return flagsText(v.Lo, mask.Lo, tunFlags)
	}
	var s string
	if f.Format() == ofp.FormatHex {
		s = hexValue(v)
	} else {
		s = strconv.FormatUint(v.Lo, 10)
	}
	if !full {
		s += "/" + hexValue(mask)
	}
	return s
}

// match prints the conditions in the order and form of OVS's match_format, each followed by a
// comma.
func (p *printer) match(m Match) {
	type cond struct{ v, m ofp.Value }
	has := map[ofp.Field]cond{}
	for x := range m.oxm.All() {
		has[x.Field] = cond{x.Value, x.Mask}
	}
	field := func(name string, f ofp.Field, text func(v, mask ofp.Value) string) {
		if c, ok := has[f]; ok {
			p.f("%s=%s,", name, text(c.v, c.m))
		}
	}
	u32 := func(name string, f ofp.Field) {
		field(name, f, func(v, mask ofp.Value) string {
			if mask == ofp.Ones(f.Bits()) {
				return hexAlt(v.Lo)
			}
			return hexAlt(v.Lo) + "/" + hexAlt(mask.Lo)
		})
	}
	dec := func(name string, f ofp.Field) {
		field(name, f, func(v, mask ofp.Value) string {
			if mask == ofp.Ones(f.Bits()) {
				return strconv.FormatUint(v.Lo, 10)
			}
			return fmt.Sprintf("0x%x/0x%x", v.Lo, mask.Lo)
		})
	}
	value := func(name string, f ofp.Field) {
		field(name, f, func(v, mask ofp.Value) string { return valueText(f, v, mask) })
	}
	mac := func(name string, f ofp.Field) { value(name, f) }

	u32("pkt_mark", ofp.PktMark)
	u32("recirc_id", ofp.RecircID)
	u32("dp_hash", ofp.DPHash)
	dec("conj_id", ofp.ConjID)
	value("actset_output", ofp.ActsetOutput)
	field("ct_state", ofp.CTState, func(v, mask ofp.Value) string {
		if mask.Lo == 0xff || mask == ofp.Ones(32) {
			return flagNamesText(v.Lo, ctStates)
		}
		return flagsText(v.Lo, mask.Lo, ctStates)
	})
	dec("ct_zone", ofp.CTZone)
	u32("ct_mark", ofp.CTMark)
	value("ct_label", ofp.CTLabel)
	value("ct_nw_src", ofp.CTNwSrc)
	value("ct_ipv6_src", ofp.CTIPv6Src)
	value("ct_nw_dst", ofp.CTNwDst)
	value("ct_ipv6_dst", ofp.CTIPv6Dst)
	dec("ct_nw_proto", ofp.CTNwProto)
	dec("ct_tp_src", ofp.CTTpSrc)
	dec("ct_tp_dst", ofp.CTTpDst)

	eth, hasEth := has[ofp.EthType]
	proto, hasProto := has[ofp.IPProto]
	skipType, skipProto := false, false
	if hasEth {
		skipType = true
		var name string
		switch eth.v.Lo {
		case 0x0800, 0x86dd:
			if hasProto {
				name, skipProto = protoName(eth.v.Lo, proto.v.Lo)
			} else {
				name = map[uint64]string{0x0800: "ip", 0x86dd: "ipv6"}[eth.v.Lo]
			}
		case 0x0806:
			name = "arp"
		case 0x8035:
			name = "rarp"
		case 0x8847:
			name = "mpls"
		case 0x8848:
			name = "mplsm"
		default:
			skipType = false
		}
		if name != "" {
			p.str(name + ",")
		}
	}
	for i := range ofp.Field(16) {
		u32(ofp.Field(ofp.Reg0+i).String(), ofp.Reg0+i)
	}
	u32("tun_id", ofp.TunID)
	value("tun_src", ofp.TunIPv4Src)
	value("tun_dst", ofp.TunIPv4Dst)
	value("tun_ipv6_src", ofp.TunIPv6Src)
	value("tun_ipv6_dst", ofp.TunIPv6Dst)
	dec("tun_gbp_id", ofp.TunGBPID)
	field("tun_gbp_flags", ofp.TunGBPFlags, func(v, _ ofp.Value) string { return hexAlt(v.Lo) })
	value("tun_flags", ofp.TunFlags)
	u32("metadata", ofp.Metadata)
	value("in_port", ofp.InPort)
	p.vlan(has[ofp.VLANVID].v.Lo, has[ofp.VLANVID].m.Lo, has[ofp.VLANPCP].v.Lo, has[ofp.VLANPCP].m.Lo)
	mac("dl_src", ofp.EthSrc)
	mac("dl_dst", ofp.EthDst)
	if hasEth && !skipType {
		p.f("dl_type=0x%04x,", eth.v.Lo)
	}
	value("ipv6_src", ofp.IPv6Src)
	value("ipv6_dst", ofp.IPv6Dst)
	field("ipv6_label", ofp.IPv6Label, func(v, mask ofp.Value) string {
		if mask == ofp.Ones(20) {
			return fmt.Sprintf("0x%05x", v.Lo)
		}
		return fmt.Sprintf("0x%05x/0x%05x", v.Lo, mask.Lo)
	})
	value("arp_spa", ofp.ARPSPA)
	value("arp_tpa", ofp.ARPTPA)
	value("nw_src", ofp.IPv4Src)
	value("nw_dst", ofp.IPv4Dst)
	if hasProto && !skipProto {
		p.f("nw_proto=%d,", proto.v.Lo)
	}
	dec("arp_op", ofp.ARPOp)
	mac("arp_sha", ofp.ARPSHA)
	mac("arp_tha", ofp.ARPTHA)
	field("nw_tos", ofp.IPDSCP, func(v, _ ofp.Value) string { return strconv.FormatUint(v.Lo<<2, 10) })
	dec("nw_ecn", ofp.IPECN)
	dec("nw_ttl", ofp.IPTTL)
	dec("mpls_label", ofp.MPLSLabel)
	dec("mpls_tc", ofp.MPLSTC)
	dec("mpls_ttl", ofp.MPLSTTL)
	dec("mpls_bos", ofp.MPLSBOS)
	field("nw_frag", ofp.IPFrag, func(v, mask ofp.Value) string { return fragText(v.Lo, mask.Lo) })
	dec("icmp_type", ofp.ICMPType)
	dec("icmp_code", ofp.ICMPCode)
	dec("icmp_type", ofp.ICMPv6Type)
	dec("icmp_code", ofp.ICMPv6Code)
	value("nd_target", ofp.NDTarget)
	mac("nd_sll", ofp.NDSLL)
	mac("nd_tll", ofp.NDTLL)
	for f := ofp.TCPSrc; f <= ofp.SCTPDst; f++ {
		name := "tp_src"
		if (f-ofp.TCPSrc)%2 == 1 {
			name = "tp_dst"
		}
		dec(name, f)
	}
	value("tcp_flags", ofp.TCPFlags)
}

func protoName(eth, proto uint64) (name string, whole bool) {
	six := ""
	if eth == 0x86dd {
		six = "6"
	}
	switch {
	case proto == 1 && six == "":
		return "icmp", true
	case proto == 58 && six != "":
		return "icmp6", true
	case proto == 6:
		return "tcp" + six, true
	case proto == 17:
		return "udp" + six, true
	case proto == 132:
		return "sctp" + six, true
	case six != "":
		return "ipv6", false
	}
	return "ip", false
}

var fragNames = map[[2]uint64]string{
	{0, 3}: "no", {1, 3}: "first", {3, 3}: "later", {0, 1}: "no", {1, 1}: "yes", {0, 2}: "not_later", {2, 2}: "later",
}

func fragText(v, mask uint64) string {
	if s := fragNames[[2]uint64{v & mask & 3, mask & 3}]; s != "" {
		return s
	}
	return "<error>"
}

// vlan prints what is matched of the outer VLAN tag.
func (p *printer) vlan(vid, vidMask, pcp, pcpMask uint64) {
	const cfi = 0x1000
	if vidMask == 0 && pcpMask == 0 {
		return
	}
	// A matched priority implies a tag.
	if pcpMask != 0 {
		vid, vidMask = vid|cfi, vidMask|cfi
	}
	m := vidMask & 0xfff
	if vidMask&cfi != 0 && vid&cfi != 0 && (m == 0 || m == 0xfff) && (m != 0 || pcpMask != 0) {
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

// String is the match in ovs-ofctl's text; empty where it matches all.
func (m Match) String() string {
	if m.err != "" {
		return "<" + m.err + ">"
	}
	var p printer
	p.match(m)
	p.chomp(',')
	return string(p.b)
}

func (p *printer) sub(r ofp.Bits) {
	p.str(r.Field.NXMName())
	switch {
	case r.First == 0 && r.Width == r.Field.Bits():
		p.str("[]")
	case r.Width == 1:
		p.f("[%d]", r.First)
	default:
		p.f("[%d..%d]", r.First, r.First+r.Width-1)
	}
}

// hexArg is 01.02.03.
func hexArg(s string) string {
	var out []byte
	for i := range len(s) {
		if i > 0 {
			out = append(out, '.')
		}
		out = hex.AppendEncode(out, []byte{s[i]})
	}
	return string(out)
}

// String is the actions in ovs-ofctl's text; "drop" where there are none.
func (a Actions) String() string {
	var p printer
	p.actions(a.Canonical())
	return string(p.b)
}

func (p *printer) actions(list []ofp.Action) {
	if len(list) == 0 {
		p.str("drop")
	}
	for i, a := range list {
		if i > 0 {
			p.str(",")
		}
		p.action(a)
	}
}

var reasonNames = []string{"no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"}

func (p *printer) action(a ofp.Action) {
	switch a := a.(type) {
	case nil:
		p.str("<nil>")
	case ofp.Output:
		if a.Port < ofp.PortUnset {
			p.str("output:")
		}
		p.str(portText(a.Port))
		if a.Port == ofp.PortController {
			p.f(":%d", a.MaxLen)
		}
	case ofp.OutputReg:
		p.str("output:")
		p.sub(a.Src)
	case ofp.Group:
		p.f("group:%d", a.ID)
	case ofp.SetField:
		mask := ofp.Ones(a.Field.Bits())
		if a.Mask != "" {
			mask = ofp.ToValue(a.Mask)
		}
		p.f("set_field:%s->%s", valueText(a.Field, ofp.ToValue(a.Value), mask), a.Field)
	case ofp.RegMove:
		p.str("move:")
		p.sub(a.Src)
		p.str("->")
		p.sub(a.Dst)
	case ofp.DecTTL:
		p.str("dec_ttl")
		for i, id := range a.IDs {
			p.f("%c%d", "(,"[min(i, 1)], id)
		}
		if len(a.IDs) > 0 {
			p.str(")")
		}
	case ofp.SetTTL:
		p.f("mod_nw_ttl:%d", a.TTL)
	case ofp.CT:
		p.ct(a)
	case ofp.NAT:
		p.nat(a)
	case ofp.CTClear:
		p.str("ct_clear")
	case ofp.Resubmit:
		p.resubmit(a)
	case ofp.Controller:
		p.controller(a)
	case ofp.Learn:
		p.learn(a)
	case ofp.Conjunction:
		p.f("conjunction(%d,%d/%d)", a.ID, a.Clause, a.Clauses)
	case ofp.Note:
		p.str("note:" + hexArg(a.Data))
	case ofp.Meter:
		p.f("meter:%d", a.ID)
	case ofp.PushVLAN:
		p.f("push_vlan:0x%x", a.EthType)
	case ofp.PopVLAN:
		p.str("pop_vlan")
	case ofp.SetQueue:
		p.f("set_queue:%d", a.Queue)
	case ofp.PopQueue:
		p.str("pop_queue")
	case ofp.FinTimeout:
		p.str("fin_timeout(")
		if a.Idle != 0 {
			p.f("idle_timeout=%d,", a.Idle)
		}
		if a.Hard != 0 {
			p.f("hard_timeout=%d,", a.Hard)
		}
		p.chomp(',')
		p.str(")")
	case ofp.Exit:
		p.str("exit")
	case ofp.Push:
		p.str("push:")
		p.sub(a.Src)
	case ofp.Pop:
		p.str("pop:")
		p.sub(a.Dst)
	case ofp.Clone:
		p.str("clone(")
		p.actions(a.Actions)
		p.str(")")
	case ofp.CheckPacketLarger:
		p.f("check_pkt_larger(%d)->", a.Len)
		p.sub(a.Dst)
	case ofp.DeleteField:
		p.f("delete_field:%s", a.Field)
	case ofp.ClearActions:
		p.str("clear_actions")
	case ofp.WriteActions:
		p.str("write_actions(")
		p.actions(a.Actions)
		p.str(")")
	case ofp.WriteMetadata:
		p.str("write_metadata:" + hexAlt(a.Value))
		if a.Mask != ^uint64(0) {
			p.str("/" + hexAlt(a.Mask))
		}
	case ofp.GotoTable:
		p.f("goto_table:%d", a.Table)
	case ofp.RawAction:
		p.str("raw:" + hex.EncodeToString([]byte(a.Bytes)))
	case ofp.RawInstruction:
		p.str("raw_instruction:" + hex.EncodeToString([]byte(a.Bytes)))
	}
}

func (p *printer) resubmit(a ofp.Resubmit) {
	if a.Port != ofp.PortInPort && a.Table == ofp.TableAll && !a.WithCT {
		p.str("resubmit:" + portText(a.Port))
		return
	}
	p.str("resubmit(")
	if a.Port != ofp.PortInPort {
		p.str(portText(a.Port))
	}
	p.str(",")
	if a.Table != ofp.TableAll {
		p.num(uint64(a.Table))
	}
	if a.WithCT {
		p.str(",ct")
	}
	p.str(")")
}

func (p *printer) controller(a ofp.Controller) {
	p.str("controller(")
	if a.Reason != ofp.ReasonAction {
		if int(a.Reason) < len(reasonNames) {
			p.f("reason=%s,", reasonNames[a.Reason])
		} else {
			p.f("reason=%d,", a.Reason)
		}
	}
	if a.MaxLen != 0xffff {
		p.f("max_len=%d,", a.MaxLen)
	}
	if a.ID != 0 {
		p.f("id=%d,", a.ID)
	}
	if a.Userdata != "" {
		p.f("userdata=%s,", hexArg(a.Userdata))
	}
	if a.Pause {
		p.str("pause,")
	}
	if a.MeterID != 0 {
		p.f("meter_id=%d,", a.MeterID)
	}
	p.chomp(',')
	p.str(")")
}

func (p *printer) ct(a ofp.CT) {
	p.str("ct(")
	if a.Flags&ofp.CTCommit != 0 {
		p.str("commit,")
	}
	if a.Flags&ofp.CTForce != 0 {
		p.str("force,")
	}
	if a.Table != ofp.CTNoTable {
		p.f("table=%d,", a.Table)
	}
	if a.ZoneSrc.Width != 0 {
		p.str("zone=")
		p.sub(a.ZoneSrc)
		p.str(",")
	} else if a.Zone != 0 {
		p.f("zone=%d,", a.Zone)
	}
	if a.NAT != nil {
		p.nat(*a.NAT)
		p.str(",")
	}
	if len(a.Exec) > 0 {
		p.str("exec(")
		p.actions(a.Exec)
		p.str("),")
	}
	switch a.ALG {
	case 0:
	case 21:
		p.str("alg=ftp,")
	case 69:
		p.str("alg=tftp,")
	default:
		p.f("alg=%d,", a.ALG)
	}
	p.chomp(',')
	p.str(")")
}

func (p *printer) nat(a ofp.NAT) {
	p.str("nat")
	if a.Flags&(ofp.NATSrc|ofp.NATDst) == 0 {
		return
	}
	if a.Flags&ofp.NATSrc != 0 {
		p.str("(src")
	} else {
		p.str("(dst")
	}
	if a.IPMin != "" || a.PortMin != 0 {
		p.str("=")
		addr := func(s string) {
			t := addr6(ofp.ToValue(s), len(s))
			if len(s) == 16 && a.PortMin != 0 {
				t = "[" + t + "]"
			}
			p.str(t)
		}
		if a.IPMin != "" {
			addr(a.IPMin)
		}
		if a.IPMax != "" && a.IPMax != a.IPMin {
			p.str("-")
			addr(a.IPMax)
		}
		if a.PortMin != 0 {
			p.f(":%d", a.PortMin)
			if a.PortMax != 0 && a.PortMax != a.PortMin {
				p.f("-%d", a.PortMax)
			}
		}
	}
	p.str(",")
	if a.Flags&ofp.NATPersistent != 0 {
		p.str("persistent,")
	}
	if a.Flags&ofp.NATHash != 0 {
		p.str("hash,")
	}
	if a.Flags&ofp.NATRandom != 0 {
		p.str("random,")
	}
	p.chomp(',')
	p.str(")")
}

func (p *printer) learn(a ofp.Learn) {
	p.f("learn(table=%d", a.Table)
	opt := func(name string, v uint64) {
		if v != 0 {
			p.f(",%s=%d", name, v)
		}
	}
	opt("idle_timeout", uint64(a.IdleTimeout))
	opt("hard_timeout", uint64(a.HardTimeout))
	opt("fin_idle_timeout", uint64(a.FinIdle))
	opt("fin_hard_timeout", uint64(a.FinHard))
	if a.Priority != DefaultPriority {
		p.f(",priority=%d", a.Priority)
	}
	if a.Flags&ofp.LearnSendFlowRem != 0 {
		p.str(",send_flow_rem")
	}
	if a.Flags&ofp.LearnDeleteLearned != 0 {
		p.str(",delete_learned")
	}
	if a.Cookie != 0 {
		p.f(",cookie=%#x", a.Cookie)
	}
	opt("limit", uint64(a.Limit))
	if a.Flags&ofp.LearnWriteResult != 0 {
		p.str(",result_dst=")
		p.sub(a.Result)
	}
	for _, x := range a.Specs {
		p.str(",")
		p.learnSpec(x)
	}
	p.str(")")
}

func (p *printer) learnSpec(x ofp.LearnSpec) {
	v := ofp.ToValue(x.Value)
	switch {
	case x.Kind == ofp.LearnOutput:
		p.str("output:")
		p.sub(x.Src)
	case x.Kind == ofp.LearnLoad:
		p.str("load:")
		if x.Src.Width == 0 {
			p.str(hexValue(v))
		} else {
			p.sub(x.Src)
		}
		p.str("->")
		p.sub(x.Dst)
	case x.Src.Width != 0:
		p.sub(x.Dst)
		if x.Src != x.Dst {
			p.str("=")
			p.sub(x.Src)
		}
	case x.Dst.First == 0 && x.Dst.Width == x.Dst.Field.Bits():
		p.f("%s=%s", x.Dst.Field, valueText(x.Dst.Field, v, ofp.Ones(x.Dst.Width)))
	default:
		p.sub(x.Dst)
		p.str("=" + hexValue(v))
	}
}

var flagNames = []struct {
	bit  uint16
	name string
}{
	{ofp.FlagSendFlowRem, "send_flow_rem"}, {ofp.FlagCheckOverlap, "check_overlap"}, {ofp.FlagResetCounts, "reset_counts"},
	{ofp.FlagNoPktCounts, "no_packet_counts"}, {ofp.FlagNoBytCounts, "no_byte_counts"},
}

// String is the flow as ovs-ofctl dump-flows --no-stats --no-names prints it, without the
// space in front. ovs-ofctl add-flows reads it.
func (f Flow) String() string {
	var p printer
	if f.Cookie != 0 {
		p.f("cookie=0x%x, ", f.Cookie)
	}
	if f.Table != 0 {
		p.f("table=%d, ", f.Table)
	}
	if f.IdleTimeout != 0 {
		p.f("idle_timeout=%d, ", f.IdleTimeout)
	}
	if f.HardTimeout != 0 {
		p.f("hard_timeout=%d, ", f.HardTimeout)
	}
	p.flags(f.Flags)
	if f.Importance != 0 {
		p.f("importance=%d, ", f.Importance)
	}
	start := len(p.b)
	p.priorityAndMatch(f)
	if len(p.b) > start {
		p.str(" ")
	}
	p.str("actions=")
	p.actions(f.Actions.Canonical())
	return string(p.b)
}

func (p *printer) flags(flags uint16) {
	for _, x := range flagNames {
		if flags&x.bit != 0 {
			p.str(x.name + " ")
		}
	}
}

func (p *printer) priorityAndMatch(f Flow) {
	if f.Priority != DefaultPriority {
		p.f("priority=%d,", f.Priority)
	}
	if f.Match.err != "" {
		p.str(f.Match.String())
		return
	}
	p.match(f.Match)
	p.chomp(',')
}

var groupTypes = []string{"all", "select", "indirect", "ff"}

// String is the group as ovs-ofctl -O OpenFlow15 dump-groups prints it, without the space in
// front. ovs-ofctl add-groups reads it.
func (g Group) String() string {
	var p printer
	p.f("group_id=%d,type=", g.ID)
	if int(g.Type) < len(groupTypes) {
		p.str(groupTypes[g.Type])
	} else {
		p.str("unknown")
	}
	if s := g.Selection; s.Method != "" {
		p.str(",selection_method=" + s.Method)
		if s.Param != 0 {
			p.f(",selection_method_param=%d", s.Param)
		}
		var names []string
		for _, f := range s.Fields {
			names = append(names, f.String())
		}
		switch len(names) {
		case 0:
		case 1:
			p.str(",fields=" + names[0])
		default:
			p.str(",fields(" + strings.Join(names, ",") + ")")
		}
	}
	for _, b := range g.Buckets {
		p.f(",bucket=bucket_id:%d,", b.ID)
		if b.Weight != 1 && g.Type == Select || b.Weight != 0 && g.Type != Select {
			p.f("weight:%d,", b.Weight)
		}
		if b.watchPort() != ofp.PortAny {
			p.str("watch_port:" + portText(b.WatchPort) + ",")
		}
		if b.watchGroup() != ofp.GroupAny {
			p.f("watch_group:%d,", b.WatchGroup)
		}
		p.str("actions=")
		p.str(b.Actions.String())
	}
	if len(g.Buckets) == 0 {
		p.chomp(',')
	}
	return string(p.b)
}

// String is the meter as ovs-ofctl prints it.
func (m Meter) String() string {
	var p printer
	p.f("meter=%d", m.ID)
	for _, x := range []struct {
		bit  uint16
		name string
	}{{ofp.MeterKbps, "kbps"}, {ofp.MeterPktps, "pktps"}, {ofp.MeterBurst, "burst"}, {ofp.MeterStats, "stats"}} {
		if m.Flags&x.bit != 0 {
			p.str(" " + x.name)
		}
	}
	p.str(" bands=")
	for _, b := range m.Bands {
		switch b.Kind {
		case ofp.BandDrop:
			p.f("\ntype=drop rate=%d", b.Rate)
		case ofp.BandDSCPRemark:
			p.f("\ntype=dscp_remark rate=%d", b.Rate)
		default:
			p.f("\ntype=%d rate=%d", b.Kind, b.Rate)
		}
		if m.Flags&ofp.MeterBurst != 0 {
			p.f(" burst_size=%d", b.Burst)
		}
		if b.Kind == ofp.BandDSCPRemark {
			p.f(" prec_level=%d", b.PrecLevel)
		}
	}
	return string(p.b)
}
