package watch

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

const crds = "../../deploy/crds"

// waitLimit is how long a test waits for a watch. A busy machine takes half a minute for a step.
const waitLimit = 3 * time.Minute

// world is an engine with two kinds, the second of them optional.
type world struct {
	*derive.Engine
	*Watcher
	configMaps *derive.Source[derive.Object, string]
	versions   *derive.Source[derive.Object, string] // of the ConfigMaps
	gateways   *derive.Source[derive.Object, string]
	changed    chan struct{}
}

// newWorld watches ConfigMaps with the label "counts" and Gateways, both in the Namespace default.
func newWorld(t *testing.T, config *rest.Config, change ...func(*Watcher)) *world {
	t.Helper()
	w := &world{Engine: derive.New(), changed: make(chan struct{}, 1)}
	counts, err := labels.Parse("counts")
	if err != nil {
		t.Fatal(err)
	}
	kinds := NewKinds(w.Engine)
	w.configMaps = NewSource(kinds, "configmaps", func(c *corev1.ConfigMap) string {
		if c.Data["panic"] != "" {
			panic("a fault of the projection")
		}
		if len(c.ManagedFields) > 0 {
			return "managed fields are there"
		}
		return c.Data["fact"]
	}, In("default"), Selecting(counts))
	w.versions = NewSource(kinds, "versions", func(c *corev1.ConfigMap) string {
		if c.Data["fact"] == "" {
			return "" // no row, as in the other source
		}
		return c.ResourceVersion
	})
	gatewayFacts := func(g *mcv1alpha1.Gateway) string { return g.GatewayIP }
	w.gateways = NewSource(kinds, "gateways", gatewayFacts, In("default"), Optional())
	off := NewSource(kinds, "services", func(*corev1.Service) string { return "a kind that is left out" }, If(false))
	if rows := off.All(); len(rows) > 0 {
		t.Errorf("a kind that is left out has %v", rows)
	}
	w.Watcher, err = New(config, slog.New(slog.DiscardHandler), kinds.All()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(w.Watcher)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Watcher.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// until makes passes until a table holds these rows.
func (w *world) until(t *testing.T, table *derive.Source[derive.Object, string], want map[string]string) {
	t.Helper()
	var got map[string]string
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.Pass()
		got = map[string]string{}
		for _, row := range table.All() {
			got[row.Key.String()] = row.Value
		}
		for _, row := range w.configMaps.All() {
			if _, both := w.versions.Get(row.Key); !both {
				t.Fatalf("a pass takes ConfigMap %s without its version", row.Key)
			}
		}
		if loaded, _ := w.Loaded(); loaded && maps.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the table holds %v, want %v; %+v", got, want, w.Status())
}

// untilStatus waits for the status of Gateways, which follows the rows.
func (w *world) untilStatus(t *testing.T, want Status) {
	t.Helper()
	var got Status
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = w.Status()[1]; got == want {
			return
		}
	}
	t.Fatalf("the status is %+v, want %+v", got, want)
}

// TestFill fills sources from objects, in place of an API server.
func TestFill(t *testing.T) {
	e := derive.New()
	k := NewKinds(e)
	data := NewSource(k, "data", func(c *corev1.ConfigMap) string { return c.Data["fact"] }, In("default"))
	off := NewSource(k, "services", func(*corev1.Service) string { return "a kind that is left out" }, If(false))
	selected := labels.SelectorFromSet(labels.Set{"counts": ""})
	counts := NewSource(k, "selected", func(p *corev1.Pod) string { return "fact" }, Selecting(selected))
	names := NewSource(k, "names", func(c *corev1.ConfigMap) string { return c.Name })
	expect := func(want ...string) {
		t.Helper()
		e.Pass()
		have := []string{}
		for _, source := range []*derive.Source[derive.Object, string]{data, names, counts, off} {
			for _, row := range source.All() {
				have = append(have, row.Key.Name+" "+row.Value)
			}
		}
		if !slices.Equal(have, want) {
			t.Errorf("the sources hold %q, want %q", have, want)
		}
	}
	elsewhere, service, pod := configMap("elsewhere", "fact", "1"), &corev1.Service{}, &corev1.Pod{}
	elsewhere.Namespace, pod.Name = "other", "unlabelled"
	if loaded, waiting := e.Loaded(); loaded || len(waiting) != 3 {
		t.Errorf("before anything is there, the engine waits for %v", waiting)
	}
	k.Fill(configMap("a", "fact", "1"), elsewhere, configMap("empty"), service, pod)
	expect("a 1", "a a", "empty empty")
	pod.Labels = map[string]string{"counts": ""}
	k.Set(configMap("a", "fact", "2"), pod)
	k.Delete(configMap("empty"))
	expect("a 2", "a a", "unlabelled fact")
	k.Fill(configMap("b", "fact", "3"))
	expect("b 3", "b b")
	if kinds := k.All(In("x")); len(kinds) != 2 || kinds[1].namespace != "x" || k.list[0].namespace != "default" {
		t.Errorf("the kinds to be watched are %v", kinds)
	}
	defer func() {
		if recover() == nil {
			t.Error("an object that no source is declared for is not found")
		}
	}()
	k.Fill(&corev1.Node{})
}

// TestNamed has the one object of a name in its Source.
func TestNamed(t *testing.T) {
	e := derive.New()
	k := NewKinds(e)
	one := NewSource(k, "one", func(c *corev1.ConfigMap) string { return c.Namespace }, In("a"), Named("wanted"))
	at := func(namespace, name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	k.Fill(at("a", "wanted"), at("a", "other"), at("b", "wanted"))
	e.Pass()
	if rows := one.All(); len(rows) != 1 || rows[0].Key != (derive.Object{Namespace: "a", Name: "wanted"}) {
		t.Errorf("the source holds %v", rows)
	}
}

// TestFillOnce fills sources of two kinds while their engine runs. Each pass takes the objects of both, or of neither.
func TestFillOnce(t *testing.T) {
	e := derive.New()
	k := NewKinds(e)
	data := NewSource(k, "data", func(c *corev1.ConfigMap) string { return c.Data["fact"] })
	pods := NewSource(k, "pods", func(p *corev1.Pod) string { return p.Spec.NodeName })
	key := derive.Object{Namespace: "default", Name: "a"}
	var passes, mixed atomic.Int64
	e.WatchPasses(func(derive.PassStats) {
		fact, _ := data.Get(key)
		if node, _ := pods.Get(key); node != fact {
			mixed.Add(1)
		}
		passes.Add(1)
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	for i := 0; passes.Load() < 300; i++ {
		fact := strconv.Itoa(i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		pod.Spec.NodeName = fact
		if c := configMap(key.Name, "fact", fact); i%2 == 0 {
			k.Fill(c, pod)
		} else {
			k.Set(c, pod)
		}
	}
	stop()
	running.Wait()
	if n := mixed.Load(); n > 0 {
		t.Errorf("%d of %d passes took the objects of one kind alone", n, passes.Load())
	}
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"counts": ""}},
		Data:       map[string]string{},
	}
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWatch lets objects come, change and go, and their API server restart.
func TestWatch(t *testing.T) {
	t.Parallel()
	server := apiserver.New(t, apiserver.Options{CRDs: []string{crds}})
	c := newClient(t, server.Config)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unlabelled := configMap("unlabelled", "fact", "no")
	unlabelled.Labels = nil
	do(c.Create(t.Context(), unlabelled))
	a := configMap("a", "fact", "1")
	do(c.Create(t.Context(), a))
	var refused atomic.Int32 // connections
	config := rest.CopyConfig(server.Config)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			refused.Add(1)
		}
		return conn, err
	}
	w := newWorld(t, config)
	w.until(t, w.configMaps, map[string]string{"default/a": "1"})
	w.until(t, w.gateways, map[string]string{})

	do(c.Create(t.Context(), configMap("b", "fact", "2")))
	w.until(t, w.configMaps, map[string]string{"default/a": "1", "default/b": "2"})
	do(c.Create(t.Context(), configMap("bad", "panic", "x", "fact", "3")))
	do(c.Create(t.Context(), configMap("nothing")))
	do(c.Create(t.Context(), configMap("c", "fact", "4")))
	w.until(t, w.configMaps, map[string]string{"default/a": "1", "default/b": "2", "default/c": "4"})
	a.Data["noise"] = "a change of no fact"
	do(c.Update(t.Context(), a))
	do(c.Delete(t.Context(), configMap("b")))
	a.Data["panic"] = "a defect does not look like a deletion"
	do(c.Update(t.Context(), a))
	w.until(t, w.configMaps, map[string]string{"default/a": "1", "default/c": "4"})
	_, _, tables := w.Stats()
	if tables[0].Ignored == 0 {
		t.Error("a change of no fact is not among the ignored ones")
	}

	server.Stop()
	for end := time.Now().Add(waitLimit); refused.Load() < 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the watches do not notice that the API server is away")
		}
	}
	w.until(t, w.configMaps, map[string]string{"default/a": "1", "default/c": "4"})
	do(server.Start(t.Context()))
	do(c.Delete(t.Context(), configMap("c")))
	do(c.Create(t.Context(), &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "n1"},
		GatewayIP: "192.0.2.1"}))
	w.until(t, w.configMaps, map[string]string{"default/a": "1"})
	w.until(t, w.gateways, map[string]string{"default/n1": "192.0.2.1"})
}

