// Package traceflow serves the kind Traceflow: it sends the packet of an object, follows it through the Nodes of the
// cluster, and writes its path into the status.
//
// Each replica of the relay runs a Controller. A replica claims an object by writing the phase Running. If several
// replicas try, the API server accepts one write. So no leader is elected, and a relay that cannot reach the API server
// continues to run.
package traceflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

const (
	// AtOnce is how many objects a replica follows at a time, and liveAtOnce how many of them wait for live traffic, which
	// may take minutes. Further objects wait. The charts run two replicas, which follow 16 together.
	AtOnce     = 8
	liveAtOnce = 4

	defaultTimeout = 20 * time.Second
	// grace is the time that is added to the timeout of an object that another replica has claimed, before it counts as
	// abandoned. It is also how long a replica tries to write a status.
	grace = 10 * time.Second
	// stopLimit is how long a replica that stops may take to return an object.
	stopLimit = 2 * time.Second
	// again is how long an object waits that this replica cannot follow now.
	again = 2 * time.Second
	// kindEvery is how often the kind is looked for while the cluster does not have it.
	kindEvery = 30 * time.Second
	// syncLimit is how long the first list of objects may take. A relay that cannot reach the API server continues to run.
	syncLimit = 24 * time.Hour
	// nodeLimit is how long a Node may take until it watches.
	nodeLimit = 5 * time.Second
	// Bounds of what a status has.
	maxReason = 4 << 10
	maxNamed  = 10 // Nodes that were not watched
	maxFault  = 300
)

// Controller serves Traceflows.
type Controller struct {
	Client  client.Client // of Traceflows
	Live    client.Reader // of Traceflows, from the API server
	Objects client.Reader // of kinds of follow.Scheme; reads are live
	Agents  follow.Agents // of the cluster's Nodes
	Log     *slog.Logger

	live atomic.Int32 // objects that wait for live traffic

	mu       sync.Mutex
	returned map[types.UID]time.Time // when this replica has returned an object
}

// AddWhenServed adds the controller to a manager as soon as the API server has the kind, until ctx ends.
func (c *Controller) AddWhenServed(ctx context.Context, mgr ctrl.Manager) error {
	reported := false
	for {
		// A controller that cannot list its kind would end the relay.
		err := c.Live.List(ctx, &crdv1beta1.TraceflowList{}, client.Limit(1))
		switch {
		case err == nil:
			return c.Add(mgr)
		case !reported:
			reported = true
			c.Log.Warn("Traceflows are not served yet: apply tombolo-crds.yml and tombolo-observe.yml of this version",
				"error", err)
		}
		timer := time.NewTimer(kindEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// Add adds the controller to a manager. It runs in each replica.
func (c *Controller) Add(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("traceflow").For(&crdv1beta1.Traceflow{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: AtOnce, NeedLeaderElection: ptr.To(false),
			CacheSyncTimeout: syncLimit,
			// With several workers, the priority queue of controller-runtime 0.24 can block for ever when it is shut down
			// (controller-runtime#3538, mended in 0.25). A replica that stops would take 30 s longer.
			UsePriorityQueue: ptr.To(false)}).Complete(c)
}

// Reconcile follows the packet of an object that no replica has taken.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var t crdv1beta1.Traceflow
	if err := c.Client.Get(ctx, request.NamespacedName, &t); err != nil || t.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch t.Status.Phase {
	case crdv1beta1.TraceflowSucceeded, crdv1beta1.TraceflowFailed:
		return ctrl.Result{}, nil
	case crdv1beta1.TraceflowRunning:
		// Another replica follows it, or this one did before it was started again.
		if left := time.Until(endOf(&t).Add(grace)); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
		return ctrl.Result{}, c.write(ctx, &t, failed("the replica of %s that followed the packet has ended: create another "+
			"Traceflow", api.RelayService))
	}
	if left := c.yields(t.UID); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if t.Spec.LiveTraffic {
		defer c.live.Add(-1)
		if c.live.Add(1) > liveAtOnce {
			return ctrl.Result{RequeueAfter: again}, nil
		}
	}
	start := t.Status.StartTime
	if start == nil {
		// The API server keeps whole seconds.
		start = ptr.To(metav1.NewTime(time.Now().Add(time.Second - 1).Truncate(time.Second)))
	}
	t.Status = crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowRunning, DataplaneTag: api.PacketDSCP,
		StartTime: start}
	switch err := c.Client.Status().Update(ctx, &t); {
	case apierrors.IsConflict(err): // the watch will bring what has changed
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	status, result := c.follow(ctx, &t), ctrl.Result{}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		status = crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowPending} // for another replica
	}
	if status.Phase == crdv1beta1.TraceflowPending {
		c.hasReturned(t.UID)
		result.RequeueAfter = again
	}
	status.StartTime = t.Status.StartTime
	return result, c.write(ctx, &t, status)
}

