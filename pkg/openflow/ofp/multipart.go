package ofp

// MultipartType is the kind of a multipart request or reply (ofp_multipart_type).
type MultipartType uint16

// Multipart types of OpenFlow 1.5.
const (
	MultipartDesc          MultipartType = 0
	MultipartFlowDesc      MultipartType = 1
	MultipartAggregate     MultipartType = 2
	MultipartTable         MultipartType = 3
	MultipartPortStats     MultipartType = 4
	MultipartQueueStats    MultipartType = 5
	MultipartGroup         MultipartType = 6
	MultipartGroupDesc     MultipartType = 7
	MultipartGroupFeatures MultipartType = 8
	MultipartMeter         MultipartType = 9
	MultipartMeterDesc     MultipartType = 10
	MultipartMeterFeatures MultipartType = 11
	MultipartTableFeatures MultipartType = 12
	MultipartPortDesc      MultipartType = 13
	MultipartTableDesc     MultipartType = 14
	MultipartQueueDesc     MultipartType = 15
	MultipartFlowMonitor   MultipartType = 16
	MultipartFlowStats     MultipartType = 17

	MultipartControllerStatus MultipartType = 18
	MultipartBundleFeatures   MultipartType = 19

	MultipartExperimenter MultipartType = 0xffff
)

// Multipart is a request or reply of OFPT_MULTIPART_*.
type Multipart interface {
	Message
	// MultipartType is the kind of request or reply.
	MultipartType() MultipartType
	// HasMore is set if further parts with the same transaction id follow.
	HasMore() bool
}

// DescRequest asks for the manufacturer and version of the switch.
type DescRequest struct{}

// DescReply has the manufacturer and version of the switch.
type DescReply struct{ Manufacturer, Hardware, Software, Serial, Datapath string }

// FlowFilter selects flows in requests. The zero value, except for Table, selects all: a zero
// OutPort or OutGroup is encoded as any. Set Table to TableAll for all tables.
type FlowFilter struct {
	Table              Table
	OutPort            Port
	OutGroup           uint32
	Cookie, CookieMask uint64
	Match              Match
}

// FlowDescRequest asks for flows with actions and statistics (OFPMP_FLOW_DESC).
type FlowDescRequest struct{ FlowFilter }

// FlowDesc is a flow as the switch reports it.
type FlowDesc struct {
	Table                    Table
	Priority                 uint16
	IdleTimeout, HardTimeout uint16
	Flags, Importance        uint16
	Cookie                   uint64
	Match                    Match
	Stats                    Stats
	Actions                  []Action
}

// FlowDescReply is one part of the answer to FlowDescRequest.
type FlowDescReply struct {
	More  bool
	Flows []FlowDesc
}

// FlowStatsRequest asks for flows with statistics but without actions (OFPMP_FLOW_STATS).
type FlowStatsRequest struct{ FlowFilter }

// FlowStats is one flow's statistics. Reason is 0 for an answer to a request.
type FlowStats struct {
	Table    Table
	Reason   uint8
	Priority uint16
	Match    Match
	Stats    Stats
}

// FlowStatsReply is one part of the answer to FlowStatsRequest.
type FlowStatsReply struct {
	More  bool
	Flows []FlowStats
}

// AggregateRequest asks for sums over flows.
type AggregateRequest struct{ FlowFilter }

// AggregateReply is the sums over flows.
type AggregateReply struct {
	Packets, Bytes uint64
	Flows          uint32
}

// TableStatsRequest asks for the tables' counters.
type TableStatsRequest struct{}

// TableStats are one table's counters.
type TableStats struct {
	Table           Table
	Active          uint32
	Lookup, Matched uint64
}

// TableStatsReply is one part of the answer to TableStatsRequest.
type TableStatsReply struct {
	More   bool
	Tables []TableStats
}

// PortDescRequest asks for the ports; a zero Port is encoded as PortAny.
type PortDescRequest struct{ Port Port }

// PortDescReply is one part of the answer to PortDescRequest.
type PortDescReply struct {
	More  bool
	Ports []PortDesc
}

// GroupDescRequest asks for groups; a zero ID is encoded as GroupAll.
type GroupDescRequest struct{ ID uint32 }

