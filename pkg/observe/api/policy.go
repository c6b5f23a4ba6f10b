package api

// Paths about policies, read as the others are.
const (
	// PathPolicies answers with PolicyList.
	PathPolicies = "/v1/policies"
	// PathRules answers with RuleList. Query: policy=NAME or NAMESPACE/NAME, all without.
	PathRules = "/v1/rules"
	// PathIdentities answers with IdentityList.
	PathIdentities = "/v1/identities"
)

// Counters are what the switch has counted at a rule since its flow was made. Policies judge the packets that open
// a connection, and the later ones pass by them: so each packet that is counted is one that opens a connection, or
// repeats the attempt.
type Counters struct {
	Packets     uint64 `json:"packets"`
	Bytes       uint64 `json:"bytes"`
	Connections uint64 `json:"connections"`
}

// Add adds others.
func (c *Counters) Add(o Counters) {
	c.Packets, c.Bytes, c.Connections = c.Packets+o.Packets, c.Bytes+o.Bytes, c.Connections+o.Connections
}

// Policy is a policy that applies to Pods of this Node.
type Policy struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Tier      string   `json:"tier,omitempty"`     // of kinds that have tiers
	Priority  *float64 `json:"priority,omitempty"` // of kinds that have priorities
	Pods      []string `json:"pods"`               // of this Node, "namespace/name"
	Rules     int      `json:"rules"`
	Counters
	Problems []Problem `json:"problems,omitempty"` // parts that are not understood
}

// PolicyList is the answer of PathPolicies, by kind, Namespace and name.
type PolicyList struct {
	Policies []Policy `json:"policies"`
}

// Rule is one rule of a policy that applies to Pods of this Node.
type Rule struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Policy    string   `json:"policy"`
	Direction string   `json:"direction"` // ingress or egress
	Index     int      `json:"index"`     // in the list of the direction
	Name      string   `json:"name,omitempty"`
	Action    string   `json:"action"`
	Pods      []string `json:"pods"`    // of this Node that it is applied to
	Applied   []uint32 `json:"applied"` // their identities
	Peers     []string `json:"peers"`   // in words, any of them; empty is everybody
	Ports     []string `json:"ports"`   // any of them; empty is every protocol and port
	Counters
	// SharesFlowOf is the rule at which the packets of this one are counted: rules that allow the same Pods
	// everything are one flow.
	SharesFlowOf string `json:"sharesFlowOf,omitempty"`
}

// Denied is what isolated Pods were denied: packets that no rule allows.
type Denied struct {
	Direction string `json:"direction"`
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`
}

// RuleList is the answer of PathRules, by policy, direction and index.
type RuleList struct {
	Rules []Rule `json:"rules"`
	// Denied are those of all policies together; left out where one policy was asked for.
	Denied []Denied `json:"denied"`
}

// Identity is the labels that Pods share.
type Identity struct {
	Number     uint32 `json:"number"`               // of this Node
	ClusterSet uint32 `json:"clusterSet,omitempty"` // of the whole ClusterSet, 0 where it has none
	Labels     string `json:"labels"`               // in normal form
	Here       int    `json:"here"`                 // Pods of this Node
	Elsewhere  int    `json:"elsewhere"`
	Addresses  int    `json:"addresses"` // that the switch knows, since a rule names the identity
}

// IdentityList is the answer of PathIdentities, by number.
type IdentityList struct {
	Identities []Identity `json:"identities"`
}
