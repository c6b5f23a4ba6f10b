package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// world is an API server for the commands, with their output.
type world struct {
	t      *testing.T
	config *rest.Config
	output strings.Builder
	Cluster
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, config: apiserver.Start(t, "../../../deploy/crds")}
	c, err := client.New(w.config, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	w.Cluster = Cluster{Client: c, Out: &w.output}
	return w
}

// intercepted returns the same API server with some other answers.
func (w *world) intercepted(f interceptor.Funcs) Cluster {
	w.t.Helper()
	c, err := client.NewWithWatch(w.config, client.Options{Scheme: Scheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	return Cluster{Client: interceptor.NewClient(c, f), Out: &w.output}
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.Client.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// has reports whether an object is there, and reads it.
func (w *world) has(o client.Object, namespace, name string) bool {
	w.t.Helper()
	err := w.Client.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

// wants fails unless an error has the text.
func (w *world) wants(err error, text string) {
	w.t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		w.t.Errorf("have error %v, want %q", err, text)
	}
}

const area = "antrea-multicluster"

func named(namespace, name string, annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for i := 0; i < len(annotations); i += 2 {
		metav1.SetMetaDataAnnotation(&m, annotations[i], annotations[i+1])
	}
	return m
}

// TestTokens makes tokens without a controller that fills them in. So each attempt ends, and no object of it is left.
// The end-to-end tests make real tokens.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	w.tokenLimit = 400 * time.Millisecond
	w.create(&corev1.Namespace{ObjectMeta: named("", area)})
	never := func(*corev1.Secret) error { t.Error("a token that failed was given on"); return nil }
	err := w.CreateToken(t.Context(), area, "east-token", "east", never)
	w.wants(err, "there is no Role antrea-mc-member-cluster-role in Namespace antrea-multicluster")
	w.create(&rbacv1.Role{ObjectMeta: named(area, multicluster.MemberRole)})

	err = w.CreateToken(t.Context(), area, "east-token", "east", never)
	w.wants(err, "Secret antrea-multicluster/east-token gets no token")
	for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.RoleBinding{}, &corev1.Secret{}} {
		if w.has(o, area, "east-token") {
			t.Errorf("%T is left of a token that failed", o)
		}
	}

	w.create(&corev1.ServiceAccount{ObjectMeta: named(area, "west-token", multicluster.AnnotationClusterID, "west")})
	for _, row := range []struct{ name, id, want string }{
		{"x", "west-1", `ClusterID "west-1" conflicts with "west" of ServiceAccount west-token`},
		{"x", "we", "Secret antrea-multicluster/x gets no token"}, // a common beginning is no conflict
		{"x", "a_", `invalid ClusterID "a_"`},
		{"x", "UPPER", `invalid ClusterID "UPPER"`},
		{"x", strings.Repeat("a", 64), "invalid ClusterID"},
		{multicluster.ControllerName, "south", "is not a member's"},
		{"default", "south", "is not a member's"},
	} {
		err := w.CreateToken(t.Context(), area, row.name, row.id, never)
		w.wants(err, row.want)
	}

	// An account that others have made stays, with its binding, since a live member may use it.
	w.output.Reset()
	w.wants(w.CreateToken(t.Context(), area, "west-token", "west-1", never), "gets no token")
	account := &corev1.ServiceAccount{}
	if !w.has(account, area, "west-token") || account.Annotations[multicluster.AnnotationClusterID] != "west" ||
		ours(account) || strings.Contains(w.output.String(), "re-bound") {
		t.Errorf("ServiceAccount is %v, want it bound to west as before; said:\n%s", account.ObjectMeta, w.output.String())
	}
	if err := w.DeleteToken(t.Context(), area, "west-token"); err != nil || !w.has(account, area, "west-token") {
		t.Errorf("%v, or an account of others was deleted", err)
	}
	w.wants(w.DeleteToken(t.Context(), area, "none"), "there is no member token none")

	// Things of that name that are for something else.
	w.create(&rbacv1.RoleBinding{ObjectMeta: named(area, "rights"),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "other"}})
	w.wants(w.CreateToken(t.Context(), area, "rights", "south", never),
		"RoleBinding antrea-multicluster/rights exists and does not bind")
	w.create(&corev1.Secret{ObjectMeta: named(area, "secret")})
	w.wants(w.CreateToken(t.Context(), area, "secret", "south", never),
		"Secret antrea-multicluster/secret exists and is not for tokens")
	if w.has(account, area, "rights") || w.has(account, area, "secret") {
		t.Error("accounts are left of tokens that failed")
	}
}

