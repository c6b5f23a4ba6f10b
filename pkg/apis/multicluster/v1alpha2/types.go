// Package v1alpha2 has the kinds of multicluster.crd.antrea.io/v1alpha2, the version that the API server stores.
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

// ClusterClaim is one fact about its cluster. The name of the object names the fact: "id.k8s.io" or
// "clusterset.k8s.io". An object that was written as v1alpha1 has the name of the fact in ClaimName.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.value`,description="Value, such as a cluster ID"
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

// LeaderClusterInfo has the API server of the leader and the credentials for it.
type LeaderClusterInfo struct {
	// ClusterID of the leader.
	ClusterID string `json:"clusterID"`
	// Server is the URL of the leader's API server. It is empty in the leader's own ClusterSet.
	// +optional
	Server string `json:"server,omitempty"`
	// Secret is the name of a Secret in the ClusterSet's Namespace. Its keys token and ca.crt are read.
	// +optional
	Secret string `json:"secret,omitempty"`
}

// ClusterSetSpec names this cluster and the leader.
type ClusterSetSpec struct {
	// ClusterID is this cluster's ID. In an object that was written as v1alpha1 it is empty, and a ClusterClaim has the
	// ID.
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

// ClusterSetReady is the only condition of a ClusterSet.
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
	// ClusterReady: in the leader, the member's announcement is recent; in a member, the leader answers.
	ClusterReady ClusterConditionType = "Ready"
	// ClusterIsLeader: the cluster is the leader. Only members have this condition.
	ClusterIsLeader ClusterConditionType = "IsLeader"
	// ClusterReachable: at least one way from this member's Gateways to Gateways of the other member is up, of the ways
	// that BFD watches. Only members have this condition; Antrea's members do not have it.
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
	// ClusterID of the cluster.
	ClusterID string `json:"clusterID,omitempty"`
	// Conditions of the cluster: Ready, IsLeader and Reachable.
	Conditions []ClusterCondition `json:"conditions,omitempty"`
}

// ClusterSetStatus is the status of a ClusterSet.
type ClusterSetStatus struct {
	// TotalClusters is the number of members in the leader, and 1 in a member.
	TotalClusters int32 `json:"totalClusters,omitempty"`
	// ReadyClusters is the number of ready clusters among them.
	ReadyClusters int32 `json:"readyClusters,omitempty"`
	// Conditions of the ClusterSet.
	Conditions []ClusterSetCondition `json:"conditions,omitempty"`
	// ClusterStatuses are the statuses of its clusters.
	ClusterStatuses []ClusterStatus `json:"clusterStatuses,omitempty"`
	// ObservedGeneration is the generation of the object for which the status was written.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ClusterSet makes this cluster a part of the ClusterSet with the object's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Leader Cluster Namespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of the Common Area in the leader cluster"
// +kubebuilder:printcolumn:name="Total Clusters",type=string,JSONPath=`.status.totalClusters`,description="Members that have announced themselves"
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
