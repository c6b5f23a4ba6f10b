package ofp

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Value is a field's value or mask as a number of up to 128 bits.
type Value struct{ Hi, Lo uint64 }

// Or, And and Not work bit by bit.
func (v Value) Or(w Value) Value { return Value{v.Hi | w.Hi, v.Lo | w.Lo} }

// And is the bits set in both.
func (v Value) And(w Value) Value { return Value{v.Hi & w.Hi, v.Lo & w.Lo} }

// Not is the bits not set in v.
func (v Value) Not() Value { return Value{^v.Hi, ^v.Lo} }

// IsZero says whether no bit is set.
func (v Value) IsZero() bool { return v.Hi|v.Lo == 0 }

// Shl shifts to the left, towards the most significant bit.
func (v Value) Shl(n int) Value {
	switch {
	case n <= 0:
		return v
	case n >= 128:
		return Value{}
	case n >= 64:
		return Value{Hi: v.Lo << (n - 64)}
	}
	return Value{v.Hi<<n | v.Lo>>(64-n), v.Lo << n}
}

// Shr shifts to the right.
func (v Value) Shr(n int) Value {
	switch {
	case n <= 0:
		return v
	case n >= 128:
		return Value{}
	case n >= 64:
		return Value{Lo: v.Hi >> (n - 64)}
	}
	return Value{v.Hi >> n, v.Lo>>n | v.Hi<<(64-n)}
}

// Ones is a Value with the n least significant bits set.
func Ones(n int) Value {
	if n <= 0 {
		return Value{}
	}
	return Value{^uint64(0), ^uint64(0)}.Shr(128 - n)
}

// Append appends v as n big-endian bytes.
func (v Value) Append(b []byte, n int) []byte {
	var w [16]byte
	binary.BigEndian.PutUint64(w[:8], v.Hi)
	binary.BigEndian.PutUint64(w[8:], v.Lo)
	return append(b, w[16-n:]...)
}

// ToValue reads up to 16 big-endian bytes.
func ToValue[T string | []byte](b T) Value {
	var v Value
	for i := range len(b) {
		v = v.Shl(8)
		v.Lo |= uint64(b[i])
	}
	return v
}

