// Package flow has types for the contents of a switch: flows, groups, meters, sets of them, and the difference of two
// sets. It reads and writes ovs-ofctl's text. It is pure: it uses no connection and no clock.
package flow

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Match selects the packets of a flow. It is comparable: equal matches are equal values, in whatever order their
// conditions were given. The zero value matches every packet. A Match keeps an error in its conditions, which Err and
// Set.Add report.
type Match struct {
	oxm ofp.Match
	err string
}

// MatchOf wraps the match of a decoded message.
func MatchOf(m ofp.Match) Match { return Match{oxm: m} }

// OXM is the match as it goes into messages.
func (m Match) OXM() ofp.Match { return m.oxm }

// Err is what was wrong with the conditions, nil where nothing was.
func (m Match) Err() error {
	if m.err == "" {
		return nil
	}
	return fmt.Errorf("match: %s", m.err)
}

// Cond is one condition of a Match. Conditions on different bits of a field add up.
type Cond func(*ofp.MatchBuilder)

// All returns the match of packets that meet all conditions. It adds the prerequisites of a condition (a TCP port needs
// TCP, which needs IP), with IPv4 if no condition is of IPv6.
func All(c ...Cond) Match {
	var b ofp.MatchBuilder
	for _, cond := range c {
		cond(&b)
	}
	b.Complete()
	m, err := b.Match()
	if err != nil {
		return Match{err: err.Error()}
	}
	return Match{oxm: m}
}

func exact(f ofp.Field, v uint64) Cond {
	return func(b *ofp.MatchBuilder) { b.Exact(f, ofp.Value{Lo: v}) }
}

// Field is a condition on any field: big-endian value and mask; a nil mask means all bits.
func Field(f ofp.Field, value []byte, mask []byte) Cond {
	return func(b *ofp.MatchBuilder) {
		if len(value) > 16 || len(mask) > 16 {
			b.Fail(fmt.Errorf("%s: value and mask have at most 16 bytes", f))
			return
		}
		if mask == nil {
			b.Exact(f, ofp.ToValue(value))
			return
		}
		b.Set(f, ofp.ToValue(value), ofp.ToValue(mask))
	}
}

// InPort asks for the port that the packet came from.
func InPort(p ofp.Port) Cond { return exact(ofp.InPort, uint64(p)) }

// EthSrc asks for the source MAC.
func EthSrc(m ofp.MAC) Cond { return mac(ofp.EthSrc, m) }

// EthDst asks for the destination MAC.
func EthDst(m ofp.MAC) Cond { return mac(ofp.EthDst, m) }

func mac(f ofp.Field, m ofp.MAC) Cond {
	return func(b *ofp.MatchBuilder) { b.Exact(f, ofp.ToValue(m[:])) }
}

// EthDstMasked asks for the bits of the destination MAC that the mask has.
func EthDstMasked(m, mask ofp.MAC) Cond {
	return func(b *ofp.MatchBuilder) {
		bits := ofp.ToValue(mask[:])
		b.Set(ofp.EthDst, ofp.ToValue(m[:]).And(bits), bits)
	}
}

// Tagged asks for a VLAN tag, whichever.
func Tagged() Cond { return Field(ofp.VLANTCI, []byte{0x10, 0}, []byte{0x10, 0}) }

// EthType asks for an Ethernet type.
func EthType(t uint16) Cond { return exact(ofp.EthType, uint64(t)) }

// IP asks for IPv4.
func IP() Cond { return EthType(0x0800) }

// IPv6 asks for IPv6.
func IPv6() Cond { return EthType(0x86dd) }

// ARP asks for ARP.
func ARP() Cond { return EthType(0x0806) }

// IPProto asks for an IP protocol number.
func IPProto(p uint8) Cond { return exact(ofp.IPProto, uint64(p)) }

// TCP asks for TCP, over IPv4 unless IPv6 is also given.
func TCP() Cond { return IPProto(6) }

