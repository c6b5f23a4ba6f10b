package datapath

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// clause is a match for one part of rules of one rank. It becomes a flow in the table of their stage.
type clause struct {
	rank      policy.Rank
	direction policy.Direction
	kind      clauseKind
	// of appliedTo and peer (a Pod of another cluster: remote), or of a port of unknown Pods
	identity uint32
	to       netip.Prefix // for a block, for a Pod's own port, and for the group of messages of IGMP
	ports    portMask     // of port
	service  derive.Object
}

type clauseKind uint8

const (
	appliedTo clauseKind = iota + 1 // a Pod of this Node
	// anything matches every packet: with any address, or as the second part of a rule that has only one, since a
	// conjunction needs two.
	anything
	peer      // a Pod
	block     // the other end's address
	port      // ports of any Pod or, where to is valid, of one
	toService // connections that were made to a Service
	asked     // connections that were made to an address of a Service
)

// portMask is a set of ports of one protocol that one match covers. Without a mask it has all ports. Messages of ICMP
// have their type as port and their code as the source's port.
type portMask struct {
	protocol                corev1.Protocol
	value, mask             uint16
	sourceValue, sourceMask uint16
}

// Protocols that have no name in corev1.
const (
	protocolICMP corev1.Protocol = "ICMP"
	protocolIGMP corev1.Protocol = "IGMP"
)

func (p portMask) compare(o portMask) int {
	return cmp.Or(cmp.Compare(p.protocol, o.protocol), cmp.Compare(p.value, o.value), cmp.Compare(p.mask, o.mask),
		cmp.Compare(p.sourceValue, o.sourceValue), cmp.Compare(p.sourceMask, o.sourceMask))
}

// Compare makes a clause the key of a table.
func (c clause) Compare(o clause) int {
	return cmp.Or(cmp.Compare(c.direction, o.direction), c.rank.Compare(o.rank), cmp.Compare(c.kind, o.kind),
		cmp.Compare(c.identity, o.identity),
		c.to.Addr().Compare(o.to.Addr()), cmp.Compare(c.to.Bits(), o.to.Bits()), c.ports.compare(o.ports),
		c.service.Compare(o.service))
}

var clauseKinds = [...]string{appliedTo: "applied", anything: "anything", peer: "peer",
	block: "block", port: "port", toService: "service", asked: "asked"}

// String returns the name of the clause for owners of flows: "ingress 1/0/0/0/3 peer 5", "egress 1/0/0/0/3 port
// TCP/80/65535/0/0 of 10.0.0.7/32". The numbers at the beginning are the rank.
func (c clause) String() string {
	r := c.rank
	text := fmt.Sprintf("%s %d/%d/%v/%d/%d %s ", c.direction, r.Stage, r.Tier, r.Priority,
		r.Index, r.Action, clauseKinds[c.kind])
	switch {
	case c.kind == block || c.kind == asked:
		return text + c.to.String()
	case c.kind == toService:
		return text + c.service.String()
	case c.kind != port:
		return text + fmt.Sprint(c.identity)
	case c.to.IsValid():
		return text + c.ports.String() + " of " + c.to.String()
	case c.identity != 0:
		return text + c.ports.String() + " of unknown"
	}
	return text + c.ports.String()
}

func (p portMask) String() string {
	return fmt.Sprintf("%s/%d/%d/%d/%d", p.protocol, p.value, p.mask, p.sourceValue, p.sourceMask)
}

