// Package watch fills the sources of pkg/derive with the objects of API servers. One line declares the Source of a kind
// and the function that projects an object to the facts that decisions read:
//
//	kinds := watch.NewKinds(engine)
//	services := watch.NewSource(kinds, "services", serviceFacts)
//	gateways := watch.NewSource(kinds, "gateways", gatewayFacts, watch.In("kube-system"), watch.Optional())
//
//	watcher, err := watch.New(config, log, kinds.All()...)
//	go watcher.Run(ctx)
//
// A kind may have several Sources. It is watched once, and one pass takes the changes of an event in all its Sources.
// Tests fill the Sources through the same declarations (Kinds.Fill).
//
// Objects are not kept. An event that changes no fact ends in the Source, and memory holds only the facts. The facts
// stay while the API server is unavailable.
//
// A Source is Loaded once the API server has listed all objects. The definition of an optional kind may not be
// installed. Then the Source is also Loaded, and empty, if the API server answers that it has no such kind. An API
// server that starts answers so for some moments about every custom resource. So the answer counts only if the server
// is ready and repeats it. For a kind that it has listed before, it has to repeat it for 20 seconds. If nothing would
// be removed at the start, one answer suffices (Believed).
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tombolo-net/tombolo/pkg/kubeclient"
)

const (
	// confirmAfter is how long an API server has to repeat that it has no such kind until the kind counts as absent.
	confirmAfter = 2 * time.Second
	// confirmListedAfter replaces confirmAfter for a kind that the API server has listed before. Behind one address there
	// may be several API servers. One of them may not have this version of the API yet, or may have lost it.
	confirmListedAfter = 20 * time.Second
	// retryAfter is the wait after a failed watch, and the interval of requests while an absence is being confirmed.
	retryAfter = time.Second
	// slowAfter is when kinds that are not listed yet are named in the log.
	slowAfter = 5 * time.Second
	// lookAgain is how often each Node looks for a kind that is absent.
	lookAgain = 10 * time.Second
)

// Watcher watches kinds of one API server.
type Watcher struct {
	kinds  []Kind
	client []rest.Interface // of each kind
	http   *http.Client
	stop   func() // of http's connections that are being dialled
	log    *slog.Logger
	// changed is called after each change of the Status.
	changed func()

	confirmListed time.Duration // confirmListedAfter

	mu     sync.Mutex
	states []Status
}

// Status is how the watch of a kind goes.
type Status struct {
	Kind string
	// Listed is set if the Source has all existing objects, or if the kind does not exist.
	Listed bool
	// Absent is set if the API server has no such kind.
	Absent bool
	// Waiting is the reason why there is no watch yet; empty while the watch runs.
	Waiting string
}

// New prepares to watch kinds of an API server. It does not connect.
func New(config *rest.Config, log *slog.Logger, kinds ...Kind) (*Watcher, error) {
	config = kubeclient.WithWarnings(config, log)
	httpClient, stop, err := kubeclient.ForWatches(config)
	if err != nil {
		return nil, fmt.Errorf("prepare watches: %w", err)
	}
	w := &Watcher{kinds: kinds, http: httpClient, stop: stop, log: log, changed: func() {},
		confirmListed: confirmListedAfter}
	codecs := serializer.NewCodecFactory(scheme)
	for _, k := range kinds {
		gvk, err := apiutil.GVKForObject(k.resource.object, scheme)
		if err != nil {
			return nil, fmt.Errorf("prepare watches: %w", err)
		}
		c, err := apiutil.RESTClientForGVK(gvk, false, false, config, codecs, httpClient)
		if err != nil {
			return nil, fmt.Errorf("prepare the watch of %s: %w", k.Resource(), err)
		}
		w.client = append(w.client, c)
		w.states = append(w.states,
			Status{Kind: k.resource.kind(), Waiting: fmt.Sprintf("the API server at %s has not listed them yet", config.Host)})
	}
	return w, nil
}

// OnChange makes the watcher call f after each change of the Status. It must be called before Run.
func (w *Watcher) OnChange(f func()) { w.changed = f }

// Status returns how the watches go, in the order of the kinds.
func (w *Watcher) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.states)
}

// Listed reports whether every kind has been listed once.
func (w *Watcher) Listed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.states, func(s Status) bool { return !s.Listed })
}

func (w *Watcher) listed(i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states[i].Listed
}

// Run watches until ctx ends. The rows of the Sources stay.
func (w *Watcher) Run(ctx context.Context) {
	slow := time.AfterFunc(slowAfter, func() {
		for _, s := range w.Status() {
			if !s.Listed {
				w.log.Info("not watching yet", "kind", s.Kind, "error", s.Waiting)
			}
		}
	})
	defer slow.Stop()
	var running sync.WaitGroup
	for i := range w.kinds {
		running.Go(func() { w.follow(ctx, i) })
	}
	running.Wait()
	w.stop()
	w.http.CloseIdleConnections()
}

