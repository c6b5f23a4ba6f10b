package ofp

// HasMore of the multipart messages.
func (DescRequest) HasMore() bool          { return false }
func (DescReply) HasMore() bool            { return false }
func (FlowDescRequest) HasMore() bool      { return false }
func (m FlowDescReply) HasMore() bool      { return m.More }
func (FlowStatsRequest) HasMore() bool     { return false }
func (m FlowStatsReply) HasMore() bool     { return m.More }
func (AggregateRequest) HasMore() bool     { return false }
func (AggregateReply) HasMore() bool       { return false }
func (TableStatsRequest) HasMore() bool    { return false }
func (m TableStatsReply) HasMore() bool    { return m.More }
func (PortDescRequest) HasMore() bool      { return false }
func (m PortDescReply) HasMore() bool      { return m.More }
func (GroupDescRequest) HasMore() bool     { return false }
func (m GroupDescReply) HasMore() bool     { return m.More }
func (GroupStatsRequest) HasMore() bool    { return false }
func (m GroupStatsReply) HasMore() bool    { return m.More }
func (GroupFeaturesRequest) HasMore() bool { return false }
func (GroupFeaturesReply) HasMore() bool   { return false }
func (MeterDescRequest) HasMore() bool     { return false }
func (m MeterDescReply) HasMore() bool     { return m.More }
func (FlowMonitorRequest) HasMore() bool   { return false }
func (m FlowMonitorReply) HasMore() bool   { return m.More }
func (m RawMultipart) HasMore() bool       { return m.Flags&1 != 0 }

// MultipartType of the multipart messages.
func (DescRequest) MultipartType() MultipartType          { return MultipartDesc }
func (DescReply) MultipartType() MultipartType            { return MultipartDesc }
func (FlowDescRequest) MultipartType() MultipartType      { return MultipartFlowDesc }
func (FlowDescReply) MultipartType() MultipartType        { return MultipartFlowDesc }
func (FlowStatsRequest) MultipartType() MultipartType     { return MultipartFlowStats }
func (FlowStatsReply) MultipartType() MultipartType       { return MultipartFlowStats }
func (AggregateRequest) MultipartType() MultipartType     { return MultipartAggregate }
func (AggregateReply) MultipartType() MultipartType       { return MultipartAggregate }
func (TableStatsRequest) MultipartType() MultipartType    { return MultipartTable }
func (TableStatsReply) MultipartType() MultipartType      { return MultipartTable }
func (PortDescRequest) MultipartType() MultipartType      { return MultipartPortDesc }
func (PortDescReply) MultipartType() MultipartType        { return MultipartPortDesc }
func (GroupDescRequest) MultipartType() MultipartType     { return MultipartGroupDesc }
func (GroupDescReply) MultipartType() MultipartType       { return MultipartGroupDesc }
func (GroupStatsRequest) MultipartType() MultipartType    { return MultipartGroup }
func (GroupStatsReply) MultipartType() MultipartType      { return MultipartGroup }
func (GroupFeaturesRequest) MultipartType() MultipartType { return MultipartGroupFeatures }
func (GroupFeaturesReply) MultipartType() MultipartType   { return MultipartGroupFeatures }
func (MeterDescRequest) MultipartType() MultipartType     { return MultipartMeterDesc }
func (MeterDescReply) MultipartType() MultipartType       { return MultipartMeterDesc }
func (FlowMonitorRequest) MultipartType() MultipartType   { return MultipartFlowMonitor }
func (FlowMonitorReply) MultipartType() MultipartType     { return MultipartFlowMonitor }
func (m RawMultipart) MultipartType() MultipartType       { return m.Kind }

