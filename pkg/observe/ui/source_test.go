package ui_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
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
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
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

// start does the same, and returns the source too.
func start(t *testing.T, config *rest.Config, ask ui.AskAgent,
	stream ui.StreamAgent) (*ui.Source, func(want ...string)) {
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
	source, all := start(t, server.Config, func(_ context.Context, node, path string) ([]byte, error) {
		if node != "node-1" || path != "/v1/status" {
			return nil, errors.New("not the agent's state")
		}
		return []byte(answer), nil
	}, func(ctx context.Context, node, path string, query url.Values, w io.Writer) error {
		if node != "node-1" || path != "/v1/observe" || query.Get("follow") != "true" || query.Get("connections") != "true" {
			return errors.New("not the agent's records")
		}
		_, err := io.WriteString(w, `{"begin":{"node":"node-1","drops":true}}
{"drop":{"node":"node-1","verdict":"dropped","reason":"isolated","from":{"ip":"10.0.0.1"},"to":{"ip":"::1"}}}
{"missing":{"node":"node-1","lost":7,"why":"the meter"}}
not JSON
`)
		return err
	})
	all("cluster east: warn, Ready, with problems", "gateway east/node-1: ok, 1 way up",
		"node east/node-1: warn, problems",
		"way east/node-1 > north/10.2.0.1: ok, up", "way north/10.2.0.1 > east/node-1: unknown",
		"export shop/web of east: ok",
		"import shop/web in east: ok", "problem east: Service a/b NoPort")
	records(t, source)
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

	silent("cluster here: unknown, no answer")
	server.Stop()
	all("cluster east: unknown, no answer", "gateway east/node-1: unknown", "way east/node-1 > north/10.2.0.1: unknown")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	all("cluster east: warn, Ready, with problems", "way east/node-1 > north/10.2.0.1: bad, down")
}

// records reads what the agent of node-1 sends: a drop, the number of lost records, and a line that is no JSON.
func records(t *testing.T, source *ui.Source) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	lines := make(chan ui.Line, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		source.Records(ctx, true, func(l ui.Line) { lines <- l })
	}()
	var drop, lost, wrong bool
	for !drop || !lost || !wrong {
		select {
		case l := <-lines:
			drop = drop || l.Drop != nil && l.Drop.Reason == "isolated" && l.Cluster == "shop/east"
			lost = lost || l.Missing == "7 records are lost: the meter" && l.Node == "node-1"
			wrong = wrong || strings.Contains(l.Missing, "are tombolo and the agent of one version?")
		case <-ctx.Done():
			t.Fatalf("a drop %v, lost records %v, a wrong line %v; want all three", drop, lost, wrong)
		}
	}
	stop()
	<-ended
}
