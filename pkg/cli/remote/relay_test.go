package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/relay"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/kubelet"
)

// relayCluster is an API server with the relay's objects.
type relayCluster struct {
	t      *testing.T
	admin  *rest.Config
	writer client.Client
	pods   map[string]string // addresses by Pod
}

func newRelayCluster(t *testing.T) *relayCluster {
	t.Helper()
	c := &relayCluster{t: t, admin: apiserver.Start(t), pods: map[string]string{}}
	var err error
	if c.writer, err = client.New(c.admin, client.Options{}); err != nil {
		t.Fatal(err)
	}
	(&kubelet.Kubelet{Dial: func(_, pod, _ string) (net.Conn, error) {
		return net.Dial("tcp", c.pods[pod])
	}}).Start(t, c.admin, "node-1")
	return c
}

func (c *relayCluster) create(list ...client.Object) {
	c.t.Helper()
	for _, o := range list {
		if err := c.writer.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// pod makes a Pod of the relay.
func (c *relayCluster) pod(name, address string, ready corev1.ConditionStatus) {
	c.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: api.RelayNamespace,
		Labels: map[string]string{"app": "tombolo", "component": api.RelayService}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "i",
			SecurityContext: &corev1.SecurityContext{
				RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}}}}
	c.create(p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if err := c.writer.Status().Update(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
	c.pods[name] = address
}

// install makes the relay's objects and runs a replica of it.
func (c *relayCluster) install() (address string) {
	t := c.t
	t.Helper()
	manifest, err := os.ReadFile("../../../deploy/agent/tombolo-observe.yml")
	if err != nil {
		t.Fatal(err)
	}
	as := apiserver.Access(t, c.admin, manifest)
	c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: api.RelaySecret, Namespace: api.RelayNamespace}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: api.RelayCA, Namespace: api.RelayNamespace}})
	writer, err := client.New(as, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	certificate := &certs.Certificate{Client: writer, Namespace: api.RelayNamespace, Names: relay.CertificateNames()}
	r, err := relay.New(relay.Options{Config: as, TLS: certificate.TLS, Registry: prometheus.NewRegistry(),
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r.Nodes().Add("node-1")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = certificate.Start(ctx) })
	all.Go(func() {
		if err := r.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	ovstest.Eventually(t, "the relay has a certificate", func() error { return certificate.Ready(nil) })
	return listener.Addr().String()
}

// as is the access of a ServiceAccount of the Namespace default, by its token.
func (c *relayCluster) as(account string) *rest.Config {
	c.t.Helper()
	q := &authentication.TokenRequest{}
	if err := c.writer.SubResource("token").Create(c.t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account}}, q); err != nil {
		c.t.Fatal(err)
	}
	config := rest.CopyConfig(c.admin)
	config.BearerToken = q.Status.Token
	return config
}

func bound(namespace, kind, role, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: account}}}
}

// TestRelay asks the relay of a cluster through a forwarded port: where it is not installed, down, as an administrator,
// and as a developer.
func TestRelay(t *testing.T) {
	c := newRelayCluster(t)
	east := New("east", c.admin)
	if r, err := east.Relay(t.Context()); r != nil || err != nil {
		t.Errorf("without a relay: %v, %v", r, err)
	}
	c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "developer"}})
	address := c.install()
	down := func(c *Cluster, want string) {
		t.Helper()
		var d *RelayDown
		r, err := c.Relay(t.Context())
		if err == nil {
			err = r.Stream(t.Context(), api.PathObserve, nil, io.Discard)
		}
		if !errors.As(err, &d) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c.pod("starting", "127.0.0.1:1", corev1.ConditionFalse)
	down(east, "no Pod of the relay is ready, of 1")
	developer := New("east", c.as("developer"))
	down(developer, "ask for the Role tombolo-observe-users")
	c.pod("dead", "127.0.0.1:1", corev1.ConditionTrue)
	down(east, "connection refused")
	if err := c.writer.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: api.RelayNamespace,
		Name: "dead"}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.pod("good", address, corev1.ConditionTrue)

	ask := func(c *Cluster, query url.Values) (string, error) {
		t.Helper()
		r, err := c.Relay(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = r.Stream(t.Context(), api.PathObserve, query, &out)
		return out.String(), err
	}
	if text, err := ask(east, nil); err != nil || !strings.Contains(text, `"absent":["node-1"]`) {
		t.Errorf("an administrator: %v, %s", err, text)
	}
	c.create(bound(api.RelayNamespace, "Role", "tombolo-observe-users", "developer"))
	namespace := url.Values{"namespace": {"default"}}
	const role = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: tombolo-observe-flows
  namespace: default
rules:
- apiGroups:
  - observe.tombolo.io
  resources:
  - flows
  verbs:
  - list`
	ovstest.Eventually(t, "the developer is refused", func() error {
		r, err := developer.Relay(t.Context())
		if err != nil {
			return err
		}
		err = r.Stream(t.Context(), api.PathObserve, namespace, io.Discard)
		if err == nil || !strings.HasSuffix(err.Error(), role) {
			t.Fatalf("%v\nwant the Role\n%s", err, role)
		}
		return nil
	})
	c.create(bound("default", "ClusterRole", "tombolo-observe-flows", "developer"))
	ovstest.Eventually(t, "the developer may see the Namespace", func() error {
		_, err := ask(developer, namespace)
		return err
	})
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://relay", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (needsToken{}).RoundTrip(q); err == nil || !strings.Contains(err.Error(), "has no bearer token") {
		t.Errorf("a user without a token: %v", err)
	}
}
