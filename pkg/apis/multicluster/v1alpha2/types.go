// Package v1alpha2 has the kinds of multicluster.crd.antrea.io/v1alpha2, the version that
// the API server stores.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.crd.antrea.io
package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "multicluster.crd.antrea.io", Version: "v1alpha2"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterClaim{}, &ClusterClaimList{}, &ClusterSet{}, &ClusterSetList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ClusterClaim says one fact about its cluster. Its own name says which: "id.k8s.io" or
// "clusterset.k8s.io". An object written as v1alpha1 keeps its top-level name in ClaimName,
// which then says it.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.value`,description="What the claim says, such as a cluster ID"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// ClaimName is the name of a claim that was written as v1alpha1.
	// +optional
	ClaimName string `json:"name,omitempty"`
	// Value of the claim.
	Value string `json:"value"`
}

// ClusterClaimList is a list of ClusterClaims.
//
// +kubebuilder:object:root=true
type ClusterClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterClaim `json:"items"`
}

// LeaderClusterInfo is how to reach the leader.
type LeaderClusterInfo struct {
	// ClusterID of the leader.
	ClusterID string `json:"clusterID"`
	// Server is the URL of the leader's API server. The leader's own ClusterSet has none.
	// +optional
	Server string `json:"server,omitempty"`
	// Secret with the token (keys token and ca.crt), in the ClusterSet's Namespace.
	// +optional
	Secret string `json:"secret,omitempty"`
}

// ClusterSetSpec names this cluster and the leader.
type ClusterSetSpec struct {
	// ClusterID is this cluster's ID. Objects that were written as v1alpha1 have none; a
	// ClusterClaim then says it.
	// +optional
	ClusterID string `json:"clusterID"`
	// Leaders of the ClusterSet: exactly one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	Leaders []LeaderClusterInfo `json:"leaders"`
	// Namespace of the Common Area in the leader cluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ClusterSetConditionType is a type of condition of a ClusterSet.
type ClusterSetConditionType string

// ClusterSetReady is the one condition of a ClusterSet.
const ClusterSetReady ClusterSetConditionType = "Ready"

// ClusterSetCondition is a condition of a ClusterSet.
type ClusterSetCondition struct {
	Type ClusterSetConditionType `json:"type,omitempty"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status,omitempty"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ClusterConditionType is a type of condition of one cluster of a ClusterSet.
type ClusterConditionType string

// Conditions of one cluster of a ClusterSet.
const (
	// ClusterReady: the member has given a sign of life, or the leader answers.
	ClusterReady ClusterConditionType = "Ready"
	// ClusterIsLeader: this is the leader for the local cluster (in a member).
	ClusterIsLeader ClusterConditionType = "IsLeader"
	// ClusterReachable: of the ways from this member's Gateways to another member's, as far as BFD watches them, at least one
	// is up (in a member; Antrea's have no such condition).
	ClusterReachable ClusterConditionType = "Reachable"
)

// ClusterCondition is a condition of one cluster of a ClusterSet.
type ClusterCondition struct {
	Type ClusterConditionType `json:"type,omitempty"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status,omitempty"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ClusterStatus is the status of one cluster of a ClusterSet.
type ClusterStatus struct {
	ClusterID  string             `json:"clusterID,omitempty"`
	Conditions []ClusterCondition `json:"conditions,omitempty"`
}

// ClusterSetStatus is the status of a ClusterSet.
type ClusterSetStatus struct {
	// TotalClusters is the number of members, seen from the leader, or 1, seen from a member.
	TotalClusters int32 `json:"totalClusters,omitempty"`
	// ReadyClusters is how many of them are ready.
	ReadyClusters int32 `json:"readyClusters,omitempty"`
	// Conditions of the whole.
	Conditions []ClusterSetCondition `json:"conditions,omitempty"`
	// ClusterStatuses of its parts.
	ClusterStatuses []ClusterStatus `json:"clusterStatuses,omitempty"`
	// ObservedGeneration is the generation that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ClusterSet makes this cluster a part of the ClusterSet of its name.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Leader Cluster Namespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of the Common Area in the leader cluster"
// +kubebuilder:printcolumn:name="Total Clusters",type=string,JSONPath=`.status.totalClusters`,description="Members that are known, ready or not"
// +kubebuilder:printcolumn:name="Ready Clusters",type=string,JSONPath=`.status.readyClusters`,description="Members whose announcement is recent"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSetSpec   `json:"spec,omitempty"`
	Status ClusterSetStatus `json:"status,omitempty"`
}

// ClusterSetList is a list of ClusterSets.
//
// +kubebuilder:object:root=true
type ClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSet `json:"items"`
}
