package openflow_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofprint"
)

// A flow is a plain value. The prerequisites of its conditions, here IPv4, are added. If the switch would refuse a
// part, that is an error before it is sent.
func Example_build() {
	f := flow.Flow{
		Table:    2,
		Priority: 200,
		Match:    flow.All(flow.TCP(), flow.IPDst(netip.MustParsePrefix("10.96.0.10/32")), flow.TCPDst(80)),
		Actions: flow.Do(
			flow.Load(flow.Reg(0).Bits(0, 8), 5),
			flow.SetEthDst(ofp.MAC{2, 0, 0, 0, 0, 1}),
			flow.Goto(3),
		),
	}
	match, actions, _ := strings.Cut(f.String(), " actions=")
	fmt.Println(match)
	fmt.Println(actions)
	fmt.Println(f.Err())

	f = flow.Flow{Table: 3, Priority: 200, Actions: flow.Do(flow.Goto(3))} // a packet cannot go to its own table
	fmt.Println(f.Err())
	// Output:
	// table=2, priority=200,tcp,nw_dst=10.96.0.10,tp_dst=80
	// set_field:0x5/0xff->reg0,set_field:02:00:00:00:00:01->eth_dst,goto_table:3
	// <nil>
	// flow "table=3, priority=200 actions=goto_table:3": goto_table:3 is not after table 3
}

// Text that ovs-ofctl takes becomes a message, its bytes, and text again.
func Example_parse() {
	f, err := flow.ParseFlow("table=1,priority=5,arp,arp_op=1,actions=load:2->NXM_OF_ARP_OP[],in_port")
	if err != nil {
		fmt.Println(err)
		return
	}
	wire, err := ofp.AppendMessage(nil, 7, f.Mod(ofp.FlowAdd))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hex.EncodeToString(wire[:16]), "and", len(wire)-16, "bytes more")

	xid, m, err := ofp.DecodeMessage(wire)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(ofprint.Message(xid, m))
	fmt.Println("actions:", flow.Actions(m.(ofp.FlowMod).Actions))

	_, _, err = ofp.DecodeMessage(wire[:60]) // the error names the field and byte of the cut
	fmt.Println(err)
	// Output:
	// 060e0068000000070000000000000000 and 88 bytes more
	// OFPT_FLOW_MOD (OF1.5) (xid=0x7): ADD table:1 priority=5,arp,arp_op=1 actions=set_field:2->arp_op,IN_PORT
	// actions: set_field:2->arp_op,IN_PORT
	// decode flow_mod at byte 8: length: the header says 104 bytes, there are 60
}

// A Syncer keeps a switch as its owners want it: each declares all its flows, and what the
// switch lacks, or has too much of, is sent in one bundle.
func Example_sync() {
	dial, stop := startSwitch() // a real Open vSwitch; ofconn.UnixDialer or TargetDialer in a program
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := flowsync.New(flowsync.Options{Dial: dial, Instance: 0x7b}) // marks our flows' cookies
	go func() { _ = s.Run(ctx) }()

	web, dns := flow.Owner{Kind: 1, Name: "web"}, flow.Owner{Kind: 1, Name: "dns"}
	declare := func(o flow.Owner, texts ...string) {
		var e flow.Entries
		for _, text := range texts {
			f, err := flow.ParseFlow(text)
			if err != nil {
				fmt.Println(err)
			}
			e.Flows = append(e.Flows, f)
		}
		s.Set(o, e)
	}
	show := func(what string) {
		if err := s.Synced(ctx); err != nil {
			fmt.Println(err)
		}
		dump, err := s.Dump(ctx)
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(what)
		slices.SortFunc(dump.Flows, func(a, b flowsync.DumpedFlow) int {
			return flow.CompareKeys(a.Flow.Key(), b.Flow.Key())
		})
		for _, d := range dump.Flows {
			fmt.Printf("  %s wants %s: %s\n", d.Owner.Name, d.Flow.Match, d.Flow.Actions)
		}
	}

	declare(web, "tcp,tp_dst=80,actions=output:1")
	declare(dns, "udp,tp_dst=53,actions=output:2")
	s.Release() // all owners have declared: from now on undesired flows are removed
	show("at first:")
	declare(web, "tcp,tp_dst=80,actions=output:3")
	declare(dns)
	show("later:")
	fmt.Println("flow-mods sent:", s.Stats().FlowMods)
	// Output:
	// at first:
	//   web wants tcp,tp_dst=80: output:1
	//   dns wants udp,tp_dst=53: output:2
	// later:
	//   web wants tcp,tp_dst=80: output:3
	// flow-mods sent: 4
}
