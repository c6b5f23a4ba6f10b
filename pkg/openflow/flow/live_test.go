package flow

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// startOVS runs an ovs-vswitchd of its own with one dummy bridge, br0, and returns its run
// directory. It needs Open vSwitch installed, not root.
func startOVS(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("flowlive%d-", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	env := append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_LOGDIR="+dir, "OVS_DBDIR="+dir, "OVS_SYSCONFDIR="+dir)
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
	}
	start := func(name string, args ...string) {
		t.Helper()
		log, err := os.Create(filepath.Join(dir, filepath.Base(name)+".out"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(name, args...)
		cmd.Env, cmd.Stderr, cmd.Stdout = env, log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			log.Close()
		})
	}
	db := filepath.Join(dir, "conf.db")
	run("ovsdb-tool", "create", db, ovstest.Schema())
	sock := "unix:" + filepath.Join(dir, "db.sock")
	start("ovsdb-server", db, "--remote=p"+sock, "--unixctl="+filepath.Join(dir, "db.ctl"),
		"--log-file="+filepath.Join(dir, "db.log"))
	waitFor(t, filepath.Join(dir, "db.sock"))
	run("ovs-vsctl", "--db="+sock, "--no-wait", "init")
	start("ovs-vswitchd", sock, "--enable-dummy", "--disable-system", "--unixctl="+filepath.Join(dir, "v.ctl"),
		"--log-file="+filepath.Join(dir, "v.log"))
	run("ovs-vsctl", "--db="+sock, "--timeout=60", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy",
		"fail-mode=secure", "protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
		"--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy", "ofport_request=1")
	waitFor(t, filepath.Join(dir, "br0.mgmt"))
	return dir
}

