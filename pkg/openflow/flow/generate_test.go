package flow

import (
	"math/rand/v2"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// generator makes flows at random, the same ones for the same seed. With live, a switch accepts them if it has the
// groups 1 to 5, the meter 1 and the tunnel options of liveOptions.
type generator struct {
	*rand.Rand
	live bool
}

func newGenerator(seed uint64) generator { return generator{Rand: rand.New(rand.NewPCG(seed, 1))} }

func pick[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

// value is a value of a field that switches take.
func (g generator) value(f ofp.Field) ofp.Value {
	v := ofp.Value{Hi: g.Uint64(), Lo: g.Uint64()}
	switch g.IntN(6) {
	case 0, 1:
		v = ofp.Value{Lo: g.Uint64N(300)}
	case 2:
		v = pick(g, ofp.Value{}, ofp.Ones(f.Bits()), ofp.Value{Lo: 1})
	}
	v = v.And(ofp.Ones(f.Bits()))
	switch f {
	case ofp.InPort, ofp.ActsetOutput:
		return ofp.Value{Lo: pick(g, uint64(1+g.IntN(65000)), uint64(ofp.PortLocal), uint64(ofp.PortController))}
	case ofp.ARPOp, ofp.CTState:
		v.Lo &= 0xff
	case ofp.NSHTTL:
		v.Lo &= 63
	case ofp.NSHMDType:
		v.Lo = 1 + v.Lo&1
	case ofp.IPTOS:
		v.Lo &= 0xfc
	case ofp.IPFrag:
		v.Lo = pick(g, uint64(0), 1, 3)
	case ofp.CTNwProto:
		v.Lo |= 1 // ovs-ofctl leaves zero out
	case ofp.VLANVID:
		v.Lo |= 0x1000
	}
	return v
}

// mask is a mask of a field, full more often than not.
func (g generator) mask(f ofp.Field) ofp.Value {
	all := ofp.Ones(f.Bits())
	if !f.Maskable() || g.IntN(2) == 0 {
		return all
	}
	if f == ofp.CTState {
		return ofp.Value{Lo: 1 + g.Uint64N(255)}
	}
	if g.IntN(2) == 0 {
		n := 1 + g.IntN(f.Bits())
		return ofp.Ones(n).Shl(f.Bits() - n)
	}
	m := ofp.Value{Hi: g.Uint64(), Lo: g.Uint64()}.And(all)
	if f.Format() == ofp.FormatIPv6 {
		m.Hi |= 0xa << 60 // ovs-ofctl takes a mask that begins with a decimal digit for a prefix length
	}
	return m
}

// option is a value and mask of a tunnel option.
func (g generator) option(size int) (v, mask string) {
	v = g.bytes(1 + g.IntN(size))
	if v[0] == 0 {
		v = "\x07" + v[1:]
	}
	if g.IntN(2) == 0 {
		return v, ""
	}
	mask = "\x5a" + g.bytes(len(v)-1)
	return maskBytes(v, mask), mask
}

func (g generator) bytes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return string(b)
}

// notAlive are fields of which Open vSwitch 3.1 takes the value for the mask, so that it reports another value than it
// got, and one that it keeps for itself.
var notAlive = map[ofp.Field]bool{
	ofp.DPHash:       true,
	ofp.TunERSPANVer: true, ofp.TunERSPANDir: true, ofp.TunERSPANHWID: true, ofp.TunGTPUFlags: true,
	ofp.TunGTPUMsgType: true,
}

// cond asks for a field at random.
func (g generator) cond(f ofp.Field) Cond {
	if g.live && notAlive[f] {
		f = ofp.Reg7
	}
	if f.Long() {
		if g.live {
			f = ofp.TunMetadata(int(f-ofp.TunMetadata0) % liveOptions)
		}
		v, mask := g.option(12)
		return func(b *ofp.MatchBuilder) { b.SetBytes(f, v, mask) }
	}
	if f == ofp.IPFrag { // of others, ovs-ofctl's text does not say all
		c := pick(g, [2]uint64{0, 3}, [2]uint64{1, 3}, [2]uint64{3, 3}, [2]uint64{1, 1}, [2]uint64{0, 2})
		return func(b *ofp.MatchBuilder) { b.Set(f, ofp.Value{Lo: c[0]}, ofp.Value{Lo: c[1]}) }
	}
	v, mask := g.value(f), g.mask(f)
	return func(b *ofp.MatchBuilder) { b.Set(f, v.And(mask), mask) }
}

// contexts are what packets may be: each gives other fields a meaning.
var contexts = []string{
	"", "ip", "ipv6", "tcp", "udp", "sctp", "icmp", "tcp6", "udp6", "sctp6", "icmp6", "arp", "rarp", "mpls", "mplsm",
	"dl_type=0x894f",
	"dl_type=0x88cc", "dl_vlan=7", "ip,dl_vlan=9", "ct_state=+trk+est,ip", "ct_state=+trk+est,ipv6",
	"ct_state=+trk+new,tcp,ct_nw_proto=6",
	"icmp6,icmp_type=135", "icmp6,icmp_type=136,icmp_code=0", "ip,nw_proto=47", "ipv6,nw_proto=89",
	"packet_type=(1,0x800)", "packet_type=(1,0x894f)",
	"tcp,nw_frag=first", "ip,nw_frag=later",
}

// context is a match with the fields that it gives a meaning to.
type context struct {
	match  Match
	fields []ofp.Field
}

var madeContexts = func() (list []context) {
	for _, text := range contexts {
		m, err := ParseMatch(text)
		if err != nil {
			panic(err)
		}
		c := context{match: m}
		for _, f := range ofp.Fields() {
			if _, _, has := m.oxm.Get(f); has || !f.Matchable() || !known(f) || f == ofp.PacketType || f == ofp.RecircID {
				continue
			}
			// The context has the prerequisites of another field.
			if f == ofp.EthType || f == ofp.IPProto || f == ofp.CTState && strings.Contains(text, "ct_") || f == ofp.VLANVID &&
				strings.Contains(text, "vlan") {
				continue
			}
			if f == ofp.ICMPv6Code && strings.Contains(text, "icmp_type=13") || f == ofp.IPFrag &&
				strings.Contains(text, "tcp") {
				continue
			}
			if _, err := with(m, newGenerator(1).cond(f)); err == nil {
				c.fields = append(c.fields, f)
			}
		}
		list = append(list, c)
	}
	return list
}()

// with adds conditions to a match, and nothing that they need.
func with(m Match, conds ...Cond) (Match, error) {
	var b ofp.MatchBuilder
	for x := range m.oxm.All() {
		if x.Field == 0 {
			b.Raw(x.Raw)
		} else if x.Field.Long() {
			b.SetBytes(x.Field, x.Bytes, x.BytesMask)
		} else {
			b.Set(x.Field, x.Value, x.Mask)
		}
	}
	for _, c := range conds {
		c(&b)
	}
	oxm, err := b.Match()
	return Match{oxm: oxm}, err
}

func (g generator) match() Match {
	for {
		c := madeContexts[g.IntN(len(madeContexts))]
		var list []Cond
		for range g.IntN(6) {
			f := c.fields[g.IntN(len(c.fields))]
			if g.IntN(3) > 0 && f.Long() { // there are so many of them
				continue
			}
			list = append(list, g.cond(f))
		}
		if m, err := with(c.match, list...); err == nil {
			return m
		}
	}
}

// flow is one flow, with as many actions as are asked for.
func (g generator) flow() Flow {
	for {
		f := Flow{Table: ofp.Table(g.IntN(100)), Priority: uint16(g.IntN(65536)), Match: g.match()}
		if g.IntN(2) == 0 {
			f.Cookie = g.Uint64()
		}
		if g.IntN(4) == 0 {
			f.IdleTimeout, f.HardTimeout, f.Importance = uint16(g.IntN(9)), uint16(g.IntN(9)), uint16(g.IntN(9))
			f.Flags = uint16(g.IntN(32))
			if g.live { // flows may overlap, and must not be gone before they are asked for
				f.Flags &^= ofp.FlagCheckOverlap
				f.IdleTimeout, f.HardTimeout = f.IdleTimeout+1000, f.HardTimeout+1000
			}
		}
		f.Actions = g.list()
		if g.IntN(5) == 0 {
			f.Actions = append(f.Actions, ofp.WriteMetadata{Value: g.Uint64(), Mask: pick(g, ^uint64(0), g.Uint64())})
		}
		if g.IntN(2) == 0 {
			f.Actions = append(f.Actions, Goto(f.Table+1+ofp.Table(g.IntN(100))))
		}
		if g.IntN(20) == 0 {
			f.Actions = Do(ofp.Conjunction{ID: g.Uint32(), Clause: 1, Clauses: 3},
				ofp.Conjunction{ID: g.Uint32(), Clause: 2, Clauses: 64}, Note([]byte(g.bytes(6))))
		}
		// Actions need something of the packets: look for a context that has it.
		for _, c := range append([]context{{match: f.Match}}, madeContexts...) {
			if f.Match = c.match; f.possible() {
				return f
			}
		}
	}
}

// possible is Err() == nil without the text of an error.
func (f Flow) possible() bool {
	return f.Match.Err() == nil && ofp.CheckPrerequisites(f.Match.oxm, f.Actions) == nil &&
		ofp.CheckActions(f.Actions) == nil
}

// list is a list of actions that some flow may have.
func (g generator) list() Actions {
	var list Actions
	if g.IntN(10) == 0 {
		list = append(list, ofp.Meter{ID: 1})
	}
	for range g.IntN(5) {
		list = append(list, g.action())
	}
	switch g.IntN(12) {
	case 0:
		list = append(list, ofp.ClearActions{})
	case 1:
		list = append(list, ofp.WriteActions{Actions: Do(g.setField(), g.group(), Output(3))})
	}
	return list
}
