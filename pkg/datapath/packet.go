package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Numbers of the Internet protocols.
const (
	protoICMP   uint8 = 1
	protoIGMP   uint8 = 2
	protoTCP    uint8 = 6
	protoUDP    uint8 = 17
	protoICMPv6 uint8 = 58
	protoSCTP   uint8 = 132
)

// protocols are the protocols of Services, by number.
var protocols = map[uint8]corev1.Protocol{protoTCP: corev1.ProtocolTCP, protoUDP: corev1.ProtocolUDP,
	protoSCTP: corev1.ProtocolSCTP}

// protocolNumber is the number of a Service's protocol.
func protocolNumber(p corev1.Protocol) uint8 {
	for number, name := range protocols {
		if name == p {
			return number
		}
	}
	return 0
}

// TCP flags.
const (
	tcpFIN = 1 << 0
	tcpSYN = 1 << 1
	tcpRST = 1 << 2
	tcpACK = 1 << 4
)

const (
	ethLen   = 14
	ipv4Len  = 20
	ipv6Len  = 40
	tcpLen   = 20
	icmpLen  = 8
	ipv4Type = 0x0800
	ipv6Type = 0x86dd
	// quoteLen bounds how much of a packet an ICMP error quotes, so that the error has at most 576 bytes (RFC 1812
	// 4.3.2.3). In IPv6 it has at most 1280 bytes (RFC 4443 2.4).
	quoteLen   = 576 - ipv4Len - icmpLen
	quoteLenV6 = 1280 - ipv6Len - icmpLen
)

// packet is an IP packet in its frame, as far as an answer needs it.
type packet struct {
	ethSrc, ethDst   ofp.MAC
	src, dst         netip.Addr
	protocol         uint8
	srcPort, dstPort uint16
	ip               []byte // from the IP header to the end that the header gives
	payload          []byte // after the IP header, and after the extension headers of IPv6
}

// header is the content of an IP header, with its options or extension headers.
type header struct {
	src, dst      netip.Addr
	protocol      uint8 // of the payload
	length        int   // of the packet, with its headers
	laterFragment bool
}

// ipHeader finds the IP header in an Ethernet frame, and the bytes after it up to the packet's end. The frame may be
// cut there.
func ipHeader(frame []byte) (header, []byte, error) {
	if len(frame) < ethLen {
		return header{}, nil, fmt.Errorf("frame has %d bytes, an Ethernet header needs %d", len(frame), ethLen)
	}
	switch t := binary.BigEndian.Uint16(frame[12:]); t {
	case ipv4Type:
		return ipv4Header(frame[ethLen:])
	case ipv6Type:
		return ipv6Header(frame[ethLen:])
	default:
		return header{}, nil, fmt.Errorf("frame has Ethernet type 0x%04x, want IPv4 or IPv6", t)
	}
}

func ipv4Header(ip []byte) (h header, payload []byte, err error) {
	if len(ip) < ipv4Len {
		return h, nil, fmt.Errorf("packet has %d bytes, IPv4 needs %d", len(ip), ipv4Len)
	}
	n := int(ip[0]&0xf) * 4
	h = header{
		src: netip.AddrFrom4([4]byte(ip[12:16])), dst: netip.AddrFrom4([4]byte(ip[16:20])), protocol: ip[9],
		length: int(binary.BigEndian.Uint16(ip[2:])), laterFragment: binary.BigEndian.Uint16(ip[6:])&0x1fff != 0,
	}
	switch {
	case ip[0]>>4 != 4:
		return h, nil, fmt.Errorf("IP version is %d, want 4", ip[0]>>4)
	case n < ipv4Len || n > len(ip):
		return h, nil, fmt.Errorf("IP header length is %d in a packet of %d bytes", n, len(ip))
	case h.length < n:
		return h, nil, fmt.Errorf("IP total length is %d with a header of %d", h.length, n)
	}
	return h, ip[n:min(len(ip), h.length)], nil
}

// Extension headers of IPv6 (RFC 8200 4, RFC 4302). Open vSwitch skips the same ones when it looks for the payload.
const (
	extHopByHop    uint8 = 0
	extRouting     uint8 = 43
	extFragment    uint8 = 44
	extAuth        uint8 = 51
	extDestination uint8 = 60
)

