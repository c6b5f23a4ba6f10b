package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/retry"
)

const (
	writers = 4
	// maxEvents is the number of Events that a Writer keeps in memory.
	maxEvents = 4096
	// repeatWait is the time between two writes of one Event that repeats.
	repeatWait = 10 * time.Second
	// writeFor is how long a write is tried. The API server keeps an Event for an hour.
	writeFor = time.Hour
	// objectBurst and objectEvery limit the number of different Events about one object, with the values of Kubernetes'
	// components.
	objectBurst = 25
	objectEvery = 5 * time.Minute

	remedy = "allow it to create and patch Events of events.k8s.io (its ClusterRole, admission policies and webhooks)"
)

// Options are the options of a Writer.
type Options struct {
	Client     client.Client
	Controller string // the reporting controller of all Events
	Instance   string // the process of the controller
	Log        *slog.Logger
	// Problems gets the Events that the API server refuses.
	Problems *problemlog.Log
	// Wrote is called after each try; it may be nil.
	Wrote func(took time.Duration, err error)
}

// Writer writes Warnings to one API server. If the API server does not take an Event, the Writer tries it again with
// the back-off of retry.Queue. It writes equal Events as one Event with a series, which counts them.
type Writer struct {
	o     Options
	queue *retry.Queue

	mu      sync.Mutex
	events  map[string]*event           // by Namespace and name
	objects map[types.UID]*rate.Limiter // of objects that had Events lately
	sweep   int                         // how many limiters there may be before those at rest go
	full    bool                        // the log has that an Event was refused
}

// event is an Event that this process has observed.
type event struct {
	object   *eventsv1.Event
	written  bool             // the API server has it
	repeated bool             // a write after the first one has succeeded
	due      int              // observations that the API server does not have
	since    time.Time        // the first of them
	last     metav1.MicroTime // the last of them
}

// NewWriter returns a Writer, which writes while Run runs.
func NewWriter(o Options) *Writer {
	w := &Writer{o: o, events: map[string]*event{}, objects: map[types.UID]*rate.Limiter{}, sweep: maxEvents}
	w.queue = retry.NewQueue(retry.Options{Parallel: writers, Log: o.Log, Quiet: true, Wrote: o.Wrote,
		Reported: func(_ retry.Offer, p *problem.Problem) {
			if p != nil {
				o.Problems.Changed([]problem.Problem{*p}, nil)
			}
		}})
	return w
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) { w.queue.Run(ctx) }

// Start does the same for a manager, in the replica that leads.
func (w *Writer) Start(ctx context.Context) error {
	w.Run(ctx)
	return nil
}

// Warn queues an Event about a problem of an object. It returns false if too many Events wait in the Writer, or if the
// object had too many Events lately. Then the caller may call it again later. Any goroutine may call it.
func (w *Writer) Warn(about corev1.ObjectReference, p problem.Problem) bool {
	now := time.Now()
	last := microTime(now)
	object := warning(about, p, w.o.Controller, w.o.Instance, last)
	key := object.Namespace + "/" + object.Name
	w.mu.Lock()
	defer w.mu.Unlock()
	e, known := w.events[key]
	if !known {
		if !w.admit(about) {
			return false
		}
		e = &event{object: object}
		w.events[key] = e
	}
	if e.due++; e.due == 1 {
		e.since = now
	}
	e.last = last
	offer := retry.Offer{Key: "Event " + key, Group: object.Namespace, Writes: []retry.Write{{
		What:  fmt.Sprintf("write Event %s about %s", p.Reason, p.Object),
		Blame: problem.Problem{Object: p.Object, Reason: retry.ReasonWriteFailed, Message: remedy},
		Do:    func(ctx context.Context) error { return w.write(ctx, e) },
	}}}
	if e.repeated {
		offer.Wait = repeatWait
	}
	w.queue.Set(offer)
	return true
}

