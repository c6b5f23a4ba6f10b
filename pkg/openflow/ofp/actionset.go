package ofp

import (
	"errors"
	"fmt"
)

// SetField writes Value into Field; with a Mask it writes only the mask's bits. A load of a constant into a range of
// bits becomes a SetField too. Value and Mask are big-endian and as long as the field. For a tunnel option they have 1
// to 124 bytes, without zeros in front.
type SetField struct {
	Field Field
	Value string
	Mask  string
}

// RegMove copies the bits of Src to Dst (NXAST_REG_MOVE, OFPAT_COPY_FIELD); both are equally wide.
type RegMove struct{ Src, Dst Bits }

// Push and Pop move bits to and from OVS's stack (NXAST_STACK_PUSH, NXAST_STACK_POP).
type Push struct{ Src Bits }

// Pop is Push's counterpart.
type Pop struct{ Dst Bits }

// CheckPacketLarger sets a bit where the packet is longer than Len bytes.
type CheckPacketLarger struct {
	Len uint16
	Dst Bits
}

// DeleteField removes a tunnel option (NXAST_DELETE_FIELD).
type DeleteField struct{ Field Field }

func (a SetField) check() error {
	f, n := a.Field, a.Field.Len()
	switch {
	case !f.exists():
		return fmt.Errorf("set_field: field %d does not exist", f)
	case !f.Writable() || f == InPort:
		return fmt.Errorf("set_field: %s cannot be written", f)
	case f.Long():
		return a.checkLong()
	case len(a.Value) != n:
		return fmt.Errorf("set_field: the value for %s has %d bytes, want %d (a value too large or of the wrong kind?)", f,
			len(a.Value), n)
	case a.Mask != "" && len(a.Mask) != n:
		return fmt.Errorf("set_field: the mask for %s has %d bytes, want %d", f, len(a.Mask), n)
	}
	v, m := ToValue(a.Value), a.mask()
	if wide := Ones(f.Bits()).Not(); !v.And(wide).IsZero() {
		return fmt.Errorf("set_field: the value for %s is wider than its %d bits", f, f.Bits())
	}
	if !v.And(m.Not()).IsZero() {
		return fmt.Errorf("set_field: the value for %s has bits outside of its mask", f)
	}
	if f == VLANVID && (v.Lo&0x1000 == 0 || m.Lo&0x1000 == 0) {
		return fmt.Errorf("set_field: %#x for vlan_vid lacks the bit 0x1000, which means that there is a tag", v.Lo)
	}
	if f == IPTOS && v.Lo&3 != 0 {
		return fmt.Errorf("set_field: %d for nw_tos has bits of ECN, which is nw_ecn", v.Lo)
	}
	if err := validValue(f, v.And(m), m == Ones(f.Bits())); err != nil {
		return fmt.Errorf("set_field: %w", err)
	}
	return nil
}

func (a SetField) checkLong() error {
	if n := len(a.Value); n < 1 || n > longest || a.Mask != "" && len(a.Mask) != n {
		return fmt.Errorf("set_field: value and mask of %s have %d and %d bytes, want 1 to %d, equally many", a.Field, n,
			len(a.Mask), longest)
	}
	if masked(a.Value, a.Mask) != a.Value {
		return fmt.Errorf("set_field: the value for %s has bits outside of its mask", a.Field)
	}
	return nil
}

// mask is the bits that are written.
func (a SetField) mask() Value {
	width := Ones(a.Field.Bits())
	if a.Mask == "" {
		return width
	}
	return ToValue(a.Mask).And(width)
}

func (a SetField) appendTo(e *encoder) {
	s := e.actionStart(actSetField)
	if a.Field.Long() {
		value, mask := shorten(a.Value, a.Mask)
		e.b = appendOXMHeader(e.b, a.Field, mask != "", len(value))
		e.str(value)
		e.str(mask)
		e.actionEnd(s)
		return
	}
	n, m := a.Field.Len(), a.mask()
	exact := m == Ones(a.Field.Bits())
	e.b = appendOXMHeader(e.b, a.Field, !exact, n)
	e.b = ToValue(a.Value).Append(e.b, n)
	if !exact {
		e.b = m.Append(e.b, n)
	}
	e.actionEnd(s)
}

// masked is a value without the bits that are not in its mask.
func masked(value, mask string) string {
	if mask == "" {
		return value
	}
	b := []byte(value)
	for i := range b {
		b[i] &= mask[i]
	}
	return string(b)
}

// setField reads set_field and, which is the same thing, Nicira's reg_load2.
func (d *decoder) setField() Action {
	at := *d
	m, _, err := parseOXM(d.buf)
	if err != nil {
		at.fail("set_field", "%v", err)
		return nil
	}
	switch {
	case m.Field == 0:
		return nil
	case m.Field.Long():
		value, mask := shorten(masked(m.Bytes, m.BytesMask), m.BytesMask)
		return SetField{Field: m.Field, Value: value, Mask: mask}
	}
	if width := Ones(m.Field.Bits()); !m.Value.And(width.Not()).IsZero() {
		at.fail("set_field", "%s: the value is wider than %d bits", m.Field, m.Field.Bits())
	}
	return newSetField(m.Field, m.Value, m.Mask)
}

