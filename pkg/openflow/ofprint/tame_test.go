package ofprint

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// tame makes a message that Open vSwitch does not refuse: ovs-ofctl prints no more than the
// error's name of those.
func (g *generator) tame(m ofp.Message) ofp.Message {
	switch m := m.(type) {
	case ofp.Hello:
		m.HeaderVersion = 6
		m.Versions = []uint8{uint8(1 + g.IntN(31)), uint8(1 + g.IntN(31)), 6}
		if g.IntN(3) == 0 {
			m.Elements = []ofp.RawProperty{{Kind: uint16(2 + g.IntN(9)), Data: g.bytes(9)}}
		}
		return m
	case ofp.Error:
		return g.failure()
	case ofp.SetConfig:
		m.Flags &= 3
		return m
	case ofp.PacketIn:
		m.Data, m.Reason = g.packet(), m.Reason%9
		if m.BufferID == 0 {
			m.BufferID = ofp.NoBuffer
		}
		return m
	case ofp.NXPacketIn:
		m.PacketIn = g.tame(m.PacketIn).(ofp.PacketIn)
		return m
	case ofp.NXRoleRequest:
		m.Role = 1 + m.Role%3
		return m
	case ofp.NXRoleReply:
		m.Role = 1 + m.Role%3
		return m
	case ofp.NXSetAsync:
		for i, masks := range []*[2]uint32{&m.PacketIn, &m.PortStatus, &m.FlowRemoved} {
			masks[0] &= asyncKinds[i].allowed
			masks[1] &= asyncKinds[i].allowed
		}
		return m
	case ofp.PacketIn2:
		return g.packetIn2(m)
	case ofp.Resume:
		m.PacketIn2 = g.packetIn2(m.PacketIn2)
		m.Userdata = nil
		return m
	case ofp.PacketOut:
		m.Data = g.packet()
		m.BufferID = []uint32{0, ofp.NoBuffer, 5}[g.IntN(3)]
		if m.BufferID == 5 {
			m.Data = nil
		}
		// Only fields of the pipeline stand in a packet-out.
		m.Match, m.Actions = g.metadata(), g.bareActions()
		if m.InPort > 0xff00 {
			m.InPort = []ofp.Port{ofp.PortLocal, ofp.PortController, ofp.PortAny}[g.IntN(3)]
		}
		return m
	case ofp.FlowMod:
		f := g.flow()
		m.Table, m.Match, m.Actions, m.Command = f.Table, f.Match.OXM(), f.Actions, m.Command%5
		m.Flags &= 31
		if m.Command >= ofp.FlowDelete && g.IntN(2) == 0 {
			m.Table = ofp.TableAll
		}
		return m
	case ofp.FlowDescReply:
		for i := range m.Flows {
			m.Flows[i].Flags &= 31
		}
		return m
	case ofp.GroupMod:
		return g.groupMod(m)
	case ofp.GroupDescReply:
		for i := range m.Groups {
			m.Groups[i] = g.group(m.Groups[i])
		}
		return m
	case ofp.MeterMod:
		m.Command, m.Flags, m.Bands = m.Command%3, g.meterFlags(), g.bands(m.Bands)
		if m.Command == ofp.MeterDelete {
			m.Bands, m.Flags = nil, 0
		}
		if m.ID = g.meterID(); m.ID == ofp.MeterAll && m.Command != ofp.MeterDelete {
			m.ID = 1
		}
		return m
	case ofp.MeterDescReply:
		for i := range m.Meters {
			m.Meters[i].Flags, m.Meters[i].Bands = g.meterFlags(), g.bands(m.Meters[i].Bands)
		}
		return m
	case ofp.PortStatus:
		m.Reason %= 3
		return m
	case ofp.RoleRequest:
		m.Role %= 4
		return m
	case ofp.RoleReply:
		m.Role %= 4
		return m
	case ofp.GetAsyncReply:
		g.async(m.Properties)
		return m
	case ofp.SetAsync:
		g.async(m.Properties)
		return m
	case ofp.BundleControl:
		m.Ctrl %= 8
		return m
	case ofp.BundleAdd:
		m.Message = g.message([]ofp.Message{ofp.FlowMod{}, ofp.GroupMod{}, ofp.PacketOut{}}[g.IntN(3)])
		return m
	case ofp.SetPacketInFormat:
		m.Format %= 3
		return m
	case ofp.FlowMonitorRequest:
		for i := range m.Others {
			g.monitor(&m.Others[i])
		}
		g.monitor(&m)
		return m
	case ofp.FlowMonitorReply:
		return g.updates(m)
	case ofp.MeterFeaturesReply:
		m.Features = 0 // Open vSwitch 3.1 takes none
		return m
	case ofp.PortMod:
		m.Config &= m.Mask
		return m
	case ofp.RoleStatus:
		m.Role %= 4
		return m
	case ofp.RequestForward:
		m.Request = g.message([]ofp.Message{ofp.GroupMod{}, ofp.MeterMod{}}[g.IntN(2)])
		return m
	case ofp.TableMod:
		// Open vSwitch 3.1 takes the eviction's flags of a table-mod for its being on or off.
		m.Config, m.EvictionFlags, m.Vacancy = g.tableConfig()
		m.EvictionFlags = nil
		if m.Vacancy != nil {
			m.Vacancy.Current = 0
		}
		return m
	case ofp.TableStatus:
		m.Reason = []uint8{ofp.TableVacancyDown, ofp.TableVacancyUp}[g.IntN(2)]
		m.Table.Config, m.Table.EvictionFlags, m.Table.Vacancy = g.tableConfig()
		return m
	case ofp.TableDescReply:
		if len(m.Tables) == 0 { // which Open vSwitch takes for cut off
			m.Tables = []ofp.TableDesc{{Table: 3}}
		}
		for i := range m.Tables {
			m.Tables[i].Config, m.Tables[i].EvictionFlags, m.Tables[i].Vacancy = g.tableConfig()
		}
		return m
	case ofp.TableFeaturesRequest:
		g.tableFeatures(m.Tables)
		return m
	case ofp.TableFeaturesReply:
		if len(m.Tables) == 0 { // as above
			m.Tables = []ofp.TableFeatures{{}}
		}
		g.tableFeatures(m.Tables)
		return m
	case ofp.TLVTableMod:
		m.Command = m.Command % 3
		m.Maps = g.tlvMaps(m.Maps)
		if m.Command == ofp.TLVClear {
			m.Maps = nil
		}
		return m
	case ofp.TLVTableReply:
		m.MaxSpace, m.MaxFields, m.Maps = 256, 64, g.tlvMaps(m.Maps)
		return m
	case ofp.CTFlush:
		return g.ctFlush(m)
	case ofp.ExperimenterMultipart:
		m.MsgType = []ofp.Type{ofp.TypeMultipartRequest, ofp.TypeMultipartReply}[g.IntN(2)]
		m.Vendor = []uint32{nxVendor, onfVendor, m.Vendor}[g.IntN(3)]
		m.Subtype |= 0x1000 // an unknown one
		return m
	case ofp.Experimenter:
		m.Vendor = []uint32{nxVendor, onfVendor, m.Vendor}[g.IntN(3)]
		m.Subtype |= 0x1000 // an unknown one
		return m
	case ofp.RawMessage:
		m.MsgType = []ofp.Type{22, 23, 36, 99, 255}[g.IntN(5)]
		return m
	case ofp.RawMultipart:
		m.MsgType = []ofp.Type{ofp.TypeMultipartRequest, ofp.TypeMultipartReply}[g.IntN(2)]
		m.Kind = []ofp.MultipartType{20, 99, 0xfffe}[g.IntN(3)]
		return m
	}
	return m
}

