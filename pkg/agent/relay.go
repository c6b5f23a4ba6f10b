package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// Bounds of connections to the relay.
const (
	maxRelays    = 8 // replicas that are dialled
	relayDial    = 10 * time.Second
	relayRetry   = time.Second
	relayRetryTo = 30 * time.Second
	relaySteady  = time.Minute // a connection that lasts so long ends the back-off
)

var relayService = derive.Object{Namespace: api.RelayNamespace, Name: api.RelayService}

// relays keeps a connection to each replica of the relay, and answers the relay's requests on it. So the Node needs no
// listening port. Without the relay's Service it opens no connections.
type relays struct {
	tables  *tables
	token   string                                // file of the token for the relay
	cas     func(context.Context) ([]byte, error) // that the relay's certificate is checked with
	handler http.Handler
	log     *slog.Logger
	open    prometheus.Gauge
	wake    chan struct{}
}

func newRelays(o Options, t *tables, handler http.Handler) (*relays, error) {
	core, err := corev1client.NewForConfig(rest.CopyConfig(o.REST))
	if err != nil {
		return nil, fmt.Errorf("make the client for the relay's CA: %w", err)
	}
	r := &relays{tables: t, token: o.RelayToken, handler: reading(handler, o.Config.Enabled("Traceflow")),
		log: o.Logger, wake: make(chan struct{}, 1),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tombolo_observe_relay_connections",
			Help: "Replicas of the relay that this agent is connected to."}),
		cas: func(ctx context.Context) ([]byte, error) {
			m, err := core.ConfigMaps(api.RelayNamespace).Get(ctx, api.RelayCA, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("get ConfigMap %s/%s: %w", api.RelayNamespace, api.RelayCA, err)
			}
			return []byte(m.Data[api.RelayCAKey]), nil
		}}
	t.services.Slices.Watch(func(changes []derive.Change[derive.Object, service.SliceFacts]) {
		if slices.ContainsFunc(changes, func(c derive.Change[derive.Object, service.SliceFacts]) bool {
			return c.Key.Namespace == api.RelayNamespace
		}) {
			r.ask()
		}
	})
	return r, nil
}

// reading serves the paths in api.Reading, for GET requests only. If the relay follows packets for Traceflows, it
// serves the paths in api.Following too.
func reading(all http.Handler, traceflows bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		following := slices.Contains(api.Following, r.URL.Path)
		switch {
		case r.Method != http.MethodGet || !following && !slices.Contains(api.Reading, r.URL.Path):
			http.Error(w, "agents serve no such path through the relay", http.StatusNotFound)
		case following && r.URL.Query().Get("deliver") != "" && r.URL.Query().Get("deliver") != "false":
			http.Error(w, "packets of Traceflows are not delivered", http.StatusForbidden)
		case following && !traceflows:
			http.Error(w, "the feature Traceflow is off: switch it on in featureGates of antrea-agent.conf",
				http.StatusForbidden)
		default:
			all.ServeHTTP(w, r)
		}
	})
}

// ask has run look at the endpoints again.
func (r *relays) ask() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run keeps the connections until ctx ends.
func (r *relays) run(ctx context.Context) {
	if r.token == "" {
		return
	}
	open := map[netip.AddrPort]func(){}
	defer func() {
		for _, stop := range open {
			stop()
		}
	}()
	for {
		var want []netip.AddrPort
		if ask(ctx, r.tables.engine, func() { want = r.endpoints() }) != nil && ctx.Err() == nil {
			want = nil
			time.AfterFunc(relayRetry, r.ask)
		}
		for at, stop := range open {
			if !slices.Contains(want, at) {
				stop()
				delete(open, at)
			}
		}
		for _, at := range want {
			if open[at] == nil {
				open[at] = r.keep(ctx, at)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
	}
}

// endpoints returns the replicas of the relay. Call it between two passes.
func (r *relays) endpoints() (out []netip.AddrPort) {
	for _, key := range r.tables.services.ByService.Keys(relayService) {
		slice, _ := r.tables.services.Slices.Get(key)
		for _, port := range slice.Ports {
			if port.Name != api.RelayPortName {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.Ready {
					out = append(out, netip.AddrPortFrom(e.Addr, port.Port))
				}
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	out = slices.Compact(out)
	return out[:min(len(out), maxRelays)]
}

// keep keeps a connection to a replica until stop is called.
func (r *relays) keep(ctx context.Context, at netip.AddrPort) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		back, reported := relayBackoff(), ""
		for ctx.Err() == nil {
			began := time.Now()
			err := r.serve(ctx, at)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > relaySteady {
				back, reported = relayBackoff(), ""
			}
			if text := errorText(err); text != reported {
				reported = text
				r.log.Warn("no connection to the relay; trying again", "relay", at, "error", text)
			}
			timer := time.NewTimer(back.Step())
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// errorText returns the text of an error without the local port, so that equal errors have equal texts.
func errorText(err error) string {
	var op *net.OpError
	switch {
	case err == nil:
		return "the relay has ended the connection"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

func relayBackoff() wait.Backoff {
	return wait.Backoff{Duration: relayRetry, Factor: 2, Jitter: 0.5, Cap: relayRetryTo, Steps: 10}
}

// serve dials a replica and answers its questions until the connection ends.
func (r *relays) serve(ctx context.Context, at netip.AddrPort) error {
	token, err := os.ReadFile(r.token) // the kubelet writes a new one before it ends
	if err != nil {
		return fmt.Errorf("read the token for the relay: %w; apply the DaemonSet tombolo-agent of this version", err)
	}
	dialing, cancel := context.WithTimeout(ctx, relayDial)
	defer cancel()
	cas, err := r.cas(dialing)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cas) {
		return fmt.Errorf("ConfigMap %s/%s has no certificate at the key %s yet: the relay writes it", api.RelayNamespace,
			api.RelayCA, api.RelayCAKey)
	}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{KeepAliveConfig: reverse.KeepAlive}, Config: &tls.Config{
		RootCAs: pool, ServerName: api.RelayHost, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
	}}
	conn, err := dialer.DialContext(dialing, "tcp", at.String())
	if err != nil {
		return err
	}
	cancel()
	opened := false
	defer func() {
		if opened {
			r.open.Dec()
		}
	}()
	return reverse.Serve(ctx, conn, api.RelayHost, strings.TrimSpace(string(token)), r.handler, func() {
		opened = true
		r.open.Inc()
		r.log.Info("connected to the relay", "relay", at)
	})
}
