package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Policies judge the first packet of a connection. Table Egress judges it for the Pod that sends, after a Service's
// endpoint was chosen. Table Ingress judges it for the Pod that receives. A packet of a Pod without policies passes at
// once, and the switch matches no further fields. The others pass through
//
//	Egress ──► EgressPeer ──► EgressAdmin ──Pass, no rule──► EgressRule ──not isolated──► EgressBaseline
//	policies?  whose address       │                             │                             │
//	                               └───────────Allow─────────────┴────────Allow, no rule───────┴──► Route
//
// and the same for Ingress, on to Commit. A stage without rules for the Pod is skipped, so it matches no further fields
// of the packet either.
//
// A rule is a conjunction (ovs-fields(7)) of three dimensions: the identities of Pods that it is applied to, its peers
// (identities and ranges), and its ports. Rules with the same match and rank share a flow, which has an action for each
// of them.
//
// A connection to a Service is remembered with its endpoint before policies judge it. Until they have allowed it, it is
// pending: each further packet of it is judged like the first.

// policyBase returns the flows that this Node needs with any policies.
func policyBase(n Node) []flow.Flow {
	flows := []flow.Flow{
		{Table: Egress, Priority: last, Actions: flow.Do(flow.Goto(Route))},
		{Table: Ingress, Priority: last, Actions: flow.Do(flow.Goto(Commit))},
		{Table: Ingress, Priority: high, Match: flow.All(generated.Is(1)), Actions: flow.Do(flow.Goto(Commit))},
	}
	flows = append(flows, n.each(func(ip flow.Cond) []flow.Flow {
		return []flow.Flow{
			{Table: ConntrackState, Priority: high, Match: flow.All(ip, flow.CTState("-inv-rel-rpl+trk"),
				markPending.Is(1)), Actions: flow.Do(flow.Load(committed, 1), flow.Goto(Egress))},
			{Table: ConntrackState, Priority: high, Match: flow.All(ip, flow.CTState("-inv-rel+rpl+trk"), markPending.Is(1))},
			{Table: Ingress, Priority: high, Match: flow.All(ip, flow.CTState("-new+est+trk"), committed.Is(0)),
				Actions: flow.Do(flow.Goto(Commit))},
			{Table: Ingress, Priority: high, Match: flow.All(ip, flow.CTState("+rel+trk")),
				Actions: flow.Do(flow.Goto(Commit))},
		}
	})...)
	flows = append(flows, bySenderKey())
	flows = append(flows, n.each(tracking{}.again)...)
	if n.Tunnels.Stretched {
		flows = append(flows, stretched(n)...)
	}
	for _, s := range directions {
		flows = append(flows,
			flow.Flow{Table: s.judge, Priority: normal, Match: flow.All(s.own.Is(unknownIdentity))},
			flow.Flow{Table: s.stages[policy.Admin], Priority: skip, Match: flow.All(byAdmin.Is(0)),
				Actions: flow.Do(flow.Goto(s.stages[policy.NetworkPolicies]))},
			flow.Flow{Table: s.stages[policy.NetworkPolicies], Priority: skip, Match: flow.All(byNetworkPolicies.Is(0)),
				Actions: flow.Do(flow.Goto(s.stages[policy.Baseline]))},
		)
	}
	for _, ip := range n.GatewayIPs { // the kubelet's probes
		flows = append(flows, flow.Flow{
			Table: Ingress, Priority: high - 1, // a packet of a known connection may match too
			Match:   flow.All(flow.InPort(n.GatewayPort), flow.IPSrc(host(ip)), forwarded.Is(0)),
			Actions: flow.Do(flow.Load(ingressRule, alwaysAllowed), flow.Goto(Commit)),
		})
	}
	return flows
}

// podIdentity has the numbers of a Pod of this Node for policies.
type podIdentity struct {
	number     uint32
	clusterSet uint32 // its number in the ClusterSet
	key        uint32 // with which it is named to other Nodes
	egress     bool   // a policy is applied to it for egress
}

