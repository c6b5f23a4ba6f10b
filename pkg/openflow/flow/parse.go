package flow

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ParseMatch reads a match in ovs-ofctl's text. Errors are of type *ParseError.
func ParseMatch(text string) (Match, error) {
	m, err := parseMatch(span{s: text})
	if err != nil {
		return Match{}, located("match", text, 1, err)
	}
	return m, nil
}

func parseMatch(x span) (Match, error) {
	items, err := split(x)
	if err != nil {
		return Match{}, err
	}
	var p matchParser
	for _, it := range items {
		ok, err := p.add(it)
		if err != nil {
			return Match{}, err
		}
		if !ok {
			return Match{}, it.key.isNot("a field or a protocol (docs/openflow-fields.md)")
		}
	}
	return p.finish()
}

// ParseActions reads actions in ovs-ofctl's text, in canonical form: a load of a constant becomes a set_field. Errors
// are of type *ParseError. The kind of packet is unknown, so mod_vlan_vid pushes a tag.
func ParseActions(text string) (Actions, error) {
	a, err := parseActionList(span{s: text}, nil)
	if err != nil {
		return nil, located("actions", text, 1, err)
	}
	return a, nil
}

// parseActionList reads actions for packets of a match, nil where that is not known.
func parseActionList(x span, m *ofp.Match) (Actions, error) {
	p, err := parseActions(x, 0, false)
	if err != nil {
		return nil, err
	}
	if err := p.ordered(); err != nil {
		return nil, err
	}
	return p.resolve(x, m)
}

// ParseFlow reads a flow in ovs-ofctl's text, as add-flow takes it and dump-flows prints it. Statistics in it are
// skipped. The default of Priority is DefaultPriority. Errors are of type *ParseError.
func ParseFlow(text string) (Flow, error) {
	m, err := parseMod(span{s: text}, ofp.FlowAdd)
	if err != nil {
		return Flow{}, located("flow", text, 1, err)
	}
	return m.Flow, nil
}

// modParser reads one flow_mod.
type modParser struct {
	Mod
	match matchParser
}

func parseMod(x span, c ofp.FlowCommand) (Mod, error) {
	p := modParser{Mod: Mod{Command: c, Flow: Flow{Priority: DefaultPriority}, AnyTable: true, OutPort: ofp.PortAny,
		OutGroup: ofp.GroupAny}}
	head, actions := x, span{}
	if !p.deletes() {
		i := strings.Index(x.s, "action")
		if i < 0 {
			return Mod{}, x.from(len(x.s)).bad("actions= and the flow's actions at the end", "the flow has no actions")
		}
		var ok bool
		if _, actions, ok = x.from(i).cut("="); !ok {
			return Mod{}, x.from(i).bad("actions=", "no = follows %q", x.s[i:])
		}
		head = x.sub(0, i)
	}
	items, err := split(head)
	if err != nil {
		return Mod{}, err
	}
	for _, it := range items {
		if err := p.item(it); err != nil {
			return Mod{}, err
		}
	}
	if p.Flow.Match, err = p.match.finish(); err != nil {
		return Mod{}, err
	}
	p.Unsent = p.match.unsent
	if !p.deletes() {
		p.Flow.Actions, err = parseActionList(actions, &p.Flow.Match.oxm)
	}
	return p.Mod, err
}

// item takes a property of the flow or a condition.
func (p *modParser) item(it item) error {
	ok, err := p.property(it)
	if err != nil {
		return within(it.key.s, err)
	}
	if !ok {
		ok, err = p.match.add(it)
	}
	if err == nil && !ok {
		err = it.key.isNot("a field, a protocol or a property of flows (docs/openflow-fields.md)")
	}
	return err
}

// property takes an item that is not a condition.
func (p *modParser) property(it item) (ok bool, err error) {
	name, f := it.key.s, &p.Flow
	for _, x := range flagNames {
		if name == x.name && it.delim == 0 && !p.deletes() {
			f.Flags |= x.bit
			return true, nil
		}
	}
	switch name {
	case "table":
		f.Table, err = it.value.table()
		p.AnyTable = f.Table == ofp.TableAll
		if p.AnyTable {
			f.Table = 0
		}
		return true, err
	case "cookie":
		return true, p.cookie(it.value)
	case "duration", "n_packets", "n_bytes", "idle_age", "hard_age", "no_readonly_table", "allow_hidden_fields":
		return true, nil
	case "out_port":
		if p.OutPort, err = it.value.port(); err == nil && !p.deletes() {
			err = it.key.bad("a property that flows have", "only a deletion can ask for a port")
		}
		return true, err
	case "out_group":
		if p.OutGroup, err = it.value.u32(); err == nil && !p.deletes() {
			err = it.key.bad("a property that flows have", "only a deletion can ask for a group")
		}
		return true, err
	}
	n := map[string]*uint16{
		"priority": &f.Priority, "idle_timeout": &f.IdleTimeout, "hard_timeout": &f.HardTimeout, "importance": &f.Importance,
	}[name]
	if n == nil {
		return false, nil
	}
	if p.Command == ofp.FlowDelete || p.Command == ofp.FlowDeleteStrict && name != "priority" ||
		p.Command != ofp.FlowAdd && name == "importance" {
		return true, it.key.bad("what a "+commandNames[p.Command]+" has", "it has no meaning here")
	}
	*n, err = it.value.u16()
	return true, err
}

// cookie reads COOKIE, the flow's, or COOKIE/MASK, which asks for flows that have it.
func (p *modParser) cookie(x span) (err error) {
	a, b, masked := x.cut("/")
	v, err := a.number(64)
	if err != nil {
		return err
	}
	switch {
	case masked && p.Command == ofp.FlowAdd:
		return b.bad("a cookie without a mask", "a flow that is added cannot have a masked cookie")
	case masked:
		p.Cookie = v
		p.CookieMask, err = b.number(64)
		return err
	case p.deletes():
		return x.bad(fmt.Sprintf("cookie=%s/-1 to delete flows that have it", x.s), "a deletion cannot set a cookie")
	}
	p.Flow.Cookie = v
	return nil
}

// maxDepth bounds actions within actions, as ovs-ofctl does.
const maxDepth = 60
