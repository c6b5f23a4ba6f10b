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
	// ServiceSpec of the exported Service. Only its ports are read.
	ServiceSpec corev1.ServiceSpec `json:"serviceSpec,omitempty"`
}

// EndpointsExport is the payload of a ResourceExport of kind Endpoints.
type EndpointsExport struct {
	// Subsets have the addresses at which other clusters reach the Service.
	Subsets []corev1.EndpointSubset `json:"subsets,omitempty"`
}

// GatewayInfo is one Gateway of a cluster.
type GatewayInfo struct {
	// GatewayIP is the address at which other clusters reach the Gateway.
	GatewayIP string `json:"gatewayIP,omitempty"`
	// WireGuard has the Gateway's own key and its address inside WireGuard. It is set if traffic between clusters is
	// encrypted and several Gateways carry it at the same time. Clusters that support one key use the ClusterInfo's key.
	// +optional
	WireGuard *WireGuardInfo `json:"wireGuard,omitempty"`
}

// WireGuardInfo has the facts with which other Gateways encrypt packets for a Gateway.
type WireGuardInfo struct {
	// PublicKey is the Gateway's public key in base64.
	PublicKey string `json:"publicKey,omitempty"`
	// NextPublicKey is the next public key in base64. It is set while the Gateway changes its key.
	// +optional
	NextPublicKey string `json:"nextPublicKey,omitempty"`
	// NextPort is the UDP port of sessions with the next key, while the Gateway or one of its peers changes its key.
	// Sessions with the old key go on, so no packet is lost. A peer without this port loses packets until it has received
	// the new key.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NextPort int32 `json:"nextPort,omitempty"`
	// InsideIP is the address inside WireGuard at which tunnels to the Gateway end. It is in 240.0.0.0/4. Without it,
	// tunnels lead to the oldest Gateway and end at the first address of the cluster's Service range.
	// +optional
	InsideIP string `json:"insideIP,omitempty"`
}

// ClusterInfo describes the network of a cluster.
type ClusterInfo struct {
	// ClusterID of the cluster.
	ClusterID string `json:"clusterID,omitempty"`
	// ServiceCIDR is the range of its ClusterIPs.
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// ServiceCIDRs are all ranges of its ClusterIPs, of both address families, if there are several. ServiceCIDR is one of
	// them. Clusters that do not support the field reach the Services of ServiceCIDR.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// PodCIDRs are the ranges of its Pods.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// GatewayInfos are its Gateways.
	GatewayInfos []GatewayInfo `json:"gatewayInfos,omitempty"`
	// LeavingGateways are Gateways that will stop carrying traffic within seconds. They carry their present connections
	// and no new ones.
	// +optional
	LeavingGateways []GatewayInfo `json:"leavingGateways,omitempty"`
	// WireGuard is set if traffic between clusters is encrypted.
	WireGuard *WireGuardInfo `json:"wireGuard,omitempty"`
	// Features name abilities of the cluster's gateways that Antrea's gateways do not have, such as ActiveGateways. A
	// leader passes on features that it does not know; members ignore them.
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

// Inside reports whether each Gateway of the cluster receives encrypted traffic at an address of its own.
func (c *ClusterInfo) Inside() bool {
	return len(c.GatewayInfos) > 0 && c.GatewayInfos[0].WireGuard != nil && c.GatewayInfos[0].WireGuard.InsideIP != ""
}

// Features of a ClusterInfo.
const (
	// FeatureActiveGateways: all gateways of the cluster carry traffic at the same time, and tunnels to each may run BFD.
	FeatureActiveGateways = "ActiveGateways"
	// FeaturePreserveClientIP: any gateway of the cluster takes untranslated packets from Pods of other clusters, if their
	// addresses are in the announced Pod ranges, and answers go back untranslated. It needs ActiveGateways and PodCIDRs.
	FeaturePreserveClientIP = "PreserveClientIP"
	// FeatureSingleWays: the cluster's gateways run BFD also if there is a single way. It needs ActiveGateways.
	FeatureSingleWays = "SingleWays"
	// FeatureWayEcho: the switches of the cluster's gateways return probes of a watched way to the sender. It needs
	// SingleWays.
	FeatureWayEcho = "WayEcho"
	// FeatureEncryptsPeers: the Node sends no packet to other clusters in plain text. Only agents report it, in the Node's
	// NodePolicyReport.
	FeatureEncryptsPeers = "EncryptsPeers"
	// FeatureIPv6 means that the Node serves IPv6 and routes it between clusters. Only agents report it, in the Node's
	// NodePolicyReport.
	FeatureIPv6 = "IPv6BetweenClusters"
	// FeatureTunnelPrefix begins the feature that names the tunnels of the cluster's gateways: "Tunnel-vxlan",
	// "Tunnel-gre", "Tunnel-vxlan-8472". Geneve on its own port has no feature. All clusters of a ClusterSet need the
	// same tunnels.
	FeatureTunnelPrefix = "Tunnel-"
)

// FeatureTunnel returns the feature for a type of tunnel and a UDP port. Port 0 is the type's own. The result is empty
// for Geneve on its own port.
func FeatureTunnel(kind string, port int) string {
	switch own := map[string]int{"geneve": 6081, "vxlan": 4789}[kind]; {
	case port > 0 && port != own:
		return FeatureTunnelPrefix + kind + "-" + strconv.Itoa(port)
	case kind == "geneve":
		return ""
	}
	return FeatureTunnelPrefix + kind
}

// TunnelOf returns the feature of a list that names the cluster's tunnels. The result is empty without such a feature.
func TunnelOf(features []string) string {
	for _, f := range features {
		if strings.HasPrefix(f, FeatureTunnelPrefix) {
			return f
		}
	}
	return ""
}

// TunnelName returns a text for a feature that names tunnels, such as "vxlan on port 8472".
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

// RawResource is the payload of kinds without a field of their own.
type RawResource struct {
	// Data is the payload in base64. Its form depends on the kind.
	Data []byte `json:"data,omitempty"`
}

// ResourceExportSpec is an object that a member exports.
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
	// (policy.networking.k8s.io/v1alpha2): it has the policy's spec as YAML or JSON. For kind PolicyReport it has the
	// status of the policies that a member imports. For kind PodAddresses it has addresses of Pods.
	// +optional
	Raw *RawResource `json:"raw,omitempty"`
}

