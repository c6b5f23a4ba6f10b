package up

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// lead makes the objects of an installed leader that a set-up needs in the first cluster, and tokens in their Secrets.
func (w *world) lead() {
	w.t.Helper()
	w.create(0, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deploy.LeaderNamespace}})
	w.create(0, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.LeaderNamespace,
		Name: multicluster.MemberRole}})
	apiserver.FillTokens(w.t, w.clusters[0].Config)
}

// accept acts as the controllers of members until the test ends: each announces itself, and its ClusterSet becomes
// Ready. Members in leaves sign off when their ClusterSet is gone.
func (w *world) accept(leaves ...string) {
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	joined := map[string]bool{}
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			for i, k := range w.clients {
				id := w.clusters[i].ID
				var sets mcv1alpha2.ClusterSetList
				if k.List(ctx, &sets, client.InNamespace(deploy.MemberNamespace)) != nil {
					continue
				}
				switch {
				case len(sets.Items) > 0 && !joined[id]:
					a := announcement(id)
					a.ClusterID, a.ClusterSetID, a.LeaderClusterID = id, sets.Items[0].Name, w.clusters[0].ID
					sets.Items[0].Status.Conditions = []mcv1alpha2.ClusterSetCondition{{Type: mcv1alpha2.ClusterSetReady,
						Status: corev1.ConditionTrue}}
					joined[id] = w.clients[0].Create(ctx, a) == nil && k.Status().Update(ctx, &sets.Items[0]) == nil
				case len(sets.Items) == 0 && joined[id] && slices.Contains(leaves, id):
					joined[id] = w.clients[0].Delete(ctx, announcement(id)) != nil
				}
			}
			return false, nil
		})
	}()
	w.t.Cleanup(func() { stop(); <-done })
}

// TestUndo: a set-up joins members, and a second one changes nothing. If it fails after that, no object of members is
// left, also if a member does not sign off.
func TestUndo(t *testing.T) {
	w := newWorld(t, definitions)
	w.lead()
	w.accept("north")
	w.node(0, node("north-1", "10.10.0.0/24"))
	w.node(1, node("east-1", "10.20.0.0/24"))
	// A member that is not in this set-up keeps its announcement.
	other := announcement("west")
	other.ClusterID, other.ClusterSetID, other.LeaderClusterID = "west", "set", "north"
	w.create(0, other)
	o := w.options()
	o.LeaderServer = w.clusters[0].Config.Host
	r, err := open(w.clusters, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range r.sites {
		if err := readNodes(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		other := w.clusters[1-i].ID
		w.create(i, &mcv1alpha1.ClusterInfoImport{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.MemberNamespace,
			Name: other + multicluster.ClusterInfoSuffix}, Spec: mcv1alpha1.ClusterInfo{ClusterID: other,
			GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: "192.0.2.7"}}}})
	}
	// A set-up was interrupted when it had made a token.
	if err := r.sites[0].setup.CreateToken(t.Context(), deploy.LeaderNamespace, tokenOf("east"), "east",
		func(*corev1.Secret) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := r.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	named := func(namespace, id string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: tokenOf(id)}
	}
	exist := func(want bool) {
		t.Helper()
		for i, c := range w.clusters {
			for _, of := range []struct {
				at int
				o  client.Object
			}{
				{0, announcement(c.ID)}, {0, &corev1.Secret{ObjectMeta: named(deploy.LeaderNamespace, c.ID)}},
				{0, &corev1.ServiceAccount{ObjectMeta: named(deploy.LeaderNamespace, c.ID)}},
				{0, &rbacv1.RoleBinding{ObjectMeta: named(deploy.LeaderNamespace, c.ID)}},
				{i, &corev1.Secret{ObjectMeta: named(deploy.MemberNamespace, c.ID)}},
				{i, clusterSet(deploy.MemberNamespace, o.ClusterSet, c.ID)},
				{0, clusterSet(deploy.LeaderNamespace, o.ClusterSet, "north")},
			} {
				if is := w.has(of.at, of.o); is != want {
					t.Errorf("cluster %s: %T %s exists: %t", c.ID, of.o, of.o.GetName(), is)
				}
			}
		}
	}
	exist(true)
	var n corev1.Node
	if err := w.clients[1].Get(t.Context(), client.ObjectKey{Name: "east-1"}, &n); err != nil || !isGateway(&n) {
		t.Errorf("the annotations of the Gateway are %v: %v", n.Annotations, err)
	}
	// A second set-up finds all of it.
	second, err := open(w.clusters, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(each(second.sites, func(s *site) error {
		return errors.Join(readNodes(t.Context(), s), readClusterSets(t.Context(), s))
	}), checkLeaders(second), second.join(t.Context())); err != nil || len(second.undone) > 0 {
		t.Errorf("a second set-up has made %d changes: %v", len(second.undone), err)
	}
	w.wants("the cause", r.undo(t.Context(), errors.New("no network")), "no network")
	exist(false)
	if !w.has(0, announcement("west")) {
		t.Error("the announcement of another member is gone")
	}
	n = corev1.Node{}
	if err := w.clients[1].Get(t.Context(), client.ObjectKey{Name: "east-1"}, &n); err != nil || len(n.Annotations) > 0 {
		t.Errorf("the Gateway's annotations are %v: %v", n.Annotations, err)
	}
	w.undoForeignToken()
	w.undoAgents()
	w.undoUnsure()
	w.lastErrors()
}

