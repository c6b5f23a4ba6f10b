package externalip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/events"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// LeaseName is the Lease of the replica that assigns addresses.
const LeaseName = "tombolo-controller"

const (
	// controllerName is the reporting controller of Events.
	controllerName = "tombolo-controller"

	parallel = 4
	remedy   = "allow it (the controller's ClusterRole, admission policies and webhooks)"
)

// Scheme returns a scheme with every kind that the controller reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(clientgoscheme.AddToScheme(s), crdv1beta1.AddToScheme(s))
}

// SetupWithManager adds the controller to a manager with an election of the leader. identity names this process in
// Events.
func SetupWithManager(mgr ctrl.Manager, identity string) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	log := slog.Default().With("controller", "external-ip")
	to, err := client.New(mgr.GetConfig(),
		client.Options{Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up the client for external addresses: %w", err)
	}
	c := newController(to, log, identity)
	if c.watcher, err = watch.New(mgr.GetConfig(), log, c.tables.kinds.All()...); err != nil {
		return fmt.Errorf("set up the watches for external addresses: %w", err)
	}
	return mgr.Add(c)
}

// controller is the shell around the tables: watches fill them, and a queue writes.
type controller struct {
	log     *slog.Logger
	tables  *tables
	to      client.Client
	queue   *retry.Queue
	watcher *watch.Watcher
	events  *events.Writer
}

func newController(to client.Client, log *slog.Logger, identity string) *controller {
	c := &controller{log: log, tables: newTables(), to: to}
	problems := problemlog.New(log, "the Events of Services and ExternalIPPools, and their conditions, have the others")
	c.events = events.NewWriter(events.Options{
		Client: to, Controller: controllerName, Instance: identity, Log: log, Problems: problems,
	})
	c.queue = retry.NewQueue(retry.Options{
		Parallel: parallel, Log: log,
		Again:    func(ctx context.Context) { c.tables.engine.Do(ctx, c.again) },
		Reported: retry.ReportTo(problems),
	})
	c.tables.serviceSteps.Watch(func(changes []derive.Change[derive.Object, serviceStep]) {
		for _, change := range changes {
			c.offerService(change.Key, change.New)
			if p := change.New.Problem; p != nil && (change.Old.Problem == nil || *change.Old.Problem != *p) {
				c.warn(metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, change.Key, change.New.Facts.UID, *p)
			}
		}
	})
	c.tables.poolSteps.Watch(func(changes []derive.Change[derive.Object, poolStep]) {
		for _, change := range changes {
			c.offerPool(change.Key, change.New)
			for _, p := range change.New.Problems {
				if !slices.Contains(change.Old.Problems, p) {
					c.warn(metav1.TypeMeta{APIVersion: crdv1beta1.GroupVersion.String(), Kind: "ExternalIPPool"}, change.Key,
						change.New.Facts.UID, p)
				}
			}
		}
	})
	return c
}

// Start assigns addresses until ctx ends. The manager calls it in the replica that leads.
func (c *controller) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.watcher.Run(ctx) })
	running.Go(func() { c.tables.engine.Run(ctx) })
	running.Go(func() { c.queue.Run(ctx) })
	running.Go(func() { c.events.Run(ctx) })
	running.Wait()
	return nil
}

// again repeats all steps that are still due, since another client may have undone a step before a watch showed it.
func (c *controller) again() {
	for _, row := range c.tables.serviceSteps.All() {
		c.offerService(row.Key, row.Value)
	}
	for _, row := range c.tables.poolSteps.All() {
		c.offerPool(row.Key, row.Value)
	}
}

// offerService offers the write of a Service's status to the queue, or withdraws it.
func (c *controller) offerService(key derive.Object, s serviceStep) {
	object := problem.Object{Kind: "Service", Namespace: key.Namespace, Name: key.Name}
	o := retry.Offer{Key: object.String(), Group: key.Namespace}
	if s.Due {
		o.Writes = []retry.Write{{
			What:  "update the status of " + object.String(),
			Blame: problem.Problem{Object: object, Field: "status", Reason: retry.ReasonWriteFailed, Message: remedy},
			Do: func(ctx context.Context) error {
				text, err := servicePatch(s, time.Now())
				if err != nil {
					return err
				}
				at := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				return c.to.Status().Patch(ctx, at, client.RawPatch(types.StrategicMergePatchType, text))
			},
		}}
	}
	c.queue.Set(o)
}

// servicePatch is a strategic merge patch, so conditions of other writers stay. It has the UID, so the API server
// refuses it for a Service that was made again.
func servicePatch(s serviceStep, now time.Time) ([]byte, error) {
	condition := map[string]any{"type": ConditionAssigned, "$patch": "delete"}
	if s.Want != (reported{}) {
		condition = map[string]any{
			"type": ConditionAssigned, "status": s.Want.Status, "reason": s.Want.Reason, "message": s.Want.Message,
		}
		if s.Facts.Reported.Status != s.Want.Status {
			condition["lastTransitionTime"] = metav1.NewTime(now)
		}
	}
	status := map[string]any{"conditions": []any{condition}}
	var ingress []any
	for _, ip := range s.Addrs {
		if ip.IsValid() {
			ingress = append(ingress, map[string]any{"ip": ip.String(), "ipMode": corev1.LoadBalancerIPModeVIP})
		}
	}
	status["loadBalancer"] = map[string]any{"ingress": ingress}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.Facts.UID}, "status": status})
}

// offerPool offers the write of a pool's status to the queue, or withdraws it.
func (c *controller) offerPool(key derive.Object, s poolStep) {
	object := problem.Object{Kind: "ExternalIPPool", Name: key.Name}
	o := retry.Offer{Key: object.String(), Group: "pools", Late: true}
	if s.Due {
		o.Writes = []retry.Write{{
			What:  "update the status of " + object.String(),
			Blame: problem.Problem{Object: object, Field: "status", Reason: retry.ReasonWriteFailed, Message: remedy},
			Do: func(ctx context.Context) error {
				status := s.Want.DeepCopy()
				for i := range status.Conditions {
					if status.Conditions[i].LastTransitionTime.IsZero() {
						status.Conditions[i].LastTransitionTime = metav1.Now()
					}
				}
				text, err := json.Marshal(map[string]any{
					"metadata": map[string]any{"uid": s.Facts.UID}, "status": status,
				})
				if err != nil {
					return err
				}
				at := &crdv1beta1.ExternalIPPool{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
				return c.to.Status().Patch(ctx, at, client.RawPatch(types.MergePatchType, text))
			},
		}}
	}
	c.queue.Set(o)
}

// warn has an Event written about a problem of an object.
func (c *controller) warn(kind metav1.TypeMeta, key derive.Object, uid types.UID, p problem.Problem) {
	// A refused Event is one of too many: the condition has the problem as well.
	c.events.Warn(corev1.ObjectReference{
		APIVersion: kind.APIVersion, Kind: kind.Kind, Namespace: key.Namespace, Name: key.Name, UID: uid,
	}, p)
}
