package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/capture"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// Bounds of captures on a Node.
const (
	maxCaptures     = 16       // at once
	maxLiveCaptures = 4        // the same of live ones
	maxCaptureFile  = 32 << 20 // bytes of a file
	maxCaptureFiles = 128 << 20
)

const (
	capturesResource = "packetcaptures"
	captureSuffix    = ".pcapng"
	captureTimeout   = 60 * time.Second // of an object without one
	maxTimeout       = 300 * time.Second
	captureProgress  = 10 * time.Second // between two writes of the number of packets
	captureRetry     = 2 * time.Second
	captureWrite     = 10 * time.Second // bounds a write
	captureLook      = time.Minute      // files are compared without an event
	captureLive      = time.Hour        // the longest live capture
)

// captures runs the captures of this Node, keeps their files, and writes the status of their objects. It compares
// objects, captures and files, and repairs differences. So a capture that the end of an agent has interrupted begins
// again.
type captures struct {
	node string
	pod  string // of the agent
	// dir has a file for each capture of this Node. Its last part is the Node's name.
	dir string
	// rows returns the objects by their names; false before they are known.
	rows func() (map[string]captureRow, bool)
	// patch sends a merge patch of an object's status, which contains the resource version. It fails if the object has
	// changed since that version.
	patch func(ctx context.Context, name string, body []byte) error
	// run captures; it is capture.Run.
	run  func(context.Context, capture.Options) (int, error)
	now  func() time.Time
	log  *slog.Logger
	wake chan struct{}

	sessions map[types.UID]*captureSession
	wrote    map[types.UID]captureWritten

	live chan struct{} // taken by live captures

	mu    sync.Mutex
	bytes map[types.UID]int64 // of files
	total int64
}

// captureWritten is the last write of a status.
type captureWritten struct {
	version string // that the object had before
	at      time.Time
	failed  string
}

// captureSession is a capture that runs, or has run in this process.
type captureSession struct {
	cancel context.CancelFunc
	ended  chan struct{}

	// The lock of captures guards these.
	started  bool
	captured int
	done     bool
	err      error

	reported int // captured, as last written
	at       time.Time
}

// newCaptures prepares the captures of this Node. It returns nil without the feature.
func (a *Agent) newCaptures() (*captures, error) {
	if !a.config.Enabled("PacketCapture") {
		return nil, nil
	}
	config := rest.CopyConfig(a.options.REST)
	config.GroupVersion, config.APIPath = &crdv1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("set up the client of captures: %w", err)
	}
	rows := func() (map[string]captureRow, bool) {
		if a.tables.engine.Passes() == 0 {
			return nil, false
		}
		out := map[string]captureRow{}
		for _, row := range a.tables.captures.rows.All() {
			out[row.Key.Name] = row.Value
		}
		return out, true
	}
	patch := func(ctx context.Context, name string, body []byte) error {
		return api.Patch(types.MergePatchType).Resource(capturesResource).Name(name).SubResource("status").Body(body).
			Do(ctx).Error()
	}
	return makeCaptures(a.options.NodeName, a.options.PodName, a.options.RunDir, rows, patch, a.log), nil
}

func makeCaptures(node, pod, runDir string, rows func() (map[string]captureRow, bool),
	patch func(context.Context, string, []byte) error, log *slog.Logger) *captures {
	return &captures{
		node: node, pod: cmp.Or(pod, node), dir: filepath.Join(runDir, "captures", node), rows: rows, patch: patch,
		run: capture.Run, now: time.Now, log: log, wake: make(chan struct{}, 1),
		sessions: map[types.UID]*captureSession{}, wrote: map[types.UID]captureWritten{}, bytes: map[types.UID]int64{},
		live: make(chan struct{}, maxLiveCaptures),
	}
}

// changed records that objects or captures have changed.
func (c *captures) changed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// loop compares until ctx ends. Captures end with it, and their objects stay as they are for the next agent.
func (c *captures) loop(ctx context.Context) {
	defer func() {
		for _, s := range c.sessions {
			s.cancel()
			<-s.ended
		}
	}()
	first := true
	for {
		wait := captureRetry
		if rows, ok := c.rows(); ok {
			if first {
				c.count()
				first = false
			}
			wait = c.step(ctx, rows)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// count measures the files of the agent before this one.
func (c *captures) count() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // there were no captures, or step reports it
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			c.add(uidOfFile(e.Name()), info.Size())
		}
	}
}

