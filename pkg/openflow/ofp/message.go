package ofp

// Message is one OpenFlow message without its header. The set of implementations is closed. An unknown message is a
// [RawMessage].
type Message interface {
	// Type is the message's type in the OpenFlow header.
	Type() Type
	appendTo(e *encoder)
}

// Type is a message's type in the OpenFlow header (ofp_type).
type Type uint8

// Message types of OpenFlow 1.5.
const (
	TypeHello            Type = 0
	TypeError            Type = 1
	TypeEchoRequest      Type = 2
	TypeEchoReply        Type = 3
	TypeExperimenter     Type = 4
	TypeFeaturesRequest  Type = 5
	TypeFeaturesReply    Type = 6
	TypeGetConfigRequest Type = 7
	TypeGetConfigReply   Type = 8
	TypeSetConfig        Type = 9
	TypePacketIn         Type = 10
	TypeFlowRemoved      Type = 11
	TypePortStatus       Type = 12
	TypePacketOut        Type = 13
	TypeFlowMod          Type = 14
	TypeGroupMod         Type = 15
	TypePortMod          Type = 16
	TypeTableMod         Type = 17
	TypeMultipartRequest Type = 18
	TypeMultipartReply   Type = 19
	TypeBarrierRequest   Type = 20
	TypeBarrierReply     Type = 21
	TypeRoleRequest      Type = 24
	TypeRoleReply        Type = 25
	TypeGetAsyncRequest  Type = 26
	TypeGetAsyncReply    Type = 27
	TypeSetAsync         Type = 28
	TypeMeterMod         Type = 29
	TypeRoleStatus       Type = 30
	TypeTableStatus      Type = 31
	TypeRequestForward   Type = 32
	TypeBundleControl    Type = 33
	TypeBundleAdd        Type = 34
	TypeControllerStatus Type = 35
)

// Hello opens a connection. Versions are the wire versions that the sender supports (6 for 1.5), in ascending order. If
// the list is nil, the version in the message's header counts; decoding stores it in HeaderVersion.
type Hello struct {
	HeaderVersion uint8
	Versions      []uint8
	Elements      []RawProperty // besides the bitmap of versions
	Extra         []byte        // what follows and is no element; the receiver must not mind it
}

// Error refuses an earlier message, the first bytes of which are in Data. For
// experimenter errors (Type 0xffff) Experimenter is the vendor's number.
type Error struct {
	ErrType      uint16
	Code         uint16
	Experimenter uint32
	Data         []byte
}

// EchoRequest asks for an EchoReply with the same Data.
type EchoRequest struct{ Data []byte }

// EchoReply answers an EchoRequest.
type EchoReply struct{ Data []byte }

// FeaturesRequest asks what the switch is.
type FeaturesRequest struct{}

// FeaturesReply describes the switch.
type FeaturesReply struct {
	DatapathID   uint64
	Buffers      uint32
	Tables       uint8
	AuxiliaryID  uint8
	Capabilities uint32
	Reserved     uint32
}

// Bits of FeaturesReply.Capabilities (ofp_capabilities).
const (
	CapabilityFlowStats      uint32 = 1 << 0
	CapabilityTableStats     uint32 = 1 << 1
	CapabilityPortStats      uint32 = 1 << 2
	CapabilityGroupStats     uint32 = 1 << 3
	CapabilityIPReassembly   uint32 = 1 << 5
	CapabilityQueueStats     uint32 = 1 << 6
	CapabilityPortBlocked    uint32 = 1 << 8
	CapabilityBundles        uint32 = 1 << 9
	CapabilityFlowMonitoring uint32 = 1 << 10
)

// Bits of GetConfigReply.Flags and SetConfig.Flags: what happens to IP fragments.
const (
	ConfigFragNormal     uint16 = 0
	ConfigFragDrop       uint16 = 1
	ConfigFragReassemble uint16 = 2
	ConfigFragMatch      uint16 = 3 // Open vSwitch: the first one can be matched as a whole packet
)

// GetConfigRequest asks for the switch's configuration.
type GetConfigRequest struct{}

// GetConfigReply is the switch's configuration: fragment handling and how much of a packet is
// sent to the controller on a table miss.
type GetConfigReply struct{ Flags, MissSendLen uint16 }