// matches returns the matches of the clause's flows: one, or one for each address and port of a Service. Connection
// tracking has the destination address from before an endpoint was chosen.
func (c clause) matches(d direction, frontends []service.Frontend, nodePorts []netip.Addr) []flow.Match {
	if c.kind != toService {
		return []flow.Match{c.match(d)}
	}
	var out []flow.Match
	to := func(f service.Frontend, ip netip.Addr) {
		if ip.Is4() {
			out = append(out, flow.All(flow.IP(), flow.CTState("-inv+trk"),
				flow.Field(ofp.CTNwDst, ip.AsSlice(), nil), flow.Field(ofp.CTNwProto, []byte{protocolNumber(f.Protocol)}, nil),
				flow.Field(ofp.CTTpDst, binary.BigEndian.AppendUint16(nil, f.VIP.Port()), nil)))
		}
	}
	for _, f := range frontends {
		switch {
		case f.Clients == service.OtherClients: // no Pod of this Node
		case f.Kind == service.NodePort:
			for _, ip := range nodePorts {
				to(f, ip)
			}
		default:
			to(f, f.VIP.Addr())
		}
	}
	return out
}

// match returns the match of a clause with one flow.
func (c clause) match(d direction) flow.Match {
	switch c.kind {
	case appliedTo:
		return flow.All(d.own.Is(uint64(c.identity)))
	case peer:
		return flow.All(d.other.Is(uint64(c.identity)))
	case block:
		return flow.All(flow.IP(), d.otherIP(c.to))
	case asked:
		return flow.All(flow.IP(), flow.CTState("-inv+trk"), flow.Field(ofp.CTNwDst, c.to.Addr().AsSlice(), nil))
	case port:
		conds := c.ports.conds()
		if c.to.IsValid() {
			conds = append(conds, flow.IPDst(c.to))
		}
		if c.identity != 0 {
			conds = append(conds, d.other.Is(uint64(c.identity)))
		}
		return flow.All(conds...)
	}
	return flow.All(flow.IP())
}

// conds returns the conditions for the protocol and its ports. Switches have no types of IGMP messages.
func (p portMask) conds() []flow.Cond {
	var proto flow.Cond
	var source, destination ofp.Field
	switch p.protocol {
	case corev1.ProtocolUDP:
		proto, source, destination = flow.UDP(), ofp.UDPSrc, ofp.UDPDst
	case corev1.ProtocolSCTP:
		proto, source, destination = flow.SCTP(), ofp.SCTPSrc, ofp.SCTPDst
	case protocolICMP:
		proto, source, destination = flow.ICMP(), ofp.ICMPCode, ofp.ICMPType
	case protocolIGMP:
		return []flow.Cond{flow.IP(), flow.IPProto(protoIGMP)}
	default:
		proto, source, destination = flow.TCP(), ofp.TCPSrc, ofp.TCPDst
	}
	out := []flow.Cond{proto}
	for _, f := range []struct {
		field       ofp.Field
		value, mask uint16
	}{{destination, p.value, p.mask}, {source, p.sourceValue, p.sourceMask}} {
		value, mask := binary.BigEndian.AppendUint16(nil, f.value), binary.BigEndian.AppendUint16(nil, f.mask)
		switch {
		case f.mask == 0:
		case p.protocol == protocolICMP:
			out = append(out, flow.Field(f.field, value[1:], nil))
		case f.mask == 0xffff:
			out = append(out, flow.Field(f.field, value, nil))
		default:
			out = append(out, flow.Field(f.field, value, mask))
		}
	}
	return out
}

// masks divides a range of ports into matches.
func masks(r policy.PortRange) []portMask {
	var out []portMask
	for _, d := range policy.Masks(r.From, r.To) {
		to := r.SourceTo
		if r.SourceFrom == 0 && to == 0 {
			to = 65535
		}
		for _, s := range policy.Masks(r.SourceFrom, to) {
			out = append(out, portMask{r.Protocol, d[0], d[1], s[0], s[1]})
		}
	}
	return out
}

// message is a type or a code of ICMP, which may be policy.Any.
func message(n int16) (value, mask uint16) {
	if n == policy.Any {
		return 0, 0
	}
	return uint16(n) & 0xff, 0xff
}

