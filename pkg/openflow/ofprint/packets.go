package ofprint

import (
	"strconv"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

var packetInReasons = []string{"no_match", "action", "invalid_ttl", "action_set", "group", "packet_out", "", ""}

func packetInReason(reason uint8) string {
	if int(reason) < len(packetInReasons) {
		return packetInReasons[reason]
	}
	return strconv.Itoa(int(reason))
}

// packetInHead is what all packet-ins begin with.
func (p *printer) packetInHead(m ofp.PacketIn2) {
	if m.Table != 0 {
		p.f(" table_id=%d", m.Table)
	}
	if m.Cookie != ofp.NoCookie {
		p.f(" cookie=0x%x", m.Cookie)
	}
	p.f(" total_len=%d ", m.FullLen)
	p.match(m.Metadata, flow.DefaultPriority)
	p.f(" (via %s) data_len=%d", packetInReason(m.Reason), len(m.Data))
	if m.BufferID == ofp.NoBuffer {
		p.str(" (unbuffered)")
		if int(m.FullLen) != len(m.Data) {
			p.str(" (***total_len != data_len***)")
		}
	} else {
		p.f(" buffer=0x%08x", m.BufferID)
		if int(m.FullLen) < len(m.Data) {
			p.str(" (***total_len < data_len***)")
		}
	}
	p.str("\n")
}

func (p *printer) packetIn(m ofp.PacketIn) {
	p.packetInHead(ofp.PacketIn2{
		Data: m.Data, FullLen: uint32(m.TotalLen), BufferID: m.BufferID, Table: m.Table,
		Cookie: m.Cookie, Reason: m.Reason, Metadata: m.Match,
	})
	p.packet(m.Data, m.Match)
}

func (p *printer) packetIn2(m ofp.PacketIn2) {
	if m.FullLen == 0 {
		m.FullLen = uint32(len(m.Data))
	}
	if m.BufferID == 0 {
		m.BufferID = ofp.NoBuffer
	}
	p.packetInHead(m)
	if len(m.Userdata) > 0 {
		p.str(" userdata=")
		p.hexArg(m.Userdata)
		p.str("\n")
	}
	p.continuation(m.Continuation)
	p.packet(m.Data, m.Metadata)
}

func (p *printer) packetOut(m ofp.PacketOut) {
	var b ofp.MatchBuilder
	b.Exact(ofp.InPort, ofp.Value{Lo: uint64(m.InPort)})
	for f := range m.Match.All() {
		if f.Field != 0 { // what is not known has no text
			b.Set(f.Field, f.Value, f.Mask)
		}
	}
	match, err := b.Match()
	if err != nil {
		match = m.Match
	}
	p.str(" ")
	p.match(match, flow.DefaultPriority)
	p.str(" actions=")
	p.actions(m.Actions)
	if m.BufferID != ofp.NoBuffer && m.BufferID != 0 {
		p.f(" buffer=0x%08x", m.BufferID)
		return
	}
	p.f(" data_len=%d", len(m.Data))
	if p.verbosity > 0 && len(m.Data) > 0 {
		p.str("\n")
		p.packet(m.Data, m.Match)
		return
	}
	if p.verbosity > 2 {
		p.hexDump(m.Data, false)
	}
}

// packet prints a packet in words, and in bytes where verbosity asks for it.
func (p *printer) packet(data []byte, metadata ofp.Match) {
	if p.verbosity > 0 {
		var packetType uint32
		if v, _, ok := metadata.Get(ofp.PacketType); ok {
			packetType = uint32(v.Lo)
		}
		dissect(data, packetType).text(p)
	}
	if p.verbosity > 2 {
		p.hexDump(data, false)
	}
}
