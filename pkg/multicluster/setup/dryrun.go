package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// Removal lists the objects that Remove would delete, a line each. It changes nothing.
func (c Cluster) Removal(ctx context.Context, namespace, clusterSet string) ([]string, error) {
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterSet}}
	all := []client.Object{set}
	switch err := c.Client.Get(ctx, client.ObjectKeyFromObject(set), set); {
	case apierrors.IsNotFound(err):
		if err := c.noOther(ctx, namespace, clusterSet); err != nil {
			return nil, err
		}
		all = nil
	case err != nil:
		return nil, explain("read", "ClusterSet", set, err)
	}
	made, err := c.left(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return described(slices.Concat(all, made)), nil
}

// TokenRemoval lists the objects that DeleteToken would delete, a line each. It changes nothing.
func (c Cluster) TokenRemoval(ctx context.Context, namespace, name string) ([]string, error) {
	object := metav1.ObjectMeta{Namespace: namespace, Name: name}
	var all []client.Object
	var failed error
	for _, o := range []client.Object{&corev1.Secret{ObjectMeta: object}, &rbacv1.RoleBinding{ObjectMeta: object},
		&corev1.ServiceAccount{ObjectMeta: object}} {
		switch err := c.Client.Get(ctx, client.ObjectKeyFromObject(o), o); {
		case err == nil && ours(o):
			all = append(all, o)
		case client.IgnoreNotFound(err) != nil:
			failed = errors.Join(failed, explain("read", kindOf(o), o, err))
		}
	}
	return described(all), failed
}

// described has a line for each object.
func described(all []client.Object) (lines []string) {
	for _, o := range all {
		lines = append(lines, fmt.Sprintf("%s %q in Namespace %s", kindOf(o), o.GetName(), o.GetNamespace()))
	}
	return lines
}
