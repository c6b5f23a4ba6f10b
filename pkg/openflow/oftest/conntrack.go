package oftest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// Bits of ct_state (nicira-ext.h).
const (
	ctNew = 1 << iota
	ctEst
	ctRel
	ctRpl
	ctInv
	ctTrk
	ctSNAT
	ctDNAT
)

// tuple is how one direction of a connection looks in a zone.
type tuple struct {
	zone     uint16
	proto    uint8
	src, dst netip.AddrPort
}

func (t tuple) reverse() tuple { return tuple{t.zone, t.proto, t.dst, t.src} }

// conn is a connection that was committed: its first packet as it came, and the replies that are expected. With a
// translation the addresses of replies differ.
type conn struct {
	orig, reply tuple
	mark, label ofp.Value
	replied     bool
}

func (c *conn) String() string {
	return fmt.Sprintf("zone %d: %s > %s, reply %s > %s", c.orig.zone, c.orig.src, c.orig.dst, c.reply.src, c.reply.dst)
}

// translated are the directions of translation in one direction.
func (c *conn) translated() (snat, dnat bool) {
	return c.orig.src != c.reply.dst, c.orig.dst != c.reply.src
}

// ctFields are what connection tracking says about a packet.
var ctFields = []ofp.Field{
	ofp.CTState, ofp.CTZone, ofp.CTMark, ofp.CTLabel, ofp.CTNwProto, ofp.CTNwSrc, ofp.CTNwDst,
	ofp.CTIPv6Src, ofp.CTIPv6Dst, ofp.CTTpSrc, ofp.CTTpDst,
}

// untrack forgets it.
func (st *state) untrack() {
	for _, f := range ctFields {
		delete(st.fields, f)
	}
	st.conn = nil
}

func (st *state) tuple(zone uint16) tuple {
	p := st.packet()
	if isICMP(p.Proto) && p.Inner == nil {
		return icmpTuple(zone, p)
	}
	return tuple{zone, p.Proto, netip.AddrPortFrom(p.IPSrc, p.SrcPort), netip.AddrPortFrom(p.IPDst, p.DstPort)}
}

// isICMP reports whether a protocol is ICMP of one of the versions of IP.
func isICMP(proto uint8) bool { return proto == ICMP || proto == ICMPv6 }

// asks reports whether a message of ICMP asks for an answer.
func asks(p Packet) bool {
	return p.Proto == ICMP && p.ICMP.Type == Echo.Type || p.Proto == ICMPv6 && p.ICMP.Type == EchoV6.Type
}

// icmpTuple has the identifier as the client's port, and the code as the server's.
func icmpTuple(zone uint16, p Packet) tuple {
	t := tuple{zone, p.Proto, netip.AddrPortFrom(p.IPSrc, p.SrcPort), netip.AddrPortFrom(p.IPDst, uint16(p.ICMP.Code))}
	if !asks(p) {
		t.src, t.dst = netip.AddrPortFrom(p.IPSrc, uint16(p.ICMP.Code)), netip.AddrPortFrom(p.IPDst, p.SrcPort)
	}
	return t
}

// ct sends the packet through connection tracking. If it names a table, a copy continues there. The packet itself
// continues untracked (ovs-actions(7), "The ct action").
func (w *walk) ct(st *state, a ofp.CT) {
	zone := a.Zone
	if a.ZoneSrc.Width > 0 {
		zone = uint16(st.read(a.ZoneSrc).Lo)
	}
	if t := st.get(ofp.EthType).Lo; t != typeIPv4 && t != typeIPv6 {
		w.fail("connection tracking of %s, which is not IP", st.packet())
		return
	}
	if a.ALG != 0 || a.Flags&ofp.CTForce != 0 {
		w.fail("ct with alg or force is not modelled")
		return
	}
	next := st
	if a.Table != ofp.CTNoTable {
		next = st.copy()
	}
	w.track(next, zone, a)
	if a.Table != ofp.CTNoTable {
		w.later = append(w.later, func() { w.table(next, a.Table) })
	}
	st.untrack()
}

