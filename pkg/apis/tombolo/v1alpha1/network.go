package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxNetworkNumber is the highest number of a network, since packets carry the number in 24 bits.
const MaxNetworkNumber = 1<<24 - 1

// States of a TenantNetwork and of a NetworkConnection.
const (
	// StateSuccess means that all of the object is acted on.
	StateSuccess = "Success"
	// StateWarning means that parts of it are not. The observation names them.
	StateWarning = "Warning"
	// StateFailure means that the network has no number, so nothing of the object is acted on.
	StateFailure = "Failure"
)

// TenantNetworkMember selects Namespaces of one cluster.
type TenantNetworkMember struct {
	// ClusterID of the cluster, as in its ClusterClaim.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterID string `json:"clusterID"`
	// NamespaceSelector selects Namespaces by their labels. {} selects all. A selected Namespace is in the network if it
	// is isolated and its annotation tombolo.io/tenant-network has the network's name.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
}

// TenantNetworkSpec is the request of a TenantNetwork.
type TenantNetworkSpec struct {
	// Members are the Namespaces that may join the network. A cluster may have several entries.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	Members []TenantNetworkMember `json:"members,omitempty"`
	// Connections are the names of the NetworkConnections that this network agrees to. Without connections the network is
	// joined with no other one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Connections []string `json:"connections,omitempty"`
}

// JoinedNetwork is a network that another one is joined with: their Pods reach each other.
type JoinedNetwork struct {
	// Name of its TenantNetwork.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Number of the network between Nodes and clusters.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	Number int32 `json:"number"`
	// ClusterIDs are all clusters that have members of it, sorted.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=253
	ClusterIDs []string `json:"clusterIDs,omitempty"`
	// CIDRs are the ranges of its Pods, if it is a VirtualNetwork with Subnets, sorted. Without ranges it is a network of
	// Namespaces, whose Pods have addresses of their cluster.
	// +optional
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=43
	CIDRs []string `json:"cidrs,omitempty"`
}

// VirtualNetworkReference is one VirtualNetwork of a Namespace, and no later one of its name.
type VirtualNetworkReference struct {
	// Name of the VirtualNetwork.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the VirtualNetwork.
	UID types.UID `json:"uid"`
}

// NamespaceOfCluster is a Namespace of a cluster.
type NamespaceOfCluster struct {
	// ClusterID of the cluster.
	// +kubebuilder:validation:MaxLength=253
	ClusterID          string `json:"clusterID"`
	NamespaceReference `json:",inline"`
}

// NamespaceReference is one Namespace, and no later one of its name.
type NamespaceReference struct {
	// Name of the Namespace.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// UID of the Namespace.
	UID types.UID `json:"uid"`
}

// NetworkRequest is a VirtualNetwork with Subnets that a cluster creates in one of its Namespaces.
type NetworkRequest struct {
	// Namespace of the VirtualNetwork and of its Subnets.
	Namespace NamespaceOfCluster `json:"namespace"`
	// Name of the VirtualNetwork.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// V4Subnet is its Subnet for IPv4.
	// +optional
	V4Subnet *RequestedSubnet `json:"v4Subnet,omitempty"`
	// V6Subnet is its Subnet for IPv6.
	// +optional
	V6Subnet *RequestedSubnet `json:"v6Subnet,omitempty"`
}

// RequestedSubnet is a Subnet of a NetworkRequest.
type RequestedSubnet struct {
	// Name of the Subnet.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// CIDR is the range of addresses.
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr"`
	// DefaultGateway is the next hop of Pods. Without one it is the first address of the range.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	DefaultGateway string `json:"defaultGateway,omitempty"`
	// Ranges are the addresses that Pods get, unless a Pod requests one. Without ranges Pods get addresses of the whole
	// range of the Subnet.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	Ranges []AddressRange `json:"ranges,omitempty"`
}

// AddressRange is a range of addresses.
type AddressRange struct {
	// From is its first address.
	// +kubebuilder:validation:MaxLength=45
	From string `json:"from"`
	// To is its last address.
	// +kubebuilder:validation:MaxLength=45
	To string `json:"to"`
}