func (g *generator) tableConfig() (config uint32, flags *uint32, v *ofp.Vacancy) {
	config = []uint32{0, ofp.TableEviction, ofp.TableVacancyEvents, ofp.TableEviction | ofp.TableVacancyEvents}[g.IntN(4)]
	if config&ofp.TableEviction != 0 && g.IntN(2) == 0 {
		bits := uint32(1 + g.IntN(7))
		flags = &bits
	}
	if config&ofp.TableVacancyEvents != 0 {
		down := uint8(g.IntN(50))
		v = &ofp.Vacancy{Down: down, Up: down + uint8(g.IntN(50)), Current: uint8(g.IntN(101))}
	}
	return config, flags, v
}

// tableFeatures returns the features of a few tables, often alike, with all properties or without.
func (g *generator) tableFeatures(list []ofp.TableFeatures) {
	first := ofp.Table(g.IntN(20))
	for i := range list {
		t := &list[i]
		if i > 0 && g.IntN(2) == 0 {
			*t = list[i-1]
			t.Name = ""
		}
		t.Table, t.Command = first+ofp.Table(i), t.Command%4
		t.SyncFrom, t.PacketTypes, t.Properties = nil, nil, nil
		t.Match = g.fieldIDs(t.Match, true)
		t.Wildcards = g.fieldIDs(t.Wildcards, false)
		g.entryFeatures(&t.Hit)
		g.entryFeatures(&t.Miss)
		switch g.IntN(4) {
		case 0:
			t.Miss = ofp.TableEntryFeatures{}
		case 1: // every table to all that follow
			t.Miss = ofp.TableEntryFeatures{}
			t.Hit.NextTables = []ofp.Table{}
			for n := t.Table + 1; n < 40; n++ {
				t.Hit.NextTables = append(t.Hit.NextTables, n)
			}
		}
		for f := resolve(*t); !steady(f); f = resolve(*t) {
			t.Match, t.Wildcards = t.Match[:len(t.Match)/2], t.Wildcards[:len(t.Wildcards)/2]
			for _, e := range []*ofp.TableEntryFeatures{&t.Hit, &t.Miss} {
				for _, a := range []*ofp.TableActionFeatures{&e.Write, &e.Apply} {
					a.SetField = a.SetField[:len(a.SetField)/2]
				}
			}
		}
		if g.IntN(8) == 0 {
			*t = ofp.TableFeatures{Table: t.Table, Name: t.Name, MaxEntries: t.MaxEntries}
		}
	}
}

