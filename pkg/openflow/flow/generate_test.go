package flow

import (
	"math/rand/v2"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// generator makes flows at random, the same ones for the same seed.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

func (g generator) value(f ofp.Field) ofp.Value {
	v := ofp.Value{Hi: g.Uint64(), Lo: g.Uint64()}
	if g.IntN(3) == 0 {
		v = ofp.Value{Lo: g.Uint64N(300)}
	}
	return v.And(ofp.Ones(f.Bits()))
}

func (g generator) mask(f ofp.Field) ofp.Value {
	all := ofp.Ones(f.Bits())
	if !f.Maskable() || g.IntN(2) == 0 {
		return all
	}
	// ovs-ofctl does not read back masks of IPv6 addresses that are no prefixes.
	if f.Format() == ofp.FormatIPv6 || g.IntN(2) == 0 {
		n := 1 + g.IntN(f.Bits())
		return ofp.Ones(n).Shl(f.Bits() - n)
	}
	return g.value(f)
}

// matched are the fields that a random match may have, besides what they need.
var matched = func() []ofp.Field {
	skip := map[ofp.Field]bool{
		ofp.PacketType: true, ofp.RecircID: true, ofp.DPHash: true, ofp.ActsetOutput: true, ofp.TunGBPFlags: true,
		ofp.IPFrag: true, ofp.VLANPCP: true, ofp.VLANVID: true, ofp.EthType: true, ofp.IPProto: true, ofp.CTState: true,
		ofp.XXReg4: true, ofp.XXReg5: true, ofp.XXReg6: true, ofp.XXReg7: true,
		ofp.MPLSLabel: true, ofp.MPLSTC: true, ofp.MPLSBOS: true, ofp.MPLSTTL: true, ofp.InPort: true, ofp.ARPOp: true,
		ofp.TunFlags: true, ofp.TCPFlags: true,
	}
	var list []ofp.Field
	for _, f := range ofp.Fields() {
		if !skip[f] && !strings.HasPrefix(f.String(), "ct_nw") && !strings.HasPrefix(f.String(), "ct_ipv6") && !strings.HasPrefix(f.String(), "ct_tp") {
			list = append(list, f)
		}
	}
	return list
}()

func (g generator) match() Match {
	for {
		var conds []Cond
		if g.IntN(2) == 0 {
			conds = append(conds, []Cond{IP(), IPv6(), ARP(), TCP(), UDP(), SCTP(), ICMP(), ICMPv6()}[g.IntN(8)])
		}
		for range g.IntN(5) {
			f := matched[g.IntN(len(matched))]
			v, mask := g.value(f), g.mask(f)
			conds = append(conds, func(b *ofp.MatchBuilder) { b.Set(f, v.And(mask), mask) })
		}
		switch g.IntN(8) {
		case 0:
			conds = append(conds, InPort(ofp.Port(1+g.IntN(60000))))
		case 1:
			conds = append(conds, CTState([]string{"+new+trk", "-est+rpl", "-trk", "+inv+trk"}[g.IntN(4)]))
		case 2:
			conds = append(conds, exact(ofp.VLANVID, uint64(0x1000|g.IntN(4096))))
		case 3:
			conds = append(conds, InPort(ofp.PortLocal), ARPOp(uint16(g.IntN(3))))
		}
		if m := All(conds...); m.Err() == nil {
			return m
		}
	}
}

func (g generator) bits(width int, writable bool) ofp.Bits {
	list := []ofp.Field{ofp.Reg0, ofp.Reg3, ofp.Reg15, ofp.XReg1, ofp.XXReg0, ofp.PktMark, ofp.TunID, ofp.EthSrc, ofp.CTMark, ofp.CTLabel}
	if writable {
		list = list[:8]
	}
	for {
		f := list[g.IntN(len(list))]
		w := width
		if w == 0 {
			w = 1 + g.IntN(min(64, f.Bits()))
		}
		if w <= f.Bits() {
			return ofp.Bits{Field: f, First: g.IntN(f.Bits() - w + 1), Width: w}
		}
	}
}

func (g generator) addr(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + g.IntN(255))
	}
	return string(b)
}

