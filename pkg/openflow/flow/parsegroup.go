package flow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// ParseGroup reads a group in ovs-ofctl's text, as add-group takes it and dump-groups prints it. Buckets without a
// bucket_id get the lowest free numbers, in order. Errors are of type *ParseError.
func ParseGroup(text string) (Group, error) {
	g, err := parseGroup(span{s: text})
	if err == nil {
		err = span{s: text}.refusedIf(g.Err())
	}
	if err != nil {
		return Group{}, located("group", text, 1, err)
	}
	return g, nil
}

func (x span) refusedIf(err error) error {
	if err == nil {
		return nil
	}
	return x.refused(err)
}

func parseGroup(x span) (g Group, err error) {
	head, rest := x, span{}
	if i := strings.Index(x.s, "bucket="); i >= 0 {
		head, rest = x.sub(0, i), x.from(i)
	}
	items, err := split(head)
	if err != nil {
		return g, err
	}
	has := map[string]bool{}
	for _, it := range items {
		if has[it.key.s] {
			return g, it.key.bad("each property once", "%s stands twice", it.key.s)
		}
		has[it.key.s] = true
		if err := g.property(it); err != nil {
			return g, within(it.key.s, err)
		}
	}
	for _, name := range []string{"group_id", "type"} {
		if !has[name] {
			return g, x.bad("group_id=NUMBER,type=all, select, indirect or ff", "%s is missing", name)
		}
	}
	var auto []int
	for !rest.empty() {
		one := rest.from(len("bucket="))
		rest = span{}
		if i := strings.Index(one.s, "bucket="); i >= 0 {
			one, rest = one.sub(0, i), one.from(i)
		}
		b, numbered, err := parseBucket(one, g.Type)
		if err != nil {
			return g, within(fmt.Sprintf("bucket %d", len(g.Buckets)+1), err)
		}
		if !numbered {
			auto = append(auto, len(g.Buckets))
		}
		g.Buckets = append(g.Buckets, b)
	}
	g.number(auto)
	return g, nil
}

// number gives buckets without a number the lowest free ones.
func (g *Group) number(auto []int) {
	used := map[uint32]bool{}
	for i, b := range g.Buckets {
		if !slices.Contains(auto, i) {
			used[b.ID] = true
		}
	}
	next := uint32(0)
	for _, i := range auto {
		for used[next] {
			next++
		}
		g.Buckets[i].ID = next
		next++
	}
}

func (g *Group) property(it item) (err error) {
	switch it.key.s {
	case "group_id":
		g.ID, err = it.value.u32()
	case "type":
		names := append(groupTypes, "fast_failover")
		i, err := it.value.index(names)
		if g.Type = GroupType(i); int(i) == len(groupTypes) {
			g.Type = FastFailover
		}
		return err
	case "selection_method":
		if g.Selection.Method = it.value.s; it.value.s != "hash" && it.value.s != "dp_hash" {
			err = it.value.isNot("hash or dp_hash")
		}
	case "selection_method_param":
		g.Selection.Param, err = it.value.number(64)
	case "fields":
		return g.fields(it.value)
	default:
		return it.key.isNot("group_id, type, selection_method, selection_method_param, fields or bucket")
	}
	return err
}

// fields reads what a select group hashes: FIELD, or FIELD=MASK for a part of it.
func (g *Group) fields(x span) error {
	items, err := split(x)
	if err != nil {
		return err
	}
	s, masked := &g.Selection, false
	var masks []ofp.Value
	for _, it := range items {
		f, ok := ofp.ActionField(it.key.s)
		if !ok || f.Long() {
			return it.key.isNot("a field that is no tunnel option")
		}
		mask := ofp.Ones(f.Bits())
		if !it.value.empty() {
			var full ofp.Value
			if mask, full, err = it.value.shortValue(f); err != nil {
				return within(it.key.s, err)
			}
			if full != ofp.Ones(f.Bits()) || mask.IsZero() {
				return it.value.isNot("the bits to hash, at least one")
			}
		}
		masked = masked || mask != ofp.Ones(f.Bits())
		s.Fields, masks = append(s.Fields, f), append(masks, mask)
	}
	if masked {
		s.Masks = masks
	}
	return nil
}