// identity returns the identity of the Pod at a port. A Pod starts closed. While its labels are unknown, there are two
// cases. If a policy may select Pods of its Namespace, it has unknownIdentity, which is denied everything. Otherwise,
// if a rule denies unknown Pods, it is an unknown Pod.
func (t podTables) identity(r *derive.Reader, port derive.Name, pod Pod) podIdentity {
	if t.base.Policy == nil {
		return podIdentity{}
	}
	attached, _ := derive.Get(r, t.base.Policy.Attached, port)
	i := attached.Identity
	if i == "" {
		out := podIdentity{clusterSet: policy.UnknownClusterSet, key: t.base.Policy.SenderKeyAt(r, port)}
		switch {
		case t.base.Policy.MaySelect(r, pod.Namespace):
			out.number = unknownIdentity
		case t.base.Policy.DeniesUnknown(r):
			out.number = policy.UnknownPod
		}
		return out
	}
	number, _ := derive.Get(r, t.base.Policy.Numbers, i)
	applied, _ := derive.Get(r, t.base.Policy.Applied, i)
	clusterSet, ok := derive.Get(r, t.base.Policy.ClusterSetNumbers, i)
	if !ok {
		clusterSet = policy.UnknownClusterSet
	}
	return podIdentity{number, clusterSet, t.base.Policy.SenderKeyAt(r, port), applied.Any(policy.Egress)}
}

// load returns the action that loads the sender's or the receiver's identity number. If no rule names the identity, it
// returns no action.
func load(who flow.Bits, identity uint32) flow.Actions {
	if identity == 0 {
		return nil
	}
	return flow.Do(flow.Load(who, uint64(identity)))
}

// mayReachItself lets a Pod that policies are applied to reach its own addresses.
func (pod Pod) mayReachItself() []flow.Flow {
	var flows []flow.Flow
	for _, ip := range pod.IPs {
		flows = append(flows, flow.Flow{
			Table: Egress, Priority: high,
			Match:   flow.All(flow.InPort(pod.Port), flow.IPDst(host(ip))),
			Actions: flow.Do(flow.Load(egressRule, alwaysAllowed), flow.Goto(Route)),
		})
	}
	return flows
}

// Policies has the tables of the flows of policies, one row an owner.
type Policies struct {
	// Known has the flows that judge known connections again.
	Known *KnownConnections
	// OfServices has the flows of policies that are applied to Services.
	OfServices *ServicePolicies

	base         *base
	tenants      *tenantTables
	in           *policy.Tables
	vips         *derive.Index[policy.Addr, derive.Object, []service.Frontend]
	members      *derive.Index[clause, policy.RuleKey, member]
	membersOf    *derive.Table[policy.RuleKey, member]
	outlines     *derive.Table[policy.RuleKey, policy.Rule] // Rules without their lists of peers and ports
	conjunctions *derive.Numbers[policy.RuleKey]
	numbers      *ruleNumbers
	judged       *derive.Table[policy.Identity, flow.Entries]
	addresses    *derive.Table[policy.Addr, flow.Entries]
	further      *derive.Table[policy.FurtherAddr, flow.Entries]
	unknown      *derive.Table[policy.PodRange, flow.Entries]
	blocks       *derive.Table[policy.Block, flow.Entries]
	judging      *derive.Table[derive.Name, [2]bool] // one row: the directions in which policies judge Pods of this Node
	newcomers    *derive.Table[policy.SenderKey, flow.Entries]
	clauses      *derive.Table[clause, flow.Entries]
	verdicts     *derive.Table[policy.RuleKey, flow.Entries]
	followed     *derive.Table[remoteNumber, flow.Entries]
	answers      *derive.Table[subject, namedFor]
	ruleIndexes
}

// ruleIndexes find rules.
type ruleIndexes struct {
	stretched  *derive.Index[subject, policy.RuleKey, policy.Rule] // about Pods of other clusters
	naming     *derive.Index[subject, policy.RuleKey, policy.Rule]
	ported     *derive.Index[staged, policy.RuleKey, policy.Rule] // that need ports
	protocoled *derive.Index[staged, policy.RuleKey, policy.Rule] // others that need a protocol
}

