package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// ServiceRule is a rule that is applied to a Service. It decides about new connections to its node ports and external
// addresses, before an endpoint is chosen: by the address of the client and the destination port that the client uses.
type ServiceRule struct {
	Key RuleKey
	Rank
	AnyPeer bool
	Blocks  []netip.Prefix
	AnyPort bool
	Ports   []PortRange
	// Log is set if connections that the rule decides are logged, with LogLabel. Name is the rule's name.
	Log            bool
	Name, LogLabel string
}

// ofServices reports whether a policy, or any of its ingress rules, is applied to a Service.
func (f Facts) ofServices() bool {
	return len(f.Ingress.rules()) > 0 && (len(f.AppliedServices) > 0 ||
		slices.ContainsFunc(f.Ingress.rules(), func(r RuleFacts) bool { return len(r.AppliedServices) > 0 }))
}

// forService returns a rule in the form that judges connections to Services. If a rule allows or passes, peers and
// ports that cannot be checked there are left out. If it denies, they match everything.
func (f ruleFacts) forService(k RuleKey) ServiceRule {
	out := ServiceRule{
		Key: k, Rank: f.Rank, AnyPeer: f.AnyPeer, Blocks: f.Blocks, AnyPort: f.AnyPort, Ports: f.Ports,
		Log: f.Log, Name: f.Name, LogLabel: f.LogLabel,
	}
	if f.OtherPeers {
		out.AnyPeer, out.Blocks = f.denies(), f.Written
	}
	if f.OtherPorts {
		out.AnyPort = f.denies()
		out.Ports = slices.DeleteFunc(slices.Clone(f.Ports), func(p PortRange) bool { return p.SourceFrom > 0 })
	}
	return out
}

// serviceRules returns the rules of a Service. The first that matches decides. If Outside is not set, it returns no
// rules, and a Problem for each policy.
func (t *ruleTables) serviceRules(service derive.Object, r *derive.Reader) (
	out []ServiceRule, problems []problem.Problem,
) {
	for _, row := range derive.List(r, t.ruledServices, service) {
		f := row.Value
		if !t.all.Outside {
			p := problem.Problem{
				Object: row.Key.Policy.problem(), Field: "spec.appliedTo", Reason: reasonNotServed,
				Message: fmt.Sprintf("node ports and external addresses of Service %s are not served, so rules for it do "+
					"nothing: set antreaProxy.proxyAll in antrea-agent.conf", service),
			}
			if !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
			continue
		}
		out = append(out, f.forService(row.Key))
	}
	slices.SortStableFunc(out, func(a, b ServiceRule) int { return a.Compare(b.Rank) })
	return out, problems
}
