package ofp

import (
	"errors"
	"fmt"
)

// Flags of [CT].
const (
	CTCommit uint16 = 1 << 0
	CTForce  uint16 = 1 << 1
)

// CTNoTable in CT.Table means that the packet is not sent back to a table.
const CTNoTable Table = 255

// CT sends the packet through connection tracking (NXAST_CT). The zone is Zone, or the value of ZoneSrc if
// ZoneSrc.Width is not 0. Exec are the actions on the connection: SetField and RegMove, and a NAT that is not the
// first. The zero Table means table 0. CTNoTable means no table.
type CT struct {
	Flags   uint16
	Zone    uint16
	ZoneSrc Bits
	Table   Table
	ALG     uint16 // 21 ftp, 69 tftp, 0 none
	NAT     *NAT
	Exec    []Action
}

// Flags of [NAT].
const (
	NATSrc        uint16 = 1 << 0
	NATDst        uint16 = 1 << 1
	NATPersistent uint16 = 1 << 2
	NATHash       uint16 = 1 << 3
	NATRandom     uint16 = 1 << 4
)

// NAT is the address translation of a [CT]. Without NATSrc and NATDst it only applies the translation of an earlier
// commit. Addresses and ports are ranges: if Max is empty or zero, the range is only Min.
type NAT struct {
	Flags            uint16
	IPMin, IPMax     string // 4 or 16 bytes
	PortMin, PortMax uint16
}

// CTClear forgets what connection tracking said about the packet (NXAST_CT_CLEAR).
type CTClear struct{}

func (CTClear) check() error        { return nil }
func (CTClear) appendTo(e *encoder) { e.actionEnd(e.nicira(nxCTClear)) }

func (a CT) check() error {
	if a.Flags&CTForce != 0 && a.Flags&CTCommit == 0 {
		return errors.New("ct: force needs commit")
	}
	if a.ZoneSrc.Width != 0 {
		if err := a.ZoneSrc.narrow(); err != nil {
			return fmt.Errorf("ct: zone: %w", err)
		}
		if a.ZoneSrc.Width != 16 {
			return fmt.Errorf("ct: the zone is 16 bits, %s gives %d", a.ZoneSrc.Field, a.ZoneSrc.Width)
		}
	}
	if a.NAT != nil {
		if err := a.nat(*a.NAT); err != nil {
			return err
		}
	}
	for _, x := range a.Exec {
		if err := a.exec(x); err != nil {
			return err
		}
	}
	return nil
}

func (a CT) nat(n NAT) error {
	if n.Flags != 0 && a.Flags&CTCommit == 0 {
		return errors.New("ct: nat with src or dst needs commit")
	}
	return n.check()
}

func (a CT) exec(x Action) error {
	var f Field
	switch x := x.(type) {
	case SetField:
		f = x.Field
	case RegMove:
		f = x.Dst.Field
	case NAT:
		return a.nat(x)
	case RawAction:
		return nil
	default:
		return fmt.Errorf("ct: exec takes set_field and move, not %s", actionName(x))
	}
	switch {
	case f != CTMark && f != CTLabel:
		return fmt.Errorf("ct: exec can only change ct_mark and ct_label, not %s", f)
	case a.Flags&CTCommit == 0:
		return errors.New("ct: exec needs commit")
	}
	return nil
}

func (a CT) appendTo(e *encoder) {
	s := e.nicira(nxCT)
	e.u16(a.Flags)
	if a.ZoneSrc.Width != 0 {
		e.nxHeader(a.ZoneSrc.Field)
		e.u16(a.ZoneSrc.ofsNbits())
	} else {
		e.u32(0)
		e.u16(a.Zone)
	}
	e.u8(uint8(a.Table))
	e.zero(3)
	e.u16(a.ALG)
	if a.NAT != nil {
		a.NAT.appendTo(e)
	}
	for _, x := range a.Exec {
		e.action(x)
	}
	e.actionEnd(s)
}