// TenantNetworkStatus is the state of a TenantNetwork. The leader's controller writes it.
type TenantNetworkStatus struct {
	// Number of the network between Nodes and clusters, from 1 to 16777215. It comes from the object's UID. Without a
	// number its Namespaces stay in networks of their own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16777215
	Number int32 `json:"number,omitempty"`
	// Joined are the networks that it is joined with, sorted by name.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	Joined []JoinedNetwork `json:"joined,omitempty"`
	// Namespace is set for a network that is made for a Namespace with a copy in the central cluster. The Namespace is in
	// the network without an annotation of its own: its cluster has agreed with the annotation tombolo.io/central of its
	// ClusterSet.
	// +optional
	Namespace *NamespaceOfCluster `json:"namespace,omitempty"`
	// VirtualNetwork is set with Namespace, for a network that is made for a VirtualNetwork with Subnets of this
	// Namespace. Then no Namespace is in the network.
	// +optional
	VirtualNetwork *VirtualNetworkReference `json:"virtualNetwork,omitempty"`
	// Request is set for a VirtualNetwork that was created in a copy in the central cluster. The cluster of the copy
	// creates the VirtualNetwork and its Subnets in the copied Namespace.
	// +optional
	Request *NetworkRequest `json:"request,omitempty"`
	// CIDRs are the ranges of the VirtualNetwork's Pods, sorted.
	// +optional
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=43
	CIDRs []string `json:"cidrs,omitempty"`
	// State is Success, Warning if parts of the object are not acted on, or Failure if the network has no number.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	State string `json:"state,omitempty"`
	// Observation names the parts of the object that are not acted on, and remedies.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Observation string `json:"observation,omitempty"`
}

// TenantNetwork is a network of isolated Namespaces of several clusters. It is an object of the leader's Common Area.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=tn
// +kubebuilder:printcolumn:name="Number",type=integer,JSONPath=`.status.number`,description="Number between clusters"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="Success, Warning or Failure"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec TenantNetworkSpec `json:"spec,omitempty"`
	// +optional
	Status TenantNetworkStatus `json:"status,omitempty"`
}

// TenantNetworkList is a list of TenantNetworks.
//
// +kubebuilder:object:root=true
type TenantNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantNetwork `json:"items"`
}

// NetworkConnectionSpec names TenantNetworks. Each of them is joined if its own spec.connections names the connection.
//
// +kubebuilder:validation:XValidation:rule="has(self.mesh) != has(self.hubs)",message="write mesh, or hubs and spokes"
// +kubebuilder:validation:XValidation:rule="has(self.hubs) == has(self.spokes)",message="write hubs and spokes"
type NetworkConnectionSpec struct {
	// Mesh are networks that are joined with each other.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Mesh []string `json:"mesh,omitempty"`
	// Hubs are networks that are each joined with all spokes, and not with other hubs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Hubs []string `json:"hubs,omitempty"`
	// Spokes are networks that are each joined with all hubs, and not with other spokes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Spokes []string `json:"spokes,omitempty"`
}

// NetworkConnectionStatus is the state of a NetworkConnection. The leader's controller writes it.
type NetworkConnectionStatus struct {
	// State is Success, or Warning if a network of the connection is not joined.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	State string `json:"state,omitempty"`
	// Observation names the networks that are not joined, and remedies.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Observation string `json:"observation,omitempty"`
}

// NetworkConnection joins TenantNetworks. It is an object of the leader's Common Area.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=nc
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="Success, or Warning"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkConnection struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkConnectionSpec `json:"spec"`
	// +optional
	Status NetworkConnectionStatus `json:"status,omitempty"`
}

// NetworkConnectionList is a list of NetworkConnections.
//
// +kubebuilder:object:root=true
type NetworkConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkConnection `json:"items"`
}

// TenantNetworkImportSpec is a TenantNetwork from the view of one of its member clusters.
type TenantNetworkImportSpec struct {
	// Number of the network between Nodes and clusters.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	Number int32 `json:"number"`
	// NamespaceSelectors select the Namespaces of this cluster that may join the network. One of them has to match.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	NamespaceSelectors []metav1.LabelSelector `json:"namespaceSelectors,omitempty"`
	// Namespace of this cluster is in the network without an annotation, as the network of its copy in the central
	// cluster.
	// +optional
	Namespace *NamespaceReference `json:"namespace,omitempty"`
	// VirtualNetwork is set with Namespace, if the network is this VirtualNetwork of the Namespace, and no Namespace is in
	// it.
	// +optional
	VirtualNetwork *VirtualNetworkReference `json:"virtualNetwork,omitempty"`
	// ClusterIDs are the other clusters that have members of the network, sorted.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=253
	ClusterIDs []string `json:"clusterIDs,omitempty"`
	// Joined are the networks that it is joined with, as in the status of the TenantNetwork.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	Joined []JoinedNetwork `json:"joined,omitempty"`
}

// TenantNetworkImport has the facts about a TenantNetwork that the agents of a member cluster need. It has the name of
// the TenantNetwork. The member's controller writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=tni
// +kubebuilder:printcolumn:name="Number",type=integer,JSONPath=`.spec.number`,description="Number between clusters"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantNetworkImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TenantNetworkImportSpec `json:"spec"`
}

// TenantNetworkImportList is a list of TenantNetworkImports.
//
// +kubebuilder:object:root=true
type TenantNetworkImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantNetworkImport `json:"items"`
}
