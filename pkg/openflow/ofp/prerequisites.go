package ofp

import "fmt"

// CheckPrerequisites says which action would work on a field that packets of the match need
// not have; the switch refuses such flows (OFPBAC_MATCH_INCONSISTENT).
func CheckPrerequisites(m Match, actions []Action) error {
	var b MatchBuilder
	for f := range m.All() {
		if f.Field != 0 {
			b.set = append(b.set, f)
		}
	}
	return b.checkActions(actions)
}

func (b *MatchBuilder) checkActions(actions []Action) error {
	for i, a := range actions {
		if err := b.checkAction(a); err != nil {
			return fmt.Errorf("action %d: %w", i+1, err)
		}
		switch a.(type) {
		case PushVLAN:
			b.set = append(b.set, MatchField{Field: VLANVID, Value: Value{Lo: 0x1000}, Mask: Value{Lo: 0x1000}})
		case PopVLAN:
			return nil // what lies below is not known
		}
	}
	return nil
}

// needsMet says whether the match has what the field needs.
func (b *MatchBuilder) needsMet(f Field) error {
	if f == 0 || f >= fieldCount {
		return nil
	}
	one := MatchBuilder{set: append(append([]MatchField(nil), b.set...), MatchField{Field: f})}
	if f == VLANPCP && !b.Has(VLANVID) {
		return fmt.Errorf("%s: only has a meaning together with vlan_vid", f)
	}
	return one.check()
}

func (b *MatchBuilder) checkAction(a Action) error {
	eth, _ := b.value(EthType)
	ip := eth == 0x0800 || eth == 0x86dd
	switch a := a.(type) {
	case SetField:
		if a.Field == CTMark || a.Field == CTLabel {
			return fmt.Errorf("%s can only be set within ct(commit,exec(...))", a.Field)
		}
		return b.needsMet(a.Field)
	case RegMove:
		if err := b.needsMet(a.Src.Field); err != nil {
			return err
		}
		return b.needsMet(a.Dst.Field)
	case OutputReg:
		return b.needsMet(a.Src.Field)
	case DecTTL, SetTTL:
		if !ip {
			return fmt.Errorf("the TTL only has a meaning together with ip or ipv6")
		}
	case PopVLAN:
		if v, m, _ := b.last(VLANVID); v.Lo&m.Lo&0x1000 == 0 {
			return fmt.Errorf("pop_vlan only has a meaning together with dl_vlan, or after push_vlan")
		}
	case CT:
		if !ip {
			return fmt.Errorf("ct only has a meaning together with ip or ipv6")
		}
		if v, _, _ := b.last(CTState); v.Lo&0x10 != 0 && a.Flags&CTCommit != 0 {
			return fmt.Errorf("ct: a connection with ct_state=+inv cannot be committed")
		}
		proto, _ := b.value(IPProto)
		if a.ALG == 21 && proto != 6 || a.ALG == 69 && proto != 17 {
			return fmt.Errorf("ct: alg=ftp needs tcp, alg=tftp needs udp")
		}
		if a.NAT != nil && (len(a.NAT.IPMin) == 4 && eth != 0x0800 || len(a.NAT.IPMin) == 16 && eth != 0x86dd) {
			return fmt.Errorf("nat to an address of the other version of IP")
		}
		for _, x := range a.Exec {
			if m, ok := x.(RegMove); ok {
				if err := b.checkAction(m); err != nil {
					return err
				}
			}
		}
	case Clone:
		c := MatchBuilder{set: append([]MatchField(nil), b.set...)}
		return c.checkActions(a.Actions)
	}
	return nil
}

// last is what the match, or the last push_vlan, says of a field.
func (b *MatchBuilder) last(f Field) (v, mask Value, ok bool) {
	for _, m := range b.set {
		if m.Field == f {
			v, mask, ok = m.Value, m.Mask, true
		}
	}
	return v, mask, ok
}
