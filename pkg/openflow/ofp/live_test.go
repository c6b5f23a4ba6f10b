package ofp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// startSwitch runs an ovs-vswitchd of its own with the dummy bridge br0, whose ports are p1 and
// p2, and returns its run directory and a way to call ovs-vsctl.
func startSwitch(t *testing.T) (dir string, vsctl func(args ...string)) {
	t.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("ofplive%d-", os.Getpid()))
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
			t.Fatalf("%s %v (package openvswitch-switch must be installed): %v: %s", name, args, err, out)
		}
	}
	start := func(wait, name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(dir, wait)); err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s did not appear", name, wait)
			}
		}
	}
	sock := "unix:" + filepath.Join(dir, "db.sock")
	run("ovsdb-tool", "create", filepath.Join(dir, "conf.db"), ovstest.Schema())
	start("db.sock", "ovsdb-server", filepath.Join(dir, "conf.db"), "--remote=p"+sock,
		"--unixctl="+filepath.Join(dir, "db.ctl"), "-vconsole:off", "-vsyslog:off")
	run("ovs-vsctl", "--db="+sock, "--no-wait", "init")
	start("v.ctl", "ovs-vswitchd", sock, "--enable-dummy", "--disable-system", "--unixctl="+filepath.Join(dir, "v.ctl"),
		"-vconsole:off", "-vsyslog:off")
	vsctl = func(args ...string) {
		t.Helper()
		run("ovs-vsctl", append([]string{"--db=" + sock, "--timeout=60"}, args...)...)
	}
	vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure", "protocols=OpenFlow15",
		"--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy", "ofport_request=1",
		"--", "add-port", "br0", "p2", "--", "set", "interface", "p2", "type=dummy", "ofport_request=2")
	return dir, vsctl
}

// peer is a connection to the switch that notes every message it gets.
type peer struct {
	t *testing.T
	net.Conn
	xid     uint32
	unasked []Message // messages that the switch has sent unasked
}

func connect(t *testing.T, dir string) *peer {
	t.Helper()
	p := &peer{t: t}
	for deadline := time.Now().Add(time.Minute); p.Conn == nil; <-time.After(10 * time.Millisecond) {
		var err error
		if p.Conn, err = net.Dial("unix", filepath.Join(dir, "br0.mgmt")); err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
		if err != nil {
			p.Conn = nil
		}
	}
	t.Cleanup(func() { p.Close() })
	_ = p.SetDeadline(time.Now().Add(time.Minute))
	p.send(Hello{Versions: []uint8{Version}})
	if _, m := p.receive(); m.Type() != TypeHello {
		t.Fatalf("the switch begins with %T", m)
	}
	return p
}

func (p *peer) send(m Message) uint32 {
	p.t.Helper()
	p.xid++
	b, err := AppendMessage(nil, p.xid, m)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
	return p.xid
}

// receive decodes the next message, which must not be kept raw and must be encoded to the
// same bytes.
func (p *peer) receive() (uint32, Message) {
	p.t.Helper()
	b := make([]byte, 8)
	if _, err := io.ReadFull(p, b); err != nil {
		p.t.Fatalf("read from the switch: %v", err)
	}
	b = append(b, make([]byte, MessageLen(b)-8)...)
	if _, err := io.ReadFull(p, b[8:]); err != nil {
		p.t.Fatal(err)
	}
	xid, m, err := DecodeMessage(b)
	if err != nil {
		p.t.Fatalf("%v\n% x", err, b)
	}
	switch m.(type) {
	case RawMessage, RawMultipart, Experimenter, ExperimenterMultipart:
		p.t.Errorf("%s is kept raw", nameOf(b))
	}
	again, err := AppendMessage(nil, xid, m)
	same := bytes.Equal(again, b)
	switch m.(type) {
	case PacketIn, PacketIn2: // the switch reports registers by twos; a Match has them singly
		_, second, err := DecodeMessage(again)
		same = err == nil && reflect.DeepEqual(second, m)
	}
	if err != nil || !same {
		p.t.Errorf("%s comes back differently: %v\n have %x\n want %x", nameOf(b), err, again, b)
	}
	return xid, m
}

