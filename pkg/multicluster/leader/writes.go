package leader

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/retry"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

const (
	reasonWriteFailed = "WriteFailed"
	statusField       = "status" // at fault when a status cannot be written
	finalizersField   = "metadata.finalizers"
	remedy            = "allow it in the leader cluster (the controller's Role, admission policies and webhooks, quotas), or change what it is made from"
)

// writes are the difference between the view and the plan, in order. The finalizer of a deleted
// export is removed only when its import is written: until then the import may still hold it.
func (c *controller) writes(v View, d Desired) []retry.Write {
	w := &writes{to: c.client}
	w.bindings(v, d) // before what members may do only with them
	imports := w.imports(v, d)
	exports, announces := byName(v.ResourceExports), byName(v.Announces)
	const export, announce = "ResourceExport", "MemberClusterAnnounce"
	for _, name := range d.HoldAnnounces {
		w.patch("hold", announce, announces[name], finalizersField, "", func(o client.Object) {
			controllerutil.AddFinalizer(o, announceFinalizer(announces[name]))
		})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Conditions)) {
		re := exports[name].DeepCopy()
		if condition := d.Conditions[name]; !sameConditions(re.Status.Conditions, condition) {
			w.updateStatus(export, re, "", func() { re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{condition} })
		}
	}
	for _, name := range d.DeleteExports {
		w.remove("delete", export, exports[name])
	}
	for _, name := range d.ReleaseExports {
		w.patch("release", export, exports[name], finalizersField, imports[importName(exports[name])], func(o client.Object) {
			if d.FreeExports[name] {
				o.SetFinalizers(nil)
			}
			controllerutil.RemoveFinalizer(o, multicluster.ResourceExportFinalizer)
			controllerutil.RemoveFinalizer(o, multicluster.ResourceExportFinalizerOld)
		})
	}
	for _, name := range d.DeleteAnnounces {
		w.remove("after a day of silence delete", announce, announces[name])
	}
	for _, name := range d.ReleaseAnnounces {
		w.patch("release", announce, announces[name], finalizersField, "", func(o client.Object) { o.SetFinalizers(nil) })
	}
	w.clusterSet(v, d)
	return w.list
}

// writes collects writes in the order to do them. Its methods return what a write is called,
// for one that comes after it.
type writes struct {
	to   client.Client
	list []retry.Write
}

func (w *writes) add(verb, kind string, o client.Object, field, after string, do func(context.Context) error) string {
	object := problem.Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
	what := verb + " " + object.String()
	w.list = append(w.list, retry.Write{
		What: what, After: after, Do: do,
		Blame: problem.Problem{Object: object, Field: field, Reason: reasonWriteFailed, Message: remedy},
	})
	return what
}

func (w *writes) create(kind string, o client.Object) string {
	return w.add("create", kind, o, "", "", func(ctx context.Context) error { return w.to.Create(ctx, o) })
}

func (w *writes) update(kind string, o client.Object) string {
	return w.add("update", kind, o, "", "", func(ctx context.Context) error { return w.to.Update(ctx, o) })
}

// updateStatus has the status set just before it is written: o may be what an earlier write
// gets back from the server.
func (w *writes) updateStatus(kind string, o client.Object, after string, set func()) {
	w.add("update the status of", kind, o, statusField, after, func(ctx context.Context) error {
		set()
		return w.to.Status().Update(ctx, o)
	})
}

func (w *writes) patch(verb, kind string, have client.Object, field, after string, change func(client.Object)) {
	w.add(verb, kind, have, field, after, func(ctx context.Context) error {
		o := have.DeepCopyObject().(client.Object)
		change(o)
		return w.to.Patch(ctx, o, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
	})
}

func (w *writes) remove(verb, kind string, have client.Object) string {
	return w.add(verb, kind, have, "", "", func(ctx context.Context) error {
		// What has changed since it was seen is judged again: this replica may have hung for a while.
		uid, version := have.GetUID(), have.GetResourceVersion()
		return client.IgnoreNotFound(w.to.Delete(ctx, have.DeepCopyObject().(client.Object), client.Preconditions{UID: &uid, ResourceVersion: &version}))
	})
}

// imports creates, updates and deletes ResourceImports, and returns what writes them, by name.
func (w *writes) imports(v View, d Desired) map[string]string {
	const kind = "ResourceImport"
	by, have := map[string]string{}, byName(v.ResourceImports)
	for _, name := range slices.Sorted(maps.Keys(d.Imports)) {
		want, current := d.Imports[name], have[name]
		o := want.DeepCopy()
		switch {
		case current == nil:
			by[name] = w.create(kind, o)
		case current.Spec.Namespace != want.Spec.Namespace || current.Spec.Name != want.Spec.Name || current.Spec.Kind != want.Spec.Kind:
			// Of another Service with the same derived name. Members find what they made for that
			// one by its import's deletion; the next plan creates the new one.
			by[name] = w.remove("hand over", kind, current)
			continue
		case !equality.Semantic.DeepEqual(current.Spec, want.Spec):
			o = current.DeepCopy()
			o.Spec = want.Spec
			by[name] = w.update(kind, o)
		case !sameStatus(current.Status, want.Status):
			o = current.DeepCopy()
		default:
			continue
		}
		w.updateStatus(kind, o, by[name], func() { o.Status = want.Status })
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := d.Imports[name]; !ok && kept(have[name].Spec.Kind) {
			by[name] = w.remove("delete", kind, have[name])
		}
	}
	return by
}

func (w *writes) clusterSet(v View, d Desired) {
	const kind = "ClusterSet"
	want := d.ClusterSet
	if want == nil {
		return
	}
	current := byName(v.ClusterSets)[want.Name]
	set, after := current.DeepCopy(), ""
	if current.Spec.ClusterID != want.Spec.ClusterID {
		set.Spec.ClusterID = want.Spec.ClusterID
		after = w.update(kind, set)
	}
	if !equality.Semantic.DeepEqual(current.Status, want.Status) {
		w.updateStatus(kind, set, after, func() { set.Status = want.Status })
	}
}

// refusedImports picks the ResourceImports whose exports do not arrive, by name.
func refusedImports(problems []problem.Problem) map[string]string {
	refused := map[string]string{}
	for _, p := range problems {
		if p.Kind == "ResourceImport" && p.Field != statusField {
			refused[p.Name] = p.Message
		}
	}
	return refused
}

func byName[T client.Object](list []T) map[string]T {
	m := make(map[string]T, len(list))
	for _, o := range list {
		m[o.GetName()] = o
	}
	return m
}

// sameConditions compares everything but a time in the past.
func sameConditions(have []mcv1alpha1.ResourceExportCondition, want mcv1alpha1.ResourceExportCondition) bool {
	if len(have) != 1 || have[0].LastTransitionTime.After(want.LastTransitionTime.Time) {
		return false
	}
	c := have[0]
	c.LastTransitionTime = want.LastTransitionTime
	return c == want
}

// sameStatus compares everything but the times.
func sameStatus(a, b mcv1alpha1.ResourceImportStatus) bool {
	return slices.EqualFunc(a.ClusterStatuses, b.ClusterStatuses, func(x, y mcv1alpha1.ResourceImportClusterStatus) bool {
		return x.ClusterID == y.ClusterID && slices.EqualFunc(x.Conditions, y.Conditions, func(c, d mcv1alpha1.ResourceImportCondition) bool {
			c.LastTransitionTime = d.LastTransitionTime
			return c == d
		})
	})
}
