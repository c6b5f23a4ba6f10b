package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionGroupMembersComputed is true once the members of a group are known.
const ConditionGroupMembersComputed = "GroupMembersComputed"

// GroupSpec selects the members of a group: Pods by labels, addresses, the Pods of a Service, or other groups. Only one
// of these may be set.
//
// +kubebuilder:validation:XValidation:rule="!has(self.externalEntitySelector)",fieldPath=".externalEntitySelector",message="there are no ExternalEntities to select: remove externalEntitySelector, or write their addresses as ipBlocks"
// +kubebuilder:validation:XValidation:rule="has(self.externalEntitySelector) || (has(self.podSelector) || has(self.namespaceSelector) ? 1 : 0) + (has(self.ipBlocks) ? 1 : 0) + (has(self.serviceReference) ? 1 : 0) + (has(self.childGroups) ? 1 : 0) == 1",message="write exactly one of: podSelector and namespaceSelector, alone or together; ipBlocks; serviceReference; childGroups. For more of them make groups of their own, and one with childGroups"
type GroupSpec struct {
	// PodSelector selects Pods. With NamespaceSelector these are Pods of the selected Namespaces, without it Pods of all
	// Namespaces. In a Group they are Pods of its own Namespace.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// NamespaceSelector selects Namespaces; alone all their Pods.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// IPBlocks are addresses.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	IPBlocks []IPBlock `json:"ipBlocks,omitempty"`
	// ServiceReference selects the Pods that a Service selects.
	// +optional
	ServiceReference *ObjectReference `json:"serviceReference,omitempty"`
	// ChildGroups are names of groups of the same kind, whose members are this group's.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ChildGroups []string `json:"childGroups,omitempty"`
	// ExternalEntitySelector is refused: there are no ExternalEntities.
	// +optional
	ExternalEntitySelector *Refused `json:"externalEntitySelector,omitempty"`
}

// GroupStatus reports whether a group's members are known.
type GroupStatus struct {
	// Conditions report problems of the group.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterGroup is a group that ClusterNetworkPolicies can name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cg
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.childGroups) || !(self.metadata.name in self.spec.childGroups)",fieldPath=".spec.childGroups",message="has the group itself: remove it"
type ClusterGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="!has(self.serviceReference) || has(self.serviceReference.namespace)",fieldPath=".serviceReference",message="has no Namespace: write the Service's namespace too"
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
// +kubebuilder:validation:XValidation:rule="!has(self.spec.childGroups) || !(self.metadata.name in self.spec.childGroups)",fieldPath=".spec.childGroups",message="has the group itself: remove it"
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
