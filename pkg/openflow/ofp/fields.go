package ofp

// Field is a match field, or a field that actions read and write. Its order is the order in
// a [Match]: what a field needs stands before it, as OpenFlow demands (7.2.3.6).
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
	PktMark
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
	XReg0
	XReg1
	XReg2
	XReg3
	XReg4
	XReg5
	XReg6
	XReg7
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
	NDTarget
	NDSLL
	NDTLL
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
	fieldCount
)

// OXM classes (OpenFlow 1.5, 7.2.3.3, and nicira-ext.h).
const (
	classNicira0      uint16 = 0x0000
	classNicira1      uint16 = 0x0001
	classBasic        uint16 = 0x8000
	classPacketRegs   uint16 = 0x8001
	classExperimenter uint16 = 0xffff
	// classNXOXM stands for class 0xffff with Nicira's experimenter number.
	classNXOXM uint16 = 0xfffe
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
	needsCT
	needsCT4
	needsCT6
	needsCTPort
)

// fieldInfo is all that is known of a field. Where OVS also takes an older NXM header for it,
// oldClass and oldID are that header; oldID 0 means there is none.
type fieldInfo struct {
	name, alias     string
	class, oldClass uint16
	id, oldID       uint8
	bits            uint8
	maskable        bool
	readOnly        bool
	format          format
	needs           needs
}

