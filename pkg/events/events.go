// Package events writes Events about what is wrong with objects.
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

const (
	controller = "tombolo-controller" // reports all Events
	maxNote    = 1024                 // the API's limit for an Event's note, in bytes
)

// New returns the Warning that reports a problem of an object of a kind, from a process. The Event of an object without
// a Namespace is in the Namespace default. Its name is made from the object's UID and the text, so an Event that is
// written again, also after a restart or by two processes at once, is the same Event.
func New(o client.Object, kind metav1.TypeMeta, p problem.Problem, identity string, now time.Time) *eventsv1.Event {
	note := p.Message
	if p.Field != "" {
		note = p.Field + ": " + p.Message
	}
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	hash := sha256.Sum256([]byte(string(o.GetUID()) + "\x00" + p.Reason + "\x00" + note))
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(o.GetNamespace(), metav1.NamespaceDefault),
			Name:      nameOf(o.GetName(), hex.EncodeToString(hash[:8])),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: controller, ReportingInstance: identity,
		Action: "Check", Type: corev1.EventTypeWarning, Reason: p.Reason, Note: note,
		Regarding: corev1.ObjectReference{
			APIVersion: kind.APIVersion, Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName(),
			UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		},
	}
}

// Create writes an Event that may be there.
func Create(ctx context.Context, to client.Client, e *eventsv1.Event) error {
	if err := to.Create(ctx, e.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// nameOf is at most 253 bytes long, as names of objects are.
func nameOf(object, hash string) string {
	return object[:min(len(object), 253-1-len(hash))] + "." + hash
}