func ipv6Header(ip []byte) (h header, payload []byte, err error) {
	switch {
	case len(ip) < ipv6Len:
		return h, nil, fmt.Errorf("packet has %d bytes, IPv6 needs %d", len(ip), ipv6Len)
	case ip[0]>>4 != 6:
		return h, nil, fmt.Errorf("IP version is %d, want 6", ip[0]>>4)
	}
	h = header{
		src: netip.AddrFrom16([16]byte(ip[8:24])), dst: netip.AddrFrom16([16]byte(ip[24:40])), protocol: ip[6],
		length: ipv6Len + int(binary.BigEndian.Uint16(ip[4:])),
	}
	payload = ip[ipv6Len:min(len(ip), h.length)]
	for {
		n := 8
		switch h.protocol {
		case extHopByHop, extRouting, extDestination, extFragment, extAuth:
		default:
			return h, payload, nil
		}
		if len(payload) >= n {
			switch h.protocol {
			case extAuth:
				n = 4 * (int(payload[1]) + 2)
			case extFragment: // its second byte is reserved
			default:
				n = 8 * (int(payload[1]) + 1)
			}
		}
		if len(payload) < n {
			return h, nil, fmt.Errorf("extension header %d needs %d bytes, there are %d", h.protocol, n, len(payload))
		}
		h.laterFragment = h.protocol == extFragment && binary.BigEndian.Uint16(payload[2:])&^7 != 0
		h.protocol, payload = payload[0], payload[n:]
		if h.laterFragment { // the rest is not from the beginning of a header
			return h, payload, nil
		}
	}
}

// portsOf are those at the beginning of TCP, UDP and SCTP.
func portsOf(payload []byte) (src, dst uint16) {
	return binary.BigEndian.Uint16(payload[0:]), binary.BigEndian.Uint16(payload[2:])
}

// parsePacket reads an Ethernet frame with a first or only fragment of an IP packet.
func parsePacket(frame []byte) (packet, error) {
	ip, payload, err := ipHeader(frame)
	if err != nil {
		return packet{}, err
	}
	p := packet{src: ip.src, dst: ip.dst, protocol: ip.protocol, payload: payload}
	copy(p.ethDst[:], frame[0:6])
	copy(p.ethSrc[:], frame[6:12])
	need := 8
	if p.protocol == protoTCP {
		need = tcpLen
	}
	switch total := ip.length; {
	case total > len(frame)-ethLen:
		return p, fmt.Errorf("IP total length is %d in a packet of %d bytes", total, len(frame)-ethLen)
	case ip.laterFragment:
		return p, fmt.Errorf("%w: it is a later fragment", ErrNotAnswered)
	case len(payload) < need:
		return p, fmt.Errorf("protocol %d has %d bytes, needs %d", p.protocol, len(payload), need)
	case p.src.IsMulticast() || p.src.IsUnspecified() || p.src.IsLoopback():
		return p, fmt.Errorf("%w: its source is %s", ErrNotAnswered, p.src)
	default:
		p.ip = frame[ethLen : ethLen+total]
	}
	p.srcPort, p.dstPort = portsOf(payload)
	return p, nil
}

// reset is the TCP reset that a closed port answers with (RFC 9293 3.10.7.1).
func (p packet) reset() ([]byte, error) {
	flags := p.payload[13]
	if flags&tcpRST != 0 {
		return nil, fmt.Errorf("%w: it is a TCP reset", ErrNotAnswered)
	}
	offset := int(p.payload[12]>>4) * 4
	if offset < tcpLen || offset > len(p.payload) {
		return nil, fmt.Errorf("reject: TCP header length is %d in a segment of %d bytes", offset, len(p.payload))
	}
	out := p.reply(protoTCP, tcpLen)
	tcp := out[len(out)-tcpLen:]
	binary.BigEndian.PutUint16(tcp[0:], p.dstPort)
	binary.BigEndian.PutUint16(tcp[2:], p.srcPort)
	tcp[12] = tcpLen / 4 << 4
	if flags&tcpACK != 0 {
		copy(tcp[4:8], p.payload[8:12]) // the sequence number that the peer expects next
		tcp[13] = tcpRST
	} else {
		length := uint32(len(p.payload) - offset)
		if flags&tcpSYN != 0 {
			length++
		}
		if flags&tcpFIN != 0 {
			length++
		}
		binary.BigEndian.PutUint32(tcp[8:], binary.BigEndian.Uint32(p.payload[4:])+length)
		tcp[13] = tcpRST | tcpACK
	}
	binary.BigEndian.PutUint16(tcp[16:], finish(sum(pseudoHeader(p.dst, p.src, protoTCP, len(tcp)), tcp)))
	return out, nil
}

