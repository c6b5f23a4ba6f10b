package ofprint

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// fieldOrder is the names of all fields in the order of Open vSwitch's meta-flow.h, in which
// table features are printed. Fields that no message can name are left out.
var fieldOrder = func() []string {
	var out []string
	for _, name := range strings.Fields(`
		dp_hash recirc_id packet_type conj_id tun_id tun_src tun_dst tun_ipv6_src tun_ipv6_dst
		tun_flags tun_gbp_id tun_gbp_flags tun_erspan_idx tun_erspan_ver tun_erspan_dir
		tun_erspan_hwid tun_gtpu_flags tun_gtpu_msgtype tun_metadata*64 metadata in_port in_port_oxm
		actset_output pkt_mark ct_state ct_zone ct_mark ct_label ct_nw_proto ct_nw_src ct_nw_dst
		ct_ipv6_src ct_ipv6_dst ct_tp_src ct_tp_dst reg*16 xreg*8 xxreg*4
		eth_src eth_dst eth_type vlan_tci vlan_vid vlan_pcp mpls_label mpls_tc mpls_bos mpls_ttl
		ip_src ip_dst ipv6_src ipv6_dst ipv6_label nw_proto nw_tos ip_dscp nw_ecn nw_ttl ip_frag
		arp_op arp_spa arp_tpa arp_sha arp_tha tcp_src tcp_dst tcp_flags udp_src udp_dst
		sctp_src sctp_dst icmp_type icmp_code icmpv6_type icmpv6_code nd_target nd_sll nd_tll
		nd_reserved nd_options_type nsh_flags nsh_mdtype nsh_np nsh_spi nsh_si
		nsh_c1 nsh_c2 nsh_c3 nsh_c4 nsh_ttl`) {
		stem, count, many := strings.Cut(name, "*")
		if !many {
			out = append(out, name)
			continue
		}
		var n int
		if _, err := fmt.Sscan(count, &n); err != nil {
			panic(err)
		}
		for i := range n {
			out = append(out, fmt.Sprintf("%s%d", stem, i))
		}
	}
	return out
}()

var fieldPlaces = func() map[string]int {
	m := map[string]int{}
	for i, name := range fieldOrder {
		m[name] = i
	}
	return m
}()

// fieldHeaders names fields by vendor, class and number of their OXM headers (meta-flow.h):
// those that package ofp has no field for, or writes with another header.
var fieldHeaders = func() map[uint64]string {
	m := map[uint64]string{}
	add := func(vendor uint32, class uint16, first int, names ...string) {
		for i, name := range names {
			if name != "" {
				m[headerKey(vendor, class, uint8(first+i))] = name
			}
		}
	}
	add(0, 0, 0, "in_port", "eth_dst", "eth_src", "eth_type", "vlan_tci", "nw_tos", "nw_proto", "ip_src", "ip_dst",
		"tcp_src", "tcp_dst", "udp_src", "udp_dst", "icmp_type", "icmp_code", "arp_op", "arp_spa", "arp_tpa")
	for i := range 16 {
		add(0, 1, i, fmt.Sprintf("reg%d", i))
	}
	add(0, 1, 16, "tun_id", "arp_sha", "arp_tha", "ipv6_src", "ipv6_dst", "icmpv6_type", "icmpv6_code", "nd_target",
		"nd_sll", "nd_tll", "ip_frag", "ipv6_label", "nw_ecn", "nw_ttl", "mpls_ttl", "tun_src", "tun_dst", "pkt_mark",
		"tcp_flags", "dp_hash", "recirc_id", "conj_id", "tun_gbp_id", "tun_gbp_flags")
	for i := range 64 {
		add(0, 1, 40+i, fmt.Sprintf("tun_metadata%d", i))
	}
	add(0, 1, 104, "tun_flags", "ct_state", "ct_zone", "ct_mark", "ct_label", "tun_ipv6_src", "tun_ipv6_dst",
		"xxreg0", "xxreg1", "xxreg2", "xxreg3", "", "", "", "", "ct_nw_proto", "ct_nw_src", "ct_nw_dst", "ct_ipv6_src",
		"ct_ipv6_dst", "ct_tp_src", "ct_tp_dst")
	add(0, 0x8000, 0, "in_port_oxm", "", "metadata", "eth_dst", "eth_src", "eth_type", "vlan_vid", "vlan_pcp", "ip_dscp",
		"nw_ecn", "nw_proto", "ip_src", "ip_dst", "tcp_src", "tcp_dst", "udp_src", "udp_dst", "sctp_src", "sctp_dst",
		"icmp_type", "icmp_code", "arp_op", "arp_spa", "arp_tpa", "arp_sha", "arp_tha", "ipv6_src", "ipv6_dst",
		"ipv6_label", "icmpv6_type", "icmpv6_code", "nd_target", "nd_sll", "nd_tll", "mpls_label", "mpls_tc", "mpls_bos",
		"", "tun_id", "", "", "", "tcp_flags", "actset_output", "packet_type")
	for i := range 8 {
		add(0, 0x8001, i, fmt.Sprintf("xreg%d", i))
	}
	add(onfVendor, 0xffff, 42, "tcp_flags", "actset_output")
	add(nxVendor, 0xffff, 0, "dp_hash")
	add(nxVendor, 0xffff, 11, "tun_erspan_idx", "tun_erspan_ver", "tun_erspan_dir", "tun_erspan_hwid", "tun_gtpu_flags", "tun_gtpu_msgtype")
	add(0x005ad650, 0xffff, 1, "nsh_flags", "nsh_mdtype", "nsh_np", "nsh_spi", "nsh_si", "nsh_c1", "nsh_c2", "nsh_c3", "nsh_c4", "nsh_ttl")
	add(0, 0x1000, 1, "nd_reserved", "nd_options_type")
	return m
}()

func headerKey(vendor uint32, class uint16, number uint8) uint64 {
	return uint64(vendor)<<32 | uint64(class)<<8 | uint64(number)
}

// fieldPlace is a field's place in fieldOrder; ok is false for what Open vSwitch does not know.
func fieldPlace(id ofp.FieldID) (place int, ok bool) {
	if id.Raw == "" {
		name := id.Field.String()
		if id.Field == ofp.InPort { // in_port is that of OpenFlow 1.0, with 16 bits
			name = "in_port_oxm"
		}
		place, ok = fieldPlaces[name]
		return place, ok
	}
	h := []byte(id.Raw)
	if len(h) < 4 {
		return 0, false
	}
	var vendor uint32
	class := binary.BigEndian.Uint16(h)
	if class == 0xffff {
		if len(h) < 8 {
			return 0, false
		}
		vendor = binary.BigEndian.Uint32(h[4:])
	}
	place, ok = fieldPlaces[fieldHeaders[headerKey(vendor, class, h[2]>>1)]]
	return place, ok
}
