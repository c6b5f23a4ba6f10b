package flow

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// item is one part of ovs-ofctl's text: key, key=value, key:value or key(value). After a
// closing parenthesis the rest up to the comma is in tail, as in check_pkt_larger(5)->reg.
type item struct{ key, value, tail string }

// split cuts text into items at commas and white space outside of parentheses.
func split(text string) ([]item, error) {
	var items []item
	for i := 0; i < len(text); {
		if c := text[i]; c == ',' || c == ' ' || c == '\t' || c == '\n' {
			i++
			continue
		}
		start, depth := i, 0
		for ; i < len(text); i++ {
			c := text[i]
			if depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\n') {
				break
			}
			if c == '(' {
				depth++
			} else if c == ')' {
				if depth--; depth < 0 {
					return nil, fmt.Errorf("column %d: a closing parenthesis without an opening one", i+1)
				}
			}
		}
		if depth != 0 {
			return nil, fmt.Errorf("column %d: a parenthesis is not closed", start+1)
		}
		items = append(items, cut(text[start:i]))
	}
	return items, nil
}

func cut(s string) item {
	i := strings.IndexAny(s, "=:(")
	if i < 0 {
		return item{key: s}
	}
	if s[i] != '(' {
		return item{key: s[:i], value: s[i+1:]}
	}
	depth := 0
	for j := i; j < len(s); j++ {
		switch s[j] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return item{s[:i], s[i+1 : j], s[j+1:]}
			}
		}
	}
	return item{key: s}
}

func number(s string, bits int) (uint64, error) {
	base := 10
	t := s
	if len(t) > 1 && t[0] == '0' && (t[1] == 'x' || t[1] == 'X') {
		t, base = t[2:], 16
	}
	v, err := strconv.ParseUint(t, base, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of up to %d bits", s, bits)
	}
	return v, nil
}

// big reads a number of up to 128 bits; decimal ones have up to 64.
func big(s string) (ofp.Value, error) {
	if len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X") {
		h := strings.TrimLeft(s[2:], "0")
		if len(h) > 32 {
			return ofp.Value{}, fmt.Errorf("%q is wider than 128 bits", s)
		}
		hi, lo := "0", h
		if len(h) > 16 {
			hi, lo = h[:len(h)-16], h[len(h)-16:]
		}
		if lo == "" {
			lo = "0"
		}
		a, err1 := strconv.ParseUint(hi, 16, 64)
		b, err2 := strconv.ParseUint(lo, 16, 64)
		if err1 != nil || err2 != nil {
			return ofp.Value{}, fmt.Errorf("%q is not a hexadecimal number", s)
		}
		return ofp.Value{Hi: a, Lo: b}, nil
	}
	v, err := number(s, 64)
	return ofp.Value{Lo: v}, err
}

var portsByName = func() map[string]ofp.Port {
	m := map[string]ofp.Port{"NONE": ofp.PortAny}
	for p, n := range portNames {
		m[n] = p
	}
	return m
}()

func parsePort(s string) (ofp.Port, error) {
	if p, ok := portsByName[strings.ToUpper(s)]; ok {
		return p, nil
	}
	v, err := number(s, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port", s)
	}
	if v >= 0xff00 && v <= 0xffff { // OpenFlow 1.0's numbers of the reserved ports
		v |= 0xffff0000
	}
	return ofp.Port(v), nil
}

