package ofp

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// every is one message of each kind, with something in each field.
func every() []Message {
	var b MatchBuilder
	b.Exact(InPort, Value{Lo: 7})
	b.Exact(IPv4Dst, Value{Lo: 0x0a000001})
	b.Set(Reg3, Value{Lo: 5}, Value{Lo: 0xf})
	b.Complete()
	match, err := b.Match()
	if err != nil {
		panic(err)
	}
	actions := []Action{
		SetField{Reg0, "\x00\x00\x00\x10", "\x00\x00\x00\xf0"}, RegMove{Bits{EthSrc, 0, 48}, Bits{EthDst, 0, 48}},
		CT{Flags: CTCommit, Zone: 5, Table: 4, NAT: &NAT{Flags: NATSrc, IPMin: "\x01\x02\x03\x04", PortMin: 5},
			Exec: []Action{SetField{CTMark, "\x00\x00\x00\x01", "\x00\x00\x00\x01"}}},
		Controller{MaxLen: 128, ID: 3, Reason: ReasonAction, Userdata: "abc", Pause: true},
		Learn{Table: 5, Limit: 3, Specs: []LearnSpec{{Kind: LearnLoad, Value: "\x00\x05", Dst: Bits{Reg1, 3, 8}},
			{Kind: LearnOutput, Src: Bits{Reg1, 0, 32}}}},
		DecTTL{IDs: []uint16{1, 2}}, OutputReg{Bits{Reg1, 0, 32}, 0xffff}, Output{5, 0}, Resubmit{PortInPort, 3, false},
		Note{"abcdef"}, Clone{[]Action{Group{4}}}, RawAction{"\x00\x63\x00\x08abcd"}, WriteMetadata{1, 3}, GotoTable{9},
	}
	buckets := []Bucket{{ID: 1, Weight: 5, WatchPort: 3, WatchGroup: 9, Actions: []Action{Output{5, 0}}}}
	stats := Stats{1, 2, 3, 4, 5, 6}
	port := PortDesc{Number: 3, MAC: MAC{1, 2, 3, 4, 5, 6}, Name: "eth0", Config: 1, State: 4, Current: 1, MaxSpeed: 9}
	selection := Selection{"hash", 5, []Field{IPv4Src, IPv4Dst}, []Value{{Lo: 0xffffff00}, {Lo: 0xffffffff}}}
	pin := PacketIn2{Data: []byte("packet"), FullLen: 60, BufferID: NoBuffer, Table: 3, Cookie: 9, Reason: 1,
		Metadata: match, Userdata: []byte{1, 2}, Continuation: []byte("later")}
	filter := FlowFilter{3, PortAny, GroupAny, 5, 7, match}
	bands := []MeterBand{{Kind: BandDrop, Rate: 5, Burst: 6}, {Kind: BandDSCPRemark, Rate: 7, Burst: 8, PrecLevel: 1}}
	return append(more(),
		Hello{HeaderVersion: 6, Versions: []uint8{4, 6}}, Hello{HeaderVersion: 6, Versions: []uint8{}, Extra: []byte("abc")},
		Error{ErrType: 4, Code: 1, Data: []byte("data")}, Error{0xffff, 5, nxVendor, nil},
		EchoRequest{[]byte("x")}, EchoReply{[]byte("x")}, FeaturesRequest{}, FeaturesReply{1, 2, 3, 4, 5, 6},
		GetConfigRequest{}, GetConfigReply{1, 2}, SetConfig{1, 2},
		PacketIn{NoBuffer, 60, 1, 3, 9, match, []byte("packet")}, pin, Resume{pin},
		PacketOut{NoBuffer, 3, "", actions[:3], []byte("packet")},
		FlowMod{1, 2, 3, FlowModifyStrict, 4, 5, 6, NoBuffer, PortAny, GroupAny, 1, 7, match, actions},
		FlowRemoved{3, 2, 5, 6, 7, 8, match, stats},
		GroupMod{GroupAdd, GroupTypeSelect, 5, BucketAll, selection, buckets, nil},
		MeterMod{MeterAdd, MeterKbps | MeterBurst, 5, bands}, PortStatus{2, port},
		BarrierRequest{}, BarrierReply{}, RoleRequest{2, 9, 0}, RoleReply{2, 9, 0}, GetAsyncRequest{},
		GetAsyncReply{[]AsyncProperty{{Kind: 1, Mask: 5}}}, SetAsync{[]AsyncProperty{{Kind: 1, Mask: 5}, {Kind: 3, Mask: 7}}},
		BundleControl{ID: 1, Ctrl: 2, Flags: 3},
		BundleAdd{ID: 1, Flags: 3, Message: FlowMod{Table: 3, BufferID: NoBuffer, OutPort: PortAny, OutGroup: GroupAny,
			Match: match}},
		SetPacketInFormat{2}, SetControllerID{3}, Experimenter{1, 2, []byte("abcd")}, RawMessage{99, []byte("abc")},
		DescRequest{}, DescReply{"a", "b", "c", "d", "e"}, FlowDescRequest{filter},
		FlowDescReply{true, []FlowDesc{{3, 4, 5, 6, 1, 2, 9, match, stats, actions}}},
		FlowStatsRequest{filter}, FlowStatsReply{false, []FlowStats{{3, 0, 4, match, stats}}}, AggregateRequest{filter},
		AggregateReply{1, 2, 3},
		TableStatsRequest{}, TableStatsReply{false, []TableStats{{1, 2, 3, 4}}}, PortDescRequest{PortAny},
		PortDescReply{false, []PortDesc{port}},
		GroupDescRequest{5}, GroupDescReply{false, []GroupDesc{{5, GroupTypeSelect, selection, buckets, nil}}},
		GroupStatsRequest{5},
		GroupStatsReply{false, []GroupStats{{1, 2, 3, 4, 5, 6, []BucketStats{{1, 2}}}}}, GroupFeaturesRequest{},
		GroupFeaturesReply{1, 2, [4]uint32{1, 2, 3, 4}, [4]uint32{5, 6, 7, 8}},
		MeterDescRequest{5}, MeterDescReply{false, []MeterDesc{{1, 2, bands}}},
		FlowMonitorRequest{1, 7, 0, 3, PortAny, GroupAny, match,
			[]FlowMonitorRequest{{ID: 2, Flags: MonitorAdd, OutPort: PortAny, OutGroup: GroupAny}}},
		FlowMonitorReply{false,
			[]FlowUpdate{{Event: UpdateAdded, Table: 3, Priority: 5, Cookie: 9, Match: match, Actions: actions},
				{Event: UpdateAbbrev, XID: 7}, {Event: UpdatePaused}}},
		RawMultipart{TypeMultipartReply, 77, 0, []byte("abcdefgh")},
	)
}

