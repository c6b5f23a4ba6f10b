package ofp

import "slices"

var messageNames = [...]string{
	"hello", "error", "echo_request", "echo_reply", "experimenter", "features_request",
	"features_reply", "get_config_request", "get_config_reply", "set_config", "packet_in",
	"flow_removed", "port_status", "packet_out", "flow_mod", "group_mod", "port_mod",
	"table_mod", "multipart_request", "multipart_reply", "barrier_request", "barrier_reply",
	"", "", "role_request", "role_reply", "get_async_request", "get_async_reply", "set_async",
	"meter_mod", "role_status", "table_status", "requestforward", "bundle_control",
	"bundle_add_message", "controller_status",
}

// String is the type's name in the specification, in small letters.
func (t Type) String() string {
	if int(t) < len(messageNames) && messageNames[t] != "" {
		return messageNames[t]
	}
	return "message_type_" + itoa(uint64(t))
}

func itoa(v uint64) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			return string(b[i:])
		}
	}
}

// message decodes one message with its header.
func (d *decoder) message(xid *uint32) Message {
	if len(d.buf) < 8 {
		d.fail("header", "%v", errShort)
		return nil
	}
	version, typ, n := d.u8("version"), Type(d.u8("type")), int(d.u16("length"))
	*xid = d.u32("xid")
	d.what = typ.String()
	if n-8 != len(d.buf) {
		d.fail("length", "the header says %d bytes, there are %d", n, len(d.buf)+8)
		return nil
	}
	if version != Version && typ != TypeHello && typ != TypeError {
		d.fail("version", "%d is not OpenFlow 1.5's, which is %d", version, Version)
		return nil
	}
	m := d.body(typ, version, *xid)
	if d.left() != 0 {
		d.fail("end", "%d bytes are left over", d.left())
	}
	return m
}

func (d *decoder) body(typ Type, version uint8, xid uint32) Message {
	switch typ {
	case TypeHello:
		return d.hello(version)
	case TypeError:
		e := Error{ErrType: d.u16("type"), Code: d.u16("code")}
		if e.ErrType == ErrTypeExperimenter {
			e.Experimenter = d.u32("experimenter")
		}
		e.Data = d.rest()
		return e
	case TypeEchoRequest:
		return EchoRequest{d.rest()}
	case TypeEchoReply:
		return EchoReply{d.rest()}
	case TypeExperimenter:
		return d.experimenter()
	case TypeFeaturesRequest:
		return FeaturesRequest{}
	case TypeFeaturesReply:
		m := FeaturesReply{DatapathID: d.u64("datapath_id"), Buffers: d.u32("n_buffers"), Tables: d.u8("n_tables"),
			AuxiliaryID: d.u8("auxiliary_id")}
		d.skip(2)
		m.Capabilities, m.Reserved = d.u32("capabilities"), d.u32("reserved")
		return m
	case TypeGetConfigRequest:
		return GetConfigRequest{}
	case TypeGetConfigReply:
		return GetConfigReply{d.u16("flags"), d.u16("miss_send_len")}
	case TypeSetConfig:
		return SetConfig{d.u16("flags"), d.u16("miss_send_len")}
	case TypePacketIn:
		m := PacketIn{BufferID: d.u32("buffer_id"), TotalLen: d.u16("total_len"), Reason: d.u8("reason"),
			Table: Table(d.u8("table")), Cookie: d.u64("cookie"), Match: d.match()}
		d.skip(2)
		m.Data = d.rest()
		return m
	case TypeFlowRemoved:
		return FlowRemoved{Table: Table(d.u8("table")), Reason: d.u8("reason"), Priority: d.u16("priority"),
			IdleTimeout: d.u16("idle_timeout"), HardTimeout: d.u16("hard_timeout"), Cookie: d.u64("cookie"), Match: d.match(),
			Stats: d.oxs()}
	case TypePortStatus:
		m := PortStatus{Reason: d.u8("reason")}
		d.skip(7)
		m.Port = d.portDesc()
		return m
	case TypePacketOut:
		return d.packetOut()
	case TypeFlowMod:
		return d.flowMod()
	case TypeGroupMod:
		return d.groupMod()
	case TypeMeterMod:
		return MeterMod{Command: MeterCommand(d.u16("command")), Flags: d.u16("flags"), ID: d.u32("meter_id"),
			Bands: d.bands()}
	case TypeMultipartRequest, TypeMultipartReply:
		return d.multipart(typ)
	case TypeBarrierRequest:
		return BarrierRequest{}
	case TypeBarrierReply:
		return BarrierReply{}
	case TypeRoleRequest, TypeRoleReply:
		role, id := d.u32("role"), d.u16("short_id")
		d.skip(2)
		gen := d.u64("generation_id")
		if typ == TypeRoleReply {
			return RoleReply{role, gen, id}
		}
		return RoleRequest{role, gen, id}
	case TypeGetAsyncRequest:
		return GetAsyncRequest{}
	case TypeGetAsyncReply:
		return GetAsyncReply{d.async()}
	case TypeSetAsync:
		return SetAsync{d.async()}
	case TypeBundleControl:
		return d.bundleControl()
	case TypeBundleAdd:
		return d.bundleAdd(xid)
	}
	switch typ {
	case TypePortMod:
		return d.portMod()
	case TypeTableMod:
		return d.tableMod()
	case TypeRoleStatus:
		return d.roleStatus()
	case TypeTableStatus:
		return d.tableStatus()
	case TypeRequestForward:
		return d.requestForward()
	case TypeControllerStatus:
		return ControllerStatusMessage{d.controllerStatus()}
	}
	return RawMessage{typ, d.rest()}
}

