package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A user that may write policies in one Namespace must not disable the policies of others. So policies have bounds, far
// below the limits of a switch. A rule beyond a bound is closed. If it allows, the whole rule is left out. If it denies
// or passes, it denies everything. The policy has a Problem then, and rules of other Namespaces do not change.
//
// The cost of a rule follows from its text: 1, and 1 for each peer that is not a range, each Service and protocol, for
// each selector and each label, expression and value in it, for each prefix of its ranges without their exceptions, and
// for each match that its ports need.

// Bounds are what policies may cost; docs/policy-guarantees.md has the numbers.
type Bounds struct {
	// Policy is the cost of one policy that has a Namespace, Wide that of one without.
	Policy, Wide int
	// Namespace is the cost of the policies of one Namespace that apply to Pods of a Node. Rules is the number of their
	// rules in one direction.
	Namespace, Rules int
	// Members is the number of label sets with which peers of one Namespace's rules are compared on a Node. It also counts
	// the Pods that have ports of the names in these rules.
	Members int
	// Clause is how many rules share a flow.
	Clause int
}

// DefaultBounds are the bounds of agents. Open vSwitch 3.1 allows 4,087 conjunctions in a flow. Above Clause there is
// room for widened rules, at most one for each Pod of the Node.
var DefaultBounds = Bounds{Policy: 8192, Wide: 65536, Namespace: 16384, Rules: 1024, Members: 65536, Clause: 3000}

const (
	// tooCostly is more than any bound.
	tooCostly = math.MaxInt32
	// foldedFrom is the number of rules in one direction of a NetworkPolicy from which similar rules are joined (fold).
	foldedFrom = 64
	// maxPodLabels and maxPodPorts are the largest numbers of labels, and of names of ports, of a Pod. Indexes have an
	// entry for each of them.
	maxPodLabels, maxPodPorts = 256, 256
	// tooManyLabels are the labels of a Pod that has more. No label has this text.
	tooManyLabels = "\x00"
	// maxProblems is how many faults of one object are reported.
	maxProblems = 20
)

// Bounded replaces DefaultBounds by other bounds, and returns the tables. Call it before the first pass.
func (t *Tables) Bounded(b Bounds) *Tables {
	t.limits.bounds = b
	return t
}

// of returns the bound of one policy of a Namespace, or of a policy without a Namespace.
func (b Bounds) of(namespace string) int {
	if namespace == "" {
		return b.Wide
	}
	return b.Policy
}

// all returns the problems, and one problem for omitted ones.
func (p *parser) all() []problem.Problem {
	if p.omitted == 0 {
		return p.problems
	}
	return append(p.problems, problem.Problem{Object: p.object, Reason: reasonMoreProblems,
		Message: fmt.Sprintf("there are %d more problems: correct the others first", p.omitted)})
}

// boundedLabels is the normal form of a Pod's labels, or tooManyLabels.
func boundedLabels(set map[string]string) string {
	if len(set) > maxPodLabels {
		return tooManyLabels
	}
	return normalForm(set)
}

// manyLabels returns the Problem of a Pod with too many labels. For such a Pod it is not known which policies select
// it.
func manyLabels(k derive.Object) []problem.Problem {
	return []problem.Problem{{
		Object: problem.Object{Kind: "Pod", Namespace: k.Namespace, Name: k.Name}, Field: "metadata.labels",
		Reason: ReasonTooLarge,
		Message: fmt.Sprintf(
			"it has more than %d labels, so they count as not known, and where policies may apply to it nothing "+
				"is allowed: give it fewer", maxPodLabels),
	}}
}

// done finishes the facts of a policy.
func (p *parser) done(f Facts) Facts {
	f.Problems = p.all()
	return f.bounded(p.object, DefaultBounds.of(p.object.Namespace))
}

// costed gives a rule its cost.
func (p *parser) costed(r RuleFacts) RuleFacts {
	r.Cost = min(tooCostly, p.cost+len(prefixes(r.Ranges)))
	return r
}

func selectorCost(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	n := 1 + len(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		n += 1 + len(e.Values)
	}
	return n
}

// matches returns how many matches a switch needs for the ports.
func (p PortRange) matches() int {
	n := len(Masks(p.From, p.To))
	if p.SourceFrom != 0 || p.SourceTo != 0 {
		n *= len(Masks(p.SourceFrom, p.SourceTo))
	}
	return n
}

