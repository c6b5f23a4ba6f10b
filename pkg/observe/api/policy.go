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

// Counters are the switch's counters for a rule since its flow was made. Policies judge only packets that open a
// connection; later packets bypass them. So each counted packet opens a connection, repeats the attempt, or belongs to
// a connection that is judged again since policies have changed.
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
	Kind         string   `json:"kind"`
	Namespace    string   `json:"namespace,omitempty"`
	Name         string   `json:"name"`
	Tier         string   `json:"tier,omitempty"`         // of kinds that have tiers
	TierPriority *int32   `json:"tierPriority,omitempty"` // of kinds that have tiers; the lowest is evaluated first
	Priority     *float64 `json:"priority,omitempty"`     // of kinds that have priorities
	Pods         []string `json:"pods"`                   // of this Node, "namespace/name"
	Rules        int      `json:"rules"`
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
	Peers     []string `json:"peers"`   // in words, any of them; empty means all peers
	Ports     []string `json:"ports"`   // any of them; empty is every protocol and port
	Counters
}

// Denied is what isolated Pods were denied: packets that no rule allows.
type Denied struct {
	Direction string `json:"direction"`
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes"`
	// Fragments is the number of dropped fragments of all Pods: rules with ports could not judge them.
	Fragments uint64 `json:"fragments"`
}

// RuleList is the answer of PathRules, by policy, direction and index.
type RuleList struct {
	Rules []Rule `json:"rules"`
	// Denied counts the denied packets of all policies together. It is omitted if the query names a policy.
	Denied []Denied `json:"denied"`
}

// Identity is the labels that Pods share.
type Identity struct {
	Number     uint32 `json:"number"`               // of this Node
	ClusterSet uint32 `json:"clusterSet,omitempty"` // of the whole ClusterSet, 0 without a number
	Labels     string `json:"labels"`               // in normal form
	Here       int    `json:"here"`                 // Pods of this Node
	Elsewhere  int    `json:"elsewhere"`
	Addresses  int    `json:"addresses"` // that the switch knows, since a rule names the identity
}

// IdentityList is the answer of PathIdentities, by number.
type IdentityList struct {
	Identities []Identity `json:"identities"`
}

// PathWhy answers with Why. Query: from=END and to=END, each "namespace/name" (a Pod's or, of to, a Service's;
// "pod/namespace/name" and "service/namespace/name" where both are called so), an address or a range; from also
// "identity/NUMBER" and "identity/unknown", a client in another cluster; port=NUMBER or NAME; protocol=TCP, UDP, SCTP
// or ICMP; cluster=ID for endpoints, or such a client, of another cluster; trace=true.
const PathWhy = "/v1/why"

// Why has the rules that decide about a connection.
type Why struct {
	From WhyEnd `json:"from"`
	To   WhyEnd `json:"to"` // as it was asked: a Service is not judged, but its endpoints
	// Connections are the possible connections: one, or one for each endpoint of a Service.
	Connections []WhyConnection `json:"connections"`
	LeftOut     int             `json:"leftOut,omitempty"` // endpoints beyond the first 16 of each version of IP
	Notes       []string        `json:"notes,omitempty"`
}

// WhyEnd is an end of a connection.
type WhyEnd struct {
	Kind    string `json:"kind,omitempty"` // Pod, Service, Node, or Identity of another cluster
	Name    string `json:"name,omitempty"` // "namespace/name"; of an Identity its labels
	Address string `json:"address,omitempty"`
	Node    string `json:"node,omitempty"`    // of a Pod, or the Node itself
	Cluster string `json:"cluster,omitempty"` // where it is another
	// Network is set for an address of a further interface of a Pod. It is the "namespace/name" of its VirtualNetwork.
	Network string `json:"network,omitempty"`
	// ClusterSet is the number of the client's labels in the ClusterSet, if policies span clusters. It is also the key of
	// tunnels between clusters. 16777215 means that the labels have no number.
	ClusterSet uint32 `json:"clusterSet,omitempty"`
	// Addresses are the judged addresses of an end if there are two: one of IPv4 and one of IPv6.
	Addresses []string `json:"addresses,omitempty"`
}

// WhyConnection is what becomes of a connection to one end.
type WhyConnection struct {
	From     string `json:"from"` // address of the client
	To       WhyEnd `json:"to"`
	Asked    string `json:"asked,omitempty"` // address and port of the Service that was asked
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port,omitempty"`
	Allowed  bool   `json:"allowed"` // by all that this Node knows
	// Stages are the decisions in order. If the connection is to an address for clients outside, the decision of the
	// Service's policies is first. Then follows egress of the client's Pod. If one end is in a network of tenants, the
	// decision of the networks follows. The last one is ingress of the server's Pod.
	Stages []WhyStage `json:"stages"`
}

// UnknownPod is the identity of a peer with an address in a podCIDR of the cluster that no known Pod has.
const UnknownPod = "unknown Pod"

// DirectionNetwork is the direction of a stage in which networks of tenants decide.
const DirectionNetwork = "network"

// WhyStage is what is decided at one end.
type WhyStage struct {
	Direction string `json:"direction"`      // egress, ingress, service or network
	Node      string `json:"node,omitempty"` // where it is decided, empty where nothing is
	Here      bool   `json:"here"`           // that is the Node that was asked
	Allowed   bool   `json:"allowed"`
	Reason    string `json:"reason"` // in words
	// Service is set with direction "service". It names the Service whose policies and source ranges are judged.
	Service string `json:"service,omitempty"`
	// Of the Pod that is judged for.
	Pod      string   `json:"pod,omitempty"`
	Identity string   `json:"identity,omitempty"`
	Number   uint32   `json:"number,omitempty"` // of the identity on the Node that was asked, 0 elsewhere
	Peer     string   `json:"peer,omitempty"`   // identity of the other end, or UnknownPod
	Policies []string `json:"policies,omitempty"`
	// Rule decided; empty if no rule did.
	Rule  string    `json:"rule,omitempty"`
	Trace *WhyTrace `json:"trace,omitempty"`
}

// WhyTrace is what the switch says.
type WhyTrace struct {
	Flow    string   `json:"flow"`             // that was traced
	Tables  []string `json:"tables,omitempty"` // that it met
	Judged  bool     `json:"judged"`           // it came to the tables of the policies
	Allowed bool     `json:"allowed"`          // and passed them
	Agrees  bool     `json:"agrees"`           // with what the stage says
	Error   string   `json:"error,omitempty"`  // why nothing was traced, or judged
}
