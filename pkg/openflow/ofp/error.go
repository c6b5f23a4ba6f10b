package ofp

import "fmt"

// ErrTypeExperimenter marks an Error whose Code belongs to an experimenter.
const ErrTypeExperimenter uint16 = 0xffff

const onfVendor uint32 = 0x4f4e4600

// ErrorType is the kind of an [Error] (ofp_error_type).
type ErrorType uint16

// Offender is the message that an [Error] refuses, as far as the error brings it back: at least
// 64 bytes of it, or all where it is shorter.
type Offender struct {
	Version uint8
	Type    Type
	Name    string // the type and, of multipart and experimenter messages, their own
	XID     uint32
	Len     int     // of the whole message
	Whole   bool    // all of it is there
	Message Message // where all of it is there and it can be decoded
}

// Name is the error's name in Open vSwitch, such as OFPBMC_BAD_PREREQ; where it has none, its
// numbers.
func (m Error) Name() string {
	var name string
	switch {
	case m.ErrType != ErrTypeExperimenter:
		name = errorNames[[2]uint16{m.ErrType, m.Code}]
	case m.Experimenter == nxVendor:
		name = niciraErrors[m.Code]
	case m.Experimenter == onfVendor:
		name = onfErrors[m.Code]
	}
	if name != "" {
		return name
	}
	if m.ErrType == ErrTypeExperimenter {
		return fmt.Sprintf("experimenter %#08x error %d", m.Experimenter, m.Code)
	}
	return fmt.Sprintf("error type %d code %d", m.ErrType, m.Code)
}

// Error makes a switch's refusal an ordinary error: its name and, where the first bytes of the
// refused message are there, that message's type.
func (m Error) Error() string {
	if len(m.Data) >= 2 {
		return fmt.Sprintf("the switch refused %s: %s", Type(m.Data[1]), m.Name())
	}
	return "the switch refused a message: " + m.Name()
}
