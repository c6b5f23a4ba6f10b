package ui_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
	asking "github.com/tombolo-net/tombolo/pkg/observe/follow"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/page"
)

// follow runs a source until the test ends. The function that it returns waits until the Model of the source has lines.
func follow(t *testing.T, config *rest.Config, ask ui.AskAgent) func(want ...string) {
	t.Helper()
	_, wait := start(t, config, ask, nil)
	return wait
}

// answersOf asks a source that has a Node node-1 about connections.
func answersOf(t *testing.T, source *ui.Source) {
	t.Helper()
	all := ui.Asking{Sources: []*ui.Source{source},
		Follow: func(_ context.Context, q asking.Question) (asking.Answer, error) {
			return asking.Answer{Networks: []string{q.FromCluster}}, nil
		}}
	for _, row := range []struct{ cluster, node, want string }{
		{"shop/east", "node-1", "node-1 a/b"},
		{"shop/east", "../node-2", `cluster here has no Node "../node-2" any more`},
		{"shop/west", "node-1", "no longer among the clusters of the map"},
	} {
		w, err := all.Why(t.Context(), row.cluster, row.node, url.Values{"from": {"a/b"}})
		if have := strings.Join(w.Notes, ""); !strings.Contains(fmt.Sprint(have, err), row.want) {
			t.Errorf("%s/%s: %s, %v, want %s", row.cluster, row.node, have, err, row.want)
		}
	}
	if a, err := all.Trace(t.Context(), asking.Question{FromCluster: "shop/east"}); err != nil || a.Networks[0] != "here" {
		t.Errorf("the context of the cluster is %v, %v, want here", a.Networks, err)
	}
	if _, err := all.Trace(t.Context(), asking.Question{FromCluster: "shop/west"}); err == nil {
		t.Error("a packet of an unknown cluster is followed")
	}
}

// start does the same, and returns the source too.
func start(t *testing.T, config *rest.Config, ask ui.AskAgent,
	stream ui.StreamAgent, prepare ...func(*ui.Source)) (*ui.Source, func(want ...string)) {
	t.Helper()
	changed := make(chan struct{}, 1)
	access := ui.Access{Name: "here", Arg: "here", Kubectl: []string{"--context", "here"}}
	source, err := ui.NewSource(access, config, ask, stream, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(source)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		source.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return source, func(want ...string) {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			have := lines(ui.Build([]ui.Snapshot{source.Snapshot()}))
			missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool {
				return slices.ContainsFunc(have, func(h string) bool { return strings.Contains(h, w) })
			})
			if len(missing) == 0 {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("the Model lacks\n%s\nand has\n%s", strings.Join(missing, "\n"), strings.Join(have, "\n"))
			}
		}
	}
}