// TestDefinitionComesAndGoes installs the definition of an optional kind, deletes it, and
// installs it again.
func TestDefinitionComesAndGoes(t *testing.T) {
	t.Parallel()
	config := apiserver.Start(t)
	w := newWorld(t, config)
	w.until(t, w.configMaps, map[string]string{})
	w.untilStatus(t, Status{Kind: "Gateway", Listed: true, Absent: true})
	for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
		definitions, err := envtest.InstallCRDs(config,
			envtest.CRDInstallOptions{Paths: []string{crds}, MaxTime: waitLimit})
		if err != nil {
			t.Fatal(err)
		}
		// A client of its own, since the mapper of one does not notice.
		gateway := &mcv1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "n1"}, GatewayIP: ip}
		if err := newClient(t, config).Create(t.Context(), gateway); err != nil {
			t.Fatal(err)
		}
		w.until(t, w.gateways, map[string]string{"default/n1": ip})
		w.untilStatus(t, Status{Kind: "Gateway", Listed: true})
		apiserver.Uninstall(t, config, definitions)
		w.until(t, w.gateways, map[string]string{})
	}
}

// TestNotFoundIsDoubted watches a server that answers 404, as a server does that has not read its definitions yet.
func TestNotFoundIsDoubted(t *testing.T) {
	t.Parallel()
	var ready, asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz" && ready.Load() == 0:
			asked.Add(1)
			http.Error(w, "not ready", http.StatusInternalServerError)
		case r.URL.Path == "/readyz":
			asked.Add(1)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, &rest.Config{Host: server.URL})
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(waitLimit); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within %s", what, waitLimit)
			}
		}
	}
	// Three seconds: longer than the confirmation of a ready server.
	until("the server is asked four times", func() bool { return asked.Load() >= 4 })
	if _, waiting := w.Loaded(); !slices.Contains(waiting, "gateways") {
		t.Errorf("a server that is not ready is believed: waiting for %v", waiting)
	}
	if s := w.Status()[1]; s.Listed || !strings.Contains(s.Waiting, "not believed") {
		t.Errorf("the status is %+v", s)
	}
	ready.Store(1)
	until("a ready server is believed", func() bool {
		_, waiting := w.Loaded()
		return !slices.Contains(waiting, "gateways")
	})
	// A kind that is not optional is waited for.
	if loaded, waiting := w.Loaded(); loaded || w.Listed() || !slices.Equal(waiting, []string{"configmaps", "versions"}) {
		t.Errorf("waiting for %v", waiting)
	}
	if s := w.Status()[0]; !strings.Contains(s.Waiting, "install its definition") {
		t.Errorf("the status is %+v", s)
	}
}

