package flow

import (
	"errors"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestParseErrors has texts that ovs-ofctl and switches refuse. Each error has the place, the fault and the expected
// text.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		text     string
		column   int
		problem  string
		expected string
	}{
		{"ip", 3, "the flow has no actions", "actions="},
		{"actions", 1, "no = follows", "actions="},
		{"color=red,actions=drop", 1, `"color" is not valid here`, "a field, a protocol or a property"},
		{"ip,nw_dst=1.1.1,actions=drop", 11, `nw_dst: "1.1.1"`, "an IPv4 address such as 10.0.0.1"},
		{"ip,nw_dst=10.0.0.0/33,actions=drop", 20, "nw_dst", "a prefix length from 0 to 32"},
		{"ipv6,ipv6_src=1.2.3.4,actions=drop", 15, "ipv6_src", "an IPv6 address such as fd00::1"},
		{"dl_src=00:11:22:33:44,actions=drop", 8, "dl_src", "a MAC address such as"},
		{"reg0=0x1ffffffff,actions=drop", 6, "reg0", "a number of up to 4 bytes"},
		{"reg0[0..3]=16,actions=drop", 12, "reg0[0..3]", "a number of up to 4 bits"},
		{"reg0[30..33]=1,actions=drop", 6, "reg0[30..33]: reg0 has no bits 30..33", "bits within 0 to 31"},
		{"in_port=nowhere,actions=drop", 9, "in_port", "a port's number"},
		{"nw_proto=6/3,ip,actions=drop", 1, "nw_proto: cannot be masked", "conditions"},
		{"ip,ct_state=new+est,actions=drop", 13, "ct_state", "a state: new, est"},
		{"ip,ct_state=+new+new,actions=drop", 13, "given twice", "a state"},
		{"ip,ct_state=+cool,actions=drop", 13, "there is no flag", "a state"},
		{"tcp,tcp_flags=syn|cool,actions=drop", 19, "tcp_flags", "a TCP flag"},
		{"ip,nw_frag=perhaps,actions=drop", 12, "nw_frag", "no, yes, first, later"},
		{"dl_vlan=x,actions=drop", 9, "dl_vlan", "a VLAN's number"},
		{"packet_type=1,actions=drop", 13, "packet_type", "(NAMESPACE,TYPE)"},
		{"priority=65536,actions=drop", 10, "priority", "16 bits"},
		{"table=256,actions=drop", 7, "table", "a table's number"},
		{"cookie=5/7,actions=drop", 10, "masked cookie", "without a mask"},
		{"actions=fly", 9, `fly: "fly" is not valid here`, "an action such as output"},
		{"actions=output:1,drop", 18, "drop stands together with", "drop alone"},
		{"actions=apply_actions(output:1)", 9, "apply_actions", "the actions themselves"},
		{"actions=output:nowhere", 16, "output", "a port's number"},
		{"actions=output(port=1,max_len=5)", 9, "less than the 14 bytes", "what the switch takes"},
		{"actions=output:65300", 9, "port", "what the switch takes"},
		{"actions=set_field:5", 19, "set_field", "SOURCE->DESTINATION"},
		{"actions=set_field:5->reg99", 22, "set_field", "a field, such as reg0"},
		{"actions=set_field:5->dl_type", 9, "cannot be written", "what the switch takes"},
		{"actions=set_field:1.2.3.4->nw_src", 9, "only has a meaning together with ip", "in the match"},
		{"actions=set_field:5/3->reg0", 19, "outside of its mask", "only where its mask has some"},
		{"arp,actions=set_field:0x100->arp_op", 13, "256 is more than the 255", "what the switch takes"},
		{"actions=load:16->reg0[0..3]", 14, "load", "a number of up to 4 bits"},
		{"actions=load:-1->reg0[]", 14, "load", "a number of up to 4 bytes"},
		{"actions=load:-1->xxreg0[0..31]", 14, "load", "a number of up to 32 bits"},
		{"actions=set_field:-1->reg0", 19, "set_field", "a number of up to 4 bytes"},
		{"reg0=-1,actions=drop", 6, "reg0", "a number of up to 4 bytes"},
		{"actions=set_field:5->reg0[0..3]", 22, "is a part of a field", "set_field:5/0xf->reg0"},
		{"actions=set_field:5->reg0[]", 22, "is a part of a field", "set_field:5/0xf->reg0"},
		{"actions=set_field:5->eth_src[0..3]", 22, "is a part of a field", "or load"},
		{"actions=resubmit(,255)", 18, "neither a port nor a table", "PORT, (PORT,TABLE)"},
		{"actions=resubmit(in_port,255)", 18, "neither a port nor a table", "PORT, (PORT,TABLE)"},
		{"actions=output:1,meter:1", 18, "meter follows an action", "in this order"},
		{"actions=output:1,meter:1,output:2", 18, "meter follows an action", "in this order"},
		{"actions=clear_actions,output:1", 23, "an action follows clear_actions", "in this order"},
		{"actions=clear_actions,meter:1", 23, "meter follows clear_actions", "in this order"},
		{"actions=write_actions(output:1),output:2", 33, "an action follows write_actions", "in this order"},
		{"actions=write_actions(output:1),clear_actions", 33, "clear_actions follows write_actions", "in this order"},
		{"actions=write_metadata:1,output:1", 26, "an action follows write_metadata", "in this order"},
		{"actions=write_metadata:1,write_actions(output:1)", 26, "write_actions follows write_metadata", "in this order"},
		{"actions=goto_table:1,output:1", 22, "an action follows goto_table", "in this order"},
		{"actions=goto_table:1,write_metadata:1", 22, "write_metadata follows goto_table", "in this order"},
		{"actions=meter:1,meter:2", 17, "meter stands twice", "in this order"},
		{"actions=goto_table:1,goto_table:2", 22, "goto_table stands twice", "in this order"},
		{"actions=write_actions(meter:1)", 9, "write_actions: meter", "what the switch takes"},
		{"actions=move:reg0[0..7]->reg1[0..8]", 26, "has 8 bits", "8 bits"},
		{"actions=move:reg0[]->eth_type[0..31]", 31, "eth_type has no bits", "bits within 0 to 15"},
		{"actions=push_vlan:0x800", 9, "no VLAN's Ethernet type", "what the switch takes"},
		{"actions=pop_vlan", 9, "only has a meaning together with dl_vlan", "in the match"},
		{"actions=dec_ttl", 9, "only has a meaning together with ip", "in the match"},
		{"actions=dec_ttl(x)", 17, "dec_ttl", "16 bits"},
		{"ip,actions=set_mpls_ttl:5", 12, "mpls", "in the match"},
		{"actions=fin_timeout(idle_timeout=5)", 9, "fin_timeout", "in the match"},
		{"actions=mod_tp_src:5", 9, "mod_tp_src", "in the match"},
		{"actions=set_vlan_vid:5", 9, "set_vlan_vid", "in the match"},
		{"actions=mod_vlan_vid:4096", 22, "mod_vlan_vid", "12 bits"},
		{"actions=ct(commit)", 9, "ct only has a meaning", "in the match"},
		{"ip,actions=ct(force)", 12, "force needs commit", "what the switch takes"},
		{"ip,actions=ct(zone=65536)", 20, "ct: zone", "a zone's number"},
		{"ip,actions=ct(zone=reg0[0..7])", 12, "the zone is 16 bits", "what the switch takes"},
		{"ip,actions=ct(table=255)", 21, "ct: table", "0 to 254"},
		{"ip,actions=ct(fast)", 15, `ct: "fast"`, "commit, force, table"},
		{"tcp,actions=ct(alg=http)", 20, "alg", "ftp or tftp"},
		{"udp,actions=ct(alg=ftp)", 13, "alg=ftp needs tcp", "in the match"},
		{"ip,actions=ct(nat(src=1.2.3.4))", 12, "needs commit", "what the switch takes"},
		{"ip,actions=ct(commit,nat(src=1.2.3.4,dst=1.2.3.5))", 12, "exclude each other", "what the switch takes"},
		{"ip,actions=ct(commit,nat(src=1.2.3.9-1.2.3.4))", 12, "ends before it begins", "what the switch takes"},
		{"ip,actions=ct(commit,nat(src=1.2.3.9:x))", 38, "ct: nat: src", "16 bits"},
		{"ip,actions=ct(commit,nat(src=somewhere))", 30, "ct: nat: src", "an address"},
		{"ip,actions=ct(commit,nat(src=fd00::1))", 12, "other version of IP", "in the match"},
		{"ip,actions=ct(commit,nat(random))", 12, "needs src or dst", "what the switch takes"},
		{"ip,actions=ct(commit,nat(src=1.2.3.4,random,hash))", 12, "hash and random", "what the switch takes"},
		{"ip,actions=ct(exec(set_field:1->ct_mark))", 12, "exec needs commit", "what the switch takes"},
		{"ip,actions=ct(commit,exec(set_field:1->reg0))", 12, "only change ct_mark and ct_label", "what the switch takes"},
		{"ip,actions=ct(commit,exec(output:1))", 12, "exec takes set_field and move", "what the switch takes"},
		{"ip,actions=set_field:1->ct_mark", 12, "only be changed within ct", "what the switch takes"},
		{"ip,actions=nat(src=1.2.3.4)", 12, "nat may only stand within ct", "what the switch takes"},
		{"actions=resubmit", 17, "resubmit", "PORT, (PORT,TABLE)"},
		{"actions=resubmit(1,2,3)", 22, "resubmit", "PORT, (PORT,TABLE)"},
		{"actions=resubmit(,1,ct)", 9, "only has a meaning together with a ct_state", "in the match"},
		{"actions=controller(reason=boredom)", 27, "controller: reason", "a reason: no_match"},
		{"actions=controller(userdata=0g)", 29, "controller: userdata", "hexadecimal digits"},
		{"actions=controller(volume=11)", 20, "controller", "max_len, id, reason"},
		{"actions=conjunction(1,3/2)", 9, "clause 3 of 2", "what the switch takes"},
		{"actions=conjunction(1)", 21, "conjunction", "ID,CLAUSE/CLAUSES"},
		{"actions=conjunction(1,1/2),output:1", 9, "may stand next to it", "what the switch takes"},
		{"actions=learn(table=255)", 9, "255 stands for all", "what the switch takes"},
		{"actions=learn(reg0=reg1[0..3])", 20, "learn: reg0", "32 bits"},
		{"actions=learn(reg0[0..3]=16)", 26, "learn: reg0[0..3]", "4 bits"},
		{"actions=learn(load:5->eth_type)", 9, "cannot be written", "what the switch takes"},
		{"actions=learn(nw_dst=1.2.3.4)", 9, "in the flow that is learned", "in the match"},
		{"actions=learn(eth_type=0x800,nw_dst=NXM_OF_IP_SRC[])", 9, "learn: ip_src", "in the match"},
		{"actions=learn(result_dst=reg0)", 9, "result_dst is one bit", "what the switch takes"},
		{"actions=learn(color=red)", 15, "learn: color", "a property of learn"},
		{"actions=learn(nsh_spi[0..7]=5)", 9, "experimenter", "what the switch takes"},
		{"actions=multipath(eth_src,50,modulo_n,1,0)", 19, "multipath", "FIELDS,BASIS"},
		{"actions=multipath(xyz,50,modulo_n,1,0,reg0)", 19, "multipath", "eth_src, symmetric_l4"},
		{"actions=multipath(eth_src,50,modulo_n,1024,0,reg0[0..7])", 9, "need 10 bits", "what the switch takes"},
		{"actions=multipath(eth_src,50,modulo_n,0,0,reg0)", 39, "multipath", "1 to 65536"},
		{"actions=bundle(eth_src,0,hrw,ofport,1,2)", 16, "bundle", "members:PORT"},
		{"actions=bundle(eth_src,0,hrw,ofport,members:CONTROLLER)", 9, "cannot be a member", "what the switch takes"},
		{"actions=bundle_load(eth_src,0,hrw,ofport,reg0[0..7],members:1)", 9, "a port has 16 bits", "what the switch takes"},
		{"actions=sample(probability=0)", 9, "probability is 0", "what the switch takes"},
		{"actions=sample(speed=0)", 16, "sample", "probability, collector_set_id"},
		{"actions=sample(probability=1,obs_domain_id=metadata)", 44, "sample: obs_domain_id", "a field of up to 32 bits"},
		{"actions=sample(probability=1,obs_point_id=reg77)", 43, "sample: obs_point_id", "a field of up to 32 bits"},
		{"actions=conjunction(1,1/2),output:1", 9, "may stand next to it, not output", "what the switch takes"},
		{"actions=dec_mpls_ttl", 9, "dec_mpls_ttl only has a meaning", "in the match"},
		{"actions=clone(goto_table:3)", 9, "goto_table may only stand in a flow", "what the switch takes"},
		{"actions=write_actions(learn(table=1))", 9, "write_actions: learn cannot", "what the switch takes"},
		{"actions=encap(gre)", 15, "encap", "ethernet, nsh"},
		{"actions=encap(nsh(md_type=3))", 27, "encap: nsh", "1 or 2"},
		{"actions=encap(nsh(tlv(5)))", 23, "encap: nsh", "0xCLASS,TYPE,0xDATA"},
		{"actions=dec_nsh_ttl", 9, "dec_nsh_ttl", "in the match"},
		{"actions=delete_field:reg0", 22, "delete_field", "tun_metadata0"},
		{"actions=check_pkt_larger(5)->reg0", 30, "check_pkt_larger", "one bit"},
		{"actions=check_pkt_larger(5)", 9, "check_pkt_larger", "->FIELD[BIT]"},
		{"actions=write_actions(note:01)", 9, "cannot be in an action set", "what the switch takes"},
		{"actions=clone(goto_table:5)", 9, "may only stand in a flow", "what the switch takes"},
		{"actions=clone(meter:1)", 9, "a meter cannot stand within it", "what the switch takes"},
		{"actions=meter:0", 9, "no meter's number", "what the switch takes"},
		{"actions=note:0", 14, "note", "hexadecimal digits"},
		{"actions=enqueue:5", 17, "enqueue", "PORT:QUEUE"},
		{"tun_metadata0=5,tun_metadata0=6,actions=drop", 17, "set twice", "can be met together"},
		{"out_port=5,actions=drop", 1, "out_port: only a deletion", "a property that flows have"},
	} {
		var pe *ParseError
		_, err := ParseFlow(c.text)
		if !errors.As(err, &pe) {
			t.Errorf("%s: have error %v, want a ParseError", c.text, err)
			continue
		}
		if pe.Line != 1 || pe.Column != c.column || !strings.Contains(pe.Problem, c.problem) ||
			!strings.Contains(pe.Expected, c.expected) {
			t.Errorf("%s\n have %v\n want column %d: %s: expected %s", c.text, err, c.column, c.problem, c.expected)
		}
		if out, err := ofctlInput(c.text+"\n", "parse-flows", "-"); err == nil && !strings.Contains(out, "decode error") {
			t.Errorf("%s: ovs-ofctl takes it: %s", c.text, out)
		}
	}
}

