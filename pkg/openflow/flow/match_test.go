package flow

import (
	"net/netip"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Flows of IPv6 in ovs-ofctl's text, which TestLive writes into a real switch too.
const (
	ndAsked = "table=1,priority=200,icmp6,nw_ttl=255,icmp_type=135,icmp_code=0,nd_target=fd00::1," +
		"actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:aa:bb:cc:dd:ee:ff->eth_src," +
		"move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[],set_field:fd00::1->ipv6_src,set_field:136->icmpv6_type," +
		"set_field:3758096384->nd_reserved,set_field:2->nd_options_type,goto_table:3"
	ndAnswer = "table=3,priority=200,icmp6,icmp_type=136,icmp_code=0," +
		"actions=move:NXM_OF_ETH_SRC[]->NXM_NX_ND_TLL[],in_port"
	tcpFlagsV6 = "table=5,priority=201,tcp6,tcp_flags=+syn-ack,actions=drop"
	fragmentV6 = "table=5,priority=202,ipv6,ip_frag=yes,actions=drop"
)

// TestConditionsV6 compares conditions and actions with ovs-ofctl's text for the same flow.
func TestConditionsV6(t *testing.T) {
	at, mac := netip.MustParseAddr("fd00::1"), ofp.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	for _, test := range []struct {
		text string
		flow Flow
	}{
		{ndAsked, Flow{Table: 1, Priority: 200, Match: All(NDSolicits(at)), Actions: Do(
			MoveField(ofp.EthSrc, ofp.EthDst), SetEthSrc(mac), MoveField(ofp.IPv6Src, ofp.IPv6Dst), SetIPSrc(at),
			SetICMPv6Type(NeighborAdvertisement), SetNDReserved(NDRouter|NDSolicited|NDOverride),
			SetNDOption(NDTargetOption), Goto(3))}},
		{ndAnswer, Flow{Table: 3, Priority: 200,
			Match:   All(ICMPv6(), ICMPv6Type(NeighborAdvertisement), ICMPv6Code(0)),
			Actions: Do(MoveField(ofp.EthSrc, ofp.NDTLL), ToInPort())}},
		{tcpFlagsV6, Flow{Table: 5, Priority: 201, Match: All(IPv6(), TCPFlags("+syn-ack"))}},
		{fragmentV6, Flow{Table: 5, Priority: 202, Match: All(IPv6(), Fragment())}},
		{"table=5,priority=203,ip,ip_frag=yes,actions=drop", Flow{Table: 5, Priority: 203, Match: All(Fragment())}},
		{"table=5,priority=204,icmp6,nw_ttl=255,icmp_type=135,icmp_code=0,actions=drop",
			Flow{Table: 5, Priority: 204, Match: All(NDSolicitation())}},
	} {
		want, err := ParseFlow(test.text)
		if err != nil {
			t.Fatalf("%s: %v", test.text, err)
		}
		if err := test.flow.Err(); err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
		if !test.flow.Equal(want) {
			t.Errorf("have %s, want %s", test.flow, want)
		}
	}
	if err := All(NDSolicits(netip.MustParseAddr("10.0.0.1"))).Err(); err == nil {
		t.Error("a neighbour of IPv6 with an IPv4 address is no error")
	}
}
