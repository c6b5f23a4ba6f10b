// Package ofprint writes OpenFlow 1.5 messages as text, in the form of `ovs-ofctl ofp-print`: name, version and
// transaction id, then the content of the message.
//
//	OFPT_FLOW_MOD (OF1.5) (xid=0x1): ADD table:1 priority=200,ip actions=goto_table:2
//
// Package flow writes flows, matches and actions. The text differs from ovs-ofctl 3.1 in these points:
//
//   - ovs-ofctl does not support OFPST_FLOW_STATS, OFPST_BUNDLE_FEATURES, OFPST_CONTROLLER_STATUS and
//     OFPT_CONTROLLER_STATUS. This package prints them in the same style.
//   - ovs-ofctl prints the name of an error for some messages that this package can decode. Bytes that this package
//     cannot decode are an error.
//   - eviction flags of an OFPT_TABLE_MOD, which it takes for something else, are printed;
//   - it garbles names of fields in table features whose common beginning gets shorter; we do
//     not (ct_{nw_{src,dst},ipv6_src});
//   - buffer 0 and out_port 0 are not printed: package ofp sends them as none.
package ofprint

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// DefaultVerbosity is the verbosity of ovs-ofctl ofp-print without an argument.
const DefaultVerbosity = 2

// Options of printing.
type Options struct {
	// Verbosity has the values of ovs-ofctl. 0 leaves out packets and counters of ports and queues, and 1 the payload of
	// echoes. 2 is the default of ofp-print. 3 adds a hex dump of packets, and 5 a hex dump of every whole message.
	Verbosity int
	// If Names is not nil, its names are printed instead of the numbers of ports and of the tables of flows, as with
	// ovs-ofctl --names.
	Names *flow.Names
}

// Message is the text of a message with DefaultVerbosity. It ends with a newline.
func Message(xid uint32, m ofp.Message) string {
	return string(Options{Verbosity: DefaultVerbosity}.Append(nil, xid, m))
}

// Append appends the text of a message, which ends with a newline.
func (o Options) Append(b []byte, xid uint32, m ofp.Message) []byte {
	version := uint8(ofp.Version)
	if hello, ok := m.(ofp.Hello); ok && hello.HeaderVersion != 0 {
		version = hello.HeaderVersion
	}
	p := printer{b: b, start: len(b), verbosity: o.Verbosity, names: o.Names}
	var wire []byte
	if o.Verbosity >= 5 || needsBytes(m) {
		wire, _ = ofp.AppendMessage(nil, xid, m) // what cannot be sent has no bytes to show
	}
	p.message(version, xid, m, wire)
	return p.b
}

// AppendBytes decodes one message and appends its text. The error is a *ofp.DecodeError with the field and the byte of
// the fault.
func (o Options) AppendBytes(b []byte, wire []byte) ([]byte, error) {
	xid, m, err := ofp.DecodeMessage(wire)
	if err != nil {
		return b, err
	}
	p := printer{b: b, start: len(b), verbosity: o.Verbosity, names: o.Names}
	p.message(wire[0], xid, m, wire)
	return p.b, nil
}

// needsBytes reports whether a message is printed as a hex dump.
func needsBytes(m ofp.Message) bool {
	switch m := m.(type) {
	case ofp.Hello:
		return len(m.Elements)+len(m.Extra) > 0
	case ofp.RawMessage, ofp.RawMultipart, ofp.Experimenter, ofp.ExperimenterMultipart:
		return true
	}
	return false
}

// printer appends the text of one message to b, in which it begins at start.
type printer struct {
	b         []byte
	start     int
	verbosity int
	names     *flow.Names
	xid       uint32
	wire      []byte // the whole message, nil where it was not needed
	deep      int    // messages that the one being printed is inside of
}

func (p *printer) str(s string)            { p.b = append(p.b, s...) }
func (p *printer) f(s string, args ...any) { p.b = fmt.Appendf(p.b, s, args...) }
func (p *printer) num(v uint64)            { p.b = strconv.AppendUint(p.b, v, 10) }

func (p *printer) last() byte {
	if len(p.b) == p.start {
		return 0
	}
	return p.b[len(p.b)-1]
}
func (p *printer) chomp(c byte) {
	if p.last() == c {
		p.b = p.b[:len(p.b)-1]
	}
}
func (p *printer) newline() {
	if len(p.b) > p.start && p.last() != '\n' {
		p.str("\n")
	}
}

// message prints a whole message; wire is its bytes, for dumps.
func (p *printer) message(version uint8, xid uint32, m ofp.Message, wire []byte) {
	p.xid = xid
	p.header(nameOf(m), version, xid)
	whole := p.verbosity >= 5
	p.wire = wire
	p.multipartFlags(m)
	if !p.body(m) {
		whole = true
	}
	p.chomp(' ')
	if whole && wire != nil {
		p.newline()
		p.hexDump(wire, true)
	}
	p.newline()
}

func (p *printer) header(name string, version uint8, xid uint32) {
	p.str(name)
	switch {
	case version == 1:
	case version >= 2 && version <= 6:
		p.f(" (OF1.%d)", version-1)
	default:
		p.f(" (OF 0x%02x)", version)
	}
	p.f(" (xid=0x%x):", xid)
}

