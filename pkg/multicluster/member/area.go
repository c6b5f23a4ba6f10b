package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
)

const (
	leaderTimeout = 8 * time.Second // for one request to the leader
	leaveFor      = 2 * time.Minute // how long leaving is tried when the leader is away
)

// commonArea is a connection to a leader's Namespace: a cache of its ResourceImports and of
// this cluster's ResourceExports, and a client for the writes.
type commonArea struct {
	area          Area
	client        client.Client // reads are live
	cache         cache.Cache
	cancel        context.CancelFunc
	http, watches *http.Client // for requests, and for the cache
	broken        error        // why there is neither cache nor client

	mu           sync.Mutex
	synced       bool
	announcement Announcement
}

// connect starts a connection to an area, and rings whenever something in it changes. It does
// not wait for the leader to answer.
func connect(ctx context.Context, area Area, signal func(), log *slog.Logger) (*commonArea, error) {
	config := &rest.Config{
		Host: area.Server, BearerToken: area.Token, QPS: 100, Burst: 200,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(area.CA)},
		UserAgent:       "tombolo-member/" + area.ClusterID,
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", area, err)
	}
	scheme := Scheme()
	// A mapper of our own needs no discovery, so the connection can be made while the leader
	// is away.
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"MemberClusterAnnounce", "ResourceExport", "ResourceImport"} {
		mapper.Add(mcv1alpha1.GroupVersion.WithKind(kind), apimeta.RESTScopeNamespace)
		mapper.Add(mcv1alpha1.GroupVersion.WithKind(kind+"List"), apimeta.RESTScopeNamespace)
	}
	watches, err := kubeclient.ForWatches(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", area, err)
	}
	a := &commonArea{area: area, http: httpClient, watches: watches}
	if a.client, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", area, err)
	}
	a.cache, err = cache.New(config, cache.Options{
		HTTPClient: watches, Scheme: scheme, Mapper: mapper,
		DefaultNamespaces: map[string]cache.Config{area.Namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&mcv1alpha1.ResourceExport{}: {Label: labels.SelectorFromSet(labels.Set{multicluster.LabelSourceClusterID: area.ClusterID})},
		},
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			log.Debug("watch of the leader interrupted", "area", area.String(), "error", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", area, err)
	}
	ctx, a.cancel = context.WithCancel(ctx)
	for _, o := range []client.Object{&mcv1alpha1.ResourceImport{}, &mcv1alpha1.ResourceExport{}} {
		if err := watch(ctx, a.cache, o, signal); err != nil {
			a.cancel()
			return nil, fmt.Errorf("connect to %s: %w", area, err)
		}
	}
	go func() {
		if err := a.cache.Start(ctx); err != nil {
			log.Error("cache of the leader stopped", "area", area.String(), "error", err)
		}
	}()
	go func() {
		if a.cache.WaitForCacheSync(ctx) {
			a.mu.Lock()
			a.synced = true
			a.mu.Unlock()
			signal()
		}
	}()
	return a, nil
}

// brokenArea stands for a connection that cannot even be tried, as when the CA is not PEM. It
// says so in its announcement, and never becomes synced.
func brokenArea(area Area, err error) *commonArea {
	return &commonArea{area: area, cancel: func() {}, http: &http.Client{}, watches: &http.Client{}, broken: err}
}

// watch rings for every event of a kind in a cache.
func watch(ctx context.Context, c cache.Cache, o client.Object, signal func()) error {
	informer, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T: %w", o, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(any, any) { signal() },
		DeleteFunc: func(any) { signal() },
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", o, err)
	}
	return nil
}

// stop ends the connection.
func (a *commonArea) stop() {
	a.cancel()
	a.http.CloseIdleConnections()
	a.watches.CloseIdleConnections()
}

// leader is what a View holds of the leader.
func (a *commonArea) leader(ctx context.Context) (Leader, error) {
	a.mu.Lock()
	l := Leader{Area: a.area, Announcement: a.announcement, Synced: a.synced}
	a.mu.Unlock()
	if !l.Synced {
		return l, nil
	}
	var err error
	if l.ResourceImports, err = list(ctx, a.cache, &mcv1alpha1.ResourceImportList{}, func(l *mcv1alpha1.ResourceImportList) []mcv1alpha1.ResourceImport { return l.Items }); err != nil {
		return l, err
	}
	l.ResourceExports, err = list(ctx, a.cache, &mcv1alpha1.ResourceExportList{}, func(l *mcv1alpha1.ResourceExportList) []mcv1alpha1.ResourceExport { return l.Items })
	return l, err
}