// Type of each message.
func (Hello) Type() Type             { return TypeHello }
func (Error) Type() Type             { return TypeError }
func (EchoRequest) Type() Type       { return TypeEchoRequest }
func (EchoReply) Type() Type         { return TypeEchoReply }
func (FeaturesRequest) Type() Type   { return TypeFeaturesRequest }
func (FeaturesReply) Type() Type     { return TypeFeaturesReply }
func (GetConfigRequest) Type() Type  { return TypeGetConfigRequest }
func (GetConfigReply) Type() Type    { return TypeGetConfigReply }
func (SetConfig) Type() Type         { return TypeSetConfig }
func (PacketIn) Type() Type          { return TypePacketIn }
func (PacketIn2) Type() Type         { return TypeExperimenter }
func (PacketOut) Type() Type         { return TypePacketOut }
func (FlowMod) Type() Type           { return TypeFlowMod }
func (FlowRemoved) Type() Type       { return TypeFlowRemoved }
func (GroupMod) Type() Type          { return TypeGroupMod }
func (MeterMod) Type() Type          { return TypeMeterMod }
func (PortStatus) Type() Type        { return TypePortStatus }
func (BarrierRequest) Type() Type    { return TypeBarrierRequest }
func (BarrierReply) Type() Type      { return TypeBarrierReply }
func (RoleRequest) Type() Type       { return TypeRoleRequest }
func (RoleReply) Type() Type         { return TypeRoleReply }
func (GetAsyncRequest) Type() Type   { return TypeGetAsyncRequest }
func (GetAsyncReply) Type() Type     { return TypeGetAsyncReply }
func (SetAsync) Type() Type          { return TypeSetAsync }
func (BundleControl) Type() Type     { return TypeBundleControl }
func (BundleAdd) Type() Type         { return TypeBundleAdd }
func (SetPacketInFormat) Type() Type { return TypeExperimenter }
func (SetControllerID) Type() Type   { return TypeExperimenter }
func (Resume) Type() Type            { return TypeExperimenter }
func (Experimenter) Type() Type      { return TypeExperimenter }
func (m RawMessage) Type() Type      { return m.MsgType }

func (m Hello) appendTo(e *encoder) {
	if m.Versions != nil {
		p := e.propStart(helloVersions)
		words := make([]uint32, 1)
		if len(m.Versions) > 0 {
			words = make([]uint32, slices.Max(m.Versions)/32+1)
		}
		for _, v := range m.Versions {
			words[v/32] |= 1 << (v % 32)
		}
		e.u32s(words...)
		e.propEnd(p)
	}
	for _, r := range m.Elements {
		p := e.propStart(r.Kind)
		e.bytes(r.Data)
		e.propEnd(p)
	}
	e.bytes(m.Extra)
}