// whole reports whether no part of a rule is empty: else the rule matches nothing.
func whole(rule policy.Rule) bool {
	peers := rule.AnyPeer || len(rule.Peers)+len(rule.ClusterSet)+len(rule.Services)+len(rule.Names) > 0 ||
		slices.ContainsFunc(rule.Blocks, func(p netip.Prefix) bool { return p.Addr().Is4() }) ||
		slices.ContainsFunc(rule.Asked, netip.Addr.Is4)
	ports := rule.AnyPort || len(rule.Ports)+len(rule.ICMP)+len(rule.IGMP)+len(rule.UnknownPorts) > 0 ||
		slices.ContainsFunc(rule.Targets, func(t policy.Target) bool { return slices.ContainsFunc(t.IPs, netip.Addr.Is4) })
	return len(rule.Applied) > 0 && peers && ports
}

// parts returns the clauses of a rule by part, and nothing for a rule that is not whole.
func parts(k policy.RuleKey, rule policy.Rule) [][]clause {
	if !whole(rule) {
		return nil
	}
	var applied, peers, ports []clause
	of := func(kind clauseKind) clause { return clause{rank: rule.Rank, direction: k.Direction, kind: kind} }
	for _, n := range rule.Applied {
		c := of(appliedTo)
		c.identity = n
		applied = append(applied, c)
	}
	for _, n := range rule.Peers {
		c := of(peer)
		c.identity = n
		peers = append(peers, c)
	}
	for _, n := range rule.ClusterSet {
		c := of(peer)
		c.identity = remote | n
		peers = append(peers, c)
	}
	for _, p := range rule.Blocks {
		switch {
		case p.Addr().Is4() && p.Bits() == 0:
			peers = append(peers, of(anything)) // it is the same flow
		case p.Addr().Is4():
			c := of(block)
			c.to = p
			peers = append(peers, c)
		}
	}
	for _, a := range rule.Asked {
		if a.Is4() {
			c := of(asked)
			c.to = host(a)
			peers = append(peers, c)
		}
	}
	for _, name := range rule.Services {
		c := of(toService)
		c.service = name
		peers = append(peers, c)
	}
	to := func(p portMask, to netip.Prefix) {
		c := of(port)
		c.ports, c.to = p, to
		ports = append(ports, c)
	}
	for _, r := range rule.Ports {
		for _, m := range masks(r) {
			to(m, netip.Prefix{})
		}
	}
	for _, i := range rule.ICMP {
		m := portMask{protocol: protocolICMP}
		m.value, m.mask = message(i.Type)
		m.sourceValue, m.sourceMask = message(i.Code)
		to(m, netip.Prefix{})
	}
	for _, i := range rule.IGMP {
		var group netip.Prefix
		if i.Group.Is4() {
			group = host(i.Group)
		}
		to(portMask{protocol: protocolIGMP}, group)
	}
	for _, t := range rule.Targets {
		for _, m := range masks(t.PortRange) {
			for _, ip := range t.IPs {
				if ip.Is4() {
					to(m, host(ip))
				}
			}
		}
	}
	for _, protocol := range rule.UnknownPorts {
		c := of(port)
		c.ports, c.identity = portMask{protocol: protocol}, policy.UnknownPod
		ports = append(ports, c)
	}
	slices.SortFunc(ports, clause.Compare)
	ports = slices.Compact(ports) // ranges that overlap
	out := [][]clause{applied}
	if !rule.AnyPeer {
		out = append(out, peers)
	}
	if !rule.AnyPort {
		out = append(out, ports)
	}
	if len(out) == 1 {
		out = append(out, []clause{of(anything)})
	}
	return out
}

// partOf returns the part of a rule that a clause of this kind belongs to, from 1, and the number of parts. Its result
// equals the result of parts, but it does not need the clauses of the whole rule, since shared clauses are many.
func (k clauseKind) partOf(anyPeer, anyPort bool) (part, of uint8) {
	of = 1
	if !anyPeer {
		of++
	}
	if !anyPort {
		of++
	}
	switch k {
	case appliedTo:
		part = 1
	case port:
		part = of
	default:
		part = 2
	}
	return part, max(of, 2)
}
