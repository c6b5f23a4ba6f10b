package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/imports"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

const area = "antrea-multicluster"

// world is two clusters on real API servers. The test itself plays the leader's controller, and the member runs this
// package's controller.
type world struct {
	t              *testing.T
	leader, member client.Client
	leaderConfig   *rest.Config
	memberConfig   *rest.Config
	config         config.Config // of the controllers
	configFile     string        // that the member follows; empty for no file
	// transport is around the connection to the API server of controllers that start. It may be nil.
	transport func(http.RoundTripper) http.RoundTripper
	stop      func() // the member controller
	running   atomic.Pointer[controller]
}

// waitLimit is how long a test waits for a controller. A busy machine takes half a minute for a step.
const waitLimit = 3 * time.Minute

func (w *world) eventually(what string, check func(ctx context.Context) error) {
	w.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, waitLimit,
		true, func(ctx context.Context) (bool, error) {
			err := check(ctx)
			if ctx.Err() == nil {
				last = err // an error of the last check may only report the end of the time
			}
			return err == nil, nil
		})
	if err != nil {
		w.t.Fatalf("%s: %v", what, errors.Join(last, err))
	}
}

// atRest returns an error unless the member has evaluated all events and has done all writes. It ignores writes that
// keep failing, and writes that wait for a leader that does not answer.
func (w *world) atRest(ctx context.Context) error {
	c := w.running.Load()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !c.tables.Do(ctx, func() { c.tables.Pass() }) {
		return errors.New("the member does not run")
	}
	queues := []*retry.Queue{c.localWrites}
	c.mu.Lock()
	if c.area != nil && c.area.broken == nil && c.area.state().Error == "" {
		queues = append(queues, c.leaderWrites, c.pacedWrites)
	}
	c.mu.Unlock()
	for _, q := range queues {
		if n := q.Len() - len(q.Problems()); n > 0 {
			return fmt.Errorf("%d objects are to be written", n)
		}
	}
	return nil
}

// writes returns the number of writes that the member has tried, to these API servers or to both. It waits until the
// member is at rest and has tried no write for a second.
func (w *world) writes(to ...string) int {
	w.t.Helper()
	count := func() (n int) {
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "tombolo_write_seconds" {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if len(to) == 0 || l.GetName() == "to" && slices.Contains(to, l.GetValue()) {
							n += int(m.GetHistogram().GetSampleCount())
							break
						}
					}
				}
			}
		}
		return n
	}
	last, since := count(), time.Now()
	w.eventually("the member rests", func(ctx context.Context) error {
		err := w.atRest(ctx)
		if n := count(); n != last || err != nil {
			last, since = n, time.Now()
		}
		if time.Since(since) < time.Second {
			return errors.Join(err, errors.New("it has written"))
		}
		return nil
	})
	return last
}

func (w *world) create(to client.Client, objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := to.Create(w.t.Context(), o); err != nil {
			w.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (w *world) update(to client.Client, o client.Object, change func()) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("update %T %s", o, o.GetName()), func(ctx context.Context) error {
		if err := to.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return to.Update(ctx, o)
	})
}

func (w *world) delete(to client.Client, objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := to.Delete(w.t.Context(), o); client.IgnoreNotFound(err) != nil {
			w.t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
		}
	}
}

// gone waits until objects do not exist. In the leader it removes the finalizers of deleted ResourceExports, as the
// leader's controller does.
func (w *world) gone(from client.Client, objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.eventually(fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) error {
			err := from.Get(ctx, client.ObjectKeyFromObject(o), o)
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil && !o.GetDeletionTimestamp().IsZero() && len(o.GetFinalizers()) > 0 {
				o.SetFinalizers(nil)
				_ = from.Update(ctx, o)
			}
			return errors.Join(err, errors.New("still there"))
		})
	}
}

func export(name string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{ObjectMeta: meta(area, name)}
}

// clusterSetIs waits for the ClusterSet's conditions, such as "Ready IsLeader overall", and for a part of the message
// of Ready.
func (w *world) clusterSetIs(conditions, message string) {
	w.t.Helper()
	w.eventually("ClusterSet "+conditions, func(ctx context.Context) error {
		cs := &mcv1alpha2.ClusterSet{}
		if err := w.member.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "set"}, cs); err != nil {
			return err
		}
		var have []string
		text := ""
		for _, s := range cs.Status.ClusterStatuses {
			for _, c := range s.Conditions {
				have = append(have, string(c.Status))
				text += c.Message
			}
		}
		for _, c := range cs.Status.Conditions {
			have = append(have, string(c.Status))
		}
		if strings.Join(have, " ") != conditions || !strings.Contains(text, message) {
			return fmt.Errorf("have %q %q", have, text)
		}
		return nil
	})
}

func (w *world) exportIs(name, reason string) {
	w.t.Helper()
	w.eventually("ServiceExport "+name+" "+reason, func(ctx context.Context) error {
		se := &mcsv1alpha1.ServiceExport{}
		if err := w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, se); err != nil {
			return err
		}
		for _, c := range se.Status.Conditions {
			if c.Type == "Valid" && c.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("have %v", se.Status.Conditions)
	})
}

func (w *world) importIs(name string, ips ...string) {
	w.t.Helper()
	w.eventually("import of "+name, func(ctx context.Context) error {
		service, endpoints, si := &corev1.Service{}, &services.Endpoints{}, &mcsv1alpha1.ServiceImport{}
		k := client.ObjectKey{Namespace: "default", Name: "antrea-mc-" + name}
		if err := errors.Join(w.member.Get(ctx, k, service), w.member.Get(ctx, k, endpoints),
			w.member.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, si)); err != nil {
			return err
		}
		if !slices.Equal(si.Spec.IPs, []string{service.Spec.ClusterIP}) || service.Spec.ClusterIP == "" {
			return fmt.Errorf("ServiceImport has %v, Service %s", si.Spec.IPs, service.Spec.ClusterIP)
		}
		want := endpointsOf("default", name, ips...).Spec.Endpoints.Subsets
		if !imports.SameSubsets(endpoints.Subsets, want) {
			return fmt.Errorf("Endpoints have %v", endpoints.Subsets)
		}
		return nil
	})
}

