package setup

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// fieldManager is the owner of the fields that Deploy writes.
const fieldManager = "tombolo-mc"

// servedLimit is how long an API server may take to serve a kind whose definition was just created.
const servedLimit = 30 * time.Second

// Deploy applies a manifest to a cluster. For each object it prints whether it was created, configured or unchanged.
// All objects of the manifest that have a Namespace have to be in the given one. Otherwise Deploy refuses it, so that a
// manifest for another Namespace is not installed in part.
func (c Cluster) Deploy(ctx context.Context, objects dynamic.Interface, manifest, namespace string) error {
	all, err := Objects(manifest)
	if err != nil {
		return err
	}
	for _, o := range all {
		if in := o.GetNamespace(); in != "" && in != namespace {
			return fmt.Errorf("read the manifest: %s %s is for Namespace %s, not for %s; give that Namespace, or change the "+
				"manifest", o.GetKind(), o.GetName(), in, namespace)
		}
	}
	for _, o := range all {
		done, err := c.Apply(ctx, objects, o)
		if err != nil {
			return err
		}
		c.report("%s/%s %s", o.GetKind(), o.GetName(), done)
	}
	c.report("Antrea Multi-cluster successfully deployed")
	return nil
}

// Objects returns the objects of a manifest, in its order.
func Objects(manifest string) (all []*unstructured.Unstructured, _ error) {
	err := documents(strings.NewReader(manifest), func(text []byte) error {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return err
		}
		if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			return fmt.Errorf("object %d has no apiVersion, kind or metadata.name", len(all)+1)
		}
		all = append(all, o)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return all, nil
}

// Foreign returns an error if this program's manifest would replace another project's objects. It does so if the
// Namespace has Antrea's multi-cluster controller. For a member, it also does so if the cluster's Pods are Antrea's.
func (c Cluster) Foreign(ctx context.Context, objects dynamic.Interface, namespace string, member bool) error {
	const remedy = "remove it first (docs/install.md#another-cni-plugin), or give --with-other-cni to deploy all " +
		"the same"
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	if member {
		const agents, in = "antrea-agent", metav1.NamespaceSystem
		switch _, err := objects.Resource(apps.WithResource("daemonsets")).Namespace(in).Get(ctx, agents,
			metav1.GetOptions{}); {
		case err == nil:
			return fmt.Errorf("this cluster runs Antrea, DaemonSet %s/%s: %s", in, agents, remedy)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("look for DaemonSet %s/%s: %w", in, agents, err)
		}
	}
	const controller = "antrea-mc-controller"
	o, err := objects.Resource(apps.WithResource("deployments")).Namespace(namespace).Get(ctx, controller,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for Deployment %s/%s: %w", namespace, controller, err)
	}
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
		return fmt.Errorf("read Deployment %s/%s: %w", namespace, controller, err)
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == controller && !strings.Contains(path.Base(container.Image), "tombolo") {
			return fmt.Errorf("Deployment %s/%s is another project's, of image %s: %s", //nolint:staticcheck // a kind's name
				namespace, controller, container.Image, remedy)
		}
	}
	return nil
}

// The results of Apply.
const (
	Created    = "created"
	Configured = "configured"
	Unchanged  = "unchanged"
)

// Apply applies one object, and returns whether it was Created, Configured or Unchanged. It waits for a while until the
// API server serves the object's kind. If a request fails and the object did not exist before, it returns Created
// together with the error.
func (c Cluster) Apply(ctx context.Context, objects dynamic.Interface, o *unstructured.Unstructured) (done string,
	_ error) {
	done, err := c.apply(ctx, objects, o)
	if err != nil {
		err = fmt.Errorf("apply %s %s: %w%s", o.GetKind(), o.GetName(), err, remedy(err))
	}
	return done, err
}

func (c Cluster) apply(ctx context.Context, objects dynamic.Interface, o *unstructured.Unstructured) (done string,
	_ error) {
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
	if done = Configured; err != nil {
		done = Created
	}
	var after *unstructured.Unstructured
	err = Write(ctx, func(ctx context.Context) (err error) {
		after, err = to.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%w; create the Namespace first: kubectl create namespace %s", err, o.GetNamespace())
	case err == nil && done == Configured && before.GetResourceVersion() == after.GetResourceVersion():
		done = Unchanged
	}
	return done, err
}
