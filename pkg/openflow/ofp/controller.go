package ofp

// Reasons of a RoleStatus.
const (
	RoleStatusPrimaryRequest uint8 = 0 // another controller has become primary
	RoleStatusConfig         uint8 = 1
	RoleStatusExperimenter   uint8 = 2
)

// RoleStatus tells that this controller's role has changed (OFPT_ROLE_STATUS).
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

// ControllerStatus is what the switch knows of one of its controllers (ofp_controller_status).
// Open vSwitch 3.1 does not tell it.
type ControllerStatus struct {
	ShortID    uint16
	Role       uint32
	Reason     uint8
	Channel    uint8
	URIs       []string
	Properties []RawProperty
}

// ControllerStatusMessage tells that a controller's channel or role has changed
// (OFPT_CONTROLLER_STATUS).
type ControllerStatusMessage struct{ Status ControllerStatus }

// ControllerStatusRequest asks for the switch's controllers (OFPMP_CONTROLLER_STATUS).
type ControllerStatusRequest struct{}

// ControllerStatusReply is one part of the answer to ControllerStatusRequest.
type ControllerStatusReply struct {
	More        bool
	Controllers []ControllerStatus
}

// RequestForward tells a controller what another one has asked of the switch
// (OFPT_REQUESTFORWARD): Request is a GroupMod or a MeterMod, XID its transaction id.
type RequestForward struct {
	XID     uint32
	Request Message
}
