package member

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/retry"
	"github.com/tombolo-net/tombolo/pkg/runner"
)

const (
	settle           = 50 * time.Millisecond  // events that come together are planned together
	resync           = 5 * time.Minute        // even if nothing has happened
	retryMin         = 200 * time.Millisecond // after a failed write
	retryMost        = 30 * time.Second
	kindsRetry       = 5 * time.Second  // a kind is not served yet
	discoverEvery    = 30 * time.Second // retries of the Service range
	secretPoll       = 5 * time.Second  // reads of the Secrets that ClusterSets name
	clusterClaimWait = 30 * time.Second // looks for the optional kind ClusterClaim
)

// Scheme knows every kind the member controller reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(mcv1alpha1.AddToScheme(s))
	utilruntime.Must(mcv1alpha2.AddToScheme(s))
	utilruntime.Must(mcsv1alpha1.Install(s))
	return s
}

// SetupWithManager adds the member controller to a manager. namespace is the controller's own;
// its ClusterSet is taken from there. The controller brings its own cache, restricted to what
// it needs, and runs only while the manager is elected.
func SetupWithManager(mgr ctrl.Manager, cfg config.Config, namespace string) error {
	if namespace == "" {
		return fmt.Errorf("set up the member controller: its Namespace is unknown; set POD_NAMESPACE")
	}
	scheme := Scheme()
	own := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}}}
	watches, err := kubeclient.ForWatches(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("set up the member controller's cache: %w", err)
	}
	local, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: watches,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&mcv1alpha2.ClusterSet{}:        own,
			&mcv1alpha2.ClusterClaim{}:      own,
			&mcv1alpha1.Gateway{}:           own,
			&mcv1alpha1.ClusterInfoImport{}: own,
			&Endpoints{}:                    {Transform: stripForeignEndpoints},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the member controller's cache: %w", err)
	}
	writer, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up the member controller's client: %w", err)
	}
	log := slog.Default().With("controller", "member")
	times := runner.Options{Settle: settle, Resync: resync, RetryMin: retryMin, RetryMost: retryMost, Failed: func(err error, retry time.Duration) {
		log.Error("read the cluster's state; trying again", "in", retry, "error", err)
	}}
	return mgr.Add(&controller{
		namespace: namespace, config: cfg, log: log, mapper: mgr.GetRESTMapper(),
		cache: local, client: writer,
		local: runner.New(times), leader: runner.New(times),
		localWriter: retry.New(retryMin, retryMost, log), leaderWriter: retry.New(retryMin, retryMost, log),
		localReport:  newReporter(mgr.GetEventRecorder("antrea-mc-controller"), log),
		leaderReport: newReporter(mgr.GetEventRecorder("antrea-mc-controller"), log),
		serviceCIDR:  cfg.ServiceCIDR, secrets: map[string]*corev1.Secret{},
	})
}

// controller is the shell around Plan: it watches, and applies.
type controller struct {
	namespace string
	config    config.Config
	log       *slog.Logger
	mapper    apimeta.RESTMapper
	cache     cache.Cache
	client    client.Client // reads are live

	local, leader             *runner.Runner // of the rounds that write here, and there
	localWriter, leaderWriter *retry.Writer
	localReport, leaderReport *reporter

	mu               sync.Mutex // for what follows
	area             *commonArea
	leaving          map[*commonArea]context.CancelFunc
	secrets          map[string]*corev1.Secret // that ClusterSets name, as last read; nil for one that does not exist
	claims           bool                      // ClusterClaims are watched
	claimsTried      time.Time
	serviceCIDR      string
	serviceCIDRError string
	discoverTried    time.Time
}

func (c *controller) signal() {
	c.local.Trigger()
	c.leader.Trigger()
}

