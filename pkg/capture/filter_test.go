package capture

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/bpf"
)

// packet is a packet of a test.
type packet struct {
	from, to         netip.Addr
	protocol         layers.IPProtocol
	fromPort, toPort uint16
	flags            uint8
	kind, code       uint8 // of ICMP
	options          int   // words of IPv4 options
	fragment         uint16
	length           int // of the payload
}

// frame is the packet on the wire.
func (p packet) frame(t testing.TB) []byte {
	t.Helper()
	payload := make([]byte, p.length)
	var transport []byte
	switch p.protocol {
	case layers.IPProtocolTCP:
		transport = make([]byte, 20)
		binary.BigEndian.PutUint16(transport, p.fromPort)
		binary.BigEndian.PutUint16(transport[2:], p.toPort)
		transport[12], transport[13] = 5<<4, p.flags
	case layers.IPProtocolUDP:
		transport = make([]byte, 8)
		binary.BigEndian.PutUint16(transport, p.fromPort)
		binary.BigEndian.PutUint16(transport[2:], p.toPort)
		binary.BigEndian.PutUint16(transport[4:], uint16(8+p.length))
	case layers.IPProtocolICMPv4, layers.IPProtocolICMPv6:
		transport = []byte{p.kind, p.code, 0, 0, 0, 0, 0, 0}
	}
	ethernet := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2},
		EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer
	if p.from.Is4() {
		header := &layers.IPv4{Version: 4, TTL: 64, Protocol: p.protocol, SrcIP: p.from.AsSlice(), DstIP: p.to.AsSlice(),
			FragOffset: p.fragment}
		for range p.options {
			header.Options = append(header.Options, layers.IPv4Option{OptionType: 7, OptionLength: 4, OptionData: []byte{0, 0}})
		}
		ip = header
	} else {
		ethernet.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p.protocol, SrcIP: p.from.AsSlice(), DstIP: p.to.AsSlice()}
	}
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true}, ethernet, ip,
		gopacket.Payload(append(transport, payload...))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// wants is the filter in other words.
func wants(f Filter, p packet) bool {
	protocol := int(p.protocol)
	if p.from.Is6() != f.Six || f.Protocol >= 0 && protocol != f.Protocol {
		return false
	}
	between := func(from, to netip.Addr, fromPort, toPort uint16) bool {
		return (!from.IsValid() || from == p.from) && (!to.IsValid() || to == p.to) &&
			(fromPort == 0 || fromPort == p.fromPort) && (toPort == 0 || toPort == p.toPort)
	}
	forward := f.Forward && between(f.Source, f.Destination, f.SourcePort, f.DestinationPort)
	backward := f.Backward && between(f.Destination, f.Source, f.DestinationPort, f.SourcePort)
	if !forward && !backward {
		return false
	}
	if p.fragment > 0 && (f.SourcePort != 0 || f.DestinationPort != 0 || len(f.Flags) > 0 || len(f.Messages) > 0) {
		return false
	}
	return (len(f.Flags) == 0 || slices.ContainsFunc(f.Flags, func(m Flags) bool { return p.flags&m.Mask == m.Value })) &&
		(len(f.Messages) == 0 || slices.ContainsFunc(f.Messages, func(m Message) bool {
			return m.Type == p.kind && (m.Code < 0 || m.Code == int(p.code))
		}))
}

