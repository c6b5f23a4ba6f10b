package ofp

// ExperimenterProperty is the type of properties whose meaning an experimenter defines. Their Data begins with the
// experimenter's number and its own type, four bytes each.
const ExperimenterProperty uint16 = 0xffff

// RawProperty is a property of a message that is kept undecoded: an experimenter's, or an unknown one. Data is the part
// after type and length, without the padding to a multiple of 8 bytes.
type RawProperty struct {
	Kind uint16
	Data []byte
}

// Experimenter splits an experimenter's property into its number, its type and the rest; ok is
// false for other properties.
func (p RawProperty) Experimenter() (vendor, subtype uint32, data []byte, ok bool) {
	if p.Kind < 0xfffe || len(p.Data) < 8 {
		return 0, 0, nil, false
	}
	return uint32(ToValue(p.Data[:4]).Lo), uint32(ToValue(p.Data[4:8]).Lo), p.Data[8:], true
}

// FieldID names a match field by its OXM header, as in table features and port descriptions. For an unknown field,
// Field is 0 and Raw is the header.
type FieldID struct {
	Field  Field
	Masked bool
	Raw    string
}

// ActionID names an action or an instruction by its type, as in table features. For an experimenter's action (Kind
// 0xffff), Data is the part after the header: the experimenter's number and its own data.
type ActionID struct {
	Kind uint16
	Data string
}

// raw appends properties as they came.
func (e *encoder) raw(list []RawProperty) {
	for _, r := range list {
		if vendor, _, _, ok := r.Experimenter(); r.Kind == ExperimenterProperty && (!ok || vendor == 0) {
			e.fail("an experimenter's property begins with the experimenter's number and a type of its own: %d bytes are not it",
				len(r.Data))
			return
		}
		p := e.propStart(r.Kind)
		e.bytes(r.Data)
		e.propEnd(p)
	}
}

// raw keeps a property whose type and value were read with prop.
func (d *decoder) raw(kind uint16) RawProperty {
	if kind == ExperimenterProperty && d.ok() && (len(d.buf) < 8 || ToValue(d.buf[:4]).IsZero()) {
		d.fail("experimenter property", "want an experimenter's number and type, there are %d bytes", len(d.buf))
	}
	return RawProperty{kind, d.rest()}
}

// end refuses what is left of a property whose length is fixed.
func (d *decoder) end(field string) {
	if n := d.left(); n != 0 {
		d.fail(field, "%d bytes more than it has", n)
	}
}

func (e *encoder) u16s(list ...uint16) {
	for _, v := range list {
		e.u16(v)
	}
}
func (e *encoder) u32s(list ...uint32) {
	for _, v := range list {
		e.u32(v)
	}
}
func (e *encoder) u64s(list ...uint64) {
	for _, v := range list {
		e.u64(v)
	}
}
func (d *decoder) u16s(field string, list ...*uint16) {
	for _, v := range list {
		*v = d.u16(field)
	}
}
func (d *decoder) u32s(field string, list ...*uint32) {
	for _, v := range list {
		*v = d.u32(field)
	}
}
func (d *decoder) u64s(field string, list ...*uint64) {
	for _, v := range list {
		*v = d.u64(field)
	}
}

// fieldIDs appends a property that names fields; nil appends nothing.
func (e *encoder) fieldIDs(typ uint16, list []FieldID) {
	if list == nil {
		return
	}
	p := e.propStart(typ)
	for _, f := range list {
		switch {
		case f.Raw != "":
			if _, _, _, n, err := oxmHeader(f.Raw); err != nil || n != len(f.Raw) {
				e.fail("%x is not the header of a field", f.Raw)
			}
			e.str(f.Raw)
		case f.Field == 0 || f.Field >= fieldCount:
			e.fail("field %d does not exist", f.Field)
		default:
			e.b = appendOXMHeader(e.b, f.Field, f.Masked, f.Field.Len())
		}
	}
	e.propEnd(p)
}
func (d *decoder) fieldIDs() []FieldID {
	list := []FieldID{}
	for d.left() > 0 {
		f, masked, _, n, err := oxmHeader(d.buf)
		if err != nil {
			d.fail("field", "%v", err)
			return nil
		}
		id, header := FieldID{Field: f, Masked: masked}, string(d.take("field", n))
		if f == 0 || string(appendOXMHeader(nil, f, masked, f.Len())) != header {
			id.Raw = header
		}
		list = append(list, id)
	}
	return list
}

// actionIDs appends a property that names actions or instructions; nil appends nothing.
func (e *encoder) actionIDs(typ uint16, list []ActionID) {
	if list == nil {
		return
	}
	p := e.propStart(typ)
	for _, a := range list {
		start := e.propStart(a.Kind)
		e.str(a.Data)
		e.len16(start, 2) // without padding
	}
	e.propEnd(p)
}
func (d *decoder) actionIDs() []ActionID {
	list := []ActionID{}
	for d.left() > 0 {
		at := *d
		kind, n := d.u16("action type"), int(d.u16("action length"))
		if d.ok() && n < 4 {
			at.fail("action length", "%d is less than 4", n)
		}
		list = append(list, ActionID{kind, string(d.take("action", n-4))})
	}
	return list
}

// tables appends a property that lists tables; nil appends nothing.
func (e *encoder) tables(typ uint16, list []Table) {
	if list == nil {
		return
	}
	p := e.propStart(typ)
	for _, t := range list {
		if t == TableAll {
			e.fail("table 255 stands for all tables, not for one")
		}
		e.u8(uint8(t))
	}
	e.propEnd(p)
}
func (d *decoder) tables() []Table {
	list := []Table{}
	for d.left() > 0 {
		list = append(list, Table(d.u8("table")))
	}
	return list
}
