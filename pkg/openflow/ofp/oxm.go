package ofp

import (
	"encoding/binary"
	"fmt"
)

// classIndex returns the place of an OXM class in byHeader, or -1 if all its fields are unknown.
func classIndex(class uint16) int {
	switch class {
	case classNicira0:
		return 0
	case classNicira1:
		return 1
	case classBasic:
		return 2
	case classPacketRegs:
		return 3
	case classNXOXM:
		return 4
	case classNSH:
		return 5
	case classONF:
		return 6
	case classEricsson:
		return 7
	}
	return -1
}

// byHeader finds a field by the class and number of any of its headers.
var byHeader = func() (m [8][128]Field) {
	for f := Field(1); f < fieldCount; f++ {
		for _, h := range fields[f].headers() {
			m[classIndex(h.class)][h.id] = f
		}
	}
	return m
}()

// lookup finds the field with an OXM header's class and number.
func lookup(class uint16, id uint8) Field {
	if i := classIndex(class); i >= 0 && id < 128 {
		return byHeader[i][id]
	}
	return 0
}

// oxmHeader splits an OXM header; n is the header's length with an experimenter number.
func oxmHeader[T string | []byte](s T) (f Field, hasMask bool, length, n int, err error) {
	if len(s) < 4 {
		return 0, false, 0, 0, fmt.Errorf("OXM header has %d bytes, want 4", len(s))
	}
	class := uint16(s[0])<<8 | uint16(s[1])
	id, hasMask, length := s[2]>>1, s[2]&1 != 0, int(s[3])
	switch class {
	case classExperimenter:
	case classNSH, classONF, classNXOXM: // our stand-ins are no classes on the wire
		return 0, hasMask, length, 4, nil
	default:
		return lookup(class, id), hasMask, length, 4, nil
	}
	if length < 4 || len(s) < 8 {
		return 0, false, 0, 0, fmt.Errorf("experimenter OXM is too short")
	}
	switch uint32(ToValue(s[4:8]).Lo) {
	case nxVendor:
		f = lookup(classNXOXM, id)
	case nshVendor:
		f = lookup(classNSH, id)
	case onfVendor:
		f = lookup(classONF, id)
	}
	return f, hasMask, length - 4, 8, nil
}

// parseOXM reads one OXM field of a match or a set_field; n is how many bytes it has.
func parseOXM[T string | []byte](s T) (mf MatchField, n int, err error) {
	f, hasMask, length, n, err := oxmHeader(s)
	if err != nil {
		return mf, 0, err
	}
	if len(s) < n+length {
		return mf, 0, fmt.Errorf("OXM says %d bytes, %d are left", length, len(s)-n)
	}
	// A header of zeros is padding that was counted as a part of the match. Open vSwitch has such messages in its tests,
	// and treats the padding as an unknown field.
	if f == 0 || string(s[:4]) == "\x00\x00\x00\x00" {
		return MatchField{Raw: string(s[:n+length])}, n + length, nil
	}
	if f.Long() {
		return longOXM(f, string(s[n:n+length]), hasMask, n+length)
	}
	w := f.Len()
	want := w
	if hasMask {
		want *= 2
	}
	if length != want {
		return mf, 0, fmt.Errorf("%s: value and mask have %d bytes, want %d", f, length, want)
	}
	mf = MatchField{Field: f, Value: ToValue(s[n : n+w]), Mask: Ones(f.Bits())}
	if hasMask {
		mf.Mask = ToValue(s[n+w : n+2*w])
	}
	return mf, n + length, nil
}

// longOXM splits a tunnel option's value and mask.
func longOXM(f Field, payload string, hasMask bool, n int) (MatchField, int, error) {
	w := len(payload)
	if hasMask {
		w /= 2
	}
	if w < 1 || w > longest || hasMask && len(payload)%2 != 0 {
		return MatchField{}, 0, fmt.Errorf("%s: value and mask have %d bytes, want 1 to %d each", f, len(payload), longest)
	}
	mf := MatchField{Field: f, Bytes: payload[:w]}
	if hasMask {
		mf.BytesMask = payload[w:]
	}
	return mf, n, nil
}

// appendHeader appends the header of a field. length is the number of bytes that follow: the value's, or the value's
// and the mask's.
func appendHeader(b []byte, h *header, hasMask bool, length int) []byte {
	bits := h.id << 1
	if hasMask {
		bits |= 1
		length *= 2
	}
	if v := vendor(h.class); v != 0 {
		b = append(b, 0xff, 0xff, bits, byte(length+4))
		return binary.BigEndian.AppendUint32(b, v)
	}
	return append(b, byte(h.class>>8), byte(h.class), bits, byte(length))
}

// appendOXMHeader appends the header of a field in a match, set_field or move.
func appendOXMHeader(b []byte, f Field, hasMask bool, length int) []byte {
	return appendHeader(b, &fields[f].oxm, hasMask, length)
}

// appendTo appends the field as it stands in a match.
func (m *MatchField) appendTo(b []byte) []byte {
	switch {
	case m.Field == 0:
		return append(b, m.Raw...)
	case m.Field.Long():
		b = appendOXMHeader(b, m.Field, m.BytesMask != "", len(m.Bytes))
		b = append(b, m.Bytes...)
		return append(b, m.BytesMask...)
	}
	exact, n := m.Mask == Ones(m.Field.Bits()), m.Field.Len()
	b = appendOXMHeader(b, m.Field, !exact, n)
	b = m.Value.Append(b, n)
	if !exact {
		b = m.Mask.Append(b, n)
	}
	return b
}
