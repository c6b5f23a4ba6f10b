package ofp

import (
	"fmt"
	"slices"
)

// requirement is what must be matched exactly for a field to have a meaning.
type requirement struct {
	ethTypes []uint16
	proto    uint8
	icmp     []uint8
	text     string
}

// Ethernet types that requirements name.
const (
	ethTypeIPv4 uint16 = 0x0800
	ethTypeARP  uint16 = 0x0806
	ethTypeRARP uint16 = 0x8035
	ethTypeIPv6 uint16 = 0x86dd
	ethTypeMPLS uint16 = 0x8847
	ethTypeMPLM uint16 = 0x8848
	ethTypeNSH  uint16 = 0x894f
)

var (
	ethIPv4 = []uint16{ethTypeIPv4}
	ethIPv6 = []uint16{ethTypeIPv6}
	ethIP   = []uint16{ethTypeIPv4, ethTypeIPv6}
	ethARP  = []uint16{ethTypeARP, ethTypeRARP}
	ethMPLS = []uint16{ethTypeMPLS, ethTypeMPLM}
	ethNSH  = []uint16{ethTypeNSH}
)

var requirements = [...]requirement{
	needsEth:    {text: "packets that begin with Ethernet"},
	needsVLAN:   {text: "vlan_vid or dl_vlan"},
	needsMPLS:   {ethTypes: ethMPLS, text: "mpls or mplsm"},
	needsIPv4:   {ethTypes: ethIPv4, text: "ip"},
	needsIPv6:   {ethTypes: ethIPv6, text: "ipv6"},
	needsIP:     {ethTypes: ethIP, text: "ip or ipv6"},
	needsARP:    {ethTypes: ethARP, text: "arp or rarp"},
	needsTCP:    {ethTypes: ethIP, proto: 6, text: "tcp or tcp6, and no later fragments"},
	needsUDP:    {ethTypes: ethIP, proto: 17, text: "udp or udp6, and no later fragments"},
	needsSCTP:   {ethTypes: ethIP, proto: 132, text: "sctp or sctp6, and no later fragments"},
	needsICMPv4: {ethTypes: ethIPv4, proto: 1, text: "icmp"},
	needsICMPv6: {ethTypes: ethIPv6, proto: 58, text: "icmp6"},
	needsND: {ethTypes: ethIPv6, proto: 58, icmp: []uint8{135, 136},
		text: "icmp6 with icmp_type 135 or 136 and no icmp_code but 0"},
	needsNDSolicit: {ethTypes: ethIPv6, proto: 58, icmp: []uint8{135},
		text: "icmp6 with icmp_type 135 and no icmp_code but 0"},
	needsNDAdvert: {ethTypes: ethIPv6, proto: 58, icmp: []uint8{136},
		text: "icmp6 with icmp_type 136 and no icmp_code but 0"},
	needsNSH: {ethTypes: ethNSH, text: "dl_type=0x894f"},
	needsCT:  {text: "a ct_state which means that the connection is known, such as +trk+est"},
	needsCT4: {ethTypes: ethIPv4, text: "ip and a ct_state which means that the connection is known, such as +trk+est"},
	needsCT6: {ethTypes: ethIPv6,
		text: "ipv6 and a ct_state which means that the connection is known, such as +trk+est"},
	needsCTPort: {text: "ct_nw_proto and a ct_state which means that the connection is known, such as +trk+est"},
}

// Prerequisites returns in words the other matches that the field needs, or "".
func (f Field) Prerequisites() string {
	if !f.exists() {
		return ""
	}
	return requirements[fields[f].needs].text
}

// packetEthernet is the packet type of an ordinary packet (OpenFlow 1.5, 7.2.3.11). Other types in namespace 1 are
// Ethernet types.
const packetEthernet uint32 = 0

// facts are the known properties of packets, from the match and from the actions that change the packets. A zero value
// means that the property is unknown.
type facts struct {
	packetType uint32
	ethType    uint16 // where packetType is packetEthernet
	proto      uint8
	frag       uint8
	icmpType   uint8
	icmpCode   uint8
	vlans      [2]bool // outer, inner
	ctState    uint8
	ctMask     uint8
	ctProto    uint8
	// set is true if the actions are an action set (write_actions). The packet may have changed before it runs. So the
	// switch checks only fields of these actions, and nothing that depends on the packet.
	set bool
}