func waitFor(t testing.TB, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not appear", path)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// peer is a plain connection to a switch.
type peer struct {
	t testing.TB
	net.Conn
	xid uint32
}

func dial(t testing.TB, dir string) *peer {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(dir, "br0.mgmt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	p := &peer{t: t, Conn: c}
	p.send(ofp.Hello{Versions: []uint8{6}})
	if m, ok := p.receive().(ofp.Hello); !ok {
		t.Fatalf("first message is %T", m)
	}
	return p
}

func (p *peer) send(m ofp.Message) {
	p.t.Helper()
	p.xid++
	b, err := ofp.AppendMessage(nil, p.xid, m)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// receive reads one message and checks that encoding what was decoded gives it back.
func (p *peer) receive() ofp.Message {
	p.t.Helper()
	head := make([]byte, 8)
	if _, err := io.ReadFull(p, head); err != nil {
		p.t.Fatal(err)
	}
	b := append(head, make([]byte, int(binary.BigEndian.Uint16(head[2:]))-8)...)
	if _, err := io.ReadFull(p, b[8:]); err != nil {
		p.t.Fatal(err)
	}
	xid, m, err := ofp.DecodeMessage(b)
	if err != nil {
		p.t.Fatalf("%v: % x", err, b)
	}
	again, err := ofp.AppendMessage(nil, xid, m)
	if err != nil {
		p.t.Fatalf("encode %T again: %v", m, err)
	}
	if _, _, err := ofp.DecodeMessage(again); err != nil {
		p.t.Fatalf("decode %T again: %v", m, err)
	}
	return m
}

func (p *peer) state() *Set {
	p.t.Helper()
	s := NewSet()
	add := func(err error) {
		if err != nil {
			p.t.Error(err)
		}
	}
	p.send(ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}})
	for more := true; more; {
		m, ok := p.receive().(ofp.FlowDescReply)
		if !ok {
			p.t.Fatalf("%#v is no flow desc reply", m)
		}
		for _, d := range m.Flows {
			add(s.Add(FromStats(d)))
		}
		more = m.More
	}
	p.send(ofp.GroupDescRequest{})
	for more := true; more; {
		m := p.receive().(ofp.GroupDescReply)
		for _, d := range m.Groups {
			add(s.AddGroup(FromGroupDesc(d)))
		}
		more = m.More
	}
	p.send(ofp.MeterDescRequest{})
	for more := true; more; {
		m := p.receive().(ofp.MeterDescReply)
		for _, d := range m.Meters {
			add(s.AddMeter(FromMeterDesc(d)))
		}
		more = m.More
	}
	return s
}

// programmed are flows of the kinds that the datapath has.
var programmed = []string{
	"table=0,priority=200,in_port=1,ip,nw_src=10.10.0.7,dl_src=02:00:00:00:00:07," +
		"actions=load:3->NXM_NX_REG0[0..3],goto_table:1",
	"table=0,priority=190,arp,in_port=1,arp_spa=10.10.0.7,arp_sha=02:00:00:00:00:07,actions=resubmit(,1),resubmit(,2)",
	"table=1,priority=200,arp,arp_op=1,arp_tpa=10.0.0.1," +
		"actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:aa:bb:cc:dd:ee:ff->eth_src,load:2->NXM_OF_ARP_OP[]," +
		"move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:aa:bb:cc:dd:ee:ff->arp_sha," +
		"move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:10.0.0.1->arp_spa,IN_PORT",
	"table=2,priority=200,ip,actions=ct(table=3,zone=65520,nat)",
	"table=2,priority=190,ipv6,actions=ct(table=3,zone=NXM_NX_REG4[0..15],nat)",
	"table=3,priority=210,ct_state=-new+est+trk,ct_mark=0x10/0x10,ip,actions=load:1->NXM_NX_REG0[9],goto_table:5",
	"table=3,priority=200,tcp,nw_dst=10.96.0.10,tp_dst=80,actions=set_field:0x200/0x200->reg0,group:1",
	"table=4,priority=200,tcp,reg3=0xa0a0007,reg4=0x50/0xffff," +
		"actions=ct(commit,table=5,zone=65520,nat(dst=10.10.0.7:80)," +
		"exec(set_field:0x10/0x10->ct_mark,move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3]))",
	"table=5,priority=200,ip,nw_dst=10.97.0.0/16,actions=set_field:aa:bb:cc:dd:ee:f0->eth_dst," +
		"set_field:192.168.78.101->tun_dst,set_field:0x8000->reg1,dec_ttl,goto_table:6",
	"table=5,priority=190,tcp6,ipv6_dst=fd00:10::/64,tp_src=443," +
		"actions=ct_clear,set_field:fd00::1->tun_ipv6_dst,goto_table:6",
	"table=6,priority=200,ct_state=+new+trk,ip," +
		"actions=ct(commit,zone=65521,nat(src=169.254.0.253),exec(load:1->NXM_NX_CT_MARK[5],set_field:0x7/0xff->ct_label))," +
		"goto_table:7",
	"table=7,priority=200,reg0=0x200/0x200,actions=output:NXM_NX_REG1[]",
	"table=7,priority=100,actions=controller(id=0,userdata=01.02,reason=action)," +
		"learn(table=9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_NX_REG1[0..15]->NXM_NX_REG1[0..15])",
	"table=7,priority=90,conj_id=5,actions=note:01.02.03.04.05.06,output:1",
	"table=7,priority=80,ip,nw_src=10.0.0.0/8,cookie=0x1000000000000,actions=conjunction(5,1/2)",
	"table=7,priority=70,reg0=1,reg1=0x2/0xff,reg7=3,xxreg2=0x5,dl_vlan=5,actions=meter:1,pop_vlan,in_port",
	ndAsked,
	ndAnswer,
	tcpFlagsV6,
	fragmentV6,
	"table=8,priority=0,importance=3,idle_timeout=100,send_flow_rem,actions=drop",
}

var programmedGroups = []Group{
	{ID: 1, Type: Select, Selection: Selection{Method: "dp_hash"}, Buckets: []Bucket{
		{ID: 0, Weight: 100, Actions: mustActions("load:0xa0a0007->NXM_NX_REG3[],load:80->NXM_NX_REG4[0..15],resubmit(,4)")},
		{ID: 1, Weight: 50, Actions: mustActions("load:0xa0a0008->NXM_NX_REG3[],load:80->NXM_NX_REG4[0..15],resubmit(,4)")},
	}},
	{ID: 2, Type: Select, Selection: Selection{Method: "hash", Param: 7, Fields: []ofp.Field{ofp.IPv4Src, ofp.IPv4Dst}},
		Buckets: []Bucket{{ID: 5, Weight: 1, Actions: Do(Output(1))}}},
	{ID: 3, Type: FastFailover, Buckets: []Bucket{{ID: 0, WatchPort: 1, Actions: Do(Output(1))},
		{ID: 1, WatchGroup: 2, Actions: Do(ToGroup(2))}}},
	{ID: 4, Type: AllBuckets, Buckets: []Bucket{{ID: 0, Actions: Do(Output(1))}}},
	{ID: 5, Type: Indirect, Buckets: []Bucket{{ID: 0, Actions: Do(ToInPort())}}},
}

func mustActions(s string) Actions {
	a, err := ParseActions(s)
	if err != nil {
		panic(err)
	}
	return a
}

// TestLive programs a real switch, through ovs-ofctl from our text and through our own bundle. The switch must report
// the sent flows.
func TestLive(t *testing.T) {
	dir := startOVS(t)
	target := "unix:" + filepath.Join(dir, "br0.mgmt")
	p := dial(t, dir)
	want := NewSet()
	add := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ofctl(t, "add-tlv-map", target, liveTLVs())
	add(want.AddMeter(Meter{ID: 1, Flags: ofp.MeterPktps | ofp.MeterBurst,
		Bands: []Band{{Kind: ofp.BandDrop, Rate: 100, Burst: 200}}}))
	var groupText, flowText strings.Builder
	for _, g := range programmedGroups {
		add(want.AddGroup(g))
		fmt.Fprintln(&groupText, g)
	}
	for _, text := range programmed {
		f, err := ParseFlow(text)
		add(err)
		add(want.Add(f))
		fmt.Fprintln(&flowText, f)
	}
	for m := range want.Meters() {
		p.send(m.Mod(ofp.MeterAdd))
	}
	p.send(ofp.BarrierRequest{})
	if m := p.receive(); m != (ofp.BarrierReply{}) {
		t.Fatalf("%v", m)
	}
	groupFile, flowFile := filepath.Join(dir, "groups"), filepath.Join(dir, "flows")
	add(os.WriteFile(groupFile, []byte(groupText.String()), 0o600))
	add(os.WriteFile(flowFile, []byte(flowText.String()), 0o600))
	ofctl(t, "add-groups", target, groupFile)
	ofctl(t, "add-flows", target, flowFile)
	if c := Diff(p.state(), want); !c.Empty() {
		t.Errorf("programmed by ovs-ofctl, the switch differs:\n%s", c)
	}
	wantText := map[string]bool{}
	for f := range want.Flows() {
		wantText[f.String()] = true
	}
	dump := ofctl(t, "--no-stats", "--no-names", "dump-flows", target)
	for line := range strings.Lines(dump) {
		if line = strings.TrimSpace(line); !wantText[line] {
			t.Errorf("dump-flows prints a flow differently:\n%s", line)
		}
	}
	groups := ofctl(t, "dump-groups", target)
	for _, g := range programmedGroups {
		if !strings.Contains(groups, " "+g.String()+"\n") {
			t.Errorf("dump-groups prints a group differently:\n ours %s\n%s", g, groups)
		}
	}

	// All fields and actions that a switch takes, again and again, in bundles and by text.
	g := newGenerator(7)
	g.live = true
	for round := range 4 {
		for want.Len() < 400*(round+1) {
			if f := g.flow(); want.Add(f) == nil {
				continue // two flows with one key are refused: the next one, then
			}
		}
		p.bundle(Diff(p.state(), want).Messages())
		if c := Diff(p.state(), want); !c.Empty() {
			t.Fatalf("programmed by a bundle, the switch differs:\n%s", c)
		}
	}
	texts := map[string]bool{}
	for f := range want.Flows() {
		texts[f.OVSText()] = true
	}
	dump = ofctl(t, "--no-stats", "--no-names", "dump-flows", target)
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		if !texts[line] {
			t.Errorf("dump-flows prints a flow differently:\n%s", line)
			continue
		}
		if f, err := ParseFlow(line); err != nil {
			t.Errorf("dump-flows: %s: %v", line, err)
		} else if f.OVSText() != line {
			t.Errorf("dump-flows: %s\n is read as %s", line, f)
		}
	}
	p.bundle(Diff(p.state(), nil).Messages())
	if left := p.state(); left.Len() != 0 {
		t.Errorf("%d entries are left", left.Len())
	}
}

