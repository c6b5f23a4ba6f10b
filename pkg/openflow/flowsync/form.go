package flowsync

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ident is the switch's own identity of an entry: a group's number, or a flow's table, priority and match. Its first
// byte is the kind.
type ident string

const (
	kindFlow   = 'f'
	kindBroken = 'b' // a flow whose match is no match: what is wrong with it stands in its place
	kindGroup  = 'g'
)

// identLen is how many bytes an ident has before the match.
const identLen = 4

func appendFlowIdent(b []byte, table ofp.Table, priority uint16) []byte {
	return append(b, kindFlow, byte(table), byte(priority>>8), byte(priority))
}

// appendIdent appends the ident of a flow.
func appendIdent(b []byte, f *flow.Flow) []byte {
	start := len(b)
	b = appendFlowIdent(b, f.Table, f.Priority)
	if err := f.Match.Err(); err != nil {
		b[start] = kindBroken
		return append(b, err.Error()...)
	}
	return append(b, f.Match.OXM()...)
}

func appendGroupIdent(b []byte, id uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, kindGroup), id)
}

func groupIdent(id uint32) ident { return ident(appendGroupIdent(nil, id)) }

func (id ident) isGroup() bool    { return id[0] == kindGroup }
func (id ident) group() uint32    { return binary.BigEndian.Uint32([]byte(id[1:5])) }
func (id ident) table() ofp.Table { return ofp.Table(id[1]) }
func (id ident) priority() uint16 { return uint16(id[2])<<8 | uint16(id[3]) }
func (id ident) match() ofp.Match { return ofp.Match(id[identLen:]) }

// form is the part of an entry that its ident lacks, as bytes. For a flow it is the part of messages. For a group it is
// the packed message that adds it, with the buckets in the order of their numbers if their order does not matter. Two
// entries with one ident are the same when their forms are, except for the cases of sameForm. An empty form means that
// there is no entry.
//
// Flows are kept only in this form. It takes a fraction of the memory of a [flow.Flow] and is sent unchanged. The
// switch's reports can be compared with it without decoding.
type form string

// Where a flow's form has what.
const (
	formIdle         = 8 // after the cookie
	formHard         = 10
	formFlags        = 12
	formImportance   = 14
	formInstructions = 16
)

// unknown stands for reported instructions that we cannot encode. It differs from all other instructions.
const unknown = "?"

// appendHeader appends what a flow's form has before the instructions.
func appendHeader(b []byte, cookie uint64, idle, hard, flags, importance uint16) []byte {
	b = binary.BigEndian.AppendUint64(b, cookie)
	b = binary.BigEndian.AppendUint16(b, idle)
	b = binary.BigEndian.AppendUint16(b, hard)
	b = binary.BigEndian.AppendUint16(b, flags)
	return binary.BigEndian.AppendUint16(b, importance)
}

// appendReported appends the form of a flow that the switch has reported.
func appendReported(b []byte, f *flow.Flow) []byte {
	b = appendHeader(b, f.Cookie, f.IdleTimeout, f.HardTimeout, f.Flags, f.Importance)
	out, err := ofp.AppendActions(b, f.Actions)
	if err != nil {
		return append(b, unknown...)
	}
	return out
}

// groupMax is the longest form of a group: as part of a bundle it gets 16 bytes more. A longer group could be made by
// inserting buckets. But Open vSwitch aborts when a client reads a group whose description does not fit into a message.
// The description has 8 bytes more than the form.
const groupMax = 0xffff - 16

// appendGroup appends the form of a group, or returns an error with the reason why it has no form.
func appendGroup(b []byte, g *flow.Group) ([]byte, error) {
	start := len(b)
	b, err := g.AppendAdd(b)
	if err != nil {
		return b, err
	}
	if n := len(b) - start; n > groupMax {
		return b[:start],
			fmt.Errorf("group %d: with %d buckets it takes %d bytes, of at most %d: divide it into several groups", g.ID,
				len(g.Buckets), n, groupMax)
	}
	return packAfter(b, start), nil
}

// packAfter replaces a message at the end of b by the form of its group.
func packAfter(b []byte, start int) []byte {
	b = slices.Grow(b, 2*(len(b)-start)) // at once, and for sortBuckets
	sortBuckets(b[start:])
	end := len(b)
	b = appendPacked(b, b[start:])
	return append(b[:start], b[end:]...)
}

// appendReportedGroup appends the form of a group that the switch has reported.
func appendReportedGroup(b []byte, g ofp.GroupDescBytes) []byte {
	start := len(b)
	b = ofp.AppendGroupMod(b, 0, &ofp.GroupMod{Command: ofp.GroupAdd, GroupType: g.GroupType, ID: g.ID}, g.Buckets,
		g.Properties)
	return packAfter(b, start)
}

// groupForm is the form of a group.
func groupForm(g flow.Group) (form, error) {
	b, err := appendGroup(nil, &g)
	return form(b), err
}

// Where a group's message has what (OpenFlow 1.5 section 7.3.4.3).
const (
	groupCommand = 8
	groupType    = 10
	groupBytes   = 16 // how many bytes of buckets there are
	groupBuckets = 24
)

// ordered reports whether the order of a group's buckets matters. It does in a fast-failover group, which uses the
// first live bucket.
func ordered(t byte) bool { return ofp.GroupType(t) == ofp.GroupTypeFastFailover }

