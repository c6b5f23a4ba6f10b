package datapath

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Policies judge the first packet of a connection: in table Egress for the Pod that sends, after a Service's
// endpoint was chosen, and in table Ingress for the Pod that receives. A Pod that no policy isolates passes at
// once, and nothing of its packets is looked at. For the others
//
//	Egress ──► EgressPeer ──► EgressRule      Ingress ──► IngressPeer ──► IngressRule
//	isolated?  whose address   which rule?
//
// A rule is a conjunction (ovs-fields(7)) of the identities of Pods that it is applied to, of its peers, identities
// and ranges, and of its ports. A flow belongs to its match: several rules share it, with an action for each.
//
// A connection to a Service is remembered with its endpoint before policies have seen it. Until they have allowed
// it, it is pending: each further packet of it is judged like the first.

// policies are the flows that policies need whatever they are.
func (n Node) policies() []flow.Flow {
	flows := []flow.Flow{
		{Table: ConntrackState, Priority: high, Match: flow.All(flow.IP(), flow.CTState("-inv-rel-rpl+trk"), markPending.Is(1)), Actions: flow.Do(flow.Load(committed, 1), flow.Goto(Egress))},
		{Table: ConntrackState, Priority: high, Match: flow.All(flow.IP(), flow.CTState("-inv-rel+rpl+trk"), markPending.Is(1))},

		{Table: Egress, Priority: last, Actions: flow.Do(flow.Goto(Route))},
		{Table: Egress, Priority: normal, Match: flow.All(sender.Is(unknownIdentity))},

		{Table: Ingress, Priority: last, Actions: flow.Do(flow.Goto(Commit))},
		{Table: Ingress, Priority: normal, Match: flow.All(receiver.Is(unknownIdentity))},
		{Table: Ingress, Priority: high, Match: flow.All(flow.IP(), flow.CTState("-new+est+trk"), markPending.Is(0)), Actions: flow.Do(flow.Goto(Commit))},
		{Table: Ingress, Priority: high, Match: flow.All(flow.IP(), flow.CTState("+rel+trk")), Actions: flow.Do(flow.Goto(Commit))},
		{Table: Ingress, Priority: high, Match: flow.All(generated.Is(1)), Actions: flow.Do(flow.Goto(Commit))},
	}
	for _, ip := range n.GatewayIPs { // the kubelet's probes
		if ip.Is4() {
			flows = append(flows, flow.Flow{
				Table: Ingress, Priority: high,
				Match:   flow.All(flow.InPort(n.GatewayPort), flow.IPSrc(host(ip))),
				Actions: flow.Do(flow.Goto(Commit)),
			})
		}
	}
	return flows
}

// podIdentity is what policies are to a Pod of this Node.
type podIdentity struct {
	number uint32
	egress bool // a policy is applied to it for egress
}

// identity returns that of a Pod. While it is not known it is none, or in a Namespace with policies the one that
// is denied everything: a Pod starts closed.
func (t *Tables) identity(r *derive.Reader, pod problem.Object) podIdentity {
	if t.Policy == nil {
		return podIdentity{}
	}
	i, _ := derive.Get(r, t.Policy.Identities, derive.Object{Namespace: pod.Namespace, Name: pod.Name})
	if i == "" {
		if t.Policy.MaySelect(r, pod.Namespace) {
			return podIdentity{number: unknownIdentity}
		}
		return podIdentity{}
	}
	number, _ := derive.Get(r, t.Policy.Numbers, i)
	applied, _ := derive.Get(r, t.Policy.Applied, i)
	return podIdentity{number, applied.Any(policy.Egress)}
}

// load is the action that says who sends or receives, none for nobody whom a rule names.
func load(who flow.Bits, identity uint32) flow.Actions {
	if identity == 0 {
		return nil
	}
	return flow.Do(flow.Load(who, uint64(identity)))
}

// mayReachItself lets an isolated Pod reach its own addresses.
func (pod Pod) mayReachItself() []flow.Flow {
	var flows []flow.Flow
	for _, ip := range pod.IPs {
		if ip.Is4() {
			flows = append(flows, flow.Flow{
				Table: Egress, Priority: high,
				Match:   flow.All(flow.InPort(pod.Port), flow.IPDst(host(ip))),
				Actions: flow.Do(flow.Goto(Route)),
			})
		}
	}
	return flows
}

