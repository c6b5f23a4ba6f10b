package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

const (
	commonArea = "antrea-multicluster"
	bareArea   = "bare" // what the controllers do not look at
	singles    = 100    // exports one at a time
	bulk       = 500    // exports at once
	writers    = 32     // of a bare client
)

// controllerOf is what a controller's process gets.
type controllerOf struct {
	Role, Namespace, Host, Token string
	CA                           []byte
}

// controllerRow runs a controller until its standard input ends.
func controllerRow(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var of controllerOf
	if err := json.Unmarshal(text, &of); err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	mgr, err := ctrl.NewManager(&rest.Config{Host: of.Host, BearerToken: of.Token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: of.CA}},
		ctrl.Options{Scheme: member.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		return err
	}
	setUp := member.SetupWithManager
	if of.Role == "leader" {
		setUp = leader.SetupWithManager
	}
	if err := setUp(mgr, config.Default(), of.Namespace); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // other rows are quicker
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return mgr.Start(ctx)
}

// side is one cluster of the ClusterSet: a bare API server and a controller.
type side struct {
	name       string
	config     *rest.Config
	client     client.WithWatch
	controller *os.Process
}

// clusters are a leader and two members, each with its controller in a process of its own.
type clusters struct {
	b                  *testing.B
	leader, east, west *side
}

func startClusters(b *testing.B) *clusters {
	b.Helper()
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	c := &clusters{b: b, leader: newSide(b, "leader", "10.96.0.0/16"), east: newSide(b, "east", "10.97.0.0/16"),
		west: newSide(b, "west", "10.98.0.0/16")}
	for _, s := range []*side{c.leader, c.east, c.west} {
		c.create(s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bareArea}})
	}
	c.create(c.leader, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: commonArea}},
		&mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: commonArea, Name: "set"},
			Spec: mcv1alpha2.ClusterSetSpec{
				ClusterID: "north", Namespace: commonArea, Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}})
	c.run(c.leader, "leader", commonArea)
	for _, s := range []*side{c.east, c.west} {
		c.create(s, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "token"},
			Data: map[string][]byte{
				"ca.crt": c.leader.config.CAData, "token": []byte(c.leader.config.BearerToken)}},
			&mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "set"},
				Spec: mcv1alpha2.ClusterSetSpec{
					ClusterID: s.name, Namespace: commonArea,
					Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north", Server: c.leader.config.Host, Secret: "token"}}}})
		c.run(s, "member", "kube-system")
	}
	return c
}

func newSide(b *testing.B, name, services string) *side {
	b.Helper()
	s := &side{name: name,
		config: apiserver.New(b, apiserver.Options{CRDs: []string{"../../deploy/crds"}, ServiceCIDR: services}).Config}
	var err error
	if s.client, err = client.NewWithWatch(s.config, client.Options{Scheme: member.Scheme()}); err != nil {
		b.Fatal(err)
	}
	return s
}

func (c *clusters) create(s *side, objects ...client.Object) {
	c.b.Helper()
	for _, o := range objects {
		if err := s.client.Create(c.b.Context(), o); err != nil {
			c.b.Fatalf("create %T %s in %s: %v", o, o.GetName(), s.name, err)
		}
	}
}

// run starts a controller's process.
func (c *clusters) run(s *side, role, namespace string) {
	c.b.Helper()
	text, err := json.Marshal(controllerOf{role, namespace, s.config.Host, s.config.BearerToken, s.config.CAData})
	file := filepath.Join(c.b.TempDir(), "controller")
	if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		c.b.Fatal(err)
	}
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), rowVariable+"=controller", socketVariable+"="+file)
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err = errors.Join(err, process.Start()); err != nil {
		c.b.Fatal(err)
	}
	s.controller = process.Process
	c.b.Cleanup(func() {
		_ = in.Close()
		if err := process.Wait(); err != nil {
			c.b.Errorf("controller of %s: %v", s.name, err)
		}
	})
}

// cpuOfControllers is what the three processes have used so far, in seconds.
func (c *clusters) cpuOfControllers() float64 {
	c.b.Helper()
	const ticks = 100 // a second, as the kernel counts for programs
	sum := 0.0
	for _, s := range []*side{c.leader, c.east, c.west} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.controller.Pid))
		if err != nil {
			c.b.Fatal(err)
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] { // utime and stime
			n, err := strconv.Atoi(field)
			if err != nil {
				c.b.Fatal(err)
			}
			sum += float64(n) / ticks
		}
	}
	return sum
}

// arrivals notes when objects of some names appear.
type arrivals struct {
	mu   sync.Mutex
	seen map[string]chan struct{}
}

func (a *arrivals) of(name string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[name] == nil {
		a.seen[name] = make(chan struct{})
	}
	return a.seen[name]
}

// wait waits for one object.
func (a *arrivals) wait(ctx context.Context, name string) error {
	select {
	case <-a.of(name):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not arrived: %w", name, ctx.Err())
	}
}

