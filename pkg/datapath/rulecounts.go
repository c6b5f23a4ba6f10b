package datapath

import (
	"maps"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// RuleTables are the tables that count the packets that rules judge. These are packets that open connections, and
// packets of connections that are judged again.
var RuleTables = map[ofp.Table]policy.Direction{
	EgressAdmin: policy.Egress, EgressRule: policy.Egress, EgressBaseline: policy.Egress,
	IngressAdmin: policy.Ingress, IngressRule: policy.Ingress, IngressBaseline: policy.Ingress,
}

// IsolationTables are the RuleTables whose flow of priority 0 counts packets that no rule matches, among
// NetworkPolicies that isolate a Pod.
var IsolationTables = map[ofp.Table]bool{EgressRule: true, IngressRule: true}

// RuleOwners returns the owners of the flows in RuleTables that count a rule's packets, with the rule.
func (p *Policies) RuleOwners() map[flow.Owner]policy.RuleKey {
	out := map[flow.Owner]policy.RuleKey{}
	for _, row := range p.in.Rules.All() {
		if len(parts(row.Key, row.Value)) > 0 {
			out[ruleOwner(row.Key)] = row.Key
		}
	}
	return out
}

// NamedRule is a rule with the name that its policy gives it.
type NamedRule struct {
	Key  policy.RuleKey
	Name string
}

// RuleNames returns the rules in two maps: by the owner of their flows, and by the number that their connections
// remember. Call it between two passes.
func (p *Policies) RuleNames() (byOwner map[flow.Owner]NamedRule, byNumber map[uint32]NamedRule) {
	byOwner, byNumber = map[flow.Owner]NamedRule{}, map[uint32]NamedRule{}
	for _, row := range p.outlines.All() {
		rule := NamedRule{row.Key, row.Value.Name}
		byOwner[ruleOwner(row.Key)] = rule
		if n, _ := p.numbers.rules.Get(row.Key); n != 0 {
			byNumber[n] = rule
		}
	}
	return byOwner, byNumber
}

// Flows returns how many flows the rules of each Namespace have, with "" for policies without a Namespace. A flow that
// rules of several Namespaces share counts for each of them. Call it between two passes.
func (p *Policies) Flows() map[string]int {
	out, seen := map[string]int{}, map[string]map[clause]bool{}
	for _, row := range p.membersOf.All() {
		namespace := row.Key.Policy.Namespace
		verdict, _ := p.verdicts.Get(row.Key)
		out[namespace] += len(verdict.Flows)
		if seen[namespace] == nil {
			seen[namespace] = map[clause]bool{}
		}
		for _, c := range row.Value.clauses {
			seen[namespace][c] = true
		}
	}
	for namespace, clauses := range seen {
		out[namespace] += len(clauses)
	}
	return out
}

// Refused returns the policies whose flows the switch refuses, each with one of the errors. all is not nil if
// the switch refuses flows that rules share, such as flows of addresses. Call it between two passes.
func (p *Policies) Refused(refused map[flow.Owner]error) (of map[policy.Key]error, all error) {
	of = map[policy.Key]error{}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(refused)), ofPolicies) {
		return of, nil
	}
	note := func(o flow.Owner, k policy.Key) {
		if err := refused[o]; err != nil {
			of[k] = err
		}
	}
	for _, row := range p.membersOf.All() {
		note(ruleOwner(row.Key), row.Key.Policy)
	}
	// Each clause has its owner made once: many rules may share it.
	for _, row := range p.clauses.All() {
		o := clauseOwner(row.Key)
		if refused[o] == nil {
			continue
		}
		for _, k := range p.members.Keys(row.Key) {
			note(o, k.Policy)
		}
	}
	for _, table := range p.shared() {
		table.each(func(o flow.Owner, _ flow.Entries) bool {
			all = refused[o]
			return all == nil
		})
		if all != nil {
			break
		}
	}
	return of, all
}

// ofPolicies reports whether an owner is of policies.
func ofPolicies(o flow.Owner) bool { return o.Kind == KindPolicy }

// OwnersOf returns the owners of the flows of some policies. These are flows of their rules' verdicts, and flows of
// their rules' clauses, which other policies may share. Call it between two passes.
func (p *Policies) OwnersOf(wanted func(policy.Key) bool) map[flow.Owner]bool {
	out := map[flow.Owner]bool{}
	for _, row := range p.membersOf.All() {
		if !wanted(row.Key.Policy) {
			continue
		}
		out[ruleOwner(row.Key)] = true
		for _, c := range row.Value.clauses {
			out[clauseOwner(c)] = true
		}
	}
	return out
}
