// Package v1beta1 has the kinds of crd.antrea.io/v1beta1: policies, their Tiers, and groups that they name. Field names
// and meanings are those of Antrea-native policies.
//
// Most of what can be wrong with an object is refused by its definition. Whoever reads one decides all the same:
// objects may be older than their definition, and a replicated policy has passed another cluster's.
//
// +kubebuilder:object:generate=true
// +groupName=crd.antrea.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "crd.antrea.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ClusterNetworkPolicy{}, &ClusterNetworkPolicyList{},
		&NetworkPolicy{}, &NetworkPolicyList{},
		&Tier{}, &TierList{},
		&ClusterGroup{}, &ClusterGroupList{},
		&Group{}, &GroupList{},
		&ExternalIPPool{}, &ExternalIPPoolList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