// TestReadyzForbidden watches a server that has no such kind and does not allow /readyz.
func TestReadyzForbidden(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/readyz" {
					http.Error(w, "not for you", code)
					return
				}
				http.NotFound(w, r)
			}))
			t.Cleanup(server.Close)
			w := newWorld(t, &rest.Config{Host: server.URL})
			for end := time.Now().Add(waitLimit); !w.Status()[1].Absent; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("it is waited for without end: %+v", w.Status()[1])
				}
			}
		})
	}
}

// TestListedKindIsKept lists a kind and then denies it. There may be two API servers behind one address, and the other
// one answers. Facts of the kind stay much longer than an absence is doubted for a kind that was never there.
func TestListedKindIsKept(t *testing.T) {
	t.Parallel()
	var denied, asked atomic.Int32
	deny := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz":
			asked.Add(1)
		case !strings.HasSuffix(r.URL.Path, "/gateways") || denied.Load() == 1:
			http.NotFound(w, r)
		case r.URL.Query().Get("sendInitialEvents") != "": // not supported here, so a list follows
		case r.URL.Query().Get("watch") != "":
			select {
			case <-r.Context().Done():
			case <-deny:
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w,
				`{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"GatewayList",`+
					`"metadata":{"resourceVersion":"1"},`+
					`"items":[{"metadata":{"namespace":"default","name":"n1"},"gatewayIP":"192.0.2.1"}]}`)
		}
	}))
	t.Cleanup(server.Close)
	keeps := newWorld(t, &rest.Config{Host: server.URL}, func(w *Watcher) {
		if w.confirmListed < 5*confirmAfter {
			t.Errorf("an absence of a listed kind is doubted for %s", w.confirmListed)
		}
		w.confirmListed = time.Hour // on a slow machine the other watcher may take longer than confirmListedAfter
	})
	ends := newWorld(t, &rest.Config{Host: server.URL}, func(w *Watcher) { w.confirmListed = 4 * time.Second })
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(waitLimit); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within %s", what, waitLimit)
			}
		}
	}
	for _, w := range []*world{keeps, ends} {
		w.configMaps.Loaded()
		w.versions.Loaded()
		w.until(t, w.gateways, map[string]string{"default/n1": "192.0.2.1"})
	}
	denied.Store(1)
	close(deny)
	until("the kind is denied for longer than the other watcher waits", func() bool { return ends.Status()[1].Absent })
	ends.until(t, ends.gateways, map[string]string{})
	keeps.until(t, keeps.gateways, map[string]string{"default/n1": "192.0.2.1"})
	if s := keeps.Status()[1]; !s.Listed || s.Absent || !strings.Contains(s.Waiting, "asking again") {
		t.Errorf("the status is %+v", s)
	}
	if asked.Load() < 2 {
		t.Error("the server was not asked whether it is ready")
	}
	denied.Store(0)
	until("the watch goes on", func() bool { return keeps.Status()[1].Waiting == "" && !ends.Status()[1].Absent })
	ends.until(t, ends.gateways, map[string]string{"default/n1": "192.0.2.1"})
}