// ask returns the answer, whose parts are joined.
func (p *peer) ask(m Message) Message {
	p.t.Helper()
	xid := p.send(m)
	var parts []Message
	for {
		got, answer := p.receive()
		if got != xid {
			p.unasked = append(p.unasked, answer)
			continue
		}
		parts = append(parts, answer)
		if part, ok := answer.(Multipart); ok && part.HasMore() {
			continue
		}
		all, err := Join(parts)
		if err != nil {
			p.t.Fatal(err)
		}
		return all
	}
}

// do sends a message that has no answer and sees that it is not refused.
func (p *peer) do(m Message) {
	p.t.Helper()
	if refusal, ok := p.refused(m); ok {
		p.t.Errorf("%T: %v", m, refusal)
	}
}

// refused sends a message and returns the switch's refusal, if it refuses.
func (p *peer) refused(m Message) (refusal Error, ok bool) {
	p.t.Helper()
	xid := p.send(m)
	barrier := p.send(BarrierRequest{})
	for {
		switch got, answer := p.receive(); got {
		case barrier:
			return refusal, ok
		case xid:
			if refusal, ok = answer.(Error); !ok {
				p.t.Errorf("%T is answered with %T", m, answer)
			}
		default:
			p.unasked = append(p.unasked, answer)
		}
	}
}

// await waits until the switch sends a message of type M.
func await[M Message](p *peer) M {
	p.t.Helper()
	for {
		for i, m := range p.unasked {
			if found, ok := m.(M); ok {
				p.unasked = append(p.unasked[:i], p.unasked[i+1:]...)
				return found
			}
		}
		_, m := p.receive()
		p.unasked = append(p.unasked, m)
	}
}

func answer[M Message](p *peer, m Message) M {
	p.t.Helper()
	got := p.ask(m)
	a, ok := got.(M)
	if !ok {
		p.t.Errorf("%T is answered with %#v, want %T", m, got, a)
	}
	return a
}