// TestTokenUndone has the last step of a token fail, and finds everything as it was before.
func TestTokenUndone(t *testing.T) {
	w := newWorld(t)
	w.create(&corev1.Namespace{ObjectMeta: named("", area)},
		&rbacv1.Role{ObjectMeta: named(area, multicluster.MemberRole)},
		&corev1.ServiceAccount{ObjectMeta: named(area, "bound", multicluster.AnnotationClusterID, "west")},
		&corev1.ServiceAccount{ObjectMeta: named(area, "unbound")})
	apiserver.FillTokens(t, w.config)
	for _, row := range []struct{ name, was, output string }{
		{"new", "none", ""},
		{"bound", "west", `ServiceAccount "bound" bound to ClusterID "west" again`},
		{"unbound", "", `ServiceAccount "unbound" bound to no ClusterID again`},
	} {
		t.Run(row.name, func(t *testing.T) {
			w.t = t
			w.output.Reset()
			bound := func() string {
				account := &corev1.ServiceAccount{}
				if !w.has(account, area, row.name) {
					return "none"
				}
				return account.Annotations[multicluster.AnnotationClusterID]
			}
			w.wants(w.CreateToken(t.Context(), area, row.name, "south", func(s *corev1.Secret) error {
				if have := bound(); have != "south" || s.Name != row.name || string(s.Data["token"]) != w.config.BearerToken {
					t.Errorf("when the token is given on its account is bound to %s, and it is %v", have, s)
				}
				return errors.New("disk full")
			}), "disk full")
			if have := bound(); have != row.was {
				t.Errorf("the ServiceAccount is bound to %q, want %q as before", have, row.was)
			}
			if w.has(&rbacv1.RoleBinding{}, area, row.name) || w.has(&corev1.Secret{}, area, row.name) {
				t.Error("a RoleBinding or Secret is left of a token that failed")
			}
			if !strings.Contains(w.output.String(), row.output) {
				t.Errorf("said, without %q:\n%s", row.output, w.output.String())
			}
		})
	}
	w.t = t

	// Changes by other clients in the meantime stay.
	account := &corev1.ServiceAccount{}
	w.wants(w.CreateToken(t.Context(), area, "bound", "south", func(*corev1.Secret) error {
		w.has(account, area, "bound")
		account.Annotations[multicluster.AnnotationClusterID] = "north"
		if err := w.Client.Update(t.Context(), account); err != nil {
			t.Error(err)
		}
		return errors.New("disk full")
	}), "disk full")
	if w.has(account, area, "bound"); account.Annotations[multicluster.AnnotationClusterID] != "north" {
		t.Errorf("an account that was bound by hand meanwhile is bound to %q",
			account.Annotations[multicluster.AnnotationClusterID])
	}

	// And when nothing fails it stays bound again.
	if err := w.CreateToken(t.Context(), area, "unbound", "east", func(*corev1.Secret) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if w.has(account, area, "unbound"); account.Annotations[multicluster.AnnotationClusterID] != "east" || ours(account) {
		t.Errorf("ServiceAccount is %v, want it bound to east", account.ObjectMeta)
	}
	if want := `ServiceAccount "unbound" already exists; re-bound it to ClusterID "east"`; !strings.Contains(
		w.output.String(), want) {
		t.Errorf("said, without %q:\n%s", want, w.output.String())
	}
}

func TestClusterSet(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	nothing := func() error { return nil }
	w.wants(w.Init(ctx, area, "set", "leader", nothing), "does Namespace antrea-multicluster exist")
	w.create(&corev1.Namespace{ObjectMeta: named("", area)})
	w.wants(w.Init(ctx, area, "set", "a/b", nothing), `invalid ClusterID "a/b"`)
	set := &mcv1alpha2.ClusterSet{}
	w.wants(w.Init(ctx, area, "set", "leader", func() error { return errors.New("disk full") }), "disk full")
	if w.has(set, area, "set") {
		t.Error("the ClusterSet is left of an init that failed")
	}
	if err := w.Init(ctx, area, "set", "leader", nothing); err != nil {
		t.Fatal(err)
	}
	w.wants(w.Init(ctx, area, "set", "leader", nothing),
		`ClusterSet "set" exists in Namespace antrea-multicluster already`)
	if !w.has(set, area, "set") || set.Spec.ClusterID != "leader" || set.Spec.Leaders[0].ClusterID != "leader" ||
		set.Spec.Namespace != area {
		t.Errorf("have %+v", set.Spec)
	}

	config, err := w.LeaderJoinConfig(ctx, area, w.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	config.Secret = &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "east-token"},
		Data:       map[string][]byte{"ca.crt": w.config.CAData, "token": []byte(w.config.BearerToken)}}
	var text strings.Builder
	if err := config.Write(&text); err != nil {
		t.Fatal(err)
	}
	join, err := ReadJoinConfig(strings.NewReader(text.String()))
	if err != nil || join.ClusterSetID != "set" || join.LeaderClusterID != "leader" || join.LeaderNamespace != area ||
		join.LeaderAPIServer != w.config.Host ||
		join.Secret == nil || string(join.Secret.Data["token"]) != w.config.BearerToken {
		t.Fatalf("%v: what was written is read as %+v:\n%s", err, join, &text)
	}
	w.create(&corev1.Namespace{ObjectMeta: named("", "empty")})
	_, err = w.LeaderJoinConfig(ctx, "empty", "")
	w.wants(err, "no ClusterSet found in Namespace empty: `mc get clusterset -A` lists them")
	for _, name := range []string{"other", "another"} {
		w.create(&mcv1alpha2.ClusterSet{ObjectMeta: named("empty", name), Spec: set.Spec})
	}
	_, err = w.LeaderJoinConfig(ctx, "empty", "")
	w.wants(err, "more than one ClusterSet found in Namespace empty: another, other; a leader serves one a Namespace: "+
		"delete the others")
	// The definition requires a leader. The definition of another version may not.
	_, err = w.intercepted(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		o ...client.ListOption) error {
		err := c.List(ctx, list, o...)
		list.(*mcv1alpha2.ClusterSetList).Items[0].Spec.Leaders = nil
		return err
	}}).LeaderJoinConfig(ctx, area, "")
	w.wants(err, "invalid ClusterSet set: no leader cluster; name it in spec.leaders of ClusterSet "+
		"antrea-multicluster/set")

	// The member's controller does not run, so that joining fails and everything goes again.
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	join.ClusterID, join.Namespace = "east", "kube-system"
	join.SkipLeaderCheck = true
	w.wants(w.Join(soon, join), "is not ready: no controller has looked at it")
	if w.has(&mcv1alpha2.ClusterSet{}, "kube-system", "set") || w.has(&corev1.Secret{}, "kube-system", "east-token") {
		t.Error("something is left of a join that failed")
	}
	// As one that has taken it.
	join.SkipLeaderCheck = false
	done := make(chan error, 1)
	go func() { done <- w.Join(ctx, join) }()
	member := &mcv1alpha2.ClusterSet{}
	for !w.has(member, "kube-system", "set") {
		select {
		case err := <-done:
			t.Fatalf("joining ended before the ClusterSet was there: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got := fmt.Sprint(member.Spec); got != "{east [{leader "+w.config.Host+" east-token}] antrea-multicluster}" {
		t.Errorf("the member's ClusterSet is %s", got)
	}
	member.Status.Conditions = []mcv1alpha2.ClusterSetCondition{{Type: mcv1alpha2.ClusterSetReady,
		Status: corev1.ConditionTrue}}
	if err := w.Client.Status().Update(ctx, member); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.wants(w.Join(ctx, join), "Secret kube-system/east-token exists already")
	join.TokenSecretName = "east-token"
	w.wants(w.Join(ctx, join), `ClusterSet "set" exists in Namespace kube-system already`)

	// Leaving removes exactly the objects that the commands made.
	w.create(&corev1.Secret{ObjectMeta: named("kube-system", "mine")})
	if err := w.Remove(ctx, "kube-system", "set"); err != nil {
		t.Fatal(err)
	}
	if w.has(member, "kube-system", "set") || w.has(&corev1.Secret{}, "kube-system", "east-token") ||
		!w.has(&corev1.Secret{}, "kube-system", "mine") {
		t.Errorf("wrong things were deleted:\n%s", w.output.String())
	}
}

// TestDestroy waits for members that have just left, and deletes only the named ClusterSet with its tokens.
func TestDestroy(t *testing.T) {
	w := newWorld(t)
	spec := mcv1alpha2.ClusterSetSpec{ClusterID: "leader", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "leader"}}}
	w.create(&corev1.Namespace{ObjectMeta: named("", area)},
		&mcv1alpha2.ClusterSet{ObjectMeta: named(area, "set"), Spec: spec},
		&corev1.ServiceAccount{ObjectMeta: named(area, "east-token", multicluster.AnnotationCreatedByAntctl, "true")})
	left := func() string {
		var is []string
		for name, o := range map[string]client.Object{"set": &mcv1alpha2.ClusterSet{},
			"east-token": &corev1.ServiceAccount{}} {
			if w.has(o, area, name) {
				is = append(is, name)
			}
		}
		slices.Sort(is)
		return strings.Join(is, " ")
	}
	w.wants(w.Remove(t.Context(), area, "sett"),
		"there is no ClusterSet sett in Namespace antrea-multicluster, but set: give the name of the one to delete; "+
			"nothing was deleted")
	if have := left(); have != "east-token set" {
		t.Errorf("%q are left after a wrong name", have)
	}

	// refuse acts as the leader's webhook, which still counts members at the first deletions of the ClusterSet.
	refuse := func(times int) interceptor.Funcs {
		return interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object,
			options ...client.DeleteOption) error {
			if _, is := o.(*mcv1alpha2.ClusterSet); is && times > 0 {
				times--
				return apierrors.NewForbidden(mcv1alpha2.GroupVersion.WithResource("clustersets").GroupResource(), o.GetName(),
					errors.New("there are still member clusters connecting, such as east; delete the ClusterSet in the members first"))
			}
			return c.Delete(ctx, o, options...)
		}}
	}
	soon, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := w.intercepted(refuse(1000)).Remove(soon, area, "set")
	w.wants(err, "delete ClusterSet antrea-multicluster/set: ")
	if !strings.HasSuffix(fmt.Sprint(err), "such as east; delete the ClusterSet in the members first") {
		t.Errorf("the remedy is not what the webhook says: %v", err)
	}
	if have := left(); have != "east-token set" {
		t.Errorf("%q are left while members are connected", have)
	}
	w.output.Reset()
	if err := w.intercepted(refuse(2)).Remove(t.Context(), area, "set"); err != nil || left() != "" {
		t.Errorf("after members have left: %v, %q are left", err, left())
	}
	if output := w.output.String(); strings.Count(output, "Waiting for members: ") != 1 ||
		!strings.Contains(output, "such as east") || !strings.Contains(output, `ClusterSet "set" deleted`) {
		t.Errorf("said\n%s", output)
	}
	// A second call deletes the objects that the first one left.
	w.create(&corev1.ServiceAccount{ObjectMeta: named(area, "east-token", multicluster.AnnotationCreatedByAntctl, "true")})
	if err := w.Remove(t.Context(), area, "set"); err != nil || left() != "" {
		t.Errorf("again: %v, %q are left", err, left())
	}
}