// track finds or makes the connection, translates, and marks the packet with the result.
func (w *walk) track(st *state, zone uint16, a ofp.CT) {
	if st.inner != nil {
		w.trackError(st, zone, a)
		return
	}
	key := st.tuple(zone)
	c := w.s.conns[key]
	again := st.conn != nil && st.zone == zone
	if again { // it went through this zone before, and may look different since
		c = st.conn
	}
	reply := c != nil && (key == c.reply || (again && st.get(ofp.CTState).Lo&ctRpl != 0))
	// A message that is neither a request nor an answer is invalid. This model has no other requests, such as requests for
	// the time.
	unasked := c == nil && isICMP(key.proto) && !asks(st.packet())
	if c == nil && a.Flags&ofp.CTCommit != 0 && !unasked {
		c = w.s.commit(key, a.NAT)
	}
	bits := uint64(ctTrk)
	switch {
	case unasked:
		bits |= ctInv
	case reply:
		c.replied = true
		bits |= ctEst | ctRpl
	case c != nil && c.replied:
		bits |= ctEst
	default:
		bits |= ctNew
	}
	if c != nil && a.NAT != nil {
		bits |= st.translate(c, reply)
	}
	st.untrack()
	if c != nil && a.Flags&ofp.CTCommit != 0 {
		w.exec(st, c, a.Exec)
	}
	st.conn, st.zone = c, zone
	st.set(ofp.CTState, ofp.Value{Lo: bits})
	st.set(ofp.CTZone, ofp.Value{Lo: uint64(zone)})
	orig := key
	if c != nil {
		orig = c.orig
		st.set(ofp.CTMark, c.mark)
		st.set(ofp.CTLabel, c.label)
	}
	st.set(ofp.CTNwProto, ofp.Value{Lo: uint64(orig.proto)})
	st.setAddr(ofp.CTNwSrc, ofp.CTIPv6Src, orig.src.Addr())
	st.setAddr(ofp.CTNwDst, ofp.CTIPv6Dst, orig.dst.Addr())
	st.set(ofp.CTTpSrc, ofp.Value{Lo: uint64(orig.src.Port())})
	st.set(ofp.CTTpDst, ofp.Value{Lo: uint64(orig.dst.Port())})
}

// trackError finds the connection that an ICMP error is about. The error is related to the connection, and goes in the
// opposite direction to the quoted packet. An error that is not for the sender of the quoted packet, or is about no
// connection, is invalid (Linux nf_conntrack_proto_icmp.c, Open vSwitch conntrack.c). It never makes a connection.
func (w *walk) trackError(st *state, zone uint16, a ofp.CT) {
	in := *st.inner
	key := tuple{zone, in.Proto, netip.AddrPortFrom(in.IPSrc, in.SrcPort), netip.AddrPortFrom(in.IPDst, in.DstPort)}
	key = key.reverse() // the error goes the way of answers to that packet, as it is here
	c := w.s.conns[key]
	bits := uint64(ctTrk | ctInv)
	if c != nil && in.IPSrc == st.packet().IPDst {
		reply := key == c.reply
		bits = ctTrk | ctRel
		if reply {
			bits |= ctRpl
		}
		if a.NAT != nil {
			bits |= st.translate(c, reply)
			out := c.reply.reverse()
			if reply {
				out = c.orig.reverse()
			}
			in.IPSrc, in.SrcPort, in.IPDst, in.DstPort = out.dst.Addr(), out.dst.Port(), out.src.Addr(), out.src.Port()
			st.inner = &in
		}
	} else {
		c = nil
	}
	st.untrack()
	st.conn, st.zone = c, zone
	st.set(ofp.CTState, ofp.Value{Lo: bits})
	st.set(ofp.CTZone, ofp.Value{Lo: uint64(zone)})
	if c != nil {
		st.set(ofp.CTMark, c.mark)
		st.set(ofp.CTLabel, c.label)
	}
}