// liveTLVs gives tun_metadata0 and the next ones 32 bytes each.
func liveTLVs() string {
	var list []string
	for n := range liveOptions {
		list = append(list, fmt.Sprintf("{class=0xffff,type=%d,len=32}->tun_metadata%d", n, n))
	}
	return strings.Join(list, ",")
}

// explain describes the message that an error is about.
func explain(m ofp.Message) string {
	e, ok := m.(ofp.Error)
	if !ok {
		return fmt.Sprintf("%#v", m)
	}
	_, refused, err := ofp.DecodeMessage(e.Data)
	return fmt.Sprintf("%v: %#v %v", e, refused, err)
}

func (p *peer) bundle(list []ofp.Message) {
	p.t.Helper()
	const flags = ofp.BundleAtomic | ofp.BundleOrdered
	var later []ofp.Message // OVS takes no meters in bundles
	ctrl := func(c uint16) {
		p.t.Helper()
		p.send(ofp.BundleControl{ID: 1, Ctrl: c, Flags: flags})
		r := p.receive()
		if m, ok := r.(ofp.BundleControl); !ok || m.Ctrl != c+1 {
			p.t.Fatalf("bundle control %d: %v", c, explain(r))
		}
	}
	ctrl(ofp.BundleOpenRequest)
	for _, m := range list {
		if _, ok := m.(ofp.MeterMod); ok {
			later = append(later, m)
			continue
		}
		p.send(ofp.BundleAdd{ID: 1, Flags: flags, Message: m})
	}
	ctrl(ofp.BundleCommitRequest)
	for _, m := range later {
		p.send(m)
	}
}

