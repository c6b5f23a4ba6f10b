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

// clause is a match that one part of rules needs. All rules have the same rank. It becomes a flow in the table of their
// stage.
type clause struct {
	rank      policy.Rank
	direction policy.Direction
	kind      clauseKind
	// of appliedTo and peer (a Pod of another cluster: remote), or of a port of unknown Pods
	identity uint32
	to       netip.Prefix  // for a block, for a Pod's own port, and for the group of messages of IGMP
	network  derive.Object // the VirtualNetwork of a Pod's own port
	ports    portMask      // of port
	service  derive.Object
}

type clauseKind uint8

const (
	appliedTo clauseKind = iota + 1 // a Pod of this Node
	// anything matches every packet of a version of IP. It is used for a part of a rule that allows any address, and as
	// the second part of a rule that has only one, since a conjunction needs two. The version is IPv6 if to is valid
	// (::/0).
	anything
	peer      // a Pod
	block     // the other end's address
	port      // ports of any Pod or, where to is valid, of one
	toService // connections that were made to a Service
	asked     // connections that were made to an address of a Service
)

// portMask is a set of ports of one protocol that one match covers. Without a mask it contains all ports. Messages of
// ICMP have their type as port and their code as the source's port.
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
		c.service.Compare(o.service), c.network.Compare(o.network))
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
	case c.kind == block || c.kind == asked || c.kind == anything && c.to.IsValid():
		return text + c.to.String()
	case c.kind == toService:
		return text + c.service.String()
	case c.kind != port:
		return text + fmt.Sprint(c.identity)
	case c.network != derive.Object{}:
		return text + c.ports.String() + " of " + c.to.String() + " in " + c.network.String()
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

// matches returns the matches of the clause's flows, for the versions of IP that the Node serves. A clause about Pods
// has one flow, since identities have no version. A port has one for each version, and a Service one for each address
// and port. The flows of a port also have the conditions more.
func (c clause) matches(d direction, here outside, frontends []service.Frontend,
	more ...flow.Cond) (out []flow.Match) {
	if c.to.IsValid() && !here.Families.Serve(c.to.Addr()) {
		return nil
	}
	switch c.kind {
	case appliedTo:
		return []flow.Match{flow.All(d.own.Is(uint64(c.identity)))}
	case peer:
		return []flow.Match{flow.All(d.other.Is(uint64(c.identity)))}
	case block:
		return []flow.Match{flow.All(d.otherIP(c.to))}
	case asked:
		return []flow.Match{flow.All(askedFor(c.to.Addr())...)}
	case toService:
		return toServices(here, frontends)
	case anything:
		if c.to.IsValid() {
			return []flow.Match{flow.All(flow.IPv6())}
		}
		if here.Families.Has4() {
			return []flow.Match{flow.All(flow.IP())}
		}
		return nil
	}
	more = slices.Clip(more)
	if c.identity != 0 {
		more = append(more, d.other.Is(uint64(c.identity)))
	}
	if c.to.IsValid() {
		more = append(more, flow.IPDst(c.to))
	}
	if here.Families.Has4() && (!c.to.IsValid() || c.to.Addr().Is4()) {
		out = append(out, flow.All(append(c.ports.conds(false), more...)...))
	}
	if here.Families.Has6() && (!c.to.IsValid() || !c.to.Addr().Is4()) && c.ports.protocol != protocolIGMP {
		out = append(out, flow.All(append(c.ports.conds(true), more...)...))
	}
	return out
}

// askedFor returns the conditions of a connection that was made to an address.
func askedFor(ip netip.Addr) []flow.Cond {
	return []flow.Cond{flow.CTState("-inv+trk"), trackedTo(ip)}
}

// trackedTo matches the destination to which a connection was made. Connection tracking has it from the first packet,
// before an endpoint was chosen.
func trackedTo(ip netip.Addr) flow.Cond { return flow.CTDst(host(ip)) }

