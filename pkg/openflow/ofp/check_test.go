package ofp

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// TestRefused encodes what no Open vSwitch takes.
func TestRefused(t *testing.T) {
	bucket := []Bucket{{ID: 1}}
	drop := []MeterBand{{Kind: BandDrop, Rate: 1}}
	var b MatchBuilder
	b.Exact(EthType, Value{Lo: 0x0800})
	ip := b.encode()
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, test := range []struct {
		name string
		m    Message
		want string
	}{
		{"a command of flows", FlowMod{Command: 5}, "encode flow_mod: command 5 does not exist"},
		{"a flow in all tables", FlowMod{Table: TableAll}, "only deletions may name"},
		{"flags of a flow", FlowMod{Flags: 0x8001}, "flags 0x8000 are not known"},
		{"an out port between", FlowMod{Command: FlowDelete, OutPort: 0x12345}, "out_port 74565 does not exist"},
		{"a packet from nowhere", PacketOut{InPort: PortFlood}, "cannot be where a packet comes from"},
		{"a packet's own field", PacketOut{InPort: 1, Match: ip}, "eth_type is in the packet itself"},
		{"a command of groups", GroupMod{Command: 4}, "command 0x4 does not exist"},
		{"a kind of group", GroupMod{GroupType: 4}, "type 4 does not exist"},
		{"a group's number", GroupMod{ID: GroupAll}, "group 0xfffffffc does not exist"},
		{"an indirect group", GroupMod{GroupType: GroupTypeIndirect}, "exactly one bucket, not 0"},
		{"where to insert", GroupMod{Command: GroupInsertBucket, CommandBucket: BucketAll, Buckets: bucket},
			"bucket 0xffffffff does not exist"},
		{"a bucket to remove", GroupMod{Command: GroupRemoveBucket, Buckets: bucket}, "is named by CommandBucket"},
		{"a method for all", GroupMod{Selection: Selection{Method: "hash"}}, "belongs to a select group"},
		{"a method for removal",
			GroupMod{Command: GroupDelete, GroupType: GroupTypeSelect, Selection: Selection{Method: "hash"}},
			"that is added or modified"},
		{"a method", GroupMod{GroupType: GroupTypeSelect, Selection: Selection{Method: "dice"}},
			`selection method "dice" is not known`},
		{"fields of dp_hash",
			GroupMod{GroupType: GroupTypeSelect, Selection: Selection{Method: "dp_hash", Fields: []Field{IPv4Src}}},
			"dp_hash takes no fields"},
		{"masks without fields",
			GroupMod{GroupType: GroupTypeSelect, Selection: Selection{Method: "hash", Masks: []Value{{}}}},
			"0 fields have 1 masks"},
		{"a mask too wide",
			GroupMod{GroupType: GroupTypeSelect,
				Selection: Selection{Method: "hash", Fields: []Field{IPProto}, Masks: []Value{{Lo: 0x100}}}},
			"wider than the field's 8 bits"},
		{"a bucket's number", GroupMod{Buckets: []Bucket{{ID: BucketLast}}}, "bucket 0xfffffffe: buckets are numbered"},
		{"two buckets of a number", GroupMod{Buckets: []Bucket{{ID: 1}, {ID: 1}}}, "bucket 1 is there twice"},
		{"a weight for all", GroupMod{Buckets: []Bucket{{Weight: 5}}}, "only the buckets of select groups have weights"},
		{"a watch for all", GroupMod{Buckets: []Bucket{{WatchPort: 5}}}, "watch a port or group"},
		{"no watch", GroupMod{GroupType: GroupTypeFastFailover, Buckets: bucket}, "must watch a port or group"},
		{"a watched port between", GroupMod{GroupType: GroupTypeFastFailover, Buckets: []Bucket{{WatchPort: 0x10000}}},
			"watch_port 65536 does not exist"},
		{"a command of meters", MeterMod{Command: 3, ID: 1}, "command 3 does not exist"},
		{"no meter", MeterMod{ID: 0, Bands: drop}, "meter 0x0 does not exist"},
		{"all meters", MeterMod{ID: MeterAll, Bands: drop}, "meter 0xffffffff does not exist"},
		{"two units", MeterMod{ID: 1, Flags: MeterKbps | MeterPktps, Bands: drop}, "not in both"},
		{"a kind of band", MeterMod{ID: 1, Bands: []MeterBand{{Kind: 3}}}, "band 0: type 3 is not known"},
		{"a port between", PortMod{Port: 0xfffffe}, "port 16777214 does not exist"},
		{"a port's bits", PortMod{Port: 1, Config: 3, Mask: 1}, "outside of mask 0x1"},
		{"vacancy upside down", TableMod{Vacancy: &Vacancy{Down: 80, Up: 20}}, "down not above up"},
		{"vacancy above all", TableMod{Vacancy: &Vacancy{Up: 101}}, "want percents"},
		{"vacancy set", TableMod{Vacancy: &Vacancy{Current: 5}}, "can be asked, not set"},
		{"a reason of tables", TableStatus{Reason: 1}, "reason 1 does not exist"},
		{"features of all tables", TableFeaturesRequest{Tables: []TableFeatures{{Table: TableAll}}},
			"table 255 stands for all tables"},
		{"a command of features", TableFeaturesRequest{Tables: []TableFeatures{{Command: 4}}}, "command 4 does not exist"},
		{"half of the features", TableFeaturesRequest{Tables: []TableFeatures{{Match: []FieldID{}}}},
			"Hit.Instructions is missing"},
		{"a table's long name", TableFeaturesRequest{Tables: []TableFeatures{{Name: strings.Repeat("x", 32)}}},
			"longer than 31 bytes"},
		{"a role", RoleRequest{Role: 4}, "role 4 does not exist"},
		{"Nicira's role", NXRoleRequest{RoleNoChange}, "role 0 does not exist"},
		{"a reason", SetAsync{[]AsyncProperty{{Kind: AsyncTableStatus, Mask: 1}}}, "kind 9 have the reasons 0x18, not 0x1"},
		{"a kind of message", SetAsync{[]AsyncProperty{{Kind: 16}}}, "kind 16 do not exist"},
		{"switch's flags", SetConfig{Flags: 4}, "flags 0x4 are not known"},
		{"a format", SetPacketInFormat{3}, "format 3 does not exist"},
		{"a control", BundleControl{Ctrl: 8}, "control type 8 does not exist"},
		{"a hello in a bundle", BundleAdd{Message: Hello{}}, "not hello"},
		{"a bundle in a bundle", BundleAdd{Message: BundleAdd{}}, "not bundle_add_message"},
		{"nothing in a bundle", BundleAdd{}, "the message is nil"},
		{"a flow forwarded", RequestForward{Request: FlowMod{}}, "only a group_mod or a meter_mod"},
		{"what is in a bundle", BundleAdd{Message: FlowMod{Command: 9}}, "command 9 does not exist"},
		{"a command of TLVs", TLVTableMod{Command: 3}, "command 3 does not exist"},
		{"an option's length", TLVTableMod{TLVAdd, []TLVMap{{Length: 6}}}, "not a multiple of 4"},
		{"an option too long", TLVTableMod{TLVAdd, []TLVMap{{Length: 128}}}, "from 4 to 124"},
		{"an option's field", TLVTableMod{TLVAdd, []TLVMap{{Length: 4, Index: 64}}}, "tun_metadata64 does not exist"},
		{"two families", CTFlush{Orig: CTTuple{Src: v4, Dst: v6}}, "not of both"},
		{"a port without protocol", CTFlush{Orig: CTTuple{SrcPort: 1}}, "without the protocol"},
		{"ports of ICMP", CTFlush{Proto: 1, Reply: CTTuple{SrcPort: 1}}, "protocol 1 has no ports"},
		{"ICMP of TCP", CTFlush{Proto: 6, Reply: CTTuple{ICMPType: 1}}, "protocol 6 is not ICMP"},
		{"a mark without its mask", CTFlush{Mark: 5}, "mark 0x5 has bits outside of its mask 0x0"},
		{"labels outside of their mask", CTFlush{Labels: Value{Lo: 6}, LabelsMask: Value{Lo: 5}},
			"labels have bits outside of their mask"},
		{"a zone by mistake", CTFlush{Zone: 5}, "without HasZone"},
		{"a monitor's command", FlowMonitorRequest{Command: 3}, "command 3 does not exist"},
		{"a monitor's flags", FlowMonitorRequest{Flags: 0x80 | MonitorAdd}, "flags 0x80 are not known"},
		{"a monitor of nothing", FlowMonitorRequest{Flags: MonitorInitial}, "must watch additions"},
		{"a monitor in another",
			FlowMonitorRequest{Flags: MonitorAdd,
				Others: []FlowMonitorRequest{{Flags: MonitorAdd, Others: make([]FlowMonitorRequest, 1)}}},
			"stand in the first one"},
		{"an experimenter without a number", PortMod{Properties: []RawProperty{{ExperimenterProperty, make([]byte, 8)}}},
			"begins with the experimenter's number"},
		{"too long", EchoRequest{make([]byte, 65536-8)}, "more than a 16-bit length can say"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := []byte("kept")
			b, err := AppendMessage(before, 1, test.m)
			if err == nil || !strings.HasPrefix(err.Error(), "encode "+test.m.Type().String()+": ") ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
			if string(b) != "kept" {
				t.Errorf("%d bytes of a refused message are left behind", len(b)-len(before))
			}
		})
	}
}

