package ofp

import (
	"errors"
	"fmt"
)

// CheckPrerequisites returns an error if an action uses a field that packets of the match may lack. The switch refuses
// such flows (OFPBAC_MATCH_INCONSISTENT).
func CheckPrerequisites(m Match, actions []Action) error {
	b := builderOf(m)
	k := b.facts()
	return k.actions(actions)
}

func (k *facts) actions(actions []Action) error {
	for i, a := range actions {
		if err := k.action(a); err != nil {
			return &ActionError{i, err}
		}
	}
	return nil
}

// nested checks actions whose effects do not last.
func (k *facts) nested(actions []Action) error {
	inner := *k
	return inner.actions(actions)
}

var (
	errNeedsIP   = errors.New("only has a meaning together with ip or ipv6")
	errNeedsMPLS = errors.New("only has a meaning together with mpls or mplsm")
)

// action checks one action and notes what it changes.
func (k *facts) action(a Action) error {
	switch a := a.(type) {
	case SetField:
		return k.setField(a)
	case RegMove:
		if err := k.field(a.Src.Field); err != nil {
			return err
		}
		return k.field(a.Dst.Field)
	case OutputReg:
		return k.field(a.Src.Field)
	case Push:
		return k.field(a.Src.Field)
	case Pop:
		return k.field(a.Dst.Field)
	case Multipath:
		return k.field(a.Dst.Field)
	case BundlePorts:
		return k.field(a.Dst.Field)
	case Legacy:
		return k.legacy(a)
	case DecTTL, SetTTL:
		return k.unless(k.isIP(), "the TTL %w", errNeedsIP)
	case FinTimeout:
		if k.proto != 6 {
			return errors.New("fin_timeout only has a meaning together with tcp or tcp6")
		}
	case PushVLAN, PopVLAN:
		return k.vlan(a)
	case PushMPLS, PopMPLS, DecMPLSTTL, SetMPLSTTL:
		return k.mpls(a)
	case Encap, Decap, DecNSHTTL:
		return k.encapsulation(a)
	case Resubmit:
		if a.WithCT && !k.tracked() {
			return fmt.Errorf("resubmit with ct only has a meaning together with %s", requirements[needsCT].text)
		}
	case CT:
		return k.ct(a)
	case Learn:
		return k.learn(a)
	case Clone:
		return k.nested(a.Actions)
	case WriteActions:
		inner := *k
		inner.set = true
		return inner.actions(a.Actions)
	}
	return nil
}

func (k *facts) setField(a SetField) error {
	if err := k.field(a.Field); err != nil {
		return err
	}
	switch a.Field {
	case VLANVID:
		if !k.vlans[0] {
			return errors.New(
				"vlan_vid can only be set of packets with a VLAN tag: match dl_vlan or vlan_vid, or push_vlan before")
		}
	case VLANTCI:
		k.vlans[0] = ToValue(a.Value).Lo&0x1000 != 0
	}
	return nil
}

func (k *facts) vlan(a Action) error {
	if _, push := a.(PushVLAN); push {
		if k.vlans[1] {
			return errors.New("push_vlan: the switch knows two VLAN tags at most")
		}
		k.vlans = [2]bool{true, k.vlans[0]}
		return nil
	}
	err := k.unless(k.vlans[0], "pop_vlan only has a meaning together with dl_vlan or vlan_vid, or after push_vlan")
	if err != nil {
		return err
	}
	k.vlans = [2]bool{k.vlans[1], false}
	return nil
}

func (k *facts) mpls(a Action) error {
	if p, ok := a.(PushMPLS); ok {
		if err := k.unless(k.packetType == packetEthernet,
			"push_mpls only has a meaning for packets that begin with Ethernet"); err != nil {
			return err
		}
		k.ethType, k.proto = p.EthType, 0
		return nil
	}
	if err := k.unless(k.isMPLS(), "%s %w", actionName(a), errNeedsMPLS); err != nil {
		return err
	}
	if p, ok := a.(PopMPLS); ok {
		if err := k.unless(k.packetType == packetEthernet,
			"pop_mpls only has a meaning for packets that begin with Ethernet"); err != nil {
			return err
		}
		k.ethType = p.EthType
	}
	return nil
}

func (k *facts) encapsulation(a Action) error {
	switch a := a.(type) {
	case Encap:
		k.packetType = a.PacketType
		if k.packetType>>16 == 1 {
			k.ethType = uint16(k.packetType)
		}
		if !k.isIP() {
			k.proto = 0
		}
	case Decap:
		if k.packetType == packetEthernet {
			k.packetType = 1<<16 | uint32(k.ethType)
		} else {
			k.packetType, k.ethType = 0xffffffff, 0xffff
		}
	default:
		return k.unless(k.packetType == 1<<16|uint32(ethTypeNSH) || k.ethType == ethTypeNSH,
			"dec_nsh_ttl only has a meaning together with dl_type=0x894f, or after encap(nsh)")
	}
	return nil
}

