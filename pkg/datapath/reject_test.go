package datapath

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// segment is a TCP segment from 10.11.0.2:40000 to 10.97.0.13:80 in its frame.
func segment(flags byte, seq, ack uint32, payload string) []byte {
	p := packet{
		ethSrc: gwMAC, ethDst: podMACOne, // of the reply: it goes the other way
		src: addrOf("10.97.0.13"), dst: addrOf("10.11.0.2"),
	}
	frame := p.reply(protoTCP, tcpLen+len(payload))
	tcp := frame[ethLen+ipv4Len:]
	binary.BigEndian.PutUint16(tcp[0:], 40000)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[12], tcp[13] = 5<<4, flags
	copy(tcp[tcpLen:], payload)
	return frame
}

func datagram(protocol uint8, payload int) []byte {
	p := packet{ethSrc: gwMAC, ethDst: podMACOne, src: addrOf("10.97.0.13"), dst: addrOf("10.11.0.2")}
	frame := p.reply(protocol, 8+payload)
	binary.BigEndian.PutUint16(frame[ethLen+ipv4Len:], 40000)
	binary.BigEndian.PutUint16(frame[ethLen+ipv4Len+2:], 80)
	return frame
}

func rejectState() State {
	s := onNode(1)
	for _, protocol := range []string{"UDP", "SCTP"} {
		f := s.Frontends[3] // empty
		f.Protocol = "UDP"
		if protocol == "SCTP" {
			f.Protocol = "SCTP"
		}
		s.Frontends = append(s.Frontends, f)
	}
	return s
}

func frontendsOf(s State) Frontends {
	return func(protocol corev1.Protocol, vip netip.AddrPort) (service.Frontend, bool) {
		i := slices.IndexFunc(s.Frontends, func(f service.Frontend) bool { return f.Protocol == protocol && f.VIP == vip })
		if i < 0 {
			return service.Frontend{}, false
		}
		return s.Frontends[i], true
	}
}

func TestRejectTCP(t *testing.T) {
	for _, test := range []struct {
		name     string
		frame    []byte
		seq, ack uint32
		flags    byte
	}{
		{"a connection attempt is answered for its SYN", segment(tcpSYN, 1000, 0, ""), 0, 1001, tcpRST | tcpACK},
		{"data with a SYN counts", segment(tcpSYN, 1000, 0, "hello"), 0, 1006, tcpRST | tcpACK},
		{"the sequence number wraps", segment(tcpSYN, 0xffffffff, 0, ""), 0, 0, tcpRST | tcpACK},
		{"a FIN counts", segment(tcpFIN, 1000, 0, "x"), 0, 1002, tcpRST | tcpACK},
		{"an acknowledgement says what to answer with", segment(tcpACK, 1000, 77, "hello"), 77, 0, tcpRST},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := Reject(ofp.PacketIn2{Data: test.frame, Userdata: []byte("reject")}, frontendsOf(rejectState()))
			if err != nil {
				t.Fatal(err)
			}
			in, err := parsePacket(out.Data)
			if err != nil {
				t.Fatal(err)
			}
			if in.src != addrOf("10.97.0.13") || in.srcPort != 80 || in.dst != addrOf("10.11.0.2") || in.dstPort != 40000 {
				t.Errorf("answer goes from %s:%d to %s:%d", in.src, in.srcPort, in.dst, in.dstPort)
			}
			if in.ethDst != podMACOne || in.ethSrc != gwMAC {
				t.Errorf("answer goes from %s to %s", in.ethSrc, in.ethDst)
			}
			tcp := in.payload
			if seq, ack := binary.BigEndian.Uint32(tcp[4:]), binary.BigEndian.Uint32(tcp[8:]); seq != test.seq ||
				ack != test.ack || tcp[13] != test.flags {
				t.Errorf("seq %d ack %d flags %#x, want %d %d %#x", seq, ack, tcp[13], test.seq, test.ack, test.flags)
			}
			if c := finish(sum(0, in.ip[:ipv4Len])); c != 0 {
				t.Errorf("IP checksum is off by %#x", c)
			}
			if c := finish(sum(pseudoHeader(in.src, in.dst, protoTCP, len(tcp)), tcp)); c != 0 {
				t.Errorf("TCP checksum is off by %#x", c)
			}
			want := fmt.Sprintf("set_field:0x40/0x40->reg0,resubmit(,%d)", Route)
			if have := flow.Actions(out.Actions).String(); have != want {
				t.Errorf("actions %s, want %s", have, want)
			}
		})
	}
}

