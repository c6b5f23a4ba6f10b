package flow

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ParseActions reads actions in ovs-ofctl's text, in canonical form: a load of a constant
// becomes a set_field.
func ParseActions(text string) (Actions, error) {
	a, err := parseActions(text)
	if err != nil {
		return nil, fmt.Errorf("parse actions %q: %w", text, err)
	}
	return a, nil
}

func parseActions(text string) (Actions, error) {
	items, err := split(text)
	if err != nil {
		return nil, err
	}
	var list Actions
	for i, it := range items {
		if it.key == "drop" && it.value == "" {
			if len(items) > 1 {
				return nil, fmt.Errorf("action %d: drop stands alone", i+1)
			}
			return nil, nil
		}
		a, err := parseAction(it)
		if err != nil {
			return nil, fmt.Errorf("action %d, %s: %w", i+1, it.key, err)
		}
		list = append(list, a)
	}
	if err := list.Err(); err != nil {
		return nil, err
	}
	return list.Canonical(), nil
}

// parseSub reads NXM_NX_REG0[0..15], reg0[3] or reg0.
func parseSub(s string) (ofp.Bits, error) {
	name, r, ranged := strings.Cut(s, "[")
	f, ok := ofp.FieldByName(name)
	if !ok {
		return ofp.Bits{}, fmt.Errorf("%q is not a field", name)
	}
	b := ofp.Bits{Field: f, Width: f.Bits()}
	if !ranged {
		return b, nil
	}
	r, ok = strings.CutSuffix(r, "]")
	if !ok {
		return b, fmt.Errorf("%q: a closing bracket is missing", s)
	}
	if r == "" {
		return b, nil
	}
	first, last, two := strings.Cut(r, "..")
	if !two {
		last = first
	}
	x, err1 := strconv.Atoi(first)
	y, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || y < x {
		return b, fmt.Errorf("%q: %q is not a range of bits", s, r)
	}
	b.First, b.Width = x, y-x+1
	return b, b.Valid()
}

func arrow(s string) (from, to string, err error) {
	from, to, ok := strings.Cut(s, "->")
	if !ok {
		return "", "", fmt.Errorf("%q: -> is missing", s)
	}
	return from, to, nil
}

func setField(r ofp.Bits, v ofp.Value) (ofp.Action, error) {
	if v != v.And(ofp.Ones(r.Width)) {
		return nil, fmt.Errorf("the value does not fit into %d bits of %s", r.Width, r.Field)
	}
	return maskedSet(r.Field, v.Shl(r.First), ofp.Ones(r.Width).Shl(r.First)), nil
}

func maskedSet(f ofp.Field, v, mask ofp.Value) ofp.Action {
	a := ofp.SetField{Field: f, Value: string(v.And(mask).Append(nil, f.Len()))}
	if mask != ofp.Ones(f.Bits()) {
		a.Mask = string(mask.Append(nil, f.Len()))
	}
	return a
}

var plainActions = map[string]ofp.Action{
	"in_port": ofp.Output{Port: ofp.PortInPort}, "normal": ofp.Output{Port: ofp.PortNormal}, "flood": ofp.Output{Port: ofp.PortFlood},
	"all": ofp.Output{Port: ofp.PortAll}, "local": ofp.Output{Port: ofp.PortLocal}, "table": ofp.Output{Port: ofp.PortTable},
	"dec_ttl": ofp.DecTTL{}, "ct_clear": ofp.CTClear{}, "pop_vlan": ofp.PopVLAN{}, "strip_vlan": ofp.PopVLAN{},
	"exit": ofp.Exit{}, "pop_queue": ofp.PopQueue{}, "clear_actions": ofp.ClearActions{},
	"ct": ofp.CT{Table: ofp.CTNoTable}, "nat": ofp.NAT{},
}

// rewrites are actions that set one field.
var rewrites = map[string]ofp.Field{
	"mod_dl_src": ofp.EthSrc, "mod_dl_dst": ofp.EthDst, "mod_nw_src": ofp.IPv4Src, "mod_nw_dst": ofp.IPv4Dst, "set_tunnel": ofp.TunID, "set_tunnel64": ofp.TunID,
}

