package ofp

// These are bits of TableMod.Config, TableDesc.Config and TableFeatures.Capabilities (ofp_table_config).
const (
	TableEviction      uint32 = 1 << 2 // the table may evict flows to make room
	TableVacancyEvents uint32 = 1 << 3 // TableStatus is sent when vacancy passes a threshold
)

// These are bits of TableDesc.EvictionFlags. They decide which flow is evicted (ofp_table_mod_prop_eviction_flag).
const (
	EvictionOther      uint32 = 1 << 0
	EvictionImportance uint32 = 1 << 1
	EvictionLifetime   uint32 = 1 << 2
)

// Vacancy has the thresholds for TableStatus, in percent of the table that is free. A TableStatus is sent if the free
// part falls below Down or rises above Up. Current is the present free part, and 0 in a TableMod.
type Vacancy struct{ Down, Up, Current uint8 }

// TableMod changes how a table treats its flows (OFPT_TABLE_MOD). Set Table to TableAll for
// all tables.
type TableMod struct {
	Table         Table
	Config        uint32 // TableEviction, TableVacancyEvents
	EvictionFlags *uint32
	Vacancy       *Vacancy
	Properties    []RawProperty
}

// TableDescRequest asks how the tables treat their flows.
type TableDescRequest struct{}

// TableDesc is how a table treats its flows (ofp_table_desc).
type TableDesc struct {
	Table         Table
	Config        uint32 // TableEviction, TableVacancyEvents
	EvictionFlags *uint32
	Vacancy       *Vacancy
	Properties    []RawProperty
}

// TableDescReply is one part of the answer to TableDescRequest.
type TableDescReply struct {
	More   bool
	Tables []TableDesc
}

// Reasons of a TableStatus.
const (
	TableVacancyDown uint8 = 3
	TableVacancyUp   uint8 = 4
)

// TableStatus reports that the vacancy of a table has passed a threshold (OFPT_TABLE_STATUS).
type TableStatus struct {
	Reason uint8
	Table  TableDesc
}

// Type of the messages about tables.
func (TableMod) Type() Type         { return TypeTableMod }
func (TableStatus) Type() Type      { return TypeTableStatus }
func (TableDescRequest) Type() Type { return TypeMultipartRequest }
func (TableDescReply) Type() Type   { return TypeMultipartReply }

// MultipartType of the messages about tables.
func (TableDescRequest) MultipartType() MultipartType { return MultipartTableDesc }
func (TableDescReply) MultipartType() MultipartType   { return MultipartTableDesc }

// HasMore of the messages about tables.
func (TableDescRequest) HasMore() bool { return false }
func (m TableDescReply) HasMore() bool { return m.More }

// Types of properties of TableMod and TableDesc (ofp_table_mod_prop_type).
const (
	tableEviction uint16 = 2
	tableVacancy  uint16 = 3
)

func (e *encoder) tableProperties(eviction *uint32, v *Vacancy, raw []RawProperty) {
	if eviction != nil {
		p := e.propStart(tableEviction)
		e.u32(*eviction)
		e.propEnd(p)
	}
	if v != nil {
		if v.Down > v.Up || v.Up > 100 || v.Current > 100 {
			e.fail("vacancy down %d%%, up %d%%, now %d%%: want percents, and down not above up", v.Down, v.Up, v.Current)
		}
		p := e.propStart(tableVacancy)
		e.bytes([]byte{v.Down, v.Up, v.Current, 0})
		e.propEnd(p)
	}
	e.raw(raw)
}
func (d *decoder) tableProperties(eviction **uint32, v **Vacancy) (raw []RawProperty) {
	for d.left() > 0 {
		switch kind, p := d.prop("table property"); kind {
		case tableEviction:
			flags := p.u32("eviction flags")
			p.end("eviction flags")
			*eviction = &flags
		case tableVacancy:
			*v = &Vacancy{p.u8("vacancy_down"), p.u8("vacancy_up"), p.u8("vacancy")}
			p.skip(1)
			p.end("vacancy")
		default:
			raw = append(raw, p.raw(kind))
		}
	}
	return raw
}

func (m TableMod) appendTo(e *encoder) {
	e.u8(uint8(m.Table))
	e.zero(3)
	e.u32(m.Config)
	if m.Vacancy != nil && m.Vacancy.Current != 0 {
		e.fail("table %d: what is free now can be asked, not set", m.Table)
	}
	e.tableProperties(m.EvictionFlags, m.Vacancy, m.Properties)
}
func (d *decoder) tableMod() Message {
	m := TableMod{Table: Table(d.u8("table"))}
	d.skip(3)
	m.Config = d.u32("config")
	m.Properties = d.tableProperties(&m.EvictionFlags, &m.Vacancy)
	return m
}

func (e *encoder) tableDesc(t TableDesc) {
	start := len(e.b)
	e.zero(2)
	e.u8(uint8(t.Table))
	e.zero(1)
	e.u32(t.Config)
	e.tableProperties(t.EvictionFlags, t.Vacancy, t.Properties)
	e.len16(start, 0)
}
func (d *decoder) tableDesc() TableDesc {
	s := d.entry("table", 8)
	s.skip(2)
	t := TableDesc{Table: Table(s.u8("table"))}
	s.skip(1)
	t.Config = s.u32("config")
	t.Properties = s.tableProperties(&t.EvictionFlags, &t.Vacancy)
	return t
}

func (m TableDescRequest) appendTo(e *encoder) { e.multipart(m) }
func (m TableDescReply) appendTo(e *encoder) {
	e.multipart(m)
	for _, t := range m.Tables {
		e.tableDesc(t)
	}
}

func (m TableStatus) appendTo(e *encoder) {
	if m.Reason != TableVacancyDown && m.Reason != TableVacancyUp {
		e.fail("reason %d does not exist: want 3 (vacancy down) or 4 (vacancy up)", m.Reason)
	}
	e.u8(m.Reason)
	e.zero(7)
	e.tableDesc(m.Table)
}
func (d *decoder) tableStatus() Message {
	m := TableStatus{Reason: d.u8("reason")}
	d.skip(7)
	m.Table = d.tableDesc()
	return m
}
