package ofp

// Field is a match field, or a field that actions read and write. The order of the constants is the order in a [Match]:
// prerequisites of a field come before it, as OpenFlow demands (7.2.3.6).
type Field uint16

// The fields, named as in Open vSwitch's meta-flow.h.
const (
	PacketType Field = iota + 1
	InPort
	ActsetOutput
	DPHash
	RecircID
	ConjID
	Metadata
	TunID
	TunIPv4Src
	TunIPv4Dst
	TunIPv6Src
	TunIPv6Dst
	TunFlags
	TunGBPID
	TunGBPFlags
	TunERSPANIdx
	TunERSPANVer
	TunERSPANDir
	TunERSPANHWID
	TunGTPUFlags
	TunGTPUMsgType
)

// These fields are the options of a tunnel's header that a TLV table maps (nicira-ext.h, NXT_TLV_TABLE_MOD).
// [TunMetadata] returns the one with a number.
const (
	TunMetadata0  = TunGTPUMsgType + 1
	TunMetadata63 = TunMetadata0 + 63
)

// TunMetadata returns the field of a tunnel option, 0 to 63. Other numbers have no field.
func TunMetadata(n int) Field {
	if n < 0 || n > 63 {
		return 0
	}
	return TunMetadata0 + Field(n)
}

// The fields after the tunnel options.
const (
	PktMark Field = TunMetadata63 + 1 + iota
	Reg0
	Reg1
	Reg2
	Reg3
	Reg4
	Reg5
	Reg6
	Reg7
	Reg8
	Reg9
	Reg10
	Reg11
	Reg12
	Reg13
	Reg14
	Reg15
	Reg16
	Reg17
	Reg18
	Reg19
	Reg20
	Reg21
	Reg22
	Reg23
	Reg24
	Reg25
	Reg26
	Reg27
	Reg28
	Reg29
	Reg30
	Reg31
	XReg0
	XReg1
	XReg2
	XReg3
	XReg4
	XReg5
	XReg6
	XReg7
	XReg8
	XReg9
	XReg10
	XReg11
	XReg12
	XReg13
	XReg14
	XReg15
	XXReg0
	XXReg1
	XXReg2
	XXReg3
	XXReg4
	XXReg5
	XXReg6
	XXReg7
	EthSrc
	EthDst
	EthType
	VLANVID
	VLANPCP
	MPLSLabel
	MPLSTC
	MPLSBOS
	MPLSTTL
	IPv4Src
	IPv4Dst
	IPv6Src
	IPv6Dst
	IPv6Label
	IPProto
	IPDSCP
	IPECN
	IPTTL
	IPFrag
	ARPOp
	ARPSPA
	ARPTPA
	ARPSHA
	ARPTHA
	TCPSrc
	TCPDst
	UDPSrc
	UDPDst
	SCTPSrc
	SCTPDst
	TCPFlags
	ICMPType
	ICMPCode
	ICMPv6Type
	ICMPv6Code
	NDReserved
	NDTarget
	NDOptionsType
	NDSLL
	NDTLL
	NSHFlags
	NSHMDType
	NSHNP
	NSHSPI
	NSHSI
	NSHC1
	NSHC2
	NSHC3
	NSHC4
	NSHTTL
	CTState
	CTZone
	CTMark
	CTLabel
	CTNwProto
	CTNwSrc
	CTNwDst
	CTIPv6Src
	CTIPv6Dst
	CTTpSrc
	CTTpDst

	// Older views of fields above: only actions know them, a Match has the fields above.

	NXMInPort
	VLANTCI
	IPTOS
	fieldCount
)

// These are OXM classes (OpenFlow 1.5, 7.2.3.3, and nicira-ext.h). Values below classExperimenter that no standard
// class has stand for class 0xffff with an experimenter's number: see vendors.
const (
	classNicira0      uint16 = 0x0000
	classNicira1      uint16 = 0x0001
	classEricsson     uint16 = 0x1000
	classBasic        uint16 = 0x8000
	classPacketRegs   uint16 = 0x8001
	classNSH          uint16 = 0xfffc
	classONF          uint16 = 0xfffd
	classNXOXM        uint16 = 0xfffe
	classExperimenter uint16 = 0xffff
)

// vendor returns the experimenter's number of a class, or 0.
func vendor(class uint16) uint32 {
	switch class {
	case classNSH:
		return nshVendor
	case classONF:
		return onfVendor
	case classNXOXM:
		return nxVendor
	}
	return 0
}

const (
	nxVendor  uint32 = 0x00002320
	nshVendor uint32 = 0x005ad650
)

// format is how a field's value is written in text.
type format uint8

const (
	formatDecimal format = iota
	formatHex
	formatMAC
	formatIPv4
	formatIPv6
	formatPort
	formatPort16
	formatCTState
	formatTCPFlags
	formatTunFlags
	formatFrag
	formatPacketType
)

// needs is what must be matched before a field has a meaning.
type needs uint8

const (
	needsNone needs = iota
	needsEth
	needsVLAN
	needsMPLS
	needsIPv4
	needsIPv6
	needsIP
	needsARP
	needsTCP
	needsUDP
	needsSCTP
	needsICMPv4
	needsICMPv6
	needsND
	needsNDSolicit
	needsNDAdvert
	needsNSH
	needsCT
	needsCT4
	needsCT6
	needsCTPort
)