func (d *decoder) ct() Action {
	a := CT{Flags: d.u16("flags")}
	src := *d
	if v := d.u32("zone source"); v != 0 {
		a.ZoneSrc.Field = src.field("zone source")
		a.ZoneSrc.setOfsNbits(d.u16("zone range"))
		if d.ok() && a.ZoneSrc.Field == 0 {
			return nil
		}
	} else {
		a.Zone = d.u16("zone")
	}
	a.Table = Table(d.u8("table"))
	d.skip(3)
	a.ALG = d.u16("alg")
	a.Exec = d.actions()
	if len(a.Exec) > 0 {
		if n, ok := a.Exec[0].(NAT); ok {
			a.NAT, a.Exec = &n, a.Exec[1:]
		}
	}
	if len(a.Exec) == 0 {
		a.Exec = nil
	}
	return a
}

// Parts of a NAT's range (nicira-ext.h, NX_NAT_RANGE_*).
const (
	natIPv4Min uint16 = 1 << iota
	natIPv4Max
	natIPv6Min
	natIPv6Max
	natPortMin
	natPortMax
)

func (a NAT) check() error {
	for _, ip := range []string{a.IPMin, a.IPMax} {
		if n := len(ip); n != 0 && n != 4 && n != 16 {
			return fmt.Errorf("nat: an address has 4 or 16 bytes, not %d", n)
		}
	}
	const both = NATSrc | NATDst
	switch {
	case a.Flags&^(both|NATPersistent|NATHash|NATRandom) != 0:
		return fmt.Errorf("nat: flags %#x are not known", a.Flags)
	case a.Flags&both == both:
		return errors.New("nat: src and dst exclude each other")
	case a.Flags&(NATHash|NATRandom) == NATHash|NATRandom:
		return errors.New("nat: hash and random exclude each other")
	case a.Flags&both == 0 && (a.Flags != 0 || a.IPMin != ""):
		return errors.New("nat: an address, port or flag needs src or dst")
	case a.IPMin == "" && (a.IPMax != "" || a.PortMin != 0 || a.PortMax != 0):
		return errors.New("nat: a range or port needs an address in front")
	case a.IPMin != "" && ToValue(a.IPMin).IsZero():
		return errors.New("nat: the address is zero")
	case a.IPMax != "" && len(a.IPMin) != len(a.IPMax):
		return errors.New("nat: both ends of an address range are of one kind")
	case a.IPMax != "" && a.IPMax < a.IPMin, a.PortMax != 0 && a.PortMax < a.PortMin:
		return errors.New("nat: a range ends before it begins")
	case a.PortMax != 0 && a.PortMin == 0:
		return errors.New("nat: a port range begins at 0")
	}
	return nil
}

func (a NAT) appendTo(e *encoder) {
	var has uint16
	family := 0
	if len(a.IPMin) == 16 {
		family = 2
	}
	if a.IPMax == a.IPMin {
		a.IPMax = ""
	}
	if a.PortMax == a.PortMin {
		a.PortMax = 0
	}
	if a.IPMin != "" {
		has |= natIPv4Min << family
	}
	if a.IPMax != "" {
		has |= natIPv4Max << family
	}
	if a.PortMin != 0 {
		has |= natPortMin
	}
	if a.PortMax != 0 {
		has |= natPortMax
	}
	s := e.nicira(nxNAT)
	e.zero(2)
	e.u16(a.Flags)
	e.u16(has)
	e.str(a.IPMin)
	e.str(a.IPMax)
	if has&natPortMin != 0 {
		e.u16(a.PortMin)
	}
	if has&natPortMax != 0 {
		e.u16(a.PortMax)
	}
	e.actionEnd(s)
}

func (d *decoder) nat() Action {
	d.skip(2)
	a := NAT{Flags: d.u16("nat flags")}
	has := d.u16("nat range_present")
	take := func(bit uint16, n int) string {
		if has&bit == 0 {
			return ""
		}
		return string(d.take("nat range", n))
	}
	a.IPMin, a.IPMax = take(natIPv4Min, 4), take(natIPv4Max, 4)
	if has&(natIPv6Min|natIPv6Max) != 0 {
		if a.IPMin != "" || a.IPMax != "" {
			d.fail("nat range", "both IPv4 and IPv6")
		}
		a.IPMin, a.IPMax = take(natIPv6Min, 16), take(natIPv6Max, 16)
	}
	if has&natPortMin != 0 {
		a.PortMin = d.u16("nat port")
	}
	if has&natPortMax != 0 {
		a.PortMax = d.u16("nat port")
	}
	if a.IPMax == a.IPMin {
		a.IPMax = ""
	}
	if a.PortMax == a.PortMin {
		a.PortMax = 0
	}
	return a
}
