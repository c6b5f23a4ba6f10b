package flow

import (
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// liveOptions is the number of tunnel options in the switch of the live tests, from tun_metadata0.
const liveOptions = 4

// readable and writable are fields that actions read and write.
var readable, writable = func() (r, w []ofp.Field) {
	for _, f := range ofp.Fields() {
		if f == ofp.RecircID || !known(f) || f >= ofp.TunMetadata0+liveOptions && f <= ofp.TunMetadata63 {
			continue
		}
		r = append(r, f)
		if f.Writable() {
			w = append(w, f)
		}
	}
	return r, w
}()

// bits returns a range of some field with the given number of bits; 0 means any number. With narrow, it fits into
// Nicira's older actions.
func (g generator) bits(width int, list []ofp.Field, narrow bool) ofp.Bits {
	for {
		f := list[g.IntN(len(list))]
		if g.IntN(2) == 0 {
			f = ofp.Reg0 + ofp.Field(g.IntN(16)) // what most flows use
		}
		most := f.ActionBits()
		if f.Long() {
			most = 128
		}
		if narrow {
			most = min(64, most)
		}
		w := width
		if w == 0 {
			w = 1 + g.IntN(most)
		}
		r := ofp.Bits{Field: f, First: 0, Width: w}
		if w > most || narrow && f.Header() == "" {
			continue
		}
		r.First = g.IntN(f.ActionBits() - w + 1)
		if f.Long() {
			r.First = g.IntN(64)
		}
		return r
	}
}

func (g generator) setField() ofp.Action {
	for {
		f := writable[g.IntN(len(writable))]
		if f.Long() {
			v, mask := g.option(20)
			return ofp.SetField{Field: f, Value: v, Mask: mask}
		}
		mask := g.mask(f)
		a := maskedSet(f, g.value(f), mask)
		if ofp.CheckActions(Do(a)) == nil || f == ofp.CTMark || f == ofp.CTLabel {
			return a
		}
	}
}

func (g generator) group() ofp.Action {
	if g.live {
		return ofp.Group{ID: 1 + g.Uint32N(5)}
	}
	return ofp.Group{ID: g.Uint32()}
}

// port is one that packets can be sent to.
func (g generator) port() ofp.Port {
	if g.IntN(2) == 0 {
		return ofp.Port(g.IntN(0xff00))
	}
	return pick(g, ofp.PortInPort, ofp.PortNormal, ofp.PortLocal, ofp.PortController, ofp.PortFlood, ofp.PortAll,
		ofp.PortTable)
}

func (g generator) nat() ofp.NAT {
	n := ofp.NAT{Flags: pick(g, ofp.NATSrc, ofp.NATDst)}
	if g.IntN(4) == 0 {
		return n
	}
	n.Flags |= pick(g, 0, ofp.NATPersistent)
	n.Flags |= pick(g, 0, ofp.NATHash, ofp.NATRandom)
	size := pick(g, 4, 16)
	n.IPMin = "\x20" + g.bytes(size-1)
	if g.IntN(2) == 0 {
		n.IPMax = "\xff" + g.bytes(size-1)
	}
	if g.IntN(2) == 0 {
		n.PortMin = uint16(1 + g.IntN(1000))
		if g.IntN(2) == 0 {
			n.PortMax = n.PortMin + uint16(1+g.IntN(60000))
		}
	}
	return n
}

func (g generator) ct() ofp.Action {
	a := ofp.CT{Table: pick(g, ofp.CTNoTable, ofp.Table(g.IntN(255)))}
	if g.IntN(3) == 0 {
		a.ZoneSrc = g.bits(16, readable, true)
	} else {
		a.Zone = uint16(g.IntN(65536))
	}
	a.ALG = pick(g, uint16(0), 0, 0, 21, 69)
	if g.IntN(2) == 0 {
		if g.IntN(2) == 0 {
			a.NAT = &ofp.NAT{}
		}
		return a
	}
	a.Flags = ofp.CTCommit | uint16(g.IntN(2))<<1
	if g.IntN(2) == 0 {
		n := g.nat()
		a.NAT = &n
	}
	for range g.IntN(3) {
		f := pick(g, ofp.CTMark, ofp.CTLabel)
		a.Exec = append(a.Exec, maskedSet(f, g.value(f), g.mask(f)))
	}
	if g.IntN(4) == 0 {
		a.Exec = append(a.Exec,
			ofp.RegMove{Src: ofp.Bits{Field: ofp.Reg5, Width: 8}, Dst: ofp.Bits{Field: ofp.CTMark, First: 8, Width: 8}})
	}
	if g.IntN(8) == 0 && len(a.Exec) > 0 && a.NAT == nil {
		a.Exec = append(a.Exec, g.nat())
	}
	return a
}

func (g generator) learn() ofp.Action {
	a := ofp.Learn{
		Table: ofp.Table(g.IntN(255)), Priority: pick(g, uint16(DefaultPriority), uint16(g.IntN(65536))),
		Cookie:      pick(g, 0, g.Uint64()),
		IdleTimeout: uint16(g.IntN(3)), HardTimeout: uint16(g.IntN(3)), FinIdle: uint16(g.IntN(3)),
		FinHard: uint16(g.IntN(3)),
		Limit:   pick(g, 0, g.Uint32N(1<<31)), Flags: uint16(g.IntN(4)),
	}
	if g.IntN(4) == 0 {
		a.Flags |= ofp.LearnWriteResult
		a.Result = g.bits(1, writable, false)
	}
	for range g.IntN(6) {
		x := ofp.LearnSpec{Kind: pick(g, ofp.LearnMatch, ofp.LearnLoad, ofp.LearnOutput)}
		if x.Kind == ofp.LearnOutput {
			x.Src = g.bits(0, readable, true)
			a.Specs = append(a.Specs, x)
			continue
		}
		x.Dst = g.bits(0, writable, true)
		if g.IntN(3) == 0 {
			x.Dst.First, x.Dst.Width = 0, x.Dst.Field.ActionBits()
		}
		if x.Dst.Field.Long() {
			x.Dst.First, x.Dst.Width = 0, 1+g.IntN(64)
		}
		if g.IntN(2) == 0 {
			x.Src = g.bits(x.Dst.Width, readable, false)
			if x.Src.Field.Header() == "" {
				continue
			}
		} else {
			v := g.value(x.Dst.Field).And(ofp.Ones(x.Dst.Width))
			x.Value = string(v.Append(nil, (x.Dst.Width+15)/16*2))
		}
		a.Specs = append(a.Specs, x)
	}
	return a
}

// generators make each kind of action with all that it can say.
func generators() []func(g generator) ofp.Action {
	return []func(g generator) ofp.Action{
		func(g generator) ofp.Action { return Output(g.port()) },
		func(g generator) ofp.Action { return ofp.Output{Port: ofp.PortController, MaxLen: uint16(g.Uint32())} },
		func(g generator) ofp.Action { return ofp.OutputReg{Src: g.bits(0, readable, true), MaxLen: 0xffff} },
		func(g generator) ofp.Action {
			return ofp.OutputTrunc{Port: pick(g, ofp.Port(g.IntN(0xff00)), ofp.PortLocal, ofp.PortInPort),
				MaxLen: 14 + g.Uint32N(1<<20)}
		},
		func(g generator) ofp.Action { return g.group() },
		func(g generator) ofp.Action {
			return ofp.Controller{
				MaxLen: pick(g, 0xffff, uint16(g.Uint32())), Reason: uint8(g.IntN(6)), ID: pick(g, 0, uint16(g.Uint32())),
				Userdata: g.bytes(pick(g, 0, g.IntN(40))), Pause: g.IntN(3) == 0, MeterID: pick(g, 0, g.Uint32()),
			}
		},
		generator.setField, generator.setField, generator.setField,
		func(g generator) ofp.Action {
			r := g.bits(0, writable, true)
			v := g.value(r.Field).And(ofp.Ones(r.Width))
			return loadBytes(r, string(v.Append(nil, r.Field.Len())))
		},
		func(g generator) ofp.Action {
			src := g.bits(0, readable, false)
			return ofp.RegMove{Src: src, Dst: g.bits(src.Width, writable, false)}
		},
		func(g generator) ofp.Action { return ofp.Push{Src: g.bits(0, readable, false)} },
		func(g generator) ofp.Action { return ofp.Pop{Dst: g.bits(0, writable, false)} },
		func(g generator) ofp.Action {
			return ofp.CheckPacketLarger{Len: uint16(g.Uint32()), Dst: g.bits(1, writable, false)}
		},
		func(g generator) ofp.Action { return ofp.DeleteField{Field: ofp.TunMetadata(g.IntN(liveOptions))} },
		generator.ct, generator.ct,
		func(generator) ofp.Action { return ofp.CTClear{} },
		func(g generator) ofp.Action { return Resubmit(ofp.Table(g.IntN(255))) },
		func(g generator) ofp.Action {
			return ofp.Resubmit{Port: pick(g, ofp.Port(g.IntN(0xff00)), ofp.PortLocal),
				Table: pick(g, ofp.TableAll, ofp.Table(g.IntN(255))), WithCT: g.IntN(3) == 0}
		},
		generator.learn, generator.learn,
		func(g generator) ofp.Action { return ofp.Note{Data: g.bytes(6 + 8*g.IntN(4))} },
		func(g generator) ofp.Action { return ofp.SetQueue{Queue: g.Uint32()} },
		func(generator) ofp.Action { return ofp.PopQueue{} },
		func(generator) ofp.Action { return ofp.Exit{} },
		func(generator) ofp.Action { return ofp.PopVLAN{} },
		func(g generator) ofp.Action { return ofp.PushVLAN{EthType: pick(g, uint16(0x8100), 0x88a8)} },
		func(g generator) ofp.Action { return ofp.PushMPLS{EthType: pick(g, uint16(0x8847), 0x8848)} },
		func(g generator) ofp.Action { return ofp.PopMPLS{EthType: pick(g, 0x0800, uint16(g.Uint32()))} },
		func(generator) ofp.Action { return ofp.DecMPLSTTL{} },
		func(g generator) ofp.Action { return ofp.SetMPLSTTL{TTL: uint8(g.Uint32())} },
		func(g generator) ofp.Action {
			return pick[ofp.Action](g, ofp.DecTTL{}, ofp.DecTTL{IDs: []uint16{0}}, ofp.DecTTL{IDs: []uint16{1, 2, 65535}})
		},
		func(g generator) ofp.Action { return ofp.SetTTL{TTL: uint8(g.Uint32())} },
		func(g generator) ofp.Action { return ofp.FinTimeout{Idle: uint16(g.IntN(3)), Hard: uint16(g.IntN(3))} },
		func(g generator) ofp.Action { return ofp.Clone{Actions: Do(g.action(), g.setField())[:g.IntN(3)]} },
		func(g generator) ofp.Action {
			links := g.IntN(200)
			return ofp.Multipath{
				Fields: ofp.HashFields(g.IntN(7)), Basis: uint16(g.Uint32()), Algorithm: ofp.MultipathAlgorithm(g.IntN(4)),
				MaxLink: uint16(links), Arg: g.Uint32N(1 << 31), Dst: g.bits(8+g.IntN(24), writable, true),
			}
		},
		func(g generator) ofp.Action {
			a := ofp.BundlePorts{Fields: ofp.HashFields(g.IntN(7)), Basis: uint16(g.Uint32()),
				Algorithm: ofp.BundleAlgorithm(g.IntN(2))}
			for range g.IntN(6) {
				a.Members = append(a.Members, pick(g, ofp.Port(g.IntN(0xff00)), ofp.PortLocal, ofp.PortAny))
			}
			if g.IntN(2) == 0 {
				a.Dst = g.bits(16+g.IntN(16), writable, true)
			}
			return a
		},
		func(g generator) ofp.Action {
			a := ofp.Sample{
				Probability: uint16(1 + g.IntN(65535)), CollectorSet: g.Uint32(), ObsDomain: g.Uint32(), ObsPoint: g.Uint32(),
				Port: pick(g, ofp.PortAny, ofp.Port(g.IntN(0xff00)), ofp.PortLocal), Direction: uint8(g.IntN(3)),
			}
			if ovstest.Since("3.4") {
				if g.IntN(4) == 0 {
					a.ObsDomain, a.ObsDomainSrc = 0, g.bits(1+g.IntN(32), readable, true)
				}
				if g.IntN(4) == 0 {
					a.ObsPoint, a.ObsPointSrc = 0, g.bits(1+g.IntN(32), readable, true)
				}
			}
			return a
		},
		func(g generator) ofp.Action {
			a := ofp.Encap{PacketType: pick(g, ofp.PacketEthernet, ofp.PacketNSH, ofp.PacketNSH, ofp.PacketMPLS,
				ofp.PacketMPLSMcast)}
			if a.PacketType == ofp.PacketNSH && g.IntN(3) > 0 {
				a.Props = append(a.Props, ofp.EncapProp{Kind: ofp.EncapNSHMDType, MDType: uint8(1 + g.IntN(2))})
				for range g.IntN(3) {
					a.Props = append(a.Props, ofp.EncapProp{Kind: ofp.EncapNSHTLV, TLVClass: uint16(g.Uint32()),
						TLVType: uint8(g.Uint32()), Data: g.bytes(1 + g.IntN(30))})
				}
			}
			return a
		},
		func(g generator) ofp.Action {
			return ofp.Decap{PacketType: pick(g, ofp.PacketUseNextProto, ofp.PacketEthernet, 1<<16|g.Uint32N(1<<16))}
		},
		func(generator) ofp.Action { return ofp.DecNSHTTL{} },
		func(g generator) ofp.Action {
			if g.live {
				return ofp.Meter{ID: 1}
			}
			return ofp.Meter{ID: 1 + g.Uint32N(0xffff0000)}
		},
	}
}

func (g generator) action() ofp.Action {
	list := generators()
	for {
		a := list[g.IntN(len(list))](g)
		if _, ok := a.(ofp.Meter); ok { // ovs-ofctl wants it first: see list
			continue
		}
		if ofp.CheckActions(Do(a)) == nil {
			return a
		}
	}
}