// watch notes each new object of the lists' kinds by type and name, and then calls a function with it. A watch that the
// API server ends, or does not serve yet, is started again.
func (c *clusters) watch(s *side, namespace string, then func(client.Object), lists ...client.ObjectList) *arrivals {
	c.b.Helper()
	a := &arrivals{seen: map[string]chan struct{}{}}
	for _, list := range lists {
		known := map[string]bool{}
		once := func() {
			w, err := s.client.Watch(c.b.Context(), list, client.InNamespace(namespace))
			if err != nil {
				return
			}
			defer w.Stop()
			for event := range w.ResultChan() {
				o, ok := event.Object.(client.Object)
				if !ok || event.Type != watch.Added || known[o.GetName()] {
					continue
				}
				known[o.GetName()] = true
				close(a.of(fmt.Sprintf("%T %s", o, o.GetName())))
				if then != nil {
					go then(o)
				}
			}
		}
		ctx := c.b.Context()
		go func() {
			for tick := time.NewTicker(50 * time.Millisecond); ; {
				once()
				select {
				case <-ctx.Done():
					tick.Stop()
					return
				case <-tick.C:
				}
			}
		}()
	}
	return a
}

// services makes n Services of one endpoint each to be exported.
func (c *clusters) services(prefix string, n int) {
	c.b.Helper()
	yes, number, protocol, portName := true, int32(80), corev1.ProtocolTCP, "http"
	c.parallel(n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("%s-%d", prefix, i)
		return errors.Join(
			c.east.client.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}),
			c.east.client.Create(ctx, &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-1",
					Labels: map[string]string{discoveryv1.LabelServiceName: name}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.20.0.1"},
					Conditions: discoveryv1.EndpointConditions{Ready: &yes}}},
				Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &number, Protocol: &protocol}},
			}))
	})
}

// parallel calls f n times with a bare client's number of workers, and returns how long all took.
func (c *clusters) parallel(n int, f func(ctx context.Context, i int) error) time.Duration {
	c.b.Helper()
	ctx, cancel := context.WithTimeout(c.b.Context(), 5*time.Minute)
	defer cancel()
	next := make(chan int)
	errs := make(chan error, n)
	started := time.Now()
	var workers sync.WaitGroup
	for range writers {
		workers.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					errs <- err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	if len(errs) > 0 {
		c.b.Fatal(<-errs)
	}
	return time.Since(started)
}

func serviceExport(name string) *mcsv1alpha1.ServiceExport {
	return &mcsv1alpha1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// imported waits until a Service and its Endpoints are in the other cluster.
func imported(ctx context.Context, a *arrivals, name string) error {
	return errors.Join(a.wait(ctx, "*v1.Service antrea-mc-"+name), a.wait(ctx, "*v1.Endpoints antrea-mc-"+name))
}

// bare objects are like the objects of the controllers, in a place that no controller watches.
func bareExport(name, kind string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name},
		Spec: mcv1alpha1.ResourceExportSpec{
			ClusterID: "east", Kind: kind, Namespace: bareArea, Name: name}}
}

func bareImport(name, kind string) *mcv1alpha1.ResourceImport {
	return &mcv1alpha1.ResourceImport{ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name},
		Spec: mcv1alpha1.ResourceImportSpec{
			Kind: kind, Namespace: bareArea, Name: name}}
}

func bareService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
}

func bareEndpoints(name string) *corev1.Endpoints { //nolint:staticcheck // what imports are made of
	return &corev1.Endpoints{ //nolint:staticcheck // see above
		ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name},
		Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.97.0.9"}},
			Ports: []corev1.EndpointPort{{Name: "http", Port: 80}}}}}
}

// bareChain prepares the chain of writes and watches from one cluster to the other without controllers: a hop writes as
// soon as its watch shows the object of the hop before it. It returns a function that starts the chain and waits for
// its end.
func (c *clusters) bareChain() func(ctx context.Context, name string) error {
	write := func(s *side, o client.Object) {
		if !strings.HasPrefix(o.GetName(), "chain-") {
			return // other objects of the bare client's
		}
		if err := s.client.Create(c.b.Context(), o); err != nil && c.b.Context().Err() == nil {
			c.b.Errorf("create %T %s in %s: %v", o, o.GetName(), s.name, err)
		}
	}
	c.watch(c.east, bareArea, func(o client.Object) {
		go write(c.leader, bareExport(o.GetName()+"-service", "Service"))
		write(c.leader, bareExport(o.GetName()+"-endpoints", "Endpoints"))
	}, &corev1.ConfigMapList{})
	c.watch(c.leader, bareArea, func(o client.Object) {
		write(c.leader, bareImport(o.GetName(), o.(*mcv1alpha1.ResourceExport).Spec.Kind))
	}, &mcv1alpha1.ResourceExportList{})
	c.watch(c.leader, bareArea, func(o client.Object) {
		if name, ok := strings.CutSuffix(o.GetName(), "-service"); ok {
			write(c.west, bareService(name))
		} else {
			write(c.west, bareEndpoints(strings.TrimSuffix(o.GetName(), "-endpoints")))
		}
	}, &mcv1alpha1.ResourceImportList{})
	end := c.watch(c.west, bareArea, nil, &corev1.ServiceList{}, &corev1.EndpointsList{})
	return func(ctx context.Context, name string) error {
		if err := c.east.client.Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name}}); err != nil {
			return err
		}
		return errors.Join(end.wait(ctx, "*v1.Service "+name), end.wait(ctx, "*v1.Endpoints "+name))
	}
}

