package ofprint

import (
	"encoding/binary"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// fieldOrder has the names of all fields in the order of Open vSwitch's meta-flow.h, in which table features show them.
var fieldOrder = func() []string {
	var out []string
	for _, f := range ofp.MetaFlow() {
		out = append(out, orderName(f))
	}
	return out
}()

var fieldPlaces = func() map[string]int {
	m := map[string]int{}
	for i, name := range fieldOrder {
		m[name] = i
	}
	return m
}()

// fieldHeaders names fields by vendor, class and number of all of their OXM headers.
var fieldHeaders = func() map[uint64]string {
	m := map[uint64]string{}
	for _, f := range ofp.Fields() {
		for _, h := range f.Headers() {
			m[headerKey(h.Vendor, h.Class, h.ID)] = orderName(f)
		}
	}
	return m
}()

// orderName returns a field's name in fieldOrder. There in_port is OpenFlow 1.0's, with 16 bits.
func orderName(f ofp.Field) string {
	if f == ofp.InPort {
		return "in_port_oxm"
	}
	return f.String()
}

func headerKey(vendor uint32, class uint16, number uint8) uint64 {
	return uint64(vendor)<<32 | uint64(class)<<8 | uint64(number)
}

// fieldPlace returns a field's place in fieldOrder. ok is false for fields unknown to Open vSwitch.
func fieldPlace(id ofp.FieldID) (place int, ok bool) {
	if id.Raw == "" {
		place, ok = fieldPlaces[orderName(id.Field)]
		return place, ok
	}
	h := []byte(id.Raw)
	if len(h) < 4 {
		return 0, false
	}
	var vendor uint32
	class := binary.BigEndian.Uint16(h)
	if class == 0xffff {
		if len(h) < 8 {
			return 0, false
		}
		vendor = binary.BigEndian.Uint32(h[4:])
	}
	place, ok = fieldPlaces[fieldHeaders[headerKey(vendor, class, h[2]>>1)]]
	return place, ok
}