// UDP asks for UDP, over IPv4 unless IPv6 is also given.
func UDP() Cond { return IPProto(17) }

// SCTP asks for SCTP, over IPv4 unless IPv6 is also given.
func SCTP() Cond { return IPProto(132) }

// ICMP asks for ICMP of IPv4.
func ICMP() Cond {
	return func(b *ofp.MatchBuilder) { IP()(b); IPProto(1)(b) }
}

// ICMPv6 asks for ICMP of IPv6.
func ICMPv6() Cond {
	return func(b *ofp.MatchBuilder) { IPv6()(b); IPProto(58)(b) }
}

// ICMPv6Type asks for ICMP of IPv6 and a type of message.
func ICMPv6Type(t uint8) Cond { return exact(ofp.ICMPv6Type, uint64(t)) }

// ICMPv6Code asks for ICMP of IPv6 and a code.
func ICMPv6Code(c uint8) Cond { return exact(ofp.ICMPv6Code, uint64(c)) }

// Types of the messages of Neighbor Discovery (RFC 4861).
const (
	RouterSolicitation    uint8 = 133
	RouterAdvertisement   uint8 = 134
	NeighborSolicitation  uint8 = 135
	NeighborAdvertisement uint8 = 136
	Redirect              uint8 = 137
)

// NDSolicits matches a Neighbor Solicitation for an address. A host ignores such a message if a router has forwarded
// it. So the condition includes the hop limit (RFC 4861 section 7.1.1).
func NDSolicits(target netip.Addr) Cond {
	return func(b *ofp.MatchBuilder) {
		if !target.Is6() {
			b.Fail(fmt.Errorf("%s: %s is not an IPv6 address", ofp.NDTarget, target))
			return
		}
		NDSolicitation()(b)
		b.Exact(ofp.NDTarget, ofp.ToValue(target.AsSlice()))
	}
}

// NDSolicitation asks for a Neighbor Solicitation for any address.
func NDSolicitation() Cond {
	return func(b *ofp.MatchBuilder) {
		ICMPv6()(b)
		ICMPv6Type(NeighborSolicitation)(b)
		ICMPv6Code(0)(b)
		TTL(255)(b)
	}
}

// DSCP matches the differentiated services code point of an IP packet, 0 to 63.
func DSCP(n uint8) Cond { return exact(ofp.IPDSCP, uint64(n)) }

// TTL asks for a TTL, over IPv4 unless IPv6 is also given, which calls it hop limit.
func TTL(n uint8) Cond { return exact(ofp.IPTTL, uint64(n)) }

// IPSrc asks for a source address in a prefix, and for its version of IP.
func IPSrc(p netip.Prefix) Cond { return prefix(ofp.IPv4Src, ofp.IPv6Src, p) }

// IPDst asks for a destination address in a prefix, and for its version of IP.
func IPDst(p netip.Prefix) Cond { return prefix(ofp.IPv4Dst, ofp.IPv6Dst, p) }

// CTDst matches the destination of a connection before its translation. It needs a ct_state with -inv+trk.
func CTDst(p netip.Prefix) Cond { return prefix(ofp.CTNwDst, ofp.CTIPv6Dst, p) }

func prefix(v4, v6 ofp.Field, p netip.Prefix) Cond {
	return func(b *ofp.MatchBuilder) {
		switch {
		case !p.IsValid():
			b.Fail(fmt.Errorf("%s: the prefix is not valid", v4))
		case p.Addr().Is4():
			IP()(b)
			setPrefix(b, v4, p)
		default:
			IPv6()(b)
			setPrefix(b, v6, p)
		}
	}
}

func setPrefix(b *ofp.MatchBuilder, f ofp.Field, p netip.Prefix) {
	mask := ofp.Ones(p.Bits()).Shl(f.Bits() - p.Bits())
	b.Set(f, ofp.ToValue(p.Addr().AsSlice()).And(mask), mask)
}

