package ofp

// Reasons of a RoleStatus.
const (
	RoleStatusPrimaryRequest uint8 = 0 // another controller has become primary
	RoleStatusConfig         uint8 = 1
	RoleStatusExperimenter   uint8 = 2
)

// RoleStatus reports that this controller's role has changed (OFPT_ROLE_STATUS).
type RoleStatus struct {
	Role         uint32
	Reason       uint8
	GenerationID uint64
	Properties   []RawProperty
}

// Reasons of a ControllerStatus (ofp_controller_status_reason).
const (
	ControllerAsked     uint8 = 0 // it was asked for
	ControllerChannel   uint8 = 1 // the channel went up or down
	ControllerRole      uint8 = 2
	ControllerAdded     uint8 = 3
	ControllerRemoved   uint8 = 4
	ControllerNewID     uint8 = 5 // its short id has changed
	ControllerVendorOwn uint8 = 6 // an experimenter's data has changed
)

// States of a controller's channel (ofp_control_channel_status).
const (
	ChannelUp   uint8 = 0
	ChannelDown uint8 = 1
)

// ControllerStatus is the switch's state of one of its controllers (ofp_controller_status). Open vSwitch 3.1 does not
// report it.
type ControllerStatus struct {
	ShortID    uint16
	Role       uint32
	Reason     uint8
	Channel    uint8
	URIs       []string
	Properties []RawProperty
}

// ControllerStatusMessage reports that a controller's channel or role has changed
// (OFPT_CONTROLLER_STATUS).
type ControllerStatusMessage struct{ Status ControllerStatus }

// ControllerStatusRequest asks for the switch's controllers (OFPMP_CONTROLLER_STATUS).
type ControllerStatusRequest struct{}

// ControllerStatusReply is one part of the answer to ControllerStatusRequest.
type ControllerStatusReply struct {
	More        bool
	Controllers []ControllerStatus
}

// RequestForward repeats to a controller a request of another one to the switch
// (OFPT_REQUESTFORWARD): Request is a GroupMod or a MeterMod, XID its transaction id.
type RequestForward struct {
	XID     uint32
	Request Message
}

// Type of the messages about controllers.
func (RoleStatus) Type() Type              { return TypeRoleStatus }
func (ControllerStatusMessage) Type() Type { return TypeControllerStatus }
func (ControllerStatusRequest) Type() Type { return TypeMultipartRequest }
func (ControllerStatusReply) Type() Type   { return TypeMultipartReply }
func (RequestForward) Type() Type          { return TypeRequestForward }

// MultipartType of the messages about controllers.
func (ControllerStatusRequest) MultipartType() MultipartType { return MultipartControllerStatus }
func (ControllerStatusReply) MultipartType() MultipartType   { return MultipartControllerStatus }

// HasMore of the messages about controllers.
func (ControllerStatusRequest) HasMore() bool { return false }
func (m ControllerStatusReply) HasMore() bool { return m.More }

func (m RoleStatus) appendTo(e *encoder) {
	e.role(m.Role)
	e.u8(m.Reason)
	e.zero(3)
	e.u64(m.GenerationID)
	e.raw(m.Properties)
}
func (d *decoder) roleStatus() Message {
	m := RoleStatus{Role: d.u32("role"), Reason: d.u8("reason")}
	d.skip(3)
	m.GenerationID = d.u64("generation_id")
	for d.left() > 0 {
		kind, p := d.prop("role property")
		m.Properties = append(m.Properties, p.raw(kind))
	}
	return m
}

// role appends one of the four roles.
func (e *encoder) role(r uint32) {
	if r > RoleSecond {
		e.fail("role %d does not exist: want 0 (no change), 1 (equal), 2 (primary) or 3 (secondary)", r)
	}
	e.u32(r)
}

const controllerURI uint16 = 0 // a property of ControllerStatus

func (e *encoder) controllerStatus(c ControllerStatus) {
	start := len(e.b)
	e.zero(2)
	e.u16(c.ShortID)
	e.role(c.Role)
	e.u8(c.Reason)
	e.u8(c.Channel)
	e.zero(6)
	for _, uri := range c.URIs {
		p := e.propStart(controllerURI)
		e.str(uri)
		e.propEnd(p)
	}
	e.raw(c.Properties)
	e.len16(start, 0)
}
func (d *decoder) controllerStatus() ControllerStatus {
	s := d.entry("controller", 16)
	s.skip(2)
	c := ControllerStatus{ShortID: s.u16("short_id"), Role: s.u32("role"), Reason: s.u8("reason"),
		Channel: s.u8("channel_status")}
	s.skip(6)
	for s.left() > 0 {
		switch kind, p := s.prop("controller property"); kind {
		case controllerURI:
			c.URIs = append(c.URIs, string(p.take("uri", p.left())))
		default:
			c.Properties = append(c.Properties, p.raw(kind))
		}
	}
	return c
}

func (m ControllerStatusMessage) appendTo(e *encoder) { e.controllerStatus(m.Status) }
func (m ControllerStatusRequest) appendTo(e *encoder) { e.multipart(m) }
func (m ControllerStatusReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, c := range m.Controllers {
		e.controllerStatus(c)
	}
}

func (m RequestForward) appendTo(e *encoder) {
	switch m.Request.(type) {
	case GroupMod, MeterMod:
	default:
		e.fail("only a group_mod or a meter_mod is forwarded, not %T", m.Request)
		return
	}
	outer := e.xid
	e.xid = m.XID
	e.message(m.Request)
	e.xid = outer
}
func (d *decoder) requestForward() Message {
	var m RequestForward
	at := *d
	inner := d.inner(&m.XID)
	switch inner.(type) {
	case GroupMod, MeterMod:
	default:
		at.fail("request", "only a group_mod or a meter_mod is forwarded")
		return nil
	}
	m.Request = inner
	return m
}

// inner reads a message inside of a message.
func (d *decoder) inner(xid *uint32) Message {
	if d.deep++; d.deep > 1 {
		d.fail("message", "a message within a message holds no further one")
	}
	if !d.ok() {
		return nil
	}
	n := MessageLen(d.buf)
	if n == 0 {
		d.fail("message", "%v", errShort)
	}
	s := d.sub("message", n)
	if !d.ok() {
		return nil
	}
	return s.message(xid)
}
