package ofprint

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// These are properties of a continuation. Open vSwitch does not document them (ofp-packet.c), but ovs-ofctl prints
// them.
const (
	contBridge uint16 = 0x8000 + iota
	contStack
	contMirrors
	contConntracked
	contTable
	contCookie
	contActions
	contActionSet
	contODPPort
)

// continuation is where in the pipeline a paused packet has stopped.
type continuation struct {
	bridge      []byte // UUID
	stack       [][]byte
	mirrors     uint32
	conntracked bool
	actions     []string
	actionSet   string
	odpPort     uint32
}

// parseContinuation reads the content of the property: four bytes of padding, then properties. ok is false if Open
// vSwitch would not have sent it.
func parseContinuation(data []byte) (c continuation, ok bool) {
	if len(data) < 4 {
		return c, len(data) == 0
	}
	var table uint8
	var cookie uint64
	for data = data[4:]; len(data) > 0; {
		if len(data) < 4 {
			return c, false
		}
		typ, n := binary.BigEndian.Uint16(data), int(binary.BigEndian.Uint16(data[2:]))
		if n < 4 || n > len(data) {
			return c, false
		}
		body := data[4:n]
		data = data[min((n+7)/8*8, len(data)):]
		var want int // bytes of a body whose length is fixed
		switch typ {
		case contBridge:
			want = 16
		case contMirrors, contODPPort:
			want = 4
		case contTable:
			want = 1
		case contCookie:
			want = 12
		}
		if want != 0 && len(body) != want {
			return c, false
		}
		switch typ {
		case contBridge:
			c.bridge = body
		case contStack:
			c.stack = append(c.stack, body)
		case contMirrors:
			c.mirrors = binary.BigEndian.Uint32(body)
		case contConntracked:
			c.conntracked = true
		case contTable:
			table = body[0]
		case contCookie:
			cookie = binary.BigEndian.Uint64(body[4:])
		case contActions, contActionSet:
			if len(body) < 4 {
				return c, false
			}
			text, ok := actionsText(body[4:])
			if !ok {
				return c, false
			}
			if typ == contActionSet {
				c.actionSet = text
				continue
			}
			c.actions = append(c.actions, fmt.Sprintf("unroll_xlate(table=%d, cookie=%d)", table, cookie))
			if text != "" {
				c.actions = append(c.actions, text)
			}
		case contODPPort:
			c.odpPort = binary.BigEndian.Uint32(body)
		}
	}
	return c, true
}

func (p *printer) continuation(data []byte) {
	c, ok := parseContinuation(data)
	if !ok {
		p.str(" continuation=")
		p.hexArg(data)
		p.str("\n")
		return
	}
	if u := c.bridge; u != nil && !allZero(u) {
		// The switch sends the value as it is in its memory: four words, on most machines with the least significant byte
		// first.
		w := func(i int) uint32 { return binary.LittleEndian.Uint32(u[4*i:]) }
		p.f(" continuation.bridge=%08x-%04x-%04x-%04x-%04x%08x\n", w(0), w(1)>>16, w(1)&0xffff, w(2)>>16, w(2)&0xffff, w(3))
	}
	if len(c.stack) > 0 {
		p.str(" continuation.stack=(top)")
		for _, v := range c.stack {
			text := strings.TrimLeft(hex.EncodeToString(v), "0")
			if text != "" {
				text = "0x" + text
			}
			p.str(" " + cmp.Or(text, "0"))
		}
		p.str(" (bottom)\n")
	}
	if c.mirrors != 0 {
		p.f(" continuation.mirrors=0x%x\n", c.mirrors)
	}
	if c.conntracked {
		p.str(" continuation.conntracked=true\n")
	}
	if len(c.actions) > 0 {
		p.f(" continuation.actions=%s\n", strings.Join(c.actions, ","))
	}
	if c.actionSet != "" {
		p.f(" continuation.action_set=%s\n", c.actionSet)
	}
	if c.odpPort != 0 {
		p.f(" continuation.odp_port=%d\n", c.odpPort)
	}
}

func allZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// actionsText is the text of actions as they are on the wire.
func actionsText(wire []byte) (string, bool) {
	// A packet-out is the message that has a bare list of actions.
	b, err := ofp.AppendMessage(nil, 0, ofp.PacketOut{})
	if err != nil {
		return "", false
	}
	b = append(b, wire...)
	if len(b) > 0xffff {
		return "", false
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[12:], uint16(len(wire)))
	_, m, err := ofp.DecodeMessage(b)
	if err != nil {
		return "", false
	}
	var p printer
	if list := m.(ofp.PacketOut).Actions; len(list) > 0 {
		p.actions(list)
	}
	return string(p.b), true
}