func (c *captures) add(uid types.UID, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes[uid] += n
	c.total += n
}

// room takes n bytes for a file, if it may have them.
func (c *captures) room(uid types.UID, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes[uid]+int64(n) > maxCaptureFile || c.total+int64(n) > maxCaptureFiles {
		return false
	}
	c.bytes[uid] += int64(n)
	c.total += int64(n)
	return true
}

// free forgets the bytes of a file.
func (c *captures) free(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total -= c.bytes[uid]
	delete(c.bytes, uid)
}

func (c *captures) file(uid types.UID) string { return filepath.Join(c.dir, string(uid)+captureSuffix) }

func uidOfFile(name string) types.UID { return types.UID(strings.TrimSuffix(name, captureSuffix)) }

// uidPattern keeps a name that is no UID out of paths.
var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// step compares once. It returns when to compare again without an event.
func (c *captures) step(ctx context.Context, rows map[string]captureRow) time.Duration {
	known := map[types.UID]bool{}
	for _, row := range rows {
		known[row.UID] = true
	}
	for uid, s := range c.sessions {
		if !known[uid] {
			s.cancel()
			<-s.ended
			delete(c.sessions, uid)
		}
	}
	for uid := range c.wrote {
		if !known[uid] {
			delete(c.wrote, uid)
		}
	}
	c.removeFiles(known)
	wait, writes := captureLook, true
	byAge := slices.SortedFunc(keysOf(rows), func(a, b string) int {
		return cmp.Or(rows[a].Created.Compare(rows[b].Created), strings.Compare(a, b))
	})
	for _, name := range byAge {
		if row := rows[name]; row.Node == c.node {
			status, again := c.statusOf(ctx, name, row)
			wait = min(wait, again)
			if writes {
				again, writes = c.write(ctx, name, row, status) // an API server that does not answer is asked once
				wait = min(wait, again)
			}
		}
	}
	return max(wait, 100*time.Millisecond)
}

func keysOf[K comparable, V any](m map[K]V) func(yield func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// removeFiles removes the files of objects that are gone.
func (c *captures) removeFiles(known map[types.UID]bool) {
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.log.Warn("list the files of captures", "error", err)
	}
	for _, e := range entries {
		uid := uidOfFile(e.Name())
		if known[uid] {
			continue
		}
		if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil {
			c.log.Warn("remove the file of a capture", "error", err)
			continue
		}
		c.free(uid)
	}
}

// statusOf returns the status that an object should have, and when to compare it again. It begins the capture when it
// can.
func (c *captures) statusOf(ctx context.Context, name string, row captureRow) (crdv1alpha1.PacketCaptureStatus,
	time.Duration) {
	out := *row.Status.DeepCopy()
	if done := out.Condition(crdv1alpha1.PacketCaptureComplete); done != nil && done.Status == metav1.ConditionTrue {
		if s := c.sessions[row.UID]; s != nil { // another Node has ended it
			s.cancel()
		}
		c.mendPath(row, &out)
		return out, captureLook
	}
	if row.Spec.FileServer != nil {
		c.condition(&out, crdv1alpha1.PacketCaptureFileUploaded, false, reasonCaptureNotServed,
			"agents send no files to a file server: fetch the file with `tombolo capture fetch "+name+"`")
	}
	s := c.sessions[row.UID]
	if s == nil {
		if text := c.fault(row); text != "" {
			c.complete(&out, reasonCaptureFailed, text)
			if row.Fault != "" || out.FilePath == "" {
				out.FilePath, out.NumberCaptured = "", 0
			}
			return out, captureLook
		}
		switch pending := c.pending(); {
		case row.Link == "":
			c.condition(&out, crdv1alpha1.PacketCaptureStarted, false, reasonCaptureWaiting, row.Waits)
			return out, c.deadline(row).Sub(c.now())
		case pending != "":
			c.condition(&out, crdv1alpha1.PacketCaptureStarted, false, reasonCapturePending, pending)
			return out, captureLook // the end of a capture, or of a file, is an event
		}
		s = c.begin(ctx, name, row)
	}
	return out, c.report(s, row, &out)
}