// steady reports whether ovs-ofctl can print the names of a table's fields. Where names like ct_nw_src, ct_nw_dst,
// ct_ipv6_src stand together it cuts as much off the third as off the first two, and prints ct_nw_{src,dst,6_src}; we
// print ct_{nw_{src,dst},ipv6_src}.
func steady(f features) bool {
	var names func(list []string, skip int) bool
	names = func(list []string, skip int) bool {
		for len(list) > 0 {
			run, length := prefixRun(list, skip)
			if n := sequence(list); n >= run {
				list = list[n:]
				continue
			}
			if length != commonPrefix(list[0][skip:], list[1][skip:]) || !names(list[:run], skip+length) {
				return false
			}
			list = list[run:]
		}
		return true
	}
	set := func(s fieldSet, is func(int) bool) bool {
		var list []string
		for i, name := range fieldOrder {
			if s[i] && is(i) {
				list = append(list, name)
			}
		}
		return names(list, 0)
	}
	all := func(int) bool { return true }
	return set(f.match, func(i int) bool { return f.mask[i] }) &&
		set(f.match, func(i int) bool { return !f.mask[i] && f.wildcard[i] }) &&
		set(f.match, func(i int) bool { return !f.wildcard[i] }) &&
		set(f.hit.write.setFields, all) && set(f.hit.apply.setFields, all) &&
		set(f.miss.write.setFields, all) && set(f.miss.apply.setFields, all)
}

