package ofp

import (
	"errors"
	"fmt"
)

// Output sends the packet to a port. MaxLen matters only for PortController: how many bytes
// to send (0xffff: all of them).
type Output struct {
	Port   Port
	MaxLen uint16
}

// OutputReg sends the packet to the port whose number is in Src (NXAST_OUTPUT_REG).
type OutputReg struct {
	Src    Bits
	MaxLen uint16
}

// OutputTrunc sends the first MaxLen bytes of the packet, at least 14, to a port
// (NXAST_OUTPUT_TRUNC).
type OutputTrunc struct {
	Port   Port
	MaxLen uint32
}

// Group hands the packet to a group.
type Group struct{ ID uint32 }

// SetQueue chooses the queue; PopQueue goes back to the original one.
type SetQueue struct{ Queue uint32 }

// PopQueue undoes SetQueue (NXAST_POP_QUEUE).
type PopQueue struct{}

// Resubmit looks the packet up in another table, or as if it came from another port. PortInPort keeps the port, and
// TableAll keeps the table. WithCT uses the original tuple.
type Resubmit struct {
	Port   Port
	Table  Table
	WithCT bool
}

// Reasons of a packet-in.
const (
	ReasonNoMatch     uint8 = 0
	ReasonAction      uint8 = 1
	ReasonInvalidTTL  uint8 = 2
	ReasonActionSet   uint8 = 3
	ReasonGroup       uint8 = 4
	ReasonPacketOut   uint8 = 5
	ReasonExplicitMis uint8 = 6
)

// Controller sends the packet to a controller with all options of NXAST_CONTROLLER2. MaxLen 0 sends no bytes at all;
// use 0xffff for the whole packet.
type Controller struct {
	MaxLen   uint16
	ID       uint16
	Reason   uint8
	Userdata string
	Pause    bool
	MeterID  uint32
}

// Directions of a [Sample].
const (
	SampleDefault uint8 = 0 // the switch decides by the sampling port
	SampleIngress uint8 = 1
	SampleEgress  uint8 = 2
)

// Sample sends a share of the packets, Probability of 65535, to a set of IPFIX collectors (NXAST_SAMPLE, and its second
// and third version if Port or Direction need them). Port PortAny means no port. The observation's domain and point are
// ObsDomain and ObsPoint. If ObsDomainSrc or ObsPointSrc has a width, the value comes from that range of up to 32 bits
// (NXAST_SAMPLE4, Open vSwitch 3.4).
type Sample struct {
	Probability               uint16
	CollectorSet              uint32
	ObsDomain, ObsPoint       uint32
	ObsDomainSrc, ObsPointSrc Bits
	Port                      Port
	Direction                 uint8
}

func (a Output) check() error { return a.Port.valid() }
func (a Output) appendTo(e *encoder) {
	s := e.actionStart(actOutput)
	e.u32(uint32(a.Port))
	e.u16(a.MaxLen)
	e.actionEnd(s)
}

func (a OutputReg) check() error {
	if err := a.Src.Valid(); err != nil {
		return err
	}
	if a.Src.Width > 64 {
		return fmt.Errorf("output: %d bits of %s are more than the 64 that the action can name", a.Src.Width, a.Src.Field)
	}
	return nil
}

func (a OutputReg) appendTo(e *encoder) {
	if !a.Src.Field.short() {
		s := e.nicira(nxOutputReg2)
		e.u16(a.Src.ofsNbits())
		e.u16(a.MaxLen)
		e.nxHeader(a.Src.Field)
		e.fill(s, 24)
		e.actionEnd(s)
		return
	}
	s := e.nicira(nxOutputReg)
	e.u16(a.Src.ofsNbits())
	e.nxHeader(a.Src.Field)
	e.u16(a.MaxLen)
	e.zero(6)
	e.actionEnd(s)
}

