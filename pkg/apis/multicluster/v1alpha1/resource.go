package v1alpha1

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// ServiceExport is the payload of a ResourceExport of kind Service.
type ServiceExport struct {
	// ServiceSpec of the exported Service; only its ports count.
	ServiceSpec corev1.ServiceSpec `json:"serviceSpec,omitempty"`
}

// EndpointsExport is the payload of a ResourceExport of kind Endpoints.
type EndpointsExport struct {
	// Subsets are the addresses that other clusters reach the Service by.
	Subsets []corev1.EndpointSubset `json:"subsets,omitempty"`
}

// GatewayInfo is one Gateway of a cluster.
type GatewayInfo struct {
	// GatewayIP is the address that other clusters reach the Gateway by.
	GatewayIP string `json:"gatewayIP,omitempty"`
	// WireGuard is set where cross-cluster traffic is encrypted and the Gateway takes it beside others: its own key and address
	// inside. Clusters that know one key a cluster take the ClusterInfo's.
	// +optional
	WireGuard *WireGuardInfo `json:"wireGuard,omitempty"`
}

// WireGuardInfo is what a Gateway's peers need to know for WireGuard.
type WireGuardInfo struct {
	// PublicKey in base64.
	PublicKey string `json:"publicKey,omitempty"`
	// NextPublicKey is the key that the Gateway changes to, in base64, while it does.
	// +optional
	NextPublicKey string `json:"nextPublicKey,omitempty"`
	// NextPort is the UDP port at which the Gateway takes sessions while it, or a peer, changes its key: beside those with
	// the old key, so that nothing is lost. Peers without one lose what is sent until they know the new key.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NextPort int32 `json:"nextPort,omitempty"`
	// InsideIP is where tunnels to the Gateway end inside WireGuard, an address of 240.0.0.0/4. Without one they end at the first
	// address of the cluster's Service range, at its oldest Gateway.
	// +optional
	InsideIP string `json:"insideIP,omitempty"`
}

// ClusterInfo describes the network of a cluster.
type ClusterInfo struct {
	// ClusterID of the cluster.
	ClusterID string `json:"clusterID,omitempty"`
	// ServiceCIDR is the range of its ClusterIPs.
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// ServiceCIDRs are all ranges of its ClusterIPs, of both address families. ServiceCIDR is one of them. A cluster that
	// does not know the field reaches the Services of ServiceCIDR.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// PodCIDRs are the ranges of its Pods.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// GatewayInfos are its Gateways.
	GatewayInfos []GatewayInfo `json:"gatewayInfos,omitempty"`
	// LeavingGateways are about to go: they carry the connections that they have, for some seconds, and no new ones.
	// +optional
	LeavingGateways []GatewayInfo `json:"leavingGateways,omitempty"`
	// WireGuard is set where cross-cluster traffic is encrypted.
	WireGuard *WireGuardInfo `json:"wireGuard,omitempty"`
	// Features are what the cluster's gateways can do beyond what Antrea's can, such as ActiveGateways. Those that a
	// cluster does not know it hands on and ignores.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Features []string `json:"features,omitempty"`
}

// Services returns the texts of all ranges of ClusterIPs, each once, ServiceCIDR first.
func (c *ClusterInfo) Services() []string {
	others := slices.DeleteFunc(slices.Clone(c.ServiceCIDRs), func(s string) bool { return s == c.ServiceCIDR })
	return append([]string{c.ServiceCIDR}, others...)
}

// Ranges returns the texts of all ranges of ClusterIPs and of Pods.
func (c *ClusterInfo) Ranges() []string { return append(c.Services(), c.PodCIDRs...) }

// Inside says whether the cluster's Gateways take encrypted traffic each at an address of its own: those that say which.
func (c *ClusterInfo) Inside() bool {
	return len(c.GatewayInfos) > 0 && c.GatewayInfos[0].WireGuard != nil && c.GatewayInfos[0].WireGuard.InsideIP != ""
}

