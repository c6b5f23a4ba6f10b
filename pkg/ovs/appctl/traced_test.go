package appctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tracedText = `Flow: dp_hash=0x1,tcp,in_port=1,nw_src=10.11.1.2,nw_dst=10.97.0.10,nw_ttl=64,tp_src=49152,tp_dst=80

bridge("br-int")
----------------
 0. ip,in_port=1,nw_src=10.11.1.2, priority 200, cookie 0x101006078a04c
    set_field:0x3/0xf->reg0
    goto_table:8
 8. ct_state=+new+trk,tcp,nw_dst=10.97.0.10,tp_dst=80, priority 200, cookie 0x1030047a4c43c
    group:2748453386
     -> using bucket 1503609368
    bucket 1503609368
            ct(commit,table=9,zone=65520,nat(dst=10.98.0.7:5432))

Final flow: unchanged
Datapath actions: ct(commit,zone=65520,nat(dst=10.98.0.7:5432)),recirc(0x3)

===============================================================================
recirc(0x3) - resume conntrack with default ct_state=trk|new (use --ct-next to customize)
===============================================================================

Flow: recirc_id=0x3,ct_state=new|trk,tcp,in_port=1,nw_src=10.11.1.2,nw_dst=10.98.0.7,nw_ttl=64,tp_src=49152,tp_dst=5432

bridge("br-int")
----------------
    thaw
        Resuming from table 9
14. ip,nw_dst=10.98.0.0/16, priority 200, cookie 0x1
    move:NXM_NX_REG6[0..23]->NXM_NX_TUN_ID[0..23]
     -> NXM_NX_TUN_ID[0..23] is now 0x7
    set_field:aa:bb:cc:dd:ee:f0->eth_dst
    set_field:192.168.78.102->tun_dst
22. priority 0
    dec_ttl
    output:NXM_NX_REG1[]
     -> output port is 32768
     -> output to native tunnel
     -> tunneling to 192.168.78.102 via br-phy

bridge("br-phy")
----------------
 0. priority 0
    NORMAL
     -> forwarding to learned port

Final flow: unchanged
Datapath actions: tnl_push(tnl_port(2))
`

// TestParseTrace reads a packet that goes to a Service of another cluster, and endings that are no output.
func TestParseTrace(t *testing.T) {
	have, err := ParseTrace(tracedText)
	if err != nil {
		t.Fatal(err)
	}
	want := Traced{
		Steps: []TracedStep{{0, 200, "ip,in_port=1,nw_src=10.11.1.2", 0x101006078a04c},
			{8, 200, "ct_state=+new+trk,tcp,nw_dst=10.97.0.10,tp_dst=80", 0x1030047a4c43c},
			{14, 200, "ip,nw_dst=10.98.0.0/16", 1}, {22, 0, "", 0}},
		Groups:   []TracedGroup{{2748453386, 1503609368, true}},
		Protocol: "tcp", Output: 32768,
		Fields: map[string]string{"recirc_id": "0x3", "ct_state": "new|trk", "in_port": "1",
			"dl_dst": "aa:bb:cc:dd:ee:f0", "nw_src": "10.11.1.2", "nw_dst": "10.98.0.7", "nw_ttl": "63", "tp_src": "49152",
			"tp_dst": "5432", "tun_id": "0x7", "tun_dst": "192.168.78.102"},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	const head = "Flow: tcp,in_port=1\n\nbridge(\"br-int\")\n 0. priority 0\n"
	for _, row := range []struct {
		name, text string
		want       func(Traced) bool
	}{
		{"no match", strings.Replace(head, "priority 0", "No match.\n        drop", 1), func(t Traced) bool {
			return len(t.Steps) == 1 && t.Output == 0
		}},
		{"a copy for the agent", head + "    controller(max_len=128,userdata=64.72.6f.70.70.65.64.20.30,meter_id=8)\n",
			func(t Traced) bool { return cmp.Equal(t.Userdata, []string{"dropped 0"}) }},
		{"back", head + "    IN_PORT\n", func(t Traced) bool { return t.Back }},
		{"no route", head + "    output:NXM_NX_REG1[]\n     -> output port is 5\n     >> native tunnel routing failed\n",
			func(t Traced) bool {
				return t.Unroutable && cmp.Equal(t.Remarks, []string{"native tunnel routing failed"})
			}},
		{"not sent", head + "    output:1\n     -> skipping output to input port\n",
			func(t Traced) bool { return t.Output == 0 && len(t.Remarks) == 1 }},
		{"passed on", head + "    output:5\n     >> Not tunneling to our own address\n",
			func(t Traced) bool { return t.Output == 5 && t.Remarks == nil }},
		{"by number", head + "    output:7\n", func(t Traced) bool { return t.Output == 7 }},
		{"drop", head + "    drop\n\nDatapath actions: drop\n", func(t Traced) bool { return t.Dropped }},
	} {
		if have, err := ParseTrace(row.text); err != nil || !row.want(have) {
			t.Errorf("%s: %+v, %v", row.name, have, err)
		}
	}
	// The uplink's bridge goes on with the packet of the tunnel after it has chosen a link.
	again := strings.TrimSuffix(tracedText, "\n") + `,recirc(0x4)

Flow: recirc_id=0x4,udp,in_port=LOCAL,nw_src=192.168.78.101,nw_dst=192.168.78.102,tp_dst=6081

bridge("br-phy")
----------------
 0. priority 0
    output:1

Final flow: udp,nw_dst=192.168.78.102
Datapath actions: 1
`
	if have, err = ParseTrace(again); err != nil || !cmp.Equal(want, have) {
		t.Errorf("through two links: %v, (-want +have):\n%s", err, cmp.Diff(want, have))
	}
	for _, text := range []string{"", "no such bridge", "Flow: tcp\n", "bridge(\"b\")\n 0. priority 0\n"} {
		if have, err := ParseTrace(text); err == nil {
			t.Errorf("%q: %+v", text, have)
		}
	}
}

// FuzzParseTrace finds no answer that the reader fails at otherwise than with an error.
func FuzzParseTrace(f *testing.F) {
	f.Add(tracedText)
	files, err := filepath.Glob("testdata/*.trace")
	if err != nil || len(files) == 0 {
		f.Fatalf("no answers in testdata: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		have, err := ParseTrace(text)
		if err == nil && have.Last().Table > 254 && !strings.Contains(text, "255. ") {
			t.Errorf("table %d", have.Last().Table)
		}
		for name, value := range have.Fields {
			if len(value) > len(text)+39 { // a MAC or an address may be written for a shorter number
				t.Errorf("%s has %d bytes of a text of %d", name, len(value), len(text))
			}
		}
	})
}
