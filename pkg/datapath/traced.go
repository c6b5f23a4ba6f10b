package datapath

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// A real packet is followed through the switches of all Nodes. Its DSCP makes each switch report it where it enters and
// where it leaves. Pods may send packets with this DSCP too. The agent recognizes the packet by a secret number in it.
// Connection tracking changes no part of that number.

const (
	// TracedDSCP is the DSCP of packets that are followed.
	TracedDSCP = 59
	// tracedRate is how many reports of such packets the agent of a Node accepts in a second. A packet causes two.
	tracedRate = 100
	// traced is the priority of its flows, which are above all others of their tables.
	traced uint16 = 65535
)

// Tracing is set while packets are followed.
type Tracing struct {
	On bool
	// Held are the packets that Pods do not get.
	Held []HeldPacket
}

// Equal reports whether two are equal.
func (t Tracing) Equal(other Tracing) bool {
	return t.On == other.On && slices.Equal(t.Held, other.Held)
}

// HeldPacket is a packet that is followed to a Pod but not delivered. The ports distinguish it from packets of others
// with the same DSCP.
type HeldPacket struct {
	IPv6     bool
	Protocol uint8
	SrcPort  uint16 // of TCP and UDP
	To       ofp.Port
}

// Compare orders them.
func (h HeldPacket) Compare(other HeldPacket) int {
	number := func(h HeldPacket) int {
		if h.IPv6 {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(number(h), number(other)), cmp.Compare(h.Protocol, other.Protocol),
		cmp.Compare(h.SrcPort, other.SrcPort), cmp.Compare(h.To, other.To))
}

// traces are the flows that report packets with the DSCP. Each flow resubmits the packet to the flow's own table, with
// a mark so that it does not match the flow again. So the other flows of the table process the packet like any other
// packet.
func (n Node) traces(t Tracing) []flow.Flow {
	again := func(ip flow.Cond, table ofp.Table, mark flow.Bits) flow.Flow {
		return flow.Flow{Table: table, Priority: traced, Match: flow.All(ip, flow.DSCP(TracedDSCP), mark.Is(0)),
			Actions: append(report(Traced, Traced.meter()), flow.Load(mark, 1), flow.Resubmit(table))}
	}
	flows := n.each(func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{again(ip, Classify, tracedIn), again(ip, Output, tracedOut)}
	})
	for _, h := range t.Held {
		flows = append(flows, h.hold())
	}
	return flows
}

// hold is the flow that keeps a packet, after the packet was reported.
func (h HeldPacket) hold() flow.Flow {
	conds := []flow.Cond{flow.IP(), flow.DSCP(TracedDSCP), tracedOut.Is(1), outPort.Is(uint64(h.To))}
	if h.IPv6 {
		conds[0] = flow.IPv6()
	}
	switch h.Protocol {
	case protoTCP:
		conds = append(conds, flow.TCP(), flow.TCPSrc(h.SrcPort))
	case protoUDP:
		conds = append(conds, flow.UDP(), flow.UDPSrc(h.SrcPort))
	case protoICMP:
		conds = append(conds, flow.ICMP())
	case protoICMPv6:
		conds = append(conds, flow.ICMPv6(), flow.ICMPv6Type(echoRequestV6))
	}
	return flow.Flow{Table: Output, Priority: traced, Match: flow.All(conds...)}
}

// tracing returns what packets are followed.
func (b *base) tracing(r *derive.Reader) Tracing {
	if b.Traced == nil {
		return Tracing{}
	}
	t, _ := derive.Get(r, b.Traced, Self)
	return t
}

// Types of echo requests (RFC 792, RFC 4443 4.1).
const (
	echoRequestV4 = 8
	echoRequestV6 = 128
)

// nonceLen is the length of a nonce in bytes.
const nonceLen = 8

// TracedPacket is a packet that is followed: a TCP segment without data, a datagram of UDP, or an echo request.
type TracedPacket struct {
	InPort           ofp.Port // by which it comes into the switch
	EthSrc, EthDst   ofp.MAC
	Src, Dst         netip.Addr
	Protocol         uint8
	SrcPort, DstPort uint16
	TTL              uint8
	Flags            uint8 // of TCP; 0 for SYN
	Nonce            uint64
}

