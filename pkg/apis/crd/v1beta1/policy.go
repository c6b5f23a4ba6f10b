package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Action is what becomes of a new connection that a rule matches.
type Action string

// Actions.
const (
	// ActionAllow lets it pass, and its replies.
	ActionAllow Action = "Allow"
	// ActionDrop drops it.
	ActionDrop Action = "Drop"
	// ActionReject answers with a TCP reset, or ICMP's administratively prohibited.
	ActionReject Action = "Reject"
	// ActionPass leaves the decision to NetworkPolicies of Kubernetes, and after them to the Tier baseline.
	ActionPass Action = "Pass"
	// ActionDeny is an old name of ActionDrop.
	ActionDeny Action = "Deny"
)

// Scope is where a peer's Pods, or a Service's endpoints, are looked for.
type Scope string

// Scopes. Empty means ScopeCluster.
const (
	ScopeCluster    Scope = "Cluster"
	ScopeClusterSet Scope = "ClusterSet"
)

// NamespaceMatch selects Namespaces by their relation to that of the Pod that a policy applies to.
type NamespaceMatch string

// MatchSelf selects the Namespace of the Pod itself.
const MatchSelf NamespaceMatch = "Self"

// PolicyPhase sums up a policy's status.
type PolicyPhase string

// Phases.
const (
	// PhasePending: no Node has been asked yet.
	PhasePending PolicyPhase = "Pending"
	// PhaseRealizing: some Nodes do not enforce it yet.
	PhaseRealizing PolicyPhase = "Realizing"
	// PhaseRealized: all Nodes that have Pods of it enforce it.
	PhaseRealized PolicyPhase = "Realized"
	// PhaseFailed: a condition says what is wrong.
	PhaseFailed PolicyPhase = "Failed"
)

// Types of conditions of policies.
const (
	// ConditionRealizable is false where the policy asks for what cannot be enforced.
	ConditionRealizable = "Realizable"
	// ConditionRealizationFailure is true where Nodes failed to enforce it.
	ConditionRealizationFailure = "RealizationFailure"
)

// ObjectReference names an object. Without a Namespace it is the policy's own.
type ObjectReference struct {
	// Name of the object.
	Name string `json:"name"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ServiceReference names a Service, in this cluster or in the ClusterSet.
type ServiceReference struct {
	// Name of the Service.
	Name string `json:"name"`
	// Namespace of the Service; a NetworkPolicy may leave it out and means its own.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Scope ClusterSet names the Service as other clusters export it.
	// +optional
	Scope Scope `json:"scope,omitempty"`
}

// IPBlock is a range of addresses.
type IPBlock struct {
	// CIDR of the range, such as 192.168.0.0/16.
	CIDR string `json:"cidr"`
	// Except are ranges inside it that are left out.
	// +optional
	Except []string `json:"except,omitempty"`
}

// PeerNamespaces selects Namespaces by their relation to that of the Pod that a policy applies to.
type PeerNamespaces struct {
	// Match Self selects the Namespace of the Pod itself.
	// +optional
	Match NamespaceMatch `json:"match,omitempty"`
	// SameLabels are keys: Namespaces that have the same values of all of them as the Pod's own. A Pod whose Namespace
	// lacks one of them has no peers.
	// +optional
	SameLabels []string `json:"sameLabels,omitempty"`
}

// AppliedTo selects what a policy or a rule is for. Selectors of Pods and Namespaces are used together, everything
// else alone.
type AppliedTo struct {
	// PodSelector selects Pods: of the policy's Namespace, or with NamespaceSelector of others.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// NamespaceSelector selects Namespaces. Only for ClusterNetworkPolicies.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Group is the name of a ClusterGroup, or in a NetworkPolicy of a Group in its Namespace.
	// +optional
	Group string `json:"group,omitempty"`
	// ServiceAccount selects the Pods that run with it.
	// +optional
	ServiceAccount *ObjectReference `json:"serviceAccount,omitempty"`
	// Service selects the NodePorts of a Service, for ingress rules.
	// +optional
	Service *ObjectReference `json:"service,omitempty"`
	// NodeSelector selects Nodes: their own traffic. Only for ClusterNetworkPolicies.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// ExternalEntitySelector is refused: there are no ExternalEntities.
	// +optional
	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`
}