func (g generator) ct() ofp.Action {
	a := ofp.CT{Table: ofp.CTNoTable}
	if g.IntN(2) == 0 {
		a.Table = ofp.Table(g.IntN(254))
	}
	if g.IntN(3) == 0 {
		a.ZoneSrc = g.bits(16, true)
	} else {
		a.Zone = uint16(g.IntN(65536))
	}
	if g.IntN(2) == 0 {
		if g.IntN(2) == 0 {
			a.NAT = &ofp.NAT{}
		}
		return a
	}
	a.Flags = ofp.CTCommit | uint16(g.IntN(2))<<1
	if g.IntN(2) == 0 {
		n := ofp.NAT{Flags: []uint16{ofp.NATSrc, ofp.NATDst}[g.IntN(2)]}
		if g.IntN(3) > 0 {
			size := []int{4, 16}[g.IntN(2)]
			n.IPMin = g.addr(size)
			if g.IntN(2) == 0 {
				n.IPMax = "\xff" + g.addr(size-1)
				n.IPMin = "\x20" + n.IPMin[1:]
			}
			if g.IntN(2) == 0 {
				n.PortMin = uint16(1 + g.IntN(1000))
				if g.IntN(2) == 0 {
					n.PortMax = n.PortMin + uint16(1+g.IntN(1000))
				}
			}
			n.Flags |= []uint16{0, ofp.NATPersistent, ofp.NATHash, ofp.NATRandom}[g.IntN(4)]
		}
		a.NAT = &n
	}
	for range g.IntN(3) {
		f := []ofp.Field{ofp.CTMark, ofp.CTLabel}[g.IntN(2)]
		a.Exec = append(a.Exec, maskedSet(f, g.value(f), g.mask(f)))
	}
	if g.IntN(4) == 0 {
		a.Exec = append(a.Exec, ofp.RegMove{Src: ofp.Bits{Field: ofp.Reg5, Width: 8}, Dst: ofp.Bits{Field: ofp.CTMark, First: 8, Width: 8}})
	}
	return a
}

// settable are fields that can be set without a condition on the packet.
var settable = []ofp.Field{ofp.Reg0, ofp.Reg7, ofp.XReg2, ofp.XXReg1, ofp.EthSrc, ofp.EthDst, ofp.TunID, ofp.TunIPv4Dst, ofp.TunIPv6Dst, ofp.PktMark, ofp.Metadata, ofp.TunGBPID}

func (g generator) action() ofp.Action {
	switch g.IntN(18) {
	case 0:
		return Output(ofp.Port(1 + g.IntN(60000)))
	case 1:
		return Output([]ofp.Port{ofp.PortInPort, ofp.PortNormal, ofp.PortLocal, ofp.PortController, ofp.PortFlood, ofp.PortAll}[g.IntN(6)])
	case 2:
		return ofp.OutputReg{Src: g.bits(0, true), MaxLen: 0xffff}
	case 3, 4:
		f := settable[g.IntN(len(settable))]
		return maskedSet(f, g.value(f), g.mask(f))
	case 5:
		r := g.bits(0, true)
		return Load(Bits(r), g.Uint64()&ofp.Ones(min(r.Width, 64)).Lo)
	case 6:
		src := g.bits(0, false)
		return ofp.RegMove{Src: src, Dst: g.bits(src.Width, true)}
	case 7, 8:
		return g.ct()
	case 9:
		return ofp.CTClear{}
	case 10:
		return Resubmit(ofp.Table(g.IntN(254)))
	case 11:
		return ofp.Resubmit{Port: ofp.Port(1 + g.IntN(60000)), Table: []ofp.Table{ofp.TableAll, 7}[g.IntN(2)]}
	case 12:
		return ofp.Controller{MaxLen: []uint16{0xffff, 128}[g.IntN(2)], Reason: uint8(g.IntN(2)), ID: uint16(g.IntN(9)), Userdata: g.addr(g.IntN(20)), Pause: g.IntN(4) == 0}
	case 13:
		b := g.addr(6 + 8*g.IntN(3))
		return ofp.Note{Data: b}
	case 14:
		return ofp.Group{ID: g.Uint32N(0xffffff00)}
	case 15:
		return g.learn()
	case 16:
		return ofp.SetQueue{Queue: g.Uint32N(1000)}
	default:
		return []ofp.Action{ofp.PopVLAN{}, ofp.PushVLAN{EthType: 0x8100}, ofp.Exit{}, ofp.Push{Src: g.bits(0, true)}, ofp.Pop{Dst: g.bits(0, true)},
			ofp.Clone{Actions: Do(Output(3), Load(Reg(1).Bits(3, 4), 9))}, ofp.CheckPacketLarger{Len: 1400, Dst: g.bits(1, true)}}[g.IntN(7)]
	}
}