// Masks are values and masks that cover the numbers from first to last.
func Masks(first, last uint16) (out [][2]uint16) {
	for from, to := uint32(first), uint32(last); from <= to; {
		size := uint32(1)
		for from%(2*size) == 0 && from+2*size-1 <= to {
			size *= 2
		}
		out = append(out, [2]uint16{uint16(from), uint16(^(size - 1))})
		from += size
	}
	return out
}

// fold joins rules of one direction if there are many: first rules with the same ports, then rules with the same peers.
// All these rules must allow.
func (d *DirectionFacts) fold() {
	if d == nil || len(d.Rules) <= foldedFrom {
		return
	}
	into := map[string]int{}
	each := func(key func(RuleFacts) string, merge func(to *RuleFacts, r RuleFacts)) {
		clear(into)
		for i := range d.Rules {
			r := &d.Rules[i]
			if r.Folded || r.Cost >= tooCostly {
				continue
			}
			k := key(*r)
			if first, ok := into[k]; ok {
				merge(&d.Rules[first], *r)
				*r = RuleFacts{Action: r.Action, Folded: true}
				continue
			}
			into[k] = i
		}
	}
	each(func(r RuleFacts) string { return fmt.Sprint(r.AnyPort, r.Ports, r.Named) }, func(to *RuleFacts, r RuleFacts) {
		to.AnyPeer = to.AnyPeer || r.AnyPeer
		to.Peers, to.Ranges = append(to.Peers, r.Peers...), append(to.Ranges, r.Ranges...)
	})
	for i := range d.Rules {
		r := &d.Rules[i]
		r.Peers = sorted(r.Peers, Selector.Compare)
		if r.AnyPeer {
			r.Peers, r.Ranges = nil, nil
		}
		slices.SortFunc(r.Ranges, Range.compare)
		r.Ranges = slices.CompactFunc(r.Ranges, func(a, b Range) bool { return a.compare(b) == 0 })
	}
	each(func(r RuleFacts) string { return fmt.Sprint(r.AnyPeer, r.Peers, r.Ranges) }, func(to *RuleFacts, r RuleFacts) {
		to.AnyPort = to.AnyPort || r.AnyPort
		to.Ports, to.Named = append(to.Ports, r.Ports...), append(to.Named, r.Named...)
	})
	for i := range d.Rules {
		r := &d.Rules[i]
		r.Ports, r.Named = sorted(r.Ports, PortRange.Compare), sorted(r.Named, portName.Compare)
		if !r.Folded && r.Cost < tooCostly {
			r.Cost = r.foldedCost()
		}
	}
}

// foldedCost is the cost of a rule of a NetworkPolicy that others were folded into.
func (r RuleFacts) foldedCost() int {
	n := 1 + len(r.Named) + len(prefixes(r.Ranges))
	for _, s := range r.Peers {
		n += 1 + s.cost()
	}
	for _, p := range r.Ports {
		n += p.matches()
	}
	return n
}

// cost returns the cost of the texts of a Selector.
func (s Selector) cost() (n int) {
	for _, text := range []string{s.Namespaces, s.Pods} {
		if text != "" {
			n += 2
		}
		for _, c := range text {
			if c == ',' || c == '(' {
				n++
			}
		}
	}
	return n
}

// compare orders by the range, then by its exceptions.
func (r Range) compare(o Range) int {
	return cmp.Or(r.CIDR.Compare(o.CIDR), slices.CompareFunc(r.Except, o.Except, netip.Prefix.Compare))
}

// counts reports whether a rule counts against the bounds. A rule that was joined with another (fold), or left out
// earlier, does not count.
func (r RuleFacts) counts() bool { return !r.Folded && (!r.Over || !r.Void) }

// beyond is what becomes of a rule beyond a bound.
func (r RuleFacts) beyond() RuleFacts {
	out := RuleFacts{
		Action: r.Action, Over: true, Cost: 1, AppliedTo: r.AppliedTo, AppliedServices: r.AppliedServices,
	}
	out.Log, out.Name, out.LogLabel = r.Log, r.Name, r.LogLabel
	if r.Void || r.Action == Allow {
		out.Void, out.Cost = true, 0
		return out
	}
	if out.Action == Pass {
		out.Action = Drop
	}
	out.AnyPeer, out.AnyPort = true, true
	return out
}