// fault returns why an object without a capture will never have one.
func (c *captures) fault(row captureRow) string {
	switch started := row.Status.Condition(crdv1alpha1.PacketCaptureStarted); {
	case row.Fault != "":
		return row.Fault
	case !uidPattern.MatchString(string(row.UID)):
		return fmt.Sprintf("metadata.uid %q is no UID", row.UID)
	case row.Link == "" && started != nil && started.Status == metav1.ConditionTrue &&
		c.now().After(started.LastTransitionTime.Add(timeoutOf(row))):
		return "the agent was restarted during the capture, and then: " + row.Waits
	case row.Link == "" && (started == nil || started.Status != metav1.ConditionTrue) && c.now().After(c.deadline(row)):
		return fmt.Sprintf("the capture could not begin within %s: %s", timeoutOf(row), row.Waits)
	}
	return ""
}

// deadline is until when an object may wait for its Pods.
func (c *captures) deadline(row captureRow) time.Time {
	if s := row.Status.Condition(crdv1alpha1.PacketCaptureStarted); s != nil && s.Status == metav1.ConditionTrue {
		return s.LastTransitionTime.Add(timeoutOf(row))
	}
	return row.Created.Add(timeoutOf(row))
}

func timeoutOf(row captureRow) time.Duration {
	if t := row.Spec.Timeout; t != nil && *t > 0 {
		return min(time.Duration(*t)*time.Second, maxTimeout)
	}
	return captureTimeout
}

// pending returns why no capture can begin now.
func (c *captures) pending() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	running := 0
	for _, s := range c.sessions {
		if !s.done {
			running++
		}
	}
	switch {
	case running >= maxCaptures:
		return fmt.Sprintf("Node %s runs %d captures, the most at once: the others wait", c.node, running)
	case c.total+maxCaptureFile/16 > maxCaptureFiles:
		return fmt.Sprintf("files of captures use the %d MiB that they may on Node %s: delete PacketCaptures that are "+
			"complete", maxCaptureFiles>>20, c.node)
	}
	return ""
}

// begin starts a capture.
func (c *captures) begin(ctx context.Context, name string, row captureRow) *captureSession {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(row))
	s := &captureSession{cancel: cancel, ended: make(chan struct{})}
	c.sessions[row.UID] = s
	set := func(change func()) {
		c.mu.Lock()
		change()
		c.mu.Unlock()
	}
	go func() {
		defer close(s.ended)
		defer cancel()
		most := 0
		if first := row.Spec.CaptureConfig.FirstN; first != nil {
			most = int(first.Number)
		}
		n, err := c.toFile(ctx, row, capture.Options{Interface: row.Link, Filter: row.Filter, Most: max(most, 1),
			Room: func(n int) bool { return c.room(row.UID, n) },
			Started: func() {
				set(func() { s.started = true })
				c.log.Info("packets are captured", "capture", name, "interface", row.Link)
				c.changed()
			},
			Captured: func(n int) { set(func() { s.captured = n }) },
		})
		set(func() { s.captured, s.done, s.err = n, true, err })
		c.log.Info("packets are captured no more", "capture", name, "interface", row.Link, "packets", n, "error", err)
		c.changed()
	}()
	return s
}

// toFile captures to the file of an object.
func (c *captures) toFile(ctx context.Context, row captureRow, o capture.Options) (int, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return 0, fmt.Errorf("keep the file of the capture: %w", err)
	}
	c.free(row.UID) // of a capture that was interrupted
	file, err := os.OpenFile(c.file(row.UID), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("keep the file of the capture: %w", err)
	}
	o.To = file
	n, err := c.run(ctx, o)
	if e := file.Close(); err == nil && e != nil {
		err = fmt.Errorf("keep the file of the capture: %w", e)
	}
	return n, err
}

