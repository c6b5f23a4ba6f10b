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

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// These are limits for one member in the Common Area. docs/multicluster-security.md lists them.
const (
	maxExports       = exportcheck.MaxExports
	maxExportBytes   = exportcheck.MaxExportBytes
	maxAnnounceBytes = 4 << 10 // of its MemberClusterAnnounce
	// writeBytesPerSecond is how much a member may write in the long run, and maxWrittenBytes how much in a burst: each
	// write is stored until the next compaction of etcd.
	writeBytesPerSecond = 1 << 20
	maxWrittenBytes     = 64 << 20
	// announcesPerSecond is how often a MemberClusterAnnounce may be written in the long run, and maxAnnounces how often
	// in a burst. Members write it every ten seconds.
	announcesPerSecond = 1
	maxAnnounces       = 60
)

// limits counts each member's objects in the Common Area. It counts only objects that the API server has stored. So
// forged requests to the webhooks' port do not count.
type limits struct {
	now func() time.Time

	mu      sync.Mutex
	exports map[types.NamespacedName]stored
	members map[string]*usage // by cluster ID

	announces map[types.NamespacedName]*bucket // writes of MemberClusterAnnounces
}

// bucket counts recent writes. It leaks at a rate.
type bucket struct {
	level float64
	at    time.Time
}

// settle subtracts the part that has leaked since the last call.
func (b *bucket) settle(now time.Time, perSecond float64) {
	b.level = max(0, b.level-now.Sub(b.at).Seconds()*perSecond)
	b.at = now
}

// stored is one ResourceExport.
type stored struct {
	member string
	bytes  int
	kind   string // if it has a limit of its own
}

// limitOf returns the number of ResourceExports of a kind that a member may have, and their name in messages.
func limitOf(kind string) (own string, most int, name string) {
	switch kind {
	case multicluster.LabelIdentityKind:
		return kind, exportcheck.MaxLabels, "LabelIdentities"
	case multicluster.PodAddressesKind:
		return kind, exportcheck.MaxAddressBlocks, "blocks of Pods' addresses"
	}
	return "", maxExports, "ResourceExports"
}

// usage counts the objects of one member and its recent writes.
type usage struct {
	exports map[string]int // by kind, as limitOf has them
	bytes   int
	written bucket // bytes; leaks writeBytesPerSecond
}

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, exports: map[types.NamespacedName]stored{}, members: map[string]*usage{},
		announces: map[types.NamespacedName]*bucket{}}
}

// admitAnnounce refuses to write an announcement that was written too often lately.
func (l *limits) admitAnnounce(req admission.Request) admission.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.announces[types.NamespacedName{Namespace: req.Namespace, Name: req.Name}]
	if b == nil {
		return admission.Allowed("")
	}
	if b.settle(l.now(), announcesPerSecond); b.level >= maxAnnounces {
		return admission.Errored(http.StatusTooManyRequests,
			fmt.Errorf("MemberClusterAnnounce %s was written %d times at once: expected at most %d, and %d a second; try "+
				"again later",
				req.Name, int(b.level), maxAnnounces, announcesPerSecond))
	}
	return admission.Allowed("")
}

// announced counts one write of a MemberClusterAnnounce. Writes before a deletion still count, since the member may
// create it again.
func (l *limits) announced(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b := l.announces[key]
	if b == nil {
		for other, old := range l.announces {
			if old.settle(now, announcesPerSecond); old.level == 0 {
				delete(l.announces, other)
			}
		}
		b = &bucket{at: now}
		l.announces[key] = b
	}
	b.settle(now, announcesPerSecond)
	b.level++
}

// admit refuses a write of a member that has reached a limit.
func (l *limits) admit(req admission.Request, id, kind string) admission.Response {
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
		return admission.Errored(http.StatusTooManyRequests,
			fmt.Errorf("ResourceExport %s: cluster %s %s", req.Name, id, fmt.Sprintf(format, args...)))
	}
	u.written.settle(l.now(), writeBytesPerSecond)
	own, most, name := limitOf(kind)
	switch {
	case req.Operation == admissionv1.Create && u.exports[own] >= most:
		return tooMuch("has %d %s: expected at most %d", u.exports[own], name, most)
	case u.bytes-before+size > maxExportBytes:
		return tooMuch("has ResourceExports of %d bytes: expected at most %d with this one", u.bytes-before, maxExportBytes)
	case u.written.level > maxWrittenBytes:
		return tooMuch("has written %d bytes at once: expected at most %d, and %d a second; try again later",
			int(u.written.level), maxWrittenBytes, writeBytesPerSecond)
	}
	return admission.Allowed("")
}

