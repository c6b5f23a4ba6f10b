package flow

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

func parseLearn(x span) (ofp.Action, error) {
	a := ofp.Learn{Priority: DefaultPriority, Table: 1}
	known := map[string]func(span) error{
		"idle_timeout": into16(&a.IdleTimeout), "hard_timeout": into16(&a.HardTimeout), "priority": into16(&a.Priority),
		"fin_idle_timeout": into16(&a.FinIdle), "fin_hard_timeout": into16(&a.FinHard), "limit": into32(&a.Limit),
		"table":          func(x span) (err error) { a.Table, err = x.table(); return err },
		"cookie":         func(x span) (err error) { a.Cookie, err = x.number(64); return err },
		"send_flow_rem":  setFlag(&a.Flags, ofp.LearnSendFlowRem),
		"delete_learned": setFlag(&a.Flags, ofp.LearnDeleteLearned),
		"result_dst": func(x span) (err error) {
			a.Flags |= ofp.LearnWriteResult
			a.Result, err = x.bits()
			return err
		},
	}
	items, err := split(x)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		if take := known[it.key.s]; take != nil {
			err = take(it.value)
		} else {
			var s ofp.LearnSpec
			s, err = parseLearnSpec(it)
			a.Specs = append(a.Specs, s)
		}
		if err != nil {
			return nil, within(it.key.s, err)
		}
	}
	return a, nil
}

// parseLearnSpec reads FIELD, FIELD=SOURCE, FIELD=VALUE, load:SOURCE->FIELD, load:VALUE->FIELD
// or output:FIELD.
func parseLearnSpec(it item) (s ofp.LearnSpec, err error) {
	switch it.key.s {
	case "output":
		s.Kind = ofp.LearnOutput
		s.Src, err = it.value.bits()
		return s, err
	case "load":
		return parseLearnLoad(it.value)
	}
	if s.Dst, err = it.key.bits(); err != nil {
		return s, it.key.isNot("a property of learn (table, priority, idle_timeout, ...), a field, load or output")
	}
	if it.value.empty() {
		s.Src = s.Dst
		return s, nil
	}
	if s.Src, err = it.value.bits(); err == nil {
		if s.Src.Width != s.Dst.Width {
			err = it.value.bad(fmt.Sprintf("%d bits", s.Dst.Width), "%s has %d bits", s.Src.Field, s.Src.Width)
		}
		return s, err
	}
	s.Src = ofp.Bits{}
	var v string
	if s.Dst.First == 0 && s.Dst.Width == s.Dst.Field.ActionBits() {
		var mask string
		if v, mask, err = it.value.fieldValue(s.Dst.Field); err == nil && !allOnes(mask) {
			err = it.value.bad("a value without a mask", "what is learned cannot be masked")
		}
	} else {
		v, err = it.value.integer(s.Dst.Field.Len())
	}
	if err != nil {
		return s, err
	}
	return s, constant(&s, it.value, v)
}

func parseLearnLoad(x span) (s ofp.LearnSpec, err error) {
	s.Kind = ofp.LearnLoad
	from, to, err := x.arrow()
	if err != nil {
		return s, err
	}
	if s.Dst, err = to.bits(); err != nil {
		return s, err
	}
	if v, err := from.integer(max(16, s.Dst.Field.Len())); err == nil {
		return s, constant(&s, from, v)
	}
	if s.Src, err = from.bits(); err == nil && s.Src.Width != s.Dst.Width {
		err = to.bad(fmt.Sprintf("%d bits", s.Src.Width), "%s has %d bits", s.Dst.Field, s.Dst.Width)
	}
	return s, err
}

// constant makes a number the spec's value: as many bytes as its bits need, an even number.
func constant(s *ofp.LearnSpec, x span, v string) error {
	if !fits(v, s.Dst.Width) {
		return x.isNot(fmt.Sprintf("a number of up to %d bits", s.Dst.Width))
	}
	n := (s.Dst.Width + 15) / 16 * 2
	if len(v) < n {
		v = strings.Repeat("\x00", n-len(v)) + v
	}
	s.Value = v[len(v)-n:]
	return nil
}
