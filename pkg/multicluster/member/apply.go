package member

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/retry"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

const reasonWriteFailed = "WriteFailed"

// retried are the writes as a retry.Writer does them.
func retried(to client.Client, writes []Write) []retry.Write {
	out := make([]retry.Write, len(writes))
	for i, w := range writes {
		out[i] = retry.Write{
			What: w.String(), Blame: problem.Problem{Object: w.About, Reason: writeFailedReason(w)},
			Do: func(ctx context.Context) error { return write(ctx, to, w) },
		}
	}
	return out
}

func writeFailedReason(w Write) string {
	if w.Kind == "ResourceExport" {
		return reasonResourceExportFailed
	}
	return reasonWriteFailed
}

func write(ctx context.Context, to client.Client, w Write) error {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	// The client fills in what the server answers, and the plan's objects are not to change.
	o := w.Object.DeepCopyObject().(client.Object)
	switch w.Verb {
	case Create:
		return to.Create(ctx, o)
	case Update:
		return to.Update(ctx, o)
	case UpdateStatus:
		return to.Status().Update(ctx, o)
	case Delete:
		uid, version := o.GetUID(), o.GetResourceVersion()
		return client.IgnoreNotFound(to.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	}
	return fmt.Errorf("%s: unknown verb", w)
}

// reporter turns Problems into Events on their objects, once for as long as they last.
type reporter struct {
	recorder events.EventRecorder
	log      *slog.Logger
	active   map[problem.Problem]bool // true once there was an object to write the Event on
}

func newReporter(recorder events.EventRecorder, log *slog.Logger) *reporter {
	return &reporter{recorder: recorder, log: log, active: map[problem.Problem]bool{}}
}

func (r *reporter) report(v View, problems []problem.Problem) {
	now := map[problem.Problem]bool{}
	for _, p := range problems {
		if _, twice := now[p]; twice {
			continue
		}
		recorded, known := r.active[p]
		now[p] = recorded
		if recorded {
			continue
		}
		if !known {
			r.log.Warn(p.Message, "object", p.Object, "field", p.Field, "reason", p.Reason)
		}
		// An object that this very round makes is in the next round's view.
		if ref := reference(v, p.Object); ref != nil {
			now[p] = true
			note := p.Message
			if p.Field != "" {
				note = p.Field + ": " + note
			}
			if len(note) > 1024 { // the API's limit
				note = strings.ToValidUTF8(note[:1021], "") + "..."
			}
			r.recorder.Eventf(ref, nil, corev1.EventTypeWarning, p.Reason, "Plan", "%s", note)
		}
	}
	r.active = now
}

// reference finds the object a Problem names, with its UID, by which Events are shown.
func reference(v View, o problem.Object) *corev1.ObjectReference {
	switch o.Kind {
	case "ClusterSet":
		return find(v.ClusterSets, o, mcv1alpha2.GroupVersion.String())
	case "ServiceExport":
		return find(v.ServiceExports, o, mcsv1alpha1.GroupVersion.String())
	case "ServiceImport":
		return find(v.ServiceImports, o, mcsv1alpha1.GroupVersion.String())
	case "ClusterInfoImport":
		return find(v.ClusterInfoImports, o, mcv1alpha1.GroupVersion.String())
	case "Service":
		return find(v.Services, o, corev1.SchemeGroupVersion.String())
	case "Endpoints":
		return find(v.Endpoints, o, corev1.SchemeGroupVersion.String())
	case "Node":
		return find(v.Nodes, o, corev1.SchemeGroupVersion.String())
	}
	return nil
}

func find[T metav1.Object](objects []T, name problem.Object, version string) *corev1.ObjectReference {
	for _, o := range objects {
		if o.GetNamespace() == name.Namespace && o.GetName() == name.Name {
			return &corev1.ObjectReference{
				APIVersion: version, Kind: name.Kind,
				Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			}
		}
	}
	return nil
}