// Features of a ClusterInfo.
const (
	// FeatureActiveGateways: all of the cluster's gateways take and send traffic at the same time, and tunnels to each of
	// them may run BFD.
	FeatureActiveGateways = "ActiveGateways"
	// FeaturePreserveClientIP: the cluster takes packets between its Pods and those of other clusters untranslated, by any of
	// its gateways, from the Pod ranges that these announce, and answers them so. It goes with ActiveGateways and PodCIDRs.
	FeaturePreserveClientIP = "PreserveClientIP"
	// FeatureSingleWays: the cluster's gateways run BFD on a single way, too. It goes with ActiveGateways.
	FeatureSingleWays = "SingleWays"
	// FeatureEncryptsPeers is of agents alone (NodePolicyReport): what is for other clusters is encrypted, or not sent.
	FeatureEncryptsPeers = "EncryptsPeers"
	// FeatureTunnelPrefix begins the feature that says what tunnels the cluster's gateways take where that is not Geneve on its
	// own port: "Tunnel-vxlan", "Tunnel-gre", "Tunnel-vxlan-8472". Clusters reach each other by one kind of tunnel.
	FeatureTunnelPrefix = "Tunnel-"
)

// FeatureTunnel is the feature for a type of tunnel and a port, zero for the type's own; empty for Geneve on its own port.
func FeatureTunnel(kind string, port int) string {
	switch own := map[string]int{"geneve": 6081, "vxlan": 4789}[kind]; {
	case port > 0 && port != own:
		return FeatureTunnelPrefix + kind + "-" + strconv.Itoa(port)
	case kind == "geneve":
		return ""
	}
	return FeatureTunnelPrefix + kind
}

// TunnelOf is the feature of a list that says what tunnels a cluster takes; empty where none does.
func TunnelOf(features []string) string {
	for _, f := range features {
		if strings.HasPrefix(f, FeatureTunnelPrefix) {
			return f
		}
	}
	return ""
}

// TunnelName is what a feature says, for people.
func TunnelName(feature string) string {
	if feature == "" {
		return "geneve"
	}
	kind, port, found := strings.Cut(strings.TrimPrefix(feature, FeatureTunnelPrefix), "-")
	if found {
		return kind + " on port " + port
	}
	return kind
}

// Limits of the features of a ClusterInfo, as in the CRDs.
const (
	MaxFeatures      = 32
	MaxFeatureLength = 63
)

// LabelIdentityExport is the payload of a ResourceExport of kind LabelIdentity.
type LabelIdentityExport struct {
	// NormalizedLabel is "ns:<k=v,...>&pod:<k=v,...>".
	NormalizedLabel string `json:"normalizedLabel,omitempty"`
}

// RawResource carries anything else.
type RawResource struct {
	Data []byte `json:"data,omitempty"`
}

// ResourceExportSpec says what a member exports.
type ResourceExportSpec struct {
	// ClusterID of the exporting member.
	ClusterID string `json:"clusterID,omitempty"`
	// Name of the exported object.
	Name string `json:"name,omitempty"`
	// Namespace of the exported object.
	Namespace string `json:"namespace,omitempty"`
	// Kind of the exported object.
	Kind string `json:"kind,omitempty"`

	// Service is set for kind Service.
	// +optional
	Service *ServiceExport `json:"service,omitempty"`
	// Endpoints is set for kind Endpoints.
	// +optional
	Endpoints *EndpointsExport `json:"endpoints,omitempty"`
	// ClusterInfo is set for kind ClusterInfo.
	// +optional
	ClusterInfo *ClusterInfo `json:"clusterInfo,omitempty"`
	// ExternalEntity is not used.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	ExternalEntity *runtime.RawExtension `json:"externalEntity,omitempty"`
	// ClusterNetworkPolicy is set for kind AntreaClusterNetworkPolicy: a crd.antrea.io/v1beta1
	// ClusterNetworkPolicySpec.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	ClusterNetworkPolicy *runtime.RawExtension `json:"clusterNetworkPolicy,omitempty"`
	// LabelIdentity is set for kind LabelIdentity.
	// +optional
	LabelIdentity *LabelIdentityExport `json:"labelIdentity,omitempty"`
	// Raw is set for kinds NetworkPolicy (networking.k8s.io/v1) and ClusterNetworkPolicy
	// (policy.networking.k8s.io/v1alpha2): the policy's spec as YAML or JSON. Members report in it, with kind
	// PolicyReport, how the policies fare that they import, and publish, with kind PodAddresses, addresses of Pods.
	// +optional
	Raw *RawResource `json:"raw,omitempty"`
}

// ResourceExportConditionType is a type of condition of a ResourceExport.
type ResourceExportConditionType string

// Conditions of a ResourceExport.
const (
	// ResourceExportSucceeded: the export is part of a ResourceImport.
	ResourceExportSucceeded ResourceExportConditionType = "Succeeded"
	// ResourceExportFailure: it is not; the message says why.
	ResourceExportFailure ResourceExportConditionType = "Failure"
)