// yields returns how long this replica leaves an object to other replicas, since it has just given it up.
func (c *Controller) yields(uid types.UID) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.returned[uid]
	if !ok {
		return 0
	}
	return again - time.Since(at)
}

// hasReturned notes that this replica has returned an object.
func (c *Controller) hasReturned(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returned == nil {
		c.returned = map[types.UID]time.Time{}
	}
	maps.DeleteFunc(c.returned, func(_ types.UID, at time.Time) bool { return time.Since(at) > again })
	c.returned[uid] = time.Now()
}

// endOf returns when the time of an object is over.
func endOf(t *crdv1beta1.Traceflow) time.Time {
	if t.Status.StartTime == nil {
		return time.Now()
	}
	return t.Status.StartTime.Add(timeoutOf(t))
}

// write writes the status of an object that is Running. It retries until grace is over. If another replica has finished
// the object meanwhile, it stays as it is.
func (c *Controller) write(ctx context.Context, t *crdv1beta1.Traceflow, status crdv1beta1.TraceflowStatus) error {
	was := t.DeepCopy()
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, grace, true, func(ctx context.Context) (bool, error) {
		next := was.DeepCopy()
		next.Status = status
		last = c.Client.Status().Update(ctx, next)
		switch {
		case last == nil, apierrors.IsNotFound(last):
			return true, nil
		case apierrors.IsInvalid(last):
			return false, last
		case !apierrors.IsConflict(last):
			return false, nil
		case status.Phase == crdv1beta1.TraceflowPending: // perhaps written before, and taken by another replica
			return true, nil
		}
		var have crdv1beta1.Traceflow
		if err := c.Live.Get(ctx, client.ObjectKeyFromObject(t), &have); err != nil {
			return apierrors.IsNotFound(err), nil
		}
		if have.UID != t.UID || have.Status.Phase != crdv1beta1.TraceflowRunning ||
			!have.Status.StartTime.Equal(t.Status.StartTime) {
			return true, nil
		}
		was = &have
		return false, nil
	})
	if err != nil && last != nil {
		err = last
	}
	return err
}

func timeoutOf(t *crdv1beta1.Traceflow) time.Duration {
	if t.Spec.Timeout == 0 {
		return defaultTimeout
	}
	return time.Duration(t.Spec.Timeout) * time.Second
}

func failed(format string, args ...any) crdv1beta1.TraceflowStatus {
	return crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowFailed, DataplaneTag: api.PacketDSCP,
		Reason: follow.Short(fmt.Sprintf(format, args...), maxReason)}
}

// follow sends the packet of an object, and returns its path. If the Node of the source is not connected to this
// replica, the status is Pending: it may be connected to another one.
func (c *Controller) follow(ctx context.Context, t *crdv1beta1.Traceflow) crdv1beta1.TraceflowStatus {
	q, err := QuestionOf(&t.Spec)
	if err != nil {
		return failed("%s", err)
	}
	ctx, cancel := context.WithDeadline(ctx, endOf(t))
	defer cancel()
	c.Log.Info("follows a packet", "traceflow", t.Name, "from", q.From, "to", q.To, "live", t.Spec.LiveTraffic)
	if t.Spec.LiveTraffic {
		return c.find(ctx, t, q)
	}
	answer, err := follow.SendTraceflow(ctx, []follow.Cluster{{Objects: c.Objects, Agents: c.Agents,
		Timeout: min(nodeLimit, timeoutOf(t)/3)}}, q)
	over := ""
	if ctx.Err() != nil {
		over = fmt.Sprintf("the path was not known within spec.timeout of %s: ", timeoutOf(t))
	}
	switch {
	case err != nil && over == "" && errors.Is(err, follow.ErrNotConnected):
		return crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowPending,
			Reason: follow.Short(err.Error(), maxReason), DataplaneTag: api.PacketDSCP}
	case err != nil:
		return failed("%s%s", over, err)
	}
	status := follow.StatusOf(answer)
	if status.Phase == crdv1beta1.TraceflowFailed {
		status.Reason = over + status.Reason + named("not watched", answer.Unwatched)
	}
	status.Reason = follow.Short(status.Reason, maxReason)
	return status
}

// named lists some Nodes that have failed, each with its error.
func named(what string, faults []string) (out string) {
	slices.Sort(faults)
	for i, text := range faults {
		if i == maxNamed {
			return fmt.Sprintf("%s; and %d more", out, len(faults)-maxNamed)
		}
		out += "; " + what + ": " + follow.Short(text, maxFault)
	}
	return out
}
