package ofprint

import (
	"encoding/binary"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Ethernet types and protocols that packets are taken apart by.
const (
	ethIP     = 0x0800
	ethARP    = 0x0806
	ethRARP   = 0x8035
	ethIPv6   = 0x86dd
	ethMPLS   = 0x8847
	ethMPLSM  = 0x8848
	ethNSH    = 0x894f
	ethLeast  = 0x0600 // less is a length
	ethNone   = 0x05ff // neither type nor SNAP
	protoICMP = 1
	protoIGMP = 2
	protoTCP  = 6
	protoUDP  = 17
	protoFrag = 44
	protoICM6 = 58
	protoSCTP = 132
)

// packet has the fields that Open vSwitch extracts from a packet (flow_extract). Missing and invalid parts are zero.
type packet struct {
	packetType      uint32 // namespace and type, 0 for Ethernet
	src, dst        ofp.MAC
	ethType         uint16
	vlans           []uint16 // tags, with bit 0x1000 set
	mpls            [3]uint32
	ipSrc, ipDst    []byte
	label           uint32
	proto, tos, ttl uint8
	frag            uint8 // 1: a fragment, 2: not the first
	tpSrc, tpDst    uint16
	tcpFlags        uint16
	arpSHA, arpTHA  ofp.MAC
	target          []byte // of neighbour discovery
	nsh             nsh
	checksum        uint32
	checksumName    string // empty where there is no header with a checksum
	nshPath         uint32 // service path and index
	ethernet        bool
}

type nsh struct {
	flags, ttl, mdType, next uint8
	context                  [4]uint32
}

// cursor takes bytes off a packet.
type cursor []byte

// pull returns the next n bytes, nil when there are fewer.
func (c *cursor) pull(n int) []byte {
	if n > len(*c) {
		return nil
	}
	b := (*c)[:n]
	*c = (*c)[n:]
	return b
}

// dissect takes a packet apart as Open vSwitch does.
func dissect(data []byte, packetType uint32) *packet {
	k := &packet{packetType: packetType, ethernet: packetType == 0, ipSrc: make([]byte, 4), ipDst: make([]byte, 4),
		target: make([]byte, 16)}
	c := cursor(data)
	if k.ethernet {
		if len(c) < 14 {
			return k
		}
		copy(k.dst[:], c.pull(6))
		copy(k.src[:], c.pull(6))
		for len(k.vlans) < 2 && isVLAN(binary.BigEndian.Uint16(c)) && len(c) >= 6 {
			k.vlans = append(k.vlans, binary.BigEndian.Uint16(c[2:])|0x1000)
			c.pull(4)
		}
		k.ethType = etherType(&c)
	} else {
		k.ethType = uint16(packetType)
	}
	switch k.ethType {
	case ethMPLS, ethMPLSM:
		k.labels(&c)
	case ethIP:
		k.ipv4(c)
	case ethIPv6:
		k.ipSrc, k.ipDst = make([]byte, 16), make([]byte, 16)
		k.ipv6(c)
	case ethARP, ethRARP:
		k.arp(c)
	case ethNSH:
		k.nshHeader(c)
	}
	return k
}

func isVLAN(t uint16) bool { return t == 0x8100 || t == 0x88a8 }

// etherType reads a type, or the one behind a SNAP header.
func etherType(c *cursor) uint16 {
	t := binary.BigEndian.Uint16(c.pull(2))
	if t >= ethLeast {
		return t
	}
	b := *c
	if len(b) < 8 || b[0] != 0xaa || b[1] != 0xaa || b[2] != 3 || b[3] != 0 || b[4] != 0 || b[5] != 0 {
		return ethNone
	}
	c.pull(8)
	if t = binary.BigEndian.Uint16(b[6:]); t >= ethLeast {
		return t
	}
	return ethNone
}

func (k *packet) labels(c *cursor) {
	for i := 0; ; i++ {
		b := c.pull(4)
		if b == nil {
			return
		}
		if i < len(k.mpls) {
			k.mpls[i] = binary.BigEndian.Uint32(b)
		}
		if b[2]&1 != 0 { // bottom of stack
			return
		}
	}
}

func (k *packet) ipv4(c cursor) {
	if len(c) < 20 {
		return
	}
	head, total := int(c[0]&15)*4, int(binary.BigEndian.Uint16(c[2:]))
	if head < 20 || len(c) < head || total > len(c) || head > total {
		return
	}
	h := c[:head]
	copy(k.ipSrc, h[12:])
	copy(k.ipDst, h[16:])
	k.tos, k.ttl, k.proto = h[1], h[8], h[9]
	if part := binary.BigEndian.Uint16(h[6:]); part&0x3fff != 0 {
		k.frag = 1
		if part&0x1fff != 0 {
			k.frag |= 2
		}
	}
	k.transport(c[head:total])
}

func (k *packet) ipv6(c cursor) {
	if len(c) < 40 || int(binary.BigEndian.Uint16(c[4:]))+40 > len(c) {
		return
	}
	h := c.pull(40)
	c = c[:binary.BigEndian.Uint16(h[4:])]
	copy(k.ipSrc, h[8:])
	copy(k.ipDst, h[24:])
	flow := binary.BigEndian.Uint32(h)
	proto, frag, ok := extensions(h[6], &c)
	if !ok {
		return
	}
	k.label, k.tos, k.ttl, k.proto, k.frag = flow&0xfffff, uint8(flow>>20), h[7], proto, frag
	k.transport(c)
}

// extensions goes over the extension headers of IPv6.
func extensions(next uint8, c *cursor) (proto, frag uint8, ok bool) {
	for {
		var n int
		switch next {
		default:
			return next, frag, true
		case 0, 43, 60: // hop by hop, routing, destination options
			if len(*c) < 8 {
				return 0, 0, false
			}
			n = (int((*c)[1]) + 1) * 8
		case 51: // authentication
			if len(*c) < 8 {
				return 0, 0, false
			}
			n = (int((*c)[1]) + 2) * 4
		case protoFrag:
			if len(*c) < 8 {
				return 0, 0, false
			}
			if part := binary.BigEndian.Uint16((*c)[2:]); part != 0 {
				frag = 1
				if part&0xfff8 != 0 {
					c.pull(8)
					return protoFrag, frag | 2, true
				}
			}
			n = 8
		}
		next = (*c)[0]
		if c.pull(n) == nil {
			return 0, 0, false
		}
	}
}

// transport reads the header of a protocol above IP.
func (k *packet) transport(c cursor) {
	k.sum(c)
	if k.frag&2 != 0 {
		return
	}
	ports := func() { k.tpSrc, k.tpDst = binary.BigEndian.Uint16(c), binary.BigEndian.Uint16(c[2:]) }
	switch k.proto {
	case protoTCP:
		if len(c) < 20 {
			return
		}
		if head := int(c[12]>>4) * 4; head >= 20 && len(c) >= head {
			ports()
			k.tcpFlags = binary.BigEndian.Uint16(c[12:]) & 0xfff
		}
	case protoUDP:
		if len(c) >= 8 {
			ports()
		}
	case protoSCTP:
		if len(c) >= 12 {
			ports()
		}
	case protoICMP, protoIGMP:
		if len(c) >= 8 {
			k.tpSrc, k.tpDst = uint16(c[0]), uint16(c[1])
		}
	case protoICM6:
		if len(c) < 8 {
			return
		}
		k.tpSrc, k.tpDst = uint16(c[0]), uint16(c[1])
		if k.tpDst == 0 && (k.tpSrc == 135 || k.tpSrc == 136) {
			k.discovery(c[8:])
		}
	}
}

// sum finds the checksum above IP. Open vSwitch looks for it in later fragments also.
func (k *packet) sum(c cursor) {
	for _, x := range []struct {
		proto          uint8
		name           string
		least, at, len int
	}{
		{protoTCP, "tcp", 20, 16, 2}, {protoUDP, "udp", 8, 6, 2}, {protoSCTP, "sctp", 12, 8, 4},
		{protoICMP, "icmp", 8, 2, 2}, {protoICM6, "icmp6", 4, 2, 2},
	} {
		if k.proto != x.proto || len(c) < x.least {
			continue
		}
		k.checksumName = x.name + "_csum"
		if x.len == 4 {
			k.checksum = binary.BigEndian.Uint32(c[x.at:])
		} else {
			k.checksum = uint32(binary.BigEndian.Uint16(c[x.at:]))
		}
	}
}

// discovery reads target and options of neighbour discovery.
func (k *packet) discovery(c cursor) {
	target := c.pull(16)
	if target == nil {
		return
	}
	copy(k.target, target)
	for len(c) >= 8 {
		n := int(c[1]) * 8
		if n == 0 || n > len(c) {
			return
		}
		var to *ofp.MAC
		switch {
		case c[0] == 1 && n == 8:
			to = &k.arpSHA
		case c[0] == 2 && n == 8:
			to = &k.arpTHA
		}
		if to != nil {
			if *to != (ofp.MAC{}) { // an option that stands twice spoils all
				k.target, k.arpSHA, k.arpTHA = make([]byte, 16), ofp.MAC{}, ofp.MAC{}
				return
			}
			copy(to[:], c[2:])
		}
		c.pull(n)
	}
}

func (k *packet) arp(c cursor) {
	if len(c) < 28 || binary.BigEndian.Uint16(c) != 1 || binary.BigEndian.Uint16(c[2:]) != ethIP || c[4] != 6 ||
		c[5] != 4 {
		return
	}
	if op := binary.BigEndian.Uint16(c[6:]); op <= 0xff {
		k.proto = uint8(op)
	}
	copy(k.arpSHA[:], c[8:])
	copy(k.ipSrc, c[14:18])
	copy(k.arpTHA[:], c[18:])
	copy(k.ipDst, c[24:28])
}

func (k *packet) nshHeader(c cursor) {
	if len(c) < 8 {
		return
	}
	first := binary.BigEndian.Uint16(c)
	n := int(first&0x3f) * 4
	if n > len(c) || first>>14 != 0 {
		return
	}
	h := nsh{flags: uint8(first >> 12 & 3), ttl: uint8(first >> 6 & 0x3f), mdType: c[2], next: c[3]}
	switch {
	case h.mdType == 1 && n != 24, h.mdType == 2 && n < 8:
		return
	case h.mdType == 1:
		for i := range h.context {
			h.context[i] = binary.BigEndian.Uint32(c[8+4*i:])
		}
	}
	k.nsh, k.nshPath = h, binary.BigEndian.Uint32(c[4:])
}
