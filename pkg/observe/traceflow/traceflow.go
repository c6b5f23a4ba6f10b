// Package traceflow serves the kind Traceflow: it sends the packet of an object, follows it through the Nodes of the
// cluster, and writes its path into the status.
//
// Each replica of the relay runs a Controller. A replica takes an object by writing the phase Running: of several
// replicas that try, the API server lets one. So there is no leader, and a relay whose API server is away goes on.
package traceflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

const (
	// AtOnce is how many objects a replica follows at a time. Others wait.
	AtOnce         = 16
	defaultTimeout = 20 * time.Second
	// grace is how long after its timeout an object that another replica has taken may be Running.
	grace = 10 * time.Second
	// stopLimit is how long a replica that stops may take to return an object.
	stopLimit = 2 * time.Second
	// kindEvery is how often the kind is looked for while the cluster does not have it.
	kindEvery = 30 * time.Second
)

// Controller serves Traceflows.
type Controller struct {
	Client  client.Client // of Traceflows
	Objects client.Reader // of kinds of follow.Scheme; reads are live
	Agents  follow.Agents // of the cluster's Nodes
	Log     *slog.Logger

	now func() time.Time
}

// AddWhenServed adds the controller to a manager as soon as the API server has the kind, until ctx ends.
func (c *Controller) AddWhenServed(ctx context.Context, mgr ctrl.Manager) error {
	kind := crdv1beta1.GroupVersion.WithKind("Traceflow")
	reported := false
	for {
		_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case err == nil:
			return c.Add(mgr)
		case !reported:
			reported = true
			log := c.Log.Warn
			if meta.IsNoMatchError(err) {
				log = c.Log.Info
			}
			log("Traceflows are not served yet: apply tombolo-crds.yml of this version", "reason", err)
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
		WithOptions(controller.Options{MaxConcurrentReconciles: AtOnce, NeedLeaderElection: ptr.To(false)}).Complete(c)
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
		if t.Status.StartTime != nil {
			if left := t.Status.StartTime.Add(timeoutOf(&t) + grace).Sub(c.time()); left > 0 {
				return ctrl.Result{RequeueAfter: left}, nil
			}
		}
		return ctrl.Result{}, c.write(ctx, &t, failed("the replica of %s that followed the packet has ended: create another "+
			"Traceflow", api.RelayService))
	}
	t.Status = crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowRunning, DataplaneTag: api.PacketDSCP,
		StartTime: ptr.To(metav1.NewTime(c.time()))}
	switch err := c.Client.Status().Update(ctx, &t); {
	case apierrors.IsConflict(err): // the watch will bring what has changed
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	status := c.follow(ctx, &t)
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		status = crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowPending} // for another replica
	} else {
		status.StartTime = t.Status.StartTime
	}
	return ctrl.Result{}, c.write(ctx, &t, status)
}

func (c *Controller) time() time.Time {
	if c.now != nil {
		return c.now()
	}
	return time.Now()
}

// write writes the status of an object that this replica has taken.
func (c *Controller) write(ctx context.Context, t *crdv1beta1.Traceflow, status crdv1beta1.TraceflowStatus) error {
	key, uid := client.ObjectKeyFromObject(t), t.UID
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		t.Status = status
		err := c.Client.Status().Update(ctx, t)
		if apierrors.IsConflict(err) {
			if reading := c.Client.Get(ctx, key, t); reading != nil || t.UID != uid {
				return reading // it is gone
			}
		}
		return err
	})
	return client.IgnoreNotFound(err)
}

func timeoutOf(t *crdv1beta1.Traceflow) time.Duration {
	if t.Spec.Timeout == 0 {
		return defaultTimeout
	}
	return time.Duration(t.Spec.Timeout) * time.Second
}

func failed(format string, args ...any) crdv1beta1.TraceflowStatus {
	return crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowFailed, Reason: fmt.Sprintf(format, args...),
		DataplaneTag: api.PacketDSCP}
}

// follow sends the packet of an object, and returns its path.
func (c *Controller) follow(ctx context.Context, t *crdv1beta1.Traceflow) crdv1beta1.TraceflowStatus {
	q, err := QuestionOf(&t.Spec)
	if err != nil {
		return failed("%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(t))
	defer cancel()
	c.Log.Info("follows a packet", "traceflow", t.Name, "from", q.From, "to", q.To, "live", t.Spec.LiveTraffic)
	if t.Spec.LiveTraffic {
		return c.live(ctx, t, q)
	}
	answer, err := follow.SendTraceflow(ctx, []follow.Cluster{{Objects: c.Objects, Agents: c.Agents,
		Timeout: timeoutOf(t)}}, q)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		return failed("the path was not known within spec.timeout of %s: %s", timeoutOf(t), err)
	case err != nil:
		return failed("%s", err)
	}
	status := follow.StatusOf(answer)
	if status.Phase == crdv1beta1.TraceflowFailed {
		for _, text := range answer.Unwatched {
			status.Reason += "; not watched: " + text
		}
	}
	return status
}
