package flow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// parsed is actions with the places where they stand.
type parsed struct {
	list []ofp.Action
	at   []span
}

func (p *parsed) add(it item, list ...ofp.Action) {
	for _, a := range list {
		p.list, p.at = append(p.list, a), append(p.at, it.whole)
	}
}

// resolve replaces old actions by their present forms for packets of the match, and checks all actions. Without a
// match, it makes no assumption about the packets and no check depends on them.
func (p parsed) resolve(x span, m *ofp.Match) (Actions, error) {
	list := p.list
	if m != nil {
		var err error
		var ae *ofp.ActionError
		if list, err = ofp.Resolve(*m, list); errors.As(err, &ae) {
			return nil, p.at[ae.Index].bad("the fields that this needs in the match", "%v", ae.Err)
		}
	}
	a := Actions(list)
	if err := ofp.CheckActions(a); err != nil {
		return nil, x.refused(err)
	}
	return a.Canonical(), nil
}

// ordered refuses repeated instructions, and instructions that are not in the order in which a switch executes them.
// Otherwise the text could be read with another meaning. ovs-ofctl refuses them, too. For this order, the action meter
// counts as an instruction.
func (p parsed) ordered() error {
	place := func(a ofp.Action) (place int, name string) {
		switch a.(type) {
		case ofp.Meter:
			return 0, "meter"
		case ofp.ClearActions:
			return 2, "clear_actions"
		case ofp.WriteActions:
			return 3, "write_actions"
		case ofp.WriteMetadata:
			return 4, "write_metadata"
		case ofp.GotoTable:
			return 5, "goto_table"
		case ofp.RawInstruction:
			return -1, "" // of no known kind
		}
		return 1, "an action"
	}
	const want = "meter, actions, clear_actions, write_actions, write_metadata, goto_table, in this order"
	last, before := -1, ""
	for i, a := range p.list {
		n, name := place(a)
		switch {
		case n < 0:
			continue
		case n < last:
			return p.at[i].bad(want, "%s follows %s", name, before)
		case n == last && n != 1:
			return p.at[i].bad(want, "%s stands twice", name)
		}
		last, before = n, name
	}
	return nil
}

const anAction = "an action such as output, ct, resubmit or set_field (docs/openflow-fields.md lists them), or a port"

// parseActions reads a list. depth is the number of enclosing actions. The actions in a ct are checked together with
// it.
func parseActions(x span, depth int, inCT bool) (parsed, error) {
	var p parsed
	if depth > maxDepth {
		return p, x.bad(fmt.Sprintf("at most %d actions within each other", maxDepth), "actions are nested too deeply")
	}
	items, err := split(x)
	if err != nil {
		return p, err
	}
	for _, it := range items {
		if strings.EqualFold(it.key.s, "drop") {
			if len(items) > 1 {
				return p, it.whole.bad("drop alone, or no drop", "drop stands together with other actions")
			}
			return p, nil
		}
		list, err := parseAction(it, depth)
		if err != nil {
			return p, within(it.key.s, err)
		}
		for _, a := range list {
			if err := ofp.CheckActions(Do(a)); err != nil && !inCT {
				return p, it.whole.refused(err)
			}
		}
		p.add(it, list...)
	}
	return p, nil
}

func parseAction(it item, depth int) ([]ofp.Action, error) {
	name := strings.ToLower(it.key.s)
	if it.delim == 0 {
		if a, ok := plainActions[name]; ok {
			return Do(a), nil
		}
	}
	if k, ok := legacyNames[name]; ok {
		return one(legacyAction(k, it.value))
	}
	switch name {
	case "clone", "write_actions":
		in, err := parseActions(it.value, depth+1, false)
		if name == "clone" {
			return Do(ofp.Clone{Actions: in.list}), err
		}
		return Do(ofp.WriteActions{Actions: in.list}), err
	case "ct":
		return one(parseCT(it.value, depth))
	case "enqueue":
		return parseEnqueue(it.value)
	case "check_pkt_larger":
		return one(parseCheckLarger(it))
	case "apply_actions":
		return nil, it.key.bad("the actions themselves", "apply_actions is not written, it is what actions stand in anyway")
	}
	if f, ok := actionParsers[name]; ok {
		return one(f(it.value))
	}
	if p, err := it.key.port(); err == nil && it.delim == 0 {
		return Do(ofp.Output{Port: p}), nil
	}
	return nil, it.key.isNot(anAction)
}

func one(a ofp.Action, err error) ([]ofp.Action, error) { return Do(a), err }

