// Package oftest is a switch in memory for tests: it walks packets through flows and groups and returns their outputs.
// It implements Open vSwitch's registers, groups, resubmits and connection tracking with address translation. It keeps
// its connections from packet to packet, so a test can follow a request and its reply over several switches. If a
// packet needs a feature that it does not model, the walk fails; it never guesses.
package oftest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Numbers of the protocols that Packet knows ports of, and of ICMP.
const (
	ICMP   uint8 = 1
	TCP    uint8 = 6
	UDP    uint8 = 17
	ICMPv6 uint8 = 58
	SCTP   uint8 = 132
)

// Fragment is the part of an IP datagram that a packet is.
type Fragment uint8

// These are the parts of a datagram. A flow sees no ports in a fragment, not even in the first one, since the switch
// hides them (ovs-fields(7), OFPC_FRAG_NORMAL). Connection tracking reassembles datagrams, so it sees the ports.
const (
	Whole Fragment = iota
	First
	Later
)

// Packet is a packet at a port of the switch. If ARP is not nil, it is an ARP packet. Otherwise it is an IP packet of
// the addresses' version.
type Packet struct {
	InPort           ofp.Port
	EthSrc, EthDst   ofp.MAC
	IPSrc, IPDst     netip.Addr
	Proto            uint8
	SrcPort, DstPort uint16 // of a message of ICMP that asks or answers SrcPort is its identifier
	Flags            uint16 // of TCP, as in its header
	ICMP             ICMPMessage
	TTL              uint8 // 0 is 64
	Expired          bool  // the TTL is 0
	Fragment         Fragment
	VLAN             uint16  // tag control information with the bit 0x1000 set; 0: no tag
	Inner            *Packet // of an ICMP error: the packet that it is about
	TunSrc, TunDst   netip.Addr
	TunID            uint64
	ARP              *ARP
	ND               *ND // of a message of ICMPv6 that asks for a neighbour, or answers
}

// ICMPMessage is the type and code of an ICMP packet that is no error, in IPv4 or IPv6.
type ICMPMessage struct{ Type, Code uint8 }

// Echo is the message of ICMP that asks for an answer, whose type is 0.
var Echo = ICMPMessage{Type: 8}

// EchoV6 is the message of ICMPv6 that asks for an answer, whose type is 129.
var EchoV6 = ICMPMessage{Type: 128}

// ND has the fields of a Neighbor Solicitation or Advertisement. Link is the link-layer address in its option: the
// sender's in a solicitation, the target's in an advertisement. Option is the type of that option. 0 means that there
// is no option.
type ND struct {
	Target netip.Addr
	Flags  uint32
	Option uint8
	Link   ofp.MAC
}

// Solicit returns the Neighbor Solicitation with which a host looks for an address. If from is the unspecified address,
// the host checks whether the address is free, before it uses it.
func Solicit(mac ofp.MAC, from, target netip.Addr) Packet {
	low := target.As16()
	group := netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: low[13], 14: low[14], 15: low[15]})
	p := Packet{EthSrc: mac, EthDst: ofp.MAC{0x33, 0x33, 0xff, low[13], low[14], low[15]}, IPSrc: from, IPDst: group,
		Proto: ICMPv6, ICMP: ICMPMessage{Type: flow.NeighborSolicitation}, TTL: 255, ND: &ND{Target: target}}
	if !from.IsUnspecified() {
		p.ND.Option, p.ND.Link = flow.NDSourceOption, mac
	}
	return p
}

// ARP is what an ARP packet says. Op 1 is a request, 2 a reply.
type ARP struct {
	Op       uint16
	SHA, THA ofp.MAC
	SPA, TPA netip.Addr
}

