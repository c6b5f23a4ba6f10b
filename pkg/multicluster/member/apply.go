package member

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/clusters"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/exports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/reasons"
	"github.com/tombolo-net/tombolo/pkg/retry"
)

// These limits apply to exports and withdrawals of label identities and of Pods' addresses. They keep many new Pods
// from flooding the leader: labelBurst at once, then labelRate a second. An export that is withdrawn while it waits
// costs nothing.
const (
	labelBurst   = 200
	labelRate    = rate.Limit(50)
	labelWriters = 4
)

func newLabelLimiter() *rate.Limiter { return rate.NewLimiter(labelRate, labelBurst) }

// target is the API server that writes go to.
type target struct {
	// client returns the client at the time of the write, or nil if the connection of the write has ended.
	client func(context.Context) client.Client
	// done gets each write and the API server's answer. It may be nil.
	done func(context.Context, writes.Write, client.Object)
}

// offer turns a write into an offer for a retry.Queue.
func offer(w writes.Write, to target) retry.Offer {
	group := w.Object.GetNamespace()
	if w.About.Namespace != "" {
		group = w.About.Namespace // exports have their own Namespace here, and share one in the leader
	}
	if re, ok := w.Object.(*mcv1alpha1.ResourceExport); ok && re.Spec.LabelIdentity != nil {
		group = policy.Identity(re.Spec.LabelIdentity.NormalizedLabel).Namespace()
	}
	var wait time.Duration
	if re, ok := w.Object.(*mcv1alpha1.ResourceExport); ok && re.Spec.Kind == multicluster.PodAddressesKind {
		wait = addressBatch
	}
	if pending(w) {
		wait = pendingAfter
	}
	return retry.Offer{Key: writes.Key(w.Kind, w.Object), Group: group, After: w.After, Late: late(w),
		Wait: wait, Writes: []retry.Write{{
			What: w.String(), Blame: problem.Problem{Object: w.About, Reason: writeFailedReason(w)},
			Do: func(ctx context.Context) error {
				c := to.client(ctx)
				if c == nil {
					return nil
				}
				answer, err := write(ctx, c, w)
				if err == nil && to.done != nil {
					to.done(ctx, w, answer)
				}
				return err
			},
		}}}
}

// pendingAfter is how long a write of a status waits if the status is likely to change soon. That saves a write:
//   - The leader does not have an export yet.
//   - A leader of another implementation refuses an export. Antrea's leader refuses Endpoints until it has imported
//     their Service.
//   - A new ServiceImport has no clusters. The leader writes the imports of a Service and of its Endpoints one after
//     the other.
const pendingAfter = 2 * time.Second

// pending reports whether a write sets a status that is likely to change soon.
func pending(w writes.Write) bool {
	if w.Verb != writes.UpdateStatus {
		return false
	}
	switch o := w.Object.(type) {
	case *mcsv1alpha1.ServiceImport:
		have, ok := w.Have.(*mcsv1alpha1.ServiceImport)
		return ok && len(have.Status.Conditions) == 0 && len(o.Status.Clusters) == 0
	case *mcsv1alpha1.ServiceExport:
		ready := apimeta.FindStatusCondition(o.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
		if ready == nil {
			return false
		}
		why, refused := strings.CutPrefix(ready.Message, exports.RefusedExport)
		return ready.Reason == string(mcsv1beta1.ServiceExportReasonPending) || refused &&
			!strings.HasPrefix(why, exportcheck.Refused)
	}
	return false
}

// mayPass reports whether a Problem is a refusal by a leader of another implementation that may end soon. See pending.
func mayPass(p problem.Problem) bool {
	return p.Kind == "ServiceExport" && p.Reason == membership.ReasonConvergeFailure &&
		!strings.Contains(p.Message, ": "+exportcheck.Refused)
}

// late reports whether no other cluster and no traffic waits for a write.
func late(w writes.Write) bool { return w.Verb == writes.UpdateStatus || w.Kind == "ServiceImport" }

func writeFailedReason(w writes.Write) reasons.Reason {
	if w.Kind == "ResourceExport" {
		return reasonResourceExportFailed
	}
	return retry.ReasonWriteFailed
}

// write sends a write to the API server and returns the object from its answer.
func write(ctx context.Context, to client.Client, w writes.Write) (client.Object, error) {
	// The client writes the answer into the object. The tables' object must not change.
	o := w.Object.DeepCopyObject().(client.Object)
	now := metav1.Now()
	switch o := o.(type) {
	case *mcsv1alpha1.ServiceExport:
		services.Stamp(o.Status.Conditions, now)
	case *mcsv1alpha1.ServiceImport:
		services.Stamp(o.Status.Conditions, now)
	case *mcv1alpha2.ClusterSet:
		clusters.StampClusterSet(o, now)
	case *mcv1alpha1.ClusterInfoImport:
		clusters.StampWithdrawn(o, now)
	}
	switch w.Verb {
	case writes.Create:
		return create(ctx, to, o)
	case writes.Update:
		return o, to.Patch(ctx, o, patch{w.Have, w.Version})
	case writes.UpdateStatus:
		return o, to.Status().Patch(ctx, o, patch{w.Have, w.Version})
	case writes.Delete:
		uid := o.GetUID()
		only := client.Preconditions{UID: &uid}
		if w.Version != "" {
			only.ResourceVersion = &w.Version
		}
		return o, client.IgnoreNotFound(to.Delete(ctx, o, only))
	}
	return nil, fmt.Errorf("%s: unknown verb", w)
}

// served converts the client's error about an unknown kind into the error that an API server returns for it.
func served(err error) error {
	if !apimeta.IsNoMatchError(err) {
		return err
	}
	return &apierrors.StatusError{
		ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: err.Error() + ": install its CustomResourceDefinition"}}
}

