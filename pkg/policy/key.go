package policy

import (
	"cmp"
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Kind is a kind of policy. Two API groups use the same names for kinds, so these constants have names of their own.
type Kind uint8

// The kinds of policies.
const (
	NetworkPolicy              Kind = iota // networking.k8s.io
	AntreaClusterNetworkPolicy             // ClusterNetworkPolicy of crd.antrea.io
	AntreaNetworkPolicy                    // NetworkPolicy of crd.antrea.io
	ClusterNetworkPolicy                   // policy.networking.k8s.io, of SIG Network
	Kinds                                  // how many there are
)

var kindNames = [Kinds]string{"NetworkPolicy", "AntreaClusterNetworkPolicy", "AntreaNetworkPolicy",
	"ClusterNetworkPolicy"}

// String is the kind's name, such as "AntreaNetworkPolicy".
func (k Kind) String() string { return kindNames[k] }

// Key names a policy.
type Key struct {
	Kind
	Namespace, Name string // of cluster-wide kinds there is no Namespace
}

// Compare orders by kind, Namespace, name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// String returns "NetworkPolicy default/web" or, for kinds without a Namespace, "ClusterNetworkPolicy web".
func (k Key) String() string { return k.problem().String() }

// problem is the policy as what Problems are about.
func (k Key) problem() problem.Object {
	return problem.Object{Kind: k.Kind.String(), Namespace: k.Namespace, Name: k.Name}
}

// object is the policy as a key of the source of its kind.
func (k Key) object() derive.Object { return derive.Object{Namespace: k.Namespace, Name: k.Name} }

// Direction is seen from the Pod that a policy is applied to.
type Direction uint8

// The directions of a connection's first packet.
const (
	Ingress Direction = iota
	Egress
)

// String returns "ingress" or "egress".
func (d Direction) String() string {
	if d == Egress {
		return "egress"
	}
	return "ingress"
}

// RuleKey names a rule: spec.ingress[Index] or spec.egress[Index] of a policy.
type RuleKey struct {
	Policy    Key
	Direction Direction
	Index     int
	// For is set if peers depend on the Namespace of the Pod that the rule is applied to. Then there is one Rule for each
	// such Namespace.
	For string
}

// Compare orders by policy, direction, index, Namespace.
func (k RuleKey) Compare(o RuleKey) int {
	return cmp.Or(k.Policy.Compare(o.Policy), cmp.Compare(k.Direction, o.Direction), cmp.Compare(k.Index, o.Index),
		cmp.Compare(k.For, o.For))
}

// String returns "NetworkPolicy default/web ingress[0]". If the rule is for Pods of one Namespace, such as shop, " for
// shop" follows.
func (k RuleKey) String() string {
	text := fmt.Sprintf("%s %s[%d]", k.Policy, k.Direction, k.Index)
	if k.For != "" {
		text += " for " + k.For
	}
	return text
}

// Stage is one of the three that judge a connection, in their order.
type Stage uint8

// The stages.
const (
	Admin           Stage = iota // Antrea's tiers but baseline, and tier Admin of ClusterNetworkPolicy
	NetworkPolicies              // policies of networking.k8s.io, with their isolation
	Baseline                     // Antrea's tier baseline, and tier Baseline of ClusterNetworkPolicy
	Stages                       // the number of stages; in a Verdict: no stage decided
)

// String returns "admin", "networkpolicies" or "baseline".
func (s Stage) String() string {
	return [...]string{"admin", "networkpolicies", "baseline", "none"}[s]
}

// Action is the effect of a rule on connections that it matches. Stricter actions come first.
type Action uint8

// The actions.
const (
	Drop   Action = iota
	Reject        // answer with an RST, or an ICMP message
	Pass          // on to NetworkPolicies
	Allow
)

// String returns the action's name, as policies write it.
func (a Action) String() string { return [...]string{"Drop", "Reject", "Pass", "Allow"}[a] }

// Rank orders rules: of several rules that match, the first decides. Rules of equal rank have equal actions, so it does
// not matter which of them matches. All rules of NetworkPolicies have one rank.
type Rank struct {
	Stage    Stage
	Tier     uint8   // its priority
	Priority float64 // of the policy
	Index    int     // of the rule
	Action   Action
}

// These are the priorities of ClusterNetworkPolicy's tiers among Antrea's Tiers: Admin follows application (250), and
// Baseline follows baseline. Antrea reserves both numbers.
const (
	tierAdmin          = 251
	tierAntreaBaseline = 253
	tierBaseline       = 254
)

// NetworkPolicyRank is the rank of all rules of NetworkPolicies.
var NetworkPolicyRank = Rank{Stage: NetworkPolicies, Action: Allow}

// Compare is negative where r decides before o.
func (r Rank) Compare(o Rank) int {
	return cmp.Or(cmp.Compare(r.Stage, o.Stage), cmp.Compare(r.Tier, o.Tier), cmp.Compare(r.Priority, o.Priority),
		cmp.Compare(r.Index, o.Index), cmp.Compare(r.Action, o.Action))
}

// String returns "admin 250/5 rule 0 Drop".
func (r Rank) String() string {
	if r.Stage == NetworkPolicies {
		return r.Stage.String()
	}
	return fmt.Sprintf("%s %d/%v rule %d %s", r.Stage, r.Tier, r.Priority, r.Index, r.Action)
}
