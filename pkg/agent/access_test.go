package agent

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// TestAccess holds the ClusterRole of deploy/agent to what the agent watches: no less, no more,
// and nothing that writes.
func TestAccess(t *testing.T) {
	text, err := os.ReadFile("../../deploy/agent/tombolo.yml")
	if err != nil {
		t.Fatal(err)
	}
	type resource struct{ group, name string }
	var granted []resource
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var role rbacv1.ClusterRole
		if err := documents.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" && role.Kind != "Role" || role.Name != "antrea-agent" {
			continue
		}
		for _, rule := range role.Rules {
			if len(rule.NonResourceURLs) > 0 {
				if !slices.Equal(rule.NonResourceURLs, []string{"/readyz"}) || !slices.Equal(rule.Verbs, []string{"get"}) {
					t.Errorf("the agent may %v %v", rule.Verbs, rule.NonResourceURLs)
				}
				continue
			}
			if want := []string{"get", "list", "watch"}; !slices.Equal(rule.Verbs, want) {
				t.Errorf("the agent may %v %v, want %v", rule.Verbs, rule.Resources, want)
			}
			for _, group := range rule.APIGroups {
				for _, name := range rule.Resources {
					granted = append(granted, resource{group, name})
				}
			}
		}
	}
	_, sources, err := newCluster(&rest.Config{Host: "https://192.0.2.1"}, "kube-system", true, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	var watched []resource
	for _, s := range sources {
		gvk, err := apiutil.GVKForObject(s.object, scheme)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Fatal(err)
		}
		watched = append(watched, resource{m.Resource.Group, m.Resource.Resource})
	}
	for _, r := range watched {
		if !slices.Contains(granted, r) {
			t.Errorf("the agent watches %v and may not", r)
		}
	}
	for _, r := range granted {
		if !slices.Contains(watched, r) {
			t.Errorf("the agent may read %v and does not", r)
		}
	}
}