// bounded returns the facts of a policy after its bound of cost. If the policy exceeds the bound, its rules are closed
// and it gets a Problem.
func (f Facts) bounded(o problem.Object, bound int) Facts {
	sum, over, first := 0, 0, ""
	for d, facts := range [...]**DirectionFacts{&f.Ingress, &f.Egress} {
		owned := false
		for i, r := range (*facts).rules() {
			if !r.counts() || r.Over {
				continue
			}
			if sum+r.Cost <= bound {
				sum += r.Cost
				continue
			}
			if !owned {
				*facts, owned = &DirectionFacts{Rules: slices.Clone((*facts).Rules)}, true
			}
			(*facts).Rules[i] = r.beyond()
			if over++; over == 1 {
				first = fmt.Sprintf("spec.%s[%d]", Direction(d), i)
			}
		}
	}
	if over > 0 {
		f.Problems = append(slices.Clip(f.Problems),
			tooLarge(o, first, over, fmt.Sprintf("all rules of one policy together may cost %d", bound)))
	}
	return f
}

// tooLarge is the Problem of a policy with rules beyond a bound.
func tooLarge(o problem.Object, field string, rules int, bound string) problem.Problem {
	return problem.Problem{Object: o, Field: field, Reason: ReasonTooLarge, Message: fmt.Sprintf(
		"%d of its rules are beyond a bound, this one first: %s; rules that allow do nothing, and rules that deny or pass "+
			"deny everything: write fewer rules, selectors and exceptions, or larger ranges", rules, bound)}
}

// boundTables find the rules that are beyond a bound.
type boundTables struct {
	all     *Tables
	bounds  Bounds
	budgets *derive.Table[derive.Name, []RuleKey]     // of Namespaces: the rules beyond their bounds
	sizes   *derive.Table[RuleKey, size]              // of resolved rules
	sizesIn *derive.Index[derive.Name, RuleKey, size] // by Namespace
	shares  *derive.Table[derive.Name, []cut]         // of Namespaces
	crowds  *derive.Index[crowd, RuleKey, size]
	crowded *derive.Table[crowd, []cut]
}

// budget finds the rules of a Namespace that are beyond its bounds. Rules are counted in the order of evaluation.
func (t *boundTables) budget(namespace derive.Name, r *derive.Reader) (over []RuleKey, problems []problem.Problem) {
	rows := derive.List(r, t.all.actives.activeIn, namespace)
	slices.SortStableFunc(rows, func(a, b derive.Row[Key, Facts]) int {
		return a.Value.rank(0, Drop).Compare(b.Value.rank(0, Drop))
	})
	sum, rules := 0, [2]int{}
	for _, row := range rows {
		before := len(over)
		for d, facts := range [...]*DirectionFacts{row.Value.Ingress, row.Value.Egress} {
			for i, rule := range facts.rules() {
				if !rule.counts() {
					continue
				}
				if rules[d]++; rules[d] > t.bounds.Rules || sum+rule.Cost > t.bounds.Namespace {
					over = append(over, RuleKey{Policy: row.Key, Direction: Direction(d), Index: i})
					continue
				}
				sum += rule.Cost
			}
		}
		if n := len(over) - before; n > 0 {
			problems = append(problems, tooLarge(row.Key.problem(), over[before].field(), n, fmt.Sprintf(
				"policies of the Namespace that apply to Pods of one Node may cost %d together, and have %d rules in one direction",
				t.bounds.Namespace, t.bounds.Rules)))
		}
	}
	slices.SortFunc(over, RuleKey.Compare)
	return over, problems
}

// field is the rule's in its policy.
func (k RuleKey) field() string { return fmt.Sprintf("spec.%s[%d]", k.Direction, k.Index) }

// isOver reports whether budget has found a rule.
func (t *boundTables) isOver(k RuleKey, r *derive.Reader) bool {
	over, _ := derive.Get(r, t.budgets, derive.Name(k.Policy.Namespace))
	k.For = ""
	_, found := slices.BinarySearchFunc(over, k, RuleKey.Compare)
	return found
}

// size is what counts of a rule where rules share something.
type size struct {
	known     bool
	rank      Rank
	direction Direction
	members   int
	widened   bool
}

