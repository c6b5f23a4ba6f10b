package ofp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Action is one action, or one instruction, of a flow, bucket or packet-out. The set of implementations is closed. An
// unknown action is a [RawAction].
//
// Instructions are in the same list, after the actions of Apply-Actions and in the order in which ovs-ofctl prints
// them: ClearActions, WriteActions, WriteMetadata, GotoTable.
type Action interface {
	// check returns an error if the switch would refuse the action in any flow.
	check() error
	// appendTo appends the wire form of an action that passed check.
	appendTo(e *encoder)
}

// Instruction types (OpenFlow 1.5, 7.2.5, ofp_instruction_type).
const (
	insGoto          uint16 = 1
	insWriteMetadata uint16 = 2
	insWriteActions  uint16 = 3
	insApplyActions  uint16 = 4
	insClearActions  uint16 = 5
)

// ClearActions is the instruction that empties the action set.
type ClearActions struct{}

// WriteActions is the instruction that merges actions into the action set. Without actions it has no effect.
type WriteActions struct{ Actions []Action }

// WriteMetadata is the instruction that writes the masked bits of the metadata field.
type WriteMetadata struct{ Value, Mask uint64 }

// GotoTable is the instruction that continues in another table; it stands last.
type GotoTable struct{ Table Table }

// RawAction is an action unknown to the package, header included, exactly as it came.
type RawAction struct{ Bytes string }

// RawInstruction is an instruction that the package does not know.
type RawInstruction struct{ Bytes string }

func (ClearActions) check() error { return nil }
func (ClearActions) appendTo(e *encoder) {
	s := e.actionStart(insClearActions)
	e.actionEnd(s)
}

func (a WriteActions) check() error {
	for _, x := range a.Actions {
		switch x.(type) {
		case Output, Group, SetField, RegMove, Legacy, DecTTL, SetTTL, PushVLAN, PopVLAN, PushMPLS, PopMPLS, DecMPLSTTL,
			SetMPLSTTL, SetQueue, Encap, Decap, DecNSHTTL, CT, CTClear, Resubmit, RawAction:
		default:
			return fmt.Errorf("write_actions: %s cannot be in an action set", actionName(x))
		}
	}
	return nil
}

func (a WriteActions) appendTo(e *encoder) {
	if len(a.Actions) == 0 {
		return
	}
	s := e.actionStart(insWriteActions)
	e.zero(4)
	e.actions(a.Actions)
	e.actionEnd(s)
}

func (WriteMetadata) check() error { return nil }
func (a WriteMetadata) appendTo(e *encoder) {
	s := e.actionStart(insWriteMetadata)
	e.zero(4)
	e.u64(a.Value)
	e.u64(a.Mask)
	e.actionEnd(s)
}

func (a GotoTable) check() error {
	if a.Table == TableAll {
		return errors.New("goto_table: 255 stands for all tables")
	}
	return nil
}

func (a GotoTable) appendTo(e *encoder) {
	s := e.actionStart(insGoto)
	e.u8(uint8(a.Table))
	e.actionEnd(s)
}

// checkRaw wants the bytes to be one whole action or instruction.
func checkRaw(b string) error {
	if n := len(b); n < 8 || n%8 != 0 || n > 0xffff || int(b[2])<<8|int(b[3]) != n {
		return fmt.Errorf(
			"raw: %d bytes are not one action: its length stands in bytes 2 and 3, is a multiple of 8 and at least 8", n)
	}
	return nil
}

func (a RawAction) check() error             { return checkRaw(a.Bytes) }
func (a RawAction) appendTo(e *encoder)      { e.str(a.Bytes) }
func (a RawInstruction) check() error        { return checkRaw(a.Bytes) }
func (a RawInstruction) appendTo(e *encoder) { e.str(a.Bytes) }

// action appends one action, or names the fault with it.
func (e *encoder) action(a Action) {
	if a == nil {
		e.fail("an action is nil")
		return
	}
	if err := a.check(); err != nil {
		e.fail("%w", err)
		return
	}
	a.appendTo(e)
}

