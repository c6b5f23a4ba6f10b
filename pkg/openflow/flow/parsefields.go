package flow

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func maskedSet(f ofp.Field, v, mask ofp.Value) ofp.Action {
	a := ofp.SetField{Field: f, Value: string(v.And(mask).Append(nil, f.Len()))}
	if mask != ofp.Ones(f.Bits()) {
		a.Mask = string(mask.Append(nil, f.Len()))
	}
	return a
}

// loadBytes writes a number of any length into a range of bits.
func loadBytes(r ofp.Bits, v string) ofp.SetField {
	n := len(v)
	value, mask := make([]byte, n), make([]byte, n)
	for i := range r.Width {
		to, from := r.First+i, i
		bit := v[n-1-from/8] >> (from % 8) & 1
		value[n-1-to/8] |= bit << (to % 8)
		mask[n-1-to/8] |= 1 << (to % 8)
	}
	a := ofp.SetField{Field: r.Field, Value: string(value), Mask: string(mask)}
	if r.First == 0 && r.Width == r.Field.Bits() {
		a.Mask = ""
	}
	return a
}

// fits reports whether a number has no bits beyond the width.
func fits(v string, width int) bool {
	for i := range len(v) {
		if rest := width - 8*(len(v)-1-i); rest < 8 && v[i]>>max(rest, 0) != 0 {
			return false
		}
	}
	return true
}

// load reads a number into a range.
func (x span) load(r ofp.Bits) (ofp.Action, error) {
	v, err := x.integer(r.Field.Len())
	if err != nil {
		return nil, err
	}
	if !fits(v, r.Width) {
		return nil, x.isNot(fmt.Sprintf("a number of up to %d bits", r.Width))
	}
	return loadBytes(r, v), nil
}

func parseLoad(x span) (ofp.Action, error) {
	from, to, err := x.arrow()
	if err != nil {
		return nil, err
	}
	r, err := to.bits()
	if err != nil {
		return nil, err
	}
	return from.load(r)
}

func parseSetField(x span) (ofp.Action, error) {
	from, to, err := x.arrow()
	if err != nil {
		return nil, err
	}
	r, err := to.bits()
	if err != nil {
		return nil, err
	}
	f := r.Field
	if strings.Contains(to.s, "[") {
		return nil, to.bad("a field without a range, and the bits as a mask: set_field:5/0xf->reg0; or load",
			"%q is a part of a field", to.s)
	}
	v, mask, err := from.fieldValue(f)
	if err != nil {
		return nil, err
	}
	if maskBytes(v, mask) != v {
		return nil, from.bad("a value with bits only where its mask has some", "%q has bits outside of its mask", from.s)
	}
	a := ofp.SetField{Field: f, Value: v}
	if !allOnes(mask) {
		a.Mask = mask
	}
	return a, nil
}

func parseMove(x span) (ofp.Action, error) {
	from, to, err := x.arrow()
	if err != nil {
		return nil, err
	}
	src, err := from.bits()
	if err != nil {
		return nil, err
	}
	dst, err := to.bits()
	if err != nil {
		return nil, err
	}
	if src.Width != dst.Width {
		return nil, to.bad(fmt.Sprintf("%d bits", src.Width), "%s has %d bits, %s has %d", src.Field, src.Width, dst.Field,
			dst.Width)
	}
	return ofp.RegMove{Src: src, Dst: dst}, nil
}

func parseCheckLarger(it item) (ofp.Action, error) {
	n, err := it.value.u16()
	if err != nil {
		return nil, err
	}
	if it.arrow.empty() {
		return nil, it.whole.isNot("check_pkt_larger(BYTES)->FIELD[BIT]")
	}
	r, err := it.arrow.bits()
	if err == nil && r.Width != 1 {
		err = it.arrow.isNot("one bit, such as reg0[3]")
	}
	return ofp.CheckPacketLarger{Len: n, Dst: r}, err
}

func parseDeleteField(x span) (ofp.Action, error) {
	f, ok := ofp.ActionField(x.s)
	if !ok || !f.Long() {
		return nil, x.isNot("tun_metadata0 to tun_metadata63")
	}
	return ofp.DeleteField{Field: f}, nil
}

func parseWriteMetadata(x span) (ofp.Action, error) {
	a := ofp.WriteMetadata{Mask: ^uint64(0)}
	v, m, masked := x.cut("/")
	var err error
	if a.Value, err = v.number(64); err == nil && masked {
		a.Mask, err = m.number(64)
	}
	return a, err
}

func parseDecTTL(x span) (ofp.Action, error) {
	var a ofp.DecTTL
	for _, w := range x.words() {
		v, err := w.u16()
		if err != nil {
			return nil, err
		}
		a.IDs = append(a.IDs, v)
	}
	if len(a.IDs) == 0 {
		return nil, x.isNot("controllers' numbers, such as dec_ttl(1,2)")
	}
	return a, nil
}

// words are the parts between commas and white space.
func (x span) words() []span {
	var list []span
	for i := 0; i < len(x.s); {
		if strings.IndexByte(","+blanks, x.s[i]) >= 0 {
			i++
			continue
		}
		j := i
		for j < len(x.s) && strings.IndexByte(","+blanks, x.s[j]) < 0 {
			j++
		}
		list, i = append(list, x.sub(i, j)), j
	}
	return list
}