// SetConfig sets what GetConfigReply reports.
type SetConfig struct{ Flags, MissSendLen uint16 }

// PacketIn is OpenFlow's own packet-in (OFPT_PACKET_IN).
type PacketIn struct {
	BufferID uint32
	TotalLen uint16
	Reason   uint8
	Table    Table
	Cookie   uint64
	Match    Match
	Data     []byte
}

// PacketIn2 is Open vSwitch's packet-in (NXT_PACKET_IN2), requested with SetPacketInFormat and sent by [Controller].
// Metadata has in_port, registers, ct_* and so on. Reason is one of the Reason constants. FullLen is the packet's
// original length, which may exceed the length of Data. Without a flow Cookie is NoCookie. Continuation has the
// switch's own data: send it back in [Resume].
type PacketIn2 struct {
	Data         []byte
	FullLen      uint32
	BufferID     uint32
	Table        Table
	Cookie       uint64
	Reason       uint8
	Metadata     Match
	Userdata     []byte
	Continuation []byte
	Properties   []RawProperty // properties unknown to the package
}

// NoCookie is the cookie of a packet-in that no flow has sent.
const NoCookie = ^uint64(0)

// PacketOut sends a packet through the switch. InPort is the port from which the packet seems to come, by default
// PortController. Match may have further metadata, such as registers.
type PacketOut struct {
	BufferID uint32 // NoBuffer or 0: Data is the packet
	InPort   Port
	Match    Match
	Actions  []Action
	Data     []byte
}

// FlowCommand is what a FlowMod does.
type FlowCommand uint8

// Commands of a FlowMod.
const (
	FlowAdd          FlowCommand = 0
	FlowModify       FlowCommand = 1
	FlowModifyStrict FlowCommand = 2
	FlowDelete       FlowCommand = 3
	FlowDeleteStrict FlowCommand = 4
)

// Flags of a flow (OFPFF_*).
const (
	FlagSendFlowRem  uint16 = 1 << 0
	FlagCheckOverlap uint16 = 1 << 1
	FlagResetCounts  uint16 = 1 << 2
	FlagNoPktCounts  uint16 = 1 << 3
	FlagNoBytCounts  uint16 = 1 << 4

	// KeptFlags are the flags that the switch keeps with a flow. The other flags only affect the message.
	KeptFlags = FlagSendFlowRem | FlagNoPktCounts | FlagNoBytCounts
)

// FlowMod adds, changes or deletes flows. In deletions, OutPort PortAny and OutGroup GroupAny do not restrict. Zero
// values of these two are encoded as PortAny and GroupAny.
type FlowMod struct {
	Cookie, CookieMask       uint64
	Table                    Table
	Command                  FlowCommand
	IdleTimeout, HardTimeout uint16
	Priority                 uint16
	BufferID                 uint32 // 0 is encoded as NoBuffer
	OutPort                  Port
	OutGroup                 uint32
	Flags                    uint16
	Importance               uint16
	Match                    Match
	Actions                  []Action
}

// Reasons of a FlowRemoved.
const (
	RemovedIdle     uint8 = 0
	RemovedHard     uint8 = 1
	RemovedDelete   uint8 = 2
	RemovedGroup    uint8 = 3
	RemovedMeter    uint8 = 4
	RemovedEviction uint8 = 5
)

// FlowRemoved reports that a flow with FlagSendFlowRem is gone.
type FlowRemoved struct {
	Table       Table
	Reason      uint8
	Priority    uint16
	IdleTimeout uint16
	HardTimeout uint16
	Cookie      uint64
	Match       Match
	Stats       Stats
}

// Stats are the OXS statistics of a flow. Durations are in seconds and nanoseconds.
type Stats struct {
	DurationSec, DurationNsec uint32
	IdleSec, IdleNsec         uint32
	Packets, Bytes            uint64
}

// GroupType is the kind of a group.
type GroupType uint8

// Kinds of groups.
const (
	GroupTypeAll          GroupType = 0
	GroupTypeSelect       GroupType = 1
	GroupTypeIndirect     GroupType = 2
	GroupTypeFastFailover GroupType = 3
)

// GroupCommand is what a GroupMod does.
type GroupCommand uint16