// patch is the difference between the desired object and the version that this process has read. It contains the UID
// and the version, so the API server refuses it if the object has been recreated or changed. This check is needed
// because a patch replaces whole lists, and another replica may have written while this process was suspended.
type patch struct {
	have    client.Object
	version string
}

// Type returns the type of an RFC 7386 merge patch.
func (patch) Type() types.PatchType { return types.MergePatchType }

// Data returns the patch.
func (p patch) Data(want client.Object) ([]byte, error) {
	data, err := client.MergeFrom(p.have).Data(want)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	meta, ok := fields["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
	}
	meta["uid"] = p.have.GetUID()
	if p.version != "" {
		meta["resourceVersion"] = p.version
	}
	fields["metadata"] = meta
	return json.Marshal(fields)
}

// reporter writes Events about Problems on their objects. A Problem that lasts causes one Event.
type reporter struct {
	warn    func(corev1.ObjectReference, problem.Problem) bool // events.Writer.Warn
	log     *problemlog.Log
	find    func(problem.Object) *corev1.ObjectReference
	active  map[problem.Problem]bool      // true once warn has taken the Event
	passing map[problem.Problem]time.Time // since when a Problem that mayPass lasts, until pendingAfter
}

// report writes an Event for each new Problem. It returns false if it has to be called again: because an object is not
// in the tables yet, the queue of Events is full, or a Problem may end soon.
func (r *reporter) report(list []problem.Problem) bool {
	now, passing := map[problem.Problem]bool{}, map[problem.Problem]time.Time{}
	all := true
	for _, p := range list {
		if _, twice := now[p]; twice {
			continue
		}
		recorded, known := r.active[p]
		if !known && mayPass(p) {
			since, ok := r.passing[p]
			if !ok {
				since = time.Now()
			}
			if time.Since(since) < pendingAfter {
				passing[p], all = since, false
				continue
			}
		}
		now[p] = recorded
		if recorded {
			continue
		}
		if !known {
			r.log.Changed([]problem.Problem{p}, nil)
		}
		ref := r.find(p.Object)
		if ref == nil {
			all = false // a new object is in the tables in a moment
			continue
		}
		now[p] = r.warn(*ref, p)
		all = all && now[p]
	}
	r.active, r.passing = now, passing
	return all
}

// reference returns a reference to the object that a Problem names. It has the UID, with which clients find the Events
// of an object.
func (t *tables) reference(o problem.Object) *corev1.ObjectReference {
	switch o.Kind {
	case "ClusterSet":
		return find(t.base.ClusterSets.Get, o, mcv1alpha2.GroupVersion.String())
	case "ServiceExport":
		return find(t.exports.ServiceExports.Get, o, mcsv1alpha1.GroupVersion.String())
	case "ServiceImport":
		return find(t.imports.ServiceImports.Get, o, mcsv1alpha1.GroupVersion.String())
	case "ClusterInfoImport":
		return find(t.clusters.ClusterInfoImports.Get, o, mcv1alpha1.GroupVersion.String())
	case "Service":
		return find(t.services.Services.Get, o, corev1.SchemeGroupVersion.String())
	case "Endpoints":
		return find(t.imports.Endpoints.Get, o, corev1.SchemeGroupVersion.String())
	case "Node":
		return find(t.base.Nodes.Get, o, corev1.SchemeGroupVersion.String())
	}
	return nil
}

func find[T metav1.Object](get func(derive.Object) (T, bool), name problem.Object,
	version string) *corev1.ObjectReference {
	o, ok := get(derive.Object{Namespace: name.Namespace, Name: name.Name})
	if !ok {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: version, Kind: name.Kind, Namespace: o.GetNamespace(),
		Name: o.GetName(), UID: o.GetUID()}
}

// addressBatch is how long a change of an address block waits for other changes. So a block is written at most once in
// that time.
const addressBatch = time.Second

// isPaced reports whether the rate limit applies to a write to the leader. It applies to kinds with many objects, which
// come and go with Pods.
func isPaced(w *writes.Write) bool {
	re, ok := w.Object.(*mcv1alpha1.ResourceExport)
	return ok && (re.Spec.Kind == multicluster.LabelIdentityKind || re.Spec.Kind == multicluster.PodAddressesKind)
}