// ResourceExportConditionType is a type of condition of a ResourceExport.
type ResourceExportConditionType string

// Conditions of a ResourceExport.
const (
	// ResourceExportSucceeded: the export is part of a ResourceImport. If there is nothing to report, exports of Services
	// and Endpoints by Tombolo's members have no condition.
	ResourceExportSucceeded ResourceExportConditionType = "Succeeded"
	// ResourceExportFailure: the export is not part of a ResourceImport. The message has the reason.
	ResourceExportFailure ResourceExportConditionType = "Failure"

	// ReasonEndpointsLeftOut of Succeeded: only some endpoints of the export are part of the ResourceImport. The message
	// has the fault of the others.
	ReasonEndpointsLeftOut = "EndpointsLeftOut"
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

// ResourceExportStatus has the leader's result for an export.
type ResourceExportStatus struct {
	// Conditions of the export: Succeeded and Failure. An export that is imported as a whole may have no condition.
	Conditions []ResourceExportCondition `json:"conditions,omitempty"`
}

// ResourceExport is an object that a member exports to the ClusterSet.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`,description="Cluster that exports"
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`,description="Kind of the exported object"
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of the exported object"
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.name`,description="Name of the exported object"
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

// ResourceImportSpec is an object for the members. The lower-case JSON names are Antrea's.
type ResourceImportSpec struct {
	// ClusterIDs of the members that import it. Empty means all members.
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
	// Raw is set for kinds NetworkPolicy and ClusterNetworkPolicy, with the policy's spec as JSON, and for kind
	// PodAddresses.
	// +optional
	Raw *RawResource `json:"raw,omitempty"`
}

// ResourceImportConditionType is a type of condition of a ResourceImport.
type ResourceImportConditionType string

// ResourceImportSucceeded is the only condition of a ResourceImport.
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

// ResourceImportClusterStatus is the status of an import in one cluster.
type ResourceImportClusterStatus struct {
	// ClusterID of the cluster.
	ClusterID string `json:"clusterID,omitempty"`
	// Conditions of the import in the cluster: Succeeded.
	Conditions []ResourceImportCondition `json:"conditions,omitempty"`
}

// ResourceImportStatus is the status of an import.
type ResourceImportStatus struct {
	ClusterStatuses []ResourceImportClusterStatus `json:"clusterStatuses,omitempty"`
}

// ResourceImport is an object of the Common Area that members import.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`,description="Kind of the imported object"
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of the imported object"
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.name`,description="Name of the imported object"
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
