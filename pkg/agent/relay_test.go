package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/relay/relaytest"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// TestRelay has an agent find two replicas of the relay by an EndpointSlice. Both ask it. One ends, one more comes, and
// the agent leaves a replica that is no endpoint.
func TestRelay(t *testing.T) {
	c := relaytest.New(t)
	c.Install()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(c.Token("kube-system", "antrea-agent", api.RelayAudience, "node-1")+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	as := rest.CopyConfig(c.Admin)
	as.Impersonate.UserName = relaytest.Agents
	reader := c.Observer()
	v := testView()
	a, err := newAgent(Options{
		Config: v.Config, NodeName: "node-1", REST: as, Namespace: "kube-system", RelayToken: token,
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
	endpoints := func(list ...*relaytest.Replica) {
		rows := map[derive.Object]service.SliceFacts{}
		for i, replica := range list { // each has a port of its own here, so a slice of its own
			at := netip.MustParseAddrPort(replica.Address)
			rows[derive.Object{Namespace: api.RelayNamespace, Name: fmt.Sprint("s", i)}] = service.SliceFacts{
				Service: relayService, Ports: []service.SlicePort{{Name: api.RelayPortName, Protocol: "TCP", Port: at.Port()}},
				Endpoints: []service.EndpointFacts{{Addr: at.Addr(), Ready: true},
					{Addr: netip.MustParseAddr("192.0.2.1"), Ready: false}},
			}
		}
		a.tables.services.Slices.Replace(rows)
	}
	const node = api.PathNodes + "/node-1"
	answers := func(r *relaytest.Replica) {
		t.Helper()
		ovstest.Eventually(t, "the agent answers", func() error {
			status, text := r.Get(reader, node+api.PathStatus, nil)
			if status != http.StatusOK || !strings.Contains(text, `"node":"node-1"`) {
				return errors.New(text)
			}
			return nil
		})
	}
	one, two := c.Start(), c.Start()
	endpoints(one, two)
	answers(one)
	answers(two)
	if status, text := two.Get(reader, node+api.PathTrace, url.Values{"flow": {"x"}}); status != http.
		StatusServiceUnavailable {
		t.Errorf("without a switch the trace is %d %q", status, text)
	}
	one.Stop()
	three := c.Start()
	endpoints(two, three)
	answers(two)
	answers(three)
	endpoints(three)
	ovstest.Eventually(t, "the agent leaves what is no endpoint", func() error {
		if status, text := two.Get(reader, node+api.PathStatus, nil); status != http.StatusNotFound {
			return fmt.Errorf("the answer is %d: %s", status, text)
		}
		return nil
	})
	answers(three)
}

// TestReading asks an agent's handler as the relay does: for paths that change nothing, and for others.
func TestReading(t *testing.T) {
	asked := ""
	all := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.Path })
	for _, c := range []struct {
		method, path string
		served       bool
	}{
		{http.MethodPost, api.PathPacketSend, false},
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
		reading(all, true).ServeHTTP(answer, q)
		if (asked != "") != c.served || !c.served && answer.Code != http.StatusNotFound {
			t.Errorf("%s %s: served %t with %d, want %t", c.method, c.path, asked != "", answer.Code, c.served)
		}
	}
	asked = ""
	answer := httptest.NewRecorder()
	reading(all, true).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, api.PathPacketWatch+"?deliver=true",
		http.NoBody))
	if asked != "" || answer.Code != http.StatusForbidden {
		t.Errorf("the relay delivers packets: %d", answer.Code)
	}
	for _, path := range api.Following {
		for _, on := range []bool{true, false} {
			asked = ""
			answer := httptest.NewRecorder()
			reading(all, on).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			if (asked != "") != on || !on && !strings.Contains(answer.Body.String(), "the feature Traceflow is off") {
				t.Errorf("%s with the feature %t: %d %s", path, on, answer.Code, answer.Body)
			}
		}
	}
}
