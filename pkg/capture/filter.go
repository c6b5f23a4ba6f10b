// Package capture captures packets of one interface to a pcapng stream. Filter selects the packets, and Run has limits
// for their number and the time. The package uses no API server and no Pods.
package capture

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Filter is what a packet must have. A zero field matches everything.
type Filter struct {
	// Six is the version of IP.
	Six bool
	// Forward captures packets from Source to Destination, and Backward the answers.
	Forward, Backward bool
	// Source and Destination are of the version of IP, or zero.
	Source, Destination netip.Addr
	// Protocol is a number of IP; negative for any.
	Protocol int
	// SourcePort and DestinationPort are of TCP or UDP; 0 for any.
	SourcePort, DestinationPort uint16
	// Flags are alternatives, of TCP.
	Flags []Flags
	// Messages are alternatives, of ICMP or ICMPv6.
	Messages []Message
}

// Flags matches TCP flags: flags & Mask == Value.
type Flags struct{ Value, Mask uint8 }

// Message matches a message of ICMP.
type Message struct {
	Type uint8
	Code int // negative for any
}

// These are offsets in an Ethernet frame without a VLAN tag. The kernel removes the tag from frames that it delivers.
const (
	etherType   = 12
	ipHeader    = 14
	transport6  = ipHeader + 40 // after an IPv6 header without extension headers
	protocol4   = ipHeader + 9
	protocol6   = ipHeader + 6
	fragment4   = ipHeader + 6
	source4     = ipHeader + 12
	source6     = ipHeader + 8
	tcpFlagsOff = 13
)

// SnapLength is the largest number of bytes that are captured of a packet. Segmentation offload makes packets of up to
// 64 KiB.
const SnapLength = 1<<16 + ipHeader

// test loads a value, and compares it under a mask.
type test struct {
	load        bpf.Instruction
	mask, value uint32
}

const noMask = 1<<32 - 1

// clause holds if all tests of one of its alternatives hold.
type clause [][]test

// Program returns the filter as a program of the kernel's classic BPF.
func (f Filter) Program() ([]bpf.RawInstruction, error) {
	ins, err := f.instructions()
	if err != nil {
		return nil, err
	}
	return bpf.Assemble(ins)
}

func (f Filter) instructions() ([]bpf.Instruction, error) {
	for _, a := range []netip.Addr{f.Source, f.Destination} {
		if a.IsValid() && a.Is6() != f.Six {
			return nil, fmt.Errorf("make the filter: %s is of the other version of IP", a)
		}
	}
	if !f.Forward && !f.Backward {
		return nil, errors.New("make the filter: it has no direction")
	}
	out := assemble(f.head())
	if f.readsTransport() && !f.Six {
		// X is the length of the IPv4 header. Later fragments have no transport header.
		out = append(out, assemble([]clause{{{{bpf.LoadAbsolute{Off: fragment4, Size: 2}, 0x1fff, 0}}}})...)
		out = append(out, bpf.LoadMemShift{Off: ipHeader})
	}
	out = append(out, assemble(f.tail())...)
	out = append(out, bpf.RetConstant{Val: SnapLength})
	return out, nil
}

// readsTransport reports whether the filter reads the header after that of IP.
func (f Filter) readsTransport() bool {
	return f.SourcePort != 0 || f.DestinationPort != 0 || len(f.Flags) > 0 || len(f.Messages) > 0
}

// head are the tests of version and protocol.
func (f Filter) head() []clause {
	version, protocol := uint32(unix.ETH_P_IP), uint32(protocol4)
	if f.Six {
		version, protocol = unix.ETH_P_IPV6, protocol6
	}
	out := []clause{{{{bpf.LoadAbsolute{Off: etherType, Size: 2}, noMask, version}}}}
	if f.Protocol >= 0 {
		out = append(out, clause{{{bpf.LoadAbsolute{Off: protocol, Size: 1}, noMask, uint32(f.Protocol)}}})
	}
	return out
}

// tail are the tests of both ends, and of the transport header.
func (f Filter) tail() []clause {
	var ends clause
	if f.Forward {
		ends = append(ends, f.between(f.Source, f.Destination, f.SourcePort, f.DestinationPort))
	}
	if f.Backward {
		ends = append(ends, f.between(f.Destination, f.Source, f.DestinationPort, f.SourcePort))
	}
	out := []clause{ends}
	var flags, messages clause
	for _, m := range f.Flags {
		flags = append(flags, []test{{f.transport(tcpFlagsOff, 1), uint32(m.Mask), uint32(m.Value)}})
	}
	for _, m := range f.Messages {
		tests := []test{{f.transport(0, 1), noMask, uint32(m.Type)}}
		if m.Code >= 0 {
			tests = append(tests, test{f.transport(1, 1), noMask, uint32(m.Code)})
		}
		messages = append(messages, tests)
	}
	for _, c := range []clause{flags, messages} {
		if len(c) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// between are the tests of the ends of a packet.
func (f Filter) between(from, to netip.Addr, fromPort, toPort uint16) []test {
	source := uint32(source4)
	if f.Six {
		source = source6
	}
	var out []test
	for _, a := range []netip.Addr{from, to} {
		if a.IsValid() {
			out = append(out, address(a, source)...)
		}
		source += map[bool]uint32{false: 4, true: 16}[f.Six]
	}
	for i, port := range []uint16{fromPort, toPort} {
		if port != 0 {
			out = append(out, test{f.transport(uint32(2*i), 2), noMask, uint32(port)})
		}
	}
	return out
}

// address are the tests of an address at a place.
func address(a netip.Addr, at uint32) (out []test) {
	for b := a.AsSlice(); len(b) > 0; b, at = b[4:], at+4 {
		word := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		out = append(out, test{bpf.LoadAbsolute{Off: at, Size: 4}, noMask, word})
	}
	return out
}

// transport loads a value from the transport header. If the packet is too short, the program ends without a match.
func (f Filter) transport(off uint32, size int) bpf.Instruction {
	if f.Six {
		return bpf.LoadAbsolute{Off: transport6 + off, Size: size}
	}
	return bpf.LoadIndirect{Off: ipHeader + off, Size: size}
}

// assemble returns the instructions for clauses that all have to hold. If one does not hold, the program ends without a
// match.
func assemble(clauses []clause) (out []bpf.Instruction) {
	for _, c := range clauses {
		var bodies [][]bpf.Instruction
		length := 1 // the last instruction, which ends without a match
		for _, tests := range c {
			body := alternative(tests)
			bodies = append(bodies, body)
			length += len(body) + 1
		}
		end := len(out) + length
		for _, body := range bodies {
			out = append(out, body...)
			out = append(out, bpf.Jump{Skip: uint32(end - len(out) - 1)})
		}
		out = append(out, bpf.RetConstant{Val: 0})
	}
	return out
}

// alternative returns the instructions for tests that all have to hold. If one does not hold, execution continues after
// the jump that follows the instructions. That may be too far for a conditional jump, so each test has two jumps.
func alternative(tests []test) []bpf.Instruction {
	length := 0
	for _, t := range tests {
		length += t.length()
	}
	var out []bpf.Instruction
	for _, t := range tests {
		out = append(out, t.load)
		if t.mask != noMask {
			out = append(out, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: t.mask})
		}
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: t.value, SkipTrue: 1})
		out = append(out, bpf.Jump{Skip: uint32(length - len(out))})
	}
	return out
}

func (t test) length() int {
	if t.mask != noMask {
		return 4
	}
	return 3
}