// fields is every field we know. Encoding, decoding and the text form all come from here.
var fields = [fieldCount]fieldInfo{
	PacketType:   {name: "packet_type", class: classBasic, id: 44, bits: 32, readOnly: true, format: formatPacketType},
	InPort:       {name: "in_port", class: classBasic, id: 0, bits: 32, format: formatPort},
	ActsetOutput: {name: "actset_output", class: classBasic, id: 43, bits: 32, readOnly: true, format: formatPort},
	DPHash:       {name: "dp_hash", class: classNXOXM, id: 0, bits: 32, maskable: true, readOnly: true, format: formatHex, oldClass: classNicira1, oldID: 35},
	RecircID:     {name: "recirc_id", class: classNicira1, id: 36, bits: 32, readOnly: true, format: formatDecimal},
	ConjID:       {name: "conj_id", class: classNicira1, id: 37, bits: 32, readOnly: true, format: formatDecimal},
	Metadata:     {name: "metadata", class: classBasic, id: 2, bits: 64, maskable: true, format: formatHex},
	TunID:        {name: "tun_id", alias: "tunnel_id", class: classBasic, id: 38, bits: 64, maskable: true, format: formatHex, oldClass: classNicira1, oldID: 16},
	TunIPv4Src:   {name: "tun_src", class: classNicira1, id: 31, bits: 32, maskable: true, format: formatIPv4},
	TunIPv4Dst:   {name: "tun_dst", class: classNicira1, id: 32, bits: 32, maskable: true, format: formatIPv4},
	TunIPv6Src:   {name: "tun_ipv6_src", class: classNicira1, id: 109, bits: 128, maskable: true, format: formatIPv6},
	TunIPv6Dst:   {name: "tun_ipv6_dst", class: classNicira1, id: 110, bits: 128, maskable: true, format: formatIPv6},
	TunFlags:     {name: "tun_flags", class: classNicira1, id: 104, bits: 1, maskable: true, format: formatTunFlags},
	TunGBPID:     {name: "tun_gbp_id", class: classNicira1, id: 38, bits: 16, maskable: true, format: formatDecimal},
	TunGBPFlags:  {name: "tun_gbp_flags", class: classNicira1, id: 39, bits: 8, maskable: true, format: formatHex},
	PktMark:      {name: "pkt_mark", class: classNicira1, id: 33, bits: 32, maskable: true, format: formatHex},
	Reg0:         {name: "reg0", class: classNicira1, id: 0, bits: 32, maskable: true, format: formatHex},
	Reg1:         {name: "reg1", class: classNicira1, id: 1, bits: 32, maskable: true, format: formatHex},
	Reg2:         {name: "reg2", class: classNicira1, id: 2, bits: 32, maskable: true, format: formatHex},
	Reg3:         {name: "reg3", class: classNicira1, id: 3, bits: 32, maskable: true, format: formatHex},
	Reg4:         {name: "reg4", class: classNicira1, id: 4, bits: 32, maskable: true, format: formatHex},
	Reg5:         {name: "reg5", class: classNicira1, id: 5, bits: 32, maskable: true, format: formatHex},
	Reg6:         {name: "reg6", class: classNicira1, id: 6, bits: 32, maskable: true, format: formatHex},
	Reg7:         {name: "reg7", class: classNicira1, id: 7, bits: 32, maskable: true, format: formatHex},
	Reg8:         {name: "reg8", class: classNicira1, id: 8, bits: 32, maskable: true, format: formatHex},
	Reg9:         {name: "reg9", class: classNicira1, id: 9, bits: 32, maskable: true, format: formatHex},
	Reg10:        {name: "reg10", class: classNicira1, id: 10, bits: 32, maskable: true, format: formatHex},
	Reg11:        {name: "reg11", class: classNicira1, id: 11, bits: 32, maskable: true, format: formatHex},
	Reg12:        {name: "reg12", class: classNicira1, id: 12, bits: 32, maskable: true, format: formatHex},
	Reg13:        {name: "reg13", class: classNicira1, id: 13, bits: 32, maskable: true, format: formatHex},
	Reg14:        {name: "reg14", class: classNicira1, id: 14, bits: 32, maskable: true, format: formatHex},
	Reg15:        {name: "reg15", class: classNicira1, id: 15, bits: 32, maskable: true, format: formatHex},
	XReg0:        {name: "xreg0", class: classPacketRegs, id: 0, bits: 64, maskable: true, format: formatHex},
	XReg1:        {name: "xreg1", class: classPacketRegs, id: 1, bits: 64, maskable: true, format: formatHex},
	XReg2:        {name: "xreg2", class: classPacketRegs, id: 2, bits: 64, maskable: true, format: formatHex},
	XReg3:        {name: "xreg3", class: classPacketRegs, id: 3, bits: 64, maskable: true, format: formatHex},
	XReg4:        {name: "xreg4", class: classPacketRegs, id: 4, bits: 64, maskable: true, format: formatHex},
	XReg5:        {name: "xreg5", class: classPacketRegs, id: 5, bits: 64, maskable: true, format: formatHex},
	XReg6:        {name: "xreg6", class: classPacketRegs, id: 6, bits: 64, maskable: true, format: formatHex},
	XReg7:        {name: "xreg7", class: classPacketRegs, id: 7, bits: 64, maskable: true, format: formatHex},
	XXReg0:       {name: "xxreg0", class: classNicira1, id: 111, bits: 128, maskable: true, format: formatHex},
	XXReg1:       {name: "xxreg1", class: classNicira1, id: 112, bits: 128, maskable: true, format: formatHex},
	XXReg2:       {name: "xxreg2", class: classNicira1, id: 113, bits: 128, maskable: true, format: formatHex},
	XXReg3:       {name: "xxreg3", class: classNicira1, id: 114, bits: 128, maskable: true, format: formatHex},
	XXReg4:       {name: "xxreg4", class: classNicira1, id: 115, bits: 128, maskable: true, format: formatHex},
	XXReg5:       {name: "xxreg5", class: classNicira1, id: 116, bits: 128, maskable: true, format: formatHex},
	XXReg6:       {name: "xxreg6", class: classNicira1, id: 117, bits: 128, maskable: true, format: formatHex},
	XXReg7:       {name: "xxreg7", class: classNicira1, id: 118, bits: 128, maskable: true, format: formatHex},
	EthDst:       {name: "eth_dst", alias: "dl_dst", class: classBasic, id: 3, bits: 48, maskable: true, format: formatMAC, oldClass: classNicira0, oldID: 1},
	EthSrc:       {name: "eth_src", alias: "dl_src", class: classBasic, id: 4, bits: 48, maskable: true, format: formatMAC, oldClass: classNicira0, oldID: 2},
	EthType:      {name: "eth_type", alias: "dl_type", class: classBasic, id: 5, bits: 16, readOnly: true, format: formatHex, oldClass: classNicira0, oldID: 3},
	VLANVID:      {name: "vlan_vid", class: classBasic, id: 6, bits: 13, maskable: true, format: formatHex},
	VLANPCP:      {name: "vlan_pcp", alias: "dl_vlan_pcp", class: classBasic, id: 7, bits: 3, format: formatDecimal, needs: needsVLAN},
	MPLSLabel:    {name: "mpls_label", class: classBasic, id: 34, bits: 20, format: formatDecimal, needs: needsMPLS},
	MPLSTC:       {name: "mpls_tc", class: classBasic, id: 35, bits: 3, format: formatDecimal, needs: needsMPLS},
	MPLSBOS:      {name: "mpls_bos", class: classBasic, id: 36, bits: 1, readOnly: true, format: formatDecimal, needs: needsMPLS},
	MPLSTTL:      {name: "mpls_ttl", class: classNicira1, id: 30, bits: 8, format: formatDecimal, needs: needsMPLS},
	IPv4Src:      {name: "ip_src", alias: "nw_src", class: classBasic, id: 11, bits: 32, maskable: true, format: formatIPv4, needs: needsIPv4, oldClass: classNicira0, oldID: 7},
	IPv4Dst:      {name: "ip_dst", alias: "nw_dst", class: classBasic, id: 12, bits: 32, maskable: true, format: formatIPv4, needs: needsIPv4, oldClass: classNicira0, oldID: 8},
	IPv6Src:      {name: "ipv6_src", class: classBasic, id: 26, bits: 128, maskable: true, format: formatIPv6, needs: needsIPv6, oldClass: classNicira1, oldID: 19},
	IPv6Dst:      {name: "ipv6_dst", class: classBasic, id: 27, bits: 128, maskable: true, format: formatIPv6, needs: needsIPv6, oldClass: classNicira1, oldID: 20},
	IPv6Label:    {name: "ipv6_label", class: classBasic, id: 28, bits: 20, maskable: true, format: formatHex, needs: needsIPv6, oldClass: classNicira1, oldID: 27},
	IPProto:      {name: "nw_proto", alias: "ip_proto", class: classBasic, id: 10, bits: 8, readOnly: true, format: formatDecimal, needs: needsIP, oldClass: classNicira0, oldID: 6},
	IPDSCP:       {name: "ip_dscp", class: classBasic, id: 8, bits: 6, format: formatDecimal, needs: needsIP},
	IPECN:        {name: "nw_ecn", alias: "ip_ecn", class: classBasic, id: 9, bits: 2, format: formatDecimal, needs: needsIP, oldClass: classNicira1, oldID: 28},
	IPTTL:        {name: "nw_ttl", class: classNicira1, id: 29, bits: 8, format: formatDecimal, needs: needsIP},
	IPFrag:       {name: "ip_frag", class: classNicira1, id: 26, bits: 8, maskable: true, readOnly: true, format: formatFrag, needs: needsIP},
	ARPOp:        {name: "arp_op", class: classBasic, id: 21, bits: 16, format: formatDecimal, needs: needsARP, oldClass: classNicira0, oldID: 15},
	ARPSPA:       {name: "arp_spa", class: classBasic, id: 22, bits: 32, maskable: true, format: formatIPv4, needs: needsARP, oldClass: classNicira0, oldID: 16},
	ARPTPA:       {name: "arp_tpa", class: classBasic, id: 23, bits: 32, maskable: true, format: formatIPv4, needs: needsARP, oldClass: classNicira0, oldID: 17},
	ARPSHA:       {name: "arp_sha", class: classBasic, id: 24, bits: 48, maskable: true, format: formatMAC, needs: needsARP, oldClass: classNicira1, oldID: 17},
	ARPTHA:       {name: "arp_tha", class: classBasic, id: 25, bits: 48, maskable: true, format: formatMAC, needs: needsARP, oldClass: classNicira1, oldID: 18},
	TCPSrc:       {name: "tcp_src", class: classBasic, id: 13, bits: 16, maskable: true, format: formatDecimal, needs: needsTCP, oldClass: classNicira0, oldID: 9},
	TCPDst:       {name: "tcp_dst", class: classBasic, id: 14, bits: 16, maskable: true, format: formatDecimal, needs: needsTCP, oldClass: classNicira0, oldID: 10},
	UDPSrc:       {name: "udp_src", class: classBasic, id: 15, bits: 16, maskable: true, format: formatDecimal, needs: needsUDP, oldClass: classNicira0, oldID: 11},
	UDPDst:       {name: "udp_dst", class: classBasic, id: 16, bits: 16, maskable: true, format: formatDecimal, needs: needsUDP, oldClass: classNicira0, oldID: 12},
	SCTPSrc:      {name: "sctp_src", class: classBasic, id: 17, bits: 16, maskable: true, format: formatDecimal, needs: needsSCTP},
	SCTPDst:      {name: "sctp_dst", class: classBasic, id: 18, bits: 16, maskable: true, format: formatDecimal, needs: needsSCTP},
	TCPFlags:     {name: "tcp_flags", class: classBasic, id: 42, bits: 12, maskable: true, readOnly: true, format: formatTCPFlags, needs: needsTCP, oldClass: classNicira1, oldID: 34},
	ICMPType:     {name: "icmp_type", class: classBasic, id: 19, bits: 8, format: formatDecimal, needs: needsICMPv4, oldClass: classNicira0, oldID: 13},
	ICMPCode:     {name: "icmp_code", class: classBasic, id: 20, bits: 8, format: formatDecimal, needs: needsICMPv4, oldClass: classNicira0, oldID: 14},
	ICMPv6Type:   {name: "icmpv6_type", class: classBasic, id: 29, bits: 8, format: formatDecimal, needs: needsICMPv6, oldClass: classNicira1, oldID: 21},
	ICMPv6Code:   {name: "icmpv6_code", class: classBasic, id: 30, bits: 8, format: formatDecimal, needs: needsICMPv6, oldClass: classNicira1, oldID: 22},
	NDTarget:     {name: "nd_target", class: classBasic, id: 31, bits: 128, maskable: true, format: formatIPv6, needs: needsND, oldClass: classNicira1, oldID: 23},
	NDSLL:        {name: "nd_sll", class: classBasic, id: 32, bits: 48, maskable: true, format: formatMAC, needs: needsNDSolicit, oldClass: classNicira1, oldID: 24},
	NDTLL:        {name: "nd_tll", class: classBasic, id: 33, bits: 48, maskable: true, format: formatMAC, needs: needsNDAdvert, oldClass: classNicira1, oldID: 25},
	CTState:      {name: "ct_state", class: classNicira1, id: 105, bits: 32, maskable: true, readOnly: true, format: formatCTState},
	CTZone:       {name: "ct_zone", class: classNicira1, id: 106, bits: 16, readOnly: true, format: formatHex},
	CTMark:       {name: "ct_mark", class: classNicira1, id: 107, bits: 32, maskable: true, format: formatHex},
	CTLabel:      {name: "ct_label", class: classNicira1, id: 108, bits: 128, maskable: true, format: formatHex},
	CTNwProto:    {name: "ct_nw_proto", class: classNicira1, id: 119, bits: 8, readOnly: true, format: formatDecimal, needs: needsCT},
	CTNwSrc:      {name: "ct_nw_src", class: classNicira1, id: 120, bits: 32, maskable: true, readOnly: true, format: formatIPv4, needs: needsCT4},
	CTNwDst:      {name: "ct_nw_dst", class: classNicira1, id: 121, bits: 32, maskable: true, readOnly: true, format: formatIPv4, needs: needsCT4},
	CTIPv6Src:    {name: "ct_ipv6_src", class: classNicira1, id: 122, bits: 128, maskable: true, readOnly: true, format: formatIPv6, needs: needsCT6},
	CTIPv6Dst:    {name: "ct_ipv6_dst", class: classNicira1, id: 123, bits: 128, maskable: true, readOnly: true, format: formatIPv6, needs: needsCT6},
	CTTpSrc:      {name: "ct_tp_src", class: classNicira1, id: 124, bits: 16, maskable: true, readOnly: true, format: formatDecimal, needs: needsCTPort},
	CTTpDst:      {name: "ct_tp_dst", class: classNicira1, id: 125, bits: 16, maskable: true, readOnly: true, format: formatDecimal, needs: needsCTPort},
}
