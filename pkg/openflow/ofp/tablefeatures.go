package ofp

// Commands of TableFeatures.
const (
	TableFeaturesReplace uint8 = 0 // the whole pipeline
	TableFeaturesModify  uint8 = 1
	TableFeaturesEnable  uint8 = 2
	TableFeaturesDisable uint8 = 3
)

// Bits of TableFeatures.Features (ofp_table_feature_flag).
const (
	TableFeatureIngress     uint32 = 1 << 0
	TableFeatureEgress      uint32 = 1 << 1
	TableFeatureFirstEgress uint32 = 1 << 4
)

// TableFeaturesRequest asks for the abilities of the tables. With Tables it sets them. Open vSwitch accepts only new
// names and numbers of entries.
type TableFeaturesRequest struct {
	More   bool
	Tables []TableFeatures
}

// TableFeatures has the abilities of one table (ofp_table_features). A list is nil if its property is missing, and
// empty if the property lists nothing.
type TableFeatures struct {
	Table                        Table
	Command                      uint8
	Features                     uint32
	Name                         string // up to 31 bytes
	MetadataMatch, MetadataWrite uint64
	Capabilities                 uint32 // TableEviction, TableVacancyEvents
	MaxEntries                   uint32
	Hit, Miss                    TableEntryFeatures // of ordinary flows, and of the table-miss flow where it differs
	Match, Wildcards             []FieldID
	SyncFrom                     []Table
	PacketTypes                  []uint32
	Properties                   []RawProperty // experimenters' and unknown ones
}

// TableEntryFeatures is what the flows of a table can do.
type TableEntryFeatures struct {
	Instructions []ActionID
	NextTables   []Table
	Write, Apply TableActionFeatures // what Write-Actions and Apply-Actions may hold
}

// TableActionFeatures is which actions and fields a list of actions may have.
type TableActionFeatures struct {
	Actions   []ActionID
	SetField  []FieldID
	CopyField []FieldID
}

// TableFeaturesReply is one part of the answer to TableFeaturesRequest.
type TableFeaturesReply struct {
	More   bool
	Tables []TableFeatures
}

// Type of the messages about tables' features.
func (TableFeaturesRequest) Type() Type { return TypeMultipartRequest }
func (TableFeaturesReply) Type() Type   { return TypeMultipartReply }

// MultipartType of the messages about tables' features.
func (TableFeaturesRequest) MultipartType() MultipartType { return MultipartTableFeatures }
func (TableFeaturesReply) MultipartType() MultipartType   { return MultipartTableFeatures }

// HasMore of the messages about tables' features.
func (m TableFeaturesRequest) HasMore() bool { return m.More }
func (m TableFeaturesReply) HasMore() bool   { return m.More }

// These are types of properties of TableFeatures (ofp_table_feature_prop_type). The corresponding type for Miss is one
// higher.
const (
	featInstructions   uint16 = 0
	featNextTables     uint16 = 2
	featWriteActions   uint16 = 4
	featApplyActions   uint16 = 6
	featMatch          uint16 = 8
	featWildcards      uint16 = 10
	featWriteSetField  uint16 = 12
	featApplySetField  uint16 = 14
	featSyncFrom       uint16 = 16
	featWriteCopyField uint16 = 18
	featApplyCopyField uint16 = 20
	featPacketTypes    uint16 = 22
)

func (m TableFeaturesRequest) appendTo(e *encoder) {
	e.multipart(m)
	for i := range m.Tables {
		e.tableFeatures(&m.Tables[i])
	}
}
func (m TableFeaturesReply) appendTo(e *encoder) {
	e.multipart(m)
	for i := range m.Tables {
		e.tableFeatures(&m.Tables[i])
	}
}

