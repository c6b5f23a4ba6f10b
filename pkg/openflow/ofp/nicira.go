package ofp

// These are Nicira's counterparts of standard messages. Open vSwitch accepts and sends them in every version of
// OpenFlow. In 1.5 the standard messages have more information.

// NXRoleRequest changes this controller's role (NXT_ROLE_REQUEST). The roles are RoleEqual, RolePrimary and RoleSecond.
type NXRoleRequest struct{ Role uint32 }

// NXRoleReply answers NXRoleRequest (NXT_ROLE_REPLY).
type NXRoleReply struct{ Role uint32 }

// NXSetAsync chooses which asynchronous messages are sent (NXT_SET_ASYNC_CONFIG): bit masks of
// reasons, first for primary and equal controllers, then for secondary ones.
type NXSetAsync struct{ PacketIn, PortStatus, FlowRemoved [2]uint32 }

// NXFlowAge asked for flows' age and does nothing in today's versions (NXT_FLOW_AGE).
type NXFlowAge struct{}

// NXFlowModTableID sets whether flow-mods of OpenFlow 1.0 name a table (NXT_FLOW_MOD_TABLE_ID).
type NXFlowModTableID struct{ On bool }

// NXPacketIn is a packet-in in the format PacketInNXM (NXT_PACKET_IN).
type NXPacketIn struct{ PacketIn }

// NXFlowRemoved reports that a flow is gone (NXT_FLOW_REMOVED). It has no hard timeout and no idle time; an unknown
// Table is TableAll.
type NXFlowRemoved struct {
	Cookie                    uint64
	Priority                  uint16
	Reason                    uint8
	Table                     Table
	DurationSec, DurationNsec uint32
	IdleTimeout               uint16
	Match                     Match
	Packets, Bytes            uint64
}

// Type of Nicira's counterparts.
func (NXRoleRequest) Type() Type    { return TypeExperimenter }
func (NXRoleReply) Type() Type      { return TypeExperimenter }
func (NXSetAsync) Type() Type       { return TypeExperimenter }
func (NXFlowAge) Type() Type        { return TypeExperimenter }
func (NXFlowModTableID) Type() Type { return TypeExperimenter }
func (NXPacketIn) Type() Type       { return TypeExperimenter }
func (NXFlowRemoved) Type() Type    { return TypeExperimenter }

// Subtypes of Nicira's messages (ofp-msgs.h).
const (
	nxtRoleRequest       uint32 = 10
	nxtRoleReply         uint32 = 11
	nxtFlowRemoved       uint32 = 14
	nxtFlowModTableID    uint32 = 15
	nxtSetPacketInFormat uint32 = 16
	nxtPacketIn          uint32 = 17
	nxtFlowAge           uint32 = 18
	nxtSetAsync          uint32 = 19
	nxtSetControllerID   uint32 = 20
	nxtTLVTableMod       uint32 = 24
	nxtTLVTableRequest   uint32 = 25
	nxtTLVTableReply     uint32 = 26
	nxtResume            uint32 = 28
	nxtCTFlushZone       uint32 = 29
	nxtPacketIn2         uint32 = 30
	nxtCTFlush           uint32 = 32
)

// niciraNames are the names of Nicira's messages, by subtype.
var niciraNames = map[uint32]string{
	nxtRoleRequest: "NXT_ROLE_REQUEST", nxtRoleReply: "NXT_ROLE_REPLY", nxtFlowRemoved: "NXT_FLOW_REMOVED",
	nxtFlowModTableID: "NXT_FLOW_MOD_TABLE_ID", nxtSetPacketInFormat: "NXT_SET_PACKET_IN_FORMAT",
	nxtPacketIn: "NXT_PACKET_IN", nxtFlowAge: "NXT_FLOW_AGE", nxtSetAsync: "NXT_SET_ASYNC_CONFIG",
	nxtSetControllerID: "NXT_SET_CONTROLLER_ID", nxtTLVTableMod: "NXT_TLV_TABLE_MOD",
	nxtTLVTableRequest: "NXT_TLV_TABLE_REQUEST", nxtTLVTableReply: "NXT_TLV_TABLE_REPLY", nxtResume: "NXT_RESUME",
	nxtCTFlushZone: "NXT_CT_FLUSH_ZONE", nxtPacketIn2: "NXT_PACKET_IN2", nxtCTFlush: "NXT_CT_FLUSH",
}

