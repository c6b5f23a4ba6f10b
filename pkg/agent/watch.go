package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
)

// source is one kind of object that the agent watches.
type source struct {
	object client.Object
	list   client.ObjectList
	// optional sources may not be served by the API server (their CRD is not installed
	// yet). Once that is confirmed (see absences) the source counts as loaded.
	optional bool
}

// cluster is what the API server says, kept current by watches. It keeps what it knows
// while the API server is away.
type cluster struct {
	cache     cache.Cache
	discovery discovery.DiscoveryInterface
	scheme    *runtime.Scheme
	log       *slog.Logger
	notify    func()

	handled map[string]bool // kinds that have our event handler; used by run only
	absent  absences        // used by run only
	wake    chan struct{}   // a watch was answered with 404

	mu     sync.RWMutex
	served map[string]bool // kinds whose informer has synced
	loaded bool            // every source has reported all it has once
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	for _, add := range []func(*runtime.Scheme) error{mcv1alpha1.AddToScheme, mcv1alpha2.AddToScheme, mcsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// newCluster prepares the watches. The multi-cluster kinds are watched in one Namespace.
func newCluster(config *rest.Config, multiclusterNamespace string, multicluster bool, log *slog.Logger, notify func()) (*cluster, []source, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, nil, err
	}
	sources := []source{
		{object: &corev1.Node{}, list: &corev1.NodeList{}},
		{object: &corev1.Service{}, list: &corev1.ServiceList{}},
		{object: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{}},
		{object: &networkingv1.ServiceCIDR{}, list: &networkingv1.ServiceCIDRList{}, optional: true},
	}
	byObject := map[client.Object]cache.ByObject{}
	if multicluster {
		own := cache.ByObject{Namespaces: map[string]cache.Config{multiclusterNamespace: {}}}
		gateway, info, set := &mcv1alpha1.Gateway{}, &mcv1alpha1.ClusterInfoImport{}, &mcv1alpha2.ClusterSet{}
		byObject[gateway], byObject[info], byObject[set] = own, own, own
		sources = append(sources,
			source{object: gateway, list: &mcv1alpha1.GatewayList{}, optional: true},
			source{object: info, list: &mcv1alpha1.ClusterInfoImportList{}, optional: true},
			source{object: set, list: &mcv1alpha2.ClusterSetList{}, optional: true},
			source{object: &mcsv1alpha1.ServiceExport{}, list: &mcsv1alpha1.ServiceExportList{}, optional: true})
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare watches: %w", err)
	}
	watches, err := kubeclient.ForWatches(config)
	if err != nil {
		return nil, nil, fmt.Errorf("prepare watches: %w", err)
	}
	wake := make(chan struct{}, 1)
	c, err := cache.New(config, cache.Options{
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
			if apierrors.IsNotFound(err) {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
		},
		HTTPClient: watches,
		Scheme:     scheme,
		Mapper:     mapper(),
		ByObject:   byObject,
		// Managed fields are half of an object's size and nothing here reads them.
		DefaultTransform:             cache.TransformStripManagedFields(),
		DefaultUnsafeDisableDeepCopy: new(true),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("prepare watches: %w", err)
	}
	return &cluster{
		cache: c, discovery: disco, scheme: scheme, log: log, notify: notify, wake: wake,
		handled: map[string]bool{}, served: map[string]bool{}, absent: absences{},
	}, sources, nil
}

// mapper knows the watched kinds without asking the API server: the agent has to start while
// that is away, and before the optional kinds are served.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range []struct {
		version  schema.GroupVersion
		kind     string
		resource string // spelled out: the mapper's own plural of Gateway is wrong
		scope    meta.RESTScope
	}{
		{corev1.SchemeGroupVersion, "Node", "nodes", meta.RESTScopeRoot},
		{corev1.SchemeGroupVersion, "Service", "services", meta.RESTScopeNamespace},
		{discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslices", meta.RESTScopeNamespace},
		{networkingv1.SchemeGroupVersion, "ServiceCIDR", "servicecidrs", meta.RESTScopeRoot},
		{mcv1alpha1.GroupVersion, "Gateway", "gateways", meta.RESTScopeNamespace},
		{mcv1alpha1.GroupVersion, "ClusterInfoImport", "clusterinfoimports", meta.RESTScopeNamespace},
		{mcv1alpha2.GroupVersion, "ClusterSet", "clustersets", meta.RESTScopeNamespace},
		{schema.GroupVersion(mcsv1alpha1.GroupVersion), "ServiceExport", "serviceexports", meta.RESTScopeNamespace},
	} {
		// The cache asks for the list's kind, too.
		for _, kind := range []string{k.kind, k.kind + "List"} {
			m.AddSpecific(k.version.WithKind(kind), k.version.WithResource(k.resource), k.version.WithResource(strings.ToLower(k.kind)), k.scope)
		}
	}
	return m
}

// errNotListed says that the API server has not answered yet.
var errNotListed = errors.New("the API server has not listed the objects yet: does kubeAPIServerOverride (or the ServiceAccount's environment) name it, and may the agent list them?")

// errNotServed says that the API server has no such kind.
var errNotServed = errors.New("the API server has no such kind (its CustomResourceDefinition is not installed)")

// isServed asks the API server for an optional kind.
func (c *cluster) isServed(o client.Object) error {
	gvk, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return err
	}
	list, err := c.discovery.ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return errNotServed
	}
	if err != nil {
		return err
	}
	for _, r := range list.APIResources {
		if r.Kind == gvk.Kind {
			return nil
		}
	}
	return errNotServed
}

