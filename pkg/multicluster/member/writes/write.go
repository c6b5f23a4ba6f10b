package writes

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// Verb is the kind of a Write.
type Verb string

// The verbs of Writes.
const (
	Create       Verb = "create"
	Update       Verb = "update"
	UpdateStatus Verb = "update the status of"
	Delete       Verb = "delete"
)

// Write is one write to an API server.
type Write struct {
	Verb   Verb
	Kind   string
	Object client.Object  // as it should be; for Delete as it is
	Have   client.Object  // for Update and UpdateStatus: as it is
	About  problem.Object // the object to blame when it fails
	After  string         // the key of a write that comes first; empty for no write
	// Version is the resourceVersion of the existing object. If the object has changed since then, the write fails and is
	// decided again. Version is empty for Create, and if it is unknown.
	Version string
}

// String reads "create Service default/antrea-mc-web".
func (w Write) String() string {
	return fmt.Sprintf("%s %s", w.Verb, problem.About(w.Kind, w.Object.GetNamespace(), w.Object.GetName()))
}

// Key names an object to a retry.Queue.
func Key(kind string, o metav1.Object) string {
	return problem.About(kind, o.GetNamespace(), o.GetName()).String()
}

// Diff compares objects of one kind.
type Diff[T interface {
	comparable
	client.Object
}] struct {
	Kind string
	Mine func(T) bool // may we delete it? nil: always
	// Same reports whether an object is the desired one. If it is another object with the same name, that object is
	// deleted first. A nil function means that every object is the desired one.
	Same  func(have, want T) bool
	Merge func(into, want T)
}

// Between returns the write that turns have into want, either of which may be nil. It returns nil if there is nothing
// to do.
func (d Diff[T]) Between(have, want T, about problem.Object) *Write {
	var none T
	keep := want != none && (have == none || d.Same == nil || d.Same(have, want))
	switch {
	case have == none && want == none:
		return nil
	case have == none:
		return &Write{Verb: Create, Kind: d.Kind, Object: want, About: about}
	case have.GetDeletionTimestamp() != nil: // made again when it is gone
		return nil
	case !keep:
		if d.Mine != nil && !d.Mine(have) {
			return nil
		}
		return &Write{Verb: Delete, Kind: d.Kind, Object: have, About: about}
	}
	merged := have.DeepCopyObject().(T)
	d.Merge(merged, want)
	if equality.Semantic.DeepEqual(have, merged) {
		return nil
	}
	return &Write{Verb: Update, Kind: d.Kind, Have: have, Object: merged, About: about}
}

// MergeAnnotation sets one annotation to its desired value, or removes it.
func MergeAnnotation(into, want metav1.Object, key string) {
	annotations := into.GetAnnotations()
	value, ok := want.GetAnnotations()[key]
	switch {
	case !ok:
		delete(annotations, key)
	case annotations == nil:
		into.SetAnnotations(map[string]string{key: value})
	default:
		annotations[key] = value
	}
}

// MergeAnnotations sets all annotations that an object should have, and keeps others.
func MergeAnnotations(into, want metav1.Object) {
	annotations := into.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, want.GetAnnotations())
	into.SetAnnotations(annotations)
}

// Named returns the object of a list with a key, or the zero value.
func Named[T metav1.Object](list []T, k derive.Object) (found T) {
	for _, o := range list {
		if derive.ObjectOf(o) == k {
			found = o
		}
	}
	return found
}

// MetaFacts returns the metadata facts of any object. The UID is for Events. With it a write cannot change another
// object of the same name.
func MetaFacts(o metav1.Object, annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		DeletionTimestamp: o.GetDeletionTimestamp()}
	for _, key := range annotations {
		if value, ok := o.GetAnnotations()[key]; ok {
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			m.Annotations[key] = value
		}
	}
	return m
}

// Version returns the version of an object. It is in a source of its own, which only tables of writes read. So an event
// without a new fact causes no other evaluation.
func Version[T metav1.Object](o T) string { return o.GetResourceVersion() }
