package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultTiers are the Tiers that always exist, with their priorities. They cannot be changed or deleted.
var DefaultTiers = map[string]int32{
	"emergency":     50,
	"securityops":   100,
	"networkops":    150,
	"platform":      200,
	TierApplication: 250,
	TierBaseline:    253,
}

// Default Tiers with a meaning of their own.
const (
	// TierApplication is the Tier of policies that name none.
	TierApplication = "application"
	// TierBaseline is decided after NetworkPolicies of Kubernetes.
	TierBaseline = "baseline"
)

// MaxTiers is how many Tiers there may be, the default ones included.
const MaxTiers = 20

// TierSpec is what a Tier asks for.
type TierSpec struct {
	// Priority of the Tier: smaller ones decide first. 251, 252, 254 and 255 are reserved.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	// +kubebuilder:validation:XValidation:rule="!(self in [251, 252, 254, 255])",message="is reserved: use another one from 0 to 249"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another Tier, and move the policies to it"
	Priority int32 `json:"priority"`
	// Description is the purpose of the Tier.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// Tier is a stage of evaluation that policies are put in.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=tr
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,description="Smaller priorities decide first"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name in ['emergency', 'securityops', 'networkops', 'platform', 'application', 'baseline'] ? self.spec.priority == {'emergency': 50, 'securityops': 100, 'networkops': 150, 'platform': 200, 'application': 250, 'baseline': 253}[self.metadata.name] : !(self.spec.priority in [50, 100, 150, 200, 250, 253])",fieldPath=".spec.priority",message="is that of a default Tier, or not its own: the default Tiers are emergency 50, securityops 100, networkops 150, platform 200, application 250 and baseline 253; use another priority"
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['emergency', 'securityops', 'networkops', 'platform', 'application', 'baseline']) || self.spec == oldSelf.spec",fieldPath=".spec",message="a default Tier cannot be changed: create another one"
type Tier struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TierSpec `json:"spec"`
}

// TierList is a list of Tiers.
//
// +kubebuilder:object:root=true
type TierList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tier `json:"items"`
}
