package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionGroupMembersComputed is true once the members of a group are known.
const ConditionGroupMembersComputed = "GroupMembersComputed"

// GroupSpec says what is in a group: Pods of labels, addresses, the Pods of a Service, or other groups. Only one of
// these.
type GroupSpec struct {
	// PodSelector selects Pods: with NamespaceSelector of those Namespaces, alone of all, in a Group of its own.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// NamespaceSelector selects Namespaces; alone all their Pods.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// IPBlocks are addresses.
	// +optional
	IPBlocks []IPBlock `json:"ipBlocks,omitempty"`
	// ServiceReference selects the Pods that a Service selects.
	// +optional
	ServiceReference *ObjectReference `json:"serviceReference,omitempty"`
	// ChildGroups are names of groups of the same kind, whose members are this group's.
	// +optional
	ChildGroups []string `json:"childGroups,omitempty"`
	// ExternalEntitySelector is refused: there are no ExternalEntities.
	// +optional
	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`
}

// GroupStatus says whether a group's members are known.
type GroupStatus struct {
	// Conditions say what is wrong with it.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterGroup is a group that ClusterNetworkPolicies can name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cg
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GroupSpec `json:"spec"`
	// +optional
	Status GroupStatus `json:"status,omitempty"`
}

// ClusterGroupList is a list of ClusterGroups.
//
// +kubebuilder:object:root=true
type ClusterGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterGroup `json:"items"`
}

// Group is a group that NetworkPolicies of its Namespace can name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=grp
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Group struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GroupSpec `json:"spec"`
	// +optional
	Status GroupStatus `json:"status,omitempty"`
}

// GroupList is a list of Groups.
//
// +kubebuilder:object:root=true
type GroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Group `json:"items"`
}