// parseValue reads a field's value and mask.
func parseValue(f ofp.Field, s string) (v, mask ofp.Value, err error) {
	full := ofp.Ones(f.Bits())
	switch f.Format() {
	case ofp.FormatCTState, ofp.FormatTCPFlags, ofp.FormatTunFlags:
		names := map[ofp.Format][]string{ofp.FormatCTState: ctStates, ofp.FormatTCPFlags: tcpFlags, ofp.FormatTunFlags: tunFlags}[f.Format()]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			a, b, err := parseFlags(s, names)
			return ofp.Value{Lo: a}, ofp.Value{Lo: b}, err
		}
		if s != "" && (s[0] < '0' || s[0] > '9') {
			a, _, err := parseFlags("+"+strings.ReplaceAll(s, "|", "+"), names)
			return ofp.Value{Lo: a}, stateMask(f, full), err
		}
		if !strings.Contains(s, "/") {
			full = stateMask(f, full)
		}
	case ofp.FormatPort:
		if !strings.Contains(s, "/") {
			p, err := parsePort(s)
			return ofp.Value{Lo: uint64(p)}, full, err
		}
	case ofp.FormatFrag:
		for k, n := range fragNames {
			if n == s && k[1] != 1 || n == s && s == "yes" || s == "no" && k == [2]uint64{0, 1} {
				if s == "no" {
					return ofp.Value{}, ofp.Value{Lo: 3}, nil
				}
				if s == "later" {
					return ofp.Value{Lo: 2}, ofp.Value{Lo: 2}, nil
				}
				return ofp.Value{Lo: k[0]}, ofp.Value{Lo: k[1]}, nil
			}
		}
	}
	value, m, masked := strings.Cut(s, "/")
	one := func(s string) (ofp.Value, error) {
		switch f.Format() {
		case ofp.FormatMAC:
			a, err := ofp.ParseMAC(s)
			return ofp.ToValue(a[:]), err
		case ofp.FormatIPv4, ofp.FormatIPv6:
			a, err := netip.ParseAddr(s)
			if err != nil || a.BitLen() != f.Bits() || a.Zone() != "" {
				return ofp.Value{}, fmt.Errorf("%q is not an address of %d bits", s, f.Bits())
			}
			return ofp.ToValue(a.AsSlice()), nil
		}
		return big(s)
	}
	if v, err = one(value); err != nil {
		return v, mask, err
	}
	mask = full
	if masked {
		isAddr := f.Format() == ofp.FormatIPv4 || f.Format() == ofp.FormatIPv6
		if n, err := strconv.Atoi(m); isAddr && err == nil {
			if n < 0 || n > f.Bits() {
				return v, mask, fmt.Errorf("prefix length %d is not within 0 to %d", n, f.Bits())
			}
			mask = ofp.Ones(n).Shl(f.Bits() - n)
		} else if mask, err = one(m); err != nil {
			return v, mask, err
		}
	}
	if !v.And(full.Not()).IsZero() && f.Format() != ofp.FormatCTState {
		return v, mask, fmt.Errorf("%s is wider than %d bits", value, f.Bits())
	}
	mask = mask.And(full)
	return v.And(mask), mask, nil
}

// stateMask is the mask of a number that names all flags: ct_state has eight of them.
func stateMask(f ofp.Field, full ofp.Value) ofp.Value {
	if f == ofp.CTState {
		return ofp.Value{Lo: 0xff}
	}
	return full
}

var protocols = map[string]func(*ofp.MatchBuilder){
	"ip": IP(), "ipv6": IPv6(), "arp": ARP(), "rarp": EthType(0x8035), "mpls": EthType(0x8847), "mplsm": EthType(0x8848),
	"icmp": ICMP(), "icmp6": ICMPv6(),
	"tcp": both(IP(), 6), "tcp6": both(IPv6(), 6), "udp": both(IP(), 17), "udp6": both(IPv6(), 17),
	"sctp": both(IP(), 132), "sctp6": both(IPv6(), 132),
}

func both(c Cond, proto uint8) Cond {
	return func(b *ofp.MatchBuilder) { c(b); IPProto(proto)(b) }
}

// matchParser collects conditions; those whose meaning depends on the protocol wait for the end.
type matchParser struct {
	b     ofp.MatchBuilder
	later []item
}

