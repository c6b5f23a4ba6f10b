package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Gateway is a Node that carries this cluster's traffic with other clusters. It has the Node's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Gateway IP",type=string,JSONPath=`.gatewayIP`,description="Address that other clusters send to"
// +kubebuilder:printcolumn:name="Internal IP",type=string,JSONPath=`.internalIP`,description="Address that Nodes of this cluster send to"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Gateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// GatewayIP is the address at which Gateways of other clusters reach it.
	// +optional
	GatewayIP string `json:"gatewayIP,omitempty"`
	// InternalIP is the address at which Nodes of this cluster reach it.
	// +optional
	InternalIP string `json:"internalIP,omitempty"`
	// ServiceCIDR is the range of this cluster's ClusterIPs.
	// +optional
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// WireGuard has the Gateway's keys. The agent of its Node sets it if traffic between clusters is encrypted.
	// +optional
	WireGuard *WireGuardInfo `json:"wireGuard,omitempty"`
	// Status has facts that the Node's agent reports. The member controller writes it. Antrea's Gateways have no status.
	// +optional
	Status GatewayStatus `json:"status,omitempty"`
}

// GatewayStatus has the Gateway's ways to other clusters.
type GatewayStatus struct {
	// Ways are the tunnels to gateways of other clusters that BFD watches.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +listMapKey=to
	Ways []WayStatus `json:"ways,omitempty"`
}

// WayState is whether a way to another cluster is up.
// +kubebuilder:validation:Enum=Up;Down;Unknown
type WayState string

// States of a way.
const (
	WayUp      WayState = "Up"
	WayDown    WayState = "Down"
	WayUnknown WayState = "Unknown" // the Gateway's Node is not Ready, so its agent's last report may be old
)

// WayStatus is one way.
type WayStatus struct {
	// ClusterID is the other cluster.
	ClusterID string `json:"clusterID"`
	// To is the address of the other cluster's gateway.
	To string `json:"to"`
	// State of the way. A way that was Down is Up again after ten seconds without a loss.
	State WayState `json:"state"`
}

// GatewayList is a list of Gateways.
//
// +kubebuilder:object:root=true
type GatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gateway `json:"items"`
}

// ClusterInfoImportConditionType is a type of condition of a ClusterInfoImport.
type ClusterInfoImportConditionType string

// ClusterInfoReady is the only condition of a ClusterInfoImport.
const ClusterInfoReady ClusterInfoImportConditionType = "Ready"

// ClusterInfoImportCondition is a condition of a ClusterInfoImport.
type ClusterInfoImportCondition struct {
	Type   ClusterInfoImportConditionType `json:"type,omitempty"`
	Status corev1.ConditionStatus         `json:"status,omitempty"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ClusterInfoImportStatus is the status of a ClusterInfoImport.
type ClusterInfoImportStatus struct {
	// Conditions of the import: Ready.
	Conditions []ClusterInfoImportCondition `json:"conditions,omitempty"`
}

// ClusterInfoImport describes the network of another cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`,description="ID of the other cluster"
// +kubebuilder:printcolumn:name="Service CIDR",type=string,JSONPath=`.spec.serviceCIDR`,description="Range of the ClusterIPs in that cluster"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterInfoImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterInfo             `json:"spec,omitempty"`
	Status ClusterInfoImportStatus `json:"status,omitempty"`
}

// ClusterInfoImportList is a list of ClusterInfoImports.
//
// +kubebuilder:object:root=true
type ClusterInfoImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterInfoImport `json:"items"`
}

// LabelIdentity is a set of labels and its number in the ClusterSet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Label",type=string,JSONPath=`.spec.label`,description="Normal form of Namespace and Pod labels"
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.spec.id`,description="Number that stands for the label in packets"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LabelIdentity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LabelIdentitySpec `json:"spec,omitempty"`
}

// LabelIdentityList is a list of LabelIdentities.
//
// +kubebuilder:object:root=true
type LabelIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LabelIdentity `json:"items"`
}

// PodAddresses are Pods with the same labels.
type PodAddresses struct {
	// LabelIdentity is the name of the LabelIdentity that stands for their labels.
	LabelIdentity string `json:"labelIdentity,omitempty"`
	// Addresses of these Pods.
	Addresses []string `json:"addresses,omitempty"`
}

// PodAddressImportSpec are the Pods of another cluster in one block of addresses.
type PodAddressImportSpec struct {
	// ClusterID of the Pods' cluster.
	ClusterID string `json:"clusterID,omitempty"`
	// Block of 256 addresses, such as 10.11.3.0/24.
	Block string `json:"block,omitempty"`
	// Pods in the block, by their labels.
	// +optional
	Pods []PodAddresses `json:"pods,omitempty"`
}

// PodAddressImport has addresses of another cluster's Pods with the labels of these Pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`,description="Cluster of the Pods"
// +kubebuilder:printcolumn:name="Block",type=string,JSONPath=`.spec.block`,description="Range of their addresses"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodAddressImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PodAddressImportSpec `json:"spec,omitempty"`
}

// PodAddressImportList is a list of PodAddressImports.
//
// +kubebuilder:object:root=true
type PodAddressImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodAddressImport `json:"items"`
}