// report puts the state of a capture into a status. It returns when to do so again.
func (c *captures) report(s *captureSession, row captureRow, out *crdv1alpha1.PacketCaptureStatus) time.Duration {
	c.mu.Lock()
	started, captured, done, err := s.started, s.captured, s.done, s.err
	c.mu.Unlock()
	if !started && !done {
		return captureLook // its start is an event
	}
	if started {
		c.condition(out, crdv1alpha1.PacketCaptureStarted, true, reasonCaptureStarted, "")
		out.FilePath = c.pod + ":" + c.file(row.UID)
	}
	if !done {
		if since := c.now().Sub(s.at); since >= captureProgress {
			s.reported, s.at = captured, c.now()
		}
		out.NumberCaptured = int32(s.reported)
		return captureProgress
	}
	out.NumberCaptured = int32(captured)
	switch {
	case err == nil:
		c.complete(out, reasonCaptureSucceed, "")
	case errors.Is(err, context.DeadlineExceeded):
		c.complete(out, reasonCaptureTimeout, fmt.Sprintf("%d packets were captured within %s", captured,
			timeoutOf(row)))
	case errors.Is(err, context.Canceled): // the agent ends: its next one begins again
		return captureLook
	case errors.Is(err, capture.ErrFull):
		c.complete(out, reasonCaptureFailed, fmt.Sprintf("%v: a file may have %d MiB, and all files of Node %s %d MiB: "+
			"capture fewer packets, or delete other PacketCaptures",
			err, maxCaptureFile>>20, c.node, maxCaptureFiles>>20))
	default:
		c.complete(out, reasonCaptureFailed, err.Error())
	}
	return captureLook
}

// mendPath updates the path of a complete capture: it names the Pod of the present agent, or is empty if the file is
// lost.
func (c *captures) mendPath(row captureRow, out *crdv1alpha1.PacketCaptureStatus) {
	if out.FilePath == "" {
		return
	}
	path := ""
	if nodeOfPath(out.FilePath) == c.node {
		if _, err := os.Stat(c.file(row.UID)); err == nil {
			path = c.pod + ":" + c.file(row.UID)
		}
	}
	out.FilePath = path
	if done := out.Condition(crdv1alpha1.PacketCaptureComplete); path == "" && done != nil {
		done.Message = "the file is lost: the Node was restarted or is gone; capture again"
	}
}

// complete ends a capture. One that never began is not Started.
func (c *captures) complete(out *crdv1alpha1.PacketCaptureStatus, reason reasons.Reason, message string) {
	if out.Condition(crdv1alpha1.PacketCaptureStarted) == nil {
		c.condition(out, crdv1alpha1.PacketCaptureStarted, false, reasonCaptureFailed, message)
	}
	c.condition(out, crdv1alpha1.PacketCaptureComplete, true, reason, message)
}

// condition sets a condition. Its time changes with its status.
func (c *captures) condition(out *crdv1alpha1.PacketCaptureStatus, name string, is bool, reason reasons.Reason,
	message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	have := out.Condition(name)
	if have == nil {
		out.Conditions = append(out.Conditions, crdv1alpha1.PacketCaptureCondition{Type: name})
		have = &out.Conditions[len(out.Conditions)-1]
	}
	if have.Status != status {
		have.LastTransitionTime = metav1.NewTime(c.now().Truncate(time.Second))
	}
	have.Status, have.Reason, have.Message = status, reason.String(), strings.ToValidUTF8(message, "")
}

// write writes a status that differs from the object's. It returns the time until the next comparison, and false if the
// API server has refused the write.
func (c *captures) write(ctx context.Context, name string, row captureRow,
	status crdv1alpha1.PacketCaptureStatus) (again time.Duration, ok bool) {
	if reflect.DeepEqual(status, row.Status) {
		delete(c.wrote, row.UID)
		return captureLook, true
	}
	last := c.wrote[row.UID]
	if due := last.at.Add(captureRetry); c.now().Before(due) && (last.failed != "" || last.version == row.Version) {
		return due.Sub(c.now()), true // it is on its way, or is tried again then
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": row.UID, "resourceVersion": row.Version},
		"status": map[string]any{"numberCaptured": status.NumberCaptured, "filePath": status.FilePath,
			"conditions": status.Conditions},
	})
	if err == nil {
		write, cancel := context.WithTimeout(ctx, captureWrite)
		defer cancel()
		err = c.patch(write, name, body)
	}
	now := captureWritten{version: row.Version, at: c.now()}
	switch {
	case err == nil, ctx.Err() != nil:
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the watch brings what has changed
	default:
		if now.failed = err.Error(); now.failed != last.failed {
			c.log.Info("the state of a capture is not written yet; trying again", "capture", name, "error", err)
		}
	}
	c.wrote[row.UID] = now
	return captureRetry, now.failed == ""
}

