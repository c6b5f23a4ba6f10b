package ofp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Action types (ofp_action_type) and the subtypes of Nicira's actions (ofp-actions.c).
const (
	actOutput    uint16 = 0
	actPushVLAN  uint16 = 17
	actPopVLAN   uint16 = 18
	actSetQueue  uint16 = 21
	actGroup     uint16 = 22
	actSetTTL    uint16 = 23
	actDecTTL    uint16 = 24
	actSetField  uint16 = 25
	actCopyField uint16 = 28
	actMeter     uint16 = 29
	actVendor    uint16 = 0xffff

	nxResubmit       uint16 = 1
	nxPopQueue       uint16 = 5
	nxRegMove        uint16 = 6
	nxRegLoad        uint16 = 7
	nxNote           uint16 = 8
	nxResubmitTable  uint16 = 14
	nxOutputReg      uint16 = 15
	nxLearn          uint16 = 16
	nxExit           uint16 = 17
	nxFinTimeout     uint16 = 19
	nxController     uint16 = 20
	nxDecTTLIDs      uint16 = 21
	nxPush           uint16 = 27
	nxPop            uint16 = 28
	nxOutputReg2     uint16 = 32
	nxConjunction    uint16 = 34
	nxCT             uint16 = 35
	nxNAT            uint16 = 36
	nxController2    uint16 = 37
	nxClone          uint16 = 42
	nxCTClear        uint16 = 43
	nxResubmitCT     uint16 = 44
	nxLearn2         uint16 = 45
	nxCheckPktLarger uint16 = 49
	nxDeleteField    uint16 = 50
)

// Instruction types (ofp_instruction_type).
const (
	insGoto          uint16 = 1
	insWriteMetadata uint16 = 2
	insWriteActions  uint16 = 3
	insApplyActions  uint16 = 4
	insClearActions  uint16 = 5
)

// Valid says what is wrong with the range, nil when nothing is.
func (r Bits) Valid() error {
	switch {
	case r.Field == 0 || r.Field >= fieldCount:
		return fmt.Errorf("field %d does not exist", r.Field)
	case r.First < 0 || r.Width < 1 || r.First+r.Width > r.Field.Bits():
		return fmt.Errorf("%s: bits %d to %d are not within its %d bits", r.Field, r.First, r.First+r.Width-1, r.Field.Bits())
	}
	return nil
}

func (e *encoder) bits(r Bits, writable bool) bool {
	if err := r.Valid(); err != nil {
		e.fail("%v", err)
		return false
	}
	if writable && !r.Field.Writable() {
		e.fail("%s: cannot be written", r.Field)
		return false
	}
	return true
}

// actionStart begins an action; actionEnd pads it and writes its length.
func (e *encoder) actionStart(typ uint16) int {
	start := len(e.b)
	e.u16(typ)
	e.u16(0)
	return start
}
func (e *encoder) nicira(sub uint16) int {
	start := e.actionStart(actVendor)
	e.u32(nxVendor)
	e.u16(sub)
	return start
}
func (e *encoder) actionEnd(start int) {
	e.pad8(start)
	e.len16(start, 2)
}
func (e *encoder) simple(typ uint16) {
	s := e.actionStart(typ)
	e.actionEnd(s)
}
func (e *encoder) header(f Field) {
	if f == 0 || f >= fieldCount {
		e.fail("field %d does not exist", f)
		return
	}
	e.b = appendOXMHeader(e.b, f, false, f.Len())
}

// actions appends a list in which no instruction may stand.
func (e *encoder) actions(list []Action) {
	for _, a := range list {
		if isInstruction(a) {
			e.fail("%T may only stand in a flow, not in a bucket, packet-out or another action", a)
			return
		}
		e.action(a)
	}
}
func (e *encoder) action(a Action) {
	if a == nil {
		e.fail("an action is nil")
		return
	}
	a.appendTo(e)
}

// instructions appends a flow's list: actions wrapped in Apply-Actions, then instructions.
func (e *encoder) instructions(list []Action) {
	start := -1
	for i, a := range list {
		if isInstruction(a) {
			continue
		}
		if _, ok := a.(Meter); ok && i > 0 {
			e.fail("meter: stands before all other actions, once")
		}
		if start < 0 {
			start = e.actionStart(insApplyActions)
			e.zero(4)
		}
		e.action(a)
	}
	if start >= 0 {
		e.len16(start, 2)
	}
	seen := 0
	for rank := 1; rank <= 5; rank++ {
		for _, a := range list {
			if instructionRank(a) != rank {
				continue
			}
			if seen == rank && rank != 3 {
				e.fail("%T stands twice", a)
			}
			seen = rank
			e.action(a)
		}
	}
}