func newPolicies(e *derive.Engine, b *base, tenants *tenantTables, services *Services) *Policies {
	in := b.Policy
	p := &Policies{base: b, tenants: tenants, in: in}
	p.vips = derive.NewIndex(b.Frontends, "vip", vipsOf)
	p.outlines = derive.NewTable(e, "rule-outlines", p.outline, derive.KeysOf(in.Rules))
	p.stretched = derive.NewIndex(in.Rules, "stretched", stretchedOver)
	p.ported = derive.NewIndex(in.Rules, "ported", stagesOf(needsPorts))
	p.protocoled = derive.NewIndex(in.Rules, "protocoled", stagesOf(needsProtocol))
	complete := derive.KeysOfIndex(
		derive.NewIndex(in.Rules, "conjunction", func(k policy.RuleKey, r policy.Rule) []policy.RuleKey {
			if !whole(r) {
				return nil
			}
			return []policy.RuleKey{k}
		}))
	p.conjunctions = derive.NewNumbers(e, "conjunctions", 1, 1<<31, complete)
	p.membersOf = derive.NewTable(e, "members", p.member, complete).EqualBy(func(a, b member) bool {
		return a.same(b) && slices.Equal(a.clauses, b.clauses)
	})
	clausesOf := func(_ policy.RuleKey, m member) []clause { return m.clauses }
	p.members = derive.NewIndex(p.membersOf, "clause", clausesOf).SameBy(member.same)
	p.numbers = newRuleNumbers(e, b, p.outlines, complete)
	p.judged = derive.NewTable(e, "judged", p.judgedFlows, derive.KeysOf(in.Applied))
	p.addresses = derive.NewTable(e, "address-flows", p.addressFlows, derive.KeysOf(in.Addresses))
	p.unknown = derive.NewTable(e, "unknown-pod-flows", p.unknownFlows, derive.KeysOf(in.PodRanges))
	p.judging = derive.NewTable(e, "judging-directions",
		func(_ derive.Name, r *derive.Reader) (out [2]bool, _ []problem.Problem) {
			for _, row := range derive.All(r, in.Applied) {
				for d := range out {
					out[d] = out[d] || row.Value.Any(policy.Direction(d))
				}
			}
			return out, nil
		}, derive.KeysOf(b.Node))
	p.further = derive.NewTable(e, "further-address-flows", p.furtherFlows, derive.KeysOf(in.Virtual.Addresses))
	p.blocks = derive.NewTable(e, "block-flows", p.blockFlows, derive.KeysOf(in.Virtual.Blocks))
	p.clauses = derive.NewTable(e, "clauses", p.clauseFlows, derive.KeysOfIndex(p.members))
	p.verdicts = derive.NewTable(e, "verdicts", p.verdictFlows, complete)
	p.naming = derive.NewIndex(in.Rules, "naming", namedSubjects)
	p.answers = derive.NewTable(e, "answer-flows", p.answerFlows, derive.KeysOfIndex(p.naming))
	p.followed = derive.NewTable(e, "followed-flows", p.followedFlows,
		derive.KeysOfIndex(derive.NewIndex(in.Rules, "clusterset-number", namedRemotely)))
	p.newcomers = derive.NewTable(e, "newcomer-flows", p.newcomerFlows, derive.KeysOf(in.Newcomers))
	p.Known = newKnownConnections(e, p)
	p.OfServices = newServicePolicies(e, b, services)
	return p
}

// policyOwner returns the owner of flows of policies. kind is a word for the kind of flows, and name is the name of one
// of them.
func policyOwner(what string, name any) flow.Owner {
	return flow.Owner{Kind: KindPolicy, Name: what + " " + fmt.Sprint(name)}
}

func judgedOwner(i policy.Identity) flow.Owner { return policyOwner("identity", i) }
func addressOwner(a policy.Addr) flow.Owner    { return policyOwner("address", a) }
func rangeOwner(p policy.PodRange) flow.Owner  { return policyOwner("pod-range", p) }
func blockOwner(b policy.Block) flow.Owner     { return policyOwner("block", b) }
func furtherOwner(a policy.FurtherAddr) flow.Owner {
	return policyOwner("further-address", a)
}
func clauseOwner(c clause) flow.Owner       { return policyOwner("clause", c) }
func ruleOwner(k policy.RuleKey) flow.Owner { return policyOwner("rule", k) }
func againOwner(c Recheck) flow.Owner       { return policyOwner("again", c) }
func newcomerOwner(k policy.SenderKey) flow.Owner {
	return policyOwner("newcomer", fmt.Sprint(k.Key, " ", k.Node))
}
func remoteOwner(n remoteNumber) flow.Owner { return policyOwner("clusterset", uint32(n)) }

// direction is where connections in one direction are judged.
type direction struct {
	judge, peers ofp.Table
	stages       [policy.Stages]ofp.Table
	allowed      ofp.Table
	own, other   flow.Bits // the Pod that is judged for, and the other end
	rule         flow.Bits // which rule allowed it
	label        flow.Bits // the same, as a connection remembers it
	labelOwn     flow.Bits // own, as a connection remembers it
	otherIP      func(netip.Prefix) flow.Cond
}

