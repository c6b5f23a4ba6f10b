package appctl

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// tracedFlows are flows with each way to change a field, and with each end of a packet.
const tracedFlows = `
table=0,in_port=1,tcp,tp_dst=1 actions=set_field:0x2abcdef/0x3ffffff->reg14,goto_table:1
table=0,in_port=1,tcp,tp_dst=2 actions=set_field:0x2abcdef/0x3ffffff->reg14,group:1
table=0,in_port=1,tcp,tp_dst=3 actions=set_field:0x7->reg6,move:NXM_NX_REG6[0..23]->NXM_NX_TUN_ID[0..23],ct(table=3)
table=0,in_port=1,tcp,tp_dst=4 actions=controller(userdata=70.6f.6c.69.63.79.2d.6c.6f.67.20.61.2c.20.62)
table=0,in_port=1,tcp,tp_dst=5 actions=controller(userdata=6c.6f.67),output:2
table=0,in_port=1,tcp,tp_dst=6 actions=controller(max_len=128,userdata=64.72.6f.70.70.65.64)
table=0,in_port=1,tcp,tp_dst=7 actions=controller
table=0,in_port=1,tcp,tp_dst=8 actions=output:1
table=0,in_port=1,tcp,tp_dst=9 actions=IN_PORT
table=0,in_port=1,tcp,tp_dst=10 actions=output:77
table=0,in_port=1,tcp,tp_dst=11 actions=ct(commit,nat(src=192.0.2.1),table=3)
table=0,in_port=1,tcp,tp_dst=12 actions=set_field:0x3->reg1,dec_ttl,output:NXM_NX_REG1[]
table=0,in_port=1,tcp,tp_dst=13 actions=group:2
table=0,in_port=1,tcp6,tp_dst=1 actions=move:NXM_NX_IPV6_SRC[0..63]->NXM_NX_IPV6_DST[0..63],output:2
table=0,in_port=1,tcp6,tp_dst=2 actions=set_field:fd00::/ffff::->ipv6_src,group:3
table=0,in_port=1,arp actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],IN_PORT
table=1,priority=5 actions=set_field:02:54:4e:00:00:00->eth_dst,resubmit(,2)
table=2,priority=6 actions=set_field:192.0.2.9->tun_dst,move:NXM_NX_REG14[0..23]->NXM_OF_ETH_DST[0..23],output:3
table=3,priority=7 actions=set_field:192.0.2.9->tun_dst,output:3
table=4,priority=8,ip actions=dec_ttl,output:3
`

// tracedGroups change fields in a bucket, also some bits of them.
var tracedGroups = []string{
	"group_id=1,type=select,selection_method=dp_hash,bucket=bucket_id:7,actions=set_field:02:54:4e:00:00:00->eth_dst," +
		"move:NXM_NX_REG14[0..23]->NXM_OF_ETH_DST[0..23],set_field:0.0.1.0/0.0.255.0->ip_dst," +
		"set_field:192.0.2.9->tun_dst,set_field:0x8/0xf->tun_id,resubmit(,4)",
	"group_id=2,type=select,selection_method=dp_hash,bucket=bucket_id:1,watch_port:77,actions=output:2",
	"group_id=3,type=select,selection_method=dp_hash,bucket=bucket_id:9,actions=" +
		"move:NXM_NX_IPV6_SRC[120..127]->NXM_NX_IPV6_DST[0..7],output:2",
}

