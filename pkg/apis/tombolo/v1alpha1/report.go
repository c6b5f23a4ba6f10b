package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodePolicyReport says which policies the switch of the Node with its name enforces. The Node's agent writes it, the
// policy controller reads it and writes the status of policies.
//
// Keys are "acnp/NAME" and "annp/NAMESPACE/NAME" for the ClusterNetworkPolicies and NetworkPolicies of crd.antrea.io,
// and "cnp/NAME" for ClusterNetworkPolicies of policy.networking.k8s.io. Maps are patched key by key, so that a change
// costs what it changes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=npr
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodePolicyReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Policies are those that apply to Pods of the Node and whose flows its switch has confirmed: the generation, and the
	// beginning of the UID, as in "3/1f2e3d4c".
	// +optional
	// +kubebuilder:validation:MaxProperties=20000
	Policies map[string]string `json:"policies,omitempty"`
	// Failures are those whose flows the switch has refused: which, as in policies, and after a blank why.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Failures map[string]string `json:"failures,omitempty"`
	// Problems are what this Node's agent leaves out of policies and the policy alone does not show.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Problems map[string]string `json:"problems,omitempty"`
	// Features are what the Node's agent can do and not every agent does, such as PreserveClientIP: the cluster announces
	// that one to others once all Nodes have it. The values say nothing.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Features map[string]string `json:"features,omitempty"`
	// Ways are those of a Gateway to gateways of other clusters that BFD watches, as CLUSTER/ADDRESS: up, down, or lost,
	// which is down for a while after it was up. The member controller writes the status of Gateways and of the ClusterSet from
	// them, and takes requests from clusters to which all are lost.
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