// TestStricter are texts that ovs-ofctl takes and silently makes something else of.
func TestStricter(t *testing.T) {
	for _, text := range []string{
		"",                                                            // a line of it is skipped
		"ip,nw_dst=300.1.1.1,actions=drop",                            // 44.1.1.1
		"dl_vlan=4096,actions=drop",                                   // 0
		"nw_src=1.2.3.4,actions=drop",                                 // without ip: it matches everything
		"tp_dst=80,actions=drop",                                      // without tcp
		"udp,tcp_dst=80,actions=drop",                                 // a port of UDP
		"reg0=1,reg0=2,actions=drop",                                  // the last one
		"vlan_tci=0x2000/0x2000,actions=drop",                         // part of a priority, which 1.5 cannot match
		"actions=ct(zone=nsh_spi[0..15])",                             // zone 15
		"actions=sample(probability=1,obs_point_id=nsh_spi)",          // a number, since 3.4
		"ip,actions=output:ct_label[]",                                // another number of bits
		"actions=set_field:5->tun_ttl", "skb_priority=5,actions=drop", // known to the switch alone
		"(ip,actions=drop", "ip),actions=drop", "actions=ct(commit", "actions=ct(commit)x",
	} {
		var pe *ParseError
		if _, err := ParseFlow(text); !errors.As(err, &pe) || pe.Expected == "" {
			t.Errorf("%s: have %v, want a ParseError", text, err)
		}
	}
}

