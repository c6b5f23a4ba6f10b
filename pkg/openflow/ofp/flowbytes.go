package ofp

import "encoding/binary"

// AppendFlowMod appends a flow-mod with its header to b. Its instructions are given as bytes, as AppendActions makes
// them, and m.Actions is ignored. It is for callers that keep flows as bytes.
func AppendFlowMod(b []byte, xid uint32, m *FlowMod, instructions string) ([]byte, error) {
	return encode(b, xid, TypeFlowMod, func(e *encoder) {
		start := e.start(TypeFlowMod)
		m.beforeInstructions(e)
		e.str(instructions)
		e.len16(start, 2)
	})
}

// FlowDescBytes is a flow in a FlowDescReply. Only the parts at fixed offsets are decoded. Its slices point into the
// message.
type FlowDescBytes struct {
	Table                    Table
	Priority                 uint16
	IdleTimeout, HardTimeout uint16
	Flags, Importance        uint16
	Cookie                   uint64
	Match                    []byte // OXM fields, in the switch's form
	Instructions             []byte
	whole                    []byte
	off                      int
}

// Decode decodes all of the flow.
func (f FlowDescBytes) Decode() (d FlowDesc, err error) {
	dec := decoder{what: "flow_desc", buf: f.whole, off: f.off, err: &err}
	d = dec.flowDesc()
	return d, err
}

// EachFlowDesc calls take with each flow of a whole message that is a FlowDescReply. With it, a caller that only
// compares the bytes of flows need not decode them all. An error of take ends it.
func EachFlowDesc(message []byte, take func(FlowDescBytes) error) (err error) {
	d := decoder{what: "flow_desc", buf: message, err: &err}
	if head := d.take("header", 16); err == nil &&
		(head[1] != byte(TypeMultipartReply) || MultipartType(binary.BigEndian.Uint16(head[8:])) != MultipartFlowDesc) {
		d.fail("header", "this is no reply with flows")
	}
	for d.left() > 0 {
		f := FlowDescBytes{whole: d.buf, off: d.off}
		s := d.entry("flow", 24)
		f.whole = f.whole[:len(s.buf)]
		s.skip(4)
		f.Table = Table(s.u8("table"))
		s.skip(1)
		f.Priority, f.IdleTimeout, f.HardTimeout = s.u16("priority"), s.u16("idle_timeout"), s.u16("hard_timeout")
		f.Flags, f.Importance, f.Cookie = s.u16("flags"), s.u16("importance"), s.u64("cookie")
		f.Match = s.matchBytes()
		at := s
		s.skip(2)
		n := int(s.u16("stats length"))
		if s.ok() && n < 4 {
			at.fail("stats length", "%d is less than 4", n)
		}
		s.skip(n - 4 + (8-n%8)%8)
		f.Instructions = s.take("instructions", s.left())
		if err != nil {
			return err
		}
		if err := take(f); err != nil {
			return err
		}
	}
	return err
}
