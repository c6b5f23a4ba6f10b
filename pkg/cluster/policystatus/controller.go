package policystatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/events"
	"github.com/tombolo-net/tombolo/pkg/observe/metrics"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// LeaseName is the Lease of the replica that writes. The ServiceAccount has the same name.
const LeaseName = "tombolo-policy-controller"

const (
	parallel = 8
	// settle is how long a status waits for the next one: Nodes report one after another.
	settle = time.Second
	// maxEvents is how many Events one state of an object is worth.
	maxEvents = 5
	// controllerName is the reporting controller of the Events.
	controllerName = "tombolo-controller"

	remedy = "allow it (the controller's ClusterRole, admission policies and webhooks)"
)

// Scheme returns a scheme with every kind that the controller reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(clientgoscheme.AddToScheme(s), crdv1beta1.AddToScheme(s),
		tombolov1alpha1.AddToScheme(s), npv1alpha2.Install(s))
}

// SetupWithManager adds the controller to a manager. The Pod's name names this process in Events.
func SetupWithManager(mgr ctrl.Manager, at Process) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	log := slog.Default().With("controller", "policy")
	to, err := client.New(mgr.GetConfig(),
		client.Options{Scheme: scheme, Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up the policy controller's client: %w", err)
	}
	c := newController(to, log, at.Pod)
	if c.watcher, err = watch.New(mgr.GetConfig(), log, c.tables.kinds.All()...); err != nil {
		return fmt.Errorf("set up the policy controller's watches: %w", err)
	}
	c.register(mgr)
	return errors.Join(mgr.Add(reader{c}), mgr.Add(c), c.addInfo(mgr, at, log))
}

// controller is the shell around the tables: watches fill them, and a queue writes.
type controller struct {
	log     *slog.Logger
	tables  *tables
	to      client.Client
	queue   *retry.Queue
	events  *events.Writer
	watcher *watch.Watcher
	now     func() time.Time
	figures *metrics.Tables
	writes  *metrics.Writes

	// The evaluating goroutine has the following fields.
	leads    bool
	deferred map[problem.Object][]problem.Problem // whose Events the writer has refused
}

func newController(to client.Client, log *slog.Logger, identity string) *controller {
	t := newTables()
	c := &controller{log: log, tables: t, to: to, now: time.Now,
		figures: metrics.NewTables(t.engine), writes: metrics.NewWrites(),
		deferred: map[problem.Object][]problem.Problem{}}
	problems := problemlog.New(log, "the Events of policies and groups, and their conditions, have the others")
	c.events = events.NewWriter(events.Options{Client: to, Controller: controllerName, Instance: identity, Log: log,
		Problems: problems, Wrote: c.writes.To("policy")})
	c.queue = retry.NewQueue(retry.Options{Parallel: parallel, Log: log, Wrote: c.writes.To("policy"),
		Again:    func(ctx context.Context) { t.engine.Do(ctx, c.again) },
		Reported: retry.ReportTo(problems)})
	// Problems of policies and groups are in their status. These are the controller's own.
	t.engine.WatchProblems(func(added, _ []problem.Problem) {
		problems.Changed(slices.DeleteFunc(slices.Clone(added), func(p problem.Problem) bool {
			return p.Reason != derive.ReasonEvaluationFailed
		}), nil)
	})
	t.steps.Watch(func(changes []derive.Change[policy.Key, step]) {
		for _, change := range changes {
			c.changed(policyTarget(change.Key), change.Old, change.New)
		}
	})
	t.groupSteps.Watch(func(changes []derive.Change[derive.Object, step]) {
		for _, change := range changes {
			c.changed(groupTarget(change.Key), change.Old, change.New)
		}
	})
	return c
}

// reader fills the tables of every replica, since the webhooks of each use them.
type reader struct{ *controller }

// NeedLeaderElection returns false, since every replica reads.
func (reader) NeedLeaderElection() bool { return false }

// Start runs watches and tables until ctx ends. The manager calls it.
func (r reader) Start(ctx context.Context) error {
	defer metrics.Expose(ctrlmetrics.Registry, r.figures, r.writes)()
	var running sync.WaitGroup
	running.Go(func() { r.watcher.Run(ctx) })
	running.Go(func() { r.tables.engine.Run(ctx) })
	running.Wait()
	return nil
}

// Start writes until ctx ends. The manager calls it in the replica that leads.
func (c *controller) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.queue.Run(ctx) })
	running.Go(func() { c.events.Run(ctx) })
	running.Go(func() { c.tables.engine.Do(ctx, c.lead) })
	running.Wait()
	return nil
}

// lead starts to write. It begins with all existing steps.
func (c *controller) lead() {
	c.leads = true
	for _, row := range c.tables.steps.All() {
		c.changed(policyTarget(row.Key), step{}, row.Value)
	}
	for _, row := range c.tables.groupSteps.All() {
		c.changed(groupTarget(row.Key), step{}, row.Value)
	}
}