func (k *facts) ct(a CT) error {
	const inv = 0x10
	switch {
	case !k.isIP():
		return fmt.Errorf("ct %w", errNeedsIP)
	case k.ctState&inv != 0 && a.Flags&CTCommit != 0:
		return errors.New("ct: a connection with ct_state=+inv cannot be committed")
	case a.ALG == 21 && k.proto != 6 || a.ALG == 69 && k.proto != 17:
		return errors.New("ct: alg=ftp needs tcp, alg=tftp needs udp")
	case a.ZoneSrc.Width != 0:
		return k.field(a.ZoneSrc.Field)
	}
	if a.NAT != nil {
		if err := k.nat(*a.NAT); err != nil {
			return err
		}
	}
	for _, x := range a.Exec {
		switch x := x.(type) {
		case NAT:
			if err := k.nat(x); err != nil {
				return err
			}
		case SetField:
			if err := k.field(x.Field); err != nil {
				return err
			}
		case RegMove:
			if err := k.action(x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *facts) nat(n NAT) error {
	if len(n.IPMin) == 4 && k.l3() != ethTypeIPv4 || len(n.IPMin) == 16 && k.l3() != ethTypeIPv6 {
		return errors.New("nat to an address of the other version of IP")
	}
	return nil
}

// ActionError names the action of a list that the switch would refuse.
type ActionError struct {
	Index int // from 0
	Err   error
}

// Error is "action 2: ...", counted from 1.
func (e *ActionError) Error() string { return fmt.Sprintf("action %d: %v", e.Index+1, e.Err) }

// Unwrap is what is wrong with the action.
func (e *ActionError) Unwrap() error { return e.Err }

// Resolve replaces Legacy actions by the switch's actions for packets of the match. A port becomes the field of the
// match's protocol. If packets have no VLAN tag, a tag is pushed. It checks prerequisites, and returns an *ActionError
// for the first action that lacks them.
func Resolve(m Match, actions []Action) ([]Action, error) {
	b := builderOf(m)
	k := b.facts()
	return k.resolve(actions)
}

func (k *facts) resolve(actions []Action) ([]Action, error) {
	out := make([]Action, 0, len(actions))
	for i, a := range actions {
		before := *k
		if err := k.action(a); err != nil {
			return nil, &ActionError{i, err}
		}
		list, err := before.replace(a)
		if err != nil {
			return nil, &ActionError{i, err}
		}
		out = append(out, list...)
	}
	return out, nil
}

// replace is what an action becomes.
func (k facts) replace(a Action) ([]Action, error) {
	switch x := a.(type) {
	case Legacy:
		set, ok := x.SetField(k.proto)
		if !ok {
			return []Action{x}, nil
		}
		if x.Kind.pushes() && !k.vlans[0] {
			return []Action{PushVLAN{0x8100}, set}, nil
		}
		return []Action{set}, nil
	case Clone:
		list, err := k.resolve(x.Actions)
		return []Action{Clone{list}}, err
	case WriteActions:
		k.set = true
		list, err := k.resolve(x.Actions)
		return []Action{WriteActions{list}}, err
	}
	return []Action{a}, nil
}

// learn checks fields read from the packet against its match, and written fields against the learned match.
func (k *facts) learn(a Learn) error {
	var b MatchBuilder
	for _, x := range a.Specs {
		if x.Src.Width != 0 {
			if err := k.field(x.Src.Field); err != nil {
				return fmt.Errorf("learn: %w", err)
			}
		}
		if x.Kind == LearnOutput {
			continue
		}
		learned := b.facts()
		if err := learned.field(x.Dst.Field); err != nil {
			return fmt.Errorf("learn: in the flow that is learned, %w", err)
		}
		if x.Kind == LearnMatch && x.Src.Width == 0 && !x.Dst.Field.Long() {
			b.learned(x)
		}
	}
	return nil
}

// learned records a constant that the learned flow matches. It replaces an earlier match of these bits, as in the
// switch.
func (b *MatchBuilder) learned(x LearnSpec) {
	f, v := x.Dst.Field, ToValue(x.Value).Shl(x.Dst.First)
	mask := Ones(x.Dst.Width).Shl(x.Dst.First)
	if f == VLANTCI {
		f, mask = VLANVID, mask.And(Ones(13))
		v = v.And(mask)
	}
	if m, _ := b.at(f); true {
		m.Value, m.Mask = m.Value.And(mask.Not()).Or(v), m.Mask.Or(mask)
	}
}

// legacy checks the old actions as the fields that they set.
func (k *facts) legacy(a Legacy) error {
	switch a.Kind {
	case LegacyVLANVID, LegacyVLANPCP, LegacyPushVLANVID, LegacyPushVLANPCP:
		if !k.vlans[0] && a.Kind.pushes() {
			k.vlans[0] = true
		} else if !k.vlans[0] {
			return fmt.Errorf("%s only has a meaning together with dl_vlan or vlan_vid, or after push_vlan", a.Kind)
		}
		return nil
	case LegacyTPSrc, LegacyTPDst:
		ports := k.isIP() && k.frag&2 == 0 && (k.proto == 6 || k.proto == 17 || k.proto == 132)
		return k.unless(ports, "%s only has a meaning together with tcp, udp or sctp", a.Kind)
	}
	return k.field(a.Kind.field())
}
