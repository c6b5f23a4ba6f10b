package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// nodeHealthPort is the port at which load balancers ask whether a Node serves Services at all. kube-proxy uses the
// same port.
const nodeHealthPort = 10256

// healthRetry is the time after which the agent tries to open a port again that another program has. kube-proxy has
// these ports while it runs, too.
const healthRetry = 10 * time.Second

// healthConnections is how many connections a port has at one time. Any machine that reaches the Node may ask, so their
// number and duration have bounds. A connection ends with its answer.
const healthConnections = 64

// healthPerClient is how many of these connections one client may have, so that idle connections of one client leave
// room for load balancers.
const healthPerClient = 16

// healthLimit is how long a client may take for its request, and for reading the answer.
const healthLimit = 3 * time.Second

// healthKept is how long an answer about the Node is kept.
const healthKept = time.Second

// oncePer returns a function that calls get again after a time only.
func oncePer(kept time.Duration, get func() bool) func() bool {
	var mu sync.Mutex
	var at time.Time
	var last bool
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if at.IsZero() || time.Since(at) >= kept {
			last, at = get(), time.Now()
		}
		return last
	}
}

// taintLeaving marks Nodes that Kubernetes' autoscaler is about to remove (KEP-3836).
const taintLeaving = "ToBeDeletedByClusterAutoscaler"

// isLeaving reports whether load balancers should send no new connections to a Node.
func isLeaving(n *corev1.Node) bool {
	return n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintLeaving })
}

// serviceHealth answers health checks of load balancers over HTTP, at all addresses of the Node. At the
// healthCheckNodePort of a Service it answers whether the Node has ready endpoints of the Service. At nodeHealthPort it
// answers whether the Node serves Services. The answers have kube-proxy's form.
type serviceHealth struct {
	healthy  func() bool // the Node's network is ready
	leaving  func() bool
	nodePort uint16
	retry    time.Duration
	limit    time.Duration
	log      *slog.Logger

	mu       sync.Mutex
	services map[derive.Object]service.Health
	wanted   map[uint16]derive.Object // the ports that should be open
	reported map[uint16]bool          // ports that another program has
	updated  time.Time                // when the Node was last found healthy
	wake     chan struct{}
}

func newServiceHealth(healthy, leaving func() bool, log *slog.Logger) *serviceHealth {
	return &serviceHealth{
		healthy: healthy, leaving: leaving, nodePort: nodeHealthPort, retry: healthRetry, limit: healthLimit, log: log,
		services: map[derive.Object]service.Health{}, reported: map[uint16]bool{}, wake: make(chan struct{}, 1),
	}
}

// changed takes over rows of the table of answers.
func (h *serviceHealth) changed(changes []derive.Change[derive.Object, service.Health]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changes {
		if h.services[c.Key] = c.New; c.New == (service.Health{}) {
			delete(h.services, c.Key)
		}
	}
	h.wanted = h.ports()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// ports returns the ports that should be open. A port of two Services answers for the first by name. The caller holds
// h.mu.
func (h *serviceHealth) ports() map[uint16]derive.Object {
	out := map[uint16]derive.Object{}
	for _, key := range slices.SortedFunc(maps.Keys(h.services), derive.Object.Compare) {
		if port := h.services[key].Port; port != h.nodePort {
			if _, taken := out[port]; !taken {
				out[port] = key
			}
		}
	}
	return out
}

// run keeps the ports open until ctx ends.
func (h *serviceHealth) run(ctx context.Context) {
	open := map[uint16]context.CancelFunc{}
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	again := time.NewTicker(h.retry)
	defer again.Stop()
	for {
		h.mu.Lock()
		want := h.wanted // a change makes another map
		h.mu.Unlock()
		for port, end := range open {
			if _, ok := want[port]; !ok && port != h.nodePort {
				end()
				delete(open, port)
			}
		}
		for port := range want {
			answer := func(w http.ResponseWriter, _ *http.Request) { h.answer(w, port) }
			h.open(ctx, port, http.HandlerFunc(answer), open, &serving)
		}
		h.open(ctx, h.nodePort, h.node(), open, &serving)
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-again.C:
		}
	}
}

