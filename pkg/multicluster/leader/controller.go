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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/retry"
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
		writer: retry.New(retryMin, retryMost, log),
		seen:   map[string]sighting{},
		claims: map[string]claim{},
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
	writer    *retry.Writer
	refused   map[string]string // why ResourceImports cannot be written, by name
	claims    map[string]claim  // by cluster ID
	reported  []problem.Problem
}

// sighting is what was seen of a MemberClusterAnnounce, and as what it was seen last.
type sighting struct {
	Sighting
	uid              types.UID
	version, touched string
}

// claim is a ClusterInfo that was imported, and until when it holds its addresses.
type claim struct {
	info  *mcv1alpha1.ClusterInfo
	until time.Time
}

// holdClaims is how long addresses stay with an announced member that has withdrawn them. A
// member that leaves gives them up at once.
const holdClaims = 10 * time.Minute

// imported updates what is imported of each announced member, and returns it with what was
// imported until a short while ago.
func (c *controller) imported(v View) map[string]*mcv1alpha1.ClusterInfo {
	member := map[string]bool{}
	for _, a := range v.Announces {
		member[a.ClusterID] = a.DeletionTimestamp == nil
	}
	out := map[string]*mcv1alpha1.ClusterInfo{}
	for _, ri := range v.ResourceImports {
		if info := ri.Spec.ClusterInfo; ri.Spec.Kind == multicluster.ClusterInfoKind && info != nil && ri.DeletionTimestamp == nil {
			c.claims[info.ClusterID] = claim{info, v.Now.Add(holdClaims)}
		}
	}
	for id, held := range c.claims {
		if !member[id] || v.Now.After(held.until) {
			delete(c.claims, id)
			continue
		}
		out[id] = held.info
	}
	return out
}

// see takes note of a MemberClusterAnnounce at a time.
func (s sighting) see(a *mcv1alpha1.MemberClusterAnnounce, now time.Time) sighting {
	touched := a.Annotations[multicluster.AnnotationTouchTimestamp]
	if s.uid != a.UID || s.First.IsZero() {
		return sighting{Sighting: Sighting{First: now, Changed: now}, uid: a.UID, version: a.ResourceVersion, touched: touched}
	}
	if s.version != a.ResourceVersion {
		s.Changed, s.version = now, a.ResourceVersion
	}
	if s.touched != touched {
		s.Touched, s.touched = now, touched
	}
	return s
}

// Start runs the controller until ctx ends. The manager calls it.
func (c *controller) Start(ctx context.Context) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.runner.Trigger() },
		UpdateFunc: func(any, any) { c.runner.Trigger() },
		DeleteFunc: func(any) { c.runner.Trigger() },
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
	c.runner.Run(ctx, c.round)
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

// round plans once and writes the difference. A write that is refused waits by itself; only a
// server that gives no answer fails the round.
func (c *controller) round(ctx context.Context) (time.Time, error) {
	v, err := c.view(ctx)
	if err != nil {
		return time.Time{}, err
	}
	d, problems := Plan(v)
	again, refused, lost := c.writer.Round(ctx, c.writes(v, d))
	c.tell(append(problems, refused...))
	before := c.refused
	c.refused = refusedImports(refused)
	if !maps.Equal(before, c.refused) {
		c.runner.Trigger() // for the conditions of their exports
	}
	return again, lost
}

// tell logs problems, each once for as long as it lasts.
func (c *controller) tell(problems []problem.Problem) {
	for _, p := range problems {
		if !slices.Contains(c.reported, p) {
			c.log.Warn(p.Message, "object", p.Object, "field", p.Field, "reason", p.Reason)
		}
	}
	c.reported = problems
}

// view reads the Common Area from the cache.
func (c *controller) view(ctx context.Context) (View, error) {
	v := View{Namespace: c.namespace, Now: time.Now(), Seen: map[string]Sighting{}, Refused: c.refused}
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
		c.seen[a.Name] = c.seen[a.Name].see(a, v.Now)
		v.Seen[a.Name] = c.seen[a.Name].Sighting
	}
	for name := range c.seen {
		if _, ok := v.Seen[name]; !ok {
			delete(c.seen, name)
		}
	}
	v.Imported = c.imported(v)
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