func TestReadiness(t *testing.T) {
	set := &mcv1alpha2.ClusterSet{}
	set.Status.Conditions = []mcv1alpha2.ClusterSetCondition{{Type: mcv1alpha2.ClusterSetReady,
		Status: corev1.ConditionFalse, Reason: "NoReadyCluster", Message: "none is ready"}}
	set.Status.ClusterStatuses = []mcv1alpha2.ClusterStatus{{ClusterID: "leader",
		Conditions: []mcv1alpha2.ClusterCondition{
			{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionFalse, Reason: "Disconnected", Message: "Unauthorized"}}}}
	if got, want := Readiness(set),
		"NoReadyCluster none is ready; cluster leader: Disconnected Unauthorized"; got != want {
		t.Errorf("have %q, want %q", got, want)
	}
}

func TestReadJoinConfig(t *testing.T) {
	const head = "apiVersion: multicluster.antrea.io/v1alpha1\nkind: ClusterSetJoinConfig\n"
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {ca.crt: a, token: b}\n"
	for _, row := range []struct{ name, text, want string }{
		{"as documented", "---\n# comment\n" + head +
			"clusterSetID: a\nclusterID: b\nnamespace: c\nleaderClusterID: d\nleaderNamespace: e\nleaderAPIServer: " +
			"https://f\ntokenSecretName: g\ntokenSecretFile: h\n---\n" + secret + "---\n", ""},
		{"unknown keys", head + "tokenSecret: b\nclusterSetID: c\nclusterset: a\n",
			`unknown key "clusterset", "tokenSecret": correct or remove it; a ClusterSetJoinConfig has the keys ` +
				"apiVersion, kind, clusterSetID, clusterID, namespace, leaderClusterID, leaderNamespace, leaderAPIServer, " +
				"tokenSecretName, tokenSecretFile"},
		{"a key twice", head + "clusterSetID: a\nclusterSetID: b\n", `key "clusterSetID" already set`},
		{"a list", head + "clusterSetID: [a]\n", "JoinConfig.clusterSetID of type string"},
		{"another version", "apiVersion: v2\nkind: ClusterSetJoinConfig\n", "unknown apiVersion or kind in config"},
		{"two of them", head + "---\n" + head, "unknown apiVersion or kind in config"},
		{"two Secrets", head + "---\n" + secret + "---\n" + secret, "unknown apiVersion or kind in config"},
		{"no token", head + "---\n" + strings.Replace(secret, ", token: b", "", 1), "Secret x has no key token"},
		{"empty", "# nothing\n", "it is empty"},
		{"no YAML", "a: [", "yaml"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := ReadJoinConfig(strings.NewReader(row.text))
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("have error %v, want %q", err, row.want)
			}
		})
	}
	want := `ClusterSet must be provided: clusterSetID in the join configuration, or --clusterset
ClusterID of member cluster must be provided: clusterID in the join configuration, or --clusterid
ClusterID of leader cluster must be provided: leaderClusterID in the join configuration, or --leader-clusterid
Namespace of leader cluster must be provided: leaderNamespace in the join configuration, or --leader-namespace
API server of leader cluster must be provided: leaderAPIServer in the join configuration, or --leader-apiserver
Namespace of member cluster must be provided: namespace in the join configuration, or --namespace
a token must be provided: the name of a Secret (tokenSecretName in the join configuration, or --token-secret-name), ` +
		"its manifest in a file (tokenSecretFile, or --token-secret-file), or its manifest after the join configuration"
	if err := (&JoinConfig{}).Missing(); err == nil || err.Error() != want {
		t.Errorf("have %v\nwant %s", err, want)
	}
}

