package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Policies that are applied to a Service judge new connections to its node ports and external addresses in table
// External, before a source range is checked or an endpoint is chosen. The packet has the client's own address there.
// The first lookup finds the Service with rules, and the next ones find the rule that decides:
//
//	External: asked address ──► External: judged = number of the Service ──► the first rule that matches
//	                                                                           │
//	External: judged = judgedDone, as without policies ◄──Allow, no rule──────┘
//
// Each rule has a priority of its own for each Service, so rules of several policies never share a flow. The packets of
// known connections do not come to this table: a change of these policies is for new connections.

// judgedDone is the value of judged for a connection that the policies of its Service have allowed.
const judgedDone = 1<<31 - 1

// maxServiceRuleFlows bounds the flows that the rules of one Service need. A rule beyond the bound is closed.
const maxServiceRuleFlows = 4096

// servicePolicyOwner owns the flows of the policies of a Service.
func servicePolicyOwner(o derive.Object) flow.Owner { return policyOwner("service", o) }

// ServicePolicies has the tables of policies of Services.
type ServicePolicies struct {
	base     *base
	services *Services
	numbers  *derive.Numbers[derive.Object] // of Services that policies are applied to
	rules    *derive.Table[derive.Object, []JudgedRule]
	flows    *derive.Table[derive.Object, flow.Entries]
}

func newServicePolicies(e *derive.Engine, b *base, services *Services) *ServicePolicies {
	t, ruled := &ServicePolicies{base: b, services: services}, derive.KeysOf(b.Policy.ServiceRules)
	t.numbers = derive.NewNumbers(e, "judged-services", 1, 1<<30, ruled)
	t.rules = derive.NewTable(e, "judged-rules", t.rulesOf, ruled)
	t.flows = derive.NewTable(e, "service-policy-flows", t.flowsOf, ruled)
	return t
}

// askedAddress is an address of a Service, as a client outside asks it.
type askedAddress struct {
	protocol corev1.Protocol
	port     uint16
	matches  []askedMatch // of packets to it
}

// askedMatch is a match of packets to an address.
type askedMatch struct {
	to    netip.Addr // the zero value for packets to any address
	conds []flow.Cond
}

// askedAt returns the addresses of a Service for clients outside, each once.
func (t *Services) askedAt(key derive.Object, r *derive.Reader) (out []askedAddress) {
	list, _ := derive.Get(r, t.divided, key)
	done := map[EntryID]bool{}
	for _, d := range list {
		for _, at := range t.enter(d.set.Protocol, d.at, r) {
			id := EntryID{d.set.Protocol, at.vip}
			if at.kind == service.ClusterIP || done[id] {
				continue
			}
			done[id] = true
			a := askedAddress{protocol: d.set.Protocol, port: at.vip.Port()}
			to := func(ip netip.Addr, number uint16, more ...flow.Cond) {
				proto, port := portMatch(d.set.Protocol, number)
				if ip.Is4() == at.vip.Addr().Is4() {
					a.matches = append(a.matches, askedMatch{ip, append(more, proto, flow.IPDst(host(ip)), port)})
				}
			}
			number := at.vip.Port()
			if at.isExternal() {
				to(at.vip.Addr(), number)
				number = uint16(at.entry)
			} else {
				for _, ip := range derived(r, t.base.outside).NodePorts {
					// A Service with this external address and port comes before.
					external := EntryID{d.set.Protocol, netip.AddrPortFrom(ip, number)}
					if _, taken := derive.Get(r, t.Entries, external); !taken {
						to(ip, number, source.Is(fromPod))
					}
				}
			}
			for _, e := range Entries {
				if e.External == at.isExternal() {
					to(e.Addr, number, source.Is(fromGateway))
				}
			}
			out = append(out, a)
		}
	}
	return out
}

// JudgedRule is a rule of a Service as this Node's switch has it.
type JudgedRule struct {
	policy.ServiceRule
	// Beyond is set for a rule beyond maxServiceRuleFlows. Such a rule has no effect if it allows, and denies everything
	// otherwise.
	Beyond bool
}

// decides reports whether the rule is about a client that asks for a port.
func (j JudgedRule) decides(client netip.Addr, protocol corev1.Protocol, port uint16) bool {
	if j.Beyond {
		return j.Action != policy.Allow
	}
	return (j.AnyPeer || slices.ContainsFunc(j.Blocks, func(b netip.Prefix) bool { return b.Contains(client) })) &&
		(j.AnyPort || slices.ContainsFunc(j.Ports, func(p policy.PortRange) bool {
			return p.Protocol == protocol && p.From <= port && port <= p.To
		}))
}

// Judge returns the rule of a Service that decides about a client's new connection to a node port or an external
// address. The port is the destination port that the client uses. It returns false if no rule decides. The action of a
// rule beyond the bound is Drop, unless it rejects. Call it between two passes (derive.Engine.Do).
func (t *ServicePolicies) Judge(key derive.Object, client netip.Addr, protocol corev1.Protocol, port uint16,
) (JudgedRule, bool) {
	rules, _ := t.rules.Get(key)
	passed := false
	for _, j := range rules {
		switch {
		case passed && j.Stage == policy.Admin, !j.decides(client, protocol, port):
			continue
		case j.Action != policy.Pass:
			return j, true
		case j.Beyond:
			j.Action = policy.Drop
			return j, true
		}
		passed = true
	}
	return JudgedRule{}, false
}

