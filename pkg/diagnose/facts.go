// Package diagnose finds what is wrong in clusters and between them. Gather reads facts from the API servers and from
// the
// agents of all Nodes. Checks are pure functions of these facts.
package diagnose

import (
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// Facts are what API servers and agents have answered.
type Facts struct {
	Clusters []Cluster
}

// Kind is a kind of objects that Gather lists.
type Kind string

// Kinds of objects.
const (
	Nodes            Kind = "Nodes"
	Deployments      Kind = "Deployments"
	DaemonSets       Kind = "DaemonSets"
	Leases           Kind = "Leases"
	Webhooks         Kind = "ValidatingWebhookConfigurations"
	EndpointSlices   Kind = "EndpointSlices"
	ClusterSets      Kind = "ClusterSets"
	Gateways         Kind = "Gateways"
	Infos            Kind = "ClusterInfoImports"
	ResourceExports  Kind = "ResourceExports"
	ServiceExports   Kind = "ServiceExports"
	ServiceImports   Kind = "ServiceImports"
	ClusterPolicies  Kind = "ClusterNetworkPolicies"
	Policies         Kind = "NetworkPolicies of crd.antrea.io"
	StandardPolicies Kind = "ClusterNetworkPolicies of policy.networking.k8s.io"
	Monitors         Kind = "NodeLatencyMonitors"
	Secrets          Kind = "Secrets of members"
	ResourceImports  Kind = "ResourceImports"
	ImportedSlices   Kind = "EndpointSlices of imported Services"
	Quotas           Kind = "ResourceQuotas"
	Names            Kind = "names in clusterset.local"
)

// Cluster has the facts of one cluster.
type Cluster struct {
	Name string // as the user names it
	// Fault is why the API server does not answer; nothing else is known then.
	Fault   string
	Version string // of Kubernetes
	// Ahead is how far the API server's clock is ahead of this machine's, with a precision of a second.
	Ahead time.Duration
	Now   time.Time // by the API server's clock
	// Unread has the kinds that could not be listed, with the reason. Absent has the kinds that the cluster does not have.
	Unread map[Kind]string
	Absent map[Kind]bool

	// AgentsFault is why the agents could not be listed.
	AgentsFault string
	Agents      []Agent // by Node

	Nodes       []corev1.Node
	Deployments []appsv1.Deployment
	DaemonSets  []appsv1.DaemonSet
	Leases      []coordinationv1.Lease
	Webhooks    []admissionv1.ValidatingWebhookConfiguration
	Sets        []mcv1alpha2.ClusterSet
	Gateways    []mcv1alpha1.Gateway
	Infos       []mcv1alpha1.ClusterInfoImport
	ExchangedObjects
	PolicyObjects
	Monitors []crdv1alpha1.NodeLatencyMonitor
	Token    *Token // of the member; nil if the ClusterSet names no Secret
}

// ExchangedObjects are the exports and imports of Services in a cluster. In a leader they are the objects of all
// members.
type ExchangedObjects struct {
	ResourceExports []mcv1alpha1.ResourceExport
	ResourceImports []mcv1alpha1.ResourceImport
	Quotas          []corev1.ResourceQuota // of Common Areas
	ServiceExports  []mcsv1beta1.ServiceExport
	ServiceImports  []mcsv1beta1.ServiceImport
	EndpointSlices  []discoveryv1.EndpointSlice // of Namespaces that export Services
	ImportedSlices  []discoveryv1.EndpointSlice
	Resolved        *Resolved // nil if the cluster imports no Service with an address and a ready endpoint
}

// Resolved are answers of the cluster's CoreDNS.
type Resolved struct {
	Served bool // its configuration has the zone clusterset.local
	Names  []ResolvedName
}

// ResolvedName is the answer for the name of an imported Service.
type ResolvedName struct {
	Namespace, Name string
	Want, Have      []string // addresses
	Code            string   // of the answer, if it is no success
	Fault           string   // why there is no answer
	Changed         time.Time
}

// PolicyObjects are the policies of a cluster that have a status.
type PolicyObjects struct {
	ClusterPolicies  []crdv1beta1.ClusterNetworkPolicy
	Policies         []crdv1beta1.NetworkPolicy
	StandardPolicies []npv1alpha2.ClusterNetworkPolicy
}

// Agent has the answers of the agent of a Node.
type Agent struct {
	Node string
	Pod  *corev1.Pod // nil if the Node has no agent
	// Fault is why the agent does not answer.
	Fault  string
	Status *api.Status
	Peers  []api.Peer
	// Later are the peers seconds later. They are asked for if a way was not up.
	Later []api.Peer
	// Upcalls are the counters of the switch; nil if the agent could not read them.
	Upcalls *api.Upcalls
	// UpcallsLater are the counters some seconds later. They are read again if the switch has lost packets. UpcallsFault
	// is the reason if they are missing.
	UpcallsLater *api.Upcalls
	UpcallsFault string
	// BadPorts are ports that Open vSwitch cannot use, both now and some seconds later. PortsFault is the reason if they
	// are unknown.
	BadPorts   []api.Port
	PortsFault string
	// Probes are the results of its probes; nil if it is of a version without them.
	Probes *api.Probes
	// Ahead is how far the Node's clock is ahead of this machine's. The error is at most a part of Took, the time of the
	// answer. It is 0 without Probes.
	Ahead, Took time.Duration
}

// Token is what is known of a member's token. It does not have the token.
type Token struct {
	Namespace, Name string // of the Secret
	Missing         bool   // there is no such Secret
	Keys            []string
	Malformed       string // why it is not a token of a ServiceAccount
	Subject         string // the account that it is for
	Expires         time.Time
	CAEnds          time.Time
}

// set returns the ClusterSet by which the cluster is a member. A leader has a second one in its Common Area.
func (c *Cluster) set() *mcv1alpha2.ClusterSet {
	for i, s := range c.Sets {
		if len(s.Spec.Leaders) > 0 && s.Spec.Leaders[0].Server != "" {
			return &c.Sets[i]
		}
	}
	return nil
}

// areas returns the ClusterSets that make the cluster a leader, one in each Common Area.
func (c *Cluster) areas() (all []*mcv1alpha2.ClusterSet) {
	for i, s := range c.Sets {
		if len(s.Spec.Leaders) > 0 && s.Spec.Leaders[0].Server == "" {
			all = append(all, &c.Sets[i])
		}
	}
	return all
}

// id returns the cluster's ID in its ClusterSet; empty if it is no member.
func (c *Cluster) id() string {
	if s := c.set(); s != nil {
		return s.Spec.ClusterID
	}
	return ""
}

// agent returns the agent of a Node, or nil.
func (c *Cluster) agent(node string) *Agent {
	for i := range c.Agents {
		if c.Agents[i].Node == node {
			return &c.Agents[i]
		}
	}
	return nil
}

// node returns a Node, or nil.
func (c *Cluster) node(name string) *corev1.Node {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i]
		}
	}
	return nil
}

// info returns what the cluster has received about another one, or nil.
func (c *Cluster) info(id string) *mcv1alpha1.ClusterInfoImport {
	for i := range c.Infos {
		if c.Infos[i].Spec.ClusterID == id {
			return &c.Infos[i]
		}
	}
	return nil
}

// carries reports whether traffic uses a Gateway. It does not use one that comes or goes.
func carries(g *mcv1alpha1.Gateway) bool { return g.Annotations[multicluster.AnnotationPhase] == "" }

// network returns the settings of the cluster's tunnels, of the first Node whose agent reports them.
func (c *Cluster) network() *api.Network {
	for _, a := range c.Agents {
		if a.Status != nil && a.Status.Network != nil {
			return a.Status.Network
		}
	}
	return nil
}

// ready returns whether a Node is Ready, and otherwise why.
func ready(n *corev1.Node) (bool, string) {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return false, "its kubelet has not reported"
	}
	c := n.Status.Conditions[i]
	return c.Status == corev1.ConditionTrue, c.Reason + ": " + c.Message
}
