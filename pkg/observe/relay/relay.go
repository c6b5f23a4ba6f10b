// Package relay lets people and programs ask the agents of all Nodes of a cluster at one place. Agents dial each
// replica (package reverse), so Nodes have no listener. The API server reviews the tokens of readers, and decides what
// they see.
//
// A replica keeps no state except the connections of Nodes. It asks Nodes only when it gets a request.
package relay

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/certs"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// Bounds of the server.
const (
	maxConnections = 8192
	headerLimit    = 10 * time.Second // for the header of a request
	idleLimit      = 2 * time.Minute
	maxHeader      = 32 << 10
	stopLimit      = 2 * time.Second
)

// Options are the parameters of a Relay.
type Options struct {
	Config *rest.Config // for reviews of tokens and of access
	// Agents is the user name of agents: "system:serviceaccount:NAMESPACE:NAME".
	Agents   string
	TLS      func(*tls.Config) // sets the certificate
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Relay is one replica of the relay.
type Relay struct {
	options Options
	who     *reviewer
	nodes   *nodes
	readers readers
	records *prometheus.CounterVec
	log     *slog.Logger
}

// CertificateNames returns the names of the objects in which the replicas keep their certificate.
func CertificateNames() certs.Names {
	return certs.Names{Service: api.RelayService, Secret: api.RelaySecret, ConfigMap: api.RelayCA,
		Manifest: "deploy/agent/tombolo-observe.yml"}
}

// New returns a Relay that serves nothing yet.
func New(o Options) (*Relay, error) {
	tokens, err := authenticationv1.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make the client for reviews of tokens: %w", err)
	}
	access, err := authorizationv1.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make the client for reviews of access: %w", err)
	}
	r := &Relay{options: o, nodes: newNodes(o.Log), log: o.Log,
		who: newReviewer(tokens.TokenReviews(), access.SubjectAccessReviews(), o.Agents),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tombolo_observe_relay_records_total",
			Help: "Records that the relay has read for readers, by what became of them."}, []string{"result"}),
	}
	o.Registry.MustRegister(r.records, r.who.reviews, nodesMetric{r.nodes}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tombolo_observe_relay_readers", Help: "Readers of records."}, r.readers.count))
	return r, nil
}

// Nodes returns the list to which the names of the cluster's Nodes are written.
func (r *Relay) Nodes() interface {
	Add(name string)
	Delete(name string)
} {
	return r.nodes
}

// NeedLeaderElection returns false: every replica serves.
func (r *Relay) NeedLeaderElection() bool { return false }

// Serve serves on a listener until ctx ends.
func (r *Relay) Serve(ctx context.Context, listener net.Listener) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	r.options.TLS(config)
	server := &http.Server{
		Handler: r.Handler(), TLSConfig: config, ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit,
		MaxHeaderBytes: maxHeader, BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug), // of handshakes
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		r.nodes.closeAll()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if server.Shutdown(end) != nil {
			_ = server.Close()
		}
	}()
	err := server.ServeTLS(netutil.LimitListener(listener, maxConnections), "", "")
	if errors.Is(err, http.ErrServerClosed) {
		<-ended
		return nil
	}
	return fmt.Errorf("serve the relay at %s: %w", listener.Addr(), err)
}

// Handler returns the relay's API.
func (r *Relay) Handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, f func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, q *http.Request) {
			if err := f(w, q); err != nil {
				refuse(w, err)
			}
		})
	}
	answer(pathNode, r.takeNode)
	answer(api.PathNodes, r.listNodes)
	answer(api.PathNodes+"/{node}/{path...}", r.askNode)
	answer(api.PathObserve, r.observe)
	own := promhttp.HandlerFor(r.options.Registry, promhttp.HandlerOpts{})
	answer(api.PathMetrics, func(w http.ResponseWriter, q *http.Request) error {
		if err := r.allow(q, metricsAccess); err != nil {
			return err
		}
		own.ServeHTTP(w, q)
		return nil
	})
	answer(api.PathMetrics+"/nodes/{node}", r.nodeMetrics)
	answer(api.PathTargets, r.targets)
	return mux
}

// failure is an error with the status of its answer.
type failure struct {
	status int
	text   string
	need   *api.Access
}

func (f *failure) Error() string { return f.text }

func failed(status int, format string, args ...any) error {
	return &failure{status: status, text: fmt.Sprintf(format, args...)}
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{status: http.StatusServiceUnavailable, text: err.Error()}
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, f.status, api.Error{Error: f.text, Need: f.need})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the reader may have left
}
