// Package v1alpha1 has the kind of stats.antrea.io/v1alpha1 that agents write: the results of probes of Nodes. Field
// names and meanings are as in Antrea.
//
// +kubebuilder:object:generate=true
// +groupName=stats.antrea.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kind in this package.
var GroupVersion = schema.GroupVersion{Group: "stats.antrea.io", Version: "v1alpha1"}

// AddToScheme registers the kind of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeLatencyStats{}, &NodeLatencyStatsList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// TargetIPLatencyStats are the results of the probes of one address.
type TargetIPLatencyStats struct {
	// TargetIP is the address of the Node's gateway port.
	// +optional
	TargetIP string `json:"targetIP,omitempty"`
	// LastSendTime is when the newest probe was sent.
	// +optional
	LastSendTime *metav1.Time `json:"lastSendTime,omitempty"`
	// LastRecvTime is when the newest reply came. An old time shows a Node that does not reply.
	// +optional
	LastRecvTime *metav1.Time `json:"lastRecvTime,omitempty"`
	// LastMeasuredRTTNanoseconds is the newest round-trip time.
	// +optional
	LastMeasuredRTTNanoseconds int64 `json:"lastMeasuredRTTNanoseconds,omitempty"`
}

// PeerNodeLatencyStats are the results of the probes of one Node.
type PeerNodeLatencyStats struct {
	// NodeName is the Node that was probed.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// TargetIPLatencyStats has an entry for each of its addresses.
	// +optional
	// +listType=atomic
	TargetIPLatencyStats []TargetIPLatencyStats `json:"targetIPLatencyStats,omitempty"`
}

// NodeLatencyStats are the results of one Node's probes of the other Nodes. Its agent writes it while a
// NodeLatencyMonitor asks for probes. It has the Node's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodelatencystats,scope=Cluster,singular=nodelatencystats
type NodeLatencyStats struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// PeerNodeLatencyStats has an entry for each Node that is probed.
	// +optional
	// +listType=atomic
	PeerNodeLatencyStats []PeerNodeLatencyStats `json:"peerNodeLatencyStats,omitempty"`
}

// NodeLatencyStatsList is a list of NodeLatencyStats.
//
// +kubebuilder:object:root=true
type NodeLatencyStatsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeLatencyStats `json:"items"`
}
