package flow

import (
	"encoding/hex"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// String returns the actions in ovs-ofctl's text, or "drop" for an empty list.
func (a Actions) String() string {
	var p printer
	p.actions(a.Canonical())
	return string(p.b)
}

// OVSText returns the actions exactly as ovs-ofctl prints them: see Flow.OVSText. Actions of a decoded message keep the
// message's form.
func (a Actions) OVSText() string {
	p := printer{asOVS: true}
	p.actions(a)
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

// sub is a range of bits: NXM_NX_REG0[0..15].
func (p *printer) sub(r ofp.Bits) {
	p.str(r.Field.NXMName())
	switch {
	case r.First == 0 && r.Width == r.Field.ActionBits():
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

// action prints one action. Actions with several arguments have printers of their own.
func (p *printer) action(a ofp.Action) {
	switch a := a.(type) {
	case nil:
		p.str("<nil>")
	case ofp.Output:
		p.output(a)
	case ofp.OutputReg:
		p.str("output:")
		p.sub(a.Src)
	case ofp.OutputTrunc:
		p.f("output(port=%s,max_len=%d)", p.port(a.Port), a.MaxLen)
	case ofp.Group:
		p.f("group:%d", a.ID)
	case ofp.SetField:
		p.setField(a)
	case ofp.RegMove:
		p.str("move:")
		p.sub(a.Src)
		p.str("->")
		p.sub(a.Dst)
	case ofp.Legacy:
		p.legacy(a)
	case ofp.CT:
		p.ct(a)
	case ofp.NAT:
		p.nat(a)
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
	case ofp.SetQueue:
		p.f("set_queue:%d", a.Queue)
	case ofp.FinTimeout:
		p.finTimeout(a)
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
	case ofp.Multipath:
		p.multipath(a)
	case ofp.BundlePorts:
		p.bundle(a)
	case ofp.Sample:
		p.sample(a)
	case ofp.Encap:
		p.encap(a)
	default:
		p.plain(a)
	}
}

// plain prints actions of a word or two.
func (p *printer) plain(a ofp.Action) {
	switch a := a.(type) {
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
	case ofp.PushVLAN:
		p.f("push_vlan:0x%x", a.EthType)
	case ofp.PopVLAN:
		p.str("pop_vlan")
	case ofp.PushMPLS:
		p.f("push_mpls:0x%04x", a.EthType)
	case ofp.PopMPLS:
		p.f("pop_mpls:0x%04x", a.EthType)
	case ofp.DecMPLSTTL:
		p.str("dec_mpls_ttl")
	case ofp.SetMPLSTTL:
		p.f("set_mpls_ttl(%d)", a.TTL)
	case ofp.DecNSHTTL:
		p.str("dec_nsh_ttl")
	case ofp.Decap:
		p.str("decap(")
		if a.PacketType != ofp.PacketUseNextProto {
			p.f("packet_type(ns=%d,type=%s)", a.PacketType>>16, hexAlt(uint64(a.PacketType&0xffff)))
		}
		p.str(")")
	case ofp.DeleteField:
		p.str("delete_field:" + a.Field.String())
	case ofp.Meter:
		p.f("meter:%d", a.ID)
	case ofp.CTClear:
		p.str("ct_clear")
	case ofp.PopQueue:
		p.str("pop_queue")
	case ofp.Exit:
		p.str("exit")
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
		p.str("goto_table:" + p.table(a.Table))
	case ofp.RawAction:
		p.f("raw:%x", a.Bytes)
	case ofp.RawInstruction:
		p.f("raw_instruction:%x", a.Bytes)
	default:
		p.f("<%T>", a)
	}
}

func (p *printer) output(a ofp.Output) {
	if a.Port < 0xff00 {
		p.str("output:")
	}
	p.str(p.port(a.Port))
	if a.Port == ofp.PortController {
		p.f(":%d", a.MaxLen)
	}
}

func (p *printer) setField(a ofp.SetField) {
	if r, ok := run(a); ok && !p.asOVS &&
		(!a.Field.Maskable() || a.Field.Format() == ofp.FormatIPv6 && prefixLen(ofp.ToValue(a.Mask), 16) < 0) {
		// ovs-ofctl prints a mask that it cannot read, and reads a load.
		p.str("load:" + hexValue(ofp.ToValue(a.Value).Shr(r.First)) + "->")
		p.sub(r)
		return
	}
	p.str("set_field:")
	switch {
	case a.Field.Long() && a.Mask != "" && hexString(a.Mask) == "0":
		p.str(p.any())
	case a.Field.Long():
		p.str(hexString(a.Value))
		if a.Mask != "" {
			p.str("/" + hexString(a.Mask))
		}
	case a.Mask == "":
		p.value(a.Field, ofp.ToValue(a.Value), ofp.Ones(a.Field.Bits()))
	default:
		p.value(a.Field, ofp.ToValue(a.Value), ofp.ToValue(a.Mask))
	}
	p.str("->" + a.Field.String())
}

// run is the one range of bits that a set_field in part writes; false where there are more.
func run(a ofp.SetField) (ofp.Bits, bool) {
	m := ofp.ToValue(a.Mask)
	if a.Mask == "" || m.IsZero() || a.Field.Long() {
		return ofp.Bits{}, false
	}
	r := ofp.Bits{Field: a.Field}
	for m.Shr(r.First).Lo&1 == 0 {
		r.First++
	}
	for m.Shr(r.First+r.Width).Lo&1 != 0 {
		r.Width++
	}
	return r, m == ofp.Ones(r.Width).Shl(r.First)
}

func (p *printer) legacy(a ofp.Legacy) {
	name := a.Kind.String()
	switch a.Kind {
	case ofp.LegacyEthSrc, ofp.LegacyEthDst:
		p.str(name + ":" + macText(ofp.Value{Lo: a.Value}))
	case ofp.LegacyIPSrc, ofp.LegacyIPDst:
		p.str(name + ":" + addrText(ofp.Value{Lo: a.Value}, 4))
	case ofp.LegacyMPLSLabel, ofp.LegacyMPLSTC:
		p.f("%s(%d)", name, a.Value)
	case ofp.LegacyTunnel, ofp.LegacyTunnel64:
		p.str(name + ":" + hexAlt(a.Value))
	default:
		p.f("%s:%d", name, a.Value)
	}
}

func (p *printer) resubmit(a ofp.Resubmit) {
	// If the packet comes from another port, ovs-ofctl does not print the flag for the original tuple.
	if a.Port != ofp.PortInPort && a.Table == ofp.TableAll && (!a.WithCT || p.asOVS) {
		p.str("resubmit:" + p.port(a.Port))
		return
	}
	p.str("resubmit(")
	if a.Port != ofp.PortInPort {
		p.str(p.port(a.Port))
	}
	p.str(",")
	if a.Table != ofp.TableAll {
		p.str(p.table(a.Table))
	}
	if a.WithCT {
		p.str(",ct")
	}
	p.str(")")
}

// reasonNames are why a packet comes to a controller, by number.
var reasonNames = []string{"no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"}

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
	p.chomp()
	p.str(")")
}

func (p *printer) finTimeout(a ofp.FinTimeout) {
	p.str("fin_timeout(")
	if a.Idle != 0 {
		p.f("idle_timeout=%d,", a.Idle)
	}
	if a.Hard != 0 {
		p.f("hard_timeout=%d,", a.Hard)
	}
	p.chomp()
	p.str(")")
}

// name is the i-th of some names.
func name[T ~uint16](names []string, i T) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("<unknown %d>", i)
}

func (p *printer) multipath(a ofp.Multipath) {
	p.f("multipath(%s,%d,%s,%d,%d,", name(hashNames, a.Fields), a.Basis, name(multipathNames, a.Algorithm),
		int(a.MaxLink)+1, a.Arg)
	p.sub(a.Dst)
	p.str(")")
}

func (p *printer) bundle(a ofp.BundlePorts) {
	p.str("bundle")
	if a.Dst.Width != 0 {
		p.str("_load")
	}
	p.f("(%s,%d,%s,ofport,", name(hashNames, a.Fields), a.Basis, name(bundleNames, a.Algorithm))
	if a.Dst.Width != 0 {
		p.sub(a.Dst)
		p.str(",")
	}
	p.str("members:")
	for i, m := range a.Members {
		if i > 0 {
			p.str(",")
		}
		p.str(p.port(m))
	}
	p.str(")")
}

func (p *printer) sample(a ofp.Sample) {
	number := func(name string, v uint32, src ofp.Bits) {
		p.str(name)
		if src.Width != 0 {
			p.sub(src)
		} else {
			p.f("%d", v)
		}
	}
	p.f("sample(probability=%d,collector_set_id=%d", a.Probability, a.CollectorSet)
	number(",obs_domain_id=", a.ObsDomain, a.ObsDomainSrc)
	number(",obs_point_id=", a.ObsPoint, a.ObsPointSrc)
	if a.Port != ofp.PortAny {
		p.str(",sampling_port=" + p.port(a.Port))
	}
	switch a.Direction {
	case ofp.SampleIngress:
		p.str(",ingress")
	case ofp.SampleEgress:
		p.str(",egress")
	}
	p.str(")")
}

func (p *printer) encap(a ofp.Encap) {
	p.str("encap(" + encapNames[a.PacketType])
	for i, x := range a.Props {
		p.str("(,"[min(i, 1) : min(i, 1)+1])
		if x.Kind == ofp.EncapNSHMDType {
			p.f("md_type=%d", x.MDType)
			continue
		}
		// ovs-ofctl leaves zeros in front out, and with them the TLV's length.
		data := hexString(x.Data)
		if !p.asOVS {
			data = fmt.Sprintf("0x%x", x.Data)
		}
		p.f("tlv(0x%04x,%d,%s)", x.TLVClass, x.TLVType, data)
	}
	if len(a.Props) > 0 {
		p.str(")")
	}
	p.str(")")
}
