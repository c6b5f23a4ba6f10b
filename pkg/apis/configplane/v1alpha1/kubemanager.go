package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// States of a Kubemanager.
const (
	// StateSuccess means that all of the object is acted on.
	StateSuccess = "Success"
	// StateWarning means that parts of it are not. The observation names them.
	StateWarning = "Warning"
	// StateFailure means that the cluster has no copies. The observation has the reason.
	StateFailure = "Failure"
)

// Container is a container of CN2's Pods. It has no effect.
type Container struct {
	// Name has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Image has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// Common has the fields of CN2's Pods. They have no effect.
type Common struct {
	// Containers have no effect.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	Containers []Container `json:"containers,omitempty"`
	// NodeSelector has no effect.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// NetworkSelector selects networks. It has no effect.
type NetworkSelector struct {
	// NetworkSelector has no effect.
	// +optional
	NetworkSelector *metav1.LabelSelector `json:"networkSelector,omitempty"`
	// NamespaceSelector has no effect.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// KubemanagerSpec names a cluster.
type KubemanagerSpec struct {
	// ClusterName is the cluster ID of a member of the ClusterSet.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="it stays: create another Kubemanager"
	ClusterName string `json:"clusterName"`
	// Common has no effect.
	// +optional
	Common *Common `json:"common,omitempty"`
	// PodV4Subnet is a range of the cluster's Pods. It is compared with the ranges that the cluster announces.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PodV4Subnet string `json:"podV4Subnet,omitempty"`
	// ServiceV4Subnet is a range of the cluster's Services. It is compared with the ranges that the cluster announces.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ServiceV4Subnet string `json:"serviceV4Subnet,omitempty"`
	// PodV6Subnet is like podV4Subnet.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PodV6Subnet string `json:"podV6Subnet,omitempty"`
	// ServiceV6Subnet is like serviceV4Subnet.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ServiceV6Subnet string `json:"serviceV6Subnet,omitempty"`
	// KubeconfigSecretName has no effect: the cluster joins the ClusterSet as a member.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	KubeconfigSecretName string `json:"kubeconfigSecretName,omitempty"`
	// EnableNad has no effect.
	// +optional
	EnableNad bool `json:"enableNad,omitempty"`
	// ListenerPort has no effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	ListenerPort int32 `json:"listenerPort,omitempty"`
	// ConstantRouteTargetNumber has no effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConstantRouteTargetNumber int64 `json:"constantRouteTargetNumber,omitempty"`
	// ExternalNetworkSelectors have no effect.
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	ExternalNetworkSelectors map[string]NetworkSelector `json:"externalNetworkSelectors,omitempty"`
}

// KubemanagerStatus is the state of a Kubemanager. The leader's controller writes it.
type KubemanagerStatus struct {
	// State is Success, Warning if parts of the object are not acted on, or Failure if the cluster has no copies.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	State string `json:"state,omitempty"`
	// Observation names the parts of the object that are not acted on, and remedies.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Observation string `json:"observation,omitempty"`
}

// Kubemanager gives the isolated Namespaces of a member cluster copies in the central cluster, which is the leader.
// VirtualNetworkRouters in the copies join their networks.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="ID of the member"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="Success, Warning or Failure"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Kubemanager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KubemanagerSpec `json:"spec"`
	// +optional
	Status KubemanagerStatus `json:"status,omitempty"`
}

// KubemanagerList is a list of Kubemanagers.
//
// +kubebuilder:object:root=true
type KubemanagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Kubemanager `json:"items"`
}
