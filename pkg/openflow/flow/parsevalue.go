package flow

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// fieldValue reads a field's value and mask. Both have the length of the field on the wire. The text * stands for a
// mask of zeros, which matches every value.
func (x span) fieldValue(f ofp.Field) (v, mask string, err error) {
	n := f.Len()
	port := f.Format() == ofp.FormatPort || f.Format() == ofp.FormatPort16
	if x.s == "*" || x.s == "ANY" && !port { // ANY is how ovs-ofctl prints it

		zero := strings.Repeat("\x00", n)
		return zero, zero, nil
	}
	switch f.Format() {
	case ofp.FormatDecimal, ofp.FormatHex:
		v, mask, err = x.integers(n)
	case ofp.FormatCTState:
		v, mask, err = x.flagValue(n, ctStates, "a state: "+strings.Join(ctStates, ", "))
	case ofp.FormatTCPFlags:
		v, mask, err = x.flagValue(n, tcpFlags, "a TCP flag: "+strings.Join(tcpFlags[:9], ", "))
	case ofp.FormatTunFlags:
		v, mask, err = x.flagValue(n, tunFlags[:1], "a tunnel's flag: oam")
	case ofp.FormatPort, ofp.FormatPort16:
		if strings.Contains(x.s, "/") { // a part of it, as ovs-ofctl prints it
			v, mask, err = x.integers(n)
			break
		}
		var p ofp.Port
		p, err = x.port()
		v = string(ofp.Value{Lo: uint64(p) & ofp.Ones(8*n).Lo}.Append(nil, n))
	case ofp.FormatFrag:
		v, mask, err = x.frag()
	case ofp.FormatPacketType:
		v, err = x.packetType()
	case ofp.FormatMAC:
		v, mask, err = x.masked(func(s span) (string, error) {
			a, err := ofp.ParseMAC(s.s)
			if err != nil {
				return "", s.isNot("a MAC address such as 00:11:22:33:44:55")
			}
			return string(a[:]), nil
		})
	default:
		v, mask, err = x.addresses(f.Bits())
	}
	if err != nil {
		return "", "", err
	}
	if mask == "" {
		mask = strings.Repeat("\xff", n)
	}
	return v, mask, nil
}

// shortValue reads a value and mask as numbers, for fields of up to 128 bits. They fit within the field's width.
func (x span) shortValue(f ofp.Field) (v, mask ofp.Value, err error) {
	a, b, err := x.fieldValue(f)
	if err != nil {
		return v, mask, err
	}
	width := ofp.Ones(f.Bits())
	v, mask = ofp.ToValue(a), ofp.ToValue(b)
	if !v.And(width.Not()).IsZero() {
		return v, mask, x.bad(fmt.Sprintf("a value of up to %d bits", f.Bits()), "%q is wider than %s", x.s, f)
	}
	mask = mask.And(width)
	return v.And(mask), mask, nil
}

// masked reads VALUE or VALUE/MASK.
func (x span) masked(one func(span) (string, error)) (v, mask string, err error) {
	a, b, ok := x.cut("/")
	if v, err = one(a); err != nil || !ok {
		return v, "", err
	}
	mask, err = one(b)
	return v, mask, err
}

func (x span) integers(n int) (v, mask string, err error) {
	return x.masked(func(s span) (string, error) { return s.integer(n) })
}

// addresses reads addresses of 32 or 128 bits, with a mask or a prefix length.
func (x span) addresses(size int) (v, mask string, err error) {
	expected := "an IPv4 address such as 10.0.0.1, with /24 or /255.255.0.0 where bits are masked"
	if size == 128 {
		expected = "an IPv6 address such as fd00::1, with /64 or /ffff:: where bits are masked"
	}
	one := func(s span) (string, error) {
		a, err := netip.ParseAddr(s.s)
		if err != nil || a.BitLen() != size || a.Zone() != "" {
			return "", s.isNot(expected)
		}
		return string(a.AsSlice()), nil
	}
	a, b, ok := x.cut("/")
	if v, err = one(a); err != nil || !ok {
		return v, "", err
	}
	if n, err := strconv.Atoi(b.s); err == nil {
		if n < 0 || n > size {
			return v, "", b.isNot(fmt.Sprintf("a prefix length from 0 to %d", size))
		}
		return v, string(ofp.Ones(n).Shl(size-n).Append(nil, size/8)), nil
	}
	mask, err = one(b)
	return v, mask, err
}

