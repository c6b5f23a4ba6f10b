// Package v1 has the kind of k8s.cni.cncf.io, the Network Plumbing Working Group's API of further interfaces of Pods.
// Multus has the same kind, so a definition of either program serves both.
//
// +kubebuilder:object:generate=true
// +groupName=k8s.cni.cncf.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kind in this package.
var GroupVersion = schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}

// AddToScheme registers the kind of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NetworkAttachmentDefinition{}, &NetworkAttachmentDefinitionList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// NetworkAttachmentDefinitionSpec is the configuration of a plugin.
type NetworkAttachmentDefinitionSpec struct {
	// Config is a configuration of the Container Network Interface in JSON. Tombolo makes the interfaces if the type is
	// contrail-k8s-cni, or if Config is empty. Interfaces of other types are made by Multus, if the cluster has it.
	// +optional
	Config string `json:"config,omitempty"`
}

// NetworkAttachmentDefinition is a network that Pods name in the annotation k8s.v1.cni.cncf.io/networks. It stands for
// the VirtualNetwork with the same name. With Subnets in the annotation juniper.net/networks tombolo-controller creates
// that VirtualNetwork.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=network-attachment-definitions,shortName=net-attach-def
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkAttachmentDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the configuration.
	// +optional
	Spec NetworkAttachmentDefinitionSpec `json:"spec,omitempty"`
}

// NetworkAttachmentDefinitionList is a list of NetworkAttachmentDefinitions.
//
// +kubebuilder:object:root=true
type NetworkAttachmentDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkAttachmentDefinition `json:"items"`
}
