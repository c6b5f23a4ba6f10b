// Package v1alpha1 has the one kind of configplane.juniper.net (the API by which Contrail CN2 manages its own parts)
// that Tombolo serves.
//
// +kubebuilder:object:generate=true
// +groupName=configplane.juniper.net
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "configplane.juniper.net", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Kubemanager{}, &KubemanagerList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