// serveCapture answers with the file of a capture of this Node.
func (d debugAPI) serveCapture(w http.ResponseWriter, r *http.Request) {
	file, err := d.agent.api.captures.open(r.URL.Query().Get("name"))
	if err != nil {
		d.answerJSON(w, api.PathCapture, nil, err)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/x-pcapng")
	if _, err := io.Copy(w, file); err != nil {
		d.agent.log.Debug("debug API: write answer", "path", api.PathCapture, "error", err)
	}
}

// open opens the file of an object. It may be called without the feature.
func (c *captures) open(name string) (*os.File, error) {
	if c == nil {
		return nil, errCaptureOff
	}
	rows, _ := c.rows()
	row, ok := rows[name]
	switch {
	case !ok || !uidPattern.MatchString(string(row.UID)):
		return nil, fmt.Errorf("there is no PacketCapture %q: `kubectl get packetcaptures` lists them", name)
	case row.Node != c.node:
		return nil, fmt.Errorf("PacketCapture %s is captured on Node %s: ask its agent", name, row.Node)
	}
	file, err := os.Open(c.file(row.UID))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("PacketCapture %s has no file: see its conditions in `kubectl describe packetcapture %s`",
			name, name)
	}
	return file, err
}

var errCaptureOff = errors.New("the feature PacketCapture is off: switch it on in featureGates of antrea-agent.conf")

// serveLiveCapture streams packets until the reader leaves.
func (d debugAPI) serveLiveCapture(w http.ResponseWriter, r *http.Request) {
	sent := &flushed{to: w, control: http.NewResponseController(w)}
	err := d.captureLive(r, sent)
	switch {
	case err == nil || r.Context().Err() != nil: // the number is reached, or the reader has left
	case !sent.begun:
		d.answerJSON(w, api.PathLiveCapture, nil, err)
	default:
		d.agent.log.Info("a live capture has ended", "error", err)
	}
}

// captureLive captures what a request asks for.
func (d debugAPI) captureLive(r *http.Request, to io.Writer) error {
	if d.agent.api.captures == nil {
		return errCaptureOff
	}
	var row captureRow
	if err := json.Unmarshal([]byte(r.URL.Query().Get("spec")), &row.Spec); err != nil {
		return fmt.Errorf("read spec: %w; are this command and the agent of one version?", err)
	}
	t := d.agent.tables.captures
	pod, err := capturedPod(&row.Spec)
	if err != nil {
		return err
	}
	if err := ask(r.Context(), d.agent.tables.engine, func() {
		pods := t.between()
		facts, there := pods.pod(pod)
		t.look(&row, pod, facts, there, pods)
	}); err != nil {
		return err
	}
	if text := cmp.Or(row.Fault, row.Waits); text != "" {
		return errors.New(text)
	}
	select {
	case d.agent.api.captures.live <- struct{}{}:
		defer func() { <-d.agent.api.captures.live }()
	default:
		return fmt.Errorf("%s runs %d live captures, the most at once: end one of them", "Node "+d.agent.options.NodeName,
			maxLiveCaptures)
	}
	most := 0
	if first := row.Spec.CaptureConfig.FirstN; first != nil {
		most = int(max(first.Number, 1))
	}
	ctx, cancel := context.WithTimeout(r.Context(), captureLive)
	defer cancel()
	d.agent.log.Info("packets are captured for a reader", "pod", pod.String(), "interface", row.Link)
	_, err = d.agent.api.captures.run(ctx, capture.Options{Interface: row.Link, Filter: row.Filter, Most: most, To: to,
		Live: true})
	return err
}

// flushed is a response that is sent at once.
type flushed struct {
	to      io.Writer
	control *http.ResponseController
	begun   bool
}

func (f *flushed) Write(p []byte) (int, error) {
	f.begun = true
	n, err := f.to.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}