// sizeOf returns the number of members with which a rule would be compared. It makes no comparisons, since a rule
// beyond the bound must not cost time.
func (t *boundTables) sizeOf(k RuleKey, r *derive.Reader) (size, []problem.Problem) {
	f, _ := derive.Get(r, t.all.rules.resolved, k)
	out := size{known: true, rank: f.Rank, direction: k.Direction, widened: f.Over}
	for _, s := range f.Peers {
		c, _ := derive.Get(r, t.all.selectors.candidates, s)
		out.members += c.own
	}
	for _, s := range f.ClusterSet {
		c, _ := derive.Get(r, t.all.selectors.candidates, s)
		out.members += c.remote
	}
	for _, name := range f.Named {
		if k.Direction == Egress {
			out.members += derive.Count(r, t.all.ids.byPort, name)
		} else {
			out.members += derive.Count(r, t.all.ids.byPortHere, name)
		}
	}
	return out, nil
}

// candidates are the numbers of label sets with which a Selector is compared: label sets of Pods of this cluster, and
// of other clusters.
type candidates struct{ own, remote int }

// manyNamespaces is from how many Namespaces on the candidates of all are counted together.
const manyNamespaces = 64

func (t *selectorTables) candidatesOf(s Selector, r *derive.Reader) (out candidates, _ []problem.Problem) {
	p, err := t.parse(s)
	if err != nil {
		return out, nil // the table that selects reports it
	}
	in := []string{s.Namespace}
	if s.Namespaces != "" {
		if in, _ = derive.Get(r, t.inNamespaces, derive.Name(s.Namespaces)); len(in) > manyNamespaces {
			in = []string{""}
		}
	}
	for _, namespace := range in {
		for _, l := range p.narrowest(namespace) {
			out.own += derive.Count(r, t.all.ids.byLabel, l)
		}
	}
	for _, l := range p.narrowest(s.Namespace) {
		out.remote += derive.Count(r, t.all.others.byRemoteLabel, l)
	}
	return out, nil
}

// stands returns a rule unchanged if it is within the bound of members. If it is beyond the bound, stands returns a
// rule that denies everything for the identities in the cut.
func (t *boundTables) stands(k RuleKey, r *derive.Reader) (ruleFacts, []problem.Problem) {
	f, ok := derive.Get(r, t.all.rules.resolved, k)
	if !ok || k.Policy.Namespace == "" {
		return f, nil
	}
	cuts, _ := derive.Get(r, t.shares, derive.Name(k.Policy.Namespace))
	i, found := slices.BinarySearchFunc(cuts, k, func(c cut, k RuleKey) int { return c.rule.Compare(k) })
	switch {
	case !found:
		return f, nil
	case len(cuts[i].applied) == 0:
		return ruleFacts{}, nil
	}
	out := ruleFacts{Rank: f.Rank, Meaning: f.Meaning, Keep: f.Keep, Only: cuts[i].applied}
	out.RuleFacts = RuleFacts{Action: f.Action, Over: true, AppliedTo: f.AppliedTo, AnyPeer: true, AnyPort: true}
	out.Log, out.Name, out.LogLabel = f.Log, f.Name, f.LogLabel
	if out.Action == Pass {
		out.Action, out.Rank.Action = Drop, Drop
	}
	return out, nil
}

// crowd are the rules of one rank: clauses of theirs that are equal share a flow.
type crowd struct {
	rank      Rank
	direction Direction
}

// Compare makes a crowd the key of a table.
func (c crowd) Compare(o crowd) int {
	return cmp.Or(cmp.Compare(c.direction, o.direction), c.rank.Compare(o.rank))
}

func (s size) crowd() crowd { return crowd{s.rank, s.direction} }

// cut is a rule beyond a bound. It denies everything for some of the identities that it is applied to. If that list is
// empty, the rule is left out.
type cut struct {
	rule    RuleKey
	applied []uint32
}

// cutter makes cuts. If a rule denies everything for an identity, no packet reaches later rules of the same stage. So
// these are left out, and at most one widened rule is left for each identity.
type cutter struct {
	closed map[closing]bool
	cuts   []cut
	first  map[Key]RuleKey
	count  map[Key]int
}

type closing struct {
	identity  uint32
	direction Direction
	stage     Stage
}