func instructionRank(a Action) int {
	switch a.(type) {
	case ClearActions:
		return 1
	case WriteActions:
		return 2
	case RawInstruction:
		return 3
	case WriteMetadata:
		return 4
	case GotoTable:
		return 5
	}
	return 0
}
func isInstruction(a Action) bool { return instructionRank(a) != 0 }

func (a Output) appendTo(e *encoder) {
	s := e.actionStart(actOutput)
	e.u32(uint32(a.Port))
	e.u16(a.MaxLen)
	e.actionEnd(s)
}
func (a OutputReg) appendTo(e *encoder) {
	if !e.bits(a.Src, false) {
		return
	}
	if fields[a.Src.Field].class == classNXOXM {
		s := e.nicira(nxOutputReg2)
		e.u16(ofsNbits(a.Src))
		e.u16(a.MaxLen)
		e.header(a.Src.Field)
		e.actionEnd(s)
		return
	}
	s := e.nicira(nxOutputReg)
	e.u16(ofsNbits(a.Src))
	e.header(a.Src.Field)
	e.u16(a.MaxLen)
	e.zero(6)
	e.actionEnd(s)
}

// ofsNbits is a range as Nicira's actions write it.
func ofsNbits(r Bits) uint16 {
	if r.Width > 64 || r.First > 1023 {
		return 0
	}
	return uint16(r.First<<6 | (r.Width - 1))
}
func (a Group) appendTo(e *encoder) {
	s := e.actionStart(actGroup)
	e.u32(a.ID)
	e.actionEnd(s)
}
func (a SetField) appendTo(e *encoder) {
	n := a.Field.Len()
	switch {
	case a.Field == 0 || a.Field >= fieldCount:
		e.fail("set_field: field %d does not exist", a.Field)
	case !a.Field.Writable():
		e.fail("set_field: %s cannot be written", a.Field)
	case len(a.Value) != n:
		e.fail("set_field: the value for %s has %d bytes, want %d (a value too large or of the wrong kind?)", a.Field, len(a.Value), n)
	case a.Mask != "" && len(a.Mask) != n:
		e.fail("set_field: the mask for %s has %d bytes, want %d", a.Field, len(a.Mask), n)
	}
	if e.err != nil {
		return
	}
	width := Ones(a.Field.Bits())
	v, m := ToValue(a.Value), width
	if a.Mask != "" {
		m = ToValue(a.Mask).And(width)
	}
	if !v.And(width.Not()).IsZero() {
		e.fail("set_field: the value for %s is wider than its %d bits", a.Field, a.Field.Bits())
	}
	v = v.And(m)
	if m != width && !fields[a.Field].maskable {
		e.fail("set_field: %s cannot be written in part", a.Field)
	}
	s := e.actionStart(actSetField)
	e.b = appendOXMHeader(e.b, a.Field, m != width, n)
	e.b = v.Append(e.b, n)
	if m != width {
		e.b = m.Append(e.b, n)
	}
	e.actionEnd(s)
}
func (a RegMove) appendTo(e *encoder) {
	if !e.bits(a.Src, false) || !e.bits(a.Dst, true) {
		return
	}
	if a.Src.Width != a.Dst.Width {
		e.fail("move: %s has %d bits, %s has %d", a.Src.Field, a.Src.Width, a.Dst.Field, a.Dst.Width)
	}
	s := e.actionStart(actCopyField)
	e.u16(uint16(a.Src.Width))
	e.u16(uint16(a.Src.First))
	e.u16(uint16(a.Dst.First))
	e.zero(2)
	e.header(a.Src.Field)
	e.header(a.Dst.Field)
	e.actionEnd(s)
}
func (a DecTTL) appendTo(e *encoder) {
	if len(a.IDs) == 0 {
		e.simple(actDecTTL)
		return
	}
	s := e.nicira(nxDecTTLIDs)
	e.u16(uint16(len(a.IDs)))
	e.zero(4)
	for _, id := range a.IDs {
		e.u16(id)
	}
	e.actionEnd(s)
}
func (a SetTTL) appendTo(e *encoder) {
	s := e.actionStart(actSetTTL)
	e.u8(a.TTL)
	e.actionEnd(s)
}
func (a CT) appendTo(e *encoder) {
	if a.Flags&CTForce != 0 && a.Flags&CTCommit == 0 {
		e.fail("ct: force needs commit")
	}
	s := e.nicira(nxCT)
	e.u16(a.Flags)
	if a.ZoneSrc.Width != 0 {
		if !e.bits(a.ZoneSrc, false) {
			return
		}
		if a.ZoneSrc.Width != 16 {
			e.fail("ct: the zone is 16 bits, %s gives %d", a.ZoneSrc.Field, a.ZoneSrc.Width)
		}
		e.header(a.ZoneSrc.Field)
		e.u16(ofsNbits(a.ZoneSrc))
	} else {
		e.u32(0)
		e.u16(a.Zone)
	}
	e.u8(uint8(a.Table))
	e.zero(3)
	e.u16(a.ALG)
	if a.NAT != nil {
		if a.NAT.Flags&(NATSrc|NATDst) != 0 && a.Flags&CTCommit == 0 {
			e.fail("ct: nat with src or dst needs commit")
		}
		a.NAT.appendTo(e)
	}
	if len(a.Exec) > 0 && a.Flags&CTCommit == 0 {
		e.fail("ct: exec needs commit")
	}
	for _, x := range a.Exec {
		switch x := x.(type) {
		case SetField:
			if x.Field != CTMark && x.Field != CTLabel {
				e.fail("ct: exec can only set ct_mark and ct_label, not %s", x.Field)
			}
		case RegMove:
			if x.Dst.Field != CTMark && x.Dst.Field != CTLabel {
				e.fail("ct: exec can only move to ct_mark and ct_label, not %s", x.Dst.Field)
			}
		case RawAction:
		default:
			e.fail("ct: exec takes set_field and move, not %T", x)
			return
		}
		e.action(x)
	}
	e.actionEnd(s)
}

