// Package warnings writes Events on objects that request features that no Node serves. A cluster runs it once, with or
// without a ClusterSet.
package warnings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	"github.com/tombolo-net/tombolo/pkg/events"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/unserved"
)

const (
	controllerName = "tombolo-controller" // the reporting controller of the Events
	warnAgain      = 5 * time.Minute      // after an object had too many Events
)

// Scheme returns a scheme with the kinds that the controllers read and write.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Kubernetes' kinds: %w", err)
	}
	return scheme, nil
}

// CacheOptions restricts the caches. They hold only one ConfigMap, which the controller's Role allows it to read.
func CacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {
				Namespaces: map[string]cache.Config{namespace: {}},
				Field:      fields.OneTermEqualSelector("metadata.name", unserved.AgentsConfig),
			},
		},
	}
}

// SetupWithManager adds the controllers. identity names this process in Events.
func SetupWithManager(mgr ctrl.Manager, identity string) error {
	agents := &agents{client: mgr.GetClient()}
	log := slog.Default().With("controller", "warnings")
	w := &warner{client: mgr.GetClient(), events: events.NewWriter(events.Options{Client: mgr.GetClient(),
		Controller: controllerName, Instance: identity, Log: log,
		Problems: problemlog.New(log, "the other Events are not listed")})}
	return errors.Join(
		mgr.Add(w.events),
		watch(mgr, w, "v1", "Service", &corev1.Service{}, agents.service),
		agents.watch(mgr, w),
		watch(mgr, w, "v1", "Namespace", &corev1.Namespace{}, agents.namespace),
		watch(mgr, w, "v1", "ConfigMap", &corev1.ConfigMap{}, configuration),
		watch(mgr, w, "networking.k8s.io/v1", "NetworkPolicy", &networkingv1.NetworkPolicy{}, networkPolicy),
		agents.watchOptionalKinds(mgr, w),
		watch(mgr, w, definitions().APIVersion, definitions().Kind, definitions(), unserved.Definition, builder.OnlyMetadata),
	)
}

// agents reads from the agents' ConfigMap what they serve.
type agents struct {
	client   client.Reader
	monitors bool // the cluster has the kind NodeLatencyMonitor

	mu      sync.Mutex
	version string // of the ConfigMap that was read last
	serves  unserved.Cluster
}

// serve returns what the agents serve: the default without a readable ConfigMap.
func (a *agents) serve() unserved.Cluster {
	var list corev1.ConfigMapList
	if err := a.client.List(context.Background(), &list); err != nil {
		return unserved.Cluster{}
	}
	i := slices.IndexFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Name == unserved.AgentsConfig })
	if i < 0 {
		return unserved.Cluster{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := list.Items[i]; m.ResourceVersion != a.version {
		a.version, a.serves = m.ResourceVersion, unserved.ServedBy(&m)
	}
	return a.serves
}

// namespace returns the requests of a Namespace that no Node serves, and faults in its isolation.
func (a *agents) namespace(n *corev1.Namespace) []problem.Problem {
	served := a.serve()
	out := unserved.Namespace(n, served)
	if served.Tenants {
		out = append(out, tenant.NamespaceProblems(n)...)
	}
	return out
}

// service returns the parts of a Service that no Node serves.
func (a *agents) service(s *corev1.Service) []problem.Problem {
	served := a.serve()
	out := unserved.Service(s, served)
	if served.Outside {
		out = append(out, service.SourceProblems(s)...)
	}
	return out
}

// watch adds a controller for objects whose service depends on the agents. When the agents' features change, it
// examines all of these objects again.
func (a *agents) watch(mgr ctrl.Manager, w *warner) error {
	served := func(o client.Object) unserved.Cluster {
		m, ok := o.(*corev1.ConfigMap)
		if !ok || m.Name != unserved.AgentsConfig {
			return unserved.Cluster{}
		}
		return unserved.ServedBy(m)
	}
	other := builder.WithPredicates(predicate.Funcs{
		// Objects that are there at the start are looked at by the controllers of their kinds.
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList && served(e.Object) != unserved.Cluster{} },
		DeleteFunc: func(e event.DeleteEvent) bool { return served(e.Object) != unserved.Cluster{} },
		UpdateFunc: func(e event.UpdateEvent) bool { return served(e.ObjectOld) != served(e.ObjectNew) },
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("agents-warnings").For(&corev1.ConfigMap{}, other).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			var services corev1.ServiceList
			var namespaces corev1.NamespaceList
			if err := errors.Join(a.client.List(ctx, &services), a.client.List(ctx, &namespaces)); err != nil {
				return reconcile.Result{}, fmt.Errorf("look at all Services and Namespaces again: %w", err)
			}
			var result reconcile.Result
			again := func(key client.Object, o client.Object, kind string, problems func() []problem.Problem) error {
				one, err := w.warn(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(key)}, o,
					metav1.TypeMeta{APIVersion: "v1", Kind: kind}, problems)
				result.RequeueAfter = max(result.RequeueAfter, one.RequeueAfter)
				return err
			}
			var errs []error
			for _, s := range services.Items {
				o := &corev1.Service{}
				errs = append(errs, again(&s, o, "Service", func() []problem.Problem { return a.service(o) }))
			}
			for _, n := range namespaces.Items {
				o := &corev1.Namespace{}
				errs = append(errs, again(&n, o, "Namespace", func() []problem.Problem { return a.namespace(o) }))
			}
			if a.monitors {
				o := monitors()
				o.Name = crdv1alpha1.NodeLatencyMonitorName
				one, err := w.warn(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}, o, o.TypeMeta,
					func() []problem.Problem { return unserved.NodeLatencyMonitor(o, a.serve()) })
				result.RequeueAfter, errs = max(result.RequeueAfter, one.RequeueAfter), append(errs, err)
			}
			return result, errors.Join(errs...)
		}))
	if err != nil {
		return fmt.Errorf("add the controller of what agents serve: %w", err)
	}
	return nil
}