const helloVersions uint16 = 1 // OFPHET_VERSIONBITMAP

// elementLen is how many bytes the element at the beginning of b takes with its padding.
func elementLen(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	n := int(b[2])<<8 | int(b[3])
	if n < 4 {
		return 0
	}
	return n + (8-n%8)%8
}

func (d *decoder) hello(version uint8) Message {
	m := Hello{HeaderVersion: version}
	for d.left() > 0 {
		if n := elementLen(d.buf); n < 4 || n > len(d.buf) {
			m.Extra = d.rest()
			break
		}
		typ, p := d.prop("hello element")
		if typ != helloVersions {
			m.Elements = append(m.Elements, RawProperty{typ, p.rest()})
			continue
		}
		m.Versions = append([]uint8{}, m.Versions...)
		for word := 0; p.left() >= 4; word++ {
			bits := p.u32("version bitmap")
			for i := range 32 {
				if bits&(1<<i) != 0 && word*32+i < 256 {
					m.Versions = append(m.Versions, uint8(word*32+i))
				}
			}
		}
	}
	return m
}

func (m Error) appendTo(e *encoder) {
	e.u16(m.ErrType)
	e.u16(m.Code)
	if m.ErrType == ErrTypeExperimenter {
		e.u32(m.Experimenter)
	}
	e.bytes(m.Data)
}
func (m EchoRequest) appendTo(e *encoder)    { e.bytes(m.Data) }
func (m EchoReply) appendTo(e *encoder)      { e.bytes(m.Data) }
func (FeaturesRequest) appendTo(*encoder)    {}
func (GetConfigRequest) appendTo(*encoder)   {}
func (BarrierRequest) appendTo(*encoder)     {}
func (BarrierReply) appendTo(*encoder)       {}
func (GetAsyncRequest) appendTo(*encoder)    {}
func (m GetConfigReply) appendTo(e *encoder) { e.u16(m.Flags); e.u16(m.MissSendLen) }
func (m SetConfig) appendTo(e *encoder) {
	if m.Flags > ConfigFragMatch {
		e.fail("flags %#x are not known: want one of the ConfigFrag constants", m.Flags)
	}
	e.u16s(m.Flags, m.MissSendLen)
}
func (m RawMessage) appendTo(e *encoder) { e.bytes(m.Data) }
func (m FeaturesReply) appendTo(e *encoder) {
	e.u64(m.DatapathID)
	e.u32(m.Buffers)
	e.u8(m.Tables)
	e.u8(m.AuxiliaryID)
	e.zero(2)
	e.u32(m.Capabilities)
	e.u32(m.Reserved)
}
func (m PacketIn) appendTo(e *encoder) {
	e.u32(m.BufferID)
	e.u16(m.TotalLen)
	e.u8(m.Reason)
	e.u8(uint8(m.Table))
	e.u64(m.Cookie)
	e.match(m.Match)
	e.zero(2)
	e.bytes(m.Data)
}
func (m FlowRemoved) appendTo(e *encoder) {
	e.u8(uint8(m.Table))
	e.u8(m.Reason)
	e.u16(m.Priority)
	e.u16(m.IdleTimeout)
	e.u16(m.HardTimeout)
	e.u64(m.Cookie)
	e.match(m.Match)
	e.stats(m.Stats, false)
}
func (m PortStatus) appendTo(e *encoder) {
	e.u8(m.Reason)
	e.zero(7)
	e.portDesc(m.Port)
}

// InPort is the port that the packet came from, PortAny where the switch does not say.
func (m PacketIn2) InPort() Port { return inPort(m.Metadata) }

// InPort is the port that the packet came from, PortAny where the switch does not say.
func (m PacketIn) InPort() Port { return inPort(m.Match) }

func inPort(m Match) Port {
	if v, _, ok := m.Get(InPort); ok {
		return Port(v.Lo)
	}
	return PortAny
}

