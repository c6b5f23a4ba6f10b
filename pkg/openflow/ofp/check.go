package ofp

import "strings"

// If Open vSwitch refuses a message in every state, encoding refuses it too, with the reason as text. Refusals that
// depend on the switch's state, and standard features that Open vSwitch lacks, are left to the switch.

// Limits of ports' numbers in Open vSwitch: what lies between does not exist.
const (
	portLimit    Port = 0xff00
	portReserved Port = 0xffffff00
)

// checkPort refuses a port's number that the switch cannot have (OFPBAC_BAD_OUT_PORT).
func (e *encoder) checkPort(what string, p Port) {
	if p >= portLimit && p < portReserved {
		e.fail("%s %d does not exist: ports are numbered from 0 to %d, and from %#x for the reserved ones", what, p,
			portLimit-1, uint32(portReserved))
	}
}

const flowFlags = KeptFlags | FlagCheckOverlap | FlagResetCounts

func (m *FlowMod) check(e *encoder) {
	deletes := m.Command == FlowDelete || m.Command == FlowDeleteStrict
	switch {
	case m.Command > FlowDeleteStrict:
		e.fail("command %d does not exist: want 0 (add) to 4 (strict delete)", m.Command)
	case m.Table == TableAll && !deletes:
		e.fail("table 255 stands for all tables, which only deletions may name")
	case m.Flags&^flowFlags != 0:
		e.fail("flags %#x are not known", m.Flags&^flowFlags)
	}
	e.checkPort("out_port", m.OutPort)
}

// pipelineField are the fields that a packet-out may have (OFPBRC_PIPELINE_FIELDS_ONLY).
var pipelineField = func() (pipeline [fieldCount]bool) {
	for f := Field(1); f < fieldCount; f++ {
		name := f.String()
		switch f {
		case InPort, Metadata, PacketType:
			pipeline[f] = true
			continue
		}
		for _, prefix := range [...]string{"tun_", "reg", "xreg", "xxreg"} {
			if strings.HasPrefix(name, prefix) && name != "tun_ttl" && name != "tun_tos" {
				pipeline[f] = true
			}
		}
	}
	return pipeline
}()

func (m *PacketOut) check(e *encoder) {
	if p := m.InPort; p >= portLimit && p != PortLocal && p != PortController && p != PortAny {
		e.fail("in_port %#x cannot be where a packet comes from: want a port's number, PortLocal, PortController or PortAny",
			uint32(p))
	}
	for f := range m.Match.All() {
		if f.Field != 0 && !pipelineField[f.Field] {
			e.fail("%s is in the packet itself: only what the packet does not hold, such as registers, metadata and tunnel "+
				"fields, can be given with it", f.Field)
		}
	}
}

// groupMax is the largest number of a group, and bucketMax of a bucket.
const (
	groupMax  uint32 = 0xffffff00
	bucketMax uint32 = 0xffffff00
)

func (m *GroupMod) check(e *encoder) {
	deletes := m.Command == GroupDelete
	switch m.Command {
	case GroupAdd, GroupModify, GroupDelete, GroupAddOrModify:
	case GroupInsertBucket, GroupRemoveBucket:
		special := m.CommandBucket == BucketFirst || m.CommandBucket == BucketLast || m.CommandBucket == BucketAll &&
			m.Command == GroupRemoveBucket
		if m.CommandBucket > bucketMax && !special {
			e.fail("group %d: bucket %#x does not exist", m.ID, m.CommandBucket)
		}
	default:
		e.fail("group %d: command %#x does not exist", m.ID, uint16(m.Command))
	}
	switch {
	case m.GroupType > GroupTypeFastFailover:
		e.fail("group %d: type %d does not exist", m.ID, m.GroupType)
	case m.ID > groupMax && (!deletes || m.ID != GroupAll):
		e.fail("group %#x does not exist: groups are numbered from 0 to %#x", m.ID, groupMax)
	case m.GroupType == GroupTypeIndirect && !deletes && len(m.Buckets) != 1:
		e.fail("group %d: an indirect group has exactly one bucket, not %d", m.ID, len(m.Buckets))
	case m.Command == GroupRemoveBucket && len(m.Buckets) > 0:
		e.fail("group %d: the bucket to remove is named by CommandBucket, not given", m.ID)
	case m.Selection.Method != "" && (m.GroupType != GroupTypeSelect || deletes || m.Command == GroupInsertBucket ||
		m.Command == GroupRemoveBucket):
		e.fail("group %d: a selection method belongs to a select group that is added or modified", m.ID)
	case m.Selection.Method != "" && m.Selection.Method != "hash" && m.Selection.Method != "dp_hash":
		e.fail("group %d: selection method %q is not known: want hash or dp_hash", m.ID, m.Selection.Method)
	case m.Selection.Method == "dp_hash" && len(m.Selection.Fields) > 0:
		e.fail("group %d: dp_hash takes no fields", m.ID)
	}
	for i := range m.Buckets {
		m.checkBucket(e, i)
	}
	if id, ok := bucketTwice(m.Buckets); ok {
		e.fail("group %d: bucket %d is there twice", m.ID, id)
	}
}