// TestResources compares the list of kinds with the names in the definitions that Tombolo installs.
func TestResources(t *testing.T) {
	options := envtest.CRDInstallOptions{Paths: []string{crds}}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		t.Fatal(err)
	}
	names := map[string]apiextensionsv1.CustomResourceDefinitionNames{}
	for _, d := range options.CRDs {
		names[d.Spec.Group+" "+d.Spec.Names.Kind] = d.Spec.Names
	}
	for _, r := range resources {
		if !strings.Contains(r.Group, ".crd.") && !strings.Contains(r.Group, ".x-k8s.") {
			continue // Kubernetes' own
		}
		n := names[r.Group+" "+r.kind()]
		if r.Resource != n.Plural || reflect.TypeOf(r.list).Elem().Name() != n.ListKind {
			t.Errorf("%s is %s and %T; its definition has %s and %s", r.kind(), r.Resource, r.list, n.Plural, n.ListKind)
		}
	}
}

// TestBelieved watches a server that is ready and has neither of two optional kinds. Only for one of them does a single
// answer suffice.
func TestBelieved(t *testing.T) {
	t.Parallel()
	waiting := firstAbsent(t, http.StatusNotFound, Optional(), Believed())
	if slices.Contains(waiting, "believed") {
		t.Errorf("waiting for %v", waiting)
	}
}

