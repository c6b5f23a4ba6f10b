package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// How long things may take. A runtime gives up after two to four minutes.
const (
	networkTimeout  = 30 * time.Second // documented: ADD waits this long for the Node's network
	attachTimeout   = 60 * time.Second
	detachTimeout   = 30 * time.Second
	rollbackTimeout = 15 * time.Second
	statusTimeout   = 2 * time.Second
	// stopTimeout limits the clean-up when the agent ends. The Pod's terminationGracePeriodSeconds is longer.
	stopTimeout = 3 * time.Second
)

// Options has the dependencies and settings of a Server.
type Options struct {
	Node   Node
	IPAM   *ipam.Store
	Logger *slog.Logger
	Socket string        // DefaultSocket when empty
	Extra  ExtraNetworks // nil for no further interfaces

	// NetworkTimeout is how long ADD waits for the Node's network before it answers
	// TRY_AGAIN_LATER; 30 s when zero.
	NetworkTimeout time.Duration

	// Unrecovered gets the attachments that could not be rebuilt yet, from Recover and whenever they change
	// while Run runs. It may be nil.
	Unrecovered func([]Unrecovered)
}

// Server answers CNI requests. Requests for one interface of one container are served one
// after the other, all others at the same time.
type Server struct {
	node           Node
	ipam           *ipam.Store
	extra          ExtraNetworks
	log            *slog.Logger
	socket         string
	networkTimeout time.Duration

	mu    sync.Mutex
	busy  map[ipam.Key]*turn
	stale []Attachment // found by Recover, detached by Run

	unrecovered   []Unrecovered // not rebuilt by Recover, and retried by Run
	onUnrecovered func([]Unrecovered)

	undoing context.Context // ends stopTimeout after the context of Run
}

// turn is the queue of requests for one Key.
type turn struct {
	ch    chan struct{} // holds one token
	users int
}

// NewServer returns a Server that Run starts.
func NewServer(o Options) *Server {
	s := &Server{
		node:           o.Node,
		ipam:           o.IPAM,
		extra:          o.Extra,
		log:            o.Logger,
		socket:         o.Socket,
		networkTimeout: o.NetworkTimeout,
		busy:           map[ipam.Key]*turn{},
		onUnrecovered:  o.Unrecovered,
		undoing:        context.Background(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.socket == "" {
		s.socket = wire.DefaultSocket
	}
	if s.networkTimeout == 0 {
		s.networkTimeout = networkTimeout
	}
	return s
}

// Run serves until ctx ends. Then it cancels all requests and undoes them. It returns when all have returned.
func (s *Server) Run(ctx context.Context) error {
	l, err := listen(s.socket)
	if err != nil {
		return fmt.Errorf("serve CNI on %s: %w", s.socket, err)
	}
	undoing, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s.undoing = undoing
	server := &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.detachStale(ctx) })
	wg.Go(func() { s.recoverRest(ctx) })
	wg.Go(func() {
		<-ctx.Done()
		// Requests see ctx end; rolling back takes at most this long.
		time.AfterFunc(stopTimeout, end)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout+500*time.Millisecond)
		defer cancel()
		if err := server.Shutdown(last); err != nil {
			_ = server.Close() // they have been given their time
		}
	})
	s.log.Info("serving CNI", "socket", s.socket)
	err = server.Serve(l)
	if ctx.Err() == nil {
		return fmt.Errorf("serve CNI on %s: %w", s.socket, err)
	}
	wg.Wait()
	return nil
}

// listen opens the socket under another name and renames it into place. So the socket never has wider permissions for a
// moment, and does not disappear when one agent replaces another.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the next agent may have the name then
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// command serves one kind of request: its answer's body, or an error.
type command func(ctx context.Context, q wire.Request, c *netConf) ([]byte, *types.Error)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, run := range map[string]command{
		wire.PathAdd:    s.add,
		wire.PathDel:    s.del,
		wire.PathCheck:  s.check,
		wire.PathStatus: s.status,
		wire.PathGC:     s.gc,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, run) })
	}
	return mux
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, run command) {
	started := time.Now()
	q, err := wire.Decode(r.Body)
	if err != nil {
		answer(w, nil, types.NewError(wire.CodeDecoding, "read the plugin's request: "+err.Error(),
			"install the plugin of the agent's version"))
		return
	}
	log := s.log.With("command", r.URL.Path[len("/v1/"):], "container", q.ContainerID, "interface", q.IfName)
	c, failed := parseConf(q.Config)
	var body []byte
	switch {
	case failed != nil:
	case c.Type == wire.PluginCN2:
		body, failed = extras{s}.attached(r.URL.Path, q, c)
	default:
		body, failed = run(r.Context(), q, c)
	}
	switch {
	case failed != nil:
		log.Error("CNI request failed", "code", failed.Code, "error", failed.Msg, "details", failed.Details, "took",
			time.Since(started))
	case r.URL.Path == wire.PathStatus || r.URL.Path == wire.PathCheck:
		log.Debug("CNI request done", "took", time.Since(started))
	default:
		log.Info("CNI request done", "pod", parseArgs(q.Args).String(), "took", time.Since(started))
	}
	answer(w, body, failed)
}

func answer(w http.ResponseWriter, body []byte, failed *types.Error) {
	w.Header().Set("Content-Type", "application/json")
	if failed != nil {
		body, _ = json.Marshal(failed) // three plain fields
	}
	// The plugin asks by HTTP/1.0: without a length an answer that is cut off would look whole.
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if failed != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	_, _ = w.Write(body) // a plugin that has gone needs no answer
}

// lock waits for the turn of a container's interface. Call the function when done.
func (s *Server) lock(ctx context.Context, k ipam.Key) (func(), error) {
	s.mu.Lock()
	t := s.busy[k]
	if t == nil {
		t = &turn{ch: make(chan struct{}, 1)}
		s.busy[k] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.busy, k)
		}
	}
	select {
	case t.ch <- struct{}{}:
		return func() { <-t.ch; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// status answers whether ADD can be served (specification 1.1).
func (s *Server) status(ctx context.Context, _ wire.Request, _ *netConf) ([]byte, *types.Error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if _, err := s.node.Network(ctx); err != nil {
		return nil, types.NewError(wire.CodeNotAvailable, "the Node's network is not ready", err.Error())
	}
	return nil, nil
}

// find returns the attachment of a Key.
func (s *Server) find(k ipam.Key) (Attachment, bool) {
	for _, a := range s.node.Attachments() {
		if a.ContainerID == k.ContainerID && a.IfName == k.IfName {
			return a, true
		}
	}
	return Attachment{}, false
}

// Gateway returns the gateway address of the network's i-th range. The Node gives it, or it is the range's first
// address.
func (n Network) Gateway(i int) netip.Addr {
	if i < len(n.Gateways) && n.Gateways[i].IsValid() {
		return n.Gateways[i]
	}
	return n.PodCIDRs[i].Masked().Addr().Next()
}

// ranges returns the ranges for addresses, without the gateways and the reserved addresses.
func (n Network) ranges() []ipam.Range {
	var out []ipam.Range
	for i, p := range n.PodCIDRs {
		first := p.Masked().Addr().Next()
		out = append(out, ipam.Range{Prefix: p, Reserved: append([]netip.Addr{first, n.Gateway(i)}, n.Reserved...)})
	}
	return out
}