// announce creates this cluster's announcement, or touches it, and keeps how that went.
func (a *commonArea) announce(ctx context.Context, want *mcv1alpha1.MemberClusterAnnounce) (before, after Announcement) {
	now := time.Now()
	found, err := a.touch(ctx, want, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.announcement
	a.announcement.Tried, a.announcement.Error = now, ""
	if err != nil {
		a.announcement.Error = fmt.Sprintf("announce cluster %s to %s: %v", a.area.ClusterID, a.area, err)
		if rejected := apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err); rejected {
			a.announcement.Error += "; check that ca.crt and token of the ClusterSet's Secret are those of a ServiceAccount with the member role there"
		}
	} else {
		a.announcement.Done, a.announcement.Found = now, found
	}
	return before, a.announcement
}

func (a *commonArea) touch(ctx context.Context, want *mcv1alpha1.MemberClusterAnnounce, now time.Time) (found bool, err error) {
	if a.broken != nil {
		return false, a.broken
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	have := &mcv1alpha1.MemberClusterAnnounce{}
	err = a.client.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		return false, a.client.Create(ctx, want)
	case err != nil:
		return false, err
	case !have.DeletionTimestamp.IsZero():
		return false, fmt.Errorf("MemberClusterAnnounce %s is being deleted; announced again when it is gone", have.Name)
	case have.ClusterID != want.ClusterID || have.ClusterSetID != want.ClusterSetID || have.LeaderClusterID != want.LeaderClusterID:
		return false, fmt.Errorf("MemberClusterAnnounce %s is of cluster %s in ClusterSet %s with leader %s; delete it in the leader if that is out of date",
			have.Name, have.ClusterID, have.ClusterSetID, have.LeaderClusterID)
	}
	touched := have.DeepCopy()
	if touched.Annotations == nil {
		touched.Annotations = map[string]string{}
	}
	touched.Annotations[multicluster.AnnotationTouchTimestamp] = now.UTC().Format(time.RFC3339)
	return true, a.client.Patch(ctx, touched, client.MergeFrom(have))
}

// leave deletes what this cluster has in the leader: its exports, then its announcement, after
// which the leader forgets the cluster. Then it ends the connection. It is tried for a while if
// the leader is away; after that the leader removes the cluster when its announcement is old.
func (a *commonArea) leave(ctx context.Context, log *slog.Logger) {
	defer a.stop()
	if a.broken != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveFor)
	defer cancel()
	delay := retryMin
	for {
		err := a.leaveOnce(ctx)
		if err == nil {
			log.Info("left the ClusterSet", "area", a.area.String())
			return
		}
		select {
		case <-ctx.Done():
			log.Error("leaving the ClusterSet is given up; the leader removes this cluster when its announcement has expired",
				"area", a.area.String(), "error", err)
			return
		case <-time.After(delay):
			delay = min(2*delay, retryMost)
		}
	}
}

func (a *commonArea) leaveOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*leaderTimeout)
	defer cancel()
	exports := &mcv1alpha1.ResourceExportList{}
	err := a.client.List(ctx, exports, client.InNamespace(a.area.Namespace),
		client.MatchingLabels{multicluster.LabelSourceClusterID: a.area.ClusterID})
	if err != nil {
		return fmt.Errorf("list own ResourceExports: %w", err)
	}
	var errs []error
	for i := range exports.Items {
		re := &exports.Items[i]
		if isOwnExport(re) && re.DeletionTimestamp.IsZero() {
			errs = append(errs, client.IgnoreNotFound(a.client.Delete(ctx, re)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete own ResourceExports: %w", err)
	}
	announcement := &mcv1alpha1.MemberClusterAnnounce{}
	announcement.Namespace = a.area.Namespace
	announcement.Name = multicluster.AnnounceName(a.area.ClusterID)
	if err := a.client.Delete(ctx, announcement); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete MemberClusterAnnounce %s: %w", announcement.Name, err)
	}
	return nil
}