// TestLiveMessages asks a real switch everything else that there is to ask.
func TestLiveMessages(t *testing.T) {
	dir := startOVS(t)
	p := dial(t, dir)
	ask := func(m ofp.Message) ofp.Message { t.Helper(); p.send(m); return p.receive() }
	if m, ok := ask(ofp.EchoRequest{Data: []byte("x")}).(ofp.EchoReply); !ok || string(m.Data) != "x" {
		t.Errorf("echo: %#v", m)
	}
	if m, ok := ask(ofp.FeaturesRequest{}).(ofp.FeaturesReply); !ok || m.Tables != 254 || m.DatapathID == 0 {
		t.Errorf("features: %#v", m)
	}
	if m, ok := ask(ofp.DescRequest{}).(ofp.DescReply); !ok || m.Hardware != "Open vSwitch" {
		t.Errorf("desc: %#v", m)
	}
	if m, ok := ask(ofp.PortDescRequest{}).(ofp.PortDescReply); !ok || len(m.Ports) != 2 {
		t.Errorf("port desc: %#v", m)
	}
	if m, ok := ask(ofp.GetConfigRequest{}).(ofp.GetConfigReply); !ok {
		t.Errorf("config: %#v", m)
	}
	if m, ok := ask(ofp.GetAsyncRequest{}).(ofp.GetAsyncReply); !ok || len(m.Properties) == 0 {
		t.Errorf("async: %#v", m)
	}
	if m, ok := ask(ofp.RoleRequest{}).(ofp.RoleReply); !ok || m.Role != ofp.RoleEqual {
		t.Errorf("role: %#v", m)
	}
	if m, ok := ask(ofp.GroupFeaturesRequest{}).(ofp.GroupFeaturesReply); !ok || m.Types != 15 {
		t.Errorf("group features: %#v", m)
	}
	if m, ok := ask(ofp.TableStatsRequest{}).(ofp.TableStatsReply); !ok || len(m.Tables) != 254 {
		t.Errorf("table stats: %#v", m)
	}
	p.send(ofp.SetPacketInFormat{Format: ofp.PacketInNXM2})
	p.send(ofp.SetAsync{Properties: []ofp.AsyncProperty{{Kind: ofp.AsyncPacketIn, Mask: 0x3f},
		{Kind: ofp.AsyncPortStatus, Mask: 7}, {Kind: ofp.AsyncFlowRemoved, Mask: 0xf}}})
	f, err := ParseFlow("table=1,priority=5,reg1=7,actions=set_field:9->reg2,controller(userdata=01.02,max_len=20)")
	if err != nil {
		t.Fatal(err)
	}
	f.Cookie, f.Flags = 5, ofp.FlagSendFlowRem
	m, ok := ask(ofp.FlowMonitorRequest{ID: 3, Table: ofp.TableAll, Flags: ofp.MonitorInitial | ofp.MonitorAdd |
		ofp.MonitorRemoved | ofp.MonitorModify | ofp.MonitorActions}).(ofp.FlowMonitorReply)
	if !ok || len(m.Updates) != 0 {
		t.Errorf("flow monitor: %#v", m)
	}
	m, ok = ask(f.Mod(ofp.FlowAdd)).(ofp.FlowMonitorReply)
	if !ok || len(m.Updates) != 1 {
		t.Fatalf("flow monitor update: %#v", m)
	}
	// Of what a connection does itself, the switch only reports that it was done; unless it is
	// asked to report that too.
	if u := m.Updates[0]; u.Event != ofp.UpdateAbbrev || u.XID != p.xid {
		t.Errorf("flow monitor: have %+v, want the flow_mod's xid %d", u, p.xid)
	}
	other := dial(t, dir)
	g := f
	g.Priority, g.Flags = 6, 0
	other.send(g.Mod(ofp.FlowAdd))
	m, ok = p.receive().(ofp.FlowMonitorReply)
	if !ok || len(m.Updates) != 1 || m.Updates[0].Event != ofp.UpdateAdded {
		t.Fatalf("flow monitor: have %#v, want the flow that another connection added", m)
	}
	if h := FromUpdate(m.Updates[0]); h.Key() != g.Key() || !h.Actions.Equal(g.Actions) || h.Cookie != g.Cookie {
		t.Errorf("flow monitor: have %s, want %s", h, g)
	}
	other.send(g.Mod(ofp.FlowDeleteStrict))
	if m, ok = p.receive().(ofp.FlowMonitorReply); !ok || len(m.Updates) != 1 || m.Updates[0].Event != ofp.UpdateRemoved {
		t.Errorf("flow monitor: have %#v, want the flow that another connection removed", m)
	}
	if m, ok := ask(ofp.AggregateRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}}).(ofp.AggregateReply); !ok ||
		m.Flows != 1 {
		t.Errorf("aggregate: %#v", m)
	}
	// OVS 3.1 does not know OpenFlow 1.5's flow statistics without actions.
	if m, ok := ask(ofp.FlowStatsRequest{FlowFilter: ofp.FlowFilter{Table: ofp.TableAll}}).(ofp.Error); !ok ||
		m.Name() != "OFPBRC_BAD_STAT" {
		t.Errorf("flow stats: %#v", m)
	}
	in, ok := ask(ofp.PacketOut{InPort: ofp.PortController, Match: All(Reg(1).Bits(0, 32).Is(7)).OXM(),
		Actions: Do(Resubmit(1)), Data: make([]byte, 60)}).(ofp.PacketIn2)
	if !ok || string(in.Userdata) != "\x01\x02" || in.FullLen != 60 || in.Cookie != 5 || in.Table != 1 ||
		in.InPort() != ofp.PortController {
		t.Errorf("packet in: %#v", in)
	}
	if v, _, _ := in.Metadata.Get(ofp.Reg2); v.Lo != 9 {
		t.Errorf("packet in: metadata %s, want reg2=9", MatchOf(in.Metadata))
	}
	p.send(f.Mod(ofp.FlowDeleteStrict))
	for seen := 0; seen < 2; seen++ {
		switch m := p.receive().(type) {
		case ofp.FlowRemoved:
			if m.Match != f.Match.OXM() || m.Reason != ofp.RemovedDelete || m.Stats.Packets != 1 {
				t.Errorf("flow removed: %#v", m)
			}
		case ofp.FlowMonitorReply:
		default:
			t.Errorf("%#v", m)
		}
	}
	bad := ofp.RawMessage{MsgType: 99}
	if m, ok := ask(bad).(ofp.Error); !ok || m.Name() != "OFPBRC_BAD_TYPE" {
		t.Errorf("error: %#v", m)
	}
}