// monitors returns a NodeLatencyMonitor whose metadata alone are read.
func monitors() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: crdv1alpha1.GroupVersion.String(),
		Kind: "NodeLatencyMonitor"}}
}

// traceflows returns a Traceflow whose metadata alone are read.
func traceflows() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: crdv1beta1.GroupVersion.String(),
		Kind: "Traceflow"}}
}

// traceflow returns the request of a Traceflow that is not served because there is no relay. The Namespace of the relay
// is in its manifest.
func (a *agents) traceflow(t *metav1.PartialObjectMetadata) []problem.Problem {
	err := a.client.Get(context.Background(), client.ObjectKey{Name: api.RelayNamespace}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		return nil
	}
	return unserved.Traceflow(t)
}

// attachmentDefinitions returns an empty NetworkAttachmentDefinition, to read only the metadata of such objects.
func attachmentDefinitions() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: plumbingv1.GroupVersion.String(),
		Kind: "NetworkAttachmentDefinition"}}
}

// watchOptional adds a controller of a kind once the cluster has the kind's definition.
func watchOptional(mgr ctrl.Manager, w *warner, o *metav1.PartialObjectMetadata,
	problems func(*metav1.PartialObjectMetadata) []problem.Problem) (has bool, err error) {
	kind := o.GroupVersionKind()
	_, err = mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if apimeta.IsNoMatchError(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("ask for the kind %s: %w", o.Kind, err)
	}
	return true, watch(mgr, w, o.APIVersion, o.Kind, o, problems, builder.OnlyMetadata)
}

// watchOptionalKinds adds the controllers of kinds that a cluster may not have.
func (a *agents) watchOptionalKinds(mgr ctrl.Manager, w *warner) (err error) {
	a.monitors, err = watchOptional(mgr, w, monitors(), func(m *metav1.PartialObjectMetadata) []problem.Problem {
		return unserved.NodeLatencyMonitor(m, a.serve())
	})
	_, failed := watchOptional(mgr, w, traceflows(), a.traceflow)
	_, failedAsWell := watchOptional(mgr, w, attachmentDefinitions(), tenant.DefinitionProblems)
	return errors.Join(err, failed, failedAsWell)
}

// definitions returns a CustomResourceDefinition whose metadata alone are read.
func definitions() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1",
		Kind: "CustomResourceDefinition"}}
}

// watch adds a controller that writes Events about the problems of a kind's objects.
func watch[T client.Object](mgr ctrl.Manager, w *warner, version, kind string, object T,
	problems func(T) []problem.Problem, options ...builder.ForOption) error {
	options = append(options, builder.WithPredicates(changed(problems)))
	err := ctrl.NewControllerManagedBy(mgr).Named(strings.ToLower(kind)+"-warnings").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, NeedLeaderElection: new(false),
			UsePriorityQueue: new(false)}). // it can block at the end (see package traceflow)
		For(object, options...).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			o, ok := object.DeepCopyObject().(T)
			if !ok {
				return reconcile.Result{}, fmt.Errorf("copy a %s: it is a %T", kind, o)
			}
			return w.warn(ctx, r, o, metav1.TypeMeta{APIVersion: version, Kind: kind},
				func() []problem.Problem { return problems(o) })
		}))
	if err != nil {
		return fmt.Errorf("add the controller of kind %s: %w", kind, err)
	}
	return nil
}

// changed admits updates that change the problems of an object.
func changed[T client.Object](problems func(T) []problem.Problem) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(T)
			now, ok2 := e.ObjectNew.(T)
			return !ok1 || !ok2 || !slices.Equal(problems(before), problems(now))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// networkPolicy returns the requests of a NetworkPolicy that no Node serves. They depend only on the policy. Its status
// has no field for them.
func networkPolicy(n *networkingv1.NetworkPolicy) []problem.Problem {
	return policy.FactsOf(n).Problems
}

// configuration reports the parts of the agents' ConfigMap that no program reads.
func configuration(m *corev1.ConfigMap) []problem.Problem {
	const key = "antrea-controller.conf"
	if strings.TrimSpace(m.Data[key]) == "" {
		return nil
	}
	return []problem.Problem{{
		Object: problem.Object{Kind: "ConfigMap", Namespace: m.Namespace, Name: m.Name},
		Field:  "data[" + key + "]", Reason: reasonConfigurationIgnored,
		Message: "Tombolo has no antrea-controller and does not read its configuration: remove the key; " +
			"what concerns agents belongs into antrea-agent.conf, what concerns the ClusterSet into ConfigMap " +
			"antrea-mc-controller-config",
	}}
}

// warner queues Events. The name of an Event is made from its object and its content. So each Event is written once,
// even after a restart or by two processes at the same time. The API server deletes it after its time to live.
type warner struct {
	client client.Client
	events *events.Writer
}

func (w *warner) warn(ctx context.Context, r reconcile.Request, o client.Object, kind metav1.TypeMeta,
	problems func() []problem.Problem) (reconcile.Result, error) {
	if err := w.client.Get(ctx, r.NamespacedName, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if o.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	result := reconcile.Result{}
	for _, p := range problems() {
		if !w.events.Warn(events.Reference(o, kind), p) {
			result.RequeueAfter = warnAgain
		}
	}
	return result, nil
}