// sortBuckets puts the buckets of a group's message in order.
func sortBuckets(f []byte) {
	if len(f) < groupBuckets || ordered(f[groupType]) {
		return
	}
	u16 := func(at int) int { return int(binary.BigEndian.Uint16(f[at:])) }
	type bucket struct {
		id    uint32
		bytes []byte
	}
	var few [16]bucket
	list, rising := few[:0], true
	for at, end := groupBuckets, groupBuckets+u16(groupBytes); at < end; {
		if end > len(f) || end-at < 8 || u16(at) < 8 || u16(at) > end-at {
			return // these are no buckets
		}
		b := bucket{binary.BigEndian.Uint32(f[at+4:]), f[at : at+u16(at)]}
		rising = rising && (len(list) == 0 || list[len(list)-1].id < b.id)
		list = append(list, b)
		at += len(b.bytes)
	}
	if rising {
		return
	}
	slices.SortStableFunc(list, func(a, b bucket) int { return cmp.Compare(a.id, b.id) })
	sorted := f[len(f):] // where there is room
	for _, b := range list {
		sorted = append(sorted, b.bytes...)
	}
	copy(f[groupBuckets:], sorted)
}

func (f form) u16(at int) uint16  { return uint16(f[at])<<8 | uint16(f[at+1]) }
func (f form) flags() uint16      { return f.u16(formFlags) }
func (f form) importance() uint16 { return f.u16(formImportance) }

// same reports whether two forms of one ident are the same entry, or both nothing.
func (id ident) same(a, b form) bool {
	if a == b {
		return true
	}
	return !id.isGroup() && a != "" && b != "" && onlyActions(a, b) && a[formInstructions:] == b[formInstructions:]
}

// sameButCookie reports whether two owners want the same.
func (id ident) sameButCookie(a, b form) bool {
	if id.isGroup() || a == "" || b == "" {
		return a != "" && a == b
	}
	return id.same(a[:formIdle]+b[formIdle:], a)
}

// onlyActions reports whether a flow changes only in its actions. Such a flow can be modified in place, which keeps its
// counters. A modification changes neither cookie nor timeouts nor flags.
func onlyActions(a, b form) bool {
	return a != "" && b != "" && a[:formFlags] == b[:formFlags] && a.flags()&ofp.KeptFlags == b.flags()&ofp.KeptFlags &&
		a.importance() == b.importance()
}

// header is the flow-mod that a flow is sent with, without its instructions.
func (id ident) header(f form, command ofp.FlowCommand) ofp.FlowMod {
	return ofp.FlowMod{
		Cookie: binary.BigEndian.Uint64([]byte(f[:formIdle])), Table: id.table(), Command: command, Priority: id.priority(),
		IdleTimeout: f.u16(formIdle), HardTimeout: f.u16(formHard), Flags: f.flags(), Importance: f.importance(),
		Match: id.match(),
	}
}

// flow is the flow as a value.
func (id ident) flow(f form) flow.Flow {
	m := id.header(f, ofp.FlowAdd)
	actions, err := ofp.DecodeActions([]byte(f[formInstructions:]))
	if err != nil {
		actions = []ofp.Action{ofp.RawInstruction{Bytes: string(f[formInstructions:])}}
	}
	return flow.Flow{
		Table: m.Table, Priority: m.Priority, Match: flow.MatchOf(m.Match), Actions: actions, Cookie: m.Cookie,
		IdleTimeout: m.IdleTimeout, HardTimeout: m.HardTimeout, Flags: m.Flags, Importance: m.Importance,
	}
}

// text is the entry in ovs-ofctl's words.
func (id ident) text(f form) string {
	if f == "" {
		return "nothing"
	}
	if !id.isGroup() {
		return id.flow(f).String()
	}
	if g, err := f.group(); err == nil {
		return g.String()
	}
	return fmt.Sprintf("group_id=%d", id.group())
}

// group decodes the form of a group.
func (f form) group() (flow.Group, error) {
	_, m, err := ofp.DecodeMessage(appendUnpacked(nil, f))
	if err != nil {
		return flow.Group{}, err
	}
	g, ok := m.(ofp.GroupMod)
	if !ok {
		return flow.Group{}, fmt.Errorf("the form of a group is a %s", m.Type())
	}
	return flow.FromGroupDesc(ofp.GroupDesc{ID: g.ID, GroupType: g.GroupType, Selection: g.Selection,
		Buckets: g.Buckets}), nil
}

// brief is a text for an error or a log: that of a group may have thousands of buckets.
func brief(text string) string {
	const most = 400
	if len(text) <= most+50 {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:most], len(text))
}

// These are the type and length of the actions group and meter (OpenFlow 1.5 sections 7.2.6.9 and 7.2.6.17).
const (
	groupBegins = "\x00\x16\x00\x08"
	meterBegins = "\x00\x1d\x00\x08"
)

// links reports whether a flow may use groups or meters.
func (id ident) links(f form) bool {
	return !id.isGroup() && len(f) > formInstructions &&
		(strings.Contains(string(f[formInstructions:]), groupBegins) ||
			strings.Contains(string(f[formInstructions:]), meterBegins))
}

// uses reports whether a flow uses one of some groups. Flows that cannot use groups are not decoded.
func (id ident) uses(f form, groups map[uint32]bool) bool {
	return !id.isGroup() && len(f) > formInstructions && strings.Contains(string(f[formInstructions:]), groupBegins) &&
		uses(id.flow(f).Actions, groups)
}

func (id ident) usesMeter(f form, meters map[uint32]bool) bool {
	return !id.isGroup() && len(f) > formInstructions && strings.Contains(string(f[formInstructions:]), meterBegins) &&
		usesMeter(id.flow(f).Actions, meters)
}
