// Package setup makes and removes ClusterSets, as the commands of `tombolo mc` and `antctl mc` are documented. It makes
// tokens for members, and the ClusterSet in the leader and in members. If a command fails, it removes the objects that
// it made.
package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// Scheme returns a scheme with the kinds that the commands read and write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme,
		mcv1alpha1.AddToScheme, mcv1alpha2.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}

// Cluster is where commands act.
type Cluster struct {
	Client client.Client
	Out    io.Writer // for reports of finished actions, a line each
	// WrapLeader, if set, wraps the transport of a member's requests to the leader.
	WrapLeader transport.WrapperFunc
	// TokenAnnotations are further annotations of the ServiceAccounts that CreateToken makes.
	TokenAnnotations map[string]string

	tokenLimit time.Duration // how long Kubernetes may take to write a token; 0 means 20 s
}

// report prints a line of progress.
func (c Cluster) report(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

// undoLimit is how long the removal of the created objects may take, also after an interrupt.
const undoLimit = 10 * time.Second

// writeLimit is how long a request of Write may take.
const writeLimit = 30 * time.Second

// Write calls f, which sends one request that changes an object. If ctx ends meanwhile, Write still waits for the
// answer: the API server may carry out the request, and a change without an answer could not be undone. If ctx has
// ended before, f is not called.
func Write(ctx context.Context, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	return f(ctx)
}

// made has the changes of a command, as steps that undo them, in the order of the changes.
type made struct {
	Cluster
	back []func(context.Context) error
}

// create makes an object and records it. If the object exists already, create does not change it and returns existed.
func (m *made) create(ctx context.Context, kind string, o client.Object) (existed bool, _ error) {
	switch err := Write(ctx, func(ctx context.Context) error { return m.Client.Create(ctx, o) }); {
	case apierrors.IsAlreadyExists(err):
		return true, m.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	case err != nil:
		return false, explain("create", kind, o, err)
	}
	m.back = append(m.back, func(ctx context.Context) error {
		if err := m.Client.Delete(ctx, o); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return explain("delete", kind, o, err)
		}
		m.report("%s %q deleted again", kind, o.GetName())
		return nil
	})
	m.report("%s %q created in Namespace %s", kind, o.GetName(), o.GetNamespace())
	return false, nil
}

// undo undoes the recorded changes, the latest first. It returns failed, which is the error that made it necessary,
// joined with all further errors.
func (m *made) undo(ctx context.Context, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	for _, back := range slices.Backward(m.back) {
		failed = errors.Join(failed, back(ctx))
	}
	return failed
}

// explain adds the object to an API server's error, and the remedy if there is a known one.
func explain(verb, kind string, o client.Object, err error) error {
	what := ""
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err) && verb == "create":
		what = fmt.Sprintf(
			"; does Namespace %s exist, and were the multi-cluster manifests applied to this cluster? (mc deploy)",
			o.GetNamespace())
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		what = fmt.Sprintf("; does Deployment %s/%s run? It answers the webhook. If it cannot run any more, delete its "+
			"ValidatingWebhookConfiguration", o.GetNamespace(), multicluster.ControllerName)
	default:
		what = remedy(err)
	}
	return fmt.Errorf("%s %s %s/%s: %w%s", verb, kind, o.GetNamespace(), o.GetName(), err, what)
}

// remedy returns the remedy for a request that an API server has refused, after a semicolon, or "".
func remedy(err error) string {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return "; use a kubeconfig that may do so"
	}
	var away *url.Error
	if errors.As(err, &away) {
		return "; is the API server up, and are --context and --kubeconfig the right ones?"
	}
	return ""
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.ServiceAccount:
		return "ServiceAccount"
	case *corev1.Secret:
		return "Secret"
	case *rbacv1.RoleBinding:
		return "RoleBinding"
	case *mcv1alpha2.ClusterSet:
		return "ClusterSet"
	}
	return fmt.Sprintf("%T", o)
}

// ours reports whether the command line tool made an object.
func ours(o client.Object) bool {
	_, is := o.GetAnnotations()[multicluster.AnnotationCreatedByAntctl]
	return is
}

func meAsMaker() map[string]string {
	return map[string]string{multicluster.AnnotationCreatedByAntctl: "true"}
}

// Remove undoes Init in the leader and Join in a member. It deletes the ClusterSet, and the Secrets, RoleBindings and
// ServiceAccounts of the Namespace that commands of this package made. If the ClusterSet is gone already, it deletes
// the remaining objects, unless they may be of another ClusterSet.
func (c Cluster) Remove(ctx context.Context, namespace, clusterSet string) error {
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterSet}}
	var err error
	if waited := wait.PollUntilContextTimeout(ctx, time.Second, membersLimit, true,
		func(context.Context) (bool, error) { // the end of the wait does not break a request
			before := err
			err = c.Client.Delete(ctx, set)
			if !IsMembersLeft(err) {
				return true, nil
			}
			if before == nil {
				c.report("Waiting for members: %s", err)
			}
			return false, nil
		}); err == nil && waited != nil {
		err = waited
	}
	switch {
	case apierrors.IsNotFound(err):
		if err := c.noOther(ctx, namespace, clusterSet); err != nil {
			return err
		}
		c.report("ClusterSet %q not found in Namespace %s", clusterSet, namespace)
	case IsMembersLeft(err): // the webhook's message has the remedy
		return fmt.Errorf("delete ClusterSet %s/%s: %w", namespace, clusterSet, err)
	case err != nil:
		return explain("delete", "ClusterSet", set, err)
	default:
		c.report("ClusterSet %q deleted in Namespace %s", clusterSet, namespace)
	}
	all, err := c.left(ctx, namespace)
	if err != nil {
		return err
	}
	var failed error
	for _, o := range all {
		failed = errors.Join(failed, c.delete(ctx, o))
	}
	return failed
}

// left lists the Secrets, RoleBindings and ServiceAccounts of a Namespace that commands of this package made.
func (c Cluster) left(ctx context.Context, namespace string) (all []client.Object, _ error) {
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &rbacv1.RoleBindingList{},
		&corev1.ServiceAccountList{}} {
		if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list what was made in Namespace %s: %w%s", namespace, err, remedy(err))
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if o := o.(client.Object); ours(o) {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// noOther returns an error if a Namespace has other ClusterSets than the missing one.
func (c Cluster) noOther(ctx context.Context, namespace, missing string) error {
	var sets mcv1alpha2.ClusterSetList
	if err := c.Client.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list ClusterSets of Namespace %s: %w%s", namespace, err, remedy(err))
	}
	if len(sets.Items) == 0 {
		return nil
	}
	var names []string
	for _, set := range sets.Items {
		names = append(names, set.Name)
	}
	return fmt.Errorf(
		"there is no ClusterSet %s in Namespace %s, but %s: give the name of the one to delete; nothing was deleted", missing,
		namespace, strings.Join(names, ", "))
}

// membersLimit is how long members may take to leave at the leader after their ClusterSets were deleted.
const membersLimit = 20 * time.Second

// IsMembersLeft reports whether the leader's webhook refuses because there are members.
func IsMembersLeft(err error) bool {
	return err != nil && strings.Contains(err.Error(), "there are still member clusters connecting")
}

// delete deletes an object, if it is still there.
func (c Cluster) delete(ctx context.Context, o client.Object) error {
	if err := c.Client.Delete(ctx, o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return explain("delete", kindOf(o), o, err)
	}
	c.report("%s %q deleted in Namespace %s", kindOf(o), o.GetName(), o.GetNamespace())
	return nil
}
