// Package ofp encodes and decodes OpenFlow 1.5 messages with Open vSwitch's extensions.
//
// It handles only bytes: no connection, no clock, no text. A match is the string of its OXM fields in one canonical
// form ([Match]), an action is a plain struct, and unknown parts are kept raw and encoded back unchanged. Sources are
// the OpenFlow Switch Specification 1.5.1 and Open vSwitch's nicira-ext.h, meta-flow.h and ofp-actions.
package ofp

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is OpenFlow 1.5's number on the wire.
const Version = 6

// Table is the number of a flow table, 0 to 254.
type Table uint8

// TableAll stands for every table in requests and deletions (OFPTT_ALL).
const TableAll Table = 255

// Port is a port's number in OpenFlow 1.1 and later: 32 bits, reserved ones at the top.
type Port uint32

// Reserved ports (OpenFlow 1.5, 7.2.1).
const (
	PortUnset      Port = 0xfffffff7 // not set in the action set; also the largest unreserved mark
	PortInPort     Port = 0xfffffff8 // back to where the packet came from
	PortTable      Port = 0xfffffff9 // packet-out only: submit to the first table
	PortNormal     Port = 0xfffffffa // ordinary L2 switching
	PortFlood      Port = 0xfffffffb
	PortAll        Port = 0xfffffffc
	PortController Port = 0xfffffffd
	PortLocal      Port = 0xfffffffe // the bridge's own port
	PortAny        Port = 0xffffffff // wildcard in requests
)

// GroupAny is the wildcard of a group number in requests; GroupAll means all groups.
const (
	GroupAny uint32 = 0xffffffff
	GroupAll uint32 = 0xfffffffc
)

// NoBuffer is the buffer_id of a packet that the switch has not buffered.
const NoBuffer uint32 = 0xffffffff

// MAC is an Ethernet address.
type MAC [6]byte

// String prints the address as aa:bb:cc:dd:ee:ff.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// ParseMAC reads aa:bb:cc:dd:ee:ff; each byte may have one or two digits.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	parts := strings.Split(s, ":")
	if len(parts) != len(m) {
		return m, fmt.Errorf("parse MAC %q: want six bytes separated by colons", s)
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 16, 8)
		if err != nil || len(p) > 2 {
			return MAC{}, fmt.Errorf("parse MAC %q: byte %d: %q is not a hexadecimal byte", s, i, p)
		}
		m[i] = byte(v)
	}
	return m, nil
}

// Bits is a range of bits in a field: First counts from the least significant bit.
type Bits struct {
	Field Field
	First int
	Width int
}

// Match contains the OXM fields of a match, without header and padding, in canonical form: fields in the order of
// [Field], no field twice, values masked, no mask of all ones and no field with a mask of all zeros. Equal matches are
// equal strings. The empty Match matches all.
type Match string