// Commands of a GroupMod.
const (
	GroupAdd          GroupCommand = 0
	GroupModify       GroupCommand = 1
	GroupDelete       GroupCommand = 2
	GroupInsertBucket GroupCommand = 3
	GroupRemoveBucket GroupCommand = 5
	GroupAddOrModify  GroupCommand = 0x8000 // OVS's own
)

// Bucket numbers with a meaning in a GroupMod's CommandBucket.
const (
	BucketFirst uint32 = 0xfffffffd
	BucketLast  uint32 = 0xfffffffe
	BucketAll   uint32 = 0xffffffff
)

// Selection is the method with which a select group picks its bucket (Netronome's selection-method property): "hash"
// over Fields, or "dp_hash". Masks are the bits of each field that count; nil means all bits of all fields.
type Selection struct {
	Method string
	Param  uint64
	Fields []Field
	Masks  []Value
}

// Bucket is one set of actions of a group. A WatchPort or WatchGroup of 0 means that nothing is watched, and is encoded
// as PortAny or GroupAny.
type Bucket struct {
	ID         uint32
	Weight     uint16
	WatchPort  Port
	WatchGroup uint32
	Actions    []Action
	Properties []RawProperty // experimenters' and unknown ones
}

// GroupMod adds, changes or deletes a group, or some of its buckets.
type GroupMod struct {
	Command       GroupCommand
	GroupType     GroupType
	ID            uint32
	CommandBucket uint32 // for GroupInsertBucket, GroupRemoveBucket; else encoded as BucketAll
	Selection     Selection
	Buckets       []Bucket
	Properties    []RawProperty // besides the selection
}

// MeterCommand is what a MeterMod does.
type MeterCommand uint16

// Commands of a MeterMod.
const (
	MeterAdd    MeterCommand = 0
	MeterModify MeterCommand = 1
	MeterDelete MeterCommand = 2
)

// Flags of a meter.
const (
	MeterKbps  uint16 = 1 << 0
	MeterPktps uint16 = 1 << 1
	MeterBurst uint16 = 1 << 2
	MeterStats uint16 = 1 << 3
)

// Meter numbers with a meaning.
const (
	MeterSlowPath   uint32 = 0xfffffffd
	MeterController uint32 = 0xfffffffe
	MeterAll        uint32 = 0xffffffff
)

// Types of meter bands.
const (
	BandDrop       uint16 = 1
	BandDSCPRemark uint16 = 2
)

// MeterBand is a rate above which packets are dropped or remarked.
type MeterBand struct {
	Kind      uint16
	Rate      uint32
	Burst     uint32
	PrecLevel uint8  // BandDSCPRemark
	Data      string // of a band of another kind: what follows the burst
}

// MeterMod adds, changes or deletes a meter.
type MeterMod struct {
	Command MeterCommand
	Flags   uint16
	ID      uint32
	Bands   []MeterBand
}

// Reasons of a PortStatus.
const (
	PortAdded    uint8 = 0
	PortDeleted  uint8 = 1
	PortModified uint8 = 2
)

// PortStatus reports that a port came, went or changed.
type PortStatus struct {
	Reason uint8
	Port   PortDesc
}

// PortDesc describes a port.
type PortDesc struct {
	Number                               Port
	MAC                                  MAC
	Name                                 string
	Config, State                        uint32
	Current, Advertised, Supported, Peer uint32
	CurrentSpeed, MaxSpeed               uint32
	Optical                              *OpticalPort
	InputFields, OutputFields            []FieldID // pipeline fields that the port sets, and takes
	Recirculate                          []Port    // where its packets come back to the pipeline
	Properties                           []RawProperty
}

// Bits of PortDesc.Config and State.
const (
	PortConfigDown   uint32 = 1 << 0
	PortConfigNoRecv uint32 = 1 << 2
	PortConfigNoFwd  uint32 = 1 << 5
	PortConfigNoPkt  uint32 = 1 << 6
	PortStateDown    uint32 = 1 << 0
	PortStateBlocked uint32 = 1 << 1
	PortStateLive    uint32 = 1 << 2
)

// BarrierRequest asks that all before it is done before the answer.
type BarrierRequest struct{}

// BarrierReply answers a BarrierRequest.
type BarrierReply struct{}

// Roles of a controller.
const (
	RoleNoChange uint32 = 0
	RoleEqual    uint32 = 1
	RolePrimary  uint32 = 2
	RoleSecond   uint32 = 3
)

