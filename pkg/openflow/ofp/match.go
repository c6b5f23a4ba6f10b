package ofp

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// MatchField is one field of a match. In an exact match Mask is all ones (of the field's width). A tunnel option has
// Bytes and BytesMask instead: 1 to 124 bytes, no mask for an exact match, and a mask of zeros if only the presence of
// the option counts. For an unknown field, Field is 0 and Raw is the whole OXM.
type MatchField struct {
	Field            Field
	Value            Value
	Mask             Value
	Bytes, BytesMask string
	Raw              string
}

// All goes through the fields of the match.
func (m Match) All() iter.Seq[MatchField] {
	return func(yield func(MatchField) bool) {
		for s := string(m); len(s) >= 4; {
			f, n, err := parseOXM(s)
			if err != nil || !yield(f) {
				return
			}
			s = s[n:]
		}
	}
}

// Get returns a field's value and mask; ok is false when the match does not name the field.
func (m Match) Get(f Field) (value, mask Value, ok bool) {
	for x := range m.All() {
		if x.Field == f {
			return x.Value, x.Mask, true
		}
	}
	return Value{}, Value{}, false
}

// MatchBuilder collects conditions and makes a [Match] of them. Conditions on different bits
// of one field are merged. It keeps its first error.
type MatchBuilder struct {
	set []MatchField // ordered by Field, raw ones last
	err error
}

// Fail records an error, unless there is one already.
func (b *MatchBuilder) Fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Err is the first error, nil if it does not exist.
func (b *MatchBuilder) Err() error { return b.err }

// Has reports whether some bit of the field is matched.
func (b *MatchBuilder) Has(f Field) bool {
	_, ok := b.Peek(f)
	return ok
}

// Peek returns what has been set of a field so far.
func (b *MatchBuilder) Peek(f Field) (MatchField, bool) {
	for i := range b.set {
		if b.set[i].Field == f {
			return b.set[i], true
		}
	}
	return MatchField{}, false
}

// Exact asks for one value of a field.
func (b *MatchBuilder) Exact(f Field, v Value) { b.Set(f, v, Ones(f.Bits())) }

// Set adds the condition that the bits of mask have the values in v. As in the switch, it splits wide registers into
// 32-bit ones, and converts older views of a field into that field.
func (b *MatchBuilder) Set(f Field, v, mask Value) {
	if !f.exists() {
		b.Fail(fmt.Errorf("field %d does not exist", f))
		return
	}
	if f.Long() {
		b.setShort(f, v, mask)
		return
	}
	width := Ones(f.Bits())
	if out := v.Or(mask).And(width.Not()); !out.IsZero() && mask != Ones(8*f.Len()) || !v.And(width.Not()).IsZero() {
		b.Fail(fmt.Errorf("%s: value or mask is wider than %d bits", f, f.Bits()))
		return
	}
	mask = mask.And(width)
	if !v.And(mask.Not()).IsZero() {
		b.Fail(fmt.Errorf("%s: value has bits outside of its mask", f))
		return
	}
	if f == CTState && v.And(ctStateBits.Not()).IsZero() {
		mask = mask.And(ctStateBits)
	}
	if mask.IsZero() || b.view(f, v, mask) {
		return
	}
	if mask != width && !fields[f].maskable {
		b.Fail(fmt.Errorf("%s: cannot be masked", f))
		return
	}
	if err := validValue(f, v, mask == width); err != nil {
		b.Fail(err)
		return
	}
	m, found := b.at(f)
	if !found {
		*m = MatchField{Field: f, Value: v, Mask: mask}
		return
	}
	both := m.Mask.And(mask)
	if m.Value.And(both) != v.And(both) {
		b.Fail(fmt.Errorf("%s: two conditions exclude each other", f))
		return
	}
	m.Value, m.Mask = m.Value.Or(v), m.Mask.Or(mask)
}

// at is the place of a field, made where it is not there yet.
func (b *MatchBuilder) at(f Field) (*MatchField, bool) {
	i, found := slices.BinarySearchFunc(b.set, f, func(m MatchField, f Field) int {
		if m.Field == 0 {
			return 1
		}
		return int(m.Field) - int(f)
	})
	if !found {
		b.grow()
		b.set = slices.Insert(b.set, i, MatchField{Field: f})
	}
	return &b.set[i], found
}