const (
	natIPv4Min uint16 = 1 << iota
	natIPv4Max
	natIPv6Min
	natIPv6Max
	natPortMin
	natPortMax
)

func (a NAT) appendTo(e *encoder) {
	var has uint16
	for i, ip := range []string{a.IPMin, a.IPMax} {
		switch {
		case len(ip) == 4:
			has |= natIPv4Min << i
		case len(ip) == 16:
			has |= natIPv6Min << i
		case len(ip) != 0:
			e.fail("nat: an address has 4 or 16 bytes, not %d", len(ip))
		}
	}
	if a.IPMax != "" && len(a.IPMin) != len(a.IPMax) {
		e.fail("nat: both ends of an address range are of one kind")
	}
	if a.PortMin != 0 {
		has |= natPortMin
	}
	if a.PortMax != 0 {
		has |= natPortMax
	}
	if both := NATSrc | NATDst; a.Flags&both == both {
		e.fail("nat: src and dst exclude each other")
	} else if has != 0 && a.Flags&both == 0 {
		e.fail("nat: an address or port needs src or dst")
	}
	s := e.nicira(nxNAT)
	e.zero(2)
	e.u16(a.Flags)
	e.u16(has)
	e.str(a.IPMin)
	e.str(a.IPMax)
	if has&natPortMin != 0 {
		e.u16(a.PortMin)
	}
	if has&natPortMax != 0 {
		e.u16(a.PortMax)
	}
	e.actionEnd(s)
}
func (a CTClear) appendTo(e *encoder) { e.actionEnd(e.nicira(nxCTClear)) }
func (a Resubmit) appendTo(e *encoder) {
	sub := nxResubmitTable
	switch {
	case a.WithCT:
		sub = nxResubmitCT
	case a.Table == TableAll:
		sub = nxResubmit
	}
	s := e.nicira(sub)
	e.u16(e.port16(a.Port))
	if sub == nxResubmit {
		e.zero(4)
	} else {
		e.u8(uint8(a.Table))
		e.zero(3)
	}
	e.actionEnd(s)
}

