package ofp

import "slices"

const (
	ntrVendor          uint32 = 0x0000154d
	ntrOldVendor       uint32 = 0x00001540 // what Open vSwitch 2.4 sent by mistake
	ntrSelectionMethod uint32 = 1
)

func (m GroupMod) appendTo(e *encoder) {
	m.check(e)
	e.u16(uint16(m.Command))
	e.u8(uint8(m.GroupType))
	e.zero(1)
	e.u32(m.ID)
	at := len(e.b)
	e.u16(0)
	e.zero(2)
	if m.Command == GroupInsertBucket || m.Command == GroupRemoveBucket {
		e.u32(m.CommandBucket)
	} else {
		e.u32(BucketAll)
	}
	start := len(e.b)
	e.buckets(m.Buckets, m.GroupType)
	n := len(e.b) - start
	e.b[at], e.b[at+1] = byte(n>>8), byte(n)
	e.selection(m.Selection)
	e.raw(m.Properties)
	if whole := 24 + len(e.b) - start; whole > 0xffff {
		e.fail("group %d: with %d buckets it takes %d bytes, which do not fit a message: divide it into several groups", m.ID,
			len(m.Buckets), whole)
	}
}

func (d *decoder) groupMod() Message {
	m := GroupMod{Command: GroupCommand(d.u16("command")), GroupType: GroupType(d.u8("group type"))}
	d.skip(1)
	m.ID = d.u32("group_id")
	n := int(d.u16("bucket_array_len"))
	d.skip(2)
	m.CommandBucket = d.u32("command_bucket_id")
	b := d.sub("buckets", n)
	m.Buckets = b.buckets(m.GroupType)
	m.Selection, m.Properties = d.selection()
	return m
}

func (e *encoder) buckets(list []Bucket, t GroupType) {
	for _, b := range list {
		start := len(e.b)
		e.zero(4)
		e.u32(b.ID)
		actions := len(e.b)
		e.actions(b.Actions)
		n := len(e.b) - actions
		e.b[start+2], e.b[start+3] = byte(n>>8), byte(n)
		if t == GroupTypeSelect || b.Weight != 0 {
			p := e.propStart(0)
			e.u16s(b.Weight, 0)
			e.propEnd(p)
		}
		if b.WatchPort != 0 && b.WatchPort != PortAny {
			p := e.propStart(1)
			e.u32(uint32(b.WatchPort))
			e.propEnd(p)
		}
		if b.WatchGroup != 0 && b.WatchGroup != GroupAny {
			p := e.propStart(2)
			e.u32(b.WatchGroup)
			e.propEnd(p)
		}
		e.raw(b.Properties)
		e.len16(start, 0)
	}
}

// buckets reads buckets up to the end of d. WatchPort and WatchGroup are 0 if nothing is watched. A bucket of a select
// group without a weight gets weight 1.
func (d *decoder) buckets(t GroupType) []Bucket {
	var list []Bucket
	for d.left() > 0 {
		at := *d
		n, actions := int(d.u16("bucket length")), int(d.u16("action_array_len"))
		if d.ok() && (n < 8 || n%8 != 0) {
			at.fail("bucket length", "%d is not a multiple of 8 of at least 8", n)
			return nil
		}
		b := Bucket{ID: d.u32("bucket_id")}
		if t == GroupTypeSelect {
			b.Weight = 1
		}
		s := d.sub("bucket", n-8)
		a := s.sub("bucket actions", actions)
		b.Actions = a.actions()
		for s.left() > 0 {
			typ, p := s.prop("bucket property")
			switch typ {
			case 0:
				b.Weight = p.u16("weight")
			case 1:
				b.WatchPort = Port(p.u32("watch_port"))
			case 2:
				b.WatchGroup = p.u32("watch_group")
			default:
				b.Properties = append(b.Properties, p.raw(typ))
			}
		}
		if b.WatchPort == PortAny {
			b.WatchPort = 0
		}
		if b.WatchGroup == GroupAny {
			b.WatchGroup = 0
		}
		list = append(list, b)
	}
	if !d.ok() {
		return nil
	}
	return list
}

