package leader

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/retry"
)

const (
	statusField     = "status" // at fault when a status cannot be written
	finalizersField = "metadata.finalizers"
	remedy          = "allow it in the leader cluster (the controller's Role, admission " +
		"policies and webhooks, quotas), or change what it is made from"
)

// verb is the kind of a write.
type verb string

const (
	create       verb = "create"
	update       verb = "update"
	updateStatus verb = "update the status of"
	remove       verb = "delete"
	handOver     verb = "hand over" // delete the object that has the name of another one
	release      verb = "release"   // take finalizers off
	hold         verb = "hold"      // add the finalizer
	bind         verb = "give its cluster ID to"
)

// earlyFor is how long a condition waits that is likely to be another one in a moment.
const earlyFor = 2 * time.Second

// importKey begins the keys of offers of ResourceImports; their Namespace and name follow.
const importKey = "ResourceImport "

// writer offers steps to a queue.
type writer struct {
	to     client.Client
	queue  *retry.Queue
	tables *tables
	now    func() time.Time
}

// watch offers the steps of tables as they change.
func (w *writer) watch(t *tables) {
	offer(t.steps.importSteps, w, (*writer).importOffer)
	offer(t.steps.exportSteps, w, (*writer).exportOffer)
	offer(t.steps.announceSteps, w, (*writer).announceOffer)
	offer(t.steps.accountSteps, w, (*writer).accountOffer)
	offer(t.networks.networkSteps, w, (*writer).networkOffer)
	offer(t.networks.connectionSteps, w, (*writer).connectionOffer)
	w.watchCentral(t.central)
	t.steps.setSteps.Watch(func(changes []derive.Change[derive.Name, setStep]) {
		for _, c := range changes {
			if c.Old.Have != nil && (c.New.Have == nil || c.Old.Have.Name != c.New.Have.Name) {
				w.queue.Set(w.setOffer(setStep{Have: c.Old.Have, Want: c.Old.Have}))
			}
			if c.New.Have != nil {
				w.queue.Set(w.setOffer(c.New))
			}
		}
	})
}

// again queues all steps that are still due. A queue forgets a step once it is done. If another client undoes the step
// before the watch shows it, no change arrives, and only this repetition corrects it. The evaluating goroutine calls
// again, so that no pass runs at the same time.
func (w *writer) again(t *tables) {
	offerAll(t.steps.importSteps, w, (*writer).importOffer)
	offerAll(t.steps.exportSteps, w, (*writer).exportOffer)
	offerAll(t.steps.announceSteps, w, (*writer).announceOffer)
	offerAll(t.steps.accountSteps, w, (*writer).accountOffer)
	offerAll(t.networks.networkSteps, w, (*writer).networkOffer)
	offerAll(t.networks.connectionSteps, w, (*writer).connectionOffer)
	w.centralAgain(t.central)
	for _, row := range t.steps.setSteps.All() {
		if row.Value.Have != nil {
			w.queue.Set(w.setOffer(row.Value))
		}
	}
}

func offerAll[S any](steps *derive.Table[derive.Object, S], w *writer, of func(*writer, derive.Object, S) retry.Offer) {
	for _, row := range steps.All() {
		w.queue.Set(of(w, row.Key, row.Value))
	}
}

func offer[S any](steps *derive.Table[derive.Object, S], w *writer, of func(*writer, derive.Object, S) retry.Offer) {
	steps.Watch(func(changes []derive.Change[derive.Object, S]) {
		for _, c := range changes {
			w.queue.Set(of(w, c.Key, c.New))
		}
	})
}