func TestRejectOthers(t *testing.T) {
	for _, test := range []struct {
		protocol uint8
		payload  int
		quoted   int
	}{{protoUDP, 5, 33}, {protoSCTP, 12, 40}, {protoUDP, 1400, quoteLen}} {
		frame := datagram(test.protocol, test.payload)
		out, err := Reject(ofp.PacketIn2{Data: frame, Userdata: []byte("reject")}, frontendsOf(rejectState()))
		if err != nil {
			t.Fatalf("protocol %d: %v", test.protocol, err)
		}
		in, err := parsePacket(out.Data)
		if err != nil {
			t.Fatal(err)
		}
		icmp := in.payload
		if in.protocol != protoICMP || icmp[0] != 3 || icmp[1] != 3 {
			t.Errorf("protocol %d is answered with protocol %d, type %d code %d", test.protocol, in.protocol, icmp[0], icmp[1])
		}
		if c := finish(sum(0, icmp)); c != 0 {
			t.Errorf("ICMP checksum is off by %#x", c)
		}
		if have, want := hex.EncodeToString(icmp[8:]), hex.EncodeToString(frame[ethLen:ethLen+test.quoted]); have != want {
			t.Errorf("quotes\n%s, want\n%s", have, want)
		}
	}
}

// extended is a frame with a packet of IPv6 from [fd11::2]:40000 to [fd97::13]:80, with extension headers of 8 bytes
// each before a payload of a protocol.
func extended(headers []byte, protocol uint8, payload ...byte) []byte {
	p := packet{ethSrc: gwMAC, ethDst: podMACOne, src: addrOf("fd97::13"), dst: addrOf("fd11::2")}
	frame := p.reply(protocol, 8*len(headers)+len(payload))
	next := frame[ethLen+6 : ethLen+7]
	for i, h := range headers {
		next[0] = h
		next = frame[ethLen+ipv6Len+8*i:]
		next[0] = protocol
	}
	copy(frame[len(frame)-len(payload):], payload)
	return frame
}

// portsThen is the beginning of TCP, UDP and SCTP from port 40000 to port 80, with n bytes in all.
func portsThen(n int) []byte {
	out := make([]byte, n)
	binary.BigEndian.PutUint16(out, 40000)
	binary.BigEndian.PutUint16(out[2:], 80)
	return out
}