// parseBucket reads a bucket's properties, between and after which its actions may stand.
func parseBucket(x span, t GroupType) (b Bucket, numbered bool, err error) {
	if t == Select {
		b.Weight = 1
	}
	items, err := split(x)
	if err != nil {
		return b, false, err
	}
	var list parsed
	acts := false
	for _, it := range items {
		switch strings.ToLower(it.key.s) {
		case "weight":
			b.Weight, err = it.value.u16()
		case "bucket_id":
			b.ID, err = it.value.u32()
			numbered = true
		case "watch_port":
			b.WatchPort, err = it.value.port()
		case "watch_group":
			b.WatchGroup, err = it.value.u32()
		default:
			acts = true
			part := it.whole
			if k := strings.ToLower(it.key.s); k == "actions" || k == "action" {
				part = it.value
			}
			var more parsed
			more, err = parseActions(part, 0, false)
			list.list, list.at = append(list.list, more.list...), append(list.at, more.at...)
			if err != nil {
				return b, false, err
			}
			continue
		}
		if err != nil {
			return b, false, within(it.key.s, err)
		}
	}
	if !acts {
		return b, false, x.bad("actions=", "the bucket has no actions")
	}
	if err := list.ordered(); err != nil {
		return b, false, err
	}
	b.Actions, err = list.resolve(x, nil)
	return b, numbered, err
}

// ParseMeter reads a meter in ovs-ofctl's text, as add-meter takes it and dump-meters prints
// it. Errors are of type *ParseError.
func ParseMeter(text string) (Meter, error) {
	m, err := parseMeter(span{s: text})
	if err == nil {
		err = span{s: text}.refusedIf(m.Err())
	}
	if err != nil {
		return Meter{}, located("meter", text, 1, err)
	}
	return m, nil
}

// pairs are NAME=VALUE parts; = and commas may have white space around them.
func (x span) pairs() []span {
	var list []span
	for i := 0; i < len(x.s); {
		if strings.IndexByte("=,"+blanks, x.s[i]) >= 0 {
			i++
			continue
		}
		j := i
		for j < len(x.s) && strings.IndexByte("=,"+blanks, x.s[j]) < 0 {
			j++
		}
		list, i = append(list, x.sub(i, j)), j
	}
	return list
}

func parseMeter(x span) (m Meter, err error) {
	i := strings.Index(x.s, "band")
	if i < 0 {
		return m, x.bad("bands=type=drop,rate=NUMBER", "the meter has no bands")
	}
	_, bands, ok := x.from(i).cut("=")
	if !ok {
		return m, x.from(i).isNot("bands=")
	}
	words := x.sub(0, i).pairs()
	for i := 0; i < len(words); i++ {
		w := words[i]
		known := false
		for _, f := range meterFlags {
			if w.s == f.name {
				m.Flags, known = m.Flags|f.bit, true
			}
		}
		switch {
		case known:
		case w.s != "meter":
			return m, w.isNot("meter, kbps, pktps, burst, stats or bands")
		case i+1 == len(words):
			return m, w.bad("meter=NUMBER", "the meter's number is missing")
		default:
			i++
			if m.ID, err = words[i].meterID(); err != nil {
				return m, err
			}
		}
	}
	m.Bands, err = parseBands(bands)
	return m, err
}

func (x span) meterID() (uint32, error) {
	for id, name := range meterNames {
		if x.s == name {
			return id, nil
		}
	}
	v, err := x.u32()
	if err != nil {
		return 0, x.isNot("a meter's number from 1, controller, slowpath or all")
	}
	return v, nil
}

func parseBands(x span) (list []Band, err error) {
	words := x.pairs()
	for i := 0; i+1 < len(words); i += 2 {
		key, value := words[i], words[i+1]
		if key.s == "type" {
			n, err := value.index([]string{"drop", "dscp_remark"})
			if err != nil {
				return nil, err
			}
			list = append(list, Band{Kind: n + 1})
			continue
		}
		if len(list) == 0 {
			return nil, key.bad("type=drop or type=dscp_remark first", "a band begins with its type, not with %q", key.s)
		}
		b := &list[len(list)-1]
		switch key.s {
		case "rate":
			b.Rate, err = value.u32()
		case "burst_size":
			b.Burst, err = value.u32()
		case "prec_level":
			b.PrecLevel, err = value.u8()
		default:
			err = key.isNot("type, rate, burst_size or prec_level")
		}
		if err != nil {
			return nil, within(key.s, err)
		}
	}
	if len(words)%2 != 0 {
		return nil, words[len(words)-1].bad("=VALUE after it", "%q has no value", words[len(words)-1].s)
	}
	return list, nil
}
