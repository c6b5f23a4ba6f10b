package flow

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ParseError has the place of text that could not be read, and the expected text.
type ParseError struct {
	What     string // what was read: "flow", "match", "actions", "group", "meter"
	Line     int    // from 1
	Column   int    // byte in the line, from 1
	Problem  string // such as "ct: zone: 65536 does not fit into 16 bits"
	Expected string // such as "a number of up to 16 bits, or a field with 16 bits"
}

// Error is "parse flow: line 1, column 12: ct: zone: ...: expected ...".
func (e *ParseError) Error() string {
	return fmt.Sprintf("parse %s: line %d, column %d: %s: expected %s", e.What, e.Line, e.Column, e.Problem, e.Expected)
}

// span is a part of the text, with its place in the whole.
type span struct {
	s  string
	at int
}

func (x span) sub(i, j int) span { return span{x.s[i:j], x.at + i} }
func (x span) from(i int) span   { return span{x.s[i:], x.at + i} }
func (x span) empty() bool       { return x.s == "" }

// trim cuts white space on both sides.
func (x span) trim() span {
	y := x.from(len(x.s) - len(strings.TrimLeft(x.s, blanks)))
	return y.sub(0, len(strings.TrimRight(y.s, blanks)))
}

// cut splits at the first sep.
func (x span) cut(sep string) (before, after span, ok bool) {
	i := strings.Index(x.s, sep)
	if i < 0 {
		return x, span{"", x.at + len(x.s)}, false
	}
	return x.sub(0, i), x.from(i + len(sep)), true
}

// textError is a ParseError that does not know lines yet.
type textError struct {
	at       int
	problem  string
	expected string
}

func (e *textError) Error() string { return e.problem + ": expected " + e.expected }

// bad is an error about a part of the text.
func (x span) bad(expected, problem string, args ...any) error {
	return &textError{x.at, fmt.Sprintf(problem, args...), expected}
}

// isNot is the error that the part is not what it should be.
func (x span) isNot(expected string) error {
	if x.empty() {
		return x.bad(expected, "nothing stands here")
	}
	return x.bad(expected, "%q is not valid here", x.s)
}

// within adds to an error the name of its context.
func within(name string, err error) error {
	var e *textError
	if errors.As(err, &e) {
		return &textError{e.at, name + ": " + e.problem, e.expected}
	}
	return err
}

// refused is an error of the encoder, which knows no place in the text.
func (x span) refused(err error) error {
	return x.bad("what the switch takes (docs/openflow-fields.md)", "%v", err)
}

// located makes a ParseError of a textError. source is the whole text, and line is the number of its first line.
func located(what, source string, line int, err error) error {
	var e *textError
	if !errors.As(err, &e) {
		return err
	}
	before := source[:min(e.at, len(source))]
	return &ParseError{
		What: what, Line: line + strings.Count(before, "\n"), Column: len(before) - strings.LastIndexByte(before, '\n'),
		Problem: e.problem, Expected: e.expected,
	}
}

// blanks separate items, as commas do.
const blanks = " \t\r\n"

// item is one part of ovs-ofctl's text: key, key=value, key:value or key(value). After a
// closing parenthesis, what follows -> is in arrow, as in check_pkt_larger(5)->reg0[0].
type item struct {
	key, value, arrow span
	whole             span
	delim             byte // ':', '=', '(' or 0
}

// split cuts text into items at commas and white space outside of parentheses.
func split(x span) ([]item, error) {
	var items []item
	for i := 0; i < len(x.s); {
		if strings.IndexByte(","+blanks, x.s[i]) >= 0 {
			i++
			continue
		}
		n, err := x.from(i).itemLen()
		if err != nil {
			return nil, err
		}
		it, err := x.sub(i, i+n).item()
		if err != nil {
			return nil, err
		}
		items = append(items, it)
		i += n
	}
	return items, nil
}