// put counts a ResourceExport that the API server has stored. written is set if it was stored just now.
func (l *limits) put(key types.NamespacedName, s stored, written bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(key)
	l.exports[key] = s
	u := l.members[s.member]
	if u == nil {
		u = &usage{exports: map[string]int{}, written: bucket{at: l.now()}}
		l.members[s.member] = u
	}
	u.count(s, +1)
	if written {
		u.written.settle(l.now(), writeBytesPerSecond)
		u.written.level += float64(s.bytes)
	}
}

func (l *limits) remove(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(key)
	for id, u := range l.members {
		if u.written.settle(l.now(), writeBytesPerSecond); len(u.exports) == 0 && u.written.level == 0 {
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
	l.members[s.member].count(s, -1)
}

// count counts an export that is added (+1) or removed (-1).
func (u *usage) count(s stored, by int) {
	if u.exports[s.kind] += by; u.exports[s.kind] == 0 {
		delete(u.exports, s.kind)
	}
	u.bytes += by * s.bytes
}

// sizeAnnotation has the length of an object whose content is not kept in memory.
const sizeAnnotation = "size"

// measure reduces a ResourceExport to its name, its member and its length, and an announcement to its name. The cache
// needs no more.
func measure(o any) (any, error) {
	if a, ok := o.(*mcv1alpha1.MemberClusterAnnounce); ok {
		small := &mcv1alpha1.MemberClusterAnnounce{TypeMeta: a.TypeMeta}
		small.Namespace, small.Name, small.UID, small.ResourceVersion = a.Namespace, a.Name, a.UID, a.ResourceVersion
		return small, nil
	}
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
	small.Spec.ClusterID, small.Spec.Kind = re.Spec.ClusterID, re.Spec.Kind
	small.Annotations = map[string]string{sizeAnnotation: fmt.Sprint(len(raw))}
	return small, nil
}

func sizeOf(re *mcv1alpha1.ResourceExport) stored {
	s := stored{member: re.Spec.ClusterID}
	s.kind, _, _ = limitOf(re.Spec.Kind)
	_, _ = fmt.Sscan(re.Annotations[sizeAnnotation], &s.bytes)
	return s
}

// watch updates the counts while the manager runs. It runs in every replica, since each serves webhooks.
func (l *limits) watch(mgr ctrl.Manager, namespace string) error {
	watches, stop, err := kubeclient.ForWatches(mgr.GetConfig())
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
	return mgr.Add(counter{cache: counted, limits: l, stop: stop})
}

// counter runs the cache that limits are counted from.
type counter struct {
	cache  cache.Cache
	limits *limits
	stop   func() // of connections that are being dialled
}

// NeedLeaderElection returns false, since every replica counts for the webhooks that it serves.
func (counter) NeedLeaderElection() bool { return false }

// Start runs until ctx ends. The manager calls it.
func (c counter) Start(ctx context.Context) error {
	defer c.stop()
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
	announces, err := c.cache.GetInformer(ctx, &mcv1alpha1.MemberClusterAnnounce{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("count members' announcements: %w", err)
	}
	_, err = announces.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, isInInitialList bool) {
			if a, ok := o.(*mcv1alpha1.MemberClusterAnnounce); ok && !isInInitialList {
				c.limits.announced(types.NamespacedName{Namespace: a.Namespace, Name: a.Name})
			}
		},
		UpdateFunc: func(was, is any) {
			old, okOld := was.(*mcv1alpha1.MemberClusterAnnounce)
			a, ok := is.(*mcv1alpha1.MemberClusterAnnounce)
			if ok && okOld && a.ResourceVersion != old.ResourceVersion {
				c.limits.announced(types.NamespacedName{Namespace: a.Namespace, Name: a.Name})
			}
		},
	})
	if err != nil {
		return fmt.Errorf("count members' announcements: %w", err)
	}
	return c.cache.Start(ctx)
}