func (d *decoder) outputReg(sub uint16) Action {
	var a OutputReg
	a.Src.setOfsNbits(d.u16("ofs_nbits"))
	if sub == nxOutputReg2 {
		a.MaxLen = d.u16("max_len")
		a.Src.Field = d.field("source")
	} else {
		a.Src.Field = d.field("source")
		a.MaxLen = d.u16("max_len")
	}
	if a.Src.Field == 0 {
		return nil
	}
	return a
}

func (a OutputTrunc) check() error {
	if a.MaxLen < 14 {
		return fmt.Errorf("output: max_len %d is less than the 14 bytes of an Ethernet header", a.MaxLen)
	}
	return a.Port.valid()
}

func (a OutputTrunc) appendTo(e *encoder) {
	s := e.nicira(nxOutputTrunc)
	e.port16(a.Port)
	e.u32(a.MaxLen)
	e.actionEnd(s)
}

func (Group) check() error { return nil }
func (a Group) appendTo(e *encoder) {
	s := e.actionStart(actGroup)
	e.u32(a.ID)
	e.actionEnd(s)
}

func (SetQueue) check() error { return nil }
func (a SetQueue) appendTo(e *encoder) {
	s := e.actionStart(actSetQueue)
	e.u32(a.Queue)
	e.actionEnd(s)
}

func (PopQueue) check() error        { return nil }
func (PopQueue) appendTo(e *encoder) { e.actionEnd(e.nicira(nxPopQueue)) }
func (a Resubmit) check() error      { return a.Port.fits16() }
func (a Resubmit) appendTo(e *encoder) {
	sub := nxResubmitTable
	switch {
	case a.WithCT:
		sub = nxResubmitCT
	case a.Table == TableAll:
		sub = nxResubmit
	}
	s := e.nicira(sub)
	e.port16(a.Port)
	if sub == nxResubmit {
		e.zero(4)
	} else {
		e.u8(uint8(a.Table))
		e.zero(3)
	}
	e.actionEnd(s)
}

func (Controller) check() error { return nil }
func (a Controller) appendTo(e *encoder) {
	if out, ok := a.canonical().(Output); ok {
		out.appendTo(e)
		return
	}
	if a.Userdata == "" && !a.Pause && a.MeterID == 0 {
		s := e.nicira(nxController)
		e.u16(a.MaxLen)
		e.u16(a.ID)
		e.u8(a.Reason)
		e.zero(1)
		e.actionEnd(s)
		return
	}
	s := e.nicira(nxController2)
	e.zero(6)
	if a.MaxLen != 0xffff {
		e.prop16(0, a.MaxLen)
	}
	if a.ID != 0 {
		e.prop16(1, a.ID)
	}
	if a.Reason != ReasonAction {
		p := e.propStart(2)
		e.u8(a.Reason)
		e.propEnd(p)
	}
	if a.Userdata != "" {
		p := e.propStart(3)
		e.str(a.Userdata)
		e.propEnd(p)
	}
	if a.Pause {
		e.propEnd(e.propStart(4))
	}
	if a.MeterID != 0 {
		p := e.propStart(5)
		e.u32(a.MeterID)
		e.propEnd(p)
	}
	e.actionEnd(s)
}

func (d *decoder) controller2() Action {
	a := Controller{MaxLen: 0xffff, Reason: ReasonAction}
	d.skip(6)
	known := true
	for d.left() > 0 {
		typ, p := d.prop("property")
		switch typ {
		case 0:
			a.MaxLen = p.u16("max_len")
		case 1:
			a.ID = p.u16("controller id")
		case 2:
			a.Reason = p.u8("reason")
		case 3:
			a.Userdata = string(p.take("userdata", p.left()))
		case 4:
			a.Pause = true
		case 5:
			a.MeterID = p.u32("meter id")
		default:
			known = false
		}
	}
	if !known {
		return nil
	}
	return a.canonical()
}

