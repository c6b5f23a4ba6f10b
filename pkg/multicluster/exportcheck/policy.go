package exportcheck

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Policy is a policy that is replicated to all members, as exports and imports carry it.
type Policy struct {
	Object client.Object // with the name of the copies, and a spec
	Spec   string        // as JSON, always the same for the same spec
}

// ExportedPolicy reads the policy in an export. missing is set if there is no policy in it.
func ExportedPolicy(s mcv1alpha1.ResourceExportSpec) (p Policy, missing bool, err error) {
	return readPolicy(s.Kind, s.Namespace, s.Name, s.ClusterNetworkPolicy, s.Raw)
}

// ImportedPolicy reads the policy in an import.
func ImportedPolicy(s mcv1alpha1.ResourceImportSpec) (p Policy, missing bool, err error) {
	return readPolicy(s.Kind, s.Namespace, s.Name, s.ClusterNetworkPolicy, s.Raw)
}

// PolicyImport is the spec of the import of a policy.
func PolicyImport(kind, namespace, name, spec string) mcv1alpha1.ResourceImportSpec {
	s := mcv1alpha1.ResourceImportSpec{Kind: kind, Namespace: namespace, Name: name}
	if kind == multicluster.AntreaClusterNetworkPolicyKind {
		s.ClusterNetworkPolicy = &runtime.RawExtension{Raw: []byte(spec)}
	} else {
		s.Raw = &mcv1alpha1.RawResource{Data: []byte(spec)}
	}
	return s
}

// PolicyField is where an export of a kind has its policy.
func PolicyField(kind string) string {
	if kind == multicluster.AntreaClusterNetworkPolicyKind {
		return "spec.clusterNetworkPolicy"
	}
	return "spec.raw.data"
}

// readPolicy refuses unknown fields: without them a policy could allow more than its author intended.
func readPolicy(kind, namespace, name string, acnp *runtime.RawExtension, raw *mcv1alpha1.RawResource) (p Policy,
	missing bool, err error) {
	var text []byte
	switch {
	case kind == multicluster.AntreaClusterNetworkPolicyKind && acnp != nil:
		text = acnp.Raw
	case kind != multicluster.AntreaClusterNetworkPolicyKind && raw != nil:
		text = raw.Data
	}
	if len(text) == 0 {
		return p, true, nil
	}
	copied := multicluster.ImportedPrefix + name
	if wrong := validation.IsDNS1123Subdomain(copied); name == "" || len(wrong) > 0 {
		return p, false,
			Problem{"spec.name", fmt.Sprintf("%s is not a policy's name: %s", problem.Quoted(name), strings.Join(wrong, ", "))}
	}
	namespaced := kind == multicluster.NetworkPolicyKind
	if wrong := validation.IsDNS1123Label(namespace); namespaced && len(wrong) > 0 {
		return p, false,
			Problem{"spec.namespace", fmt.Sprintf("%s is not a Namespace's name: %s", problem.Quoted(namespace), wrong[0])}
	}
	var spec any
	switch kind {
	case multicluster.AntreaClusterNetworkPolicyKind:
		o := &crdv1beta1.ClusterNetworkPolicy{}
		p.Object, spec = o, &o.Spec
	case multicluster.ClusterNetworkPolicyKind:
		o := &npv1alpha2.ClusterNetworkPolicy{}
		p.Object, spec = o, &o.Spec
	case multicluster.NetworkPolicyKind:
		o := &networkingv1.NetworkPolicy{}
		p.Object, spec = o, &o.Spec
	default:
		return p, false, Problem{"spec.kind", fmt.Sprintf("%s is not a kind of policy", problem.Quoted(kind))}
	}
	if err := unmarshal(text, spec); err != nil {
		why := err.Error()
		if len(why) > 256 {
			why = why[:256] + "..."
		}
		return Policy{}, false, Problem{PolicyField(kind), "is not the spec of the policy: " + strings.ToValidUTF8(why, "")}
	}
	p.Object.SetName(copied)
	switch o := p.Object.(type) {
	case *networkingv1.NetworkPolicy:
		o.Namespace = namespace
		setDefaults(&o.Spec)
	case *crdv1beta1.ClusterNetworkPolicy:
		o.Spec.Tier = cmp.Or(o.Spec.Tier, crdv1beta1.TierApplication)
	}
	canonical, err := json.Marshal(spec)
	if err != nil {
		return Policy{}, false, Problem{PolicyField(kind), err.Error()}
	}
	p.Spec = string(canonical)
	return p, false, nil
}

// unmarshal reads YAML or JSON as an API server does: the case of fields counts.
func unmarshal(text []byte, into any) error {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append(strict, err)...)
}

// setDefaults fills in the defaults of API servers, so that a policy with a default equals a policy without the field.
func setDefaults(s *networkingv1.NetworkPolicySpec) {
	if len(s.PolicyTypes) == 0 {
		s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(s.Egress) > 0 {
			s.PolicyTypes = append(s.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	protocols := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = ptr.To(corev1.ProtocolTCP)
			}
		}
	}
	for i := range s.Ingress {
		protocols(s.Ingress[i].Ports)
	}
	for i := range s.Egress {
		protocols(s.Egress[i].Ports)
	}
}

// PolicyState is what a member reports of one policy that it imports.
type PolicyState struct {
	// Hash of the spec that the report is about.
	Hash string `json:"hash"`
	// Problem is why the policy is not in place; empty where it is.
	Problem string `json:"problem,omitempty"`
}

// MaxReportBytes is how long a member's report may be.
const MaxReportBytes = 256 << 10

// maxProblem is how long the problem with one policy may be.
const maxProblem = 512

// PolicyReport reads a member's report: states by the name of the ResourceImport.
func PolicyReport(data []byte) (map[string]PolicyState, error) {
	if len(data) > MaxReportBytes {
		return nil, Problem{"spec.raw.data", fmt.Sprintf("has %d bytes: expected at most %d", len(data), MaxReportBytes)}
	}
	var states map[string]PolicyState
	if err := json.Unmarshal(data, &states); err != nil {
		return nil, Problem{"spec.raw.data", "is not a report of policies: " + err.Error()}
	}
	for name, s := range states {
		if len(s.Problem) > maxProblem {
			s.Problem = strings.ToValidUTF8(s.Problem[:maxProblem-3], "") + "..."
			states[name] = s
		}
	}
	return states, nil
}
