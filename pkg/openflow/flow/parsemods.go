package flow

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Mod is one line of a file for ovs-ofctl's add-flows or bundle: a command and its flows. For deletions, Flow has only
// conditions: no actions, and a priority only if the command is strict.
type Mod struct {
	Command  ofp.FlowCommand
	Flow     Flow
	AnyTable bool // no table is named: table 0 for a flow that is added, all tables for others
	// Cookie and CookieMask ask for flows with certain cookies; not where flows are added.
	Cookie, CookieMask uint64
	OutPort            ofp.Port // PortAny, or only flows that send there are deleted
	OutGroup           uint32   // GroupAny, or only flows that use it are deleted
	// Unsent are fields of conditions in the text that Flow lacks, since Open vSwitch sends them only together with
	// others: ct_tp_src and ct_tp_dst without ct_nw_proto. ovs-ofctl leaves them out without a message.
	Unsent []ofp.Field
}

func (m Mod) deletes() bool {
	return m.Command == ofp.FlowDelete || m.Command == ofp.FlowDeleteStrict
}

// Message is the flow_mod that does it.
func (m Mod) Message() ofp.FlowMod {
	x := m.Flow.Mod(m.Command)
	x.OutPort, x.OutGroup = m.OutPort, m.OutGroup
	if m.Command != ofp.FlowAdd {
		x.Cookie, x.CookieMask = m.Cookie&m.CookieMask, m.CookieMask
	}
	if m.AnyTable && m.deletes() {
		x.Table = ofp.TableAll
	}
	return x
}

// commandNames are the words that a line may begin with.
var commandNames = []string{
	ofp.FlowAdd: "add", ofp.FlowModify: "modify", ofp.FlowModifyStrict: "modify_strict",
	ofp.FlowDelete: "delete", ofp.FlowDeleteStrict: "delete_strict",
}

// ParseFlows reads lines as ovs-ofctl's add-flows does: one flow a line, which may begin with add, modify,
// modify_strict, delete or delete_strict. Blank lines and text after # are skipped. It stops at the first line that it
// cannot read, with a *ParseError.
func ParseFlows(r io.Reader) ([]Mod, error) {
	var list []Mod
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<24)
	line := 0
	for s.Scan() {
		line++
		text, _, _ := strings.Cut(s.Text(), "#")
		if strings.Trim(text, blanks) == "" {
			continue
		}
		m, err := parseLine(text)
		if err != nil {
			return list, located("flow", text, line, err)
		}
		list = append(list, m)
	}
	if err := s.Err(); err != nil {
		return list, fmt.Errorf("read flows after line %d: %w", line, err)
	}
	return list, nil
}

// ParseMod reads one line of such a file.
func ParseMod(text string) (Mod, error) {
	m, err := parseLine(text)
	if err != nil {
		return Mod{}, located("flow", text, 1, err)
	}
	return m, nil
}

func parseLine(text string) (Mod, error) {
	x := span{s: text}.trim()
	word := x.s
	if i := strings.IndexAny(word, ","+blanks); i >= 0 {
		word = word[:i]
	}
	for c, name := range commandNames {
		if word == name {
			return parseMod(x.from(len(word)), ofp.FlowCommand(c))
		}
	}
	return parseMod(x, ofp.FlowAdd)
}
