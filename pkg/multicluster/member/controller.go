package member

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/policies"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/events"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

const (
	writers       = 16               // writes to one API server at the same time
	discoverEvery = 30 * time.Second // retries of the Service range
	secretPoll    = 5 * time.Second  // reads of the Secrets that ClusterSets name
	reportAgain   = time.Second      // looks for objects that Events are to be written on
)

// Scheme returns a scheme with every kind that the member controller reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(mcv1alpha1.AddToScheme(s))
	utilruntime.Must(mcv1alpha2.AddToScheme(s))
	utilruntime.Must(mcsv1alpha1.Install(s))
	utilruntime.Must(crdv1beta1.AddToScheme(s))
	utilruntime.Must(npv1alpha2.Install(s))
	utilruntime.Must(tombolov1alpha1.AddToScheme(s))
	utilruntime.Must(contrailv4.AddToScheme(s))
	return s
}

// SetupWithManager adds the member controller to a manager. namespace is the Namespace of the controller and of its
// ClusterSet. The controller has its own watches, which are restricted to the objects that it needs. It runs only while
// the manager is elected.
func SetupWithManager(mgr ctrl.Manager, cfg config.Config, namespace string) error {
	return SetupFollowing(mgr, cfg, "", namespace)
}

// SetupFollowing does the same, and lets the controller follow the changes of its configuration file. If file is empty,
// there is no configuration file.
func SetupFollowing(mgr ctrl.Manager, cfg config.Config, file, namespace string) error {
	return setUp(mgr, cfg, file, namespace, func(*controller) {})
}

