package policies

import (
	"encoding/json"
	"errors"
	"testing"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

// TestChangedField distinguishes fields that an API server adds to a policy from fields that it loses.
func TestChangedField(t *testing.T) {
	for _, row := range []struct{ name, sent, kept, want string }{
		{"the same", `{"priority":5,"ingress":[{"action":"Drop"}]}`, `{"priority":5,"ingress":[{"action":"Drop"}]}`, ""},
		// 0 is sent
		{"a field is added", `{"ingress":[{"action":"Drop"}]}`,
			`{"priority":1,"tier":"application","ingress":[{"action":"Drop","name":"x"}]}`, "spec.priority"},
		{"a default", `{"ingress":[{"action":"Drop"}]}`, `{"tier":"application","ingress":[{"action":"Drop","name":"x"}]}`,
			""},
		{"another value", `{"ingress":[{"action":"Drop"}]}`, `{"ingress":[{"action":"Allow"}]}`, "spec.ingress[0].action"},
		{"a field is lost", `{"ingress":[{"action":"Drop"},{"name":"x"}]}`, `{"ingress":[{"action":"Drop"},{}]}`,
			"spec.ingress[1].name"},
		{"an element is added", `{"ingress":[{"action":"Drop"}]}`, `{"ingress":[{"action":"Drop"},{"action":"Allow"}]}`,
			"spec.ingress"},
		{"a list is lost", `{"egress":[{}]}`, `{}`, "spec.egress"},
		{"a selector of all is lost", `{"appliedTo":[{"namespaceSelector":{}}]}`, `{"appliedTo":[{}]}`,
			"spec.appliedTo[0].namespaceSelector"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var sent, kept crdv1beta1.ClusterNetworkPolicy
			if err := errors.Join(json.Unmarshal([]byte(row.sent), &sent.Spec),
				json.Unmarshal([]byte(row.kept), &kept.Spec)); err != nil {
				t.Fatal(err)
			}
			if have := changedField(sent.Spec, kept.Spec); have != row.want {
				t.Errorf("have %q, want %q", have, row.want)
			}
		})
	}
}