// bucketTwice finds a number that two buckets have.
func bucketTwice(list []Bucket) (uint32, bool) {
	rising := true
	for i := 1; i < len(list) && rising; i++ {
		rising = list[i-1].ID < list[i].ID
	}
	if rising {
		return 0, false
	}
	seen := make(map[uint32]struct{}, len(list))
	for i := range list {
		if _, ok := seen[list[i].ID]; ok {
			return list[i].ID, true
		}
		seen[list[i].ID] = struct{}{}
	}
	return 0, false
}

func (m *GroupMod) checkBucket(e *encoder, i int) {
	b := &m.Buckets[i]
	live := b.WatchPort != 0 && b.WatchPort != PortAny || b.WatchGroup != 0 && b.WatchGroup != GroupAny
	switch {
	case b.ID > bucketMax:
		e.fail("group %d: bucket %#x: buckets are numbered from 0 to %#x", m.ID, b.ID, bucketMax)
	case b.Weight != 0 && m.GroupType != GroupTypeSelect && m.Command != GroupInsertBucket:
		e.fail("group %d: bucket %d: only the buckets of select groups have weights", m.ID, b.ID)
	case live && (m.GroupType == GroupTypeAll || m.GroupType == GroupTypeIndirect):
		e.fail("group %d: bucket %d: only the buckets of select and fast-failover groups watch a port or group", m.ID, b.ID)
	case !live && m.GroupType == GroupTypeFastFailover:
		e.fail("group %d: bucket %d: a bucket of a fast-failover group must watch a port or group", m.ID, b.ID)
	}
	e.checkPort("watch_port", b.WatchPort)
}

// meterMax is the largest number of a meter that is not virtual.
const meterMax uint32 = 0xffff0000

func (m *MeterMod) check(e *encoder) {
	if m.Command > MeterDelete {
		e.fail("meter %d: command %d does not exist: want 0 (add), 1 (modify) or 2 (delete)", m.ID, m.Command)
	}
	if m.Command == MeterDelete {
		return
	}
	if m.ID == 0 || m.ID > meterMax && m.ID != MeterSlowPath && m.ID != MeterController {
		e.fail("meter %#x does not exist: meters are numbered from 1 to %#x, and MeterSlowPath and MeterController", m.ID,
			meterMax)
	}
	if m.Flags&MeterKbps != 0 && m.Flags&MeterPktps != 0 {
		e.fail("meter %d: a rate is in kilobits or in packets a second, not in both", m.ID)
	}
	for i, b := range m.Bands {
		if !b.known() {
			e.fail("meter %d: band %d: type %d is not known: want 1 (drop) or 2 (remark)", m.ID, i, b.Kind)
		}
	}
}

// asyncReasons are the reasons of each kind of asynchronous message, by half of its Kind.
var asyncReasons = [...]uint32{0x3f, 0x07, 0x3f, 0x07, 0x18, 0x03, 0x03, 0x7f}

func (m *SetAsync) check(e *encoder) {
	for _, p := range m.Properties {
		switch kind := int(p.Kind / 2); {
		case p.Kind >= AsyncExperimenterSecondary:
		case kind >= len(asyncReasons):
			e.fail("asynchronous messages of kind %d do not exist", p.Kind)
		case p.Mask&^asyncReasons[kind] != 0:
			e.fail("asynchronous messages of kind %d have the reasons %#x, not %#x", p.Kind, asyncReasons[kind], p.Mask)
		}
	}
}

const monitorFlags = MonitorInitial | MonitorAdd | MonitorRemoved | MonitorModify | MonitorActions | MonitorNoAbbr |
	MonitorOnlyOwn

func (m *FlowMonitorRequest) check(e *encoder) {
	switch {
	case m.Command > MonitorCommandDelete:
		e.fail("monitor %d: command %d does not exist: want 0 (add), 1 (modify) or 2 (delete)", m.ID, m.Command)
	case m.Command == MonitorCommandDelete:
		return
	case m.Flags&^monitorFlags != 0:
		e.fail("monitor %d: flags %#x are not known", m.ID, m.Flags&^monitorFlags)
	case m.Flags&(MonitorAdd|MonitorRemoved|MonitorModify) == 0:
		e.fail("monitor %d: it must watch additions, removals or modifications", m.ID)
	}
	e.checkPort("out_port", m.OutPort)
}
