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
	protoICMP uint8 = 1
	protoIGMP uint8 = 2
	protoTCP  uint8 = 6
	protoUDP  uint8 = 17
	protoSCTP uint8 = 132
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
	tcpLen   = 20
	icmpLen  = 8
	ipv4Type = 0x0800
	// quoteLen bounds how much of a packet an ICMP error quotes, so that the error has at most 576 bytes (RFC 1812
	// 4.3.2.3).
	quoteLen = 576 - ipv4Len - icmpLen
)

// packet is an IPv4 packet in its frame, as far as an answer needs it.
type packet struct {
	ethSrc, ethDst   ofp.MAC
	src, dst         netip.Addr
	protocol         uint8
	srcPort, dstPort uint16
	ip               []byte // from the IP header to the end that the header gives
	payload          []byte // after the IP header
}

// header is an IPv4 header, with its options.
type header []byte

func (h header) length() int           { return int(binary.BigEndian.Uint16(h[2:])) } // of the packet
func (h header) isLaterFragment() bool { return binary.BigEndian.Uint16(h[6:])&0x1fff != 0 }
func (h header) src() netip.Addr       { return netip.AddrFrom4([4]byte(h[12:16])) }
func (h header) dst() netip.Addr       { return netip.AddrFrom4([4]byte(h[16:20])) }

// ipv4 finds the IPv4 header in an Ethernet frame, and the bytes after it up to the packet's end. The frame may be cut
// there.
func ipv4(frame []byte) (ip header, payload []byte, err error) {
	if len(frame) < ethLen+ipv4Len {
		return nil, nil, fmt.Errorf("frame has %d bytes, an IPv4 packet needs %d", len(frame), ethLen+ipv4Len)
	}
	if t := binary.BigEndian.Uint16(frame[12:]); t != ipv4Type {
		return nil, nil, fmt.Errorf("frame has Ethernet type 0x%04x, want IPv4", t)
	}
	ip = frame[ethLen:]
	n := int(ip[0]&0xf) * 4
	switch {
	case ip[0]>>4 != 4:
		return nil, nil, fmt.Errorf("IP version is %d, want 4", ip[0]>>4)
	case n < ipv4Len || n > len(ip):
		return nil, nil, fmt.Errorf("IP header length is %d in a packet of %d bytes", n, len(ip))
	case ip.length() < n:
		return nil, nil, fmt.Errorf("IP total length is %d with a header of %d", ip.length(), n)
	}
	return ip[:n], ip[n:min(len(ip), ip.length())], nil
}

// portsOf are those at the beginning of TCP, UDP and SCTP.
func portsOf(payload []byte) (src, dst uint16) {
	return binary.BigEndian.Uint16(payload[0:]), binary.BigEndian.Uint16(payload[2:])
}

// parsePacket reads an Ethernet frame with a first or only fragment of IPv4.
func parsePacket(frame []byte) (packet, error) {
	ip, payload, err := ipv4(frame)
	if err != nil {
		return packet{}, err
	}
	p := packet{src: ip.src(), dst: ip.dst(), protocol: ip[9], payload: payload}
	copy(p.ethDst[:], frame[0:6])
	copy(p.ethSrc[:], frame[6:12])
	need := 8
	if p.protocol == protoTCP {
		need = tcpLen
	}
	switch total := ip.length(); {
	case total > len(frame)-ethLen:
		return p, fmt.Errorf("IP total length is %d in a packet of %d bytes", total, len(frame)-ethLen)
	case ip.isLaterFragment():
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
	tcp := out[ethLen+ipv4Len:]
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

// Codes of ICMP destination unreachable (RFC 792, RFC 1122 3.2.2.1).
const (
	codePort       byte = 3
	codeProhibited byte = 10 // communication with the host is administratively prohibited
)

// isError reports whether the packet is an ICMP error or of an unknown type. These are not answered (RFC 1122 3.2.2).
func (p packet) isError() bool {
	return p.protocol == protoICMP && !slices.Contains([]byte{0, 8, 13, 14}, p.payload[0])
}

// unreachable returns ICMP destination unreachable; it quotes the packet (RFC 792, RFC 1812 4.3.2).
func (p packet) unreachable(code byte) []byte {
	quote := p.ip[:min(len(p.ip), quoteLen)]
	out := p.reply(protoICMP, icmpLen+len(quote))
	icmp := out[ethLen+ipv4Len:]
	icmp[0], icmp[1] = 3, code
	copy(icmp[icmpLen:], quote)
	binary.BigEndian.PutUint16(icmp[2:], finish(sum(0, icmp)))
	return out
}

// reply is a frame back to the sender with room for n bytes after its IPv4 header.
func (p packet) reply(protocol uint8, n int) []byte {
	out := make([]byte, ethLen+ipv4Len+n)
	copy(out[0:6], p.ethSrc[:])
	copy(out[6:12], p.ethDst[:])
	binary.BigEndian.PutUint16(out[12:], ipv4Type)
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

// pseudoHeader is the part of the IP header that TCP's checksum covers (RFC 9293 3.1).
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
