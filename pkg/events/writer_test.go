package events

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/problemlog"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

func newWriter() *Writer {
	log := slog.New(slog.DiscardHandler)
	return NewWriter(Options{Log: log, Problems: problemlog.New(log, "")})
}

func service(i int) corev1.ObjectReference {
	name := fmt.Sprintf("web-%d", i)
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: name,
		UID: types.UID(name)}
}

var wrong = reasons.New(reasons.Row{Name: "Wrong"})

// TestWriterLimitsObjects takes a burst of different Events about one object, and then one in five minutes. Events
// about another object, and Events that repeat, do not count.
func TestWriterLimitsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter()
		warn := func(about, message int) bool {
			return w.Warn(service(about), problem.Problem{Reason: wrong, Message: fmt.Sprint(message)})
		}
		for i := range objectBurst {
			if !warn(0, i) {
				t.Fatalf("Event %d of the burst is refused", i)
			}
		}
		for _, step := range []struct {
			what           string
			after          time.Duration
			about, message int
			taken          bool
		}{
			{"one more than the burst", 0, 0, objectBurst, false},
			{"one that repeats", 0, 0, 3, true},
			{"another object", 0, 1, 0, true},
			{"before the time is over", objectEvery - time.Second, 0, objectBurst, false},
			{"after it", time.Second, 0, objectBurst, true},
			{"and no second one", 0, 0, objectBurst + 1, false},
		} {
			time.Sleep(step.after)
			if taken := warn(step.about, step.message); taken != step.taken {
				t.Errorf("%s: taken %t", step.what, taken)
			}
		}
	})
}

// TestWriterIsBounded refuses Events while too many wait, and forgets the written ones to make room.
func TestWriterIsBounded(t *testing.T) {
	w := newWriter()
	p := problem.Problem{Reason: wrong, Message: "wrong"}
	for i := range maxEvents {
		if !w.Warn(service(i), p) {
			t.Fatalf("Event %d is refused", i)
		}
	}
	if w.Warn(service(maxEvents), p) {
		t.Error("one Event too many is taken")
	}
	for _, e := range w.events {
		e.due = 0
		break
	}
	if !w.Warn(service(maxEvents), p) {
		t.Error("the room of a written Event is not used")
	}
	if len(w.events) != maxEvents {
		t.Errorf("%d Events are kept", len(w.events))
	}
}