// cut has a rule denied, or left out. It is called in the order of ranks.
func (c *cutter) cut(k RuleKey, draft Rule) {
	out := cut{rule: k}
	if draft.Action != Allow {
		for _, n := range draft.Applied {
			if at := (closing{n, k.Direction, draft.Stage}); !c.closed[at] {
				c.closed[at] = true
				out.applied = append(out.applied, n)
			}
		}
	}
	c.cuts = append(c.cuts, out)
}

// report notes that a bound has cut a rule, so that its policy gets a Problem.
func (c *cutter) report(k RuleKey) {
	if c.count[k.Policy]++; c.count[k.Policy] == 1 {
		c.first[k.Policy] = k
	}
}

func newCutter() *cutter {
	return &cutter{closed: map[closing]bool{}, first: map[Key]RuleKey{}, count: map[Key]int{}}
}

func (c *cutter) done(bound string) ([]cut, []problem.Problem) {
	slices.SortFunc(c.cuts, func(a, b cut) int { return a.rule.Compare(b.rule) })
	var problems []problem.Problem
	for _, k := range slices.SortedFunc(maps.Keys(c.first), Key.Compare) {
		problems = append(problems, tooLarge(k.problem(), c.first[k].field(), c.count[k], bound))
	}
	return c.cuts, problems
}

// share finds the rules of a Namespace that select too many members, and widened rules.
func (t *boundTables) share(namespace derive.Name, r *derive.Reader) ([]cut, []problem.Problem) {
	rows := derive.List(r, t.sizesIn, namespace)
	sum, widened := 0, false
	for _, row := range rows {
		sum, widened = sum+row.Value.members, widened || row.Value.widened
	}
	if sum <= t.bounds.Members && !widened {
		return nil, nil
	}
	slices.SortStableFunc(rows, func(a, b derive.Row[RuleKey, size]) int { return a.Value.rank.Compare(b.Value.rank) })
	c := newCutter()
	sum = 0
	for _, row := range rows {
		over := sum+row.Value.members > t.bounds.Members
		if !over && !row.Value.widened {
			sum += row.Value.members
			continue
		}
		f, _ := derive.Get(r, t.all.rules.resolved, row.Key)
		c.cut(row.Key, Rule{Rank: f.Rank, Applied: t.all.ids.numbersOf(r, t.all.rules.appliedIdentities(row.Key, f, r))})
		if over {
			c.report(row.Key)
		}
	}
	return c.done(fmt.Sprintf("rules of the Namespace may look at %d label sets and Pods together on one Node",
		t.bounds.Members))
}

// crowding finds the rules that share a flow with too many others. It selects rules of the Namespaces that have most of
// them. Each Namespace keeps at least its equal share.
func (t *boundTables) crowding(at crowd, r *derive.Reader) ([]cut, []problem.Problem) {
	rows := derive.List(r, t.crowds, at)
	rows = slices.DeleteFunc(rows, func(row derive.Row[RuleKey, size]) bool { return row.Value.widened })
	if len(rows) <= t.bounds.Clause {
		return nil, nil
	}
	drafts, total := make([]Rule, len(rows)), map[part]int{}
	for i, row := range rows {
		drafts[i], _ = derive.Get(r, t.all.rules.drafts, row.Key)
		drafts[i].parts(func(p part) { total[p]++ })
	}
	maps.DeleteFunc(total, func(_ part, n int) bool { return n <= t.bounds.Clause })
	if len(total) == 0 {
		return nil, nil
	}
	held := map[part]map[string]int{} // how many rules of each Namespace have a part
	for p := range total {
		held[p] = map[string]int{}
	}
	for i, row := range rows {
		drafts[i].parts(func(p part) {
			if of := held[p]; of != nil {
				of[row.Key.Policy.Namespace]++
			}
		})
	}
	share := map[part]int{}
	for p, of := range held {
		share[p] = fairShare(slices.Collect(maps.Values(of)), t.bounds.Clause)
		clear(of)
	}
	c := newCutter()
	for i, row := range rows {
		over := false
		drafts[i].parts(func(p part) {
			if of := held[p]; of != nil {
				of[row.Key.Policy.Namespace]++
				over = over || of[row.Key.Policy.Namespace] > share[p]
			}
		})
		if over {
			c.cut(row.Key, drafts[i])
			c.report(row.Key)
		}
	}
	return c.done(fmt.Sprintf("%d rules may share a flow of a Node, each Namespace with an equal share of them",
		t.bounds.Clause))
}