// unreachable is a reason of an ICMP error about an unreachable destination, with its codes.
type unreachable struct {
	code   byte // RFC 792, RFC 1122 3.2.2.1
	codeV6 byte // RFC 4443 3.1
}

var (
	noPort     = unreachable{code: 3, codeV6: 4}
	prohibited = unreachable{code: 10, codeV6: 1} // communication with the host is administratively prohibited
)

// isError reports whether the packet is an ICMP error or of an unknown type. These are not answered (RFC 1122 3.2.2,
// RFC 4443 2.4).
func (p packet) isError() bool {
	switch p.protocol {
	case protoICMP:
		return !slices.Contains([]byte{0, 8, 13, 14}, p.payload[0])
	case protoICMPv6:
		return p.payload[0] != 128 && p.payload[0] != 129
	}
	return false
}

// unreachable returns ICMP destination unreachable. It quotes the packet (RFC 792, RFC 1812 4.3.2, RFC 4443 3.1).
func (p packet) unreachable(why unreachable) []byte {
	protocol, kind, code, quote := protoICMP, byte(3), why.code, p.ip[:min(len(p.ip), quoteLen)]
	if !p.src.Is4() {
		protocol, kind, code, quote = protoICMPv6, 1, why.codeV6, p.ip[:min(len(p.ip), quoteLenV6)]
	}
	out := p.reply(protocol, icmpLen+len(quote))
	icmp := out[len(out)-icmpLen-len(quote):]
	icmp[0], icmp[1] = kind, code
	copy(icmp[icmpLen:], quote)
	covered := uint32(0)
	if protocol == protoICMPv6 {
		covered = pseudoHeader(p.dst, p.src, protocol, len(icmp))
	}
	binary.BigEndian.PutUint16(icmp[2:], finish(sum(covered, icmp)))
	return out
}

// reply is a frame back to the sender with room for n bytes after its IP header.
func (p packet) reply(protocol uint8, n int) []byte {
	if !p.src.Is4() {
		return p.replyV6(protocol, n)
	}
	out := p.frame(ipv4Type, ipv4Len+n)
	ip := out[ethLen : ethLen+ipv4Len]
	ip[0] = 4<<4 | ipv4Len/4
	binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Len+n))
	binary.BigEndian.PutUint16(ip[6:], 1<<14) // do not fragment
	ip[8] = 64
	ip[9] = protocol
	copy(ip[12:16], p.dst.AsSlice())
	copy(ip[16:20], p.src.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], finish(sum(0, ip)))
	return out
}

func (p packet) replyV6(protocol uint8, n int) []byte {
	out := p.frame(ipv6Type, ipv6Len+n)
	ip := out[ethLen : ethLen+ipv6Len]
	ip[0] = 6 << 4
	binary.BigEndian.PutUint16(ip[4:], uint16(n))
	ip[6], ip[7] = protocol, 64
	copy(ip[8:24], p.dst.AsSlice())
	copy(ip[24:40], p.src.AsSlice())
	return out
}

// frame is an Ethernet frame back to the sender with room for n bytes.
func (p packet) frame(ethType uint16, n int) []byte {
	out := make([]byte, ethLen+n)
	copy(out[0:6], p.ethSrc[:])
	copy(out[6:12], p.ethDst[:])
	binary.BigEndian.PutUint16(out[12:], ethType)
	return out
}

// pseudoHeader is the part of the IP header that the checksums of TCP and ICMPv6 cover (RFC 9293 3.1, RFC 8200 8.1).
func pseudoHeader(src, dst netip.Addr, protocol uint8, n int) uint32 {
	s := sum(sum(0, src.AsSlice()), dst.AsSlice())
	return s + uint32(protocol) + uint32(n)
}

// sum adds 16-bit words to an Internet checksum (RFC 1071). Only the last of several parts may have an odd length.
func sum(s uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

// finish folds a sum into the checksum.
func finish(s uint32) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return ^uint16(s)
}