// TestParseTraceOfSwitch reads the answers of a switch about packets.
func TestParseTraceOfSwitch(t *testing.T) {
	t.Parallel()
	s := ovstest.Start(t, ovstest.Dummy)
	add := []string{"add-br", "br-int", "--", "set", "bridge", "br-int", "fail_mode=secure",
		"protocols=OpenFlow10,OpenFlow15"}
	for i, kind := range []string{"dummy", "dummy", "geneve options:remote_ip=flow options:key=flow"} {
		name := fmt.Sprint("p", i+1)
		add = append(add, "--", "add-port", "br-int", name, "--", "set", "interface", name,
			fmt.Sprint("ofport_request=", i+1))
		add = append(add, strings.Fields("type="+kind)...)
	}
	s.Vsctl(add...)
	ofctl := func(command, input string) {
		t.Helper()
		c := exec.Command("ovs-ofctl", "-O", "OpenFlow15", command, "unix:"+s.RunDir()+"/br-int.mgmt", "-")
		c.Stdin = strings.NewReader(input)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	ofctl("add-groups", strings.Join(tracedGroups, "\n"))
	ofctl("add-flows", tracedFlows)
	ctx, cancel := context.WithTimeout(t.Context(), ovstest.Timeout())
	defer cancel()
	const (
		four = "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,tp_dst="
		six  = "tcp6,ipv6_src=fd11::1,ipv6_dst=fd22::2,tp_dst="
	)
	for _, row := range []struct{ name, packet, want string }{
		{"a move into some bits", four + "1", "0 1 2 > port 3 dl_dst=02:54:4e:ab:cd:ef tun_dst=192.0.2.9 nw_ttl=64"},
		{"changes in a bucket", four + "2", "0 4 > port 3 dl_dst=02:54:4e:ab:cd:ef nw_dst=10.0.1.2 tun_dst=192.0.2.9 " +
			"tun_id=0x8 nw_ttl=63"},
		{"a key before connection tracking", four + "3", "0 3 > port 3 nw_src=10.0.0.1 tun_dst=192.0.2.9 tun_id=0x7"},
		{"logged and dropped", four + "4", `0 > nothing, userdata ["policy-log a, b"]`},
		{"logged and sent", four + "5", `0 > port 2, userdata ["log"]`},
		{"recorded and dropped", four + "6", `0 > nothing, userdata ["dropped"]`},
		{"controller without a text", four + "7", `0 > nothing, userdata [""]`},
		{"to its own port", four + "8", "0 > nothing, dropped, skipping output to input port"},
		{"back", four + "9", "0 > back"},
		{"port that is not there", four + "10", "0 > nothing, dropped, Nonexistent output port"},
		{"translated source", four + "11", "0 3 > port 3 nw_src=192.0.2.1 tun_dst=192.0.2.9"},
		{"port of a register", four + "12", "0 > port 3 nw_ttl=63"},
		{"no live bucket", four + "13", "0 > nothing, dropped, no live bucket"},
		{"bits of IPv6", six + "1", "0 > port 2 ipv6_dst=fd22::1"},
		{"bits of IPv6 in a bucket", six + "2", "0 > port 2 ipv6_src=fd00::1 ipv6_dst=fd22::fd"},
		{"ARP", "arp,dl_src=0a:00:00:00:00:01,arp_op=1", "0 > back dl_dst=0a:00:00:00:00:01"},
		{"no match", "udp,udp_dst=1", "0 > nothing, dropped"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, err := Client{RunDir: s.RunDir()}.Trace(ctx, "br-int", "dp_hash=1,in_port=1,"+row.packet)
			if err != nil {
				t.Fatal(err)
			}
			have, err := ParseTrace(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := have.text(row.want); got != row.want {
				t.Errorf("have %q, want %q\n%s", got, row.want, text)
			}
		})
	}
}

// text returns the tables, the end and the fields that are wanted.
func (t Traced) text(want string) string {
	var out strings.Builder
	for _, s := range t.Steps {
		fmt.Fprint(&out, s.Table, " ")
	}
	switch {
	case t.Back:
		out.WriteString("> back")
	case t.Output != 0:
		fmt.Fprint(&out, "> port ", t.Output)
	default:
		out.WriteString("> nothing")
	}
	if t.Userdata != nil {
		fmt.Fprintf(&out, ", userdata %q", t.Userdata)
	}
	if t.Output == 0 && t.Dropped {
		out.WriteString(", dropped")
		for _, r := range t.Remarks {
			out.WriteString(", " + r)
		}
	}
	for _, word := range strings.Fields(want) {
		if name, _, ok := strings.Cut(word, "="); ok {
			fmt.Fprintf(&out, " %s=%s", name, t.Fields[name])
		}
	}
	return out.String()
}
