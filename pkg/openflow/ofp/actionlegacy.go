package ofp

import "fmt"

// LegacyKind is which of the actions that OpenFlow 1.2 replaced by set_field.
type LegacyKind uint8

// The old actions that set one field.
const (
	LegacyVLANVID LegacyKind = iota + 1
	LegacyVLANPCP
	LegacyEthSrc
	LegacyEthDst
	LegacyIPSrc
	LegacyIPDst
	LegacyTOS // the whole byte: DSCP in the upper six bits
	LegacyECN
	LegacyTPSrc // TCP, UDP or SCTP, whatever the packet is
	LegacyTPDst
	LegacyMPLSLabel
	LegacyMPLSTC
	LegacyTunnel
	LegacyTunnel64
	LegacyPushVLANVID // OpenFlow 1.0's: pushes a tag if there is no tag
	LegacyPushVLANPCP
)

// Legacy is an action of OpenFlow 1.0, 1.1 or of Nicira that sets one field. Open vSwitch still accepts such actions
// but never sends them. They are encoded as the equivalent set_field. Only an action that sets a port stays as it is,
// since a set_field needs the port's protocol.
type Legacy struct {
	Kind  LegacyKind
	Value uint64
}

// legacyInfo has a kind's name in text, its action type (or Nicira's subtype), the field that it sets and the width of
// its argument.
type legacyInfo struct {
	name  string
	typ   uint16
	field Field
	bits  int
}

var legacyKinds = [...]legacyInfo{
	LegacyVLANVID:   {"set_vlan_vid", actSetVLANVID, VLANVID, 12},
	LegacyVLANPCP:   {"set_vlan_pcp", actSetVLANPCP, VLANPCP, 3},
	LegacyEthSrc:    {"mod_dl_src", actSetEthSrc, EthSrc, 48},
	LegacyEthDst:    {"mod_dl_dst", actSetEthDst, EthDst, 48},
	LegacyIPSrc:     {"mod_nw_src", actSetIPSrc, IPv4Src, 32},
	LegacyIPDst:     {"mod_nw_dst", actSetIPDst, IPv4Dst, 32},
	LegacyTOS:       {"mod_nw_tos", actSetTOS, IPDSCP, 8},
	LegacyECN:       {"mod_nw_ecn", actSetECN, IPECN, 2},
	LegacyTPSrc:     {"mod_tp_src", actSetTPSrc, 0, 16},
	LegacyTPDst:     {"mod_tp_dst", actSetTPDst, 0, 16},
	LegacyMPLSLabel: {"set_mpls_label", actSetMPLSLabel, MPLSLabel, 20},
	LegacyMPLSTC:    {"set_mpls_tc", actSetMPLSTC, MPLSTC, 3},
	LegacyTunnel:    {"set_tunnel", nxSetTunnel, TunID, 64},
	LegacyTunnel64:  {"set_tunnel64", nxSetTunnel64, TunID, 64},

	LegacyPushVLANVID: {"mod_vlan_vid", noType, VLANVID, 12},
	LegacyPushVLANPCP: {"mod_vlan_pcp", noType, VLANPCP, 3},
}

// noType marks actions that OpenFlow 1.5's wire does not have.
const noType uint16 = 0xfffe

func (k LegacyKind) info() legacyInfo {
	if int(k) >= len(legacyKinds) {
		return legacyInfo{}
	}
	return legacyKinds[k]
}

// String is the action's name in ovs-ofctl's text.
func (k LegacyKind) String() string {
	if s := k.info().name; s != "" {
		return s
	}
	return fmt.Sprintf("legacy(%d)", uint8(k))
}

// Bits is how wide the action's argument is.
func (k LegacyKind) Bits() int { return k.info().bits }

func (k LegacyKind) field() Field { return k.info().field }

func (a Legacy) check() error {
	i := a.Kind.info()
	switch {
	case i.name == "":
		return fmt.Errorf("%s: does not exist", a.Kind)
	case i.bits < 64 && a.Value>>i.bits != 0:
		return fmt.Errorf("%s: %#x is wider than %d bits", a.Kind, a.Value, i.bits)
	case a.Kind == LegacyTOS && a.Value&3 != 0:
		return fmt.Errorf("%s: %d has bits of ECN, which is mod_nw_ecn", a.Kind, a.Value)
	}
	return nil
}

// SetField returns the equivalent set_field. proto is the packet's IP protocol. ok is false if there is no such field,
// since the protocol has no ports.
func (a Legacy) SetField(proto uint8) (SetField, bool) {
	f, v := a.Kind.field(), a.Value
	switch a.Kind {
	case LegacyVLANVID, LegacyPushVLANVID:
		v |= 0x1000
	case LegacyTOS:
		v >>= 2
	case LegacyTPSrc, LegacyTPDst:
		switch proto {
		case 6:
			f = TCPSrc
		case 17:
			f = UDPSrc
		case 132:
			f = SCTPSrc
		default:
			return SetField{}, false
		}
		f += Field(a.Kind - LegacyTPSrc)
	}
	return newSetField(f, Value{Lo: v}, Ones(f.Bits())), true
}

// pushes reports whether the action pushes a VLAN tag if there is no tag.
func (k LegacyKind) pushes() bool { return k == LegacyPushVLANVID || k == LegacyPushVLANPCP }

func (a Legacy) appendTo(e *encoder) {
	if a.Kind.pushes() {
		PushVLAN{0x8100}.appendTo(e)
	}
	if set, ok := a.SetField(0); ok {
		set.appendTo(e)
		return
	}
	s := e.actionStart(a.Kind.info().typ)
	e.u16(uint16(a.Value))
	e.actionEnd(s)
}

// legacy reads one of OpenFlow 1.1's actions.
func (d *decoder) legacy(typ uint16) Action {
	for k := LegacyVLANVID; k <= LegacyMPLSTC; k++ {
		if legacyKinds[k].typ != typ {
			continue
		}
		n := (legacyKinds[k].bits + 7) / 8
		if n == 3 {
			n = 4
		}
		return Legacy{k, ToValue(d.take(k.String(), n)).Lo}
	}
	return nil
}