// Type of the multipart messages.
func (DescRequest) Type() Type          { return TypeMultipartRequest }
func (DescReply) Type() Type            { return TypeMultipartReply }
func (FlowDescRequest) Type() Type      { return TypeMultipartRequest }
func (FlowDescReply) Type() Type        { return TypeMultipartReply }
func (FlowStatsRequest) Type() Type     { return TypeMultipartRequest }
func (FlowStatsReply) Type() Type       { return TypeMultipartReply }
func (AggregateRequest) Type() Type     { return TypeMultipartRequest }
func (AggregateReply) Type() Type       { return TypeMultipartReply }
func (TableStatsRequest) Type() Type    { return TypeMultipartRequest }
func (TableStatsReply) Type() Type      { return TypeMultipartReply }
func (PortDescRequest) Type() Type      { return TypeMultipartRequest }
func (PortDescReply) Type() Type        { return TypeMultipartReply }
func (GroupDescRequest) Type() Type     { return TypeMultipartRequest }
func (GroupDescReply) Type() Type       { return TypeMultipartReply }
func (GroupStatsRequest) Type() Type    { return TypeMultipartRequest }
func (GroupStatsReply) Type() Type      { return TypeMultipartReply }
func (GroupFeaturesRequest) Type() Type { return TypeMultipartRequest }
func (GroupFeaturesReply) Type() Type   { return TypeMultipartReply }
func (MeterDescRequest) Type() Type     { return TypeMultipartRequest }
func (MeterDescReply) Type() Type       { return TypeMultipartReply }
func (FlowMonitorRequest) Type() Type   { return TypeMultipartRequest }
func (FlowMonitorReply) Type() Type     { return TypeMultipartReply }
func (m RawMultipart) Type() Type       { return m.MsgType }

var multipartNames = [...]string{
	"desc", "flow_desc", "aggregate_stats", "table_stats", "port_stats", "queue_stats", "group_stats", "group_desc",
	"group_features", "meter_stats", "meter_desc", "meter_features", "table_features", "port_desc", "table_desc",
	"queue_desc", "flow_monitor", "flow_stats", "controller_status", "bundle_features",
}

// String is the type's name in the specification, in small letters.
func (t MultipartType) String() string {
	switch {
	case int(t) < len(multipartNames):
		return multipartNames[t]
	case t == MultipartExperimenter:
		return "experimenter"
	}
	return "multipart_type_" + itoa(uint64(t))
}

// multipart appends the multipart header.
func (e *encoder) multipart(m Multipart) {
	e.u16(uint16(m.MultipartType()))
	var flags uint16
	if m.HasMore() {
		flags = 1
	}
	e.u16(flags)
	e.zero(4)
}

func (d *decoder) multipart(typ Type) Message {
	kind, flags := MultipartType(d.u16("multipart type")), d.u16("multipart flags")
	d.skip(4)
	if kind == MultipartExperimenter {
		return d.experimenterMultipart(typ, flags&1 != 0)
	}
	if typ == TypeMultipartRequest {
		if m := d.request(kind, flags&1 != 0); m != nil {
			return m
		}
	} else if m := d.reply(kind, flags&1 != 0); m != nil {
		return m
	}
	return RawMultipart{typ, kind, flags, d.rest()}
}

