package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of an agent's conditions, and of a controller's.
const (
	// AgentHealthy is True while the Node's network is ready.
	AgentHealthy = "AgentHealthy"
	// ControllerConnectionUp is True while the agent reads all kinds of objects from the API server.
	ControllerConnectionUp = "ControllerConnectionUp"
	// OVSDBConnectionUp is True while the agent is connected to the OVSDB.
	OVSDBConnectionUp = "OVSDBConnectionUp"
	// OpenflowConnectionUp is True while the agent has an OpenFlow connection to the switch.
	OpenflowConnectionUp = "OpenflowConnectionUp"
	// ControllerHealthy is True while the controller reads all kinds of objects that it needs.
	ControllerHealthy = "ControllerHealthy"
)

// InfoCondition is one condition of an agent or a controller.
type InfoCondition struct {
	// Type names the condition.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// LastHeartbeatTime is when the condition was written last.
	LastHeartbeatTime metav1.Time `json:"lastHeartbeatTime"`
	// Reason is why the status is not True, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is why the status is not True.
	// +optional
	Message string `json:"message,omitempty"`
}

// OVSInfo is the state of the Node's Open vSwitch.
type OVSInfo struct {
	// Version of Open vSwitch.
	// +optional
	Version string `json:"version,omitempty"`
	// BridgeName is the bridge of the Node's Pods.
	// +optional
	BridgeName string `json:"bridgeName,omitempty"`
	// FlowTable is the number of flows in each table.
	// +optional
	FlowTable map[string]int32 `json:"flowTable,omitempty"`
}

// PolicyCounts are numbers of policies and of the groups of Pods that they name. Every field of this type is atomic.
// Otherwise a server-side apply that removes the last field of a struct would leave null there, which the schema
// refuses.
type PolicyCounts struct {
	// NetworkPolicyNum is the number of policies: an agent counts the policies that apply to Pods of its Node.
	// +optional
	NetworkPolicyNum int32 `json:"networkPolicyNum,omitempty"`
	// AddressGroupNum is the number of identities that rules have as peers.
	// +optional
	AddressGroupNum int32 `json:"addressGroupNum,omitempty"`
	// AppliedToGroupNum is the number of identities that policies apply to.
	// +optional
	AppliedToGroupNum int32 `json:"appliedToGroupNum,omitempty"`
}

// AntreaAgentInfo is the state of one Node's agent. The agent writes it every minute. It has the Node's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=antreaagentinfos,scope=Cluster,shortName=aai,singular=antreaagentinfo
type AntreaAgentInfo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// PodRef is the agent's Pod.
	// +optional
	PodRef corev1.ObjectReference `json:"podRef,omitempty"`
	// NodeRef is the agent's Node.
	// +optional
	NodeRef corev1.ObjectReference `json:"nodeRef,omitempty"`
	// NodeSubnets are the ranges of the Node's Pods.
	// +optional
	NodeSubnets []string `json:"nodeSubnets,omitempty"`
	// OVSInfo is the state of the Node's Open vSwitch.
	// +optional
	// +structType=atomic
	OVSInfo OVSInfo `json:"ovsInfo,omitempty"`
	// NetworkPolicyControllerInfo counts the policies of the Node.
	// +optional
	// +structType=atomic
	NetworkPolicyControllerInfo PolicyCounts `json:"networkPolicyControllerInfo,omitempty"`
	// LocalPodNum is the number of Pods that the agent has attached.
	// +optional
	LocalPodNum int32 `json:"localPodNum,omitempty"`
	// AgentConditions are AgentHealthy, ControllerConnectionUp, OVSDBConnectionUp and OpenflowConnectionUp.
	// +optional
	AgentConditions []InfoCondition `json:"agentConditions,omitempty"`
}

// AntreaAgentInfoList is a list of AntreaAgentInfos.
//
// +kubebuilder:object:root=true
type AntreaAgentInfoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AntreaAgentInfo `json:"items"`
}

// AntreaControllerInfo is the state of the controller of policies. The controller writes it every minute. Its name is
// antrea-controller.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=antreacontrollerinfos,scope=Cluster,shortName=aci,singular=antreacontrollerinfo
type AntreaControllerInfo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Version of the controller.
	// +optional
	Version string `json:"version,omitempty"`
	// PodRef is the controller's Pod: of several replicas the working one.
	// +optional
	PodRef corev1.ObjectReference `json:"podRef,omitempty"`
	// NodeRef is the Node of that Pod.
	// +optional
	NodeRef corev1.ObjectReference `json:"nodeRef,omitempty"`
	// ServiceRef is the Service of the controller's webhooks.
	// +optional
	ServiceRef corev1.ObjectReference `json:"serviceRef,omitempty"`
	// NetworkPolicyControllerInfo counts the policies of the cluster.
	// +optional
	// +structType=atomic
	NetworkPolicyControllerInfo PolicyCounts `json:"networkPolicyControllerInfo,omitempty"`
	// ConnectedAgentNum is the number of agents that report to the API server.
	// +optional
	ConnectedAgentNum int32 `json:"connectedAgentNum,omitempty"`
	// ControllerConditions is ControllerHealthy.
	// +optional
	ControllerConditions []InfoCondition `json:"controllerConditions,omitempty"`
}

// AntreaControllerInfoList is a list of AntreaControllerInfos.
//
// +kubebuilder:object:root=true
type AntreaControllerInfoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AntreaControllerInfo `json:"items"`
}
