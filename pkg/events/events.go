// Package events writes Events about faults of objects. All controllers use its Writer.
package events

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// maxNote is the API's limit for the text of an Event, in bytes.
const maxNote = 1024

// Note returns the text of the Event about a problem.
func Note(p problem.Problem) string {
	note := p.Message
	if p.Field != "" {
		note = p.Field + ": " + note
	}
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	return note
}

// Reference returns the reference to an object of a kind.
func Reference(o client.Object, kind metav1.TypeMeta) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: kind.APIVersion, Kind: kind.Kind, Namespace: o.GetNamespace(),
		Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// warning returns the Event that reports a problem of an object. The Event of an object without a Namespace is in the
// Namespace default. Its name is made from the object's UID and the text. So equal Events have one name, also after a
// restart and in two processes.
func warning(about corev1.ObjectReference, p problem.Problem, controller, instance string,
	now metav1.MicroTime) *eventsv1.Event {
	note := Note(p)
	hash := sha256.Sum256([]byte(string(about.UID) + "\x00" + p.Reason.String() + "\x00" + note))
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault),
			Name:      nameOf(about.Name, hex.EncodeToString(hash[:8])),
		},
		EventTime:           now,
		ReportingController: controller, ReportingInstance: instance,
		Action: "Check", Type: corev1.EventTypeWarning, Reason: p.Reason.String(), Note: note, Regarding: about,
	}
}

// Create creates an Event. It succeeds if the Event exists.
func Create(ctx context.Context, to client.Client, e client.Object) error {
	err := to.Create(ctx, e.DeepCopyObject().(client.Object))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// nameOf returns a name of at most 253 bytes, the limit for names of objects.
func nameOf(object, hash string) string {
	return object[:min(len(object), 253-1-len(hash))] + "." + hash
}

// microTime returns a time with the precision that the API server stores.
func microTime(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.Truncate(time.Microsecond))
}