// TestParseErrorLines has files of flows: the error names the line.
func TestParseErrorLines(t *testing.T) {
	for _, c := range []struct {
		text         string
		line, column int
	}{
		{"# nothing\n\nip,actions=drop # but this\n  modify reg0=x,actions=drop\n", 4, 15},
		{"actions=drop\ndelete nw_src=1.2.3.4\n", 2, 8},
		{"delete cookie=5\n", 1, 15},
		{"delete priority=5\n", 1, 8},
		{"delete_strict priority=x\n", 1, 24},
		{"modify importance=5,actions=drop\n", 1, 8},
		{"\n\nadd\n", 3, 4},
	} {
		var pe *ParseError
		if _, err := ParseFlows(strings.NewReader(c.text)); !errors.As(err, &pe) || pe.Line != c.line ||
			pe.Column != c.column {
			t.Errorf("%q: have %v, want line %d, column %d", c.text, err, c.line, c.column)
		}
	}
	const want = `parse flow: line 1, column 15: ct: zone: "x" is not valid here: ` +
		"expected a zone's number of up to 16 bits, or a field such as reg4[0..15]"
	if _, err := ParseFlow("actions=ct(zone=x)"); err == nil ||
		strings.Replace(err.Error(), "column 17", "column 15", 1) != want {
		t.Errorf("have %v\nwant %s", err, want)
	}
}