// unless is an error but in an action set.
func (k *facts) unless(met bool, format string, args ...any) error {
	if met || k.set {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// facts are what the conditions say.
func (b *MatchBuilder) facts() facts {
	var k facts
	for i := range b.set {
		m := &b.set[i]
		v := m.Value.Lo
		switch m.Field {
		case PacketType:
			k.packetType = uint32(v)
		case EthType:
			k.ethType = uint16(v)
		case IPProto:
			k.proto = uint8(v)
		case IPFrag:
			k.frag = uint8(v)
		case ICMPType, ICMPv6Type:
			k.icmpType = uint8(v)
		case ICMPCode, ICMPv6Code:
			k.icmpCode = uint8(v)
		case VLANVID:
			k.vlans[0] = v&0x1000 != 0
		case VLANTCI:
			k.vlans[0] = v&0x1000 != 0
		case CTState:
			k.ctState, k.ctMask = uint8(v), uint8(m.Mask.Lo)
		case CTNwProto:
			k.ctProto = uint8(v)
		}
	}
	return k
}

// l3 is the type of what follows the Ethernet header, or stands in its place.
func (k *facts) l3() uint16 {
	switch {
	case k.packetType == packetEthernet:
		return k.ethType
	case k.packetType>>16 == 1:
		return uint16(k.packetType)
	}
	return 0
}

func (k *facts) isIP() bool   { return slices.Contains(ethIP, k.l3()) }
func (k *facts) isMPLS() bool { return slices.Contains(ethMPLS, k.l3()) }

// tracked reports whether ct_state implies a connection (flow.h, is_ct_valid).
func (k *facts) tracked() bool {
	const newEstRelRplNAT, inv, trk = 0xcf, 0x10, 0x20
	return k.ctState&newEstRelRplNAT != 0 || k.ctState&trk != 0 && k.ctMask&inv != 0 && k.ctState&inv == 0
}

// met reports whether the facts are what a field needs.
func (k *facts) met(n needs) bool {
	switch n {
	case needsNone:
		return true
	case needsEth:
		return k.packetType == packetEthernet
	case needsVLAN:
		return k.packetType == packetEthernet && k.vlans[0]
	case needsTCP, needsUDP, needsSCTP:
		if k.frag&2 != 0 {
			return false
		}
	case needsCTPort:
		if k.ctProto == 0 {
			return false
		}
		fallthrough
	case needsCT, needsCT4, needsCT6:
		if !k.tracked() {
			return false
		}
	}
	r := &requirements[n]
	return (len(r.ethTypes) == 0 || slices.Contains(r.ethTypes, k.l3())) &&
		(r.proto == 0 || r.proto == k.proto) &&
		(len(r.icmp) == 0 || slices.Contains(r.icmp, k.icmpType) && k.icmpCode == 0)
}

// field is an error where packets need not have the field.
func (k *facts) field(f Field) error {
	if !f.exists() || k.met(fields[f].needs) {
		return nil
	}
	return fmt.Errorf("%s: only has a meaning together with %s", f, requirements[fields[f].needs].text)
}

// check returns an error for a condition that lacks its prerequisites.
func (b *MatchBuilder) check() error {
	k := b.facts()
	for i := range b.set {
		if m := &b.set[i]; m.Field != 0 {
			if err := k.field(m.Field); err != nil {
				return err
			}
		}
	}
	return nil
}

// DropUnsent removes the conditions that Open vSwitch accepts in text but never sends, and returns
// their fields: ports of a connection's first packet without the connection's protocol, ct_nw_proto
// (nx-match.c, nx_put_raw). A flow that asks for them matches any port.
func (b *MatchBuilder) DropUnsent() []Field {
	if k := b.facts(); k.ctProto != 0 || !k.tracked() {
		return nil
	}
	var dropped []Field
	b.set = slices.DeleteFunc(b.set, func(m MatchField) bool {
		unsent := m.Field != 0 && fields[m.Field].needs == needsCTPort
		if unsent {
			dropped = append(dropped, m.Field)
		}
		return unsent
	})
	return dropped
}

// Complete adds the prerequisites of the fields that are set, if there is only one choice. If both versions of IP are
// possible, it chooses IPv4.
func (b *MatchBuilder) Complete() {
	var few [6]MatchField
	for _, m := range append(few[:0], b.set...) {
		if m.Field == 0 {
			continue
		}
		r := &requirements[fields[m.Field].needs]
		if r.proto != 0 && !b.Has(IPProto) {
			b.Exact(IPProto, Value{Lo: uint64(r.proto)})
		}
		if len(r.icmp) == 1 && !b.Has(ICMPv6Type) {
			b.Exact(ICMPv6Type, Value{Lo: uint64(r.icmp[0])})
		}
		if len(r.ethTypes) > 0 && !b.Has(EthType) && !b.Has(PacketType) {
			b.Exact(EthType, Value{Lo: uint64(r.ethTypes[0])})
		}
	}
}
