package ofp

// Commands of a TLVTableMod.
const (
	TLVAdd    uint16 = 0
	TLVDelete uint16 = 1
	TLVClear  uint16 = 2
)

// TLVMap maps a Geneve option onto tun_metadata<Index>. Length is the length of the option's data: a multiple of 4, up
// to 124.
type TLVMap struct {
	Class  uint16
	Kind   uint8
	Length uint8
	Index  uint16
}

// TLVTableMod maps Geneve options onto fields, or removes mappings (NXT_TLV_TABLE_MOD). With TLVDelete only Index is
// used in Maps. With TLVClear Maps is ignored.
type TLVTableMod struct {
	Command uint16
	Maps    []TLVMap
}

// TLVTableRequest asks for the mappings (NXT_TLV_TABLE_REQUEST).
type TLVTableRequest struct{}

// TLVTableReply has the mappings and their limits (NXT_TLV_TABLE_REPLY). MaxSpace is the total number of bytes of all
// options, and MaxFields the number of options.
type TLVTableReply struct {
	MaxSpace  uint32
	MaxFields uint16
	Maps      []TLVMap
}

// Type of the messages about the TLV table.
func (TLVTableMod) Type() Type     { return TypeExperimenter }
func (TLVTableRequest) Type() Type { return TypeExperimenter }
func (TLVTableReply) Type() Type   { return TypeExperimenter }

func (e *encoder) tlvMaps(list []TLVMap, lengths bool) {
	for _, t := range list {
		if lengths && (t.Length%4 != 0 || t.Length == 0 || t.Length > maxTLV) {
			e.fail("option class=%#x,type=%#x: length %d is not a multiple of 4 from 4 to %d", t.Class, t.Kind, t.Length, maxTLV)
		}
		if t.Index >= tunMetadataFields {
			e.fail("option class=%#x,type=%#x: tun_metadata%d does not exist, the last is tun_metadata%d", t.Class, t.Kind,
				t.Index, tunMetadataFields-1)
		}
		e.u16(t.Class)
		e.u8(t.Kind)
		e.u8(t.Length)
		e.u16s(t.Index, 0)
	}
}

// Limits of Geneve options in Open vSwitch (tun-metadata.h).
const (
	maxTLV            = 124
	tunMetadataFields = 64
)

func (d *decoder) tlvMaps() []TLVMap {
	var list []TLVMap
	for d.left() > 0 {
		list = append(list, TLVMap{Class: d.u16("option_class"), Kind: d.u8("option_type"), Length: d.u8("option_len"),
			Index: d.u16("index")})
		d.skip(2)
	}
	return list
}

func (m TLVTableMod) appendTo(e *encoder) {
	e.vendor(nxtTLVTableMod)
	if m.Command > TLVClear {
		e.fail("command %d does not exist: want 0 (add), 1 (delete) or 2 (clear)", m.Command)
	}
	e.u16(m.Command)
	e.zero(6)
	e.tlvMaps(m.Maps, m.Command == TLVAdd)
}
func (d *decoder) tlvTableMod() Message {
	m := TLVTableMod{Command: d.u16("command")}
	d.skip(6)
	m.Maps = d.tlvMaps()
	return m
}

func (TLVTableRequest) appendTo(e *encoder) { e.vendor(nxtTLVTableRequest) }

func (m TLVTableReply) appendTo(e *encoder) {
	e.vendor(nxtTLVTableReply)
	e.u32(m.MaxSpace)
	e.u16(m.MaxFields)
	e.zero(10)
	e.tlvMaps(m.Maps, true)
}
func (d *decoder) tlvTableReply() Message {
	m := TLVTableReply{MaxSpace: d.u32("max_option_space"), MaxFields: d.u16("max_fields")}
	d.skip(10)
	m.Maps = d.tlvMaps()
	return m
}