// niciraMessage decodes the bytes behind Nicira's number and a subtype. It returns nil for an unknown subtype.
func (d *decoder) niciraMessage(sub uint32) Message {
	switch sub {
	case nxtRoleRequest:
		return NXRoleRequest{d.nxRole()}
	case nxtRoleReply:
		return NXRoleReply{d.nxRole()}
	case nxtFlowRemoved:
		return d.nxFlowRemoved()
	case nxtFlowModTableID:
		m := NXFlowModTableID{d.u8("set") != 0}
		d.skip(7)
		return m
	case nxtSetPacketInFormat:
		return SetPacketInFormat{d.u32("format")}
	case nxtPacketIn:
		return d.nxPacketIn()
	case nxtFlowAge:
		return NXFlowAge{}
	case nxtSetAsync:
		var m NXSetAsync
		for _, masks := range [...]*[2]uint32{&m.PacketIn, &m.PortStatus, &m.FlowRemoved} {
			d.u32s("mask", &masks[0], &masks[1])
		}
		return m
	case nxtSetControllerID:
		d.zeros("zero", 6)
		return SetControllerID{d.u16("controller_id")}
	case nxtTLVTableMod:
		return d.tlvTableMod()
	case nxtTLVTableRequest:
		return TLVTableRequest{}
	case nxtTLVTableReply:
		return d.tlvTableReply()
	case nxtResume:
		return Resume{d.packetIn2()}
	case nxtCTFlushZone:
		return d.ctFlushZone()
	case nxtPacketIn2:
		return d.packetIn2()
	case nxtCTFlush:
		return d.ctFlush()
	}
	return nil
}

func (m NXRoleRequest) appendTo(e *encoder) { e.vendor(nxtRoleRequest); e.nxRole(m.Role) }
func (m NXRoleReply) appendTo(e *encoder)   { e.vendor(nxtRoleReply); e.nxRole(m.Role) }

// Nicira counts roles from 0, without "no change".
func (e *encoder) nxRole(r uint32) {
	if r < RoleEqual || r > RoleSecond {
		e.fail("role %d does not exist: want 1 (equal), 2 (primary) or 3 (secondary)", r)
	}
	e.u32(r - 1)
}
func (d *decoder) nxRole() uint32 {
	at := *d
	r := d.u32("role")
	if r > RoleSecond-1 {
		at.fail("role", "%d does not exist", r)
	}
	return r + 1
}

func (m NXSetAsync) appendTo(e *encoder) {
	e.vendor(nxtSetAsync)
	for _, masks := range [...][2]uint32{m.PacketIn, m.PortStatus, m.FlowRemoved} {
		e.u32s(masks[:]...)
	}
}

func (NXFlowAge) appendTo(e *encoder) { e.vendor(nxtFlowAge) }

func (m NXFlowModTableID) appendTo(e *encoder) {
	e.vendor(nxtFlowModTableID)
	if m.On {
		e.u8(1)
	} else {
		e.u8(0)
	}
	e.zero(7)
}

// nxMatch appends a match whose length is in another place of the message. It uses OXM headers, which the switch
// accepts here too.
func (e *encoder) nxMatch(m Match) {
	start := len(e.b)
	e.str(string(m))
	e.pad8(start)
}
func (d *decoder) nxMatch(n int) Match {
	at := *d
	oxm := d.take("match", n)
	d.skip((8 - n%8) % 8)
	if !d.ok() {
		return ""
	}
	m, err := canonical(oxm)
	if err != nil {
		at.fail("match", "%v", err)
	}
	return m
}

func (m NXPacketIn) appendTo(e *encoder) {
	e.vendor(nxtPacketIn)
	e.u32(m.BufferID)
	e.u16(m.TotalLen)
	e.u8(m.Reason)
	e.u8(uint8(m.Table))
	e.u64(m.Cookie)
	e.u16(uint16(len(m.Match)))
	e.zero(6)
	e.nxMatch(m.Match)
	e.zero(2)
	e.bytes(m.Data)
}
func (d *decoder) nxPacketIn() Message {
	m := NXPacketIn{PacketIn{BufferID: d.u32("buffer_id"), TotalLen: d.u16("total_len"), Reason: d.u8("reason"),
		Table: Table(d.u8("table")), Cookie: d.u64("cookie")}}
	n := int(d.u16("match_len"))
	d.skip(6)
	m.Match = d.nxMatch(n)
	d.skip(2)
	m.Data = d.rest()
	return m
}

func (m NXFlowRemoved) appendTo(e *encoder) {
	e.vendor(nxtFlowRemoved)
	e.u64(m.Cookie)
	e.u16(m.Priority)
	e.u8(m.Reason)
	e.u8(uint8(m.Table + 1)) // 0 is not known
	e.u32s(m.DurationSec, m.DurationNsec)
	e.u16s(m.IdleTimeout, uint16(len(m.Match)))
	e.u64s(m.Packets, m.Bytes)
	e.nxMatch(m.Match)
}
func (d *decoder) nxFlowRemoved() Message {
	m := NXFlowRemoved{Cookie: d.u64("cookie"), Priority: d.u16("priority"), Reason: d.u8("reason"),
		Table: Table(d.u8("table")) - 1}
	m.DurationSec, m.DurationNsec, m.IdleTimeout = d.u32("duration_sec"), d.u32("duration_nsec"), d.u16("idle_timeout")
	n := int(d.u16("match_len"))
	m.Packets, m.Bytes = d.u64("packet_count"), d.u64("byte_count")
	m.Match = d.nxMatch(n)
	return m
}