// commit remembers a connection. If its source is translated, the port stays the same unless another connection has it.
func (s *Switch) commit(key tuple, nat *ofp.NAT) *conn {
	c := &conn{orig: key, reply: key.reverse()}
	if nat != nil && nat.Flags&ofp.NATDst != 0 {
		c.reply.src = to(nat, c.reply.src)
	}
	if nat != nil && nat.Flags&ofp.NATSrc != 0 {
		c.reply.dst = to(nat, c.reply.dst)
	}
	for s.conns[c.reply] != nil && nat != nil {
		port := c.reply.dst.Port() + 1
		if port < 1024 {
			port = 1024
		}
		c.reply.dst = netip.AddrPortFrom(c.reply.dst.Addr(), port)
	}
	s.conns[c.orig], s.conns[c.reply] = c, c
	return c
}

// to returns the destination of a translation: the first address and port of its range, or the original ones if it has
// no range.
func to(nat *ofp.NAT, from netip.AddrPort) netip.AddrPort {
	addr, port := from.Addr(), from.Port()
	if a, ok := netip.AddrFromSlice([]byte(nat.IPMin)); ok {
		addr = a
	}
	if nat.PortMin != 0 {
		port = nat.PortMin
	}
	return netip.AddrPortFrom(addr, port)
}

// translate makes the packet look as the connection wants it on the far side.
func (st *state) translate(c *conn, reply bool) (bits uint64) {
	out := c.reply.reverse()
	snat, dnat := c.translated()
	if reply {
		out = c.orig.reverse()
		snat, dnat = dnat, snat
	}
	if snat {
		bits |= ctSNAT
		st.setAddr(ofp.IPv4Src, ofp.IPv6Src, out.src.Addr())
	}
	if dnat {
		bits |= ctDNAT
		st.setAddr(ofp.IPv4Dst, ofp.IPv6Dst, out.dst.Addr())
	}
	if st.inner != nil {
		return bits // an error has no ports
	}
	if st.get(ofp.IPFrag).Lo != 0 {
		st.hidden = [2]uint16{out.src.Port(), out.dst.Port()}
		return bits
	}
	if f, ok := ports[c.orig.proto]; ok {
		if snat {
			st.set(f[0], ofp.Value{Lo: uint64(out.src.Port())})
		}
		if dnat {
			st.set(f[1], ofp.Value{Lo: uint64(out.dst.Port())})
		}
	}
	return bits
}

// exec carries out what a commit does with the connection's mark and label.
func (w *walk) exec(st *state, c *conn, actions []ofp.Action) {
	st.set(ofp.CTMark, c.mark)
	st.set(ofp.CTLabel, c.label)
	for _, a := range actions {
		switch a.(type) {
		case ofp.SetField, ofp.RegMove:
			w.act(st, a)
		default:
			w.fail("ct(exec) with %T is not modelled", a)
		}
	}
	c.mark, c.label = st.get(ofp.CTMark), st.get(ofp.CTLabel)
}

// Connections returns the switch's connections as text for messages of tests, one line each: "zone 65520:
// 10.10.0.2:40000 > 10.97.0.10:80, reply 10.10.0.3:8080 > 10.10.0.2:40000".
func (s *Switch) Connections() []string {
	var out []string
	for key, c := range s.conns {
		if key == c.orig {
			out = append(out, c.String())
		}
	}
	slices.Sort(out)
	return out
}

// DumpConntrack are the switch's connections as dpctl/dump-conntrack lists them.
func (s *Switch) DumpConntrack() string {
	names := map[uint8]string{ICMP: "icmp", ICMPv6: "icmpv6", TCP: "tcp", UDP: "udp", SCTP: "sctp"}
	side := func(t tuple) string {
		return fmt.Sprintf("(src=%s,dst=%s,sport=%d,dport=%d)", t.src.Addr(), t.dst.Addr(), t.src.Port(), t.dst.Port())
	}
	var out []string
	for key, c := range s.conns {
		if key == c.orig {
			out = append(out, fmt.Sprintf("%s,orig=%s,reply=%s,zone=%d,mark=%d,labels=%#x%016x\n",
				names[c.orig.proto], side(c.orig), side(c.reply), c.orig.zone, c.mark.Lo, c.label.Hi, c.label.Lo))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}