// flagValue reads +a-b, a|b, or numbers.
func (x span) flagValue(n int, names []string, expected string) (v, mask string, err error) {
	pack := func(v uint64) string { return string(ofp.Value{Lo: v}.Append(nil, n)) }
	all := ofp.Ones(len(names)).Lo
	if x.s != "" && (x.s[0] == '+' || x.s[0] == '-') {
		a, b, err := parseFlags(x.s, names)
		if err != nil {
			return "", "", x.bad(expected+", each after + or -", "%v", err)
		}
		return pack(a), pack(b), nil
	}
	if a, b, ok := x.cut("/"); ok {
		av, err := a.number(32)
		if err != nil {
			return "", "", err
		}
		bv, err := b.number(32)
		if err != nil {
			return "", "", err
		}
		if (av|bv)&^all != 0 {
			return "", "", x.bad(fmt.Sprintf("only the bits of %#x", all), "%q has flags that do not exist", x.s)
		}
		return pack(av), pack(bv), nil
	}
	var value uint64
	for rest := x; !rest.empty(); {
		var one span
		one, rest, _ = rest.cut("|")
		bit, known := flagBit(one.s, names)
		if !known {
			if bit, err = one.number(32); err != nil || bit&^all != 0 {
				return "", "", one.isNot(expected + ", joined by |, or a number")
			}
		}
		value |= bit
	}
	return pack(value), "", nil
}

func flagBit(name string, names []string) (uint64, bool) {
	for i, n := range names {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// frags are what ip_frag can be asked for: value and mask (meta-flow.c, all_frags).
var frags = []struct {
	name    string
	v, mask uint64
}{
	{"no", 0, 3}, {"first", 1, 3}, {"later", 3, 3}, {"no", 0, 1}, {"yes", 1, 1}, {"not_later", 0, 2}, {"later", 2, 2},
}

// firstAlias is the first of frags whose name may stand for another one before it.
const firstAlias = 3

func (x span) frag() (v, mask string, err error) {
	for _, f := range frags {
		if strings.EqualFold(f.name, x.s) {
			return string([]byte{byte(f.v)}), string([]byte{byte(f.mask | 0xfc)}), nil
		}
	}
	if v, mask, err := x.integers(1); err == nil && mask != "" && v[0] <= 3 && mask[0] <= 3 {
		return v, string([]byte{mask[0] | 0xfc}), nil
	}
	return "", "", x.isNot("no, yes, first, later, not_later or BITS/MASK")
}

// packetType reads (NAMESPACE,TYPE).
func (x span) packetType() (string, error) {
	const expected = "(NAMESPACE,TYPE), such as (1,0x894f)"
	if !strings.HasPrefix(x.s, "(") || !strings.HasSuffix(x.s, ")") {
		return "", x.isNot(expected)
	}
	a, b, ok := x.sub(1, len(x.s)-1).cut(",")
	ns, err1 := a.trim().number(16)
	typ, err2 := b.trim().number(16)
	if !ok || err1 != nil || err2 != nil {
		return "", x.isNot(expected)
	}
	return string(ofp.Value{Lo: ns<<16 | typ}.Append(nil, 4)), nil
}

// prefixLen is how many bits a mask of n bytes begins with, -1 where others are set too.
func prefixLen(mask ofp.Value, n int) int {
	ones := bits.OnesCount64(mask.Hi) + bits.OnesCount64(mask.Lo)
	if mask != ofp.Ones(ones).Shl(8*n-ones) {
		return -1
	}
	return ones
}