// youngest returns the member of the newest export of an import. The API server accepted the import before that export,
// so the refusal is attributed to that member.
func (w *writer) youngest(key derive.Object) string {
	var last *export
	for _, k := range w.tables.index.exportsTo.Keys(key) {
		if e, ok := w.tables.facts.exports.Get(k); ok && (last == nil || e.Created > last.Created) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return last.ClusterID
}

// offer returns an offer for the queue with one write. If do is nil, the offer withdraws an earlier one. The group is
// the member's cluster ID, except for imports.
func (w *writer) offer(kind string, key derive.Object, group string, v verb, field string,
	do func(context.Context) error) retry.Offer {
	object := problem.Object{Kind: kind, Namespace: key.Namespace, Name: key.Name}
	o := retry.Offer{Key: object.String(), Group: group, Member: group}
	if do != nil {
		o.Writes = []retry.Write{{
			What:  string(v) + " " + object.String(),
			Blame: problem.Problem{Object: object, Field: field, Reason: retry.ReasonWriteFailed, Message: remedy}, Do: do,
		}}
	}
	return o
}

func (w *writer) importOffer(key derive.Object, s importStep) retry.Offer {
	field, group := "", "import "
	var do func(context.Context) error
	switch s.Verb {
	case create:
		do = func(ctx context.Context) error { return w.to.Create(ctx, s.Want.DeepCopy()) }
	case update:
		do = func(ctx context.Context) error {
			o := s.Have.DeepCopy()
			o.Spec = s.Want.Spec
			annotate(o, s.Want)
			return w.to.Update(ctx, o)
		}
	case updateStatus:
		field = statusField
		do = func(ctx context.Context) error {
			o := s.Have.DeepCopy()
			o.Status = *s.Want.Status.DeepCopy()
			setTimes(&o.Status, w.now())
			return w.to.Status().Update(ctx, o)
		}
	case remove, handOver:
		do = w.delete(s.Have)
	}
	if s.Want != nil {
		group += s.Want.Spec.Namespace
	} else if s.Have != nil {
		group += s.Have.Spec.Namespace
	}
	o := w.offer("ResourceImport", key, group, s.Verb, field, do)
	o.Late, o.Member = s.Verb == updateStatus, w.youngest(key)
	return o
}

func (w *writer) exportOffer(key derive.Object, s *exportStep) retry.Offer {
	if s == nil {
		return w.offer("ResourceExport", key, "", "", "", nil)
	}
	var do func(context.Context) error
	field := ""
	have := &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		UID: s.Have.UID, ResourceVersion: s.Have.Version, Finalizers: s.Export.Finalizers}}
	switch s.Verb {
	case updateStatus:
		field = statusField
		do = func(ctx context.Context) error {
			o := have.DeepCopy() // without a spec: a status is written by itself
			o.Status.Conditions = []mcv1alpha1.ResourceExportCondition{conditionAt(s.Condition, s.Have.Conditions, w.now())}
			return w.to.Status().Update(ctx, o)
		}
	case remove:
		do = w.delete(have)
	case release:
		if s.Waits {
			break
		}
		field = finalizersField
		do = w.patch(have, func(o client.Object) {
			if s.All {
				o.SetFinalizers(nil)
			}
			controllerutil.RemoveFinalizer(o, multicluster.ResourceExportFinalizer)
			controllerutil.RemoveFinalizer(o, multicluster.ResourceExportFinalizerOld)
		})
	}
	o := w.offer("ResourceExport", key, s.Export.ClusterID, s.Verb, field, do)
	if o.Late = s.Verb == updateStatus; o.Late && s.Condition.Type == mcv1alpha1.ResourceExportSucceeded {
		// The condition "imported" is written after the import.
		o.After = importKey + derive.Object{Namespace: key.Namespace, Name: importName(s.Export)}.String()
	}
	if s.Early {
		o.Wait = earlyFor
	}
	return o
}

func (w *writer) announceOffer(key derive.Object, s announceStep) retry.Offer {
	if s.Verb == "" {
		return w.offer("MemberClusterAnnounce", key, "", "", "", nil)
	}
	have := s.Have.Fact.DeepCopy()
	have.UID, have.ResourceVersion = s.Have.UID, s.Have.Version
	field := finalizersField
	var do func(context.Context) error
	switch s.Verb {
	case hold:
		do = w.patch(have, func(o client.Object) { controllerutil.AddFinalizer(o, announceFinalizer(have)) })
	case release:
		do = w.patch(have, func(o client.Object) { o.SetFinalizers(nil) })
	case remove:
		field, do = "", w.delete(have)
	}
	return w.offer("MemberClusterAnnounce", key, have.ClusterID, s.Verb, field, do)
}

// accountOffer writes the decision about an account. The write has the resource version, so it fails if an operator
// writes the account at the same time.
func (w *writer) accountOffer(key derive.Object, s accountStep) retry.Offer {
	var do func(context.Context) error
	if s.ID != "" {
		do = w.patch(s.Have, func(o client.Object) {
			o.SetAnnotations(map[string]string{multicluster.AnnotationClusterID: s.ID})
		})
	}
	return w.offer("ServiceAccount", key, s.ID, bind, "metadata.annotations", do)
}