// TestSwitch asks a switch everything that it knows. Every message it sends is decoded and
// encoded to the same bytes.
func TestSwitch(t *testing.T) {
	dir, vsctl := startSwitch(t)
	p := connect(t, dir)
	drop := []MeterBand{{Kind: BandDrop, Rate: 1000, Burst: 100}}
	selection := Selection{"hash", 1, []Field{IPv4Src, IPv4Dst}, []Value{{Lo: 0xffffffff}, {Lo: 0xffffff00}}}
	buckets := []Bucket{{ID: 1, Weight: 5, WatchPort: 1, Actions: []Action{Output{Port: 1}}},
		{ID: 2, Weight: 0, Actions: []Action{Output{Port: 2}}}}
	var b MatchBuilder
	b.Exact(InPort, Value{Lo: 1})
	b.Exact(EthType, Value{Lo: 0x0800})
	match := b.encode()

	t.Run("changes are taken", func(t *testing.T) {
		p.t = t
		p.do(MeterMod{MeterAdd, MeterKbps | MeterBurst | MeterStats, 5, drop})
		p.do(MeterMod{MeterModify, MeterPktps, 5, drop})
		p.do(GroupMod{Command: GroupAdd, GroupType: GroupTypeSelect, ID: 5, Selection: selection, Buckets: buckets})
		p.do(GroupMod{Command: GroupInsertBucket, GroupType: GroupTypeSelect, ID: 5, CommandBucket: BucketLast,
			Buckets: []Bucket{{ID: 3, Weight: 7, Actions: []Action{Output{Port: 2}}}}})
		p.do(GroupMod{Command: GroupRemoveBucket, GroupType: GroupTypeSelect, ID: 5, CommandBucket: 1})
		p.do(GroupMod{Command: GroupAddOrModify, GroupType: GroupTypeIndirect, ID: 6, Buckets: []Bucket{{}}})
		p.do(FlowMod{Table: 1, Priority: 5, Cookie: 7, Importance: 3, IdleTimeout: 60, HardTimeout: 70,
			Flags: FlagSendFlowRem, Match: match, Actions: []Action{Meter{5}, Output{Port: 2}}})
		p.do(TableMod{Table: 3, Config: TableEviction | TableVacancyEvents, Vacancy: &Vacancy{Down: 20, Up: 80}})
		p.do(SetConfig{ConfigFragMatch, 128})
		p.do(SetControllerID{7})
		p.do(TLVTableMod{TLVAdd, []TLVMap{{0xffff, 1, 8, 3}, {0x102, 0x80, 124, 4}}})
		p.do(TLVTableMod{TLVDelete, []TLVMap{{0x102, 0x80, 124, 4}}})
		p.do(NXFlowAge{})
		p.do(SetAsync{[]AsyncProperty{{Kind: AsyncPortStatus, Mask: 7}, {Kind: AsyncFlowRemoved, Mask: 0x3f},
			{Kind: AsyncPacketIn, Mask: 0x3f}, {Kind: AsyncRequestForward, Mask: 3}, {Kind: AsyncRoleStatus, Mask: 7},
			{Kind: AsyncRoleStatusSecondary, Mask: 7}, {Kind: AsyncTableStatus, Mask: 0x18}}})
	})

	t.Run("questions are answered", func(t *testing.T) {
		p.t = t
		if m := answer[EchoReply](p, EchoRequest{[]byte("hello")}); string(m.Data) != "hello" {
			t.Errorf("echo is %q", m.Data)
		}
		if m := answer[FeaturesReply](p, FeaturesRequest{}); m.Tables != 254 || m.Capabilities&CapabilityBundles == 0 {
			t.Errorf("features are %+v", m)
		}
		if m := answer[GetConfigReply](p, GetConfigRequest{}); m != (GetConfigReply{ConfigFragMatch, 128}) {
			t.Errorf("configuration is %+v", m)
		}
		if m := answer[DescReply](p, DescRequest{}); m.Hardware != "Open vSwitch" {
			t.Errorf("description is %+v", m)
		}
		if m := answer[FlowDescReply](p, FlowDescRequest{FlowFilter{Table: TableAll}}); len(m.Flows) != 1 ||
			m.Flows[0].Importance != 3 || m.Flows[0].Match != match {
			t.Errorf("flows are %+v", m)
		}
		if m := answer[AggregateReply](p, AggregateRequest{FlowFilter{Table: TableAll}}); m.Flows != 1 {
			t.Errorf("sums are %+v", m)
		}
		if m := answer[TableStatsReply](p, TableStatsRequest{}); len(m.Tables) != 254 || m.Tables[1].Active != 1 {
			t.Errorf("%d tables have counters", len(m.Tables))
		}
		if m := answer[PortStatsReply](p, PortStatsRequest{}); len(m.Ports) != 3 || m.Ports[0].Ethernet == nil {
			t.Errorf("ports' counters are %+v", m)
		}
		if m := answer[PortStatsReply](p, PortStatsRequest{2}); len(m.Ports) != 1 || m.Ports[0].Port != 2 {
			t.Errorf("the port's counters are %+v", m)
		}
		if m := answer[PortDescReply](p, PortDescRequest{}); len(m.Ports) != 3 {
			t.Errorf("ports are %+v", m)
		}
		if m := answer[QueueStatsReply](p, QueueStatsRequest{1, QueueAll}); len(m.Queues) == 0 || m.Queues[0].Port != 1 {
			t.Errorf("queues' counters are %+v", m)
		}
		if m := answer[QueueDescReply](p, QueueDescRequest{1, QueueAll}); len(m.Queues) == 0 || m.Queues[0].Port != 1 {
			t.Errorf("queues are %+v", m)
		}
		if m := answer[GroupDescReply](p, GroupDescRequest{5}); len(m.Groups) != 1 ||
			!m.Groups[0].Selection.Equal(selection) || len(m.Groups[0].Buckets) != 2 || m.Groups[0].Buckets[1].Weight != 7 {
			t.Errorf("groups are %+v", m)
		}
		if m := answer[GroupStatsReply](p, GroupStatsRequest{}); len(m.Groups) != 2 {
			t.Errorf("groups' counters are %+v", m)
		}
		if m := answer[GroupFeaturesReply](p, GroupFeaturesRequest{}); m.Types != 15 {
			t.Errorf("groups' features are %+v", m)
		}
		if m := answer[MeterDescReply](p, MeterDescRequest{5}); len(m.Meters) != 1 || m.Meters[0].Flags != MeterPktps ||
			!reflect.DeepEqual(m.Meters[0].Bands, drop) {
			t.Errorf("meters are %+v", m)
		}
		if m := answer[MeterStatsReply](p, MeterStatsRequest{}); len(m.Meters) != 1 || len(m.Meters[0].Bands) != 1 {
			t.Errorf("meters' counters are %+v", m)
		}
		if m := answer[MeterFeaturesReply](p, MeterFeaturesRequest{}); m.MaxMeters == 0 || m.BandTypes != 1<<BandDrop {
			t.Errorf("meters' features are %+v", m)
		}
		if m := answer[TableFeaturesReply](p, TableFeaturesRequest{}); len(m.Tables) != 254 || len(m.Tables[0].Match) < 100 ||
			len(m.Tables[0].Hit.Instructions) < 5 {
			t.Errorf("%d tables have features", len(m.Tables))
		}
		if m := answer[TableDescReply](p, TableDescRequest{}); len(m.Tables) != 254 ||
			m.Tables[3].Config != TableEviction|TableVacancyEvents || m.Tables[3].Vacancy == nil {
			t.Errorf("table 3 is %+v", m.Tables[3])
		}
		if m := answer[TLVTableReply](p, TLVTableRequest{}); !reflect.DeepEqual(m.Maps, []TLVMap{{0xffff, 1, 8, 3}}) {
			t.Errorf("TLVs are %+v", m)
		}
		if m := answer[GetAsyncReply](p, GetAsyncRequest{}); len(m.Properties) != 12 {
			t.Errorf("asynchronous messages are %+v", m)
		}
		if m := answer[RoleReply](p, RoleRequest{Role: RolePrimary, GenerationID: 1}); m.Role != RolePrimary {
			t.Errorf("role is %+v", m)
		}
		if m := answer[NXRoleReply](p, NXRoleRequest{RoleEqual}); m.Role != RoleEqual {
			t.Errorf("Nicira's role is %+v", m)
		}
		if m := answer[FlowMonitorReply](p,
			FlowMonitorRequest{ID: 1, Flags: MonitorInitial | MonitorAdd | MonitorRemoved | MonitorModify | MonitorActions,
				Table: TableAll}); len(m.Updates) != 1 || m.Updates[0].Event != UpdateInitial {
			t.Errorf("flows watched are %+v", m)
		}
		for _, test := range []struct {
			m    Message
			name string
		}{
			{IPFIXBridgeRequest{}, "NXST_NOT_CONFIGURED"},
			{IPFIXFlowRequest{}, "NXST_NOT_CONFIGURED"},
			{FlowStatsRequest{FlowFilter{Table: TableAll}}, "OFPBRC_BAD_STAT"},
			{ControllerStatusRequest{}, "OFPBRC_BAD_STAT"},
			{BundleFeaturesRequest{}, "OFPBRC_BAD_STAT"},
			{RoleRequest{Role: RolePrimary, GenerationID: 0}, "OFPRRFC_STALE"},
			{PortMod{Port: 77}, "OFPPMFC_BAD_PORT"},
			{GroupMod{Command: GroupInsertBucket, ID: 99, CommandBucket: BucketLast, Buckets: []Bucket{{}}},
				"OFPGMFC_UNKNOWN_GROUP"},
			{MeterMod{MeterModify, MeterKbps, 99, drop}, "OFPMMFC_UNKNOWN_METER"},
			{TLVTableMod{TLVAdd, []TLVMap{{0xffff, 2, 4, 3}}}, "NXTTMFC_ALREADY_MAPPED"},
			{Experimenter{Vendor: 0x1234}, "OFPBRC_BAD_VENDOR"},
		} {
			refusal, ok := p.refused(test.m)
			if !ok || refusal.Name() != test.name {
				t.Errorf("%T is refused: %v, with %v, want %s", test.m, ok, refusal, test.name)
				continue
			}
			if o, ok := refusal.Offender(); !ok || o.Whole && !reflect.DeepEqual(o.Message, test.m) &&
				!bytes.Equal(encoded(t, o.XID, o.Message), encoded(t, o.XID, test.m)) {
				t.Errorf("%T: what is refused is %+v", test.m, o)
			}
		}
	})

	t.Run("changes are reported", func(t *testing.T) {
		p.t = t
		other := connect(t, dir)
		other.do(MeterMod{MeterAdd, MeterKbps, 9, drop})
		if m := await[RequestForward](p); !reflect.DeepEqual(m.Request, MeterMod{MeterAdd, MeterKbps, 9, drop}) {
			t.Errorf("what was forwarded is %+v", m)
		}
		other.do(GroupMod{Command: GroupAdd, GroupType: GroupTypeAll, ID: 8})
		if m, ok := await[RequestForward](p).Request.(GroupMod); !ok || m.Command != GroupAdd {
			t.Errorf("what was forwarded is %+v", m)
		}
		other.do(GroupMod{Command: GroupInsertBucket, ID: 8, CommandBucket: BucketFirst,
			Buckets: []Bucket{{ID: 8, Actions: []Action{Output{Port: 2}}}}})
		if m, ok := await[RequestForward](p).Request.(GroupMod); !ok || m.CommandBucket != BucketFirst ||
			len(m.Buckets) != 1 {
			t.Errorf("what was forwarded is %+v", m)
		}
		other.do(FlowMod{Table: 2, Priority: 9, Match: match})
		if m := await[FlowMonitorReply](p); len(m.Updates) != 1 || m.Updates[0].Event != UpdateAdded ||
			m.Updates[0].Priority != 9 {
			t.Errorf("the flow is reported as %+v", m)
		}
		other.do(FlowMod{Table: 1, Command: FlowDelete})
		if m := await[FlowRemoved](p); m.Reason != RemovedDelete || m.Cookie != 7 {
			t.Errorf("the removal is reported as %+v", m)
		}
		vsctl("add-port", "br0", "p3", "--", "set", "interface", "p3", "type=dummy", "ofport_request=3")
		if m := await[PortStatus](p); m.Reason != PortAdded || m.Port.Name != "p3" {
			t.Errorf("the port is reported as %+v", m)
		}
		ports := answer[PortDescReply](p, PortDescRequest{3}).Ports
		if len(ports) != 1 {
			t.Fatalf("ports are %+v", ports)
		}
		p.do(PortMod{Port: 3, MAC: ports[0].MAC, Config: PortConfigNoFwd, Mask: PortConfigNoFwd})
		for m := await[PortStatus](p); m.Reason != PortModified ||
			m.Port.Config&PortConfigNoFwd == 0; m = await[PortStatus](p) {
			if m.Port.Number != 3 {
				t.Errorf("the port is reported as %+v", m)
			}
		}
		p.do(CTFlushZone{5})
		p.do(CTFlush{Proto: 6, HasZone: true, Zone: 5, Orig: CTTuple{Src: netip.MustParseAddr("10.0.0.1"), DstPort: 80}})
		p.do(CTFlush{Proto: 58, Orig: CTTuple{Src: netip.MustParseAddr("fd00::1"), ICMPType: 128},
			Reply: CTTuple{Dst: netip.MustParseAddr("fd00::1")}})
		if m := answer[RoleReply](p, RoleRequest{Role: RolePrimary, GenerationID: 1}); m.Role != RolePrimary {
			t.Errorf("role is %+v", m)
		}
		if m := answer[RoleReply](other, RoleRequest{Role: RolePrimary, GenerationID: 2}); m.GenerationID != 2 {
			t.Errorf("the other's role is %+v", m)
		}
		if m := await[RoleStatus](p); m.Role != RoleSecond || m.Reason != RoleStatusPrimaryRequest {
			t.Errorf("the role is reported as %+v", m)
		}
		answer[RoleReply](p, RoleRequest{Role: RoleEqual})
	})

	t.Run("packets come in three formats", func(t *testing.T) {
		p.t = t
		packet := []byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5 a packet that is not cut")
		var b MatchBuilder
		b.Exact(Metadata, Value{Lo: 3})
		b.Exact(Reg5, Value{Lo: 4})
		out := PacketOut{InPort: 1, Match: b.encode(), Data: packet,
			Actions: []Action{Controller{MaxLen: 0xffff, ID: 7, Reason: ReasonAction, Userdata: "why", Pause: true}}}
		p.do(SetPacketInFormat{PacketInNXM2})
		p.do(out)
		in := await[PacketIn2](p)
		if string(in.Userdata) != "why" || !bytes.Equal(in.Data, packet) || in.InPort() != 1 || len(in.Continuation) == 0 {
			t.Errorf("packet is %+v", in)
		}
		p.do(Resume{PacketIn2{Data: in.Data, Metadata: in.Metadata, Cookie: in.Cookie, Reason: in.Reason,
			Continuation: in.Continuation}})
		out.Actions = []Action{Controller{MaxLen: 0xffff, ID: 7, Reason: ReasonAction}}
		p.do(SetPacketInFormat{PacketInStandard})
		p.do(out)
		if m := await[PacketIn](p); !bytes.Equal(m.Data, packet) || m.InPort() != 1 {
			t.Errorf("packet is %+v", m)
		}
	})

	t.Run("bundles are committed", func(t *testing.T) {
		p.t = t
		mac := answer[PortDescReply](p, PortDescRequest{3}).Ports[0].MAC
		for i, bundle := range []struct {
			flags    uint16
			messages []Message
		}{
			{BundleAtomic | BundleOrdered,
				[]Message{FlowMod{Table: 7, Priority: 1}, GroupMod{ID: 70, Buckets: []Bucket{{ID: 1}}},
					PacketOut{InPort: 1, Data: make([]byte, 60)}}},
			{0, []Message{PortMod{Port: 3, MAC: mac, Mask: PortConfigNoFwd}}}, // which the switch cannot change atomically
		} {
			id := uint32(i + 1)
			open := BundleControl{ID: id, Ctrl: BundleOpenRequest, Flags: bundle.flags}
			if m := answer[BundleControl](p, open); m.Ctrl != BundleOpenReply {
				t.Errorf("open is answered with %+v", m)
			}
			for _, m := range bundle.messages {
				p.do(BundleAdd{ID: id, Flags: bundle.flags, Message: m})
			}
			commit := BundleControl{ID: id, Ctrl: BundleCommitRequest, Flags: bundle.flags}
			if m := answer[BundleControl](p, commit); m.Ctrl != BundleCommitReply {
				t.Errorf("commit is answered with %+v", m)
			}
		}
		if m := answer[GroupDescReply](p, GroupDescRequest{70}); len(m.Groups) != 1 {
			t.Errorf("the bundle's group is %+v", m)
		}
	})
}

func encoded(t *testing.T, xid uint32, m Message) []byte {
	t.Helper()
	b, err := AppendMessage(nil, xid, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
