package ofp

// Commands of a TLVTableMod.
const (
	TLVAdd    uint16 = 0
	TLVDelete uint16 = 1
	TLVClear  uint16 = 2
)

// TLVMap maps a Geneve option onto tun_metadata<Index>. Length is of the option's data, a
// multiple of 4 up to 124.
type TLVMap struct {
	Class  uint16
	Kind   uint8
	Length uint8
	Index  uint16
}

// TLVTableMod maps Geneve options onto fields, or forgets mappings (NXT_TLV_TABLE_MOD). With
// TLVDelete only Index counts in Maps, with TLVClear nothing.
type TLVTableMod struct {
	Command uint16
	Maps    []TLVMap
}

// TLVTableRequest asks for the mappings (NXT_TLV_TABLE_REQUEST).
type TLVTableRequest struct{}

// TLVTableReply is the mappings and how much there may be of them: MaxSpace is bytes of all
// options together, MaxFields how many options (NXT_TLV_TABLE_REPLY).
type TLVTableReply struct {
	MaxSpace  uint32
	MaxFields uint16
	Maps      []TLVMap
}