// actions appends a list in which no instruction may stand.
func (e *encoder) actions(list []Action) {
	if e.depth++; e.depth > maxDepth {
		e.fail("%w", errDepth)
	}
	for _, a := range list {
		if isInstruction(a) {
			e.fail("%s may only stand in a flow, not in a bucket, packet-out or another action", actionName(a))
		}
		e.outsideCT(a)
		if e.err != nil {
			break
		}
		e.action(a)
	}
	e.depth--
	if e.err == nil {
		e.conjunctions(list)
	}
}

// outsideCT refuses what may only stand within ct.
func (e *encoder) outsideCT(a Action) {
	var f Field
	switch a := a.(type) {
	case NAT:
		e.fail("nat may only stand within ct")
	case SetField:
		f = a.Field
	case RegMove:
		f = a.Dst.Field
	}
	if f == CTMark || f == CTLabel {
		e.fail("%s can only be changed within ct(commit,exec(...))", f)
	}
}

// conjunctions refuses other actions together with conjunctions, which the switch would not execute.
func (e *encoder) conjunctions(list []Action) {
	conjunction, other := false, Action(nil)
	for _, a := range list {
		switch a.(type) {
		case Conjunction:
			conjunction = true
		case Note:
		default:
			other = a
		}
	}
	if conjunction && other != nil {
		e.fail("conjunction: only notes and other conjunctions may stand next to it, not %s", actionName(other))
	}
}

// instructions appends a flow's list: actions wrapped in Apply-Actions, then instructions.
func (e *encoder) instructions(list []Action) {
	start, instructions := -1, false
	for _, a := range list {
		if isInstruction(a) {
			instructions = true
			continue
		}
		e.outsideCT(a)
		if start < 0 {
			start = e.actionStart(insApplyActions)
			e.zero(4)
		}
		e.action(a)
	}
	if start >= 0 {
		e.len16(start, 2)
	}
	e.conjunctions(list)
	if !instructions {
		return
	}
	seen := 0
	for rank := 1; rank <= 5; rank++ {
		for _, a := range list {
			if instructionRank(a) != rank {
				continue
			}
			if seen == rank && rank != 3 {
				e.fail("%s stands twice", actionName(a))
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

// AppendActions appends the wire form of a flow's list of actions and instructions.
func AppendActions(b []byte, list []Action) ([]byte, error) {
	return encoding(b, 0, func(e *encoder) { e.instructions(list) })
}

// DecodeActions reads the wire form of a flow's list of actions and instructions. It never panics. Unknown ones become
// RawAction or RawInstruction.
func DecodeActions(b []byte) (list []Action, err error) {
	d := decoder{what: "actions", buf: b, err: &err}
	list = d.instructions()
	return list, err
}

// DecodeMatch reads OXM fields, without the header and padding of an ofp_match, and puts them
// into canonical form.
func DecodeMatch(oxm []byte) (Match, error) {
	m, err := canonical(oxm)
	if err != nil {
		return "", fmt.Errorf("decode match: %w", err)
	}
	return m, nil
}

// CheckActions returns an error if the switch would refuse a flow's list.
func CheckActions(list []Action) error {
	var stack [512]byte
	_, err := AppendActions(stack[:0], list)
	return err
}

// EqualActions compares by what goes over the wire.
func EqualActions(a, b []Action) bool {
	if slices.EqualFunc(a, b, sameValue) {
		return true
	}
	var s1, s2 [512]byte
	x, err1 := AppendActions(s1[:0], a)
	y, err2 := AppendActions(s2[:0], b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// sameValue reports whether two actions of the simplest types are equal. For all other types it returns false.
// Different values may still be the same on the wire.
func sameValue(a, b Action) bool {
	switch a := a.(type) {
	case SetField:
		return is(a, b)
	case Resubmit:
		return is(a, b)
	case Output:
		return is(a, b)
	case OutputReg:
		return is(a, b)
	case Group:
		return is(a, b)
	case GotoTable:
		return is(a, b)
	case RegMove:
		return is(a, b)
	}
	return false
}

// is takes only types that can be compared: the compiler refuses others.
func is[T interface {
	comparable
	Action
}](a T, b Action) bool {
	x, ok := b.(T)
	return ok && x == a
}

// CanonicalActions returns the list as a switch reports it: it encodes and decodes the list. A list that cannot be
// encoded is returned as it is.
func CanonicalActions(list []Action) []Action {
	b, err := AppendActions(nil, list)
	if err != nil {
		return list
	}
	out, err := DecodeActions(b)
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