// TestRefused watches a server that refuses two lists. Only a kind that may be refused counts as absent.
func TestRefused(t *testing.T) {
	t.Parallel()
	if waiting := firstAbsent(t, http.StatusForbidden, Believed(), IfAllowed()); !slices.Contains(waiting, "doubted") {
		t.Errorf("waiting for %v, want the kind that is doubted too", waiting)
	}
}

// firstAbsent watches two kinds, "doubted" and "believed", of a ready server that answers lists with a status. The
// second one has to be the first that is absent, after one answer. It returns the sources that are not loaded then.
func firstAbsent(t *testing.T, status int, doubted, believed Option) []string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Error(w, http.StatusText(status), status)
		}
	}))
	t.Cleanup(server.Close)
	e := derive.New()
	text := func(g *mcv1alpha1.Gateway) string { return g.GatewayIP }
	first, second := NewKinds(e), NewKinds(e)
	NewSource(first, "doubted", text, doubted)
	NewSource(second, "believed", text, Believed(), believed)
	w, err := New(&rest.Config{Host: server.URL}, slog.New(slog.DiscardHandler), append(first.All(), second.All()...)...)
	if err != nil {
		t.Fatal(err)
	}
	absent := make(chan Status, 1)
	w.OnChange(func() {
		for i, s := range w.Status() {
			if s.Absent {
				s.Kind = []string{"doubted", "believed"}[i]
				select {
				case absent <- s:
				default:
				}
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	if s := <-absent; s.Kind != "believed" || !s.Listed {
		t.Errorf("the first kind that is absent is %+v, want the one that is believed", s)
	}
	_, waiting := e.Loaded()
	return waiting
}

// TestRolesComeLater watches two kinds of an API server that refuses both at first, as before it has loaded its roles.
// Then it allows one of them. Only from then on the other one may count as absent.
func TestRolesComeLater(t *testing.T) {
	t.Parallel()
	var loaded atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loaded.Load() && strings.HasSuffix(r.URL.Path, "/gateways") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"GatewayList",`+
				`"metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		http.Error(w, "not for you", http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	kinds := NewKinds(derive.New())
	NewSource(kinds, "gateways", func(g *mcv1alpha1.Gateway) string { return g.GatewayIP })
	NewSource(kinds, "imports", func(i *mcv1alpha1.ClusterInfoImport) string { return i.Name }, IfAllowed())
	w, err := New(&rest.Config{Host: server.URL}, slog.New(slog.DiscardHandler), kinds.All()...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	begin := time.Now()
	for s := w.Status()[1]; !s.Absent; s = w.Status()[1] {
		if wait := time.Since(begin); wait > waitLimit {
			t.Fatalf("the kind never counts as absent: %+v", s)
		} else if wait > 2*confirmAfter {
			loaded.Store(true)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !loaded.Load() {
		t.Error("the kind counts as absent before there are roles")
	}
}