// rulesOf returns the rules of a Service that has addresses for clients outside.
func (t *ServicePolicies) rulesOf(key derive.Object, r *derive.Reader) (out []JudgedRule, problems []problem.Problem) {
	rules, _ := derive.Get(r, t.base.Policy.ServiceRules, key)
	_, ok := derive.Get(r, t.numbers, key)
	if !ok || len(rules) == 0 {
		return nil, nil // the table of numbers reports it
	}
	addresses := t.services.askedAt(key, r)
	if len(addresses) == 0 {
		return nil, nil
	}
	families, flows := derived(r, t.base.outside).Families, 1
	for _, a := range addresses {
		flows += len(a.matches)
	}
	for _, rule := range rules {
		matches, ok := matchesOf(rule, addresses, families, nil, maxServiceRuleFlows-flows)
		switch {
		case ok:
			flows += len(matches)
		case rule.Action != policy.Allow:
			flows++
		}
		if !ok {
			problems = append(problems, problem.Problem{
				Object: problem.Object{
					Kind: rule.Key.Policy.Kind.String(), Namespace: rule.Key.Policy.Namespace, Name: rule.Key.Policy.Name,
				},
				Field: fmt.Sprintf("spec.%s[%d]", rule.Key.Direction, rule.Key.Index), Reason: policy.ReasonTooLarge,
				Message: fmt.Sprintf("the rules for Service %s need more than %d flows: a rule that allows does nothing, and "+
					"another one denies everything; write fewer ranges or ports", key, maxServiceRuleFlows),
			})
		}
		out = append(out, JudgedRule{rule, !ok})
	}
	return out, problems
}

// flowsOf returns the flows of the policies of a Service.
func (t *ServicePolicies) flowsOf(key derive.Object, r *derive.Reader) (e flow.Entries, problems []problem.Problem) {
	rules, _ := derive.Get(r, t.rules, key)
	if len(rules) == 0 {
		return e, nil
	}
	number, _ := derive.Get(r, t.numbers, key)
	addresses := t.services.askedAt(key, r)
	of, pass := judged.Is(uint64(number)), flow.Do(flow.Load(judged, judgedDone), flow.Resubmit(External))
	for _, a := range addresses {
		for _, m := range a.matches {
			e.Flows = append(e.Flows, flow.Flow{
				Table: External, Priority: ruled, Match: flow.All(append(slices.Clone(m.conds), judged.Is(0))...),
				Actions: flow.Do(flow.Load(judged, uint64(number)), flow.Resubmit(External)),
			})
		}
	}
	e.Flows = append(e.Flows, flow.Flow{Table: External, Priority: ruled, Match: flow.All(of), Actions: pass})
	rate, _ := derive.Get(r, t.base.rate, Self)
	for i, rule := range rules {
		conds := []flow.Cond{of}
		if rule.Stage == policy.Admin {
			conds = append(conds, passed.Is(0))
		}
		matches := []flow.Match{flow.All(conds...)}
		switch {
		case !rule.Beyond:
			matches, _ = matchesOf(rule.ServiceRule, addresses, derived(r, t.base.outside).Families, conds, maxServiceRuleFlows)
		case rule.Action == policy.Allow:
			continue
		case rule.Action == policy.Pass:
			rule.Action = policy.Drop
		}
		f := flow.Flow{Table: External, Priority: skip - uint16(i)}
		switch rule.Action {
		case policy.Allow:
			f.Actions = pass
		case policy.Pass:
			f.Actions = flow.Do(flow.Load(passed, 1), flow.Resubmit(External))
		case policy.Reject:
			f.Actions = ask(PolicyReject, rate, untranslatedWord)
		}
		if rule.Log && rate > 0 {
			share := shareOf(PolicyLog, number, rate)
			entry := logEntry(rule.Key, policy.Rule{Rank: rule.Rank, Name: rule.Name, LogLabel: rule.LogLabel}, f.Priority)
			f.Actions = append(log(entry, share.ID), f.Actions...)
			e.Meters = []flow.Meter{share}
		}
		for _, m := range matches {
			f.Match = m
			e.Flows = append(e.Flows, f)
		}
	}
	return e, nil
}

// matchesOf returns the matches for the clients and ports of a rule, combined with further conditions. It returns false
// if there are more than most. A client's address has the IP version of the destination.
func matchesOf(rule policy.ServiceRule, addresses []askedAddress, families family.Families, conds []flow.Cond, most int,
) (out []flow.Match, ok bool) {
	to := []askedMatch{{}}
	if !rule.AnyPort {
		to = nil
		for _, a := range addresses {
			if slices.ContainsFunc(rule.Ports, func(p policy.PortRange) bool {
				return p.Protocol == a.protocol && p.From <= a.port && a.port <= p.To
			}) {
				to = append(to, a.matches...)
			}
		}
	}
	add := func(t askedMatch, from ...flow.Cond) bool {
		out = append(out, flow.All(slices.Concat(conds, t.conds, from)...))
		return len(out) <= most
	}
	for _, t := range to {
		if rule.AnyPeer && !add(t) {
			return nil, false
		}
		for _, b := range rule.Blocks {
			var from []flow.Cond
			switch {
			case !families.Serve(b.Addr()), t.to.IsValid() && t.to.Is4() != b.Addr().Is4():
				continue
			case b.Bits() > 0:
				from = []flow.Cond{flow.IPSrc(b)}
			case families.Has6():
				from = []flow.Cond{versionOf(b.Addr())}
			}
			if !rule.AnyPeer && !add(t, from...) {
				return nil, false
			}
		}
	}
	return out, true
}