var directions = [...]direction{
	policy.Ingress: {Ingress, IngressPeer, [...]ofp.Table{IngressAdmin, IngressRule, IngressBaseline},
		Commit, receiver, sender, ingressRule, labelIngress, labelReceiver, flow.IPSrc},
	policy.Egress: {Egress, EgressPeer, [...]ofp.Table{EgressAdmin, EgressRule, EgressBaseline},
		Route, sender, receiver, egressRule, labelEgress, labelSender, flow.IPDst},
}

// judgedFlows send connections of Pods with policies to the stages that have policies. If no rule decides about a
// connection, it is allowed at the end, unless NetworkPolicies isolate the Pod.
func (p *Policies) judgedFlows(i policy.Identity, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	applied, _ := derive.Get(r, p.in.Applied, i)
	identity, ok := derive.Get(r, p.in.Numbers, i)
	if !ok {
		return e, nil
	}
	defaults, _ := derive.Get(r, p.numbers.defaults, i)
	for d, s := range directions {
		d := policy.Direction(d)
		if !applied.Any(d) {
			continue
		}
		own := flow.All(s.own.Is(uint64(identity)))
		var actions flow.Actions
		for stage, bit := range [...]flow.Bits{byAdmin, byNetworkPolicies, byBaseline} {
			has := uint64(0) // also when 0: the other direction has left its own bits
			if len(applied[d][stage]) > 0 {
				has = 1
			}
			actions = append(actions, flow.Load(bit, has))
			e.Flows = append(e.Flows, p.noFragments(staged{subject{identity, d}, policy.Stage(stage)}, r)...)
		}
		e.Flows = append(e.Flows,
			flow.Flow{Table: s.judge, Priority: normal, Match: own, Actions: append(actions, flow.Goto(s.peers))})
		if d == policy.Ingress && len(derive.List(r, p.stretched, subject{identity, d})) > 0 {
			e.Flows = append(e.Flows, dropUnnumbered(identity))
		}
		if !applied.Isolated(d) {
			e.Flows = append(e.Flows, flow.Flow{
				Table: s.stages[policy.Baseline], Priority: last, Match: own,
				Actions: flow.Do(flow.Load(s.rule, uint64(defaults[d])), flow.Goto(s.allowed)),
			})
		}
	}
	return e, nil
}

// addressFlows returns the flows that identify the owner of an address.
func (p *Policies) addressFlows(a policy.Addr, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	h, _ := derive.Get(r, p.in.Addresses, a)
	if !a.Is4() && !derived(r, p.base.outside).Families.Has6() { // most addresses are of IPv4, and read nothing more
		return e, nil
	}
	for d, s := range directions {
		if h.Asked[d] { // ingress of a client in another cluster is identified through the tunnel's key
			e.Flows = append(e.Flows, s.isAt(normal, uint64(h.Number), host(a.Addr)))
		}
	}
	return e, nil
}

// isAt returns the flow that identifies the owner of an address.
func (d direction) isAt(priority uint16, number uint64, at netip.Prefix, more ...flow.Cond) flow.Flow {
	return flow.Flow{
		Table: d.peers, Priority: priority,
		Match:   flow.All(append(more, d.otherIP(at))...),
		Actions: flow.Do(flow.Load(d.other, number), flow.Goto(d.stages[policy.Admin])),
	}
}

// unknownFlows identify the addresses of a podCIDR, except the Node's own, as unknown Pods, in directions in which a
// rule denies unknown Pods. An address of a known Pod has a flow of its own. A sender at a port of this Node is
// identified already.
func (p *Policies) unknownFlows(of policy.PodRange, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	in, _ := derive.Get(r, p.in.PodRanges, of)
	if !derived(r, p.base.outside).Families.Serve(of.Addr()) {
		return e, nil
	}
	for d, s := range directions {
		if !in.Denied[d] {
			continue
		}
		e.Flows = append(e.Flows, s.isAt(last, policy.UnknownPod, of.Prefix, s.other.Is(0)))
		for _, ip := range in.Own() {
			e.Flows = append(e.Flows, flow.Flow{
				Table: s.peers, Priority: low, Match: flow.All(s.otherIP(host(ip))),
				Actions: flow.Do(flow.Goto(s.stages[policy.Admin])),
			})
		}
	}
	return e, nil
}

// member is the part of a rule that the flows of its clauses need. Several rules may share a clause.
type member struct {
	id               uint32
	anyPeer, anyPort bool
	clauses          []clause
}

// same reports whether two members have the same flows of the clauses that both are in.
func (m member) same(o member) bool {
	return m.id == o.id && m.anyPeer == o.anyPeer && m.anyPort == o.anyPort
}

