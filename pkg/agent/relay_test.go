package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/relay"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// relayWorld is an API server with the relay's objects, and an agent's token in a file.
type relayWorld struct {
	t     *testing.T
	kube  kubernetes.Interface
	relay *rest.Config
	agent *rest.Config
	token string
	all   string // the token of a reader
}

func newRelayWorld(t *testing.T) *relayWorld {
	t.Helper()
	admin := apiserver.Start(t)
	manifest, err := os.ReadFile("../../deploy/agent/tombolo-observe.yml")
	if err != nil {
		t.Fatal(err)
	}
	w := &relayWorld{t: t, relay: apiserver.Access(t, admin, manifest), token: filepath.Join(t.TempDir(), "token")}
	w.agent = rest.CopyConfig(admin)
	w.agent.Impersonate.UserName = "system:serviceaccount:kube-system:antrea-agent"
	if w.kube, err = kubernetes.NewForConfig(admin); err != nil {
		t.Fatal(err)
	}
	writer, err := client.New(admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "kube-system"}, Spec: corev1.PodSpec{
		NodeName: "node-1", ServiceAccountName: "antrea-agent", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "antrea-agent", Namespace: "kube-system"}}, pod,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: api.RelaySecret, Namespace: api.RelayNamespace}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: api.RelayCA, Namespace: api.RelayNamespace}},
	} {
		if err := writer.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	token := func(namespace, account string, pod *corev1.Pod) string {
		q := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: []string{api.RelayAudience}}}
		if pod != nil {
			q.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name,
				UID: pod.UID}
		}
		answer, err := w.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, q, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Token
	}
	if err := os.WriteFile(w.token, []byte(token("kube-system", "antrea-agent", pod)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.all = token(api.RelayNamespace, api.ObserverAccount, nil)
	return w
}

// replica runs a replica of the relay until stop is called.
func (w *relayWorld) replica() (at netip.AddrPort, stop func()) {
	w.t.Helper()
	writer, err := client.New(w.relay, client.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	certificate := &certs.Certificate{Client: writer, Namespace: api.RelayNamespace, Names: relay.CertificateNames()}
	r, err := relay.New(relay.Options{Config: w.relay, Agents: w.agent.Impersonate.UserName, TLS: certificate.TLS,
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, run := range []func() error{func() error { return certificate.Start(ctx) },
		func() error { return r.Serve(ctx, listener) }} {
		all.Go(func() {
			if err := run(); err != nil {
				w.t.Error(err)
			}
		})
	}
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); all.Wait() }) }
	w.t.Cleanup(stop)
	ovstest.Eventually(w.t, "the relay has a certificate", func() error { return certificate.Ready(nil) })
	return netip.MustParseAddrPort(listener.Addr().String()), stop
}

// ask asks a replica for what the agent of node-1 answers.
func (w *relayWorld) ask(at netip.AddrPort, path string) (string, error) {
	m, err := w.kube.CoreV1().ConfigMaps(api.RelayNamespace).Get(w.t.Context(), api.RelayCA, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(m.Data[api.RelayCAKey]))
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: api.RelayHost}}}
	q, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet,
		"https://"+at.String()+api.PathNodes+"/node-1"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	q.Header.Set("Authorization", "Bearer "+w.all)
	answer, err := web.Do(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status + " " + string(text))
	}
	return string(text), err
}

// TestRelay has an agent find two replicas of the relay by an EndpointSlice. Both ask it. One ends, one more comes, and
// the agent leaves a replica that is no endpoint.
func TestRelay(t *testing.T) {
	w := newRelayWorld(t)
	v := testView()
	a, err := newAgent(Options{
		Config: v.Config, NodeName: "node-1", REST: w.agent, Namespace: "kube-system", RelayToken: w.token,
		OVSRunDir: t.TempDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.tables.set(v)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { a.tables.engine.Run(ctx) })
	all.Go(func() { a.relays.run(ctx) })
	defer func() {
		cancel()
		all.Wait()
	}()
	endpoints := func(list ...netip.AddrPort) {
		rows := map[derive.Object]service.SliceFacts{}
		for i, at := range list { // each has a port of its own here, so a slice of its own
			rows[derive.Object{Namespace: api.RelayNamespace, Name: fmt.Sprint("s", i)}] = service.SliceFacts{
				Service: relayService, Ports: []service.SlicePort{{Name: api.RelayPortName, Protocol: "TCP", Port: at.Port()}},
				Endpoints: []service.EndpointFacts{{Addr: at.Addr(), Ready: true},
					{Addr: netip.MustParseAddr("192.0.2.1"), Ready: false}},
			}
		}
		a.tables.services.Slices.Replace(rows)
	}
	answers := func(at netip.AddrPort) {
		t.Helper()
		ovstest.Eventually(t, "the agent answers "+at.String(), func() error {
			text, err := w.ask(at, api.PathStatus)
			if err == nil && !strings.Contains(text, `"node":"node-1"`) {
				err = errors.New(text)
			}
			return err
		})
	}
	one, stopOne := w.replica()
	two, _ := w.replica()
	endpoints(one, two)
	answers(one)
	answers(two)
	if text, err := w.ask(two, api.PathTrace+"?flow=x"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("without a switch the trace is %q, %v", text, err)
	}
	stopOne()
	three, _ := w.replica()
	endpoints(two, three)
	answers(two)
	answers(three)
	endpoints(three)
	ovstest.Eventually(t, "the agent leaves what is no endpoint", func() error {
		if _, err := w.ask(two, api.PathStatus); err == nil || !strings.Contains(err.Error(), "404") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	answers(three)
}

// TestReading asks an agent's handler as the relay does: for paths that change nothing, and for others.
func TestReading(t *testing.T) {
	asked := ""
	h := reading(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.Path }))
	for _, c := range []struct {
		method, path string
		served       bool
	}{
		{http.MethodGet, api.PathStatus, true}, {http.MethodGet, api.PathObserve, true}, {http.MethodGet, "/metrics", true},
		{http.MethodPost, api.PathStatus, false}, {http.MethodGet, "/debug/pprof/", false}, {http.MethodGet, "/v1/", false},
		{http.MethodGet, api.PathStatus + "/", false}, {http.MethodDelete, api.PathFlows, false},
	} {
		asked = ""
		answer := httptest.NewRecorder()
		q, err := http.NewRequestWithContext(t.Context(), c.method, c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(answer, q)
		if (asked != "") != c.served || !c.served && answer.Code != http.StatusNotFound {
			t.Errorf("%s %s: served %t with %d, want %t", c.method, c.path, asked != "", answer.Code, c.served)
		}
	}
}