func (e *encoder) selection(s Selection) {
	if s.Method == "" {
		if s.Param != 0 || len(s.Fields) != 0 {
			e.fail("selection: a parameter or fields need a method")
		}
		return
	}
	p := e.propStart(0xffff)
	e.u32(ntrVendor)
	e.u32(ntrSelectionMethod)
	e.zero(4)
	e.text(s.Method, 16)
	e.u64(s.Param)
	if s.Masks != nil && len(s.Masks) != len(s.Fields) {
		e.fail("selection: %d fields have %d masks", len(s.Fields), len(s.Masks))
		return
	}
	for _, f := range s.Sorted() {
		if f.Field == 0 || f.Field >= fieldCount {
			e.fail("selection: field %d does not exist", f.Field)
			return
		}
		if !f.Mask.And(Ones(f.Field.Bits()).Not()).IsZero() {
			e.fail("selection: %s: the mask is wider than the field's %d bits", f.Field, f.Field.Bits())
			return
		}
		full := f.Mask == Ones(f.Field.Bits())
		if !full && !f.Field.Maskable() {
			e.fail("selection: %s cannot be masked", f.Field)
			return
		}
		e.header(f.Field)
		if full { // the switch wants all bits set, also bits outside of the field
			for range f.Field.Len() {
				e.u8(0xff)
			}
		} else {
			e.b = f.Mask.Append(e.b, f.Field.Len())
		}
	}
	e.propEnd(p)
}

// Sorted returns the fields with their masks, in the order of [Field]. Their values are not used.
func (s Selection) Sorted() []MatchField {
	list := make([]MatchField, 0, len(s.Fields))
	for i, f := range s.Fields {
		m := MatchField{Field: f, Mask: Ones(f.Bits())}
		if i < len(s.Masks) {
			m.Mask = s.Masks[i]
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b MatchField) int { return int(a.Field) - int(b.Field) })
	return list
}

// Equal reports whether two selections choose the same way.
func (s Selection) Equal(t Selection) bool {
	return s.Method == t.Method && s.Param == t.Param && slices.Equal(s.Sorted(), t.Sorted())
}

// selection reads a group's properties up to the end of d; raw are the others.
func (d *decoder) selection() (s Selection, raw []RawProperty) {
	for d.left() > 0 {
		typ, p := d.prop("group property")
		if vendor, sub := p.peekVendor(typ); vendor != ntrVendor && vendor != ntrOldVendor || sub != ntrSelectionMethod {
			raw = append(raw, p.raw(typ))
			continue
		}
		p.skip(12)
		s = Selection{Method: p.text("selection_method", 16), Param: p.u64("selection_method_param")}
		var list []MatchField
		for p.left() > 0 {
			m, n, err := parseOXM(p.buf)
			if err != nil {
				p.fail("selection field", "%v", err)
				break
			}
			p.take("selection field", n)
			if m.Field.Long() { // all of an option, or its last 16 bytes
				m.Value = ToValue(m.Bytes)
			}
			if m.Field != 0 {
				m.Value = m.Value.And(Ones(m.Field.Bits()))
				list = append(list, m)
			}
		}
		s.set(list)
	}
	return s, raw
}

// set takes the fields of a message, where a field's value is the mask.
func (s *Selection) set(list []MatchField) {
	slices.SortFunc(list, func(a, b MatchField) int { return int(a.Field) - int(b.Field) })
	masked := slices.ContainsFunc(list, func(m MatchField) bool { return m.Value != Ones(m.Field.Bits()) })
	for _, m := range list {
		s.Fields = append(s.Fields, m.Field)
		if masked {
			s.Masks = append(s.Masks, m.Value)
		}
	}
}

func (m MeterMod) appendTo(e *encoder) {
	m.check(e)
	e.u16(uint16(m.Command))
	e.u16(m.Flags)
	e.u32(m.ID)
	e.bands(m.Bands)
}
func (e *encoder) bands(list []MeterBand) {
	for _, b := range list {
		s := e.propStart(b.Kind)
		e.u32s(b.Rate, b.Burst)
		if b.known() {
			e.u8(b.PrecLevel)
			e.zero(3)
		} else {
			e.str(b.Data)
		}
		e.propEnd(s)
	}
}
func (b MeterBand) known() bool { return b.Kind == BandDrop || b.Kind == BandDSCPRemark }

func (d *decoder) bands() []MeterBand {
	var list []MeterBand
	for d.left() > 0 {
		kind, p := d.prop("meter band")
		b := MeterBand{Kind: kind, Rate: p.u32("rate"), Burst: p.u32("burst_size")}
		if b.known() {
			b.PrecLevel = p.u8("prec_level")
			p.skip(3)
			p.end("meter band")
		} else {
			b.Data = string(p.take("meter band", p.left()))
		}
		list = append(list, b)
	}
	return list
}
