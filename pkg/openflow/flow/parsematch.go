package flow

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// protocols are the words that stand for an Ethernet type, some also for an IP protocol (ofp-parse.c,
// ofp_parse_protocol).
var protocols = map[string]struct {
	ethType uint16
	proto   uint8
}{
	"ip": {0x0800, 0}, "ipv4": {0x0800, 0}, "ip4": {0x0800, 0}, "icmp": {0x0800, 1}, "tcp": {0x0800, 6},
	"udp": {0x0800, 17}, "sctp": {0x0800, 132},
	"ipv6": {0x86dd, 0}, "ip6": {0x86dd, 0}, "icmp6": {0x86dd, 58}, "tcp6": {0x86dd, 6}, "udp6": {0x86dd, 17},
	"sctp6": {0x86dd, 132},
	"arp":   {0x0806, 0}, "rarp": {0x8035, 0}, "mpls": {0x8847, 0}, "mplsm": {0x8848, 0},
}

// matchParser collects conditions. Conditions whose meaning depends on the protocol are added at the end.
type matchParser struct {
	b      ofp.MatchBuilder
	later  []item
	unsent []ofp.Field // conditions that the switch never gets
	last   span        // where the last condition stands, for what only shows at the end
}

// late are the names whose field depends on the protocol.
var late = map[string]bool{
	"nw_src": true, "nw_dst": true, "ip_src": true, "ip_dst": true, "tp_src": true, "tp_dst": true,
	"icmp_type": true, "icmp_code": true, "nw_proto": true, "ip_proto": true,
}

// add takes an item and reports whether it was a condition.
func (p *matchParser) add(it item) (bool, error) {
	known, err := p.take(it)
	if err == nil && known {
		if p.b.Err() != nil {
			err = it.whole.bad("conditions that can be met together", "%v", p.b.Err())
		}
		p.last = it.whole
	}
	return known, err
}

func (p *matchParser) take(it item) (bool, error) {
	name := it.key.s
	if c, ok := protocols[name]; ok && it.delim == 0 {
		p.b.Exact(ofp.EthType, ofp.Value{Lo: uint64(c.ethType)})
		if c.proto != 0 {
			p.b.Exact(ofp.IPProto, ofp.Value{Lo: uint64(c.proto)})
		}
		return true, nil
	}
	if late[name] {
		p.later = append(p.later, it)
		return true, nil
	}
	switch name {
	case "raw": // a field that we do not know, as Match.String prints it
		oxm, err := it.value.hexBytes()
		p.b.Raw(oxm)
		return true, within(name, err)
	case "eth":
		p.b.Exact(ofp.PacketType, ofp.Value{})
		return true, nil
	case "dl_vlan":
		return true, within(name, p.dlVLAN(it.value))
	case "dl_vlan_pcp", "vlan_pcp":
		return true, within(name, p.dlVLANPCP(it.value))
	case "gtpu_flags", "gtpu_msgtype": // ovs-ofctl prints them so
		name = "tun_" + name
	case "tun_tos", "tun_ttl", "skb_priority":
		return true, it.key.bad("a field that OpenFlow 1.5 can match", "%s is not known outside of the switch", name)
	}
	if strings.Contains(name, "[") {
		return true, within(name, p.part(it))
	}
	f, ok := ofp.FieldByName(name)
	if !ok {
		return false, nil
	}
	return true, within(name, p.field(f, it.value))
}

// field asks for a field's value.
func (p *matchParser) field(f ofp.Field, x span) error {
	if f.Long() {
		return p.option(f, x)
	}
	if x.empty() { // ovs-ofctl takes a field without a value for any
		return nil
	}
	if f == ofp.IPTOS {
		v, err := x.u8()
		p.b.Exact(ofp.IPDSCP, ofp.Value{Lo: uint64(v) >> 2})
		return err
	}
	v, mask, err := x.shortValue(f)
	if err != nil {
		return err
	}
	p.b.Set(f, v, mask)
	return nil
}

// option asks for a tunnel option; without a value just that it is there.
func (p *matchParser) option(f ofp.Field, x span) error {
	if x.empty() {
		p.b.SetBytes(f, "\x00", "\x00")
		return nil
	}
	v, mask, err := x.fieldValue(f)
	if err != nil {
		return err
	}
	v = maskBytes(v, mask)
	if allOnes(mask) {
		mask = ""
	}
	p.b.SetBytes(f, v, mask)
	return nil
}