// TestTableFeaturesComplete removes one required property after the other.
func TestTableFeaturesComplete(t *testing.T) {
	whole := TableFeatures{
		Hit: TableEntryFeatures{
			Instructions: []ActionID{}, NextTables: []Table{},
			Write: TableActionFeatures{Actions: []ActionID{}, SetField: []FieldID{}},
			Apply: TableActionFeatures{Actions: []ActionID{}, SetField: []FieldID{}},
		},
		Match: []FieldID{}, Wildcards: []FieldID{},
	}
	if _, err := AppendMessage(nil, 1, TableFeaturesRequest{Tables: []TableFeatures{whole}}); err != nil {
		t.Error(err)
	}
	for name, remove := range map[string]func(*TableFeatures){
		"Hit.Instructions":   func(f *TableFeatures) { f.Hit.Instructions = nil },
		"Hit.NextTables":     func(f *TableFeatures) { f.Hit.NextTables = nil },
		"Hit.Write.Actions":  func(f *TableFeatures) { f.Hit.Write.Actions = nil },
		"Hit.Apply.Actions":  func(f *TableFeatures) { f.Hit.Apply.Actions = nil },
		"Match":              func(f *TableFeatures) { f.Match = nil },
		"Wildcards":          func(f *TableFeatures) { f.Wildcards = nil },
		"Hit.Write.SetField": func(f *TableFeatures) { f.Hit.Write.SetField = nil },
		"Hit.Apply.SetField": func(f *TableFeatures) { f.Hit.Apply.SetField = nil },
	} {
		part := whole
		remove(&part)
		_, err := AppendMessage(nil, 1, TableFeaturesRequest{Tables: []TableFeatures{part}})
		if err == nil || !strings.Contains(err.Error(), "; "+name+" is missing") {
			t.Errorf("without %s the error is %v", name, err)
		}
	}
}

