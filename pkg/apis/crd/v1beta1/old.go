package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AntreaNetworkPolicy is the name of NetworkPolicy in old documents. Its definition refuses every object, and the
// refusal names the present kind.
//
// +kubebuilder:object:generate=false
// +kubebuilder:resource:scope=Namespaced,path=antreanetworkpolicies
// +kubebuilder:validation:XValidation:rule="false",fieldPath=".kind",message="AntreaNetworkPolicy is an old name: write kind: NetworkPolicy, with the same apiVersion and spec"
// +kubebuilder:pruning:PreserveUnknownFields
type AntreaNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}
