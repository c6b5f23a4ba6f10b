package oftest

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

var program = flow.Program{0: {Name: "First"}, 1: {Name: "Second"}, 2: {Name: "Third"}, 3: {Name: "Fourth"}}

func switchOf(t *testing.T, groups []flow.Group, flows ...string) *Switch {
	t.Helper()
	e := flow.Entries{Groups: groups}
	for _, text := range flows {
		f, err := flow.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		e.Flows = append(e.Flows, f)
	}
	s, err := New(program, e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tcp(in ofp.Port, from, to string) Packet {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	return Packet{InPort: in, IPSrc: src.Addr(), SrcPort: src.Port(), IPDst: dst.Addr(), DstPort: dst.Port(), Proto: TCP}
}

func TestWalk(t *testing.T) {
	p := tcp(1, "10.0.0.1:1000", "10.0.0.2:80")
	twoBuckets := []flow.Group{{ID: 1, Type: flow.Select, Buckets: []flow.Bucket{
		{ID: 1, Weight: 1, Actions: flow.Do(flow.Load(flow.Reg(1).Bits(0, 32), 7), flow.Resubmit(1))},
		{ID: 2, Weight: 1, Actions: flow.Do(flow.Output(9))},
	}}}
	for _, test := range []struct {
		name   string
		groups []flow.Group
		flows  []string
		want   string
	}{
		{"nothing matches", nil, []string{"table=0,udp,actions=output:2"}, "dropped in First (First)"},
		{"higher priority", nil, []string{"table=0,priority=1,actions=output:2", "table=0,priority=2,tcp,actions=output:3"},
			"to port 3: 10.0.0.1:1000 > 10.0.0.2:80 (First)"},
		{"two of one priority", nil, []string{"table=0,ip,actions=output:2", "table=0,in_port=1,actions=output:3"},
			"error: table First: 10.0.0.1:1000 > 10.0.0.2:80 meets two flows of one priority"},
		{"back only by in_port", nil, []string{"table=0,actions=output:1"}, "dropped in First (First)"},
		{"back by in_port", nil, []string{"table=0,actions=in_port"}, "to port 1: 10.0.0.1:1000 > 10.0.0.2:80 (First)"},
		{"registers and parts of them", nil, []string{
			"table=0,actions=set_field:0x30/0xf0->reg0,move:NXM_NX_REG0[4..7]->NXM_NX_REG1[8..11],goto_table:1",
			"table=1,reg1=0x300,xreg0=0x3000000300,actions=output:NXM_NX_REG1[8..11]",
		}, "to port 3: 10.0.0.1:1000 > 10.0.0.2:80 (First, Second)"},
		{"masks", nil, []string{
			"table=0,ip,nw_dst=10.0.0.2/31,tcp,tp_dst=80/0xfff0,actions=set_field:1.2.3.4->ip_dst,output:2"},
			"to port 2: 10.0.0.1:1000 > 1.2.3.4:80 (First)"},
		{"resubmit comes back with what it changed", nil,
			[]string{"table=0,actions=resubmit(,1),output:3", "table=1,tcp,actions=set_field:81->tcp_dst,output:2"},
			"to port 2: 10.0.0.1:1000 > 10.0.0.2:81; to port 3: 10.0.0.1:1000 > 10.0.0.2:81 (First, Second)"},
		{"clone does not", nil, []string{"table=0,tcp,actions=clone(set_field:81->tcp_dst,output:2),output:3"},
			"to port 2: 10.0.0.1:1000 > 10.0.0.2:81; to port 3: 10.0.0.1:1000 > 10.0.0.2:80 (First)"},
		{"group", twoBuckets, []string{"table=0,actions=group:1,output:NXM_NX_REG1[],output:4",
			"table=1,reg1=7,actions=output:2"},
			"to port 2: 10.0.0.1:1000 > 10.0.0.2:80; error: output to port 0x0"},
		{"what a bucket changes does not come back", twoBuckets,
			[]string{"table=0,actions=group:1,output:4", "table=1,reg1=7,actions=output:2"},
			"to port 2: 10.0.0.1:1000 > 10.0.0.2:80; to port 4: 10.0.0.1:1000 > 10.0.0.2:80 (First, Second)"},
		{"group that is not there", nil, []string{"table=0,actions=group:5"}, "error: group 5 is not there"},
		{"in circles", nil, []string{"table=0,actions=resubmit(,0)"}, "error: the packet goes in circles"},
		{"to the controller", nil, []string{"table=0,actions=controller(userdata=61.62)"},
			`to the controller with "ab" (First)`},
		{"tunnel", nil, []string{"table=0,actions=set_field:192.0.2.1->tun_dst,output:5"},
			"to port 5 by tunnel 192.0.2.1: 10.0.0.1:1000 > 10.0.0.2:80 (First)"},
		{"not modelled", nil, []string{"table=0,tcp,actions=fin_timeout(idle_timeout=1)"},
			"error: action ofp.FinTimeout is not modelled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if have := switchOf(t, test.groups, test.flows...).Send(p).String(); !strings.HasPrefix(have, test.want) {
				t.Errorf("have %s\nwant %s", have, test.want)
			}
		})
	}
	s := switchOf(t, twoBuckets, "table=0,actions=group:1")
	s.Choose = func(flow.Group, Packet) int { return 1 }
	if r := s.Send(p); len(r.Outputs) != 1 || r.Outputs[0].Port != 9 {
		t.Errorf("the chosen bucket: %s", r)
	}
}