// String is the packet in the words of packet walks: "10.10.0.2:40000 > 10.97.0.10:80".
func (p Packet) String() string {
	if a := p.ARP; a != nil {
		if a.Op == 1 {
			return fmt.Sprintf("who has %s, tell %s", a.TPA, a.SPA)
		}
		return fmt.Sprintf("%s is at %s", a.SPA, a.SHA)
	}
	if n := p.ND; n != nil {
		if p.ICMP.Type == flow.NeighborSolicitation {
			return fmt.Sprintf("who has %s, tell %s", n.Target, p.IPSrc)
		}
		return fmt.Sprintf("%s is at %s, flags %#x, to %s", n.Target, n.Link, n.Flags, p.IPDst)
	}
	text := fmt.Sprintf("%s > %s", netip.AddrPortFrom(p.IPSrc, p.SrcPort), netip.AddrPortFrom(p.IPDst, p.DstPort))
	if p.Inner != nil {
		text = fmt.Sprintf("%s > %s about %s", p.IPSrc, p.IPDst, *p.Inner)
	}
	return text
}

// Reply is what the receiver of the packet sends back.
func (p Packet) Reply() Packet {
	r := Packet{
		EthSrc: p.EthDst, EthDst: p.EthSrc, IPSrc: p.IPDst, IPDst: p.IPSrc,
		Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort,
	}
	switch p.Proto {
	case ICMP:
		r.ICMP, r.SrcPort, r.DstPort = ICMPMessage{Code: p.ICMP.Code}, p.SrcPort, 0
	case ICMPv6:
		r.ICMP, r.SrcPort, r.DstPort = ICMPMessage{Type: EchoV6.Type + 1, Code: p.ICMP.Code}, p.SrcPort, 0
	}
	return r
}

// Output is a packet that leaves. For tunnels Packet.TunDst is the far end.
type Output struct {
	Port   ofp.Port
	Packet Packet
}

// Result is what became of a packet.
type Result struct {
	Tables     []string // names of the tables that it met, in order
	Outputs    []Output
	Dropped    string // the last table, where nothing came out at all
	Controller bool   // a copy went to the controller
	Userdata   string // with Controller: what the flow said
	Err        error  // what the walk could not do; the rest is then not to be relied on
}

// Switch is flows, groups and connections.
type Switch struct {
	// Choose returns the index of a select group's bucket. If it is nil, the first bucket is used. If the bucket watches a
	// port or group that is not up, the next bucket is used.
	Choose func(g flow.Group, p Packet) int
	// Down are the ports that are not up, for groups that watch them.
	Down map[ofp.Port]bool

	program flow.Program
	tables  map[ofp.Table][]flow.Flow // by falling priority
	groups  map[uint32]flow.Group
	conns   map[tuple]*conn
}

// New returns a switch with entries. program has the names of its tables. New refuses entries that flow.Set refuses.
func New(program flow.Program, entries ...flow.Entries) (*Switch, error) {
	s := &Switch{program: program, conns: map[tuple]*conn{}}
	return s, s.Replace(entries...)
}

// Replace makes the switch hold other entries. Its connections stay.
func (s *Switch) Replace(entries ...flow.Entries) error {
	set := flow.NewSet()
	for _, e := range entries {
		if err := set.AddEntries(e); err != nil {
			return err
		}
	}
	s.tables, s.groups = map[ofp.Table][]flow.Flow{}, map[uint32]flow.Group{}
	for f := range set.Flows() { // by falling priority already
		s.tables[f.Table] = append(s.tables[f.Table], f)
	}
	for g := range set.Groups() {
		s.groups[g.ID] = g
	}
	return nil
}

// Forget makes the switch forget its connections.
func (s *Switch) Forget() { clear(s.conns) }

// Send walks a packet through the switch from table 0.
func (s *Switch) Send(p Packet) Result {
	return s.walk(p, func(w *walk, st *state) { w.table(st, 0) })
}

// PacketOut walks a packet that the controller sends, beginning with actions.
func (s *Switch) PacketOut(p Packet, actions flow.Actions) Result {
	p.InPort = ofp.PortController
	return s.walk(p, func(w *walk, st *state) { w.do(st, actions) })
}