// Peer is the other side of a connection.
type Peer struct {
	// PodSelector selects Pods: of the policy's Namespace, with NamespaceSelector or Namespaces of those. Alone in a
	// ClusterNetworkPolicy it selects Pods of all Namespaces.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// NamespaceSelector selects Namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Namespaces selects Namespaces by their relation to that of the Pod that the rule applies to. Only for
	// ClusterNetworkPolicies.
	// +optional
	Namespaces *PeerNamespaces `json:"namespaces,omitempty"`
	// IPBlock selects addresses.
	// +optional
	IPBlock *IPBlock `json:"ipBlock,omitempty"`
	// Group is the name of a ClusterGroup, or in a NetworkPolicy of a Group in its Namespace.
	// +optional
	Group string `json:"group,omitempty"`
	// ServiceAccount selects the Pods that run with it.
	// +optional
	ServiceAccount *ObjectReference `json:"serviceAccount,omitempty"`
	// NodeSelector selects Nodes, by all their addresses.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// FQDN selects the addresses that DNS answers for a name; *.example.com matches every name that ends so. Only for
	// egress rules.
	// +optional
	FQDN string `json:"fqdn,omitempty"`
	// Scope ClusterSet extends PodSelector and NamespaceSelector to all clusters.
	// +optional
	Scope Scope `json:"scope,omitempty"`
	// ExternalEntitySelector is refused: there are no ExternalEntities.
	// +optional
	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`
}

// Port is a port or a range of ports.
type Port struct {
	// Protocol is TCP, UDP or SCTP; without it TCP.
	// +optional
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
	// Port is a number, or the name that a destination Pod gives to one. Without it every port.
	// +optional
	Port *intstr.IntOrString `json:"port,omitempty"`
	// EndPort is the last port of a range that Port begins.
	// +optional
	EndPort *int32 `json:"endPort,omitempty"`
	// SourcePort is the client's port.
	// +optional
	SourcePort *int32 `json:"sourcePort,omitempty"`
	// SourceEndPort is the last port of a range that SourcePort begins.
	// +optional
	SourceEndPort *int32 `json:"sourceEndPort,omitempty"`
}

// ICMP selects messages of ICMP. Empty selects all of them.
type ICMP struct {
	// ICMPType is the type of the message.
	// +optional
	ICMPType *int32 `json:"icmpType,omitempty"`
	// ICMPCode is its code. Needs ICMPType.
	// +optional
	ICMPCode *int32 `json:"icmpCode,omitempty"`
}

// IGMP selects messages of IGMP. Empty selects all of them.
type IGMP struct {
	// IGMPType is the type of the message.
	// +optional
	IGMPType *int32 `json:"igmpType,omitempty"`
	// GroupAddress is the address of the multicast group.
	// +optional
	GroupAddress string `json:"groupAddress,omitempty"`
}

// Protocol selects packets of a protocol without ports. One of its fields is set.
type Protocol struct {
	// ICMP selects messages of ICMP.
	// +optional
	ICMP *ICMP `json:"icmp,omitempty"`
	// IGMP selects messages of IGMP.
	// +optional
	IGMP *IGMP `json:"igmp,omitempty"`
}

// Rule decides new connections. One matches when a peer of From or To (or a Service of ToServices), and one of Ports
// or Protocols matches.
type Rule struct {
	// Action that a connection gets when the rule matches it: Allow, Drop, Reject or Pass. Deny means Drop.
	Action Action `json:"action"`
	// From are the clients of an ingress rule. None means everybody.
	// +optional
	From []Peer `json:"from,omitempty"`
	// To are the servers of an egress rule. None means everybody, unless ToServices has some.
	// +optional
	To []Peer `json:"to,omitempty"`
	// ToServices are the Services of an egress rule.
	// +optional
	ToServices []ServiceReference `json:"toServices,omitempty"`
	// ToNodes is refused: write a peer with nodeSelector instead.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	ToNodes *runtime.RawExtension `json:"toNodes,omitempty"`
	// Ports that the rule is for. None means all ports and protocols, unless Protocols has some.
	// +optional
	Ports []Port `json:"ports,omitempty"`
	// Protocols without ports that the rule is for.
	// +optional
	Protocols []Protocol `json:"protocols,omitempty"`
	// L7Protocols is refused: packets are not looked into above layer 4.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	L7Protocols *runtime.RawExtension `json:"l7Protocols,omitempty"`
	// Name of the rule in logs and metrics, unique in the policy.
	// +optional
	Name string `json:"name,omitempty"`
	// EnableLogging writes a line for the first packet of each connection that the rule decides.
	// +optional
	EnableLogging bool `json:"enableLogging,omitempty"`
	// LogLabel stands in these lines.
	// +optional
	LogLabel string `json:"logLabel,omitempty"`
	// AppliedTo selects what this rule is for, where the policy has no AppliedTo of its own.
	// +optional
	AppliedTo []AppliedTo `json:"appliedTo,omitempty"`
}

// PolicySpec is what a ClusterNetworkPolicy or a NetworkPolicy asks for.
type PolicySpec struct {
	// Tier of the policy; without it application.
	// +optional
	Tier string `json:"tier,omitempty"`
	// Priority in the Tier: smaller ones decide first.
	Priority float64 `json:"priority"`
	// AppliedTo selects what the policy is for, or every rule has an AppliedTo of its own.
	// +optional
	AppliedTo []AppliedTo `json:"appliedTo,omitempty"`
	// Ingress rules decide connections to what the policy is for, in their order.
	// +optional
	Ingress []Rule `json:"ingress,omitempty"`
	// Egress rules decide connections from what the policy is for, in their order.
	// +optional
	Egress []Rule `json:"egress,omitempty"`
}

// PolicyStatus says what became of a policy.
type PolicyStatus struct {
	// Phase sums it up: Pending, Realizing, Realized or Failed.
	// +optional
	Phase PolicyPhase `json:"phase,omitempty"`
	// ObservedGeneration is the generation of the policy that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration"`
	// CurrentNodesRealized is the number of Nodes that enforce it.
	// +optional
	CurrentNodesRealized int32 `json:"currentNodesRealized"`
	// DesiredNodesRealized is the number of Nodes that should.
	// +optional
	DesiredNodesRealized int32 `json:"desiredNodesRealized"`
	// Conditions say what is wrong with it.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterNetworkPolicy is a policy for Pods of any Namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=acnp
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`,description="Tier of the policy"
// +kubebuilder:printcolumn:name="Priority",type=number,JSONPath=`.spec.priority`,format=float,description="Priority in the Tier"
// +kubebuilder:printcolumn:name="Desired Nodes",type=number,JSONPath=`.status.desiredNodesRealized`,format=int32,description="Nodes that should enforce the policy"
// +kubebuilder:printcolumn:name="Current Nodes",type=number,JSONPath=`.status.currentNodesRealized`,format=int32,description="Nodes that enforce the policy"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PolicySpec `json:"spec"`
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// ClusterNetworkPolicyList is a list of ClusterNetworkPolicies.
//
// +kubebuilder:object:root=true
type ClusterNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterNetworkPolicy `json:"items"`
}

// NetworkPolicy is a policy for Pods of its Namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName={annp,anp}
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`,description="Tier of the policy"
// +kubebuilder:printcolumn:name="Priority",type=number,JSONPath=`.spec.priority`,format=float,description="Priority in the Tier"
// +kubebuilder:printcolumn:name="Desired Nodes",type=number,JSONPath=`.status.desiredNodesRealized`,format=int32,description="Nodes that should enforce the policy"
// +kubebuilder:printcolumn:name="Current Nodes",type=number,JSONPath=`.status.currentNodesRealized`,format=int32,description="Nodes that enforce the policy"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PolicySpec `json:"spec"`
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// NetworkPolicyList is a list of NetworkPolicies.
//
// +kubebuilder:object:root=true
type NetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkPolicy `json:"items"`
}
