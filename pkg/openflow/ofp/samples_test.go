package ofp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// more returns one message of each kind of ports, queues, tables, meters, controllers, bundles, TLV tables, connections
// and IPFIX, with a value in each field.
func more() []Message {
	vendor := []RawProperty{{ExperimenterProperty, []byte("\x00\x00\x12\x34\x00\x00\x00\x07data")}}
	unknown := []RawProperty{{77, []byte("abcde")}}
	flags, at := EvictionImportance|EvictionLifetime, Time{5, 6}
	schedule := &BundleSchedule{Time{1, 2}, Time{3, 4}, Time{5, 6}, Time{7, 8}}
	fields := []FieldID{{Field: IPv4Dst, Masked: true}, {Field: Reg0}, {Field: InPort}, {Raw: "\x12\x34\x56\x04"}}
	group := GroupMod{Command: GroupInsertBucket, GroupType: GroupTypeAll, ID: 5, CommandBucket: BucketLast,
		Buckets: []Bucket{{ID: 3, Actions: []Action{Output{Port: 2}}}}}
	table := TableDesc{Table: 3, Config: TableEviction | TableVacancyEvents, EvictionFlags: &flags,
		Vacancy: &Vacancy{20, 80, 50}}
	ports := []PortStats{
		{Port: 1, DurationSec: 7, DurationNsec: 8, RxPackets: 1, TxPackets: 2, RxBytes: 3, TxBytes: 4, RxDropped: 5,
			TxDropped: 6, RxErrors: 7, TxErrors: 8, Ethernet: &EthernetStats{1, 2, 3, 4}},
		{
			Port: PortLocal, Optical: &OpticalStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
			RMON:   &RMONStats{RxSizes: [7]uint64{1, 2, 3, 4, 5, 6, 7}, TxSizes: [7]uint64{8, 9}, TxMulticast: 3, RxJabber: 9},
			Custom: []CustomStat{{"rx_q0_good", 5}, {"tx_q0_good", ^uint64(0)}}, Properties: vendor,
		},
	}
	hit := TableEntryFeatures{
		Instructions: []ActionID{{Kind: 1}, {Kind: 4}, {0xffff, "\x00\x00\x12\x34abcd"}}, NextTables: []Table{1, 2, 254},
		Write: TableActionFeatures{Actions: []ActionID{{Kind: 0}, {Kind: 22}}, SetField: fields[1:2], CopyField: []FieldID{}},
		Apply: TableActionFeatures{Actions: []ActionID{{Kind: 0}}, SetField: fields[1:3]},
	}
	features := []TableFeatures{
		{Table: 0, Name: "classifier", MetadataMatch: ^uint64(0), MetadataWrite: 1, Capabilities: TableEviction,
			MaxEntries: 1000000},
		{
			Table: 1, Command: TableFeaturesModify, Features: TableFeatureIngress, Name: "one", MaxEntries: 5, Hit: hit,
			Miss:  TableEntryFeatures{NextTables: []Table{}, Write: TableActionFeatures{Actions: []ActionID{}}},
			Match: fields, Wildcards: fields[:1], SyncFrom: []Table{4}, PacketTypes: []uint32{0, 0x10800}, Properties: unknown,
		},
	}
	wide := PortDesc{
		Number: 4, Name: "fiber0", State: PortStateLive, Supported: PortFeature10GbFull,
		Optical: &OpticalPort{1, 2, 3, 4, 5, 6, 7, 8, 9}, InputFields: fields[1:], OutputFields: []FieldID{},
		Recirculate: []Port{4, 5}, Properties: vendor,
	}
	v4, v6 := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::1")
	controllers := []ControllerStatus{{ShortID: 5, Role: RolePrimary, Reason: ControllerRole, Channel: ChannelDown,
		URIs: []string{"tls:10.0.0.1:6653", "tcp:[::1]:6653"}, Properties: vendor}, {Role: RoleEqual}}
	ipfix := IPFIXStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	continuation := []byte("\x00\x00\x00\x00\x80\x04\x00\x05\x03\x00\x00\x00")
	return []Message{
		Hello{HeaderVersion: 6, Versions: []uint8{1, 4, 6, 33}, Elements: []RawProperty{{9, []byte("xy")}}},
		PortMod{Port: 3, MAC: MAC{1, 2, 3, 4, 5, 6}, Config: PortConfigDown, Mask: PortConfigDown | PortConfigNoFwd,
			Advertise: PortFeature100MbFull},
		PortMod{Port: PortLocal, MAC: MAC{1}, Optical: &OpticalPortMod{1, 2, -3, 4, 5}, Properties: unknown},
		PortDescReply{true, []PortDesc{wide}},
		PortStatsRequest{3}, PortStatsRequest{PortAny}, PortStatsReply{true, ports},
		QueueStatsRequest{3, 5}, QueueStatsRequest{PortAny, QueueAll},
		QueueStatsReply{false,
			[]QueueStats{{3, 5, 1, 2, 3, 4, 5, nil}, {3, 6, ^uint64(0), 0, 0, 0xffffffff, 0xffffffff, vendor}}},
		QueueDescRequest{PortAny, QueueAll},
		QueueDescReply{true, []QueueDesc{{1, 2, 5, 1001, nil}, {1, 3, QueueRateUnknown, QueueRateUnknown, vendor}}},
		TableMod{Table: TableAll, Config: TableEviction},
		TableMod{Table: 3, Config: TableEviction | TableVacancyEvents, EvictionFlags: &flags,
			Vacancy: &Vacancy{Down: 20, Up: 80}, Properties: vendor},
		TableDescRequest{}, TableDescReply{true, []TableDesc{table, {Table: 4}}}, TableStatus{TableVacancyDown, table},
		TableFeaturesRequest{}, TableFeaturesRequest{true, features}, TableFeaturesReply{true, features},
		MeterMod{MeterModify, MeterPktps | MeterBurst | MeterStats, 7, []MeterBand{{Kind: BandDrop, Rate: 5, Burst: 6}}},
		MeterMod{MeterDelete, 0, MeterAll, nil},
		MeterStatsRequest{3}, MeterStatsRequest{MeterAll},
		MeterStatsReply{true, []MeterStatistics{{1, 2, 3, 4, 5, 6, []BandStats{{1, 2}, {3, 4}}}, {ID: MeterController}}},
		MeterFeaturesRequest{}, MeterFeaturesReply{200000, 2, 15, 1, 0, 0}, MeterFeaturesReply{200000, 2, 15, 1, 0, 5},
		MeterDescReply{true, []MeterDesc{{MeterKbps, 2, []MeterBand{{Kind: 0xffff, Rate: 5, Data: "\x00\x00\x12\x34"}}}}},
		RoleStatus{RoleSecond, RoleStatusPrimaryRequest, 9, nil}, RoleStatus{RoleEqual, RoleStatusExperimenter, 9, vendor},
		RoleRequest{RolePrimary, 7, 3}, RoleReply{RoleEqual, NoGeneration, 3},
		SetAsync{[]AsyncProperty{{Kind: AsyncPacketIn, Mask: 0x3f}, {Kind: AsyncRequestForwardSecondary, Mask: 3},
			{Kind: AsyncExperimenter, Data: []byte("\x00\x00\x12\x34\x00\x00\x00\x07")}}},
		ControllerStatusMessage{controllers[0]}, ControllerStatusRequest{}, ControllerStatusReply{true, controllers},
		RequestForward{99, group},
		RequestForward{0, MeterMod{MeterAdd, MeterKbps, 5, []MeterBand{{Kind: BandDrop, Rate: 1}}}},
		group, GroupMod{Command: GroupRemoveBucket, GroupType: GroupTypeAll, ID: 5, CommandBucket: 3},
		GroupMod{Command: GroupAdd, ID: 6, CommandBucket: BucketAll, Buckets: []Bucket{{ID: 1, Properties: vendor}},
			Properties: unknown},
		BundleControl{ID: 5, Ctrl: BundleCommitRequest, Flags: BundleTime, At: &at, Properties: vendor},
		BundleAdd{ID: 5, Flags: BundleAtomic, Message: PortMod{Port: 3}, Properties: vendor},
		BundleAdd{ID: 5, Message: PacketOut{BufferID: NoBuffer, InPort: PortController, Data: []byte("odd")},
			Properties: unknown},
		BundleFeaturesRequest{Flags: BundleFeatureTimestamp},
		BundleFeaturesRequest{Flags: BundleFeatureSetSched, Schedule: schedule, Properties: vendor},
		BundleFeaturesReply{Capabilities: BundleAtomic | BundleOrdered | BundleTime, Schedule: schedule, Properties: unknown},
		TLVTableMod{TLVAdd, []TLVMap{{0xffff, 0, 4, 0}, {0x102, 0x80, 124, 63}}},
		TLVTableMod{TLVDelete, []TLVMap{{Index: 5}}}, TLVTableMod{TLVClear, nil},
		TLVTableRequest{}, TLVTableReply{256, 64, []TLVMap{{0xffff, 0, 4, 0}}},
		CTFlushZone{13}, CTFlush{}, CTFlush{Proto: 6, HasZone: true, Orig: CTTuple{Src: v4, Dst: v4, SrcPort: 1, DstPort: 2},
			Reply: CTTuple{DstPort: 5}},
		CTFlush{Proto: 58, HasZone: true, Zone: 7, Orig: CTTuple{Src: v6, ICMPID: 5, ICMPType: 128},
			Reply: CTTuple{Dst: v6, ICMPCode: 1}, Properties: unknown},
		CTFlush{Mark: 5, MarkMask: 0xff, Labels: Value{1, 2}, LabelsMask: Ones(128)},
		CTFlush{MarkMask: ^uint32(0), LabelsMask: Value{Lo: 7}},
		IPFIXBridgeRequest{}, IPFIXBridgeReply{ipfix}, IPFIXFlowRequest{},
		IPFIXFlowReply{true, []IPFIXStats{ipfix, {CollectorSet: 2}}},
		ExperimenterMultipart{TypeMultipartRequest, true, 0x1234, 7, []byte("data")},
		ExperimenterMultipart{TypeMultipartReply, false, nxVendor, 77, nil},
		PacketIn2{Data: []byte("packet"), FullLen: 6, BufferID: 17, Cookie: NoCookie, Reason: ReasonPacketOut,
			Continuation: continuation, Properties: unknown},
		PacketIn{BufferID: 5, TotalLen: 9, Reason: ReasonGroup, Table: 3, Cookie: NoCookie, Data: []byte("packet")},
		FlowDescReply{More: true}, PortStatus{PortDeleted, wide},
		NXRoleRequest{RoleSecond}, NXRoleReply{RoleEqual}, NXSetAsync{[2]uint32{7, 1}, [2]uint32{5, 2}, [2]uint32{3, 4}},
		NXFlowAge{}, NXFlowModTableID{true},
		NXPacketIn{PacketIn{BufferID: NoBuffer, TotalLen: 9, Reason: ReasonAction, Table: 3, Cookie: 5,
			Match: "\x80\x00\x00\x04\x00\x00\x00\x07", Data: []byte("packet")}},
		NXFlowRemoved{1, 2, RemovedIdle, 3, 4, 5, 6, "\x80\x00\x00\x04\x00\x00\x00\x07", 8, 9},
		NXFlowRemoved{Table: TableAll},
	}
}

// TestSampleForEachMessage finds the kinds of messages by their methods and looks for them.
func TestSampleForEachMessage(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name != "Type" || f.Recv == nil {
				continue
			}
			if r, ok := f.Recv.List[0].Type.(*ast.Ident); ok {
				kinds[r.Name] = true
			}
		}
	}
	if len(kinds) < 90 {
		t.Errorf("%d kinds of messages are found", len(kinds))
	}
	for _, m := range every() {
		delete(kinds, reflect.TypeOf(m).Name())
	}
	for _, s := range accepted() {
		delete(kinds, reflect.TypeOf(s.m).Name())
	}
	for kind := range kinds {
		t.Errorf("no sample is a %s", kind)
	}
}