func (m PacketOut) appendTo(e *encoder) {
	m.check(e)
	buffer := m.BufferID
	if buffer == 0 {
		buffer = NoBuffer
	}
	e.u32(buffer)
	at := len(e.b)
	e.u16(0)
	e.zero(2)
	var b MatchBuilder
	b.Exact(InPort, Value{Lo: uint64(m.InPort)})
	match := b.encode() + m.Match
	if c, err := canonical([]byte(match)); err == nil {
		match = c
	} else {
		e.fail("packet_out: %v", err)
	}
	e.match(match)
	start := len(e.b)
	e.actions(m.Actions)
	n := len(e.b) - start
	e.b[at], e.b[at+1] = byte(n>>8), byte(n)
	e.bytes(m.Data)
}
func (d *decoder) packetOut() Message {
	m := PacketOut{BufferID: d.u32("buffer_id")}
	n := int(d.u16("actions_len"))
	d.skip(2)
	match := d.match()
	m.InPort = inPort(match)
	var b MatchBuilder
	for f := range match.All() {
		if f.Field == 0 {
			b.set = append(b.set, f)
		} else if f.Field != InPort {
			b.Set(f.Field, f.Value, f.Mask)
		}
	}
	m.Match = b.encode()
	s := d.sub("actions", n)
	m.Actions = s.actions()
	m.Data = d.rest()
	return m
}

func anyPort(p Port) uint32 {
	if p == 0 {
		return uint32(PortAny)
	}
	return uint32(p)
}
func anyGroup(g uint32) uint32 {
	if g == 0 {
		return GroupAny
	}
	return g
}

func (m FlowMod) appendTo(e *encoder) {
	m.beforeInstructions(e)
	for _, a := range m.Actions {
		if g, ok := a.(GotoTable); ok && g.Table <= m.Table {
			e.fail("goto_table:%d is not after table %d", g.Table, m.Table)
		}
	}
	e.instructions(m.Actions)
}
func (m *FlowMod) beforeInstructions(e *encoder) {
	m.check(e)
	e.u64(m.Cookie)
	e.u64(m.CookieMask)
	e.u8(uint8(m.Table))
	e.u8(uint8(m.Command))
	e.u16(m.IdleTimeout)
	e.u16(m.HardTimeout)
	e.u16(m.Priority)
	buffer := m.BufferID
	if buffer == 0 {
		buffer = NoBuffer
	}
	e.u32(buffer)
	e.u32(anyPort(m.OutPort))
	e.u32(anyGroup(m.OutGroup))
	e.u16(m.Flags)
	e.u16(m.Importance)
	e.match(m.Match)
}
func (d *decoder) flowMod() Message {
	return FlowMod{
		Cookie: d.u64("cookie"), CookieMask: d.u64("cookie mask"),
		Table: Table(d.u8("table")), Command: FlowCommand(d.u8("command")),
		IdleTimeout: d.u16("idle_timeout"), HardTimeout: d.u16("hard_timeout"), Priority: d.u16("priority"),
		BufferID: d.u32("buffer_id"), OutPort: Port(d.u32("out_port")), OutGroup: d.u32("out_group"),
		Flags: d.u16("flags"), Importance: d.u16("importance"),
		Match: d.match(), Actions: d.instructions(),
	}
}

func (m RoleRequest) appendTo(e *encoder) { RoleReply(m).appendTo(e) }
func (m RoleReply) appendTo(e *encoder) {
	e.role(m.Role)
	e.u16s(m.ShortID, 0)
	e.u64(m.GenerationID)
}

func (e *encoder) async(props []AsyncProperty) {
	for _, p := range props {
		if p.Kind >= AsyncExperimenterSecondary {
			e.raw([]RawProperty{{p.Kind, p.Data}})
			continue
		}
		s := e.propStart(p.Kind)
		e.u32(p.Mask)
		e.propEnd(s)
	}
}
func (d *decoder) async() []AsyncProperty {
	var list []AsyncProperty
	for d.left() > 0 {
		kind, p := d.prop("async property")
		if kind >= AsyncExperimenterSecondary {
			list = append(list, AsyncProperty{Kind: kind, Data: p.raw(kind).Data})
			continue
		}
		list = append(list, AsyncProperty{Kind: kind, Mask: p.u32("mask")})
		p.end("mask")
	}
	return list
}
func (m GetAsyncReply) appendTo(e *encoder) { e.async(m.Properties) }
func (m SetAsync) appendTo(e *encoder)      { m.check(e); e.async(m.Properties) }