// MatchField is one field of a match. Mask is all ones (of the field's width) where the match
// is exact. Where the package does not know the field, Field is 0 and Raw is the whole OXM.
type MatchField struct {
	Field Field
	Value Value
	Mask  Value
	Raw   string
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

// lookup finds the field with an OXM header's class and number.
func lookup(class uint16, id uint8) Field {
	return byHeader[uint32(class)<<8|uint32(id)]
}

var byHeader = func() map[uint32]Field {
	m := make(map[uint32]Field, 2*len(fields))
	for f := Field(1); f < fieldCount; f++ {
		i := &fields[f]
		m[uint32(i.class)<<8|uint32(i.id)] = f
		if i.oldID != 0 {
			m[uint32(i.oldClass)<<8|uint32(i.oldID)] = f
		}
	}
	return m
}()

const nxVendor uint32 = 0x00002320

// oxmHeader splits an OXM header; n is the header's length with an experimenter number.
func oxmHeader[T string | []byte](s T) (f Field, hasMask bool, length, n int, err error) {
	if len(s) < 4 {
		return 0, false, 0, 0, fmt.Errorf("OXM header has %d bytes, want 4", len(s))
	}
	class := uint16(s[0])<<8 | uint16(s[1])
	id, hasMask, length := s[2]>>1, s[2]&1 != 0, int(s[3])
	n = 4
	if class == classExperimenter {
		if length < 4 || len(s) < 8 {
			return 0, false, 0, 0, fmt.Errorf("experimenter OXM is too short")
		}
		n, length = 8, length-4
		switch v := uint32(ToValue(s[4:8]).Lo); v {
		case nxVendor:
			f = lookup(classNXOXM, id)
		}
		return f, hasMask, length, n, nil
	}
	return lookup(class, id), hasMask, length, n, nil
}

func parseOXM[T string | []byte](s T) (mf MatchField, n int, err error) {
	f, hasMask, length, n, err := oxmHeader(s)
	if err != nil {
		return mf, 0, err
	}
	if len(s) < n+length {
		return mf, 0, fmt.Errorf("OXM says %d bytes, %d are left", length, len(s)-n)
	}
	if f == 0 {
		return MatchField{Raw: string(s[:n+length])}, n + length, nil
	}
	want := f.Len()
	if hasMask {
		want *= 2
	}
	if length != want {
		return mf, 0, fmt.Errorf("%s: value and mask have %d bytes, want %d", f, length, want)
	}
	w := f.Len()
	mf = MatchField{Field: f, Value: ToValue(s[n : n+w]), Mask: Ones(f.Bits())}
	if hasMask {
		mf.Mask = ToValue(s[n+w : n+2*w])
	}
	return mf, n + length, nil
}

// appendOXMHeader appends the header of a field in a match or action.
func appendOXMHeader(b []byte, f Field, hasMask bool, length int) []byte {
	i := &fields[f]
	h := i.id << 1
	if hasMask {
		h |= 1
		length *= 2
	}
	if i.class == classNXOXM {
		b = append(b, 0xff, 0xff, h, byte(length+4))
		return binary.BigEndian.AppendUint32(b, nxVendor)
	}
	return append(b, byte(i.class>>8), byte(i.class), h, byte(length))
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

// Has says whether some bit of the field is matched.
func (b *MatchBuilder) Has(f Field) bool {
	for i := range b.set {
		if b.set[i].Field == f {
			return true
		}
	}
	return false
}

// Exact asks for one value of a field.
func (b *MatchBuilder) Exact(f Field, v Value) { b.Set(f, v, Ones(f.Bits())) }

// Set asks that the bits of mask are those of v. The wide registers are split into the
// 32-bit ones, as the switch does.
func (b *MatchBuilder) Set(f Field, v, mask Value) {
	if f == 0 || f >= fieldCount {
		b.Fail(fmt.Errorf("field %d does not exist", f))
		return
	}
	switch {
	case f >= XReg0 && f <= XReg7:
		r := Reg0 + 2*(f-XReg0)
		b.Set(r, v.Shr(32).And(Ones(32)), mask.Shr(32).And(Ones(32)))
		b.Set(r+1, v.And(Ones(32)), mask.And(Ones(32)))
		return
	case f >= XXReg0 && f <= XXReg7:
		if r := Reg0 + 4*(f-XXReg0); r+3 <= Reg15 {
			for i := range Field(4) {
				shift := 96 - 32*int(i)
				b.Set(r+i, v.Shr(shift).And(Ones(32)), mask.Shr(shift).And(Ones(32)))
			}
			return
		}
	}
	width := Ones(f.Bits())
	if out := v.Or(mask).And(width.Not()); !out.IsZero() && mask != Ones(8*f.Len()) {
		b.Fail(fmt.Errorf("%s: value or mask is wider than %d bits", f, f.Bits()))
		return
	}
	mask = mask.And(width)
	if !v.And(mask.Not()).IsZero() {
		b.Fail(fmt.Errorf("%s: value has bits outside of its mask", f))
		return
	}
	if mask.IsZero() {
		return
	}
	if mask != width && !fields[f].maskable {
		b.Fail(fmt.Errorf("%s: cannot be masked", f))
		return
	}
	i, found := slices.BinarySearchFunc(b.set, f, func(m MatchField, f Field) int { return int(m.Field) - int(f) })
	if !found {
		b.set = slices.Insert(b.set, i, MatchField{Field: f, Value: v, Mask: mask})
		return
	}
	m := &b.set[i]
	both := m.Mask.And(mask)
	if m.Value.And(both) != v.And(both) {
		b.Fail(fmt.Errorf("%s: two conditions exclude each other", f))
		return
	}
	m.Value, m.Mask = m.Value.Or(v), m.Mask.Or(mask)
}

func (b *MatchBuilder) value(f Field) (uint64, bool) {
	for i := range b.set {
		if b.set[i].Field == f && b.set[i].Mask == Ones(f.Bits()) {
			return b.set[i].Value.Lo, true
		}
	}
	return 0, false
}

// Complete adds what the fields set so far need, where only one choice exists; IPv4 is
// chosen where both versions of IP would do.
func (b *MatchBuilder) Complete() {
	for _, m := range slices.Clone(b.set) {
		if m.Field == 0 {
			continue
		}
		r := requirements[fields[m.Field].needs]
		if r.proto != 0 && !b.Has(IPProto) {
			b.Exact(IPProto, Value{Lo: uint64(r.proto)})
		}
		if len(r.icmp) == 1 && !b.Has(ICMPv6Type) {
			b.Exact(ICMPv6Type, Value{Lo: uint64(r.icmp[0])})
		}
		if len(r.ethTypes) > 0 && !b.Has(EthType) {
			b.Exact(EthType, Value{Lo: uint64(r.ethTypes[0])})
		}
	}
}

// requirement is what must be matched exactly for a field to have a meaning.
type requirement struct {
	ethTypes []uint16
	proto    uint8
	icmp     []uint8
	text     string
}

var (
	ethIPv4 = []uint16{0x0800}
	ethIPv6 = []uint16{0x86dd}
	ethIP   = []uint16{0x0800, 0x86dd}
	ethARP  = []uint16{0x0806, 0x8035}
	ethMPLS = []uint16{0x8847, 0x8848}
)

var requirements = [...]requirement{
	needsVLAN:      {text: "vlan_vid"},
	needsMPLS:      {ethTypes: ethMPLS, text: "mpls"},
	needsIPv4:      {ethTypes: ethIPv4, text: "ip"},
	needsIPv6:      {ethTypes: ethIPv6, text: "ipv6"},
	needsIP:        {ethTypes: ethIP, text: "ip or ipv6"},
	needsARP:       {ethTypes: ethARP, text: "arp"},
	needsTCP:       {ethTypes: ethIP, proto: 6, text: "tcp or tcp6"},
	needsUDP:       {ethTypes: ethIP, proto: 17, text: "udp or udp6"},
	needsSCTP:      {ethTypes: ethIP, proto: 132, text: "sctp or sctp6"},
	needsICMPv4:    {ethTypes: ethIPv4, proto: 1, text: "icmp"},
	needsICMPv6:    {ethTypes: ethIPv6, proto: 58, text: "icmp6"},
	needsND:        {ethTypes: ethIPv6, proto: 58, icmp: []uint8{135, 136}, text: "icmp6 with icmp_type 135 or 136"},
	needsNDSolicit: {ethTypes: ethIPv6, proto: 58, icmp: []uint8{135}, text: "icmp6 with icmp_type 135"},
	needsNDAdvert:  {ethTypes: ethIPv6, proto: 58, icmp: []uint8{136}, text: "icmp6 with icmp_type 136"},
	needsCT:        {ethTypes: ethIP, text: "ct_state=+trk and ip or ipv6"},
	needsCT4:       {ethTypes: ethIPv4, text: "ct_state=+trk and ip"},
	needsCT6:       {ethTypes: ethIPv6, text: "ct_state=+trk and ipv6"},
	needsCTPort:    {ethTypes: ethIP, text: "ct_nw_proto"},
}

func (b *MatchBuilder) check() error {
	eth, hasEth := b.value(EthType)
	proto, hasProto := b.value(IPProto)
	icmp, hasICMP := b.value(ICMPv6Type)
	for _, m := range b.set {
		if m.Field == 0 || fields[m.Field].needs == needsNone {
			continue
		}
		r := requirements[fields[m.Field].needs]
		ok := len(r.ethTypes) == 0 || hasEth && slices.Contains(r.ethTypes, uint16(eth))
		ok = ok && (r.proto == 0 || hasProto && uint64(r.proto) == proto)
		ok = ok && (len(r.icmp) == 0 || hasICMP && slices.Contains(r.icmp, uint8(icmp)))
		if code, has := b.value(ICMPv6Code); len(r.icmp) > 0 && has && code != 0 {
			return fmt.Errorf("%s: icmp_code %d is not neighbour discovery, which has 0", m.Field, code)
		}
		if !ok {
			return fmt.Errorf("%s: only has a meaning together with %s", m.Field, r.text)
		}
	}
	return nil
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
	for i := range b.set {
		m := &b.set[i]
		if m.Field == 0 {
			out = append(out, m.Raw...)
			continue
		}
		exact, n := m.Mask == Ones(m.Field.Bits()), m.Field.Len()
		out = appendOXMHeader(out, m.Field, !exact, n)
		out = m.Value.Append(out, n)
		if !exact {
			out = m.Mask.Append(out, n)
		}
	}
	return Match(out)
}

// canonical puts the OXM fields of a message into canonical form.
func canonical(oxm []byte) (Match, error) {
	var b MatchBuilder
	var raw []string
	for off := 0; off < len(oxm); {
		m, n, err := parseOXM(oxm[off:])
		if err != nil {
			return "", fmt.Errorf("at byte %d of the match: %w", off, err)
		}
		if m.Field == 0 {
			raw = append(raw, m.Raw)
		} else {
			b.Set(m.Field, m.Value, m.Mask)
		}
		if b.err != nil {
			return "", b.err
		}
		off += n
	}
	slices.Sort(raw)
	for _, r := range raw {
		b.set = append(b.set, MatchField{Raw: r})
	}
	return b.encode(), nil
}

// String is the field's name in ovs-ofctl's text.
func (f Field) String() string {
	if f == 0 || f >= fieldCount {
		return fmt.Sprintf("field(%d)", uint16(f))
	}
	return fields[f].name
}

// Bits is the field's width.
func (f Field) Bits() int {
	if f >= fieldCount {
		return 0
	}
	return int(fields[f].bits)
}

// Len is how many bytes the field takes on the wire.
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

// Writable says whether actions may write the field.
func (f Field) Writable() bool { return f > 0 && f < fieldCount && !fields[f].readOnly }

// NXMName is the field's name in ovs-ofctl's text of moves and loads, such as NXM_NX_REG0.
func (f Field) NXMName() string { return nxmNames[f] }

// FieldByName finds a field by any of its names; ok is false when there is none.
func FieldByName(name string) (f Field, ok bool) {
	f, ok = byName[name]
	return f, ok
}

var nxmNames = func() (names [fieldCount]string) {
	special := map[Field]string{
		IPv4Src: "NXM_OF_IP_SRC", IPv4Dst: "NXM_OF_IP_DST", IPProto: "NXM_OF_IP_PROTO",
		TunIPv4Src: "NXM_NX_TUN_IPV4_SRC", TunIPv4Dst: "NXM_NX_TUN_IPV4_DST",
		IPECN: "NXM_NX_IP_ECN", IPTTL: "NXM_NX_IP_TTL", DPHash: "NXM_NX_DP_HASH",
		ICMPType: "NXM_OF_ICMP_TYPE", ICMPCode: "NXM_OF_ICMP_CODE",
		NDTarget: "NXM_NX_ND_TARGET", NDSLL: "NXM_NX_ND_SLL", NDTLL: "NXM_NX_ND_TLL",
	}
	for f := Field(1); f < fieldCount; f++ {
		i := &fields[f]
		up := strings.ToUpper(i.name)
		class := i.class
		if i.oldID != 0 {
			class = i.oldClass
		}
		switch {
		case special[f] != "":
			names[f] = special[f]
		case f >= XReg0 && f <= XReg7:
			names[f] = fmt.Sprintf("OXM_OF_PKT_REG%d", f-XReg0)
		case class == classNicira0:
			names[f] = "NXM_OF_" + up
		case class == classNicira1:
			names[f] = "NXM_NX_" + up
		case class == classNXOXM:
			names[f] = "NXOXM_ET_" + up
		default:
			names[f] = "OXM_OF_" + up
		}
	}
	return names
}()

var byName = func() map[string]Field {
	m := make(map[string]Field, 3*len(fields))
	for f := Field(1); f < fieldCount; f++ {
		m[fields[f].name] = f
		if a := fields[f].alias; a != "" {
			m[a] = f
		}
		m[nxmNames[f]] = f
		if fields[f].class == classBasic {
			m["OXM_OF_"+strings.ToUpper(fields[f].name)] = f
		}
	}
	m["OXM_OF_IPV4_SRC"], m["OXM_OF_IPV4_DST"] = IPv4Src, IPv4Dst
	m["OXM_OF_TUNNEL_ID"], m["OXM_OF_IP_PROTO"] = TunID, IPProto
	m["OXM_OF_ICMPV4_TYPE"], m["OXM_OF_ICMPV4_CODE"] = ICMPType, ICMPCode
	m["OXM_OF_IP_ECN"], m["OXM_OF_IPV6_FLABEL"] = IPECN, IPv6Label
	return m
}()

// Peek returns what has been set of a field so far.
func (b *MatchBuilder) Peek(f Field) (MatchField, bool) {
	for i := range b.set {
		if b.set[i].Field == f {
			return b.set[i], true
		}
	}
	return MatchField{}, false
}
