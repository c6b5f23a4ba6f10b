// Package v1alpha1 has the kinds of crd.antrea.io/v1alpha1: captures of packets, and probes of Nodes. Field names and
// meanings are as in Antrea.
//
// The definitions refuse most objects that are wrong. Programs that read an object check it again: the object may be
// older than its definition.
//
// +kubebuilder:object:generate=true
// +groupName=crd.antrea.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "crd.antrea.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PacketCapture{}, &PacketCaptureList{}, &NodeLatencyMonitor{}, &NodeLatencyMonitorList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
