package v4

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultPodNetwork is the name of the VirtualNetwork that Pods of a Namespace are in if they name no other one.
const DefaultPodNetwork = "default-podnetwork"

// States of an object.
const (
	// StateSuccess means that all of the object is acted on.
	StateSuccess = "Success"
	// StateWarning means that parts of it are not. The observation names them.
	StateWarning = "Warning"
	// StateFailure means that no Pod gets addresses through the object. The observation has the reason.
	StateFailure = "Failure"
)

// Status is the state of an object.
type Status struct {
	// State is Success, Warning if parts of the object are not acted on, or Failure if no Pod gets addresses through it.
	// +optional
	State string `json:"state,omitempty"`
	// Observation names the parts of the object that are not acted on, and remedies.
	// +optional
	Observation string `json:"observation,omitempty"`
}

// ResourceReference names another object.
type ResourceReference struct {
	// APIVersion is the group and version of its kind.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// Namespace of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// RouteTarget is a target of routes, such as target:64512:1000. It has no effect.
//
// +kubebuilder:validation:MaxLength=253
type RouteTarget string

// VirtualNetworkProperties are properties of a network. They have no effect.
type VirtualNetworkProperties struct {
	// ForwardingMode has no effect.
	// +optional
	// +kubebuilder:validation:Enum=l2;l3;l2_l3
	ForwardingMode string `json:"forwardingMode,omitempty"`
	// RPF has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RPF string `json:"rpf,omitempty"`
}

// VirtualNetworkSpec is the desired state of a VirtualNetwork. In default-podnetwork no field has an effect.
type VirtualNetworkSpec struct {
	// V4SubnetReference names the Subnet of the Namespace from which Pods get IPv4 addresses.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it stays: create another VirtualNetwork"
	V4SubnetReference *ResourceReference `json:"v4SubnetReference,omitempty"`
	// V6SubnetReference names the Subnet of the Namespace from which Pods get IPv6 addresses.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it stays: create another VirtualNetwork"
	V6SubnetReference *ResourceReference `json:"v6SubnetReference,omitempty"`
	// FabricSNAT lets Pods with their first interface in the network reach destinations outside of the cluster, with the
	// address of their Node. Without podNetwork it has no effect, nor in default-podnetwork: the annotation
	// core.juniper.net/forwarding-mode=fabric-snat of an isolated Namespace lets its Pods reach such destinations.
	// +optional
	FabricSNAT bool `json:"fabricSNAT,omitempty"`
	// FabricForwarding has no effect.
	// +optional
	FabricForwarding bool `json:"fabricForwarding,omitempty"`
	// PodNetwork lets first interfaces of Pods be in the network: Pods and Namespaces name it in the annotation
	// net.juniper.contrail.podnetwork. It has no effect on default-podnetwork.
	// +optional
	PodNetwork bool `json:"podNetwork,omitempty"`
	// IsProviderNetwork has no effect.
	// +optional
	IsProviderNetwork bool `json:"isProviderNetwork,omitempty"`
	// ProviderNetworkReference has no effect.
	// +optional
	ProviderNetworkReference *ResourceReference `json:"providerNetworkReference,omitempty"`
	// RouteTableReferences have no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	RouteTableReferences []ResourceReference `json:"routeTableReferences,omitempty"`
	// RouteTargetList has no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	RouteTargetList []RouteTarget `json:"routeTargetList,omitempty"`
	// ImportRouteTargetList has no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ImportRouteTargetList []RouteTarget `json:"importRouteTargetList,omitempty"`
	// ExportRouteTargetList has no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ExportRouteTargetList []RouteTarget `json:"exportRouteTargetList,omitempty"`
	// VirtualNetworkNetworkID is a requested number of the network.
	// +optional
	// +kubebuilder:validation:Minimum=4096
	// +kubebuilder:validation:Maximum=4294967295
	VirtualNetworkNetworkID int64 `json:"virtualNetworkNetworkId,omitempty"`
	// VirtualNetworkProperties have no effect.
	// +optional
	VirtualNetworkProperties *VirtualNetworkProperties `json:"virtualNetworkProperties,omitempty"`
	// VLANID has no effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	VLANID int32 `json:"vlanID,omitempty"`
	// FQName is the full name of the object in CN2. It has no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=253
	FQName []string `json:"fqName,omitempty"`
}

// VirtualNetworkStatus is the state of a VirtualNetwork.
type VirtualNetworkStatus struct {
	Status `json:",inline"`
	// VirtualNetworkNetworkID is the number of the network between Nodes.
	// +optional
	VirtualNetworkNetworkID int64 `json:"virtualNetworkNetworkId,omitempty"`
	// IPFamilies are the versions of IP of its Pods, as in v6,v4.
	// +optional
	IPFamilies string `json:"ipFamilies,omitempty"`
}

// VirtualNetwork is a network of Pods. VirtualNetwork default-podnetwork stands for the network of its Namespace, if
// the Namespace is isolated. Others are networks of further interfaces of Pods, with addresses of Subnets.
// VirtualNetworkRouters select them by their labels.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vn
// +kubebuilder:printcolumn:name="VNI",type=integer,JSONPath=`.status.virtualNetworkNetworkId`,description="Number"
// +kubebuilder:printcolumn:name="IP Families",type=string,JSONPath=`.status.ipFamilies`,description="Versions of IP"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="Success, or Warning"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VirtualNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the request.
	// +optional
	Spec VirtualNetworkSpec `json:"spec,omitempty"`
	// +optional
	Status VirtualNetworkStatus `json:"status,omitempty"`
}