// TestFilter runs random filters over random packets, and compares with the filter in other words.
func TestFilter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	addresses := map[bool][]netip.Addr{
		false: {netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("10.10.0.3"), netip.MustParseAddr("10.10.1.2")},
		true:  {netip.MustParseAddr("fd10::2"), netip.MustParseAddr("fd10::3"), netip.MustParseAddr("fd10:1::2")},
	}
	ports := []uint16{80, 443, 40000}
	matched := 0
	const rounds = 3000
	for range rounds {
		six := r.IntN(2) == 0
		pick := func() netip.Addr { return addresses[six][r.IntN(3)] }
		protocols := []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolICMPv4, 132}
		if six {
			protocols[2] = layers.IPProtocolICMPv6
		}
		f := Filter{Six: six, Protocol: -1, Forward: true}
		if r.IntN(3) > 0 {
			f.Source = pick()
		}
		if r.IntN(3) > 0 {
			f.Destination = pick()
		}
		switch r.IntN(3) {
		case 0:
			f.Backward = true
		case 1:
			f.Forward, f.Backward = false, true
		}
		protocol := protocols[r.IntN(4)]
		if r.IntN(4) > 0 {
			f.Protocol = int(protocol)
			switch protocol {
			case layers.IPProtocolTCP, layers.IPProtocolUDP:
				if r.IntN(2) == 0 {
					f.SourcePort = ports[r.IntN(3)]
				}
				if r.IntN(2) == 0 {
					f.DestinationPort = ports[r.IntN(3)]
				}
				for range r.IntN(3) {
					if protocol == layers.IPProtocolTCP {
						mask := uint8(r.IntN(64))
						f.Flags = append(f.Flags, Flags{uint8(r.IntN(64)) & mask, mask})
					}
				}
			case layers.IPProtocolICMPv4, layers.IPProtocolICMPv6:
				for range r.IntN(3) {
					f.Messages = append(f.Messages, Message{uint8(r.IntN(3)), r.IntN(3) - 1})
				}
			}
		}
		ins, err := f.instructions()
		if err != nil {
			t.Fatal(err)
		}
		vm, err := bpf.NewVM(ins)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		for range 20 {
			p := packet{from: pick(), to: pick(), protocol: protocols[r.IntN(4)], fromPort: ports[r.IntN(3)],
				toPort: ports[r.IntN(3)], flags: uint8(r.IntN(64)), kind: uint8(r.IntN(3)), code: uint8(r.IntN(2)), length: 8}
			if r.IntN(2) == 0 {
				p.protocol = protocol
			}
			if !six {
				p.options = r.IntN(3)
				if r.IntN(5) == 0 {
					p.fragment = 100
				}
			}
			if r.IntN(20) == 0 {
				p.from, p.to = addresses[!six][0], addresses[!six][1]
				p.options, p.fragment = 0, 0
			}
			n, err := vm.Run(p.frame(t))
			if err != nil {
				t.Fatal(err)
			}
			want := wants(f, p)
			if n > 0 != want {
				t.Fatalf("filter %+v, packet %+v: captured %v, want %v", f, p, n > 0, want)
			}
			if want {
				matched++
			}
		}
	}
	if matched < rounds {
		t.Errorf("only %d packets matched", matched)
	}
}

// TestFilterShort runs a filter over the beginnings of a packet. It matches no packet that ends before the last byte
// that the filter reads.
func TestFilterShort(t *testing.T) {
	p := packet{from: netip.MustParseAddr("10.10.0.2"), to: netip.MustParseAddr("10.10.0.3"),
		protocol: layers.IPProtocolTCP, fromPort: 40000, toPort: 80, flags: 2}
	whole := p.frame(t)
	ins, err := Filter{Forward: true, Source: p.from, Destination: p.to, Protocol: tcp, DestinationPort: 80,
		Flags: []Flags{{2, 2}}}.instructions()
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		have, err := vm.Run(whole[:n])
		if err != nil {
			t.Fatal(err)
		}
		if needs := 14 + 20 + 14; (have > 0) != (n >= needs) {
			t.Errorf("the first %d bytes: captured %v", n, have > 0)
		}
	}
}

// TestFilterLimits has as many alternatives as an object may have. The kernel takes at most 4096 instructions.
func TestFilterLimits(t *testing.T) {
	f := Filter{Six: true, Forward: true, Backward: true, Source: netip.MustParseAddr("fd10::2"),
		Destination: netip.MustParseAddr("fd10::3"), Protocol: tcp, SourcePort: 1, DestinationPort: 2}
	for i := range maxAlternatives {
		f.Flags = append(f.Flags, Flags{uint8(i), 255})
		f.Messages = append(f.Messages, Message{uint8(i), i})
	}
	program, err := f.Program()
	if err != nil || len(program) > 4096 {
		t.Errorf("%d instructions, %v", len(program), err)
	}
	f.Source = netip.MustParseAddr("10.0.0.1")
	if _, err := f.Program(); err == nil {
		t.Error("an address of the other version of IP is taken")
	}
	if _, err := (Filter{}).Program(); err == nil {
		t.Error("a filter without a direction is taken")
	}
}