// grow makes room at once for the fields of most matches.
func (b *MatchBuilder) grow() {
	if b.set == nil {
		b.set = make([]MatchField, 0, 6)
	}
}

// view sets the fields that f is another view of. It returns false for other fields.
func (b *MatchBuilder) view(f Field, v, mask Value) bool {
	switch {
	case f >= XReg0 && f <= XReg15:
		r := Reg0 + 2*(f-XReg0)
		b.Set(r, v.Shr(32).And(Ones(32)), mask.Shr(32).And(Ones(32)))
		b.Set(r+1, v.And(Ones(32)), mask.And(Ones(32)))
		return true
	case f >= XXReg0 && f <= XXReg7:
		r := Reg0 + 4*(f-XXReg0)
		for i := range Field(4) {
			shift := 96 - 32*int(i)
			b.Set(r+i, v.Shr(shift).And(Ones(32)), mask.Shr(shift).And(Ones(32)))
		}
		return true
	case f == NXMInPort:
		b.Exact(InPort, Value{Lo: uint64(port32(uint16(v.Lo)))})
		return true
	case f == VLANTCI:
		b.vlanTCI(uint16(v.Lo), uint16(mask.Lo))
		return true
	case f == IPTOS:
		b.Exact(IPDSCP, Value{Lo: v.Lo >> 2})
		return true
	}
	return false
}

// vlanTCI splits a tag into the fields of OpenFlow 1.5: the VLAN number with the bit that marks a tag, and the
// priority.
func (b *MatchBuilder) vlanTCI(v, mask uint16) {
	if v == 0 && mask == 0xffff {
		b.Exact(VLANVID, Value{})
		return
	}
	b.Set(VLANVID, Value{Lo: uint64(v & mask & 0x1fff)}, Value{Lo: uint64(mask & 0x1fff)})
	switch mask >> 13 {
	case 0:
	case 7:
		b.Exact(VLANPCP, Value{Lo: uint64(v >> 13)})
	default:
		b.Fail(errors.New("vlan_tci: the priority cannot be masked in OpenFlow 1.5"))
	}
}

// ctStateBits are the states that there are (nicira-ext.h, NX_CT_STATE_*).
var ctStateBits = Value{Lo: 0xff}

// validValue returns an error for a value that the switch would refuse although it fits into its field.
func validValue(f Field, v Value, exact bool) error {
	switch f {
	case InPort, ActsetOutput:
		if v.Lo >= 0xff00 && v.Lo < 0xffffff00 {
			return fmt.Errorf("%s: port %d does not exist: ports end at 65279, reserved ones begin at 0xffffff00", f, v.Lo)
		}
	case ARPOp:
		if v.Lo > 0xff {
			return fmt.Errorf("%s: %d is more than the 255 that the switch keeps", f, v.Lo)
		}
	case CTState:
		if !v.And(ctStateBits.Not()).IsZero() {
			return fmt.Errorf("%s: %#x names states that do not exist", f, v.Lo)
		}
	case NSHTTL:
		if v.Lo > 63 {
			return fmt.Errorf("%s: %d is more than 63", f, v.Lo)
		}
	case NSHMDType:
		if exact && v.Lo != 1 && v.Lo != 2 {
			return fmt.Errorf("%s: %d is neither 1 nor 2", f, v.Lo)
		}
	}
	return nil
}

// maxOptions is the largest total size of the tunnel options of one match, in bytes (tun-metadata.h).
const maxOptions = 256

// SetBytes matches a tunnel option's value: big-endian, up to 124 bytes. An empty mask matches the whole value,
// including leading zeros. A mask of zeros matches the presence of the option.
func (b *MatchBuilder) SetBytes(f Field, value, mask string) {
	switch {
	case !f.Long():
		b.Fail(fmt.Errorf("%s: is not a tunnel option", f))
		return
	case mask != "" && len(mask) != len(value):
		b.Fail(fmt.Errorf("%s: the value has %d bytes, the mask %d", f, len(value), len(mask)))
		return
	case len(value) < 1 || len(value) > longest:
		b.Fail(fmt.Errorf("%s: the value has %d bytes, want 1 to %d", f, len(value), longest))
		return
	case b.Has(f):
		b.Fail(fmt.Errorf("%s: is set twice", f))
		return
	}
	for i := range len(mask) {
		if value[i]&^mask[i] != 0 {
			b.Fail(fmt.Errorf("%s: value has bits outside of its mask", f))
			return
		}
	}
	value, mask = shorten(value, mask)
	total := len(value)
	for i := range b.set {
		total += len(b.set[i].Bytes)
	}
	if total > maxOptions {
		b.Fail(fmt.Errorf("%s: the tunnel options of the match have %d bytes, at most %d fit", f, total, maxOptions))
		return
	}
	m, _ := b.at(f)
	m.Bytes, m.BytesMask = value, mask
}

