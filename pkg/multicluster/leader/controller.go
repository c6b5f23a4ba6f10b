package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/runner"
)

const (
	settle    = 50 * time.Millisecond // events that come together are planned together
	tick      = 5 * time.Second       // silence of a member is no event
	retryMin  = 200 * time.Millisecond
	retryMost = 15 * time.Second
)

// Scheme knows every kind that the leader reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(clientgoscheme.AddToScheme(s), mcv1alpha1.AddToScheme(s), mcv1alpha2.AddToScheme(s))
}

// SetupWithManager adds the leader controller to a manager. namespace is the Common Area, in
// which the controller itself runs; it reads and writes nothing outside of it.
func SetupWithManager(mgr ctrl.Manager, _ config.Config, namespace string) error {
	if namespace == "" {
		return errors.New("set up the leader controller: its Namespace is unknown; set POD_NAMESPACE")
	}
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	watches, err := kubeclient.ForWatches(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("set up the leader controller's cache: %w", err)
	}
	area, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: watches,
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("set up the leader controller's cache: %w", err)
	}
	writer, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up the leader controller's client: %w", err)
	}
	log := slog.Default().With("controller", "leader")
	return mgr.Add(&controller{
		namespace: namespace, cache: area, client: writer,
		log: log,
		runner: runner.New(runner.Options{Settle: settle, Resync: tick, RetryMin: retryMin, RetryMost: retryMost, Failed: func(err error, retry time.Duration) {
			log.Error("bring the Common Area up to date; trying again", "in", retry, "error", err)
		}}),
		seen: map[string]sighting{},
	})
}

// controller is the shell around Plan.
type controller struct {
	namespace string
	cache     cache.Cache
	client    client.Client // reads are live
	log       *slog.Logger
	runner    *runner.Runner
	seen      map[string]sighting
	told      []problem.Problem
}

// sighting is when a MemberClusterAnnounce was last seen to change.
type sighting struct {
	version string
	at      time.Time
}

// Start runs the controller until ctx ends. The manager calls it.
func (c *controller) Start(ctx context.Context) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.runner.Ring() },
		UpdateFunc: func(any, any) { c.runner.Ring() },
		DeleteFunc: func(any) { c.runner.Ring() },
	}
	for _, o := range []client.Object{
		&mcv1alpha2.ClusterSet{}, &mcv1alpha1.MemberClusterAnnounce{}, &mcv1alpha1.ResourceExport{}, &mcv1alpha1.ResourceImport{},
		&corev1.ServiceAccount{},
	} {
		for {
			informer, err := c.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
			if err == nil {
				if _, err = informer.AddEventHandler(handler); err == nil {
					break
				}
			}
			c.log.Error("a kind cannot be watched yet; install the leader's custom resource definitions", "kind", fmt.Sprintf("%T", o), "error", err)
			if !wait(ctx, tick) {
				return nil
			}
		}
	}
	done := make(chan error, 1)
	go func() { done <- c.cache.Start(ctx) }()
	if !c.cache.WaitForCacheSync(ctx) {
		return <-done
	}
	c.runner.Run(ctx, func(ctx context.Context) (time.Time, error) { return time.Time{}, c.round(ctx) })
	return <-done
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// round plans once and writes the difference.
func (c *controller) round(ctx context.Context) error {
	v, err := c.view(ctx)
	if err != nil {
		return err
	}
	d, problems := Plan(v)
	if !slices.Equal(problems, c.told) {
		for _, p := range problems {
			if !slices.Contains(c.told, p) {
				c.log.Warn(p.Message, "object", p.Object, "field", p.Field, "reason", p.Reason)
			}
		}
		c.told = problems
	}
	return errors.Join(c.bind(ctx, v, d), c.apply(ctx, v, d))
}

