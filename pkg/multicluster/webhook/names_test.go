package webhook_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
)

// TestCertificateNames compares the names with the manifests.
func TestCertificateNames(t *testing.T) {
	for role, manifest := range map[webhook.Role]string{
		webhook.Leader: deploy.Leader("area"), webhook.Member: deploy.Member("area"),
	} {
		names := webhook.CertificateNames(role, "area")
		have := map[string]int{}
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			have[o.GetKind()+" "+o.GetName()]++
			hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
			if err != nil || !labels.SelectorFromSet(names.Configurations).Matches(labels.Set(o.GetLabels())) {
				continue
			}
			for _, hook := range hooks {
				service, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "service", "name")
				have[o.GetKind()+" of "+service]++
			}
		}
		for _, want := range []string{
			"Service " + names.Service, "Secret " + names.Secret,
			"ValidatingWebhookConfiguration of " + names.Service, "MutatingWebhookConfiguration of " + names.Service,
		} {
			if have[want] == 0 && (role == webhook.Leader || !strings.HasPrefix(want, "Mutating")) {
				t.Errorf("the manifest of the %s has no %s", role, want)
			}
		}
	}
}