// outline returns a rule without its peers and ports. Flows that depend only on the outline do not change when Pods
// come and go.
func (p *Policies) outline(k policy.RuleKey, r *derive.Reader) (policy.Rule, []problem.Problem) {
	rule, _ := derive.Get(r, p.in.Rules, k)
	return policy.Rule{
		Rank: rule.Rank, Meaning: rule.Meaning, Keep: rule.Keep, Applied: rule.Applied,
		Log: rule.Log, Name: rule.Name, LogLabel: rule.LogLabel,
	}, nil
}

// member returns no row for a rule without a number; the table of numbers reports it.
func (p *Policies) member(k policy.RuleKey, r *derive.Reader) (member, []problem.Problem) {
	rule, _ := derive.Get(r, p.in.Rules, k)
	id, ok := derive.Get(r, p.conjunctions, k)
	if !ok {
		return member{}, nil
	}
	return member{id, rule.AnyPeer, rule.AnyPort, slices.Concat(parts(k, rule)...)}, nil
}

// clauseFlows returns the flows of a clause, with an action for each rule that has the clause.
func (p *Policies) clauseFlows(c clause, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	priority, ok := p.priority(r, c.rank)
	if !ok {
		return e, nil
	}
	var actions flow.Actions
	for _, row := range derive.List(r, p.members, c) {
		part, of := c.kind.partOf(row.Value.anyPeer, row.Value.anyPort)
		actions = append(actions, ofp.Conjunction{ID: row.Value.id, Clause: part, Clauses: of})
	}
	if c.kind == asked && len(derive.List(r, p.vips, policy.Addr{Addr: c.to.Addr()})) == 0 {
		return e, nil // a connection to it is judged by its destination alone
	}
	var frontends []service.Frontend
	if c.kind == toService {
		frontends, _ = derive.Get(r, p.base.Frontends, c.service)
	}
	s := directions[c.direction]
	add := func(more ...flow.Cond) {
		for _, match := range c.matches(s, derived(r, p.base.outside), frontends, more...) {
			e.Flows = append(e.Flows,
				flow.Flow{Table: s.stages[c.rank.Stage], Priority: priority, Match: match, Actions: actions})
		}
	}
	if c.network == (derive.Object{}) {
		add()
		return e, nil
	}
	for _, packets := range p.tenants.packetsWith(r, c.network, c.direction) {
		add(packets)
	}
	return e, nil
}

// priority returns the priority of the flows of rules of a rank.
func (p *Policies) priority(r *derive.Reader, rank policy.Rank) (uint16, bool) {
	n, ok := derive.Get(r, p.in.Priorities, rank)
	return uint16(n), ok
}

// verdictFlows do a rule's action for packets that match its conjunction.
func (p *Policies) verdictFlows(k policy.RuleKey, r *derive.Reader) (e flow.Entries, _ []problem.Problem) {
	rule, _ := derive.Get(r, p.outlines, k)
	id, ok1 := derive.Get(r, p.conjunctions, k)
	priority, ok2 := p.priority(r, rule.Rank)
	if !ok1 || !ok2 {
		return e, nil // the tables of numbers and priorities report it
	}
	s := directions[k.Direction]
	rate, _ := derive.Get(r, p.base.rate, Self)
	f := flow.Flow{Table: s.stages[rule.Stage], Priority: priority, Match: flow.All(flow.ConjID(id))}
	number, _ := derive.Get(r, p.numbers.rules, k)
	switch {
	case number != 0:
		f.Actions = flow.Do(flow.Load(s.rule, uint64(number)), flow.Goto(s.allowed))
	case rule.Action == policy.Reject:
		f.Actions = ask(PolicyReject, rate)
	case rule.Action == policy.Pass:
		f.Actions = flow.Do(flow.Goto(s.stages[rule.Stage+1]))
	}
	if !rule.Log || rate == 0 {
		e.Flows = []flow.Flow{f}
		return e, nil
	}
	for _, identity := range rule.Applied { // a flow for each, since each has a share of its own
		share, logged := shareOf(PolicyLog, identity, rate), f
		logged.Match = flow.All(flow.ConjID(id), s.own.Is(uint64(identity)))
		// The log comes first, so that the agent has recorded the rejected packet when the client gets the answer.
		logged.Actions = append(log(logEntry(k, rule, priority), share.ID), f.Actions...)
		e.Flows, e.Meters = append(e.Flows, logged), append(e.Meters, share)
	}
	return e, nil
}
