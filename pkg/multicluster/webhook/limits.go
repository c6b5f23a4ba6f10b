package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// Limits of what one member may have in the Common Area. docs/multicluster.md lists them.
const (
	MaxExports       = 10_000   // ResourceExports
	MaxExportBytes   = 32 << 20 // of all of them, as JSON
	MaxAnnounceBytes = 4 << 10  // of its MemberClusterAnnounce
	// WriteBytesPerSecond is how much a member may write for long, and MaxWrittenBytes how much
	// at once: each write is stored until the next compaction of etcd.
	WriteBytesPerSecond = 1 << 20
	MaxWrittenBytes     = 64 << 20
)

// limits counts what each member has in the Common Area, from what the API server has stored:
// requests that somebody forges at the webhooks' port count for nothing.
type limits struct {
	now func() time.Time

	mu      sync.Mutex
	exports map[types.NamespacedName]stored
	members map[string]*usage // by cluster ID
}

// stored is one ResourceExport.
type stored struct {
	member string
	bytes  int
}

// usage is what one member has, and how much it has written lately.
type usage struct {
	exports, bytes int
	written        float64 // decreases by WriteBytesPerSecond
	at             time.Time
}

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, exports: map[types.NamespacedName]stored{}, members: map[string]*usage{}}
}

// admit refuses a write of a member that has too much already.
func (l *limits) admit(req admission.Request, id string) admission.Response {
	size := len(req.Object.Raw)
	if size > exportcheck.MaxBytes {
		return denied("ResourceExport %s has %d bytes: expected at most %d", req.Name, size, exportcheck.MaxBytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.members[id]
	if u == nil {
		return admission.Allowed("")
	}
	before := 0
	if req.Operation == admissionv1.Update {
		before = l.exports[types.NamespacedName{Namespace: req.Namespace, Name: req.Name}].bytes
	}
	tooMuch := func(format string, args ...any) admission.Response {
		return admission.Errored(http.StatusTooManyRequests, fmt.Errorf("ResourceExport %s: cluster %s %s", req.Name, id, fmt.Sprintf(format, args...)))
	}
	u.settle(l.now())
	switch {
	case req.Operation == admissionv1.Create && u.exports >= MaxExports:
		return tooMuch("has %d ResourceExports: expected at most %d", u.exports, MaxExports)
	case u.bytes-before+size > MaxExportBytes:
		return tooMuch("has ResourceExports of %d bytes: expected at most %d with this one", u.bytes-before, MaxExportBytes)
	case u.written > MaxWrittenBytes:
		return tooMuch("has written %d bytes at once: expected at most %d, and %d a second; try again later", int(u.written), MaxWrittenBytes, WriteBytesPerSecond)
	}
	return admission.Allowed("")
}

// settle forgets what was written long ago.
func (u *usage) settle(now time.Time) {
	u.written = max(0, u.written-now.Sub(u.at).Seconds()*WriteBytesPerSecond)
	u.at = now
}

// put counts a ResourceExport as the API server has it. written says that it was stored just now.
func (l *limits) put(key types.NamespacedName, s stored, written bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(key)
	l.exports[key] = s
	u := l.members[s.member]
	if u == nil {
		u = &usage{at: l.now()}
		l.members[s.member] = u
	}
	u.exports++
	u.bytes += s.bytes
	if written {
		u.settle(l.now())
		u.written += float64(s.bytes)
	}
}

func (l *limits) remove(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(key)
	for id, u := range l.members {
		if u.settle(l.now()); u.exports == 0 && u.written == 0 {
			delete(l.members, id)
		}
	}
}

func (l *limits) forget(key types.NamespacedName) {
	s, ok := l.exports[key]
	if !ok {
		return
	}
	delete(l.exports, key)
	u := l.members[s.member]
	u.exports--
	u.bytes -= s.bytes
}

// sizeAnnotation has the length of an object whose content is not kept in memory.
const sizeAnnotation = "size"

// measure replaces a ResourceExport by its name, its member and its length.
func measure(o any) (any, error) {
	re, ok := o.(*mcv1alpha1.ResourceExport)
	if !ok {
		return o, nil
	}
	raw, err := json.Marshal(re)
	if err != nil {
		return nil, fmt.Errorf("measure ResourceExport %s: %w", re.Name, err)
	}
	small := &mcv1alpha1.ResourceExport{TypeMeta: re.TypeMeta}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = re.Namespace, re.Name, re.UID, re.ResourceVersion
	small.Spec.ClusterID = re.Spec.ClusterID
	small.Annotations = map[string]string{sizeAnnotation: fmt.Sprint(len(raw))}
	return small, nil
}

func sizeOf(re *mcv1alpha1.ResourceExport) stored {
	s := stored{member: re.Spec.ClusterID}
	_, _ = fmt.Sscan(re.Annotations[sizeAnnotation], &s.bytes)
	return s
}

// watch keeps the counts while the manager runs, in every replica: each serves webhooks.
func (l *limits) watch(mgr ctrl.Manager, namespace string) error {
	watches, err := kubeclient.ForWatches(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("count members' ResourceExports: %w", err)
	}
	counted, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: watches,
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultTransform:  measure,
	})
	if err != nil {
		return fmt.Errorf("count members' ResourceExports: %w", err)
	}
	return mgr.Add(counter{cache: counted, limits: l})
}

// counter runs the cache that limits are counted from.
type counter struct {
	cache  cache.Cache
	limits *limits
}

// NeedLeaderElection is false: every replica counts for the webhooks that it serves.
func (counter) NeedLeaderElection() bool { return false }

// Start runs until ctx ends. The manager calls it.
func (c counter) Start(ctx context.Context) error {
	informer, err := c.cache.GetInformer(ctx, &mcv1alpha1.ResourceExport{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("count members' ResourceExports: %w", err)
	}
	key := func(re *mcv1alpha1.ResourceExport) types.NamespacedName {
		return types.NamespacedName{Namespace: re.Namespace, Name: re.Name}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, isInInitialList bool) {
			if re, ok := o.(*mcv1alpha1.ResourceExport); ok {
				c.limits.put(key(re), sizeOf(re), !isInInitialList)
			}
		},
		UpdateFunc: func(was, is any) {
			old, okOld := was.(*mcv1alpha1.ResourceExport)
			re, ok := is.(*mcv1alpha1.ResourceExport)
			if ok && okOld && re.ResourceVersion != old.ResourceVersion {
				c.limits.put(key(re), sizeOf(re), true)
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if re, ok := o.(*mcv1alpha1.ResourceExport); ok {
				c.limits.remove(key(re))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("count members' ResourceExports: %w", err)
	}
	return c.cache.Start(ctx)
}