// toServices returns the matches of connections that Pods of this Node make to frontends.
func toServices(here outside, frontends []service.Frontend) (out []flow.Match) {
	to := func(f service.Frontend, ip netip.Addr) {
		if here.Families.Serve(ip) {
			out = append(out, flow.All(append(askedFor(ip),
				flow.Field(ofp.CTNwProto, []byte{protocolNumber(f.Protocol)}, nil),
				flow.Field(ofp.CTTpDst, binary.BigEndian.AppendUint16(nil, f.VIP.Port()), nil))...))
		}
	}
	for _, f := range frontends {
		switch {
		case f.Clients == service.OtherClients: // no Pod of this Node
		case f.Kind == service.NodePort:
			for _, ip := range here.NodePorts {
				to(f, ip)
			}
		default:
			to(f, f.VIP.Addr())
		}
	}
	return out
}

// conds returns the conditions for the protocol and its ports, over a version of IP. ICMPv6 has types and codes of its
// own, and a number in a rule stands for both ICMP and ICMPv6. Switches have no types of IGMP messages, and IPv6 has no
// IGMP.
func (p portMask) conds(ipv6 bool) []flow.Cond {
	var proto flow.Cond
	var source, destination ofp.Field
	switch p.protocol {
	case corev1.ProtocolUDP:
		proto, source, destination = flow.UDP(), ofp.UDPSrc, ofp.UDPDst
	case corev1.ProtocolSCTP:
		proto, source, destination = flow.SCTP(), ofp.SCTPSrc, ofp.SCTPDst
	case protocolICMP:
		proto, source, destination = flow.ICMP(), ofp.ICMPCode, ofp.ICMPType
		if ipv6 {
			proto, source, destination = flow.ICMPv6(), ofp.ICMPv6Code, ofp.ICMPv6Type
		}
	case protocolIGMP:
		return []flow.Cond{flow.IP(), flow.IPProto(protoIGMP)}
	default:
		proto, source, destination = flow.TCP(), ofp.TCPSrc, ofp.TCPDst
	}
	out := []flow.Cond{proto}
	if ipv6 {
		out = append(out, flow.IPv6())
	}
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

// allIPv6 is the range of all IPv6 addresses.
var allIPv6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)

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
	peers := rule.AnyPeer || len(rule.Peers)+len(rule.ClusterSet)+len(rule.Services)+len(rule.Names)+len(rule.Blocks)+
		len(rule.Asked) > 0
	ports := rule.AnyPort || len(rule.Ports)+len(rule.ICMP)+len(rule.IGMP)+len(rule.UnknownPorts) > 0 ||
		slices.ContainsFunc(rule.Targets, func(t policy.Target) bool { return len(t.Ends) > 0 })
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
	any4, any6 := of(anything), of(anything)
	any6.to = allIPv6
	for _, p := range rule.Blocks {
		c := of(block)
		c.to = p
		switch { // a range of all addresses is the same flow as anything
		case p.Bits() > 0:
		case p.Addr().Is4():
			c = any4
		default:
			c = any6
		}
		peers = append(peers, c)
	}
	for _, a := range rule.Asked {
		c := of(asked)
		c.to = host(a)
		peers = append(peers, c)
	}
	for _, name := range rule.Services {
		c := of(toService)
		c.service = name
		peers = append(peers, c)
	}
	to := func(p portMask, to netip.Prefix, network derive.Object) {
		c := of(port)
		c.ports, c.to, c.network = p, to, network
		ports = append(ports, c)
	}
	anywhere := derive.Object{}
	for _, r := range rule.Ports {
		for _, m := range masks(r) {
			to(m, netip.Prefix{}, anywhere)
		}
	}
	for _, i := range rule.ICMP {
		m := portMask{protocol: protocolICMP}
		m.value, m.mask = message(i.Type)
		m.sourceValue, m.sourceMask = message(i.Code)
		to(m, netip.Prefix{}, anywhere)
	}
	for _, i := range rule.IGMP {
		var group netip.Prefix
		if i.Group.Is4() {
			group = host(i.Group)
		}
		to(portMask{protocol: protocolIGMP}, group, anywhere)
	}
	for _, t := range rule.Targets {
		for _, m := range masks(t.PortRange) {
			for _, end := range t.Ends {
				to(m, host(end.Addr), end.Network)
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
		out = append(out, []clause{any4, any6})
	}
	return out
}

// partOf returns which part of a rule a clause of this kind belongs to, counted from 1, and the number of parts. Its
// result equals the result of parts, but it does not need the clauses of the whole rule, since shared clauses are many.
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
