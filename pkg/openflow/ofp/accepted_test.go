package ofp

import "net/netip"

// printed is a message and what ovs-ofctl must say about it.
type printed struct {
	name string
	m    Message
	want []string
}

// accepted is every kind of message that Open vSwitch 3.1 knows, with values that it takes.
func accepted() []printed {
	text := func(want ...string) []string { return want }
	flags := EvictionImportance | EvictionLifetime
	v4, w4 := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.1.2.4")
	v6, w6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	drop := []MeterBand{{Kind: BandDrop, Rate: 1000, Burst: 200}}
	port := PortDesc{Number: 4, MAC: MAC{2, 0, 0, 0, 0, 4}, Name: "eth4", Config: PortConfigNoFwd, State: PortStateLive, Current: PortFeature10GbFull | PortFeatureCopper, CurrentSpeed: 10000000, MaxSpeed: 40000000}
	stats := PortStats{
		Port: 3, DurationSec: 5, DurationNsec: 6000000, RxPackets: 11, TxPackets: 12, RxBytes: 13, TxBytes: 14, RxDropped: 15, TxDropped: 16, RxErrors: 17, TxErrors: ^uint64(0),
		Ethernet: &EthernetStats{21, 22, 23, 24}, RMON: &RMONStats{RxSizes: [7]uint64{1, 2, 3, 4, 5, 6, 7}, TxSizes: [7]uint64{31, 32}, RxBroadcast: 33, TxMulticast: 34, RxJabber: 35},
		Custom: []CustomStat{{"ovs_tx_retries", 41}},
	}
	fields := []FieldID{{Field: InPort}, {Field: EthType}, {Field: IPv4Dst, Masked: true}}
	writes := TableActionFeatures{Actions: []ActionID{{Kind: 0}, {Kind: 22}}, SetField: []FieldID{{Field: EthSrc}, {Field: Reg0}}}
	hit := TableEntryFeatures{Instructions: []ActionID{{Kind: 1}, {Kind: 3}, {Kind: 4}}, NextTables: []Table{1, 2, 3, 9}, Write: writes, Apply: writes}
	features := TableFeatures{
		Table: 0, Name: "classifier", MetadataMatch: ^uint64(0), MetadataWrite: 0xff, Capabilities: TableEviction, MaxEntries: 1000000,
		Hit: hit, Match: fields, Wildcards: []FieldID{{Field: InPort}},
	}
	insert := GroupMod{Command: GroupInsertBucket, GroupType: GroupTypeSelect, ID: 5, CommandBucket: BucketLast, Buckets: []Bucket{{ID: 3, Weight: 100, Actions: []Action{Output{Port: 2}}}}}
	failover := Bucket{ID: 1, WatchPort: 7, Actions: []Action{Output{Port: 7}}}
	regs, err := canonical([]byte("\x80\x00\x00\x04\x00\x00\x00\x07\x80\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x03\x00\x01\x00\x04\x00\x00\x00\x05"))
	if err != nil {
		panic(err)
	}
	packet := []byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5data")
	return []printed{
		{"hello", Hello{Versions: []uint8{1, 4, 6}}, text("version bitmap: 0x01, 0x04, 0x06")},
		{"error", Error{ErrType: 5, Code: 6, Data: []byte{6, 5, 0, 8, 0xee, 0, 0, 0}}, text("OFPFMFC_BAD_COMMAND", "OFPT_FEATURES_REQUEST (OF1.5)")},
		{"Nicira's error", Error{ErrType: ErrTypeExperimenter, Code: 20, Experimenter: nxVendor}, text("NXTTMFC_ALREADY_MAPPED")},
		{"error of a hello", Error{ErrType: 0, Code: 0, Data: []byte("no version")}, text("OFPHFC_INCOMPATIBLE", "no version")},
		{"echo request", EchoRequest{[]byte("ping")}, text("4 bytes of payload")},
		{"echo reply", EchoReply{nil}, text("0 bytes of payload")},
		{"features request", FeaturesRequest{}, nil},
		{"features reply", FeaturesReply{DatapathID: 0xabc, Tables: 254, AuxiliaryID: 1, Capabilities: CapabilityFlowStats | CapabilityGroupStats | CapabilityBundles | CapabilityFlowMonitoring}, text("dpid:0000000000000abc", "n_tables:254", "auxiliary_id:1", "capabilities: FLOW_STATS GROUP_STATS BUNDLES FLOW_MONITORING")},
		{"get config request", GetConfigRequest{}, nil},
		{"get config reply", GetConfigReply{ConfigFragMatch, 128}, text("frags=nx-match miss_send_len=128")},
		{"set config", SetConfig{ConfigFragDrop, 0xffff}, text("frags=drop miss_send_len=65535")},
		{"packet-in by a flow", PacketIn{BufferID: NoBuffer, TotalLen: 60, Reason: ReasonGroup, Table: 3, Cookie: 9, Match: regs, Data: packet}, text("table_id=3 cookie=0x9 total_len=60", "reg0=0x5,metadata=0x3,in_port=7", "(via group)", "dl_type=0x88b5")},
		{"packet-in without a flow", PacketIn{BufferID: NoBuffer, TotalLen: uint16(len(packet)), Reason: ReasonNoMatch, Cookie: NoCookie, Match: regs, Data: packet}, text("(via no_match)")},
		{"packet-in 2", PacketIn2{Data: packet, FullLen: 60, BufferID: NoBuffer, Table: 3, Cookie: 9, Reason: ReasonInvalidTTL, Metadata: regs, Userdata: []byte{1, 2, 3}}, text("table_id=3 cookie=0x9 total_len=60", "(via invalid_ttl)", "userdata=01.02.03")},
		{"packet-in 2 with a continuation", PacketIn2{Data: packet, BufferID: NoBuffer, Cookie: NoCookie, Reason: ReasonPacketOut, Metadata: regs, Continuation: []byte("\x00\x00\x00\x00\x80\x04\x00\x05\x03\x00\x00\x00\x80\x03\x00\x04\x00\x00\x00\x00")}, text("(via packet_out)", "continuation.conntracked=true")},
		{"resume", Resume{PacketIn2{Data: packet, BufferID: NoBuffer, Cookie: 5, Reason: ReasonActionSet, Metadata: regs}}, text("(via action_set)", "cookie=0x5")},
		{"packet-out", PacketOut{InPort: PortController, Actions: []Action{Output{Port: PortFlood}}, Data: packet}, text("in_port=CONTROLLER actions=FLOOD data_len=18")},
		{"packet-out with a match", PacketOut{InPort: 7, Match: Match(regs[8:]), Actions: []Action{Output{Port: 4}}, Data: packet}, text("reg0=0x5,metadata=0x3,in_port=7 actions=output:4")},
		{"flow-mod", FlowMod{Table: 5, Command: FlowModifyStrict, Cookie: 1, CookieMask: ^uint64(0), Priority: 7, Flags: FlagSendFlowRem | FlagResetCounts, Actions: []Action{Output{Port: 4}}}, text("MOD_STRICT table:5 priority=7 cookie:0x1/0xffffffffffffffff send_flow_rem reset_counts actions=output:4")},
		{"flow-mod deletes", FlowMod{Table: TableAll, Command: FlowDelete, OutPort: 4, OutGroup: 9}, text("DEL table:255", "out_port:4", "actions=drop")},
		{"flow removed", FlowRemoved{Table: 3, Reason: RemovedEviction, Priority: 7, IdleTimeout: 5, HardTimeout: 6, Cookie: 8, Stats: Stats{DurationSec: 5, Packets: 3, Bytes: 4}}, text("reason=eviction table_id=3 cookie:0x8 duration5s idle5 hard6 pkts3 bytes4")},
		{"group added", GroupMod{Command: GroupAddOrModify, GroupType: GroupTypeSelect, ID: 5, Selection: Selection{Method: "dp_hash", Param: 1}, Buckets: insert.Buckets}, text("ADD_OR_MOD group_id=5,type=select,selection_method=dp_hash,selection_method_param=1,bucket=bucket_id:3,weight:100,actions=output:2")},
		{"group fails over", GroupMod{Command: GroupAdd, GroupType: GroupTypeFastFailover, ID: 6, Buckets: []Bucket{failover}}, text("type=ff,bucket=bucket_id:1,watch_port:7,actions=output:7")},
		{"bucket inserted", insert, text("INSERT_BUCKET command_bucket_id:last,group_id=5,bucket=bucket_id:3,weight:100,actions=output:2")},
		{"bucket removed", GroupMod{Command: GroupRemoveBucket, ID: 5, CommandBucket: 3}, text("REMOVE_BUCKET command_bucket_id:3,group_id=5")},
		{"all buckets removed", GroupMod{Command: GroupRemoveBucket, ID: 5, CommandBucket: BucketAll}, text("REMOVE_BUCKET command_bucket_id:all,group_id=5")},
		{"groups deleted", GroupMod{Command: GroupDelete, ID: GroupAll}, text("DEL group_id=4294967292")},
		{"port changed", PortMod{Port: 3, MAC: MAC{2, 0, 0, 0, 0, 3}, Config: PortConfigDown, Mask: PortConfigDown | PortConfigNoFwd, Advertise: PortFeature1GbFull}, text("port: 3: addr:02:00:00:00:00:03", "config: PORT_DOWN\n", "mask:   PORT_DOWN NO_FWD", "advertise: 1GB-FD")},
		{"port status", PortStatus{PortModified, port}, text("MOD: 4(eth4): addr:02:00:00:00:00:04", "config:     NO_FWD", "state:      LIVE", "current:    10GB-FD COPPER", "speed: 10000 Mbps now, 40000 Mbps max")},
		{"table changed", TableMod{Table: 3, Config: TableEviction | TableVacancyEvents, Vacancy: &Vacancy{Down: 20, Up: 80}}, text("table_id=3, eviction=on, vacancy=on vacancy:20,80")},
		{"all tables changed", TableMod{Table: TableAll}, text("table_id: ALL_TABLES, eviction=off, vacancy=off")},
		{"table status", TableStatus{TableVacancyUp, TableDesc{Table: 3, Config: TableVacancyEvents, EvictionFlags: &flags, Vacancy: &Vacancy{20, 80, 81}}}, text("reason=VACANCY_UP", "eviction=off eviction_flags=IMPORTANCE|LIFETIME", "vacancy=on vacancy_down=20% vacancy_up=80% vacancy=81%")},
		{"barrier request", BarrierRequest{}, nil},
		{"barrier reply", BarrierReply{}, nil},
		{"role request", RoleRequest{Role: RolePrimary, GenerationID: 5}, text("role=primary generation_id=5")},
		{"role asked", RoleRequest{}, text("role=nochange")},
		{"role reply", RoleReply{Role: RoleSecond, GenerationID: NoGeneration}, text(" role=secondary")},
		{"role status", RoleStatus{Role: RoleSecond, Reason: RoleStatusPrimaryRequest, GenerationID: 6}, text("role=secondary generation_id=6 reason=primary_request")},
		{"async asked", GetAsyncRequest{}, nil},
		{"async reported", GetAsyncReply{[]AsyncProperty{{Kind: AsyncPacketIn, Mask: 0x3f}, {Kind: AsyncTableStatus, Mask: 0x18}}}, text("PACKET_IN: no_match action invalid_ttl action_set group packet_out", "TABLE_STATUS: vacancy_down vacancy_up")},
		{"async set", SetAsync{[]AsyncProperty{{Kind: AsyncPortStatusSecondary, Mask: 5}, {Kind: AsyncFlowRemoved, Mask: 0x3f}, {Kind: AsyncRoleStatus, Mask: 7}, {Kind: AsyncRequestForward, Mask: 3}}}, text("PORT_STATUS: add modify", "FLOW_REMOVED: idle hard delete group_delete meter_delete eviction", "ROLE_STATUS: primary_request configuration_changed experimenter_data_changed", "REQUESTFORWARD: group_mod_request meter_mod_request")},
		{"meter added", MeterMod{MeterAdd, MeterKbps | MeterBurst | MeterStats, 5, drop}, text("ADD meter=5 kbps burst stats bands=\ntype=drop rate=1000 burst_size=200")},
		{"meter changed", MeterMod{MeterModify, MeterPktps, 5, []MeterBand{{Kind: BandDSCPRemark, Rate: 7, PrecLevel: 1}}}, text("MOD meter=5 pktps bands=\ntype=dscp_remark rate=7 prec_level=1")},
		{"meters deleted", MeterMod{MeterDelete, 0, MeterAll, nil}, text("DEL meter=all")},
		{"group forwarded", RequestForward{99, insert}, text("reason=group_mod", "INSERT_BUCKET")},
		{"meter forwarded", RequestForward{99, MeterMod{MeterAdd, MeterPktps, 5, drop}}, text("reason=meter_mod ADD meter=5 pktps")},
		{"bundle opened", BundleControl{ID: 5, Ctrl: BundleOpenRequest, Flags: BundleAtomic | BundleOrdered}, text("bundle_id=0x5 type=OPEN_REQUEST flags=atomic ordered")},
		{"bundle discarded", BundleControl{ID: 5, Ctrl: BundleDiscardReply}, text("type=DISCARD_REPLY flags=0")},
		{"format of packet-ins", SetPacketInFormat{PacketInNXM2}, text("format=nxt_packet_in2")},
		{"controller id", SetControllerID{77}, text("id=77")},
		{"TLVs mapped", TLVTableMod{TLVAdd, []TLVMap{{0xffff, 0, 4, 0}, {0x102, 0x80, 124, 63}}}, text("ADD mapping table", "0xffff     0       4  tun_metadata0", "0x102  0x80     124  tun_metadata63")},
		{"TLVs unmapped", TLVTableMod{TLVDelete, []TLVMap{{Index: 5}}}, text("DEL mapping table", "tun_metadata5")},
		{"TLVs cleared", TLVTableMod{Command: TLVClear}, text("CLEAR")},
		{"TLVs asked", TLVTableRequest{}, nil},
		{"TLVs reported", TLVTableReply{256, 64, []TLVMap{{0xffff, 1, 8, 2}}}, text("max option space=256 max fields=64", "0xffff   0x1       8  tun_metadata2")},
		{"zone flushed", CTFlushZone{13}, text("zone_id=13")},
		{"connections flushed", CTFlush{Proto: 6, HasZone: true, Zone: 13, Orig: CTTuple{Src: v4, Dst: w4, SrcPort: 80, DstPort: 8080}, Reply: CTTuple{Src: w4, Dst: v4}}, text("zone=13 'ct_nw_src=10.1.2.3,ct_nw_dst=10.1.2.4,ct_tp_src=80,ct_tp_dst=8080,ct_nw_proto=6' 'ct_nw_src=10.1.2.4,ct_nw_dst=10.1.2.3,ct_tp_src=0,ct_tp_dst=0'")},
		{"connections of ICMPv6 flushed", CTFlush{Proto: 58, Orig: CTTuple{Src: v6, Dst: w6, ICMPID: 10, ICMPType: 128}, Reply: CTTuple{Src: w6, Dst: v6}}, text("'ct_ipv6_src=fd00::1,ct_ipv6_dst=fd00::2,icmp_id=10,icmp_type=128,icmp_code=0,ct_nw_proto=58'")},
		{"Nicira's role request", NXRoleRequest{RolePrimary}, text("role=primary")},
		{"Nicira's role reply", NXRoleReply{RoleEqual}, text("role=equal")},
		{"Nicira's async", NXSetAsync{[2]uint32{7, 1}, [2]uint32{5, 2}, [2]uint32{3, 4}}, text("PORT_STATUS: add modify", "FLOW_REMOVED: delete")},
		{"Nicira's flow age", NXFlowAge{}, nil},
		{"Nicira's table ids", NXFlowModTableID{true}, text("enable")},
		{"Nicira's packet-in", NXPacketIn{PacketIn{BufferID: NoBuffer, TotalLen: 60, Reason: ReasonAction, Table: 3, Cookie: 9, Match: regs, Data: packet}}, text("table_id=3 cookie=0x9 total_len=60 reg0=0x5,metadata=0x3,in_port=7 (via action)")},
		{"Nicira's flow removed", NXFlowRemoved{Cookie: 9, Priority: 7, Reason: RemovedDelete, Table: 4, DurationSec: 5, IdleTimeout: 6, Match: regs, Packets: 7, Bytes: 8}, text("priority=7,reg0=0x5,metadata=0x3,in_port=7 reason=delete table_id=4 cookie:0x9 duration5s idle6 pkts7 bytes8")},

		{"desc request", DescRequest{}, nil},
		{"desc reply", DescReply{"maker", "hard", "soft", "none", "bridge"}, text("Manufacturer: maker", "Serial Num: none", "DP Description: bridge")},
		{"flows asked", FlowDescRequest{FlowFilter{Table: TableAll, OutPort: 4, Match: regs}}, text("out_port=4 reg0=0x5,metadata=0x3,in_port=7")},
		{"flows reported", FlowDescReply{true, []FlowDesc{{Table: 3, Priority: 7, IdleTimeout: 5, Flags: FlagSendFlowRem, Importance: 9, Cookie: 8, Match: regs, Stats: Stats{DurationSec: 4, IdleSec: 2, Packets: 3, Bytes: 2}, Actions: []Action{Output{Port: 2}, GotoTable{4}}}}}, text("flags=[more]", "cookie=0x8, duration=4s, table=3, n_packets=3, n_bytes=2, idle_timeout=5, send_flow_rem importance=9, idle_age=2, priority=7,reg0=0x5,metadata=0x3,in_port=7 actions=output:2,goto_table:4")},
		{"sums asked", AggregateRequest{FlowFilter{Table: 3}}, text("table=3")},
		{"sums reported", AggregateReply{1, 2, 3}, text("packet_count=1 byte_count=2 flow_count=3")},
		{"table stats asked", TableStatsRequest{}, nil},
		{"table stats reported", TableStatsReply{Tables: []TableStats{{3, 5, 6, 7}}}, text("table 3:\n    active=5, lookup=6, matched=7")},
		{"port stats asked", PortStatsRequest{PortLocal}, text("port_no=LOCAL")},
		{"port stats reported", PortStatsReply{Ports: []PortStats{stats}}, text(
			"port  3: rx pkts=11, bytes=13, drop=15, errs=17, frame=21, over=22, crc=23", "tx pkts=12, bytes=14, drop=16, errs=?, coll=24", "duration=5.006s",
			"rx rfc2819 1_to_64_packets=1, 65_to_127_packets=2", "1523_to_max_packets=7, broadcast_packets=33", "jabber_errors=35", "multicast_packets=34", "ovs_tx_retries=41")},
		{"queue stats asked", QueueStatsRequest{3, QueueAll}, text("port=3 queue=ALL")},
		{"queue stats reported", QueueStatsReply{Queues: []QueueStats{{Port: 3, Queue: 5, TxBytes: 6, TxPackets: 7, TxErrors: ^uint64(0), DurationSec: 8}}}, text("port 3 queue 5: bytes=6, pkts=7, errors=?, duration=8s")},
		{"groups asked", GroupStatsRequest{ID: GroupAll}, text("group_id=ALL")},
		{"group stats reported", GroupStatsReply{Groups: []GroupStats{{ID: 5, RefCount: 6, Packets: 7, Bytes: 8, DurationSec: 9, Buckets: []BucketStats{{1, 2}, {3, 4}}}}}, text("group_id=5,duration=9s,ref_count=6,packet_count=7,byte_count=8,bucket0:packet_count=1,byte_count=2,bucket1:packet_count=3,byte_count=4")},
		{"group asked", GroupDescRequest{5}, text("group_id=5")},
		{"group reported", GroupDescReply{Groups: []GroupDesc{{ID: 5, GroupType: GroupTypeSelect, Selection: Selection{"hash", 0, []Field{IPv4Dst, IPv4Src}, []Value{{Lo: 0xffffff00}, {Lo: 0xffffffff}}}, Buckets: insert.Buckets}}}, text("group_id=5,type=select,selection_method=hash,fields(ip_src,ip_dst=255.255.255.0),bucket=bucket_id:3,weight:100,actions=output:2")},
		{"group features asked", GroupFeaturesRequest{}, nil},
		{"group features reported", GroupFeaturesReply{1 << GroupTypeFastFailover, GroupSelectWeight | GroupChaining, [4]uint32{3: 9}, [4]uint32{3: 1}}, text("Types:  0x8", "Capabilities:  0x5", "fast failover group:\n       max_groups=0x9\n       actions: output")},
		{"meter stats asked", MeterStatsRequest{5}, text("meter=5")},
		{"meter stats reported", MeterStatsReply{Meters: []MeterStatistics{{5, 6, 7, 8, 9, 0, []BandStats{{10, 11}}}}}, text("meter:5 flow_count:6 packet_in_count:7 byte_in_count:8 duration:9s bands:\n0: packet_count:10 byte_count:11")},
		{"meter asked", MeterDescRequest{MeterController}, text("meter=controller")},
		{"meter reported", MeterDescReply{Meters: []MeterDesc{{MeterKbps | MeterBurst, 5, drop}}}, text("meter=5 kbps burst bands=\ntype=drop rate=1000 burst_size=200")},
		{"meter features asked", MeterFeaturesRequest{}, nil},
		{"meter features reported", MeterFeaturesReply{MaxMeters: 200, BandTypes: 1 << BandDrop, Capabilities: uint32(MeterKbps | MeterStats), MaxBands: 1}, text("max_meter:200 max_bands:1 max_color:0", "band_types: drop", "capabilities: kbps stats")},
		{"table features asked", TableFeaturesRequest{}, nil},
		{"table features wanted", TableFeaturesRequest{Tables: []TableFeatures{{Table: 3, Command: TableFeaturesModify, Name: "three", MaxEntries: 5}}}, text("table 3 (\"three\"):", "command: modify", "max_entries=5")},
		{"table features reported", TableFeaturesReply{Tables: []TableFeatures{features}}, text("table 0 (\"classifier\"):", "match=0xffffffffffffffff write=0xff", "eviction: supported", "max_entries=1000000", "next tables: 1-3,9", "instructions: apply_actions write_actions goto_table", "actions: output group", "supported on Set-Field: reg0 eth_src", "exact match or wildcard: in_port", "must exact match: eth_type", "arbitrary mask: ip_dst")},
		{"ports asked", PortDescRequest{}, text("port=ANY")},
		{"ports reported", PortDescReply{Ports: []PortDesc{port}}, text("4(eth4): addr:02:00:00:00:00:04", "state:      LIVE")},
		{"tables asked", TableDescRequest{}, nil},
		{"tables reported", TableDescReply{Tables: []TableDesc{{Table: 3, Config: TableEviction, EvictionFlags: &flags}}}, text("table 3:\n   eviction=on eviction_flags=IMPORTANCE|LIFETIME\n   vacancy=off")},
		{"queues asked", QueueDescRequest{4, 5}, text("port=4 queue=5")},
		{"queues reported", QueueDescReply{Queues: []QueueDesc{{Port: 4, Queue: 5, MinRate: 500, MaxRate: 1001}}}, text("port=4\nqueue 5: min_rate:50.0% max_rate:(disabled)")},
		{"flow monitors", FlowMonitorRequest{ID: 3, Flags: MonitorInitial | MonitorAdd | MonitorOnlyOwn, OutPort: 4, Table: TableAll, Others: []FlowMonitorRequest{{ID: 4, Command: MonitorCommandDelete}, {ID: 5, Flags: MonitorModify, Table: 7, Match: regs}}}, text("id=3 flags=initial,add,own", "out_port=4", "id=4", "id=5 flags=modify table=7 reg0=0x5,metadata=0x3,in_port=7")},
		{"flow updates", FlowMonitorReply{Updates: []FlowUpdate{{Event: UpdateInitial, Table: 1, Cookie: 2}, {Event: UpdateRemoved, Reason: RemovedDelete, Table: 3, Priority: 5, Cookie: 9, Match: regs}, {Event: UpdateAbbrev, XID: 7}, {Event: UpdatePaused}, {Event: UpdateResumed}}}, text("event=INITIAL table=1 cookie=0x2", "event=DELETED reason=delete table=3 cookie=0x9 reg0=0x5", "event=ABBREV xid=0x7", "event=PAUSED", "event=RESUMED")},
		{"IPFIX of the bridge asked", IPFIXBridgeRequest{}, nil},
		{"IPFIX of the bridge reported", IPFIXBridgeReply{IPFIXStats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}}, text("flows=1, current flows=2, sampled pkts=3, ipv4 ok=4, ipv6 ok=5, tx pkts=9", "pkts errs=6, ipv4 errs=7, ipv6 errs=8, tx errs=10")},
		{"IPFIX of samples asked", IPFIXFlowRequest{}, nil},
		{"IPFIX of samples reported", IPFIXFlowReply{Exporters: []IPFIXStats{{Flows: 1, CollectorSet: 12}}}, text("id  12: flows=1")},

		// The text of these begins with two messages of the same transaction id: they stand last.
		{"bundle holds a flow", BundleAdd{ID: 5, Flags: BundleOrdered, Message: FlowMod{Table: 3}}, text("bundle_id=0x5 flags=ordered", "ADD table:3")},
		{"bundle holds a port", BundleAdd{ID: 5, Message: PortMod{Port: 3}}, text("OFPT_PORT_MOD", "port: 3:")},
		{"bundle holds a group", BundleAdd{ID: 5, Message: insert}, text("INSERT_BUCKET")},
		{"bundle holds a packet", BundleAdd{ID: 5, Message: PacketOut{InPort: 3, Data: packet}}, text("in_port=3 actions=drop")},
	}
}
