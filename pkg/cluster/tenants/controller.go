package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

const (
	parallel = 4
	remedy   = "allow it (the controller's ClusterRole, admission policies and webhooks)"
)

// Scheme returns a scheme with every kind that the controller writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(contrailv4.AddToScheme(s), tombolov1alpha1.AddToScheme(s))
}

// SetupWithManager adds the controller to a manager with an election of the leader. namespace is the Namespace of the
// agents.
func SetupWithManager(mgr ctrl.Manager, namespace string) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	log := slog.Default().With("controller", "tenants")
	to, err := client.New(mgr.GetConfig(),
		client.Options{Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up the client for networks of tenants: %w", err)
	}
	c := newController(to, log, namespace)
	kinds := slices.Concat(c.tables.kinds.All(), c.tables.member.All())
	if c.watcher, err = watch.New(mgr.GetConfig(), log, kinds...); err != nil {
		return fmt.Errorf("set up the watches for networks of tenants: %w", err)
	}
	return mgr.Add(c)
}

// controller is the shell around the tables: watches fill them, and a queue writes.
type controller struct {
	tables  *tables
	to      client.Client
	queue   *retry.Queue
	watcher *watch.Watcher
}

func newController(to client.Client, log *slog.Logger, namespace string) *controller {
	c := &controller{tables: newTables(namespace), to: to}
	problems := problemlog.New(log, "the other failures are not listed")
	c.queue = retry.NewQueue(retry.Options{
		Parallel: parallel, Log: log,
		Again:    func(ctx context.Context) { c.tables.engine.Do(ctx, c.again) },
		Reported: retry.ReportTo(problems),
	})
	c.tables.networkSteps.Watch(func(changes []derive.Change[derive.Object, networkStep]) {
		for _, change := range changes {
			c.offerNetwork(change.Key, change.New)
		}
	})
	c.tables.routerSteps.Watch(func(changes []derive.Change[derive.Object, routerStep]) {
		for _, change := range changes {
			c.offerRouter(change.Key, change.New)
		}
	})
	c.tables.subnets.steps.Watch(func(changes []derive.Change[derive.Object, subnetStep]) {
		for _, change := range changes {
			c.offerSubnet(change.Key, change.New)
		}
	})
	c.tables.subnets.leaseSteps.Watch(func(changes []derive.Change[derive.Object, leaseStep]) {
		for _, change := range changes {
			c.offerLease(change.Key, change.New)
		}
	})
	c.tables.definitionSteps.Watch(func(changes []derive.Change[derive.Object, definitionStep]) {
		for _, change := range changes {
			c.offerDefinition(change.Key, change.New)
		}
	})
	return c
}

// Start writes states until ctx ends. The manager calls it in the replica that leads.
func (c *controller) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.watcher.Run(ctx) })
	running.Go(func() { c.tables.engine.Run(ctx) })
	running.Go(func() { c.queue.Run(ctx) })
	running.Wait()
	return nil
}

// again repeats all steps that are still due, since another client may have undone a step before a watch showed it.
func (c *controller) again() {
	for _, row := range c.tables.networkSteps.All() {
		c.offerNetwork(row.Key, row.Value)
	}
	for _, row := range c.tables.routerSteps.All() {
		c.offerRouter(row.Key, row.Value)
	}
	for _, row := range c.tables.subnets.steps.All() {
		c.offerSubnet(row.Key, row.Value)
	}
	for _, row := range c.tables.subnets.leaseSteps.All() {
		c.offerLease(row.Key, row.Value)
	}
	for _, row := range c.tables.definitionSteps.All() {
		c.offerDefinition(row.Key, row.Value)
	}
}

func (c *controller) offerNetwork(key derive.Object, s networkStep) {
	status := statusOf(s.Want.Status)
	status["virtualNetworkNetworkId"], status["ipFamilies"] = nil, nil // removed
	if id := s.Want.VirtualNetworkNetworkID; id != 0 {
		status["virtualNetworkNetworkId"] = id
	}
	if families := s.Want.IPFamilies; families != "" {
		status["ipFamilies"] = families
	}
	c.offer("VirtualNetwork", key, &contrailv4.VirtualNetwork{}, s.UID, s.Due, status)
}

func (c *controller) offerRouter(key derive.Object, s routerStep) {
	c.offer("VirtualNetworkRouter", key, &contrailv4.VirtualNetworkRouter{}, s.UID, s.Due, statusOf(s.Want))
}

func statusOf(s contrailv4.Status) map[string]any {
	return map[string]any{"state": s.State, "observation": s.Observation}
}

// offer queues the write of a status, or removes a queued write that is no longer due. The patch has the UID, so the
// API server refuses it for a recreated object.
func (c *controller) offer(kind string, key derive.Object, at client.Object, uid types.UID, due bool,
	status map[string]any,
) {
	object := problem.About(kind, key.Namespace, key.Name)
	o := retry.Offer{Key: object.String(), Group: key.Namespace, Late: true}
	if due {
		o.Writes = []retry.Write{{
			What:  "update the status of " + object.String(),
			Blame: problem.Problem{Object: object, Field: "status", Reason: retry.ReasonWriteFailed, Message: remedy},
			Do: func(ctx context.Context) error {
				text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
				if err != nil {
					return err
				}
				at.SetNamespace(key.Namespace)
				at.SetName(key.Name)
				return c.to.Status().Patch(ctx, at, client.RawPatch(types.MergePatchType, text))
			},
		}}
	}
	c.queue.Set(o)
}
