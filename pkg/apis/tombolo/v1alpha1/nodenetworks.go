package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodNetworkAddress is an address of a Pod in a VirtualNetwork.
type PodNetworkAddress struct {
	// Address of the Pod.
	Address string `json:"address"`
	// Pod is the name of the Pod, which is in the Namespace of the VirtualNetwork.
	Pod string `json:"pod"`
	// UID of the Pod, if the container runtime has it.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Own is true if the VirtualNetwork is the Pod's own network, and the Pod's first interface has addresses of the Node.
	// +optional
	Own bool `json:"own,omitempty"`
}

// NodeNetwork is a VirtualNetwork that Pods of a Node are in, or request.
type NodeNetwork struct {
	// Namespace of the VirtualNetwork.
	Namespace string `json:"namespace"`
	// Name of the VirtualNetwork.
	Name string `json:"name"`
	// Claim names the request. The Node gives its Pods addresses of blocks that answer it, and of no others. A Node that
	// has had no Pod in the network for some time has another claim afterwards.
	Claim string `json:"claim"`
	// Pods is how many Pods of the Node are in the network, or request it.
	Pods int32 `json:"pods"`
	// Requested are addresses that Pods of the Node request.
	// +optional
	Requested []string `json:"requested,omitempty"`
	// Addresses are these that Pods of the Node have.
	// +optional
	Addresses []PodNetworkAddress `json:"addresses,omitempty"`
}

// NodeNetworkReportSpec is the content of a NodeNetworkReport.
type NodeNetworkReportSpec struct {
	// Networks are VirtualNetworks, in the order of their names.
	// +optional
	Networks []NodeNetwork `json:"networks,omitempty"`
}

// NodeNetworkReport has the VirtualNetworks that the Pods of a Node are in. The agent of the Node writes it. It has the
// name of the Node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nnr
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeNetworkReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NodeNetworkReportSpec `json:"spec,omitempty"`
}

// NodeNetworkReportList is a list of NodeNetworkReports.
//
// +kubebuilder:object:root=true
type NodeNetworkReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeNetworkReport `json:"items"`
}

// NodeBlocks are the parts of a Subnet that a Node gives to its Pods.
type NodeBlocks struct {
	// Node is the name of the Node.
	Node string `json:"node"`
	// Claim is the claim in the Node's NodeNetworkReport that the blocks answer.
	Claim string `json:"claim"`
	// CIDRs are the blocks.
	CIDRs []string `json:"cidrs"`
}

// ObjectName names an object in a Namespace.
type ObjectName struct {
	// Namespace of the object.
	Namespace string `json:"namespace"`
	// Name of the object.
	Name string `json:"name"`
}

// SubnetLeaseSpec is the content of a SubnetLease.
type SubnetLeaseSpec struct {
	// Subnet is the Subnet whose UID is the name of the lease.
	Subnet ObjectName `json:"subnet"`
	// VirtualNetwork is the network of the Subnet.
	VirtualNetwork ObjectName `json:"virtualNetwork"`
	// CIDR is the range of the Subnet.
	CIDR string `json:"cidr"`
	// Gateway is the next hop of Pods.
	Gateway string `json:"gateway"`
	// Ending is set once the Subnet is deleted, or gives no addresses. Pods that have addresses keep them, and no other
	// Pod gets one.
	// +optional
	Ending bool `json:"ending,omitempty"`
	// Zone is the zone of connection tracking of the network, from 1 to 32000. Its addresses may also exist in networks of
	// other zones, so routers join only networks of one zone. With 0 the addresses are unique in the cluster.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32000
	Zone int32 `json:"zone,omitempty"`
	// Nodes have blocks of the Subnet, in the order of their names.
	// +optional
	Nodes []NodeBlocks `json:"nodes,omitempty"`
}

// SubnetLease has the blocks of a Subnet that Nodes have. tombolo-controller writes it. Its name is the UID of the
// Subnet. It outlives the Subnet while Pods have addresses.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=snl
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.subnet.namespace`,description="Of the Subnet"
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=`.spec.subnet.name`,description="Name of the Subnet"
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`,description="Range of the Subnet"
// +kubebuilder:printcolumn:name="Zone",type=integer,JSONPath=`.spec.zone`,description="Of a separate network"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SubnetLease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SubnetLeaseSpec `json:"spec"`
}

// SubnetLeaseList is a list of SubnetLeases.
//
// +kubebuilder:object:root=true
type SubnetLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SubnetLease `json:"items"`
}