func parseAction(it item) (ofp.Action, error) {
	name := strings.ToLower(it.key)
	if it.value == "" {
		if a, ok := plainActions[name]; ok {
			return a, nil
		}
		if p, err := parsePort(it.key); err == nil && name != "controller" {
			return ofp.Output{Port: p}, nil
		}
	}
	if f, ok := rewrites[name]; ok {
		v, mask, err := parseValue(f, it.value)
		return maskedSet(f, v, mask), err
	}
	u32 := func() (uint32, error) { v, err := number(it.value, 32); return uint32(v), err }
	switch name {
	case "output":
		if p, err := parsePort(it.value); err == nil {
			return Output(p), nil
		}
		r, err := parseSub(it.value)
		return ofp.OutputReg{Src: r, MaxLen: 0xffff}, err
	case "controller":
		return parseController(it.value)
	case "group":
		v, err := u32()
		return ofp.Group{ID: v}, err
	case "meter":
		v, err := u32()
		return ofp.Meter{ID: v}, err
	case "set_queue":
		v, err := u32()
		return ofp.SetQueue{Queue: v}, err
	case "mod_nw_ttl":
		v, err := number(it.value, 8)
		return ofp.SetTTL{TTL: uint8(v)}, err
	case "push_vlan":
		v, err := number(it.value, 16)
		return ofp.PushVLAN{EthType: uint16(v)}, err
	case "goto_table":
		v, err := number(it.value, 8)
		return ofp.GotoTable{Table: ofp.Table(v)}, err
	case "dec_ttl":
		return parseDecTTL(it.value)
	case "set_field":
		return parseSetField(it.value)
	case "load":
		from, to, err := arrow(it.value)
		if err != nil {
			return nil, err
		}
		r, err := parseSub(to)
		if err != nil {
			return nil, err
		}
		v, err := big(from)
		if err != nil {
			return nil, err
		}
		return setField(r, v)
	case "move":
		from, to, err := arrow(it.value)
		if err != nil {
			return nil, err
		}
		src, err := parseSub(from)
		if err != nil {
			return nil, err
		}
		dst, err := parseSub(to)
		return ofp.RegMove{Src: src, Dst: dst}, err
	case "push", "pop":
		r, err := parseSub(it.value)
		if name == "push" {
			return ofp.Push{Src: r}, err
		}
		return ofp.Pop{Dst: r}, err
	case "ct":
		return parseCT(it.value)
	case "nat":
		a, err := parseNAT(it.value)
		return a, err
	case "resubmit":
		return parseResubmit(it.value)
	case "note":
		b, err := parseHexArg(it.value)
		if err != nil {
			return nil, err
		}
		for (len(b)+10)%8 != 0 || len(b) == 0 { // as it comes back
			b = append(b, 0)
		}
		return ofp.Note{Data: string(b)}, nil
	case "conjunction":
		return parseConjunction(it.value)
	case "learn":
		return parseLearn(it.value)
	case "clone", "write_actions":
		list, err := parseActions(it.value)
		if name == "clone" {
			return ofp.Clone{Actions: list}, err
		}
		return ofp.WriteActions{Actions: list}, err
	case "write_metadata":
		v, mask, err := parseValue(ofp.Metadata, it.value)
		return ofp.WriteMetadata{Value: v.Lo, Mask: mask.Lo}, err
	case "fin_timeout":
		return parseFinTimeout(it.value)
	case "check_pkt_larger":
		n, err := number(it.value, 16)
		if err != nil {
			return nil, err
		}
		r, err := parseSub(strings.TrimPrefix(it.tail, "->"))
		return ofp.CheckPacketLarger{Len: uint16(n), Dst: r}, err
	case "delete_field":
		f, ok := ofp.FieldByName(it.value)
		if !ok {
			return nil, fmt.Errorf("%q is not a field", it.value)
		}
		return ofp.DeleteField{Field: f}, nil
	case "raw", "raw_instruction":
		return nil, fmt.Errorf("raw bytes cannot be read from text")
	}
	return nil, fmt.Errorf("there is no such action")
}

func parseSetField(s string) (ofp.Action, error) {
	from, to, err := arrow(s)
	if err != nil {
		return nil, err
	}
	r, err := parseSub(to)
	if err != nil {
		return nil, err
	}
	if r.Width != r.Field.Bits() {
		v, err := big(from)
		if err != nil {
			return nil, err
		}
		return setField(r, v)
	}
	v, mask, err := parseValue(r.Field, from)
	if err != nil {
		return nil, err
	}
	return maskedSet(r.Field, v, mask), nil
}

func parseDecTTL(s string) (ofp.Action, error) {
	var a ofp.DecTTL
	for _, x := range strings.Split(s, ",") {
		v, err := number(strings.TrimSpace(x), 16)
		if err != nil {
			return nil, err
		}
		a.IDs = append(a.IDs, uint16(v))
	}
	return a, nil
}

