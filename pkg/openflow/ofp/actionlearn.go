package ofp

import (
	"errors"
	"fmt"
)

// LearnKind is what a [LearnSpec] does.
type LearnKind uint8

// Kinds of learn specs.
const (
	LearnMatch  LearnKind = 0
	LearnLoad   LearnKind = 1
	LearnOutput LearnKind = 2
)

// LearnSpec is one part of the flow that a [Learn] adds: a match, a load or an output. Its value comes from Src. If
// Src.Width is 0, it is the constant Value (big-endian, right-aligned).
type LearnSpec struct {
	Kind  LearnKind
	Src   Bits
	Value string
	Dst   Bits
}

// Flags of [Learn].
const (
	LearnSendFlowRem   uint16 = 1 << 0
	LearnDeleteLearned uint16 = 1 << 1
	LearnWriteResult   uint16 = 1 << 2
)

// Learn adds or modifies a flow when a packet passes (NXAST_LEARN, NXAST_LEARN2).
type Learn struct {
	IdleTimeout, HardTimeout uint16
	Priority                 uint16
	Cookie                   uint64
	Flags                    uint16
	Table                    Table
	FinIdle, FinHard         uint16
	Limit                    uint32
	Result                   Bits // one bit, with LearnWriteResult
	Specs                    []LearnSpec
}

// Bits of a spec's header (nicira-ext.h, NX_LEARN_*).
const (
	learnImmediate uint16 = 1 << 13
	learnBitsMask  uint16 = 0x3ff
)

func (a Learn) check() error {
	const known = LearnSendFlowRem | LearnDeleteLearned | LearnWriteResult
	switch {
	case a.Flags&^known != 0:
		return fmt.Errorf("learn: flags %#x are not known", a.Flags)
	case a.Table == TableAll:
		return errors.New("learn: table 255 stands for all tables")
	case a.Flags&LearnWriteResult == 0 && a.Result != Bits{}:
		return errors.New("learn: a result needs the flag LearnWriteResult")
	}
	if a.Flags&LearnWriteResult != 0 {
		if err := a.Result.writable(); err != nil {
			return fmt.Errorf("learn: result_dst: %w", err)
		}
		if a.Result.Width != 1 {
			return errors.New("learn: result_dst is one bit")
		}
	}
	for _, x := range a.Specs {
		if err := x.check(); err != nil {
			return fmt.Errorf("learn: %w", err)
		}
	}
	return nil
}

// bits is how many bits the spec is about.
func (x LearnSpec) bits() int {
	if x.Kind == LearnOutput {
		return x.Src.Width
	}
	return x.Dst.Width
}

func (x LearnSpec) check() error {
	if x.Kind > LearnOutput {
		return fmt.Errorf("there is no kind %d of spec", x.Kind)
	}
	if x.Kind == LearnOutput && x.Src.Width == 0 {
		return errors.New("an output cannot be a constant")
	}
	if x.Src.Width != 0 {
		if err := x.Src.Valid(); err != nil {
			return err
		}
		if err := x.Src.Field.needsShort(); err != nil {
			return err
		}
	}
	if x.Kind == LearnOutput {
		return nil
	}
	dst := x.Dst.Valid
	if x.Kind == LearnLoad {
		dst = x.Dst.writable
	}
	if err := dst(); err != nil {
		return err
	}
	if err := x.Dst.Field.needsShort(); err != nil {
		return err
	}
	n := x.Dst.Width
	switch want := (n + 15) / 16 * 2; {
	case x.Src.Width != 0 && x.Src.Width != n:
		return fmt.Errorf("%s has %d bits, %s has %d", x.Src.Field, x.Src.Width, x.Dst.Field, n)
	case x.Src.Width == 0 && len(x.Value) > want:
		return fmt.Errorf("a value of %d bytes for %d bits", len(x.Value), n)
	case x.Src.Width == 0 && len(x.Value) == want && n%16 != 0 && ToValue(x.Value[:2]).Shr(n%16) != (Value{}):
		return fmt.Errorf("the value for %s does not fit into %d bits", x.Dst.Field, n)
	}
	return nil
}

func (a Learn) appendTo(e *encoder) {
	sub := nxLearn
	if a.Limit != 0 || a.Flags&LearnWriteResult != 0 {
		sub = nxLearn2
	}
	s := e.nicira(sub)
	e.u16(a.IdleTimeout)
	e.u16(a.HardTimeout)
	e.u16(a.Priority)
	e.u64(a.Cookie)
	e.u16(a.Flags)
	e.u8(uint8(a.Table))
	e.zero(1)
	e.u16(a.FinIdle)
	e.u16(a.FinHard)
	if sub == nxLearn2 {
		e.u32(a.Limit)
		e.u16(uint16(a.Result.First))
		e.zero(2)
		if a.Flags&LearnWriteResult != 0 {
			e.nxHeader(a.Result.Field)
		}
	}
	for _, x := range a.Specs {
		x.appendTo(e)
	}
	e.actionEnd(s)
}

func (x LearnSpec) appendTo(e *encoder) {
	n := x.bits()
	h := uint16(x.Kind)<<11 | uint16(n)&learnBitsMask
	if x.Src.Width == 0 {
		e.u16(h | learnImmediate)
		e.zero((n+15)/16*2 - len(x.Value))
		e.str(x.Value)
	} else {
		e.u16(h)
		e.nxHeader(x.Src.Field)
		e.u16(uint16(x.Src.First))
	}
	if x.Kind != LearnOutput {
		e.nxHeader(x.Dst.Field)
		e.u16(uint16(x.Dst.First))
	}
}

func (d *decoder) learn(sub uint16) Action {
	var a Learn
	a.IdleTimeout, a.HardTimeout, a.Priority = d.u16("idle_timeout"), d.u16("hard_timeout"), d.u16("priority")
	a.Cookie, a.Flags, a.Table = d.u64("cookie"), d.u16("flags"), Table(d.u8("table"))
	d.skip(1)
	a.FinIdle, a.FinHard = d.u16("fin_idle_timeout"), d.u16("fin_hard_timeout")
	if sub == nxLearn2 {
		a.Limit = d.u32("limit")
		first := int(d.u16("result offset"))
		d.skip(2)
		if a.Flags&LearnWriteResult != 0 {
			a.Result = Bits{d.field("result"), first, 1}
			if a.Result.Field == 0 {
				return nil
			}
		}
	}
	for d.left() >= 2 {
		h := d.u16("spec header")
		if h == 0 { // padding
			break
		}
		x, known := d.learnSpec(h)
		if !known {
			return nil
		}
		a.Specs = append(a.Specs, x)
	}
	return a
}

// learnSpec reads what follows a spec's header; known is false where a field is not known.
func (d *decoder) learnSpec(h uint16) (x LearnSpec, known bool) {
	n := int(h & learnBitsMask)
	x.Kind = LearnKind(h >> 11 & 3)
	if x.Kind > LearnOutput || n == 0 || h>>14 != 0 || h&0x400 != 0 {
		d.fail("spec header", "%#04x is not known", h)
		return x, false
	}
	if h&learnImmediate != 0 {
		x.Value = string(d.take("spec value", (n+15)/16*2))
	} else {
		x.Src = Bits{d.field("spec source"), int(d.u16("spec source offset")), n}
	}
	if x.Kind != LearnOutput {
		x.Dst = Bits{d.field("spec destination"), int(d.u16("spec destination offset")), n}
	}
	return x, (h&learnImmediate != 0 || x.Src.Field != 0) && (x.Kind == LearnOutput || x.Dst.Field != 0)
}
