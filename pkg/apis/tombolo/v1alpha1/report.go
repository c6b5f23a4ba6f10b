package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodePolicyReport lists the policies that the switch of a Node enforces. It has the Node's name. The Node's agent
// writes it. The policy controller writes the status of policies from it.
//
// Keys are "acnp/NAME" and "annp/NAMESPACE/NAME" for the ClusterNetworkPolicies and NetworkPolicies of crd.antrea.io,
// and "cnp/NAME" for ClusterNetworkPolicies of policy.networking.k8s.io. Agents patch single keys of the maps, so the
// cost of a write does not depend on the size of the report.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=npr
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodePolicyReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Policies apply to Pods of the Node, and the switch has confirmed their flows. A value has the policy's generation
	// and the first characters of its UID, as in "3/1f2e3d4c".
	// +optional
	// +kubebuilder:validation:MaxProperties=20000
	Policies map[string]string `json:"policies,omitempty"`
	// Failures are policies whose flows the switch has refused. A value is as in policies, followed by a blank and the
	// reason.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Failures map[string]string `json:"failures,omitempty"`
	// Problems are parts of policies that this Node's agent leaves out. Their reasons depend on the Node, so the policy
	// alone does not show them.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Problems map[string]string `json:"problems,omitempty"`
	// Features name abilities of the Node's agent that some agents do not have, such as PreserveClientIP. The cluster
	// announces a feature to other clusters once all Nodes have it. The values have no meaning.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Features map[string]string `json:"features,omitempty"`
	// Ways are a Gateway's tunnels to gateways of other clusters that BFD watches. A key is CLUSTER/ADDRESS. A value is
	// up, down, or lost: down for some time after it was up. The member controller writes the status of Gateways and of
	// the ClusterSet from them. It sends no requests to a cluster to which all ways are lost.
	// +optional
	// +kubebuilder:validation:MaxProperties=1000
	Ways map[string]string `json:"ways,omitempty"`
}

// NodePolicyReportList is a list of NodePolicyReports.
//
// +kubebuilder:object:root=true
type NodePolicyReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePolicyReport `json:"items"`
}