func parseController(s string) (ofp.Action, error) {
	a := ofp.Controller{MaxLen: 0xffff, Reason: ofp.ReasonAction}
	if s == "" {
		return ofp.Output{Port: ofp.PortController, MaxLen: 0xffff}, nil
	}
	if v, err := number(s, 16); err == nil {
		return ofp.Output{Port: ofp.PortController, MaxLen: uint16(v)}, nil
	}
	items, err := split(s)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		var v uint64
		switch it.key {
		case "max_len":
			v, err = number(it.value, 16)
			a.MaxLen = uint16(v)
		case "id":
			v, err = number(it.value, 16)
			a.ID = uint16(v)
		case "reason":
			i := slices.Index(reasonNames, it.value)
			if i < 0 {
				err = fmt.Errorf("%q is not a reason", it.value)
			}
			a.Reason = uint8(i)
		case "userdata":
			var b []byte
			b, err = parseHexArg(it.value)
			a.Userdata = string(b)
		case "pause":
			a.Pause = true
		case "meter_id":
			v, err = number(it.value, 32)
			a.MeterID = uint32(v)
		default:
			err = fmt.Errorf("%q is not known", it.key)
		}
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

func parseHexArg(s string) ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ".", ""))
	if err != nil {
		return nil, fmt.Errorf("%q are not hexadecimal bytes", s)
	}
	return b, nil
}

func parseResubmit(s string) (ofp.Action, error) {
	a := ofp.Resubmit{Port: ofp.PortInPort, Table: ofp.TableAll}
	parts := strings.Split(s, ",")
	if len(parts) > 3 || len(parts) == 3 && parts[2] != "ct" {
		return nil, fmt.Errorf("%q: port, table and ct are all that can be given", s)
	}
	a.WithCT = len(parts) == 3
	if parts[0] != "" {
		p, err := parsePort(parts[0])
		if err != nil {
			return nil, err
		}
		a.Port = p
	}
	if len(parts) > 1 && parts[1] != "" {
		v, err := number(parts[1], 8)
		if err != nil {
			return nil, err
		}
		a.Table = ofp.Table(v)
	}
	return a, nil
}

func parseConjunction(s string) (ofp.Action, error) {
	var a ofp.Conjunction
	id, clause, ok := strings.Cut(s, ",")
	k, n, ok2 := strings.Cut(clause, "/")
	if !ok || !ok2 {
		return nil, fmt.Errorf("%q: want ID,CLAUSE/CLAUSES", s)
	}
	v, err1 := number(id, 32)
	x, err2 := number(strings.TrimSpace(k), 8)
	y, err3 := number(n, 8)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, fmt.Errorf("%q: want ID,CLAUSE/CLAUSES", s)
	}
	a.ID, a.Clause, a.Clauses = uint32(v), uint8(x), uint8(y)
	return a, nil
}

func parseFinTimeout(s string) (ofp.Action, error) {
	var a ofp.FinTimeout
	items, err := split(s)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		v, err := number(it.value, 16)
		if err != nil {
			return nil, err
		}
		switch it.key {
		case "idle_timeout":
			a.Idle = uint16(v)
		case "hard_timeout":
			a.Hard = uint16(v)
		default:
			return nil, fmt.Errorf("%q is not known", it.key)
		}
	}
	return a, nil
}

func parseCT(s string) (ofp.Action, error) {
	a := ofp.CT{Table: ofp.CTNoTable}
	items, err := split(s)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		var v uint64
		switch it.key {
		case "commit":
			a.Flags |= ofp.CTCommit
		case "force":
			a.Flags |= ofp.CTForce
		case "table":
			v, err = number(it.value, 8)
			a.Table = ofp.Table(v)
		case "zone":
			if v, err = number(it.value, 16); err == nil {
				a.Zone = uint16(v)
			} else {
				a.ZoneSrc, err = parseSub(it.value)
			}
		case "nat":
			var n ofp.NAT
			n, err = parseNAT(it.value)
			a.NAT = &n
		case "exec":
			a.Exec, err = parseExec(it.value)
		case "alg":
			switch it.value {
			case "ftp":
				a.ALG = 21
			case "tftp":
				a.ALG = 69
			default:
				err = fmt.Errorf("%q is not an application gateway", it.value)
			}
		default:
			err = fmt.Errorf("%q is not known", it.key)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", it.key, err)
		}
	}
	return a, nil
}

