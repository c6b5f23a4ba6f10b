package setup

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// fieldManager owns what Deploy writes.
const fieldManager = "tombolo-mc"

// servedLimit is how long an API server may take to serve a kind whose definition came just before.
const servedLimit = 30 * time.Second

// Deploy applies a manifest to a cluster and says of each object whether it was created, configured or unchanged. All
// objects that are in a Namespace have to be in this one: a manifest for another would be half installed there.
func (c Cluster) Deploy(ctx context.Context, objects dynamic.Interface, manifest, namespace string) error {
	var all []*unstructured.Unstructured
	err := documents(strings.NewReader(manifest), func(text []byte) error {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return err
		}
		if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			return fmt.Errorf("object %d has no apiVersion, kind or metadata.name", len(all)+1)
		}
		if in := o.GetNamespace(); in != "" && in != namespace {
			return fmt.Errorf("%s %s is for Namespace %s, not for %s; give that Namespace, or change the manifest", o.GetKind(), o.GetName(), in, namespace)
		}
		all = append(all, o)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	for _, o := range all {
		done, err := c.apply(ctx, objects, o)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w%s", o.GetKind(), o.GetName(), err, remedy(err))
		}
		c.say("%s/%s %s", o.GetKind(), o.GetName(), done)
	}
	c.say("Antrea Multi-cluster successfully deployed")
	return nil
}

func (c Cluster) apply(ctx context.Context, objects dynamic.Interface, o *unstructured.Unstructured) (done string, _ error) {
	gvk := o.GroupVersionKind()
	var mapping *meta.RESTMapping
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, servedLimit, true, func(context.Context) (bool, error) {
		var err error
		mapping, err = c.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return "", fmt.Errorf("this cluster does not serve %s: %w", gvk, err)
	}
	var to dynamic.ResourceInterface = objects.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		to = objects.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	before, err := to.Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	created := err != nil
	after, err := to.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%w; create the Namespace first: kubectl create namespace %s", err, o.GetNamespace())
	case err != nil:
		return "", err
	case created:
		return "created", nil
	case before.GetResourceVersion() == after.GetResourceVersion():
		return "unchanged", nil
	}
	return "configured", nil
}