// newSetField is the canonical set_field: no full mask, no bits outside of the mask.
func newSetField(f Field, v, mask Value) SetField {
	n := f.Len()
	mask = mask.And(Ones(f.Bits()))
	a := SetField{Field: f, Value: string(v.And(mask).Append(nil, n))}
	if mask != Ones(f.Bits()) {
		a.Mask = string(mask.Append(nil, n))
	}
	return a
}

// regLoad reads Nicira's older load of up to 64 bits.
func (d *decoder) regLoad() Action {
	var r Bits
	r.setOfsNbits(d.u16("ofs_nbits"))
	if r.Field = d.field("destination"); r.Field == 0 || r.Field.Long() {
		return nil
	}
	v := Value{Lo: d.u64("value")}
	if err := r.Valid(); err != nil {
		d.fail("destination", "%v", err)
		return nil
	}
	return newSetField(r.Field, v.And(Ones(r.Width)).Shl(r.First), Ones(r.Width).Shl(r.First))
}

func (a RegMove) check() error {
	if err := a.Src.Valid(); err != nil {
		return fmt.Errorf("move: %w", err)
	}
	if err := a.Dst.writable(); err != nil {
		return fmt.Errorf("move: %w", err)
	}
	if a.Src.Width != a.Dst.Width {
		return fmt.Errorf("move: %s has %d bits, %s has %d", a.Src.Field, a.Src.Width, a.Dst.Field, a.Dst.Width)
	}
	return nil
}

func (a RegMove) appendTo(e *encoder) {
	s := e.actionStart(actCopyField)
	e.u16(uint16(a.Src.Width))
	e.u16(uint16(a.Src.First))
	e.u16(uint16(a.Dst.First))
	e.zero(2)
	e.header(a.Src.Field)
	e.header(a.Dst.Field)
	e.actionEnd(s)
}

func (d *decoder) move(padding int) Action {
	n, so, do := int(d.u16("n_bits")), int(d.u16("source offset")), int(d.u16("destination offset"))
	d.skip(padding)
	src, dst := d.field("source field"), d.field("destination field")
	if src == 0 || dst == 0 {
		return nil
	}
	return RegMove{Bits{src, so, n}, Bits{dst, do, n}}
}

// stack appends a push or pop: 24 bytes, or 32 with an experimenter's field.
func (e *encoder) stack(sub uint16, r Bits) {
	s := e.nicira(sub)
	e.u16(uint16(r.First))
	e.nxHeader(r.Field)
	e.u16(uint16(r.Width))
	e.fill(s, 24)
	e.actionEnd(s)
}

func (d *decoder) stack(sub uint16) Action {
	r := Bits{First: int(d.u16("offset"))}
	r.Field = d.field("field")
	r.Width = int(d.u16("n_bits"))
	if r.Field == 0 {
		return nil
	}
	if sub == nxPush {
		return Push{r}
	}
	return Pop{r}
}

func (a Push) check() error        { return a.Src.Valid() }
func (a Push) appendTo(e *encoder) { e.stack(nxPush, a.Src) }
func (a Pop) check() error         { return a.Dst.writable() }
func (a Pop) appendTo(e *encoder)  { e.stack(nxPop, a.Dst) }

func (a CheckPacketLarger) check() error {
	if err := a.Dst.writable(); err != nil {
		return fmt.Errorf("check_pkt_larger: %w", err)
	}
	if a.Dst.Width != 1 {
		return errors.New("check_pkt_larger: the result is one bit")
	}
	return nil
}

func (a CheckPacketLarger) appendTo(e *encoder) {
	s := e.nicira(nxCheckPktLarger)
	e.u16(a.Len)
	e.u16(uint16(a.Dst.First))
	e.nxHeader(a.Dst.Field)
	e.fill(s, 24)
	e.actionEnd(s)
}

func (d *decoder) checkPacketLarger() Action {
	a := CheckPacketLarger{Len: d.u16("pkt_len")}
	a.Dst.First, a.Dst.Width = int(d.u16("offset")), 1
	if a.Dst.Field = d.field("destination"); a.Dst.Field == 0 {
		return nil
	}
	return a
}

func (a DeleteField) check() error {
	if !a.Field.Long() {
		return fmt.Errorf("delete_field: %s cannot be deleted, only tun_metadata0 to tun_metadata63 can", a.Field)
	}
	return nil
}

func (a DeleteField) appendTo(e *encoder) {
	s := e.nicira(nxDeleteField)
	e.nxHeader(a.Field)
	e.fill(s, 24)
	e.actionEnd(s)
}

func (d *decoder) deleteField() Action {
	if f := d.field("field"); f != 0 {
		return DeleteField{f}
	}
	return nil
}
