package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// healthAPI answers the kubelet's probes.
type healthAPI struct{ agent *Agent }

// serve answers the kubelet's probes over HTTP, at an address of localhost. A probe that runs a program in the
// container would cost the Node some 50 ms of a processor each time. /livez is 200 while the agent answers. /readyz is
// 200 while the Node's network is ready, else 503 with the reason. Without an address it serves nothing. If the port is
// taken, it retries, and the rest of the agent continues.
func (h healthAPI) serve(ctx context.Context) error {
	address := h.agent.options.HealthAddress
	if !address.IsValid() {
		return nil
	}
	for logged := false; ; logged = true {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
		if err == nil {
			return serveHTTP(ctx, listener, h.handler())
		}
		if !logged {
			h.agent.log.Error("cannot answer the kubelet's probes; trying again", "error", err,
				"remedy",
				"free the port, or give another as apiPort in antrea-agent.conf and in the probes of the DaemonSet tombolo-agent")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	return serveWith(ctx, l, &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second})
}

// serveWith serves with a server until ctx ends.
func serveWith(ctx context.Context, l net.Listener, server *http.Server) error {
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", l.Addr(), err)
	}
	return nil
}

func (h healthAPI) handler() http.Handler {
	mux := http.NewServeMux()
	probe := func(path string, failing func(api.Status) bool) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			s := h.agent.status() // also for /livez: it asks every part of the agent
			text := "ok"
			if failing(s) {
				w.WriteHeader(http.StatusServiceUnavailable)
				text = strings.Join(append([]string{"the Node's network is not ready"}, s.Waiting...), "; ")
			}
			if _, err := io.WriteString(w, text+"\n"); err != nil {
				h.agent.log.Debug("answer a probe", "path", path, "error", err)
			}
		})
	}
	probe("/livez", func(api.Status) bool { return false })
	probe("/readyz", func(s api.Status) bool { return !s.Ready })
	return mux
}

// HealthAddress is where an agent answers probes on a port.
func HealthAddress(port int) netip.AddrPort {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	return netip.AddrPortFrom(loopback, uint16(port)) //nolint:gosec // the configuration has bounds
}