// TestSource watches a real API server: with all rights, with few, with a wrong token, after it is gone, and an address
// at which no program answers.
func TestSource(t *testing.T) {
	// An address whose connections are accepted and never answered.
	never, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer never.Close()
	silent := follow(t, &rest.Config{Host: "http://" + never.Addr().String()}, nil)

	server := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"}})
	scheme := verify.Scheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	member := page.New(page.Size{Clusters: 2, Gateways: 1, Nodes: 1})[0]
	put := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %s: %v", o.GetName(), err)
		}
	}
	put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	put(node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	set, gateway, export := member.Sets[0], member.Gateways[0], member.Exports[0]
	setStatus, gatewayStatus, exportStatus := set.Status, gateway.Status, export.Status
	put(set)
	put(gateway)
	put(member.Infos[0])
	put(export)
	imported := member.Imports[0]
	imported.Spec.Type = "ClusterSetIP"
	put(imported)
	put(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}})
	set.Status, gateway.Status, export.Status = setStatus, gatewayStatus, exportStatus
	for _, o := range []client.Object{set, gateway, export} {
		if err := c.Status().Update(t.Context(), o); err != nil {
			t.Fatalf("status of %s: %v", o.GetName(), err)
		}
	}

	answer := `{"node":"node-1","version":"v0.1.0","ready":true,"problems":[{"object":"Service a/b","reason":"NoPort"}]}`
	var opened atomic.Bool
	source, all := start(t, server.Config, func(_ context.Context, node, path string, query url.Values) ([]byte, error) {
		if path == "/v1/why" {
			return []byte(`{"notes":["` + node + " " + query.Get("from") + `"]}`), nil
		}
		if !opened.Load() {
			t.Error("an agent is asked while no page is open")
		}
		if node != "node-1" || path != "/v1/status" {
			return nil, errors.New("not the agent's state")
		}
		return []byte(answer), nil
	}, func(ctx context.Context, node, path string, query url.Values, w io.Writer) error {
		if path != "/v1/observe" || query.Get("follow") != "true" || query.Get("connections") != "true" {
			return errors.New("not the agent's records")
		}
		if since := query.Get("since"); node == "node-2" || since == "2026-03-14T15:09:26.000000001Z" {
			_, err := io.WriteString(w, `{"drop":{"node":"`+node+`","verdict":"dropped"}}`+"\n")
			<-ctx.Done()
			return err
		}
		_, err := io.WriteString(w, `{"begin":{"node":"node-1","drops":true}}
{"drop":{"time":"2026-03-14T15:09:26Z","node":"node-1","verdict":"dropped","reason":"isolated"}}
{"missing":{"node":"node-1","lost":7,"why":"the meter"}}
not JSON
`)
		return err
	}, func(s *ui.Source) { s.AskWhile(opened.Load) })
	all("node east/node-1: ok, Ready", "export shop/web of east: ok")
	answersOf(t, source)
	records(t, source, func() { put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}) })
	opened.Store(true)
	all("cluster east: warn, Ready, with problems", "gateway east/node-1: ok, 1 way up",
		"node east/node-1: warn, problems",
		"way east/node-1 > north/10.2.0.1: ok, up", "way north/10.2.0.1 > east/node-1: unknown",
		"export shop/web of east: ok",
		"import shop/web in east: ok", "problem east: Service a/b NoPort")
	gateway.Status.Ways[0].State = mcv1alpha1.WayDown
	if err := c.Status().Update(t.Context(), gateway); err != nil {
		t.Fatal(err)
	}
	all("way east/node-1 > north/10.2.0.1: bad, down")
	if err := c.Delete(t.Context(), export); err != nil {
		t.Fatal(err)
	}

	// A user who may read the kinds of ClusterSets only.
	put(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sets"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"multicluster.crd.antrea.io"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}}}})
	put(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sets"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sets"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "reader"}}})
	as := func(user string) *rest.Config {
		config := rest.CopyConfig(server.Config)
		config.Impersonate.UserName = user
		return config
	}
	follow(t, as("reader"), nil)("cluster east: warn, Ready, with problems", "problem east: nodes NotListed",
		"problem east: serviceexports.multicluster.x-k8s.io NotListed", "way east/node-1 > north/10.2.0.1: bad, down")
	follow(t, as("stranger"), nil)("cluster here: unknown, access refused")
	wrong := rest.CopyConfig(server.Config)
	wrong.BearerToken = "wrong"
	follow(t, wrong, nil)("cluster here: unknown, access refused")

	// A user who may list Nodes and not ask agents: first not list their Pods, then not run a command in them.
	put(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}}}})
	put(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}})
	for _, pair := range [][2]string{{"sets", "viewer"}, {"nodes", "viewer"}, {"sets", "lister"}, {"nodes", "lister"},
		{"pods", "lister"}} {
		put(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: pair[0] + "-" + pair[1]},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: pair[0]},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: pair[1]}}})
	}
	put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent",
		Labels: map[string]string{"app": "tombolo", "component": "tombolo-agent"}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "tombolo-agent", Image: "agent"}}}})
	for user, want := range map[string]string{"viewer": `cannot list resource "pods"`, "lister": `resource "pods/exec"`} {
		agents := remote.New("here", as(user))
		var asked atomic.Int32
		s, wait := start(t, as(user), func(ctx context.Context, node, path string, _ url.Values) ([]byte, error) {
			asked.Add(1)
			if node == "node-2" {
				node = "node-1"
			}
			return agents.Ask(ctx, node, path, nil)
		}, nil)
		wait("problem east: agents AgentsNotAsked: ", want, "node east/node-1: ok, Ready")
		have := strings.Join(lines(ui.Build([]ui.Snapshot{s.Snapshot()})), "\n")
		if strings.Contains(have, "AgentNotAnswering") {
			t.Errorf("the map of user %s blames Nodes:\n%s", user, have)
		}
		if n := asked.Load(); n > 2 {
			t.Errorf("user %s: %d questions, want one of each Node at most", user, n)
		}
	}

	// An API server that answers and no longer lists one kind.
	g := newGate(t, server.Config, "/gateways")
	through := follow(t, &rest.Config{Host: g.server.URL}, nil)
	through("cluster east: ok, Ready", "way east/node-1 > north/10.2.0.1: bad, down")
	g.shut(true)
	through("cluster east: unknown, no answer", "way east/node-1 > north/10.2.0.1: unknown")
	g.shut(false)
	through("cluster east: ok, Ready", "way east/node-1 > north/10.2.0.1: bad, down")
	g.server.CloseClientConnections()

	silent("cluster here: unknown, no answer")
	server.Stop()
	all("cluster east: unknown, no answer", "gateway east/node-1: unknown", "way east/node-1 > north/10.2.0.1: unknown")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	all("cluster east: warn, Ready, with problems", "way east/node-1 > north/10.2.0.1: bad, down")
}

