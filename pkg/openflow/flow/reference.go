package flow

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Sources of fields and actions.
const (
	specSource  = "OpenFlow 1.5.1"
	niciraField = "Open vSwitch, meta-flow.h"
	nicira      = "Open vSwitch, ofp-actions.c"
)

// fieldSource returns the specification that defines a field.
func fieldSource(f ofp.Field) string {
	if v := f.Since(); v != "" {
		return "Open vSwitch since " + v + ", meta-flow.h"
	}
	switch f.Headers()[0].Class {
	case 0x8000:
		return specSource + ", 7.2.3"
	case 0x8001:
		return specSource + ", 7.2.3.10"
	}
	return niciraField
}

// formatNames is how values are written.
var formatNames = map[ofp.Format]string{
	ofp.FormatDecimal: "decimal", ofp.FormatHex: "hexadecimal", ofp.FormatMAC: "MAC address",
	ofp.FormatIPv4: "IPv4 address",
	ofp.FormatIPv6: "IPv6 address", ofp.FormatPort: "port", ofp.FormatPort16: "port",
	ofp.FormatCTState:  "flags: " + strings.Join(ctStates, ", "),
	ofp.FormatTCPFlags: "flags: " + strings.Join(tcpFlags[:9], ", "), ofp.FormatTunFlags: "flags: oam",
	ofp.FormatFrag: "no, yes, first, later, not_later", ofp.FormatPacketType: "(namespace,type)",
}

// onlyText are names of conditions that stand for fields, or for parts of them.
var onlyText = []struct{ name, means string }{
	{"ip, ipv4, ip4", "eth_type=0x0800"}, {"ipv6, ip6", "eth_type=0x86dd"}, {"arp", "eth_type=0x0806"},
	{"rarp", "eth_type=0x8035"},
	{"mpls, mplsm", "eth_type=0x8847, eth_type=0x8848"}, {"icmp, tcp, udp, sctp", "ip and nw_proto=1, 6, 17, 132"},
	{"icmp6, tcp6, udp6, sctp6", "ipv6 and nw_proto=58, 6, 17, 132"}, {"eth", "packet_type=(0,0)"},
	{"in_port", "in_port_oxm; in actions the field of 16 bits"},
	{"dl_vlan", "vlan_vid with the bit 0x1000; 0xffff for no tag"},
	{"dl_vlan_pcp", "vlan_pcp, and that there is a tag"}, {"vlan_tci", "vlan_vid and vlan_pcp"},
	{"nw_tos", "ip_dscp, shifted left by two"},
	{"tp_src, tp_dst", "the port fields of the protocol that is matched"},
	{"icmp_type, icmp_code", "icmpv6_type, icmpv6_code with icmp6"},
	{"nw_src, nw_dst, nw_proto", "arp_spa, arp_tpa, arp_op with arp or rarp"},
	{"FIELD[2..5]=7", "those bits of the field"},
}

// Reference returns the text of docs/openflow-fields.md: all fields and actions, with how they can be matched, written
// and read. It is made from the tables that encoding, decoding and text use.
func Reference() string {
	var b strings.Builder
	b.WriteString(`<!-- Code generated from pkg/openflow. DO NOT EDIT. -->
# OpenFlow fields and actions

What packages ` + "`ofp` and `flow`" + ` match, write and read in OpenFlow 1.5 with Open vSwitch's extensions. The
text has the form of ovs-ofctl.

## Fields

Stands for is what a field is called in moves and loads, with the class and number of its header; a class of ffff has
its experimenter's number behind it. A field can be matched where what it needs is matched too. Masks: single bits
can be matched. Set: actions can write it.

| field | other name | bits | masks | set | written as | needs | stands for | source |
|---|---|---|---|---|---|---|---|---|
`)
	for _, f := range ofp.Fields() {
		if f.Long() && f != ofp.TunMetadata0 {
			continue
		}
		b.WriteString(fieldRow(f))
	}
	b.WriteString(`
Tunnel options are tun_metadata0 to tun_metadata63, with the numbers 40 to 103, where a TLV table (` +
		"`ovs-ofctl add-tlv-map`" + `)
says so. Without a value, they match packets that have the option. in_port, vlan_tci and nw_tos are older views that
only actions know.

Other words that a match can have:

| word | means |
|---|---|
`)
	for _, w := range onlyText {
		fmt.Fprintf(&b, "| %s | %s |\n", w.name, w.means)
	}
	b.WriteString(`
## Actions

Needs is what must be matched, or done before, for the switch to take the action.

| action | what it does | needs | source |
|---|---|---|---|
`)
	for _, a := range actionForms {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", a.text, a.does, a.needs, a.source)
	}
	return b.String()
}

func fieldRow(f ofp.Field) string {
	yes := func(is bool) string {
		if is {
			return "yes"
		}
		return ""
	}
	var heads []string
	for _, h := range f.Headers() {
		s := fmt.Sprintf("%s %04x", h.Name, h.Class)
		if h.Vendor != 0 {
			s += fmt.Sprintf("/%08x", h.Vendor)
		}
		heads = append(heads, fmt.Sprintf("%s:%d", s, h.ID))
	}
	name, bits := f.String(), fmt.Sprint(f.Bits())
	if f == ofp.TunMetadata0 {
		name, bits = "tun_metadata0...63", "up to 992"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, f.Alias(), bits, yes(f.Maskable()),
		yes(f.Writable() && f != ofp.InPort),
		formatNames[f.Format()], f.Prerequisites(), strings.Join(heads, ", "), fieldSource(f))
}