// plainActions need no argument.
var plainActions = map[string]ofp.Action{
	"dec_ttl": ofp.DecTTL{}, "ct_clear": ofp.CTClear{}, "pop_vlan": ofp.PopVLAN{}, "strip_vlan": ofp.PopVLAN{},
	"dec_mpls_ttl": ofp.DecMPLSTTL{}, "dec_nsh_ttl": ofp.DecNSHTTL{}, "exit": ofp.Exit{}, "pop_queue": ofp.PopQueue{},
	"clear_actions": ofp.ClearActions{}, "ct": ofp.CT{Table: ofp.CTNoTable}, "nat": ofp.NAT{},
	"decap": ofp.Decap{PacketType: ofp.PacketUseNextProto},
}

// legacyNames are the actions that set_field replaced; set_tunnel64 is set_tunnel.
var legacyNames = func() map[string]ofp.LegacyKind {
	m := map[string]ofp.LegacyKind{}
	for k := ofp.LegacyVLANVID; k <= ofp.LegacyPushVLANPCP; k++ {
		m[k.String()] = k
	}
	return m
}()

// legacyAction reads the argument of an old action.
func legacyAction(k ofp.LegacyKind, x span) (ofp.Action, error) {
	var f ofp.Field
	switch k {
	case ofp.LegacyEthSrc:
		f = ofp.EthSrc
	case ofp.LegacyEthDst:
		f = ofp.EthDst
	case ofp.LegacyIPSrc:
		f = ofp.IPv4Src
	case ofp.LegacyIPDst:
		f = ofp.IPv4Dst
	default:
		v, err := x.number(max(8, k.Bits()))
		return ofp.Legacy{Kind: k, Value: v}, err
	}
	v, mask, err := x.shortValue(f)
	if err == nil && mask != ofp.Ones(f.Bits()) {
		err = x.bad("an address without a mask", "%q has a mask", x.s)
	}
	return ofp.Legacy{Kind: k, Value: v.Lo}, err
}

// actionParsers read the arguments of the actions that need nothing else.
var actionParsers = map[string]func(span) (ofp.Action, error){
	"output":         parseOutput,
	"output_reg":     parseOutput,
	"controller":     parseController,
	"group":          func(x span) (ofp.Action, error) { v, err := x.u32(); return ofp.Group{ID: v}, err },
	"meter":          func(x span) (ofp.Action, error) { v, err := x.u32(); return ofp.Meter{ID: v}, err },
	"set_queue":      func(x span) (ofp.Action, error) { v, err := x.u32(); return ofp.SetQueue{Queue: v}, err },
	"mod_nw_ttl":     func(x span) (ofp.Action, error) { v, err := x.u8(); return ofp.SetTTL{TTL: v}, err },
	"set_nw_ttl":     func(x span) (ofp.Action, error) { v, err := x.u8(); return ofp.SetTTL{TTL: v}, err },
	"set_mpls_ttl":   func(x span) (ofp.Action, error) { v, err := x.u8(); return ofp.SetMPLSTTL{TTL: v}, err },
	"push_vlan":      func(x span) (ofp.Action, error) { v, err := x.u16(); return ofp.PushVLAN{EthType: v}, err },
	"push_mpls":      func(x span) (ofp.Action, error) { v, err := x.u16(); return ofp.PushMPLS{EthType: v}, err },
	"pop_mpls":       func(x span) (ofp.Action, error) { v, err := x.u16(); return ofp.PopMPLS{EthType: v}, err },
	"goto_table":     func(x span) (ofp.Action, error) { v, err := x.table(); return ofp.GotoTable{Table: v}, err },
	"push":           func(x span) (ofp.Action, error) { r, err := x.bits(); return ofp.Push{Src: r}, err },
	"pop":            func(x span) (ofp.Action, error) { r, err := x.bits(); return ofp.Pop{Dst: r}, err },
	"dec_ttl":        parseDecTTL,
	"set_field":      parseSetField,
	"load":           parseLoad,
	"move":           parseMove,
	"nat":            func(x span) (ofp.Action, error) { return parseNAT(x) },
	"resubmit":       parseResubmit,
	"note":           parseNote,
	"conjunction":    parseConjunction,
	"learn":          parseLearn,
	"write_metadata": parseWriteMetadata,
	"fin_timeout":    parseFinTimeout,
	"delete_field":   parseDeleteField,
	"multipath":      parseMultipath,
	"bundle":         func(x span) (ofp.Action, error) { return parseBundle(x, false) },
	"bundle_load":    func(x span) (ofp.Action, error) { return parseBundle(x, true) },
	"sample":         parseSample,
	"encap":          parseEncap,
	"decap":          parseDecap,
	"raw":            func(x span) (ofp.Action, error) { b, err := x.hexBytes(); return ofp.RawAction{Bytes: b}, err },
	"raw_instruction": func(x span) (ofp.Action, error) {
		b, err := x.hexBytes()
		return ofp.RawInstruction{Bytes: b}, err
	},
}
