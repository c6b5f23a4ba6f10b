package flow

import (
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// fieldFlows returns flows that match each field: exactly with several values, with several masks, and not at all.
func fieldFlows(g generator) (list []Flow) {
	add := func(conds ...Cond) bool {
		for _, c := range madeContexts {
			if m, err := with(c.match, conds...); err == nil {
				list = append(list, Flow{Match: m, Priority: DefaultPriority})
				return true
			}
		}
		return false
	}
	for _, f := range ofp.Fields() {
		if !known(f) || f == ofp.PacketType {
			continue
		}
		width := ofp.Ones(f.Bits())
		for i := range 12 {
			v := g.value(f)
			if f.Long() {
				b := g.bytes(1 + i*10)
				add(func(b2 *ofp.MatchBuilder) { b2.SetBytes(f, b, "") })
				v, mask := g.option(124)
				add(func(b2 *ofp.MatchBuilder) { b2.SetBytes(f, v, mask) })
				continue
			}
			add(func(b *ofp.MatchBuilder) { b.Exact(f, v) })
			add(g.cond(f))
			if !f.Maskable() || f == ofp.IPFrag {
				continue
			}
			for _, mask := range []ofp.Value{g.mask(f), {Lo: 1}, ofp.Ones((f.Bits() + 1) / 2),
				ofp.Ones(f.Bits() / 2).Shl(f.Bits() - f.Bits()/2), width} {
				if f.Format() == ofp.FormatIPv6 && prefixLen(mask, 16) < 0 {
					mask.Hi |= 0xa << 60
				}
				add(func(b *ofp.MatchBuilder) { b.Set(f, v.And(mask), mask) })
			}
		}
		add(func(b *ofp.MatchBuilder) { b.Set(f, ofp.Value{}, ofp.Value{}) })
	}
	for _, c := range madeContexts {
		list = append(list, Flow{Match: c.match, Priority: DefaultPriority})
	}
	return list
}

// actionFlows returns flows with each kind of action, many times with different arguments.
func actionFlows(g generator) (list []Flow) {
	for _, kind := range generators() {
		for n := 0; n < 60; {
			f := Flow{Priority: DefaultPriority, Actions: Do(kind(g))}
			for _, c := range madeContexts {
				if f.Match = c.match; f.possible() {
					list = append(list, f)
					break
				}
			}
			n++
		}
	}
	for _, f := range writable { // every field that can be set, in full and in part
		for range 10 {
			a := ofp.SetField{Field: f}
			if f.Long() {
				a.Value, a.Mask = g.option(124)
			} else {
				a = maskedSet(f, g.value(f), g.mask(f)).(ofp.SetField)
			}
			x := Flow{Priority: DefaultPriority, Actions: Do(a)}
			if f == ofp.CTMark || f == ofp.CTLabel {
				x.Actions = Do(ofp.CT{Flags: ofp.CTCommit, Table: ofp.CTNoTable, Exec: Do(a)})
			}
			for _, c := range madeContexts {
				if x.Match = c.match; x.possible() {
					list = append(list, x)
					break
				}
			}
		}
	}
	return list
}

// forms are texts that people write; each means the same to ovs-ofctl and to us. A backslash continues a line.
var forms = strings.Split(strings.TrimSpace(strings.ReplaceAll(`
actions=drop
table=1,priority=5,cookie=0x1,idle_timeout=3,importance=4,send_flow_rem,tcp,reg0=0x5/0xf,nw_dst=1.2.3.0/24,tp_dst=80,\
	actions=load:5->NXM_NX_REG0[4..7],mod_dl_src:00:11:22:33:44:55,set_field:1->reg3
table=1,ip,actions=ct(commit,force,zone=5,table=4,nat(src=1.2.3.4-1.2.3.9:5-9,random),\
	exec(set_field:1/1->ct_mark,load:0x55->NXM_NX_CT_LABEL[0..7]))
ip,actions=ct(commit,zone=65521,nat(dst=10.0.0.1:80)),ct(nat,zone=NXM_NX_REG1[0..15],table=3)
ipv6,actions=ct(commit,nat(dst=[fc00::1]-[fc00::9]:80-90,hash)),ct(commit,nat(src=fc00::1)),\
	ct(commit,nat(src=fc00::1-fc00::2,persistent,random))
tcp,actions=ct(commit,alg=ftp,nat(src)),ct(commit,nat(dst=10.0.0.1-10.0.0.1:5-5)),ct(commit,nat(src,random)),\
	ct(commit,nat(src=0.0.0.0))
ip,actions=ct(commit,exec(set_field:1->ct_mark),nat(src)),ct(commit,exec(nat(src),set_field:1->ct_mark))
udp,actions=ct(commit,alg=tftp,table=0),ct(table=3,zone=0x10),ct
actions=move:NXM_NX_REG0[0..15]->NXM_NX_REG1[3..18],output:NXM_NX_REG4[],output:reg5[0..15]
actions=controller(reason=no_match,id=3,userdata=01.02.03,max_len=128),controller,controller:128,\
	controller(userdata=00.01,pause),CONTROLLER:5,controller(meter_id=5),controller(max_len=9),controller(reason=GROUP)
ip,actions=note:01.02.03,resubmit(,5),resubmit:3,resubmit(3,4),note:,resubmit(LOCAL),resubmit(1,)
actions=conjunction(5,1/3)
actions=conjunction(5, 1 / 3),note:01,conjunction(0x10,2/3)
actions=learn(table=5,hard_timeout=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG0[0..15],\
	output:NXM_NX_REG3[],eth_type=0x800,load:5->NXM_NX_REG3[])
actions=learn(table=5,limit=10,result_dst=reg0[3],delete_learned,send_flow_rem,cookie=0x5,fin_idle_timeout=3,\
	fin_hard_timeout=4,idle_timeout=5,priority=9,reg1=5,NXM_NX_REG2[0..7]=0x12,reg3[4..7]=reg4[0..3],in_port=5,eth_src,\
	load:0x123456789abcdef01->xxreg1)
ip,actions=learn(table=7,dl_type=0x800,nw_dst=NXM_OF_IP_SRC[],ip_src=10.0.0.1,load:reg0[]->tun_dst)
arp,actions=learn(eth_type=0x806,arp_tpa=10.0.0.1,NXM_OF_ARP_OP[]=1)
ip,actions=meter:7,dec_ttl(1,2),dec_ttl,in_port,group:5,local,normal,set_field:10.0.0.1->tun_dst,mod_nw_ttl:5,\
	set_nw_ttl:7,dec_ttl(0)
actions=set_field:0x5->xxreg0,set_field:5->xreg1,ct_clear,set_queue:3,clone(output:3,set_field:2->reg1),\
	write_metadata:5/7,goto_table:9
actions=clone(clone(drop),output:1),clone(),exit
dl_vlan=5,dl_vlan_pcp=3,actions=pop_vlan,push_vlan:0x8100
dl_vlan=5,actions=strip_vlan,mod_vlan_vid:7,mod_vlan_pcp:3,set_vlan_vid:8,set_vlan_pcp:5
actions=mod_vlan_vid:5,output:1
actions=mod_vlan_pcp:5,mod_vlan_vid:6
actions=clone(mod_vlan_vid:5),mod_vlan_vid:6
tcp,actions=mod_nw_src:1.2.3.4,mod_nw_dst:1.2.3.5,mod_nw_tos:32,mod_nw_ecn:2,mod_tp_src:80,mod_tp_dst:81,\
	mod_dl_dst:00:11:22:33:44:55
udp6,actions=mod_nw_tos:64,mod_tp_src:80,mod_tp_dst:0x51
sctp,actions=mod_tp_src:80,mod_tp_dst:81
actions=set_tunnel:5,set_tunnel64:0x123456789abc,set_tunnel:0
actions=enqueue:1:5,enqueue(2,6),enqueue:LOCAL:7,enqueue:3q8
mpls,actions=set_mpls_label(5),set_mpls_tc:3,set_mpls_ttl:9,dec_mpls_ttl,pop_mpls:0x800,dec_ttl
ip,actions=push_mpls:0x8847,set_mpls_label:16,set_mpls_ttl(64),push_mpls:0x8848
actions=output(port=1,max_len=100),output(max_len=14,port=LOCAL),output:5,output:NORMAL,1,2,65279
actions=multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[]),multipath(symmetric_l3l4+udp, 50, hrw, 256, 7, reg1[0..7]),\
	multipath(nw_src,0,iter_hash,5,6,NXM_NX_REG2[3..9])
actions=bundle(eth_src,0,hrw,ofport,members:4,8),\
	bundle_load(symmetric_l3,60,active_backup,ofport,NXM_NX_REG0[],members:1,2,3),\
	bundle(nw_dst,1,hrw,ofport,slaves:[4,8]),bundle(symmetric_l4,0,hrw,ofport,members:)
actions=sample(probability=12345,collector_set_id=23456,obs_domain_id=34567,obs_point_id=45678),\
	sample(probability=1,collector_set_id=2,sampling_port=3,ingress),sample(probability=1,egress)
actions=encap(ethernet),decap(),decap
dl_type=0x894f,actions=decap(packet_type(ns=0,type=0)),decap(packet_type(ns=1,type=0x800))
actions=encap(nsh),dec_nsh_ttl,set_field:0x123456->nsh_spi,set_field:5/7->nsh_c1,set_field:3->nsh_si,set_field:0x5->nsp
actions=encap(nsh(md_type=1)),encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210)))
actions=encap(mpls),encap(mpls_mc),set_field:5->mpls_label
actions=delete_field:tun_metadata5,set_field:0x5->tun_metadata0,set_field:5/7->tun_metadata63,\
	load:5->tun_metadata1[0..31],move:NXM_NX_TUN_METADATA1[0..31]->NXM_NX_REG0[],push:NXM_NX_TUN_METADATA2[0..7]
tun_metadata0,tun_metadata1=5,tun_metadata2=0x12345678901234567890123456789012345678901234567890,tun_metadata3=0x5/0xf,\
	tun_metadata4=0,actions=drop
tun_metadata63=0x12/0xff,tun_metadata7=0/0xff00,actions=drop
tun_erspan_ver=1,tun_erspan_idx=0x12345,actions=set_field:5->tun_erspan_idx
tun_erspan_ver=2,tun_erspan_dir=1,tun_erspan_hwid=0x3f,actions=set_field:2->tun_erspan_ver
tun_gtpu_flags=0x30,tun_gtpu_msgtype=255,actions=drop
tun_gbp_id=5,tun_gbp_flags=0x40,reg15=1,xreg3=0x100000002,in_port=LOCAL,actions=set_field:0x5/0xff->pkt_mark
tun_ipv6_src=fd00::1,tun_ipv6_dst=fd00::/64,tunnel_id=5/0xf,tun_src=1.2.3.4/255.0.255.0,actions=drop
tun_flags=oam,actions=set_field:oam->tun_flags
tun_flags=-oam,actions=set_field:0->tun_flags
dl_type=0x894f,nsh_flags=1/3,nsh_ttl=63,nsh_mdtype=1,nsh_np=3,nsh_spi=0x123456,nsh_si=255,nsh_c1=5,nsh_c2=6/7,\
	nsh_c3=0xffffffff,nsh_c4=0/1,actions=drop
dl_type=0x894f,nsp=5,nsi=6,nsh_mdtype=1,nshc1=7,actions=drop
packet_type=(1,0x800),nw_dst=1.2.3.4,nw_proto=6,tp_dst=80,actions=dec_ttl
packet_type=(1,0x894f),nsh_mdtype=1,nsh_c1=5,actions=dec_nsh_ttl
packet_type=(1,0x86dd),actions=drop
eth,ip,actions=drop
dl_type=0x1234,pkt_mark=5,ct_state=+new+trk-est,ct_zone=5,ct_mark=1/1,ct_label=5/0xff,conj_id=5,metadata=5/7,tun_id=7,\
	tun_src=1.2.3.4,actions=drop
ct_state=+trk+est,ct_nw_proto=6,ct_nw_src=10.0.0.0/8,ct_nw_dst=1.2.3.4,ct_tp_src=1/0xff,ct_tp_dst=80,ip,\
	actions=resubmit(,1,ct),resubmit(1,2,ct)
ct_state=+trk-inv,ct_nw_proto=58,ct_ipv6_src=fd00::/8,ct_ipv6_dst=fd00::1,ipv6,actions=drop
ip,ct_state=new|trk,actions=drop
ip,ct_state=0x21,actions=drop
ct_state=0/0x20,actions=drop
tcp6,ct_state=0x21/0x21,ipv6_src=2001:db8::/64,tcp_flags=+syn-ack,actions=normal
tcp6,ipv6_src=2001:db8::5,ipv6_label=0x5,tcp_flags=0x2,nw_frag=not_later,nw_tos=32,nw_ecn=2,nw_ttl=5,actions=flood
tcp,tcp_flags=syn|ack,actions=drop
tcp,tcp_flags=0x200/0xe00,actions=drop
tcp,tcp_flags=+[200]-[400],actions=drop
ip,nw_frag=yes,actions=drop
ip,nw_frag=no,actions=drop
ip,nw_frag=later,actions=drop
ip,ip_frag=first,actions=drop
arp,arp_op=1,arp_spa=1.2.3.4/255.0.255.0,arp_sha=00:11:22:33:44:55,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,\
	actions=all
arp,nw_proto=2,nw_src=1.2.3.4,nw_dst=5.6.7.8,actions=all
rarp,arp_op=3,arp_tha=00:11:22:33:44:55/ff:ff:ff:00:00:00,actions=drop
icmp6,icmp_type=135,nd_target=fe80::1,nd_sll=00:11:22:33:44:55,actions=in_port
icmp6,icmpv6_type=136,icmpv6_code=0,nd_target=fe80::/10,nd_tll=00:11:22:33:44:55/ff:ff:ff:ff:ff:00,nd_reserved=5,\
	nd_options_type=2,actions=set_field:3->nd_options_type,set_field:5->nd_reserved
icmp,icmp_type=8,icmp_code=0,actions=output:3
dl_vlan_pcp=3,actions=clear_actions,write_actions(output:3),goto_table:5
actions=write_actions(set_field:1->reg0,output:1,group:5)
ip,actions=write_actions(pop_vlan,output:2)
actions=write_actions(dec_ttl,mod_nw_ttl:4,pop_mpls:0x800,dec_mpls_ttl,set_mpls_ttl:3,dec_nsh_ttl)
ip,actions=write_actions(mod_tp_src:5,strip_vlan),goto_table:3
actions=write_actions(push_mpls:0x8847,dec_ttl,mod_vlan_vid:3)
ct_state=+rpl+trk,udp,ct_tp_src=53,actions=drop
ct_state=+rpl+trk,udp,ct_tp_dst=53/0xfff0,ct_tp_src=5,ct_mark=1,actions=drop
ct_state=+rpl+trk,udp,ct_nw_proto=17,ct_tp_src=53,actions=drop
actions=output:1,write_actions()
vlan_tci=0x0,actions=drop
vlan_vid=0x1000/0x1000,actions=drop
vlan_vid=5,actions=drop
vlan_vid=0x1005,vlan_pcp=3,actions=drop
vlan_tci=0x1005/0x1fff,actions=drop
vlan_tci=0x0005/0x0fff,actions=drop
vlan_tci=0x3005,actions=drop
vlan_tci=0xf123,actions=drop
dl_vlan=0xffff,actions=drop
dl_vlan=0,actions=set_field:4100->vlan_vid
udp,tp_src=0x50/0xfff0,actions=drop
arp,arp_op=1,arp_tpa=10.0.0.1,actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:aa:bb:cc:dd:ee:ff->eth_src,\
	load:2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:aa:bb:cc:dd:ee:ff->arp_sha,\
	move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:10.0.0.1->arp_spa,IN_PORT
sctp,tp_dst=132,actions=set_field:5->sctp_dst
mpls,mpls_label=5,mpls_tc=3,mpls_bos=1,mpls_ttl=64,actions=drop
actions=check_pkt_larger(1400)->NXM_NX_REG0[3],push:NXM_NX_REG0[0..7],pop:NXM_NX_REG1[8..15],exit,push:tun_id,\
	pop:OXM_OF_METADATA[0..31]
tcp,actions=fin_timeout(idle_timeout=5,hard_timeout=6),fin_timeout(),fin_timeout(hard_timeout=1)
actions=load:0->NXM_OF_IN_PORT[],set_field:5->in_port,set_field:LOCAL->in_port,\
	move:OXM_OF_IN_PORT[0..15]->NXM_NX_REG0[0..15],load:0x3->NXM_OF_VLAN_TCI[0..3],load:0xffff->NXM_OF_IN_PORT[0..15]
ip,actions=load:32->NXM_OF_IP_TOS[],set_field:8->ip_dscp,load:1->nw_ecn[0],load:3->NXM_NX_IP_TTL[0..3]
reg0[0..15]=5,reg0[16..31]=0x7,reg1[3]=1,NXM_NX_REG2[]=9,actions=drop
reg0=*,nw_src=*,ip,tp_src=0/0,tcp,actions=drop
priority=010,idle_timeout=0x10,table=5,cookie=-1,ip4,actions=drop
ip6,check_overlap,reset_counts,no_packet_counts,no_byte_counts,actions=drop
duration=5s, n_packets=3, n_bytes=4, idle_age=5, hard_age=6, ipv4,actions=drop
dl_type=0x894f,actions=load:1->OXM_OF_METADATA[],load:1->OXM_OF_PKT_REG0[0..15],move:NXOXM_NSH_SPI[0..7]->reg0[0..7]
dp_hash=5/0xff,recirc_id=0,actset_output=5,actions=drop
actions=output:NXM_NX_TUN_ID[0..15],set_field:01:00:00:00:00:00/01:00:00:00:00:00->eth_dst,set_field:0xfd/0xff->xxreg0
ipv6,actions=set_field:fd00::/64->ipv6_src,set_field:0x12345->ipv6_label,set_field:ffff:ffff::/32->ipv6_dst
in_port=65534,actions=65533
`, "\\\n\t", "")), "\n")
