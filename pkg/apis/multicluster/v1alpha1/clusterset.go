package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// ClusterClaim is one fact about its cluster: the cluster's ID, or the ID of its ClusterSet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
type ClusterClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Name of the claim: "id.k8s.io" or "clusterSet.k8s.io". The name of the object itself has no meaning.
	// +optional
	Name string `json:"name,omitempty"`
	// Value of the claim.
	// +optional
	Value string `json:"value,omitempty"`
}

// ClusterClaimList is a list of ClusterClaims.
//
// +kubebuilder:object:root=true
type ClusterClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterClaim `json:"items"`
}

// MemberCluster is a cluster as a ClusterSet names it.
type MemberCluster struct {
	// ClusterID of the cluster.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// Server is the URL of its API server.
	// +optional
	Server string `json:"server,omitempty"`
	// Secret is the name of a Secret in the ClusterSet's Namespace with the token for the API server.
	// +optional
	Secret string `json:"secret,omitempty"`
	// ServiceAccount that the member has in the leader.
	// +optional
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// ClusterSetSpec names the leader and, in old manifests, the members.
type ClusterSetSpec struct {
	// Members of the ClusterSet. They are not read.
	// +optional
	Members []MemberCluster `json:"members,omitempty"`
	// Leaders of the ClusterSet: exactly one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	Leaders []MemberCluster `json:"leaders"`
	// Namespace of the Common Area in the leader cluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ClusterSet makes this cluster a part of the ClusterSet with the object's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Leader Cluster Namespace",type=string,JSONPath=`.spec.namespace`,description="Namespace of the Common Area in the leader cluster"
// +kubebuilder:printcolumn:name="Total Clusters",type=string,JSONPath=`.status.totalClusters`,description="Members that have announced themselves"
// +kubebuilder:printcolumn:name="Ready Clusters",type=string,JSONPath=`.status.readyClusters`,description="Members whose announcement is recent"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSetSpec            `json:"spec,omitempty"`
	Status v1alpha2.ClusterSetStatus `json:"status,omitempty"`
}

// ClusterSetList is a list of ClusterSets.
//
// +kubebuilder:object:root=true
type ClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSet `json:"items"`
}

// MemberClusterAnnounce is the announcement of a member in the Common Area. The member repeats it as its heartbeat.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.clusterID`,description="Member that announces itself"
// +kubebuilder:printcolumn:name="ClusterSet ID",type=string,JSONPath=`.clusterSetID`,description="ClusterSet that the member belongs to"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MemberClusterAnnounce struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// ClusterID of the member.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// ClusterSetID is the ClusterSet's name.
	// +optional
	ClusterSetID string `json:"clusterSetID,omitempty"`
	// LeaderClusterID is the cluster ID of the leader.
	// +optional
	LeaderClusterID string `json:"leaderClusterID,omitempty"`
}

// MemberClusterAnnounceList is a list of MemberClusterAnnounces.
//
// +kubebuilder:object:root=true
type MemberClusterAnnounceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MemberClusterAnnounce `json:"items"`
}