func (w *writer) setOffer(s setStep) retry.Offer {
	key := derive.Object{Namespace: s.Have.Namespace, Name: s.Have.Name}
	const kind = "ClusterSet"
	switch {
	case s.Have.Spec.ClusterID != s.Want.Spec.ClusterID:
		return w.offer(kind, key, "", update, "", func(ctx context.Context) error {
			o := s.Have.DeepCopy()
			o.Spec.ClusterID = s.Want.Spec.ClusterID
			return w.to.Update(ctx, o)
		})
	case !equality.Semantic.DeepEqual(s.Have.Status, s.Want.Status):
		return w.offer(kind, key, "", updateStatus, statusField, func(ctx context.Context) error {
			return w.to.Status().Update(ctx, s.at(w.now()))
		})
	}
	return w.offer(kind, key, "", "", "", nil)
}

func (w *writer) patch(have client.Object, change func(client.Object)) func(context.Context) error {
	return func(ctx context.Context) error {
		o := have.DeepCopyObject().(client.Object)
		change(o)
		return w.to.Patch(ctx, o, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
	}
}

func (w *writer) delete(have client.Object) func(context.Context) error {
	return func(ctx context.Context) error {
		// An object that has changed since it was read is decided about again. This replica may have been suspended for a
		// while.
		uid, version := have.GetUID(), have.GetResourceVersion()
		return client.IgnoreNotFound(
			w.to.Delete(ctx, have.DeepCopyObject().(client.Object), client.Preconditions{UID: &uid, ResourceVersion: &version}))
	}
}

// sameConditions compares everything but the time.
func sameConditions(have []mcv1alpha1.ResourceExportCondition, want mcv1alpha1.ResourceExportCondition) bool {
	if len(have) != 1 {
		return false
	}
	c := have[0]
	c.LastTransitionTime = want.LastTransitionTime
	return c == want
}

// sameStatus compares everything but the times.
func sameStatus(a, b mcv1alpha1.ResourceImportStatus) bool {
	return slices.EqualFunc(a.ClusterStatuses, b.ClusterStatuses, func(x, y mcv1alpha1.ResourceImportClusterStatus) bool {
		return x.ClusterID == y.ClusterID &&
			slices.EqualFunc(x.Conditions, y.Conditions, func(c, d mcv1alpha1.ResourceImportCondition) bool {
				c.LastTransitionTime = d.LastTransitionTime
				return c == d
			})
	})
}

// conditionAt fills in the time of a condition: of one that stays it stays.
func conditionAt(c mcv1alpha1.ResourceExportCondition, have []mcv1alpha1.ResourceExportCondition,
	now time.Time) mcv1alpha1.ResourceExportCondition {
	c.LastTransitionTime = metav1.NewTime(now)
	for _, old := range have {
		same := old.Type == c.Type && old.Status == c.Status && (c.Reason != reasonNotAnnounced.String() ||
			old.Reason == c.Reason)
		if same && !old.LastTransitionTime.After(now) {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return c
}

// at fills in the times of new conditions in a ClusterSet's status.
func (s setStep) at(now time.Time) *mcv1alpha2.ClusterSet {
	set := s.Want.DeepCopy()
	fill := func(t *metav1.Time) {
		if t.IsZero() {
			*t = metav1.NewTime(now)
		}
	}
	for i := range set.Status.Conditions {
		fill(&set.Status.Conditions[i].LastTransitionTime)
	}
	for i := range set.Status.ClusterStatuses {
		for j := range set.Status.ClusterStatuses[i].Conditions {
			fill(&set.Status.ClusterStatuses[i].Conditions[j].LastTransitionTime)
		}
	}
	return set
}

func setTimes(s *mcv1alpha1.ResourceImportStatus, now time.Time) {
	s.ClusterStatuses = slices.Clone(s.ClusterStatuses)
	for i := range s.ClusterStatuses {
		s.ClusterStatuses[i].Conditions = slices.Clone(s.ClusterStatuses[i].Conditions)
		for j := range s.ClusterStatuses[i].Conditions {
			s.ClusterStatuses[i].Conditions[j].LastTransitionTime = metav1.NewTime(now)
		}
	}
}