// recheck is after how long the sources that are not watched are tried again.
const recheck = time.Second

// run starts the watches, keeps trying those whose kind is not served yet, and ends those whose
// kind is served no more. It returns when ctx ends.
func (c *cluster) run(ctx context.Context, sources []source) error {
	errc := make(chan error, 1)
	go func() { errc <- c.cache.Start(ctx) }()

	reported := map[string]string{}
	doubted := false // a watch of one of the served kinds was answered with 404
	for {
		missing := 0
		loaded := true
		recheckServed := doubted
		doubted = false
		for _, s := range sources {
			kind := kindOf(s.object)
			if c.isWatched(kind) {
				if s.optional && recheckServed && !c.keep(ctx, s) {
					doubted = true
				}
				continue
			}
			err := c.watch(ctx, s)
			if err == nil {
				c.log.Info("watching", "kind", kind)
				delete(reported, kind)
				c.absent.forget(kind)
				c.notify()
				continue
			}
			if errors.Is(err, errNotServed) {
				err = c.confirmAbsent(ctx, kind, err)
			} else {
				c.absent.forget(kind)
			}
			loaded = loaded && errors.Is(err, errNotServed)
			missing++
			if reported[kind] != err.Error() && ctx.Err() == nil {
				reported[kind] = err.Error()
				c.log.Info("not watching yet", "kind", kind, "error", err)
			}
		}
		c.mu.Lock()
		first := loaded && !c.loaded
		c.loaded = c.loaded || loaded
		c.mu.Unlock()
		if first {
			c.notify()
		}
		wait := recheck
		if missing == 0 && !doubted {
			wait = time.Hour // nothing left to try
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case err := <-errc:
			timer.Stop()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch the API server: %w", err)
		case <-c.wake:
			timer.Stop()
			doubted = true
		case <-timer.C:
		}
	}
}

// watch starts one informer and waits until it has listed everything.
func (c *cluster) watch(ctx context.Context, s source) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if s.optional {
		if err := c.isServed(s.object); err != nil {
			return err
		}
	}
	informer, err := c.cache.GetInformer(ctx, s.object)
	if err != nil {
		return err
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.notify() },
		UpdateFunc: func(any, any) { c.notify() },
		DeleteFunc: func(any) { c.notify() },
	}
	if !c.handled[kindOf(s.object)] {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
		c.handled[kindOf(s.object)] = true
	}
	// The informer of a cache that is still starting is returned before it has listed.
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errNotListed
	}
	c.mu.Lock()
	c.served[kindOf(s.object)] = true
	c.mu.Unlock()
	return nil
}

func kindOf(o client.Object) string { return fmt.Sprintf("%T", o) }

// isWatched reports whether a kind's informer has synced.
func (c *cluster) isWatched(kind string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.served[kind]
}

// ready reports whether every source has reported all it has once.
func (c *cluster) ready() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.loaded
}

// fill copies the objects of the served kinds into a View.
func (c *cluster) fill(ctx context.Context, v *View) error {
	c.mu.RLock() // no informer is removed while its content is listed
	defer c.mu.RUnlock()

	list := func(o client.Object, l client.ObjectList) error {
		if !c.served[kindOf(o)] {
			return nil
		}
		if err := c.cache.List(ctx, l); err != nil {
			return fmt.Errorf("list %s from the cache: %w", kindOf(o), err)
		}
		return nil
	}
	var (
		nodes    corev1.NodeList
		services corev1.ServiceList
		slices   discoveryv1.EndpointSliceList
		cidrs    networkingv1.ServiceCIDRList
		gateways mcv1alpha1.GatewayList
		infos    mcv1alpha1.ClusterInfoImportList
		sets     mcv1alpha2.ClusterSetList
		exports  mcsv1alpha1.ServiceExportList
	)
	for _, s := range []struct {
		object client.Object
		list   client.ObjectList
	}{
		{&corev1.Node{}, &nodes},
		{&corev1.Service{}, &services},
		{&discoveryv1.EndpointSlice{}, &slices},
		{&networkingv1.ServiceCIDR{}, &cidrs},
		{&mcv1alpha1.Gateway{}, &gateways},
		{&mcv1alpha1.ClusterInfoImport{}, &infos},
		{&mcv1alpha2.ClusterSet{}, &sets},
		{&mcsv1alpha1.ServiceExport{}, &exports},
	} {
		if err := list(s.object, s.list); err != nil {
			return err
		}
	}
	v.Nodes = pointers(nodes.Items)
	v.Services = pointers(services.Items)
	v.EndpointSlices = pointers(slices.Items)
	v.ServiceCIDRs = pointers(cidrs.Items)
	v.Gateways = pointers(gateways.Items)
	v.ClusterInfoImports = pointers(infos.Items)
	v.ClusterSets = pointers(sets.Items)
	v.ServiceExports = pointers(exports.Items)
	return nil
}

// pointers returns a pointer to each element of list.
func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}