func (g generator) learn() ofp.Action {
	a := ofp.Learn{Table: ofp.Table(g.IntN(254)), Priority: uint16(g.IntN(65536)), HardTimeout: uint16(g.IntN(3)), Cookie: g.Uint64N(5), Limit: g.Uint32N(2)}
	a.Specs = []ofp.LearnSpec{
		{Kind: ofp.LearnMatch, Src: ofp.Bits{Field: ofp.EthSrc, Width: 48}, Dst: ofp.Bits{Field: ofp.EthDst, Width: 48}},
		{Kind: ofp.LearnLoad, Src: ofp.Bits{Field: ofp.Reg3, Width: 8}, Dst: ofp.Bits{Field: ofp.Reg1, First: 3, Width: 8}},
		{Kind: ofp.LearnLoad, Value: "\x00\x05", Dst: ofp.Bits{Field: ofp.Reg2, First: 3, Width: 8}},
		{Kind: ofp.LearnMatch, Value: "\x12\x34\x56\x78", Dst: ofp.Bits{Field: ofp.Reg4, Width: 32}},
		{Kind: ofp.LearnMatch, Src: ofp.Bits{Field: ofp.Reg5, First: 3, Width: 7}, Dst: ofp.Bits{Field: ofp.Reg5, First: 3, Width: 7}},
		{Kind: ofp.LearnOutput, Src: ofp.Bits{Field: ofp.Reg6, Width: 32}},
	}
	g.Shuffle(len(a.Specs), func(i, j int) { a.Specs[i], a.Specs[j] = a.Specs[j], a.Specs[i] })
	return a
}

func (g generator) flow() Flow {
	f := Flow{Table: ofp.Table(g.IntN(100)), Priority: uint16(g.IntN(65536)), Match: g.match()}
	if g.IntN(2) == 0 {
		f.Cookie = g.Uint64()
	}
	if g.IntN(4) == 0 {
		f.IdleTimeout, f.HardTimeout, f.Importance = uint16(g.IntN(9)), uint16(g.IntN(9)), uint16(g.IntN(9))
		f.Flags = uint16(g.IntN(2)) * ofp.FlagSendFlowRem
	}
	for range g.IntN(5) {
		f.Actions = append(f.Actions, g.action())
	}
	if g.IntN(5) == 0 {
		f.Actions = append(f.Actions, ofp.WriteMetadata{Value: 5, Mask: 7})
	}
	if g.IntN(2) == 0 {
		f.Actions = append(f.Actions, Goto(f.Table+1+ofp.Table(g.IntN(100))))
	}
	if f.Err() != nil { // ct needs IP, NAT its own version of it
		f.Match = All(IP())
	}
	if f.Err() != nil {
		f.Match = All(IPv6())
	}
	if f.Err() != nil {
		return g.flow()
	}
	if g.IntN(20) == 0 {
		f.Actions = Do(ofp.Conjunction{ID: g.Uint32(), Clause: 1, Clauses: 3})
	}
	return f
}
