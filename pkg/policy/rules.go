package policy

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// ruleTables have the rules of active policies on their way to Tables.Rules.
type ruleTables struct {
	all           *Tables
	instances     *derive.Table[Key, []RuleKey]
	resolved      *derive.Table[RuleKey, ruleFacts]
	ruledServices *derive.Index[derive.Object, RuleKey, ruleFacts]
	standing      *derive.Table[RuleKey, ruleFacts] // resolved, without what is beyond a bound
	drafts        *derive.Table[RuleKey, Rule]      // Rules if they were alone
}

// ruleKeys returns the rules of a policy. If peers depend on the Namespace of the Pod that a rule is applied to, there
// is a rule for each of these Namespaces, and one without a Namespace for the Services that it is applied to.
func (t *ruleTables) ruleKeys(k Key, r *derive.Reader) (out []RuleKey, _ []problem.Problem) {
	f, _ := derive.Get(r, t.all.actives.active, k)
	for d, facts := range [...]*DirectionFacts{f.Ingress, f.Egress} {
		if facts == nil {
			continue
		}
		for i, rule := range facts.Rules {
			key := RuleKey{Policy: k, Direction: Direction(d), Index: i}
			switch {
			case rule.Void || rule.Folded:
			case len(rule.Relative) == 0:
				out = append(out, key)
			default:
				if Direction(d) == Ingress && len(f.AppliedServices)+len(rule.AppliedServices) > 0 {
					out = append(out, key)
				}
				for _, namespace := range t.all.actives.appliedNamespaces(k, r) {
					key.For = namespace
					out = append(out, key)
				}
			}
		}
	}
	return out, nil
}

// appliedNamespaces returns the Namespaces of this Node's Pods that a policy is applied to.
func (t *activeTables) appliedNamespaces(k Key, r *derive.Reader) []string {
	var out []string
	for _, row := range derive.List(r, t.byPolicy, k) {
		set, _ := derive.Get(r, t.all.ids.sets, row.Key)
		out = append(out, set.namespaceName())
	}
	return sorted(out, strings.Compare)
}

// ruleFacts are the facts of a rule, with its rank. Names of groups, Nodes, related Namespaces and Services are already
// replaced by selectors and addresses.
type ruleFacts struct {
	RuleFacts
	Rank     Rank
	Blocks   []netip.Prefix // of both families, sorted, none within another
	Services []derive.Object
	Written  []netip.Prefix // with OtherPeers, the Blocks that the rule itself names
	Meaning  uint64
	Keep     bool // of known connections
	// Only has the numbers of the identities that a rule beyond a bound still applies to. nil means that it applies to
	// all.
	Only []uint32
}

// sameFacts compares ruleFacts; reflection is slow for their long lists.
func sameFacts(a, b ruleFacts) bool {
	if !slices.Equal(a.Blocks, b.Blocks) {
		return false
	}
	a.Blocks, b.Blocks = nil, nil
	return reflect.DeepEqual(a, b)
}

// sameRule compares Rules; reflection is slow for their long lists.
func sameRule(a, b Rule) bool {
	if !slices.Equal(a.Peers, b.Peers) || !slices.Equal(a.ClusterSet, b.ClusterSet) || !slices.Equal(a.Blocks, b.Blocks) {
		return false
	}
	a.Peers, a.ClusterSet, a.Blocks = nil, nil, nil
	b.Peers, b.ClusterSet, b.Blocks = nil, nil, nil
	return reflect.DeepEqual(a, b)
}

// meaning is a hash of what a rule selects and does.
func (f ruleFacts) meaning() uint64 {
	h := fnv.New64a()
	// The text is fixed and not generated from the struct's fields, since connections remember its hash over an upgrade.
	fmt.Fprintf(h, "{RuleFacts:{Action:%v Void:%v AppliedTo:%+v AnyPeer:%v Peers:%+v ClusterSet:%+v Relative:%+v "+
		"Nodes:%+v ",
		f.Action, f.Void, f.AppliedTo, f.AnyPeer, f.Peers, f.ClusterSet, f.Relative, f.Nodes)
	fmt.Fprintf(h, "Blocks:%+v Services:%+v Names:%+v AnyPort:%v Ports:%+v Named:%+v ICMP:%+v IGMP:%+v ",
		f.Blocks, f.RuleFacts.Services, f.Names, f.AnyPort, f.Ports, f.Named, f.ICMP, f.IGMP)
	fmt.Fprintf(h, "Log:false Name: LogLabel:} Rank:%v Services:%+v Meaning:0 Keep:false}", f.Rank, f.Services)
	return h.Sum64()
}

