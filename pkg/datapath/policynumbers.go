package datapath

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A connection remembers two rules as numbers in its label. One rule let it out of a Pod of this Node, and the other
// let it into a Pod of this Node. A rule's number is a hash of the rule's meaning, and of the stricter rules that are
// judged before it. If the meaning of a rule changes, its number changes. If a new rule takes connections from it, its
// number changes too. So a number never gets another meaning, even over a restart. If no rule has the number of a
// connection, the rule that let it pass was deleted or changed.
//
// Two rules may share a number by chance, one in 2^30 for each pair. An attacker cannot search for such a rule, because
// the hash has a key that only the Node has (Node.RuleKey). A shared number does no harm either, unless both rules
// apply to the same Pod. A connection's number counts only for rules that apply to the connection's Pod.

// Numbers that stand for no rule.
const alwaysAllowed = 1 // a Pod's connection to itself; one of the Node to its Pods

// keepRule is in the numbers of rules whose connections outlive them.
const keepRule = 1 << 31

// firstRuleNumber is the least number of a rule. All numbers of rules have its bit.
const (
	firstRuleNumber = 1 << ruleNumberBit
	ruleNumberBit   = 1
)

// numberOf returns the number for a meaning. Without a key it returns the same number as earlier versions, which known
// connections have after an upgrade.
func numberOf(key Secret, meaning ...any) uint32 {
	var h hash.Hash = fnv.New64a()
	if key != "" {
		h = hmac.New(sha256.New, []byte(key))
	}
	for _, m := range meaning {
		fmt.Fprintf(h, "%v\x00", m)
	}
	v := binary.BigEndian.Uint64(h.Sum(nil))
	return uint32(v^v>>32)>>1 | firstRuleNumber
}

// subject are Pods of this Node of one identity in one direction.
type subject struct {
	identity  uint32
	direction policy.Direction
}

// Compare makes a subject the key of a table.
func (s subject) Compare(o subject) int {
	return cmp.Or(cmp.Compare(s.identity, o.identity), cmp.Compare(s.direction, o.direction))
}

// strictFor returns the subjects (Pods and directions) for which a rule may decide before later rules. If the rule does
// not affect known connections, it returns nil.
func strictFor(k policy.RuleKey, r policy.Rule) []subject {
	if r.Action == policy.Allow || r.Keep {
		return nil
	}
	return subjects(k, r)
}

// subjects returns the identities and the direction that a rule is applied to.
func subjects(k policy.RuleKey, r policy.Rule) []subject {
	out := make([]subject, len(r.Applied))
	for i, n := range r.Applied {
		out[i] = subject{n, k.Direction}
	}
	return out
}

// ruleNumbers has the tables of the numbers of rules.
type ruleNumbers struct {
	base     *base
	outlines *derive.Table[policy.RuleKey, policy.Rule] // of Policies
	strict   *derive.Index[subject, policy.RuleKey, policy.Rule]
	isolated *derive.Index[subject, policy.Identity, isolation]
	rules    *derive.Table[policy.RuleKey, uint32]
	defaults *derive.Table[policy.Identity, [2]uint32] // for connections that no rule decided about
}

func newRuleNumbers(e *derive.Engine, b *base, outlines *derive.Table[policy.RuleKey, policy.Rule],
	complete derive.Keys[policy.RuleKey]) *ruleNumbers {
	t := &ruleNumbers{base: b, outlines: outlines, strict: derive.NewIndex(outlines, "strict", strictFor)}
	t.isolated = derive.NewIndex(derive.NewTable(e, "isolated", t.isolation, derive.KeysOf(b.Policy.Applied)),
		"subject", isolatedIn)
	t.rules = derive.NewTable(e, "rule-numbers", t.number, complete)
	t.defaults = derive.NewTable(e, "default-numbers", t.defaultNumbers, derive.KeysOf(b.Policy.Applied))
	return t
}

// stricter returns the meanings of rules that may deny a connection before the rule of a given rank decides. They apply
// to Pods of the given identities. All rules with other actions than Allow may deny. For a rank in the last stage,
// isolation by NetworkPolicies may deny, too.
func (t *ruleNumbers) stricter(r *derive.Reader, identities []uint32, d policy.Direction, rank policy.Rank) []string {
	var out []string
	for _, i := range identities {
		for _, row := range derive.List(r, t.strict, subject{i, d}) {
			if row.Value.Compare(rank) < 0 {
				out = append(out, fmt.Sprint(row.Key, row.Value.Meaning))
			}
		}
		if rank.Stage == policy.Baseline && len(derive.List(r, t.isolated, subject{i, d})) > 0 {
			out = append(out, fmt.Sprint("isolated ", i))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// isolation has the directions in which NetworkPolicies isolate the Pods of an identity, where this also affects known
// connections.
type isolation struct {
	number     uint32
	directions [2]bool
}

func (t *ruleNumbers) isolation(i policy.Identity, r *derive.Reader) (out isolation, _ []problem.Problem) {
	applied, _ := derive.Get(r, t.base.Policy.Applied, i)
	for d, stages := range applied {
		out.directions[d] = slices.ContainsFunc(stages[policy.NetworkPolicies],
			func(k policy.Key) bool { return !t.base.Policy.Keeps(r, k) })
	}
	if out == (isolation{}) {
		return out, nil
	}
	out.number, _ = derive.Get(r, t.base.Policy.Numbers, i)
	return out, nil
}

func isolatedIn(_ policy.Identity, i isolation) (out []subject) {
	for d, is := range i.directions {
		if is {
			out = append(out, subject{i.number, policy.Direction(d)})
		}
	}
	return out
}

// number returns the number of a rule that lets connections through, and 0 for others. In the last stage, a rule with
// action Pass lets connections through.
func (t *ruleNumbers) number(k policy.RuleKey, r *derive.Reader) (uint32, []problem.Problem) {
	rule, _ := derive.Get(r, t.outlines, k)
	if rule.Action != policy.Allow && (rule.Action != policy.Pass || rule.Stage != policy.Baseline) {
		return 0, nil
	}
	key, _ := derive.Get(r, t.base.ruleKey, Self)
	n := numberOf(key, k, rule.Meaning, t.stricter(r, rule.Applied, k.Direction, rule.Rank))
	if rule.Keep {
		n |= keepRule
	}
	return n, nil
}

// defaultNumbers returns the numbers, by direction, of connections of an identity's Pods that no rule decided about.
// They are 0 without policies, and if NetworkPolicies isolate the Pods.
func (t *ruleNumbers) defaultNumbers(i policy.Identity, r *derive.Reader) (out [2]uint32, _ []problem.Problem) {
	applied, _ := derive.Get(r, t.base.Policy.Applied, i)
	n, ok := derive.Get(r, t.base.Policy.Numbers, i)
	if !ok {
		return out, nil
	}
	key, _ := derive.Get(r, t.base.ruleKey, Self)
	for d := range out {
		d := policy.Direction(d)
		if applied.Any(d) && !applied.Isolated(d) {
			out[d] = numberOf(key, i, d, t.stricter(r, []uint32{n}, d, policy.Rank{Stage: policy.Stages}))
		}
	}
	return out, nil
}