func (w *world) eventIs(object, reason string) {
	w.t.Helper()
	w.eventually("Event "+reason+" on "+object, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := w.member.List(ctx, events); err != nil {
			return err
		}
		var have []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name == object && e.Reason == reason {
				return nil
			}
			have = append(have, e.InvolvedObject.Name+" "+e.Reason)
		}
		return fmt.Errorf("have %q", have)
	})
}

// eventWith waits for an Event on an object, with a reason and the whole text.
func (w *world) eventWith(kind, namespace, name, reason, text string) {
	w.t.Helper()
	w.eventually("Event "+reason+" on "+kind+" "+name, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := w.member.List(ctx, events, client.InNamespace(namespace)); err != nil {
			return err
		}
		var have []string
		for _, e := range events.Items {
			if o := e.InvolvedObject; o.Kind == kind && o.Name == name && e.Reason == reason {
				if e.Message == text {
					return nil
				}
				have = append(have, e.Message)
			}
		}
		return fmt.Errorf("have %q, want %q", have, text)
	})
}

// memberRole is the documented Role of members in the leader.
func memberRole() *rbacv1.Role {
	group := []string{"multicluster.crd.antrea.io"}
	all := []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	return &rbacv1.Role{
		ObjectMeta: meta(area, "antrea-mc-member-cluster-role"),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: group, Resources: []string{"memberclusterannounces", "resourceexports"}, Verbs: all},
			{APIGroups: group, Resources: []string{"memberclusterannounces/status", "resourceexports/status",
				"resourceimports/status"}, Verbs: []string{"get"}},
			{APIGroups: group, Resources: []string{"resourceimports"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"tombolo.io"}, Resources: []string{"tenantnetworks"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
		},
	}
}

// token makes a ServiceAccount bound to the member Role, and returns a token for it.
func (w *world) token() []byte {
	w.t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: meta(area, "east-token")}
	w.create(w.leader, &corev1.Namespace{ObjectMeta: meta("", area)}, sa, memberRole(), &rbacv1.RoleBinding{
		ObjectMeta: meta(area, "east-token"),
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role",
			Name: "antrea-mc-member-cluster-role"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: area, Name: sa.Name}},
	})
	request := &authenticationv1.TokenRequest{}
	if err := w.leader.SubResource("token").Create(w.t.Context(), sa, request); err != nil {
		w.t.Fatalf("get a token: %v", err)
	}
	return []byte(request.Status.Token)
}

// startMember runs the controller under test in a manager of its own.
func (w *world) startMember() {
	w.t.Helper()
	w.stop = w.start(w.memberConfig, "kube-system", "member",
		func(mgr ctrl.Manager, cfg config.Config, namespace string) error {
			return setUp(mgr, cfg, w.configFile, namespace, w.running.Store)
		})
}

// start runs a controller in a manager of its own until the returned function is called. The controller uses the
// ServiceAccount of its manifest.
func (w *world) start(admin *rest.Config, namespace, manifest string,
	setUp func(ctrl.Manager, config.Config, string) error) (stop func()) {
	w.t.Helper()
	text, err := os.ReadFile("../../../deploy/multicluster/antrea-multicluster-" + manifest + ".yml")
	if err != nil {
		w.t.Fatal(err)
	}
	to := apiserver.RefuseEvents(apiserver.Access(w.t, admin, text))
	if w.transport != nil {
		to.Wrap(w.transport)
	}
	ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	skip := true
	mgr, err := ctrl.NewManager(to, ctrl.Options{
		Scheme: Scheme(), Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: ctrlconfig.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := setUp(mgr, w.config, namespace); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("controller in %s: %v", namespace, err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func clusterSet(server string) *mcv1alpha2.ClusterSet {
	return &mcv1alpha2.ClusterSet{
		ObjectMeta: meta("kube-system", "set"),
		Spec: mcv1alpha2.ClusterSetSpec{
			ClusterID: "east", Namespace: area,
			Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north", Server: server, Secret: "east-token"}},
		},
	}
}

// web is a Service default/<name> with one endpoint, and its ServiceExport.
func web(name string) []client.Object {
	s := &corev1.Service{ObjectMeta: meta("default", name),
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	e := webSlice(true)
	e.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: name + "-1",
		Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	return []client.Object{s, e, &mcsv1alpha1.ServiceExport{ObjectMeta: meta("default", name)}}
}

// mountedConfig makes a directory like a mounted ConfigMap. The returned function replaces the content of the
// configuration file at once, as a kubelet does, and returns the file's path.
func mountedConfig(t *testing.T) func(content string) string {
	t.Helper()
	dir, number := t.TempDir(), 0
	file := filepath.Join(dir, "controller_manager_config.yaml")
	if err := os.Symlink("..data/controller_manager_config.yaml", file); err != nil {
		t.Fatal(err)
	}
	return func(content string) string {
		t.Helper()
		number++
		version := fmt.Sprintf("..version-%d", number)
		text := "apiVersion: multicluster.crd.antrea.io/v1alpha1\nkind: MultiClusterConfig\n" + content
		if err := errors.Join(os.Mkdir(filepath.Join(dir, version), 0o755),
			os.WriteFile(filepath.Join(dir, version, "controller_manager_config.yaml"), []byte(text), 0o600),
			os.Symlink(version, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
		return file
	}
}