// gate passes requests on to an API server. While it is shut, it fails those for a kind.
type gate struct {
	server *httptest.Server
	mu     sync.Mutex
	closed bool
	cut    []context.CancelFunc // of the requests for the kind
}

func newGate(t *testing.T, config *rest.Config, suffix string) *gate {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport, proxy.FlushInterval, proxy.ErrorLog = transport, -1, log.New(io.Discard, "", 0)
	g := &gate{}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, suffix) {
			ctx, cut := context.WithCancel(r.Context())
			defer cut()
			g.mu.Lock()
			g.cut = append(g.cut, cut)
			closed := g.closed
			g.mu.Unlock()
			if closed {
				http.Error(w, "the storage does not answer", http.StatusServiceUnavailable)
				return
			}
			r = r.WithContext(ctx)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(g.server.Close)
	return g
}

func (g *gate) shut(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	for _, cut := range g.cut {
		cut()
	}
	g.cut = nil
}

// records reads what the agent of node-1 sends: a drop, the number of lost records, and a line that is no JSON. The
// agent is then asked again for what is newer, and a Node that comes is asked too.
func records(t *testing.T, source *ui.Source, come func()) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	lines := make(chan ui.Line, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		source.Records(ctx, true, func(l ui.Line) {
			select {
			case lines <- l:
			case <-ctx.Done():
			}
		})
	}()
	var drop, lost, wrong, again, later bool
	for !drop || !lost || !wrong || !again || !later {
		select {
		case l := <-lines:
			drop = drop || l.Drop != nil && l.Drop.Reason == "isolated" && l.Cluster == "shop/east"
			lost = lost || l.Missing == "7 records are lost: the meter" && l.Node == "node-1"
			again = again || l.Drop != nil && l.Drop.Reason == "" && l.Drop.Node == "node-1"
			later = later || l.Drop != nil && l.Drop.Node == "node-2"
			if again && come != nil {
				come()
				come = nil
			}
			wrong = wrong || strings.Contains(l.Missing, "are this command and the agent of one version?")
		case <-ctx.Done():
			t.Fatalf("a drop %v, lost records %v, a wrong line %v, drops after it %v, those of a new Node %v; want all", drop,
				lost, wrong, again, later)
		}
	}
	stop()
	<-ended
}