func (c *controller) changed(t target, before, now step) {
	if c.leads {
		c.offer(t, now)
		c.warn(t, before, now)
	}
}

// again repeats all steps that are still due. A queue forgets a step once it is done. If another client undoes the step
// before a watch shows it, only this repetition corrects it.
func (c *controller) again() {
	for _, row := range c.tables.steps.All() {
		c.offerAgain(policyTarget(row.Key), row.Value)
	}
	for _, row := range c.tables.groupSteps.All() {
		c.offerAgain(groupTarget(row.Key), row.Value)
	}
}

func (c *controller) offerAgain(t target, s step) {
	if s.Due {
		c.offer(t, s)
	}
	if len(c.deferred[t.Object]) > 0 {
		c.warn(t, s, s)
	}
}

// target is an object that has a status.
type target struct {
	problem.Object               // Kind is the kind in Problems
	object         client.Object // without content
	reference      metav1.TypeMeta
}

func policyTarget(k policy.Key) target {
	t := target{Object: problem.Object{Kind: k.Kind.String(), Namespace: k.Namespace, Name: k.Name}}
	switch k.Kind {
	case policy.AntreaClusterNetworkPolicy:
		t.object, t.reference = &crdv1beta1.ClusterNetworkPolicy{},
			of(crdv1beta1.GroupVersion.String(), "ClusterNetworkPolicy")
	case policy.AntreaNetworkPolicy:
		t.object, t.reference = &crdv1beta1.NetworkPolicy{}, of(crdv1beta1.GroupVersion.String(), "NetworkPolicy")
	default:
		t.object, t.reference = &npv1alpha2.ClusterNetworkPolicy{},
			of(npv1alpha2.GroupVersion.String(), "ClusterNetworkPolicy")
	}
	return t.named()
}

func groupTarget(k derive.Object) target {
	t := target{Object: problem.Object{Kind: "Group", Namespace: k.Namespace, Name: k.Name}, object: &crdv1beta1.Group{}}
	if k.Namespace == "" {
		t.Kind, t.object = "ClusterGroup", &crdv1beta1.ClusterGroup{}
	}
	t.reference = of(crdv1beta1.GroupVersion.String(), t.Kind)
	return t.named()
}

func of(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

func (t target) named() target {
	t.object.SetNamespace(t.Namespace)
	t.object.SetName(t.Name)
	return t
}

// statusPatch is a merge patch of a status. It has the UID, so the API server refuses it for a recreated object.
type statusPatch struct {
	Metadata struct {
		UID types.UID `json:"uid"`
	} `json:"metadata"`
	Status any `json:"status"`
}

// conditionsAlone is the status of groups, and of ClusterNetworkPolicies of SIG Network.
type conditionsAlone struct {
	Conditions []metav1.Condition `json:"conditions"`
}

// offer offers a write of a status to the queue, or withdraws it.
func (c *controller) offer(t target, s step) {
	o := retry.Offer{Key: t.String(), Group: t.Kind + " " + t.Namespace, Wait: settle}
	if s.Due {
		o.Writes = []retry.Write{{
			What:  "update the status of " + t.String(),
			Blame: problem.Problem{Object: t.Object, Field: "status", Reason: retry.ReasonWriteFailed, Message: remedy},
			Do: func(ctx context.Context) error {
				var patch statusPatch
				patch.Metadata.UID = s.Have.UID
				status := s.Want.DeepCopy()
				for i := range status.Conditions {
					if status.Conditions[i].LastTransitionTime.IsZero() {
						status.Conditions[i].LastTransitionTime = metav1.NewTime(c.now())
					}
				}
				patch.Status = status
				if status.Phase == "" {
					patch.Status = conditionsAlone{status.Conditions}
				}
				text, err := json.Marshal(patch)
				if err != nil {
					return err
				}
				return c.to.Status().Patch(ctx, t.object.DeepCopyObject().(client.Object),
					client.RawPatch(types.MergePatchType, text))
			},
		}}
	}
	c.queue.Set(o)
}

// warn queues Events about new problems of an object. If the API server refuses one, again queues it again.
func (c *controller) warn(t target, before, now step) {
	known := map[problem.Problem]bool{}
	for _, p := range before.Problems {
		known[p] = before.Have.UID == now.Have.UID
	}
	for _, p := range c.deferred[t.Object] {
		known[p] = false
	}
	delete(c.deferred, t.Object)
	about := events.Reference(t.object, t.reference)
	about.UID = now.Have.UID // not in the object, which a write copies at the same time
	for _, p := range now.Problems[:min(maxEvents, len(now.Problems))] {
		if !known[p] && !c.events.Warn(about, p) {
			c.deferred[t.Object] = append(c.deferred[t.Object], p)
		}
	}
}