func (d *decoder) request(kind MultipartType, more bool) Message {
	id := func() uint32 {
		v := d.u32("id")
		d.skip(4)
		return v
	}
	switch kind {
	case MultipartDesc:
		return DescRequest{}
	case MultipartFlowDesc:
		return FlowDescRequest{d.filter()}
	case MultipartFlowStats:
		return FlowStatsRequest{d.filter()}
	case MultipartAggregate:
		return AggregateRequest{d.filter()}
	case MultipartTable:
		return TableStatsRequest{}
	case MultipartPortDesc:
		return PortDescRequest{Port(id())}
	case MultipartGroupDesc:
		return GroupDescRequest{id()}
	case MultipartGroup:
		return GroupStatsRequest{id()}
	case MultipartGroupFeatures:
		return GroupFeaturesRequest{}
	case MultipartMeterDesc:
		return MeterDescRequest{id()}
	case MultipartPortStats:
		return PortStatsRequest{Port(id())}
	case MultipartQueueStats:
		return QueueStatsRequest{Port(d.u32("port_no")), d.u32("queue_id")}
	case MultipartQueueDesc:
		return QueueDescRequest{Port(d.u32("port_no")), d.u32("queue_id")}
	case MultipartMeter:
		return MeterStatsRequest{id()}
	case MultipartMeterFeatures:
		return MeterFeaturesRequest{}
	case MultipartTableDesc:
		return TableDescRequest{}
	case MultipartTableFeatures:
		m := TableFeaturesRequest{More: more}
		for d.left() > 0 {
			m.Tables = append(m.Tables, d.tableFeatures())
		}
		return m
	case MultipartControllerStatus:
		return ControllerStatusRequest{}
	case MultipartBundleFeatures:
		return d.bundleFeaturesRequest()
	case MultipartFlowMonitor:
		m := d.flowMonitor()
		for d.left() > 0 {
			m.Others = append(m.Others, d.flowMonitor())
		}
		return m
	}
	return nil
}

func (d *decoder) reply(kind MultipartType, more bool) Message {
	switch kind {
	case MultipartDesc:
		return DescReply{d.text("manufacturer", 256), d.text("hardware", 256), d.text("software", 256), d.text("serial", 32),
			d.text("datapath", 256)}
	case MultipartFlowDesc:
		m := FlowDescReply{More: more}
		for d.left() > 0 {
			m.Flows = append(m.Flows, d.flowDesc())
		}
		return m
	case MultipartFlowStats:
		m := FlowStatsReply{More: more}
		for d.left() > 0 {
			m.Flows = append(m.Flows, d.flowStats())
		}
		return m
	case MultipartAggregate:
		var flows uint32
		s := d.oxsFlows(&flows)
		return AggregateReply{s.Packets, s.Bytes, flows}
	case MultipartTable:
		m := TableStatsReply{More: more}
		for d.left() > 0 {
			t := TableStats{Table: Table(d.u8("table"))}
			d.skip(3)
			t.Active, t.Lookup, t.Matched = d.u32("active_count"), d.u64("lookup_count"), d.u64("matched_count")
			m.Tables = append(m.Tables, t)
		}
		return m
	case MultipartPortDesc:
		m := PortDescReply{More: more}
		for d.left() > 0 {
			m.Ports = append(m.Ports, d.portDesc())
		}
		return m
	case MultipartGroupDesc:
		m := GroupDescReply{More: more}
		for d.left() > 0 {
			m.Groups = append(m.Groups, d.groupDesc())
		}
		return m
	case MultipartGroup:
		m := GroupStatsReply{More: more}
		for d.left() > 0 {
			m.Groups = append(m.Groups, d.groupStats())
		}
		return m
	case MultipartGroupFeatures:
		m := GroupFeaturesReply{Types: d.u32("types"), Capabilities: d.u32("capabilities")}
		for i := range m.MaxGroups {
			m.MaxGroups[i] = d.u32("max_groups")
		}
		for i := range m.Actions {
			m.Actions[i] = d.u32("actions")
		}
		return m
	case MultipartMeterDesc:
		m := MeterDescReply{More: more}
		for d.left() > 0 {
			s := d.entry("meter", 8)
			s.skip(2)
			c := MeterDesc{Flags: s.u16("flags"), ID: s.u32("meter_id")}
			c.Bands = s.bands()
			m.Meters = append(m.Meters, c)
		}
		return m
	case MultipartPortStats:
		m := PortStatsReply{More: more}
		for d.left() > 0 {
			m.Ports = append(m.Ports, d.portStats())
		}
		return m
	case MultipartQueueStats:
		m := QueueStatsReply{More: more}
		for d.left() > 0 {
			m.Queues = append(m.Queues, d.queueStats())
		}
		return m
	case MultipartQueueDesc:
		m := QueueDescReply{More: more}
		for d.left() > 0 {
			m.Queues = append(m.Queues, d.queueDesc())
		}
		return m
	case MultipartMeter:
		m := MeterStatsReply{More: more}
		for d.left() > 0 {
			m.Meters = append(m.Meters, d.meterStats())
		}
		return m
	case MultipartMeterFeatures:
		return d.meterFeatures()
	case MultipartTableDesc:
		m := TableDescReply{More: more}
		for d.left() > 0 {
			m.Tables = append(m.Tables, d.tableDesc())
		}
		return m
	case MultipartTableFeatures:
		m := TableFeaturesReply{More: more}
		for d.left() > 0 {
			m.Tables = append(m.Tables, d.tableFeatures())
		}
		return m
	case MultipartControllerStatus:
		m := ControllerStatusReply{More: more}
		for d.left() > 0 {
			m.Controllers = append(m.Controllers, d.controllerStatus())
		}
		return m
	case MultipartBundleFeatures:
		return d.bundleFeaturesReply()
	case MultipartFlowMonitor:
		m := FlowMonitorReply{More: more}
		for d.left() > 0 {
			m.Updates = append(m.Updates, d.flowUpdate())
		}
		return m
	}
	return nil
}

