// Package relaytest runs the relay for tests, with a real API server that has the objects of the relay's manifest.
package relaytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/relay"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// Agents is the user name of agents.
const Agents = "system:serviceaccount:kube-system:antrea-agent"

// Cluster is an API server.
type Cluster struct {
	Admin  *rest.Config
	Writer client.Client

	t     testing.TB
	relay *rest.Config
	cas   *x509.CertPool // of the relay's certificate
}

// New runs an API server with definitions until the test ends. The server has the agents' ServiceAccount, but not the
// relay's objects.
func New(t testing.TB, definitions ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, Admin: apiserver.Start(t, definitions...), cas: x509.NewCertPool()}
	var err error
	if c.Writer, err = client.New(c.Admin, client.Options{}); err != nil {
		t.Fatal(err)
	}
	c.Account("kube-system", "antrea-agent")
	return c
}

// Install makes the relay's objects.
func (c *Cluster) Install() {
	c.t.Helper()
	c.relay = apiserver.Access(c.t, c.Admin, c.manifest())
	c.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: api.RelaySecret, Namespace: api.RelayNamespace}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: api.RelayCA, Namespace: api.RelayNamespace}})
}

// AsRelay returns a configuration that acts as the relay's ServiceAccount. Call it after Install.
func (c *Cluster) AsRelay() *rest.Config { return rest.CopyConfig(c.relay) }

// manifest reads the relay's manifest. The test's directory is below the repository's.
func (c *Cluster) manifest() []byte {
	c.t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		c.t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "deploy", "agent", "tombolo-observe.yml"))
		if err == nil {
			return text
		}
		if dir == filepath.Dir(dir) {
			c.t.Fatalf("find the relay's manifest: %v", err)
		}
	}
}

// Create makes objects.
func (c *Cluster) Create(list ...client.Object) {
	c.t.Helper()
	for _, o := range list {
		if err := c.Writer.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Account makes a ServiceAccount.
func (c *Cluster) Account(namespace, name string) {
	c.t.Helper()
	c.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// Bind binds a role of the relay's manifest to a ServiceAccount of kube-system, in a Namespace.
func (c *Cluster) Bind(namespace, kind, role, account string) {
	c.t.Helper()
	c.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role + "-" + account},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: account}}})
}

// Token returns a token of a ServiceAccount for an audience; for the API server if it is empty. If a Node is named, the
// token is of a Pod on that Node.
func (c *Cluster) Token(namespace, account, audience, node string) string {
	c.t.Helper()
	q := &authentication.TokenRequest{}
	if audience != "" {
		q.Spec.Audiences = []string{audience}
	}
	if node != "" {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-", Namespace: namespace},
			Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account,
				Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		c.Create(pod)
		q.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name,
			UID: pod.UID}
	}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.Writer.SubResource("token").Create(c.t.Context(), of, q); err != nil {
		c.t.Fatal(err)
	}
	return q.Status.Token
}

// Observer returns a token that may see everything.
func (c *Cluster) Observer() string {
	c.t.Helper()
	return c.Token(api.RelayNamespace, api.ObserverAccount, api.RelayAudience, "")
}

// Replica is a replica of the relay in this process.
type Replica struct {
	Relay   *relay.Relay
	Address string
	Stop    func()

	c *Cluster
}

// Start runs a replica until the test ends or Stop is called. Its certificate is published when Start returns.
func (c *Cluster) Start() *Replica {
	c.t.Helper()
	writer, err := client.New(c.relay, client.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	certificate := &certs.Certificate{Client: writer, Namespace: api.RelayNamespace, Names: relay.CertificateNames()}
	r, err := relay.New(relay.Options{Config: c.relay, Agents: Agents, TLS: certificate.TLS,
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	var all sync.WaitGroup
	for _, run := range []func() error{func() error { return certificate.Start(ctx) },
		func() error { return r.Serve(ctx, listener) }} {
		all.Go(func() {
			if err := run(); err != nil {
				c.t.Error(err)
			}
		})
	}
	var once sync.Once
	out := &Replica{r, listener.Addr().String(), func() { once.Do(func() { cancel(); all.Wait() }) }, c}
	c.t.Cleanup(out.Stop)
	ovstest.Eventually(c.t, "the certificate is published", func() error { return certificate.Ready(nil) })
	var m corev1.ConfigMap
	key := client.ObjectKey{Namespace: api.RelayNamespace, Name: api.RelayCA}
	if err := c.Writer.Get(c.t.Context(), key, &m); err != nil {
		c.t.Fatal(err)
	}
	if !c.cas.AppendCertsFromPEM([]byte(m.Data[api.RelayCAKey])) {
		c.t.Fatal("the ConfigMap has no certificate")
	}
	return out
}

// TLS is the configuration of a client of the relay.
func (r *Replica) TLS() *tls.Config {
	return &tls.Config{RootCAs: r.c.cas, ServerName: api.RelayHost, NextProtos: []string{"http/1.1"}}
}

// Ask asks the replica with a token.
func (r *Replica) Ask(ctx context.Context, token, path string, query url.Values) *http.Response {
	r.c.t.Helper()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: r.TLS()}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.Address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		r.c.t.Fatal(err)
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := web.Do(q)
	if err != nil {
		r.c.t.Fatal(err)
	}
	return answer
}

// Get returns the answer of Ask.
func (r *Replica) Get(token, path string, query url.Values) (int, string) {
	r.c.t.Helper()
	answer := r.Ask(r.c.t.Context(), token, path, query)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.c.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}