// add takes an item and says whether it was a condition.
func (p *matchParser) add(it item) (bool, error) {
	if c, ok := protocols[it.key]; ok && it.value == "" {
		c(&p.b)
		return true, nil
	}
	switch it.key {
	case "nw_src", "nw_dst", "ip_src", "ip_dst", "tp_src", "tp_dst", "icmp_type", "icmp_code", "nw_proto", "ip_proto":
		p.later = append(p.later, it)
		return true, nil
	case "dl_vlan":
		v, err := number(it.value, 16)
		if err != nil || v > 0xfff && v != 0xffff {
			return true, fmt.Errorf("dl_vlan: %q is not a VLAN", it.value)
		}
		if v == 0xffff {
			p.b.Exact(ofp.VLANVID, ofp.Value{})
		} else {
			p.b.Exact(ofp.VLANVID, ofp.Value{Lo: v | 0x1000})
		}
		return true, nil
	case "dl_vlan_pcp", "vlan_pcp":
		v, err := number(it.value, 3)
		if err != nil {
			return true, fmt.Errorf("%s: %w", it.key, err)
		}
		p.b.Exact(ofp.VLANPCP, ofp.Value{Lo: v})
		p.b.Set(ofp.VLANVID, ofp.Value{Lo: 0x1000}, ofp.Value{Lo: 0x1000})
		return true, nil
	case "vlan_tci":
		return true, p.vlanTCI(it.value)
	case "nw_tos", "ip_dscp":
		v, err := number(it.value, 8)
		if err != nil {
			return true, fmt.Errorf("%s: %w", it.key, err)
		}
		if it.key == "nw_tos" {
			v >>= 2
		}
		p.b.Exact(ofp.IPDSCP, ofp.Value{Lo: v})
		return true, nil
	case "nw_frag":
		it.key = "ip_frag"
	}
	f, ok := ofp.FieldByName(it.key)
	if !ok {
		return false, nil
	}
	v, mask, err := parseValue(f, it.value)
	if err != nil {
		return true, fmt.Errorf("%s: %w", it.key, err)
	}
	p.b.Set(f, v, mask)
	return true, nil
}

func (p *matchParser) vlanTCI(s string) error {
	value, m, masked := strings.Cut(s, "/")
	v, err := number(value, 16)
	mask := uint64(0xffff)
	if err == nil && masked {
		mask, err = number(m, 16)
	}
	if err != nil {
		return fmt.Errorf("vlan_tci: %w", err)
	}
	if v == 0 && mask == 0xffff {
		p.b.Exact(ofp.VLANVID, ofp.Value{})
		return nil
	}
	p.b.Set(ofp.VLANVID, ofp.Value{Lo: v & mask & 0x1fff}, ofp.Value{Lo: mask & 0x1fff})
	switch mask >> 13 {
	case 0:
	case 7:
		p.b.Exact(ofp.VLANPCP, ofp.Value{Lo: v >> 13})
	default:
		return fmt.Errorf("vlan_tci: the priority cannot be masked in OpenFlow 1.5")
	}
	return nil
}

func (p *matchParser) match() (Match, error) {
	m, _ := p.b.Peek(ofp.EthType)
	eth := m.Value.Lo
	for _, it := range p.later {
		if it.key != "nw_proto" && it.key != "ip_proto" {
			continue
		}
		if eth == 0x0806 || eth == 0x8035 {
			it.key = "arp_op"
		}
		if _, err := p.addField(it.key, it.value); err != nil {
			return Match{}, err
		}
	}
	m, _ = p.b.Peek(ofp.IPProto)
	proto := m.Value.Lo
	for _, it := range p.later {
		name := it.key
		switch it.key {
		case "nw_proto", "ip_proto":
			continue
		case "nw_src", "ip_src", "nw_dst", "ip_dst":
			if eth == 0x0806 || eth == 0x8035 {
				name = map[string]string{"nw_src": "arp_spa", "ip_src": "arp_spa"}[it.key]
				if name == "" {
					name = "arp_tpa"
				}
			}
		case "tp_src", "tp_dst":
			prefix := map[uint64]string{6: "tcp", 17: "udp", 132: "sctp"}[proto]
			if prefix == "" {
				return Match{}, fmt.Errorf("%s: only has a meaning together with tcp, udp or sctp", it.key)
			}
			name = prefix + it.key[2:]
		case "icmp_type", "icmp_code":
			if eth == 0x86dd {
				name = "icmpv6" + it.key[4:]
			}
		}
		if _, err := p.addField(name, it.value); err != nil {
			return Match{}, err
		}
	}
	oxm, err := p.b.Match()
	if err != nil {
		return Match{}, err
	}
	return Match{oxm: oxm}, nil
}