// port16 is a port's number in OpenFlow 1.0, which Nicira's resubmit still uses.
func (e *encoder) port16(p Port) uint16 {
	if p >= 0xff00 && p < 0xffffff00 {
		e.fail("port %d does not fit into 16 bits", p)
	}
	return uint16(p)
}
func port32(p uint16) Port {
	if p >= 0xff00 {
		return Port(0xffff0000 | uint32(p))
	}
	return Port(p)
}
func (a Controller) appendTo(e *encoder) {
	if a.Userdata == "" && !a.Pause && a.MeterID == 0 {
		s := e.nicira(nxController)
		e.u16(a.MaxLen)
		e.u16(a.ID)
		e.u8(a.Reason)
		e.zero(1)
		e.actionEnd(s)
		return
	}
	s := e.nicira(nxController2)
	e.zero(6)
	if a.MaxLen != 0xffff {
		e.prop16(0, a.MaxLen)
	}
	if a.ID != 0 {
		e.prop16(1, a.ID)
	}
	if a.Reason != ReasonAction {
		p := e.propStart(2)
		e.u8(a.Reason)
		e.propEnd(p)
	}
	if a.Userdata != "" {
		p := e.propStart(3)
		e.str(a.Userdata)
		e.propEnd(p)
	}
	if a.Pause {
		e.propEnd(e.propStart(4))
	}
	if a.MeterID != 0 {
		p := e.propStart(5)
		e.u32(a.MeterID)
		e.propEnd(p)
	}
	e.actionEnd(s)
}

// Properties: type, length without padding, value, padding to 8.
func (e *encoder) propStart(typ uint16) int { return e.actionStart(typ) }
func (e *encoder) propEnd(start int)        { e.len16(start, 2); e.pad8(start) }
func (e *encoder) prop16(typ, v uint16) {
	p := e.propStart(typ)
	e.u16(v)
	e.propEnd(p)
}

