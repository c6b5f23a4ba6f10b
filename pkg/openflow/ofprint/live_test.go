package ofprint

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestLive sends all requests to a real switch, and compares our text of its answers with ovs-ofctl's.
func TestLive(t *testing.T) {
	o := ovstest.Start(t, ovstest.Dummy)
	o.Vsctl("--timeout=60", "add-br", "br0", "--", "set", "bridge", "br0", "fail-mode=secure")
	for i := 1; i <= 3; i++ {
		p := fmt.Sprintf("p%d", i)
		o.Vsctl("--timeout=60", "add-port", "br0", p, "--", "set", "interface", p, "type=dummy",
			fmt.Sprintf("ofport_request=%d", i))
	}
	socket := filepath.Join(o.RunDir(), "br0.mgmt")
	for _, args := range [][]string{
		{"add-flow", "table=0,priority=9,tcp,tp_dst=80,cookie=7,idle_timeout=60,send_flow_rem," +
			"actions=ct(commit,nat(src=1.2.3.4)),output:1"},
		{"add-flow", "table=3,actions=drop"},
		{"add-group", "group_id=5,type=select,selection_method=hash,fields(ip_src,ip_dst=255.255.0.0)," +
			"bucket=weight:3,actions=output:1,bucket=actions=output:2"},
		{"add-meter", "meter=7,kbps,burst,band=type=drop,rate=100,burst_size=20"},
		{"add-tlv-map", "{class=0xffff,type=0x1,len=4}->tun_metadata3"},
	} {
		if out, err := exec.Command("ovs-ofctl", "-O", "OpenFlow15", args[0], socket, args[1]).CombinedOutput(); err != nil {
			t.Fatalf("ovs-ofctl %s: %v: %s", args, err, out)
		}
	}

	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	requests := []ofp.Message{
		ofp.Hello{Versions: []uint8{6}}, ofp.FeaturesRequest{}, ofp.GetConfigRequest{}, ofp.DescRequest{},
		ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}},
		ofp.AggregateRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}},
		ofp.TableStatsRequest{}, ofp.PortStatsRequest{}, ofp.QueueStatsRequest{Queue: ofp.QueueAll}, ofp.GroupDescRequest{},
		ofp.GroupStatsRequest{}, ofp.GroupFeaturesRequest{}, ofp.MeterDescRequest{}, ofp.MeterStatsRequest{},
		ofp.MeterFeaturesRequest{},
		ofp.TableFeaturesRequest{}, ofp.PortDescRequest{}, ofp.TableDescRequest{},
		ofp.QueueDescRequest{Port: 1, Queue: ofp.QueueAll},
		ofp.FlowMonitorRequest{ID: 1, Flags: ofp.MonitorInitial | ofp.MonitorAdd | ofp.MonitorActions, Table: ofp.TableAll},
		ofp.RoleRequest{}, ofp.GetAsyncRequest{}, ofp.TLVTableRequest{}, ofp.IPFIXBridgeRequest{},
		ofp.EchoRequest{Data: []byte("echo")}, ofp.SetConfig{MissSendLen: 0xffff},
		ofp.SetPacketInFormat{Format: ofp.PacketInNXM2},
		ofp.PacketOut{InPort: 1, Actions: []ofp.Action{ofp.Controller{MaxLen: 0xffff, Userdata: "\x01", Pause: true}},
			Data: newGenerator(t, 1).packets[0]},
		ofp.FlowMod{Table: 9, Actions: []ofp.Action{ofp.Group{ID: 99}}}, // refused
		ofp.FlowMod{Table: 3, Command: ofp.FlowDelete},
		ofp.BarrierRequest{},
	}
	for i, m := range requests {
		b, err := ofp.AppendMessage(nil, uint32(i+1), m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	var answers []sample
	seen := map[string]bool{}
	for !seen["OFPT_BARRIER_REPLY"] || !seen["NXT_PACKET_IN2"] {
		head := make([]byte, 8)
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatal(err)
		}
		b := append(head, make([]byte, ofp.MessageLen(head)-8)...)
		if _, err := io.ReadFull(c, b[8:]); err != nil {
			t.Fatal(err)
		}
		name := nameOfBytes(b)
		seen[name] = true
		answers = append(answers, sample{b, name})
	}
	for _, name := range []string{
		"OFPT_HELLO", "OFPT_FEATURES_REPLY", "OFPT_GET_CONFIG_REPLY", "OFPST_DESC reply", "OFPST_FLOW reply",
		"OFPST_AGGREGATE reply",
		"OFPST_TABLE reply", "OFPST_PORT reply", "OFPST_QUEUE reply", "OFPST_GROUP_DESC reply", "OFPST_GROUP reply",
		"OFPST_GROUP_FEATURES reply",
		"OFPST_METER_CONFIG reply", "OFPST_METER reply", "OFPST_METER_FEATURES reply", "OFPST_TABLE_FEATURES reply",
		"OFPST_PORT_DESC reply",
		"OFPST_TABLE_DESC reply", "OFPST_QUEUE_DESC reply", "OFPST_FLOW_MONITOR reply", "OFPT_ROLE_REPLY",
		"OFPT_GET_ASYNC_REPLY",
		"NXT_TLV_TABLE_REPLY", "OFPT_ECHO_REPLY", "OFPT_ERROR",
	} {
		if !seen[name] {
			t.Errorf("the switch has sent no %s: it has sent %v", name, seen)
		}
	}
	compare(t, answers, 2)
	compare(t, answers, 3, "-m")
}
