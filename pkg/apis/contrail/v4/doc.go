// Package v4 has the kinds of core.contrail.juniper.net (Contrail CN2's API of virtual networks) that Tombolo serves.
// The versions v1alpha1, v3 and v4 have the same schema. The definition stores v4.
//
// +kubebuilder:object:generate=true
// +groupName=core.contrail.juniper.net
package v4

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "core.contrail.juniper.net", Version: "v4"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VirtualNetwork{}, &VirtualNetworkList{},
		&VirtualNetworkRouter{}, &VirtualNetworkRouterList{},
		&Subnet{}, &SubnetList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
