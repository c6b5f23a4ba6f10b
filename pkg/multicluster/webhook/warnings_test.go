package webhook_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// warnings collects the warnings in the API server's answers.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// TestClusterSetWarnings writes ClusterSets with what has no effect, and with annotations that
// cannot be read.
func TestClusterSetWarnings(t *testing.T) {
	s := start(t)
	var received warnings
	config := rest.CopyConfig(s.config)
	config.WarningHandlerWithContext = &received
	c, err := client.New(config, client.Options{Scheme: s.admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.crd.antrea.io/v1alpha1", "kind": "ClusterSet",
		"metadata": map[string]any{"namespace": area, "name": "set"},
		"spec": map[string]any{
			"leaders": []any{map[string]any{"clusterID": "north"}},
			"members": []any{map[string]any{"clusterID": "east", "serviceAccount": "member-east"}},
		},
	}}
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	received.mu.Lock()
	texts := strings.Join(received.texts, "\n")
	received.mu.Unlock()
	if !strings.Contains(texts, "spec.members has no effect: members announce themselves") {
		t.Errorf("warnings %q, want one about spec.members", texts)
	}
	set.SetAnnotations(map[string]string{multicluster.AnnotationRangesPrefix + "east": "10.96.0.0/16, ten"})
	if err := c.Update(t.Context(), set); err == nil ||
		!strings.Contains(err.Error(),
			`metadata.annotations[ranges.multicluster.antrea.io/east]: "ten" is not a range or an address`) {
		t.Errorf("an annotation that cannot be read: error %v", err)
	}
}
