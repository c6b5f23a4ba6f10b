package relay_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/observe/relay"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// cluster is an API server with the objects of the relay's manifest, and accounts of agents and readers.
type cluster struct {
	t     testing.TB
	admin *rest.Config
	kube  kubernetes.Interface
	relay *rest.Config // as the relay's ServiceAccount
	cas   *x509.CertPool
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t, admin: apiserver.Start(t), cas: x509.NewCertPool()}
	var err error
	if c.kube, err = kubernetes.NewForConfig(c.admin); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../../deploy/agent/tombolo-observe.yml")
	if err != nil {
		t.Fatal(err)
	}
	c.relay = apiserver.Access(t, c.admin, manifest)
	for _, o := range []error{
		c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "antrea-agent", Namespace: "kube-system"}}),
		c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: "kube-system"}}),
		c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "developer", Namespace: "kube-system"}}),
		c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: api.RelaySecret, Namespace: api.RelayNamespace}}),
		c.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: api.RelayCA, Namespace: api.RelayNamespace}}),
		c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}),
		c.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "developer", Namespace: "shop"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tombolo-observe-flows"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "developer", Namespace: "kube-system"}}}),
	} {
		if o != nil {
			t.Fatal(o)
		}
	}
	return c
}

func (c *cluster) create(o client.Object) error {
	to, err := client.New(c.admin, client.Options{})
	if err != nil {
		return err
	}
	return to.Create(c.t.Context(), o)
}

// token is a token of an account, for an audience, and for a Pod on a Node if one is named.
func (c *cluster) token(namespace, account, audience, node string) string {
	c.t.Helper()
	q := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: []string{audience}}}
	if audience == "" {
		q.Spec.Audiences = nil
	}
	if node != "" {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-", Namespace: namespace},
			Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account,
				Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := c.create(pod); err != nil {
			c.t.Fatal(err)
		}
		q.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name,
			UID: pod.UID}
	}
	accounts := c.kube.CoreV1().ServiceAccounts(namespace)
	answer, err := accounts.CreateToken(c.t.Context(), account, q, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.Status.Token
}

// replica is a replica of the relay in this process.
type replica struct {
	c     *cluster
	relay *relay.Relay
	at    string
	stop  func()
}

// start runs a replica until the test ends or stop is called.
func (c *cluster) start() *replica {
	c.t.Helper()
	writer, err := client.New(c.relay, client.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	certificate := &certs.Certificate{Client: writer, Namespace: api.RelayNamespace, Names: relay.CertificateNames()}
	r, err := relay.New(relay.Options{Config: c.relay, Agents: "system:serviceaccount:kube-system:antrea-agent",
		TLS: certificate.TLS, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 2)
	go func() { ended <- certificate.Start(ctx) }()
	go func() { ended <- r.Serve(ctx, listener) }()
	stopped := false
	out := &replica{c, r, listener.Addr().String(), func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				c.t.Error(err)
			}
		}
	}}
	c.t.Cleanup(out.stop)
	ovstest.Eventually(c.t, "the certificate is published", func() error { return certificate.Ready(nil) })
	m, err := c.kube.CoreV1().ConfigMaps(api.RelayNamespace).Get(c.t.Context(), api.RelayCA, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if !c.cas.AppendCertsFromPEM([]byte(m.Data[api.RelayCAKey])) {
		c.t.Fatal("the ConfigMap has no certificate")
	}
	return out
}

func (r *replica) dial() net.Conn {
	r.c.t.Helper()
	conn, err := tls.Dial("tcp", r.at, &tls.Config{RootCAs: r.c.cas, ServerName: api.RelayHost,
		NextProtos: []string{"http/1.1"}})
	if err != nil {
		r.c.t.Fatal(err)
	}
	return conn
}

// agent serves on a connection of a Node until the returned function is called.
func (r *replica) agent(token string, handler http.Handler) (stop func()) {
	r.c.t.Helper()
	ctx, cancel := context.WithCancel(r.c.t.Context())
	done, opened := make(chan error, 1), make(chan struct{})
	go func() {
		done <- reverse.Serve(ctx, r.dial(), api.RelayHost, token, handler, func() { close(opened) })
	}()
	select {
	case <-opened:
	case err := <-done:
		r.c.t.Fatalf("the relay does not take the agent: %v", err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
		}
	}
	r.c.t.Cleanup(stop)
	return stop
}

// get asks the relay with a token.
func (r *replica) get(token, path string, query url.Values) (int, string) {
	r.c.t.Helper()
	answer := r.ask(r.c.t.Context(), token, path, query)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.c.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (r *replica) ask(ctx context.Context, token, path string, query url.Values) *http.Response {
	r.c.t.Helper()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: r.c.cas, ServerName: api.RelayHost}}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.at+path+"?"+query.Encode(), http.NoBody)
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

// fake answers as an agent does, from a history.
func fake(name string, history *record.History) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathObserve, func(w http.ResponseWriter, q *http.Request) {
		question, err := record.ParseQuestion(q.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lines := json.NewEncoder(w)
		at := history.Last(question.Last, question.Since, question.Filter)
		_ = lines.Encode(record.Event{Begin: &record.Begin{Node: name}})
		for {
			list, next, _, changed := history.Read(at)
			for _, e := range list {
				if question.Takes(e) && lines.Encode(e) != nil {
					return
				}
			}
			if at = next; !question.Follow {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-q.Context().Done():
				return
			case <-changed:
			}
		}
	})
	mux.HandleFunc("GET "+api.PathStatus, func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprintf(w, "status of %s, headers %d", name, len(q.Header["Authorization"])+len(q.Header["Cookie"]))
	})
	mux.HandleFunc("GET "+api.PathMetrics, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "up{node=%q} 1\n", name)
	})
	return mux
}

func dropOf(node, namespace, pod, to string) record.Event {
	return record.Event{Drop: &record.Record{
		Time: time.Now(), Node: node, Verdict: record.Dropped, Protocol: "TCP", Count: 1, Reason: record.ByPolicy,
		From:    record.End{Namespace: namespace, Pod: pod, IP: "10.10.0.5", Port: 4000, Node: node},
		To:      record.End{Namespace: to, Pod: "db-0", IP: "10.10.1.7", Port: 5432, Node: "node-2"},
		Message: "dropped of NetworkPolicy " + to + "/guard", Rule: &record.Rule{Policy: "NetworkPolicy " + to + "/guard"},
	}}
}

func events(t *testing.T, text string) (list []record.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e record.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		list = append(list, e)
	}
	return list
}

func nodesOf(list []record.Event) (out record.Nodes) {
	for _, e := range list {
		if e.Nodes != nil {
			out = *e.Nodes
		}
	}
	return out
}