// GroupDesc is a group as the switch reports it.
type GroupDesc struct {
	ID         uint32
	GroupType  GroupType
	Selection  Selection
	Buckets    []Bucket
	Properties []RawProperty // besides the selection
}

// GroupDescReply is one part of the answer to GroupDescRequest.
type GroupDescReply struct {
	More   bool
	Groups []GroupDesc
}

// GroupStatsRequest asks for groups' counters; a zero ID is encoded as GroupAll.
type GroupStatsRequest struct{ ID uint32 }

// BucketStats are one bucket's counters.
type BucketStats struct{ Packets, Bytes uint64 }

// GroupStats are one group's counters.
type GroupStats struct {
	ID                        uint32
	RefCount                  uint32
	Packets, Bytes            uint64
	DurationSec, DurationNsec uint32
	Buckets                   []BucketStats
}

// GroupStatsReply is one part of the answer to GroupStatsRequest.
type GroupStatsReply struct {
	More   bool
	Groups []GroupStats
}

// GroupFeaturesRequest asks what groups the switch can have.
type GroupFeaturesRequest struct{}

// Bits of GroupFeaturesReply.Capabilities (ofp_group_capabilities).
const (
	GroupSelectWeight   uint32 = 1 << 0
	GroupSelectLiveness uint32 = 1 << 1
	GroupChaining       uint32 = 1 << 2
	GroupChainingChecks uint32 = 1 << 3
)

// GroupFeaturesReply has the switch's abilities with groups; arrays are indexed by GroupType.
type GroupFeaturesReply struct {
	Types        uint32
	Capabilities uint32
	MaxGroups    [4]uint32
	Actions      [4]uint32
}

// MeterDescRequest asks for meters; a zero ID is encoded as MeterAll.
type MeterDescRequest struct{ ID uint32 }

// MeterDesc is a meter as the switch reports it.
type MeterDesc struct {
	Flags uint16
	ID    uint32
	Bands []MeterBand
}

// MeterDescReply is one part of the answer to MeterDescRequest.
type MeterDescReply struct {
	More   bool
	Meters []MeterDesc
}

// Flags of a FlowMonitorRequest (ofp_flow_monitor_flags).
const (
	MonitorInitial uint16 = 1 << 0
	MonitorAdd     uint16 = 1 << 1
	MonitorRemoved uint16 = 1 << 2
	MonitorModify  uint16 = 1 << 3
	MonitorActions uint16 = 1 << 4 // send instructions too
	MonitorNoAbbr  uint16 = 1 << 5 // no abbreviated updates for own changes
	MonitorOnlyOwn uint16 = 1 << 6
)

// Commands of a FlowMonitorRequest.
const (
	MonitorCommandAdd    uint8 = 0
	MonitorCommandModify uint8 = 1
	MonitorCommandDelete uint8 = 2
)

// FlowMonitorRequest starts or ends (MonitorCommandDelete) watching flows.
type FlowMonitorRequest struct {
	ID       uint32
	Flags    uint16
	Command  uint8
	Table    Table
	OutPort  Port
	OutGroup uint32
	Match    Match
	Others   []FlowMonitorRequest // further monitors in the same message
}

// Events of a FlowUpdate (ofp_flow_update_event).
const (
	UpdateInitial  uint16 = 0
	UpdateAdded    uint16 = 1
	UpdateRemoved  uint16 = 2
	UpdateModified uint16 = 3
	UpdateAbbrev   uint16 = 4 // a change of our own: only XID
	UpdatePaused   uint16 = 5
	UpdateResumed  uint16 = 6
)

// FlowUpdate is one change of the switch's flows.
type FlowUpdate struct {
	Event                    uint16
	Reason                   uint8 // UpdateRemoved: a Removed constant
	Table                    Table
	Priority                 uint16
	IdleTimeout, HardTimeout uint16
	Cookie                   uint64
	Match                    Match
	Actions                  []Action // with MonitorActions
	XID                      uint32   // UpdateAbbrev
}

// FlowMonitorReply is a report of a flow monitor. The first answer has the existing flows. Later changes come with
// transaction id 0.
type FlowMonitorReply struct {
	More    bool
	Updates []FlowUpdate
}

// RawMultipart is a multipart message that the package does not know.
type RawMultipart struct {
	MsgType Type // TypeMultipartRequest or TypeMultipartReply
	Kind    MultipartType
	Flags   uint16
	Data    []byte
}
