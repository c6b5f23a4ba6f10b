package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Annotations of a Service of type LoadBalancer.
const (
	// AnnotationExternalIPPool is the name of the ExternalIPPool that the Service gets its address from.
	AnnotationExternalIPPool = "service.antrea.io/external-ip-pool"
	// AnnotationSharedIP allows several Services to have the same requested address, if all of them have this annotation.
	AnnotationSharedIP = "service.antrea.io/allow-shared-load-balancer-ip"
)

// IPRange is a range of addresses: CIDR, or Start and End.
//
// +kubebuilder:validation:XValidation:rule="has(self.cidr) != has(self.start)",message="write cidr, or start and end"
// +kubebuilder:validation:XValidation:rule="has(self.start) == has(self.end)",message="write start and end"
type IPRange struct {
	// CIDR of the addresses. The first one is not used, and the last one of IPv4.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr,omitempty"`
	// Start is the first address.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	Start string `json:"start,omitempty"`
	// End is the last address.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	End string `json:"end,omitempty"`
}

// SubnetInfo is the network of a pool's addresses.
type SubnetInfo struct {
	// Gateway of the network, which no Service gets.
	// +kubebuilder:validation:MaxLength=39
	Gateway string `json:"gateway"`
	// PrefixLength of the network. It has no effect on addresses of Services.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=127
	PrefixLength int32 `json:"prefixLength"`
	// VLAN of the network. It has no effect on addresses of Services.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`
}

// ExternalIPPoolSpec is what an ExternalIPPool asks for.
type ExternalIPPoolSpec struct {
	// IPRanges are the addresses of the pool.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	IPRanges []IPRange `json:"ipRanges"`
	// SubnetInfo is the network that the addresses are in.
	// +optional
	SubnetInfo *SubnetInfo `json:"subnetInfo,omitempty"`
	// NodeSelector selects the Nodes that may hold the addresses.
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
}

// IPPoolUsage counts the addresses of a pool.
type IPPoolUsage struct {
	// Total is the number of addresses.
	Total int32 `json:"total"`
	// Used is the number of addresses that Services have.
	Used int32 `json:"used"`
}

// ExternalIPPoolStatus is the usage of a pool.
type ExternalIPPoolStatus struct {
	// +optional
	Usage IPPoolUsage `json:"usage"`
	// Conditions are the faults of the pool.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ExternalIPPool has addresses for Services of type LoadBalancer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=eip
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.usage.total`,description="Addresses of the pool"
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.usage.used`,description="Addresses in use"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExternalIPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExternalIPPoolSpec `json:"spec"`
	// +optional
	Status ExternalIPPoolStatus `json:"status,omitempty"`
}

// ExternalIPPoolList is a list of ExternalIPPools.
//
// +kubebuilder:object:root=true
type ExternalIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalIPPool `json:"items"`
}
