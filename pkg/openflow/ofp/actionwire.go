package ofp

import "fmt"

// Action types (OpenFlow 1.5, 7.2.6, ofp_action_type). Types up to actSetMPLSTTL are of OpenFlow 1.1. Open vSwitch
// still accepts them, and has nothing newer for actSetMPLSTTL.
const (
	actOutput       uint16 = 0
	actSetVLANVID   uint16 = 1
	actSetVLANPCP   uint16 = 2
	actSetEthSrc    uint16 = 3
	actSetEthDst    uint16 = 4
	actSetIPSrc     uint16 = 5
	actSetIPDst     uint16 = 6
	actSetTOS       uint16 = 7
	actSetECN       uint16 = 8
	actSetTPSrc     uint16 = 9
	actSetTPDst     uint16 = 10
	actSetMPLSLabel uint16 = 13
	actSetMPLSTC    uint16 = 14
	actSetMPLSTTL   uint16 = 15
	actDecMPLSTTL   uint16 = 16
	actPushVLAN     uint16 = 17
	actPopVLAN      uint16 = 18
	actPushMPLS     uint16 = 19
	actPopMPLS      uint16 = 20
	actSetQueue     uint16 = 21
	actGroup        uint16 = 22
	actSetTTL       uint16 = 23
	actDecTTL       uint16 = 24
	actSetField     uint16 = 25
	actCopyField    uint16 = 28
	actMeter        uint16 = 29
	actVendor       uint16 = 0xffff
)

// Subtypes of Nicira's actions (Open vSwitch's ofp-actions.c).
const (
	nxResubmit       uint16 = 1
	nxSetTunnel      uint16 = 2
	nxPopQueue       uint16 = 5
	nxRegMove        uint16 = 6
	nxRegLoad        uint16 = 7
	nxNote           uint16 = 8
	nxSetTunnel64    uint16 = 9
	nxMultipath      uint16 = 10
	nxBundle         uint16 = 12
	nxBundleLoad     uint16 = 13
	nxResubmitTable  uint16 = 14
	nxOutputReg      uint16 = 15
	nxLearn          uint16 = 16
	nxExit           uint16 = 17
	nxFinTimeout     uint16 = 19
	nxController     uint16 = 20
	nxDecTTLIDs      uint16 = 21
	nxWriteMetadata  uint16 = 22
	nxPush           uint16 = 27
	nxPop            uint16 = 28
	nxSample         uint16 = 29
	nxOutputReg2     uint16 = 32
	nxRegLoad2       uint16 = 33
	nxConjunction    uint16 = 34
	nxCT             uint16 = 35
	nxNAT            uint16 = 36
	nxController2    uint16 = 37
	nxSample2        uint16 = 38
	nxOutputTrunc    uint16 = 39
	nxSample3        uint16 = 41
	nxClone          uint16 = 42
	nxCTClear        uint16 = 43
	nxResubmitCT     uint16 = 44
	nxLearn2         uint16 = 45
	nxEncap          uint16 = 46
	nxDecap          uint16 = 47
	nxDecNSHTTL      uint16 = 48
	nxCheckPktLarger uint16 = 49
	nxDeleteField    uint16 = 50
	nxSample4        uint16 = 51
)

// actionStart begins an action; actionEnd pads it and writes its length.
func (e *encoder) actionStart(typ uint16) int {
	start := len(e.b)
	e.u16(typ)
	e.u16(0)
	return start
}

func (e *encoder) nicira(sub uint16) int {
	start := e.actionStart(actVendor)
	e.u32(nxVendor)
	e.u16(sub)
	return start
}

func (e *encoder) actionEnd(start int) {
	e.pad8(start)
	e.len16(start, 2)
}

// fill pads an action of a fixed size.
func (e *encoder) fill(start, size int) { e.zero(size - (len(e.b) - start)) }

func (e *encoder) simple(typ uint16) {
	s := e.actionStart(typ)
	e.actionEnd(s)
}

// header appends the OXM header of a field, as OpenFlow's own actions use it.
func (e *encoder) header(f Field) { e.b = appendOXMHeader(e.b, f, false, f.Len()) }

// nxHeader appends the NXM header of a field, as Nicira's actions use it.
func (e *encoder) nxHeader(f Field) { e.b = appendHeader(e.b, f.nxm(), false, f.Len()) }

