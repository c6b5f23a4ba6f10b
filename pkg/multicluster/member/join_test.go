package member

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/webhook"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/ports"
)

// TestRemedies has the errors of an announcement. Each message names the object and the field to correct.
func TestRemedies(t *testing.T) {
	kind := schema.GroupResource{Group: "multicluster.crd.antrea.io", Resource: "memberclusterannounces"}
	failed := func(err error) error { return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443", Err: err} }
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", kind,
		"member-announce-from-east", "404 page not found", 0, true)
	webhooks := func(text string) error {
		return apierrors.NewForbidden(kind, "member-announce-from-east", errors.New(text))
	}
	for _, row := range []struct {
		name string
		err  error
		want string // the beginning of the remedy
	}{
		{"another CA", failed(x509.UnknownAuthorityError{}),
			"Secret kube-system/token, key ca.crt: it is not the CA of that API server: copy ca.crt and token"},
		{"another name", failed(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "leader"}),
			"correct spec.leaders[0].server of ClusterSet set: it has to be"},
		{"an expired certificate", failed(x509.CertificateInvalidError{Reason: x509.Expired}),
			"Secret kube-system/token, key ca.crt, and the certificate of the leader's API server: renew"},
		{"nobody there", failed(errors.New("connection refused")),
			"check that the API server runs and is reached from this cluster, and spec.leaders[0].server of ClusterSet set"},
		{"an unknown token", apierrors.NewUnauthorized("Unauthorized"),
			"Secret kube-system/token, key token: the leader does not know it: "},
		{"a token without the role", webhooks("User cannot get resource"), "Secret kube-system/token, key token: it " +
			"may not be used in Namespace antrea-multicluster of the leader: correct spec.namespace of ClusterSet set, or copy"},
		{"refused by the leader's webhook", webhooks(`admission webhook "x" denied the request: no`), "spec.clusterID " +
			"and spec.leaders[0].clusterID of ClusterSet set, and Secret kube-system/token, key token, have to be those"},
		{"the leader's webhook is away", apierrors.NewInternalError(errors.New(`failed calling webhook "x"`)),
			"check that Deployment antrea-mc-controller runs in Namespace antrea-multicluster of the leader"},
		{"the API server starts", apierrors.NewServiceUnavailable("starting"),
			"check that Deployment antrea-mc-controller runs"},
		{"no such kind", unserved,
			"the API server does not serve MemberClusterAnnounces of multicluster.crd.antrea.io/v1alpha1: " +
				"apply the leader's manifest of this version there (`mc deploy leadercluster`), or correct"},
		{"no such Namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, area),
			"Namespace antrea-multicluster does not exist in the leader: correct spec.namespace of ClusterSet set"},
		{"it has just been deleted", apierrors.NewNotFound(kind, "member-announce-from-east"), ""},
		{"it is of another cluster, and says so itself", errors.New("MemberClusterAnnounce is of cluster west; delete it"),
			""},
	} {
		t.Run(row.name, func(t *testing.T) {
			have := remedy(joinedView().Leader.Area, fmt.Errorf("announce: %w", row.err))
			if !strings.HasPrefix(have, row.want) || (row.want == "") != (have == "") {
				t.Errorf("have %q, want %q", have, row.want)
			}
		})
	}
}

// account creates a ServiceAccount for a member, bound to a cluster ID, and returns the content of its Secret.
func (w *world) account(in client.Client, config *rest.Config, name, clusterID string) map[string][]byte {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: meta(area, name)}
	account.Annotations = map[string]string{multicluster.AnnotationClusterID: clusterID}
	w.create(in, account, &rbacv1.RoleBinding{ObjectMeta: meta(area, name),
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: multicluster.MemberRole},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: area, Name: name}}})
	request := &authenticationv1.TokenRequest{}
	if err := in.SubResource("token").Create(w.t.Context(), account, request); err != nil {
		w.t.Fatalf("get a token of ServiceAccount %s: %v", name, err)
	}
	return map[string][]byte{"ca.crt": config.CAData, "token": []byte(request.Status.Token)}
}

// webhooks makes the leader's API server call the leader's webhooks, which this process serves.
func (w *world) webhooks() {
	w.t.Helper()
	const manifest = "../../../deploy/multicluster/antrea-multicluster-leader-namespaced.yml"
	hooks := envtest.WebhookInstallOptions{Paths: []string{manifest},
		LocalServingHost: "127.0.0.1", LocalServingPort: ports.Free(w.t)}
	if err := hooks.Install(w.leaderConfig); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { os.RemoveAll(hooks.LocalServingCertDir) })
	scheme, err := leader.Scheme()
	if err != nil {
		w.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(w.leaderConfig, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{Host: hooks.LocalServingHost,
			Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir})})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := webhook.SetupWithManager(mgr, scheme, webhook.Leader, area); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("webhooks: %v", err)
		}
	})
	w.eventually("the webhooks are served",
		func(context.Context) error { return mgr.GetWebhookServer().StartedChecker()(nil) })
}

