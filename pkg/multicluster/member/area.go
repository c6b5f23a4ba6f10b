package member

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/kubeclient"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

const (
	leaderTimeout = 8 * time.Second // for one request to the leader
	leaveFor      = 2 * time.Minute // how long leaving is tried when the leader is away
)

// commonArea is a connection to a leader's Namespace. It watches the leader's ResourceImports and this cluster's
// ResourceExports there, sends announcements, and has a client for the writes.
type commonArea struct {
	area    membership.Area
	number  int           // of the connection
	client  client.Client // reads are live
	http    *http.Client
	watcher *watch.Watcher
	broken  error // the reason if there is neither watcher nor client

	cancel  context.CancelFunc // ends the watches and the announcements
	running sync.WaitGroup

	mu           sync.Mutex
	announcement Announcement
}

// Announcement is the result of this cluster's last announcement to the leader. The zero value means that no
// announcement has been tried since the connection was made.
type Announcement struct {
	Tried time.Time // when the last one was sent
	Done  time.Time // when the last successful one was sent
	Found bool      // the leader had this cluster's MemberClusterAnnounce already
	Error string    // why the last one failed; empty if it did not
}

// newArea prepares a connection to an area. If the connection cannot be made at all, its announcement has the error,
// and it is never synced.
func newArea(area membership.Area, number int, c *controller) *commonArea {
	a := &commonArea{area: area, number: number, cancel: func() {}, http: &http.Client{}}
	if err := a.prepare(c); err != nil {
		a.broken = fmt.Errorf("connect to %s: %w", area, err)
	}
	return a
}