// entry is a decoder of an entry that begins with its own length, which is not yet read.
func (d *decoder) entry(what string, least int) decoder {
	at := *d
	n := 0
	if d.left() >= 2 {
		n = int(d.buf[0])<<8 | int(d.buf[1])
	}
	if d.ok() && n < least {
		at.fail(what+" length", "%d is less than %d", n, least)
	}
	return d.sub(what, n)
}

func (m RawMultipart) appendTo(e *encoder) {
	e.u16(uint16(m.Kind))
	e.u16(m.Flags)
	e.zero(4)
	e.bytes(m.Data)
}

func (m DescRequest) appendTo(e *encoder) { e.multipart(m) }
func (m DescReply) appendTo(e *encoder) {
	e.multipart(m)
	e.text(m.Manufacturer, 256)
	e.text(m.Hardware, 256)
	e.text(m.Software, 256)
	e.text(m.Serial, 32)
	e.text(m.Datapath, 256)
}

func (e *encoder) filter(f FlowFilter) {
	e.u8(uint8(f.Table))
	e.zero(3)
	e.u32(anyPort(f.OutPort))
	e.u32(anyGroup(f.OutGroup))
	e.zero(4)
	e.u64(f.Cookie)
	e.u64(f.CookieMask)
	e.match(f.Match)
}
func (d *decoder) filter() FlowFilter {
	f := FlowFilter{Table: Table(d.u8("table"))}
	d.skip(3)
	f.OutPort, f.OutGroup = Port(d.u32("out_port")), d.u32("out_group")
	d.skip(4)
	f.Cookie, f.CookieMask, f.Match = d.u64("cookie"), d.u64("cookie mask"), d.match()
	d.take("rest", d.left()) // drafts of 1.5 name statistics here; the switch does not mind them
	return f
}
func (m FlowDescRequest) appendTo(e *encoder)  { e.multipart(m); e.filter(m.FlowFilter) }
func (m FlowStatsRequest) appendTo(e *encoder) { e.multipart(m); e.filter(m.FlowFilter) }
func (m AggregateRequest) appendTo(e *encoder) { e.multipart(m); e.filter(m.FlowFilter) }

// Fields of OXS statistics (OpenFlow 1.5, 7.2.4.2).
const (
	oxsClass    uint16 = 0x8002
	oxsDuration uint8  = 0
	oxsIdle     uint8  = 1
	oxsFlows    uint8  = 3
	oxsPackets  uint8  = 4
	oxsBytes    uint8  = 5
)

func (e *encoder) oxsField(id uint8, v uint64) {
	e.u16(oxsClass)
	e.u8(id << 1)
	e.u8(8)
	e.u64(v)
}
func (e *encoder) oxs(s Stats) { e.stats(s, true) }

