package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/flowsync"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// ruleCounts are the switch's counters by rule.
type ruleCounts struct {
	rules  map[policy.RuleKey]api.Counters
	denied map[policy.Direction]api.Counters // packets that no rule allows
	// fragments counts fragments that end before a stage, by flow.
	fragments map[fragmentFlow]api.Counters
}

// fragmentFlow names a flow that ends fragments before a stage.
type fragmentFlow struct {
	owner flow.Owner
	table ofp.Table
}

// ended is how many fragments have ended in a direction.
func (c ruleCounts) ended(d policy.Direction) (sum api.Counters) {
	for f, count := range c.fragments {
		if datapath.RuleTables[f.table] == d {
			sum.Add(count)
		}
	}
	return sum
}

// policyAnswers answers requests about the policies and the switch's counters for them.
type policyAnswers struct {
	tables *tables
	flows  *flowsync.Syncer
}

// countRules reads the switch's counters of rules.
func (a *policyAnswers) countRules(ctx context.Context) (ruleCounts, error) {
	flows, err := a.flows.DumpTables(ctx, slices.Sorted(maps.Keys(datapath.RuleTables))...)
	if err != nil {
		return ruleCounts{}, fmt.Errorf("read the counters of rules: %w", err)
	}
	var owners map[flow.Owner]policy.RuleKey
	if err := ask(ctx, a.tables.engine, func() { owners = a.tables.flows.Policies.RuleOwners() }); err != nil {
		return ruleCounts{}, err
	}
	out := ruleCounts{map[policy.RuleKey]api.Counters{}, map[policy.Direction]api.Counters{},
		map[fragmentFlow]api.Counters{}}
	for _, f := range flows {
		count := api.Counters{Packets: f.Packets, Bytes: f.Bytes, Connections: f.Packets}
		if f.Flow.Priority == 0 {
			if datapath.IsolationTables[f.Flow.Table] {
				out.denied[datapath.RuleTables[f.Flow.Table]] = count
			}
			continue
		}
		if datapath.CountsFragments(f.Flow) {
			out.fragments[fragmentFlow{f.Owner, f.Flow.Table}] = count
			continue
		}
		if k, ok := owners[f.Owner]; ok {
			sum := out.rules[k]
			sum.Add(count)
			out.rules[k] = sum
		}
	}
	return out, nil
}

// countPolicyFlows counts the flows of policies by Namespace.
func (a *policyAnswers) countPolicyFlows(ctx context.Context) (out map[string]int, err error) {
	err = ask(ctx, a.tables.engine, func() { out = a.tables.flows.Policies.Flows() })
	return out, err
}

// ask reads tables between two passes.
func ask(ctx context.Context, e *derive.Engine, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !e.Do(ctx, f) {
		return errors.New("the agent does not look at its tables yet: is the OVSDB running?")
	}
	return nil
}

// standing are the policies that apply to Pods of this Node.
func (a *policyAnswers) standing(ctx context.Context) (list []policy.Standing, err error) {
	err = ask(ctx, a.tables.engine, func() { list = a.tables.policies.Standing() })
	return list, err
}

// servePolicies lists the policies that apply to Pods of this Node.
func (a *policyAnswers) servePolicies(r *http.Request) (any, error) {
	standing, err := a.standing(r.Context())
	if err != nil {
		return nil, err
	}
	counts, err := a.countRules(r.Context())
	if err != nil {
		return nil, err
	}
	list := api.PolicyList{Policies: []api.Policy{}}
	for _, s := range standing {
		p := api.Policy{
			Kind: s.Policy.Kind.String(), Namespace: s.Policy.Namespace, Name: s.Policy.Name,
			Pods: texts(s.Pods), Rules: len(s.Rules), Problems: problemsOf(s.Problems),
		}
		if s.Policy.Kind != policy.NetworkPolicy {
			f := a.tables.policies.Facts(s.Policy)
			p.Tier, p.TierPriority, p.Priority = f.Tier, new(int32(f.TierPriority)), &f.Priority
		}
		for _, rule := range s.Rules {
			p.Add(counts.rules[rule.Key])
		}
		list.Policies = append(list.Policies, p)
	}
	return list, nil
}

func problemsOf(list []problem.Problem) (out []api.Problem) {
	for _, p := range list {
		out = append(out, api.Problem{Object: p.Object.String(), Field: p.Field, Reason: p.Reason.String(),
			Message: p.Message})
	}
	return out
}

// serveRules lists the rules of the policies with the switch's counters.
func (a *policyAnswers) serveRules(r *http.Request) (any, error) {
	standing, err := a.standing(r.Context())
	if err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("policy")
	if name != "" {
		standing = slices.DeleteFunc(standing, func(s policy.Standing) bool { return !called(s.Policy, name) })
		if len(standing) == 0 {
			return nil, fmt.Errorf("no policy %q applies to Pods of Node %s: see `tombolo get policies` for those that do", name,
				a.tables.nodeName)
		}
	}
	counts, err := a.countRules(r.Context())
	if err != nil {
		return nil, err
	}
	list := api.RuleList{Rules: []api.Rule{}, Denied: []api.Denied{}}
	for _, s := range standing {
		for _, rule := range s.Rules {
			out := api.Rule{
				Kind: s.Policy.Kind.String(), Namespace: s.Policy.Namespace, Policy: s.Policy.Name,
				Direction: rule.Key.Direction.String(), Index: rule.Key.Index, Action: rule.Action.String(),
				Pods: texts(rule.Pods), Applied: append([]uint32{}, rule.Applied...),
				Peers: append([]string{}, rule.Peers...), Ports: append([]string{}, rule.Ports...),
				Counters: counts.rules[rule.Key],
			}
			compiled, _ := a.tables.policies.Rules.Get(rule.Key)
			out.Name = compiled.Name
			list.Rules = append(list.Rules, out)
		}
	}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		if name != "" {
			break // they are of all policies
		}
		count := counts.denied[d]
		list.Denied = append(list.Denied, api.Denied{
			Direction: d.String(), Packets: count.Packets, Bytes: count.Bytes, Fragments: counts.ended(d).Packets,
		})
	}
	return list, nil
}

// called reports whether NAME or NAMESPACE/NAME means a policy.
func called(k policy.Key, name string) bool {
	return name == k.Name || strings.TrimPrefix(k.Namespace+"/"+k.Name, "/") == name
}

// serveIdentities lists the label identities and how many Pods use them.
func (a *policyAnswers) serveIdentities(r *http.Request) (any, error) {
	list := api.IdentityList{Identities: []api.Identity{}}
	err := ask(r.Context(), a.tables.engine, func() {
		for _, u := range a.tables.policies.IdentityUses() {
			list.Identities = append(list.Identities, api.Identity{
				Number: u.Number, ClusterSet: u.ClusterSet, Labels: string(u.Identity), Here: u.Here, Elsewhere: u.Elsewhere,
				Addresses: u.Addresses,
			})
		}
	})
	return list, err
}
