package ofp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// encoder appends big-endian fields and keeps its first error.
type encoder struct {
	b     []byte
	xid   uint32
	depth int // how many actions we are inside of
	err   error
}

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}
func (e *encoder) u8(v uint8)     { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16)   { e.b = binary.BigEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32)   { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64)   { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) bytes(v []byte) { e.b = append(e.b, v...) }
func (e *encoder) str(v string)   { e.b = append(e.b, v...) }
func (e *encoder) zero(n int) {
	for range n {
		e.b = append(e.b, 0)
	}
}

// text writes s into n bytes, NUL-padded.
func (e *encoder) text(s string, n int) {
	if len(s) >= n {
		e.fail("text %q is longer than %d bytes", s, n-1)
		s = s[:n-1]
	}
	e.str(s)
	e.zero(n - len(s))
}

// pad8 pads what began at start to a multiple of 8 bytes.
func (e *encoder) pad8(start int) { e.zero((8 - (len(e.b)-start)%8) % 8) }

// len16 writes the length of what began at start into the two bytes at its offset at.
func (e *encoder) len16(start, at int) {
	n := len(e.b) - start
	if n > 0xffff {
		e.fail("%d bytes are more than a 16-bit length can say", n)
	}
	binary.BigEndian.PutUint16(e.b[start+at:], uint16(n))
}

// match appends an ofp_match with header and padding.
func (e *encoder) match(m Match) {
	e.u16(1) // OFPMT_OXM
	e.u16(uint16(4 + len(m)))
	e.str(string(m))
	e.zero((8 - (4+len(m))%8) % 8)
}

// DecodeError has the place in a message at which decoding failed.
type DecodeError struct {
	Message string // what was decoded, such as "flow_mod"
	Field   string
	Offset  int // byte in the whole message
	Reason  string
}

// Error is "decode flow_mod at byte 72: match: ct_mark: value has 2 bytes, want 4".
func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode %s at byte %d: %s: %s", e.Message, e.Offset, e.Field, e.Reason)
}

// decoder reads big-endian fields of one message. It keeps the first error, with the offset and the field. After that
// every read returns zero, so callers check for errors only at the end.
type decoder struct {
	what string
	buf  []byte // what is left of this part
	off  int    // position in the whole message, for errors
	deep int    // how many actions we are inside of
	top  bool   // the next list of actions is the flow's own (Apply-Actions)
	err  *error
}

// maxDepth bounds actions within actions (clone, ct, write_actions), as OVS does.
const maxDepth = 64

func (d *decoder) fail(field, format string, args ...any) {
	if *d.err == nil {
		*d.err = &DecodeError{d.what, field, d.off, fmt.Sprintf(format, args...)}
	}
}
func (d *decoder) ok() bool { return *d.err == nil }
func (d *decoder) left() int {
	if *d.err != nil {
		return 0
	}
	return len(d.buf)
}

