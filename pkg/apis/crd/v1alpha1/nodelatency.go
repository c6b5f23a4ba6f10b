package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeLatencyMonitorName is the name of the one NodeLatencyMonitor of a cluster.
const NodeLatencyMonitorName = "default"

// NodeLatencyMonitorSpec is how often Nodes probe each other.
type NodeLatencyMonitorSpec struct {
	// PingIntervalSeconds is the time between two probes of a Node. In large clusters agents take longer.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	PingIntervalSeconds int32 `json:"pingIntervalSeconds,omitempty"`
}

// NodeLatencyMonitor has the agents of all Nodes probe the other Nodes of the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodelatencymonitors,scope=Cluster,shortName=nlm,singular=nodelatencymonitor
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="a cluster has one NodeLatencyMonitor: name it default"
type NodeLatencyMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeLatencyMonitorSpec `json:"spec"`
}

// NodeLatencyMonitorList is a list of NodeLatencyMonitors.
//
// +kubebuilder:object:root=true
type NodeLatencyMonitorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeLatencyMonitor `json:"items"`
}