// open opens a port if it is not open yet.
func (h *serviceHealth) open(ctx context.Context, port uint16, handler http.Handler, open map[uint16]context.CancelFunc,
	serving *sync.WaitGroup) {
	if _, ok := open[port]; ok {
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(int(port)))
	h.report(port, err)
	if err != nil {
		return
	}
	ctx, open[port] = context.WithCancel(ctx)
	serving.Go(func() {
		server := &http.Server{Handler: handler, ReadTimeout: h.limit, WriteTimeout: h.limit, MaxHeaderBytes: 8 << 10}
		server.SetKeepAlivesEnabled(false)
		fair := &fairListener{Listener: listener, most: healthPerClient, open: map[netip.Prefix]int{}}
		if err := serveWith(ctx, netutil.LimitListener(fair, healthConnections), server); err != nil {
			h.log.Error("answer load balancers", "error", err)
		}
	})
}

// fairListener closes new connections of clients that have too many. A client is an IPv4 address, or a /64 of IPv6,
// since one machine may have all addresses of a /64.
type fairListener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[netip.Prefix]int // connections
}

// Accept returns the next connection of a client with fewer than most connections.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := healthClient(conn.RemoteAddr())
		if !l.enter(client) {
			conn.Close()
			continue
		}
		return &fairConn{conn, sync.OnceFunc(func() { l.leave(client) })}, nil
	}
}

// enter counts a connection. It returns false if the client has enough.
func (l *fairListener) enter(client netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= l.most {
		return false
	}
	l.open[client]++
	return true
}

func (l *fairListener) leave(client netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// healthClient returns the client that has an address.
func healthClient(a net.Addr) netip.Prefix {
	at, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := at.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(ip, bits).Masked()
}

// fairConn is a connection that is counted until it is closed.
type fairConn struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *fairConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// report logs once that a port is taken, and once that it is not any more.
func (h *serviceHealth) report(port uint16, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !h.reported[port]:
		h.log.Warn("cannot answer load balancers; trying again", "port", port, "error", err,
			"remedy", "stop the program that has the port, which may be kube-proxy")
		h.reported[port] = true
	case err == nil && h.reported[port]:
		h.log.Info("answers load balancers", "port", port)
		delete(h.reported, port)
	}
}

// healthAnswer is what is answered about a Service.
type healthAnswer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// answer answers at the port of a Service, whatever the path.
func (h *serviceHealth) answer(w http.ResponseWriter, port uint16) {
	h.mu.Lock()
	key, ok := h.wanted[port]
	ready := h.services[key].Ready
	h.mu.Unlock()
	var out healthAnswer
	out.Service.Namespace, out.Service.Name = key.Namespace, key.Name
	out.LocalEndpoints, out.ServiceProxyHealthy = ready, h.healthy()
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(ready))
	h.write(w, ok && ready > 0 && out.ServiceProxyHealthy, out)
}

// nodeAnswer is the answer about the Node. Its fields are kube-proxy's (pkg/proxy/healthcheck/proxy_health.go).
type nodeAnswer struct {
	// LastUpdated is the current time while Services are served. Otherwise it is the last time at which they were.
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	NodeEligible *bool     `json:"nodeEligible,omitempty"`
	Healthy      bool      `json:"healthy"`
}

// node answers at nodeHealthPort. The answer at /healthz depends on whether the Node should get new connections, the
// answer at /livez does not.
func (h *serviceHealth) node() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		eligible := !h.leaving()
		answer := h.nodeAnswer()
		answer.NodeEligible = &eligible
		h.write(w, answer.Healthy && eligible, answer)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		answer := h.nodeAnswer()
		h.write(w, answer.Healthy, answer)
	})
	return mux
}

func (h *serviceHealth) nodeAnswer() nodeAnswer {
	answer := nodeAnswer{CurrentTime: time.Now(), Healthy: h.healthy()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if answer.Healthy {
		h.updated = answer.CurrentTime
	}
	answer.LastUpdated = h.updated
	return answer
}

// write writes 200 or 503, and the answer as JSON.
func (h *serviceHealth) write(w http.ResponseWriter, ok bool, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		text = fmt.Appendf(nil, "%q", err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if _, err := io.WriteString(w, string(text)+"\n"); err != nil {
		h.log.Debug("answer a load balancer", "error", err)
	}
}
