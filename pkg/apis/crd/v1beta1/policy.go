package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Action is what becomes of a new connection that a rule matches.
//
// +kubebuilder:validation:Enum=Allow;Drop;Reject;Pass;Deny
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
//
// +kubebuilder:validation:Enum=Cluster;ClusterSet
type Scope string

// Scopes. Empty means ScopeCluster.
const (
	ScopeCluster    Scope = "Cluster"
	ScopeClusterSet Scope = "ClusterSet"
)

// NamespaceMatch selects Namespaces by their relation to the Namespace of the Pod that a policy applies to.
//
// +kubebuilder:validation:Enum=Self
type NamespaceMatch string

// MatchSelf selects the Namespace of the Pod itself.
const MatchSelf NamespaceMatch = "Self"

// PolicyPhase sums up a policy's status.
type PolicyPhase string

// Phases.
const (
	// PhasePending: no Node has confirmed it yet.
	PhasePending PolicyPhase = "Pending"
	// PhaseRealizing: some Nodes do not enforce it yet.
	PhaseRealizing PolicyPhase = "Realizing"
	// PhaseRealized: all Nodes that have Pods of it enforce it.
	PhaseRealized PolicyPhase = "Realized"
	// PhaseFailed: a condition reports the problem.
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
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// ServiceReference names a Service, in this cluster or in the ClusterSet.
type ServiceReference struct {
	// Name of the Service.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Namespace of the Service; a NetworkPolicy may leave it out and means its own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Scope ClusterSet names the Service as other clusters export it.
	// +optional
	Scope Scope `json:"scope,omitempty"`
}

// IPBlock is a range of addresses.
//
// +kubebuilder:validation:XValidation:rule="!has(self.except) || !isCIDR(self.cidr) || self.except.all(e, cidr(self.cidr).containsCIDR(e))",fieldPath=".except",message="has a range that is not inside cidr: write only parts of cidr here, of the same address family"
type IPBlock struct {
	// CIDR of the range, such as 192.168.0.0/16.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="is not a range of addresses: write one such as 192.168.0.0/16 or fd00::/64, a single address with /32 or /128"
	CIDR string `json:"cidr"`
	// Except are ranges inside it that are left out.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:Format=cidr
	Except []string `json:"except,omitempty"`
}

// PeerNamespaces selects Namespaces by their relation to the Namespace of the Pod that a policy applies to.
//
// +kubebuilder:validation:XValidation:rule="has(self.match) != (has(self.sameLabels) && size(self.sameLabels) > 0)",message="write either match: Self or sameLabels with the keys of Namespace labels"
type PeerNamespaces struct {
	// Match Self selects the Namespace of the Pod itself.
	// +optional
	Match NamespaceMatch `json:"match,omitempty"`
	// SameLabels lists keys of labels. It selects the Namespaces that have the same values for all of these keys as the
	// Pod's own Namespace. A Pod whose Namespace lacks one of the labels has no peers.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=317
	SameLabels []string `json:"sameLabels,omitempty"`
}

// AppliedTo selects the Pods that a policy or a rule applies to. Selectors of Pods and Namespaces can be combined. Any
// other field must be the only one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.externalEntitySelector)",fieldPath=".externalEntitySelector",message="there are no ExternalEntities to select: remove externalEntitySelector"
// +kubebuilder:validation:XValidation:rule="has(self.externalEntitySelector) || (has(self.podSelector) || has(self.namespaceSelector) ? 1 : 0) + (has(self.group) ? 1 : 0) + (has(self.serviceAccount) ? 1 : 0) + (has(self.service) ? 1 : 0) + (has(self.nodeSelector) ? 1 : 0) == 1",message="write exactly one of: podSelector and namespaceSelector, alone or together; group; serviceAccount; service; nodeSelector. More of them are entries of their own"
type AppliedTo struct {
	// PodSelector selects Pods: of the policy's Namespace, or with NamespaceSelector of others.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// NamespaceSelector selects Namespaces. Only for ClusterNetworkPolicies.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Group is the name of a ClusterGroup, or in a NetworkPolicy of a Group in its Namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
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
	ExternalEntitySelector *Refused `json:"externalEntitySelector,omitempty"`
}

// Peer is the other side of a connection.
//
// +kubebuilder:validation:XValidation:rule="!has(self.externalEntitySelector)",fieldPath=".externalEntitySelector",message="there are no ExternalEntities to select: remove externalEntitySelector, or write their addresses as ipBlock"
// +kubebuilder:validation:XValidation:rule="has(self.externalEntitySelector) || (has(self.podSelector) || has(self.namespaceSelector) || has(self.namespaces) ? 1 : 0) + (has(self.ipBlock) ? 1 : 0) + (has(self.group) ? 1 : 0) + (has(self.serviceAccount) ? 1 : 0) + (has(self.nodeSelector) ? 1 : 0) + (has(self.fqdn) ? 1 : 0) == 1",message="write exactly one of: podSelector, alone or with namespaceSelector or namespaces; ipBlock; group; serviceAccount; nodeSelector; fqdn. More of them are peers of their own"
// +kubebuilder:validation:XValidation:rule="!(has(self.namespaceSelector) && has(self.namespaces))",fieldPath=".namespaces",message="stands beside namespaceSelector: write one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.scope) || self.scope != 'ClusterSet' || (has(self.podSelector) || has(self.namespaceSelector)) && !has(self.namespaces)",fieldPath=".scope",message="ClusterSet extends podSelector and namespaceSelector only: remove scope, or use these"
type Peer struct {
	// PodSelector selects Pods of the policy's Namespace. With NamespaceSelector or Namespaces it selects Pods of these
	// Namespaces. Without both in a ClusterNetworkPolicy it selects Pods of all Namespaces.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// NamespaceSelector selects Namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Namespaces selects Namespaces by their relation to the Namespace of the Pod that the rule applies to. Only for
	// ClusterNetworkPolicies.
	// +optional
	Namespaces *PeerNamespaces `json:"namespaces,omitempty"`
	// IPBlock selects addresses.
	// +optional
	IPBlock *IPBlock `json:"ipBlock,omitempty"`
	// Group is the name of a ClusterGroup, or in a NetworkPolicy of a Group in its Namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
	// ServiceAccount selects the Pods that run with it.
	// +optional
	ServiceAccount *ObjectReference `json:"serviceAccount,omitempty"`
	// NodeSelector selects Nodes, by all their addresses.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9*_]([-A-Za-z0-9*_]*[A-Za-z0-9*_])?(\.[A-Za-z0-9*_]([-A-Za-z0-9*_]*[A-Za-z0-9*_])?)*\.?$`
	// FQDN selects the addresses that DNS answers for a name; *.example.com matches every name that ends with
	// .example.com. Only for egress rules.
	// +optional
	FQDN string `json:"fqdn,omitempty"`
	// Scope ClusterSet extends PodSelector and NamespaceSelector to all clusters.
	// +optional
	Scope Scope `json:"scope,omitempty"`
	// ExternalEntitySelector is refused: there are no ExternalEntities.
	// +optional
	ExternalEntitySelector *Refused `json:"externalEntitySelector,omitempty"`
}

// Port is a port or a range of ports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.port) || (type(self.port) == int ? self.port >= 1 && self.port <= 65535 : string(self.port).matches('^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$') && string(self.port).matches('[a-z]'))",fieldPath=".port",message="is not a port: write a number from 1 to 65535, or a container port's name of at most 15 lower-case letters, digits and dashes"
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || has(self.port) && type(self.port) == int && self.endPort >= int(self.port)",fieldPath=".endPort",message="ends a range that has no beginning: write port as a number that is not larger than endPort"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceEndPort) || has(self.sourcePort) && self.sourceEndPort >= self.sourcePort",fieldPath=".sourceEndPort",message="ends a range that has no beginning: write sourcePort, not larger than sourceEndPort"
// +kubebuilder:validation:XValidation:rule="!has(self.sourcePort) || !has(self.port) || type(self.port) == int",fieldPath=".sourcePort",message="stands beside the name of a port: write port as a number"
type Port struct {
	// Protocol is TCP, UDP or SCTP; without it TCP.
	// +optional
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
	// Port is a number, or the name that a destination Pod gives to one. Without it every port.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=15
	Port *intstr.IntOrString `json:"port,omitempty"`
	// EndPort is the last port of a range that Port begins.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort *int32 `json:"endPort,omitempty"`
	// SourcePort is the client's port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	SourcePort *int32 `json:"sourcePort,omitempty"`
	// SourceEndPort is the last port of a range that SourcePort begins.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	SourceEndPort *int32 `json:"sourceEndPort,omitempty"`
}

// ICMP selects messages of ICMP. Empty selects all of them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.icmpCode) || has(self.icmpType)",fieldPath=".icmpCode",message="has a meaning for one type only: write icmpType too"
type ICMP struct {
	// ICMPType is the type of the message.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ICMPType *int32 `json:"icmpType,omitempty"`
	// ICMPCode is its code. Needs ICMPType.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ICMPCode *int32 `json:"icmpCode,omitempty"`
}

// IGMP selects messages of IGMP. Empty selects all of them.
type IGMP struct {
	// IGMPType is the type of the message.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	IGMPType *int32 `json:"igmpType,omitempty"`
	// GroupAddress is the address of the multicast group.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4 && cidr('224.0.0.0/4').containsIP(self)",message="is not a multicast group: write an address from 224.0.0.0 to 239.255.255.255"
	GroupAddress string `json:"groupAddress,omitempty"`
}

// Protocol selects packets of a protocol without ports. One of its fields is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.icmp) != has(self.igmp)",message="write either icmp or igmp"
type Protocol struct {
	// ICMP selects messages of ICMP.
	// +optional
	ICMP *ICMP `json:"icmp,omitempty"`
	// IGMP selects messages of IGMP.
	// +optional
	IGMP *IGMP `json:"igmp,omitempty"`
}

// Refused is content of a field that is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:Type=object
type Refused struct {
	runtime.RawExtension `json:",inline"`
}

// Rule decides about new connections. A connection matches if it matches a peer of From or To (or a Service of
// ToServices), and one of Ports or Protocols.
//
// +kubebuilder:validation:XValidation:rule="!has(self.l7Protocols)",fieldPath=".l7Protocols",message="rules for layer 7 are not enforced: remove l7Protocols, or use a proxy that reads the requests"
// +kubebuilder:validation:XValidation:rule="!has(self.toNodes)",fieldPath=".toNodes",message="is not enforced: write a peer in to with nodeSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.toServices) || size(self.toServices) == 0 || (!has(self.to) || size(self.to) == 0) && (!has(self.ports) || size(self.ports) == 0) && (!has(self.protocols) || size(self.protocols) == 0)",fieldPath=".toServices",message="names the ports too: remove to, ports and protocols, or put them into a rule of their own"
type Rule struct {
	// Action for connections that match the rule: Allow, Drop, Reject or Pass. Deny means Drop.
	Action Action `json:"action"`
	// From are the clients of an ingress rule. An empty list means all clients.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	From []Peer `json:"from,omitempty"`
	// To are the servers of an egress rule. An empty list means all servers, unless ToServices has some.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	To []Peer `json:"to,omitempty"`
	// ToServices are the Services of an egress rule.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ToServices []ServiceReference `json:"toServices,omitempty"`
	// ToNodes is refused: write a peer with nodeSelector instead.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ToNodes []Refused `json:"toNodes,omitempty"`
	// Ports are the ports that the rule matches. Without Ports and Protocols it matches all ports and protocols.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ports []Port `json:"ports,omitempty"`
	// Protocols without ports that the rule is for.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	Protocols []Protocol `json:"protocols,omitempty"`
	// L7Protocols is refused: packets are not looked into above layer 4.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	L7Protocols []Refused `json:"l7Protocols,omitempty"`
	// Name of the rule in logs and metrics, unique in the policy.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// EnableLogging writes a line for the first packet of each connection that the rule decides.
	// +optional
	EnableLogging bool `json:"enableLogging,omitempty"`
	// LogLabel stands in these lines.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LogLabel string `json:"logLabel,omitempty"`
	// AppliedTo selects what this rule is for, where the policy has no AppliedTo of its own.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	AppliedTo []AppliedTo `json:"appliedTo,omitempty"`
}

// PolicySpec is what a ClusterNetworkPolicy or a NetworkPolicy asks for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.appliedTo) || size(self.appliedTo) == 0 || (!has(self.ingress) || self.ingress.all(r, !has(r.appliedTo) || size(r.appliedTo) == 0)) && (!has(self.egress) || self.egress.all(r, !has(r.appliedTo) || size(r.appliedTo) == 0))",fieldPath=".appliedTo",message="stands in the policy and in a rule: keep the one of the policy, or write one in every rule"
// +kubebuilder:validation:XValidation:rule="has(self.appliedTo) && size(self.appliedTo) > 0 || (has(self.ingress) && size(self.ingress) > 0 || has(self.egress) && size(self.egress) > 0) && (!has(self.ingress) || self.ingress.all(r, has(r.appliedTo) && size(r.appliedTo) > 0)) && (!has(self.egress) || self.egress.all(r, has(r.appliedTo) && size(r.appliedTo) > 0))",message="appliedTo is missing: write it once for the policy, or in every rule"
// +kubebuilder:validation:XValidation:rule="!has(self.egress) || size(self.egress) == 0 || !has(self.appliedTo) || !self.appliedTo.exists(a, has(a.service))",fieldPath=".appliedTo",message="a service is applied to in ingress rules only: put the egress rules into a policy of their own"
// +kubebuilder:validation:XValidation:rule="!has(self.egress) || !self.egress.exists(r, has(r.appliedTo) && r.appliedTo.exists(a, has(a.service)))",fieldPath=".egress",message="a service is applied to in ingress rules only: use another appliedTo"
// +kubebuilder:validation:XValidation:rule="!has(self.tier) || !(self.tier in ['baseline', 'Baseline']) || (!has(self.ingress) || self.ingress.all(r, r.action != 'Pass')) && (!has(self.egress) || self.egress.all(r, r.action != 'Pass'))",fieldPath=".tier",message="no policy is decided after the Tier baseline: use Allow, Drop or Reject, or another Tier"
type PolicySpec struct {
	// Tier of the policy; without it application.
	// +optional
	// +kubebuilder:default=application
	// +kubebuilder:validation:MaxLength=253
	Tier string `json:"tier,omitempty"`
	// Priority in the Tier: smaller ones decide first.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Priority float64 `json:"priority"`
	// AppliedTo selects what the policy is for, or every rule has an AppliedTo of its own.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	AppliedTo []AppliedTo `json:"appliedTo,omitempty"`
	// Ingress rules decide connections to what the policy is for, in their order.
	// +optional
	// +kubebuilder:validation:items:XValidation:rule="(!has(self.to) || size(self.to) == 0) && (!has(self.toServices) || size(self.toServices) == 0)",message="an ingress rule is about clients: write them as from, and what the rule is for as appliedTo"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.from) || self.from.all(p, !has(p.fqdn))",fieldPath=".from",message="clients have no names: fqdn is for egress rules, write ipBlock or selectors"
	// +kubebuilder:validation:MaxItems=100
	Ingress []Rule `json:"ingress,omitempty"`
	// Egress rules decide connections from what the policy is for, in their order.
	// +optional
	// +kubebuilder:validation:items:XValidation:rule="!has(self.from) || size(self.from) == 0",fieldPath=".from",message="an egress rule is about servers: write them as to, and what the rule is for as appliedTo"
	// +kubebuilder:validation:MaxItems=100
	Egress []Rule `json:"egress,omitempty"`
}

// PolicyStatus reports how far a policy is enforced, and its problems.
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
	// Conditions report problems of the policy.
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

	// +kubebuilder:validation:XValidation:rule="!has(self.egress) || self.egress.all(r, !has(r.toServices) || r.toServices.all(s, has(s.namespace)))",fieldPath=".egress",message="a Service in toServices has no Namespace: write its namespace too"
	// +kubebuilder:validation:XValidation:rule="(!has(self.appliedTo) || self.appliedTo.all(a, (!has(a.serviceAccount) || has(a.serviceAccount.namespace)) && (!has(a.service) || has(a.service.namespace)))) && (!has(self.ingress) || self.ingress.all(r, !has(r.appliedTo) || r.appliedTo.all(a, (!has(a.serviceAccount) || has(a.serviceAccount.namespace)) && (!has(a.service) || has(a.service.namespace))))) && (!has(self.egress) || self.egress.all(r, !has(r.appliedTo) || r.appliedTo.all(a, (!has(a.serviceAccount) || has(a.serviceAccount.namespace)) && (!has(a.service) || has(a.service.namespace)))))",message="a serviceAccount or service in appliedTo has no Namespace: write its namespace too"
	// +kubebuilder:validation:XValidation:rule="(!has(self.ingress) || self.ingress.all(r, !has(r.from) || r.from.all(p, !has(p.serviceAccount) || has(p.serviceAccount.namespace)))) && (!has(self.egress) || self.egress.all(r, !has(r.to) || r.to.all(p, !has(p.serviceAccount) || has(p.serviceAccount.namespace))))",message="the serviceAccount of a peer has no Namespace: write its namespace too"
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

	// +kubebuilder:validation:XValidation:rule="(!has(self.appliedTo) || self.appliedTo.all(a, !has(a.namespaceSelector) && !has(a.nodeSelector))) && (!has(self.ingress) || self.ingress.all(r, !has(r.appliedTo) || r.appliedTo.all(a, !has(a.namespaceSelector) && !has(a.nodeSelector)))) && (!has(self.egress) || self.egress.all(r, !has(r.appliedTo) || r.appliedTo.all(a, !has(a.namespaceSelector) && !has(a.nodeSelector))))",message="appliedTo of a NetworkPolicy selects in its own Namespace: remove namespaceSelector and nodeSelector, or write a ClusterNetworkPolicy"
	// +kubebuilder:validation:XValidation:rule="(!has(self.ingress) || self.ingress.all(r, !has(r.from) || r.from.all(p, !has(p.namespaces)))) && (!has(self.egress) || self.egress.all(r, !has(r.to) || r.to.all(p, !has(p.namespaces))))",message="namespaces of a peer is for ClusterNetworkPolicies: write podSelector alone for the policy's own Namespace, or namespaceSelector"
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
