package benchmark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/benchmark/plan"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// kubelet runs the programs of Pods in this process: servers at loopback addresses, and clients that ask them. The
// containers are missing, and nothing else.
type kubelet struct {
	t      *testing.T
	client client.Client
	held   func() // is called when a client runs, which never ends then
	silent string // server that does not answer
	all    sync.WaitGroup

	mu  sync.Mutex
	run map[string]context.CancelFunc // by Pod
}

// follow runs what the API server has, until ctx ends.
func (k *kubelet) follow(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		var list corev1.PodList
		if err := k.client.List(ctx, &list, client.MatchingLabels{"app": label}); err != nil {
			continue
		}
		there := map[string]bool{}
		for _, p := range list.Items {
			there[p.Name] = true
			k.start(ctx, p)
		}
		k.mu.Lock()
		for name, stop := range k.run {
			if !there[name] {
				stop()
			}
		}
		k.mu.Unlock()
	}
}

// start runs a Pod that does not run yet.
func (k *kubelet) start(ctx context.Context, p corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run[p.Name] != nil {
		return
	}
	ctx, k.run[p.Name] = context.WithCancel(ctx)
	args := p.Spec.Containers[0].Command[2:] // behind "tombolo probe"
	ip := map[string]string{"near": "127.0.0.2", "far": "127.0.0.3", "host": "127.0.0.4"}[p.Labels["server"]]
	k.all.Go(func() {
		if args[0] == "serve" {
			at := net.JoinHostPort(ip, fmt.Sprint(probe.Port))
			if i := slices.Index(args, "--address"); i >= 0 {
				at = args[i+1]
			}
			p.Status.Phase, p.Status.PodIP = corev1.PodRunning, ip
			k.write(ctx, &p)
			limit, err := strconv.ParseInt(args[slices.Index(args, "--rate")+1], 10, 64)
			if err != nil || !slices.Contains(args, "--no-udp") {
				k.t.Errorf("%q, %v: want limits", args, err)
			}
			if p.Labels["server"] == k.silent {
				return
			}
			if err := (probe.Server{Address: at, Name: args[2], Rate: limit, NoUDP: true}).Serve(ctx); err != nil {
				k.t.Errorf("%s at %s: %v", p.Name, at, err)
			}
			return
		}
		var do plan.Plan
		if err := json.Unmarshal([]byte(args[1]), &do); err != nil {
			k.t.Error(err)
		}
		if k.held != nil {
			k.held()
			<-ctx.Done()
			return
		}
		text, err := json.Marshal(do.Run(ctx))
		if err != nil {
			k.t.Errorf("%s: %v", p.Name, err)
		}
		p.Status.Phase = corev1.PodSucceeded
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "probe", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(text)}}}}
		k.write(ctx, &p)
	})
}

func (k *kubelet) write(ctx context.Context, p *corev1.Pod) {
	if err := k.client.Status().Update(ctx, p); err != nil && ctx.Err() == nil {
		k.t.Errorf("write the status of %s: %v", p.Name, err)
	}
}