// Fragment matches fragments of packets, including the first one, over IPv4 unless IPv6 is also given.
func Fragment() Cond {
	return func(b *ofp.MatchBuilder) { b.Set(ofp.IPFrag, ofp.Value{Lo: 1}, ofp.Value{Lo: 1}) }
}

// TCPSrc asks for TCP and a source port.
func TCPSrc(p uint16) Cond { return exact(ofp.TCPSrc, uint64(p)) }

// TCPDst asks for TCP and a destination port.
func TCPDst(p uint16) Cond { return exact(ofp.TCPDst, uint64(p)) }

// UDPSrc asks for UDP and a source port.
func UDPSrc(p uint16) Cond { return exact(ofp.UDPSrc, uint64(p)) }

// UDPDst asks for UDP and a destination port.
func UDPDst(p uint16) Cond { return exact(ofp.UDPDst, uint64(p)) }

// SCTPSrc asks for SCTP and a source port.
func SCTPSrc(p uint16) Cond { return exact(ofp.SCTPSrc, uint64(p)) }

// SCTPDst asks for SCTP and a destination port.
func SCTPDst(p uint16) Cond { return exact(ofp.SCTPDst, uint64(p)) }

// ARPOp asks for ARP and an operation: 1 request, 2 reply.
func ARPOp(op uint16) Cond { return exact(ofp.ARPOp, uint64(op)) }

// ARPSPA asks for the sender's address in ARP.
func ARPSPA(a netip.Addr) Cond { return arpAddr(ofp.ARPSPA, a) }

// ARPTPA asks for the target's address in ARP.
func ARPTPA(a netip.Addr) Cond { return arpAddr(ofp.ARPTPA, a) }

func arpAddr(f ofp.Field, a netip.Addr) Cond {
	return func(b *ofp.MatchBuilder) {
		if !a.Is4() {
			b.Fail(fmt.Errorf("%s: %s is not an IPv4 address", f, a))
			return
		}
		b.Exact(f, ofp.ToValue(a.AsSlice()))
	}
}

// ARPSHA asks for the sender's MAC in ARP.
func ARPSHA(m ofp.MAC) Cond { return mac(ofp.ARPSHA, m) }

// ARPTHA asks for the target's MAC in ARP.
func ARPTHA(m ofp.MAC) Cond { return mac(ofp.ARPTHA, m) }

// TunnelSrc matches packets from a tunnel whose far end has an address in the prefix. The addresses inside of the
// tunnel do not matter.
func TunnelSrc(p netip.Prefix) Cond { return tunnelPrefix(ofp.TunIPv4Src, ofp.TunIPv6Src, p) }

// TunnelDst asks for packets from a tunnel that were sent to an address in the prefix.
func TunnelDst(p netip.Prefix) Cond { return tunnelPrefix(ofp.TunIPv4Dst, ofp.TunIPv6Dst, p) }

func tunnelPrefix(v4, v6 ofp.Field, p netip.Prefix) Cond {
	return func(b *ofp.MatchBuilder) {
		switch {
		case !p.IsValid():
			b.Fail(fmt.Errorf("%s: the prefix is not valid", v4))
		case p.Addr().Is4():
			setPrefix(b, v4, p)
		default:
			setPrefix(b, v6, p)
		}
	}
}

// TunID asks for a tunnel key.
func TunID(id uint64) Cond { return exact(ofp.TunID, id) }

// PktMark asks for bits of the packet mark.
func PktMark(value, mask uint32) Cond { return masked32(ofp.PktMark, value, mask) }

// CTZone asks for the zone of the last conntrack look-up.
func CTZone(z uint16) Cond { return exact(ofp.CTZone, uint64(z)) }

// CTMark asks for bits of the connection's mark.
func CTMark(value, mask uint32) Cond { return masked32(ofp.CTMark, value, mask) }

func masked32(f ofp.Field, value, mask uint32) Cond {
	return func(b *ofp.MatchBuilder) {
		b.Set(f, ofp.Value{Lo: uint64(value)}, ofp.Value{Lo: uint64(mask)})
	}
}