// follow watches one kind. While the kind is served, it uses one reflector, which resumes after a broken watch. After
// an absence it starts from nothing.
func (w *Watcher) follow(ctx context.Context, i int) {
	k := w.kinds[i]
	var since time.Time // first answer of the API server, while ready, that it has no such kind
	absent, confirm := false, confirmAfter
	if k.believed {
		confirm = 0
	}
	var reflector *toolscache.Reflector
	for ctx.Err() == nil {
		if reflector == nil {
			reflector = toolscache.NewReflectorWithOptions(w.listWatch(i), k.resource.object, k.store(w.log, func() {
				since, absent, confirm = time.Time{}, false, w.confirmListed
				w.set(i, Status{Listed: true})
			}), toolscache.ReflectorOptions{Name: "tombolo",
				Backoff: &wait.Backoff{Duration: retryAfter, Factor: 1.5, Jitter: 0.5, Steps: 5, Cap: 10 * time.Second}})
		}
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := retryAfter
		missing := apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && k.ifAllowed && (absent || !w.listed(i))
		switch {
		case err == nil: // the server ended the watch
		case !missing:
			since = time.Time{}
			w.waiting(i, err.Error())
		case absent:
			pause = lookAgain
		case !k.optional:
			w.waiting(i, "the API server has no such kind; install its definition")
		case apierrors.IsForbidden(err) && !k.believed && !w.allowed():
			// An API server refuses requests for all kinds until it has loaded its roles, and until a new account has roles. If
			// one kind may be listed, the roles are loaded.
			since = time.Time{}
			w.waiting(i, "the API server refuses all kinds: "+err.Error())
		default:
			var text string
			if since, text = w.doubt(ctx, i, since, confirm); text != "" {
				w.waiting(i, text)
				break
			}
			if apierrors.IsForbidden(err) {
				w.log.Warn("this program may not list a kind, and goes on without it: apply the manifest of this version",
					"kind", k.resource.kind(), "error", err)
			}
			absent, confirm, reflector = true, confirmAfter, nil
			k.none()
			w.set(i, Status{Listed: true, Absent: true})
			pause = lookAgain
		}
		if !sleep(ctx, wait.Jitter(pause, 0.2)) {
			return
		}
	}
}

// allowed reports whether the API server has let this program list any kind.
func (w *Watcher) allowed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.states, func(s Status) bool { return s.Listed && !s.Absent })
}

// doubt is called when the API server answers that it has no such kind. It returns the time since when the API server
// has answered so and was ready. It also returns the reason to wait, which is empty once the absence is confirmed.
func (w *Watcher) doubt(ctx context.Context, i int, since time.Time, confirm time.Duration) (time.Time, string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// An API server that refuses this request is ready enough: the client was allowed to list the kind, so the roles are
	// loaded, and this request will never be allowed.
	err := w.client[i].Get().AbsPath("/readyz").Do(ctx).Error()
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return time.Time{},
			fmt.Sprintf("the API server answers that it has no such kind, which is not believed before it is ready: %v", err)
	}
	if since.IsZero() {
		since = time.Now()
	}
	if time.Since(since) < confirm {
		return since, "the API server answers that it has no such kind; asking again to be sure"
	}
	return since, ""
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// waiting records why a kind is not watched at the moment.
func (w *Watcher) waiting(i int, text string) {
	w.mu.Lock()
	s := w.states[i]
	w.mu.Unlock()
	s.Waiting = text
	w.set(i, s)
}

// set records the state of the watch of a kind, and logs a change once.
func (w *Watcher) set(i int, s Status) {
	s.Kind = w.kinds[i].resource.kind()
	w.mu.Lock()
	before := w.states[i]
	w.states[i] = s
	w.mu.Unlock()
	if s == before {
		return
	}
	switch {
	case s.Waiting != "":
		w.log.Info("not watching yet", "kind", s.Kind, "error", s.Waiting)
	case s.Absent && before.Listed && !before.Absent:
		w.log.Warn("the API server no longer has this kind (its CustomResourceDefinition was deleted); its objects are gone",
			"kind", s.Kind)
	case s.Absent:
		w.log.Info("not watching: the API server has no such kind (its CustomResourceDefinition is not installed)",
			"kind", s.Kind)
	default:
		w.log.Info("watching", "kind", s.Kind)
	}
	w.changed()
}

var parameters = runtime.NewParameterCodec(scheme)

// listWatch is how the reflector reads a kind.
func (w *Watcher) listWatch(i int) *toolscache.ListWatch {
	k := w.kinds[i]
	request := func(o *metav1.ListOptions) *rest.Request {
		if k.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, k.name).String()
		}
		if k.selector != nil {
			o.LabelSelector = k.selector.String()
		}
		return w.client[i].Get().NamespaceIfScoped(k.namespace,
			k.namespace != "").Resource(k.resource.Resource).VersionedParams(o, parameters)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := k.resource.empty()
			return list, request(&o).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.Watch = true
			return request(&o).Watch(ctx)
		},
	}
}
