package ofprint

import (
	"net/netip"
	"strings"
)

// text prints a packet as Open vSwitch prints a flow that it belongs to, and its checksum.
func (k *packet) text(p *printer) {
	start := len(p.b)
	arp := k.ethType == ethARP || k.ethType == ethRARP
	if !k.ethernet {
		p.f("packet_type=(%s,%s),", smallHex(uint16(k.packetType>>16)), smallHex(uint16(k.packetType)))
	}
	named := k.ethernet && k.typeName(p) // has the type, and with it the protocol, been named?
	k.link(p, named)
	k.addresses(p, arp)
	if arp {
		p.f("arp_op=%d,arp_sha=%s,arp_tha=%s,", k.proto, k.arpSHA, k.arpTHA)
	}
	switch k.ethType {
	case ethMPLS, ethMPLSM:
		k.mplsText(p)
	case ethIP, ethIPv6, ethNSH:
		k.network(p)
	}
	if len(p.b) > start {
		p.chomp(',')
	}
	if k.checksumName != "" {
		p.f(" %s:%x", k.checksumName, k.checksum)
	}
	p.str("\n")
}

// smallHex is a part of a packet type: hexadecimal from ten on.
func smallHex(v uint16) string {
	var p printer
	if v > 9 {
		p.str("0x")
		p.f("%x", v)
	} else {
		p.num(uint64(v))
	}
	return string(p.b)
}

// typeName prints the name of the Ethernet type, or of the protocol above it.
func (k *packet) typeName(p *printer) bool {
	six := ""
	name := ""
	switch k.ethType {
	case ethIPv6:
		six = "6"
		name = "ipv6"
		fallthrough
	case ethIP:
		if name == "" {
			name = "ip"
		}
		if proto := k.protocolName(six); proto != "" {
			name = proto
		}
	case ethARP:
		name = "arp"
	case ethRARP:
		name = "rarp"
	case ethMPLS:
		name = "mpls"
	case ethMPLSM:
		name = "mplsm"
	default:
		return false
	}
	p.str(name + ",")
	return true
}

func (k *packet) protocolName(six string) string {
	switch {
	case k.proto == protoICMP && six == "":
		return "icmp"
	case k.proto == protoICM6 && six != "":
		return "icmp6"
	case k.proto == protoTCP:
		return "tcp" + six
	case k.proto == protoUDP:
		return "udp" + six
	case k.proto == protoSCTP:
		return "sctp" + six
	}
	return ""
}

// link prints what is in the Ethernet header and the VLAN tags.
func (k *packet) link(p *printer, named bool) {
	if !k.ethernet {
		return
	}
	suffix := []string{"", "1"}
	for i, tag := range k.vlans {
		p.f("dl_vlan%s=%d,dl_vlan_pcp%s=%d,", suffix[i], tag&0xfff, suffix[i], tag>>13)
	}
	if len(k.vlans) < len(suffix) {
		p.f("vlan_tci%s=0x0000,", suffix[len(k.vlans)])
	}
	p.f("dl_src=%s,dl_dst=%s,", k.src, k.dst)
	if !named {
		p.f("dl_type=0x%04x,", k.ethType)
	}
}

func address(b []byte) string {
	if len(b) == 4 {
		return netip.AddrFrom4([4]byte(b)).String()
	}
	// inet_ntop writes what could be an IPv4 address in an IPv6 one as such.
	a := netip.AddrFrom16([16]byte(b))
	if s := a.String(); !strings.HasPrefix(s, "::") || a.Is4In6() {
		return s
	}
	for _, c := range b[:12] {
		if c != 0 {
			return a.String()
		}
	}
	if b[12] == 0 && b[13] == 0 {
		return a.String()
	}
	return "::" + netip.AddrFrom4([4]byte(b[12:])).String()
}

func (k *packet) addresses(p *printer, arp bool) {
	switch {
	case k.ethType == ethIPv6:
		p.f("ipv6_src=%s,ipv6_dst=%s,ipv6_label=0x%05x,", address(k.ipSrc), address(k.ipDst), k.label)
	case arp:
		p.f("arp_spa=%s,arp_tpa=%s,", address(k.ipSrc), address(k.ipDst))
	case k.ethType == ethNSH:
		p.f("nsh_flags=%d,nsh_ttl=%d,nsh_mdtype=%d,nsh_np=%d,nsh_spi=0x%x,nsh_si=%d,",
			k.nsh.flags, k.nsh.ttl, k.nsh.mdType, k.nsh.next, k.nshPath>>8, k.nshPath&0xff)
		if k.nsh.mdType == 1 {
			for i, v := range k.nsh.context {
				p.f("nsh_c%d=0x%x,", i+1, v)
			}
		}
	case k.ethType == ethIP:
		p.f("nw_src=%s,nw_dst=%s,", address(k.ipSrc), address(k.ipDst))
	}
}

func (k *packet) mplsText(p *printer) {
	l := k.mpls[0]
	p.f("mpls_label=%d,mpls_tc=%d,mpls_ttl=%d,mpls_bos=%d,", l>>12, l>>9&7, l&0xff, l>>8&1)
	for i := 1; i < len(k.mpls) && k.mpls[i-1]&0x100 == 0; i++ {
		p.f("mpls_lse%d=%d,", i, k.mpls[i])
	}
}

// network prints the parts of the IP header and of what is above it.
func (k *packet) network(p *printer) {
	six := ""
	if k.ethType == ethIPv6 {
		six = "6"
	}
	if k.protocolName(six) == "" || !k.ethernet || k.ethType == ethNSH {
		p.f("nw_proto=%d,", k.proto)
	}
	p.f("nw_tos=%d,nw_ecn=%d,nw_ttl=%d,nw_frag=%s,", k.tos&0xfc, k.tos&3, k.ttl,
		[...]string{"no", "first", "<error>", "later"}[k.frag&3])
	if k.frag&2 != 0 {
		return
	}
	switch {
	case k.proto == protoICMP && k.ethType == ethIP, k.proto == protoICM6 && six != "":
		p.f("icmp_type=%d,icmp_code=%d,", k.tpSrc, k.tpDst)
		if six != "" && k.tpDst == 0 && (k.tpSrc == 135 || k.tpSrc == 136) {
			p.f("nd_target=%s,nd_sll=%s,nd_tll=%s,", address(k.target), k.arpSHA, k.arpTHA)
		}
	case k.proto == protoTCP, k.proto == protoUDP, k.proto == protoSCTP, k.proto == protoIGMP,
		k.proto == protoICMP, k.proto == protoICM6:
		p.f("tp_src=%d,tp_dst=%d,", k.tpSrc, k.tpDst)
	}
	if k.proto == protoTCP {
		p.str("tcp_flags=" + tcpFlagsText(k.tcpFlags) + ",")
	}
}

var tcpFlagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"}

func tcpFlagsText(flags uint16) string {
	var on []string
	for i, name := range tcpFlagNames {
		if flags&(1<<i) != 0 {
			on = append(on, name)
		}
	}
	if len(on) == 0 {
		return "0"
	}
	return strings.Join(on, "|")
}
