package ofp

import (
	"encoding/binary"
	"fmt"
)

// ErrTypeExperimenter marks an Error whose Code belongs to an experimenter.
const ErrTypeExperimenter uint16 = 0xffff

const onfVendor uint32 = 0x4f4e4600

// ErrorType is the kind of an [Error] (ofp_error_type).
type ErrorType uint16

var errorTypes = [...]string{
	"OFPET_HELLO_FAILED", "OFPET_BAD_REQUEST", "OFPET_BAD_ACTION", "OFPET_BAD_INSTRUCTION", "OFPET_BAD_MATCH",
	"OFPET_FLOW_MOD_FAILED", "OFPET_GROUP_MOD_FAILED", "OFPET_PORT_MOD_FAILED", "OFPET_TABLE_MOD_FAILED",
	"OFPET_QUEUE_OP_FAILED", "OFPET_SWITCH_CONFIG_FAILED", "OFPET_ROLE_REQUEST_FAILED", "OFPET_METER_MOD_FAILED",
	"OFPET_TABLE_FEATURES_FAILED", "OFPET_BAD_PROPERTY", "OFPET_ASYNC_CONFIG_FAILED", "OFPET_FLOW_MONITOR_FAILED",
	"OFPET_BUNDLE_FAILED",
}

// String is the type's name in the specification, such as OFPET_BAD_MATCH.
func (t ErrorType) String() string {
	switch {
	case int(t) < len(errorTypes):
		return errorTypes[t]
	case uint16(t) == ErrTypeExperimenter:
		return "OFPET_EXPERIMENTER"
	}
	return "error_type_" + itoa(uint64(t))
}

// Name returns the error's name in Open vSwitch, such as OFPBMC_BAD_PREREQ, or its numbers.
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

// ErrorByName returns the error of OpenFlow 1.5, or of Nicira's, with a name such as OFPBMC_BAD_PREREQ. ok is false for
// unknown names.
func ErrorByName(name string) (e Error, ok bool) {
	for key, n := range errorNames {
		if n == name {
			return Error{ErrType: key[0], Code: key[1]}, true
		}
	}
	for code, n := range niciraErrors {
		if n == name {
			return Error{ErrType: ErrTypeExperimenter, Code: code, Experimenter: nxVendor}, true
		}
	}
	return Error{}, false
}

// Offender is the message that an [Error] refuses, or its beginning. The error contains at least the first 64 bytes, or
// all of a shorter message.
type Offender struct {
	Version uint8
	Type    Type
	Name    string // the type and, of multipart and experimenter messages, their own
	XID     uint32
	Len     int     // of the whole message
	Whole   bool    // all of it is there
	Message Message // nil where part of it is missing or it cannot be decoded
}

// Offender reads the message that the error refuses. ok is false if the error does not contain a header. For a failed
// hello the data is text.
func (m Error) Offender() (o Offender, ok bool) {
	if len(m.Data) < 8 || m.ErrType == 0 {
		return o, false
	}
	o = Offender{Version: m.Data[0], Type: Type(m.Data[1]), XID: binary.BigEndian.Uint32(m.Data[4:]),
		Len: MessageLen(m.Data)}
	o.Name = nameOf(m.Data)
	if o.Len < 8 || o.Len > len(m.Data) {
		return o, true
	}
	o.Whole = true
	if _, whole, err := DecodeMessage(m.Data[:o.Len]); err == nil {
		o.Message = whole
	}
	return o, true
}

// nameOf names the message that b begins with; b has its header at least.
func nameOf(b []byte) string {
	t := Type(b[1])
	switch {
	case b[0] == Version && len(b) >= 10 && (t == TypeMultipartRequest || t == TypeMultipartReply):
		kind := MultipartType(binary.BigEndian.Uint16(b[8:]))
		if kind == MultipartExperimenter && len(b) >= 24 {
			return fmt.Sprintf("%s (experimenter %#x, type %d)", t, binary.BigEndian.Uint32(b[16:]),
				binary.BigEndian.Uint32(b[20:]))
		}
		return fmt.Sprintf("%s (%s)", t, kind)
	case t == TypeExperimenter && len(b) >= 16:
		vendor, sub := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
		if name := niciraNames[sub]; vendor == nxVendor && name != "" {
			return fmt.Sprintf("%s (%s)", t, name)
		}
		return fmt.Sprintf("%s (%#x, type %d)", t, vendor, sub)
	case t == TypeBundleAdd && b[0] == Version && len(b) >= 24:
		return fmt.Sprintf("%s (%s)", t, nameOf(b[16:]))
	}
	return t.String()
}

// Error returns the text of a switch's refusal: its name and meaning. If the error contains the beginning of the
// refused message, the text names that message too.
func (m Error) Error() string {
	what, why := "a message", m.Name()
	if len(m.Data) >= 8 && m.ErrType != 0 {
		what = nameOf(m.Data)
	}
	if meaning := m.Meaning(); meaning != "" {
		why += " (" + meaning + ")"
	}
	return "the switch refused " + what + ": " + why
}
