package policy

import (
	"fmt"
	"slices"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// These functions answer questions of users about the tables. They read several tables, so they are called between two
// passes (derive.Engine.Do), when the tables are consistent.

// Standing is a policy that applies to Pods of this Node.
type Standing struct {
	Policy   Key
	Pods     []derive.Object // of this Node that it is applied to
	Rules    []RuleText
	Problems []problem.Problem
}

// RuleText is a rule in words.
type RuleText struct {
	Key     RuleKey
	Action  Action
	Pods    []derive.Object // of this Node that it is applied to
	Applied []uint32        // their identities
	Peers   []string        // any of them; empty means all peers
	Ports   []string        // any of them; empty is every protocol and port
}

// Standing returns the policies that apply to Pods of this Node, in order, each with its rules in order.
func (t *Tables) Standing() []Standing {
	podsOf, identityOf := map[Identity][]derive.Object{}, map[uint32]Identity{}
	for _, row := range t.ids.here.All() {
		podsOf[row.Value] = append(podsOf[row.Value], row.Key)
		if n, ok := t.Numbers.Get(row.Value); ok {
			identityOf[n] = row.Value
		}
	}
	applied := map[Key][]derive.Object{}
	for _, row := range t.Applied.All() {
		for _, policy := range row.Value.policies() {
			applied[policy] = append(applied[policy], podsOf[row.Key]...)
		}
	}
	var out []Standing
	for _, row := range t.actives.active.All() {
		s := Standing{Policy: row.Key, Pods: inOrder(applied[row.Key]), Problems: row.Value.Problems}
		keys, _ := t.rules.instances.Get(row.Key)
		for _, k := range keys {
			f, _ := t.rules.resolved.Get(k)
			text := f.text(k)
			rule, _ := t.Rules.Get(k)
			text.Applied = rule.Applied
			for _, n := range rule.Applied {
				text.Pods = append(text.Pods, podsOf[identityOf[n]]...)
			}
			text.Pods = inOrder(text.Pods)
			s.Rules = append(s.Rules, text)
		}
		out = append(out, s)
	}
	return out
}

func inOrder(pods []derive.Object) []derive.Object {
	slices.SortFunc(pods, derive.Object.Compare)
	return slices.Compact(pods)
}

// text says in words what a rule is about.
func (f ruleFacts) text(k RuleKey) RuleText {
	out := RuleText{Key: k, Action: f.Action}
	if !f.AnyPeer {
		out.Peers = []string{}
		for _, s := range f.Peers {
			out.Peers = append(out.Peers, s.String())
		}
		for _, s := range f.ClusterSet {
			out.Peers = append(out.Peers, s.String()+" in other clusters")
		}
		for _, b := range f.Blocks {
			out.Peers = append(out.Peers, b.String())
		}
		for _, s := range f.Services {
			out.Peers = append(out.Peers, "Service "+s.String())
		}
		for _, name := range f.Names {
			out.Peers = append(out.Peers, "name "+name)
		}
		if len(out.Peers) == 0 {
			out.Peers = append(out.Peers, "nobody")
		}
	}
	if !f.AnyPort {
		for _, p := range f.Ports {
			out.Ports = append(out.Ports, p.String())
		}
		for _, p := range f.Named {
			out.Ports = append(out.Ports, fmt.Sprintf("%s/%s", p.Protocol, p.Name))
		}
		for _, i := range f.ICMP {
			out.Ports = append(out.Ports, messages("ICMP", i.Type)+messages("", i.Code))
		}
		for _, i := range f.IGMP {
			out.Ports = append(out.Ports, messages("IGMP", i.Type))
		}
		if len(out.Ports) == 0 {
			out.Ports = append(out.Ports, "none")
		}
	}
	return out
}

// messages returns "ICMP/8", or "ICMP" for any.
func messages(protocol string, n int16) string {
	if n == Any {
		return protocol
	}
	return fmt.Sprintf("%s/%d", protocol, n)
}

// String returns "TCP/80", "TCP/80-90", or "TCP" for the whole protocol. If source ports are restricted, " from
// 1024-2048" follows.
func (p PortRange) String() string {
	text := string(p.Protocol)
	if p.From != 0 || p.To != 65535 {
		text += "/" + ports(p.From, p.To)
	}
	if p.SourceFrom != 0 {
		text += " from " + ports(p.SourceFrom, p.SourceTo)
	}
	return text
}

func ports(from, to uint16) string {
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d-%d", from, to)
}

// ClusterSetNumber returns the number that the ClusterSet gives an identity, or 0 if it has no number.
func (t *Tables) ClusterSetNumber(i Identity) uint32 {
	for _, key := range t.others.byExchanged.Keys(i.Exchanged()) {
		l, _ := t.LabelIdentities.Get(key)
		return l.ID
	}
	return 0
}

// ClusterSetIdentity is the identity that has a number in the ClusterSet.
func (t *Tables) ClusterSetIdentity(number uint32) (Identity, bool) {
	for _, row := range t.LabelIdentities.All() {
		if row.Value.ID == number {
			return row.Value.Label, true
		}
	}
	return "", false
}

// IdentityUse lists the Pods and addresses of an identity.
type IdentityUse struct {
	Identity        Identity
	Number          uint32
	ClusterSet      uint32 // its number in the ClusterSet, 0 without a number
	Here, Elsewhere int    // Pods
	Addresses       int    // that a rule asks for
}

// IdentityUses returns all identities by number.
func (t *Tables) IdentityUses() []IdentityUse {
	uses := map[Identity]*IdentityUse{}
	byNumber := map[uint32]*IdentityUse{}
	for _, row := range t.Numbers.All() {
		u := &IdentityUse{Identity: row.Key, Number: row.Value, ClusterSet: t.ClusterSetNumber(row.Key)}
		uses[row.Key], byNumber[row.Value] = u, u
	}
	for _, row := range t.Identities.All() {
		u := uses[row.Value]
		if u == nil {
			continue
		}
		if pod, _ := t.Pods.Get(row.Key); pod.Node == t.node {
			u.Here++
		} else {
			u.Elsewhere++
		}
	}
	count := func(h Holder) {
		if u := byNumber[h.Number]; u != nil {
			u.Addresses++
		}
	}
	for _, row := range t.Addresses.All() {
		count(row.Value)
	}
	for _, row := range t.Virtual.Addresses.All() {
		count(row.Value)
	}
	out := make([]IdentityUse, 0, len(uses))
	for _, row := range t.Numbers.All() {
		out = append(out, *uses[row.Key])
	}
	slices.SortFunc(out, func(a, b IdentityUse) int { return int(a.Number) - int(b.Number) })
	return out
}