// setUp does the work of SetupFollowing. It calls made with each controller: every new configuration starts a new one.
func setUp(mgr ctrl.Manager, cfg config.Config, file, namespace string, made func(*controller)) error {
	if namespace == "" {
		return fmt.Errorf("set up the member controller: its Namespace is unknown; set POD_NAMESPACE")
	}
	// The client has no rate limit. The number of writers and the API server's own fairness bound the writes.
	log := slog.Default().With("controller", "member")
	unlimited := kubeclient.WithWarnings(mgr.GetConfig(), log)
	unlimited.QPS = -1
	writer, err := client.New(unlimited,
		client.Options{Scheme: Scheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up the member controller's client: %w", err)
	}
	instance, err := os.Hostname() // the Pod's name
	if err != nil {
		return fmt.Errorf("read the Pod's name: %w", err)
	}
	return mgr.Add(&follower{file: file, config: cfg, log: log, make: func(cfg config.Config) *controller {
		c := newController(namespace, cfg, writer, log)
		c.kube = mgr.GetConfig()
		problems := problemlog.New(log, "Events on their objects have the others")
		c.events = events.NewWriter(events.Options{Client: writer, Controller: multicluster.ControllerName,
			Instance: instance, Log: log, Problems: problems, Wrote: c.writes.To("cluster")})
		c.reporter = &reporter{warn: c.events.Warn, find: c.tables.reference, log: problems,
			active: map[problem.Problem]bool{}}
		made(c)
		return c
	}})
}

// newController returns a controller with empty tables. Its writes to the leader wait for a connection.
func newController(namespace string, cfg config.Config, to client.Client, log *slog.Logger) *controller {
	c := &controller{
		tables: newTables(namespace, cfg), config: cfg, log: log, client: to,
		connecting: make(chan struct{}, 1), reporting: make(chan struct{}, 1), polling: make(chan struct{}, 1),
		connected: make(chan int, 1), leaving: map[*commonArea]context.CancelFunc{},
	}
	options := retry.Options{Parallel: writers, Log: log,
		Reported: func(retry.Offer, *problem.Problem) { signal(c.reporting) }}
	c.figures, c.writes, c.hops = metrics.NewTables(c.tables.Engine), metrics.NewWrites(), metrics.NewPropagation()
	options.Wrote, options.Done = c.writes.To("cluster"), c.done
	local := options
	local.Reported = c.refused
	local.Again = func(ctx context.Context) {
		c.offerAgain(ctx, c.localWrites, c.local, func(*writes.Write) bool { return true }, c.tables.local...)
	}
	c.localWrites = retry.NewQueue(local)
	options.Wrote = c.writes.To("leader")
	options.Again = func(ctx context.Context) {
		c.offerAgain(ctx, c.leaderWrites, c.leader, func(w *writes.Write) bool { return !isPaced(w) }, c.tables.leader)
	}
	c.leaderWrites = retry.NewQueue(options)
	c.leaderWrites.Hold()
	options.Parallel = labelWriters
	options.Again = func(ctx context.Context) {
		c.offerAgain(ctx, c.pacedWrites, c.paced, isPaced, c.tables.leader)
	}
	c.pacedWrites = retry.NewQueue(options)
	c.pacedWrites.Hold()
	c.pace = newLabelLimiter()
	c.hand()
	return c
}

// done measures how long exports and imports take, where traffic waits for them.
func (c *controller) done(o retry.Offer, took time.Duration) {
	switch kind, _, _ := strings.Cut(o.Key, " "); kind {
	case "ResourceExport":
		c.hops.Took(metrics.ServiceToExport, took)
	case "Service", "Endpoints", "EndpointSlice":
		c.hops.Took(metrics.ImportToService, took)
	}
}

// controller connects the tables to API servers. It fills the source tables, sends the writes, and keeps the connection
// to the leader.
type controller struct {
	tables *tables
	config config.Config
	kube   *rest.Config
	log    *slog.Logger
	client client.Client // reads are live

	pace *rate.Limiter // of pacedWrites

	localWrites, leaderWrites *retry.Queue
	pacedWrites               *retry.Queue // to the leader: the writes that isPaced selects
	events                    *events.Writer
	reporter                  *reporter
	figures                   *metrics.Tables
	writes                    *metrics.Writes
	hops                      *metrics.Propagation

	connecting chan struct{} // the membership has changed
	connected  chan int      // a pass has seen the connection of this number
	reporting  chan struct{} // Problems have changed
	polling    chan struct{} // ClusterSets have changed

	number int // of the last connection

	mu      sync.Mutex // for the fields below
	area    *commonArea
	leaving map[*commonArea]context.CancelFunc
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hand connects the tables to the queues and goroutines that act on their changes.
func (c *controller) hand() {
	t := c.tables
	for _, table := range t.local {
		table.Watch(func(changes []derive.Change[derive.Object, *writes.Write]) {
			c.localWrites.Set(offers(changes, c.local())...)
		})
	}
	t.leader.Watch(func(changes []derive.Change[derive.Object, *writes.Write]) {
		paced, others := parted(changes, func(change derive.Change[derive.Object, *writes.Write]) bool {
			return isPaced(cmp.Or(change.New, change.Old))
		})
		c.leaderWrites.Set(offers(others, c.leader())...)
		c.pacedWrites.Set(offers(paced, c.paced())...)
	})
	t.policies.Replicas.Watch(func(changes []derive.Change[derive.Object, *policies.Replica]) {
		c.leaderWrites.Set(c.policyEvents(changes)...)
	})
	t.base.Membership.Watch(func([]derive.Change[derive.Name, membership.Membership]) { signal(c.connecting) })
	t.base.ClusterSets.Watch(func([]derive.Change[derive.Object, *mcv1alpha2.ClusterSet]) { signal(c.polling) })
	t.base.Connection.Watch(func(changes []derive.Change[derive.Name, membership.Connection]) {
		select {
		case <-c.connected:
		default:
		}
		c.connected <- changes[0].New.Number
	})
	t.WatchProblems(func(_, _ []problem.Problem) { signal(c.reporting) })
}

// offers returns offers for a queue of writes, one for each change of a pass. They have the order of the keys, not the
// order that After demands.
func offers(changes []derive.Change[derive.Object, *writes.Write], to target) []retry.Offer {
	out := make([]retry.Offer, len(changes))
	for i, change := range changes {
		if change.New != nil {
			out[i] = offer(*change.New, to)
		} else {
			out[i] = retry.Offer{Key: writes.Key(change.Old.Kind, change.Old.Object)}
		}
	}
	return out
}

// parted are the elements of a list that are of a kind, and the others.
func parted[T any](list []T, is func(T) bool) (those, others []T) {
	for _, one := range list {
		if is(one) {
			those = append(those, one)
		} else {
			others = append(others, one)
		}
	}
	return those, others
}

// offerAgain queues the selected writes of some tables that are still due. A queue forgets a write that it has done. If
// another client undoes the write before the watch shows it, no change arrives. Then only offerAgain corrects it. The
// evaluating goroutine runs it, so it cannot queue a write that a pass has just withdrawn.
func (c *controller) offerAgain(ctx context.Context, q *retry.Queue, to func() target, is func(*writes.Write) bool,
	tables ...*writes.Table) {
	c.tables.Do(ctx, func() {
		var out []retry.Offer
		target := to()
		for _, table := range tables {
			for _, w := range derive.Values(table.All()) {
				if is(w) {
					out = append(out, offer(*w, target))
				}
			}
		}
		q.Set(out...)
	})
}

// local returns the target of writes to this cluster.
func (c *controller) local() target {
	return target{client: func(context.Context) client.Client { return c.client }, done: c.wrotePolicy}
}

// leader returns the target of writes to the leader. A write belongs to the connection for which it was decided. If
// there is another connection when the write is sent, the target has no client, even if the Namespace of the new
// connection has the same name.
func (c *controller) leader() target {
	decided, _ := c.tables.base.Connection.Get(membership.Here)
	return target{client: func(context.Context) client.Client {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.area == nil || c.area.number != decided.Number {
			return nil
		}
		return c.area.client
	}}
}

// paced returns the target of pacedWrites: the leader, as soon as the rate limit allows the write.
func (c *controller) paced() target {
	to := c.leader()
	return target{client: func(ctx context.Context) client.Client {
		if c.pace.Wait(ctx) != nil {
			return nil
		}
		return to.client(ctx)
	}}
}

// holdWrites holds the writes to the leader unless the leader has answered the last announcement. If a write is
// withdrawn while the leader is unavailable, it is never sent. The other writes resume once the leader answers. The
// caller holds c.mu.
func (c *controller) holdWrites() {
	if c.area == nil || c.area.broken != nil || c.area.state().Error != "" {
		c.leaderWrites.Hold()
		c.pacedWrites.Hold()
	} else {
		c.leaderWrites.Resume()
		c.pacedWrites.Resume()
	}
}

// Start runs the controller until ctx ends.
func (c *controller) Start(ctx context.Context) error {
	defer metrics.Expose(ctrlmetrics.Registry, c.figures, c.writes, c.hops, newStateMetrics(c))()
	t := c.tables
	watcher, err := watch.New(c.kube, c.log, t.Cluster.All()...)
	if err != nil {
		return err
	}
	// Writes to objects of this cluster never wait for the leader. So the tables with objects of the leader's Common Area
	// count as loaded from the start. They are empty until the connection exists.
	t.base.Connection.Loaded()
	t.Area.Loaded()
	t.OwnExports.Loaded()
	t.base.Secrets.Loaded()
	var running sync.WaitGroup
	for _, f := range []func(context.Context){
		watcher.Run, t.Run, c.discover, c.pollSecrets, c.connect, c.report, c.endPhases,
		c.localWrites.Run, c.leaderWrites.Run, c.pacedWrites.Run, c.events.Run,
	} {
		running.Go(func() { f(ctx) })
	}
	running.Wait()
	return nil
}

// report writes Events about Problems.
func (c *controller) report(ctx context.Context) {
	again := time.NewTimer(reportAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.reporting:
		case <-again.C:
		}
		if !c.reporter.report(c.problems()) {
			again.Reset(reportAgain)
		}
	}
}

// problems returns the Problems of tables and writes.
func (c *controller) problems() []problem.Problem {
	paced := c.pacedWrites.Problems()
	paced = paced[:min(1, len(paced))] // the other Problems of labels often have the same cause
	return slices.Concat(c.tables.Problems(), c.localWrites.Problems(), c.leaderWrites.Problems(), paced)
}

// connect makes the connection to the leader that the membership asks for.
func (c *controller) connect(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			c.mu.Lock()
			area := c.area
			c.mu.Unlock()
			if area != nil {
				area.stop()
			}
			return
		case <-c.connecting:
		}
		if m, ok := c.tables.base.Membership.Get(membership.Here); ok {
			c.reconnect(ctx, m)
		}
	}
}