func TestRoundTrip(t *testing.T) {
	for _, m := range every() {
		b, err := AppendMessage(nil, 0x1234, m)
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		xid, again, err := DecodeMessage(b)
		if err != nil || xid != 0x1234 || !reflect.DeepEqual(m, again) {
			t.Errorf("%T comes back differently:\n have %#v\n want %#v\n %v", m, again, m, err)
		}
		for n := range b {
			var de *DecodeError
			if _, _, err := DecodeMessage(b[:n]); !errors.As(err, &de) {
				t.Errorf("%T: %d of %d bytes: error is %v", m, n, len(b), err)
			}
		}
	}
}

// TestCut cuts messages short and makes the header agree: nothing may panic.
func TestCut(t *testing.T) {
	samples := recorded(t)
	for _, m := range every() {
		samples = append(samples, wire{b: encoded(t, 1, m)})
	}
	for _, s := range accepted() {
		samples = append(samples, wire{b: encoded(t, 1, s.m)})
	}
	for _, s := range samples {
		for n := 8; n < len(s.b); n++ {
			c := append([]byte(nil), s.b[:n]...)
			c[2], c[3] = byte(n>>8), byte(n)
			if _, m, err := DecodeMessage(c); (m == nil) == (err == nil) {
				t.Fatalf("%x is decoded as %v and fails with %v", c, m, err)
			}
			if _, _, err := DecodeMessage(s.b[:n]); err == nil {
				t.Fatalf("%d of the %d bytes of %s are enough", n, len(s.b), nameOf(s.b))
			}
		}
	}
}

func TestDecodeError(t *testing.T) {
	b, err := AppendMessage(nil, 1, FlowMod{Match: Match("\x00\x01\xd6\x02\x00\x00")}) // ct_mark with two bytes
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = DecodeMessage(b)
	const want = "decode flow_mod at byte 52: match: at byte 0 of the match: ct_mark: value and mask have 2 bytes, want 4"
	if err == nil || err.Error() != want {
		t.Errorf("have %v\nwant %s", err, want)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range every() {
		b, err := AppendMessage(nil, 1, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, r := range recorded(f) {
		f.Add(r.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 && len(b) <= 0xffff {
			b[2], b[3] = byte(len(b)>>8), byte(len(b))
		}
		xid, m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		if refusal, ok := m.(Error); ok && refusal.Error() == "" {
			t.Fatal("an error says nothing")
		}
		again, err := AppendMessage(nil, xid, m)
		if err != nil {
			return // the switch's word is taken as it is; we refuse to say it ourselves
		}
		_, m2, err := DecodeMessage(again)
		if err != nil {
			t.Fatalf("decode what was encoded of %#v: %v", m, err)
		}
		third, err := AppendMessage(nil, xid, m2)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%#v comes back as %#v: %v", m, m2, err)
		}
	})
}

func TestEncodeAllocates(t *testing.T) {
	messages := every()
	m := messages[slices.IndexFunc(messages, func(m Message) bool { return m.Type() == TypeFlowMod })]
	buf := make([]byte, 0, 4096)
	n := testing.AllocsPerRun(100, func() {
		if _, err := AppendMessage(buf[:0], 1, m); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations per encoded flow_mod, want none", n)
	}
}