// prop reads a property's header and returns a decoder of its value.
func (d *decoder) prop(field string) (typ uint16, value decoder) {
	at := *d
	typ = d.u16(field + " type")
	n := int(d.u16(field + " length"))
	if d.ok() && n < 4 {
		at.fail(field+" length", "%d is less than 4", n)
	}
	value = d.sub(field, n-4)
	if pad := (8 - n%8) % 8; d.ok() {
		d.skip(pad)
	}
	return typ, value
}

// Properties: type, length without padding, value, padding to 8.
func (e *encoder) propStart(typ uint16) int { return e.actionStart(typ) }
func (e *encoder) propEnd(start int)        { e.len16(start, 2); e.pad8(start) }

// prop16 appends a property of 16 bits, whose padding counts to its length as in OVS.
func (e *encoder) prop16(typ, v uint16) {
	p := e.propStart(typ)
	e.u16(v)
	e.zero(2)
	e.propEnd(p)
}

// Valid names the fault with the range, nil when nothing is.
func (r Bits) Valid() error {
	switch {
	case !r.Field.exists():
		return fmt.Errorf("field %d does not exist", r.Field)
	case r.First < 0 || r.Width < 1 || r.First+r.Width > r.Field.ActionBits():
		return fmt.Errorf("%s: bits %d to %d are not within its %d bits", r.Field, r.First, r.First+r.Width-1,
			r.Field.ActionBits())
	}
	return nil
}

// writable is Valid for a range that an action writes.
func (r Bits) writable() error {
	if err := r.Valid(); err != nil {
		return err
	}
	if !r.Field.Writable() {
		return fmt.Errorf("%s: cannot be written", r.Field)
	}
	return nil
}

// narrow checks a range for an action that has only 16 bits for it, and a field header of four bytes. It also does the
// checks of Valid.
func (r Bits) narrow() error {
	if err := r.Valid(); err != nil {
		return err
	}
	if r.Width > 64 {
		return fmt.Errorf("%s: %d bits are more than the 64 that the action can name", r.Field, r.Width)
	}
	return r.Field.needsShort()
}

func (f Field) needsShort() error {
	if !f.short() {
		return fmt.Errorf("%s: is an experimenter's field, which the action has no room for", f)
	}
	return nil
}

// ofsNbits is a range as Nicira's older actions write it.
func (r Bits) ofsNbits() uint16 { return uint16(r.First<<6 | (r.Width - 1)) }

// setOfsNbits reads the two-byte range of Nicira's older actions.
func (r *Bits) setOfsNbits(v uint16) { r.First, r.Width = int(v>>6), int(v&0x3f)+1 }

// port16 is a port's number in OpenFlow 1.0, which Nicira's actions still use.
func (e *encoder) port16(p Port) { e.u16(uint16(p)) }

// fits16 is an error where a port has no number in OpenFlow 1.0.
func (p Port) fits16() error {
	if p >= 0xff00 && p < 0xffffff00 {
		return fmt.Errorf("port %d does not exist: ports end at 65279, reserved ones begin at 0xffffff00", uint32(p))
	}
	return nil
}

func port32(p uint16) Port {
	if p >= 0xff00 {
		return Port(0xffff0000 | uint32(p))
	}
	return Port(p)
}

// valid is an error where packets cannot be sent to the port.
func (p Port) valid() error {
	if err := p.fits16(); err != nil {
		return err
	}
	if p >= 0xffffff00 && (p < PortInPort || p == PortAny) {
		return fmt.Errorf("nothing can be sent to port %#x", uint32(p))
	}
	return nil
}

// field reads an OXM header that names a field; 0 where the field is not known.
func (d *decoder) field(name string) Field {
	at := *d
	h := d.take(name, 4)
	if !d.ok() {
		return 0
	}
	if h[0] == 0xff && h[1] == 0xff {
		d.take(name, 4)
		if !d.ok() {
			return 0
		}
		h = at.buf[:8]
	}
	f, hasMask, length, _, err := oxmHeader(h)
	switch {
	case err != nil:
		at.fail(name, "%v", err)
	case f.Long() && !hasMask && length >= 1 && length <= longest: // as long as the TLV table says
	case f != 0 && (hasMask || length != f.Len()):
		at.fail(name, "%s: an OXM header without mask and with length %d was expected", f, f.Len())
	}
	return f
}