func TestARP(t *testing.T) {
	me, you := ofp.MAC{2, 0, 0, 0, 0, 1}, ofp.MAC{2, 0, 0, 0, 0, 2}
	s := switchOf(t, nil,
		"table=0,arp,arp_op=1,arp_tpa=10.0.0.2,actions="+
			"move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:2->arp_op,"+
			"move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:02:00:00:00:00:02->arp_sha,"+
			"move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:10.0.0.2->arp_spa,in_port")
	r := s.Send(Packet{InPort: 3, EthSrc: me,
		ARP: &ARP{Op: 1, SHA: me, SPA: netip.MustParseAddr("10.0.0.1"), TPA: netip.MustParseAddr("10.0.0.2")}})
	want := ARP{Op: 2, SHA: you, THA: me, SPA: netip.MustParseAddr("10.0.0.2"), TPA: netip.MustParseAddr("10.0.0.1")}
	if len(r.Outputs) != 1 || r.Outputs[0].Port != 3 || r.Outputs[0].Packet.EthDst != me ||
		*r.Outputs[0].Packet.ARP != want {
		t.Errorf("%s", r)
	}
}

// TestND answers a Neighbor Solicitation with two flows, as the datapath does, and drops the question of the owner.
func TestND(t *testing.T) {
	me, you := ofp.MAC{2, 0, 0, 0, 0, 1}, ofp.MAC{2, 0, 0, 0, 0, 2}
	target, own := netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1")
	s := switchOf(t, nil,
		"table=0,icmp6,icmp_type=135,icmp_code=0,nw_ttl=255,nd_target=fd00::2,actions="+
			"move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:02:00:00:00:00:02->eth_src,"+
			"move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[],set_field:fd00::2->ipv6_src,set_field:136->icmpv6_type,"+
			"set_field:0x60000000->nd_reserved,set_field:2->nd_options_type,goto_table:1",
		"table=1,icmp6,icmp_type=136,icmp_code=0,actions=move:NXM_OF_ETH_SRC[]->NXM_NX_ND_TLL[],in_port")
	for _, test := range []struct {
		name string
		edit func(*Packet)
		want string
	}{
		{"answered", func(*Packet) {},
			"to port 3: fd00::2 is at 02:00:00:00:00:02, flags 0x60000000, to fd00::1 (First, Second)"},
		{"for another address", func(p *Packet) { p.ND.Target = own }, "dropped in First (First)"},
		{"that a router has passed on", func(p *Packet) { p.TTL = 254 }, "dropped in First (First)"},
		{"before the address is used", func(p *Packet) { *p = Solicit(me, netip.IPv6Unspecified(), target) },
			"to port 3: fd00::2 is at 00:00:00:00:00:00, flags 0x60000000, to :: (First, Second)"},
	} {
		p := Solicit(me, own, target)
		test.edit(&p)
		p.InPort = 3
		r := s.Send(p)
		if have := r.String(); !strings.HasPrefix(have, test.want) {
			t.Errorf("a solicitation %s: have %s, want %s", test.name, have, test.want)
		}
		if len(r.Outputs) == 1 && (r.Outputs[0].Packet.EthSrc != you || r.Outputs[0].Packet.EthDst != me) {
			t.Errorf("a solicitation %s: the answer goes from %s to %s", test.name, r.Outputs[0].Packet.EthSrc,
				r.Outputs[0].Packet.EthDst)
		}
	}
	if group := Solicit(me, own, netip.MustParseAddr("fd00::a:bc:def0")).IPDst; group.String() != "ff02::1:ffbc:def0" {
		t.Errorf("the group of an address is %s", group)
	}
}