func maskBytes(v, mask string) string {
	b := []byte(v)
	for i := range b {
		b[i] &= mask[i]
	}
	return string(b)
}

// part asks for some bits of a field: reg0[0..15]=5.
func (p *matchParser) part(it item) error {
	r, err := it.key.bits()
	if err != nil {
		return err
	}
	if r.Field == ofp.NXMInPort {
		return it.key.bad("in_port=PORT", "the port cannot be matched in part")
	}
	v, err := it.value.value()
	if err != nil {
		return err
	}
	if v != v.And(ofp.Ones(r.Width)) {
		return it.value.isNot(fmt.Sprintf("a number of up to %d bits", r.Width))
	}
	p.b.Set(r.Field, v.Shl(r.First), ofp.Ones(r.Width).Shl(r.First))
	return nil
}

func (p *matchParser) dlVLAN(x span) error {
	v, err := x.number(16)
	if err != nil || v > 0xfff && v != 0xffff {
		return x.isNot("a VLAN's number, 0 to 4095, or 0xffff for none")
	}
	if v == 0xffff {
		p.b.Exact(ofp.VLANVID, ofp.Value{})
		return nil
	}
	p.b.Exact(ofp.VLANVID, ofp.Value{Lo: v | 0x1000})
	return nil
}

func (p *matchParser) dlVLANPCP(x span) error {
	v, err := x.number(3)
	if err != nil {
		return err
	}
	p.b.Exact(ofp.VLANPCP, ofp.Value{Lo: v})
	p.b.Set(ofp.VLANVID, ofp.Value{Lo: 0x1000}, ofp.Value{Lo: 0x1000})
	return nil
}

// ethType is what the packets are known to be.
func (p *matchParser) ethType() uint64 {
	if m, ok := p.b.Peek(ofp.PacketType); ok && m.Value.Lo>>16 == 1 {
		return m.Value.Lo & 0xffff
	}
	m, _ := p.b.Peek(ofp.EthType)
	return m.Value.Lo
}

// finish settles what waited for the protocol, and makes the match.
func (p *matchParser) finish() (Match, error) {
	for _, it := range p.later {
		if it.key.s == "nw_proto" || it.key.s == "ip_proto" {
			if err := p.settle(it); err != nil {
				return Match{}, err
			}
		}
	}
	for _, it := range p.later {
		if it.key.s != "nw_proto" && it.key.s != "ip_proto" {
			if err := p.settle(it); err != nil {
				return Match{}, err
			}
		}
	}
	p.unsent = p.b.DropUnsent()
	oxm, err := p.b.Match()
	if err != nil {
		return Match{}, p.last.bad("the fields that this needs next to it", "%v", err)
	}
	return Match{oxm: oxm}, nil
}

// settle finds the field that a name means for packets of the match's protocol.
func (p *matchParser) settle(it item) error {
	name, eth := it.key.s, p.ethType()
	isARP := eth == 0x0806 || eth == 0x8035
	m, _ := p.b.Peek(ofp.IPProto)
	var f ofp.Field
	switch name {
	case "nw_proto", "ip_proto":
		f = ofp.IPProto
		if isARP {
			f = ofp.ARPOp
		}
	case "nw_src", "ip_src":
		f = ofp.IPv4Src
		if isARP {
			f = ofp.ARPSPA
		}
	case "nw_dst", "ip_dst":
		f = ofp.IPv4Dst
		if isARP {
			f = ofp.ARPTPA
		}
	case "tp_src":
		f = portFields[m.Value.Lo]
	case "tp_dst":
		if f = portFields[m.Value.Lo]; f != 0 {
			f++
		}
	case "icmp_type":
		f = ofp.ICMPType
		if eth == 0x86dd {
			f = ofp.ICMPv6Type
		}
	case "icmp_code":
		f = ofp.ICMPCode
		if eth == 0x86dd {
			f = ofp.ICMPv6Code
		}
	}
	if f == 0 {
		return it.key.bad("tcp, udp or sctp next to it",
			"%s only has a meaning together with a protocol that has ports", name)
	}
	if err := p.field(f, it.value); err != nil {
		return within(name, err)
	}
	if err := p.b.Err(); err != nil {
		return it.whole.bad("conditions that can be met together", "%v", err)
	}
	return nil
}

// portFields are the source ports of the protocols that have them; each is followed by its
// destination port.
var portFields = map[uint64]ofp.Field{6: ofp.TCPSrc, 17: ofp.UDPSrc, 132: ofp.SCTPSrc}
