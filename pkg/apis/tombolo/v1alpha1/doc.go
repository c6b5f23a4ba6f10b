// Package v1alpha1 has the kinds of tombolo.io/v1alpha1: reports of Tombolo's components to each other for which no
// other API has a field, and networks of tenants that span clusters.
//
// +kubebuilder:object:generate=true
// +groupName=tombolo.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "tombolo.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodePolicyReport{}, &NodePolicyReportList{}, &TenantNetwork{}, &TenantNetworkList{},
		&NetworkConnection{}, &NetworkConnectionList{}, &TenantNetworkImport{}, &TenantNetworkImportList{},
		&NodeNetworkReport{}, &NodeNetworkReportList{}, &SubnetLease{}, &SubnetLeaseList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