// VirtualNetworkList is a list of VirtualNetworks.
//
// +kubebuilder:object:root=true
type VirtualNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualNetwork `json:"items"`
}

// Types of VirtualNetworkRouters.
const (
	TypeMesh  = "mesh"
	TypeHub   = "hub"
	TypeSpoke = "spoke"
)

// VirtualNetworkRouterEntry selects routers by their labels, and by the labels of their Namespaces.
type VirtualNetworkRouterEntry struct {
	// VirtualNetworkRouterSelector selects routers. Without one the entry selects none.
	// +optional
	VirtualNetworkRouterSelector *metav1.LabelSelector `json:"virtualNetworkRouterSelector,omitempty"`
	// NamespaceSelector selects their Namespaces. Without one it is the router's own.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// ImportVirtualNetworkRouter selects the routers that a router imports.
type ImportVirtualNetworkRouter struct {
	// VirtualNetworkRouters select the routers. A router is imported if one entry selects it.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	VirtualNetworkRouters []VirtualNetworkRouterEntry `json:"virtualNetworkRouters,omitempty"`
}

// VirtualNetworkRouterSpec is the request of a router.
type VirtualNetworkRouterSpec struct {
	// Type of the router. A mesh joins its networks with each other. Two routers that import each other join their
	// networks: two of type mesh, or a hub with a spoke.
	// +kubebuilder:validation:Enum=mesh;hub;spoke
	Type string `json:"type"`
	// VirtualNetworkSelector selects VirtualNetworks of the router's Namespace.
	VirtualNetworkSelector *metav1.LabelSelector `json:"virtualNetworkSelector"`
	// Import selects other routers.
	// +optional
	Import ImportVirtualNetworkRouter `json:"import,omitempty"`
	// RouteTarget has no effect.
	// +optional
	RouteTarget RouteTarget `json:"routeTarget,omitempty"`
	// RoutingType has no effect.
	// +optional
	// +kubebuilder:validation:Enum=evpn;l3vpn
	RoutingType string `json:"routingType,omitempty"`
	// L3VXLANNetworkIdentifier has no effect.
	// +optional
	// +kubebuilder:validation:Minimum=4096
	// +kubebuilder:validation:Maximum=4294967295
	L3VXLANNetworkIdentifier int64 `json:"l3vxlanNetworkIdentifier,omitempty"`
	// FQName is the full name of the object in CN2. It has no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=253
	FQName []string `json:"fqName,omitempty"`
}

// VirtualNetworkRouter joins networks.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vnr
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`,description="mesh, hub or spoke"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="Success, or Warning"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VirtualNetworkRouter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VirtualNetworkRouterSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitempty"`
}

// VirtualNetworkRouterList is a list of VirtualNetworkRouters.
//
// +kubebuilder:object:root=true
type VirtualNetworkRouterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualNetworkRouter `json:"items"`
}
