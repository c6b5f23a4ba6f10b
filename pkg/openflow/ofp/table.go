package ofp

// Bits of TableMod.Config, TableDesc.Config and TableFeatures.Capabilities (ofp_table_config).
const (
	TableEviction      uint32 = 1 << 2 // the table may evict flows to make room
	TableVacancyEvents uint32 = 1 << 3 // TableStatus is sent when vacancy passes a threshold
)

// Bits of TableDesc.EvictionFlags: what decides which flow is evicted
// (ofp_table_mod_prop_eviction_flag).
const (
	EvictionOther      uint32 = 1 << 0
	EvictionImportance uint32 = 1 << 1
	EvictionLifetime   uint32 = 1 << 2
)

// Vacancy is when TableStatus is sent, in percent of the table that is free: when it falls below
// Down or rises above Up. Current is what is free now; it is 0 in a TableMod.
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

// TableStatus tells that the vacancy of a table has passed a threshold (OFPT_TABLE_STATUS).
type TableStatus struct {
	Reason uint8
	Table  TableDesc
}

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

// TableFeaturesRequest asks what the tables can do, or, where it has Tables, asks that they can
// do so. Open vSwitch only takes new names and numbers of entries.
type TableFeaturesRequest struct {
	More   bool
	Tables []TableFeatures
}

// TableFeatures is what one table can do (ofp_table_features). Lists are nil where their
// property is not there, empty where it is and says none.
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