// TestMods reads the lines of a file as ovs-ofctl's bundles do.
func TestMods(t *testing.T) {
	const text = `# a file
add table=1,ip,actions=drop
table=2,cookie=0x5,actions=output:1

modify cookie=0x10/0xff,tcp,tp_dst=80,actions=output:2
modify_strict priority=5,ip,cookie=7,actions=output:3
delete table=3,cookie=0x20/-1,out_port=LOCAL,out_group=7
delete
delete_strict table=0,priority=9,reg0=1
delete table=255,ip
`
	mods, err := ParseFlows(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var wire []byte
	for i, m := range mods {
		again, err := ParseMod(m.String())
		if err != nil || again.String() != m.String() {
			t.Errorf("line %d: %s is read as %s: %v", i, m, again, err)
		}
		if a, b := again.Message(), m.Message(); a.Match != b.Match || a.Command != b.Command || a.Table != b.Table ||
			a.Cookie != b.Cookie || a.CookieMask != b.CookieMask || a.OutPort != b.OutPort || a.OutGroup != b.OutGroup {
			t.Errorf("line %d: %+v is read as %+v", i, b, a)
		}
		if wire, err = ofp.AppendMessage(wire, 1, m.Message()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"ADD table:1 ip actions=drop",
		"ADD table:2 cookie:0x5 actions=output:1",
		"MOD tcp,tp_dst=80 cookie:0x10/0xff actions=output:2",
		"MOD_STRICT priority=5,ip actions=output:3",
		"DEL table:3 cookie:0x20/0xffffffffffffffff out_port:LOCAL actions=drop",
		"DEL table:255 actions=drop",
		"DEL_STRICT priority=9,reg0=0x1 actions=drop",
		"DEL table:255 ip actions=drop",
	}
	have, err := ofctlInput(string(wire), "ofp-parse", "-")
	if err != nil {
		t.Fatal(err)
	}
	differs(t, "flow_mods through ofp-parse", want, modLines(have))
}