// TestConntrackV6 follows echo requests of ICMPv6 and their answers. Other messages belong to no connection.
func TestConntrackV6(t *testing.T) {
	s := switchOf(t, nil, "table=0,ipv6,actions=ct(commit,zone=1,table=1)",
		"table=1,ct_state=+inv+trk,ipv6,actions=drop",
		"table=1,ct_state=+new+trk,ipv6,actions=output:2",
		"table=1,ct_state=+rpl+trk,ipv6,actions=output:3")
	echo := Packet{InPort: 1, IPSrc: netip.MustParseAddr("fd00::1"), IPDst: netip.MustParseAddr("fd00::2"),
		Proto: ICMPv6, ICMP: EchoV6, SrcPort: 7}
	answer := echo.Reply()
	answer.InPort = 2
	if answer.ICMP.Type != 129 {
		t.Errorf("the answer to an echo request has type %d", answer.ICMP.Type)
	}
	for _, test := range []struct {
		packet Packet
		want   string
	}{
		{answer, "dropped in Second"}, {echo, "to port 2: [fd00::1]:7"}, {answer, "to port 3: [fd00::2]:7"},
	} {
		if have := s.Send(test.packet).String(); !strings.HasPrefix(have, test.want) {
			t.Errorf("%s: %s, want %s", test.packet, have, test.want)
		}
	}
}

// TestConntrack follows a connection through a table that translates both its addresses.
func TestConntrack(t *testing.T) {
	s := switchOf(t, nil,
		"table=0,ip,actions=ct(zone=1,nat,table=1)",
		"table=1,priority=2,tcp,ct_state=+new+trk,nw_dst=10.0.0.9,actions=set_field:5->reg1,"+
			"ct(commit,zone=1,nat(dst=10.0.0.2:8080),exec(move:NXM_NX_REG1[0..7]->NXM_NX_CT_MARK[0..7]),table=2)",
		"table=1,priority=1,ip,actions=goto_table:2",
		"table=2,priority=2,ct_state=-rpl+trk,ct_mark=5,tcp,actions=ct(commit,zone=2,nat(src=10.0.0.3),table=3)",
		"table=2,priority=1,ct_state=+rpl+est+trk,ct_mark=5,ct_nw_dst=10.0.0.9,ip,actions=output:1",
		"table=3,priority=1,ip,actions=output:2",
		"table=0,priority=50000,ip,nw_dst=10.0.0.3,actions=ct(zone=2,nat,table=0)",
	)
	request := tcp(1, "10.0.0.1:1000", "10.0.0.9:80")
	for i, state := range []string{"new", "new again", "established"} {
		r := s.Send(request)
		if want := "to port 2: 10.0.0.3:1000 > 10.0.0.2:8080 (First, Second, Third, Fourth)"; r.String() != want {
			t.Fatalf("%s: %s, want %s", state, r, want)
		}
		if i == 1 {
			reply := r.Outputs[0].Packet.Reply()
			reply.InPort = 2
			if r, want := s.Send(reply), "to port 1: 10.0.0.9:80 > 10.0.0.1:1000 (First, Second, Third)"; r.String() != want {
				t.Fatalf("reply: %s, want %s", r, want)
			}
		}
	}
	// Another client with the same port gets another one.
	if r, want := s.Send(tcp(1, "10.0.0.7:1000", "10.0.0.9:80")),
		"to port 2: 10.0.0.3:1024 > 10.0.0.2:8080"; !strings.HasPrefix(r.String(), want) {
		t.Errorf("%s, want %s", r, want)
	}
	if n := len(s.Connections()); n != 4 {
		t.Errorf("%d connections: %q", n, s.Connections())
	}
}

// TestUntrackedAfterCT: what a look-up says is only known in the table it names.
func TestUntrackedAfterCT(t *testing.T) {
	s := switchOf(t, nil,
		"table=0,ip,actions=ct(zone=1,table=1)",
		"table=1,ct_state=+new+trk,ip,actions=ct(commit,zone=1),goto_table:2",
		"table=2,priority=2,ct_state=+trk,actions=output:8",
		"table=2,priority=1,actions=output:9")
	if r := s.Send(tcp(1, "10.0.0.1:1000", "10.0.0.9:80")); len(r.Outputs) != 1 || r.Outputs[0].Port != 9 {
		t.Errorf("%s", r)
	}
}