// TestRejectIPv6 refuses connections over IPv6, with and without extension headers before the payload.
func TestRejectIPv6(t *testing.T) {
	syn := portsThen(tcpLen)
	syn[7], syn[12], syn[13] = 100, 5<<4, tcpSYN
	s := rejectState()
	s.Frontends = append(s.Frontends, frontend("empty", corev1.ProtocolTCP, "[fd97::13]:80"),
		frontend("empty", corev1.ProtocolUDP, "[fd97::13]:80"))
	chain := []byte{extHopByHop, extDestination, extRouting, extFragment}
	auth := extended([]byte{extAuth}, protoTCP, syn...)
	auth[ethLen+ipv6Len+1] = 0 // in units of 4 bytes, less 2
	echo := make([]byte, icmpLen)
	echo[0] = 128
	for _, test := range []struct {
		name     string
		frame    []byte
		userdata string
		want     string
	}{
		{"TCP", extended(nil, protoTCP, syn...), "reject", "TCP 0 101"},
		{"TCP behind extension headers", extended(chain, protoTCP, syn...), "reject", "TCP 0 101"},
		{"TCP behind an authentication header", auth, "policy-reject", "TCP 0 101"},
		{"UDP to a Service", extended(nil, protoUDP, portsThen(9)...), "reject", "ICMPv6 1 4 quotes 49"},
		{"UDP that a policy rejects", extended(chain, protoUDP, portsThen(9)...), "policy-reject", "ICMPv6 1 1 quotes 81"},
		{"a large datagram", extended(nil, protoUDP, portsThen(1400)...), "policy-reject", "ICMPv6 1 1 quotes 1232"},
		{"Echo", extended(nil, protoICMPv6, echo...), "policy-reject", "ICMPv6 1 1 quotes 48"},
	} {
		out, err := Reject(ofp.PacketIn2{Data: test.frame, Userdata: []byte(test.userdata)}, frontendsOf(s))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		in, err := parsePacket(out.Data)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if in.src != addrOf("fd97::13") || in.dst != addrOf("fd11::2") || in.ethDst != podMACOne || in.ethSrc != gwMAC ||
			in.ip[7] != 64 {
			t.Errorf("%s: the answer is %+v", test.name, in)
		}
		if c := finish(sum(pseudoHeader(in.src, in.dst, in.protocol, len(in.payload)), in.payload)); c != 0 {
			t.Errorf("%s: the checksum is off by %#x", test.name, c)
		}
		have := ""
		switch in.protocol {
		case protoTCP:
			have = fmt.Sprintf("TCP %d %d", binary.BigEndian.Uint32(in.payload[4:]), binary.BigEndian.Uint32(in.payload[8:]))
		case protoICMPv6:
			quote := in.payload[icmpLen:]
			have = fmt.Sprintf("ICMPv6 %d %d quotes %d", in.payload[0], in.payload[1], len(quote))
			if !bytes.Equal(quote, test.frame[ethLen:ethLen+len(quote)]) {
				t.Errorf("%s: it quotes %x", test.name, quote)
			}
		}
		if have != test.want {
			t.Errorf("%s: the answer is %s, want %s", test.name, have, test.want)
		}
	}
	toBig := make([]byte, icmpLen)
	toBig[0] = 2
	later := extended([]byte{extFragment}, protoTCP, syn...)
	later[ethLen+ipv6Len+3] = 8 // its offset
	many := extended(nil, protoUDP, portsThen(9)...)
	copy(many[ethLen+24:], addrOf("ff02::1").AsSlice())
	link := extended(nil, protoUDP, portsThen(9)...)
	copy(link[ethLen+8:], netip.IPv6Unspecified().AsSlice())
	for name, frame := range map[string][]byte{
		"an ICMPv6 error": extended(nil, protoICMPv6, toBig...), "a later fragment": later, "for many": many,
		"from no address": link,
	} {
		if _, err := Reject(ofp.PacketIn2{Data: frame, Userdata: []byte("policy-reject")}, nil); !errors.Is(err,
			ErrNotAnswered) {
			t.Errorf("%s: error %v, want ErrNotAnswered", name, err)
		}
	}
	whole := extended(chain, protoTCP, syn...)
	for n := range len(whole) {
		if _, err := Reject(ofp.PacketIn2{Data: whole[:n], Userdata: []byte("policy-reject")}, nil); err == nil {
			t.Errorf("a frame of %d bytes is answered", n)
		}
	}
	for length, want := range map[byte]string{0: "40000 80", 255: "extension header"} { // the second is beyond the packet
		frame := extended([]byte{extDestination}, protoUDP, portsThen(12)...)
		frame[ethLen+ipv6Len+1] = length
		h, err := HeadersOf(frame)
		if have := fmt.Sprint(h.SrcPort, " ", h.DstPort, " ", err); !strings.Contains(have, want) {
			t.Errorf("with a header of length %d: %s, want %s", length, have, want)
		}
	}
}

func TestRejectNot(t *testing.T) {
	served := segment(tcpSYN, 1, 0, "")
	copy(served[ethLen+16:], []byte{10, 97, 0, 10})
	unknown := segment(tcpSYN, 1, 0, "")
	copy(unknown[ethLen+16:], []byte{10, 97, 0, 99})
	fragment := segment(tcpSYN, 1, 0, "")
	fragment[ethLen+7] = 5
	for name, pkt := range map[string]ofp.PacketIn2{
		"a reset":                   {Data: segment(tcpRST, 1, 0, ""), Userdata: []byte("reject")},
		"a later fragment":          {Data: fragment, Userdata: []byte("reject")},
		"a Service with endpoints":  {Data: served, Userdata: []byte("reject")},
		"no Service":                {Data: unknown, Userdata: []byte("reject")},
		"another reason to tell it": {Data: segment(tcpSYN, 1, 0, "")},
	} {
		if _, err := Reject(pkt, frontendsOf(rejectState())); !errors.Is(err, ErrNotAnswered) {
			t.Errorf("%s: error %v, want ErrNotAnswered", name, err)
		}
	}
	// A truncated packet is an error, not a panic.
	whole := segment(tcpSYN, 1, 0, "")
	for n := range len(whole) {
		if _, err := Reject(ofp.PacketIn2{Data: whole[:n], Userdata: []byte("reject")},
			frontendsOf(rejectState())); err == nil {
			t.Errorf("a frame of %d bytes is answered", n)
		}
	}
}

func FuzzReject(f *testing.F) {
	f.Add(segment(tcpSYN, 1, 0, "hello"))
	f.Add(datagram(protoUDP, 9))
	f.Add(extended([]byte{extHopByHop, extRouting, extFragment, extDestination, extAuth}, protoUDP, portsThen(9)...))
	s := rejectState()
	f.Fuzz(func(_ *testing.T, frame []byte) {
		_, _ = Reject(ofp.PacketIn2{Data: frame, Userdata: []byte("reject")}, frontendsOf(s))
		_, _ = Reject(ofp.PacketIn2{Data: frame, Userdata: []byte("policy-reject")}, nil)
	})
}