func (e *encoder) vendor(sub uint32) {
	e.u32(nxVendor)
	e.u32(sub)
}
func (m SetPacketInFormat) appendTo(e *encoder) {
	e.vendor(nxtSetPacketInFormat)
	if m.Format > PacketInNXM2 {
		e.fail("format %d does not exist: want one of the PacketIn constants", m.Format)
	}
	e.u32(m.Format)
}
func (m SetControllerID) appendTo(e *encoder) {
	e.vendor(nxtSetControllerID)
	e.zero(6)
	e.u16(m.ID)
}
func (m Experimenter) appendTo(e *encoder) {
	e.u32(m.Vendor)
	e.u32(m.Subtype)
	e.bytes(m.Data)
}
func (d *decoder) experimenter() Message {
	vendor, sub := d.u32("experimenter"), d.u32("experimenter type")
	if vendor == nxVendor {
		if m := d.niciraMessage(sub); m != nil {
			return m
		}
	}
	return Experimenter{vendor, sub, d.rest()}
}

func (m PacketIn2) appendTo(e *encoder) {
	e.vendor(nxtPacketIn2)
	m.properties(e)
}
func (m Resume) appendTo(e *encoder) {
	e.vendor(nxtResume)
	m.properties(e)
}

// Properties of NXT_PACKET_IN2 (nicira-ext.h).
const (
	pinPacket uint16 = iota
	pinFullLen
	pinBufferID
	pinTable
	pinCookie
	pinReason
	pinMetadata
	pinUserdata
	pinContinuation
)

func (e *encoder) propBytes(typ uint16, b []byte) {
	if len(b) == 0 {
		return
	}
	p := e.propStart(typ)
	e.bytes(b)
	e.propEnd(p)
}
func (m PacketIn2) properties(e *encoder) {
	p := e.propStart(pinPacket)
	e.bytes(m.Data)
	e.propEnd(p)
	if m.FullLen != 0 && int(m.FullLen) != len(m.Data) {
		p = e.propStart(pinFullLen)
		e.u32(m.FullLen)
		e.propEnd(p)
	}
	if m.BufferID != 0 && m.BufferID != NoBuffer {
		p = e.propStart(pinBufferID)
		e.u32(m.BufferID)
		e.propEnd(p)
	}
	p = e.propStart(pinTable)
	e.u8(uint8(m.Table))
	e.propEnd(p)
	if m.Cookie != NoCookie {
		p = e.propStart(pinCookie)
		e.zero(4)
		e.u64(m.Cookie)
		e.propEnd(p)
	}
	p = e.propStart(pinReason)
	e.u8(m.Reason)
	e.propEnd(p)
	p = e.propStart(pinMetadata)
	e.str(string(m.Metadata))
	e.propEnd(p)
	e.propBytes(pinContinuation, m.Continuation)
	e.propBytes(pinUserdata, m.Userdata)
	e.raw(m.Properties)
}
func (d *decoder) packetIn2() PacketIn2 {
	m := PacketIn2{BufferID: NoBuffer, Cookie: NoCookie}
	for d.left() > 0 {
		typ, p := d.prop("property")
		switch typ {
		case pinPacket:
			m.Data = p.rest()
		case pinFullLen:
			m.FullLen = p.u32("full_len")
		case pinBufferID:
			m.BufferID = p.u32("buffer_id")
		case pinTable:
			m.Table = Table(p.u8("table"))
		case pinCookie:
			p.skip(4)
			m.Cookie = p.u64("cookie")
		case pinReason:
			m.Reason = p.u8("reason")
		case pinMetadata:
			at := p
			c, err := canonical(p.take("metadata", p.left()))
			if err != nil {
				at.fail("metadata", "%v", err)
			}
			m.Metadata = c
		case pinUserdata:
			m.Userdata = p.rest()
		case pinContinuation:
			m.Continuation = p.rest()
		default:
			m.Properties = append(m.Properties, p.raw(typ))
		}
	}
	if m.FullLen == 0 {
		m.FullLen = uint32(len(m.Data))
	}
	return m
}
