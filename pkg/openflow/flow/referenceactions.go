package flow

// actionForm is one action, or instruction: its text as an example, its effect, its prerequisites, and its definition.
// In the text &#124; stands for a |.
type actionForm struct{ text, does, needs, source string }

const (
	needIP   = "ip or ipv6"
	needVLAN = "dl_vlan or vlan_vid"
	needMPLS = "mpls or mplsm"
	spec726  = specSource + ", 7.2.6"
	spec725  = specSource + ", 7.2.5"
	oldForm  = specSource + " has set_field"
)

// actionForms is every action that ParseActions takes, by what it is for.
var actionForms = []actionForm{
	{"drop", "nothing: the packet ends here; stands alone", "", spec726},
	{"output:1", "sends the packet to a port: a number, or LOCAL, IN_PORT, NORMAL, FLOOD, ALL, TABLE, CONTROLLER; the " +
		"port alone means the same", "", spec726},
	{"output:NXM_NX_REG1[0..15]", "sends the packet to the port whose number the field holds; output_reg is the same",
		"the field's", nicira},
	{"output(port=1,max_len=100)", "sends the first bytes of the packet to a port, at least 14", "", nicira},
	{"enqueue:1:5", "sends the packet to a port by a queue: set_queue, output and pop_queue", "", nicira},
	{"group:1", "hands the packet to a group", "", spec726},
	{"controller(max_len=128,reason=no_match,id=3,userdata=01.02,pause,meter_id=5)",
		"sends the packet to a controller; pause waits until the controller resumes it", "", nicira},
	{"CONTROLLER:128", "sends the first bytes of the packet to the controller", "", spec726},
	{"set_queue:5", "chooses the queue of later outputs", "", spec726},
	{"pop_queue", "goes back to the queue that the packet had", "", nicira},
	{"resubmit(1,2)", "looks the packet up in a table, as if it came from a port; either may be empty", "", nicira},
	{"resubmit(,2,ct)", "does so with the addresses of the connection's first packet", "a ct_state of known connections",
		nicira},
	{"clone(output:1)", "does the actions on a copy of the packet", "", nicira},
	{"exit", "stops: no more actions, no more tables", "", nicira},
	{"meter:1", "passes the packet through a meter; ovs-ofctl wants it first", "", spec726},
	{"multipath(symmetric_l4,50,modulo_n,16,0,NXM_NX_REG0[0..3])",
		"hashes the packet and writes the number of one of some links to a field", "the field's", nicira},
	{"bundle(eth_src,0,hrw,ofport,members:1,2)", "sends the packet to one of some ports that is up", "", nicira},
	{"bundle_load(eth_src,0,active_backup,ofport,NXM_NX_REG0[],members:1,2)",
		"writes the number of one of some ports that is up to a field", "the field's", nicira},
	{"sample(probability=100,collector_set_id=1,obs_domain_id=2,obs_point_id=3,sampling_port=4,egress)",
		"sends some packets, of 65535, to a set of IPFIX collectors; obs_domain_id and obs_point_id may be fields of up to " +
			"32 bits (since Open vSwitch 3.4)", "", nicira},

	{"set_field:0x5/0xff->reg0", "writes a value to a field, or to the bits of a mask", "the field's", spec726},
	{"load:0x5->NXM_NX_REG0[0..7]", "writes a number to bits of a field: a set_field", "the field's", nicira},
	{"move:NXM_NX_REG0[0..7]->NXM_NX_REG1[8..15]", "copies bits of a field to another one", "both fields'", spec726},
	{"push:NXM_NX_REG0[]", "copies bits of a field to the stack", "the field's", nicira},
	{"pop:NXM_NX_REG0[]", "takes bits from the stack", "the field's", nicira},
	{"check_pkt_larger(1400)->NXM_NX_REG0[0]", "sets a bit where the packet is longer than some bytes", "", nicira},
	{"delete_field:tun_metadata0", "removes a tunnel option", "", nicira},
	{"write_metadata:0x5/0xff", "instruction: writes the bits of a mask to the metadata", "", spec725},

	{"push_vlan:0x8100", "pushes a VLAN tag", "no more than one tag", spec726},
	{"pop_vlan", "takes the outer VLAN tag off; strip_vlan is the same", needVLAN, spec726},
	{"mod_vlan_vid:5", "sets the VLAN, and pushes a tag if there is no tag", "", oldForm},
	{"mod_vlan_pcp:5", "sets the VLAN priority, and pushes a tag if there is no tag", "", oldForm},
	{"set_vlan_vid:5", "sets the VLAN", needVLAN, oldForm},
	{"set_vlan_pcp:5", "sets the VLAN priority", needVLAN, oldForm},
	{"push_mpls:0x8847", "pushes an MPLS label", "", spec726},
	{"pop_mpls:0x0800", "takes the outer MPLS label off; the number is the Ethernet type below", needMPLS, spec726},
	{"set_mpls_label(5)", "sets the outer MPLS label", needMPLS, oldForm},
	{"set_mpls_tc(5)", "sets its traffic class", needMPLS, oldForm},
	{"set_mpls_ttl(5)", "sets its TTL", needMPLS, spec726},
	{"dec_mpls_ttl", "decrements its TTL", needMPLS, spec726},
	{"encap(nsh(md_type=2,tlv(0x1000,10,0x1234)))", "puts a header in front: ethernet, nsh, mpls or mpls_mc", "", nicira},
	{"decap(packet_type(ns=1,type=0x894f))", "takes the outer header off; names the protocol below if the header does not",
		"", nicira},
	{"dec_nsh_ttl", "decrements the TTL of an NSH header", "dl_type=0x894f, or encap(nsh)", nicira},

	{"mod_dl_src:00:11:22:33:44:55", "sets the source MAC", "", oldForm},
	{"mod_dl_dst:00:11:22:33:44:55", "sets the destination MAC", "", oldForm},
	{"mod_nw_src:10.0.0.1", "sets the IPv4 source", "ip", oldForm},
	{"mod_nw_dst:10.0.0.1", "sets the IPv4 destination", "ip", oldForm},
	{"mod_nw_tos:32", "sets the DSCP, as the upper six bits of a byte", needIP, oldForm},
	{"mod_nw_ecn:2", "sets the ECN bits", needIP, oldForm},
	{"mod_nw_ttl:64", "sets the TTL or hop limit; set_nw_ttl is the same", needIP, spec726},
	{"dec_ttl(1,2)",
		"decrements the TTL or hop limit, and sends controllers the packets that must not go on; without numbers, " +
			"controller 0", needIP, spec726},
	{"mod_tp_src:80", "sets the source port of the protocol that is matched", "tcp, udp or sctp", oldForm},
	{"mod_tp_dst:80", "sets the destination port of the protocol that is matched", "tcp, udp or sctp", oldForm},
	{"set_tunnel:5", "sets the tunnel key", "", oldForm},
	{"set_tunnel64:5", "sets the tunnel key", "", oldForm},

	{"ct(commit,force,zone=5,table=3,nat(src=10.0.0.1-10.0.0.9:1024-2048,random),exec(set_field:1->ct_mark),alg=ftp)",
		"sends the packet through connection tracking and goes on in a table; zone may be a field of 16 bits; nat alone " +
			"repeats what was done before", needIP + "; tcp for ftp, udp for tftp", nicira},
	{"ct_clear", "forgets the result of connection tracking", "", nicira},
	{"learn(table=1,hard_timeout=5,limit=9,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]," +
		"load:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15],output:NXM_OF_IN_PORT[])",
		"adds or changes a flow made of this packet's fields", "the fields', in the match and in what is learned", nicira},
	{"conjunction(5,1/2)", "is one clause of a match on several dimensions; conj_id=5 matches when all clauses do",
		"only notes next to it", nicira},
	{"note:01.02.03.04.05.06", "does nothing; its bytes stay with the flow", "", nicira},
	{"fin_timeout(idle_timeout=5,hard_timeout=9)", "lowers the flow's timeouts when a TCP connection ends", "tcp or tcp6",
		nicira},

	{"clear_actions", "instruction: empties the action set", "", spec725},
	{"write_actions(output:1)", "instruction: puts actions into the action set, which is done at the end", "", spec725},
	{"goto_table:5", "instruction: goes on in a later table", "", spec725},
	{"raw:0063000800000000", "an action that is not known here, as it stands on the wire", "", "this library"},
	{"raw_instruction:ffff000800000000", "an instruction that is not known here", "", "this library"},
}