// multipartFlags prints the flags of a multipart message, of which one is known.
func (p *printer) multipartFlags(m ofp.Message) {
	parts, ok := m.(ofp.Multipart)
	if !ok {
		return
	}
	var flags uint16
	if len(p.wire) >= 12 {
		flags = binary.BigEndian.Uint16(p.wire[10:])
	} else if parts.HasMore() {
		flags = 1
	}
	if flags == 0 {
		return
	}
	p.str(" flags=")
	if flags&1 != 0 {
		p.str("[more]")
	}
	if rest := flags &^ 1; rest != 0 {
		p.f("[***unknown flags 0x%04x***]", rest)
	}
}

// match prints the conditions of a match, and the priority unless it is the default.
func (p *printer) match(m ofp.Match, priority uint16) {
	if priority != flow.DefaultPriority {
		p.f("priority=%d", priority)
		if m != "" {
			p.str(",")
		}
	}
	p.str(p.names.Match(flow.MatchOf(m)))
}

func (p *printer) actions(list []ofp.Action) { p.str(p.names.Actions(list)) }

// duration prints seconds with as many decimals as needed, three at least if any.
func (p *printer) duration(sec, nsec uint32) {
	p.num(uint64(sec))
	switch {
	case nsec == 0:
	case nsec%1e6 == 0:
		p.f(".%03d", nsec/1e6)
	default:
		p.f(".%09d", nsec)
		for p.last() == '0' {
			p.chomp('0')
		}
	}
	p.str("s")
}

// bitNames prints the names of the set bits. It prints bits without a name as a number, and 0 if no bit is set.
func (p *printer) bitNames(bits uint32, name func(bit uint32) string, separator string) {
	if bits == 0 {
		p.str("0")
		return
	}
	n := 0
	for i := range 32 {
		bit := uint32(1) << i
		if bits&bit == 0 {
			continue
		}
		if s := name(bit); s != "" {
			if n++; n > 1 {
				p.str(separator)
			}
			p.str(s)
			bits &^= bit
		}
	}
	if bits != 0 {
		if n > 0 {
			p.str(separator)
		}
		p.f("0x%x", bits)
	}
}

// hexAlt prints a number as C's %#x does: 0 without prefix.
func (p *printer) hexAlt(v uint64) {
	if v == 0 {
		p.str("0")
		return
	}
	p.f("0x%x", v)
}

// counter prints a counter, ? where it is not kept.
func (p *printer) counter(v uint64) {
	if v == ^uint64(0) {
		p.str("?")
		return
	}
	p.num(v)
}

// hexArg is 01.02.03.
func (p *printer) hexArg(data []byte) {
	for i, c := range data {
		if i > 0 {
			p.str(".")
		}
		p.f("%02x", c)
	}
}

// hexDump prints 16 bytes a line, with their offset and, if ascii, as characters.
func (p *printer) hexDump(data []byte, ascii bool) {
	const digits = "0123456789abcdef"
	for at := 0; at < len(data); at += 16 {
		line := data[at:min(at+16, len(data))]
		p.f("%08x  ", at)
		for i, c := range line {
			gap := byte(' ')
			if i == 7 {
				gap = '-'
			}
			p.b = append(p.b, digits[c>>4], digits[c&15], gap)
		}
		if ascii {
			for range 16 - len(line) {
				p.str("   ")
			}
			p.str("|")
			for _, c := range line {
				if c < 32 || c > 126 {
					c = '.'
				}
				p.b = append(p.b, c)
			}
			for range 16 - len(line) {
				p.str(" ")
			}
			p.str("|")
		} else {
			p.chomp(' ')
		}
		p.str("\n")
	}
}

// fragment prints what may be the first bytes of a message, such as an error brings back.
func (p *printer) fragment(data []byte, verbosity int) {
	s := printer{b: p.b, start: len(p.b), verbosity: verbosity, names: p.names, deep: p.deep + 1}
	s.fragmentText(data)
	p.b = s.b
}

func (p *printer) fragmentText(data []byte) {
	switch n := ofp.MessageLen(data); {
	case len(data) == 0:
		p.str("OpenFlow message is empty\n")
		return
	case len(data) < 8:
		p.f("OpenFlow packet too short (only %d bytes):\n", len(data))
	case n > len(data):
		if name := nameOfBytes(data); name != "" {
			p.header(name, data[0], binary.BigEndian.Uint32(data[4:]))
			p.str("\n")
		}
		p.f("(***truncated to %d bytes from %d***)\n", len(data), n)
	case n < len(data):
		p.f("(***only uses %d bytes out of %d***)\n", n, len(data))
	default:
		// An error can bring back an error that brings back an error.
		if p.deep > 8 {
			p.f("(***too deep***)\n")
			break
		}
		xid, m, err := ofp.DecodeMessage(data)
		if err == nil {
			p.message(data[0], xid, m, data)
			return
		}
		if name := nameOfBytes(data); name != "" {
			p.header(name, data[0], binary.BigEndian.Uint32(data[4:]))
			p.str(" ")
		}
		p.f("***decode error: %v***\n", err)
	}
	p.hexDump(data, true)
}