func (g *generator) entryFeatures(e *ofp.TableEntryFeatures) {
	if e.NextTables == nil {
		e.NextTables = []ofp.Table{}
	}
	for i := range e.NextTables {
		e.NextTables[i] %= 255
	}
	e.Instructions = nil
	for range 1 + g.IntN(6) {
		e.Instructions = append(e.Instructions, ofp.ActionID{Kind: uint16(1 + g.IntN(6))})
	}
	for _, a := range []*ofp.TableActionFeatures{&e.Write, &e.Apply} {
		a.Actions, a.CopyField = []ofp.ActionID{}, nil
		for range g.IntN(6) {
			a.Actions = append(a.Actions, ofp.ActionID{Kind: uint16(g.IntN(28))})
		}
		a.SetField = g.fieldIDs(a.SetField, false)
	}
	if g.IntN(2) == 0 {
		e.Apply = e.Write
	}
}

// fieldIDs adds fields to a few, and some whose header the library does not know.
func (g *generator) fieldIDs(list []ofp.FieldID, masked bool) []ofp.FieldID {
	list = slices.Clone(list)
	for range g.IntN(30) {
		var id ofp.FieldID
		g.fill(reflect.ValueOf(&id).Elem())
		list = append(list, id)
	}
	if g.IntN(3) == 0 {
		list = append(list, ofp.FieldID{Raw: "\x00\x00\x00\x02"}, ofp.FieldID{Raw: "\x00\x00\x08\x02"})
	}
	if list == nil {
		list = []ofp.FieldID{}
	}
	for i := range list {
		list[i].Masked = list[i].Masked && masked
	}
	return list
}

func (g *generator) tlvMaps(list []ofp.TLVMap) []ofp.TLVMap {
	for i := range list {
		list[i].Length, list[i].Index = uint8(4*(1+g.IntN(31))), uint16(g.IntN(64))
	}
	return list
}

func (g *generator) ctFlush(m ofp.CTFlush) ofp.Message {
	m.HasZone = m.Zone != 0
	if !ovstest.Since("3.3") {
		m.MarkMask, m.LabelsMask = 0, ofp.Value{}
	}
	m.Mark, m.Labels = m.Mark&m.MarkMask, m.Labels.And(m.LabelsMask)
	m.Proto = []uint8{0, 1, 6, 17, 58}[g.IntN(5)]
	for _, t := range []*ofp.CTTuple{&m.Orig, &m.Reply} {
		switch m.Proto {
		case 1, 58:
			t.SrcPort, t.DstPort = 0, 0
		case 0:
			*t = ofp.CTTuple{Src: t.Src, Dst: t.Dst}
		default:
			t.ICMPID, t.ICMPType, t.ICMPCode = 0, 0, 0
		}
		if m.Proto == 58 {
			t.Src, t.Dst = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("2001:db8::7:5")
		}
		if g.IntN(4) == 0 {
			t.Src = netip.Addr{}
		}
	}
	return m
}

func (g *generator) monitor(m *ofp.FlowMonitorRequest) {
	m.Command = []uint8{ofp.MonitorCommandAdd, ofp.MonitorCommandModify, ofp.MonitorCommandDelete}[g.IntN(3)]
	// Open vSwitch wants one kind of change at least and does not know no-abbrev.
	m.Flags = m.Flags&0x5f | []uint16{ofp.MonitorAdd, ofp.MonitorRemoved, ofp.MonitorModify}[g.IntN(3)]
}

// failure is an error message that brings back something: whole, cut off, or no message.
func (g *generator) failure() ofp.Message {
	codes := [][2]uint16{{1, 1}, {1, 6}, {2, 0}, {4, 5}, {5, 0}, {0, 0}, {0, 1}, {17, 3}, {12, 3}}
	c := codes[g.IntN(len(codes))]
	m := ofp.Error{ErrType: c[0], Code: c[1], Data: g.bytes(7)}
	if g.IntN(4) == 0 {
		m = ofp.Error{ErrType: ofp.ErrTypeExperimenter, Code: 2, Experimenter: nxVendor}
	}
	if g.IntN(4) > 0 {
		like := []ofp.Message{ofp.FlowMod{}, ofp.GroupMod{}, ofp.EchoRequest{}, ofp.PacketOut{}, ofp.FlowDescRequest{},
			ofp.SetPacketInFormat{}, ofp.BundleControl{}}
		b, err := ofp.AppendMessage(nil, g.Uint32(), g.message(like[g.IntN(len(like))]))
		if err != nil {
			g.t.Fatal(err)
		}
		if g.IntN(2) == 0 {
			b = b[:8+g.IntN(len(b)-7)]
		}
		m.Data = b
	}
	return m
}

