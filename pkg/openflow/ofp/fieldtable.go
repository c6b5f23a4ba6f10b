package ofp

import "fmt"

// header is what names a field on the wire, and its name in OVS.
type header struct {
	class uint16
	id    uint8
	name  string
}

// fieldInfo describes a field. match, set_field and move use its oxm header. nxm is an older header that Nicira's own
// actions still use. also is one more that is understood. Headers without a name do not exist.
type fieldInfo struct {
	name, alias    string
	bits           uint16
	maskable       bool
	readOnly       bool
	format         format
	needs          needs
	since          string // Open vSwitch that came with it; "" for all since 3.1
	oxm, nxm, also header
}

// headers are the headers that the field has, the newest first.
func (i *fieldInfo) headers() []header {
	all := []header{i.oxm, i.nxm, i.also}
	list := all[:0]
	for _, h := range all {
		if h.name != "" {
			list = append(list, h)
		}
	}
	return list
}

// longest is how many bytes a tunnel option has at most (geneve.h, TLV_MAX_OPT_SIZE).
const longest = 124

// fields has every known field. Encoding, decoding, the text form and docs/openflow-fields.md all come from here.
// Source: Open vSwitch's meta-flow.h.
var fields = func() [fieldCount]fieldInfo {
	table := [fieldCount]fieldInfo{
		PacketType:     {name: "packet_type", bits: 32, readOnly: true, format: formatPacketType, oxm: header{classBasic, 44, "OXM_OF_PACKET_TYPE"}},
		InPort:         {name: "in_port_oxm", bits: 32, format: formatPort, oxm: header{classBasic, 0, "OXM_OF_IN_PORT"}},
		ActsetOutput:   {name: "actset_output", bits: 32, readOnly: true, format: formatPort, oxm: header{classBasic, 43, "OXM_OF_ACTSET_OUTPUT"}, nxm: header{classONF, 43, "ONFOXM_ET_ACTSET_OUTPUT"}},
		DPHash:         {name: "dp_hash", bits: 32, maskable: true, readOnly: true, format: formatHex, oxm: header{classNXOXM, 0, "NXOXM_ET_DP_HASH"}, nxm: header{classNicira1, 35, "NXM_NX_DP_HASH"}},
		RecircID:       {name: "recirc_id", bits: 32, readOnly: true, oxm: header{classNicira1, 36, "NXM_NX_RECIRC_ID"}},
		ConjID:         {name: "conj_id", bits: 32, readOnly: true, oxm: header{classNicira1, 37, "NXM_NX_CONJ_ID"}},
		Metadata:       {name: "metadata", bits: 64, maskable: true, format: formatHex, oxm: header{classBasic, 2, "OXM_OF_METADATA"}},
		TunID:          {name: "tun_id", alias: "tunnel_id", bits: 64, maskable: true, format: formatHex, oxm: header{classBasic, 38, "OXM_OF_TUNNEL_ID"}, nxm: header{classNicira1, 16, "NXM_NX_TUN_ID"}},
		TunIPv4Src:     {name: "tun_src", bits: 32, maskable: true, format: formatIPv4, oxm: header{classNicira1, 31, "NXM_NX_TUN_IPV4_SRC"}},
		TunIPv4Dst:     {name: "tun_dst", bits: 32, maskable: true, format: formatIPv4, oxm: header{classNicira1, 32, "NXM_NX_TUN_IPV4_DST"}},
		TunIPv6Src:     {name: "tun_ipv6_src", bits: 128, maskable: true, format: formatIPv6, oxm: header{classNicira1, 109, "NXM_NX_TUN_IPV6_SRC"}},
		TunIPv6Dst:     {name: "tun_ipv6_dst", bits: 128, maskable: true, format: formatIPv6, oxm: header{classNicira1, 110, "NXM_NX_TUN_IPV6_DST"}},
		TunFlags:       {name: "tun_flags", bits: 1, maskable: true, format: formatTunFlags, oxm: header{classNicira1, 104, "NXM_NX_TUN_FLAGS"}},
		TunGBPID:       {name: "tun_gbp_id", bits: 16, maskable: true, oxm: header{classNicira1, 38, "NXM_NX_TUN_GBP_ID"}},
		TunGBPFlags:    {name: "tun_gbp_flags", bits: 8, maskable: true, format: formatHex, oxm: header{classNicira1, 39, "NXM_NX_TUN_GBP_FLAGS"}},
		TunERSPANIdx:   {name: "tun_erspan_idx", bits: 20, maskable: true, format: formatHex, oxm: header{classNXOXM, 11, "NXOXM_ET_ERSPAN_IDX"}},
		TunERSPANVer:   {name: "tun_erspan_ver", bits: 4, maskable: true, oxm: header{classNXOXM, 12, "NXOXM_ET_ERSPAN_VER"}},
		TunERSPANDir:   {name: "tun_erspan_dir", bits: 1, maskable: true, oxm: header{classNXOXM, 13, "NXOXM_ET_ERSPAN_DIR"}},
		TunERSPANHWID:  {name: "tun_erspan_hwid", bits: 6, maskable: true, format: formatHex, oxm: header{classNXOXM, 14, "NXOXM_ET_ERSPAN_HWID"}},
		TunGTPUFlags:   {name: "tun_gtpu_flags", bits: 8, maskable: true, readOnly: true, format: formatHex, oxm: header{classNXOXM, 15, "NXOXM_ET_GTPU_FLAGS"}},
		TunGTPUMsgType: {name: "tun_gtpu_msgtype", bits: 8, maskable: true, readOnly: true, oxm: header{classNXOXM, 16, "NXOXM_ET_GTPU_MSGTYPE"}},
		PktMark:        {name: "pkt_mark", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 33, "NXM_NX_PKT_MARK"}},
		Reg0:           {name: "reg0", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 0, "NXM_NX_REG0"}},
		Reg1:           {name: "reg1", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 1, "NXM_NX_REG1"}},
		Reg2:           {name: "reg2", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 2, "NXM_NX_REG2"}},
		Reg3:           {name: "reg3", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 3, "NXM_NX_REG3"}},
		Reg4:           {name: "reg4", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 4, "NXM_NX_REG4"}},
		Reg5:           {name: "reg5", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 5, "NXM_NX_REG5"}},
		Reg6:           {name: "reg6", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 6, "NXM_NX_REG6"}},
		Reg7:           {name: "reg7", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 7, "NXM_NX_REG7"}},
		Reg8:           {name: "reg8", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 8, "NXM_NX_REG8"}},
		Reg9:           {name: "reg9", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 9, "NXM_NX_REG9"}},
		Reg10:          {name: "reg10", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 10, "NXM_NX_REG10"}},
		Reg11:          {name: "reg11", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 11, "NXM_NX_REG11"}},
		Reg12:          {name: "reg12", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 12, "NXM_NX_REG12"}},
		Reg13:          {name: "reg13", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 13, "NXM_NX_REG13"}},
		Reg14:          {name: "reg14", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 14, "NXM_NX_REG14"}},
		Reg15:          {name: "reg15", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 15, "NXM_NX_REG15"}},
		Reg16:          {name: "reg16", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 17, "NXOXM_ET_REG16"}},
		Reg17:          {name: "reg17", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 18, "NXOXM_ET_REG17"}},
		Reg18:          {name: "reg18", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 19, "NXOXM_ET_REG18"}},
		Reg19:          {name: "reg19", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 20, "NXOXM_ET_REG19"}},
		Reg20:          {name: "reg20", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 21, "NXOXM_ET_REG20"}},
		Reg21:          {name: "reg21", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 22, "NXOXM_ET_REG21"}},
		Reg22:          {name: "reg22", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 23, "NXOXM_ET_REG22"}},
		Reg23:          {name: "reg23", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 24, "NXOXM_ET_REG23"}},
		Reg24:          {name: "reg24", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 25, "NXOXM_ET_REG24"}},
		Reg25:          {name: "reg25", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 26, "NXOXM_ET_REG25"}},
		Reg26:          {name: "reg26", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 27, "NXOXM_ET_REG26"}},
		Reg27:          {name: "reg27", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 28, "NXOXM_ET_REG27"}},
		Reg28:          {name: "reg28", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 29, "NXOXM_ET_REG28"}},
		Reg29:          {name: "reg29", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 30, "NXOXM_ET_REG29"}},
		Reg30:          {name: "reg30", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 31, "NXOXM_ET_REG30"}},
		Reg31:          {name: "reg31", bits: 32, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 32, "NXOXM_ET_REG31"}},
		XReg0:          {name: "xreg0", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 0, "OXM_OF_PKT_REG0"}},
		XReg1:          {name: "xreg1", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 1, "OXM_OF_PKT_REG1"}},
		XReg2:          {name: "xreg2", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 2, "OXM_OF_PKT_REG2"}},
		XReg3:          {name: "xreg3", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 3, "OXM_OF_PKT_REG3"}},
		XReg4:          {name: "xreg4", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 4, "OXM_OF_PKT_REG4"}},
		XReg5:          {name: "xreg5", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 5, "OXM_OF_PKT_REG5"}},
		XReg6:          {name: "xreg6", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 6, "OXM_OF_PKT_REG6"}},
		XReg7:          {name: "xreg7", bits: 64, maskable: true, format: formatHex, oxm: header{classPacketRegs, 7, "OXM_OF_PKT_REG7"}},
		XReg8:          {name: "xreg8", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 8, "OXM_OF_PKT_REG8"}},
		XReg9:          {name: "xreg9", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 9, "OXM_OF_PKT_REG9"}},
		XReg10:         {name: "xreg10", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 10, "OXM_OF_PKT_REG10"}},
		XReg11:         {name: "xreg11", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 11, "OXM_OF_PKT_REG11"}},
		XReg12:         {name: "xreg12", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 12, "OXM_OF_PKT_REG12"}},
		XReg13:         {name: "xreg13", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 13, "OXM_OF_PKT_REG13"}},
		XReg14:         {name: "xreg14", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 14, "OXM_OF_PKT_REG14"}},
		XReg15:         {name: "xreg15", bits: 64, maskable: true, format: formatHex, since: "3.7", oxm: header{classPacketRegs, 15, "OXM_OF_PKT_REG15"}},
		XXReg0:         {name: "xxreg0", bits: 128, maskable: true, format: formatHex, oxm: header{classNicira1, 111, "NXM_NX_XXREG0"}},
		XXReg1:         {name: "xxreg1", bits: 128, maskable: true, format: formatHex, oxm: header{classNicira1, 112, "NXM_NX_XXREG1"}},
		XXReg2:         {name: "xxreg2", bits: 128, maskable: true, format: formatHex, oxm: header{classNicira1, 113, "NXM_NX_XXREG2"}},
		XXReg3:         {name: "xxreg3", bits: 128, maskable: true, format: formatHex, oxm: header{classNicira1, 114, "NXM_NX_XXREG3"}},
		XXReg4:         {name: "xxreg4", bits: 128, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 33, "NXOXM_ET_XXREG4"}},
		XXReg5:         {name: "xxreg5", bits: 128, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 34, "NXOXM_ET_XXREG5"}},
		XXReg6:         {name: "xxreg6", bits: 128, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 35, "NXOXM_ET_XXREG6"}},
		XXReg7:         {name: "xxreg7", bits: 128, maskable: true, format: formatHex, since: "3.7", oxm: header{classNXOXM, 36, "NXOXM_ET_XXREG7"}},
		EthSrc:         {name: "eth_src", alias: "dl_src", bits: 48, maskable: true, format: formatMAC, needs: needsEth, oxm: header{classBasic, 4, "OXM_OF_ETH_SRC"}, nxm: header{classNicira0, 2, "NXM_OF_ETH_SRC"}},
		EthDst:         {name: "eth_dst", alias: "dl_dst", bits: 48, maskable: true, format: formatMAC, needs: needsEth, oxm: header{classBasic, 3, "OXM_OF_ETH_DST"}, nxm: header{classNicira0, 1, "NXM_OF_ETH_DST"}},
		EthType:        {name: "eth_type", alias: "dl_type", bits: 16, readOnly: true, format: formatHex, needs: needsEth, oxm: header{classBasic, 5, "OXM_OF_ETH_TYPE"}, nxm: header{classNicira0, 3, "NXM_OF_ETH_TYPE"}},
		VLANVID:        {name: "vlan_vid", bits: 13, maskable: true, needs: needsEth, oxm: header{classBasic, 6, "OXM_OF_VLAN_VID"}},
		VLANPCP:        {name: "vlan_pcp", bits: 3, needs: needsVLAN, oxm: header{classBasic, 7, "OXM_OF_VLAN_PCP"}},
		MPLSLabel:      {name: "mpls_label", bits: 20, needs: needsMPLS, oxm: header{classBasic, 34, "OXM_OF_MPLS_LABEL"}},
		MPLSTC:         {name: "mpls_tc", bits: 3, needs: needsMPLS, oxm: header{classBasic, 35, "OXM_OF_MPLS_TC"}},
		MPLSBOS:        {name: "mpls_bos", bits: 1, readOnly: true, needs: needsMPLS, oxm: header{classBasic, 36, "OXM_OF_MPLS_BOS"}},
		MPLSTTL:        {name: "mpls_ttl", bits: 8, needs: needsMPLS, oxm: header{classNicira1, 30, "NXM_NX_MPLS_TTL"}},
		IPv4Src:        {name: "ip_src", alias: "nw_src", bits: 32, maskable: true, format: formatIPv4, needs: needsIPv4, oxm: header{classBasic, 11, "OXM_OF_IPV4_SRC"}, nxm: header{classNicira0, 7, "NXM_OF_IP_SRC"}},
		IPv4Dst:        {name: "ip_dst", alias: "nw_dst", bits: 32, maskable: true, format: formatIPv4, needs: needsIPv4, oxm: header{classBasic, 12, "OXM_OF_IPV4_DST"}, nxm: header{classNicira0, 8, "NXM_OF_IP_DST"}},
		IPv6Src:        {name: "ipv6_src", bits: 128, maskable: true, format: formatIPv6, needs: needsIPv6, oxm: header{classBasic, 26, "OXM_OF_IPV6_SRC"}, nxm: header{classNicira1, 19, "NXM_NX_IPV6_SRC"}},
		IPv6Dst:        {name: "ipv6_dst", bits: 128, maskable: true, format: formatIPv6, needs: needsIPv6, oxm: header{classBasic, 27, "OXM_OF_IPV6_DST"}, nxm: header{classNicira1, 20, "NXM_NX_IPV6_DST"}},
		IPv6Label:      {name: "ipv6_label", bits: 20, maskable: true, format: formatHex, needs: needsIPv6, oxm: header{classBasic, 28, "OXM_OF_IPV6_FLABEL"}, nxm: header{classNicira1, 27, "NXM_NX_IPV6_LABEL"}},
		IPProto:        {name: "nw_proto", alias: "ip_proto", bits: 8, readOnly: true, needs: needsIP, oxm: header{classBasic, 10, "OXM_OF_IP_PROTO"}, nxm: header{classNicira0, 6, "NXM_OF_IP_PROTO"}},
		IPDSCP:         {name: "ip_dscp", bits: 6, needs: needsIP, oxm: header{classBasic, 8, "OXM_OF_IP_DSCP"}},
		IPECN:          {name: "nw_ecn", alias: "ip_ecn", bits: 2, needs: needsIP, oxm: header{classBasic, 9, "OXM_OF_IP_ECN"}, nxm: header{classNicira1, 28, "NXM_NX_IP_ECN"}},
		IPTTL:          {name: "nw_ttl", bits: 8, needs: needsIP, oxm: header{classNicira1, 29, "NXM_NX_IP_TTL"}},
		IPFrag:         {name: "ip_frag", alias: "nw_frag", bits: 2, maskable: true, readOnly: true, format: formatFrag, needs: needsIP, oxm: header{classNicira1, 26, "NXM_NX_IP_FRAG"}},
		ARPOp:          {name: "arp_op", bits: 16, needs: needsARP, oxm: header{classBasic, 21, "OXM_OF_ARP_OP"}, nxm: header{classNicira0, 15, "NXM_OF_ARP_OP"}},
		ARPSPA:         {name: "arp_spa", bits: 32, maskable: true, format: formatIPv4, needs: needsARP, oxm: header{classBasic, 22, "OXM_OF_ARP_SPA"}, nxm: header{classNicira0, 16, "NXM_OF_ARP_SPA"}},
		ARPTPA:         {name: "arp_tpa", bits: 32, maskable: true, format: formatIPv4, needs: needsARP, oxm: header{classBasic, 23, "OXM_OF_ARP_TPA"}, nxm: header{classNicira0, 17, "NXM_OF_ARP_TPA"}},
		ARPSHA:         {name: "arp_sha", bits: 48, maskable: true, format: formatMAC, needs: needsARP, oxm: header{classBasic, 24, "OXM_OF_ARP_SHA"}, nxm: header{classNicira1, 17, "NXM_NX_ARP_SHA"}},
		ARPTHA:         {name: "arp_tha", bits: 48, maskable: true, format: formatMAC, needs: needsARP, oxm: header{classBasic, 25, "OXM_OF_ARP_THA"}, nxm: header{classNicira1, 18, "NXM_NX_ARP_THA"}},
		TCPSrc:         {name: "tcp_src", alias: "tp_src", bits: 16, maskable: true, needs: needsTCP, oxm: header{classBasic, 13, "OXM_OF_TCP_SRC"}, nxm: header{classNicira0, 9, "NXM_OF_TCP_SRC"}},
		TCPDst:         {name: "tcp_dst", alias: "tp_dst", bits: 16, maskable: true, needs: needsTCP, oxm: header{classBasic, 14, "OXM_OF_TCP_DST"}, nxm: header{classNicira0, 10, "NXM_OF_TCP_DST"}},
		UDPSrc:         {name: "udp_src", bits: 16, maskable: true, needs: needsUDP, oxm: header{classBasic, 15, "OXM_OF_UDP_SRC"}, nxm: header{classNicira0, 11, "NXM_OF_UDP_SRC"}},
		UDPDst:         {name: "udp_dst", bits: 16, maskable: true, needs: needsUDP, oxm: header{classBasic, 16, "OXM_OF_UDP_DST"}, nxm: header{classNicira0, 12, "NXM_OF_UDP_DST"}},
		SCTPSrc:        {name: "sctp_src", bits: 16, maskable: true, needs: needsSCTP, oxm: header{classBasic, 17, "OXM_OF_SCTP_SRC"}},
		SCTPDst:        {name: "sctp_dst", bits: 16, maskable: true, needs: needsSCTP, oxm: header{classBasic, 18, "OXM_OF_SCTP_DST"}},
		TCPFlags:       {name: "tcp_flags", bits: 12, maskable: true, readOnly: true, format: formatTCPFlags, needs: needsTCP, oxm: header{classBasic, 42, "OXM_OF_TCP_FLAGS"}, nxm: header{classNicira1, 34, "NXM_NX_TCP_FLAGS"}, also: header{classONF, 42, "ONFOXM_ET_TCP_FLAGS"}},
		ICMPType:       {name: "icmp_type", bits: 8, needs: needsICMPv4, oxm: header{classBasic, 19, "OXM_OF_ICMPV4_TYPE"}, nxm: header{classNicira0, 13, "NXM_OF_ICMP_TYPE"}},
		ICMPCode:       {name: "icmp_code", bits: 8, needs: needsICMPv4, oxm: header{classBasic, 20, "OXM_OF_ICMPV4_CODE"}, nxm: header{classNicira0, 14, "NXM_OF_ICMP_CODE"}},
		ICMPv6Type:     {name: "icmpv6_type", bits: 8, needs: needsICMPv6, oxm: header{classBasic, 29, "OXM_OF_ICMPV6_TYPE"}, nxm: header{classNicira1, 21, "NXM_NX_ICMPV6_TYPE"}},
		ICMPv6Code:     {name: "icmpv6_code", bits: 8, needs: needsICMPv6, oxm: header{classBasic, 30, "OXM_OF_ICMPV6_CODE"}, nxm: header{classNicira1, 22, "NXM_NX_ICMPV6_CODE"}},
		NDReserved:     {name: "nd_reserved", bits: 32, needs: needsND, oxm: header{classEricsson, 1, "ERICOXM_OF_ICMPV6_ND_RESERVED"}},
		NDTarget:       {name: "nd_target", bits: 128, maskable: true, format: formatIPv6, needs: needsND, oxm: header{classBasic, 31, "OXM_OF_IPV6_ND_TARGET"}, nxm: header{classNicira1, 23, "NXM_NX_ND_TARGET"}},
		NDOptionsType:  {name: "nd_options_type", bits: 8, needs: needsND, oxm: header{classEricsson, 2, "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE"}},
		NDSLL:          {name: "nd_sll", bits: 48, maskable: true, format: formatMAC, needs: needsNDSolicit, oxm: header{classBasic, 32, "OXM_OF_IPV6_ND_SLL"}, nxm: header{classNicira1, 24, "NXM_NX_ND_SLL"}},
		NDTLL:          {name: "nd_tll", bits: 48, maskable: true, format: formatMAC, needs: needsNDAdvert, oxm: header{classBasic, 33, "OXM_OF_IPV6_ND_TLL"}, nxm: header{classNicira1, 25, "NXM_NX_ND_TLL"}},
		NSHFlags:       {name: "nsh_flags", bits: 8, maskable: true, needs: needsNSH, oxm: header{classNSH, 1, "NXOXM_NSH_FLAGS"}},
		NSHMDType:      {name: "nsh_mdtype", bits: 8, readOnly: true, needs: needsNSH, oxm: header{classNSH, 2, "NXOXM_NSH_MDTYPE"}},
		NSHNP:          {name: "nsh_np", bits: 8, readOnly: true, needs: needsNSH, oxm: header{classNSH, 3, "NXOXM_NSH_NP"}},
		NSHSPI:         {name: "nsh_spi", alias: "nsp", bits: 24, format: formatHex, needs: needsNSH, oxm: header{classNSH, 4, "NXOXM_NSH_SPI"}},
		NSHSI:          {name: "nsh_si", alias: "nsi", bits: 8, needs: needsNSH, oxm: header{classNSH, 5, "NXOXM_NSH_SI"}},
		NSHC1:          {name: "nsh_c1", alias: "nshc1", bits: 32, maskable: true, format: formatHex, needs: needsNSH, oxm: header{classNSH, 6, "NXOXM_NSH_C1"}},
		NSHC2:          {name: "nsh_c2", alias: "nshc2", bits: 32, maskable: true, format: formatHex, needs: needsNSH, oxm: header{classNSH, 7, "NXOXM_NSH_C2"}},
		NSHC3:          {name: "nsh_c3", alias: "nshc3", bits: 32, maskable: true, format: formatHex, needs: needsNSH, oxm: header{classNSH, 8, "NXOXM_NSH_C3"}},
		NSHC4:          {name: "nsh_c4", alias: "nshc4", bits: 32, maskable: true, format: formatHex, needs: needsNSH, oxm: header{classNSH, 9, "NXOXM_NSH_C4"}},
		NSHTTL:         {name: "nsh_ttl", bits: 8, needs: needsNSH, oxm: header{classNSH, 10, "NXOXM_NSH_TTL"}},
		CTState:        {name: "ct_state", bits: 32, maskable: true, readOnly: true, format: formatCTState, oxm: header{classNicira1, 105, "NXM_NX_CT_STATE"}},
		CTZone:         {name: "ct_zone", bits: 16, readOnly: true, format: formatHex, oxm: header{classNicira1, 106, "NXM_NX_CT_ZONE"}},
		CTMark:         {name: "ct_mark", bits: 32, maskable: true, format: formatHex, oxm: header{classNicira1, 107, "NXM_NX_CT_MARK"}},
		CTLabel:        {name: "ct_label", bits: 128, maskable: true, format: formatHex, oxm: header{classNicira1, 108, "NXM_NX_CT_LABEL"}},
		CTNwProto:      {name: "ct_nw_proto", bits: 8, readOnly: true, needs: needsCT, oxm: header{classNicira1, 119, "NXM_NX_CT_NW_PROTO"}},
		CTNwSrc:        {name: "ct_nw_src", bits: 32, maskable: true, readOnly: true, format: formatIPv4, needs: needsCT4, oxm: header{classNicira1, 120, "NXM_NX_CT_NW_SRC"}},
		CTNwDst:        {name: "ct_nw_dst", bits: 32, maskable: true, readOnly: true, format: formatIPv4, needs: needsCT4, oxm: header{classNicira1, 121, "NXM_NX_CT_NW_DST"}},
		CTIPv6Src:      {name: "ct_ipv6_src", bits: 128, maskable: true, readOnly: true, format: formatIPv6, needs: needsCT6, oxm: header{classNicira1, 122, "NXM_NX_CT_IPV6_SRC"}},
		CTIPv6Dst:      {name: "ct_ipv6_dst", bits: 128, maskable: true, readOnly: true, format: formatIPv6, needs: needsCT6, oxm: header{classNicira1, 123, "NXM_NX_CT_IPV6_DST"}},
		CTTpSrc:        {name: "ct_tp_src", bits: 16, maskable: true, readOnly: true, needs: needsCTPort, oxm: header{classNicira1, 124, "NXM_NX_CT_TP_SRC"}},
		CTTpDst:        {name: "ct_tp_dst", bits: 16, maskable: true, readOnly: true, needs: needsCTPort, oxm: header{classNicira1, 125, "NXM_NX_CT_TP_DST"}},
		NXMInPort:      {name: "in_port", bits: 16, format: formatPort16, oxm: header{classNicira0, 0, "NXM_OF_IN_PORT"}},
		VLANTCI:        {name: "vlan_tci", bits: 16, maskable: true, format: formatHex, needs: needsEth, oxm: header{classNicira0, 4, "NXM_OF_VLAN_TCI"}},
		IPTOS:          {name: "nw_tos", bits: 8, needs: needsIP, oxm: header{classNicira0, 5, "NXM_OF_IP_TOS"}},
	}
	for n := range 64 {
		table[TunMetadata(n)] = fieldInfo{
			name: fmt.Sprintf("tun_metadata%d", n), bits: 8 * longest, maskable: true, format: formatHex,
			oxm: header{classNicira1, uint8(40 + n), fmt.Sprintf("NXM_NX_TUN_METADATA%d", n)},
		}
	}
	return table
}()