func (t *ruleTables) resolve(k RuleKey, r *derive.Reader) (out ruleFacts, problems []problem.Problem) {
	policy, _ := derive.Get(r, t.all.actives.active, k.Policy)
	facts := policy.Ingress
	if k.Direction == Egress {
		facts = policy.Egress
	}
	if facts == nil || k.Index >= len(facts.Rules) {
		return ruleFacts{}, nil
	}
	f := facts.Rules[k.Index]
	if t.all.limits.isOver(k, r) {
		if f = f.beyond(); f.Void {
			return ruleFacts{}, nil
		}
	}
	understood := true
	report := func(field string, reason reasons.Reason, format string, args ...any) {
		problems = append(problems,
			problem.Problem{Object: k.Policy.problem(), Field: fmt.Sprintf("spec.%s[%d]%s", k.Direction, k.Index, field),
				Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	out = ruleFacts{RuleFacts: f, Rank: policy.rank(k.Index, f.Action)}
	out.AppliedTo, out.Peers, out.Ranges, out.Cost = nil, nil, nil, 0
	ranges := f.Ranges
	expand := func(list []Selector, field string) (selectors []Selector) {
		for _, s := range list {
			if s.Group == "" {
				selectors = append(selectors, s)
				continue
			}
			m, _ := derive.Get(r, t.all.selectors.groups, derive.Object{Namespace: s.Namespace, Name: s.Group})
			if !m.Known {
				problems = append(problems, unknownGroup(k.Policy, fmt.Sprintf("spec.%s[%d]%s", k.Direction, k.Index, field), s))
			}
			selectors = append(selectors, m.Selectors...)
			if field == "" { // peers
				understood = understood && m.Known && !m.Broken
				ranges = append(slices.Clip(ranges), m.Ranges...)
			}
		}
		return selectors
	}
	out.AppliedTo = expand(slices.Concat(policy.AppliedTo, f.AppliedTo), ".appliedTo")
	out.AppliedServices = nil
	if k.Direction == Ingress {
		out.AppliedServices = sorted(slices.Concat(policy.AppliedServices, f.AppliedServices), derive.Object.Compare)
	}
	out.Peers = expand(f.Peers, "")
	for _, n := range f.Relative {
		if k.For != "" {
			out.Peers = append(out.Peers, t.relative(n, k.For, r)...)
		}
	}
	out.Blocks = prefixes(ranges)
	if bound := t.all.limits.bounds.of(k.Policy.Namespace); len(out.Blocks) > bound { // by groups
		problems = append(problems, tooLarge(k.Policy.problem(), k.field(), 1,
			fmt.Sprintf("the groups that a rule names may have %d ranges together", bound)))
		if f = f.beyond(); f.Void {
			return ruleFacts{}, problems
		}
		services := out.AppliedServices
		out.RuleFacts, out.Rank, out.Blocks = f, policy.rank(k.Index, f.Action), nil
		out.AppliedServices = services
		out.AppliedTo, out.Peers, out.Cost = expand(slices.Concat(policy.AppliedTo, f.AppliedTo), ".appliedTo"), nil, 0
	}
	switch {
	case len(f.Relative) == 0:
	case k.For == "":
		out.AppliedTo = nil // other rules are for the Pods
	default:
		out.AppliedServices = nil
	}
	if f.OtherPeers {
		out.Written = prefixes(f.Ranges)
	}
	if len(f.Nodes) > 0 {
		out.Blocks = t.withNodes(k.Policy.Kind, f.Nodes, out.Blocks, r)
	}
	if len(f.ClusterSet) > 0 {
		published, _ := derive.Get(r, t.all.others.publishing, "")
		switch {
		case !t.all.stretched:
			report(map[Direction]string{Ingress: ".from", Egress: ".to"}[k.Direction], reasonNotStretched,
				"policies are not stretched over the ClusterSet, so scope ClusterSet means this cluster alone: set "+
					"multicluster.enableStretchedNetworkPolicy in the agents' configuration")
			out.ClusterSet = nil
		case k.Direction == Egress && !published:
			report(".to", reasonNoPodAddresses,
				"no other cluster publishes the addresses of its Pods, so scope ClusterSet means this cluster alone: set "+
					"publishPodAddresses in the configuration of the member controllers of the clusters that are meant")
			out.ClusterSet = nil
		}
	}
	for i, s := range f.Services {
		if s.ClusterSet && !t.all.stretched {
			report(fmt.Sprintf(".toServices[%d].scope", i), reasonNotStretched,
				"policies are not stretched over the ClusterSet, so it is left out: set "+
					"multicluster.enableStretchedNetworkPolicy in the agents' configuration")
			understood = false
			continue
		}
		out.Services = append(out.Services, s.service())
	}
	if !understood && f.denies() {
		out.AnyPeer = true
	}
	out.Peers, out.Services = sorted(out.Peers, Selector.Compare), sorted(out.Services, derive.Object.Compare)
	out.Meaning, out.Keep = out.meaning(), policy.Keep
	return out, problems
}

// unknownGroup is the problem of a policy that names a group that there is not.
func unknownGroup(k Key, field string, group Selector) problem.Problem {
	return problem.Problem{Object: k.problem(), Field: field, Reason: ReasonUnknownGroup,
		Message: fmt.Sprintf("there is no %s: create it", group)}
}

// relative returns the selectors of a peer for Pods of a Namespace. It returns no selector if the Namespace lacks one
// of the labels.
func (t *ruleTables) relative(n Relative, namespace string, r *derive.Reader) []Selector {
	if n.SameLabels == "" {
		return []Selector{{Namespace: namespace, Pods: n.Pods}}
	}
	text, _ := derive.Get(r, t.all.Namespaces, derive.Object{Name: namespace})
	set := setOf(text)
	var same []string
	for key := range strings.SplitSeq(n.SameLabels, ",") {
		value, has := set[key]
		if !has {
			return nil
		}
		same = append(same, key+"="+value)
	}
	slices.Sort(same)
	return []Selector{{Namespaces: strings.Join(same, ","), Pods: n.Pods}}
}

// withNodes adds the addresses of the Nodes that label selectors in text form select.
func (t *ruleTables) withNodes(kind Kind, selectors []string, to []netip.Prefix, r *derive.Reader) []netip.Prefix {
	var blocks netipx.IPSetBuilder
	for _, b := range to {
		blocks.AddPrefix(b)
	}
	for _, text := range selectors {
		p, err := t.all.selectors.parse(Selector{Pods: text})
		if err != nil {
			continue // not with selectors that facts were made with
		}
		for _, row := range derive.All(r, t.all.Nodes) {
			if p.pods.Matches(setOf(row.Value.Labels)) {
				for _, ip := range row.Value.addresses(kind) {
					blocks.Add(ip)
				}
			}
		}
	}
	set, err := blocks.IPSet()
	if err != nil { // its only error is an invalid range
		return to
	}
	return set.Prefixes()
}

// rank returns the rank of a rule of a policy.
func (f Facts) rank(index int, a Action) Rank {
	if f.Stage == NetworkPolicies {
		return NetworkPolicyRank
	}
	return Rank{f.Stage, f.TierPriority, f.Priority, index, a}
}

// draft is a rule as it would be if it were alone.
func (t *ruleTables) draft(k RuleKey, r *derive.Reader) (rule Rule, _ []problem.Problem) {
	f, ok := derive.Get(r, t.standing, k)
	if !ok {
		return Rule{}, nil
	}
	applied := t.appliedIdentities(k, f, r)
	rule = Rule{
		Rank: f.Rank, Meaning: f.Meaning, Keep: f.Keep, Applied: t.all.ids.numbersOf(r, applied),
		AnyPeer: f.AnyPeer, Peers: t.peerNumbers(f, r), Blocks: t.all.selectors.blocks(f, r),
		Services: f.Services, Names: f.Names,
		AnyPort: f.AnyPort, Ports: f.Ports, ICMP: f.ICMP, IGMP: f.IGMP,
		Log: f.Log, Name: f.Name, LogLabel: f.LogLabel,
	}
	if f.Only != nil {
		rule.Applied = slices.DeleteFunc(rule.Applied, func(n uint32) bool { return !slices.Contains(f.Only, n) })
		if len(rule.Applied) == 0 {
			return Rule{}, nil
		}
	}
	rule.Asked = t.all.selectors.asked(f, r)
	for _, s := range f.ClusterSet {
		list, _ := derive.Get(r, t.all.others.remotePeers, s)
		rule.ClusterSet, rule.Stretched = append(rule.ClusterSet, list...), true
	}
	if f.deniesUnknown(k.Direction) && len(f.Peers) > 0 {
		rule.Peers = append(slices.Clip(rule.Peers), UnknownPod) // which is the highest number
	}
	slices.Sort(rule.ClusterSet)
	rule.ClusterSet = slices.Compact(rule.ClusterSet)
	rule.Targets, rule.UnknownPorts = t.targets(k.Direction, f, applied, r), f.unknownPorts(k.Direction)
	return rule, nil
}

// appliedIdentities returns the identities of Pods of this Node that a rule is applied to.
func (t *ruleTables) appliedIdentities(k RuleKey, f ruleFacts, r *derive.Reader) (out []Identity) {
	for _, row := range derive.List(r, t.all.actives.byPolicy, k.Policy) {
		if !slices.Contains(row.Value[k.Direction][f.Rank.Stage], k.Policy) {
			continue
		}
		set, _ := derive.Get(r, t.all.ids.sets, row.Key)
		if (k.For == "" || set.namespaceName() == k.For) && t.all.selectors.selects(r, k.Policy, f.AppliedTo, set) {
			out = append(out, row.Key)
		}
	}
	return out
}

// peerNumbers returns the numbers of the identities that a rule's selectors select, sorted. A rule with only one
// selector shares the list with the selector. Most rules have one selector, and the list may be long.
func (t *ruleTables) peerNumbers(f ruleFacts, r *derive.Reader) []uint32 {
	if len(f.Peers) == 1 {
		list, _ := derive.Get(r, t.all.selectors.numbered, f.Peers[0])
		return list
	}
	var out []uint32
	for _, s := range f.Peers {
		list, _ := derive.Get(r, t.all.selectors.numbered, s)
		out = append(out, list...)
	}
	return sorted(out, cmp.Compare[uint32])
}

// targets are what the names of a rule's ports mean.
func (t *ruleTables) targets(d Direction, f ruleFacts, applied []Identity, r *derive.Reader) (out []Target) {
	var peers []Identity
	if d == Egress && len(f.Named) > 0 {
		for _, s := range f.Peers {
			list, _ := derive.Get(r, t.all.selectors.peers, s)
			peers = append(peers, list...)
		}
	}
	ends := map[PortRange][]FurtherAddr{}
	for _, name := range f.Named {
		pods := t.all.ids.byPort
		if d == Ingress {
			pods = t.all.ids.byPortHere
		}
		for _, row := range derive.List(r, pods, name) {
			i, _ := derive.Get(r, t.all.Identities, row.Key)
			if d == Ingress && !slices.Contains(applied, i) {
				continue
			}
			var own []FurtherAddr
			for _, ip := range t.all.places.addressesOfPod(r, row.Key, row.Value) {
				own = append(own, FurtherAddr{Addr: ip})
			}
			for _, further := range t.all.places.furtherOfPod(r, row.Key, row.Value) {
				own = append(own, further.key())
			}
			if d == Egress && !f.AnyPeer && !slices.Contains(peers, i) &&
				!slices.ContainsFunc(own, func(a FurtherAddr) bool { return f.inBlock(a.Addr) }) {
				continue
			}
			for _, p := range row.Value.Ports {
				if p.portName == name {
					port := PortRange{Protocol: name.Protocol, From: p.Port, To: p.Port}
					ends[port] = append(ends[port], own...)
				}
			}
		}
	}
	for port, all := range ends {
		out = append(out, Target{port, sorted(all, FurtherAddr.Compare)})
	}
	slices.SortFunc(out, func(a, b Target) int { return a.Compare(b.PortRange) })
	return out
}

func (f ruleFacts) inBlock(a netip.Addr) bool {
	return slices.ContainsFunc(f.Blocks, func(b netip.Prefix) bool { return b.Contains(a) })
}

func (t *identityTables) numbersOf(r *derive.Reader, list []Identity) []uint32 {
	var out []uint32
	for _, i := range list {
		if n, ok := derive.Get(r, t.all.Numbers, i); ok {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