// shorten cuts the zeros in front of a tunnel option, as the switch does.
func shorten(value, mask string) (string, string) {
	n := 0
	for n < len(value)-1 && value[n] == 0 && (mask == "" || mask[n] == 0) {
		n++
	}
	if mask != "" {
		mask = mask[n:]
	}
	return value[n:], mask
}

// Raw asks for a whole OXM field that the package does not know.
func (b *MatchBuilder) Raw(oxm string) {
	m, n, err := parseOXM(oxm)
	switch {
	case err != nil:
		b.Fail(err)
	case n != len(oxm):
		b.Fail(fmt.Errorf("a raw field has %d bytes and says %d", len(oxm), n))
	case m.Field != 0:
		b.Fail(fmt.Errorf("the raw field is %s: give it by its name", m.Field))
	default:
		i, found := slices.BinarySearchFunc(b.set, oxm, func(x MatchField, oxm string) int {
			if x.Field != 0 {
				return -1
			}
			return strings.Compare(x.Raw, oxm)
		})
		if !found {
			b.set = slices.Insert(b.set, i, m)
		}
	}
}

// keep keeps an older view of a field as it came. Messages of Nicira's may contain such a view, and are encoded with it
// again.
func (b *MatchBuilder) keep(m MatchField) {
	x, found := b.at(m.Field)
	if found {
		b.Fail(fmt.Errorf("%s: stands twice", m.Field))
	}
	if *x = m; !m.Value.And(m.Mask.Not()).IsZero() {
		b.Fail(fmt.Errorf("%s: value has bits outside of its mask", m.Field))
	}
}

// setShort asks for a tunnel option of up to 128 bits.
func (b *MatchBuilder) setShort(f Field, v, mask Value) {
	if mask == Ones(128) {
		b.SetBytes(f, string(v.Append(nil, 16)), "")
		return
	}
	b.SetBytes(f, string(v.Append(nil, 16)), string(mask.Append(nil, 16)))
}

// Match returns the match, or the first thing that was wrong.
func (b *MatchBuilder) Match() (Match, error) {
	if b.err != nil {
		return "", b.err
	}
	if err := b.check(); err != nil {
		return "", err
	}
	return b.encode(), nil
}

func (b *MatchBuilder) encode() Match {
	var stack [128]byte
	out := stack[:0]
	implied := false
	for i := range b.set {
		m := &b.set[i]
		implied = implied || m.Field != 0 && fields[m.Field].needs != needsNone
	}
	for i := range b.set {
		// A condition that needs Ethernet implies it.
		if m := &b.set[i]; m.Field != PacketType || !implied || !m.Value.IsZero() {
			out = m.appendTo(out)
		}
	}
	return Match(out)
}

// canonical puts the OXM fields of a message into canonical form.
func canonical(oxm []byte) (Match, error) {
	var b MatchBuilder
	for off := 0; off < len(oxm); {
		m, n, err := parseOXM(oxm[off:])
		if err != nil {
			return "", fmt.Errorf("at byte %d of the match: %w", off, err)
		}
		switch {
		case m.Field == 0:
			b.Raw(m.Raw)
		case m.Field.Long():
			b.SetBytes(m.Field, m.Bytes, m.BytesMask)
		case !m.Field.Matchable():
			b.keep(m)
		default:
			b.Set(m.Field, m.Value, m.Mask)
		}
		if b.err != nil {
			return "", b.err
		}
		off += n
	}
	return b.encode(), nil
}

// builderOf has the fields of a match that the package knows.
func builderOf(m Match) MatchBuilder {
	var b MatchBuilder
	for f := range m.All() {
		if f.Field != 0 {
			b.grow()
			b.set = append(b.set, f)
		}
	}
	return b
}