// ConjID asks for the conjunction that matched.
func ConjID(id uint32) Cond { return exact(ofp.ConjID, uint64(id)) }

// ctStates are the bits of ct_state by name, least significant first (nicira-ext.h).
var ctStates = []string{"new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"}

// CTState asks for conntrack states in ovs-ofctl's form: "+new+trk", "-rpl+est".
func CTState(s string) Cond {
	return func(b *ofp.MatchBuilder) {
		v, m, err := parseFlags(s, ctStates)
		if err != nil {
			b.Fail(fmt.Errorf("ct_state: %w", err))
			return
		}
		b.Set(ofp.CTState, ofp.Value{Lo: v}, ofp.Value{Lo: m})
	}
}

// TCPFlags matches TCP and flags, such as "+syn-ack", over IPv4 unless IPv6 is also given. The flags' names are fin,
// syn, rst, psh, ack, urg, ece, cwr, ns.
func TCPFlags(s string) Cond {
	return func(b *ofp.MatchBuilder) {
		v, m, err := parseFlags(s, tcpFlags)
		if err != nil {
			b.Fail(fmt.Errorf("tcp_flags: %w", err))
			return
		}
		TCP()(b)
		b.Set(ofp.TCPFlags, ofp.Value{Lo: v}, ofp.Value{Lo: m})
	}
}

// parseFlags reads +a-b into value and mask.
func parseFlags(s string, names []string) (value, mask uint64, err error) {
	for rest := s; rest != ""; {
		if rest[0] != '+' && rest[0] != '-' {
			return 0, 0, fmt.Errorf("%q: want + or - before each flag", s)
		}
		end := strings.IndexAny(rest[1:], "+-") + 1
		if end == 0 {
			end = len(rest)
		}
		bit := uint64(0)
		for i, n := range names {
			if n != "" && n == rest[1:end] {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return 0, 0, fmt.Errorf("%q: there is no flag %q", s, rest[1:end])
		}
		if mask&bit != 0 {
			return 0, 0, fmt.Errorf("%q: flag %q is given twice", s, rest[1:end])
		}
		mask |= bit
		if rest[0] == '+' {
			value |= bit
		}
		rest = rest[end:]
	}
	return value, mask, nil
}

// Bits is a range of bits in a field; First counts from the least significant bit.
type Bits struct {
	Field ofp.Field
	First int
	Width int
}

// Register is one of the 32-bit registers.
type Register int

// Reg is the register with number n, 0 to 15.
func Reg(n int) Register { return Register(n) }

// Bits is a range of the register's bits.
func (r Register) Bits(first, width int) Bits {
	if r < 0 || r > 15 {
		return Bits{First: first, Width: width}
	}
	return Bits{ofp.Reg0 + ofp.Field(r), first, width}
}

// CTMarkBits is a range of the connection mark's bits.
func CTMarkBits(first, width int) Bits { return Bits{ofp.CTMark, first, width} }

// CTLabelBits is a range of the connection label's bits.
func CTLabelBits(first, width int) Bits { return Bits{ofp.CTLabel, first, width} }

func (r Bits) valid() error { return ofp.Bits(r).Valid() }

// shifted moves v into the range: value and mask of the whole field.
func (r Bits) shifted(v uint64) (value, mask ofp.Value, err error) {
	if err := r.valid(); err != nil {
		return value, mask, err
	}
	w := ofp.Value{Lo: v}
	if w != w.And(ofp.Ones(r.Width)) {
		return value, mask, fmt.Errorf("%s: %d does not fit into %d bits", r.Field, v, r.Width)
	}
	return w.Shl(r.First), ofp.Ones(r.Width).Shl(r.First), nil
}

// Is asks that the range holds v.
func (r Bits) Is(v uint64) Cond {
	return func(b *ofp.MatchBuilder) {
		value, mask, err := r.shifted(v)
		if err != nil {
			b.Fail(err)
			return
		}
		b.Set(r.Field, value, mask)
	}
}