// clause is a match of one part of rules: it is a flow of table EgressRule or IngressRule.
type clause struct {
	direction policy.Direction
	kind      clauseKind
	identity  uint32       // of appliedTo, peer and everything
	to        netip.Prefix // of block; of a Pod's own port
	ports     portMask     // of port
}

type clauseKind uint8

const (
	appliedTo  clauseKind = iota + 1 // a Pod of this Node
	everything                       // the same, of a rule with any peer and any port
	peer                             // a Pod
	block                            // the other end's address
	port                             // the destination's port, of any Pod or, where to is valid, of one
)

// portMask are ports of one protocol that one match covers; without a mask all of them.
type portMask struct {
	protocol    corev1.Protocol
	value, mask uint16
}

func (p portMask) compare(o portMask) int {
	return cmp.Or(cmp.Compare(p.protocol, o.protocol), cmp.Compare(p.value, o.value), cmp.Compare(p.mask, o.mask))
}

// Compare makes a clause the key of a table.
func (c clause) Compare(o clause) int {
	return cmp.Or(cmp.Compare(c.direction, o.direction), cmp.Compare(c.kind, o.kind), cmp.Compare(c.identity, o.identity),
		c.to.Addr().Compare(o.to.Addr()), cmp.Compare(c.to.Bits(), o.to.Bits()), c.ports.compare(o.ports))
}

var clauseKinds = [...]string{appliedTo: "applied", everything: "everything", peer: "peer", block: "block", port: "port"}

// String names the clause for owners of flows: "ingress peer 5", "egress port TCP/80/0xffff of 10.0.0.7/32".
func (c clause) String() string {
	text := fmt.Sprintf("%s %s ", c.direction, clauseKinds[c.kind])
	switch {
	case c.kind == block:
		return text + c.to.String()
	case c.kind != port:
		return text + fmt.Sprint(c.identity)
	case c.to.IsValid():
		return text + c.ports.String() + " of " + c.to.String()
	}
	return text + c.ports.String()
}

func (p portMask) String() string { return fmt.Sprintf("%s/%d/%#x", p.protocol, p.value, p.mask) }

// clauseOf reads the name of a clause back.
func clauseOf(name string) (c clause) {
	words := strings.Fields(name)
	if len(words) < 3 {
		return clause{}
	}
	if words[0] == policy.Egress.String() {
		c.direction = policy.Egress
	}
	c.kind = clauseKind(max(0, slices.Index(clauseKinds[:], words[1])))
	switch c.kind {
	case block:
		c.to, _ = netip.ParsePrefix(words[2])
	case port:
		protocol, numbers, _ := strings.Cut(words[2], "/")
		c.ports.protocol = corev1.Protocol(protocol)
		_, _ = fmt.Sscanf(numbers, "%d/%v", &c.ports.value, &c.ports.mask)
		if len(words) == 5 {
			c.to, _ = netip.ParsePrefix(words[4])
		}
	default:
		_, _ = fmt.Sscan(words[2], &c.identity)
	}
	return c
}

// masks divides a range of ports into matches.
func masks(r policy.PortRange) []portMask {
	if r.From == 0 && r.To == 65535 {
		return []portMask{{protocol: r.Protocol}}
	}
	var out []portMask
	for from, to := uint32(r.From), uint32(r.To); from <= to; {
		size := uint32(1)
		for from%(2*size) == 0 && from+2*size-1 <= to {
			size *= 2
		}
		out = append(out, portMask{r.Protocol, uint16(from), uint16(^(size - 1))})
		from += size
	}
	return out
}

// parts are the clauses of a rule by part, none where one of its parts has none: then it allows nothing.
func parts(k policy.RuleKey, rule policy.Rule) [][]clause {
	var applied, peers, ports []clause
	for _, n := range rule.Applied {
		applied = append(applied, clause{direction: k.Direction, kind: appliedTo, identity: n})
	}
	for _, n := range rule.Peers {
		peers = append(peers, clause{direction: k.Direction, kind: peer, identity: n})
	}
	for _, p := range rule.Blocks {
		if p.Addr().Is4() {
			peers = append(peers, clause{direction: k.Direction, kind: block, to: p})
		}
	}
	for _, r := range rule.Ports {
		for _, m := range masks(r) {
			ports = append(ports, clause{direction: k.Direction, kind: port, ports: m})
		}
	}
	for _, t := range rule.Targets {
		for _, m := range masks(t.PortRange) {
			for _, ip := range t.IPs {
				if ip.Is4() {
					ports = append(ports, clause{direction: k.Direction, kind: port, ports: m, to: host(ip)})
				}
			}
		}
	}
	if len(applied) == 0 || !rule.AnyPeer && len(peers) == 0 || !rule.AnyPort && len(ports) == 0 {
		return nil
	}
	out := [][]clause{applied}
	if !rule.AnyPeer {
		out = append(out, peers)
	}
	if !rule.AnyPort {
		out = append(out, ports)
	}
	if len(out) == 1 { // no conjunction
		for i := range applied {
			applied[i].kind = everything
		}
	}
	return out
}