const (
	learnImmediate uint16 = 1 << 13
	learnBitsMask  uint16 = 0x3ff
)

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
			e.header(a.Result.Field)
		}
	}
	for _, x := range a.Specs {
		x.appendTo(e)
	}
	e.actionEnd(s)
}
func (x LearnSpec) appendTo(e *encoder) {
	n := x.Dst.Width
	if x.Kind == LearnOutput {
		n = x.Src.Width
	}
	h := uint16(x.Kind)<<11 | uint16(n)&learnBitsMask
	if x.Src.Width == 0 {
		h |= learnImmediate
	} else if !e.bits(x.Src, false) {
		return
	}
	e.u16(h)
	if x.Src.Width == 0 {
		want := (n + 15) / 16 * 2
		if len(x.Value) > want {
			e.fail("learn: a value of %d bytes for %d bits", len(x.Value), n)
			return
		}
		e.zero(want - len(x.Value))
		e.str(x.Value)
	} else {
		if x.Kind != LearnOutput && x.Src.Width != n {
			e.fail("learn: %s has %d bits, %s has %d", x.Src.Field, x.Src.Width, x.Dst.Field, n)
		}
		e.header(x.Src.Field)
		e.u16(uint16(x.Src.First))
	}
	if x.Kind != LearnOutput {
		if !e.bits(x.Dst, false) {
			return
		}
		e.header(x.Dst.Field)
		e.u16(uint16(x.Dst.First))
	}
}
func (a Conjunction) appendTo(e *encoder) {
	if a.Clause < 1 || a.Clause > a.Clauses || a.Clauses < 2 || a.Clauses > 64 {
		e.fail("conjunction: clause %d of %d: want 1 to the number of clauses, 2 to 64 clauses", a.Clause, a.Clauses)
	}
	s := e.nicira(nxConjunction)
	e.u8(a.Clause - 1)
	e.u8(a.Clauses)
	e.u32(a.ID)
	e.actionEnd(s)
}
func (a Note) appendTo(e *encoder) {
	s := e.nicira(nxNote)
	e.str(a.Data)
	e.actionEnd(s)
}
func (a Meter) appendTo(e *encoder) {
	s := e.actionStart(actMeter)
	e.u32(a.ID)
	e.actionEnd(s)
}
func (a PushVLAN) appendTo(e *encoder) {
	s := e.actionStart(actPushVLAN)
	e.u16(a.EthType)
	e.actionEnd(s)
}
func (a PopVLAN) appendTo(e *encoder) { e.simple(actPopVLAN) }
func (a SetQueue) appendTo(e *encoder) {
	s := e.actionStart(actSetQueue)
	e.u32(a.Queue)
	e.actionEnd(s)
}
func (a PopQueue) appendTo(e *encoder) { e.actionEnd(e.nicira(nxPopQueue)) }
func (a Exit) appendTo(e *encoder)     { e.actionEnd(e.nicira(nxExit)) }
func (a FinTimeout) appendTo(e *encoder) {
	s := e.nicira(nxFinTimeout)
	e.u16(a.Idle)
	e.u16(a.Hard)
	e.actionEnd(s)
}
func (e *encoder) stack(sub uint16, r Bits) {
	if !e.bits(r, sub == nxPop) {
		return
	}
	s := e.nicira(sub)
	e.u16(uint16(r.First))
	e.header(r.Field)
	e.u16(uint16(r.Width))
	e.zero(24 - (len(e.b) - s))
	e.actionEnd(s)
}
func (a Push) appendTo(e *encoder) { e.stack(nxPush, a.Src) }
func (a Pop) appendTo(e *encoder)  { e.stack(nxPop, a.Dst) }
func (a Clone) appendTo(e *encoder) {
	s := e.nicira(nxClone)
	e.zero(6)
	e.actions(a.Actions)
	e.actionEnd(s)
}
func (a CheckPacketLarger) appendTo(e *encoder) {
	if !e.bits(a.Dst, true) {
		return
	}
	if a.Dst.Width != 1 {
		e.fail("check_pkt_larger: the result is one bit")
	}
	s := e.nicira(nxCheckPktLarger)
	e.u16(a.Len)
	e.u16(uint16(a.Dst.First))
	e.header(a.Dst.Field)
	e.zero(24 - (len(e.b) - s))
	e.actionEnd(s)
}
func (a DeleteField) appendTo(e *encoder) {
	s := e.nicira(nxDeleteField)
	e.header(a.Field)
	e.zero(24 - (len(e.b) - s))
	e.actionEnd(s)
}
func (a ClearActions) appendTo(e *encoder) {
	s := e.actionStart(insClearActions)
	e.actionEnd(s)
}
func (a WriteActions) appendTo(e *encoder) {
	s := e.actionStart(insWriteActions)
	e.zero(4)
	e.actions(a.Actions)
	e.actionEnd(s)
}
func (a WriteMetadata) appendTo(e *encoder) {
	s := e.actionStart(insWriteMetadata)
	e.zero(4)
	e.u64(a.Value & a.Mask)
	e.u64(a.Mask)
	e.actionEnd(s)
}
func (a GotoTable) appendTo(e *encoder) {
	s := e.actionStart(insGoto)
	e.u8(uint8(a.Table))
	e.actionEnd(s)
}
func (a RawAction) appendTo(e *encoder)      { e.str(a.Bytes) }
func (a RawInstruction) appendTo(e *encoder) { e.str(a.Bytes) }

// AppendActions appends the wire form of a flow's list of actions and instructions.
func AppendActions(b []byte, list []Action) ([]byte, error) {
	e := encoder{b: b}
	e.instructions(list)
	return e.b, e.err
}

// CheckActions says what the switch would refuse in a flow's list, nil when nothing is known.
func CheckActions(list []Action) error {
	var stack [512]byte
	_, err := AppendActions(stack[:0], list)
	return err
}

// EqualActions compares by what goes over the wire.
func EqualActions(a, b []Action) bool {
	var s1, s2 [512]byte
	x, err1 := AppendActions(s1[:0], a)
	y, err2 := AppendActions(s2[:0], b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// CanonicalActions is what a switch makes of the list: it is encoded and decoded. A list that
// cannot be encoded is returned as it is.
func CanonicalActions(list []Action) []Action {
	b, err := AppendActions(nil, list)
	if err != nil {
		return list
	}
	d := decoder{what: "actions", buf: b, err: &err}
	out := d.instructions()
	if err != nil {
		return list
	}
	return out
}

var errDepth = errors.New("actions are nested too deeply")

// sortInstructions puts instructions after actions, in the order of their rank.
func sortInstructions(list []Action) {
	slices.SortStableFunc(list, func(a, b Action) int { return instructionRank(a) - instructionRank(b) })
}

// trimNote cuts the zeros that padded a note's data.
func trimNote(s string) string { return strings.TrimRight(s, "\x00") }