// undoForeignToken fails unless a token stays that another command than a set-up has made.
func (w *world) undoForeignToken() {
	w.t.Helper()
	r, err := open(w.clusters, w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	other := r.sites[0].setup
	other.TokenAnnotations = nil
	if err := other.CreateToken(w.t.Context(), deploy.LeaderNamespace, tokenOf("east"), "east",
		func(*corev1.Secret) error { return nil }); err != nil {
		w.t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.MemberNamespace, Name: tokenOf("east")}}
	w.create(1, secret)
	const fault = "there is a Secret kube-system/east-token that no command has made"
	w.wants("a Secret of others", r.undo(w.t.Context(), r.joinOne(w.t.Context(), r.sites[1])), fault)
	if !w.has(1, secret) || !w.has(0, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: deploy.LeaderNamespace, Name: tokenOf("east")}}) {
		w.t.Error("the Secret or the token of others is gone")
	}
	w.remove(1, secret)
	if err := other.DeleteToken(w.t.Context(), deploy.LeaderNamespace, tokenOf("east")); err != nil {
		w.t.Fatal(err)
	}
}

// undoAgents fails unless agents stay if one of them runs, and if the API server refuses to show them.
func (w *world) undoAgents() {
	w.t.Helper()
	set := daemonSet(agents)
	set.Labels = map[string]string{LabelInstalledBy: InstalledBy, LabelPart: agentPart}
	refuse := false
	at := w.wrapped(0, func(q *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if refuse && q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/daemonsets/"+agents) {
			return apiserver.Refusal(q, http.StatusForbidden, "Forbidden", "refused by the test"), nil
		}
		return send()
	})
	for _, row := range []struct {
		name         string
		ready        int32
		refuse, stay bool
		fault        string
	}{
		{"it cannot be seen", 0, true, true, "see whether agents run: read DaemonSet kube-system/tombolo-agent: refused by"},
		{"one runs", 1, false, true, ""},
		{"no agent runs", 0, false, false, ""},
	} {
		r, err := open([]Cluster{at, w.clusters[1]}, w.options())
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range []client.Object{installed(memberPart), set.DeepCopy()} {
			if !w.has(0, o) {
				o.SetResourceVersion("")
				w.create(0, o)
			}
			r.sites[0].made = append(r.sites[0].made, w.unstructured(o))
		}
		d := set.DeepCopy()
		w.has(0, d)
		d.Status.DesiredNumberScheduled, d.Status.NumberReady = 1, row.ready
		if err := w.clients[0].Status().Update(w.t.Context(), d); err != nil {
			w.t.Fatal(err)
		}
		refuse = row.refuse
		w.wants(row.name, r.undo(w.t.Context(), errors.New("no network")), "no network", row.fault)
		if w.has(0, installed(memberPart)) || w.has(0, set.DeepCopy()) != row.stay {
			w.t.Errorf("%s: the member's part is left, or the agents' is not as it should be", row.name)
		}
	}
}

