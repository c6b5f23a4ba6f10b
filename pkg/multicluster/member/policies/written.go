package policies

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

// SpecOf is the spec of a policy of any kind.
func SpecOf(o client.Object) any {
	switch o := o.(type) {
	case *crdv1beta1.ClusterNetworkPolicy:
		return o.Spec
	case *npv1alpha2.ClusterNetworkPolicy:
		return o.Spec
	case *networkingv1.NetworkPolicy:
		return o.Spec
	}
	return nil
}

// SamePolicy reports whether two policies of one kind have the same spec.
func SamePolicy(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(SpecOf(a), SpecOf(b))
}

// Written is the spec of a policy that the API server accepted, and the generation of the result. That generation has
// all changes of the spec by defaults and admission, and no change by another client.
type Written struct {
	Spec       any
	UID        types.UID
	Generation int64
}

// changedField returns the first field of a spec that another spec lacks, or has with another content; else "".
func changedField(sent, kept any) string {
	var trees [2]any
	for i, spec := range []any{sent, kept} {
		data, err := json.Marshal(spec)
		if err == nil {
			err = json.Unmarshal(data, &trees[i])
		}
		if err != nil {
			return "spec"
		}
	}
	return lost("spec", trees[0], trees[1])
}

// lost returns the path of the first field of a value that another value lacks, or has with another content. If there
// is no such field, it returns "". The values are results of encoding/json.
func lost(path string, sent, kept any) string {
	switch sent := sent.(type) {
	case map[string]any:
		fields, ok := kept.(map[string]any)
		if !ok {
			return path
		}
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			if p := lost(path+"."+name, sent[name], fields[name]); p != "" {
				return p
			}
		}
	case []any:
		list, ok := kept.([]any)
		if !ok || len(list) != len(sent) {
			return path
		}
		for i := range sent {
			if p := lost(fmt.Sprintf("%s[%d]", path, i), sent[i], list[i]); p != "" {
				return p
			}
		}
	default:
		if sent != kept {
			return path
		}
	}
	return ""
}