// Frame returns the packet in its frame. The nonce is in the sequence number and the acknowledgment number of TCP, of
// which a SYN uses the first (RFC 9293 3.1). Other segments have random numbers there. Else the nonce is the payload.
func (p TracedPacket) Frame() ([]byte, error) {
	if p.Src.Is4() != p.Dst.Is4() || !p.Src.IsValid() {
		return nil, fmt.Errorf("packet from %s to %s: both need addresses of one version of IP", p.Src, p.Dst)
	}
	var body []byte // with the header of its protocol
	sumAt := 0      // where the checksum is
	switch p.Protocol {
	case protoTCP:
		body = binary.BigEndian.AppendUint16(nil, p.SrcPort)
		body = binary.BigEndian.AppendUint16(body, p.DstPort)
		body = binary.BigEndian.AppendUint64(body, p.Nonce)
		body = append(body, tcpLen/4<<4, cmp.Or(p.Flags, tcpSYN), 0xff, 0xff, 0, 0, 0, 0) // window, checksum, urgent pointer
		sumAt = 16
	case protoUDP:
		body = binary.BigEndian.AppendUint16(nil, p.SrcPort)
		body = binary.BigEndian.AppendUint16(body, p.DstPort)
		body = append(body, 0, 8+nonceLen, 0, 0)
		body = binary.BigEndian.AppendUint64(body, p.Nonce)
		sumAt = 6
	case protoICMP, protoICMPv6:
		kind := byte(echoRequestV4)
		if p.Protocol == protoICMPv6 {
			kind = echoRequestV6
		}
		body = append([]byte{kind, 0, 0, 0}, byte(p.SrcPort>>8), byte(p.SrcPort), 0, 1) // identifier, sequence number
		body = binary.BigEndian.AppendUint64(body, p.Nonce)
		sumAt = 2
	default:
		return nil, fmt.Errorf("packet of protocol %d: only TCP, UDP and ICMP can be sent", p.Protocol)
	}
	covered := pseudoHeader(p.Src, p.Dst, p.Protocol, len(body))
	if p.Protocol == protoICMP {
		covered = 0
	}
	check := finish(sum(covered, body))
	if check == 0 && p.Protocol == protoUDP { // 0 stands for no checksum (RFC 768)
		check = 0xffff
	}
	binary.BigEndian.PutUint16(body[sumAt:], check)
	back := packet{ethSrc: p.EthDst, ethDst: p.EthSrc, src: p.Dst, dst: p.Src}
	frame := back.reply(p.Protocol, len(body))
	setClassAndTTL(frame[ethLen:], p.TTL)
	copy(frame[len(frame)-len(body):], body)
	return frame, nil
}

// setClassAndTTL writes the DSCP and the TTL of an IP packet without options.
func setClassAndTTL(ip []byte, ttl uint8) {
	if ip[0]>>4 == 6 {
		ip[0], ip[1], ip[7] = 6<<4|TracedDSCP>>2, TracedDSCP<<6&0xff, ttl
		return
	}
	ip[1], ip[8] = TracedDSCP<<2, ttl
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], finish(sum(0, ip[:ipv4Len])))
}

// PacketOut returns the message that makes the switch process the packet as if it came in through its port.
func (p TracedPacket) PacketOut() (ofp.PacketOut, error) {
	frame, err := p.Frame()
	return ofp.PacketOut{BufferID: ofp.NoBuffer, InPort: p.InPort, Actions: flow.Do(flow.Resubmit(Classify)), Data: frame},
		err
}

// NonceOf returns the number in the place of the nonce. If the packet has no such place, ok is false.
func NonceOf(frame []byte) (nonce uint64, ok bool) {
	h, payload, err := ipHeader(frame)
	if err != nil || h.laterFragment {
		return 0, false
	}
	at := 8
	if h.protocol == protoTCP {
		at = 4
	}
	if len(payload) < at+nonceLen {
		return 0, false
	}
	switch h.protocol {
	case protoTCP, protoUDP, protoICMP, protoICMPv6:
		return binary.BigEndian.Uint64(payload[at:]), true
	}
	return 0, false
}

// Sighting is a report of a packet that is followed.
type Sighting struct {
	Headers
	Out      bool     // it leaves the switch, else it comes in
	InPort   ofp.Port // by which it has come in
	OutPort  ofp.Port // by which it leaves
	OuterSrc netip.Addr
	OuterDst netip.Addr
	// EgressRule and IngressRule are the numbers of the rules that have let it pass on this Node.
	EgressRule, IngressRule uint32
	Network                 tenant.ID // of tenants, as in Report
}

// SightingOf reads a report.
func SightingOf(in ofp.PacketIn2) (out Sighting, err error) {
	out = Sighting{Out: in.Table == Output, Network: NetworkOf(in)}
	if out.Headers, err = HeadersOf(in.Data); err != nil {
		return out, err
	}
	get := func(f ofp.Field) ofp.Value { v, _, _ := in.Metadata.Get(f); return v }
	out.InPort = ofp.Port(get(ofp.InPort).Lo)
	out.OutPort = ofp.Port(get(outPort.Field).Lo)
	out.EgressRule, out.IngressRule = uint32(get(egressRule.Field).Lo), uint32(get(ingressRule.Field).Lo)
	outer := func(v4, v6 ofp.Field) netip.Addr {
		if v := get(v4); !v.IsZero() {
			return netip.AddrFrom4([4]byte(v.Append(nil, 4)))
		}
		if v := get(v6); !v.IsZero() {
			return netip.AddrFrom16([16]byte(v.Append(nil, 16)))
		}
		return netip.Addr{}
	}
	out.OuterSrc, out.OuterDst = outer(ofp.TunIPv4Src, ofp.TunIPv6Src), outer(ofp.TunIPv4Dst, ofp.TunIPv6Dst)
	return out, nil
}