// RoleRequest changes or (RoleNoChange) asks for this controller's role.
type RoleRequest struct {
	Role         uint32
	GenerationID uint64
	ShortID      uint16 // a number for this controller; 0 for none, which is all that Open vSwitch knows
}

// RoleReply answers a RoleRequest.
type RoleReply struct {
	Role         uint32
	GenerationID uint64 // NoGeneration without a generation
	ShortID      uint16
}

// NoGeneration is the GenerationID of a RoleReply of a switch that has not been given one.
const NoGeneration = ^uint64(0)

// AsyncProperty is a bit mask of reasons for which one kind of asynchronous message is sent. The specification's even
// types are for the secondary role, and the odd types for primary and equal. For an experimenter's property
// (AsyncExperimenter), Data is everything after the length, and Mask is ignored.
type AsyncProperty struct {
	Kind uint16
	Mask uint32
	Data []byte
}

// Kinds of AsyncProperty (ofp_async_config_prop_type). The bits of Mask are 1<<reason.
const (
	AsyncPacketInSecondary       uint16 = 0
	AsyncPortStatusSecondary     uint16 = 2
	AsyncFlowRemovedSecondary    uint16 = 4
	AsyncRoleStatusSecondary     uint16 = 6
	AsyncTableStatusSecondary    uint16 = 8
	AsyncRequestForwardSecondary uint16 = 10
	AsyncFlowStatsSecondary      uint16 = 12
	AsyncControllerSecondary     uint16 = 14
	AsyncExperimenterSecondary   uint16 = 0xfffe

	// For primary and equal controllers.
	AsyncPacketIn       uint16 = 1
	AsyncPortStatus     uint16 = 3
	AsyncFlowRemoved    uint16 = 5
	AsyncRoleStatus     uint16 = 7
	AsyncTableStatus    uint16 = 9
	AsyncRequestForward uint16 = 11
	AsyncFlowStats      uint16 = 13
	AsyncController     uint16 = 15
	AsyncExperimenter   uint16 = 0xffff
)

// GetAsyncRequest asks which asynchronous messages are sent.
type GetAsyncRequest struct{}

// GetAsyncReply answers GetAsyncRequest.
type GetAsyncReply struct{ Properties []AsyncProperty }

// SetAsync chooses which asynchronous messages are sent.
type SetAsync struct{ Properties []AsyncProperty }

// Commands of a BundleControl and their answers.
const (
	BundleOpenRequest    uint16 = 0
	BundleOpenReply      uint16 = 1
	BundleCloseRequest   uint16 = 2
	BundleCloseReply     uint16 = 3
	BundleCommitRequest  uint16 = 4
	BundleCommitReply    uint16 = 5
	BundleDiscardRequest uint16 = 6
	BundleDiscardReply   uint16 = 7
)

// Flags of bundles.
const (
	BundleAtomic  uint16 = 1 << 0
	BundleOrdered uint16 = 1 << 1
)

// BundleControl opens, closes, commits or discards a bundle.
type BundleControl struct {
	ID         uint32
	Ctrl       uint16
	Flags      uint16
	At         *Time // when to commit, with BundleTime
	Properties []RawProperty
}

// BundleAdd puts a message into a bundle; the message gets the transaction id of the BundleAdd.
type BundleAdd struct {
	ID      uint32
	Flags   uint16
	Message Message

	Properties []RawProperty
}

// Formats of SetPacketInFormat.
const (
	PacketInStandard uint32 = 0
	PacketInNXM      uint32 = 1
	PacketInNXM2     uint32 = 2
)

// SetPacketInFormat (NXT_SET_PACKET_IN_FORMAT) chooses PacketIn or PacketIn2.
type SetPacketInFormat struct{ Format uint32 }

// SetControllerID (NXT_SET_CONTROLLER_ID) gives this connection the id of [Controller].ID.
type SetControllerID struct{ ID uint16 }

// Resume (NXT_RESUME) continues a packet that [Controller].Pause has stopped.
type Resume struct{ PacketIn2 }

// Experimenter is an experimenter message that the package does not know.
type Experimenter struct {
	Vendor  uint32
	Subtype uint32
	Data    []byte
}

// RawMessage is a message that the package does not know: everything after the header.
type RawMessage struct {
	MsgType Type
	Data    []byte
}