func parseExec(s string) ([]ofp.Action, error) {
	items, err := split(s)
	if err != nil {
		return nil, err
	}
	var list []ofp.Action
	for _, it := range items {
		a, err := parseAction(it)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

func parseNAT(s string) (ofp.NAT, error) {
	var a ofp.NAT
	items, err := split(s)
	if err != nil {
		return a, err
	}
	for _, it := range items {
		switch it.key {
		case "src", "dst":
			a.Flags |= map[string]uint16{"src": ofp.NATSrc, "dst": ofp.NATDst}[it.key]
			if it.value != "" {
				err = parseNATRange(&a, it.value)
			}
		case "persistent":
			a.Flags |= ofp.NATPersistent
		case "hash":
			a.Flags |= ofp.NATHash
		case "random":
			a.Flags |= ofp.NATRandom
		default:
			err = fmt.Errorf("%q is not known", it.key)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// parseNATRange reads 1.2.3.4-1.2.3.5:80-90, [fc00::1]-[fc00::2]:80, fc00::1-fc00::2, :80.
func parseNATRange(a *ofp.NAT, s string) error {
	addrs, ports := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && (s[0] == '[' && i > strings.LastIndexByte(s, ']') || s[0] != '[' && strings.Count(s, ":") == 1) {
		addrs, ports = s[:i], s[i+1:]
	}
	one := func(s string) (string, error) {
		x, err := netip.ParseAddr(strings.Trim(s, "[]"))
		if err != nil || x.Zone() != "" {
			return "", fmt.Errorf("%q is not an address", s)
		}
		return string(x.AsSlice()), nil
	}
	var err error
	if addrs != "" {
		lo, hi, two := strings.Cut(addrs, "-")
		if a.IPMin, err = one(lo); err != nil {
			return err
		}
		if two {
			if a.IPMax, err = one(hi); err != nil {
				return err
			}
			if a.IPMax == a.IPMin {
				a.IPMax = ""
			}
		}
	}
	if ports != "" {
		lo, hi, two := strings.Cut(ports, "-")
		v, err := number(lo, 16)
		if err != nil {
			return err
		}
		a.PortMin = uint16(v)
		if two {
			if v, err = number(hi, 16); err != nil {
				return err
			}
			if a.PortMax = uint16(v); a.PortMax == a.PortMin {
				a.PortMax = 0
			}
		}
	}
	return nil
}

func parseLearn(s string) (ofp.Action, error) {
	a := ofp.Learn{Priority: DefaultPriority, Table: 1}
	items, err := split(s)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		var v uint64
		n := map[string]*uint16{
			"idle_timeout": &a.IdleTimeout, "hard_timeout": &a.HardTimeout, "fin_idle_timeout": &a.FinIdle,
			"fin_hard_timeout": &a.FinHard, "priority": &a.Priority,
		}[it.key]
		switch {
		case n != nil:
			v, err = number(it.value, 16)
			*n = uint16(v)
		case it.key == "table":
			v, err = number(it.value, 8)
			a.Table = ofp.Table(v)
		case it.key == "cookie":
			a.Cookie, err = number(it.value, 64)
		case it.key == "limit":
			v, err = number(it.value, 32)
			a.Limit = uint32(v)
		case it.key == "send_flow_rem":
			a.Flags |= ofp.LearnSendFlowRem
		case it.key == "delete_learned":
			a.Flags |= ofp.LearnDeleteLearned
		case it.key == "result_dst":
			a.Flags |= ofp.LearnWriteResult
			a.Result, err = parseSub(it.value)
		default:
			var x ofp.LearnSpec
			x, err = parseLearnSpec(it)
			a.Specs = append(a.Specs, x)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", it.key, err)
		}
	}
	return a, nil
}

func parseLearnSpec(it item) (x ofp.LearnSpec, err error) {
	constant := func(v ofp.Value) { x.Value = string(v.Append(nil, (x.Dst.Width+15)/16*2)) }
	switch it.key {
	case "output":
		x.Kind = ofp.LearnOutput
		x.Src, err = parseSub(it.value)
		return x, err
	case "load":
		x.Kind = ofp.LearnLoad
		from, to, err := arrow(it.value)
		if err != nil {
			return x, err
		}
		if x.Dst, err = parseSub(to); err != nil {
			return x, err
		}
		if v, err := big(from); err == nil {
			if v != v.And(ofp.Ones(x.Dst.Width)) {
				return x, fmt.Errorf("%s does not fit into %d bits", from, x.Dst.Width)
			}
			constant(v)
			return x, nil
		}
		x.Src, err = parseSub(from)
		return x, err
	}
	if x.Dst, err = parseSub(it.key); err != nil {
		return x, err
	}
	if it.value == "" {
		x.Src = x.Dst
		return x, nil
	}
	if src, err := parseSub(it.value); err == nil {
		x.Src = src
		return x, nil
	}
	v, mask, err := parseValue(x.Dst.Field, it.value)
	if err != nil {
		return x, err
	}
	if mask != ofp.Ones(x.Dst.Field.Bits()) {
		return x, fmt.Errorf("a learned match cannot be masked")
	}
	if v != v.And(ofp.Ones(x.Dst.Width)) {
		return x, fmt.Errorf("%s does not fit into %d bits", it.value, x.Dst.Width)
	}
	constant(v)
	return x, nil
}