func (p *matchParser) addField(name, value string) (ofp.Field, error) {
	f, ok := ofp.FieldByName(name)
	if !ok {
		return 0, fmt.Errorf("%q is not a field", name)
	}
	v, mask, err := parseValue(f, value)
	if err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	p.b.Set(f, v, mask)
	return f, nil
}

// ParseMatch reads a match in ovs-ofctl's text.
func ParseMatch(text string) (Match, error) {
	items, err := split(text)
	if err != nil {
		return Match{}, fmt.Errorf("parse match %q: %w", text, err)
	}
	var p matchParser
	for _, it := range items {
		ok, err := p.add(it)
		if err == nil && !ok {
			err = fmt.Errorf("%q is neither a field nor a protocol", it.key)
		}
		if err != nil {
			return Match{}, fmt.Errorf("parse match %q: %w", text, err)
		}
	}
	m, err := p.match()
	if err != nil {
		return Match{}, fmt.Errorf("parse match %q: %w", text, err)
	}
	return m, nil
}

// ParseFlow reads a flow in ovs-ofctl's text, as add-flow takes it and dump-flows prints it.
// Statistics in it are skipped. Priority is DefaultPriority where none is given.
func ParseFlow(text string) (Flow, error) {
	f := Flow{Priority: DefaultPriority}
	err := f.parse(text)
	if err != nil {
		return Flow{}, fmt.Errorf("parse flow %q: %w", text, err)
	}
	return f, nil
}

func (f *Flow) parse(text string) error {
	i := strings.Index(text, "action")
	if i < 0 {
		return fmt.Errorf("actions= is missing")
	}
	head, tail := text[:i], strings.TrimPrefix(strings.TrimPrefix(text[i:], "action"), "s")
	if !strings.HasPrefix(tail, "=") {
		return fmt.Errorf("column %d: actions= is expected", i+1)
	}
	items, err := split(head)
	if err != nil {
		return err
	}
	var p matchParser
	for _, it := range items {
		if ok, err := f.property(it); err != nil {
			return fmt.Errorf("%s: %w", it.key, err)
		} else if ok {
			continue
		}
		ok, err := p.add(it)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%q is neither a field nor a property of flows", it.key)
		}
	}
	if f.Match, err = p.match(); err != nil {
		return err
	}
	f.Actions, err = parseActions(tail[1:])
	return err
}

// property takes an item that is not a condition.
func (f *Flow) property(it item) (bool, error) {
	for _, x := range flagNames {
		if it.key == x.name && it.value == "" {
			f.Flags |= x.bit
			return true, nil
		}
	}
	u16 := func(p *uint16) (bool, error) {
		v, err := number(it.value, 16)
		*p = uint16(v)
		return true, err
	}
	switch it.key {
	case "table":
		v, err := number(it.value, 8)
		f.Table = ofp.Table(v)
		return true, err
	case "cookie":
		v, err := number(it.value, 64)
		f.Cookie = v
		return true, err
	case "priority":
		return u16(&f.Priority)
	case "idle_timeout":
		return u16(&f.IdleTimeout)
	case "hard_timeout":
		return u16(&f.HardTimeout)
	case "importance":
		return u16(&f.Importance)
	case "duration", "n_packets", "n_bytes", "idle_age", "hard_age":
		return true, nil
	}
	return false, nil
}