// policyFlows are the flows of policies, one row an owner.
type policyFlows struct {
	in        *policy.Tables
	rules     *derive.Index[clause, policy.RuleKey, policy.Rule]
	numbers   *derive.Numbers[policy.RuleKey]
	isolated  *derive.Table[policy.Identity, flow.Entries]
	addresses *derive.Table[policy.Addr, flow.Entries]
	clauses   *derive.Table[clause, flow.Entries]
	allowed   *derive.Table[policy.RuleKey, flow.Entries]
}

func newPolicyFlows(e *derive.Engine, in *policy.Tables) *policyFlows {
	p := &policyFlows{in: in}
	p.rules = derive.NewIndex(in.Rules, "clause", func(k policy.RuleKey, r policy.Rule) []clause { return slices.Concat(parts(k, r)...) })
	conjunctions := derive.NewIndex(in.Rules, "conjunction", func(k policy.RuleKey, r policy.Rule) []policy.RuleKey {
		if len(parts(k, r)) < 2 {
			return nil
		}
		return []policy.RuleKey{k}
	})
	p.numbers = derive.NewNumbers(e, "conjunctions", 1, 1<<31, derive.KeysOfIndex(conjunctions))
	p.isolated = derive.NewTable(e, "isolated", p.isolatedFlows, derive.KeysOf(in.Applied))
	p.addresses = derive.NewTable(e, "address-flows", p.addressFlows, derive.KeysOf(in.Addresses))
	p.clauses = derive.NewTable(e, "clauses", p.clauseFlows, derive.KeysOfIndex(p.rules))
	p.allowed = derive.NewTable(e, "allowed", p.allowedFlows, derive.KeysOfIndex(conjunctions))
	return p
}

// Prefixes of the names of owners of KindPolicy, a word each.
const (
	isolatedPrefix = "identity "
	addressPrefix  = "address "
	clausePrefix   = "clause "
	rulePrefix     = "rule "
)

func policyOwner(prefix string, name any) flow.Owner {
	return flow.Owner{Kind: KindPolicy, Name: prefix + fmt.Sprint(name)}
}

func isolatedOwner(i policy.Identity) flow.Owner { return policyOwner(isolatedPrefix, i) }
func addressOwner(a policy.Addr) flow.Owner      { return policyOwner(addressPrefix, a) }
func clauseOwner(c clause) flow.Owner            { return policyOwner(clausePrefix, c) }
func ruleOwner(k policy.RuleKey) flow.Owner      { return policyOwner(rulePrefix, k) }

func (p *policyFlows) entries(owner string) (e flow.Entries) {
	prefix, name, _ := strings.Cut(owner, " ")
	switch prefix + " " {
	case isolatedPrefix:
		e, _ = p.isolated.Get(policy.Identity(name))
	case addressPrefix:
		if a, err := netip.ParseAddr(name); err == nil {
			e, _ = p.addresses.Get(policy.Addr{Addr: a})
		}
	case clausePrefix:
		e, _ = p.clauses.Get(clauseOf(name))
	case rulePrefix:
		e, _ = p.allowed.Get(policy.RuleKeyOf(name))
	}
	return e
}

func (p *policyFlows) watch(changed func(flow.Owner)) {
	watch(p.isolated, func(i policy.Identity) { changed(isolatedOwner(i)) })
	watch(p.addresses, func(a policy.Addr) { changed(addressOwner(a)) })
	watch(p.clauses, func(c clause) { changed(clauseOwner(c)) })
	watch(p.allowed, func(k policy.RuleKey) { changed(ruleOwner(k)) })
}

func (p *policyFlows) owners(out *[]flow.Owner) {
	owners(out, p.isolated, isolatedOwner)
	owners(out, p.addresses, addressOwner)
	owners(out, p.clauses, clauseOwner)
	owners(out, p.allowed, ruleOwner)
}