// ResourceExportCondition is a condition of a ResourceExport.
type ResourceExportCondition struct {
	Type   ResourceExportConditionType `json:"type,omitempty"`
	Status corev1.ConditionStatus      `json:"status,omitempty"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ResourceExportStatus says what became of an export.
type ResourceExportStatus struct {
	Conditions []ResourceExportCondition `json:"conditions,omitempty"`
}

// ResourceExport is something that a member offers to the ClusterSet.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`,description="Cluster that exports"
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`,description="Kind of what is exported"
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of what is exported"
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.name`,description="Name of what is exported"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceExportSpec   `json:"spec,omitempty"`
	Status ResourceExportStatus `json:"status,omitempty"`
}

// ResourceExportList is a list of ResourceExports.
//
// +kubebuilder:object:root=true
type ResourceExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceExport `json:"items"`
}

// EndpointsImport is the payload of a ResourceImport of kind Endpoints.
type EndpointsImport struct {
	// Subsets of all exporting clusters.
	Subsets []corev1.EndpointSubset `json:"subsets,omitempty"`
}

// LabelIdentitySpec is a normalized label and its number in the ClusterSet.
type LabelIdentitySpec struct {
	// Label is "ns:<k=v,...>&pod:<k=v,...>".
	Label string `json:"label,omitempty"`
	// ID is between 1 and 16777214.
	ID uint32 `json:"id,omitempty"`
}

// ResourceImportSpec says what a member should have. The lower-case JSON names are the API's.
type ResourceImportSpec struct {
	// ClusterIDs of the members that should have it; empty means all.
	// +optional
	ClusterIDs []string `json:"clusterID,omitempty"`
	// Name of the object.
	Name string `json:"name,omitempty"`
	// Namespace of the object.
	Namespace string `json:"namespace,omitempty"`
	// Kind of the object.
	Kind string `json:"kind,omitempty"`

	// ServiceImport is set for kind ServiceImport.
	// +optional
	ServiceImport *mcsv1alpha1.ServiceImport `json:"serviceImport,omitempty"`
	// Endpoints is set for kind Endpoints.
	// +optional
	Endpoints *EndpointsImport `json:"endpoints,omitempty"`
	// ClusterInfo is set for kind ClusterInfo.
	// +optional
	ClusterInfo *ClusterInfo `json:"clusterinfo,omitempty"`
	// ExternalEntity is not used.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	ExternalEntity *runtime.RawExtension `json:"externalentity,omitempty"`
	// ClusterNetworkPolicy is set for kind AntreaClusterNetworkPolicy.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	ClusterNetworkPolicy *runtime.RawExtension `json:"clusternetworkpolicy,omitempty"`
	// LabelIdentity is set for kind LabelIdentity.
	// +optional
	LabelIdentity *LabelIdentitySpec `json:"labelIdentity,omitempty"`
	// Raw is set for kinds NetworkPolicy and ClusterNetworkPolicy, the policy's spec as JSON, and for kind
	// PodAddresses.
	// +optional
	Raw *RawResource `json:"raw,omitempty"`
}

// ResourceImportConditionType is a type of condition of a ResourceImport.
type ResourceImportConditionType string

// ResourceImportSucceeded is the one condition of a ResourceImport.
const ResourceImportSucceeded ResourceImportConditionType = "Succeeded"

// ResourceImportCondition is a condition of a ResourceImport.
type ResourceImportCondition struct {
	Type   ResourceImportConditionType `json:"type,omitempty"`
	Status corev1.ConditionStatus      `json:"status,omitempty"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ResourceImportClusterStatus says how an import fares in one cluster.
type ResourceImportClusterStatus struct {
	ClusterID  string                    `json:"clusterID,omitempty"`
	Conditions []ResourceImportCondition `json:"conditions,omitempty"`
}

// ResourceImportStatus says how an import fares.
type ResourceImportStatus struct {
	ClusterStatuses []ResourceImportClusterStatus `json:"clusterStatuses,omitempty"`
}

// ResourceImport is something that every member should have.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`,description="Kind of what is imported"
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of what is imported"
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.name`,description="Name of what is imported"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceImportSpec   `json:"spec,omitempty"`
	Status ResourceImportStatus `json:"status,omitempty"`
}

// ResourceImportList is a list of ResourceImports.
//
// +kubebuilder:object:root=true
type ResourceImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceImport `json:"items"`
}