// fairShare returns the highest limit such that the sum of all numbers, each reduced to the limit, is within a bound.
func fairShare(of []int, bound int) int {
	slices.Sort(of)
	for i, n := range of {
		if left := len(of) - i; n*left > bound {
			return bound / left
		}
		bound -= n
	}
	return bound
}

// part is what rules of one rank share a flow by: a Pod's identity, an address, a port.
type part struct {
	kind  uint8
	value uint64
	to    netip.Addr
	text  string
}

const (
	partApplied uint8 = iota + 1
	partPeer
	partBlock
	partService
	partPort
	partAnything
)

// parts calls each with all parts of a rule, from which pkg/datapath makes flows.
func (r Rule) parts(each func(part)) {
	for _, n := range r.Applied {
		each(part{kind: partApplied, value: uint64(n)})
	}
	switch {
	case r.AnyPeer && r.AnyPort:
		each(part{kind: partAnything, to: netip.IPv4Unspecified()})
		each(part{kind: partAnything, to: netip.IPv6Unspecified()})
	case !r.AnyPeer:
		for _, n := range r.Peers {
			each(part{kind: partPeer, value: uint64(n)})
		}
		for _, n := range r.ClusterSet {
			each(part{kind: partPeer, value: uint64(n | Remote)})
		}
		for _, b := range r.Blocks {
			kind := partBlock
			if b.Bits() == 0 {
				kind = partAnything
			}
			each(part{kind: kind, value: uint64(b.Bits()), to: b.Addr()})
		}
		for _, s := range r.Services {
			each(part{kind: partService, text: s.String()})
		}
	}
	if r.AnyPort {
		return
	}
	ports := func(p PortRange, to FurtherAddr) {
		source := [][2]uint16{{}}
		if p.SourceFrom != 0 || p.SourceTo != 0 {
			source = Masks(p.SourceFrom, p.SourceTo)
		}
		for _, d := range Masks(p.From, p.To) {
			for _, s := range source {
				numbers := uint64(d[0])<<48 | uint64(d[1])<<32 | uint64(s[0])<<16 | uint64(s[1])
				text := string(p.Protocol)
				if to.Network != (derive.Object{}) {
					text += " in " + to.Network.String()
				}
				each(part{kind: partPort, value: numbers, to: to.Addr, text: text})
			}
		}
	}
	for _, p := range r.Ports {
		ports(p, FurtherAddr{})
	}
	for _, t := range r.Targets {
		for _, end := range t.Ends {
			ports(t.PortRange, end)
		}
	}
	for _, i := range r.ICMP {
		each(part{kind: partPort, value: uint64(uint16(i.Type))<<16 | uint64(uint16(i.Code)), text: string(ProtocolICMP)})
	}
	for _, i := range r.IGMP {
		each(part{kind: partPort, text: string(ProtocolIGMP), to: i.Group})
	}
}

// rule is a draft that keeps to the bounds of what rules share.
func (t *ruleTables) rule(k RuleKey, r *derive.Reader) (Rule, []problem.Problem) {
	rule, ok := derive.Get(r, t.drafts, k)
	if !ok {
		return Rule{}, nil
	}
	at, _ := derive.Get(r, t.all.limits.sizes, k)
	cuts, _ := derive.Get(r, t.all.limits.crowded, at.crowd())
	if i, found := slices.BinarySearchFunc(cuts, k, func(c cut, k RuleKey) int { return c.rule.Compare(k) }); found {
		rule = rule.cut(cuts[i].applied)
	}
	return rule, nil
}

// cut returns a rule that denies everything for some of the identities that it is applied to. Without such identities
// there is no row.
func (r Rule) cut(applied []uint32) Rule {
	applied = slices.DeleteFunc(slices.Clone(applied), func(n uint32) bool { return !slices.Contains(r.Applied, n) })
	if len(applied) == 0 {
		return Rule{}
	}
	if r.Action == Pass {
		r.Action = Drop
	}
	return Rule{
		Rank: r.Rank, Meaning: r.Meaning, Keep: r.Keep, Applied: applied, AnyPeer: true, AnyPort: true,
		Log: r.Log, Name: r.Name, LogLabel: r.LogLabel,
	}
}