// canonical returns an Output if the action has no more than an Output.
func (a Controller) canonical() Action {
	if a.Reason == ReasonAction && a.ID == 0 && a.Userdata == "" && !a.Pause && a.MeterID == 0 {
		return Output{PortController, a.MaxLen}
	}
	return a
}

func (a Sample) check() error {
	if a.Probability == 0 {
		return errors.New("sample: probability is 0, want 1 to 65535")
	}
	if a.Direction > SampleEgress {
		return fmt.Errorf("sample: there is no direction %d", a.Direction)
	}
	for _, r := range []Bits{a.ObsDomainSrc, a.ObsPointSrc} {
		if r.Width == 0 {
			continue
		}
		if err := r.narrow(); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		if r.Width > 32 {
			return fmt.Errorf("sample: an observation's domain and point have 32 bits, %s gives %d", r.Field, r.Width)
		}
	}
	return a.Port.fits16()
}

func (a Sample) appendTo(e *encoder) {
	sub := nxSample
	switch {
	case a.ObsDomainSrc.Width != 0 || a.ObsPointSrc.Width != 0:
		a.append4(e)
		return
	case a.Direction != SampleDefault:
		sub = nxSample3
	case a.Port != PortAny:
		sub = nxSample2
	}
	s := e.nicira(sub)
	e.u16(a.Probability)
	e.u32(a.CollectorSet)
	e.u32(a.ObsDomain)
	e.u32(a.ObsPoint)
	if sub != nxSample {
		e.port16(a.Port)
		e.u8(a.Direction)
		e.zero(5)
	}
	e.actionEnd(s)
}

// append4 appends NXAST_SAMPLE4, in which each number has a mark: a constant or a field.
func (a Sample) append4(e *encoder) {
	s := e.nicira(nxSample4)
	e.u16(a.Probability)
	e.u32(a.CollectorSet)
	e.observation(a.ObsDomainSrc, a.ObsDomain)
	e.observation(a.ObsPointSrc, a.ObsPoint)
	e.port16(a.Port)
	e.u8(a.Direction)
	e.zero(5)
	e.actionEnd(s)
}

// observation appends a number, or the range that holds it.
func (e *encoder) observation(src Bits, v uint32) {
	if src.Width == 0 {
		e.u32(0)
		e.u32(v)
		return
	}
	e.nxHeader(src.Field)
	e.u16(src.ofsNbits())
	e.zero(2)
}

func (d *decoder) sample(sub uint16) Action {
	a := Sample{
		Probability: d.u16("probability"), CollectorSet: d.u32("collector_set_id"),
		ObsDomain: d.u32("obs_domain_id"), ObsPoint: d.u32("obs_point_id"), Port: PortAny,
	}
	if sub != nxSample {
		a.Port = port32(d.u16("sampling_port"))
		if n := d.u8("direction"); sub == nxSample3 {
			a.Direction = n
		}
	}
	return a
}

// sample4 reads NXAST_SAMPLE4; nil where it names a field that is not known.
func (d *decoder) sample4() Action {
	a := Sample{Probability: d.u16("probability"), CollectorSet: d.u32("collector_set_id")}
	var known [2]bool
	a.ObsDomainSrc, a.ObsDomain, known[0] = d.observation("obs_domain_id")
	a.ObsPointSrc, a.ObsPoint, known[1] = d.observation("obs_point_id")
	a.Port = port32(d.u16("sampling_port"))
	a.Direction = d.u8("direction")
	if !known[0] || !known[1] {
		return nil
	}
	return a
}

// observation reads a number, or the range that the number is in. known is false for an unknown field.
func (d *decoder) observation(name string) (src Bits, v uint32, known bool) {
	at := *d
	if d.u32(name+" source") == 0 {
		return src, d.u32(name), true
	}
	src.Field = at.field(name + " source")
	src.setOfsNbits(d.u16(name + " range"))
	d.skip(2)
	return src, 0, !d.ok() || src.Field != 0
}