// view reads the Common Area from the cache.
func (c *controller) view(ctx context.Context) (View, error) {
	v := View{Namespace: c.namespace, Now: time.Now(), Seen: map[string]time.Time{}}
	var (
		sets      mcv1alpha2.ClusterSetList
		announces mcv1alpha1.MemberClusterAnnounceList
		exports   mcv1alpha1.ResourceExportList
		imports   mcv1alpha1.ResourceImportList
		accounts  corev1.ServiceAccountList
	)
	for _, list := range []client.ObjectList{&sets, &announces, &exports, &imports, &accounts} {
		if err := c.cache.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
			return v, fmt.Errorf("list %T: %w", list, err)
		}
	}
	v.ClusterSets, v.Announces = pointers(sets.Items), pointers(announces.Items)
	v.ResourceExports, v.ResourceImports = pointers(exports.Items), pointers(imports.Items)
	v.Accounts = pointers(accounts.Items)
	for _, a := range v.Announces {
		if s := c.seen[a.Name]; s.version != a.ResourceVersion {
			c.seen[a.Name] = sighting{version: a.ResourceVersion, at: v.Now}
		}
		v.Seen[a.Name] = c.seen[a.Name].at
	}
	for name := range c.seen {
		if _, ok := v.Seen[name]; !ok {
			delete(c.seen, name)
		}
	}
	for _, set := range v.ClusterSets {
		if set.Spec.ClusterID != "" {
			continue
		}
		var claims mcv1alpha2.ClusterClaimList
		if err := c.client.List(ctx, &claims, client.InNamespace(c.namespace)); err != nil && !meta.IsNoMatchError(err) {
			return v, fmt.Errorf("list ClusterClaims: %w", err)
		}
		v.ClusterClaims = pointers(claims.Items)
		break
	}
	return v, nil
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// apply writes the difference between the view and the plan. One object's failure stops no
// other, except that a deleted export is let go only when its import is written: until then
// the import may still hold it.
func (c *controller) apply(ctx context.Context, v View, d Desired) error {
	failed := c.writeImports(ctx, v, d)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		errs = append(errs, failed[name])
	}
	exports, announces := byName(v.ResourceExports), byName(v.Announces)
	try := func(err error) {
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range d.HoldAnnounces {
		a := announces[name].DeepCopy()
		before := a.DeepCopy()
		controllerutil.AddFinalizer(a, announceFinalizer(a))
		try(c.client.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
	for name, condition := range d.Conditions {
		re := exports[name].DeepCopy()
		if sameConditions(re.Status.Conditions, condition) {
			continue
		}
		re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{condition}
		try(c.client.Status().Update(ctx, re))
	}
	for _, name := range d.DeleteExports {
		try(c.client.Delete(ctx, exports[name].DeepCopy()))
	}
	for _, name := range d.ReleaseExports {
		if failed[importName(exports[name])] != nil {
			continue
		}
		re := exports[name].DeepCopy()
		before := re.DeepCopy()
		controllerutil.RemoveFinalizer(re, multicluster.ResourceExportFinalizer)
		controllerutil.RemoveFinalizer(re, multicluster.ResourceExportFinalizerOld)
		try(c.client.Patch(ctx, re, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
	for _, name := range d.DeleteAnnounces {
		c.log.Info("member has been silent for a day: removing it and its exports", "announcement", name)
		try(c.client.Delete(ctx, announces[name].DeepCopy()))
	}
	for _, name := range d.ReleaseAnnounces {
		a := announces[name].DeepCopy()
		before := a.DeepCopy()
		controllerutil.RemoveFinalizer(a, announceFinalizer(a))
		try(c.client.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
	try(c.writeClusterSet(ctx, v, d.ClusterSet))
	return errors.Join(errs...)
}

func byName[T client.Object](list []T) map[string]T {
	m := make(map[string]T, len(list))
	for _, o := range list {
		m[o.GetName()] = o
	}
	return m
}

func sameConditions(have []mcv1alpha1.ResourceExportCondition, want mcv1alpha1.ResourceExportCondition) bool {
	return len(have) == 1 && have[0].Type == want.Type && have[0].Status == want.Status &&
		have[0].Reason == want.Reason && have[0].Message == want.Message
}

// writeImports creates, updates and deletes ResourceImports, and returns what failed by name.
func (c *controller) writeImports(ctx context.Context, v View, d Desired) map[string]error {
	failed := map[string]error{}
	have := byName(v.ResourceImports)
	for name, want := range d.Imports {
		current, ok := have[name]
		var err error
		switch {
		case !ok:
			created := want.DeepCopy()
			if err = c.client.Create(ctx, created); err == nil {
				created.Status = want.Status
				err = c.client.Status().Update(ctx, created)
			}
		case !equality.Semantic.DeepEqual(current.Spec, want.Spec):
			updated := current.DeepCopy()
			updated.Spec = want.Spec
			if err = c.client.Update(ctx, updated); err == nil {
				updated.Status = want.Status
				err = c.client.Status().Update(ctx, updated)
			}
		case !sameClusters(current.Status, want.Status):
			updated := current.DeepCopy()
			updated.Status = want.Status
			err = c.client.Status().Update(ctx, updated)
		}
		if err != nil {
			failed[name] = fmt.Errorf("write ResourceImport %s: %w", name, err)
		}
	}
	for name, current := range have {
		if _, ok := d.Imports[name]; ok || !kept(current.Spec.Kind) {
			continue
		}
		if err := client.IgnoreNotFound(c.client.Delete(ctx, current.DeepCopy())); err != nil {
			failed[name] = fmt.Errorf("delete ResourceImport %s: %w", name, err)
		}
	}
	return failed
}

// sameClusters compares which clusters a status tells of: its times do not matter.
func sameClusters(a, b mcv1alpha1.ResourceImportStatus) bool {
	return slices.EqualFunc(a.ClusterStatuses, b.ClusterStatuses, func(x, y mcv1alpha1.ResourceImportClusterStatus) bool {
		return x.ClusterID == y.ClusterID
	})
}

func (c *controller) writeClusterSet(ctx context.Context, v View, want *mcv1alpha2.ClusterSet) error {
	if want == nil {
		return nil
	}
	current := byName(v.ClusterSets)[want.Name]
	set := current.DeepCopy()
	if current.Spec.ClusterID != want.Spec.ClusterID {
		set.Spec.ClusterID = want.Spec.ClusterID
		if err := c.client.Update(ctx, set); err != nil {
			return fmt.Errorf("write the cluster ID into ClusterSet %s: %w", want.Name, err)
		}
	}
	if equality.Semantic.DeepEqual(current.Status, want.Status) {
		return nil
	}
	set.Status = want.Status
	if err := c.client.Status().Update(ctx, set); err != nil {
		return fmt.Errorf("write the status of ClusterSet %s: %w", want.Name, err)
	}
	return nil
}