// undoUnsure fails unless objects are deleted again whose requests an interrupt or an error meets: the API server has
// created them.
func (w *world) undoUnsure() {
	w.t.Helper()
	ctx, interrupt := context.WithCancel(w.t.Context())
	defer interrupt()
	failed := false
	at := w.wrapped(0, func(q *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		switch {
		case q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, "/configmaps/of-first") && !failed:
			failed = true
			answer, err := send()
			if err != nil {
				return nil, err
			}
			answer.Body.Close()
			return apiserver.Refusal(q, http.StatusInternalServerError, "InternalError", "refused by the test"), nil
		case q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, "/configmaps/of-second"):
			interrupt()
		}
		return send()
	})
	r, err := open([]Cluster{at, w.clusters[1]}, w.options())
	if err != nil {
		w.t.Fatal(err)
	}
	p := part{name: memberPart}
	for _, name := range []string{"first", "second", "third"} {
		p.objects = append(p.objects, w.unstructured(installed(name)))
	}
	if _, err = r.sites[0].apply(ctx, p); !errors.Is(err, context.Canceled) {
		w.t.Errorf("an interrupt: %v", err)
	}
	if !w.has(0, installed("first")) || !w.has(0, installed("second")) || w.has(0, installed("third")) {
		w.t.Error("want the objects up to the interrupt")
	}
	w.wants("an interrupt", r.undo(ctx, err), context.Canceled.Error())
	w.nothing("an interrupt")
}

// lastErrors fails unless waits that end report the last error of the API server.
func (w *world) lastErrors() {
	w.t.Helper()
	at := w.wrapped(0, func(q *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/multicluster.crd.antrea.io/") {
			return apiserver.Refusal(q, http.StatusForbidden, "Forbidden", "refused by the test"), nil
		}
		return send()
	})
	o := w.options()
	o.Limit = time.Millisecond
	r, err := open([]Cluster{at, w.clusters[1]}, o)
	if err != nil {
		w.t.Fatal(err)
	}
	r.seenLimit, r.leaveLimit = time.Millisecond, time.Millisecond
	s := r.sites[0]
	s.facts.memberSet = clusterSet(deploy.MemberNamespace, o.ClusterSet, "north")
	w.create(0, s.facts.memberSet.DeepCopy())
	w.wants("ready", r.isReady(w.t.Context(), s), `after 1ms its ClusterSet "set" is not ready: refused by the test`)
	w.wants("Gateways", r.knows(w.t.Context(), s), "the Gateways of east (refused by the test)")
	w.wants("leave", r.leave(w.t.Context(), s), "no answer about what is left (refused by the test): does Deployment")
}

// unstructured returns an object as manifests have it.
func (w *world) unstructured(o client.Object) *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{}
	if err := w.clients[0].Scheme().Convert(o, u, nil); err != nil {
		w.t.Fatal(err)
	}
	return u
}

// wrapped returns a cluster whose requests go through answer.
func (w *world) wrapped(at int,
	answer func(q *http.Request, send func() (*http.Response, error)) (*http.Response, error)) Cluster {
	c := w.clusters[at]
	c.Config = rest.CopyConfig(c.Config)
	c.Config.Wrap(func(to http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			return answer(q, func() (*http.Response, error) { return to.RoundTrip(q) })
		})
	})
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
