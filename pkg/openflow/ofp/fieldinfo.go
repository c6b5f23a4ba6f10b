package ofp

import "fmt"

// String is the field's name in ovs-ofctl's text.
func (f Field) String() string {
	if !f.exists() {
		return fmt.Sprintf("field(%d)", uint16(f))
	}
	return fields[f].name
}

func (f Field) exists() bool { return f > 0 && f < fieldCount }

// Bits is the field's width in a match.
func (f Field) Bits() int {
	if f >= fieldCount {
		return 0
	}
	return int(fields[f].bits)
}

// ActionBits returns the number of bits of the field that actions can address. For vlan_vid these are 12, since the
// 13th bit marks a tag. For any other field they are all bits.
func (f Field) ActionBits() int {
	if f == VLANVID {
		return 12
	}
	return f.Bits()
}

// Long reports whether the field is a tunnel option: up to 124 bytes, more than a Value holds.
func (f Field) Long() bool { return f >= TunMetadata0 && f <= TunMetadata63 }

// Len is how many bytes the field takes on the wire, the most where that varies.
func (f Field) Len() int {
	if f == TunFlags {
		return 2
	}
	switch n := (f.Bits() + 7) / 8; n {
	case 3:
		return 4
	default:
		return n
	}
}

// Writable reports whether actions may write the field.
func (f Field) Writable() bool { return f.exists() && !fields[f].readOnly }

// Maskable reports whether single bits of the field can be matched and written.
func (f Field) Maskable() bool { return f.exists() && fields[f].maskable }

// Matchable reports whether a Match can have the field. It cannot have older views of other fields.
func (f Field) Matchable() bool { return f.exists() && f < NXMInPort }

// Since returns the version of Open vSwitch that introduced the field, such as "3.7". It returns "" for fields that 3.1
// has too.
func (f Field) Since() string {
	if !f.exists() {
		return ""
	}
	return fields[f].since
}

// NXMName is the field's name in ovs-ofctl's text of moves and loads, such as NXM_NX_REG0.
func (f Field) NXMName() string {
	if !f.exists() {
		return f.String()
	}
	return f.nxm().name
}

// nxm is the header that Nicira's own actions use.
func (f Field) nxm() *header {
	if i := &fields[f]; i.nxm.name != "" {
		return &i.nxm
	}
	return &fields[f].oxm
}

// short reports whether the field has a header of four bytes. Only such a header fits into Nicira's older actions.
func (f Field) short() bool { return vendor(f.nxm().class) == 0 }

// FieldByName finds a field by any of its names; ok is false for unknown names. The name in_port means the field of 32
// bits that a match has.
func FieldByName(name string) (f Field, ok bool) {
	f, ok = byName[name]
	if f == NXMInPort && name == "in_port" {
		f = InPort
	}
	return f, ok
}

// ActionField finds the field of a name in actions: in_port has 16 bits there.
func ActionField(name string) (f Field, ok bool) {
	f, ok = byName[name]
	return f, ok
}

var byName = func() map[string]Field {
	m := make(map[string]Field, 3*len(fields))
	for f := Field(1); f < fieldCount; f++ {
		i := &fields[f]
		m[i.name] = f
		if i.alias != "" {
			m[i.alias] = f
		}
		for _, h := range i.headers() {
			m[h.name] = f
		}
	}
	return m
}()

// Format is how a field's value is written in ovs-ofctl's text.
type Format = format

// Formats of values.
const (
	FormatDecimal    = formatDecimal
	FormatHex        = formatHex
	FormatMAC        = formatMAC
	FormatIPv4       = formatIPv4
	FormatIPv6       = formatIPv6
	FormatPort       = formatPort
	FormatPort16     = formatPort16
	FormatCTState    = formatCTState
	FormatTCPFlags   = formatTCPFlags
	FormatTunFlags   = formatTunFlags
	FormatFrag       = formatFrag
	FormatPacketType = formatPacketType
)

// Format is how the field's value is written in text.
func (f Field) Format() Format {
	if f >= fieldCount {
		return formatHex
	}
	return fields[f].format
}

// Fields returns all fields, in the order of a Match. Fields only for actions come last.
func Fields() []Field {
	list := make([]Field, 0, fieldCount-1)
	for f := Field(1); f < fieldCount; f++ {
		list = append(list, f)
	}
	return list
}

// MetaFlow returns all fields in the order of Open vSwitch's meta-flow.h. Its tools print sets of fields in that order.
func MetaFlow() []Field {
	var list []Field
	for _, r := range [][2]Field{
		{DPHash}, {RecircID}, {PacketType}, {ConjID}, {TunID, TunMetadata63}, {Metadata}, {NXMInPort}, {InPort},
		{ActsetOutput}, {PktMark}, {CTState, CTTpDst}, {Reg0, XXReg7}, {EthSrc, EthType}, {VLANTCI}, {VLANVID, IPProto},
		{IPTOS}, {IPDSCP, ARPTHA}, {TCPSrc, TCPDst}, {TCPFlags}, {UDPSrc, SCTPDst}, {ICMPType, ICMPv6Code}, {NDTarget},
		{NDSLL, NDTLL}, {NDReserved}, {NDOptionsType}, {NSHFlags, NSHTTL},
	} {
		for f := r[0]; f <= max(r[0], r[1]); f++ {
			list = append(list, f)
		}
	}
	return list
}

// Header returns the name of the field's header of four bytes. It is empty if the field only has an experimenter's
// header. Such a field cannot be used in learn, multipath, bundle_load or a ct zone.
func (f Field) Header() string {
	if !f.exists() || !f.short() {
		return ""
	}
	return f.nxm().name
}

// OXMName returns the field's newest name in OVS, such as OXM_OF_IPV4_SRC. Moves and loads are printed with NXMName.
func (f Field) OXMName() string {
	if !f.exists() {
		return f.String()
	}
	return fields[f].oxm.name
}

// AppendHeader appends the OXM header that the field has in a match. The value has n bytes, and so has the mask.
func (f Field) AppendHeader(b []byte, masked bool, n int) []byte {
	if !f.exists() {
		return b
	}
	return appendOXMHeader(b, f, masked, n)
}

// FieldHeader is one of the OXM or NXM headers of a field. Vendor is the experimenter's number if Class is 0xffff, and
// 0 otherwise.
type FieldHeader struct {
	Name   string // such as OXM_OF_IPV4_DST
	Class  uint16
	Vendor uint32
	ID     uint8
}

// Headers returns all headers of the field. The first one is used in a match. Sources are OpenFlow 1.5.1, 7.2.3, and
// Open vSwitch's meta-flow.h.
func (f Field) Headers() []FieldHeader {
	if !f.exists() {
		return nil
	}
	var list []FieldHeader
	for _, h := range fields[f].headers() {
		x := FieldHeader{Name: h.name, Class: h.class, Vendor: vendor(h.class), ID: h.id}
		if x.Vendor != 0 {
			x.Class = classExperimenter
		}
		list = append(list, x)
	}
	return list
}

// Alias returns another name of the field in ovs-ofctl's text, or "".
func (f Field) Alias() string {
	if !f.exists() {
		return ""
	}
	return fields[f].alias
}