// TestDecodeRefuses checks the place in errors about messages.
func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct{ name, wire, want string }{
		{"nothing", "", "decode message at byte 0: header: a message has at least 8 bytes"},
		{"another version", "04050008" + "00000000",
			"decode features_request at byte 8: version: 4 is not OpenFlow 1.5's, which is 6"},
		{"a length that lies", "0605000900000000",
			"decode features_request at byte 8: length: the header says 9 bytes, there are 8"},
		{"bytes after a request", "060500090000000000", "decode features_request at byte 8: end: 1 bytes are left over"},
		{"a property shorter than its header", "061c001000000000" + "0001000300000000",
			"decode set_async at byte 8: async property length: 3 is less than 4"},
		{"a property with bytes after its value",
			"0610003000000000" + "0000000300000000" + strings.Repeat("00", 16) + "0000000c00000001" + "0000000000000000",
			"decode port_mod at byte 40: advertise: 4 bytes more than it has"},
		{"a short port", "0613001800000000" + "0004000000000000" + "0008000000000003",
			"decode multipart_reply at byte 16: port stats length: 8 is less than 80"},
		{"half a header", "0620000c00000000" + "060f0004",
			"decode requestforward at byte 8: message: a message has at least 8 bytes"},
		{"a hello forwarded", "0620001000000000" + "0600000800000000",
			"decode requestforward at byte 8: request: only a group_mod or a meter_mod is forwarded"},
		{"a bundle within", "0622002000000000" + "0000000000000000" + "0622001000000000" + "0000000000000000",
			"a message within a message holds no further one"},
		{"an experimenter without a number",
			"061e002000000000" + "0000000200000000" + "0000000000000000" + "ffff000800000000",
			"decode role_status at byte 28: experimenter property: want an experimenter's number and type, there are 4 bytes"},
		{"a table property twice", "0613006000000000" + "000c000000000000" + "0050000000000000" + strings.Repeat("00",
			56) + "0010000400000000" + "0010000400000000",
			"decode multipart_reply at byte 88: table property: type 16 is there twice"},
		{"bytes that must be zero", "0604001800000000" + "000023200000001d" + "0000010000000005",
			"decode experimenter at byte 16: zero: these bytes must be zero"},
		{"Nicira's fourth role", "0604001400000000" + "000023200000000a" + "00000003",
			"decode experimenter at byte 16: role: 3 does not exist"},
		{"a custom counter cut", "0613007800000000" + "0004000000000000" + "0068000000000003" + strings.Repeat("00",
			72) + "ffff00180000aa01" + "0000000200000002" + "0161000000000000", "counter value: want 8 bytes, 6 are left"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := hex.DecodeString(test.wire)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = DecodeMessage(b)
			var where *DecodeError
			if !errors.As(err, &where) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v\nwant %s", err, test.want)
			}
		})
	}
}