// metadata is a match on fields of the pipeline alone.
func (g *generator) metadata() ofp.Match {
	var b ofp.MatchBuilder
	for _, f := range []ofp.Field{ofp.Reg0, ofp.Reg7, ofp.Metadata, ofp.TunID, ofp.Reg15, ofp.TunIPv4Dst} {
		if g.IntN(3) == 0 {
			v := ofp.Value{Lo: g.number(f.Bits())}
			b.Exact(f, v)
		}
	}
	m, err := b.Match()
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

func (g *generator) packetIn2(m ofp.PacketIn2) ofp.PacketIn2 {
	m.Data, m.Reason = g.packet(), m.Reason%9
	if m.FullLen != 0 {
		m.FullLen = uint32(len(m.Data) + g.IntN(3))
	}
	m.Continuation = nil
	if g.IntN(2) == 0 {
		m.Continuation = g.continuation()
	}
	return m
}

// continuation is what Open vSwitch sends with a paused packet.
func (g *generator) continuation() []byte {
	b := make([]byte, 4)
	add := func(typ uint16, body []byte) {
		if g.IntN(2) == 0 {
			return
		}
		n := len(body) + 4
		b = append(b, byte(typ>>8), byte(typ), byte(n>>8), byte(n))
		b = append(b, body...)
		b = append(b, make([]byte, (8-n%8)%8)...)
	}
	random := func(n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = byte(g.number(8))
		}
		return out
	}
	list, err := ofp.AppendActions(nil, flow.Actions{ofp.Output{Port: 3}, ofp.PopVLAN{}})
	if err != nil {
		g.t.Fatal(err)
	}
	list = list[8:] // without the header of Apply-Actions
	add(contBridge, random(16))
	add(contStack, random(1+g.IntN(16)))
	add(contStack, random(4))
	add(contMirrors, random(4))
	add(contConntracked, nil)
	add(contTable, random(1))
	add(contCookie, random(12))
	add(contActions, append(make([]byte, 4), list...))
	add(contActions, append(make([]byte, 4), list...))
	add(contActionSet, append(make([]byte, 4), list...))
	add(contODPPort, random(4))
	return b
}

func (g *generator) groupMod(m ofp.GroupMod) ofp.Message {
	d := g.group(ofp.GroupDesc{ID: m.ID, Buckets: m.Buckets})
	m.ID, m.GroupType, m.Selection, m.Buckets = d.ID, d.GroupType, d.Selection, d.Buckets
	m.Command = []ofp.GroupCommand{ofp.GroupAdd, ofp.GroupModify, ofp.GroupDelete, ofp.GroupInsertBucket,
		ofp.GroupRemoveBucket, ofp.GroupAddOrModify}[g.IntN(6)]
	m.CommandBucket = []uint32{ofp.BucketFirst, ofp.BucketLast, ofp.BucketAll, 7}[g.IntN(4)]
	switch m.Command {
	case ofp.GroupDelete:
		m.Buckets, m.Selection = nil, ofp.Selection{}
		m.GroupType = ofp.GroupTypeAll
	case ofp.GroupRemoveBucket:
		m.Buckets, m.Selection, m.GroupType = nil, ofp.Selection{}, ofp.GroupTypeAll
	case ofp.GroupInsertBucket:
		m.Selection, m.GroupType = ofp.Selection{}, ofp.GroupTypeAll
		if m.CommandBucket == ofp.BucketAll {
			m.CommandBucket = ofp.BucketLast
		}
		for i := range m.Buckets {
			m.Buckets[i].Weight, m.Buckets[i].WatchPort, m.Buckets[i].WatchGroup = 0, 0, 0
		}
	}
	return m
}