func (s *Switch) walk(p Packet, begin func(*walk, *state)) Result {
	w := &walk{s: s}
	begin(w, newState(p))
	for len(w.later) > 0 && w.result.Err == nil {
		next := w.later[0]
		w.later = w.later[1:]
		next()
	}
	if r := w.result; r.Err == nil && len(r.Outputs) == 0 && !r.Controller && len(r.Tables) > 0 {
		w.result.Dropped = w.result.Tables[len(w.result.Tables)-1]
	}
	return w.result
}

// match finds the flow of a table that a packet hits. If two flows of one priority match and have different actions,
// the program is wrong, since a switch may use either. Clauses of conjunctions count by priority: if a packet matches
// all clauses of a conjunction, it hits the flow that matches the conjunction's number (ovs-fields(7), "Conjunctive
// Match Fields").
func (s *Switch) match(st *state, t ofp.Table) (flow.Flow, bool, error) {
	var clauses map[uint32]uint64 // of the priority, that a packet has met, by conjunction
	flows := s.tables[t]
	for i := 0; i < len(flows); {
		priority := flows[i].Priority
		var found []flow.Flow
		clear(clauses)
		for ; i < len(flows) && flows[i].Priority == priority; i++ {
			f := flows[i]
			ok, err := st.matches(f.Match)
			switch c, soft := conjunctions(f); {
			case err != nil:
				return flow.Flow{}, false, fmt.Errorf("flow %q: %w", f, err)
			case !ok:
			case soft:
				for _, a := range c {
					if clauses == nil {
						clauses = map[uint32]uint64{}
					}
					clauses[a.ID] |= 1 << (a.Clause - 1)
					if clauses[a.ID] == 1<<a.Clauses-1 {
						return s.conjunction(st, t, a.ID)
					}
				}
			default:
				found = append(found, f)
			}
		}
		for _, g := range found {
			if !g.Actions.Equal(found[0].Actions) {
				return flow.Flow{}, false, fmt.Errorf("%s meets two flows of one priority: %q and %q", st.packet(), found[0], g)
			}
		}
		if len(found) > 0 {
			return found[0], true, nil
		}
	}
	return flow.Flow{}, false, nil
}

// conjunctions are the clauses that a flow is; a flow is nothing else then.
func conjunctions(f flow.Flow) (out []ofp.Conjunction, ok bool) {
	for _, a := range f.Actions {
		c, is := a.(ofp.Conjunction)
		if !is {
			return nil, false
		}
		out = append(out, c)
	}
	return out, len(out) > 0
}

// conjunction finds what a packet meets that has met all clauses of a conjunction.
func (s *Switch) conjunction(st *state, t ofp.Table, id uint32) (flow.Flow, bool, error) {
	if st.get(ofp.ConjID) != (ofp.Value{}) {
		return flow.Flow{}, false, fmt.Errorf("%s meets conjunction %d within another", st.packet(), id)
	}
	st.set(ofp.ConjID, ofp.ToValue(binary.BigEndian.AppendUint32(nil, id)))
	defer st.set(ofp.ConjID, ofp.Value{})
	for _, f := range s.tables[t] {
		if _, soft := conjunctions(f); soft {
			continue
		}
		if ok, err := st.matches(f.Match); ok || err != nil {
			return f, ok, err
		}
	}
	return flow.Flow{}, false, nil
}

// String says in words where the packet went.
func (r Result) String() string {
	var out []string
	for _, o := range r.Outputs {
		text := fmt.Sprintf("to port %d", o.Port)
		if o.Packet.TunDst.IsValid() {
			text += " by tunnel " + o.Packet.TunDst.String()
		}
		out = append(out, text+": "+o.Packet.String())
	}
	if r.Controller {
		out = append(out, fmt.Sprintf("to the controller with %q", r.Userdata))
	}
	if r.Dropped != "" {
		out = append(out, "dropped in "+r.Dropped)
	}
	if r.Err != nil {
		out = append(out, "error: "+r.Err.Error())
	}
	return strings.Join(out, "; ") + " (" + strings.Join(slices.Compact(slices.Clone(r.Tables)), ", ") + ")"
}