func (a *commonArea) prepare(c *controller) error {
	config := kubeclient.WithWarnings(&rest.Config{
		Host: a.area.Server, BearerToken: a.area.Token, QPS: -1, // the leader's API server bounds requests
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(a.area.CA)},
		UserAgent:       "tombolo-member/" + a.area.ClusterID,
	}, c.log)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	a.http = httpClient
	// This mapper does not ask the API server for its kinds. So the connection can be made while the leader is
	// unavailable.
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"MemberClusterAnnounce", "ResourceExport", "ResourceImport"} {
		mapper.Add(mcv1alpha1.GroupVersion.WithKind(kind), apimeta.RESTScopeNamespace)
		mapper.Add(mcv1alpha1.GroupVersion.WithKind(kind+"List"), apimeta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Event"), apimeta.RESTScopeNamespace)
	if a.client, err = client.New(config,
		client.Options{HTTPClient: httpClient, Scheme: Scheme(), Mapper: mapper}); err != nil {
		return err
	}
	in := watch.In(a.area.Namespace)
	own := watch.Selecting(labels.SelectorFromSet(labels.Set{multicluster.LabelSourceClusterID: a.area.ClusterID}))
	kinds := append(c.tables.Area.All(in), c.tables.OwnExports.All(in, own)...)
	a.watcher, err = watch.New(config, c.log.With("area", a.area.String()), kinds...)
	return err
}

// start watches the area and announces this cluster in it. Both end with stop, with disconnect, or with ctx.
func (a *commonArea) start(ctx context.Context, c *controller) {
	ctx, a.cancel = context.WithCancel(ctx)
	if a.broken == nil {
		a.watcher.OnChange(func() { c.setConnection(a) })
		a.running.Go(func() { a.watcher.Run(ctx) })
	}
	a.running.Go(func() { a.heartbeat(ctx, c) })
}

// heartbeat announces this cluster at intervals, and writes each result to the table of connections. If a result equals
// the last one, nothing is evaluated.
func (a *commonArea) heartbeat(ctx context.Context, c *controller) {
	labelled, failure := false, ""
	for {
		before, after := a.announce(ctx, announcementTo(a.area))
		if ctx.Err() != nil {
			return
		}
		if before.Error != after.Error {
			if after.Error != "" {
				c.log.Error("disconnected from the leader", "error", after.Error)
			} else {
				c.log.Info("connected to the leader again", "area", a.area.String())
			}
		}
		if !labelled && after.Error == "" {
			if err := a.labelInfo(ctx); err == nil {
				labelled = true
			} else if text := steady(failure, err.Error()); text != failure && ctx.Err() == nil {
				failure = text
				c.log.Error("an old ClusterInfo may stay announced; tried again with the next heartbeat",
					"area", a.area.String(), "error", text)
			}
		}
		c.setConnection(a)
		timer := time.NewTimer(time.Until(next(after)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// setConnection writes the state of a connection to the table, if the connection is the current one.
func (c *controller) setConnection(a *commonArea) {
	last := a.state()
	now := connectionOf(a.number, a.area, a.broken == nil && a.watcher.Listed(), last)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.area == a {
		c.tables.base.Connection.Set(membership.Here, now)
		c.holdWrites()
	}
}

func (a *commonArea) state() Announcement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.announcement
}

// disconnect ends the watches and the announcements, and waits until they have ended.
func (a *commonArea) disconnect() {
	a.cancel()
	a.running.Wait()
}

// stop ends the connection.
func (a *commonArea) stop() {
	a.disconnect()
	a.http.CloseIdleConnections()
}

// announce creates this cluster's announcement, or updates its time stamp, and records the result. If a connected
// leader takes too long to answer, announce repeats the request once at once: a short load of the leader's API server
// must not disconnect a cluster.
func (a *commonArea) announce(ctx context.Context, want *mcv1alpha1.MemberClusterAnnounce) (before,
	after Announcement) {
	now := time.Now()
	found, err := a.touch(ctx, want, now)
	if last := a.state(); err != nil && time.Since(now) >= leaderTimeout && !last.Done.IsZero() && last.Error == "" {
		found, err = a.touch(ctx, want, time.Now())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.announcement
	a.announcement.Tried, a.announcement.Error = now, ""
	if err != nil {
		text := fmt.Sprintf("announce cluster %s to %s: %v", a.area.ClusterID, a.area, err)
		if remedy := remedy(a.area, err); remedy != "" {
			text += "; " + remedy
		}
		a.announcement.Error = steady(before.Error, text)
	} else {
		a.announcement.Done, a.announcement.Found = now, found
	}
	return before, a.announcement
}

// remedy returns the remedy for a failed announcement, with the object and the field to correct. If the error passes
// without an action of the administrator, the remedy is empty.
func remedy(a membership.Area, err error) string {
	const copied = "copy ca.crt and token from the Secret of a ServiceAccount in " +
		"the leader that is for this cluster (`mc create membertoken` makes one)"
	secret, set := "Secret "+a.Secret+", key ", " of ClusterSet "+a.ClusterSet
	var (
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		invalid     x509.CertificateInvalidError
		unreachable *url.Error
		status      apierrors.APIStatus
	)
	switch {
	case errors.As(err, &authority):
		return secret + "ca.crt: it is not the CA of that API server: " + copied + ", or correct spec.leaders[0].server" + set
	case errors.As(err, &host):
		return "correct spec.leaders[0].server" + set +
			": it has to be a name or an address that the certificate of the leader's API server is for"
	case errors.As(err, &invalid):
		return secret + "ca.crt, and the certificate of the leader's API server: renew " +
			"the one that is not valid, or correct the clock of this cluster's Nodes"
	case errors.As(err, &unreachable):
		return "check that the API server runs and is reached from this cluster, and spec.leaders[0].server" + set
	case apierrors.IsUnauthorized(err):
		return secret +
			"token: the leader does not know it: it is of another cluster, has expired, or its ServiceAccount was deleted: " +
			copied
	case strings.Contains(err.Error(), "failed calling webhook"), apierrors.IsServiceUnavailable(err):
		return "check that Deployment antrea-mc-controller runs in Namespace " + a.Namespace + " of the leader"
	case strings.Contains(err.Error(), "admission webhook"):
		return "spec.clusterID and spec.leaders[0].clusterID" + set + ", and " + secret + "token, have to be those that " +
			"the leader has for this cluster (an ID does not change: delete the ClusterSet, and create it with the other one)"
	case apierrors.IsForbidden(err):
		return secret + "token: it may not be used in Namespace " + a.Namespace + " of the leader: correct spec.namespace" +
			set + ", or " + copied
	case !apierrors.IsNotFound(err):
	// In the next case the API server does not serve the path.
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return "the API server does not serve MemberClusterAnnounces of " + mcv1alpha1.GroupVersion.String() +
			": apply the leader's manifest of this version there (`mc deploy leadercluster`), " +
			"or correct spec.leaders[0].server" +
			set + " if it is not the leader"
	case errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		return "Namespace " + a.Namespace + " does not exist in the leader: correct spec.namespace" +
			set + ": it is that of the leader's ClusterSet"
	}
	return ""
}

var (
	ownPort = regexp.MustCompile(`\S+:\d+->`) // of a connection that was made for this try
	numbers = regexp.MustCompile(`\d+`)
)

// steady returns the text for an error. If the previous text differs only in numbers, it returns the previous text. The
// text goes into the ClusterSet's status, and errors of connections contain ports and stream numbers that differ each
// time.
func steady(before, now string) string {
	now = ownPort.ReplaceAllString(now, "")
	if numbers.ReplaceAllString(before, "") == numbers.ReplaceAllString(now, "") {
		return before
	}
	return now
}

func (a *commonArea) touch(ctx context.Context, want *mcv1alpha1.MemberClusterAnnounce,
	now time.Time) (found bool, err error) {
	if a.broken != nil {
		return false, a.broken
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	have := &mcv1alpha1.MemberClusterAnnounce{}
	err = a.client.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		return false, a.client.Create(ctx, want)
	case err != nil:
		return false, err
	case !have.DeletionTimestamp.IsZero():
		return false, fmt.Errorf("MemberClusterAnnounce %s is being deleted; announced again when it is gone", have.Name)
	case have.ClusterID != want.ClusterID || have.ClusterSetID != want.ClusterSetID ||
		have.LeaderClusterID != want.LeaderClusterID:
		return false, fmt.Errorf("MemberClusterAnnounce %s is of cluster %s in ClusterSet "+
			"%s with leader %s; delete it in the leader if that is out of date",
			have.Name, have.ClusterID, have.ClusterSetID, have.LeaderClusterID)
	}
	touched := have.DeepCopy()
	if touched.Annotations == nil {
		touched.Annotations = map[string]string{}
	}
	touched.Annotations[multicluster.AnnotationTouchTimestamp] = now.UTC().Format(time.RFC3339)
	return true, a.client.Patch(ctx, touched, client.MergeFrom(have))
}

// labelInfo labels this cluster's ClusterInfo if it has no label. Then the watch shows it, and the controller updates
// or deletes it like any other export.
func (a *commonArea) labelInfo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	have, err := a.unlabelledInfo(ctx)
	if have == nil || err != nil {
		return err
	}
	labelled := have.DeepCopy()
	metav1.SetMetaDataLabel(&labelled.ObjectMeta, multicluster.LabelSourceClusterID, a.area.ClusterID)
	metav1.SetMetaDataLabel(&labelled.ObjectMeta, multicluster.LabelSourceKind, multicluster.ClusterInfoKind)
	if err := a.client.Patch(ctx, labelled, patch{have, have.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label ResourceExport %s: %w", have.Name, err)
	}
	return nil
}

// unlabelledInfo returns this cluster's ClusterInfo if it lacks the label that selects own exports; else nil. A
// ClusterInfo that Antrea's member v2.4 has written lacks the label.
func (a *commonArea) unlabelledInfo(ctx context.Context) (*mcv1alpha1.ResourceExport, error) {
	re := &mcv1alpha1.ResourceExport{}
	name := a.area.ClusterID + multicluster.ClusterInfoSuffix
	err := a.client.Get(ctx, client.ObjectKey{Namespace: a.area.Namespace, Name: name}, re)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ResourceExport %s: %w", name, err)
	case re.Spec.Kind != multicluster.ClusterInfoKind || re.Spec.ClusterID != a.area.ClusterID,
		re.Labels[multicluster.LabelSourceClusterID] == a.area.ClusterID, !re.DeletionTimestamp.IsZero():
		return nil, nil
	}
	return re, nil
}

// leave deletes this cluster's exports in the leader and then its announcement. After that the leader forgets the
// cluster, and leave ends the connection. If the leader is unavailable, leave retries for two minutes. If that fails
// too, the leader removes the cluster once its announcement has expired.
func (a *commonArea) leave(ctx context.Context, log *slog.Logger) {
	defer a.stop()
	if a.broken != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveFor)
	defer cancel()
	delay := retry.Least
	for {
		err := a.leaveOnce(ctx)
		if err == nil {
			log.Info("left the ClusterSet", "area", a.area.String())
			return
		}
		select {
		case <-ctx.Done():
			log.Error("leaving the ClusterSet is given up; the leader removes this cluster when its announcement has expired",
				"area", a.area.String(), "error", err)
			return
		case <-time.After(delay):
			delay = min(2*delay, retry.Most)
		}
	}
}

func (a *commonArea) leaveOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*leaderTimeout)
	defer cancel()
	exports := &mcv1alpha1.ResourceExportList{}
	err := a.client.List(ctx, exports, client.InNamespace(a.area.Namespace),
		client.MatchingLabels{multicluster.LabelSourceClusterID: a.area.ClusterID})
	if err != nil {
		return fmt.Errorf("list own ResourceExports: %w", err)
	}
	info, err := a.unlabelledInfo(ctx) // if no heartbeat has labelled it
	if err != nil {
		return err
	}
	if info != nil {
		exports.Items = append(exports.Items, *info)
	}
	var errs []error
	for i := range exports.Items {
		re := &exports.Items[i]
		// There may be many labels and addresses. They are left to the leader, which removes all remaining exports of the
		// member.
		if membership.IsOwnExport(re) && re.Spec.Kind != multicluster.LabelIdentityKind &&
			re.Spec.Kind != multicluster.PodAddressesKind && re.DeletionTimestamp.IsZero() {
			errs = append(errs, client.IgnoreNotFound(a.client.Delete(ctx, re)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete own ResourceExports: %w", err)
	}
	announcement := &mcv1alpha1.MemberClusterAnnounce{}
	announcement.Namespace = a.area.Namespace
	announcement.Name = multicluster.AnnounceName(a.area.ClusterID)
	if err := a.client.Delete(ctx, announcement); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete MemberClusterAnnounce %s: %w", announcement.Name, err)
	}
	return nil
}

const (
	announceEvery = 10 * time.Second // the leader calls a member disconnected after 30 s
	announceRetry = 2 * time.Second  // after a failure, and after the first announcement
)

// connectionOf returns the state of a connection after an announcement. It omits the time of the announcement.
func connectionOf(number int, area membership.Area, synced bool, last Announcement) membership.Connection {
	return membership.Connection{Number: number, Area: area, Synced: synced,
		Tried: !last.Tried.IsZero(), Done: !last.Done.IsZero(), Found: last.Found, Error: last.Error}
}

// next returns the time of the next announcement. The first one is due at once. It only creates the object, so the
// second one follows soon. All later ones are due every ten seconds. After a failure the next one is due soon.
func next(a Announcement) time.Time {
	switch {
	case a.Tried.IsZero():
		return time.Time{}
	case a.Error != "" || !a.Found:
		return a.Tried.Add(announceRetry)
	}
	return a.Tried.Add(announceEvery)
}

// announcementTo is this cluster's announcement to a leader.
func announcementTo(area membership.Area) *mcv1alpha1.MemberClusterAnnounce {
	return &mcv1alpha1.MemberClusterAnnounce{
		ObjectMeta:      metav1.ObjectMeta{Namespace: area.Namespace, Name: multicluster.AnnounceName(area.ClusterID)},
		ClusterID:       area.ClusterID,
		ClusterSetID:    area.ClusterSet,
		LeaderClusterID: area.LeaderID,
	}
}
