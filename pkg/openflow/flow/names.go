package flow

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Names are a switch's names of its ports and tables. For a port without a name, and if Names is nil, the number is
// printed. Text with names has the form of ovs-ofctl --names. The parsers of this package do not read it, since only
// the same switch has the names.
type Names struct {
	ports  map[ofp.Port]string
	tables map[ofp.Table]string
}

// NewNames takes the names of ports and tables. It leaves out empty names, and names of several ports or several
// tables, since these would be ambiguous.
func NewNames(ports map[ofp.Port]string, tables map[ofp.Table]string) *Names {
	return &Names{ports: unambiguous(ports), tables: unambiguous(tables)}
}

func unambiguous[K comparable](names map[K]string) map[K]string {
	times := map[string]int{}
	for _, n := range names {
		times[n]++
	}
	out := make(map[K]string, len(names))
	for k, n := range names {
		if n != "" && times[n] == 1 {
			out[k] = quoted(n)
		}
	}
	return out
}

// quoted returns a name as ovs-ofctl prints it: as a JSON string, unless it is a letter followed by letters and digits.
func quoted(name string) string {
	plain := true
	for i, c := range []byte(name) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		plain = plain && (letter || i > 0 && '0' <= c && c <= '9')
	}
	if plain {
		return name
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(name); err != nil {
		return strconv.Quote(name) // cannot be: a string has JSON
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// Port is a port's name, quoted where it has other characters than letters and digits.
func (n *Names) Port(port ofp.Port) string {
	if reserved := portNames[port]; reserved != "" {
		return reserved
	}
	if n != nil {
		if name, ok := n.ports[port]; ok {
			return name
		}
	}
	return strconv.FormatUint(uint64(port), 10)
}

// Table is a table's name.
func (n *Names) Table(table ofp.Table) string {
	if n != nil {
		if name, ok := n.tables[table]; ok {
			return name
		}
	}
	return strconv.FormatUint(uint64(table), 10)
}

// Flow is Flow.String with names.
func (n *Names) Flow(f Flow) string {
	p := printer{names: n}
	p.flow(f)
	return string(p.b)
}

// Group is Group.String with names.
func (n *Names) Group(g Group) string {
	p := printer{names: n}
	p.group(g)
	return string(p.b)
}

// Match is Match.String with names.
func (n *Names) Match(m Match) string {
	p := printer{names: n}
	p.wholeMatch(m)
	return string(p.b)
}

// Actions is Actions.String with names.
func (n *Names) Actions(a Actions) string {
	p := printer{names: n}
	p.actions(a.Canonical())
	return string(p.b)
}

func (p *printer) port(port ofp.Port) string    { return p.names.Port(port) }
func (p *printer) table(table ofp.Table) string { return p.names.Table(table) }