// stage is where connections in one direction are judged.
type stage struct {
	isolated, peers, rules, allowed ofp.Table
	own, other                      flow.Bits // the Pod that is judged for, and the other end
	otherIP                         func(netip.Prefix) flow.Cond
}

var stages = [...]stage{
	policy.Ingress: {Ingress, IngressPeer, IngressRule, Commit, receiver, sender, flow.IPSrc},
	policy.Egress:  {Egress, EgressPeer, EgressRule, Route, sender, receiver, flow.IPDst},
}

// isolatedFlows send connections of isolated Pods to the rules.
func (p *policyFlows) isolatedFlows(i policy.Identity, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	applied, _ := derive.Get(r, p.in.Applied, i)
	number, ok := derive.Get(r, p.in.Numbers, i)
	if !ok {
		return e, nil
	}
	for d, s := range stages {
		if applied.Isolated(policy.Direction(d)) {
			e.Flows = append(e.Flows, flow.Flow{
				Table: s.isolated, Priority: normal,
				Match:   flow.All(s.own.Is(uint64(number))),
				Actions: flow.Do(flow.Goto(s.peers)),
			})
		}
	}
	return e, nil
}

// addressFlows say whose an address is.
func (p *policyFlows) addressFlows(a policy.Addr, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	number, _ := derive.Get(r, p.in.Addresses, a)
	if !a.Is4() || number == 0 {
		return e, nil
	}
	for _, s := range stages {
		e.Flows = append(e.Flows, flow.Flow{
			Table: s.peers, Priority: normal,
			Match:   flow.All(s.otherIP(host(a.Addr))),
			Actions: flow.Do(flow.Load(s.other, uint64(number)), flow.Goto(s.rules)),
		})
	}
	return e, nil
}

// clauseFlows is one flow, with an action for each rule that has the clause.
func (p *policyFlows) clauseFlows(c clause, r *derive.Reader) (flow.Entries, []problem.Problem) {
	s := stages[c.direction]
	f := flow.Flow{Table: s.rules, Priority: normal}
	for _, row := range derive.List(r, p.rules, c) {
		list := parts(row.Key, row.Value)
		number, ok := derive.Get(r, p.numbers, row.Key)
		if !ok {
			continue
		}
		for i, part := range list {
			if slices.Contains(part, c) {
				f.Actions = append(f.Actions, ofp.Conjunction{ID: number, Clause: uint8(i + 1), Clauses: uint8(len(list))})
			}
		}
	}
	switch c.kind {
	case everything:
		f.Priority, f.Match, f.Actions = high, flow.All(s.own.Is(uint64(c.identity))), flow.Do(flow.Goto(s.allowed))
	case appliedTo:
		f.Match = flow.All(s.own.Is(uint64(c.identity)))
	case peer:
		f.Match = flow.All(s.other.Is(uint64(c.identity)))
	case block:
		f.Match = flow.All(flow.IP(), s.otherIP(c.to))
	case port:
		conds := c.ports.conds()
		if c.to.IsValid() {
			conds = append(conds, flow.IPDst(c.to))
		}
		f.Match = flow.All(conds...)
	}
	if len(f.Actions) == 0 {
		return flow.Entries{}, nil
	}
	return flow.Entries{Flows: []flow.Flow{f}}, nil
}

func (p portMask) conds() []flow.Cond {
	proto, port, field := flow.TCP(), flow.TCPDst(p.value), ofp.TCPDst
	switch p.protocol {
	case corev1.ProtocolUDP:
		proto, port, field = flow.UDP(), flow.UDPDst(p.value), ofp.UDPDst
	case corev1.ProtocolSCTP:
		proto, port, field = flow.SCTP(), flow.SCTPDst(p.value), ofp.SCTPDst
	}
	switch p.mask {
	case 0:
		return []flow.Cond{proto}
	case 0xffff:
		return []flow.Cond{proto, port}
	}
	value, mask := binary.BigEndian.AppendUint16(nil, p.value), binary.BigEndian.AppendUint16(nil, p.mask)
	return []flow.Cond{proto, flow.Field(field, value, mask)}
}

// allowedFlows let on what a rule's conjunction matches.
func (p *policyFlows) allowedFlows(k policy.RuleKey, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	number, ok := derive.Get(r, p.numbers, k)
	if !ok {
		return e, nil
	}
	s := stages[k.Direction]
	e.Flows = []flow.Flow{{Table: s.rules, Priority: normal, Match: flow.All(flow.ConjID(number)), Actions: flow.Do(flow.Goto(s.allowed))}}
	return e, nil
}