// stats appends a flow's statistics. The switch leaves the idle time out of flow_removed.
func (e *encoder) stats(s Stats, idle bool) {
	start := len(e.b)
	e.zero(4)
	e.oxsField(oxsDuration, uint64(s.DurationSec)<<32|uint64(s.DurationNsec))
	if idle || s.IdleSec != 0 || s.IdleNsec != 0 {
		e.oxsField(oxsIdle, uint64(s.IdleSec)<<32|uint64(s.IdleNsec))
	}
	e.oxsField(oxsPackets, s.Packets)
	e.oxsField(oxsBytes, s.Bytes)
	e.len16(start, 2)
	e.pad8(start)
}
func (d *decoder) oxs() Stats { var n uint32; return d.oxsFlows(&n) }
func (d *decoder) oxsFlows(flows *uint32) Stats {
	var st Stats
	at := *d
	d.skip(2)
	n := int(d.u16("stats length"))
	if d.ok() && n < 4 {
		at.fail("stats length", "%d is less than 4", n)
	}
	s := d.sub("stats", n-4)
	d.skip((8 - n%8) % 8)
	for s.left() > 0 {
		class, id, size := s.u16("OXS class"), s.u8("OXS field")>>1, int(s.u8("OXS length"))
		if class == oxsClass && size == 8 {
			switch v := s.u64("OXS value"); id {
			case oxsDuration:
				st.DurationSec, st.DurationNsec = uint32(v>>32), uint32(v)
			case oxsIdle:
				st.IdleSec, st.IdleNsec = uint32(v>>32), uint32(v)
			case oxsPackets:
				st.Packets = v
			case oxsBytes:
				st.Bytes = v
			}
		} else if class == oxsClass && id == oxsFlows && size == 4 {
			*flows = s.u32("flow_count")
		} else {
			s.skip(size)
		}
	}
	return st
}

func (m AggregateReply) appendTo(e *encoder) {
	e.multipart(m)
	start := len(e.b)
	e.zero(4)
	e.oxsField(oxsPackets, m.Packets)
	e.oxsField(oxsBytes, m.Bytes)
	e.u16(oxsClass)
	e.u8(oxsFlows << 1)
	e.u8(4)
	e.u32(m.Flows)
	e.len16(start, 2)
	e.pad8(start)
}

func (m FlowDescReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, f := range m.Flows {
		start := len(e.b)
		e.zero(4)
		e.u8(uint8(f.Table))
		e.zero(1)
		e.u16(f.Priority)
		e.u16(f.IdleTimeout)
		e.u16(f.HardTimeout)
		e.u16(f.Flags)
		e.u16(f.Importance)
		e.u64(f.Cookie)
		e.match(f.Match)
		e.oxs(f.Stats)
		e.instructions(f.Actions)
		e.len16(start, 0)
	}
}
func (d *decoder) flowDesc() FlowDesc {
	s := d.entry("flow", 24)
	s.skip(4)
	f := FlowDesc{Table: Table(s.u8("table"))}
	s.skip(1)
	f.Priority, f.IdleTimeout, f.HardTimeout = s.u16("priority"), s.u16("idle_timeout"), s.u16("hard_timeout")
	f.Flags, f.Importance, f.Cookie = s.u16("flags"), s.u16("importance"), s.u64("cookie")
	f.Match, f.Stats, f.Actions = s.match(), s.oxs(), s.instructions()
	return f
}

func (m FlowStatsReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, f := range m.Flows {
		start := len(e.b)
		e.zero(4)
		e.u8(uint8(f.Table))
		e.u8(f.Reason)
		e.u16(f.Priority)
		e.match(f.Match)
		e.oxs(f.Stats)
		e.len16(start, 0)
	}
}
func (d *decoder) flowStats() FlowStats {
	s := d.entry("flow", 8)
	s.skip(4)
	return FlowStats{Table: Table(s.u8("table")), Reason: s.u8("reason"), Priority: s.u16("priority"), Match: s.match(),
		Stats: s.oxs()}
}

