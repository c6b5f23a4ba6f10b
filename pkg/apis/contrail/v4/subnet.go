package v4

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPRange is a range of addresses, with its ends.
type IPRange struct {
	// From is the first address.
	// +kubebuilder:validation:MaxLength=45
	From string `json:"from"`
	// To is the last address.
	// +kubebuilder:validation:MaxLength=45
	To string `json:"to"`
}

// SubnetRange is a group of ranges.
type SubnetRange struct {
	// Key names the group. It has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
	// IPRanges are the ranges of the group.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	IPRanges []IPRange `json:"ipRanges,omitempty"`
}

// SubnetSpec is the request of a Subnet.
type SubnetSpec struct {
	// CIDR is the range of addresses. It stays the same.
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it stays the same: create another Subnet"
	CIDR string `json:"cidr"`
	// DefaultGateway is the next hop of Pods. Without one it is the first address of the range.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it stays the same: create another Subnet"
	DefaultGateway string `json:"defaultGateway,omitempty"`
	// DNSNameservers have no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=253
	DNSNameservers []string `json:"dnsNameservers,omitempty"`
	// Ranges are the addresses that Pods get, unless a Pod requests one. Without ranges Pods get addresses of the whole
	// range of the Subnet.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	Ranges []SubnetRange `json:"ranges,omitempty"`
	// BGPaaSPrimaryIP has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	BGPaaSPrimaryIP string `json:"bgpaasPrimaryIP,omitempty"`
	// BGPaaSSecondaryIP has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	BGPaaSSecondaryIP string `json:"bgpaasSecondaryIP,omitempty"`
	// DisableBGPaaSIPAutoAllocation has no effect.
	// +optional
	DisableBGPaaSIPAutoAllocation bool `json:"disableBGPaaSIPAutoAllocation,omitempty"`
	// EnableDHCP has no effect.
	// +optional
	EnableDHCP bool `json:"enableDHCP,omitempty"`
	// FQName is the full name of the object in CN2. It has no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=253
	FQName []string `json:"fqName,omitempty"`
}

// SubnetStatus is the state of a Subnet.
type SubnetStatus struct {
	Status `json:",inline"`
	// IPCount is how many addresses Pods have.
	// +optional
	IPCount int64 `json:"ipCount,omitempty"`
	// AllocationUsage is the used part of the range, as in 1.17%.
	// +optional
	AllocationUsage string `json:"allocationUsage,omitempty"`
}

// Subnet is a range of addresses for the Pods of a VirtualNetwork of its Namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sn
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`,description="Range of addresses"
// +kubebuilder:printcolumn:name="Usage",type=string,JSONPath=`.status.allocationUsage`,description="Used part"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="Success, Warning or Failure"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Subnet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SubnetSpec `json:"spec"`
	// +optional
	Status SubnetStatus `json:"status,omitempty"`
}

// SubnetList is a list of Subnets.
//
// +kubebuilder:object:root=true
type SubnetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Subnet `json:"items"`
}