// take returns the next n bytes without copying them; nil after an error.
func (d *decoder) take(field string, n int) []byte {
	if *d.err != nil {
		return nil
	}
	if n < 0 || n > len(d.buf) {
		d.fail(field, "want %d bytes, %d are left", n, len(d.buf))
		return nil
	}
	p := d.buf[:n:n]
	d.buf, d.off = d.buf[n:], d.off+n
	return p
}
func (d *decoder) skip(n int) { d.take("padding", n) }
func (d *decoder) u8(field string) uint8 {
	if p := d.take(field, 1); p != nil {
		return p[0]
	}
	return 0
}
func (d *decoder) u16(field string) uint16 {
	if p := d.take(field, 2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}
func (d *decoder) u32(field string) uint32 {
	if p := d.take(field, 4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}
func (d *decoder) u64(field string) uint64 {
	if p := d.take(field, 8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// rest returns a copy of what is left.
func (d *decoder) rest() []byte {
	p := d.take("data", d.left())
	if len(p) == 0 {
		return nil
	}
	return append([]byte(nil), p...)
}

// text reads n bytes up to the first NUL.
func (d *decoder) text(field string, n int) string {
	p := d.take(field, n)
	for i, c := range p {
		if c == 0 {
			return string(p[:i])
		}
	}
	return string(p)
}

// sub is a decoder of the next n bytes; it shares the error.
func (d *decoder) sub(field string, n int) decoder {
	s := *d
	s.buf = d.take(field, n)
	return s
}

// matchBytes reads an ofp_match with header and padding, and returns its OXM fields.
func (d *decoder) matchBytes() []byte {
	typ, n := d.u16("match type"), int(d.u16("match length"))
	if d.ok() && (typ != 1 || n < 4) {
		d.fail("match", "type %d with length %d, want type 1 and at least 4", typ, n)
		return nil
	}
	oxm := d.take("match", n-4)
	d.skip((8 - n%8) % 8)
	return oxm
}

// match is matchBytes in canonical form.
func (d *decoder) match() Match {
	at := *d
	at.off += 4 // behind the match's header
	oxm := d.matchBytes()
	if !d.ok() {
		return ""
	}
	m, err := canonical(oxm)
	if err != nil {
		at.fail("match", "%v", err)
	}
	return m
}

var errShort = errors.New("a message has at least 8 bytes")

// MessageLen returns the length in bytes of the message at the beginning of b, or 0 while b has less than the header's
// 8 bytes. A reader uses it to separate the messages of a stream.
func MessageLen(b []byte) int {
	if len(b) < 8 {
		return 0
	}
	return int(binary.BigEndian.Uint16(b[2:]))
}

// AppendMessage appends m with its header to b.
func AppendMessage(b []byte, xid uint32, m Message) ([]byte, error) {
	return encode(b, xid, m.Type(), func(e *encoder) { e.message(m) })
}

// AppendBundleAdd appends the message that adds an inner message to a bundle. message appends the inner one. Both have
// the same transaction id. The result equals the result of AppendMessage with a BundleAdd, but no BundleAdd is
// allocated.
func AppendBundleAdd(b []byte, xid, bundle uint32, flags uint16, message func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(b)
	out := append(b, Version, byte(TypeBundleAdd), 0, 0)
	out = binary.BigEndian.AppendUint32(out, xid)
	out = binary.BigEndian.AppendUint32(out, bundle)
	out = binary.BigEndian.AppendUint32(out, uint32(flags))
	out, err := message(out)
	if err != nil {
		return b, err
	}
	n := len(out) - start
	if n > 0xffff {
		return b, fmt.Errorf("encode %s: %d bytes are more than a 16-bit length can say", TypeBundleAdd, n)
	}
	binary.BigEndian.PutUint16(out[start+2:], uint16(n))
	return out, nil
}

func encode(b []byte, xid uint32, t Type, message func(*encoder)) ([]byte, error) {
	out, err := encoding(b, xid, message)
	if err != nil {
		return b, fmt.Errorf("encode %s: %w", t, err)
	}
	return out, nil
}

func encoding(b []byte, xid uint32, f func(*encoder)) ([]byte, error) {
	e := encoders.Get().(*encoder)
	*e = encoder{b: b, xid: xid}
	f(e)
	out, err := e.b, e.err
	*e = encoder{}
	encoders.Put(e)
	return out, err
}

// encoders is a pool, so that encoders are reused. An encoder is passed through interfaces, so each message would
// allocate one.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

func (e *encoder) message(m Message) {
	start := e.start(m.Type())
	m.appendTo(e)
	e.len16(start, 2)
}

// start begins a message and returns where; its length is still to be set.
func (e *encoder) start(t Type) int {
	start := len(e.b)
	e.u8(Version)
	e.u8(uint8(t))
	e.u16(0)
	e.u32(e.xid)
	return start
}

// DecodeMessage decodes exactly one message. It never panics; unknown messages are RawMessage, Experimenter or
// RawMultipart. Errors are of type *DecodeError. A Hello may have any version. All other messages must have Version.
func DecodeMessage(b []byte) (xid uint32, m Message, err error) {
	d := decoder{what: "message", buf: b, err: &err}
	m = d.message(&xid)
	if err != nil {
		return xid, nil, err
	}
	return xid, m, nil
}
