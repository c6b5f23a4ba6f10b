package ofp

// Action is one action, or one instruction, of a flow, bucket or packet-out. The set of
// implementations is closed; what the package does not know is a [RawAction].
//
// Instructions stand in the same list, after the actions of Apply-Actions and in the order
// in which ovs-ofctl prints them: ClearActions, WriteActions, WriteMetadata, GotoTable.
type Action interface {
	appendTo(e *encoder)
}

// Output sends the packet to a port. MaxLen matters only for PortController: how many bytes
// to send (0xffff: all of them).
type Output struct {
	Port   Port
	MaxLen uint16
}

// OutputReg sends the packet to the port whose number is in Src (NXAST_OUTPUT_REG).
type OutputReg struct {
	Src    Bits
	MaxLen uint16
}

// Group hands the packet to a group.
type Group struct{ ID uint32 }

// SetField writes Value into Field; where Mask is not empty only its bits are written. It is
// also what a load of a constant into a range of bits becomes. Value and Mask are big-endian
// and as long as the field.
type SetField struct {
	Field Field
	Value string
	Mask  string
}

// RegMove copies the bits of Src to Dst (NXAST_REG_MOVE, OFPAT_COPY_FIELD); both are equally wide.
type RegMove struct{ Src, Dst Bits }

// DecTTL decrements the IP TTL or hop limit; IDs name the controllers told when it reaches
// zero (empty: the controller with id 0).
type DecTTL struct{ IDs []uint16 }

// SetTTL sets the IP TTL or hop limit.
type SetTTL struct{ TTL uint8 }

// Flags of [CT].
const (
	CTCommit uint16 = 1 << 0
	CTForce  uint16 = 1 << 1
)

// CTNoTable in CT.Table means that the packet is not sent back to a table.
const CTNoTable Table = 255

// CT sends the packet through connection tracking (NXAST_CT). The zone is Zone, or, where
// ZoneSrc.Width is not 0, what that range holds. Exec are the actions done on the
// connection: SetField, RegMove and NAT. Its zero Table means table 0: set CTNoTable for none.
type CT struct {
	Flags   uint16
	Zone    uint16
	ZoneSrc Bits
	Table   Table
	ALG     uint16 // 21 ftp, 69 tftp, 0 none
	NAT     *NAT
	Exec    []Action
}

// Flags of [NAT].
const (
	NATSrc        uint16 = 1 << 0
	NATDst        uint16 = 1 << 1
	NATPersistent uint16 = 1 << 2
	NATHash       uint16 = 1 << 3
	NATRandom     uint16 = 1 << 4
)

// NAT is the address translation of a [CT]. Without NATSrc and NATDst it only applies what an
// earlier commit recorded. Addresses and ports are ranges: Max empty or zero means just Min.
type NAT struct {
	Flags            uint16
	IPMin, IPMax     string // 4 or 16 bytes
	PortMin, PortMax uint16
}

// CTClear forgets what connection tracking said about the packet (NXAST_CT_CLEAR).
type CTClear struct{}

// Resubmit looks the packet up in another table, or as if it came from another port. Port
// PortInPort keeps the port, Table TableAll the table. WithCT uses the original tuple.
type Resubmit struct {
	Port   Port
	Table  Table
	WithCT bool
}

// Reasons of a packet-in.
const (
	ReasonNoMatch     uint8 = 0
	ReasonAction      uint8 = 1
	ReasonInvalidTTL  uint8 = 2
	ReasonActionSet   uint8 = 3
	ReasonGroup       uint8 = 4
	ReasonPacketOut   uint8 = 5
	ReasonExplicitMis uint8 = 6
)

// Controller sends the packet to a controller with all that NXAST_CONTROLLER2 can say. MaxLen
// 0 sends no bytes at all; use 0xffff for the whole packet.
type Controller struct {
	MaxLen   uint16
	ID       uint16
	Reason   uint8
	Userdata string
	Pause    bool
	MeterID  uint32
}

// LearnKind is what a [LearnSpec] does.
type LearnKind uint8

// Kinds of learn specs.
const (
	LearnMatch  LearnKind = 0
	LearnLoad   LearnKind = 1
	LearnOutput LearnKind = 2
)

// LearnSpec is one part of the flow that a [Learn] adds: a match, a load or an output whose
// value is Src, or where Src.Width is 0, the constant Value (big-endian, right-aligned).
type LearnSpec struct {
	Kind  LearnKind
	Src   Bits
	Value string
	Dst   Bits
}

// Flags of [Learn].
const (
	LearnSendFlowRem   uint16 = 1 << 0
	LearnDeleteLearned uint16 = 1 << 1
	LearnWriteResult   uint16 = 1 << 2
)

// Learn adds or modifies a flow when a packet passes (NXAST_LEARN, NXAST_LEARN2).
type Learn struct {
	IdleTimeout, HardTimeout uint16
	Priority                 uint16
	Cookie                   uint64
	Flags                    uint16
	Table                    Table
	FinIdle, FinHard         uint16
	Limit                    uint32
	Result                   Bits // one bit, with LearnWriteResult
	Specs                    []LearnSpec
}

// Conjunction makes the flow one clause of a conjunctive match (NXAST_CONJUNCTION). Clause
// counts from 1, as in text.
type Conjunction struct {
	ID      uint32
	Clause  uint8
	Clauses uint8
}

// Note does nothing; its bytes are kept with the flow, zero-padded to 6 + a multiple of 8.
type Note struct{ Data string }

// Meter passes the packet through a meter.
type Meter struct{ ID uint32 }

// PushVLAN pushes a VLAN header with the given Ethernet type (0x8100 or 0x88a8).
type PushVLAN struct{ EthType uint16 }

// PopVLAN pops the outermost VLAN header.
type PopVLAN struct{}

// SetQueue chooses the queue; PopQueue goes back to the original one.
type SetQueue struct{ Queue uint32 }

// PopQueue undoes SetQueue (NXAST_POP_QUEUE).
type PopQueue struct{}

// FinTimeout lowers the flow's timeouts when a TCP connection ends (NXAST_FIN_TIMEOUT).
type FinTimeout struct{ Idle, Hard uint16 }

// Exit stops the pipeline (NXAST_EXIT).
type Exit struct{}

// Push and Pop move bits to and from OVS's stack (NXAST_STACK_PUSH, NXAST_STACK_POP).
type Push struct{ Src Bits }

// Pop is Push's counterpart.
type Pop struct{ Dst Bits }

// Clone runs actions on a copy of the packet (NXAST_CLONE).
type Clone struct{ Actions []Action }

// CheckPacketLarger sets a bit where the packet is longer than Len bytes.
type CheckPacketLarger struct {
	Len uint16
	Dst Bits
}

// DeleteField removes a tunnel metadata field (NXAST_DELETE_FIELD).
type DeleteField struct{ Field Field }

// ClearActions is the instruction that empties the action set.
type ClearActions struct{}

// WriteActions is the instruction that merges actions into the action set.
type WriteActions struct{ Actions []Action }

// WriteMetadata is the instruction that writes the masked bits of the metadata field.
type WriteMetadata struct{ Value, Mask uint64 }

// GotoTable is the instruction that continues in another table; it stands last.
type GotoTable struct{ Table Table }

// RawAction is an action that the package does not know, header included, exactly as it came.
type RawAction struct{ Bytes string }

// RawInstruction is an instruction that the package does not know.
type RawInstruction struct{ Bytes string }
