package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestProbes probes an agent without a switch, as a kubelet does. The agent is alive and not ready. Its port was taken
// when it started.
func TestProbes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	log := &logTail{}
	a, err := newAgent(Options{
		Config: config.Default(), NodeName: "node-1", REST: &rest.Config{Host: "https://192.0.2.1"}, Namespace: "kube-system",
		OVSRunDir: t.TempDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(log, nil)),
		HealthAddress: netip.MustParseAddrPort(taken.Addr().String()),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- healthAPI{a}.serve(ctx) }()
	ovstest.Eventually(t, "the log names the remedy", func() error {
		if text := log.String(); !strings.Contains(text, "apiPort") {
			return fmt.Errorf("it is %q", text)
		}
		return nil
	})
	taken.Close()
	ask := func(path string) (code int, body string, err error) {
		r, err := http.Get("http://" + taken.Addr().String() + path)
		if err != nil {
			return 0, "", err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return r.StatusCode, string(text), err
	}
	ovstest.Eventually(t, "the agent answers", func() error {
		code, body, err := ask("/livez")
		if err == nil && (code != http.StatusOK || body != "ok\n") {
			err = fmt.Errorf("/livez: %d %q", code, body)
		}
		return err
	})
	if code, body, err := ask("/readyz"); err != nil || code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "no connection to the OVSDB") {
		t.Errorf("/readyz without a switch: %d %q, %v", code, body, err)
	}
	if code, _, err := ask("/v1/flows"); err != nil || code != http.StatusNotFound {
		t.Errorf("the debug API is there, too: %d, %v", code, err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
