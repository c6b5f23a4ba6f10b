// Package heartbeat writes the state of a program into an object of its own in the API server, with the time.
package heartbeat

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
)

const (
	// Every is how often the object is written.
	Every = time.Minute
	// look is the interval at which State is compared. It is also the time until a failed write is repeated.
	look = 5 * time.Second
	// timeout bounds one write.
	timeout = 15 * time.Second
)

// Writer writes one object each minute.
type Writer struct {
	// Resource is the plural name of the kind in GroupVersion.
	Resource string
	// GroupVersion is crd.antrea.io/v1beta1 if it is empty.
	GroupVersion schema.GroupVersion
	// Name is the object's name.
	Name string
	// Owner is the field manager of server-side apply. Fields that it no longer writes are removed.
	Owner string
	// Look returns the object to write, with its kind and name. It is written as JSON. If it is nil, nothing is written.
	Look func(context.Context) (any, error)
	// Interval is the time between two writes; Every if it is nil.
	Interval func() time.Duration
	Log      *slog.Logger

	// State returns a text for the part of the state that must not wait for the next minute. If it changes, the object is
	// written at once.
	State func() string

	// Wrote is called after each write, if it is not nil.
	Wrote func()

	api rest.Interface
}

// Connect sets up the client. It must be called before Run.
func (w *Writer) Connect(config *rest.Config) error {
	c := rest.CopyConfig(config)
	version := w.GroupVersion
	if version.Empty() {
		version = crdv1beta1.GroupVersion
	}
	c.GroupVersion, c.APIPath = &version, "/apis"
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	api, err := rest.RESTClientFor(c)
	if err != nil {
		return fmt.Errorf("set up the client of %s: %w", w.Resource, err)
	}
	w.api = api
	return nil
}

// Run writes until ctx ends. The first write is at once. A failed write is logged once, and
// repeated after some seconds.
func (w *Writer) Run(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	failed, state := "", ""
	for due := time.Now(); ; {
		if now := w.State(); !time.Now().Before(due) || now != state {
			err := w.write(ctx)
			// The random part prevents Nodes that started at the same time from writing at the same time for long.
			every := Every
			if w.Interval != nil {
				every = w.Interval()
			}
			due = time.Now().Add(every - every/10 + rand.N(every/5))
			if err != nil {
				due = time.Now()
			}
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				failed, state = "", now
			case err.Error() != failed:
				failed = err.Error()
				w.Log.Info("the state of this program is not written yet; trying again", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Writer) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	object, err := w.Look(ctx)
	if err != nil || object == nil {
		return err
	}
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", w.Resource, w.Name, err)
	}
	err = w.api.Patch(types.ApplyPatchType).Resource(w.Resource).Name(w.Name).Param("fieldManager", w.Owner).
		Param("force", "true").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write %s %s: %w", w.Resource, w.Name, err)
	}
	if w.Wrote != nil {
		w.Wrote()
	}
	return nil
}