func (c *controller) reconnect(ctx context.Context, m membership.Membership) {
	c.mu.Lock()
	old := c.area
	switch {
	case m.Leave && old != nil:
		c.area = nil
		c.holdWrites()
	case m.Area == nil || (old != nil && old.area == *m.Area):
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	if m.Leave {
		if old != nil {
			old.disconnect()
			c.tables.base.Connection.Delete(membership.Here)
			c.leave(ctx, old)
		}
		return
	}
	for other, cancel := range c.leavingAreas() {
		if sameMembership(other.area, *m.Area) {
			cancel() // it is back before it has left
		}
	}
	if old != nil {
		old.disconnect()
		if sameMembership(old.area, *m.Area) {
			old.stop()
		} else {
			c.leave(ctx, old)
		}
	}
	c.number++
	area := newArea(*m.Area, c.number, c)
	c.mu.Lock()
	c.area = area
	c.holdWrites()
	c.mu.Unlock()
	c.log.Info("joining", "cluster", m.Area.ClusterID, "clusterSet", m.Area.ClusterSet, "area", m.Area.String())
	// A pass must not take objects of the new area for objects of the old one. So the watches start once a pass has seen
	// the new connection.
	c.tables.base.Connection.Set(membership.Here, membership.Connection{Number: area.number, Area: *m.Area})
	for {
		select {
		case <-ctx.Done():
			return
		case seen := <-c.connected:
			if seen != area.number {
				continue
			}
		}
		break
	}
	area.start(ctx, c)
}

func (c *controller) leavingAreas() map[*commonArea]context.CancelFunc {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.leaving)
}

// sameMembership reports whether two areas are the same ClusterSet and cluster ID. Their server and credentials may
// differ.
func sameMembership(a, b membership.Area) bool {
	return a.ClusterSet == b.ClusterSet && a.ClusterID == b.ClusterID && a.LeaderID == b.LeaderID &&
		a.Namespace == b.Namespace
}

// leave leaves an area in the background.
func (c *controller) leave(ctx context.Context, area *commonArea) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.leaving[area] = cancel
	c.mu.Unlock()
	go func() {
		area.leave(ctx, c.log)
		cancel()
		c.mu.Lock()
		delete(c.leaving, area)
		c.mu.Unlock()
	}()
}