// TestMistakesOfJoining joins with one mistake at a time, as with kubectl, and then corrects it. Each time the
// ClusterSet names the object, the field and the remedy. Imported objects stay, and the member joins without a restart.
// The leader has its webhooks. The other cluster is not a leader.
func TestMistakesOfJoining(t *testing.T) {
	w, _ := newParallelWorld(t)
	otherConfig := apiserver.New(t, apiserver.Options{}).Config // a cluster that is no leader
	other, err := client.New(otherConfig, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	own := clusterSet("")
	own.Namespace, own.Spec.ClusterID, own.Spec.Leaders[0].Secret = area, "north", ""
	for _, in := range []client.Client{w.leader, other} {
		w.create(in, &corev1.Namespace{ObjectMeta: meta("", area)}, memberRole())
	}
	w.create(w.leader, own, importOf("default", "db"), endpointsOf("default", "db", "10.98.0.7"),
		clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101"))
	good := w.account(w.leader, w.leaderConfig, "east-token", "east")
	west := w.account(w.leader, w.leaderConfig, "west-token", "west")
	elsewhere := w.account(other, otherConfig, "east-token", "east")
	w.webhooks()
	otherCA, _, err := certutil.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		t.Fatal(err)
	}

	secret := &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"), Data: good}
	set := clusterSet(w.leaderConfig.Host)
	w.create(w.member, set, secret)
	w.startMember()
	joined := func() {
		t.Helper()
		w.clusterSetIs("True True True", "")
		w.importIs("db", "10.98.0.7")
	}
	joined()
	data := func(ca, token []byte) func() {
		return func() {
			w.update(w.member, secret, func() { secret.Data = map[string][]byte{"ca.crt": ca, "token": token} })
		}
	}
	spec := func(change func(*mcv1alpha2.ClusterSetSpec)) func() {
		return func() { w.update(w.member, set, func() { change(&set.Spec) }) }
	}
	right := *set.Spec.DeepCopy()
	steps := []struct {
		name  string
		wrong func()
		want  []string // parts of the condition's message
	}{
		{"the CA of another cluster", data(otherCA, good["token"]), []string{"certificate signed by unknown authority",
			"; Secret kube-system/east-token, key ca.crt: it is not the CA of that API server: copy ca.crt and token",
			"or correct spec.leaders[0].server of ClusterSet set"}},
		{"a CA that is none", data([]byte("x"), good["token"]), []string{"Secret kube-system/east-token, " +
			"key ca.crt: it has no certificate in PEM; copy ca.crt and token from the ServiceAccount's Secret in the leader"}},
		{"the token of another cluster", data(good["ca.crt"], elsewhere["token"]), []string{"Unauthorized",
			"; Secret kube-system/east-token, key token: the leader does not know it: it is of another cluster",
			"copy ca.crt and token"}},
		{"the token of another member", data(good["ca.crt"], west["token"]), []string{
			`ServiceAccount west-token is bound to cluster ID "west" by annotation multicluster.antrea.io/cluster-id and may ` +
				`not announce "east"; use another ServiceAccount for each member`,
			"Secret kube-system/east-token, key token, have to be those that the leader has for this cluster"}},
		{"another cluster ID", spec(func(s *mcv1alpha2.ClusterSetSpec) { s.ClusterID = "south" }),
			[]string{`ServiceAccount east-token is bound to cluster ID "east"`, `may not announce "south"`,
				"; spec.clusterID and spec.leaders[0].clusterID of ClusterSet set"}},
		{"another leader's ID", spec(func(s *mcv1alpha2.ClusterSetSpec) { s.Leaders[0].ClusterID = "south" }),
			[]string{"Leader cluster ID south in the MemberClusterAnnounce does not match " +
				"that of ClusterSet set; correct spec.leaders[0].clusterID of the member's ClusterSet"}},
		{"another Namespace", spec(func(s *mcv1alpha2.ClusterSetSpec) { s.Namespace = "default" }),
			[]string{"forbidden", "Secret kube-system/east-token, key token: it may not " +
				"be used in Namespace default of the leader: correct spec.namespace of ClusterSet set"}},
		{"a cluster that is no leader", func() {
			data(elsewhere["ca.crt"], elsewhere["token"])()
			spec(func(s *mcv1alpha2.ClusterSetSpec) { s.Leaders[0].Server = otherConfig.Host })()
		}, []string{"could not find the requested resource",
			"the API server does not serve MemberClusterAnnounces of multicluster.crd.antrea.io/v1alpha1: apply the leader's " +
				"manifest of this version there (`mc deploy leadercluster`), or correct spec.leaders[0].server of ClusterSet set"}},
	}
	for i, step := range steps {
		step.wrong()
		w.clusterSetNotReady(step.name, step.want...)
		w.importIs("db", "10.98.0.7")
		if i == 1 {
			w.eventIs("set", "LeaderNotConfigured")
		}
		if i == len(steps)-1 {
			break
		}
		data(good["ca.crt"], good["token"])()
		spec(func(s *mcv1alpha2.ClusterSetSpec) { *s = *right.DeepCopy() })()
		joined()
	}

	// That cluster becomes a leader.
	if _, err := envtest.InstallCRDs(otherConfig,
		envtest.CRDInstallOptions{Paths: []string{"../../../deploy/crds"}}); err != nil {
		t.Fatal(err)
	}
	w.clusterSetIs("True True True", "")
	w.eventually("the member has announced itself there", func(ctx context.Context) error {
		return other.Get(ctx, client.ObjectKey{Namespace: area, Name: "member-announce-from-east"},
			&mcv1alpha1.MemberClusterAnnounce{})
	})
}

// clusterSetNotReady waits until the leader's condition Ready is False, and its message has these parts in their order.
func (w *world) clusterSetNotReady(what string, parts ...string) {
	w.t.Helper()
	w.eventually(what, func(ctx context.Context) error {
		cs := &mcv1alpha2.ClusterSet{}
		if err := w.member.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "set"}, cs); err != nil {
			return err
		}
		for _, s := range cs.Status.ClusterStatuses {
			for _, c := range s.Conditions {
				if c.Type != mcv1alpha2.ClusterReady {
					continue
				}
				rest := c.Message
				for _, part := range parts {
					_, after, found := strings.Cut(rest, part)
					if !found || c.Status != corev1.ConditionFalse {
						return fmt.Errorf("have %s %q, which lacks %q", c.Status, c.Message, part)
					}
					rest = after
				}
				return nil
			}
		}
		return errors.New("there is no condition Ready")
	})
}