func (m TableStatsRequest) appendTo(e *encoder) { e.multipart(m) }
func (m TableStatsReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, t := range m.Tables {
		e.u8(uint8(t.Table))
		e.zero(3)
		e.u32(t.Active)
		e.u64(t.Lookup)
		e.u64(t.Matched)
	}
}

func (e *encoder) id(id, zeroMeans uint32) {
	if id == 0 {
		id = zeroMeans
	}
	e.u32(id)
	e.zero(4)
}
func (m PortDescRequest) appendTo(e *encoder)      { e.multipart(m); e.id(uint32(m.Port), uint32(PortAny)) }
func (m GroupDescRequest) appendTo(e *encoder)     { e.multipart(m); e.id(m.ID, GroupAll) }
func (m GroupStatsRequest) appendTo(e *encoder)    { e.multipart(m); e.id(m.ID, GroupAll) }
func (m MeterDescRequest) appendTo(e *encoder)     { e.multipart(m); e.id(m.ID, MeterAll) }
func (m GroupFeaturesRequest) appendTo(e *encoder) { e.multipart(m) }

func (m PortDescReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, p := range m.Ports {
		e.portDesc(p)
	}
}
func (e *encoder) portDesc(p PortDesc) {
	start := len(e.b)
	e.u32(uint32(p.Number))
	e.zero(4)
	e.bytes(p.MAC[:])
	e.zero(2)
	e.text(p.Name, 16)
	e.u32(p.Config)
	e.u32(p.State)
	s := e.propStart(0)
	e.zero(4)
	for _, v := range [...]uint32{p.Current, p.Advertised, p.Supported, p.Peer, p.CurrentSpeed, p.MaxSpeed} {
		e.u32(v)
	}
	e.propEnd(s)
	e.portProperties(p)
	e.len16(start, 4)
}
func (d *decoder) portDesc() PortDesc {
	at := *d
	p := PortDesc{Number: Port(d.u32("port_no"))}
	n := int(d.u16("port length"))
	if d.ok() && n < 40 {
		at.fail("port length", "%d is less than 40", n)
	}
	s := d.sub("port", n-6)
	s.skip(2)
	copy(p.MAC[:], s.take("hw_addr", 6))
	s.skip(2)
	p.Name, p.Config, p.State = s.text("name", 16), s.u32("config"), s.u32("state")
	for s.left() > 0 {
		kind, value := s.prop("port property")
		value.portProperty(kind, &p)
	}
	return p
}

func (m GroupDescReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, g := range m.Groups {
		start := len(e.b)
		e.zero(2)
		e.u8(uint8(g.GroupType))
		e.zero(1)
		e.u32(g.ID)
		e.zero(8)
		at := len(e.b)
		e.buckets(g.Buckets, g.GroupType)
		n := len(e.b) - at
		e.b[start+8], e.b[start+9] = byte(n>>8), byte(n)
		e.selection(g.Selection)
		e.raw(g.Properties)
		e.len16(start, 0)
	}
}
func (d *decoder) groupDesc() GroupDesc {
	s := d.entry("group", 16)
	s.skip(2)
	g := GroupDesc{GroupType: GroupType(s.u8("group type"))}
	s.skip(1)
	g.ID = s.u32("group_id")
	n := int(s.u16("bucket_list_len"))
	s.skip(6)
	b := s.sub("buckets", n)
	g.Buckets = b.buckets(g.GroupType)
	g.Selection, g.Properties = s.selection()
	return g
}

