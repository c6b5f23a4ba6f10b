package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configplanev1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/configplane/v1alpha1"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// parallel is how many writes run at the same time.
const parallel = 16

// Scheme returns a scheme with every kind that the leader reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(clientgoscheme.AddToScheme(s), mcv1alpha1.AddToScheme(s), mcv1alpha2.AddToScheme(s),
		tombolov1alpha1.AddToScheme(s), contrailv4.AddToScheme(s), configplanev1alpha1.AddToScheme(s))
}

// SetupWithManager adds the leader controller to a manager. namespace is the Common Area, in which the controller
// itself runs. The controller reads and writes nothing outside of it, unless its cluster is the central one.
func SetupWithManager(mgr ctrl.Manager, cfg config.Config, namespace string) error {
	if namespace == "" {
		return errors.New("set up the leader controller: its Namespace is unknown; set POD_NAMESPACE")
	}
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	// The client has no rate limit. The number of writers and the API server's own fairness bound the writes.
	log := slog.Default().With("controller", "leader")
	unlimited := kubeclient.WithWarnings(mgr.GetConfig(), log)
	unlimited.QPS = -1
	to, err := client.New(unlimited,
		client.Options{Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up the leader controller's client: %w", err)
	}
	c := controllerOf(newTablesOf(cfg.Central), to, log)
	c.watcher, err = watch.New(mgr.GetConfig(), log,
		append(c.tables.kinds.All(watch.In(namespace)), c.tables.around.All()...)...)
	if err != nil {
		return fmt.Errorf("set up the leader controller's watches: %w", err)
	}
	return mgr.Add(c)
}

// controller connects the tables to the API server. Watches fill the tables, and a queue writes their steps.
type controller struct {
	problems *problemlog.Log
	tables   *tables
	clock    *clock
	queue    *retry.Queue
	writer   *writer
	watcher  *watch.Watcher // nil if the tables are filled without watches
	figures  *metrics.Tables
	writes   *metrics.Writes
	hops     *metrics.Propagation
}

func newController(to client.Client, log *slog.Logger) *controller {
	return controllerOf(newTables(), to, log)
}

// controllerOf returns the shell around tables.
func controllerOf(t *tables, to client.Client, log *slog.Logger) *controller {
	c := &controller{tables: t, clock: newClock(t), figures: metrics.NewTables(t.engine),
		writes: metrics.NewWrites(), hops: metrics.NewPropagation()}
	c.problems = problemlog.New(log, "the conditions of ResourceExports and of the ClusterSet report what is not imported")
	c.queue = retry.NewQueue(retry.Options{Parallel: parallel, Log: log, Again: c.offerAgain,
		Reported: c.refused, Wrote: c.writes.To("leader"), Done: c.done})
	c.clock.watch(time.Now)
	c.writer = &writer{to: to, queue: c.queue, tables: t, now: time.Now}
	c.writer.watch(t)
	t.engine.WatchProblems(func(added, _ []problem.Problem) {
		for _, p := range added {
			member := ""
			if p.Kind == "MemberClusterAnnounce" {
				member = p.Name
			}
			c.problems.Came(member, p)
		}
	})
	return c
}

// done measures how long exports take until they are imported. A status is not waited for.
func (c *controller) done(o retry.Offer, took time.Duration) {
	if strings.HasPrefix(o.Key, importKey) && !o.Late {
		c.hops.Took(metrics.ExportToImport, took)
	}
}

// refused logs a write that the API server refused. If the write is of an import, the status of its exports gets the
// refusal.
func (c *controller) refused(of retry.Offer, p *problem.Problem) {
	if p != nil {
		c.problems.Came(of.Member, *p)
	}
	name, isImport := strings.CutPrefix(of.Key, importKey)
	if !isImport {
		return
	}
	var o derive.Object
	o.Namespace, o.Name, _ = strings.Cut(name, "/")
	if p == nil || p.Field == statusField {
		c.tables.facts.refused.Delete(o)
		return
	}
	c.tables.facts.refused.Set(o, p.Message)
}

// Start runs the controller until ctx ends. The manager calls it.
func (c *controller) Start(ctx context.Context) error {
	defer metrics.Expose(ctrlmetrics.Registry, c.figures, c.writes, c.hops)()
	var running sync.WaitGroup
	if c.watcher != nil {
		running.Go(func() { c.watcher.Run(ctx) })
	}
	running.Go(func() { c.tables.engine.Run(ctx) })
	running.Go(func() { c.queue.Run(ctx) })
	running.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.clock.tick(time.Now())
			}
		}
	})
	running.Wait()
	return nil
}

// offerAgain queues all steps that are still due. It runs between two passes, so it cannot queue a step that a pass has
// just withdrawn.
func (c *controller) offerAgain(ctx context.Context) {
	c.tables.engine.Do(ctx, func() { c.writer.again(c.tables) })
}
