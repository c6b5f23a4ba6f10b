// Package v1beta1 has the kinds of crd.antrea.io/v1beta1: policies, their Tiers, groups that they name,
// pools of addresses, the state of agents and controllers, and packets that are followed. Field names and meanings are
// as in Antrea.
//
// The definitions refuse most objects that are wrong. Programs that read an object check it again: the object may be
// older than its definition, and a replicated policy was checked by the definition of another cluster.
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
		&AntreaAgentInfo{}, &AntreaAgentInfoList{},
		&AntreaControllerInfo{}, &AntreaControllerInfoList{},
		&Traceflow{}, &TraceflowList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