// itemLen is how long the item at the beginning is.
func (x span) itemLen() (int, error) {
	var open []int
	for i := range len(x.s) {
		switch c := x.s[i]; c {
		case ',', ' ', '\t', '\r', '\n':
			if len(open) == 0 {
				return i, nil
			}
		case '(':
			open = append(open, i)
		case ')':
			if len(open) == 0 {
				return 0, x.from(i).bad("an opening parenthesis before it", "a closing parenthesis stands alone")
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return 0, x.from(open[len(open)-1]).bad("a closing parenthesis after it", "a parenthesis is not closed")
	}
	return len(x.s), nil
}

// item cuts one item into its key and value.
func (x span) item() (item, error) {
	i := strings.IndexAny(x.s, "=:(")
	if i < 0 {
		return item{key: x, value: x.from(len(x.s)), whole: x}, nil
	}
	it := item{key: x.sub(0, i), whole: x, delim: x.s[i]}
	if x.s[i] != '(' {
		it.value = x.from(i + 1)
		return it, nil
	}
	end, level := i, 0
	for ; end < len(x.s); end++ {
		if x.s[end] == '(' {
			level++
		} else if x.s[end] == ')' {
			if level--; level == 0 {
				break
			}
		}
	}
	it.value = x.sub(i+1, end)
	rest := x.from(end + 1)
	if rest.empty() {
		return it, nil
	}
	if !strings.HasPrefix(rest.s, "->") {
		return it, rest.bad("a comma or the end", "%q follows a closing parenthesis", rest.s)
	}
	it.arrow = rest.from(2)
	return it, nil
}

// number reads an unsigned number as C's strtoul does: hexadecimal after 0x, octal after 0, and for 32 bits and more
// also negative numbers.
func (x span) number(bits int) (uint64, error) {
	s, neg := x.s, false
	if bits >= 32 && strings.HasPrefix(s, "-") {
		s, neg = s[1:], true
	}
	base := 10
	switch {
	case len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X"):
		s, base = s[2:], 16
	case len(s) > 1 && s[0] == '0':
		s, base = s[1:], 8
	}
	v, err := strconv.ParseUint(s, base, bits)
	if err != nil {
		return 0, x.isNot(fmt.Sprintf("a number of up to %d bits", bits))
	}
	if neg {
		v = -v & ofp.Ones(bits).Lo
	}
	return v, nil
}

func (x span) u8() (uint8, error)   { v, err := x.number(8); return uint8(v), err }
func (x span) u16() (uint16, error) { v, err := x.number(16); return uint16(v), err }
func (x span) u32() (uint32, error) { v, err := x.number(32); return uint32(v), err }

// integer reads a number of up to n bytes: hexadecimal ones of any length, others of 64 bits.
func (x span) integer(n int) (string, error) {
	expected := fmt.Sprintf("a number of up to %d bytes, hexadecimal after 0x", n)
	if len(x.s) <= 2 || x.s[:2] != "0x" && x.s[:2] != "0X" {
		v, err := x.number(64) // so a negative one has 64 bits
		if err != nil || n < 8 && v>>(8*n) != 0 {
			return "", x.isNot(expected)
		}
		return string(ofp.Value{Lo: v}.Append(nil, n)), nil
	}
	digits := strings.TrimLeft(x.s[2:], "0")
	if len(digits) > 2*n {
		return "", x.isNot(expected)
	}
	b := make([]byte, n)
	for i := range len(digits) {
		c := digits[len(digits)-1-i]
		d, err := strconv.ParseUint(string(c), 16, 8)
		if err != nil {
			return "", x.isNot(expected)
		}
		b[n-1-i/2] |= byte(d) << (4 * (i % 2))
	}
	return string(b), nil
}

// value reads a number of up to 128 bits.
func (x span) value() (ofp.Value, error) {
	b, err := x.integer(16)
	return ofp.ToValue(b), err
}

// hexBytes reads 01.02.03, 010203 or 01 02 03.
func (x span) hexBytes() (string, error) {
	var b []byte
	s := x.s
	for s != "" {
		if strings.IndexByte("."+blanks, s[0]) >= 0 {
			s = s[1:]
			continue
		}
		if len(s) < 2 {
			return "", x.isNot("bytes of two hexadecimal digits, such as 01.02.ff")
		}
		v, err := strconv.ParseUint(s[:2], 16, 8)
		if err != nil {
			return "", x.isNot("bytes of two hexadecimal digits, such as 01.02.ff")
		}
		b, s = append(b, byte(v)), s[2:]
	}
	return string(b), nil
}

var portsByName = func() map[string]ofp.Port {
	m := map[string]ofp.Port{"NONE": ofp.PortAny}
	for p, n := range portNames {
		m[n] = p
	}
	return m
}()

const aPort = "a port's number up to 65279, or a name such as LOCAL, IN_PORT or CONTROLLER"

// port reads a port. Reserved numbers of OpenFlow 1.0 mean the ports of that version.
func (x span) port() (ofp.Port, error) {
	if p, ok := portsByName[strings.ToUpper(x.s)]; ok {
		return p, nil
	}
	v, err := strconv.ParseUint(x.s, 10, 32)
	if err != nil || v > 0xffff && v < 0xffffff00 {
		return 0, x.isNot(aPort)
	}
	if v >= 0xff00 && v <= 0xffff {
		v |= 0xffff0000
	}
	return ofp.Port(v), nil
}

// table reads a table's number.
func (x span) table() (ofp.Table, error) {
	v, err := x.number(8)
	if err != nil {
		return 0, x.isNot("a table's number, 0 to 254")
	}
	return ofp.Table(v), nil
}

// bits reads NXM_NX_REG0[0..15], reg0[3], reg0[] or reg0.
func (x span) bits() (ofp.Bits, error) {
	name, r, ranged := x.cut("[")
	f, ok := ofp.ActionField(strings.TrimSuffix(name.s, "_W"))
	if !ok {
		return ofp.Bits{}, name.isNot("a field, such as reg0 or NXM_NX_REG0, with [0..15], [3] or [] after it")
	}
	b := ofp.Bits{Field: f, Width: f.ActionBits()}
	if !ranged {
		return b, nil
	}
	in, rest, ok := r.cut("]")
	if !ok || !rest.empty() {
		return b, r.isNot("[], [BIT] or [FIRST..LAST]")
	}
	if in.empty() {
		return b, nil
	}
	first, last, two := in.cut("..")
	if !two {
		last = first
	}
	i, err1 := strconv.Atoi(strings.Trim(first.s, blanks))
	j, err2 := strconv.Atoi(strings.Trim(last.s, blanks))
	if err1 != nil || err2 != nil {
		return b, in.isNot("[], [BIT] or [FIRST..LAST]")
	}
	b.First, b.Width = i, j-i+1
	if b.Valid() != nil {
		return b, in.bad(fmt.Sprintf("bits within 0 to %d, the first one first", f.ActionBits()-1), "%s has no bits %s",
			f, in.s)
	}
	return b, nil
}

// arrow splits FROM->TO.
func (x span) arrow() (from, to span, err error) {
	from, to, ok := x.cut("->")
	if !ok {
		return from, to, x.isNot("SOURCE->DESTINATION")
	}
	return from, to, nil
}