// group is a group that Open vSwitch takes: what a bucket may watch and weigh depends on the
// group's type.
func (g *generator) group(d ofp.GroupDesc) ofp.GroupDesc {
	d.ID = uint32(g.number(32)) % 0xffffff01
	d.GroupType = ofp.GroupType(g.IntN(4))
	d.Selection = ofp.Selection{}
	if d.GroupType == ofp.GroupTypeIndirect {
		d.Buckets = []ofp.Bucket{{}}
	}
	for i := range d.Buckets {
		b := &d.Buckets[i]
		*b = ofp.Bucket{ID: uint32(i * 3), Actions: g.bareActions()}
		switch d.GroupType {
		case ofp.GroupTypeSelect:
			b.Weight = uint16(g.number(16))
		case ofp.GroupTypeFastFailover:
			if g.IntN(2) == 0 {
				b.WatchPort = g.port()
			} else {
				b.WatchGroup = uint32(1 + g.IntN(99))
			}
		}
	}
	if d.GroupType == ofp.GroupTypeSelect {
		switch g.IntN(3) {
		case 0:
			d.Selection = ofp.Selection{Method: "dp_hash", Param: g.number(64)}
		case 1:
			d.Selection = ofp.Selection{Method: "hash", Param: g.number(64)}
			list := []ofp.Field{
				ofp.IPv4Dst, ofp.EthDst, ofp.IPv4Src, ofp.EthSrc, ofp.IPv6Dst, ofp.Reg3, ofp.TunID, ofp.TCPSrc,
				ofp.IPProto, ofp.EthType, ofp.VLANVID, ofp.UDPDst, ofp.CTMark, ofp.XReg4, ofp.Metadata, ofp.TCPFlags, ofp.IPDSCP,
				ofp.VLANPCP,
			}
			g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			for _, f := range list[:g.IntN(6)] {
				mask := ofp.Ones(f.Bits())
				if f.Maskable() && g.IntN(2) == 0 {
					mask = ofp.Value{Lo: 1 + g.number(8)}.Shl(g.IntN(4))
					mask = mask.And(ofp.Ones(f.Bits()))
				}
				d.Selection.Fields = append(d.Selection.Fields, f)
				d.Selection.Masks = append(d.Selection.Masks, mask)
			}
		}
	}
	return d
}

// bareActions are actions that may stand outside of a flow.
func (g *generator) bareActions() []ofp.Action {
	var out []ofp.Action
	for _, a := range g.flow().Actions {
		switch a.(type) {
		case ofp.GotoTable, ofp.WriteActions, ofp.WriteMetadata, ofp.ClearActions, ofp.Meter, ofp.Learn, ofp.Conjunction:
		default:
			out = append(out, a)
		}
	}
	return out
}

func (g *generator) meterID() uint32 {
	return []uint32{ofp.MeterSlowPath, ofp.MeterController, ofp.MeterAll, 1, 0xffff0000, 77}[g.IntN(6)]
}
func (g *generator) meterFlags() uint16 {
	return []uint16{ofp.MeterKbps, ofp.MeterPktps}[g.IntN(2)] | uint16(g.IntN(4))<<2
}
func (g *generator) bands(list []ofp.MeterBand) []ofp.MeterBand {
	for i := range list {
		list[i].Kind = []uint16{ofp.BandDrop, ofp.BandDSCPRemark}[g.IntN(2)]
		if list[i].Kind == ofp.BandDrop {
			list[i].PrecLevel = 0
		}
	}
	return list
}

// async are masks of reasons that exist.
func (g *generator) async(list []ofp.AsyncProperty) {
	for i := range list {
		kind := uint16(g.IntN(12))
		list[i] = ofp.AsyncProperty{Kind: kind, Mask: g.Uint32() & asyncKinds[kind/2].allowed}
	}
}

func (g *generator) updates(m ofp.FlowMonitorReply) ofp.Message {
	for i := range m.Updates {
		u := &m.Updates[i]
		u.Event %= 7
		if g.IntN(2) == 0 {
			u.Event %= 4
		}
		if u.Event != ofp.UpdateRemoved {
			u.Reason = 0
		}
	}
	return m
}