// admit reports whether one more Event about an object is allowed. It forgets Events that are written to make room.
func (w *Writer) admit(about corev1.ObjectReference) bool {
	if len(w.events) >= maxEvents {
		maps.DeleteFunc(w.events, func(_ string, e *event) bool { return e.due == 0 })
	}
	if len(w.events) >= maxEvents {
		if !w.full {
			w.full = true
			w.o.Log.Error("too many Events wait for the API server; later ones are written when it takes these",
				"waiting", len(w.events))
		}
		return false
	}
	w.full = false
	l := w.objects[about.UID]
	if l == nil {
		if len(w.objects) >= w.sweep {
			maps.DeleteFunc(w.objects, func(_ types.UID, l *rate.Limiter) bool { return l.Tokens() >= objectBurst })
			w.sweep = max(maxEvents, 2*len(w.objects))
		}
		l = rate.NewLimiter(rate.Every(objectEvery), objectBurst)
		w.objects[about.UID] = l
	}
	return l.Allow()
}

// write writes the observations of an Event that are due.
func (w *Writer) write(ctx context.Context, e *event) error {
	w.mu.Lock()
	due, since, last, written := e.due, e.since, e.last, e.written
	w.mu.Unlock()
	var err error
	if due == 0 { // an earlier call has written the observations
		return nil
	}
	if written {
		err = w.raise(ctx, e.object, due, last)
	} else {
		err = w.create(ctx, e.object, due, last)
	}
	lost := err != nil && (isFinal(err) || time.Since(since) > writeFor)
	if err != nil && !lost {
		return err
	}
	if lost {
		w.o.Problems.Changed([]problem.Problem{{Object: problem.Object{Kind: e.object.Regarding.Kind,
			Namespace: e.object.Regarding.Namespace, Name: e.object.Regarding.Name}, Reason: retry.ReasonWriteFailed,
			Message: fmt.Sprintf("Event %s is given up: %v", e.object.Reason, err)}}, nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.due -= due; e.due > 0 {
		e.since = time.Now()
	}
	e.repeated = e.written
	e.written = e.written || !lost
	return nil
}

// create creates an Event, observed a number of times. If it exists, another process has written its first observation.
func (w *Writer) create(ctx context.Context, object *eventsv1.Event, times int, last metav1.MicroTime) error {
	o := object.DeepCopy()
	if times > 1 {
		o.Series = &eventsv1.EventSeries{Count: int32(times), LastObservedTime: last}
	}
	err := w.o.Client.Create(ctx, o)
	switch {
	case !apierrors.IsAlreadyExists(err):
		return err
	case times == 1:
		return nil
	}
	return w.raise(ctx, object, times-1, last)
}

// raise adds observations to the series of an Event. If the API server has removed the Event, raise creates it.
func (w *Writer) raise(ctx context.Context, object *eventsv1.Event, times int, last metav1.MicroTime) error {
	have := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
	// An empty patch returns the Event and changes nothing. So the controller needs no right to get Events.
	err := w.o.Client.Patch(ctx, have, client.RawPatch(types.MergePatchType, []byte("{}")))
	switch {
	case apierrors.IsNotFound(err):
		again := object.DeepCopy()
		again.EventTime = last
		return w.create(ctx, again, times, last)
	case err != nil:
		return err
	}
	count := int32(1)
	if have.Series != nil {
		if !have.Series.LastObservedTime.Before(&last) {
			return nil // the answer of the last try was lost
		}
		count = have.Series.Count
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": have.UID, "resourceVersion": have.ResourceVersion},
		"series":   eventsv1.EventSeries{Count: count + int32(times), LastObservedTime: last},
	})
	if err != nil {
		return err
	}
	return w.o.Client.Patch(ctx, have, client.RawPatch(types.MergePatchType, data))
}

// isFinal reports whether the API server will never accept an Event: the Event is invalid, or its Namespace is being
// deleted.
func isFinal(err error) bool {
	reason := apierrors.ReasonForError(err) // a webhook's denial has the code of a bad request, and no reason
	return apierrors.IsInvalid(err) || reason == metav1.StatusReasonBadRequest || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