// Start runs the controller until ctx ends. The manager calls it.
func (c *controller) Start(ctx context.Context) error {
	for _, o := range []client.Object{
		&mcv1alpha2.ClusterSet{}, &mcv1alpha1.Gateway{}, &mcv1alpha1.ClusterInfoImport{},
		&mcsv1alpha1.ServiceExport{}, &mcsv1alpha1.ServiceImport{},
		&corev1.Service{}, &Endpoints{}, &discoveryv1.EndpointSlice{},
		&corev1.Node{}, &corev1.Namespace{},
	} {
		for {
			err := watch(ctx, c.cache, o, c.signal)
			if err == nil {
				break
			}
			c.log.Error("a kind cannot be watched yet; install the member's custom resource definitions", "error", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(kindsRetry):
			}
		}
	}
	done := make(chan error, 1)
	go func() { done <- c.cache.Start(ctx) }()
	if !c.cache.WaitForCacheSync(ctx) {
		return <-done
	}
	var runners sync.WaitGroup
	runners.Go(func() { c.pollSecrets(ctx) })
	runners.Go(func() { c.local.Run(ctx, c.localRound) })
	runners.Go(func() { c.leader.Run(ctx, c.leaderRound) })
	runners.Wait()
	return <-done
}

// localRound brings this cluster in line with the plan.
func (c *controller) localRound(ctx context.Context) (time.Time, error) {
	v, err := c.view(ctx)
	if err != nil {
		return time.Time{}, err
	}
	d, problems := Plan(v)
	c.reconnect(ctx, d)
	again, failures, lost := c.localWriter.Round(ctx, retried(c.client, Diff(v, d).Local))
	c.tell(ctx, lost)
	c.localReport.report(v, append(problems, failures...))
	return again, nil
}

// leaderRound brings the leader in line with the plan.
func (c *controller) leaderRound(ctx context.Context) (time.Time, error) {
	c.mu.Lock()
	area := c.area
	c.mu.Unlock()
	if area == nil {
		return time.Time{}, nil
	}
	v, err := c.view(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if v.Leader.Area != area.area {
		return time.Now(), nil // it has been replaced meanwhile
	}
	d, _ := Plan(v)
	if d.Announce != nil {
		before, after := area.announce(ctx, d.Announce)
		if before.Error != after.Error {
			c.leaderWriter.Forget()
			if after.Error != "" {
				c.log.Error("disconnected from the leader", "error", after.Error)
			} else {
				c.log.Info("connected to the leader again", "area", area.area.String())
			}
		}
		c.local.Trigger()
		return time.Now(), nil
	}
	if v.Leader.Announcement.Error != "" {
		return d.Again, nil // the next announcement finds out when the leader is back
	}
	again, failures, lost := c.leaderWriter.Round(ctx, retried(area.client, Diff(v, d).Leader))
	c.tell(ctx, lost)
	c.leaderReport.report(v, failures)
	return earlier(again, d.Again), nil
}

// tell logs that an API server could not be reached, which is none of the objects' fault.
func (c *controller) tell(ctx context.Context, lost error) {
	if lost != nil && ctx.Err() == nil {
		c.log.Error("write", "error", lost)
	}
}

// reconnect makes the connection to the leader the one that the plan wants.
func (c *controller) reconnect(ctx context.Context, d Desired) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.area
	switch {
	case d.Leave && old != nil:
		c.area = nil
		c.leave(ctx, old)
		return
	case d.Area == nil || (old != nil && old.area == *d.Area):
		return
	}
	area, err := connect(ctx, *d.Area, c.signal, c.log)
	if err != nil {
		area = brokenArea(*d.Area, err)
	}
	for other, cancel := range c.leaving {
		if sameMembership(other.area, *d.Area) {
			cancel() // it is back before it has left
		}
	}
	if old != nil {
		if sameMembership(old.area, *d.Area) {
			old.stop()
		} else {
			c.leave(ctx, old)
		}
	}
	c.area = area
	c.log.Info("joining", "cluster", d.Area.ClusterID, "clusterSet", d.Area.ClusterSet, "area", d.Area.String())
	c.signal()
}

// sameMembership says whether two areas are the same one reached in different ways.
func sameMembership(a, b Area) bool {
	return a.ClusterSet == b.ClusterSet && a.ClusterID == b.ClusterID && a.LeaderID == b.LeaderID && a.Namespace == b.Namespace
}

// leave leaves an area in the background; c.mu is held.
func (c *controller) leave(ctx context.Context, area *commonArea) {
	if c.leaving == nil {
		c.leaving = map[*commonArea]context.CancelFunc{}
	}
	ctx, cancel := context.WithCancel(ctx)
	c.leaving[area] = cancel
	go func() {
		area.leave(ctx, c.log)
		cancel()
		c.mu.Lock()
		delete(c.leaving, area)
		c.mu.Unlock()
	}()
}

// earlier is the earlier of two times, of which either may be zero for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