func (m GroupStatsReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, g := range m.Groups {
		start := len(e.b)
		e.zero(4)
		e.u32(g.ID)
		e.u32(g.RefCount)
		e.zero(4)
		e.u64(g.Packets)
		e.u64(g.Bytes)
		e.u32(g.DurationSec)
		e.u32(g.DurationNsec)
		for _, b := range g.Buckets {
			e.u64(b.Packets)
			e.u64(b.Bytes)
		}
		e.len16(start, 0)
	}
}
func (d *decoder) groupStats() GroupStats {
	s := d.entry("group stats", 40)
	s.skip(4)
	g := GroupStats{ID: s.u32("group_id"), RefCount: s.u32("ref_count")}
	s.skip(4)
	g.Packets, g.Bytes = s.u64("packet_count"), s.u64("byte_count")
	g.DurationSec, g.DurationNsec = s.u32("duration_sec"), s.u32("duration_nsec")
	for s.left() > 0 {
		g.Buckets = append(g.Buckets, BucketStats{s.u64("bucket packets"), s.u64("bucket bytes")})
	}
	return g
}

func (m GroupFeaturesReply) appendTo(e *encoder) {
	e.multipart(m)
	e.u32(m.Types)
	e.u32(m.Capabilities)
	for _, v := range m.MaxGroups {
		e.u32(v)
	}
	for _, v := range m.Actions {
		e.u32(v)
	}
}

func (m MeterDescReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, c := range m.Meters {
		start := len(e.b)
		e.zero(2)
		e.u16(c.Flags)
		e.u32(c.ID)
		e.bands(c.Bands)
		e.len16(start, 0)
	}
}

func (m FlowMonitorRequest) appendTo(e *encoder) {
	e.multipart(m)
	m.monitor(e)
	for _, o := range m.Others {
		if len(o.Others) > 0 {
			e.fail("monitor %d: further monitors stand in the first one", o.ID)
		}
		o.monitor(e)
	}
}
func (d *decoder) flowMonitor() FlowMonitorRequest {
	return FlowMonitorRequest{ID: d.u32("monitor_id"), OutPort: Port(d.u32("out_port")), OutGroup: d.u32("out_group"),
		Flags: d.u16("flags"), Table: Table(d.u8("table")), Command: d.u8("command"), Match: d.match()}
}
func (m FlowMonitorRequest) monitor(e *encoder) {
	m.check(e)
	e.u32(m.ID)
	e.u32(anyPort(m.OutPort))
	e.u32(anyGroup(m.OutGroup))
	e.u16(m.Flags)
	e.u8(uint8(m.Table))
	e.u8(m.Command)
	e.match(m.Match)
}
func (m FlowMonitorReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, u := range m.Updates {
		start := len(e.b)
		e.zero(2)
		e.u16(u.Event)
		switch u.Event {
		case UpdateAbbrev:
			e.u32(u.XID)
		case UpdatePaused, UpdateResumed:
			e.zero(4)
		default:
			e.u8(uint8(u.Table))
			e.u8(u.Reason)
			e.u16(u.IdleTimeout)
			e.u16(u.HardTimeout)
			e.u16(u.Priority)
			e.zero(4)
			e.u64(u.Cookie)
			e.match(u.Match)
			e.instructions(u.Actions)
		}
		e.len16(start, 0)
	}
}
func (d *decoder) flowUpdate() FlowUpdate {
	s := d.entry("flow update", 8)
	s.skip(2)
	u := FlowUpdate{Event: s.u16("event")}
	switch u.Event {
	case UpdateAbbrev:
		u.XID = s.u32("xid")
	case UpdatePaused, UpdateResumed:
		s.skip(4)
	case UpdateInitial, UpdateAdded, UpdateRemoved, UpdateModified:
		u.Table, u.Reason = Table(s.u8("table")), s.u8("reason")
		u.IdleTimeout, u.HardTimeout, u.Priority = s.u16("idle_timeout"), s.u16("hard_timeout"), s.u16("priority")
		s.skip(4)
		u.Cookie, u.Match, u.Actions = s.u64("cookie"), s.match(), s.instructions()
	default:
		s.fail("event", "%d is not known", u.Event)
	}
	return u
}