// TestDeploy applies the leader's manifest to a bare API server, twice.
func TestDeploy(t *testing.T) {
	w := &world{t: t, config: apiserver.Start(t)}
	c, err := client.New(w.config, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	w.Cluster = Cluster{Client: c, Out: &w.output}
	objects, err := dynamic.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	w.wants(w.Deploy(t.Context(), objects, deploy.Leader(deploy.LeaderNamespace), "elsewhere"),
		"is for Namespace antrea-multicluster, not for elsewhere")
	if w.output.Len() > 0 {
		t.Errorf("half of a manifest was applied:\n%s", w.output.String())
	}
	manifest := deploy.Leader("elsewhere")
	w.wants(w.Deploy(t.Context(), objects, manifest, "elsewhere"), "kubectl create namespace elsewhere")
	w.create(&corev1.Namespace{ObjectMeta: named("", "elsewhere")})
	for _, want := range []string{"ServiceAccount/antrea-mc-controller created",
		"ServiceAccount/antrea-mc-controller unchanged"} {
		w.output.Reset()
		if err := w.Deploy(t.Context(), objects, manifest, "elsewhere"); err != nil {
			t.Fatal(err)
		}
		if output := w.output.String(); !strings.Contains(output, want+"\n") ||
			!strings.HasSuffix(output, "Antrea Multi-cluster successfully deployed\n") {
			t.Errorf("said, without %q:\n%s", want, output)
		}
	}
	if strings.Contains(w.output.String(), "created") || strings.Contains(w.output.String(), "configured") {
		t.Errorf("the second time something changed:\n%s", w.output.String())
	}
	// No object of the member is for another Namespace. The member finds its webhooks and their certificate through its
	// Namespace.
	if err := w.Deploy(t.Context(), objects, deploy.Member("elsewhere"), "elsewhere"); err != nil ||
		strings.Contains(deploy.Member("elsewhere"), deploy.MemberNamespace) {
		t.Errorf("the member's manifest for another Namespace: %v, or it has the usual one in it", err)
	}
	if err := w.Deploy(t.Context(), objects, deploy.WithImages(manifest, "registry.example/net/", "v1"),
		"elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := w.Foreign(t.Context(), objects, "elsewhere", true); err != nil {
		t.Errorf("beside what is ours, from a registry: %v", err)
	}
	controller := &appsv1.Deployment{}
	if w.has(controller, "elsewhere",
		"antrea-mc-controller"); controller.Spec.Template.Spec.Containers[0].Image !=
		"registry.example/net/tombolo-controller:v1" {
		t.Errorf("the image is %s", controller.Spec.Template.Spec.Containers[0].Image)
	}
	controller.Spec.Template.Spec.Containers[0].Image = "registry.example/antrea/antrea-mc-controller:v2.4.0"
	if err := c.Update(t.Context(), controller); err != nil {
		t.Fatal(err)
	}
	w.wants(w.Foreign(t.Context(), objects, "elsewhere", false),
		"is another project's, of image registry.example/antrea/antrea-mc-controller:v2.4.0: remove it first")
	agents := &appsv1.DaemonSet{ObjectMeta: named("kube-system", "antrea-agent")}
	agents.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "antrea"}}
	agents.Spec.Template.Labels = agents.Spec.Selector.MatchLabels
	agents.Spec.Template.Spec.Containers = []corev1.Container{{Name: "antrea-agent",
		Image: "antrea/antrea-agent-ubuntu:v2.4.0"}}
	w.create(agents)
	w.wants(w.Foreign(t.Context(), objects, "kube-system", true),
		"this cluster runs Antrea, DaemonSet kube-system/antrea-agent: remove it first")
	if err := w.Foreign(t.Context(), objects, "kube-system", false); err != nil {
		t.Errorf("a leader where Pods are Antrea's: %v", err)
	}
	w.output.Reset()
	other := strings.Replace(manifest, "replicas: 2", "replicas: 3", 1)
	if other == manifest {
		t.Fatal("the manifest has no replicas to change")
	}
	if err := w.Deploy(t.Context(), objects, other, "elsewhere"); err != nil ||
		!strings.Contains(w.output.String(), "Deployment/antrea-mc-controller configured") {
		t.Errorf("%v, or a change is not said:\n%s", err, w.output.String())
	}
}