// TestRun measures the Nodes of a real API server. Pods of both Nodes are on loopback.
func TestRun(t *testing.T) {
	config := apiserver.Start(t, "../../deploy/crds")
	admin, err := client.New(config, client.Options{Scheme: verify.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	create := func(list ...client.Object) {
		t.Helper()
		for _, o := range list {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"node-1", "node-2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.4"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		create(n)
		n.Spec.Taints = nil // the API server's own, of new Nodes
		if err := admin.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "refused", Labels: map[string]string{LabelRefused: "true"}}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "tombolo-agent"},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "tombolo-agent", Image: "agent:v1"}}}}}})
	o := Options{Namespace: "mine", Time: 20 * time.Second, Rate: 1e9, Connections: 1000, Wait: 20 * time.Second,
		HostPort: 18517}
	cluster := []Cluster{{"east", admin}}
	nothingLeft := func(t *testing.T) {
		t.Helper()
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}} {
			if err := admin.List(t.Context(), list, client.MatchingLabels{"app": label}); err != nil || countOf(list) > 0 {
				t.Errorf("left: %v, %v", list, err)
			}
		}
	}
	live := func(t *testing.T, k *kubelet) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		k.t, k.client, k.run = t, admin, map[string]context.CancelFunc{}
		k.all.Go(func() { k.follow(ctx) })
		t.Cleanup(func() { cancel(); k.all.Wait() })
	}

	t.Run("all ways", func(t *testing.T) {
		live(t, &kubelet{})
		o := o
		o.Hosts, o.Time = true, 13*time.Second
		report, err := Run(t.Context(), cluster, o)
		if err != nil {
			t.Fatal(err)
		}
		var ways []string
		limited := map[string]bool{} // the figures of the reference
		for _, f := range report.Rows[2].Figures {
			limited[f.Name] = f.Limited
		}
		for _, r := range report.Rows {
			ways = append(ways, fmt.Sprintf("%s > %s %s to %q", r.From, r.To, r.Way, r.Reference))
			for _, f := range r.Figures {
				if f.Median <= 0 || f.Least > f.Median || f.Most < f.Median ||
					(f.Ratio > 0) != (r.Reference != "" && !f.Limited && !limited[f.Name]) {
					t.Errorf("%s: %+v", r.Way, f)
				}
			}
		}
		want := []string{`east/node-1 > east/node-1 same Node to ""`,
			`east/node-1 > east/node-2 other Node to "hosts, other Node"`,
			`east/node-1 > east/node-2 hosts, other Node to ""`}
		if !slices.Equal(ways, want) {
			t.Errorf("%q, want %q", ways, want)
		}
		if report.Rows[0].Figures[0].Median > 1.2e9 || report.Rows[0].Figures[5].Median > 1200 {
			t.Errorf("the limits are exceeded: %+v", report.Rows[0].Figures)
		}
		nothingLeft(t)
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		live(t, &kubelet{held: cancel})
		if _, err := Run(ctx, cluster, o); err == nil {
			t.Error("there is a report")
		}
		nothingLeft(t)
	})
	t.Run("a way that does not answer", func(t *testing.T) {
		live(t, &kubelet{silent: "far"})
		o := o
		o.Time, o.Wait = 8*time.Second, 5*time.Second
		busy := &busyClient{Client: admin, refused: map[string]bool{}}
		report, err := Run(t.Context(), []Cluster{{"east", busy}}, o)
		if err != nil || len(report.Rows) != 2 || len(report.Rows[0].Figures) == 0 || len(report.Rows[1].Figures) > 0 ||
			!strings.Contains(strings.Join(report.Warnings, ", "), "(other Node): not measured: benchmark-far-") {
			t.Errorf("%+v, %v", report, err)
		}
		if len(busy.refused) == 0 {
			t.Error("no request of the clean-up was refused")
		}
		nothingLeft(t)
	})
	t.Run("the clean-up fails", func(t *testing.T) {
		live(t, &kubelet{})
		o := o
		o.Nodes, o.Time = []string{"node-1"}, 4*time.Second
		report, err := Run(t.Context(), []Cluster{{"east", &busyClient{Client: admin, forbids: true}}}, o)
		if err == nil || !strings.Contains(err.Error(), "remove the benchmark from Namespace mine of east: ") ||
			len(report.Rows) != 1 || len(report.Rows[0].Figures) == 0 {
			t.Errorf("%+v, %v", report, err)
		}
		if err := admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("mine"),
			client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a Namespace of an earlier run", func(t *testing.T) {
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "earlier", Labels: map[string]string{"app": label}}})
		core, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ends sync.WaitGroup
		ends.Go(func() { // as kube-controller-manager does
			_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				n, err := core.CoreV1().Namespaces().Get(ctx, "earlier", metav1.GetOptions{})
				if err == nil && n.DeletionTimestamp != nil {
					n.Spec.Finalizers = nil
					_, _ = core.CoreV1().Namespaces().Finalize(ctx, n, metav1.UpdateOptions{})
				}
				return false, nil
			})
		})
		t.Cleanup(func() { cancel(); ends.Wait() })
		o := o
		o.Namespace, o.Wait = "earlier", 500*time.Millisecond
		if _, err := Run(t.Context(), cluster, o); err == nil || !strings.Contains(err.Error(), "not within 500ms") {
			t.Errorf("%v", err)
		}
		err = admin.Get(t.Context(), client.ObjectKey{Name: "earlier"}, &corev1.Namespace{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("it is not removed: %v", err)
		}
	})
	t.Run("no kubelet", func(t *testing.T) {
		o := o
		o.Wait = 500 * time.Millisecond
		if _, err := Run(t.Context(), cluster, o); err == nil || !strings.Contains(err.Error(), "not within 500ms") ||
			!strings.Contains(err.Error(), "have to be able to run on Node") {
			t.Errorf("%v", err)
		}
		nothingLeft(t)
	})
	t.Run("refusals", func(t *testing.T) {
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other",
			Labels: map[string]string{"app": label}}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "left", Name: "left",
			Labels: map[string]string{"app": label}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-3"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		create(other, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}}, service, bare)
		bare.Spec.Taints = nil
		if err := admin.Update(t.Context(), bare); err != nil {
			t.Fatal(err)
		}
		without := rest.CopyConfig(config)
		without.Impersonate.UserName = "user"
		user, err := client.New(without, client.Options{Scheme: verify.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		mark := func(kind client.Object, name, value string) {
			kind.SetName(name)
			patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, LabelRefused, value)
			err := admin.Patch(t.Context(), kind, client.RawPatch("application/merge-patch+json", []byte(patch)))
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, row := range []struct {
			name   string
			change func(*Options)
			as     client.Client
			want   string
		}{
			{"a Namespace", func(o *Options) { o.Namespace = "refused" }, admin, "namespace refused of east has the label"},
			{"another benchmark", func(o *Options) { o.Namespace = "default" }, admin, "a benchmark runs in Namespace default"},
			{"a Service of another benchmark", func(o *Options) { o.Namespace = "left" }, admin, "there are Services of it"},
			{"a Node without an address", func(o *Options) { o.Nodes, o.Hosts = []string{"node-3"}, true }, admin,
				"node node-3 of east has no InternalIP in status.addresses"},
			{"little time", func(o *Options) { o.Time = time.Second }, admin, "set it to 8s at least"},
			{"no rights", func(*Options) {}, user, "the user needs the verb get"},
			{"other Nodes", func(o *Options) { o.Nodes = []string{"x"} }, admin, "--node names none of them"},
			{"a Node", func(o *Options) { o.Nodes = []string{"node-2"}; mark(&corev1.Node{}, "node-2", `""`) }, admin,
				"node-2 has the label"},
			{"a cluster", func(*Options) { mark(&corev1.Namespace{}, "kube-system", `""`) }, admin,
				"namespace kube-system of east has the label"},
		} {
			o := o
			row.change(&o)
			_, err := Run(t.Context(), []Cluster{{"east", row.as}}, o)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v, want %s", row.name, err, row.want)
			}
		}
		if err := admin.Delete(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	})
}

// busyClient has an API server refuse deletes: the first one of each object, or all of them.
type busyClient struct {
	client.Client
	refused map[string]bool
	forbids bool
}

func (b *busyClient) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	if b.forbids {
		return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("no right"))
	}
	if !b.refused[o.GetName()] {
		b.refused[o.GetName()] = true
		return apierrors.NewTooManyRequests("busy", 1)
	}
	return b.Client.Delete(ctx, o, options...)
}

func countOf(list client.ObjectList) int {
	switch l := list.(type) {
	case *corev1.PodList:
		return len(slices.DeleteFunc(l.Items, func(p corev1.Pod) bool { return p.Name == "other" }))
	case *corev1.ServiceList:
		return len(l.Items)
	}
	return 0
}
