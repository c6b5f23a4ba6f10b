// Package v1alpha1 has the kinds of multicluster.crd.antrea.io/v1alpha1. Field names and meanings are as in the Antrea
// Multi-cluster API, even where their capital letters differ from Kubernetes' convention.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.crd.antrea.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "multicluster.crd.antrea.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ClusterClaim{}, &ClusterClaimList{},
		&ClusterSet{}, &ClusterSetList{},
		&MemberClusterAnnounce{}, &MemberClusterAnnounceList{},
		&ResourceExport{}, &ResourceExportList{},
		&ResourceImport{}, &ResourceImportList{},
		&Gateway{}, &GatewayList{},
		&ClusterInfoImport{}, &ClusterInfoImportList{},
		&LabelIdentity{}, &LabelIdentityList{},
		&PodAddressImport{}, &PodAddressImportList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
