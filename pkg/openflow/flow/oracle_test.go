package flow

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ofctl runs ovs-ofctl for OpenFlow 1.5; it fails the test where ovs-ofctl is lacking.
func ofctl(t testing.TB, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.Command("ovs-ofctl", append([]string{"-O", "OpenFlow15"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("ovs-ofctl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out.String()
}

// modText is what ovs-ofctl prints of the flow's flow_mod after "OFPT_FLOW_MOD ...: ".
func modText(f Flow) string {
	var p printer
	p.str("ADD")
	if f.Table != 0 {
		p.f(" table:%d", f.Table)
	}
	p.str(" ")
	p.priorityAndMatch(f)
	if p.b[len(p.b)-1] != ' ' {
		p.str(" ")
	}
	if f.Cookie != 0 {
		p.f("cookie:0x%x ", f.Cookie)
	}
	if f.IdleTimeout != 0 {
		p.f("idle:%d ", f.IdleTimeout)
	}
	if f.HardTimeout != 0 {
		p.f("hard:%d ", f.HardTimeout)
	}
	if f.Importance != 0 {
		p.f("importance:%d ", f.Importance)
	}
	p.flags(f.Flags)
	p.str("actions=" + f.Actions.String())
	return string(p.b)
}

var modHead = regexp.MustCompile(`(?m)^OFPT_FLOW_MOD \(OF1\.5\)( \(xid=0x[0-9a-f]+\))?: `)

func modLines(out string) []string {
	var lines []string
	for line := range strings.Lines(out) {
		if head := modHead.FindString(line); head != "" {
			lines = append(lines, strings.TrimSuffix(line[len(head):], "\n"))
		}
	}
	return lines
}

// TestOracle holds text and bytes of generated flows against ovs-ofctl.
func TestOracle(t *testing.T) {
	const count = 4000
	g := newGenerator(20)
	var flows []Flow
	var text, wire bytes.Buffer
	for len(flows) < count {
		f := g.flow()
		if err := f.Err(); err != nil {
			t.Fatalf("generated flow: %v", err)
		}
		flows = append(flows, f)
		fmt.Fprintln(&text, f)
		b, err := ofp.AppendMessage(nil, 1, f.Mod(ofp.FlowAdd))
		if err != nil {
			t.Fatal(err)
		}
		wire.Write(b)
	}
	dir := t.TempDir()
	textFile, wireFile := filepath.Join(dir, "flows"), filepath.Join(dir, "wire")
	if err := os.WriteFile(textFile, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wireFile, wire.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{
		"text through parse-flows": modLines(ofctl(t, "parse-flows", textFile)),
		"bytes through ofp-parse":  modLines(ofctl(t, "ofp-parse", wireFile)),
	} {
		if len(lines) != count {
			t.Fatalf("%s: %d lines for %d flows", name, len(lines), count)
		}
		bad := 0
		for i, line := range lines {
			if want := modText(flows[i]); line != want {
				t.Errorf("%s: flow %d\n ours %s\n ovs  %s", name, i, want, line)
				if bad++; bad == 8 {
					break
				}
			}
		}
	}
	bad := 0
	for _, f := range flows {
		h, err := ParseFlow(f.String())
		if err != nil || !h.Equal(f) {
			t.Errorf("our own text\n read  %s\n gives %s\n %v", f, h, err)
			if bad++; bad == 8 {
				break
			}
		}
	}
}

// TestTextForms holds what ovs-ofctl makes of hand-written text against what we make of it.
func TestTextForms(t *testing.T) {
	for _, text := range []string{
		"actions=drop",
		"table=1,priority=5,cookie=0x1,idle_timeout=3,importance=4,send_flow_rem,tcp,reg0=0x5/0xf,nw_dst=1.2.3.0/24,tp_dst=80,actions=load:5->NXM_NX_REG0[4..7],mod_dl_src:00:11:22:33:44:55,set_field:1->reg3",
		"table=1,ip,actions=ct(commit,force,zone=5,table=4,nat(src=1.2.3.4-1.2.3.9:5-9,random),exec(set_field:1/1->ct_mark,load:0x55->NXM_NX_CT_LABEL[0..7]))",
		"ip,actions=ct(commit,zone=65521,nat(dst=10.0.0.1:80)),ct(nat,zone=NXM_NX_REG1[0..15],table=3)",
		"ipv6,actions=ct(commit,nat(dst=[fc00::1]-[fc00::9]:80-90,hash)),ct(commit,nat(src=fc00::1))",
		"tcp,actions=ct(commit,alg=ftp,nat(src))",
		"actions=move:NXM_NX_REG0[0..15]->NXM_NX_REG1[3..18],output:NXM_NX_REG4[],output:reg5[0..15]",
		"actions=controller(reason=no_match,id=3,userdata=01.02.03,max_len=128),controller,controller:128,controller(userdata=00.01,pause),CONTROLLER:5",
		"ip,actions=note:01.02.03,resubmit(,5),resubmit:3,resubmit(3,4)",
		"actions=conjunction(5,1/3)",
		"actions=learn(table=5,hard_timeout=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG0[0..15],output:NXM_NX_REG3[],eth_type=0x800,load:5->NXM_NX_REG3[])",
		"ip,actions=meter:7,dec_ttl(1,2),dec_ttl,in_port,group:5,local,normal,set_field:10.0.0.1->tun_dst,mod_nw_ttl:5",
		"actions=set_field:0x5->xxreg0,set_field:5->xreg1,ct_clear,set_queue:3,clone(output:3,set_field:2->reg1),write_metadata:5/7,goto_table:9",
		"dl_vlan=5,dl_vlan_pcp=3,actions=pop_vlan,push_vlan:0x8100",
		"dl_type=0x1234,pkt_mark=5,ct_state=+new+trk-est,ct_zone=5,ct_mark=1/1,ct_label=5/0xff,conj_id=5,metadata=5/7,tun_id=7,tun_src=1.2.3.4,actions=drop",
		"tcp6,ct_state=0x21/0x21,ipv6_src=2001:db8::/64,tcp_flags=+syn-ack,actions=normal",
		"tcp6,ipv6_src=2001:db8::5,ipv6_label=0x5,tcp_flags=0x2,nw_frag=not_later,nw_tos=32,nw_ecn=2,nw_ttl=5,actions=flood",
		"ip,nw_frag=yes,actions=drop", "ip,nw_frag=no,actions=drop", "ip,nw_frag=later,actions=drop", "ip,nw_frag=first,actions=drop",
		"arp,arp_op=1,arp_spa=1.2.3.4/255.0.255.0,arp_sha=00:11:22:33:44:55,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=all",
		"icmp6,icmp_type=135,nd_target=fe80::1,nd_sll=00:11:22:33:44:55,actions=in_port",
		"icmp,icmp_type=8,icmp_code=0,actions=output:3",
		"dl_vlan_pcp=3,actions=clear_actions,write_actions(output:3),goto_table:5",
		"vlan_tci=0x0,actions=drop", "vlan_vid=0x1000/0x1000,actions=drop", "vlan_tci=0x1005/0x1fff,actions=drop", "vlan_tci=0x0005/0x0fff,actions=drop",
		"udp,tp_src=0x50/0xfff0,actions=drop", "tun_flags=oam,actions=drop",
		"tun_gbp_id=5,reg15=1,xreg3=0x100000002,in_port=LOCAL,actions=set_field:0x5/0xff->pkt_mark",
		"arp,arp_op=1,arp_tpa=10.0.0.1,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:aa:bb:cc:dd:ee:ff->eth_src,load:2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:aa:bb:cc:dd:ee:ff->arp_sha,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:10.0.0.1->arp_spa,IN_PORT",
		"sctp,tp_dst=132,actions=set_field:5->sctp_dst", "mpls,mpls_label=5,mpls_tc=3,mpls_bos=1,actions=drop",
		"actions=check_pkt_larger(1400)->NXM_NX_REG0[3],push:NXM_NX_REG0[0..7],pop:NXM_NX_REG1[8..15],exit",
		"tcp,actions=fin_timeout(idle_timeout=5,hard_timeout=6)",
	} {
		t.Run(text, func(t *testing.T) {
			f, err := ParseFlow(text)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "flow")
			if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, want := modText(f), modLines(ofctl(t, "parse-flows", file))[0]; got != want {
				t.Errorf("\n ours %s\n ovs  %s", got, want)
			}
			b, err := ofp.AppendMessage(nil, 1, f.Mod(ofp.FlowAdd))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := modText(f), modLines(ofctl(t, "ofp-print", fmt.Sprintf("%x", b)))[0]; got != want {
				t.Errorf("bytes:\n ours %s\n ovs  %s", got, want)
			}
		})
	}
}