func (e *encoder) tableFeatures(t *TableFeatures) {
	if t.Table == TableAll {
		e.fail("table 255 stands for all tables, and has no features of its own")
	}
	if t.Command > TableFeaturesDisable {
		e.fail("table %d: command %d does not exist: want 0 (replace) to 3 (disable)", t.Table, t.Command)
	}
	start := len(e.b)
	e.zero(2)
	e.u8(uint8(t.Table))
	e.u8(t.Command)
	e.u32(t.Features)
	e.text(t.Name, 32)
	e.u64s(t.MetadataMatch, t.MetadataWrite)
	e.u32s(t.Capabilities, t.MaxEntries)
	from := len(e.b)
	e.entryFeatures(&t.Hit, 0)
	e.entryFeatures(&t.Miss, 1)
	e.fieldIDs(featMatch, t.Match)
	e.fieldIDs(featWildcards, t.Wildcards)
	e.tables(featSyncFrom, t.SyncFrom)
	if t.PacketTypes != nil {
		p := e.propStart(featPacketTypes)
		e.u32s(t.PacketTypes...)
		e.propEnd(p)
	}
	e.raw(t.Properties)
	if lacks := t.lacks(); lacks != "" && len(e.b) > from {
		e.fail("table %d: where a table's properties are reported, all of instructions, next tables, write actions, apply "+
			"actions, match, wildcards and set fields must be; %s is missing", t.Table, lacks)
	}
	e.len16(start, 0)
}

// lacks names a property that must be there where any is.
func (t *TableFeatures) lacks() string {
	switch {
	case t.Hit.Instructions == nil:
		return "Hit.Instructions"
	case t.Hit.NextTables == nil:
		return "Hit.NextTables"
	case t.Hit.Write.Actions == nil:
		return "Hit.Write.Actions"
	case t.Hit.Apply.Actions == nil:
		return "Hit.Apply.Actions"
	case t.Match == nil:
		return "Match"
	case t.Wildcards == nil:
		return "Wildcards"
	case t.Hit.Write.SetField == nil:
		return "Hit.Write.SetField"
	case t.Hit.Apply.SetField == nil:
		return "Hit.Apply.SetField"
	}
	return ""
}

func (e *encoder) entryFeatures(f *TableEntryFeatures, miss uint16) {
	e.actionIDs(featInstructions+miss, f.Instructions)
	e.tables(featNextTables+miss, f.NextTables)
	e.actionIDs(featWriteActions+miss, f.Write.Actions)
	e.fieldIDs(featWriteSetField+miss, f.Write.SetField)
	e.fieldIDs(featWriteCopyField+miss, f.Write.CopyField)
	e.actionIDs(featApplyActions+miss, f.Apply.Actions)
	e.fieldIDs(featApplySetField+miss, f.Apply.SetField)
	e.fieldIDs(featApplyCopyField+miss, f.Apply.CopyField)
}

func (d *decoder) tableFeatures() TableFeatures {
	s := d.entry("table features", 64)
	s.skip(2)
	t := TableFeatures{Table: Table(s.u8("table")), Command: s.u8("command"), Features: s.u32("features"),
		Name: s.text("name", 32)}
	t.MetadataMatch, t.MetadataWrite = s.u64("metadata_match"), s.u64("metadata_write")
	t.Capabilities, t.MaxEntries = s.u32("capabilities"), s.u32("max_entries")
	var seen uint32
	for s.left() > 0 {
		at := s
		kind, p := s.prop("table property")
		if kind < 32 {
			if seen&(1<<kind) != 0 {
				at.fail("table property", "type %d is there twice", kind)
			}
			seen |= 1 << kind
		}
		t.property(kind, &p)
	}
	return t
}

func (t *TableFeatures) property(kind uint16, p *decoder) {
	switch kind {
	case featMatch:
		t.Match = p.fieldIDs()
		return
	case featWildcards:
		t.Wildcards = p.fieldIDs()
		return
	case featSyncFrom:
		t.SyncFrom = p.tables()
		return
	case featPacketTypes:
		t.PacketTypes = []uint32{}
		for p.left() > 0 {
			t.PacketTypes = append(t.PacketTypes, p.u32("packet type"))
		}
		return
	}
	entry := &t.Hit
	if kind&1 != 0 {
		entry = &t.Miss
	}
	switch kind &^ 1 {
	case featInstructions:
		entry.Instructions = p.actionIDs()
	case featNextTables:
		entry.NextTables = p.tables()
	case featWriteActions:
		entry.Write.Actions = p.actionIDs()
	case featApplyActions:
		entry.Apply.Actions = p.actionIDs()
	case featWriteSetField:
		entry.Write.SetField = p.fieldIDs()
	case featApplySetField:
		entry.Apply.SetField = p.fieldIDs()
	case featWriteCopyField:
		entry.Write.CopyField = p.fieldIDs()
	case featApplyCopyField:
		entry.Apply.CopyField = p.fieldIDs()
	default: // match, wildcards, sync_from and packet_types have no counterpart for the table miss
		t.Properties = append(t.Properties, p.raw(kind))
	}
}