// bareWrites makes as many writes as the controllers need for one export, of the same kinds: 15, and the user's
// ServiceExport.
func (c *clusters) bareWrites(ctx context.Context, i int) error {
	name := fmt.Sprintf("bulk-%d", i)
	var errs []error
	status := func(s *side, o client.Object) { errs = append(errs, s.client.Status().Update(ctx, o)) }
	create := func(s *side, objects ...client.Object) {
		for _, o := range objects {
			errs = append(errs, s.client.Create(ctx, o))
		}
	}
	// the user's ServiceExport
	create(c.east, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name}})
	for _, kind := range []string{"service", "endpoints"} {
		create(c.leader, bareExport(name+"-"+kind, kind), bareImport(name+"-"+kind, kind))
	}
	for _, s := range []*side{c.east, c.west} {
		service := bareService(name)
		imported := &mcsv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name},
			Spec: mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP, Ports: []mcsv1alpha1.ServicePort{{Port: 80}}}}
		create(s, service, bareEndpoints(name), &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: bareArea, Name: name}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.97.0.9"}}}}, imported)
		imported.Status.Clusters = []mcsv1alpha1.ClusterStatus{{Cluster: c.east.name}}
		status(s, imported)
		if s == c.east { // the condition of the ServiceExport
			service.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: "True", Reason: "Succeed",
				LastTransitionTime: metav1.Now()}}
			status(s, service)
		}
	}
	return errors.Join(errs...)
}

// BenchmarkTablePropagation prints how long an export takes from one cluster to another.
func BenchmarkTablePropagation(b *testing.B) {
	t, c := table{b}, startClusters(b)
	ctx, cancel := context.WithTimeout(b.Context(), 15*time.Minute)
	defer cancel()
	c.services("one", singles+1)
	c.services("bulk", bulk)
	arrived := c.watch(c.west, "default", nil, &corev1.ServiceList{}, &corev1.EndpointsList{})
	export := func(name string) time.Duration {
		started := time.Now()
		if err := errors.Join(c.east.client.Create(ctx, serviceExport(name)), imported(ctx, arrived, name)); err != nil {
			b.Fatal(err)
		}
		return time.Since(started)
	}
	export(fmt.Sprintf("one-%d", singles)) // all have joined
	chain := c.bareChain()
	var ours, bare []time.Duration
	for i := range singles {
		ours = append(ours, export(fmt.Sprintf("one-%d", i)))
		started := time.Now()
		if err := chain(ctx, fmt.Sprintf("chain-%d", i)); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(started))
	}
	before := c.cpuOfControllers()
	started := time.Now()
	c.parallel(bulk, func(ctx context.Context, i int) error {
		return c.east.client.Create(ctx, serviceExport(fmt.Sprintf("bulk-%d", i)))
	})
	for i := range bulk {
		if err := imported(ctx, arrived, fmt.Sprintf("bulk-%d", i)); err != nil {
			b.Fatal(err)
		}
	}
	rate := bulk / time.Since(started).Seconds()
	used := c.cpuOfControllers() - before
	allowed := bulk / c.parallel(bulk, c.bareWrites).Seconds()

	fmt.Printf("\nfrom one cluster to another: three bare API servers with etcd, %d exports one at a time, then %d at "+
		"once\n\n", singles, bulk)
	fmt.Printf("%-58s %14s  %-16s %-8s\n", "what", "figure", "must be", "")
	p50, p99, bare50, bare99 := percentile(ours, 50), percentile(ours, 99), percentile(bare, 50), percentile(bare, 99)
	t.row("export to Service and Endpoints elsewhere, p50", fmt.Sprintf("%.1f ms", p50), "<= 25 ms", p50 <= 25,
		fmt.Sprintf("bare writes and watches %.1f ms", bare50))
	t.row("the same, p99", fmt.Sprintf("%.1f ms", p99), "<= 60 ms", p99 <= 60,
		fmt.Sprintf("bare writes and watches %.1f ms", bare99))
	t.row("the same, p50 to that of bare writes and watches", fmt.Sprintf("%.2f", p50/bare50), "<= 1.50",
		p50 <= 1.5*bare50, "")
	t.row(fmt.Sprintf("%d exports at once, a second", bulk), fmt.Sprintf("%.0f", rate), ">= 100", rate >= 100,
		fmt.Sprintf("a bare client's writes in parallel: %.0f", allowed))
	t.row("the same, CPU of the three controllers", fmt.Sprintf("%.1f s", used), "<= 8 s", used <= 8, "")
	fmt.Println()
}
